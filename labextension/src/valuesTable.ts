/** The values on the ranks of a pool, as `%sky vars` prints them, each with a button that pulls it. */

import { button, element, tableHead } from './dom';
import { messageOf } from './words';

const HEADS = ['name', 'ranks', 'type', 'size', 'bound by'];

/** The rows of a table of `%sky vars`: its cells stand below its heads; none where it has no table. */
function rowsOf(printed: string): string[][] {
  const lines = printed.split('\n');
  const at = lines.findIndex(line => line.startsWith('name '));
  const head = lines[at] ?? '';
  const places = HEADS.map(name => head.indexOf(name));
  if (at < 0 || places.some(place => place < 0)) {
    return [];
  }
  return lines
    .slice(at + 1)
    .filter(line => line.trim())
    .map(line =>
      places.map((from, index) => line.slice(from, places[index + 1]).trim())
    );
}

/** The table; `pull` brings a name into the notebook. */
export function valuesTable(
  printed: string,
  pull: (name: string) => Promise<string>
): HTMLElement {
  const rows = rowsOf(printed);
  if (!rows.length) {
    return element('div', 'sky-note', printed || 'No names on the ranks.');
  }
  const said = element('div', 'sky-note');
  said.setAttribute('role', 'status');
  const body = rows.map(cells => {
    const [name = ''] = cells;
    const get = button('pull', `Bring ${name} into the notebook`, () => {
      get.disabled = true;
      said.textContent = `Bringing ${name} …`;
      void pull(name)
        .catch(messageOf)
        .then(words => {
          get.disabled = false;
          said.textContent = words;
        });
    });
    return element(
      'tr',
      '',
      ...cells.map(text => element('td', '', text)),
      element('td', '', get)
    );
  });
  return element(
    'div',
    'sky-values',
    element(
      'table',
      '',
      tableHead([...HEADS, '']),
      element('tbody', '', ...body)
    ),
    said
  );
}
