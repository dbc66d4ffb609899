#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise serve` and agents: the recorded requests of Codex and Claude Code (fixtures/, their texts replaced), tools of all types, what is left out
with a warning, and prompts that are too long, in the words that each vendor's clients search for."""
import json
import os
import tempfile
import unittest

import scripted_model
from server_process import MODEL, Server

HERE = os.path.dirname(os.path.abspath(__file__))
WORDS = ("\u0120This", "\u0120town", "\u0120is", "\u0120known", ".")
ANSWER = " This town is known."
CALL = ("<", "t", "oo", "l", "_", "c", "a", "ll", ">")  # then the grammar decides, but for a text between quotation marks: Hi
INPUT = (('"', "H"), ("H", "i"), ("i", '"'))
CODEX = ("codex-first", "codex-second", "codex-custom-tool", "codex-namespaced-tool")
CLAUDE = ("claude-code-first", "claude-code-second", "claude-code-tool")
DROPPED = ["tools.23.input_schema.properties.script.maxLength (sizes of at most 2000): ignored"]  # of a schema that is not strict
HELLO = [{"role": "user", "content": "Hello"}]


def fixture(name):
    with open(os.path.join(HERE, "fixtures", name + ".json")) as f:
        return json.load(f)


def events(reply):
    return [json.loads(data) for _, data in reply.frames if data != "[DONE]"]


class ScriptedCase(unittest.TestCase):
    words, pairs, options, model = WORDS, (), (), None

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        path = os.path.join(folder.name, "model.gguf")
        scripted_model.write(MODEL, path, cls.words, cls.pairs)
        cls.server = Server("--log", "off", *cls.options, model=path).wait_ready()
        cls.addClassCleanup(cls.server.stop)


class Recorded(ScriptedCase):
    def codex(self, name):
        found = events(self.server.post("/v1/responses", fixture(name)))
        self.assertEqual(found[-1]["type"], "response.completed", found[-1])
        return found[-1]["response"]

    def claude(self, name):
        found = events(self.server.post("/v1/messages?beta=true", fixture(name)))
        self.assertEqual(found[-1]["type"], "message_stop", found[-1])
        self.assertEqual("".join(e["delta"]["text"] for e in found if e["type"] == "content_block_delta"), ANSWER)
        return next(e for e in found if e["type"] == "message_delta")

    def test_codex(self):
        for name in CODEX:
            response = self.codex(name)
            self.assertEqual(response["output"][0]["content"][0]["text"], ANSWER)
            self.assertEqual(response["reprise"]["warnings"], ["unknown model 'gpt-6.1-sol': ignored"])

    def test_claude_code(self):
        for name in CLAUDE:
            self.assertEqual(self.claude(name)["reprise"]["warnings"], ["unknown model 'claude-opus-4-8': ignored", *DROPPED])

    def test_a_second_turn_reuses_the_first(self):
        first, second = self.codex("codex-first"), self.codex("codex-second")
        self.assertGreaterEqual(second["usage"]["input_tokens_details"]["cached_tokens"], first["usage"]["input_tokens"] - 1)
        self.claude("claude-code-first")
        usage = self.claude("claude-code-second")["usage"]
        self.assertGreater(usage["cache_read_input_tokens"], 4 * usage["input_tokens"])

    def test_tokens_are_counted(self):
        body = fixture("claude-code-tool")
        counted = self.server.post("/v1/messages/count_tokens", {k: body[k] for k in ("model", "messages", "system", "tools")})
        usage = self.claude("claude-code-tool")["usage"]
        self.assertEqual(counted.json["input_tokens"], sum(v for k, v in usage.items() if k.endswith("input_tokens")))

    def test_the_tools_of_an_item_are_in_the_prompt(self):
        body = {**fixture("codex-first"), "stream": False}
        without = {**body, "input": body["input"][1:]}
        n = [self.server.post("/v1/responses", b).json["usage"]["input_tokens"] for b in (body, without)]
        self.assertGreater(n[0], n[1] + 1000)
        listed = {**without, "tools": body["input"][0]["tools"]}
        self.assertEqual(self.server.post("/v1/responses", listed).json["usage"]["input_tokens"], n[0])


