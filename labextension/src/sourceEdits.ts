/** The text of the cell in front, and changes of it that are one step to undo. */

import type { ICellModel, ICodeCellModel } from '@jupyterlab/cells';
import { isCodeCellModel } from '@jupyterlab/cells';
import type { INotebookTracker } from '@jupyterlab/notebook';
import type { IEdit } from './remoteLine';

/** What a shared cell has beside its interface. */
interface IUndoable {
  undoManager: { stopCapturing(): void } | null;
}

/** The cell in front, if it is one of code. */
export function activeCode(tracker: INotebookTracker): ICodeCellModel | null {
  const model = tracker.activeCell?.model;
  return model && isCodeCellModel(model) ? model : null;
}

/** The text of the cell in front; empty if it is not one of code. */
export function activeSource(tracker: INotebookTracker): string {
  return activeCode(tracker)?.sharedModel.getSource() ?? '';
}

/** Change a cell's text; one step to undo, however quickly it follows another change. */
export function replaceSource(model: ICellModel, edit: IEdit): void {
  (model.sharedModel as Partial<IUndoable>).undoManager?.stopCapturing();
  model.sharedModel.updateSource(edit.start, edit.end, edit.text);
}
