#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A store that cannot be used does not stop `reprise serve`: /readyz, /metrics and the log say so, requests are answered, and the next start uses
the store again."""
import os
import sqlite3
import tempfile
import unittest

from server_process import Server


class DegradedStore(unittest.TestCase):
    def start(self, store):
        server = Server("--store", store, "--log", "off", env=dict(os.environ, REPRISE_LOG="warn")).wait_ready()
        self.addCleanup(server.stop)
        return server

    def answer(self, server):
        reply = server.post("/v1/completions", {"prompt": "Tom had a red ball.", "max_tokens": 4, "temperature": 0})
        self.assertEqual(reply.status, 200, reply.body)
        return reply.json["choices"][0]["text"]

    def set_version(self, store, version):
        index = sqlite3.connect(os.path.join(store, "index.db"))
        old = index.execute("PRAGMA user_version").fetchone()[0]
        index.execute(f"PRAGMA user_version = {version}")
        index.close()
        return old

    def test_a_store_of_a_newer_version_is_reported(self):
        with tempfile.TemporaryDirectory() as folder:
            store = os.path.join(folder, "store")
            server = self.start(store)
            text = self.answer(server)
            self.assertEqual(server.end(), 0)
            old = self.set_version(store, 99)
            server = self.start(store)
            reply = server.get("/readyz")
            self.assertEqual(reply.status, 200)
            self.assertEqual(len(reply.body.splitlines()), 2, reply.body)
            self.assertIn(b"version", reply.body)
            self.assertIn(server.metrics()['reprise_store_degraded{reason="version"}'], (2, 3))
            self.assertEqual(self.answer(server), text)
            self.assertEqual(server.end(), 0)
            self.assertEqual(server.said().count("continuing "), 1, server.said())
            self.set_version(store, old)
            server = self.start(store)
            self.assertEqual(server.get("/readyz").body, b"ready\n")
            self.assertEqual(self.answer(server), text)


if __name__ == "__main__":
    unittest.main()
