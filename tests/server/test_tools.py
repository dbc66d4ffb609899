#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise serve`: tools in the dialects of OpenAI, Anthropic and Gemini. The bundled model calls nothing by itself, so calls are made certain
by the choice; where it may choose, texts are looked at."""
import json
import unittest

from server_process import Server

WEATHER = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 8}, "unit": {"enum": ["c", "f"]},
                                            "days": {"type": "integer", "minimum": 1, "maximum": 14}},
           "required": ["city", "unit"], "additionalProperties": False}
TIME = {"type": "object", "properties": {"zone": {"enum": ["utc", "local"]}}, "required": ["zone"]}
QUESTION = [{"role": "user", "content": "What is the weather in Rome?"}]


def function(name, schema, **more):
    return {"type": "function", "function": {"name": name, "description": f"Tells the {name}.", "parameters": schema, **more}}


TOOLS = [function("weather", WEATHER), function("time", TIME)]


def shuffled(value):
    """The same JSON with the keys of all objects in another order."""
    if isinstance(value, dict):
        return {k: shuffled(value[k]) for k in reversed(value)}
    return [shuffled(v) for v in value] if isinstance(value, list) else value


class Tools(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server().wait_ready()
        cls.addClassCleanup(cls.server.stop)

    def check_weather(self, arguments):
        self.assertLessEqual({"city", "unit"}, set(arguments))
        self.assertLessEqual(set(arguments), {"city", "unit", "days"})
        self.assertLessEqual(len(arguments["city"]), 8)
        self.assertIn(arguments["unit"], ("c", "f"))
        self.assertIn(arguments.get("days", 1), range(1, 15))


class OpenAI(Tools):
    def chat(self, **fields):
        return self.server.post("/v1/chat/completions", {"messages": QUESTION, "temperature": 1, "seed": 3, "max_tokens": 1000, "tools": TOOLS,
                                                         **fields})

    def refused(self, reply, says, code=None):
        self.assertEqual(reply.status, 400, reply.body)
        self.assertIn(says, reply.json["error"]["message"])
        if code:
            self.assertEqual(reply.json["error"]["code"], code)

    def calls(self, **fields):
        choice = self.chat(**fields).json["choices"][0]
        self.assertEqual((choice["finish_reason"], choice["message"]["content"]), ("tool_calls", None), choice)
        return choice["message"]["tool_calls"]

    def test_named(self):
        for seed in range(4):
            calls = self.calls(tool_choice={"type": "function", "function": {"name": "weather"}}, parallel_tool_calls=False, seed=seed)
            self.assertEqual([(c["type"], c["function"]["name"]) for c in calls], [("function", "weather")])
            self.check_weather(json.loads(calls[0]["function"]["arguments"]))

    def test_required_and_parallel(self):
        calls = self.calls(tool_choice="required")
        self.assertEqual(len({c["id"] for c in calls}), len(calls))
        for call in calls:
            arguments = json.loads(call["function"]["arguments"])
            if call["function"]["name"] == "weather":
                self.check_weather(arguments)
            else:
                self.assertIn(arguments["zone"], ("utc", "local"))
        self.assertEqual(len(self.calls(tool_choice="required", parallel_tool_calls=False)), 1)
        other = self.calls(tool_choice="required", parallel_tool_calls=False)
        self.assertNotEqual(other[0]["id"], calls[0]["id"])
        allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "time"}}]}}
        self.assertEqual({c["function"]["name"] for c in self.calls(tool_choice=allowed)}, {"time"})

    def test_stream_is_the_same(self):
        whole = self.calls(tool_choice="required")
        frames = [json.loads(data) for _, data in self.chat(tool_choice="required", stream=True).frames[:-1]]
        calls = []
        for choice in (f["choices"][0] for f in frames):
            self.assertFalse(choice["delta"].get("content"))
            for part in choice["delta"].get("tool_calls", []):
                if part["index"] == len(calls):
                    self.assertEqual((part["type"], part["function"]["arguments"]), ("function", ""))
                    calls.append([part["id"], part["function"]["name"], ""])
                else:
                    self.assertEqual((part["index"], set(part), set(part["function"])), (len(calls) - 1, {"index", "function"}, {"arguments"}))
                    calls[-1][2] += part["function"]["arguments"]
        self.assertEqual([c[1:] for c in calls], [[c["function"]["name"], c["function"]["arguments"]] for c in whole])
        self.assertEqual(len({c[0] for c in calls}), len(calls))
        self.assertEqual(frames[-1]["choices"][0]["finish_reason"], "tool_calls")

    def test_text_stays_text(self):
        for choice in ("auto", "none"):
            message = self.chat(tool_choice=choice, temperature=0, max_tokens=12).json["choices"][0]["message"]
            self.assertNotIn("tool_calls", message)
            streamed = self.chat(tool_choice=choice, temperature=0, max_tokens=12, stream=True).frames[:-1]
            text = "".join(json.loads(data)["choices"][0]["delta"].get("content") or "" for _, data in streamed)
            self.assertEqual(text, message["content"])

    def test_cut_call(self):
        choice = self.chat(tool_choice="required", max_tokens=4).json["choices"][0]
        self.assertEqual(choice["finish_reason"], "length")
        self.assertTrue("<tool_call>".startswith(choice["message"]["content"][:11]), choice)

    def test_shuffled_definitions_are_the_same_prompt(self):
        first = self.chat(cache_salt="shuffled", tool_choice="auto", max_tokens=1).json
        again = self.chat(cache_salt="shuffled", tool_choice="auto", max_tokens=1, tools=shuffled(TOOLS)).json
        self.assertEqual(first["usage"]["prompt_tokens"], again["usage"]["prompt_tokens"])
        self.assertEqual(first["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
        self.assertEqual(again["usage"]["prompt_tokens_details"]["cached_tokens"], again["usage"]["prompt_tokens"] - 1)
        texts = [self.server.post("/apply-template", {"messages": QUESTION, "tools": t}).json["prompt"] for t in (TOOLS, shuffled(TOOLS))]
        self.assertEqual(texts[0], texts[1])
        self.assertIn('{"function":{"description":"Tells the weather.","name":"weather","parameters":{"additionalProperties":false', texts[0])

    def test_modular_definitions_in_any_order(self):
        text = " ".join(f"Tom had {i} red balls." for i in range(20))
        document = {"type": "document", "source": {"type": "text", "data": text}}
        messages = [{"role": "user", "content": [document, {"type": "text", "text": "How many?"}]},
                    {"role": "assistant", "content": "I look.", "tool_calls": [
                        {"id": "c1", "type": "function", "function": {"name": "time", "arguments": "{}"}}]},
                    {"role": "tool", "tool_call_id": "c1", "content": [{**document, "title": "Balls"}]}]

        def modules(tools):
            whole = self.chat(messages=messages, tools=tools, reuse="modular", cache_salt="modular", max_tokens=1).json
            return {p["module"]: (p["tokens"], p["reused"]) for p in whole["reprise"]["parts"] if p["module"] not in ("", "prompt")}
        first, again = modules(TOOLS), modules(TOOLS[::-1])
        self.assertEqual(len(first), 4)  # two tools, and the document as it is and with its title
        self.assertEqual(again, {name: (tokens, True) for name, (tokens, _) in first.items()})
        self.assertFalse(any(reused for _, reused in first.values()))

    def test_conversation_with_calls(self):
        call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
        other = {"id": "c2", "type": "function", "function": {"name": "time", "arguments": ""}}
        messages = [{"role": "system", "content": "Be brief."}, *QUESTION, {"role": "assistant", "content": None, "tool_calls": [call, other]},
                    {"role": "tool", "tool_call_id": "c2", "content": "noon"}, {"role": "tool", "tool_call_id": "c1", "content": "sun"}]
        prompt = self.server.post("/apply-template", {"messages": messages, "tools": TOOLS}).json["prompt"]
        self.assertIn("<|im_start|>system\nBe brief.\n\n# Tools", prompt)
        self.assertTrue(prompt.endswith(
            '<|im_start|>assistant\n<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>\n<tool_call>\n'
            '{"name": "time", "arguments": {}}\n</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\nsun\n</tool_response>\n'
            '<tool_response>\nnoon\n</tool_response><|im_end|>\n<|im_start|>assistant\n'), prompt)
        self.assertEqual(self.chat(messages=messages, max_tokens=4).status, 200)
        messages[-1]["tool_call_id"] = "c9"
        self.refused(self.chat(messages=messages), "c9")

    def test_next_turn_goes_on(self):
        """What the answer's tokens computed is found by the next turn: the call is written as the model wrote it."""
        fields = {"tool_choice": {"type": "function", "function": {"name": "time"}}, "parallel_tool_calls": False, "cache_salt": "turns"}
        first = self.chat(**fields).json
        message = first["choices"][0]["message"]
        answer = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "noon"}
        again = self.chat(messages=[*QUESTION, message, answer], **fields).json["usage"]
        self.assertGreater(again["prompt_tokens_details"]["cached_tokens"], first["usage"]["prompt_tokens"])

    def test_several_choices(self):
        choices = self.chat(n=3, tool_choice="required", parallel_tool_calls=False).json["choices"]
        self.assertEqual(len({c["message"]["tool_calls"][0]["id"] for c in choices}), 3)

    def test_refused(self):
        for fields, says in (({"tools": 3}, "tools"), ({"tools": [3]}, "tools[0]"), ({"tools": [{"type": "custom"}]}, "custom"),
                             ({"tools": [{"type": "function"}]}, "tools[0].function"), ({"tools": [function("a b", {})]}, "a b"),
                             ({"tools": [function("a", {}), function("a", {})]}, "duplicate tool 'a'"), ({"tool_choice": "maybe"}, "maybe"),
                             ({"tool_choice": {"type": "function", "function": {"name": "nobody"}}}, "nobody"),
                             ({"tool_choice": {"type": "mcp"}}, "mcp"), ({"tools": [], "tool_choice": "required"}, "tools"),
                             ({"tools": [function("f", {"type": "string"}, strict=True)]}, "tools[0].function.parameters"),
                             ({"tools": [function("f", {"type": "object", "properties": {"a": {"type": "strin"}}}, strict=True)]},
                              "tools[0].function.parameters.properties.a.type"),
                             ({"tools": [function("f", {"type": "object", "properties": {"a": {"not": {}}}, "required": ["a"]}, strict=True)]}, "required"),
                             ({"grammar": 'root ::= "a"'}, "grammar"),
                             ({"messages": [{"role": "assistant", "tool_calls": [{"function": {}}]}]}, "messages[0].tool_calls[0].function.name")):
            with self.subTest(fields=fields):
                self.refused(self.chat(**fields), says)
        self.assertEqual(self.chat(tools=[function("f", {"type": "object", "properties": {"a": {"not": {}}}})], max_tokens=1).status, 200)
        self.assertEqual(self.chat(tools=[{"type": "function", "function": {"name": "ping"}}], max_tokens=1).status, 200)

    def test_tools_that_are_not_strict(self):
        """Their schemas refuse no request: what cannot be enforced is dropped, and named. The rest is enforced."""
        n = {"type": "integer", "minimum": 7, "maximum": 7}
        many = {"type": "array", "prefixItems": [{"maxLength": 2000}] * 80}  # more nodes than a grammar may have
        for schema, place in (({"pattern": "^(?!x)"}, ".p.pattern"), ({"$ref": "https://example.com/a.json"}, ".p.$ref"), ({"type": "strin"}, ".p.type"),
                              ({"type": "integer", "minimum": 5, "maximum": 2}, ".p.minimum"), ({"enum": []}, ".p.enum"), (False, None), (3, ".p "),
                              ({"type": "string", "const": 5}, "properties.p "), ({"anyOf": [False]}, "properties.p "), ({"items": "x", "type": "array"}, ".p.items"),
                              ({"$ref": "#/properties/p"}, "itself"), ({"properties": []}, ".p.properties"), ({"required": [3]}, ".p.required"),
                              (many, "the schemas of tools"), ({"maximum": 2**70}, None),
                              ({"type": "integer", "maximum": 2**63 - 1, "minimum": -(2**63)}, None), ({"minLength": "x"}, ".p.minLength")):
            with self.subTest(schema=str(schema)[:60]):
                reply = self.chat(tools=[function("f", {"type": "object", "properties": {"n": n, "p": schema}, "required": ["n"]})], max_tokens=1)
                self.assertEqual(reply.status, 200, reply.body[:300])
                warnings = [w for w in reply.json["reprise"]["warnings"] if "parameters" in w or "schemas" in w]
                self.assertEqual(bool(warnings), place is not None, warnings)
                self.assertTrue(place is None or any(place in w and "ignored" in w for w in warnings), warnings)
        two = {"type": "object", "properties": {"n": n, "p": {"pattern": "^(?!x)", "type": "string", "maxLength": 3}}, "required": ["n"]}
        calls = self.chat(tools=[function("f", two)], tool_choice="required", parallel_tool_calls=False).json["choices"][0]["message"]["tool_calls"]
        got = json.loads(calls[0]["function"]["arguments"])
        self.assertEqual(got["n"], 7)
        self.assertLessEqual(len(got.get("p", "")), 3)


