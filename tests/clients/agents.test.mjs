/* SPDX-License-Identifier: Apache-2.0 */
// Agents with their default settings but for the address and the key: in sessions of five turns, each a process of its own, with a model that answers
// by a script and calls their tools; then with the bundled model, and with a context that is too small for them.
import assert from "node:assert/strict";
import {spawn} from "node:child_process";
import {existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync} from "node:fs";
import {tmpdir} from "node:os";
import {dirname, join} from "node:path";
import {test} from "node:test";

import {Recorder} from "./recorder.mjs";
import {KEY, MARKS, Server} from "./reprise_server.mjs";

const packages = join(process.env.REPRISE_AGENTS ?? "", "node_modules");
const ALLOWED = 64; // computed tokens of a request beside its new ones: a block of the KV cache

const call = (name, args) => `<tool_call>\n${JSON.stringify({name, arguments: args})}\n</tool_call>`;

/** command: the program and its first arguments. turn(n, text): the arguments of turn n, from 0. read(path), shell(command): a call. fresh: of a new
 * conversation. parallel: it runs two calls of an answer. */
const AGENTS = [
    {
        name: "codex",
        command: [process.execPath, join(packages, "@openai", "codex", "bin", "codex.js")],
        turn: (n, text) => n === 0 ? ["exec", "--skip-git-repo-check", text] : ["exec", "resume", "--last", "--skip-git-repo-check", text],
        read: (path) => call("exec", {input: `text(await tools.exec_command({cmd: 'head ${path}'}))`}),
        shell: (command) => call("exec", {input: `text(await tools.exec_command({cmd: '${command}'}))`}),
    },
    {
        name: "claude code",
        command: [process.execPath, join(packages, "@anthropic-ai", "claude-code", "cli-wrapper.cjs")],
        turn: (n, text) => n === 0 ? ["-p", text] : ["-p", "--continue", text],
        read: (path) => call("Read", {file_path: path}),
        shell: (command) => call("Bash", {command, description: "Show a file"}),
        parallel: true,
    },
    {
        name: "opencode",
        command: [join(packages, `opencode-${process.platform}-${process.arch}`, "bin", "opencode")],
        turn: (n, text) => n === 0 ? ["run", text] : ["run", "--continue", text],
        read: (path) => call("read", {filePath: path}),
        shell: (command) => call("bash", {command}),
        parallel: true,
    },
    {
        name: "qwen code",
        command: [process.execPath, join(packages, "@qwen-code", "qwen-code", "cli-entry.js")],
        turn: (n, text) => n === 0 ? ["--auth-type", "openai", "-p", text] : ["--auth-type", "openai", "--continue", "-p", text],
        read: (path) => call("read_file", {file_path: path}),
        parallel: true,
    },
    {
        name: "gemini cli",
        command: [process.execPath, join(packages, "@google", "gemini-cli", "bundle", "gemini.js")],
        turn: (n, text) => n === 0 ? ["-p", text] : ["--resume", "latest", "-p", text],
        read: (path) => call("read_file", {file_path: path}),
        parallel: true,
    },
];

/** A user's home folder and a project in it. The agents know the address, and its key, and nothing else. */
class User {
    constructor(url) {
        this.home = mkdtempSync(join(tmpdir(), "reprise-agents-"));
        this.work = join(this.home, "work");
        for (const folder of [".codex", ".config/opencode", "work"]) mkdirSync(join(this.home, folder), {recursive: true});
        writeFileSync(join(this.home, ".codex", "config.toml"), `model_provider = "reprise"\n[model_providers.reprise]\nname = "Reprise"\n` +
                      `base_url = "${url}/v1"\nenv_key = "REPRISE_KEY"\n`);
        const provider = {npm: "@ai-sdk/openai-compatible", options: {baseURL: url + "/v1", apiKey: KEY}, models: {default: {}}};
        writeFileSync(join(this.home, ".config", "opencode", "opencode.json"), JSON.stringify({model: "reprise/default", provider: {reprise: provider}}));
        // IS_SANDBOX: Claude Code as root, in containers
        this.env = {PATH: process.env.PATH, HOME: this.home, IS_SANDBOX: "1", REPRISE_KEY: KEY, ANTHROPIC_BASE_URL: url, ANTHROPIC_API_KEY: KEY,
                    OPENAI_BASE_URL: url + "/v1", OPENAI_API_KEY: KEY, OPENAI_MODEL: "default", GOOGLE_GEMINI_BASE_URL: url, GEMINI_API_KEY: KEY};
    }

