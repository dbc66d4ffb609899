#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise serve`, the other dialects: llama.cpp's server, Anthropic, Gemini: what their routes answer, stream and refuse."""
import json
import unittest

from server_process import ServerCase

TEXT = "Tom had a red ball. What did Tom have?"


class Dialects(ServerCase):
    def same_as_openai(self, text, max_tokens=8):
        body = {"messages": [{"role": "user", "content": TEXT}], "temperature": 0, "max_tokens": max_tokens}
        self.assertEqual(text, self.server.post("/v1/chat/completions", body).json["choices"][0]["message"]["content"])


class LlamaCpp(Dialects):
    def complete(self, **fields):
        return self.server.post("/completion", {"prompt": "Tom had a", "temperature": 0, "n_predict": 6, "ignore_eos": True, **fields})

    def refused(self, reply, status, says):
        self.assertEqual(reply.status, status, reply.body)
        self.assertEqual(set(reply.json["error"]), {"code", "message", "type"})
        self.assertEqual(reply.json["error"]["code"], status)
        self.assertIn(says, reply.json["error"]["message"])

    def test_completion(self):
        whole = self.complete().json
        self.assertEqual((whole["stop"], whole["stop_type"], whole["tokens_predicted"]), (True, "limit", 6))
        again = self.complete().json
        self.assertEqual(again["content"], whole["content"])
        self.assertEqual(again["timings"]["cache_n"] + again["timings"]["prompt_n"], again["tokens_evaluated"])
        self.assertGreater(again["timings"]["cache_n"], 0)
        self.assertEqual(self.complete(cache_prompt=False).json["timings"]["cache_n"], 0)
        frames = [json.loads(data) for _, data in self.complete(stream=True).frames]
        self.assertEqual("".join(f["content"] for f in frames), whole["content"])
        self.assertEqual([f["stop"] for f in frames], [False] * (len(frames) - 1) + [True])
        self.assertEqual(frames[-1]["timings"]["predicted_n"], 6)

    def test_stop_and_probabilities(self):
        whole = self.complete().json["content"]
        stopped = self.complete(stop=["zz", whole[3:6]]).json
        self.assertEqual((stopped["stop_type"], stopped["stopping_word"], stopped["content"]),
                         ("word", whole[3:6], whole[:whole.index(whole[3:6])]))
        self.assertEqual(self.server.post("/completion", {"prompt": "x", "n_predict": -1, "stop": "zzz", "temperature": 0}).status, 200)
        entries = self.complete(n_probs=3).json["completion_probabilities"]
        self.assertEqual([len(e["top_logprobs"]) for e in entries], [3] * 6)

    def test_tokens_and_several_answers(self):
        whole = self.complete(return_tokens=True).json
        self.assertEqual(self.server.post("/detokenize", {"tokens": whole["tokens"]}).json["content"], whole["content"])
        self.assertEqual(self.complete().json["tokens"], [])
        several = self.complete(n_cmpl=3).json
        self.assertEqual([(a["index"], a["content"]) for a in several], [(i, whole["content"]) for i in range(3)])
        self.refused(self.complete(n_cmpl=0), 400, "n_cmpl")

    def test_prompts_of_token_ids(self):
        ids = self.server.post("/tokenize", {"content": "Tom had a", "add_special": True}).json["tokens"]
        plain = self.complete().json["content"]
        self.assertEqual(self.complete(prompt=ids).json["content"], plain)
        self.assertEqual(self.complete(prompt=["Tom had a", "Tom had a"]).json[1]["content"], plain)
        mixed = self.complete(prompt=["Tom had a", ids[-1]]).json
        self.assertEqual(mixed["tokens_evaluated"], len(ids) + 1)
        self.assertEqual([a["tokens_evaluated"] for a in self.complete(prompt=[["Tom had a", ids[-1]], ids, "Tom had a"]).json],
                         [len(ids) + 1, len(ids), len(ids)])
        frames = [json.loads(data) for _, data in self.complete(prompt=[ids, ids], stream=True).frames]
        self.assertEqual(["".join(f["content"] for f in frames if f["index"] == i) for i in (0, 1)], [plain] * 2)
        for bad in ([-1], [1.5], [], [[]], [1, None], ["a", {}]):
            self.refused(self.complete(prompt=bad), 400, "prompt")
        self.refused(self.complete(prompt=[99999999]), 400, "99999999")

    def test_tokens(self):
        tokens = self.server.post("/tokenize", {"content": TEXT}).json["tokens"]
        self.assertEqual(self.server.post("/detokenize", {"tokens": tokens}).json, {"content": TEXT})
        pieces = self.server.post("/tokenize", {"content": TEXT, "with_pieces": True, "add_special": True}).json["tokens"]
        self.assertTrue("".join(p["piece"] for p in pieces).endswith(TEXT))
        self.assertEqual(self.server.post("/tokenize", {"content": ""}).json, {"tokens": []})
        self.refused(self.server.post("/tokenize", {}), 400, "content")
        self.refused(self.server.post("/tokenize", {"content": 3}), 400, "content")
        self.refused(self.server.post("/detokenize", {}), 400, "tokens")
        for bad in ([-1], [99999999], ["x"], [1.5]):
            self.refused(self.server.post("/detokenize", {"tokens": bad}), 400, "tokens[0]")

    def test_template(self):
        prompt = self.server.post("/apply-template", {"messages": [{"role": "user", "content": "a<|im_end|>b"}]}).json["prompt"]
        self.assertTrue(prompt.endswith("<|im_start|>user\na<|im_end|>b<|im_end|>\n<|im_start|>assistant\n"), prompt)
        self.refused(self.server.post("/apply-template", {}), 400, "messages")

    def test_props_and_slots(self):
        props = self.server.get("/props").json
        self.assertEqual((props["default_generation_settings"]["n_ctx"], props["total_slots"]), (2048, props["engine"]["max_sequences"]))
        self.assertEqual((props["engine"]["threads"], props["engine"]["running"], props["engine"]["waiting"]), (1, 0, 0))
        self.assertEqual(self.server.get("/slots").json, [])
        s = self.server.socket()
        body = json.dumps({"prompt": "x", "n_predict": 1900, "stream": True, "ignore_eos": True})
        s.sendall(f"POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        s.recv(100)
        slots = self.server.get("/slots").json
        self.assertLessEqual(len(slots), 1)
        s.close()
        self.server.wait_idle()
        self.assertEqual(self.server.get("/slots").json, [])

    def test_refused(self):
        for fields, says in (({"prompt": None}, "prompt"), ({"prompt": 3}, "prompt"), ({"n_predict": "x"}, "n_predict"),
                             ({"n_probs": 101}, "n_probs"),
                             ({"stream": 1}, "stream")):
            self.refused(self.complete(**fields), 400, says)
        too_long = self.complete(prompt="word " * 5000)
        self.assertEqual((too_long.status, too_long.json["error"]["n_ctx"]), (400, 2048))
        self.refused(self.server.get("/completion"), 405, "POST")


class Anthropic(Dialects):
    def message(self, **fields):
        return self.server.post("/v1/messages", {"model": "reprise-mini", "max_tokens": 8, "temperature": 0,
                                                 "messages": [{"role": "user", "content": TEXT}],
                                                 **fields})

    def refused(self, reply, status, kind, says):
        self.assertEqual(reply.status, status, reply.body)
        self.assertEqual((reply.json["type"], reply.json["error"]["type"]), ("error", kind))
        self.assertIn(says, reply.json["error"]["message"])

    def test_message(self):
        whole = self.message().json
        self.assertEqual((whole["type"], whole["role"], whole["stop_reason"], whole["stop_sequence"]),
                         ("message", "assistant", "end_turn", None))
        self.assertTrue(whole["id"].startswith("msg_"))
        headers = self.message().headers
        self.assertEqual(headers["request-id"], headers["x-request-id"])
        self.same_as_openai(whole["content"][0]["text"])
        self.assertEqual(self.message(max_tokens=1).json["stop_reason"], "max_tokens")
        system = [{"type": "text", "text": "Be brief."}]
        self.assertEqual(self.message(system=system).json["content"], self.message(system="Be brief.").json["content"])

    def test_output_format(self):
        """musistudio/claude-code-router#1380: structured output in output_config.format, or in the beta's output_format."""
        schema = {"type": "object", "properties": {"town": {"const": "Lisbon"}}, "required": ["town"], "additionalProperties": False}
        form = {"type": "json_schema", "schema": schema}
        for fields in ({"output_config": {"format": form}}, {"output_config": {"effort": "low", "format": form}}, {"output_format": form}):
            reply = self.message(max_tokens=60, **fields)
            self.assertEqual(json.loads(reply.json["content"][-1]["text"]), {"town": "Lisbon"}, fields)
            self.assertEqual(reply.json["reprise"]["warnings"], [])
        schema["properties"]["town"] = {"$ref": "#/none"}
        self.refused(self.message(output_config={"format": form}), 400, "invalid_request_error", "output_config.format.schema")
        self.refused(self.message(output_config={"format": {"type": "xml"}}), 400, "invalid_request_error", "output_config.format.type")
        self.refused(self.message(output_config=1), 400, "invalid_request_error", "output_config")

    def test_documents_are_text(self):
        """Search results and documents: a line each for title and source or context, then the text."""
        text, more = {"type": "text", "text": TEXT}, {"type": "text", "text": "More."}
        cases = (({"type": "search_result", "source": "https://example.com", "title": "Toys", "content": [text, more]}, f"Toys\nhttps://example.com\n{TEXT}\nMore."),
                 ({"type": "document", "source": {"type": "content", "content": [text]}, "title": "Toys", "context": "A story"}, f"Toys\nA story\n{TEXT}"),
                 ({"type": "document", "source": {"type": "content", "content": TEXT}}, TEXT),
                 ({"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": TEXT}, "citations": {"enabled": False}}, TEXT))

        def ask(content):
            return self.message(messages=[{"role": "user", "content": content}]).json
        for block, plain in cases:
            found, expected = ask([block, more]), ask([{"type": "text", "text": plain + "\n\n"}, more])
            self.assertEqual((found["content"], found["usage"]["output_tokens"]), (expected["content"], expected["usage"]["output_tokens"]), block)
            result = [{"type": "tool_result", "tool_use_id": "t", "content": [block]}]
            call = {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]}
            self.assertEqual(self.message(messages=[{"role": "user", "content": "Hi"}, call, {"role": "user", "content": result}]).status, 200)
            told = ask([{**block, "citations": {"enabled": True}}])["reprise"]["warnings"]
            self.assertEqual(told, ["'citations' of a part of messages.0.content: ignored"])
        image = {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}
        for block in ({"type": "document", "source": {"type": "content", "content": [image]}}, {"type": "document", "source": {"type": "base64", "data": "eA=="}},
                      {"type": "search_result", "source": "s", "title": "t"}):
            self.assertEqual(self.message(messages=[{"role": "user", "content": [block]}]).status, 400, block)

    def test_usage_excludes_what_was_cached(self):
        fields = {"system": [{"type": "text", "text": "You know what Tom had, and say it.", "cache_control": {"type": "ephemeral"}}],
                  "cache_salt": "usage"}
        first, again = self.message(**fields).json["usage"], self.message(**fields).json["usage"]
        total = first["input_tokens"] + first["cache_creation_input_tokens"] + first["cache_read_input_tokens"]
        self.assertGreater(first["cache_creation_input_tokens"], 0)
        self.assertEqual(first["cache_read_input_tokens"], 0)
        self.assertEqual((again["cache_read_input_tokens"], again["cache_creation_input_tokens"], again["input_tokens"]), (total - 1, 0, 1))
        plain = self.message(cache_salt="plain").json["usage"]
        self.assertEqual((plain["cache_creation_input_tokens"], plain["cache_read_input_tokens"]), (0, 0))
        counted = self.server.post("/v1/messages/count_tokens", {"model": "reprise-mini",
                                                                 "messages": [{"role": "user", "content": TEXT}]}).json
        self.assertEqual(counted, {"input_tokens": plain["input_tokens"]})

    def test_stream(self):
        whole = self.message().json
        frames = [(event, json.loads(data)) for event, data in self.message(stream=True).frames]
        self.assertTrue(all(event == data["type"] for event, data in frames))
        names = [event for event, _ in frames if event != "content_block_delta"]
        self.assertEqual(names, ["message_start", "content_block_start", "ping", "content_block_stop", "message_delta", "message_stop"])
        text = "".join(d["delta"]["text"] for e, d in frames if e == "content_block_delta")
        self.assertEqual(text, whole["content"][0]["text"])
        delta = frames[-2][1]
        self.assertEqual(delta["delta"], {"stop_reason": "end_turn", "stop_sequence": None})
        self.assertEqual(set(delta["usage"]), {"input_tokens", "cache_creation_input_tokens", "cache_creation", "cache_read_input_tokens", "output_tokens"})
        self.assertEqual(frames[0][1]["message"]["content"], [])
        begins = frames[0][1]["message"]["usage"]
        self.assertGreater(begins["cache_read_input_tokens"], 0)
        self.assertEqual({**begins, "output_tokens": 0}, {**delta["usage"], "output_tokens": 0})

    def test_stream_counts_what_is_to_be_kept(self):
        fields = {"system": [{"type": "text", "text": "A system message that is to be kept.", "cache_control": {"type": "ephemeral"}}],
                  "cache_salt": "stream", "stream": True}
        for read in (False, True):
            frames = [json.loads(data) for _, data in self.message(**fields).frames]
            begins, ends = frames[0]["message"]["usage"], frames[-2]["usage"]
            self.assertEqual({**begins, "output_tokens": 0}, {**ends, "output_tokens": 0})
            self.assertEqual((begins["cache_read_input_tokens"] > 0, begins["cache_creation_input_tokens"] > 0), (read, not read))

    def test_thinking(self):
        for kind in ("disabled", "adaptive", "enabled"):
            self.assertEqual(self.message(thinking={"type": kind}).json["content"], self.message().json["content"])
        self.refused(self.message(thinking={"type": "on"}), 400, "invalid_request_error", "thinking.type")
        self.refused(self.message(thinking={"type": "enabled", "budget_tokens": 0}), 400, "invalid_request_error", "budget_tokens")

    def test_numbers_of_any_size_in_calls(self):
        """A call's numbers reach the client with the digits that the model wrote, and the model with those that the client sent."""
        number = "[18446744073709551616,-99999999999999999999,0.1,12345678.9012345]"
        tool = '{"name":"a","input_schema":{"type":"object","properties":{"n":{"const":%s}},"required":["n"]}}' % number
        body = '{"model":"x","max_tokens":150,"tools":[%s],"tool_choice":{"type":"any"},"messages":[{"role":"user","content":"x"}]}' % tool
        reply = self.server.post("/v1/messages", body.encode())
        self.assertEqual(reply.status, 200, reply.body)
        self.assertIn(b'"input":{"n":%s}' % number.encode(), reply.body)
        history = ('{"model":"x","max_tokens":1,"tools":[%s],"messages":[{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"tool_use",'
                   '"id":"t","name":"a","input":{"n":%s}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"\\u0000"}]}]}')
        asked = [self.server.post("/v1/messages", (history % (tool, n)).encode()).json["usage"] for n in (number, '"%s"' % number)]
        quotes = asked[1]["input_tokens"] + asked[1]["cache_read_input_tokens"] - asked[0]["input_tokens"] - asked[0]["cache_read_input_tokens"]
        self.assertLessEqual(abs(quotes), 6)  # the same digits as a string: quotes, no spaces

    def test_stop_and_continued_answers(self):
        word = self.message().json["content"][0]["text"][2:5]
        stopped = self.message(stop_sequences=["zz", word]).json
        self.assertEqual((stopped["stop_reason"], stopped["stop_sequence"]), ("stop_sequence", word))
        self.assertEqual(self.message(messages=[{"role": "user", "content": TEXT}, {"role": "assistant", "content": "Tom had"}]).status,
                         200)

    def test_refused(self):
        for fields, says in (({"max_tokens": None}, "max_tokens"), ({"messages": []}, "messages"), ({"messages": ["x"]}, "messages.0"),
                             ({"model": None}, "model"), ({"messages": [{"role": "robot", "content": "x"}]}, "messages.0.role"),
                             ({"messages": [{"role": "user"}]}, "messages.0.content"), ({"temperature": 2}, "temperature"),
                             ({"stop_sequences": 3}, "stop_sequences"),
                             ({"tools": [{}]}, "tools"), ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "image")):
            with self.subTest(fields=fields):
                self.refused(self.message(**fields), 400, "invalid_request_error", says)
        self.assertEqual(self.message(model="other").json["reprise"]["warnings"], ["unknown model 'other': ignored"])
        self.refused(self.server.post("/v1/messages/count_tokens", "{"), 400, "invalid_request_error", "JSON")
        self.refused(self.server.get("/v1/messages"), 405, "invalid_request_error", "POST")


    def test_models(self):
        listed = self.server.get("/v1/models").json
        model = listed["data"][0]
        self.assertEqual((model["type"], model["display_name"]), ("model", "reprise-mini"))
        self.assertRegex(model["created_at"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        self.assertEqual((listed["has_more"], listed["first_id"], listed["last_id"]), (False, model["id"], model["id"]))


class Gemini(Dialects):
    def generate(self, verb="generateContent", model="reprise-mini", config=None, **fields):
        body = {"contents": [{"role": "user", "parts": [{"text": TEXT}]}], "generationConfig": {"temperature": 0, "maxOutputTokens": 8,
                                                                                                **(config or {})}, **fields}
        return self.server.post(f"/v1beta/models/{model}:{verb}", body)

    def refused(self, reply, status, name, says):
        self.assertEqual(reply.status, status, reply.body)
        self.assertEqual((reply.json["error"]["code"], reply.json["error"]["status"]), (status, name))
        self.assertIn(says, reply.json["error"]["message"])

    def test_generate(self):
        whole = self.generate().json
        candidate = whole["candidates"][0]
        self.assertEqual((candidate["finishReason"], candidate["content"]["role"]), ("STOP", "model"))
        self.same_as_openai(candidate["content"]["parts"][0]["text"])
        used = self.generate().json["usageMetadata"]
        self.assertEqual(used["totalTokenCount"], used["promptTokenCount"] + used["candidatesTokenCount"])
        self.assertEqual(used["cachedContentTokenCount"], used["promptTokenCount"] - 1)
        self.assertEqual(self.generate("countTokens").json, {"totalTokens": used["promptTokenCount"]})
        self.assertEqual(self.generate(config={"maxOutputTokens": 1}).json["candidates"][0]["finishReason"], "MAX_TOKENS")
        self.assertEqual(len(self.generate(config={"candidateCount": 2}).json["candidates"]), 2)
        self.assertEqual(self.generate(systemInstruction={"parts": [{"text": "Be brief."}]}).status, 200)

    def test_logprobs(self):
        """Those of the chosen tokens and of the most likely ones, whole and in the frames of a stream."""
        asked = {"responseLogprobs": True, "logprobs": 2}
        candidate = self.generate(config=asked).json["candidates"][0]
        chosen, top = (candidate["logprobsResult"][name] for name in ("chosenCandidates", "topCandidates"))
        self.assertEqual("".join(t["token"] for t in chosen), candidate["content"]["parts"][0]["text"])
        self.assertEqual([len(t["candidates"]) for t in top], [2] * len(chosen))
        self.assertEqual([t["candidates"][0] for t in top], chosen)  # temperature 0
        self.assertAlmostEqual(candidate["avgLogprobs"], sum(t["logProbability"] for t in chosen) / len(chosen))
        frames = [json.loads(data)["candidates"][0] for _, data in self.generate("streamGenerateContent?alt=sse", config=asked).frames]
        self.assertEqual(sum((f["logprobsResult"]["chosenCandidates"] for f in frames if "logprobsResult" in f), []), chosen)
        self.assertNotIn("logprobsResult", self.generate(config={"logprobs": 2}).json["candidates"][0])
        self.refused(self.generate(config={"responseLogprobs": True, "logprobs": 21}), 400, "INVALID_ARGUMENT", "logprobs")

    def test_models(self):
        model = self.server.get("/v1beta/models").json["models"][0]
        self.assertEqual((model["name"], model["inputTokenLimit"]), ("models/reprise-mini", 2048))
        self.assertIn("generateContent", model["supportedGenerationMethods"])
        self.assertEqual(self.server.get("/v1beta/models/reprise-mini").json, model)

    def test_versions(self):
        """google-genai 3 says v1, older ones v1beta, LiteLLM with an address of its own no version: the first call of the first was 405."""
        whole, key = self.generate().json["candidates"], {"x-goog-api-key": "none", "x-goog-api-client": "google-genai-sdk/3.6.0 gl-python/3.13"}
        body = {"contents": [{"parts": [{"text": TEXT}], "role": "user"}], "generationConfig": {"temperature": 0.0, "maxOutputTokens": 8}}
        counted, openai = set(), self.server.get("/v1/models").json
        for version in ("/v1", "/v1beta", "/v1alpha", ""):
            with self.subTest(version):
                def post(verb, fields):
                    return self.server.post(f"{version}/models/reprise-mini:{verb}", fields, headers=key)
                self.assertEqual(post("generateContent", body).json["candidates"], whole)
                self.assertEqual(json.loads(post("streamGenerateContent?alt=sse", body).frames[-1][1])["candidates"][0]["finishReason"], "STOP")
                counted.add(post("countTokens", {"contents": body["contents"]}).json["totalTokens"])
                content = {"content": {"parts": [{"text": TEXT}]}}
                one = post("embedContent", content).json["embedding"]["values"]
                self.assertEqual(post("batchEmbedContents", {"requests": [{"model": "models/reprise-mini", **content}]}).json["embeddings"][0]["values"], one)
                listed = self.server.get(f"{version}/models", headers=key).json["models"]
                self.assertEqual(listed, self.server.get("/v1beta/models").json["models"])
                self.assertEqual(self.server.get(f"{version}/models/reprise-mini?key=none").json, listed[0])
                self.refused(self.server.get(f"{version}/models/other", headers=key), 404, "NOT_FOUND", "other")
                made = self.server.post(f"{version}/cachedContents", {"model": "models/reprise-mini", "contents": body["contents"]}, headers=key).json
                self.assertEqual(self.server.ask("DELETE", f"{version}/{made['name']}", headers=key).json, {})
                self.refused(post("fly", body), 404, "NOT_FOUND", "generateContent")
        self.assertEqual(len(counted), 1)
        self.assertEqual(self.server.get("/models").json, openai, "clients that are not Gemini's get OpenAI's list")
        self.assertEqual(self.server.get("/v1/models/reprise-mini").json, openai["data"][0])
        self.assertIn("type", self.server.get("/v1/models/other").json["error"])
        self.refused(self.server.ask("GET", "/v1/nothing", headers=key), 404, "NOT_FOUND", "/v1/nothing")
        self.assertEqual(self.server.ask("PUT", "/v1/models").headers["Allow"], "GET")

    def test_stream(self):
        whole = self.generate().json["candidates"][0]["content"]["parts"][0]["text"]
        frames = [json.loads(data) for _, data in self.generate("streamGenerateContent?alt=sse").frames]
        self.assertEqual("".join(f["candidates"][0]["content"]["parts"][0]["text"] for f in frames), whole)
        self.assertEqual(frames[-1]["candidates"][0]["finishReason"], "STOP")
        self.assertIn("cachedContentTokenCount", frames[-1]["usageMetadata"])

    def test_refused(self):
        self.refused(self.generate("fly"), 404, "NOT_FOUND", "generateContent")
        self.refused(self.server.get("/v1beta/models/other"), 404, "NOT_FOUND", "other")
        self.assertEqual(self.generate(model="other").json["reprise"]["warnings"], ["unknown model 'other': ignored"])
        self.refused(self.generate("streamGenerateContent"), 400, "UNIMPLEMENTED", "alt=sse")
        for fields, says in (({"contents": []}, "contents"), ({"contents": [{"parts": 3}]}, "contents[0]"),
                             ({"contents": ["x"]}, "contents[0]"),
                             ({"contents": [{"role": "king", "parts": []}]}, "king"), ({"config": {"topP": "x"}}, "generationConfig.topP"),
                             ({"contents": [{"parts": [{"inlineData": {}}]}]}, "text")):
            with self.subTest(fields=fields):
                self.refused(self.generate(**fields), 400, "INVALID_ARGUMENT", says)
        self.refused(self.generate(cachedContent="x"), 404, "NOT_FOUND", "unknown cached content")


del Dialects

if __name__ == "__main__":
    unittest.main()
