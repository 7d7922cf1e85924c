/** The item of the status bar: how many pools and ranks, and what they cost. */

import { Widget } from '@lumino/widgets';
import type { IPool, Pools } from './pools';
import { isNearlySpent, lostRanks, worldSize } from './pools';
import { dollars } from './words';

const count = (number: number, noun: string) =>
  `${number} ${noun}${number === 1 ? '' : 's'}`;

/** `2 pools · 8 ranks · $3.20/h` */
function summary(pools: IPool[]): string {
  if (!pools.length) {
    return 'no pool';
  }
  const ranks = pools.reduce((sum, pool) => sum + worldSize(pool), 0);
  const hourly = pools.reduce(
    (sum, pool) => sum + (pool.pool.cost?.hourly ?? 0),
    0
  );
  const parts = [count(pools.length, 'pool'), count(ranks, 'rank')];
  return [...parts, ...(hourly ? [`${dollars(hourly)}/h`] : [])].join(' · ');
}

/** What has gone wrong, or is about to; empty if nothing has. */
function alarm(pools: IPool[]): string {
  const lost = pools.filter(pool => lostRanks(pool).length);
  const spent = pools.filter(isNearlySpent);
  const names = (some: IPool[]) => some.map(pool => pool.handle).join(', ');
  return [
    ...(lost.length ? [`ranks of ${names(lost)} have ended`] : []),
    ...(spent.length ? [`most of the budget of ${names(spent)} is spent`] : [])
  ].join('; ');
}

/** A button that opens the panel. */
export class StatusItem extends Widget {
  private readonly button: HTMLButtonElement;

  constructor(
    private readonly pools: Pools,
    open: () => void
  ) {
    const node = document.createElement('button');
    super({ node });
    this.button = node;
    node.type = 'button';
    node.addEventListener('click', open);
    this.addClass('sky-status');
    pools.changed.connect(() => {
      this.draw();
    });
    this.draw();
  }

  private draw(): void {
    const { state, trouble } = this.pools;
    const there = state?.pools ?? [];
    const wrong = alarm(there);
    this.button.textContent = trouble ? 'pools: ?' : summary(there);
    this.button.title = trouble || wrong || 'Pools of ranks: open the panel';
    this.toggleClass('sky-trouble', wrong !== '');
  }
}
