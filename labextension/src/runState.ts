/** The true state of a run that a notebook has unfinished: asked of the server, which reads it from files. */

import { ServerConnection } from '@jupyterlab/services';
import { ask, ofRun } from './pools';

const PERIOD = 1000;
const LONGEST = 60000;

/** What a cell has shown as its value. */
export interface IValue {
  data: Record<string, unknown>;
  metadata: Record<string, unknown>;
}

/** `live` and `over` come with a bundle; of what is `gone` nothing is known. `value`: what the cell showed below it. */
export interface IRunState {
  state: 'live' | 'begun' | 'over' | 'gone';
  data: Record<string, unknown> | null;
  value?: IValue | null | undefined;
}

/** Asks as long as the run goes on, `isSeen`, and somebody has not stopped it. */
export class RunWatch {
  private timer = 0;
  private pause = PERIOD;
  private isOver = false;
  private isAsking = false;
  private asked = -PERIOD;

  constructor(
    private readonly run: string,
    private readonly isSeen: () => boolean,
    private readonly tell: (state: IRunState) => void
  ) {
    this.wait(0);
  }

  /** Ask no more. */
  stop(): void {
    this.isOver = true;
    window.clearTimeout(this.timer);
  }

  /** Ask now, if that is a while ago: it came into sight. */
  wake(): void {
    if (!this.isOver) {
      this.wait(Math.max(0, this.asked + PERIOD - performance.now()));
    }
  }

  private wait(pause: number): void {
    window.clearTimeout(this.timer);
    this.timer = window.setTimeout(() => {
      void this.look();
    }, pause);
  }

  private async look(): Promise<void> {
    if (document.visibilityState !== 'visible' || !this.isSeen()) {
      // Nothing is asked for what nobody sees. `wake` comes when it scrolls into sight, but not when its notebook is
      // shown while widgets stand in its place.
      this.wait(PERIOD);
      return;
    }
    if (this.isAsking) {
      return; // it goes on when the answer is there
    }
    this.isAsking = true;
    this.asked = performance.now();
    const state = await this.ask();
    this.isAsking = false;
    if (this.isOver) {
      return;
    }
    if (state?.state === 'over') {
      this.stop();
    } else {
      this.wait(this.pause);
    }
    if (state) {
      this.tell(state);
    }
  }

  /** How the run is; null where the server does not tell. */
  private async ask(): Promise<IRunState | null> {
    try {
      const state = await ask<IRunState>(ofRun(this.run));
      const isKnown = state.state !== 'gone';
      this.pause = isKnown ? PERIOD : Math.min(LONGEST, 2 * this.pause);
      return state;
    } catch (error) {
      // A server without its half of the extension has nothing to tell.
      const isMissing =
        error instanceof ServerConnection.ResponseError &&
        error.response.status === 404;
      this.pause = isMissing ? LONGEST : Math.min(LONGEST, 2 * this.pause);
      return null;
    }
  }
}
