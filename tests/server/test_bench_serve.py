#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise bench serve`: its workloads against the server, its counts against the server's, and what it makes of servers that answer badly,
late or never."""
import http.server
import json
import os
import socket
import subprocess
import tempfile
import threading
import unittest

from server_process import MODEL, PROGRAM, WAIT_S, Server, finish_load, key_line, load_of

FAST = ["-n", "6", "--prompt-tokens", "16"]
KEY = "key-of-bench-0123456789"


def bench(*args, env=None):
    return subprocess.run([PROGRAM, "bench", "serve", *args], capture_output=True, text=True, check=False, timeout=WAIT_S,
                          env={**os.environ, **(env or {})})


class Wrong(unittest.TestCase):
    def fails(self, status, says, *args):
        done = bench(*args)
        self.assertEqual((done.returncode, done.stdout), (status, ""), done.stderr)
        self.assertIn(says, done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)

    def test_wrong_use(self):
        for option, value in (("--rate", "0"), ("--count", "0"), ("--workload", "rondom"), ("--reuse", "all"), ("--connections", "0"),
                              ("--ttft-limit", "-1"), ("--pick", "0"), ("--scale", "3")):
            with self.subTest(option=option):
                self.fails(2, "give ", option, value)
        self.fails(2, "--requests FILE", "--workload", "trace")
        self.fails(2, "--workload trace", "--requests", "x")
        self.fails(2, "--workload retrieval", "--reuse", "modular")
        self.fails(2, "--documents", "--documents", "2", "--pick", "3", "--workload", "retrieval")
        self.fails(2, "only http and https", "--url", "ftp://localhost")

    def test_nobody_there(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{s.getsockname()[1]}"
            self.fails(1, f"cannot reach {url}: ", "--url", url)
        self.fails(1, "cannot reach unix:/nowhere/s", "--unix", "/nowhere/s")
        self.fails(1, "/nowhere/x", "--workload", "trace", "--requests", "/nowhere/x")


class Workloads(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.socket = os.path.join(cls.folder.name, "s")
        cls.server = Server("--log", "off", "--unix", cls.socket).wait_ready()
        cls.addClassCleanup(cls.server.stop)

    def run_load(self, *options):
        """The report, which agrees with what the server counted."""
        before = self.server.wait_idle()
        status, report, errors = finish_load(load_of(self.server, "-m", MODEL, *FAST, *options))
        after = self.server.wait_idle()
        self.assertEqual((status, errors, report["errors"]), (0, "", {}))
        self.assertEqual(report["requests"]["sent"], report["requests"]["done"])
        for name, counted in (("prompt_tokens", "prompt"), ("cached_tokens", "cached"), ("answer_tokens", "answer")):
            self.assertEqual(report[name], after[f"reprise_{counted}_tokens_total"] - before[f"reprise_{counted}_tokens_total"], name)
        for name in ("ttft_ms", "tbt_ms", "mean_tbt_ms", "total_ms"):
            times = report[name]
            self.assertGreater(times["n"], 0)
            self.assertTrue(times["p50"] <= times["p90"] <= times["p95"] <= times["p99"] <= times["max"], times)
        self.assertEqual(report["ttft_ms"]["n"], report["requests"]["done"])
        return report

    def test_random(self):
        report = self.run_load("--count", "20", "--rate", "100", "--shared-tokens", "0")
        self.assertEqual(report["requests"]["done"], 20)
        self.assertEqual(report["goodput"]["requests"], 20)
        self.assertLess(report["hit_rate"], 0.6)  # what the chat format puts before each

    def test_a_salt_keeps_runs_apart(self):
        options = ["--count", "8", "--rate", "100", "--shared-tokens", "300"]
        first, again = self.run_load(*options)["hit_rate"], self.run_load(*options)["hit_rate"]
        same = [self.run_load(*options, "--salt", "s", "--seed", "5")["cached_tokens"] for _ in range(2)]
        self.assertAlmostEqual(first, again, delta=0.3)
        self.assertGreater(same[1], same[0])  # all was there

    def test_chat(self):
        report = self.run_load("--workload", "chat", "--count", "40", "--rate", "200", "--conversations", "3", "--turns", "4")
        self.assertGreater(report["hit_rate"], 0.4)

    def test_retrieval(self):
        options = ["--workload", "retrieval", "--count", "12", "--rate", "100", "--documents", "6", "--pick", "3", "--document-tokens", "40"]
        report = self.run_load(*options)
        self.assertGreater(report["prompt_tokens"], 12 * (3 * 40 + 8))

    def test_trace(self):
        path = os.path.join(self.folder.name, "trace.jsonl")
        rows = [(0, [1, 2], 1000), (5, [1, 3], 1000), (9, [1, 2], 1024), (9, [4], 512)]
        with open(path, "w", encoding="utf-8") as f:
            for at, ids, n in rows:
                f.write(json.dumps({"timestamp": at, "input_length": n, "output_length": 64, "hash_ids": ids}) + "\n")
        report = self.run_load("--workload", "trace", "--requests", path, "--scale", "8", "--speed", "10")
        self.assertEqual((report["requests"]["done"], report["answer_tokens"]), (4, 4 * 8))
        with open(path, "a", encoding="utf-8") as f:
            f.write(json.dumps({"timestamp": 1, "input_length": 8, "output_length": 8, "hash_ids": [1]}) + "\n")
        done = bench("--url", self.server.addresses[0], "--workload", "trace", "--requests", path)
        self.assertEqual(done.returncode, 1)
        self.assertIn("request 5", done.stderr)

    def test_each_and_text(self):
        done = bench("--unix", self.socket, "--count", "6", "--rate", "100", "--each", *FAST)
        self.assertEqual(done.returncode, 0, done.stderr)
        each = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        self.assertEqual(len(each), 6)
        for request in each:
            self.assertLessEqual(0, request["due_ms"])
            self.assertLessEqual(request["ttft_ms"], request["total_ms"])
        for words in ("first token", "inter-token latency, mean", "6 sent, 6 answered, 0 failed", "goodput", "unix:"):
            self.assertIn(words, done.stdout)

    def test_warm_up_is_not_counted(self):
        report = bench("--url", self.server.addresses[0], "--count", "2", "--rate", "100", "--warm-up", "3", "--json", *FAST)
        self.assertEqual(json.loads(report.stdout)["requests"]["sent"], 2)

    def test_few_connections(self):
        report = self.run_load("--count", "30", "--rate", "10000", "--connections", "2")
        self.assertGreater(report["requests"]["waited"], 0)

    def test_limits(self):
        _, report, _ = finish_load(load_of(self.server, "--count", "5", "--rate", "100", "--ttft-limit", "0.001", *FAST))
        self.assertEqual((report["goodput"]["requests"], report["goodput"]["share"]), (0, 0))

    def test_refusals_are_no_failures(self):
        server = Server("--log", "off", "--sequences", "1", "--queue", "1").wait_ready()
        self.addCleanup(server.stop)
        status, report, errors = finish_load(load_of(server, "--count", "40", "--rate", "10000", "-n", "200", "--prompt-tokens", "16"))
        self.assertEqual((status, errors), (0, ""))
        self.assertEqual(set(report["errors"]), {"503"})
        self.assertEqual(report["requests"]["done"] + report["errors"]["503"], 40)

    def test_keys(self):
        path = os.path.join(self.folder.name, "keys")
        with open(path, "w", encoding="utf-8") as f:
            f.write(key_line(KEY))
        server = Server("--log", "off", "--api-keys", path).wait_ready()
        self.addCleanup(server.stop)
        options = ["--url", server.addresses[0], "--count", "3", "--rate", "100", *FAST]
        self.assertEqual(bench(*options, env={"REPRISE_API_KEY": KEY}).returncode, 0)
        done = bench(*options, env={"REPRISE_API_KEY": "x"})
        self.assertEqual(done.returncode, 1)
        self.assertIn("3 requests failed; the first: 401", done.stderr)


class Strange(http.server.BaseHTTPRequestHandler):
    """A server like llama.cpp's whose answers depend on how many it gave."""
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def event(self, data):
        body = f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()
        self.wfile.write(f"{len(body):x}\r\n".encode() + body + b"\r\n")

    def begin(self, status=200):
        self.send_response(status)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        kind = self.server.kinds.pop(0) if self.server.kinds else "good"
        if kind == "closed":
            self.close_connection = True
            return
        if kind == "never":
            self.server.asked.release()
            self.server.free.wait(WAIT_S)
            self.close_connection = True
            return
        if kind == "500":
            body = b'{"error": {"message": "no luck"}}'
            self.send_response(500)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return
        self.begin()
        self.event({"choices": [{"delta": {"role": "assistant", "content": None}}]})
        self.event({"choices": [{"delta": {"content": "a"}}]})
        if kind == "cut":
            self.close_connection = True
            return
        if kind == "error":
            self.event({"error": {"message": "it broke"}})
        elif kind == "garbage":
            self.event("{no json")
        else:
            self.event({"choices": [{"delta": {"content": "b"}}]})
            self.event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2}, "timings": {"cache_n": 5}})
        self.event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")


