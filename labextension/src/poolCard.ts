/** One pool in the panel: what it is, what it does, its ranks, and what can be done with it. */

import { button, element, setText } from './dom';
import type { IPool, IProgress, IRank, IRankFigures } from './pools';
import { goesOn, isNearlySpent, lostRanks } from './pools';
import { messageOf, spellCost, spellRanks } from './words';

/** What is shown below a pool: words, or a table. */
type Answer = string | HTMLElement;

/** What a person may ask of a pool; each returns what to say below it, or nothing. */
export interface IPoolActions {
  interrupt(pool: IPool): Promise<string>;
  restart(pool: IPool): Promise<string>;
  down(pool: IPool): Promise<string>;
  attach(pool: IPool): Promise<string>;
  output(pool: IPool): Promise<string>;
  standing(pool: IPool): Promise<string>;
  values(pool: IPool): Promise<Answer>;
}

type Action = keyof IPoolActions;

/** What may wait for all that the kernel runs. */
const IN_KERNEL = new Set<Action>(['restart', 'down', 'values']);

/** Ranks that fit into a narrow panel without being scrolled. */
const MOST_AT_ONCE = 40;

const gigabytes = (bytes: number) => (bytes / 1e9).toFixed(1);

/** What a rank uses, a line each. */
function spellFigures({ cpu, memory, gpu }: IRankFigures): string[] {
  const busy = gpu?.busy === null ? '' : `${gpu?.busy ?? 0} %, `;
  return [
    ...(cpu === null ? [] : [`processor ${cpu.toFixed(0)} %`]),
    ...(memory === null ? [] : [`memory ${gigabytes(memory)} GB`]),
    ...(gpu
      ? [`GPU ${busy}${gigabytes(gpu.used)} of ${gigabytes(gpu.total)} GB`]
      : [])
  ];
}

/** The ranks that have ended, and how, those with the same end together. */
function spellLost(ranks: IRank[]): string {
  const ends = new Map<string, number[]>();
  for (const { rank, lost } of ranks) {
    if (lost) {
      ends.set(lost, [...(ends.get(lost) ?? []), rank]);
    }
  }
  const said = [...ends].map(([how, whose]) =>
    how === 'ended'
      ? `${spellRanks(whose)} ${whose.length > 1 ? 'have' : 'has'} ended`
      : `${spellRanks(whose)}: ${how}`
  );
  return said.length
    ? `${said.join('; ')}; the next run starts all ranks anew`
    : '';
}

/** Who has a pool, in few words: of a notebook its name without its folders. */
function whose(pool: IPool): string {
  const { client, where } = pool.pool;
  const notebook = client?.notebook.split('/').pop();
  return notebook ? `in use by ${notebook}` : where;
}

/** A card that changes in place: what has the focus or is unfolded stays so. */
export class PoolCard {
  readonly node: HTMLElement;
  private readonly dot = element('span', 'sky-dot');
  private readonly title = element('h3', 'sky-title');
  private readonly spec = element('div', 'sky-spec');
  private readonly where = element('div', 'sky-where');
  private readonly doing = element('div', 'sky-doing');
  private readonly bar = element('progress', 'sky-progress');
  private readonly words = element('div', 'sky-words');
  private readonly gpus = element('div', 'sky-gpus');
  private readonly lost = element('div', 'sky-lost');
  private readonly cost = element('div', 'sky-cost');
  private readonly ranks = element('ul', 'sky-ranks');
  private readonly said = element('div', 'sky-said');
  private readonly saidText = element('div', 'sky-answer');
  private readonly buttons: Record<Action, HTMLButtonElement>;
  private readonly chips = new Map<number, HTMLElement>();
  private readonly busy = new Set<Action>();
  private isInSight = true;

