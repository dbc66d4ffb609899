#!/usr/bin/env python3
"""`reprise serve`: its log. A standard error that nobody reads, is closed, or is read late; warnings by default."""
import json
import os
import signal
import subprocess
import tempfile
import unittest

from server_process import MODEL, PROGRAM, WAIT_S, Server

PATH = "/nowhere/" + "x" * 1500
N = 1500  # its lines in the log are some 500 bytes: 64 KiB of a pipe and 256 KiB of the queue hold about half of them


class Unread(Server):
    """A server whose standard error is a pipe that nobody reads."""

    def __init__(self, *options, **more):
        self.errors = None
        self.process = subprocess.Popen([PROGRAM, "serve", "-m", MODEL, "--port", "0", "--threads", "1", *options], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, **more)
        self.addresses = []
        self.is_killed = False


class Log(unittest.TestCase):
    def ask_often(self, server):
        c = server.connection()
        for _ in range(N):
            c.request("GET", PATH)
            self.assertEqual(c.getresponse().read()[:1], b"{")
        c.close()

    def test_nobody_reads(self):
        server = Unread().wait_ready()
        self.addCleanup(server.process.kill)
        self.ask_often(server)
        dropped = server.metrics()["reprise_log_dropped_total"]
        self.assertGreater(dropped, 0)
        self.assertLess(dropped, N)
        lines = [server.process.stderr.readline() for _ in range(N - dropped)]  # what the pipe and the queue held
        self.assertEqual({json.loads(line)["path"][:9] for line in lines}, {PATH[:9]})
        report = server.process.stderr.readline()  # of these, and of the request for the metrics
        self.assertIn(f" {dropped + 1} log lines were dropped", report)
        self.assertEqual(server.end(), 0)
        server.process.stderr.close()

    def test_nobody_reads_until_the_end(self):
        server = Unread().wait_ready()
        self.addCleanup(server.process.kill)
        self.ask_often(server)
        self.assertEqual(server.end(signal.SIGTERM), 0)
        server.process.stderr.close()

    def test_standard_error_is_closed(self):
        server = Unread().wait_ready()
        self.addCleanup(server.process.kill)
        server.process.stderr.close()
        self.ask_often(server)
        self.assertGreater(server.metrics()["reprise_log_dropped_total"], 0)
        self.assertEqual(server.end(), 0)

    def test_warnings(self):
        with tempfile.TemporaryDirectory() as folder:
            for level, expected in ((None, 1), ("warn", 1), ("off", 0), ("error", 0)):
                env = {k: v for k, v in os.environ.items() if k != "REPRISE_LOG"}
                with self.subTest(level=level):
                    store = os.path.join(folder, f"store-{level}")
                    self.break_record(store)
                    done = self.run_over(store, {**env, "REPRISE_LOG": level} if level else env)
                    self.assertEqual(len([line for line in done.stderr.splitlines() if line.startswith("reprise: warn: store:")]), expected,
                                     done.stderr)

    def run_over(self, store, env=None):
        done = subprocess.run([PROGRAM, "run", "-m", MODEL, "--threads", "1", "--text", "Tom had a red ball and", "-n", "2", "--store", store],
                              capture_output=True, text=True, check=False, timeout=WAIT_S, env=env)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def break_record(self, store):
        self.run_over(store)
        for where, _, names in os.walk(store):
            for name in names:
                if name.endswith(".rps"):
                    with open(os.path.join(where, name), "r+b") as f:
                        f.seek(200)
                        f.write(b"damaged")


if __name__ == "__main__":
    unittest.main()
