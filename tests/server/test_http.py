#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise serve`, HTTP: what is refused, clients that are slow, and how the server begins and ends. Many rude ones: test_abuse.py."""
import json
import os
import signal
import socket
import subprocess
import tempfile
import unittest

from server_process import JSON, MODEL, PROGRAM, WAIT_S, Server, raw_request, read_until_closed

LONG = {"prompt": "Tom had a", "temperature": 0, "max_tokens": 1900, "ignore_eos": True}
SHORT = {"prompt": "Tom had a", "temperature": 0, "max_tokens": 4}


class Http(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--head-timeout", "600", "--body-timeout", "600", "--idle-timeout", "1000", "--max-body", "100K", "--log",
                            "off")
        cls.server.wait_ready()
        cls.addClassCleanup(cls.server.stop)

    def tearDown(self):
        idle = self.server.wait_idle()
        self.assertEqual(idle["reprise_store_used_bytes"], idle["reprise_store_bytes"])

    def test_health(self):
        for path, word in (("/livez", b"alive\n"), ("/readyz", b"ready\n")):
            self.assertEqual((self.server.get(path).status, self.server.get(path).body), (200, word))
        for path in ("/health", "/v1/health"):
            self.assertEqual(self.server.get(path).json, {"status": "ok"})
        head = self.server.ask("HEAD", "/livez")
        self.assertEqual((head.status, head.body, head.headers["Content-Length"]), (200, b"", "6"))

    def test_cache_and_explain(self):
        cache = self.server.get("/v1/cache").json
        self.assertEqual(cache["ram"]["bytes"], self.server.metrics()["reprise_store_bytes"])
        reply = self.server.post("/v1/completions", SHORT)
        report = self.server.get(f"/v1/requests/{reply.headers['x-request-id']}/explain").json
        self.assertEqual({**report, **reply.json["reprise"]}, report)  # and what only the kept one says
        for path in ("/v1/requests/x/explain", "/v1/requests/" + "0" * 24 + "/explain"):
            self.assertEqual(self.server.get(path).status, 404)

    def test_no_such_thing(self):
        for path in ("/v1", "/v1/chat", "/v1/chat/completions/", "//v1/models", "/v1/models/a/b", "/etc/passwd", "/../../etc/passwd",
                     "/%2e%2e/x",
                     "/v1/models/" + "a" * 500):
            with self.subTest(path=path):
                reply = self.server.get(path)
                self.assertEqual((reply.status, reply.json["error"]["code"]), (404, "not_found"))
        reply = self.server.get("/v1/completions")
        self.assertEqual((reply.status, reply.headers["Allow"]), (405, "POST"))
        self.assertEqual(self.server.ask("PATCH", "/livez").status, 405)

    def test_ids(self):
        ids = {self.server.get("/v1/nothing").headers["x-request-id"] for _ in range(20)}
        self.assertEqual(len(ids), 20)

    def test_keep_alive(self):
        c = self.server.connection()
        for i in range(60):
            path, body = (("/v1/completions", SHORT), ("/v1/completions", {}), ("/v1/nothing", {"x": "y" * 1000}))[i % 3]
            c.request("POST", path, json.dumps(body), JSON)
            r = c.getresponse()
            r.read()
            self.assertEqual(r.status, (200, 400, 404)[i % 3])
        c.close()

    def test_pipelined_requests(self):
        s = self.server.socket()
        s.sendall(raw_request("/v1/completions", SHORT) * 3 + raw_request("/v1/completions", SHORT, "Connection: close\r\n"))
        self.assertEqual(read_until_closed(s).count(b"HTTP/1.1 200"), 4)
        s.close()

    def test_large_bodies(self):
        s = self.server.socket()
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n")
        self.assertIn(b"HTTP/1.1 413", s.recv(65536))
        s.close()
        s = self.server.socket()
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(3):
            s.sendall(b"a000\r\n" + b"x" * 0xA000 + b"\r\n")
        s.sendall(b"0\r\n\r\n")
        self.assertIn(b"HTTP/1.1 413", s.recv(65536))
        s.close()
        s = self.server.socket()
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        try:
            while True:  # without an end: it is cut off
                s.sendall(b"a000\r\n" + b"x" * 0xA000 + b"\r\n")
        except OSError:
            pass
        s.close()

    def test_large_heads(self):
        for head in (b"GET /" + b"a" * 200000 + b" HTTP/1.1\r\n\r\n",
                     b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 200000 + b"\r\n\r\n",
                     b"GET /livez HTTP/1.1\r\n" + b"X: y\r\n" * 50000 + b"\r\n"):
            s = self.server.socket()
            try:
                s.sendall(head)
            except OSError:
                pass
            self.assertNotIn(b"200 OK", read_until_closed(s))
            s.close()

    def test_chunked_body_is_a_body(self):
        c = self.server.connection()
        c.request("POST", "/v1/completions", iter([json.dumps(SHORT).encode()]), encode_chunked=True,
                  headers={"Transfer-Encoding": "chunked", **JSON})
        self.assertEqual(c.getresponse().status, 200)
        c.close()

    def test_dripping_heads(self):
        """A byte now and then does not keep a connection: what counts is when the head is whole."""
        s = self.server.socket()
        s.settimeout(0.05)
        s.sendall(b"GET /livez HTTP/1.1\r\nX: ")
        closed = False
        while not closed:
            try:
                s.sendall(b"a")
                closed = s.recv(100) == b""
            except TimeoutError:
                pass
            except OSError:
                closed = True
        s.close()

    # ---- clients that are slow

    def test_reader_that_takes_nothing(self):
        """It holds up nobody, and is closed at last."""
        s = self.server.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        s.sendall(raw_request("/v1/completions", {**LONG, "stream": True, "n": 16, "logprobs": 5}))
        s.recv(10)
        for _ in range(3):
            self.assertEqual(self.server.post("/v1/completions", SHORT).status, 200)
        self.server.wait_idle()
        s.close()

    def test_slow_reader_gets_all(self):
        s = self.server.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.sendall(raw_request("/v1/completions", {**LONG, "stream": True, "max_tokens": 800}, "Connection: close\r\n"))
        received = b""
        while part := s.recv(512):
            received += part
        s.close()
        text = "".join(json.loads(line[6:])["choices"][0]["text"] for line in received.decode().split("\n") if line.startswith("data: {"))
        self.assertEqual(text, self.server.post("/v1/completions", {**LONG, "max_tokens": 800}).json["choices"][0]["text"])


