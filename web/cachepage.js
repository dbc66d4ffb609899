/* SPDX-License-Identifier: Apache-2.0 */
// cachepage.js: the cache's entries, as a treemap of groups and as a table of the entries in the open group; pin and remove.

import { byId, h, put } from './dom.js';
import { ask, problemWords } from './api.js';
import { budgetBar } from './budget.js';
import { entriesOf, groupsAlong, groupsOf, isGroup, newGroup, restOf } from './cachegroups.js';
import { listModels, modelChooser } from './models.js';
import { drawTreemap, fitting } from './treemap.js';
import { ago, bytes, count, duration, documentName, shortName, tokens } from './words.js';

const PATH = '/v1/cache/entries';
const BATCH = 1000; // entries of a request
const MOST = 20000; // entries that are asked for in the order of keys, if there are more than a batch
const MOST_INNER = 60; // items that a group shows of itself
const PAGE = 25;
const MAP_HEIGHT = 300;

let counts = null; // totals from the server
let entries = [];
let hasMore = false;
let root = newGroup('', '');
let path = []; // ids of the open groups
let models = []; // names, if there are several
let model = ''; // the chosen one
let chosen = null; // a key
let problem = '';
let refused = ''; // why there is nothing to see
let sortBy = 'bytes';
let descending = true;
let filter = '';
let kind = '';
let page = 0;

const tierOf = (entry) => (entry.tiers.includes('ram') ? 'ram' : 'disk');
const nameOf = (entry) => (entry.label ? entry.label.split('/').map(documentName).join('/') : `${entry.kind} ${entry.key.slice(0, 8)}`);
const costOf = (entry) => (entry.cost_ms > 0 ? duration(entry.cost_ms) : '–');
const pinWords = (entry) => (entry.pinned ? ', pinned' : '');

// ---- asking

const query = (words) => `?${[...words, ...(model ? [`model=${encodeURIComponent(model)}`] : [])].join('&')}`;

// The largest entries; where there are more than a batch, all in the order of keys, up to a limit.
async function listEntries() {
  const largest = await ask('GET', PATH + query([`limit=${BATCH}`, 'sort=bytes']));
  const found = new Map(largest.data.map((entry) => [entry.key, entry]));
  let list = largest;
  for (let asked = 0, after = ''; list.has_more && asked < MOST; asked += BATCH) {
    list = await ask('GET', PATH + query([`limit=${BATCH}`, ...(after ? [`after=${after}`] : [])]));
    for (const entry of list.data) found.set(entry.key, entry);
    after = list.data.at(-1)?.key;
    tellLoading(found.size);
  }
  hasMore = list.has_more;
  return [...found.values()];
}

function tellLoading(n) {
  const words = byId('cache-words');
  if (words) words.textContent = `loading, ${count(n)} entries`;
}

async function load() {
  problem = refused = '';
  try {
    models = await listModels();
    if (!models.includes(model)) model = '';
    counts = await ask('GET', `/v1/cache${query([])}`);
    entries = await listEntries();
  } catch (error) {
    entries = [];
    if (error.status === 403) refused = 'This API key lacks the right “operate”, which the cache page requires.';
    else if (error.status === 404) refused = 'This server does not list its cache entries.';
    else problem = problemWords(error);
  }
  arrange();
}

function arrange() {
  root = groupsOf(entries, Date.now() / 1000);
  if (!entries.some((entry) => entry.key === chosen)) chosen = null;
  draw();
}

// An entry is changed on the server, and then here.
async function change(method, entry, json) {
  problem = '';
  try {
    await ask(method, `${PATH}/${entry.key}${query([])}`, { json });
    if (method === 'DELETE') entries = entries.filter((other) => other !== entry);
    else entry.pinned = json.pinned;
    counts = await ask('GET', `/v1/cache${query([])}`);
  } catch (error) {
    problem = problemWords(error);
  }
  arrange();
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

const collator = new Intl.Collator('en');
const here = () => groupsAlong(root, path);

// Those in the open group that match the filter, in the table's order.
function visibleEntries() {
  const wanted = filter.toLowerCase();
  const column = COLUMNS.find((c) => c.id === sortBy);
  const way = descending ? -1 : 1;
  return entriesOf(here().at(-1))
    .filter((e) => (!kind || e.kind === kind) && (!wanted || `${nameOf(e)} ${e.label} ${e.key}`.toLowerCase().includes(wanted)))
    .map((e) => [column.of(e), e])
    .sort(([x, a], [y, b]) => way * (column.text ? collator.compare(x, y) : x - y) || (a.key < b.key ? -1 : 1))
    .map(([, e]) => e);
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
      h('span', { class: 'entry-name', title: entry.label ? `${entry.label}, ${entry.key}` : entry.key }, nameOf(entry)),
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
      `page ${page + 1} of ${last + 1}, ${count(n)} of ${count(entries.length)} entries${hasMore ? ', more on the server' : ''}`,
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
      ? h('p', { class: 'soft' }, entries.length ? 'No entry matches the filter.' : problem ? '' : 'The cache is empty: send a prompt, or save a schema.')
      : pager(visible.length),
  );
}

// ---- the map