class Anthropic(Tools):
    TOOLS = [{"name": "weather", "description": "Tells the weather.", "input_schema": WEATHER}, {"name": "time", "input_schema": TIME}]

    def message(self, **fields):
        return self.server.post("/v1/messages", {"model": "reprise-mini", "max_tokens": 1000, "temperature": 1, "seed": 5, "messages": QUESTION,
                                                 "tools": self.TOOLS, **fields})

    def refused(self, reply, says):
        self.assertEqual((reply.status, reply.json["error"]["type"]), (400, "invalid_request_error"), reply.body)
        self.assertIn(says, reply.json["error"]["message"])

    def test_any_and_named(self):
        whole = self.message(tool_choice={"type": "any"}).json
        self.assertEqual(whole["stop_reason"], "tool_use")
        self.assertEqual({b["type"] for b in whole["content"]}, {"tool_use"})
        whole = self.message(tool_choice={"type": "tool", "name": "weather", "disable_parallel_tool_use": True}).json
        self.assertEqual([b["name"] for b in whole["content"]], ["weather"])
        self.assertTrue(whole["content"][0]["id"].startswith("toolu_"))
        self.check_weather(whole["content"][0]["input"])

    def test_stream_is_the_same(self):
        whole = self.message(tool_choice={"type": "any"}).json
        blocks, open_at = [], None
        frames = [(event, json.loads(data)) for event, data in self.message(tool_choice={"type": "any"}, stream=True).frames]
        for event, data in frames:
            self.assertEqual(event, data["type"])
            if event == "content_block_start":
                self.assertEqual((open_at, data["index"], data["content_block"]["input"]), (None, len(blocks), {}))
                open_at = data["index"]
                blocks.append([data["content_block"]["name"], ""])
            elif event == "content_block_delta":
                self.assertEqual((data["index"], data["delta"]["type"]), (open_at, "input_json_delta"))
                blocks[-1][1] += data["delta"]["partial_json"]
            elif event == "content_block_stop":
                self.assertEqual(data["index"], open_at)
                open_at = None
        self.assertEqual([[n, json.loads(t)] for n, t in blocks], [[b["name"], b["input"]] for b in whole["content"]])
        self.assertEqual(frames[-2][1]["delta"]["stop_reason"], "tool_use")

    def test_auto_and_none(self):
        for choice in ({"type": "auto"}, {"type": "none"}):
            whole = self.message(tool_choice=choice, temperature=0, max_tokens=12).json
            self.assertEqual([b["type"] for b in whole["content"]], ["text"])
            frames = [json.loads(d) for e, d in self.message(tool_choice=choice, temperature=0, max_tokens=12, stream=True).frames
                      if e == "content_block_delta"]
            self.assertEqual("".join(f["delta"]["text"] for f in frames), whole["content"][0]["text"])

    def test_conversation_and_counts(self):
        messages = [*QUESTION, {"role": "assistant", "content": [{"type": "text", "text": "I look."},
                                                                 {"type": "tool_use", "id": "toolu_1", "name": "time", "input": {"zone": "utc"}}]},
                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "is_error": True,
                                                  "content": [{"type": "text", "text": "no clock"}]}, {"type": "text", "text": "And now?"}]}]
        whole = self.message(messages=messages, max_tokens=4)
        self.assertEqual(whole.status, 200, whole.body)
        used = whole.json["usage"]
        counted = self.server.post("/v1/messages/count_tokens", {"model": "reprise-mini", "messages": messages, "tools": self.TOOLS}).json
        self.assertEqual(counted["input_tokens"], sum(n for k, n in used.items() if k.endswith("input_tokens")))
        marked = [dict(self.TOOLS[0]), {**self.TOOLS[1], "cache_control": {"type": "ephemeral"}}]
        used = self.message(tools=marked, max_tokens=1, cache_salt="tools").json["usage"]
        self.assertGreater(used["cache_creation_input_tokens"], used["input_tokens"])
        messages[2]["content"][0]["tool_use_id"] = "toolu_9"
        self.refused(self.message(messages=messages), "toolu_9")

    def test_refused(self):
        for fields, says in (({"tools": [{"name": "x"}]}, "input_schema"),
                             ({"tool_choice": {"type": "some"}}, "some"), ({"tool_choice": {"type": "tool", "name": "nobody"}}, "nobody"),
                             ({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}, "tool_use_id"),
                             ({"messages": [{"role": "assistant", "content": [{"type": "tool_use", "name": "a"}]}]}, "messages.0.content.0.")):
            with self.subTest(fields=fields):
                self.refused(self.message(**fields), says)

    def test_output_format(self):
        fields = {"tools": [], "output_format": {"type": "json_schema", "schema": TIME}}
        self.assertIn(json.loads(self.message(**fields).json["content"][0]["text"])["zone"], ("utc", "local"))


