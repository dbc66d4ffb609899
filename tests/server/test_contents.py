#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise serve`, what clients say of caching: Gemini's cachedContents, Anthropic's cache_control, OpenAI's prompt_cache_*."""
import datetime
import json
import subprocess
import tempfile
import time
import unittest

from server_process import PROGRAM, Server, ServerCase

HISTORY = " ".join(f"Lily has {k} green stones in box {k + 1}." for k in range(12))
KEYS = {name: f"key-of-{name}-0123456789" for name in ("ann", "tom")}


def content(text, role="user"):
    return {"role": role, "parts": [{"text": text}]}


class Contents(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.keys = tempfile.NamedTemporaryFile("w", suffix=".keys")
        cls.addClassCleanup(cls.keys.close)
        for name, key in KEYS.items():
            done = subprocess.run([PROGRAM, "serve", "--hash-key"], input=key, capture_output=True, text=True, check=True)
            cls.keys.write(f"{done.stdout.strip()} tenant={name}\n")
        cls.keys.flush()
        cls.server = Server("--log", "off", "--api-keys", cls.keys.name).wait_ready()
        cls.addClassCleanup(cls.server.stop)

    def ask(self, method, path, body=None, who="ann"):
        return self.server.ask(method, "/v1beta/" + path, body, headers={"x-goog-api-key": KEYS[who]})

    def create(self, text=HISTORY, who="ann", **fields):
        body = {"model": "models/default", "contents": [content(text)], "systemInstruction": {"parts": [{"text": "You count."}]}, **fields}
        reply = self.ask("POST", "cachedContents", body, who)
        self.assertEqual(reply.status, 200, reply.body)
        return reply.json

    def generate(self, name, question="How many?", who="ann", verb="generateContent", **fields):
        body = {"contents": [content(question)], "generationConfig": {"maxOutputTokens": 3, "temperature": 0}, **fields}
        if name:
            body["cachedContent"] = name
        return self.ask("POST", f"models/default:{verb}", body, who)

    def refused(self, reply, status, says):
        self.assertEqual(reply.status, status, reply.body)
        self.assertIn(says, reply.json["error"]["message"])

    def expiry(self, cached):
        return datetime.datetime.fromisoformat(cached["expireTime"].replace("Z", "+00:00"))

    def test_create_and_use(self):
        cached = self.create(displayName="stones")
        self.assertTrue(cached["name"].startswith("cachedContents/"))
        self.assertEqual(cached["displayName"], "stones")
        tokens = cached["usageMetadata"]["totalTokenCount"]
        self.assertGreater(tokens, 100)
        answer = self.generate(cached["name"])
        self.assertEqual(answer.status, 200, answer.body)
        usage = answer.json["usageMetadata"]
        self.assertGreater(usage["cachedContentTokenCount"], tokens - 20)  # without what opens an answer
        self.assertGreater(usage["promptTokenCount"], tokens)
        whole = self.generate(None, contents=[content(HISTORY), content("How many?")], systemInstruction={"parts": [{"text": "You count."}]})
        self.assertEqual(whole.json["candidates"][0]["content"], answer.json["candidates"][0]["content"])
        self.assertEqual(whole.json["usageMetadata"]["promptTokenCount"], usage["promptTokenCount"])
        counted = self.generate(cached["name"], verb="countTokens").json
        self.assertEqual(counted["totalTokens"], usage["promptTokenCount"])
        stream = self.generate(cached["name"], verb="streamGenerateContent?alt=sse")
        self.assertIn('"cachedContentTokenCount"', stream.frames[-1][1])

    def test_only_instructions(self):
        cached = self.create(contents=[])
        self.assertEqual(self.generate(cached["name"]).status, 200)

    def test_list_get_change_delete(self):
        names = [self.create(f"List {i}.", who="tom")["name"] for i in range(3)]
        first = self.ask("GET", "cachedContents?pageSize=2", who="tom").json
        self.assertEqual([c["name"] for c in first["cachedContents"]], names[:2])
        rest = self.ask("GET", f"cachedContents?pageSize=2&pageToken={first['nextPageToken']}", who="tom").json
        self.assertEqual([c["name"] for c in rest["cachedContents"]], names[2:])
        self.assertNotIn("nextPageToken", rest)
        before = self.ask("GET", names[0], who="tom").json
        after = self.ask("PATCH", names[0] + "?updateMask=ttl", {"ttl": "7200s"}, who="tom").json
        self.assertGreater(self.expiry(after) - self.expiry(before), datetime.timedelta(minutes=50))
        self.assertEqual(self.ask("GET", names[0], who="tom").json, after)
        at = self.ask("PATCH", names[0], {"expireTime": "2125-01-31T12:00:00+02:00"}, who="tom")
        self.refused(at, 400, "expireTime")  # too late
        soon = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=2)
        at = self.ask("PATCH", names[0], {"expireTime": soon.isoformat()}, who="tom").json
        self.assertLess(abs(self.expiry(at) - soon), datetime.timedelta(milliseconds=2))
        for name in names:
            self.assertEqual((self.ask("DELETE", name, who="tom").status, self.ask("DELETE", name, who="tom").status), (200, 404))
        self.assertEqual(self.ask("GET", "cachedContents", who="tom").json, {"cachedContents": []})
        self.refused(self.generate(names[0], who="tom"), 404, "expired")

    def test_expires(self):
        name = self.create("Short.", ttl="0.001s")["name"]
        until = time.monotonic() + 30
        while self.ask("GET", name).status == 200 and time.monotonic() < until:
            time.sleep(0.01)
        self.refused(self.ask("GET", name), 404, "expired")
        self.refused(self.generate(name), 404, "expired")

    def test_other_tenants(self):
        name = self.create("Mine.")["name"]
        self.refused(self.generate(name, who="tom"), 404, "expired")
        for method, body in (("GET", None), ("PATCH", {"ttl": "1s"}), ("DELETE", None)):
            self.assertEqual(self.ask(method, name, body, who="tom").status, 404)
        self.assertEqual(self.ask("GET", name).status, 200)

    def test_refused(self):
        for fields, says in (({"ttl": "1h"}, "ttl"), ({"ttl": "5s", "expireTime": "2030-01-01T00:00:00Z"}, "give one"),
                             ({"expireTime": "2001-01-01T00:00:00Z"}, "a future time"), ({"expireTime": "soon"}, "a future time"),
                             ({"contents": [], "systemInstruction": None}, "contents"), ({"model": None}, "model"),
                             ({"displayName": "x" * 129}, "128")):
            with self.subTest(says=says):
                body = {"model": "models/default", "contents": [content("x")], **fields}
                self.refused(self.ask("POST", "cachedContents", body), 400, says)
        other = self.ask("POST", "cachedContents", {"model": "models/other", "contents": [content("x")]})
        self.assertEqual((other.status, other.json["reprise"]["warnings"]), (200, ["unknown model 'other': ignored"]))
        name = self.create("Kept.")["name"]
        self.refused(self.ask("PATCH", name, {"displayName": "x"}), 400, "no other field")
        self.refused(self.generate(name, systemInstruction={"parts": [{"text": "x"}]}), 400, "belongs in")
        self.assertEqual(self.generate(name, contents=[]).status, 200)
        self.refused(self.ask("GET", "cachedContents?pageSize=x"), 400, "pageSize")

    def test_as_many_as_may_be(self):
        for _ in range(300):
            reply = self.ask("POST", "cachedContents", {"model": "models/default", "contents": [content("x")], "ttl": "3600s"}, who="tom")
            if reply.status != 200:
                break
        self.refused(reply, 429, "too many cached contents")
        for cached in self.ask("GET", "cachedContents?pageSize=1000", who="tom").json["cachedContents"]:
            self.ask("DELETE", cached["name"], who="tom")


