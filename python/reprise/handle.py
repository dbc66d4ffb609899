# SPDX-License-Identifier: Apache-2.0
"""Pointers of the library that threads share: none is freed while another thread uses it, and none is lost when an exception interrupts Python
anywhere (KeyboardInterrupt between two lines).

    use    -- with handle as pointer -->  users + 1 ... users - 1
    close  -- refuse new users -- stop -- wait for the others -- free -->  closed; interrupted before `free`: close() again resumes

Finalizers call finalize(), not close(): the collector runs on any thread, on the engine's too while that calls back (logits=True), where nothing may
wait; and it ends objects in any order, after their weak references. So who frees a pointer's children holds their handles, not their objects.

A forked process has the pointers of its parent without their threads: it neither uses nor frees them, models excepted.

Order of locks: _closing of a model, of an engine, of an event queue, of a job; then _lock, in which nothing else is locked.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable
from threading import get_ident
from typing import Any

from .errors import InvalidError

_POLL_S = 0.001
_is_exiting = False
_n_forks = 0  # from the first process to this one


def _forked() -> None:
    global _n_forks
    _n_forks += 1


os.register_at_fork(after_in_child=_forked)


def begin_exit() -> None:
    """The interpreter ends, and requests are cancelled for that."""
    global _is_exiting
    _is_exiting = True


def _stay_at_exit() -> None:
    """Python ends a daemon thread wherever it is: at exit it stays here, rather than report that its request was cancelled."""
    thread = _own_thread()
    if _is_exiting and thread is not None and thread.daemon:
        threading.Event().wait()


def _own_thread() -> threading.Thread | None:
    """The current thread, if Python started it. Takes no lock and registers nothing, as threading.current_thread() would."""
    active: dict[int, threading.Thread] = getattr(threading, "_active", {})
    thread = active.get(get_ident())
    return None if isinstance(thread, getattr(threading, "_DummyThread", ())) else thread


def finalize(close: Callable[[], object]) -> None:
    """Closes an object that the garbage collector found: in another thread, if this one is the engine's."""
    if _own_thread() is not None:
        close()
        return
    try:
        threading.Thread(target=close, daemon=True).start()
    except RuntimeError:
        pass  # the interpreter ends, and all engines are closed


class Handle:
    """A pointer. `with handle as pointer:` uses it; InvalidError: it is closed. Threads: any number.

    cell  what a function of the library fills in, with byref; empty: nothing to free
    kept  what the library may use until it is freed

    An exception that interrupts Python (a signal's) comes at the beginning of a Python function, at a backward jump, or after a call. So the
    lock is of C, which `with` always releases, and no Python function runs between the lines that have to be together.
    """

    def __init__(self, what: str, kept: object = None, has_threads: bool = True) -> None:
        self.what = what
        self.kept = kept
        self._n_forks = _n_forks if has_threads else None
        self.cell = ctypes.c_void_p()
        self.is_closed = False
        self._lock = threading.Lock()
        # Threads: one that closes does not wait for itself, so an interrupted use does no harm.
        self._users: list[int] = []
        self._closing = threading.RLock()

    def __enter__(self) -> Any:
        with self._lock:
            if not self.is_closed and not self._is_of_parent():
                self._users.append(get_ident())
                return self.cell
        _stay_at_exit()
        if self._is_of_parent():
            raise InvalidError(f"the {self.what} belongs to the process that this one was forked from: create one here")
        raise InvalidError(f"the {self.what} is closed")

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._users.remove(get_ident())
        if _is_exiting:
            _stay_at_exit()

    def _is_of_parent(self) -> bool:
        return self._n_forks is not None and self._n_forks != _n_forks

    @property
    def is_freed(self) -> bool:
        """Closed, and nothing left to free."""
        return self.is_closed and self.cell.value is None

    def wait(self) -> None:
        """Waits until no other thread uses it."""
        me, delay = get_ident(), 0.0
        while True:
            with self._lock:
                if self._users.count(me) == len(self._users):
                    return
            time.sleep(
                delay
            )  # a condition would need Python in its lock; uses are short, once what they wait for was cancelled
            delay = _POLL_S

    def close(self, free: Callable[..., Any], *args: Any, stop: Callable[[Any], Any] | None = None) -> Any:
        """Calls free(pointer, *args), a function of C, once, and returns what it does; None: there was nothing to free. stop: ends what its
        users wait for."""
        if self._is_of_parent():
            self.is_closed = True
            return None
        with self._closing:
            self.is_closed = True
            if self.cell.value is None:
                return None
            if stop is not None:
                stop(self.cell)
            self.wait()
            pointer, self.cell = self.cell, _NOTHING  # no interruption comes between this line and the next
            return free(pointer, *args)


_NOTHING = ctypes.c_void_p()
