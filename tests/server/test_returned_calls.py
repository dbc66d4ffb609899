#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A client sends back an answer with reasoning, text and tool calls: in every dialect it is the tokens that were sampled again, however the client and
the chat template write it. What means something else is not."""
import json
import os
import tempfile
import unittest

import scripted_model
from server_process import MODEL, Server

TIME = {"type": "object", "properties": {"zone": {"enum": ["utc", "local"]}, "days": {"type": "integer", "minimum": 1, "maximum": 30},
                                         "at": {"type": "string", "maxLength": 6}}, "required": ["zone", "days", "at"], "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": "time", "description": "Tells the time.", "parameters": TIME}}]
QUESTION = {"role": "user", "content": "What time is it in Rome?"}
# As Qwen's: reasoning only after the last question, a line end before each call, arguments as tojson writes them.
TEMPLATE = """{%- if tools %}{{ '<|im_start|>system\\n# Tools' }}{% for t in tools %}{{ '\\n' }}{{ t | tojson }}{% endfor %}{{ '<|im_end|>\\n' }}{% endif %}
{%- set ns = namespace(last=0) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}
{%- for m in messages %}
{%- if m.role == 'tool' %}{{ '<|im_start|>user\\n<tool_response>\\n' + m.content + '\\n</tool_response><|im_end|>\\n' }}
{%- elif m.role == 'assistant' %}{{ '<|im_start|>assistant\\n' }}
{%- if loop.index0 > ns.last and m.reasoning_content %}{{ '<think>\\n' + m.reasoning_content.strip('\\n') + '\\n</think>\\n\\n' }}{% endif %}
{{- m.content.lstrip('\\n') }}
{%- for c in m.tool_calls or [] %}{{ '\\n<tool_call>\\n{"name": "' + c.function.name + '", "arguments": ' }}{{ c.function.arguments | tojson }}{{ '}\\n</tool_call>' }}
{%- endfor %}{{ '<|im_end|>\\n' }}
{%- else %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endif %}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% if enable_thinking is defined and not enable_thinking %}{{ '<think>\\n\\n</think>\\n\\n' }}
{%- endif %}{% endif %}"""
MARKS = ("<think>", "</think>", "<tool_call>")
WORDS = ("<think>", "\u0120red", "</think>", "\u0120It", "<tool_call>")


def rewritten(value):
    """The same JSON: other order of keys, whole numbers with a fraction."""
    if isinstance(value, dict):
        return {k: rewritten(value[k]) for k in reversed(value)}
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def most(turns):
    """Tokens of an answer: only the first one matters."""
    return 1 if turns else 300


class Chat:
    """OpenAI's chat completions. A dialect makes requests of a conversation, reads answers, and writes them as a client would."""
    path = "/v1/chat/completions"
    may_require = True  # a call

    def body(self, turns, must):
        return {"messages": [QUESTION, *turns], "tools": TOOLS, "tool_choice": "required" if must else "auto", "max_tokens": most(turns), "temperature": 0}

    def output_tokens(self, reply):
        return reply["usage"]["completion_tokens"]

    def reported(self, reply):
        return reply["reprise"]["prompt_tokens"], reply["reprise"]["cached_tokens"]

    def answer(self, reply):
        return reply["choices"][0]["message"]

    def returned(self, message, change=lambda value: value, ids=""):
        calls = [{**c, "id": ids + c["id"], "function": {**c["function"], "arguments": json.dumps(change(json.loads(c["function"]["arguments"])),
                                                                                                separators=(",", ":") if ids else None)}}
                 for c in message["tool_calls"]]
        return [{**message, "tool_calls": calls}, *[{"role": "tool", "tool_call_id": c["id"], "content": "noon"} for c in calls]]


class Streamed(Chat):
    def body(self, turns, must):
        return {**super().body(turns, must), "stream": True, "stream_options": {"include_usage": True}}

    def read(self, reply):
        message = {"role": "assistant", "content": "", "reasoning_content": "", "tool_calls": []}
        frames = [json.loads(data) for _, data in reply.frames if data != "[DONE]"]
        for delta in (f["choices"][0]["delta"] for f in frames if f["choices"]):
            message["content"] += delta.get("content") or ""
            message["reasoning_content"] += delta.get("reasoning_content") or ""
            for part in delta.get("tool_calls", []):
                if part["index"] == len(message["tool_calls"]):
                    message["tool_calls"].append(part)
                else:
                    message["tool_calls"][-1]["function"]["arguments"] += part["function"]["arguments"]
        return {"choices": [{"message": message}], "usage": frames[-1]["usage"], "reprise": frames[-1]["reprise"]}


