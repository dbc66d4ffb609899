#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise serve` among clients that mean no good: whatever they send, it serves on, and nothing of theirs stays behind.

Some of each sort by default; REPRISE_TEST_ABUSE=full (make abuse): 10,000 random and malformed requests, 1,000 clients that go in
mid-stream.
"""
import json
import os
import random
import socket
import tempfile
import time
import unittest

from server_process import JSON, Server, bearer, in_parallel, key_line, raw_request, read_until_closed

SEED = int(os.environ.get("REPRISE_TEST_SEED", 20261123))
FULL = os.environ.get("REPRISE_TEST_ABUSE") == "full"
N_BYTES, N_FIELDS, N_ROUTES, N_GONE = (5000, 3000, 2000, 1000) if FULL else (2000, 800, 600, 240)
N_SLOW = 200
LONG = {"prompt": "Tom had a", "temperature": 0, "max_tokens": 1900, "ignore_eos": True}
SHORT = {"prompt": "Tom had a", "temperature": 0, "max_tokens": 4}
ANN, BOB = "key-of-ann-0123456789", "key-of-bob-0123456789"


def shared_out(items, n):
    return [items[k::n] for k in range(n)]


class Abuse(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        print(f"abuse: REPRISE_TEST_SEED={SEED}")
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.store = os.path.join(cls.folder.name, "store")
        cls.server = Server("--head-timeout", "600", "--body-timeout", "600", "--idle-timeout", "1000", "--max-body", "100K", "--log", "off",
                            "--store", cls.store).wait_ready()
        cls.addClassCleanup(cls.server.stop)
        cls.answer = cls.server.post("/v1/completions", SHORT).json["choices"]

    def setUp(self):
        self.rng = random.Random(SEED)

    def tearDown(self):
        """It answers as before, and has no call, slot, body, block, connection or file more."""
        self.server.wait_idle()
        reply = self.server.post("/v1/completions", SHORT)  # counts of blocks are brought up to date by a step
        self.assertEqual((reply.status, reply.json["choices"]), (200, self.answer))
        idle = self.server.wait_idle()
        self.assertEqual(idle["reprise_store_used_bytes"], idle["reprise_store_bytes"])
        self.assertEqual(self.server.get("/slots").json, [])
        while self.server.metrics()["reprise_connections_open"] > 1:  # the one that asks; the others are closed when they are noticed
            pass
        self.assertEqual(os.listdir(self.folder.name), ["store"])

    # ---- requests

    def mutated(self, good):
        b = bytearray(self.rng.choice(good))
        for _ in range(self.rng.randrange(1, 8)):
            kind, at = self.rng.randrange(4), self.rng.randrange(len(b))
            if kind == 0:
                b[at] = self.rng.randrange(256)
            elif kind == 1:
                del b[at:at + self.rng.randrange(1, 20)]
            elif kind == 2:
                b[at:at] = self.rng.randbytes(self.rng.randrange(1, 20))
            else:
                b = b[:max(at, 1)]
            if not b:
                b = bytearray(b"\0")
        return bytes(b)

    def test_random_bytes(self):
        good = [raw_request("/v1/completions", SHORT), b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n",
                raw_request("/v1/chat/completions", {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 2})]
        messages = [self.rng.randbytes(self.rng.randrange(1, 300)) if i % 5 == 0 else self.mutated(good) for i in range(N_BYTES)]

        def throw(part):
            for i, message in enumerate(part):
                s = self.server.socket()
                try:
                    s.sendall(message)
                    if i % 100 == 0:  # what is not whole is closed when its time is over
                        read_until_closed(s)
                except OSError:
                    pass
                s.close()

        in_parallel([lambda part=part: throw(part) for part in shared_out(messages, 8)])

    def throw(self, requests, check):
        """Requests on connections that stay open, in four threads. One that was idle for too long is closed: it is sent again."""
        def ask(part):
            c, used = self.server.connection(), False
            for method, path, body in part:
                for last in (False, True):
                    try:
                        c.request(method, path, body, JSON if method in ("POST", "PATCH") else {})
                        reply = c.getresponse()
                        text = reply.read()
                        break
                    except OSError as e:
                        if last or not used:
                            raise AssertionError(f"no answer to {method} {path} {body}") from e
                        c, used = self.server.connection(), False
                check(method, path, body, reply.status, text)
                used = True
                if reply.will_close:
                    c.close()
                    c, used = self.server.connection(), False
            c.close()

        in_parallel([lambda part=part: ask(part) for part in shared_out(requests, 4)])

    def test_random_fields(self):
        values = [None, True, -1, 0, 1, 2**40, 1.5, -1e300, "", "x", [], ["x"], {}, {"a": []}, [[1, 2]], "\ud83d\ude00"]
        fields = ["messages", "prompt", "max_tokens", "temperature", "top_p", "n", "stop", "stream", "stream_options", "logprobs",
                  "top_logprobs", "seed", "logit_bias", "top_k", "model", "response_format", "tools", "echo", "cache_salt", "reuse",
                  "priority", "deadline_ms"]
        requests = []
        for i in range(N_FIELDS):
            body = {"max_tokens": 1, **({"prompt": "a"} if i % 2 else {"messages": [{"role": "user", "content": "a"}]})}
            for _ in range(self.rng.randrange(1, 4)):
                body[self.rng.choice(fields)] = self.rng.choice(values)
            requests.append(("POST", "/v1/completions" if i % 2 else "/v1/chat/completions", json.dumps(body)))

        def check(method, path, body, status, text):
            self.assertIn(status, (200, 400, 404, 504), (method, path, body, text))
            if status != 200:
                self.assertEqual(set(json.loads(text)["error"]), {"message", "type", "param", "code"})

        self.throw(requests, check)

    def nested(self, depth=0):
        kind = self.rng.randrange(8 if depth < 4 else 5)
        if kind < 5:
            return self.rng.choice([None, True, -1, 2**63 - 1, 0.5, "", "text", "\0", "\ud83d\ude00", "a" * 200, "user"])
        if kind == 5:
            return [self.nested(depth + 1) for _ in range(self.rng.randrange(4))]
        names = ["messages", "role", "content", "type", "text", "prompt", "max_tokens", "n_predict", "contents", "parts", "system", "tokens", "stop"]
        return {self.rng.choice(names): self.nested(depth + 1) for _ in range(self.rng.randrange(5))}

    def test_random_bodies_for_every_route(self):
        paths = ["/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/messages/count_tokens", "/v1beta/models/x:generateContent",
                 "/v1beta/models/default:countTokens", "/completion", "/tokenize", "/detokenize", "/apply-template", "/v1/prompts",
                 "/v1/schemas/x", "/v1/models", "/metrics", "/v1/cache", "/v1/requests/x/explain", "/slots", "/props", "/", "/v1/nothing"]
        requests = []
        for i in range(N_ROUTES):
            text = json.dumps({"max_tokens": 2, "n_predict": 2, **{k: self.nested() for k in ("messages", "prompt", "content", "contents")}})
            if i % 4 == 0:
                text = self.mutated([text.encode()])
            elif i % 4 == 1:
                text = json.dumps(self.nested())
            requests.append((self.rng.choice(["POST"] * 6 + ["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"]), self.rng.choice(paths), text))

        def check(method, path, body, status, text):
            self.assertTrue(status < 500 or status in (501, 503, 504), (method, path, body, status, text))
            if status >= 400 and method != "HEAD":
                json.loads(text)

        self.throw(requests, check)

    def test_deep_and_long_json(self):
        for body, what in (("[" * 50000, "open brackets"), ('{"prompt":' * 9000 + "1" + "}" * 9000, "deep"), ('{"a":1,' * 10000, "cut"),
                           ('{"prompt": "' + "\\ud800" * 10000 + '"}', "half a pair"), ("\0" * 1000, "zeros"),
                           ('{"max_tokens": ' + "9" * 50000 + "}", "a long number")):
            with self.subTest(what=what):
                self.assertEqual(self.server.post("/v1/completions", body).status, 400)

    def test_names_that_lead_elsewhere(self):
        """In a schema's place: nothing outside of the store's folder is read or made (tearDown looks)."""
        names = ["..", "../x", "..%2fx", "%2e%2e", "%2e%2e%2fx", "..%5cx", "%2fetc%2fpasswd", "%00", "a%00b", ".%2e/x", "a" * 300, "%ff%fe", "x%0d%0ay"]
        schema = "<schema name='{}'><module name='m'>Here.</module></schema>"
        for name in names:
            for inside in ("x", "../x", "..", "/etc/passwd"):
                for method, path in (("PUT", f"/v1/schemas/{name}"), ("GET", f"/v1/schemas/{name}"), ("GET", f"/v1/schemas/{name}/layout"),
                                     ("DELETE", f"/v1/schemas/{name}")):
                    reply = self.server.ask(method, path, schema.format(inside) if method == "PUT" else None)
                    self.assertIn(reply.status, (400, 404, 405), (method, path, reply.body))
                    self.assertNotIn(b"root:", reply.body)
        for inside in ("../x", "..", "/etc/passwd", "a/b"):
            body = {"prompt": f"<prompt schema='{inside}'/>", "max_tokens": 1}
            self.assertIn(self.server.post("/v1/prompts", body).status, (400, 404))

    # ---- clients that are slow, or go

    def test_slow_loris(self):
        starts = (b"", b"GET /livez HT", b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-",
                  b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{")
        slow = []
        for i in range(N_SLOW):
            slow.append(self.server.socket())
            slow[-1].sendall(starts[i % len(starts)])
        self.assertEqual(self.server.post("/v1/completions", SHORT).status, 200)
        for s in slow:
            self.assertNotIn(b"200 OK", read_until_closed(s))
            s.close()

    def test_gone_in_mid_stream(self):
        def one():
            for i in range(N_GONE // 8):
                s = self.server.socket()
                s.sendall(raw_request("/v1/completions", {**LONG, "stream": True, "max_tokens": 300}))
                if i % 3:
                    s.recv(100 * (i % 3))
                if i % 2:  # with a reset
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                s.close()

        before = self.server.wait_idle()["reprise_requests_total"]
        in_parallel([one] * 8)
        self.assertGreater(self.server.wait_idle()["reprise_requests_total"], before)

    def test_gone_before_the_answer(self):
        for body in (LONG, {**LONG, "n": 4}, {**LONG, "prompt": "word " * 1500, "max_tokens": 300}):
            for _ in range(5):
                s = self.server.socket()
                s.sendall(raw_request("/v1/completions", body))
                s.close()


class Strangers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        path = os.path.join(folder.name, "keys")
        with open(path, "w", encoding="utf-8") as f:
            f.write(key_line(ANN, "tenant=ann", "rights=request,schemas") + key_line(BOB, "tenant=bob", "rights=request,schemas"))
        cls.server = Server("--api-keys", path, "--log", "off").wait_ready()
        cls.addClassCleanup(cls.server.stop)

    def test_keys_that_are_nearly_right(self):
        rng = random.Random(SEED)
        for _ in range(300):
            key = list(rng.choice((ANN, BOB)))
            for _ in range(rng.randrange(1, 3)):
                at, kind = rng.randrange(len(key)), rng.randrange(3)
                if kind == 0:
                    key[at] = chr(rng.randrange(33, 127))
                elif kind == 1:
                    del key[at]
                else:
                    key.insert(at, chr(rng.randrange(33, 127)))
            key = "".join(key)
            if key not in (ANN, BOB):
                self.assertEqual(self.server.get("/v1/models", headers=bearer(key)).status, 401, key)
        self.assertEqual(self.server.get("/v1/models", headers=bearer(ANN)).status, 200)

    def test_what_is_another_tenants(self):
        own = "<schema name='own'><module name='m'>What ann has.</module></schema>"
        other = "<schema name='own'><module name='m'>What bob has.</module></schema>"
        self.assertEqual(self.server.ask("PUT", "/v1/schemas/own", own, headers=bearer(ANN)).status, 200)
        answer = self.server.post("/v1/completions", SHORT, headers=bearer(ANN))
        explain = f"/v1/requests/{answer.headers['x-request-id']}/explain"
        self.assertEqual(self.server.get(explain, headers=bearer(ANN)).status, 200)
        for method, path in (("GET", "/v1/schemas/own"), ("GET", "/v1/schemas/own/layout"), ("DELETE", "/v1/schemas/own"), ("GET", explain)):
            self.assertEqual(self.server.ask(method, path, headers=bearer(BOB)).status, 404, (method, path))
        self.assertEqual(self.server.ask("PUT", "/v1/schemas/own", other, headers=bearer(BOB)).status, 200)
        self.assertEqual(self.server.ask("DELETE", "/v1/schemas/own", headers=bearer(BOB)).status, 200)
        self.assertEqual(self.server.get("/v1/schemas/own", headers=bearer(ANN)).body.decode(), own)


if __name__ == "__main__":
    unittest.main()
