# SPDX-License-Identifier: Apache-2.0
"""The source of a program: its syntax tree with true lines, and the check of its syntax when it is decorated.

What a program may contain: text(...), calls, `with`, `if`, `match`, `for`, and assignments at its top level. Everything
else is refused here, before any name is resolved, with file:line:column and what to write instead.
"""

from __future__ import annotations

import ast
import linecache
import threading
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from .values import fail


@dataclass(frozen=True, slots=True)
class Source:
    """A function's syntax tree, and the file of its lines."""

    filename: str
    function: ast.FunctionDef


@dataclass(frozen=True, slots=True)
class _File:
    text: str
    functions: dict[tuple[str, int], ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda]


_files: dict[str, _File] = {}  # the last ones, parsed once for all programs of a file
_MAX_FILES = 16
_lock = threading.Lock()


def read(function: Any) -> Source:
    """The source of a function. ProgramError if it is no `def`, or its source is missing."""
    if not isinstance(function, FunctionType):
        fail(
            str(getattr(function, "__module__", "?")),
            1,
            f"@program decorates a function, not {function!r}: write `def`",
        )
    code = function.__code__
    filename, line = code.co_filename, code.co_firstlineno
    tree = _file(filename, function.__globals__).functions.get((function.__name__, line))
    if isinstance(tree, ast.AsyncFunctionDef):
        fail(filename, tree, "`async def`: a program only describes a prompt: write `def`")
    if not isinstance(tree, ast.FunctionDef):
        fail(
            filename,
            line,
            f"the source of {function.__name__}() is missing: put the program into a file (`def`, no exec)",
        )
    return Source(filename, tree)


def _file(filename: str, module_globals: dict[str, Any]) -> _File:
    linecache.checkcache(filename)
    text = "".join(linecache.getlines(filename, module_globals))
    with _lock:
        known = _files.get(filename)
        if known is None or known.text != text:
            known = _files[filename] = _File(text, _functions(text))
            while len(_files) > _MAX_FILES:
                del _files[next(iter(_files))]
        return known


def _functions(text: str) -> dict[tuple[str, int], ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda]:
    """The functions of a file by name and first line: that of the first decorator, as in code objects."""
    found: dict[tuple[str, int], ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda] = {}
    try:
        tree = ast.parse(text)
    except SyntaxError:  # the file has changed since it was imported
        return found
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found[node.name, min([node.lineno, *(one.lineno for one in node.decorator_list)])] = node
    return found


# ---- Syntax -------------------------------------------------------------------------------------------------------

_REFUSED: dict[type[ast.AST], str] = {
    ast.While: "`while`: the schema has every module before any call: loop over a constant collection with `for`",
    ast.Try: "`try`: a program only describes a prompt: handle errors where you call it",
    ast.TryStar: "`try`: a program only describes a prompt: handle errors where you call it",
    ast.FunctionDef: "a function inside a program: define it outside, with @program if it has text",
    ast.AsyncFunctionDef: "a function inside a program: define it outside, with @program if it has text",
    ast.ClassDef: "a class inside a program: define it outside",
    ast.AsyncFor: "`async for`: a program only describes a prompt: gather the values before the call",
    ast.AsyncWith: "`async with`: a program only describes a prompt: write `with`",
    ast.AugAssign: "an augmented assignment: write `name = expression`, at the function's top level",
    ast.Global: "`global`: a program changes nothing outside: remove it",
    ast.Nonlocal: "`nonlocal`: a program changes nothing outside: remove it",
    ast.Delete: "`del`: a program's names are constants and parameters: remove it",
    ast.Raise: "`raise`: a program only describes a prompt: check arguments before you call it",
    ast.Assert: "`assert`: a program only describes a prompt: check arguments before you call it",
    ast.Import: "an import inside a program: import at the top of the file",
    ast.ImportFrom: "an import inside a program: import at the top of the file",
    ast.Break: "`break`: every item of the loop is a module: loop over the items that you want, e.g. NAMES[:3]",
    ast.Continue: "`continue`: every item of the loop is a module: write `if` around the rest of the body",
}

