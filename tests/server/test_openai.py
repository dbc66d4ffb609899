#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise serve`, the OpenAI dialect: what its routes answer, stream and refuse."""
import json
import unittest

from server_process import Server

QUESTION = [{"role": "user", "content": "Tom had a red ball. What did Tom have?"}]


class OpenAI(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server().wait_ready()
        cls.addClassCleanup(cls.server.stop)

    def chat(self, **fields):
        body = {"messages": QUESTION, "temperature": 0, "max_tokens": 8, **fields}
        return self.server.post("/v1/chat/completions", body)

    def text(self, **fields):
        return self.server.post("/v1/completions", {"prompt": "Tom had a", "temperature": 0, "max_tokens": 8, **fields})

    def refused(self, reply, status, field, code="invalid_value", says=""):
        self.assertEqual(reply.status, status, reply.body)
        self.assertEqual(set(reply.json), {"error"})
        error = reply.json["error"]
        self.assertEqual(set(error), {"message", "type", "param", "code"})
        self.assertEqual((error["param"], error["code"]), (field, code), error)
        self.assertIn(says, error["message"])
        self.assertNotIn("\n", error["message"])

    def test_models(self):
        listed = self.server.get("/v1/models").json
        self.assertEqual(listed["object"], "list")
        model = listed["data"][0]
        self.assertEqual((model["id"], model["object"], model["owned_by"]), ("reprise-mini", "model", "reprise"))
        self.assertIsInstance(model["created"], int)
        self.assertEqual(self.server.get("/v1/models/reprise-mini").json, model)
        self.refused(self.server.get("/v1/models/other"), 404, "model", "model_not_found")

    def test_chat(self):
        first = self.chat(cache_salt="chat").json
        self.assertEqual(first["object"], "chat.completion")
        self.assertTrue(first["id"].startswith("chatcmpl-"))
        choice = first["choices"][0]
        self.assertEqual((choice["index"], choice["finish_reason"], choice["logprobs"]), (0, "stop", None))
        self.assertEqual((choice["message"]["role"], choice["message"]["refusal"]), ("assistant", None))
        usage = first["usage"]
        self.assertEqual(usage["total_tokens"], usage["prompt_tokens"] + usage["completion_tokens"])
        self.assertEqual(usage["prompt_tokens_details"], {"cached_tokens": 0, "cache_write_tokens": usage["prompt_tokens"]})
        self.assertEqual(first["reprise"]["fresh_tokens"], usage["prompt_tokens"])
        again = self.chat(cache_salt="chat").json
        self.assertEqual(again["choices"], first["choices"])
        self.assertEqual(again["usage"]["prompt_tokens_details"]["cached_tokens"], usage["prompt_tokens"] - 1)
        self.assertTrue(again["reprise"]["parts"][0]["reused"])
        other = self.chat(cache_salt="another").json
        self.assertEqual(other["usage"]["prompt_tokens_details"]["cached_tokens"], 0)

    def test_content_as_parts_is_the_same(self):
        parts = [{"type": "text", "text": "Tom had a red ball."}, {"type": "text", "text": " What did Tom have?"}]
        self.assertEqual(self.chat(messages=[{"role": "user", "content": parts}]).json["choices"], self.chat().json["choices"])

    def test_roles_and_continued_answers(self):
        messages = [{"role": "developer", "content": "Be brief."}, *QUESTION, {"role": "assistant", "content": "Tom had a"}]
        closed = self.chat(messages=messages).json["usage"]["prompt_tokens"]
        self.assertLess(self.chat(messages=messages, continue_final_message=True).json["usage"]["prompt_tokens"], closed)
        self.refused(self.chat(continue_final_message=True), 400, "continue_final_message")
        self.assertEqual(self.chat(messages=[{"role": "assistant", "content": None}, *QUESTION]).status, 200)

    def stream(self, reply):
        self.assertEqual((reply.status, reply.headers["Content-Type"]), (200, "text/event-stream"))
        frames = [data for _, data in reply.frames]
        self.assertEqual(frames[-1], "[DONE]")
        return [json.loads(data) for data in frames[:-1]]

    def test_refusals_in_the_history(self):
        """openai/openai-agents-js#1524: a refusal comes back as a part, or as the field beside `content`: it is what the assistant said."""
        user, said = {"role": "user", "content": "Hello."}, "I must decline that."
        part = {"type": "refusal", "refusal": said}

        def prompt(message):
            reply = self.server.post("/apply-template", {"messages": [user, {"role": "assistant", **message}, user]})
            self.assertEqual(reply.status, 200, reply.body)
            return reply.json["prompt"]
        for message, text in (({"content": [part]}, said), ({"content": None, "refusal": said}, said), ({"content": [{"type": "text", "text": "Well. "}, part]}, "Well. " + said),
                              ({"content": "Well.", "refusal": None}, "Well.")):
            self.assertEqual(prompt(message), prompt({"content": text}), message)
        item = {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": [part]}
        self.assertEqual(self.server.post("/v1/responses", {"input": [user, item, user], "max_output_tokens": 1}).status, 200)

    def test_top_k_off(self):
        """vllm-project/vllm#17773: -1 and 0 are off, in every dialect."""
        messages, few = [{"role": "user", "content": "x"}], {"max_tokens": 1}
        for k in (-1, 0):
            for path, body in (("/v1/chat/completions", {"messages": messages, "top_k": k, **few}), ("/v1/completions", {"prompt": "x", "top_k": k, **few}),
                               ("/v1/responses", {"input": "x", "max_output_tokens": 1, "top_k": k}), ("/completion", {"prompt": "x", "n_predict": 1, "top_k": k}),
                               ("/v1/messages", {"model": "m", "messages": messages, "top_k": k, **few}),
                               ("/v1beta/models/m:generateContent", {"contents": [{"parts": [{"text": "x"}]}], "generationConfig": {"topK": k, "maxOutputTokens": 1}}),
                               ("/api/generate", {"model": "m", "prompt": "x", "stream": False, "options": {"top_k": k, "num_predict": 1}})):
                self.assertEqual(self.server.post(path, body).status, 200, (path, k))

    def test_chat_stream(self):
        whole = self.chat().json
        chunks = self.stream(self.chat(stream=True))
        self.assertEqual({c["object"] for c in chunks}, {"chat.completion.chunk"})
        self.assertEqual(len({c["id"] for c in chunks}), 1)
        self.assertEqual(chunks[0]["choices"][0]["delta"], {"role": "assistant", "content": ""})
        text = "".join(c["choices"][0]["delta"].get("content", "") for c in chunks)
        self.assertEqual(text, whole["choices"][0]["message"]["content"])
        self.assertEqual([c["choices"][0]["finish_reason"] for c in chunks], [None] * (len(chunks) - 1) + ["stop"])
        self.assertNotIn("usage", chunks[-1])

    def test_stream_with_usage(self):
        chunks = self.stream(self.chat(stream=True, stream_options={"include_usage": True}))
        self.assertEqual({json.dumps(c["usage"]) for c in chunks[:-1]}, {"null"})
        self.assertEqual(chunks[-1]["choices"], [])
        self.assertIn("cached_tokens", chunks[-1]["usage"]["prompt_tokens_details"])
        self.assertIn("parts", chunks[-1]["reprise"])

    def test_several_answers(self):
        whole = self.chat(n=3, temperature=1, seed=7, ignore_eos=True).json
        self.assertEqual([c["index"] for c in whole["choices"]], [0, 1, 2])
        self.assertEqual(whole["usage"]["completion_tokens"], 24)
        self.assertEqual(self.chat(n=3, temperature=1, seed=7, ignore_eos=True).json["choices"], whole["choices"])
        texts = ["", "", ""]
        for chunk in self.stream(self.chat(n=3, temperature=1, seed=7, ignore_eos=True, stream=True)):
            choice = chunk["choices"][0]
            texts[choice["index"]] += choice["delta"].get("content", "")
        self.assertEqual(texts, [c["message"]["content"] for c in whole["choices"]])

    def test_logprobs(self):
        whole = self.chat(logprobs=True, top_logprobs=2).json["choices"][0]["logprobs"]["content"]
        for entry in whole:
            self.assertEqual(len(entry["top_logprobs"]), 2)
            self.assertEqual(entry["top_logprobs"][0]["token"], entry["token"])
            self.assertLessEqual(entry["logprob"], 0)
            self.assertEqual(bytes(entry["bytes"]).decode(), entry["token"])
        streamed = []
        for chunk in self.stream(self.chat(logprobs=True, top_logprobs=2, stream=True)):
            if chunk["choices"][0]["logprobs"]:
                streamed += chunk["choices"][0]["logprobs"]["content"]
        self.assertEqual(streamed, whole)
        self.assertEqual([e["top_logprobs"] for e in self.chat(logprobs=True).json["choices"][0]["logprobs"]["content"]], [[]] * len(whole))

    def test_stop_and_length(self):
        whole = self.text(ignore_eos=True).json["choices"][0]
        self.assertEqual(whole["finish_reason"], "length")
        word = whole["text"][3:6]
        stopped = self.text(ignore_eos=True, stop=["zzz", word]).json["choices"][0]
        self.assertEqual((stopped["finish_reason"], stopped["text"]), ("stop", whole["text"][:whole["text"].index(word)]))
        self.assertEqual(self.text(ignore_eos=True, stop=word).json["choices"][0]["text"], stopped["text"])
        self.assertEqual(self.text(stop=None, max_tokens=1).json["usage"]["completion_tokens"], 1)

    def test_completions(self):
        whole = self.text(prompt=["Tom had a", "One"], n=2, echo=True).json
        self.assertEqual(whole["object"], "text_completion")
        self.assertEqual([c["index"] for c in whole["choices"]], [0, 1, 2, 3])
        self.assertTrue(all(c["text"].startswith(p) for c, p in zip(whole["choices"], ["Tom had a", "Tom had a", "One", "One"])))
        texts = [""] * 4
        for chunk in self.stream(self.text(prompt=["Tom had a", "One"], n=2, echo=True, stream=True,
                                           stream_options={"include_usage": True})):
            for choice in chunk["choices"]:
                texts[choice["index"]] += choice["text"]
        self.assertEqual(texts, [c["text"] for c in whole["choices"]])
        logprobs = self.text(logprobs=2).json["choices"][0]["logprobs"]
        self.assertEqual({len(v) for v in logprobs.values()}, {8})
        self.assertEqual(logprobs["text_offset"][0], 0)
        streamed = []
        for chunk in self.stream(self.text(logprobs=2, stream=True)):
            if chunk["choices"][0]["logprobs"]:
                streamed += chunk["choices"][0]["logprobs"]["text_offset"]
        self.assertEqual(streamed, logprobs["text_offset"])

    def test_prompts_of_token_ids(self):
        ids = self.server.post("/tokenize", {"content": "Tom had a", "add_special": True}).json["tokens"]
        plain = self.text().json
        self.assertEqual(self.text(prompt=ids).json["choices"][0]["text"], plain["choices"][0]["text"])
        self.assertEqual(self.text(prompt=ids).json["usage"]["prompt_tokens"], len(ids))
        several = self.text(prompt=["Tom had a", ids, [ids[-1]]], n=2).json["choices"]
        self.assertEqual(len(several), 6)
        self.assertEqual(several[2]["text"], plain["choices"][0]["text"])
        echoed = self.text(prompt=[ids, ids], echo=True).json["choices"][1]["text"]
        self.assertTrue(echoed.endswith("Tom had a" + plain["choices"][0]["text"]), echoed)
        streamed = self.stream(self.text(prompt=ids, echo=True, stream=True))
        self.assertEqual("".join(choice["text"] for chunk in streamed for choice in chunk["choices"]), echoed)
        for bad in ([-1], [1.5], [1, "a"], [[1, "a"]], [[]], [True], [2 ** 31], [{}], [[1], 2]):
            with self.subTest(prompt=bad):
                self.refused(self.text(prompt=bad), 400, "prompt")
        self.refused(self.text(prompt=[99999999]), 400, None, says="99999999")

    def test_bias(self):
        token = self.chat(logprobs=True).json["choices"][0]["logprobs"]["content"][0]["token"]
        for bias in ({str(i): -1000 for i in range(1000)}, {}):
            self.assertEqual(self.chat(logit_bias=bias).status, 200)
        self.assertTrue(token)
        self.refused(self.chat(logit_bias={"x": 1}), 400, "logit_bias")
        self.refused(self.chat(logit_bias={"1": 1001}), 400, "logit_bias")
        self.refused(self.chat(logit_bias=3), 400, "logit_bias")
        self.refused(self.chat(logit_bias={"99999999": 1}), 400, None, says="99999999")

    def test_unknown_fields_are_ignored(self):
        self.assertEqual(self.chat(user="me", metadata={"a": "b"}, store=False, service_tier="auto", frobnicate=[1], prompt_cache_key="k",
                                   parallel_tool_calls=True, tools=[], reasoning_effort=None).status, 200)

    def test_wrong_types_name_the_field(self):
        for field, value in (("messages", "x"), ("temperature", "warm"), ("top_p", True), ("n", 1.5), ("n", "1"), ("stream", "yes"),
                             ("seed", "x"),
                             ("stop", 3), ("stop", [3]), ("max_tokens", []), ("max_completion_tokens", {}), ("logprobs", 1), ("model", 3),
                             ("stream_options", True), ("presence_penalty", "x"), ("response_format", "json"), ("top_logprobs", "x"),
                             ("ignore_eos", 1), ("top_k", "x"), ("reuse", 1), ("cache_salt", 1)):
            with self.subTest(field=field, value=value):
                self.refused(self.chat(**{field: value}), 400, field, says=f"'{field}")
        self.refused(self.chat(stream_options={"include_usage": 1}), 400, "stream_options.include_usage")

    def test_values_out_of_range(self):
        for field, value in (("temperature", 2.1), ("temperature", -1), ("top_p", 1.1), ("n", 0), ("n", 129), ("max_tokens", -2),
                             ("top_logprobs", 21),
                             ("presence_penalty", 3), ("reuse", "maybe"), ("stop", ["a"] * 65), ("n_draft", 99)):
            with self.subTest(field=field, value=value):
                self.refused(self.chat(**{field: value}), 400, field)
        self.refused(self.chat(top_logprobs=1), 400, "top_logprobs")
        self.refused(self.text(prompt=["a"] * 65, n=2), 400, "n")
        self.refused(self.text(best_of=2), 400, "best_of", "unsupported_value")

    def test_wrong_messages(self):
        for messages, field in (([], "messages"), (None, "messages"), (["x"], "messages"), ([{"content": "x"}], "messages"),
                                ([{"role": "king", "content": "x"}], "messages"), ([{"role": 1, "content": "x"}], "messages[0].role"),
                                ([{"role": "user", "content": 3}], "messages[0].content"), ([{"role": "user", "content": [3]}],
                                                                                            "messages[0].content"),
                                ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content"),
                                (QUESTION + [{"role": "user", "content": {}}], "messages[1].content")):
            with self.subTest(messages=messages):
                self.refused(self.chat(messages=messages), 400, field)
        image = [{"type": "image_url", "image_url": {"url": "data:"}}]
        self.refused(self.chat(messages=[{"role": "user", "content": image}]), 400, "messages[0].content", "unsupported_value")
        self.refused(self.chat(functions=[{}]), 400, "functions", "unsupported_value")
        self.refused(self.chat(response_format={"type": "xml"}), 400, "response_format", "unsupported_value")
        self.assertEqual(self.chat(response_format={"type": "text"}).status, 200)

    def test_wrong_prompts(self):
        for prompt in (3, {}, [], None):
            with self.subTest(prompt=prompt):
                self.refused(self.text(prompt=prompt), 400, "prompt")
        self.refused(self.text(suffix="x"), 400, None, "unsupported_value")

    def test_models_and_context(self):
        other = self.chat(model="gpt-9").json
        self.assertEqual((other["model"], other["reprise"]["warnings"]), ("reprise-mini", ["unknown model 'gpt-9': ignored"]))
        self.assertEqual(self.chat(model="reprise-mini").json["model"], "reprise-mini")
        self.assertEqual(self.chat(model="default").status, 200)
        self.refused(self.text(prompt="word " * 5000), 400, None, "context_length_exceeded", "2048")
        self.refused(self.text(prompt="word " * 5000, stream=True), 400, None, "context_length_exceeded")

    def test_bodies_that_are_no_request(self):
        for body in ("", "{", "[]", "3", '{"a":1,"a":2}', "\xff", '{"seed":099999999999999999999}', '{"a":1e400.}', "[" * 3000):
            with self.subTest(body=body[:20]):
                reply = self.server.post("/v1/chat/completions", body.encode("latin-1"))
                self.refused(reply, 400, None)

    def test_numbers_and_nul_of_any_body(self):
        """Integers beyond 64 bits, reals beyond a double and U+0000 are valid JSON, which was refused as invalid; 16.0 is 16."""
        def ask(fields):
            return self.server.post("/v1/chat/completions", ('{"messages":[{"role":"user","content":"x"}],"max_tokens":2%s}' % fields).encode())
        for fields in (',"seed":18446744073709551615', ',"seed":7.0', ',"seed":99999999999999999999999', ',"top_k":16.0,"n":1e0',
                       ',"metadata":{"a":[1e400,-99999999999999999999]}', ',"logit_bias":{"5":1.0}'):
            with self.subTest(fields=fields):
                reply = ask(fields)
                self.assertEqual(reply.status, 200, reply.body)
        self.assertEqual(self.text(max_tokens=3.0, prompt=[15.0, 16]).json["usage"]["completion_tokens"], 3)
        self.refused(ask(',"temperature":1e400'), 400, "temperature", says="out of range")
        self.refused(ask(',"top_k":-99999999999999999999'), 400, "top_k", says="out of range")
        self.refused(ask(',"top_k":16.5'), 400, "top_k", says="whole number")
        self.refused(ask(',"model":99999999999999999999'), 400, "model", says="a number: give a string")
        # a NUL ended what the model saw of a tool's result, had it been read
        texts = [self.chat(messages=[{"role": "user", "content": f"a {nul} b"}]).json for nul in ("\0", "\ufffd")]
        self.assertEqual(texts[0]["usage"]["prompt_tokens"], texts[1]["usage"]["prompt_tokens"])
        self.assertEqual(texts[0]["choices"], texts[1]["choices"])


if __name__ == "__main__":
    unittest.main()
