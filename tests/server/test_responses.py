#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise serve`: /v1/responses: the object, its events, conversations that the server keeps, and what is refused."""
import json
import os
import subprocess
import tempfile
import unittest

from server_process import PROGRAM, Server

TOOL = {"type": "function", "name": "time", "description": "Tells the time.", "strict": True,
        "parameters": {"type": "object", "properties": {"zone": {"enum": ["utc", "local"]}}, "required": ["zone"], "additionalProperties": False}}
MUST = {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False, "max_output_tokens": 300}


class Responses(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server().wait_ready()
        cls.addClassCleanup(cls.server.stop)

    def create(self, **fields):
        return self.server.post("/v1/responses", {"model": "reprise-mini", "input": "Tom had a red ball. What did Tom have?", "temperature": 0,
                                                  "max_output_tokens": 8, **fields})

    def refused(self, reply, status, says):
        self.assertEqual(reply.status, status, reply.body)
        self.assertIn(says, reply.json["error"]["message"])

    def events(self, **fields):
        reply = self.create(stream=True, **fields)
        self.assertEqual(reply.status, 200, reply.body)
        found = [(event, json.loads(data)) for event, data in reply.frames]
        for i, (event, data) in enumerate(found):
            self.assertEqual((data["type"], data["sequence_number"]), (event, i))
        return [data for _, data in found]

    def test_text(self):
        whole = self.create(cache_salt="text", instructions="Be brief.", metadata={"a": "b"}).json
        self.assertEqual((whole["object"], whole["status"], whole["error"], whole["incomplete_details"]), ("response", "completed", None, None))
        self.assertTrue(whole["id"].startswith("resp_"))
        item = whole["output"][0]
        self.assertEqual((len(whole["output"]), item["type"], item["role"], item["status"]), (1, "message", "assistant", "completed"))
        self.assertEqual((item["content"][0]["type"], item["content"][0]["annotations"]), ("output_text", []))
        chat = self.server.post("/v1/chat/completions", {"temperature": 0, "max_tokens": 8, "messages": [
            {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Tom had a red ball. What did Tom have?"}]}).json
        self.assertEqual(item["content"][0]["text"], chat["choices"][0]["message"]["content"])
        used = whole["usage"]
        self.assertEqual(used["total_tokens"], used["input_tokens"] + used["output_tokens"])
        self.assertEqual((used["input_tokens_details"], used["output_tokens_details"]), ({"cached_tokens": 0, "cache_write_tokens": used["input_tokens"]}, {"reasoning_tokens": 0}))
        again = self.create(cache_salt="text", instructions="Be brief.").json["usage"]
        self.assertEqual(again["input_tokens_details"]["cached_tokens"], used["input_tokens"] - 1)
        self.assertEqual((whole["instructions"], whole["metadata"], whole["max_output_tokens"]), ("Be brief.", {"a": "b"}, 8))
        items = [{"role": "user", "content": [{"type": "input_text", "text": "Tom had a red ball. What did Tom have?"}]}]
        self.assertEqual(self.create(input=items, instructions="Be brief.").json["output"][0]["content"], item["content"])

    def test_cut(self):
        whole = self.create(max_output_tokens=1).json
        self.assertEqual((whole["status"], whole["incomplete_details"]), ("incomplete", {"reason": "max_output_tokens"}))
        self.assertEqual(whole["output"][0]["status"], "incomplete")
        self.assertEqual(self.events(max_output_tokens=1)[-1]["type"], "response.incomplete")

    def test_text_stream(self):
        whole = self.create().json
        for more in ({}, {"tools": [TOOL]}):
            events = self.events(**more)
            kinds = [e["type"] for e in events if e["type"] != "response.output_text.delta"]
            self.assertEqual(kinds, ["response.created", "response.in_progress", "response.output_item.added", "response.content_part.added",
                                     "response.output_text.done", "response.content_part.done", "response.output_item.done", "response.completed"])
            text = "".join(e["delta"] for e in events if e["type"] == "response.output_text.delta")
            item = events[-1]["response"]["output"][0]
            self.assertEqual((text, events[-4]["text"], events[-3]["part"], events[-2]["item"]),
                             (item["content"][0]["text"],) * 2 + (item["content"][0], item))
            self.assertEqual({e["item_id"] for e in events if "item_id" in e}, {item["id"]})
            if not more:
                self.assertEqual(text, whole["output"][0]["content"][0]["text"])
            self.assertEqual((events[0]["response"]["status"], events[0]["response"]["output"], events[0]["response"]["usage"]),
                             ("in_progress", [], None))

    def test_logprobs(self):
        """openai/openai-agents-python#1275: a list in every event of a text. vllm-project/vllm#23225: those that `include` asks for."""
        for more, n in (({}, 0), ({"include": ["message.output_text.logprobs"]}, 1), ({"include": ["message.output_text.logprobs"], "top_logprobs": 3}, 1)):
            part = self.create(**more).json["output"][0]["content"][0]
            chat = self.server.post("/v1/chat/completions", {"temperature": 0, "max_tokens": 8, "logprobs": True, "top_logprobs": more.get("top_logprobs", 0),
                                                             "messages": [{"role": "user", "content": "Tom had a red ball. What did Tom have?"}]}).json
            self.assertEqual(part["logprobs"], chat["choices"][0]["logprobs"]["content"] if n else [])
            events = self.events(**more)
            deltas = [e["logprobs"] for e in events if e["type"] == "response.output_text.delta"]
            self.assertEqual(sum(deltas, []), part["logprobs"])
            self.assertEqual([e["logprobs"] for e in events if e["type"] == "response.output_text.done"], [part["logprobs"]])
            self.assertEqual(events[-1]["response"]["output"][0]["content"][0], part)
            self.assertEqual(events[-1]["response"]["top_logprobs"], more.get("top_logprobs", 0))

    def test_include(self):
        told = [self.create(**more).json["reprise"]["warnings"] for more in (
            {"include": ["reasoning.encrypted_content"]}, {"include": ["no.such.thing"]}, {"top_logprobs": 2})]
        self.assertEqual(told[:2], [[], ["'no.such.thing' in 'include': ignored"]])
        self.assertIn("'top_logprobs' without", told[2][0])
        self.refused(self.create(include=[1]), 400, "include")
        self.refused(self.create(include=["message.output_text.logprobs"], top_logprobs=21), 400, "top_logprobs")

    def test_call_and_its_result(self):
        whole = self.create(**MUST).json
        call = whole["output"][0]
        self.assertEqual((call["type"], call["name"], call["status"], len(whole["output"])), ("function_call", "time", "completed", 1))
        self.assertIn(json.loads(call["arguments"])["zone"], ("utc", "local"))
        events = self.events(**MUST)
        kinds = [e["type"] for e in events if e["type"] != "response.function_call_arguments.delta"]
        self.assertEqual(kinds, ["response.created", "response.in_progress", "response.output_item.added",
                                 "response.function_call_arguments.done", "response.output_item.done", "response.completed"])
        self.assertEqual("".join(e["delta"] for e in events if e["type"] == "response.function_call_arguments.delta"), call["arguments"])
        self.assertEqual(events[-3]["arguments"], call["arguments"])
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "noon"}
        by_id = self.create(input=[result], previous_response_id=whole["id"], tools=[TOOL]).json
        question = {"role": "user", "content": "Tom had a red ball. What did Tom have?"}
        by_hand = self.create(input=[question, call, result], tools=[TOOL]).json
        self.assertEqual(by_id["usage"]["input_tokens"], by_hand["usage"]["input_tokens"])
        self.assertEqual(by_id["output"][0]["content"], by_hand["output"][0]["content"])
        self.assertEqual(by_id["previous_response_id"], whole["id"])

    def test_what_is_kept(self):
        whole = self.create().json
        self.assertEqual(self.server.get(f"/v1/responses/{whole['id']}").json, whole)
        streamed = self.events()[-1]["response"]
        self.assertEqual(self.server.get(f"/v1/responses/{streamed['id']}").json, streamed)
        self.assertEqual(self.server.ask("DELETE", f"/v1/responses/{whole['id']}").json, {"id": whole["id"], "object": "response", "deleted": True})
        self.refused(self.server.get(f"/v1/responses/{whole['id']}"), 404, whole["id"])
        self.refused(self.server.ask("DELETE", f"/v1/responses/{whole['id']}"), 404, whole["id"])
        self.refused(self.create(previous_response_id=whole["id"]), 404, whole["id"])
        other = self.create(store=False).json
        self.refused(self.server.get(f"/v1/responses/{other['id']}"), 404, other["id"])
        for _ in range(130):  # the oldest of a tenant's go first
            last = self.create(max_output_tokens=1).json
        self.assertEqual(self.server.get(f"/v1/responses/{streamed['id']}").status, 404)
        self.assertEqual(self.server.get(f"/v1/responses/{last['id']}").status, 200)

    def test_format(self):
        form = {"format": {"type": "json_schema", "name": "x", "schema": TOOL["parameters"], "strict": True}}
        whole = self.create(text=form, max_output_tokens=100).json
        self.assertIn(json.loads(whole["output"][0]["content"][0]["text"])["zone"], ("utc", "local"))
        self.assertEqual(whole["text"], form)
        self.refused(self.create(text={"format": {"type": "json_schema", "schema": {"not": {}}}}), 400, "text.format.schema.not")

    def test_refused(self):
        for fields, says in (({"input": None}, "input"), ({"input": []}, "input"), ({"input": 3}, "input"), ({"input": [3]}, "input[0]"),
                             ({"input": [{"role": "king", "content": "x"}]}, "king"), ({"input": [{"type": "nonsense"}]}, "nonsense"),
                             ({"input": [{"type": "function_call_output", "output": "x"}]}, "call_id"),
                             ({"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]}, "'c'"),
                             ({"input": [{"type": "function_call", "name": "x"}]}, "call_id"),
                             ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input_image"),
                             ({"tools": [{"type": "namespace"}]}, "tools[0].name"), ({"tools": [{"type": "custom"}]}, "tools[0].name"),
                             ({"background": True}, "background"), ({"conversation": "c"}, "conversation"), ({"store": 3}, "store"),
                             ({"max_output_tokens": 0}, "max_output_tokens"), ({"input": "word " * 5000}, "2048")):
            with self.subTest(fields=fields):
                self.refused(self.create(**fields), 400, says)
        self.assertEqual(self.create(model="other").json["reprise"]["warnings"], ["unknown model 'other': ignored"])
        self.refused(self.server.get("/v1/responses"), 405, "POST")


class Tenants(unittest.TestCase):
    def test_nobody_else_finds_them(self):
        with tempfile.TemporaryDirectory() as folder:
            keys, lines = ["k" * 15 + c for c in "ab"], []
            for key, tenant in zip(keys, ("one", "two")):
                digits = subprocess.run([PROGRAM, "serve", "--hash-key"], input=key, capture_output=True, text=True, check=True).stdout.strip()
                lines.append(f"{digits} tenant={tenant} rights=request\n")
            path = os.path.join(folder, "keys")
            with open(path, "w", encoding="utf-8") as f:
                f.writelines(lines)
            os.chmod(path, 0o600)
            server = Server("--api-keys", path).wait_ready()
            self.addCleanup(server.stop)
            one, two = ({"Authorization": f"Bearer {key}"} for key in keys)
            made = server.post("/v1/responses", {"input": "x", "max_output_tokens": 1}, headers=one).json["id"]
            self.assertEqual(server.get(f"/v1/responses/{made}", headers=two).status, 404)
            self.assertEqual(server.ask("DELETE", f"/v1/responses/{made}", headers=two).status, 404)
            self.assertEqual(server.post("/v1/responses", {"input": "x", "previous_response_id": made}, headers=two).status, 404)
            self.assertEqual(server.get(f"/v1/responses/{made}", headers=one).status, 200)


if __name__ == "__main__":
    unittest.main()
