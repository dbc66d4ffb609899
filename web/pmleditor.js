/* SPDX-License-Identifier: Apache-2.0 */
// pmleditor.js: a text area for PML with line numbers, light colours, and the server's error at its place.
//
//   gutter | ink: the same text in colours, drawn below it
//   1      | text area: transparent ink of its own, so caret, selection, undo and screen readers are the browser's
//
// Lines are not wrapped, so all three have the same geometry; the text area scrolls and the others follow. Tab leaves it, as in any form.

import { h } from './dom.js';

const MOST_COLOURED = 200000; // characters; longer texts stay plain
// What has a colour. Attributes and values count inside of tags alone.
const KINDS = [
  ['remark', /<!--[\s\S]*?(?:-->|$)/],
  ['', /<!\[CDATA\[[\s\S]*?(?:\]\]>|$)/],
  ['tag', /<\/?[^\s<>/="']*/],
  ['attribute', /[^\s<>/="']+(?=\s*=)/],
  ['value', /"[^"<]*"?|'[^'<]*'?/],
  ['end', /\/?>/],
  ['entity', /&[^;\s<&]*;?/],
];
const PIECES = new RegExp(KINDS.map(([, pattern]) => `(${pattern.source})`).join('|'), 'g');

// [kind or '', text] pieces.
function colour(text) {
  const pieces = [];
  let at = 0;
  let inTag = false;
  for (const match of text.matchAll(PIECES)) {
    const [kind] = KINDS[match.findIndex((part, i) => i > 0 && part !== undefined) - 1];
    if ((kind === 'attribute' || kind === 'value') && !inTag) continue;
    if (kind === 'tag') inTag = match[0].length > 1;
    if (kind === 'end') inTag = false;
    if (match.index > at) pieces.push(['', text.slice(at, match.index)]);
    pieces.push([kind, match[0]]);
    at = match.index + match[0].length;
  }
  pieces.push(['', text.slice(at)]);
  return pieces;
}

// The server counts columns in bytes, from 1.
function indexOf(text, line, column) {
  const lines = text.split('\n');
  let at = 0;
  for (let i = 0; i < Math.min(line - 1, lines.length - 1); i++) at += lines[i].length + 1;
  let left = column - 1;
  for (const character of lines[Math.min(line, lines.length) - 1]) {
    if (left <= 0) break;
    left -= new TextEncoder().encode(character).length;
    at += character.length;
  }
  return at;
}

// "cities.xml:3:7: what" -> {line, column, words}; null where the message names no place.
export function placeOf(message) {
  const match = /^[^\s:]*:(\d+):(\d+): ([\s\S]*)$/.exec(message);
  return match && { line: Number(match[1]), column: Number(match[2]), words: match[3] };
}

export class PmlEditor {
  // id: of the text area. onSubmit: Ctrl+Enter. onChange: after the reader has changed something.
  constructor(id, label, { rows, onSubmit, onChange }) {
    this.ink = h('pre', { class: 'ink', 'aria-hidden': 'true' });
    this.gutter = h('div', { class: 'gutter', 'aria-hidden': 'true' });
    this.area = h('textarea', {
      id,
      rows,
      wrap: 'off',
      spellcheck: 'false',
      autocapitalize: 'off',
      autocomplete: 'off',
      'aria-label': label,
      'aria-describedby': `${id}-problem`,
    });
    this.problem = h('p', { class: 'problem', id: `${id}-problem`, role: 'alert' });
    this.place = null;
    this.node = h(
      'div',
      { class: 'editor-frame' },
      h('div', { class: 'editor' }, this.gutter, h('div', { class: 'sheet' }, this.ink, this.area)),
      this.problem,
    );
    this.area.addEventListener('scroll', () => this.follow());
    this.area.addEventListener('input', () => {
      this.setProblem(null);
      onChange?.();
    });
    this.area.addEventListener('keydown', (event) => this.onKey(event, onSubmit));
    this.draw();
  }

  get value() {
    return this.area.value;
  }

  set value(text) {
    this.area.value = text;
    this.setProblem(null);
  }

  // error: message of the server, or null.
  setProblem(message) {
    this.place = message ? placeOf(message) : null;
    this.area.toggleAttribute('aria-invalid', Boolean(message));
    this.problem.replaceChildren();
    if (this.place) {
      const { line, column, words } = this.place;
      this.problem.append(
        h('button', { type: 'button', class: 'place', onclick: () => this.goTo(line, column) }, `line ${line}, column ${column}`),
        ` ${words}`,
      );
    } else if (message) this.problem.append(message);
    this.draw();
  }

  goTo(line, column) {
    const at = indexOf(this.value, line, column);
    this.area.focus();
    this.area.setSelectionRange(at, at);
    const height = parseFloat(getComputedStyle(this.area).lineHeight);
    this.area.scrollTop = Math.max((line - 3) * height, 0);
    this.area.scrollLeft = 0;
    this.follow();
  }

  // Puts text where the caret is; undo takes it back.
  insert(text) {
    this.area.focus();
    this.area.setRangeText(text, this.area.selectionStart, this.area.selectionEnd, 'end');
    this.area.dispatchEvent(new Event('input'));
  }

  onKey(event, onSubmit) {
    if (event.key !== 'Enter') return;
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      onSubmit?.();
    } else if (!event.shiftKey && !event.isComposing) {
      const before = this.value.slice(0, this.area.selectionStart);
      const indent = /(?:^|\n)([ \t]*)[^\n]*$/.exec(before)[1];
      if (!indent) return;
      event.preventDefault();
      this.insert(`\n${indent}`);
    }
  }

  follow() {
    this.ink.style.transform = `translate(${-this.area.scrollLeft}px, ${-this.area.scrollTop}px)`;
    this.gutter.style.transform = `translateY(${-this.area.scrollTop}px)`;
  }

  draw() {
    const text = this.value;
    const lines = text.split('\n').length;
    const at = this.place ? indexOf(text, this.place.line, this.place.column) : -1;
    this.gutter.replaceChildren(
      ...Array.from({ length: lines }, (_, i) => h('span', { class: this.place?.line === i + 1 ? 'wrong' : null }, String(i + 1))),
    );
    this.ink.replaceChildren(...this.pieces(text, at), '\n');
    this.follow();
  }

  // The character at `at` is marked.
  pieces(text, at) {
    const nodes = [];
    let begin = 0;
    for (const [kind, piece] of text.length > MOST_COLOURED ? [['', text]] : colour(text)) {
      const split = at - begin;
      const parts =
        split >= 0 && split < piece.length ? [piece.slice(0, split), piece.slice(split, split + 1), piece.slice(split + 1)] : [piece];
      parts.forEach((part, i) => nodes.push(h('span', { class: [kind, i === 1 && 'here'].filter(Boolean).join(' ') || null }, part)));
      begin += piece.length;
    }
    return nodes;
  }
}
