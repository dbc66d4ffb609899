#!/usr/bin/env python3
"""`reprise serve`: fields that a dialect does not have, parameters without an argument: told in `reprise.warnings`; --strict refuses the former."""
import unittest

from server_process import ServerCase

SCHEMA = """<schema name="s"><module name="a">Plan <param name="days" len="8"/> here.</module>
<module name="b">Tom is <param name="age" len="8" required="true"/>.</module></schema>"""
MESSAGES = [{"role": "user", "content": "Tom had"}]
CHAT = {"messages": MESSAGES, "max_tokens": 1}
# What clients send and Reprise ignores on purpose, or reads.
FINE = {
    "/v1/chat/completions": {**CHAT, "model": "default", "user": "u", "metadata": {}, "store": False, "service_tier": "auto", "top_k": 3, "seed": 1,
                             "parallel_tool_calls": True, "stream_options": {"include_usage": True}, "reasoning_effort": "low", "temperature": 0},
    "/v1/completions": {"prompt": "Tom had", "max_tokens": 1, "echo": False, "user": "u", "best_of": 1},
    "/v1/responses": {"input": "Tom had", "max_output_tokens": 1, "store": False, "include": [], "truncation": "auto", "reasoning": {}, "user": "u"},
    "/v1/messages": {**CHAT, "model": "default", "metadata": {"user_id": "u"}, "service_tier": "auto", "output_config": {"effort": "low"}},
    "/v1beta/models/default:generateContent": {"contents": [{"parts": [{"text": "Tom had"}]}], "safetySettings": [], "labels": {},
                                           "generationConfig": {"maxOutputTokens": 1, "thinkingConfig": {}}},
    "/completion": {"prompt": "Tom had", "n_predict": 1, "id_slot": 0, "return_tokens": False, "cache_prompt": True},
    "/v1/prompts": {"prompt": "<prompt schema='s'>Tom had</prompt>", "max_tokens": 1, "logprobs": 0},
}


class Warnings(ServerCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server.ask("PUT", "/v1/schemas/s", SCHEMA)

    def warnings(self, path, body):
        reply = self.server.post(path, body)
        self.assertEqual(reply.status, 200, (path, reply.body))
        return reply.json["reprise"]["warnings"]


class Told(Warnings):
    def test_unknown_fields(self):
        for path, body in FINE.items():
            self.assertEqual(self.warnings(path, body), [], path)
            self.assertEqual(self.warnings(path, {**body, "temprature": 0.2}), ["'temprature' is no field of this request: it was ignored"], path)
        for path, outer, name in (("/v1/chat/completions", "stream_options", "include_usgae"), ("/v1/messages", "output_config", "format"),
                                  ("/v1beta/models/default:generateContent", "generationConfig", "temprature")):
            body = {**FINE[path], outer: {**FINE[path][outer], name: 1}}
            self.assertEqual(self.warnings(path, body), [f"'{outer}.{name}' is no field of this request: it was ignored"])
        many = self.warnings("/v1/completions", {**FINE["/v1/completions"], **{f"x{i}": i for i in range(99)}})
        self.assertEqual((len(many), many[-1]), (17, "more fields are unknown: they were ignored"))

    def test_missing_arguments(self):
        def body(imports):
            return {"prompt": f"<prompt schema='s'>{imports} When?</prompt>", "max_tokens": 1}
        self.assertEqual(self.warnings("/v1/prompts", body("<a/>")), ["parameter 'days' of 'a' has no argument: its place stays empty"])
        self.assertEqual(self.warnings("/v1/prompts", body("<a days='3'/><b age='3'/>")), [])
        reply = self.server.post("/v1/prompts", body("<b/>"))
        self.assertEqual(reply.status, 400)
        self.assertIn("prompt:1:20: parameter 'age' of 'b' has no argument, and requires one", reply.json["error"]["message"])


class Strict(Warnings):
    options = ("--strict",)

    def test_refused(self):
        for path, body in FINE.items():
            self.assertEqual(self.warnings(path, body), [], path)
            reply = self.server.post(path, {**body, "temprature": 0.2})
            self.assertEqual(reply.status, 400, path)
            self.assertIn("'temprature' is no field of this request: leave it out", reply.body.decode())


if __name__ == "__main__":
    unittest.main()
