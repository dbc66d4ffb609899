# SPDX-License-Identifier: Apache-2.0
"""Submitted requests: jobs, and their answers as text that arrives, for threads and for asyncio.

Python never runs on the engine's thread: the engine appends text to an rp_stream, and readers take it from there. A thread has a stream of its own
for each answer; an event loop has one for all of its answers, whose file descriptor it watches.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import ctypes
import math
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from . import _abi
from ._library import call, lib, reported
from .errors import CancelledError, Error, InvalidError
from .handle import Handle, finalize
from .requests import StepCallbacks
from .result import OwnedResult, Result

_SLICE_MS = 100  # a waiting thread looks for signals so often


@dataclass(frozen=True, slots=True)
class JobStatus:
    """reprise.h, rp_job_status. state: "waiting", "prefill", "decode" or "done"."""

    state: str
    queue_position: int
    prompt_tokens: int
    cached_tokens: int
    computed_tokens: int
    answer_tokens: int


_STATES = ("waiting", "prefill", "decode", "done")


class Job:
    """A submitted request. Closing it cancels it, if it has not ended. It holds its engine until then. Threads: any number.

    engine  the Engine, which closes when nothing holds it: `Engine(M).submit(...).result()`; None: closed
    """

    def __init__(self, engine: object, steps: StepCallbacks | None = None) -> None:
        self.engine: object | None = engine
        self.handle = Handle("job", kept=steps)  # filled in by submission
        self.owner: set[Handle] = set()  # the engine's jobs
        self._steps = steps

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_steps") and not self.handle.is_freed:
            finalize(self._close_at_last)

    def _close_at_last(self) -> None:
        try:
            self.close()
        finally:
            self.close()  # if it was interrupted: no other object holds the job

    def close(self) -> None:
        """Cancels the job, if it has not ended, waits for its end, and frees it. Again: nothing."""
        free_job(self.handle)
        self.owner.discard(self.handle)
        self.engine = None

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits for the end. Returns whether it has come."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        with self.handle as pointer:
            while True:
                left = _SLICE_MS if end is None else math.ceil((end - time.monotonic()) * 1000)
                if lib.rp_job_wait(pointer, max(min(left, _SLICE_MS), 0)):
                    return True
                if left <= 0 or self.handle.is_closed:
                    return False

    def cancel(self) -> None:
        """Ends the job before its next step; returns at once."""
        with self.handle as pointer:
            lib.rp_job_cancel(pointer)

    def pause(self) -> None:
        """Pauses generation until resume()."""
        with self.handle as pointer:
            lib.rp_job_pause(pointer)

    def resume(self) -> None:
        with self.handle as pointer:
            lib.rp_job_resume(pointer)

    @property
    def status(self) -> JobStatus:
        with self.handle as pointer:
            c = reported(_abi.rp_job_status, lib.rp_job_get_status, pointer)
        return JobStatus(
            _STATES[c.state], c.queue_position, c.prompt_tokens, c.cached_tokens, c.computed_tokens, c.answer_tokens
        )

    def finish(self) -> OwnedResult:
        """Waits for the end, and takes what the job gives: nothing, of a prefill. The job's error."""
        if not self.wait():
            raise CancelledError("the job was closed by another thread")
        owned = OwnedResult()
        try:
            with self.handle as pointer:
                call(lib.rp_job_result, pointer, ctypes.byref(owned.pointer))
        except Error:
            if self._steps and self._steps.error:
                raise self._steps.error from None
            raise
        return owned

    def result(self) -> Result:
        """Waits for the result, once. The errors of Engine.run."""
        owned = self.finish()
        keeps_logits = self._steps is not None and self._steps.keeps_logits
        return Result(
            owned, self._steps.view(owned.pointer.contents.n_tokens) if self._steps and keeps_logits else None
        )


def free_job(handle: Handle) -> None:
    handle.close(lib.rp_job_free, stop=lib.rp_job_cancel)


class EventQueue:
    """An rp_stream, and its jobs, by their tags: each until its end."""

    def __init__(self) -> None:
        self.handle = Handle("stream")
        self.jobs: dict[int, Job] = {}
        self._events = ctypes.POINTER(_abi.rp_stream_event)()
        self._out = ctypes.byref(self._events)
        call(lib.rp_stream_new, ctypes.byref(self.handle.cell))

    def read(self, timeout_ms: int) -> list[tuple[int, str, bool]]:
        """Tag, text, and whether the job has ended, of all events that wait. InvalidError: closed."""
        with self.handle as pointer:
            n = lib.rp_stream_read(pointer, timeout_ms, self._out)
            events = self._events
            return [
                (event.tag, event.text[: event.n_bytes].decode("utf-8", "replace"), event.ended) for event in events[:n]
            ]

    def close(self) -> None:
        """Cancels and frees its jobs, and frees it."""
        self.handle.close(lib.rp_stream_free, stop=self._close_jobs)

    def _close_jobs(self, _pointer: object) -> None:
        for job in list(self.jobs.values()):
            job.close()

    def __del__(self) -> None:
        if hasattr(self, "_out") and not self.handle.is_freed:
            finalize(self.close)