class Responses(Chat):
    path = "/v1/responses"

    def body(self, turns, must):
        tools = [{"type": "function", **TOOLS[0]["function"], "strict": False}]
        return {"input": [QUESTION, *turns], "tools": tools, "tool_choice": "required" if must else "auto", "max_output_tokens": most(turns), "temperature": 0}

    def output_tokens(self, reply):
        return reply["usage"]["output_tokens"]

    def answer(self, reply):
        return reply["output"]

    def returned(self, items, change=lambda value: value, ids=""):
        items = [{**i, "call_id": ids + i["call_id"], "arguments": json.dumps(change(json.loads(i["arguments"])), separators=(",", ":") if ids else None)}
                 if i["type"] == "function_call" else i for i in items]
        return [*items, *[{"type": "function_call_output", "call_id": i["call_id"], "output": "noon"} for i in items if i["type"] == "function_call"]]


class Anthropic(Chat):
    path = "/v1/messages"

    def body(self, turns, must):
        tools = [{"name": "time", "description": "Tells the time.", "input_schema": TIME}]
        return {"model": "m", "messages": [QUESTION, *turns], "tools": tools, "tool_choice": {"type": "any" if must else "auto"}, "max_tokens": most(turns),
                "temperature": 0}

    def output_tokens(self, reply):
        return reply["usage"]["output_tokens"]

    def answer(self, reply):
        return reply["content"]

    def returned(self, blocks, change=lambda value: value, ids=""):
        blocks = [{**b, "id": ids + b["id"], "input": change(b["input"])} if b["type"] == "tool_use" else b for b in blocks]
        results = [{"type": "tool_result", "tool_use_id": b["id"], "content": "noon"} for b in blocks if b["type"] == "tool_use"]
        return [{"role": "assistant", "content": blocks}, {"role": "user", "content": results}]


class Gemini(Chat):
    path = "/v1beta/models/m:generateContent"

    def body(self, turns, must):
        tools = [{"functionDeclarations": [{"name": "time", "description": "Tells the time.", "parametersJsonSchema": TIME}]}]
        return {"contents": [{"role": "user", "parts": [{"text": QUESTION["content"]}]}, *turns], "tools": tools,
                "toolConfig": {"functionCallingConfig": {"mode": "ANY" if must else "AUTO"}},
                "generationConfig": {"maxOutputTokens": most(turns), "temperature": 0, "thinkingConfig": {"includeThoughts": True}}}

    def output_tokens(self, reply):
        used = reply["usageMetadata"]
        return used["candidatesTokenCount"] + used.get("thoughtsTokenCount", 0)

    def answer(self, reply):
        return reply["candidates"][0]["content"]["parts"]

    def returned(self, parts, change=lambda value: value, ids=""):
        parts = [{"functionCall": {"name": p["functionCall"]["name"], "args": change(p["functionCall"]["args"])}} if "functionCall" in p else p for p in parts]
        results = [{"functionResponse": {"name": "time", "response": {"result": "noon"}}} for p in parts if "functionCall" in p]
        return [{"role": "model", "parts": parts}, {"role": "user", "parts": results}]


class Ollama(Chat):
    path = "/api/chat"
    may_require = False

    def body(self, turns, must):
        return {"model": "m", "messages": [QUESTION, *turns], "tools": TOOLS, "stream": False, "options": {"num_predict": most(turns), "temperature": 0}}

    def output_tokens(self, reply):
        return reply["eval_count"]

    def answer(self, reply):
        return reply["message"]

    def returned(self, message, change=lambda value: value, ids=""):
        calls = [{"function": {"name": c["function"]["name"], "arguments": change(c["function"]["arguments"])}} for c in message["tool_calls"]]
        return [{**message, "tool_calls": calls}, *[{"role": "tool", "tool_name": "time", "content": "noon"} for _ in calls]]


class Interactions(Chat):
    path = "/v1/interactions"

    def body(self, turns, must):
        return {"model": "m", "input": [{"type": "user_input", "content": [{"type": "text", "text": QUESTION["content"]}]}, *turns],
                "tools": [{"type": "function", **TOOLS[0]["function"]}],
                "generation_config": {"tool_choice": "any" if must else "auto", "max_output_tokens": most(turns), "temperature": 0, "thinking_summaries": "auto"}}

    def output_tokens(self, reply):
        return reply["usage"]["total_output_tokens"] + reply["usage"]["total_thought_tokens"]

    def answer(self, reply):
        return reply["steps"]

    def returned(self, steps, change=lambda value: value, ids=""):
        steps = [{**s, "id": ids + s["id"], "arguments": change(s["arguments"])} if s["type"] == "function_call" else s for s in steps]
        return [*steps, *[{"type": "function_result", "call_id": s["id"], "name": s["name"], "result": "noon"} for s in steps if s["type"] == "function_call"]]


