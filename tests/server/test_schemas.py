#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise serve`, PML: schemas that come by HTTP, prompts over them; and API keys: who may do what, and finds what."""
import json
import os
import subprocess
import tempfile
import unittest

from server_process import MODEL, PROGRAM, SOURCE, Server, bearer, in_parallel, key_line

CITIES = """<schema name="cities"><system>You are a guide.</system><user><module
name="plan">Plan a trip of <param name="days" len="8"/> to this city.
<union><module name="miami">Welcome to Miami. For surf, go to Haulover.</module>
<module name="lisbon">Lisbon is seen on foot.</module></union></module>
</user></schema>"""
OLD = CITIES.replace("Haulover", "Crandon")
PROMPT = "<prompt schema='cities'><plan days='3 days'><miami/></plan> Where is surf?</prompt>"
XML = {"Content-Type": "application/xml"}
EVENTS = {"Accept": "text/event-stream"}


class Schemas(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--log", "off", "--schema", os.path.join(SOURCE, "examples", "cities", "cities.xml")).wait_ready()
        cls.addClassCleanup(cls.server.stop)

    def put(self, name, text, **more):
        return self.server.ask("PUT", f"/v1/schemas/{name}", text, **more)

    def prompt(self, **fields):
        return self.server.post("/v1/prompts", {"prompt": PROMPT, "max_tokens": 6, **fields})

    def refused(self, reply, status, says):
        self.assertEqual(reply.status, status, reply.body)
        self.assertIn(says, reply.json["error"]["message"])

    def test_schema_and_prompt(self):
        done = self.put("cities", CITIES)
        self.assertEqual((done.status, done.json["object"], done.json["name"]), (200, "schema", "cities"))
        self.assertEqual(self.server.get("/v1/schemas/cities").body.decode(), CITIES)
        self.assertIn("cities", self.server.get("/v1/schemas").json["data"])
        first = self.prompt(cache_salt="").json
        self.assertGreater(first["usage"]["cached_tokens"], 10)
        self.assertEqual(first["usage"]["prompt_tokens"], first["usage"]["cached_tokens"] + first["usage"]["fresh_tokens"])
        modules = {part["module"]: part["tier"] for part in first["reprise"]["parts"] if part["reused"]}
        self.assertEqual(modules.get("plan/miami"), "ram")
        again = self.prompt().json
        self.assertEqual(again["answers"], first["answers"])
        document = self.server.ask("POST", "/v1/prompts", PROMPT, headers=XML).json
        self.assertEqual(document["answers"][0]["text"][:len(first["answers"][0]["text"])], first["answers"][0]["text"])

    def test_same_answer_as_run(self):
        self.put("cities", CITIES)
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (("s.xml", CITIES), ("p.xml", PROMPT)):
                with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
                    f.write(text)
            done = subprocess.run([PROGRAM, "run", "-m", MODEL, "--schema", os.path.join(folder, "s.xml"), "--pml",
                                   os.path.join(folder, "p.xml"),
                                   "-n", "6", "--json"], capture_output=True, text=True, check=True)
        self.assertEqual(self.prompt().json["answers"][0]["text"], json.loads(done.stdout)["text"])

    def test_prompt_stream(self):
        self.put("cities", CITIES)
        whole = self.prompt().json
        for reply in (self.prompt(stream=True), self.server.ask("POST", "/v1/prompts", PROMPT, headers={**XML, **EVENTS})):
            frames = reply.frames
            self.assertEqual({event for event, _ in frames[:-1]}, {"text"})
            self.assertEqual(frames[-1][0], "done")
            text = "".join(json.loads(data)["text"] for _, data in frames[:-1])
            done = json.loads(frames[-1][1])
            self.assertEqual(text, done["answers"][0]["text"])
            self.assertTrue(text.startswith(whole["answers"][0]["text"]))

    def test_logprobs(self):
        """Those of the tokens of the answer, whole and in a stream, and none where they were not asked for."""
        self.put("cities", CITIES)
        answer = self.prompt(logprobs=3).json["answers"][0]
        self.assertEqual(len(answer["logprobs"]), 6)
        for token in answer["logprobs"]:
            self.assertEqual(len(token["top_logprobs"]), 3)
            self.assertEqual(token["top_logprobs"][0]["token"], token["token"])  # temperature 0
            self.assertLessEqual(token["logprob"], 0)
        self.assertEqual("".join(t["token"] for t in answer["logprobs"]), answer["text"])
        self.assertEqual([t["top_logprobs"] for t in self.prompt(logprobs=0).json["answers"][0]["logprobs"]], [[]] * 6)
        self.assertNotIn("logprobs", self.prompt().json["answers"][0])
        frames = [(event, json.loads(data)) for event, data in self.prompt(logprobs=3, stream=True).frames]
        told = [token for event, data in frames if event == "text" for token in data.get("logprobs", [])]
        self.assertEqual(told, answer["logprobs"])
        self.assertEqual(frames[-1][1]["answers"][0]["logprobs"], answer["logprobs"])

    def test_unknown_schema_has_its_place(self):
        reply = self.prompt(prompt="\n  <prompt schema='nobody'/>")
        self.refused(reply, 404, "prompt:2:3: schema 'nobody' is not loaded")

    def test_progress(self):
        # text that no other test has read, of many chunks
        long = "".join(f"<module name='m{i}'>" + " ".join(f"Tom{i} had {k} red balls." for k in range(60)) + "</module>" for i in range(12))
        reply = self.put("slow", f"<schema name='slow'>{long}</schema>", headers=EVENTS)
        self.assertEqual(reply.headers["Content-Type"], "text/event-stream")
        self.assertEqual(reply.frames[-1][0], "done")
        self.assertEqual({event for event, _ in reply.frames[:-1]} - {"progress"}, set())
        done = json.loads(reply.frames[-1][1])
        self.assertEqual(done["computed_tokens"], done["missing_tokens"])
        self.assertGreater(done["missing_tokens"], 500)

    def test_counts_all_modules(self):
        """What PUT says was computed is all of it, not the last module alone."""
        modules = "".join(f"<module name='m{i}'>Sue{i} had three green kites and two of them were lost.</module>" for i in range(5))
        body = f"<schema name='counted'>{modules}</schema>"
        done = self.put("counted", body).json
        nodes = self.server.get("/v1/schemas/counted/layout").json["nodes"]
        tokens = sum(n["tokens"] for n in nodes if n["kind"] in ("schema", "module"))
        self.assertEqual((done["computed_tokens"], done["missing_tokens"]), (tokens, tokens))
        self.assertEqual(self.put("counted", body).json["computed_tokens"], 0)

    def test_gone_while_it_computes(self):
        long = "".join(f"<module name='m{i}'>" + " ".join(f"Ann{i} had {k} blue hats." for k in range(60)) + "</module>" for i in range(12))
        body = f"<schema name='gone'>{long}</schema>"
        for _ in range(3):
            s = self.server.socket()
            s.sendall(f"PUT /v1/schemas/gone HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n"
                      f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
            s.recv(100)
            s.close()
        self.server.wait_idle()
        self.assertEqual(self.put("gone", body).status, 200)

    def test_without_computing(self):
        body = "<schema name='later'><module name='m'>Tom had a green kite.</module></schema>"
        reply = self.server.ask("PUT", "/v1/schemas/later?prefill=false", body)
        self.assertEqual((reply.status, reply.json["missing_tokens"]), (200, 0))

    def test_layout(self):
        self.put("cities", CITIES)
        layout = self.server.get("/v1/schemas/cities/layout").json
        self.assertEqual((layout["schema"], layout["layout"], layout["nodes"][0]["kind"]), ("cities", "packed", "schema"))
        self.assertIn("plan/miami", [n["path"] for n in layout["nodes"]])
        self.refused(self.server.get("/v1/schemas/nobody/layout"), 404, "nobody")

    def test_delete(self):
        self.put("brief", "<schema name='brief'><module name='m'>One.</module></schema>")
        self.assertTrue(self.server.ask("DELETE", "/v1/schemas/brief").json["deleted"])
        self.refused(self.server.ask("DELETE", "/v1/schemas/brief"), 404, "brief")
        self.refused(self.server.get("/v1/schemas/brief"), 404, "brief")

    def test_schemas_that_are_refused(self):
        for text, says in (("", "empty"), ("<schema", "bad.xml:1"), ("<schema name='other'/>", "own name is 'other'"),
                           ("<prompt schema='x'/>", "bad.xml"),
                           ("<schema name='bad'><module name='m' src='/etc/passwd'/></schema>", "src"),
                           ("<schema name='bad'><module name='m' src='../x'/></schema>", "src"),
                           ("<!DOCTYPE x [<!ENTITY a 'b'>]><schema name='bad'/>", "DOCTYPE"), ("<schema name='bad'>\xff</schema>",
                                                                                               "bad.xml"),
                           ("<schema name='bad'><frob/></schema>", "frob")):
            with self.subTest(text=text):
                self.refused(self.put("bad", text.encode("latin-1")), 400, says)
        for name in ("..", "%2e%2e%2fetc", "a%2fb", "%00"):
            self.assertIn(self.put(name, CITIES).status, (400, 404))

    def test_prompts_that_are_refused(self):
        self.put("cities", CITIES)
        for prompt, status, says in ((None, 400, "'prompt' is missing"), ("Hello", 400, "prompt:1"), ("<prompt schema='nowhere'/>", 404,
                                                                                                      "nowhere"),
                                     ("<prompt schema='cities'><mars/></prompt>", 404, "mars"),
                                     ("<prompt schema='cities'><plan><miami/><lisbon/></plan></prompt>", 400, "union"),
                                     ("<prompt schema='cities'><plan days='" + "many " * 50 + "'/></prompt>", 400, "days")):
            with self.subTest(prompt=prompt):
                self.refused(self.prompt(prompt=prompt), status, says)
                self.refused(self.prompt(prompt=prompt, stream=True), status, says)


ANN, BOB, ROOT, ONE = ("key-of-ann-0123456789", "key-of-bob-0123456789", "key-of-root-012345678", "key-of-one-0123456789")


class Keys(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.file = os.path.join(cls.folder.name, "keys")
        with open(cls.file, "w", encoding="utf-8") as f:
            f.write("# who is who\n\n" + key_line(ANN, "tenant=ann", "rights=request,schemas") + key_line(BOB, "tenant=bob") +
                    key_line(ROOT, "rights=request,schemas,operate") + key_line(ONE, "tenant=one", "running=1"))
        cls.server = Server("--api-keys", cls.file).wait_ready()
        cls.addClassCleanup(cls.server.stop)

    def text(self, key, **fields):
        return self.server.post("/v1/completions", {"prompt": "A text of somebody's own", "max_tokens": 2, **fields}, headers=bearer(key))

    def test_wrong_keys(self):
        for headers in ({}, {"Authorization": "Bearer x"}, {"Authorization": "Basic " + ANN}, {"Authorization": ANN}, {"x-api-key": "no"},
                        {"Authorization": "Bearer "},
                        {"Authorization": "Bearer " + ANN + "x"}, {"Authorization": "Bearer " + ANN[:-1]},
                        {"Authorization": "Bearer " + "a" * 10000}):
            with self.subTest(headers=headers):
                reply = self.server.post("/v1/completions", {"prompt": "a"}, headers=headers)
                self.assertEqual((reply.status, reply.json["error"]["code"], reply.headers["WWW-Authenticate"]),
                                 (401, "invalid_api_key", "Bearer"))
        self.assertEqual(self.server.post("/v1/completions", {"prompt": "a"}, headers={"x-api-key": ANN}).status, 200)

    def test_rights(self):
        self.assertEqual(self.server.ask("PUT", "/v1/schemas/x", "<schema name='x'/>", headers=bearer(BOB)).status, 403)
        self.assertEqual(self.server.get("/metrics", headers=bearer(ANN)).status, 403)
        self.assertEqual(self.server.get("/metrics", headers=bearer(ROOT)).status, 200)
        self.assertEqual(self.server.get("/livez").status, 200)
        self.assertEqual(self.server.get("/v1/models").status, 401)

    def test_tenants(self):
        def cached(reply):
            return reply.json["usage"]["prompt_tokens_details"]["cached_tokens"]

        # one token may be found: the beginning-of-text token of the tenant's other requests
        self.assertLessEqual(cached(self.text(ANN, prompt="Read by nobody before")), 1)
        self.assertGreater(cached(self.text(ANN, prompt="Read by nobody before")), 1)
        self.assertLessEqual(cached(self.text(BOB, prompt="Read by nobody before")), 1)
        own = "<schema name='own'><module name='m'>What ann has.</module></schema>"
        self.assertEqual(self.server.ask("PUT", "/v1/schemas/own", own, headers=bearer(ANN)).status, 200)
        self.assertEqual(self.server.get("/v1/schemas/own", headers=bearer(ANN)).body.decode(), own)
        for path in ("/v1/schemas/own", "/v1/schemas/own/layout"):
            self.assertEqual(self.server.get(path, headers=bearer(BOB)).status, 404)
        self.assertEqual(self.server.get("/v1/schemas", headers=bearer(BOB)).json["data"], [])
        prompt = {"prompt": "<prompt schema='own'><m/></prompt>", "max_tokens": 1}
        self.assertEqual(self.server.post("/v1/prompts", prompt, headers=bearer(ANN)).status, 200)
        self.assertEqual(self.server.post("/v1/prompts", prompt, headers=bearer(BOB)).status, 404)

    def test_running(self):
        def stream():
            s = self.server.socket()
            body = json.dumps({"prompt": "x", "stream": True, "max_tokens": 1900, "ignore_eos": True})
            s.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAuthorization: Bearer {ONE}\r\n"
                      f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
            s.recv(100)
            return s

        held = stream()
        reply = self.text(ONE)
        self.assertEqual((reply.status, reply.json["error"]["code"]), (429, "rate_limit_exceeded"))
        self.assertEqual(self.text(BOB).status, 200)
        held.close()
        while self.text(ONE).status != 200:
            pass

    def test_log_has_no_key(self):
        self.text(ANN)
        said = ""
        while '"tenant":"ann"' not in said:  # the line is written when the client has the reply already
            said = self.server.said()
        self.assertNotIn(ANN, said)

    def test_files_that_are_refused(self):
        for text, says in (("", "no key"), ("x\n", ":1: "), ("# a\n" + "0" * 63 + "\n", ":2: "), (key_line(ANN, "rights=all"), "rights"),
                           (key_line(ANN, "tenant="), "tenant"), (key_line(ANN, "running=0"), "running"), (key_line(ANN, "frob=1"),
                                                                                                           "use tenant"),
                           (key_line(ANN, "ram=0"), "bytes"), (key_line(ANN, "disk=1X"), "bytes"), (key_line(ANN, "disk=99999999T"), "bytes"),
                           (key_line(ANN, "frob"), "NAME=VALUE"), (key_line(ANN, "kv=q4_0"), "kv is one of f16 f32"), (key_line(ANN, "tenant=a", "tenant=b"), "one tenant")):
            with self.subTest(text=text):
                path = os.path.join(self.folder.name, "bad")
                with open(path, "w", encoding="utf-8") as f:
                    f.write(text)
                done = subprocess.run([PROGRAM, "serve", "-m", MODEL, "--port", "0", "--api-keys", path], capture_output=True, text=True,
                                      check=False)
                self.assertEqual(done.returncode, 1)
                self.assertIn(says, done.stderr)
        for key in ("short", "a key with white space", "x" * 300):
            done = subprocess.run([PROGRAM, "serve", "--hash-key"], input=key, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 1)

    def test_quotas(self):
        path, store = os.path.join(self.folder.name, "quotas"), os.path.join(self.folder.name, "store")
        with open(path, "w", encoding="utf-8") as f:
            f.write(key_line(ANN, "tenant=ann", "ram=2M", "disk=1M") + key_line(ROOT, "rights=request,schemas,operate"))
        server = Server("--api-keys", path, "--store", store, "--write", "through").wait_ready()
        self.addCleanup(server.stop)
        for key, kept in ((ANN, True), (ROOT, False)):
            for i in range(24):
                body = {"prompt": f"{key} {i} " + f"many words {i} " * 20, "max_tokens": 1}
                self.assertEqual(server.post("/v1/completions", body, headers=bearer(key)).status, 200)
            metrics = dict(line.split() for line in server.get("/metrics", headers=bearer(ROOT)).body.decode().splitlines()
                           if line.startswith("reprise_store_"))
            self.assertEqual(int(metrics["reprise_store_disk_bytes"]) <= 1 << 20, kept)
            self.assertEqual(int(metrics["reprise_store_bytes"]) <= 2 << 20, kept)

    def test_beyond_loopback(self):
        server = Server("--api-keys", self.file, "--host", "0.0.0.0").wait_ready()
        self.addCleanup(server.stop)
        in_parallel([lambda: self.assertEqual(server.post("/v1/completions", {"prompt": "a", "max_tokens": 1},
                                                          headers=bearer(ANN)).status, 200)] * 4)


class Restart(unittest.TestCase):
    """--schema-dir: what came by HTTP is there again, for its tenant alone, whatever ended the server."""

    def test_schemas_outlive_the_server(self):
        with tempfile.TemporaryDirectory() as folder:
            keys, kept = os.path.join(folder, "keys"), os.path.join(folder, "kept")
            with open(keys, "w", encoding="utf-8") as f:
                for name in ("ann", "tom"):
                    done = subprocess.run([PROGRAM, "serve", "--hash-key"], input=f"key-of-{name}-0123456789", capture_output=True, text=True)
                    f.write(f"{done.stdout.strip()} tenant={name} rights=request,schemas\n")

            def start():
                return Server("--api-keys", keys, "--schema-dir", kept, "--store", os.path.join(folder, "store"), "--write", "through").wait_ready()

            def ask(server, method, path, body=None, who="ann"):
                return server.ask(method, path, body, headers={"Authorization": f"Bearer key-of-{who}-0123456789"})
            server = start()
            for name in ("cities", "gone"):
                self.assertEqual(ask(server, "PUT", f"/v1/schemas/{name}", CITIES.replace('"cities"', f'"{name}"')).status, 200)
            self.assertEqual(ask(server, "PUT", "/v1/schemas/cities", OLD, who="tom").status, 200)
            self.assertEqual(ask(server, "DELETE", "/v1/schemas/gone").status, 200)
            server.end(9)
            server.errors.close()
            with open(os.path.join(kept, "0" * 64 + ".json"), "w", encoding="utf-8") as f:
                f.write("{")
            server = start()
            self.addCleanup(server.stop)
            self.assertEqual(ask(server, "GET", "/v1/schemas").json["data"], ["cities"])
            self.assertEqual(ask(server, "GET", "/v1/schemas/cities").body.decode(), CITIES)
            self.assertEqual(ask(server, "GET", "/v1/schemas/cities", who="tom").body.decode(), OLD)
            answer = ask(server, "POST", "/v1/prompts", {"prompt": PROMPT, "max_tokens": 1}).json
            self.assertIn("disk", {part["tier"] for part in answer["reprise"]["parts"] if part["reused"]})
            self.assertEqual([line["event"] for line in server.log() if "event" in line], ["a schema was not loaded"])

    def test_kv_format_of_a_tenant(self):
        """kv= of a key: of all modules of the tenant that name none, after a restart as well."""
        with tempfile.TemporaryDirectory() as folder:
            keys, kept = os.path.join(folder, "keys"), os.path.join(folder, "kept")
            with open(keys, "w", encoding="utf-8") as f:
                for words in (("ann", "kv=int8"), ("ann2", "kv=k4v2"), ("tom",)):
                    f.write(key_line(f"key-of-{words[0]}-0123456789", f"tenant={words[0].rstrip('2')}", "rights=request,schemas", *words[1:]))

            def is_f16(server, who):
                """Are the modules in the format of text? KV in another one is not exact."""
                heads = bearer(f"key-of-{who}-0123456789")
                answers = [server.ask("POST", "/v1/prompts", body, headers=heads) for body in (
                    {"prompt": PROMPT, "max_tokens": 1},
                    {"parts": [{"type": "document", "name": "d", "text": "Tom had a red ball."}, {"type": "text", "role": "user", "text": "What?"}],
                     "max_tokens": 1})]
                for answer in answers:
                    self.assertEqual(answer.status, 200, answer.body)
                firsts = [answer.json["reprise"]["parts"][0] for answer in answers]
                self.assertEqual(firsts[0]["exact"], firsts[1]["exact"], firsts)
                return firsts[0]["exact"]

            for start in range(2):
                server = Server("--api-keys", keys, "--schema-dir", kept).wait_ready()
                self.addCleanup(server.stop)
                for who in ("ann", "tom") if start == 0 else ():
                    self.assertEqual(server.ask("PUT", "/v1/schemas/cities", CITIES, headers=bearer(f"key-of-{who}-0123456789")).status, 200)
                self.assertEqual([is_f16(server, who) for who in ("ann", "ann2", "tom")], [False, False, True])
                server.end()

    def test_a_folder_that_cannot_be(self):
        with tempfile.NamedTemporaryFile() as f:
            done = subprocess.run([PROGRAM, "serve", "-m", MODEL, "--port", "0", "--schema-dir", f.name + "/x"], capture_output=True, text=True)
        self.assertEqual((done.returncode, len(done.stderr.splitlines())), (1, 1), done.stderr)


if __name__ == "__main__":
    unittest.main()
