#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A node of a cluster (docs/cluster.md): who may use its port, what a route says, the span stream against what the store does, draining, ids of what
it stores, and wrong options. cluster_client.py has a second implementation of signatures and frames."""
import hashlib
import json
import os
import signal
import struct
import subprocess
import tempfile
import time
import unittest

from cluster_client import CHANGES, DIGEST, LOAD, SECRET, SNAPSHOT, Node, SpanStream, framed, signature
from server_process import MODEL, PROGRAM, WAIT_S

CHAT = "/v1/chat/completions"
OTHER = bytes(32)


def question(text, **more):
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 4, **more}


def body_of(**more):
    return json.dumps(question("Hello", **more)).encode()


class Port(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.node = Node(name="node-a").wait_ready()
        cls.addClassCleanup(cls.node.stop)

    def refused(self, reply, status, says=""):
        self.assertEqual(reply.status, status, reply.body)
        self.assertIn(says, reply.json["error"]["message"])

    def test_signature(self):
        node, last, body = self.node, len(self.node.addresses) - 1, body_of()
        good = signature("POST", CHAT, body)
        self.assertEqual(node.ask("POST", CHAT, body, {"x-reprise-cluster": good}, address=last).status, 200)
        wrong = [None, "", "1;", good[:-1], good.upper(), good.replace("1;", "2;", 1), signature("POST", CHAT, body, secret=OTHER),
                 signature("GET", CHAT, body), signature("POST", "/v1/completions", body), signature("POST", CHAT, body + b" "),
                 signature("POST", CHAT + "?a=1", body), signature("POST", CHAT, body, route="x"), signature("POST", CHAT, body, resume="x")]
        for value in wrong:
            reply = node.ask("POST", CHAT, body, {} if value is None else {"x-reprise-cluster": value}, address=last)
            self.refused(reply, 401, "signature")
        for path in ("/livez", "/readyz", "/metrics", "/v1/models", "/", "/v1/cluster/stream", "/nowhere"):
            self.refused(node.get(path, address=last), 401, "signature")
        self.assertEqual(node.relay("GET", "/livez").status, 200)
        self.assertEqual(node.relay("GET", "/v1/models").status, 200)
        self.assertEqual(node.relay("GET", "/nowhere").status, 404)
        self.assertEqual(node.relay("GET", "/readyz?a=%41%2f&b=c+d").status, 200)  # the target as it was sent

    def test_each_request_is_answered_once(self):
        node, last, body = self.node, len(self.node.addresses) - 1, body_of()
        stream, route = "/v1/cluster/stream?epoch=0&after=0", node.route()
        for method, path, body, more in (("POST", CHAT, body, ""), ("POST", CHAT, body, route), ("PUT", "/v1/cluster/schemas/once?tenant=t", b"<schema", route),
                                         ("GET", stream, b"", "")):
            headers = {"x-reprise-cluster": signature(method, path, body, more)} | ({"x-reprise-route": more} if more else {})
            if path == stream:
                first = SpanStream(node, 0, 0)  # signs by itself
                first.close()
                headers["x-reprise-cluster"] = first.signature
            else:
                self.assertIn(node.ask(method, path, body, headers, address=last).status, (200, 400))
            reply = node.ask(method, path, body or None, headers, address=last)
            self.refused(reply, 409, "sent before")
            self.assertEqual(reply.headers["x-reprise-refusal"], "replayed")

    def test_requests_that_it_works_on(self):
        """A line for each request of a router, until its reply has been read."""
        node, body = self.node, json.dumps({"prompt": "Tom had", "max_tokens": 1900, "ignore_eos": True, "stream": True, "logprobs": 20}).encode()
        self.assertEqual(node.relay("GET", "/v1/cluster/requests").body, b"")
        connection, _ = node.signed("POST", "/v1/completions", body, route=node.route(id="req-life"))
        id, quiet_ms = node.relay("GET", "/v1/cluster/requests").body.decode().split()
        self.assertEqual(id, "req-life")
        self.assertLess(int(quiet_ms), 600000)
        connection.close()
        while node.relay("GET", "/v1/cluster/requests").body:
            pass

    def test_schemas_are_of_one_process(self):
        """A recording of a change is of no use after the node has begun anew. An older change does not undo a later one."""
        node, path = self.node, "/v1/cluster/schemas/s"
        xml = {"Content-Type": "application/xml"}
        text = "<schema name='s'><system>{}</system></schema>"

        def change(method, at, body=b"", **more):
            return node.relay(method, f"{path}?tenant=t&prefill=false&at={at}", body, **({"route": node.route(), "headers": xml} | more))

        self.refused(node.relay("PUT", f"{path}?tenant=t", text.format(1).encode(), headers=xml), 400, "x-reprise-route")
        self.refused(change("PUT", 5, text.format(1).encode(), route=node.route(epoch=1)), 409, "another process")
        self.assertEqual(change("PUT", 5, text.format(1).encode()).status, 200)
        self.refused(change("PUT", 4, text.format(2).encode()), 409, "later change")
        self.refused(change("DELETE", 4), 409, "later change")
        self.assertEqual(change("PUT", 5, text.format(3).encode()).status, 200)  # it is done
        self.assertEqual(change("DELETE", 6).status, 200)
        self.refused(change("PUT", 5, text.format(4).encode()), 409, "later change")  # removals are remembered
        self.assertEqual(change("PUT", 7, text.format(5).encode()).status, 200)
        for at in ("-1", "x", 2**63):
            self.assertEqual(change("PUT", at, text.format(6).encode()).status, 400)
        nonce = "0123456789abcdef" * 2
        for target, said in (("/v1/cluster/schemas", {"tenant": "t", "name": "s", "changed": 7, "removed": False}), (path + "?tenant=t", None)):
            listed = node.relay("GET", target, nonce=nonce)
            body, tag = listed.body.rsplit(b"\n", 1)
            parts = [b"reprise reply 1", bytes.fromhex(nonce), body]
            self.assertEqual(tag.decode(), hashlib.blake2b(framed(parts), key=SECRET, digest_size=16).hexdigest())
            if said:
                self.assertIn(said, json.loads(body)["data"])
            else:
                self.assertEqual(json.loads(body), {"changed": 7, "pml": text.format(5)})
            nonce = nonce[::-1]
        self.refused(node.get("/v1/cluster/schemas"), 404, "cluster's port")
        self.assertEqual(change("DELETE", 8).status, 200)

    def test_what_is_left_of_a_deadline(self):
        node, body = self.node, question("Hello", max_tokens=1500, ignore_eos=True, deadline_ms=600000)
        self.refused(node.relay("POST", CHAT, {**body, "messages": body["messages"] * 60}, route=node.route() + ";left=1"), 504, "deadline")
        reply = node.relay("POST", CHAT, body, route=node.route() + ";left=100")
        self.assertTrue(reply.status == 504 or reply.json["usage"]["completion_tokens"] < 1500, reply.body)
        self.assertEqual(node.relay("POST", CHAT, question("Hello"), route=node.route() + ";left=600000").status, 200)

    def test_header_of_the_route_is_signed(self):
        node, last, body = self.node, len(self.node.addresses) - 1, body_of()
        route = node.route(id="mine")
        headers = {"x-reprise-cluster": signature("POST", CHAT, body, route=route), "x-reprise-route": node.route(id="yours")}
        self.refused(node.ask("POST", CHAT, body, headers, address=last), 401, "signature")

    def test_other_ports(self):
        for name in ("x-reprise-route", "x-reprise-resume"):
            self.refused(self.node.post(CHAT, question("Hello"), headers={name: "1;2;3"}), 400, "router")
        self.refused(self.node.get("/v1/cluster/stream"), 404, "cluster's port")
        self.assertEqual(self.node.post(CHAT, question("Hello")).status, 200)

    def test_host_and_origin_do_not_matter(self):
        """A page cannot sign; a router may pass its client's headers on."""
        reply = self.node.relay("POST", CHAT, question("Hello"), headers={"Host": "elsewhere.example", "Origin": "http://elsewhere.example"})
        self.assertEqual(reply.status, 200, reply.body)

    def test_route(self):
        node = self.node
        reply = node.relay("POST", CHAT, question("Hello", temperature=1), route=node.route(id="Some-id_1", created=1234567890))
        self.assertEqual((reply.headers["x-request-id"], reply.json["id"], reply.json["created"]), ("Some-id_1", "chatcmpl-Some-id_1", 1234567890))
        hot = question("Hello", temperature=2, max_tokens=20)
        texts = [node.relay("POST", CHAT, body, route=node.route(seed=seed)).json["choices"][0]["message"]["content"]
                 for body, seed in ((hot, 1), (hot, 1), (hot, 2), ({**hot, "seed": 1}, 2))]
        self.assertEqual(texts[0], texts[1])
        self.assertEqual(texts[0], texts[3])  # the request's own goes first
        self.assertNotEqual(texts[0], texts[2])
        self.assertIn("Some-id_1", [line.get("request") for line in node.log()])

    def test_epoch(self):
        node = self.node
        reply = node.relay("POST", CHAT, question("Hello"), route=node.route(epoch=1))
        self.refused(reply, 409, "another process")
        self.assertEqual(reply.headers["x-reprise-refusal"], "other-process")
        for route in ("", "epoch=1", node.route() + ";x=1", node.route(id="a b")):
            if route:
                self.refused(node.relay("POST", CHAT, question("Hello"), route=route), 400, "malformed")

    def test_ids_have_the_tag(self):
        node, tag = self.node, hashlib.blake2b(b"node-a", digest_size=32).hexdigest()[:8]
        reply = node.relay("POST", "/v1/responses", {"input": "Hello", "max_output_tokens": 2}, route=node.route(id="r1"))
        self.assertEqual(reply.json["id"], f"resp_{tag}_r1", reply.body)
        self.assertEqual(node.get(f"/v1/responses/{reply.json['id']}").json["id"], reply.json["id"])
        self.assertEqual(node.post("/v1/responses", {"input": "More", "max_output_tokens": 2, "previous_response_id": reply.json["id"]}).status, 200)
        self.assertTrue(node.post("/v1/responses", {"input": "Hello", "max_output_tokens": 2}).json["id"].startswith(f"resp_{tag}_"))
        content = {"model": "models/default", "contents": [{"role": "user", "parts": [{"text": "Hello"}]}]}
        name = node.relay("POST", "/v1beta/cachedContents", content, route=node.route(id="c1")).json["name"]
        self.assertEqual(name, f"cachedContents/{tag}_c1")
        self.assertEqual(node.get(f"/v1beta/{name}").status, 200)


