#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise serve`, sessions and retention: in RAM alone, a conversation whose client names its session, or asks to keep it, outlives 32 one-off
prompts after one turn; requests that read the cache and add nothing."""
import json
import unittest

from server_process import Server

A = "The town of Alder has a mill, a market and a bridge. " * 12 + "What does the town have?"
CLAUDE = "user_1f_account__session_0b7e6a3c-1111-4222-8333-444455556666"


def document(i):
    return f"Document {i}: " + " ".join(f"{i * k % 97} barrels went to {i + k} ships" for k in range(12)) + ". Summarize it."


class Sessions(unittest.TestCase):
    def setUp(self):
        self.server = Server("--log", "off", "--kv-ram", "6M").wait_ready()
        self.addCleanup(self.server.stop)
        self.chat("Hi")  # the words before all messages: else the documents would depend on A's KV

    def chat(self, text, headers=None, path="/v1/chat/completions", **fields):
        body = {"model": "m", "messages": [{"role": "user", "content": text}], "max_tokens": 4, **fields}
        reply = self.server.ask("POST", path, body, {"Content-Type": "application/json", **(headers or {})})
        self.assertEqual(reply.status, 200, reply.body)
        usage = reply.json["usage"]
        return usage["cache_read_input_tokens"] if "messages" in path else usage["prompt_tokens_details"]["cached_tokens"]

    def test_without_a_session(self):
        self.chat(A)
        for i in range(32):
            self.chat(document(i))
        self.assertLess(self.chat(A), 40)

    def outlives(self, *args, **fields):
        self.chat(A, *args, **fields)
        for i in range(32):
            self.chat(document(i))
        first = self.chat(A)
        self.assertGreater(first, 100)
        self.assertLessEqual(self.chat(A) - first, 1)

    def test_header_of_claude_code(self):
        self.outlives({"X-Claude-Code-Session-Id": "0b7e6a3c"}, "/v1/messages")

    def test_header_of_codex(self):
        self.outlives({"thread-id": "t1"})

    def test_metadata_of_claude_code(self):
        self.outlives(path="/v1/messages", metadata={"user_id": CLAUDE})

    def test_prompt_cache_key(self):
        self.outlives(prompt_cache_key="alder")

    def test_retention(self):
        self.outlives(prompt_cache_retention="24h")

    def test_cache_control(self):
        self.outlives(path="/v1/messages", cache_control={"type": "ephemeral", "ttl": "1h"})

    def test_a_finished_session_goes_first(self):
        self.chat(A, {"X-Dynamo-Session-ID": "s", "X-Dynamo-Session-Final": "true"})
        for i in range(32):
            self.chat(document(i))
        self.assertLess(self.chat(A), 40)

    def test_a_long_name_names_nothing(self):
        self.chat(A, {"x-session-id": "x" * 2000})

    def test_read(self):
        self.chat(A)
        spans = self.spans()
        self.assertGreater(self.chat(A + " Give it a title.", reuse="read"), 100)
        self.assertEqual(self.spans(), spans)

    def spans(self):
        return [e["key"] for e in json.loads(self.server.get("/v1/cache/entries").body)["data"]]


if __name__ == "__main__":
    unittest.main()