class Life(unittest.TestCase):
    def start(self, *options, **more):
        server = Server(*options, **more)
        self.addCleanup(server.stop)
        return server

    def test_drains(self):
        server = self.start("--drain", "600000").wait_ready()  # longer than the answer on any machine
        s = server.socket()
        s.sendall(raw_request("/v1/completions", {**LONG, "stream": True}))
        received = s.recv(1000)
        server.process.send_signal(signal.SIGTERM)
        while server.get("/readyz").status == 200:
            pass
        reply = server.post("/v1/completions", SHORT)
        self.assertEqual((reply.status, reply.headers["Connection"]), (503, "close"))
        received += read_until_closed(s)
        s.close()
        self.assertIn(b"data: [DONE]", received[-1000:])
        self.assertEqual(server.process.wait(WAIT_S), 0)

    def test_drains_in_time(self):
        server = self.start("--drain", "1", "--ctx", "100000").wait_ready()
        s = server.socket()
        s.sendall(raw_request("/v1/completions", {**LONG, "stream": True, "max_tokens": 90000}))
        s.recv(1000)
        self.assertEqual(server.end(), 0)
        self.assertNotIn(b"[DONE]", read_until_closed(s))
        s.close()

    def test_idle_connections_do_not_hold_the_end(self):
        server = self.start().wait_ready()
        idle = [server.socket() for _ in range(20)]
        self.assertEqual(server.end(signal.SIGINT), 0)
        for s in idle:
            s.close()

    def test_full(self):
        server = self.start("--sequences", "1", "--queue", "1").wait_ready()
        held = []
        for _ in range(2):
            held.append(server.socket())
            held[-1].sendall(raw_request("/v1/completions", {**LONG, "stream": True}))
        while server.metrics()["reprise_jobs_open"] < 2:
            pass
        reply = server.post("/v1/completions", SHORT)
        self.assertEqual((reply.status, reply.json["error"]["code"]), (503, "overloaded"))
        self.assertGreater(int(reply.headers["Retry-After"]), 0)
        reply = server.post("/v1/completions", {**SHORT, "n": 4})
        self.assertEqual(reply.status, 503)
        for s in held:
            s.close()
        server.wait_idle()
        self.assertEqual(server.post("/v1/completions", SHORT).status, 200)

    def test_connections_are_limited(self):
        server = self.start("--connections", "4").wait_ready()
        held = [server.socket() for _ in range(4)]
        self.assertEqual(server.post("/v1/completions", SHORT).status, 200)  # for the oldest that idles (test_load.py: where none does)
        self.assertEqual(held[0].recv(1), b"")
        for s in held:
            s.close()

    def test_unix_socket(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "r.sock")
            stale = socket.socket(socket.AF_UNIX)
            stale.bind(path)
            stale.close()
            server = self.start("--unix", path).wait_ready()
            self.assertEqual(server.addresses[1], "unix:" + path)
            self.assertEqual(server.post("/v1/completions", SHORT, address=1).status, 200)
            other = subprocess.run([PROGRAM, "serve", "-m", MODEL, "--no-tcp", "--unix", path], capture_output=True, text=True, check=False)
            self.assertEqual(other.returncode, 1)
            self.assertIn("in use", other.stderr)
            self.assertEqual(server.end(), 0)
            self.assertFalse(os.path.exists(path))

    def test_sockets_that_are_handed_over(self):
        listening = socket.create_server(("127.0.0.1", 0))
        # descriptor 3, as systemd does it
        process = subprocess.Popen(["/bin/sh", "-c", 'exec 3<&"$0"; LISTEN_PID=$$ LISTEN_FDS=1 exec "$@"', str(listening.fileno()),
                                    PROGRAM, "serve", "-m",
                                    MODEL], pass_fds=[listening.fileno()], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.assertEqual(process.stdout.readline(), f"listening on http://127.0.0.1:{listening.getsockname()[1]}\n")
        s = socket.create_connection(listening.getsockname())
        s.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        self.assertIn(b"alive", read_until_closed(s))
        s.close()
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(WAIT_S), 0)
        process.stdout.close()
        listening.close()

    def test_cors(self):
        server = self.start("--cors", "https://app.test").wait_ready()
        reply = server.ask("OPTIONS", "/v1/chat/completions")
        self.assertEqual((reply.status, reply.headers["Access-Control-Allow-Origin"]), (204, "https://app.test"))
        self.assertEqual(server.get("/livez").headers["Access-Control-Allow-Origin"], "https://app.test")

    def test_log(self):
        server = self.start().wait_ready()
        self.assertIsNone(server.get("/livez").headers["Access-Control-Allow-Origin"])
        reply = server.post("/v1/completions", {"prompt": 3})
        server.end()
        line = [line for line in server.log() if line["path"] == "/v1/completions"][0]
        self.assertEqual((line["status"], line["method"], line["request"]), (400, "POST", reply.headers["x-request-id"]))
        self.assertIn("prompt", line["error"])

    def test_wrong_use(self):
        for options, status, says in (([], 2, "needs -m"), (["-m", MODEL, "--host", "0.0.0.0", "--port", "0"], 2, "--api-keys"),
                                      (["-m", MODEL, "--port", "99999"], 2, "--port"), (["-m", MODEL, "--no-tcp"], 2,
                                                                                        "needs a port or a Unix socket"),
                                      (["-m", "/nowhere/x.gguf", "--port", "0"], 1, "/nowhere/x.gguf"),
                                      (["-m", MODEL, "--host", "no such host"], 1, "no such host"),
                                      (["-m", MODEL, "--unix", "/nowhere/x.sock", "--port", "0"], 1, "/nowhere/x.sock"),
                                      (["-m", MODEL, "--unix", MODEL, "--port", "0"], 1, "not a socket"),
                                      (["-m", MODEL, "--api-keys", "/nowhere/keys"], 1, "/nowhere/keys"),
                                      (["-m", MODEL, "--port", "0", "--kv-keep", "12x"], 1, "--kv-keep '12x': give a number of slots"),
                                      (["-m", MODEL, "--port", "0", "--kv-keep", "9%", "--kv-method", "kvzip"], 1, "--kv-method 'kvzip': give snapkv"),
                                      (["-m", MODEL, "--port", "0", "--kv-method", "sinks"], 1, "--kv-method 'sinks' without --kv-keep")):
            with self.subTest(options=options):
                done = subprocess.run([PROGRAM, "serve", *options], capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, status, done.stderr)
                self.assertIn(says, done.stderr)
                self.assertEqual(len(done.stderr.splitlines()), 1)


if __name__ == "__main__":
    unittest.main()
