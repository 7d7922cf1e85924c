/**
 * Values of cells whose run ended unseen: a page that was opened just before, or that opens what was saved in mid-run.
 *
 * The server has what the cell showed below the picture (`skyward_nb/show/kept_pictures.py`).
 */

import type { ICodeCellModel } from '@jupyterlab/cells';
import { isCodeCellModel } from '@jupyterlab/cells';
import type { INotebookTracker } from '@jupyterlab/notebook';
import { Signal } from '@lumino/signaling';
import { ask, ofRun } from './pools';
import type { IRunState, IValue } from './runState';

/** A run that is over, of which the notebook had an unfinished picture in this node, and its value if it is known. */
export interface IEnd {
  node: HTMLElement;
  run: string;
  value?: IValue | null | undefined;
}

const LATER = 1000;

/** The server has told that a run is over. */
export const runEnded = new Signal<object, IEnd>({});

const late = new WeakSet<ICodeCellModel>();

/** Put such values below their pictures. */
export function addLateValues(tracker: INotebookTracker): void {
  runEnded.connect((_, end) => {
    const panel = tracker.find(each => each.node.contains(end.node));
    const model = panel?.content.widgets.find(each =>
      each.node.contains(end.node)
    )?.model;
    // Pages of a document that is shared would each put it there.
    if (panel && !panel.context.model.collaborative) {
      if (model && isCodeCellModel(model)) {
        void addValue(model, end);
      }
    }
  });
}

/** Whether the value that a cell shows now is there already; what it shows next is new. */
export function isThere(model: ICodeCellModel): boolean {
  return late.delete(model);
}

/** The outputs of a cell were cleared. */
export function forget(model: ICodeCellModel): void {
  late.delete(model);
}

async function addValue(model: ICodeCellModel, end: IEnd): Promise<void> {
  const value = end.value ?? (await valueOf(end.run));
  // The page that runs the cell gets it from the kernel.
  if (!value || model.executionState === 'running' || hasValue(model)) {
    return;
  }
  late.add(model);
  model.outputs.add({
    output_type: 'execute_result',
    execution_count: model.executionCount,
    data: value.data,
    metadata: value.metadata
  } as Parameters<ICodeCellModel['outputs']['add']>[0]);
}

/** It is written a moment after the picture, if there is one. */
async function valueOf(run: string): Promise<IRunState['value']> {
  await new Promise(done => window.setTimeout(done, LATER));
  try {
    return (await ask<IRunState>(ofRun(run))).value;
  } catch {
    return null; // a server that has ended meanwhile
  }
}

function hasValue(model: ICodeCellModel): boolean {
  for (let at = 0; at < model.outputs.length; at += 1) {
    if (model.outputs.get(at).type === 'execute_result') {
      return true;
    }
  }
  return false;
}
