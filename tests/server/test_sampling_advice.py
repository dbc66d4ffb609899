#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The sampling that a model's file advises is the default of `run`, `chat` and `serve`; options and fields override it, each alone. The copies of the
bundled model differ in their advice only, so equal sampling gives equal answers."""
import json
import os
import struct
import subprocess
import tempfile
import unittest

import gguf_copy
from server_process import MODEL, PROGRAM, WAIT_S, Server

ADVICE = {"temp": gguf_copy.f32(2), "top_k": (5, struct.pack("<i", 300)), "top_p": gguf_copy.f32(0.98), "min_p": gguf_copy.f32(0.001),
          "penalty_repeat": gguf_copy.f32(1.5), "penalty_last_n": (5, struct.pack("<i", 32))}
AS_OPTIONS = ("--temp", "2", "--top-k", "300", "--top-p", "0.98", "--min-p", "0.001", "--repeat-penalty", "1.5", "--repeat-last", "32")
AS_FIELDS = {"temperature": 2, "top_k": 300, "top_p": 0.98, "min_p": 0.001, "repeat_penalty": 1.5, "repeat_last_n": 32}
TEXT = "The ship left the harbour in the morning, and"
CHAT = {"model": "m", "messages": [{"role": "user", "content": TEXT}], "max_tokens": 24, "seed": 7}


def run(*args, text=None):
    done = subprocess.run([PROGRAM, *args], input=text, capture_output=True, text=True, check=False, timeout=WAIT_S)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return done


class Advice(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.advised, cls.wrong = (os.path.join(folder.name, name) for name in ("advised.gguf", "wrong.gguf"))
        gguf_copy.copy(MODEL, cls.advised, {"general.sampling." + key: value for key, value in ADVICE.items()})
        gguf_copy.copy(MODEL, cls.wrong, {"general.sampling.temp": gguf_copy.f32(float("nan")), "general.sampling.top_k": gguf_copy.f32(2.5),
                                          "general.sampling.top_p": gguf_copy.string("0.9"), "general.sampling.min_p": gguf_copy.f32(0.02),
                                          "general.sampling.mirostat": (5, struct.pack("<i", 2))})

    def answer(self, model, *options):
        return run("run", "-m", model, "--threads", "1", "-n", "24", "--seed", "7", "--raw", TEXT, *options).stdout

    def test_run(self):
        greedy, as_advised = self.answer(MODEL), self.answer(MODEL, *AS_OPTIONS)
        self.assertNotEqual(greedy, as_advised)
        self.assertEqual(self.answer(self.advised), as_advised)
        self.assertEqual(self.answer(self.advised, "--temp", "0", "--repeat-penalty", "1"), greedy)
        self.assertEqual(self.answer(self.advised, "--top-k", "5"), self.answer(MODEL, *AS_OPTIONS, "--top-k", "5"))  # the others stay

    def test_chat(self):
        options = ("--threads", "1", "-n", "24", "--seed", "7", "--history", "off")
        as_advised = run("chat", "-m", MODEL, *options, *AS_OPTIONS, text=TEXT + "\n").stdout
        self.assertNotEqual(run("chat", "-m", MODEL, *options, text=TEXT + "\n").stdout, as_advised)
        self.assertEqual(run("chat", "-m", self.advised, *options, text=TEXT + "\n").stdout, as_advised)

    def test_inspect(self):
        shown = json.loads(run("inspect", "-m", self.advised, "--json").stdout)["sampling"]
        self.assertEqual(shown, {"temperature": 2, "top_k": 300, "top_p": 0.98, "min_p": 0.001, "repeat_penalty": 1.5, "repeat_last": 32})
        self.assertIsNone(json.loads(run("inspect", "-m", MODEL, "--json").stdout)["sampling"])
        self.assertIn("temperature 2, top_k 300, top_p 0.98, min_p 0.001, repeat_penalty 1.5, repeat_last 32 (the file's advice)",
                      run("inspect", "-m", self.advised).stdout)

    def test_wrong_values_are_one_warning(self):
        done = run("inspect", "-m", self.wrong, "--json")
        self.assertEqual(json.loads(done.stdout)["sampling"], {"min_p": 0.02})
        warnings = [line for line in done.stderr.splitlines() if "sampling advice" in line]
        self.assertEqual(len(warnings), 1, done.stderr)
        for key in ("temp", "top_k", "top_p"):
            self.assertIn("general.sampling." + key, warnings[0])
        self.assertNotIn("min_p", warnings[0])
        self.assertEqual(self.answer(self.wrong), self.answer(MODEL))

    def test_serve(self):
        advised, plain = (Server("--log", "off", model=model).wait_ready() for model in (self.advised, MODEL))
        self.addCleanup(advised.stop)
        self.addCleanup(plain.stop)
        for path, body, fields, text_of in (
                ("/v1/chat/completions", CHAT, AS_FIELDS, lambda a: a["choices"][0]["message"]["content"]),
                ("/v1/responses", {"model": "m", "input": TEXT, "max_output_tokens": 24, "seed": 7}, AS_FIELDS, lambda a: a["output"][0]["content"][0]["text"]),
                ("/completion", {"prompt": TEXT, "n_predict": 24, "seed": 7}, AS_FIELDS, lambda a: a["content"])):
            with self.subTest(path):
                self.compare(advised, plain, path, body, {**body, **fields}, text_of)
        body = {"model": "m", "prompt": TEXT, "stream": False, "options": {"num_predict": 24, "seed": 7}}
        self.compare(advised, plain, "/api/generate", body, {**body, "options": {**body["options"], **AS_FIELDS}}, lambda a: a["response"])
        top, inner = ({k: AS_FIELDS[k] for k in keys} for keys in (("min_p", "repeat_penalty", "repeat_last_n"), ("temperature", "top_k", "top_p")))
        body = {"contents": [{"parts": [{"text": TEXT}]}], "generationConfig": {"maxOutputTokens": 24, "seed": 7}}
        fields = {**body, **top, "generationConfig": {**body["generationConfig"], "temperature": inner["temperature"], "topK": 300, "topP": 0.98}}
        self.compare(advised, plain, "/v1beta/models/m:generateContent", body, fields, lambda a: a["candidates"][0]["content"]["parts"][0]["text"])
        said = [server.post("/v1/messages", CHAT).json["content"][0]["text"] for server in (advised, plain)]  # 2 is above what a request may ask for here
        self.assertNotEqual(*said)
        props = [server.get("/props").json["default_generation_settings"]["params"] for server in (advised, plain)]
        self.assertEqual({k: round(v, 4) for k, v in props[0].items()}, AS_FIELDS)
        self.assertEqual({k: round(v, 4) for k, v in props[1].items()},
                         {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "repeat_penalty": 1, "repeat_last_n": 64})
        echoed = advised.post("/v1/responses", {"model": "m", "input": TEXT, "max_output_tokens": 2}).json
        self.assertEqual((echoed["temperature"], echoed["top_p"]), (2, 0.98))

    def compare(self, advised, plain, path, body, with_fields, text_of):
        texts = []
        for server, sent in ((advised, body), (plain, with_fields), (plain, body), (advised, with_fields)):
            reply = server.post(path, sent)
            self.assertEqual(reply.status, 200, reply.body)
            texts.append(text_of(reply.json))
        self.assertEqual(texts[0], texts[1])
        self.assertNotEqual(texts[0], texts[2])
        self.assertEqual(texts[3], texts[1])


if __name__ == "__main__":
    unittest.main()
