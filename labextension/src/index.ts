/** The plugins. Activation registers parts, and nothing else. */

import type {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { INotebookTracker } from '@jupyterlab/notebook';
import { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import { IStatusBar } from '@jupyterlab/statusbar';
import { addCellButton } from './cellButton';
import { addCellMenu } from './cellMenu';
import { offerLine } from './kernelLines';
import { addLateValues } from './lateValues';
import { markCells } from './marks';
import { showOtherPages } from './otherPages';
import { PoolsPanel } from './panel';
import { poolActions } from './poolActions';
import { Pools } from './pools';
import { MIME } from './record';
import { RecordView } from './recordView';
import { followRuns } from './runFollower';
import { StatusItem } from './statusItem';

const pools: JupyterFrontEndPlugin<void> = {
  id: 'skyward-nb:pools',
  description: 'The panel of pools, and their item of the status bar',
  autoStart: true,
  requires: [INotebookTracker],
  optional: [IStatusBar],
  activate: (
    app: JupyterFrontEnd,
    tracker: INotebookTracker,
    bar: IStatusBar | null
  ) => {
    const known = new Pools();
    const offer = (line: string) => offerLine(tracker, line);
    const actions = poolActions(app.serviceManager.kernels, known, offer);
    const panel = new PoolsPanel(known, actions, offer);
    app.shell.add(panel, 'left', { rank: 650 });
    known.watch(() => panel.isVisible);
    if (bar) {
      const item = new StatusItem(known, () => {
        app.shell.activateById(panel.id);
      });
      bar.registerStatusItem('skyward-nb:pools', {
        item,
        align: 'left',
        rank: 4
      });
      known.watch(() => item.isVisible);
    }
    followRuns(app.shell, tracker, known);
  }
};

const cell: JupyterFrontEndPlugin<void> = {
  id: 'skyward-nb:cell',
  description: 'The button of each cell that has it run on a pool',
  autoStart: true,
  requires: [INotebookTracker],
  activate: (app: JupyterFrontEnd, tracker: INotebookTracker) => {
    addCellButton(app, tracker);
    addCellMenu(app, tracker);
    markCells(tracker);
  }
};

const otherPages: JupyterFrontEndPlugin<void> = {
  id: 'skyward-nb:other-pages',
  description: 'Runs in pages that did not start them',
  autoStart: true,
  requires: [INotebookTracker],
  activate: (_: JupyterFrontEnd, tracker: INotebookTracker) => {
    showOtherPages(tracker);
    addLateValues(tracker);
  }
};

const record: JupyterFrontEndPlugin<void> = {
  id: 'skyward-nb:record',
  description: 'Runs in notebooks: searched, by rank, and as they are by now',
  autoStart: true,
  requires: [IRenderMimeRegistry],
  activate: (_: JupyterFrontEnd, registry: IRenderMimeRegistry) => {
    registry.addFactory({
      safe: true,
      mimeTypes: [MIME],
      defaultRank: 40,
      createRenderer: options => new RecordView(options.sanitizer)
    });
  }
};

export default [pools, cell, otherPages, record];
