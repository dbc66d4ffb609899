# SPDX-License-Identifier: Apache-2.0
"""Random programs: the text that their prompts stand for equals plain execution, and all constant text is reusable.

REPRISE_TEST_ROUNDS programs from seed REPRISE_TEST_SEED; a failure names its seed, which alone repeats it:
REPRISE_TEST_SEED=1234 REPRISE_TEST_ROUNDS=1.
"""

from __future__ import annotations

import os
import pathlib
import re
from typing import Any

import engine_program

import program_maker
from pml_expand import expand, fresh_texts, prompt_pml, sources

ROUNDS = int(os.environ.get("REPRISE_TEST_ROUNDS", "300"))
SEED = int(os.environ.get("REPRISE_TEST_SEED", "1"))
CALLS = 6  # of each program
ENGINE_ROUNDS = 20


def load(source: str, path: pathlib.Path) -> dict[str, Any]:
    """Writes and imports a module."""
    path.write_text(source, encoding="utf-8", newline="")
    module: dict[str, Any] = {"__name__": path.stem, "__file__": str(path)}
    exec(compile(source, str(path), "exec"), module)
    return module


def check(seed: int, path: pathlib.Path) -> str:
    """One program. The PML of its schema."""
    maker = program_maker.Maker(seed)
    source, main = maker.make()
    module = load(source, path)
    program = module["main"]
    pml: str = program.schema().pml
    missing = [marker for marker in main.markers if marker not in pml]
    assert not missing, f"seed {seed}: branches without a module: {missing}\n{source}\n{pml}"
    for _ in range(CALLS):
        arguments = maker.arguments(main, module)
        said = program.messages(**arguments)
        prompt = program(**arguments)
        got = expand(pml, prompt.parts)
        assert got == said, f"seed {seed}: {arguments}\n{source}\n{pml}\n{prompt.parts}\nprompt {got}\nplain  {said}"
        fresh = [text for text in fresh_texts(prompt.parts) if re.search("@[0-9]+@", text)]
        assert not fresh, f"seed {seed}: constant text is fresh: {fresh}\n{source}\n{pml}"
    return pml


def test_random_programs(tmp_path: pathlib.Path) -> None:
    for seed in range(SEED, SEED + ROUNDS):
        path = tmp_path / f"program_{seed}.py"
        try:
            check(seed, path)
        except AssertionError:
            raise
        except Exception as e:
            raise AssertionError(f"seed {seed}: {e!r}\n{path.read_text()}") from e
        path.unlink()


@engine_program.needed
def test_engine_agrees(tmp_path: pathlib.Path) -> None:
    """The real engine loads the schemas, and composes the prompts of the same modules and texts in the same order."""
    for seed in range(SEED, SEED + ENGINE_ROUNDS):
        maker = program_maker.Maker(seed)
        source, main = maker.make()
        module = load(source, tmp_path / f"program_{seed}.py")
        schema = module["main"].schema()
        path = tmp_path / "schema.xml"
        schema.save(path)
        engine_program.lint(path)
        for _ in range(2):
            arguments = {
                k: "x" if v in ("\x01", "") else v for k, v in maker.arguments(main, module).items()
            }  # XML, tokens
            prompt = module["main"](**arguments)
            (tmp_path / "prompt.xml").write_text(prompt_pml(schema.name, prompt.parts), encoding="utf-8", newline="")
            got = engine_program.sources(path, tmp_path / "prompt.xml")
            assert got == sources(
                schema.pml, prompt.parts
            ), f"seed {seed}: {arguments}\n{source}\n{schema.pml}\n{prompt.parts}"
