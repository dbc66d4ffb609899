# SPDX-License-Identifier: Apache-2.0
"""Clients of `reprise serve`: the same programs and prompts as an Engine, over HTTP, for threads and for asyncio."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from . import _abi
from .answers import Answer, Call, ClientOptions, Events, answer_of, call_of, error_of, lacks_schema, loaded, upload_of
from .errors import AccessError, Error, FileError, FormatError, InvalidError
from .http1 import MAX_BODY_BYTES, BadResponse, EventParser, ResponseParser
from .prompt import Prompt
from .requests import PromptLike
from .schema import Schema

if TYPE_CHECKING:
    from typing import Unpack

_READ_BYTES = 64 << 10
_MAX_IDLE = 8  # connections that a client keeps


class _Address:
    """Where a server is, and the head of requests to it."""

    def __init__(self, base_url: str, api_key: str | None) -> None:
        try:
            url = urlsplit(base_url)
            port = url.port
        except ValueError as e:
            raise InvalidError(f"base_url={base_url!r}: {e}: write http://HOST:PORT or https://HOST") from None
        is_plain = base_url.isascii() and base_url.isprintable() and " " not in base_url
        if (
            not is_plain
            or url.scheme not in ("http", "https")
            or not url.hostname
            or url.query
            or url.fragment
            or url.username
        ):
            raise InvalidError(f"base_url={base_url!r}: write http://HOST:PORT or https://HOST")
        self.url = base_url.rstrip("/")
        self.host, self.path = url.hostname, url.path.rstrip("/").removesuffix("/v1")
        self.port = port or (443 if url.scheme == "https" else 80)
        self.tls = ssl.create_default_context() if url.scheme == "https" else None
        host = f"[{self.host}]" if ":" in self.host else self.host
        self._head = f"Host: {host}:{self.port}\r\nUser-Agent: reprise-python/{_abi.VERSION}\r\n"
        if api_key is not None:
            if not api_key.isascii() or not api_key.isprintable():
                raise InvalidError("api_key: it has characters that a header cannot have")
            self._head += f"Authorization: Bearer {api_key}\r\n"

    def request(self, call: Call) -> bytes:
        head = f"{call.method} {self.path}{call.path} HTTP/1.1\r\n{self._head}"
        if call.body:
            head += f"Content-Type: {call.content_type}\r\n"
        return f"{head}Content-Length: {len(call.body)}\r\n\r\n".encode() + call.body

    def unreachable(self, e: OSError) -> FileError:
        reason = "it does not answer in time" if isinstance(e, TimeoutError) else e.strerror or str(e)
        return FileError(f"{self.url}: {reason}: start `reprise serve`, or give the server's base_url", where=self.url)

    def bad(self, e: BadResponse) -> FormatError:
        return FormatError(f"{self.url} is no Reprise server, or its connection broke: {e}", where=self.url)

    def error(self, e: OSError | BadResponse) -> Error:
        if isinstance(e, Error):
            return e
        return self.bad(e) if isinstance(e, BadResponse) else self.unreachable(e)


class _Uploaded:
    """The schemas that the server has from this client: name -> PML."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def has(self, schema: Schema) -> bool:
        return self.texts.get(schema.name) == schema.pml

    def add(self, schema: Schema) -> None:
        self.texts[schema.name] = schema.pml


def _check_status(parser: ResponseParser, body: bytes) -> None:
    if parser.status >= 400:
        raise error_of(parser.status, loaded(body), parser.headers.get("retry-after", ""))


# ---- threads ------------------------------------------------------------------------------------------------------


