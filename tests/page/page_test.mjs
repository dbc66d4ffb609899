/* SPDX-License-Identifier: Apache-2.0 */
// page_test.mjs: the page in a browser, as a person would use it (make test-page). A server and a browser for all tests; each has a
// page and words of its own.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { keyFile, openBrowser, openPage, removeFolder, serve, serveModels, temporaryFolder } from './served.mjs';
import { lowContrast } from './contrast.mjs';
import { PHONES, TABLES, TELEPHONE, runPrompt, saveSchema, send, waitForReduced } from './steps.mjs';

const REFUSED = /status of 4\d\d/; // what Chromium says on the console of a reply that a test provokes
// What a view has when it is drawn.
const WHOLE = { chat: '.run-line', modules: '#schema-list > li', cache: 'table', live: '.chart' };
const KEY = 'key-of-the-page-0123456789';

let server, browser, folder;

before(async () => {
  folder = temporaryFolder();
  server = await serve('--store', join(folder, 'store'));
  browser = await openBrowser();
});

after(async () => {
  await browser?.close();
  assert.equal(await server?.stop(), 0);
  removeFolder(folder);
});

// Runs on a page of its own, which must have no faults at the end.
function pageTest(name, view, options, body) {
  test(name, { timeout: 120000 }, async () => {
    const opened = await openPage(browser, server, view, options);
    try {
      await body(opened.page);
      assert.deepEqual(opened.faults, []);
    } finally {
      await opened.close();
    }
  });
}

const text = (page, selector) => page.locator(selector).innerText();

async function hasNoSidewaysScrolling(page) {
  const [content, window_] = await page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]);
  assert.ok(content <= window_, `the page is ${content} wide in a window of ${window_}`);
}

const percentReused = async (page) => Number.parseInt(await page.locator('.figure strong').nth(1).innerText(), 10);

pageTest('a schema, a prompt, the mosaic, and a hit on the second run', 'modules', {}, async (page) => {
  await page.waitForSelector('#schema-text');
  await page.waitForFunction(() => document.querySelector('#schema-text').value.includes('cities'));
  const schema = (await page.inputValue('#schema-text'))
    .replace('On foot', 'on foot')
    .replace('</union>', '  <module name="porto">Porto is known for wine. Surfers go to Matosinhos.</module>\n      </union>');
  await page.fill('#schema-text', schema);
  await saveSchema(page);
  assert.equal(await page.locator('#schema-list .name[aria-current]').innerText(), 'cities');
  await page.locator('#schema-tree .node.module', { hasText: 'porto' }).waitFor();
  await page.fill('#prompt-text', '<prompt schema="cities">\n  <plan duration="3 days"><porto/></plan>\n  Where is surf?\n</prompt>');
  await runPrompt(page);
  const first = await percentReused(page);
  assert.ok((await text(page, '#prompt-answer')).length > 0);
  await runPrompt(page);
  const second = await percentReused(page);
  assert.ok(second > 50 && second >= first, `${first} % and then ${second} % were reused`);
  const tiles = page.locator('.mosaic .tile');
  assert.ok((await tiles.count()) >= 3);
  assert.ok((await page.locator('.mosaic .tile.ram').count()) > 0);
  assert.ok((await page.locator('.mosaic .tile.fresh').count()) > 0);
  assert.equal(await page.locator('.mosaic .slot, .legend .scale').count(), 0); // no module is reduced
  assert.match(
    await page.locator('.mosaic .tile.ram', { hasText: 'porto' }).first().getAttribute('aria-label'),
    /porto: \d+ tokens at \d+, reused from RAM/,
  );
  await page.locator('.mosaic .tile').first().focus();
  const told = await text(page, '.detail');
  await page.keyboard.press('ArrowRight');
  assert.notEqual(await text(page, '.detail'), told);
  assert.match(await text(page, '.figures'), /estimated/);
  await page.click('#measure');
  await page.waitForFunction(() => document.querySelector('.figures').textContent.includes('measured'));
});

