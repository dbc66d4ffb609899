#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise serve --device vulkan`: answers as often as asked, the metrics of the GPU, what docs/server.md names, and refusals. Without a device only
the metrics' names are tested."""
import json
import os
import re
import subprocess
import unittest

from server_process import MODEL, PROGRAM, SOURCE, Server

PROMPT = {"prompt": "Tom had a red ball, and Ann had a blue hat. One day they met the big dog of Sam, who lived by the sea.", "temperature": 0,
          "max_tokens": 4, "ignore_eos": True}
NAMES = ("reprise_device_", "reprise_store_host_")


def device():
    """The first device of Vulkan that can be used; None."""
    done = subprocess.run([PROGRAM, "devices", "--json"], capture_output=True, text=True, check=True)
    all = [json.loads(line) for line in done.stdout.splitlines()]
    return next((d for d in all if d["usable"] and d["name"].startswith("vulkan")), None)


DEVICE = device()
needs_device = unittest.skipUnless(DEVICE, "there is no device of Vulkan")


class Device(unittest.TestCase):
    def serve(self, *options):
        server = Server("--ctx", "1024", "--log", "off", *options).wait_ready()
        self.addCleanup(server.stop)
        return server

    def figures(self, server):
        return {name: value for name, value in server.metrics().items() if name.startswith(NAMES)}

    def test_the_page_names_them(self):
        with open(os.path.join(SOURCE, "docs", "server.md"), encoding="utf-8") as f:
            named = {name for name in re.findall(r"`(reprise_[a-z_]+)`", f.read()) if name.startswith(NAMES)}
        figures = self.figures(self.serve())
        self.assertEqual(named, set(figures))
        self.assertEqual(set(figures.values()), {0})  # of the processor

    @needs_device
    def test_a_server_on_a_device(self):
        server = self.serve("--device", DEVICE["name"], "--device-ram", "512M")
        first = server.post("/v1/completions", PROMPT)
        self.assertEqual(first.status, 200, first.body)
        before = self.figures(server)
        again = server.post("/v1/completions", PROMPT).json
        after = self.figures(server)
        self.assertEqual(again["choices"][0]["text"], first.json["choices"][0]["text"])
        self.assertGreater(again["usage"]["prompt_tokens_details"]["cached_tokens"], 16)
        for name in ("weight", "activation", "kv"):
            self.assertGreater(after[f"reprise_device_{name}_bytes"], 0, name)
        self.assertEqual(after["reprise_device_limit_bytes"], 512 << 20)
        used = sum(after[f"reprise_device_{name}_bytes"] for name in ("weight", "activation", "kv", "scratch"))
        self.assertLessEqual(used, 512 << 20)
        self.assertGreaterEqual(after["reprise_device_weight_bytes"], 0.5 * os.path.getsize(MODEL))
        self.assertEqual(after["reprise_device_lost"], 0)
        # a step for the rest of the prompt, and one for each further token
        self.assertEqual(after["reprise_device_submits_total"] - before["reprise_device_submits_total"], PROMPT["max_tokens"])
        for name in ("submit", "step"):
            self.assertGreater(after[f"reprise_device_{name}_us_total"], before[f"reprise_device_{name}_us_total"])
        self.assertGreaterEqual(after["reprise_device_step_us_total"], after["reprise_device_submit_us_total"])

    @needs_device
    def test_what_it_cannot_do_is_named_at_the_start(self):
        for options, words in ((("--device-ram", "1M", "--device-layers", "2"), "limit of device memory"), (("--device-ram", "x"), "--device-ram")):
            done = subprocess.run([PROGRAM, "serve", "-m", MODEL, "--port", "0", "--log", "off", "--device", DEVICE["name"], *options],
                                  capture_output=True, text=True, timeout=120)
            self.assertNotEqual(done.returncode, 0)
            self.assertRegex(done.stderr, words)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)


if __name__ == "__main__":
    unittest.main()