class Client:
    """Speaks to `reprise serve`. Threads: any number; each request has a connection of its own meanwhile.

        client = Client("http://127.0.0.1:8080")
        answer = client.run(guide("miami", question="Where can I surf?"), max_tokens=64)

    base_url  of the server, with or without /v1
    api_key   for servers with --api-keys
    timeout   seconds without a byte after which a request fails; None: none
    """

    def __init__(
        self, base_url: str = "http://127.0.0.1:8080", *, api_key: str | None = None, timeout: float | None = 600.0
    ) -> None:
        self._address = _Address(base_url, api_key)
        self._timeout = timeout
        self._lock = threading.Lock()
        self._idle: list[socket.socket] = []
        self._uploaded = _Uploaded()
        self._uploading = threading.Lock()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_lock"):
            self.close()

    def close(self) -> None:
        """Closes the connections that are kept. The client can be used again."""
        with self._lock:
            idle, self._idle = self._idle, []
        for one in idle:
            one.close()

    # ---- transport ----

    def _connect(self) -> socket.socket:
        address = self._address
        connection = socket.create_connection((address.host, address.port), self._timeout)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return address.tls.wrap_socket(connection, server_hostname=address.host) if address.tls else connection

    def _begin(self, call: Call) -> tuple[socket.socket, ResponseParser, bytes]:
        """Sends a request, and reads the head of its response and what came with it."""
        request = self._address.request(call)
        while True:
            with self._lock:
                kept = self._idle.pop() if self._idle else None
            try:
                connection = kept or self._connect()
                parser, body = ResponseParser(), b""
                try:
                    connection.sendall(request)
                    while not parser.status:
                        data = connection.recv(_READ_BYTES)
                        if not data and kept is not None:
                            raise ConnectionResetError  # the server had closed it
                        body = parser.feed(data)
                except BaseException:
                    connection.close()
                    raise
                return connection, parser, body
            except ConnectionError as e:
                if kept is None:
                    raise self._address.unreachable(e) from None
            except OSError as e:
                raise self._address.unreachable(e) from None
            except BadResponse as e:
                raise self._address.bad(e) from None

    @contextlib.contextmanager
    def _exchange(self, call: Call) -> Iterator[tuple[ResponseParser, Iterator[bytes]]]:
        """A response and its body, piece by piece. A connection whose response was not read to its end is closed."""
        connection, parser, first = self._begin(call)

        def pieces() -> Iterator[bytes]:
            if first:
                yield first
            while not parser.is_complete:
                piece = parser.feed(connection.recv(_READ_BYTES))
                if piece:
                    yield piece

        try:
            yield parser, pieces()
            with self._lock:
                keep = parser.keeps_alive and len(self._idle) < _MAX_IDLE
                if keep:
                    self._idle.append(connection)
            if not keep:
                connection.close()
        except OSError as e:
            connection.close()
            if isinstance(e, Error):
                raise
            raise self._address.unreachable(e) from None
        except BadResponse as e:
            connection.close()
            raise self._address.bad(e) from None
        except BaseException:
            connection.close()
            raise

    def _ask(self, call: Call) -> Any:
        """The JSON of a response; its error as an exception."""
        with self._exchange(call) as (parser, pieces):
            body = bytearray()
            for piece in pieces:
                body += piece
                if len(body) > MAX_BODY_BYTES:
                    raise BadResponse(f"more than {MAX_BODY_BYTES} bytes")
            _check_status(parser, bytes(body))
            return loaded(bytes(body)) if body else None

    # ---- prompts ----

    def _ensure(self, prompt: PromptLike) -> Schema | None:
        """Uploads the schema of a prompt, once."""
        schema = prompt.schema if isinstance(prompt, Prompt) else None
        if not isinstance(schema, Schema):
            return None
        if not self._uploaded.has(schema):
            with self._uploading:
                if not self._uploaded.has(schema):
                    try:
                        self.load(schema)
                    except AccessError:  # without the right to upload: the operator may have
                        self._uploaded.add(schema)
        return schema

    def run(self, prompt: PromptLike, **options: Unpack[ClientOptions]) -> Answer:
        """Answers a prompt. A server that was restarted gets the prompt's schema again.

        Errors by class, as an Engine's; FileError: no connection; AccessError: the key; BusyError: retry after retry_after_ms.
        """
        schema = self._ensure(prompt)
        call = call_of(prompt, options, False)
        try:
            reply = self._ask(call)
        except Error as e:
            if schema is None or not lacks_schema(e, schema):
                raise
            self.load(schema)
            reply = self._ask(call)
        try:
            return answer_of(call.kind, reply)
        except BadResponse as e:
            raise self._address.bad(e) from None

    def stream(self, prompt: PromptLike, **options: Unpack[ClientOptions]) -> ClientStream:
        """Answers a prompt: an iterator of pieces of text. Closing it early ends the request."""
        schema = self._ensure(prompt)
        call = call_of(prompt, options, True)
        try:
            return ClientStream(self, call)
        except Error as e:
            if schema is None or not lacks_schema(e, schema):
                raise
            self.load(schema)
            return ClientStream(self, call)

    # ---- schemas and models ----

    def load(self, schema: Schema, *, prefill: bool = False) -> None:
        """Uploads a schema, in place of one of the same name. Prompts over a Schema do it by themselves. prefill: its modules, too."""
        self._ask(upload_of(schema, prefill))
        self._uploaded.add(schema)
        if schema.replaces in self._uploaded.texts:
            with contextlib.suppress(Error):
                self.unload(schema.replaces)

    def unload(self, schema: Schema | str) -> None:
        """Removes a schema from the server. UnknownNameError."""
        name = schema.name if isinstance(schema, Schema) else schema
        self._uploaded.texts.pop(name, None)
        self._ask(Call("DELETE", f"/v1/schemas/{quote(name, safe='')}"))

    def schemas(self) -> tuple[str, ...]:
        """The names of the schemas that the server has for this client."""
        return tuple(self._ask(Call("GET", "/v1/schemas"))["data"])

    def models(self) -> tuple[str, ...]:
        """The names of the server's models."""
        return tuple(one["id"] for one in self._ask(Call("GET", "/v1/models"))["data"])


