# SPDX-License-Identifier: Apache-2.0
"""Expressions of text(...) as items: what is constant, what is a parameter, what a condition decides, what is fresh.

    "text", CONSTANT, f"{CONSTANT:>8}"   Run: evaluated at compile time
    f"for {duration}", duration: Arg     Run with a Slot: the value is formatted at the call
    A if c else B                        Choice of the items of A and B
    city, f"{city}", c finite            Choice of its values
    question, question.strip()           Fresh: evaluated at the call
"""

from __future__ import annotations

import ast
import dataclasses
import re
from dataclasses import dataclass

from ..errors import InvalidError
from . import naming
from .items import Branch, Choice, Fresh, Getter, Item, Module, Run, Slot, is_empty
from .scope import Expression, Frame, Parameter, Scope
from .values import Argument, Finite

MAX_VALUES = 256  # modules that one expression of finite parameters may become
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class Format:
    """How an f-string formats an expression: {value!conversion:spec}; in text(value) alone it does not."""

    part: ast.FormattedValue | None = None

    @property
    def is_plain(self) -> bool:
        """Whether text remains as it is."""
        return self.part is None or (self.part.conversion == -1 and self.part.format_spec is None)

    @property
    def has_names(self) -> bool:
        """Whether the format itself depends on names."""
        return self.part is not None and any(
            isinstance(one, ast.Name) for one in ast.walk(self.part.format_spec or ast.Pass())
        )

    def around(self, node: ast.expr) -> ast.expr:
        """The expression of the formatted value."""
        if self.part is None:
            return node
        formatted = ast.copy_location(ast.FormattedValue(node, self.part.conversion, self.part.format_spec), self.part)
        return ast.copy_location(ast.JoinedStr([formatted]), self.part)


def items_of_text(scope: Scope, node: ast.expr, *, cache: bool = True) -> list[Item]:
    """The items of text(node)."""
    items = _merge(_items(scope, node, Format()))
    return items if cache else [_uncached(item) for item in items]


def check_characters(scope: Scope, node: ast.AST, text: str) -> str:
    """ProgramError for a character that XML, hence a schema, cannot contain."""
    bad = _NOT_XML.search(text)
    if bad:
        scope.fail(node, f"constant text with the character U+{ord(bad[0]):04X}, which XML cannot contain: remove it")
    return text


# ---- Kinds of expressions -----------------------------------------------------------------------------------------


def _items(scope: Scope, node: ast.expr, form: Format) -> list[Item]:
    uses = scope.uses(form.around(node))
    if not uses:
        value = scope.constant(form.around(node))
        return [Run((check_characters(scope, node, str(value)),), _label(node) if form.is_plain else "")]
    if isinstance(node, ast.JoinedStr) and form.is_plain:
        return [item for part in node.values for item in _items_of_part(scope, part)]
    if isinstance(node, ast.IfExp):
        return _items_of_conditional(scope, node, form)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and form.is_plain and _adds_text(scope, node):
        return _items(scope, node.left, form) + _items(scope, node.right, form)
    if isinstance(node, ast.Name):
        binding = scope.lookup(node)
        if isinstance(binding, Expression) and isinstance(binding.node, _STRUCTURE) and not form.has_names:
            return _items(binding.scope, binding.node, form)
        if isinstance(binding, Parameter) and isinstance(binding.kind, Argument):
            return [Run((Slot(binding.name, binding.kind.tokens, _as_text(scope.getter(form.around(node)))),))]
    for parameter in uses:
        if isinstance(parameter.kind, Argument):
            scope.fail(
                node,
                f"`{ast.unparse(node)}` computes with the argument {parameter.name!r}: write it alone, "
                f"{{{parameter.name}}} with an optional format, or annotate it as str, which is fresh text",
            )
    if all(isinstance(parameter.kind, Finite) for parameter in uses):
        return _items_of_values(scope, node, form, uses)
    label = next(parameter.name for parameter in uses if not isinstance(parameter.kind, Finite))
    return [Fresh(_as_text(scope.getter(form.around(node))), label)]


_STRUCTURE = (ast.JoinedStr, ast.IfExp, ast.BinOp)  # expressions that may be more than one item


