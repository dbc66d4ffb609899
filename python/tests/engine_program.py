# SPDX-License-Identifier: Apache-2.0
"""The program `reprise` as a judge of generated PML: REPRISE_TEST_PROGRAM, or build/reprise of the source tree."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
from typing import Any

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ.get("REPRISE_TEST_PROGRAM", ROOT / "build" / "reprise"))
MODEL = ROOT / "models" / "reprise-mini.gguf"

needed = pytest.mark.skipif(not PROGRAM.exists(), reason=f"no {PROGRAM}: build it, or set REPRISE_TEST_PROGRAM")


def _run(*arguments: object) -> str:
    done = subprocess.run([str(PROGRAM), *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"reprise {arguments}: {done.stdout[-1000:]}{done.stderr[-1000:]}"
    return done.stdout


def lint(schema: pathlib.Path) -> str:
    """The report of `reprise lint`, which fails for errors."""
    return _run("lint", schema, "-m", MODEL, "-c", 16384)


def inspect(schema: pathlib.Path, prompt: pathlib.Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(_run("inspect", "-m", MODEL, "--schema", schema, "--prompt", prompt, "--json"))
    return report


def sources(schema: pathlib.Path, prompt: pathlib.Path) -> list[str]:
    """What the plan consists of, by position: paths of modules, "" for the schema, "prompt"."""
    found: list[str] = []
    for tile in sorted(inspect(schema, prompt)["tiles"], key=lambda tile: int(tile["position"])):
        if not found or found[-1] != tile["module"]:
            found.append(tile["module"])
    return found
