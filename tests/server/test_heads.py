#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise serve` behind a proxy: what two readers could read as different requests is refused with one 400, and the connection closes."""
import re
import unittest

from server_process import Server, raw_request, read_until_closed

BODY = b'{"prompt": "Tom", "max_tokens": 1}'
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
GET = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
CHUNKED = b"Transfer-Encoding: chunked\r\n"
SMUGGLED = b"GET /v1/cache HTTP/1.1\r\nHost: localhost\r\n\r\n"

HOSTILE = {
    "two different lengths": HEAD + LENGTH + b"Content-Length: 5\r\n\r\n" + BODY,
    "the same length twice": HEAD + LENGTH + LENGTH + b"\r\n" + BODY,
    "a list of lengths": HEAD + b"Content-Length: %d, %d\r\n\r\n" % (len(BODY), len(BODY)) + BODY,
    "length and chunked": HEAD + LENGTH + CHUNKED + b"\r\n" + b"0\r\n\r\n" + SMUGGLED,
    "chunked and length": HEAD + CHUNKED + LENGTH + b"\r\n" + b"0\r\n\r\n" + SMUGGLED,
    "white space before the colon": HEAD + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "a tab before the colon": HEAD + b"Content-Length\t: 5\r\n\r\nabcde",
    "xchunked": HEAD + b"Transfer-Encoding: xchunked\r\n\r\n" + BODY,
    "chunked twice": HEAD + CHUNKED + CHUNKED + b"\r\n0\r\n\r\n",
    "gzip, chunked": HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "identity": HEAD + b"Transfer-Encoding: identity\r\n\r\n",
    "chunked of HTTP/1.0": HEAD.replace(b"1.1", b"1.0") + CHUNKED + b"\r\n0\r\n\r\n",
    "a negative length": HEAD + b"Content-Length: -1\r\n\r\n" + BODY,
    "a length with a sign": HEAD + b"Content-Length: +5\r\n\r\nabcde",
    "a length in hexadecimal": HEAD + b"Content-Length: 0x5\r\n\r\nabcde",
    "a length with a space": HEAD + b"Content-Length: 1 0\r\n\r\n" + BODY,
    "no number": HEAD + b"Content-Length: \r\n\r\n" + BODY,
    "a length beyond 64 bits": HEAD + b"Content-Length: 18446744073709551651\r\n\r\n" + BODY,
    "two hosts": GET + b"Host: evil.test\r\n\r\n",
    "an encoding twice": HEAD + LENGTH + b"Content-Encoding: identity\r\nContent-Encoding: identity\r\n\r\n" + BODY,
    "no path": b"GET livez HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "an authority as the target": b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a star for GET": b"GET * HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "another scheme": b"GET ftp://localhost/livez HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "an address without a host": b"GET http:///livez HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "an address with a user": b"GET http://a:b@localhost/livez HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "an address with a long host": b"GET http://" + b"a" * 400 + b"/livez HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "an address without a path and a Host": b"GET http://localhost HTTP/1.0\r\n\r\n",
    "a fragment": b"GET /livez#x HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "chunked, chunked": HEAD + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "the same host twice": GET + b"host: localhost\r\n\r\n",
    "no host": b"GET /livez HTTP/1.1\r\n\r\n",
    "two keys": GET + b"Authorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n",
    "two types": HEAD + LENGTH + b"Content-Type: text/plain\r\n\r\n" + BODY,
    "a CR in a value": GET + b"X: a\rContent-Length: 50\r\n\r\n",
    "a CR in the target": b"GET /livez\rX HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a CR at the end of a line": GET + b"X: a\r\r\n\r\n",
    "LF alone": b"GET /livez HTTP/1.1\nHost: localhost\n\n",
    "LF in the middle": GET + b"X: a\nContent-Length: 50\r\n\r\n",
    "a folded field": GET + b"X: a\r\n b\r\n\r\n",
    "a folded length": HEAD + b"Content-Length:\r\n 5\r\n\r\nabcde",
    "a folded first field": b"GET /livez HTTP/1.1\r\n X: a\r\nHost: localhost\r\n\r\n",
    "NUL in a value": GET + b"X: a\0b\r\n\r\n",
    "NUL in a name": GET + b"X\0: a\r\n\r\n",
    "NUL in the target": b"GET /livez\0.html HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "NUL first": b"\0GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a control character": GET + b"X: a\x01b\r\n\r\n",
    "a space in the target": b"GET /livez x HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "two spaces": b"GET  /livez HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a space at the end": b"GET /livez HTTP/1.1 \r\nHost: localhost\r\n\r\n",
    "no version": b"GET /livez\r\n\r\n",
    "HTTP/1.2": b"GET /livez HTTP/1.2\r\nHost: localhost\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "lower-case HTTP": b"GET /livez http/1.1\r\nHost: localhost\r\n\r\n",
    "bytes beyond ASCII in the target": b"GET /liv\xc3\xa9z HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a method with a colon": b"GE:T /livez HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a field without a colon": GET + b"X\r\n\r\n",
    "a field without a name": GET + b": x\r\n\r\n",
    "a name in brackets": GET + b"X(y): x\r\n\r\n",
    "TLS": bytes.fromhex("16030100c8010000c40303") + b"\0" * 190,
    "the field of the gate": GET + b"X-Reprise-Refused: 400 x\r\n\r\n",
    "a chunk without a size": HEAD + CHUNKED + b"\r\nxyz\r\nabc\r\n0\r\n\r\n",
    "a chunk with a sign": HEAD + CHUNKED + b"\r\n+5\r\nabcde\r\n0\r\n\r\n",
    "a chunk with 0x": HEAD + CHUNKED + b"\r\n0x5\r\nabcde\r\n0\r\n\r\n",
    "a chunk with a space": HEAD + CHUNKED + b"\r\n5 \r\nabcde\r\n0\r\n\r\n",
    "a chunk's extension": HEAD + CHUNKED + b"\r\n5;a=b\r\nabcde\r\n0\r\n\r\n",
    "a chunk's size that ends in LF": HEAD + CHUNKED + b"\r\n5\nabcde\r\n0\r\n\r\n",
    "a chunk of 2^64": HEAD + CHUNKED + b"\r\n10000000000000005\r\nabcde\r\n0\r\n\r\n",
    "a long size": HEAD + CHUNKED + b"\r\n" + b"0" * 100 + b"\r\n\r\n",
    "a chunk that is longer than it says": HEAD + CHUNKED + b"\r\n2\r\nabcde\r\n0\r\n\r\n",
    "a length in the trailer": HEAD + CHUNKED + b"\r\n%x\r\n" % len(BODY) + BODY + b"\r\n0\r\nContent-Length: 5\r\n\r\n",
    "a folded trailer": HEAD + CHUNKED + b"\r\n%x\r\n" % len(BODY) + BODY + b"\r\n0\r\nX: 1\r\n y\r\n\r\n",
}


