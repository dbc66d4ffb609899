#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise serve`: reasoning in the dialects of OpenAI, Anthropic and Gemini, and tool calls by the model family's convention. The bundled model
gets templates of other families; a grammar makes its answers certain."""
import json
import os
import tempfile
import unittest

import gguf_copy
from server_process import MODEL, Server

CHATML = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
THINKS = CHATML + "{# <tool_call> <think> </think> #}"
REASONING, ANSWER = "Hm, 2 + 2.", "It is 4."
THOUGHT = "root ::= \"<think>\\nHm, 2 + 2.\\n</think>\\n\\nIt is 4.\""
QUESTION = [{"role": "user", "content": "What is 2 + 2?"}]
TIME = {"type": "object", "properties": {"zone": {"enum": ["utc", "local"]}}, "required": ["zone"]}


def serve(case, template, *options, names=()):
    """A server of the bundled model with another template, for all tests of a class."""
    folder = tempfile.TemporaryDirectory()
    case.addClassCleanup(folder.cleanup)
    path = os.path.join(folder.name, "model.gguf")
    gguf_copy.copy(MODEL, path, {"tokenizer.chat_template": gguf_copy.string(template)}, names)
    server = Server("--log", "off", *options, model=path).wait_ready()
    case.addClassCleanup(server.stop)
    return server


class Thinks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = serve(cls, THINKS, "--strict")

    def sent(self, path, body):
        reply = self.server.post(path, body)
        self.assertEqual(reply.status, 200, reply.body)
        return reply

    def check_reasoning_tokens(self, n, answer):
        self.assertGreater(n, 3)
        self.assertLess(n, answer - 2)


class OpenAI(Thinks):
    def chat(self, **fields):
        return self.sent("/v1/chat/completions", {"messages": QUESTION, "temperature": 0, "max_tokens": 100, "grammar": THOUGHT, **fields})

    def message(self, **fields):
        return self.chat(**fields).json["choices"][0]["message"]

    def deltas(self, **fields):
        chunks = [json.loads(data) for _, data in self.chat(stream=True, **fields).frames if data != "[DONE]"]
        return [c["choices"][0]["delta"] for c in chunks if c["choices"]]

    def test_message(self):
        message = self.message()
        self.assertEqual((message["reasoning_content"], message["content"]), (REASONING, ANSWER))
        used = self.chat().json["usage"]
        self.check_reasoning_tokens(used["completion_tokens_details"]["reasoning_tokens"], used["completion_tokens"])
        plain = self.chat(grammar="root ::= \"It is 4.\"").json
        self.assertNotIn("reasoning_content", plain["choices"][0]["message"])
        self.assertEqual(plain["usage"]["completion_tokens_details"]["reasoning_tokens"], 0)

    def test_stream(self):
        deltas = self.deltas()
        self.assertEqual("".join(d.get("reasoning_content", "") for d in deltas), REASONING)
        self.assertEqual("".join(d.get("content", "") for d in deltas), ANSWER)
        kinds = [k for d in deltas for k in d if k != "role" and d[k]]
        self.assertEqual(kinds, sorted(kinds, reverse=True))  # reasoning_content before content

    def test_logprobs_count_all_tokens(self):
        whole = self.chat(logprobs=True).json
        self.assertEqual(len(whole["choices"][0]["logprobs"]["content"]), whole["usage"]["completion_tokens"])
        chunks = [json.loads(data) for _, data in self.chat(logprobs=True, stream=True).frames if data != "[DONE]"]
        lists = [c["choices"][0]["logprobs"]["content"] for c in chunks if c["choices"] and c["choices"][0]["logprobs"]]
        self.assertEqual(sum(map(len, lists)), whole["usage"]["completion_tokens"])

    def test_hidden(self):
        message = self.message(include_reasoning=False)
        self.assertEqual(message["content"], ANSWER)
        self.assertNotIn("reasoning_content", message)
        self.assertFalse([d for d in self.deltas(include_reasoning=False) if "reasoning_content" in d])
        self.assertGreater(self.chat(include_reasoning=False).json["usage"]["completion_tokens_details"]["reasoning_tokens"], 3)

    def test_continued(self):
        """The last message may end within reasoning."""
        opened = QUESTION + [{"role": "assistant", "content": "<think>\nHm,"}]
        message = self.message(messages=opened, continue_final_message=True, grammar="root ::= \" 2 + 2.\\n</think>\\n\\nIt is 4.\"")
        self.assertEqual((message["reasoning_content"], message["content"]), ("2 + 2.", ANSWER))

    def test_cut(self):
        choice = self.chat(max_tokens=9).json["choices"][0]
        self.assertEqual((choice["finish_reason"], choice["message"]["content"]), ("length", ""))
        self.assertTrue(REASONING.startswith(choice["message"]["reasoning_content"]))

    def test_json_after_reasoning(self):
        """A grammar of an answer's format lets the model reason first, unless it is told not to."""
        schema = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"enum": [4]}}}
        for fields in ({"enable_thinking": False}, {"chat_template_kwargs": {"enable_thinking": False}}, {"reasoning_effort": "none"}):
            self.assertEqual(self.chat(grammar="", response_format=schema, **fields).json["choices"][0]["message"]["content"], "4")

    def test_fields(self):
        self.message(enable_thinking=True, chat_template_kwargs={"enable_thinking": True, "documents": []}, reasoning_effort="high")
        for fields, name in (({"reasoning_effort": "much"}, "reasoning_effort"), ({"enable_thinking": "yes"}, "enable_thinking"),
                             ({"chat_template_kwargs": []}, "chat_template_kwargs")):
            reply = self.server.post("/v1/chat/completions", {"messages": QUESTION, "max_tokens": 1, **fields})
            self.assertEqual(reply.status, 400)
            self.assertIn(name, reply.json["error"]["message"])

    def test_history(self):
        for name in ("reasoning_content", "reasoning", "thinking"):
            self.message(messages=QUESTION + [{"role": "assistant", "content": ANSWER, name: REASONING}, {"role": "user", "content": "And 3 + 3?"}])

    def test_completions_are_text(self):
        reply = self.sent("/v1/completions", {"prompt": "2 + 2", "temperature": 0, "max_tokens": 100, "grammar": THOUGHT})
        self.assertEqual(reply.json["choices"][0]["text"], "<think>\nHm, 2 + 2.\n</think>\n\nIt is 4.")
        reply = self.sent("/completion", {"prompt": "2 + 2", "temperature": 0, "n_predict": 100, "grammar": THOUGHT})
        self.assertIn("<think>", reply.json["content"])


