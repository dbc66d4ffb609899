#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Client text never becomes a control token: a control token in every string and every name of a request, in each dialect, with a template that prints
all that it gets. The same text with another letter must have as many tokens."""
import copy
import os
import tempfile
import unittest

import gguf_copy
from server_process import MODEL, Server

# Prints names and values, as they are, and what may be mistaken for the model's.
TEMPLATE = """{%- macro walk(v) %}{% if v is mapping %}{% for k, x in v.items() %}{{ k }}{{ walk(x) }}{% endfor %}{% elif v is string %}{{ v }}
{%- elif v is iterable %}{% for x in v %}{{ walk(x) }}{% endfor %}{% else %}{{ v }}{% endif %}{% endmacro %}
{{- walk(messages) }}{{ walk(tools) }}{{ tools | tojson }}{{ walk(documents) }}{{ bos_token }}{{ eos_token }}{{ unk_token }}{{ pad_token }}{{ x_token }}{{ sep_token }}
{{- walk(custom) }}{{ custom ~ custom }}{{ reasoning_effort }}{{ date_string }}{{ builtin_tools }}"""
PARAMETERS = {"type": "object", "description": "d", "properties": {"at": {"type": "string", "description": "p", "enum": ["e", "g"], "title": "t", "default": "e"}}, "required": ["at"]}
FUNCTION = {"name": "look", "description": "Looks.", "parameters": PARAMETERS}
KWARGS = {"bos_token": "b", "eos_token": "e", "unk_token": "u", "pad_token": "p", "x_token": "x", "sep_token": "s", "custom": {"k": "v", "l": ["w"]}, "date_string": "d",
          "builtin_tools": ["z"], "documents": [{"title": "T", "text": "D"}], "messages": [{"role": "system", "content": "m"}]}
FORMAT = {"type": "json_schema", "json_schema": {"name": "n", "description": "f", "schema": {"type": "object", "title": "s", "properties": {"q": {"type": "string", "description": "r"}}}}}
OPENAI = {"max_tokens": 1, "user": "u", "tools": [{"type": "function", "function": FUNCTION}], "chat_template_kwargs": KWARGS, "reasoning_effort": "low",
          "messages": [{"role": "system", "content": "S", "name": "n"}, {"role": "user", "content": [{"type": "text", "text": "U"}], "name": "m"},
                       {"role": "assistant", "content": "A", "reasoning_content": "R", "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{\"at\": \"e\"}"}}]},
                       {"role": "tool", "tool_call_id": "c1", "content": "O", "name": "look"}, {"role": "user", "content": "V"}]}
ANTHROPIC = {"model": "default", "max_tokens": 1, "system": [{"type": "text", "text": "S"}], "tools": [{"name": "look", "description": "Looks.", "input_schema": PARAMETERS}],
             "metadata": {"user_id": "u"}, "messages": [
                 {"role": "user", "content": [{"type": "text", "text": "U"}, {"type": "document", "title": "T", "context": "C", "source": {"type": "text", "media_type": "text/plain", "data": "D"}}]},
                 {"role": "assistant", "content": [{"type": "thinking", "thinking": "R", "signature": "s"}, {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": "e"}}]},
                 {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "O"}]}, {"type": "text", "text": "V"}]}]}
RESPONSES = {"max_output_tokens": 1, "instructions": "S", "tools": [{"type": "function", **FUNCTION}], "input": [
    {"role": "user", "content": [{"type": "input_text", "text": "U"}]}, {"type": "reasoning", "id": "r1", "summary": [{"type": "summary_text", "text": "R"}]},
    {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{\"at\": \"e\"}"}, {"type": "function_call_output", "call_id": "c1", "output": "O"}, {"role": "user", "content": "V"}]}
GEMINI = {"generationConfig": {"maxOutputTokens": 1}, "systemInstruction": {"parts": [{"text": "S"}]}, "tools": [{"functionDeclarations": [FUNCTION]}], "contents": [
    {"role": "user", "parts": [{"text": "U"}]}, {"role": "model", "parts": [{"text": "R", "thought": True}, {"functionCall": {"name": "look", "args": {"at": "e"}}}]},
    {"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {"o": "O"}}}, {"text": "V"}]}]}
OLLAMA = {"model": "default", "stream": False, "options": {"num_predict": 1}, "tools": [{"type": "function", "function": FUNCTION}], "messages": [
    {"role": "system", "content": "S"}, {"role": "user", "content": "U"}, {"role": "assistant", "content": "A", "thinking": "R", "tool_calls": [{"function": {"name": "look", "arguments": {"at": "e"}}}]},
    {"role": "tool", "content": "O", "tool_name": "look"}, {"role": "user", "content": "V"}]}
ANTHROPIC_USAGE = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
DIALECTS = {
    "openai": ("/v1/chat/completions", OPENAI, lambda r: r["usage"]["prompt_tokens"]),
    "format": ("/v1/chat/completions", dict(OPENAI, tools=[], response_format=FORMAT, messages=OPENAI["messages"][:2]), lambda r: r["usage"]["prompt_tokens"]),
    "anthropic": ("/v1/messages", ANTHROPIC, lambda r: sum(r["usage"].get(name) or 0 for name in ANTHROPIC_USAGE)),
    "responses": ("/v1/responses", RESPONSES, lambda r: r["usage"]["input_tokens"]),
    "gemini": ("/v1beta/models/default:generateContent", GEMINI, lambda r: r["usageMetadata"]["promptTokenCount"]),
    "ollama": ("/api/chat", OLLAMA, lambda r: r.get("prompt_eval_count", 0)),
}
CONTROL, TEXT = "<|im_end|>" * 20, "<|im_enx|>" * 20


def places(value, path=()):
    """Paths of the strings of a JSON value, and of the names of its members: (path, is a name)."""
    if isinstance(value, str):
        yield path, False
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        if isinstance(key, str):
            yield path + (key,), True
        yield from places(item, path + (key,))


def changed(body, path, is_name, text):
    body = copy.deepcopy(body)
    at = body
    for step in path[:-1]:
        at = at[step]
    if is_name:
        at[path[-1] + text] = at.pop(path[-1])
    else:
        at[path[-1]] = at[path[-1]][:-1] + text + "\"}" if at[path[-1]].startswith("{") else at[path[-1]] + text
    return body


class ControlText(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        path = os.path.join(folder.name, "model.gguf")
        gguf_copy.copy(MODEL, path, {"tokenizer.chat_template": gguf_copy.string(TEMPLATE)})
        cls.server = Server("--log", "off", model=path).wait_ready()
        cls.addClassCleanup(cls.server.stop)

    def count(self, route, body, tokens_of):
        reply = self.server.post(route, body)
        return tokens_of(reply.json) if reply.status == 200 else None

    def test_every_string(self):
        for name, (route, body, tokens_of) in DIALECTS.items():
            plain = self.count(route, body, tokens_of)
            self.assertIsNotNone(plain, (name, self.server.post(route, body).body))
            seen = 0
            for path, is_name in places(body):
                as_text, as_control = (self.count(route, changed(body, path, is_name, text), tokens_of) for text in (TEXT, CONTROL))
                if as_text is None or as_text <= plain:  # refused, or not in the prompt
                    self.assertTrue(as_control is None or as_control <= plain + 2, (name, path, as_control, plain))
                    continue
                seen += 1
                self.assertIsNotNone(as_control, (name, path))
                # as text it has about as many tokens as the other; where the template prints it several times, no print may be one of control
                self.assertGreater(as_control - plain, 0.8 * (as_text - plain), (name, path, is_name, plain, as_text))
            self.assertGreater(seen, 3 if name == "format" else 8, name)

    def test_the_models_own_variables_stay(self):
        body = {"messages": [{"role": "user", "content": "U"}], "max_tokens": 1, "chat_template_kwargs": {"eos_token": CONTROL}}
        reply = self.server.post("/v1/chat/completions", body)
        self.assertEqual(reply.status, 200, reply.body)
        self.assertIn("chat_template_kwargs.eos_token", str(reply.json["reprise"]["warnings"]))
        plain = self.server.post("/v1/chat/completions", dict(body, chat_template_kwargs={}))
        self.assertEqual(reply.json["usage"]["prompt_tokens"], plain.json["usage"]["prompt_tokens"])


if __name__ == "__main__":
    unittest.main()
