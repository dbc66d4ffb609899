/* SPDX-License-Identifier: Apache-2.0 */
// steps.mjs: what a person does on the page, for its tests and its screenshots.

export const TELEPHONE = { viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true };

export async function saveSchema(page) {
  await page.click('#schema-save');
  await page.waitForFunction(() => document.querySelector('#schema-words').textContent.startsWith('saved'));
}

// Runs the prompt and waits for its report.
export async function runPrompt(page) {
  const before = await page.locator('#runs > li').count();
  await page.click('#prompt-run');
  await page.waitForFunction((n) => document.querySelectorAll('#runs > li').length > n, before);
  await page.waitForFunction(() => !document.querySelector('#prompt-run').disabled);
}

export async function send(page, message) {
  const before = await page.locator('.turn.assistant .run-line').count();
  await page.fill('#chat-text', message);
  await page.press('#chat-text', 'Enter');
  await page.waitForFunction((n) => document.querySelectorAll('.turn.assistant .run-line').length > n, before);
}
