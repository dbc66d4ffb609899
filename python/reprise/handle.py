# SPDX-License-Identifier: Apache-2.0
"""Pointers of the library that threads share: none is freed while another thread uses it, and none is lost when an exception interrupts Python
anywhere (KeyboardInterrupt between two lines).

    use    -- with handle as pointer -->  users + 1 ... users - 1
    close  -- refuse new users -- stop -- wait for the others -- free -->  closed; interrupted before `free`: close() again resumes

Order of locks: _closing of a model, of an engine, of an event queue, of a job; then _lock, in which nothing else is locked.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from threading import get_ident
from typing import Any

from .errors import InvalidError

_POLL_S = 0.001
_is_exiting = False


def begin_exit() -> None:
    """The interpreter ends, and requests are cancelled for that."""
    global _is_exiting
    _is_exiting = True


def _stay_at_exit() -> None:
    """Python ends a daemon thread wherever it is: at exit it stays here, rather than report that its request was cancelled."""
    if _is_exiting and threading.current_thread().daemon:
        threading.Event().wait()


class Handle:
    """A pointer. `with handle as pointer:` uses it; InvalidError: it is closed. Threads: any number.

    cell  what a function of the library fills in, with byref; empty: nothing to free

    An exception that interrupts Python (a signal's) comes at the beginning of a Python function, at a backward jump, or after a call. So the
    lock is of C, which `with` always releases, and no Python function runs between the lines that have to be together.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self.cell = ctypes.c_void_p()
        self.is_closed = False
        self._lock = threading.Lock()
        # Threads: one that closes does not wait for itself, so an interrupted use does no harm.
        self._users: list[int] = []
        self._closing = threading.RLock()

    def __enter__(self) -> Any:
        with self._lock:
            if not self.is_closed:
                self._users.append(get_ident())
                return self.cell
        _stay_at_exit()
        raise InvalidError(f"the {self.what} is closed")

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._users.remove(get_ident())
        if _is_exiting:
            _stay_at_exit()

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
