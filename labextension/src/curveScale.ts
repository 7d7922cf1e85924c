/** Where points of curves are in a picture, and what ranks have at a step. Pure. */

import type { ICurve, IRankRecord } from './record';

/** The curves of one metric, by rank; what they have together. */
export interface IMetric {
  name: string;
  curves: Map<number, ICurve>;
  /** The steps that any has, in order, and the values there of each rank that has one. */
  steps: number[];
  at: Map<number, [number, number][]>;
}

/** A scale: from a value to a place from 0 to 1, and its ends and marks. */
export interface IScale {
  place(value: number): number;
  marks: number[];
}

/** The metrics that have more than one point, of the ranks that are shown. */
export function metricsOf(
  ranks: IRankRecord[],
  isShown: (rank: number) => boolean
): IMetric[] {
  const found = new Map<string, Map<number, ICurve>>();
  for (const rank of ranks) {
    if (!isShown(rank.rank)) {
      continue;
    }
    for (const [name, curve] of Object.entries(rank.curves)) {
      const curves = found.get(name) ?? new Map<number, ICurve>();
      found.set(name, curves.set(rank.rank, curve));
    }
  }
  return [...found]
    .filter(([, curves]) =>
      [...curves.values()].some(curve => curve.steps.length > 1)
    )
    .map(([name, curves]) => metric(name, curves));
}

function metric(name: string, curves: Map<number, ICurve>): IMetric {
  const stride = Math.max(...[...curves.values()].map(each => each.stride), 1);
  const at = new Map<number, [number, number][]>();
  for (const [rank, curve] of curves) {
    // One that keeps more points than others has one value there all the same: their mean.
    const sums = new Map<number, [number, number]>();
    curve.steps.forEach((step, index) => {
      const value = curve.values[index];
      // Ranks that took other steps together have no step in common but these.
      const common = step - (step % stride);
      if (value !== undefined) {
        const [sum, count] = sums.get(common) ?? [0, 0];
        sums.set(common, [sum + value, count + 1]);
      }
    });
    for (const [common, [sum, count]] of sums) {
      at.set(common, [...(at.get(common) ?? []), [rank, sum / count]]);
    }
  }
  const steps = [...at.keys()].sort((a, b) => a - b);
  return { name, curves, steps, at };
}

/** The mean of what ranks have at a step. */
export function meanOf(values: [number, number][]): number {
  return values.reduce((sum, [, value]) => sum + value, 0) / values.length;
}

/** A scale over these values, which are finite; logarithmic only where all are above 0. */
export function scale(low: number, high: number, isLog: boolean): IScale {
  const to = isLog ? Math.log10 : (value: number) => value;
  const [first, last] = [to(low), to(high)];
  const span = last - first || 1;
  const place = (value: number) =>
    last === first ? 0.5 : (to(value) - first) / span;
  return { place, marks: isLog ? decades(low, high) : linear(low, high) };
}

function linear(low: number, high: number): number[] {
  const rough = (high - low) / 4;
  if (rough <= 0) {
    return [low];
  }
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(n => n * size).find(n => n >= rough) ?? rough;
  const marks: number[] = [];
  for (
    let n = Math.ceil(low / step);
    n * step <= high && marks.length < 9;
    n += 1
  ) {
    marks.push(Number((n * step).toPrecision(12)));
  }
  return marks;
}

function decades(low: number, high: number): number[] {
  const [first, last] = [Math.log10(low), Math.log10(high)].map(Math.ceil);
  const begin = first ?? 0;
  const count = (last ?? begin) - begin;
  const every = Math.max(1, Math.ceil(count / 5));
  const marks = [low];
  for (let power = begin; 10 ** power < high; power += every) {
    marks.push(10 ** power);
  }
  return [...marks, high];
}

/** The index of the step nearest to this one. */
export function nearest(steps: number[], wanted: number): number {
  let [low, high] = [0, steps.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if ((steps[middle] ?? 0) < wanted) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return wanted - (steps[low] ?? 0) <= (steps[high] ?? 0) - wanted ? low : high;
}
