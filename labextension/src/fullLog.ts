/** The whole output of a run, from the log that the Jupyter server reads: a page at a time. */

import { button, element } from './dom';
import type { ILine } from './outputLines';
import { blocksOf } from './outputLines';
import { ask, ofRun } from './pools';
import { messageOf } from './words';

const COUNT = 2000;
const MOST_PAGES = 10;
/** Milliseconds in which a person may type more: to search a large log takes the server seconds. */
const TYPING = 300;
/** Frames until lines that come into sight have the height that they keep. */
const SETTLING = 4;

/** Lines of a log from line `first` on, fewer where they are long: `next` is where it goes on, null at its end. */
interface ILogPage {
  lines: { rank: number | null; stream: string; text: string }[];
  first?: number;
  next: number | null;
}

/** A page that is shown, and its first line's number. */
interface IPage {
  node: HTMLElement;
  first: number;
}

/** Asks for more as a person scrolls, down or up; the pages that are furthest give way when there are many. */
export class FullLog {
  readonly node = element('div', 'sky-log');
  private readonly list = element('div', 'sky-out sky-out-down');
  private readonly note = element('div', 'sky-note');
  private readonly top = element('div', 'sky-end');
  private readonly end = element('div', 'sky-end');
  private readonly sight: IntersectionObserver;
  private readonly pages: IPage[] = [];
  private next: number | null = null;
  private asked = 0;
  private isBusy = false;
  private typing = 0;

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
        const near = seen
          .filter(each => each.isIntersecting)
          .map(each => each.target);
        if (near.includes(this.end) && this.next !== null) {
          void this.more();
        } else if (near.includes(this.top)) {
          void this.before();
        }
      },
      { root: this.list, rootMargin: '600px' }
    );
    void this.begin(0);
  }

  /** Read it anew: other ranks are chosen, or something else is sought. */
  again(): void {
    window.clearTimeout(this.typing);
    this.typing = window.setTimeout(() => {
      if (this.node.isConnected) {
        void this.begin(0);
      }
    }, TYPING);
  }

  private async begin(from: number): Promise<void> {
    this.asked += 1;
    this.pages.length = 0;
    this.list.replaceChildren(this.top, this.end);
    this.next = from;
    this.isBusy = false;
    const asked = this.asked;
    await this.more();
    // Long lines are higher than was reckoned, once they are laid out.
    let left = from < 0 ? SETTLING : 0;
    for (; left > 0 && asked === this.asked; left -= 1) {
      this.list.scrollTop = this.list.scrollHeight;
      await new Promise(requestAnimationFrame);
    }
  }

  /** The lines after those that are shown. */
  private async more(): Promise<void> {
    if (this.next === null) {
      return;
    }
    const page = await this.read({ from: `${this.next}` });
    if (!page) {
      return;
    }
    const made = this.made(page, this.end);
    this.pages.push(made);
    if (this.pages.length > MOST_PAGES) {
      this.keepPlace(made.node, () => this.pages.shift()?.node.remove());
    }
    this.next = page.next;
    if (!page.lines.length && this.pages.length === 1) {
      this.note.textContent = 'No such line.';
    }
    this.look();
  }

  /** The lines before those that are shown. */
  private async before(): Promise<void> {
    const [there] = this.pages;
    if (!there?.first) {
      return;
    }
    const page = await this.read({ from: '-1', before: `${there.first}` });
    if (!page) {
      return;
    }
    this.keepPlace(there.node, () => {
      this.pages.unshift(this.made(page, there.node));
      for (const far of this.pages.splice(MOST_PAGES)) {
        far.node.remove();
        this.next = far.first;
      }
    });
    this.look();
  }

  /** Ask for lines; null where none come, or something else is asked for meanwhile. */
  private async read(where: Record<string, string>): Promise<ILogPage | null> {
    if (this.isBusy) {
      return null;
    }
    this.isBusy = true;
    const asked = this.asked;
    this.note.textContent = 'Reading …';
    try {
      const page = await ask<ILogPage>(this.path(where));
      if (asked === this.asked) {
        this.note.textContent = '';
        return page;
      }
    } catch (error) {
      if (asked === this.asked) {
        this.note.textContent = messageOf(error);
      }
    } finally {
      if (asked === this.asked) {
        this.isBusy = false;
      }
    }
    return null;
  }

  private made(page: ILogPage, before: HTMLElement): IPage {
    const lines = page.lines.map(({ rank, stream, text }): ILine => ({
      ranks: rank === null ? [] : [rank],
      stream,
      text
    }));
    const node = element('div', '', ...blocksOf(lines, this.sought()));
    this.list.insertBefore(node, before);
    return { node, first: page.first ?? 0 };
  }

  /** What is shown stays where it is while something above it comes or goes. */
  private keepPlace(node: HTMLElement, change: () => void): void {
    const before = node.getBoundingClientRect().top;
    change();
    this.list.scrollTop += node.getBoundingClientRect().top - before;
  }

  /** What stays in sight is no news to the observer, unless it looks for the first time. */
  private look(): void {
    for (const each of [this.end, this.top]) {
      this.sight.unobserve(each);
      this.sight.observe(each);
    }
  }

  private path(where: Record<string, string>): string {
    const options = new URLSearchParams({
      ...where,
      count: `${COUNT}`,
      search: this.sought(),
      ranks: this.chosen()?.join(',') ?? ''
    });
    return `${ofRun(this.run)}/log?${options.toString()}`;
  }
}
