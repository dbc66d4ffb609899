#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`serve --reuse modular` and keys with reuse=modular: requests of unchanged clients reuse documents, definitions and system blocks in any order."""
import subprocess
import tempfile
import unittest

from server_process import PROGRAM, Server

DOCUMENTS = [" ".join(f"Rule {i}: {name} may take {i} {colour} balls from the box." for i in range(20))
             for name, colour in (("Tom", "red"), ("Ann", "blue"), ("Ben", "green"))]


def openai(order, question, **more):
    parts = [{"type": "text", "text": DOCUMENTS[i]} for i in order] + [{"type": "text", "text": question}]
    return {"messages": [{"role": "user", "content": parts}], "max_tokens": 2, **more}


def anthropic(order, question):
    return {"model": "default", "max_tokens": 2, "system": [{"type": "text", "text": DOCUMENTS[i]} for i in order],
            "messages": [{"role": "user", "content": question}]}


def modules(reply):
    return [part for part in reply.json["reprise"]["parts"] if part["module"].startswith("d")]


class Modular(unittest.TestCase):
    def test_of_the_server(self):
        server = Server("--reuse", "modular").wait_ready()
        try:
            self.assertEqual(len(modules(server.post("/v1/chat/completions", openai((0, 1, 2), "Who?")))), 3)
            reply = server.post("/v1/chat/completions", openai((2, 0, 1), "Who may take some?"))
            self.assertTrue(all(part["reused"] for part in modules(reply)))
            usage = reply.json["usage"]
            self.assertGreater(usage["prompt_tokens_details"]["cached_tokens"], 0.8 * usage["prompt_tokens"])
            reply = server.post("/v1/messages", anthropic((1, 2), "Who may take some?"))
            self.assertEqual([part["reused"] for part in modules(reply)], [True, True])
            self.assertEqual(modules(server.post("/v1/chat/completions", openai((0, 1), "Who?", reuse="on"))), [])
            self.assertEqual(len(modules(server.post("/v1/chat/completions", openai((0,), "Who?", reuse="modular")))), 1)
            text = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Tom?"}], "max_tokens": 2})
            self.assertEqual((text.status, modules(text)), (200, []))
        finally:
            server.stop()

    def test_text_before_changes(self):
        server = Server("--reuse", "modular").wait_ready()
        self.addCleanup(server.stop)
        system = "You are careful. " + " ".join(f"Rule {i}: Tom may take {i} red balls." for i in range(12))

        def ask(names, question):
            tools = [{"type": "function", "function": {"name": name, "description": f"Use this to {name} what people want to {name}. " * 8,
                                                       "parameters": {"type": "object", "properties": {"x": {"type": "string"}}}}} for name in names]
            messages = [{"role": "system", "content": system}, {"role": "user", "content": question}]
            reply = server.post("/v1/chat/completions", {"messages": messages, "tools": tools, "max_tokens": 2})
            self.assertEqual(reply.status, 200, reply.body)
            return reply.json["reprise"]["parts"]

        known = ["read", "write", "list", "find"]
        self.assertEqual([part["reused"] for part in ask(known, "Who?")[-9:]], [False] * 9)  # texts around four tools
        for names, same in ((["read", "write", "find", "list"], 2), (["write", "read", "list", "find"], 0), (["read", "write", "list"], 3),
                            (["read", "list", "find"], 1), (known + ["count"], 4)):
            parts = ask(names, "Who?")
            places = [i for i, part in enumerate(parts) if part["module"].startswith("d")]
            self.assertEqual(len(places), len(names))
            for name, i in zip(names, places):
                self.assertEqual(parts[i]["reused"], name in known, names)
            changed = places[same] if same < len(places) else places[-1] + 1
            self.assertTrue(all(part["reused"] for part in parts[:changed]), (names, parts))  # the system text and all before the change
        parts = ask(known, "Who may take some?")  # another question: the last text is computed, as far as it differs
        self.assertTrue(all(part["reused"] for part in parts[:-1]), parts)

    def test_text_before_documents(self):
        server = Server("--reuse", "modular").wait_ready()
        self.addCleanup(server.stop)

        def ask(order, question, **more):
            request = openai(order, question, **more)
            request["messages"].insert(0, {"role": "system", "content": "You are careful. " + " ".join(f"Tom takes {i} balls." for i in range(20))})
            return server.post("/v1/chat/completions", request).json["reprise"]["parts"]

        self.assertFalse(any(part["reused"] for part in ask((0, 1), "Who?")))
        for order, new in (((0, 1), []), ((1, 0), []), ((2, 0), [2]), ((1,), [])):
            parts = ask(order, f"Who may take them, {order}?")
            missed = [part["module"][0] for part in parts if not part["reused"]]
            self.assertEqual(missed, ["d"] * len(new) + ["p"], (order, parts))  # new documents and the question
        before = sum(part["tokens"] for part in parts[:[part["module"][0:1] for part in parts].index("d")])
        plain = ask((0, 1), "Who?", reuse="on")  # no modules: the text before them is its prefix
        self.assertEqual((plain[0]["reused"], plain[0]["tokens"]), (True, before), plain)
        fresh = Server("--reuse", "modular").wait_ready()
        self.addCleanup(fresh.stop)
        server = fresh
        ask((0, 1), "Who?", reuse="on")
        self.assertEqual([part["reused"] for part in ask((1, 0), "Who?") if part["module"][0:1] != "d"][:2], [True, True])

    def test_of_a_key(self):
        keys = {"k" * 20: "reuse=modular", "l" * 20: ""}
        with tempfile.NamedTemporaryFile("w", suffix=".keys") as f:
            for key, words in keys.items():
                hashed = subprocess.run([PROGRAM, "serve", "--hash-key"], input=key, capture_output=True, text=True, check=True).stdout.strip()
                f.write(f"{hashed} {words}\n")
            f.flush()
            server = Server("--api-keys", f.name).wait_ready()
            try:
                for key, words in keys.items():
                    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
                    reply = server.post("/v1/chat/completions", openai((0, 1), "Who?"), headers=headers)
                    self.assertEqual((reply.status, len(modules(reply))), (200, 2 if words else 0))
            finally:
                server.stop()

    def test_split(self):
        server = Server("--reuse", "modular", "--split-documents", r"^### Rules \d+\n|^Question: ").wait_ready()
        plain = Server("--reuse", "modular").wait_ready()
        self.addCleanup(server.stop)
        self.addCleanup(plain.stop)

        def text(order, question):
            return "".join(f"### Rules {n}\n{DOCUMENTS[i]}\n" for n, i in enumerate(order)) + f"Question: {question}"

        def ask(server, content, **more):
            reply = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": content}], "max_tokens": 2, **more})
            self.assertEqual(reply.status, 200, reply.body)
            return reply
        first = ask(server, text((0, 1, 2), "Who?"))
        self.assertEqual(([part["reused"] for part in modules(first)], first.json["reprise"]["split_parts"]), ([False] * 3, 4))
        again = ask(server, text((2, 0, 1), "Who may take some?"))
        self.assertEqual([part["reused"] for part in modules(again)], [True] * 3)  # whatever their numbers
        usage = again.json["usage"]
        self.assertGreater(usage["prompt_tokens_details"]["cached_tokens"], 0.8 * usage["prompt_tokens"])
        # the text is that of the message: tokens differ where a document begins or ends at most
        whole = ask(plain, text((2, 0, 1), "Who may take some?"))
        self.assertEqual(modules(whole), [])
        self.assertLessEqual(abs(whole.json["usage"]["prompt_tokens"] - usage["prompt_tokens"]), 8)
        shown = subprocess.run([PROGRAM, "explain", "--url", server.addresses[0], again.json["reprise"]["request"]], capture_output=True, text=True, check=True)
        self.assertIn("split        4 parts between separators", shown.stdout)
        # in a text part, in a system message, beside parts of the client; not in an answer, not without a separator, not with reuse on
        parts = [{"type": "text", "text": text((0, 1), "")[:-len("Question: ")]}, {"type": "text", "text": "Who?"}]
        self.assertEqual([part["reused"] for part in modules(ask(server, parts))], [True, True])
        self.assertEqual(len(modules(ask(server, text((0, 1), "Who?"), reuse="on"))), 0)
        unsplit = ask(server, DOCUMENTS[0] + " Who?")
        self.assertEqual((modules(unsplit), unsplit.json["reprise"]["split_parts"]), ([], 0))
        messages = [{"role": "system", "content": text((1, 2), "")[:-len("Question: ")]}, {"role": "user", "content": "Who?"},
                    {"role": "assistant", "content": text((0,), "x")}, {"role": "user", "content": "And?"}]
        reply = server.post("/v1/chat/completions", {"messages": messages, "max_tokens": 2})
        self.assertEqual(([part["reused"] for part in modules(reply)], reply.json["reprise"]["split_parts"]), ([True, True], 2))
        messages = server.post("/v1/messages", {"model": "default", "max_tokens": 2, "messages": [{"role": "user", "content": text((0, 2), "Who?")}]})
        self.assertEqual([part["reused"] for part in modules(messages)], [True, True])

    def test_split_beside_moved_text(self):
        """The environment of an agent moves to the end of the system message, and definitions of tools come before it: it is part of no document."""
        server = Server("--reuse", "modular", "--split-documents", r"\n\n", "--chat-format", "chatml").wait_ready()
        self.addCleanup(server.stop)
        environment = "<env>\nWorking directory: /home/user/project\nIs directory a git repo: yes\nPlatform: linux\nToday's date: 2026-11-29\n" \
                      "OS Version: Linux 6.1.0 with a name that is long\n</env>"
        tools = [{"type": "function", "function": {"name": "look", "description": DOCUMENTS[1], "parameters": {"type": "object", "properties": {}}}}]
        for text in (f"Intro.\n\n{DOCUMENTS[0]}\n{environment}\nmore", f"Intro.\n\n{DOCUMENTS[0]}\n\n{environment}\nmore"):
            messages = [{"role": "system", "content": text}, {"role": "user", "content": "Who?"}]
            reply = server.post("/v1/chat/completions", {"messages": messages, "tools": tools, "max_tokens": 2})
            self.assertEqual(reply.status, 200, reply.body)

    def test_split_limits(self):
        for regex, line in (("(", "byte 2 of '('"), ("a*", "'a*' matches the empty text"), ("x" * 5000, "more than 4096 bytes")):
            done = subprocess.run([PROGRAM, "serve", "-m", "none.gguf", "--port", "0", "--split-documents", regex], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 2)
            self.assertIn(line, done.stderr)
        server = Server("--reuse", "modular", "--split-documents", "(a|aa|a?b)+c|---").wait_ready()  # exponential for a matcher without a limit
        self.addCleanup(server.stop)
        hostile = {"messages": [{"role": "user", "content": DOCUMENTS[0] + "---" + "a" * 400 + "---" + DOCUMENTS[1]}], "max_tokens": 1}
        reply = server.post("/v1/chat/completions", hostile)
        self.assertEqual(reply.status, 200, reply.body)
        self.assertEqual(reply.json["reprise"]["warnings"], ["the rest of a text, on which split_documents takes too long: ignored"])
        many = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "x---" * 70000}], "max_tokens": 1})
        self.assertEqual((many.status, many.json["error"]["code"]), (400, "context_length_exceeded"))

    def test_of_no_key(self):
        with tempfile.NamedTemporaryFile("w", suffix=".keys") as f:
            f.write("0" * 64 + " reuse=off\n")
            f.flush()
            done = subprocess.run([PROGRAM, "serve", "-m", "none.gguf", "--api-keys", f.name], capture_output=True, text=True, check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("reuse is on or modular", done.stderr)


if __name__ == "__main__":
    unittest.main()
