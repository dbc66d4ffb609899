#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise serve --otlp`: spans of requests at a collector, which is down, slow, or refuses them; no request waits for it."""
import http.server
import json
import socket
import subprocess
import threading
import time
import unittest

from server_process import MODEL, PROGRAM, WAIT_S, Server

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
RING, BATCH = 4096, 128  # cli/serve_otlp.c
PARTS = ["queue", "module prefill", "plan", "prompt prefill", "decode"]


class Collector:
    """Keeps the bodies of POST /v1/traces. statuses: of the next replies, then 200. hold: replies wait until release is set."""

    def __init__(self, port=0):
        self.bodies, self.statuses, self.came = [], [], threading.Condition()
        self.release = threading.Event()
        self.release.set()
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with collector.came:
                    status = collector.statuses.pop(0) if collector.statuses else 200
                    collector.bodies.append((self.path, self.headers["Content-Type"], status, body))
                    collector.came.notify_all()
                collector.release.wait(WAIT_S)
                self.send_response(status)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

        class QuietServer(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request, client_address):
                pass

        self.server = QuietServer(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self):
        self.release.set()
        self.server.shutdown()
        self.server.server_close()

    def spans(self, n):
        """All spans of accepted batches, as soon as there are n."""
        with self.came:
            self.came.wait_for(lambda: len(self.accepted()) >= n, WAIT_S)
            return self.accepted()

    def accepted(self):
        return [span for _, _, status, body in self.bodies if status == 200 for resource in body["resourceSpans"]
                for scope in resource["scopeSpans"] for span in scope["spans"]]


def attributes(span):
    return {a["key"]: a["value"].get("stringValue", a["value"].get("intValue")) for a in span["attributes"]}