pageTest('a reduced module shows which slots are kept, and a reduced answer what it was given', 'modules', {}, async (page) => {
  await page.click('#schema-new');
  await page.fill('#schema-text', TABLES);
  await saveSchema(page);
  await page.fill('#prompt-text', '<prompt schema="tables">\n  <stars/> <town season="spring"/>\n  <user>Say the value of Emstar.</user>\n</prompt>');
  await waitForReduced(page, 'tables', 2);
  await page.fill('#prompt-kv-keep', '50%');
  await runPrompt(page);
  const tile = page.locator('.mosaic .tile', { hasText: 'stars' });
  const [, n] = /stars: (\d+) tokens at \d+, reused from RAM/.exec(await tile.getAttribute('aria-label'));
  assert.match(await tile.getAttribute('aria-label'), /keeps 25 % of its KV \(kvzip\), each slot in [\d.]+ % to \d+ % of heads/);
  const shares = await tile.locator('.slot').evaluateAll((cells) => cells.map((cell) => Number(cell.getAttribute('fill-opacity'))));
  assert.ok(shares.length <= Number(n) && shares.length > Number(n) / 4, `${shares.length} cells of ${n} tokens`);
  const mean = shares.reduce((sum, share) => sum + share, 0) / shares.length;
  assert.ok(Math.abs(mean - 0.25) < 0.03 && new Set(shares).size > 4, `cells are ${shares}`);
  await tile.locator('.slot').nth(3).hover();
  assert.match(await text(page, '.detail'), /stars[\s\S]*tokens? at [\d ,to]+: kept by [\d.]+ % of heads/);
  assert.match(await tile.locator('.slot title').nth(3).evaluate((node) => node.textContent), /kept by [\d.]+ % of heads/);
  await tile.focus();
  assert.match(await text(page, '.detail'), /keeps 25 % of its KV/);
  assert.equal(await page.locator('.legend .scale').count(), 1);
  assert.match(
    await text(page, '.bars:has([aria-label="KV for the answer"])'),
    /[\d.]+ .iB of [\d.]+ .iB \(\d+ %\)\s+\d+ % of the slots, chosen by snapkv/,
  );
});

test('what was computed before a restart is blue: it comes from disk', { timeout: 120000 }, async () => {
  const store = join(folder, 'restarted');
  for (const source of ['computed', 'disk']) {
    const again = await serve('--store', store, '--write', 'through');
    const { page, faults, close } = await openPage(browser, again, 'modules');
    try {
      await page.waitForFunction(() => document.querySelector('#schema-text').value.includes('cities'));
      const put = await page.evaluate(
        async () =>
          (await fetch('/v1/schemas/cities?prefill=false', { method: 'PUT', headers: { 'Content-Type': 'application/xml' }, body: document.querySelector('#schema-text').value })).status,
      );
      assert.equal(put, 200);
      await runPrompt(page);
      assert.ok((await page.locator(`.mosaic .tile.${source}`).count()) > 0, `no tile is ${source}`);
      assert.deepEqual(faults, []);
    } finally {
      await close();
      assert.equal(await again.stop(), 0);
    }
  }
});

pageTest('wrong PML shows its error at its line', 'modules', { expected: REFUSED }, async (page) => {
  await page.click('#schema-new');
  await page.fill('#schema-text', '<schema name="wrong">\n  <module name="a">One.</module>\n  <frob/>\n</schema>\n');
  await page.click('#schema-save');
  await page.locator('#schema-text-problem .place').waitFor();
  assert.equal(await text(page, '#schema-text-problem .place'), 'line 3, column 3');
  assert.match(await text(page, '#schema-text-problem'), /frob/);
  assert.equal(await text(page, '#schema-editor .gutter .wrong'), '3');
  assert.equal(await text(page, '#schema-editor .ink .here'), '<');
  await page.click('#schema-text-problem .place');
  assert.equal(
    await page.evaluate(() => document.activeElement.selectionStart),
    '<schema name="wrong">\n  <module name="a">One.</module>\n  '.length,
  );
  await page.fill('#schema-text', '<schema name="wrong">\n  <module name="a">One.</module>\n</schema>\n');
  assert.equal(await page.locator('#schema-text-problem .place').count(), 0);
  await saveSchema(page);
  await page.fill('#prompt-text', '<prompt schema="wrong">\n  <b/>\n</prompt>');
  await page.click('#prompt-run');
  await page.locator('#prompt-text-problem .place').waitFor();
  assert.equal(await text(page, '#prompt-text-problem .place'), 'line 2, column 3');
  await page.click('#schema-delete');
  await page.waitForFunction(() => document.querySelector('#schema-words').textContent === 'deleted');
});

