#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A store that cannot be used does not stop `reprise serve`: /readyz, /metrics and the log say so, requests are answered, and the next start uses
the store again."""
import os
import re
import resource
import sqlite3
import subprocess
import tempfile
import unittest

from server_process import MODEL, PROGRAM, Server


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


class FewDescriptors(unittest.TestCase):
    def test_too_few_are_an_error_at_start(self):
        """Issue 46: a ready server with `ulimit -n 12` reset every connection. What it needs it says, and with that it answers."""
        with tempfile.TemporaryDirectory() as folder:
            def limited(n):
                return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (n, n))
            secret = os.path.join(folder, "secret")
            with open(secret, "w", encoding="utf-8") as f:
                f.write("5a" * 32)
            os.chmod(secret, 0o600)
            serve = ["serve", "-m", MODEL, "--port", "0", "--log", "off"]
            for args in (serve, [*serve, "--store", os.path.join(folder, "store")],
                         ["route", "-m", MODEL, "--port", "0", "--log", "off", "--node", "http://127.0.0.1:1", "--cluster-secret", secret]):
                for n in (6, 9, 12, 16):
                    done = subprocess.run([PROGRAM, *args], capture_output=True, text=True, check=False, timeout=60, preexec_fn=limited(n))
                    self.assertEqual(done.returncode, 1, (args, n, done.stderr))
                    self.assertNotIn("ready", done.stdout)
            wanted = int(re.search(r"\(ulimit -n\) to (\d+) or more\n$", subprocess.run(
                [PROGRAM, *serve], capture_output=True, text=True, check=False, timeout=60, preexec_fn=limited(16)).stderr)[1])
            server = Server("--log", "off", preexec_fn=limited(wanted)).wait_ready()
            self.addCleanup(server.stop)
            self.assertEqual(server.post("/v1/completions", {"prompt": "Tom", "max_tokens": 2}).status, 200)


if __name__ == "__main__":
    unittest.main()
