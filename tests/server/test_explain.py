#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Why an answer reused what it did: reports, their list, hints at volatile text, `reprise explain` and `reprise diff`."""
import os
import re
import subprocess
import tempfile
import time
import unittest

from server_process import PROGRAM, Server, ServerCase

WAIT_S = 60  # for background tasks
RULES = "\n".join(f"Rule {i}: Tom may take {i} red balls from the box and put {i + 2} back." for i in range(12))


def reprise(*args, **more):
    return subprocess.run([PROGRAM, *args], capture_output=True, text=True, check=False, timeout=120, **more)


class Asked(ServerCase):
    def chat(self, *messages, **fields):
        body = {"messages": [{"role": r, "content": c} for r, c in messages], "max_tokens": 1, "temperature": 0, **fields}
        reply = self.server.post("/v1/chat/completions", body)
        self.assertEqual(reply.status, 200, reply.body)
        return reply.json

    def cached(self, answer):
        return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


class Explain(Asked):
    def explain(self, answer):
        return self.server.get(f"/v1/requests/{answer['reprise']['request']}/explain").json

    def test_divergence_names_the_message(self):
        self.chat(("system", "You count."), ("user", "Tom has a red ball. Is it big?"), ("assistant", "It is."), ("user", "And blue?"))
        answer = self.chat(("system", "You count."), ("user", "Tom has a red hat. Is it big?"), ("assistant", "It is."), ("user", "And blue?"))
        self.assertEqual(answer["reprise"]["mismatch"]["message"], "user 1")
        answer = self.chat(("system", "You never count."), ("user", "Tom"))
        self.assertEqual(answer["reprise"]["mismatch"]["message"], "system 1")

    def test_list(self):
        ids = [self.chat(("user", f"Question {i}?"))["reprise"]["request"] for i in range(3)]
        listed = self.server.get("/v1/requests?limit=2").json
        self.assertEqual([one["id"] for one in listed["data"]], ids[:0:-1])
        self.assertTrue(listed["has_more"])
        one = listed["data"][0]
        self.assertEqual((one["dialect"], one["route"], one["answer_tokens"]), ("openai", "/v1/chat/completions", 1))
        self.assertGreaterEqual(one["prompt_tokens"], one["cached_tokens"])
        self.server.post("/v1/messages", {"model": "default", "max_tokens": 1, "messages": [{"role": "user", "content": "x"}]})
        self.assertEqual(self.server.get("/v1/requests?limit=1").json["data"][0]["dialect"], "anthropic")
        for limit in ("0", "x", "513", "-1"):
            self.assertEqual(self.server.get(f"/v1/requests?limit={limit}").status, 400)

    def test_truncation(self):
        """A conversation that is longer than the context goes on without its oldest turns."""
        turn = " ".join(f"Rule {i}: Tom may take {i} red balls from the box." for i in range(16))
        messages = [("system", "You count.")]
        for _ in range(12):
            messages += [("user", turn), ("assistant", "It is.")]
        body = {"messages": [{"role": r, "content": c} for r, c in messages + [("user", "And blue?")]], "max_tokens": 2}
        refused = self.server.post("/v1/chat/completions", body)
        self.assertEqual(refused.status, 400)
        answer = self.server.post("/v1/chat/completions", {**body, "truncation": "auto"})
        self.assertEqual(answer.status, 200, answer.body)
        dropped = answer.json["reprise"]["dropped_messages"]
        self.assertTrue(0 < dropped < 24 and dropped % 2 == 0, dropped)
        self.assertEqual(self.server.post("/v1/chat/completions", {**body, "truncation": "none"}).status, 400)
        self.assertEqual(self.chat(("user", "Tom"), truncation="auto")["reprise"]["dropped_messages"], 0)

    def test_context_shift(self):
        """An answer that reaches the end of the context goes on."""
        body = {"messages": [{"role": "user", "content": "Tom may take red balls."}], "max_tokens": 3000, "ignore_eos": True}
        short = self.server.post("/v1/chat/completions", body).json
        self.assertEqual((short["choices"][0]["finish_reason"], short["reprise"]["context_shifts"]), ("length", 0))
        self.assertLess(short["usage"]["completion_tokens"], 3000)
        long = self.server.post("/v1/chat/completions", {**body, "context_shift": True}).json
        self.assertEqual(long["usage"]["completion_tokens"], 3000)
        self.assertGreater(long["reprise"]["context_shifts"], 1)
        self.assertEqual(self.server.post("/v1/chat/completions", {**body, "context_shift": True, "kv_keep": "25%"}).status, 400)

    def test_reduced_kv(self):
        text = " ".join(f"Rule {i}: Tom may take {i} red balls." for i in range(40))
        answer = self.chat(("user", text), kv_keep="12.5%", max_tokens=3)
        reduced = answer["reprise"]["kv_reduction"]
        self.assertEqual(reduced["method"], "snapkv")
        self.assertLess(reduced["share"], 0.3)
        self.assertLess(2 * reduced["bytes"], reduced["bytes_before"])
        self.assertRegex(self.run_on("explain", answer["reprise"]["request"]).stdout, r"answered +with [\d.]+% of the slots \(snapkv\)")
        again = self.chat(("user", text), kv_keep="40", kv_method="quest", max_tokens=3)["reprise"]
        self.assertEqual(again["kv_reduction"]["method"], "quest")
        self.assertEqual(self.chat(("user", text))["reprise"]["kv_reduction"]["method"], "")
        reasons = {part["reason"] for part in self.chat(("user", text), kv_keep="12.5%", max_tokens=2)["reprise"]["parts"]}
        self.assertIn("kv_keep", reasons)  # the last 32 tokens are computed again
        for fields in ({"kv_keep": "12x"}, {"kv_keep": "10%", "kv_method": "kvzip"}, {"kv_method": "sinks"}, {"kv_keep": 5}):
            reply = self.server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], **fields})
            self.assertEqual(reply.status, 400, fields)
            self.assertIn("kv_", str(reply.json))

    def test_kept_slots(self):
        """Which slots reduced modules keep: only on request, in about as many numbers as asked for, in the report and in `explain`."""
        table = " ".join(f"Row {i}: {i + 7} red balls, {3 * i} hats." for i in range(12))
        self.server.ask("PUT", "/v1/schemas/tables", f"<schema name='tables' keep='25%'><module name='a'>{table}</module>"
                                                     f"<module name='b'><param name='p' len='4'/>{table} That is all.</module></schema>")
        body = {"prompt": "<prompt schema='tables'><a/><b p='x'/><user>Which?</user></prompt>", "max_tokens": 2}

        def reduced(**fields):
            report = self.server.post("/v1/prompts", {**body, **fields}).json["reprise"]
            return report, [part for part in report["parts"] if part["kept"] < 1]

        reduced()
        until = time.monotonic() + WAIT_S
        while sum(e["kind"] == "reduced" for e in self.server.get("/v1/cache/entries?kind=module").json["data"]) < 2 and time.monotonic() < until:
            time.sleep(0.01)
        report, parts = reduced(kept_shares=4096)
        self.assertEqual((report["kept_step"], [part["module"] for part in parts]), (1, ["a", "b"]))
        self.assertEqual(len(parts[0]["kept_shares"]), parts[0]["tokens"])
        for part in parts:
            self.assertAlmostEqual(sum(part["kept_shares"]) / part["tokens"], part["kept"], delta=2 / part["tokens"])
            self.assertGreater(len(set(part["kept_shares"])), 4)  # they differ
        again, parts = reduced(kept_shares=10)
        self.assertGreater(again["kept_step"], 1)
        self.assertLessEqual(sum(len(part["kept_shares"]) for part in parts), 12)
        said = self.run_on("explain", report["request"], env={**os.environ, "LC_ALL": "C"}).stdout
        self.assertEqual(len(re.findall(r"heads that keep  \[[ .:=+*#@-]{20,}\]", said)), 2, said)
        report, parts = reduced()
        self.assertEqual((report["kept_step"], [part.get("kept_shares") for part in parts]), (0, [None, None]))
        for wrong in (-1, 4097, "all"):
            self.assertEqual(self.server.post("/v1/prompts", {**body, "kept_shares": wrong}).status, 400, wrong)

    def test_report_has_no_text(self):
        secret = "The box is in the old house behind the green door, under the table, says Lily."
        report = self.explain(self.chat(("user", secret)))
        self.assertNotIn("green door", str(report))
        self.assertEqual((report["dialect"], report["prompt"]["n_messages"], report["prompt"]["messages"][0]["role"]), ("openai", 1, "user"))
        self.assertEqual(report["prompt"]["messages"][0]["bytes"], len(secret))

    def hints(self, *messages):
        return [(h["what"], h["message"], h["text"]) for h in self.chat(*messages)["reprise"]["hints"]]

    def test_hints(self):
        for text, what, shown in (("Today is 2026-11-22.", "date", "2026-11-22"), ("It is 2026-11-22T10:15:59Z.", "date", "2026-11-22T10:15:59Z"),
                                  ("Today is November 22, 2026.", "date", "November 22, 2026"), ("On 22 Nov 2026 it", "date", "22 Nov 2026"),
                                  ("On 22/11/2026 it", "date", "22/11/2026"), ("Now: 10:15:59.", "time", "10:15:59"),
                                  ("At 1763806559 it", "timestamp", "1763806559"),
                                  ("Id 123e4567-e89b-12d3-a456-426614174000.", "uuid", "123e4567-e89b-12d3-a456-426614174000"),
                                  ("See 0123456789abcdef01.", "hex", "0123456789abcdef01"),
                                  ("x-billing-header: a=1; b=2\nRules.", "header", "x-billing-header: a=1; b=2"),
                                  ("Rules.\nUser-Agent: x/1.0\n", "header", "User-Agent: x/1.0"), ("This is request #17.", "counter", "request #17"),
                                  ("Turn: 3", "counter", "Turn: 3")):
            with self.subTest(text):
                self.assertEqual(self.hints(("system", text), ("user", "Hello.")), [(what, "system 1", shown)])
        for text in ("Tom has 10 balls, 3/4 of 12.", "Call 112 in need.", "deadbeef", "Version 1.2.3 of 2026", "At 10:15 it opens.", "May I?", ""):
            with self.subTest(text):
                self.assertEqual(self.hints(("system", text), ("user", "Hello.")), [])
        self.assertEqual(self.hints(("system", "Be brief."), ("user", "Today is 2026-11-22.")), [])  # nothing stands behind it
        self.assertEqual(len(self.hints(("system", "2026-11-22 " * 50), ("user", "x"))), 8)

    def test_hint_where_it_diverges(self):
        for when in ("2031-01-02", "2032-04-06"):
            answer = self.chat(("system", f"Ann counts. Now: {when}."), ("user", "Tom"))
        hint, = answer["reprise"]["hints"]
        self.assertTrue(hint["at_mismatch"])
        self.assertIn("last message", hint["do"])
        for when in ("10:20:30", "21:40:50"):
            answer = self.chat(("user", "Who is Sue?"), ("assistant", "A girl."), ("user", f"It is {when} o'clock."), ("assistant", "Yes."),
                               ("user", "Tom"))
        hint, = answer["reprise"]["hints"]
        self.assertEqual((hint["what"], hint["message"], hint["at_mismatch"]), ("time", "user 2", True))

    # ---- for a person

    def run_on(self, *args, **more):
        return reprise(*args, "--url", self.server.addresses[0], **more)

    def test_explain_prints(self):
        first = self.chat(("system", RULES + "\nToday is 2027-01-01."), ("user", "How many?"))["reprise"]["request"]
        second = self.chat(("system", RULES + "\nToday is 2027-12-31."), ("user", "How many?"))["reprise"]["request"]
        done = self.run_on("explain", second)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for said in (second, "reused", "prompt differs from the cached prefix", "in system 1", "date in system 1", "2027-12-31", "last message", "first token", "#"):
            self.assertIn(said, done.stdout)
        listed = self.run_on("explain").stdout
        self.assertLess(listed.index(second), listed.index(first))
        self.assertIn('"parts"', self.run_on("explain", second, "--json").stdout)
        done = self.run_on("diff", first, second)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for said in (first, second, "first difference", "in message 1", "could have reused", "Rule 0"):
            self.assertIn(said, done.stdout)
        self.assertIn("are identical", self.run_on("diff", first, first).stdout)

    def test_diff_of_short_prompts(self):
        """Prompts that part within the first chunk of their hashes: what could have been reused is told as far as it is known."""
        ids = [self.chat(("user", f"Tom had a red ball and the{end}"))["reprise"]["request"] for end in (" dog", " cat")]
        said = self.run_on("diff", *ids).stdout
        low, high = re.search(r"could have reused from A: a prefix of about (?:(\d+) to )?(\d+) tokens", said).groups(0)
        reused = int(re.search(r"B reused (\d+) tokens", said)[1])
        self.assertGreater(reused, 10)
        self.assertEqual((int(low), int(high)), (0, reused), said)
        ids = [self.server.post("/v1/completions", {"prompt": f"Sue saw a red ball and the{end}", "max_tokens": 1}).headers["x-request-id"]
               for end in (" dog", " cat")]
        said = self.run_on("diff", *ids).stdout
        low, high = map(int, re.search(r"could have reused from A: a prefix of about (?:(\d+) to )?(\d+) tokens", said).groups(0))
        reused = int(re.search(r"B reused (\d+) tokens", said)[1])
        self.assertGreater(reused, 8)
        self.assertTrue(low <= reused <= high, said)

    def test_diff_of_modules(self):
        pml = "<schema name='s'>" + "".join(f"<module name='{m}'>House {m} has a big red door and a dog.</module>" for m in "abc") + "</schema>"
        self.server.ask("PUT", "/v1/schemas/s", pml)
        ids = [self.server.post("/v1/prompts", {"prompt": f"<prompt schema='s'><user>{m} Which?</user></prompt>", "max_tokens": 1})
               .headers["x-request-id"] for m in ("<a/><b/>", "<b/><c/>")]
        lines = [line.split() for line in self.run_on("diff", *ids).stdout.splitlines()]
        marks = {line[-1]: line[0] for line in lines if len(line) == 4 and line[2] == "tokens"}
        self.assertEqual(marks, {"b": "=", "a": "-", "c": "+"})

    def test_wrong_use(self):
        for args, status, says in ((("explain", "0123456789abcdef"), 1, "unknown request"), (("explain", "../x"), 2, "unknown request id"),
                                   (("diff", "0123"), 2, "B"), (("explain", "01", "--url", "ftp://x"), 2, "--url"),
                                   (("explain", "01", "--unix", "/nowhere/s"), 1, "cannot reach")):
            with self.subTest(args):
                done = self.run_on(*args) if "--url" not in args else reprise(*args)
                self.assertEqual((done.returncode, done.stdout, len(done.stderr.splitlines())), (status, "", 1), done.stderr)
                self.assertIn(says, done.stderr)


