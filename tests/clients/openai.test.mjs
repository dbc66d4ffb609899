/* SPDX-License-Identifier: Apache-2.0 */
// The official client `openai` against `reprise serve`.
import assert from "node:assert/strict";
import {after, before, test} from "node:test";

import {client, KEY, MODEL, QUESTION, Server, SLOW_KEY} from "./reprise_server.mjs";

const OpenAI = client("openai").default;
const messages = [{role: "user", content: QUESTION}];
const short = {model: MODEL, messages, temperature: 0, max_tokens: 8};
const endless = {model: MODEL, messages, temperature: 0, max_tokens: 1900, ignore_eos: true};
let server, openai;

const clientOf = (apiKey, more) => new OpenAI({baseURL: server.url + "/v1", apiKey, maxRetries: 0, ...more});

before(async () => {
    server = await Server.start();
    openai = clientOf(KEY);
});
after(async () => assert.equal(await server.stop(), 0));

test("models", async () => {
    const listed = [];
    for await (const model of openai.models.list()) listed.push(model);
    assert.deepEqual(listed.map((m) => m.id), [MODEL]);
    assert.equal((await openai.models.retrieve(MODEL)).owned_by, "reprise");
    await assert.rejects(openai.models.retrieve("other"), OpenAI.NotFoundError);
});

test("chat, and what a second request reuses", async () => {
    const first = await openai.chat.completions.create({...short, cache_salt: "chat"});
    assert.equal(first.choices[0].finish_reason, "stop");
    assert.equal(first.choices[0].message.role, "assistant");
    assert.equal(first.usage.prompt_tokens_details.cached_tokens, 0);
    assert.equal(first.usage.total_tokens, first.usage.prompt_tokens + first.usage.completion_tokens);
    assert.match(first._request_id, /./);
    const again = await openai.chat.completions.create({...short, cache_salt: "chat"});
    assert.equal(again.choices[0].message.content, first.choices[0].message.content);
    assert.equal(again.usage.prompt_tokens_details.cached_tokens, first.usage.prompt_tokens - 1);
});

test("embeddings", async () => {
    const texts = ["Tom had a red ball.", "The sun is hot."];
    const two = await openai.embeddings.create({model: MODEL, input: texts, cache_salt: "embeddings"}); // the client asks for base64, and decodes it
    assert.deepEqual(two.data.map((d) => d.index), [0, 1]);
    const length = Math.hypot(...two.data[0].embedding);
    assert.ok(Math.abs(length - 1) < 1e-5, `length ${length}`);
    const one = await openai.embeddings.create({model: MODEL, input: texts[0], encoding_format: "float", cache_salt: "embeddings"});
    one.data[0].embedding.forEach((v, i) => assert.ok(Math.abs(v - two.data[0].embedding[i]) < 1e-6));
    assert.equal(one.usage.prompt_tokens_details.cached_tokens, one.usage.prompt_tokens - 1);
    const few = await openai.embeddings.create({model: MODEL, input: texts, dimensions: 8});
    assert.equal(few.data[1].embedding.length, 8);
    await assert.rejects(openai.embeddings.create({model: MODEL, input: []}), OpenAI.BadRequestError);
});

test("streams", async () => {
    const whole = await openai.chat.completions.create(short);
    let text = "", usage, finish;
    for await (const chunk of await openai.chat.completions.create({...short, stream: true, stream_options: {include_usage: true}})) {
        text += chunk.choices[0]?.delta.content ?? "";
        finish = chunk.choices[0]?.finish_reason ?? finish;
        usage = chunk.usage ?? usage;
    }
    assert.equal(text, whole.choices[0].message.content);
    assert.equal(finish, "stop");
    assert.equal(usage.prompt_tokens, whole.usage.prompt_tokens);
    assert.equal(usage.prompt_tokens_details.cached_tokens, whole.usage.prompt_tokens - 1);
    const gathered = await openai.chat.completions.stream(short).finalChatCompletion();
    assert.equal(gathered.choices[0].message.content, text);
});

