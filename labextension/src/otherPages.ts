/**
 * Runs in pages that did not start them: another tab of the same notebook, or one that was opened in mid-run.
 *
 * Lab gives the outputs of a cell to the page that ran it alone. Displays of runs say which cell they belong to
 * (`skyward_nb/show/lab_cell.py`); from the first of them on, everything that the cell shows is put into it here, too.
 */

import type { ICodeCellModel } from '@jupyterlab/cells';
import { isCodeCellModel } from '@jupyterlab/cells';
import type {
  INotebookModel,
  INotebookTracker,
  NotebookPanel
} from '@jupyterlab/notebook';
import type { KernelMessage } from '@jupyterlab/services';
import { forget, isThere } from './lateValues';

/** What a display of a run says beside what it shows. */
interface IMark {
  /** The cell. */
  cell: string;
  /** The request that ran it: what is drawn of a run in the background comes with that of a later cell. */
  request: string;
  /** The class of the kept picture. */
  name: string;
  /** The widget that shows the run while it goes on; empty when it is over. */
  live: string;
}

const WIDGET = 'application/vnd.jupyter.widget-view+json';

type Output = Parameters<ICodeCellModel['outputs']['add']>[0];

/** Show in every notebook what its cells show in other pages. */
export function showOtherPages(tracker: INotebookTracker): void {
  const followed = new WeakSet();
  const follow = (panel: NotebookPanel) => {
    // Views of one notebook share its cells.
    if (followed.has(panel.context.model)) {
      return;
    }
    followed.add(panel.context.model);
    const runs = new Map<string, CellOfOthers | null>();
    panel.sessionContext.iopubMessage.connect((_, message) => {
      take(panel.context, runs, message as KernelMessage.IIOPubMessage);
    });
  };
  tracker.widgetAdded.connect((_, panel) => {
    follow(panel);
  });
  tracker.forEach(follow);
}

function take(
  { model: notebook, sessionContext }: NotebookPanel['context'],
  runs: Map<string, CellOfOthers | null>,
  message: KernelMessage.IIOPubMessage
): void {
  const parent = message.parent_header as Partial<KernelMessage.IHeader>;
  const kernel = sessionContext.session?.kernel;
  if (!parent.msg_id || !kernel || parent.session === kernel.clientId) {
    return;
  }
  if (notebook.collaborative) {
    return; // its pages share what is in it
  }
  const mark = markOf(message);
  const request = mark?.request ?? shownBy(runs, message) ?? parent.msg_id;
  let run = runs.get(request);
  if (run === undefined && mark) {
    const model = cellOf(notebook, mark.cell);
    if (!model) {
      return;
    }
    // What still comes of the run before it has no place any more.
    for (const [id, each] of runs) {
      if (each?.model === model) {
        runs.set(id, null);
      }
    }
    run = new CellOfOthers(model);
    runs.set(request, run);
  }
  const wasDirty = notebook.dirty;
  run?.take(message, mark);
  // The page that ran the cell saves it: two that do would ask which of them to keep.
  notebook.dirty = wasDirty;
}

/** The request that showed what this message changes, if it is of another page: a later cell may change it. */
function shownBy(
  runs: Map<string, CellOfOthers | null>,
  message: KernelMessage.IIOPubMessage
): string | undefined {
  if (message.header.msg_type !== 'update_display_data') {
    return undefined;
  }
  return [...runs].find(([, each]) => each?.has(displayOf(message)))?.[0];
}

function markOf(message: KernelMessage.IIOPubMessage): IMark | null {
  const { transient } = message.content as {
    transient?: { skyward_nb?: IMark };
  };
  return transient?.skyward_nb ?? null;
}

function cellOf(notebook: INotebookModel, id: string): ICodeCellModel | null {
  for (const cell of notebook.cells) {
    if (cell.id === id && isCodeCellModel(cell)) {
      return cell;
    }
  }
  return null;
}

/** A cell that another page runs. */
class CellOfOthers {
  private isNew = true;
  private readonly displays = new Map<string, number[]>();

  constructor(readonly model: ICodeCellModel) {}

  /** Whether it shows the display of this id. */
  has(display: string): boolean {
    return this.displays.has(display);
  }

  take(message: KernelMessage.IIOPubMessage, mark: IMark | null): void {
    const outputs = this.model.outputs;
    const kind = message.header.msg_type;
    if (this.isNew && mark) {
      this.isNew = false;
      this.begin(message, mark);
      return;
    }
    switch (kind) {
      case 'stream':
      case 'display_data':
      case 'execute_result':
      case 'error':
        if (kind === 'execute_result' && isThere(this.model)) {
          break; // the server was quicker
        }
        outputs.add(outputOf(message, kind));
        this.remember(message, outputs.length - 1);
        break;
      case 'update_display_data':
        for (const at of this.displays.get(displayOf(message)) ?? []) {
          if (at < outputs.length) {
            outputs.set(at, outputOf(message, 'display_data'));
          }
        }
        break;
      case 'clear_output':
        this.displays.clear();
        forget(this.model);
        outputs.clear((message as KernelMessage.IClearOutputMsg).content.wait);
        break;
    }
  }

  /** The first display that is seen of it: what was saved in mid-run is gone on with, all else is of before. */
  private begin(message: KernelMessage.IIOPubMessage, mark: IMark): void {
    const outputs = this.model.outputs;
    const picture = outputOf(message, 'display_data');
    const saved = outputs.toJSON();
    const kept = saved.findIndex(each =>
      JSON.stringify(each).includes(mark.name)
    );
    if (kept >= 0 && mark.live) {
      outputs.set(kept, picture);
      this.remember(message, kept);
      return;
    }
    forget(this.model);
    outputs.clear();
    if (kept >= 0) {
      // It is over: the widgets that were saved after it would show the end once more.
      const after = saved.slice(kept + (isWidget(saved[kept + 1]) ? 2 : 1));
      [...saved.slice(0, kept), picture, ...after].forEach(each =>
        outputs.add(each)
      );
      this.remember(message, kept);
      return;
    }
    outputs.add(picture);
    this.remember(message, 0);
    if (message.header.msg_type === 'update_display_data' && mark.live) {
      outputs.add(widgetOutput(mark.live));
    }
  }

  private remember(message: KernelMessage.IIOPubMessage, at: number): void {
    const display = displayOf(message);
    if (display) {
      this.displays.set(display, [...(this.displays.get(display) ?? []), at]);
    }
  }
}

function displayOf(message: KernelMessage.IIOPubMessage): string {
  const { transient } = message.content as {
    transient?: { display_id?: string };
  };
  return transient?.display_id ?? '';
}

function outputOf(message: KernelMessage.IIOPubMessage, kind: string): Output {
  const content = { ...(message.content as { transient?: unknown }) };
  delete content.transient;
  return { ...content, output_type: kind } as Output;
}

function isWidget(output: Output | undefined): boolean {
  const data = output?.['data'] as Record<string, unknown> | undefined;
  return data !== undefined && WIDGET in data;
}

function widgetOutput(model: string): Output {
  return {
    output_type: 'display_data',
    metadata: {},
    data: {
      [WIDGET]: {
        model_id: model,
        version_major: 2,
        version_minor: 0
      },
      'text/html': '',
      'text/plain': ''
    }
  };
}
