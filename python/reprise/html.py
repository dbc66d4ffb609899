# SPDX-License-Identifier: Apache-2.0
"""Pictures for notebooks: a prompt as tiles along its positions, coloured by where the KV of each part came from. Self-contained HTML without
scripts; colours and words are those of the server's page (web/mosaic.js)."""

from __future__ import annotations

import xml.etree.ElementTree
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .answers import Answer
    from .engine import Inspection, Node
    from .result import PlanItem, Result
    from .schema import Schema

COLOURS = {  # background, text
    "ram": ("#14807a", "#ffffff"),
    "disk": ("#3a66b0", "#ffffff"),
    "computed": ("#e0a93b", "#1b1508"),
    "fresh": ("#bf4c35", "#ffffff"),
    "absent": ("#e9e9e4", "#585f65"),
}
LEGEND = {
    "ram": "reused from RAM",
    "disk": "reused from disk",
    "computed": "module, computed now",
    "fresh": "computed for this prompt",
    "absent": "not in the prompt",
}
_BOX = "font:13px system-ui,sans-serif;line-height:1.5;max-width:960px"
_TILE = (
    "display:inline-block;box-sizing:border-box;height:28px;padding:4px 6px;overflow:hidden;white-space:nowrap;"
    "text-overflow:ellipsis;font-size:12px;border-right:1px solid #fff;vertical-align:top"
)


def _source(item: PlanItem) -> str:
    if not item.is_view:
        return "fresh"
    if item.tier == "device":
        return "ram"
    return item.tier if item.tier in ("ram", "disk") else "computed"


def _name(module: str) -> str:
    return {"": "schema's text", "prompt": "prompt"}.get(module, module)


def _bar(tiles: Iterable[tuple[str, str, str, int]]) -> str:
    """Tiles (source, label, title, tokens) side by side, as wide as their tokens, and at least as wide as can be seen."""
    listed = list(tiles)
    total = sum(n for *_, n in listed) or 1
    least = min(1.5, 100 / max(len(listed), 1))
    widths = [max(100 * n / total, least) for *_, n in listed]
    scale = 100 / max(sum(widths), 100)
    out = []
    for (source, label, title, _), width in zip(listed, widths):
        ground, ink = COLOURS[source]
        style = f"{_TILE};width:{width * scale:.3f}%;background:{ground};color:{ink}"
        out.append(f'<span style="{style}" title="{escape(title)}">{escape(label)}</span>')
    return f'<div style="width:100%;white-space:nowrap;font-size:0">{"".join(out)}</div>'


def _legend(sources: Iterable[str]) -> str:
    out = []
    for source in LEGEND:
        if source in sources:
            swatch = f"display:inline-block;width:11px;height:11px;background:{COLOURS[source][0]};margin:0 4px 0 0"
            out.append(f'<span style="margin-right:16px"><span style="{swatch}"></span>{LEGEND[source]}</span>')
    return f'<div style="margin-top:4px">{"".join(out)}</div>'


def result(result: Result | Answer) -> str:
    """The answer, the mosaic of its prompt, and the times."""
    usage, timings = result.usage, result.timings
    tiles = []
    for item in result.plan:
        title = f"{_name(item.module)}: {item.n_tokens} tokens at position {item.position}, {LEGEND[_source(item)]}"
        title += f" ({item.reason})" if item.reason else ""
        title += f", {item.kept:.0%} of its slots kept" if item.kept < 1 else ""
        tiles.append((_source(item), _name(item.module), title, item.n_tokens))
    summary = (
        f"{usage.cached_tokens:,} of {usage.prompt_tokens:,} prompt tokens reused · first token after {timings.ttft_ms:,.1f} ms"
        f" · {usage.answer_tokens:,} tokens, {result.finish_reason}"
    )
    return (
        f'<div style="{_BOX}"><div style="white-space:pre-wrap;margin-bottom:8px">{escape(result.text)}</div>'
        f"{_bar(tiles)}{_legend({tile[0] for tile in tiles})}<div>{escape(summary)}</div></div>"
    )


def _previews(nodes: Sequence[Node]) -> list[str]:
    """The beginning of each element's own text: of the first text node that is directly in it."""
    previews, open_nodes = [node.preview for node in nodes], list[int]()
    for i, node in enumerate(nodes):
        del open_nodes[node.depth :]
        if node.kind == "text" and open_nodes and not previews[open_nodes[-1]]:
            previews[open_nodes[-1]] = node.preview
        open_nodes.append(i)
    return previews


def inspection(inspection: Inspection) -> str:
    """The layout of a schema as a tree, and the tiles of the prompt."""
    rows = []
    previews = _previews(inspection.nodes)
    for i, node in enumerate(inspection.nodes):
        if node.kind == "text":
            continue
        label = f"{node.kind} {node.name}".strip()
        ground = COLOURS["ram" if node.taken else "absent"][0]
        rows.append(
            f'<tr><td style="padding-left:{8 + 16 * node.depth}px;border-left:4px solid {ground};text-align:left">{escape(label)}</td>'
            f"<td>{node.n_tokens or ''}</td><td>{node.position if node.n_tokens else ''}</td>"
            f'<td style="text-align:left">{escape(previews[i])}</td></tr>'
        )
    tiles = [
        (
            "ram" if tile.is_view else "fresh",
            _name(tile.path),
            f"{_name(tile.path)}: {tile.n_tokens} tokens at position {tile.position}"
            + (f", shifted by {tile.shift}" if tile.shift else ""),
            tile.n_tokens,
        )
        for tile in inspection.tiles
    ]
    head = f"{inspection.schema}: layout {inspection.layout}, scope {inspection.scope}, {inspection.schema_positions} positions"
    return (
        f'<div style="{_BOX}"><div>{escape(head)}</div>{_bar(tiles) if tiles else ""}'
        '<table style="border-collapse:collapse;font:inherit"><tr><th style="text-align:left">element</th><th>tokens</th><th>position</th>'
        f'<th style="text-align:left">text</th></tr>{"".join(rows)}</table></div>'
    )


def schema(schema: Schema) -> str:
    """The modules of a schema as a tree, with their texts' beginnings. Needs no model."""
    rows: list[str] = []

    def add(element: xml.etree.ElementTree.Element, depth: int) -> None:
        label = f"{element.tag} {element.get('name', element.get('modules', ''))}".strip()
        others = " ".join(
            f'{k}="{v}"' for k, v in element.attrib.items() if k not in ("name", "modules") and "}" not in k
        )
        words = " ".join((element.text or "").split())
        words = words if len(words) <= 80 else words[:79] + "…"
        rows.append(
            f'<tr><td style="padding-left:{8 + 16 * depth}px;text-align:left">{escape(label)}</td>'
            f'<td style="text-align:left">{escape(others)}</td><td style="text-align:left">{escape(words)}</td></tr>'
        )
        for child in element:
            add(child, depth + 1)

    try:
        root = xml.etree.ElementTree.fromstring(schema.pml)
    except xml.etree.ElementTree.ParseError as e:  # its text, then, with the error that loading it will have
        return f'<div style="{_BOX}"><div>{escape(f"{schema.document or schema.name}: {e}")}</div><pre>{escape(schema.pml)}</pre></div>'
    add(root, 0)
    return f'<div style="{_BOX}"><table style="border-collapse:collapse;font:inherit">{"".join(rows)}</table></div>'
