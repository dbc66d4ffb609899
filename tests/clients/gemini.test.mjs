/* SPDX-License-Identifier: Apache-2.0 */
// The official client `@google/genai` against `reprise serve`.
import assert from "node:assert/strict";
import {after, before, test} from "node:test";

import {client, KEY, MODEL, QUESTION, Server} from "./reprise_server.mjs";

const {ApiError, FinishReason, GoogleGenAI, Type} = client("@google/genai");
let server, ai;

const clientOf = (apiKey) => new GoogleGenAI({apiKey, httpOptions: {baseUrl: server.url}});
const asked = (config, more) => ({model: MODEL, contents: QUESTION, config: {temperature: 0, maxOutputTokens: 8, ...config}, ...more});

before(async () => {
    server = await Server.start();
    ai = clientOf(KEY);
});
after(async () => assert.equal(await server.stop(), 0));

test("models", async () => {
    const listed = [];
    for await (const model of await ai.models.list()) listed.push(model);
    assert.deepEqual(listed.map((m) => m.name), ["models/" + MODEL]);
    const model = await ai.models.get({model: MODEL});
    assert.equal(model.inputTokenLimit, 2048);
    assert.ok(model.supportedActions.includes("generateContent"));
    await assert.rejects(ai.models.get({model: "other"}), (e) => e instanceof ApiError && e.status === 404);
});

test("answers, and what a second request reuses", async () => {
    const config = {systemInstruction: "You know what Tom had, and say it."};
    const first = await ai.models.generateContent(asked(config)), again = await ai.models.generateContent(asked(config));
    assert.equal(first.candidates[0].finishReason, FinishReason.STOP);
    assert.equal(again.text, first.text);
    const used = again.usageMetadata;
    assert.equal(used.cachedContentTokenCount, used.promptTokenCount - 1);
    assert.equal(used.totalTokenCount, used.promptTokenCount + used.candidatesTokenCount);
    const {totalTokens} = await ai.models.countTokens({model: MODEL, contents: QUESTION});
    assert.equal(totalTokens, (await ai.models.generateContent(asked())).usageMetadata.promptTokenCount);
});

test("streams", async () => {
    const whole = await ai.models.generateContent(asked());
    let text = "", last;
    for await (const chunk of await ai.models.generateContentStream(asked())) {
        text += chunk.text ?? "";
        last = chunk;
    }
    assert.equal(text, whole.text);
    assert.equal(last.candidates[0].finishReason, FinishReason.STOP);
    assert.equal(last.usageMetadata.promptTokenCount, whole.usageMetadata.promptTokenCount);
});

test("chats", async () => {
    const chat = ai.chats.create({model: MODEL, config: {temperature: 0, maxOutputTokens: 8}});
    const first = await chat.sendMessage({message: QUESTION});
    const second = await chat.sendMessage({message: "And Ann?"});
    assert.ok(second.usageMetadata.promptTokenCount > first.usageMetadata.promptTokenCount);
    assert.ok(second.usageMetadata.cachedContentTokenCount >= first.usageMetadata.promptTokenCount - 1);
    assert.equal(chat.getHistory().length, 4);
});

test("several answers, seeds, lengths, stop strings", async () => {
    const drawn = asked({candidateCount: 3, seed: 7, temperature: 1});
    const first = await ai.models.generateContent(drawn), again = await ai.models.generateContent(drawn);
    assert.equal(first.candidates.length, 3);
    assert.deepEqual(again.candidates, first.candidates);
    const cut = await ai.models.generateContent(asked({maxOutputTokens: 1}));
    assert.equal(cut.candidates[0].finishReason, FinishReason.MAX_TOKENS);
    const {text} = await ai.models.generateContent(asked());
    const stopped = await ai.models.generateContent(asked({stopSequences: [text.slice(3, 6)]}));
    assert.equal(stopped.text, text.slice(0, text.indexOf(text.slice(3, 6))));
});

test("cached contents", async () => {
    const contents = [{role: "user", parts: [{text: "Tom had a red ball. Ann had a blue hat."}]}];
    const cache = await ai.caches.create({model: MODEL, config: {contents, displayName: "toys", ttl: "300s"}});
    assert.ok(cache.usageMetadata.totalTokenCount > 10);
    assert.equal((await ai.caches.get({name: cache.name})).displayName, "toys");
    const answer = await ai.models.generateContent(asked({cachedContent: cache.name}, {contents: "What did Ann have?"}));
    assert.ok(answer.usageMetadata.promptTokenCount > cache.usageMetadata.totalTokenCount);
    assert.ok(answer.usageMetadata.cachedContentTokenCount > 10);
    const later = await ai.caches.update({name: cache.name, config: {ttl: "3600s"}});
    assert.ok(Date.parse(later.expireTime) > Date.parse(cache.expireTime));
    const listed = [];
    for await (const one of await ai.caches.list()) listed.push(one.name);
    assert.deepEqual(listed, [cache.name]);
    await ai.caches.delete({name: cache.name});
    await assert.rejects(ai.caches.get({name: cache.name}), (e) => e instanceof ApiError && e.status === 404);
});

