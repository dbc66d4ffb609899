#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise route` at its edges, with mock nodes: slow readers, long replies and headers, DNS, modules, continued dialects, frozen nodes, nodes that answer
nonsense, wrong lists of nodes, goals that are missed at the end, bodies."""
import hashlib
import json
import os
import signal
import socket
import struct
import tempfile
import threading
import unittest

from cluster_client import HELLO, NAMES, SNAPSHOT
from router_process import Node, Router, make_secret
from server_process import raw_request, read_until_closed

MOCK = ("--mock", "--mock-speed", "0", "--ctx", "8192")
CHAT, TEXT, ANTHROPIC = "/v1/chat/completions", "/v1/completions", "/v1/messages"
MESSAGES = [{"role": "user", "content": "Where is the sea?"}]
LOGGED = {"prompt": "Tom had a", "max_tokens": 3000, "ignore_eos": True, "logprobs": 5, "seed": 3, "temperature": 1}
WORDS = " ".join(f"stone {i} and tree {i}," for i in range(120))
TIMEOUT = "--node-timeout", "1500"  # of a request, if a busy machine delays a node's answer: more than that
CITIES = f"""<schema name="cities"><system>You are a guide.</system><user><module name="miami">Miami has {WORDS}</module>
<module name="lisbon">Lisbon has, too, {WORDS}</module></user></schema>"""


def unchunked(body):
    """The content of a chunked body."""
    found = b""
    while body:
        size, _, rest = body.partition(b"\r\n")
        n = int(size, 16)
        found, body = found + rest[:n], rest[n + 2:]
        if n == 0:
            return found
    raise AssertionError("the last chunk is missing")


def data_of(body):
    return [line[6:] for line in body.decode().splitlines() if line.startswith("data: ")]


def text_of(body, path=TEXT):
    text = ""
    for data in data_of(body):
        frame = json.loads(data) if data != "[DONE]" else {}
        if path == ANTHROPIC:
            text += frame["delta"].get("text", "") if frame.get("type") == "content_block_delta" else ""
        elif frame.get("choices"):
            text += frame["choices"][0]["text"] if path == TEXT else frame["choices"][0]["delta"].get("content") or ""
    return text


class FalseNode:
    """A node whose answers to POST are these bytes, then `more` of them; its span stream is a node's."""

    def __init__(self, node, answer, more=b""):
        self.node, self.answer, self.more, self.n_asked = node, answer, more, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listed = f"false=http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        with client:
            try:
                head = client.recv(65536)
                if head.startswith(b"GET "):
                    with self.node.socket(len(self.node.addresses) - 1) as behind:
                        behind.sendall(head)
                        while part := behind.recv(65536):
                            client.sendall(part)
                    return
                self.n_asked += 1
                client.sendall(self.answer or self.proxied(client, head))
                while self.more:
                    client.sendall(self.more)
            except OSError:
                pass  # one of them has left

    def proxied(self, client, request):
        """What the node answers: overridden."""
        del client, request
        return b""

    def stop(self):
        self.listener.close()


