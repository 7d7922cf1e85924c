/** The menu beside the cell's button: on which pool the cell runs, and on which of its ranks. */

import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { INotebookTracker } from '@jupyterlab/notebook';
import { caretDownIcon } from '@jupyterlab/ui-components';
import type { VirtualElement } from '@lumino/virtualdom';
import { h } from '@lumino/virtualdom';
import { Menu } from '@lumino/widgets';
import type { IPanelState, IPool } from './pools';
import { ask, worldSize } from './pools';
import { MAGIC, remoteLine, valueOf, withOption } from './remoteLine';
import { activeCode, activeSource, replaceSource } from './sourceEdits';

const MENU = 'skyward-nb:cell-menu';
const SET = 'skyward-nb:set-line';
const MOST_RANKS = 16;
const DEFAULT = 'default';

/** What an item of the menu does to the line. */
interface ISetArgs {
  name: string;
  value: string;
  label: string;
}

/** Lumino's own separator takes the focus, and a program that reads the menu aloud stumbles over it. */
class MenuRenderer extends Menu.Renderer {
  override renderItem(data: Menu.IRenderData): VirtualElement {
    if (data.item.type !== 'separator') {
      return super.renderItem(data);
    }
    return h.li(
      {
        className: this.createItemClass(data),
        dataset: this.createItemDataset(data),
        role: 'separator'
      },
      this.renderIcon(data),
      this.renderLabel(data),
      this.renderShortcut(data),
      this.renderSubmenu(data)
    );
  }
}

/** Whether cells of the notebook in front reach a pool by its name: their kernel has it, or one before has left it. */
function isReached(
  { kernel, pool }: IPool,
  { currentWidget }: INotebookTracker
): boolean {
  const own = currentWidget?.sessionContext.session?.kernel?.id;
  const path = (currentWidget?.context.path ?? '').replace(/^\w+:/, '');
  const isLeft =
    pool.client === null && `/${pool.notebook}`.endsWith(`/${path}`);
  return (own !== undefined && kernel === own) || (path !== '' && isLeft);
}

/** Register the commands; the settings put the menu's button into each cell's toolbar. */
export function addCellMenu(
  app: JupyterFrontEnd,
  tracker: INotebookTracker
): void {
  const { commands } = app;
  const line = () => remoteLine(activeSource(tracker));
  const isCode = () => activeCode(tracker) !== null;

  commands.addCommand(SET, {
    label: args => (args as unknown as Partial<ISetArgs>).label ?? '',
    isToggled: args => {
      const { name, value } = args as unknown as ISetArgs;
      return line() !== '' && valueOf(line(), name) === value;
    },
    execute: args => {
      const model = activeCode(tracker);
      if (model) {
        const { name, value } = args as unknown as ISetArgs;
        const text = withOption(line() || `${MAGIC}\n`, name, value);
        replaceSource(model, { start: 0, end: line().length, text });
      }
    }
  });
  commands.addCommand(MENU, {
    caption: 'The pool and the ranks that the cell runs on',
    icon: caretDownIcon,
    isEnabled: isCode,
    isVisible: isCode,
    execute: async () => {
      const button = tracker.activeCell?.node.querySelector(
        `.jp-cell-toolbar [data-command='${MENU}']`
      );
      const at = button?.getBoundingClientRect();
      let pools: IPool[] = [];
      try {
        const known = (await ask<IPanelState>('pools')).pools;
        pools = known.filter(each => isReached(each, tracker));
      } catch {
        // The menu says that no pool is up, which is all that is known.
      }
      const menu = menuOf(app, pools, valueOf(line(), 'pool'));
      menu.aboutToClose.connect(() => {
        // An item that was chosen still has to run.
        setTimeout(() => {
          menu.dispose();
        });
      });
      menu.open(at?.left ?? 0, at?.bottom ?? 0);
    }
  });
}

function menuOf(app: JupyterFrontEnd, pools: IPool[], chosen: string): Menu {
  const { commands } = app;
  const menu = new Menu({ commands, renderer: new MenuRenderer() });
  const add = (to: Menu, name: string, value: string, label: string) => {
    to.addItem({ command: SET, args: { name, value, label } });
  };
  if (!pools.some(({ pool }) => pool.name === DEFAULT)) {
    add(menu, 'pool', '', 'A pool that is made for it');
  }
  for (const { pool } of pools) {
    const value = pool.name === DEFAULT ? '' : pool.name;
    add(menu, 'pool', value, `${pool.name}: ${pool.spec}`);
  }
  menu.addItem({ type: 'separator' });
  add(menu, 'ranks', '', 'All ranks');
  add(menu, 'ranks', 'head', 'Rank 0 alone');
  const pool = pools.find(each => each.pool.name === (chosen || DEFAULT));
  const count = Math.min(pool ? worldSize(pool) : 0, MOST_RANKS);
  for (let rank = 1; rank < count; rank += 1) {
    add(menu, 'ranks', `${rank}`, `Rank ${rank} alone`);
  }
  return menu;
}