class ClientStream:
    """An answer as it arrives: an iterator of pieces of text, and a context manager. Closing it early ends the request."""

    def __init__(self, client: Client, call: Call) -> None:
        self._address = client._address
        self._stack = contextlib.ExitStack()
        self._events = Events(call.kind)
        with contextlib.ExitStack() as stack:
            parser, pieces = stack.enter_context(client._exchange(call))
            if parser.status >= 400:
                _check_status(parser, b"".join(pieces))
            self._stack = stack.pop_all()
        self._iterator = self._texts(pieces)

    def _texts(self, pieces: Iterator[bytes]) -> Iterator[str]:
        parser = EventParser()
        for piece in pieces:
            for name, data in parser.feed(piece):
                text = self._events.take(name, data)
                if text:
                    yield text
        if self._events.answer is None:
            raise BadResponse("the answer ended before its end")

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        try:
            return next(self._iterator)
        except StopIteration:
            self._stack.close()
            raise
        except BaseException as e:
            self._stack.__exit__(type(e), e, e.__traceback__)
            raise

    @property
    def result(self) -> Answer:
        """The answer, after its last piece. InvalidError: it has not ended."""
        if self._events.answer is None:
            raise InvalidError("the answer has not ended: read the stream to its end first")
        return self._events.answer

    def close(self) -> None:
        """Ends the request, if its answer has not ended."""
        self._iterator = iter(())
        if self._events.answer is None:
            with contextlib.suppress(GeneratorExit):
                self._stack.__exit__(GeneratorExit, GeneratorExit(), None)
        self._stack.close()

    def __enter__(self) -> ClientStream:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


# ---- asyncio ------------------------------------------------------------------------------------------------------


