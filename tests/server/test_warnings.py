#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise serve`: fields that a dialect does not have, parameters without an argument: told in `reprise.warnings`; --strict refuses the former."""
import unittest

from server_process import ServerCase

SCHEMA = """<schema name="s"><module name="a">Plan <param name="days" len="8"/> here.</module>
<module name="b">Tom is <param name="age" len="8" required="true"/>.</module></schema>"""
MESSAGES = [{"role": "user", "content": "Tom had"}]
CHAT = {"messages": MESSAGES, "max_tokens": 1}
# What clients send and Reprise ignores on purpose, or reads.
FINE = {
    "/v1/chat/completions": {**CHAT, "model": "default", "user": "u", "metadata": {}, "store": False, "service_tier": "auto", "top_k": 3, "seed": 1,
                             "parallel_tool_calls": True, "stream_options": {"include_usage": True}, "reasoning_effort": "low", "temperature": 0},
    "/v1/completions": {"prompt": "Tom had", "max_tokens": 1, "echo": False, "user": "u", "best_of": 1},
    "/v1/responses": {"input": "Tom had", "max_output_tokens": 1, "store": False, "include": [], "truncation": "auto", "reasoning": {}, "user": "u"},
    "/v1/messages": {**CHAT, "model": "default", "metadata": {"user_id": "u"}, "service_tier": "auto", "output_config": {"effort": "low"}},
    "/v1beta/models/default:generateContent": {"contents": [{"parts": [{"text": "Tom had"}]}], "safetySettings": [], "labels": {},
                                           "generationConfig": {"maxOutputTokens": 1, "thinkingConfig": {}}},
    "/completion": {"prompt": "Tom had", "n_predict": 1, "id_slot": 0, "return_tokens": False, "cache_prompt": True},
    "/v1/prompts": {"prompt": "<prompt schema='s'>Tom had</prompt>", "max_tokens": 1, "logprobs": 0},
}

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}
GEMINI = "/v1beta/models/default:generateContent"


def chat(messages, **more):
    return {"messages": messages, "max_tokens": 1, **more}


# Path, body, the names that are unknown in it.
INSIDE = [
    ("/v1/chat/completions", chat([{"role": "user", "content": "Tom"}, {"role": "assistant", "content": "x", "nmae": "u"},
                                   {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b", "txet": 1}]}],
                                  tools=[{"type": "function", "function": {"name": "f", "paramters": PARAMETERS}, "fnction": 1}],
                                  tool_choice={"type": "function", "function": {"name": "f", "x": 1}}),
     ["messages[1].nmae", "messages[2].content[1].txet", "tools[0].fnction", "tools[0].function.paramters", "tool_choice.function.x"]),
    ("/v1/chat/completions", chat(MESSAGES, response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": PARAMETERS, "strcit": True}}),
     ["response_format.json_schema.strcit"]),
    ("/v1/responses", {"input": [{"role": "user", "content": [{"type": "input_text", "text": "a", "txet": 1}], "nmae": 1}], "max_output_tokens": 1,
                       "tools": [{"type": "function", "name": "f", "paramters": PARAMETERS}], "text": {"fromat": {}}},
     ["input[0].nmae", "input[0].content[0].txet", "tools[0].paramters", "text.fromat"]),
    ("/v1/messages", {"model": "default", "max_tokens": 1, "messages": [{"role": "user", "nmae": "u", "content": [
        {"type": "text", "text": "a", "cache_control": {"type": "ephemeral", "tll": "5m"}}, {"type": "text", "text": "b", "txet": 1}]}],
        "tools": [{"name": "f", "input_schema": PARAMETERS, "descripton": "d"}], "tool_choice": {"type": "auto", "nmae": 1}},
     ["messages[0].nmae", "messages[0].content[1].txet", "messages[0].content[0].cache_control.tll", "tools[0].descripton", "tool_choice.nmae"]),
    (GEMINI, {"contents": [{"role": "user", "parts": [{"text": "a"}, {"text": "b", "txet": 1}], "nmae": 1}], "generationConfig": {"maxOutputTokens": 1},
              "tools": [{"functionDeclarations": [{"name": "f", "paramters": {}}]}], "toolConfig": {"functionCallingConfig": {"mdoe": "AUTO"}}},
     ["contents[0].nmae", "contents[0].parts[1].txet", "tools[0].functionDeclarations[0].paramters", "toolConfig.functionCallingConfig.mdoe"]),
    ("/v1/prompts", {"schema": "s", "max_tokens": 1, "parts": [{"type": "module", "name": "a", "args": {"days": "3"}, "agrs": {}}, {"type": "role", "role": "user", "parts": [
        {"type": "text", "text": "When?", "txet": 1}]}]}, ["parts[0].agrs", "parts[1].parts[0].txet"]),
]
# What clients send back from answers of this server and of others, and marks for caches.
INSIDE_FINE = [
    ("/v1/chat/completions", chat([{"role": "user", "name": "u", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]},
                                   {"role": "assistant", "content": None, "refusal": None, "annotations": [], "audio": None, "function_call": None,
                                    "tool_calls": [{"id": "c1", "type": "function", "index": 0, "function": {"name": "f", "arguments": "{}"}}]},
                                   {"role": "tool", "tool_call_id": "c1", "name": "f", "content": "1"}],
                                  tools=[{"type": "function", "function": {"name": "f", "parameters": PARAMETERS, "strict": False}}]), []),
    ("/v1/responses", {"max_output_tokens": 1, "input": [
        {"role": "user", "content": "a"}, {"type": "reasoning", "id": "r", "summary": [], "content": [], "encrypted_content": None, "status": None},
        {"type": "message", "id": "m", "status": "completed", "role": "assistant",
         "content": [{"type": "output_text", "text": "b", "annotations": [], "logprobs": []}]},
        {"type": "function_call", "id": "f", "status": "completed", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "1", "id": None, "status": None}]}, []),
    ("/v1/messages", {"model": "default", "max_tokens": 1, "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral", "ttl": "1h"}}],
                      "messages": [{"role": "user", "content": [{"type": "text", "text": "a", "citations": None}]},
                                   {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}, "caller": {"type": "direct"}}]},
                                   {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "is_error": False,
                                                                 "content": [{"type": "text", "text": "1"}], "cache_control": None}]}]}, []),
    (GEMINI, {"generationConfig": {"maxOutputTokens": 1}, "contents": [
        {"role": "user", "parts": [{"text": "a"}]},
        {"role": "model", "parts": [{"text": "b", "thought": False, "thoughtSignature": "eA=="},
                                    {"functionCall": {"id": "c", "name": "f", "args": {}}, "thoughtSignature": "eA=="}]},
        {"role": "user", "parts": [{"functionResponse": {"id": "c", "name": "f", "response": {"r": 1}}}]}]}, []),
]
# Requests that compute no answer, or one that is not shown.
COUNTS = [
    ("/v1/messages/count_tokens", {"model": "default", "messages": MESSAGES}, ("messages",)),
    ("/v1beta/models/default:countTokens", {"contents": [{"parts": [{"text": "Tom had"}]}]}, ("contents",)),
    ("/v1beta/cachedContents", {"model": "models/default", "contents": [{"role": "user", "parts": [{"text": "Tom had"}]}], "ttl": "60s"}, ("contents",)),
    ("/apply-template", {"messages": MESSAGES}, ("messages",)),
]


