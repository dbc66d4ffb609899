/* SPDX-License-Identifier: Apache-2.0 */
// modules.js: schemas of this server, an editor and a tree for one of them, and prompts over it.

import { byId, h } from './dom.js';
import { ask, events, problemWords } from './api.js';
import { PmlEditor } from './pmleditor.js';
import { KEPT_SHARES, addRun, waited } from './runs.js';
import { count, duration, percent, tokens } from './words.js';

const FIRST_SCHEMA = `<schema name="cities">
  <system>You are a concise travel guide.</system>
  <user>
    <module name="plan">Plan a trip of <param name="duration" len="8"/> to this city.
      <union>
        <module name="miami">Welcome to Miami. For surf, go to Haulover. Families go to the South Beach aquarium.</module>
        <module name="lisbon">Lisbon is best seen on foot. Surfers go to Carcavelos. Families go to the Baixa tram.</module>
      </union>
    </module>
  </user>
</schema>
`;
const FIRST_PROMPT = `<prompt schema="cities">
  <plan duration="3 days"><miami/></plan>
  Highlight the surf spots.
</prompt>
`;
const TITLE = 60; // characters of a prompt in the list of runs

let schemaEditor, promptEditor;
let chosen = null; // the name of the schema in the editor; null: a new one
let changed = false; // since it was loaded or saved
let offered = ''; // the prompt that was written for the reader
let running = null; // AbortController of the prompt under way
const prompts = new Map(); // texts by schema

const words = (id, text) => {
  byId(id).textContent = text;
};
const nameIn = (text) => /<schema\b[^>]*?\sname\s*=\s*["']([^"'<]+)["']/.exec(text)?.[1] ?? null;

// ---- the list and the tree

async function drawList() {
  const names = (await ask('GET', '/v1/schemas')).data;
  byId('schema-list').replaceChildren(
    ...names.map((name) =>
      h(
        'li',
        {},
        h('button', { type: 'button', class: 'name', 'aria-current': name === chosen ? 'true' : null, onclick: () => choose(name) }, name),
      ),
    ),
  );
  if (names.length === 0) byId('schema-list').append(h('li', { class: 'soft' }, 'No schemas. Save the one on the right.'));
  return names;
}

// The line of an element with this name in the editor, from 1; 0: none.
function lineOf(node) {
  const pattern =
    node.kind === 'module' || node.kind === 'param'
      ? new RegExp(`\\sname\\s*=\\s*["']${node.name.replace(/\./g, '\\.')}["']`)
      : new RegExp(`<${node.kind}\\b`);
  const at = schemaEditor.value.search(pattern);
  return at < 0 ? 0 : schemaEditor.value.slice(0, at).split('\n').length;
}

function treeLine(node) {
  const name = node.name || (node.kind === 'text' ? node.preview : node.kind);
  const keeps = node.cached ? 'cached' : 'prefilled for each prompt';
  const dot =
    node.key && h('span', { class: `dot ${node.cached ? 'ram' : 'none'}`, title: keeps }, h('span', { class: 'unseen' }, `${keeps}: `));
  return h(
    'button',
    {
      type: 'button',
      class: `node ${node.kind}`,
      title: node.preview || null,
      onclick: () => schemaEditor.goTo(Math.max(lineOf(node), 1), 1),
    },
    dot,
    h('span', { class: 'node-name' }, name),
    node.kind !== node.name && node.name ? h('span', { class: 'soft' }, ` ${node.kind}`) : null,
    h('span', { class: 'node-tokens' }, node.tokens > 0 ? count(node.tokens) : ''),
  );
}

// Nodes come in document order with their depth.
function treeList(nodes, from, depth) {
  const list = h('ul', {});
  let i = from;
  while (i < nodes.length && nodes[i].depth >= depth) {
    const item = h('li', {}, treeLine(nodes[i]));
    const inside = treeList(nodes, i + 1, nodes[i].depth + 1);
    if (inside.list.childElementCount) item.append(inside.list);
    list.append(item);
    i = inside.end;
  }
  return { list, end: i };
}

async function drawTree() {
  byId('schema-tree').replaceChildren();
  words('tree-words', '');
  if (!chosen) return;
  const layout = await ask('GET', `/v1/schemas/${encodeURIComponent(chosen)}/layout`);
  words('tree-words', `${count(layout.positions)} positions, ${layout.layout}`);
  byId('schema-tree').append(treeList(layout.nodes, 0, 0).list);
}

// ---- a schema

function setSchema(name, text) {
  if (chosen && promptEditor.value !== offered) prompts.set(chosen, promptEditor.value);
  chosen = name;
  changed = false;
  schemaEditor.value = text;
  offerPrompt(text);
  if (prompts.has(name)) promptEditor.value = prompts.get(name);
  byId('schema-delete').disabled = !name;
  words('schema-words', name ? '' : 'new');
}

// A prompt that imports the first module of a schema.
function firstPrompt(text) {
  const module = /<module\b[^>]*?\sname\s*=\s*["']([^"'<]+)["']/.exec(text)?.[1];
  return `<prompt schema="${nameIn(text) ?? ''}">\n${module ? `  <${module}/>\n` : ''}  \n</prompt>\n`;
}

function offerPrompt(text) {
  promptEditor.value = offered = text === FIRST_SCHEMA ? FIRST_PROMPT : firstPrompt(text);
}

async function choose(name) {
  if (changed && !confirm(`Discard the changes to '${chosen ?? nameIn(schemaEditor.value) ?? 'the new schema'}'?`)) return;
  try {
    setSchema(name, await ask('GET', `/v1/schemas/${encodeURIComponent(name)}`));
    await Promise.all([drawList(), drawTree()]);
  } catch (error) {
    words('schema-words', problemWords(error));
  }
}

