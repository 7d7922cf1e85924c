/** The records in the outputs of a cell. */

import type { ICellModel } from '@jupyterlab/cells';
import { isCodeCellModel } from '@jupyterlab/cells';
import type { IRecord } from './record';
import { recordOf } from './record';

/** The runs that a cell has shown, in order. */
export function recordsOf(model: ICellModel): IRecord[] {
  if (!isCodeCellModel(model)) {
    return [];
  }
  const found: IRecord[] = [];
  for (let at = 0; at < model.outputs.length; at += 1) {
    const record = recordOf(model.outputs.get(at).data);
    if (record) {
      found.push(record);
    }
  }
  return found;
}
