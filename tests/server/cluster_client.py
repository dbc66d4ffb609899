# SPDX-License-Identifier: Apache-2.0
"""A router, as far as tests of a node need one: signs requests, writes the headers of a route, reads span streams and marks. Written from
docs/cluster-protocol.md and src/cluster/wire.h, with Python's BLAKE2b and integers."""
import hashlib
import http.client
import json
import os
import struct
import tempfile

from server_process import Reply, Server

SECRET = bytes(range(32))
HELLO, SNAPSHOT, NAMES, CHANGES, LOAD, DIGEST = range(1, 7)


def framed(parts):
    return b"".join(struct.pack("<I", len(part)) + part for part in parts)


def poly1305(key, message):
    """RFC 8439, 2.5."""
    r, s = int.from_bytes(key[:16], "little") & 0x0ffffffc0ffffffc0ffffffc0fffffff, int.from_bytes(key[16:], "little")
    sum = 0
    for at in range(0, len(message), 16):
        sum = (sum + int.from_bytes(message[at:at + 16] + b"\1", "little")) * r % ((1 << 130) - 5)
    return (sum + s & (1 << 128) - 1).to_bytes(16, "little")


def signature(method, target, body=b"", route="", resume="", secret=SECRET, nonce=None):
    nonce = nonce or os.urandom(16).hex()
    key = hashlib.blake2b(framed([b"reprise body 1", bytes.fromhex(nonce)]), key=secret, digest_size=32).digest()
    parts = [b"reprise request 1", method.encode(), target.encode(), nonce.encode(), route.encode(), resume.encode(), poly1305(key, body)]
    return f"1;{nonce};{hashlib.blake2b(framed(parts), key=secret, digest_size=32).hexdigest()}"


def secret_file():
    f = tempfile.NamedTemporaryFile(suffix=".secret")  # mode 600
    f.write(SECRET.hex().encode() + b"\n")
    f.flush()
    return f


class Node(Server):
    """A server whose last address is that of the cluster."""

    def __init__(self, *options, name=None, **more):
        self.secret = secret_file()
        names = ("--cluster-name", name) if name else ()
        super().__init__("--cluster-listen", "127.0.0.1:0", "--cluster-secret", self.secret.name, *names, *options, **more)

    def stop(self):
        self.secret.close()
        super().stop()

    def signed(self, method, path, body=b"", headers=None, route="", resume="", **more):
        """A request on the cluster's port: its connection and response, whose body is not read."""
        c = self.connection(len(self.addresses) - 1)
        headers = {"Content-Type": "application/json", "x-reprise-cluster": signature(method, path, body, route, resume, **more), **(headers or {})}
        if route:
            headers["x-reprise-route"] = route
        if resume:
            headers["x-reprise-resume"] = resume
        c.request(method, path, body=body or None, headers=headers)
        return c, c.getresponse()

    def relay(self, method, path, body=b"", **more):
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
        c, response = self.signed(method, path, body, **more)
        try:
            return Reply(response)
        finally:
            c.close()

    def stream(self, epoch=0, after=0):
        return SpanStream(self, epoch, after)

    def epoch(self):
        s = self.stream()
        try:
            return s.hello["epoch"]
        finally:
            s.close()

    def route(self, id="req-1", seed=7, created=1790000000, marks=0, epoch=None):
        if epoch is None:
            self.known_epoch = getattr(self, "known_epoch", None) or self.epoch()
            epoch = self.known_epoch
        return f"epoch={epoch:016x};id={id};seed={seed};created={created};marks={marks}"


class SpanStream:
    """Frames of a node, whose tags and numbers are checked; names: what it holds, by what it said."""

    def __init__(self, node, epoch, after):
        nonce = os.urandom(16)
        path = f"/v1/cluster/stream?epoch={epoch:x}&after={after}"
        self.signature = signature("GET", path, nonce=nonce.hex())
        self.connection, self.response = node.signed("GET", path, nonce=nonce.hex())
        if self.response.status != 200:
            said = self.response.status, self.response.read()
            self.close()
            raise AssertionError(said)
        hash = hashlib.blake2b(digest_size=32)
        for part in (b"reprise cluster stream 1", SECRET, nonce):
            hash.update(b"b" + struct.pack("<Q", len(part)) + part)
        self.key, self.number, self.names, self.seq, self.loads = hash.digest(), 0, {}, after, []
        self.hello = None
        self.next(HELLO)

    def bytes(self, n):
        found = b""
        while len(found) < n:
            try:
                piece = self.response.read(n - len(found))
            except http.client.IncompleteRead as cut:
                raise EOFError from cut
            if not piece:
                raise EOFError
            found += piece
        return found

    def frame(self):
        """The next one, as (kind, body), after its effect."""
        n, = struct.unpack("<I", self.bytes(4))
        frame = self.bytes(n)
        content, tag = frame[:-16], frame[-16:]
        if hashlib.blake2b(struct.pack("<Q", self.number) + content, key=self.key, digest_size=16).digest() != tag:
            raise AssertionError(f"frame {self.number} has a wrong tag")
        self.number += 1
        self.apply(content[0], content[1:])
        return content[0], content[1:]

    def apply(self, kind, body):
        if kind == HELLO:
            self.hello = dict(zip(("version", "epoch", "n_ctx", "max_sequences", "max_queue"), struct.unpack_from("<I4xQ3i", body)))
            at, texts = 48, []
            while at < len(body):
                texts.append(body[at + 1:at + 1 + body[at]].decode())
                at += 1 + body[at]
            self.hello |= dict(zip(("identity", "node", "model", "kv_format", "weights"), texts))
        elif kind == SNAPSHOT:
            self.seq, self.names = struct.unpack("<Q", body[:8])[0], {}
        elif kind in (NAMES, CHANGES):
            if kind == CHANGES:
                first, = struct.unpack_from("<Q", body)
                if first != self.seq + 1:
                    raise AssertionError(f"change {first} after {self.seq}")
                body = body[8:]
                self.seq += len(body) // 17
            for at in range(0, len(body), 17):
                self.names[body[at:at + 16]] = body[at + 16]
            self.names = {name: tiers for name, tiers in self.names.items() if tiers}
        elif kind == LOAD:
            fields = struct.unpack("<Q4i2q4Q2i16dQ?", body)
            self.loads.append(dict(zip(("sent_us", "running", "waiting", "decoding", "background", "queued_tokens"), fields)) | {"schemas": fields[-2], "draining": fields[-1]})

    def next(self, wanted):
        while True:
            kind, body = self.frame()
            if kind == wanted:
                return body

    def close(self):
        self.connection.close()


class Marked:
    """The bytes of a stream, split at its marks: pieces[i] is what comes before marks[i], as (text_bytes, frames, tokens)."""

    def __init__(self, body):
        self.pieces, self.marks, piece = [], [], b""
        for line in body.split(b"\n"):
            if line.startswith(b": r "):
                numbers = [int(word) for word in line[4:].split()]
                self.pieces.append(piece)
                self.marks.append((numbers[0], numbers[1], numbers[2:]))
                piece = b""
            else:
                piece += line + b"\n"
        self.rest = piece[:-1]

    def until(self, n):
        """What a client has after n marks, and the tokens of it."""
        tokens = [token for mark in self.marks[:n] for token in mark[2]]
        return b"".join(self.pieces[:n]), tokens
