/** The whole output of a run, from the log that the Jupyter server reads: a page at a time. */

import { button, element } from './dom';
import type { ILine } from './outputLines';
import { blocksOf } from './outputLines';
import { ask } from './pools';

const COUNT = 2000;
const MOST_PAGES = 10;

/** A page of a log: `next` is where it goes on, null at its end. */
interface ILogPage {
  lines: { rank: number | null; stream: string; text: string }[];
  next: number | null;
}

/** Asks for more as a person scrolls; the first pages give way when there are many. */
export class FullLog {
  readonly node = element('div', 'sky-log');
  private readonly list = element('div', 'sky-out sky-out-down');
  private readonly note = element('div', 'sky-note');
  private readonly end = element('div', 'sky-end');
  private readonly sight: IntersectionObserver;
  private readonly pages: HTMLElement[] = [];
  private next: number | null = null;
  private asked = 0;
  private isBusy = false;

  constructor(
    private readonly run: string,
    private readonly chosen: () => number[] | null,
    private readonly sought: () => string,
    close: () => void
  ) {
    this.note.setAttribute('role', 'status');
    this.list.tabIndex = 0;
    this.list.setAttribute('role', 'region');
    this.list.setAttribute('aria-label', 'Full log');
    this.node.append(
      element(
        'div',
        'sky-actions',
        button('Beginning', 'The first lines of the log', () => {
          void this.begin(0);
        }),
        button('End', 'The last lines of the log', () => {
          void this.begin(-1);
        }),
        button('Close', 'Back to the lines that the notebook keeps', close)
      ),
      this.note,
      this.list
    );
    this.sight = new IntersectionObserver(
      seen => {
        if (seen.some(each => each.isIntersecting)) {
          void this.more();
        }
      },
      { root: this.list, rootMargin: '600px' }
    );
    this.sight.observe(this.end);
    void this.begin(0);
  }

  /** Read it anew: other ranks are chosen, or something else is sought. */
  again(): void {
    void this.begin(0);
  }

  private async begin(from: number): Promise<void> {
    this.asked += 1;
    this.pages.length = 0;
    this.list.replaceChildren(this.end);
    this.next = from;
    this.isBusy = false;
    await this.more();
    if (from < 0) {
      this.list.scrollTop = this.list.scrollHeight;
    }
  }

  private async more(): Promise<void> {
    if (this.isBusy || this.next === null) {
      return;
    }
    this.isBusy = true;
    const asked = this.asked;
    const sought = this.sought();
    this.note.textContent = 'Reading …';
    try {
      const page = await ask<ILogPage>(this.path(sought));
      if (asked !== this.asked) {
        return;
      }
      const lines = page.lines.map(({ rank, stream, text }): ILine => ({
        ranks: rank === null ? [] : [rank],
        stream,
        text
      }));
      const made = element('div', '', ...blocksOf(lines, sought));
      this.pages.push(made);
      this.list.insertBefore(made, this.end);
      if (this.pages.length > MOST_PAGES) {
        this.pages.shift()?.remove();
      }
      this.next = page.next;
      this.note.textContent = lines.length || page.next ? '' : 'No such line.';
    } catch (error) {
      this.next = null;
      this.note.textContent =
        error instanceof Error ? error.message : String(error);
    } finally {
      if (asked === this.asked) {
        this.isBusy = false;
        // An end that stays in sight is no news to the observer, unless it looks for the first time.
        this.sight.unobserve(this.end);
        this.sight.observe(this.end);
      }
    }
  }

  private path(sought: string): string {
    const options = new URLSearchParams({
      from: `${this.next ?? 0}`,
      count: `${COUNT}`,
      search: sought,
      ranks: this.chosen()?.join(',') ?? ''
    });
    return `${ofRun(this.run)}/log?${options.toString()}`;
  }
}

/** The path of what the server knows of a run. */
export function ofRun(run: string): string {
  return `runs/${run.split('/').map(encodeURIComponent).join('/')}`;
}
