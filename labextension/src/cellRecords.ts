/** The records in the outputs of a cell. */

import type { ICellModel } from '@jupyterlab/cells';
import { isCodeCellModel } from '@jupyterlab/cells';
import type { IOutputModel } from '@jupyterlab/rendermime';
import type { IRecord } from './record';
import { recordOf } from './record';

/** What outputs had when they were asked last: Lab copies all of their data each time. */
const read = new WeakMap<IOutputModel, IRecord | null>();

/** The runs that a cell has shown, in order. */
export function recordsOf(model: ICellModel): IRecord[] {
  if (!isCodeCellModel(model)) {
    return [];
  }
  const found: IRecord[] = [];
  for (let at = 0; at < model.outputs.length; at += 1) {
    const record = recordIn(model.outputs.get(at));
    if (record) {
      found.push(record);
    }
  }
  return found;
}

function recordIn(output: IOutputModel): IRecord | null {
  let found = read.get(output);
  if (found === undefined) {
    found = recordOf(output.data);
    output.changed.connect(forget);
    read.set(output, found);
  }
  return found;
}

function forget(output: IOutputModel): void {
  read.delete(output);
}
