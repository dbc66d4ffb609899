# SPDX-License-Identifier: Apache-2.0
"""The schemas of the paper's authors, rewritten as programs: equal module structure and equal expanded texts.

The texts are those of the files in REPRISE_TEST_DATA/pml; the structure is written here, by hand, as users would. White
space is compared as words. What programs lack, placeholders of parameters and default members, is not compared.
"""

from __future__ import annotations

import os
import pathlib
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from typing import Any, Literal

import engine_program
import pytest
from conftest import ROOT
from pml_expand import Expander, prompt_pml

from reprise import Arg, Program, assistant, module, program, system, text, user
from reprise.prompt import Module

DATA = os.environ.get("REPRISE_TEST_DATA", "")
FOLDER = pathlib.Path(DATA) / "pml"
CITIES = ROOT / "examples" / "cities"
XML_SPACE = "{http://www.w3.org/XML/1998/namespace}space"

pytestmark = pytest.mark.skipif(not DATA, reason="REPRISE_TEST_DATA is not set")


def texts(file: str) -> dict[str, list[str]]:
    """The texts of a schema by the module (or role) directly around them, in order; a space instead of white space."""
    found: dict[str, list[str]] = {}
    if not DATA:
        return found

    def read(element: ElementTree.Element) -> None:
        own = found.setdefault(element.get("name", element.tag), [])
        own += words(element.text)
        for child in element:
            read(child)
            (found[element.get("name", element.tag)] if element.tag != "union" else []).extend(words(child.tail))

    read(ElementTree.fromstring(by_hand(file)))
    return found


def by_hand(file: str) -> str:
    """The file; one of them has `<` in program code, which XML writes as &lt;."""
    pml = (FOLDER / file).read_text(encoding="utf-8").replace("param-name", "param_name")
    return re.sub(
        r"<(?!!--|/?(schema|system|user|assistant|module|union|parameter)\b)",
        "&lt;",
        re.sub(r"&(?!\w+;)", "&amp;", pml),
    )


def words(data: str | None) -> Iterator[str]:
    if data and data.strip():
        yield " " * data[0].isspace() + " ".join(data.split()) + " " * data[-1].isspace()


# ---- The schemas --------------------------------------------------------------------------------------------------


EMPTY = texts("empty.xml")


@program
def empty(question: str) -> None:
    with system():
        text(EMPTY["system"][0])
    with user():
        text(question)


GAME = texts("code_generation_game.xml")
FILES = ("unit.py", "map.py", "player.py", "game.py", "database.py")


@program
def code_generation_game(question: str) -> None:
    with system():
        text(GAME["system"][0])
    with user():
        text(GAME["user"][0])
        for file in FILES:
            text(GAME[file][0])
    with assistant():
        text(GAME["assistant"][0])
    with user():
        text(question)


TRAVEL = texts("parameterized_prompts.xml")
Place = Literal["maldives", "amazon", "sahara", "tokyo", "rome", "capetown", "sydney", "buenosaires"]
PLACES = ("maldives", "amazon", "sahara", "tokyo", "rome", "capetown", "sydney", "buenosaires")


@program(name="travel-plan")
def travel_plan(duration: Arg[str, 5], kind: Literal["domestic", "overseas"], city: Arg[str, 10], place: Place) -> None:
    text(f"{TRAVEL['travel-plan'][0]}{duration}{TRAVEL['travel-plan'][1]}")
    match kind:
        case "domestic":
            text(f"{TRAVEL['domestic'][0]}{city}{TRAVEL['domestic'][1]}")
        case "overseas":
            text(TRAVEL["overseas"][0])
            match place:
                case "maldives":
                    text(TRAVEL["maldives"][0])
                case "amazon":
                    text(TRAVEL["amazon"][0])
                case "sahara":
                    text(TRAVEL["sahara"][0])
                case "tokyo":
                    text(TRAVEL["tokyo"][0])
                case "rome":
                    text(TRAVEL["rome"][0])
                case "capetown":
                    text(TRAVEL["capetown"][0])
                case "sydney":
                    text(TRAVEL["sydney"][0])
                case "buenosaires":
                    text(TRAVEL["buenosaires"][0])


@program
def travel(
    duration: Arg[str, 5], kind: Literal["domestic", "overseas"], city: Arg[str, 10], place: Place, question: str
) -> None:
    with system():
        text(TRAVEL["system"][0])
    with user():
        travel_plan(duration, kind, city, place)
    with assistant():
        text(TRAVEL["assistant"][0])
    with user():
        text(question)


LEARN = texts("personalization-education.xml")
Level = Literal["elementary", "middle-school", "high-school", "college", "graduate-school", "adult-education"]
Mastery = Literal["beginner", "intermediate", "advanced", "expert"]
Studied = Literal[
    "recently-studied",
    "studied-a-month-before",
    "studied-6-months-before",
    "studied-a-year-before",
    "studied-10-years-before",
    "never-studied",
]
Style = Literal["visual", "auditory", "kinesthetic", "reading", "multimodal"]
Assessment = Literal["multiple-choice", "essay", "oral-presentation", "group-projects", "self-assessment"]
Motivation = Literal["high-intrinsic-motivation", "high-extrinsic-motivation", "needs-encouragement", "lacks-direction"]


