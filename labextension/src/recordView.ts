/**
 * The renderer of a run's record: safe, as all of it is text that is made into elements here.
 *
 * In a notebook that a kernel fills, stock widgets may stand in the next output: the picture of a run that
 * goes on. They are hidden as soon as the server tells how the run is, and are what is seen where it does not.
 */

import type { IRenderMime } from '@jupyterlab/rendermime-interfaces';
import { Widget } from '@lumino/widgets';
import type { IMetric } from './curveScale';
import { metricsOf } from './curveScale';
import { CurvePicture } from './curvePicture';
import { button, element, setText } from './dom';
import { BundleHtml, needsHtml } from './figures';
import { runEnded } from './lateValues';
import { OutputPane } from './outputPane';
import { RankChoice } from './rankChoice';
import { noteTable, rankTable } from './rankTable';
import type { IRecord } from './record';
import { MIME, recordOf } from './record';
import type { IRunState } from './runState';
import { RunWatch } from './runState';
import { clock, spellCost, spellSize } from './words';

const MOST_CURVES = 12;
/** Milliseconds for which what the server says of a run counts as newer than what the kernel publishes. */
const FRESH = 3000;
/** What the kernel's HTML begins with where widgets stand beside it. */
const BESIDE = /^<style>[^<]*<\/style><div class="sky-[0-9a-f]{12}">/;
const UNKNOWN =
  '(As text, since this page does not know the version of its record: reload the page, or update skyward_nb where JupyterLab runs.)';

/** One output of this type; what a person chose stays chosen while it changes. */
export class RecordView extends Widget implements IRenderMime.IRenderer {
  private readonly dot = element('span', 'sky-state', '●');
  private readonly headline = element('b', '');
  private readonly about = element('span', 'sky-about');
  private readonly time = element('span', 'sky-time');
  private readonly fold: HTMLButtonElement;
  private readonly body = element('div', 'sky-body');
  private readonly steps = element('div', 'sky-steps');
  private readonly table = element('div', '');
  private readonly remarks = element('div', '');
  private readonly curves = element('div', 'sky-curves');
  private readonly notes = element('div', '');
  private readonly small = element('div', 'sky-small');
  private readonly plain = element('pre', 'sky-plain');
  private readonly pictures = new Map<string, CurvePicture>();
  private readonly choice = new RankChoice(() => {
    this.drawRanks();
    this.output.chosen();
  });
  private readonly output = new OutputPane(this.choice);
  private readonly sight: IntersectionObserver;
  private readonly seen = () => {
    this.watch?.wake();
  };
  private isInSight = false;
  private watch: RunWatch | null = null;
  private watched = '';
  /** When the server last said how the run is, and whether what the kernel published since is not drawn. */
  private toldAt = 0;
  private hasUndrawn = false;
  private model: IRenderMime.IMimeModel | null = null;
  private record: IRecord | null = null;
  private drawn = '';
  private drawnHtml = '';
  private html: BundleHtml | null = null;

  constructor(private readonly sanitizer: IRenderMime.ISanitizer) {
    super();
    this.addClass('sky-record');
    this.node.dataset['mimeType'] = MIME;
    this.dot.setAttribute('aria-hidden', 'true');
    this.fold = button('', 'Fold or unfold', () => {
      this.setFolded(!this.body.hidden);
    });
    this.fold.classList.add('sky-fold');
    this.setFolded(false);
    this.body.append(
      this.steps,
      this.table,
      this.remarks,
      this.curves,
      this.output.node,
      this.notes,
      this.small
    );
    this.plain.hidden = true;
    this.node.append(
      this.plain,
      element(
        'div',
        'sky-bar',
        this.dot,
        element('div', 'sky-words', this.headline, ' ', this.about),
        this.time,
        this.fold
      ),
      this.body
    );
    this.sight = new IntersectionObserver(entries => {
      this.isInSight = entries.some(each => each.isIntersecting);
      this.seen();
    });
    this.sight.observe(this.node);
    document.addEventListener('visibilitychange', this.seen);
  }

