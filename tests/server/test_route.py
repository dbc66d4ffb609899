#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise route`: two nodes and a router: every dialect answers as a node does; requests go where their KV is; nodes fail, drain, restart; keys."""
import gzip
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from router_process import Node, Router, make_secret, text_of_stream
from server_process import PROGRAM, bearer, in_parallel, key_line

QUESTION = "Tom had a red ball and a blue kite. What did Tom have?"
MESSAGES = [{"role": "user", "content": QUESTION}]
CITIES = """<schema name="cities"><system>You are a guide who knows these cities well, and who answers in one short sentence.</system><user>
<module name="miami">Welcome to Miami. For surf, go to Haulover. For food, go to the west of the city, where people come from all islands.</module>
<module name="lisbon">Lisbon is seen on foot. The hills are steep, and the trams are yellow, small, old, loud, and full at all times.</module>
</user></schema>"""
PROMPT = "<prompt schema='cities'><{0}/> Where is surf?</prompt>"
LONG = {"prompt": "Tom had a", "temperature": 0, "max_tokens": 1900, "ignore_eos": True, "stream": True}


def responses_text(r):
    return "".join(part["text"] for item in r["output"] for part in item.get("content", []))


# path, body, the text of a whole answer, the text of a frame; stream: its body, or its path
DIALECTS = {
    "chat": ("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 24, "seed": 5}, lambda r: r["choices"][0]["message"]["content"],
             lambda f: f["choices"][0]["delta"].get("content") if f["choices"] else None),
    "text": ("/v1/completions", {"prompt": QUESTION, "max_tokens": 24, "seed": 5}, lambda r: r["choices"][0]["text"], lambda f: f["choices"][0]["text"]),
    "responses": ("/v1/responses", {"input": QUESTION, "max_output_tokens": 24, "seed": 5}, responses_text,
                  lambda f: f["delta"] if f["type"] == "response.output_text.delta" else None),
    "anthropic": ("/v1/messages", {"model": "m", "messages": MESSAGES, "max_tokens": 24, "seed": 5}, lambda r: r["content"][0]["text"],
                  lambda f: f["delta"].get("text") if f["type"] == "content_block_delta" else None),
    "llama.cpp": ("/completion", {"prompt": QUESTION, "n_predict": 24, "seed": 5}, lambda r: r["content"], lambda f: f["content"]),
    "ollama chat": ("/api/chat", {"model": "m", "messages": MESSAGES, "stream": False, "options": {"num_predict": 24, "seed": 5}},
                    lambda r: r["message"]["content"], lambda f: f["message"]["content"]),
    "ollama": ("/api/generate", {"model": "m", "prompt": QUESTION, "stream": False, "options": {"num_predict": 24, "seed": 5}},
               lambda r: r["response"], lambda f: f["response"]),
    "interactions": ("/v1/interactions", {"input": QUESTION, "generation_config": {"max_output_tokens": 24, "seed": 5}}, lambda r: r["steps"][0]["content"][0]["text"],
                     lambda f: f["delta"]["text"] if f["event_type"] == "step.delta" else None),
    "gemini": ("/v1/models/m:generateContent", {"contents": [{"parts": [{"text": QUESTION}]}], "generationConfig": {"maxOutputTokens": 24, "seed": 5}},
               lambda r: r["candidates"][0]["content"]["parts"][0]["text"],
               lambda f: "".join(p.get("text", "") for p in f["candidates"][0].get("content", {}).get("parts", []))),
}


