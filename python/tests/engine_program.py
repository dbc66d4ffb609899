# SPDX-License-Identifier: Apache-2.0
"""The program `reprise` as a judge of generated PML."""

from __future__ import annotations

import json
import pathlib
import subprocess
from typing import Any

import pytest
from conftest import MODEL, PROGRAM, environment_of_programs

needed = pytest.mark.skipif(not PROGRAM.exists(), reason=f"no {PROGRAM}: build it, or set REPRISE_PROGRAM")


def _run(*arguments: object) -> str:
    command = [str(PROGRAM), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment_of_programs())
    assert done.returncode == 0, f"reprise {arguments}: {done.stdout[-1000:]}{done.stderr[-1000:]}"
    return done.stdout


def lint(schema: pathlib.Path) -> str:
    """The report of `reprise lint`, which fails for errors."""
    return _run("lint", schema, "-m", MODEL, "-c", 16384)


def inspect(schema: pathlib.Path, prompt: pathlib.Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(_run("inspect", "-m", MODEL, "--schema", schema, "--pml", prompt, "--json"))
    return report


def sources(schema: pathlib.Path, prompt: pathlib.Path) -> list[str]:
    """What the plan consists of, by position: paths of modules, "" for the schema, "prompt"."""
    found: list[str] = []
    for tile in sorted(inspect(schema, prompt)["tiles"], key=lambda tile: int(tile["position"])):
        if not found or found[-1] != tile["module"]:
            found.append(tile["module"])
    return found
