/**
 * Runs that nobody looks at: their progress in the titles of tabs, and one word when they end.
 *
 * What is known comes from the records in outputs, which kernels send also to a page that is hidden.
 */

import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Notification as Toast } from '@jupyterlab/apputils';
import type { Cell } from '@jupyterlab/cells';
import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { NotebookActions } from '@jupyterlab/notebook';
import { recordsOf } from './cellRecords';
import type { Pools } from './pools';
import type { IRecord } from './record';
import { partOf } from './record';
import { clock } from './words';

const PERIOD = 1000;
/** Seconds of a run whose end is no news. */
const SHORT = 10;
const PROGRESS = 'sky-progress';

/** Follow all notebooks of a page. */
export function followRuns(
  shell: JupyterFrontEnd.IShell,
  tracker: INotebookTracker,
  pools: Pools
): void {
  const titles = new PageTitle();
  const draw = () => {
    let first = '';
    tracker.forEach(panel => {
      const words = progressOf(panel, pools);
      mark(panel, words);
      first ||= words;
    });
    titles.put(first);
  };
  pools.changed.connect(draw);
  // A page that is hidden asks for nothing, and has records alone.
  window.setInterval(draw, PERIOD);
  NotebookActions.executed.connect((_, { notebook, cell }) => {
    const panel = tracker.find(each => each.content === notebook);
    const [record] = recordsOf(cell.model).slice(-1);
    const isLong = record?.over && record.seconds >= SHORT;
    if (panel && isLong && !isSeen(panel, cell)) {
      tell(panel, record, () => {
        if (!cell.isDisposed) {
          shell.activateById(panel.id);
          void panel.content.scrollToCell(cell);
        }
      });
    }
  });
}

/** `40%` of the run of a notebook whose cell is out of sight; empty where there is nothing to say. */
function progressOf(panel: NotebookPanel, pools: Pools): string {
  const cell = panel.content.widgets.find(each =>
    recordsOf(each.model).some(record => !record.over)
  );
  if (!cell || isSeen(panel, cell) || !isRunning(panel)) {
    return '';
  }
  const kernel = panel.sessionContext.session?.kernel?.id;
  const told =
    document.visibilityState === 'visible'
      ? pools.state?.pools.find(each => each.kernel === kernel)?.progress?.part
      : null;
  const [record] = recordsOf(cell.model).slice(-1);
  const part = told ?? (record ? partOf(record) : null);
  return part === null ? '…' : `${Math.floor(100 * part)}%`;
}

function isRunning(panel: NotebookPanel): boolean {
  return panel.sessionContext.session?.kernel?.status === 'busy';
}

/** Whether a person can see a cell now. */
function isSeen(panel: NotebookPanel, cell: Cell): boolean {
  if (
    document.visibilityState !== 'visible' ||
    !panel.isVisible ||
    !cell.isAttached
  ) {
    return false;
  }
  const [frame, box] = [panel.content.node, cell.node].map(each =>
    each.getBoundingClientRect()
  );
  return (
    frame !== undefined &&
    box !== undefined &&
    box.height > 0 &&
    box.bottom > frame.top &&
    box.top < frame.bottom
  );
}

/** Put words before the label of a notebook's tab: by its data, as the label is the file's name. */
function mark(panel: NotebookPanel, words: string): void {
  const { [PROGRESS]: there = '', ...others } = panel.title.dataset as Record<
    string,
    string
  >;
  if (there !== words) {
    panel.title.dataset = words ? { ...others, [PROGRESS]: words } : others;
  }
}

/** Say that a run has ended; `show` brings its cell into sight. */
function tell(panel: NotebookPanel, record: IRecord, show: () => void): void {
  const title = record.headline;
  const body = `${panel.title.label} · ${clock(record.seconds)}`;
  if (
    document.visibilityState !== 'visible' &&
    'Notification' in window &&
    Notification.permission === 'granted'
  ) {
    // Of pages with the same run, one shows it.
    const made = new Notification(title, { body, tag: record.run });
    made.onclick = () => {
      window.focus();
      show();
    };
    return;
  }
  Toast.emit(
    `${title}: ${body}`,
    record.state === 'finished' ? 'success' : 'warning',
    {
      autoClose: false,
      actions: [{ label: 'Show', callback: show }]
    }
  );
}

/** The page's title, which Lab sets by itself at times, with words before it. */
class PageTitle {
  private words = '';

  put(words: string): void {
    const own =
      this.words && document.title.startsWith(`${this.words} · `)
        ? document.title.slice(this.words.length + 3)
        : document.title;
    const wanted = words ? `${words} · ${own}` : own;
    this.words = words;
    if (document.title !== wanted) {
      document.title = wanted;
    }
  }
}

/** Whether the browser may be asked to allow notifications. */
export function canAsk(): boolean {
  return 'Notification' in window && Notification.permission === 'default';
}
