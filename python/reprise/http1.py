# SPDX-License-Identifier: Apache-2.0
"""HTTP/1.1 responses and server-sent events from bytes, for both clients: no sockets here, and a bound on everything that a server may send.

Strict, as the server is with requests: what RFC 9112 does not allow is refused, because two readers may understand it differently.
"""

from __future__ import annotations

import re

MAX_HEAD_BYTES = 64 << 10  # of a head with the interim ones (1xx) before it, and of trailers
MAX_LINE_BYTES = 256  # of a chunk's size
MAX_BODY_BYTES = 64 << 20  # of a whole answer, of an event, and of a stream's text

_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: [^\x00-\x08\x0a-\x1f\x7f]*)?")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)")
_LENGTH = re.compile(r"[0-9]{1,18}")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?")
_FIELDS = ("event", "data", "id", "retry", "")  # "": comments


class BadResponse(Exception):
    """What came is no HTTP response of a server, or exceeds a bound."""

    def __init__(self, reason: str) -> None:
        super().__init__(" ".join(reason.split()))


class ResponseParser:
    """One response. feed() returns the bytes of its body so far; b"" is the end of the connection."""

    def __init__(self) -> None:
        self.status = 0  # until the head is complete
        self.headers: dict[str, str] = {}
        self.is_complete = False
        self._data = bytearray()
        self._searched = 0  # no line or head ends before it
        self._head_bytes = 0
        self._left: int | None = None  # bytes of the body, or of its chunk; None: up to the end of the connection
        self._is_chunked = False
        self._state = "size"  # of chunks: "size", "data", "end" (of the data), "trailer"
        self._is_persistent = False

    @property
    def keeps_alive(self) -> bool:
        """Whether the connection can be used again."""
        return self.is_complete and self._is_persistent and not self._data and self._left is not None

    def feed(self, data: bytes) -> bytes:
        self._data += data
        if not self.status and not self._read_head():
            if not data:
                raise BadResponse(
                    "the response ended in its head" if self._data else "the connection ended without a response"
                )
            return b""
        body = self._read_chunks() if self._is_chunked else self._read_plain()
        if not data and not self.is_complete:
            if self._left is not None:
                raise BadResponse("the response ended before its end")
            self.is_complete = True
        return body

    # ---- head ----

    def _read_head(self) -> bool:
        while not self.status:
            if not b"HTTP/1.".startswith(self._data[:7]):
                raise BadResponse(f"it is no HTTP response: {bytes(self._data[:40])!r}")
            end = self._data.find(b"\r\n\r\n", max(self._searched - 3, 0))
            self._searched = len(self._data)
            if self._head_bytes + (len(self._data) if end < 0 else end) > MAX_HEAD_BYTES:
                raise BadResponse(f"its head has more than {MAX_HEAD_BYTES} bytes")
            if end < 0:
                return False
            lines = bytes(self._data[:end]).split(b"\r\n")
            del self._data[: end + 4]
            self._searched = 0
            self._head_bytes += end + 4
            self._take_head(lines)
        return True

    def _take_head(self, lines: list[bytes]) -> None:
        first = _STATUS.fullmatch(lines[0])
        if first is None:
            raise BadResponse(f"it is no HTTP response: {lines[0][:40]!r}")
        headers: dict[str, str] = {}
        for line in lines[1:]:
            header = _HEADER.fullmatch(line)
            if header is None:
                raise BadResponse(f"a malformed header: {line[:60]!r}")
            name, value = header[1].decode("ascii").lower(), header[2].decode("latin-1").strip(" \t")
            if name in headers and name in ("content-length", "transfer-encoding"):
                raise BadResponse(f"two headers {name}")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        status = int(first[2])
        if status == 101:
            raise BadResponse("it changes the protocol")
        if status >= 200:  # else an interim response: another one follows
            self._take_final(status, headers, first[1] == b"1")

    def _take_final(self, status: int, headers: dict[str, str], is_1_1: bool) -> None:
        connection = {token.strip().lower() for token in headers.get("connection", "").split(",")}
        self._is_persistent = "close" not in connection and (is_1_1 or "keep-alive" in connection)
        coding, length = headers.get("transfer-encoding"), headers.get("content-length")
        if coding is not None and (coding.lower() != "chunked" or length is not None):
            raise BadResponse(f"Transfer-Encoding {coding!r:.40}{' with Content-Length' if length else ''}")
        if length is not None and not _LENGTH.fullmatch(length):
            raise BadResponse(f"Content-Length {length!r:.40}")
        self._is_chunked = coding is not None
        if status in (204, 304) or self._is_chunked:
            self._left = 0
        elif length is not None:
            self._left = int(length)
        self.status, self.headers = status, headers

    # ---- body ----

    def _take(self, n: int) -> bytes:
        taken = bytes(self._data[:n])
        del self._data[:n]
        return taken

    def _read_plain(self) -> bytes:
        body = self._take(len(self._data) if self._left is None else self._left)
        if self._left is not None:
            self._left -= len(body)
            self.is_complete = self._left == 0
        return body

    def _read_chunks(self) -> bytes:
        """Sizes and their data. Bytes of `_data` before `at` are used up: they are removed once, at the end."""
        body, at, data = [], 0, self._data
        while not self.is_complete:
            if self._state == "data":
                assert self._left is not None
                piece = bytes(data[at : at + self._left])
                if not piece:
                    break
                body.append(piece)
                at += len(piece)
                self._left -= len(piece)
                if self._left == 0:
                    self._state = "end"
                continue
            end = data.find(b"\n", at)
            if (len(data) if end < 0 else end) - at > (MAX_HEAD_BYTES if self._state == "trailer" else MAX_LINE_BYTES):
                raise BadResponse("a line between chunks is too long")
            if end < 0:
                break
            line = bytes(data[at : end + 1])
            at = end + 1
            if not line.endswith(b"\r\n"):
                raise BadResponse(f"a malformed line between chunks: {line[:40]!r}")
            self._take_line(line[:-2])
        del data[:at]
        return b"".join(body)

    def _take_line(self, line: bytes) -> None:
        if self._state == "end":
            if line:
                raise BadResponse(f"a chunk is longer than its size: {line[:40]!r}")
            self._state = "size"
        elif self._state == "size":
            size = _CHUNK.fullmatch(line)
            if size is None:
                raise BadResponse(f"the size of a chunk is {line[:40]!r}")
            self._left = int(size[1], 16)
            self._state = "data" if self._left else "trailer"
            self._head_bytes = 0
        else:
            self._head_bytes += len(line) + 2
            if self._head_bytes > MAX_HEAD_BYTES:
                raise BadResponse(f"its trailer has more than {MAX_HEAD_BYTES} bytes")
            if line and not _HEADER.fullmatch(line):
                raise BadResponse(f"a malformed trailer: {line[:60]!r}")
            self.is_complete = not line


