/* SPDX-License-Identifier: Apache-2.0 */
// dom.js: making elements. Text becomes text nodes, never markup.

const SVG = 'http://www.w3.org/2000/svg';

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? '' : value);
  }
  node.append(...there(children));
  return node;
}

const there = (children) => children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false && c !== '');

// h('button', {class: 'strong', onclick: f}, 'Save'): an element; attributes that are false or missing are left out.
export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
// The same for SVG.
export const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

// Makes these the children of a node, those that are there.
export const put = (node, ...children) => node.replaceChildren(...there(children));

export const byId = (id) => document.getElementById(id);

// One of a group takes part in the order of Tab; arrow keys go from one to the next.
export function rove(nodes, onFocus) {
  nodes.forEach((node, i) => {
    node.setAttribute('tabindex', i === 0 ? '0' : '-1');
    node.addEventListener('focus', () => {
      nodes.forEach((other) => other.setAttribute('tabindex', other === node ? '0' : '-1'));
      onFocus?.(i);
    });
    node.addEventListener('keydown', (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      const to = event.key === 'Home' ? 0 : event.key === 'End' ? nodes.length - 1 : step ? i + step : -1;
      if (to < 0 || to >= nodes.length) return;
      event.preventDefault();
      nodes[to].focus();
    });
  });
}
