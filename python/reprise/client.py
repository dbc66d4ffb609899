# SPDX-License-Identifier: Apache-2.0
"""Clients of `reprise serve`: the same programs and prompts as an Engine, over HTTP, for threads and for asyncio.

Owns the connections, and the record of which schemas were uploaded. What is said over them is answers.py's, how it is framed http1.py's.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import threading
from collections import deque
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from . import _abi
from .answers import (
    Answer,
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
    upload_of,
)
from .errors import AccessError, BusyError, Error, FileError, FormatError, InvalidError
from .http1 import MAX_BODY_BYTES, BadResponse, EventParser, ResponseParser
from .prompt import Prompt
from .requests import PromptLike
from .schema import Schema

if TYPE_CHECKING:
    from typing import Unpack

_READ_BYTES = 64 << 10
_MAX_IDLE = 8  # connections that a client keeps
_URL_CHARACTERS = "!#$%&'()*+,/:;=?@[]~"  # beside letters, digits, -._


class _Address:
    """Where a server is, the head of requests to it, and the errors of not reaching it."""

    def __init__(self, base_url: str, api_key: str | None, timeout: float | None, tls: ssl.SSLContext | None) -> None:
        try:
            url = urlsplit(base_url)
            port = url.port
        except ValueError as e:
            raise InvalidError(f"base_url={base_url!r}: {e}: write http://HOST:PORT or https://HOST") from None
        if url.scheme not in ("http", "https") or not url.hostname or url.query or url.fragment or "@" in url.netloc:
            raise InvalidError(f"base_url={base_url!r}: write http://HOST:PORT or https://HOST")
        if not base_url.isascii() or quote(base_url, safe=_URL_CHARACTERS) != base_url:
            raise InvalidError(f"base_url={base_url!r}: it has a character that a URL cannot have: encode it with %")
        if timeout is not None and not timeout > 0:
            raise InvalidError(f"timeout={timeout!r}: give seconds, or None for no limit")
        self.url, self.timeout = base_url.rstrip("/"), timeout
        self.host, self.path = url.hostname, url.path.rstrip("/").removesuffix("/v1")
        self.port = port or (443 if url.scheme == "https" else 80)
        self.tls = (tls or ssl.create_default_context()) if url.scheme == "https" else None
        host = f"[{self.host}]" if ":" in self.host else self.host
        self._head = f"Host: {host}:{self.port}\r\nUser-Agent: reprise-python/{_abi.VERSION}\r\n"
        if api_key is not None:
            if not api_key or not api_key.isascii() or not api_key.isprintable() or " " in api_key:
                raise InvalidError("api_key: it is empty, or has characters that a header cannot have")
            self._head += f"Authorization: Bearer {api_key}\r\n"

    def request(self, call: Call) -> bytes:
        head = f"{call.method} {self.path}{call.path} HTTP/1.1\r\n{self._head}"
        if call.body:
            head += f"Content-Type: {call.content_type}\r\n"
        return f"{head}Content-Length: {len(call.body)}\r\n\r\n".encode() + call.body

    def unreachable(self, e: OSError) -> FileError:
        if isinstance(e, TimeoutError):
            reason = f"no connection within {self.timeout:g} s" if self.timeout else "no connection in time"
        else:
            reason = _reason(e)
        return FileError(f"{self.url}: {reason}: start `reprise serve`, or give the server's base_url", where=self.url)

    def broken(self, e: OSError) -> FileError:
        if isinstance(e, TimeoutError):
            reason = f"no byte for {self.timeout:g} s" if self.timeout else "no byte in time"
            return FileError(f"{self.url}: {reason}: give a longer timeout, or ask for less", where=self.url)
        return FileError(f"{self.url}: the connection broke: {_reason(e)}: send the request again", where=self.url)

    def bad(self, e: BadResponse) -> FormatError:
        return FormatError(f"{self.url} is no Reprise server, or its connection broke: {e}", where=self.url)

    def of_exchange(self, e: BaseException) -> BaseException:
        """What to raise for an exception of a connection that was made: an Error, or the exception itself."""
        if isinstance(e, BadResponse):
            return self.bad(e)
        return self.broken(e) if isinstance(e, OSError) and not isinstance(e, Error) else e


def _reason(e: OSError) -> str:
    if e.errno and e.errno > 0 and not isinstance(e, ssl.SSLError):
        return os.strerror(e.errno)
    return " ".join((e.strerror or str(e) or type(e).__name__).split())


def _error(address: _Address, parser: ResponseParser, body: bytes) -> Error:
    """The exception of a response of status 400 or more."""
    retry_after = parser.headers.get("retry-after", "")
    try:
        return error_of(parser.status, loaded(body), retry_after)
    except BadResponse as e:
        return error_without_text(parser.status, retry_after) or address.bad(e)


def _too_long() -> BadResponse:
    return BadResponse(f"an answer of more than {MAX_BODY_BYTES} bytes")


def _check_stream(parser: ResponseParser) -> None:
    kind = parser.headers.get("content-type", "")
    if kind.partition(";")[0].strip().lower() != "text/event-stream":
        raise BadResponse(f"instead of events it sent {kind!r:.60} with status {parser.status}")


class _Texts:
    """The pieces of text of a streamed answer, from the bytes of its body; and its end."""

    def __init__(self, call: Call) -> None:
        self._events = Events(call.kind)
        self._parser = EventParser()
        self._waiting: deque[tuple[str, str]] = deque()
        self.is_over = False

    def feed(self, body: bytes) -> None:
        """The next bytes; b"": that was all."""
        self._waiting.extend(self._parser.feed(body))
        if not body:
            self.is_over = True
            if self._events.answer is None:
                raise BadResponse("the answer ended before its end")

    def next(self) -> str:
        """The next piece; "": feed it first."""
        text = ""
        while self._waiting and not text:
            text = self._events.take(*self._waiting.popleft())
        return text

    @property
    def answer(self) -> Answer:
        if self._events.answer is None:
            raise InvalidError("the answer has not ended: read the stream to its end first")
        return self._events.answer


def _schema_of(prompt: PromptLike) -> Schema | None:
    schema = prompt.schema if isinstance(prompt, Prompt) else None
    return schema if isinstance(schema, Schema) else None


class _Uploads:
    """Which schemas the server got from this client, and how often: a request that fails because the server was restarted uploads
    its schema again, unless another one has done it meanwhile. Guarded by the client."""

    def __init__(self) -> None:
        self.loaded: dict[str, str] = {}  # name to PML
        self._numbers: dict[str, int] = {}  # of the last upload, from 1

    def number(self, schema: Schema) -> int:
        """Of the upload that a request relies on; 0: there was none."""
        return self._numbers[schema.name] if self.loaded.get(schema.name) == schema.pml else 0

    def is_due(self, schema: Schema, seen: int) -> bool:
        """Whether a request that relied on upload `seen`, in vain, has to upload."""
        return self.number(schema) in (0, seen)

    def add(self, schema: Schema) -> None:
        self._numbers[schema.name] = self._numbers.get(schema.name, 0) + 1
        self.loaded[schema.name] = schema.pml


def _health(parser: ResponseParser, body: bytes, address: _Address) -> str:
    text = body.decode("utf-8", "replace").strip()
    if parser.status == 200:
        return text
    if parser.status == 503 and len(text) < 100 and text.isprintable() and not text.startswith("{"):
        ms = error_without_text(503, parser.headers.get("retry-after", ""))
        raise BusyError(f"{address.url} is not ready: {text}", retry_after_ms=ms.retry_after_ms if ms else 0)
    raise _error(address, parser, body)


# ---- threads ------------------------------------------------------------------------------------------------------


class _Reply:
    """A response whose head is read. Its connection goes back to the client at its end, or is closed."""

    def __init__(self, client: Client, connection: socket.socket, parser: ResponseParser, first: bytes) -> None:
        self.parser = parser
        self._client = client
        self._connection: socket.socket | None = connection
        self._first = first

    def read(self) -> bytes:
        """The next bytes of the body. b"": that was all."""
        address = self._client._address
        piece, self._first = self._first, b""
        try:
            while not piece and not self.parser.is_complete:
                connection = self._connection
                if connection is None:
                    raise InvalidError("the stream was closed")
                piece = self.parser.feed(connection.recv(_READ_BYTES))
        except BaseException as e:
            self.abort()
            raise address.of_exchange(e) from None
        if not piece:
            connection, self._connection = self._connection, None
            if connection is not None:
                self._client._give_back(connection, self.parser)
        return piece

    def read_all(self) -> bytes:
        body = bytearray()
        while piece := self.read():
            body += piece
            if len(body) > MAX_BODY_BYTES:
                self.abort()
                raise self._client._address.bad(_too_long())
        return bytes(body)

    def abort(self) -> None:
        """Closes the connection, unless the response is complete. A thread that reads from it wakes up."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()


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
        base_url: str = "http://127.0.0.1:8080",
        api_key: str | None = None,
        timeout: float | None = 600.0,
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._address = _Address(base_url, api_key, timeout, tls)
        self._lock = threading.Lock()  # of all below; never held during I/O
        self._idle: list[socket.socket] = []
        self._uploaded = _Uploads()
        self._upload_locks: dict[str, threading.Lock] = {}  # by schema: held during its upload

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
        connection = socket.create_connection((address.host, address.port), address.timeout)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return address.tls.wrap_socket(connection, server_hostname=address.host) if address.tls else connection
        except BaseException:
            connection.close()
            raise

    def _give_back(self, connection: socket.socket, parser: ResponseParser) -> None:
        with self._lock:
            keep = parser.keeps_alive and len(self._idle) < _MAX_IDLE
            if keep:
                self._idle.append(connection)
        if not keep:
            connection.close()

    def _send(self, call: Call) -> _Reply:
        """Sends a request, and reads the head of its response. A kept connection that the server has closed is replaced."""
        request = self._address.request(call)
        while True:
            with self._lock:
                kept = self._idle.pop() if self._idle else None
            if kept is not None:
                reply = self._try(kept, request, is_kept=True)
                if reply is not None:
                    return reply
                continue
            try:
                connection = self._connect()
            except (OSError, UnicodeError) as e:  # UnicodeError: a host name that is none
                error = e if isinstance(e, OSError) else OSError(str(e))
                raise self._address.unreachable(error) from None
            reply = self._try(connection, request, is_kept=False)
            assert reply is not None
            return reply

    def _try(self, connection: socket.socket, request: bytes, is_kept: bool) -> _Reply | None:
        """None: the connection was a kept one, and gave nothing."""
        parser, body, data = ResponseParser(), b"", b""
        try:
            unsent: OSError | None = None
            try:
                connection.sendall(request)
            except ConnectionError as e:  # the server may have refused it before its end, and say why
                unsent = e
            while not parser.status:
                try:
                    data = connection.recv(_READ_BYTES)
                except ConnectionError as e:
                    raise unsent or e from None
                if not data and (is_kept or unsent):
                    raise unsent or ConnectionResetError()
                is_kept = False
                body = parser.feed(data)
            return _Reply(self, connection, parser, body)
        except BaseException as e:
            connection.close()
            if is_kept and isinstance(e, ConnectionError):
                return None
            raise self._address.of_exchange(e) from None

    def _ask(self, call: Call) -> Any:
        """The JSON of a response; its error as an exception."""
        reply = self._send(call)
        body = reply.read_all()
        if reply.parser.status >= 400:
            raise _error(self._address, reply.parser, body)
        try:
            return loaded(body)
        except BadResponse as e:
            raise self._address.bad(e) from None

    # ---- prompts ----

    def _ensure(self, schema: Schema | None) -> int:
        """Uploads the schema of a prompt, once. The number of the upload."""
        if schema is None:
            return 0
        with self._lock:
            number = self._uploaded.number(schema)
        return number or self._upload(schema, 0)

    def _upload(self, schema: Schema, seen: int) -> int:
        """Uploads a schema, unless another thread did it after upload `seen`."""
        with self._lock:
            lock = self._upload_locks.setdefault(schema.name, threading.Lock())
        with lock:
            with self._lock:
                is_due = self._uploaded.is_due(schema, seen)
            if is_due:
                try:
                    self.load(schema)
                except AccessError:
                    if seen:
                        raise
                    with self._lock:
                        self._uploaded.add(schema)  # without the right to upload: the operator may have
            with self._lock:
                return self._uploaded.number(schema)

    def run(self, prompt: PromptLike, **options: Unpack[ClientOptions]) -> Answer:
        """Answers a prompt. A server that was restarted gets the prompt's schema again.

        Errors by class, as an Engine's; FileError: no connection; AccessError: the key; BusyError: retry after retry_after_ms.
        """
        schema, call = _schema_of(prompt), call_of(prompt, options, False)
        seen = self._ensure(schema)
        try:
            reply = self._ask(call)
        except Error as e:
            if schema is None or not lacks_schema(e, schema):
                raise
            self._upload(schema, seen)
            reply = self._ask(call)
        try:
            return answer_of(call.kind, reply)
        except BadResponse as e:
            raise self._address.bad(e) from None

    def stream(self, prompt: PromptLike, **options: Unpack[ClientOptions]) -> ClientStream:
        """Answers a prompt: an iterator of pieces of text. Closing it early ends the request.

        with client.stream(prompt, max_tokens=64) as stream:
            for piece in stream:
                print(piece, end="", flush=True)
        print(stream.result.usage)
        """
        schema, call = _schema_of(prompt), call_of(prompt, options, True)
        seen = self._ensure(schema)
        try:
            return ClientStream(self, call)
        except Error as e:
            if schema is None or not lacks_schema(e, schema):
                raise
            self._upload(schema, seen)
            return ClientStream(self, call)

    # ---- schemas, models, health ----

    def load(self, schema: Schema, *, prefill: bool = False) -> None:
        """Uploads a schema, in place of one of the same name. Prompts over a Schema do it by themselves.

        prefill: returns when its modules are prefilled; otherwise the first prompt that imports a module prefills it.
        """
        try:
            self._ask(upload_of(schema, prefill))
        except Error as e:
            raise named_for(e, schema) from None
        with self._lock:
            self._uploaded.add(schema)
            is_old = schema.replaces in self._uploaded.loaded
        if is_old:
            with contextlib.suppress(Error):
                self.unload(schema.replaces)

    def unload(self, schema: Schema | str) -> None:
        """Removes a schema from the server. UnknownNameError."""
        name = schema.name if isinstance(schema, Schema) else schema
        with self._lock:
            self._uploaded.loaded.pop(name, None)
        self._ask(Call("DELETE", f"/v1/schemas/{quote(name, safe='')}"))

    def _names(self, path: str, key: str | None = None) -> tuple[str, ...]:
        try:
            return names_of(self._ask(Call("GET", path)), key)
        except BadResponse as e:
            raise self._address.bad(e) from None

    def schemas(self) -> tuple[str, ...]:
        """The names of the schemas that the server has for this client."""
        return self._names("/v1/schemas")

    def models(self) -> tuple[str, ...]:
        """The names of the server's models."""
        return self._names("/v1/models", "id")

    def health(self) -> str:
        """ "ready", and in a second line the state of a store that cannot be used. BusyError: it loads the model, or ends."""
        reply = self._send(Call("GET", "/readyz"))
        return _health(reply.parser, reply.read_all(), self._address)


