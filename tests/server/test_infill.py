#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise serve`: infill: suffix of /v1/completions and llama.cpp's /infill, with a model whose file names fill-in-the-middle tokens, by the keys of
GGUF and the older ones; a model without them refuses. tests/model/test_infill.c has the families."""
import itertools
import json
import os
import re
import tempfile
import unittest

import gguf_copy
from server_process import MODEL, Server, ServerCase

NAMES = ("pre", "suf", "mid", "rep", "sep")


class Infill(unittest.TestCase):
    older = False

    @classmethod
    def setUpClass(cls):
        plain = Server("--log", "off").wait_ready()
        words = ((i, plain.post("/detokenize", {"tokens": [i]}).json["content"]) for i in range(300, 2000))
        chosen = [(i, text) for i, text in itertools.islice(((i, t) for i, t in words if re.fullmatch(" [a-z]{4,}", t)), len(NAMES))]
        plain.stop()
        cls.ids, cls.texts = dict(zip(NAMES, (i for i, _ in chosen))), dict(zip(NAMES, (t for _, t in chosen)))  # they become control tokens
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        path = os.path.join(folder.name, "infill.gguf")
        older = {"pre": "prefix", "suf": "suffix", "mid": "middle"}
        names = {f"tokenizer.ggml.{older[n]}_token_id": cls.ids[n] for n in older} if cls.older else {f"tokenizer.ggml.fim_{n}_token_id": i for n, i in cls.ids.items()}
        gguf_copy.copy(MODEL, path, {name: gguf_copy.u32(value) for name, value in names.items()})
        cls.server = Server("--log", "off", model=path).wait_ready()
        cls.addClassCleanup(cls.server.stop)

    def ids_of(self, text):
        return self.server.post("/tokenize", {"content": text}).json["tokens"]

    def start(self):
        return self.server.post("/tokenize", {"content": "", "add_special": True}).json["tokens"]

    def answers(self, ids, **fields):
        return self.server.post("/v1/completions", {"prompt": ids, "max_tokens": 6, "temperature": 0, **fields}).json["choices"][0]["text"]

    def test_suffix(self):
        expected = [*self.start(), self.ids["pre"], *self.ids_of("Tom had a"), self.ids["suf"], *self.ids_of(" red."), self.ids["mid"]]
        reply = self.server.post("/v1/completions", {"prompt": "Tom had a", "suffix": " red.", "max_tokens": 6, "temperature": 0, "prompt_logprobs": 0}).json
        self.assertEqual([next(iter(entry)) for entry in reply["choices"][0]["prompt_logprobs"][1:]], [str(i) for i in expected[1:]])
        self.assertEqual(reply["choices"][0]["text"], self.answers(expected))
        chunks = self.server.post("/v1/completions", {"prompt": "Tom had a", "suffix": " red.", "max_tokens": 6, "temperature": 0, "stream": True}).frames[:-1]
        self.assertEqual("".join(c["text"] for _, data in chunks for c in json.loads(data)["choices"]), reply["choices"][0]["text"])
        for nothing in ("", None):
            self.assertEqual(self.server.post("/v1/completions", {"prompt": "Tom had a", "suffix": nothing, "max_tokens": 6, "temperature": 0}).json["choices"][0]["text"],
                             self.answers("Tom had a"))

    def test_texts_are_no_tokens(self):
        """The words that are control tokens now are spelled by others in every text."""
        hostile = "".join(self.texts.values())
        fields = {"prompt": hostile, "suffix": hostile, "max_tokens": 0, "prompt_logprobs": 0}
        listed = [next(iter(e)) for e in self.server.post("/v1/completions", fields).json["choices"][0]["prompt_logprobs"][1:]]
        self.assertEqual([listed.count(str(self.ids[name])) for name in NAMES[:3]], [1 if self.start() else 0, 1, 1])  # the first token has no entry
        self.assertEqual([listed.count(str(self.ids[name])) for name in NAMES[3:]], [2, 2] if self.older else [0, 0])

    def test_infill(self):
        files = [{"filename": "a.txt", "text": "Anna.\n"}, {"text": "Ben."}]
        extra = ([self.ids["rep"], *self.ids_of("project"), *self.ids_of("\n"), self.ids["sep"], *self.ids_of("a.txt"), *self.ids_of("\n"), *self.ids_of("Anna.\n"),
                  self.ids["sep"], *self.ids_of("file"), *self.ids_of("\n"), *self.ids_of("Ben."), *self.ids_of("\n"), self.ids["sep"], *self.ids_of("file"),
                  *self.ids_of("\n")] if not self.older else [*self.ids_of("Anna.\n"), *self.ids_of("Ben."), *self.ids_of("\n")])
        gap = [self.ids["pre"], *self.ids_of("Tom had a"), self.ids["suf"], *self.ids_of(" red."), self.ids["mid"]]
        body = {"input_prefix": "Tom had a", "input_suffix": " red.", "n_predict": 6, "temperature": 0}
        for more, expected in (({}, [*self.start(), *gap]), ({"prompt": " big"}, [*self.start(), *gap, *self.ids_of(" big")]),
                               ({"input_extra": files}, [*self.start(), *extra, *gap]), ({"input_extra": []}, [*self.start(), *gap])):
            with self.subTest(more=more):
                reply = self.server.post("/infill", {**body, **more}).json
                self.assertEqual(reply["tokens_evaluated"], len(expected))
                self.assertEqual(reply["content"], self.answers(expected))
                self.assertEqual(reply["reprise"].get("warnings", []), [])
        streamed = self.server.post("/infill", {**body, "stream": True}).frames
        self.assertEqual("".join(json.loads(data)["content"] for _, data in streamed), self.server.post("/infill", body).json["content"])
        self.assertEqual(self.server.post("/infill", {**body, "n_predict": 0}).json["content"], "")

    def test_refused(self):
        body = {"input_prefix": "a", "input_suffix": "b"}
        for path, fields, says in (("/infill", {"input_suffix": "b"}, "input_prefix"), ("/infill", {"input_prefix": "a"}, "input_suffix"),
                                   ("/infill", {**body, "input_extra": [1]}, "input_extra[0]"), ("/infill", {**body, "input_extra": {}}, "input_extra"),
                                   ("/infill", {**body, "input_extra": [{"text": "x"}] * 1025}, "at most 1024"), ("/infill", {**body, "prompt": 3}, "prompt"),
                                   ("/infill", {**body, "input_prefix": [1, 2]}, "input_prefix"),
                                   ("/v1/completions", {"prompt": [1, 2], "suffix": "b"}, "token ids"), ("/v1/completions", {"prompt": "a", "suffix": 3}, "suffix"),
                                   ("/v1/completions", {"prompt": "a", "suffix": "b", "echo": True}, "echo")):
            with self.subTest(fields=fields):
                reply = self.server.post(path, fields)
                self.assertEqual(reply.status, 400, reply.body)
                self.assertIn(says, reply.json["error"]["message"])
        reply = self.server.post("/infill", {**body, "input_extra": [{"text": "x", "name": "y"}], "n_predict": 1}).json
        self.assertTrue(any("input_extra[0].name" in line for line in reply["reprise"]["warnings"]), reply)


class OlderKeys(Infill):
    older = True


class WithoutTokens(ServerCase):
    def test_refused(self):
        for path, body in (("/v1/completions", {"prompt": "a", "suffix": "b"}), ("/infill", {"input_prefix": "a", "input_suffix": "b"})):
            reply = self.server.post(path, body)
            self.assertEqual(reply.status, 400, reply.body)
            self.assertIn("no fill-in-the-middle tokens", reply.json["error"]["message"])


if __name__ == "__main__":
    unittest.main()
