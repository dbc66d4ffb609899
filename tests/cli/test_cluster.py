#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise cluster simulate`: a made workload and a trace, as table and as JSON; faults; what it says when it is used wrongly. What it computes:
tests/cluster/test_simulation.c."""
import json
import os
import subprocess
import tempfile
import unittest

SOURCE = os.environ.get("REPRISE_SOURCE_DIR", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
PROGRAM = os.environ.get("REPRISE_PROGRAM", os.path.join(SOURCE, "build", "reprise"))
SMALL = ("--workload", "shared-prefix", "--count", "100", "--nodes", "2")


def simulate(*args):
    return subprocess.run([PROGRAM, "cluster", "simulate", *args], capture_output=True, text=True, check=False)


class Simulate(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.trace = os.path.join(folder.name, "small.jsonl")
        with open(self.trace, "w", encoding="utf-8") as f:
            for i in range(20):
                f.write(json.dumps({"timestamp": 100 * i, "input_length": 1024, "output_length": 4, "hash_ids": [1, 2 + i % 3]}) + "\n")

    def fails(self, status, says, *args):
        done = simulate(*args)
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertIn(says, done.stderr)
        self.assertEqual((len(done.stderr.splitlines()), done.stdout), (1, ""), done.stderr)

    def test_wrong_use(self):
        self.fails(2, "give a TRACE, or --workload")
        self.fails(2, f"leave out '{self.trace}'", self.trace, *SMALL)
        self.fails(2, f"leave out '{self.trace}'", self.trace, "--faults")
        self.fails(2, "--seeds needs --faults", *SMALL, "--seeds", "5")
        self.fails(2, "--policy 'best': give all, or some of random", *SMALL, "--policy", "cost,best")
        self.fails(2, "--admission 'never': give all, or some of off", *SMALL, "--admission", "never")
        self.fails(2, "add --admission predicted", *SMALL, "--ttft-goal", "5")
        self.fails(2, "leave out --prefill-nodes", *SMALL, "--prefill-nodes", "1", "--apart-by-cost")
        self.fails(1, "prefill_nodes is 2: give a number from 1 to 1", *SMALL, "--prefill-nodes", "2")
        self.fails(2, "--pool 'much': give", *SMALL, "--pool", "much")
        self.fails(1, "/nowhere/x", "/nowhere/x")

    def test_runs(self):
        for source in (SMALL, (self.trace,)):
            runs = json.loads(simulate(*source, "--policy", "round-robin,cost", "--json").stdout)["runs"]
            self.assertEqual([r["policy"] for r in runs], ["round-robin", "cost"])
            for run in runs:
                self.assertEqual(run["outcomes"]["served"], run["requests"])
                self.assertGreater(run["hit_tokens"], 0)
            table = simulate(*source, "--policy", "round-robin,cost")
            self.assertEqual(table.returncode, 0, table.stderr)
            self.assertTrue(all(word in table.stdout for word in ("round-robin", "cost", "served")), table.stdout)

    def test_pool(self):
        options = (self.trace, "--nodes", "2", "--policy", "round-robin", "--pool", "auto")
        run, = json.loads(simulate(*options, "--json").stdout)["runs"]
        self.assertGreater(run["fetched_names"], 0)
        self.assertGreater(run["hit_tokens"], run["fetched_tokens"])
        self.assertIn("fetched: names, from the pool", simulate(*options).stdout)
        run, = json.loads(simulate(*options, "--block", "1024", "--json").stdout)["runs"]
        self.assertEqual(run["prompt_tokens"], 20 * 1024)

    def test_apart(self):
        options = (*SMALL, "--prefill-nodes", "1")
        run, = json.loads(simulate(*options, "--json").stdout)["runs"]
        self.assertEqual((run["apart"], run["outcomes"]["served"]), (100, 100))
        self.assertGreater(run["e2e_mean_ms"], run["ttft_mean_ms"])
        self.assertIn("E2E mean", simulate(*options).stdout)

    def test_refused(self):
        run, = json.loads(simulate(*SMALL, "--rate", "1000", "--ttft-goal", "1", "--admission", "predicted", "--json").stdout)["runs"]
        self.assertEqual(run["outcomes"]["served"] + run["outcomes"]["refused-ttft"], 100)
        self.assertGreater(run["outcomes"]["refused-ttft"], 0)

    def test_faults(self):
        done = simulate("--faults", "--seed", "1", "--seeds", "5")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("5 seeds, ", done.stdout)
        self.assertIn("all invariants hold", done.stdout)


if __name__ == "__main__":
    unittest.main()
