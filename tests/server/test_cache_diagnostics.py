#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise serve`: OpenAI's prompt_cache_diagnostics and Anthropic's diagnostics: the first difference from the prompt of an earlier answer."""
import json
import os
import tempfile
import unittest

from server_process import Server, ServerCase, bearer, key_line

SYSTEM = "You are a patient teacher who answers in short sentences. " * 8
FIRST = "Tom had a red ball and Sam had a blue kite. What did Tom have? " * 4
TOOLS = [{"name": name, "description": "Tells the time of a zone.", "input_schema": {"type": "object", "properties": {"zone": {"type": "string"}}}} for name in ("clock", "zone")]


def flat(tool):
    return {"type": "function", "name": tool["name"], "description": tool["description"], "parameters": tool["input_schema"]}


class Messages(ServerCase):
    def ask(self, previous, *, stream=False, who=None, **fields):
        body = {"model": "default", "max_tokens": 2, "temperature": 0, "system": SYSTEM, "tools": TOOLS, "messages": [{"role": "user", "content": FIRST}],
                "diagnostics": {"previous_message_id": previous}, "stream": stream, **fields}
        reply = self.server.post("/v1/messages", {k: v for k, v in body.items() if v is not None})
        self.assertEqual(reply.status, 200, reply.body)
        return json.loads(reply.frames[0][1])["message"] if stream else reply.json

    def reason(self, *args, **fields):
        found = self.ask(*args, **fields)["diagnostics"]
        return found and found["cache_miss_reason"]

    def test_reasons(self):
        first = self.ask(None)
        self.assertIsNone(first["diagnostics"])
        tokens = sum(first["usage"][f"{k}input_tokens"] for k in ("", "cache_read_", "cache_creation_"))
        later = [{"role": "user", "content": [{"type": "text", "text": FIRST, "cache_control": {"type": "ephemeral"}}]},
                 {"role": "assistant", "content": first["content"]}, {"role": "user", "content": "And Sam?"}]
        for stream in (False, True):
            same = {"stream": stream}
            self.assertIsNone(self.reason(first["id"], **same))
            self.assertIsNone(self.reason(first["id"], messages=later, **same))
            self.assertIsNone(self.reason(first["id"], messages=later, reuse="off", **same))  # whatever was cached
            for fields, kind in (({"system": SYSTEM + "Be kind."}, "system_changed"), ({"tools": TOOLS[::-1]}, "tools_changed"),
                                 ({"tools": TOOLS[:1]}, "tools_changed"), ({"tools": None}, "tools_changed")):
                self.assertEqual(self.reason(first["id"], **fields, **same), {"type": kind, "cache_missed_input_tokens": tokens})
            changed = self.reason(first["id"], messages=[{"role": "user", "content": "Now. " + FIRST}], **same)
            self.assertEqual(changed["type"], "messages_changed")
            self.assertTrue(0 < changed["cache_missed_input_tokens"] < tokens, (changed, tokens))
            for fields in ({"tool_choice": {"type": "any"}, "max_tokens": 40}, {"thinking": {"type": "enabled", "budget_tokens": 9}}, {"cache_salt": "s"},
                           {"output_config": {"effort": "low"}}):
                self.assertEqual(self.reason(first["id"], **fields, **same), {"type": "unavailable"})
            self.assertEqual(self.reason("msg_none", **same), {"type": "previous_message_not_found"})

    def test_middle_of_a_conversation(self):
        turns = [{"role": ("user", "assistant")[i % 2], "content": f"Turn {i}: " + FIRST} for i in range(9)]
        first = self.ask(None, messages=turns)
        tokens = sum(first["usage"][f"{k}input_tokens"] for k in ("", "cache_read_", "cache_creation_"))
        missed = []
        for i in (1, 5, 8):
            edited = [*turns[:i], {**turns[i], "content": "Edited."}, *turns[i + 1:]]
            found = self.reason(first["id"], messages=edited)
            self.assertEqual(found["type"], "messages_changed")
            missed.append(found["cache_missed_input_tokens"])
        self.assertGreater(missed[0], missed[1])
        self.assertGreater(missed[1], missed[2])
        self.assertLess(abs(missed[2] - tokens / 10), tokens / 20)  # the last of nine turns, beside the system message and the tools
        self.assertEqual(self.reason(first["id"], messages=turns[:5])["type"], "messages_changed")

    def test_only_requests_with_diagnostics_are_kept(self):
        plain = self.ask(None, diagnostics=None)
        self.assertIsNone(plain["diagnostics"])
        self.assertEqual(self.reason(plain["id"]), {"type": "previous_message_not_found"})
        streamed = self.server.post("/v1/messages", {"model": "default", "max_tokens": 2, "messages": [{"role": "user", "content": FIRST}], "stream": True,
                                                     "diagnostics": {}})
        self.assertIsNone(self.reason(json.loads(streamed.frames[0][1])["message"]["id"], system=None, tools=None))

    def test_calls(self):
        def history(call, name="clock", zone="utc"):
            return [{"role": "user", "content": FIRST}, {"role": "assistant", "content": [{"type": "tool_use", "id": call, "name": name, "input": {"zone": zone}}]},
                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call, "content": "noon"}]}]
        first = self.ask(None, messages=history("a"))["id"]
        self.assertIsNone(self.reason(first, messages=history("b")))  # the model sees no ids
        self.assertEqual(self.reason(first, messages=history("a", zone="local"))["type"], "messages_changed")
        self.assertEqual(self.reason(first, messages=history("a", name="zone"))["type"], "messages_changed")

    def test_refused(self):
        for diagnostics in ("x", {"previous_message_id": 5}):
            reply = self.server.post("/v1/messages", {"model": "default", "max_tokens": 1, "messages": [{"role": "user", "content": "x"}], "diagnostics": diagnostics})
            self.assertEqual(reply.status, 400)
            self.assertIn("diagnostics", reply.json["error"]["message"])

    def test_the_oldest_are_removed(self):
        ids = [self.ask(None, system=None, tools=None, messages=[{"role": "user", "content": "x"}], max_tokens=1)["id"] for _ in range(130)]
        same = {"system": None, "tools": None, "messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
        self.assertEqual(self.reason(ids[0], **same), {"type": "previous_message_not_found"})
        self.assertIsNone(self.reason(ids[-1], **same))


class Responses(ServerCase):
    def ask(self, compared=None, *, stream=False, **fields):
        options = {"prompt_cache_options": {"comparison_response_id": compared}} if compared else {}
        body = {"input": FIRST, "instructions": SYSTEM, "tools": [flat(t) for t in TOOLS], "max_output_tokens": 2, "temperature": 0, "stream": stream,
                "prompt_cache_key": "a", **options, **fields}
        reply = self.server.post("/v1/responses", body)
        self.assertEqual(reply.status, 200, reply.body)
        if not stream:
            return reply.json
        events = [json.loads(data) for _, data in reply.frames]
        self.assertNotIn("prompt_cache_diagnostics", events[0]["response"])
        return events[-1]["response"]

    def test_reasons(self):
        first = self.ask(store=False)
        self.assertNotIn("prompt_cache_diagnostics", first)
        for stream in (False, True):
            found = lambda **fields: self.ask(first["id"], stream=stream, **fields)["prompt_cache_diagnostics"]
            hit = {"type": "cache_hit"}
            self.assertEqual(found(), hit)
            self.assertEqual(found(input=[{"role": "user", "content": FIRST}, *first["output"], {"role": "user", "content": "And Sam?"}]), hit)
            for fields in ({"prompt_cache_key": "b"}, {"text": {"verbosity": "low"}}, {"service_tier": "flex"}):
                self.assertEqual(found(**fields), hit)  # the cache does not depend on these
            self.assertEqual(found(reuse="off"), {"type": "unavailable"})  # the same prompt, and nothing was read
            self.assertEqual(found(cache_salt=f"salt{stream}"), {"type": "unavailable"})
            for fields, reason in (({"instructions": f"{stream} " + SYSTEM}, "input_changed"), ({"input": f"{stream} " + FIRST}, "input_changed"),
                                   ({"tools": [flat(t) for t in TOOLS[::-1]], "cache_salt": f"tools{stream}"}, "tools_changed"), ({"reasoning": {"effort": "low"}, "reuse": "off"}, "reasoning_effort_changed")):
                answer = self.ask(first["id"], stream=stream, **fields)
                told, tokens = answer["prompt_cache_diagnostics"], answer["usage"]["input_tokens"]
                self.assertEqual((told["type"], told.get("reason")), ("cache_miss", reason), (fields, answer["usage"], first["usage"]))
                self.assertTrue(0 < told["cache_missed_tokens"] <= tokens, (told, tokens))
                if fields.get("input"):
                    self.assertLess(told["cache_missed_tokens"], tokens)
            self.assertEqual(found(prompt_cache_options={"comparison_response_id": "resp_none"}), {"type": "comparison_response_not_found"})

    def test_stored_answer_has_it(self):
        first = self.ask()
        second = self.ask(first["id"])
        kept = self.server.get("/v1/responses/" + second["id"]).json
        self.assertEqual(kept["prompt_cache_diagnostics"], second["prompt_cache_diagnostics"])
        by_id = self.ask(second["id"], input="And Sam?", previous_response_id=second["id"])
        self.assertEqual(by_id["prompt_cache_diagnostics"], {"type": "cache_hit"})


class Tenants(unittest.TestCase):
    def test_ids_of_others(self):
        """A fingerprint is its tenant's: another one is not told whether the id exists."""
        with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
            os.chmod(keys.name, 0o600)
            keys.write(key_line("a-secret-key-of-a", "tenant=a", "rights=request") + key_line("a-secret-key-of-b", "tenant=b", "rights=request"))
            keys.flush()
            server = Server("--log", "off", "--api-keys", keys.name).wait_ready()
            self.addCleanup(server.stop)
            ask = lambda who, **options: server.post("/v1/responses", {"input": FIRST, "max_output_tokens": 1, **options}, headers=bearer(who)).json
            first = ask("a-secret-key-of-a")["id"]
            for who, kind in (("a-secret-key-of-a", "cache_hit"), ("a-secret-key-of-b", "comparison_response_not_found")):
                self.assertEqual(ask(who, prompt_cache_options={"comparison_response_id": first})["prompt_cache_diagnostics"], {"type": kind})


if __name__ == "__main__":
    unittest.main()
