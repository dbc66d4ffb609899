# SPDX-License-Identifier: Apache-2.0
"""Lora: adapters of the bundled model, base and adapter in one engine, their life and errors."""

import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

from conftest import MODEL, ROOT, environment
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


# Issue 46: what an object borrows from is held by it. An adapter is closed before its model, whichever the collector takes first.
def test_adapter_and_model_are_held(path: pathlib.Path) -> None:
    code = f"""
import gc, reprise
from reprise import _library
order = []
for name in ("rp_adapter_close", "rp_engine_close", "rp_model_close"):
    def freed(*args, name=name, real=getattr(_library.lib, name)):
        order.append(name[3:-6])
        return real(*args)
    setattr(_library.lib, name, freed)
lora = reprise.Lora(reprise.Model({os.fspath(MODEL)!r}), {os.fspath(path)!r})
gc.collect()
job = reprise.Engine(lora.model, n_threads=1).submit("Tom had", max_tokens=5, ignore_eos=True, adapter=lora)
del lora
gc.collect()
assert len(job.result().tokens) == 5
del job
gc.collect()
assert order == ["adapter", "engine", "model"], order
lora = reprise.Lora(reprise.Model({os.fspath(MODEL)!r}), {os.fspath(path)!r})
lora.me = lora
del lora
gc.collect()
assert order[3:] == ["adapter", "model"], order
lora = reprise.Lora(reprise.Model({os.fspath(MODEL)!r}), {os.fspath(path)!r})
lora.model.close()
lora.close()
assert order[5:] == ["adapter", "model"], order
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(), timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