@program
def education(
    level: Level, mastery: Mastery, studied: Studied, style: Style, assessment: Assessment, motivation: Motivation
) -> None:
    """An expression of a finite parameter is a union of its values, named by the words of their texts."""
    with system():
        text(LEARN["system"][0])
    with user():
        text(LEARN["user"][0])
        text(LEARN[level][0])
        text(LEARN["user"][1])
        text(LEARN[mastery][0])
        text(LEARN["user"][2])
        text(LEARN[studied][0])
        text(LEARN["user"][3])
        text(LEARN[style][0])
        text(LEARN["user"][4])
        text(LEARN[assessment][0])
        text(LEARN["user"][5])
        text(LEARN[motivation][0])
        text(LEARN["user"][6])
    with assistant():
        text(LEARN["assistant"][0])


MBTI = texts("schema_mbti.xml")


@program
def mbti(
    ei: Literal["EI", "E", "I"], st: Literal["ST", "S", "N"], tf: Literal["TF", "T", "F"], jp: Literal["JP", "J", "P"]
) -> None:
    with system():
        text(MBTI["system"][0])
    with user():
        text(MBTI["user"][0])
        match ei:
            case "EI":
                text(MBTI["EI"][0])
            case "E":
                text(MBTI["E"][0])
            case "I":
                text(MBTI["I"][0])
        if st == "ST":
            text(MBTI["ST"][0])
        elif st == "S":
            text(MBTI["S"][0])
        else:
            text(MBTI["N"][0])
        text(MBTI["TF"][0] if tf == "TF" else MBTI["T"][0] if tf == "T" else MBTI["F"][0])
        match jp:
            case "JP":
                text(MBTI["JP"][0])
            case "J":
                text(MBTI["J"][0])
            case "P":
                text(MBTI["P"][0])
        text(MBTI["user"][1])
    with assistant():
        text(MBTI["assistant"][0])


CODE = texts("schema_code_generation.xml")
Task = Literal["task-robot-control", "task-predict-future", "task-random"]


@program
def preface(
    param_name: Arg[str, 5],
    which: Literal["system1", "system2", "system3"],
    message: Arg[str, 10],
    who: Literal["user1", "user2"],
) -> None:
    text(f"{CODE['preface'][0]}{param_name}")
    with module("nested"):
        text(" " + CODE["nested"][0])
    with system():
        match which:
            case "system1":
                text(CODE["system1"][0])
            case "system2":
                text(CODE["system2"][0], cache=False)
            case "system3":
                text(f"{CODE['system3'][0]}{message}")
        match who:
            case "user1":
                text(" " + CODE["user1"][0], cache=False)
            case "user2":
                text(" " + CODE["user2"][0])


@program
def task(which: Task, speed: Arg[str, 5]) -> None:
    match which:
        case "task-robot-control":
            text(f"{CODE['task-robot-control'][0]}{speed}")
        case "task-predict-future":
            text(CODE["task-predict-future"][0])
        case "task-random":
            text(CODE["task-random"][0])


@program
def code_generation(
    param_name: Arg[str, 5],
    which: Literal["system1", "system2", "system3"],
    message: Arg[str, 10],
    who: Literal["user1", "user2"],
    job: Task,
    speed: Arg[str, 5],
) -> None:
    preface(param_name, which, message, who)
    task(job, speed)


# ---- Structure and texts ------------------------------------------------------------------------------------------

CALLS: list[tuple[str, Program[Any], list[dict[str, Any]]]] = [
    ("empty.xml", empty, [{"question": "Hello?"}]),
    ("code_generation_game.xml", code_generation_game, [{"question": "Complete the code."}]),
    (
        "parameterized_prompts.xml",
        travel,
        [
            {"duration": "3 days", "kind": "domestic", "city": "Miami", "place": "rome", "question": "Where?"},
            *(
                {"duration": "3 days", "kind": "overseas", "city": "", "place": place, "question": "Where?"}
                for place in PLACES
            ),
        ],
    ),
    (
        "personalization-education.xml",
        education,
        [
            dict(zip(education.kinds, ("college", "expert", "never-studied", "visual", "essay", "lacks-direction"))),
            dict(
                zip(
                    education.kinds,
                    ("elementary", "beginner", "recently-studied", "reading", "self-assessment", "needs-encouragement"),
                )
            ),
        ],
    ),
    (
        "schema_mbti.xml",
        mbti,
        [dict(zip(mbti.kinds, ("E", "N", "T", "P"))), dict(zip(mbti.kinds, ("EI", "ST", "TF", "JP")))],
    ),
    (
        "schema_code_generation.xml",
        code_generation,
        [
            dict(zip(code_generation.kinds, ("p", "system3", "hello", "user1", "task-robot-control", "fast"))),
            dict(zip(code_generation.kinds, ("p", "system2", "hello", "user2", "task-random", "fast"))),
        ],
    ),
]
RENAMED = {"education", "mbti"}  # programs whose modules have names of their own, for values and else-branches


