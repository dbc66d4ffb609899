# SPDX-License-Identifier: Apache-2.0
"""Tables of the measurements."""
import statistics

from peers.common import DEPTHS, FRESH, FULL, MEMORY_TOKENS, OTHER_ORDER, OTHER_SHAPES, OURS, PREFILL, REUSING, SHAPES, TYPES


class Figure:
    """One cell's medians: ours, the best of the peer's settings, the lower bound; ms, or bytes for `memory`."""

    def __init__(self, record):
        self.record = record
        medians = {s: statistics.median(x) for s, x in record["samples"].items() if x}
        theirs = {s: x for s, x in medians.items() if s.startswith("llama") and s != REUSING}
        self.ours, self.other_order = medians.get(OURS), medians.get(OTHER_ORDER)
        self.peer = min(theirs.values(), default=None)
        self.reused = medians.get(REUSING)
        self.limit = record["limit"]


def significant(x):
    """Three digits, or all integer digits, with commas."""
    return f"{x:,.0f}" if x >= 100 else f"{x:.1f}" if x >= 10 else f"{x:.2f}"


def cell_text(ours, peer, limit, show):
    """ours / theirs, the speed-up, the share of the lower bound."""
    if ours is None:
        return ""
    if peer is None:
        return f"{show(ours)}, {100 * limit / ours:.0f} %"
    return f"{show(ours)} / {show(peer)}, **{significant(peer / ours)} x**, {100 * limit / ours:.0f} %"


def table(head, rows):
    lines = [head, ["---"] * len(head)] + rows
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def rows_of(figures, shape, columns):
    """Rows of types; a column is a function of {cell: Figure}. Types without figures are omitted."""
    rows = []
    for kind in TYPES:
        of = {cell: f for (s, k, cell), f in figures.items() if s == shape and k == kind}
        cells = [column(of) for column in columns]
        if any(cells):
            rows.append([kind] + cells)
    return rows


def speed_column(cell, tokens):
    return lambda of: cell_text(of[cell].ours, of[cell].peer, of[cell].limit, lambda ms: significant(tokens / ms * 1e3)) if cell in of else ""


def time_column(cell, attribute="ours"):
    return lambda of: cell_text(getattr(of[cell], attribute), of[cell].peer, of[cell].limit, significant) if cell in of else ""


def swapped_column(cached):
    """Ours with the modules in the other order, against the peer's full prefill."""
    fresh, full = f"fresh-{cached}", f"full-{cached}"
    return lambda of: (cell_text(of[fresh].other_order, of[full].peer if full in of else None, of[fresh].limit, significant)
                       if fresh in of else "")


def alone_column(cached):
    """Ours against 20 tokens alone plus one read of the KV."""
    cell = f"fresh-{cached}"

    def text(of):
        if cell not in of or "prefill-20" not in of:
            return ""
        return f"{of[cell].ours / (of['prefill-20'].ours + of[cell].record['facts']['states_ms']):.2f} x"
    return text


def own_full_column(cached):
    fresh, full = f"fresh-{cached}", f"full-{cached}"
    return lambda of: f"{significant(of[full].ours / of[fresh].ours)} x" if fresh in of and full in of else ""


def shape_section(figures, shape, pictures):
    parts = [f"### {shape}\n"]

    def add(title, head, columns):
        rows = rows_of(figures, shape, columns)
        if rows:
            parts.append(f"{title}\n\n{table(['weights'] + head, rows)}")
    add("Prefill, tokens/s", [f"{n:,}" for n in PREFILL], [speed_column(f"prefill-{n}", n) for n in PREFILL])
    add("Decode, tokens/s", [f"depth {d:,}" for d in DEPTHS], [speed_column(f"decode-{d}", 1) for d in DEPTHS])
    for k in (2000, 5000):
        add(f"TTFT of {FRESH} new tokens after {k:,} cached ones, ms",
            ["same order / prefix hit", "other order / recomputed", "against 20 alone and one read", "nothing cached", "gain over own full prefill"],
            [time_column(f"fresh-{k}"), swapped_column(k), alone_column(k), time_column(f"full-{k}"), own_full_column(k)])
    again = rows_of(figures, shape, [lambda of, k=k: significant(of[f"full-{k}"].reused) if f"full-{k}" in of and of[f"full-{k}"].reused else ""
                                     for k in FULL])
    if again:
        parts.append("llama-server with --cache-reuse, documents in the other order, ms\n\n" +
                     table(["weights"] + [f"{k:,} cached" for k in FULL], again))
    add("Memory and loading", [f"peak of a prefill of {MEMORY_TOKENS} tokens, MB", "from start to end of a process that computes a token, ms"],
        [lambda of: cell_text(of["memory"].ours, of["memory"].peer, of["memory"].limit, lambda b: significant(b / 1e6)) if "memory" in of else "",
         time_column("load")])
    if shape in pictures:
        parts.append(f"![TTFT against cached tokens]({pictures[shape]})\n")
    return "\n".join(parts)


def span(values, show):
    low, high = show(min(values)), show(max(values))
    return low if low == high else f"{low} to {high}"


def machine_caption(results, figures):
    """The line under a figure: the machine and conditions of its measurement."""
    machine, dates = results["machine"], [f.record["date"][:10] for f in figures.values()]
    return f"{machine['processor']}, {machine['threads']} threads, KV f16, {span(dates, str)}; log scale" if dates else ""


def render_tables(results, figures, pictures):
    records = [f.record for f in figures.values()]
    if not records:
        return "Nothing was measured yet.\n"
    machine = results["machine"]
    limits = [l for r in records for l in r["limits"]]
    others = max(x for r in records for shares in r["others"].values() for x in shares)
    head = (f"{machine['processor']}, {machine['processors']} processors, {machine['threads']} threads; {machine['system']}. llama.cpp "
            f"{', '.join(sorted({r['llama.cpp'] for r in records}))}, Reprise {', '.join(sorted({r['reprise'] for r in records}))}; "
            f"{span([r['date'][:10] for r in records], str)}. Beside the cells the machine read "
            f"{span([l['read_gbs'] for l in limits], lambda x: f'{x:.1f}')} GB/s and multiplied "
            f"{span([l['int8_gops'] for l in limits], lambda x: f'{x:.0f}')} Gop/s of 8-bit integers, "
            f"{span([l['f32_gops'] for l in limits], lambda x: f'{x:.0f}')} of f32. Other programs used at most {100 * others:.0f} % of the "
            f"processors during a sample.\n")
    shapes = [s for s in [*SHAPES, *OTHER_SHAPES] if any(key[0] == s for key in figures)]
    return "\n".join([head] + [shape_section(figures, shape, pictures) for shape in shapes])