class Warnings(ServerCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server.ask("PUT", "/v1/schemas/s", SCHEMA)

    def warnings(self, path, body):
        reply = self.server.post(path, body)
        self.assertEqual(reply.status, 200, (path, reply.body))
        return reply.json["reprise"]["warnings"]


class Told(Warnings):
    def test_unknown_fields(self):
        for path, body in FINE.items():
            self.assertEqual(self.warnings(path, body), [], path)
            self.assertEqual(self.warnings(path, {**body, "temprature": 0.2}), ["unknown field 'temprature': ignored"], path)
        for path, outer, name in (("/v1/chat/completions", "stream_options", "include_usgae"), ("/v1/messages", "output_config", "fromat"),
                                  ("/v1beta/models/default:generateContent", "generationConfig", "temprature")):
            body = {**FINE[path], outer: {**FINE[path][outer], name: 1}}
            self.assertEqual(self.warnings(path, body), [f"unknown field '{outer}.{name}': ignored"])
        many = self.warnings("/v1/completions", {**FINE["/v1/completions"], **{f"x{i}": i for i in range(99)}})
        self.assertEqual((len(many), many[-1]), (17, "more unknown fields: ignored"))

    def test_unknown_fields_inside(self):
        """With their place; what clients are known to send back or along gives none."""
        for path, body, names in INSIDE:
            told = [f"unknown field '{name}': ignored" for name in names]
            self.assertEqual(self.warnings(path, body), told, path)
        for path, body, _ in INSIDE_FINE:
            self.assertEqual(self.warnings(path, body), [], path)

    def test_many_inside(self):
        body = {"messages": [{"role": "user", "content": "Tom", f"x{i}": 1} for i in range(99)], "max_tokens": 1}
        many = self.warnings("/v1/chat/completions", body)
        self.assertEqual((len(many), many[0][:30], many[-1]), (17, "unknown field 'messages[0].x0'", "more unknown fields: ignored"))

    def test_requests_without_an_answer(self):
        for path, body, name in COUNTS:
            self.assertNotIn("reprise", self.server.post(path, body).json, path)
            told = self.server.post(path, {**body, "tolos": []})
            self.assertEqual(told.json["reprise"]["warnings"], ["unknown field 'tolos': ignored"], path)
            inside = {**body, name[0]: [{**body[name[0]][0], "nmae": 1}]}
            self.assertEqual(self.server.post(path, inside).json["reprise"]["warnings"],
                             [f"unknown field '{name[0]}[0].nmae': ignored"], path)

    def test_missing_arguments(self):
        def body(imports):
            return {"prompt": f"<prompt schema='s'>{imports} When?</prompt>", "max_tokens": 1}
        self.assertEqual(self.warnings("/v1/prompts", body("<a/>")), ["parameter 'days' of 'a' has no argument: it stays empty"])
        self.assertEqual(self.warnings("/v1/prompts", body("<a days='3'/><b age='3'/>")), [])
        reply = self.server.post("/v1/prompts", body("<b/>"))
        self.assertEqual(reply.status, 400)
        self.assertIn("prompt:1:20: parameter 'age' of 'b' requires an argument", reply.json["error"]["message"])


class Strict(Warnings):
    options = ("--strict",)

    def test_refused_inside(self):
        for path, body, names in INSIDE:
            reply = self.server.post(path, body)
            self.assertEqual(reply.status, 400, path)
            self.assertIn(f"unknown field '{names[0]}': leave it out", reply.body.decode())
        for path, body, _ in COUNTS:
            self.assertEqual(self.server.post(path, body).status, 200, path)
            self.assertEqual(self.server.post(path, {**body, "tolos": []}).status, 400, path)

    def test_refused(self):
        for path, body in FINE.items():
            self.assertEqual(self.warnings(path, body), [], path)
            reply = self.server.post(path, {**body, "temprature": 0.2})
            self.assertEqual(reply.status, 400, path)
            self.assertIn("unknown field 'temprature': leave it out", reply.body.decode())


if __name__ == "__main__":
    unittest.main()