DIALECTS = (Chat, Streamed, Responses, Anthropic, Gemini, Ollama, Interactions)


class Returned(unittest.TestCase):
    def ask(self, dialect, turns, must, **more):
        headers = {"Api-Revision": "2026-05-20"} if dialect.path == "/v1/interactions" else None
        reply = self.server.post(dialect.path, {**dialect.body(turns, must), **more}, headers=headers)
        self.assertEqual(reply.status, 200, reply.body)
        return dialect.read(reply) if hasattr(dialect, "read") else reply.json

    def check(self, must, **more):
        """All that turn 1 computed is a hit of turn 2: its prompt and what it sampled, but the last token."""
        for dialect in (make() for make in DIALECTS if not must or make.may_require):
            first = self.ask(dialect, [], must, cache_salt=type(dialect).__name__, **more)
            answer = dialect.answer(first)
            computed = dialect.reported(first)[0] + dialect.output_tokens(first) - 1
            for change, ids in ((lambda value: value, ""), (rewritten, "x")):
                with self.subTest(dialect=type(dialect).__name__, ids=ids):
                    again = self.ask(dialect, dialect.returned(answer, change, ids), must, cache_salt=type(dialect).__name__, **more)
                    self.assertGreaterEqual(dialect.reported(again)[1], computed, (answer, again["reprise"]["mismatch"]))


class WithoutTemplate(Returned):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--log", "off").wait_ready()
        cls.addClassCleanup(cls.server.stop)

    def test_calls(self):
        self.check(True)

    def test_parallel_calls(self):
        chat, most = Chat(), 0
        for seed in range(4):
            first = self.ask(chat, [], True, seed=seed, temperature=1)
            message = chat.answer(first)
            most = max(most, len(message["tool_calls"]))
            again = self.ask(chat, chat.returned(message, rewritten, "y"), False)
            self.assertGreaterEqual(chat.reported(again)[1], chat.reported(first)[0] + chat.output_tokens(first) - 1, message)
        self.assertGreater(most, 1)


class Scripted(Returned):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        path = os.path.join(folder.name, "model.gguf")
        scripted_model.write(MODEL, path, WORDS, [(">", "<|im_end|>")], MARKS, TEMPLATE)
        cls.server = Server("--log", "off", model=path).wait_ready()
        cls.addClassCleanup(cls.server.stop)

    def test_reasoning_text_and_call(self):
        self.check(False)

    def test_other_answers_are_computed(self):
        """Another argument, text, reasoning or tenant, and reasoning that client or template drop: the prompt before the answer is a hit, it is not."""
        chat = Chat()
        first = self.ask(chat, [], False, cache_salt="other")
        message, computed = chat.answer(first), chat.reported(first)[0] + chat.output_tokens(first) - 1
        turns = chat.returned(message)
        later = {**message, "tool_calls": chat.returned(message, lambda value: {**value, "days": value["days"] % 30 + 1})[0]["tool_calls"]}
        others = ([later, turns[1]], [{**turns[0], "content": "He"}, turns[1]], [{**turns[0], "reasoning_content": "blue"}, turns[1]],
                  [{k: v for k, v in turns[0].items() if k != "reasoning_content"}, turns[1]], [*turns, {"role": "user", "content": "And now?"}])
        for i, changed in enumerate(others):
            self.ask(chat, [], False, cache_salt=f"other {i}")
            cached = chat.reported(self.ask(chat, changed, False, cache_salt=f"other {i}"))[1]
            self.assertGreaterEqual(cached, chat.reported(first)[0] - 1, changed)
            self.assertLess(cached, computed, changed)
        self.assertEqual(chat.reported(self.ask(chat, turns, False, cache_salt="another"))[1], 0)
        on, off = (chat.reported(self.ask(chat, turns, False, cache_salt="other", reuse=reuse)) for reuse in ("on", "off"))
        self.assertGreaterEqual(on[1], computed)
        self.assertEqual(off[1], 0)


del Returned

if __name__ == "__main__":
    unittest.main()
