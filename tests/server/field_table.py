# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/fields.md. As a program it reads {title: [field, ...]} from stdin, the fields of the official clients' types
(tests/clients/fields.test.mjs), and prints those that no row has, as JSON in the same form."""
import fnmatch
import itertools
import json
import os
import re
import sys

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "fields.md")
VERDICTS = ("honoured", "silent", "warning", "refused")
STEP = re.compile(r"(?P<name>[^.<\[\]]+)(?P<list>\[\])?(?:<(?P<types>[^>]*)>)?$")


def expand(path):
    """'{a,b}.c' is 'a.c' and 'b.c'."""
    parts = re.split(r"\{([^}]*)\}", path)
    choices = [p.split(",") if i % 2 else [p] for i, p in enumerate(parts)]
    return ["".join(c) for c in itertools.product(*choices)]


def steps(path):
    """'a[]<b/c>.d' -> [('a', True, ['b', 'c']), ('d', False, [])]"""
    found = []
    for step in re.findall(r"(?:<[^>]*>|[^.<])+", path):
        m = STEP.match(step)
        if not m:
            raise SystemExit(f"docs/fields.md: `{path}` is not a path")
        found.append((m["name"], bool(m["list"]), re.split(r"[/|]", m["types"]) if m["types"] else []))
    return found


def fits(row, path, is_around=False):
    """Is the row's step this step of a field? is_around: `a` is also all that is in `a[]`."""
    (name, is_list, types), (own, own_list, own_types) = row, path
    if name != own or (is_list != own_list and not (is_around and own_list)):
        return False
    return not types or not own_types or any(fnmatch.fnmatchcase(o, t) for o in own_types for t in types)


class Table:
    def __init__(self, title):
        self.title = title
        self.rows = []  # (path, its steps, the verdict)

    def verdict(self, path):
        """What happens with a field: the row of it, else the longest row around it. None: there is none."""
        own, best, result = steps(path), 0, None
        for row, row_steps, verdict in self.rows:
            everything = row.endswith(".*") or verdict != "honoured"
            n = len(row_steps) - row.endswith(".*")
            if n > len(own) or (n < len(own) and not everything) or (n == len(own) and row.endswith(".*")):
                continue
            if n > best and all(fits(r, o, i == n - 1 < len(own) - 1) for i, (r, o) in enumerate(zip(row_steps[:n], own))):
                best, result = n, verdict
        return result


def tables():
    with open(PAGE, encoding="utf-8") as f:
        lines = f.read().split("\n")
    found = []
    for i, line in enumerate(lines, 1):
        if line.startswith("## "):
            found.append(Table(line[3:]))
        cells = [c.strip() for c in line.strip("|").split("|")]
        if not found or not line.startswith("| `"):
            continue
        if len(cells) != 3 or cells[1] not in VERDICTS:
            raise SystemExit(f"docs/fields.md:{i}: a row has fields, one of {', '.join(VERDICTS)}, and a reason")
        for path in itertools.chain.from_iterable(map(expand, re.findall(r"`([^`]+)`", cells[0]))):
            found[-1].rows.append((path, steps(path), cells[1]))
    return found


def lacking(table, fields):
    """Fields without a row; not those inside one of them."""
    found = []
    for path in fields:
        if not table.verdict(path) and not (found and path.startswith(tuple(f + c for f in found for c in ".[<"))):
            found.append(path)
    return found


if __name__ == "__main__":
    by_title = {t.title: t for t in tables()}
    asked = json.load(sys.stdin)
    print(json.dumps({title: lacking(by_title[title] if title in by_title else Table(title), fields) for title, fields in asked.items()}))
