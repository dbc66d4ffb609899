#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise serve`: log-probabilities of prompts (echo with logprobs, vLLM's prompt_logprobs) and prompts without an answer (max_tokens 0), as
EleutherAI's lm-eval asks for them and reads them, and against what `reprise eval` computes."""
import json
import math
import os
import subprocess
import tempfile
import unittest

from server_process import MODEL, PROGRAM, ServerCase

CONTEXTS = ["Tom had a red ball. What did Tom have?", "One day", "Anna went to the park and"]
CONTINUATIONS = [", Tom", " zq 7 (x"]


def lm_eval_payload(prompts, max_tokens=1):
    """What lm-eval's model local-completions sends for log-likelihoods: prompts of token ids, in a batch."""
    return {"model": "default", "prompt": prompts, "temperature": 0, "max_tokens": max_tokens, "logprobs": 1, "seed": 1234, "echo": True}


def lm_eval_scores(reply, context_lengths):
    """How it reads the reply: the entries from the context's length on, without the last one, which is the generated token; a continuation is greedy
    if each of its tokens is the likeliest one."""
    scores = []
    for choice, n in zip(sorted(reply["choices"], key=lambda c: c["index"]), context_lengths):
        columns = choice["logprobs"]
        logprobs, tops = columns["token_logprobs"][n:-1], columns["top_logprobs"][n:-1]
        scores.append((sum(logprobs), all(one == max(top.values()) for one, top in zip(logprobs, tops))))
    return scores


