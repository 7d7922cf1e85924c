/** Marks in notebooks: cells that run on a pool, and lines at which ranks failed, until the next run. */

import { StateEffect, StateField } from '@codemirror/state';
import type { DecorationSet } from '@codemirror/view';
import { Decoration, EditorView } from '@codemirror/view';
import type { Cell } from '@jupyterlab/cells';
import { isCodeCellModel } from '@jupyterlab/cells';
import type { CodeEditor } from '@jupyterlab/codeeditor';
import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { recordsOf } from './cellRecords';
import type { IFailure } from './record';
import { isRemote } from './remoteLine';
import { spellRanks } from './words';

const PAUSE = 150;

const setFailures = StateEffect.define<IFailure[]>();

const failedLines = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update: (there, transaction) => {
    let next = there.map(transaction.changes);
    for (const effect of transaction.effects) {
      if (effect.is(setFailures)) {
        next = decorations(transaction.state.doc, effect.value);
      }
    }
    return next;
  },
  provide: field => EditorView.decorations.from(field)
});

/** What is known of a line: of which ranks it failed, and what they raised. */
function decorations(
  doc: { lines: number; line: (n: number) => { from: number } },
  failures: IFailure[]
): DecorationSet {
  const words = new Map<number, string[]>();
  for (const { ranks, line, error } of failures) {
    if (line >= 1 && line <= doc.lines) {
      const said = words.get(line) ?? [];
      words.set(line, [...said, `${error} on ${spellRanks(ranks)}`]);
    }
  }
  return Decoration.set(
    [...words].map(([line, said]) =>
      Decoration.line({
        class: 'sky-failed-line',
        attributes: { title: said.join('\n') }
      }).range(doc.line(line).from)
    ),
    true
  );
}

/** Keep the marks of all notebooks as their outputs are. */
export function markCells(tracker: INotebookTracker): void {
  tracker.widgetAdded.connect((_, panel) => {
    markPanel(panel);
  });
  tracker.forEach(markPanel);
}

function markPanel(panel: NotebookPanel): void {
  let timer = 0;
  const soon = () => {
    timer ||= window.setTimeout(() => {
      timer = 0;
      if (!panel.isDisposed) {
        draw(panel);
      }
    }, PAUSE);
  };
  void panel.context.ready.then(() => {
    panel.content.modelContentChanged.connect(soon);
    // Cells come into sight and get their editors as a person scrolls.
    panel.content.cellInViewportChanged.connect(soon);
    soon();
  });
}

function draw(panel: NotebookPanel): void {
  const cells = panel.content.widgets;
  const failures = new Map<string, IFailure[]>();
  const own = new Map<Cell, IFailure[]>();
  for (const cell of cells) {
    const place = placeOf(cell);
    const records = recordsOf(cell.model);
    const isOn =
      records.length > 0 ||
      (isCodeCellModel(cell.model) &&
        isRemote(cell.model.sharedModel.getSource()));
    cell.toggleClass('sky-on-pool', isOn);
    for (const failure of records.flatMap(each => each.failures ?? [])) {
      // Another cell may have this number, too, since the kernel was restarted.
      if (failure.where === place) {
        own.set(cell, [...(own.get(cell) ?? []), failure]);
      } else {
        const known = failures.get(failure.where) ?? [];
        failures.set(failure.where, [...known, failure]);
      }
    }
  }
  const places = cells.map(placeOf);
  const isAlone = (place: string) =>
    places.indexOf(place) === places.lastIndexOf(place);
  for (const cell of cells) {
    const place = placeOf(cell);
    const called = isAlone(place) ? (failures.get(place) ?? []) : [];
    markLines(cell, [...(own.get(cell) ?? []), ...called]);
  }
}

/** Where a failure in this cell is, as records say it. */
function placeOf({ model }: Cell): string {
  const count = isCodeCellModel(model) ? model.executionCount : null;
  return `Cell In[${count ?? ''}]`;
}

const marked = new WeakMap<object, string>();

function markLines(cell: Cell, failures: IFailure[]): void {
  const editor: (CodeEditor.IEditor & Partial<IHasView>) | null = cell.editor;
  const view = editor?.editor;
  if (!editor || !view) {
    return;
  }
  const key = JSON.stringify(failures);
  if (key === (marked.get(view) ?? '[]')) {
    return;
  }
  if (!marked.has(view)) {
    editor.injectExtension(failedLines);
  }
  marked.set(view, key);
  view.dispatch({ effects: setFailures.of(failures) });
}

/** What an editor of CodeMirror has beside Lab's interface. */
interface IHasView {
  editor: EditorView;
}
