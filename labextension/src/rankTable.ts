/** The table of ranks: their loops, metrics and use of the machine. */

import { element, tableHead } from './dom';
import type { IBar, INoteTable, IRankRecord } from './record';
import { clock, compact, spellSize } from './words';

const MOST_METRICS = 12;
const MOST_DONE = 3;
const SHOWN_DONE = 2;
/** The height of a row of loops, in its letters' size: that of a line. */
const ROW = 1.45;

/** A loop in words: `epoch 4/10 · 40% · 3 it/s · 2.0 s left`. */
function spellBar(bar: IBar): string {
  const count = (value: number) =>
    bar.unit === 'B' ? spellSize(value) : value.toLocaleString('en');
  const stepped = bar.done - (bar.skipped ?? 0);
  const speed = bar.seconds > 0.05 ? stepped / bar.seconds : 0;
  const parts = [
    bar.total === null
      ? `${count(bar.done)} done`
      : `${count(bar.done)}/${count(bar.total)}`
  ];
  if (bar.total) {
    parts.push(`${Math.floor((100 * bar.done) / bar.total)}%`);
  }
  if (speed > 0) {
    const rate = speed >= 1 ? compact(speed) : compact(1 / speed);
    const unit = speed >= 1 ? `${bar.unit}/s` : `s/${bar.unit}`;
    parts.push(bar.unit === 'B' ? `${spellSize(speed)}/s` : `${rate} ${unit}`);
  }
  if (bar.total !== null && !bar.over && speed > 0 && bar.done < bar.total) {
    parts.push(`${clock((bar.total - bar.done) / speed)} left`);
  }
  return [`${bar.text} ${parts.join(' · ')}`.trim(), bar.note]
    .filter(Boolean)
    .join(' · ');
}

function loop(bar: IBar, state: string): HTMLElement {
  const words = element('span', '', spellBar(bar));
  if (!bar.total) {
    return element('div', 'sky-loop', words);
  }
  const part = Math.min(1, Math.max(0, bar.done / bar.total));
  const fill = element('div', 'sky-fill');
  fill.style.width = `${Math.round(100 * part)}%`;
  fill.dataset['state'] = part === 1 ? 'done' : state;
  const gauge = element('div', 'sky-gauge', fill);
  gauge.setAttribute('aria-hidden', 'true');
  return element('div', 'sky-loop', gauge, words);
}

interface IColumn {
  title: string;
  cell: (rank: IRankRecord) => string | Node;
}

/** How many of the finished loops have a row each: all that fit into the rows that loops have taken, else the last. */
function shownDone(
  done: number,
  gone: number,
  others: number,
  rows: number
): number {
  if (!gone && (done <= MOST_DONE || done + others <= rows)) {
    return done;
  }
  return Math.min(done, Math.max(SHOWN_DONE, rows - others - 1));
}

/** The loops of a rank, which keep the height that they had; finished ones without a row are counted. */
function loops(rank: IRankRecord): HTMLElement {
  const { bars, state } = rank;
  const [gone, hidden, most] = [
    rank.bars_done ?? 0,
    rank.bars_hidden ?? 0,
    rank.loop_rows ?? 0
  ];
  const over = bars.filter(bar => bar.over);
  const others = bars.length - over.length + (hidden ? 1 : 0);
  const shown = shownDone(over.length, gone, others, most);
  const folded = over.slice(0, over.length - shown);
  const rows = bars
    .filter(bar => !folded.includes(bar))
    .map(bar => loop(bar, state));
  if (folded.length + gone) {
    const words = spellLoops(folded.length + gone, 'done');
    rows.unshift(element('div', 'sky-loop', words));
  }
  if (hidden) {
    rows.push(element('div', 'sky-loop', `and ${spellLoops(hidden, 'more')}`));
  }
  const box = element('div', 'sky-loops', ...rows);
  box.style.minHeight = `${ROW * most}em`;
  return box;
}