test("tools and answers of a form", async () => {
    const zones = ["utc", "local"];
    const parametersJsonSchema = {type: "object", properties: {zone: {type: "string", enum: zones}}, required: ["zone"]};
    const time = {name: "time", description: "Tells the time.", parametersJsonSchema};
    const config = {maxOutputTokens: 300, tools: [{functionDeclarations: [time]}],
                    toolConfig: {functionCallingConfig: {mode: "ANY", allowedFunctionNames: ["time"]}}};
    const answer = await ai.models.generateContent(asked(config));
    assert.ok(answer.functionCalls.length >= 1);
    assert.equal(answer.functionCalls[0].name, "time");
    assert.ok(zones.includes(answer.functionCalls[0].args.zone));
    const streamed = [];
    for await (const chunk of await ai.models.generateContentStream(asked(config))) streamed.push(...(chunk.functionCalls ?? []));
    assert.deepEqual(streamed.map((c) => c.args), answer.functionCalls.map((c) => c.args));
    const results = answer.functionCalls.map((c) => ({functionResponse: {id: c.id, name: c.name, response: {time: "noon"}}}));
    const next = await ai.models.generateContent(asked({tools: config.tools}, {contents: [
        {role: "user", parts: [{text: QUESTION}]}, answer.candidates[0].content,
        {role: "user", parts: results}]}));
    assert.equal(next.candidates.length, 1);
    for (const form of [{responseSchema: {type: Type.OBJECT, properties: {zone: {type: Type.STRING, enum: zones}}, required: ["zone"]}},
                        {responseJsonSchema: parametersJsonSchema}]) {
        const formed = await ai.models.generateContent(asked({maxOutputTokens: 100, responseMimeType: "application/json", ...form}));
        assert.ok(zones.includes(JSON.parse(formed.text).zone));
    }
});

const interaction = (more) => ({model: MODEL, input: QUESTION, generation_config: {temperature: 0, max_output_tokens: 8}, ...more});

test("versions of the API", async () => {
    const whole = await ai.models.generateContent(asked());
    for (const apiVersion of ["v1", "v1beta", "v1alpha"]) {
        const one = new GoogleGenAI({apiKey: KEY, httpOptions: {baseUrl: server.url, apiVersion}});
        assert.equal((await one.models.generateContent(asked())).text, whole.text);
        assert.equal((await one.models.get({model: MODEL})).name, "models/" + MODEL);
        assert.ok((await one.models.embedContent({model: MODEL, contents: [QUESTION]})).embeddings[0].values.length > 0);
        assert.equal((await one.interactions.create(interaction())).output_text, whole.text);
    }
});

test("interactions, and what the next turn reuses", async () => {
    const system_instruction = "You know what Tom had, and say it.";
    const first = await ai.interactions.create(interaction({system_instruction}));
    assert.equal(first.status, "completed");
    assert.ok(first.output_text.length > 0);
    assert.equal(first.usage.total_tokens, first.usage.total_input_tokens + first.usage.total_output_tokens);
    const second = await ai.interactions.create(interaction({system_instruction, input: "And Ann?", previous_interaction_id: first.id}));
    assert.ok(second.usage.total_input_tokens > first.usage.total_tokens);
    assert.ok(second.usage.total_cached_tokens >= first.usage.total_tokens - 1, "the first turn is not computed again");
    const kept = await ai.interactions.get(first.id, {include_input: true});
    assert.deepEqual([kept.output_text, kept.status], [first.output_text, "completed"]);
    assert.deepEqual(kept.input, [{type: "user_input", content: [{type: "text", text: QUESTION}]}]);
    await assert.rejects(ai.interactions.cancel(first.id), (e) => e.status === 400 && e.message.includes("has ended"));
    await ai.interactions.delete(first.id);
    await assert.rejects(ai.interactions.get(first.id), (e) => e.status === 404);
    await assert.rejects(ai.interactions.create(interaction({previous_interaction_id: first.id})), (e) => e.status === 404 && e.message.includes(first.id));
    const unstored = await ai.interactions.create(interaction({store: false}));
    await assert.rejects(ai.interactions.get(unstored.id), (e) => e.status === 404);
});

