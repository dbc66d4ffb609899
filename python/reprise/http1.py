# SPDX-License-Identifier: Apache-2.0
"""HTTP/1.1 responses and server-sent events from bytes, for both clients: no sockets here, and a bound on everything that a server may send."""

from __future__ import annotations

import re

MAX_HEAD_BYTES = 64 << 10
MAX_LINE_BYTES = 256  # of a chunk's size
MAX_BODY_BYTES = 64 << 20  # of a whole answer, and of an event
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})(?: [^\r\n]*)?\r?\n")

_END = re.compile(rb"\r?\n\r?\n")


class BadResponse(Exception):
    """What came is no HTTP response of a server, or exceeds a bound."""


class ResponseParser:
    """One response. feed() returns the bytes of its body so far; b"" at the end of the connection."""

    def __init__(self) -> None:
        self.status = 0  # until the head is complete
        self.headers: dict[str, str] = {}
        self.is_complete = False
        self._data = bytearray()
        self._left: int | None = None  # bytes of the body, or of its chunk; None: up to the end of the connection
        self._is_chunked = False
        self._in_trailer = False

    @property
    def keeps_alive(self) -> bool:
        """Whether the connection can be used again."""
        return (
            self.is_complete
            and not self._data
            and self._left is not None
            and self.headers.get("connection", "").lower() != "close"
        )

    def feed(self, data: bytes) -> bytes:
        self._data += data
        if not self.status and not self._read_head():
            if not data:
                raise BadResponse(
                    "the connection ended before a response" if not self._data else "the response ended in its head"
                )
            return b""
        body = self._read_chunks() if self._is_chunked else self._read_plain()
        if not data and not self.is_complete:
            if self._left is not None:
                raise BadResponse("the response ended before its end")
            self.is_complete = True
        return body

    def _read_head(self) -> bool:
        end = _END.search(self._data)
        if end is None or end.start() > MAX_HEAD_BYTES:
            if len(self._data) > MAX_HEAD_BYTES:
                raise BadResponse(f"its head has more than {MAX_HEAD_BYTES} bytes")
            if len(self._data) >= 5 and not self._data.startswith(b"HTTP/"):
                raise BadResponse("it is no HTTP response")
            return False
        first = _STATUS.match(self._data)
        if first is None:
            raise BadResponse("it is no HTTP response")
        for line in self._data[first.end() : end.start()].decode("latin-1").splitlines():
            name, colon, value = line.partition(":")
            if not colon:
                raise BadResponse(f"a header without a colon: {line!r:.60}")
            self.headers[name.strip().lower()] = value.strip()
        self.status = int(first[1])
        del self._data[: end.end()]
        self._is_chunked = self.headers.get("transfer-encoding", "").lower() == "chunked"
        length = self.headers.get("content-length")
        if self._is_chunked:
            self._left = 0
        elif self.status in (204, 304):
            self._left = 0
        elif length is not None:
            if not length.isascii() or not length.isdigit():
                raise BadResponse(f"Content-Length: {length!r:.40}")
            self._left = int(length)
        return True

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
        body = []
        while not self.is_complete:
            if self._left:
                piece = self._take(self._left)
                if not piece:
                    break
                body.append(piece)
                self._left -= len(piece)
                continue
            line, found, _ = self._data.partition(b"\n")
            if not found:
                if len(self._data) > MAX_LINE_BYTES:
                    raise BadResponse("a chunk's size is too long")
                break
            del self._data[: len(line) + 1]
            line = line.strip()
            if self._in_trailer:
                self.is_complete = not line
            elif line:
                try:
                    self._left = int(line.split(b";")[0], 16)
                except ValueError:
                    raise BadResponse(f"a chunk of {bytes(line)!r:.40} bytes") from None
                if self._left < 0:
                    raise BadResponse("a chunk of a negative size")
                self._in_trailer = self._left == 0
        return b"".join(body)


class EventParser:
    """Server-sent events: (event, data) of each that is complete."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> list[tuple[str, str]]:
        searched = max(len(self._data) - 3, 0)  # an end may have begun there
        self._data += data
        events = []
        while (end := _END.search(self._data, searched)) is not None:
            searched = 0
            block = self._data[: end.start()].decode("utf-8", "replace")
            del self._data[: end.end()]
            name, lines = "message", []
            for line in re.split(r"\r?\n", block):
                field, _, value = line.partition(":")
                value = value.removeprefix(" ")
                if field == "event":
                    name = value
                elif field == "data":
                    lines.append(value)
            if lines:
                events.append((name, "\n".join(lines)))
        if len(self._data) > MAX_BODY_BYTES:
            raise BadResponse(f"an event has more than {MAX_BODY_BYTES} bytes")
        return events
