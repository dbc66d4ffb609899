# SPDX-License-Identifier: Apache-2.0
"""Items as PML, and the steps of a call: which modules it imports, where its own text is.

PML places anonymous text before the first import that follows it in the schema, or before the first role of the prompt
(docs/pml.md, "Order of a prompt"). This order equals the program's for the following division of its items:

    opening   the items before the first fresh text: constant text and whole roles are anonymous; all else is modules
    rest      modules at the schema's top level, each imported; roles are the prompt's own (Message). Branches, calls
              and loops with fresh text are flattened: their constant runs are modules "branch.after-question"
    closing   the last role, if nothing fresh precedes it and a module that every prompt imports precedes the fresh text
              in it: a role of the schema, so that prompts are as short as hand-written ones (`<plan/> question`)

Fresh text outside roles needs all anonymous text before it to be in the prompt already. If conditional modules separate
the two, the last anonymous text becomes a module: its import completes all text before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias
from xml.sax.saxutils import escape, quoteattr

from ..prompt import Role as RoleName
from . import naming
from .documents import Library
from .items import Choice, Fresh, Getter, Item, Module, Role, Run, Scaffold, Slot, Use
from .items import always_imported, has_fresh, is_empty, joined, pieces_of, with_space, without_space
from .scope import Frame
from .values import nearest

# ---- Steps of a call ----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Import:
    path: str
    arguments: list[tuple[str, Getter]] = field(default_factory=list)
    inside: list[Step] = field(default_factory=list)


@dataclass(slots=True)
class Pick:
    select: Callable[[Frame], int]
    branches: list[list[Step]]


@dataclass(slots=True)
class Say:
    value: Getter


@dataclass(slots=True)
class Speak:
    role: RoleName
    inside: list[Step]


@dataclass(slots=True)
class UseDocuments:
    library: Library
    ids: Getter
    documents: dict[str, list[Step]]


Step: TypeAlias = Import | Pick | Say | Speak | UseDocuments


# ---- XML ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Element:
    """An element of PML. White space between elements would be text: line breaks are inside tags."""

    tag: str
    attributes: dict[str, str]
    children: list[Element | str] = field(default_factory=list)

    def text(self, text: str) -> None:
        if self.children and isinstance(self.children[-1], str):
            text = self.children.pop() + text  # type: ignore[operator]
        self.children.append(text)

    def element(self, tag: str, attributes: Mapping[str, str]) -> Element:
        child = Element(tag, dict(attributes))
        self.children.append(child)
        return child

    def write(self, out: list[str], indent: str = "") -> None:
        inline = self.tag == "param"
        out.append(f"<{self.tag}")
        out.extend(f" {name}={_quoted(value)}" for name, value in self.attributes.items())
        if not self.children:
            out.append("/>" if inline else f"\n{indent}/>")
            return
        deeper = indent + "  "
        out.append(f"\n{deeper}>")
        for child in self.children:
            if isinstance(child, str):
                out.append(escape(child, {"\r": "&#13;"}))
            else:
                child.write(out, deeper)
        out.append(f"</{self.tag}\n{indent}>")


def _quoted(value: str) -> str:
    return quoteattr(value, {"\n": "&#10;", "\t": "&#9;", "\r": "&#13;"})


class Holder:
    """What modules and parameters belong to: a module, or the schema (path "")."""

    def __init__(self, path: str = "") -> None:
        self.path = path
        self.names = naming.Names()
        self.parameters = naming.Names()
        self.arguments: list[tuple[str, Getter]] = []

    def path_of(self, name: str) -> str:
        return f"{self.path}/{name}" if self.path else name


# ---- Items of a stream --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Placed:
    """An item, and the names and attributes of the flattened modules that it is in. prefix: "with_kids." or ""."""

    item: Item
    prefix: str
    attributes: Mapping[str, str]

    @property
    def is_anonymous(self) -> bool:
        """Whether it is anonymous text, if its place allows that."""
        item = self.item
        return not self.prefix and (isinstance(item, Role) or (isinstance(item, Run) and not item.slots))

    @property
    def is_imported(self) -> bool:
        """Whether every prompt imports it."""
        return always_imported(self.item) or (
            bool(self.prefix) and isinstance(self.item, (Run, Role)) and not has_fresh(self.item)
        )


def expand(items: Iterable[Item], prefix: str, attributes: Mapping[str, str]) -> list[Placed]:
    """The items; modules with fresh text are replaced by their items, and spaces before fresh text belong to it."""
    stream: list[Placed] = []
    for placed in _expand(items, prefix, attributes):
        before, item = stream[-1] if stream else None, placed.item
        run = (
            without_space(before.item) if before and isinstance(before.item, Run) and isinstance(item, Fresh) else None
        )
        if before is not None and run is not None and isinstance(item, Fresh):
            stream[-1:] = [replace(before, item=run)] if run.pieces else []
            placed = replace(placed, item=replace(item, value=with_space(item.value)))
        stream.append(placed)
    return stream


def _expand(items: Iterable[Item], prefix: str, attributes: Mapping[str, str]) -> Iterator[Placed]:
    for item in items:
        if isinstance(item, Module) and has_fresh(item):
            yield from _expand(item.items, f"{prefix}{item.name}.", {**attributes, **item.attributes})
        elif not is_empty([item]) or isinstance(item, Scaffold):
            yield Placed(item, prefix, attributes)


# ---- Emission -----------------------------------------------------------------------------------------------------


class Emitter:
    """Builds one schema: the document under `root`, and the steps of a call."""

    def __init__(self, attributes: Mapping[str, str]) -> None:
        self.root = Element("schema", {**attributes, "xml:space": "preserve"})
        self.schema = Holder()
        self.after = ""  # the fresh parameter directly before, for names
        self.paths: dict[str, None] = {}
        self.scaffolds: list[tuple[str, Scaffold]] = []

    def emit(self, items: Iterable[Item]) -> list[Step]:
        """Everything, once."""
        stream = expand(items, "", {})
        n_opening = next((i for i, placed in enumerate(stream) if has_fresh(placed.item)), len(stream))
        opening, rest = stream[:n_opening], stream[n_opening:]
        last = rest[0].item if len(rest) == 1 else None
        closing = expand(last.items, rest[0].prefix, rest[0].attributes) if isinstance(last, Role) else []
        if isinstance(last, Role) and (n_before := _opening_of_role(closing)) is not None:
            steps = self.anonymous(opening, self.root, -1)
            role = self.root.element(last.role, {})
            steps += self.anonymous(closing[:n_before], role, -1)
            steps += self.flat(closing[n_before:], role)
        else:
            steps = self.anonymous(opening, self.root, _last_anonymous(opening) if _speaks_outside_roles(rest) else -1)
            steps += self.flat(rest, self.root)
        self.resolve_scaffolds()
        return steps

    # ---- anonymous text ----

    def anonymous(self, stream: list[Placed], out: Element, module: int) -> list[Step]:
        """The opening. module: index of the anonymous text that becomes a module, or -1."""
        steps: list[Step] = []
        for i, placed in enumerate(stream):
            item = placed.item
            if not placed.is_anonymous or i == module:
                steps += self.flat([placed], out)
            elif isinstance(item, Role):
                steps += self.inside(item.items, out.element(item.role, {}), self.schema)
            elif isinstance(item, Run):
                steps += self.inside([item], out, self.schema)
        return steps

    # ---- modules ----

    def inside(self, items: Iterable[Item], out: Element, holder: Holder) -> list[Step]:
        """Items without fresh text, in a module or in an anonymous role."""
        steps: list[Step] = []
        for item in items:
            if is_empty([item]) and not isinstance(item, Scaffold):
                continue
            if isinstance(item, Run) and item.slots and holder is self.schema:
                steps.append(self.module(Module(item.name(), (item,)), out, holder))
            elif isinstance(item, Run):
                for piece in pieces_of(item):
                    self.piece(piece, out, holder)
            elif isinstance(item, Role):
                steps += self.inside(item.items, out.element(item.role, {}), holder)
            else:
                steps += self.imported(Placed(item, "", {}), out, holder)
        return steps

    def piece(self, piece: str | Slot, out: Element, holder: Holder) -> None:
        if isinstance(piece, str):
            out.text(piece)
            return
        name = holder.parameters.take(naming.slug(piece.name))
        out.element("param", {"name": name, "len": str(piece.tokens)})
        holder.arguments.append((name, piece.value))

    def module(
        self, module: Module, out: Element, holder: Holder, prefix: str = "", more: Mapping[str, str] = {}
    ) -> Import:
        name = holder.names.take(prefix + module.name)
        element = out.element("module", {"name": name, **more, **module.attributes})
        own = Holder(holder.path_of(name))
        self.paths[own.path] = None
        return Import(own.path, own.arguments, self.inside(module.items, element, own))

    def imported(self, placed: Placed, out: Element, holder: Holder) -> list[Step]:
        """An item without fresh text that is no text and no role."""
        item, prefix, more = placed.item, placed.prefix, placed.attributes
        if isinstance(item, Module):
            return [self.module(item, out, holder, prefix, more)]
        if isinstance(item, Use):
            steps = {id: [self.module(one, out, holder, prefix, more)] for id, one in item.documents.items()}
            return [UseDocuments(item.library, item.ids, {id: list[Step](one) for id, one in steps.items()})]
        if isinstance(item, Choice):
            n_modules = sum(not is_empty(branch.items) for branch in item.branches)
            container = out.element("union", {}) if n_modules > 1 else out
            branches: list[list[Step]] = []
            for branch in item.branches:
                one = Module(branch.name, branch.items, branch.attributes)
                branches.append([] if is_empty(branch.items) else [self.module(one, container, holder, prefix, more)])
            return [Pick(item.select, branches)]
        assert isinstance(item, Scaffold)
        self.scaffolds.append((f"{holder.path}/" if holder.path else prefix, item))
        return []

    # ---- flattened items ----

    def flat(self, stream: Iterable[Placed], out: Element) -> list[Step]:
        """Items among fresh text: all constant text is in modules of the schema, and imported."""
        steps: list[Step] = []
        runs: list[Run] = []
        around: tuple[str, Mapping[str, str]] = "", {}

        def end_runs() -> None:
            if runs:
                run = joined(runs)
                steps.append(self.module(Module(run.name(self.after), (run,)), out, self.schema, *around))
                self.after = ""
                runs.clear()

        for placed in stream:
            if not isinstance(placed.item, Run) or around != (placed.prefix, placed.attributes):
                end_runs()
            around = placed.prefix, placed.attributes
            if isinstance(placed.item, Run):
                runs.append(placed.item)
            else:
                steps += self.flat_item(placed, out)
        end_runs()
        return steps

    def flat_item(self, placed: Placed, out: Element) -> list[Step]:
        item, prefix, more = placed.item, placed.prefix, placed.attributes
        if isinstance(item, Fresh):
            self.after = item.label
            return [Say(item.value)]
        if not has_fresh(item):
            name = _name_of_role(item, self.after) if isinstance(item, Role) else ""
            self.after = ""
            if isinstance(item, Role):
                return [self.module(Module(name, (item,)), out, self.schema, prefix, more)]
            return self.imported(placed, out, self.schema)
        if isinstance(item, Role):
            steps = self.flat(expand(item.items, prefix, more), out)
            return [Speak(item.role, steps)]
        if isinstance(item, Choice):
            branches = []
            for branch in item.branches:
                self.after = ""
                inside = expand(branch.items, f"{prefix}{branch.name}.", {**more, **branch.attributes})
                branches.append(self.flat(inside, out))
            self.after = ""
            return [Pick(item.select, branches)]
        assert isinstance(item, Use)
        documents = {id: self.flat(expand([one], prefix, more), out) for id, one in item.documents.items()}
        return [UseDocuments(item.library, item.ids, documents)]

    # ---- the end ----

    def resolve_scaffolds(self) -> None:
        for base, scaffold in self.scaffolds:
            known = [path.removeprefix(base) for path in self.paths if path.startswith(base)]
            for path in scaffold.paths:
                if base + path not in self.paths:
                    near = nearest(path, known)
                    scaffold.fail(
                        f"scaffold(): no module has the path "
                        f"{path!r}{near or ': write the names in schema(), as a/b'}"
                    )
            self.root.element("scaffold", {"modules": " ".join(base + path for path in scaffold.paths)})

    def pml(self, name: str) -> tuple[str, str]:
        """The schema's name, "{name}-{hash of its content}", and the document."""
        out: list[str] = []
        self.root.write(out)
        body = "".join(out)
        full = f"{name}-{naming.hash_of(body, 12)}"
        return full, body.replace("<schema", f"<schema name={_quoted(full)}", 1) + "\n"