class Servers(unittest.TestCase):
    def serve(self, kinds):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Strange)
        server.daemon_threads = True
        server.kinds, server.asked, server.free = kinds, threading.Semaphore(0), threading.Event()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.addCleanup(server.free.set)
        return server, f"http://127.0.0.1:{server.server_address[1]}"

    def run_load(self, url, n, *options):
        done = bench("--url", url, "--count", str(n), "--rate", "10", "--json", *options)
        return done, json.loads(done.stdout)

    def test_counts_of_others(self):
        _, url = self.serve([])
        done, report = self.run_load(url, 4, "--rate", "100")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((report["prompt_tokens"], report["cached_tokens"], report["answer_tokens"]), (28, 20, 8))
        self.assertEqual(report["tbt_ms"]["n"], 4)

    def test_what_goes_wrong_is_told(self):
        for kind, error, says in (("closed", "closed", "closed"), ("cut", "in stream", "in stream"), ("error", "in stream", "it broke"),
                                  ("garbage", "in stream", "not JSON"), ("500", "500", "no luck")):
            with self.subTest(kind=kind):
                _, url = self.serve([kind])
                done, report = self.run_load(url, 3)
                self.assertEqual((done.returncode, report["errors"], report["requests"]["done"]), (1, {error: 1}, 2))
                self.assertIn("1 requests failed; the first: ", done.stderr)
                self.assertIn(says, done.stderr)
        _, url = self.serve(["500"])
        done = bench("--url", url, "--warm-up", "2", "--count", "2")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("no luck", done.stderr)

    def test_arrivals_wait_for_nobody(self):
        """Open loop: of a server that answers nothing all requests are asked."""
        server, url = self.serve(["never"] * 12)
        load = subprocess.Popen([PROGRAM, "bench", "serve", "--url", url, "--count", "12", "--rate", "1000", "--json"], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)
        self.addCleanup(load.kill)
        for _ in range(12):
            self.assertTrue(server.asked.acquire(timeout=WAIT_S))
        server.free.set()
        status, report, _ = finish_load(load)
        self.assertEqual((status, report["requests"]["sent"], report["errors"]), (1, 12, {"closed": 12}))

    def test_patience(self):
        _, url = self.serve(["never"])
        done, report = self.run_load(url, 1, "--patience", "0.3")
        self.assertEqual((done.returncode, report["errors"]), (1, {"silent": 1}))


if __name__ == "__main__":
    unittest.main()
