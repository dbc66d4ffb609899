# SPDX-License-Identifier: Apache-2.0
"""What a prompt stands for: a small reading of docs/pml.md, "Order of a prompt", that shares no code with the package.

For schemas under xml:space="preserve". Each rule is that of the page, in its order; mistakes that an engine refuses
(unknown modules, a module imported twice, two members of a union, a missing argument) are errors here, too.
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from reprise.prompt import Message, Module, Part, Text

ROLES = ("system", "user", "assistant", "tool")


class Node:
    """A module, or the schema: its own texts, parameters and roles in document order, with the modules between them."""

    def __init__(self, element: ElementTree.Element, union: ElementTree.Element | None, path: str = "") -> None:
        self.path = path
        self.element = element
        self.union = union
        self.entries: list[
            tuple[str, Any]
        ] = []  # ("text", str) ("param", name) ("begin", role) ("end", role) ("module", Node)
        self.modules: dict[str, Node] = {}
        self.done = 0  # entries that the prompt has already
        self._read(element, None)

    def _read(self, element: ElementTree.Element, union: ElementTree.Element | None) -> None:
        self._text(element.text)
        for child in element:
            if child.tag == "module":
                name = child.attrib["name"]
                node = Node(child, union, f"{self.path}/{name}" if self.path else name)
                assert name not in self.modules, f"duplicate module {name}"
                self.modules[name] = node
                self.entries.append(("module", node))
            elif child.tag == "union":
                assert len(child) > 0 and all(one.tag == "module" for one in child), "a union has modules only"
                self._read(child, child)
            elif child.tag in ("param", "parameter"):
                assert element.tag != "schema" and self.element.tag == "module", "a parameter belongs to a module"
                self.entries.append(("param", child.attrib["name"]))
            elif child.tag in ROLES:
                assert element.tag not in ROLES, "roles do not nest"
                self.entries.append(("begin", child.tag))
                self._read(child, None)
                self.entries.append(("end", child.tag))
            else:
                assert child.tag == "scaffold" and element.tag == "schema", child.tag
            if child.tag != "scaffold" or (child.tail or "").strip():
                self._text(child.tail, in_union=union is not None)

    def _text(self, text: str | None, in_union: bool = False) -> None:
        if text and not (in_union and not text.strip()):
            self.entries.append(("text", text))

    def position(self, module: Node) -> int:
        return self.entries.index(("module", module))


class Expander:
    def __init__(self, pml: str) -> None:
        self.root = Node(ElementTree.fromstring(pml), None)
        assert self.root.element.attrib["{http://www.w3.org/XML/1998/namespace}space"] == "preserve"
        self.runs: list[tuple[str | None, list[str]]] = []
        self.role: str | None = None
        self.imported: set[Node] = set()
        self.unions: set[ElementTree.Element] = set()
        self.arguments: dict[tuple[Node, str], str] = {}
        self.sources: list[str] = []  # what each piece comes from: the path of a module, "" for the schema, or "prompt"

    def expand(self, parts: tuple[Part, ...]) -> list[tuple[str | None, str]]:
        self._check_arguments(parts)
        if parts and isinstance(parts[0], Text):
            self._own(self.root, self._beginning(parts))
        self._parts(parts)
        self._own(self.root, len(self.root.entries))
        assert self.role is None
        runs = [(role, "".join(texts)) for role, texts in self.runs]
        return [run for run in runs if run[0] is not None or run[1]]

    def _check_arguments(self, parts: tuple[Part, ...]) -> None:
        for part in parts:
            if isinstance(part, Message):
                self._check_arguments(part.parts)
            if isinstance(part, Module):
                node = self._path(part.path)[-1]
                for name, value in part.args.items():
                    assert ("param", name) in node.entries, f"no parameter {name} in {part.path}"
                    assert (node, name) not in self.arguments
                    self.arguments[node, name] = value

    def _path(self, path: str) -> list[Node]:
        nodes, node = [], self.root
        for name in path.split("/"):
            node = node.modules[name]
            nodes.append(node)
        return nodes

    def _beginning(self, parts: tuple[Part, ...]) -> int:
        """Text at the start follows the anonymous segments before the first import, else before the first module."""
        first = _first_import(parts)
        if first is not None:
            return self.root.position(self._path(first)[0])
        return next((i for i, entry in enumerate(self.root.entries) if entry[0] == "module"), len(self.root.entries))

    def _parts(self, parts: tuple[Part, ...]) -> None:
        i = 0
        while i < len(parts):
            part = parts[i]
            i += 1
            if isinstance(part, Text):
                assert part.text
                self._source("prompt")
                self._write(part.text)
            elif isinstance(part, Message):
                self._own(self.root, len(self.root.entries))
                self._source("prompt")
                self._begin(part.role)
                self._parts(part.parts)
                self._source("prompt")
                self.role = None
            else:
                assert isinstance(part, Module)
                group = [part.path.split("/")]
                while (
                    i < len(parts) and isinstance(next_ := parts[i], Module) and next_.path.split("/")[0] == group[0][0]
                ):
                    group.append(next_.path.split("/"))
                    i += 1
                self._import(self.root, group)

    def _import(self, holder: Node, group: list[list[str]]) -> None:
        """Consecutive imports with common outer modules are one. group: paths that begin with the same module."""
        node = holder.modules[group[0][0]]
        assert node not in self.imported, f"{group[0][0]} is imported twice"
        self.imported.add(node)
        if node.union is not None:
            assert node.union not in self.unions, f"two members of a union: {group[0][0]}"
            self.unions.add(node.union)
        self._own(holder, holder.position(node))
        inside = [path[1:] for path in group if len(path) > 1]
        while inside:
            n = next((i for i, path in enumerate(inside) if path[0] != inside[0][0]), len(inside))
            self._import(node, inside[:n])
            inside = inside[n:]
        self._own(node, len(node.entries))

    def _own(self, holder: Node, until: int) -> None:
        """The own segments of the holder that precede `until` in the schema and are not in the prompt yet."""
        while holder.done < until:
            kind, value = holder.entries[holder.done]
            holder.done += 1
            if kind != "module" and value:
                self._source(holder.path)
            if kind == "text":
                self._write(value)
            elif kind == "param":
                self._write(self.arguments[holder, value])
            elif kind == "begin":
                self._begin(value)
            elif kind == "end":
                assert self.role == value
                self.role = None

    def _source(self, source: str) -> None:
        if not self.sources or self.sources[-1] != source:
            self.sources.append(source)

    def _begin(self, role: str) -> None:
        assert self.role is None, f"{role} inside {self.role}"
        self.role = role
        self.runs.append((role, []))

    def _write(self, text: str) -> None:
        if not self.runs or (self.role is None and self.runs[-1][0] is not None):
            self.runs.append((None, []))
        assert self.role is not None or self.runs[-1][0] is None
        self.runs[-1][1].append(text)


def _first_import(parts: tuple[Part, ...]) -> str | None:
    for part in parts:
        if isinstance(part, Module):
            return part.path
        if isinstance(part, Message):
            path = _first_import(part.parts)
            if path is not None:
                return path
    return None


def expand(pml: str, parts: tuple[Part, ...]) -> list[tuple[str | None, str]]:
    """The text of a prompt as (role, text)."""
    return Expander(pml).expand(parts)


def fresh_texts(parts: tuple[Part, ...]) -> list[str]:
    """All text that a prompt brings itself: its own, and the arguments of parameters."""
    texts: list[str] = []
    for part in parts:
        if isinstance(part, Message):
            texts += fresh_texts(part.parts)
        elif isinstance(part, Text):
            texts.append(part.text)
        elif isinstance(part, Module):
            texts += part.args.values()
    return texts


def sources(pml: str, parts: tuple[Part, ...]) -> list[str]:
    """What a prompt consists of, in order: paths of modules, "" for the schema, "prompt" for its own text and roles."""
    expander = Expander(pml)
    expander._source("")  # the beginning-of-text token
    if any(role for role, _ in expander.expand(parts)):
        expander._source("prompt")  # the start of the answer
    return expander.sources


def prompt_pml(schema: str, parts: tuple[Part, ...]) -> str:
    """A prompt as a PML document, for programs that read files."""
    return f'<prompt schema={quoteattr(schema)} xml:space="preserve">{_pml(parts)}</prompt>\n'


def _pml(parts: tuple[Part, ...]) -> str:
    out, group = "", list[Module]()
    for part in (*parts, Text("")):
        if group and not (isinstance(part, Module) and part.path.split("/")[0] == group[0].path.split("/")[0]):
            out += _import_pml([(one.path.split("/"), dict(one.args)) for one in group])
            group = []
        if isinstance(part, Module):
            group.append(part)
        elif isinstance(part, Message):
            out += f"<{part.role}>{_pml(part.parts)}</{part.role}>"
        elif isinstance(part, Text):
            out += escape(part.text, {"\r": "&#13;"})
    return out


def _import_pml(group: list[tuple[list[str], dict[str, str]]]) -> str:
    arguments = {name: value for path, args in group for name, value in args.items() if len(path) == 1}
    attributes = "".join(
        f" {k}={quoteattr(v, {chr(10): '&#10;', chr(13): '&#13;', chr(9): '&#9;'})}" for k, v in arguments.items()
    )
    inside = [(path[1:], args) for path, args in group if len(path) > 1]
    content = ""
    while inside:
        n = next((i for i, (path, _) in enumerate(inside) if path[0] != inside[0][0][0]), len(inside))
        content += _import_pml(inside[:n])
        inside = inside[n:]
    name = group[0][0][0]
    return f"<{name}{attributes}>{content}</{name}>"