def structure(element: ElementTree.Element, with_names: bool) -> list[Any]:
    """Elements, names, attributes that matter, and words of texts."""
    name = element.get("name", "").replace("-", "_") if element.tag != "schema" and with_names else ""
    tag = "param" if element.tag == "parameter" else element.tag
    out: list[Any] = [tag, name, element.get("cache", ""), element.get("len") or element.get("length") or ""]
    out += map(str.strip, words(element.text))
    for child in element:
        out.append(structure(child, with_names))
        out += map(str.strip, words(child.tail))
    return out


@pytest.mark.parametrize(("file", "p", "calls"), CALLS, ids=[file for file, _, _ in CALLS])
def test_structure(file: str, p: Program[Any], calls: list[dict[str, Any]]) -> None:
    with_names = p.__name__ not in RENAMED
    generated = structure(ElementTree.fromstring(p.schema().pml), with_names)
    assert generated == structure(ElementTree.fromstring(by_hand(file)), with_names)


@pytest.mark.parametrize(("file", "p", "calls"), CALLS, ids=[file for file, _, _ in CALLS])
def test_texts(file: str, p: Program[Any], calls: list[dict[str, Any]]) -> None:
    """The prompts of the program, over the hand-written schema: the same words in the same roles."""
    names = dict(zip(modules_of(p.schema().pml), modules_of(by_hand(file))))
    assert len(names) == len(modules_of(by_hand(file)))
    root = ElementTree.fromstring(by_hand(file))
    root.set(XML_SPACE, "preserve")
    pml = ElementTree.tostring(root, encoding="unicode")
    for arguments in calls:
        said = p.messages(**arguments)
        parts = p(**arguments).parts
        assert Expander(p.schema().pml).expand(parts) == said
        moved = tuple(Module(names[part.path], part.args) if isinstance(part, Module) else part for part in parts)
        assert as_words(Expander(pml).expand(moved)) == as_words(said)


def as_words(runs: list[tuple[Any, str]]) -> list[tuple[Any, list[str]]]:
    """Runs of text as words, in order; white space between roles is none."""
    return [(role, data.split()) for role, data in runs if role or data.strip()]


def modules_of(pml: str) -> list[str]:
    """The paths of modules, in document order."""

    def paths(element: ElementTree.Element, path: str) -> Iterator[str]:
        for child in element:
            inner = f"{path}/{child.get('name')}".lstrip("/") if child.tag == "module" else path
            if child.tag == "module":
                yield inner
            yield from paths(child, inner)

    return list(paths(ElementTree.fromstring(pml), ""))


@engine_program.needed
@pytest.mark.parametrize(("file", "p", "calls"), CALLS, ids=[file for file, _, _ in CALLS])
def test_engine_loads(file: str, p: Program[Any], calls: list[dict[str, Any]], tmp_path: pathlib.Path) -> None:
    p.schema().save(tmp_path / "schema.xml")
    engine_program.lint(tmp_path / "schema.xml")


# ---- The same plans -----------------------------------------------------------------------------------------------


def city_text(name: str) -> str:
    return " " + (CITIES / f"{name}.txt").read_text(encoding="utf-8").strip()


CITY_MIAMI, CITY_LISBON = city_text("miami"), city_text("lisbon")


@program
def plan(duration: Arg[str, 4], city: Literal["miami", "lisbon"]) -> None:
    text(f"Plan a trip of {duration} to this city.")
    match city:
        case "miami":
            text(CITY_MIAMI)
        case "lisbon":
            text(CITY_LISBON)


@program
def cities(city: Literal["miami", "lisbon"], duration: Arg[str, 4], diet: bool, question: str) -> None:
    with system():
        text("You are a concise travel guide.")
    with user():
        plan(duration, city)
        if diet:
            text(" The traveller eats no meat.", cache=False)
        text(f" {question}")


@engine_program.needed
@pytest.mark.parametrize(
    ("prompt", "call"),
    [
        ("surf.xml", lambda: cities("miami", "3 days", False, "Highlight the surf spots.")),
        ("children.xml", lambda: cities("lisbon", "a week", True, "What will children like?")),
    ],
)
def test_same_plans_as_by_hand(prompt: str, call: Callable[[], Any], tmp_path: pathlib.Path) -> None:
    """examples/cities, whose white space PML settles, and the program: the same tiles at the same positions."""
    built = call()
    cities.schema().save(tmp_path / "cities.xml")
    (tmp_path / "prompt.xml").write_text(prompt_pml(cities.schema().name, built.parts), encoding="utf-8")
    by_program = engine_program.inspect(tmp_path / "cities.xml", tmp_path / "prompt.xml")
    hand = engine_program.inspect(CITIES / "cities.xml", CITIES / prompt)
    assert by_program["tiles"] == hand["tiles"]
    keys = [[node["key"] for node in report["nodes"] if node["kind"] == "module"] for report in (by_program, hand)]
    assert keys[0] == keys[1]
