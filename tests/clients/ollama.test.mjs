/* SPDX-License-Identifier: Apache-2.0 */
// The official client `ollama` against `reprise serve`.
import assert from "node:assert/strict";
import {after, before, test} from "node:test";

import {client, KEY, MODEL, QUESTION, Server} from "./reprise_server.mjs";

const {Ollama} = client("ollama");
const messages = [{role: "user", content: QUESTION}];
const short = {model: MODEL, options: {temperature: 0, num_predict: 8}};
const schema = {type: "object", properties: {ball: {enum: ["red", "blue"]}}, required: ["ball"], additionalProperties: false};
let server, ollama;

const clientOf = (key) => new Ollama({host: server.url, headers: {Authorization: "Bearer " + key}});

before(async () => {
    server = await Server.start();
    ollama = clientOf(KEY);
});
after(async () => assert.equal(await server.stop(), 0));

async function gather(stream, textOf) {
    let text = "", last;
    for await (const part of stream) {
        text += textOf(part);
        last = part;
    }
    return {text, last};
}

test("models", async () => {
    const [listed] = (await ollama.list()).models, [running] = (await ollama.ps()).models;
    assert.deepEqual([listed.model, listed.details.family, running.digest], [MODEL + ":latest", "llama", listed.digest]);
    const shown = await ollama.show({model: MODEL});
    assert.ok(shown.capabilities.includes("tools"));
    assert.equal(shown.model_info["llama.context_length"], 2048);
    assert.match((await ollama.version()).version, /^0\.\d+\.\d+$/);
    await assert.rejects(ollama.show({model: "other"}), (e) => e.status_code === 404 && /other/.test(e.message));
    await assert.rejects(ollama.pull({model: "other"}), (e) => e.status_code === 501);
    await assert.rejects(ollama.delete({model: MODEL}), (e) => e.status_code === 501);
});

test("chat, whole and as a stream", async () => {
    const whole = await ollama.chat({...short, messages});
    assert.deepEqual([whole.done, whole.message.role], [true, "assistant"]);
    assert.ok(whole.eval_count > 0 && whole.total_duration > 0);
    const {text, last} = await gather(await ollama.chat({...short, messages, stream: true}), (part) => part.message.content);
    assert.equal(text, whole.message.content);
    assert.deepEqual([last.done, last.done_reason, last.eval_count], [true, whole.done_reason, whole.eval_count]);
    assert.ok(last.reprise.cached_tokens > 0);
});

test("generate, whole and as a stream, and its context", async () => {
    const whole = await ollama.generate({...short, prompt: QUESTION});
    const {text, last} = await gather(await ollama.generate({...short, prompt: QUESTION, stream: true}), (part) => part.response);
    assert.equal(text, whole.response);
    assert.deepEqual(last.context, whole.context);
    const next = await ollama.generate({...short, prompt: "And what colour?", context: whole.context});
    assert.ok(next.prompt_eval_count > whole.prompt_eval_count);
});

test("formats and tools", async () => {
    const options = {temperature: 0, num_predict: 200};
    const formed = await ollama.chat({model: MODEL, messages, format: schema, options});
    assert.ok(["red", "blue"].includes(JSON.parse(formed.message.content).ball));
    const tools = [{type: "function", function: {name: "weather", description: "of a city", parameters: schema}}];
    const history = [...messages, {role: "assistant", content: "", tool_calls: [{function: {name: "weather", arguments: {ball: "red"}}}]},
                     {role: "tool", tool_name: "weather", content: "sunny"}];
    const plain = await ollama.chat({...short, messages}), answered = await ollama.chat({...short, messages: history, tools});
    assert.ok(answered.prompt_eval_count > plain.prompt_eval_count);
    assert.deepEqual(answered.reprise.warnings, []);
});

test("errors, keys, an abort", async () => {
    await assert.rejects(ollama.chat({...short, messages: [{...messages[0], images: ["aGk="]}]}), (e) => e.status_code === 400 && /text only/.test(e.message));
    await assert.rejects(clientOf("a-key-that-nobody-has").list(), (e) => e.status_code === 401);
    const stream = await ollama.chat({model: MODEL, messages, stream: true, ignore_eos: true, options: {num_predict: 1900, temperature: 0}});
    await assert.rejects(async () => {
        for await (const part of stream) if (!part.done) ollama.abort();
    }, {name: "AbortError"});
    await server.untilIdle();
});