class Cluster(unittest.TestCase):
    """Two nodes and a router for all tests of a class."""
    node_options = ()
    router_options = ()

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        cls.secret = make_secret(folder.name)
        cls.prepare()
        cls.nodes = {}
        for name in ("a", "b"):
            cls.nodes[name] = Node(cls.secret, name, *cls.node_options)
            cls.addClassCleanup(cls.nodes[name].stop)
        for node in cls.nodes.values():
            node.wait_ready()
        cls.router = Router(cls.secret, cls.nodes.values(), *cls.router_options)
        cls.addClassCleanup(cls.router.stop)
        cls.router.wait_ready()
        cls.wait_well()

    @classmethod
    def prepare(cls):
        pass

    @classmethod
    def wait_well(cls):
        cls.router.wait_well("a", "b")

    def stay(self, router, story, home):
        """The router knows that home has this prefix, and sends requests there unless it is busier, or the other one has it, too; a reply from
        there, or the last one."""
        for turn in range(12):
            reply = router.post("/v1/completions", {"prompt": f"{story} And turn {turn}", "max_tokens": 4, "temperature": 0})
            self.assertEqual(reply.status, 200, reply.body)
            nodes = {c["node"]: c for c in router.explain(reply)["candidates"]}
            there, chosen = nodes[home], nodes[reply.headers["x-reprise-node"]]
            self.assertGreater(there["held_tokens"], 256)
            if chosen is there:
                self.assertGreater(reply.json["usage"]["prompt_tokens_details"]["cached_tokens"], 256)
                break
            self.assertTrue(there.get("excluded") or chosen["held_tokens"] > 256 or chosen["ttft_ms"] <= there["ttft_ms"], nodes)
        return reply

    def refused(self, reply, status, says):
        self.assertEqual(reply.status, status, reply.body)
        self.assertIn(says, reply.json["error"]["message"])


