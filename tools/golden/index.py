# SPDX-License-Identifier: Apache-2.0
"""Reads and writes tests/golden/index.json, with one line per prompt."""
import json
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "tests" / "golden"


def read():
    path = FOLDER / "index.json"
    return json.loads(path.read_text()) if path.exists() else {"made_with": {}, "models": []}


def write(made_with, models):
    lines = ['{"made_with": ' + json.dumps(made_with) + ',', ' "models": [']
    for i, model in enumerate(models):
        head = json.dumps({k: v for k, v in model.items() if k != "prompts"})
        lines.append("  " + head[:-1] + ', "prompts": [')
        lines.append(",\n".join("    " + json.dumps(p, separators=(",", ":")) for p in model["prompts"]))
        lines.append("  ]}" + ("," if i + 1 < len(models) else ""))
    lines.append(" ]}")
    (FOLDER / "index.json").write_text("\n".join(lines) + "\n")


def gguf_version():
    from importlib.metadata import version
    return version("gguf")
