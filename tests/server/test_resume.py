#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Streams of a node that was lost, continued by another one (docs/cluster-protocol.md): in every dialect, with texts, reasoning and calls, a stream is cut at
marks, continued by another process, cut again and continued by the first one. What the client has then equals the stream of one node: texts, calls,
finish reasons, ids, times, indexes and sequence numbers. Frames may be cut elsewhere."""
import concurrent.futures
import json
import os
import random
import re
import struct
import tempfile
import unittest

import gguf_copy
from cluster_client import Marked, Node
from server_process import MODEL

SEED = int(os.environ.get("REPRISE_TEST_SEED", "1"))
THINKS = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}{# <tool_call> <think> </think> #}")
CREATED = 1790000000
QUESTION = [{"role": "user", "content": "Tell me about the sea, and do not stop."}]
THOUGHT = 'root ::= "<think>\\n" [a-z ]{150,200} "\\n</think>\\n\\n" [A-Z ]{100,150}'
NOTE = {"type": "object", "properties": {"text": {"type": "string", "minLength": 120, "maxLength": 160}}, "required": ["text"],
        "additionalProperties": False}
FUNCTION = {"type": "function", "function": {"name": "note", "description": "Keeps a note.", "parameters": NOTE}}
SHORT = {"type": "function", "function": {"name": "zone", "parameters": {"type": "object", "properties": {"zone": {"enum": ["utc", "local"]}}}}}
TEXT = {"ignore_eos": True, "temperature": 1.3}
SCHEMA = "<schema name='sea'><module name='facts'>The sea is wide and salt.</module></schema>"

CHAT = {"messages": QUESTION, "max_tokens": 300, "stream": True, "temperature": 1}
CLAUDE = {"model": "default", "messages": QUESTION, "max_tokens": 300, "stream": True}
RESPONSE = {"input": "Tell me about the sea.", "max_output_tokens": 300, "stream": True}
INTERACTION = {"input": "Tell me about the sea.", "generation_config": {"max_output_tokens": 300}, "stream": True}
OLLAMA = {"model": "reprise-mini", "options": {"num_predict": 300, "temperature": 1}}
GEMINI = "/v1beta/models/default:streamGenerateContent?alt=sse"
FLAT = {"type": "function", "name": "note", "parameters": NOTE}


def gemini(**fields):
    return {"contents": [{"role": "user", "parts": [{"text": "Tell me about the sea."}]}],
            "generationConfig": {"maxOutputTokens": 300, "thinkingConfig": {"includeThoughts": True}}, **fields}


CASES = {
    "chat": ("/v1/chat/completions", {**CHAT, **TEXT, "stream_options": {"include_usage": True}}),
    "chat_reasoning": ("/v1/chat/completions", {**CHAT, "grammar": THOUGHT}),
    "chat_call": ("/v1/chat/completions", {**CHAT, "tools": [FUNCTION], "tool_choice": "required"}),
    "chat_calls": ("/v1/chat/completions", {**CHAT, "tools": [SHORT, FUNCTION], "tool_choice": "required", "temperature": 1.5, "max_tokens": 500}),
    "chat_stop": ("/v1/chat/completions", {**CHAT, **TEXT, "stop": ["zz", "xq", "ing "]}),
    "chat_custom_tool": ("/v1/chat/completions", {**CHAT, "tools": [{"type": "custom", "custom": {"name": "poem"}}], "tool_choice": "required"}),
    "text": ("/v1/completions", {"prompt": "The sea", "max_tokens": 200, "stream": True, "echo": True, **TEXT}),
    "responses": ("/v1/responses", {**RESPONSE, **TEXT}),
    "responses_reasoning": ("/v1/responses", {**RESPONSE, "grammar": THOUGHT}),
    "responses_call": ("/v1/responses", {**RESPONSE, "tools": [FLAT], "tool_choice": "required"}),
    "responses_custom_tool": ("/v1/responses", {**RESPONSE, "tools": [{"type": "custom", "name": "poem"}], "tool_choice": "required"}),
    "anthropic": ("/v1/messages", {**CLAUDE, "ignore_eos": True}),
    "anthropic_reasoning": ("/v1/messages", {**CLAUDE, "grammar": THOUGHT, "thinking": {"type": "enabled", "budget_tokens": 50}}),
    "anthropic_call": ("/v1/messages", {**CLAUDE, "tools": [{"name": "note", "input_schema": NOTE}], "tool_choice": {"type": "any"}}),
    "gemini": (GEMINI, gemini(**{"ignore_eos": True})),
    "gemini_reasoning": (GEMINI, gemini(grammar=THOUGHT)),
    "gemini_call": (GEMINI, gemini(toolConfig={"functionCallingConfig": {"mode": "ANY"}}, tools=[{"functionDeclarations": [{"name": "note", "parametersJsonSchema": NOTE}]}])),
    "interactions": ("/v1/interactions", {**INTERACTION, "ignore_eos": True}),
    "interactions_reasoning": ("/v1/interactions", {**INTERACTION, "grammar": THOUGHT}),
    "interactions_call": ("/v1/interactions", {**INTERACTION, "tools": [FLAT], "generation_config": {"max_output_tokens": 300, "tool_choice": "any"}}),
    "llamacpp": ("/completion", {"prompt": "The sea", "n_predict": 200, "stream": True, **TEXT}),
    "ollama_chat": ("/api/chat", {**OLLAMA, "messages": QUESTION, "ignore_eos": True}),
    "ollama_reasoning": ("/api/chat", {**OLLAMA, "messages": QUESTION, "think": True, "grammar": THOUGHT}),
    "ollama_tools": ("/api/chat", {**OLLAMA, "messages": QUESTION, "tools": [FUNCTION], "ignore_eos": True}),
    "ollama_generate": ("/api/generate", {**OLLAMA, "prompt": "Tell me about the sea.", "ignore_eos": True}),
    "pml": ("/v1/prompts", {"schema": "sea", "parts": [{"type": "module", "name": "facts"}, {"type": "text", "text": " It is"}], "max_tokens": 200,
                            "stream": True, **TEXT}),
}

# What differs between two runs of one request: times, and what was cached.
VOLATILE = {"reprise", "usage", "usageMetadata", "timings", "total_duration", "load_duration", "prompt_eval_cached_count",
            "prompt_eval_duration", "eval_duration"}


def cleaned(value):
    if isinstance(value, dict):
        return {k: cleaned(v) for k, v in value.items() if k not in VOLATILE}
    return [cleaned(v) for v in value] if isinstance(value, list) else value


def frames(body):
    """(event, object) of a stream of events or of lines."""
    found, event = [], None
    for line in body.decode().split("\n"):
        if line.startswith("event: "):
            event = line[7:]
        elif line.startswith("data: ") or line.startswith("{"):
            data = line.removeprefix("data: ")
            found.append((event, data if data == "[DONE]" else cleaned(json.loads(data))))
            event = None
    return found


def place_of(frame):
    """Where the text of a frame is that is a piece of a longer one: an object and its field; or None."""
    if not isinstance(frame, dict):
        return None
    if isinstance(frame.get("delta"), str):
        return frame, "delta"  # /v1/responses
    inner = [frame, frame.get("delta"), frame.get("message"), (frame.get("delta") or {}).get("content")]
    for choice in frame.get("choices") or []:
        calls = choice.get("delta", {}).get("tool_calls") or [{}]
        inner += [choice, choice.get("delta"), calls[0].get("function") if "id" not in calls[0] else None]
    for candidate in frame.get("candidates") or []:
        inner += candidate["content"]["parts"][:1] if "finishReason" not in candidate else []
    for object in inner:
        if not isinstance(object, dict) or "role" in object and object.get("role") == "assistant" and "created" in frame:
            continue
        for field in ("content", "reasoning_content", "text", "thinking", "partial_json", "response", "arguments"):
            if isinstance(object.get(field), str) and object[field] and not frame.get("done") and "content_block" not in frame:
                return object, field
    return None


def joined(list):
    """Frames that follow each other and differ in a piece of text only become one."""
    found, last = [], None
    for event, frame in list:
        place = place_of(frame)
        text = None
        if place:
            text, place[0][place[1]] = place[0][place[1]], ""
        shape = json.dumps([event, frame], sort_keys=True)
        if place and last and last[0] == shape:
            last[1] += text
            continue
        last = [shape, text] if place else None
        found.append(last if place else [shape, None])
    return found


class Resume(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        path = os.path.join(folder.name, "model.gguf")
        gguf_copy.copy(MODEL, path, {"tokenizer.chat_template": gguf_copy.string(THINKS)}, ())
        cls.nodes = [Node("--log", "off", name="one", model=path), Node("--log", "off", name="one", model=path)]
        for node in cls.nodes:
            cls.addClassCleanup(node.stop)
            node.wait_ready()
            node.ask("PUT", "/v1/schemas/sea", SCHEMA)

    def stream(self, node, path, body, id, resume=None, tokens=()):
        """All bytes of a stream, from the start or continued."""
        bytes = json.dumps(body).encode() + struct.pack(f"<{len(tokens)}i", *tokens)
        headers = {"resume": f"{len(tokens)};{resume[0]};{resume[1]}"} if resume else {}
        reply = node.relay("POST", path, bytes, route=node.route(id=id, marks=1, created=CREATED), **headers)
        self.assertEqual(reply.status, 200, reply.body)
        self.assertEqual((reply.headers["x-reprise-marks"], reply.headers["x-request-id"]), ("1", id))
        return Marked(reply.body)

    def marked(self, node, path, body, id):
        """A stream with a mark: where the reader gets no turn before the answer ends, there is none."""
        for _ in range(20):
            whole = self.stream(node, path, body, id)
            if whole.marks and whole.marks[-1][2]:
                return whole
        self.fail("no stream has a mark")

    def check_equal(self, name, whole, pieces):
        wanted, found = frames(b"".join(whole.pieces) + whole.rest), frames(b"\n".join(pieces))
        if name.startswith("responses"):
            for list in (wanted, found):
                self.assertEqual([f.pop("sequence_number") for _, f in list], [*range(len(list))])
        wanted, found = joined(wanted), joined(found)
        for a, b in zip(wanted, found):
            self.assertEqual(a, b)
        self.assertEqual(len(wanted), len(found))

    def check(self, name, path, body, draw):
        id = f"req-{name}"
        first, second = self.nodes
        whole = self.marked(first, path, body, id)
        n = len(whole.marks)
        self.assertEqual(whole.marks[-1][1], len(frames(b"".join(whole.pieces))))
        self.assertGreaterEqual(len(frames(whole.rest)), 1)  # the end has no mark
        for cut in {1, n, draw.randrange(1, n + 1)}:
            had, tokens = whole.until(cut)
            rest = self.stream(second, path, body, id, whole.marks[cut - 1], tokens)
            self.check_equal(name, whole, [had, *rest.pieces, rest.rest])
            if not rest.marks:
                continue
            again = draw.randrange(1, len(rest.marks) + 1)
            more, more_tokens = rest.until(again)
            last = self.stream(first, path, body, id, rest.marks[again - 1], tokens + more_tokens)
            self.check_equal(name, whole, [had, more, *last.pieces, last.rest])

    def test_dialects(self):
        """All at once: a batch is slower than one answer, so that there are more marks."""
        with concurrent.futures.ThreadPoolExecutor(len(CASES)) as pool:
            runs = {name: pool.submit(self.check, name, path, body, random.Random(f"{SEED} {name}")) for name, (path, body) in CASES.items()}
        for name, run in runs.items():
            with self.subTest(name=name):
                run.result()

    def check_length(self, name, path, body):
        """An answer whose length is that of the last mark: nothing of it was lost but its end."""
        first, second = self.nodes
        longer = self.marked(first, path, body, f"req-l-{name}")
        had, tokens = longer.until(len(longer.marks))
        limit = re.compile(r'("(?:max_tokens|max_output_tokens|num_predict|maxOutputTokens|n_predict)": ?)\d+')
        shorter = json.loads(limit.sub(rf"\g<1>{len(tokens)}", json.dumps(body)))
        whole = self.stream(first, path, shorter, f"req-l-{name}")
        rest = self.stream(second, path, shorter, f"req-l-{name}", longer.marks[-1], tokens)
        had = limit.sub(rf"\g<1>{len(tokens)}", had.decode()).encode()  # /v1/responses begins with its request
        self.check_equal(name, whole, [had, *rest.pieces, rest.rest])
        self.assertEqual([mark[2] for mark in rest.marks if mark[2]], [])

    def test_only_the_end_was_lost(self):
        with concurrent.futures.ThreadPoolExecutor(len(CASES)) as pool:
            runs = {name: pool.submit(self.check_length, name, path, body) for name, (path, body) in CASES.items()}
        for name, run in runs.items():
            with self.subTest(name=name):
                run.result()

    def test_only_the_end_after_a_stop_was_lost(self):
        node, other = self.nodes
        path, body = "/v1/completions", {"prompt": "The sea", "max_tokens": 600, "stream": True, "grammar": "root ::= [a-z ]+", **TEXT}
        tokens = ()
        while len(tokens) < 50:  # those of the last mark: how many depends on the machine
            tokens = self.marked(node, path, body, "req-s").until(10 ** 6)[1]
        texts = [node.ask("POST", "/detokenize", {"tokens": tokens[:i]}).json["content"] for i in range(len(tokens) + 1)]
        k, stop = next((k, texts[k][-4:]) for k in range(5, len(tokens)) if texts[k].isascii() and texts[k].find(texts[k][-4:]) == len(texts[k]) - 4)
        whole = self.stream(node, path, {**body, "stop": [stop]}, "req-s")
        text = "".join(f["choices"][0]["text"] for _, f in frames(b"".join(whole.pieces) + whole.rest) if isinstance(f, dict) and f["choices"])
        self.assertEqual(text.strip(), texts[k][:-4].strip())
        rest = self.stream(other, path, {**body, "stop": [stop]}, "req-s", (len(text), 3), tokens[:k])
        ends = frames(b"".join(rest.pieces) + rest.rest)
        self.assertEqual([(f["choices"][0]["text"], f["choices"][0]["finish_reason"]) for _, f in ends[:-1]], [("", "stop")])
        self.assertEqual(ends, frames(whole.rest)[-len(ends):])

    def test_before_the_first_text(self):
        """A mark that has no text yet, and a stream of which nothing was sent."""
        path, body = CASES["chat"]
        whole = self.stream(self.nodes[0], path, body, "req-0")
        begin = frames(b"".join(whole.pieces))[0]
        rest = self.stream(self.nodes[1], path, body, "req-0", (0, 0), ())
        self.check_equal("chat", whole, [*rest.pieces, rest.rest])
        rest = self.stream(self.nodes[1], path, body, "req-0", (0, 1), ())
        rest = frames(b"".join(rest.pieces) + rest.rest)
        self.assertNotEqual(rest[0], begin)
        self.assertEqual(joined([begin, *rest]), joined(frames(b"".join(whole.pieces) + whole.rest)))

    def test_whole_answer(self):
        """Not a stream: the answer is whole, and has the tokens that were sampled before."""
        body = {**CHAT, **TEXT, "stream": False, "max_tokens": 100}
        node = self.nodes[0]
        whole = node.relay("POST", "/v1/chat/completions", body, route=node.route(id="req-w"))
        marked = self.marked(node, "/v1/chat/completions", {**body, "stream": True}, "req-w")
        tokens = marked.until(len(marked.marks))[1]
        bytes = json.dumps(body).encode() + bytes_of(*tokens)
        other = self.nodes[1].relay("POST", "/v1/chat/completions", bytes, route=self.nodes[1].route(id="req-w"), resume=f"{len(tokens)};0;0")
        self.assertEqual(cleaned(other.json), cleaned(whole.json))

    def test_refused(self):
        node, path = self.nodes[0], "/v1/chat/completions"
        body = json.dumps({**CHAT, **TEXT}).encode()
        for resume, more, bytes, says in (("1;2", {}, b"", "malformed"), ("100000;0;0", {}, b"", "too few"), ("1;5;2", {"n": 2}, bytes_of(5), "2 answers"),
                                          ("1;5;2", {"logprobs": True}, bytes_of(5), "without marks"), ("1;5;2", {}, bytes_of(1 << 30), "vocabulary"),
                                          ("301;5;2", {}, bytes_of(*[5] * 301), "max_tokens")):
            sent = json.dumps({**CHAT, **TEXT, **more}).encode() + bytes
            reply = node.relay("POST", path, sent, route=node.route(marks=1), resume=resume)
            self.assertEqual(reply.status, 400, reply.body)
            self.assertIn(says, reply.json["error"]["message"])
        reply = node.relay("POST", path, body, resume="0;0;0")
        self.assertEqual((reply.status, "needs" in reply.json["error"]["message"]), (400, True), reply.body)

    def test_no_marks(self):
        """Several answers, log-probabilities, and requests without `marks` have none."""
        node = self.nodes[0]
        for more, marks in (({"n": 2}, 1), ({"logprobs": True}, 1), ({"context_shift": True}, 1), ({}, 0)):
            reply = node.relay("POST", "/v1/chat/completions", {**CHAT, **TEXT, "max_tokens": 5, **more}, route=node.route(marks=marks))
            self.assertEqual((reply.status, reply.headers["x-reprise-marks"], b": r " in reply.body), (200, None, False), reply.body)


def bytes_of(*tokens):
    return struct.pack(f"<{len(tokens)}i", *tokens)


if __name__ == "__main__":
    unittest.main()
