#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise serve` and `reprise route` and the memory of requests (--request-ram): whatever bodies contain, one line refuses what needs more, others are
served, and the memory comes back. With REPRISE_TEST_ABUSE=full (make abuse): the sizes that the defaults allow, and memory seen from outside."""
import json
import os
import random
import tempfile
import threading
import time
import unittest

from hostile_bodies import bomb, worst
from router_process import Node, Router
from server_process import Server, bearer, in_parallel, key_line

SEED = int(os.environ.get("REPRISE_TEST_SEED", 20261128))
FULL = os.environ.get("REPRISE_TEST_ABUSE") == "full"
LIMIT, BODY = (64 << 20, 15_900_000) if FULL else (8 << 20, 1_500_000)
N_CLIENTS, N_BOMBS = (40, 400) if FULL else (12, 60)
STEPS = 32 * (64 << 10)  # what threads take in advance
SHORT = {"prompt": "Tom had a", "temperature": 0, "max_tokens": 4}
PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses", "/tokenize", "/detokenize", "/apply-template", "/v1/embeddings",
         "/v1/prompts", "/completion", "/v1/rerank", "/api/chat", "/api/generate", "/v1beta/models/default:generateContent")
ANN, BOB = "key-of-ann-0123456789", "key-of-bob-0123456789"


def resident(server):
    with open(f"/proc/{server.process.pid}/status", encoding="ascii") as f:
        lines = dict(line.split(":", 1) for line in f)
    return {name: int(lines[name].split()[0]) << 10 for name in ("VmRSS", "VmHWM")}


class Watch:
    """Largest resident size of a process, looked at again and again."""
    def __init__(self, server):
        self.server, self.peak, self.ends = server, 0, threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.ends.wait(0.02):
            self.peak = max(self.peak, resident(self.server)["VmRSS"])

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ends.set()
        self.thread.join()


class Memory(unittest.TestCase):
    keeps_connections = False
    options = ("--request-ram", str(LIMIT), "--max-body", str(min(LIMIT // 2, 16 << 20)), "--log", "off", "--ctx", "2048")

    @classmethod
    def setUpClass(cls):
        print(f"memory: REPRISE_TEST_SEED={SEED}")
        cls.server = cls.start()
        cls.addClassCleanup(cls.server.stop)
        cls.answer = cls.server.post("/v1/completions", SHORT).json["choices"]

    @classmethod
    def start(cls):
        ram = ("--ram", "400M") if FULL else ()
        return Server(*cls.options, *ram).wait_ready()

    def tearDown(self):
        """It answers as before, and nothing of the requests' memory is counted any more but this request's."""
        reply = self.server.post("/v1/completions", SHORT)
        self.assertEqual((reply.status, reply.json["choices"]), (200, self.answer))
        while self.server.metrics()["reprise_request_memory_bytes"] > 1 << 20 or self.server.metrics()["reprise_body_bytes"] > 0:
            pass
        self.assertLessEqual(self.server.metrics()["reprise_request_memory_peak_bytes"], LIMIT + STEPS)

    def check(self, path, body, reply):
        self.assertIn(reply.status, (200, 400, 404, 413, 501, 503), (path, body[:300], reply.body[:300]))
        if reply.status == 413:
            self.assertIn("MiB of memory", reply.json["error"] if path.startswith("/api/") else reply.json["error"]["message"])
        if reply.status == 503:
            self.assertIn("Retry-After", reply.headers)

    def test_worst_bodies(self):
        refused = 0
        for path, body in worst(BODY):
            with self.subTest(path=path, body=body[:80]):
                reply = self.server.post(path, body)
                self.check(path, body, reply)
                self.assertNotEqual(reply.status, 503)
                refused += reply.status == 413
        self.assertGreater(refused, 5)

    def test_random_bombs(self):
        rng = random.Random(SEED)
        for _ in range(N_BOMBS):
            path, body = rng.choice(PATHS), bomb(rng, BODY)
            self.check(path, body, self.server.post(path, body))

    def test_worst_bodies_at_once(self):
        """A request that is refused says why; the server takes no more than its limit."""
        bodies = worst(BODY)

        def client(first):
            for i in range(2):
                path, body = bodies[(first + i * 7) % len(bodies)]
                self.check(path, body, self.server.post(path, body))

        def clients():
            in_parallel([lambda i=i: client(i) for i in range(N_CLIENTS)])

        if FULL:  # what answered ones leave in the KV cache is not theirs any more
            for path, body in bodies:
                self.server.post(path, body)
            if self.keeps_connections:
                clients()
            time.sleep(5)
        idle = resident(self.server)["VmRSS"]
        with Watch(self.server) as watch:
            clients()
        if not FULL:
            return
        time.sleep(5)
        after = resident(self.server)["VmRSS"]
        print(f"memory: idle {idle >> 20} MiB, peak {watch.peak >> 20} MiB, 5 s later {after >> 20} MiB")
        self.assertLessEqual(watch.peak, 440 << 20)
        self.assertLessEqual(after, idle * 1.1)

    def test_a_long_list_of_tokens_comes_in_pieces(self):
        text = "Tom had a red ball. " * (LIMIT // 160 // 20)
        for pieces in (False, True):
            reply = self.server.post("/tokenize", {"content": text, "with_pieces": pieces})
            self.assertEqual(reply.status, 200)
            tokens = reply.json["tokens"]
            if pieces:
                self.assertEqual("".join(token["piece"] for token in tokens).strip(), text.strip())
                tokens = [token["id"] for token in tokens]
            short = self.server.post("/tokenize", {"content": text[:400]}).json["tokens"]
            self.assertEqual(tokens[:len(short) - 2], short[:-2])
            self.assertGreater(len(reply.body), 4 * len(tokens) if pieces else len(tokens))


class Routed(Memory):
    keeps_connections = True  # to nodes, with libcurl's buffers: as many as clients once needed at a time

    @classmethod
    def start(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        secret = os.path.join(folder.name, "secret")
        with open(os.open(secret, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as f:
            f.write("5a" * 32)
        node = Node(secret, "a").wait_ready()
        cls.addClassCleanup(node.stop)
        own = cls.options[2:] if FULL else cls.options
        router = Router(secret, [node], *(o for o in own if o not in ("--log", "off", "--ctx", "2048"))).wait_ready()
        router.wait_well("a")
        return router

    def tearDown(self):
        self.server.wait_well("a")
        limit = self.server.metrics()["reprise_request_memory_limit_bytes"]
        self.assertLessEqual(self.server.metrics()["reprise_request_memory_peak_bytes"], limit + STEPS)
        reply = self.server.post("/v1/completions", SHORT)
        self.assertEqual((reply.status, reply.json["choices"]), (200, self.answer))
        if FULL:
            self.assertLessEqual(resident(self.server)["VmHWM"], 300 << 20)

    def test_worst_bodies(self):
        for path, body in worst(BODY):
            with self.subTest(path=path, body=body[:80]):
                self.assertIn(self.server.post(path, body).status, (200, 400, 404, 413, 501, 503))


class Tenants(unittest.TestCase):
    def test_one_tenant_leaves_memory_to_others(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "keys")
            with open(path, "w", encoding="utf-8") as f:
                f.write(key_line(ANN, "tenant=ann") + key_line(BOB, "tenant=bob"))
            os.chmod(path, 0o600)
            server = Server("--api-keys", path, *Memory.options).wait_ready()
            self.addCleanup(server.stop)
            bodies, over, statuses = worst(BODY), threading.Event(), []

            def ann(first):
                i = first
                while not over.is_set():
                    path, body = bodies[i % len(bodies)]
                    statuses.append(server.post(path, body, headers=bearer(ANN)).status)
                    i += 5

            threads = [threading.Thread(target=ann, args=(i,)) for i in range(8)]
            for thread in threads:
                thread.start()
            try:
                for _ in range(30):
                    reply = server.post("/v1/completions", SHORT, headers=bearer(BOB))
                    self.assertEqual(reply.status, 200, reply.body)
            finally:
                over.set()
                for thread in threads:
                    thread.join()
            self.assertTrue(any(status in (413, 429, 503) for status in statuses))
            self.assertTrue(all(status in (200, 400, 404, 413, 429, 501, 503) for status in statuses), statuses)


if __name__ == "__main__":
    unittest.main()