test("several answers, seeds", async () => {
    const drawn = {...short, n: 3, seed: 7, temperature: 1, ignore_eos: true};
    const first = await openai.chat.completions.create(drawn), again = await openai.chat.completions.create(drawn);
    assert.deepEqual(first.choices.map((c) => c.index), [0, 1, 2]);
    assert.deepEqual(again.choices, first.choices);
    const other = await openai.chat.completions.create({...drawn, seed: 8});
    assert.notDeepEqual(other.choices, first.choices);
    const texts = ["", "", ""];
    for await (const chunk of await openai.chat.completions.create({...drawn, stream: true}))
        for (const c of chunk.choices) texts[c.index] += c.delta.content ?? "";
    assert.deepEqual(texts, first.choices.map((c) => c.message.content));
});

test("probabilities", async () => {
    const asked = {...short, logprobs: true, top_logprobs: 2};
    const {content} = (await openai.chat.completions.create(asked)).choices[0].logprobs;
    for (const entry of content) {
        assert.equal(entry.top_logprobs.length, 2);
        assert.equal(entry.top_logprobs[0].token, entry.token); // greedy
        assert.ok(entry.logprob <= 0);
    }
    const streamed = [];
    for await (const chunk of await openai.chat.completions.create({...asked, stream: true}))
        streamed.push(...(chunk.choices[0].logprobs?.content ?? []));
    assert.deepEqual(streamed, content);
});

test("stop strings and lengths", async () => {
    const asked = {...short, ignore_eos: true};
    const whole = (await openai.chat.completions.create(asked)).choices[0];
    assert.equal(whole.finish_reason, "length");
    const word = whole.message.content.slice(3, 6);
    const stopped = (await openai.chat.completions.create({...asked, stop: ["zzz", word]})).choices[0];
    assert.equal(stopped.finish_reason, "stop");
    assert.equal(stopped.message.content, whole.message.content.slice(0, whole.message.content.indexOf(word)));
});

test("completions", async () => {
    const asked = {model: MODEL, prompt: "Tom had a", temperature: 0, max_tokens: 4};
    const whole = await openai.completions.create({...asked, prompt: ["Tom had a", "One day"], logprobs: 1});
    assert.equal(whole.choices.length, 2);
    assert.equal(whole.choices[0].logprobs.tokens.length, 4);
    let text = "";
    for await (const chunk of await openai.completions.create({...asked, stream: true}))
        text += chunk.choices[0].text;
    assert.equal(text, whole.choices[0].text);
});

const cities = `<schema name="cities"><user><module name="miami">Miami is by the sea, and people swim there.</module>
<module name="lisbon">Lisbon has seven hills, and people walk there.</module></user></schema>`;
const documents = ["Miami is by the sea. People swim there in the morning, and they eat fish in the evening. It is hot there all year.",
                   "Lisbon has seven hills. People walk there in the morning, and they drink coffee in the evening. It has a river."];

test("modules and documents as content parts", async () => {
    await openai.put("/schemas/cities", {body: new Blob([cities]), headers: {"Content-Type": "application/xml"}});
    const ask = (...names) => openai.chat.completions.create({...short, messages: [{
        role: "user", content: [...names.map((name) => ({type: "module", schema: "cities", name})), {type: "text", text: "Where?"}]}]});
    const both = await ask("miami", "lisbon"), turned = await ask("lisbon", "miami");
    assert.equal(turned.usage.prompt_tokens, both.usage.prompt_tokens);
    assert.ok(turned.usage.prompt_tokens_details.cached_tokens > 15);
    const order = (list) => openai.chat.completions.create({...short, reuse: "modular", messages: [{
        role: "user", content: [...list, "Where is the river?"].map((text) => ({type: "text", text}))}]});
    const first = await order(documents), second = await order([...documents].reverse());
    assert.equal(first.usage.prompt_tokens_details.cached_tokens < second.usage.prompt_tokens_details.cached_tokens, true);
    assert.ok(second.usage.prompt_tokens_details.cached_tokens > second.usage.prompt_tokens / 2);
});