const tileOf = (id) => byId('cache-map').querySelector(`[data-id="${CSS.escape(id)}"]`);

function choose(entry) {
  chosen = chosen === entry.key ? null : entry.key;
  filter = kind = '';
  page = Math.max(Math.floor(visibleEntries().findIndex((e) => e.key === entry.key) / PAGE), 0);
  draw();
  tileOf(entry.key)?.focus();
  byId('cache-table').querySelector('tr.chosen')?.scrollIntoView({ block: 'nearest' });
}

// Opens the group with this path; the focus goes to its first tile, or to the tile of the group that was left.
function open(wanted) {
  const left = wanted.length < path.length ? path[wanted.length] : null;
  path = wanted;
  page = 0;
  draw();
  (left && tileOf(left) ? tileOf(left) : byId('cache-map').querySelector('.tile'))?.focus();
}

const sizeWords = (group) => `${bytes(group.bytes)}, ${count(group.n)} ${group.n === 1 ? 'entry' : 'entries'}`;

function groupItem(group, size = group.bytes) {
  const { name } = group;
  const others = group.children.slice(MOST_INNER);
  return {
    size,
    group: true,
    id: group.id,
    heads: [`${name} · ${sizeWords(group)}`, `${name} · ${bytes(group.bytes)}, ${count(group.n)}`, `${name} ${bytes(group.bytes)}`, name],
    words: `${name}: ${sizeWords(group)}. Opens the group`,
    children: group.children.slice(0, MOST_INNER).map(innerItem).filter((item) => item.size > 0),
    others: { n: others.length, size: others.reduce((sum, node) => sum + node.bytes, 0) },
    act: () => open([...here().slice(1).map((g) => g.id), group.id]),
  };
}

// What a group shows of itself.
function innerItem(node, i, all) {
  if (isGroup(node)) return { size: node.bytes, kind: tierOf(entriesOf(node)[0]), short: node.name };
  return { size: node.bytes, kind: tierOf(node), short: shortOf(node, all) };
}

// A module's spans have the same label and different keys.
function shortOf(entry, siblings) {
  if (!entry.label) return entry.key.slice(0, 8);
  const same = siblings.filter((other) => other.label === entry.label).length > 1;
  return same ? `${shortName(entry.label)} ${entry.key.slice(0, 4)}` : shortName(entry.label);
}

function entryItem(entry, siblings) {
  const short = shortOf(entry, siblings);
  return {
    size: entry.bytes,
    label: short,
    short,
    kind: tierOf(entry),
    chosen: entry.key === chosen,
    pinned: entry.pinned,
    id: entry.key,
    words: `${nameOf(entry)}: ${bytes(entry.bytes)}, ${tokens(entry.tokens)}, in ${entry.tiers.join(' and ')}${pinWords(entry)}`,
    act: () => choose(entry),
  };
}

function crumbs(along) {
  return h(
    'nav',
    { class: 'crumbs', 'aria-label': 'Open group' },
    along.map((group, i) =>
      h(
        'button',
        { type: 'button', class: 'quiet small', 'aria-current': i === along.length - 1 ? 'true' : null, onclick: () => open(path.slice(0, i)) },
        group.name,
      ),
    ),
    h('span', { class: 'soft' }, sizeWords(along.at(-1))),
  );
}

function drawMap() {
  const along = here();
  const group = along.at(-1);
  path = along.slice(1).map((g) => g.id);
  const width = Math.max(byId('cache-map').clientWidth, 240);
  const nodes = group.children.filter((node) => node.bytes > 0);
  if (nodes.length === 0) return put(byId('cache-map'));
  const { n, rest } = fitting(
    nodes.map((node) => node.bytes),
    width,
    MAP_HEIGHT,
  );
  const shown = nodes.slice(0, n);
  const items = shown.map((node) => (isGroup(node) ? groupItem(node) : entryItem(node, shown)));
  if (rest) items.push(groupItem(restOf(group, n), rest));
  items.sort((a, b) => b.size - a.size);
  const words = `${group.name} by size. Arrow keys move, Enter opens a group or selects an entry, Escape leaves the group.`;
  put(byId('cache-map'), crumbs(along), drawTreemap(items, width, MAP_HEIGHT, words, () => path.length && open(path.slice(0, -1))));
  return null;
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
    h('option', { value: 'reduced' }, 'reduced modules'),
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
    h('button', { type: 'button', id: 'cache-reload', onclick: load }, 'Reload'),
    h('span', { class: 'soft', id: 'cache-words', role: 'status' }),
  );
}

// A model has a cache of its own.
function chooser() {
  return modelChooser(models, model || models[0], (name) => {
    model = name;
    path = [];
    load();
  });
}

function draw() {
  const parts = refused ? [h('p', { class: 'note' }, refused)] : [h('div', { id: 'cache-map' }), tools(), h('div', { id: 'cache-table' })];
  put(
    byId('view-cache'),
    h('div', { class: 'bar' }, h('h2', {}, 'Cache contents'), models.length > 1 && chooser()),
    budgets(),
    problem && h('p', { class: 'wrong', role: 'alert' }, problem),
    parts,
  );
  if (refused) return;
  drawMap();
  drawTable();
}

export const showCache = load;
