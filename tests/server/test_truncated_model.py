#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A model file that is truncated in place under a running `reprise serve`: the program ends by SIGBUS, and says why."""
import http.client
import os
import shutil
import signal
import tempfile
import unittest

from server_process import MODEL, WAIT_S, Server


class TruncatedModel(unittest.TestCase):
    def test_the_line_names_the_model(self):
        for threads in ("1", "4"):  # the engine's thread meets the missing page, or one of the backend's
            with self.subTest(threads=threads):
                self.truncate(threads)

    def truncate(self, threads):
        with tempfile.TemporaryDirectory() as folder:
            model = os.path.join(folder, "model.gguf")
            shutil.copy(MODEL, model)
            server = Server("--log", "off", "--threads", threads, model=model).wait_ready()
            self.addCleanup(server.errors.close)  # Server.stop would judge its end, as this test does
            self.addCleanup(server.process.stdout.close)
            self.addCleanup(server.process.kill)
            os.truncate(model, 4096)
            try:
                server.post("/v1/completions", {"prompt": "Tom had a red ball and a blue kite", "max_tokens": 8})
            except (OSError, http.client.HTTPException):
                pass  # the connection ends with the server
            self.assertEqual(server.process.wait(WAIT_S), -signal.SIGBUS)
            said = server.said()
            self.assertIn(model, said)
            self.assertIn("truncated", said)
            self.assertIn("rename", said)
            self.assertEqual(said.count("\n"), 1, said)


if __name__ == "__main__":
    unittest.main()
