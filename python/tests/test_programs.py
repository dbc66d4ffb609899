# SPDX-License-Identifier: Apache-2.0
"""Prompt programs, construct by construct: the schema, the prompt, and what is refused, with file:line:column."""

from __future__ import annotations

import enum
import pathlib
import re
import threading
from collections.abc import Callable
from typing import Any, Literal

import engine_program
import pytest
from pml_expand import expand, prompt_pml
from test_programs_random import load

import reprise
from reprise import Arg, ProgramError, assistant, library, module, program, scaffold, system, text, use, user
from reprise.errors import InvalidError, UnknownNameError
from reprise.prompt import Message, Module, Text

MIAMI = "Miami is <hot> & wet."
LISBON = "Lisbon is built on seven hills."
KIDS = " Children come along."
SHOTS = {"late parcel": "zorb", "wrong bill": "mip"}


class Tone(enum.Enum):
    FORMAL = 1
    PLAIN = 2


def shape(pml: str) -> str:
    """The schema on one line, without the line breaks inside tags and the schema's own tag."""
    return re.sub(r"\n *(/?>)", r"\1", pml).split(">", 1)[1].rsplit("</schema>", 1)[0]


def same(p: Any, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    """The parts of a call, whose text equals plain execution."""
    prompt = p(*args, **kwargs)
    assert expand(p.schema().pml, prompt.parts) == p.messages(*args, **kwargs)
    parts: tuple[Any, ...] = prompt.parts
    return parts


# ---- The example of the package -----------------------------------------------------------------------------------


@program
def plan(duration: Arg[str, 8]) -> None:
    text(f"Plan a trip of {duration} to this city.")


@program
def guide(city: Literal["miami", "lisbon"], with_kids: bool, duration: Arg[str, 8], question: str) -> None:
    """A docstring is no text."""
    with system():
        text("You are a concise travel guide.")
    plan(duration)
    match city:
        case "miami":
            text(MIAMI)
        case "lisbon":
            text(LISBON)
    if with_kids:
        text(KIDS)
    with user():
        text(question)


def test_example() -> None:
    assert shape(guide.schema().pml) == (
        "<system>You are a concise travel guide.</system>"
        '<module name="plan">Plan a trip of<param name="duration" len="8"/> to this city.</module>'
        '<union><module name="miami">Miami is &lt;hot&gt; &amp; wet.</module>'
        '<module name="lisbon">Lisbon is built on seven hills.</module></union>'
        '<module name="with_kids"> Children come along.</module>'
    )
    assert same(guide, "miami", with_kids=True, duration="3 days", question="<plan/>?") == (
        Module("plan", {"duration": " 3 days"}),
        Module("miami"),
        Module("with_kids"),
        Message("user", (Text("<plan/>?"),)),
    )
    assert guide.messages("lisbon", False, "a week", "Where?") == [
        ("system", "You are a concise travel guide."),
        (None, "Plan a trip of a week to this city.Lisbon is built on seven hills."),
        ("user", "Where?"),
    ]
    assert (
        guide.text("lisbon", False, "", "") == "You are a concise travel guide.Plan a trip of  to this city." + LISBON
    )


def test_schema_is_a_value(tmp_path: pathlib.Path) -> None:
    schema = guide.schema()
    assert re.fullmatch("guide-[0-9a-f]{12}", schema.name) and guide.schema() is schema
    assert guide("miami", True, "x", "y").schema is schema
    schema.save(tmp_path / "guide.xml")
    assert reprise.Schema.load(tmp_path / "guide.xml").name == schema.name


def test_call_binds_like_python() -> None:
    with pytest.raises(InvalidError, match=r"guide\(\): city='rome': give one of 'miami', 'lisbon'"):
        guide("rome", True, "x", "y")  # type: ignore[arg-type]
    with pytest.raises(InvalidError, match=r"with_kids=1: give one of False, True"):
        guide("miami", 1, "x", "y")  # type: ignore[arg-type]
    with pytest.raises(InvalidError, match="missing a required argument: 'question'"):
        guide("miami", True, "x")  # type: ignore[call-arg]
    with pytest.raises(InvalidError, match="duration=3: give a value of type str, at most 8 tokens"):
        guide.messages("miami", True, 3, "")  # type: ignore[arg-type]


def test_words_outside_of_programs() -> None:
    words: list[Callable[[], Any]] = [lambda: text("x"), lambda: user().__enter__(), lambda: scaffold("a", "b")]
    words += [lambda: module("m"), lambda: use(library("d"), [])]
    for word in words:
        with pytest.raises(InvalidError, match="outside a program"):
            word()


# ---- Constructs ---------------------------------------------------------------------------------------------------


@program
def branches(tone: Tone, kids: bool, n: Literal[1, 2, 3], who: Literal["a", "b"] | None = None) -> None:
    if kids and tone == Tone.FORMAL:
        text("K")
    elif n != 2:
        text("N")
    else:
        text("E")
    if not kids:
        text("only")
    else:
        text("all")
    match n:
        case 1 | 2:
            text("few")
        case _:
            text("many")
    match who:
        case None:
            text("nobody")
        case "a" if kids:
            text("a!")
    text(f"[{tone.name}]{'+' if kids else '-'}")
    text(n)


def test_branches() -> None:
    assert shape(branches.schema().pml) == (
        '<union><module name="kids-and-tone-Tone.FORMAL">K</module><module name="n-not-2">N</module>'
        '<module name="other">E</module></union>'
        '<union><module name="not-kids">only</module><module name="kids">all</module></union>'
        '<union><module name="n-1-or-n-2">few</module><module name="other-2">many</module></union>'
        '<union><module name="none">nobody</module><module name="a-and-kids">a!</module></union>'
        '[<union><module name="FORMAL">FORMAL</module><module name="PLAIN">PLAIN</module></union>]'
        '<union><module name="kids-2">+</module><module name="not-kids-2">-</module></union>'
        '<union><module name="n-1">1</module><module name="n-2">2</module><module name="n-3">3</module></union>'
    )
    for tone in Tone:
        for kids in (True, False):
            for n in (1, 2, 3):
                for who in ("a", "b", None):
                    same(branches, tone, kids, n, who)
    assert Module("none") in branches(Tone.PLAIN, True, 3).parts


DEBUG, ORDER = False, ("first", "second item")


@program(name="few-shots", keep="50%", layout="packed")
def loops(question: str) -> None:
    if DEBUG:
        text("never")
    intro = "Labels: " + ", ".join(SHOTS.values()).upper()
    text(intro)
    for message, label in SHOTS.items():
        text(f"{message} -> {label}")
    for i, one in enumerate(ORDER):
        text(f"{i:03}{one!r}")
    for year in range(2):
        text(year)
    asked = question.strip()
    with user():
        text(f"Label: {asked}")


def test_loops_and_constants() -> None:
    assert loops.schema().name.startswith("few-shots-") and ' keep="50%"' in loops.schema().pml
    assert shape(loops.schema().pml) == (
        'Labels: ZORB, MIP<module name="late-parcel">late parcel -&gt; zorb</module>'
        '<module name="wrong-bill">wrong bill -&gt; mip</module><module name="first">000\'first\'</module>'
        '<module name="second-item">001\'second item\'</module><module name="year-0">0</module>'
        '<module name="year-1">1</module>'
        f'<module name="text-{_hash("Label:")}">Label:</module>'
    )
    parts = same(loops, "  Late?\n")
    assert parts[-1] == Message("user", (Module("text-" + _hash("Label:")), Text(" Late?")))


def _hash(data: str) -> str:
    import hashlib

    return hashlib.sha256(data.encode()).hexdigest()[:8]


@program
def greet(name: str, loud: bool = False) -> None:
    text(f"Hello {name}{'!' if loud else '.'}")


@program
def calls(name: str, who: Arg[str, 4], loud: bool) -> None:
    greet("Ada")
    greet("Bob", loud=True)
    greet("Cy", loud)
    plan(who)
    plan(duration="3 days")
    greet(name)
    with assistant():
        text("Done.")


def test_calls() -> None:
    assert shape(calls.schema().pml) == (
        '<module name="greet">Hello Ada.</module><module name="greet-2">Hello Bob!</module>'
        '<module name="greet-3">Hello Cy<union><module name="loud">!</module><module '
        'name="not-loud">.</module></union></module>'
        '<module name="plan">Plan a trip of<param name="duration" len="8"/> to this city.</module>'
        '<module name="plan-2">Plan a trip of 3 days to this city.</module>'
        f'<module name="greet.text-{_hash("Hello")}">Hello</module><module name="greet.after-name">.</module>'
        '<module name="assistant-1f5a44b1"><assistant>Done.</assistant></module>'.replace("1f5a44b1", _hash("Done."))
    )
    parts = same(calls, "Dee", "4 h", True)
    assert parts[2:4] == (Module("greet-3/loud"), Module("plan", {"duration": " 4 h"}))
    assert parts[5:] == (
        Module(f"greet.text-{_hash('Hello')}"),
        Text(" Dee"),
        Module("greet.after-name"),
        Module(f"assistant-{_hash('Done.')}"),
    )


@program
def modules(days: Arg[int, 4], question: str, kids: bool) -> None:
    with module("rules", keep="25%", kv="int8", ttl="1h", pin=True, scope="module", anchor="bos", quality="link:8"):
        text(f"{days} or {days:>4}{days!r}")
        with module("inner", cache=False):
            text(KIDS)
    text(MIAMI, cache=False)
    if kids:
        text(LISBON, cache=False)
    scaffold("rules", "rules/inner")
    text(f"In {days} days")
    if kids:
        text("Q: ")
        text(question)
        text("Thank you.")


def test_modules_and_parameters() -> None:
    assert shape(modules.schema().pml) == (
        '<module name="rules" keep="25%" kv="int8" ttl="1h" pin="true" scope="module" anchor="bos" quality="link:8">'
        '<param name="days" len="4"/> or<param name="days-2" len="4"/><param name="days-3" len="4"/>'
        '<module name="inner" cache="false"> Children come along.</module></module>'
        '<module name="MIAMI" cache="false">Miami is &lt;hot&gt; &amp; wet.</module>'
        '<module name="kids" cache="false">Lisbon is built on seven hills.</module>'
        '<module name="days">In<param name="days" len="4"/> days</module>'
        f'<module name="kids.text-{_hash("Q:")}">Q:</module><module name="kids.after-question">Thank you.</module>'
        '<scaffold modules="rules rules/inner"/>'
    )
    parts = same(modules, 3, "Why?", True)
    assert parts[0] == Module("rules", {"days": "3", "days-2": "    3", "days-3": "3"})
    assert parts[-3:] == (Module(f"kids.text-{_hash('Q:')}"), Text(" Why?"), Module("kids.after-question"))
    assert len(same(modules, 3, "", False)) == 4


@program
def closing(city: Literal["miami", "lisbon"], kids: bool, question: str) -> None:
    with system():
        text("Be brief.")
    with user():
        text("Read. ")
        match city:
            case "miami":
                text(MIAMI)
            case "lisbon":
                text(LISBON)
        if kids:
            text(KIDS)
        text(" Now: ")
        text(question)


def test_last_role_is_of_the_schema() -> None:
    """As in hand-written PML, a prompt is then imports and text: `<miami/> question`."""
    assert shape(closing.schema().pml) == (
        '<system>Be brief.</system><user>Read. <union><module name="miami">Miami is &lt;hot&gt; &amp; wet.</module>'
        '<module name="lisbon">Lisbon is built on seven hills.</module></union><module name="kids"> '
        "Children come along.</module>"
        f'<module name="text-{_hash(" Now:")}"> Now:</module></user>'
    )
    assert same(closing, "lisbon", True, "?") == (
        Module("lisbon"),
        Module("kids"),
        Module(f"text-{_hash(' Now:')}"),
        Text(" ?"),
    )


@program
def before_fresh(kids: bool, question: str) -> None:
    text("A. ")
    if kids:
        text("K. ")
    text("B. ")
    text("C.")
    text(question)


def test_text_before_fresh_text_is_complete() -> None:
    """PML would place "B. C." after a text at the start of the prompt: its last part is a module."""
    assert 'A. <module name="kids">K. </module>B. <module name="' in shape(before_fresh.schema().pml)
    for kids in (True, False):
        same(before_fresh, kids, "?")


def test_closures_and_future_annotations() -> None:
    town, tones = "Rome", ("calm", "bold")

    @program
    def local(tone: Literal["calm", "bold"], n: Arg[int, 2]) -> None:
        text(f"In {town}: {len(tones)} {n} ")
        text(tone.upper())

    assert same(local, "bold", 7) == (Module("n", {"n": " 7"}), Module("BOLD"))


@program
def nothing() -> None:
    """Only this."""


@program
def odd(question: str) -> None:
    nothing()
    with user():
        pass
    text("\r\n\t]]>&amp;\u2028é🙂 ")
    with user():
        text("")
        text(question)


def test_empty_and_odd_text() -> None:
    assert same(nothing) == ()
    assert nothing.messages() == []
    assert same(odd, "\x00 <&") == (Message("user", (Text("\x00 <&"),)),)
    assert odd.messages("")[0] == ("user", "")
    assert "&#13;\n\t]]&gt;&amp;amp;" in odd.schema().pml


# ---- Names --------------------------------------------------------------------------------------------------------

STABLE = """\
from reprise import *
A = "a"
@program
def p(kids: bool, days: Arg[str, 8], q: str) -> None:
    text("Intro. ")
{line}    if kids:
        text("K")
        text(q)
        text("after")
    for one in ("red", "blue"):
        text(one)
    with module("rules"):
        text(A)
    with user():
        text(f"{{days}} x")
        text(q)
        text("end")
"""


def test_names_are_stable(tmp_path: pathlib.Path) -> None:
    before = load(STABLE.format(line=""), tmp_path / "a.py")["p"].schema().pml
    names = re.findall('name="([^"]*)"', before)
    for line in (
        "    # a comment\n\n",
        '    text("More. ")\n',
        "    if not kids:\n        text('x')\n",
        "    text(A, cache=False)\n",
    ):
        after = load(STABLE.format(line=line), tmp_path / f"b{abs(hash(line))}.py")["p"].schema().pml
        more = re.findall('name="([^"]*)"', after)
        assert set(names[1:]) <= set(more), line
    assert names[1:] == ["kids.text-" + _hash("K"), "kids.after-q", "red", "blue", "rules", "days", "days", "after-q"]


# ---- Libraries ----------------------------------------------------------------------------------------------------


def test_library() -> None:
    documents = library("docs")
    documents.add("osthaven", "Osthaven is a town.")
    documents.add("New York!", "<big>")

    @program(scope="module")
    def answer(ids: list[str], question: str) -> None:
        with system():
            text("Read:")
            for d in use(documents, ids):
                text(f" {d.id}: {d.text}")
        with user():
            text(question)

    first = answer(["New York!", "osthaven"], "?")
    names = [part.path for part in same(answer, ["New York!", "osthaven"], "?") if isinstance(part, Module)]
    assert names == [f"docs.New-York-{_hash('New York!')}", "docs.osthaven"]
    assert "osthaven" in documents and "x" not in documents and len(documents) == 2
    with pytest.raises(UnknownNameError, match="no document 'ostaven'; did you mean 'osthaven'"):
        answer(["ostaven"], "?")
    with pytest.raises(InvalidError, match="'osthaven' twice"):
        answer(["osthaven", "osthaven"], "?")
    with pytest.raises(InvalidError, match="no list of ids"):
        answer.messages("osthaven", "?")  # type: ignore[arg-type]
    documents.add("belvik", "Belvik.")
    second = answer(["belvik"], "?")
    assert isinstance(second.schema, reprise.Schema) and isinstance(first.schema, reprise.Schema)
    assert second.schema.name != first.schema.name and second.schema.replaces == first.schema.name
    assert "belvik" not in first.schema.pml and expand(first.schema.pml, first.parts)
    documents.add("belvik", "Belvik.")
    assert answer.schema() is second.schema
    documents.remove("osthaven")
    assert same(answer, [], "?") == (Message("user", (Text("?"),)),)
    with pytest.raises(UnknownNameError):
        documents.remove("osthaven")


def test_library_with_threads() -> None:
    documents = library("docs")
    documents.add("d", "D")

    @program
    def answer(ids: list[str]) -> None:
        for d in use(documents, ids):
            text(d)

    wrong: list[object] = []

    def work(n: int) -> None:
        for i in range(20):
            documents.add(f"d{n}-{i}", f"text {n} {i}")
            prompt = answer([f"d{n}-{i}", "d"])
            assert isinstance(prompt.schema, reprise.Schema)
            if expand(prompt.schema.pml, prompt.parts) != [(None, f"text {n} {i}D")]:
                wrong.append(prompt)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and len(documents) == 81


# ---- Refusals -----------------------------------------------------------------------------------------------------

REFUSED_SYNTAX = [  # a body, the place of the error in it, and what the message has
    ("while city:\n    text('x')", "1:1", "loop over a constant collection"),
    ("try:\n    text('x')\nexcept ValueError:\n    pass", "1:1", "`try`"),
    ("text('a')\nreturn 5", "2:1", "`return` with a value"),
    ("if kids:\n    return\ntext('x')", "2:5", "write `if` around"),
    ("[text(x) for x in 'ab']", "1:1", "write a `for` statement"),
    ("if kids:\n    x = 1", "2:5", "assign at the function's top level"),
    ("for x in 'ab':\n    y = x", "2:5", "an assignment in a branch or a loop"),
    ("def f(): pass", "1:1", "define it outside"),
    ("class C: pass", "1:1", "define it outside"),
    ("global DAYS", "1:1", "`global`"),
    ("del city", "1:1", "`del`"),
    ("a, b = 1, 2", "1:1", "one such line for each name"),
    ("q += 'x'", "1:1", "`name = expression`"),
    ("for x in 'ab':\n    break", "2:5", "NAMES[:3]"),
    ("for x in 'ab':\n    continue", "2:5", "write `if` around the rest"),
    ("for x in 'ab': pass\nelse:\n    text('x')", "3:5", "after the loop"),
    ("with user() as u:\n    pass", "1:16", "remove `as`"),
    ("import os", "1:1", "at the top of the file"),
    ("text((y := 'x'))", "1:7", "`:=`"),
    ("'x' + q", "1:1", "has no effect"),
    ("match city:\n    case x:\n        pass", "2:10", "write values"),
    ("match city:\n    case [1]:\n        pass", "2:10", "literals, Enum members"),
    ("assert kids", "1:1", "`assert`"),
    ("raise ValueError", "1:1", "`raise`"),
]
REFUSED_NAMES = [
    ("if q:\n    text('x')", "1:4", "a condition on run-time text ('q')"),
    ("text('a' if q else 'b')", "1:13", "annotate the parameter as bool, Literal or an Enum"),
    ("match q:\n    case 'x':\n        text('x')", "1:7", "a condition on run-time text ('q')"),
    ("if days == 'x':\n    text('x')", "1:4", "a condition on the argument 'days'"),
    ("for x in ids:\n    text(x)", "1:10", "use(documents, ids)"),
    ("for x in {'a', 'b'}:\n    text(x)", "1:10", "sorted(...)"),
    ("for x in 5:\n    text(x)", "1:10", "no collection"),
    ("for a, b in ['x']:\n    text(a)", "1:5", "has no 2 values"),
    ("text(days.upper())", "1:6", "computes with the argument 'days'"),
    ("text('x' + days)", "1:6", "computes with the argument 'days'"),
    ("text(QQ)", "1:6", "the name 'QQ' is not defined"),
    ("text(DAY)", "1:6", "did you mean 'DAYS'?"),
    ("text(1 / 0)", "1:6", "ZeroDivisionError"),
    ("text(open('x').read())", "1:6", "is not called at compile time"),
    ("text('\\x00')", "1:6", "U+0000"),
    ("text('a', 'b')", "1:1", "one expression"),
    ("text('a', keep='50%')", "1:1", "cache=False"),
    ("print('x')", "1:1", "`print()` is no program"),
    ("q.strip()", "1:1", "is no program"),
    ("user()", "1:1", "write `with user():`"),
    ("with user():\n    with system():\n        text('x')", "2:10", "system() inside user(): roles do not nest"),
    ("with user():\n    if kids:\n        part()", "3:9", "part() has a role and is called in user()"),
    ("with open('x'):\n    text('x')", "1:6", "`with` takes system()"),
    ("with module('a b'):\n    text('x')", "1:6", "a module's name"),
    ("with module('user'):\n    text('x')", "1:6", "not one of PML's elements"),
    ("with module('m', kep='5%'):\n    text('x')", "1:6", "did you mean 'keep'?"),
    ("with module('m', keep='half'):\n    text('x')", "1:6", "keep='half' is no value"),
    ("with module(city):\n    text('x')", "1:13", "is not constant"),
    ("p(city, kids, days, q, ids)", "1:1", "recursion (p -> p)"),
    ("mutual(q)", "1:1", ""),
    ("part(1)", "1:1", "too many positional arguments"),
    ("small(q)", "1:7", "size is a run-time value ('q'): give one of 1, 2"),
    ("small(3)", "1:7", "size=3: give one of 1, 2"),
    ("small(*[1])", "1:7", "write each argument"),
    ("scaffold('a', 'parrt')\npart()", "1:1", "no module has the path 'a'"),
    ("part()\nscaffold('part', 'parrt')", "2:1", "did you mean 'part'?"),
    ("scaffold('part')", "1:1", "two modules or more"),
    ("if kids:\n    scaffold('a', 'b')", "2:5", "at the function's top level"),
    ("text(later)\nlater = 'x'", "1:6", "'later' has no value here"),
    ("for d in use(ids, ids):\n    text(d)", "1:14", "a library of documents"),
]
REFUSALS_HEAD = """\
from typing import Literal
from reprise import *
DAYS = "3"
@program
def part() -> None:
    with system():
        text("part")
@program
def small(size: Literal[1, 2]) -> None:
    text(size)
@program
def mutual(q: str) -> None:
    p("miami", True, "x", q, [])
@program
def p(city: Literal["miami", "lisbon"], kids: bool, days: Arg[str, 8], q: str, ids: list[str]) -> None:
"""


def refusal(body: str, path: pathlib.Path, at: str) -> str:
    """The message of a refusal, from the decorator ("syntax") or schema() ("names"), after its place is checked."""
    source = REFUSALS_HEAD + "".join(f"    {line}\n" for line in body.splitlines())
    first = REFUSALS_HEAD.count("\n")
    if at == "syntax":
        with pytest.raises(ProgramError) as error:
            load(source, path)
    else:
        p = load(source, path)["p"]
        with pytest.raises(ProgramError) as error:
            p.schema()
    assert str(error.value).startswith(error.value.where + ": ") and error.value.code == "RP_ERR_SYNTAX"
    file, line, column = error.value.where.rsplit(":", 2)
    assert file == str(path)
    return f"{int(line) - first}:{int(column) - 4}: {error.value}"


@pytest.mark.parametrize(("body", "place", "message"), REFUSED_SYNTAX)
def test_refused_when_decorated(body: str, place: str, message: str, tmp_path: pathlib.Path) -> None:
    said = refusal(body, tmp_path / "program.py", "syntax")
    assert said.startswith(place + ": ") and message in said


@pytest.mark.parametrize(("body", "place", "message"), REFUSED_NAMES)
def test_refused_by_schema(body: str, place: str, message: str, tmp_path: pathlib.Path) -> None:
    said = refusal(body, tmp_path / "program.py", "names")
    if body.startswith("mutual"):  # the error is where the circle closes: in mutual()
        assert "recursion (p -> mutual -> p)" in said
    else:
        assert said.startswith(place + ": ") and message in said


def test_refused_functions(tmp_path: pathlib.Path) -> None:
    def refused(source: str, message: str) -> None:
        with pytest.raises(ProgramError, match=message):
            load("from reprise import *\n" + source, tmp_path / f"f{abs(hash(source))}.py")

    refused("@program\nasync def p(): pass", r":3:1: `async def`")
    refused("@program\ndef p(*ids): pass", r":3:8: the parameter \*ids")
    refused("@program\ndef p(**more): pass", r":3:9: the parameter \*more")
    refused("program(len)", r"decorates a function")
    with pytest.raises(ProgramError, match="source of p.. is missing"):
        exec("from reprise import program\n@program\ndef p(): pass", {})
    with pytest.raises(InvalidError, match="no 'kep'; did you mean 'keep'"):
        program(kep="50%")  # type: ignore[call-overload]
    with pytest.raises(InvalidError, match="from 1 to 4096"):
        eval("Arg[str, 0]", {"Arg": Arg})


def test_nested_roles_are_errors_in_plain_execution() -> None:
    from reprise.programs import plain

    def nested() -> None:
        with user():
            with system():
                pass

    with pytest.raises(InvalidError, match="roles do not nest"):
        plain.execute(nested)


# ---- The engine ---------------------------------------------------------------------------------------------------


@engine_program.needed
@pytest.mark.parametrize(
    "p", [guide, branches, loops, calls, modules, closing, before_fresh, odd], ids=lambda p: str(p.__name__)
)
def test_engine_loads(p: Any, tmp_path: pathlib.Path) -> None:
    p.schema().save(tmp_path / "schema.xml")
    engine_program.lint(tmp_path / "schema.xml")


def test_prompt_documents() -> None:
    """The tests' own writer of prompts."""
    assert prompt_pml("s", (Module("a", {"x": "1"}), Module("a/b"), Text("<"), Message("user", (Module("c"),)))) == (
        '<prompt schema="s" xml:space="preserve"><a x="1"><b></b></a>&lt;<user><c></c></user></prompt>\n'
    )
