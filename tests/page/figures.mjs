/* SPDX-License-Identifier: Apache-2.0 */
// figures.mjs: the screenshots of docs/figures, each of a server of its own that nobody else uses (tools/test_page --figures).
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import assert from 'node:assert/strict';
import { openBrowser, openPage, removeFolder, serve, temporaryFolder } from './served.mjs';
import { TABLES, TELEPHONE, runPrompt, saveSchema, send, waitForReduced } from './steps.mjs';

const FOLDER = process.env.REPRISE_PAGE_FIGURES;
const DOCUMENTS = join(dirname(fileURLToPath(import.meta.url)), '..', '..', 'examples', 'retrieval', 'documents.xml');
const documents = readFileSync(DOCUMENTS, 'utf8');

function figure(name, view, options, body) {
  test(`figure: ${name}`, { timeout: 120000 }, async () => {
    const folder = temporaryFolder();
    const server = await serve('--store', join(folder, 'store'));
    const browser = await openBrowser();
    try {
      const { page, faults, close } = await openPage(browser, server, view, options);
      await body(page, (file, more) => page.screenshot({ path: join(FOLDER, `${file}.png`), ...more }));
      assert.deepEqual(faults, []);
      await close();
    } finally {
      await browser.close();
      await server.stop();
      removeFolder(folder);
    }
  });
}

async function measure(page) {
  await page.click('#measure');
  await page.waitForFunction(() => document.querySelector('.figures').textContent.includes('measured'));
}

figure('modules', 'modules', { viewport: { width: 1200, height: 760 } }, async (page, draw) => {
  await page.click('#schema-new');
  await page.fill('#schema-text', documents);
  await saveSchema(page);
  const prompts = [
    ['<belvik/> <zantec/>', 'Where does Zantec have its office?'],
    ['<zantec/> <osthaven/> <lormax/>\n  <torstar/> <wolqueen/> <belvik/>', 'Who is the mayor of Belvik?'],
  ];
  for (const [modules, question] of prompts) {
    await page.fill('#prompt-text', `<prompt schema="documents">\n  ${modules}\n  <user>${question}</user>\n</prompt>`);
    await runPrompt(page);
  }
  await measure(page);
  await draw('page-modules');
  await page.evaluate(() => {
    location.hash = 'cache';
  });
  await page.locator('#cache-table tbody tr').first().waitFor();
  await draw('page-cache');
});

figure('reduced modules', 'modules', { viewport: { width: 1200, height: 760 } }, async (page, draw) => {
  await page.click('#schema-new');
  await page.fill('#schema-text', TABLES);
  await saveSchema(page);
  await waitForReduced(page, 'tables', 2);
  await page.fill('#prompt-text', '<prompt schema="tables">\n  <stars/> <town season="spring"/>\n  <user>Say the value of Emstar.</user>\n</prompt>');
  await page.fill('#prompt-kv-keep', '50%');
  await runPrompt(page);
  await page.locator('.mosaic .slot').nth(30).hover();
  await draw('page-reduced', { clip: await page.locator('#instrument').boundingBox() });
});

// All documents as instructions: the second question finds them in the prefix cache.
figure('a telephone', 'chat', { ...TELEPHONE, colorScheme: 'dark' }, async (page, draw) => {
  const texts = [...documents.matchAll(/<module name="[a-z]+">([^<]*)</g)].map((match) => match[1]);
  await page.click('#chat-settings summary');
  await page.fill('#chat-temperature', '0');
  await page.fill('#chat-system', `You answer from the documents. Read the documents. ${texts.join(' ')}`);
  await send(page, 'Who is the mayor of Osthaven?');
  await send(page, 'Who is the mayor of Belvik?');
  await page.click('#chat-settings summary');
  await page.click('.plan-more summary');
  await measure(page);
  await page.click('.plan-more summary');
  await draw('page-phone');
});
