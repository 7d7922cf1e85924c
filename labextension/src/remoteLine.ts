/** The `%%sky_remote` line of a cell: text, so that it works in every front end and in git. */

export const MAGIC = '%%sky_remote';
const LINE = /^%%sky_remote(?:[ \t][^\n]*)?(?:\n|$)/;

/** A change of a text: what stands from `start` to `end` becomes `text`. */
export interface IEdit {
  start: number;
  end: number;
  text: string;
}

/** Whether a cell runs on a pool. */
export function isRemote(source: string): boolean {
  return LINE.test(source);
}

/** The line of such a cell with its end; empty if it has none. */
export function remoteLine(source: string): string {
  return LINE.exec(source)?.[0] ?? '';
}

/** The edit that takes the line out, or puts `line` in. */
export function toggled(source: string, line = `${MAGIC}\n`): IEdit {
  const present = remoteLine(source);
  return present
    ? { start: 0, end: present.length, text: '' }
    : { start: 0, end: 0, text: line };
}

/** An option as it stands between blanks: name=value, --name=value or --name value. */
function optionOf(name: string): RegExp {
  return new RegExp(
    `[ \\t]+(?:${name}=|--${name}[= ])((?:"[^"]*"|'[^']*'|\\S)*)`,
    'g'
  );
}

/** The value of an option as it is written, without quotes around it; empty where the line does not have it. */
export function valueOf(line: string, name: string): string {
  const written = optionOf(name).exec(line)?.[1] ?? '';
  return written.replace(/^(["'])(.*)\1$/, '$2');
}

/** The line with an option set to a value, or without it; other options stay as they are. */
export function withOption(line: string, name: string, value: string): string {
  const end = line.endsWith('\n') ? '\n' : '';
  const bare = line.replace(/\n$/, '').replace(optionOf(name), '');
  return `${bare}${value ? ` ${name}=${value}` : ''}${end}`;
}