pageTest('a chat streams, is stopped, and finds its beginning again', 'chat', {}, async (page) => {
  await page.waitForFunction(() => document.querySelector('#server').dataset.state === 'ready');
  await page.click('#chat-settings summary');
  await page.fill('#chat-system', 'Read the documents. Osthaven is a town in the north. Corwyn was elected mayor of Osthaven.');
  await page.fill('#chat-temperature', '0');
  await page.fill('#chat-max-tokens', '24');
  await send(page, 'Who is the mayor of Osthaven?');
  assert.ok((await text(page, '.turn.assistant .said')).length > 0);
  await send(page, 'And where is it?');
  assert.match(await page.locator('.turn.assistant .run-line').nth(1).innerText(), /\d+ tokens, \d+ cached · first token/);
  assert.ok((await percentReused(page)) > 40);
  await page.click('#chat-again');
  await page.waitForFunction(() => document.querySelectorAll('#runs > li').length === 3);
  assert.equal(await page.locator('.turn.assistant').count(), 2);
  await page.click('#chat-new');
  assert.equal(await page.locator('.turn').count(), 0);
  await send(page, 'Who is the mayor of this town?');
  assert.match(await text(page, '.mismatch'), /Differs from the cached prefix at token \d+[\s\S]*this town[\s\S]*Osthaven/);
  assert.equal(await page.locator('.mosaic .mark').count(), 1);
});

pageTest('a long answer is stopped', 'chat', {}, async (page) => {
  await page.click('#chat-settings summary');
  await page.fill('#chat-max-tokens', '1500');
  await page.route('**/v1/chat/completions', async (route) => {
    await route.continue({ postData: JSON.stringify({ ...route.request().postDataJSON(), ignore_eos: true }) });
  });
  await page.evaluate(() => {
    // at once: the model is fast
    const stop = () =>
      document.querySelector('.turn.assistant .said')?.textContent.length > 5 && document.querySelector('#chat-stop').click();
    new MutationObserver(stop).observe(document.querySelector('#chat-log'), { subtree: true, childList: true });
  });
  await page.fill('#chat-text', 'Tom had a');
  await page.click('#chat-send');
  await page.waitForFunction(() => document.querySelector('.turn.assistant .foot')?.textContent === 'stopped');
  assert.equal(await page.isDisabled('#chat-send'), false);
});

pageTest('the cache lists entries, pins and removes one', 'modules', {}, async (page) => {
  await page.click('#schema-new');
  await page.fill('#schema-text', '<schema name="kept"><module name="pins">Nobody else has these words.</module><module name="nails">Nor these.</module></schema>');
  await saveSchema(page);
  await page.evaluate(() => {
    location.hash = 'cache';
  });
  await page.fill('#cache-filter', 'kept/pins');
  assert.equal(await page.locator('#cache-table tbody tr').count(), 1);
  const key = await page.locator('#cache-table tbody tr').first().getAttribute('data-key');
  const row = page.locator(`#cache-table tr[data-key="${key}"]`);
  await page.locator('#cache-map .tile.group[data-id="kept"]').click();
  const tile = page.locator(`#cache-map .tile[data-id="${key}"]`);
  assert.match(await tile.getAttribute('aria-label'), /kept\/pins: [\d.]+ .iB, \d+ tokens, in ram/);
  await row.locator('.pin-button').click();
  await row.locator('.pinned').waitFor();
  await row.locator('.pin-button').click();
  await row.locator('.pinned').waitFor({ state: 'detached' });
  await tile.focus();
  await page.keyboard.press('Enter');
  assert.equal(await page.locator('tr.chosen').getAttribute('data-key'), key);
  await page.fill('#cache-filter', key);
  assert.equal(await page.locator('#cache-table tbody tr').count(), 1);
  await row.getByRole('button', { name: /^Remove/ }).click();
  await page.waitForFunction((k) => !document.querySelector(`[data-key="${k}"]`), key);
});

pageTest('charts of the server', 'live', {}, async (page) => {
  await page.waitForFunction(() => document.querySelectorAll('.chart').length === 3);
  assert.match(await page.locator('.chart svg').nth(1).getAttribute('aria-label'), /^Hit rate/);
  assert.ok((await page.locator('[role="meter"]').count()) >= 1);
  let asked = 0;
  page.on('request', (request) => {
    asked += request.url().endsWith('/metrics') ? 1 : 0;
  });
  await page.goto(`${server.address}/#chat`);
  await page.waitForTimeout(2500); // longer than the pause between two looks
  assert.equal(asked, 0);
});