class Marks(ServerCase):
    def ask(self, blocks, **fields):
        return self.server.post("/v1/messages", {"model": "default", "max_tokens": 1, "messages": [{"role": "user", "content": blocks}], **fields})

    def block(self, text="Hello.", **mark):
        return {"type": "text", "text": text, **({"cache_control": {"type": "ephemeral", **mark}} if mark is not None else {})}

    def test_cache_control(self):
        self.assertEqual(self.ask([self.block(ttl="1h"), self.block(ttl="5m"), self.block()], system=[self.block()]).status, 200)
        self.assertEqual(self.ask([self.block()] * 4, cache_control={"type": "ephemeral"}).status, 400)
        for blocks, says in (([self.block()] * 5, "at most 4"), ([self.block(ttl="2h")], "5m or 1h"), ([self.block(type="x")], "ephemeral")):
            reply = self.ask(blocks)
            self.assertEqual(reply.status, 400)
            self.assertIn(says, reply.json["error"]["message"])
        marked = self.ask(HISTORY + " All of it.", cache_control={"type": "ephemeral"}).json["usage"]
        self.assertGreater(marked["cache_creation_input_tokens"], 100)

    def test_prompt_cache_fields(self):
        def chat(**fields):
            return self.server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": HISTORY}], "max_tokens": 1, **fields})
        self.assertEqual(chat(prompt_cache_key="a", prompt_cache_retention="24h").status, 200)
        other = chat(prompt_cache_key="b", prompt_cache_retention="in_memory").json
        self.assertGreater(other["usage"]["prompt_tokens_details"]["cached_tokens"], 100)

    def test_prompt_cache_options(self):
        def marked(**breakpoint):
            return [{"type": "text", "text": "Hello.", "prompt_cache_breakpoint": breakpoint}]
        def call(route, kind, fields, content="Hello."):
            history = [{"role": "user", "content": content}]
            more = {"messages": history, "max_tokens": 1} if kind == "text" else {"input": history, "max_output_tokens": 16}
            return self.server.post(route, {**json.loads(json.dumps(more).replace('"text", "text"', f'"{kind}", "text"')), **fields})
        wrong = (({"prompt_cache_retention": "1y"}, "in_memory or 24h"), ({"prompt_cache_key": 5}, "prompt_cache_key"),
                 ({"prompt_cache_retention": "24h", "prompt_cache_options": {"ttl": "30m"}}, "cannot be combined"),
                 ({"prompt_cache_options": {"ttl": "5m"}}, "30m or 12h"), ({"prompt_cache_options": {"mode": "auto"}}, "implicit or explicit"),
                 ({"prompt_cache_options": "30m"}, "prompt_cache_options"))
        for route, kind in (("/v1/chat/completions", "text"), ("/v1/responses", "input_text")):
            for options in ({"mode": "implicit"}, {"mode": "explicit", "ttl": "30m"}, {"ttl": "12h"}, {}, None):
                reply = call(route, kind, {"prompt_cache_options": options, "prompt_cache_key": "a"}, marked(mode="explicit", ttl="12h"))
                self.assertEqual((reply.status, reply.json["reprise"]["warnings"]), (200, []), reply.body)
            for fields, says in wrong:
                reply = call(route, kind, fields)
                self.assertEqual(reply.status, 400, fields)
                self.assertIn(says, reply.json["error"]["message"])
            for breakpoint, says in (({"mode": "implicit"}, "give explicit"), ({"mode": "explicit", "ttl": "1m"}, "content[0].prompt_cache_breakpoint.ttl")):
                reply = call(route, kind, {}, marked(**breakpoint))
                self.assertEqual(reply.status, 400, breakpoint)
                self.assertIn(says, reply.json["error"]["message"])


if __name__ == "__main__":
    unittest.main()