class WrongMarks(FalseNode):
    """The node's streams as a whole, in one piece, whose second mark is malformed."""

    def proxied(self, client, request):
        head = request.partition(b"\r\n\r\n")[0]
        length = int(next(line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")).split(b":")[1])
        while len(request) < len(head) + 4 + length:
            request += client.recv(65536)
        with self.node.socket(len(self.node.addresses) - 1) as behind:
            behind.sendall(request)
            reply = b""
            while not reply.endswith(b"\r\n0\r\n\r\n"):
                reply += behind.recv(65536)
        parts = unchunked(reply.partition(b"\r\n\r\n")[2]).split(b"\n: r ")
        stream = b"\n: r ".join(parts[:2]) + b"\n: r x" + b"\n: r ".join(parts[2:])
        return b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nx-reprise-marks: 1\r\nContent-Length: %d\r\n\r\n" % len(stream) + stream


class Swallowing(FalseNode):
    """A node whose span stream lives, but which answers no POST: it reads what `reads` says, and waits. passes: the first POST is the node's, up to so
    many bytes of its reply. knows: it answers what it works on."""

    def __init__(self, node, reads=True, passes=0, knows=True):
        self.reads, self.passes, self.knows = reads, passes, knows
        super().__init__(node, b"")

    def serve(self, client):
        with client:
            try:
                head = client.recv(1 if not self.reads else 65536, socket.MSG_PEEK if not self.reads else 0)
                if self.reads and head.startswith(b"GET ") and (self.knows or b"/v1/cluster/stream" in head):
                    with self.node.socket(len(self.node.addresses) - 1) as behind:
                        behind.sendall(head)
                        while part := behind.recv(65536):
                            client.sendall(part)
                    return
                if head.startswith(b"G"):  # not read yet
                    self.reads_once(client)
                    return
                self.n_asked += 1
                if self.passes:
                    self.pass_some(client, head)
                while self.reads and client.recv(65536):
                    pass
                self.wait.wait()
            except OSError:
                pass  # one of them has left

    wait = threading.Event()

    def reads_once(self, client):
        with self.node.socket(len(self.node.addresses) - 1) as behind:
            behind.sendall(client.recv(65536))
            while part := behind.recv(65536):
                client.sendall(part)

    def pass_some(self, client, request):
        with self.node.socket(len(self.node.addresses) - 1) as behind:
            behind.sendall(request)
            left = self.passes
            while left > 0 and (part := behind.recv(left)):
                client.sendall(part)
                left -= len(part)


class Lying(FalseNode):
    """A node with the cluster's secret that says to hold names without end, whatever its KV budget is."""

    def __init__(self, budget, n_names, kv_format=b"f16"):
        self.budget, self.n_names, self.kv_format = budget, n_names, kv_format
        super().__init__(None, b"")

    def serve(self, client):
        with client:
            try:
                head = client.recv(65536)
                if not head.startswith(b"GET /v1/cluster/stream"):
                    return
                nonce = bytes.fromhex(head.lower().partition(b"x-reprise-cluster: 1;")[2][:32].decode())
                hash = hashlib.blake2b(digest_size=32)
                for part in (b"reprise cluster stream 1", b"\7" * 32, nonce):
                    hash.update(b"b" + struct.pack("<Q", len(part)) + part)
                self.number, self.key, self.client = 0, hash.digest(), client
                client.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n\r\n")
                texts = b"".join(bytes([len(t)]) + t for t in (b"other", b"false", b"model", self.kv_format, b"f16"))
                self.frame(HELLO, struct.pack("<II Q iii I QQ", 1, 0, 7, 4096, 4, 4, 0, self.budget, 0) + texts)
                self.frame(SNAPSHOT, struct.pack("<QQ", 0, self.n_names))
                for _ in range(self.n_names // 10000):
                    names = os.urandom(160000)
                    self.frame(NAMES, b"".join(names[at:at + 16] + b"\1" for at in range(0, 160000, 16)))
                self.frame(NAMES, b"")
                client.recv(1)  # until the router leaves
            except OSError:
                pass

    def frame(self, kind, body):
        content = bytes([kind]) + body
        tag = hashlib.blake2b(struct.pack("<Q", self.number) + content, key=self.key, digest_size=16).digest()
        self.number += 1
        self.client.sendall(struct.pack("<I", len(content) + 16) + content + tag)


class Edges(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder, cls.secret, cls.nodes = folder.name, make_secret(folder.name), {}
        for name in ("a", "b"):
            cls.begin_node(name)
        for node in cls.nodes.values():
            node.wait_ready()
        cls.router = Router(cls.secret, cls.nodes.values())
        cls.addClassCleanup(cls.router.stop)
        cls.router.wait_ready()

    @classmethod
    def begin_node(cls, name, **more):
        cls.nodes[name] = Node(cls.secret, name, *MOCK, "--mock-step", "1", **more)
        cls.addClassCleanup(cls.nodes[name].stop)

    def setUp(self):
        for name, node in self.nodes.items():
            if node.process.poll() is not None:
                ended = self.router.cluster()[name]["epoch"]
                self.begin_node(name, port=node.addresses[1].rsplit(":", 1)[1])
                self.nodes[name].wait_ready()
                self.router.wait(lambda nodes, name=name, ended=ended: nodes[name]["epoch"] != ended)  # it has noticed
        self.router.wait_well("a", "b")

    def router_of(self, nodes, *options):
        router = Router(self.secret, nodes, *options)
        self.addCleanup(router.stop)
        return router.wait_ready()

    # ---- what is read

    def check_silent(self, false, body=None, path=TEXT, size=0):
        """Attack 7: a request whose node gives no sign of life of it moves, and its answer is that of one node."""
        self.addCleanup(false.stop)
        body = {"prompt": "Tom had a", "max_tokens": 300, "ignore_eos": True, "seed": 3, "temperature": 1, **(body or {})}
        if size:
            body["unused"] = "x" * size
        both = Router(self.secret, [self.nodes["b"]], "--node", false.listed, *TIMEOUT, "--policy", "round-robin")
        self.addCleanup(both.stop)
        both.wait_ready()
        both.wait_well("b", "false")
        asked, replies = false.n_asked, []
        while false.n_asked == asked:
            replies.append(both.post(path, body))
        self.assertEqual({r.status for r in replies}, {200})
        texts = {text_of(r.body, path) if body.get("stream") else r.json["choices"][0]["text"] for r in replies}
        self.assertEqual(texts, {self.nodes["b"].post(path, {**body, "stream": False}).json["choices"][0]["text"]})
        attempts = both.explain(replies[-1])["attempts"]
        self.assertEqual([(a["node"], a["failure"]) for a in attempts], [("false", "no sign of life"), ("b", None)])
        self.assertEqual(both.metrics()['reprise_node_silent_total{node="false"}'], 1)

    def test_a_node_that_swallows_requests(self):
        self.check_silent(Swallowing(self.nodes["a"]))

    def test_requests_that_the_only_node_swallows(self):
        false = Swallowing(self.nodes["a"])
        self.addCleanup(false.stop)
        router = Router(self.secret, [], "--node", false.listed, *TIMEOUT)
        self.addCleanup(router.stop)
        router.wait_ready()
        router.wait(lambda nodes: "false" in nodes and nodes["false"]["health"] == "well" and nodes["false"]["is_planned"])
        reply = router.post(TEXT, {"prompt": "Tom had a", "max_tokens": 4})
        self.assertEqual(reply.status, 502)
        self.assertIn("node_failed", reply.body.decode())
        self.assertEqual(router.metrics()['reprise_node_silent_total{node="false"}'], 1)

    def test_a_node_that_lies_about_its_names(self):
        """Attack 13: no node has more of the index than its KV budget could hold, nor than its share of --index-ram."""
        self.nodes["a"].post(TEXT, {"prompt": WORDS, "max_tokens": 1})
        for budget, most in ((256 * 100, 100), (1 << 60, (2 << 20) // 48 // 2)):
            with self.subTest(budget=budget):
                false = Lying(budget, 200000)
                self.addCleanup(false.stop)
                router = Router(self.secret, [self.nodes["a"]], "--node", false.listed, "--index-ram", "2M")
                self.addCleanup(router.stop)
                router.wait_ready()
                nodes = router.wait(lambda nodes: "false" in nodes and nodes["false"]["stream"]["ignored"] >= 200000 - most and nodes["a"]["names"] > 0)
                self.assertEqual(nodes["false"]["names"], most)
                metrics = router.metrics()
                self.assertEqual(metrics['reprise_node_names_ignored_total{node="false"}'], 200000 - most)
                self.assertEqual(metrics['reprise_node_names_ignored_total{node="a"}'], 0)
                self.assertLess(metrics["reprise_route_index_bytes"], 3 << 20)
                self.assertEqual(router.said().count("node 'false' reports more names than"), 1)

    def test_an_unknown_kv_format(self):
        """The format of a later release is no f16: nothing is planned for its node, and the log names both."""
        false = Lying(1 << 30, 10000, b"f9")
        self.addCleanup(false.stop)
        router = self.router_of([self.nodes["a"]], "--node", false.listed)
        router.wait(lambda nodes: "false" in nodes and nodes["false"]["names"] == 10000 and nodes["a"]["is_planned"])
        self.assertNotEqual(router.get("/v1/cluster").json["planned_identity"], "other")
        said = "node 'false' has the KV format 'f9', which this router does not know"
        router.wait(lambda nodes: said in router.said())
        self.assertEqual(router.said().count(said), 1)
        alone = Router(self.secret, [], "--node", false.listed)
        self.addCleanup(alone.stop)
        alone.wait_ready()
        alone.wait(lambda nodes: "false" in nodes and nodes["false"]["names"] == 10000)
        cluster = alone.get("/v1/cluster").json
        self.assertEqual((cluster["identity"], cluster["planned_identity"]), ("", ""))

    def test_a_node_that_does_not_say_what_it_works_on(self):
        self.check_silent(Swallowing(self.nodes["a"], knows=False), {"stream": True})

    def test_a_node_that_does_not_read_a_body(self):
        self.check_silent(Swallowing(self.nodes["a"], reads=False), size=8 << 20)

    def test_a_node_that_stops_within_a_stream(self):
        self.check_silent(Swallowing(self.nodes["a"], passes=6000), {"stream": True})

    def test_a_node_that_works_for_long_keeps_its_request(self):
        """Its prefill takes many times --node-timeout, and no byte comes meanwhile: it says that it works."""
        slow = Node(self.secret, "slow", "--mock", "--mock-speed", "300", "--ctx", "8192", "--chunk", "64")  # 213 ms a step
        self.addCleanup(slow.stop)
        slow.wait_ready()
        router = Router(self.secret, [slow], *TIMEOUT)
        self.addCleanup(router.stop)
        router.wait_ready()
        router.wait_well("slow")
        reply = router.post(TEXT, {"prompt": WORDS, "max_tokens": 4, "ignore_eos": True})
        self.assertEqual(reply.status, 200)
        self.assertEqual(router.metrics()['reprise_node_silent_total{node="slow"}'], 0)

    def test_a_slow_reader_goes_on(self):
        router, body = self.router_of(self.nodes.values(), "--reply-buffers", "32K"), {**LOGGED, "stream": True}
        router.wait_well("a", "b")
        direct = self.nodes["a"].post(TEXT, body)
        with router.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.sendall(raw_request(TEXT, body, "Connection: close\r\n"))
            while router.metrics()["reprise_answers_paused_total"] == 0:
                pass
            self.assertLess(router.metrics()["reprise_reply_buffer_bytes"], 64 << 10)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)  # else it takes 15 s
            head, _, body = read_until_closed(s).partition(b"\r\n\r\n")
        self.assertIn(b" 200 ", head)
        self.assertEqual(text_of(unchunked(body)), text_of(direct.body))
        router.wait_idle_router()

    def test_a_long_reply_that_is_no_stream(self):
        body = {**LOGGED, "n": 8, "max_tokens": 1500}
        direct, routed = self.nodes["a"].post(TEXT, body), self.router.post(TEXT, body)
        self.assertGreater(len(routed.body), 1 << 20)
        self.assertEqual((routed.status, routed.headers["Content-Type"], routed.json["choices"]), (200, direct.headers["Content-Type"], direct.json["choices"]))
        self.assertIn(routed.headers["x-reprise-node"], self.nodes)

    def test_long_headers(self):
        reply = self.router.post(TEXT, {"prompt": "Tom", "max_tokens": 2}, headers={"User-Agent": "agent " * 2000, "tracestate": "a=" + "b" * 6000})
        self.assertEqual(reply.status, 200, reply.body)

    def test_bodies(self):
        router = self.router_of(self.nodes.values(), "--request-ram", "4M", "--max-body", "1M")
        router.wait_well("a", "b")
        body = {"prompt": "Tom had", "max_tokens": 1900, "ignore_eos": True, "stream": True, "user": "x" * 700000}
        with router.socket() as one, router.socket() as two:
            for s in (one, two):
                s.sendall(raw_request(TEXT, body))
                self.assertEqual(s.recv(1), b"H")
            self.assertGreater(router.metrics()["reprise_body_bytes"], 1400000)  # kept, for another node
            reply = router.post(TEXT, body)
            self.assertEqual(reply.status, 503, reply.body)
            self.assertIn("bodies", reply.json["error"]["message"])
        router.wait_idle_router()

    # ---- where it goes

    def test_nodes_of_a_name(self):
        port = self.nodes["a"].addresses[1].rsplit(":", 1)[1]
        router, name = self.router_of([], "--nodes-dns", f"localhost:{port}"), f"127.0.0.1:{port}"
        router.wait_well(name)
        self.assertEqual(router.post(TEXT, {"prompt": "Tom", "max_tokens": 2}).headers["x-reprise-node"], name)

    def test_modules_go_where_they_are(self):
        put = self.router.ask("PUT", "/v1/schemas/cities?prefill=false", CITIES)
        self.assertEqual(put.status, 200, put.body)
        homes = {"miami": "a", "lisbon": "b"}

        def ask(city, question):
            reply = self.router.post("/v1/prompts", {"prompt": f"<prompt schema='cities'><{city}/> {question}</prompt>", "max_tokens": 2})
            self.assertEqual(reply.status, 200, reply.body)
            return reply

        for city, home in homes.items():
            other = {"a": "b", "b": "a"}[home]
            self.router.wait_well("a", "b")  # a node that began anew is held until it has the schema
            self.addCleanup(self.router.post, f"/v1/cluster/undrain?node={other}", {})
            self.assertEqual(self.router.post(f"/v1/cluster/drain?node={other}", {}).status, 200)
            self.assertEqual(ask(city, "Which stone?").headers["x-reprise-node"], home)
            self.assertEqual(self.router.post(f"/v1/cluster/undrain?node={other}", {}).status, 200)
        for city, home in homes.items():
            while True:  # until the node has said what it holds
                reply = ask(city, "Which tree?")
                nodes = {c["node"]: c for c in self.router.explain(reply)["candidates"]}
                there, chosen = nodes[home], nodes[reply.headers["x-reprise-node"]]
                if there["held_tokens"] > 500:
                    break
            if chosen is not there:  # on a busy machine
                self.assertTrue(there.get("excluded") or chosen["held_tokens"] > 500 or chosen["ttft_ms"] <= there["ttft_ms"], nodes)
        self.assertEqual(self.router.ask("DELETE", "/v1/schemas/cities").status, 200)

    def test_a_wrong_file_keeps_the_nodes(self):
        path, a, b = os.path.join(self.folder, "nodes"), self.nodes["a"], self.nodes["b"]

        def write(text):
            with open(path + ".new", "w", encoding="ascii") as f:
                f.write(text)
            os.rename(path + ".new", path)

        write(f"{a.listed}\n")
        router = self.router_of([], "--nodes", path)
        router.wait_well("a")
        for text, says in ((f"# nodes\n{a.listed}\n{b.listed.replace('b=', 'a=')}\n", "line 3: two nodes are named 'a'"),
                           (f"{a.listed}\n\nb={a.addresses[1]}\n", "line 3: " + a.addresses[1] + " has two names"),
                           (f"{a.listed}\nb=nowhere\n", "line 2: node 'b=nowhere': give http://HOST:PORT"), (None, "cannot")):
            if text is None:
                os.unlink(path)
            else:
                write(text)
            router.process.send_signal(signal.SIGHUP)
            while says not in router.said():
                self.assertIsNone(router.process.poll())
            self.assertIn("1 nodes of it are kept", router.said())
            self.assertEqual(list(router.cluster()), ["a"])
        write(f"{a.listed}\n{b.listed}\n")
        router.process.send_signal(signal.SIGHUP)
        router.wait_well("a", "b")
        self.assertEqual(router.process.poll(), None)

    def test_goal_missed_at_the_end(self):
        """A stream that is complete when its first bytes are passed on, and refused then."""
        router = self.router_of(self.nodes.values(), "--admission", "after-prefill", "--itl-goal", "0.0001")
        router.wait_well("a", "b")
        for node in self.nodes.values():  # measures its steps
            self.assertEqual(node.post(TEXT, {"prompt": "Tom had", "max_tokens": 200, "ignore_eos": True}).status, 200)
        status = 200
        while status == 200:  # until the router knows what they measured
            status = router.post(TEXT, {"prompt": "Tom had", "max_tokens": 1, "stream": True}).status
        self.assertEqual(status, 429)
        router.wait_idle_router()

    # ---- nodes that fail

    def begin(self, path, body, router=None):
        c = (router or self.router).connection()
        self.addCleanup(c.close)
        c.request("POST", path, body=json.dumps(body), headers={"Content-Type": "application/json"})
        reply = c.getresponse()
        self.assertEqual(reply.status, 200)
        return reply, self.nodes[reply.headers["x-reprise-node"]], reply.read1(65536)

    def continued(self, path, body, number):
        direct = self.nodes["b"].post(path, body)
        before = self.router.metrics()["reprise_route_continuations_total"]
        reply, node, first = self.begin(path, body)
        if number == signal.SIGKILL:
            node.end(number)
        else:
            node.process.send_signal(number)
        whole = first + reply.read()
        self.assertEqual(self.router.metrics()["reprise_route_continuations_total"], before + 1)
        self.assertEqual(text_of(whole, path), text_of(direct.body, path))
        self.assertEqual(len([d for d in data_of(whole) if '"error"' in d]), 0)
        ends = [[json.loads(d)["type"] for d in data_of(b) if path == ANTHROPIC and "content_block_delta" not in d] for b in (whole, direct.body)]
        self.assertEqual(ends[0], ends[1])
        return node

    def test_killed_within_a_chat(self):
        self.continued(CHAT, {"messages": MESSAGES, "max_tokens": 400, "ignore_eos": True, "seed": 4, "stream": True}, signal.SIGKILL)

    def test_killed_within_a_message_of_anthropic(self):
        self.continued(ANTHROPIC, {"model": "m", "messages": MESSAGES, "max_tokens": 400, "ignore_eos": True, "seed": 4, "stream": True}, signal.SIGKILL)

    def test_frozen(self):
        """Its streams go on elsewhere after 3 s, those that cannot end with an error, and nothing new goes there."""
        body = {"prompt": "Tom had a", "max_tokens": 1500, "ignore_eos": True, "seed": 9, "stream": True}
        direct = self.nodes["b"].post(TEXT, body)
        self.addCleanup(self.router.post, "/v1/cluster/undrain?node=b", {})
        self.assertEqual(self.router.post("/v1/cluster/drain?node=b", {}).status, 200)
        logged, node, first = self.begin(TEXT, {**LOGGED, "stream": True})
        going, other, begun = self.begin(TEXT, body)
        self.assertIs(other, node)
        node.process.send_signal(signal.SIGSTOP)
        try:
            self.assertEqual(self.router.post("/v1/cluster/undrain?node=b", {}).status, 200)
            self.assertEqual(text_of(begun + going.read()), text_of(direct.body))
            last = data_of(first + logged.read())[-1]
            self.assertIn("failed", json.loads(last)["error"]["message"])
            self.assertEqual(self.router.post(TEXT, {"prompt": "Tom", "max_tokens": 2}).headers["x-reprise-node"], "b")
            self.assertEqual(self.router.cluster()["a"]["health"], "dead")
            put = self.router.ask("PUT", "/v1/schemas/cities", CITIES)  # waits for no one who is dead
            self.assertEqual((put.status, put.json["nodes"]), (200, ["b"]))
        finally:
            node.process.send_signal(signal.SIGCONT)
        self.router.wait_well("a")
        self.assertEqual(node.get("/v1/schemas/cities").status, 200)
        node.wait_idle()
        self.assertEqual(self.router.ask("DELETE", "/v1/schemas/cities").status, 200)

    def test_killed_within_a_long_prefill(self):
        """The router keeps the stream alive; nothing of the answer has come, so that another node can begin it anew, without marks, too."""
        slow = [Node(self.secret, name, "--mock", "--mock-speed", "300", "--mock-step", "1", "--keep-alive", "1") for name in ("c", "d")]
        for node in slow:
            self.addCleanup(node.stop)
        router = self.router_of([node.wait_ready() for node in slow], "--keep-alive", "1")
        router.wait_well("c", "d")
        body = {"prompt": "Tom had a ball. " * 80, "max_tokens": 5, "ignore_eos": True, "seed": 3, "logprobs": 1, "stream": True}
        direct = self.nodes["b"].post(TEXT, body)
        c = router.connection()
        self.addCleanup(c.close)
        c.request("POST", TEXT, body=json.dumps(body), headers={"Content-Type": "application/json"})
        reply = c.getresponse()
        for _ in range(3):
            self.assertEqual(reply.readline() + reply.readline(), b": keep-alive\n\n")
        next(node for node in slow if router.cluster()[node.name]["sent"]).end(signal.SIGKILL)
        self.assertEqual(text_of(reply.read()), text_of(direct.body))
        counts = router.metrics()
        self.assertEqual((counts["reprise_route_retries_total"], counts["reprise_route_continuations_total"]), (1, 0))

    def test_a_tenants_limit(self):
        """A node's 429 is about the tenant: it goes to other nodes, and the node gets the next requests as before; nowhere taken, it is the node's reply."""
        answer = (b"HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\nRetry-After: 7\r\nContent-Length: 30\r\n\r\n"
                  b'{"error":{"message":"enough"}}')
        false = FalseNode(self.nodes["b"], answer)
        self.addCleanup(false.stop)
        router, body = self.router_of([false, self.nodes["a"]], "--policy", "round-robin"), {"prompt": "Tom had a", "max_tokens": 2}
        router.wait_well("false", "a")
        replies = [router.post(TEXT, {**body, "stream": i % 2 == 0}) for i in range(8)]
        self.assertEqual({(r.status, r.headers["x-reprise-node"]) for r in replies}, {(200, "a")})
        self.assertGreaterEqual(false.n_asked, 7)  # the other node is next after each refusal
        self.assertEqual(router.metrics()["reprise_route_retries_total"], 0)
        router = self.router_of([false])
        router.wait_well("false")
        for _ in range(2):
            reply = router.post(TEXT, body)
            self.assertEqual((reply.status, reply.headers["Retry-After"], reply.json), (429, "7", {"error": {"message": "enough"}}))

    def test_a_deadline_is_the_nodes(self):
        """What a node has of an answer at its deadline reaches the client, and so does a node's 504."""
        reply = self.router.post(TEXT, {"prompt": "Tom had a", "max_tokens": 8000, "ignore_eos": True, "deadline_ms": 1500})
        self.assertEqual(reply.status, 200, reply.body)
        self.assertTrue(0 < reply.json["usage"]["completion_tokens"] < 8000, reply.json["usage"])
        body = b'{"error":{"message":"no token"}}'
        false = FalseNode(self.nodes["b"], b"HTTP/1.1 504 Timeout\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        self.addCleanup(false.stop)
        router = self.router_of([false])
        router.wait_well("false")
        for stream in (False, True):
            reply = router.post(TEXT, {"prompt": "Tom had a", "max_tokens": 8, "deadline_ms": 600000, "stream": stream})
            self.assertEqual((reply.status, reply.body), (504, body))

    def test_a_malformed_mark(self):
        """What a stream had before it, in the same piece, reaches the client; another node continues right after it."""
        false = WrongMarks(self.nodes["b"], b"")
        self.addCleanup(false.stop)
        router = self.router_of([false, self.nodes["a"]], "--policy", "round-robin")
        router.wait_well("false", "a")
        body = {"prompt": "Tom had a", "max_tokens": 400, "ignore_eos": True, "seed": 9, "stream": True}
        direct = self.nodes["a"].post(TEXT, body)
        replies = [router.post(TEXT, body) for _ in range(4)]
        self.assertEqual([text_of(r.body) for r in replies], [text_of(direct.body)] * 4)
        self.assertEqual(router.metrics()["reprise_route_continuations_total"], false.n_asked)
        self.assertGreater(false.n_asked, 0)

    def test_a_limit_and_a_stream_that_breaks(self):
        """The reply is the refusal, with its status: nothing of the stream, which had no mark yet, has reached the client."""
        said = b'{"error":{"message":"enough"}}'
        limited = FalseNode(self.nodes["a"], b"HTTP/1.1 429 Limited\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(said) + said)
        broken = FalseNode(self.nodes["b"], b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nx-reprise-marks: 1\r\nContent-Length: 999\r\n\r\ndata: {}\n\n")
        limited.listed = limited.listed.replace("false=", "limited=")
        for node in (limited, broken):
            self.addCleanup(node.stop)
        router = self.router_of([limited, broken], "--policy", "round-robin")
        router.wait_well("false", "limited")
        for _ in range(4):
            reply = router.post(TEXT, {"prompt": "Tom had a", "max_tokens": 4, "stream": True})
            self.assertEqual((reply.status, reply.body), (429, said))

    def test_tokens_without_frames(self):
        """A stream that breaks after a mark without frames is begun anew elsewhere, without that mark's tokens."""
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nx-reprise-marks: 1\r\nContent-Length: 9999\r\n\r\n"
        false = FalseNode(self.nodes["b"], head + b": r 0 0" + b" 7" * 100 + b"\n\n")
        self.addCleanup(false.stop)
        router = self.router_of([false, self.nodes["a"]], "--policy", "round-robin")
        router.wait_well("false", "a")
        replies = [router.post(TEXT, {"prompt": "Tom had a", "max_tokens": 40, "ignore_eos": True, "stream": True}) for _ in range(2)]
        reports = [router.explain(reply) for reply in replies]
        self.assertIn(2, [len(r["attempts"]) for r in reports])
        self.assertEqual({(r["node"], r["continuations"], r["answer_tokens"] <= 40) for r in reports}, {("a", 0, True)})

    def test_nonsense(self):
        body = {"prompt": "Tom had a", "max_tokens": 4, "temperature": 0}
        right = self.nodes["a"].post(TEXT, body).json["choices"]
        for answer, more in ((b"nonsense\r\n\r\n", b""), (b"", b""), (b"HTTP/1.1 200 OK\r\n", b"X-A: " + b"b" * 1000 + b"\r\n"),
                             (b"HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\n\r\n", b"no " * 10000), (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", b""),
                             (b"HTTP/1.1 500 Internal\r\nContent-Length: 0\r\n\r\n", b""), (b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nRetry-After: 1\r\n\r\n", b"")):
            false = FalseNode(self.nodes["b"], answer, more)
            self.addCleanup(false.stop)
            router = self.router_of([false, self.nodes["a"]], "--policy", "round-robin")
            router.wait_well("false", "a")
            replies = [router.post(TEXT, {**body, "stream": stream}) for stream in (False, True, False, True)]
            self.assertEqual({r.status for r in replies}, {200}, [r.body for r in replies])
            self.assertEqual({r.headers["x-reprise-node"] for r in replies}, {"a"})
            self.assertEqual(replies[0].json["choices"], right)
            self.assertGreater(false.n_asked, 0)


if __name__ == "__main__":
    unittest.main()
