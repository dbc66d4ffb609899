# SPDX-License-Identifier: Apache-2.0
"""The entries of a store: KV in RAM and on disk, of an engine or in a folder (docs/store.md)."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import _abi
from ._library import call, encoded, lib, no_callback, set_field, text
from .errors import InvalidError
from .handle import Handle, finalize
from .result import copied

if TYPE_CHECKING:
    from .engine import Engine


@dataclass(frozen=True, slots=True)
class Entry:
    """A cached span. reprise_store.h, rp_store_entry. Sizes are bytes, times seconds since 1970."""

    key: str
    model: str
    kind: str
    label: str
    kv_format: str
    fault: str
    encrypted: bool
    pinned: bool
    expired: bool
    in_ram: bool
    on_disk: bool
    in_use: bool
    n_tokens: int
    bytes: int
    ram_bytes: int
    cost_us: int
    uses: int
    last_use: int
    expires: int


@dataclass(frozen=True, slots=True)
class StoreUsage:
    """A folder as a whole. reprise_store.h, rp_store_usage."""

    records: int
    record_bytes: int
    modules: int
    module_bytes: int
    texts: int
    text_bytes: int
    reduced: int
    reduced_bytes: int
    tokens: int
    encrypted: int
    unreadable: int
    pinned: int
    expired: int
    bad: int
    leftovers: int
    foreign: int
    index_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class Finding:
    """What verify() found. is_damage: not merely a leftover of a killed process."""

    flaw: str
    path: str
    reason: str
    message: str
    is_damage: bool


@dataclass(frozen=True, slots=True)
class Transfer:
    """A bundle. reprise_store.h, rp_store_transfer."""

    name: str
    records: int
    bytes: int
    tokens: int
    present: int


class Store:
    """A store's folder, opened; or, as Engine.store, the store of an engine.

    dir        the folder; create: make a store of a folder that is missing or empty
    read_only  change nothing: an engine may have the folder open
    Threads: one at a time. FileError, FormatError, ConflictError (another process has it open).
    """

    def __init__(
        self,
        dir: str | os.PathLike[str],
        *,
        read_only: bool = False,
        create: bool = False,
        key_file: str | os.PathLike[str] | None = None,
    ) -> None:
        self._handle = Handle("store")
        self._engine: Engine | None = None
        options: Any = _abi.rp_store_options()
        lib.rp_store_options_init(options, ctypes.sizeof(options))
        options.read_only, options.create = read_only, create
        options.key_file = encoded(os.fspath(key_file)) if key_file is not None else None
        call(lib.rp_store_open, ctypes.byref(self._handle.cell), encoded(os.fspath(dir)), ctypes.byref(options))

    @classmethod
    def attach(cls, engine: Engine) -> Store:
        """The store of an engine, for the operator: entries of all tenants, without their texts."""
        store = cls.__new__(cls)
        store._handle, store._engine = Handle("store"), engine
        with engine.handle as pointer:
            call(lib.rp_store_attach, ctypes.byref(store._handle.cell), pointer)
        return store

    def _call(self, function: Any, *args: Any) -> None:
        """Calls a function of the store, whose engine is not closed meanwhile."""
        with contextlib.ExitStack() as stack:
            if self._engine is not None:
                stack.enter_context(self._engine.handle)
            pointer = stack.enter_context(self._handle)
            call(function, pointer, *args)

    def close(self) -> None:
        """Closes the store. Again: nothing."""
        self._handle.close(lib.rp_store_close)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_engine") and not self._handle.is_freed:
            finalize(self.close)

    # ---- entries ----

    def list(
        self,
        name: str | None = None,
        *,
        key: str | None = None,
        model: str | None = None,
        modules: bool = False,
        texts: bool = False,
        expired: bool = False,
        limit: int = 0,
        largest_first: bool = False,
    ) -> tuple[Entry, ...]:
        """The entries that match everything given; without anything: all.

        name: a label, with those below it ("cities" for "cities/plan" too); key, model: first digits; limit 0: none
        """
        selection = _selection(name, key, model, modules, texts, expired)
        page: Any = _abi.rp_store_page()
        set_field(page, "limit", limit)
        page.order = int(largest_first)
        return self._listing(lib.rp_store_list, selection, ctypes.byref(page))

    def pin(self, name: str | None = None, *, key: str | None = None, pinned: bool = True) -> tuple[Entry, ...]:
        """Pins modules: they are not evicted; pinned=False: unpins them. Returns what changed."""
        return self._listing(lib.rp_store_pin, _selection(name, key, None, False, False, False), pinned)

    def set_ttl(self, name: str | None = None, *, key: str | None = None, seconds: int) -> tuple[Entry, ...]:
        """Sets the time to live from now on; 0: none. Returns what changed."""
        return self._listing(lib.rp_store_set_ttl, _selection(name, key, None, False, False, False), seconds)

    def remove(
        self,
        name: str | None = None,
        *,
        key: str | None = None,
        texts: bool = False,
        expired: bool = False,
        all: bool = False,
    ) -> tuple[Entry, ...]:
        """Removes entries from RAM and disk, pinned ones too. all: every entry. Returns what was removed."""
        selection = _selection(name, key, None, False, texts, expired)
        if not all and not (name or key or texts or expired):
            raise InvalidError("remove() without a selection: name entries, or say all=True")
        return self._listing(lib.rp_store_remove, selection)

    def _listing(self, function: Any, selection: Any, *args: Any) -> tuple[Entry, ...]:
        out = ctypes.POINTER(_abi.rp_store_listing)()
        self._call(function, ctypes.byref(selection), *args, ctypes.byref(out))
        try:
            entries = out.contents.entries
            return tuple(
                copied(Entry, entries[i], kind=text(lib.rp_store_kind_name(entries[i].kind)))
                for i in range(out.contents.n_entries)
            )
        finally:
            lib.rp_store_listing_free(out)

    # ---- folders ----

    def usage(self) -> StoreUsage:
        """The folder as a whole. ConflictError: it is an engine's store, as for the functions below."""
        usage: StoreUsage = copied(StoreUsage, self._filled(_abi.rp_store_usage, lib.rp_store_get_usage))
        return usage

    def verify(self) -> tuple[Finding, ...]:
        """Reads every byte of every record, and compares files and index. Changes nothing."""
        findings: list[Finding] = []

        def take(_user: int | None, finding: Any) -> None:
            c = finding.contents
            findings.append(
                copied(
                    Finding,
                    c,
                    flaw=text(lib.rp_store_flaw_name(c.flaw)),
                    is_damage=bool(lib.rp_store_flaw_is_damage(c.flaw)),
                )
            )

        callback = _abi.rp_on_store_finding(take)
        self._filled(_abi.rp_store_verification, lib.rp_store_verify, no_callback(_abi.rp_on_progress), callback, None)
        return tuple(findings)

    def export(self, name: str, path: str | os.PathLike[str]) -> Transfer:
        """Writes the records of a module, and of those below it, to a bundle."""
        return self._transfer(lib.rp_store_export, encoded(name), encoded(os.fspath(path)))

    def import_(self, path: str | os.PathLike[str]) -> Transfer:
        """Imports a bundle, verified first. Its KV is what its author put there: trust the author as that of a model."""
        return self._transfer(lib.rp_store_import, encoded(os.fspath(path)))

    def _transfer(self, function: Callable[..., int], *args: Any) -> Transfer:
        c = self._filled(_abi.rp_store_transfer, function, *args, no_callback(_abi.rp_on_progress), None)
        transfer: Transfer = copied(Transfer, c)
        return transfer

    def _filled(self, kind: type[Any], function: Any, *args: Any) -> Any:
        out = kind(struct_size=ctypes.sizeof(kind))
        self._call(function, *args, ctypes.byref(out))
        return out


def _selection(
    name: str | None, key: str | None, model: str | None, modules: bool, texts: bool, expired: bool
) -> _abi.rp_store_selection:
    c: Any = _abi.rp_store_selection()
    c.name, c.key, c.model = encoded(name), encoded(key), encoded(model)
    c.modules, c.texts, c.expired = modules, texts, expired
    c.all = not (name or key or model or modules or texts or expired)
    selection: _abi.rp_store_selection = c
    return selection
