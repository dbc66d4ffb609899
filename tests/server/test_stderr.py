#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise serve` whose standard error is a pipe that nobody reads: it answers all the same, ends when it is asked to, and counts what it left out."""
import os
import re
import signal
import subprocess
import unittest

from server_process import MODEL, PROGRAM, WAIT_S, Server

LINES = 1500  # of some 700 bytes: a pipe has 64 KiB, the queue 256 KiB


class Unread(Server):
    """Its standard error is a pipe: process.stderr is the other end."""

    def __init__(self, blocking=True):
        reader, writer = os.pipe()
        os.set_blocking(writer, blocking)
        self.process = subprocess.Popen([PROGRAM, "serve", "-m", MODEL, "--port", "0", "--threads", "1"], stdout=subprocess.PIPE, stderr=writer, text=True)
        os.close(writer)
        self.process.stderr = os.fdopen(reader, encoding="utf-8")
        self.addresses = []


class Stderr(unittest.TestCase):
    blocking = True

    def setUp(self):
        self.server = Unread(self.blocking).wait_ready()
        self.addCleanup(self.server.process.stdout.close)
        self.addCleanup(self.server.process.stderr.close)
        self.addCleanup(self.server.process.wait)
        self.addCleanup(self.server.process.kill)

    def ask_often(self):
        c = self.server.connection()
        for i in range(LINES):
            c.request("GET", "/v1/none/" + "x" * 400)
            self.assertEqual(c.getresponse().read()[:1], b"{", i)
        c.close()

    def test_it_serves_and_ends(self):
        self.ask_often()
        self.assertGreater(self.server.metrics()["reprise_log_dropped_total"], 0)
        self.server.process.send_signal(signal.SIGTERM)
        self.assertEqual(self.server.process.wait(WAIT_S), 0)

    def test_the_reader_comes_back(self):
        self.ask_often()
        asked = LINES + 1
        dropped = self.server.metrics()["reprise_log_dropped_total"]
        self.assertGreater(dropped, 0)
        lines, told = 0, 0
        while lines + told < asked:  # each is written, or told of
            line = self.server.process.stderr.readline()
            notice = re.fullmatch(r"reprise: warning: log: (\d+) lines dropped.*\n", line)
            told += int(notice[1]) if notice else 0
            lines += line.startswith("{")
        self.assertGreaterEqual(told, dropped)


class NonBlockingStderr(Stderr):
    blocking = False


if __name__ == "__main__":
    unittest.main()
