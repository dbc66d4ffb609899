#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Automatic modules over HTTP: --auto-reuse and `auto=` of keys allow them, the field `reuse` asks for them or forbids them, and the report counts
what is not exact."""
import random
import re
import tempfile
import time
import unittest

from server_process import JSON, Server, bearer, key_line

KEYS = {"a" * 20: "auto=on", "b" * 20: "auto=off", "c" * 20: ""}
MOST = 100  # requests until modules are prefilled: the background runs between them


def words(r, n):
    return "".join(r.choice("abcdefghij") + str(r.randrange(100)) + ("\n" if i % 7 == 6 else " ") for i in range(n))


class AutoReuse(unittest.TestCase):
    def setUp(self):
        self.r = random.Random(20261128)
        self.passage = words(self.r, 400)

    def inexact(self, server, reuse=None, **more):
        """Inexact tokens of a request with the passage in a message of its own, after a new beginning."""
        body = {"max_tokens": 1, "messages": [{"role": "system", "content": words(self.r, 20)}, {"role": "user", "content": self.passage},
                                              {"role": "user", "content": words(self.r, 5)}]}
        if reuse:
            body["reuse"] = reuse
        reply = server.post("/v1/chat/completions", body, **more)
        self.assertEqual(reply.status, 200, reply.body)
        report = reply.json["reprise"]
        self.assertEqual(report["inexact_tokens"], sum(p["tokens"] for p in report["parts"] if not p["exact"]))
        return report["inexact_tokens"]

    def expect(self, some, server, reuse=None, **more):
        for _ in range(MOST if some else 6):
            if self.inexact(server, reuse, **more) > 100:
                return self.assertTrue(some)
            time.sleep(0.03 if some else 0)  # the background waits for a pause
        self.assertFalse(some)

    def serve(self, *options):
        server = Server("--log", "off", *options).wait_ready()
        self.addCleanup(server.stop)
        return server

    def test_requests_ask(self):
        server = self.serve("--auto-reuse", "ask")
        self.expect(False, server)
        counted = lambda: int(re.search(r"^reprise_inexact_tokens_total (\d+)", server.get("/metrics").body.decode(), re.M)[1])
        self.assertEqual(counted(), 0)
        self.expect(True, server, "auto")
        n = counted()
        self.assertGreater(n, 100)
        for reuse in (None, "on", "exact", "off"):
            self.expect(False, server, reuse)
        self.assertEqual(counted(), n)

    def test_it_is_off(self):
        server = self.serve()
        self.expect(False, server, "auto")
        reply = server.post("/v1/completions", {"prompt": "a", "reuse": "automatic"})
        self.assertEqual(reply.status, 400)
        self.assertIn("on, off, exact, auto, modular or read", reply.json["error"]["message"])

    def test_it_is_on(self):
        server = self.serve("--auto-reuse", "on")
        self.expect(True, server)
        self.expect(False, server, "on")

    def test_keys(self):
        with tempfile.NamedTemporaryFile("w", suffix=".keys") as f:
            f.writelines(key_line(key, word) for key, word in KEYS.items())
            f.flush()
            server = self.serve("--auto-reuse", "ask", "--api-keys", f.name)
            for key, word in KEYS.items():
                self.expect(word == "auto=on", server, headers={**JSON, **bearer(key)})
                self.expect(word != "auto=off", server, "auto", headers={**JSON, **bearer(key)})


if __name__ == "__main__":
    unittest.main()