class Anthropic(Thinks):
    def message(self, **fields):
        return self.sent("/v1/messages", {"model": "default", "messages": QUESTION, "max_tokens": 100, "temperature": 0, "grammar": THOUGHT,
                                          "thinking": {"type": "enabled", "budget_tokens": 50}, **fields})

    def test_message(self):
        content = self.message().json["content"]
        self.assertEqual([b["type"] for b in content], ["thinking", "text"])
        self.assertEqual((content[0]["thinking"], content[1]["text"]), (REASONING, ANSWER))
        self.assertGreater(len(content[0]["signature"]), 16)
        again = self.message(messages=QUESTION + [{"role": "assistant", "content": content}, {"role": "user", "content": "And 3 + 3?"}])
        self.assertEqual(again.json["content"][1]["text"], ANSWER)

    def test_stream(self):
        events = [json.loads(data) for _, data in self.message(stream=True).frames]
        blocks, deltas = {}, {}
        for e in events:
            if e["type"] == "content_block_start":
                self.assertNotIn(e["index"], blocks)
                blocks[e["index"]] = e["content_block"]
                self.assertEqual(e["index"], len(blocks) - 1)
            elif e["type"] == "content_block_delta":
                deltas.setdefault(e["index"], []).append(e["delta"])
        self.assertEqual([blocks[0], blocks[1]], [{"type": "thinking", "thinking": "", "signature": ""}, {"type": "text", "text": ""}])
        self.assertEqual("".join(d["thinking"] for d in deltas[0] if d["type"] == "thinking_delta"), REASONING)
        self.assertEqual("".join(d["text"] for d in deltas[1]), ANSWER)
        self.assertEqual((deltas[0][-1]["type"], deltas[0][-1]["signature"]),
                         ("signature_delta", self.message().json["content"][0]["signature"]))
        order = [e["type"] for e in events if e["type"].startswith("content_block") and e["type"] != "content_block_delta"]
        self.assertEqual(order, ["content_block_start", "content_block_stop"] * 2)

    def test_call(self):
        """Reasoning, then a call; both go back with its result."""
        tools = [{"name": "time", "input_schema": TIME}]
        reply = self.server.post("/v1/messages", {"model": "default", "messages": QUESTION, "max_tokens": 200, "temperature": 0, "tools": tools,
                                                  "tool_choice": {"type": "any"}, "thinking": {"type": "disabled"}})
        content = reply.json["content"]
        self.assertEqual({b["type"] for b in content}, {"tool_use"})
        call = content[-1]
        history = QUESTION + [{"role": "assistant", "content": [{"type": "thinking", "thinking": REASONING, "signature": "x"},
                                                                {"type": "redacted_thinking", "data": "x"}, *content]},
                              {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call["id"], "content": "12:00"}]}]
        self.message(messages=history)

    def test_empty_answer(self):
        content = self.message(grammar="root ::= \"<think>Hm.</think>\"").json["content"]
        self.assertEqual([b["type"] for b in content], ["thinking", "text"])


