# SPDX-License-Identifier: Apache-2.0
"""Lora: adapters of the bundled model, base and adapter in one engine, their life and errors."""

import pathlib
import sys
from collections.abc import Iterator

import pytest

from conftest import MODEL, ROOT
from reprise import Engine, Lora, Model, errors

sys.path.insert(0, str(ROOT / "tests" / "server"))
import lora_file  # noqa: E402

PROMPT = "The mill of Orsel stands at the river Norgen, and the river Norgen is wide."


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pathlib.Path]:
    file = tmp_path_factory.mktemp("lora") / "red.gguf"
    lora_file.write(str(MODEL), str(file), 1)
    yield file


def test_base_and_adapter(model: Model, path: pathlib.Path) -> None:
    with Engine(model, n_threads=1) as engine, Lora(model, path) as red:
        base, other = engine.run(PROMPT, max_tokens=8), engine.run(PROMPT, max_tokens=8, adapter=red)
        assert base.text != other.text and (base.adapter_from, other.adapter_from) == (-1, 0)
        assert other.usage.cached_tokens == 0
        again = engine.run(PROMPT, max_tokens=8, adapter=red)
        assert again.text == other.text and again.usage.cached_tokens == again.usage.prompt_tokens - 1
        assert engine.run(PROMPT, max_tokens=8, adapter=red, adapter_scale=0.0).text == base.text
        assert engine.run(PROMPT, max_tokens=8, adapter=None).text == base.text
        job = engine.submit(PROMPT, max_tokens=8, adapter=red)
        red.close()
        assert job.result().text == other.text
        with pytest.raises(errors.InvalidError, match="closed"):
            engine.run(PROMPT, adapter=red)


def test_errors(model: Model, path: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with pytest.raises(errors.FormatError, match="general.type"):
        Lora(model, MODEL)
    with pytest.raises(errors.FileError):
        Lora(model, tmp_path / "nowhere.gguf")
    with Model(MODEL) as another, Engine(another, n_threads=1) as engine, Lora(model, path) as red:
        with pytest.raises(errors.InvalidError, match="another model"):
            engine.run(PROMPT, adapter=red)
        with pytest.raises(errors.InvalidError, match="adapter"):
            engine.run(PROMPT, adapter="red")  # type: ignore[arg-type]
