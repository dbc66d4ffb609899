/* SPDX-License-Identifier: Apache-2.0 */
// Codex and Claude Code, with their default settings but for the address and the key, in sessions of two turns: with a scripted model, with the
// bundled model, and with a context that is too small for them.
import assert from "node:assert/strict";
import {execFileSync, spawn} from "node:child_process";
import {existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync} from "node:fs";
import {tmpdir} from "node:os";
import {join} from "node:path";
import {test} from "node:test";

import {ANSWER, KEY, Server} from "./reprise_server.mjs";

const CODEX = join(process.env.REPRISE_AGENTS ?? "", "node_modules", "@openai", "codex", "bin", "codex.js");
const CLAUDE = join(process.env.REPRISE_AGENTS ?? "", "node_modules", "@anthropic-ai", "claude-code", "cli-wrapper.cjs");
const CODEX_TURNS = [["exec", "--skip-git-repo-check", "Say hello"], ["exec", "resume", "--last", "--skip-git-repo-check", "Say it again"]];
const CLAUDE_TURNS = [["-p", "Say hello"], ["-p", "--continue", "Say it again"]];
const skipped = (program) => existsSync(program) ? false : "npm has not installed it";

/** A user's home folder and a project in it. The agents know the server, and its key, and nothing else. */
class User {
    constructor(server) {
        this.server = server;
        this.home = mkdtempSync(join(tmpdir(), "reprise-agents-"));
        mkdirSync(join(this.home, ".codex"));
        mkdirSync(join(this.home, "work"));
        writeFileSync(join(this.home, ".codex", "config.toml"), `model_provider = "reprise"\n[model_providers.reprise]\nname = "Reprise"\n` +
                      `base_url = "${server.url}/v1"\nenv_key = "REPRISE_KEY"\n`);
        // IS_SANDBOX: Claude Code as root, in containers
        this.env = {PATH: process.env.PATH, HOME: this.home, REPRISE_KEY: KEY, ANTHROPIC_BASE_URL: server.url, ANTHROPIC_API_KEY: KEY, IS_SANDBOX: "1"};
    }

    /** Exit status, standard output and standard error of a program. */
    run(program, ...args) {
        return new Promise((resolve) => {
            const child = spawn(process.execPath, [program, ...args], {cwd: join(this.home, "work"), env: this.env, stdio: ["ignore", "pipe", "pipe"]});
            let out = "", errors = "";
            child.stdout.on("data", (bytes) => out += bytes);
            child.stderr.on("data", (bytes) => errors += bytes);
            child.on("close", (status) => resolve({status, out: out.trim(), errors}));
        });
    }

    /** Standard output of a program that ends well. */
    async answer(program, ...args) {
        const {status, out, errors} = await this.run(program, ...args);
        assert.equal(status, 0, out + errors);
        return out;
    }

    /** The requests of a route, the last one first. */
    async requestsOf(route) {
        const reply = await fetch(this.server.url + "/v1/requests", {headers: {Authorization: "Bearer " + KEY}});
        return (await reply.json()).data.filter((r) => r.route === route);
    }

    async checkTurns(route) {
        const [second, first, ...others] = await this.requestsOf(route);
        assert.equal(others.length, 0, "a request a turn: none was repeated");
        assert.ok(first.prompt_tokens > 10000, "the agent's tools and instructions are in the prompt");
        assert.ok(second.prompt_tokens > first.prompt_tokens, "the second turn has the first one in it");
        assert.ok(second.cached_tokens > 0.9 * second.prompt_tokens, `${second.cached_tokens} of ${second.prompt_tokens} tokens were cached`);
        return `${second.cached_tokens} of ${second.prompt_tokens} prompt tokens of the second turn cached; TTFT ${first.first_token_ms.toFixed(0)} ms, ` +
            `then ${second.first_token_ms.toFixed(0)} ms; answers of ${first.answer_tokens} and ${second.answer_tokens} tokens`;
    }

    async end() {
        assert.equal(await this.server.stop(), 0);
        rmSync(this.home, {recursive: true, force: true});
    }
}

/** A test whose user and server end with it. */
function session(name, program, start, body) {
    test(name, {skip: skipped(program)}, async (context) => {
        const user = new User(await start());
        try {
            await body(user, context);
        } finally {
            await user.end();
        }
    });
}

for (const [name, program, turns, route] of [["codex", CODEX, CODEX_TURNS, "/v1/responses"], ["claude code", CLAUDE, CLAUDE_TURNS, "/v1/messages"]]) {
    session(name, program, () => Server.startScripted(), async (user) => {
        for (const turn of turns) assert.equal(await user.answer(program, ...turn), ANSWER);
        await user.checkTurns(route);
    });

    // 2,000 positions are what this model was trained for: what it says after tens of thousands is noise, of a random length.
    session(name + ": the bundled model", program, () => Server.startDefault("--ctx", "131072"), async (user, context) => {
        for (const turn of turns) await user.answer(program, ...turn);
        context.diagnostic(await user.checkTurns(route));
    });
}

/** A repository in the user's folder, and one more change of it. */
function change(user, n) {
    const git = (...args) => execFileSync("git", ["-c", "user.name=Ann", "-c", "user.email=ann@localhost", ...args], {cwd: join(user.home, "work"), env: user.env});
    if (n === 0) git("init", "-q");
    writeFileSync(join(user.home, "work", `committed-${n}.txt`), "x");
    git("add", ".");
    git("commit", "-q", "-m", `change ${n}`);
    writeFileSync(join(user.home, "work", `new-${n}.txt`), "x");
}

// Each session has its own git status; Claude Code sends it before 2,000 constant tokens.
for (const [name, program, turn, route] of [["codex", CODEX, CODEX_TURNS[0], "/v1/responses"], ["claude code", CLAUDE, CLAUDE_TURNS[0], "/v1/messages"]])
    session(name + ": another session in the same project", program, () => Server.startScripted(), async (user, context) => {
        for (const n of [0, 1, 2]) {
            change(user, n);
            assert.equal(await user.answer(program, ...turn), ANSWER);
        }
        const [third, second] = await user.requestsOf(route);
        for (const {prompt_tokens, cached_tokens} of [second, third]) {
            assert.ok(prompt_tokens - cached_tokens <= 600, `${prompt_tokens - cached_tokens} of ${prompt_tokens} tokens were computed`);
            context.diagnostic(`${prompt_tokens - cached_tokens} of ${prompt_tokens} prompt tokens computed`);
        }
    });

session("codex: a context that is too small", CODEX, () => Server.startDefault(), async (user) => {
    const first = await user.run(CODEX, ...CODEX_TURNS[0]);
    assert.equal(first.status, 1);
    assert.match(first.errors, /ran out of room in the model's context window/);
    const second = await user.run(CODEX, ...CODEX_TURNS[1]);
    assert.match(second.errors, /Context window exceeded while compacting/, "it compacts the conversation before the next turn");
});

session("claude code: a context that is too small", CLAUDE, () => Server.startDefault(), async (user) => {
    const {status, out} = await user.run(CLAUDE, ...CLAUDE_TURNS[0]);
    assert.equal(status, 1);
    assert.match(out, /^Prompt is too long .* \(limit 2048\)/, "it has read both numbers of the error");
});
