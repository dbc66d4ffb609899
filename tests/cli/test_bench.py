#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise bench`: loads, their reports, the Chrome trace, and what it says when it is used wrongly."""
import json
import os
import subprocess
import tempfile
import unittest

SOURCE = os.environ.get("REPRISE_SOURCE_DIR", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
PROGRAM = os.environ.get("REPRISE_PROGRAM", os.path.join(SOURCE, "build", "reprise"))
MODEL = os.path.join(SOURCE, "models", "reprise-mini.gguf")
FAST = ["--prompt-tokens", "24", "-n", "12", "--ctx", "512"]


def bench(*args):
    return subprocess.run([PROGRAM, "bench", "-m", MODEL, *args], capture_output=True, text=True, check=False)


class Bench(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name, content=None):
        path = os.path.join(self.folder.name, name)
        if content is not None:
            with open(path, "w", encoding="utf-8") as f:
                f.write(content)
        return path

    def objects(self, *args):
        done = bench(*args, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def fails(self, status, says, *args):
        done = bench(*args)
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertIn(says, done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertEqual(done.stdout, "")

    def test_wrong_use(self):
        for option, value in (("--load", "poison"), ("--seconds", "0"), ("--rate", "-1"), ("--rate", "nan"), ("--scale", "3"),
                              ("--scale", "1024"), ("--goal", "-1"), ("--parallel", "0"), ("--sequences", "257"),
                              ("--long-every", "x"), ("-n", "0")):
            with self.subTest(option=option, value=value):
                self.fails(2, "give ", option, value)
        self.fails(2, "--requests", "--load", "replay")
        self.fails(2, "--load replay", "--requests", "x")
        self.fails(2, "did you mean '--seconds'", "--second", "1")
        self.fails(2, "--ctx", "--long-tokens", "4000")

    def test_requests_are_checked(self):
        good = '{"timestamp": 0, "input_length": 600, "output_length": 8, "hash_ids": [1, 2]}\n'
        replay = ["--load", "replay", "--requests"]
        self.fails(1, "/nowhere/x", *replay, "/nowhere/x")
        for line, says in (("{", "not JSON"), ("[1]", "an object"), ('{"input_length": 5}', '"output_length"'),
                           ('{"input_length": 0, "output_length": 1, "hash_ids": [1]}', '"input_length"'),
                           ('{"input_length": 5.5, "output_length": 1, "hash_ids": [1]}', '"input_length"'),
                           ('{"input_length": 513, "output_length": 1, "hash_ids": [1]}', "ids"),
                           ('{"input_length": 5, "output_length": 1, "hash_ids": [-1]}', "hash_ids")):
            with self.subTest(line=line):
                path = self.path("bad.jsonl", good + "\n" + line + "\n")
                self.fails(1, says, *replay, path)
                self.fails(1, f"{path}:3:", *replay, path)
        self.fails(1, "no requests", *replay, self.path("empty.jsonl", "\n"))

    def check_times(self, times):
        self.assertLessEqual(times["p50"], times["p90"])
        self.assertLessEqual(times["p90"], times["p99"])
        self.assertLessEqual(times["p99"], times["max"])
        self.assertGreater(times["n"], 0)

    def test_poisson(self):
        report, = self.objects("--seconds", "1", "--rate", "20", "--long-tokens", "200", "--long-every", "0.5", "--seed", "3", *FAST)
        self.assertEqual(report["errors"], {})
        for kind in ("short", "long"):
            calls = report["calls"][kind]
            self.assertEqual(calls["submitted"], calls["done"])
            self.assertGreater(calls["done"], 0)
            self.assertGreater(calls["answer_tokens"], 0)
            for times in ("ttft_ms", "tbt_ms", "queue_ms"):
                self.check_times(calls[times])
            self.assertLess(calls["cached_tokens"], 0.1 * calls["prompt_tokens"])  # prompts are new
        self.assertEqual(report["calls"]["long"]["done"], 2)
        memory, steps = report["memory"], report["steps"]
        self.assertGreaterEqual(memory["peak"], memory["resident"])
        self.assertLessEqual(memory["kv_used"], memory["kv_limit"])
        answers = sum(c["answer_tokens"] for c in report["calls"].values())
        prompts = sum(c["prompt_tokens"] - c["cached_tokens"] for c in report["calls"].values())
        self.assertEqual(steps["prefill_rows"], prompts)
        self.assertEqual(steps["decode_rows"], answers - sum(c["done"] for c in report["calls"].values()))

    def test_the_seed_decides(self):
        def tokens(*more):
            report, = self.objects("--seconds", "0.5", "--rate", "20", "--long-every", "0", *FAST, *more)
            short = report["calls"]["short"]
            return short["submitted"], short["prompt_tokens"], short["answer_tokens"]
        self.assertEqual(tokens("--seed", "1"), tokens("--seed", "1"))
        self.assertNotEqual(tokens("--seed", "1"), tokens("--seed", "2"))

    def test_shared_beginnings_are_found(self):
        report, = self.objects("--seconds", "0.5", "--rate", "20", "--long-every", "0", "--shared-tokens", "300", *FAST)
        short = report["calls"]["short"]
        self.assertGreaterEqual(short["cached_tokens"], 300 * short["done"])
        self.assertLess(short["cached_tokens"], 303 * short["done"])

    def test_poisson_text(self):
        done = bench("--seconds", "0.3", "--rate", "20", "--long-every", "0", *FAST)
        self.assertEqual(done.returncode, 0, done.stderr)
        for word in ("inter-token latency, ms", "short", "speed", "steps", "queue", "memory"):
            self.assertIn(word, done.stdout)
        self.assertNotIn("long", done.stdout)

    def test_replay_finds_what_is_there(self):
        rows = [([1, 2], 1024, None), ([1, 2], 1024, 127), ([1, 3], 1024, 64), ([4, 2], 1024, 0), ([1, 2, 5], 1536, 128),
                ([1, 2, 5], 1200, 149), ([1, 3, 5], 1088, 128)]
        path = self.path("requests.jsonl", "".join(
            json.dumps({"timestamp": 0, "input_length": n, "output_length": 64, "hash_ids": ids}) + "\n" for ids, n, _ in rows))
        *requests, report = self.objects("--load", "replay", "--requests", path, "--scale", "8")
        self.assertEqual([r["request"] for r in requests], list(range(len(rows))))
        first = requests[0]["prompt_tokens"] - 128  # tokens that every text begins with
        self.assertEqual(requests[0]["cached_tokens"], 0)
        for (_, n, found), request in zip(rows[1:], requests[1:]):
            self.assertEqual(request["prompt_tokens"], first + n // 8)
            self.assertEqual(request["cached_tokens"], first + found, request)
            self.assertEqual(request["answer_tokens"], 8)
        total = sum(r["prompt_tokens"] for r in requests)
        self.assertAlmostEqual(report["hit_rate"], sum(r["cached_tokens"] for r in requests) / total, places=6)
        self.compare_with_ideal(path, report["hit_rate"], first)
        self.assertEqual(len(self.objects("--load", "replay", "--requests", path, "--scale", "8", "--count", "2")), 3)

    def test_replay_tells_what_did_not_fit(self):
        path = self.path("long.jsonl", json.dumps({"input_length": 4096, "output_length": 8, "hash_ids": list(range(8))}) + "\n")
        done = bench("--load", "replay", "--requests", path, "--json")
        self.assertEqual(done.returncode, 1)
        self.assertIn("1 requests failed", done.stderr)
        request, report = map(json.loads, done.stdout.splitlines())
        self.assertIn("context", request["error"])
        self.assertEqual(report["errors"], {"RP_ERR_CONTEXT": 1})

    def compare_with_ideal(self, path, hit_rate, first):
        tool = os.path.join(SOURCE, "tools", "ideal_cache")
        ideal = subprocess.run([tool, path, "--scale", "8",
                                "--tokens", "inf", "--first", str(first), "--json"], capture_output=True, text=True, check=True)
        self.assertAlmostEqual(json.loads(ideal.stdout)["hit_rate"], hit_rate, places=6)

    def test_soak(self):
        done = bench("--load", "soak", "--seconds", "2", "--kv-ram", "16M", "--ctx", "512", "--parallel", "8", "--json")
        sanitized = os.environ.get("REPRISE_BUILD_DIR", "").endswith("san")
        if sanitized:  # memory is theirs then
            self.assertNotIn("calls failed", done.stderr)
        else:
            self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        self.assertGreater(report["calls"]["texts"]["done"], 0)
        self.assertGreater(report["calls"]["modular"]["done"], 0)
        self.assertTrue(report["verdict"]["inside"] or sanitized)
        self.assertLessEqual(set(report["errors"]), {"RP_ERR_BUSY", "RP_ERR_DEADLINE", "RP_ERR_CANCELLED"})

    def test_all_memory_stays_within_ram(self):
        if os.environ.get("REPRISE_BUILD_DIR", "").endswith("san"):
            self.skipTest("sanitizers take memory of their own")
        done = bench("--load", "soak", "--seconds", "3", "--ram", "56M", "--ctx", "512", "--parallel", "8", "--json")
        memory = json.loads(done.stdout)["memory"]
        self.assertLessEqual(memory["peak"], 56 << 20)
        self.assertGreater(memory["kv_limit"], 16 << 20)
        small = bench("--load", "soak", "--seconds", "1", "--ram", "20M", "--json")
        self.assertEqual(small.returncode, 1)
        self.assertRegex(small.stderr, r"--ram \(20 MiB\) leaves no memory for the KV cache: .* raise --ram")

    def test_soak_with_a_disk(self):
        folder = self.path("store")
        done = bench("--load", "soak", "--seconds", "2", "--kv-ram", "16M", "--ctx", "512", "--parallel", "8", "--store", folder, "--disk",
                     "8M", "--json")
        disk = json.loads(done.stdout)["verdict"]["disk"]
        self.assertTrue(disk["inside"], disk)
        self.assertEqual(disk["budget_bytes"], 8 << 20)
        self.assertGreater(disk["first"]["looks"], 0)
        self.assertGreater(disk["first"]["bytes"], 0)
        self.assertGreater(disk["first"]["index_bytes"], 0)
        self.assertGreater(disk["first"]["open_files"], 0)
        self.assertGreater(disk["first"]["threads"], 1)

    def test_trace(self):
        path = self.path("trace.json")
        self.objects("--seconds", "0.5", "--rate", "20", "--long-tokens", "200", "--long-every", "0.4", "--trace", path, *FAST)
        with open(path, encoding="utf-8") as f:
            events = json.load(f)
        names = {e["args"]["name"] for e in events if e["ph"] == "M"}
        self.assertLessEqual({"engine", "calls", "steps"}, names)
        tracks = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name" and e["pid"] == 2}
        self.assertTrue(any(name.startswith("short request") for name in tracks.values()))
        self.assertTrue(any(name.startswith("long request") for name in tracks.values()))
        slices = [e for e in events if e["ph"] == "X"]
        steps = [e for e in slices if e["pid"] == 1]
        self.assertTrue(all(e["ts"] >= 0 and e["dur"] >= 0 for e in slices))
        self.assertTrue(all(e["args"]["rows"] > 0 and "predicted_us" in e["args"] and e["args"]["actual_us"] == e["dur"] for e in steps))
        for tid in tracks:
            phases = [e["name"] for e in sorted((e for e in slices if e["pid"] == 2 and e["tid"] == tid), key=lambda e: e["ts"])]
            self.assertEqual(phases[0], "queue")
            self.assertIn("prefill", phases)
            self.assertEqual(sorted(phases[1:], key=lambda p: p != "prefill"), phases[1:])  # no decode before a prefill
        counters = {e["name"] for e in events if e["ph"] == "C"}
        self.assertEqual(counters, {"rows", "calls", "KV bytes"})
        rows = sum(e["args"]["rows"] for e in slices if e["pid"] == 2 and e["name"] != "queue")
        self.assertEqual(rows, sum(e["args"]["rows"] for e in steps))

    def test_trace_needs_a_file(self):
        self.fails(1, "/nowhere/t", "--seconds", "0.2", "--long-every", "0", "--trace", "/nowhere/t", *FAST)


if __name__ == "__main__":
    unittest.main()
