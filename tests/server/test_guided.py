#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise serve`: vLLM's guided_json, guided_regex, guided_choice, guided_grammar and structured_outputs, in every dialect that generates."""
import json
import re
import unittest

from server_process import ServerCase

MESSAGES = [{"role": "user", "content": "Tom had"}]
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}, "b": {"type": "boolean"}}, "required": ["n", "b"]}
REGEX = r"(red|blue|\d{3}) [A-Z]\."
# Path, body, where the text is.
DIALECTS = [
    ("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 60}, lambda r: r["choices"][0]["message"]["content"]),
    ("/v1/completions", {"prompt": "Tom had", "max_tokens": 60}, lambda r: r["choices"][0]["text"]),
    ("/v1/responses", {"input": "Tom had", "max_output_tokens": 60}, lambda r: r["output"][0]["content"][0]["text"]),
    ("/v1/messages", {"model": "default", "messages": MESSAGES, "max_tokens": 60}, lambda r: r["content"][0]["text"]),
    ("/v1beta/models/default:generateContent", {"contents": [{"parts": [{"text": "Tom had"}]}]}, lambda r: r["candidates"][0]["content"]["parts"][0]["text"]),
    ("/completion", {"prompt": "Tom had", "n_predict": 60}, lambda r: r["content"]),
]
FORMS = [
    ({"guided_regex": REGEX}, lambda text: re.fullmatch(REGEX, text)),
    ({"structured_outputs": {"regex": f"^{REGEX}$"}}, lambda text: re.fullmatch(REGEX, text)),
    ({"guided_choice": ["a \"b\"", "größe", "x\ny"]}, lambda text: text in ("a \"b\"", "größe", "x\ny")),
    ({"structured_outputs": {"choice": ["one", "two"]}}, lambda text: text in ("one", "two")),
    ({"guided_grammar": 'root ::= "yes" | "no"'}, lambda text: text in ("yes", "no")),
    ({"structured_outputs": {"grammar": 'root ::= "yes" | "no"'}}, lambda text: text in ("yes", "no")),
    ({"guided_json": SCHEMA}, lambda text: set(json.loads(text)) == {"n", "b"}),
    ({"guided_json": json.dumps(SCHEMA), "guided_decoding_backend": "xgrammar"}, lambda text: set(json.loads(text)) == {"n", "b"}),
    ({"structured_outputs": {"json": SCHEMA, "whitespace_pattern": ""}}, lambda text: set(json.loads(text)) == {"n", "b"} and " " not in text),
    ({"guided_json": SCHEMA, "guided_whitespace_pattern": r"\n {2}"}, lambda text: set(json.loads(text)) == {"n", "b"} and text.count("\n  ") == 3),
]


class Guided(ServerCase):
    def test_dialects(self):
        for path, body, text_of in DIALECTS:
            for fields, fits in FORMS:
                with self.subTest(path=path, fields=fields):
                    reply = self.server.post(path, {**body, **fields, "seed": 3})
                    self.assertEqual(reply.status, 200, reply.body)
                    text = text_of(reply.json)
                    self.assertTrue(fits(text), text)
                    self.assertFalse(any("guided" in line or "structured" in line for line in reply.json.get("reprise", {}).get("warnings", [])), reply.body)

    def test_any_object(self):
        reply = self.server.post("/v1/completions", {"prompt": "x", "max_tokens": 400, "n": 4, "seed": 1, "structured_outputs": {"json_object": True}}).json
        for choice in reply["choices"]:
            self.assertTrue(choice["text"].startswith("{"))
            if choice["finish_reason"] == "stop":
                self.assertIsInstance(json.loads(choice["text"]), dict)

    def test_nothing_is_asked(self):
        plain = self.server.post("/v1/completions", {"prompt": "Tom had", "max_tokens": 6, "temperature": 0}).json["choices"][0]["text"]
        for fields in ({"guided_regex": None}, {"structured_outputs": {}}, {"structured_outputs": None}, {"structured_outputs": {"json_object": False}}):
            reply = self.server.post("/v1/completions", {"prompt": "Tom had", "max_tokens": 6, "temperature": 0, **fields}).json
            self.assertEqual(reply["choices"][0]["text"], plain)

    def test_refused(self):
        for fields, says in (({"guided_regex": "a(?=b)"}, "character 4: look-ahead"), ({"guided_regex": 3}, "guided_regex"), ({"guided_regex": "a", "guided_choice": ["a"]}, "exclude each other"),
                             ({"guided_choice": []}, "guided_choice"), ({"guided_choice": [1]}, "guided_choice"), ({"guided_choice": [""]}, "none of them empty"),
                             ({"guided_json": "{"}, "not valid JSON"), ({"guided_json": 3}, "a JSON schema"), ({"guided_json": {"type": "strin"}}, "guided_json"),
                             ({"guided_grammar": "root ::= ("}, "grammar:1"), ({"guided_regex": "a", "grammar": 'root ::= "a"'}, "exclude each other"),
                             ({"guided_regex": "a", "response_format": {"type": "json_object"}}, "exclude each other"),
                             ({"structured_outputs": {"regex": "a", "json_object": True}}, "exclude each other"), ({"structured_outputs": {"structural_tag": {}}}, "structural_tag"),
                             ({"structured_outputs": []}, "structured_outputs"), ({"guided_json": SCHEMA, "guided_whitespace_pattern": "("}, "whitespace_pattern")):
            with self.subTest(fields=fields):
                reply = self.server.post("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 5, **fields})
                self.assertEqual(reply.status, 400, reply.body)
                self.assertIn(says, reply.json["error"]["message"])
        reply = self.server.post("/v1/completions", {"prompt": "x", "max_tokens": 1, "structured_outputs": {"regx": "a"}}).json
        self.assertIn("structured_outputs.regx", str(reply["reprise"]["warnings"]))


if __name__ == "__main__":
    unittest.main()
