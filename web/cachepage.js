/* SPDX-License-Identifier: Apache-2.0 */
// cachepage.js: what the server keeps, as a treemap by bytes and as a table; pin and remove.

import { byId, h, put } from './dom.js';
import { ask, problemWords } from './api.js';
import { budgetBar } from './budget.js';
import { drawTreemap } from './treemap.js';
import { ago, bytes, count, duration, shortName, tokens } from './words.js';

const PATH = '/v1/cache/entries';
const MOST = 1000; // entries that are asked for, the largest
const MOST_TILES = 150; // of the treemap; the rest is one tile
const PAGE = 25;
const MAP_HEIGHT = 260;

let counts = null; // totals from the server
let entries = [];
let hasMore = false;
let chosen = null; // a key
let problem = '';
let refused = ''; // why there is nothing to see
let sortBy = 'bytes';
let descending = true;
let filter = '';
let kind = '';
let page = 0;

const tierOf = (entry) => (entry.tiers.includes('ram') ? 'ram' : 'disk');
const nameOf = (entry) => entry.label || `${entry.kind} ${entry.key.slice(0, 8)}`;
const costOf = (entry) => (entry.cost_ms > 0 ? duration(entry.cost_ms) : '–');
const pinWords = (entry) => (entry.pinned ? ', pinned' : '');

// ---- asking

async function load() {
  problem = refused = '';
  try {
    counts = await ask('GET', '/v1/cache');
    const list = await ask('GET', `${PATH}?limit=${MOST}&sort=bytes`);
    entries = list.data;
    hasMore = list.has_more;
  } catch (error) {
    entries = [];
    if (error.status === 403) refused = 'This API key lacks the right “operate”, which the cache page requires.';
    else if (error.status === 404) refused = 'This server does not list its cache entries.';
    else problem = problemWords(error);
  }
  if (!entries.some((entry) => entry.key === chosen)) chosen = null;
  draw();
}

async function change(method, entry, json) {
  problem = '';
  try {
    await ask(method, `${PATH}/${entry.key}`, { json });
    await load();
  } catch (error) {
    problem = problemWords(error);
    draw();
  }
}

async function setPin(entry) {
  await change('PATCH', entry, { pinned: !entry.pinned });
  byId('cache-table')?.querySelector(`[data-key="${entry.key}"] .pin-button`)?.focus(); // the row was rendered again
}

function remove(entry) {
  if (confirm(`Remove the KV of '${nameOf(entry)}' (${tokens(entry.tokens)}, ${bytes(entry.bytes)})?`)) change('DELETE', entry);
}

// ---- the table

const COLUMNS = [
  { id: 'label', name: 'Name', of: nameOf, text: true },
  { id: 'kind', name: 'Kind', of: (e) => e.kind, text: true },
  { id: 'tiers', name: 'Tiers', of: (e) => e.tiers.join(' '), text: true },
  { id: 'tokens', name: 'Tokens', of: (e) => e.tokens, show: (e) => count(e.tokens) },
  { id: 'bytes', name: 'Bytes', of: (e) => e.bytes, show: (e) => bytes(e.bytes) },
  { id: 'uses', name: 'Uses', of: (e) => e.uses, show: (e) => count(e.uses) },
  { id: 'last_use', name: 'Last use', of: (e) => e.last_use ?? 0, show: (e) => ago(e.last_use) },
  { id: 'cost_ms', name: 'Cost', of: (e) => e.cost_ms ?? 0, show: costOf },
];

function visibleEntries() {
  const wanted = filter.toLowerCase();
  const column = COLUMNS.find((c) => c.id === sortBy);
  const way = descending ? -1 : 1;
  return entries
    .filter((e) => (!kind || e.kind === kind) && `${nameOf(e)} ${e.key}`.toLowerCase().includes(wanted))
    .sort((a, b) => {
      const [x, y] = [column.of(a), column.of(b)];
      return way * (column.text ? x.localeCompare(y) : x - y) || a.key.localeCompare(b.key);
    });
}

function sort(column) {
  if (sortBy === column.id) descending = !descending;
  else [sortBy, descending] = [column.id, !column.text];
  page = 0;
  drawTable();
  byId('cache-table').querySelector(`[data-column="${column.id}"]`).focus();
}

function head(column) {
  const active = column.id === sortBy;
  return h(
    'th',
    { scope: 'col', class: column.text ? null : 'number', 'aria-sort': active ? (descending ? 'descending' : 'ascending') : null },
    h(
      'button',
      { type: 'button', class: 'sort', 'data-column': column.id, onclick: () => sort(column) },
      column.name,
      h('span', { 'aria-hidden': 'true' }, active ? (descending ? ' ↓' : ' ↑') : ''),
    ),
  );
}

function cell(column, entry) {
  if (column.id === 'label') {
    return h(
      'th',
      { scope: 'row' },
      h('span', { class: 'entry-name', title: entry.key }, nameOf(entry)),
      entry.pinned && h('span', { class: 'pinned' }, 'pinned'),
    );
  }
  if (column.id === 'tiers')
    return h(
      'td',
      {},
      entry.tiers.map((tier) => h('span', { class: `tier ${tier}` }, tier)),
    );
  return h('td', { class: column.text ? null : 'number' }, column.show ? column.show(entry) : column.of(entry));
}

