# SPDX-License-Identifier: Apache-2.0
"""Pictures for notebooks: well formed, escaped, without scripts, and with the numbers of what they show."""

import pathlib
import re
import xml.etree.ElementTree as tree
from xml.sax.saxutils import escape

import pytest

from reprise import Engine, Model, Prompt, Schema, html

SCHEMA = Schema.parse(
    '<schema name="tours"><system>You are a guide.</system><module name="belvik">Belvik is known for its clocks &amp; bells. '
    '<param name="days" len="4"/></module><module name="osthaven">The river Velbrook runs through Osthaven.</module></schema>'
)
HOSTILE = "</div><script>alert(1)</script><img src=x onerror='alert(2)'>\"&"


def whole(picture: str) -> tree.Element:
    """The elements of a picture, which has nothing that runs or is fetched."""
    root = tree.fromstring(picture)
    for element in root.iter():
        assert element.tag in {"div", "span", "table", "tr", "td", "th", "pre"}, element.tag
        assert set(element.attrib) <= {"style", "title"}, element.attrib
        assert "url(" not in element.get("style", "")
    return root


def tiles(root: tree.Element) -> list[tuple[str, float, str]]:
    """Title, width in per cent and background of each tile."""
    found = []
    for span in root.iter("span"):
        width = re.search(r"width:([\d.]+)%", span.get("style", ""))
        if width and span.get("title"):
            ground = re.search(r"background:(#\w+)", span.get("style", ""))
            assert ground is not None
            found.append((span.get("title", ""), float(width[1]), ground[1]))
    return found


def text_of(root: tree.Element) -> str:
    return "".join(root.itertext())


def test_a_results_tiles_are_its_plan(engine: Engine) -> None:
    engine.prefill(SCHEMA)
    result = engine.run(Prompt(SCHEMA).module("belvik", days="two").text(" What is Belvik known for?"), max_tokens=4)
    root = whole(result._repr_html_())
    found = tiles(root)
    assert len(found) == len(result.plan)
    for item, (title, _, ground) in zip(result.plan, found, strict=True):
        assert f"{item.n_tokens} tokens at position {item.position}" in title
        assert (item.module or "schema's text") in title
        assert ground == html.COLOURS["ram" if item.tier == "ram" else "fresh"][0]
    assert sum(width for _, width, _ in found) == pytest.approx(100, abs=1)
    words = text_of(root)
    assert f"{result.usage.cached_tokens} of {result.usage.prompt_tokens} prompt tokens reused" in words
    assert html.LEGEND["ram"] in words and html.LEGEND["fresh"] in words and html.LEGEND["disk"] not in words
    assert result.text in words


def test_where_kv_came_from_has_its_colour(model: Model, tmp_path: pathlib.Path) -> None:
    prompt = Prompt(SCHEMA).module("osthaven").text("Which river?")
    grounds = []
    for _ in range(2):
        with Engine(model, n_threads=1, store_dir=tmp_path / "store", store_write="through") as engine:
            for _ in range(2):
                root = whole(engine.run(prompt, max_tokens=1)._repr_html_())
                grounds += [ground for title, _, ground in tiles(root) if title.startswith("osthaven:")]
    colours = [html.COLOURS[source][0] for source in ("computed", "ram", "disk", "ram")]
    assert grounds == colours and len(set(colours)) == 3


def test_hostile_text_is_text(engine: Engine) -> None:
    schema = Schema.parse(f'<schema name="s"><module name="m">{escape(HOSTILE)}</module></schema>')
    prompt = Prompt(schema).module("m").text(HOSTILE)
    result = engine.run(prompt, max_tokens=1)
    vars(result)["text"] = HOSTILE  # an answer can be anything
    assert HOSTILE in text_of(whole(result._repr_html_()))
    for picture in (engine.inspect(prompt)._repr_html_(), schema._repr_html_()):
        assert "</div><script>" in text_of(whole(picture)) and "<script" not in picture


def test_an_inspections_tree_and_tiles(engine: Engine) -> None:
    inspection = engine.inspect(Prompt(SCHEMA).module("belvik").text("?"))
    root = whole(inspection._repr_html_())
    rows = ["|".join(text_of(cell) for cell in row) for row in root.iter("tr")]
    for node in inspection.nodes:
        if node.kind != "text":
            assert any(row.startswith(f"{node.kind} {node.name}".strip() + "|") for row in rows), node
    assert any(
        row.startswith("module osthaven|") and row.endswith("|The river Velbrook runs through Osthaven.")
        for row in rows
    )
    assert len(tiles(root)) == len(inspection.tiles) > 0
    assert tiles(whole(engine.inspect(SCHEMA)._repr_html_())) == []


def test_a_schemas_tree_needs_no_engine() -> None:
    rows = ["|".join(text_of(cell) for cell in row) for row in whole(SCHEMA._repr_html_()).iter("tr")]
    assert [row.split("|")[0] for row in rows] == [
        "schema tours", "system", "module belvik", "param days", "module osthaven",
    ]  # fmt: skip
    assert "clocks & bells." in rows[2] and 'len="4"' in rows[3]


def test_a_malformed_schema_is_shown_with_its_error() -> None:
    words = text_of(whole(Schema("bad", '<schema name="bad">\n<module', "bad.xml")._repr_html_()))
    assert words.startswith("bad.xml: ") and "line 2" in words and "<module" in words