pageTest('keys go everywhere', 'chat', {}, async (page) => {
  await page.keyboard.press('Tab');
  assert.equal(await page.evaluate(() => document.activeElement.className), 'skip');
  for (const wanted of ['Chat', 'Modules']) {
    await page.keyboard.press('Tab');
    assert.equal(await page.evaluate(() => document.activeElement.textContent), wanted);
  }
  await page.keyboard.press('Enter');
  await page.locator('#view-modules').waitFor({ state: 'visible' });
  assert.equal(await page.title(), 'Modules – Reprise');
  const nameless = await page.evaluate(() =>
    [...document.querySelectorAll('button, input, select, textarea, a')]
      .filter((e) => !(e.textContent.trim() || e.getAttribute('aria-label') || e.labels?.length))
      .map((e) => e.outerHTML),
  );
  assert.deepEqual(nameless, []);
});

pageTest('light and dark', 'chat', { colorScheme: 'light' }, async (page) => {
  const paper = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await paper();
  await page.emulateMedia({ colorScheme: 'dark' });
  const dark = await paper();
  assert.notEqual(dark, light);
  await page.click('#theme-button');
  assert.equal(await paper(), light);
  await page.reload();
  assert.equal(await paper(), light);
  await page.click('#theme-button');
  assert.equal(await paper(), dark);
});

pageTest('a telephone', 'chat', TELEPHONE, async (page) => {
  await send(page, 'Tom had a red ball. What did Tom have?');
  for (const view of ['chat', 'modules', 'cache', 'live']) {
    await page.evaluate((v) => {
      location.hash = v;
    }, view);
    await page.locator(`#view-${view}`).waitFor({ state: 'visible' });
    await page.locator(`#view-${view} ${WHOLE[view]}`).first().waitFor();
    await hasNoSidewaysScrolling(page);
  }
});

test('a server with keys asks for one', { timeout: 120000 }, async () => {
  const guarded = await serve('--api-keys', await keyFile(folder, KEY, 'rights=request,schemas'));
  const { page, faults, close } = await openPage(browser, guarded, 'chat', { expected: REFUSED });
  try {
    await page.locator('#key-dialog[open]').waitFor();
    await page.fill('#key-input', 'a-key-that-nobody-has');
    await page.press('#key-input', 'Enter');
    await page.waitForFunction(() => document.querySelector('#key-words').textContent.includes('refused'));
    await page.fill('#key-input', KEY);
    await page.press('#key-input', 'Enter');
    await page.waitForFunction(() => document.querySelector('#server').dataset.state === 'ready');
    await send(page, 'Tom had a');
    for (const view of ['cache', 'live']) {
      await page.evaluate((v) => {
        location.hash = v;
      }, view);
      await page.locator(`#view-${view} .note`).waitFor();
      assert.match(await text(page, `#view-${view} .note`), /operate/);
    }
    assert.deepEqual(faults, []);
  } finally {
    await close();
    assert.equal(await guarded.stop(), 0);
  }
});

const ANSWER = `## A list\n\n1. **one** and \`code\`\n2. two\n   - inner *item*\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n
\`\`\`python\n# note\ndef f(x):\n    return "text" + str(42)\n\`\`\`
[good](https://example.org/x) [bad](javascript:alert(1)) <img src=x onerror=alert(1)> snake_case_name\n`;

// The server's own stream with another text: no model here writes Markdown.
async function answerWith(page, delta) {
  await page.route('**/v1/chat/completions', async (route) => {
    const response = await route.fetch();
    const pieces = Object.entries(delta).flatMap(([field, value]) => [...value.matchAll(/[\s\S]{1,7}/g)].map(([piece]) => ({ [field]: piece })));
    const first = pieces.map((piece) => `data: ${JSON.stringify({ choices: [{ index: 0, delta: piece }] })}\n\n`).join('');
    const rest = (await response.text()).replace(/"content":"[^"]*"/g, '"content":""');
    await route.fulfill({ response, body: first + rest });
  });
}

pageTest('Markdown, coloured code and reasoning of an answer', 'chat', {}, async (page) => {
  await answerWith(page, { reasoning_content: 'First I **think**.', content: ANSWER });
  await send(page, 'Show me.');
  const said = page.locator('.turn.assistant > .said');
  assert.equal(await said.locator('h4').innerText(), 'A list');
  assert.equal(await said.locator('ol > li').count(), 2);
  assert.equal(await said.locator('ol ul em').innerText(), 'item');
  assert.equal(await said.locator('table td.number').innerText(), '2');
  assert.deepEqual(await said.locator('.code-keyword').allInnerTexts(), ['def', 'return']);
  assert.equal(await said.locator('.code-comment').innerText(), '# note');
  assert.equal(await said.locator('a').count(), 1);
  assert.match(await said.locator('a').getAttribute('rel'), /noopener/);
  assert.equal(await said.locator('img').count(), 0);
  assert.match(await said.innerText(), /<img src=x onerror=alert\(1\)> snake_case_name/);
  assert.equal(await page.locator('.reasoning').getAttribute('open'), null);
  assert.equal(await page.locator('.reasoning strong').textContent(), 'think');
});

