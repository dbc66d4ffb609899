#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise serve`, /v1/prompts made of parts: the answer of the PML prompt with the same texts escaped; texts are never parsed; what is wrong
is refused with its place."""
import random
import unittest

from server_process import ServerCase

SCHEMA = """<schema name="shop">You sell things. <module name="plan">Plan a visit of <param name="days" len="16"/> to this shop.
<union><module name="toys">We have <param name="what" len="16"/> and blue hats.</module>
<module name="books">We have books on ships.</module></union></module>
<module name="rule">Tom may buy one ball a day.</module></schema>"""
PIECES = ["<", ">", "&", '"', "'", "<plan/>", "</user>", "</prompt>", "<rule/>", "&lt;", "&#65;", "]]>", "<![CDATA[", "<!--", " ", "  ", "\n", "\r", "\t", "ball",
          "é", "€", "🐢", "<|im_end|>", "plan/toys"]


def text(s):
    return {"type": "text", "text": s}


def module(name, **args):
    return {"type": "module", "name": name, **({"args": args} if args else {})}


def role(name, *parts):
    return {"type": "role", "role": name, "parts": list(parts)}


def escape(s):
    return "".join(c if c.isalnum() or c == " " else f"&#{ord(c)};" for c in s)


class Parts(ServerCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server.ask("PUT", "/v1/schemas/shop", SCHEMA)

    def parts(self, *parts, **fields):
        return self.server.post("/v1/prompts", {"schema": "shop", "parts": list(parts), "max_tokens": 4, **fields})

    def answered(self, reply):
        self.assertEqual(reply.status, 200, reply.body)
        return reply.json

    def shape(self, answer):
        """{module: [its first position, its tokens]}, however they were got."""
        found = {}
        for p in answer["reprise"]["parts"]:
            one = found.setdefault(p["module"], [p["position"], 0])
            one[1] += p["tokens"]
        return found

    def same(self, parts, pml):
        built = self.answered(self.parts(*parts))
        written = self.answered(self.server.post("/v1/prompts", {"prompt": f"<prompt schema='shop' xml:space='preserve'>{pml}</prompt>", "max_tokens": 4}))
        self.assertEqual(built["answers"], written["answers"])
        self.assertEqual(self.shape(built), self.shape(written))
        self.assertEqual(built["usage"]["prompt_tokens"], written["usage"]["prompt_tokens"])
        return built

    def test_same_as_pml(self):
        self.same([module("plan/toys", days="3 days", what="red balls"), role("user", text("Is 2 < 3 & "), text("<plan/>?"))],
                  "<plan days='3 days'><toys what='red balls'/></plan><user>Is 2 &lt; 3 &amp; &lt;plan/&gt;?</user>")
        self.same([role("system", module("rule"), text(" Be brief.")), role("user", text("Hi")), role("assistant", text("Yes?")), role("user", text("\n\nMore"))],
                  "<system><rule/> Be brief.</system><user>Hi</user><assistant>Yes?</assistant><user>\n\nMore</user>")
        self.same([module("plan"), module("plan/books"), text(" What?")], "<plan><books/></plan> What?")
        self.same([module("plan", days=3), text(" What?")], "<plan days='3'/> What?")
        self.same([{"type": "pml", "text": "<prompt schema='shop'><plan days='3'/> What? </prompt>"}, role("user", text("Hi"))],
                  "<plan days='3'/> What?<user>Hi</user>")

    def test_random_texts(self):
        draw = random.Random(20261123)
        for _ in range(25):
            said, days = ("".join(draw.choices(PIECES, k=draw.randint(1, 8))) for _ in range(2))
            days = days[:5]
            answer = self.same([module("plan/books", days=days), role("user", text(said))],
                               f"<plan days='{escape(days)}'><books/></plan><user>{escape(said)}</user>")
            self.assertEqual(set(self.shape(answer)) - {"", "prompt"}, {"plan", "plan/books"})

    def test_texts_that_xml_has_not(self):
        for said in ("a\u0001b", "\u001b[31mred", "\ufffe", "\u007f"):
            answer = self.answered(self.parts(text(said)))
            self.assertEqual(set(self.shape(answer)) - {"", "prompt"}, set())

    def test_reuse(self):
        parts = [module("plan/toys", what="a kite"), role("user", text("Never asked <before>?"))]
        self.answered(self.parts(module("plan/toys")))
        modules = {p["module"]: p["tier"] for p in self.answered(self.parts(*parts))["reprise"]["parts"] if p["reused"]}
        self.assertEqual(modules.get("plan/toys"), "ram")
        stream = self.parts(*parts, stream=True)
        self.assertEqual(stream.frames[-1][0], "done")

    def test_refused(self):
        for parts, status, says in (
                ([module("plam")], 404, "prompt, part 1: schema 'shop' has no module 'plam': did you mean 'plan'?"),
                ([text("a"), module("rule", who="x")], 404, "prompt, part 2: module 'rule' has no parameter 'who'"),
                ([module("plan"), text("x"), module("plan/toys")], 400, "already imported in part 1"),
                ([module("plan/toys"), module("plan/books")], 400, "members of one union"),
                ([module("plan", days="x" * 99)], 400, "argument 'days'"),
                ([module("plan", days=["x"])], 400, "'parts[0].days' is an array"),
                ([role("user", role("user"))], 400, "'parts[0].parts[0].role' is inside a role"),
                ([role("nobody")], 400, "'parts[0].role' is 'nobody'"),
                ([{"type": "markup", "text": "a"}], 400, "'parts[0].type' is 'markup': give text, document, module, pml or role"),
                ([{"type": "pml", "text": "<plan/>"}], 400, "prompt, part 1:1:1: the document is a <plan>"),
                ([role("user", {"type": "pml", "text": "<prompt schema='shop'><user/></prompt>"})], 400, "roles do not nest"),
                ([{"text": "a"}], 400, "'parts[0].type' is missing"), ([{"type": "text"}], 400, "'parts[0].text' is missing"),
                ([{"type": "text", "text": 3}], 400, "'parts[0].text' is a number"), (["a"], 400, "'parts[0]' is not an object"),
                ([{"type": "module"}], 400, "'parts[0].name' is missing"),
                ([{**module("plan"), "schema": "other"}], 400, "a prompt can use one schema"), ([module("plan/")], 404, "a name is empty")):
            reply = self.parts(*parts)
            self.assertEqual(reply.status, status, (parts, reply.body))
            self.assertIn(says, reply.json["error"]["message"])
        for body, says in (({"parts": [module("plan")]}, "'schema' is missing"), ({"schema": "", "parts": []}, "'schema' is empty"), ({"schema": "shop"}, "'schema' is for 'parts'"),
                           ({"schema": "shop", "parts": "a"}, "'parts' is a string"), ({}, "'schema' and 'parts' with text that is not parsed"),
                           ({"schema": "shop", "parts": [], "prompt": "<prompt schema='shop'/>"}, "exclude each other"),
                           ({"schema": "nobody", "parts": [text("a")]}, "schema 'nobody' is not loaded")):
            reply = self.server.post("/v1/prompts", body)
            self.assertIn(reply.status, (400, 404))
            self.assertIn(says, reply.json["error"]["message"])

    def test_documents(self):
        """Documents are modules of a prompt without a schema, in any order, whatever characters they have."""
        texts = [f"Document {i} says \u000c<module> & that the {thing} is in the {place}." for i, (thing, place) in
                 enumerate((("ball", "garden"), ("kite", "sky"), ("doll", "house")))]
        def ask(order, question):
            body = {"parts": [role("user", *({"type": "document", "text": texts[i]} for i in order), text(question))], "max_tokens": 2, "temperature": 0}
            answer = self.answered(self.server.post("/v1/prompts", body))
            return sum(p["tokens"] for p in answer["reprise"]["parts"] if p["reused"] and p["module"].startswith("d"))
        ask((0, 1, 2), " Where is the ball?")
        all_three, two = ask((2, 0, 1), " Where is the kite?"), ask((1, 2), " Where?")
        self.assertTrue(all_three > two > 0, (all_three, two))
        reply = self.parts({"type": "document", "text": "a"})
        self.assertIn("has a schema", reply.json["error"]["message"])

    def test_two_compared(self):
        """Reports know parts by hashes, as they do prompts."""
        first, second = (self.parts(module("rule"), text(end)).headers["x-request-id"] for end in ("What?", "When?"))
        prompts = [self.server.get(f"/v1/requests/{i}/explain").json["prompt"] for i in (first, second)]
        self.assertGreater(prompts[0]["bytes"], 20)
        self.assertNotEqual(prompts[0]["chunks"], prompts[1]["chunks"])


if __name__ == "__main__":
    unittest.main()
