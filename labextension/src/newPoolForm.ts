/** A form for a new pool. It writes a line, which a person reads, changes and runs. */

import { element } from './dom';
import { messageOf } from './words';

const FRAMEWORKS = [
  '',
  'auto',
  'torch',
  'jax',
  'tensorflow',
  'huggingface',
  'keras:jax',
  'keras:torch'
];

/** The line that starts a pool of these options. */
function upLine(options: Record<string, string>): string {
  const words = Object.entries(options)
    .filter(([, value]) => value.trim() !== '')
    .map(([name, value]) => {
      const text = value.trim();
      return `${name}=${/\s/.test(text) ? `"${text}"` : text}`;
    });
  return ['%sky up', ...words].join(' ');
}

/** The form, folded; `offer` puts the line where a person can run it. */
export function newPoolForm(
  offer: (line: string) => Promise<string>
): HTMLElement {
  const inputs: Record<string, HTMLInputElement | HTMLSelectElement> = {
    pool: textInput('default'),
    nodes: numberInput(),
    ranks_per_node: numberInput(),
    framework: choice(FRAMEWORKS),
    accelerator: textInput('H100:8'),
    hosts: textInput('gpu1,gpu2')
  };
  const line = element('code', 'sky-line');
  const said = element('div', 'sky-form-said');
  said.setAttribute('role', 'status');
  const spell = () =>
    upLine(
      Object.fromEntries(
        Object.entries(inputs).map(([name, at]) => [name, at.value])
      )
    );
  const rows = Object.entries(inputs).map(([name, input]) =>
    element('label', 'sky-field', element('span', '', name), input)
  );
  const submit = element('button', 'sky-button', 'Put into the notebook');
  submit.type = 'submit';
  const form = element('form', 'sky-form', ...rows, line, submit, said);
  const draw = () => {
    line.textContent = spell();
    said.textContent = '';
  };
  form.addEventListener('input', draw);
  form.addEventListener('submit', event => {
    event.preventDefault();
    void offer(spell()).then(
      text => (said.textContent = text),
      (error: unknown) => (said.textContent = messageOf(error))
    );
  });
  draw();
  return element(
    'details',
    'sky-new',
    element('summary', '', 'New pool'),
    form
  );
}

function textInput(hint: string): HTMLInputElement {
  const made = element('input', 'sky-input');
  made.type = 'text';
  made.placeholder = hint;
  made.spellcheck = false;
  return made;
}

function numberInput(): HTMLInputElement {
  const made = element('input', 'sky-input');
  made.type = 'number';
  made.min = '1';
  return made;
}

function choice(values: string[]): HTMLSelectElement {
  const made = element('select', 'sky-input');
  made.append(...values.map(value => new Option(value || 'none', value)));
  return made;
}
