/* SPDX-License-Identifier: Apache-2.0 */
// chat.js: a conversation by /v1/chat/completions, streamed. Each answer shows the cost of its prompt, and is a run (runs.js). Conversations
// are kept in the browser (conversations.js) and listed by chatlist.js.

import { byId, h } from './dom.js';
import { ask, events, problemWords } from './api.js';
import { drawChats, onChats, tellChats } from './chatlist.js';
import { newId, saveConversation } from './conversations.js';
import { markdown } from './markdown.js';
import { listModels, modelOptions } from './models.js';
import { drawStrip } from './mosaic.js';
import { KEPT_SHARES, addRun, chooseRun, onMeasured, waited, withoutReuse } from './runs.js';
import { count, duration, nameDocuments, tokens } from './words.js';

const PATH = '/v1/chat/completions';
const DOCUMENT_TOKENS = 32; // a shorter text part stays plain text (docs/server.md)
const TITLE = 60; // characters of a message in the list of runs, and of a conversation's title

let turns = []; // {role, content, reasoning, node, run}
let sending = null; // AbortController of the answer under way
let conversation = null; // {id, title, at}: of these turns, once it is kept
let defaults = {}; // values of the form's fields
let models = []; // names, of which the chooser shows several

// ---- what is asked

const numberOf = (id) => (byId(id).value === '' ? undefined : Number(byId(id).value));

const documentsOf = () =>
  byId('chat-documents')
    .value.split(/^---+[ \t]*$/m)
    .map((text) => text.trim())
    .filter(Boolean);

// Instructions, and documents as parts of their own: what the server makes modules of.
function systemMessage() {
  const system = byId('chat-system').value.trim();
  const documents = documentsOf();
  if (documents.length === 0) return system ? { role: 'system', content: system } : null;
  return { role: 'system', content: [system, ...documents].filter(Boolean).map((text) => ({ type: 'text', text: `${text}\n` })) };
}

const linesOf = (id) => byId(id).value.split('\n').filter((line) => line.trim());

function logitBias() {
  const entries = linesOf('chat-logit-bias').map((line) => line.split('=').map((part) => part.trim()));
  return entries.length ? Object.fromEntries(entries.map(([id, bias]) => [id, Number(bias)])) : undefined;
}

function request(messages) {
  const system = systemMessage();
  const reuse = byId('chat-reuse').value;
  return {
    model: models.length > 1 ? byId('chat-model').value : undefined,
    messages: [system, ...messages.map(({ role, content }) => ({ role, content }))].filter(Boolean),
    temperature: numberOf('chat-temperature'),
    top_p: numberOf('chat-top-p'),
    max_tokens: numberOf('chat-max-tokens'),
    seed: numberOf('chat-seed'),
    top_k: numberOf('chat-top-k'),
    min_p: numberOf('chat-min-p'),
    typical_p: numberOf('chat-typical-p'),
    repeat_penalty: numberOf('chat-repeat-penalty'),
    presence_penalty: numberOf('chat-presence-penalty'),
    frequency_penalty: numberOf('chat-frequency-penalty'),
    repeat_last_n: numberOf('chat-repeat-last'),
    n_draft: numberOf('chat-draft'),
    quality: byId('chat-quality').value || undefined,
    stop: linesOf('chat-stop-strings').length ? linesOf('chat-stop-strings') : undefined,
    logit_bias: logitBias(),
    grammar: byId('chat-grammar').value.trim() || undefined,
    kv_keep: byId('chat-kv-keep').value.trim() || undefined,
    kept_shares: KEPT_SHARES,
    reuse: reuse === 'on' && Array.isArray(system?.content) ? 'modular' : reuse,
  };
}

// The same prompt without reuse, for its time alone.
async function measure(body) {
  const answer = await ask('POST', PATH, { json: { ...body, max_tokens: 1, reuse: 'off' } });
  return answer.reprise;
}

// ---- the log

async function copyTurn(button, turn) {
  try {
    await navigator.clipboard.writeText(turn.content.trim());
    button.textContent = 'Copied';
  } catch {
    button.textContent = 'Cannot copy'; // the browser refuses it without HTTPS
  }
  setTimeout(() => (button.textContent = 'Copy'), 1500);
}

// The message goes back into the form, and the turns from it on are removed.
function edit(turn) {
  if (sending || !removeFrom(turn)) return;
  byId('chat-text').value = turn.content;
  byId('chat-text').focus();
  setSending(null);
}

// Answers again from this answer on.
function retry(turn) {
  if (!sending && removeFrom(turn)) answer();
}

// False: it is no turn of the conversation.
function removeFrom(turn) {
  const at = turns.indexOf(turn);
  while (at >= 0 && turns.length > at) removeTurn(turns.at(-1));
  return at >= 0;
}

function turnTools(turn) {
  const button = (name, act) => h('button', { type: 'button', class: 'quiet small', onclick: act }, name);
  const copy = button('Copy', () => copyTurn(copy, turn));
  return h('div', { class: 'tools' }, copy, turn.role === 'user' ? button('Edit', () => edit(turn)) : button('Retry', () => retry(turn)));
}