function spellLoops(count: number, which: 'done' | 'more'): string {
  const words = count === 1 ? 'loop' : 'loops';
  const number = count.toLocaleString('en');
  return which === 'done'
    ? `${number} ${words} done`
    : `${number} more ${words}`;
}

function columnsOf(ranks: IRankRecord[], isOver: boolean): IColumn[] {
  const has = (test: (rank: IRankRecord) => boolean) => ranks.some(test);
  const names = [...new Set(ranks.flatMap(rank => Object.keys(rank.metrics)))];
  const columns: IColumn[] = [];
  if (has(rank => rank.node !== rank.rank)) {
    columns.push({ title: 'node', cell: rank => `${rank.node}` });
  }
  if (has(rank => rank.bars.length > 0)) {
    columns.push({
      title: 'progress',
      cell: loops
    });
  }
  if (has(rank => rank.remark !== '' || rank.stage !== '')) {
    columns.push({
      title: 'remark',
      cell: rank => rank.stage || rank.remark
    });
  }
  for (const name of names.slice(0, MOST_METRICS)) {
    columns.push({
      title: name,
      cell: rank => (name in rank.metrics ? compact(rank.metrics[name]) : '')
    });
  }
  const add = (title: string, cell: (rank: IRankRecord) => string) => {
    if (has(rank => cell(rank) !== '')) {
      columns.push({ title, cell });
    }
  };
  const spell = (size: number | null) => (size === null ? '' : spellSize(size));
  if (isOver) {
    add('memory at most', rank => spell(rank.peak ?? rank.memory));
  } else {
    add('cpu', ({ cpu }) => (cpu === null ? '' : `${cpu.toFixed(0)} %`));
    add('memory', ({ memory }) => spell(memory));
  }
  add('gpu', ({ gpu }) => {
    const busy = gpu?.busy === null ? '' : `${gpu?.busy ?? 0} % · `;
    return gpu
      ? `${busy}${spellSize(gpu.used)} of ${spellSize(gpu.total)}`
      : '';
  });
  return columns;
}

/** A row for each rank that is shown; empty where there is nothing to say of any. */
export function rankTable(
  ranks: IRankRecord[],
  isOver: boolean
): HTMLElement | null {
  const columns = columnsOf(ranks, isOver);
  const isTold = ranks.some(rank => !['done', 'running'].includes(rank.state));
  if (!columns.some(each => each.title !== 'node') && !isTold) {
    return null;
  }
  const rows = ranks.map(rank => {
    const isPlain = ['done', 'running'].includes(rank.state);
    const head = element(
      'th',
      '',
      `${rank.rank}`,
      ...(isPlain ? [] : [element('i', '', ` ${rank.state}`)])
    );
    head.scope = 'row';
    const cells = columns.map(each => element('td', '', each.cell(rank)));
    const row = element('tr', '', head, ...cells);
    row.dataset['state'] = rank.state;
    return row;
  });
  const titles = columns.map(each => each.title);
  return tableBox('Ranks', ['rank', ...titles], rows);
}

/** Notes that make a table, and the remarks below it. */
export function noteTable(note: INoteTable): HTMLElement {
  const rows = note.rows.map(cells =>
    element('tr', '', ...cells.map(text => element('td', '', text)))
  );
  return element(
    'div',
    'sky-section sky-note',
    element('div', 'sky-note-title', note.title),
    tableBox(note.title, note.columns, rows),
    ...note.remarks.map(text => element('div', '', text))
  );
}

/** A table that scrolls by keys, too. */
function tableBox(
  label: string,
  titles: string[],
  rows: HTMLElement[]
): HTMLElement {
  const box = element(
    'div',
    'sky-table',
    element('table', '', tableHead(titles), element('tbody', '', ...rows))
  );
  box.tabIndex = 0;
  box.setAttribute('role', 'region');
  box.setAttribute('aria-label', label);
  return box;
}
