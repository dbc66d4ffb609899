# SPDX-License-Identifier: Apache-2.0
"""Documents known at run time: a library of them, and the loop of a program over those that a call names.

    documents = library("docs")
    documents.add("osthaven", "Osthaven is a town in the north. ...")

    @program
    def answer(ids: list[str], question: str):
        for d in use(documents, ids):
            text(f"{d.id}: {d.text}")
        text(question)

Every document of the library is a module of the schema, docs.osthaven; a call imports those of `ids` in that order.
Threads: any number may add, remove and use documents. A call sees the library of one moment.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ..errors import InvalidError, UnknownNameError
from . import naming
from .plain import current
from .values import nearest


@dataclass(frozen=True, slots=True)
class Document:
    """A document of a library. str() is its text."""

    id: str
    text: str

    def __str__(self) -> str:
        return self.text


class Library:
    """Documents by id. Each change makes a new version: programs that use it have a new schema then."""

    def __init__(self, name: str) -> None:
        if not naming.is_name(name):
            raise InvalidError(f"the library's name {name!r} is no XML name: use letters, digits, - and _")
        self.name = name
        self._documents: dict[str, Document] = {}
        self._version = 0
        self._lock = threading.Lock()

    def add(self, id: str, text: str) -> None:
        """Adds a document, or replaces the one of that id."""
        if not isinstance(id, str) or not isinstance(text, str) or not id:
            raise InvalidError(f"library {self.name!r}: a document has an id and a text, both str: add({id!r}, ...)")
        document = Document(id, text)
        with self._lock:
            if self._documents.get(id) != document:
                self._documents = {**self._documents, id: document}
                self._version += 1

    def update(self, documents: Mapping[str, str]) -> None:
        """Adds many documents as one change."""
        new = {id: Document(id, text) for id, text in documents.items()}
        with self._lock:
            self._documents = {**self._documents, **new}
            self._version += 1

    def remove(self, id: str) -> None:
        """UnknownNameError if there is no such document."""
        with self._lock:
            find(self.name, self._documents, id)
            self._documents = {one: document for one, document in self._documents.items() if one != id}
            self._version += 1

    def __contains__(self, id: object) -> bool:
        return id in self._documents

    def __len__(self) -> int:
        return len(self._documents)

    def __iter__(self) -> Iterator[Document]:
        return iter(self._documents.values())

    def snapshot(self) -> tuple[int, Mapping[str, Document]]:
        """The version, and its documents, which never change."""
        with self._lock:
            return self._version, self._documents

    @property
    def version(self) -> int:
        return self._version

    def module_name(self, id: str) -> str:
        """The name of a document's module: "docs.osthaven"."""
        name = f"{self.name}.{id}"
        return name if naming.is_name(name) else f"{self.name}.{naming.slug(id, 'id')}-{naming.hash_of(id)}"

    def __repr__(self) -> str:
        return f"<Library {self.name!r}: {len(self)} documents>"


def library(name: str) -> Library:
    """A library of documents, empty. name: the beginning of its modules' names."""
    return Library(name)


def find(name: str, documents: Mapping[str, object], id: str) -> None:
    """UnknownNameError, with the nearest id, unless the document exists."""
    if id not in documents:
        near = nearest(str(id), documents)
        raise UnknownNameError(f"library {name!r} has no document {id!r}{near or ': add it first'}", where=name)


def in_order(name: str, documents: Mapping[str, object], ids: object) -> list[str]:
    """The ids of a call as a list. InvalidError for one that is named twice: a prompt imports a module once."""
    if isinstance(ids, str) or not isinstance(ids, Iterable):
        raise InvalidError(
            f"use(): {ids!r} is no list of ids: give the ids of documents of library {name!r}", where=name
        )
    wanted = list(ids)
    for i, id in enumerate(wanted):
        find(name, documents, id)
        if id in wanted[:i]:
            raise InvalidError(
                f"use(): document {id!r} twice: a prompt imports a module once, name it once", where=name
            )
    return wanted


def use(documents: Library, ids: Iterable[str]) -> Iterator[Document]:
    """The documents of `ids`, in that order: `for d in use(documents, ids): text(d)`."""
    current("use")
    _, known = documents.snapshot()
    return iter([known[id] for id in in_order(documents.name, known, ids)])
