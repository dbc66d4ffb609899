# SPDX-License-Identifier: Apache-2.0
"""Names and expressions of a program: what is constant at compile time, and how the rest is computed at a call.

A name is bound to a Constant, to a Parameter (finite, an argument, or fresh), or to an Expression of those that a line
assigned. Closures, globals and builtins are constants: the schema has their values of when it is compiled.

Expressions are evaluated by Python itself: each becomes a lambda of the names in it. Constant expressions may call what
depends on its arguments only (PURE_*); everything else is refused at compile time, because its result might change.
Run-time expressions may call anything, are evaluated at most once a call if assigned, and must have no side effects.
"""

from __future__ import annotations

import ast
import builtins
import itertools
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

from . import values
from .items import Getter
from .source import Source
from .values import Argument, Finite, Kind

MAX_OUTCOMES = 4096  # combinations of finite parameters that are tried at compile time

PURE_BUILTINS = frozenset(
    "abs all any ascii bin bool bytes chr dict divmod enumerate filter float format frozenset hex int isinstance len "
    "list map max min oct ord pow range repr reversed round set sorted str sum tuple zip".split()
)
PURE_MODULES = frozenset("html inspect json math operator string textwrap unicodedata".split())
PURE_METHODS = frozenset(
    name for kind in (str, bytes, int, float, tuple, frozenset, range) for name in dir(kind) if not name.startswith("_")
) | frozenset("items keys values get copy".split())


# ---- Bindings -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    value: Any


@dataclass(frozen=True, slots=True, eq=False)
class Parameter:
    """A value that each call gives. compute: from the frame of the call."""

    name: str
    kind: Kind
    compute: Getter


@dataclass(frozen=True, slots=True, eq=False)
class Expression:
    """What a line assigned, with the names of that line."""

    node: ast.expr
    scope: Scope
    compute: Getter


Binding: TypeAlias = Constant | Parameter | Expression


class Frame:
    """The values of one call."""

    __slots__ = ("arguments", "_known")

    def __init__(self, arguments: Mapping[str, Any], known: Mapping[Binding, Any] | None = None) -> None:
        self.arguments = arguments
        self._known: dict[Binding, Any] = dict(known or {})

    def value(self, binding: Binding) -> Any:
        """Computed at most once."""
        if isinstance(binding, Constant):
            return binding.value
        if binding not in self._known:
            self._known[binding] = binding.compute(self)
        return self._known[binding]


# ---- Free names ---------------------------------------------------------------------------------------------------


def free_names(node: ast.AST, bound: frozenset[str] = frozenset()) -> Iterator[ast.Name]:
    """The names that an expression reads from outside, in order."""
    if isinstance(node, ast.Name):
        if node.id not in bound:
            yield node
    elif isinstance(node, ast.Lambda):
        arguments = node.args
        named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        for default in (*arguments.defaults, *arguments.kw_defaults):
            if default is not None:
                yield from free_names(default, bound)
        yield from free_names(node.body, bound | {one.arg for one in named if one})
    elif isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
        yield from free_names(node.generators[0].iter, bound)
        for generator in node.generators:
            bound = bound | {one.id for one in ast.walk(generator.target) if isinstance(one, ast.Name)}
        for child in ast.iter_child_nodes(node):
            yield from _of_comprehension(child, bound, node.generators[0].iter)
    else:
        for child in ast.iter_child_nodes(node):
            yield from free_names(child, bound)


def _of_comprehension(node: ast.AST, bound: frozenset[str], first: ast.expr) -> Iterator[ast.Name]:
    for child in ast.iter_child_nodes(node) if isinstance(node, ast.comprehension) else [node]:
        if child is not first:
            yield from free_names(child, bound)


# ---- Scope --------------------------------------------------------------------------------------------------------