class Routing(Cluster):
    def test_dialects(self):
        for name, (path, body, whole, delta) in DIALECTS.items():
            with self.subTest(name):
                direct, routed = self.nodes["a"].post(path, body), self.router.post(path, body)
                self.assertEqual((direct.status, routed.status), (200, 200), direct.body + routed.body)
                self.assertIn(routed.headers["x-reprise-node"], self.nodes)
                self.assertEqual(whole(routed.json), whole(direct.json))
                self.assertEqual(routed.headers["Content-Type"], direct.headers["Content-Type"])
                if name == "gemini":
                    stream = self.router.post(path.replace("generate", "streamGenerate") + "?alt=sse", body)
                else:
                    stream = self.router.post(path, {**body, "stream": True})
                self.assertEqual(stream.status, 200)
                self.assertNotIn(b"\n: r ", stream.body)
                self.assertEqual(text_of_stream(stream, delta), whole(direct.json))
                self.assertIn(stream.headers["x-reprise-node"], self.nodes)

    def test_encoded_bodies(self):
        """The router decodes; a node gets the plain body, without Content-Encoding, as JSON whatever the client's type was."""
        path, body, whole, _ = DIALECTS["text"]
        plain = whole(self.router.post(path, body).json)
        encoded = gzip.compress(json.dumps(body).encode())
        for headers in ({"Content-Encoding": "gzip"}, {"Content-Encoding": "gzip", "Content-Type": "application/x-www-form-urlencoded"},
                        {"Content-Encoding": "gzip", "Content-Type": ""}):
            for streamed in (False, True):
                data = gzip.compress(json.dumps({**body, "stream": True}).encode()) if streamed else encoded
                reply = self.router.post(path, data, headers=headers)
                self.assertEqual(reply.status, 200, reply.body)
                self.assertIn(reply.headers["x-reprise-node"], self.nodes)
                self.assertEqual(text_of_stream(reply, DIALECTS["text"][3]) if streamed else whole(reply.json), plain)
        self.assertEqual(self.router.ask("PUT", "/v1/schemas/packed", gzip.compress(CITIES.replace('"cities"', '"packed"').encode()), headers={"Content-Encoding": "gzip"}).status, 200)
        self.assertEqual(self.router.ask("DELETE", "/v1/schemas/packed").status, 200)
        reply = self.router.post(path, encoded, headers={"Content-Encoding": "br"})
        self.assertEqual((reply.status, reply.headers["Accept-Encoding"]), (415, "gzip, deflate, zstd"))
        self.refused(self.router.post(path, encoded[:-1], headers={"Content-Encoding": "gzip"}), 400, "not valid gzip")

    def test_embeddings(self):
        for path, body in (("/v1/embeddings", {"input": ["a ball", "a kite"]}), ("/v1/rerank", {"query": "ball", "documents": ["a kite", "a ball"]})):
            direct, routed = self.nodes["a"].post(path, body), self.router.post(path, body)
            self.assertEqual(direct.status, 200, direct.body)
            self.assertEqual(routed.status, 200, routed.body)
            field = "data" if "data" in direct.json else "results"
            self.assertEqual(routed.json[field], direct.json[field])

    def test_what_the_router_answers(self):
        for path, body in (("/tokenize", {"content": QUESTION}), ("/apply-template", {"messages": MESSAGES}),
                           ("/v1/messages/count_tokens", {"model": "m", "messages": MESSAGES})):
            self.assertEqual(self.router.post(path, body).json, self.nodes["a"].post(path, body).json, path)
        self.assertEqual([m["id"] for m in self.router.get("/v1/models").json["data"]], [m["id"] for m in self.nodes["a"].get("/v1/models").json["data"]])
        self.assertEqual(self.router.get("/props").json["default_generation_settings"]["n_ctx"], 2048)
        for path in ("/livez", "/readyz", "/health", "/", "/openapi.json"):
            self.assertEqual(self.router.get(path).status, 200, path)

    def test_a_long_prefix_goes_where_it_is(self):
        story = " ".join(f"The {i}th child had {i} red balls, and a blue kite that flew over the hill." for i in range(40))
        first = self.router.post("/v1/completions", {"prompt": story, "max_tokens": 4, "temperature": 0})
        home = first.headers["x-reprise-node"]
        self.router.wait_names(home, 5)
        reply = self.stay(self.router, story, home)
        report = self.router.explain(reply)
        by_name = {c["node"]: c for c in report["candidates"]}
        other = next(name for name in self.nodes if name != home)
        self.assertGreater(by_name[home]["held_tokens"], 256)
        self.assertLess(by_name[other]["held_tokens"], by_name[home]["held_tokens"])
        self.assertLess(by_name[home]["ttft_ms"], by_name[other]["ttft_ms"])
        self.assertEqual((report["outcome"], report["node"], [a["node"] for a in report["attempts"]]), ("served", home, [home]))
        shown = subprocess.run([PROGRAM, "explain", reply.headers["x-request-id"], "--url", self.router.addresses[0]], capture_output=True, text=True, check=True)
        for words in (f"node         {home}", "held", "ttft ms", f"{home} ", "prompt       "):
            self.assertIn(words, shown.stdout)
        self.assertEqual(report["node_report"]["cached_tokens"], reply.json["usage"]["prompt_tokens_details"]["cached_tokens"])
        self.assertEqual(self.router.get("/v1/requests?limit=1").json["data"][0]["id"], reply.headers["x-request-id"])

    def test_errors(self):
        direct = self.nodes["a"].post("/v1/completions", {"prompt": "word " * 5000, "max_tokens": 4})
        routed = self.router.post("/v1/completions", {"prompt": "word " * 5000, "max_tokens": 4})
        self.assertEqual((routed.status, routed.json["error"]), (direct.status, direct.json["error"]))
        self.refused(self.router.post("/v1/completions", {"prompt": 3}), 400, "prompt")
        self.refused(self.router.get("/v1/cache"), 400, "?node=NAME: a, b")
        self.refused(self.router.get("/v1/cache?node=c"), 404, "the nodes are a, b")
        self.assertEqual(self.router.get("/v1/cache?node=b").json["object"], "cache")
        self.assertEqual(self.router.get("/slots?node=a").status, 200)
        begin = time.monotonic()  # no body is waited for
        self.assertEqual(self.router.ask("HEAD", "/slots?node=a").status, 200)
        self.assertLess(time.monotonic() - begin, 10)
        self.refused(self.router.get("/v1/nothing"), 404, "no route")
        self.refused(self.router.get("/v1/cluster/stream"), 404, "no route")
        self.refused(self.router.get("/v1/requests/000000000000000000000000/explain"), 404, "unknown request")

    def test_headers_of_a_router_are_not_a_client_s(self):
        reply = self.router.post("/v1/completions", {"prompt": "Tom", "max_tokens": 2},
                                 headers={"x-reprise-route": "epoch=1;id=mine;seed=1;created=1;marks=1", "x-reprise-cluster": "1;x;y", "x-reprise-resume": "0;0;0"})
        self.assertEqual(reply.status, 200, reply.body)
        self.assertNotEqual(reply.headers["x-request-id"], "mine")

    def test_stored_responses(self):
        first = self.router.post("/v1/responses", {"input": "Tom had a ball.", "max_output_tokens": 6, "temperature": 0})
        home, ref = first.headers["x-reprise-node"], first.json["id"]
        again = self.router.post("/v1/responses", {"input": "What did he have?", "previous_response_id": ref, "max_output_tokens": 6, "temperature": 0})
        self.assertEqual((again.status, again.headers["x-reprise-node"]), (200, home))
        self.assertGreater(again.json["usage"]["input_tokens"], first.json["usage"]["input_tokens"])
        self.assertEqual(self.router.get(f"/v1/responses/{ref}").json["output"], first.json["output"])
        self.assertEqual(self.router.ask("DELETE", f"/v1/responses/{ref}").status, 200)
        self.assertEqual(self.router.get(f"/v1/responses/{ref}").status, 404)
        self.refused(self.router.post("/v1/responses", {"input": "x", "previous_response_id": "resp_00000000_1"}), 404, "node that stores it")

    def test_stored_interactions(self):
        config = {"max_output_tokens": 6, "temperature": 0}
        first = self.router.post("/v1/interactions", {"input": "Tom had a ball.", "generation_config": config}).json
        again = self.router.post("/interactions", {"input": "What did he have?", "previous_interaction_id": first["id"], "generation_config": config}).json
        self.assertGreater(again["usage"]["total_cached_tokens"], 0)
        self.assertEqual(self.router.get(f"/v1/interactions/{first['id']}?include_input=true").json["input"][0]["content"][0]["text"], "Tom had a ball.")
        replayed = self.router.get(f"/v1/interactions/{first['id']}?stream=true")
        self.assertEqual((replayed.headers["Content-Type"], replayed.frames[-1]), ("text/event-stream", ("done", "[DONE]")))
        self.refused(self.router.post(f"/v1/interactions/{first['id']}/cancel", None), 400, "has ended")
        self.assertEqual(self.router.ask("DELETE", f"/v1/interactions/{first['id']}").status, 200)
        self.assertEqual(self.router.get(f"/v1/interactions/{first['id']}").status, 404)

    def test_cached_contents(self):
        made = self.router.post("/v1beta/cachedContents", {"model": "models/m", "contents": [{"role": "user", "parts": [{"text": "Tom had a ball. " * 20}]}]})
        self.assertEqual(made.status, 200, made.body)
        name = made.json["name"]
        self.assertIn(name, [c["name"] for c in self.router.get("/v1beta/cachedContents").json["cachedContents"]])
        used = self.router.post("/v1beta/models/m:generateContent", {"cachedContent": name, "contents": [{"role": "user", "parts": [{"text": "What?"}]}],
                                                                     "generationConfig": {"maxOutputTokens": 4}})
        self.assertEqual((used.status, used.headers["x-reprise-node"]), (200, made.headers["x-reprise-node"]), used.body)
        self.assertEqual(self.router.ask("DELETE", f"/v1beta/{name}").status, 200)
        self.assertEqual(self.router.get(f"/v1beta/{name}").status, 404)

    def test_slow_client_and_disconnect(self):
        s = self.router.socket()
        body = json.dumps({**LONG, "logprobs": 5})
        s.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        self.assertTrue(s.recv(1).startswith(b"H"))
        s.close()  # unread
        self.router.wait_idle_router()
        for node in self.nodes.values():
            node.wait_idle()

    def test_drain_without_a_failed_request(self):
        replies = []

        def ask():
            for _ in range(12):
                replies.append(self.router.post("/v1/completions", {"prompt": "Tom had a", "max_tokens": 8, "temperature": 0}))

        def drain():
            for _ in range(3):
                self.assertEqual(self.router.post("/v1/cluster/drain?node=a", {}).json["drained"], True)
                self.assertTrue(self.router.cluster()["a"]["drained"])
                one = self.router.post("/v1/completions", {"prompt": "Tom had a", "max_tokens": 2})
                self.assertEqual(one.headers["x-reprise-node"], "b")
                self.assertEqual(self.router.post("/v1/cluster/undrain?node=a", {}).json["drained"], False)

        in_parallel([ask, ask, ask, drain])
        self.assertEqual({(r.status, r.json["choices"][0]["text"]) for r in replies}, {(200, replies[0].json["choices"][0]["text"])})

    def test_metrics(self):
        self.router.post("/v1/completions", {"prompt": "Tom had a", "max_tokens": 2})
        m = self.router.metrics()
        self.assertGreaterEqual(m['reprise_route_requests_total{outcome="served"}'], 1)
        self.assertEqual((m['reprise_node_health{node="a"}'], m['reprise_node_health{node="b"}'], m["reprise_route_nodes_well"]), (2, 2, 2))
        self.assertGreaterEqual(m["reprise_route_submitted_total"], m['reprise_route_requests_total{outcome="served"}'])

    def test_schemas(self):
        put = self.router.ask("PUT", "/v1/schemas/cities", CITIES)
        self.assertEqual((put.status, sorted(put.json["nodes"])), (200, ["a", "b"]), put.body)
        for node in self.nodes.values():
            self.assertEqual(node.get("/v1/schemas/cities").body.decode(), CITIES)
        for city in ("miami", "lisbon"):
            body = {"prompt": PROMPT.format(city), "max_tokens": 8, "seed": 3}
            routed, direct = self.router.post("/v1/prompts", body), self.nodes["a"].post("/v1/prompts", body)
            self.assertEqual(routed.status, 200, routed.body)
            self.assertEqual(routed.json["answers"], direct.json["answers"])
        held = {c["node"]: c["held_tokens"] for c in self.router.explain(routed)["candidates"]}
        self.assertTrue(all(n > 20 for n in held.values()), held)  # both have the modules
        self.assertEqual(self.router.ask("DELETE", "/v1/schemas/cities").status, 200)
        self.assertEqual([node.get("/v1/schemas/cities").status for node in self.nodes.values()], [404, 404])
        self.refused(self.router.ask("PUT", "/v1/schemas/broken", "<schema"), 400, "")