class Stream:
    """An answer as it is generated: an iterator of pieces of text, in whole characters.

        with engine.stream(prompt) as answer:
            for piece in answer:
                print(piece, end="", flush=True)
        print(answer.result.usage)

    Leaving the `with` block, close() and garbage collection cancel a request that has not ended.
    """

    def __init__(self, submit: Callable[[EventQueue], Job]) -> None:
        self._pieces: collections.deque[str] = collections.deque()
        self._result: Result | None = None
        self._n_read = 0
        self._ended = False
        self._events = EventQueue()
        try:
            self._job = submit(self._events)
        except BaseException:
            self._events.close()
            raise

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        while not self._pieces:
            if self._ended:
                self.result  # an error of the request
                raise StopIteration
            try:
                events = self._events.read(_SLICE_MS)
            except InvalidError:  # closed
                raise StopIteration from None
            if self._events.handle.is_closed:
                raise StopIteration  # by another thread, which has cancelled the request
            for _, piece, ended in events:
                if piece:
                    self._pieces.append(piece)
                    self._n_read += len(piece)
                if ended:
                    self._end()
        return self._pieces.popleft()

    def _end(self) -> None:
        self._ended = True
        try:
            self._result = self._job.result()
            rest = self._result.text[self._n_read :]  # a piece for which there was no memory
            if rest:
                self._pieces.append(rest)
        except Exception as e:
            self._error = e
        self._events.close()

    @property
    def result(self) -> Result:
        """The result, after the last piece. The request's error, if it failed; InvalidError: it has not ended."""
        if self._result is None:
            raise getattr(self, "_error", InvalidError("the answer has not ended: read the stream to its end first"))
        return self._result

    def cancel(self) -> None:
        """Ends the answer before its next step: the stream ends after the text so far."""
        _cancel(self._job)

    def close(self) -> None:
        """Cancels the request, if it has not ended, and frees it. The stream ends."""
        self._events.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_events") and not self._events.handle.is_freed:
            finalize(self.close)


def _cancel(job: Job | None) -> None:
    """Cancels a job that may be closed already."""
    if job is not None:
        with contextlib.suppress(InvalidError):
            job.cancel()


# ---- asyncio ------------------------------------------------------------------------------------------------------


class _LoopEvents:
    """The answers of one event loop. Loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.queue = EventQueue()
        self.answers: weakref.WeakValueDictionary[int, AsyncStream] = weakref.WeakValueDictionary()
        self.jobs = self.queue.jobs
        self.last_tag = 0
        with self.queue.handle as pointer:
            self.fd = lib.rp_stream_fd(pointer)
        loop.add_reader(self.fd, self.take)

    def submit(self, answer: AsyncStream, submit: Callable[[EventQueue, int], Job]) -> int:
        self.last_tag += 1
        try:
            submit(self.queue, self.last_tag)
        except BaseException:
            self.rest()
            raise
        self.answers[self.last_tag] = answer
        return self.last_tag

    def take(self) -> None:
        for tag, piece, ended in self.queue.read(0):
            answer = self.answers.get(tag)
            if answer is not None:
                answer._take(piece, ended)
            if ended:
                self.answers.pop(tag, None)
                self.jobs.pop(tag).close()
        self.rest()

    def rest(self) -> None:
        """Frees the queue if no answer needs it."""
        if not self.jobs and _loops.get(self.loop) is self:
            del _loops[self.loop]
            if not self.loop.is_closed():
                self.loop.remove_reader(self.fd)
            self.queue.close()


_loops: dict[asyncio.AbstractEventLoop, _LoopEvents] = {}  # that have answers


def free_closed_loops() -> None:
    """Ends what event loops left that were closed before their answers had ended."""
    for loop, events in list(_loops.items()):
        if loop.is_closed() and _loops.pop(loop, None) is events:
            events.queue.close()


class AsyncStream:
    """An answer as it is generated, for `async for`. Cancelling the task that reads it, or aclose(), cancels the request."""

    def __init__(self, submit: Callable[[EventQueue, int], Job]) -> None:
        self._submit = submit
        self._pieces: collections.deque[str] = collections.deque()
        self._waiter: asyncio.Future[None] | None = None
        self._events: _LoopEvents | None = None
        self._tag = 0
        self._n_read = 0
        self._ended = False
        self._result: Result | None = None
        self._error: Exception | None = None

    def _start(self) -> None:
        free_closed_loops()
        loop = asyncio.get_running_loop()
        events = _loops.get(loop)
        if events is None:
            events = _loops[loop] = _LoopEvents(loop)
        self._tag = events.submit(self, self._submit)
        self._events = events

    def _take(self, piece: str, ended: bool) -> None:
        if piece:
            self._pieces.append(piece)
            self._n_read += len(piece)
        if ended:
            assert self._events is not None
            self._ended = True
            try:
                self._result = self._events.jobs[self._tag].result()
                rest = self._result.text[self._n_read :]
                if rest:
                    self._pieces.append(rest)
            except Exception as e:
                self._error = e
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def __aiter__(self) -> AsyncStream:
        return self

    async def __anext__(self) -> str:
        if self._events is None and not self._ended:
            self._start()
        while not self._pieces:
            if self._ended:
                self.result
                raise StopAsyncIteration
            await self._wait()
        return self._pieces.popleft()

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        except asyncio.CancelledError:
            self.cancel()
            raise
        finally:
            self._waiter = None

    async def finish(self) -> Result:
        """Reads to the end. The result, or the request's error."""
        if self._events is None and not self._ended:
            self._start()
        while not self._ended:
            await self._wait()
        return self.result

    @property
    def result(self) -> Result:
        """The result, after the last piece. The request's error, if it failed; InvalidError: it has not ended."""
        if self._result is None:
            raise self._error or InvalidError("the answer has not ended: read the stream to its end first")
        return self._result

    def cancel(self) -> None:
        """Ends the answer before its next step."""
        if self._events is not None and not self._ended:
            _cancel(self._events.jobs.get(self._tag))

    async def aclose(self) -> None:
        """Cancels the request, if it has not ended. The engine frees it soon after."""
        self.cancel()
        if self._events is not None and not self._ended:
            self._events.answers.pop(self._tag, None)
        self._ended = True

    async def __aenter__(self) -> AsyncStream:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        if getattr(self, "_events", None) is not None and not self._ended:
            self.cancel()
