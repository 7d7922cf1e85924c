/** Changes of a cell's text that are one step to undo. */

import type { ICellModel } from '@jupyterlab/cells';
import type { IEdit } from './remoteLine';

/** What a shared cell has beside its interface. */
interface IUndoable {
  undoManager: { stopCapturing(): void } | null;
}

/** Change a cell's text; one step to undo, however quickly it follows another change. */
export function replaceSource(model: ICellModel, edit: IEdit): void {
  (model.sharedModel as Partial<IUndoable>).undoManager?.stopCapturing();
  model.sharedModel.updateSource(edit.start, edit.end, edit.text);
}
