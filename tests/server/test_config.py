#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise serve --config`: a file of options says what the command line would, the command line goes before it, and what is wrong in it
is said with its line."""
import os
import subprocess
import tempfile
import unittest

from server_process import MODEL, PROGRAM, Server


class Config(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def write(self, text, name="c.conf"):
        path = os.path.join(self.folder.name, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        return path

    def refused(self, text, says):
        path = self.write(text)
        done = subprocess.run([PROGRAM, "serve", "--config", path], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (2, ""), done)
        self.assertEqual(done.stderr.count("\n"), 1)
        self.assertIn(says.replace("FILE", path), done.stderr)

    def test_options(self):
        schemas = [self.write(f"<schema name='{n}'><module name='m'>One {n}.</module></schema>", n + ".xml") for n in ("one", "two")]
        socket = os.path.join(self.folder.name, "a socket")
        path = self.write(f"# a comment\n\n  name =  of the file  \r\nschema = {schemas[0]}\nschema={schemas[1]}\n\tlog = off\n"
                          f"unix = {socket}\nno-tcp\nread-only = false\nmax-body = 1K\ndrain = 1000")
        server = Server("--config", path).wait_ready()
        self.addCleanup(server.stop)
        self.assertEqual(server.addresses, ["unix:" + socket])
        self.assertEqual(server.get("/v1/models").json["data"][0]["id"], "of the file")
        for name in ("one", "two"):
            self.assertEqual(server.get(f"/v1/schemas/{name}/layout").status, 200)
        self.assertEqual(server.post("/tokenize", {"content": "x" * 2000}).status, 413)
        self.assertEqual(server.log(), [])

    def test_command_line_goes_before(self):
        schema = self.write("<schema name='mine'><module name='m'>One.</module></schema>", "mine.xml")
        path = self.write("name = of the file\nschema = /nowhere.xml\nport = 1\nmodel = /nowhere.gguf\nlog = off\n")
        for order in (0, 1):  # wherever --config stands
            args = ["--name", "mine", "--schema", schema]
            server = Server(*(args + ["--config", path] if order else ["--config", path] + args)).wait_ready()
            try:
                self.assertEqual(server.get("/v1/models").json["data"][0]["id"], "mine")
                self.assertEqual(server.get("/v1/schemas/mine/layout").status, 200)
            finally:
                server.stop()

    def test_refused(self):
        for text, says in (("port = 1\nprot = 2\n", "FILE:2: unknown option 'prot': did you mean 'port'?"),
                           ("frobnicate = 2\n", "FILE:1: unknown option 'frobnicate': see"),
                           ("# x\n\nport = high\n", "FILE:3: port = high: give a whole number from 0 to 65535"),
                           ("port = 65536", "FILE:1: port = 65536: give"), ("port", "FILE:1: 'port' needs a value: port = N"),
                           ("port =", "FILE:1: 'port' needs a value"), ("log = some", "FILE:1: log = some: give one of requests, off"),
                           ("no-tcp = maybe", "FILE:1: no-tcp = maybe: give true or false"), ("max-body = 3X", "FILE:1: max-body = 3X"),
                           ("config = other.conf", "FILE:1: unknown option 'config'"), ("--port = 3", "FILE:1: unknown option '--port'"),
                           ("= 3", "FILE:1: unknown option ''"), ("port = 1\0", "zero byte"),
                           ("schema = a.xml\n" * 257, "FILE:257: schema = a.xml: give at most 256 values")):
            with self.subTest(text[:40]):
                self.refused(text, says)
        done = subprocess.run([PROGRAM, "serve", "-m", MODEL, "--config", self.folder.name + "/none"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("/none", done.stderr)


if __name__ == "__main__":
    unittest.main()
