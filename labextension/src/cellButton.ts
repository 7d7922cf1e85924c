/** The button of a cell that has it run on a pool: it puts in the magic line, or takes it out. */

import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { ICellModel } from '@jupyterlab/cells';
import type { INotebookTracker } from '@jupyterlab/notebook';
import { poolsIcon } from './icons';
import { isRemote, remoteLine, toggled } from './remoteLine';
import { activeCode, activeSource, replaceSource } from './sourceEdits';

const TOGGLE = 'skyward-nb:toggle-remote';

/** Register the command; the settings put its button into each cell's toolbar. */
export function addCellButton(
  app: JupyterFrontEnd,
  tracker: INotebookTracker
): void {
  // What was taken out of a cell is put back as it was, with its options.
  const taken = new WeakMap<ICellModel, string>();
  const isCode = () => activeCode(tracker) !== null;
  const isOn = () => isRemote(activeSource(tracker));

  app.commands.addCommand(TOGGLE, {
    label: 'Run on a pool',
    caption: () =>
      isOn()
        ? 'Take out the line %%sky_remote: the cell runs here'
        : 'Put in the line %%sky_remote: the cell runs on a pool of ranks',
    icon: poolsIcon,
    isToggleable: true,
    isToggled: isOn,
    isEnabled: isCode,
    isVisible: isCode,
    execute: () => {
      const model = activeCode(tracker);
      if (!model) {
        return;
      }
      const text = model.sharedModel.getSource();
      const edit = toggled(text, taken.get(model));
      if (isRemote(text)) {
        taken.set(model, remoteLine(text));
      }
      replaceSource(model, edit);
      app.commands.notifyCommandChanged(TOGGLE);
    }
  });

  let watched: ICellModel | null = null;
  const changed = () => {
    app.commands.notifyCommandChanged(TOGGLE);
  };
  tracker.activeCellChanged.connect(() => {
    watched?.contentChanged.disconnect(changed);
    watched = activeCode(tracker);
    watched?.contentChanged.connect(changed);
    changed();
  });
}
