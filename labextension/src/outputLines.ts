/** Lines of ranks as elements, in blocks that a browser lays out only when they are seen. */

import { element } from './dom';
import { coloured, plain } from './sgr';
import { rangesOf } from './words';

const BLOCK = 40;
/** Characters of a row, about, in a notebook of usual width. */
const BROKEN = 110;

/** A line, and who wrote it; `note` for what no rank wrote. */
export interface ILine {
  ranks: number[];
  stream: string;
  text: string;
}

/** Whether a line has what is sought, in small letters. */
export function has(line: ILine, sought: string): boolean {
  return !sought || plain(line.text).toLowerCase().includes(sought);
}

/** Blocks of lines, in which what is `sought` is marked. */
export function blocksOf(lines: ILine[], sought: string): HTMLElement[] {
  const blocks: HTMLElement[] = [];
  for (let at = 0; at < lines.length; at += BLOCK) {
    const rows = lines.slice(at, at + BLOCK).map(line => row(line, sought));
    const block = element('div', 'sky-block', ...rows);
    block.style.containIntrinsicSize = `auto ${18 * reckoned(lines.slice(at, at + BLOCK))}px`;
    blocks.push(block);
  }
  return blocks;
}

/** How many rows lines take, about: long ones are broken. */
function reckoned(lines: ILine[]): number {
  const rows = lines.map(({ text }) => Math.ceil((text.length + 5) / BROKEN));
  return rows.reduce((all, each) => all + Math.max(1, each), 0);
}

function row(line: ILine, sought: string): HTMLElement {
  const label = line.ranks.length
    ? [element('b', '', `[${rangesOf(line.ranks)}]`), ' ']
    : [];
  const kind = line.stream === 'stdout' ? 'sky-row' : `sky-row sky-of-aside`;
  return element('div', kind, ...label, ...coloured(line.text, sought));
}
