# SPDX-License-Identifier: Apache-2.0
"""Schemas as values: PML text and a name. An engine or a client loads a schema when a prompt first uses it."""

from __future__ import annotations

import os
import xml.etree.ElementTree
from dataclasses import dataclass

from .errors import MarkupError


@dataclass(frozen=True, slots=True)
class Schema:
    """A PML schema (docs/pml.md).

    name       the schema's own name
    pml        the document
    document   its name in errors: a path, or the schema's name
    directory  folder of the files that `src` attributes name; None: `src` is refused
    replaces   the name of the schema that this one replaces: an engine unloads that when it loads this; "": none
    """

    name: str
    pml: str
    document: str = ""
    directory: str | None = None
    replaces: str = ""

    @classmethod
    def parse(cls, pml: str, *, document: str = "", directory: str | None = None) -> Schema:
        """A schema from its PML text. Only its name is read here; the rest is checked when an engine loads it."""
        try:
            root = xml.etree.ElementTree.fromstring(pml)
        except xml.etree.ElementTree.ParseError as e:
            line, column = e.position
            where = f"{document or 'schema'}:{line}:{column + 1}"
            raise MarkupError(f"{where}: {e}", where=where) from None
        name = root.get("name", "")
        if root.tag != "schema" or not name:
            where = f"{document or 'schema'}:1:1"
            raise MarkupError(f'{where}: a schema begins with <schema name="...">', where=where)
        return cls(name, pml, document or name, directory)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Schema:
        """A schema from a file. Its `src` attributes name files in its own folder."""
        with open(path, encoding="utf-8") as file:
            pml = file.read()
        return cls.parse(pml, document=os.fspath(path), directory=os.path.dirname(os.path.abspath(path)))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the PML text into a file."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.pml)

    def _repr_html_(self) -> str:
        from . import html

        return html.schema(self)
