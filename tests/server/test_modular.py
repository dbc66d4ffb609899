#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`serve --reuse modular` and keys with reuse=modular: requests of unchanged clients reuse documents, definitions and system blocks in any order."""
import subprocess
import tempfile
import unittest

from server_process import PROGRAM, Server

DOCUMENTS = [" ".join(f"Rule {i}: {name} may take {i} {colour} balls from the box." for i in range(20))
             for name, colour in (("Tom", "red"), ("Ann", "blue"), ("Ben", "green"))]


def openai(order, question, **more):
    parts = [{"type": "text", "text": DOCUMENTS[i]} for i in order] + [{"type": "text", "text": question}]
    return {"messages": [{"role": "user", "content": parts}], "max_tokens": 2, **more}


def anthropic(order, question):
    return {"model": "default", "max_tokens": 2, "system": [{"type": "text", "text": DOCUMENTS[i]} for i in order],
            "messages": [{"role": "user", "content": question}]}


def modules(reply):
    return [part for part in reply.json["reprise"]["parts"] if part["module"].startswith("d")]


class Modular(unittest.TestCase):
    def test_of_the_server(self):
        server = Server("--reuse", "modular").wait_ready()
        try:
            self.assertEqual(len(modules(server.post("/v1/chat/completions", openai((0, 1, 2), "Who?")))), 3)
            reply = server.post("/v1/chat/completions", openai((2, 0, 1), "Who may take some?"))
            self.assertTrue(all(part["reused"] for part in modules(reply)))
            usage = reply.json["usage"]
            self.assertGreater(usage["prompt_tokens_details"]["cached_tokens"], 0.8 * usage["prompt_tokens"])
            reply = server.post("/v1/messages", anthropic((1, 2), "Who may take some?"))
            self.assertEqual([part["reused"] for part in modules(reply)], [True, True])
            self.assertEqual(modules(server.post("/v1/chat/completions", openai((0, 1), "Who?", reuse="on"))), [])
            self.assertEqual(len(modules(server.post("/v1/chat/completions", openai((0,), "Who?", reuse="modular")))), 1)
            text = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Tom?"}], "max_tokens": 2})
            self.assertEqual((text.status, modules(text)), (200, []))
        finally:
            server.stop()

    def test_of_a_key(self):
        keys = {"k" * 20: "reuse=modular", "l" * 20: ""}
        with tempfile.NamedTemporaryFile("w", suffix=".keys") as f:
            for key, words in keys.items():
                hashed = subprocess.run([PROGRAM, "serve", "--hash-key"], input=key, capture_output=True, text=True, check=True).stdout.strip()
                f.write(f"{hashed} {words}\n")
            f.flush()
            server = Server("--api-keys", f.name).wait_ready()
            try:
                for key, words in keys.items():
                    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
                    reply = server.post("/v1/chat/completions", openai((0, 1), "Who?"), headers=headers)
                    self.assertEqual((reply.status, len(modules(reply))), (200, 2 if words else 0))
            finally:
                server.stop()

    def test_of_no_key(self):
        with tempfile.NamedTemporaryFile("w", suffix=".keys") as f:
            f.write("0" * 64 + " reuse=off\n")
            f.flush()
            done = subprocess.run([PROGRAM, "serve", "-m", "none.gguf", "--api-keys", f.name], capture_output=True, text=True, check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("reuse is on or modular", done.stderr)


if __name__ == "__main__":
    unittest.main()