def _opening_of_role(stream: list[Placed]) -> int | None:
    """The number of items before a module that every prompt imports; None if fresh text precedes it."""
    for i, placed in enumerate(stream):
        if has_fresh(placed.item):
            return None
        if placed.is_imported:
            return i
    return None


def _speaks_outside_roles(stream: Iterable[Placed]) -> bool:
    """Whether some prompt has fresh text outside its roles."""

    def speaks(item: Item) -> bool:
        if isinstance(item, Role):
            return False
        if isinstance(item, Choice):
            return any(speaks(one) for branch in item.branches for one in branch.items)
        if isinstance(item, (Module, Use)):
            return any(map(speaks, item.items if isinstance(item, Module) else item.documents.values()))
        return isinstance(item, Fresh)

    return any(speaks(placed.item) for placed in stream)


def _last_anonymous(stream: list[Placed]) -> int:
    """The anonymous text that must be a module, for fresh text to follow everything in the stream; -1: none."""
    last = max((i for i, placed in enumerate(stream) if placed.is_anonymous), default=-1)
    is_complete = any(placed.is_imported for placed in stream[last + 1 :])
    if last < 0 or is_complete or not any(map(_has_modules, stream[: last + 1])):
        return -1
    return last


def _has_modules(placed: Placed) -> bool:
    item = placed.item
    if isinstance(item, Role):
        return any(not isinstance(one, Run) or bool(one.slots) for one in item.items)
    return not placed.is_anonymous


def _name_of_role(role: Role, after: str) -> str:
    """For the module that contains a whole role: "user-after-question", "assistant-1a2b3c4d"."""
    first = role.items[0] if role.items else None
    if isinstance(first, Run):
        return f"{role.role}-{first.name(after).removeprefix('text-')}"
    named = first.name if isinstance(first, Module) else f"after-{after}" if after else "message"
    return f"{role.role}-{naming.slug(named)}"
