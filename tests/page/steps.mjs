/* SPDX-License-Identifier: Apache-2.0 */
// steps.mjs: what a person does on the page, for its tests and its screenshots.

export const TELEPHONE = { viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true };
export const PHONES = [
  [390, 844],
  [360, 640],
];

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

// Two modules of reduced KV, one with a parameter.
export const TABLES = `<schema name="tables" keep="25%">
  <system>You are a helpful assistant. Read the documents.
    <module name="stars">Table. Telstar = Inell; Galgull = Lanope; Rosbell = Umbade; Kalrose = Ralron;
      Linfin = Narix; Linrose = Ostette; Malbell = Arope; Velbreeze = Grimark; Zelsong = Bramana; Rosheart = Thalyx;
      Dandawn = Ruskark; Emstar = Falire; Stavtide = Umbumo; Telswan = Falark; Danstorm = Kirino; Nelwave = Ralosk;</module>
    <module name="town">In <param name="season" len="8"/> Osthaven is a town in the north. Corwyn was elected mayor of Osthaven.
      The river Velbrook runs through Osthaven. The market of Osthaven is held every Friday. Belvik lies in the south of
      the country. The mayor of Belvik is Yarina. Belvik is known for its clocks. Belvik was founded in 1347.</module>
  </system>
</schema>`;

// The reduced KV of n modules of a schema is computed while no request runs.
export async function waitForReduced(page, schema, n) {
  await page.waitForFunction(
    async ([name, wanted]) => {
      const reply = await (await fetch(`/v1/cache/entries?kind=module&name=${name}`)).json();
      return reply.data.filter((entry) => entry.kind === 'reduced').length >= wanted;
    },
    [schema, n],
  );
}

export async function send(page, message) {
  const before = await page.locator('.turn.assistant .run-line').count();
  await page.fill('#chat-text', message);
  await page.press('#chat-text', 'Enter');
  await page.waitForFunction((n) => document.querySelectorAll('.turn.assistant .run-line').length > n, before);
}
