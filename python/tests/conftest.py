# SPDX-License-Identifier: Apache-2.0
"""What tests share: the library and the program of this tree (REPRISE_LIBRARY, REPRISE_PROGRAM: others), and an engine with the bundled model."""

import os
import pathlib
import sys
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(os.environ.get("REPRISE_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
MODEL = ROOT / "models" / "reprise-mini.gguf"
PROGRAM = pathlib.Path(os.environ.get("REPRISE_PROGRAM", ROOT / "build" / "reprise"))
os.environ.setdefault("REPRISE_LIBRARY", str(ROOT / "build" / "libreprise-tools.so"))
PACKAGE = ROOT / "python"
if str(PACKAGE) not in sys.path:
    sys.path.insert(0, str(PACKAGE))

import reprise  # noqa: E402


def rounds(usual: int) -> int:
    """Rounds of a test: REPRISE_TEST_ROUNDS for long runs."""
    return max(int(os.environ.get("REPRISE_TEST_ROUNDS", usual)), usual)


def environment(**more: str) -> dict[str, str]:
    """For Python in another process."""
    return {**os.environ, "PYTHONPATH": str(PACKAGE), **more}


def environment_of_programs() -> dict[str, str]:
    """For programs that are not Python: a sanitizer's runtime that was loaded for Python's sake is not for them."""
    return {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}


@pytest.fixture(scope="session")
def model() -> Iterator[reprise.Model]:
    with reprise.Model(MODEL) as model:
        yield model


@pytest.fixture
def engine(model: reprise.Model) -> Iterator[reprise.Engine]:
    with reprise.Engine(model, n_threads=1) as engine:
        yield engine
