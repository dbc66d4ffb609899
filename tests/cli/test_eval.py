#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise eval` as its users meet it, and the bundled model by its answers: held-out tasks, every format, every error line."""
import csv
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

SOURCE = os.environ.get("REPRISE_SOURCE_DIR", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
PROGRAM = os.environ.get("REPRISE_PROGRAM", os.path.join(SOURCE, "build", "reprise"))
MODEL = os.path.join(SOURCE, "models", "reprise-mini.gguf")
ROUNDS = int(os.environ.get("REPRISE_TEST_ROUNDS", "0"))  # few under sanitizers
SCHEMA = '<schema name="s"><system>Read. <module name="a">Ormoor is a town in the east.</module> <module name="b">Two.</module></system></schema>'
PROMPT = '<prompt schema="s"><a/><b/><user>What is Ormoor?</user></prompt>'


def reprise(*arguments):
    return subprocess.run([PROGRAM, "eval", *arguments], capture_output=True, text=True, check=False)


def task(name):
    return os.path.join(SOURCE, "models", "eval", name + ".jsonl")


class Eval(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def file(self, name, *lines):
        path = os.path.join(self.folder.name, name)
        with open(path, "w", encoding="utf-8") as f:
            f.writelines((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
        return path

    def rows(self, *arguments):
        done = reprise("-m", MODEL, "--json", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["rows"]

    def test_answers(self):
        """What the model can do, on names and phrases it has not seen; nothing without the documents."""
        least = {"facts-1": 0.85, "facts-4": 0.8, "passkey": 0.95, "pairs-16": 0.9, "parameters": 0.75, "two-hop": 0.9, "persona": 0.8, "labels": 0.95}
        files = [x for name in least for x in ("-t", task(name))]
        limit = 4 if ROUNDS else 40
        for row in self.rows(*files, "-s", "exact", "--limit", str(limit)):
            with self.subTest(task=row["task"]):
                self.assertEqual(row["items"], limit)
                if not ROUNDS:
                    self.assertGreaterEqual(row["score"]["mean"], least[row["task"]])
        closed, = self.rows("-t", task("closed"), "-s", "exact", "--limit", str(limit))
        self.assertLessEqual(closed["score"]["mean"], 0.05)

    def test_settings(self):
        """The reference agrees with itself, computing anew changes nothing, and reuse reuses."""
        rows = {r["setting"]: r for r in self.rows("-t", task("facts-4"), "--limit", "4", "-s", "exact", "-s", "module", "-s", "module+off",
                                                   "-s", "scaffold", "-s", "module+fixed")}
        self.assertEqual((rows["exact"]["kl"]["mean"], rows["exact"]["agreement"]["mean"], rows["exact"]["cached_share"]), (0, 1, 0))
        for value in ("score", "kl", "agreement"):
            self.assertEqual(rows["module"][value], rows["module+off"][value])
        self.assertGreater(rows["module"]["cached_share"], 0.7)
        self.assertGreater(rows["module"]["kv_bytes"], 0)
        self.assertEqual(rows["module+off"]["cached_share"], 0)
        self.assertLess(rows["scaffold"]["kl"]["mean"], 1e-2)  # computed together: the plain run, but for roundings
        self.assertGreater(rows["module"]["kl"]["mean"], rows["scaffold"]["kl"]["mean"])

    def test_dial(self):
        """Tokens that are computed again are told, all of them give the plain run, and the drawing has a point for each setting."""
        svg, settings = os.path.join(self.folder.name, "svg"), ["exact", "module", "module+bos", "module+link:2", "module+link:4096"]
        rows = {r["setting"]: r for r in self.rows("-t", task("facts-4"), "--limit", "2", "--svg", svg, *(x for s in settings for x in ("-s", s)))}
        self.assertEqual([rows[s]["recomputed_tokens"] for s in settings[1:3]], [0, 0])
        self.assertLess(rows["module+link:4096"]["recomputed_tokens"], rows["exact"]["recomputed_tokens"])  # some views are exact already
        self.assertIn(rows["module+link:2"]["recomputed_tokens"], range(2 * 4, 2 * 5 + 1))  # documents, and text behind them
        self.assertLess(rows["module+link:4096"]["kl"]["mean"], 1e-3)
        self.assertNotEqual(rows["module"]["kl"], rows["module+bos"]["kl"])
        drawing = xml.etree.ElementTree.parse(svg)
        texts = [t.text for t in drawing.iter("{http://www.w3.org/2000/svg}text")]
        for s in settings:
            self.assertEqual(texts.count(s), 2, s)  # two diagrams

    def test_reduced_kv(self):
        """'*' is every method, bytes fall with the share, and the drawing has a label for each method and format."""
        svg, settings = os.path.join(self.folder.name, "svg"), ["path", "path+keep:25%+*", "path+kv-keep:50%:*", "path+kv-keep:25%:*", "path+int8", "path+kivi2"]
        rows = {r["setting"]: r for r in self.rows("-t", task("pairs-16"), "--limit", "2", "--svg-kv", svg, *(x for s in settings for x in ("-s", s)))}
        of_modules = {s.split("+", 2)[2] for s in rows if "+keep:" in s}
        of_requests = {s.split(":")[2] for s in rows if "kv-keep:" in s}
        self.assertTrue({"kvzip", "expected"} < of_modules and {"snapkv", "sinks"} < of_requests, rows.keys())
        self.assertEqual(len(rows), 3 + len(of_modules) + 2 * len(of_requests))
        self.assertLess(rows["path+keep:25%+kvzip"]["kv_bytes"], rows["path"]["kv_bytes"] / 2)
        self.assertEqual(rows["path"]["kept_share"], 1)
        self.assertTrue(rows["path+kv-keep:25%:snapkv"]["kept_share"] < rows["path+kv-keep:50%:snapkv"]["kept_share"] < 1)
        drawing = xml.etree.ElementTree.parse(svg)
        texts = [t.text for t in drawing.iter("{http://www.w3.org/2000/svg}text")]
        for label in (*of_modules, *of_requests):
            self.assertEqual(texts.count(label), (label in of_modules) + (label in of_requests), label)
        self.assertEqual([texts.count(label) for label in ("all, f16", "int8", "kivi2")], [2, 2, 1])
        n_curves = len(drawing.findall("{http://www.w3.org/2000/svg}polyline"))
        self.assertEqual(n_curves, len(of_modules) + len(of_requests) + 1)  # and the legend's

    def test_perplexity(self):
        """Given answers are scored token by token: what the prompt says is likelier than what it does not."""
        lines = [{"schema": SCHEMA, "prompt": PROMPT, "answers": [a], "metric": "perplexity"} for a in ("Not stated.", "zq 7 (x")]
        likely, = self.rows("-t", self.file("a.jsonl", lines[0]), "-s", "path")
        odd, = self.rows("-t", self.file("b.jsonl", lines[1]), "-s", "path")
        self.assertLess(likely["score"]["mean"], odd["score"]["mean"])
        self.assertGreaterEqual(likely["score"]["low"], 1)  # a perplexity, not its logarithm

    def test_formats(self):
        items, output = os.path.join(self.folder.name, "items"), os.path.join(self.folder.name, "table")
        base = ["-m", MODEL, "-t", task("facts-1"), "--limit", "3", "-s", "exact", "-s", "path"]
        table = reprise(*base).stdout
        self.assertIn("facts-1", table)
        self.assertEqual(len(table.splitlines()), 3)
        rows = list(csv.DictReader(io.StringIO(reprise(*base, "--csv").stdout)))
        self.assertEqual([r["setting"] for r in rows], ["exact", "path"])
        markdown = reprise(*base, "--markdown", "-o", output, "--items", items)
        self.assertEqual(len(markdown.stdout.splitlines()), 3)
        with open(output, encoding="utf-8") as f:
            lines = f.read().splitlines()
        self.assertEqual([line.count("|") for line in lines], [11] * 4)
        with open(items, encoding="utf-8") as f:
            self.assertEqual([json.loads(line)["line"] for line in f], [1, 1, 2, 2, 3, 3])

    def test_schema_files(self):
        """A schema may be a file beside the tasks, and a line without one has that of the line before."""
        self.file("s.xml", SCHEMA)
        item = {"prompt": PROMPT, "answers": "x", "metric": "f1"}
        row, = self.rows("-t", self.file("t.jsonl", item | {"schema": "s.xml"}, "", item), "-s", "path")
        self.assertEqual(row["items"], 2)

    def test_errors(self):
        good = {"schema": SCHEMA, "prompt": PROMPT, "answers": ["x"], "metric": "exact"}
        cases = [
            ("t.jsonl:1:", "not JSON", ["{"]),
            ("t.jsonl:1:", "expected an object", ["[1]"]),
            ("t.jsonl:2:", '"answers"', [good, good | {"answers": []}]),
            ("t.jsonl:1:", '"schema" is missing', [{k: v for k, v in good.items() if k != "schema"}]),
            ("t.jsonl:1:", '"prompt"', [good | {"prompt": 7}]),
            ("t.jsonl:1:", 'did you mean "exact"', [good | {"metric": "exakt"}]),
            ("t.jsonl:1:", '"answer" is not a field', [good | {"answer": "x"}]),
            ("t.jsonl:2:", "one file per metric", [good, good | {"metric": "f1"}]),
            ("t.jsonl:1:", "setting 'exact'", [good | {"prompt": '<prompt schema="s"><c/></prompt>'}]),
            ("t.jsonl", "no items", []),
        ]
        for where, what, lines in cases:
            with self.subTest(what=what):
                done = reprise("-m", MODEL, "-t", self.file("t.jsonl", *lines), "-s", "path")
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertEqual(done.stdout, "")
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
                self.assertIn(where, done.stderr)
                self.assertIn(what, done.stderr)
        for arguments in (["-m", MODEL], ["-m", MODEL, "-t", "x", "--json", "--csv"], ["-m", MODEL, "-t", "x", "-o", "y"],
                          ["-m", MODEL, "-t", "x", "-s", "fixed+packed"]):
            self.assertEqual(reprise(*arguments).returncode, 2)


if __name__ == "__main__":
    if not os.path.exists(MODEL):
        sys.exit(f"{MODEL} is missing")
    unittest.main()
