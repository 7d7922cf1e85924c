/** Elements by hand: text is always text, so nothing that a rank or a file says is ever markup. */

/** An element of a class, with text or children. */
export function element<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  className = '',
  ...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  if (className) {
    made.className = className;
  }
  made.append(...children);
  return made;
}

/** A button that says what it does, and why. */
export function button(
  label: string,
  title: string,
  onClick: (event: MouseEvent) => void
): HTMLButtonElement {
  const made = element('button', 'sky-button', label);
  made.type = 'button';
  made.title = title;
  made.addEventListener('click', onClick);
  return made;
}

/** The head of a table with columns of these titles. */
export function tableHead(titles: string[]): HTMLElement {
  const cells = titles.map(title => {
    const made = element('th', '', title);
    made.scope = 'col';
    return made;
  });
  return element('thead', '', element('tr', '', ...cells));
}

/** Set a text only where it changed: what a person has selected stays selected. */
export function setText(node: HTMLElement, text: string): void {
  if (node.textContent !== text) {
    node.textContent = text;
  }
  node.hidden = text === '';
}
