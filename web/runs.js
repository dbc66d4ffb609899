/* SPDX-License-Identifier: Apache-2.0 */
// runs.js: the prompts that this page has sent, newest first, and which of them is looked at.
//
// A run: {kind: 'chat' | 'prompt', title, at, report (`reprise` in the reply), without (ms, measured without reuse),
// measure (asks the same without reuse, gives its report)}.

const MOST = 100;
export const KEPT_SHARES = 1024; // requested numbers of kept slots: more than the cells of a mosaic

const list = [];
let chosen = null;
const changed = new EventTarget();

export const runs = () => list;
export const chosenRun = () => chosen;
export const onRuns = (f) => changed.addEventListener('change', f);

const tell = () => changed.dispatchEvent(new Event('change'));

export function addRun(run) {
  list.unshift(run);
  list.length = Math.min(list.length, MOST);
  chosen = run;
  tell();
  return run;
}

export function chooseRun(run) {
  chosen = run;
  tell();
}

// Milliseconds from the arrival of the request to its first token: queue, module prefill, plan and prompt prefill.
export const waited = (report) => report.ms.first_token;

// The same if nothing had been reused: {ms, measured}, or null if it is unknown, or nothing was reused.
export function withoutReuse(run) {
  if (run.without !== undefined) return { ms: run.without, measured: true };
  const saved = run.report.ms.saved;
  return saved > 0 ? { ms: waited(run.report) + saved, measured: false } : null;
}

export const onMeasured = (f) => changed.addEventListener('measured', (event) => f(event.run));

export async function measure(run) {
  run.without = waited(await run.measure());
  changed.dispatchEvent(Object.assign(new Event('measured'), { run }));
  tell();
}