_REFUSED_EXPRESSIONS: dict[type[ast.AST], str] = {
    ast.NamedExpr: "`:=`: assign in a line of its own, at the function's top level",
    ast.Yield: "`yield`: a program describes its prompt with text(...)",
    ast.YieldFrom: "`yield`: a program describes its prompt with text(...)",
    ast.Await: "`await`: get the value before the call, and pass it as a parameter",
}

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def check_syntax(source: Source) -> None:
    """ProgramError at the first statement that cannot be structure, whatever its names mean."""
    arguments = source.function.args
    for star in (arguments.vararg, arguments.kwarg):
        if star is not None:
            fail(
                source.filename,
                star,
                f"the parameter *{star.arg}: give each parameter a name, so that its type is known",
            )
    _check_body(source, source.function.body, is_top=True, is_function=True)


def _check_body(source: Source, body: list[ast.stmt], *, is_top: bool, is_function: bool = False) -> None:
    for i, statement in enumerate(body):
        if isinstance(statement, ast.Return):
            if statement.value is not None:
                fail(source.filename, statement, "`return` with a value: a program describes its prompt with text(...)")
            if not is_function or i + 1 < len(body):
                fail(source.filename, statement, "`return` before the end: write `if` around the rest of the program")
            continue
        _check_statement(source, statement, is_top)


def _check_statement(source: Source, node: ast.stmt, is_top: bool) -> None:
    refusal = _REFUSED.get(type(node))
    if refusal:
        fail(source.filename, node, refusal)
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        _check_assignment(source, node, is_top)
    elif isinstance(node, ast.Expr):
        _check_call(source, node.value)
    elif isinstance(node, ast.If):
        _check_expressions(source, node.test)
        _check_body(source, node.body, is_top=False)
        _check_body(source, node.orelse, is_top=False)
    elif isinstance(node, ast.Match):
        _check_expressions(source, node.subject)
        for case in node.cases:
            _check_pattern(source, case.pattern)
            if case.guard is not None:
                _check_expressions(source, case.guard)
            _check_body(source, case.body, is_top=False)
    elif isinstance(node, ast.For):
        _check_for(source, node)
    elif isinstance(node, ast.With):
        for item in node.items:
            _check_expressions(source, item.context_expr)
            if item.optional_vars is not None:
                fail(source.filename, item.optional_vars, "`with ... as`: roles and modules have no value: remove `as`")
        _check_body(source, node.body, is_top=is_top)


def _check_assignment(source: Source, node: ast.Assign | ast.AnnAssign, is_top: bool) -> None:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    if len(targets) != 1 or not isinstance(targets[0], ast.Name) or node.value is None:
        fail(source.filename, node, "only `name = expression` assigns in a program: write one such line for each name")
    if not is_top:
        fail(
            source.filename,
            node,
            "an assignment in a branch or a loop: assign at the function's top level, e.g. `x = A if c else B`",
        )
    _check_expressions(source, node.value)


def _check_call(source: Source, node: ast.expr) -> None:
    if isinstance(node, _COMPREHENSIONS):
        fail(source.filename, node, "a comprehension as a statement: write a `for` statement")
    if not isinstance(node, (ast.Call, ast.Constant)):
        _check_expressions(source, node)
        fail(source.filename, node, f"`{ast.unparse(node)}` has no effect: write text(...) around it, or remove it")
    _check_expressions(source, node)


def _check_for(source: Source, node: ast.For) -> None:
    _check_expressions(source, node.iter)
    for target in ast.walk(node.target):
        if isinstance(target, ast.expr) and not isinstance(target, (ast.Name, ast.Tuple, ast.List)):
            fail(source.filename, target, "a loop assigns to names: write `for name in ...` or `for a, b in ...`")
    if node.orelse:
        fail(source.filename, node.orelse[0], "`else` after `for`: the loop always ends: write its text after the loop")
    _check_body(source, node.body, is_top=False)


def _check_pattern(source: Source, pattern: ast.pattern) -> None:
    if isinstance(pattern, ast.MatchOr):
        for one in pattern.patterns:
            _check_pattern(source, one)
    elif isinstance(pattern, ast.MatchAs) and (pattern.pattern is not None or pattern.name is not None):
        fail(source.filename, pattern, "a capture in `case`: write values, joined by |, or _")
    elif not isinstance(pattern, (ast.MatchValue, ast.MatchSingleton, ast.MatchAs)):
        fail(
            source.filename,
            pattern,
            "a pattern that is no value: write literals, Enum members or None, joined by |, or _",
        )


def _check_expressions(source: Source, node: ast.expr) -> None:
    for one in ast.walk(node):
        refusal = _REFUSED_EXPRESSIONS.get(type(one))
        if refusal:
            fail(source.filename, one, refusal)
