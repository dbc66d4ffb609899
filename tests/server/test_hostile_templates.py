#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Models whose chat template does not end by itself: an error of that request, cancelled with it; other models and SIGTERM do not wait."""
import json
import os
import select
import tempfile
import unittest

import gguf_copy
from server_process import MODEL, Server

# All steps that a template has, and little memory, when a message says so.
HOSTILE = ("{% for m in messages %}{% if 'go' in m.content %}{% set l = range(20000) %}{% for i in l %}{% for j in l %}{% endfor %}{% endfor %}{% endif %}"
           "{{ m.content }}{% endfor %}")
GO = {"messages": [{"role": "user", "content": "go"}], "max_tokens": 1}
HI = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
N = 12  # more than the server has workers


class HostileTemplates(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.path = os.path.join(folder.name, "hostile.gguf")
        gguf_copy.copy(MODEL, cls.path, {"tokenizer.chat_template": gguf_copy.string(HOSTILE)})

    def start(self, *options, model):
        server = Server(*options, model=model).wait_ready()
        self.addCleanup(server.stop)
        return server

    def send(self, server, body):
        """A request whose reply is not read."""
        text = json.dumps(body).encode()
        s = server.socket()
        s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(text) + text)
        self.addCleanup(s.close)
        return s

    def test_routes_without_a_model(self):
        server = self.start(model=self.path)
        sockets = [self.send(server, GO) for _ in range(N)]
        self.assertEqual(server.get("/v1/models").status, 200)
        self.assertLess(len(select.select(sockets, [], [], 0)[0]), 5)

    def test_errors(self):
        server = self.start(model=self.path)
        reply = server.post("/v1/chat/completions", GO)
        self.assertEqual(reply.status, 500, reply.body)
        self.assertIn("chat template:1: TimeoutError: the template takes more than 50000000 steps", reply.json["error"]["message"])
        reply = server.post("/v1/chat/completions", dict(GO, deadline_ms=1))
        self.assertEqual(reply.status, 504, reply.body)
        self.assertEqual(server.post("/v1/chat/completions", HI).status, 200)

    def test_another_model_is_served(self):
        server = self.start("-m", f"good={MODEL}", model=f"hostile={self.path}")
        self.assertEqual(server.post("/v1/chat/completions", dict(HI, model="good")).status, 200)
        sockets = [self.send(server, dict(GO, model="hostile")) for _ in range(N)]
        self.assertEqual(server.post("/v1/chat/completions", dict(HI, model="good")).status, 200)
        ended = select.select(sockets, [], [], 0)[0]
        self.assertLess(len(ended), 5)  # of those that were there before
        for s in sockets:
            s.close()
        self.assertEqual(server.post("/v1/chat/completions", dict(HI, model="hostile")).status, 200)

    def test_sigterm_ends_renderings(self):
        server = self.start("--drain", "1", model=self.path)
        sockets = [self.send(server, GO) for _ in range(N)]
        self.assertEqual(server.get("/livez").status, 200)
        self.assertEqual(server.end(), 0)
        replies = []
        for s in sockets:
            try:
                replies.append(s.recv(4096))
            except ConnectionError:
                replies.append(b"")
        self.assertLess(sum(b"TimeoutError" in reply for reply in replies), 4, replies)


if __name__ == "__main__":
    unittest.main()