  constructor(
    private pool: IPool,
    actions: IPoolActions
  ) {
    const act = (label: string, title: string, name: Action) =>
      button(label, title, () => {
        void this.act(name, label, () => actions[name](this.pool));
      });
    this.buttons = {
      interrupt: act(
        'Interrupt',
        'End the run; names and ranks stay',
        'interrupt'
      ),
      restart: act(
        'Restart',
        'New processes for all ranks, without their names',
        'restart'
      ),
      standing: act(
        'Where?',
        'Where each rank is, and who waits for whom',
        'standing'
      ),
      output: act('Output', 'The last lines of the newest run', 'output'),
      values: act('Values', 'The names that its ranks have', 'values'),
      attach: act(
        'Attach',
        'Put the line that attaches to it into the notebook',
        'attach'
      ),
      down: act(
        'Down',
        'Take the pool down: its ranks and their values are gone',
        'down'
      )
    };
    this.buttons.down.classList.add('sky-danger');
    this.ranks.setAttribute('aria-label', 'Ranks');
    this.said.setAttribute('role', 'status');
    this.said.append(
      button('×', 'Close', () => {
        this.say('');
      }),
      this.saidText
    );
    this.said.hidden = true;
    this.node = element(
      'section',
      'sky-pool',
      element('div', 'sky-head', this.dot, this.title),
      this.spec,
      this.where,
      this.doing,
      this.bar,
      this.words,
      this.gpus,
      this.lost,
      this.cost,
      this.ranks,
      element('div', 'sky-actions', ...Object.values(this.buttons)),
      this.said
    );
    this.update(pool);
  }

  /** Show a pool as it is now. */
  update(pool: IPool): void {
    this.pool = pool;
    const row = pool.pool;
    const lost = lostRanks(pool);
    const state = lost.length ? 'lost' : goesOn(pool) ? 'running' : 'idle';
    this.node.dataset['pool'] = row.id;
    this.node.dataset['state'] = state;
    this.node.setAttribute('aria-label', `Pool ${pool.handle}`);
    this.dot.title = state;
    setText(this.title, pool.handle);
    setText(this.spec, row.spec);
    setText(this.where, whose(pool));
    this.where.title = row.where;
    const unasked = pool.is_asked ? '' : (pool.progress?.headline ?? '');
    setText(this.doing, row.doing === 'idle' ? '' : row.doing || unasked);
    this.updateProgress(pool.progress);
    setText(this.lost, spellLost(row.ranks));
    this.updateCost(pool);
    if (this.isInSight) {
      this.updateRanks();
    }
    this.updateButtons();
  }

  /** The ranks of a card that nobody sees are drawn once somebody does: they may be hundreds. */
  see(isInSight: boolean): void {
    this.isInSight = isInSight;
    if (isInSight) {
      this.updateRanks();
    }
  }

  /** Show words below the pool, or none. */
  say(answer: Answer, isTrouble = false): void {
    const made =
      typeof answer === 'string' ? element('pre', '', answer) : answer;
    made.tabIndex = 0; // so that keys scroll it
    this.saidText.replaceChildren(made);
    this.said.classList.toggle('sky-trouble', isTrouble);
    this.said.hidden = answer === '';
  }

  private async act(
    name: Action,
    label: string,
    what: () => Promise<Answer>
  ): Promise<void> {
    this.busy.add(name);
    this.updateButtons();
    this.say(`${label} …`);
    try {
      this.say(await what());
    } catch (error) {
      this.say(messageOf(error), true);
    } finally {
      this.busy.delete(name);
      this.updateButtons();
    }
  }

  private updateProgress(progress: IProgress | null): void {
    const part = progress?.part ?? null;
    this.bar.hidden = part === null;
    this.bar.value = part ?? 0;
    this.bar.setAttribute('aria-label', progress?.words ?? '');
    setText(this.words, progress?.words ?? '');
    const gpus = (progress?.ranks ?? []).flatMap(rank => rank.gpu ?? []);
    const busy = gpus.flatMap(gpu => gpu.busy ?? []);
    const sum = (numbers: number[]) =>
      numbers.reduce((all, each) => all + each, 0);
    const use = busy.length
      ? `${Math.round(sum(busy) / busy.length)} % · `
      : '';
    const used = gigabytes(sum(gpus.map(gpu => gpu.used)));
    const total = gigabytes(sum(gpus.map(gpu => gpu.total)));
    const count = `${gpus.length} GPU${gpus.length > 1 ? 's' : ''}`;
    setText(
      this.gpus,
      gpus.length ? `${count} · ${use}${used} of ${total} GB` : ''
    );
  }