    write(name, text) {
        writeFileSync(join(this.work, name), text);
        return join(this.work, name);
    }

    /** Exit status, standard output and standard error of a program. */
    run([program, ...first], args) {
        return new Promise((resolve) => {
            const child = spawn(program, [...first, ...args], {cwd: this.work, env: this.env, stdio: ["ignore", "pipe", "pipe"]});
            let out = "", errors = "";
            child.stdout.on("data", (bytes) => out += bytes);
            child.stderr.on("data", (bytes) => errors += bytes);
            child.on("close", (status) => resolve({status, out: out.trim(), errors}));
        });
    }

    /** Standard output of a program that ends well. */
    async answer(command, args) {
        const {status, out, errors} = await this.run(command, args);
        assert.equal(status, 0, out + errors);
        return out;
    }

    remove() {
        rmSync(this.home, {recursive: true, force: true});
    }
}

/** What the model says, and what the user asks in each turn: MARKS[i] in a prompt makes answer i due. */
function scriptOf(agent, user) {
    const notes = user.write("notes.txt", `Tom had a red ball. ${MARKS[1]}\n`), more = user.write("more.txt", `It was in the garden. ${MARKS[4]}\n`);
    const town = user.write(`town${MARKS[6]}.txt`, "The town has a river.\n"), river = user.write("river.txt", `The river has a bridge. ${MARKS[7]}\n`);
    const both = agent.parallel ? agent.read(town) + "\n" + agent.read(river) : agent.read(river);
    return {
        answers: [agent.read(notes), "Tom had a red ball.", "Yes, it was red.", agent.shell ? agent.shell("cat more.txt") : agent.read(more),
                  "It was in the garden.", "I will look.\n" + both, "", "There is a bridge.", "That is all."],
        questions: [["What did Tom have?", 0, 1], ["Was it red?", 2, 2], ["Where was it?", 3, 4], ["What is in the town?", 5, 7], ["What else?", 8, 8]],
    };
}

/** Requests of a conversation and of those beside it (titles, memories), oldest first, each with the one of the same system text before it. */
async function measured(server, recorder) {
    const reply = await fetch(server.url + "/v1/requests?limit=512", {headers: {Authorization: "Bearer " + KEY}});
    const reports = new Map((await reply.json()).data.map((r) => [r.id, r])), last = new Map(), found = [];
    for (const {id, kind, turn} of recorder.requests) {
        const report = reports.get(id), before = last.get(kind);
        assert.ok(report, "each request has a report");
        last.set(kind, report);
        found.push({id, turn, kind, prompt: report.prompt_tokens, cached: report.cached_tokens, answer: report.answer_tokens,
                    computed: report.prompt_tokens - report.cached_tokens,
                    added: report.prompt_tokens - (before ? before.prompt_tokens + before.answer_tokens : 0)});
    }
    return found;
}

const row = (r) => `turn ${r.turn + 1}: prompt ${r.prompt}, cached ${r.cached}, computed ${r.computed}, new ${r.added}, answer ${r.answer} (${r.kind}, ${r.id})`;

/** A test whose server and user end with it. */
function session(agent, name, start, body) {
    test(`${agent.name}: ${name}`, {skip: existsSync(agent.command.at(-1)) ? false : "npm has not installed it"}, async (context) => {
        const recorder = await new Recorder().listen(), user = new User(recorder.url);
        let server;
        try {
            server = await start(agent, user);
            recorder.target = server.url;
            await body({agent, user, server, recorder, context});
        } finally {
            await recorder.close();
            const status = await server?.stop();
            user.remove();
            assert.equal(status, 0);
        }
    });
}

for (const agent of AGENTS) {
    session(agent, "five turns compute what is new", (agent, user) => Server.startTurns(scriptOf(agent, user).answers), async ({agent, user, server, recorder,
                                                                                                                               context}) => {
        const {answers, questions} = scriptOf(agent, user);
        for (const [n, [question, mark, last]] of questions.entries()) {
            recorder.turn = n;
            assert.ok((await user.answer(agent.command, agent.turn(n, `${question} ${MARKS[mark]}`))).includes(answers[last]), "the answer after its calls");
        }
        const requests = await measured(server, recorder);
        for (const r of requests) context.diagnostic(row(r));
        const main = requests.filter((r) => r.kind === requests.at(-1).kind || r.prompt > 8000);
        assert.ok(main.length >= 8, "five turns, three of them with calls");
        const seen = new Set();
        for (const r of requests) {
            if (seen.has(r.kind)) assert.ok(r.computed <= r.added + ALLOWED, row(r));
            seen.add(r.kind);
        }
    });
}