pageTest('conversations are kept, found, named, exported, imported and deleted', 'chat', {}, async (page) => {
  await send(page, 'A word that no other has: zyxwv.');
  await page.click('#chat-settings summary');
  await page.fill('#chat-temperature', '0.3');
  await send(page, 'And more.');
  await page.locator('#chats-list [aria-current]').waitFor();
  await page.click('#chat-new');
  await send(page, 'Another one.');
  await page.locator('#chats-list li').nth(1).waitFor();
  await page.reload();
  await page.locator('#chats-list li').nth(1).waitFor();
  await page.fill('#chats-search', 'zyxwv');
  await page.waitForFunction(() => document.querySelectorAll('#chats-list li').length === 1);
  await page.click('#chats-list .name');
  assert.equal(await page.locator('.turn').count(), 4);
  assert.equal(await page.inputValue('#chat-temperature'), '0.3');
  const download = page.waitForEvent('download');
  await page.getByRole('button', { name: /^JSON/ }).click();
  const path = await (await download).path();
  await page.getByRole('button', { name: /^Delete/ }).click();
  await page.locator('#chats-list', { hasText: 'No conversation matches' }).waitFor();
  assert.equal(await page.locator('.turn').count(), 0);
  await page.setInputFiles('#chats-file', path);
  await page.locator('#chats-list .name').waitFor();
  await page.setInputFiles('#chats-file', { name: 'x.json', mimeType: 'application/json', buffer: Buffer.from('{"a": 1}') });
  await page.waitForFunction(() => document.querySelector('#chats-words').textContent.startsWith('Not imported'));
  await page.click('#chats-list .name');
  await page.locator('.turn.user').nth(1).getByRole('button', { name: 'Edit' }).click();
  assert.equal(await page.inputValue('#chat-text'), 'And more.');
  assert.equal(await page.locator('.turn').count(), 2);
});

// ---- the cache map

const openView = (page, view) =>
  page.evaluate((v) => {
    location.hash = v;
  }, view);
const idOfFocus = (page) => page.evaluate(() => document.activeElement.dataset.id);

for (const [name, options] of [['desktop', {}], ['telephone', TELEPHONE]])
  pageTest(`the map shows groups, which are opened and left by keys and pointer: ${name}`, 'modules', options, async (page) => {
    const schema = `map-${name}`;
    await page.click('#schema-new');
    await page.fill(
      '#schema-text',
      `<schema name="${schema}"><module name="plan">A plan of ${name}. <module name="north">To the north of ${name}.</module>
        <module name="south">To the south of ${name}.</module></module><module name="food">Bread of ${name}.</module></schema>`,
    );
    await saveSchema(page);
    await openView(page, 'chat');
    await send(page, `A prompt for the prefix cache of a ${name}.`);
    await openView(page, 'cache');
    const group = page.locator(`#cache-map .tile.group[data-id="${schema}"]`);
    const words = async () => (await group.getAttribute('aria-label')).match(/: ([\d.]+ .iB), (\d+) entries/);
    const [, , n] = await words();
    assert.ok(Number(n) >= 4);
    assert.match(await page.locator('#cache-map .tile.group[data-id=":text"]').getAttribute('aria-label'), /^Prefix cache: /);
    await group.focus();
    await page.keyboard.press('Enter');
    assert.equal(await page.locator('.crumbs [aria-current]').innerText(), schema);
    assert.ok(await idOfFocus(page), 'no tile of the group has the focus');
    assert.equal(await page.locator('#cache-table tbody tr').count(), Number(n));
    for (const label of await page.locator('#cache-table .entry-name').allInnerTexts()) assert.ok(label.startsWith(schema), label);
    await page.locator('#cache-map .tile.group[data-id="plan"]').click();
    assert.equal(await page.locator('#cache-map .tile').count(), Number(await page.locator('#cache-table tbody tr').count()));
    await page.keyboard.press('Escape');
    assert.equal(await idOfFocus(page), 'plan');
    await page.keyboard.press('Backspace');
    assert.equal(await idOfFocus(page), schema);
    await group.click();
    await page.locator('.crumbs button').first().click();
    assert.equal(await idOfFocus(page), schema);
    await hasNoSidewaysScrolling(page);
  });

