# SPDX-License-Identifier: Apache-2.0
"""Parsers of responses and events: what is accepted, what is refused with which reason, in any pieces, within bounds."""

import random
import tracemalloc

import pytest

from reprise.http1 import MAX_BODY_BYTES, MAX_HEAD_BYTES, BadResponse, EventParser, ResponseParser

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


def parse(response: bytes, step: int = 1 << 20) -> tuple[ResponseParser, bytes]:
    """A response in pieces, and the end of the connection if it is not complete then."""
    parser, body = ResponseParser(), b""
    for i in range(0, len(response), step):
        body += parser.feed(response[i : i + step])
    if not parser.is_complete:
        body += parser.feed(b"")
    return parser, body


ACCEPTED = {
    "length": (OK + b"Content-Length: 2\r\n\r\nab", 200, b"ab", True),
    "empty": (OK + b"content-length:0\r\n\r\n", 200, b"", True),
    "chunks": (CHUNKED + b"2\r\nab\r\n0A ;x=y\r\n0123456789\r\n0\r\n\r\n", 200, b"ab0123456789", True),
    "trailer": (CHUNKED + b"1\r\na\r\n0\r\nt: 1\r\nu: 2\r\n\r\n", 200, b"a", True),
    "to the end": (OK + b"\r\nabc", 200, b"abc", False),
    "close": (OK + b"Connection: x, Close\r\nContent-Length: 1\r\n\r\na", 200, b"a", False),
    "1.0": (b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na", 200, b"a", False),
    "1.0 kept": (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\na", 200, b"a", True),
    "no reason": (b"HTTP/1.1 404\r\nContent-Length: 1\r\n\r\na", 404, b"a", True),
    "interim": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nL: x\r\n\r\n" + OK + b"Content-Length: 1\r\n\r\na",
        200,
        b"a",
        True,
    ),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", True),
    "too much": (OK + b"Content-Length: 1\r\n\r\nabc", 200, b"a", False),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted_in_any_pieces(name: str) -> None:
    response, status, body, keeps_alive = ACCEPTED[name]
    for step in range(1, len(response) + 1):
        if name == "too much" and step < len(response):
            continue  # what follows is read with the next response, or not at all
        parser, found = parse(response, step)
        assert (parser.status, found, parser.is_complete, parser.keeps_alive) == (status, body, True, keeps_alive)


REFUSED = {
    "nothing": (b"", "ended without a response"),
    "ssh": (b"SSH-2.0-OpenSSH\r\n", "no HTTP response"),
    "one byte": (b"x", "no HTTP response"),
    "HTTP/2": (b"HTTP/2 200 OK\r\n\r\n", "no HTTP response"),
    "status": (b"HTTP/1.1 20 OK\r\n\r\n", "no HTTP response"),
    "big status": (b"HTTP/1.1 2000 OK\r\n\r\n", "no HTTP response"),
    "upgrade": (b"HTTP/1.1 101 Switching\r\n\r\n", "changes the protocol"),
    "half a head": (OK + b"Content-Le", "ended in its head"),
    "no colon": (OK + b"nonsense\r\n\r\n", "malformed header"),
    "space": (OK + b"Content-Length : 1\r\n\r\na", "malformed header"),
    "folded": (OK + b"a: b\r\n c\r\n\r\n", "malformed header"),
    "LF alone": (OK + b"a: b\nContent-Length: 9\r\n\r\n", "malformed header"),
    "NUL": (OK + b"a: \0\r\n\r\n", "malformed header"),
    "two lengths": (OK + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\na", "two headers content-length"),
    "both": (OK + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "with Content-Length"),
    "gzip": (OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n", "Transfer-Encoding"),
    "negative": (OK + b"Content-Length: -5\r\n\r\n", "Content-Length '-5'"),
    "digits": (OK + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n", "Content-Length"),
    "superscript": (OK + b"Content-Length: \xb2\r\n\r\n", "Content-Length"),
    "short": (OK + b"Content-Length: 5\r\n\r\nab", "ended before its end"),
    "0x": (CHUNKED + b"0x2\r\nab\r\n", "size of a chunk"),
    "sign": (CHUNKED + b"+2\r\nab\r\n", "size of a chunk"),
    "minus": (CHUNKED + b"-2\r\nab\r\n", "size of a chunk"),
    "underscore": (CHUNKED + b"1_0\r\n", "size of a chunk"),
    "no size": (CHUNKED + b"\r\n", "size of a chunk"),
    "huge": (CHUNKED + b"f" * 17 + b"\r\n", "size of a chunk"),
    "long size": (CHUNKED + b"0" * 1000, "too long"),
    "size and LF": (CHUNKED + b"2\nab", "malformed line"),
    "long chunk": (CHUNKED + b"2\r\nabc\r\n", "longer than its size"),
    "cut chunk": (CHUNKED + b"ff\r\nabc", "ended before its end"),
    "no last chunk": (CHUNKED + b"1\r\na\r\n", "ended before its end"),
    "trailer": (CHUNKED + b"0\r\nnonsense\r\n\r\n", "malformed trailer"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_a_reason_in_any_pieces(name: str) -> None:
    response, words = REFUSED[name]
    for step in {1, 2, 3, 7, max(len(response), 1)}:
        with pytest.raises(BadResponse, match=words) as caught:
            parse(response, step)
        assert len(str(caught.value)) < 300 and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "begin, more",
    [
        (b"", OK + b"x: y\r\n" * 1000),
        (OK, b"x: y\r\n" * 1000),
        (OK + b"x: ", b"y" * 10_000),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
        (CHUNKED + b"0\r\n", b"x: y\r\n" * 1000),
        (CHUNKED + b"0\r\nx: ", b"y" * 10_000),
        (CHUNKED + b"1;", b"y" * 10_000),
    ],
    ids=["heads", "headers", "header", "interim", "trailers", "trailer", "chunk"],
)
def test_no_end_is_a_bounded_end(begin: bytes, more: bytes) -> None:
    parser = ResponseParser()
    tracemalloc.start()
    with pytest.raises(BadResponse):
        parser.feed(begin) if begin else None
        for _ in range(2000):
            parser.feed(more)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 40 * MAX_HEAD_BYTES


def test_random_bytes_give_bodies_or_reasons() -> None:
    numbers = random.Random(7)
    seeds = [response for response, *_ in ACCEPTED.values()] + [response for response, _ in REFUSED.values()]
    for _ in range(20_000):
        response = bytearray(numbers.choice(seeds))
        for _ in range(numbers.randrange(1, 4)):
            if response:
                response[numbers.randrange(len(response))] = numbers.randrange(256)
        try:
            whole = parse(bytes(response))[1]
        except BadResponse:
            whole = None
        try:
            pieces = parse(bytes(response), numbers.randrange(1, 9))[1]
        except BadResponse:
            pieces = None
        assert whole == pieces


# ---- events ----


def test_events_in_any_pieces() -> None:
    stream = (
        b': keep-alive\n\nevent: text\ndata: {"a":\ndata:1}\nid: 7\nretry: 5\n\n'
        + "data: ü\r\n\r\nevent: x\n\ndata\n\n".encode()
        + b"data: last"
    )
    expected = [("text", '{"a":\n1}'), ("message", "ü"), ("message", "")]
    for step in range(1, len(stream) + 1):
        parser, found = EventParser(), []
        for i in range(0, len(stream), step):
            found += parser.feed(stream[i : i + step])
        assert found == expected and not parser.is_between_events


@pytest.mark.parametrize(
    "stream, words", [(b"data: \xff\n\n", "not UTF-8"), (b"<html>\n", "no event stream"), (b" data: x\n", "no event")]
)
def test_what_is_no_event_stream_is_refused(stream: bytes, words: str) -> None:
    with pytest.raises(BadResponse, match=words):
        EventParser().feed(stream)


@pytest.mark.parametrize(
    "more",
    [b"x" * (1 << 20), b"data: %s\n" % (b"x" * 120) * (1 << 13), b":%s\n" % (b"x" * 126) * (1 << 13)],
    ids=["line", "data", "comments"],
)
def test_an_event_without_an_end_is_refused(more: bytes) -> None:
    parser, n = EventParser(), 0
    parser.feed(b"data: ")
    with pytest.raises(BadResponse, match="an event has more"):
        while True:
            parser.feed(more)
            n += len(more)
            assert n <= MAX_BODY_BYTES + len(more)
