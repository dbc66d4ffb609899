#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every prompt of examples/ is answered by the bundled model as its page says."""
import glob
import json
import os
import re
import subprocess
import unittest

SOURCE = os.environ.get("REPRISE_SOURCE_DIR", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
PROGRAM = os.environ.get("REPRISE_PROGRAM", os.path.join(SOURCE, "build", "reprise"))
MODEL = os.path.join(SOURCE, "models", "reprise-mini.gguf")
EXAMPLES = os.path.join(SOURCE, "examples")
ROW = re.compile(r"^\| `(\w[\w-]*\.xml)` \|.*\| (.+?) \|$", re.MULTILINE)  # prompt file | ... | answer


class Examples(unittest.TestCase):
    def test_pages(self):
        folders = sorted(f for f in os.listdir(EXAMPLES) if glob.glob(os.path.join(EXAMPLES, f, "*.xml")))
        self.assertGreaterEqual(len(folders), 6)
        for folder in folders:
            with self.subTest(example=folder):
                self.check(os.path.join(EXAMPLES, folder))

    def check(self, folder):
        with open(os.path.join(folder, "README.md"), encoding="utf-8") as f:
            expected = dict(ROW.findall(f.read()))
        files = {f for f in os.listdir(folder) if f.endswith(".xml")}
        schema, = files - set(expected)  # all but one are prompts of the page's table
        self.assertEqual(set(expected), files - {schema})
        command = [PROGRAM, "run", "-m", MODEL, "--schema", os.path.join(folder, schema), "--json"]
        for prompt in expected:
            command += ["--pml", os.path.join(folder, prompt)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        answers = [json.loads(line)["text"].strip() for line in done.stdout.splitlines()]
        self.assertEqual(dict(zip(expected, answers)), expected)


if __name__ == "__main__":
    unittest.main()
