# SPDX-License-Identifier: Apache-2.0
"""TTFT against cached tokens, as SVG."""
import math
import os
from xml.sax.saxutils import escape

from peers.common import FRESH, OURS, SHAPES, TYPES


STYLE = """<style>
  text { font: 12px system-ui, sans-serif; fill: #6e7681; }
  .title { font-size: 13px; font-weight: 600; }
  .grid { stroke: #8c959f; stroke-opacity: .28; }
  .axis { stroke: #8c959f; }
  .line { fill: none; stroke-width: 2; }
  @media (prefers-color-scheme: dark) { text { fill: #9ea7b3; } }
</style>
"""
COLOURS = {OURS: "#14807a", "llama.cpp": "#a8690a"}  # --series-0 and --series-1 of web/frame.css
PANEL_W, PANEL_H, LEFT, TOP, GAP_X, GAP_Y, LEGEND_W = 330, 230, 62, 84, 76, 62, 240


def curves(of):
    """The lines of a panel: (label, colour, dashed, [(cached tokens, ms)])."""
    reuse, hit, full, peer_full = [], [], [], []
    for cell, f in of.items():
        name, _, n = cell.partition("-")
        if name == "prefill":
            x = int(n) - FRESH
            full.append((x, f.ours))
            peer_full.append((x, f.peer))
            if x == 0:
                reuse.append((x, f.ours))
                hit.append((x, f.peer))
        elif name == "fresh":
            reuse.append((int(n), f.ours))
            hit.append((int(n), f.peer))
        elif name == "full":
            full.append((int(n), f.ours))
            peer_full.append((int(n), f.peer))
    theirs = COLOURS["llama.cpp"]
    lines = [("Reprise, modules in any order", COLOURS[OURS], False, reuse), ("llama-server, prefix hit", theirs, False, hit),
             ("Reprise, full prefill", COLOURS[OURS], True, full), ("llama.cpp, full prefill", theirs, True, peer_full)]
    return [(label, colour, dashed, sorted((x, y) for x, y in points if y)) for label, colour, dashed, points in lines]


def tick(ms):
    return f"{ms / 1000:g} s" if ms >= 1000 else f"{ms:g} ms"


def step_down(x):
    """The largest of 1, 2, 5, 10, 20, ... that is not above x."""
    power = 10.0 ** math.floor(math.log10(x))
    return max(power * k for k in (1, 2, 5) if power * k <= x * (1 + 1e-9))


def step_up(x):
    power = 10.0 ** math.floor(math.log10(x))
    return min(power * k for k in (1, 2, 5, 10) if power * k >= x * (1 - 1e-9))


def panel(x0, y0, title, lines, ends, top_x):
    low, high = (math.log10(y) for y in ends)

    def at(x, y):
        return x0 + PANEL_W * x / top_x, y0 + PANEL_H * (high - math.log10(y)) / (high - low)
    out = [f'<text class="title" x="{x0}" y="{y0 - 8}">{title}</text>\n']
    for d in range(math.ceil(low - 1e-9), math.floor(high + 1e-9) + 1):
        _, y = at(0, 10.0 ** d)
        out.append(f'<line class="grid" x1="{x0}" y1="{y:.1f}" x2="{x0 + PANEL_W}" y2="{y:.1f}"/>'
                   f'<text x="{x0 - 6}" y="{y + 4:.1f}" text-anchor="end">{tick(10.0 ** d)}</text>\n')
    for x in range(0, top_x + 1, 500 if top_x <= 2500 else 1000):
        px, _ = at(x, 1)
        out.append(f'<line class="grid" x1="{px:.1f}" y1="{y0}" x2="{px:.1f}" y2="{y0 + PANEL_H}"/>'
                   f'<text x="{px:.1f}" y="{y0 + PANEL_H + 16}" text-anchor="middle">{x:,}</text>\n')
    out.append(f'<path class="axis" fill="none" d="M{x0} {y0}V{y0 + PANEL_H}H{x0 + PANEL_W}"/>\n')
    out.append(f'<text x="{x0 + PANEL_W / 2}" y="{y0 + PANEL_H + 33}" text-anchor="middle">cached tokens</text>\n')
    for _, colour, dashed, points in lines:
        places = [at(x, y) for x, y in points]
        if not places:
            continue
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        out.append(f'<path class="line" stroke="{colour}" d="{path}"' + (' stroke-dasharray="5 4"' if dashed else "") + "/>\n")
        out.extend(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places)
    return "".join(out) + "\n"


def draw(shape, kinds, machine):
    """kinds: {type: {cell: Figure}}, in order; two panels a row. machine: a line with processor, threads and date."""
    panels = {kind: curves(of) for kind, of in kinds.items()}
    points = [point for lines in panels.values() for _, _, _, line in lines for point in line]
    ends = step_down(min(y for _, y in points)), step_up(max(y for _, y in points))
    top_x = max(x for x, _ in points)
    columns, rows = min(2, len(panels)), (len(panels) + 1) // 2
    width = LEFT + columns * PANEL_W + (columns - 1) * GAP_X + 24
    width = max(width, LEFT + 2 * LEGEND_W)
    height = TOP + 22 + rows * PANEL_H + (rows - 1) * GAP_Y + 42
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
           f'aria-label="{shape}: time to first token against cached tokens">\n{STYLE}',
           f'<text class="title" x="{LEFT}" y="18">{shape}: time to first token of {FRESH} new tokens</text>\n'
           f'<text x="{LEFT}" y="35">{escape(machine)}</text>\n']
    for i, (label, colour, dashed, _) in enumerate(next(iter(panels.values()))):
        x, y = LEFT + (i % 2) * LEGEND_W, 55 + (i // 2) * 18
        out.append(f'<path class="line" stroke="{colour}" d="M{x} {y - 4}h26"' + (' stroke-dasharray="5 4"' if dashed else "") +
                   f'/><circle cx="{x + 13}" cy="{y - 4}" r="3" fill="{colour}"/><text x="{x + 34}" y="{y}">{label}</text>\n')
    for i, (kind, lines) in enumerate(panels.items()):
        out.append(panel(LEFT + (i % 2) * (PANEL_W + GAP_X), TOP + 22 + (i // 2) * (PANEL_H + GAP_Y), kind, lines, ends, top_x))
    return "".join(out) + "</svg>\n"


def render_figures(figures, folder, machine):
    """Draws every shape that has a cell of reuse. {shape: path from the page}. machine: as of draw."""
    pictures = {}
    for shape in SHAPES:
        kinds = {}
        for kind in TYPES:
            of = {cell: f for (s, k, cell), f in figures.items() if s == shape and k == kind}
            if any(cell.startswith("fresh-") for cell in of):
                kinds[kind] = of
        if kinds:
            os.makedirs(folder, exist_ok=True)
            name = f"ttft-{shape}.svg"
            with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
                f.write(draw(shape, kinds, machine))
            pictures[shape] = os.path.join(os.path.basename(folder), name)
    return pictures
