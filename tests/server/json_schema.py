# SPDX-License-Identifier: Apache-2.0
"""The part of JSON Schema that src/server/admin/openapi.json and the schemas of tools/check_deploy are written in, as a check of values. An unknown
keyword is an error."""
import re

ANNOTATIONS = {"description", "default", "example", "title", "$schema", "definitions"}
TYPES = {
    "null": lambda v: v is None,
    "boolean": lambda v: isinstance(v, bool),
    "integer": lambda v: isinstance(v, (int, float)) and not isinstance(v, bool) and v == int(v),
    "number": lambda v: isinstance(v, (int, float)) and not isinstance(v, bool),
    "string": lambda v: isinstance(v, str),
    "array": lambda v: isinstance(v, list),
    "object": lambda v: isinstance(v, dict),
}


def same(a, b):
    """JSON's equality: true is not 1."""
    return a == b and isinstance(a, bool) == isinstance(b, bool)


class Checker:
    def __init__(self, document):
        self.document = document

    def resolve(self, node):
        """What a {"$ref": "#/..."} points to, or the node itself."""
        while "$ref" in node:
            found = self.document
            for name in node["$ref"].removeprefix("#/").split("/"):
                found = found[name.replace("~1", "/")]
            node = found
        return node

    def errors(self, schema, value, where="$"):
        """What is wrong with a value, as a list of lines."""
        schema, found = self.resolve(schema), []
        for keyword, wanted in schema.items():
            if keyword in ANNOTATIONS:
                continue
            check = getattr(self, "check_" + keyword, None)
            if check is None:
                raise AssertionError(f"{where}: the keyword '{keyword}' is not known to json_schema.py")
            if keyword == "additionalProperties" and isinstance(value, dict):
                listed = schema.get("properties", {})
                found += check(wanted, {name: v for name, v in value.items() if name not in listed}, where)
            else:
                found += check(wanted, value, where)
        return found

    def check_type(self, wanted, value, where):
        names = [wanted] if isinstance(wanted, str) else wanted
        return [] if any(TYPES[name](value) for name in names) else [f"{where}: {value!r} is no {' or '.join(names)}"]

    def check_const(self, wanted, value, where):
        return [] if same(wanted, value) else [f"{where}: {value!r} is not {wanted!r}"]

    def check_enum(self, wanted, value, where):
        return [] if any(same(w, value) for w in wanted) else [f"{where}: {value!r} is none of {wanted!r}"]

    def check_minimum(self, wanted, value, where):
        return [f"{where}: {value} is below {wanted}"] if TYPES["number"](value) and value < wanted else []

    def check_maximum(self, wanted, value, where):
        return [f"{where}: {value} is above {wanted}"] if TYPES["number"](value) and value > wanted else []

    def check_minLength(self, wanted, value, where):
        return [f"{where}: has {len(value)} characters"] if isinstance(value, str) and len(value) < wanted else []

    def check_maxLength(self, wanted, value, where):
        return [f"{where}: has {len(value)} characters"] if isinstance(value, str) and len(value) > wanted else []

    def check_pattern(self, wanted, value, where):
        return [f"{where}: {value!r} does not match {wanted}"] if isinstance(value, str) and not re.search(wanted, value) else []

    def check_minItems(self, wanted, value, where):
        return [f"{where}: has {len(value)} entries"] if isinstance(value, list) and len(value) < wanted else []

    def check_maxItems(self, wanted, value, where):
        return [f"{where}: has {len(value)} entries"] if isinstance(value, list) and len(value) > wanted else []

    def check_minProperties(self, wanted, value, where):
        return [f"{where}: fewer than {wanted} fields"] if isinstance(value, dict) and len(value) < wanted else []

    def check_maxProperties(self, wanted, value, where):
        return [f"{where}: more than {wanted} fields"] if isinstance(value, dict) and len(value) > wanted else []

    def check_not(self, wanted, value, where):
        return [f"{where}: {value!r} is what it must not be"] if not self.errors(wanted, value, where) else []

    def check_items(self, wanted, value, where):
        entries = enumerate(value) if isinstance(value, list) else ()
        return [line for i, entry in entries for line in self.errors(wanted, entry, f"{where}[{i}]")]

    def check_required(self, wanted, value, where):
        return [f"{where}: has no '{name}'" for name in wanted if isinstance(value, dict) and name not in value]

    def check_properties(self, wanted, value, where):
        names = [name for name in wanted if isinstance(value, dict) and name in value]
        return [line for name in names for line in self.errors(wanted[name], value[name], f"{where}.{name}")]

    def check_additionalProperties(self, wanted, value, where):
        values = value.items() if isinstance(value, dict) else ()
        if wanted is False:
            return [f"{where}: there is no field '{name}'" for name, _ in values]
        return [line for name, v in values for line in self.errors(wanted, v, f"{where}.{name}")]

    def check_allOf(self, wanted, value, where):
        return [line for schema in wanted for line in self.errors(schema, value, where)]

    def check_anyOf(self, wanted, value, where):
        tries = [self.errors(schema, value, where) for schema in wanted]
        return [] if [] in tries else [f"{where}: none of: " + "; ".join(lines[0] for lines in tries)]
