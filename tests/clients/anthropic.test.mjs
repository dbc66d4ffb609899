/* SPDX-License-Identifier: Apache-2.0 */
// The official client `@anthropic-ai/sdk` against `reprise serve`.
import assert from "node:assert/strict";
import {after, before, test} from "node:test";

import {client, KEY, MODEL, QUESTION, Server} from "./reprise_server.mjs";

const Anthropic = client("@anthropic-ai/sdk").default;
const messages = [{role: "user", content: QUESTION}];
const short = {model: MODEL, messages, temperature: 0, max_tokens: 8};
const endless = {model: MODEL, messages, temperature: 0, max_tokens: 1900, ignore_eos: true};
let server, anthropic;

const clientOf = (apiKey) => new Anthropic({baseURL: server.url, apiKey, maxRetries: 0});

before(async () => {
    server = await Server.start();
    anthropic = clientOf(KEY);
});
after(async () => assert.equal(await server.stop(), 0));

test("models", async () => {
    const listed = [];
    for await (const model of anthropic.models.list()) listed.push(model);
    assert.deepEqual(listed.map((m) => [m.id, m.type]), [[MODEL, "model"]]);
    assert.equal((await anthropic.models.retrieve(MODEL)).display_name, MODEL);
    assert.ok(!Number.isNaN(Date.parse(listed[0].created_at)));
    await assert.rejects(anthropic.models.retrieve("other"), Anthropic.NotFoundError);
});

test("messages", async () => {
    const message = await anthropic.messages.create(short);
    assert.deepEqual([message.type, message.role, message.stop_reason, message.stop_sequence], ["message", "assistant", "end_turn", null]);
    assert.equal(message.content[0].type, "text");
    assert.equal((await anthropic.messages.create({...short, max_tokens: 1})).stop_reason, "max_tokens");
    assert.match(message._request_id, /./);
    assert.deepEqual((await anthropic.messages.create({...short, thinking: {type: "disabled"}})).content, message.content);
});

test("usage leaves out what was read from the cache and what was kept there", async () => {
    const asked = {...short, cache_salt: "usage",
                   system: [{type: "text", text: "You know what Tom had, and say it.", cache_control: {type: "ephemeral"}}]};
    const {input_tokens: total} = await anthropic.messages.countTokens({model: MODEL, messages, system: asked.system});
    const first = (await anthropic.messages.create(asked)).usage;
    assert.equal(first.cache_read_input_tokens, 0);
    assert.ok(first.cache_creation_input_tokens > 0);
    assert.equal(first.input_tokens + first.cache_creation_input_tokens, total);
    const again = (await anthropic.messages.create(asked)).usage;
    assert.deepEqual([again.input_tokens, again.cache_creation_input_tokens, again.cache_read_input_tokens], [1, 0, total - 1]);
    const plain = (await anthropic.messages.create({...short, cache_salt: "plain"})).usage;
    assert.deepEqual([plain.cache_creation_input_tokens, plain.cache_read_input_tokens], [0, 0]);
    assert.equal((await anthropic.messages.countTokens({model: MODEL, messages})).input_tokens, plain.input_tokens);
});

test("streams", async () => {
    const whole = await anthropic.messages.create(short);
    const stream = anthropic.messages.stream(short);
    let text = "";
    const events = [];
    stream.on("text", (piece) => text += piece);
    stream.on("streamEvent", (event) => events.push(event.type));
    const message = await stream.finalMessage();
    assert.equal(text, whole.content[0].text);
    assert.deepEqual(message.content, whole.content);
    assert.deepEqual([message.stop_reason, message.stop_sequence], ["end_turn", null]);
    assert.deepEqual([events[0], events.at(-1)], ["message_start", "message_stop"]);
    assert.equal(message.usage.output_tokens, whole.usage.output_tokens);
    assert.equal(message.usage.input_tokens + message.usage.cache_read_input_tokens,
                 whole.usage.input_tokens + whole.usage.cache_read_input_tokens);
    let raw = "";
    for await (const event of await anthropic.messages.create({...short, stream: true}))
        if (event.type === "content_block_delta") raw += event.delta.text;
    assert.equal(raw, text);
});

