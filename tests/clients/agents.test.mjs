/* SPDX-License-Identifier: Apache-2.0 */
// Agents with their default settings but for the address and the key: in sessions of five turns, each a process of its own, with a model that answers
// by a script and calls their tools; then with the bundled model, and with a context that is too small for them.
import assert from "node:assert/strict";
import {execFileSync, spawn} from "node:child_process";
import {existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync} from "node:fs";
import {tmpdir} from "node:os";
import {dirname, join} from "node:path";
import {test} from "node:test";

import {Recorder} from "./recorder.mjs";
import {KEY, MARKS, Server} from "./reprise_server.mjs";

const packages = join(process.env.REPRISE_AGENTS ?? "", "node_modules");
const ALLOWED = 64; // computed tokens of a request beside its new ones: a block of the KV cache
const OF_ANOTHER = 512; // of the first request of another conversation: its question, and what names the conversation

const call = (name, args) => `<tool_call>\n${JSON.stringify({name, arguments: args})}\n</tool_call>`;

/** command: the program and its first arguments. turn(n, text): the arguments of turn n, from 0. read(path), shell(command): a call. search(word):
 * one that may be beside another one in an answer. */
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
        search: (word) => call("Bash", {command: "echo " + word, description: "Show a word"}),
    },
    {
        name: "opencode",
        command: [join(packages, `opencode-${process.platform}-${process.arch}`, "bin", "opencode")],
        turn: (n, text) => n === 0 ? ["run", text] : ["run", "--continue", text],
        read: (path) => call("read", {filePath: path}),
        shell: (command) => call("bash", {command}),
        search: (word) => call("bash", {command: "echo " + word}),
    },
    {
        name: "qwen code",
        command: [process.execPath, join(packages, "@qwen-code", "qwen-code", "cli-entry.js")],
        turn: (n, text) => n === 0 ? ["--auth-type", "openai", "-p", text] : ["--auth-type", "openai", "--continue", "-p", text],
        read: (path) => call("read_file", {file_path: path}),
        search: (word) => call("grep_search", {pattern: word}),
    },
    {
        name: "gemini cli",
        command: [process.execPath, join(packages, "@google", "gemini-cli", "bundle", "gemini.js")],
        turn: (n, text) => n === 0 ? ["-p", text] : ["--resume", "latest", "-p", text],
        read: (path) => call("read_file", {file_path: path}),
        search: (word) => call("grep_search", {pattern: word}),
    },
];

