/* SPDX-License-Identifier: Apache-2.0 */
// markdown.js: the Markdown that models write, as DOM nodes. A strict subset: what it does not know stays text, HTML too.
//
//   blocks   # heading, paragraph, - or 1. list, > quote, ``` code, | table |, ---
//   inline   `code`, **strong**, *emphasis*, ~~deleted~~, [text](address), addresses
//
// Links go to http and https only. Nesting is limited, and each pattern reads a line once.

import { h } from './dom.js';
import { paint } from './codepaint.js';

const DEPTH = 6; // of lists, quotes and emphasis

// ---- inline

const LINK = /^https?:\/\/[^\s<>"'`]+$/i;
const INLINE =
  /(`{1,8})(?!`)|\*\*(?=\S)|\*(?=\S)|__(?=\S)|_(?=\S)|~~(?=\S)|\[(?=[^\]\n]{1,400}\]\([^()\s]{1,2000}\))|https?:\/\/[^\s<>"'`)\]]{1,2000}|\\(?=[!-/:-@[-`{-~])/g;
const TAGS = { '**': 'strong', __: 'strong', '*': 'em', _: 'em', '~~': 'del' };

const link = (address, children) =>
  LINK.test(address) ? h('a', { href: address, target: '_blank', rel: 'noopener noreferrer nofollow' }, children) : children;

// Where the run of a mark ends, or -1. Underscores mark only whole words: snake_case is none.
function endOfRun(text, mark, from) {
  for (let at = text.indexOf(mark, from + 1); at >= 0; at = text.indexOf(mark, at + 1)) {
    if (/\s/.test(text[at - 1])) continue;
    if (mark.length === 1 && (text[at + 1] === mark || text[at - 1] === mark)) continue;
    if (mark[0] === '_' && /\w/.test(text[at + mark.length] ?? '')) continue;
    return at;
  }
  return -1;
}

// [nodes, where the text goes on], or null where the mark stands for itself.
function inlineAt(text, found, depth, missing) {
  const mark = found[0];
  const from = found.index + mark.length;
  if (mark[0] === '`') {
    const end = text.indexOf(mark, from);
    if (end < 0 || text[end + mark.length] === '`') return null;
    return [h('code', {}, text.slice(from, end).replace(/^ (.+) $/s, '$1')), end + mark.length];
  }
  if (mark === '\\') return [text[from], from + 1];
  if (mark === '[') {
    const close = text.indexOf('](', from);
    const end = text.indexOf(')', close);
    return [link(text.slice(close + 2, end), inline(text.slice(from, close), depth + 1)), end + 1];
  }
  if (mark.startsWith('http') || mark.startsWith('HTTP')) {
    const address = mark.replace(/[.,;:!?]+$/, '');
    return [link(address, address), found.index + address.length];
  }
  if (mark[0] === '_' && /\w/.test(text[found.index - 1] ?? '')) return null;
  if (missing.has(mark)) return null;
  const end = endOfRun(text, mark, from);
  if (end < 0) {
    missing.add(mark); // there is none after this place either
    return null;
  }
  return [h(TAGS[mark], {}, inline(text.slice(from, end), depth + 1)), end + mark.length];
}

export function inline(text, depth = 0) {
  if (depth > DEPTH) return [text];
  const nodes = [];
  const pattern = new RegExp(INLINE);
  const missing = new Set(); // marks without an end
  let at = 0;
  for (let found; (found = pattern.exec(text));) {
    const made = inlineAt(text, found, depth, missing);
    if (!made) continue;
    if (found.index > at) nodes.push(text.slice(at, found.index));
    nodes.push(made[0]);
    at = pattern.lastIndex = made[1];
  }
  if (at < text.length) nodes.push(text.slice(at));
  return nodes;
}

// Lines of a paragraph, with their breaks.
const lines = (list) => list.flatMap((line, i) => (i ? [h('br'), ...inline(line)] : inline(line)));

// ---- blocks

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)[^`]*$/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*$/;
const RULE = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])(?:\s+(.*)|\s*)$/;
const QUOTE = /^ {0,3}> ?(.*)$/;
const TABLE = /^ {0,3}\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$/;
const SPACES = (line) => line.length - line.trimStart().length;

async function copy(button, text) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = 'Copied';
  } catch {
    button.textContent = 'Cannot copy'; // the browser refuses it without HTTPS
  }
  setTimeout(() => (button.textContent = 'Copy'), 1500);
}

function codeBlock(language, text) {
  const button = h('button', { type: 'button', class: 'quiet small', onclick: () => copy(button, text) }, 'Copy');
  return h(
    'figure',
    { class: 'code' },
    h('figcaption', {}, h('span', {}, language || 'text'), button),
    h('pre', { tabindex: '0', 'aria-label': `Code${language ? `, ${language}` : ''}` }, h('code', {}, paint(text, language))),
  );
}

function takeFence(source, i, found) {
  const close = new RegExp(`^ {0,3}${found[1][0]}{${found[1].length},}\\s*$`);
  let end = i + 1;
  while (end < source.length && !close.test(source[end])) end++;
  return [codeBlock(found[2], source.slice(i + 1, end).join('\n')), end + 1];
}

// Cells of a line; \| is no border.
const cells = (line) =>
  line
    .trim()
    .replace(/^\||(?<!\\)\|$/g, '')
    .split(/(?<!\\)\|/)
    .map((cell) => cell.trim().replace(/\\\|/g, '|'));

function takeTable(source, i) {
  const sides = cells(source[i + 1]).map((cell) => (cell.endsWith(':') ? (cell.startsWith(':') ? 'middle' : 'number') : null));
  const row = (line, tag) => {
    const found = cells(line);
    return h('tr', {}, sides.map((side, k) => h(tag, { class: side, scope: tag === 'th' ? 'col' : null }, inline(found[k] ?? ''))));
  };
  let end = i + 2;
  while (end < source.length && source[end].includes('|') && source[end].trim()) end++;
  const body = source.slice(i + 2, end).map((line) => row(line, 'td'));
  const table = h('table', {}, h('thead', {}, row(source[i], 'th')), h('tbody', {}, body));
  return [h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Table' }, table), end];
}

function takeList(source, i, found, depth) {
  const ordered = /\d/.test(found[2]);
  const base = found[1].length;
  const items = [];
  let end = i;
  while (end < source.length) {
    const item = ITEM.exec(source[end]);
    if (!item || RULE.test(source[end]) || Math.abs(item[1].length - base) > 1 || /\d/.test(item[2]) !== ordered) break;
    const body = [item[3] ?? ''];
    const inner = base + item[2].length + 1;
    for (end++; end < source.length; end++) {
      const line = source[end];
      if (line.trim() === '') {
        if (SPACES(source[end + 1] ?? '') < Math.min(inner, base + 2) || !(source[end + 1] ?? '').trim()) break;
      } else if (SPACES(line) < base + 2 && (ITEM.test(line) || FENCE.test(line) || HEADING.test(line) || source[end - 1].trim() === '')) break;
      body.push(line.slice(Math.min(SPACES(line), inner)));
    }
    items.push(h('li', {}, blocks(body, depth + 1, true)));
    if (source[end]?.trim() === '' && ITEM.test(source[end + 1] ?? '')) end++;
  }
  return [h(ordered ? 'ol' : 'ul', { start: ordered && Number.parseInt(found[2], 10) !== 1 ? Number.parseInt(found[2], 10) : null }, items), end];
}

function takeQuote(source, i, depth) {
  let end = i;
  while (end < source.length && QUOTE.test(source[end])) end++;
  return [h('blockquote', {}, blocks(source.slice(i, end).map((line) => QUOTE.exec(line)[1]), depth + 1)), end];
}

const begins = (source, i) =>
  FENCE.test(source[i]) || HEADING.test(source[i]) || RULE.test(source[i]) || QUOTE.test(source[i]) || ITEM.test(source[i]) || isTable(source, i);
const isTable = (source, i) => source[i].includes('|') && TABLE.test(source[i + 1] ?? '') && source[i + 1].includes('-');

// tight: a first paragraph is no element of its own, in an item of a list.
function blocks(source, depth, tight) {
  const nodes = [];
  for (let i = 0; i < source.length;) {
    let found;
    let made;
    if (source[i].trim() === '') made = [null, i + 1];
    else if ((found = FENCE.exec(source[i]))) made = takeFence(source, i, found);
    else if ((found = HEADING.exec(source[i]))) made = [h(`h${Math.min(found[1].length + 2, 6)}`, {}, inline(found[2])), i + 1];
    else if (RULE.test(source[i])) made = [h('hr'), i + 1];
    else if (depth < DEPTH && QUOTE.test(source[i])) made = takeQuote(source, i, depth);
    else if (depth < DEPTH && (found = ITEM.exec(source[i]))) made = takeList(source, i, found, depth);
    else if (isTable(source, i)) made = takeTable(source, i);
    else {
      let end = i + 1;
      while (end < source.length && source[end].trim() && !begins(source, end)) end++;
      const text = lines(source.slice(i, end).map((line) => line.trim()));
      made = [tight && nodes.length === 0 ? h('span', {}, text) : h('p', {}, text), end];
    }
    if (made[0]) nodes.push(made[0]);
    i = made[1];
  }
  return nodes;
}

// The nodes of a text.
export const markdown = (text) => blocks(text.replace(/\r\n?/g, '\n').replace(/\t/g, '    ').split('\n'), 0);
