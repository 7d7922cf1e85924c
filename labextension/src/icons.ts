/** The icon of the panel and of the cell's button: four ranks. */

import { LabIcon } from '@jupyterlab/ui-components';

const square = (x: number, y: number) =>
  `<rect x="${x}" y="${y}" width="7" height="7" rx="1.5"/>`;

export const poolsIcon = new LabIcon({
  name: 'skyward-nb:pools',
  svgstr: `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 22 22">
<g class="jp-icon3 jp-icon-selectable" fill="#616161">${square(3, 3)}${square(12, 3)}${square(3, 12)}${square(12, 12)}</g></svg>`
});
