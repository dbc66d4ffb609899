#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Debian's python3-openai and python3-anthropic, unchanged, against a `reprise serve` at REPRISE_URL: tests/clients/run_python starts it."""
import datetime
import json
import os
import sys
import typing
import unittest
import urllib.request

import anthropic
import anthropic.types.beta.message_count_tokens_params
import anthropic.types.beta.message_create_params
import openai
import openai.types.chat.completion_create_params
import openai.types.responses.response_create_params
import typing_extensions

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "server"))
import field_table  # noqa: E402

URL = os.environ["REPRISE_URL"]
KEY = os.environ["REPRISE_KEY"]
MODEL = "reprise-mini"
QUESTION = [{"role": "user", "content": "Tom had a red ball. What did Tom have?"}]
SHORT = {"model": MODEL, "messages": QUESTION, "temperature": 0, "max_tokens": 8}
ENDLESS = {"model": MODEL, "messages": QUESTION, "max_tokens": 1900, "extra_body": {"ignore_eos": True}}
ZONE = {"type": "object", "properties": {"zone": {"enum": ["utc", "local"]}}, "required": ["zone"], "additionalProperties": False}


def wait_idle():
    """Until no call of the engine is left; it asks again and again."""
    while True:
        request = urllib.request.Request(URL + "/metrics", headers={"Authorization": "Bearer " + KEY})
        with urllib.request.urlopen(request) as reply:
            if b"\nreprise_jobs_open 0\n" in reply.read():
                return


class OpenAI(unittest.TestCase):
    def setUp(self):
        self.client = openai.OpenAI(base_url=URL + "/v1", api_key=KEY, max_retries=0)
        self.addCleanup(self.client.close)

    def chat(self, **fields):
        return self.client.chat.completions.create(**{**SHORT, **fields})

    def test_models(self):
        self.assertEqual([m.id for m in self.client.models.list()], [MODEL])
        self.assertEqual(self.client.models.retrieve(MODEL).owned_by, "reprise")
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("other")

    def test_chat_and_cached_tokens(self):
        first, again = (self.chat(extra_body={"cache_salt": "python"}) for _ in range(2))
        self.assertEqual(first.choices[0].finish_reason, "stop")
        self.assertEqual(first.usage.prompt_tokens_details.cached_tokens, 0)
        self.assertEqual(again.usage.prompt_tokens_details.cached_tokens, first.usage.prompt_tokens - 1)
        self.assertEqual(again.choices[0].message.content, first.choices[0].message.content)

    def test_stream(self):
        whole, text, usage = self.chat(), "", None
        for chunk in self.chat(stream=True, stream_options={"include_usage": True}):
            text += (chunk.choices[0].delta.content or "") if chunk.choices else ""
            usage = chunk.usage or usage
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(usage.completion_tokens, whole.usage.completion_tokens)

    def test_drawing(self):
        drawn = {"n": 2, "seed": 7, "temperature": 1, "logprobs": True, "top_logprobs": 2}
        first, again = self.chat(**drawn), self.chat(**drawn)
        self.assertEqual([c.message.content for c in first.choices], [c.message.content for c in again.choices])
        self.assertEqual({len(t.top_logprobs) for c in first.choices for t in c.logprobs.content}, {2})
        text = self.chat().choices[0].message.content
        self.assertEqual(self.chat(stop=text[3:6]).choices[0].message.content, text[:text.index(text[3:6])])
        self.assertEqual(self.chat(max_tokens=1).choices[0].finish_reason, "length")

    def test_completions(self):
        whole = self.client.completions.create(model=MODEL, prompt="Tom had a", temperature=0, max_tokens=4)
        stream = self.client.completions.create(model=MODEL, prompt="Tom had a", temperature=0, max_tokens=4, stream=True)
        self.assertEqual("".join(chunk.choices[0].text for chunk in stream), whole.choices[0].text)

    def test_tools(self):
        asked = {"tools": [{"type": "function", "function": {"name": "time", "parameters": ZONE}}], "tool_choice": "required",
                 "parallel_tool_calls": False, "max_tokens": 300}
        choice = self.chat(**asked).choices[0]
        self.assertEqual((choice.finish_reason, choice.message.tool_calls[0].function.name), ("tool_calls", "time"))
        self.assertIn(json.loads(choice.message.tool_calls[0].function.arguments)["zone"], ("utc", "local"))
        streamed = ""
        for chunk in self.chat(**asked, stream=True):
            for call in chunk.choices[0].delta.tool_calls or []:
                streamed += call.function.arguments or ""
        self.assertEqual(streamed, choice.message.tool_calls[0].function.arguments)

    def test_answers_of_a_form(self):
        form = {"type": "json_schema", "json_schema": {"name": "when", "schema": ZONE, "strict": True}}
        self.assertIn(json.loads(self.chat(max_tokens=100, response_format=form).choices[0].message.content)["zone"], ("utc", "local"))

    def test_responses(self):
        asked = {"model": MODEL, "input": QUESTION[0]["content"], "temperature": 0, "max_output_tokens": 8}
        whole, text = self.client.responses.create(**asked), ""
        for event in self.client.responses.create(**asked, stream=True):
            text += event.delta if event.type == "response.output_text.delta" else ""
        self.assertEqual((whole.status, whole.output_text), ("completed", text))
        following = self.client.responses.create(**{**asked, "input": "And Ann?"}, previous_response_id=whole.id)
        self.assertGreater(following.usage.input_tokens_details.cached_tokens, whole.usage.input_tokens - 2)
        self.client.responses.delete(whole.id)
        with self.assertRaises(openai.NotFoundError):
            self.client.responses.retrieve(whole.id)

    def test_errors(self):
        self.assertEqual(self.chat(model="other").model, MODEL)
        for fields, kind, code in (({"temperature": 9}, openai.BadRequestError, "invalid_value"),
                                   ({"messages": [{"role": "user", "content": "word " * 5000}]}, openai.BadRequestError,
                                    "context_length_exceeded")):
            with self.assertRaises(kind) as raised:
                self.chat(**fields)
            self.assertEqual(raised.exception.code, code)
        with self.assertRaises(openai.AuthenticationError):
            openai.OpenAI(base_url=URL + "/v1", api_key="a-key-that-nobody-has", max_retries=0).models.list()

    def test_cancelled(self):
        stream = self.client.chat.completions.create(**ENDLESS, stream=True)
        for chunk in stream:
            if chunk.choices[0].delta.content:
                stream.close()
                break
        wait_idle()


