# SPDX-License-Identifier: Apache-2.0
"""Random requests from the grammar of RFC 9112, and mutations that break it: each gets one reply, or a refusal and a closed connection; never a hang.

A legal request has random white space, case, order and repetition wherever the grammar permits them, and reports what its reply must be. Several are
pipelined on a connection, so that a server that frames one of them differently answers the next ones wrongly. `attack(server, seed, seconds)` runs it.
"""
import random
import re
import socket
import time
import zlib

HANG_S = 20  # for a reply that must come at once; the server's own time limits are longer
BODY = b'{"content": "Tom had a red ball %d"}'
NAMES = (b"X-Test", b"Accept", b"accept-language", b"Via", b"Forwarded", b"X-Forwarded-For", b"Pragma", b"TE", b"Cookie", b"cookie", b"If-None-Match", b"_x!#$%&'*+-.^`|~9")
VALUES = (b"", b"a", b"a, b", b'"quoted, \\" text"', b"caf\xc3\xa9 \xff", b"a=b; c=d", b"(comment)", b"chunked", b"0", b"a:b", b"*/*", b"x" * 500)
ILLEGAL = {
    "a space before the colon": lambda r, h: h.replace(b":", b" :", 2), "a fold": lambda r, h: h[:-2] + b" folded\r\n\r\n",
    "LF": lambda r, h: h.replace(b"\r\n", b"\n", 1), "CR": lambda r, h: h.replace(b"\r\n", b"\r", 1), "a CR in a value": lambda r, h: h[:-4] + b"\rX: y\r\n\r\n",
    "NUL": lambda r, h: insert(r, h, b"\0"), "a control character": lambda r, h: h[:-4] + bytes([r.choice((1, 8, 11, 12, 27, 127))]) + b"\r\n\r\n",
    "no name": lambda r, h: h[:-2] + b": x\r\n\r\n", "no colon": lambda r, h: h[:-2] + b"Host\r\n\r\n",
    "two hosts": lambda r, h: h[:-2] + b"Host: localhost\r\nhost: localhost\r\n\r\n", "two lengths": lambda r, h: h[:-2] + b"Content-Length: 5\r\ncontent-length: 5\r\n\r\n",
    "a list of lengths": lambda r, h: with_framing(h, b"Content-Length: 5, 5"), "a length and chunks": lambda r, h: h[:-2] + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
    "a sign": lambda r, h: with_framing(h, b"Content-Length: +5"), "a negative length": lambda r, h: with_framing(h, b"Content-Length: -5"),
    "hexadecimal": lambda r, h: with_framing(h, b"Content-Length: 0x5"), "a huge length": lambda r, h: with_framing(h, b"Content-Length: " + b"9" * r.choice((19, 20, 40))),
    "an empty length": lambda r, h: with_framing(h, b"Content-Length:"), "chunked, chunked": lambda r, h: with_framing(h, b"Transfer-Encoding: chunked, chunked"),
    "gzip, chunked": lambda r, h: with_framing(h, b"Transfer-Encoding: gzip, chunked"), "chunked; x": lambda r, h: with_framing(h, b"Transfer-Encoding: chunked;x=y"),
    "identity": lambda r, h: with_framing(h, b"Transfer-Encoding: identity"), "an empty coding": lambda r, h: with_framing(h, b"Transfer-Encoding: "),
    "chunks of HTTP/1.0": lambda r, h: with_framing(h.replace(b"HTTP/1.1", b"HTTP/1.0"), b"Transfer-Encoding: chunked"),
    "spaces in the request line": lambda r, h: h.replace(b" ", r.choice((b"  ", b"\t", b" \t")), 1), "a space after the version": lambda r, h: h.replace(b"HTTP/1.1\r\n", b"HTTP/1.1 \r\n", 1),
    "a version": lambda r, h: h.replace(b"HTTP/1.1", r.choice((b"HTTP/1.2", b"HTTP/2.0", b"http/1.1", b"HTTP/1.10", b"HTTP/01.1")), 1),
    "an authority": lambda r, h: b"CONNECT localhost:80" + h[h.index(b" HTTP/1"):], "a user": lambda r, h: b"GET http://a@localhost/livez" + h[h.index(b" HTTP/1"):],
    "a fragment": lambda r, h: b"GET /livez#x" + h[h.index(b" HTTP/1"):], "a scheme": lambda r, h: b"GET ftp://localhost/" + h[h.index(b" HTTP/1"):],
}
BAD_CHUNKS = (b"+5\r\n", b"-5\r\n", b"0x5\r\n", b" 5\r\n", b"5 \r\n", b"5;x=y\r\n", b"5\n", b"\r\n", b"g\r\n", b"F" * 17 + b"\r\n", b"0" * 40 + b"\r\n")


