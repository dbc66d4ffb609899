/* SPDX-License-Identifier: Apache-2.0 */
// instrument.js: the panel beside chat and modules: the mosaic of a prompt, its TTFT, its first cache miss,
// and the list of prompts.

import { budgetBar } from './budget.js';
import { byId, h, put } from './dom.js';
import { drawMosaic, drawStrip, tileWords, tilesOf } from './mosaic.js';
import { chooseRun, chosenRun, measure, onRuns, runs, waited, withoutReuse } from './runs.js';
import { problemWords } from './api.js';
import { SOURCES, count, duration, percent, rate } from './words.js';

const SMALL = '(max-width: 1000px)'; // as in frame.css

const panel = () => byId('instrument');
let measuring = null; // the run that is being measured
let problem = '';
let unfolded = false; // the details, in a small window

// ---- the head: three figures

function figure(value, words) {
  return h('div', { class: 'figure' }, h('strong', {}, value), h('span', {}, words));
}

function figures(run) {
  const { report } = run;
  const full = withoutReuse(run);
  return h(
    'div',
    { class: 'figures' },
    figure(duration(waited(report)), 'first token'),
    figure(percent(report.cached_tokens, report.prompt_tokens), `of ${count(report.prompt_tokens)} tokens reused`),
    full && figure(`${(full.ms / Math.max(waited(report), 0.001)).toFixed(1)}x`, `faster, ${full.measured ? 'measured' : 'estimated'}`),
  );
}

// ---- bars

function bar(label, parts, most, value) {
  const pieces = parts.map(([kind, ms]) => {
    const piece = h('span', { class: `piece ${kind}` });
    piece.style.width = `${(100 * ms) / most}%`;
    return piece;
  });
  return h(
    'div',
    { class: 'bar-row' },
    h('span', { class: 'bar-name' }, label),
    h('span', { class: 'bar-lane', 'aria-hidden': 'true' }, pieces),
    h('span', { class: 'bar-value' }, value),
  );
}

function measureButton(run) {
  if (!run.measure || run.without !== undefined) return null;
  const busy = measuring === run;
  return h(
    'button',
    { type: 'button', class: 'quiet small', id: 'measure', disabled: busy, onclick: () => beginMeasure(run) },
    busy ? 'measuring …' : 'Measure',
  );
}

async function beginMeasure(run) {
  measuring = run;
  problem = '';
  draw();
  try {
    await measure(run);
  } catch (error) {
    problem = problemWords(error);
  }
  measuring = null;
  draw();
}

// Text below the bars, or nothing.
function barWords(run, modulePrefill, queue) {
  const words = h(
    'p',
    { class: 'soft bar-words' },
    modulePrefill > 0 && `${duration(modulePrefill)} of it for the prefill of missing modules. `,
    queue >= 1 && `${duration(queue)} of it in the queue. `,
    measureButton(run),
    problem && h('span', { class: 'wrong' }, problem),
  );
  return words.childNodes.length > 0 && words;
}

function bars(run) {
  const { ms } = run.report;
  const full = withoutReuse(run);
  const here = waited(run.report);
  const most = Math.max(here, full?.ms ?? 0, 0.001);
  const modulePrefill = ms.module_prefill ?? 0;
  const queue = ms.queue ?? 0;
  const rest = Math.max(ms.first_token - queue - modulePrefill, 0);
  return h(
    'div',
    { class: 'bars', role: 'group', 'aria-label': 'Time to first token' },
    bar(
      'this request',
      [
        ['computed', modulePrefill],
        ['queue', queue],
        ['fresh', rest],
      ],
      most,
      duration(here),
    ),
    full && bar(full.measured ? 'without reuse' : 'without reuse (estimate)', [['full', full.ms]], most, duration(full.ms)),
    barWords(run, modulePrefill, queue),
  );
}

// ---- the mosaic and its text

function legendLine(source, ...words) {
  return h('li', {}, h('span', { class: `swatch ${source}`, 'aria-hidden': 'true' }), words);
}

function legend(run) {
  const totals = {};
  for (const tile of tilesOf(run.report)) totals[tile.source] = (totals[tile.source] ?? 0) + tile.tokens;
  const inexact = run.report.parts.some((part) => !part.exact);
  return h(
    'ul',
    { class: 'legend', 'aria-label': 'Colours' },
    Object.entries(SOURCES)
      .filter(([source]) => totals[source])
      .map(([source, words]) => legendLine(source, `${words} `, h('b', {}, count(totals[source])))),
    inexact && legendLine('hatched', 'not exact'),
    run.report.parts.some((part) => part.kept_shares) &&
      h('li', {}, '0 ', h('span', { class: 'swatch scale', 'aria-hidden': 'true' }), ' 100 % of heads keep the slot'),
  );
}

