/* SPDX-License-Identifier: Apache-2.0 */
// A `reprise serve` that the official clients talk to, and the clients themselves, which `tests/clients/run` has installed.
import {execFileSync, spawn} from "node:child_process";
import {mkdtempSync, rmSync, writeFileSync} from "node:fs";
import {createRequire} from "node:module";
import {tmpdir} from "node:os";
import {dirname, join} from "node:path";
import {createInterface} from "node:readline";
import {fileURLToPath} from "node:url";

const SOURCE = join(dirname(fileURLToPath(import.meta.url)), "..", "..");
const PROGRAM = process.env.REPRISE_PROGRAM ?? join(SOURCE, "build", "reprise");
const INSTALLED = process.env.REPRISE_CLIENTS ?? join(SOURCE, "build", "clients");

export const MODEL = "reprise-mini";
export const QUESTION = "Tom had a red ball. What did Tom have?";
/** As in tests/server/scripted_turns.py. */
export const MARKS = "\u0221\u0263\u0292\u0398\u03c9\u0416\u044e\u04a8\u04dc\u051a\u0554\u05e9";
export const KEY = "the-key-of-these-tests-0001"; // may do everything
export const SLOW_KEY = "the-key-of-these-tests-0002"; // one request at a time

/** A package, as the tests of its users see it. */
export const client = createRequire(join(INSTALLED, "package.json"));

function hash(key) {
    return execFileSync(PROGRAM, ["serve", "--hash-key"], {input: key, encoding: "utf8"}).trim();
}

export class Server {
    /** Started, ready. */
    static start(...options) {
        return new Server().run(join(SOURCE, "models", MODEL + ".gguf"), ...options);
    }

    /** One of a user who gives a model and nothing else: no keys, every thread. */
    static startDefault(...options) {
        return new Server().spawn("-m", join(SOURCE, "models", MODEL + ".gguf"), ...options);
    }

    /** One with a long context that answers by a script: MARKS[i] in a prompt makes answers[i] due. No keys, every thread, as a user starts it. */
    static startTurns(answers, ...options) {
        const server = new Server(), model = join(server.folder, "turns.gguf"), script = join(server.folder, "script.json");
        writeFileSync(script, JSON.stringify(answers));
        execFileSync("python3", [join(SOURCE, "tests", "server", "scripted_turns.py"), PROGRAM, join(SOURCE, "models", MODEL + ".gguf"), model, script,
                                 ...(process.env.REPRISE_TEMPLATE ? [process.env.REPRISE_TEMPLATE] : [])]); // another chat template, by hand
        return server.spawn("-m", model, ...options);
    }

    constructor() {
        this.folder = mkdtempSync(join(tmpdir(), "reprise-clients-"));
    }

    async run(model, ...options) {
        const keys = join(this.folder, "keys");
        writeFileSync(keys, `${hash(KEY)} rights=request,schemas,operate\n${hash(SLOW_KEY)} tenant=slow rights=request running=1\n`);
        return this.spawn("-m", model, "--threads", "1", "--api-keys", keys, ...options);
    }

    async spawn(...options) {
        this.process = spawn(PROGRAM, ["serve", "--port", "0", "--log", "off", ...options], {stdio: ["ignore", "pipe", "inherit"]});
        this.ended = new Promise((resolve) => this.process.on("exit", resolve));
        for await (const line of createInterface({input: this.process.stdout})) {
            if (line.startsWith("listening on ")) this.url = line.slice("listening on ".length);
            if (line === "ready") return this;
        }
        throw new Error(`the server ended: ${await this.ended}`);
    }

    /** Ended in order; its exit status. */
    async stop() {
        this.process.kill("SIGTERM");
        const status = await this.ended;
        rmSync(this.folder, {recursive: true});
        return status;
    }

    async metric(name) {
        const reply = await fetch(this.url + "/metrics", {headers: {Authorization: "Bearer " + KEY}});
        const line = (await reply.text()).split("\n").find((l) => l.startsWith(name + " "));
        if (line === undefined) throw new Error(`/metrics has no ${name}`);
        return Number(line.slice(name.length));
    }

    /** Until no call of the engine is left. It asks again and again, without a limit of its own. */
    async untilIdle() {
        while (await this.metric("reprise_jobs_open") > 0);
    }
}