const zone = {type: "object", properties: {zone: {enum: ["utc", "local"]}}, required: ["zone"], additionalProperties: false};
const zones = ["utc", "local"];
const tools = [{type: "function", function: {name: "time", description: "Tells the time.", parameters: zone, strict: true}}];
const must = {...short, tools, tool_choice: "required", parallel_tool_calls: false, max_tokens: 300};

test("tools", async () => {
    const {choices: [choice]} = await openai.chat.completions.create(must);
    assert.equal(choice.finish_reason, "tool_calls");
    const [call] = choice.message.tool_calls;
    assert.equal(call.function.name, "time");
    assert.ok(zones.includes(JSON.parse(call.function.arguments).zone));
    const streamed = await openai.chat.completions.stream(must).finalChatCompletion();
    assert.equal(streamed.choices[0].finish_reason, "tool_calls");
    assert.equal(streamed.choices[0].message.tool_calls[0].function.arguments, call.function.arguments);
    const next = await openai.chat.completions.create({...short, tools, messages: [
        ...messages, choice.message, {role: "tool", tool_call_id: call.id, content: "noon"}]});
    assert.equal(typeof next.choices[0].message.content, "string");
    let asked;
    const runner = openai.chat.completions.runTools({...must, tool_choice: {type: "function", function: {name: "time"}}, tools: [{
        type: "function", function: {...tools[0].function, parse: JSON.parse, function: (args) => { asked = args; return "noon"; }}}]});
    await runner.done();
    assert.ok(zones.includes(asked.zone));
    await assert.rejects(openai.chat.completions.create({...must, tools: [{type: "function", function: {name: "a b"}}]}),
                         OpenAI.BadRequestError);
});

test("answers of a form", async () => {
    const response_format = {type: "json_schema", json_schema: {name: "when", schema: zone, strict: true}};
    const parsed = await openai.chat.completions.parse({...short, max_tokens: 100, response_format});
    assert.ok(zones.includes(JSON.parse(parsed.choices[0].message.content).zone));
    const object = {...short, max_tokens: 200, seed: 1, temperature: 1, response_format: {type: "json_object"}};
    const any = await openai.chat.completions.create(object);
    if (any.choices[0].finish_reason === "stop") assert.equal(typeof JSON.parse(any.choices[0].message.content), "object");
    const unknown = {type: "json_schema", json_schema: {name: "x", schema: {not: {}}}};
    await assert.rejects(openai.chat.completions.create({...short, response_format: unknown}), OpenAI.BadRequestError);
});

test("responses", async () => {
    const asked = {model: MODEL, input: QUESTION, temperature: 0, max_output_tokens: 8, instructions: "Be brief."};
    const first = await openai.responses.create({...asked, cache_salt: "responses"});
    assert.equal(first.status, "completed");
    assert.equal(first.usage.input_tokens_details.cached_tokens, 0);
    const again = await openai.responses.create({...asked, cache_salt: "responses"});
    assert.equal(again.output_text, first.output_text);
    assert.equal(again.usage.input_tokens_details.cached_tokens, first.usage.input_tokens - 1);
    let text = "", last;
    for await (const event of await openai.responses.create({...asked, stream: true})) {
        if (event.type === "response.output_text.delta") text += event.delta;
        last = event;
    }
    assert.equal(last.type, "response.completed");
    assert.equal(text, first.output_text);
    assert.equal((await openai.responses.stream(asked).finalResponse()).output_text, text);
    const next = await openai.responses.create({...asked, input: "And Ann?", previous_response_id: first.id});
    assert.equal(next.previous_response_id, first.id);
    assert.ok(next.usage.input_tokens > first.usage.input_tokens);
    assert.equal((await openai.responses.retrieve(first.id)).output_text, first.output_text);
    await openai.responses.delete(first.id);
    await assert.rejects(openai.responses.retrieve(first.id), OpenAI.NotFoundError);
    const called = await openai.responses.create({...asked, tools: [{type: "function", name: "time", parameters: zone, strict: true}],
                                                  tool_choice: "required", parallel_tool_calls: false, max_output_tokens: 300});
    const [call] = called.output;
    assert.deepEqual([call.type, call.name], ["function_call", "time"]);
    assert.ok(zones.includes(JSON.parse(call.arguments).zone));
    const format = {type: "json_schema", name: "when", schema: zone, strict: true};
    const formed = await openai.responses.parse({...asked, max_output_tokens: 100, text: {format}});
    assert.ok(zones.includes(JSON.parse(formed.output_text).zone));
    await assert.rejects(openai.responses.create({...asked, temperature: 9}), OpenAI.BadRequestError);
});

