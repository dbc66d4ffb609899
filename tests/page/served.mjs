/* SPDX-License-Identifier: Apache-2.0 */
// served.mjs: a `reprise serve` and a browser for the tests of the page. The browser's requests are watched: none may leave the server.
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { createInterface } from 'node:readline';

const ROOT = join(dirname(fileURLToPath(import.meta.url)), '..', '..');
const PROGRAM = process.env.REPRISE_PROGRAM ?? join(ROOT, 'build', 'reprise');
const MODEL = join(ROOT, 'models', 'reprise-mini.gguf');
const { chromium } = createRequire(join(process.env.REPRISE_PAGE_MODULES, 'package.json'))('playwright-core');

export const temporaryFolder = () => mkdtempSync(join(tmpdir(), 'reprise-page-'));

// {address, stop()}, once it is ready.
export const serve = (...options) => start('-m', MODEL, ...options);
// The same with the model under each of the names.
export const serveModels = (...names) => start(...names.flatMap((name) => ['-m', `${name}=${MODEL}`]));

async function start(...options) {
  const process_ = spawn(PROGRAM, ['serve', '--port', '0', '--threads', '1', '--log', 'off', ...options], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const ended = new Promise((resolve) => process_.once('exit', resolve));
  let address;
  for await (const line of createInterface({ input: process_.stdout })) {
    if (line.startsWith('listening on ')) address = line.slice('listening on '.length);
    if (line === 'ready') break;
  }
  if (!address) throw new Error(`the server ended: ${await ended}`);
  return {
    address,
    stop: () => {
      process_.kill('SIGTERM');
      return ended;
    },
  };
}

// A file of keys with one line; gives its path.
export async function keyFile(folder, key, words) {
  const hasher = spawn(PROGRAM, ['serve', '--hash-key'], { stdio: ['pipe', 'pipe', 'inherit'] });
  hasher.stdin.end(key);
  let hash = '';
  for await (const piece of hasher.stdout) hash += piece;
  const path = join(folder, 'keys');
  writeFileSync(path, `${hash.trim()} ${words}\n`);
  return path;
}

export const removeFolder = (path) => rmSync(path, { recursive: true, force: true });

export const openBrowser = () => chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu'] });

// A page of the server in a context of its own. `faults` collects what must not be: errors on the console, uncaught ones, requests to
// elsewhere. Refusals that a test provokes are told by `expected`, a pattern of console messages.
export async function openPage(browser, server, view, options = {}) {
  const { expected, ...contextOptions } = options;
  const context = await browser.newContext({ viewport: { width: 1280, height: 860 }, reducedMotion: 'reduce', ...contextOptions });
  const page = await context.newPage();
  const faults = [];
  page.on('console', (message) => {
    if (message.type() === 'error' && !expected?.test(message.text())) faults.push(message.text());
  });
  page.on('pageerror', (error) => faults.push(String(error)));
  page.on('request', (request) => {
    if (!request.url().startsWith(`${server.address}/`)) faults.push(`a request to ${request.url()}`);
  });
  page.on('dialog', (dialog) => dialog.accept());
  await page.goto(`${server.address}/#${view}`);
  return { page, faults, close: () => context.close() };
}
