#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A file of two keys without `tenant=`: neither user learns anything of the other's text, and only a key with a right is an operator."""
import os
import tempfile
import unittest

from server_process import Server, bearer, key_line

ONE, TWO, SHARING = "key-of-user-one-012345", "key-of-user-two-012345", "key-of-sharing-0123456"
SECRET = "My account is 48213377 and my doctor is Ines Moreira, Rua Direita 14, Setubal. She told me on Monday that the second test was clear."
SHARED = "<schema name='common'><module name='m'>What everybody may use.</module></schema>"


def cached(reply):
    return reply.json["usage"]["prompt_tokens_details"]["cached_tokens"]


class TwoKeys(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.file, cls.store = os.path.join(cls.folder.name, "keys"), os.path.join(cls.folder.name, "store")
        with open(cls.file, "w", encoding="utf-8") as f:
            f.write(key_line(ONE) + key_line(TWO, "rights=request,schemas") + key_line(SHARING, "rights=request,schemas,share"))
        cls.server = cls.start()
        cls.addClassCleanup(lambda: cls.server.stop())

    @classmethod
    def start(cls):
        return Server("--api-keys", cls.file, "--store", cls.store, "--write", "through").wait_ready()

    def chat(self, key, text, **fields):
        reply = self.server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": text}], "max_tokens": 1, **fields},
                                 headers=bearer(key))
        self.assertEqual(reply.status, 200, reply.body)
        return reply

    def test_schemes(self):
        """The scheme is matched without case, and a space or more follows it (RFC 9110, 11.1 and 11.4)."""
        for scheme, status in (("Bearer ", 200), ("bearer ", 200), ("BEARER   ", 200), ("Basic ", 401), ("Bearer", 401), ("Bearerx ", 401), ("", 401)):
            self.assertEqual(self.server.get("/v1/models", headers={"Authorization": scheme + ONE}).status, status, scheme)

    def test_nothing_of_the_other_user(self):
        self.chat(ONE, SECRET)
        probe = "My account is "
        self.chat(TWO, "Something of my own")  # what the chat format begins with is user two's own from here on
        for _ in range(6):  # the recipe: each probe goes on with what the last one was told
            reply = self.chat(TWO, probe + "?")
            report = reply.json["reprise"]
            known = report["mismatch"]["cached"]
            self.assertFalse(known and known in SECRET[len(probe):], known)
            probe += known
            self.assertNotIn("48213377", reply.body.decode())
        self.assertNotIn(SECRET[:20], probe)
        # the counts are those of a text that nobody sent
        told, fresh = self.chat(TWO, SECRET), self.chat(TWO, SECRET[::-1])
        self.assertLessEqual(cached(told), cached(self.chat(TWO, "My account is no longer mine")))
        self.assertGreater(cached(self.chat(ONE, SECRET)), cached(told))
        self.assertGreaterEqual(told.json["reprise"]["fresh_tokens"], fresh.json["reprise"]["fresh_tokens"] // 4)
        listed = self.server.get("/v1/requests", headers=bearer(TWO)).body.decode()
        self.assertNotIn(self.chat(ONE, SECRET).headers["x-request-id"], listed)

    def test_the_tenant_of_a_key_outlives_the_server(self):
        text = "A text that user one reads again after the restart of the server"
        self.chat(ONE, text)
        before = cached(self.chat(ONE, text))
        self.server.stop()
        type(self).server = self.start()
        self.assertEqual(cached(self.chat(ONE, text)), before)
        self.assertLess(cached(self.chat(TWO, text)), before)

    def test_the_operator_is_a_right(self):
        for key in (ONE, TWO, SHARING):
            for path in ("/metrics", "/slots", "/v1/cache", "/v1/cache/entries", "/v1/audit"):
                self.assertEqual(self.server.get(path, headers=bearer(key)).status, 403, path)

    def test_sharing_is_a_right(self):
        def put(key, query=""):
            return self.server.ask("PUT", "/v1/schemas/common" + query, SHARED, headers={**bearer(key), "Content-Type": "application/xml"})

        prompt = {"prompt": "<prompt schema='common'><m/></prompt>", "max_tokens": 1}
        self.assertEqual(put(TWO).status, 200)  # user two's own
        self.assertEqual(self.server.post("/v1/prompts", prompt, headers=bearer(ONE)).status, 404)
        reply = put(TWO, "?shared=true")
        self.assertEqual((reply.status, "share" in reply.json["error"]["message"]), (403, True))
        self.assertEqual(put(SHARING, "?shared=true").status, 200)
        self.assertEqual(self.server.post("/v1/prompts", prompt, headers=bearer(ONE)).status, 200)
        self.assertEqual(self.server.get("/v1/schemas?shared=true", headers=bearer(SHARING)).json["data"], ["common"])
        self.assertEqual(self.server.get("/v1/schemas", headers=bearer(SHARING)).json["data"], [])
        for method, path in (("GET", "/v1/schemas?shared=true"), ("GET", "/v1/schemas/common?shared=true"),
                             ("DELETE", "/v1/schemas/common?shared=true")):
            self.assertEqual(self.server.ask(method, path, headers=bearer(TWO)).status, 403, path)
        self.assertEqual(self.server.get("/v1/schemas/common?shared=true", headers=bearer(SHARING)).body.decode(), SHARED)
        self.assertEqual(self.server.ask("DELETE", "/v1/schemas/common?shared=true", headers=bearer(SHARING)).status, 200)
        self.assertEqual(self.server.post("/v1/prompts", prompt, headers=bearer(ONE)).status, 404)


if __name__ == "__main__":
    unittest.main()