class Anthropic(unittest.TestCase):
    def setUp(self):
        self.client = anthropic.Anthropic(base_url=URL, api_key=KEY, max_retries=0)
        self.addCleanup(self.client.close)

    def asked(self, extra=None, **fields):
        """This client's methods know no temperature; the server does."""
        asked = {**SHORT, **fields, "extra_body": {"temperature": 0, **(extra or {})}}
        del asked["temperature"]
        return asked

    def message(self, extra=None, **fields):
        return self.client.messages.create(**self.asked(extra, **fields))

    def test_models(self):
        listed = list(self.client.models.list())
        self.assertEqual([(m.id, m.type, m.display_name) for m in listed], [(MODEL, "model", MODEL)])
        self.assertIsInstance(listed[0].created_at, datetime.datetime)

    def test_usage(self):
        asked = {"system": [{"type": "text", "text": "You know what Tom had, and say it.", "cache_control": {"type": "ephemeral"}}],
                 "extra": {"cache_salt": "usage"}}
        total = self.client.messages.count_tokens(model=MODEL, messages=QUESTION, system=asked["system"]).input_tokens
        first, again = self.message(**asked).usage, self.message(**asked).usage
        self.assertEqual((first.input_tokens + first.cache_creation_input_tokens, first.cache_read_input_tokens), (total, 0))
        self.assertEqual((again.input_tokens, again.cache_creation_input_tokens, again.cache_read_input_tokens), (1, 0, total - 1))

    def test_stream(self):
        whole = self.message()
        with self.client.messages.stream(**self.asked()) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        self.assertEqual(text, whole.content[0].text)
        self.assertEqual((final.stop_reason, final.usage.output_tokens), ("end_turn", whole.usage.output_tokens))

    def test_tools(self):
        asked = {"tools": [{"name": "time", "input_schema": ZONE}], "tool_choice": {"type": "tool", "name": "time"}, "max_tokens": 300}
        message = self.message(**asked)
        call = next(block for block in message.content if block.type == "tool_use")
        self.assertEqual((message.stop_reason, call.name), ("tool_use", "time"))
        self.assertIn(call.input["zone"], ("utc", "local"))
        streamed = ""  # not by messages.stream, whose reader of JSON does not go with sid's jiter
        for event in self.message(**asked, stream=True):
            if event.type == "content_block_delta" and event.delta.type == "input_json_delta":
                streamed += event.delta.partial_json
        self.assertEqual(json.loads(streamed), call.input)

    def test_stop(self):
        word = self.message().content[0].text[2:5]
        stopped = self.message(stop_sequences=[word])
        self.assertEqual((stopped.stop_reason, stopped.stop_sequence), ("stop_sequence", word))

    def test_errors(self):
        self.assertEqual(self.message(model="other").model, MODEL)
        for fields, kind in (({"extra": {"temperature": 9}}, anthropic.BadRequestError),
                             ({"messages": [{"role": "user", "content": "word " * 5000}]}, anthropic.BadRequestError)):
            with self.assertRaises(kind) as raised:
                self.message(**fields)
            self.assertEqual(raised.exception.body["type"], "error")
        with self.assertRaises(anthropic.AuthenticationError):
            anthropic.Anthropic(base_url=URL, api_key="a-key-that-nobody-has", max_retries=0).messages.create(**self.asked())

    def test_cancelled(self):
        with self.client.messages.stream(**ENDLESS) as stream:
            next(iter(stream.text_stream))
        wait_idle()