test('the map of 10,000 entries', { timeout: 180000 }, async () => {
  const full = await serve();
  const { page, faults, close } = await openPage(browser, full, 'chat', TELEPHONE);
  try {
    await page.evaluate(async () => {
      for (let k = 0; k < 10; k++) {
        const modules = Array.from({ length: 1000 }, (_, i) => `<module name="m${i}">Town ${i} of ${k}.</module>`).join('');
        const options = { method: 'PUT', headers: { 'Content-Type': 'application/xml' }, body: `<schema name="s${k}">${modules}</schema>` };
        if (!(await fetch(`/v1/schemas/s${k}`, options)).ok) throw new Error(`schema ${k} was refused`);
      }
    });
    await openView(page, 'cache');
    await page.locator('#cache-map .tile').first().waitFor();
    assert.match(await text(page, '.crumbs'), /10,0\d\d entries/);
    assert.equal(await page.locator('#cache-map .tile.group').count(), 10);
    await page.locator('#cache-map .tile.group').first().focus();
    await page.keyboard.press('Enter');
    const tiles = page.locator('#cache-map .tile');
    assert.ok((await tiles.count()) <= 151, `${await tiles.count()} tiles`);
    const small = await tiles.evaluateAll((nodes) => nodes.map((node) => node.getBoundingClientRect()).filter((r) => r.width * r.height < 24 * 24).length);
    assert.equal(small, 0); // a finger finds each of them
    const more = page.locator('#cache-map .tile.group', { hasText: 'more' });
    const inGroup = Number(/([\d,]+) entries/.exec(await text(page, '.crumbs'))[1].replace(',', ''));
    const others = inGroup - (await tiles.count()) + 1;
    assert.match(await more.getAttribute('aria-label'), new RegExp(`^${others} more: .* ${others} entries`));
    await more.click();
    assert.equal(await page.locator('.crumbs [aria-current]').innerText(), `${others} more`);
    assert.match(await text(page, '.pager'), new RegExp(`${others} of 10,0`));
    await page.fill('#cache-filter', 'm99');
    assert.match(await text(page, '.pager'), /page 1 of/);
    await hasNoSidewaysScrolling(page);
    assert.deepEqual(faults, []);
  } finally {
    await close();
    assert.equal(await full.stop(), 0);
  }
});

// ---- small windows

for (const [width, height] of PHONES) {
  const options = { ...TELEPHONE, viewport: { width, height } };
  const inWindow = async (page, selector) => {
    const box = await page.locator(selector).boundingBox();
    assert.ok(box && box.y >= 0 && box.y + box.height <= height, `${selector} is at ${JSON.stringify(box)} of ${height}`);
    return box;
  };

  pageTest(`mosaic, answer and message field are above the fold: ${width}x${height}`, 'chat', options, async (page) => {
    await send(page, `Tom had a red ball of ${width} grams. What did Tom have?`);
    await send(page, 'And what colour is it?');
    const mosaic = await inWindow(page, '.mosaic');
    const field = await inWindow(page, '#chat-text');
    await inWindow(page, '#chat-send');
    const log = await inWindow(page, '#chat-log');
    assert.ok(mosaic.y + mosaic.height <= log.y && log.y + log.height <= field.y && log.height >= 150, `the conversation has ${log.height}`);
    await page.locator('.mosaic .tile').first().tap();
    assert.match(await text(page, '.detail'), /tokens? at 0/);
    await page.click('.plan-more summary');
    await page.locator('#measure').waitFor({ state: 'visible' });
    await page.click('.plan-more summary');
    await page.click('#chat-settings summary');
    await inWindow(page, '#chat-send');
    await hasNoSidewaysScrolling(page);
  });

  pageTest(`the mosaic stays above the fold where a prompt is run: ${width}x${height}`, 'modules', options, async (page) => {
    await page.click('#schema-new');
    await page.fill('#schema-text', `<schema name="fold-${width}"><module name="a">Towns of the north, and towns of the south.</module></schema>`);
    await saveSchema(page);
    await page.fill('#prompt-text', `<prompt schema="fold-${width}"><a/><user>Which?</user></prompt>`);
    await runPrompt(page);
    await page.locator('#prompt-answer').scrollIntoViewIfNeeded();
    await inWindow(page, '.mosaic');
    await inWindow(page, '#prompt-answer');
  });
}

