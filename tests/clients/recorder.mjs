/* SPDX-License-Identifier: Apache-2.0 */
// Passes requests on to a server, unchanged, and notes which request of which turn got which id: programs that talk to a server do not say.
// With REPRISE_RECORD=FOLDER their bodies are written there.
import {mkdirSync, writeFileSync} from "node:fs";
import {createServer, request} from "node:http";
import {join} from "node:path";

const first = (value) => typeof value === "string" ? value : Array.isArray(value) ? value.map((v) => first(v?.text ?? v?.content ?? "")).join("") : "";

/** Whose prompt it is: the beginning of what its system text says, whatever the dialect. */
function kindOf(body) {
    const system = body.system ?? body.systemInstruction?.parts ?? body.instructions ??
        (body.messages ?? body.input)?.find?.((m) => m.role === "system" || (m.role === "developer" && m.content))?.content;
    const blocks = Array.isArray(system) ? system.filter((b) => !first([b]).startsWith("x-anthropic-billing-header")) : system;
    return first(blocks).trim().slice(0, 32);
}

export class Recorder {
    requests = []; // {id, kind, turn} of those that were answered with status 200
    turn = 0;
    target = undefined;

    async listen() {
        this.server = createServer((from, to) => this.pass(from, to));
        await new Promise((resolve) => this.server.listen(0, "127.0.0.1", resolve));
        this.url = `http://127.0.0.1:${this.server.address().port}`;
        return this;
    }

    async pass(from, to) {
        const parts = [];
        for await (const part of from) parts.push(part);
        const body = Buffer.concat(parts), turn = this.turn;
        const up = request(this.target + from.url, {method: from.method, headers: from.headers}, (reply) => {
            if (from.method === "POST" && reply.statusCode === 200 && body.length > 0) this.note(reply.headers["x-request-id"], body, turn, from);
            to.writeHead(reply.statusCode, reply.headers);
            reply.pipe(to);
        });
        up.on("error", () => to.destroy());
        to.on("close", () => up.destroy());
        up.end(body);
    }

    note(id, body, turn, {url}) {
        if (!/\/(messages|responses|completions)(\?|$)|:(streamG|g)enerateContent/.test(url)) return;
        const json = JSON.parse(body);
        this.requests.push({id, turn, kind: kindOf(json)});
        if (process.env.REPRISE_RECORD === undefined) return;
        mkdirSync(process.env.REPRISE_RECORD, {recursive: true});
        writeFileSync(join(process.env.REPRISE_RECORD, `${this.requests.length}-${id}.json`), JSON.stringify(json, null, 1));
    }

    async close() {
        this.server.closeAllConnections();
        await new Promise((resolve) => this.server.close(resolve));
    }
}