class ReducedByDefault(Asked):
    options = ("--kv-keep", "12.5%", "--kv-method", "sinks")
    text = " ".join(f"Rule {i}: Tom may take {i} red balls." for i in range(40))
    focused = ('<schema name="focused" quality="focus:15"><module name="a">Tom had a red ball. He lost it at the lake.</module> '
               '<module name="b">The lake is far from his home. Sue has a blue hat.</module></schema>')

    def reduced(self, path, body, **fields):
        reply = self.server.post(path, {**body, "ignore_eos": True, **fields})  # a second token: the KV is reduced after the first
        self.assertEqual(reply.status, 200, reply.body)
        report = reply.json["reprise"]
        return report["kv_reduction"]["method"], report["kv_reduction"]["share"]

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server.ask("PUT", "/v1/schemas/focused", cls.focused)

    def test_every_dialect_has_the_default(self):
        chat = [{"role": "user", "content": self.text}]
        for path, body in (("/v1/chat/completions", {"messages": chat, "max_tokens": 2}), ("/v1/completions", {"prompt": self.text, "max_tokens": 2}),
                           ("/v1/responses", {"input": self.text, "max_output_tokens": 20}), ("/v1/messages", {"model": "default", "messages": chat, "max_tokens": 2}),
                           ("/v1beta/models/reprise-mini:generateContent",
                            {"contents": [{"role": "user", "parts": [{"text": self.text}]}], "generationConfig": {"maxOutputTokens": 2}}),
                           ("/completion", {"prompt": self.text, "n_predict": 2}),
                           ("/v1/prompts", {"prompt": f'<prompt schema="focused">{self.text}</prompt>', "max_tokens": 2})):
            with self.subTest(path=path):
                method, share = self.reduced(path, body)
                self.assertEqual(method, "sinks")
                self.assertLess(share, 0.3)
                other, larger = self.reduced(path, body, kv_keep="50%", kv_method="quest")  # a request's own fields
                self.assertEqual(other, "quest")
                self.assertGreater(larger, share)
                self.assertEqual(self.reduced(path, body, kv_keep="50%")[0], "sinks")
                self.assertEqual(self.reduced(path, body, kv_method="sinks")[0], "sinks")
                self.assertEqual(self.reduced(path, body, kv_keep="off"), ("", 1))

    def test_off_is_an_answer_without_reduction(self):
        plain = Server("--log", "off").wait_ready()
        self.addCleanup(plain.stop)
        body = {"prompt": self.text, "max_tokens": 8, "temperature": 0}
        own = plain.post("/v1/completions", body).json["choices"][0]["text"]
        self.assertEqual(self.server.post("/v1/completions", {**body, "kv_keep": "off"}).json["choices"][0]["text"], own)

    def test_focus_overrides_it(self):
        body = {"prompt": '<prompt schema="focused"><b/><a/>Where is the ball?</prompt>', "max_tokens": 2}
        reply = self.server.post("/v1/prompts", body)
        self.assertEqual(reply.status, 200, reply.body)
        reduction = reply.json["reprise"]["kv_reduction"]
        self.assertEqual((reduction["method"], reduction["reason"]), ("", "focus"))
        self.assertEqual(self.server.post("/v1/prompts", {**body, "kv_keep": "12.5%"}).status, 400)


