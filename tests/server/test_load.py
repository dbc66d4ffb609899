#!/usr/bin/env python3
"""`reprise serve` under clients that mean no good: readers that do not read, connections that idle, priorities without a right, schemas
beyond a limit. What others get meanwhile is judged by counts, never by time."""
import http.client
import json
import os
import socket
import tempfile
import unittest
import urllib.parse

from server_process import Server, bearer, key_line


def open_socket(server):
    host, port = urllib.parse.urlsplit(server.addresses[0]).netloc.split(":")
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32768)
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
        ask = {"prompt": "Tom had", "max_tokens": 1300, "ignore_eos": True, "stream": True, "temperature": 0, "logprobs": 20}
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

    def text(self, stream):
        lines = [line[6:] for line in stream.split(b"\n") if line.startswith(b"data: {")]
        return "".join(c["text"] for line in lines for c in json.loads(line)["choices"])

    def test_idle_connections_are_closed_for_new_ones(self):
        server = self.start("--connections", "8", "--head-timeout", "600000")
        idle = [open_socket(server) for _ in range(40)]
        for _ in range(3):
            self.assertEqual(server.post("/v1/completions", {"prompt": "Tom", "max_tokens": 2}).status, 200)
        self.assertEqual(idle[0].recv(1), b"")  # the oldest
        self.assertGreaterEqual(server.metrics()["reprise_connections_reclaimed_total"], 32)
        for s in idle:
            s.close()

    def test_a_full_server_says_so_at_once(self):
        server = self.start("--connections", "4", "--connections-per-address", "2")
        busy = [open_socket(server) for _ in range(2)]
        for s in busy:
            send(s, {"prompt": "Tom had", "max_tokens": 1900, "ignore_eos": True, "stream": True, "logprobs": 20})
            s.recv(16)
        extra = open_socket(server)
        send(extra, {"prompt": "Tom", "max_tokens": 2})
        reply = b""
        while b"\r\n\r\n" not in reply:
            reply += extra.recv(4096)
        self.assertTrue(reply.startswith(b"HTTP/1.1 503"), reply)
        self.assertIn(b"retry-after", reply.lower())
        self.assertIn(b"connection: close", reply.lower())
        for s in (*busy, extra):
            s.close()

    def test_priorities_need_a_right(self):
        keys = {"one": [], "two": ["rights=ask,priority"]}
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
            reply = server.ask("PUT", f"/v1/schemas/s{i}?encode=false", f"<schema name='s{i}'><module name='m'>One.</module></schema>")
            self.assertEqual(reply.status, 200)
        reply = server.ask("PUT", "/v1/schemas/more?encode=false", "<schema name='more'><module name='m'>One.</module></schema>")
        self.assertGreaterEqual(reply.status, 400)
        self.assertIn(b"not loaded", reply.body)
        self.assertEqual(server.ask("GET", "/v1/schemas/more/layout").status, 404)
        self.assertEqual(server.ask("PUT", "/v1/schemas/s7?encode=false", "<schema name='s7'><module name='m'>Two.</module></schema>").status, 200)


if __name__ == "__main__":
    unittest.main()
