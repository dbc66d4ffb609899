#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise serve` with several models: requests choose one by name, models are loaded on demand and unloaded within --ram, their KV is found again."""
import concurrent.futures
import http.client
import os
import subprocess
import tempfile
import time
import unittest

import gguf_copy
from server_process import MODEL, PROGRAM, WAIT_S, Server

REQUESTS = 32 << 20
KV = 16 << 20
PROMPT = "The mill of Orsel stands at the river Norgen, and the river Norgen is wide. " * 12
SCHEMA = "<schema name='towns'><module name='a'>The river of Norgen is wide.</module></schema>"


def make_models(folder, names="abc"):
    """Models with different answers: the bundled one with other bases of its rotation."""
    paths = {}
    for i, name in enumerate(names):
        paths[name] = os.path.join(folder, f"{name}.gguf")
        gguf_copy.copy(MODEL, paths[name], {"general.name": gguf_copy.string(f"mini {name}"), "llama.rope.freq_base": gguf_copy.f32(10000.0 + 3000 * i)})
    return paths


def options_of(paths):
    return [word for name, path in list(paths.items())[1:] for word in ("-m", f"{name}={path}")]


def first_of(paths):
    name, path = next(iter(paths.items()))
    return f"{name}={path}"


def need_of(paths):
    """What one of the models takes of --ram with a KV cache of KV bytes, in bytes: the server says it at the start."""
    server = Server("--kv-ram", str(KV), "--log", "off", *options_of(paths), model=first_of(paths)).wait_ready()
    while " MiB" not in (said := server.said()):
        time.sleep(0.01)  # lines are written by a thread of their own
    server.stop()
    return (int(said.split(" MiB")[0].rsplit(" ", 1)[1]) + 1) << 20