class ClientStream:
    """An answer as it arrives: an iterator of pieces of text, and a context manager. Closing it early ends the request.

    Threads: one at a time reads; any may close it.
    """

    def __init__(self, client: Client, call: Call) -> None:
        self._client = client
        self._texts = _Texts(call)
        self._is_closed = False
        self._reply = client._send(call)
        try:
            if self._reply.parser.status >= 400:
                raise _error(client._address, self._reply.parser, self._reply.read_all())
            _check_stream(self._reply.parser)
        except BadResponse as e:
            self._reply.abort()
            raise client._address.bad(e) from None

    def __iter__(self) -> ClientStream:
        return self

    def __next__(self) -> str:
        while not self._texts.is_over:
            try:
                if text := self._texts.next():
                    return text
                self._texts.feed(self._reply.read())
            except BaseException as e:
                if self._is_closed and isinstance(e, Exception):
                    break  # by another thread
                self._texts.is_over = True
                self._reply.abort()
                raise self._client._address.of_exchange(e) from None
        raise StopIteration

    @property
    def result(self) -> Answer:
        """The answer, after its last piece. InvalidError: it has not ended."""
        return self._texts.answer

    def close(self) -> None:
        """Ends the request, if its answer has not ended."""
        self._texts.is_over = self._is_closed = True
        self._reply.abort()

    def __enter__(self) -> ClientStream:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_reply"):
            self.close()