class _AsyncConnection:
    """A connection of an event loop, and the response that is read from it."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.loop, self.reader, self.writer = loop, reader, writer
        self.begin()

    def begin(self) -> None:
        self.parser, self.events, self.first = ResponseParser(), EventParser(), b""

    def close(self) -> None:
        if not self.loop.is_closed():
            self.writer.close()


class AsyncClient:
    """Client for asyncio, without threads: `await client.run(...)`, `async for piece in client.stream(...)`. One event loop."""

    def __init__(
        self, base_url: str = "http://127.0.0.1:8080", *, api_key: str | None = None, timeout: float | None = 600.0
    ) -> None:
        self._address = _Address(base_url, api_key)
        self._timeout = timeout
        self._idle: list[_AsyncConnection] = []
        self._uploaded = _Uploaded()
        self._uploading: dict[str, asyncio.Lock] = {}

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections that are kept. The client can be used again."""
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    # ---- transport ----

    async def _begin(self, call: Call) -> _AsyncConnection:
        """Sends a request, and reads the head of its response and what came with it."""
        address = self._address
        request = address.request(call)
        while True:
            kept = self._kept()
            try:
                connection = kept or await self._connect()
                try:
                    connection.begin()
                    connection.writer.write(request)
                    await connection.writer.drain()
                    while not connection.parser.status:
                        data = await self._read(connection.reader)
                        if not data and kept is not None:
                            raise ConnectionResetError  # the server had closed it
                        connection.first = connection.parser.feed(data)
                except BaseException:
                    connection.close()
                    raise
                return connection
            except ConnectionError as e:
                if kept is None:
                    raise address.error(e) from None
            except (OSError, BadResponse) as e:
                raise address.error(e) from None

    def _kept(self) -> _AsyncConnection | None:
        """A connection of this event loop. Those of others are of no use any more."""
        loop = asyncio.get_running_loop()
        while self._idle:
            connection = self._idle.pop()
            if connection.loop is loop:
                return connection
            connection.close()
        return None

    async def _connect(self) -> _AsyncConnection:
        address = self._address
        async with asyncio.timeout(self._timeout):
            reader, writer = await asyncio.open_connection(address.host, address.port, ssl=address.tls)
        return _AsyncConnection(asyncio.get_running_loop(), reader, writer)

    def _release(self, connection: _AsyncConnection) -> None:
        """Keeps a connection whose response was read to its end, if it can be used again."""
        if connection.parser.keeps_alive and len(self._idle) < _MAX_IDLE:
            self._idle.append(connection)
        else:
            connection.close()

    async def _read(self, reader: asyncio.StreamReader) -> bytes:
        async with asyncio.timeout(self._timeout):
            return await reader.read(_READ_BYTES)

    async def _rest(self, connection: _AsyncConnection) -> AsyncIterator[bytes]:
        """The body after its first bytes, up to a bound."""
        n = len(connection.first)
        while not connection.parser.is_complete:
            piece = connection.parser.feed(await self._read(connection.reader))
            n += len(piece)
            if n > MAX_BODY_BYTES:
                raise BadResponse(f"more than {MAX_BODY_BYTES} bytes")
            yield piece

    async def _ask(self, call: Call) -> Any:
        """The JSON of a response; its error as an exception."""
        connection = await self._begin(call)
        try:
            body = bytearray(connection.first)
            async for piece in self._rest(connection):
                body += piece
        except BaseException as e:
            connection.close()
            if isinstance(e, (OSError, BadResponse)):
                raise self._address.error(e) from None
            raise
        self._release(connection)
        try:
            _check_status(connection.parser, bytes(body))
            return loaded(bytes(body)) if body else None
        except BadResponse as e:
            raise self._address.error(e) from None

    # ---- prompts ----

    async def _ensure(self, prompt: PromptLike) -> Schema | None:
        schema = prompt.schema if isinstance(prompt, Prompt) else None
        if not isinstance(schema, Schema):
            return None
        if not self._uploaded.has(schema):
            async with self._uploading.setdefault(schema.name, asyncio.Lock()):
                if not self._uploaded.has(schema):
                    try:
                        await self.load(schema)
                    except AccessError:  # without the right to upload: the operator may have
                        self._uploaded.add(schema)
        return schema

    async def run(self, prompt: PromptLike, **options: Unpack[ClientOptions]) -> Answer:
        """Client.run for asyncio. Cancelling the task ends the request."""
        schema = await self._ensure(prompt)
        call = call_of(prompt, options, False)
        try:
            reply = await self._ask(call)
        except Error as e:
            if schema is None or not lacks_schema(e, schema):
                raise
            await self.load(schema)
            reply = await self._ask(call)
        try:
            return answer_of(call.kind, reply)
        except BadResponse as e:
            raise self._address.bad(e) from None

    def stream(self, prompt: PromptLike, **options: Unpack[ClientOptions]) -> AsyncClientStream:
        """Client.stream for asyncio. The request starts with the first piece that is read."""
        return AsyncClientStream(self, prompt, options)

    # ---- schemas and models ----

    async def load(self, schema: Schema, *, prefill: bool = False) -> None:
        """Client.load for asyncio."""
        await self._ask(upload_of(schema, prefill))
        self._uploaded.add(schema)
        if schema.replaces in self._uploaded.texts:
            with contextlib.suppress(Error):
                await self.unload(schema.replaces)

    async def unload(self, schema: Schema | str) -> None:
        name = schema.name if isinstance(schema, Schema) else schema
        self._uploaded.texts.pop(name, None)
        await self._ask(Call("DELETE", f"/v1/schemas/{quote(name, safe='')}"))

    async def schemas(self) -> tuple[str, ...]:
        return tuple((await self._ask(Call("GET", "/v1/schemas")))["data"])

    async def models(self) -> tuple[str, ...]:
        return tuple(one["id"] for one in (await self._ask(Call("GET", "/v1/models")))["data"])


