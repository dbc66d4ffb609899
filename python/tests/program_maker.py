# SPDX-License-Identifier: Apache-2.0
"""Random prompt programs as source text, with random arguments for them.

Every literal text has a marker of its own, "@12@", so that a test can see where it is. Programs use every construct
that reprise.programs accepts; what it refuses is in test_programs.py.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

HEADER = """\
import enum
from typing import Literal
from reprise import Arg, assistant, library, module, program, scaffold, system, text, tool, use, user

class Tone(enum.Enum):
    FORMAL = "formal"
    PLAIN = "plain"

class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2

DEBUG = False
LIVE = True
"""
ODD = ["", " ", "\n", "\r\n", ' <b> & "q" ', "]]>", "é", "日本", "🙂", "\t", "{x}", "'", "\\", "  two  "]
FINITE: dict[str, list[Any] | None] = {
    "bool": [False, True],
    'Literal["miami", "lisbon", "new york"]': ["miami", "lisbon", "new york"],
    "Literal[1, 2]": [1, 2],
    "Tone": None,
    "Level": None,
    'Literal["a", "b"] | None': ["a", "b", None],
}
ENUMS = {"Tone": ["FORMAL", "PLAIN"], "Level": ["LOW", "HIGH"]}


@dataclass
class Parameter:
    name: str
    annotation: str
    kind: str  # "finite", "arg", "fresh", "ids"

    def values(self, module: dict[str, Any]) -> list[Any]:
        if self.annotation in ENUMS:
            return list(module[self.annotation])
        return FINITE[self.annotation] or []

    def source_of(self, r: random.Random) -> str:
        """A constant of this parameter's values, as source."""
        if self.annotation in ENUMS:
            return f"{self.annotation}.{r.choice(ENUMS[self.annotation])}"
        return repr(r.choice(FINITE[self.annotation] or []))


@dataclass
class Function:
    name: str
    parameters: list[Parameter]
    has_role: bool = False
    has_use: bool = False
    markers: list[str] = field(default_factory=list)  # of texts that no constant condition excludes


class Maker:
    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.lines: list[str] = []
        self.functions: list[Function] = []
        self.n_markers = 0
        self.constants: list[str] = []

    # ---- the module ----

    def make(self) -> tuple[str, Function]:
        """The source of a module, and its last program."""
        r = self.r
        self.lines = HEADER.splitlines()
        for i in range(r.randint(1, 3)):
            self.constants.append(f"TEXT_{i}")
            self.lines.append(f"TEXT_{i} = {self.literal([])}")
        self.lines.append(
            f"NAMES = {[r.choice(['red', 'green', 'blue hat', '3d']) + str(i) for i in range(r.randint(1, 3))]!r}"
        )
        self.lines.append(
            f"SHOTS = "
            f"{{{', '.join(f'{k!r}: {self.literal([])}' for k in r.sample(['one', 'two', 'x y'], r.randint(1, 3)))}}}"
        )
        self.lines.append('docs = library("docs")')
        for id in r.sample(["alpha", "beta", "a b", "7"], r.randint(0, 4)):
            self.lines.append(f"docs.add({id!r}, {self.literal([])})")
        for i in range(r.choice([0, 0, 1, 1, 2, 3])):
            self.function(f"part_{i}")
        main = self.function("main")
        return "\n".join(self.lines) + "\n", main

    def arguments(self, function: Function, module: dict[str, Any]) -> dict[str, Any]:
        """Random arguments of a call."""
        r, values = self.r, {}
        for parameter in function.parameters:
            if parameter.kind == "finite":
                value: Any = r.choice(parameter.values(module))
            elif parameter.kind == "arg":
                value = (
                    r.randint(-5, 1000)
                    if "int" in parameter.annotation
                    else r.choice(["", "3 days", " x ", "<b>&amp;", "é\n"])
                )
            elif parameter.kind == "ids":
                ids = [document.id for document in module["docs"]]
                value = r.sample(ids, r.randint(0, len(ids)))
            else:
                value = r.choice(["", "", "Where?", " <plan/> & ", "a\r\nb", "日本 ", "\x01"])
            values[parameter.name] = value
        return values

    # ---- a function ----

    def function(self, name: str) -> Function:
        r = self.r
        parameters = []
        for i in range(r.randint(0, 5)):
            kind = r.choice(["finite", "finite", "arg", "fresh"])
            annotation = {
                "finite": r.choice(list(FINITE)),
                "arg": r.choice(["Arg[str, 32]", "Arg[int, 24]"]),
                "fresh": r.choice(["str", "object"]),
            }[kind]
            parameters.append(Parameter(f"{r.choice(['city', 'kids', 'days', 'question', 'p'])}_{i}", annotation, kind))
        if name == "main" and r.random() < 0.3:
            parameters.append(Parameter("ids", "list[str]", "ids"))
        function = Function(name, parameters)
        options = r.choice(["", "", "", '(keep="50%")', '(scope="module", kv="int8")'])
        self.lines += [
            "",
            f"@program{options}",
            f"def {name}({', '.join(f'{p.name}: {p.annotation}' for p in parameters)}) -> None:",
        ]
        if r.random() < 0.2:
            self.lines.append('    """A docstring."""')
        body = Body(self, function)
        first = len(self.lines)
        body.block(1, r.randint(1, 6), is_top=True)
        text = "\n".join(self.lines[first:])
        function.markers = [marker for marker in function.markers if marker in text]  # some were not chosen
        self.functions.append(function)
        return function

    def literal(self, markers: list[str]) -> str:
        """A text with a marker, as source."""
        marker = f"@{self.n_markers}@"
        self.n_markers += 1
        markers.append(marker)
        return repr(self.r.choice(ODD) + marker + self.r.choice(ODD))


