/* SPDX-License-Identifier: Apache-2.0 */
// page.js: where the page begins: which view is shown, the server's state, colours, the API key.

import { byId } from './dom.js';
import { ask, getKey, onKeyNeeded, onUnreachable, setKey } from './api.js';
import { showCache } from './cachepage.js';
import { startChat, updateModels } from './chat.js';
import { startInstrument } from './instrument.js';
import { showLive, startLive } from './livepage.js';
import { showModules, startModules } from './modules.js';

const STATE_MS = 5000; // between looks at the server while it is not ready
const VIEWS = ['chat', 'modules', 'cache', 'live'];
const WITH_INSTRUMENT = ['chat', 'modules'];

// ---- views

function show() {
  const wanted = location.hash.slice(1);
  const view = VIEWS.includes(wanted) ? wanted : 'chat';
  for (const name of VIEWS) {
    const link = byId('nav').querySelector(`a[href="#${name}"]`);
    byId(`view-${name}`).hidden = name !== view;
    if (name === view) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
    if (name === view) document.title = `${link.textContent} – Reprise`;
  }
  byId('instrument').hidden = !WITH_INSTRUMENT.includes(view);
  document.body.dataset.view = view;
  showLive(view === 'live');
  if (view === 'modules') showModules();
  if (view === 'cache') showCache();
}

// ---- the server

function tellServer(state, words) {
  byId('server').dataset.state = state;
  byId('server-words').textContent = words;
}

async function isReady() {
  const response = await fetch('/readyz', { cache: 'no-store' });
  if (!response.ok) tellServer('waiting', (await response.text()).trim());
  return response.ok;
}

let watching = 0; // a timer

// A request got no answer: looks until the server is ready again.
function lookAgain() {
  tellServer('gone', 'unreachable');
  clearTimeout(watching);
  watching = setTimeout(watchServer, STATE_MS);
}

async function watchServer() {
  try {
    if (await isReady()) {
      const model = (await ask('GET', '/v1/models')).data[0];
      tellServer('ready', model.id);
      await updateModels();
      byId('server').title =
        `${model.meta.architecture}, ${(model.meta.n_params / 1e6).toFixed(0)} million parameters, context ${model.meta.n_ctx_train}`;
      byId('key-button').hidden = !getKey();
      return;
    }
  } catch (error) {
    if (error.status === 401) {
      tellServer('waiting', 'requires an API key');
      byId('key-button').hidden = false;
      return;
    }
    tellServer('gone', 'unreachable');
  }
  clearTimeout(watching);
  watching = setTimeout(watchServer, STATE_MS);
}

// ---- colours

const THEMES = { '': ['◐', 'system'], light: ['○', 'light'], dark: ['●', 'dark'] };

function tellTheme() {
  const [sign, words] = THEMES[document.documentElement.dataset.theme ?? ''];
  byId('theme-button').textContent = sign;
  byId('theme-button').setAttribute('aria-label', `Colours: ${words}`);
  byId('theme-button').title = `Colours: ${words}`;
}

function nextTheme() {
  const names = Object.keys(THEMES);
  const root = document.documentElement;
  const next = names[(names.indexOf(root.dataset.theme ?? '') + 1) % names.length];
  if (next) root.dataset.theme = next;
  else delete root.dataset.theme;
  try {
    localStorage.setItem('reprise-theme', next);
  } catch {
    /* for this page alone */
  }
  tellTheme();
}

// ---- the key

// Opens the dialog; a key, or null.
function askForKey(refusal) {
  const dialog = byId('key-dialog');
  const input = byId('key-input');
  byId('key-words').textContent = refusal
    ? `The API key was refused: ${refusal}.`
    : 'This server requires an API key. It is kept in this tab until the tab is closed.';
  input.value = '';
  dialog.returnValue = '';
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener('close', () => resolve(dialog.returnValue || null), { once: true });
  });
}

function startKey() {
  const dialog = byId('key-dialog');
  onKeyNeeded(askForKey);
  byId('key-form').addEventListener('submit', (event) => {
    event.preventDefault();
    dialog.close(byId('key-input').value.trim());
  });
  byId('key-cancel').addEventListener('click', () => dialog.close(''));
  byId('key-button').addEventListener('click', async () => {
    const key = await askForKey('');
    if (key) setKey(key);
    watchServer();
  });
}

onUnreachable(lookAgain);
startKey();
startChat();
startModules();
startInstrument();
startLive();
byId('theme-button').addEventListener('click', nextTheme);
tellTheme();
addEventListener('hashchange', show);
show();
watchServer();