function startNew() {
  if (changed && !confirm('Discard the changes?')) return;
  setSchema(null, '<schema name="">\n  <module name=""></module>\n</schema>\n');
  byId('schema-list')
    .querySelectorAll('[aria-current]')
    .forEach((b) => b.removeAttribute('aria-current'));
  byId('schema-tree').replaceChildren();
  words('tree-words', '');
  schemaEditor.area.focus();
}

async function put(name, text) {
  const progress = byId('schema-progress');
  progress.hidden = false;
  try {
    for await (const { event, data } of events('PUT', `/v1/schemas/${encodeURIComponent(name)}`, {
      body: text,
      headers: { 'Content-Type': 'application/xml' },
    })) {
      if (event === 'progress') words('schema-words', `computing … ${tokens(data.done)}`);
      else if (event === 'done') return data;
    }
    throw new Error('the server ended before the schema was prefilled');
  } finally {
    progress.hidden = true;
  }
}

async function save() {
  const text = schemaEditor.value;
  const name = nameIn(text) ?? 'schema';
  const began = performance.now();
  schemaEditor.setProblem(null);
  words('schema-words', 'computing …');
  byId('schema-save').disabled = true;
  try {
    const done = await put(name, text);
    chosen = name;
    changed = false;
    if (promptEditor.value === offered) offerPrompt(text);
    byId('schema-delete').disabled = false;
    words(
      'schema-words',
      done.computed_tokens > 0
        ? `saved; ${tokens(done.computed_tokens)} prefilled in ${duration(performance.now() - began)}`
        : 'saved; all modules were cached',
    );
    await Promise.all([drawList(), drawTree()]);
  } catch (error) {
    words('schema-words', '');
    schemaEditor.setProblem(problemWords(error));
  }
  byId('schema-save').disabled = false;
}

async function remove() {
  if (!chosen || !confirm(`Delete schema '${chosen}'?`)) return;
  try {
    await ask('DELETE', `/v1/schemas/${encodeURIComponent(chosen)}`);
    changed = false;
    await open(null);
    words('schema-words', 'deleted');
  } catch (error) {
    words('schema-words', problemWords(error));
  }
}

// ---- a prompt

function promptRequest() {
  return {
    prompt: promptEditor.value,
    max_tokens: Number(byId('prompt-max-tokens').value) || undefined,
    temperature: Number(byId('prompt-temperature').value) || 0,
    kv_keep: byId('prompt-kv-keep').value.trim() || undefined,
    kept_shares: KEPT_SHARES,
  };
}

function tellAnswer(body, data) {
  const { reprise: report, usage } = data;
  const title =
    body.prompt
      .replace(/<[^>]*>/g, ' ')
      .replace(/\s+/g, ' ')
      .trim() || nameIn(body.prompt);
  addRun({
    kind: 'prompt',
    title: (title || 'prompt').slice(0, TITLE),
    at: Date.now(),
    report,
    measure: async () => (await ask('POST', '/v1/prompts', { json: { ...body, max_tokens: 1, reuse: 'off' } })).reprise,
  });
  words(
    'prompt-words',
    `${tokens(report.prompt_tokens)}, ${percent(report.cached_tokens, report.prompt_tokens)} reused · first token ` +
      `${duration(waited(report))} · ${tokens(usage.answer_tokens)} answered`,
  );
}

function setRunning(controller) {
  running = controller;
  byId('prompt-run').disabled = Boolean(controller);
  byId('prompt-stop').hidden = !controller;
}

async function run() {
  if (running) return;
  const body = promptRequest();
  const answer = byId('prompt-answer');
  promptEditor.setProblem(null);
  answer.textContent = '';
  words('prompt-words', 'running …');
  setRunning(new AbortController());
  try {
    for await (const { event, data } of events('POST', '/v1/prompts', { json: { ...body, stream: true }, signal: running.signal })) {
      if (event === 'text') answer.append(data.text);
      else if (event === 'done') tellAnswer(body, data);
    }
    drawTree().catch(() => {}); // modules may be kept that were not
  } catch (error) {
    const stopped = error.name === 'AbortError';
    words('prompt-words', stopped ? 'stopped' : '');
    if (!stopped) promptEditor.setProblem(problemWords(error));
  }
  setRunning(null);
}

// ---- the view

// Shows a schema of the server, the named one if it is there, or else a first one to begin with.
async function open(name) {
  const names = await drawList();
  const first = names.includes(name) ? name : names[0];
  if (first) await choose(first);
  else {
    setSchema(null, FIRST_SCHEMA);
    await drawTree();
  }
}

export function startModules() {
  schemaEditor = new PmlEditor('schema-text', 'Schema', {
    rows: 14,
    onSubmit: save,
    onChange: () => {
      changed = true;
    },
  });
  promptEditor = new PmlEditor('prompt-text', 'Prompt', { rows: 6, onSubmit: run });
  byId('schema-editor').append(schemaEditor.node);
  byId('prompt-editor').append(promptEditor.node);
  byId('tree-box').open = !matchMedia('(max-width: 760px)').matches; // there the editor comes first
  byId('schema-new').addEventListener('click', startNew);
  byId('schema-save').addEventListener('click', save);
  byId('schema-delete').addEventListener('click', remove);
  byId('prompt-run').addEventListener('click', run);
  byId('prompt-stop').addEventListener('click', () => running?.abort());
}

let opened = false;

export async function showModules() {
  if (opened) return;
  try {
    await open(chosen);
    opened = true;
  } catch (error) {
    words('schema-words', problemWords(error));
  }
}
