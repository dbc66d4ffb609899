# SPDX-License-Identifier: Apache-2.0
"""Connections for asyncio: httpx's. Importing this module needs httpx.

Each is a transport of httpx with one connection. A pool of httpx does not say which connections are idle, nor whether
the connection that gave no answer was a kept one; a client of httpx takes cookies, and proxies from the environment.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx

from .answers import BadResponse, Call
from .connection import Address, Head

_ONE = httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=None)
_closing: set[asyncio.Task[None]] = set()  # an event loop has only weak references to its tasks


class AsyncConnection:
    """httpx's, for tasks of one event loop."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._loop = asyncio.get_running_loop()
        self._http = httpx.AsyncHTTPTransport(verify=address.tls or False, trust_env=False, limits=_ONE)
        self._is_aborted = False
        self._sending: asyncio.Task[httpx.Response] | None = None
        self._socket: socket.socket | None = None
        self._pieces: AsyncIterator[bytes]

    async def send(self, call: Call) -> Head:
        address = self._address
        with self._errors():
            try:
                request = httpx.Request(
                    call.method,
                    address.origin + address.path + call.path,
                    headers=address.headers(call),
                    content=call.body,
                    extensions={"timeout": httpx.Timeout(address.timeout).as_dict(), "trace": self._trace},
                )
                # In a task of its own: anyio before 4, which connects, leaves cancellations in its task that
                # asyncio.timeout takes for others', and may swallow one (_trace).
                self._sending = self._loop.create_task(self._http.handle_async_request(request))
                response = await asyncio.shield(self._sending)
            except (httpx.InvalidURL, ssl.SSLError, UnicodeError) as e:
                raise address.unreachable(e) from None
        self._pieces = response.aiter_raw()
        get = response.headers.get
        return Head(response.status_code, get("content-type", ""), get("retry-after", ""))

    async def _trace(self, event: str, info: dict[str, Any]) -> None:
        if event == "connection.connect_tcp.complete":
            self._socket = info["return_value"].get_extra_info("socket")
            if self._is_aborted:  # meanwhile
                self._shut_down()

    def _shut_down(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    async def read(self) -> bytes:
        with self._errors():
            return await anext(self._pieces, b"")

    def is_open(self) -> bool:
        return True  # a transport replaces a connection that has ended

    def abort(self) -> None:
        """The server notices at once; the rest happens when the event loop runs next."""
        self._is_aborted = True
        self._shut_down()
        with contextlib.suppress(RuntimeError):  # the event loop has ended, and its connections with it
            self._loop.call_soon_threadsafe(self._close_soon)

    def _close_soon(self) -> None:
        task = self._loop.create_task(self.aclose())
        _closing.add(task)
        task.add_done_callback(_closing.discard)

    async def aclose(self) -> None:
        if self._sending is not None and not self._sending.done():
            self._sending.cancel()
            await asyncio.wait([self._sending])
        with contextlib.suppress(OSError, httpx.HTTPError):
            await self._http.aclose()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        task = asyncio.current_task()
        assert task is not None
        n = task.cancelling()
        try:
            yield
        except (httpx.TimeoutException, httpx.NetworkError) as e:
            while task.cancelling() > n:  # by a timeout of anyio before 4
                task.uncancel()
            if isinstance(e, (httpx.ConnectError, httpx.ConnectTimeout)):
                raise self._address.unreachable(_system_error(e)) from None
            raise _system_error(e) from None
        except httpx.HTTPError as e:
            raise BadResponse(repr(e)) from None


def _system_error(e: Exception) -> OSError:
    """The system's error that was the cause: what httpx says of it has no reason."""
    cause: BaseException | None = e
    while cause is not None:
        if isinstance(cause, TimeoutError) or isinstance(cause, OSError) and cause.errno:
            return cause
        several = getattr(cause, "exceptions", (None,))  # one for each address of a host
        cause = cause.__cause__ or cause.__context__ or several[0]
    return ConnectionResetError(str(e))
