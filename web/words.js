/* SPDX-License-Identifier: Apache-2.0 */
// words.js: numbers and the server's words, as people read them.

const grouped = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });

export const count = (n) => grouped.format(n);

export function tokens(n) {
  return `${count(n)} token${n === 1 ? '' : 's'}`;
}

// Three digits at most.
function short(value) {
  if (value >= 100) return value.toFixed(0);
  return value >= 10 ? value.toFixed(1) : value.toFixed(2);
}

export function duration(ms) {
  if (ms < 1000) return `${short(ms)} ms`;
  if (ms < 60000) return `${short(ms / 1000)} s`;
  return ms < 3600000 ? `${short(ms / 60000)} min` : ms < 86400000 ? `${short(ms / 3600000)} h` : `${short(ms / 86400000)} d`;
}

// "1.50 ms" -> "1.5 ms": for axes.
export const plain = (text) => text.replace(/(\.\d*?)0+(?!\d)/, '$1').replace(/\.(?!\d)/, '');

export function bytes(n) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let i = 0;
  for (; n >= 1024 && i < units.length - 1; i++) n /= 1024;
  return i === 0 ? `${n} B` : `${short(n)} ${units[i]}`;
}

export const percent = (part, whole) => (whole > 0 ? `${Math.floor((100 * part) / whole)} %` : '–');

// A share from 0 to 1, in whole per cent, or in tenths below ten.
export const rate = (share) => `${plain((100 * share).toFixed(share > 0 && share < 0.0995 ? 1 : 0))} %`;

// seconds: since 1970, as in replies.
export function ago(seconds) {
  if (!seconds) return 'never';
  const past = Date.now() / 1000 - seconds;
  return past < 1 ? 'just now' : `${duration(Math.floor(past) * 1000).replace(/\.\d+/, '')} ago`;
}

// Where a part's states came from.
export const SOURCES = {
  ram: 'reused from RAM',
  disk: 'reused from disk',
  computed: 'module prefilled and cached',
  fresh: 'prefilled for this prompt',
};

export function sourceOf(part) {
  if (part.tier === 'computed') return 'computed';
  if (!part.reused) return 'fresh';
  return part.tier === 'disk' ? 'disk' : 'ram';
}

const REASONS = {
  new: 'not cached before',
  evicted: 'evicted from the cache',
  scope: 'cached with another scope only',
  memory: 'on disk, but not enough memory to load it',
  window: 'cached, but without the KV that its window needs',
  checkpoint: 'cached, but recurrent layers have no state there',
  uncached: 'never cached: cache="false", or an argument',
  shifted: 'first tokens after an edit, recomputed',
  link: 'first tokens of a module, recomputed',
  blend: 'largest deviation, recomputed',
  focus: 'what an uncertain token looked at, recomputed',
  exact: 'recomputed',
  last: 'last token, recomputed for its logits',
  kv_keep: 'last tokens, recomputed for their attention',
  off: 'reuse is off for the request',
};

export const reasonWords = (reason) => REASONS[reason] ?? reason;

// The module that the server makes of a document (reuse: modular) is called by a hash of its text.
export const DOCUMENT = /^d([0-9a-f]{4})[0-9a-f]{16}$/;

const documents = new Map(); // name of a document's module -> its first words

const opening = (text) => {
  const words = text.trim().replace(/\s+/g, ' ');
  return words.length > 32 ? `${words.slice(0, 32).replace(/\s\S*$/, '')}…` : words;
};

// Names the documents of a report by their texts: both are in the order of the prompt. False: their numbers differ.
export function nameDocuments(report, texts) {
  const names = [...new Set(report.parts.map((part) => part.module).filter((name) => DOCUMENT.test(name)))];
  const different = [...new Set(texts)];
  if (names.length !== different.length) return false;
  names.forEach((name, i) => documents.set(name, opening(different[i])));
  return true;
}

export const documentName = (name) => documents.get(name) ?? name.replace(DOCUMENT, 'document $1');

export function moduleName(name) {
  if (name === '') return 'text of the schema';
  return name === 'prompt' ? 'prompt’s own text' : documentName(name);
}

// For a label: the last word of a path.
export const shortName = (name) => (name === '' ? 'text' : documentName(name.slice(name.lastIndexOf('/') + 1)));
