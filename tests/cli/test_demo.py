#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`make demo` shows what each row's name says: a full prefill that found nothing, a prefix cache, and modules; of questions that were never asked."""
import importlib.machinery
import importlib.util
import os
import re
import subprocess
import unittest

SOURCE = os.environ.get("REPRISE_SOURCE_DIR", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
DEMO = os.path.join(SOURCE, "tools", "demo")
ROW = re.compile(r"^  (full prefill|prefix cache, \w+ order|modules, \w+ order) +(\d+) +(\d+) +([0-9.]+) ms", re.MULTILINE)


def load():
    """tools/demo as a module."""
    loader = importlib.machinery.SourceFileLoader("demo", DEMO)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("demo", loader))
    loader.exec_module(module)
    return module


class Demo(unittest.TestCase):
    def test_rows(self):
        done = subprocess.run([DEMO], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        rows = {name: (int(cached), int(fresh)) for name, cached, fresh, _ in ROW.findall(done.stdout)}
        self.assertEqual(list(rows), ["full prefill", "prefix cache, same order", "prefix cache, another order", "modules, another order"])
        total, = {cached + fresh for cached, fresh in rows.values()}  # one prompt, four pasts
        self.assertLessEqual(rows["full prefill"][0], 1)  # the beginning-of-text token
        self.assertLess(rows["prefix cache, another order"][0], total / 10)
        for name in ("prefix cache, same order", "modules, another order"):
            self.assertGreater(rows[name][0], total * 0.9)
            self.assertGreater(rows[name][1], 1)  # never asked: its question is computed

    def test_questions_are_new(self):
        demo = load()
        self.assertEqual(len({*demo.QUESTIONS, demo.ANOTHER}), len(demo.QUESTIONS) + 1)
        order = demo.documents()
        question = demo.QUESTIONS[0]
        asked = []
        demo.ask = lambda model, reuse, prompts: asked.append(prompts)
        demo.measure("", question, order[::-1], order)
        self.assertEqual(len(asked), len(demo.ROWS))
        for prompts in asked:
            self.assertEqual([question in p for p in prompts], [False] * (len(prompts) - 1) + [True])

    def test_a_row_that_is_warm_is_refused(self):
        demo = load()
        warm = {"usage": {"prompt_tokens": 100, "cached_tokens": 90, "fresh_tokens": 10}, "timings": {"module_prefill_ms": 0}, "plan": []}
        with self.assertRaises(SystemExit):
            demo.check([warm] * 4, 0)


if __name__ == "__main__":
    unittest.main()