class Body:
    """The statements of one function. indent: of a block; a block always has a statement."""

    def __init__(self, maker: Maker, function: Function) -> None:
        self.maker, self.r, self.function = maker, maker.r, function
        self.finite = [p for p in function.parameters if p.kind == "finite"]
        self.arg = [p.name for p in function.parameters if p.kind == "arg"]
        self.fresh = [p.name for p in function.parameters if p.kind == "fresh"]
        self.ids = any(p.kind == "ids" for p in function.parameters)
        self.constants = list(maker.constants)
        self.expressions: list[str] = []  # names of assigned run-time expressions
        self.in_role = False
        self.folded = 0
        self.n_names = 0

    def add(self, indent: int, line: str) -> None:
        self.maker.lines.append("    " * indent + line)

    def literal(self) -> str:
        return self.maker.literal([] if self.folded else self.function.markers)

    def block(self, indent: int, n: int, *, is_top: bool = False) -> None:
        for _ in range(n):
            self.statement(indent, is_top)
        if n == 0:
            self.add(indent, "pass")

    def statement(self, indent: int, is_top: bool) -> None:
        r = self.r
        kinds = ["text"] * 6 + ["call"] * 2 * bool(self.maker.functions)
        if indent < 4:
            kinds += ["if_", "if_", "match", "for_", "module", "constant_if"] + ["role"] * (2 + 3 * is_top) * (
                not self.in_role
            )
            kinds += ["use"] * 2 * self.ids
        if is_top:
            kinds += ["assign"]
        getattr(self, r.choice(kinds))(indent, is_top)

    # ---- statements ----

    def text(self, indent: int, is_top: bool) -> None:
        cache = self.r.choice([""] * 9 + [", cache=False"])
        self.add(indent, f"text({self.expression()}{cache})")

    def assign(self, indent: int, is_top: bool) -> None:
        name = f"x_{self.n_names}"
        self.n_names += 1
        self.folded += 1  # it may never be used
        self.add(indent, f"{name} = {self.expression()}")
        self.folded -= 1
        self.expressions.append(name)

    def role(self, indent: int, is_top: bool) -> None:
        self.function.has_role = True
        self.add(indent, f"with {self.r.choice(['system', 'user', 'user', 'assistant', 'tool'])}():")
        self.in_role = True
        self.block(indent + 1, self.r.randint(0, 4))
        self.in_role = False

    def module(self, indent: int, is_top: bool) -> None:
        options = self.r.choice(["", ', keep="25%"', ", cache=False", ', ttl="1h", pin=True, quality="link:8"'])
        self.add(indent, f'with module("{self.r.choice(["rules", "notes"])}"{options}):')
        self.block(indent + 1, self.r.randint(1, 3))

    def constant_if(self, indent: int, is_top: bool) -> None:
        flag = self.r.choice(["DEBUG", "LIVE", "len(NAMES) > 1", "'3d0' in NAMES"])
        self.add(indent, f"if {flag}:")
        self.folded += 1
        self.block(indent + 1, self.r.randint(0, 2))
        if self.r.random() < 0.5:
            self.add(indent, "else:")
            self.block(indent + 1, self.r.randint(0, 2))
        self.folded -= 1

    def condition(self) -> str:
        r = self.r
        p = r.choice(self.finite)
        if p.annotation == "bool" and r.random() < 0.7:
            return r.choice([p.name, f"not {p.name}", f"{p.name} and LIVE", f"({p.name} or DEBUG)"])
        test = f"{p.name} {r.choice(['==', '!='])} {p.source_of(r)}"
        if r.random() < 0.2:
            test += f" {r.choice(['and', 'or'])} {self.condition()}"
        return test if r.random() < 0.8 else f"{p.name} in ({p.source_of(r)}, {p.source_of(r)})"

    def if_(self, indent: int, is_top: bool) -> None:
        if not self.finite:
            self.text(indent, is_top)
            return
        self.add(indent, f"if {self.condition()}:")
        self.block(indent + 1, self.r.randint(0, 3))
        for _ in range(self.r.choice([0, 0, 1, 2])):
            self.add(indent, f"elif {self.condition()}:")
            self.block(indent + 1, self.r.randint(0, 2))
        if self.r.random() < 0.5:
            self.add(indent, "else:")
            self.block(indent + 1, self.r.randint(0, 2))

    def match(self, indent: int, is_top: bool) -> None:
        if not self.finite:
            self.text(indent, is_top)
            return
        r = self.r
        p = r.choice(self.finite)
        self.add(indent, f"match {p.name}:")
        seen: list[str] = []
        for _ in range(r.randint(1, 3)):
            case = p.source_of(r)
            if case in seen:
                continue
            seen.append(case)
            more = f" | {p.source_of(r)}" if r.random() < 0.2 else ""
            guard = f" if {self.condition()}" if r.random() < 0.15 else ""
            self.add(indent + 1, f"case {case}{more}{guard}:")
            self.block(indent + 2, r.randint(0, 2))
        if r.random() < 0.4:
            self.add(indent + 1, "case _:")
            self.block(indent + 2, r.randint(0, 2))

    def for_(self, indent: int, is_top: bool) -> None:
        name = f"v_{self.n_names}"
        self.n_names += 1
        head, names = self.r.choice(
            [
                (f"for {name} in NAMES:", [name]),
                (f"for {name}, {name}b in SHOTS.items():", [name, name + "b"]),
                (f"for {name}, {name}b in enumerate(NAMES):", [name, name + "b"]),
                (f"for {name} in range(2):", [name]),
                (f"for {name}, ({name}b, {name}c) in zip(NAMES, SHOTS.items()):", [name, name + "b", name + "c"]),
                (f"for {name} in [TEXT_0, 'short']:", [name]),
            ]
        )
        self.add(indent, head)
        self.constants += names
        self.block(indent + 1, self.r.randint(1, 3))
        self.constants = self.constants[: -len(names)]

    def use(self, indent: int, is_top: bool) -> None:
        if self.function.has_use and self.r.random() < 0.8:
            self.text(indent, is_top)
            return
        self.function.has_use = True
        self.add(indent, "for d in use(docs, ids):")
        self.add(indent + 1, self.r.choice(["text(d)", 'text(f"{d.id}: {d.text}")', 'text(d.text.upper() + "!")']))
        if self.r.random() < 0.3:
            self.folded += 1  # without documents the body is nowhere
            self.block(indent + 1, 1)
            self.folded -= 1

    def call(self, indent: int, is_top: bool) -> None:
        r = self.r
        callees = [
            f
            for f in self.maker.functions
            if not (self.in_role and f.has_role) and not any(p.kind == "ids" for p in f.parameters)
        ]
        if not callees:
            self.text(indent, is_top)
            return
        callee = r.choice(callees)
        self.function.has_role |= callee.has_role
        arguments: list[str] = []
        n_positional = r.randint(0, len(callee.parameters))
        for p in callee.parameters:
            value = self.argument(p)
            arguments.append(f"{p.name}={value}" if len(arguments) >= n_positional else value)
        self.add(indent, f"{callee.name}({', '.join(arguments)})")

    def argument(self, p: Parameter) -> str:
        r = self.r
        if p.kind == "finite":
            same = [one.name for one in self.finite if one.annotation == p.annotation]
            if p.annotation == "bool" and self.finite and r.random() < 0.3:
                return f"bool({self.condition()})"
            return r.choice(same) if same and r.random() < 0.7 else p.source_of(r)
        if p.kind == "arg":
            if "int" in p.annotation:
                return str(r.randint(0, 9))
            names = self.fresh_strings() + self.arg_strings()
            return r.choice(names) if names and r.random() < 0.7 else self.maker.literal([])
        names = self.fresh_strings() + self.arg_strings() if p.annotation == "str" else self.fresh + self.arg
        return r.choice(names) if names and r.random() < 0.7 else self.maker.literal([])

    def fresh_strings(self) -> list[str]:
        return [p.name for p in self.function.parameters if p.annotation == "str"]

    def arg_strings(self) -> list[str]:
        return [p.name for p in self.function.parameters if p.kind == "arg" and "str" in p.annotation]

    # ---- expressions ----

    def expression(self, depth: int = 0) -> str:
        r = self.r
        kinds = ["literal"] * 3 + ["constant", "pure", "format", "format", "format"]
        kinds += ["fresh"] * 3 * bool(self.fresh) + ["arg"] * 2 * bool(self.arg)
        kinds += ["conditional", "finite"] * bool(self.finite) + ["name"] * bool(self.expressions)
        kind = r.choice(kinds)
        if kind == "literal" or depth > 2:
            return self.literal()
        if kind == "constant":
            return r.choice(self.constants)
        if kind == "pure":
            return r.choice(
                [
                    f"str({r.choice(self.constants)}).strip()",
                    '", ".join(NAMES)',
                    "len(NAMES)",
                    'f"{TEXT_0:>12}"',
                    "repr(SHOTS)",
                ]
            )
        if kind == "fresh":
            name = r.choice(self.fresh)
            return r.choice([name, f"str({name}).upper()", f"{self.literal()} + str({name})", f"f'{{{name}!r}}'"])
        if kind == "arg":
            return r.choice(self.arg)
        if kind == "name":
            return r.choice(self.expressions)
        if kind == "finite":
            name = r.choice(self.finite).name
            return r.choice([name, f"str({name}).title()", f"({self.literal()} + str({name}))"])
        if kind == "conditional":
            return f"({self.expression(depth + 1)} if {self.condition()} else {self.expression(depth + 1)})"
        return self.format(depth)

    def format(self, depth: int) -> str:
        """An f-string, as a call-free concatenation that any quotes survive."""
        r = self.r
        parts = []
        for _ in range(r.randint(1, 4)):
            names = self.constants + self.fresh + self.arg + [p.name for p in self.finite] + self.expressions
            choice = r.random()
            if choice < 0.4:
                parts.append(repr(eval(self.literal()))[1:-1].replace("'", "\\'").replace("{", "{{").replace("}", "}}"))
            elif choice < 0.5 and self.finite:
                condition = self.condition().replace("'", '"')
                parts.append(f"{{{r.choice(self.constants)} if {condition} else {r.choice(names)}}}")
            elif choice < 0.6 and self.arg:
                parts.append(f"{{{r.choice(self.arg)!s}{r.choice(['!r', '!s:>9', ''])}}}")
            else:
                parts.append(f"{{{r.choice(names)}}}")
        text = "".join(parts)
        return "f'''" + text + " '''"
