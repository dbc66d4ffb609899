#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise serve` under clients that mean no good: readers that do not read, connections that idle, priorities without a right, schemas
beyond a limit. What others get meanwhile is judged by counts, never by time."""
import http.client
import json
import os
import socket
import tempfile
import unittest
import urllib.parse

from server_process import Server, bearer, key_line, read_until_closed


def open_socket(server, own="127.0.0.1"):
    """own: the client's address."""
    host, port = urllib.parse.urlsplit(server.addresses[0]).netloc.split(":")
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32768)
    s.bind((own, 0))
    s.connect((host, int(port)))
    return s


def send(s, body):
    data = json.dumps(body).encode()
    s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(data), data))


class Load(unittest.TestCase):
    def start(self, *options):
        server = Server("--log", "off", *options).wait_ready()
        self.addCleanup(server.stop)
        return server

    def test_readers_that_do_not_read(self):
        """Their answers pause, others' do not wait for them, and who reads in the end gets all of it."""
        server = self.start("--sequences", "1")
        # half as much again as sockets and the reply buffer hold: with 1300 tokens an answer sometimes fitted, and never paused
        ask = {"prompt": "Tom had", "max_tokens": 1900, "ignore_eos": True, "stream": True, "temperature": 0, "logprobs": 20}
        whole = server.post("/v1/completions", ask).body
        slow = [open_socket(server) for _ in range(2)]
        for s in slow:
            send(s, ask)
        while server.metrics()["reprise_answers_paused_total"] < len(slow):
            pass
        before = server.metrics()
        self.assertLess(before["reprise_reply_buffer_bytes"], len(slow) * (128 << 10))
        self.assertEqual(server.post("/v1/completions", {"prompt": "Tom", "max_tokens": 4}).status, 200)  # there is one place
        self.assertEqual(server.metrics()["reprise_readers_too_slow_total"], 0)
        reply = http.client.HTTPResponse(slow[0])
        reply.begin()
        self.assertEqual(self.text(reply.read()), self.text(whole))
        for s in slow:
            s.close()
        server.wait_idle()
        self.assertEqual(server.metrics()["reprise_reply_buffer_bytes"], 0)

    def test_streams_that_nobody_reads_delay_no_one(self):
        """Attack 11: before their buffers are full, too, each computes a turn at a time while others of its tenant wait. Their bytes stay the same."""
        n, tokens = 40, 1000
        server = self.start("--mock", "--mock-speed", "0", "--mock-step", "1", "--sequences", "4", "--queue", "64", "--ctx", "4096")
        for logprobs in ({}, {"logprobs": 20}):
            ask = {"prompt": "Tom had", "max_tokens": tokens, "ignore_eos": True, "stream": True, "temperature": 0, **logprobs}
            before, slow = self.computed(server), [open_socket(server) for _ in range(n)]
            for s in slow:
                send(s, ask)
            while (m := server.metrics())["reprise_requests_running"] + m["reprise_requests_waiting"] < n:
                pass
            self.assertEqual(server.post("/v1/completions", {"prompt": "Tom", "max_tokens": 4}).status, 200)
            # each has had a turn of 64 and a step's rest at most twice; without turns the first ones alone compute thousands
            self.assertLess(self.computed(server) - before, 2 * n * 64)
            for s in slow[4:]:
                s.close()
            replies = [http.client.HTTPResponse(s) for s in slow[:4]]
            for reply in replies:
                reply.begin()
            self.assertEqual(len({self.text(reply.read()) for reply in replies} | {self.text(server.post("/v1/completions", ask).body)}), 1)
            for s in slow[:4]:
                s.close()
            server.wait_idle()

    def computed(self, server):
        return server.metrics()["reprise_time_between_tokens_seconds_count"]

    def text(self, stream):
        lines = [line[6:] for line in stream.split(b"\n") if line.startswith(b"data: {")]
        return "".join(c["text"] for line in lines for c in json.loads(line)["choices"])

    def test_the_budget_of_all_reply_buffers(self):
        """Small, and reached by many streams of which none is behind by itself: all pause, and who reads is served."""
        budget, n = 65536, 24
        server = self.start("--reply-buffers", str(budget), "--sequences", "8", "--queue", "64")
        slow = [open_socket(server) for _ in range(n)]
        for s in slow:
            self.addCleanup(s.close)
            send(s, {"prompt": "Tom had", "max_tokens": 1900, "ignore_eos": True, "stream": True, "logprobs": 20})
        while server.metrics()["reprise_answers_paused_total"] < n:
            self.assertLess(server.metrics()["reprise_reply_buffer_bytes"], budget + n * 4096)  # a step of each may be added
        self.assertEqual(server.post("/v1/completions", {"prompt": "Tom", "max_tokens": 4}).status, 200)
        self.assertEqual(server.post("/v1/completions", {"prompt": "Tom", "max_tokens": 4, "stream": True}).status, 200)
        self.assertLess(server.metrics()["reprise_reply_buffer_bytes"], budget + n * 4096)
        self.assertEqual(server.metrics()["reprise_readers_too_slow_total"], 0)
        self.assertGreater(server.metrics()["reprise_jobs_open"], 0)

    def test_idle_connections_are_closed_for_new_ones(self):
        server = self.start("--connections", "8", "--head-timeout", "600000")
        idle = [open_socket(server) for _ in range(40)]
        for _ in range(3):
            self.assertEqual(server.post("/v1/completions", {"prompt": "Tom", "max_tokens": 2}).status, 200)
        self.assertEqual(idle[0].recv(1), b"")  # the oldest
        self.assertGreaterEqual(server.metrics()["reprise_connections_reclaimed_total"], 32)
        for s in idle:
            s.close()

    def occupy(self, server, n):
        """n connections whose streams nobody reads."""
        busy = [open_socket(server) for _ in range(n)]
        for s in busy:
            self.addCleanup(s.close)
            send(s, {"prompt": "Tom had", "max_tokens": 1900, "ignore_eos": True, "stream": True, "logprobs": 20})
            s.recv(16)
        return busy

    def answer(self, server, own="127.0.0.1"):
        """All that a new connection gets until it is closed."""
        with open_socket(server, own) as s:
            s.sendall(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            return read_until_closed(s)

    def check_refused(self, reply):
        self.assertTrue(reply.startswith(b"HTTP/1.1 503"), reply)
        self.assertEqual(reply.count(b"HTTP/1.1 "), 1)
        self.assertIn(b"retry-after", reply.lower())
        self.assertIn(b"connection: close", reply.lower())

    def test_an_address_at_its_limit(self):
        """Another address is served meanwhile."""
        server = self.start("--connections", "64", "--connections-per-address", "2")
        self.occupy(server, 2)
        for _ in range(2):
            self.check_refused(self.answer(server))
            self.assertTrue(self.answer(server, "127.0.0.2").startswith(b"HTTP/1.1 200"))

    def test_the_total_limit(self):
        """It alone: loopback addresses have no limit of their own unless one is given."""
        server = self.start("--connections", "4")
        busy = self.occupy(server, 4)
        self.check_refused(self.answer(server))
        self.check_refused(self.answer(server, "127.0.0.2"))
        busy[0].close()
        while not (reply := self.answer(server, "127.0.0.2")).startswith(b"HTTP/1.1 200"):
            self.check_refused(reply)

    def test_priorities_need_a_right(self):
        keys = {"one": [], "two": ["rights=request,priority"]}
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "keys")
            with open(path, "w") as f:
                for name, more in keys.items():
                    f.write(key_line(name * 8, f"tenant={name}", *more))
            server = self.start("--api-keys", path)

            def status(name, priority):
                headers = {**bearer(name * 8), "Content-Type": "application/json"}
                body = {"prompt": "Tom", "max_tokens": 1, "priority": priority}
                return server.ask("POST", "/v1/completions", json.dumps(body), headers).status
            self.assertEqual([status("one", p) for p in (0, -5, 1, 1000)], [200, 200, 403, 403])
            self.assertEqual([status("two", p) for p in (0, 1000)], [200, 200])

    def test_a_schema_beyond_the_limit_is_not_loaded(self):
        server = self.start()
        for i in range(1024):
            reply = server.ask("PUT", f"/v1/schemas/s{i}?prefill=false", f"<schema name='s{i}'><module name='m'>One.</module></schema>")
            self.assertEqual(reply.status, 200)
        reply = server.ask("PUT", "/v1/schemas/more?prefill=false", "<schema name='more'><module name='m'>One.</module></schema>")
        self.assertGreaterEqual(reply.status, 400)
        self.assertIn(b"not loaded", reply.body)
        self.assertEqual(server.ask("GET", "/v1/schemas/more/layout").status, 404)
        self.assertEqual(server.ask("PUT", "/v1/schemas/s7?prefill=false", "<schema name='s7'><module name='m'>Two.</module></schema>").status, 200)

    def test_bytes_of_schemas(self):
        """A tenant's texts have a limit in bytes that takes nothing from others, and a text beyond it changes nothing."""
        filler = "x" * (15 << 20)

        def schema(name, text, more=""):
            return f"<schema name='{name}'><!-- {more} --><module name='m'>{text}</module></schema>"
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "keys")
            with open(path, "w") as f:
                for name in ("one", "two"):
                    f.write(key_line(name * 8, f"tenant={name}", "rights=request,schemas"))
            server = self.start("--api-keys", path)

            def put(tenant, name, body):
                headers = {**bearer(tenant * 8), "Content-Type": "application/xml"}
                return server.ask("PUT", f"/v1/schemas/{name}?prefill=false", body, headers)
            for i in range(4):
                self.assertEqual(put("one", f"s{i}", schema(f"s{i}", "One.", filler)).status, 200)
            self.assertEqual(put("one", "small", schema("small", "One.")).status, 200)
            for name in ("s4", "small"):  # a new one, and one that is there
                reply = put("one", name, schema(name, "Two.", filler))
                self.assertGreaterEqual(reply.status, 400)
                self.assertIn(b"not loaded", reply.body)
            self.assertEqual(server.get("/v1/schemas/s4/layout", headers=bearer("one" * 8)).status, 404)
            kept = server.get("/v1/schemas/small/layout", headers=bearer("one" * 8)).json["nodes"]
            self.assertEqual(kept[-1]["preview"], "One.")
            self.assertEqual(server.get("/v1/schemas/small", headers=bearer("one" * 8)).body.decode(), schema("small", "One."))
            for i in range(4):
                self.assertEqual(put("two", f"s{i}", schema(f"s{i}", "One.", filler)).status, 200)


if __name__ == "__main__":
    unittest.main()
