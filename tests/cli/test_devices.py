#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise devices`, and --device: names, reasons, and answers that the processor gives with and without the option."""
import json
import os
import subprocess
import unittest

SOURCE = os.environ.get("REPRISE_SOURCE_DIR", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
PROGRAM = os.environ.get("REPRISE_PROGRAM", os.path.join(SOURCE, "build", "reprise"))
MODEL = os.path.abspath(os.path.join(SOURCE, "models", "reprise-mini.gguf"))


def run(*args):
    return subprocess.run([PROGRAM, *args], capture_output=True, text=True, timeout=120)


class Devices(unittest.TestCase):
    def test_the_processor_is_first_and_each_has_a_reason(self):
        done = run("devices", "--json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        all = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual(all[0]["name"], "cpu")
        self.assertTrue(all[0]["usable"] and all[0]["automatic"] and all[0]["memory_bytes"] > 0)
        self.assertGreater(len(all), 1)
        for device in all[1:]:
            self.assertTrue(device["name"].startswith("vulkan"), device)
            self.assertTrue(device["automatic"] or device["reason"], device)
        table = run("devices").stdout
        for device in all:
            self.assertIn("\n" + device["name"].ljust(10), "\n" + table)

    def test_names(self):
        plain = run("run", "-m", MODEL, "Lisbon is", "-n", "8")
        self.assertEqual(plain.returncode, 0, plain.stderr)
        named = run("run", "-m", MODEL, "--device", "cpu", "Lisbon is", "-n", "8")
        self.assertEqual((named.returncode, named.stdout), (0, plain.stdout))
        for name, text in (("cuda", "there is no device 'cuda'"), ("vulkan:99", "unavailable"), ("vulkan:x", "there is no device")):
            wrong = run("run", "-m", MODEL, "--device", name, "x")
            self.assertNotEqual(wrong.returncode, 0)
            self.assertIn(text, wrong.stderr)
            self.assertEqual(wrong.stderr.count("\n"), 1)


if __name__ == "__main__":
    unittest.main()
