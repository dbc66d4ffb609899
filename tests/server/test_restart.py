#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise serve --store` under load, ended by SIGTERM and by SIGKILL: what ran is finished or not, but what was kept is there for the
next start."""
import os
import signal
import subprocess
import tempfile
import unittest

from server_process import PROGRAM, WAIT_S, Server, finish_load, load_of, raw_request, read_until_closed

LONG = {"prompt": "Tom had a", "temperature": 0, "max_tokens": 1900, "ignore_eos": True, "stream": True}
LOAD = ["--workload", "chat", "--rate", "20", "--count", "2000", "-n", "8", "--prompt-tokens", "24", "--conversations", "6", "--connections", "24"]


def story(name):
    return {"prompt": " ".join(f"{name} had {i} red balls and a blue kite." for i in range(60)), "temperature": 0, "max_tokens": 12}


class Restart(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.store = os.path.join(folder.name, "store")

    def start(self, *options):
        server = Server("--store", self.store, "--log", "off", "--drain", "86400000", *options).wait_ready()
        self.addCleanup(server.stop)
        return server

    def ask(self, server, name):
        """(the answer, tokens of the prompt, cached ones, tiers)"""
        reply = server.post("/v1/completions", story(name))
        self.assertEqual(reply.status, 200, reply.body)
        usage = reply.json["usage"]
        return (reply.json["choices"][0]["text"], usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"],
                {part["tier"] for part in reply.json["reprise"]["parts"] if part["reused"]})

    def begin_load(self, server):
        load = load_of(server, *LOAD)
        self.addCleanup(load.kill)
        before = server.metrics()["reprise_answers_total"]
        while server.metrics()["reprise_answers_total"] < before + 8:
            self.assertIsNone(load.poll())
        return load

    def found_on_disk(self, server, name, answer):
        """The first request of a new process."""
        text, prompt, cached, tiers = self.ask(server, name)
        self.assertEqual(text, answer)
        self.assertIn("disk", tiers)
        self.assertGreater(cached, prompt * 0.9)

    def check_store(self):
        done = subprocess.run([PROGRAM, "cache", "verify", "--store", self.store], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_sigterm(self):
        server = self.start()
        answer, _, _, tiers = self.ask(server, "Ann")
        self.assertNotIn("disk", tiers)
        load = self.begin_load(server)
        running = server.socket()
        running.sendall(raw_request("/v1/completions", LONG))
        received = running.recv(100)
        server.process.send_signal(signal.SIGTERM)
        while server.get("/readyz").status == 200:
            pass
        reply = server.post("/v1/completions", story("Ben"))
        self.assertEqual((reply.status, reply.headers["Connection"]), (503, "close"))
        received += read_until_closed(running)
        running.close()
        self.assertIn(b"data: [DONE]", received)
        self.assertEqual(server.process.wait(WAIT_S), 0)
        _, report, _ = finish_load(load, signal.SIGINT)
        self.assertNotIn("in stream", report["errors"])  # no answer broke off
        self.assertGreater(report["requests"]["done"], 0)
        self.assertGreater(report["cached_tokens"], 0)
        self.check_store()
        self.found_on_disk(self.start(), "Ann", answer)

    def test_sigkill(self):
        server = self.start("--write", "through")
        answer = self.ask(server, "Cid")[0]
        load = self.begin_load(server)
        self.assertEqual(server.end(signal.SIGKILL), -signal.SIGKILL)
        status, report, errors = finish_load(load, signal.SIGINT)
        self.assertGreater(report["requests"]["done"], 0)
        self.assertIn((status, len(errors.splitlines())), ((1, 1), (130, 0)))
        second = self.start()  # states are written when there is time for it
        self.found_on_disk(second, "Cid", answer)
        load = self.begin_load(second)
        second.end(signal.SIGKILL)
        finish_load(load, signal.SIGINT)
        third = self.start()
        self.found_on_disk(third, "Cid", answer)
        self.assertEqual(third.end(), 0)
        self.check_store()


    def test_an_answered_change_survives_sigkill(self):
        """Issue 46: PATCH pinned answered 200 before the pin was on disk, 6 of 6 were lost by kill -9 right after it."""
        schemas = os.path.join(os.path.dirname(self.store), "schemas")
        def schema(name):
            modules = "".join(f'<module name="m{i}">{name} has {i} red balls and a blue kite.</module>' for i in range(6))
            return f'<schema name="{name}">{modules}</schema>'
        def entries(server):
            return {e["label"]: e for e in server.get("/v1/cache/entries?kind=module&limit=1000").json["data"]}
        def kill_after(server, method, path, body=None):
            reply = server.ask(method, path, body)
            server.end(signal.SIGKILL)
            self.assertIn(reply.status, (200, 204), reply.body)
            server = self.start("--schema-dir", schemas)
            self.check_store()
            return server
        server = kill_after(self.start("--schema-dir", schemas), "PUT", "/v1/schemas/Tom", schema("Tom"))
        self.assertEqual(server.get("/v1/schemas").json["data"], ["Tom"])
        # all records wait to be written, or are being written, when the change arrives
        self.assertEqual(server.ask("PUT", "/v1/schemas/Sam", schema("Sam")).status, 200)
        server = kill_after(server, "PATCH", "/v1/cache/entries?name=Sam", {"pinned": True})
        pinned = {label for label, e in entries(server).items() if e["pinned"]}
        self.assertLessEqual({f"Sam/m{i}" for i in range(6)}, pinned)
        key = entries(server)["Sam/m3"]["key"]
        server = kill_after(server, "PATCH", "/v1/cache/entries/" + key, {"pinned": False, "ttl": 7200})
        self.assertFalse(entries(server)["Sam/m3"]["pinned"])
        self.assertIsNotNone(entries(server)["Sam/m3"]["expires"])
        self.assertTrue(entries(server)["Sam/m2"]["pinned"])
        server = kill_after(server, "DELETE", "/v1/schemas/Tom")
        self.assertEqual(server.get("/v1/schemas").json["data"], ["Sam"])
        key = entries(server)["Sam/m1"]["key"]
        self.assertEqual(server.ask("DELETE", "/v1/schemas/Sam").status, 200)
        server = kill_after(server, "DELETE", "/v1/cache/entries?name=Sam")
        self.assertNotIn(key, {e["key"] for e in entries(server).values()})


if __name__ == "__main__":
    unittest.main()
