/** The panel "Pools": a card for each pool, and a form that writes the line for a new one. */

import { Widget } from '@lumino/widgets';
import { button, element } from './dom';
import { poolsIcon } from './icons';
import { newPoolForm } from './newPoolForm';
import type { IPoolActions } from './poolCard';
import { PoolCard } from './poolCard';
import type { Pools } from './pools';
import { canAsk } from './runFollower';

/** Asks the browser for leave to tell of the end of runs; gone once it has answered. */
function notifyButton(): HTMLElement {
  const made = button(
    'Notify me when a run ends',
    'Of runs of more than ten seconds, while you look at something else',
    () => {
      void Notification.requestPermission().then(() => {
        made.hidden = !canAsk();
      });
    }
  );
  made.hidden = !canAsk();
  return made;
}

/** Shows the pools as long as it is visible. */
export class PoolsPanel extends Widget {
  private readonly cards = new Map<string, PoolCard>();
  private readonly list = element('div', 'sky-pools');
  private readonly note = element('div', 'sky-note');
  private readonly sight = new IntersectionObserver(entries => {
    for (const { target, isIntersecting } of entries) {
      const id = (target as HTMLElement).dataset['pool'] ?? '';
      this.cards.get(id)?.see(isIntersecting);
    }
  });

  constructor(
    private readonly pools: Pools,
    private readonly actions: IPoolActions,
    offer: (line: string) => Promise<string>
  ) {
    super();
    this.id = 'skyward-nb-pools';
    this.addClass('sky-panel');
    this.title.icon = poolsIcon;
    this.title.caption = 'Pools of ranks';
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', 'Pools of ranks');
    this.node.append(
      element('h2', 'sky-heading', 'Pools'),
      this.note,
      this.list,
      newPoolForm(offer),
      notifyButton()
    );
    pools.changed.connect(() => {
      this.draw();
    });
  }

  protected override onAfterAttach(): void {
    this.draw();
  }

  protected override onAfterShow(): void {
    this.draw();
    this.pools.refresh();
  }

  private draw(): void {
    if (!this.isVisible) {
      return; // many cards are work; they are drawn once it is shown
    }
    const { state, trouble } = this.pools;
    const there = state?.pools ?? [];
    this.note.textContent =
      trouble ||
      (state && !there.length ? `No pool is up in ${state.folder}.` : '');
    this.note.hidden = this.note.textContent === '';
    const ids = new Set(there.map(pool => pool.pool.id));
    for (const [id, card] of this.cards) {
      if (!ids.has(id)) {
        this.sight.unobserve(card.node);
        card.node.remove();
        this.cards.delete(id);
      }
    }
    there.forEach((pool, index) => {
      let card = this.cards.get(pool.pool.id);
      if (card) {
        card.update(pool);
      } else {
        card = new PoolCard(pool, this.actions);
        this.cards.set(pool.pool.id, card);
        this.sight.observe(card.node);
      }
      const at = this.list.children.item(index);
      if (at !== card.node) {
        this.list.insertBefore(card.node, at);
      }
    });
  }
}
