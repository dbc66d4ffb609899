/* SPDX-License-Identifier: Apache-2.0 */
// chat.js: a conversation by /v1/chat/completions, streamed. Each answer shows the cost of its prompt, and is a run (runs.js).

import { byId, h } from './dom.js';
import { ask, events, problemWords } from './api.js';
import { drawStrip } from './mosaic.js';
import { KEPT_SHARES, addRun, chooseRun, onMeasured, waited, withoutReuse } from './runs.js';
import { count, duration, tokens } from './words.js';

const PATH = '/v1/chat/completions';
const TITLE = 60; // characters of a message in the list of runs

let turns = []; // {role, content, node, run}
let sending = null; // AbortController of the answer under way

// ---- what is asked

const numberOf = (id) => (byId(id).value === '' ? undefined : Number(byId(id).value));

// Instructions, and documents as parts of their own: what the server makes modules of.
function systemMessage() {
  const system = byId('chat-system').value.trim();
  const documents = byId('chat-documents')
    .value.split(/^---+[ \t]*$/m)
    .map((text) => text.trim())
    .filter(Boolean);
  if (documents.length === 0) return system ? { role: 'system', content: system } : null;
  return { role: 'system', content: [system, ...documents].filter(Boolean).map((text) => ({ type: 'text', text: `${text}\n` })) };
}

function request(messages) {
  const system = systemMessage();
  const reuse = byId('chat-reuse').value;
  return {
    messages: [system, ...messages.map(({ role, content }) => ({ role, content }))].filter(Boolean),
    temperature: numberOf('chat-temperature'),
    top_p: numberOf('chat-top-p'),
    max_tokens: numberOf('chat-max-tokens'),
    seed: numberOf('chat-seed'),
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

function addTurn(role, content) {
  const text = h('div', { class: 'said' }, content);
  const foot = h('div', { class: 'foot' });
  const node = h('article', { class: `turn ${role}`, 'aria-label': role === 'user' ? 'You' : 'Answer' }, text, foot);
  const turn = { role, content, node, text, foot };
  byId('chat-log').querySelector('.welcome')?.remove();
  byId('chat-log').append(node);
  turns.push(turn);
  scrollDown(true);
  return turn;
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

function setSending(controller) {
  sending = controller;
  byId('chat-send').disabled = Boolean(controller);
  byId('chat-stop').hidden = !controller;
  byId('chat-again').disabled = Boolean(controller) || turns.length === 0;
}

function finish(turn, body, report, usage) {
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
  const turn = addTurn('assistant', '');
  turn.node.setAttribute('aria-busy', 'true');
  setSending(controller);
  try {
    const options = { json: { ...body, stream: true, stream_options: { include_usage: true } }, signal: controller.signal };
    for await (const { data } of events('POST', PATH, options)) {
      const choice = data.choices[0];
      turn.content += choice?.delta?.content ?? '';
      turn.text.textContent = turn.content.trimStart(); // shown without the space that it may begin with
      if (choice?.finish_reason === 'length') turn.note = 'ended at max tokens';
      if (data.reprise) finish(turn, body, data.reprise, data.usage);
      scrollDown();
    }
  } catch (error) {
    tellProblem(turn, error);
  }
  turn.node.removeAttribute('aria-busy');
  setSending(null);
  scrollDown();
}

function tellProblem(turn, error) {
  const stopped = error.name === 'AbortError';
  turn.foot.append(h('p', { class: stopped ? 'soft' : 'wrong', role: stopped ? null : 'alert' }, problemWords(error)));
  if (turn.content) return;
  turns = turns.filter((other) => other !== turn); // the conversation continues without it
  if (stopped || byId('chat-text').value) return;
  byId('chat-text').value = turns.pop()?.content ?? '';
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
  sending?.abort();
  turns = [];
  byId('chat-log').replaceChildren(welcome());
  setSending(null);
  byId('chat-text').focus();
}

export function startChat() {
  byId('chat-form').addEventListener('submit', submit);
  byId('chat-text').addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) submit(event);
  });
  byId('chat-stop').addEventListener('click', () => sending?.abort());
  byId('chat-again').addEventListener('click', regenerate);
  byId('chat-new').addEventListener('click', startAnew);
  byId('chat-log').append(welcome());
  onMeasured((run) => turns.filter((turn) => turn.run === run).forEach(tellRun));
}