class Scope:
    """The names of one function, as far as it has been compiled."""

    def __init__(self, source: Source, function: types.FunctionType, bindings: Mapping[str, Binding]) -> None:
        self.source = source
        self.function = function
        self.bindings = dict(bindings)

    def with_names(self, more: Mapping[str, Binding]) -> Scope:
        """A scope with more names, for one turn of a loop or for an expression that is assigned."""
        return Scope(self.source, self.function, {**self.bindings, **more})

    def fail(self, node: ast.AST, message: str) -> NoReturn:
        values.fail(self.source.filename, node, message)

    def lookup(self, node: ast.Name) -> Binding:
        """What a name means. ProgramError if it means nothing."""
        name, code = node.id, self.function.__code__
        if name in self.bindings:
            return self.bindings[name]
        if name in code.co_freevars:
            try:
                return Constant((self.function.__closure__ or ())[code.co_freevars.index(name)].cell_contents)
            except ValueError:
                self.fail(node, f"{name!r} has no value yet: assign it before the schema is used")
        if name in code.co_varnames or name in code.co_cellvars:
            self.fail(node, f"{name!r} has no value here: assign it before, at the function's top level")
        if name in self.function.__globals__:
            return Constant(self.function.__globals__[name])
        if hasattr(builtins, name):
            return Constant(getattr(builtins, name))
        known = {*self.bindings, *self.function.__globals__}
        self.fail(node, f"the name {name!r} is not defined{values.nearest(name, known)}")

    def uses(self, node: ast.AST) -> list[Parameter]:
        """The parameters that an expression depends on; none: it is constant."""
        found: dict[Parameter, None] = {}
        for name in free_names(node):
            binding = self.lookup(name)
            if isinstance(binding, Parameter):
                found[binding] = None
            elif isinstance(binding, Expression):
                found.update(dict.fromkeys(binding.scope.uses(binding.node)))
        return list(found)

    # ---- evaluation ----

    def getter(self, node: ast.expr) -> Getter:
        """Computes an expression at a call."""
        if isinstance(node, ast.Name):
            binding = self.lookup(node)
            return lambda frame: frame.value(binding)
        names = sorted({name.id for name in free_names(node) if not self._is_global(name.id)})
        bindings = [self.lookup(ast.Name(name)) for name in names]
        compute = self._function(node, names)
        return lambda frame: compute(*[frame.value(binding) for binding in bindings])

    def _is_global(self, name: str) -> bool:
        return name not in self.bindings and name not in self.function.__code__.co_freevars

    def _function(self, node: ast.expr, names: list[str]) -> Callable[..., Any]:
        arguments = ast.arguments(
            posonlyargs=[], args=[ast.arg(name) for name in names], kwonlyargs=[], kw_defaults=[], defaults=[]
        )
        tree = ast.Expression(ast.copy_location(ast.Lambda(arguments, node), node))
        code = compile(ast.fix_missing_locations(tree), self.source.filename, "eval")
        function: Callable[..., Any] = eval(code, self.function.__globals__)
        return function

    def constant(self, node: ast.expr) -> Any:
        """The value of an expression without parameters."""
        if isinstance(node, ast.Constant):
            return node.value
        self.check_pure(node)
        try:
            return self.getter(node)(Frame({}))
        except values.ProgramError:
            raise
        except Exception as e:  # whatever the author's constants raise
            self.fail(node, f"`{ast.unparse(node)}` has no value: {type(e).__name__}: {e}")

    def outcomes(self, node: ast.expr, uses: list[Parameter]) -> list[Any] | None:
        """The values of an expression for all values of its finite parameters. None: too many, or not all are known."""
        found = []
        if not self.is_pure(node):
            return None
        compute = self.getter(node)
        for frame in frames_of(uses):
            if frame is None:
                return None
            try:
                found.append(compute(frame))
            except Exception:  # it raises at the call, too
                return None
        return found

    # ---- calls at compile time ----

    def is_pure(self, node: ast.AST) -> bool:
        return self._impure_call(node) is None

    def check_pure(self, node: ast.AST) -> None:
        call = self._impure_call(node)
        if call is not None:
            self.fail(
                call,
                f"`{ast.unparse(call.func)}()` is not called at compile time: assign its result to a "
                "constant outside the "
                "function, or pass it as a parameter",
            )

    def _impure_call(self, node: ast.AST) -> ast.Call | None:
        """The first call that may not happen at compile time, also in what a name was assigned."""
        for one in ast.walk(node):
            if isinstance(one, ast.Call) and not self._is_pure_call(one):
                return one
            binding = self.bindings.get(one.id) if isinstance(one, ast.Name) else None
            call = binding.scope._impure_call(binding.node) if isinstance(binding, Expression) else None
            if call is not None:
                return call
        return None

    def _is_pure_call(self, call: ast.Call) -> bool:
        function = call.func
        if (
            isinstance(function, ast.Attribute)
            and function.attr in PURE_METHODS
            and not self._is_module(function.value)
        ):
            return True
        module = getattr(self._static(function), "__module__", None)
        name = getattr(self._static(function), "__name__", "")
        if module == "builtins":
            return name in PURE_BUILTINS and self._static(function) is getattr(builtins, name)
        return isinstance(module, str) and module.split(".")[0].lstrip("_") in PURE_MODULES

    def _is_module(self, node: ast.expr) -> bool:
        return isinstance(self._static(node), types.ModuleType)

    def _static(self, node: ast.expr) -> Any:
        """What a dotted name means, or None."""
        if isinstance(node, ast.Attribute):
            return getattr(self._static(node.value), node.attr, None)
        if not isinstance(node, ast.Name):
            return None
        try:
            binding = self.lookup(node)
        except values.ProgramError:  # a name of a comprehension
            return None
        return binding.value if isinstance(binding, Constant) else None

    def static(self, node: ast.expr) -> Any:
        """What a dotted name means; None if it is another expression. ProgramError for an unknown name."""
        if isinstance(node, ast.Name):
            self.lookup(node)
        return self._static(node)

    # ---- conditions ----

    def check_finite(self, node: ast.expr, uses: list[Parameter]) -> None:
        """ProgramError unless the expression depends on finite parameters only."""
        for parameter in uses:
            if isinstance(parameter.kind, Argument):
                self.fail(node, f"a condition on the argument {parameter.name!r}: {_DECIDE}")
            if not isinstance(parameter.kind, Finite):
                self.fail(node, f"a condition on run-time text ({parameter.name!r}): {_DECIDE}")


_DECIDE = "annotate the parameter as bool, Literal or an Enum, or decide before the call and pass a bool"


def frames_of(uses: list[Parameter]) -> Iterator[Frame | None]:
    """A frame for each combination of the finite parameters' values; None if there are too many or others."""
    domains = [parameter.kind.values if isinstance(parameter.kind, Finite) else () for parameter in uses]
    n = 1
    for domain in domains:
        n *= len(domain)
    if n > MAX_OUTCOMES or not all(domains):
        yield None
        return
    for combination in itertools.product(*domains):
        yield Frame({}, dict(zip(uses, combination)))
