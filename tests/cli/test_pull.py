#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise pull` from a server that cuts connections, changes the file in between, lies about lengths, cannot resume, redirects, is busy;
checksums, split models, a full file system."""
import email.utils
import hashlib
import http.server
import json
import os
import pty
import re
import resource
import signal
import ssl
import struct
import subprocess
import tempfile
import threading
import unittest

SOURCE = os.environ.get("REPRISE_SOURCE_DIR", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
PROGRAM = os.environ.get("REPRISE_PROGRAM", os.path.join(SOURCE, "build", "reprise"))
WAIT_S = 120
with open(os.path.join(SOURCE, "models", "reprise-mini.gguf"), "rb") as model_file:
    MODEL = model_file.read()
OTHER = MODEL[:-64] + bytes(64)  # another version, of the same length
SUM = hashlib.sha256(MODEL).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves server.files. server.plan: what happens to the next requests of a model, one word each; then all goes well."""
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def reply(self, status, body, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        s, path = self.server, self.path.split("?")[0]
        name = path.rsplit("/", 1)[1]
        if name == "SHA256SUMS":
            self.reply(200 if s.sums else 404, s.sums)
            return
        s.asked.append((self.path, {k.lower(): v for k, v in self.headers.items()}))
        if name not in s.files:
            self.reply(404, b"<html>nothing here</html>")
            return
        self.serve(s.plan.pop(0) if s.plan else "", s.files[name])

    def serve(self, kind, body):
        s = self.server
        if kind in ("500", "503", "403"):
            self.reply(int(kind), b"no", Retry_After="0")
            return
        if kind.startswith("to "):
            self.reply(302, b"", Location=kind[3:])
            return
        if kind == "closed":
            self.close_connection = True
            return
        if kind == "longer":  # says more than it has
            self.reply(200, body[:1000], ETag=s.etag, Content_Length=str(len(body)))
            self.close_connection = True
            return
        if kind == "shorter":
            self.reply(200, body[:1000], ETag=s.etag)
            return
        if kind == "gzip":
            self.reply(200, body, Content_Encoding="gzip")
            return
        validator = {"ETag": s.etag} if s.etag else {"Last_Modified": s.modified} if s.modified else {}
        start, status = 0, 200
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        fresh = self.headers.get("If-Range") in (s.etag, s.modified) or s.ignores_if_range
        if asked and s.has_ranges and fresh:
            start, status = int(asked[1]), 206
            if start >= len(body):
                self.reply(416, b"", Content_Range=f"bytes */{len(body)}")
                return
            validator["Content_Range"] = f"bytes {start + (kind == 'wrong range')}-{len(body) - 1}/{len(body)}"
        rest = body[start:]
        if kind == "cut":
            self.reply(status, rest[:len(rest) // 2], Content_Length=str(len(rest)), **validator)
            self.close_connection = True
        elif kind == "change":  # cut, and another version from now on
            self.reply(status, rest[:len(rest) // 2], Content_Length=str(len(rest)), **validator)
            self.close_connection = True
            s.files, s.etag = {"m.gguf": OTHER}, '"two"'
        elif kind == "hang":
            self.reply(status, rest[:len(rest) // 2], Content_Length=str(len(rest)), **validator)
            self.wfile.flush()
            s.hanging.release()
            s.free.wait(WAIT_S)
            self.close_connection = True
        else:
            self.reply(status, rest, **validator)


class QuietServer(http.server.ThreadingHTTPServer):
    def handle_error(self, request, client_address):  # clients close connections early here
        pass


class Pull(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.file = os.path.join(self.folder, "m.gguf")
        self.server = self.serve()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/models/m.gguf"

    def serve(self):
        s = QuietServer(("127.0.0.1", 0), Handler)
        s.daemon_threads = True
        s.files, s.sums, s.plan, s.asked = {"m.gguf": MODEL}, b"", [], []
        s.etag, s.modified, s.has_ranges, s.ignores_if_range = '"one"', None, True, False
        s.hanging, s.free = threading.Semaphore(0), threading.Event()
        threading.Thread(target=s.serve_forever, args=(0.01,), daemon=True).start()
        self.addCleanup(s.server_close)
        self.addCleanup(s.shutdown)
        self.addCleanup(s.free.set)
        return s

    def run_pull(self, *args, env=None, **more):
        return subprocess.run([PROGRAM, "pull", "--retry-delay", "0", *args], capture_output=True, text=True, check=False, timeout=WAIT_S,
                              env={**os.environ, "no_proxy": "*", **(env or {})}, **more)

    def pulls(self, *args, content=MODEL, path=None, **more):
        done = self.run_pull(self.url, "-o", self.folder, *args, **more)
        path = path or self.file
        self.assertEqual((done.returncode, done.stdout), (0, path + "\n"), done.stderr)
        with open(path, "rb") as f:
            self.assertTrue(f.read() == content)
        self.assertFalse([name for name in os.listdir(self.folder) if ".part" in name])
        return done

    def fails(self, says, *args, status=1, url=None, **more):
        done = self.run_pull(url or self.url, "-o", self.folder, *args, **more)
        self.assertEqual((done.returncode, done.stdout), (status, ""), done.stderr)
        self.assertIn(says, done.stderr.splitlines()[-1])
        self.assertFalse(os.path.exists(self.file))
        return done

    def ranges(self):
        return [headers.get("range") for _, headers in self.server.asked]

    # ---- downloads that succeed

    def test_plain(self):
        self.assertIn(f"SHA-256 {SUM}, compared with nothing", self.pulls().stderr)
        self.assertIn("exists, and is not overwritten", self.run_pull(self.url, "-o", self.folder).stderr)
        self.assertEqual(len(self.server.asked), 1)

    def test_progress_on_a_terminal(self):
        self.server.plan = ["cut"]
        master, slave = pty.openpty()
        process = subprocess.Popen([PROGRAM, "pull", "--retry-delay", "0", self.url, "-o", self.folder], stdout=subprocess.PIPE, stderr=slave,
                                   env={**os.environ, "TERM": "xterm"})
        os.close(slave)
        drawn = b""
        try:
            while part := os.read(master, 65536):
                drawn += part
        except OSError:  # the other side is closed
            pass
        os.close(master)
        self.assertEqual((process.communicate()[0], process.returncode), (self.file.encode() + b"\n", 0))
        self.assertRegex(drawn, rb"downloading \[#*\.*\] \d/2 MiB")
        self.assertTrue(drawn.rstrip().endswith(b"compared with nothing"), drawn)

    def test_model_runs(self):
        done = self.pulls()
        done = subprocess.run([PROGRAM, "run", "-m", done.stdout.strip(), "--raw", "-p", "Tom has", "-n", "3"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_default_folder_and_names(self):
        base = self.url.rsplit("/", 1)[0]
        done = self.run_pull("m.gguf", env={"XDG_DATA_HOME": self.folder, "REPRISE_MODELS_URL": base})
        self.assertEqual(done.stdout, os.path.join(self.folder, "reprise", "models", "m.gguf") + "\n", done.stderr)
        done = self.run_pull("m.gguf", env={"HOME": self.folder, "XDG_DATA_HOME": "", "REPRISE_MODELS_URL": base + "/"})
        self.assertEqual(done.stdout, os.path.join(self.folder, ".local", "share", "reprise", "models", "m.gguf") + "\n", done.stderr)
        self.assertIn("REPRISE_MODELS_URL is not set", self.run_pull("m.gguf", env={"REPRISE_MODELS_URL": ""}).stderr)
        done = self.run_pull(self.url + "?download=true", "-o", os.path.join(self.folder, "mine.gguf"))
        self.assertEqual(done.stdout, os.path.join(self.folder, "mine.gguf") + "\n", done.stderr)
        self.assertTrue(self.server.asked[-1][0].endswith("/m.gguf?download=true"))

    def test_wrong_use(self):
        for url in ("ftp://127.0.0.1/m.gguf", self.url.rsplit("/", 1)[0] + "/", "http://127.0.0.1:x/m.gguf", self.url.replace("m.gguf", "%0a")):
            self.fails("", status=2, url=url)
        self.fails("64 hexadecimal digits", "--sha256", "12", status=2)
        self.assertEqual(self.run_pull(self.url, "-o", "/nowhere/x.gguf").returncode, 1)

    # ---- connections

    def test_cut_connections_are_resumed(self):
        self.server.plan = ["cut", "closed", "cut", "503", "cut"]
        done = self.pulls("--retries", "2", "--sha256", SUM.upper())
        self.assertIn("SHA-256 as in --sha256", done.stderr)
        half = len(MODEL) // 2
        self.assertEqual(self.ranges()[:3], [None, f"bytes={half}-", f"bytes={half}-"])
        self.assertEqual(len(self.server.asked), 6)
        self.assertEqual(self.server.asked[1][1]["if-range"], '"one"')

    def test_another_run_resumes(self):
        self.server.plan = ["cut"]
        self.fails("closed before the end", "--retries", "0")
        half = len(MODEL) // 2
        self.assertEqual(os.path.getsize(self.file + ".part"), half)
        with open(self.file + ".part.json", encoding="utf-8") as f:
            self.assertEqual(json.load(f), {"url": self.url, "validator": '"one"', "length": len(MODEL)})
        self.pulls("--sha256", SUM)
        self.assertEqual(self.ranges(), [None, f"bytes={half}-"])

    def test_part_of_another_url(self):
        self.server.plan = ["cut"]
        self.fails("closed before the end", "--retries", "0")
        self.url += "?other"
        self.pulls()
        self.assertEqual(self.ranges(), [None, None])

    def test_last_modified_instead_of_etag(self):
        self.server.etag, self.server.modified = None, email.utils.formatdate(1e9, usegmt=True)
        self.server.plan = ["cut"]
        self.pulls()
        self.assertEqual(self.server.asked[1][1]["if-range"], self.server.modified)

    def test_weak_etag_is_no_validator(self):
        self.server.etag = 'W/"one"'
        self.server.plan = ["cut"]
        self.pulls()
        self.assertEqual(self.ranges(), [None, None])

    def test_no_validator(self):
        self.server.etag = None
        self.server.plan = ["cut"]
        self.pulls()
        self.assertEqual(self.ranges(), [None, None])

    def test_server_without_ranges(self):
        self.server.has_ranges = False
        self.server.plan = ["cut"]
        self.assertIn("from the start", self.pulls().stderr)
        self.server.plan = ["cut"] * 20  # without progress it ends
        os.unlink(self.file)
        self.fails("closed before the end", "--retries", "3")

    def test_file_changes_in_between(self):
        for ignores in (False, True):
            with self.subTest(ignores_if_range=ignores):
                self.server.files, self.server.etag, self.server.plan = {"m.gguf": MODEL}, '"one"', ["change"]
                self.server.ignores_if_range = ignores
                self.pulls(content=OTHER)
                os.unlink(self.file)

    def test_wrong_range(self):
        self.server.plan = ["cut", "wrong range"]
        self.pulls()
        self.assertEqual(self.ranges()[2], None)

    def test_busy_and_broken(self):
        self.server.plan = ["500", "503", "closed"]
        self.pulls()
        os.unlink(self.file)
        self.server.plan = ["503"] * 9
        self.assertEqual(self.fails("HTTP status 503", "--retries", "2").stderr.count("retry"), 2)
        self.server.plan = ["403"]
        self.fails("--key-file")
        self.server.plan = []
        self.fails("no such file at the server", url=self.url.replace("m.gguf", "other.gguf"))
        self.assertEqual(os.listdir(self.folder), [])

    def test_nobody_there(self):
        self.fails("connect", "--retries", "1", url="http://127.0.0.1:1/m.gguf")

    def test_interrupted(self):
        self.server.plan = ["hang"]
        process = subprocess.Popen([PROGRAM, "pull", self.url, "-o", self.folder], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertTrue(self.server.hanging.acquire(timeout=WAIT_S))
        while not os.path.exists(self.file + ".part") or os.path.getsize(self.file + ".part") < len(MODEL) // 2:
            pass
        self.assertIn("another process is downloading", self.run_pull(self.url, "-o", self.folder).stderr)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=WAIT_S)
        self.assertEqual((process.returncode, out), (130, ""))
        self.pulls("--sha256", SUM)
        self.assertEqual(self.ranges()[-1], f"bytes={len(MODEL) // 2}-")

    def test_redirects(self):
        self.server.plan = ["to " + self.url, "cut", "to " + self.url]
        self.pulls()
        self.assertEqual(self.ranges()[2:], [f"bytes={len(MODEL) // 2}-"] * 2)
        os.unlink(self.file)
        self.server.plan = ["to " + self.url] * 20
        self.fails("redirects")
        self.server.plan = ["to file:///etc/passwd"]
        self.fails("")

    def test_key_goes_to_its_host_alone(self):
        other = self.serve()
        key = os.path.join(self.folder, "key")
        with open(key, "w", encoding="utf-8") as f:
            f.write("secret\n")
        self.server.plan = [f"to http://localhost:{other.server_address[1]}/m.gguf"]
        self.pulls("--key-file", key)
        self.assertEqual(self.server.asked[0][1]["authorization"], "Bearer secret")
        self.assertNotIn("authorization", other.asked[0][1])

    def test_tls(self):
        cert, key = os.path.join(self.folder, "cert.pem"), os.path.join(self.folder, "key.pem")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
                        "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", cert], check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        secure = self.serve()
        secure.socket = context.wrap_socket(secure.socket, server_side=True, do_handshake_on_connect=False)
        plain, self.url = self.url, f"https://localhost:{secure.server_address[1]}/m.gguf"
        self.fails("certificate", "--retries", "0")
        secure.plan = ["to " + plain]  # not to plain HTTP
        self.fails("", "--ca-file", cert)
        self.assertEqual(len(self.server.asked), 0)
        self.pulls("--ca-file", cert)

    # ---- contents

    def test_lengths_that_lie(self):
        self.server.plan = ["longer"]
        self.pulls()
        os.unlink(self.file)
        self.server.plan = ["shorter"]
        self.fails("is not a readable GGUF model, and is deleted")
        self.server.plan = ["gzip"]
        self.fails("compressed")
        self.assertEqual(os.listdir(self.folder), [])

    def test_not_a_model(self):
        self.server.files = {"m.gguf": b"<html>Please log in</html>", "notes.txt": b"text", "empty.gguf": b""}
        self.fails("is not a readable GGUF model")
        self.fails("the reply is empty", "--retries", "0", url=self.url.replace("m.gguf", "empty.gguf"))
        self.pulls("--unchecked", content=self.server.files["m.gguf"])
        self.url = self.url.replace("m.gguf", "notes.txt")
        self.pulls(content=b"text", path=os.path.join(self.folder, "notes.txt"))

    def test_checksums(self):
        self.fails("SHA-256 is " + SUM, "--sha256", "0" * 64)
        self.assertEqual(os.listdir(self.folder), [])
        self.server.sums = f"{'1' * 64}  other.gguf\n{SUM} *m.gguf\r\n".encode()
        self.assertIn("SHA-256 as in SHA256SUMS", self.pulls().stderr)
        os.unlink(self.file)
        self.server.sums = f"{'1' * 64}  m.gguf\n".encode()
        self.fails("instead of " + "1" * 64)
        self.server.sums = b"<html>any page</html>"
        self.assertIn("compared with nothing", self.pulls().stderr)

    def test_damaged_part(self):
        """A part that was changed on disk: the checksum finds it, and the next run starts anew."""
        self.server.plan = ["cut"]
        self.fails("closed before the end", "--retries", "0")
        with open(self.file + ".part", "r+b") as f:
            f.write(b"XXXX")
        self.fails("SHA-256 is", "--sha256", SUM)
        self.pulls("--sha256", SUM)

    # ---- disks

    def test_full_file_system(self):
        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write beyond the limit fails
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        done = self.fails("cannot write", preexec_fn=limit, restore_signals=False)
        self.assertIn("the same command resumes it", done.stderr)
        self.assertEqual(os.path.getsize(self.file + ".part"), 1 << 20)
        self.pulls("--sha256", SUM)
        self.assertEqual(self.ranges()[-1], f"bytes={1 << 20}-")

    def test_too_large_for_the_file_system(self):
        class Endless(Handler):
            def do_GET(handler):  # pylint: disable=no-self-argument
                handler.reply(404 if handler.path.endswith("SUMS") else 200, b"GGUF", Content_Length=str(1 << 60), ETag='"x"')
                handler.close_connection = True
        self.server.RequestHandlerClass = Endless
        self.fails("not enough space on its file system")

    # ---- names that others made in the folder (FILE.part as a link to a file of the caller)

    def test_links_are_not_followed(self):
        victim = os.path.join(self.folder, "victim")
        def plant(name, make):
            with open(victim, "w", encoding="utf-8") as f:
                f.write("mine")
            make(victim, self.file + name)
        for make, says in ((os.symlink, "it is a symbolic link"), (os.link, "it has other names (hard links)"),
                           (lambda _, path: os.symlink("/nowhere/x", path), "it is a symbolic link"),
                           (lambda _, path: os.mkfifo(path), "it is not a regular file"), (lambda _, path: os.mkdir(path), "")):
            with self.subTest(says=says):
                plant(".part", make)
                self.fails(says)
                with open(victim, encoding="utf-8") as f:
                    self.assertEqual(f.read(), "mine")
                self.assertEqual(self.server.asked, [])
                os.rmdir(self.file + ".part") if os.path.isdir(self.file + ".part") else os.unlink(self.file + ".part")
        for name in (".part.json", ".part.json.new"):  # replaced, not written through, and a pipe does not stop the command
            for make in (os.symlink, os.link, lambda _, path: os.mkfifo(path)):
                with self.subTest(name=name):
                    plant(name, make)
                    self.assertEqual(self.run_pull(self.url, "-o", self.folder).returncode, 0)
                    with open(victim, encoding="utf-8") as f:
                        self.assertEqual(f.read(), "mine")
                    os.unlink(self.file)
        for target in (victim, "/nowhere/x"):  # FILE itself
            os.symlink(target, self.file)
            self.assertIn("exists, and is not overwritten", self.run_pull(self.url, "-o", self.folder).stderr)
            os.unlink(self.file)

    def test_a_part_that_is_replaced_meanwhile(self):
        self.server.plan = ["hang"]
        process = subprocess.Popen([PROGRAM, "pull", "--retry-delay", "0", self.url, "-o", self.folder], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, env={**os.environ, "no_proxy": "*"})
        self.assertTrue(self.server.hanging.acquire(timeout=WAIT_S))
        while not os.path.exists(self.file + ".part") or os.path.getsize(self.file + ".part") < len(MODEL) // 2:
            pass
        os.unlink(self.file + ".part")
        with open(self.file + ".part", "wb") as f:
            f.write(OTHER)
        self.server.free.set()
        _, err = process.communicate(timeout=WAIT_S)
        self.assertEqual((process.returncode, os.path.exists(self.file)), (1, False), err)
        self.assertIn("was replaced during the download", err)

    # ---- sizes (a server without Content-Length that sends for ever)

    def serve_unsized(self, body, more, length=None):
        """body, then `more` again and again until the client leaves, without Content-Length."""
        outer = self
        class Unsized(Handler):
            def do_GET(handler):  # pylint: disable=no-self-argument
                if handler.path.endswith("SUMS"):
                    handler.reply(404, b"")
                    return
                handler.send_response(200)
                handler.send_header("ETag", '"x"')
                if length:
                    handler.send_header("Content-Length", str(length))
                handler.end_headers()
                handler.close_connection = True
                try:
                    handler.wfile.write(body)
                    outer.sent = len(body)
                    while more and outer.sent < 64 << 20:
                        handler.wfile.write(more)
                        outer.sent += len(more)
                except OSError:
                    pass
        self.server.RequestHandlerClass = Unsized

    def test_model_without_length(self):
        self.serve_unsized(MODEL, b"")
        self.pulls()

    def test_bytes_after_a_model(self):
        for length in (None, 1 << 30, len(MODEL) + (1 << 20)):
            self.serve_unsized(MODEL, bytes(1 << 20), length)
            self.fails("more bytes than the ", "--retries", "0")
            self.assertLess(self.sent, 64 << 20)
            self.assertEqual(os.listdir(self.folder), [])
        self.server.RequestHandlerClass = Handler
        self.server.files = {"m.gguf": MODEL + b"\0" * 64}
        self.fails("more bytes than the ")
        self.pulls("--unchecked", content=MODEL + b"\0" * 64)

    def test_max_size(self):
        self.serve_unsized(b"no model", bytes(1 << 20))
        self.fails("has more than 3145728 bytes", "--max-size", "3M", "--retries", "0")
        self.assertLessEqual(os.path.getsize(self.file + ".part"), 3 << 20)
        self.assertLess(self.sent, 64 << 20)
        self.server.RequestHandlerClass = Handler
        os.unlink(self.file + ".part")
        self.fails("has more than 1024 bytes", "--max-size", "1K")
        self.pulls("--max-size", str(len(MODEL)))

    # ---- split models

    def test_split_model(self):
        parts = split_model(MODEL, 3)
        names = [f"m-{i + 1:05d}-of-00003.gguf" for i in range(3)]
        self.server.files = dict(zip(names, parts))
        self.server.sums = "".join(f"{hashlib.sha256(p).hexdigest()}  {n}\n" for n, p in zip(names, parts)).encode()
        self.server.plan = ["", "cut"]
        self.url = self.url.replace("m.gguf", names[1])  # any of its files
        done = self.run_pull(self.url, "-o", self.folder, "--retries", "0")
        self.assertEqual((done.returncode, sorted(os.listdir(self.folder))),
                         (1, sorted(n + end for n in names[:2] for end in (".part", ".part.json"))), done.stderr)
        done = self.pulls(content=parts[0], path=os.path.join(self.folder, names[0]))
        self.assertEqual(sorted(os.listdir(self.folder)), names)
        self.assertEqual(len(self.server.asked), 4)  # the first was complete
        text = subprocess.run([PROGRAM, "run", "-m", done.stdout.strip(), "--raw", "-p", "Tom has", "-n", "3"], capture_output=True, text=True, check=False)
        self.assertEqual(text.returncode, 0, text.stderr)

    def test_split_model_of_another(self):
        parts = split_model(MODEL, 2)
        names = [f"m-{i + 1:05d}-of-00002.gguf" for i in range(2)]
        self.server.files = {names[0]: parts[0], names[1]: parts[0]}
        self.url = self.url.replace("m.gguf", names[0])
        self.fails("is not a readable GGUF model")
        self.assertEqual(os.listdir(self.folder), [])
        self.assertEqual(self.run_pull(self.url, "-o", os.path.join(self.folder, "x.gguf")).returncode, 2)
        self.assertEqual(self.run_pull(self.url, "-o", self.folder, "--sha256", SUM).returncode, 2)


# ---- GGUF

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


def skip_value(data, at, kind):
    if kind == 8:
        return at + 8 + struct.unpack_from("<Q", data, at)[0]
    if kind == 9:
        kind, n = struct.unpack_from("<IQ", data, at)
        at += 12
        for _ in range(n) if kind in (8, 9) else ():
            at = skip_value(data, at, kind)
        return at if kind in (8, 9) else at + n * SIZES[kind]
    return at + SIZES[kind]


def split_model(data, n):
    """The files of a split model with the content of one: metadata in the first, tensors in all."""
    n_tensors, n_metadata = struct.unpack_from("<QQ", data, 8)
    at = start = 24
    for _ in range(n_metadata):
        at += 8 + struct.unpack_from("<Q", data, at)[0]
        at = skip_value(data, at + 4, struct.unpack_from("<I", data, at)[0])
    metadata, tensors = data[start:at], []
    for _ in range(n_tensors):
        begin, length = at, struct.unpack_from("<Q", data, at)[0]
        n_dims = struct.unpack_from("<I", data, at + 8 + length)[0]
        at += 8 + length + 4 + 8 * n_dims + 4 + 8
        tensors.append((data[begin:at - 8], struct.unpack_from("<Q", data, at - 8)[0]))
    base = (at + 31) // 32 * 32
    ends = sorted([offset for _, offset in tensors] + [len(data) - base])
    files = []
    for i in range(n):
        own = [t for k, t in enumerate(tensors) if k * n // n_tensors == i]
        head, body = b"", b""
        for info, offset in own:
            head += info + struct.pack("<Q", len(body))
            body += data[base + offset:base + next(e for e in ends if e > offset)]
            body += bytes(-len(body) % 32)
        keys = [(b"split.no", 2, struct.pack("<H", i)), (b"split.count", 2, struct.pack("<H", n)),
                (b"split.tensors.count", 5, struct.pack("<i", n_tensors))]
        more = b"".join(struct.pack("<Q", len(k)) + k + struct.pack("<I", kind) + v for k, kind, v in keys)
        text = data[:8] + struct.pack("<QQ", len(own), len(keys) + (n_metadata if i == 0 else 0)) + more + (metadata if i == 0 else b"") + head
        files.append(text + bytes(-len(text) % 32) + body)
    return files


if __name__ == "__main__":
    unittest.main()
