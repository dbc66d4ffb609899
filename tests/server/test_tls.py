#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise explain`, `diff` and `bench serve` over TLS: a server behind a proxy that ends TLS, with a self-signed certificate."""
import json
import os
import socket
import ssl
import subprocess
import tempfile
import threading
import unittest

from server_process import PROGRAM, WAIT_S, Server, key_line

KEY = "key-of-tls-0123456789"


def make_certificate(folder, name):
    """Files of a certificate for localhost and 127.0.0.1, and of its key."""
    cert, key = os.path.join(folder, f"{name}.pem"), os.path.join(folder, f"{name}.key")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key, "-out", cert], check=True, capture_output=True)
    return cert, key


def relay(source, target):
    try:
        while part := source.recv(65536):
            target.sendall(part)
        target.shutdown(socket.SHUT_WR)
    except OSError:  # either side closed
        pass


class TlsProxy:
    """Ends TLS on a free port and passes the bytes on to a server."""

    def __init__(self, server, cert, key):
        self.server = server
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(cert, key)
        self.listener = socket.create_server(("0.0.0.0", 0))  # 127.0.0.2, too, which the certificate does not name
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                plain, _ = self.listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self.serve, args=(plain,), daemon=True).start()

    def serve(self, plain):
        try:
            with self.context.wrap_socket(plain, server_side=True) as client, self.server.socket() as upstream:
                back = threading.Thread(target=relay, args=(upstream, client), daemon=True)
                back.start()
                relay(client, upstream)
                back.join(WAIT_S)
        except OSError:  # the client refused the certificate
            pass


def reprise(*args, **env):
    return subprocess.run([PROGRAM, *args], capture_output=True, text=True, check=False, timeout=WAIT_S, env={**os.environ, **env})


class Tls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.cert, key = make_certificate(folder.name, "server")
        cls.other, _ = make_certificate(folder.name, "other")
        cls.key_file = os.path.join(folder.name, "key")
        keys = os.path.join(folder.name, "keys")
        with open(keys, "w", encoding="utf-8") as f:
            f.write(key_line(KEY))
        with open(cls.key_file, "w", encoding="utf-8") as f:
            f.write(KEY + "\n")
        cls.server = Server("--log", "off", "--api-keys", keys).wait_ready()
        cls.addClassCleanup(cls.server.stop)
        cls.proxy = TlsProxy(cls.server, cls.cert, key)
        cls.addClassCleanup(cls.proxy.listener.close)
        cls.url = f"https://localhost:{cls.proxy.port}"

    def ids(self):
        done = reprise("explain", "--url", self.url, "--ca-file", self.cert, "--key-file", self.key_file, "--json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return [one["id"] for one in json.loads(done.stdout)["data"]]

    def test_load_and_reports(self):
        done = reprise("bench", "serve", "--url", self.url, "--ca-file", self.cert, "--count", "6", "--rate", "100", "-n", "4", "--prompt-tokens", "8",
                       "--connections", "2", "--json", REPRISE_API_KEY=KEY)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        report = json.loads(done.stdout)
        self.assertEqual((report["requests"]["done"], report["errors"], report["ttft_ms"]["n"]), (6, {}, 6))
        ids = self.ids()
        self.assertEqual(len(ids), 6)
        same = ["--ca-file", self.cert, "--key-file", self.key_file]
        self.assertIn("prompt", reprise("explain", ids[0], "--url", self.url, *same).stdout)
        done = reprise("diff", ids[1], ids[0], "--url", f"https://127.0.0.1:{self.proxy.port}", *same)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def fails(self, says, *args):
        done = reprise(*args)
        self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
        self.assertIn(says, done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)

    def test_certificates_that_are_not_trusted(self):
        for command in (["explain"], ["bench", "serve", "--count", "1"]):
            self.fails("is not trusted", *command, "--url", self.url)
            self.fails("is not trusted", *command, "--url", self.url, "--ca-file", self.other)
            self.fails("--ca-file", *command, "--url", self.url, "--ca-file", "/nowhere/x.pem")
            self.fails("--ca-file", *command, "--url", self.url, "--ca-file", self.key_file)
        # a name that the certificate does not have
        self.fails("is not trusted", "explain", "--url", f"https://127.0.0.2:{self.proxy.port}", "--ca-file", self.cert)

    def test_plain_server(self):
        self.fails("cannot reach https://", "explain", "--url", self.server.addresses[0].replace("http://", "https://"))


if __name__ == "__main__":
    unittest.main()
