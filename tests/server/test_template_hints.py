#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Why a prompt missed the prefix cache, if the model's chat template is the reason: it drops the reasoning of earlier turns, closes reasoning in
the generation prompt only, prints the date, moves the system message. And that it is not blamed otherwise."""
import json
import os
import subprocess
import tempfile
import time
import unittest

import gguf_copy
from server_process import MODEL, PROGRAM, Server

# A message without what is special: every template below has it in its loop.
OPEN, CLOSE = "{{- '<|im_start|>' + m.role + '\\n' }}", "{{- m.content + '<|im_end|>\\n' }}{% endfor %}"
ANSWER = "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
STABLE = "{%- for m in messages %}" + OPEN + CLOSE + ANSWER
DROPS = """{%- for m in messages %}
{{- '<|im_start|>' + m.role + '\\n' }}
{%- if m.reasoning_content and loop.last %}
{{- '<think>\\n' + m.reasoning_content + '\\n</think>\\n\\n' }}
{%- endif %}
{{- m.content + '<|im_end|>\\n' }}
{%- endfor %}""" + ANSWER
KEEPS = DROPS.replace("and loop.last", "and (loop.last or preserve_thinking)")
OPENS = STABLE.replace("assistant\\n'", "assistant\\n<think>\\n\\n</think>\\n\\n'")
DATED = """{%- set today = date_string if date_string is defined else strftime_now('%d %b %Y') %}
{{- '<|im_start|>system\\nIt is ' + today + '. Tom has a box.<|im_end|>\\n' }}""" + STABLE
MOVES = """{%- for m in messages if m.role != 'system' %}
{{- '<|im_start|>' + m.role + '\\n' }}{% if loop.last %}{{ messages[0].content + '\\n' }}{% endif %}""" + CLOSE + ANSWER
THOUGHT = 'root ::= "<think>\\nHm, 2 + 2.\\n</think>\\n\\nIt is 4."'
TURNS = [{"role": "user", "content": "What is 2 + 2?"}, {"role": "assistant", "content": "It is 4."}, {"role": "user", "content": "And 3 + 3?"}]


class TemplateHints(unittest.TestCase):
    def serve(self, template):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = os.path.join(folder.name, "model.gguf")
        gguf_copy.copy(MODEL, path, {"tokenizer.chat_template": gguf_copy.string(template)})
        server = Server(model=path).wait_ready()
        self.addCleanup(server.stop)
        return server

    def ask(self, server, messages, **fields):
        reply = server.post("/v1/chat/completions", {"messages": messages, "max_tokens": 40, "temperature": 0, **fields})
        self.assertEqual(reply.status, 200, reply.body)
        return reply.json

    def hints(self, answer):
        return [h for h in answer["reprise"]["hints"] if h["what"] == "template"]

    def two_turns(self, template, **fields):
        """The hint of a conversation's second turn, and its report."""
        server = self.serve(template)
        first = self.ask(server, TURNS[:1], grammar=THOUGHT)["choices"][0]["message"]
        self.assertEqual(first["content"], "It is 4.")
        said = {"role": "assistant", "content": first["content"], "reasoning_content": first["reasoning_content"]}
        answer = self.ask(server, [TURNS[0], said, TURNS[2]], **fields)
        return server, answer, self.hints(answer)

    def test_reasoning_of_earlier_turns(self):
        server, answer, hints = self.two_turns(DROPS)
        self.assertEqual(len(hints), 1, answer["reprise"])
        hint = hints[0]
        self.assertEqual((hint["message"], hint["at_mismatch"], hint["line"]), ("assistant 1", True, 6))
        self.assertTrue(hint["text"].startswith("It is 4.<|im_end|>"), hint)
        self.assertTrue(hint["cached"].startswith("<think>\nH"), hint)
        self.assertIn("prefilled again", hint["do"])
        report = server.get(f"/v1/requests/{answer['reprise']['request']}/explain").json
        self.assertEqual(self.hints({"reprise": report}), hints)
        said = subprocess.run([PROGRAM, "explain", answer["reprise"]["request"], "--url", server.addresses[0]], capture_output=True, text=True, check=True).stdout
        self.assertIn("template in assistant 1, where the prompt differs from the cached prefix", said)
        self.assertIn("(line 6 of the chat template), cached: ", said)
        self.assertIn(hint["do"], said)

    def test_stream(self):
        server = self.serve(DROPS)
        first = self.ask(server, TURNS[:1], grammar=THOUGHT)["choices"][0]["message"]
        said = {"role": "assistant", "content": first["content"], "reasoning_content": first["reasoning_content"]}
        reply = server.post("/v1/chat/completions", {"messages": [TURNS[0], said, TURNS[2]], "max_tokens": 3, "temperature": 0, "stream": True,
                                                            "stream_options": {"include_usage": True}})
        reports = [json.loads(data)["reprise"] for _, data in reply.frames if data != "[DONE]" and "reprise" in json.loads(data)]
        self.assertEqual([h["message"] for h in self.hints({"reprise": reports[-1]})], ["assistant 1"])

    def test_anthropic(self):
        server = self.serve(DROPS)
        fields = {"model": "default", "max_tokens": 40, "temperature": 0, "thinking": {"type": "enabled", "budget_tokens": 20}}
        first = server.post("/v1/messages", {"messages": TURNS[:1], "grammar": THOUGHT, **fields}).json["content"]
        answer = server.post("/v1/messages", {"messages": [TURNS[0], {"role": "assistant", "content": first}, TURNS[2]], **fields}).json
        self.assertEqual([(h["message"], h["line"]) for h in self.hints(answer)], [("assistant 1", 6)])

    def test_limit(self):
        """A long request is not examined: its report would keep others waiting."""
        for n_bytes, n_hints in ((1000, 1), (140000, 0)):
            server = self.serve(DROPS)
            said = self.ask(server, TURNS[:1], grammar=THOUGHT)["choices"][0]["message"]
            answer = self.ask(server, [TURNS[0], {**said, "tool_calls": []}, TURNS[2]], metadata={"a": "x" * n_bytes})
            self.assertEqual(len(self.hints(answer)), n_hints, n_bytes)

    def test_variable_that_keeps_it(self):
        _, _, hints = self.two_turns(KEEPS)
        self.assertIn("preserve_thinking", hints[0]["do"])
        _, answer, hints = self.two_turns(KEEPS, chat_template_kwargs={"preserve_thinking": True})
        self.assertEqual(hints, [])
        self.assertGreater(answer["usage"]["prompt_tokens_details"]["cached_tokens"], answer["usage"]["prompt_tokens"] / 2)

    def test_generation_prompt(self):
        server = self.serve(OPENS)
        first = self.ask(server, TURNS[:1], grammar='root ::= "It is 4."')
        answer = self.ask(server, TURNS)  # the answer is the sampled tokens, with what the generation prompt began
        self.assertEqual(self.hints(answer), [])
        self.assertGreaterEqual(answer["usage"]["prompt_tokens_details"]["cached_tokens"], first["usage"]["total_tokens"] - 1)

    def test_date(self):
        server = self.serve(DATED)
        messages = [{"role": "user", "content": "Is it big?"}]
        self.ask(server, messages + [{"role": "assistant", "content": "Yes."}, TURNS[0]], chat_template_kwargs={"date_string": "31 Dec 1999"})
        before = time.localtime()
        answer = self.ask(server, messages + [{"role": "assistant", "content": "Yes."}, TURNS[0]])
        hints = self.hints(answer)
        self.assertEqual(len(hints), 1, answer["reprise"])
        self.assertIn(hints[0]["text"], [time.strftime("%d %b %Y", t) for t in (before, time.localtime())])
        self.assertEqual((hints[0]["line"], hints[0]["message"]), (2, "user 1"))
        self.assertIn("date_string", hints[0]["do"])
        self.assertEqual([h["what"] for h in answer["reprise"]["hints"]], ["template"])  # the date is reported once

    def test_moved_system_message(self):
        server = self.serve(MOVES)
        system = {"role": "system", "content": "You count."}
        self.ask(server, [system, TURNS[0]])
        hints = self.hints(self.ask(server, [system] + TURNS))
        self.assertEqual([(h["message"], h["cached"][:10]) for h in hints], [("system 1", "You count.")])

    def test_others_are_not_blamed(self):
        """A stable template; an unstable one, whose client changed the text; a new question."""
        for template in (STABLE, DROPS, DATED):
            server = self.serve(template)
            self.ask(server, TURNS)
            for changed in ([{"role": "user", "content": "What is 2 + 5?"}, *TURNS[1:]], [TURNS[0], {"role": "assistant", "content": "It is 5."}, TURNS[2]],
                            [*TURNS[:2], {"role": "user", "content": "And 3 + 9?"}], TURNS):
                answer = self.ask(server, changed)
                self.assertEqual(self.hints(answer), [], (template, changed))
        answer = self.ask(self.serve(STABLE), [{"role": "system", "content": "It is 2026-11-22."}, *TURNS])
        self.assertEqual([h["what"] for h in answer["reprise"]["hints"]], ["date"])


if __name__ == "__main__":
    unittest.main()