// The KV that the answer of a request with kv_keep was given.
function reduction(run) {
  const { method, share, bytes, bytes_before: before } = run.report.kv_reduction;
  if (!method) return null;
  return h(
    'div',
    { class: 'bars' },
    budgetBar('KV for the answer', bytes, before, 'ram'),
    h('p', { class: 'soft' }, `${rate(share)} of the slots, chosen by ${method}`),
  );
}

// White space that would not be seen is shown.
const visible = (text) => text.replace(/\n/g, '↵');

function mismatch(run) {
  const d = run.report.mismatch;
  if (!d) return null;
  const place = [d.message, d.module && d.module !== 'prompt' ? d.module : ''].filter(Boolean).join(', ');
  return h(
    'div',
    { class: 'mismatch' },
    h(
      'h3',
      {},
      h('span', { class: 'mark-sign', 'aria-hidden': 'true' }, '▼'),
      ` Differs from the cached prefix at token ${count(d.token)}`,
      place && ` (${place})`,
    ),
    h('p', {}, h('span', { class: 'soft' }, `…${visible(d.before)}`), h('ins', {}, visible(d.prompt) || '(end)')),
    h('p', {}, h('span', { class: 'soft' }, 'cached: '), h('del', {}, visible(d.cached) || '(end)')),
  );
}

// Advice of the server that would give more cache hits.
function hints(run) {
  const list = run.report.hints ?? [];
  return (
    list.length > 0 &&
    h(
      'ul',
      { class: 'mismatch', 'aria-label': 'Hints' },
      list.map((hint) => h('li', {}, h('b', {}, `${hint.what} “${visible(hint.text)}”`), ` in ${hint.message}: ${hint.do}`)),
    )
  );
}

// ---- the list

function row(run) {
  const { report } = run;
  const chosen = run === chosenRun();
  return h(
    'li',
    {},
    h(
      'button',
      { type: 'button', class: 'run', 'aria-current': chosen ? 'true' : null, onclick: () => chooseRun(run) },
      h('span', { class: 'run-title' }, run.title || '(empty)'),
      h('span', { class: 'run-figures' }, `${percent(report.cached_tokens, report.prompt_tokens)} · ${duration(waited(report))}`),
      drawStrip(report),
    ),
  );
}

function drawEmpty() {
  put(
    panel(),
    h('div', { class: 'bar' }, h('h2', {}, 'Prompt plan')),
    h(
      'p',
      { class: 'soft' },
      'The parts of a prompt by position, reused or computed, and the time to first token. ' +
        'Send a prompt, and send it again.',
    ),
    h(
      'ul',
      { class: 'legend column', 'aria-label': 'Colours' },
      Object.entries(SOURCES).map(([source, words]) => legendLine(source, words)),
    ),
  );
}

// What a small window folds: there the mosaic and the conversation share the screen.
function more(children) {
  const open = unfolded || !matchMedia(SMALL).matches;
  return h('details', { class: 'plan-more', open, ontoggle: (event) => matchMedia(SMALL).matches && (unfolded = event.target.open) }, [
    h('summary', {}, 'Details'),
    children,
  ]);
}

function draw() {
  const run = chosenRun();
  if (!run) {
    drawEmpty();
    return;
  }
  const focused = panel().contains(document.activeElement)
    ? [...panel().querySelectorAll('button.run')].indexOf(document.activeElement)
    : -1;
  const hint = matchMedia(SMALL).matches ? '' : 'Point at a part, or select it with Tab and the arrow keys.';
  const detail = h('p', { class: 'detail' }, hint);
  const show = (tile, words) => {
    detail.textContent = tile ? [tileWords(tile), words].filter(Boolean).join('; ') : hint;
  };
  const { paddingLeft, paddingRight } = getComputedStyle(panel());
  const width = Math.max(panel().clientWidth - Number.parseFloat(paddingLeft) - Number.parseFloat(paddingRight), 240);
  put(
    panel(),
    h('div', { class: 'bar' }, h('h2', {}, 'Prompt plan'), h('span', { class: 'soft clip', dir: 'auto' }, run.title)),
    figures(run),
    drawMosaic(run.report, width, show),
    detail,
    more([
      bars(run),
      legend(run),
      reduction(run),
      mismatch(run),
      hints(run),
      h('h3', {}, 'Recent prompts'),
      h('ol', { class: 'runs', id: 'runs' }, runs().map(row)),
    ]),
  );
  if (focused >= 0) panel().querySelectorAll('button.run')[Math.min(focused, runs().length - 1)]?.focus();
}

export function startInstrument() {
  let width = 0;
  onRuns(draw);
  new ResizeObserver(() => {
    if (panel().clientWidth !== width) draw();
    width = panel().clientWidth;
  }).observe(panel());
  draw();
}
