#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise embed`: lines of JSON for arguments and for standard input, scores for a query, errors."""
import json
import math
import os
import subprocess
import unittest

SOURCE = os.environ.get("REPRISE_SOURCE_DIR", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
PROGRAM = os.environ.get("REPRISE_PROGRAM", os.path.join(SOURCE, "build", "reprise"))
FOLDER = os.path.join(SOURCE, "tests", "golden", "embeddings")
TEXTS = ["the sea", "a little girl who lived in a village", "she sells sea shells"]


def run(model, *args, text=""):
    return subprocess.run([PROGRAM, "embed", "-m", os.path.join(FOLDER, model + ".gguf"), *args], input=text, capture_output=True, text=True)


class Embed(unittest.TestCase):
    def lines(self, *args, **more):
        done = run(*args, **more)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        found = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([one["index"] for one in found], list(range(len(found))))
        return found

    def test_arguments_and_lines_are_the_same(self):
        by_arguments = self.lines("bert", *TEXTS)
        self.assertEqual(self.lines("bert", text="\n".join(TEXTS) + "\n"), by_arguments)
        self.assertEqual(self.lines("bert", text="\n".join(TEXTS)), by_arguments)
        self.assertEqual([len(one["embedding"]) for one in by_arguments], [64] * 3)
        for one in by_arguments:
            self.assertAlmostEqual(sum(v * v for v in one["embedding"]), 1, 5)
        self.assertEqual(self.lines("bert", text=""), [])

    def test_options(self):
        whole = self.lines("nomic-bert", TEXTS[0])[0]["embedding"]
        few = self.lines("nomic-bert", "--dimensions", "3", TEXTS[0])[0]["embedding"]
        length = math.sqrt(sum(v * v for v in whole[:3]))
        for a, b in zip(few, whole):
            self.assertAlmostEqual(a, b / length, 6)
        raw = self.lines("nomic-bert", "--raw", TEXTS[0])[0]["embedding"]
        self.assertGreater(abs(math.sqrt(sum(v * v for v in raw)) - 1), 0.1)
        self.assertNotEqual(self.lines("nomic-bert", "--pooling", "cls", TEXTS[0])[0]["embedding"], whole)
        long = self.lines("bert", "--truncate", "sea " * 400)[0]
        self.assertEqual(long["tokens"], 320)

    def test_scores(self):
        head = self.lines("reranker", "--query", "sea", *TEXTS)
        raw = self.lines("reranker", "--raw", "--query", "sea", *TEXTS)
        for a, b in zip(head, raw):
            self.assertAlmostEqual(a["score"], 1 / (1 + math.exp(-b["score"])), 6)
        by_cosine = self.lines("bert", "--query", TEXTS[0], *TEXTS)
        self.assertAlmostEqual(by_cosine[0]["score"], 1, 5)
        vectors = [one["embedding"] for one in self.lines("bert", *TEXTS)]
        for one, vector in zip(by_cosine, vectors):
            self.assertAlmostEqual(one["score"], sum(x * y for x, y in zip(vectors[0], vector)), 5)

    def test_errors(self):
        for args, status, says in ((("bert", "--pooling", "max", "a"), 2, "mean"), (("bert", "--pooling", "rank", "a"), 1, "no rank head"),
                                   (("bert", "a", "sea " * 400), 1, "text 2"), (("bert", "--query", "sea " * 400, "a"), 1, "text 1")):
            done = run(*args)
            self.assertEqual((done.returncode, done.stdout), (status, ""), done.stderr)
            self.assertIn(says, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1)


if __name__ == "__main__":
    unittest.main()
