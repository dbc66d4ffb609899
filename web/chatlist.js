/* SPDX-License-Identifier: Apache-2.0 */
// chatlist.js: the list of conversations: search, choice, names, removal, files.

import { byId, h } from './dom.js';
import { fromFile, listConversations, removeConversation, saveConversation, toFile, toMarkdown } from './conversations.js';

let chosen = null; // an id
let on = {}; // {choose(conversation or null), removed(id), renamed(conversation)}

export const tellChats = (words) => {
  byId('chats-words').textContent = words;
};

function download(name, type, text) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  h('a', { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

const fileName = (title, ending) => `${title.replace(/[^\p{L}\p{N}]+/gu, '-').replace(/^-|-$/g, '').slice(0, 40) || 'conversation'}.${ending}`;

async function rename(conversation) {
  const title = prompt('Name of the conversation', conversation.title)?.trim();
  if (!title) return;
  conversation.title = title.slice(0, 200);
  await saveConversation(conversation);
  on.renamed(conversation);
  drawChats(chosen);
}

async function remove(conversation) {
  if (!confirm(`Delete the conversation '${conversation.title}'?`)) return;
  await removeConversation(conversation.id);
  on.removed(conversation.id);
  drawChats(conversation.id === chosen ? null : chosen);
}

function row(conversation) {
  const { title, id } = conversation;
  const tool = (name, act) => h('button', { type: 'button', class: 'quiet small', 'aria-label': `${name} ${title}`, onclick: act }, name);
  return h(
    'li',
    { 'data-id': id },
    h('button', { type: 'button', class: 'name', 'aria-current': id === chosen ? 'true' : null, onclick: () => on.choose(conversation) }, title),
    id === chosen &&
      h(
        'div',
        { class: 'buttons' },
        tool('Rename', () => rename(conversation)),
        tool('JSON', () => download(fileName(title, 'json'), 'application/json', toFile([conversation]))),
        tool('Markdown', () => download(fileName(title, 'md'), 'text/markdown', toMarkdown(conversation))),
        tool('Delete', () => remove(conversation)),
      ),
  );
}

// Every word of the search is in the title or in a message.
function matches(conversation, words) {
  const text = [conversation.title, ...conversation.turns.map((turn) => turn.content)].join('\n').toLowerCase();
  return words.every((word) => text.includes(word));
}

export async function drawChats(id) {
  chosen = id ?? null;
  const all = await listConversations();
  const words = byId('chats-search').value.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = all.filter((conversation) => matches(conversation, words)).map(row);
  const none = h('li', { class: 'soft' }, all.length ? 'No conversation matches.' : 'No conversations yet.');
  byId('chats-list').replaceChildren(...(rows.length ? rows : [none]));
}

async function importFile() {
  const [file] = byId('chats-file').files;
  if (!file) return;
  try {
    const found = fromFile(await file.text());
    let removed = 0;
    for (const conversation of found) removed += await saveConversation(conversation);
    tellChats(`${found.length} imported.${removed ? ` ${removed} of the oldest were removed: the limit is reached.` : ''}`);
  } catch (error) {
    tellChats(`Not imported: ${error.message}`);
  }
  byId('chats-file').value = '';
  drawChats(chosen);
}

export function onChats(actions) {
  on = actions;
  byId('chats-search').addEventListener('input', () => drawChats(chosen));
  byId('chats-export').addEventListener('click', async () => download('reprise-conversations.json', 'application/json', toFile(await listConversations())));
  byId('chats-import').addEventListener('click', () => byId('chats-file').click());
  byId('chats-file').addEventListener('change', importFile);
}