def insert(rng, data, what):
    at = rng.randrange(len(data) - 3)
    return data[:at] + what + data[at:]


def with_framing(head, line):
    """The head with this line instead of those of its framing."""
    kept = [part for part in head[:-4].split(b"\r\n") if not re.match(rb"(?i)content-length:|transfer-encoding:", part)]
    return b"\r\n".join([*kept, line, b"", b""])


class Request:
    """data; status: what the reply must be, None: 400 and the end of the connection; mark: what its body contains."""

    def __init__(self, data, status, mark=b"", illegal=None):
        self.data, self.status, self.mark, self.illegal = data, status, mark, illegal


class Generator:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.n = 0

    def space(self):
        return self.rng.choice((b"", b" ", b"  ", b"\t", b" \t ", b" " * 50))

    def case(self, text):
        return bytes(self.rng.choice((c, ord(chr(c).swapcase()))) for c in text)

    def field(self, name, value):
        return self.case(name) + b":" + self.space() + value + self.space() + b"\r\n"

    def target(self, path):
        return self.rng.choice((path, path, path, b"http://localhost" + path, b"HTTP://127.0.0.1:80" + path, b"https://LOCALHOST:443" + path, path + b"?a=%zz&b&&c=%20",
                                path + b"?" + b"&x=%41" * self.rng.randrange(128)))

    def head(self, method, path, *fields):
        target = self.target(path)
        host = self.rng.choice((b"localhost", b"localhost:8080", b"127.0.0.1", b"[::1]:1")) if target[:1] == b"/" else self.rng.choice((b"localhost", b"evil.test", b""))
        lines = [self.field(b"Host", host), *(self.field(*f) for f in fields)]
        lines += [self.field(self.rng.choice(NAMES), self.rng.choice(VALUES)) for _ in range(self.rng.choice((0, 1, 3, 20)))]
        self.rng.shuffle(lines)
        return method + b" " + target + b" HTTP/1.1\r\n" + b"".join(lines) + b"\r\n"

    def chunks(self, body, bad=b""):
        out, at = b"", 0
        while at < len(body):
            n = self.rng.randrange(1, len(body) - at + 1)
            size = self.case(b"%x" % n).rjust(self.rng.randrange(1, 9), b"0")
            out, at = out + size + b"\r\n" + body[at:at + n] + b"\r\n", at + n
            if bad and self.rng.random() < 0.5:
                return out + bad
        trailer = b"".join(self.field(b"X-Sum", self.rng.choice(VALUES)) for _ in range(self.rng.choice((0, 0, 1, 3))))
        return out + (bad or b"0" * self.rng.choice((1, 1, 5)) + b"\r\n" + trailer + b"\r\n")

    def legal(self):
        self.n += 1
        kind = self.rng.randrange(6)
        empty = b"\r\n" * self.rng.choice((0, 0, 0, 1, 2))
        if kind == 0:
            return Request(empty + self.head(b"GET", b"/livez"), 200)
        if kind == 1:
            return Request(empty + self.head(b"OPTIONS", b"/livez"), 405)
        if kind == 2:
            body = b"y" * self.rng.randrange(1, 30)
            return Request(empty + self.head(b"GET", b"/livez", (b"Content-Length", b"%d" % len(body))) + body, 200)
        body, fields, mark = BODY % self.n, [], b'"tokens":'
        if self.rng.random() < 0.7:
            fields.append((b"Content-Type", self.rng.choice((b"application/json", b"Application/JSON ; charset=utf-8", b"application/x-www-form-urlencoded"))))
        if self.rng.random() < 0.1:
            fields.append((b"Expect", self.case(b"100-continue")))
        if self.rng.random() < 0.3:
            wbits = self.rng.choice((31, 15, -15))
            coder = zlib.compressobj(wbits=wbits)
            name = b"gzip" if wbits == 31 else b"deflate"
            body = coder.compress(body) + coder.flush()
            fields.append((b"Content-Encoding", self.case(name)))
        if kind == 3:
            fields.append((b"Transfer-Encoding", self.case(b"chunked")))
            return Request(empty + self.head(b"POST", b"/tokenize", *fields) + self.chunks(body), 200, mark)
        fields.append((b"Content-Length", b"%d" % len(body) if kind == 4 else (b"%d" % len(body)).rjust(12, b"0")))
        return Request(empty + self.head(b"POST", b"/tokenize", *fields) + body, 200, mark)

    def illegal(self):
        if self.rng.random() < 0.2:
            bad = self.rng.choice(BAD_CHUNKS)
            return Request(self.head(b"POST", b"/tokenize", (b"Transfer-Encoding", b"chunked")) + self.chunks(BODY % 0, bad), None, illegal=f"chunk {bad!r}")
        what = self.rng.choice(sorted(ILLEGAL))
        return Request(ILLEGAL[what](self.rng, self.head(b"GET", b"/livez")) + b"abcde", None, illegal=what)

    def mutated(self):
        """Nobody knows what it is: it may be legal, illegal, or incomplete."""
        data = bytearray(self.legal().data)
        for _ in range(self.rng.randrange(1, 4)):
            at = self.rng.randrange(len(data))
            data[at:at + self.rng.randrange(2)] = self.rng.choice((b"\r", b"\n", b" ", b"\t", b":", b"\0", b",", b"0", b"\r\n", bytes([self.rng.randrange(256)])))
        return bytes(data)


