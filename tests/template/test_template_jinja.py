#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""src/template against Python's Jinja2: the language piece by piece (snippets.txt), random conversations through templates of
published models, random templates. test_template_vectors renders what Jinja2 has rendered here.

REPRISE_TEST_SEED, REPRISE_TEST_ROUNDS (conversations a template; random templates are ten times as many): `make test-templates`.
"""
import copy
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ.get("REPRISE_BUILD_DIR", HERE.parent.parent / "build"))
SEED = int(os.environ.get("REPRISE_TEST_SEED", 20261125))
ROUNDS = int(os.environ.get("REPRISE_TEST_ROUNDS", 50))
DATA = os.environ.get("REPRISE_TEST_DATA")

try:
    import jinja2
except ImportError:
    print("skipped: Jinja2 is not installed (python3-jinja2)")
    sys.exit(0)

sys.path.insert(0, str(HERE))
import jinja_reference  # noqa: E402
import random_conversations  # noqa: E402
import random_templates  # noqa: E402

INPUT = {
    "s": "Hello World",
    "empty": "",
    "u": "Größe 你好 🙂 ß é",
    "n": 7,
    "f": 2.5,
    "t": True,
    "x": None,
    "l": [3, 1, 2],
    "words": ["b", "A", "c", "a", "B"],
    "nested": [[1, 2], {"a": {"b": ["deep"]}}],
    "d": {"name": "Ann", "age": 5, "list": [1, "two"]},
    "d2": {"b": 2, "A": 3, "c": 1, "B": 0},
    "dd": {"items": "own", "keys": "own"},
    "deep": {"b": [1, {"c": None, "a": []}], "a": {"é": "ü\n", "z": {}}, "c": 1.5},
    "objs": [
        {"name": "bob", "n": 2, "tags": ["x", "y"]},
        {"name": "Al", "n": 1, "tags": ["z"]},
        {"name": "cy", "n": 2, "tags": ["a", "b"]},
    ],
    "wobjs": [{"w": "b"}, {"w": "B"}, {"w": "a"}, {"w": "A"}],
    "tree": [{"name": "a", "children": [{"name": "b", "children": []}, {"name": "c", "children": [{"name": "d", "children": []}]}]}],
    "messages": [
        {"role": "system", "content": "Be brief. "},
        {"role": "user", "content": "Hi\n"},
        {"role": "assistant", "content": "<think>a</think>b"},
        {"role": "user", "content": "Bye"},
    ],
    "tools": None,
    "bos_token": "<s>",
    "eos_token": "</s>",
}


def snippets():
    """(line number, source, is supported)"""
    for number, line in enumerate((HERE / "snippets.txt").read_text(encoding="utf-8").split("\n"), 1):
        if line and not line.startswith("## "):
            source = line.removeprefix("UNSUPPORTED ").replace("⏎", "\n").replace("⇥", "\t")
            yield number, source, not line.startswith("UNSUPPORTED ")


class Jinja(unittest.TestCase):
    def setUp(self):
        self.env = jinja_reference.environment()

    def compare(self, vectors, folder="."):
        """Renders the vectors and requires that every one is as Jinja2 has it."""
        with tempfile.TemporaryDirectory() as scratch:
            path = os.path.join(scratch, "vectors.jsonl")
            with open(path, "w", encoding="utf-8") as f:
                for v in vectors:
                    f.write(json.dumps(v) + "\n")
            program = BUILD / "tests" / "template" / "test_template_vectors"
            most = os.environ.get("REPRISE_TEST_REPORTS", "20")
            done = subprocess.run([program, folder, path, most], stdout=subprocess.PIPE, encoding="utf-8", errors="replace", check=False)
        print(done.stdout, end="")
        self.assertEqual(done.returncode, 0, "renderings differ from Jinja2's")

    def test_snippets(self):
        vectors = []
        for number, source, supported in snippets():
            expected = jinja_reference.expectation(self.env, source, INPUT) if supported else {"error": "", "any_text": True}
            vectors.append({"source": source, "case": f"line {number}", "input": INPUT, **expected})
        self.assertGreater(len(vectors), 900)
        self.compare(vectors)

    @unittest.skipUnless(DATA, "REPRISE_TEST_DATA is not set")
    def test_conversations(self):
        rng = random.Random(SEED)
        print(f"conversations: REPRISE_TEST_SEED={SEED}")
        folder = pathlib.Path(DATA, "templates")
        vectors = []
        for path in sorted(folder.glob("*.jinja")):
            template = path.read_text(encoding="utf-8")
            for i in range(ROUNDS):
                values = random_conversations.conversation(rng)
                expected = jinja_reference.expectation(self.env, template, values)
                vectors.append({"template": path.name, "case": f"conversation {i}", "input": values, **expected})
        self.assertGreater(len(vectors), 0)
        self.compare(vectors, folder)

    def test_random_templates(self):
        rng = random.Random(SEED)
        print(f"random templates: REPRISE_TEST_SEED={SEED}")
        vectors = []
        for i in range(ROUNDS * 10):
            source, values = random_templates.template(rng), random_templates.values(rng)
            expected = jinja_reference.expectation(self.env, source, copy.deepcopy(values))  # filters of a wrong type change lists in place
            if "error" in expected and re.search(r"\bfor .* in .* if ", source):
                expected["any_text"] = True  # the items of a loop with a condition are computed at once: an error of a later one comes first
            vectors.append({"source": source, "case": f"template {i}", "input": values, **expected})
        self.compare(vectors)


if __name__ == "__main__":
    unittest.main()
