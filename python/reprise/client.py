# SPDX-License-Identifier: Apache-2.0
"""Clients of `reprise serve`: the same programs and prompts as an Engine, over HTTP, for threads and for asyncio.

Owns the connections, and the record of which schemas were uploaded. What is said over them is answers.py's.
Both clients are one text of coroutines, _Requests and _Stream. Those of Client never wait: its connections and locks
block (_now, _blocking).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import ssl
import threading
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import quote

from .answers import (
    MAX_BODY_BYTES,
    Answer,
    BadResponse,
    Call,
    ClientOptions,
    Events,
    answer_of,
    call_of,
    error_of,
    error_without_text,
    lacks_schema,
    loaded,
    named_for,
    names_of,
    retry_after_ms_of,
    upload_of,
)
from .connection import Address, BlockingConnection, Connection, Head
from .errors import AccessError, BusyError, Error, InvalidError
from .prompt import Prompt
from .requests import PromptLike
from .schema import Schema

if TYPE_CHECKING:
    from typing import Unpack

_T = TypeVar("_T")
_P = ParamSpec("_P")
_MAX_IDLE = 8  # connections that a client keeps
_DEFAULT_URL = "http://127.0.0.1:8080"


def _error(head: Head, body: bytes) -> Error:
    """The exception of a response of status 400 or more."""
    try:
        return error_of(head.status, loaded(body), head.retry_after)
    except BadResponse:
        if error := error_without_text(head.status, head.retry_after):
            return error
        raise


class _Reply:
    """A response whose head is read. Its connection goes back to the client at its end, or is closed."""

    def __init__(self, idle: list[Connection], connection: Connection, head: Head) -> None:
        self.head = head
        self._idle = idle
        self._connection: Connection | None = connection

    async def read(self) -> bytes:
        """The next bytes of the body. b"": that was all."""
        connection = self._connection
        if connection is None:
            raise InvalidError("the stream was closed")
        try:
            piece = await connection.read()
        except BaseException:
            self.abort()
            raise
        if not piece and self._connection is not None:
            self._connection = None
            if connection.is_open() and len(self._idle) < _MAX_IDLE:
                self._idle.append(connection)
            else:
                connection.abort()
        return piece

    async def read_all(self) -> bytes:
        body = bytearray()
        while piece := await self.read():
            body += piece
            if len(body) > MAX_BODY_BYTES:
                self.abort()
                raise BadResponse(f"an answer of more than {MAX_BODY_BYTES} bytes")
        return bytes(body)

    def abort(self) -> None:
        """Closes the connection, unless the response is complete."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()


