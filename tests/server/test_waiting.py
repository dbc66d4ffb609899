#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise serve`: streams that wait: their readers are told that they go on, in every dialect, and then get what they would have got."""
import json
import unittest

from server_process import JSON, Server, in_parallel

LONG = {"prompt": "Tom had", "max_tokens": 1500, "ignore_eos": True, "stream": True, "temperature": 0}
MESSAGES = [{"role": "user", "content": "Tom had a red ball. What did Tom have?"}]
ASKS = (("/v1/chat/completions", {"messages": MESSAGES}), ("/v1/messages", {"model": "default", "messages": MESSAGES}),
        ("/v1/prompts", {"prompt": "<prompt schema='s'><user>Tom had a ball. What?</user></prompt>"}))


class Waiting(unittest.TestCase):
    def test_keep_alive(self):
        server = Server("--log", "off", "--sequences", "1", "--keep-alive", "1").wait_ready()
        self.addCleanup(server.stop)
        server.ask("PUT", "/v1/schemas/s", "<schema name='s'><module name='m'>One.</module></schema>")
        asks = [(path, {**body, "max_tokens": 4, "temperature": 0, "stream": True}) for path, body in ASKS]
        wanted = [self.told(server.post(path, body).body) for path, body in asks]
        before = [server.connection() for _ in range(100)]  # one after the other, so that those behind them wait
        for c in before:
            c.request("POST", "/v1/completions", json.dumps(LONG), JSON)
        while server.metrics()["reprise_jobs_open"] < 50:
            pass
        got = [None] * len(asks)

        def wait(i):
            c = server.connection()
            c.request("POST", asks[i][0], json.dumps(asks[i][1]), JSON)
            reply = c.getresponse()
            first = reply.readline()
            self.assertEqual((reply.status, first), (200, b": keep-alive\n"))
            got[i] = (c, reply, first)
        in_parallel([lambda i=i: wait(i) for i in range(len(asks))])
        for c in before:
            c.close()
        for (c, reply, first), frames in zip(got, wanted):
            self.assertEqual(self.told(first + reply.read()), frames)
            c.close()
        server.wait_idle()

    def told(self, body):
        """The names and lengths of what comes between comments; ids and times differ."""
        blocks = [b for b in body.decode().split("\n\n") if b and b != ": keep-alive"]
        self.assertTrue(all(b.startswith(("event: ", "data: ")) for b in blocks), blocks)
        texts = []
        for block in blocks:
            data = block.split("data: ", 1)[1]
            if data != "[DONE]":
                frame = json.loads(data)
                for choice in frame.get("choices", []):
                    texts.append(choice["delta"].get("content") or "")
                texts.append(frame.get("text") or frame.get("delta", {}).get("text") or "")
        return blocks[0].split("\n")[0][:12], "".join(texts)


if __name__ == "__main__":
    unittest.main()
