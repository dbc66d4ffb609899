#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise serve --audit`: a schema that reuse spoils is told, in /v1/audit, /metrics and `reprise cache stat`, and moved up the dial; a good
one is left alone."""
import json
import os
import subprocess
import tempfile
import time
import unittest

from server_process import PROGRAM, WAIT_S, Server, bearer, key_line

# "The river is ..." says nothing to whoever has not read the line before it: it contradicts the other one (tests/engine/test_audit.c).
TOWNS = [("Vaskgate", "Quinbeck"), ("Norgen", "Yelpass"), ("Rinholm", "Gilwater")]
APART = "".join(f'<module name="h{i}">This is about the town of {n}.</module><module name="t{i}">The river is {r}.</module>'
                for i, (n, r) in enumerate(TOWNS))
WHOLE = "".join(f'<module name="t{i}">This is about the town of {n}. The river is {r}.</module>' for i, (n, r) in enumerate(TOWNS))
LEAST_SAMPLES = 8


def schema(name, modules):
    return f'<schema name="{name}"><system>Read the documents. {modules}</system></schema>'


class Audit(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.store = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.store.cleanup)

    def serve(self, *args):
        server = Server("--log", "off", "--store", self.store.name, *args, env={**os.environ, "REPRISE_LOG": "warn"}).wait_ready()
        self.addCleanup(server.stop)
        self.assertEqual(server.ask("PUT", "/v1/schemas/apart", schema("apart", APART)).status, 200)
        self.assertEqual(server.ask("PUT", "/v1/schemas/whole", schema("whole", WHOLE)).status, 200)
        return server

    def ask(self, server, name, i, **more):
        imports = "".join(f"<h{k}/><t{k}/>" if name == "apart" else f"<t{k}/>" for k in (i % 3, (i + 1) % 3))
        prompt = f'<prompt schema="{name}">{imports}<user>What is the river of {TOWNS[i % 3][0]}?</user></prompt>'
        reply = server.post("/v1/prompts", {"prompt": prompt, "max_tokens": 3, "temperature": 0, **more})
        self.assertEqual(reply.status, 200, reply.body)
        return reply.json["reprise"]["quality"]

    def audited(self, server, n):
        """The report, when n requests were compared."""
        until = time.monotonic() + WAIT_S
        while True:
            report = server.get("/v1/audit").json
            if report["audited"] >= n or time.monotonic() > until:
                self.assertEqual((report["audited"], report["dropped"], report["waiting"]), (n, 0, 0))
                return report, {s["schema"]: s for s in report["schemas"]}
            time.sleep(0.01)

    def expect_said(self, server, words):
        """A line of the log, which waits in a queue."""
        until = time.monotonic() + WAIT_S
        while words not in server.said() and time.monotonic() < until:
            time.sleep(0.01)
        self.assertIn(words, server.said())

    def test_found_and_raised(self):
        server = self.serve("--audit", "1", "--max-divergence", "0.5", "--audit-raise")
        for i in range(LEAST_SAMPLES):
            self.assertEqual(self.ask(server, "whole", i)["used"], "reuse")
            self.assertEqual(self.ask(server, "apart", i)["used"], "reuse")
            self.audited(server, 2 * i + 2)
        report, schemas = self.audited(server, 2 * LEAST_SAMPLES)
        self.assertEqual(report["object"], "audit")
        self.assertEqual((schemas["apart"]["raised_to"], schemas["whole"]["raised_to"]), ("link:8", ""))
        self.assertGreater(schemas["apart"]["all"]["mean_kl"], 0.5)
        self.assertLess(schemas["whole"]["all"]["mean_kl"], 0.05)
        self.assertEqual(schemas["whole"]["all"]["agreed"], LEAST_SAMPLES)
        self.assertEqual(schemas["apart"]["owner"], "")
        excess = [p["excess_kl"] for p in schemas["apart"]["pairs"]]
        self.assertEqual(excess, sorted(excess, reverse=True))
        self.expect_said(server, "schema 'apart': ")
        self.expect_said(server, "raising its quality to link:8")

        moved = self.ask(server, "apart", 0)
        self.assertEqual((moved["asked"], moved["used"], moved["reason"]), ("reuse", "link:8", "audit"))
        self.assertEqual(self.ask(server, "apart", 0, quality="reuse")["used"], "reuse")  # what is asked for is given
        self.audited(server, 2 * LEAST_SAMPLES + 1)

        metrics = server.get("/metrics").body.decode()
        for line in (f'reprise_audit_requests_total{{outcome="compared"}} {2 * LEAST_SAMPLES + 1}', 'reprise_audit_raised{schema="apart"} 1',
                     'reprise_audit_raised{schema="whole"} 0', f'reprise_audit_agreed_total{{schema="whole"}} {LEAST_SAMPLES}'):
            self.assertIn(line + "\n", metrics)

        server.end()
        said = subprocess.run([PROGRAM, "cache", "stat", "--store", self.store.name, "--json"], capture_output=True, text=True, check=True)
        kept = json.loads(said.stdout)["audit"]
        self.assertEqual({s["schema"]: s["raised_to"] for s in kept["schemas"]}, {"apart": "link:8", "whole": ""})
        table = subprocess.run([PROGRAM, "cache", "stat", "--store", self.store.name], capture_output=True, text=True, check=True).stdout
        self.assertIn("since quality link:8", table)

        again = self.serve("--audit", "1000", "--max-divergence", "0.5", "--audit-raise")
        self.assertEqual(self.ask(again, "apart", 0)["used"], "link:8")  # known from before

    def test_reduced_modules(self):
        """Modules that keep an eighth of their slots, badly chosen: the first step up is their full KV."""
        filler = "".join(" The town of {} has a school, a bridge and an old mill." for _ in range(6))
        modules = "".join(f'<module name="t{i}" keep="12.5%">This is about the town of {n}. The river of {n} is {r}.{filler.format(*[n] * 6)}</module>'
                          for i, (n, r) in enumerate(TOWNS))
        server = self.serve("--audit", "1", "--max-divergence", "0.5", "--audit-raise", "--keep-method", "expected")
        self.assertEqual(server.ask("PUT", "/v1/schemas/kept", schema("kept", modules)).status, 200)
        body = {"prompt": '<prompt schema="kept"><t0/><t1/><user>What is the river of Norgen?</user></prompt>', "max_tokens": 3, "temperature": 0}
        until, n, raised, reasons = time.monotonic() + WAIT_S, 0, "", set()
        while not raised and time.monotonic() < until:
            parts = server.post("/v1/prompts", body).json["reprise"]["parts"]
            reasons |= {part["full_reason"] for part in parts if part["module"] == "t1"}
            n += 1
            raised = self.audited(server, n)[1]["kept"]["raised_to"]
        self.assertEqual(raised, "full KV")
        self.assertIn("new", reasons)  # before it was reduced
        self.assertIn("", reasons)     # of reduced KV
        self.expect_said(server, "raising its quality to full KV")
        reply = server.post("/v1/prompts", body)
        part = [p for p in reply.json["reprise"]["parts"] if p["module"] == "t1"][0]
        self.assertEqual((part["kept"], part["kept_by"], part["full_reason"]), (1, "", "audit"))
        told = subprocess.run([PROGRAM, "explain", "--url", server.addresses[0], reply.json["reprise"]["request"]], capture_output=True, text=True, check=True).stdout
        self.assertIn("full KV (audit)", told)
        server.end()
        table = subprocess.run([PROGRAM, "cache", "stat", "--store", self.store.name], capture_output=True, text=True, check=True).stdout
        self.assertIn("since quality full KV", table)

    def test_kv_formats(self):
        """A limit that int8 exceeds: text and modules go back to f16, now and after a restart."""
        server = self.serve("--audit", "1", "--kv-format", "int8", "--max-divergence", "1e-9", "--audit-raise")
        for i in range(LEAST_SAMPLES):
            reply = server.post("/v1/completions", {"prompt": f"Tom had {i} red balls and a blue one.", "max_tokens": 2, "temperature": 0})
            self.assertEqual(reply.status, 200, reply.body)
            report, _ = self.audited(server, i + 1)
        (row,) = report["formats"]
        self.assertEqual((row["format"], row["schema"], row["owner"], row["exceeds"], row["falls_back"]), ("int8", None, "", False, True))
        self.assertEqual(row["figures"]["samples"], LEAST_SAMPLES)
        self.assertLess(row["figures"]["mean_kl"], 0.05)  # the bundled model: the limit is too low
        self.expect_said(server, "new requests use f16")
        metrics = server.get("/metrics").body.decode()
        self.assertIn(f'reprise_audit_format_samples_total{{format="int8"}} {LEAST_SAMPLES}\n', metrics)
        self.assertIn('reprise_audit_format_fallback{format="int8"} 1\n', metrics)
        server.end()
        said = subprocess.run([PROGRAM, "cache", "stat", "--store", self.store.name, "--json"], capture_output=True, text=True, check=True)
        (kept,) = json.loads(said.stdout)["audit"]["formats"]
        kept["figures"], row["figures"] = ({k: round(v, 9) for k, v in r["figures"].items()} for r in (kept, row))
        self.assertEqual(kept, row)
        table = subprocess.run([PROGRAM, "cache", "stat", "--store", self.store.name], capture_output=True, text=True, check=True).stdout
        self.assertRegex(table, "text in int8, from f16 .*replaced by f16")
        again = self.serve("--audit", "1", "--kv-format", "int8", "--max-divergence", "1e-9", "--audit-raise")
        self.assertIn("requests use KV in f16", again.said())

    def test_off_and_rights(self):
        with tempfile.NamedTemporaryFile("w") as keys:
            keys.write(key_line("a-key-that-may-ask", "tenant=acme", "rights=request") + key_line("a-key-that-operates", "rights=operate"))
            keys.flush()
            server = Server("--log", "off", "--api-keys", keys.name).wait_ready()
            self.addCleanup(server.stop)
            self.assertEqual(server.get("/v1/audit", headers=bearer("a-key-that-may-ask")).status, 403)
            report = server.get("/v1/audit", headers=bearer("a-key-that-operates")).json
            self.assertEqual(report, {"object": "audit", "sampled": 0, "audited": 0, "dropped": 0, "waiting": 0, "schemas": [], "formats": []})


if __name__ == "__main__":
    unittest.main()
