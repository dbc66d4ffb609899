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
export const KEY = "the-key-of-these-tests-0001"; // may do everything
export const SLOW_KEY = "the-key-of-these-tests-0002"; // one request at a time

/** A package, as the tests of its users see it. */
export const client = createRequire(join(INSTALLED, "package.json"));

function hash(key) {
    return execFileSync(PROGRAM, ["serve", "--hash-key"], {input: key, encoding: "utf8"}).trim();
}

export class Server {
    /** Started, ready. */
    static async start(...options) {
        const server = new Server();
        server.folder = mkdtempSync(join(tmpdir(), "reprise-clients-"));
        const keys = join(server.folder, "keys");
        writeFileSync(keys, `${hash(KEY)} rights=request,schemas,operate\n${hash(SLOW_KEY)} tenant=slow rights=request running=1\n`);
        server.process = spawn(PROGRAM, ["serve", "-m", join(SOURCE, "models", MODEL + ".gguf"), "--port", "0", "--threads", "1", "--log",
                                         "off", "--api-keys", keys, ...options], {stdio: ["ignore", "pipe", "inherit"]});
        server.ended = new Promise((resolve) => server.process.on("exit", resolve));
        for await (const line of createInterface({input: server.process.stdout})) {
            if (line.startsWith("listening on ")) server.url = line.slice("listening on ".length);
            if (line === "ready") return server;
        }
        throw new Error(`the server ended: ${await server.ended}`);
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
