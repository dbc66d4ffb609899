# SPDX-License-Identifier: Apache-2.0
"""Lifetimes: when objects of the library are freed, whatever order and whichever threads a program closes them in.

    Model <- Engine <- Job      a handle is a user of its parent's until it is freed

A call of the library is made in `with handle.use() as pointer`. Closing a handle refuses new uses; the end of its last use frees it, so that no call
ever sees freed memory. Invariants:

    1. an object is freed once, outside of every use, and after its children
    2. nothing waits on the engine's thread, not even for the lock: the collector may run there while a callback does (logits=True), even before
       the callback's first line. It is a thread that Python did not start
    3. a thread does not wait for a use of its own: that of a frame below it, in which a signal's handler runs
    4. a process that was forked frees and uses none of its parent's: it has their memory without their threads

Threads: any. One lock for all handles, held for a few instructions and never in a call of the library.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

from .errors import InvalidError

_lock = threading.RLock()
_changed = threading.Condition(_lock)  # a closed handle lost a user, or was freed
_process = 0  # number of forks from the first process to this one
_is_exiting = False


def _forked() -> None:
    global _process, _lock, _changed
    _process += 1
    _lock = threading.RLock()  # its owner may not exist here
    _changed = threading.Condition(_lock)


os.register_at_fork(after_in_child=_forked)


def begin_exit() -> None:
    """The interpreter ends."""
    global _is_exiting
    _is_exiting = True


def _own_thread() -> threading.Thread | None:
    """The current thread, if Python started it. Takes no lock, and registers nothing, as threading.current_thread() would."""
    active: dict[int, threading.Thread] = getattr(threading, "_active", {})
    thread = active.get(threading.get_ident())
    return None if isinstance(thread, getattr(threading, "_DummyThread", ())) else thread


def halt_at_exit() -> None:
    """Ends a daemon thread that outlives the engines, as Python does a moment later: it would report a closed engine as an error."""
    if not _is_exiting:
        return
    thread = _own_thread()
    if thread is not None and thread.daemon:
        threading.Event().wait()


class Use:
    """A use of a handle: `with handle.use() as pointer`. InvalidError: it is closed."""

    __slots__ = ("_handle",)

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def __enter__(self) -> Any:
        handle = self._handle
        with _lock:
            if not handle._is_closed and handle._process == _process:
                handle._users[self] = threading.get_ident()
                return handle._pointer
        halt_at_exit()
        if handle._process != _process:
            raise InvalidError(f"{handle.what} belongs to the process that this one was forked from: create one here")
        raise InvalidError(f"{handle.what} is closed")

    def __exit__(self, *exception: object) -> None:
        self._handle._leave(self)


class Handle:
    """An object of the library.

    what    its name in errors: "the engine"
    free    frees its pointer; `returned` is what that returns
    stop    ends what keeps its users busy; called when it is closed, before it is freed
    parent  is freed after it
    kept    what the library may still use until it is freed
    portable  works in a forked process too: it has no threads
    closes_children  closing it closes them too; else they keep it until they are closed
    """

    def __init__(
        self,
        pointer: Any,
        what: str,
        free: Callable[[Any], Any],
        *,
        stop: Callable[[Any], Any] | None = None,
        parent: Handle | None = None,
        kept: object = None,
        portable: bool = False,
        closes_children: bool = True,
    ) -> None:
        self._pointer = pointer
        self.what = what
        self._free = free
        self._stop = stop
        self._parent = parent
        self.kept = kept
        self.returned: Any = None
        self._portable = portable
        self._closes_children = closes_children
        self._at = _process
        self._users: dict[object, int | Handle] = {}  # a thread's number, or a child
        self._is_closed = False
        self._freeing = 0  # the thread that does
        self._is_freed = False
        if parent is not None:
            with _lock:
                parent._users[self] = self
            if parent._is_closed:  # while this was made, in a use of it
                self.close(waits=False)

    @property
    def _process(self) -> int:
        return _process if self._portable else self._at

    @property
    def is_open(self) -> bool:
        return not self._is_closed

    def use(self) -> Use:
        return Use(self)

    def stop(self) -> None:
        """Ends what keeps its users busy, unless it is closed."""
        if self._stop is None:
            return
        try:
            with self.use() as pointer:
                self._stop(pointer)
        except InvalidError:
            pass

    def close(self, *, waits: bool = True) -> None:
        """Refuses new uses, closes the children, and frees the object at the end of its last use. waits: until then, unless that use is
        this thread's. Again: nothing."""
        if self._process != _process:
            self._is_closed = True
            return
        self.stop()
        with _lock:
            self._is_closed = True
            use = Use(self)
            self._users[use] = threading.get_ident()  # so that nothing is freed before the children are closed
            children = [user for user in self._users.values() if isinstance(user, Handle) and self._closes_children]
        try:
            for child in children:
                child.stop()  # all of them, before the first one is waited for
            for child in children:
                child.close(waits=waits)
        finally:
            self._leave(use)
        if waits:
            with _changed:
                _changed.wait_for(lambda: self._is_freed or self._is_mine())

    def abandon(self) -> None:
        """Closes it for a finalizer, which runs on any thread and must not wait for another."""
        if _own_thread() is not None:
            self.close(waits=False)
            return
        try:
            threading.Thread(target=self.close, daemon=True).start()
        except RuntimeError:
            pass  # the interpreter ends, and the engines are closed

    def _is_mine(self) -> bool:
        """Whether only this thread, below this frame, can end the last uses."""
        me = threading.get_ident()
        users = self._users.values()
        if not users:
            return self._freeing == me
        return all(user._is_mine() if isinstance(user, Handle) else user == me for user in users)

    def _leave(self, user: object) -> None:
        with _lock:
            self._users.pop(user, None)
            if not self._is_closed:
                return
            if self._users or self._freeing:
                _changed.notify_all()
                return
            self._freeing = threading.get_ident()
        try:
            if self._process == _process:
                self.returned = self._free(self._pointer)
        finally:
            self._pointer = self.kept = None
            with _lock:
                self._is_freed = True
                _changed.notify_all()
            if self._parent is not None:
                self._parent._leave(self)