class Gemini(Tools):
    TOOLS = [{"functionDeclarations": [{"name": "weather", "parametersJsonSchema": WEATHER},
                                       {"name": "time", "description": "Tells the time.", "parameters": {
                                           "type": "OBJECT", "properties": {"zone": {"type": "STRING", "enum": ["utc", "local"]}},
                                           "required": ["zone"]}}]}]

    def generate(self, verb="generateContent", calling=None, **fields):
        body = {"contents": [{"role": "user", "parts": [{"text": "What time is it?"}]}], "tools": self.TOOLS,
                "generationConfig": {"temperature": 1, "maxOutputTokens": 1000, "seed": 2}, **fields}
        if calling:
            body["toolConfig"] = {"functionCallingConfig": calling}
        return self.server.post(f"/v1beta/models/reprise-mini:{verb}", body)

    def test_any(self):
        calling = {"mode": "ANY", "allowedFunctionNames": ["time"]}
        whole = self.generate(calling=calling).json["candidates"][0]
        parts = whole["content"]["parts"]
        self.assertEqual({p["functionCall"]["name"] for p in parts}, {"time"})
        self.assertIn(parts[0]["functionCall"]["args"]["zone"], ("utc", "local"))
        frames = [json.loads(d)["candidates"][0]["content"]["parts"] for _, d in self.generate("streamGenerateContent?alt=sse", calling).frames]
        calls = [p["functionCall"]["args"] for parts in frames for p in parts if "functionCall" in p]
        self.assertEqual(calls, [p["functionCall"]["args"] for p in parts])

    def test_conversation(self):
        contents = [{"role": "user", "parts": [{"text": "What time is it?"}]},
                    {"role": "model", "parts": [{"functionCall": {"name": "time", "args": {"zone": "utc"}}}]},
                    {"role": "user", "parts": [{"functionResponse": {"name": "time", "response": {"now": "noon"}}}]}]
        used = self.generate(contents=contents, calling={"mode": "AUTO"}, cache_salt="by hand").json["usageMetadata"]  # no answer of this server
        self.assertEqual(self.generate("countTokens", contents=contents).json["totalTokens"], used["promptTokenCount"])
        self.assertEqual(self.generate(contents=contents, calling={"mode": "NONE"}).status, 200)

    def test_repeated_parts(self):
        """gemini-cli repeats responses when it resumes a session: with the same id and content they are one, with another content they are two."""

        def tokens(*responses):
            contents = [{"role": "user", "parts": [{"text": "What time is it?"}]},
                        {"role": "model", "parts": [{"functionCall": {"id": i, "name": "time", "args": {"zone": "utc"}}} for i in ("1", "2")]},
                        {"role": "user", "parts": [{"functionResponse": {"id": i, "name": "time", "response": {"now": now}}} for i, now in responses]}]
            return self.generate("countTokens", contents=contents).json["totalTokens"]

        once = tokens(("1", "noon"), ("2", "noon"))
        self.assertEqual(tokens(("1", "noon"), ("2", "noon"), ("1", "noon"), ("2", "noon"), ("1", "noon")), once)
        self.assertGreater(tokens(("1", "noon"), ("2", "noon"), ("1", "one")), once)

    def test_refused(self):
        for fields, says in (({"tools": [{"googleSearch": {}}]}, "googleSearch"), ({"calling": {"mode": "SOME"}}, "SOME"),
                             ({"calling": {"mode": "ANY", "allowedFunctionNames": ["x"]}}, "'x'"),
                             ({"tools": [{"functionDeclarations": [{}]}]}, "functionDeclarations[0].name")):
            with self.subTest(fields=fields):
                reply = self.generate(**fields)
                self.assertEqual(reply.status, 400)
                self.assertIn(says, reply.json["error"]["message"])


del Tools

if __name__ == "__main__":
    unittest.main()