class AsyncClientStream:
    """An answer as it arrives, for `async for`. Cancelling the task that reads it, aclose() and garbage collection end the request."""

    def __init__(self, client: AsyncClient, prompt: PromptLike, options: Any) -> None:
        self._client = client
        self._call = call_of(prompt, options, True)
        self._prompt = prompt
        self._events = Events(self._call.kind)
        self._texts: collections.deque[str] = collections.deque()
        self._connection: _AsyncConnection | None = None
        self._is_started = self._is_closed = False

    def __aiter__(self) -> AsyncClientStream:
        return self

    async def __anext__(self) -> str:
        try:
            if not self._is_started:
                self._is_started = True
                await self._start()
            while not self._texts:
                if self._is_closed:
                    raise StopAsyncIteration
                await self._read()
            return self._texts.popleft()
        except (OSError, BadResponse) as e:
            await self.aclose()
            raise self._client._address.error(e) from None
        except StopAsyncIteration:
            raise
        except BaseException:
            await self.aclose()
            raise

    async def _start(self) -> None:
        client = self._client
        schema = await client._ensure(self._prompt)
        for repeats in (schema is not None, False):
            connection = self._connection = await client._begin(self._call)
            if connection.parser.status < 400:
                self._take(connection.first)
                return
            body = connection.first + b"".join([piece async for piece in client._rest(connection)])
            await self._release()
            try:
                _check_status(connection.parser, body)
            except Error as e:
                if not repeats or schema is None or not lacks_schema(e, schema):
                    raise
                await client.load(schema)

    async def _read(self) -> None:
        connection = self._connection
        assert connection is not None
        if not connection.parser.is_complete:
            self._take(connection.parser.feed(await self._client._read(connection.reader)))
        if connection.parser.is_complete:
            await self._release()
            self._is_closed = True
            if self._events.answer is None:
                raise BadResponse("the answer ended before its end")

    def _take(self, data: bytes) -> None:
        assert self._connection is not None
        for name, value in self._connection.events.feed(data):
            text = self._events.take(name, value)
            if text:
                self._texts.append(text)

    async def _release(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._client._release(connection)

    @property
    def result(self) -> Answer:
        """The answer, after its last piece. InvalidError: it has not ended."""
        if self._events.answer is None:
            raise InvalidError("the answer has not ended: read the stream to its end first")
        return self._events.answer

    async def aclose(self) -> None:
        """Ends the request, if its answer has not ended."""
        self._close()

    def _close(self) -> None:
        self._is_started = self._is_closed = True
        self._texts.clear()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    async def __aenter__(self) -> AsyncClientStream:
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._close()

    def __del__(self) -> None:
        if hasattr(self, "_is_closed"):
            self._close()
