/* SPDX-License-Identifier: Apache-2.0 */
// api.js: talking to the server that sent this page, and to nobody else. Keeps the API key in this tab's session.

const KEY = 'reprise-key';

// What the server refused, in its words.
export class Refused extends Error {
  constructor(status, error, request) {
    super(error?.message ?? `the server answered ${status}`);
    this.status = status;
    this.code = error?.code;
    this.request = request;
  }
}

let tellUnreachable = () => {};
let askForKey = async () => null; // -> a key, or null where there is none
let asking = null; // the question that is open

export const onKeyNeeded = (ask) => {
  askForKey = ask;
};

export const onUnreachable = (tell) => {
  tellUnreachable = tell;
};

export function getKey() {
  try {
    return sessionStorage.getItem(KEY) ?? '';
  } catch {
    return memory;
  }
}

let memory = ''; // where storage is switched off

export function setKey(key) {
  memory = key;
  try {
    sessionStorage.setItem(KEY, key);
  } catch {
    /* it stays in memory */
  }
}

async function refusal(response) {
  const request = response.headers.get('x-request-id');
  let error = null;
  try {
    error = (await response.json()).error;
  } catch {
    /* not JSON: only the status is known */
  }
  return new Refused(response.status, error, request);
}

function headersOf(options) {
  const headers = { ...options.headers };
  const key = getKey();
  if (key) headers.Authorization = `Bearer ${key}`;
  if (options.json !== undefined) headers['Content-Type'] = 'application/json';
  return headers;
}

// A response with a status below 400. options: json (an object) or body (text), headers, signal, quiet (never ask for a key).
async function send(method, path, options = {}) {
  for (;;) {
    const used = getKey();
    const response = await fetch(path, {
      method,
      headers: headersOf(options),
      body: options.json !== undefined ? JSON.stringify(options.json) : options.body,
      signal: options.signal,
      cache: 'no-store',
    }).catch((error) => {
      if (error instanceof TypeError) tellUnreachable();
      throw error;
    });
    if (response.ok) return response;
    const problem = await refusal(response);
    if (response.status !== 401 || options.quiet) throw problem;
    if (used !== getKey()) continue; // another request has got a key meanwhile
    asking ??= askForKey(used ? problem.message : '').finally(() => {
      asking = null;
    });
    const key = await asking;
    if (!key) throw problem;
    setKey(key);
  }
}

export async function ask(method, path, options) {
  const response = await send(method, path, options);
  const type = response.headers.get('Content-Type') ?? '';
  return type.includes('json') ? response.json() : response.text();
}

// The server's events, one by one: {event, data}. Errors in mid-stream are thrown.
export async function* events(method, path, options = {}) {
  const headers = { Accept: 'text/event-stream', ...options.headers };
  const response = await send(method, path, { ...options, headers });
  if (!(response.headers.get('Content-Type') ?? '').includes('event-stream')) {
    yield { event: 'done', data: await response.json() };
    return;
  }
  for await (const frame of frames(response.body)) {
    if (frame.data === '[DONE]') return;
    const data = JSON.parse(frame.data);
    if (data.error) throw new Refused(response.status, data.error, response.headers.get('x-request-id'));
    yield { event: frame.event, data };
  }
}

async function* frames(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      rest += value;
      for (let end; (end = rest.indexOf('\n\n')) >= 0; rest = rest.slice(end + 2)) {
        const frame = { event: '', data: '' };
        for (const line of rest.slice(0, end).split('\n')) {
          const colon = line.indexOf(': ');
          if (colon > 0) frame[line.slice(0, colon)] = line.slice(colon + 2);
        }
        if (frame.data) yield frame;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

// The message of a failed request, for the user.
export function problemWords(error) {
  if (error.name === 'AbortError') return 'stopped';
  if (error instanceof Refused) return error.message;
  return error instanceof TypeError ? 'the server is unreachable: check that it runs, then try again' : error.message;
}
