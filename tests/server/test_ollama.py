#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise serve`, Ollama's API: what its routes answer, stream and refuse, and the bodies that Open WebUI sends."""
import json
import tempfile
import unittest

from server_process import Server, ServerCase, bearer, key_line

NAME = "reprise-mini:latest"
TEXT = "Tom had a red ball. What did Tom have?"
ENDLESS = {"temperature": 0, "num_predict": 6}
TOOL = {"type": "function", "function": {"name": "weather", "description": "of a city", "parameters": {
    "type": "object", "properties": {"city": {"enum": ["Bonn", "Oslo"]}}, "required": ["city"], "additionalProperties": False}}}
TIMES = ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration")


def lines(reply):
    return [json.loads(line) for line in reply.body.decode().splitlines()]


class OllamaCase(ServerCase):
    def chat(self, **fields):
        return self.server.post("/api/chat", {"model": NAME, "messages": [{"role": "user", "content": TEXT}], "options": ENDLESS, **fields})

    def generate(self, **fields):
        return self.server.post("/api/generate", {"model": NAME, "prompt": TEXT, "options": ENDLESS, **fields})

    def refused(self, reply, status, says):
        self.assertEqual((reply.status, set(reply.json)), (status, {"error"}), reply.body)
        self.assertIn(says, reply.json["error"])


