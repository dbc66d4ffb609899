# SPDX-License-Identifier: Apache-2.0
"""Where a server is, and connections to it: http.client's, for threads. Those for asyncio are async_connection.py's.

Both have the same coroutines, so that client.py is written once; a BlockingConnection's block, and never wait.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import NamedTuple, Protocol
from urllib.parse import quote, urlsplit

from . import _abi
from .answers import BadResponse, Call
from .errors import Error, FileError, FormatError, InvalidError

_READ_BYTES = 64 << 10
_URL_CHARACTERS = "!#$%&'()*+,/:;=?@[]~"  # beside letters, digits, -._


class Address:
    """Where a server is, the headers of requests to it, and the errors of not reaching it."""

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
        self.origin = f"{url.scheme}://{url.netloc}"
        self.host, self.path = url.hostname, url.path.rstrip("/").removesuffix("/v1")
        self.port = port or (443 if url.scheme == "https" else 80)
        self.tls = (tls or ssl.create_default_context()) if url.scheme == "https" else None
        self._headers = {"User-Agent": f"reprise-python/{_abi.VERSION}"}
        if api_key is not None:
            if not api_key or not api_key.isascii() or not api_key.isprintable() or " " in api_key:
                raise InvalidError("api_key: it is empty, or has characters that a header cannot have")
            self._headers["Authorization"] = f"Bearer {api_key}"

    def headers(self, call: Call) -> dict[str, str]:
        return self._headers | ({"Content-Type": call.content_type} if call.body else {})

    def unreachable(self, e: Exception) -> FileError:
        if isinstance(e, TimeoutError):
            reason = f"no connection within {self.timeout:g} s" if self.timeout else "no connection in time"
        else:
            reason = _reason(e)
        return FileError(f"{self.url}: {reason}: start `reprise serve`, or give the server's base_url", where=self.url)

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """The exceptions of a connection as Errors."""
        try:
            yield
        except Error:
            raise
        except BadResponse as e:
            raise FormatError(
                f"{self.url} is no Reprise server, or its connection broke: {e}", where=self.url
            ) from None
        except TimeoutError:
            reason = f"no byte for {self.timeout:g} s" if self.timeout else "no byte in time"
            raise FileError(f"{self.url}: {reason}: give a longer timeout, or ask for less", where=self.url) from None
        except OSError as e:
            raise FileError(
                f"{self.url}: the connection broke: {_reason(e)}: send the request again", where=self.url
            ) from None


def _reason(e: Exception) -> str:
    if isinstance(e, OSError) and e.errno and e.errno > 0 and not isinstance(e, ssl.SSLError):
        return os.strerror(e.errno)
    return " ".join((getattr(e, "strerror", None) or str(e) or type(e).__name__).split())


class Head(NamedTuple):
    """What a client uses of a response's head."""

    status: int
    content_type: str
    retry_after: str


class Connection(Protocol):
    """One connection, for one request at a time. Raises OSError and BadResponse, and FileError if it cannot be made."""

    async def send(self, call: Call) -> Head:
        """Sends a request, and reads the head of its response."""

    async def read(self) -> bytes:
        """The next bytes of the response's body. b"": that was all."""

    def is_open(self) -> bool:
        """After a response: whether the connection can be used again."""

    def abort(self) -> None:
        """Closes it. Whoever reads from it wakes up."""

    async def aclose(self) -> None:
        """The same, and waits until it is closed."""


class BlockingConnection:
    """http.client's. Threads: one at a time uses it, any may abort it."""

    def __init__(self, address: Address) -> None:
        host, port, timeout = address.host, address.port, address.timeout
        self._address = address
        self._http = (
            HTTPSConnection(host, port, timeout=timeout, context=address.tls)
            if address.tls
            else HTTPConnection(host, port, timeout=timeout)
        )
        self._socket: socket.socket | None = None  # also when http.client has handed it to the response
        self._response: HTTPResponse | None = None

    async def send(self, call: Call) -> Head:
        address, http = self._address, self._http
        if http.sock is None:
            try:
                http.connect()
            except (OSError, UnicodeError) as e:  # UnicodeError: a host name that is none
                raise address.unreachable(e) from None
            self._socket = http.sock
        unsent: ConnectionError | None = None
        try:
            http.request(call.method, address.path + call.path, call.body, address.headers(call))
        except ConnectionError as e:  # the server may have refused it before its end, and say why
            unsent = e
        with _bad_responses():
            try:
                response = self._response = http.getresponse()
            except ConnectionError as e:
                raise unsent or e from None
        get = response.headers.get
        return Head(response.status, get("content-type", ""), get("retry-after", ""))

    async def read(self) -> bytes:
        assert self._response is not None
        with _bad_responses():
            piece = self._response.read1(_READ_BYTES)
        if not piece:
            if self._response.length:
                raise BadResponse("the response ended before its end")
            self._response.close()
        return piece

    def is_open(self) -> bool:
        return self._http.sock is not None

    def abort(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        self._http.close()
        if self._response is not None:
            self._response.close()

    async def aclose(self) -> None:
        self.abort()


@contextlib.contextmanager
def _bad_responses() -> Iterator[None]:
    try:
        yield
    except HTTPException as e:
        raise BadResponse(repr(e)) from None
