#!/usr/bin/env python3
"""`reprise cache`: its parts; `simulate`: table, JSON, curves, the trace of REPRISE_TEST_DATA; what it says when it is used wrongly."""
import json
import os
import re
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree

SOURCE = os.environ.get("REPRISE_SOURCE_DIR", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
PROGRAM = os.environ.get("REPRISE_PROGRAM", os.path.join(SOURCE, "build", "reprise"))
TRACE = os.path.join(os.environ.get("REPRISE_TEST_DATA", "/nowhere"), "traces", "mooncake_conversation_trace.jsonl")
POLICIES = ["LRU", "LFU", "ARC", "S3-FIFO", "Reprise", "optimum"]


def cache(*args, stdin=None):
    return subprocess.run([PROGRAM, "cache", *args], capture_output=True, text=True, check=False, input=stdin)


def line(ids, tokens=None):
    return json.dumps({"timestamp": 0, "input_length": tokens or 512 * len(ids), "output_length": 1, "hash_ids": ids}) + "\n"


class Cache(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        # room for three: LRU drops 3 for 4, the future keeps it
        self.trace = self.path("small.jsonl", line([1, 2]) + line([3]) + line([1, 2], 1000) + line([4]) + line([3]))

    def path(self, name, content=None):
        path = os.path.join(self.folder.name, name)
        if content is not None:
            with open(path, "w", encoding="utf-8") as f:
                f.write(content)
        return path

    def simulate(self, *args):
        done = cache("simulate", *args)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def fails(self, status, says, *args):
        done = cache(*args)
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertIn(says, done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertEqual(done.stdout, "")

    def test_wrong_use(self):
        self.fails(2, "needs a command")
        self.fails(2, "did you mean 'simulate'", "simulat")
        self.fails(2, "'reprise cache --help'", "zzz")
        self.fails(2, "unknown option '--json'", "--json")
        self.fails(2, "needs TRACE", "simulate")
        self.fails(2, "unexpected argument", "simulate", self.trace, "x")
        for sizes in ("", "0", "1/0", "3/2", "1/2,", "x", "-1", "1.5", "1/2/3", "99999999999999999999", ",".join(["1"] * 65)):
            with self.subTest(sizes=sizes):
                self.fails(2, "--sizes", "simulate", self.trace, "--sizes", sizes)

    def test_traces_are_checked(self):
        self.fails(1, "/nowhere/x", "simulate", "/nowhere/x")
        self.fails(1, ":2: ", "simulate", self.path("bad.jsonl", line([1]) + "[]\n"))
        other = self.path("other.jsonl", line([1, 2]) + line([3, 2]))
        self.fails(1, "request 1: block 2 stands behind another block", "simulate", other)
        self.fails(1, "/nowhere/c.svg", "simulate", self.trace, "--svg", "/nowhere/c.svg")

    def test_help(self):
        listed, explained = cache("--help"), cache("simulate", "--help")
        self.assertIn("simulate", listed.stdout)
        for args, same in ((["cache"], listed), (["cache", "simulate"], explained)):
            done = subprocess.run([PROGRAM, "help", *args], capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stdout), (0, same.stdout))
        with open(os.path.join(SOURCE, "docs", "man", "reprise-cache.1"), encoding="utf-8") as f:
            page = f.read()
        options = re.findall(r"^ +(?:-., )?--([a-z]+)", explained.stdout, re.M)
        self.assertGreater(len(options), 4)
        for option in options:
            self.assertIn(f"Fl -{option}", page)

    def test_results_worked_out_by_hand(self):
        report = json.loads(self.simulate(self.trace, "--sizes", "4,3/4", "--json", "--attention", "1000000000"))
        self.assertEqual((report["requests"], report["blocks"], report["working_set_blocks"], report["prompt_tokens"]), (5, 7, 4, 3560))
        three, four = report["sizes"]
        self.assertEqual((three["size"], three["blocks"], four["size"], four["blocks"]), ("3/4", 3, "4", 4))
        self.assertEqual(list(three["policies"]), POLICIES)
        self.assertEqual(three["policies"]["LRU"]["hit_tokens"], 1000)
        self.assertEqual(three["policies"]["optimum"]["hit_tokens"], 1512)
        for policy in POLICIES:
            cell = four["policies"][policy]
            self.assertEqual(cell["hit_tokens"], 1512)
            self.assertAlmostEqual(cell["hit_percent"], 100 * 1512 / 3560, places=2)
            self.assertAlmostEqual(cell["saved_percent"], cell["hit_percent"], places=2)
        few = json.loads(self.simulate(self.trace, "--count", "2", "--json"))
        self.assertEqual((few["requests"], few["working_set_blocks"]), (2, 3))

    def test_table(self):
        rows = self.simulate(self.trace, "--sizes", "1/2,3").splitlines()
        self.assertEqual(rows[-3].split(), ["size", "blocks"] + POLICIES)
        self.assertEqual(rows[-2].split()[:2], ["1/2", "2"])
        self.assertEqual(rows[-1].split()[:2], ["3", "3"])
        with open(self.trace, encoding="utf-8") as f:
            self.assertEqual(cache("simulate", "-", "--sizes", "1/2,3", stdin=f.read()).stdout.splitlines(), rows)

    def test_curves(self):
        for sizes in ("1/4,1/2,1/1", "2", "3,3"):
            svg = self.path("curves.svg")
            self.simulate(self.trace, "--sizes", sizes, "--svg", svg)
            root = ElementTree.parse(svg).getroot()
            curves = [e for e in root.iter("{http://www.w3.org/2000/svg}polyline")]
            self.assertEqual(len(curves), 2 * len(POLICIES))  # with the legend's
            for curve in curves:
                for point in curve.get("points").split():
                    x, y = map(float, point.split(","))
                    self.assertTrue(0 <= x <= float(root.get("width")) and 0 <= y <= float(root.get("height")))
            text = [e.text for e in root.iter("{http://www.w3.org/2000/svg}text")]
            for policy in POLICIES:
                self.assertIn(policy, text)

    @unittest.skipUnless(os.path.exists(TRACE), "REPRISE_TEST_DATA has no trace")
    def test_our_policy_saves_more(self):
        report = json.loads(self.simulate(TRACE, "--json"))
        self.assertEqual(report["working_set_blocks"], 182790)
        for size in report["sizes"][:-1]:
            saved = {policy: cell["saved_percent"] for policy, cell in size["policies"].items()}
            for policy in ("LRU", "LFU", "ARC", "S3-FIFO"):
                self.assertGreater(saved["Reprise"], saved[policy], size["size"])
            self.assertGreaterEqual(saved["optimum"], saved["Reprise"])
        self.assertEqual(len({cell["hit_tokens"] for cell in report["sizes"][-1]["policies"].values()}), 1)


if __name__ == "__main__":
    unittest.main()
