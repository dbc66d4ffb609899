#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""KV events (docs/cluster.md, "Kubernetes gateways") as a gateway reads them, with other people's ZeroMQ and MessagePack: blocks of a prompt are a
chain from its beginning, hashes are stable, removals follow the cache, numbers have no gap, whoever comes late gets everything; whose text is
published; wrong options. Needs python3-zmq and python3-msgpack; in a build without libzmq the option says so."""
import os
import socket
import subprocess
import sys
import tempfile
import unittest

from cluster_client import Node
from server_process import MODEL, PROGRAM, SOURCE, WAIT_S, Server

try:
    import msgpack
    import zmq
except ImportError:  # Debian's packages are for Debian's Python
    found = subprocess.run([os.path.join(SOURCE, "tools", "python_with"), "msgpack", "zmq"], capture_output=True, text=True).stdout.strip()
    if found:
        os.execv(found, [found, *sys.argv])
    msgpack = zmq = None

COMPLETIONS = "/v1/completions"
BLOCK = 64


def lacks_zmq():
    run = subprocess.run([PROGRAM, "serve", "-m", MODEL, "--port", "0", "--kv-events", "ipc:///nowhere/socket"], capture_output=True, text=True, timeout=WAIT_S)
    return "without libzmq" in run.stderr


LACKS_ZMQ = lacks_zmq()


def text_of(word):
    """More than three blocks."""
    return " ".join(f"{word} {i} and so on," for i in range(60))


class Gateway:
    """Reads messages, and keeps an index as gateways do. Anything that a gateway could not make sense of is an error."""

    def __init__(self, endpoint, topic=b"kv@"):
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.SUB)
        self.socket.setsockopt(zmq.RCVTIMEO, WAIT_S * 1000)
        self.socket.setsockopt(zmq.SUBSCRIBE, topic)
        self.socket.connect(endpoint)
        self.number, self.topics, self.blocks, self.tokens, self.parents = None, set(), {}, {}, {}
        self.n_cleared, self.n_removed = 0, 0

    def close(self):
        self.socket.close(0)
        self.context.term()

    def read(self):
        topic, number, payload = self.socket.recv_multipart()
        assert len(number) == 8
        number = int.from_bytes(number, "big")
        assert self.number is None or number == self.number + 1, (self.number, number)
        self.number = number
        self.topics.add(topic.decode())
        seconds, events, rank = msgpack.unpackb(payload)
        assert isinstance(seconds, float) and seconds > 1.7e9 and rank == 0
        for tag, *fields in events:
            getattr(self, tag)(*fields)
        return self

    def BlockStored(self, hashes, parent, tokens, size, lora_id, medium, lora_name):
        assert (size, lora_id, lora_name) == (BLOCK, None, None) and len(tokens) == BLOCK * len(hashes) > 0 and medium in ("CPU", "DISK")
        for i, one in enumerate(hashes):
            before = hashes[i - 1] if i else parent
            assert before is None or before in self.tokens, "its parent is unknown"
            own = tuple(tokens[i * BLOCK:(i + 1) * BLOCK])
            assert self.tokens.setdefault(one, own) == own and self.parents.setdefault(one, before) == before
            assert medium not in self.blocks.setdefault(one, set()), "stored twice"
            self.blocks[one].add(medium)

    def BlockRemoved(self, hashes, medium):
        for one in hashes:
            self.blocks[one].remove(medium)
            self.n_removed += 1
            if not self.blocks[one]:
                del self.blocks[one]

    def AllBlocksCleared(self):
        self.blocks = {}
        self.n_cleared += 1

    def until(self, holds):
        while not holds():
            self.read()
        return self

    def path(self, one):
        """The tokens from the beginning on."""
        return (self.path(self.parents[one]) if self.parents[one] is not None else ()) + self.tokens[one]

    def has(self, tokens):
        """Blocks held of the beginning of a text."""
        held = {self.path(one) for one in self.blocks}
        n = 0
        while tuple(tokens[:(n + 1) * BLOCK]) in held:
            n += 1
        return n


@unittest.skipUnless(LACKS_ZMQ, "this build has libzmq")
class Without(unittest.TestCase):
    def test_the_option_says_so(self):
        """Whether it does was just asked: it fails in no other way, and without the option all is well."""
        server = Server("--log", "off").wait_ready()
        self.addCleanup(server.stop)
        self.assertEqual(server.get("/readyz").status, 200)


@unittest.skipIf(LACKS_ZMQ, "this build has no libzmq")
@unittest.skipIf(zmq is None, "needs python3-zmq and python3-msgpack")
class Events(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder, self.endpoint = folder.name, f"ipc://{folder.name}/events"

    def serve(self, *options, kind=Server, **more):
        server = kind("--log", "off", "--kv-events", self.endpoint, *options, **more).wait_ready()
        self.addCleanup(server.stop)
        return server

    def gateway(self, **more):
        gateway = Gateway(self.endpoint, **more)
        self.addCleanup(gateway.close)
        return gateway

    def complete(self, server, text, **more):
        reply = server.post(COMPLETIONS, {"prompt": text, "max_tokens": 1, **more})
        self.assertEqual(reply.status, 200, reply.body)
        return server.post("/tokenize", {"content": text, "add_special": True}).json["tokens"]

    def test_chain(self):
        server = self.serve("--kv-events-name", "pod-1", "--name", "tiny")
        gateway = self.gateway()
        gateway.until(lambda: gateway.n_cleared)
        self.assertEqual(gateway.blocks, {})
        a = self.complete(server, text_of("first"))
        whole = len(a) // BLOCK
        self.assertGreaterEqual(whole, 3)
        gateway.until(lambda: gateway.has(a) >= whole)
        self.assertEqual(gateway.topics, {"kv@pod-1@tiny"})
        self.assertEqual({tuple(sorted(media)) for media in gateway.blocks.values()}, {("CPU",)})
        # a text that shares a beginning has the same blocks there, and its own after it
        before = set(gateway.blocks)
        b = self.complete(server, text_of("first")[:len(text_of("first")) // 2] + text_of("second"))
        gateway.until(lambda: gateway.has(b) >= len(b) // BLOCK)
        shared = next(i for i, (x, y) in enumerate(zip(a, b)) if x != y) // BLOCK
        self.assertGreaterEqual(shared, 1)
        self.assertEqual(sum(one in before and gateway.path(one) == tuple(b[:len(gateway.path(one))]) for one in gateway.blocks), shared)
        # whoever comes late gets everything, in one go, and with the same hashes
        late = self.gateway()
        late.until(lambda: late.n_cleared)
        self.assertEqual(late.blocks, gateway.blocks)
        gateway.until(lambda: gateway.n_cleared == 2)
        self.assertEqual(late.blocks, gateway.blocks)
        metrics = server.get("/metrics").body.decode()
        for line in (f"reprise_kv_events_blocks {len(late.blocks)}", "reprise_kv_events_restarts_total 2", "reprise_kv_events_left_out_total 0"):
            self.assertIn(f"\n{line}\n", metrics)
        # the end
        server.end()
        late.until(lambda: late.n_cleared == 2)
        self.assertEqual(late.blocks, {})

    def test_removals(self):
        """Entries that are deleted, and a cache that holds one text at a time."""
        server = self.serve("--kv-ram", "4M")
        gateway = self.gateway()
        a = self.complete(server, text_of("first"))
        gateway.until(lambda: gateway.has(a) >= len(a) // BLOCK)
        for entry in server.get("/v1/cache/entries").json["data"]:
            self.assertEqual(server.ask("DELETE", f"/v1/cache/entries/{entry['key']}").status, 200)
        gateway.until(lambda: not gateway.blocks)
        self.assertEqual(gateway.n_cleared, 1)
        again = self.complete(server, text_of("first"))
        gateway.until(lambda: gateway.has(again) >= len(again) // BLOCK)
        removed = gateway.n_removed
        texts = 0
        while gateway.n_removed == removed:  # evicted
            texts += 1
            tokens = self.complete(server, text_of(f"evict{texts}"))
            gateway.until(lambda: gateway.has(tokens) >= len(tokens) // BLOCK)
        self.assertLess(len(gateway.blocks), len(gateway.tokens))

    def test_disk(self):
        """Blocks on disk are stored a second time there; after a restart they are there at once, with the same hashes."""
        store = os.path.join(self.folder, "store")
        server = self.serve("--store", store)
        gateway = self.gateway()
        a = self.complete(server, text_of("first"))
        gateway.until(lambda: gateway.has(a) >= len(a) // BLOCK and all(media == {"CPU", "DISK"} for media in gateway.blocks.values()))
        held = {one: gateway.path(one) for one in gateway.blocks}
        server.end()
        self.serve("--store", store)
        late = self.gateway()
        late.until(lambda: late.has(a) >= len(a) // BLOCK)
        self.assertEqual({tuple(media) for media in late.blocks.values()}, {("DISK",)})
        self.assertEqual({one: late.path(one) for one in late.blocks}.items() & held.items(), {one: late.path(one) for one in late.blocks}.items())

    def test_other_text(self):
        """What a gateway cannot name is not published: text after modules, at other positions. The node of a cluster has its name in the topic."""
        server = self.serve(kind=Node, name="node-a")
        gateway = self.gateway()
        document = text_of("document")
        parts = {"parts": [{"type": "document", "text": document}, {"type": "text", "text": text_of("question")}], "max_tokens": 1}
        reply = server.post("/v1/prompts", parts)
        self.assertEqual(reply.status, 200, reply.body)
        a = self.complete(server, text_of("plain"))
        gateway.until(lambda: gateway.has(a) >= len(a) // BLOCK)
        self.assertEqual({gateway.path(one) for one in gateway.blocks}, {tuple(a[:i * BLOCK]) for i in range(1, gateway.has(a) + 1)})
        self.assertEqual(gateway.topics, {"kv@node-a@reprise-mini"})

    def test_tenants(self):
        keys = {name: f"{name}-key-0123456789abcdef" for name in ("gateway", "other")}
        path = os.path.join(self.folder, "keys")
        with open(path, "w", encoding="utf-8") as f:
            for name, key in keys.items():
                digits = subprocess.run([PROGRAM, "serve", "--hash-key"], input=key, capture_output=True, text=True, check=True).stdout.strip()
                f.write(f"{digits} tenant={name}\n")
        server = self.serve("--api-keys", path, "--kv-events-tenant", "gateway")
        gateway = self.gateway()
        tokens = {}
        for name in ("other", "gateway"):
            headers = {"Authorization": f"Bearer {keys[name]}"}
            self.assertEqual(server.post(COMPLETIONS, {"prompt": text_of(name), "max_tokens": 1}, headers=headers).status, 200)
            tokens[name] = server.post("/tokenize", {"content": text_of(name), "add_special": True}, headers=headers).json["tokens"]
        gateway.until(lambda: gateway.has(tokens["gateway"]) >= len(tokens["gateway"]) // BLOCK)
        self.assertEqual({gateway.path(one)[:BLOCK] for one in gateway.blocks}, {tuple(tokens["gateway"][:BLOCK])})

    def fails(self, *options, says, model=("-m", MODEL)):
        run = subprocess.run([PROGRAM, "serve", *model, "--port", "0", *options], capture_output=True, text=True, timeout=WAIT_S)
        self.assertNotEqual(run.returncode, 0)
        self.assertIn(says, run.stderr)

    def test_wrong_options(self):
        keys = os.path.join(self.folder, "keys")
        with open(keys, "w", encoding="utf-8") as f:
            f.write("0" * 64 + "\n")
        self.fails("--kv-events", "udp://127.0.0.1:1", says="ipc://PATH")
        self.fails("--kv-events", f"ipc://{self.folder}/none/events", says="cannot publish")
        self.fails("--kv-events-name", "a", says="--kv-events ENDPOINT")
        self.fails("--kv-events", self.endpoint, "--kv-events-name", "a@b", says="without '@'")
        self.fails("--kv-events", self.endpoint, "--name", "a@b", says="without '@'")
        self.fails("--kv-events", self.endpoint, "--api-keys", keys, says="kv_events_tenant")
        self.fails("--kv-events", self.endpoint, "--kv-events-tenant", "a", says="no tenant's")
        self.fails("--kv-events", self.endpoint, says="single model", model=("-m", f"a={MODEL}", "-m", f"b={MODEL}"))
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            self.fails("--kv-events", f"tcp://127.0.0.1:{taken.getsockname()[1]}", says="in use")


if __name__ == "__main__":
    unittest.main()