class Failures(Cluster):
    def setUp(self):
        """Each test kills nodes: those that are missing begin anew, at their ports."""
        for name, node in self.nodes.items():
            if node.process.poll() is None:
                continue
            port = node.addresses[1].rsplit(":", 1)[1]
            self.nodes[name] = Node(self.secret, name, port=port)
            self.addClassCleanup(self.nodes[name].stop)
            self.nodes[name].wait_ready()
        self.router.wait_well("a", "b")

    def begin(self, path, body):
        c = self.router.connection()
        c.request("POST", path, body=json.dumps(body), headers={"Content-Type": "application/json"})
        reply = c.getresponse()
        self.addCleanup(c.close)
        return reply, reply.headers["x-reprise-node"]

    def kill_while_it_streams(self, path, body):
        """The stream's body, of which a node that was stopped after its first bytes has not sent all."""
        before = self.router.metrics()["reprise_route_continuations_total"]
        while True:
            reply, name = self.begin(path, body)
            first = reply.read1(65536)
            self.nodes[name].process.send_signal(signal.SIGSTOP)
            if self.router.cluster()[name]["sent"] > 0:  # it has not answered all
                break
            self.nodes[name].process.send_signal(signal.SIGCONT)
            reply.read()
        self.nodes[name].end(signal.SIGKILL)
        rest = reply.read()
        self.assertEqual(self.router.metrics()["reprise_route_continuations_total"], before + 1)
        return first + rest

    def test_killed_within_a_stream(self):
        body = {**LONG, "temperature": 1, "seed": 11}
        delta = DIALECTS["text"][3]
        undisturbed = self.nodes["b"].post("/v1/completions", body)

        class Joined:
            headers = undisturbed.headers

            def __init__(self, text):
                self.body = text

            frames = type(undisturbed).frames

        joined = Joined(self.kill_while_it_streams("/v1/completions", body))
        self.assertEqual(text_of_stream(joined, delta), text_of_stream(undisturbed, delta))
        self.assertEqual(joined.frames[-1], undisturbed.frames[-1])

    def test_killed_before_the_first_byte(self):
        stopped = self.nodes["a"]
        stopped.process.send_signal(signal.SIGSTOP)
        replies = []

        def ask():
            replies.append(self.router.post("/v1/completions", {"prompt": "Tom had a", "max_tokens": 8, "temperature": 0}))

        in_parallel([ask] * 6 + [lambda: stopped.end(signal.SIGKILL)])
        self.assertEqual({r.status for r in replies}, {200})
        self.assertEqual(len({r.json["choices"][0]["text"] for r in replies}), 1)

    def test_all_are_gone(self):
        for node in self.nodes.values():
            node.end(signal.SIGKILL)
        self.router.wait(lambda nodes: all(n["health"] == "dead" for n in nodes.values()))
        while self.router.get("/readyz").status == 200:
            pass
        self.assertEqual(self.router.get("/livez").status, 200)
        reply = self.router.post("/v1/completions", {"prompt": "Tom had a", "max_tokens": 8})
        self.refused(reply, 503, "no node")
        self.assertIsNotNone(reply.headers["Retry-After"])

    def test_router_restarted_knows_everything_again(self):
        story = " ".join(f"The {i}th child had {i} green balls." for i in range(60))
        home = self.router.post("/v1/completions", {"prompt": story, "max_tokens": 4}).headers["x-reprise-node"]
        names = self.router.wait_names(home, 5)[home]["names"]
        other = Router(self.secret, self.nodes.values())
        self.addCleanup(other.stop)
        other.wait_ready().wait_well("a", "b")
        other.wait_names(home, names)
        self.stay(other, story, home)

    def test_a_node_that_comes_later_has_the_schemas(self):
        self.assertEqual(self.router.ask("PUT", "/v1/schemas/cities", CITIES).status, 200)
        self.nodes["a"].end(signal.SIGKILL)
        self.setUp()
        self.assertEqual(self.nodes["a"].get("/v1/schemas/cities").body.decode(), CITIES)
        self.assertEqual(self.router.ask("DELETE", "/v1/schemas/cities").status, 200)


