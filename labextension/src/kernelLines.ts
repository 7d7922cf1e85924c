/** Lines that a kernel runs for the panel, and lines that a person gets in a notebook. */

import { Clipboard } from '@jupyterlab/apputils';
import type { INotebookTracker } from '@jupyterlab/notebook';
import { NotebookActions } from '@jupyterlab/notebook';
import type { Kernel, KernelMessage } from '@jupyterlab/services';

const LOAD = '%load_ext skyward_nb';
const TRIES = 20;
const PAUSE = 250;

/**
 * Run a line in a kernel, after what it runs now; returns what it printed.
 *
 * The kernel does what it does when a person types the line; nothing is left in its history.
 */
export async function runLine(
  kernels: Kernel.IManager,
  id: string,
  code: string
): Promise<string> {
  const model = await kernels.findById(id);
  if (!model) {
    throw new Error('its kernel is gone');
  }
  const kernel = kernels.connectTo({ model, handleComms: false });
  try {
    const printed: string[] = [];
    const run = async () => {
      const future = kernel.requestExecute({
        code,
        store_history: false,
        stop_on_error: false,
        allow_stdin: false
      });
      future.onIOPub = message => {
        printed.push(textOf(message));
      };
      return (await future.done).content;
    };
    let content = await run();
    // A kernel drops what waits for a cell that fails, such as one that was interrupted for this line.
    for (let n = 1; isDropped(content.status) && n < TRIES; n += 1) {
      await new Promise(resolve => setTimeout(resolve, PAUSE));
      content = await run();
    }
    const said = printed.join('').trim();
    if (content.status !== 'ok') {
      const error = content as Partial<KernelMessage.IReplyErrorContent>;
      throw new Error(error.evalue ?? (said || 'the kernel did not run it'));
    }
    return said;
  } finally {
    kernel.dispose();
  }
}

function isDropped(status: string): boolean {
  return status === 'aborted' || status === 'abort';
}

function textOf(message: KernelMessage.IIOPubMessage): string {
  if (message.header.msg_type !== 'stream') {
    return '';
  }
  return (message.content as KernelMessage.IStreamMsg['content']).text;
}

/**
 * Put a line into a new cell of the notebook in front, and say what was done.
 *
 * Where the notebook does not load the extension, the cell does. Without a notebook the line is copied.
 */
export async function offerLine(
  tracker: INotebookTracker,
  line: string
): Promise<string> {
  const panel = tracker.currentWidget;
  if (!panel?.content.model) {
    Clipboard.copyToSystem(line);
    return `Copied, as no notebook is open: ${line}`;
  }
  const notebook = panel.content;
  await panel.sessionContext.ready;
  const isLoaded = notebook.widgets.some(cell =>
    cell.model.sharedModel.getSource().includes(LOAD)
  );
  NotebookActions.insertBelow(notebook);
  notebook.activeCell?.model.sharedModel.setSource(
    isLoaded ? line : `${LOAD}\n${line}`
  );
  notebook.mode = 'command';
  return `In a new cell of ${panel.title.label}: ${line}`;
}