test("errors are the client's own", async () => {
    const create = (fields) => openai.chat.completions.create({...short, ...fields});
    const other = await create({model: "other"});
    assert.deepEqual([other.model, other.reprise.warnings], [MODEL, ["unknown model 'other': ignored"]]);
    await assert.rejects(create({temperature: 9}), (e) => e instanceof OpenAI.BadRequestError && e.param === "temperature");
    await assert.rejects(create({temperature: 9, stream: true}), OpenAI.BadRequestError);
    await assert.rejects(create({messages: [{role: "user", content: "word ".repeat(5000)}]}),
                         (e) => e instanceof OpenAI.BadRequestError && e.code === "context_length_exceeded");
    await assert.rejects(clientOf("a-key-that-nobody-has").chat.completions.create(short), OpenAI.AuthenticationError);
    await assert.rejects(openai.get("/nothing"), OpenAI.NotFoundError);
});

test("more requests at a time than a key may have", async () => {
    const slow = clientOf(SLOW_KEY);
    const stream = await slow.chat.completions.create({...endless, stream: true});
    await stream[Symbol.asyncIterator]().next();
    await assert.rejects(slow.chat.completions.create(short),
                         (e) => e instanceof OpenAI.RateLimitError && e.headers.get("retry-after") !== null);
    stream.controller.abort();
    await server.untilIdle();
});

test("cancelled answers leave nothing behind", async () => {
    const stream = await openai.chat.completions.create({...endless, stream: true});
    for await (const chunk of stream) if (chunk.choices[0].delta.content) break; // leaving the loop aborts
    await server.untilIdle();
    const later = openai.chat.completions.stream(endless);
    later.once("content", () => later.abort());
    await assert.rejects(later.finalChatCompletion(), OpenAI.APIUserAbortError);
    await server.untilIdle();
    const controller = new AbortController();
    const whole = openai.chat.completions.create(endless, {signal: controller.signal});
    while (await server.metric("reprise_jobs_open") === 0);
    controller.abort();
    await assert.rejects(whole, OpenAI.APIUserAbortError);
    await server.untilIdle();
});

test("a full server is tried again", async () => {
    const full = await Server.start("--mock", "--mock-step", "20", "--sequences", "1", "--queue", "1"); // 20 ms a token: the first answer does not end
    const clientWith = (options) => new OpenAI({baseURL: full.url + "/v1", apiKey: KEY, maxRetries: 0, ...options});
    const ask = (fields, options) => clientWith(options).chat.completions.create(fields);
    const first = await ask({...endless, stream: true});
    const read = (async () => { for await (const _ of first); })().catch(() => {}); // an answer that nobody reads is paused, and leaves its place
    while (await full.metric("reprise_requests_running") < 1);
    const second = ask(short);
    while (await full.metric("reprise_jobs_open") < 2);
    await assert.rejects(ask(short), (e) => e instanceof OpenAI.InternalServerError && e.status === 503 && e.headers.has("retry-after"));
    const third = ask(short, {maxRetries: 5});
    while (await full.metric('reprise_rejections_total{reason="overloaded"}') < 2);
    first.controller.abort();
    await read;
    const [a, b] = await Promise.all([second, third]);
    assert.deepEqual(a.choices, b.choices);
    assert.equal(await full.stop(), 0);
});