class Tenants(unittest.TestCase):
    def test_reports_are_their_tenants(self):
        keys = {name: f"key-of-{name}-0123456789" for name in ("ann", "tom")}
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "keys")
            with open(path, "w", encoding="utf-8") as f:
                for name, key in keys.items():
                    f.write(f"{reprise('serve', '--hash-key', input=key).stdout.strip()} tenant={name}\n")
            server = Server("--log", "off", "--api-keys", path, "--unix", os.path.join(folder, "s")).wait_ready()
            self.addCleanup(server.stop)
            head = {"Authorization": f"Bearer {keys['ann']}"}
            answer = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}, headers=head).json
            number = answer["reprise"]["request"]
            for name, status in (("ann", 0), ("tom", 1)):
                key_file = os.path.join(folder, name)
                with open(key_file, "w", encoding="utf-8") as f:
                    f.write(keys[name] + "\n")
                done = reprise("explain", number, "--unix", os.path.join(folder, "s"), "--key-file", key_file)
                self.assertEqual(done.returncode, status, done.stderr)
                listed = reprise("explain", "--unix", os.path.join(folder, "s"), "--key-file", key_file)
                self.assertEqual((listed.returncode, number in listed.stdout), (0, name == "ann"))
            self.assertEqual(reprise("explain", number, "--unix", os.path.join(folder, "s")).returncode, 1)


if __name__ == "__main__":
    unittest.main()
