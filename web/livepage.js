/* SPDX-License-Identifier: Apache-2.0 */
// livepage.js: the current load of the server, from /metrics, polled only while this view is visible.

import { byId, h, put } from './dom.js';
import { ask, problemWords } from './api.js';
import { budgetBar } from './budget.js';
import { lineChart } from './linechart.js';
import { count, duration, percent } from './words.js';

const EVERY_MS = 2000;
const PER_MINUTE = 60000 / EVERY_MS; // samples
const MINUTES = [1, 2, 5]; // of the time axis, as there are samples for it
const SAMPLES = 5 * PER_MINUTE;
const WINDOW = 5; // samples that a rate is taken over

let samples = []; // {at, m: values by name}, oldest first
let timer = 0;
let problem = '';
let shown = false;

// "reprise_name 3" -> {name: 3}; of several models their sum. Those with other labels are not drawn.
function parse(text) {
  const found = {};
  for (const line of text.split('\n')) {
    const match = /^reprise_([a-z_]+)(?:\{model="[^"]*"\})? ([-+.\de]+)$/.exec(line);
    if (match) found[match[1]] = (found[match[1]] ?? 0) + Number(match[2]);
  }
  return found;
}

// ---- rates

// How much a counter grew up to sample i, over the last WINDOW samples; null: it was not counted yet, or the server was restarted.
function growth(i, name) {
  const from = samples[Math.max(i - WINDOW, 0)].m[name];
  const to = samples[i].m[name];
  return from === undefined || to === undefined || to < from ? null : to - from;
}

function ratio(i, part, whole, scale = 1) {
  const [a, b] = [growth(i, part), growth(i, whole)];
  return a === null || !b ? null : (scale * a) / b;
}

// Since the server began.
const ratioOf = (m, part, whole, scale = 1) => (m[part] !== undefined && m[whole] > 0 ? (scale * m[part]) / m[whole] : null);

function rate(i, name) {
  const n = growth(i, name);
  const seconds = (samples[i].at - samples[Math.max(i - WINDOW, 0)].at) / 1000;
  return n === null || seconds <= 0 ? null : n / seconds;
}

const FIRST_TOKEN = ['time_to_first_token_seconds_sum', 'time_to_first_token_seconds_count', 1000];
const HITS = ['cached_tokens_total', 'prompt_tokens_total'];
const CHARTS = [
  {
    name: 'Time to first token',
    kind: 'computed',
    of: (i) => ratio(i, ...FIRST_TOKEN),
    overall: (m) => ratioOf(m, ...FIRST_TOKEN),
    show: duration,
  },
  {
    name: 'Hit rate',
    kind: 'ram',
    of: (i) => ratio(i, ...HITS),
    overall: (m) => ratioOf(m, ...HITS),
    show: (v) => percent(v, 1),
    most: 1,
  },
  {
    name: 'Generated tokens per second',
    kind: 'disk',
    of: (i) => rate(i, 'answer_tokens_total'),
    overall: () => null,
    show: (v) => (v < 10 ? v.toFixed(1) : count(v)),
  },
];

// ---- drawing

function numbers(m) {
  const list = [
    ['active requests', m.requests_active],
    ['connections', m.connections_open],
    ['answers', m.answers_total],
    ['prompt tokens', m.prompt_tokens_total],
    ['cached prompt tokens', m.cached_tokens_total],
    ['generated tokens', m.answer_tokens_total],
    ['evictions', m.store_evictions_total],
    ['disconnected clients', m.clients_gone_total],
  ];
  return h(
    'dl',
    { class: 'numbers' },
    list.filter(([, n]) => n !== undefined).map(([name, n]) => h('div', {}, h('dt', {}, name), h('dd', {}, count(n)))),
  );
}

function budgets(m) {
  return h(
    'div',
    { class: 'budgets' },
    budgetBar('RAM', m.store_used_bytes ?? 0, m.store_budget_bytes ?? 0, 'ram'),
    m.store_disk_budget_bytes > 0 ? budgetBar('Disk', m.store_disk_bytes, m.store_disk_budget_bytes, 'disk') : null,
  );
}

function draw() {
  const view = byId('view-live');
  const title = h('div', { class: 'bar' }, h('h2', {}, 'Live'), h('span', { class: 'soft' }, 'all requests of this server'));
  const note = problem && h('p', { class: 'note', role: 'alert' }, problem);
  if (samples.length === 0) {
    put(view, title, note);
    return;
  }
  const columns = view.clientWidth >= 900 ? 3 : 1;
  const width = Math.max(Math.floor((view.clientWidth - 48 * columns) / columns), 240);
  const { m } = samples[samples.length - 1];
  const minutes = MINUTES.find((n) => samples.length <= n * PER_MINUTE);
  put(
    view,
    title,
    note,
    h(
      'div',
      { class: 'charts' },
      CHARTS.map((chart) =>
        lineChart({
          ...chart,
          values: samples.map((_, i) => chart.of(i)),
          overall: chart.overall(m),
          capacity: minutes * PER_MINUTE,
          width,
          span: `${minutes} min`,
        }),
      ),
    ),
    h('h3', {}, 'Budgets'),
    budgets(m),
    h('h3', {}, 'Metrics'),
    numbers(m),
  );
}

// ---- polling

async function poll() {
  timer = 0;
  try {
    const m = parse(await ask('GET', '/metrics', { quiet: samples.length > 0 }));
    samples.push({ at: Date.now(), m });
    samples = samples.slice(-SAMPLES);
    problem = '';
  } catch (error) {
    problem = error.status === 403 ? 'This API key lacks the right “operate”, which the metrics require.' : problemWords(error);
    if (error.status === 403) shown = false;
  }
  draw();
  plan();
}

function plan() {
  const looked = shown && document.visibilityState === 'visible';
  if (looked && !timer) timer = setTimeout(poll, samples.length ? EVERY_MS : 0);
  if (looked || !timer) return;
  clearTimeout(timer);
  timer = 0;
}

export function startLive() {
  document.addEventListener('visibilitychange', plan);
  new ResizeObserver(() => shown && draw()).observe(byId('view-live'));
}

export function showLive(isShown) {
  shown = isShown;
  if (shown) draw();
  plan();
}
