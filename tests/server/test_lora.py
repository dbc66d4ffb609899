#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise serve --lora`: requests choose an adapter as a model, or by llama.cpp's field; base and adapters do not share KV; an activated adapter does."""
import concurrent.futures
import os
import subprocess
import tempfile
import unittest

import gguf_copy
import lora_file
from server_process import MODEL, PROGRAM, Server

STORY = "The mill of Orsel stands at the river Norgen, and the river Norgen is wide. " * 12
CALL = "Now say what the mill is for:"
OPTIONS = {"max_tokens": 12, "temperature": 0, "ignore_eos": True}


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        plain = Server("--log", "off").wait_ready()
        call = plain.post("/tokenize", {"content": CALL}).json["tokens"][1:-1]  # as it is within a text
        plain.stop()
        cls.files = {name: os.path.join(cls.folder, f"{name}.gguf") for name in ("red", "blue", "asks")}
        lora_file.write(MODEL, cls.files["red"], 1)
        lora_file.write(MODEL, cls.files["blue"], 2)
        lora_file.write(MODEL, cls.files["asks"], 3, invocation=call)
        cls.options = [word for name, path in cls.files.items() for word in ("--lora", f"{name}={path}")]

    def start(self, *more, **named):
        server = Server("--log", "off", *self.options, *more, **named).wait_ready()
        self.addCleanup(server.stop)
        return server

    def ask(self, server, model, prompt=STORY, **more):
        reply = server.post("/v1/completions", {"model": model, "prompt": prompt, **OPTIONS, **more})
        self.assertEqual(reply.status, 200, reply.body)
        return reply.json

    def text(self, server, model, prompt=STORY, **more):
        return self.ask(server, model, prompt, **more)["choices"][0]["text"]


def cached(answer):
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


class Adapters(Case):
    def test_model_chooses(self):
        server = self.start()
        base, red, blue = (self.ask(server, model) for model in ("reprise-mini", "red", "blue"))
        texts = [a["choices"][0]["text"] for a in (base, red, blue)]
        self.assertEqual(len(set(texts)), 3, texts)
        self.assertEqual([a["model"] for a in (red, blue)], ["red", "blue"])
        self.assertEqual([cached(a) for a in (base, red, blue)], [0, 0, 0])
        n = base["usage"]["prompt_tokens"]
        for model, text in zip(("default", "red:latest", "blue"), texts):
            again = self.ask(server, model)
            self.assertEqual((again["choices"][0]["text"], cached(again)), (text, n - 1))
        report = server.get(f"/v1/requests/{red['reprise']['request']}/explain").json
        self.assertEqual((report["adapter"], report["adapter_from"]), ("red", 0))
        self.assertEqual([p["reason"] for p in red["reprise"]["parts"] if not p["reused"]], ["adapter"])
        self.assertEqual((base["reprise"]["adapter"], base["reprise"]["adapter_from"]), (None, -1))

    def test_dialects(self):
        server = self.start()
        messages = [{"role": "user", "content": STORY}]
        chat = {"messages": messages, "max_tokens": 12, "temperature": 0}
        for path, body, of in (("/v1/chat/completions", chat, lambda r: r["model"]), ("/v1/messages", chat, lambda r: r["model"]),
                               ("/v1/responses", {"input": STORY, "max_output_tokens": 12}, lambda r: r["model"]),
                               ("/api/chat", {"messages": messages, "stream": False, "options": {"num_predict": 12}}, lambda r: r["model"])):
            reply = server.post(path, {"model": "red", **body})
            self.assertEqual((reply.status, of(reply.json)), (200, "red"), (path, reply.body))
        reply = server.post("/v1beta/models/red:generateContent", {"contents": [{"parts": [{"text": STORY}]}], "generationConfig": {"maxOutputTokens": 8}})
        self.assertEqual((reply.status, reply.json["modelVersion"]), (200, "red"), reply.body)
        self.assertEqual(server.post("/v1/embeddings", {"model": "red", "input": "Tom"}).json["model"], "red")
        self.assertNotEqual(*(server.post("/v1/embeddings", {"model": m, "input": "Tom"}).json["data"][0]["embedding"] for m in ("red", "default")))

    def test_together(self):
        server = self.start()
        alone = {model: self.text(server, model) for model in ("default", "red", "blue")}
        with concurrent.futures.ThreadPoolExecutor(9) as pool:
            got = list(pool.map(lambda model: (model, self.text(server, model, reuse="off")), list(alone) * 3))
        for model, text in got:
            self.assertEqual(text, alone[model])

    def test_llamacpp_field(self):
        server = self.start()
        listed = server.get("/lora-adapters").json
        self.assertEqual([(a["id"], a["path"], a["scale"]) for a in listed], [(0, "red", 0.0), (1, "blue", 0.0), (2, "asks", 0.0)])
        self.assertEqual([len(a["fingerprint"]) for a in listed], [64] * 3)
        self.assertEqual([bool(a["alora_invocation_tokens"]) for a in listed], [False, False, True])

        def ask(*loras, **more):
            body = {"prompt": STORY, "n_predict": 12, "temperature": 0, "ignore_eos": True, "lora": [{"id": i, "scale": s} for i, s in loras], **more}
            return server.post("/completion", body)

        blue = ask((1, 1.0), (0, 0.0)).json
        self.assertEqual((blue["content"], blue["model"]), (self.text(server, "blue"), "blue"))
        self.assertEqual(ask().json["content"], self.text(server, "default"))
        self.assertNotEqual(ask((1, 0.3)).json["content"], blue["content"])
        for loras, status, said in (([(7, 1)], 400, "no adapter with id 7"), ([(-1, 1)], 400, "no adapter with id -1"),
                                    ([(0, 1), (1, 1)], 400, "several adapters")):
            reply = ask(*loras)
            self.assertIn(reply.status, (status, 501), reply.body)
            self.assertIn(said, reply.body.decode())
        self.assertEqual(server.post("/completion", {"prompt": "x", "lora": [{"id": "a", "scale": 1}]}).status, 400)
        self.assertEqual(server.post("/completion", {"prompt": "x", "lora": 1}).status, 400)

    def test_lists(self):
        server = self.start()
        data = server.get("/v1/models").json["data"]
        base = data[0]["id"]
        self.assertEqual([(m["id"], m["parent"]) for m in data], [(base, None), ("red", base), ("blue", base), ("asks", base)])
        self.assertEqual(server.get("/v1/models/red").json["parent"], base)
        self.assertIn("red:latest", [m["name"] for m in server.get("/api/tags").json["models"]])
        strict = self.start("--strict")
        self.assertEqual(self.ask(strict, "blue")["model"], "blue")
        reply = strict.post("/v1/completions", {"model": "green", "prompt": "x"})
        self.assertEqual(reply.status, 404)
        self.assertIn("'red', 'blue', 'asks'", reply.body.decode())


