# SPDX-License-Identifier: Apache-2.0
"""Prompts as values: modules of a schema, text, documents and roles, in order. Text is never parsed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from .errors import InvalidError
from .schema import Schema

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]
ROLES: tuple[Role, ...] = ("system", "user", "assistant", "tool")


@dataclass(frozen=True, slots=True)
class Module:
    """The import of a module, by its path ("plan/miami"), with the arguments of its parameters."""

    path: str
    args: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Text:
    """Text that is prefilled for this prompt, kept to the byte."""

    text: str


@dataclass(frozen=True, slots=True)
class Document:
    """Text that is a module by itself, in prompts without a schema: its KV is reused wherever the same text occurs."""

    text: str


@dataclass(frozen=True, slots=True)
class Markup:
    """A PML prompt document that the application wrote. Never put a user's text into it."""

    pml: str


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a role; its parts are no messages.

    is_open: places modules that are in roles of the schema as rp_builder_begin_message does, instead of refusing them.
    """

    role: Role
    parts: tuple[Part, ...]
    is_open: bool = False


Part: TypeAlias = Module | Text | Document | Markup | Message


class Prompt:
    """A prompt, built part by part. Every method that adds a part returns the prompt.

        prompt = Prompt("cities").module("plan/miami", duration="3 days")
        with prompt.user():
            prompt.text(question)

    schema: a Schema, the name of one that is loaded already, or None for a prompt of documents and text.
    Threads: one at a time may add parts; any number may run a prompt that no longer changes.
    """

    def __init__(self, schema: Schema | str | None = None) -> None:
        self.schema = schema
        self._parts: list[Part] = []
        self._open: list[Part] | None = None  # of the message that is being built

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts in order. InvalidError while a role is open."""
        if self._open is not None:
            raise InvalidError("the prompt has an open role: leave its `with` block first")
        return tuple(self._parts)

    def _add(self, part: Part) -> Prompt:
        (self._parts if self._open is None else self._open).append(part)
        return self

    def module(self, path: str, args: Mapping[str, str] | None = None, /, **more: str) -> Prompt:
        """Imports a module, with its outer ones. Arguments: those of parameters, `args` for names that are no identifiers."""
        return self._add(Module(path, {**(args or {}), **more}))

    def text(self, text: str) -> Prompt:
        """Appends text."""
        return self._add(Text(text))

    def document(self, text: str) -> Prompt:
        """Appends a document that is a module by itself. Only without a schema."""
        if self.schema is not None:
            raise InvalidError(
                "a prompt over a schema has no documents: import modules of the schema, or leave out `schema`"
            )
        return self._add(Document(text))

    def markup(self, pml: str) -> Prompt:
        """Appends what a PML prompt document contains."""
        return self._add(Markup(pml))

    @contextlib.contextmanager
    def role(self, role: Role, *, is_open: bool = False) -> Iterator[Prompt]:
        """A message: `with prompt.role("user"): prompt.text(...)`. Roles do not nest."""
        if role not in ROLES:
            raise InvalidError(f"unknown role {role!r}: use one of {', '.join(ROLES)}")
        if self._open is not None:
            raise InvalidError(f"role {role!r} inside another role: roles do not nest")
        self._open = []
        try:
            yield self
            self._parts.append(Message(role, tuple(self._open), is_open))
        finally:
            self._open = None

    def system(self) -> contextlib.AbstractContextManager[Prompt]:
        return self.role("system")

    def user(self) -> contextlib.AbstractContextManager[Prompt]:
        return self.role("user")

    def assistant(self) -> contextlib.AbstractContextManager[Prompt]:
        return self.role("assistant")

    def tool(self) -> contextlib.AbstractContextManager[Prompt]:
        return self.role("tool")

    @property
    def schema_name(self) -> str | None:
        return self.schema.name if isinstance(self.schema, Schema) else self.schema

    def to_json(self) -> dict[str, Any]:
        """The fields `schema` and `parts` of POST /v1/prompts (docs/server.md), where a message is never open."""
        body: dict[str, Any] = {"parts": [part_json(part) for part in self.parts]}
        if self.schema is not None:
            body["schema"] = self.schema_name
        return body

    def __repr__(self) -> str:
        return f"<Prompt over {self.schema_name!r}: {len(self._parts)} parts>"


def part_json(part: Part) -> dict[str, Any]:
    """A part as the server takes it."""
    if isinstance(part, Module):
        return {"type": "module", "name": part.path, "args": dict(part.args)}
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    if isinstance(part, Document):
        return {"type": "document", "text": part.text}
    if isinstance(part, Markup):
        return {"type": "pml", "text": part.pml}
    return {"type": "role", "role": part.role, "parts": [part_json(p) for p in part.parts]}
