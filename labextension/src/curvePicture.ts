/** The curves of one metric, drawn; what stands at a step is said at the pointer, or by arrow keys. */

import type { IMetric, IScale } from './curveScale';
import { meanOf, nearest, scale } from './curveScale';
import { button, element } from './dom';
import { compact } from './words';

const SPACE = 'http://www.w3.org/2000/svg';
const [WIDTH, HEIGHT] = [440, 190];
const BOX = { left: 56, right: 428, top: 10, bottom: 160 };
const COLOURS = [
  '#2f81f7',
  '#bf5b00',
  '#2da44e',
  '#cf222e',
  '#8957e5',
  '#1b7c83',
  '#bf3989',
  '#9a6700'
];

function svg(
  tag: string,
  attributes: Record<string, string | number>,
  text = ''
): SVGElement {
  const made = document.createElementNS(SPACE, tag);
  for (const [name, value] of Object.entries(attributes)) {
    made.setAttribute(name, String(value));
  }
  made.textContent = text;
  return made;
}

const round = (value: number) => Math.round(value * 10) / 10;

/** The part that changes with each new point; the step that is looked at, and the scale, are kept. */
export class CurvePicture {
  readonly node: HTMLElement;
  private readonly picture = svg('svg', {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    role: 'img',
    tabindex: 0
  });
  private readonly said = element('div', 'sky-at');
  private readonly toggle: HTMLButtonElement;
  private readonly cursor = svg('line', {
    class: 'sky-cursor',
    y1: BOX.top,
    y2: BOX.bottom
  });
  private across: IScale = scale(0, 1, false);
  private isLog: boolean | null = null;
  private looked: number | null = null;

  constructor(private metric: IMetric) {
    this.toggle = button('log', 'A logarithmic scale', () => {
      this.isLog = this.toggle.getAttribute('aria-pressed') !== 'true';
      this.draw();
    });
    this.node = element(
      'figure',
      'sky-curve',
      element('figcaption', '', element('b', '', metric.name), this.toggle),
      this.picture,
      this.said
    );
    this.picture.addEventListener('pointermove', event => {
      const frame = this.picture.getBoundingClientRect();
      const x = ((event.clientX - frame.left) / frame.width) * WIDTH;
      this.lookAt(this.stepAt(x));
    });
    this.picture.addEventListener('pointerleave', () => {
      this.lookAt(null);
    });
    this.picture.addEventListener('blur', () => {
      this.lookAt(null);
    });
    this.picture.addEventListener('keydown', event => {
      this.pressed(event);
    });
    this.draw();
  }

  /** Show the metric as it is now. */
  update(metric: IMetric): void {
    this.metric = metric;
    this.draw();
  }