# ---- asyncio ------------------------------------------------------------------------------------------------------


class _AsyncReply:
    """_Reply for asyncio."""

    def __init__(
        self,
        client: AsyncClient,
        connection: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        parser: ResponseParser,
        first: bytes,
    ) -> None:
        self.parser = parser
        self._client = client
        self._connection: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = connection
        self._first = first

    async def read(self) -> bytes:
        address = self._client._address
        piece, self._first = self._first, b""
        try:
            while not piece and not self.parser.is_complete:
                if self._connection is None:
                    raise InvalidError("the stream was closed")
                async with asyncio.timeout(address.timeout):
                    data = await self._connection[0].read(_READ_BYTES)
                piece = self.parser.feed(data)
        except BaseException as e:
            self.abort()
            raise address.of_exchange(e) from None
        if not piece:
            connection, self._connection = self._connection, None
            if connection is not None:
                self._client._give_back(connection, self.parser)
        return piece

    async def read_all(self) -> bytes:
        body = bytearray()
        while piece := await self.read():
            body += piece
            if len(body) > MAX_BODY_BYTES:
                self.abort()
                raise self._client._address.bad(_too_long())
        return bytes(body)

    def abort(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(RuntimeError):  # the event loop has ended, and its connections with it
                connection[1].transport.abort()


class AsyncClient:
    """Client for asyncio, without threads: `await client.run(...)`, `async for piece in client.stream(...)`.

    Any number of tasks of one event loop at a time.
    """

    def __init__(
        self,
        base_url: str = "http://127.0.0.1:8080",
        api_key: str | None = None,
        timeout: float | None = 600.0,
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._address = _Address(base_url, api_key, timeout, tls)
        self._uploaded = _Uploads()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._upload_locks: dict[str, asyncio.Lock] = {}

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()

    def close(self) -> None:
        """Closes the connections that are kept, when the event loop runs next. The client can be used again."""
        idle, self._idle = self._idle, []
        for _, writer in idle:
            with contextlib.suppress(RuntimeError):
                writer.transport.abort()

    async def aclose(self) -> None:
        """Closes the connections that are kept. The client can be used again."""
        self._check_loop()
        idle, self._idle = self._idle, []
        for _, writer in idle:
            writer.transport.abort()
        for _, writer in idle:
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    # ---- transport ----

    def _check_loop(self) -> None:
        """Connections and locks of an event loop that has ended are of no use in the next one."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self.close()
            self._upload_locks = {}
            self._loop = loop

    def _give_back(self, connection: tuple[asyncio.StreamReader, asyncio.StreamWriter], parser: ResponseParser) -> None:
        if parser.keeps_alive and len(self._idle) < _MAX_IDLE:
            self._idle.append(connection)
        else:
            connection[1].transport.abort()

    async def _send(self, call: Call) -> _AsyncReply:
        address = self._address
        request = address.request(call)
        self._check_loop()
        while self._idle:
            reply = await self._try(self._idle.pop(), request, is_kept=True)
            if reply is not None:
                return reply
        try:
            async with asyncio.timeout(address.timeout):
                connection = await asyncio.open_connection(address.host, address.port, ssl=address.tls)
        except (OSError, UnicodeError) as e:
            raise address.unreachable(e if isinstance(e, OSError) else OSError(str(e))) from None
        reply = await self._try(connection, request, is_kept=False)
        assert reply is not None
        return reply

    async def _try(
        self, connection: tuple[asyncio.StreamReader, asyncio.StreamWriter], request: bytes, is_kept: bool
    ) -> _AsyncReply | None:
        reader, writer = connection
        parser, body = ResponseParser(), b""
        try:
            async with asyncio.timeout(self._address.timeout):
                writer.write(request)
                await writer.drain()
            while not parser.status:
                async with asyncio.timeout(self._address.timeout):
                    data = await reader.read(_READ_BYTES)
                if not data and is_kept:
                    raise ConnectionResetError
                is_kept = False
                body = parser.feed(data)
            return _AsyncReply(self, connection, parser, body)
        except BaseException as e:
            writer.transport.abort()
            if is_kept and isinstance(e, ConnectionError):
                return None
            raise self._address.of_exchange(e) from None

    async def _ask(self, call: Call) -> Any:
        reply = await self._send(call)
        body = await reply.read_all()
        if reply.parser.status >= 400:
            raise _error(self._address, reply.parser, body)
        try:
            return loaded(body)
        except BadResponse as e:
            raise self._address.bad(e) from None

    # ---- prompts ----

    async def _ensure(self, schema: Schema | None) -> int:
        if schema is None:
            return 0
        return self._uploaded.number(schema) or await self._upload(schema, 0)

    async def _upload(self, schema: Schema, seen: int) -> int:
        self._check_loop()
        async with self._upload_locks.setdefault(schema.name, asyncio.Lock()):
            if self._uploaded.is_due(schema, seen):
                try:
                    await self.load(schema)
                except AccessError:
                    if seen:
                        raise
                    self._uploaded.add(schema)  # without the right to upload: the operator may have
            return self._uploaded.number(schema)

    async def run(self, prompt: PromptLike, **options: Unpack[ClientOptions]) -> Answer:
        """Client.run for asyncio. Cancelling the task ends the request."""
        schema, call = _schema_of(prompt), call_of(prompt, options, False)
        seen = await self._ensure(schema)
        try:
            reply = await self._ask(call)
        except Error as e:
            if schema is None or not lacks_schema(e, schema):
                raise
            await self._upload(schema, seen)
            reply = await self._ask(call)
        try:
            return answer_of(call.kind, reply)
        except BadResponse as e:
            raise self._address.bad(e) from None

    def stream(self, prompt: PromptLike, **options: Unpack[ClientOptions]) -> AsyncClientStream:
        """Client.stream for asyncio. The request is sent when the first piece is read.

        async with client.stream(prompt, max_tokens=64) as stream:
            async for piece in stream:
                print(piece, end="", flush=True)
        """
        return AsyncClientStream(self, prompt, call_of(prompt, options, True))

    # ---- schemas, models, health ----

    async def load(self, schema: Schema, *, prefill: bool = False) -> None:
        """Client.load for asyncio."""
        try:
            await self._ask(upload_of(schema, prefill))
        except Error as e:
            raise named_for(e, schema) from None
        self._uploaded.add(schema)
        if schema.replaces in self._uploaded.loaded:
            with contextlib.suppress(Error):
                await self.unload(schema.replaces)

    async def unload(self, schema: Schema | str) -> None:
        """Removes a schema from the server. UnknownNameError."""
        name = schema.name if isinstance(schema, Schema) else schema
        self._uploaded.loaded.pop(name, None)
        await self._ask(Call("DELETE", f"/v1/schemas/{quote(name, safe='')}"))

    async def _names(self, path: str, key: str | None = None) -> tuple[str, ...]:
        try:
            return names_of(await self._ask(Call("GET", path)), key)
        except BadResponse as e:
            raise self._address.bad(e) from None

    async def schemas(self) -> tuple[str, ...]:
        """The names of the schemas that the server has for this client."""
        return await self._names("/v1/schemas")

    async def models(self) -> tuple[str, ...]:
        """The names of the server's models."""
        return await self._names("/v1/models", "id")

    async def health(self) -> str:
        """Client.health for asyncio."""
        reply = await self._send(Call("GET", "/readyz"))
        return _health(reply.parser, await reply.read_all(), self._address)


class AsyncClientStream:
    """An answer as it arrives, for `async for`. Cancelling the task that reads it, or aclose(), ends the request."""

    def __init__(self, client: AsyncClient, prompt: PromptLike, call: Call) -> None:
        self._client = client
        self._schema, self._call = _schema_of(prompt), call
        self._texts = _Texts(call)
        self._is_closed = False
        self._reply: _AsyncReply | None = None

    async def _begin(self) -> _AsyncReply:
        client, schema = self._client, self._schema
        seen = await client._ensure(schema)
        try:
            return await self._open()
        except Error as e:
            if schema is None or not lacks_schema(e, schema):
                raise
            await client._upload(schema, seen)
            return await self._open()

    async def _open(self) -> _AsyncReply:
        reply = await self._client._send(self._call)
        try:
            if reply.parser.status >= 400:
                raise _error(self._client._address, reply.parser, await reply.read_all())
            _check_stream(reply.parser)
        except BaseException:
            reply.abort()
            raise
        return reply

    def __aiter__(self) -> AsyncClientStream:
        return self

    async def __anext__(self) -> str:
        while not self._texts.is_over:
            try:
                if text := self._texts.next():
                    return text
                if self._reply is None:
                    self._reply = await self._begin()
                self._texts.feed(await self._reply.read())
            except BaseException as e:
                if self._is_closed and isinstance(e, Exception):
                    break  # by another task
                self.close()
                raise self._client._address.of_exchange(e) from None
        raise StopAsyncIteration

    @property
    def result(self) -> Answer:
        """The answer, after its last piece. InvalidError: it has not ended."""
        return self._texts.answer

    def close(self) -> None:
        """Ends the request, if its answer has not ended."""
        self._texts.is_over = self._is_closed = True
        if self._reply is not None:
            self._reply.abort()

    async def aclose(self) -> None:
        """Ends the request, if its answer has not ended."""
        self.close()

    async def __aenter__(self) -> AsyncClientStream:
        return self

    async def __aexit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_reply"):
            self.close()
