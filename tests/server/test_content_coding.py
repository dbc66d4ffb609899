#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compressed bodies of requests: gzip, deflate and zstd are decoded within the limits of bodies; others, malformed ones and bombs are refused."""
import ctypes
import json
import random
import unittest
import zlib

from server_process import Server, ServerCase

BODY = json.dumps({"prompt": "Tom had a", "temperature": 0, "max_tokens": 3}).encode()
PATH = "/v1/completions"
LIMIT = 1 << 20


def gzip(data, level=6):
    c = zlib.compressobj(level, wbits=31)
    return c.compress(data) + c.flush()


def raw_deflate(data, level=6):
    c = zlib.compressobj(level, wbits=-15)
    return c.compress(data) + c.flush()


def zstd(data, level=3):
    lib = ctypes.CDLL("libzstd.so.1")
    lib.ZSTD_compress.restype = lib.ZSTD_compressBound.restype = ctypes.c_size_t
    lib.ZSTD_compress.argtypes = (ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int)
    lib.ZSTD_compressBound.argtypes = (ctypes.c_size_t,)
    out = ctypes.create_string_buffer(lib.ZSTD_compressBound(len(data)))
    n = lib.ZSTD_compress(out, len(out), data, len(data), level)
    return out.raw[:n]


def zstd_frame(window_log, *blocks):
    """A frame without a content size, of (repeated byte, times) or raw blocks."""
    frame = b"\x28\xb5\x2f\xfd\x00" + bytes([window_log - 10 << 3])
    for i, block in enumerate(blocks):
        last = i == len(blocks) - 1
        data, n, kind = (block[0], block[1], 1) if isinstance(block, tuple) else (block, len(block), 0)
        frame += (n << 3 | kind << 1 | last).to_bytes(3, "little") + data
    return frame


CODERS = {"gzip": gzip, "x-gzip": gzip, "GZIP": gzip, "deflate": zlib.compress, "Deflate": raw_deflate, "zstd": zstd}


