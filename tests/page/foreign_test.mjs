/* SPDX-License-Identifier: Apache-2.0 */
// foreign_test.mjs: a page of another origin in a browser, with every request that needs no preflight: none makes the server answer
// (make test-page). docs/decisions/0020-host-and-origin.md has the reasons.
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { after, before, test } from 'node:test';
import { openBrowser, serve } from './served.mjs';

const BODY = JSON.stringify({ prompt: 'Tom had a', max_tokens: 1 });
const ROUTES = ['/v1/completions', '/v1/chat/completions', '/completion', '/api/generate', '/api/chat', '/v1/messages', '/v1/prompts'];
// {"prompt": "a=", "max_tokens": 1}: what a form can send as text/plain is NAME=VALUE, and JSON can be written so.
const [FORM_NAME, FORM_VALUE] = ['{"prompt": "a', '", "max_tokens": 1}'];

let server, browser, foreign, sent;

// The foreign page, at a port of its own. Its policies: those that hide most of where a request comes from.
const page_ = (policy) => `<!doctype html><meta name="referrer" content="${policy}"><title>foreign</title><body></body>`;

before(async () => {
  server = await serve();
  browser = await openBrowser();
  foreign = createServer((request, reply) => {
    reply.setHeader('Content-Type', 'text/html');
    reply.end(page_(new URL(request.url, 'http://x').searchParams.get('policy') ?? ''));
  });
  await new Promise((resolve) => foreign.listen(0, '0.0.0.0', resolve));
});

after(async () => {
  await browser?.close();
  foreign?.close();
  assert.equal(await server?.stop(), 0);
});

// Counts of /metrics, asked for by no browser.
async function counts() {
  const text = await (await fetch(`${server.address}/metrics`)).text();
  const of = (name) => Number(new RegExp(`^${name} (\\d+)`, 'm').exec(text)[1]);
  let refused = 0;
  for (const [, n] of text.matchAll(/^reprise_rejections_total\{.*\} (\d+)/gm)) refused += Number(n);
  return { refused, answers: of('reprise_answers_total'), tokens: of('reprise_answer_tokens_total') };
}

// Opens the foreign page under a host name, and runs body(page, target), where target is another name of the server's machine.
async function fromForeignPage(host, policy, body) {
  const context = await browser.newContext();
  const page = await context.newPage();
  const port = new URL(server.address).port;
  const before_ = await counts();
  sent = 0;
  await page.goto(`http://${host}:${foreign.address().port}/?policy=${policy}`);
  const target = `http://${host === 'localhost' ? '127.0.0.1' : 'localhost'}:${port}`;
  await body(page, target);
  await body(page, `http://${host}:${port}`); // another port alone: the same site, another origin
  let now = await counts();
  for (; now.refused < before_.refused + sent; now = await counts()); // beacons and forms, too, which the page does not wait for
  await context.close();
  assert.ok(sent > 0);
  assert.deepEqual([now.answers, now.tokens], [before_.answers, before_.tokens], 'a foreign page has got an answer');
}

const POLICIES = ['no-referrer', 'unsafe-url', 'origin'];

for (const host of ['127.0.0.1', 'localhost'])
  for (const policy of POLICIES) {
    test(`fetch, beacons and images of ${host} with ${policy}`, { timeout: 60000 }, () =>
      fromForeignPage(host, policy, async (page, target) => {
        sent += await page.evaluate(
          async ([target_, routes, body]) => {
            let n = 0;
            const quiet = (promise) => promise.then(() => n++, () => n++);
            for (const route of routes) {
              const url = target_ + route;
              for (const type of [undefined, 'text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data; boundary=x'])
                for (const referrerPolicy of ['no-referrer', 'unsafe-url'])
                  await quiet(fetch(url, { method: 'POST', mode: 'no-cors', body, referrerPolicy, credentials: 'include', headers: type ? { 'Content-Type': type } : {} }));
              await quiet(fetch(url, { method: 'POST', mode: 'no-cors', body: new Blob([body]), keepalive: true })); // no type at all
              await quiet(fetch(url, { method: 'POST', mode: 'no-cors', body: new TextEncoder().encode(body) }));
              await quiet(fetch(url, { method: 'POST', mode: 'no-cors', body: new URLSearchParams([[body, '']]) }));
              for (const data of [body, new Blob([body]), new Blob([body], { type: 'text/plain' }), new URLSearchParams([[body, '']])])
                if (navigator.sendBeacon(url, data)) n++;
              await quiet(fetch(`${url}?${new URLSearchParams({ prompt: 'Tom', body })}`, { mode: 'no-cors' }));
              await new Promise((resolve) => {
                const image = new Image();
                image.onload = image.onerror = resolve;
                image.src = `${url}?prompt=Tom`;
              });
              n++;
            }
            return n;
          },
          [target, ROUTES, BODY],
        );
      }),
    );

    test(`what needs a preflight request, of ${host} with ${policy}`, { timeout: 60000 }, () =>
      fromForeignPage(host, policy, async (page, target) => {
        sent += await page.evaluate(
          async ([target_, body]) => {
            const failed = (promise) => promise.then(() => 0, () => 1);
            const json = { method: 'POST', body, headers: { 'Content-Type': 'application/json' } };
            return (await failed(fetch(`${target_}/v1/completions`, json))) + (await failed(fetch(`${target_}/v1/completions`, { method: 'PUT', body })));
          },
          [target, BODY],
        );
      }),
    );

    test(`forms of ${host} with ${policy}`, { timeout: 60000 }, () =>
      fromForeignPage(host, policy, async (page, target) => {
        sent += await page.evaluate(
          ([target_, routes, name, value]) => {
            let n = 0;
            for (const route of routes)
              for (const enctype of ['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data']) {
                const frame = Object.assign(document.createElement('iframe'), { name: `${target_} ${n}` }); // of its own: the next one does not replace it
                const form = Object.assign(document.createElement('form'), { action: target_ + route, method: 'post', enctype, target: frame.name });
                form.append(Object.assign(document.createElement('input'), { name, value }));
                document.body.append(frame, form);
                form.submit();
                n++;
              }
            return n;
          },
          [target, ROUTES, FORM_NAME, FORM_VALUE],
        );
      }),
    );
  }

// The same bodies do make the server answer when no browser sends them.
test('curl is answered', async () => {
  const { spawnSync } = await import('node:child_process');
  const before_ = await counts();
  for (const route of ['/v1/completions', '/completion']) {
    const done = spawnSync('curl', ['-s', '--fail', `${server.address}${route}`, '-d', BODY]);
    assert.equal(done.status, 0);
  }
  assert.equal((await counts()).answers, before_.answers + 2);
});