class Responses(Thinks):
    def respond(self, **fields):
        return self.sent("/v1/responses", {"input": "What is 2 + 2?", "temperature": 0, "max_output_tokens": 100, "grammar": THOUGHT,
                                           "reasoning": {"effort": "low"}, **fields})

    def test_response(self):
        r = self.respond().json
        self.assertEqual([i["type"] for i in r["output"]], ["reasoning", "message"])
        self.assertEqual((r["output"][0]["summary"], r["output"][0]["content"]), ([], [{"type": "reasoning_text", "text": REASONING}]))
        self.assertEqual(r["output"][1]["content"][0]["text"], ANSWER)
        self.assertEqual(r["reasoning"]["effort"], "low")
        self.check_reasoning_tokens(r["usage"]["output_tokens_details"]["reasoning_tokens"], r["usage"]["output_tokens"])
        self.respond(previous_response_id=r["id"])
        self.respond(input=[{"role": "user", "content": "What is 2 + 2?"}, *r["output"], {"role": "user", "content": "And 3 + 3?"}])

    def test_stream(self):
        events = [json.loads(data) for _, data in self.respond(stream=True).frames]
        self.assertEqual([e["sequence_number"] for e in events], list(range(len(events))))
        types = [e["type"] for e in events]
        begins = ["response.output_item.added", "response.content_part.added"]
        for kind, index, text in (("reasoning_text", 0, REASONING), ("output_text", 1, ANSWER)):
            mine = [e for e in events if e.get("output_index") == index]
            self.assertEqual([e["type"] for e in mine[:2]], begins)
            self.assertEqual([e["type"] for e in mine[-3:]], [f"response.{kind}.done", "response.content_part.done", "response.output_item.done"])
            self.assertEqual("".join(e["delta"] for e in mine if e["type"] == f"response.{kind}.delta"), text)
            self.assertEqual((mine[-3]["text"], mine[-1]["item"]["content"][0]["text"]), (text, text))
            self.assertEqual(len({e.get("item_id") or e["item"]["id"] for e in mine}), 1)
        self.assertEqual(types[-1], "response.completed")
        self.assertEqual([i["type"] for i in events[-1]["response"]["output"]], ["reasoning", "message"])


    def test_logprobs_are_of_the_text(self):
        """Those of the reasoning's tokens are not among them, in a stream as in a whole response."""
        asked = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
        part = self.respond(**asked).json["output"][1]["content"][0]
        self.assertEqual("".join(t["token"] for t in part["logprobs"]), ANSWER)
        events = [json.loads(data) for _, data in self.respond(stream=True, **asked).frames]
        lists = {kind: [e["logprobs"] for e in events if e["type"] == f"response.output_text.{kind}"] for kind in ("delta", "done")}
        self.assertEqual((sum(lists["delta"], []), lists["done"]), (part["logprobs"], [part["logprobs"]]))
        self.assertEqual(events[-1]["response"]["output"][1]["content"], [part])