def statuses(received):
    return [int(s) for s in re.findall(rb"HTTP/1\.[01] (\d{3}) ", received)]


class Heads(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server().wait_ready()
        cls.addClassCleanup(cls.server.stop)

    def exchange(self, *pieces):
        s = self.server.socket()
        try:
            for piece in pieces:
                s.sendall(piece)
            return read_until_closed(s)  # a server that waits for more would let the test time out
        finally:
            s.close()

    def test_one_400_and_the_end(self):
        for what, message in HOSTILE.items():
            with self.subTest(what=what):
                received = self.exchange(message + SMUGGLED)
                self.assertEqual(statuses(received), [400], received[:2000])
                self.assertIn(b"\r\nConnection: close\r\n", received.replace(b"connection: Close", b"Connection: close"))

    def test_byte_by_byte(self):
        for what in ("two different lengths", "white space before the colon", "a CR in a value", "a folded field", "a chunk without a size"):
            with self.subTest(what=what):
                message = HOSTILE[what]
                s = self.server.socket()
                try:
                    for i in range(len(message)):
                        s.sendall(message[i:i + 1])
                except OSError:
                    pass  # refused before all of it was sent
                self.assertIn(statuses(read_until_closed(s)), ([400], []))
                s.close()

    def test_in_its_turn(self):
        """What came before a refused head is answered first; nothing after it is."""
        good = raw_request("/v1/completions", {"prompt": "Tom", "max_tokens": 1})
        for what in ("length and chunked", "NUL in the target", "a chunk without a size", "TLS"):
            received = self.exchange(good + GET + b"\r\n" + HOSTILE[what] + good)
            self.assertEqual(statuses(received), [200, 200, 400], what)

    def test_the_reason(self):
        received = self.exchange(HOSTILE["length and chunked"])
        self.assertIn(b'"code":"malformed_request"', received)
        self.assertIn(b"it has both Content-Length and Transfer-Encoding", received)
        self.assertGreater(self.server.metrics()['reprise_rejections_total{reason="malformed_request"}'], 0)

    def test_what_is_right(self):
        chunks = b"%x\r\n" % 3 + BODY[:3] + b"\r\n%X\r\n" % (len(BODY) - 3) + BODY[3:] + b"\r\n0\r\n"
        close = b"Connection: close\r\n\r\n"
        for what, message in {"a length": HEAD + LENGTH + close + BODY, "chunks": HEAD + CHUNKED + close + chunks + b"\r\n",
                              "a trailer": HEAD + CHUNKED + close + chunks + b"X-Sum: 5\r\n\r\n", "CHUNKED": HEAD + b"transfer-encoding:CHUNKED\r\n" + close + chunks + b"\r\n",
                              "empty lines first": b"\r\n\r\n" + GET + close, "no white space": b"GET /livez HTTP/1.1\r\nHost:localhost\r\n" + close,
                              "a value beyond ASCII": GET + b"X: caf\xc3\xa9\r\n" + close, "an empty value": GET + b"X:\r\n" + close,
                              "HTTP/1.0": b"GET /livez HTTP/1.0\r\n\r\n", "a body of GET": GET + b"Content-Length: 3\r\n" + close + b"abc"}.items():
            with self.subTest(what=what):
                received = self.exchange(message)
                self.assertEqual(statuses(received), [200], received[:500])
                s = self.server.socket()
                for i in range(len(message)):
                    s.sendall(message[i:i + 1])
                self.assertEqual(statuses(read_until_closed(s)), [200])
                s.close()

    def test_white_space_around_values(self):
        """Once `Transfer-Encoding: chunked ` hung its connection, `Content-Length: 59 ` got two replies, and `Host: localhost ` a 421."""
        chunks = b"%x\r\n" % len(BODY) + BODY + b"\r\n0\r\n\r\n"
        for space in (b" ", b"\t", b" \t "):
            head = b"POST /v1/completions HTTP/1.1\r\nHost:%slocalhost%s\r\nContent-Type: application/json%s\r\n" % (space, space, space)
            end = b"GET /livez HTTP/1.1\r\nHost: localhost%s\r\nConnection: close%s\r\n\r\n" % (space, space)
            for what, message in {"chunked": head + b"Transfer-Encoding:%sChunked%s\r\n\r\n" % (space, space) + chunks,
                                  "a length": head + b"Content-Length:%s%d%s\r\n\r\n" % (space, len(BODY), space) + BODY,
                                  "zeros": head + b"Content-Length:%s00%d%s\r\n\r\n" % (space, len(BODY), space) + BODY,
                                  "a trailer": head + b"Transfer-Encoding: chunked%s\r\n\r\n" % space + chunks[:-2] + b"X-Sum: 1%s\r\n\r\n" % space}.items():
                with self.subTest(what=what, space=space):
                    received = self.exchange(message * 2 + end)
                    self.assertEqual(statuses(received), [200, 200, 200], received[:1000])

    def test_addresses_as_targets(self):
        """RFC 9112, 3.2.2: a server accepts an absolute target, whose authority counts and not Host; RFC 9110, 9.3.7: OPTIONS * is for the server."""
        for target, host, status in ((b"http://localhost/livez", b"localhost", 200), (b"HTTP://LocalHost:1/livez?a=b", b"evil.test", 200), (b"https://127.0.0.1/livez", b"", 200),
                                     (b"http://localhost", b"localhost", 200), (b"http://localhost?a=/b", b"localhost", 200), (b"http://[::1]:8080/livez", b"x", 200),
                                     (b"http://evil.test/livez", b"localhost", 421), (b"http://evil.test/livez", b"evil.test", 421), (b"http://localhost:x/livez", b"localhost", 421),
                                     (b"http://localhost/v1/nothing", b"localhost", 404)):
            for version in (b"1.1", b"1.0"):
                with self.subTest(target=target, host=host, version=version):
                    received = self.exchange(b"GET " + target + b" HTTP/" + version + b"\r\nA: b\r\nHost: " + host + b"\r\nConnection: close\r\n\r\n")
                    self.assertEqual(statuses(received), [status], received[:500])
        self.assertEqual(statuses(self.exchange(b"GET http://localhost/livez HTTP/1.0\r\n\r\n")), [200])
        self.assertEqual(statuses(self.exchange(b"GET http://evil.test/livez HTTP/1.0\r\n\r\n")), [421])
        for target, host, status in ((b"*", b"localhost", 204), (b"http://localhost", b"x", 204), (b"*", b"evil.test", 421), (b"http://localhost/", b"x", 405)):
            received = self.exchange(b"OPTIONS " + target + b" HTTP/1.1\r\nHost: " + host + b"\r\nConnection: close\r\n\r\n")
            self.assertEqual((statuses(received), b"\r\nAllow: GET" in received), ([status], status != 421), received)

    def test_cookies(self):
        """Nobody reads them: many of other programs on localhost do no harm."""
        received = self.exchange(GET + b"Cookie: " + b"a=b; " * 5000 + b"\r\ncookie: ;;=\"\r\nConnection: close\r\n\r\n")
        self.assertEqual(statuses(received), [200], received)

    def test_continue(self):
        s = self.server.socket()
        s.sendall(HEAD + LENGTH + b"Connection: close\r\nExpect: 100-continue\r\n\r\n")
        self.assertIn(b" 100 ", s.recv(4096))
        s.sendall(BODY)
        self.assertEqual(statuses(read_until_closed(s)), [200])
        s.close()

    def test_large_heads(self):
        for message in (GET + b"X: " + b"a" * 40000 + b"\r\n\r\n", GET + b"X: y\r\n" * 200 + b"\r\n", b"GET /" + b"a" * 70000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
                        b"GET /livez?" + b"&a" * 128 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET /livez?" + b"&" * 31000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"):
            self.assertEqual(statuses(self.exchange(message)), [431])

    def test_the_largest_heads(self):
        """libmicrohttpd has memory for as many fields and parameters as the gate passes on; thousands of parameters once hung the connection."""
        for query, n in ((b"a" * 15000, 0), (b"&a=b" * 127, 0), (b"&" * 127, 125), (b"&a=%20" * 127, 125), (b"a" * 15000 + b"&b" * 127, 125)):
            head = b"GET /livez?" + query + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + b"".join(b"X%d:%s\r\n" % (i, b"y" * 100) for i in range(n))
            last = b"Y: " + b"y" * (32768 - len(head) - 7) + b"\r\n\r\n"
            self.assertEqual((len(head + last), statuses(self.exchange(head + last))), (32768, [200]))

    def test_zeros_in_paths(self):
        for path in ("/web/page.js%00.html", "/web/page.js%00", "/v1/schemas/x%00y", "/livez%00", "/%00"):
            self.assertEqual(self.server.get(path).status, 404, path)
        self.assertEqual(self.server.get("/%6c%69vez").status, 200)
        self.assertEqual(self.server.get("/livez?a=%zz%4&b=%").status, 200)


if __name__ == "__main__":
    unittest.main()