class Activated(Case):
    def test_base_is_reused(self):
        server = self.start()
        base = self.ask(server, "default", STORY + CALL)
        asked = self.ask(server, "asks", STORY + CALL + " yes")
        self.assertEqual(cached(asked), asked["reprise"]["adapter_from"])
        self.assertGreater(cached(asked), base["usage"]["prompt_tokens"] - 12)
        cold = self.start()
        again = self.ask(cold, "asks", STORY + CALL + " yes")
        self.assertEqual(cached(again), 0)
        self.assertEqual(again["choices"][0]["text"], asked["choices"][0]["text"])
        self.assertNotEqual(again["choices"][0]["text"], self.text(cold, "default", STORY + CALL + " yes"))

    def test_not_invoked(self):
        server = self.start()
        asked = self.ask(server, "asks")
        self.assertEqual(asked["choices"][0]["text"], self.text(server, "default"))
        self.assertIn("invocation tokens", " ".join(asked["reprise"]["warnings"]))


class Models(Case):
    def test_adapter_of_a_model(self):
        other = os.path.join(self.folder, "other.gguf")
        gguf_copy.copy(MODEL, other, {"general.name": gguf_copy.string("other"), "llama.rope.freq_base": gguf_copy.f32(13000.0)})
        self.options = ["-m", f"other={other}", "--lora", f"red={self.files['red']}", "--lora", f"pink@other={self.files['red']}"]
        server = self.start(model=f"mini={MODEL}")
        texts = [self.text(server, model) for model in ("mini", "other", "red", "pink")]
        self.assertEqual(len(set(texts)), 4, texts)
        self.assertEqual([(m["id"], m["parent"]) for m in server.get("/v1/models").json["data"]],
                         [("mini", None), ("other", None), ("red", "mini"), ("pink", "other")])
        self.assertEqual([a["path"] for a in server.get("/lora-adapters?model=other").json], ["pink"])

    def test_disk(self):
        store = os.path.join(self.folder, "store")
        first = Server("--log", "off", *self.options, "--store", store, "--write", "through").wait_ready()
        wanted = {model: self.text(first, model) for model in ("default", "red")}
        first.stop()
        second = self.start("--store", store)
        self.assertEqual(cached(self.ask(second, "blue")), 0)
        for model, text in wanted.items():
            answer = self.ask(second, model)
            self.assertEqual((answer["choices"][0]["text"], cached(answer)), (text, answer["usage"]["prompt_tokens"] - 1))


class Refusals(Case):
    def refuse(self, *options):
        done = subprocess.run([PROGRAM, "serve", "-m", MODEL, "--port", "0", *options], capture_output=True, text=True, timeout=120)
        self.assertNotEqual(done.returncode, 0)
        lines = done.stderr.strip().splitlines()
        self.assertEqual(len(lines), 1, done.stderr)
        return lines[0]

    def test_start(self):
        red = self.files["red"]
        foreign = os.path.join(self.folder, "foreign.gguf")
        lora_file.write(MODEL, foreign, 1, architecture="qwen2")
        self.assertIn("give NAME=FILE", self.refuse("--lora", red))
        self.assertIn("the name is in use", self.refuse("--lora", f"a={red}", "--lora", f"a={red}"))
        self.assertIn("there is no model 'nobody'", self.refuse("--lora", f"a@nobody={red}"))
        self.assertIn("nowhere.gguf", self.refuse("--lora", "a=nowhere.gguf"))
        self.assertIn("for architecture 'qwen2'", self.refuse("--lora", f"a={foreign}"))
        self.assertIn("'general.type' is", self.refuse("--lora", f"a={MODEL}"))

    def test_run(self):
        def run(*options):
            return subprocess.run([PROGRAM, "run", "-m", MODEL, "--raw", "-p", STORY, "-n", "12", "--ignore-eos", *options], capture_output=True, text=True, timeout=120)

        server = self.start()
        red = run("--lora", self.files["red"], "--verbose")
        self.assertEqual((red.returncode, red.stdout), (0, self.text(server, "red")), red.stderr)
        self.assertIn("adapter: on from position 0", red.stderr)
        self.assertNotEqual(run("--lora", self.files["red"], "--lora-scale", "0.25").stdout, red.stdout)
        self.assertEqual(run("--lora", self.files["red"], "--lora-scale", "0").stdout, run().stdout)
        self.assertIn("invocation tokens", run("--lora", self.files["asks"]).stderr)
        self.assertEqual(run("--lora-scale", "2").returncode, 2)
        self.assertEqual(run("--lora", "nowhere.gguf").returncode, 1)


if __name__ == "__main__":
    unittest.main()