function row(entry) {
  return h(
    'tr',
    { class: entry.key === chosen ? 'chosen' : null, 'data-key': entry.key },
    COLUMNS.map((column) => cell(column, entry)),
    h(
      'td',
      { class: 'actions' },
      entry.kind !== 'text' &&
        h(
          'button',
          {
            type: 'button',
            class: 'quiet small pin-button',
            'aria-pressed': String(Boolean(entry.pinned)),
            'aria-label': `Pin ${nameOf(entry)}`,
            onclick: () => setPin(entry),
          },
          entry.pinned ? 'Unpin' : 'Pin',
        ),
      h(
        'button',
        { type: 'button', class: 'quiet small', 'aria-label': `Remove ${nameOf(entry)}`, onclick: () => remove(entry) },
        'Remove',
      ),
    ),
  );
}

function pager(n) {
  const last = Math.max(Math.ceil(n / PAGE) - 1, 0);
  const go = (to) => {
    page = to;
    drawTable();
  };
  return h(
    'div',
    { class: 'bar pager' },
    h('button', { type: 'button', class: 'quiet small', disabled: page === 0, onclick: () => go(page - 1) }, 'Back'),
    h(
      'span',
      { class: 'soft' },
      `page ${page + 1} of ${last + 1}, ${count(n)} of ${count(entries.length)} entries${hasMore ? ', and more on the server' : ''}`,
    ),
    h('button', { type: 'button', class: 'quiet small', disabled: page >= last, onclick: () => go(page + 1) }, 'Next'),
  );
}

function drawTable() {
  const visible = visibleEntries();
  page = Math.min(page, Math.max(Math.ceil(visible.length / PAGE) - 1, 0));
  put(
    byId('cache-table'),
    h(
      'div',
      { class: 'scroll', role: 'region', 'aria-label': 'Cache entries', tabindex: '0' },
      h(
        'table',
        {},
        h('thead', {}, h('tr', {}, COLUMNS.map(head), h('th', { scope: 'col' }, h('span', { class: 'unseen' }, 'Actions')))),
        h('tbody', {}, visible.slice(page * PAGE, (page + 1) * PAGE).map(row)),
      ),
    ),
    visible.length === 0
      ? h('p', { class: 'soft' }, entries.length ? 'No entry matches the filter.' : 'The cache is empty.')
      : pager(visible.length),
  );
}

// ---- the map

function choose(entry) {
  chosen = chosen === entry.key ? null : entry.key;
  filter = kind = '';
  page = Math.max(Math.floor(visibleEntries().findIndex((e) => e.key === entry.key) / PAGE), 0);
  draw();
  byId('cache-map').querySelector(`[data-key="${entry.key}"]`)?.focus();
  byId('cache-table').querySelector('tr.chosen')?.scrollIntoView({ block: 'nearest' });
}

function drawMap() {
  const sorted = entries.filter((e) => e.bytes > 0).sort((a, b) => b.bytes - a.bytes);
  const shown = sorted.slice(0, MOST_TILES);
  const rest = sorted.slice(MOST_TILES);
  const items = shown.map((entry) => ({
    size: entry.bytes,
    label: nameOf(entry),
    short: shortName(nameOf(entry)),
    kind: tierOf(entry),
    chosen: entry.key === chosen,
    pinned: entry.pinned,
    key: entry.key,
    words: `${nameOf(entry)}: ${bytes(entry.bytes)}, ${tokens(entry.tokens)}, in ${entry.tiers.join(' and ')}${pinWords(entry)}`,
    choose: () => choose(entry),
  }));
  if (rest.length) {
    const size = rest.reduce((sum, e) => sum + e.bytes, 0);
    items.push({
      size,
      label: `${count(rest.length)} others`,
      short: count(rest.length),
      kind: 'rest',
      words: `${count(rest.length)} others: ${bytes(size)}`,
      choose: () => {},
    });
    items.sort((a, b) => b.size - a.size);
  }
  const width = Math.max(byId('cache-map').clientWidth, 240);
  const map = items.length ? drawTreemap(items, width, MAP_HEIGHT, 'Cache contents by size. Use the arrow keys to move between entries.') : '';
  put(byId('cache-map'), map);
}

// ---- the view

function budgets() {
  if (!counts) return null;
  const { ram, disk } = counts;
  return h(
    'div',
    { class: 'budgets' },
    budgetBar('RAM', ram.bytes, ram.budget_bytes, 'ram', `${count(ram.spans)} spans`),
    disk.budget_bytes > 0 ? budgetBar('Disk', disk.bytes, disk.budget_bytes, 'disk', `${count(disk.records)} records`) : null,
  );
}

function tools() {
  const field = h('input', { type: 'search', id: 'cache-filter', placeholder: 'Name or key', 'aria-label': 'Filter by name or key' });
  field.value = filter;
  field.addEventListener('input', () => {
    filter = field.value;
    page = 0;
    drawTable();
  });
  const kinds = h(
    'select',
    { 'aria-label': 'Kind' },
    h('option', { value: '' }, 'all kinds'),
    h('option', { value: 'module' }, 'modules'),
    h('option', { value: 'text' }, 'texts'),
  );
  kinds.value = kind;
  kinds.addEventListener('change', () => {
    kind = kinds.value;
    page = 0;
    drawTable();
  });
  return h(
    'div',
    { class: 'bar' },
    field,
    kinds,
    h('span', { class: 'push' }),
    h('button', { type: 'button', id: 'cache-reload', onclick: load }, 'Reload'),
  );
}

function draw() {
  const parts = refused ? [h('p', { class: 'note' }, refused)] : [h('div', { id: 'cache-map' }), tools(), h('div', { id: 'cache-table' })];
  put(
    byId('view-cache'),
    h('div', { class: 'bar' }, h('h2', {}, 'Cache contents')),
    budgets(),
    problem && h('p', { class: 'wrong', role: 'alert' }, problem),
    parts,
  );
  if (refused) return;
  drawMap();
  drawTable();
}

export const showCache = load;