// ---- what people see

for (const colorScheme of ['light', 'dark'])
  for (const [name, options] of [['desktop', {}], ['telephone', TELEPHONE]])
    pageTest(`text has a contrast of 4.5 to 1: ${colorScheme}, ${name}`, 'chat', { ...options, colorScheme }, async (page) => {
      await answerWith(page, { reasoning_content: 'Thoughts.', content: ANSWER });
      await send(page, 'Show me.');
      await page.click('.reasoning summary');
      await page.click('#chat-settings summary');
      await page.click('.more-fields summary');
      await page.evaluate(() => document.querySelectorAll('details').forEach((node) => (node.open = true)));
      assert.deepEqual(await lowContrast(page), []);
      for (const view of ['modules', 'cache', 'live']) {
        await openView(page, view);
        await page.locator(`#view-${view} ${WHOLE[view]}`).first().waitFor();
        if (view === 'modules') await page.fill('#schema-text', TABLES);
        assert.deepEqual(await lowContrast(page), []);
      }
      await page.evaluate(() => document.documentElement.style.setProperty('--soft', '#888'));
      if (colorScheme === 'light') assert.notDeepEqual(await lowContrast(page), []); // the measure sees what is too pale
    });

pageTest('the focus is seen on every control', 'chat', {}, async (page) => {
  await send(page, 'Tom had a');
  const without = [];
  for (let i = 0; i < 40; i++) {
    await page.keyboard.press('Tab');
    const seen = await page.evaluate(() => {
      const at = document.activeElement;
      const outlined = (node) => node && getComputedStyle(node).outlineStyle !== 'none';
      return at === document.body || outlined(at) || outlined(at.querySelector('.body')) || at.closest('.tile') ? '' : at.outerHTML.slice(0, 80);
    });
    if (seen) without.push(seen);
  }
  assert.deepEqual(without, []);
  const moving = await page.evaluate(() => [...document.querySelectorAll('*')].filter((e) => getComputedStyle(e).transitionDuration !== '0s').length);
  assert.equal(moving, 0); // the tests ask for reduced motion
});

pageTest('right-to-left text, long lines', 'chat', TELEPHONE, async (page) => {
  await answerWith(page, { content: `שלום, זה טקסט.\n\n\`\`\`\n${'y'.repeat(400)}\n\`\`\`\n\n${'z'.repeat(400)}\n\n|${' wide cell |'.repeat(12)}\n|${'---|'.repeat(12)}\n|${' 1 |'.repeat(12)}\n` });
  await send(page, 'مرحبا كيف حالك');
  await page.locator('.turn.assistant .said p').first().waitFor();
  const directions = await page.locator('.turn .said').evaluateAll((nodes) => nodes.map((node) => getComputedStyle(node).direction));
  assert.deepEqual(directions, ['rtl', 'rtl']);
  await hasNoSidewaysScrolling(page);
  const [content, width] = await page.locator('#chat-log').evaluate((log) => [log.scrollWidth, log.clientWidth]);
  assert.ok(content <= width, `the log is ${content} wide in ${width}`);
});

// ---- failures

pageTest('a prompt that is too long goes back into the field, and is no turn', 'chat', { expected: REFUSED }, async (page) => {
  await send(page, 'Tom had a');
  const long = 'word '.repeat(5000).trim();
  await page.fill('#chat-text', long);
  await page.click('#chat-send');
  await page.locator('.turn .wrong').waitFor();
  assert.match(await text(page, '.turn .wrong'), /maximum context length is \d+ tokens/);
  assert.equal(await page.inputValue('#chat-text'), long);
  assert.equal(await page.locator('.turn.dropped .tools').count(), 0); // they are no turns that could be edited
  await page.fill('#chat-text', '');
  await send(page, 'And then?');
  assert.equal(await page.locator('.turn.dropped').count(), 0);
  assert.equal(await page.locator('.turn').count(), 4);
});