class Answers(OllamaCase):
    def check_last(self, last, reason="stop"):
        self.assertEqual((last["done"], last["done_reason"], last["model"]), (True, reason, NAME))
        for name in TIMES:
            self.assertIs(type(last[name]), int)
        self.assertEqual(last["prompt_eval_count"], last["reprise"]["prompt_tokens"])

    def test_chat_whole_and_stream(self):
        whole = self.chat(stream=False)
        self.assertEqual(whole.headers["Content-Type"], "application/json")
        self.check_last(whole.json)
        body = {"messages": [{"role": "user", "content": TEXT}], "temperature": 0, "repeat_penalty": 1.1, "repeat_last_n": 64, "max_tokens": 6}
        same = self.server.post("/v1/chat/completions", body).json["choices"][0]["message"]["content"]
        self.assertEqual(whole.json["message"], {"role": "assistant", "content": same})
        stream = self.chat()
        self.assertEqual(stream.headers["Content-Type"], "application/x-ndjson")
        found = lines(stream)
        self.assertEqual("".join(o["message"]["content"] for o in found), same)
        self.assertEqual([o["done"] for o in found], [False] * (len(found) - 1) + [True])
        self.check_last(found[-1])
        self.assertEqual(found[-1]["eval_count"], whole.json["eval_count"])

    def test_logprobs(self):
        """In the form of OpenAI's, whole and in the lines of a stream."""
        asked = {"logprobs": True, "top_logprobs": 2}
        whole = self.chat(stream=False, **asked).json
        self.assertEqual("".join(t["token"] for t in whole["logprobs"]), whole["message"]["content"])
        self.assertEqual({len(t["top_logprobs"]) for t in whole["logprobs"]}, {2})
        self.assertEqual(sum((line.get("logprobs", []) for line in lines(self.chat(**asked))), []), whole["logprobs"])
        self.assertEqual(self.generate(stream=False, **asked).json["logprobs"], whole["logprobs"])
        self.assertNotIn("logprobs", self.chat(stream=False, top_logprobs=2).json)
        self.refused(self.chat(logprobs=True, top_logprobs=21), 400, "top_logprobs")

    def test_generate_whole_and_stream(self):
        whole = self.generate(stream=False).json
        self.check_last(whole)
        self.assertEqual(whole["response"], self.chat(stream=False).json["message"]["content"])
        found = lines(self.generate())
        self.assertEqual("".join(o["response"] for o in found), whole["response"])
        self.assertEqual(found[-1]["context"], whole["context"])
        system = self.generate(stream=False, system="Answer in one word.").json
        self.assertGreater(system["prompt_eval_count"], whole["prompt_eval_count"])

    def test_length_ends_an_answer(self):
        self.check_last(self.generate(stream=False, options={"num_predict": 1, "temperature": 0}).json, "length")

    def test_raw_is_a_completion(self):
        whole = self.generate(raw=True, prompt="Tom had a", stream=False).json
        body = {"prompt": "Tom had a", "temperature": 0, "repeat_penalty": 1.1, "repeat_last_n": 64, "max_tokens": 6}
        self.assertEqual(whole["response"], self.server.post("/v1/completions", body).json["choices"][0]["text"])
        self.assertEqual(len(whole["context"]), whole["prompt_eval_count"] + whole["eval_count"])

    def test_context_continues_the_conversation(self):
        first = self.generate(stream=False).json
        second = self.generate(stream=False, prompt="And what colour?", context=first["context"]).json
        conversation = [{"role": "user", "content": TEXT}, {"role": "assistant", "content": first["response"]},
                        {"role": "user", "content": "And what colour?"}]
        same = self.chat(stream=False, messages=conversation).json
        self.assertEqual((second["response"], second["prompt_eval_count"]), (same["message"]["content"], same["prompt_eval_count"]))
        self.assertGreaterEqual(second["reprise"]["cached_tokens"], first["prompt_eval_count"])
        third = self.generate(stream=False, prompt="Why?", context=second["context"]).json
        self.assertGreater(third["prompt_eval_count"], second["prompt_eval_count"])
        self.assertEqual(third["context"][:len(second["context"])], second["context"])

    def test_context_with_a_format(self):
        first = self.generate(stream=False).json
        formed = self.generate(stream=False, prompt="As JSON", context=first["context"], options={"num_predict": 200, "temperature": 0},
                               format={"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}).json
        self.assertIn(json.loads(formed["response"])["a"], (1, 2))

    def test_formats(self):
        schema = {"type": "object", "properties": {"ball": {"enum": ["red", "blue"]}}, "required": ["ball"], "additionalProperties": False}
        options = {"num_predict": 300, "temperature": 0}
        for ask, of in ((self.chat, lambda o: o["message"]["content"]), (self.generate, lambda o: o["response"])):
            self.assertIn(json.loads(of(ask(stream=False, format=schema, options=options).json))["ball"], ("red", "blue"))
            text = "".join(of(o) for o in lines(ask(format=schema, options=options)))
            self.assertIn(json.loads(text)["ball"], ("red", "blue"))
        started = self.chat(stream=False, format="json").json["message"]["content"]
        self.assertTrue(started.lstrip().startswith("{"), started)
        self.refused(self.chat(format="xml"), 400, "format")
        self.refused(self.chat(format=7), 400, "format")

    def test_tools_are_in_the_prompt_and_calls_are_objects(self):
        plain, with_tool = self.chat(stream=False).json, self.chat(stream=False, tools=[TOOL]).json
        self.assertGreater(with_tool["prompt_eval_count"], plain["prompt_eval_count"] + 20)
        conversation = [{"role": "user", "content": TEXT},
                        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "weather", "arguments": {"city": "Bonn"}}}]},
                        {"role": "tool", "tool_name": "weather", "content": "sunny"}]
        answered = self.chat(stream=False, messages=conversation, tools=[TOOL]).json
        as_text = [{**m, "tool_calls": [{"function": {"name": "weather", "arguments": '{"city": "Bonn"}'}}]} if "tool_calls" in m else m
                   for m in conversation]
        self.assertEqual(self.chat(stream=False, messages=as_text, tools=[TOOL]).json["prompt_eval_count"], answered["prompt_eval_count"])
        openai = [conversation[0], {"role": "assistant", "content": "", "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Bonn"}'}}]},
            {"role": "tool", "tool_call_id": "1", "content": "sunny"}]
        same = self.server.post("/v1/chat/completions", {"messages": openai, "tools": [TOOL], "max_tokens": 1}).json
        self.assertEqual(answered["prompt_eval_count"], same["usage"]["prompt_tokens"])

    def test_loading_needs_no_prompt(self):
        for path, fields in (("/api/chat", {"messages": []}), ("/api/generate", {}), ("/api/generate", {"prompt": "", "keep_alive": "5m"})):
            reply = self.server.post(path, {"model": NAME, **fields}).json
            self.assertEqual((reply["done"], reply["done_reason"]), (True, "load"))
        self.assertEqual(self.server.post("/api/generate", {"model": NAME, "keep_alive": 0}).json["done_reason"], "unload")

    def test_options_and_warnings(self):
        every = {"num_predict": 3, "temperature": 0.7, "top_k": 20, "top_p": 0.9, "min_p": 0.05, "typical_p": 0.7, "repeat_penalty": 0, "seed": 42,
                 "repeat_last_n": 33, "presence_penalty": 1.5, "frequency_penalty": 1.0, "stop": ["zz"], "num_ctx": 1024, "num_keep": 5,
                 "num_batch": 2, "num_gpu": 1, "main_gpu": 0, "use_mmap": True, "num_thread": 8, "numa": False}
        first, again = (self.chat(stream=False, options=every, keep_alive="5m", think=False).json for _ in range(2))
        self.assertEqual((first["message"], first["reprise"]["warnings"]), (again["message"], []))
        odd = self.generate(stream=False, options={**ENDLESS, "mirostat": 1}, template="{{ .Prompt }}", colour="red").json
        self.assertEqual(sorted(odd["reprise"]["warnings"]), ["the field 'template': ignored", "unknown field 'colour': ignored",
                                                              "unknown field 'options.mirostat': ignored"])
        self.refused(self.chat(options={"temperature": "hot"}), 400, "options.temperature")
        stopped = self.generate(stream=False, options={**ENDLESS, "stop": ["stated"]}).json
        self.assertNotIn("stated", stopped["response"])

    def test_what_is_refused(self):
        self.refused(self.chat(messages=[{"role": "user", "content": "x", "images": ["aGk="]}]), 400, "text only")
        self.refused(self.generate(images=["aGk="]), 400, "text only")
        self.refused(self.generate(suffix="end"), 400, "fill-in-the-middle")
        self.refused(self.generate(raw=True, context=[1]), 400, "raw")
        self.refused(self.generate(context=[99999999]), 400, "context[0]")
        self.refused(self.chat(messages=[{"role": "robot", "content": "x"}]), 400, "robot")
        self.refused(self.server.post("/api/chat", {"messages": []}), 400, "model")
        self.refused(self.server.post("/api/chat", "{"), 400, "JSON")
        self.refused(self.chat(messages=[{"role": "user", "content": "word " * 5000}]), 400, "2048")
        self.refused(self.server.get("/api/chat"), 405, "POST")
        for method, path in (("POST", "/api/create"), ("POST", "/api/copy"), ("POST", "/api/push"), ("DELETE", "/api/delete")):
            self.refused(self.server.ask(method, path, {"model": NAME}, headers={"Content-Type": "application/json"}), 501, "not supported")
        self.refused(self.server.post("/api/pull", {"model": "llama3"}), 501, "llama3")
        self.assertEqual(self.server.post("/api/pull", {"model": NAME}).json, {"status": "success"})
        self.refused(self.server.post("/api/show", {"model": "llama3"}), 404, "'llama3' not found")
        self.refused(self.server.post("/api/show", {}), 400, "model")

    def test_embed(self):
        """The same vectors as by /v1/embeddings, of one text and of several."""
        texts = ["Tom had a red ball.", "The sea is blue."]
        expected = [d["embedding"] for d in self.server.post("/v1/embeddings", {"input": texts}).json["data"]]
        reply = self.server.post("/api/embed", {"model": NAME, "input": texts, "truncate": True, "options": {"num_ctx": 512}})
        self.assertEqual(reply.status, 200, reply.body)
        self.assertEqual(reply.json["embeddings"], expected)
        self.assertGreater(reply.json["prompt_eval_count"], 8)
        self.assertEqual(self.server.post("/api/embed", {"model": NAME, "input": texts[0]}).json["embeddings"], expected[:1])
        self.assertEqual(self.server.post("/api/embeddings", {"model": NAME, "prompt": texts[1]}).json["embedding"], expected[1])
        self.refused(self.server.post("/api/embed", {"model": NAME}), 400, "input")
        self.refused(self.server.post("/api/embeddings", {"model": NAME}), 400, "prompt")

    def test_models(self):
        tag, = self.server.get("/api/tags").json["models"]
        self.assertEqual((tag["name"], tag["model"], tag["details"]["family"], tag["details"]["format"]), (NAME, NAME, "llama", "gguf"))
        self.assertRegex(tag["digest"], "^[0-9a-f]{64}$")
        self.assertGreater(tag["size"], 1000000)
        running, = self.server.get("/api/ps").json["models"]
        self.assertEqual((running["digest"], running["context_length"]), (tag["digest"], 2048))
        for field in ("model", "name"):
            shown = self.server.post("/api/show", {field: "reprise-mini"}).json
            self.assertEqual((shown["model_info"]["llama.context_length"], shown["capabilities"]), (2048, ["completion", "tools"]))
        self.assertRegex(self.server.get("/api/version").json["version"], r"^0\.\d+\.\d+$")
        head = self.server.ask("HEAD", "/")
        self.assertEqual((head.status, head.body), (200, b""))

    def test_other_names_are_answered_with_a_warning(self):
        reply = self.chat(stream=False, model="llama3.2:1b").json
        self.assertEqual(reply["reprise"]["warnings"], ["unknown model 'llama3.2:1b': ignored"])


