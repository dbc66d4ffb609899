# SPDX-License-Identifier: Apache-2.0
"""A `reprise serve` that tests talk to: started on a free port or a Unix socket, which it reports itself; ended by SIGTERM."""
import faulthandler
import http.client
import json
import os
import signal
import socket
import subprocess
import tempfile
import threading
import unittest

SOURCE = os.environ.get("REPRISE_SOURCE_DIR", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
PROGRAM = os.environ.get("REPRISE_PROGRAM", os.path.join(SOURCE, "build", "reprise"))
MODEL = os.path.join(SOURCE, "models", "reprise-mini.gguf")
JSON = {"Content-Type": "application/json"}
WAIT_S = 120  # for what has to come; nothing is judged by it
faulthandler.dump_traceback_later(int(os.environ.get("REPRISE_TEST_HANGS_S", "540")))  # where a test waits that ctest ends after 600 s


def load_of(server, *options):
    """`reprise bench serve` on a server, begun: ended by finish_load."""
    return subprocess.Popen([PROGRAM, "bench", "serve", "--url", server.addresses[0], "--json", *options], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def finish_load(process, number=None):
    """Exit status, report and error lines of a load; number: a signal that ends it."""
    if number is not None:
        process.send_signal(number)
    out, errors = process.communicate(timeout=WAIT_S)
    return process.returncode, json.loads(out.splitlines()[-1]) if out else None, errors


class Reply:
    def __init__(self, response):
        self.status, self.headers, self.body = response.status, response.headers, response.read()

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def frames(self):
        """Server-sent events as (event, data), data as text."""
        found = []
        for block in self.body.decode().split("\n\n"):
            lines = [line.split(": ", 1) for line in block.split("\n") if ": " in line]
            if lines:
                found.append((dict(lines).get("event"), dict(lines)["data"]))
        return found


class Server:
    command = ("serve", "--threads", "1")

    def __init__(self, *options, model=MODEL, env=None, **more):
        self.errors = tempfile.TemporaryFile("w+")
        name, *always = self.command
        self.process = subprocess.Popen([PROGRAM, name, "-m", model, "--port", "0", *always, *options], stdout=subprocess.PIPE, stderr=self.errors,
                                        text=True, env=env, **more)
        self.addresses = []
        self.is_killed = False

    def wait_listening(self, n=1):
        while len(self.addresses) < n:
            line = self.process.stdout.readline()
            if not line:
                raise AssertionError(f"the server ended: {self.process.wait()} {self.said()}")
            if line.startswith("listening on "):
                self.addresses.append(line[len("listening on "):].strip())
        return self

    def wait_ready(self):
        for line in self.process.stdout:
            if line.startswith("listening on "):
                self.addresses.append(line[len("listening on "):].strip())
            if line == "ready\n":
                return self
        raise AssertionError(f"the server ended: {self.process.wait()} {self.said()}")

    def said(self):
        """Without moving the offset, which is the server's, too."""
        fd = self.errors.fileno()
        return os.pread(fd, os.fstat(fd).st_size, 0).decode()

    def log(self):
        return [json.loads(line) for line in self.said().splitlines() if line.startswith("{")]

    def end(self, number=signal.SIGTERM):
        """The exit status, after a signal."""
        self.is_killed = number == signal.SIGKILL
        self.process.send_signal(number)
        status = self.process.wait(WAIT_S)
        self.process.stdout.close()
        return status

    def stop(self):
        """Ends it if it runs. However it ended, it must have been well, or by end(SIGKILL)."""
        if self.process.poll() is None:
            self.end()
        self.process.stdout.close()
        status, said = self.process.returncode, self.said()
        self.errors.close()
        if status != (-signal.SIGKILL if self.is_killed else 0):  # a crash, a sanitizer's finding
            raise AssertionError(f"the server ended with {status}: {said[-5000:]}")

    # ---- talking to it

    def socket(self, address=0):
        where = self.addresses[address]
        if where.startswith("unix:"):
            s = socket.socket(socket.AF_UNIX)
            s.settimeout(WAIT_S)
            s.connect(where[len("unix:"):])
            return s
        host, port = where[len("http://"):].rsplit(":", 1)
        s = socket.create_connection((host.strip("[]"), int(port)), WAIT_S)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return s

    def connection(self, address=0):
        c = http.client.HTTPConnection("localhost", timeout=WAIT_S)
        c.sock = self.socket(address)
        return c

    def ask(self, method, path, body=None, headers=None, address=0):
        c = self.connection(address)
        try:
            if isinstance(body, (dict, list)):
                body = json.dumps(body)
            if method in ("POST", "PATCH"):
                headers = {**JSON, **(headers or {})}
            try:
                c.request(method, path, body=body, headers=headers or {})
            except BrokenPipeError:
                pass  # refused before all of the body was there: the reply says why
            return Reply(c.getresponse())
        finally:
            c.close()

    def get(self, path, **more):
        return self.ask("GET", path, **more)

    def post(self, path, body, **more):
        return self.ask("POST", path, body, **more)

    def metrics(self):
        found = {}
        for line in self.get("/metrics").body.decode().splitlines():
            if not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                found[name] = float(value) if "." in value else int(value)
        return found

    def wait_idle(self):
        """Until no call of the engine, no request and no body is left. It asks again and again,
        without a pause and without a limit of its own."""
        while True:
            now = self.metrics()
            if not any(now[f"reprise_{name}"] for name in ("jobs_open", "requests_active", "requests_suspended", "body_bytes")):
                return now


def raw_request(path, body, headers=""):
    text = json.dumps(body)
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n{headers}\r\n{text}".encode()


def read_until_closed(s):
    received = b""
    try:
        while part := s.recv(65536):
            received += part
    except ConnectionResetError:
        pass
    return received


def key_line(key, *words):
    done = subprocess.run([PROGRAM, "serve", "--hash-key"], input=key + "\n", capture_output=True, text=True, check=True)
    return " ".join([done.stdout.strip(), *words]) + "\n"


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


def in_parallel(jobs):
    """Runs functions in threads; the first exception is raised."""
    failed = []

    def run(job):
        try:
            job()
        except BaseException as e:  # told by the caller
            failed.append(e)

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if failed:
        raise failed[0]


class ServerCase(unittest.TestCase):
    """A server of its own for all tests of a class."""
    options = ()

    @classmethod
    def setUpClass(cls):
        cls.server = Server("--log", "off", *cls.options).wait_ready()
        cls.addClassCleanup(cls.server.stop)