class _Requests:
    """What clients do. Threads: any number, as far as connections and locks are theirs; single operations of dict and
    list are atomic."""

    def __init__(
        self,
        base_url: str = _DEFAULT_URL,
        api_key: str | None = None,
        timeout: float | None = 600.0,
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._address = Address(base_url, api_key, timeout, tls)
        self._connection = self._connections()
        self._idle: list[Connection] = []
        self._uploaded: dict[str, tuple[str, int]] = {}  # by schema: PML, and the number of its upload
        self._upload_numbers = itertools.count(1)
        self._upload_locks: dict[str, contextlib.AbstractAsyncContextManager[None]] = {}  # held during an upload

    def _connections(self) -> Callable[[Address], Connection]:
        return BlockingConnection

    def _lock(self) -> contextlib.AbstractAsyncContextManager[None]:
        return _BlockingLock()

    def close(self) -> None:
        """Closes the connections that are kept. The client can be used again."""
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop().abort()

    # ---- transport ----

    async def _send(self, call: Call) -> _Reply:
        """Sends a request, and reads the head of its response. A kept connection that gives none is replaced."""
        while True:
            try:
                connection, is_kept = self._idle.pop(), True
            except IndexError:
                connection, is_kept = self._connection(self._address), False
            with self._address.errors():
                try:
                    return _Reply(self._idle, connection, await connection.send(call))
                except BaseException as e:
                    connection.abort()
                    if not is_kept or not isinstance(e, (ConnectionError, BadResponse)):
                        raise

    async def _ask(self, call: Call, taken: Callable[[Any], _T]) -> _T:
        """What is taken from the JSON of a response; its error as an exception."""
        reply = await self._send(call)
        with self._address.errors():
            body = await reply.read_all()
            if reply.head.status >= 400:
                raise _error(reply.head, body)
            return taken(loaded(body))

    # ---- prompts ----

    async def _with_schema(self, prompt: PromptLike, request: Callable[[], Awaitable[_T]]) -> _T:
        """A request whose prompt may have a schema: it is uploaded once, and again if a restarted server lacks it."""
        schema = prompt.schema if isinstance(prompt, Prompt) else None
        if not isinstance(schema, Schema):
            return await request()
        seen = self._upload_number(schema) or await self._upload(schema, 0)
        try:
            return await request()
        except Error as e:
            if not lacks_schema(e, schema):
                raise
        await self._upload(schema, seen)
        return await request()

    def _upload_number(self, schema: Schema) -> int:
        """Of the upload that a request relies on; 0: there was none."""
        pml, number = self._uploaded.get(schema.name, ("", 0))
        return number if pml == schema.pml else 0

    async def _upload(self, schema: Schema, seen: int) -> int:
        """Uploads a schema, unless another request did it after upload `seen`. The number of the upload."""
        async with self._upload_locks.setdefault(schema.name, self._lock()):
            if self._upload_number(schema) in (0, seen):
                try:
                    await self.load(schema)
                except AccessError:
                    if seen:
                        raise
                    self._has(schema)  # without the right to upload: the operator may have
            return self._upload_number(schema)

    def _has(self, schema: Schema) -> None:
        self._uploaded[schema.name] = (schema.pml, next(self._upload_numbers))

    async def run(self, prompt: PromptLike, **options: Unpack[ClientOptions]) -> Answer:
        """Answers a prompt. A server that was restarted gets the prompt's schema again.

        Errors by class, as an Engine's; FileError: no connection; AccessError: the key; BusyError: retry after
        retry_after_ms. Cancelling a task ends its request.
        """
        call = call_of(prompt, options, False)
        return await self._with_schema(prompt, lambda: self._ask(call, partial(answer_of, call.kind)))

    # ---- schemas, models, health ----

    async def load(self, schema: Schema, *, prefill: bool = False) -> None:
        """Uploads a schema, in place of one of the same name. Prompts over a Schema do it by themselves.

        prefill: returns when its modules are prefilled; otherwise the first prompt that imports a module prefills it.
        """
        try:
            await self._ask(upload_of(schema, prefill), lambda reply: None)
        except Error as e:
            raise named_for(e, schema) from None
        self._has(schema)
        if schema.replaces in self._uploaded:
            with contextlib.suppress(Error):
                await self.unload(schema.replaces)

    async def unload(self, schema: Schema | str) -> None:
        """Removes a schema from the server. UnknownNameError."""
        name = schema.name if isinstance(schema, Schema) else schema
        self._uploaded.pop(name, None)
        await self._ask(Call("DELETE", f"/v1/schemas/{quote(name, safe='')}"), lambda reply: None)

    async def schemas(self) -> tuple[str, ...]:
        """The names of the schemas that the server has for this client."""
        return await self._ask(Call("GET", "/v1/schemas"), names_of)

    async def models(self) -> tuple[str, ...]:
        """The names of the server's models."""
        return await self._ask(Call("GET", "/v1/models"), partial(names_of, key="id"))

    async def health(self) -> str:
        """ "ready", and in a second line the state of a store that cannot be used.

        BusyError: it loads the model, or ends.
        """
        reply = await self._send(Call("GET", "/readyz"))
        with self._address.errors():
            body, head = await reply.read_all(), reply.head
            text = body.decode("utf-8", "replace").strip()
            if head.status == 200:
                return text
            if head.status == 503 and len(text) < 100 and text.isprintable() and not text.startswith("{"):
                ms = retry_after_ms_of(head.retry_after)
                raise BusyError(f"{self._address.url} is not ready: {text}", retry_after_ms=ms)
            raise _error(head, body)


class _Stream:
    """An answer as it arrives."""

    def __init__(self, client: _Requests, prompt: PromptLike, options: ClientOptions) -> None:
        self._client, self._prompt, self._call = client, prompt, call_of(prompt, options, True)
        self._events = Events(self._call.kind)
        self._reply: _Reply | None = None
        self._is_over = self._is_closed = False

    async def _open(self) -> _Reply:
        reply = await self._client._send(self._call)
        with self._client._address.errors():
            if reply.head.status >= 400:
                raise _error(reply.head, await reply.read_all())
            kind = reply.head.content_type
            if kind.partition(";")[0].strip().lower() != "text/event-stream":
                reply.abort()
                raise BadResponse(f"instead of events it sent {kind!r:.60} with status {reply.head.status}")
        return reply

    async def _begin(self) -> _Reply:
        self._reply = await self._client._with_schema(self._prompt, self._open)
        if self._is_closed:  # meanwhile
            self._reply.abort()
        return self._reply

    async def _next(self) -> str:
        """The next piece. "": there is none."""
        while not self._is_over:
            try:
                with self._client._address.errors():
                    if text := self._events.next():
                        return text
                    data = await (self._reply or await self._begin()).read()
                    self._is_over = not data
                    self._events.feed(data)
            except BaseException as e:
                if self._is_closed and isinstance(e, Exception):
                    break  # by another thread or task
                self.close()
                raise
        return ""

    @property
    def result(self) -> Answer:
        """The answer, after its last piece. InvalidError: it has not ended."""
        if self._events.answer is None:
            raise InvalidError("the answer has not ended: read the stream to its end first")
        return self._events.answer

    def close(self) -> None:
        """Ends the request, if its answer has not ended."""
        self._is_over = self._is_closed = True
        if self._reply is not None:
            self._reply.abort()

    def __del__(self) -> None:
        if hasattr(self, "_is_over"):
            self.close()


# ---- threads ----


def _now(steps: Coroutine[Any, Any, _T]) -> _T:
    """The result of a coroutine that never waits."""
    try:
        steps.send(None)
    except StopIteration as e:
        result: _T = e.value
        return result
    raise AssertionError("a connection that blocks has waited")


def _blocking(
    method: Callable[Concatenate[_Requests, _P], Coroutine[Any, Any, _T]],
) -> Callable[Concatenate[Client, _P], _T]:
    """A method of Client."""

    @functools.wraps(method)
    def blocking(self: Client, /, *args: _P.args, **options: _P.kwargs) -> _T:
        return _now(method(self._requests, *args, **options))

    return blocking


class _BlockingLock:
    """threading.Lock for coroutines that never wait."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    async def __aenter__(self) -> None:
        self._lock.acquire()

    async def __aexit__(self, *exception: object) -> None:
        self._lock.release()


class Client:
    """Speaks to `reprise serve`. Threads: any number; each request has a connection of its own meanwhile.

        client = Client("http://127.0.0.1:8080")
        answer = client.run(guide("miami", question="Where can I surf?"), max_tokens=64)

    base_url  of the server, with or without /v1
    api_key   for servers with --api-keys
    timeout   seconds without a byte after which a request fails; None: no limit
    tls       for https: certificates of your own; None: the system's
    """

    def __init__(
        self,
        base_url: str = _DEFAULT_URL,
        api_key: str | None = None,
        timeout: float | None = 600.0,
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._requests = _Requests(base_url, api_key, timeout, tls=tls)

    run = _blocking(_Requests.run)
    load = _blocking(_Requests.load)
    unload = _blocking(_Requests.unload)
    schemas = _blocking(_Requests.schemas)
    models = _blocking(_Requests.models)
    health = _blocking(_Requests.health)

    def stream(self, prompt: PromptLike, **options: Unpack[ClientOptions]) -> ClientStream:
        """Answers a prompt: an iterator of pieces of text. Closing it early ends the request.

        with client.stream(prompt, max_tokens=64) as stream:
            for piece in stream:
                print(piece, end="", flush=True)
        print(stream.result.usage)
        """
        stream = ClientStream(self._requests, prompt, options)
        _now(stream._begin())
        return stream

    def close(self) -> None:
        """Closes the connections that are kept. The client can be used again."""
        self._requests.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_requests"):
            self.close()


class ClientStream(_Stream):
    """An answer as it arrives: an iterator of pieces of text, and a context manager. Closing it early ends the request.

    Threads: one at a time reads; any may close it.
    """

    def __iter__(self) -> ClientStream:
        return self

    def __next__(self) -> str:
        if piece := _now(self._next()):
            return piece
        raise StopIteration

    def __enter__(self) -> ClientStream:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


# ---- asyncio ----


class AsyncClient(_Requests):
    """Client for asyncio, without threads: `await client.run(...)`, `async for piece in client.stream(...)`.

    Needs httpx. Any number of tasks of one event loop at a time.
    """

    _loop: asyncio.AbstractEventLoop | None = None

    def _check_loop(self) -> None:
        """Connections and locks of an event loop that has ended are of no use in the next one."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self.close()
            self._upload_locks.clear()
            self._loop = loop

    def _connections(self) -> Callable[[Address], Connection]:
        try:
            from .async_connection import AsyncConnection
        except ImportError as e:
            raise ImportError(
                f"AsyncClient needs httpx ({e}): pip install httpx, or apt-get install python3-httpx"
            ) from e
        return AsyncConnection

    def _lock(self) -> contextlib.AbstractAsyncContextManager[None]:
        return asyncio.Lock()

    async def _send(self, call: Call) -> _Reply:
        self._check_loop()
        return await super()._send(call)

    async def _upload(self, schema: Schema, seen: int) -> int:
        self._check_loop()
        return await super()._upload(schema, seen)

    def stream(self, prompt: PromptLike, **options: Unpack[ClientOptions]) -> AsyncClientStream:
        """Client.stream for asyncio. The request is sent when the first piece is read.

        async with client.stream(prompt, max_tokens=64) as stream:
            async for piece in stream:
                print(piece, end="", flush=True)
        """
        return AsyncClientStream(self, prompt, options)

    async def aclose(self) -> None:
        """close(), and waits until the connections are closed."""
        self._check_loop()
        while self._idle:
            await self._idle.pop().aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()


class AsyncClientStream(_Stream):
    """An answer as it arrives, for `async for`. Cancelling the task that reads it, or aclose(), ends the request."""

    def __aiter__(self) -> AsyncClientStream:
        return self

    async def __anext__(self) -> str:
        if piece := await self._next():
            return piece
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """close()"""
        self.close()

    async def __aenter__(self) -> AsyncClientStream:
        return self

    async def __aexit__(self, *exception: object) -> None:
        self.close()