/** A user's home folder and a project in it. The agents know the address, and its key, and nothing else. */
class User {
    constructor(url) {
        this.home = mkdtempSync(join(tmpdir(), "reprise-agents-"));
        this.work = join(this.home, "work");
        for (const folder of [".codex", ".config/opencode", ".gemini", "work"]) mkdirSync(join(this.home, folder), {recursive: true});
        writeFileSync(join(this.home, ".codex", "config.toml"), `model_provider = "reprise"\n[model_providers.reprise]\nname = "Reprise"\n` +
                      `base_url = "${url}/v1"\nenv_key = "REPRISE_KEY"\n`);
        const provider = {npm: "@ai-sdk/openai-compatible", options: {baseURL: url + "/v1", apiKey: KEY}, models: {default: {}}};
        const opencode = {model: "reprise/default", provider: {reprise: provider}};
        writeFileSync(join(this.home, ".config", "opencode", "opencode.json"), JSON.stringify(opencode));
        writeFileSync(join(this.home, ".gemini", "settings.json"), JSON.stringify({security: {auth: {selectedType: "gemini-api-key"}}}));
        // Claude Code as root, in containers; opencode waits for a list of other models; gemini-cli asks a person.
        const unattended = {IS_SANDBOX: "1", OPENCODE_DISABLE_MODELS_FETCH: "1", GEMINI_CLI_TRUST_WORKSPACE: "true"};
        this.env = {...unattended, PATH: process.env.PATH, HOME: this.home, REPRISE_KEY: KEY, ANTHROPIC_BASE_URL: url, ANTHROPIC_API_KEY: KEY,
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
    const river = user.write("river.txt", `The river has a bridge. ${MARKS[7]}\n`);
    const both = (agent.search ? agent.search(MARKS[6]) + "\n" : "") + agent.read(river);
    return {
        answers: [agent.read(notes), "Tom had a red ball.", "Yes, it was red.", agent.shell ? agent.shell("cat more.txt") : agent.read(more),
                  "It was in the garden.", "I will look.\n" + both, "", "There is a bridge.", "That is all."],
        questions: [["What did Tom have?", 0, 1], ["Was it red?", 2, 2], ["Where was it?", 3, 4], ["What is in the town?", 5, 7],
                    ["What else?", 8, 8]], // with its mark, and which answer ends the turn
    };
}

/** Requests, oldest first, each compared with the one of the same system text before it. */
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

/** Without requests beside the conversation, which have other system texts: for a title, a memory, a choice of the model. */
function ofConversation(requests) {
    const n = new Map();
    for (const {kind} of requests) n.set(kind, (n.get(kind) ?? 0) + 1);
    return requests.filter((r) => n.get(r.kind) === Math.max(...n.values()));
}

const row = (r) => `turn ${r.turn}: prompt ${r.prompt}, cached ${r.cached}, computed ${r.computed}, new ${r.added}, answer ${r.answer} ` +
    `(${r.kind}, ${r.id})`;

/** A test whose server and user end with it. */
function session(agent, name, start, body) {
    test(`${agent.name}: ${name}`, {skip: agent.command.every((part) => existsSync(part)) ? false : "npm has not installed it"}, async (context) => {
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
    const start = (agent, user) => Server.startTurns(scriptOf(agent, user).answers);
    session(agent, "five turns compute what is new", start, async ({agent, user, server, recorder, context}) => {
        const {answers, questions} = scriptOf(agent, user);
        for (const [n, [question, mark, last]] of questions.entries()) {
            recorder.turn = n + 1;
            const out = await user.answer(agent.command, agent.turn(n, `${question} ${MARKS[mark]}`));
            assert.ok(out.includes(answers[last]), `the answer after its calls, not ${out}`);
        }
        recorder.turn = "another conversation";
        await user.answer(agent.command, agent.turn(0, `Was it red? ${MARKS[2]}`));
        const requests = await measured(server, recorder), conversation = ofConversation(requests);
        for (const r of requests) context.diagnostic(row(r));
        assert.ok(conversation.length >= 9, "five turns, three of them with calls, and the first one of another conversation");
        const other = conversation.pop();
        for (const r of conversation.slice(1)) assert.ok(r.computed <= r.added + ALLOWED, row(r));
        assert.equal(other.turn, recorder.turn);
        assert.ok(other.computed <= OF_ANOTHER, row(other));
    });
}

/** A repository in the user's folder, and one more change of it. */
function change(user, n) {
    const who = ["-c", "user.name=Ann", "-c", "user.email=ann@localhost"];
    const git = (...args) => execFileSync("git", [...who, ...args], {cwd: user.work, env: user.env});
    if (n === 0) git("init", "-q");
    user.write(`committed-${n}.txt`, "x");
    git("add", ".");
    git("commit", "-q", "-m", `change ${n}`);
    user.write(`new-${n}.txt`, "x");
}

// Each conversation has its own git status; Claude Code sends it before 2,000 constant tokens.
for (const agent of AGENTS.slice(0, 2)) {
    session(agent, "other conversations in the same project", () => Server.startTurns(["Hello."]), async ({agent, user, server, recorder, context}) => {
        for (const n of [0, 1, 2]) {
            change(user, n);
            assert.equal(await user.answer(agent.command, agent.turn(0, "Say hello " + MARKS[0])), "Hello.");
        }
        for (const r of (await measured(server, recorder)).slice(1)) {
            assert.ok(r.computed <= 600, row(r));
            context.diagnostic(row(r));
        }
    });
}

// 2,000 positions are what this model was trained for: what it says after tens of thousands is noise, of a random length.
for (const agent of AGENTS.slice(0, 2)) {
    session(agent, "the bundled model", () => Server.startDefault("--ctx", "131072"), async ({agent, user, server, recorder, context}) => {
        for (const n of [0, 1]) await user.answer(agent.command, agent.turn(n, "Say hello"));
        const [first, second, ...others] = await measured(server, recorder);
        assert.equal(others.length, 0, "a request a turn: none was repeated");
        assert.ok(first.prompt > 10000, "the agent's tools and instructions are in the prompt");
        assert.ok(second.computed <= second.added + ALLOWED, row(second));
        context.diagnostic(row(second));
    });
}

session(AGENTS[0], "a context that is too small", () => Server.startDefault(), async ({agent, user}) => {
    const first = await user.run(agent.command, agent.turn(0, "Say hello"));
    assert.equal(first.status, 1);
    assert.match(first.errors, /ran out of room in the model's context window/);
    const second = await user.run(agent.command, agent.turn(1, "Say it again"));
    assert.match(second.errors, /Context window exceeded while compacting/, "it compacts the conversation before the next turn");
});

session(AGENTS[1], "a context that is too small", () => Server.startDefault(), async ({agent, user}) => {
    const {status, out} = await user.run(agent.command, agent.turn(0, "Say hello"));
    assert.equal(status, 1);
    assert.match(out, /^Prompt is too long .* \(limit 2048\)/, "it has read both numbers of the error");
});