class Stream(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.node = Node("--log", "off", "--store", cls.folder.name).wait_ready()
        cls.addClassCleanup(cls.node.stop)

    def open(self, epoch=0, after=0):
        stream = self.node.stream(epoch, after)
        self.addCleanup(stream.close)
        return stream

    def until_digest_agrees(self, stream, count):
        """The frames until a digest has that count of names, and that sum, at least."""
        kinds = []
        while True:
            kind, body = stream.frame()
            kinds.append(kind)
            if kind != DIGEST:
                continue
            seq, n, _ = struct.unpack("<3Q", body)
            self.assertEqual((seq, n), (stream.seq, len(stream.names)))
            if n >= count:
                return kinds

    def test_hello(self):
        hello = self.open().hello
        self.assertEqual((hello["version"], hello["model"], hello["kv_format"], hello["max_queue"], len(hello["identity"])),
                         (1, "reprise-mini", "f16", 256, 64))
        self.assertEqual(hello["node"], self.node.addresses[-1].removeprefix("http://"))
        self.assertEqual(self.open().hello["epoch"], hello["epoch"])

    def test_changes(self):
        stream = self.open()
        self.until_digest_agrees(stream, 0)
        before = len(stream.names)
        self.assertEqual(self.node.post(CHAT, question("changes " * 200)).status, 200)
        kinds = self.until_digest_agrees(stream, before + 3)
        self.assertNotIn(SNAPSHOT, kinds)
        self.assertIn(CHANGES, kinds)
        other = self.open()  # a snapshot has the same
        self.assertIn(SNAPSHOT, self.until_digest_agrees(other, len(stream.names)))
        self.until_digest_agrees(stream, len(other.names))  # what was kept after its last digest
        self.assertEqual(set(other.names), set(stream.names))

    def test_going_on(self):
        """A reader that comes back gets what it missed; of another epoch, or ahead of the node, all names."""
        stream = self.open()
        self.until_digest_agrees(stream, 0)
        stream.close()
        self.assertEqual(self.node.post(CHAT, question("going on " * 150)).status, 200)
        again = self.open(stream.hello["epoch"], stream.seq)
        again.names = dict(stream.names)
        kinds = self.until_digest_agrees(again, len(stream.names) + 1)
        self.assertNotIn(SNAPSHOT, kinds)
        for epoch, after in ((stream.hello["epoch"] ^ 1, again.seq), (stream.hello["epoch"], again.seq + 1000)):
            self.assertIn(SNAPSHOT, self.until_digest_agrees(self.open(epoch, after), 1))

    def test_load(self):
        stream = self.open()
        stream.next(LOAD)
        body = json.dumps(question("Hello", max_tokens=1500, stream=True, ignore_eos=True)).encode()
        connection, response = self.node.signed("POST", CHAT, body)
        self.assertEqual(response.status, 200)
        while stream.loads[-1]["running"] == 0:
            stream.next(LOAD)
        connection.close()
        while stream.loads[-1]["running"] > 0:
            stream.next(LOAD)
        self.assertFalse(stream.loads[-1]["draining"])

    def test_sign_of_life(self):
        """Loads and digests come although nothing happens."""
        stream = self.open()
        self.until_digest_agrees(stream, 0)
        for _ in range(2):
            stream.next(DIGEST)
        self.assertGreaterEqual(len(stream.loads), 2)

    def test_many(self):
        streams = []
        try:
            while len(streams) < 100:
                streams.append(self.node.stream())
        except AssertionError as refused:
            self.assertIn("503", str(refused))
        self.assertLessEqual(len(streams), 64)
        self.assertGreater(len(streams), 50)
        for stream in streams:
            stream.next(DIGEST)
            stream.close()
        self.wait_for_free_streams(len(streams) // 2)

    def wait_for_free_streams(self, n):
        """A node sees that a stream was closed when it writes to it: until then the next test could be refused."""
        end, streams = time.monotonic() + WAIT_S, []
        while len(streams) < n:
            try:
                streams.append(self.node.stream())
            except AssertionError as refused:
                self.assertIn("503", str(refused))
                self.assertLess(time.monotonic(), end)
                time.sleep(0.1)
        for stream in streams:
            stream.close()

    def test_parameters(self):
        for query in ("epoch=x", "after=-1", "after=1x", "epoch=10000000000000000", "after="):
            self.assertEqual(self.node.relay("GET", f"/v1/cluster/stream?{query}").status, 400, query)


class Restart(unittest.TestCase):
    def test_names_on_disk(self):
        """Names of records on disk are known before the node is ready; the epoch is another one."""
        with tempfile.TemporaryDirectory() as folder:
            epochs, names = [], []
            for _ in range(2):
                node = Node("--log", "off", "--store", folder).wait_ready()
                try:
                    stream = node.stream()
                    stream.next(DIGEST)
                    epochs.append(stream.hello["epoch"])
                    names.append(dict(stream.names))
                    self.assertEqual(node.post(CHAT, question("restart " * 200)).status, 200)
                    stream.close()
                finally:
                    node.stop()  # its store is written
        self.assertEqual(names[0], {})
        self.assertGreaterEqual(len(names[1]), 3)
        self.assertEqual({tiers & 2 for tiers in names[1].values()}, {2})
        self.assertNotEqual(*epochs)


class Draining(unittest.TestCase):
    def test_by_an_operator(self):
        node = Node("--log", "off").wait_ready()
        self.addCleanup(node.stop)
        stream = node.stream()
        self.addCleanup(stream.close)
        path, body = "/v1/cluster/drain", json.dumps(question("Hello", max_tokens=300, stream=True, ignore_eos=True)).encode()
        connection, response = node.signed("POST", CHAT, body)
        self.assertEqual(response.status, 200)
        self.assertEqual(node.post(path, {}).json["draining"], True)
        while not stream.loads or not stream.loads[-1]["draining"]:
            stream.next(LOAD)
        for ask, refusal in ((node.post, None), (lambda *a: node.relay("POST", *a), "draining")):
            reply = ask(CHAT, question("Hello"))
            self.assertEqual((reply.status, reply.headers["Retry-After"], reply.headers["x-reprise-refusal"]), (503, "5", refusal), reply.body)
        self.assertEqual((node.get("/readyz").status, node.get("/readyz").body, node.get("/health").status), (503, b"draining\n", 503))
        self.assertEqual((node.get("/livez").status, node.get("/v1/models").status), (200, 200))
        self.assertTrue(response.read().endswith(b"data: [DONE]\n\n"))
        connection.close()
        self.assertEqual(node.post(path, {"draining": False}).json["draining"], False)
        while stream.loads[-1]["draining"]:
            stream.next(LOAD)
        self.assertEqual((node.get("/readyz").status, node.post(CHAT, question("Hello")).status), (200, 200))
        for wrong in ({"draining": 1}, []):
            self.assertEqual(node.post(path, wrong).status, 400)

    def test_by_a_signal(self):
        """Running streams end as they would, and routers see that the node drains, also those that connect now."""
        node = Node("--log", "off").wait_ready()
        self.addCleanup(node.stop)
        stream = node.stream()
        body = json.dumps(question("Hello", max_tokens=1500, stream=True, ignore_eos=True)).encode()
        connection, response = node.signed("POST", CHAT, body)
        response.read(1)
        node.process.send_signal(signal.SIGTERM)
        while not stream.loads or not stream.loads[-1]["draining"]:
            stream.next(LOAD)
        self.assertTrue(response.read().endswith(b"data: [DONE]\n\n"))
        with self.assertRaises(EOFError):
            stream.next(SNAPSHOT)
            stream.next(SNAPSHOT)
        for one in (stream, connection):
            one.close()
        self.assertEqual(node.process.wait(WAIT_S), 0)


    def test_shutdown_delay(self):
        """After SIGTERM, load balancers and routers see at once that the server will go, and requests are still answered."""
        node = Node("--log", "off", "--shutdown-delay", "3600000").wait_ready()
        self.addCleanup(node.stop)
        stream = node.stream()
        node.process.send_signal(signal.SIGTERM)
        while node.get("/readyz").status != 503:
            pass
        while not stream.loads or not stream.loads[-1]["draining"]:
            stream.next(LOAD)
        self.assertEqual(node.get("/readyz").body, b"draining\n")
        self.assertEqual(node.post(CHAT, question("Hello")).status, 200)
        stream.close()
        self.assertEqual(node.end(signal.SIGKILL), -signal.SIGKILL)


class Options(unittest.TestCase):
    def fails(self, *options, says, model=("-m", MODEL)):
        run = subprocess.run([PROGRAM, "serve", *model, "--port", "0", *options], capture_output=True, text=True, timeout=WAIT_S)
        self.assertEqual(run.returncode, 2, run.stderr)
        self.assertIn(says, run.stderr)

    def secret(self, bytes, mode=0o600):
        f = tempfile.NamedTemporaryFile()
        f.write(bytes)
        f.flush()
        os.chmod(f.name, mode)
        self.addCleanup(f.close)
        return f.name

    def test_wrong(self):
        good, listen = self.secret(SECRET), ("--cluster-listen", "127.0.0.1:0")
        self.fails(*listen, says="--cluster-secret")
        self.fails("--cluster-secret", good, says="--cluster-listen")
        self.fails("--cluster-name", "a", says="--cluster-listen")
        self.fails(*listen, "--cluster-secret", good, says="single model", model=("-m", f"a={MODEL}", "-m", f"b={MODEL}"))
        self.fails(*listen, "--cluster-secret", self.secret(b"short"), says="no secret")
        self.fails(*listen, "--cluster-secret", self.secret(SECRET, 0o644), says="others may read")
        self.fails(*listen, "--cluster-secret", good, "--cluster-name", "a b", says="cluster_name")
        self.fails(*listen, "--cluster-secret", good, "--cluster-name", "a" * 64, says="cluster_name")
        for address in ("127.0.0.1", "127.0.0.1:x", ":80", "127.0.0.1:70000"):
            self.fails("--cluster-listen", address, "--cluster-secret", good, says="ADDRESS:PORT")

    def test_unix_and_keys(self):
        """A Unix socket; with keys, requests on the cluster's port need one as well, and the stream does not."""
        with tempfile.TemporaryDirectory() as folder:
            key = "operators-key-0123456789"
            hash = subprocess.run([PROGRAM, "serve", "--hash-key"], input=key, capture_output=True, text=True, check=True).stdout.strip()
            keys, path = os.path.join(folder, "keys"), os.path.join(folder, "cluster.sock")
            with open(keys, "w") as f:
                f.write(f"{hash} tenant=t rights=request,operate\n")
            os.chmod(keys, 0o600)
            node = Node("--log", "off", "--api-keys", keys, "--cluster-listen", f"unix:{path}").wait_ready()
            self.addCleanup(node.stop)
            self.assertEqual(node.addresses[-1], f"unix:{path}")
            self.assertEqual(node.relay("POST", CHAT, question("Hello")).status, 401)
            self.assertEqual(node.relay("POST", CHAT, question("Hello"), headers={"Authorization": f"Bearer {key}"}).status, 200)
            stream = node.stream()
            self.assertEqual(stream.hello["node"], f"unix:{path}")
            stream.next(DIGEST)
            stream.close()


if __name__ == "__main__":
    unittest.main()