  private updateCost(pool: IPool): void {
    const cost = pool.pool.cost;
    const unknown = cost?.hourly === null ? ['price unknown'] : [];
    const known = cost ? spellCost(cost) : [];
    setText(this.cost, [...unknown, ...known].join(' · '));
    this.cost.classList.toggle('sky-trouble', isNearlySpent(pool));
  }

  private updateRanks(): void {
    const { ranks, run } = this.pool.pool;
    const running = new Set(run?.running ?? []);
    const figures = this.pool.progress?.ranks ?? [];
    const known = new Map(figures.map(each => [each.rank, spellFigures(each)]));
    const there = new Set(ranks.map(rank => rank.rank));
    for (const [rank, chip] of this.chips) {
      if (!there.has(rank)) {
        chip.remove();
        this.chips.delete(rank);
      }
    }
    for (const rank of ranks) {
      let chip = this.chips.get(rank.rank);
      if (!chip) {
        chip = element('li', 'sky-chip', `${rank.rank}`);
        this.chips.set(rank.rank, chip);
        this.ranks.append(chip);
      }
      const state = rank.lost || (running.has(rank.rank) ? 'running' : 'idle');
      const process = rank.process === null ? '' : `, process ${rank.process}`;
      chip.dataset['state'] = rank.lost ? 'lost' : state;
      const title = [
        `rank ${rank.rank} on node ${rank.node}: ${state}${process}`,
        ...(known.get(rank.rank) ?? [])
      ].join('\n');
      if (chip.title !== title) {
        chip.title = title;
      }
    }
    this.ranks.hidden = ranks.length === 0;
    if (ranks.length > MOST_AT_ONCE) {
      this.ranks.tabIndex = 0; // so that keys scroll it
    } else {
      this.ranks.removeAttribute('tabindex');
    }
  }

  private updateButtons(): void {
    const { pool, kernel, is_asked } = this.pool;
    const runs = goesOn(this.pool);
    const isOurs = kernel !== '';
    const isFree = pool.client === null;
    const whose = isFree
      ? 'No kernel conducts it: attach first'
      : 'Something else conducts it: do it there';
    const isDetached = pool.run?.detached ?? false;
    const whyNot = isDetached
      ? 'It runs in the background: cancel() of its handle ends it'
      : whose;
    this.allow(
      'interrupt',
      runs && !isFree && !isDetached,
      runs ? whyNot : 'Nothing runs'
    );
    this.allow('restart', isOurs, whose);
    this.allow('attach', isFree, 'It has a client already');
    this.allow(
      'down',
      isOurs || isFree,
      'Something else conducts it: end it there'
    );
    const unasked = 'Ranks on other machines are not asked from here';
    this.allow('standing', runs && is_asked, runs ? unasked : 'Nothing runs');
    this.allow('output', true, '');
    this.allow(
      'values',
      isOurs && !runs,
      runs ? 'Its names are known when the run is over' : whose
    );
  }

  private allow(name: Action, isPossible: boolean, why: string): void {
    const made = this.buttons[name];
    made.dataset['help'] ??= made.title;
    const waits = [...this.busy].filter(each => IN_KERNEL.has(each));
    const isAsked =
      this.busy.has(name) ||
      (IN_KERNEL.has(name) && waits.length > 0) ||
      // Restart and Down interrupt by themselves: a second time would end ranks.
      (name === 'interrupt' && waits.some(each => each !== 'values'));
    made.disabled = isAsked || !isPossible;
    made.title = isPossible ? made.dataset['help'] : why;
  }
}