// Answers are Markdown; what a person wrote is shown as it was written.
function drawText(turn) {
  if (turn.role === 'user') turn.text.textContent = turn.content;
  else turn.text.replaceChildren(...markdown(turn.content.trimStart())); // without the space that it may begin with
  if (!turn.reasoning) return;
  turn.thought ??= h('details', { class: 'reasoning' }, h('summary', {}, 'Reasoning'), h('div', { class: 'said' }));
  turn.thought.lastChild.replaceChildren(...markdown(turn.reasoning));
  if (!turn.thought.isConnected) turn.text.before(turn.thought);
}

// Not more often than the screen is drawn: an answer is read again as a whole.
function drawSoon(turn) {
  if (turn.waits) return;
  turn.waits = true;
  requestAnimationFrame(() => {
    turn.waits = false;
    drawText(turn);
    scrollDown();
  });
}

function addTurn(role, content, reasoning = '') {
  const text = h('div', { class: role === 'user' ? 'said' : 'said marked', dir: 'auto' });
  const foot = h('div', { class: 'foot' });
  const node = h('article', { class: `turn ${role}`, 'aria-label': role === 'user' ? 'You' : 'Answer' }, text, foot);
  const turn = { role, content, reasoning, node, text, foot };
  node.append(turnTools(turn));
  drawText(turn);
  byId('chat-log').querySelector('.welcome')?.remove();
  byId('chat-log').append(node);
  turns.push(turn);
  scrollDown(true);
  return turn;
}

// ---- what is kept

const fields = () => byId('chat-form').querySelectorAll('#chat-settings :is(input, select, textarea), #chat-model');
const settings = () => Object.fromEntries([...fields()].map((field) => [field.id, field.value]));

function setSettings(values) {
  for (const field of fields()) field.value = values[field.id] ?? defaults[field.id];
  drawModels(values['chat-model']);
}

// The chooser: several names only. A conversation keeps the name of its model, even one that this server does not have.
function drawModels(wanted) {
  const field = byId('chat-model');
  const chosen = wanted || field.value || models[0];
  const names = models.includes(chosen) || !chosen ? models : [...models, chosen];
  field.replaceChildren(...modelOptions(names, chosen));
  field.value = chosen ?? '';
  if (!models.includes(chosen) && models.length > 0) field.lastChild.textContent = `${chosen} (not on this server)`;
  byId('chat-model-label').hidden = models.length < 2;
}

export async function updateModels() {
  models = await listModels();
  drawModels();
}

const firstWords = () => (turns.find((turn) => turn.role === 'user')?.content ?? '').replace(/\s+/g, ' ').trim().slice(0, TITLE);

async function keep() {
  if (turns.length === 0) return;
  conversation ??= { id: newId(), title: firstWords() };
  conversation.at = Date.now();
  try {
    const kept = turns.map(({ role, content, reasoning }) => ({ role, content, ...(reasoning && { reasoning }) }));
    const removed = await saveConversation({ ...conversation, settings: settings(), turns: kept });
    if (removed) tellChats(`${removed} of the oldest were removed: the limit is reached.`);
  } catch (error) {
    tellChats(`Not kept: ${error.message}`);
  }
  drawChats(conversation.id);
}

const wide = () => matchMedia('(min-width: 1001px)').matches; // as in parts.css

// Shows a conversation of the list; null: a new one.
function show(chosen) {
  sending?.abort();
  turns = [];
  conversation = chosen && { id: chosen.id, title: chosen.title, at: chosen.at };
  byId('chat-log').replaceChildren(chosen ? '' : welcome());
  if (!wide()) byId('chats').open = false; // it covers the conversation
  if (chosen) setSettings(chosen.settings ?? {});
  for (const turn of chosen?.turns ?? []) addTurn(turn.role, turn.content, turn.reasoning);
  setSending(null);
  drawChats(conversation?.id);
}

// Stays at the end, unless the reader has scrolled up.
function scrollDown(always) {
  const log = byId('chat-log');
  if (always || log.scrollHeight - log.scrollTop - log.clientHeight < 80) log.scrollTop = log.scrollHeight;
}

function removeTurn(turn) {
  turn.node.remove();
  turns = turns.filter((other) => other !== turn);
}

function tellRun(turn) {
  const { report, usage } = turn.run;
  const full = withoutReuse(turn.run);
  turn.foot.replaceChildren(
    h(
      'button',
      { type: 'button', class: 'run-line', title: 'Show the plan of this prompt', onclick: () => chooseRun(turn.run) },
      drawStrip(report),
      h(
        'span',
        {},
        [
          `${tokens(report.prompt_tokens)}, ${count(report.cached_tokens)} cached`,
          `first token ${duration(waited(report))}${full ? `, ${duration(full.ms)} without reuse` : ''}`,
          usage ? `${tokens(usage.completion_tokens)} answered` : '',
          turn.note ?? '',
        ]
          .filter(Boolean)
          .join(' · '),
      ),
    ),
  );
}

