#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise serve`, the page at /: each of its files, with its type, its tag and the policy that keeps it to itself. What it does in a
browser is tested by `make test-page`."""
import os
import re
import tempfile
import unittest

from server_process import SOURCE, Server, ServerCase
from test_schemas import ANN, key_line

WEB = os.path.join(SOURCE, "web")
TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
         ".svg": "image/svg+xml"}
FILES = sorted(name for name in os.listdir(WEB) if os.path.splitext(name)[1] in TYPES)


def contents(name):
    with open(os.path.join(WEB, name), "rb") as f:
        return f.read()


class Page(ServerCase):
    def check(self, path, name):
        reply = self.server.get(path)
        self.assertEqual((reply.status, reply.body), (200, contents(name)))
        self.assertEqual(reply.headers["Content-Type"], TYPES[os.path.splitext(name)[1]])
        self.assertEqual(reply.headers["Cache-Control"], "no-cache")
        self.assertEqual(reply.headers["X-Content-Type-Options"], "nosniff")
        policy = reply.headers["Content-Security-Policy"].split("; ")
        self.assertIn("default-src 'self'", policy)
        self.assertNotIn("unsafe", reply.headers["Content-Security-Policy"])
        return reply

    def test_files(self):
        self.check("/", "index.html")
        for name in FILES:
            with self.subTest(name=name):
                self.check(f"/web/{name}", name)

    def test_tags(self):
        tags = {}
        for name in FILES:
            tag = self.server.get(f"/web/{name}").headers["ETag"]
            self.assertRegex(tag, r'^"[0-9a-f]{16}"$')
            tags[tag] = name
            for known in (tag, f'"0", {tag}', f"W/{tag}", "*"):
                reply = self.server.get(f"/web/{name}", headers={"If-None-Match": known})
                self.assertEqual((reply.status, reply.body, reply.headers["ETag"]), (304, b"", tag))
                self.assertIn("Content-Security-Policy", reply.headers)
            self.assertEqual(self.server.get(f"/web/{name}", headers={"If-None-Match": '"0"'}).status, 200)
        self.assertEqual(len(tags), len(FILES))

    def test_head(self):
        reply = self.server.ask("HEAD", "/")
        self.assertEqual((reply.status, reply.body, reply.headers["Content-Length"]), (200, b"", str(len(contents("index.html")))))
        self.assertEqual(self.server.ask("POST", "/", "x").status, 405)

    def test_no_such_file(self):
        for path in ("/web/", "/web/none.js", "/web/README.md", "/web/../web/page.js", "/web/..%2fREADME.md", "/web/a/b", "/index.html"):
            with self.subTest(path=path):
                reply = self.server.get(path)
                self.assertEqual((reply.status, reply.json["error"]["code"]), (404, "not_found"))
                self.assertEqual(reply.headers["Cache-Control"], "no-store")

    def test_nothing_from_elsewhere(self):
        """What the files name by src, href, url(), import or as an address lies on this server."""
        for name in FILES:
            text = contents(name).decode().replace("http://www.w3.org/2000/svg", "")
            self.assertNotRegex(text, r"https?://|@import|['\"(]//", name)
            self.assertNotRegex(text, r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", name)
            for other in re.findall(r"(?:from|src=|href=)\s*[\"'](?:\./|/web/)([^\"'#]+)", text):
                self.assertIn(other, FILES, name)

    def test_open_where_keys_are_needed(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "keys")
            with open(path, "w", encoding="utf-8") as f:
                f.write(key_line(ANN))
            server = Server("--log", "off", "--api-keys", path).wait_ready()
            self.addCleanup(server.stop)
            self.assertEqual((server.get("/").status, server.get("/web/page.js").status, server.get("/v1/models").status), (200, 200, 401))

    def test_without(self):
        server = Server("--log", "off", "--no-page").wait_ready()
        self.addCleanup(server.stop)
        for path in ("/", "/web/page.js"):
            reply = server.get(path)
            self.assertEqual((reply.status, reply.json["error"]["code"]), (404, "not_found"))
            self.assertNotIn("ETag", reply.headers)
        self.assertEqual(server.get("/v1/models").status, 200)


if __name__ == "__main__":
    unittest.main()
