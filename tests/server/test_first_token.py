#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The time to first token is one figure: the same in an answer, its stream, the list, the report, `reprise explain` and /metrics, and the sum of
queue, module prefill, plan and prompt prefill."""
import subprocess
import time
import unittest

from server_process import PROGRAM, ServerCase
from test_metrics import Exposition

SCHEMA = "<schema name='{0}'><module name='a'>{0} has a big red door, a dog and a tree behind the house.</module></schema>"
COMPONENTS = {"queue": "queue", "module_prefill": "module_prefill", "plan": "plan", "prompt_prefill": "prompt_prefill"}  # in a report: in /metrics
ROUNDING = 0.001 * (len(COMPONENTS) + 1)  # a report has whole microseconds


class FirstToken(ServerCase):
    def seconds(self):
        self.server.wait_idle()
        metrics = Exposition(self.server.get("/metrics").body.decode())
        return {name: metrics.get(f"{name}_seconds_sum") for name in ("time_to_first_token", *COMPONENTS.values())}

    def ask(self, schema, **fields):
        body = {"prompt": f"<prompt schema='{schema}'><a/>Where is the dog?</prompt>", "max_tokens": 2, "ignore_eos": True, **fields}
        return self.server.post("/v1/prompts", body)

    def check_sum(self, ms):
        self.assertAlmostEqual(ms["first_token"], sum(ms[name] for name in COMPONENTS), delta=ROUNDING)

    def test_one_figure(self):
        self.server.ask("PUT", "/v1/schemas/Lily?prefill=false", SCHEMA.format("Lily"))
        before, start = self.seconds(), time.monotonic()
        report = self.ask("Lily").json["reprise"]
        waited_ms = (time.monotonic() - start) * 1e3
        ms, after = report["ms"], self.seconds()
        self.check_sum(ms)
        self.assertGreater(ms["module_prefill"], 0)
        self.assertLessEqual(ms["first_token"], waited_ms)
        line = self.server.get("/v1/requests?limit=1").json["data"][0]
        self.assertEqual((line["id"], line["first_token_ms"]), (report["request"], ms["first_token"]))
        self.assertEqual(self.server.get(f"/v1/requests/{report['request']}/explain").json["ms"], ms)
        said = subprocess.run([PROGRAM, "explain", report["request"], "--url", self.server.addresses[0]], capture_output=True, text=True,
                              check=True).stdout
        self.assertIn(f"first token  {ms['first_token']:.1f} ms (queue {ms['queue']:.1f}, module prefill {ms['module_prefill']:.1f}, ", said)
        self.assertAlmostEqual((after["time_to_first_token"] - before["time_to_first_token"]) * 1e3, ms["first_token"], delta=ROUNDING)
        for name, metric in COMPONENTS.items():
            self.assertAlmostEqual((after[metric] - before[metric]) * 1e3, ms[name], delta=ROUNDING)
        self.assertEqual(self.ask("Lily").json["reprise"]["ms"]["module_prefill"], 0)

    def test_streams_and_ends(self):
        self.server.ask("PUT", "/v1/schemas/Tom?prefill=false", SCHEMA.format("Tom"))
        for fields in ({"stream": True}, {"grammar": 'root ::= ""'}, {"reuse": "off"}, {"reuse": "exact"}, {"quality": "blend:50"}):
            with self.subTest(**fields):
                self.ask("Tom", **fields)
                line = self.server.get("/v1/requests?limit=1").json["data"][0]
                ms = self.server.get(f"/v1/requests/{line['id']}/explain").json["ms"]
                self.check_sum(ms)
                self.assertEqual(line["first_token_ms"], ms["first_token"])
                self.assertGreater(ms["first_token"], 0)

    def test_prompt_ms_of_llamacpp(self):
        answer = self.server.post("/completion", {"prompt": "Tom had a red ball.", "n_predict": 2}).json
        ms = answer["reprise"]["ms"]
        self.check_sum(ms)
        self.assertAlmostEqual(answer["timings"]["prompt_ms"], ms["first_token"] - ms["queue"], delta=ROUNDING)


if __name__ == "__main__":
    unittest.main()
