/** Which ranks are shown: a button for each, or of very many a field that takes `0-3,7`. */

import { button, element } from './dom';
import { readRanks } from './words';

const MOST_BUTTONS = 64;

/** Tells `changed` when a person has chosen others. */
export class RankChoice {
  readonly node = element('div', 'sky-choice');
  private readonly buttons = new Map<number, HTMLButtonElement>();
  private readonly field = element('input', 'sky-input');
  private readonly all: HTMLButtonElement;
  private ranks: number[] = [];
  private hidden = new Set<number>();

  constructor(private readonly changed: () => void) {
    this.node.setAttribute('role', 'group');
    this.node.setAttribute('aria-label', 'Ranks that are shown');
    this.all = button('all ranks', 'Show all ranks', () => {
      this.choose(new Set());
    });
    this.field.type = 'text';
    this.field.placeholder = 'ranks, such as 0-3,7';
    this.field.setAttribute('aria-label', 'Ranks that are shown');
    this.field.addEventListener('input', () => {
      const wanted = readRanks(this.field.value);
      this.field.setAttribute('aria-invalid', String(wanted === null));
      if (wanted) {
        const others = this.ranks.filter(rank => !wanted.has(rank));
        this.choose(new Set(wanted.size ? others : []));
      }
    });
  }

  /** Whether what this rank does is shown. */
  readonly isShown = (rank: number): boolean => !this.hidden.has(rank);

  /** Whether any of these is. */
  readonly isAnyShown = (ranks: number[]): boolean => ranks.some(this.isShown);

  /** The ranks that are shown, where not all are. */
  get chosen(): number[] | null {
    return this.hidden.size ? this.ranks.filter(this.isShown) : null;
  }

  /** The ranks that there are, and of these those that failed. */
  update(ranks: number[], failed: Set<number>): void {
    if (ranks.join() !== this.ranks.join()) {
      this.ranks = ranks;
      this.buttons.clear();
      const isFew = ranks.length <= MOST_BUTTONS;
      for (const rank of isFew ? ranks : []) {
        const made = button(`${rank}`, '', event => {
          this.press(rank, event.altKey || event.shiftKey);
        });
        this.buttons.set(rank, made);
      }
      this.node.replaceChildren(
        this.all,
        ...(isFew ? this.buttons.values() : [this.field])
      );
    }
    for (const [rank, made] of this.buttons) {
      const state = failed.has(rank) ? ', which failed' : '';
      made.dataset['state'] = failed.has(rank) ? 'failed' : '';
      made.title = `Show or hide rank ${rank}${state}; with Shift, show it alone`;
    }
    this.node.hidden = ranks.length < 2;
    this.draw();
  }

  private press(rank: number, isAlone: boolean): void {
    // The first press means this one, as a tab does.
    if (isAlone || !this.hidden.size) {
      this.choose(new Set(this.ranks.filter(each => each !== rank)));
      return;
    }
    const hidden = new Set(this.hidden);
    if (!hidden.delete(rank)) {
      hidden.add(rank);
    }
    this.choose(hidden.size === this.ranks.length ? new Set() : hidden);
  }

  private choose(hidden: Set<number>): void {
    this.hidden = hidden;
    this.draw();
    this.changed();
  }

  private draw(): void {
    for (const [rank, made] of this.buttons) {
      const isChosen = this.hidden.size > 0 && this.isShown(rank);
      made.setAttribute('aria-pressed', String(isChosen));
    }
    this.all.setAttribute('aria-pressed', String(!this.hidden.size));
    if (!this.hidden.size && document.activeElement !== this.field) {
      this.field.value = '';
    }
  }
}
