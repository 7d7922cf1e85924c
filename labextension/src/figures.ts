/** What ranks displayed, taken out of the bundle's HTML without running any of it. */

import type { IRenderMime } from '@jupyterlab/rendermime-interfaces';
import { button, element } from './dom';
import type { Entry, ICut, IFigure } from './record';
import { spellRanks } from './words';

const IMAGE = /^data:image\/(png|jpeg|gif|webp|svg\+xml);base64,[\w+/=\s]*$/;

/** The HTML of a bundle: a document that nothing is loaded or run for. */
export class BundleHtml {
  private parsed: Document | null = null;

  constructor(
    readonly text: string,
    private readonly sanitizer: IRenderMime.ISanitizer,
    readonly isTrusted: boolean
  ) {}

  /** A figure as elements: an image, or its HTML without what could run. */
  figure(entry: IFigure): HTMLElement {
    const box = element('div', 'sky-figure');
    const found = this.find(entry.anchor);
    const image = found?.querySelector('img')?.getAttribute('src') ?? '';
    const isImage = entry.types.some(type => type.startsWith('image/'));
    if (isImage && IMAGE.test(image)) {
      const made = element('img');
      made.src = image;
      made.alt = `figure of ${spellRanks(entry.ranks)}`;
      box.append(made);
      return box;
    }
    if (!found) {
      box.append(element('pre', '', entry.data['text/plain'] ?? ''));
      return box;
    }
    const framed = found.querySelector('iframe')?.getAttribute('srcdoc');
    const dirty = framed ?? found.innerHTML;
    const inner = element('div', 'jp-RenderedHTMLCommon');
    inner.innerHTML = this.sanitizer.sanitize(dirty);
    box.append(inner);
    if (this.isTrusted && /<script/i.test(dirty)) {
      this.offerFrame(box, dirty);
    }
    return box;
  }

  /** All that was printed and displayed, as HTML. */
  get output(): string {
    return this.document().querySelector('.out')?.innerHTML ?? '';
  }

  /** The lines of its output, in order, without colours and the labels of ranks. */
  lines(): string[] {
    const found: string[] = [];
    const out = this.document().querySelector('.out');
    for (const group of out?.querySelectorAll(':scope>div>pre>.g') ?? []) {
      const label = group.querySelector('b')?.textContent ?? '';
      const rows = group.textContent.split('\n');
      rows.pop();
      for (const row of rows) {
        found.push(row.slice(label.length + 1));
      }
    }
    return found;
  }

  private document(): Document {
    this.parsed ??= new DOMParser().parseFromString(this.text, 'text/html');
    return this.parsed;
  }

  private find(anchor: string): HTMLElement | null {
    const found = this.document().getElementById(anchor);
    const copy = found?.cloneNode(true) as HTMLElement | undefined;
    copy?.querySelector('b')?.remove();
    return copy ?? null;
  }

  /** Scripts run when a person asks for it, and in a frame that reaches nothing of the page. */
  private offerFrame(box: HTMLElement, dirty: string): void {
    const offer = button(
      'Run its scripts',
      'In a frame of their own, which reaches neither this page nor the kernel',
      () => {
        const frame = element('iframe', 'sky-frame');
        frame.setAttribute('sandbox', 'allow-scripts');
        frame.title = 'What a rank displayed';
        frame.srcdoc = dirty;
        box.replaceChildren(frame);
      }
    );
    box.append(offer);
  }
}

/** Whether some of it stands in the HTML alone. */
export function needsHtml(entries: Entry[]): boolean {
  return entries.some(entry =>
    entry.type === 'text' ? entry.in_html : entry.type === 'display'
  );
}

/**
 * The entries with all their lines, those that stand in the HTML alone, too.
 *
 * Where that is not the HTML of this record, since a tool has taken it out or changed it, they say how many are missing.
 */
export function withLines(
  run: string,
  entries: Entry[],
  html: BundleHtml
): Entry[] {
  const texts = entries.filter(entry => entry.type === 'text');
  if (!texts.some(entry => entry.in_html)) {
    return entries;
  }
  const all = html.lines();
  const count = texts.reduce(
    (sum, entry) => sum + (entry.in_html ? entry.in_html : entry.lines.length),
    0
  );
  if (all.length !== count) {
    return withoutHtml(run, entries);
  }
  let at = 0;
  return entries.map(entry => {
    if (entry.type !== 'text') {
      return entry;
    }
    const from = at;
    at += entry.in_html ? entry.in_html : entry.lines.length;
    return entry.in_html ? { ...entry, lines: all.slice(from, at) } : entry;
  });
}

/** The entries with a word in place of the lines that stood in the HTML; there is one for those in a row. */
function withoutHtml(run: string, entries: Entry[]): Entry[] {
  const how = run ? `; %sky logs run=${run} prints them where it ran` : '';
  const logs = `the HTML of this output, which had them, was removed or changed${how}`;
  const found: Entry[] = [];
  let missing: ICut | null = null;
  for (const entry of entries) {
    if (entry.type !== 'text' || !entry.in_html) {
      found.push(entry);
      missing = null;
      continue;
    }
    const lines = entry.in_html * entry.ranks.length;
    if (missing) {
      missing.lines += lines;
    } else {
      missing = { type: 'cut', lines, logs };
      found.push(missing);
    }
  }
  return found;
}
