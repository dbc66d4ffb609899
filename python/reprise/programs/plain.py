# SPDX-License-Identifier: Apache-2.0
"""The words of programs: text(), roles, module(), scaffold(). They do something in plain execution only.

Plain execution runs a program as the ordinary function that it is and collects its text: the meaning of every program,
which its schema and its prompts must equal. The compiler knows these functions by identity, and does not call them.
Threads: each context (contextvars) executes its own programs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any

from ..errors import InvalidError
from ..prompt import Role


class Collector:
    """The text of one plain execution: runs of (role or None, text), in order."""

    def __init__(self) -> None:
        self._runs: list[tuple[Role | None, list[str]]] = []
        self.role: Role | None = None

    def add(self, text: str) -> None:
        if not self._runs or (self.role is None and self._runs[-1][0] is not None):
            self._runs.append((self.role, []))
        self._runs[-1][1].append(text)

    def begin(self, role: Role) -> None:
        if self.role is not None:
            raise InvalidError(f"{role}() inside {self.role}(): roles do not nest")
        self.role = role
        self._runs.append((role, []))

    def end(self) -> None:
        self.role = None

    @property
    def runs(self) -> list[tuple[Role | None, str]]:
        """A role's run may be empty; text outside roles is not."""
        runs = [(role, "".join(texts)) for role, texts in self._runs]
        return [run for run in runs if run[0] is not None or run[1]]


_collector: ContextVar[Collector | None] = ContextVar("reprise_program", default=None)


def is_executing() -> bool:
    """Whether a program is being executed plainly."""
    return _collector.get() is not None


def execute(run: Callable[[], object]) -> list[tuple[Role | None, str]]:
    """The text of a function that calls the words of this file."""
    collector = Collector()
    token = _collector.set(collector)
    try:
        run()
    finally:
        _collector.reset(token)
    return collector.runs


def current(word: str) -> Collector:
    """The collector; InvalidError outside of plain execution."""
    collector = _collector.get()
    if collector is None:
        raise InvalidError(
            f"{word}() outside a program: put it into a function with @program, and call that, or its "
            ".messages() or .text()"
        )
    return collector


# ---- The words ----------------------------------------------------------------------------------------------------


def text(value: object, /, *, cache: bool = True) -> None:
    """Text of the prompt. Constants become modules or anonymous text of the schema, run-time text is prefilled fresh.

    value  text, an f-string, or anything that str() turns into text
    cache  False: a constant text is prefilled again for each prompt, and attends to everything before it
    """
    current("text").add(str(value))


@contextlib.contextmanager
def _role(role: Role) -> Iterator[None]:
    collector = current(role)
    collector.begin(role)
    try:
        yield
    finally:
        collector.end()


def system() -> AbstractContextManager[None]:
    """A system message: `with system(): text(...)`."""
    return _role("system")


def user() -> AbstractContextManager[None]:
    """A user message: `with user(): text(...)`."""
    return _role("user")


def assistant() -> AbstractContextManager[None]:
    """A message of the assistant: `with assistant(): text(...)`."""
    return _role("assistant")


def tool() -> AbstractContextManager[None]:
    """A message of a tool: `with tool(): text(...)`."""
    return _role("tool")


ROLE_WORDS: dict[Any, Role] = {system: "system", user: "user", assistant: "assistant", tool: "tool"}


def module(
    name: str,
    *,
    keep: str | None = None,
    kv: str | None = None,
    cache: bool | None = None,
    ttl: str | int | None = None,
    pin: bool | None = None,
    scope: str | None = None,
    anchor: str | None = None,
    quality: str | None = None,
) -> AbstractContextManager[None]:
    """A module with a name and attributes of its own (docs/pml.md): `with module("rules", keep="50%"): text(...)`."""
    current("module")
    return contextlib.nullcontext()


def scaffold(*paths: str) -> None:
    """Modules that are prefilled jointly: paths of this program's modules, "plan" or "plan/miami"."""
    current("scaffold")