test('a server that ends is reported, in the chat and above it', { timeout: 120000 }, async () => {
  const ending = await serve();
  const { page, close } = await openPage(browser, ending, 'chat', { expected: /Failed to load/ });
  try {
    await page.waitForFunction(() => document.querySelector('#server').dataset.state === 'ready');
    assert.equal(await ending.stop(), 0);
    await page.fill('#chat-text', 'Is there anybody?');
    await page.click('#chat-send');
    await page.locator('.turn .wrong', { hasText: 'the server is unreachable' }).waitFor();
    assert.equal(await page.inputValue('#chat-text'), 'Is there anybody?');
    await page.waitForFunction(() => document.querySelector('#server').dataset.state === 'gone');
    await openView(page, 'cache');
    await page.locator('#view-cache [role="alert"]').waitFor();
  } finally {
    await close();
  }
});

// ---- conversations, documents, models

pageTest('documents have the names of their first words, beside one that is too short for a module', 'chat', {}, async (page) => {
  const long = (name) => `${name} is a town in the north of the country. The mayor was elected last year. ${name} is known for its clocks, its river and its market on Fridays.`;
  await page.click('#chat-settings summary');
  await page.fill('#chat-documents', [long('Osthaven'), 'Short.', long('Belvik')].join('\n---\n'));
  await send(page, 'Which towns are there?');
  const names = await page.locator('.mosaic .tile').evaluateAll((tiles) => tiles.map((tile) => tile.getAttribute('aria-label')));
  for (const town of ['Osthaven', 'Belvik']) assert.ok(names.some((name) => name.includes(`${town} is a town`)), `${names}`);
  await openView(page, 'cache');
  await page.locator('#cache-map .tile.group', { hasText: 'Documents of' }).click();
  await page.locator('#cache-table .entry-name', { hasText: 'Osthaven is a town' }).first().waitFor();
});

pageTest('the oldest of 200 conversations is removed', 'chat', {}, async (page) => {
  await page.evaluate(async () => {
    const { newId, saveConversation } = await import('/web/conversations.js');
    const turns = [{ role: 'user', content: 'Hello' }];
    for (let i = 0; i < 200; i++) await saveConversation({ id: newId(), title: `Conversation ${i}`, at: 1e12 + i, settings: {}, turns });
  });
  await page.reload();
  await page.locator('#chats-list .name', { hasText: 'Conversation 0' }).waitFor();
  assert.equal(await page.locator('#chats-list li').count(), 200);
  await send(page, 'One more.');
  await page.waitForFunction(() => document.querySelector('#chats-words').textContent.includes('removed'));
  assert.equal(await page.locator('#chats-list li').count(), 200);
  assert.equal(await page.locator('#chats-list .name', { hasText: /^Conversation 0$/ }).count(), 0);
});

test('a conversation has its model', { timeout: 120000 }, async () => {
  const several = await serveModels('first', 'second');
  const { page, faults, close } = await openPage(browser, several, 'chat');
  const asked = [];
  page.on('request', (request) => {
    if (request.url().endsWith('/v1/chat/completions')) asked.push(request.postDataJSON().model);
  });
  try {
    await page.locator('#chat-model').waitFor({ state: 'visible' });
    assert.deepEqual(await page.locator('#chat-model option').allInnerTexts(), ['first', 'second']);
    await send(page, 'For the first.');
    await page.locator('#chats-list li .name').waitFor();
    await page.click('#chat-new');
    await page.selectOption('#chat-model', 'second');
    await send(page, 'For the second.');
    await page.locator('#chats-list li').nth(1).waitFor();
    await page.reload();
    await page.locator('#chat-model').waitFor({ state: 'visible' });
    for (const [title, name] of [['For the second.', 'second'], ['For the first.', 'first']]) {
      await page.locator('#chats-list .name', { hasText: title }).click();
      assert.equal(await page.inputValue('#chat-model'), name);
    }
    await send(page, 'Again.');
    assert.deepEqual(asked, ['first', 'second', 'first']);
    await openView(page, 'cache');
    await page.locator('#view-cache .model-chooser').selectOption('second');
    await page.locator('#cache-table tbody tr').first().waitFor();
    await openView(page, 'live');
    await page.locator('#view-live [role="meter"]').first().waitFor();
    assert.match(await text(page, '#view-live .budgets'), /[\d.]+ .iB of 4\.00 GiB/); // both models' caches
    assert.deepEqual(faults, []);
  } finally {
    await close();
    assert.equal(await several.stop(), 0);
  }
});

pageTest('one model needs no chooser', 'chat', {}, async (page) => {
  const request = page.waitForRequest('**/v1/chat/completions');
  await send(page, 'Tom had a');
  assert.equal((await request).postDataJSON().model, undefined);
  assert.equal(await page.locator('#chat-model').isVisible(), false);
});
