/** A run as the kernel publishes it: the types of `run.schema.json`, as far as they are shown. */

export const MIME = 'application/vnd.skyward.run+json';

/** Dollars: an hour, so far, at most. */
export interface ICost {
  hourly: number | null;
  so_far: number | null;
  most: number | null;
}

/** What a rank uses of its GPU: bytes, and percent. */
export interface IGpu {
  used: number;
  total: number;
  busy: number | null;
}

/** A loop: `done` of `total` items after `seconds`; it went on from a checkpoint with `skipped` of them. */
export interface IBar {
  text: string;
  done: number;
  total: number | null;
  unit: string;
  seconds: number;
  note: string;
  over: boolean;
  /** Older records have none. */
  skipped?: number;
}

/** Mean values at steps, each of `stride` steps. */
export interface ICurve {
  steps: number[];
  values: number[];
  stride: number;
}

/** One rank. */
export interface IRankRecord {
  rank: number;
  node: number;
  state: string;
  stage: string;
  bars: IBar[];
  metrics: Record<string, number | null>;
  curves: Record<string, ICurve>;
  cpu: number | null;
  memory: number | null;
  peak?: number | null;
  gpu: IGpu | null;
  remark: string;
  /** Loops that are not in `bars`: those that ended, and those that go on. */
  bars_done?: number;
  bars_hidden?: number;
  /** The most rows that all of them took so far. */
  loop_rows?: number;
}

/** Lines that the same ranks wrote to the same stream: these, or so many that are in the HTML alone. */
export interface IText {
  type: 'text';
  ranks: number[];
  stream: string;
  lines: string[];
  in_html?: number;
}

/** Something that ranks displayed; what is binary stands in the bundle's HTML, at the anchor. */
export interface IFigure {
  type: 'display';
  ranks: number[];
  types: string[];
  data: Record<string, string>;
  anchor: string;
}

/** So many lines are left out here. */
export interface ICut {
  type: 'cut';
  lines: number;
  logs: string;
}

export type Entry = IText | IFigure | ICut;

/** A step of readying nodes. */
export interface IStep {
  nodes: number[];
  name: string;
  text: string;
  seconds: number;
  done: boolean;
}

/** A line, counted from 1, at which ranks failed, of `Cell In[3]` or a file. */
export interface IFailure {
  ranks: number[];
  where: string;
  line: number;
  error: string;
}

/** A row of what was sent. */
export interface ISentName {
  name: string;
  status: string;
  type: string;
  size: number;
}

/** Notes that make a table, with remarks below it. */
export interface INoteTable {
  title: string;
  columns: string[];
  rows: string[][];
  remarks: string[];
}

/** One run as it is or was. */
export interface IRecord {
  /** 2 where lines stand in the HTML alone. */
  version: 1 | 2;
  run: string;
  state: string;
  headline: string;
  about: string;
  seconds: number;
  over: boolean;
  cost: ICost | null;
  steps: IStep[];
  ranks: IRankRecord[];
  remarks: string[];
  output: Entry[];
  notes: string[];
  foot: string[];
  names: ISentName[];
  failures?: IFailure[];
  /** In place of the headline where the run's error stands below, which says the notes of the error, too. */
  short_headline?: string;
  error_notes?: string[];
  tables?: INoteTable[];
}

/** The record of a bundle; null where there is none of a version that is known here. */
export function recordOf(data: Record<string, unknown>): IRecord | null {
  const found = data[MIME] as Partial<IRecord> | null | undefined;
  const isOne =
    (found?.version === 1 || found?.version === 2) &&
    [found.ranks, found.output, found.notes].every(Array.isArray);
  return isOne ? (found as IRecord) : null;
}

/** How far a run is, from 0 to 1, by the outermost loops of its ranks; null where they have none. */
export function partOf(record: IRecord): number | null {
  const parts = record.ranks.flatMap(rank => {
    const bar = rank.bars.find(each => !each.over) ?? rank.bars[0];
    return bar?.total ? [Math.min(1, bar.done / bar.total)] : [];
  });
  return parts.length
    ? parts.reduce((sum, each) => sum + each, 0) / parts.length
    : null;
}