def _label(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _as_text(getter: Getter) -> Getter:
    return lambda frame: str(getter(frame))


def _adds_text(scope: Scope, node: ast.BinOp) -> bool:
    """Whether one side is constant text; the other one must be text then, and may be split off."""
    uses = scope.uses(node)
    if all(isinstance(parameter.kind, (Argument, Finite)) for parameter in uses):
        return False
    sides = [side for side in (node.left, node.right) if not scope.uses(side)]
    return any(isinstance(scope.constant(side), str) for side in sides)


def _items_of_part(scope: Scope, part: ast.expr) -> list[Item]:
    """A part of an f-string: text, or a formatted value."""
    if isinstance(part, ast.FormattedValue):
        return _items(scope, part.value, Format(part))
    return _items(scope, part, Format())


def _items_of_conditional(scope: Scope, node: ast.IfExp, form: Format) -> list[Item]:
    """A if c else B if d else C: one choice, like if, elif, else."""
    tests: list[Getter] = []
    branches: list[Branch] = []
    rest: ast.expr = node
    while isinstance(rest, ast.IfExp):
        uses = scope.uses(rest.test)
        if uses:
            scope.check_finite(rest.test, uses)
            tests.append(scope.getter(rest.test))
            branches.append(_branch(naming.name_of_condition(rest.test), scope, rest.body, form))
            rest = rest.orelse
        else:
            rest = rest.body if scope.constant(rest.test) else rest.orelse
    if not tests:
        return _items(scope, rest, form)
    last = naming.negated(branches[0].name) if len(tests) == 1 else "other"
    branches.append(_branch(last, scope, rest, form))

    def select(frame: Frame) -> int:
        return next((i for i, test in enumerate(tests) if test(frame)), len(tests))

    return [Choice(tuple(branches), select, not any(is_empty(branch.items) for branch in branches))]


def _branch(name: str, scope: Scope, node: ast.expr, form: Format) -> Branch:
    return Branch(name, tuple(_merge(_items(scope, node, form))))


def _items_of_values(scope: Scope, node: ast.expr, form: Format, uses: list[Parameter]) -> list[Item]:
    """A branch for each value that an expression of finite parameters can have."""
    scope.check_pure(form.around(node))
    outcomes = scope.outcomes(form.around(node), uses)
    if outcomes is None:
        scope.fail(
            node,
            f"`{ast.unparse(node)}` raises for some values of its parameters, or has too many: write `match` or `if`",
        )
    texts = list(dict.fromkeys(check_characters(scope, node, str(value)) for value in outcomes))
    if len(texts) > MAX_VALUES:
        scope.fail(node, f"`{ast.unparse(node)}` has {len(texts)} values, each of them a module: at most {MAX_VALUES}")
    if len(texts) == 1:
        return [Run((texts[0],))]
    value = scope.getter(form.around(node))
    index = {text: i for i, text in enumerate(texts)}
    prefix = naming.slug(uses[0].name)
    branches = tuple(Branch(_name_of_text(text, prefix), (Run((text,)),) if text else ()) for text in texts)

    def select(frame: Frame) -> int:
        text = str(value(frame))
        if text not in index:
            raise InvalidError(
                f"`{ast.unparse(node)}` has the value {text!r}, which the schema does not: it must "
                "have no side effects"
            )
        return index[text]

    return [Choice(branches, select, "" not in index)]


def _name_of_text(text: str, prefix: str) -> str:
    return naming.slug(text, prefix) if len(text) <= naming.MAX_BYTES else f"{prefix}-{naming.hash_of(text)}"


# ---- Runs ---------------------------------------------------------------------------------------------------------


def _merge(items: list[Item]) -> list[Item]:
    """Adjacent runs of one text as one, without empty ones."""
    merged: list[Item] = []
    for item in items:
        if isinstance(item, Run):
            item = Run(tuple(piece for piece in item.pieces if piece != ""), item.label)
            if not item.pieces:
                continue
            if merged and isinstance(merged[-1], Run):
                merged[-1] = Run(merged[-1].pieces + item.pieces)  # the text is more than one constant
                continue
        merged.append(item)
    return merged


def _uncached(item: Item) -> Item:
    """The item of text(..., cache=False): its constant text is prefilled for each prompt."""
    attributes = {"cache": "false"}
    if isinstance(item, Run):
        return Module(item.name(), (item,), attributes, is_text=True)
    if isinstance(item, Choice):
        branches = [dataclasses.replace(branch, attributes=attributes) for branch in item.branches]
        return dataclasses.replace(item, branches=tuple(branches))
    return item
