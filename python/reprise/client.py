# SPDX-License-Identifier: Apache-2.0
"""Clients of `reprise serve`: the same programs and prompts as an Engine, over HTTP, for threads and for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from . import _abi
from .answers import Answer, Call, ClientOptions, Events, answer_of, call_of, error_of, lacks_schema, loaded, upload_of
from .errors import Error, FileError, FormatError, InvalidError
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
        url = urlsplit(base_url)
        if url.scheme not in ("http", "https") or not url.hostname or url.query or url.fragment or url.username:
            raise InvalidError(f"base_url={base_url!r}: write http://HOST:PORT or https://HOST")
        self.url = base_url.rstrip("/")
        self.host, self.path = url.hostname, url.path.rstrip("/").removesuffix("/v1")
        self.port = url.port or (443 if url.scheme == "https" else 80)
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
        self._uploaded: set[str] = set()

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
        if schema.name not in self._uploaded:
            self.load(schema)
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
        self._uploaded.add(schema.name)
        if schema.replaces in self._uploaded:
            with contextlib.suppress(Error):
                self.unload(schema.replaces)

    def unload(self, schema: Schema | str) -> None:
        """Removes a schema from the server. UnknownNameError."""
        name = schema.name if isinstance(schema, Schema) else schema
        self._uploaded.discard(name)
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


class AsyncClient:
    """Client for asyncio, without threads: `await client.run(...)`, `async for piece in client.stream(...)`. One event loop."""

    def __init__(
        self, base_url: str = "http://127.0.0.1:8080", *, api_key: str | None = None, timeout: float | None = 600.0
    ) -> None:
        self._address = _Address(base_url, api_key)
        self._timeout = timeout
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._uploaded: set[str] = set()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections that are kept. The client can be used again."""
        idle, self._idle = self._idle, []
        for _, writer in idle:
            writer.close()

    # ---- transport ----

    async def _begin(self, call: Call) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, ResponseParser, bytes]:
        address = self._address
        request = address.request(call)
        while True:
            kept = self._idle.pop() if self._idle else None
            try:
                async with asyncio.timeout(self._timeout):
                    reader, writer = kept or await asyncio.open_connection(address.host, address.port, ssl=address.tls)
                parser, body = ResponseParser(), b""
                try:
                    writer.write(request)
                    await writer.drain()
                    while not parser.status:
                        data = await self._read(reader)
                        if not data and kept is not None:
                            raise ConnectionResetError  # the server had closed it
                        body = parser.feed(data)
                except BaseException:
                    writer.close()
                    raise
                return reader, writer, parser, body
            except ConnectionError as e:
                if kept is None:
                    raise address.unreachable(e) from None
            except OSError as e:
                raise address.unreachable(e) from None
            except BadResponse as e:
                raise address.bad(e) from None

    async def _read(self, reader: asyncio.StreamReader) -> bytes:
        async with asyncio.timeout(self._timeout):
            return await reader.read(_READ_BYTES)

    @contextlib.asynccontextmanager
    async def _exchange(self, call: Call) -> AsyncIterator[tuple[ResponseParser, AsyncIterator[bytes]]]:
        reader, writer, parser, first = await self._begin(call)

        async def pieces() -> AsyncIterator[bytes]:
            if first:
                yield first
            while not parser.is_complete:
                piece = parser.feed(await self._read(reader))
                if piece:
                    yield piece

        try:
            yield parser, pieces()
            if parser.keeps_alive and len(self._idle) < _MAX_IDLE:
                self._idle.append((reader, writer))
            else:
                writer.close()
        except OSError as e:
            writer.close()
            if isinstance(e, Error):
                raise
            raise self._address.unreachable(e) from None
        except BadResponse as e:
            writer.close()
            raise self._address.bad(e) from None
        except BaseException:
            writer.close()
            raise

    async def _ask(self, call: Call) -> Any:
        async with self._exchange(call) as (parser, pieces):
            body = bytearray()
            async for piece in pieces:
                body += piece
                if len(body) > MAX_BODY_BYTES:
                    raise BadResponse(f"more than {MAX_BODY_BYTES} bytes")
            _check_status(parser, bytes(body))
            return loaded(bytes(body)) if body else None

    # ---- prompts ----

    async def _ensure(self, prompt: PromptLike) -> Schema | None:
        schema = prompt.schema if isinstance(prompt, Prompt) else None
        if not isinstance(schema, Schema):
            return None
        if schema.name not in self._uploaded:
            await self.load(schema)
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
        self._uploaded.add(schema.name)
        if schema.replaces in self._uploaded:
            with contextlib.suppress(Error):
                await self.unload(schema.replaces)

    async def unload(self, schema: Schema | str) -> None:
        name = schema.name if isinstance(schema, Schema) else schema
        self._uploaded.discard(name)
        await self._ask(Call("DELETE", f"/v1/schemas/{quote(name, safe='')}"))

    async def schemas(self) -> tuple[str, ...]:
        return tuple((await self._ask(Call("GET", "/v1/schemas")))["data"])

    async def models(self) -> tuple[str, ...]:
        return tuple(one["id"] for one in (await self._ask(Call("GET", "/v1/models")))["data"])


class AsyncClientStream:
    """An answer as it arrives, for `async for`. Cancelling the task that reads it, or aclose(), ends the request."""

    def __init__(self, client: AsyncClient, prompt: PromptLike, options: Any) -> None:
        self._client = client
        self._call = call_of(prompt, options, True)
        self._prompt = prompt
        self._events = Events(self._call.kind)
        self._iterator = self._texts()

    async def _texts(self) -> AsyncIterator[str]:
        client, repeats = self._client, True
        schema = await client._ensure(self._prompt)
        while True:
            try:
                async with client._exchange(self._call) as (parser, pieces):
                    if parser.status >= 400:
                        _check_status(parser, b"".join([piece async for piece in pieces]))
                    repeats = False
                    events = EventParser()
                    async for piece in pieces:
                        for name, data in events.feed(piece):
                            text = self._events.take(name, data)
                            if text:
                                yield text
                    if self._events.answer is None:
                        raise BadResponse("the answer ended before its end")
                return
            except Error as e:
                if not repeats or schema is None or not lacks_schema(e, schema):
                    raise
                repeats = False
                await client.load(schema)

    def __aiter__(self) -> AsyncClientStream:
        return self

    async def __anext__(self) -> str:
        return await anext(self._iterator)

    @property
    def result(self) -> Answer:
        """The answer, after its last piece. InvalidError: it has not ended."""
        if self._events.answer is None:
            raise InvalidError("the answer has not ended: read the stream to its end first")
        return self._events.answer

    async def aclose(self) -> None:
        """Ends the request, if its answer has not ended."""
        await self._iterator.aclose()  # type: ignore[attr-defined]

    async def __aenter__(self) -> AsyncClientStream:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()
