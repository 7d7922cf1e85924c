/** Colours of terminals, as elements: text is always text. */

import { element } from './dom';

const COLOURS = [
  ['#57606a', '#8c959f'],
  ['#d1242f', '#ff7b72'],
  ['#2da44e', '#3fb950'],
  ['#bf8700', '#d29922'],
  ['#2f81f7', '#58a6ff'],
  ['#8957e5', '#bc8cff'],
  ['#1b7c83', '#39c5cf'],
  ['#8c959f', '#b1bac4']
] as const;
// eslint-disable-next-line no-control-regex
const SEQUENCE = /\x1b\[([\d;]*)m/g;
const STEPS = [0, 95, 135, 175, 215, 255];

interface IStyle {
  fore: string;
  back: string;
  bold: boolean;
  slanted: boolean;
  underlined: boolean;
  struck: boolean;
  dim: boolean;
  inverse: boolean;
}

const PLAIN: IStyle = {
  fore: '',
  back: '',
  bold: false,
  slanted: false,
  underlined: false,
  struck: false,
  dim: false,
  inverse: false
};

/** What marks turn on, and which numbers turn them off. */
const MARKS: Record<number, [keyof IStyle, boolean]> = {
  1: ['bold', true],
  2: ['dim', true],
  3: ['slanted', true],
  4: ['underlined', true],
  7: ['inverse', true],
  9: ['struck', true],
  23: ['slanted', false],
  24: ['underlined', false],
  27: ['inverse', false],
  29: ['struck', false]
};

/** A colour of 256; empty for no number of one. */
function indexed(index: number): string {
  if (index < 16) {
    return COLOURS[index % 8]?.[index < 8 ? 0 : 1] ?? '';
  }
  if (index < 232) {
    const [r, g, b] = [36, 6, 1].map(
      each => STEPS[Math.floor((index - 16) / each) % 6] ?? 0
    );
    return `rgb(${r ?? 0},${g ?? 0},${b ?? 0})`;
  }
  const grey = 8 + 10 * (Math.min(index, 255) - 232);
  return `rgb(${grey},${grey},${grey})`;
}

/** The style after a sequence of these numbers. */
function after(style: IStyle, numbers: number[]): IStyle {
  const next = { ...style };
  for (let at = 0; at < numbers.length; at += 1) {
    const code = numbers[at] ?? 0;
    if (code === 0) {
      Object.assign(next, PLAIN);
    } else if (code === 22) {
      next.bold = next.dim = false;
    } else if (MARKS[code]) {
      const [mark, isOn] = MARKS[code];
      Object.assign(next, { [mark]: isOn });
    } else if (code === 39) {
      next.fore = '';
    } else if (code === 49) {
      next.back = '';
    } else if (code === 38 || code === 48) {
      const [kind, first = 0, second = 0, third = 0] = numbers.slice(at + 1);
      const colour =
        kind === 5
          ? indexed(first)
          : `rgb(${[first, second, third].map(each => each & 255).join(',')})`;
      at += kind === 5 ? 2 : 4;
      next[code === 38 ? 'fore' : 'back'] = colour;
    } else if ((code >= 30 && code < 38) || (code >= 90 && code < 98)) {
      next.fore = indexed((code % 10) + (code >= 90 ? 8 : 0));
    } else if ((code >= 40 && code < 48) || (code >= 100 && code < 108)) {
      next.back = indexed((code % 10) + (code >= 100 ? 8 : 0));
    }
  }
  return next;
}

/** A line without its colours. */
export function plain(line: string): string {
  return line.replace(SEQUENCE, '');
}

/** A line as nodes, with what is `sought` marked; what is coloured is not marked across colours. */
export function coloured(line: string, sought = ''): Node[] {
  if (!line.includes('\x1b')) {
    return marked(line, sought);
  }
  const nodes: Node[] = [];
  let style = PLAIN;
  let from = 0;
  for (const found of [...line.matchAll(SEQUENCE), null]) {
    const text = line.slice(from, found ? found.index : undefined);
    if (text) {
      const parts = marked(text, sought);
      nodes.push(...(style === PLAIN ? parts : [styled(style, parts)]));
    }
    if (found) {
      from = found.index + found[0].length;
      style = after(style, (found[1] ?? '').split(';').map(Number));
    }
  }
  return nodes;
}

function styled(style: IStyle, parts: Node[]): Node {
  const made = element('span', '', ...parts);
  const [ink, paper] = style.inverse
    ? [style.back || 'var(--jp-layout-color0)', style.fore || 'currentColor']
    : [style.fore, style.back];
  made.style.color = ink;
  if (ink && !paper) {
    // Nearer to the page's own, so that each is read on light and on dark.
    made.style.color = `color-mix(in srgb, ${ink} 70%, currentcolor)`;
  }
  made.style.backgroundColor =
    paper === 'currentColor' ? 'var(--jp-content-font-color1)' : paper;
  made.style.opacity = style.dim ? '0.7' : '';
  made.style.fontWeight = style.bold ? '600' : '';
  made.style.fontStyle = style.slanted ? 'italic' : '';
  made.style.textDecoration = [
    ...(style.underlined ? ['underline'] : []),
    ...(style.struck ? ['line-through'] : [])
  ].join(' ');
  return made;
}

function marked(text: string, sought: string): Node[] {
  if (!sought) {
    return [new Text(text)];
  }
  const lower = text.toLowerCase();
  // Where small letters are longer than capitals, places in one are not places in the other.
  if (lower.length !== text.length) {
    return [new Text(text)];
  }
  const nodes: Node[] = [];
  let from = 0;
  for (
    let at = lower.indexOf(sought);
    at >= 0;
    at = lower.indexOf(sought, from)
  ) {
    nodes.push(
      new Text(text.slice(from, at)),
      element('mark', '', text.slice(at, at + sought.length))
    );
    from = at + sought.length;
  }
  return [...nodes, new Text(text.slice(from))];
}