  /** Show a bundle, as the notebook has it. */
  renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    this.model = model;
    const data = model.data as Record<string, unknown>;
    const html = textOf(data, 'text/html');
    this.node.dataset['beside'] = BESIDE.test(html) ? 'widgets' : '';
    const record = recordOf(data);
    this.hasUndrawn =
      this.node.dataset['is'] === 'live' &&
      performance.now() - this.toldAt < FRESH &&
      record !== null &&
      !record.over &&
      record.run === this.watched;
    if (!this.hasUndrawn) {
      this.drawBundle(data, 'kept');
    }
    return Promise.resolve();
  }

  /** Stop asking. */
  override dispose(): void {
    this.watch?.stop();
    this.sight.disconnect();
    document.removeEventListener('visibilitychange', this.seen);
    super.dispose();
  }

  protected override onAfterAttach(): void {
    this.seen();
  }

  private drawBundle(
    data: Record<string, unknown>,
    how: 'kept' | 'live'
  ): void {
    const record = recordOf(data);
    this.node.classList.toggle('sky-unknown', !record);
    this.plain.hidden = record !== null;
    if (!record) {
      // Widgets beside it are live, this is not.
      this.node.dataset['is'] = 'kept';
      setText(this.plain, `${textOf(data, 'text/plain')}\n${UNKNOWN}`.trim());
      return;
    }
    this.node.dataset['is'] = record.over ? 'over' : how;
    this.node.dataset['state'] = record.state;
    this.record = record;
    const short = record.short_headline;
    setText(this.headline, short ? short : record.headline);
    setText(this.about, record.about);
    const cost = record.cost ? spellCost(record.cost) : [];
    setText(this.time, [clock(record.seconds), ...cost].join(' · '));
    this.drawSteps();
    this.choice.update(
      record.ranks.map(rank => rank.rank),
      new Set(
        record.ranks
          .filter(rank => ['failed', 'lost'].includes(rank.state))
          .map(rank => rank.rank)
      )
    );
    this.drawRanks();
    this.remarks.replaceChildren(...sections(record.remarks));
    this.drawOutput(record, textOf(data, 'text/html'));
    const ofError = short ? [] : (record.error_notes ?? []);
    this.notes.replaceChildren(
      ...(record.tables ?? []).map(noteTable),
      ...sections([...record.notes, ...ofError])
    );
    this.drawSmall(record);
    this.follow(record);
  }

  /** What was printed and displayed, when it has changed, in the record or in its HTML. */
  private drawOutput(record: IRecord, text: string): void {
    const isTrusted = this.model?.trusted ?? false;
    let { html } = this;
    if (html?.text !== text || html.isTrusted !== isTrusted) {
      html = new BundleHtml(text, this.sanitizer, isTrusted);
      this.html = html;
    }
    const output = JSON.stringify(record.output);
    const beside = needsHtml(record.output) ? html.output : '';
    if (output !== this.drawn || beside !== this.drawnHtml) {
      this.drawn = output;
      this.drawnHtml = beside;
      this.output.update(record.run, record.output, html);
    }
  }

  private setFolded(isFolded: boolean): void {
    this.body.hidden = isFolded;
    this.fold.textContent = isFolded ? '▸' : '▾';
    this.fold.setAttribute('aria-expanded', String(!isFolded));
    this.fold.setAttribute('aria-label', 'The run');
  }

  private drawSteps(): void {
    const { steps, state } = this.record ?? { steps: [], state: '' };
    const rows = steps.map(step => {
      const node = `node${step.nodes.length > 1 ? 's' : ''} ${step.nodes.join(', ')}`;
      const how = step.done ? '✓' : `▸ ${step.text} …`;
      return element(
        'div',
        '',
        `${node}: ${step.name} ${how} ${clock(step.seconds)}`
      );
    });
    this.steps.replaceChildren(...(state === 'starting' ? rows : []));
  }

  /** What depends on the choice of ranks, beside the output. */
  private drawRanks(): void {
    const all = this.record?.ranks ?? [];
    const shown = all.filter(rank => this.choice.isShown(rank.rank));
    const table = rankTable(shown, this.record?.over ?? false);
    const there = this.table.firstElementChild;
    if (table && there) {
      // The box that scrolls stays, with its place and the focus.
      there.replaceChildren(...table.childNodes);
    } else {
      this.table.replaceChildren(...(table ? [table] : []));
    }
    const metrics = metricsOf(all, this.choice.isShown).slice(0, MOST_CURVES);
    this.drawCurves(metrics);
  }

  private drawCurves(metrics: IMetric[]): void {
    const names = new Set(metrics.map(metric => metric.name));
    for (const [name, picture] of this.pictures) {
      if (!names.has(name)) {
        picture.node.remove();
        this.pictures.delete(name);
      }
    }
    for (const metric of metrics) {
      const there = this.pictures.get(metric.name);
      if (there) {
        there.update(metric);
      } else {
        const made = new CurvePicture(metric);
        this.pictures.set(metric.name, made);
        this.curves.append(made.node);
      }
    }
    this.curves.hidden = metrics.length === 0;
  }

  private drawSmall(record: IRecord): void {
    const foot = record.foot.join(' · ');
    this.small.hidden = foot === '';
    const isOpen = this.small.querySelector('details')?.open ?? false;
    if (!record.names.length) {
      this.small.textContent = foot;
      return;
    }
    const rows = record.names.map(({ name, type, size, status }) =>
      element(
        'tr',
        '',
        ...[name, type, spellSize(size), status].map(text =>
          element('td', '', text)
        )
      )
    );
    const made = element(
      'details',
      '',
      element('summary', '', foot),
      element('table', '', element('tbody', '', ...rows))
    );
    made.open = isOpen;
    this.small.replaceChildren(made);
  }

  /** Ask the server how a run is that has not ended in the notebook. */
  private follow(record: IRecord): void {
    const run = record.over || !record.run.includes('/') ? '' : record.run;
    if (run === this.watched) {
      return;
    }
    this.watch?.stop();
    this.watched = run;
    this.watch = run
      ? new RunWatch(
          run,
          () => this.isInSight || this.isHiddenByWidgets(),
          state => {
            this.told(state);
          }
        )
      : null;
  }

  /** Whether it is out of sight only because widgets show the run. */
  private isHiddenByWidgets(): boolean {
    return this.isVisible && this.node.offsetParent === null;
  }

  private told({ state, data, value }: IRunState): void {
    if (!data) {
      if (state === 'gone' && this.node.dataset['is'] === 'live') {
        this.node.dataset['is'] = 'kept';
        if (this.hasUndrawn && this.model) {
          this.drawBundle(this.model.data, 'kept');
        }
      }
      return;
    }
    this.toldAt = performance.now();
    this.hasUndrawn = false;
    if (state === 'over') {
      runEnded.emit({ node: this.node, run: this.watched, value });
    }
    this.drawBundle(data, 'live');
    if (state === 'over') {
      // Saved from now on, in place of what the notebook had.
      const kept = this.model?.data as Record<string, unknown> | undefined;
      const [mark] = BESIDE.exec(textOf(kept ?? {}, 'text/html')) ?? [''];
      const html = `${mark}${textOf(data, 'text/html')}${mark && '</div>'}`;
      const ended = { ...data, 'text/html': html };
      this.model?.setData({ data: ended });
    }
  }
}

function textOf(data: Record<string, unknown>, mime: string): string {
  const text = data[mime];
  // A notebook file has long texts as lists of lines.
  return Array.isArray(text)
    ? text.join('')
    : typeof text === 'string'
      ? text
      : '';
}

function sections(texts: string[]): HTMLElement[] {
  return texts.map(text => element('div', 'sky-section', text));
}
