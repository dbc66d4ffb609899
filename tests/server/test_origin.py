#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise serve` and web pages of somebody else: a page that binds its name to our address, or that sends what needs no preflight, gets
nothing and changes nothing. A fresh server without options, as a user of one machine starts it."""
import os
import subprocess
import tempfile
import unittest

from server_process import JSON, MODEL, PROGRAM, Server, ServerCase, bearer, key_line

SHORT = {"prompt": "Tom had a", "temperature": 0, "max_tokens": 1}
SCHEMA = "<schema name='s'><module name='m'>One.</module></schema>"
# a route that answers, one that reveals requests, one that reveals the cache, one that only says that it lives
PATHS = ("/v1/models", "/v1/requests", "/v1/cache/entries", "/metrics", "/livez", "/")


class Origin(ServerCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.port = cls.server.addresses[0].rsplit(":", 1)[1]

    def start(self, *options):
        server = Server("--log", "off", *options)
        self.addCleanup(server.stop)
        return server.wait_ready()

    def refused(self, reply, status, code, *words):
        self.assertEqual((reply.status, reply.json["error"]["code"]), (status, code))
        for word in words:
            self.assertIn(word, reply.json["error"]["message"])

    def test_names_of_others(self):
        for host in ("evil.test", f"evil.test:{self.port}", "localhost.evil.test", "localhost@evil.test", "127.0.0.1.evil.test", "xlocalhost",
                     "192.168.1.7", "[::2]:80", "[::1", "[::1]x", "localhost:80x", "localhost:80:80", ":80", "", "a" * 300):
            for path in PATHS:
                with self.subTest(host=host, path=path):
                    self.refused(self.server.get(path, headers={"Host": host}), 421, "misdirected_request", "--host-name")
        self.refused(self.server.post("/v1/completions", SHORT, headers={"Host": "evil.test"}), 421, "misdirected_request", "--host-name evil.test")

    def test_names_of_its_own(self):
        for host in ("localhost", f"localhost:{self.port}", "LocalHost:1", "localhost.", "127.0.0.1", f"127.0.0.1:{self.port}", "[::1]:8080", "[::1]"):
            with self.subTest(host=host):
                self.assertEqual(self.server.get("/v1/models", headers={"Host": host}).status, 200)
        s = self.server.socket()
        s.sendall(b"GET /livez HTTP/1.0\r\n\r\n")  # HTTP/1.0 has no Host; no browser speaks it
        self.assertIn(b" 200 ", s.recv(4096))
        s.close()

    def test_more_names(self):
        server = self.start("--host-name", "LLM.example.org", "--host-name", "other.test", "--host", "127.0.0.2")
        for host, status in (("llm.example.org", 200), ("llm.EXAMPLE.org:443", 200), ("other.test", 200), ("127.0.0.2", 200), ("localhost", 200),
                             ("example.org", 421)):
            self.assertEqual(server.get("/v1/models", headers={"Host": host}).status, status, host)
        for name in ("http://llm.example.org", "a:80", "", "a/b", "a b"):
            done = subprocess.run([PROGRAM, "serve", "-m", MODEL, "--port", "0", "--host-name", name], capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, "host name" in done.stderr), (2, True), done.stderr)

    def test_all_addresses(self):
        """Bound to every address of the machine, which keys need: an address in Host is right, a name is not."""
        with tempfile.NamedTemporaryFile("w") as keys:
            keys.write(key_line("a-key-that-may-ask"))
            keys.flush()
            server = self.start("--host", "0.0.0.0", "--api-keys", keys.name)
        for host, status in (("192.168.1.7:8080", 200), ("[2001:db8::1]", 200), ("localhost", 200), ("evil.test", 421)):
            self.assertEqual(server.get("/v1/models", headers={"Host": host, **bearer("a-key-that-may-ask")}).status, status, host)

    def test_unix_sockets(self):
        with tempfile.TemporaryDirectory() as folder:
            server = self.start("--unix", os.path.join(folder, "s"))
            self.assertEqual(server.get("/v1/models", headers={"Host": "whatever"}, address=1).status, 200)
            self.assertEqual(server.get("/v1/models", headers={"Host": "whatever", "Origin": "http://evil.test"}, address=1).status, 403)

    def test_origins(self):
        own = f"localhost:{self.port}"
        for origin in ("http://evil.test", f"http://localhost:{int(self.port) + 1}", "http://localhost", "null", "file://", f"http://127.0.0.1:{self.port}", ""):
            for path in ("/v1/models", "/v1/requests", "/v1/cache/entries", "/metrics", "/v1/schemas"):
                with self.subTest(origin=origin, path=path):
                    self.refused(self.server.get(path, headers={"Host": own, "Origin": origin}), 403, "origin_not_allowed", "--cors")
            self.refused(self.server.post("/v1/completions", SHORT, headers={"Host": own, "Origin": origin}), 403, "origin_not_allowed")
        for host, origin in ((own, "http://" + own), ("localhost", "http://localhost:80"), ("localhost", "https://localhost"), ("localhost:443", "https://localhost")):
            self.assertEqual(self.server.get("/v1/models", headers={"Host": host, "Origin": origin}).status, 200, (host, origin))
        for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)):
            self.assertEqual(self.server.get("/v1/requests", headers={"Sec-Fetch-Site": site}).status, status, site)
            self.assertEqual(self.server.get("/", headers={"Sec-Fetch-Site": site}).status, 200)  # a link to the page

    def test_cors(self):
        server = self.start("--cors", "https://app.test")
        for origin, status in (("https://app.test", 200), ("https://app.test.evil", 403), ("null", 403)):
            headers = {"Origin": origin, "Sec-Fetch-Site": "cross-site"}
            self.assertEqual(server.get("/v1/models", headers=headers).status, status, origin)
        self.assertEqual(server.ask("OPTIONS", "/v1/models", headers={"Host": "evil.test"}).status, 421)
        server = self.start("--cors", "*")
        self.assertEqual(server.get("/v1/models", headers={"Origin": "null", "Sec-Fetch-Site": "cross-site"}).status, 200)

    def test_bodies_that_need_no_preflight(self):
        """What a page of another site may send without a preflight request is refused: by its type, and without one by a header of its browser."""
        asked = self.server.metrics()["reprise_answer_tokens_total"]
        body = {**SHORT, "messages": [{"role": "user", "content": "a"}]}
        own = {"Host": f"localhost:{self.port}"}
        signs = ({"Sec-Fetch-Site": "none"}, {"sec-fetch-mode": "no-cors"}, {"Sec-Fetch-Dest": "document"}, {"Sec-CH-UA": "x"},
                 {"Referer": "http://evil.test/"}, {"Referer": f"http://localhost:{int(self.port) + 1}/a"}, {"Referer": "http://localhost.evil.test"},
                 {"Referer": ""}, {"User-Agent": "Mozilla/5.0 (X11)"}, {"Origin": f"http://localhost:{self.port}"})
        for path in ("/v1/completions", "/v1/chat/completions", "/v1/messages", "/v1/responses", "/completion", "/tokenize", "/v1/prompts", "/api/chat",
                     "/v1beta/models/default:generateContent", "/v1beta/cachedContents"):
            for kind, headers in [(kind, {}) for kind in ("text/plain", "text/plain;charset=UTF-8", "multipart/form-data; boundary=x", "application/jsonx",
                                                          "text/plain; x=application/json", "application/x-www-form-urlencodedx")] + [
                                 (kind, sign) for kind in ("application/x-www-form-urlencoded", "application/X-WWW-form-urlencoded;charset=UTF-8", "") for sign in signs]:
                with self.subTest(path=path, kind=kind, headers=headers):
                    reply = self.server.post(path, body, headers={**own, "Content-Type": kind, **headers})
                    self.assertEqual((reply.status, b"Content-Type: application/json" in reply.body), (415, True), reply.body)
        for sign in signs:
            s = self.server.socket()
            head = "".join(f"{name}: {value}\r\n" for name, value in {**own, **sign}.items())
            s.sendall(f"POST /v1/completions HTTP/1.1\r\n{head}Content-Length: 13\r\nConnection: close\r\n\r\n{{\"prompt\":\"\"}}".encode())
            self.assertIn(b" 415 ", s.recv(4096), sign)
            s.close()
        self.assertEqual(self.server.metrics()["reprise_answer_tokens_total"], asked)

    def test_bodies_without_a_type(self):
        """What `curl -d` and LiteLLM send is JSON: no browser sends a body without any of those headers."""
        for kind in ("application/x-www-form-urlencoded", "Application/x-www-form-urlencoded; charset=utf-8", ""):
            for headers in ({}, {"User-Agent": "curl/8"}, {"Host": f"localhost:{self.port}", "Referer": f"http://localhost:{self.port}/x#y"}):
                with self.subTest(kind=kind, headers=headers):
                    reply = self.server.post("/v1/completions", SHORT, headers={"Content-Type": kind, **headers})
                    self.assertEqual(reply.status, 200, reply.body)
        s = self.server.socket()
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 30\r\nConnection: close\r\n\r\n{\"prompt\":\"a\",\"max_tokens\": 1}")
        self.assertIn(b" 200 ", s.recv(4096))
        s.close()
        self.assertEqual(self.server.ask("PUT", "/v1/schemas/s", SCHEMA).status, 200)
        reply = self.server.ask("PATCH", "/v1/cache/entries?name=s", '{"pinned": false}', headers={"Content-Type": "application/x-www-form-urlencoded"})
        self.assertEqual(reply.status, 200, reply.body)

    def test_types_of_documents(self):
        """The type decides, not three letters in it."""
        self.assertEqual(self.server.ask("PUT", "/v1/schemas/s", SCHEMA).status, 200)
        for kind, body, status in (("Application/XML", "<prompt schema='s'><m/></prompt>", 200), ("application/json; note=xml", {"prompt": "<prompt schema='s'><m/></prompt>"}, 200)):
            self.assertEqual(self.server.post("/v1/prompts", body, headers={"Content-Type": kind}).status, status, kind)

    def test_types_of_bodies(self):
        for kind in ("application/json", "Application/JSON", "application/json; charset=utf-8", "application/json ;charset=utf-8"):
            self.assertEqual(self.server.post("/v1/completions", SHORT, headers={"Content-Type": kind}).status, 200, kind)
        for kind, status in (("application/xml", 200), ("text/xml; charset=utf-8", 200), ("application/json", 415), ("text/plain", 415),
                             ("application/x-www-form-urlencoded", 415), (None, 200)):
            reply = self.server.ask("PUT", "/v1/schemas/s", SCHEMA, headers={"Content-Type": kind} if kind else {})
            self.assertEqual(reply.status, status, (kind, reply.body))
            self.assertEqual(b"Content-Type: application/xml" in reply.body, status == 415)
        for kind, status in (("application/xml", 200), ("text/xml", 200), ("text/plain", 415)):
            self.assertEqual(self.server.post("/v1/prompts", "<prompt schema='s'><m/></prompt>", headers={"Content-Type": kind}).status, status, kind)
        self.assertEqual(self.server.ask("PATCH", "/v1/cache/entries?name=s", "{}", headers={"Content-Type": "text/plain"}).status, 415)
        self.assertEqual(self.server.ask("PATCH", "/v1/cache/entries?name=s", '{"pinned": false}', headers=JSON).status, 200)


if __name__ == "__main__":
    unittest.main()
