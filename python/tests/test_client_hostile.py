# SPDX-License-Identifier: Apache-2.0
"""Servers that answer with anything: every value of a reply and of an event may be wrong.

One clear error each, in bounded memory and time.
"""

import contextlib
import json
import random
import socket
import threading
import tracemalloc
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import takewhile
from typing import Any

import pytest
from test_client import AnyClient, Server, Tasks

from reprise import Client, Prompt, Schema, errors
from reprise.answers import MAX_BODY_BYTES, BadResponse, EventParser, answer_of

MAX_BYTES = 220 << 20  # a body of 64 MiB, its copies and its text
HEAD = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: %s\r\n\r\n"
EVENTS = HEAD % b"text/event-stream"
BODY = HEAD % b"application/json"


class Hostile:
    """A server that sends given bytes for every request."""

    def __init__(self, data: bytes, more: Iterable[bytes] = ()) -> None:
        self.pieces = [data, *more]
        self.requests: list[bytes] = []  # their methods
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as file, contextlib.suppress(OSError):  # the client had enough
                lines = list(takewhile(bytes.strip, file))
                file.read(next((int(line[15:]) for line in lines if line.lower().startswith(b"content-length:")), 0))
                self.requests += [line.split()[0] for line in lines[:1]]
                for piece in self.reply():
                    connection.sendall(piece)

    def reply(self) -> list[bytes]:
        return self.pieces

    def __enter__(self) -> "Hostile":
        return self

    def __exit__(self, *exception: object) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()


def ways(url: str, prompt: Any = "x") -> Iterator[Callable[[], object]]:
    def run(kind: AnyClient) -> None:
        with kind(url, timeout=60) as client:
            client.run(prompt)

    def stream(kind: AnyClient) -> None:
        with kind(url, timeout=60) as client:
            list(client.stream(prompt))

    for kind in (Client, Tasks):
        yield partial(run, kind)
        yield partial(stream, kind)


REPLIES = {
    "nothing": b"",
    "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n" * 3,
    "half a head": b"HTTP/1.1 200 OK\r\nContent-Le",
    "endless head": b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 100_000,
    "endless line": b"HTTP/1.1 200 OK\r\nx: " + b"y" * 1_000_000,
    "too short": b'HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{"choices":[]}',
    "no chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-2\r\nabc",
    "cut chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{}",
    "deep": BODY + b"[" * 200_000,
    "number": BODY + b"9" * 100_000,
    "null": BODY + b"null",
    "text is a number": BODY + b'{"choices":[{"text":5,"finish_reason":"stop"}]}',
    "no choice": BODY + b'{"choices":[]}',
    "page": HEAD % b"text/html" + b"<html>Welcome</html>",
    "error page": b"HTTP/1.1 502 Bad Gateway\r\nConnection: close\r\n\r\n<html>",
    "events: no list": EVENTS + b'data: {"choices": 5}\n\n',
    "events: no object": EVENTS + b'data: {"choices": [5]}\n\n',
    "events: no text": EVENTS + b'data: {"choices": [{"text": {}}]}\n\n',
    "events: no UTF-8": EVENTS + b"data: \xff\n\n",
    "events: no JSON": EVENTS + b"data: {\n\n",
    "events: done only": EVENTS + b"data: [DONE]\n\n",
    "events: end": EVENTS + b'data: {"choices": [{"text": "a"}]}\n\n',
    "events: error without text": EVENTS + b'event: error\ndata: {"error": {}}\n\n',
    "events: error is a list": EVENTS + b"event: error\ndata: []\n\n",
}


@pytest.mark.parametrize("name", REPLIES)
def test_wrong_replies_are_one_line(name: str) -> None:
    with Hostile(REPLIES[name]) as server:
        for way in ways(server.url):
            with pytest.raises(errors.FormatError) as caught:
                way()
            assert server.url in str(caught.value) and "\n" not in str(caught.value) and len(str(caught.value)) < 500