def label(kind):
    """The values of a field that tells the types of a union apart: "<text>"."""
    for name in ("type", "role"):
        hint = typing_extensions.get_type_hints(kind).get(name)
        if typing.get_origin(hint) is typing.Literal:
            return f"<{'|'.join(typing.get_args(hint))}>"
    return ""


def fields_of(kind, path="", around=()):
    """Every field of a type of requests, as docs/fields.md writes them."""
    if typing_extensions.is_typeddict(kind):
        for name, hint in typing_extensions.get_type_hints(kind).items() if kind not in around else ():
            here = f"{path}.{name}" if path else name
            yield here
            yield from fields_of(hint, here, (*around, kind))
        return
    arguments = typing.get_args(kind)
    if typing.get_origin(kind) in (dict, typing.Literal):
        return
    is_list = isinstance(typing.get_origin(kind), type) and issubclass(typing.get_origin(kind), typing.Iterable)
    dicts = sum(typing_extensions.is_typeddict(a) for a in arguments)
    for one in arguments:
        if one is not Ellipsis:
            yield from fields_of(one, path + ("[]" if is_list else "") + (label(one) if dicts > 1 and typing_extensions.is_typeddict(one) else ""), around)


class Fields(unittest.TestCase):
    """docs/fields.md has a row for every field of the requests' types (tests/clients/fields.test.mjs does the same for npm's)."""
    TYPES = {
        "OpenAI: chat completions": [openai.types.chat.completion_create_params.CompletionCreateParamsBase],
        "OpenAI: responses": [openai.types.responses.response_create_params.ResponseCreateParamsBase],
        "OpenAI: completions": [openai.types.completion_create_params.CompletionCreateParamsBase],
        "OpenAI: embeddings": [openai.types.embedding_create_params.EmbeddingCreateParams],
        "Anthropic: messages": [module.MessageCreateParamsBase for module in (anthropic.types.message_create_params, anthropic.types.beta.message_create_params)]
        + [module.MessageCountTokensParams for module in (anthropic.types.message_count_tokens_params, anthropic.types.beta.message_count_tokens_params)],
    }

    def test_rows(self):
        tables = {table.title: table for table in field_table.tables()}
        for title, kinds in self.TYPES.items():
            for kind in kinds:
                fields = list(dict.fromkeys(fields_of(kind)))
                self.assertGreater(len(fields), 3, kind)
                self.assertEqual(field_table.lacking(tables[title], fields), [], f"{title}: {kind.__name__}")


if __name__ == "__main__":
    unittest.main()