class OpenWebUi(OllamaCase):
    """The requests of Open WebUI to an Ollama server: the list of models and the version of each connection, chats with the parameters of its
    settings, and its tasks (titles, tags), which it converts from OpenAI's form."""
    def test_connection(self):
        models = self.server.get("/api/tags").json["models"]
        self.assertEqual(self.server.get("/v1/models").json["data"][0]["id"] + ":latest", models[0]["model"])
        self.assertTrue(self.server.get("/api/version").json["version"])
        self.assertEqual(self.server.get("/api/ps").json["models"][0]["model"], models[0]["model"])
        self.assertIn("details", self.server.post("/api/show", {"name": models[0]["model"]}).json)

    def test_chat(self):
        body = {"model": NAME, "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": TEXT}], "stream": True,
                "options": {"temperature": 0, "top_p": 0.9, "seed": 1, "num_predict": 8, "repeat_penalty": 0, "mirostat": 0, "num_ctx": 4096},
                "keep_alive": "5m"}
        found = lines(self.server.post("/api/chat", body))
        self.assertTrue(found[-1]["done"])
        self.assertEqual({o["message"]["role"] for o in found}, {"assistant"})

    def test_task(self):
        body = {"model": NAME, "messages": [{"role": "user", "content": TEXT}], "stream": False, "options": {"num_predict": 8}}
        self.assertEqual(self.server.post("/api/chat", body).json["message"]["role"], "assistant")