ENDLESS = {
    "body": (BODY, b"x" * (1 << 20)),
    "error": (b"HTTP/1.1 500 No\r\nConnection: close\r\n\r\n", b"x" * (1 << 20)),
    "error of events": (b"HTTP/1.1 500 No\r\nContent-Type: text/event-stream\r\n\r\n", b": x\n" * (1 << 18)),
    "event": (EVENTS + b"data: ", b"x" * (1 << 20)),
    "text": (EVENTS, b'data: {"choices": [{"text": "%s"}]}\n\n' % (b"x" * (1 << 20))),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_endless_replies_are_bounded(name: str) -> None:
    begin, more = ENDLESS[name]
    with Hostile(begin, [more] * 200) as server:
        for way in ways(server.url):
            tracemalloc.start()
            try:
                with pytest.raises(errors.FormatError, match="more than|is no Reprise server"):
                    way()
                assert tracemalloc.get_traced_memory()[1] < MAX_BYTES
            finally:
                tracemalloc.stop()


def status(line: bytes, headers: bytes = b"", body: bytes = b"") -> bytes:
    return b"HTTP/1.1 %s\r\n%sContent-Length: %d\r\n\r\n%s" % (line, headers, len(body), body)


def error_body(code: str, message: str) -> bytes:
    return json.dumps({"error": {"message": message, "type": "x", "param": None, "code": code}}).encode()


@pytest.mark.parametrize(
    "reply, cls, words, ms",
    [
        (
            status(b"503 Busy", b"Retry-After: 7\r\n", error_body("overloaded", "full")),
            errors.BusyError,
            "^full$",
            7000,
        ),
        (status(b"429 Many", b"Retry-After: 2\r\n", b"<html>"), errors.BusyError, "status 429", 2000),
        (status(b"503 No", b"Retry-After: Fri, 31 Dec 1999 23:59:59 GMT\r\n"), errors.BusyError, "status 503", 0),
        (status(b"503 No", b"Retry-After: " + b"9" * 400 + b"\r\n"), errors.BusyError, "status 503", 0),
        (status(b"401 No", b"", b"<html>"), errors.AccessError, "status 401", 0),
        (status(b"400 No", b"", error_body("invalid_value", "a\nb \r\n c")), errors.InvalidError, "^a b c$", 0),
        (status(b"400 No", b"", error_body("new_code", "x" * 9000)), errors.InvalidError, "^x{2000}$", 0),
        (status(b"500 No", b"", error_body("new_code", "broken")), errors.InternalError, "^broken$", 0),
        (status(b"504 No", b"", error_body("deadline_exceeded", "late")), errors.DeadlineError, "^late$", 0),
        (status(b"499 No", b"", error_body("cancelled", "gone")), errors.CancelledError, "^gone$", 0),
    ],
    ids=["busy", "page of 429", "date", "digits", "page of 401", "lines", "long", "new", "deadline", "cancelled"],
)
def test_statuses_become_errors(reply: bytes, cls: type[errors.Error], words: str, ms: int) -> None:
    with Hostile(reply) as server:
        for way in ways(server.url):
            with pytest.raises(cls, match=words) as caught:
                way()
            assert type(caught.value) is cls and caught.value.retry_after_ms == ms


def test_a_server_that_never_has_the_schema_ends_after_one_repetition() -> None:
    class Forgetful(Hostile):
        def reply(self) -> list[bytes]:
            return self.pieces if self.requests[-1] == b"POST" else [status(b"200 OK", b"", b"{}")]

    prompt = Prompt(Schema("towns", '<schema name="towns"/>')).text("x")
    gone = error_body("not_found", "schema 'towns' is not loaded: load it first")
    with Forgetful(status(b"404 No", b"", gone)) as server:
        for way in ways(server.url, prompt):
            server.requests.clear()
            with pytest.raises(errors.UnknownNameError):
                way()
            assert server.requests == [b"PUT", b"POST", b"PUT", b"POST"]


def test_random_changes_of_real_replies() -> None:
    """Any value of a real answer replaced by another one: an answer, or an error of one line."""
    with Server() as server:
        body = json.dumps({"prompt": "Once", "max_tokens": 4}).encode()
        headers = {"Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(f"{server.url}/v1/completions", body, headers)) as received:
            reply = json.load(received)
    numbers = random.Random(11)
    values: list[Any] = [None, True, -1, 1.5, 10**30, "x", [], {}, [None], {"a": 1}]

    def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        yield at
        for key, inside in (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        ):
            yield from places(inside, (*at, key))

    everywhere = list(places(reply))
    answers = 0
    for _ in range(20_000):
        changed = json.loads(json.dumps(reply))
        place = numbers.choice(everywhere)
        if not place:
            changed = numbers.choice(values)
        else:
            holder = changed
            for key in place[:-1]:
                holder = holder[key]
            if numbers.random() < 0.2:
                del holder[place[-1]]
            else:
                holder[place[-1]] = numbers.choice(values)
        try:
            answer = answer_of("completions", changed)
            answers += 1
            assert isinstance(answer.text, str) and isinstance(answer.timings.ttft_ms, float) and repr(answer)
            assert all(isinstance(item.module, str) and isinstance(item.n_tokens, int) for item in answer.plan)
        except BadResponse as e:
            assert "\n" not in str(e) and len(str(e)) < 200
    assert 0 < answers < 20_000


# ---- events ----


def test_events_in_any_pieces() -> None:
    stream = (
        b': keep-alive\n\nevent: text\ndata: {"a":\ndata:1}\nid: 7\nretry: 5\n\n'
        + "data: ü\r\n\r\nevent: x\n\ndata\n\n".encode()
        + b"data: last"
    )
    for step in range(1, len(stream) + 1):
        parser, found = EventParser(), []
        for i in range(0, len(stream), step):
            found += parser.feed(stream[i : i + step])
        assert found == [("text", '{"a":\n1}'), ("message", "ü"), ("message", "")]


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
