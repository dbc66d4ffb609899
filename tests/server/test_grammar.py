#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise serve`: answers under a grammar, in every dialect that can ask for one."""
import json
import re
import unittest

from server_process import ServerCase, in_parallel

QUESTION = [{"role": "user", "content": "Tom had a red ball. What did Tom have?"}]
DATE = 'root ::= [0-9]{4} "-" [01] [0-9] "-" [0-3] [0-9]'
PAIRS = r'''root   ::= "{" (pair ("," pair)*)? "}"
pair   ::= string ":" value
value  ::= string | number | root
string ::= "\"" ([^"\\\x7F\x00-\x1F] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4})){0,6} "\""
number ::= "-"? ([0-9] | [1-9] [0-9]{0,5})
'''


class Grammar(ServerCase):
    def chat(self, **fields):
        return self.server.post("/v1/chat/completions", {"messages": QUESTION, "temperature": 0, "max_tokens": 60, **fields})

    def complete(self, **fields):
        return self.server.post("/completion", {"prompt": "Tom had a", "temperature": 0, "n_predict": 60, **fields})

    def test_all_at_once(self):
        """The first of them makes the tree of tokens, and the others wait for it."""
        replies = []
        in_parallel([lambda i=i: replies.append(self.chat(grammar=DATE, temperature=i % 2, seed=i)) for i in range(8)])
        self.assertEqual(len(replies), 8)
        for reply in replies:
            self.assertRegex(reply.json["choices"][0]["message"]["content"], r"^\d{4}-[01]\d-[0-3]\d$")

    def test_every_dialect(self):
        choice = self.chat(grammar=DATE).json["choices"][0]
        self.assertRegex(choice["message"]["content"], r"^\d{4}-[01]\d-[0-3]\d$")
        self.assertEqual(choice["finish_reason"], "stop")
        whole = self.complete(grammar=DATE).json
        self.assertRegex(whole["content"], r"^\d{4}-[01]\d-[0-3]\d$")
        self.assertEqual((whole["stop_type"], whole["truncated"]), ("eos", False))
        said = self.server.post("/v1/messages", {"model": "default", "max_tokens": 60, "messages": QUESTION, "grammar": DATE})
        self.assertEqual(said.status, 200, said.body)
        said = said.json
        self.assertRegex(said["content"][0]["text"], r"^\d{4}-[01]\d-[0-3]\d$")
        self.assertEqual(said["stop_reason"], "end_turn")

    def test_streams_and_drafts_are_the_same(self):
        whole = self.complete(grammar=PAIRS).json["content"]
        frames = [json.loads(data) for _, data in self.complete(grammar=PAIRS, stream=True).frames]
        self.assertEqual("".join(f["content"] for f in frames), whole)
        self.assertEqual(self.complete(grammar=PAIRS, n_draft=8).json["content"], whole)

    def test_json_is_json(self):
        whole = 0
        for seed in range(12):
            reply = self.complete(grammar=PAIRS, temperature=1.5, seed=seed, n_predict=80, top_k=0, min_p=0, top_p=1).json
            if reply["stop_type"] == "eos":
                json.loads(reply["content"])
                whole += 1
        self.assertGreater(whole, 0)

    def test_none_and_a_trigger(self):
        plain = self.complete().json["content"]
        self.assertEqual(self.complete(grammar="").json["content"], plain)
        self.assertEqual(self.complete(grammar=None).json["content"], plain)
        word = re.search(r"[a-z]+", plain)[0]
        held = self.complete(grammar='root ::= "!" [0-9]', grammar_trigger=word).json["content"]
        self.assertRegex(held, "^[^a-z]*" + word + r"![0-9]$")
        cut = self.chat(grammar='root ::= [0-9]{100}', max_tokens=5).json["choices"][0]
        self.assertEqual(cut["finish_reason"], "length")

    def test_what_is_refused(self):
        for grammar, says in (("root ::= itme\nitem ::= [a]", "grammar:1:10: unknown rule 'itme': did you mean 'item'?"),
                              ("root ::= root", "begins with itself"), ('root ::= "a"{99999999}', "more than 65536 repetitions")):
            reply = self.chat(grammar=grammar)
            self.assertEqual(reply.status, 400, reply.body)
            self.assertIn(says, reply.json["error"]["message"])
            self.assertIn(says, self.complete(grammar=grammar).json["error"]["message"])
        self.assertIn("'grammar'", self.chat(grammar=1).json["error"]["message"])
        self.assertIn("grammar_trigger", self.chat(grammar=DATE, grammar_trigger="x" * 2000).json["error"]["message"])
        self.assertEqual(self.chat(grammar=DATE).status, 200)


if __name__ == "__main__":
    unittest.main()
