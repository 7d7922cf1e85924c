/** What the server says of pools, asked once a second while somebody can see it. */

import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';
import { Poll } from '@lumino/polling';
import type { ISignal } from '@lumino/signaling';
import { Signal } from '@lumino/signaling';
import type { ICost, IGpu } from './record';

const PERIOD = 1000;
const LONGEST = 15000;

/** A rank and its process; `lost` says in words how that ended. */
export interface IRank {
  rank: number;
  node: number;
  process: number | null;
  lost: string;
}

/** A pool as `skyward-nb status --json` tells of it. */
export interface IPoolRow {
  name: string;
  id: string;
  spec: string;
  nodes: number;
  ranks_per_node: number;
  notebook: string;
  client: { notebook: string } | null;
  run: { what: string; running: number[]; detached: boolean } | null;
  where: string;
  doing: string;
  ranks: IRank[];
  cost: ICost | null;
}

/** What a rank uses: percent of a core, bytes, its GPU. */
export interface IRankFigures {
  rank: number;
  cpu: number | null;
  memory: number | null;
  gpu: IGpu | null;
}

/** How far a run is, as its picture says it. */
export interface IProgress {
  headline: string;
  words: string;
  part: number | null;
  ranks: IRankFigures[];
}

/** A pool, and the kernel of this server that conducts it. */
export interface IPool {
  pool: IPoolRow;
  handle: string;
  kernel: string;
  is_asked: boolean;
  progress: IProgress | null;
}

/** All pools, and the folder whose pools they are. */
export interface IPanelState {
  pools: IPool[];
  folder: string;
}

/** How the run of a pool stands. */
export interface IStanding {
  state: 'running' | 'idle' | 'silent';
  sentence: string;
  stacks: string;
}

/** The last lines of a run. */
export interface IOutput {
  run: string;
  left_out: number;
  lines: string[];
}

/** Ask a route of the server extension; its error has the server's words. */
export async function ask<T>(path: string, method = 'GET'): Promise<T> {
  const settings = ServerConnection.makeSettings();
  const url = URLExt.join(settings.baseUrl, 'skyward', path);
  const answer = await ServerConnection.makeRequest(url, { method }, settings);
  if (!answer.ok) {
    throw await ServerConnection.ResponseError.create(answer);
  }
  return (await answer.json()) as T;
}

/** The path of a route of one pool. */
export function ofPool(pool: IPool, what: string): string {
  return `pools/${encodeURIComponent(pool.pool.id)}/${what}`;
}

/** The path of what the server knows of a run. */
export function ofRun(run: string): string {
  return `runs/${run.split('/').map(encodeURIComponent).join('/')}`;
}

/** How many ranks a pool has, also one whose agents were not asked. */
export function worldSize(pool: IPool): number {
  return pool.pool.nodes * pool.pool.ranks_per_node;
}

/** Whether something runs on a pool; of one whose agents were not asked its display tells. */
export function goesOn({ pool, is_asked, progress }: IPool): boolean {
  return (
    (pool.run?.running.length ?? 0) > 0 || (!is_asked && progress !== null)
  );
}

/** The ranks of a pool that have ended. */
export function lostRanks(pool: IPool): number[] {
  return pool.pool.ranks.filter(rank => rank.lost).map(rank => rank.rank);
}

/** Whether most of what a pool may cost is spent. */
export function isNearlySpent(pool: IPool): boolean {
  const { so_far, most } = pool.pool.cost ?? { so_far: null, most: null };
  return so_far !== null && most !== null && so_far >= 0.8 * most;
}

/** The pools that the server knows, and who is told when they change. */
export class Pools {
  private readonly poll: Poll;
  private readonly watchers: (() => boolean)[] = [];
  private readonly signal = new Signal<this, void>(this);
  private lastAnswer = '';
  state: IPanelState | null = null;
  trouble = '';

  constructor() {
    this.poll = new Poll({
      auto: false,
      name: 'skyward-nb:pools',
      factory: () => this.look(),
      frequency: { interval: PERIOD, backoff: true, max: LONGEST },
      // Nothing is asked for a tab that nobody sees.
      linger: 0,
      standby: () =>
        this.watchers.some(isVisible => isVisible()) ? 'when-hidden' : true
    });
  }

  get changed(): ISignal<this, void> {
    return this.signal;
  }

  /** Ask as long as one of these is visible. */
  watch(isVisible: () => boolean): void {
    this.watchers.push(isVisible);
    if (this.watchers.length === 1) {
      void this.poll.start();
    }
  }

  /** Ask now: something was done. */
  refresh(): void {
    void this.poll.refresh();
  }

  private async look(): Promise<void> {
    try {
      const state = await ask<IPanelState>('pools');
      const answer = JSON.stringify(state);
      if (answer !== this.lastAnswer || this.trouble) {
        this.lastAnswer = answer;
        this.trouble = '';
        this.state = state;
        this.signal.emit();
      }
    } catch (error) {
      this.state = null;
      this.lastAnswer = '';
      this.trouble =
        error instanceof ServerConnection.ResponseError &&
        error.response.status === 404
          ? 'The Jupyter server has no skyward_nb: install it where the server runs, and start the server again.'
          : `The Jupyter server does not answer: ${String(error)}`;
      this.signal.emit();
      throw error;
    }
  }
}