function welcome() {
  return h(
    'div',
    { class: 'welcome' },
    h('h2', {}, 'Prompts reuse the KV cache'),
    h(
      'p',
      {},
      'Send a message. The panel shows the reused part of each prompt and the time that it saved: ' +
        'the earlier part of a conversation is prefilled only once, and so is a document that you send again.',
    ),
  );
}

// ---- sending

// The texts that the server makes modules of, where they are long enough.
const partsOf = (body) => (Array.isArray(body.messages[0].content) ? body.messages[0].content.map((part) => part.text) : []);

function setSending(controller) {
  sending = controller;
  byId('chat-send').disabled = Boolean(controller);
  byId('chat-stop').hidden = !controller;
  byId('chat-again').disabled = Boolean(controller) || turns.length === 0;
}

// The server makes no module of a short text.
async function nameParts(report, body) {
  const texts = partsOf(body);
  if (nameDocuments(report, texts)) return;
  const asked = texts.map((content) => ask('POST', '/tokenize', { json: { content, model: body.model } }));
  const lengths = (await Promise.all(asked)).map((answer) => answer.tokens.length);
  nameDocuments(
    report,
    texts.filter((_, i) => lengths[i] >= DOCUMENT_TOKENS),
  );
}

async function finish(turn, body, report, usage) {
  await nameParts(report, body).catch(() => {}); // then they have the names that the server gave them
  const title =
    turns
      .findLast((other) => other.role === 'user')
      ?.content.replace(/\s+/g, ' ')
      .slice(0, TITLE) ?? '';
  turn.run = addRun({ kind: 'chat', title, at: Date.now(), report, usage, measure: () => measure(body) });
  tellRun(turn);
}

async function answer() {
  const controller = new AbortController();
  const body = request(turns);
  byId('chat-log').querySelectorAll('.dropped').forEach((node) => node.remove());
  const turn = addTurn('assistant', '');
  turn.node.setAttribute('aria-busy', 'true');
  setSending(controller);
  try {
    const options = { json: { ...body, stream: true, stream_options: { include_usage: true } }, signal: controller.signal };
    for await (const { data } of events('POST', PATH, options)) {
      const choice = data.choices[0];
      turn.content += choice?.delta?.content ?? '';
      turn.reasoning += choice?.delta?.reasoning_content ?? '';
      drawSoon(turn);
      if (choice?.finish_reason === 'length') turn.note = 'ended at max tokens';
      if (data.reprise) await finish(turn, body, data.reprise, data.usage);
      scrollDown();
    }
  } catch (error) {
    tellProblem(turn, error);
  }
  turn.node.removeAttribute('aria-busy');
  drawText(turn);
  if (sending !== controller) return; // another conversation is shown
  setSending(null);
  scrollDown();
  keep();
}

function tellProblem(turn, error) {
  const stopped = error.name === 'AbortError';
  turn.foot.append(h('p', { class: stopped ? 'soft' : 'wrong', role: stopped ? null : 'alert' }, problemWords(error)));
  if (turn.content || !turns.includes(turn)) return;
  drop(turn); // the conversation continues without it
  if (stopped || byId('chat-text').value || turns.at(-1)?.role !== 'user') return;
  byId('chat-text').value = turns.at(-1).content;
  drop(turns.at(-1));
}

// Takes a turn out of the conversation; it is shown until the next answer.
function drop(turn) {
  turns = turns.filter((other) => other !== turn);
  turn.node.classList.add('dropped');
  turn.node.querySelector('.tools').remove();
}

function submit(event) {
  const input = byId('chat-text');
  const text = input.value.trim();
  event?.preventDefault();
  if (sending || !text) return;
  input.value = '';
  addTurn('user', text);
  answer();
}

function regenerate() {
  if (sending) return;
  while (turns.length && turns[turns.length - 1].role === 'assistant') removeTurn(turns[turns.length - 1]);
  if (turns.length) answer();
}

function startAnew() {
  show(null);
  byId('chat-text').focus();
}

export function startChat() {
  defaults = settings();
  byId('chats').open = wide();
  if (!wide()) Object.assign(byId('chat-text'), { rows: 1, placeholder: 'Message' });
  byId('chat-form').addEventListener('submit', submit);
  byId('chat-text').addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) submit(event);
  });
  byId('chat-stop').addEventListener('click', () => sending?.abort());
  byId('chat-again').addEventListener('click', regenerate);
  byId('chat-new').addEventListener('click', startAnew);
  byId('chat-log').append(welcome());
  onMeasured((run) => turns.filter((turn) => turn.run === run).forEach(tellRun));
  onChats({
    choose: show,
    removed: (id) => conversation?.id === id && show(null),
    renamed: ({ id, title }) => {
      if (conversation?.id === id) conversation.title = title;
    },
  });
  drawChats(null);
}
