#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Servers that share a pool of KV (docs/cluster.md): documents and conversations that one has computed are hits of another, also after kill -9 of
the first; answers are those of a server without a pool; what a pool that is gone does; wrong options."""
import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from cluster_client import secret_file
from server_process import MODEL, PROGRAM, WAIT_S, Server, bearer, key_line

CHAT = "/v1/chat/completions"
DOCUMENTS = [f"Document {n}. " + " ".join(f"The {a} of {b} is {c}, and number {n * 7 + i} of its street."
                                          for i, (a, b, c) in enumerate([("house", "Mary", "red"), ("boat", "John", "blue"), ("dog", "Anna", "old")] * 4))
             for n in range(3)]


def documents(order, question):
    parts = [{"type": "text", "text": DOCUMENTS[n]} for n in order] + [{"type": "text", "text": question}]
    return {"messages": [{"role": "user", "content": parts}], "reuse": "modular", "max_tokens": 8, "temperature": 0}


def conversation(turns):
    messages = [{"role": "system", "content": DOCUMENTS[0]}]
    for n in range(turns):
        messages += [{"role": "user", "content": f"Question {n}: whose boat is blue, and in which street does the owner of it live?"},
                     {"role": "assistant", "content": f"Answer {n}: it is the boat of John, who lives in the street of the old dog of Anna."}]
    return {"messages": messages + [{"role": "user", "content": "And the house?"}], "max_tokens": 8, "temperature": 0}


def said(server, body):
    reply = server.ask("POST", CHAT, body)
    assert reply.status == 200, reply.body
    return reply.json["choices"][0]["message"]["content"], reply.json["usage"]["prompt_tokens_details"]["cached_tokens"]


def figures(server, headers=None):
    lines = [line.rsplit(" ", 1) for line in server.get("/metrics", headers=headers).body.decode().splitlines() if line.startswith("reprise_pool_")]
    return {name[len("reprise_pool_"):]: float(value) for name, value in lines}


def await_writes(server, n, headers=None):
    end = time.monotonic() + WAIT_S
    while figures(server, headers)["writes_total"] < n:
        assert time.monotonic() < end, figures(server, headers)
        time.sleep(0.02)


class Pool(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.secret = secret_file()
        cls.addClassCleanup(cls.secret.close)
        cls.alone = Server().wait_ready()
        cls.addClassCleanup(cls.alone.stop)

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="reprise-pool-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def node(self, *options):
        node = Server("--pool", f"dir:{self.folder}", "--cluster-secret", self.secret.name, *options).wait_ready()
        self.addCleanup(node.stop)
        return node

    def test_documents_in_another_order(self):
        a = self.node()
        said(a, documents([0, 1, 2], "Who has a boat?"))
        await_writes(a, 4)  # and what comes before them
        b, question = self.node(), documents([2, 0, 1], "Who has a dog?")
        answer, cached = said(b, question)
        self.assertEqual(answer, said(self.alone, question)[0])
        self.assertGreater(cached, 300)
        self.assertGreaterEqual(figures(b)["reads_total"], 3)
        again, cached = said(b, question)
        self.assertEqual((again, figures(b)["faults_total"]), (answer, 0))

    def test_the_plan_names_the_pool(self):
        a = self.node()
        said(a, documents([1], "Who?"))
        await_writes(a, 2)
        b = self.node()
        reply = b.ask("POST", CHAT, documents([1], "Whose?"))
        plan = b.get(f"/v1/requests/{reply.headers['x-request-id']}/explain").json["parts"]
        self.assertIn("pool", [part["tier"] for part in plan])

    def test_conversations_outlive_their_server(self):
        a = self.node()
        for turns in (1, 2, 3):
            said(a, conversation(turns))
        await_writes(a, 2)
        a.end(signal.SIGKILL)
        b = self.node()
        answer, cached = said(b, conversation(4))
        self.assertEqual(answer, said(self.alone, conversation(4))[0])
        self.assertGreater(cached, 128)
        self.assertGreater(figures(b)["reads_total"], 0)

    def test_tenants_share_nothing(self):
        with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
            keys.writelines(key_line(f"the-secret-key-of-{name}", f"tenant={name}") for name in ("alice", "bob"))
            keys.write(key_line("the-operators-key", "rights=operate"))
            keys.flush()
            a = self.node("--api-keys", keys.name)
            question = documents([0], "Who?")
            self.assertEqual(a.ask("POST", CHAT, question, bearer("the-secret-key-of-alice")).status, 200)
            await_writes(a, 2, bearer("the-operators-key"))
            b = self.node("--api-keys", keys.name)
            cached = [b.ask("POST", CHAT, question, bearer(key)).json["usage"]["prompt_tokens_details"]["cached_tokens"]
                      for key in ("the-secret-key-of-bob", "the-secret-key-of-alice")]
            self.assertLess(cached[0], 64)
            self.assertGreater(cached[1], 64)

    def test_a_pool_that_is_gone(self):
        a = self.node()
        said(a, documents([0], "Who?"))
        await_writes(a, 2)
        shutil.rmtree(self.folder)
        with open(self.folder, "w"):  # no folder from now on
            pass
        self.addCleanup(os.unlink, self.folder)
        for n in (1, 2):
            question = documents([n], "Who?")
            self.assertEqual(said(a, question)[0], said(self.alone, question)[0])
        self.assertEqual(a.get("/readyz").status, 200)

    def test_wrong_options(self):
        for options, says in ((["--pool", "dir:/tmp"], "--pool needs --cluster-secret"),
                              (["--pool-write", "1M"], "--pool-write needs --pool"),
                              (["--pool", "nowhere", "--cluster-secret", self.secret.name], "is not the address of a pool"),
                              (["--pool", "dir:here", "--cluster-secret", self.secret.name], "use dir:/FOLDER"),
                              (["--cluster-secret", self.secret.name], "--cluster-listen ADDRESS")):
            run = subprocess.run([PROGRAM, "serve", "-m", MODEL, "--port", "0", *options], capture_output=True, text=True, timeout=WAIT_S)
            self.assertNotEqual(run.returncode, 0)
            self.assertIn(says, run.stderr)


if __name__ == "__main__":
    unittest.main()