class EventParser:
    """Server-sent events: (event, data) of each that is complete."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._searched = 0
        self._name = "message"
        self._lines: list[str] = []
        self._bytes = 0  # of the event so far

    @property
    def is_between_events(self) -> bool:
        return not self._data and not self._lines

    def feed(self, data: bytes) -> list[tuple[str, str]]:
        self._data += data
        events: list[tuple[str, str]] = []
        at = 0
        while (end := self._data.find(b"\n", max(at, self._searched))) >= 0:
            line = bytes(self._data[at:end])
            at = end + 1
            self._take(line[:-1] if line.endswith(b"\r") else line, events)
        del self._data[:at]
        self._searched = len(self._data)
        self._check(len(self._data))
        return events

    def _check(self, more: int) -> None:
        if self._bytes + more > MAX_BODY_BYTES:
            raise BadResponse(f"an event has more than {MAX_BODY_BYTES} bytes")

    def _take(self, line: bytes, events: list[tuple[str, str]]) -> None:
        if not line:
            if self._lines:
                events.append((self._name, "\n".join(self._lines)))
            self._name, self._lines, self._bytes = "message", [], 0
            return
        self._bytes += len(line) + 1
        self._check(0)
        try:
            field, _, value = line.decode().partition(":")
        except UnicodeDecodeError:
            raise BadResponse("an event is not UTF-8") from None
        if field not in _FIELDS:
            raise BadResponse(f"it is no event stream: {line[:40]!r}")
        value = value.removeprefix(" ")
        if field == "event":
            self._name = value
        elif field == "data":
            self._lines.append(value)
