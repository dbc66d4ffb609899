# SPDX-License-Identifier: Apache-2.0
"""Calls in programs: the constant arguments of words, and what the parameters of a called program are bound to."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

from .. import _abi
from . import naming, values
from .items import Getter
from .scope import Binding, Constant, Frame, Parameter, Scope
from .values import Argument, Finite, Kind, accepts, allowed

if TYPE_CHECKING:
    from .program import Program

# ---- Attributes of PML --------------------------------------------------------------------------------------------

_ATTRIBUTES = {  # of module() and @program, with the values that are known here; an engine checks the rest
    "keep": re.compile(r"auto|\d+(\.\d+)?%"),
    "kv": re.compile("|".join(_abi.KV_FORMATS)),
    "cache": re.compile("true|false"),
    "ttl": re.compile(r"[1-9]\d*[smhd]?"),
    "pin": re.compile("true|false"),
    "scope": re.compile("path|module"),
    "anchor": re.compile("none|bos"),
    "quality": re.compile(r"reuse|exact|scaffold|(link|blend|focus):[1-9]\d*"),
    "layout": re.compile("packed|fixed"),
}


def attribute(name: str, value: object) -> str:
    """An attribute of PML from its Python value. ValueError: it has no such value."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if not _ATTRIBUTES[name].fullmatch(text):
        raise ValueError(
            f'{name}={value!r} is no value of this attribute: see docs/pml.md, e.g. keep="50%", kv="int8", ttl="1h"'
        )
    return text


# ---- Words --------------------------------------------------------------------------------------------------------


def constants(scope: Scope, call: ast.Call, word: str, names: tuple[str, ...]) -> dict[str, Any]:
    """The arguments of a word by name; all of them constants."""
    if len(call.args) > len(names) or any(isinstance(one, ast.Starred) for one in call.args):
        scope.fail(call, f"{word}() takes {len(names)} positional argument{'s' * (len(names) != 1)}")
    arguments = dict(zip(names, call.args))
    for keyword in call.keywords:
        if keyword.arg is None:
            scope.fail(call, f"** in {word}(): write each argument")
        arguments[keyword.arg] = keyword.value
    for value in arguments.values():
        if scope.uses(value):
            scope.fail(value, f"`{ast.unparse(value)}` is not constant: an argument of {word}() is part of the schema")
    return {name: scope.constant(value) for name, value in arguments.items()}


def module_arguments(scope: Scope, call: ast.Call) -> tuple[str, dict[str, str]]:
    arguments = constants(scope, call, "module", ("name",))
    name = arguments.pop("name", None)
    if not isinstance(name, str) or naming.slug(name) != name or name in naming.RESERVED:
        scope.fail(
            call,
            f"module({name!r}): a module's name has letters, digits, '-', '_' and '.', and is not one "
            "of PML's elements",
        )
    attributes = {}
    for key, value in arguments.items():
        if key not in _ATTRIBUTES or key == "layout":
            scope.fail(call, f"module() has no {key!r}{values.nearest(key, _ATTRIBUTES)}")
        if value is not None:
            try:
                attributes[key] = attribute(key, value)
            except ValueError as e:
                scope.fail(call, str(e))
    return name, attributes


# ---- Called programs ----------------------------------------------------------------------------------------------


def arguments_of(scope: Scope, call: ast.Call, program: Program[Any]) -> dict[str, ast.expr]:
    """The arguments of a call by parameter, as Python binds them."""
    for one in call.args:
        if isinstance(one, ast.Starred):
            scope.fail(one, f"* in a call of {program.__name__}(): write each argument")
    for keyword in call.keywords:
        if keyword.arg is None:
            scope.fail(keyword.value, f"** in a call of {program.__name__}(): write each argument")
    try:
        bound = program.signature.bind(*call.args, **{str(one.arg): one.value for one in call.keywords})
    except TypeError as e:
        scope.fail(call, f"{program.__name__}(): {e}: its signature is {program.__name__}{program.signature}")
    return dict(bound.arguments)


def bind(scope: Scope, program: Program[Any], name: str, node: ast.expr) -> Binding:
    """What a parameter of a called program is: a constant, or computed at the call of the outermost one."""
    kind: Kind = program.kinds[name]
    uses = scope.uses(node)
    if not uses:
        value = scope.constant(node)
        if not accepts(kind, value):
            scope.fail(node, f"{program.__name__}(): {name}={value!r}: give {allowed(kind)}")
        return Constant(value)
    if isinstance(kind, Finite):
        for parameter in uses:
            if not isinstance(parameter.kind, Finite):
                scope.fail(
                    node,
                    f"{program.__name__}(): {name} is a run-time value ({parameter.name!r}): give {allowed(kind)}",
                )
    if any(isinstance(parameter.kind, Argument) for parameter in uses) and not isinstance(node, ast.Name):
        scope.fail(
            node,
            f"`{ast.unparse(node)}` computes with an argument: pass the parameter itself to {program.__name__}()",
        )
    return Parameter(name, kind, checked(program.__name__, name, kind, scope.getter(node)))


def checked(program: str, name: str, kind: Kind, getter: Getter) -> Getter:
    """A parameter's value, which must be one of its kind."""

    def compute(frame: Frame) -> Any:
        value = getter(frame)
        values.check(program, name, kind, value)
        return value

    return compute
