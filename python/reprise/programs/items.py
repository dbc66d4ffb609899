# SPDX-License-Identifier: Apache-2.0
"""What a compiled program consists of, between its syntax tree and its PML.

    Run      text and parameters, always there           Fresh   text of the prompt
    Choice   at most one of its branches                 Module  always there, with content of its own
    Role     a message                                   Use     documents of a library, in the order of the call
    Scaffold modules that are prefilled jointly

Items are immutable and know no prompt; their getters compute run-time values from the Frame of one call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from ..prompt import Role as RoleName
from . import naming

if TYPE_CHECKING:
    from .documents import Library
    from .scope import Frame

Getter: TypeAlias = "Callable[[Frame], Any]"


@dataclass(frozen=True, slots=True, eq=False)
class Slot:
    """A parameter inside a text: at most `tokens` tokens, given by each call."""

    name: str
    tokens: int
    value: Getter


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Text and parameters. label: the name of the constant that it is, or ""."""

    pieces: tuple[str | Slot, ...]
    label: str = ""

    @property
    def slots(self) -> list[Slot]:
        return [piece for piece in self.pieces if isinstance(piece, Slot)]

    def name(self, after: str = "") -> str:
        """For its module. after: the fresh parameter directly before it."""
        if self.label:
            return naming.slug(self.label)
        if self.slots:
            return naming.slug(self.slots[0].name)
        return naming.slug(f"after-{after}") if after else "text-" + naming.hash_of("".join(map(str, self.pieces)))


@dataclass(frozen=True, slots=True, eq=False)
class Fresh:
    """Text of the prompt. label: the parameter that it is made of."""

    value: Getter
    label: str


@dataclass(frozen=True, slots=True, eq=False)
class Branch:
    name: str
    items: tuple[Item, ...]
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """select: the index of the branch to take; len(branches): none. covers: one is taken whatever the arguments."""

    branches: tuple[Branch, ...]
    select: Callable[[Frame], int]
    covers: bool


@dataclass(frozen=True, slots=True, eq=False)
class Module:
    """is_text: it is a text(..., cache=False), which has no name of its own."""

    name: str
    items: tuple[Item, ...]
    attributes: Mapping[str, str] = field(default_factory=dict)
    is_text: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Role:
    role: RoleName
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Use:
    """The documents of a library, each a module, imported in the order of `ids`."""

    library: Library
    ids: Getter
    documents: Mapping[str, Module]


@dataclass(frozen=True, slots=True, eq=False)
class Scaffold:
    """fail: raises ProgramError at the call of scaffold()."""

    paths: tuple[str, ...]
    fail: Callable[[str], None]


Item: TypeAlias = Run | Fresh | Choice | Module | Role | Use | Scaffold


def inner(item: Item) -> Iterable[Item]:
    """The items inside an item, of all branches."""
    if isinstance(item, (Module, Role)):
        return item.items
    if isinstance(item, Choice):
        return [one for branch in item.branches for one in branch.items]
    return item.documents.values() if isinstance(item, Use) else ()


def has_fresh(item: Item) -> bool:
    """Whether it contains text of the prompt, in any branch: then it is no module."""
    return isinstance(item, Fresh) or any(map(has_fresh, inner(item)))


def branch_of(name: str, items: tuple[Item, ...]) -> Branch:
    """A branch. If a text(..., cache=False) is all of it, the branch's module has its attributes."""
    only = items[0] if len(items) == 1 else None
    if isinstance(only, Module) and only.is_text:
        return Branch(name, only.items, only.attributes)
    return Branch(name, items)


def has_role(item: Item) -> bool:
    return isinstance(item, Role) or any(map(has_role, inner(item)))


def is_empty(items: Iterable[Item]) -> bool:
    """Whether there is nothing in any branch."""
    return all(isinstance(item, (Module, Choice, Scaffold)) and is_empty(inner(item)) for item in items)


def always_imported(item: Item) -> bool:
    """Whether it becomes a module, or a union, that every prompt imports."""
    if has_fresh(item):
        return False
    return (
        isinstance(item, Module)
        or (isinstance(item, Choice) and item.covers)
        or (isinstance(item, Run) and bool(item.slots))
    )


def with_space(value: Getter) -> Getter:
    """A run-time text after a space."""
    return lambda frame: f" {value(frame)}"


def without_space(run: Run) -> Run | None:
    """A run without the space at its end, which becomes the start of the run-time text after it: vocabularies have
    tokens for words with the space before them. None: it does not end with a space."""
    last = run.pieces[-1]
    if not isinstance(last, str) or not last.endswith(" "):
        return None
    return replace(run, pieces=(*run.pieces[:-1], last[:-1]) if len(last) > 1 else run.pieces[:-1])


def pieces_of(run: Run) -> list[str | Slot]:
    """The pieces of a run; a space before a parameter belongs to its value."""
    pieces: list[str | Slot] = []
    for piece in run.pieces:
        before = without_space(Run(tuple(pieces))) if pieces and isinstance(piece, Slot) else None
        if before is not None and isinstance(piece, Slot):
            pieces = [*before.pieces, replace(piece, value=with_space(piece.value))]
        else:
            pieces.append(piece)
    return pieces


def joined(runs: Iterable[Run]) -> Run:
    """Adjacent runs as one; it is named like the first that has a label."""
    runs = list(runs)
    return Run(tuple(piece for run in runs for piece in run.pieces), next((run.label for run in runs if run.label), ""))
