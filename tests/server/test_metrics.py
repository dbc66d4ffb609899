#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise serve`, /metrics: the text is what Prometheus reads, and what is counted is what happened."""
import json
import math
import re
import time
import tempfile
import unittest

from server_process import Server, ServerCase

SAMPLE = re.compile(r'^([a-z_:]+)(?:\{([a-z_]+)="([^"\\\n]*)"((?:,[a-z_]+="[^"\\\n]*")*)\})? (\S+)$')
PROMPT = {"prompt": "Tom had a red ball, and Ann had a blue hat. One day", "temperature": 0, "max_tokens": 8, "ignore_eos": True}
TIMES = ("queue", "time_to_first_token", "time_between_tokens", "step")


class Exposition:
    """Families of samples: name -> {"type", "samples": [(name, (label, value) or None, number)]}. It refuses what breaks the format."""

    def __init__(self, text):
        self.families, self.values, current = {}, {}, None
        assert text.endswith("\n")
        for line in text.splitlines():
            if line.startswith("# HELP "):
                current = line.split(" ")[2]
                assert current not in self.families, f"{current} comes twice"
                assert len(line.split(" ", 3)) == 4, line
                self.families[current] = {"type": None, "samples": []}
            elif line.startswith("# TYPE "):
                _, _, name, kind = line.split(" ")
                assert name == current and self.families[name]["type"] is None and kind in ("counter", "gauge", "histogram"), line
                self.families[name]["type"] = kind
            else:
                self.add(current, line)

    def add(self, family, line):
        found = SAMPLE.match(line)
        assert found, line
        name, label, value, others, number = found.groups()
        if others:
            label, value = label + "...", f'{value}{others}'
        kind = self.families[family]["type"]
        allowed = [family + s for s in ("_bucket", "_sum", "_count")] if kind == "histogram" else [family]
        assert name in allowed, f"{line} is not of {family}"
        key = (name, label and (label, value))
        assert key not in self.values, f"{line} comes twice"
        self.values[key] = float(number)
        self.families[family]["samples"].append((*key, float(number)))

    def get(self, name, **label):
        return self.values[("reprise_" + name, next(iter(label.items()), None))]

    def labelled(self, name):
        return {label[1]: number for n, label, number in self.families["reprise_" + name]["samples"]}

    def count(self, name):
        return self.get(f"{name}_seconds_count")