def replies_of(received):
    """[(status, body)] of a connection's bytes; AssertionError: they are not a sequence of complete replies."""
    found = []
    while received:
        head, end, rest = received.partition(b"\r\n\r\n")
        status = re.match(rb"HTTP/1\.[01] (\d{3}) ", head)
        length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
        if not end or not status or not (length or status[1] in (b"100", b"204")):
            raise AssertionError(f"no reply, or a cut one: {received[:300]}")
        n = int(length[1]) if length else 0
        if len(rest) < n:
            raise AssertionError(f"a reply of {n} bytes has {len(rest)}")
        if status[1] != b"100":
            found.append((int(status[1]), rest[:n]))
        received = rest[n:]
    return found


def exchange(server, rng, data, closes):
    """All that the server sends for it, until it closes. The data comes in random pieces. closes: the client does not end its side first."""
    received = b""
    s = server.socket()
    s.settimeout(HANG_S)
    try:
        at = 0
        while at < len(data):
            n = rng.choice((1, 7, 100, 5000, len(data)))
            s.sendall(data[at:at + n])
            at += n
            if len(data) > 2000 and n == 1:
                at, _ = len(data), s.sendall(data[at:])
        if not closes:
            s.shutdown(socket.SHUT_WR)
        while part := s.recv(65536):
            received += part
    except (BrokenPipeError, ConnectionResetError):
        pass  # refused before all of it was sent, or read
    except socket.timeout:
        raise AssertionError(f"no end after {HANG_S} s, received {received[:300]}") from None
    finally:
        s.close()
    return received


def check_pipeline(server, generator):
    """Some legal requests, one illegal one or an ordinary last one: each is answered in its turn, and nothing after an illegal one is."""
    rng = generator.rng
    requests = [generator.legal() for _ in range(rng.randrange(1, 6))]
    bad = generator.illegal() if rng.random() < 0.5 else None
    last = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    data = b"".join(r.data for r in requests) + (bad.data if bad else b"") + last
    expected = [(r.status, r.mark) for r in requests] + [(400, b"") if bad else (200, b"")]
    found = replies_of(exchange(server, rng, data, True))
    ok = len(found) == len(expected) and all(status == wanted and mark in body for (status, body), (wanted, mark) in zip(found, expected))
    if not ok:
        raise AssertionError(f"replies {[f[0] for f in found]}, wanted {[e[0] for e in expected]} ({bad.illegal if bad else 'all are legal'}) for {data!r}")


def check_mutated(server, generator):
    """It ends soon after the client has closed its side, with complete replies: at most one for each empty line."""
    data = generator.mutated()
    found = replies_of(exchange(server, generator.rng, data, False))
    if any(status not in (200, 400, 404, 405, 413, 415, 421, 431, 499, 501) for status, _ in found) or len(found) > data.count(b"\r\n") // 2 + 1:
        raise AssertionError(f"replies {found} to {data!r}")


def attack(server, seed, seconds=None, n=None):
    """For so many seconds, or n times. Returns the number of connections; AssertionError names the seed and the bytes."""
    generator, until, done = Generator(seed), time.monotonic() + (seconds or 0), 0
    while done < n if n is not None else time.monotonic() < until:
        try:
            (check_mutated if done % 4 == 3 else check_pipeline)(server, generator)
        except AssertionError as e:
            raise AssertionError(f"seed {seed}, connection {done}: {e}") from None
        done += 1
    return done
