/** What the buttons of a pool do: over REST, and for a pool that a kernel conducts by a line in that kernel. */

import { Dialog, showDialog } from '@jupyterlab/apputils';
import type { Kernel } from '@jupyterlab/services';
import { runLine } from './kernelLines';
import type { IPoolActions } from './poolCard';
import type { IOutput, IPool, IStanding, Pools } from './pools';
import { ask, goesOn, ofPool } from './pools';
import { valuesTable } from './valuesTable';

const LOOKS = 40;
const PAUSE = 250;

/** The actions of all cards; `offer` puts a line where a person can run it. */
export function poolActions(
  kernels: Kernel.IManager,
  pools: Pools,
  offer: (line: string) => Promise<string>
): IPoolActions {
  /** The pool as it was told of last; null where nothing is known now. */
  const latest = (pool: IPool) =>
    pools.state?.pools.find(each => each.pool.id === pool.pool.id) ?? null;

  const interrupt = async (pool: IPool) => {
    await ask(ofPool(pool, 'interrupt'), 'POST');
    pools.refresh();
    for (let look = 0; look < LOOKS; look += 1) {
      const now = latest(pool);
      if (now && !goesOn(now)) {
        return 'Interrupted: names and ranks stay.';
      }
      await new Promise(resolve => setTimeout(resolve, PAUSE));
      pools.refresh();
    }
    return 'What conducts it was interrupted.';
  };

  const inKernel = async (pool: IPool, verb: string) => {
    const now = latest(pool) ?? pool;
    // A run in the background goes on when a cell that waits for it is interrupted, and a restart is refused then.
    if (goesOn(now) && (verb === 'down' || !now.pool.run?.detached)) {
      // It may be over by now; the kernel gets the line again where it drops it with the cell.
      await ask(ofPool(pool, 'interrupt'), 'POST').catch(() => null);
    }
    const said = await runLine(
      kernels,
      pool.kernel,
      `%sky ${verb} pool=${pool.pool.name}`
    );
    pools.refresh();
    return said;
  };

  return {
    interrupt,
    restart: async pool => {
      const what = `Restart the ranks of pool ${pool.handle}?`;
      if (
        !(await isSure(
          what,
          pool,
          'The names on its ranks are gone.',
          'Restart'
        ))
      ) {
        return '';
      }
      return (await inKernel(pool, 'restart')) || 'New ranks are ready.';
    },
    down: async pool => {
      const what = `Take pool ${pool.handle} down?`;
      if (
        !(await isSure(
          what,
          pool,
          'Its ranks and their values are gone.',
          'Down'
        ))
      ) {
        return '';
      }
      if (pool.kernel) {
        return inKernel(pool, 'down');
      }
      const { said } = await ask<{ said: string }>(
        ofPool(pool, 'down'),
        'POST'
      );
      pools.refresh();
      return said;
    },
    values: async pool => {
      const options = `pool=${pool.pool.name}`;
      const run = (line: string) => runLine(kernels, pool.kernel, line);
      return valuesTable(await run(`%sky vars ${options}`), name =>
        run(`%sky pull ${name} ${options}`)
      );
    },
    attach: pool => offer(`%sky attach pool=${pool.handle}`),
    output: async pool => {
      const { run, left_out, lines } = await ask<IOutput>(
        ofPool(pool, 'output')
      );
      const before = left_out
        ? [`… ${left_out} lines before these: %sky logs run=${run}`]
        : [];
      return [`run ${run}`, ...before, ...lines].join('\n');
    },
    standing: async pool => {
      const found = await ask<IStanding>(ofPool(pool, 'standing'));
      if (found.state !== 'running') {
        return found.state === 'idle'
          ? 'Nothing runs.'
          : 'The pool does not answer.';
      }
      return `${found.sentence}\n\n${found.stacks}`;
    }
  };
}

async function isSure(
  title: string,
  pool: IPool,
  loss: string,
  label: string
): Promise<boolean> {
  const run = pool.pool.run;
  const what = run?.what ?? 'What runs there';
  const ofKernel =
    label === 'Down' ? ' What its kernel runs is interrupted.' : '';
  const stops = run?.detached ? ofKernel : ` ${what} is interrupted.`;
  const { button } = await showDialog({
    title,
    body: goesOn(pool) ? `${loss}${stops}` : loss,
    buttons: [Dialog.cancelButton(), Dialog.warnButton({ label })]
  });
  return button.accept;
}
