# SPDX-License-Identifier: Apache-2.0
"""Parameters of programs: what an annotation says about a parameter, and the values that a call may give it.

    Arg[str, 8]                   an argument: text of at most 8 tokens inside a module, a <param> of the schema
    bool, Literal, Enum, None     finite: conditions on it are structure, and every branch is in the schema
    any other annotation, none    fresh: text of the prompt, prefilled for each call

Owns these three kinds and ProgramError. Knows nothing of source code or PML.
"""

from __future__ import annotations

import ast
import difflib
import enum
import types
import typing
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn, TypeAlias

from ..errors import InvalidError, MarkupError

__all__ = [
    "Arg",
    "Argument",
    "Finite",
    "Fresh",
    "Kind",
    "ProgramError",
    "accepts",
    "allowed",
    "check",
    "fail",
    "kind_of",
    "nearest",
]

MAX_TOKENS = 4096  # of a parameter, as in PML

if TYPE_CHECKING:
    from typing import Annotated as Arg  # a type checker reads Arg[str, 8] as Annotated[str, 8], which is str
else:

    class Arg:
        """Arg[str, 8]: a parameter of at most 8 tokens inside a module. Its value is prefilled for each prompt."""

        def __class_getitem__(cls, item: Any) -> Any:
            if not isinstance(item, tuple) or len(item) != 2:
                raise InvalidError("Arg takes a type and a number of tokens: Arg[str, 8]")
            kind, tokens = item
            if type(tokens) is not int or not 1 <= tokens <= MAX_TOKENS:
                raise InvalidError(f"Arg[..., {tokens!r}]: write a number of tokens from 1 to {MAX_TOKENS}")
            return Annotated[kind, _Tokens(tokens)]


@dataclass(frozen=True, slots=True)
class _Tokens:
    """The mark of Arg in an annotation."""

    n: int


# ---- Errors -------------------------------------------------------------------------------------------------------


class ProgramError(MarkupError):
    """A function that cannot become a schema. str() is "file:line:column: what is wrong: what to write instead"."""


def fail(filename: str, node: ast.AST | int, message: str) -> NoReturn:
    """Raises ProgramError at a node of the source, or at the start of a line."""
    line, column = (node, 1) if isinstance(node, int) else (_of(node, "lineno"), _of(node, "col_offset") + 1)
    where = f"{filename}:{line}:{column}"
    raise ProgramError(f"{where}: {message}", where=where)


def _of(node: ast.AST, field: str) -> int:
    return int(getattr(node, field, 0 if field == "col_offset" else 1))


def nearest(name: str, names: Iterable[str]) -> str:
    """ "; did you mean 'plan'?" if a name is similar, else ""."""
    close = difflib.get_close_matches(name, list(names), n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""


# ---- Kinds --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Finite:
    """A parameter of few values: a program may branch on it."""

    values: tuple[object, ...]

    def has(self, value: object) -> bool:
        """Equal and of the same type: True is not 1."""
        return any(type(value) is type(one) and value == one for one in self.values)


@dataclass(frozen=True, slots=True)
class Argument:
    """A parameter inside a module: text of at most `tokens` tokens, made of a value of `type`."""

    type: object
    tokens: int


@dataclass(frozen=True, slots=True)
class Fresh:
    """A parameter that is text of the prompt, or a part of a run-time expression."""


Kind: TypeAlias = Finite | Argument | Fresh


def kind_of(annotation: object) -> Kind:
    """The kind of a parameter with this (evaluated) annotation."""
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        base, *marks = typing.get_args(annotation)
        lengths = [mark.n for mark in marks if isinstance(mark, _Tokens)]
        return Argument(base, lengths[0]) if lengths else kind_of(base)
    if annotation is bool:
        return Finite((False, True))
    if annotation is None or annotation is type(None):
        return Finite((None,))
    if origin is Literal:
        return Finite(typing.get_args(annotation))
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return Finite(tuple(annotation))
    if origin is typing.Union or origin is types.UnionType:
        kinds = [kind_of(one) for one in typing.get_args(annotation)]
        values = [value for kind in kinds if isinstance(kind, Finite) for value in kind.values]
        if all(isinstance(kind, Finite) for kind in kinds):
            return Finite(tuple(values))
    return Fresh()


def allowed(kind: Kind) -> str:
    """The values that a parameter accepts, in words."""
    if isinstance(kind, Finite):
        shown = [str(value) if isinstance(value, enum.Enum) else repr(value) for value in kind.values]
        return "one of " + ", ".join(shown) if len(shown) > 1 else "".join(shown)
    if isinstance(kind, Argument):
        name = kind.type.__name__ if isinstance(kind.type, type) else str(kind.type)
        return f"a value of type {name}, at most {kind.tokens} tokens of text"
    return "any value"


def accepts(kind: Kind, value: object) -> bool:
    """Whether a call may give this value."""
    if isinstance(kind, Finite):
        return kind.has(value)
    if isinstance(kind, Argument) and isinstance(kind.type, type):
        return isinstance(value, kind.type) and not (isinstance(value, bool) and kind.type is not bool)
    return True


def check(program: str, parameter: str, kind: Kind, value: object) -> None:
    """InvalidError if a call may not give this value."""
    if not accepts(kind, value):
        raise InvalidError(f"{program}(): {parameter}={value!r}: give {allowed(kind)}", where=f"{program}({parameter})")