class Otlp(unittest.TestCase):
    def serve(self, url, *options):
        server = Server("--log", "off", "--otlp", url, *options).wait_ready()
        self.addCleanup(server.stop)
        return server

    def collector(self):
        collector = Collector()
        self.addCleanup(collector.close)
        return collector

    def ask(self, server, traceparent=None, **fields):
        body = {"messages": [{"role": "user", "content": "Tom has a red ball."}], "max_tokens": 4, **fields}
        reply = server.post("/v1/chat/completions", body, headers={"traceparent": traceparent} if traceparent else {})
        self.assertEqual(reply.status, 200, reply.body)
        return reply

    def metric(self, server, name, reaches):
        until = time.monotonic() + WAIT_S
        while (found := server.metrics()[f"reprise_otlp_{name}_total"]) < reaches and time.monotonic() < until:
            time.sleep(0.01)
        return found

    def test_spans(self):
        collector = self.collector()
        server = self.serve(collector.url)
        before = time.time_ns()
        reply = self.ask(server, f"00-{TRACE}-{PARENT}-01")
        spans = collector.spans(6)
        after = time.time_ns()
        path, content_type, _, body = collector.bodies[0]
        self.assertEqual((path, content_type), ("/v1/traces", "application/json"))
        resource = {a["key"]: a["value"]["stringValue"] for a in body["resourceSpans"][0]["resource"]["attributes"]}
        self.assertEqual(resource["service.name"], "reprise")
        root, parts = spans[0], spans[1:]
        self.assertEqual((root["name"], root["kind"], root["traceId"], root["parentSpanId"]), ("POST /v1/chat/completions", 2, TRACE, PARENT))
        self.assertNotIn("status", root)
        said, usage = attributes(root), reply.json["usage"]
        self.assertEqual((said["http.route"], said["http.response.status_code"], said["reprise.request.id"]),
                         ("/v1/chat/completions", "200", reply.headers["x-request-id"]))
        self.assertEqual((said["gen_ai.usage.input_tokens"], said["gen_ai.usage.output_tokens"], said["reprise.cached_tokens"]),
                         (str(usage["prompt_tokens"]), str(usage["completion_tokens"]), str(usage["prompt_tokens_details"]["cached_tokens"])))
        start, end = int(root["startTimeUnixNano"]), int(root["endTimeUnixNano"])
        self.assertTrue(before <= start <= end <= after, (before, start, end, after))
        self.assertEqual([p["name"] for p in parts], PARTS)
        self.assertEqual({(p["traceId"], p["parentSpanId"], p["kind"]) for p in parts}, {(TRACE, root["spanId"], 1)})
        self.assertEqual(len({s["spanId"] for s in spans}), 6)
        at = start
        for part, name in zip(parts, ("queue", "module_prefill", "plan", "prompt_prefill", "decode")):
            self.assertGreaterEqual(int(part["startTimeUnixNano"]), at)
            at = int(part["endTimeUnixNano"])
            took = (at - int(part["startTimeUnixNano"])) / 1e6
            self.assertAlmostEqual(took, reply.json["reprise"]["ms"][name], delta=0.002)  # the report rounds to microseconds
        self.assertLessEqual(at, end)

    def test_streams_and_errors(self):
        collector = self.collector()
        server = self.serve(collector.url)
        self.ask(server, stream=True)
        self.assertEqual(server.post("/v1/chat/completions", {"messages": []}).status, 400)
        self.assertEqual(server.post("/nix", {}).status, 404)
        server.get("/v1/models")
        spans = collector.spans(8)
        server.end()
        roots = [s for s in collector.spans(8) if s["kind"] == 2]
        self.assertEqual([s["name"] for s in roots], ["POST /v1/chat/completions"] * 2 + ["POST "])  # no GET
        self.assertEqual([attributes(s)["http.response.status_code"] for s in roots], ["200", "400", "404"])
        self.assertTrue(all("status" not in s and "parentSpanId" not in s for s in roots))  # errors of clients; no traceparent
        self.assertEqual(len({s["traceId"] for s in roots}), 3)
        self.assertEqual(len(spans), 3 + len(PARTS))

    def test_traceparents(self):
        collector = self.collector()
        server = self.serve(collector.url)
        wrong = ["", f"00-{TRACE}-{PARENT}", f"01-{TRACE}-{PARENT}-01", f"00-{TRACE.upper()}-{PARENT}-01", f"00-{'0' * 32}-{PARENT}-01",
                 f"00-{TRACE}-{'0' * 16}-01", f"00-{TRACE}-{PARENT}-01-x", f"00-{TRACE}-{PARENT}-0g", "\"},{\"traceId\":\"x", "x" * 500]
        for text in wrong:
            self.ask(server, text)
        self.ask(server, f"00-{TRACE}-{PARENT}-00")  # not sampled
        self.ask(server, f"00-{TRACE}-{PARENT}-03")
        roots = [s for s in collector.spans(6 * (len(wrong) + 1)) if s["kind"] == 2]
        self.assertEqual([s.get("parentSpanId") for s in roots], [None] * len(wrong) + [PARENT])
        for span in roots:
            self.assertRegex(span["traceId"], "^[0-9a-f]{32}$")
        server.end()
        self.assertEqual(len(collector.accepted()), 6 * (len(wrong) + 1))

    def test_sampling(self):
        """--otlp-sample decides by the trace id, and only for requests without a traceparent."""
        collector = self.collector()
        server = self.serve(collector.url, "--otlp-sample", "0.25")
        c, n = server.connection(), 400
        for _ in range(n):
            c.request("POST", "/nix", body="", headers={"Content-Type": "application/json"})
            c.getresponse().read()
        for flags, trace in (("00", "f" * 32), ("01", "0" * 31 + "1")):  # against what the ratio says of these ids
            c.request("POST", "/nix", body="", headers={"Content-Type": "application/json", "traceparent": f"00-{trace}-{PARENT}-{flags}"})
            c.getresponse().read()
        c.close()
        self.assertEqual(server.end(), 0)
        own = [s["traceId"] for s in collector.accepted() if "parentSpanId" not in s]
        self.assertEqual([s["traceId"] for s in collector.accepted() if "parentSpanId" in s], ["0" * 31 + "1"])
        self.assertTrue(n // 10 < len(own) < n // 2, len(own))  # 7 standard deviations below 100, 11 above
        self.assertTrue(all(int(trace[-14:], 16) >= 3 << 54 for trace in own), own)

    def test_sampling_nothing(self):
        collector = self.collector()
        server = self.serve(collector.url, "--otlp-sample", "0")
        self.ask(server)
        self.ask(server, f"00-{TRACE}-{PARENT}-01")
        self.assertEqual(server.end(), 0)
        self.assertEqual({s["traceId"] for s in collector.accepted()}, {TRACE})

    def test_collector_that_is_down_at_first(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        server = self.serve(f"http://127.0.0.1:{port}")
        self.ask(server)
        self.assertGreaterEqual(self.metric(server, "failures", 1), 1)
        collector = Collector(port)
        self.addCleanup(collector.close)
        self.assertEqual(len(collector.spans(6)), 6)
        self.assertEqual(self.metric(server, "requests", 1), 1)
        self.assertEqual(server.metrics()["reprise_otlp_dropped_total"], 0)
        self.assertEqual(server.said().count("warning: --otlp"), 1)

    def test_collector_that_refuses(self):
        collector = self.collector()
        collector.statuses = [503, 400]  # tried again; refused for good
        server = self.serve(collector.url)
        self.ask(server)
        self.assertEqual(self.metric(server, "dropped", 1), 1)
        self.assertEqual(server.metrics()["reprise_otlp_failures_total"], 2)
        self.assertEqual([status for _, _, status, _ in collector.bodies], [503, 400])
        self.ask(server)
        self.assertEqual(len(collector.spans(6)), 6)

    def test_no_request_waits(self):
        """A collector that never replies: the ring fills, what does not fit is counted, and the server ends."""
        collector = self.collector()
        collector.release.clear()
        server = self.serve(collector.url)
        self.ask(server)
        with collector.came:
            collector.came.wait_for(lambda: collector.bodies, WAIT_S)  # the sender waits for its reply
        c = server.connection()
        more = 100
        for _ in range(RING + more):
            c.request("POST", "/nix", body="", headers={"Content-Type": "application/json"})
            self.assertEqual(c.getresponse().read()[:1], b"{")
        c.close()
        self.assertEqual(self.metric(server, "dropped", more), more)
        self.ask(server)  # it answers as before
        self.assertEqual(self.metric(server, "dropped", more + 1), more + 1)
        self.assertEqual(server.end(), 0)

    def test_the_end_sends_nothing_twice(self):
        """A collector that has a batch and does not reply: the end waits for the attempt, and makes no other."""
        collector = self.collector()
        collector.release.clear()
        server = self.serve(collector.url)
        self.ask(server)
        with collector.came:
            collector.came.wait_for(lambda: collector.bodies, WAIT_S)
        self.assertEqual(server.end(), 0)
        self.assertEqual(len(collector.bodies), 1)

    def test_what_waits_is_sent_at_the_end(self):
        collector = self.collector()
        server = self.serve(collector.url)
        self.ask(server)
        server.end()
        self.assertEqual(len(collector.spans(6)), 6)

    def test_wrong_url(self):
        done = subprocess.run([PROGRAM, "serve", "-m", MODEL, "--otlp", "collector:4318"], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("--otlp 'collector:4318'", done.stderr)

    def test_wrong_sample(self):
        for options, said in ((["--otlp", "http://127.0.0.1:1", "--otlp-sample", "1.5"], "--otlp-sample '1.5': give a number from 0 to 1"),
                              (["--otlp-sample", "0.5"], "--otlp-sample: needs --otlp URL, the collector")):
            done = subprocess.run([PROGRAM, "serve", "-m", MODEL, *options], capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(said, done.stderr)


if __name__ == "__main__":
    unittest.main()