def schema(text, name="cities"):
    return CITIES.replace("short", text).replace('"cities"', f'"{name}"')


class Schemas(unittest.TestCase):
    """The latest change of a schema counts, wherever it was made: several routers, and nodes that come and go, agree."""

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.secret = make_secret(self.folder)
        self.ports, self.servers = {}, {}

    def node(self, name, *options):
        node = Node(self.secret, name, *options, port=self.ports.get(name, 0)).wait_ready()
        self.ports[name] = int(node.addresses[1].rsplit(":", 1)[1])
        return self.serves(name, node)

    def router(self, name, nodes, *options):
        router = self.serves(name, Router(self.secret, nodes, *options).wait_ready())
        router.wait_well(*(node.name for node in nodes))
        return router

    def serves(self, name, server):
        self.servers[name] = server
        self.addCleanup(server.stop)
        return server

    def end(self, name):
        self.servers.pop(name).end(signal.SIGKILL)

    def agree(self, name, text):
        """Until all servers have this text; None: none has the schema."""
        for server in self.servers.values():
            while True:
                reply = server.get(f"/v1/schemas/{name}")
                if (reply.status, reply.body.decode()) == (200, schema(text, name)) if text else reply.status == 404:
                    break
                time.sleep(0.01)

    def put(self, server, name, text, **more):
        reply = server.ask("PUT", f"/v1/schemas/{name}?prefill=false", schema(text, name), **more)
        self.assertEqual(reply.status, 200, reply.body)

    def test_two_routers(self):
        nodes = [self.node("a"), self.node("b")]
        first, second = self.router("first", nodes), self.router("second", nodes)
        self.put(first, "cities", "one")
        self.agree("cities", "one")
        self.put(second, "cities", "two")
        self.agree("cities", "two")
        asked = second.post("/v1/prompts", {"prompt": PROMPT.format("miami"), "max_tokens": 2})
        self.assertEqual(asked.status, 200, asked.body)
        self.put(nodes[0], "cities", "three")  # at a node: likewise
        self.agree("cities", "three")
        self.assertEqual(first.ask("DELETE", "/v1/schemas/cities").status, 200)
        self.agree("cities", None)
        for i, other in enumerate((second, nodes[0], second, nodes[1])):  # at once: the nodes have the state that they had before
            self.put(first, "cities", f"number {i}")
            while other.get("/v1/schemas/cities").status != 200:
                pass
            self.assertEqual(other.ask("DELETE", "/v1/schemas/cities").status, 200)
            self.agree("cities", None)

    def test_a_node_that_comes_after(self):
        """What it was given is removed elsewhere: its digest is again that of its beginning."""
        router = self.router("router", [self.node("a")])
        self.put(router, "cities", "short")
        self.agree("cities", "short")
        self.end("a")
        node = self.node("a")
        self.agree("cities", "short")
        self.assertEqual(node.ask("DELETE", "/v1/schemas/cities").status, 200)
        self.agree("cities", None)

    def test_a_router_that_begins_anew_undoes_nothing(self):
        folder = os.path.join(self.folder, "schemas")
        nodes = [self.node("a"), self.node("b")]
        old, other = self.router("old", nodes, "--schema-dir", folder), self.router("other", nodes)
        self.put(old, "changed", "old")
        self.put(old, "removed", "old")
        self.put(old, "kept", "old")
        self.agree("removed", "old")
        self.end("old")
        self.put(other, "changed", "new")
        self.put(other, "added", "new")
        self.assertEqual(other.ask("DELETE", "/v1/schemas/removed").status, 200)
        self.router("old", nodes, "--schema-dir", folder)
        for name, text in (("changed", "new"), ("added", "new"), ("kept", "old")):
            self.agree(name, text)
        self.agree("removed", None)
        self.end("other")
        self.router("empty", nodes)  # knows what its nodes have
        self.agree("changed", "new")
        self.agree("removed", None)

    def test_a_node_that_was_away(self):
        folder = os.path.join(self.folder, "schemas")
        nodes = [self.node("a", "--schema-dir", folder), self.node("b")]
        router = self.router("router", nodes)
        self.put(router, "changed", "old")
        self.put(router, "removed", "old")
        self.agree("removed", "old")
        self.end("a")
        router.wait(lambda nodes: nodes["a"]["health"] == "dead")
        self.put(router, "changed", "new")
        self.assertEqual(router.ask("DELETE", "/v1/schemas/removed").status, 200)
        self.node("a", "--schema-dir", folder)
        self.agree("changed", "new")
        self.agree("removed", None)
        router.wait_well("a", "b")

    def test_a_prefill_that_fails(self):
        """A failed prefill does not take a node out: it has the schema."""
        router = self.router("router", [self.node("a", "--kv-ram", "1M")])
        reply = router.ask("PUT", "/v1/schemas/large", schema("word " * 1200, "large"))
        self.assertEqual(reply.status, 502, reply.body)
        self.assertIn("not prefilled on all nodes", reply.json["error"]["message"])
        self.agree("large", "word " * 1200)
        self.assertEqual(router.post("/v1/completions", {"prompt": "Tom", "max_tokens": 2}).status, 200)
        self.assertFalse(router.cluster()["a"]["waits_for_schemas"])

    def test_a_client_that_leaves(self):
        """Its schema is on all nodes, and they answer."""
        nodes = [self.node("a"), self.node("b")]
        router = self.router("router", nodes)
        connection = router.connection()
        connection.request("PUT", "/v1/schemas/cities", schema("word " * 200))
        while router.get("/v1/schemas/cities").status != 200:
            pass
        connection.close()
        self.agree("cities", "word " * 200)
        self.assertEqual(router.post("/v1/completions", {"prompt": "Tom", "max_tokens": 2}).status, 200)
        self.assertFalse(any(n["waits_for_schemas"] for n in router.cluster().values()))