class ContentCoding(ServerCase):
    options = ("--max-body", "1M")

    def send(self, data, coding, path=PATH):
        return self.server.post(path, data, headers={"Content-Encoding": coding})

    def refused(self, reply, status, *words):
        self.assertEqual(reply.status, status, reply.body)
        for word in words:
            self.assertIn(word, reply.json["error"]["message"])
        self.assertEqual(reply.headers["Accept-Encoding"], "gzip, deflate, zstd" if status == 415 else None)

    def tearDown(self):
        self.assertEqual(self.server.wait_idle()["reprise_body_bytes"], 0)

    def test_same_answer(self):
        plain = self.send(BODY, "identity").json["choices"]
        for coding, encode in CODERS.items():
            for level in (1, 9):
                reply = self.send(encode(BODY, level), coding)
                self.assertEqual((reply.status, reply.json.get("choices")), (200, plain), coding)
        for coding in ("", "identity", "Identity , identity", ","):
            self.assertEqual(self.send(BODY, coding).json["choices"], plain, coding)
        for coding, data in (("gzip, zstd", zstd(gzip(BODY))), ("zstd,\tgzip", gzip(zstd(BODY))), ("deflate,deflate", raw_deflate(zlib.compress(BODY))),
                             ("identity, gzip", gzip(BODY))):
            self.assertEqual(self.send(data, coding).json["choices"], plain, coding)

    def test_several_members(self):
        plain = self.send(BODY, "identity").json["choices"]
        a, b = BODY[:1], BODY[1:]
        skippable = b"\x50\x2a\x4d\x18\x03\0\0\0abc"
        for coding, data in (("gzip", gzip(a) + gzip(b"") + gzip(b)), ("zstd", zstd(a) + zstd(b"") + skippable + zstd(b)), ("zstd", zstd_frame(23, a, (b" ", 3), b))):
            self.assertEqual(self.send(data, coding).json["choices"], plain, coding)

    def test_large_bodies(self):
        """Beyond every buffer of a decoder, just within the limit and just beyond it."""
        rng = random.Random(46)
        words = " ".join(rng.choice(("Tom", "had", "a", str(rng.random()))) for _ in range(150000))
        body = json.dumps({"prompt": "Tom had a", "temperature": 0, "max_tokens": 3, "user": words})[:LIMIT - 2] + '"}'
        for coding, encode in CODERS.items():
            reply = self.send(encode(body.encode().ljust(LIMIT)), coding)
            self.assertEqual(reply.status, 200, (coding, reply.body))
            self.refused(self.send(encode(body.encode().ljust(LIMIT + 1)), coding), 413, "the decoded body has more than 1048576 bytes")

    def test_unknown(self):
        for coding in ("br", "compress", "gzip, br", "gzip;q=1", "gzip gzip", "gzip, gzip, gzip", "zstd, deflate, gzip", "*", "aws-chunked", "x" * 300):
            self.refused(self.send(BODY, coding), 415, "Content-Encoding", "gzip, deflate, zstd")

    def test_malformed(self):
        for coding, encode in CODERS.items():
            good = encode(BODY)
            for data in [good[:n] for n in range(1, len(good), 11)] + [good[:-1]]:
                reply = self.send(data, coding)
                self.assertEqual((reply.status, coding.lower()[-4:] in reply.json["error"]["message"]), (400, True), (coding, data, reply.body))
            for garbage in (b"\0", b"x", b"{}", b"\x1f\x8b\x08x" * 10, b"\0" * 1000):
                self.refused(self.send(good + garbage, coding), 400, coding.lower()[-4:])
            for data in (BODY, b"\0", b"\xff" * 100, good[:20] + b"\xff\xff\xff" + good[23:]):
                self.assertEqual(self.send(data, coding).status, 400, coding)
        self.refused(self.send(gzip(BODY)[:-8] + b"\0" * 8, "gzip"), 400, "gzip")  # its checksum
        self.refused(self.send(zlib.compress(BODY)[:-4] + b"\0" * 4, "deflate"), 400, "deflate")
        self.refused(self.send(gzip(b"x"), "gzip, zstd"), 400, "zstd")
        self.refused(self.send(zstd(b"x"), "gzip, zstd"), 400, "gzip")
        self.refused(self.send(b"", "gzip"), 400, "JSON")

    def test_windows(self):
        for log in (24, 27, 31, 41):
            self.refused(self.send(zstd_frame(log, BODY), "zstd"), 400, "zstd", "8 MiB")

    def test_bombs(self):
        zeros = zlib.compressobj(9, wbits=31)
        bomb = b"".join(zeros.compress(bytes(1 << 20)) for _ in range(40)) + zeros.flush()
        frames = zstd_frame(23, *[(b"\0", 1 << 17)] * 50000)  # 200 KB for 6.5 GB
        for coding, data in (("gzip", bomb), ("zstd", frames), ("gzip, gzip", gzip(bomb)), ("gzip, zstd", zstd(gzip(b"") * 60000)), ("zstd, gzip", gzip(frames * 20))):
            self.refused(self.send(data, coding), 413, "decoded body")
        with open(f"/proc/{self.server.process.pid}/status", encoding="ascii") as f:
            peak = int(next(line for line in f if line.startswith("VmHWM")).split()[1])
        self.assertLess(peak, 400 << 10)  # KiB: all of it, with the model

    def test_of_all_routes(self):
        """Not only a chat: documents, deletions that have a body, other dialects."""
        schema = b"<schema name='z'><module name='m'>One.</module></schema>"
        self.assertEqual(self.server.ask("PUT", "/v1/schemas/z", zstd(schema), headers={"Content-Encoding": "zstd"}).status, 200)
        self.assertEqual(self.server.get("/v1/schemas/z").body, schema)
        for path, body in (("/tokenize", {"content": "Tom"}), ("/api/show", {"model": "reprise-mini"}), ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": "a"}]}),
                           ("/v1beta/models/default:countTokens", {"contents": [{"parts": [{"text": "a"}]}]}), ("/v1/responses", {"input": "a", "max_output_tokens": 1})):
            reply = self.send(gzip(json.dumps(body).encode()), "gzip", path)
            self.assertEqual(reply.status, self.server.post(path, body).status, reply.body)
            self.assertEqual(self.send(b"x", "br", path).status, 415)

    def test_all_bodies_together(self):
        server = Server("--log", "off", "--max-body", "1M", "--request-ram", "2400K").wait_ready()
        self.addCleanup(server.stop)
        body = json.dumps({"prompt": "a", "max_tokens": 1}).encode() + b" " * 700000
        self.assertEqual(server.post(PATH, gzip(body), headers={"Content-Encoding": "gzip"}).status, 200)
        stored = server.post(PATH, gzip(body, 0), headers={"Content-Encoding": "gzip"})  # both forms of it at once
        self.assertIn(stored.status, (413, 503))  # beyond what a request may take, or all bodies
        self.assertEqual(server.wait_idle()["reprise_body_bytes"], 0)


if __name__ == "__main__":
    unittest.main()
