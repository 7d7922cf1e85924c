/** Numbers, ranks and times in words, as the pictures of runs write them. */

import type { ICost } from './record';

/** What an error says. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Costs, each that is known: `$3.20/h`, `$4.25 so far of at most $5.00`. */
export function spellCost({ hourly, so_far, most }: ICost): string[] {
  const limit = most === null ? '' : ` of at most ${dollars(most)}`;
  return [
    ...(hourly === null ? [] : [`${dollars(hourly)}/h`]),
    ...(so_far === null ? [] : [`${dollars(so_far)} so far${limit}`])
  ];
}

/** Dollars: `$3.20`, `$0.012`. */
export function dollars(amount: number): string {
  return `$${amount.toFixed(amount > 0 && amount < 0.1 ? 3 : 2)}`;
}

/** Ranks as a list of ranges: `0-2,5`. */
export function rangesOf(ranks: number[]): string {
  const found: string[] = [];
  for (let at = 0; at < ranks.length;) {
    let end = at;
    while (ranks[end + 1] === (ranks[end] ?? 0) + 1) {
      end += 1;
    }
    const [first, last] = [ranks[at], ranks[end]];
    found.push(at === end ? `${first}` : `${first}-${last}`);
    at = end + 1;
  }
  return found.join(',');
}

/** Ranks in words: `rank 3`, `ranks 0-2,5`. */
export function spellRanks(ranks: number[]): string {
  return `rank${ranks.length === 1 ? '' : 's'} ${rangesOf(ranks)}`;
}

/** The ranks that a person means by `0-2, 5`; null where that is no list of ranks. */
export function readRanks(text: string): Set<number> | null {
  const found = new Set<number>();
  for (const part of text.split(/[\s,]+/).filter(Boolean)) {
    const range = /^(\d{1,6})(?:-(\d{1,6}))?$/.exec(part);
    if (!range) {
      return null;
    }
    const [first, last] = [Number(range[1]), Number(range[2] ?? range[1])];
    if (last - first > 100000) {
      return null;
    }
    for (let rank = first; rank <= last; rank += 1) {
      found.add(rank);
    }
  }
  return found;
}

/** Bytes: `1.5 GB`. */
export function spellSize(bytes: number): string {
  let value = bytes;
  for (const unit of ['B', 'kB', 'MB', 'GB']) {
    // What three digits round up to 1000 is one of the next.
    if (value < 999.5) {
      return unit === 'B'
        ? `${Math.round(value)} B`
        : `${value.toPrecision(3)} ${unit}`;
    }
    value /= 1000;
  }
  return `${value.toPrecision(3)} TB`;
}

/** Seconds: `0.3 s`, `42 s`, `4 min 10 s`, `2 h 5 min`. */
export function clock(seconds: number): string {
  if (seconds < 10) {
    return `${seconds.toFixed(1)} s`;
  }
  const whole = Math.round(seconds);
  if (whole < 60) {
    return `${whole} s`;
  }
  const minutes = Math.floor(whole / 60);
  return minutes < 60
    ? `${minutes} min ${whole % 60} s`
    : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** A number of four digits at most, as tables and curves have it. */
export function compact(value: number | null | undefined): string {
  if (value === null || value === undefined) {
    return 'nan';
  }
  const size = Math.abs(value);
  return size !== 0 && (size >= 1e6 || size < 1e-3)
    ? value.toExponential(2)
    : String(Number(value.toPrecision(4)));
}