test("stop sequences, and answers that were begun", async () => {
    const word = (await anthropic.messages.create(short)).content[0].text.slice(2, 5);
    const stopped = await anthropic.messages.create({...short, stop_sequences: ["zz", word]});
    assert.deepEqual([stopped.stop_reason, stopped.stop_sequence], ["stop_sequence", word]);
    const begun = await anthropic.messages.create({...short, messages: [...messages, {role: "assistant", content: "Tom had"}]});
    assert.equal(begun.type, "message");
});

test("documents in any order", async () => {
    const documents = ["Miami is by the sea. People swim there in the morning, and they eat fish in the evening. It is hot there all year.",
                       "Lisbon has seven hills. People walk there in the morning, and they drink coffee in the evening. It has a river."];
    const ask = (list) => anthropic.messages.create({...short, reuse: "modular", messages: [{role: "user", content: [
        ...list.map((data) => ({type: "document", source: {type: "text", media_type: "text/plain", data}})),
        {type: "text", text: "Where is the river?"}]}]});
    const first = (await ask(documents)).usage, second = (await ask([...documents].reverse())).usage;
    assert.ok(second.cache_read_input_tokens > first.cache_read_input_tokens);
    assert.ok(second.cache_read_input_tokens > second.input_tokens);
});

test("tools", async () => {
    const zones = ["utc", "local"];
    const input_schema = {type: "object", properties: {zone: {enum: zones}}, required: ["zone"], additionalProperties: false};
    const tools = [{name: "time", description: "Tells the time.", input_schema, cache_control: {type: "ephemeral"}}];
    const tool_choice = {type: "tool", name: "time", disable_parallel_tool_use: true};
    const must = {...short, max_tokens: 300, tools, tool_choice, cache_salt: "tools"};
    const first = await anthropic.messages.create(must);
    assert.equal(first.stop_reason, "tool_use");
    const call = first.content.find((block) => block.type === "tool_use");
    assert.equal(call.name, "time");
    assert.ok(zones.includes(call.input.zone));
    assert.ok(first.usage.cache_creation_input_tokens > 0);
    const streamed = await anthropic.messages.stream(must).finalMessage();
    assert.equal(streamed.stop_reason, "tool_use");
    assert.deepEqual(streamed.content.find((block) => block.type === "tool_use").input, call.input);
    assert.ok(streamed.usage.cache_read_input_tokens > 0);
    const conversation = [...messages, {role: "assistant", content: first.content},
                          {role: "user", content: [{type: "tool_result", tool_use_id: call.id, content: "noon"}]}];
    assert.equal((await anthropic.messages.create({...short, tools, messages: conversation})).type, "message");
    const {input_tokens: with_tools} = await anthropic.messages.countTokens({model: MODEL, messages, tools});
    assert.ok(with_tools > (await anthropic.messages.countTokens({model: MODEL, messages})).input_tokens);
    await assert.rejects(anthropic.messages.create({...must, tool_choice: {type: "tool", name: "nobody"}}), Anthropic.BadRequestError);
});

test("errors are the client's own", async () => {
    const create = (fields) => anthropic.messages.create({...short, ...fields});
    const says = (kind, type) => (e) => e instanceof kind && e.error.error.type === type && e.error.type === "error";
    assert.equal((await create({model: "other"})).model, MODEL);
    await assert.rejects(create({temperature: 9}), says(Anthropic.BadRequestError, "invalid_request_error"));
    await assert.rejects(create({max_tokens: undefined}), says(Anthropic.BadRequestError, "invalid_request_error"));
    await assert.rejects(create({messages: [{role: "user", content: "word ".repeat(5000)}]}),
                         says(Anthropic.BadRequestError, "invalid_request_error"));
    await assert.rejects(clientOf("a-key-that-nobody-has").messages.create(short),
                         says(Anthropic.AuthenticationError, "authentication_error"));
    await assert.rejects(anthropic.messages.stream({...short, temperature: 9}).finalMessage(), Anthropic.BadRequestError);
});

test("cancelled answers leave nothing behind", async () => {
    for await (const event of await anthropic.messages.create({...endless, stream: true}))
        if (event.type === "content_block_delta") break; // leaving the loop aborts
    await server.untilIdle();
    const stream = anthropic.messages.stream(endless);
    stream.once("text", () => stream.abort());
    await assert.rejects(stream.finalMessage(), Anthropic.APIUserAbortError);
    await server.untilIdle();
});