  private draw(): void {
    const { steps, at, curves, name } = this.metric;
    const values = [...at.values()].flat().map(([, value]) => value);
    const [low, high] = values.reduce(
      ([least, most], value) => [Math.min(least, value), Math.max(most, value)],
      [Infinity, -Infinity]
    );
    const canBeLog = low > 0 && high > low;
    const isLog = canBeLog && (this.isLog ?? high / low > 100);
    this.toggle.hidden = !canBeLog;
    this.toggle.setAttribute('aria-pressed', String(isLog));
    const across = scale(steps[0] ?? 0, steps[steps.length - 1] ?? 1, false);
    const up = scale(low, high, isLog);
    this.across = across;
    const x = (step: number) =>
      round(BOX.left + across.place(step) * (BOX.right - BOX.left));
    const y = (value: number) =>
      round(BOX.bottom - up.place(value) * (BOX.bottom - BOX.top));
    const path = (points: [number, number][]) =>
      points.map(([s, v], n) => `${n ? 'L' : 'M'}${x(s)} ${y(v)}`).join('');
    const mean = steps.map((step): [number, number] => [
      step,
      meanOf(at.get(step) ?? [[0, 0]])
    ]);
    const last = mean[mean.length - 1]?.[1];
    this.picture.setAttribute(
      'aria-label',
      `${name}: ${compact(last)} at the last of ${steps.length} steps; arrow keys tell each`
    );
    const lines: SVGElement[] = [];
    if (curves.size > COLOURS.length) {
      const edge = (pick: (...all: number[]) => number) =>
        steps.map((step): [number, number] => [
          step,
          pick(...(at.get(step) ?? []).map(([, value]) => value))
        ]);
      const [above, below] = [edge(Math.max), edge(Math.min).reverse()];
      const outline = `${path(above)}L${path(below).slice(1)}Z`;
      lines.push(svg('path', { class: 'sky-band', d: outline }));
    } else if (curves.size > 1) {
      [...curves].forEach(([, curve], index) => {
        const points = curve.steps.map((step, n): [number, number] => [
          step,
          curve.values[n] ?? 0
        ]);
        const stroke = COLOURS[index % COLOURS.length] ?? '';
        lines.push(svg('path', { class: 'sky-one', d: path(points), stroke }));
      });
    }
    this.picture.replaceChildren(
      ...up.marks.flatMap(value => [
        svg('path', {
          class: 'sky-grid',
          d: `M${BOX.left} ${y(value)}H${BOX.right}`
        }),
        svg(
          'text',
          { x: BOX.left - 6, y: y(value) + 4, 'text-anchor': 'end' },
          compact(value)
        )
      ]),
      ...across.marks.map(step =>
        svg(
          'text',
          { x: x(step), y: BOX.bottom + 18, 'text-anchor': 'middle' },
          compact(step)
        )
      ),
      ...lines,
      svg('path', { class: 'sky-mean', d: path(mean) }),
      this.cursor
    );
    this.lookAt(this.looked);
  }

  private stepAt(x: number): number {
    const { steps } = this.metric;
    const [first = 0, last = 1] = [steps[0], steps[steps.length - 1]];
    const part = (x - BOX.left) / (BOX.right - BOX.left);
    return nearest(steps, first + part * (last - first));
  }

  private pressed(event: KeyboardEvent): void {
    const last = this.metric.steps.length - 1;
    const now = this.looked ?? last;
    const next = {
      ArrowLeft: now - 1,
      ArrowRight: now + 1,
      Home: 0,
      End: last,
      Escape: null
    }[event.key];
    if (next !== undefined) {
      event.preventDefault();
      event.stopPropagation();
      this.lookAt(next === null ? null : Math.min(last, Math.max(0, next)));
    }
  }

  /** Say what ranks have at a step, by its index. */
  private lookAt(index: number | null): void {
    this.looked = index;
    const { steps, at, curves } = this.metric;
    const step = index === null ? undefined : steps[index];
    this.cursor.style.display = step === undefined ? 'none' : '';
    const shown = step ?? steps[steps.length - 1] ?? 0;
    const values = at.get(shown) ?? [];
    if (step !== undefined) {
      const place = this.across.place(step);
      const x = round(BOX.left + place * (BOX.right - BOX.left));
      this.cursor.setAttribute('x1', String(x));
      this.cursor.setAttribute('x2', String(x));
    }
    const numbers = values.map(([, value]) => value);
    const said: (string | Node)[] = [
      `step ${shown}: `,
      element('b', '', compact(values.length ? meanOf(values) : null))
    ];
    if (curves.size > COLOURS.length) {
      const spread = [Math.min(...numbers), Math.max(...numbers)].map(compact);
      said.push(` (${spread.join(' – ')}, ${values.length} ranks)`);
    } else if (curves.size > 1) {
      const order = [...curves.keys()];
      for (const [rank, value] of values) {
        const dot = element('span', 'sky-key', '●');
        dot.style.color = COLOURS[order.indexOf(rank) % COLOURS.length] ?? '';
        said.push(' ', dot, `${rank}: ${compact(value)}`);
      }
    }
    this.said.replaceChildren(...said);
  }
}
