/* SPDX-License-Identifier: Apache-2.0 */
// conversations.js: conversations and settings in the browser's storage (IndexedDB of this origin). Nothing leaves the machine.
//
// A conversation: {id, title, at (ms), settings (values of the form's fields by id), turns: [{role, content, reasoning}]}.

const NAME = 'reprise';
const STORE = 'conversations';
const MOST = 200; // conversations; the oldest is removed
const MOST_BYTES = 20 << 20; // of all their texts

let opened = null; // a promise of the database, or of null where there is no storage
const memory = new Map(); // then

function open() {
  opened ??= new Promise((resolve) => {
    try {
      const request = indexedDB.open(NAME, 1);
      request.onupgradeneeded = () => request.result.createObjectStore(STORE, { keyPath: 'id' });
      request.onsuccess = () => resolve(request.result);
      request.onerror = request.onblocked = () => resolve(null);
    } catch {
      resolve(null);
    }
  });
  return opened;
}

const done = (request) =>
  new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });

const store = (database, mode) => database.transaction(STORE, mode).objectStore(STORE);

export const newId = () => `${Date.now().toString(36)}-${crypto.getRandomValues(new Uint32Array(2)).join('-')}`;

// All of them, newest first.
export async function listConversations() {
  const database = await open();
  const all = database ? await done(store(database, 'readonly').getAll()) : [...memory.values()];
  return all.sort((a, b) => b.at - a.at);
}

const sizeOf = (conversation) => 2 * JSON.stringify(conversation).length;

// Removes the oldest ones above the limits. Gives their number.
async function trim() {
  const all = await listConversations();
  let bytes = 0;
  let n = 0;
  for (const [i, conversation] of all.entries()) {
    bytes += sizeOf(conversation);
    if (i > 0 && (i >= MOST || bytes > MOST_BYTES)) {
      await removeConversation(conversation.id);
      n++;
    }
  }
  return n;
}

// Gives the number of older conversations that were removed for it.
export async function saveConversation(conversation) {
  const database = await open();
  if (database) await done(store(database, 'readwrite').put(conversation));
  else memory.set(conversation.id, structuredClone(conversation));
  return trim();
}

export async function removeConversation(id) {
  const database = await open();
  if (database) await done(store(database, 'readwrite').delete(id));
  else memory.delete(id);
}

// ---- files

export function toMarkdown(conversation) {
  const name = { system: 'System', user: 'User', assistant: 'Assistant' };
  const system = conversation.settings?.['chat-system'];
  const turns = [...(system ? [{ role: 'system', content: system }] : []), ...conversation.turns];
  return `# ${conversation.title}\n\n${turns.map((turn) => `## ${name[turn.role]}\n\n${turn.content.trim()}\n`).join('\n')}`;
}

const isTurn = (turn) => (turn?.role === 'user' || turn?.role === 'assistant') && typeof turn.content === 'string';

// What a file of toFile() has, with new ids; throws an Error for people.
export function fromFile(text) {
  let file;
  try {
    file = JSON.parse(text);
  } catch {
    throw new Error('the file is not JSON: choose one that Export wrote');
  }
  const list = Array.isArray(file?.conversations) ? file.conversations : null;
  if (!list || !list.every((c) => typeof c?.title === 'string' && Array.isArray(c.turns) && c.turns.every(isTurn)))
    throw new Error('the file has no conversations: choose one that Export wrote');
  if (list.length > MOST) throw new Error(`the file has ${list.length} conversations: the limit is ${MOST}`);
  return list.map(({ title, at, settings, turns }) => ({
    id: newId(),
    title: title.slice(0, 200),
    at: Number.isFinite(at) ? at : Date.now(),
    settings: Object.fromEntries(Object.entries(settings ?? {}).filter(([, value]) => typeof value === 'string')),
    turns: turns.map(({ role, content, reasoning }) => ({ role, content, ...(typeof reasoning === 'string' && { reasoning }) })),
  }));
}

export const toFile = (conversations) => `${JSON.stringify({ conversations }, null, 1)}\n`;
