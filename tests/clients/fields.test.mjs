/* SPDX-License-Identifier: Apache-2.0 */
// docs/fields.md has a row for every field of the official clients' request types: they are read with the compiler that made them.
import assert from "node:assert/strict";
import {execFileSync} from "node:child_process";
import {dirname, join} from "node:path";
import {test} from "node:test";
import {fileURLToPath} from "node:url";
import {client} from "./reprise_server.mjs";

const ts = client("typescript");
const SOURCE = join(dirname(fileURLToPath(import.meta.url)), "..", "..");
const TABLE = join(SOURCE, "tests", "server", "field_table.py");

// By title in docs/fields.md: a package, its file of types, and types with the place of their fields in a request. `drop`: fields that the
// client keeps to itself, or that are read from another type.
const ANTHROPIC = {package: "@anthropic-ai/sdk", drop: /^$/};
const GENAI = {package: "@google/genai", file: "dist/genai.d.ts", drop: /^(abortSignal|httpOptions|automaticFunctionCalling|systemInstruction|tools|contents)\b/};
const OLLAMA = {package: "ollama", file: "dist/browser.d.ts"};
const TYPES = {
    "OpenAI: chat completions": [{package: "openai", file: "resources/chat/completions/completions.d.ts", types: {ChatCompletionCreateParamsBase: ""}}],
    "OpenAI: responses": [{package: "openai", file: "resources/responses/responses.d.ts", types: {ResponseCreateParamsBase: ""}}],
    "OpenAI: completions": [{package: "openai", file: "resources/completions.d.ts", types: {CompletionCreateParamsBase: ""}}],
    "OpenAI: embeddings": [{package: "openai", file: "resources/embeddings.d.ts", types: {EmbeddingCreateParams: ""}}],
    "Anthropic: messages": [
        {...ANTHROPIC, file: "resources/messages/messages.d.ts", types: {MessageCreateParamsBase: "", MessageCountTokensParams: ""}},
        {...ANTHROPIC, file: "resources/beta/messages/messages.d.ts", types: {MessageCreateParamsBase: "", MessageCountTokensParams: ""}},
    ],
    "Gemini: generateContent, countTokens": [
        {...GENAI, types: {GenerateContentConfig: "generationConfig", GenerationConfig: "generationConfig", Content: "contents[]", Tool: "tools[]"}},
    ],
    "Gemini: interactions": [{...GENAI, drop: /^$/, types: {CreateModelInteraction: "", CreateAgentInteraction: ""}}],
    "Gemini: embedContent, batchEmbedContents": [{...GENAI, types: {EmbedContentConfig: ""}}],
    "Gemini: cachedContents": [{...GENAI, types: {CreateCachedContentConfig: ""}}],
    "Ollama: generate": [{...OLLAMA, types: {GenerateRequest: ""}}],
    "Ollama: chat": [{...OLLAMA, types: {ChatRequest: ""}}],
    "Ollama: embed, embeddings": [{...OLLAMA, types: {EmbedRequest: "", EmbeddingsRequest: ""}}],
    "Ollama: show": [{...OLLAMA, types: {ShowRequest: ""}}],
};
const MOST_STEPS = 10; // types refer to themselves

const folder = dirname(client.resolve("typescript/package.json")).replace(/typescript$/, "");
const at = (source) => join(folder, source.package, source.file);
const program = ts.createProgram([...new Set(Object.values(TYPES).flat().map(at))], {
    strict: true, module: ts.ModuleKind.NodeNext, moduleResolution: ts.ModuleResolutionKind.NodeNext, target: ts.ScriptTarget.ES2022, skipLibCheck: true, types: [],
});
const checker = program.getTypeChecker();

function typeOf(source, name) {
    const file = program.getSourceFile(at(source));
    assert.ok(file, `${at(source)} is missing`);
    const exported = checker.getExportsOfModule(checker.getSymbolAtLocation(file)).find((e) => e.name === name);
    const own = exported ?? file.statements.map((s) => s.name && checker.getSymbolAtLocation(s.name)).find((s) => s?.name === name);
    assert.ok(own, `${at(source)} has no type ${name}`);
    return checker.getDeclaredTypeOfSymbol(own.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(own) : own);
}

const isObject = (type) => Boolean(type.flags & (ts.TypeFlags.Object | ts.TypeFlags.Intersection)) && !(type.isIntersection() && type.types.some((t) => !isObject(t)));
const isBuiltIn = (type) => (type.symbol?.declarations ?? []).some((d) => program.isSourceFileDefaultLibrary(d.getSourceFile()));

/** The values of a field that tells the types of a union apart: "<text>". */
function label(type) {
    for (const name of ["type", "role"]) {
        const field = type.getProperty(name);
        const value = field && checker.getNonNullableType(checker.getTypeOfSymbol(field));
        const values = value ? (value.isUnion() ? value.types : [value]).filter((t) => t.isStringLiteral()).map((t) => t.value) : [];
        if (values.length) return `<${values.join("|")}>`;
    }
    return "";
}

/** Adds all fields of a type. */
function walk(type, path, around, fields) {
    const parts = (type.isUnion() ? type.types : [type]).filter(isObject);
    for (const list of parts.filter((t) => checker.isArrayType(t) || checker.isTupleType(t) || (isBuiltIn(t) && /Array|Iterable/.test(t.symbol.name))))
        for (const element of checker.getTypeArguments(list)) walk(element, path + "[]", around, fields);
    const objects = parts.filter((t) => !isBuiltIn(t) && t.getCallSignatures().length === 0);
    for (const object of objects.filter((t) => !around.includes(t) && around.length < MOST_STEPS))
        for (const field of object.getProperties().filter((p) => !p.name.startsWith("__"))) {
            const here = path + (path && objects.length > 1 ? label(object) : "") + (path ? "." : "") + field.name;
            fields.add(here);
            walk(checker.getNonNullableType(checker.getTypeOfSymbol(field)), here, [...around, object], fields);
        }
}

function fieldsOf(source) {
    const found = new Set();
    for (const [name, place] of Object.entries(source.types)) {
        const own = new Set();
        walk(typeOf(source, name), "", [], own);
        assert.ok(own.size > 0, name);
        for (const field of own) if (!source.drop?.test(field)) found.add(place && `${place}.${field}` || field);
    }
    return [...found];
}

/** Fields that no row has, by title. */
function lacking(fields) {
    return JSON.parse(execFileSync("python3", [TABLE], {input: JSON.stringify(fields), encoding: "utf8", maxBuffer: 1 << 28}));
}

test("every field of a request type has a row in docs/fields.md", () => {
    const fields = Object.fromEntries(Object.entries(TYPES).map(([title, sources]) => [title, sources.flatMap(fieldsOf)]));
    const found = lacking(fields);
    // what the client of Gemini has in `config` is in generationConfig or beside it
    const title = "Gemini: generateContent, countTokens", beside = lacking({[title]: found[title].map((f) => f.replace(/^generationConfig\./, ""))})[title];
    found[title] = found[title].filter((f) => beside.includes(f.replace(/^generationConfig\./, "")));
    assert.deepEqual(Object.entries(found).flatMap(([where, list]) => list.map((field) => `${where}: ${field}`)), []);
});

test("a field without a row is found", () => {
    assert.deepEqual(lacking({"OpenAI: chat completions": ["model", "modle", "messages[]<user>.content[]<text>.txet", "metadata.any"], "none": ["x", "x.y"]}),
        {"OpenAI: chat completions": ["modle", "messages[]<user>.content[]<text>.txet"], "none": ["x"]});
});