class PromptLogprobs(ServerCase):
    def text(self, **fields):
        return self.server.post("/v1/completions", {"temperature": 0, **fields})

    def ids(self, text, start=False):
        return self.server.post("/tokenize", {"content": text, "add_special": start}).json["tokens"]

    def stepwise(self, ids, first):
        """The log-probabilities of ids[first:], one request a token: whether each is the likeliest, too."""
        found = []
        for i in range(first, len(ids)):
            choice = self.text(prompt=ids[:i], max_tokens=1, logprobs=0, ignore_eos=True, logit_bias={str(ids[i]): 1000}).json["choices"][0]
            best = self.text(prompt=ids[:i], max_tokens=1, logprobs=1, ignore_eos=True).json["choices"][0]["logprobs"]
            found.append((choice["logprobs"]["token_logprobs"][0], choice["logprobs"]["token_logprobs"][0] == best["token_logprobs"][0]))
        return found

    def test_lm_eval(self):
        contexts = [self.ids(text, True) for text in CONTEXTS]
        greedy = self.text(prompt=contexts[0], max_tokens=3).json["choices"][0]["text"]
        prompts = [c + self.ids(text) for c, text in zip(contexts, [greedy, *CONTINUATIONS])]
        expected = []
        for context, prompt in zip(contexts, prompts):
            steps = self.stepwise(prompt, len(context))
            expected.append((sum(p for p, _ in steps), all(greedy for _, greedy in steps)))
        for attempt in range(2):  # nothing cached of it, then all of it
            scores = lm_eval_scores(self.text(**lm_eval_payload(prompts)).json, [len(c) for c in contexts])
            self.assertEqual(scores, expected, attempt)
        self.assertTrue(any(greedy for _, greedy in scores) and not all(greedy for _, greedy in scores), scores)
        alone = [lm_eval_scores(self.text(**lm_eval_payload([p])).json, [len(c)])[0] for c, p in zip(contexts, prompts)]
        self.assertEqual(alone, expected)

    def test_an_end_of_text_is_an_entry(self):
        """The parser drops the last entry: it must be there even if the model would end the text."""
        whole = self.text(prompt=CONTEXTS[0], max_tokens=200).json
        self.assertEqual(whole["choices"][0]["finish_reason"], "stop")
        ids = self.ids(CONTEXTS[0] + whole["choices"][0]["text"], True)
        self.assertEqual(self.text(prompt=ids, max_tokens=1).json["usage"]["completion_tokens"], 0)
        reply = self.text(**lm_eval_payload([ids])).json
        self.assertEqual(len(reply["choices"][0]["logprobs"]["tokens"]), len(ids) + 1)
        without = self.text(**lm_eval_payload([ids], max_tokens=0)).json
        self.assertEqual(without["choices"][0]["logprobs"]["token_logprobs"], reply["choices"][0]["logprobs"]["token_logprobs"][:-1])

    def test_as_eval_computes(self):
        context, answer = "Tom had 3 red balls and", " 2 green balls."
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "task.jsonl")
            with open(path, "w", encoding="utf-8") as f:
                json.dump({"schema": '<schema name="s"><module name="m">Unused.</module></schema>', "prompt": f'<prompt schema="s">{context}</prompt>',
                           "answers": [answer], "metric": "perplexity"}, f)
            done = subprocess.run([PROGRAM, "eval", "-m", MODEL, "--threads", "1", "--json", "-t", path, "-s", "exact"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        perplexity = json.loads(done.stdout)["rows"][0]["score"]["mean"]
        before, after = self.ids(context, True), self.ids(answer)
        (likelihood, _), = lm_eval_scores(self.text(**lm_eval_payload([before + after])).json, [len(before)])
        self.assertAlmostEqual(math.exp(-likelihood / len(after)) / perplexity, 1, places=4)

    def test_echo(self):
        choice = self.text(prompt="Tom had a", max_tokens=4, echo=True, logprobs=3, ignore_eos=True).json["choices"][0]
        columns, prompt = choice["logprobs"], self.ids("Tom had a", True)
        plain = self.text(prompt="Tom had a", max_tokens=4, logprobs=3, ignore_eos=True).json["choices"][0]
        self.assertEqual(choice["text"], "Tom had a" + plain["text"])
        self.assertEqual({len(column) for column in columns.values()}, {len(prompt) + 4})
        self.assertIsNone(columns["token_logprobs"][0])
        self.assertIsNone(columns["top_logprobs"][0])
        for logprob, top in zip(columns["token_logprobs"][1:], columns["top_logprobs"][1:]):
            self.assertLess(logprob, 0)
            self.assertTrue(1 <= len(top) <= 3)
        for name in ("tokens", "token_logprobs", "top_logprobs"):
            self.assertEqual(columns[name][len(prompt):], plain["logprobs"][name])
        for token, offset in list(zip(columns["tokens"], columns["text_offset"]))[1:]:
            self.assertEqual(choice["text"][offset:offset + len(token.strip())], token.strip() if not choice["text"][offset:].startswith(" ") else token[:len(token.strip())])
        by_ids = self.text(prompt=prompt, max_tokens=4, echo=True, logprobs=3, ignore_eos=True).json["choices"][0]["logprobs"]
        self.assertEqual(by_ids["token_logprobs"], columns["token_logprobs"])
        self.assertEqual(by_ids["text_offset"][0], 0)
        self.assertIsNone(self.text(prompt="Tom had a", max_tokens=2, echo=True).json["choices"][0]["logprobs"])

    def check_vllm(self, listed, ids, n):
        self.assertEqual(len(listed), len(ids))
        self.assertIsNone(listed[0])
        for token, entry in zip(ids[1:], listed[1:]):
            self.assertIn(str(token), entry)
            self.assertTrue(n <= len(entry) <= n + 1 if n else len(entry) == 1)
            by_rank = sorted(entry.values(), key=lambda one: one["rank"])
            self.assertEqual([one["rank"] for one in by_rank[:n]], list(range(1, n + 1)))
            self.assertEqual(sorted((one["logprob"] for one in by_rank), reverse=True), [one["logprob"] for one in by_rank])
            self.assertTrue(all(set(one) == {"logprob", "rank", "decoded_token"} for one in entry.values()))

    def test_prompt_logprobs(self):
        ids = self.ids("Tom had a red ball", True)
        for n in (0, 1, 4):
            choices = self.text(prompt=["Tom had a red ball", ids], max_tokens=2, prompt_logprobs=n).json["choices"]
            for choice in choices:
                self.check_vllm(choice["prompt_logprobs"], ids, n)
        self.assertEqual(choices[0]["prompt_logprobs"], choices[1]["prompt_logprobs"])
        echoed = self.text(prompt=ids, max_tokens=0, echo=True, logprobs=1).json["choices"][0]["logprobs"]["token_logprobs"]
        self.assertEqual([entry[str(t)]["logprob"] for t, entry in zip(ids[1:], choices[0]["prompt_logprobs"][1:])], echoed[1:])
        self.assertNotIn("prompt_logprobs", self.text(prompt=ids, max_tokens=2).json["choices"][0])
        messages = [{"role": "user", "content": "Tom had"}]
        reply = self.server.post("/v1/chat/completions", {"messages": messages, "max_tokens": 0, "prompt_logprobs": 2}).json
        text = self.server.post("/apply-template", {"messages": messages}).json["prompt"]
        tokens = self.server.post("/tokenize", {"content": text, "parse_special": True}).json["tokens"]
        self.check_vllm(reply["prompt_logprobs"], tokens, 2)
        self.assertEqual((reply["choices"][0]["message"]["content"], reply["choices"][0]["finish_reason"]), ("", "length"))

    def test_modules(self):
        schema = '<schema name="m"><module name="a">Tom had a red ball.</module></schema>'
        self.assertIn(self.server.ask("PUT", "/v1/schemas/m", schema.encode()).status, (200, 201))
        body = {"prompt": "<prompt schema='m'><a/> What?</prompt>", "max_tokens": 0, "prompt_logprobs": 1}
        refused = self.server.post("/v1/prompts", body)
        self.assertEqual(refused.status, 400, refused.body)
        self.assertIn("quality 'exact'", refused.json["error"]["message"])
        answer = self.server.post("/v1/prompts", {**body, "quality": "exact"}).json["answers"][0]
        self.assertEqual(answer["prompt_logprobs"][0], None)
        self.assertGreater(len(answer["prompt_logprobs"]), 5)

    def test_refused(self):
        for fields, says in (({"prompt_logprobs": -1}, "prompt_logprobs"), ({"prompt_logprobs": 101}, "prompt_logprobs"), ({"prompt_logprobs": "1"}, "prompt_logprobs"),
                             ({"prompt_logprobs": 1, "stream": True}, "stream"), ({"echo": True, "logprobs": 1, "stream": True}, "stream"),
                             ({"max_tokens": -1}, "max_tokens")):
            with self.subTest(fields=fields):
                reply = self.text(prompt="Tom", **fields)
                self.assertEqual(reply.status, 400, reply.body)
                self.assertIn(says, reply.json["error"]["message"])


class NoAnswer(ServerCase):
    """max_tokens 0: the prompt is computed and cached, and nothing is generated."""

    def check(self, path, body, length, n=40):
        prompt = f"Once upon a time {path} there was a little girl named Anna. " * 3
        body = json.loads(json.dumps(body).replace("PROMPT", prompt))
        before = self.server.metrics()["reprise_answer_tokens_total"]
        reply = self.server.post(path, {**body, length: 0})
        self.assertEqual(reply.status, 200, reply.body)
        self.assertEqual(self.server.metrics()["reprise_answer_tokens_total"], before)
        again = self.server.post(path, {**body, length: 1}).json["reprise"]
        self.assertGreater(again["cached_tokens"] if "cached_tokens" in again else sum(p["tokens"] for p in again["parts"] if p["reused"]), n)
        return reply

    def test_openai(self):
        reply = self.check("/v1/completions", {"prompt": "PROMPT"}, "max_tokens").json
        self.assertEqual((reply["choices"][0]["text"], reply["choices"][0]["finish_reason"], reply["usage"]["completion_tokens"]), ("", "length", 0))
        self.assertGreater(reply["usage"]["prompt_tokens"], 40)
        for length in ("max_tokens", "max_completion_tokens"):
            reply = self.check("/v1/chat/completions", {"messages": [{"role": "user", "content": length + "PROMPT"}]}, length).json
            self.assertEqual((reply["choices"][0]["message"]["content"], reply["choices"][0]["finish_reason"]), ("", "length"))
        streamed = self.server.post("/v1/completions", {"prompt": "Tom", "max_tokens": 0, "stream": True, "stream_options": {"include_usage": True}}).frames
        chunks = [json.loads(data) for _, data in streamed[:-1]]
        self.assertEqual("".join(c["text"] for chunk in chunks for c in chunk["choices"]), "")
        self.assertEqual([c["finish_reason"] for chunk in chunks for c in chunk["choices"] if c["finish_reason"]], ["length"])
        self.assertEqual(chunks[-1]["usage"]["completion_tokens"], 0)
        self.assertEqual(streamed[-1][1], "[DONE]")

    def test_llamacpp(self):
        reply = self.check("/completion", {"prompt": "PROMPT"}, "n_predict").json
        self.assertEqual((reply["content"], reply["stop_type"], reply["tokens_predicted"]), ("", "limit", 0))

    def test_prompts(self):
        self.assertIn(self.server.ask("PUT", "/v1/schemas/s", b'<schema name="s"><module name="a">x</module></schema>').status, (200, 201))
        reply = self.check("/v1/prompts", {"prompt": "<prompt schema='s'>PROMPT</prompt>"}, "max_tokens").json
        self.assertEqual((reply["answers"][0]["text"], reply["answers"][0]["finish_reason"]), ("", "length"))


if __name__ == "__main__":
    unittest.main()
