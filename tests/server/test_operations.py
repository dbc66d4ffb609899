#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""share/prometheus and share/grafana: each metric and label value that they name is one that a running server or router has; the alert rules pass
promtool's tests, if promtool is here."""
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import unittest

from router_process import Node, Router, make_secret
from server_process import SOURCE, WAIT_S, Server

RULES = os.path.join(SOURCE, "share", "prometheus", "reprise.rules.yml")
DASHBOARD = os.path.join(SOURCE, "share", "grafana", "reprise.json")
SCHEMA = ("<schema name='towns'><system>Read the documents. <module name='a'>The river of Norgen is wide.</module>"
          "<module name='b'>The mill of Orsel is old.</module></system></schema>")
PROMPT = "<prompt schema='towns'><a/><b/><user>What is wide?</user></prompt>"


def rule_expressions():
    with open(RULES, encoding="utf-8") as f:
        text = f.read()
    return re.findall(r"expr: (?:>-\n)?((?:.+\n)(?:          .+\n)*)", text)


def panels():
    with open(DASHBOARD, encoding="utf-8") as f:
        return json.load(f)["panels"]


class Operating(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.server = Server("--log", "off", "--store", folder.name, "--disk", "64M", "--audit", "1", "--otlp", "http://127.0.0.1:1").wait_ready()
        cls.addClassCleanup(cls.server.stop)
        assert cls.server.ask("PUT", "/v1/schemas/towns", SCHEMA).status == 200
        assert cls.server.post("/v1/prompts", {"prompt": PROMPT, "max_tokens": 2}).status == 200
        until = time.monotonic() + WAIT_S
        while "reprise_audit_exceeds{" not in (text := cls.server.get("/metrics").body.decode()) and time.monotonic() < until:
            time.sleep(0.01)  # the audit runs in the background
        text += cls.routers_metrics(folder.name)
        cls.samples = {line.rsplit(" ", 1)[0] for line in text.splitlines() if not line.startswith("#")}

    @classmethod
    def routers_metrics(cls, folder):
        secret = make_secret(folder)
        node = Node(secret, "a", "--log", "off").wait_ready()
        cls.addClassCleanup(node.stop)
        router = Router(secret, [node], "--log", "off").wait_ready()
        cls.addClassCleanup(router.stop)
        router.wait_well("a")
        return router.get("/metrics").body.decode()

    def check(self, expression):
        names = {sample.split("{")[0] for sample in self.samples}
        used = re.findall(r"\b(reprise_[a-z_]+)(?:\{([^}]*)\})?", expression)
        for name, selectors in used:
            self.assertIn(name, names, expression)
            for label, values in re.findall(r'(\w+)=~?"([^"]*)"', selectors):
                for value in () if values.startswith("$") else values.split("|"):
                    self.assertTrue(any(s.startswith(name + "{") and f'{label}="{value}"' in s for s in self.samples), f"{name}: {label}={value}")
        return len(used)

    def test_rules(self):
        expressions = rule_expressions()
        with open(RULES, encoding="utf-8") as f:
            self.assertEqual(len(expressions), f.read().count("- alert:"))
        self.assertEqual([e for e in expressions if not self.check(e)], ['up{job="reprise"} == 0\n', 'up{job="reprise-router"} == 0\n'])

    def test_dashboard(self):
        graphs = [p for p in panels() if p["type"] != "row"]
        self.assertGreater(len(graphs), 20)
        for panel in graphs:
            for target in panel["targets"]:
                self.assertGreater(self.check(target["expr"]), 0, panel["title"])
        places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in panels()]
        self.assertEqual(len(places), len(set(places)))  # none covers another
        self.assertEqual(len({p["id"] for p in panels()}), len(places))

    def test_check_finds_what_is_wrong(self):
        for wrong in ("rate(reprise_request_total[5m])", 'reprise_tokens_total{source="cpu"}'):
            with self.assertRaises(AssertionError):
                self.check(wrong)

    def test_alerts_fire(self):
        promtool = shutil.which("promtool")
        if not promtool:
            self.skipTest("promtool (Debian's prometheus) is not here")
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(RULES, folder)
            shutil.copy(os.path.join(SOURCE, "tests", "formats", "reprise.rules.test.yml"), folder)
            for command in (["check", "rules", "reprise.rules.yml"], ["test", "rules", "reprise.rules.test.yml"]):
                done = subprocess.run([promtool, *command], capture_output=True, text=True, check=False, cwd=folder)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
