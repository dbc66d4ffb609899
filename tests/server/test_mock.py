#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise serve --mock`: the server, the scheduler and the store without a model's arithmetic."""
import subprocess
import unittest

from server_process import MODEL, PROGRAM, Server

QUESTION = {"messages": [{"role": "user", "content": "Where is the sea?"}], "temperature": 1, "seed": 7, "max_tokens": 40}


class Mock(unittest.TestCase):
    def test_it_answers_alike_everywhere(self):
        texts = set()
        for options in ((), ("--chunk", "3")):
            server = Server("--mock", "--mock-speed", "0", *options).wait_ready()
            try:
                for _ in range(2):
                    reply = server.post("/v1/chat/completions", QUESTION).json
                    self.assertGreater(reply["usage"]["completion_tokens"], 0)
                    texts.add(reply["choices"][0]["message"]["content"])
                self.assertIn("answers are not a model's", server.said())
            finally:
                server.stop()
        self.assertEqual(len(texts), 1)
        self.assertTrue(texts.pop().strip())

    def test_its_speed_needs_it(self):
        done = subprocess.run([PROGRAM, "serve", "-m", MODEL, "--mock-speed", "100"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--mock", done.stderr)


if __name__ == "__main__":
    unittest.main()