class Gemini(Thinks):
    def generate(self, verb="generateContent", config=None, **fields):
        config = {"temperature": 0, "maxOutputTokens": 100, "thinkingConfig": {"includeThoughts": True}, **(config or {})}
        return self.sent(f"/v1beta/models/default:{verb}", {"contents": [{"parts": [{"text": "What is 2 + 2?"}]}], "generationConfig": config,
                                                            "grammar": THOUGHT, **fields})

    def test_content(self):
        r = self.generate().json
        content = r["candidates"][0]["content"]
        self.assertEqual(content["parts"], [{"text": REASONING, "thought": True}, {"text": ANSWER}])
        used = r["usageMetadata"]
        self.check_reasoning_tokens(used["thoughtsTokenCount"], used["thoughtsTokenCount"] + used["candidatesTokenCount"])
        self.assertEqual(used["promptTokenCount"] + used["thoughtsTokenCount"] + used["candidatesTokenCount"], used["totalTokenCount"])
        self.generate(contents=[{"parts": [{"text": "What is 2 + 2?"}]}, content, {"parts": [{"text": "And 3 + 3?"}]}])

    def test_stream(self):
        parts = [p for _, data in self.generate("streamGenerateContent?alt=sse").frames for p in json.loads(data)["candidates"][0]["content"]["parts"]]
        self.assertEqual("".join(p["text"] for p in parts if p.get("thought")), REASONING)
        self.assertEqual("".join(p["text"] for p in parts if not p.get("thought")), ANSWER)

    def test_hidden(self):
        r = self.generate(config={"thinkingConfig": {"includeThoughts": False, "thinkingBudget": 512}}).json
        self.assertEqual(r["candidates"][0]["content"]["parts"], [{"text": ANSWER}])
        self.assertGreater(r["usageMetadata"]["thoughtsTokenCount"], 3)


class Stops(Thinks):
    """Stop strings count in the answer, not in reasoning (vllm-project/vllm#14399), unless the request asks for it."""
    GRAMMAR = "root ::= \"<think>\\nHm,\\n\\nOBS: x</think>\\n\\nIt is 4.\\nOBS: y\""
    PATHS = ("/v1/chat/completions", "/v1/messages", "/v1beta/models/default:generateContent", "/api/chat")

    def ask(self, path, stop, **fields):
        body = {"model": "default", "messages": QUESTION, "temperature": 0, "max_tokens": 100, "grammar": self.GRAMMAR, "reuse": "on", **fields}
        if path == "/v1/messages":
            body["stop_sequences"] = stop
        elif path == "/api/chat":
            body = {**body, "stream": False, "options": {"stop": stop, "temperature": 0, "num_predict": 100}}
            del body["temperature"], body["max_tokens"]
        elif path != "/v1/chat/completions":
            body = {"contents": [{"parts": [{"text": "What is 2 + 2?"}]}], "grammar": self.GRAMMAR, **fields,
                    "generationConfig": {"stopSequences": stop, "temperature": 0, "maxOutputTokens": 100}}
        else:
            body["stop"] = stop
        r = self.sent(path, body).json
        if path == "/v1/messages":
            return r["content"][-1]["text"], r["stop_sequence"]
        if path == "/api/chat":
            return r["message"]["content"], None
        if path == "/v1/chat/completions":
            return r["choices"][0]["message"]["content"], None
        return r["candidates"][0]["content"]["parts"][-1]["text"], None

    def test_all_dialects(self):
        for path in self.PATHS:
            for stop, left in (("OBS:", "It is 4.\n"), ("\n\n", "It is 4.\nOBS: y"), ("\n", "It is 4."), ("4", "It is "), ("<", "It is 4.\nOBS: y")):
                text, found = self.ask(path, [stop])
                self.assertEqual(text, left, (path, stop))
                self.assertEqual(found, stop if path == "/v1/messages" and "y" not in left else None)
            self.assertNotIn("It", self.ask(path, ["Hm"], stop_in_reasoning=True)[0])

    def test_stream(self):
        """Nothing is computed after the stop string, and nothing of it is shown."""
        body = {"messages": QUESTION, "temperature": 0, "max_tokens": 100, "grammar": self.GRAMMAR, "stop": "OBS:", "stream": True,
                "stream_options": {"include_usage": True}}
        chunks = [json.loads(data) for _, data in self.sent("/v1/chat/completions", body).frames if data != "[DONE]"]
        deltas = [c["choices"][0]["delta"] for c in chunks if c["choices"]]
        self.assertEqual("".join(d.get("reasoning_content", "") for d in deltas), "Hm,\n\nOBS: x")
        self.assertEqual("".join(d.get("content", "") for d in deltas), "It is 4.\n")
        everything = self.sent("/v1/chat/completions", {**body, "stop": None}).frames
        self.assertLess(chunks[-1]["usage"]["completion_tokens"], json.loads(everything[-2][1])["usage"]["completion_tokens"])


