/** What ranks printed and displayed: searched, and shown for the ranks that are chosen. */

import { button, element } from './dom';
import type { BundleHtml } from './figures';
import { withLines } from './figures';
import { FullLog } from './fullLog';
import type { ILine } from './outputLines';
import { blocksOf, has } from './outputLines';
import type { RankChoice } from './rankChoice';
import type { Entry } from './record';
import { rangesOf } from './words';

/** A figure, and the ranks that displayed it. */
interface IShown {
  ranks: number[];
  node: HTMLElement;
}

/** Figures side by side in the order of ranks: the first of each, then the second of each. */
function grid(figures: IShown[]): HTMLElement[] {
  if (figures.length < 2) {
    return figures.map(figure => figure.node);
  }
  const counts = new Map<string, number>();
  const placed = figures.map(({ ranks, node }) => {
    const key = ranks.join();
    const turn = counts.get(key) ?? 0;
    counts.set(key, turn + 1);
    return { turn, first: ranks[0] ?? -1, node };
  });
  placed.sort((a, b) => a.turn - b.turn || a.first - b.first);
  return [element('div', 'sky-grid', ...placed.map(each => each.node))];
}

/** Keeps what is sought, and the place in the output, when the output changes. */
export class OutputPane {
  readonly node = element('div', 'sky-output');
  private readonly search = element('input', 'sky-input');
  private readonly count = element('span', 'sky-count');
  private readonly log: HTMLButtonElement;
  private readonly list = element('div', 'sky-out');
  private readonly inner = element('div', '');
  private readonly figures = new Map<string, HTMLElement>();
  private entries: Entry[] = [];
  private html: BundleHtml | null = null;
  private run = '';
  private fullLog: FullLog | null = null;

  constructor(private readonly choice: RankChoice) {
    this.search.type = 'search';
    this.search.placeholder = 'Search the output';
    this.search.setAttribute('aria-label', 'Search the output');
    this.search.addEventListener('input', () => {
      this.draw();
      this.fullLog?.again();
    });
    this.count.setAttribute('role', 'status');
    this.log = button('Full log', 'All that was printed, from the disk', () => {
      this.openLog();
    });
    this.list.append(this.inner);
    this.list.tabIndex = 0;
    this.list.setAttribute('role', 'region');
    this.list.setAttribute('aria-label', 'Output');
    this.node.append(
      element(
        'div',
        'sky-tools',
        choice.node,
        this.search,
        this.count,
        this.log
      ),
      this.list
    );
  }

  /** Other ranks are chosen. */
  chosen(): void {
    this.draw();
    this.fullLog?.again();
  }

  /** Show these entries; their figures are in `html`. */
  update(run: string, entries: Entry[], html: BundleHtml): void {
    this.run = run;
    this.html = html;
    this.entries = withLines(run, entries, html);
    this.figures.clear();
    this.node.hidden = entries.length === 0;
    this.log.hidden = run === '';
    this.draw();
  }

  private openLog(): void {
    const sought = () => this.sought;
    this.fullLog = new FullLog(
      this.run,
      () => this.choice.chosen,
      sought,
      () => {
        this.fullLog?.node.replaceWith(this.list);
        this.fullLog = null;
        this.log.disabled = false;
      }
    );
    this.log.disabled = true;
    this.list.replaceWith(this.fullLog.node);
  }

  private get sought(): string {
    return this.search.value.trim().toLowerCase();
  }

  private draw(): void {
    const { sought } = this;
    const parts: HTMLElement[] = [];
    let lines: ILine[] = [];
    let [found, all] = [0, 0];
    let figures: IShown[] = [];
    const endLines = () => {
      parts.push(...blocksOf(lines, sought));
      lines = [];
      parts.push(...grid(figures));
      figures = [];
    };
    for (const entry of this.entries) {
      if (entry.type === 'cut') {
        endLines();
        const count = entry.lines.toLocaleString('en');
        const noun = entry.lines === 1 ? 'line' : 'lines';
        const how = entry.logs ? `: ${entry.logs}` : '';
        const words = `… ${count} ${noun} not shown${how} …`;
        parts.push(element('div', 'sky-row sky-of-aside', words));
      } else if (!this.choice.isAnyShown(entry.ranks)) {
        continue;
      } else if (entry.type === 'text') {
        // The record has the figures that stand side by side one after another.
        if (figures.length) {
          endLines();
        }
        for (const text of entry.lines) {
          const line = { ranks: entry.ranks, stream: entry.stream, text };
          all += 1;
          if (has(line, sought)) {
            found += 1;
            lines.push(line);
          }
        }
      } else if (!sought && this.html) {
        let figure = this.figures.get(entry.anchor);
        if (!figure) {
          const label = element('b', '', `[${rangesOf(entry.ranks)}]`);
          figure = element('div', 'sky-shown', label, this.html.figure(entry));
          this.figures.set(entry.anchor, figure);
        }
        figures.push({ ranks: entry.ranks, node: figure });
      }
    }
    endLines();
    this.inner.replaceChildren(...parts);
    this.count.textContent = sought ? `${found} of ${all} lines` : '';
  }
}
