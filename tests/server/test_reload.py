#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise serve` as a service: SIGHUP reads the files of --schema again, and what did not change keeps its states; systemd is told when the
server is ready."""
import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import unittest

from server_process import JSON, MODEL, PROGRAM, WAIT_S, Server

SCHEMA = "<schema name='facts'><module name='tom'>Tom had a red ball.</module><module name='ann'>{}</module></schema>"
PROMPT = "<prompt schema='facts'><tom/><ann/> Who had it?</prompt>"


def reloads(server):
    return [line for line in server.said().splitlines(True) if line.startswith("reloaded ") and line.endswith("\n")]


def reload(server):
    """The line that the log gets."""
    before = len(reloads(server))
    server.process.send_signal(signal.SIGHUP)
    while len(reloads(server)) == before:
        server.get("/livez")
    return reloads(server)[-1]


class Reload(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "facts.xml")
        self.write(SCHEMA.format("Ann had a blue hat."))
        self.server = Server("--log", "off", "--schema", self.path).wait_ready()
        self.addCleanup(self.server.stop)

    def write(self, text):
        with open(self.path, "w", encoding="utf-8") as f:
            f.write(text)

    def reload(self):
        return reload(self.server)

    def modules(self):
        nodes = self.server.get("/v1/schemas/facts/layout").json["nodes"]
        return {n["path"]: (n["cached"], n["key"]) for n in nodes if n["kind"] == "module"}

    def test_what_did_not_change(self):
        self.assertEqual(self.server.post("/v1/prompts", {"prompt": PROMPT, "max_tokens": 1}).status, 200)
        before = self.modules()
        self.assertTrue(before["tom"][0] and before["ann"][0])
        self.write(SCHEMA.format("Ann had a green kite and a blue hat."))
        self.assertEqual(self.reload(), "reloaded 1 of 1 schemas\n")
        after = self.modules()
        self.assertEqual(after["tom"], before["tom"])
        self.assertNotEqual(after["ann"][1], before["ann"][1])
        parts = self.server.post("/v1/prompts", {"prompt": PROMPT, "max_tokens": 1}).json["reprise"]["parts"]
        self.assertTrue(next(part for part in parts if part["module"] == "tom")["reused"])

    def test_what_cannot_be_read(self):
        before = self.modules()
        for text in ("<schema name='facts'><module", "<schema name='facts'><module name='tom'/><module name='tom'/></schema>"):
            self.write(text)
            self.assertEqual(self.reload(), "reloaded 0 of 1 schemas\n")
        os.unlink(self.path)
        self.assertEqual(self.reload(), "reloaded 0 of 1 schemas\n")
        self.assertEqual(self.modules(), before)
        self.assertEqual(self.server.said().count("facts.xml"), 3)

    def test_while_it_answers(self):
        stream = self.server.connection()
        stream.request("POST", "/v1/prompts", '{"prompt": "%s", "max_tokens": 300, "stream": true, "ignore_eos": true}' % PROMPT, JSON)
        reply = stream.getresponse()
        reply.read(10)
        for _ in range(3):
            self.assertEqual(self.reload(), "reloaded 1 of 1 schemas\n")
        self.assertIn(b"event: done", reply.read())
        stream.close()

    def test_pipes_that_nobody_reads(self):
        """Full ones of standard output and standard error do not keep SIGHUP from reading schemas again, nor SIGTERM from ending."""
        (out, out_end), (err, err_end) = os.pipe(), os.pipe()
        for end in (out, out_end, err, err_end):
            self.addCleanup(os.close, end)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "s")
            process = subprocess.Popen([PROGRAM, "serve", "-m", MODEL, "--unix", path, "--no-tcp", "--threads", "1", "--log", "off", "--schema", self.path],
                                       stdout=out_end, stderr=err_end)
            self.addCleanup(process.kill)
            said = b""
            while b"ready\n" not in said:
                said += os.read(out, 4096)
            self.server.addresses.append(f"unix:{path}")
            for end in (out_end, err_end):
                os.set_blocking(end, False)
                for size in (4096, 1):
                    with contextlib.suppress(BlockingIOError):
                        while True:
                            os.write(end, b"x" * size)
                os.set_blocking(end, True)
            for text in ("One.", "Two.", "Three."):
                self.write(f"<schema name='facts'><module name='tom'>{text}</module></schema>")
                process.send_signal(signal.SIGHUP)
                while self.server.get("/v1/schemas/facts/layout", address=-1).json["nodes"][-1]["preview"] != text:
                    self.assertIsNone(process.poll())
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(WAIT_S), 0)

    def test_without_schemas(self):
        server = Server("--log", "off").wait_ready()
        self.addCleanup(server.stop)
        self.assertEqual(reload(server), "reloaded 0 of 0 schemas\n")


class Notify(unittest.TestCase):
    def test_systemd(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "notify")
            for name, address in ((path, path), (f"@reprise-{os.getpid()}", f"\0reprise-{os.getpid()}")):
                with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
                    told.bind(address)
                    told.settimeout(WAIT_S)
                    server = Server("--log", "off", env={**os.environ, "NOTIFY_SOCKET": name}).wait_ready()
                    self.assertEqual(told.recv(100), b"READY=1")
                    server.stop()
                    self.assertEqual(told.recv(100), b"STOPPING=1")
        for name in ("/nowhere/at/all", "relative", "@", "/" + "x" * 200):
            Server("--log", "off", env={**os.environ, "NOTIFY_SOCKET": name}).wait_ready().stop()


if __name__ == "__main__":
    unittest.main()