class Families(unittest.TestCase):
    """Calls through the server, in conventions other than Hermes."""
    TOOLS = [{"type": "function", "function": {"name": "time", "parameters": TIME}}]
    TEMPLATES = {"llama-3": CHATML + "{# <|python_tag|> #}", "mistral": CHATML + "{# [TOOL_CALLS] #}", "glm": CHATML + "{# <arg_key> #}",
                 "kimi": CHATML + "{# <|tool_calls_section_begin|> #}", "harmony": "{# <|start|><|channel|>analysis<|message|> #}"}

    def check_calls(self, server, **fields):
        body = {"messages": QUESTION, "temperature": 0, "max_tokens": 400, "tools": self.TOOLS, "enable_thinking": False,
                "parallel_tool_calls": False, **fields}
        choice = server.post("/v1/chat/completions", body).json["choices"][0]
        self.assertEqual((choice["finish_reason"], choice["message"]["content"]), ("tool_calls", None), choice)
        whole = [(c["function"]["name"], c["function"]["arguments"]) for c in choice["message"]["tool_calls"]]
        for name, arguments in whole:
            self.assertEqual((name, json.loads(arguments)["zone"] in ("utc", "local")), ("time", True))
        calls = {}
        for _, data in server.post("/v1/chat/completions", {**body, "stream": True}).frames:
            for c in [] if data == "[DONE]" else json.loads(data)["choices"][0]["delta"].get("tool_calls", []):
                own = calls.setdefault(c["index"], [c["function"].get("name"), ""])
                own[1] += c["function"]["arguments"]
        self.assertEqual([tuple(c) for c in calls.values()], whole)

    def test_required(self):
        for name, template in self.TEMPLATES.items():
            with self.subTest(name):
                server = serve(type(self), template)
                self.check_calls(server, tool_choice="required")
                self.check_calls(server, tool_choice={"type": "function", "function": {"name": "time"}})

    def test_control_tokens(self):
        """A mark that is a control token has text, and begins a call: the grammar takes over."""
        server = serve(type(self), CHATML.replace("<|im_start|>", "") + "{# [TOOL_CALLS] #}", "--chat-format", "chatml", names=[("<|im_start|>", "[TOOL_CALLS]")])
        self.check_calls(server, logit_bias={"1": 100})
        reply = server.post("/v1/completions", {"prompt": "Hi", "max_tokens": 3, "temperature": 0, "logit_bias": {"1": 100}})
        self.assertEqual(reply.json["choices"][0]["text"], "")  # outside of chats control tokens have no text


if __name__ == "__main__":
    unittest.main()
