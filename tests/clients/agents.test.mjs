/* SPDX-License-Identifier: Apache-2.0 */
// Codex and Claude Code, with their default settings but for the address and the key, in sessions of two turns.
import assert from "node:assert/strict";
import {spawn} from "node:child_process";
import {existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync} from "node:fs";
import {tmpdir} from "node:os";
import {join} from "node:path";
import {after, before, test} from "node:test";

import {ANSWER, KEY, Server} from "./reprise_server.mjs";

const CODEX = join(process.env.REPRISE_AGENTS ?? "", "node_modules", "@openai", "codex", "bin", "codex.js");
const CLAUDE = join(process.env.REPRISE_AGENTS ?? "", "node_modules", "@anthropic-ai", "claude-code", "cli-wrapper.cjs");
const skipped = (program) => existsSync(program) ? false : "npm has not installed it";
let server, folder, env;

before(async () => {
    server = await Server.startScripted();
    folder = mkdtempSync(join(tmpdir(), "reprise-agents-"));
    mkdirSync(join(folder, ".codex"));
    mkdirSync(join(folder, "work"));
    writeFileSync(join(folder, ".codex", "config.toml"),
                  `model_provider = "reprise"\n[model_providers.reprise]\nname = "Reprise"\nbase_url = "${server.url}/v1"\nenv_key = "REPRISE_KEY"\n`);
    // IS_SANDBOX: Claude Code as root, in containers
    env = {PATH: process.env.PATH, HOME: folder, REPRISE_KEY: KEY, ANTHROPIC_BASE_URL: server.url, ANTHROPIC_API_KEY: KEY, IS_SANDBOX: "1"};
});
after(async () => {
    assert.equal(await server.stop(), 0);
    rmSync(folder, {recursive: true, force: true});
});

/** Standard output of a program that ends well. */
function run(program, ...args) {
    return new Promise((resolve, reject) => {
        const child = spawn(process.execPath, [program, ...args], {cwd: join(folder, "work"), env, stdio: ["ignore", "pipe", "pipe"]});
        let out = "", errors = "";
        child.stdout.on("data", (bytes) => out += bytes);
        child.stderr.on("data", (bytes) => errors += bytes);
        child.on("exit", (status) => status === 0 ? resolve(out.trim()) : reject(new Error(`exit status ${status}: ${out}${errors}`)));
    });
}

/** The requests of a route, the last one first. */
async function requestsOf(route) {
    const reply = await fetch(server.url + "/v1/requests", {headers: {Authorization: "Bearer " + KEY}});
    return (await reply.json()).data.filter((r) => r.route === route);
}

async function checkTurns(route) {
    const [second, first] = await requestsOf(route);
    assert.ok(first.prompt_tokens > 10000, "the agent's tools and instructions are in the prompt");
    assert.ok(second.cached_tokens > 0.9 * second.prompt_tokens, `${second.cached_tokens} of ${second.prompt_tokens} tokens were cached`);
}

test("codex", {skip: skipped(CODEX)}, async () => {
    assert.equal(await run(CODEX, "exec", "--skip-git-repo-check", "Say hello"), ANSWER);
    assert.equal(await run(CODEX, "exec", "resume", "--last", "--skip-git-repo-check", "Say it again"), ANSWER);
    await checkTurns("/v1/responses");
});

test("claude code", {skip: skipped(CLAUDE)}, async () => {
    assert.equal(await run(CLAUDE, "-p", "Say hello"), ANSWER);
    assert.equal(await run(CLAUDE, "-p", "--continue", "Say it again"), ANSWER);
    await checkTurns("/v1/messages");
});
