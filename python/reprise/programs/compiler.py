# SPDX-License-Identifier: Apache-2.0
"""Statements of a program as items: the compiler of section 3.2 of "Prompt Cache", without executing the function.

    if, match     Choice; what constants decide is folded, and only the taken branch exists
    for           one Module for each item of a constant collection, or Use for the documents of a library
    with          Role, or a Module with attributes
    a call        Module with the called program's items, compiled for the constants it is called with
    name = ...    a constant, or an Expression

Names are resolved here: what is wrong with them is a ProgramError of schema().
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import TYPE_CHECKING, Any, cast

from . import documents, naming, plain, values
from .calls import arguments_of, bind, constants, module_arguments
from .documents import Library
from .items import Choice, Item, Module, Role, Scaffold, Use, branch_of, has_role, is_empty
from .scope import Binding, Constant, Expression, Frame, Scope, frames_of
from .texts import items_of_text
from .values import Argument

if TYPE_CHECKING:
    from .program import Program


@dataclass
class Compilation:
    """What one schema depends on: the versions of libraries it was compiled with."""

    libraries: dict[Library, tuple[int, dict[str, documents.Document]]]

    def snapshot(self, library: Library) -> dict[str, documents.Document]:
        if library not in self.libraries:
            version, known = library.snapshot()
            self.libraries[library] = version, dict(known)
        return self.libraries[library][1]


def compile_program(
    program: Program[Any],
    bindings: dict[str, Binding],
    compilation: Compilation,
    callers: tuple[Program[Any], ...] = (),
) -> tuple[Item, ...]:
    """The items of a program whose parameters have these bindings."""
    scope = Scope(program.source, cast(FunctionType, program.function), bindings)
    compiler = _Compiler(scope, (*callers, program), compilation)
    return tuple(compiler.body(program.source.function.body, is_top=True))


@dataclass
class _Clause:
    """A branch before it is compiled. test: None if it is always taken."""

    name: str
    test: ast.expr | None
    body: Sequence[ast.stmt]


class _Compiler:
    """Compiles the statements of one function, for one set of bindings."""

    def __init__(
        self, scope: Scope, programs: tuple[Program[Any], ...], compilation: Compilation, role: str = ""
    ) -> None:
        self.scope = scope
        self.role = role  # that the statements are in
        self.programs = programs  # from the outermost to this one
        self.compilation = compilation

    def body(self, body: Sequence[ast.stmt], *, is_top: bool = False) -> Iterator[Item]:
        for statement in body:
            yield from self.statement(statement, is_top)

    def statement(self, node: ast.stmt, is_top: bool) -> Iterator[Item]:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            yield from self.call(node.value, is_top)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            self.assign(node)
        elif isinstance(node, ast.If):
            yield from self.choice(list(self.clauses_of_if(node)), node)
        elif isinstance(node, ast.Match):
            yield from self.choice(list(self.clauses_of_match(node)), node)
        elif isinstance(node, ast.For):
            yield from self.loop(node)
        elif isinstance(node, ast.With):
            yield from self.enter(node, node.items, is_top)

    def assign(self, node: ast.Assign | ast.AnnAssign) -> None:
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        assert isinstance(target, ast.Name) and node.value is not None  # check_syntax
        binding: Binding
        if isinstance(node.value, ast.Name):
            binding = self.scope.lookup(node.value)
        elif self.scope.uses(node.value):
            binding = Expression(node.value, self.scope, self.scope.getter(node.value))
        else:
            binding = Constant(self.scope.constant(node.value))
        self.scope = self.scope.with_names({target.id: binding})

    # ---- if and match ----

    def clauses_of_if(self, node: ast.If) -> Iterator[_Clause]:
        first, clause = naming.name_of_condition(node.test), node
        yield _Clause(first, node.test, node.body)
        n_tests = 1
        while len(clause.orelse) == 1 and isinstance(clause.orelse[0], ast.If):
            clause = clause.orelse[0]
            n_tests += 1
            yield _Clause(naming.name_of_condition(clause.test), clause.test, clause.body)
        if clause.orelse:
            yield _Clause(naming.negated(first) if n_tests == 1 else "other", None, clause.orelse)

    def clauses_of_match(self, node: ast.Match) -> Iterator[_Clause]:
        for case in node.cases:
            test, name = self.test_of_pattern(node.subject, case.pattern)
            if case.guard is not None:
                name += "-and-" + naming.name_of_condition(case.guard)
                test = (
                    case.guard
                    if test is None
                    else ast.copy_location(ast.BoolOp(ast.And(), [test, case.guard]), node.subject)
                )
            yield _Clause(name, test, case.body)

    def test_of_pattern(self, subject: ast.expr, pattern: ast.pattern) -> tuple[ast.expr | None, str]:
        """A pattern of values as a condition, and its name."""
        prefix = naming.slug(ast.unparse(subject), "case")
        if isinstance(pattern, ast.MatchOr):
            parts = [self.test_of_pattern(subject, one) for one in pattern.patterns]
            tests = [test for test, _ in parts if test is not None]
            name = "-or-".join(name for _, name in parts)
            return (ast.copy_location(ast.BoolOp(ast.Or(), tests), subject) if len(tests) == len(parts) else None), name
        if isinstance(pattern, ast.MatchValue):
            name = naming.name_of_value(self.scope.constant(pattern.value), prefix)
            return ast.copy_location(ast.Compare(subject, [ast.Eq()], [pattern.value]), subject), name
        if isinstance(pattern, ast.MatchSingleton):
            constant = ast.copy_location(ast.Constant(pattern.value), subject)
            name = naming.name_of_value(pattern.value, prefix)
            return ast.copy_location(ast.Compare(subject, [ast.Is()], [constant]), subject), name
        return None, "other"

    def choice(self, clauses: list[_Clause], node: ast.AST) -> Iterator[Item]:
        """The items of the branches that constants leave."""
        left: list[_Clause] = []
        for clause in clauses:
            uses = self.scope.uses(clause.test) if clause.test is not None else []
            if uses:
                assert clause.test is not None
                self.scope.check_finite(clause.test, uses)
                left.append(clause)
            elif clause.test is None or self.scope.constant(clause.test):
                left.append(_Clause(clause.name, None, clause.body))
                break
        if left and left[0].test is None:
            yield from self.body(left[0].body)
            return
        branches = tuple(branch_of(clause.name, tuple(self.body(clause.body))) for clause in left)
        if is_empty(item for branch in branches for item in branch.items):
            return
        tests = [self.scope.getter(clause.test) for clause in left if clause.test is not None]

        def select(frame: Frame) -> int:
            return next((i for i, test in enumerate(tests) if test(frame)), len(tests))

        has_all = not any(is_empty(branch.items) for branch in branches)
        covers = has_all and (len(tests) < len(left) or self.covers(left, select))
        yield Choice(branches, select, covers)

    def covers(self, clauses: list[_Clause], select: Any) -> bool:
        """Whether one of the tests holds for all values of the parameters."""
        tests = [clause.test for clause in clauses if clause.test is not None]
        if not all(map(self.scope.is_pure, tests)):
            return False
        uses = list(dict.fromkeys(parameter for test in tests for parameter in self.scope.uses(test)))
        try:
            return all(frame is not None and select(frame) < len(tests) for frame in frames_of(uses))
        except Exception:  # a test that raises for values which another test excludes
            return False

    # ---- for ----

    def loop(self, node: ast.For) -> Iterator[Item]:
        source = node.iter
        if isinstance(source, ast.Call) and self.scope.static(source.func) is documents.use:
            yield self.use(node, source)
            return
        uses = self.scope.uses(source)
        if uses:
            self.scope.fail(
                source,
                f"a loop over the parameter {uses[0].name!r}: a loop's collection is constant; for "
                "documents known at run time "
                "write `for d in use(documents, ids)`",
            )
        collection = self.scope.constant(source)
        if isinstance(collection, (set, frozenset)):
            self.scope.fail(source, "a loop over a set, whose order changes from run to run: write sorted(...)")
        if not hasattr(collection, "__iter__") or (
            isinstance(source, (ast.Name, ast.Attribute)) and hasattr(collection, "__next__")
        ):
            self.scope.fail(
                source,
                f"a loop over {type(collection).__name__}, which is no collection: loop over a list, "
                "tuple, dict or range",
            )
        variable = next(one.id for one in ast.walk(node.target) if isinstance(one, ast.Name))
        for i, item in enumerate(collection):
            yield from self.turn(node, item, naming.name_of_item(item, variable, i))

    def turn(self, node: ast.For, item: object, name: str) -> Iterator[Module]:
        """One turn of a loop."""
        bindings = dict(self.bind_target(node.target, item))
        items = tuple(
            _Compiler(self.scope.with_names(bindings), self.programs, self.compilation, self.role).body(node.body)
        )
        if not is_empty(items):
            yield Module(name, items)

    def bind_target(self, target: ast.expr, item: Any) -> Iterator[tuple[str, Binding]]:
        if isinstance(target, ast.Name):
            yield target.id, Constant(item)
        elif isinstance(target, (ast.Tuple, ast.List)):
            try:
                parts = list(item)
            except TypeError:
                parts = []
            if len(parts) != len(target.elts):
                self.scope.fail(target, f"an item of the loop has no {len(target.elts)} values: {item!r:.60}")
            for one, part in zip(target.elts, parts):
                yield from self.bind_target(one, part)

    def use(self, node: ast.For, call: ast.Call) -> Item:
        if len(call.args) != 2 or call.keywords or not isinstance(node.target, ast.Name):
            self.scope.fail(node.iter, "write `for d in use(documents, ids)`: a library, and the ids of this call")
        library = None if self.scope.uses(call.args[0]) else self.scope.constant(call.args[0])
        if not isinstance(library, Library):
            self.scope.fail(
                call.args[0], 'use() takes a library of documents: documents = library("docs"), outside the function'
            )
        for parameter in self.scope.uses(call.args[1]):
            if isinstance(parameter.kind, Argument):
                self.scope.fail(call.args[1], f"ids in the argument {parameter.name!r}: annotate it as list[str]")
        modules = {
            id: Module(
                library.module_name(id), tuple(one for turn in self.turn(node, document, id) for one in turn.items)
            )
            for id, document in self.compilation.snapshot(library).items()
        }
        return Use(library, self.scope.getter(call.args[1]), modules)

    # ---- with ----

    def enter(self, node: ast.With, items: list[ast.withitem], is_top: bool) -> Iterator[Item]:
        if not items:
            yield from self.body(node.body, is_top=is_top)
            return
        call = items[0].context_expr
        word = self.scope.static(call.func) if isinstance(call, ast.Call) else None
        if isinstance(call, ast.Call) and word is plain.module:
            name, attributes = module_arguments(self.scope, call)
            inner = tuple(self.enter(node, items[1:], False))
            if not is_empty(inner):
                yield Module(name, inner, attributes)
            return
        role = plain.ROLE_WORDS.get(word) if word is not None and inspect.isfunction(word) else None
        if not isinstance(call, ast.Call) or role is None:
            self.scope.fail(call, '`with` takes system(), user(), assistant(), tool() or module("name")')
        if call.args or call.keywords:
            self.scope.fail(call, f"{role}() takes no arguments: remove them")
        if self.role:
            self.scope.fail(call, f"{role}() inside {self.role}(): roles do not nest: end {self.role}() first")
        self.role = role
        inner = tuple(self.enter(node, items[1:], False))
        self.role = ""
        yield Role(role, inner)

    # ---- calls ----

    def call(self, call: ast.Call, is_top: bool) -> Iterator[Item]:
        from .program import Program

        word = self.scope.static(call.func)
        if word is plain.text:
            yield from self.text(call)
        elif word is plain.scaffold:
            yield self.scaffold(call, is_top)
        elif isinstance(word, Program):
            yield from self.program(call, word)
        elif word is plain.module or (inspect.isfunction(word) and word in plain.ROLE_WORDS):
            self.scope.fail(call, f"`{ast.unparse(call)}` alone has no effect: write `with {ast.unparse(call)}:`")
        else:
            name = ast.unparse(call.func)
            self.scope.fail(
                call,
                f"`{name}()` is no program: decorate it with @program if it has text, or write "
                f"text({name}(...)) if it returns text",
            )

    def text(self, call: ast.Call) -> Iterator[Item]:
        if len(call.args) != 1 or isinstance(call.args[0], ast.Starred):
            self.scope.fail(call, "text() takes one expression: write an f-string for several")
        options = constants(self.scope, ast.copy_location(ast.Call(call.func, [], call.keywords), call), "text", ())
        for key in options:
            if key != "cache":
                self.scope.fail(
                    call,
                    f'text() has no {key!r}: it has cache=False; write `with module("name", ...):` '
                    "for other attributes",
                )
        yield from items_of_text(self.scope, call.args[0], cache=bool(options.get("cache", True)))

    def scaffold(self, call: ast.Call, is_top: bool) -> Item:
        if not is_top:
            self.scope.fail(call, "scaffold() in a branch, a loop or a module: call it at the function's top level")
        if len(call.args) < 2 or call.keywords:
            self.scope.fail(call, 'scaffold() takes the paths of two modules or more: scaffold("plan", "plan/miami")')
        paths = tuple(self.scope.constant(one) for one in call.args if not self.scope.uses(one))
        if len(paths) < len(call.args) or not all(isinstance(path, str) for path in paths):
            self.scope.fail(call, "a path of scaffold() that is no constant str: modules have names at compile time")
        return Scaffold(paths, lambda message: self.scope.fail(call, message))

    def program(self, call: ast.Call, program: Program[Any]) -> Iterator[Item]:
        if program in self.programs:
            chain = " -> ".join(one.__name__ for one in (*self.programs[self.programs.index(program) :], program))
            self.scope.fail(call, f"recursion ({chain}): a schema is finite: loop over a constant collection instead")
        bindings = {
            name: bind(self.scope, program, name, node)
            for name, node in arguments_of(self.scope, call, program).items()
        }
        for name, parameter in program.signature.parameters.items():
            if name not in bindings:
                bindings[name] = Constant(parameter.default)
        items = compile_program(program, bindings, self.compilation, self.programs)
        if self.role and any(map(has_role, items)):
            self.scope.fail(
                call,
                f"{program.__name__}() has a role and is called in {self.role}(): roles do not nest: call it outside",
            )
        if not is_empty(items):
            attributes = {key: value for key, value in program.attributes.items() if key != "layout"}
            yield Module(naming.slug(program.__name__), items, attributes)