class Keys(Cluster):
    @classmethod
    def prepare(cls):
        path = os.path.join(cls.folder, "keys")
        cls.keys = {"one": "key-of-the-first-tenant", "two": "key-of-the-other-tenant", "op": "key-of-the-operator-himself"}
        with open(path, "w", encoding="ascii") as f:
            f.write(key_line(cls.keys["one"], "tenant=one", "rights=request,schemas") + key_line(cls.keys["two"], "tenant=two", "rights=request,schemas") +
                    key_line(cls.keys["op"], "tenant=op", "rights=request,operate,schemas,share"))
        cls.node_options = cls.router_options = ("--api-keys", path)

    @classmethod
    def wait_well(cls):
        cls.router.headers = bearer(cls.keys["op"])
        cls.router.wait_well("a", "b")

    def test_tenants(self):
        story = " ".join(f"The {i}th child had {i} yellow balls." for i in range(60))

        def ask(key):
            reply = self.router.post("/v1/completions", {"prompt": story, "max_tokens": 2, "temperature": 0}, headers=bearer(self.keys[key]))
            self.assertEqual(reply.status, 200, reply.body)
            report = self.router.get(f"/v1/requests/{reply.headers['x-request-id']}/explain", headers=bearer(self.keys[key])).json
            return reply, {c["node"]: c["held_tokens"] for c in report["candidates"]}, report

        first, _, _ = ask("one")
        self.router.wait_names(first.headers["x-reprise-node"], 5)
        _, held, _ = ask("one")
        self.assertGreater(max(held.values()), 256)
        other, held, report = ask("two")
        self.assertEqual(set(held.values()), {0})
        self.assertEqual(other.json["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
        self.assertEqual(report["node_report"]["cached_tokens"], 0)
        unknown = self.router.get(f"/v1/requests/{first.headers['x-request-id']}/explain", headers=bearer(self.keys["two"]))
        self.assertEqual(unknown.status, 404)

    def test_rights(self):
        self.assertEqual(self.router.post("/v1/completions", {"prompt": "x"}).status, 401)
        for path in ("/v1/cluster", "/metrics", "/v1/cache?node=a"):
            self.assertEqual(self.router.get(path, headers=bearer(self.keys["one"])).status, 403, path)
        self.assertEqual(self.router.post("/v1/cluster/drain?node=a", {}, headers=bearer(self.keys["one"])).status, 403)

    def test_a_key_in_the_query(self):
        content = {"model": "models/m", "contents": [{"role": "user", "parts": [{"text": "Tom had a ball. " * 20}]}]}
        made = self.router.post(f"/v1beta/cachedContents?key={self.keys['one']}", content)
        self.assertEqual(made.status, 200, made.body)
        for key, names in (("one", [made.json["name"]]), ("two", [])):
            reply = self.router.get(f"/v1beta/cachedContents?key={self.keys[key]}")
            self.assertEqual((reply.status, [c["name"] for c in reply.json.get("cachedContents", [])]), (200, names), reply.body)
        self.assertEqual(self.router.get("/v1beta/cachedContents").status, 401)

    def test_schemas_of_tenants(self):
        put = self.router.ask("PUT", "/v1/schemas/cities", CITIES, headers=bearer(self.keys["one"]))
        self.assertEqual((put.status, len(put.json["nodes"])), (200, 2), put.body)
        for server in (self.router, *self.nodes.values()):
            self.assertEqual(server.get("/v1/schemas/cities", headers=bearer(self.keys["one"])).status, 200)
            self.assertEqual(server.get("/v1/schemas/cities", headers=bearer(self.keys["two"])).status, 404)
        self.assertEqual(self.router.ask("PUT", "/v1/cluster/schemas/cities?tenant=two", CITIES, headers=bearer(self.keys["op"])).status, 404)
        outside = self.nodes["a"].ask("PUT", "/v1/cluster/schemas/cities?tenant=two", CITIES, headers=bearer(self.keys["op"]))
        self.assertEqual(outside.status, 404)
        other = Router(self.secret, self.nodes.values(), *self.router_options)  # knows them from the nodes
        self.addCleanup(other.stop)
        other.wait_ready()
        while other.get("/v1/schemas/cities", headers=bearer(self.keys["one"])).status != 200:
            time.sleep(0.01)
        self.assertEqual(other.get("/v1/schemas/cities", headers=bearer(self.keys["two"])).status, 404)
        self.assertEqual(other.ask("DELETE", "/v1/schemas/cities", headers=bearer(self.keys["one"])).status, 200)
        for server in (self.router, *self.nodes.values()):
            while server.get("/v1/schemas/cities", headers=bearer(self.keys["one"])).status != 404:
                time.sleep(0.01)


class NodesFile(unittest.TestCase):
    def test_changes_of_the_list(self):
        with tempfile.TemporaryDirectory() as folder:
            secret, path = make_secret(folder), os.path.join(folder, "nodes")
            node = Node(secret, "later")
            self.addCleanup(node.stop)
            node.wait_ready()
            with open(path, "w", encoding="ascii") as f:
                f.write("# none yet\n")
            router = Router(secret, [], "--nodes", path)
            self.addCleanup(router.stop)
            router.wait_ready()
            self.assertEqual(router.cluster(), {})
            with open(path, "a", encoding="ascii") as f:
                f.write(f"{node.listed} # a node\n")
            router.process.send_signal(signal.SIGHUP)
            router.wait_well("later")
            self.assertEqual(router.post("/v1/completions", {"prompt": "Tom", "max_tokens": 2}).status, 200)
            with open(path, "w", encoding="ascii") as f:
                f.write("\n")
            router.wait(lambda nodes: not nodes)

    def test_wrong_use(self):
        with tempfile.TemporaryDirectory() as folder:
            secret = make_secret(folder)
            for options, says in (((), "needs nodes"), (("--node", "nowhere"), "http://HOST:PORT"), (("--node", "http://x:1", "--policy", "best"), "longest-match"),
                                  (("--nodes-dns", "name"), "NAME:PORT"), (("--node", "http://x:1", "--node", "http://x:1"), "listed twice")):
                router = Router(secret, [], *options)
                self.assertEqual(router.process.wait(), 2)
                self.assertIn(says, router.said())
                router.process.stdout.close()
                router.errors.close()


if __name__ == "__main__":
    unittest.main()
