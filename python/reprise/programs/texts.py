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
from collections.abc import Callable
from typing import TypeAlias

from ..errors import InvalidError
from . import naming
from .items import Branch, Choice, Fresh, Getter, Item, Module, Run, Slot, is_empty, joined
from .scope import Expression, Frame, Parameter, Scope
from .values import Argument, Finite

MAX_VALUES = 256  # modules that one expression of finite parameters may become
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

Wrap: TypeAlias = Callable[[ast.expr], ast.expr]  # a leaf as its f-string formats it


def _bare(node: ast.expr) -> ast.expr:
    return node


def items_of_text(scope: Scope, node: ast.expr, *, cache: bool = True) -> list[Item]:
    """The items of text(node)."""
    items = _merge(_items(scope, node, _bare))
    return items if cache else [_uncached(item) for item in items]


def check_characters(scope: Scope, node: ast.AST, text: str) -> str:
    """ProgramError for a character that XML, hence a schema, cannot contain."""
    bad = _NOT_XML.search(text)
    if bad:
        scope.fail(node, f"constant text with the character U+{ord(bad[0]):04X}, which XML cannot contain: remove it")
    return text


# ---- Kinds of expressions -----------------------------------------------------------------------------------------


def _items(scope: Scope, node: ast.expr, wrap: Wrap) -> list[Item]:
    uses = scope.uses(wrap(node))
    if not uses:
        value = scope.constant(wrap(node))
        return [Run((check_characters(scope, node, str(value)),), _label(node, wrap))]
    if isinstance(node, ast.JoinedStr) and wrap is _bare:
        return [item for part in node.values for item in _items_of_part(scope, part)]
    if isinstance(node, ast.IfExp):
        return _items_of_conditional(scope, node, wrap)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and wrap is _bare and _adds_text(scope, node):
        return _items(scope, node.left, wrap) + _items(scope, node.right, wrap)
    if isinstance(node, ast.Name):
        binding = scope.lookup(node)
        if (
            isinstance(binding, Expression)
            and wrap is _bare
            and isinstance(binding.node, (ast.JoinedStr, ast.IfExp, ast.BinOp))
        ):
            return _items(binding.scope, binding.node, wrap)
        if isinstance(binding, Parameter) and isinstance(binding.kind, Argument):
            return [Run((Slot(binding.name, binding.kind.tokens, _as_text(scope.getter(wrap(node)))),))]
    for parameter in uses:
        if isinstance(parameter.kind, Argument):
            scope.fail(
                node,
                f"`{ast.unparse(node)}` computes with the argument {parameter.name!r}: write it alone, {{{parameter.name}}} with an "
                "optional format, or annotate it as str, which is fresh text",
            )
    if all(isinstance(parameter.kind, Finite) for parameter in uses):
        return _items_of_values(scope, node, wrap, uses)
    label = next(parameter.name for parameter in uses if not isinstance(parameter.kind, Finite))
    return [Fresh(_as_text(scope.getter(wrap(node))), label)]


def _label(node: ast.expr, wrap: Wrap) -> str:
    if wrap is not _bare:
        return ""
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
    """A part of an f-string: text, or {value!conversion:spec}. {value} alone formats text as it is."""
    if not isinstance(part, ast.FormattedValue):
        return _items(scope, part, _bare)

    conversion, spec = part.conversion, part.format_spec

    def wrap(node: ast.expr) -> ast.expr:
        formatted = ast.copy_location(ast.FormattedValue(node, conversion, spec), part)
        return ast.copy_location(ast.JoinedStr([formatted]), part)

    value = part.value
    is_plain = conversion == -1 and spec is None
    if is_plain and isinstance(value, ast.JoinedStr):
        return _items(scope, value, _bare)
    if isinstance(value, ast.Name) and not scope.uses(part) and is_plain:
        constant = scope.constant(value)
        if type(constant) is str:  # keeps the constant's name
            return _items(scope, value, _bare)
    if is_plain and isinstance(value, ast.Name):
        binding = scope.lookup(value)
        if isinstance(binding, Expression) and isinstance(binding.node, (ast.JoinedStr, ast.IfExp)):
            return _items_of_part(binding.scope, ast.copy_location(ast.FormattedValue(binding.node, -1, None), part))
    return _items(scope, value, wrap)


def _items_of_conditional(scope: Scope, node: ast.IfExp, wrap: Wrap) -> list[Item]:
    uses = scope.uses(node.test)
    if not uses:
        return _items(scope, node.body if scope.constant(node.test) else node.orelse, wrap)
    scope.check_finite(node.test, uses)
    test = scope.getter(node.test)
    name = naming.name_of_condition(node.test)
    sides = [tuple(_merge(_items(scope, side, wrap))) for side in (node.body, node.orelse)]
    branches = (Branch(name, sides[0]), Branch(naming.negated(name), sides[1]))
    return [Choice(branches, lambda frame: 0 if test(frame) else 1, not any(map(is_empty, sides)))]


def _items_of_values(scope: Scope, node: ast.expr, wrap: Wrap, uses: list[Parameter]) -> list[Item]:
    """A branch for each value that an expression of finite parameters can have."""
    scope.check_pure(wrap(node))
    outcomes = scope.outcomes(wrap(node), uses)
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
    value = scope.getter(wrap(node))
    index = {text: i for i, text in enumerate(texts)}
    prefix = naming.slug(uses[0].name)
    branches = tuple(Branch(_name_of_text(text, prefix), (Run((text,)),) if text else ()) for text in texts)

    def select(frame: Frame) -> int:
        text = str(value(frame))
        if text not in index:
            raise InvalidError(
                f"`{ast.unparse(node)}` has the value {text!r}, which the schema does not: it must have no side effects"
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
                merged[-1] = joined([merged[-1], item])
                continue
        merged.append(item)
    return merged


def _uncached(item: Item) -> Item:
    """The item of text(..., cache=False): its constant text is prefilled for each prompt."""
    attributes = {"cache": "false"}
    if isinstance(item, Run):
        return Module(item.name(), (item,), attributes)
    if isinstance(item, Choice):
        branches = [dataclasses.replace(branch, attributes=attributes) for branch in item.branches]
        return dataclasses.replace(item, branches=tuple(branches))
    return item
