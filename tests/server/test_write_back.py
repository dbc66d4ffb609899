#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `reprise serve --store` writes, when, and what it removes for good: DELETE answers when the disk has it, SIGTERM ends within --drain on a
slow disk, and text that comes once neither churns a full store nor is written before what comes again. The disk is made slow by
tests/preload/io_faults.c: every fsync takes fsync_ms milliseconds longer while the file self.slow exists."""
import glob
import os
import pathlib
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
import unittest

from server_process import PROGRAM, SOURCE, WAIT_S, Server

WORDS = "the river city hill sun tree dog bird house small big run walk play red blue day night friend mother boy girl happy water".split()
FAULTS = os.path.join(SOURCE, "tests", "preload", "io_faults.c")
LAG_LIMIT_S = 6  # SPAN_WRITE_LAG_LIMIT_US


def document(number):
    return f"{number} stories. " + " ".join(WORDS[(number * 7 + i * (number % 11 + 1)) % len(WORDS)] for i in range(30))


class WriteBack(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.store = os.path.join(self.folder, "store")
        self.slow = os.path.join(self.folder, "slow")

    def start(self, *options, fsync_ms=0):
        env = dict(os.environ)
        if fsync_ms:
            library = os.path.join(self.folder, "slow.so")
            if not shutil.which("cc") or "asan" in os.environ.get("REPRISE_PROGRAM", "") or "tsan" in os.environ.get("REPRISE_PROGRAM", ""):
                self.skipTest("needs cc, and a program into which a library can be loaded")
            subprocess.run(["cc", "-shared", "-fPIC", "-o", library, FAULTS, "-ldl"], check=True)
            env.update(LD_PRELOAD=library, IO_FAULTS_BELOW=os.path.realpath(self.store), IO_FAULTS_DELAY_MS=str(fsync_ms),
                       IO_FAULTS_DELAY_IF=self.slow, REPRISE_LOG="warn")
        server = Server("--store", self.store, "--log", "off", *options, env=env).wait_ready()
        self.addCleanup(server.stop)
        return server

    def ask(self, server, number):
        reply = server.post("/v1/completions", {"prompt": document(number), "max_tokens": 1, "ignore_eos": True})
        self.assertEqual(reply.status, 200, reply.body)

    def keys(self, server):
        reply = server.get("/v1/cache/entries?limit=1000")
        self.assertEqual(reply.status, 200, reply.body)
        return {e["key"] for e in reply.json["data"]}

    def records(self):
        return {os.path.basename(p)[:64] for p in glob.glob(os.path.join(self.store, "?", "*.rps"))}

    def test_deleted_is_gone_when_delete_answers(self):
        server = self.start(fsync_ms=100)
        for number in range(8):
            self.ask(server, number)
        first = self.keys(server)
        until = time.monotonic() + WAIT_S
        while not first <= self.records():
            self.assertLess(time.monotonic(), until)
            time.sleep(0.01)
        open(self.slow, "w", encoding="ascii").close()
        for number in range(8, 16):  # the writer is busy with these
            self.ask(server, number)
        removed = set()
        for key in sorted(first)[:3] + sorted(self.keys(server) - first)[-1:]:
            reply = server.ask("DELETE", f"/v1/cache/entries/{key}")
            self.assertEqual((reply.status, reply.json["removed"]), (200, 1), reply.body)
            self.assertNotIn(key, self.records())
            removed.add(key)
        server.end(signal.SIGKILL)
        index = sqlite3.connect(os.path.join(self.store, "index.db"))  # before a start puts it right
        self.assertFalse(removed & {row[0].hex() for row in index.execute("SELECT key FROM records")})
        index.close()
        again = self.start()
        self.assertFalse(removed & self.keys(again))
        self.assertEqual(again.end(), 0)
        subprocess.run([PROGRAM, "cache", "gc", "--store", self.store], check=True, capture_output=True)
        left = b"".join(pathlib.Path(p).read_bytes() for p in glob.glob(os.path.join(self.store, "index.db*")))
        for key in removed:  # nor in a page that SQLite had split
            self.assertNotIn(bytes.fromhex(key), left)

    def test_sigterm_ends_within_the_drain_on_a_slow_disk(self):
        server = self.start("--drain", "500", fsync_ms=500)
        open(self.slow, "w", encoding="ascii").close()
        for number in range(60):
            self.ask(server, number)
        waiting = server.metrics()["reprise_store_disk_waiting_spans"]
        self.assertGreater(waiting, 30)
        self.assertEqual(server.end(), 0)
        self.assertIn("were not written before the end", server.said())
        os.unlink(self.slow)
        self.assertLess(len(self.records()), 60)
        self.assertEqual(glob.glob(os.path.join(self.store, "?", "*.tmp")), [])
        self.ask(self.start(), 0)

    def test_the_lag_is_bounded_on_a_slow_disk(self):
        server = self.start("--drain", "1000", fsync_ms=150)
        open(self.slow, "w", encoding="ascii").close()
        number, lag, m = 0, 0, {}
        until = time.monotonic() + LAG_LIMIT_S + 1
        while time.monotonic() < until:
            for _ in range(2):  # the second use makes it due
                self.ask(server, number)
            number += 1
            m = server.metrics()
            lag = max(lag, m["reprise_store_disk_lag_seconds"])
        self.assertLess(lag, LAG_LIMIT_S)
        self.assertGreater(m["reprise_store_disk_late_total"], 0)
        self.assertGreater(m["reprise_store_disk_writes_total"], 0)
        reply = server.post("/v1/completions", {"prompt": document(0), "max_tokens": 1, "ignore_eos": True})
        self.assertGreater(reply.json["usage"]["prompt_tokens_details"]["cached_tokens"], 0)  # in RAM, written or not
        self.assertEqual(server.end(), 0)
        os.unlink(self.slow)
        self.assertEqual(glob.glob(os.path.join(self.store, "?", "*.tmp")), [])

    def test_text_that_comes_once_does_not_churn_a_full_store(self):
        server = self.start("--disk", "12M")
        for number in range(150):
            self.ask(server, number)
        m = server.metrics()
        self.assertLess(m["reprise_store_disk_write_bytes_total"], 2 * m["reprise_store_disk_budget_bytes"])
        self.assertGreater(m["reprise_store_disk_skipped_total"] + m["reprise_store_disk_once_bytes"], 0)

    def test_text_that_comes_twice_rewrites_the_store_at_most_once_a_minute(self):
        """A working set that does not fit: each text is used twice and evicted before its third use."""
        server = self.start("--disk", "12M")
        start = time.monotonic()
        number, turnovers = 0, 0
        while number < 300 or (turnovers <= 1.5 and time.monotonic() < start + WAIT_S):  # more texts, if the writer waits for a core
            self.ask(server, number)
            self.ask(server, number)
            number += 1
            if number >= 300:
                m = server.metrics()
                turnovers = m["reprise_store_disk_write_bytes_total"] / m["reprise_store_disk_budget_bytes"]
        self.assertLess(turnovers, 2.1 + (time.monotonic() - start) / 60)  # the empty store, the allowance, what it grew by
        self.assertGreater(turnovers, 1.5)

    def test_a_second_use_is_written_first(self):
        server = self.start("--disk", "12M")
        for number in range(100):
            self.ask(server, number)
        for number in (90, 91):
            for _ in range(20):  # outranks text used once whatever that cost to compute, measured beside other programs
                self.ask(server, number)
        server.end()
        again = self.start()
        for number in (90, 91):
            reply = again.post("/v1/completions", {"prompt": document(number), "max_tokens": 1, "ignore_eos": True})
            tiers = {part["tier"] for part in reply.json["reprise"]["parts"] if part["reused"]}
            self.assertIn("disk", tiers)
        self.assertEqual(again.metrics()["reprise_store_disk_lag_seconds"], 0)


if __name__ == "__main__":
    unittest.main()
