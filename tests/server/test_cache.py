#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise serve`, what the engine keeps: entries are listed, pinned, given a time to live and removed by those who may."""
import tempfile
import unittest

from server_process import Server, bearer, key_line

SCHEMA = '<schema name="s"><module name="a">Tom had a red ball.</module><module name="b">Sam had a dog.</module></schema>'
PROMPT = '<prompt schema="s"><a/><b/><user>What did Tom have?</user></prompt>'


class Cache(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        store = tempfile.TemporaryDirectory()
        cls.addClassCleanup(store.cleanup)
        cls.server = Server("--log", "off", "--store", store.name, "--write", "through").wait_ready()
        cls.addClassCleanup(cls.server.stop)

    def setUp(self):
        self.assertEqual(self.server.ask("PUT", "/v1/schemas/s", SCHEMA).status, 200)
        self.cached()

    def cached(self):
        return self.server.post("/v1/prompts", {"prompt": PROMPT, "max_tokens": 2}).json["usage"]["cached_tokens"]

    def entries(self, query=""):
        reply = self.server.get("/v1/cache/entries" + query)
        self.assertEqual(reply.status, 200, reply.body)
        return reply.json

    def refused(self, reply, status, says):
        self.assertEqual(reply.status, status, reply.body)
        self.assertIn(says, reply.json["error"]["message"])

    def test_listing(self):
        everything = self.entries()
        self.assertEqual((everything["object"], everything["has_more"]), ("list", False))
        keys = [e["key"] for e in everything["data"]]
        self.assertEqual(keys, sorted(keys))
        module = self.entries("?name=s/a")["data"]
        self.assertEqual([(e["kind"], e["label"], e["tiers"]) for e in module], [("module", "s/a", ["ram", "disk"])])
        self.assertEqual(self.server.get("/v1/cache/entries/" + module[0]["key"]).json["label"], "s/a")
        self.assertEqual(set(module[0]), {"object", "key", "kind", "label", "kv_format", "tiers", "tokens", "bytes", "ram_bytes", "uses", "last_use",
                                          "pinned", "in_use", "expires", "cost_ms"})
        self.assertEqual({e["kind"] for e in self.entries("?kind=text")["data"]}, {"text"})
        self.assertEqual({e["label"] for e in self.entries("?kind=text")["data"]}, {""})
        self.assertEqual(self.entries("?name=nothing")["data"], [])
        first = self.entries("?limit=1")
        self.assertEqual(([e["key"] for e in first["data"]], first["has_more"]), (keys[:1], True))
        self.assertEqual([e["key"] for e in self.entries(f"?after={keys[0]}")["data"]], keys[1:])
        sizes = [e["bytes"] for e in self.entries("?sort=bytes")["data"]]
        self.assertEqual(sizes, sorted(sizes, reverse=True))

    def test_changes(self):
        key = self.entries("?name=s/a")["data"][0]["key"]
        path = "/v1/cache/entries/" + key
        self.assertTrue(self.server.ask("PATCH", path, {"pinned": True}).json["pinned"])
        changed = self.server.ask("PATCH", path, {"pinned": False, "ttl": 3600}).json
        self.assertEqual((changed["pinned"], changed["key"]), (False, key))
        self.assertGreaterEqual(changed["expires"], changed["last_use"] + 3600)
        self.assertIsNone(self.server.ask("PATCH", path, {"ttl": None}).json["expires"])
        self.assertGreaterEqual(self.server.ask("PATCH", "/v1/cache/entries?name=s", {"pinned": True}).json["changed"], 2)
        self.assertTrue(all(e["pinned"] for e in self.entries("?name=s")["data"]))
        self.server.ask("PATCH", "/v1/cache/entries?name=s", {"pinned": False})
        for body, says in (({}, "pinned"), ({"pinned": 1}, "pinned"), ({"ttl": 0}, "ttl"), ({"ttl": "1h"}, "ttl"), ("{", "JSON")):
            self.refused(self.server.ask("PATCH", path, body), 400, says)
        text = self.entries("?kind=text")["data"][0]["key"]
        self.refused(self.server.ask("PATCH", "/v1/cache/entries/" + text, {"pinned": True}), 400, "pinned")

    def test_removal(self):
        self.assertGreater(self.cached(), 10)
        key = self.entries("?name=s/a")["data"][0]["key"]
        self.assertEqual(self.server.ask("DELETE", "/v1/cache/entries/" + key).json, {"object": "cache.removed", "removed": 1})
        self.refused(self.server.ask("DELETE", "/v1/cache/entries/" + key), 404, key)
        self.refused(self.server.get("/v1/cache/entries/" + key), 404, key)
        before = self.cached()
        self.assertGreater(self.cached(), before)
        self.assertGreaterEqual(self.server.ask("DELETE", "/v1/cache/entries?name=s").json["removed"], 2)
        self.assertEqual(self.entries("?name=s")["data"], [])

    def test_refused(self):
        for query, says in (("?kind=x", "kind"), ("?limit=0", "limit"), ("?limit=1001", "limit"), ("?limit=x", "limit"), ("?sort=x", "sort"),
                            ("?after=x", "key"), ("?after=" + "0" * 64 + "&sort=bytes", "key")):
            self.refused(self.server.get("/v1/cache/entries" + query), 400, says)
        self.refused(self.server.ask("DELETE", "/v1/cache/entries"), 400, "name")
        self.refused(self.server.ask("PATCH", "/v1/cache/entries", {"pinned": True}), 400, "name")
        self.refused(self.server.ask("DELETE", "/v1/cache/entries/abcd"), 404, "64")
        self.refused(self.server.ask("DELETE", "/v1/cache/entries/" + "x" * 64), 400, "digits")
        self.refused(self.server.post("/v1/cache/entries", {}), 405, "PATCH")

    def test_only_operators(self):
        keys = {right: right[0] * 20 for right in ("request", "operate")}
        with tempfile.NamedTemporaryFile("w", suffix=".keys") as file:
            file.writelines(key_line(key, f"rights={right}") for right, key in keys.items())
            file.flush()
            server = Server("--log", "off", "--api-keys", file.name).wait_ready()
            try:
                for method, path in (("GET", ""), ("DELETE", "?name=s"), ("PATCH", "?name=s"), ("GET", "/" + "0" * 64)):
                    path = "/v1/cache/entries" + path
                    self.assertEqual(server.ask(method, path, headers=bearer(keys["request"])).status, 403)
                    self.assertNotIn(server.ask(method, path, "{}", headers=bearer(keys["operate"])).status,
                                     (401, 403))
            finally:
                server.stop()


if __name__ == "__main__":
    unittest.main()