class Metrics(ServerCase):
    def read(self, server=None):
        reply = (server or self.server).get("/metrics")
        self.assertEqual(reply.headers["Content-Type"], "text/plain; version=0.0.4; charset=utf-8")
        return Exposition(reply.body.decode())

    def test_format(self):
        self.server.post("/v1/completions", PROMPT)
        now = self.read()
        for name, family in now.families.items():
            with self.subTest(name):
                self.assertIsNotNone(family["type"])
                self.assertGreater(len(family["samples"]), 0)
                self.assertEqual(name.endswith("_total"), family["type"] == "counter")
                self.assertTrue(all(number >= 0 for _, _, number in family["samples"]))
                if family["type"] == "histogram":
                    self.check_histogram(name, family["samples"])

    def check_histogram(self, name, samples):
        buckets = [(float(label[1]), number) for n, label, number in samples if n == name + "_bucket"]
        self.assertEqual(buckets, sorted(buckets))
        self.assertEqual([b for b, _ in buckets], sorted({b for b, _ in buckets}))
        self.assertEqual([n for _, n in buckets], sorted(n for _, n in buckets))
        self.assertEqual(buckets[-1][0], math.inf)
        rest = {n: number for n, label, number in samples if n != name + "_bucket"}
        self.assertEqual(rest[name + "_count"], buckets[-1][1])
        # as many as there are buckets for bound the sum from below
        least = sum(low * (n - before) for (low, before), (_, n) in zip(buckets, buckets[1:]))
        self.assertGreaterEqual(rest[name + "_sum"] + 1e-3, least)

    def test_blocks(self):
        """Cached KV can be evicted: it is no use of the KV cache."""
        self.server.post("/v1/completions", {**PROMPT, "prompt": "cached " * 300})
        self.server.wait_idle()
        now = self.read()
        self.assertGreater(now.get("store_used_bytes"), 0)
        use = now.values[("vllm:kv_cache_usage_perc", ("model_name", "reprise-mini"))]
        self.assertLess(use, now.get("store_used_bytes") / now.get("store_budget_bytes"))
        (_, (_, labels), one), = now.families["vllm:cache_config_info"]["samples"]
        self.assertRegex(labels, r'^64,model_name="reprise-mini",num_gpu_blocks="[1-9][0-9]*"$')
        self.assertEqual(one, 1)

    def test_times(self):
        self.server.wait_idle()
        before = self.read()
        self.assertEqual(self.server.post("/v1/completions", {**PROMPT, "n": 2, "seed": 1, "temperature": 1}).status, 200)
        after = self.read()
        grown = {name: after.count(name) - before.count(name) for name in TIMES}
        self.assertEqual((grown["queue"], grown["time_to_first_token"], grown["time_between_tokens"]), (2, 2, 14))
        self.assertGreaterEqual(grown["step"], 7)
        self.assertLessEqual(grown["step"], 16)
        for name in ("time_to_first_token", "step"):
            self.assertGreater(after.get(f"{name}_seconds_sum"), before.get(f"{name}_seconds_sum"))

    def test_waiting(self):
        server = Server("--log", "off", "--sequences", "1").wait_ready()
        self.addCleanup(server.stop)
        body = json.dumps({**PROMPT, "max_tokens": 1500, "stream": True, "n": 3})
        state, s, sent, has_run = (0, 0), None, 0, False
        while state != (1, 2):
            if s is None or (state == (0, 0) and (has_run or time.monotonic() > sent + 10)):  # over before it was seen, on a busy machine
                if s: s.close()
                s, sent, has_run = server.socket(), time.monotonic(), False
                s.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
            now = self.read(server)
            state = (now.get("requests_running"), now.get("requests_waiting"))
            has_run |= state[0] > 0
        for name, number in (("running", 1), ("waiting", 2)):  # as gateways read them
            self.assertEqual(now.values[(f"vllm:num_requests_{name}", ("model_name", "reprise-mini"))], number)
        while not self.read(server).values[("vllm:kv_cache_usage_perc", ("model_name", "reprise-mini"))] > 0:  # as of 50 ms ago
            pass
        s.close()
        server.wait_idle()
        while (now := self.read(server)).get("requests_running") + now.get("requests_waiting") > 0:
            server.post("/v1/completions", {**PROMPT, "max_tokens": 1})  # they are counted as after the last step

    def test_tokens_by_source(self):
        body = {**PROMPT, "cache_salt": "sources"}
        before = self.read().labelled("tokens_total")
        fresh = self.server.post("/v1/completions", body).json["usage"]
        between = self.read().labelled("tokens_total")
        again = self.server.post("/v1/completions", body).json["usage"]
        after = self.read().labelled("tokens_total")
        grown = [{k: b[k] - a[k] for k in a} for a, b in ((before, between), (between, after))]
        cached = again["prompt_tokens_details"]["cached_tokens"]
        self.assertEqual(grown[0], {"computed": fresh["prompt_tokens"], "ram": 0, "disk": 0})
        self.assertEqual(grown[1], {"computed": again["prompt_tokens"] - cached, "ram": cached, "disk": 0})
        now = self.read()
        self.assertAlmostEqual(now.get("hit_ratio", tier="ram"), after["ram"] / sum(after.values()), places=5)
        self.assertEqual(sum(after.values()), now.get("prompt_tokens_total"))

    def test_drafts_by_source(self):
        read = lambda: [self.read().labelled(name) for name in ("draft_tokens_total", "accepted_draft_tokens_total")]
        before = read()
        text = "Surfers go to Carcavelos. Families go to the Baixa tram. " * 6
        body = {**PROMPT, "prompt": text, "max_tokens": 60, "ignore_eos": True, "n_draft": 6}
        self.server.post("/v1/completions", body)
        drafted, accepted = [{k: b[k] - a[k] for k in a} for a, b in zip(before, read())]
        self.assertGreater(drafted["lookup"], 0)
        self.assertLessEqual(accepted["lookup"], drafted["lookup"])
        self.assertEqual((drafted["model"], accepted["model"]), (0, 0))
        body["n_draft"] = 0
        before = read()
        self.server.post("/v1/completions", body)
        self.assertEqual(before, read())

    def test_tokens_from_disk(self):
        with tempfile.TemporaryDirectory() as folder:
            server = Server("--log", "off", "--store", folder).wait_ready()
            server.post("/v1/completions", PROMPT)
            server.stop()
            server = Server("--log", "off", "--store", folder).wait_ready()
            self.addCleanup(server.stop)
            usage = server.post("/v1/completions", PROMPT).json["usage"]
            now = self.read(server)
            self.assertGreater(usage["prompt_tokens_details"]["cached_tokens"], 0)
            self.assertEqual(now.get("tokens_total", source="disk"), usage["prompt_tokens_details"]["cached_tokens"])
            self.assertGreater(now.get("hit_ratio", tier="disk"), 0)
            self.assertGreater(now.get("store_disk_reads_total"), 0)

    def test_rejections_by_reason(self):
        before = self.read().labelled("rejections_total")
        for reply, status in ((self.server.post("/v1/completions", {"prompt": 3}), 400), (self.server.get("/nothing"), 404),
                              (self.server.get("/v1/completions"), 405),
                              (self.server.post("/api/show", {"model": "other"}), 404),
                              (self.server.post("/api/copy", {}), 501),
                              (self.server.post("/v1/completions", {**PROMPT, "prompt": "word " * 5000}), 400),
                              (self.server.post("/v1/completions", {**PROMPT, "prompt": "word " * 5000, "stream": True}), 400)):
            self.assertEqual(reply.status, status)
        after = self.read().labelled("rejections_total")
        self.assertEqual({k: after[k] - before[k] for k in after if after[k] != before[k]},
                         {"invalid_value": 1, "not_found": 1, "method_not_allowed": 1, "model_not_found": 1, "not_implemented": 1, "context_length_exceeded": 2})

    def test_responses_by_status(self):
        before = self.read().labelled("responses_total")
        self.server.get("/nothing")
        after = self.read().labelled("responses_total")
        self.assertEqual({k: after[k] - before[k] for k in after}, {"1xx": 0, "2xx": 1, "3xx": 0, "4xx": 1, "5xx": 0})

    def test_scaffolds(self):
        now = self.read()
        self.assertEqual(now.get("scaffolds_known"), 0)  # nobody asked for one
        self.assertGreater(now.get("scaffold_budget_bytes"), 0)
        self.assertEqual(now.get("background_tasks"), 0)

    def test_evictions(self):
        server = Server("--log", "off", "--kv-ram", "2M").wait_ready()
        self.addCleanup(server.stop)
        texts = [" ".join(f"Tom{i} had {k} red balls." for k in range(40)) for i in range(16)]
        for text in texts:
            self.assertEqual(server.post("/v1/completions", {**PROMPT, "prompt": text, "max_tokens": 1}).status, 200)
        now = self.read(server)
        self.assertGreater(now.get("store_evictions_total"), 0)
        self.assertLessEqual(now.get("store_bytes"), now.get("store_budget_bytes"))
        self.assertLessEqual(now.get("store_budget_bytes"), 2 << 20)


if __name__ == "__main__":
    unittest.main()