class Strict(Recorded):
    """With --strict: no field and no tool of the recorded requests is unknown."""
    options = ("--strict", "--alias", "gpt-6.1-sol", "--alias", "claude-opus-4-8")

    def test_codex(self):
        for name in CODEX:
            self.assertEqual(self.codex(name)["reprise"]["warnings"], [])

    def test_claude_code(self):
        for name in CLAUDE:
            self.assertEqual(self.claude(name)["reprise"]["warnings"], DROPPED)

    def test_what_is_left_out_is_refused(self):
        reply = self.server.post("/v1/responses", {"input": "x", "tools": [{"type": "web_search"}]})
        self.assertEqual((reply.status, reply.json["error"]["code"]), (400, "unsupported_value"))
        self.assertIn("tools[0] of type 'web_search'", reply.json["error"]["message"])
        reply = self.server.post("/v1/chat/completions", {"messages": HELLO, "model": "gpt-9"})
        self.assertEqual((reply.status, reply.json["error"]["code"]), (404, "model_not_found"))


class LeftOut(ScriptedCase):
    def warnings(self, path, **body):
        reply = self.server.post(path, body)
        self.assertEqual(reply.status, 200, reply.body)
        return reply.json["reprise"]["warnings"]

    def test_tools_of_vendors(self):
        function = {"type": "function", "name": "f", "parameters": {"type": "object"}}
        hosted = [{"type": t} for t in ("web_search", "file_search", "local_shell", "image_generation", "computer_use_preview", "mcp", "tool_search")]
        self.assertEqual(self.warnings("/v1/responses", input="x", tools=[function, *hosted]),
                         [f"tools[{i + 1}] of type '{t['type']}': ignored" for i, t in enumerate(hosted)])
        self.assertEqual(self.warnings("/v1/chat/completions", messages=HELLO, tools=hosted[:2]),
                         ["tools[0] of type 'web_search': ignored", "tools[1] of type 'file_search': ignored"])
        anthropic = [{"type": "web_search_20250305", "name": "web_search"}, {"type": "bash_20250124", "name": "bash"},
                     {"type": "computer_20250124", "name": "computer"}, {"name": "f", "input_schema": {"type": "object"}}]
        self.assertEqual([w for w in self.warnings("/v1/messages", model="default", max_tokens=9, messages=HELLO, tools=anthropic) if "tools." in w],
                         [f"tools.{i} of type '{t['type']}': ignored" for i, t in enumerate(anthropic[:3])])

    def test_items_and_blocks_of_other_servers(self):
        items = [{"role": "user", "content": "x"}, {"type": "web_search_call", "id": "ws_1", "status": "completed"},
                 {"type": "compaction", "encrypted_content": "abc"}, {"role": "user", "content": "y"}]
        self.assertEqual(self.warnings("/v1/responses", input=items), ["input[1] of type 'web_search_call': ignored",
                                                                       "input[2] of type 'compaction': ignored"])
        blocks = [{"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}, {"type": "text", "text": "found"}]
        self.assertEqual(self.warnings("/v1/messages", model="default", max_tokens=9, messages=[*HELLO, {"role": "assistant", "content": blocks}, *HELLO]),
                         ["a part of type 'server_tool_use' in messages.1.content: ignored"])
        for item in ({"type": "item_reference", "id": "msg_1"}, {"role": "user", "content": [{"type": "input_image", "image_url": "data:"}]}):
            self.assertEqual(self.server.post("/v1/responses", {"input": [item]}).status, 400)

    def test_a_system_message_within_a_conversation(self):
        system, plain = ([*HELLO, {"role": role, "content": "Be brief."}] for role in ("system", "user"))
        usage = [self.server.post("/v1/messages", {"model": "default", "max_tokens": 9, "messages": m}).json["usage"] for m in (system, plain)]
        self.assertEqual(self.server.post("/v1/chat/completions", {"messages": system}).json["usage"]["prompt_tokens"],
                         usage[0]["input_tokens"] + usage[0]["cache_read_input_tokens"])
        self.assertEqual(self.server.post("/v1/messages", {"model": "x", "max_tokens": 9, "messages": [{"role": "robot", "content": "x"}]}).status, 400)


class Calls(ScriptedCase):
    """A model that calls the one tool there is."""
    words, pairs = CALL, INPUT
    custom = {"type": "custom", "name": "exec", "description": "runs", "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}}

    def test_custom_tools_of_responses(self):
        body = {"input": "Run it", "tools": [self.custom], "temperature": 0, "parallel_tool_calls": False, "max_output_tokens": 200}
        item, = self.server.post("/v1/responses", body).json["output"]
        self.assertEqual((item["type"], item["name"], item["input"], "namespace" in item), ("custom_tool_call", "exec", "Hi", False))
        found = events(self.server.post("/v1/responses", {**body, "stream": True}))
        self.assertEqual([e["type"] for e in found[2:-1]], ["response.output_item.added", "response.custom_tool_call_input.delta",
                                                            "response.custom_tool_call_input.done", "response.output_item.done"])
        self.assertEqual((found[3]["delta"], found[4]["input"], found[5]["item"]["input"]), ("Hi", "Hi", "Hi"))
        call = found[5]["item"]
        history = [{"role": "user", "content": "Run it"}, call, {"type": "custom_tool_call_output", "call_id": call["call_id"], "output": "done"}]
        self.assertEqual(self.server.post("/v1/responses", {**body, "input": history}).status, 200)

    def test_tools_of_namespaces(self):
        sleep = {"type": "function", "name": "sleep", "parameters": {"type": "object", "properties": {"s": {"enum": [1]}}, "required": ["s"],
                                                                     "additionalProperties": False}}
        for group, other in (("clock", "functions"), ("functions", "clock")):
            body = {"input": "Wait", "tools": [{"type": "namespace", "name": group, "tools": [sleep]}], "temperature": 0, "parallel_tool_calls": False,
                    "max_output_tokens": 200}
            item, = self.server.post("/v1/responses", body).json["output"]
            self.assertEqual((item["type"], item["namespace"], item["name"], json.loads(item["arguments"])), ("function_call", group, "sleep", {"s": 1}))
            chosen = {"type": "function", "namespace": group, "name": "sleep"}
            self.assertEqual(self.server.post("/v1/responses", {**body, "tool_choice": chosen}).status, 200)
            self.assertEqual(self.server.post("/v1/responses", {**body, "tool_choice": {**chosen, "namespace": other}}).status, 400)

    def test_custom_tools_of_chat(self):
        custom = {"type": "custom", "custom": {"name": "exec", "format": {"type": "text"}}}
        body = {"messages": HELLO, "tools": [custom], "temperature": 0, "parallel_tool_calls": False, "max_tokens": 200}
        choice, = self.server.post("/v1/chat/completions", body).json["choices"]
        call, = choice["message"]["tool_calls"]
        self.assertEqual((choice["finish_reason"], call["type"], call["custom"]), ("tool_calls", "custom", {"name": "exec", "input": "Hi"}))
        deltas = [e["choices"][0]["delta"] for e in events(self.server.post("/v1/chat/completions", {**body, "stream": True}))]
        streamed, = [c for d in deltas for c in d.get("tool_calls", [])]
        self.assertEqual((streamed["type"], streamed["custom"]), ("custom", {"name": "exec", "input": "Hi"}))
        history = [*HELLO, {**choice["message"]}, {"role": "tool", "tool_call_id": call["id"], "content": "done"}]
        again = self.server.post("/v1/chat/completions", {**body, "messages": history})
        self.assertEqual((again.status, again.json["reprise"]["warnings"]), (200, []))

    def test_tools_of_ollama(self):
        parameters = {"type": "object", "properties": {"city": {"enum": ["Bonn"]}}, "required": ["city"], "additionalProperties": False}
        body = {"model": "x", "messages": HELLO, "options": {"temperature": 0, "num_predict": 60},
                "tools": [{"type": "function", "function": {"name": "weather", "parameters": parameters}}]}
        whole = self.server.post("/api/chat", {**body, "stream": False}).json["message"]
        call = whole["tool_calls"][0]["function"]
        self.assertEqual((call["index"], call["name"], call["arguments"]), (0, "weather", {"city": "Bonn"}))
        lines = [json.loads(line) for line in self.server.post("/api/chat", body).body.decode().splitlines()]
        streamed = [c["function"] for line in lines for c in line["message"].get("tool_calls", [])]
        self.assertEqual(streamed, [c["function"] for c in whole["tool_calls"]])
        cut = self.server.post("/api/chat", {**body, "stream": False, "options": {"temperature": 0, "num_predict": 20}}).json["message"]
        self.assertNotIn("tool_calls", cut)


class Overflow(ScriptedCase):
    options = ("--ctx", "100")
    messages = [{"role": "user", "content": "word " * 200}]

    def count(self):
        counted = self.server.post("/v1/messages/count_tokens", {"model": "default", "messages": self.messages})
        return counted.json["input_tokens"]

    def test_words_of_each_vendor(self):
        n = self.count()
        openai = self.server.post("/v1/chat/completions", {"messages": self.messages})
        self.assertEqual((openai.status, openai.json["error"]["code"]), (400, "context_length_exceeded"))
        self.assertEqual(openai.json["error"]["message"], f"This model's maximum context length is 100 tokens. However, your messages resulted in {n} "
                                                          "tokens. Please reduce the length of the messages.")
        anthropic = self.server.post("/v1/messages", {"model": "default", "max_tokens": 5, "messages": self.messages})
        self.assertEqual((anthropic.status, anthropic.json["error"]),
                         (400, {"type": "invalid_request_error", "message": f"prompt is too long: {n} tokens > 100 maximum"}))
        gemini = self.server.post("/v1beta/models/default:generateContent", {"contents": [{"parts": [{"text": self.messages[0]["content"]}]}]})
        self.assertEqual((gemini.status, gemini.json["error"]["status"], gemini.json["error"]["message"]),
                         (400, "INVALID_ARGUMENT", f"The input token count ({n}) exceeds the maximum number of tokens allowed (100)."))
        llamacpp = self.server.post("/completion", {"prompt": "word " * 200}).json["error"]
        self.assertEqual((llamacpp["type"], llamacpp["n_ctx"], llamacpp["n_prompt_tokens"] > 100), ("exceed_context_size_error", 100, True))

    def test_responses_fail_in_the_stream(self):
        body = {"input": self.messages}
        whole = self.server.post("/v1/responses", body)
        self.assertEqual((whole.status, whole.json["error"]["code"]), (400, "context_length_exceeded"))
        reply = self.server.post("/v1/responses", {**body, "stream": True})
        self.assertEqual((reply.status, reply.headers["Content-Type"]), (200, "text/event-stream"))
        found = events(reply)
        self.assertEqual([e["type"] for e in found], ["response.created", "response.in_progress", "response.failed"])
        self.assertEqual((found[-1]["response"]["status"], found[-1]["response"]["error"]),
                         ("failed", {"code": "context_length_exceeded", "message": whole.json["error"]["message"]}))
        self.assertEqual(self.server.metrics()['reprise_rejections_total{reason="context_length_exceeded"}'], 2)
        self.server.wait_idle()


if __name__ == "__main__":
    unittest.main()