class Strict(OllamaCase):
    options = ("--strict", "--alias", "gpt-oss:20b", "--alias", "small")

    def test_names(self):
        names = ["reprise-mini", "gpt-oss:20b", "small"]
        self.assertEqual([m["id"] for m in self.server.get("/v1/models").json["data"]], names)
        self.assertEqual([m["name"] for m in self.server.get("/v1beta/models").json["models"]], [f"models/{n}" for n in names])
        self.assertEqual([m["name"] for m in self.server.get("/api/tags").json["models"]], [NAME, "gpt-oss:20b", "small:latest"])
        for name in (*names, "small:latest", NAME, "default"):
            self.assertEqual(self.chat(stream=False, model=name).json["model"], name)
        self.refused(self.chat(model="other"), 404, "other")
        self.refused(self.chat(model="gpt-oss"), 404, "gpt-oss")
        self.assertEqual(self.server.get("/v1/models/default").json["id"], "reprise-mini")
        self.assertEqual(self.server.get("/v1/models/small").json["id"], "small")
        self.assertEqual(self.server.get("/v1/models/other").status, 404)


class KeepAlive(OllamaCase):
    options = ("--keep-alive", "1")

    def test_a_stream_that_waits_is_lines_of_json(self):
        found = lines(self.chat(messages=[{"role": "user", "content": TEXT * 60}]))
        self.assertTrue(found[-1]["done"])


class Keys(unittest.TestCase):
    def test_keys_and_origins(self):
        with tempfile.NamedTemporaryFile("w") as keys:
            keys.write(key_line("a-key-of-this-test-0001", "rights=request"))
            keys.flush()
            server = Server("--log", "off", "--api-keys", keys.name).wait_ready()
            self.addCleanup(server.stop)
            self.assertEqual(server.get("/api/tags").status, 401)
            self.assertIn("API key", server.get("/api/tags").json["error"])
            self.assertEqual(server.get("/api/tags", headers=bearer("a-key-of-this-test-0001")).status, 200)
            self.assertEqual(server.get("/api/version").status, 200)
            foreign = {**bearer("a-key-of-this-test-0001"), "Origin": "http://evil.example"}
            self.assertEqual(server.post("/api/chat", {"model": NAME, "messages": []}, headers=foreign).status, 403)


if __name__ == "__main__":
    unittest.main()
