#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise serve`: answers of a form. The bundled model, drawn from at random, writes nonsense that fits the schema, whatever the schema is: each
answer is judged by a small validator; and what cannot be honoured is refused with its place."""
import json
import unittest

from server_process import Server

TREE = {"$defs": {"node": {"type": "object", "properties": {"v": {"type": "integer", "minimum": 0, "maximum": 99},
                                                              "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
                           "required": ["v", "next"], "additionalProperties": False}}, "$ref": "#/$defs/node"}
SCHEMAS = {
    "types": {"type": "object", "properties": {"i": {"type": "integer"}, "n": {"type": "number"}, "b": {"type": "boolean"}, "z": {"type": "null"}},
              "required": ["i", "n", "b", "z"], "additionalProperties": False},
    "optional": {"type": "object", "properties": {k: {"type": "boolean"} for k in "abcdef"}, "required": ["c", "e"]},
    "all optional": {"type": "object", "properties": {k: {"enum": [1, "x"]} for k in "abc"}},
    "no properties": {"type": "object", "properties": {}},
    "type list": {"type": "object", "properties": {"x": {"type": ["integer", "null", "boolean"]}}, "required": ["x"]},
    "enum": {"enum": ["a\"b\\c", 3, None, {"k": [1, 2]}, "größe\n", 2.5, True]},
    "const": {"type": "object", "properties": {"kind": {"const": "über"}}, "required": ["kind"]},
    "sizes": {"type": "object", "properties": {"s": {"type": "string", "minLength": 2, "maxLength": 5},
                                               "a": {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 4},
                                               "e": {"type": "array", "items": {"type": "null"}, "maxItems": 1}}, "required": ["s", "a", "e"]},
    "prefix": {"type": "array", "prefixItems": [{"type": "boolean"}, {"const": 7}], "items": {"type": "null"}, "minItems": 3, "maxItems": 5},
    "closed prefix": {"type": "array", "prefixItems": [{"type": "boolean"}, {"const": 7}], "items": False},
    "ranges": {"type": "object", "properties": {"a": {"type": "integer", "minimum": -12, "maximum": 345}, "b": {"type": "integer", "minimum": 98},
                                                "c": {"type": "integer", "exclusiveMaximum": -99}, "d": {"type": "number", "minimum": 0, "maximum": 1},
                                                "e": {"type": "number", "minimum": -2, "maximum": 1}, "f": {"type": "integer", "minimum": 7, "maximum": 7},
                                                "g": {"type": "integer", "exclusiveMinimum": 0.5, "maximum": 1203}},
               "required": list("abcdefg")},
    "any of": {"anyOf": [{"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": False},
                         {"type": "array", "items": {"type": "boolean"}, "maxItems": 2}, {"const": None}]},
    "beside any of": {"type": "object", "properties": {"t": {"enum": [1, 2]}}, "required": ["t"],
                      "oneOf": [{"properties": {"u": {"const": 1}}, "required": ["u"]}, {"properties": {"w": {"const": 2}}, "required": ["w"]}]},
    "all of": {"$defs": {"base": {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}},
               "allOf": [{"$ref": "#/$defs/base"}, {"properties": {"b": {"type": "integer", "minimum": 0}}, "required": ["b"]},
                         {"properties": {"b": {"maximum": 9}}}]},
    "tree": TREE,
    "definitions": {"definitions": {"a/b": {"type": "boolean"}}, "type": "object", "properties": {"x": {"$ref": "#/definitions/a~1b", "title": "t"}},
                    "required": ["x"]},
    "names": {"type": "object", "properties": {"a \"b\"\\": {"type": "boolean"}, "größe": {"type": "null"}, "\n\u0001": {"type": "null"}},
              "required": ["a \"b\"\\", "größe", "\n\u0001"], "additionalProperties": False},
    "others": {"type": "object", "properties": {"ab": {"type": "boolean"}, "ac": {"type": "boolean"}, "é": {"type": "null"}}, "required": ["ab"],
               "additionalProperties": {"type": "integer", "minimum": 0, "maximum": 9}},
    "only others": {"type": "object", "additionalProperties": {"type": "boolean"}},
    "required alone": {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a", "zz"]},
    "ignored": {"type": "object", "title": "T", "description": "d", "properties": {"d": {"type": "string", "format": "date", "maxLength": 3,
                                                                                         "default": "", "examples": ["x"]}}, "required": ["d"]},
}
REFUSED = [
    ({"type": "object", "properties": {"x": {"type": "string", "pattern": "^a"}}}, "properties.x.pattern"),
    ({"type": "object", "properties": {"x": {"type": "array", "items": {"not": {}}}}}, "properties.x.items.not"),
    ({"type": "object", "properties": {"x": {"anyOf": [{"type": "string"}, {"if": {}}]}}}, "properties.x.anyOf[1].if"),
    ({"type": "strin"}, "type"), ({"type": []}, "type"), ({"type": "object", "properties": []}, "properties"),
    ({"type": "object", "properties": {"x": 3}}, "properties.x"), ({"type": "object", "required": [1]}, "required"),
    ({"type": "object", "required": ["x"], "additionalProperties": False}, "required"), ({"enum": []}, "enum"),
    ({"type": "string", "enum": [1]}, "enum"), ({"type": "string", "minLength": -1}, "minLength"),
    ({"type": "string", "minLength": 3, "maxLength": 2}, "maxLength"), ({"type": "string", "maxLength": 9999}, "maxLength"),
    ({"type": "array", "minItems": 3, "maxItems": 2}, "minItems"), ({"type": "integer", "minimum": 3, "maximum": 2}, "minimum"),
    ({"type": "number", "minimum": 0.5}, "minimum"), ({"type": "number", "exclusiveMinimum": 0}, "exclusiveMinimum"),
    ({"type": "integer", "multipleOf": 3}, "multipleOf"), ({"$ref": "#/$defs/none"}, "$ref"), ({"$ref": "http://x"}, "$ref"), ({"$ref": "#"}, "itself"),
    ({"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}, {"const": 1}]}, "b": {"anyOf": [{"$ref": "#/$defs/a"}, {"const": 2}]}},
      "$ref": "#/$defs/a"}, "itself"),
    ({"$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}, {"type": "object"}]}}, "$ref": "#/$defs/a"}, "itself"),
    ({"allOf": [{"type": "string"}, {"type": "integer"}]}, "allOf"), ({"anyOf": []}, "anyOf"), ({"type": "array", "uniqueItems": True}, "uniqueItems"),
    ({"type": "object", "properties": {"x": False}, "required": ["x"], "additionalProperties": False}, "required"),
]


def resolve(root, ref):
    at = root
    for part in ref.split("/")[1:]:
        at = at[part.replace("~1", "/").replace("~0", "~")]
    return at


def fits_type(value, name):
    return {"object": isinstance(value, dict), "array": isinstance(value, list), "string": isinstance(value, str), "boolean": isinstance(value, bool),
            "null": value is None, "integer": isinstance(value, int) and not isinstance(value, bool),
            "number": isinstance(value, (int, float)) and not isinstance(value, bool)}[name]


def valid(value, s, root):
    """JSON Schema, as far as SCHEMAS have it."""
    if isinstance(s, bool):
        return s
    types = s.get("type", [])
    types = [types] if isinstance(types, str) else types
    number = fits_type(value, "number")
    checks = [not types or any(fits_type(value, t) for t in types), "$ref" not in s or valid(value, resolve(root, s["$ref"]), root),
              all(valid(value, one, root) for one in s.get("allOf", [])), "anyOf" not in s or any(valid(value, one, root) for one in s["anyOf"]),
              "oneOf" not in s or any(valid(value, one, root) for one in s["oneOf"]), "enum" not in s or value in s["enum"],
              "const" not in s or value == s["const"], not number or value >= s.get("minimum", value), not number or value <= s.get("maximum", value),
              not number or "exclusiveMinimum" not in s or value > s["exclusiveMinimum"],
              not number or "exclusiveMaximum" not in s or value < s["exclusiveMaximum"]]
    if isinstance(value, str):
        checks.append(s.get("minLength", 0) <= len(value) <= s.get("maxLength", len(value)))
    if isinstance(value, list):
        first = s.get("prefixItems", [])
        checks += [s.get("minItems", 0) <= len(value) <= s.get("maxItems", len(value)), all(valid(v, t, root) for v, t in zip(value, first)),
                   all(valid(v, s.get("items", True), root) for v in value[len(first):])]
    if isinstance(value, dict):
        own, others = s.get("properties", {}), s.get("additionalProperties", True)
        checks += [all(k in value for k in s.get("required", [])), all(valid(v, own.get(k, others), root) for k, v in value.items())]
    return all(checks)


def without_twins(pairs):
    assert len({k for k, _ in pairs}) == len(pairs), pairs
    return dict(pairs)


class Structured(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server().wait_ready()
        cls.addClassCleanup(cls.server.stop)

    def chat(self, form, **fields):
        return self.server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Say it as JSON."}], "temperature": 1.5,
                                                         "max_tokens": 300, "response_format": form, **fields})

    def answers(self, form, n=6):
        """Those that were not cut."""
        reply = self.chat(form, n=n, seed=1)
        self.assertEqual(reply.status, 200, reply.body)
        return [c["message"]["content"] for c in reply.json["choices"] if c["finish_reason"] == "stop"]

    def test_schemas(self):
        for name, schema in SCHEMAS.items():
            with self.subTest(schema=name):
                answers = self.answers({"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}})
                self.assertTrue(answers or name in ("tree", "others", "only others"), "all were cut")
                for text in answers:
                    value = json.loads(text, object_pairs_hook=without_twins if "additionalProperties" not in schema else dict)
                    self.assertTrue(valid(value, schema, schema), text)
                    self.assertNotIn("\n", text)
                    self.assertNotIn("  ", text.replace("\\", "") if name == "names" else "")

    def test_the_validator_itself(self):
        for schema, wrong in ((SCHEMAS["types"], {"i": True, "n": 1, "b": True, "z": None}), (SCHEMAS["sizes"], {"s": "a", "a": [], "e": []}),
                              (TREE, {"v": 100, "next": None}), (SCHEMAS["ranges"], {}), (SCHEMAS["closed prefix"], [True, 7, None])):
            self.assertFalse(valid(wrong, schema, schema))

    def test_refused(self):
        for schema, says in REFUSED:
            with self.subTest(schema=schema):
                reply = self.chat({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}})
                self.assertEqual(reply.status, 400, reply.body)
                self.assertIn(says, reply.json["error"]["message"])
                if "itself" not in says:
                    self.assertIn("response_format.json_schema.schema", reply.json["error"]["message"])
        for form in ({"type": "json_schema"}, {"type": "json_schema", "json_schema": {"name": "x"}}, {"type": "xml"}, {"type": 3}):
            self.assertEqual(self.chat(form).status, 400, form)

    def test_large_schemas_end(self):
        deep = {"type": "null"}
        for _ in range(200):
            deep = {"type": "array", "items": deep}
        doubling = {"$defs": {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}", "title": "a", "minimum": i}, {"$ref": f"#/$defs/d{i + 1}", "maximum": i}]}
                              for i in range(40)}, "$ref": "#/$defs/d0"}
        doubling["$defs"]["d40"] = {"type": "integer"}
        many = {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(1025)}}
        for schema in (deep, doubling, many):
            self.assertEqual(self.chat({"type": "json_schema", "json_schema": {"schema": schema}}).status, 400)

    def test_json_object(self):
        for form in ({"type": "json_object"}, {"type": "json_object", "schema": SCHEMAS["types"]}):
            for text in self.answers(form):
                self.assertIsInstance(json.loads(text), dict)
        self.assertEqual(self.chat({"type": "text"}, max_tokens=1).status, 200)

    def test_other_dialects(self):
        schema = SCHEMAS["types"]
        reply = self.server.post("/completion", {"prompt": "x", "json_schema": schema, "n_predict": 300})
        self.assertTrue(valid(json.loads(reply.json["content"]), schema, schema))
        self.assertEqual(self.server.post("/completion", {"prompt": "x", "grammar": 'root ::= "yes" | "no"'}).json["content"] in ("yes", "no"), True)
        reply = self.server.post("/completion", {"prompt": "x", "grammar": "root ::= ("})
        self.assertEqual(reply.status, 400, reply.body)
        self.assertIn("grammar", reply.json["error"]["message"])
        upper = {"type": "OBJECT", "properties": {"b": {"type": "BOOLEAN", "nullable": True}, "a": {"type": "INTEGER", "format": "int32"}},
                 "required": ["a", "b"], "propertyOrdering": ["a", "b"]}
        for config in ({"responseMimeType": "application/json", "responseSchema": upper}, {"responseJsonSchema": schema},
                       {"responseMimeType": "application/json"}):
            reply = self.server.post("/v1beta/models/reprise-mini:generateContent", {
                "contents": [{"parts": [{"text": "x"}]}], "generationConfig": {"maxOutputTokens": 300, "seed": 4, **config}}).json["candidates"][0]
            if reply["finishReason"] == "STOP":
                value = json.loads(reply["content"]["parts"][0]["text"])
                if "responseSchema" in config:
                    self.assertEqual(list(value), ["a", "b"])
        reply = self.server.post("/v1beta/models/reprise-mini:generateContent", {
            "contents": [{"parts": [{"text": "x"}]}], "generationConfig": {"responseMimeType": "text/x.enum"}})
        self.assertEqual(reply.status, 400)


if __name__ == "__main__":
    unittest.main()
