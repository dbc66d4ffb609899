#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise serve`, /openapi.json: it has the routes of the server and no others, its examples do what they say, and replies are as it
describes them."""
import json
import os
import re
import subprocess
import unittest

from json_schema import Checker
from server_process import PROGRAM, SOURCE, ServerCase

METHODS = ("put", "get", "post", "patch", "delete")
# What one operation makes, another is asked for: the path, and the value of its parameter.
MADE = {
    "createChatCompletion": ("/v1/requests/{id}/explain", lambda reply: reply.headers["x-request-id"]),
    "createResponse": ("/v1/responses/{id}", lambda reply: reply.json["id"]),
    "listCacheEntries": ("/v1/cache/entries/{key}",
                         lambda reply: next(e["key"] for e in reply.json["data"] if e["label"] == "cities/plan/miami")),
    "createInteraction": ("/v1beta/interactions/{id}", lambda reply: reply.json["id"]),
    "createCachedContent": ("/v1beta/cachedContents/{name}", lambda reply: reply.json["name"].split("/")[1]),
}
LATER = {"/v1/responses/{id}", "/v1beta/interactions/{id}", "/v1beta/interactions/{id}/cancel", "/v1/requests/{id}/explain", "/v1/cache/entries", "/v1/cache/entries/{key}"}


def plain(path):
    """A path as routes.c writes it: '/v1beta/models/{model}:countTokens' is '/v1beta/models/{}'."""
    return re.sub(r"\{[a-z_]+\}(:[A-Za-z]+)?", "{}", path)


class OpenAPI(ServerCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        reply = cls.server.get("/openapi.json")
        assert (reply.status, reply.headers["Content-Type"]) == (200, "application/json"), reply.body
        cls.document = reply.json
        cls.checker = Checker(cls.document)

    def operations(self):
        """(path, method, operation), in the order in which their examples can be tried."""
        found = [(path, method, item[method]) for path, item in self.document["paths"].items() for method in METHODS if method in item]
        return sorted(found, key=lambda one: (one[1] == "delete", one[0] in LATER, one[1] != "put"))

    def parameters(self, path, operation):
        own = self.document["paths"][path].get("parameters", []) + operation.get("parameters", [])
        return [self.checker.resolve(p) for p in own]

    def url(self, path, operation, known=None):
        """The path with the examples of its parameters, or with what is known of them."""
        query, template = [], path
        for p in self.parameters(path, operation):
            if p["in"] == "path":
                path = path.replace("{%s}" % p["name"], (known or {}).get(template, p["example"]))
            elif p.get("required"):
                query.append(f"{p['name']}={p['example']}")
        return path + ("?" + "&".join(query) if query else "")

    def check(self, operation, reply, title):
        """Is the reply one that the operation describes?"""
        self.assertIn(str(reply.status), operation["responses"], f"{title}: {reply.body[:300]}")
        kind = reply.headers["Content-Type"].split(";")[0]
        content = self.checker.resolve(operation["responses"][str(reply.status)])["content"]
        self.assertIn(kind, content, title)
        if kind == "application/json":
            values = [reply.json]
        elif kind == "text/event-stream":
            values = [json.loads(data) for _, data in reply.frames if data != "[DONE]"]
            self.assertGreater(len(values), 0, title)
        else:
            values = [reply.body.decode()]
        for value in values:
            self.assertEqual(self.checker.errors(content[kind]["schema"], value), [], title)

    # ---- the document itself

    def test_version(self):
        said = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True).stdout
        self.assertEqual(said.split()[1], self.document["info"]["version"])

    def test_references(self):
        def walk(node):
            if isinstance(node, dict):
                if "$ref" in node:
                    self.checker.resolve(node)
                for child in node.values():
                    walk(child)
            elif isinstance(node, list):
                for child in node:
                    walk(child)

        walk(self.document)
        text = json.dumps(self.document["paths"]) + json.dumps(self.document["components"])
        for kind in ("schemas", "responses", "parameters"):
            for name in self.document["components"][kind]:
                self.assertIn(f'"#/components/{kind}/{name}"', text, "nothing refers to it")

    def test_operations(self):
        ids = [operation["operationId"] for _, _, operation in self.operations()]
        self.assertEqual(len(ids), len(set(ids)))
        tags = {tag["name"] for tag in self.document["tags"]}
        for path, method, operation in self.operations():
            with self.subTest(path=path, method=method):
                self.assertTrue(set(operation["tags"]) <= tags)
                self.assertTrue(operation["summary"].endswith("." if "?" not in operation["summary"] else "?"))
                named = {p["name"] for p in self.parameters(path, operation) if p["in"] == "path"}
                self.assertEqual(named, set(re.findall(r"\{([a-z_]+)\}", path)))

    # ---- the routes

    def test_routes(self):
        with open(os.path.join(SOURCE, "src", "server", "routes.c"), encoding="utf-8") as f:
            table = f.read()
        routes = set(re.findall(r'^    \{"([A-Z]+)", "([^"]+)", SERVER_', table, re.M))
        self.assertGreater(len(routes), 20)
        documented = {(method.upper(), plain(path)) for path, method, _ in self.operations()}
        self.assertEqual(documented - routes, set(), "src/server/admin/openapi.json has what routes.c has not")
        self.assertEqual(routes - documented, set(), "routes.c has what src/server/admin/openapi.json has not: describe it there")

    def test_rights(self):
        """What is open to everybody says so."""
        with open(os.path.join(SOURCE, "src", "server", "routes.c"), encoding="utf-8") as f:
            opened = set(re.findall(r'^    \{"([A-Z]+)", "([^"]+)", SERVER_OPEN', f.read(), re.M))
        documented = {(method.upper(), plain(path)) for path, method, o in self.operations() if o.get("security") == []}
        self.assertEqual(documented, opened)

    def versions(self, path):
        """The paths under which the operations of this one are served: Gemini's under each of its versions."""
        tag = next(tag for tag in self.document["tags"] if tag["name"] == "Gemini")
        first = tag["x-versions"][0]
        return [version + path[len(first):] for version in tag["x-versions"]] if path.startswith(first + "/") else [path]

    def test_versions(self):
        paths = [path for path in self.document["paths"] if len(self.versions(path)) > 1]
        self.assertGreater(len(paths), 8)
        for path in paths:
            operation = next(o for p, _, o in self.operations() if p == path)
            self.assertEqual(operation["tags"], ["Gemini"])
            allowed = [self.server.ask("PUT", place, headers={"x-goog-api-key": "none"}) for place in self.versions(self.url(path, operation).split("?")[0])]
            self.assertEqual([reply.status for reply in allowed], [405] * 4, path)
            self.assertEqual([reply.json["error"]["status"] for reply in allowed], ["INVALID_ARGUMENT"] * 4)

    def test_other_methods(self):
        for path in self.document["paths"]:
            there = {m for p, m, _ in self.operations() if plain(path) in map(plain, self.versions(p))}
            operation = next(o for p, _, o in self.operations() if p == path)
            for method in sorted(set(METHODS) - there):
                reply = self.server.ask(method.upper(), self.url(path, operation).split("?")[0])
                self.assertEqual(reply.status, 405, (method, path))
                self.assertEqual({m.lower() for m in reply.headers["Allow"].split(", ")}, there)

    # ---- what they do

    def ask(self, path, method, operation, body=None, kind=None, known=None):
        headers = {"Content-Type": kind} if kind else {}
        return self.server.ask(method.upper(), self.url(path, operation, known), body, headers=headers)

    def test_examples(self):
        known, n = {}, 0
        for path, method, operation in self.operations():
            contents = operation.get("requestBody", {}).get("content", {None: {}})
            for kind, content in contents.items():
                examples = {**content.get("examples", {}), **content.get("x-refused", {})}  # those that the schema does not allow
                self.assertTrue(examples or kind is None, f"{method} {path}: give an example")
                for name, example in examples.items() or [("", {"x-status": operation.get("x-status", 200)})]:
                    title = f"{method} {path}: {name}"
                    reply = self.ask(path, method, operation, example.get("value"), kind, known)
                    with self.subTest(title):
                        self.assertEqual(reply.status, example["x-status"], f"{title}: {reply.body[:300]}")
                        self.check(operation, reply, title)
                        if reply.status == 200 and kind:
                            self.assertEqual(self.checker.errors(content["schema"], example["value"]), [], title)
                            streams = isinstance(example["value"], dict) and example["value"].get("stream")
                            if streams:
                                self.assertEqual(reply.headers["Content-Type"], "text/event-stream")
                    if reply.status == 200 and operation["operationId"] in MADE:
                        template, what = MADE[operation["operationId"]]
                        if template not in known:
                            known[template] = what(reply)
                    n += 1
        self.assertGreater(n, 40)

    def test_events_of_schemas(self):
        operation = self.document["paths"]["/v1/schemas/{name}"]["put"]
        reply = self.server.ask("PUT", "/v1/schemas/brief", "<schema name='brief'><module name='m'>One two three.</module></schema>",
                                headers={"Accept": "text/event-stream"})
        self.check(operation, reply, "events")
        self.assertEqual(reply.headers["Content-Type"], "text/event-stream")

    def test_nothing_is_known_of_it(self):
        """A name that is not there is 404 in the dialect of its route."""
        for path, method, operation in self.operations():
            parameters = [p["name"] for p in self.parameters(path, operation) if p["in"] == "path"]
            if not parameters or "404" not in operation["responses"] or method == "put" or ":" in path:  # a model of any name answers
                continue
            examples = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("examples", {})
            body = next(iter(examples.values()), {}).get("value")
            url = self.url(path, operation)
            for p in self.parameters(path, operation):
                if p["in"] == "path":
                    url = url.replace(p["example"], "nobody")
            with self.subTest(f"{method} {path}"):
                reply = self.server.ask(method.upper(), url, body)
                self.assertEqual(reply.status, 404, reply.body[:300])
                self.check(operation, reply, url)


if __name__ == "__main__":
    unittest.main()
