#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise serve`: each dialect counts cached tokens in its own words, for misses, hits and requests that cache nothing, whole and in streams."""
import json
import unittest

from server_process import ServerCase

TEXT = "Tom had a red ball. Sam had a blue kite. They played in the park until the sun went down. " * 6
MESSAGES = [{"role": "user", "content": TEXT}]


def lines(reply):
    return [json.loads(line) for line in reply.body.decode().splitlines()]


def data(reply):
    return [json.loads(text) for _, text in reply.frames if text != "[DONE]"]


class CacheWords(ServerCase):
    def ask(self, route, **body):
        reply = self.server.post(route, body)
        self.assertEqual(reply.status, 200, reply.body)
        return reply

    def openai(self, usage):
        """(prompt, hit, written) of a chat's or a completion's usage."""
        details = usage["prompt_tokens_details"]
        self.assertEqual(set(details), {"cached_tokens", "cache_write_tokens"})
        self.assertEqual((usage["prompt_cache_hit_tokens"], usage["prompt_cache_miss_tokens"]),
                         (details["cached_tokens"], usage["prompt_tokens"] - details["cached_tokens"]))
        return usage["prompt_tokens"], details["cached_tokens"], details["cache_write_tokens"]

    def counts_of(self, ask):
        """ask(salt, text after the prompt, reuse) -> (prompt, hit, written). Checks a miss, the same again, a longer one, and one that is not cached."""
        prompt, hit, written = ask("a", "", "on")
        self.assertEqual((hit, written), (0, prompt))
        self.assertEqual(ask("a", "", "on"), (prompt, prompt - 1, 0))
        longer, hit, written = ask("a", " And then the moon rose.", "on")
        self.assertGreater(hit, prompt // 2)
        self.assertEqual(written, longer - hit)
        self.assertGreater(written, 0)
        self.assertEqual(ask("b", "", "off"), (prompt, 0, 0))
        self.assertEqual(ask("b", "", "on"), (prompt, 0, prompt))

    def test_openai(self):
        for stream in (False, True):
            more = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}

            def chat(salt, added, reuse):
                reply = self.ask("/v1/chat/completions", messages=[{"role": "user", "content": TEXT + added}], max_tokens=2, reuse=reuse,
                                 cache_salt=f"chat{stream}{salt}", **more)
                return self.openai((data(reply)[-1] if stream else reply.json)["usage"])

            def completion(salt, added, reuse):
                reply = self.ask("/v1/completions", prompt=TEXT + added, max_tokens=2, reuse=reuse, cache_salt=f"text{stream}{salt}", **more)
                return self.openai((data(reply)[-1] if stream else reply.json)["usage"])

            def response(salt, added, reuse):
                reply = self.ask("/v1/responses", input=TEXT + added, max_output_tokens=2, reuse=reuse, cache_salt=f"item{stream}{salt}", stream=stream)
                usage = (data(reply)[-1]["response"] if stream else reply.json)["usage"]
                details = usage["input_tokens_details"]
                return usage["input_tokens"], details["cached_tokens"], details["cache_write_tokens"]

            for ask in (chat, completion, response):
                with self.subTest(ask=ask.__name__, stream=stream):
                    self.counts_of(ask)

    def test_written_tokens(self):
        """What is computed again for the request alone is not written: modules that are recomputed, text after moved KV. Modules that miss are."""
        document = [{"type": "text", "text": TEXT}, {"type": "text", "text": "Who had a ball?"}]
        counts = []
        for fields in ({"reuse": "modular"}, {"reuse": "modular"}, {"reuse": "modular", "quality": "link:8"}):
            reply = self.ask("/v1/chat/completions", messages=[{"role": "user", "content": document}], max_tokens=1, cache_salt="modules", **fields).json
            counts.append(self.openai(reply["usage"]))
        prompt = counts[0][0]
        self.assertEqual(counts[0], (prompt, 0, prompt))
        self.assertEqual(counts[1], (prompt, prompt - 1, 0))
        self.assertGreater(prompt - counts[2][1], 8)
        self.assertLess(counts[2][2], prompt - counts[2][1])
        edited = {"max_tokens": 1, "cache_salt": "edit", "n_cache_reuse": 1}
        self.ask("/v1/chat/completions", messages=[{"role": "user", "content": "Old. " + TEXT}], **edited)
        reply = self.ask("/v1/chat/completions", messages=[{"role": "user", "content": "Something new. " + TEXT}], **edited).json
        shifted = [p for p in reply["reprise"]["parts"] if p["reason"] == "shifted"]
        self.assertEqual([p["tokens"] for p in shifted], [32])
        prompt, hit, written = self.openai(reply["usage"])
        self.assertGreater(hit, 64)
        self.assertLess(written, prompt - hit - 32)

    def test_anthropic(self):
        def ask(salt, *marks, **more):
            texts = [TEXT, TEXT + "Again.", "And why?"]
            blocks = [{"type": "text", "text": text, **({"cache_control": {"type": "ephemeral", **mark}} if mark is not None else {})}
                      for text, mark in zip(texts, marks)]
            reply = self.ask("/v1/messages", model="default", max_tokens=2, messages=[{"role": "user", "content": [b]} for b in blocks], cache_salt=salt, **more)
            if not more.get("stream"):
                return reply.json["usage"]
            frames = data(reply)
            begin, end = frames[0]["message"]["usage"], frames[-2]["usage"]
            self.assertEqual({**begin, "output_tokens": 0}, {**end, "output_tokens": 0})
            return end

        for stream in (False, True):
            of = {"stream": True} if stream else {}
            long = ask(f"1h{stream}", {"ttl": "1h"}, None, None, **of)
            both = ask(f"both{stream}", {"ttl": "1h"}, {"ttl": "5m"}, None, **of)
            short = ask(f"5m{stream}", {}, {}, None, **of)
            for usage in (long, both, short):
                self.assertEqual(sum(usage["cache_creation"].values()), usage["cache_creation_input_tokens"])
                self.assertEqual(usage["cache_read_input_tokens"], 0)
            hour = long["cache_creation"]["ephemeral_1h_input_tokens"]
            self.assertGreater(hour, 100)
            self.assertEqual(long["cache_creation"]["ephemeral_5m_input_tokens"], 0)
            self.assertEqual(both["cache_creation"]["ephemeral_1h_input_tokens"], hour)
            self.assertGreater(both["cache_creation"]["ephemeral_5m_input_tokens"], 100)
            self.assertEqual(short["cache_creation"], {"ephemeral_5m_input_tokens": both["cache_creation_input_tokens"], "ephemeral_1h_input_tokens": 0})
            hit = ask(f"both{stream}", {"ttl": "1h"}, {"ttl": "5m"}, None, **of)
            self.assertEqual((hit["cache_creation"], hit["cache_creation_input_tokens"]), ({"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0}, 0))
            self.assertGreater(hit["cache_read_input_tokens"], both["cache_creation_input_tokens"])
            off = ask(f"off{stream}", {"ttl": "1h"}, {}, None, reuse="off", **of)
            self.assertEqual((off["cache_creation_input_tokens"], off["input_tokens"]), (0, both["input_tokens"] + both["cache_creation_input_tokens"]))

    def test_marked_tools(self):
        tools = [{"name": "clock", "description": TEXT, "input_schema": {"type": "object"}, "cache_control": {"type": "ephemeral", "ttl": "1h"}}]
        usage = self.ask("/v1/messages", model="default", max_tokens=2, messages=MESSAGES, tools=tools, cache_salt="tools").json["usage"]
        created = usage["cache_creation"]
        self.assertGreater(created["ephemeral_1h_input_tokens"], 100)
        self.assertEqual((created["ephemeral_5m_input_tokens"], usage["cache_creation_input_tokens"]), (0, created["ephemeral_1h_input_tokens"]))

    def test_gemini(self):
        body = {"contents": [{"role": "user", "parts": [{"text": TEXT}]}], "generationConfig": {"maxOutputTokens": 2}, "cache_salt": "gemini"}
        miss = self.ask("/v1beta/models/default:generateContent", **body).json["usageMetadata"]
        self.assertEqual((miss["cachedContentTokenCount"], "cacheTokensDetails" in miss), (0, False))
        for reply in (self.ask("/v1beta/models/default:generateContent", **body).json,
                      data(self.ask("/v1beta/models/default:streamGenerateContent?alt=sse", **body))[-1]):
            hit = reply["usageMetadata"]
            self.assertEqual(hit["cacheTokensDetails"], [{"modality": "TEXT", "tokenCount": hit["cachedContentTokenCount"]}])
            self.assertEqual(hit["cachedContentTokenCount"], miss["promptTokenCount"] - 1)

    def test_ollama(self):
        """ollama#8008: 0 where nothing is cached, not absent."""
        for route, prompt in (("/api/chat", {"messages": MESSAGES}), ("/api/generate", {"prompt": TEXT})):
            for stream in (False, True):
                ask = lambda: lines(self.ask(route, model="default", stream=stream, options={"num_predict": 2}, cache_salt=f"{route}{stream}", **prompt))
                miss, hit = ask(), ask()
                self.assertEqual((miss[-1]["prompt_eval_cached_count"], hit[-1]["prompt_eval_cached_count"]), (0, miss[-1]["prompt_eval_count"] - 1))
                self.assertEqual(hit[-1]["prompt_eval_count"], miss[-1]["prompt_eval_count"])
                self.assertFalse(any("prompt_eval_cached_count" in line for line in miss[:-1]))

    def test_progress(self):
        """llama.cpp's return_progress: events before the first text, the last of which has the whole prompt; without it there is none."""
        def progress(route, **body):
            frames = data(self.ask(route, stream=True, **body))
            found = [i for i, f in enumerate(frames) if "prompt_progress" in f]
            text = [i for i, f in enumerate(frames) if f.get("content") or any(c["delta"].get("content") for c in f.get("choices", []))]
            self.assertTrue(not found or max(found) < min(text), frames)
            return [frames[i]["prompt_progress"] for i in found], frames

        for route, body in (("/completion", {"prompt": TEXT * 4, "n_predict": 3}), ("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 3})):
            asked = {**body, "return_progress": True, "cache_salt": route}
            miss, frames = progress(route, **asked)
            self.assertGreater(len(miss), 0, frames)
            total = miss[-1]["total"]
            self.assertEqual([set(p) for p in miss], [{"total", "cache", "processed", "time_ms"}] * len(miss))
            self.assertEqual((miss[-1]["cache"], miss[-1]["processed"]), (0, total))
            self.assertEqual(sorted(p["processed"] for p in miss), [p["processed"] for p in miss])
            hit, _ = progress(route, **asked)
            self.assertEqual((hit[-1]["cache"], hit[-1]["processed"], hit[-1]["total"]), (total - 1, total, total))
            self.assertEqual(progress(route, **{**asked, "return_progress": False})[0], [])
            self.assertEqual(self.ask(route, **asked).json.get("prompt_progress"), None)  # not a stream

    def test_progress_of_a_long_prompt(self):
        """Events come while the prompt is computed, not only at its end: 250 ms apart, of a prompt that takes longer."""
        n, found = 1, []
        while len(found) < 2 and n < 64:
            frames = data(self.ask("/completion", stream=True, prompt=[5 + i % 100 for i in range(1800)], n_predict=1, return_progress=True, reuse="off",
                                   n_cmpl=n))
            found = [f["prompt_progress"]["processed"] for f in frames if "prompt_progress" in f and f["index"] == 0]
            n *= 2
        self.assertGreater(len(found), 1)
        self.assertEqual(sorted(set(found)), found)

    def test_slots(self):
        for action in ("save", "restore", "erase"):
            reply = self.server.post(f"/slots/0?action={action}", {"filename": "a.bin"})
            self.assertEqual(reply.status, 501)
            self.assertIn("every prompt is cached", reply.json["error"]["message"])


if __name__ == "__main__":
    unittest.main()