test("interactions as streams", async () => {
    const whole = await ai.interactions.create(interaction());
    const read = async (stream) => {
        let text = "", last, id;
        for await (const event of stream) {
            if (event.event_type === "interaction.created") id = event.interaction.id;
            if (event.event_type === "step.delta") text += event.delta.text;
            last = event;
        }
        return {text, last, id};
    };
    const streamed = await read(await ai.interactions.create(interaction({stream: true})));
    assert.equal(streamed.text, whole.output_text);
    assert.equal(streamed.last.event_type, "interaction.completed");
    assert.equal(streamed.last.interaction.usage.total_input_tokens, whole.usage.total_input_tokens);
    const again = await read(await ai.interactions.get(streamed.id, {stream: true}));
    assert.deepEqual([again.text, again.id, again.last.interaction.usage], [streamed.text, streamed.id, streamed.last.interaction.usage]);
    const cut = await ai.interactions.create(interaction({generation_config: {max_output_tokens: 1}}));
    assert.equal(cut.status, "incomplete");
});

test("interactions with functions", async () => {
    const zones = ["utc", "local"];
    const tools = [{type: "function", name: "time", description: "Tells the time.",
                    parameters: {type: "object", properties: {zone: {type: "string", enum: zones}}, required: ["zone"]}}];
    const must = {tools, generation_config: {temperature: 0, max_output_tokens: 300, tool_choice: "any"}};
    const asked = await ai.interactions.create(interaction(must));
    assert.equal(asked.status, "requires_action");
    for (const call of asked.steps) {
        assert.deepEqual([call.type, call.name], ["function_call", "time"]);
        assert.ok(zones.includes(call.arguments.zone));
    }
    const arguments_ = [];
    for await (const event of await ai.interactions.create(interaction({...must, stream: true})))
        if (event.event_type === "step.delta") arguments_[event.index] = (arguments_[event.index] ?? "") + event.delta.arguments;
    assert.deepEqual(arguments_.map(JSON.parse), asked.steps.map((call) => call.arguments));
    const results = asked.steps.map((call) => ({type: "function_result", call_id: call.id, name: call.name, result: [{type: "text", text: "noon"}]}));
    const kept = await ai.interactions.create(interaction({tools, input: results, previous_interaction_id: asked.id}));
    const whole = await ai.interactions.create(interaction({tools, input: [{type: "user_input", content: [{type: "text", text: QUESTION}]}, ...asked.steps, ...results]}));
    assert.equal(kept.output_text, whole.output_text);
    assert.equal(kept.usage.total_input_tokens, whole.usage.total_input_tokens);
    const response_format = {type: "text", mime_type: "application/json", schema: tools[0].parameters};
    const formed = await ai.interactions.create(interaction({response_format, generation_config: {max_output_tokens: 100}}));
    assert.ok(zones.includes(JSON.parse(formed.output_text).zone));
});

test("errors are the client's own", async () => {
    const refused = (promise, status, says) =>
        assert.rejects(promise, (e) => e instanceof ApiError && e.status === status && e.message.includes(says));
    assert.equal((await ai.models.generateContent(asked({}, {model: "other"}))).modelVersion, MODEL);
    await refused(ai.models.generateContent(asked({temperature: 9})), 400, "generationConfig.temperature");
    await refused(ai.models.generateContent(asked({}, {contents: "word ".repeat(5000)})), 400, "INVALID_ARGUMENT");
    await refused(ai.models.generateContentStream(asked({temperature: 9})), 400, "INVALID_ARGUMENT");
    await refused(clientOf("a-key-that-nobody-has").models.generateContent(asked()), 401, "UNAUTHENTICATED");
    const fails = (promise, status, says) => assert.rejects(promise, (e) => e.status === status && e.message.includes(says));
    await fails(ai.interactions.create(interaction({input: "word ".repeat(5000)})), 400, "maximum number of tokens");
    await fails(ai.interactions.create(interaction({background: true})), 400, "background");
    await fails(ai.interactions.create(interaction({agent: "deep-research", model: undefined})), 400, "agent");
    await fails(clientOf("a-key-that-nobody-has").interactions.create(interaction()), 401, "API key");
});

test("cancelled answers leave nothing behind", async () => {
    const endless = (abortSignal) => asked({maxOutputTokens: 1900, temperature: 1, abortSignal}, {contents: "Tell a long story."});
    const controller = new AbortController();
    const stream = await ai.models.generateContentStream(endless(controller.signal));
    await assert.rejects(async () => {
        for await (const chunk of stream) if (chunk) controller.abort();
    }, {name: "AbortError"});
    await server.untilIdle();
});
