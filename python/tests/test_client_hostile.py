# SPDX-License-Identifier: Apache-2.0
"""Servers that answer with anything: every value of a reply and of an event may be wrong. One clear error each, in bounded memory and time."""

import asyncio
import json
import random
import socket
import threading
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from test_client import Server

from reprise import AsyncClient, Client, Prompt, Schema, errors
from reprise.answers import answer_of
from reprise.http1 import BadResponse

MAX_BYTES = 220 << 20  # a body of 64 MiB, its copies and its text
HEAD = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: %s\r\n\r\n"
EVENTS = HEAD % b"text/event-stream"
BODY = HEAD % b"application/json"


class Hostile:
    """A server that sends given bytes for every request."""

    def __init__(self, data: bytes, more: Iterable[bytes] = ()) -> None:
        self.data, self.more = data, list(more)
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
            with connection:
                try:
                    while b"\r\n\r\n" not in connection.recv(1 << 16):
                        pass
                    for piece in (self.data, *self.more):
                        connection.sendall(piece)
                except OSError:
                    pass  # the client had enough

    def __enter__(self) -> "Hostile":
        return self

    def __exit__(self, *exception: object) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()


def ways(url: str, prompt: Any = "x") -> Iterator[Callable[[], object]]:
    async def run() -> None:
        async with AsyncClient(url, timeout=60) as client:
            await client.run(prompt)

    async def stream() -> None:
        async with AsyncClient(url, timeout=60) as client:
            async for _ in client.stream(prompt):
                pass

    def stream_of_threads() -> None:
        for _ in Client(url, timeout=60).stream(prompt):
            pass

    yield lambda: Client(url, timeout=60).run(prompt)
    yield stream_of_threads
    yield lambda: asyncio.run(run())
    yield lambda: asyncio.run(stream())


REPLIES = {
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
    gone = status(b"404 No", b"", error_body("not_found", "schema 'towns' is not loaded: load it first"))
    requests = []

    class Forgetful(Hostile):
        def _serve(self) -> None:
            while True:
                try:
                    connection, _ = self.listener.accept()
                except OSError:
                    return
                with connection:
                    request = connection.recv(1 << 16)
                    requests.append(request.split(b" ")[0])
                    connection.sendall(gone if request.startswith(b"POST") else status(b"200 OK", b"", b"{}"))

    prompt = Prompt(Schema("towns", '<schema name="towns"/>')).text("x")
    with Forgetful(b"") as server:
        for way in ways(server.url, prompt):
            requests.clear()
            with pytest.raises(errors.UnknownNameError):
                way()
            assert requests == [b"PUT", b"POST", b"PUT", b"POST"]


def real_reply() -> bytes:
    real = Server()
    try:
        host, port = real.url.removeprefix("http://").split(":")
        body = json.dumps({"prompt": "Once", "max_tokens": 4}).encode()
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(
                b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Connection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
            )
            received = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    finally:
        real.stop()
    return received


def test_random_changes_of_real_replies() -> None:
    """Any value of a real answer replaced by another one: an answer, or an error of one line."""
    received = real_reply()
    reply = json.loads(received.partition(b"\r\n\r\n")[2])
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