class Case(unittest.TestCase):
    """A server with three models and memory for two."""
    more = ()
    log = "off"

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        cls.paths = make_models(folder.name)
        cls.need = need_of(cls.paths)

    def start(self, *more):
        server = Server("--kv-ram", str(KV), "--ram", str(2 * self.need + self.need // 2 + REQUESTS), "--request-ram", str(REQUESTS), "--log", self.log, *options_of(self.paths), *self.more, *more,
                        model=first_of(self.paths)).wait_ready()
        self.addCleanup(server.stop)
        return server

    def ask(self, server, model, prompt=PROMPT, **more):
        reply = server.post("/v1/completions", {"model": model, "prompt": prompt, "max_tokens": 8, "temperature": 1.5, "seed": 7, "ignore_eos": True, **more})
        self.assertEqual(reply.status, 200, reply.body)
        self.assertEqual(reply.json["model"], model)
        return reply.json

    def loaded(self, server):
        return "".join(m["id"] for m in server.get("/v1/models").json["data"] if m["loaded"])


def cached(answer):
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


class Choice(Case):
    def test_lists(self):
        server = self.start("--alias", "small=b", "--alias", "main")
        models = server.get("/v1/models").json
        self.assertEqual([m["id"] for m in models["data"]], ["a", "b", "c", "small", "main"])
        self.assertEqual((models["first_id"], [m["loaded"] for m in models["data"]][:3]), ("a", [True, False, False]))
        self.assertEqual({m["meta"]["n_params"] for m in models["data"]}, {models["data"][0]["meta"]["n_params"]})  # known before a model is loaded
        self.assertEqual(server.get("/v1/models/small").json["id"], "small")
        self.assertEqual(server.get("/v1/models/nope").status, 404)
        self.assertEqual([m["name"] for m in server.get("/api/ps").json["models"]], ["a:latest"])
        self.assertEqual(len(server.get("/api/tags").json["models"]), 5)
        self.assertEqual(len(server.get("/v1beta/models").json["models"]), 5)
        self.assertEqual(server.post("/v1/completions", {"model": "small", "prompt": "a", "max_tokens": 1}).json["model"], "b")
        self.assertEqual(server.post("/v1/completions", {"model": "main", "prompt": "a", "max_tokens": 1}).json["model"], "a")
        self.assertEqual(server.post("/v1/completions", {"prompt": "a", "max_tokens": 1}).json["model"], "a")

    def test_dialects(self):
        server = self.start()
        for name in "bc":
            self.assertEqual(server.ask("PUT", f"/v1/schemas/towns?model={name}", SCHEMA).status, 200)
        said = [{"role": "user", "content": "a"}]
        for path, body, name_of in (
                ("/v1/chat/completions", {"model": "c", "messages": said, "max_tokens": 1}, lambda j: j["model"]),
                ("/v1/responses", {"model": "b", "input": "a", "max_output_tokens": 1}, lambda j: j["model"]),
                ("/v1/messages", {"model": "c", "messages": said, "max_tokens": 1}, lambda j: j["model"]),
                ("/v1beta/models/b:generateContent", {"contents": [{"parts": [{"text": "a"}]}], "generationConfig": {"maxOutputTokens": 1}},
                 lambda j: j["modelVersion"]),
                ("/v1beta/models/c:countTokens", {"contents": [{"parts": [{"text": "a"}]}]}, None),
                ("/api/chat", {"model": "b:latest", "messages": said, "stream": False, "options": {"num_predict": 1}}, lambda j: j["model"].split(":")[0]),
                ("/api/embed", {"model": "c", "input": "a"}, lambda j: j["model"].split(":")[0]),
                ("/completion", {"model": "b", "prompt": "a", "n_predict": 1}, lambda j: j["model"]),
                ("/tokenize", {"model": "c", "content": "a"}, None),
                ("/apply-template", {"model": "b", "messages": said}, None),
                ("/v1/embeddings", {"model": "c", "input": "a"}, lambda j: j["model"]),
                ("/v1/prompts", {"model": "b", "prompt": "<prompt schema='towns'><a/><user>a</user></prompt>", "max_tokens": 1}, lambda j: j["model"])):
            before = server.metrics()
            reply = server.post(path, body)
            self.assertEqual(reply.status, 200, (path, reply.body))
            wanted = (body.get("model") or path.split("/")[3])[0]
            if name_of:
                self.assertEqual(name_of(reply.json), wanted, path)
            self.assertIn(wanted, self.loaded(server), path)
            self.assertGreaterEqual(server.metrics()["reprise_model_loads_total{model=\"%s\"}" % wanted], before["reprise_model_loads_total{model=\"%s\"}" % wanted])
        document = server.ask("POST", "/v1/prompts?model=c", "<prompt schema='towns'><a/><user>a</user></prompt>", {"Content-Type": "application/xml"})
        self.assertEqual((document.status, document.json["model"]), (200, "c"))
        self.assertEqual(server.get("/props?model=b").json["model_alias"], "b")

    def test_unknown_names(self):
        server = self.start()
        for path, message in (("/v1/chat/completions", lambda j: j["error"]["message"]), ("/v1/messages", lambda j: j["error"]["message"]),
                              ("/api/chat", lambda j: j["error"])):
            reply = server.post(path, {"model": "gpt-9", "messages": [{"role": "user", "content": "a"}], "max_tokens": 1})
            self.assertEqual((reply.status, message(reply.json)), (404, "unknown model 'gpt-9': this server has 'a', 'b', 'c'"), path)
        self.assertEqual(server.ask("POST", "/v1/completions", "{").status, 400)
        self.assertEqual(server.get("/v1/cache?model=z").status, 404)

    def test_wrong_use(self):
        a, b = f"a={self.paths['a']}", f"b={self.paths['b']}"
        for words, line in (((a, self.paths["b"]), "give each of several models a name"), ((a, a), "two models have the name 'a'"),
                            ((a, b, "--name", "x"), "--name is for a single model"), ((a, b, "--chat-format", "chatml"), "--chat-format is for a single model"),
                            ((a, f"weights={self.paths['b']}"), "the store's folder has a folder 'weights'"), ((a, "b="), "the file's path is missing"),
                            ((a, b, "--alias", "x=y"), "alias 'x=y': there is no model 'y'"), ((a, b, "--alias", "b"), "alias 'b': the name is in use"),
                            ((a, "b=/nowhere/b.gguf"), "/nowhere/b.gguf")):
            options = [word for text in words[:2] for word in ("-m", text)] + list(words[2:])
            done = subprocess.run([PROGRAM, "serve", "--port", "0", *options], capture_output=True, text=True, timeout=WAIT_S, check=False)
            self.assertNotEqual(done.returncode, 0, words)
            self.assertIn(line, done.stderr.splitlines()[-1])
        server = Server(model=a, *("--log", "off")).wait_ready()  # a single model with a name
        self.addCleanup(server.stop)
        self.assertEqual([m["id"] for m in server.get("/v1/models").json["data"]], ["a"])


class Memory(Case):
    def test_least_recently_used(self):
        server = self.start()
        alone = {name: self.ask(server, name) for name in "abc"}
        self.assertEqual(self.loaded(server), "bc")
        self.assertEqual(len({a["choices"][0]["text"] for a in alone.values()}), 3)  # the models differ
        self.ask(server, "b")
        self.assertEqual(cached(self.ask(server, "a")), 0)  # no store: its KV went with it
        self.assertEqual(self.loaded(server), "ab")
        metrics = server.metrics()
        self.assertEqual([metrics["reprise_model_loads_total{model=\"%s\"}" % m] for m in "abc"], [2, 1, 1])
        self.assertEqual([metrics["reprise_model_unloads_total{model=\"%s\"}" % m] for m in "abc"], [1, 0, 1])
        self.assertIn('reprise_store_spans{model="a"}', metrics)
        self.assertNotIn('reprise_store_spans{model="c"}', metrics)

    def test_kv_of_an_unloaded_model(self):
        server = self.start("--store", os.path.join(self.folder, "store"), "--disk", "96M")
        cold = {name: self.ask(server, name) for name in "abc"}
        self.assertEqual({cached(a) for a in cold.values()}, {0})
        for name in "abcabc":
            warm = self.ask(server, name)
            self.assertEqual(cached(warm), warm["usage"]["prompt_tokens"] - 1, name)
            self.assertEqual(warm["choices"][0]["text"], cold[name]["choices"][0]["text"])
        self.assertEqual(server.metrics()['reprise_store_disk_budget_bytes{model="b"}'], 32 << 20)  # an equal share

    def test_users_are_waited_for(self):
        server = self.start()
        self.ask(server, "b")
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            long = [pool.submit(self.ask, server, name, max_tokens=400, ignore_eos=True) for name in "ab"]
            third = pool.submit(self.ask, server, "c")
            self.assertEqual({len(future.result()["choices"][0]["text"]) > 0 for future in long}, {True})
            third.result()
        self.assertIn("c", self.loaded(server))

    def test_mixed_load(self):
        server = self.start("--store", os.path.join(self.folder, "mixed"))
        prompts = [PROMPT + f"Which town is the {n}th?" for n in range(4)]
        wanted = {(name, p): self.ask(server, name, p)["choices"][0]["text"] for name in "abc" for p in prompts}

        def one(i):
            name, prompt = "abc"[i % 3], prompts[i * 7 % 4]
            self.assertEqual(self.ask(server, name, prompt)["choices"][0]["text"], wanted[name, prompt])
        with concurrent.futures.ThreadPoolExecutor(24) as pool:
            list(pool.map(one, range(120)))
        metrics = server.wait_idle()
        self.assertEqual(sum(metrics["reprise_model_requests_waiting{model=\"%s\"}" % m] for m in "abc"), 0)
        self.assertGreater(sum(metrics["reprise_model_unloads_total{model=\"%s\"}" % m] for m in "abc"), 3)

    def test_no_memory_for_one(self):
        options = ["--kv-ram", str(KV), "--ram", "8M", *options_of(self.paths), "-m", first_of(self.paths)]
        done = subprocess.run([PROGRAM, "serve", "--port", "0", *options], capture_output=True, text=True, timeout=WAIT_S, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("leaves no memory for the KV cache", done.stderr)


class Life(Case):
    def test_schemas(self):
        folder = os.path.join(self.folder, "schemas")
        server = self.start("--schema-dir", folder)
        self.assertEqual(server.ask("PUT", "/v1/schemas/towns?model=b", SCHEMA).status, 200)
        self.assertEqual(server.get("/v1/schemas?model=a").json["data"], [])
        for name in "ca":  # unload it
            self.ask(server, name)
        self.assertEqual(self.loaded(server), "ac")
        use = {"model": "b", "prompt": "<prompt schema='towns'><a/><user>What?</user></prompt>", "max_tokens": 1}
        self.assertEqual(server.post("/v1/prompts", use).status, 200)
        self.assertEqual(server.post("/v1/prompts", {**use, "model": "a"}).status, 404)
        server.end()
        server = self.start("--schema-dir", folder)
        self.assertEqual(server.post("/v1/prompts", use).status, 200)

    def test_schema_files(self):
        path = os.path.join(self.folder, "towns.xml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(SCHEMA)
        server = self.start("--schema", path)
        for name in "abc":
            reply = server.post("/v1/prompts", {"model": name, "prompt": "<prompt schema='towns'><a/><user>What?</user></prompt>", "max_tokens": 1})
            self.assertEqual(reply.status, 200, reply.body)

    def test_a_file_that_is_gone(self):
        server = self.start()
        hidden = self.paths["c"] + ".hidden"
        os.rename(self.paths["c"], hidden)
        reply = server.post("/v1/completions", {"model": "c", "prompt": "a", "max_tokens": 1})
        def told(reply):  # no path of the server, and not the client's fault
            self.assertEqual(reply.status, 500, reply.body)
            self.assertNotIn(self.folder, reply.body.decode())
            return reply.json["error"]["message"]
        gone = told(reply)
        self.assertIn("'c' cannot be loaded", gone)
        self.assertEqual(self.ask(server, "b")["model"], "b")
        for content in (b"garbage", b"GGUF" + bytes(64)):
            with open(self.paths["c"], "wb") as file:
                file.write(content)
            self.assertEqual(told(server.post("/v1/completions", {"model": "c", "prompt": "a", "max_tokens": 1})), gone)
        end = time.monotonic() + WAIT_S  # the log has it, soon: a thread of its own writes it
        while server.said().count(self.paths["c"]) < 3 and time.monotonic() < end:
            time.sleep(0.01)
        self.assertGreaterEqual(server.said().count(self.paths["c"]), 3)
        os.rename(hidden, self.paths["c"])
        self.assertEqual(self.ask(server, "c")["model"], "c")

    def test_end_while_a_request_waits(self):
        server = self.start("--drain", "200")
        self.ask(server, "b")
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            streams = [pool.submit(server.post, "/v1/completions", {"model": name, "prompt": PROMPT, "max_tokens": 1500, "ignore_eos": True, "stream": True})
                       for name in "ab"]
            while server.metrics()["reprise_jobs_open"] < 2:
                pass
            third = pool.submit(server.post, "/v1/completions", {"model": "c", "prompt": "a", "max_tokens": 1})
            while server.metrics()['reprise_model_requests_waiting{model="c"}'] == 0:
                if third.done():
                    break
            self.assertEqual(server.end(), 0)
            for future in streams + [third]:
                try:
                    future.result(WAIT_S)
                except (OSError, http.client.HTTPException):
                    pass  # a stream that was cut

    def test_request_log(self):
        self.log = "requests"
        server = self.start()
        self.ask(server, "c")
        until = time.monotonic() + WAIT_S
        while not (server.log() and "loaded model 'c'" in server.said()) and time.monotonic() < until:
            time.sleep(0.01)
        self.assertIn("loaded model 'a' in ", server.said())
        self.assertEqual(server.log()[-1]["status"], 200)


if __name__ == "__main__":
    unittest.main()
