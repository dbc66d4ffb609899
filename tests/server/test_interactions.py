#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise serve`: Gemini's Interactions: the object, its events, inputs of every form, conversations that the server keeps, and what is refused."""
import json
import os
import tempfile
import unittest

from server_process import Server, bearer, key_line

QUESTION = "Tom had a red ball. What did Tom have?"
PARAMETERS = {"type": "object", "properties": {"zone": {"type": "string", "enum": ["utc", "local"]}}, "required": ["zone"]}
TOOL = {"type": "function", "name": "time", "description": "Tells the time.", "parameters": PARAMETERS}
GOOGLE = {"x-goog-api-key": "none"}


def text(said):
    return {"type": "text", "text": said}


def step(kind, said):
    return {"type": kind, "content": [text(said)]}


class Interactions(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server().wait_ready()
        cls.addClassCleanup(cls.server.stop)

    def create(self, config=None, version="/v1", **fields):
        config = {"temperature": 0, "max_output_tokens": 8, **(config or {})}
        return self.server.post(version + "/interactions", {"model": "reprise-mini", "input": QUESTION, "generation_config": config, **fields}, headers=GOOGLE)

    def made(self, config=None, **fields):
        reply = self.create(config, **fields)
        self.assertEqual(reply.status, 200, reply.body)
        return reply.json

    def read(self, reply):
        """The events of a stream, without its end."""
        self.assertEqual(reply.status, 200, reply.body)
        self.assertEqual(reply.headers["Content-Type"], "text/event-stream")
        self.assertEqual(reply.frames[-1], ("done", "[DONE]"))
        found = [(event, json.loads(data)) for event, data in reply.frames[:-1]]
        for event, data in found:
            self.assertEqual(data["event_type"], event)
        return [data for _, data in found]

    def events(self, config=None, **fields):
        return self.read(self.create(config, stream=True, **fields))

    def refused(self, reply, status, name, says):
        self.assertEqual(reply.status, status, reply.body)
        self.assertEqual((reply.json["error"]["code"], reply.json["error"]["status"]), (status, name))
        self.assertIn(says, reply.json["error"]["message"])

    def generated(self, *contents):
        body = {"contents": [{"role": role, "parts": [{"text": said}]} for role, said in contents], "generationConfig": {"temperature": 0, "maxOutputTokens": 8}}
        return self.server.post("/v1/models/default:generateContent", body).json

    def test_text(self):
        whole = self.made(cache_salt="text", system_instruction="Be brief.", labels={"a": "b"})
        self.assertEqual((whole["object"], whole["status"], whole["model"]), ("interaction", "completed", "reprise-mini"))
        self.assertRegex(whole["created"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        self.assertRegex(whole["updated"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        self.assertEqual((whole["system_instruction"], whole["labels"]), ("Be brief.", {"a": "b"}))
        said = self.made()["steps"]
        plain = self.generated(("user", QUESTION))
        self.assertEqual(said, [step("model_output", plain["candidates"][0]["content"]["parts"][0]["text"])])
        used = whole["usage"]
        self.assertEqual(used["total_tokens"], used["total_input_tokens"] + used["total_output_tokens"] + used["total_thought_tokens"])
        self.assertEqual((used["total_cached_tokens"], used["input_tokens_by_modality"]), (0, [{"modality": "text", "tokens": used["total_input_tokens"]}]))
        again = self.made(cache_salt="text", system_instruction="Be brief.")["usage"]
        self.assertEqual(again["total_cached_tokens"], used["total_input_tokens"] - 1)
        for version in ("/v1beta", "/v1alpha", ""):
            self.assertEqual(self.made(version=version)["steps"], said)
        self.assertEqual(self.made(model="models/reprise-mini")["reprise"]["warnings"], [])

    def test_cut(self):
        self.assertEqual(self.made({"max_output_tokens": 1})["status"], "incomplete")
        last = self.events({"max_output_tokens": 1})[-1]
        self.assertEqual((last["event_type"], last["interaction"]["status"]), ("interaction.completed", "incomplete"))

    def test_stream(self):
        whole = self.made()
        events = self.events()
        self.assertEqual([e["event_type"] for e in events if e["event_type"] != "step.delta"],
                         ["interaction.created", "interaction.status_update", "step.start", "step.stop", "interaction.completed"])
        made = events[0]["interaction"]
        self.assertEqual((made["object"], made["status"], events[1]["status"], events[1]["interaction_id"]), ("interaction", "in_progress", "in_progress", made["id"]))
        self.assertEqual((events[2]["step"], {e["index"] for e in events if "index" in e}), ({"type": "model_output"}, {0}))
        deltas = [e["delta"] for e in events if e["event_type"] == "step.delta"]
        self.assertEqual({d["type"] for d in deltas}, {"text"})
        self.assertEqual("".join(d["text"] for d in deltas), whole["steps"][0]["content"][0]["text"])
        done = events[-1]["interaction"]
        self.assertEqual((done["id"], done["status"], done["usage"]["total_input_tokens"]), (made["id"], "completed", whole["usage"]["total_input_tokens"]))
        kept = self.server.get(f"/v1/interactions/{made['id']}").json
        self.assertEqual(kept["steps"], whole["steps"])
        replayed = self.read(self.server.get(f"/v1/interactions/{made['id']}?stream=true"))
        self.assertEqual([e["event_type"] for e in replayed], ["interaction.created", "step.start", "step.delta", "step.stop", "interaction.completed"])
        self.assertEqual((replayed[0]["interaction"], replayed[2]["delta"], replayed[-1]), (made, kept["steps"][0]["content"][0], events[-1]))

    def test_conversation(self):
        """The second turn has the first one in it, and reuses what the first one computed."""
        first = self.made(cache_salt="turns")
        said = first["steps"][0]["content"][0]["text"]
        second = self.made(cache_salt="turns", input="And Ann?", previous_interaction_id=first["id"])
        self.assertEqual(second["previous_interaction_id"], first["id"])
        self.assertEqual(second["usage"]["total_cached_tokens"], first["usage"]["total_tokens"])
        by_hand = self.generated(("user", QUESTION), ("model", said), ("user", "And Ann?"))
        self.assertEqual(second["usage"]["total_input_tokens"], by_hand["usageMetadata"]["promptTokenCount"])
        self.assertEqual(second["steps"][0]["content"][0]["text"], by_hand["candidates"][0]["content"]["parts"][0]["text"])
        third = self.made(cache_salt="turns", input=[text("And Bob?")], previous_interaction_id=second["id"])
        self.assertGreater(third["usage"]["total_cached_tokens"], second["usage"]["total_input_tokens"])
        asked = self.server.get(f"/v1beta/interactions/{third['id']}?include_input=true").json
        self.assertEqual(asked["input"], [step("user_input", "And Bob?")], "its own input alone")
        steps = [step("user_input", QUESTION), *first["steps"], step("user_input", "And Ann?")]
        turns = [{"role": "user", "content": QUESTION}, {"role": "model", "content": first["steps"][0]["content"]}, {"role": "user", "content": [text("And Ann?")]}]
        for form in (steps, turns, [text(QUESTION), *first["steps"], text("And Ann?")]):
            same = self.made(input=form)
            self.assertEqual((same["steps"], same["usage"]["total_input_tokens"]), (second["steps"], second["usage"]["total_input_tokens"]), form)

    def test_inputs(self):
        plain = self.made()
        half = len("Tom had a red ball.")
        for form in (text(QUESTION), [text(QUESTION)], [QUESTION], [step("user_input", QUESTION)], [{"type": "user_input", "content": QUESTION}],
                     {"role": "user", "content": QUESTION}, [{"role": "user", "content": text(QUESTION)}], [text(QUESTION[:half]), text(QUESTION[half:])]):
            whole = self.made(input=form)
            self.assertEqual((whole["steps"], whole["usage"]["total_input_tokens"]), (plain["steps"], plain["usage"]["total_input_tokens"]), form)
            self.assertEqual(whole["reprise"]["warnings"], [])

    def test_calls_and_results(self):
        must = {"tool_choice": "any", "max_output_tokens": 300}
        whole = self.made(must, tools=[TOOL])
        calls = whole["steps"]
        self.assertEqual((whole["status"], {c["type"] for c in calls}, {c["name"] for c in calls}), ("requires_action", {"function_call"}, {"time"}))
        self.assertLessEqual({c["arguments"]["zone"] for c in calls}, {"utc", "local"})
        events = self.events(must, tools=[TOOL])
        starts = [e["step"] for e in events if e["event_type"] == "step.start"]
        self.assertEqual([s["arguments"] for s in starts], [{}] * len(calls))
        for i, call in enumerate(calls):
            deltas = [e["delta"] for e in events if e["event_type"] == "step.delta" and e["index"] == i]
            self.assertEqual({d["type"] for d in deltas}, {"arguments_delta"})
            self.assertEqual(json.loads("".join(d["arguments"] for d in deltas)), call["arguments"])
        self.assertEqual(events[-1]["interaction"]["status"], "requires_action")
        replayed = self.read(self.server.get(f"/v1/interactions/{whole['id']}?stream=true"))
        self.assertEqual([e["step"] for e in replayed if "step" in e], [{**c, "arguments": {}} for c in calls])
        self.assertEqual([json.loads(e["delta"]["arguments"]) for e in replayed if "delta" in e], [c["arguments"] for c in calls])
        results = [{"type": "function_result", "call_id": c["id"], "name": c["name"], "result": "noon"} for c in calls]
        by_id = self.made(input=results, tools=[TOOL], previous_interaction_id=whole["id"])
        by_hand = self.made(input=[step("user_input", QUESTION), *calls, *results], tools=[TOOL])
        as_contents = self.made(input=[text(QUESTION), *calls, *[{**r, "result": [text("noon")]} for r in results]], tools=[TOOL])
        old = self.made(input=[{"role": "user", "content": QUESTION}, {"role": "model", "content": calls}, {"role": "user", "content": results}], tools=[TOOL])
        for other in (by_hand, as_contents, old):
            self.assertEqual((other["usage"]["total_input_tokens"], other["steps"]), (by_id["usage"]["total_input_tokens"], by_id["steps"]))
        failed = self.made(input=[*calls, *[{**r, "result": {"zone": "?"}, "is_error": True} for r in results]], tools=[TOOL])
        self.assertEqual(failed["reprise"]["warnings"], [])

    def test_choice(self):
        other = {**TOOL, "name": "date"}
        only = {"allowed_tools": {"mode": "any", "tools": ["date"]}}
        self.assertEqual({s["name"] for s in self.made({"tool_choice": only, "max_output_tokens": 300}, tools=[TOOL, other])["steps"]}, {"date"})
        for mode in ("none", "auto", "validated"):
            self.assertEqual(self.create({"tool_choice": mode}, tools=[TOOL]).status, 200)
        self.assertEqual(self.made({"tool_choice": "none"}, tools=[TOOL])["status"], "completed")
        self.assertEqual(self.made(tools=[{"type": "google_search"}])["reprise"]["warnings"], ["tools[0] of type 'google_search': ignored"])

    def test_formats(self):
        form = {"type": "text", "mime_type": "application/json", "schema": PARAMETERS}
        for fields in ({"response_format": form}, {"response_format": [form]}, {"response_format": PARAMETERS, "response_mime_type": "application/json"}):
            whole = self.made({"max_output_tokens": 100}, **fields)
            self.assertIn(json.loads(whole["steps"][0]["content"][0]["text"])["zone"], ("utc", "local"))
            self.assertEqual(whole["response_format"], fields["response_format"])
        self.assertEqual(self.create(response_format={"type": "text"}).status, 200)
        for fields, says in (({"response_format": {"type": "image"}}, "image"), ({"response_format": [form, form]}, "several"),
                             ({"response_mime_type": "text/html"}, "response_mime_type"),
                             ({"response_format": {"type": "text", "mime_type": "text/html"}}, "response_format.mime_type"),
                             ({"response_modalities": ["audio"]}, "audio")):
            self.refused(self.create(**fields), 400, "UNIMPLEMENTED", says)
        self.assertEqual(self.create(response_modalities=["text"]).status, 200)

    def test_kept(self):
        whole = self.made()
        path = f"/v1/interactions/{whole['id']}"
        self.assertEqual(self.server.get(path).json, whole)
        for other in ("/v1beta", "/v1alpha", ""):
            self.assertEqual(self.server.get(f"{other}/interactions/{whole['id']}").json, whole)
        self.assertEqual(self.server.get(f"/v1/responses/{whole['id']}").status, 404, "a response has another id")
        response = self.server.post("/v1/responses", {"input": "x", "max_output_tokens": 1}).json["id"]
        self.refused(self.server.get(f"/v1/interactions/{response}"), 404, "NOT_FOUND", response)
        self.refused(self.create(previous_interaction_id=response), 404, "NOT_FOUND", response)
        self.assertEqual(self.server.post("/v1/responses", {"input": "x", "previous_response_id": whole["id"]}).status, 404)
        self.refused(self.server.post(path + "/cancel", None), 400, "INVALID_ARGUMENT", "has ended")
        self.refused(self.server.get(path + "?stream=true&last_event_id=7"), 400, "UNIMPLEMENTED", "last_event_id")
        self.assertEqual(self.server.ask("DELETE", path).json, {})
        for reply in (self.server.get(path), self.server.ask("DELETE", path), self.server.post(path + "/cancel", None),
                      self.create(previous_interaction_id=whole["id"])):
            self.refused(reply, 404, "NOT_FOUND", whole["id"])
        self.refused(self.server.get(f"/v1/interactions/{self.made(store=False)['id']}"), 404, "NOT_FOUND", "unknown")

    def test_numbers_are_kept_as_they_are(self):
        number = {"type": "function_call", "id": "c", "name": "time", "arguments": {"zone": 0.12345678901234567}}
        result = {"type": "function_result", "call_id": "c", "result": "noon"}
        first = self.made(input=[text(QUESTION), number, result])
        asked = self.server.get(f"/v1/interactions/{first['id']}?include_input=true").body
        self.assertIn(b"0.12345678", asked)
        second = self.made(input="And then?", previous_interaction_id=first["id"])
        by_hand = self.made(input=[text(QUESTION), number, result, *first["steps"], text("And then?")])
        self.assertEqual(second["usage"]["total_input_tokens"], by_hand["usage"]["total_input_tokens"])

    def test_refused(self):
        for fields, says in (({"input": None}, "input"), ({"input": []}, "input"), ({"input": 3}, "input[0]"), ({"input": [3]}, "input[0]"),
                             ({"input": [{"role": "king", "content": "x"}]}, "input[0]"),
                             ({"input": [{"type": "function_result", "result": "x"}]}, "call_id"),
                             ({"input": [{"type": "function_result", "call_id": "c", "result": "x"}]}, "'c'"),
                             ({"input": [{"type": "function_call", "name": "x"}]}, "input[0].id"),
                             ({"tools": [{"type": "function"}]}, "tools[0].name"), ({"store": 3}, "store"),
                             ({"config": {"max_output_tokens": 0}}, "generation_config.max_output_tokens"),
                             ({"config": {"tool_choice": "perhaps"}}, "perhaps"), ({"config": {"tool_choice": 3}}, "tool_choice"),
                             ({"config": {"tool_choice": {"allowed_tools": {"tools": ["x"]}}}}, "unknown tool 'x'"),
                             ({"input": "word " * 5000}, "2048")):
            with self.subTest(fields=fields):
                self.refused(self.create(**fields), 400, "INVALID_ARGUMENT", says)
        for name, value in (("agent", "deep-research"), ("background", True), ("environment", "e"), ("continuation_token", "t"), ("cached_content", "c"),
                            ("webhook_config", {"uris": ["u"]}), ("input", [{"type": "image", "data": "x"}])):
            self.refused(self.create(**{name: value}), 400, "UNIMPLEMENTED", name)
        self.assertEqual(self.create(background=False).status, 200)
        self.assertEqual(self.made(nothing=1, config={"nothing": 2})["reprise"]["warnings"],
                         ["unknown field 'generation_config.nothing': ignored", "unknown field 'nothing': ignored"])
        self.assertEqual(self.made(input=[{"type": "google_search_call", "id": "s"}, text(QUESTION)])["reprise"]["warnings"],
                         ["input[0] of type 'google_search_call': ignored"])
        self.refused(self.server.get("/v1/interactions"), 405, "INVALID_ARGUMENT", "POST")

    def test_tenants(self):
        with tempfile.TemporaryDirectory() as folder:
            keys, path = ["k" * 15 + c for c in "ab"], os.path.join(folder, "keys")
            with open(path, "w", encoding="utf-8") as f:
                f.writelines(key_line(key, f"tenant={key[-1]}", "rights=request") for key in keys)
            os.chmod(path, 0o600)
            server = Server("--api-keys", path).wait_ready()
            self.addCleanup(server.stop)
            one, two = ({"x-goog-api-key": key} for key in keys)
            made = server.post("/v1/interactions", {"input": "x", "generation_config": {"max_output_tokens": 1}}, headers=one).json["id"]
            self.assertEqual(server.get(f"/v1/interactions/{made}", headers=two).status, 404)
            self.assertEqual(server.ask("DELETE", f"/v1/interactions/{made}", headers=two).status, 404)
            self.assertEqual(server.post("/v1/interactions", {"input": "x", "previous_interaction_id": made}, headers=two).status, 404)
            self.assertEqual(server.get(f"/v1/interactions/{made}", headers=bearer(keys[0])).status, 200)


if __name__ == "__main__":
    unittest.main()
