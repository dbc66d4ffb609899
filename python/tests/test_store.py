# SPDX-License-Identifier: Apache-2.0
"""Stores: the entries of an engine and of a folder, a restart, bundles."""

import pathlib

import pytest

from reprise import Engine, Model, Prompt, Schema, Store, errors

SCHEMA = Schema.parse(
    '<schema name="towns"><module name="belvik">Belvik is known for its clocks. Belvik was founded in 1347.</module>'
    '<module name="osthaven">The river Velbrook runs through Osthaven.</module></schema>'
)


def test_a_folder_keeps_what_an_engine_computed(model: Model, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "store"
    with Engine(model, n_threads=1, store_dir=folder, store_write="through") as engine:
        engine.prefill(SCHEMA)
        with engine.store as store:
            entries = store.list("towns")
            assert {entry.label for entry in entries} == {
                "towns",
                "towns/belvik",
                "towns/osthaven",
            }  # towns: the first token
            assert all(entry.in_ram and entry.on_disk and entry.kind == "module" for entry in entries)
            assert [entry.pinned for entry in store.pin("towns/belvik")] == [True]
            assert store.set_ttl("towns/osthaven", seconds=60)[0].expires > 0
            with pytest.raises(errors.UnknownNameError):
                store.list("villages")
            with pytest.raises(errors.ConflictError):
                store.usage()
        with pytest.raises(errors.ConflictError):
            Store(folder)
    with Engine(model, n_threads=1, store_dir=folder) as engine:
        result = engine.run(Prompt(SCHEMA).module("belvik").text("What is Belvik known for?"), max_tokens=8)
        assert {item.tier for item in result.plan if item.module == "belvik"} == {"disk"}
    with Store(folder) as store:
        usage = store.usage()
        assert usage.modules == 3 and usage.pinned == 1 and usage.total_bytes > 0
        assert store.verify() == ()
        exported = store.export("towns/belvik", tmp_path / "belvik.rpb")
        assert exported.records == 1 and exported.tokens > 5
        with pytest.raises(errors.InvalidError, match="all=True"):
            store.remove()
        assert len(store.remove("towns")) == 3
    with pytest.raises(errors.FileError):
        Store(tmp_path / "missing")
    with Store(tmp_path / "other", create=True) as other:
        assert other.import_(tmp_path / "belvik.rpb").present == 0
        assert [entry.label for entry in other.list()] == ["towns/belvik"]
    with pytest.raises(errors.InvalidError, match="closed"):
        other.list()


def test_verify_names_what_is_damaged(model: Model, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "store"
    with Engine(model, n_threads=1, store_dir=folder, store_write="through") as engine:
        engine.prefill(SCHEMA)
    record = next(folder.glob("?/*.rps"))
    data = bytearray(record.read_bytes())
    data[-100] ^= 1
    record.write_bytes(data)
    with Store(folder, read_only=True) as store:
        (finding,) = [one for one in store.verify() if one.flaw == "record"]
    assert finding.is_damage and record.name in finding.path and finding.reason


def test_a_store_may_be_closed_after_its_engine(model: Model) -> None:
    engine = Engine(model, n_threads=1)
    engine.prefill(SCHEMA)
    store = engine.store
    assert len(store.list("towns", limit=1)) == 1
    with pytest.raises(errors.InvalidError, match="limit"):
        store.list(limit=-1)
    engine.close()
    with pytest.raises(errors.InvalidError, match="engine is closed"):
        store.list()
    store.close()
    store.close()
