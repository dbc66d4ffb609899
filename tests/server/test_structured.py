#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise serve`: answers of a form. The bundled model, drawn from at random, writes nonsense that fits the schema, whatever the schema is: each
answer is judged by a small validator; and what cannot be honoured is refused with its place."""
import datetime
import fractions
import ipaddress
import json
import os
import re
import unittest
import urllib.parse
import uuid
from random import Random

from server_process import Server

ROUNDS = int(os.environ.get("REPRISE_TEST_ROUNDS", "0"))  # few under sanitizers

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
def object_of(**more):
    return {"type": "object", "properties": {"k": {"enum": ["x", "y"]}, "n": {"type": "integer", "minimum": 0, "maximum": 9}, "b": {"type": "boolean"}}, **more}


KEYWORDS = {
    "pattern": {"type": "string", "pattern": "^[A-Z][a-z]{1,4}( [\"\\\\]|\\t)?\\d{2}$"},
    "search": {"type": "string", "pattern": "\\d-\\d", "minLength": 3},
    "alternatives": {"type": "string", "pattern": "^(yes|no)$|^maybe"},
    "length": {"type": "string", "pattern": "^[^\"\\\\a-y]*$", "minLength": 1, "maxLength": 4},
    **{f"format {name}": {"type": "string", "format": name} for name in ("date", "time", "date-time", "duration", "uuid", "email", "hostname", "ipv4", "ipv6", "uri")},
    "names": {"type": "object", "propertyNames": {"pattern": "^[a-c]{1,2}$"}, "additionalProperties": {"const": 1}, "maxProperties": 3},
    "names of an enum": {"type": "object", "propertyNames": {"enum": ["a", "b", "c"]}, "additionalProperties": {"type": "boolean"}, "minProperties": 2},
    "names and properties": object_of(propertyNames={"maxLength": 1, "pattern": "^[kb]+$"}),
    "patterns": object_of(patternProperties={"^x-[ab]$": {"type": "boolean"}, "^y": {"const": 1}}, maxProperties=3),
    "some properties": object_of(minProperties=1, maxProperties=2),
    "multiple": {"type": "array", "items": {"type": "integer", "multipleOf": 12}, "minItems": 3, "maxItems": 3},
    "multiple of tens": {"type": "integer", "multipleOf": 300, "minimum": 0}, "cents": {"type": "number", "multipleOf": 0.05}, "listed": {"type": "number", "multipleOf": 2.5, "minimum": -10, "maximum": 10},
    "unique": {"type": "array", "items": {"enum": ["a", 1, None, {"k": 1}]}, "uniqueItems": True, "minItems": 3},
    "unique booleans": {"type": "array", "items": {"type": "boolean"}, "uniqueItems": True},
    "contains": {"type": "array", "items": {"enum": [1, 2, 3]}, "contains": {"minimum": 3, "maximum": 3, "type": "integer"}, "minContains": 2},
    "dependent": object_of(dependentRequired={"k": ["n"], "n": ["b"]}),
    "not a value": {"enum": ["a", "b", 3], "not": {"enum": ["b", 4]}}, "not a type": {"type": ["boolean", "null"], "not": {"type": "null"}}, "not with": object_of(**{"not": {"required": ["n"]}}),
    "if": object_of(required=["k"], **{"if": {"properties": {"k": {"const": "x"}}}, "then": {"required": ["n"]}, "else": {"required": ["b"], "properties": {"n": {"minimum": 5}}}}),
    "if present": object_of(**{"if": {"properties": {"b": {"const": True}}, "required": ["b"]}, "then": {"required": ["k"]}}),
    "two conditions": object_of(required=["k"], allOf=[{"if": {"properties": {"k": {"const": "x"}}}, "then": {"required": ["n"]}},
                                                       {"if": {"properties": {"k": {"const": "y"}}}, "then": {"required": ["b"]}}]),
}
REFUSED = [
    ({"type": "object", "properties": {"x": {"type": "string", "pattern": "^(?=a)"}}}, "properties.x.pattern"),
    ({"type": "object", "properties": {"x": {"type": "array", "items": {"not": {}}, "minItems": 1}}}, "properties.x.minItems"),
    ({"type": "object", "properties": {"x": {"anyOf": [{"type": "string"}, {"if": {}}]}}}, "properties.x.anyOf[1].if"),
    ({"type": "strin"}, "type"), ({"type": []}, "type"), ({"type": "object", "properties": []}, "properties"),
    ({"type": "object", "properties": {"x": 3}}, "properties.x"), ({"type": "object", "required": [1]}, "required"),
    ({"type": "object", "required": ["x"], "additionalProperties": False}, "required"), ({"enum": []}, "enum"),
    ({"type": "string", "enum": [1]}, "enum"), ({"type": "string", "minLength": -1}, "minLength"),
    ({"type": "string", "minLength": 3, "maxLength": 2}, "maxLength"), ({"type": "string", "maxLength": 9999}, "maxLength"),
    ({"type": "array", "minItems": 3, "maxItems": 2}, "minItems"), ({"type": "integer", "minimum": 3, "maximum": 2}, "minimum"),
    ({"type": "number", "minimum": 0.5}, "minimum"), ({"type": "number", "exclusiveMinimum": 0}, "exclusiveMinimum"),
    ({"type": "integer", "multipleOf": 77}, "multipleOf"), ({"type": "number", "multipleOf": 0}, "multipleOf"), ({"$ref": "#/$defs/none"}, "$ref"), ({"$ref": "http://x"}, "$ref"), ({"$ref": "#"}, "itself"),
    ({"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}, {"const": 1}]}, "b": {"anyOf": [{"$ref": "#/$defs/a"}, {"const": 2}]}},
      "$ref": "#/$defs/a"}, "itself"),
    ({"$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}, {"type": "object"}]}}, "$ref": "#/$defs/a"}, "itself"),
    ({"allOf": [{"type": "string"}, {"type": "integer"}]}, "allOf"), ({"anyOf": []}, "anyOf"), ({"type": "array", "uniqueItems": True}, "uniqueItems"),
    ({"type": "object", "properties": {"x": False}, "required": ["x"], "additionalProperties": False}, "required"),
    ({"type": "string", "pattern": "a(b"}, "character 4"), ({"type": "string", "pattern": 3}, "pattern"),
    ({"type": "string", "pattern": "^(ab)*$", "maxLength": 3}, "maxLength"), ({"enum": ["a"], "pattern": "b"}, "enum"),
    ({"type": "object", "propertyNames": {"type": "integer", "minimum": 3}}, "propertyNames"), ({"type": "object", "maxProperties": 1, "minProperties": 2}, "maxProperties"),
    ({"type": "object", "properties": {"a": {}}, "minProperties": 2}, "minProperties"), ({"type": "object", "minProperties": 2}, "minProperties"),
    ({"type": "object", "properties": {"ab": {}}, "patternProperties": {"^a": {}}}, "patternProperties"), ({"type": "object", "patternProperties": {"a": {}, "b": {}}}, "patternProperties"),
    ({"type": "array", "contains": {"const": 1}, "maxItems": 3}, "contains"), ({"type": "array", "items": {"enum": [1]}, "uniqueItems": True, "minItems": 2}, "minItems"),
    ({"type": "integer", "multipleOf": 3, "maximum": 9}, "multipleOf"), ({"type": "integer", "multipleOf": 100, "minimum": 1, "maximum": 99}, "multipleOf"),
    ({"type": "object", "properties": {"a": {}}, "dependentRequired": {"a": ["b"]}, "additionalProperties": True}, "dependentRequired"),
    ({"type": "string", "not": {"pattern": "a"}}, "not"), ({"enum": [1], "not": {"enum": [1]}}, "enum"), ({"type": "string", "const": 5}, "const"), ({"anyOf": [False, {"not": {}}]}, "anyOf"),
    ({"type": "integer", "minimum": 10**70}, "minimum"), ({"enum": ["a"], "dependentSchemas": {}}, "dependentSchemas"), ({"if": {"minLength": 3}, "then": {}}, "if"),
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


FORMATS = {
    "date": datetime.date.fromisoformat, "uuid": lambda text: uuid.UUID(text) if len(text) == 36 else 1 / 0, "ipv4": ipaddress.IPv4Address, "ipv6": ipaddress.IPv6Address,
    "time": lambda text: datetime.time.fromisoformat(shorter(text)).tzinfo or 1 / 0, "date-time": lambda text: datetime.datetime.fromisoformat(shorter(text)).tzinfo or 1 / 0,
    "email": lambda text: re.fullmatch(r"[^@\s.]+(\.[^@\s.]+)*@[a-zA-Z0-9.-]+", text).group(), "uri": lambda text: urllib.parse.urlsplit(text).scheme[0],
    "hostname": lambda text: all(0 < len(label) < 64 and label[0] != "-" != label[-1] for label in text.split(".")) or 1 / 0,
    "duration": lambda text: re.fullmatch(r"P(\d+W|(\d+Y)?(\d+M)?(\d+D)?(T(\d+H)?(\d+M)?(\d+S)?)?)", text)[0][1],
}


def shorter(text):
    """A time with at most six digits after the point, as Python reads it."""
    return re.sub(r"\.(\d{1,6})\d*", lambda m: "." + m[1].ljust(6, "0"), text.replace("Z", "+00:00"))


def has_format(text, name):
    try:
        FORMATS[name](text)
    except (ValueError, ZeroDivisionError, AttributeError, TypeError, IndexError):
        return False
    return True


def distinct(values):
    return len({json.dumps(v, sort_keys=True) for v in values}) == len(values)


def valid_string(value, s):
    return re.search(s.get("pattern", ""), value) and ("format" not in s or s["format"] not in FORMATS or "maxLength" in s or has_format(value, s["format"]))


def valid_array(value, s, root):
    return (not s.get("uniqueItems") or distinct(value)) and ("contains" not in s or sum(valid(v, s["contains"], root) for v in value) >= s.get("minContains", 1))


def valid_object(value, s, root):
    needed = s.get("dependentRequired", {})
    return (s.get("minProperties", 0) <= len(value) <= s.get("maxProperties", len(value)) and all(valid(k, s.get("propertyNames", True), root) for k in value) and
            all(n in value for k in value for n in needed.get(k, ())) and
            all(valid(v, schema, root) for pattern, schema in s.get("patternProperties", {}).items() for k, v in value.items() if re.search(pattern, k)))


def valid_conditions(value, s, root):
    branch = "then" if "if" in s and valid(value, s["if"], root) else "else"
    return ("not" not in s or not valid(value, s["not"], root)) and ("if" not in s or valid(value, s.get(branch, True), root))


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
    checks.append(valid_conditions(value, s, root))
    if number and "multipleOf" in s:
        checks.append(fractions.Fraction(repr(value)) % fractions.Fraction(repr(s["multipleOf"])) == 0)
    if isinstance(value, str):
        checks.append(valid_string(value, s))
        checks.append(s.get("minLength", 0) <= len(value) <= s.get("maxLength", len(value)))
    if isinstance(value, list):
        checks.append(valid_array(value, s, root))
        first = s.get("prefixItems", [])
        checks += [s.get("minItems", 0) <= len(value) <= s.get("maxItems", len(value)), all(valid(v, t, root) for v, t in zip(value, first)),
                   all(valid(v, s.get("items", True), root) for v in value[len(first):])]
    if isinstance(value, dict):
        own, others, patterns = s.get("properties", {}), s.get("additionalProperties", True), s.get("patternProperties", {})
        checks.append(valid_object(value, s, root))
        checks += [all(k in value for k in s.get("required", [])), all(valid(v, own.get(k, others), root) for k, v in value.items()
                                                                       if k in own or not any(re.search(p, k) for p in patterns))]
    return all(checks)


def random_schema(random, depth):
    """Of a type with a few of its keywords."""
    kind = random.choice(["string", "integer", "number", "enum"] + ["array", "object", "object"] * (depth > 0))
    pick = lambda options: dict(random.sample(sorted(options.items()), random.randint(0, min(2, len(options)))))
    if kind == "string":
        return {"type": kind, **pick({"pattern": random.choice(["^a+$", "[0-9]", "^(x|yz)*$", "^[^a-z]{2}$"]), "minLength": random.randint(0, 3), "maxLength": random.randint(2, 5),
                                      "format": random.choice(["date", "ipv4", "uuid"])})}
    if kind in ("integer", "number"):
        return {"type": kind, **pick({"multipleOf": random.choice([2, 3, 10, 0.5, 7]), "minimum": random.randint(-3, 3), "maximum": random.randint(4, 40)})}
    if kind == "enum":
        values = random.sample(["a", "b", 2, True, None], random.randint(1, 4))
        return {"enum": values, **pick({"not": {"const": random.choice(values)}})}
    if kind == "array":
        return {"type": kind, "items": random_schema(random, 0), "maxItems": random.randint(2, 4), **pick({"uniqueItems": True, "minItems": random.randint(0, 2)})}
    names = random.sample("abcd", random.randint(1, 4))
    return {"type": kind, "properties": {n: random_schema(random, depth - 1) for n in names}, "additionalProperties": False,
            **pick({"required": random.sample(names, 1), "minProperties": random.randint(0, 2), "maxProperties": random.randint(1, 3),
                    "propertyNames": {"enum": random.sample("abcd", 3)}, "dependentRequired": {names[0]: [names[-1]]}})}


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

    def test_keywords(self):
        for name, schema in KEYWORDS.items():
            with self.subTest(schema=name):
                answers = self.answers({"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}})
                self.assertTrue(answers or name in ("search", "alternatives", "contains"), "all were cut")
                for text in answers:
                    value = json.loads(text, object_pairs_hook=dict if name == "names" else without_twins)
                    self.assertTrue(valid(value, schema, schema), text)

    def test_random_keywords(self):
        """Schemas of random keywords: refused with their place, or each answer fits."""
        random, kept = Random(7), 0
        for i in range(60 if not ROUNDS else 10):
            schema = random_schema(random, 2)
            with self.subTest(round=i, schema=schema):
                reply = self.chat({"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}, n=3, seed=i, max_tokens=120)
                if reply.status != 200:
                    self.assertEqual((reply.status, reply.json["error"]["param"][:15]), (400, "response_format"), reply.body)
                    continue
                for choice in reply.json["choices"]:
                    if choice["finish_reason"] == "stop":
                        kept += 1
                        self.assertTrue(valid(json.loads(choice["message"]["content"]), schema, schema), choice["message"]["content"])
        self.assertGreater(kept, 60 if not ROUNDS else 5)

    def test_the_validator_itself(self):
        for name, wrong in (("pattern", "abc12"), ("search", "1-"), ("alternatives", "no "), ("length", "abcde"), ("names", {"d": 1}), ("names of an enum", {"a": True}),
                            ("patterns", {"x-a": 1}), ("some properties", {}), ("multiple", [12, 24, 6]), ("cents", 0.07), ("unique", ["a", "a", 1]), ("contains", [3]),
                            ("dependent", {"k": "x"}), ("not a value", "b"), ("not a type", None), ("not with", {"n": 1}), ("if", {"k": "x"}), ("if", {"k": "y", "b": True, "n": 4}),
                            ("if present", {"b": True}), ("two conditions", {"k": "y"}), ("format date", "2023-02-29"), ("format time", "25:00:00Z"), ("format ipv4", "1.2.3"),
                            ("format ipv6", "1:2"), ("format uuid", "x"), ("format email", "a b@c"), ("format duration", "P"), ("format hostname", "-a"), ("format uri", "a b")):
            self.assertFalse(valid(wrong, KEYWORDS[name], KEYWORDS[name]), name)
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
