# SPDX-License-Identifier: Apache-2.0
"""Engines: run prompts with one model, in this process."""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import _abi, job
from ._handle import Handle, Use, begin_exit
from ._library import call, encoded, lib, no_callback, reported, text
from .errors import InvalidError
from .model import Model
from .prompt import Prompt
from .requests import PromptLike, Request, RequestOptions, set_number
from .result import Result, copied
from .schema import Schema

if TYPE_CHECKING:
    from typing import Unpack

    from .store import Store

KV_FORMATS = ("f16", "f32", "int8", "k8v4", "kivi4", "k4v2", "kivi2", "fp8")
_SLICE_MS = 100
_WRITES = ("back", "through", "off")


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """Configuration and load. reprise.h, rp_engine_info."""

    n_threads: int
    n_ctx: int
    chunk_tokens: int
    max_sequences: int
    max_queue: int
    kv_format: str
    prepared: bool
    running: int
    waiting: int
    background: int
    kv_bytes_per_token: int
    weights_cache: str


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes. reprise.h, rp_memory."""

    weights: int
    file: int
    activations: int
    token_trie: int
    kv: int
    kv_limit: int
    weights_file: int


@dataclass(frozen=True, slots=True)
class StoreStats:
    """The engine's store. reprise.h, rp_store_stats."""

    spans: int
    bytes: int
    budget_bytes: int
    used_bytes: int
    hits: int
    misses: int
    inserts: int
    evictions: int
    expired: int
    disk_spans: int
    disk_bytes: int
    disk_budget_bytes: int
    disk_reads: int
    disk_writes: int
    disk_evictions: int
    disk_waiting: int
    disk_faults: int
    disk_state: str
    disk_trouble: str


@dataclass(frozen=True, slots=True)
class Node:
    """An element of a schema, in document order. reprise.h, rp_inspect_node."""

    kind: str
    name: str
    path: str
    depth: int
    n_tokens: int
    position: int
    key: str
    taken: bool
    cached: bool
    preview: str
    kv_format: str


@dataclass(frozen=True, slots=True)
class Tile:
    """Consecutive tokens of a prompt from one source. reprise.h, rp_inspect_tile."""

    path: str
    position: int
    n_tokens: int
    is_view: bool
    exact: bool
    shift: int


@dataclass(frozen=True, slots=True)
class Inspection:
    """The layout of a schema, and the tiles of a prompt over it; nothing was computed."""

    schema: str
    layout: str
    scope: str
    nodes: tuple[Node, ...]
    tiles: tuple[Tile, ...]
    schema_positions: int
    prompt_positions: int

    def _repr_html_(self) -> str:
        from . import html

        return html.inspection(self)


class Engine:
    """Runs prompts with one model, and keeps the KV of their parts.

        with Engine("model.gguf") as engine:
            print(engine.run(prompt, max_tokens=64))

    model    a Model, or the path of one, which the engine then opens and closes
    options  those of rp_engine_options in reprise.h, under their names there; sizes are bytes. kv_format is a name ("int8"), store_write is
             "back", "through" or "off"
    Threads: any number may run prompts at once; they share steps. No Python code runs on the engine's thread, except with logits=True.
    """

    def __init__(
        self,
        model: Model | str | os.PathLike[str],
        *,
        n_threads: int = 0,
        n_ctx: int = 0,
        kv_format: str = "f16",
        kv_f16_layers: str | None = None,
        ram_bytes: int = 0,
        kv_budget_bytes: int = 0,
        chunk_tokens: int = 0,
        max_sequences: int = 0,
        max_queue: int = 0,
        token_goal_ms: float = 0.0,
        store_dir: str | os.PathLike[str] | None = None,
        store_budget_bytes: int = 0,
        store_key_file: str | os.PathLike[str] | None = None,
        store_write: str = "back",
        store_read_only: bool = False,
        scaffold_bytes: int = 0,
        audit_every: int = 0,
        max_divergence: float = 0.0,
        audit_raises: bool = False,
        weights_dir: str | os.PathLike[str] | None = None,
        weights_budget_bytes: int = 0,
        weights_min_bytes: int = 0,
        keep_share: str | None = None,
        keep_method: str | None = None,
        kv_keep: str | None = None,
        kv_method: str | None = None,
    ) -> None:
        values = {name: value for name, value in locals().items() if name not in ("self", "model")}
        self._lock = threading.Lock()
        self._schemas: dict[str, str] = {}  # that this object has loaded: name -> PML
        self._has_model = not isinstance(model, Model)
        options: Any = _abi.rp_engine_options()
        lib.rp_engine_options_init(options, ctypes.sizeof(options))
        for name, value in values.items():
            _set_option(options, name, value)
        self._limit_ms = limit_ms = [-1]  # on writing when it closes
        self.model = model if isinstance(model, Model) else Model(model)
        pointer = ctypes.c_void_p()

        def free(pointer: Any) -> int:
            _live.pop(pointer.value, None)
            return int(close_engine(pointer, limit_ms[0]))

        close_engine = lib.rp_engine_close
        try:
            with self.model.handle.use() as of:
                call(lib.rp_engine_new, ctypes.byref(pointer), of, ctypes.byref(options))
                self._handle = Handle(pointer, "the engine", free, parent=self.model.handle)
        except BaseException:
            if self._has_model:
                self.model.close()
            raise
        assert pointer.value is not None
        _live[pointer.value] = self._handle

    @property
    def handle(self) -> Handle:
        """The rp_engine."""
        return self._handle

    def _use(self) -> Use:
        return self._handle.use()

    # ---- life ----

    def close(self, timeout_s: float | None = None) -> int:
        """Cancels what runs, writes the store, and frees the engine. Again: nothing. Any thread: calls of others end first, or are refused.

        timeout_s: limit on writing; None: none. Returns the number of spans that were not written to disk.
        """
        if timeout_s is not None:
            self._limit_ms[0] = int(timeout_s * 1000)
        job.free_closed_loops()
        self._handle.close()
        if self._has_model:
            self.model.close()
        return int(self._handle.returned or 0)

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        handle: Handle | None = getattr(self, "_handle", None)
        if handle is not None and handle.is_open:
            handle.abandon()

    # ---- schemas ----

    def load(self, schema: Schema) -> None:
        """Loads a schema, in place of one of the same name. Prompts over a Schema load it by themselves.

        MarkupError, UnknownNameError, LengthError, ... with file:line:column.
        """
        with self._use() as pointer, self._lock:
            self._load(pointer, schema)

    def _load(self, pointer: Any, schema: Schema) -> None:
        data = schema.pml.encode("utf-8", "surrogatepass")
        name, directory = encoded(schema.document or schema.name), encoded(schema.directory)
        call(lib.rp_schema_parse, pointer, data, len(data), name, directory, None, None)
        self._schemas[schema.name] = schema.pml
        old = schema.replaces
        if old and self._schemas.pop(old, None) is not None:
            call(lib.rp_schema_unload, pointer, None, encoded(old))

    def _ensure(self, schema: Schema) -> None:
        """Loads a schema unless this object has."""
        if self._schemas.get(schema.name) == schema.pml:
            return
        with self._use() as pointer, self._lock:
            if self._schemas.get(schema.name) != schema.pml:
                self._load(pointer, schema)

    def unload(self, schema: Schema | str) -> None:
        """Unloads a schema; its KV stays cached until it is evicted. UnknownNameError."""
        name = schema.name if isinstance(schema, Schema) else schema
        with self._use() as pointer, self._lock:
            self._schemas.pop(name, None)
            call(lib.rp_schema_unload, pointer, None, encoded(name))

    def prefill(self, schema: Schema | str) -> None:
        """Prefills every module of a schema that is not cached, so that no request has to."""
        if isinstance(schema, Schema):
            self._ensure(schema)
        name = schema.name if isinstance(schema, Schema) else schema
        pointer = ctypes.c_void_p()
        nothing = no_callback(_abi.rp_on_progress)
        with self._use() as of:
            call(lib.rp_schema_submit, of, None, encoded(name), nothing, None, ctypes.byref(pointer))
            one = job.Job(pointer, self._handle)
        with one:
            one.finish()

    # ---- requests ----

    def _submit(
        self, prompt: PromptLike, options: Any, events: job.EventQueue | None = None, tag: int | None = None
    ) -> job.Job:
        """tag: of its events; None: the job frees the queue, which has no other."""
        if isinstance(prompt, Prompt) and isinstance(prompt.schema, Schema):
            self._ensure(prompt.schema)
        request = Request(prompt, options)
        try:
            if events is not None:
                request.c.stream, request.c.stream_tag = events.pointer, tag or 0
            pointer = ctypes.c_void_p()
            with self._use() as of:
                call(lib.rp_engine_submit, of, ctypes.byref(request.c), ctypes.byref(pointer))
                return job.Job(pointer, self._handle, request.logits, events if tag is None else None)
        finally:
            request.close()

    def submit(self, prompt: PromptLike, **options: Unpack[RequestOptions]) -> job.Job:
        """Queues a request and returns at once. BusyError: the queue is full; and the errors of run() about the request itself."""
        return self._submit(prompt, options)

    def run(self, prompt: PromptLike, **options: Unpack[RequestOptions]) -> Result:
        """Runs a prompt and returns its result. An exception meanwhile, such as KeyboardInterrupt, cancels it.

        InvalidError, LimitError, MarkupError, UnknownNameError, ConflictError, LengthError, ContextLengthError, BudgetError, BusyError,
        DeadlineError: reprise.h, rp_engine_run.
        """
        with self._submit(prompt, options) as one:
            return one.result()

    def stream(self, prompt: PromptLike, **options: Unpack[RequestOptions]) -> job.Stream:
        """Runs a prompt: an iterator of pieces of its answer. Errors of the request itself are raised here, others by the iterator."""
        return job.Stream(lambda events: self._submit(prompt, options, events))

    async def run_async(self, prompt: PromptLike, **options: Unpack[RequestOptions]) -> Result:
        """run() for asyncio: no thread waits. Cancelling the task cancels the request."""
        return await self.stream_async(prompt, **options).finish()

    def stream_async(self, prompt: PromptLike, **options: Unpack[RequestOptions]) -> job.AsyncStream:
        """stream() for asyncio: `async for piece in engine.stream_async(prompt)`. The request starts with the first piece that is read."""
        return job.AsyncStream(lambda events, tag: self._submit(prompt, options, events, tag))

    # ---- reports ----

    def drain(self, timeout_s: float | None = None) -> bool:
        """Runs background tasks (reduced KV of modules, scaffolds, audits) now. Returns whether none is pending."""
        left = None if timeout_s is None else max(int(timeout_s * 1000), 0)
        while True:
            slice = _SLICE_MS if left is None else min(left, _SLICE_MS)  # for signals, and close() in another thread
            with self._use() as pointer:
                if lib.rp_engine_drain(pointer, slice):
                    return True
            if left is not None:
                left -= slice
                if left <= 0:
                    return False

    def _reported(self, kind: type[Any], function: Any) -> Any:
        with self._use() as pointer:
            return reported(kind, function, pointer)

    @property
    def info(self) -> EngineInfo:
        c = self._reported(_abi.rp_engine_info, lib.rp_engine_describe)
        info: EngineInfo = copied(EngineInfo, c, kv_format=KV_FORMATS[c.kv_format])
        return info

    @property
    def memory(self) -> Memory:
        memory: Memory = copied(Memory, self._reported(_abi.rp_memory, lib.rp_engine_memory))
        return memory

    @property
    def store_stats(self) -> StoreStats:
        c = self._reported(_abi.rp_store_stats, lib.rp_engine_store_stats)
        stats: StoreStats = copied(StoreStats, c, disk_state=text(lib.rp_store_state_name(c.disk_state)))
        return stats

    @property
    def store(self) -> Store:
        """The entries of the engine's store, in RAM and on disk. Closing the engine closes it."""
        from .store import Store

        return Store.attach(self)

    def inspect(self, prompt: Prompt | Schema | str) -> Inspection:
        """The layout of a schema (or of the loaded one of that name), or of a prompt and its schema. Computes no token."""
        schema = prompt.schema if isinstance(prompt, Prompt) else prompt
        if isinstance(schema, Schema):
            self._ensure(schema)
        out = ctypes.POINTER(_abi.rp_inspection)()
        if isinstance(prompt, Prompt):
            request = Request(prompt, {})
            try:
                with self._use() as pointer:
                    call(lib.rp_engine_inspect_prompt, pointer, None, request.built, None, ctypes.byref(out))
            finally:
                request.close()
        else:
            name = encoded(schema.name if isinstance(schema, Schema) else schema)
            with self._use() as pointer:
                call(lib.rp_engine_inspect, pointer, None, name, None, None, ctypes.byref(out))
        try:
            c = out.contents
            inspection: Inspection = copied(
                Inspection,
                c,
                nodes=tuple(copied(Node, c.nodes[i]) for i in range(c.n_nodes)),
                tiles=tuple(copied(Tile, c.tiles[i]) for i in range(c.n_tiles)),
            )
            return inspection
        finally:
            lib.rp_inspection_free(out)

    def explain(self, result: Result) -> str:
        """What was reused for a result, what was not, and why, line by line."""
        return explain(result)


def _set_option(options: Any, name: str, value: Any) -> None:
    names: Sequence[str] | None = KV_FORMATS if name == "kv_format" else _WRITES if name == "store_write" else None
    if names is not None:
        if value not in names:
            raise InvalidError(f"{name}={value!r}: use one of {', '.join(names)}")
        setattr(options, name, names.index(value))
        return
    try:
        if value is None or isinstance(value, (str, os.PathLike)):
            setattr(options, name, encoded(value))
        else:
            set_number(options, name, value)
    except TypeError as e:
        raise InvalidError(f"{name}={value!r}: {e}") from None


_REASONS = {
    "new": "not cached before",
    "evicted": "was evicted or has expired",
    "scope": "is cached after other modules",
    "memory": "is on disk, and RAM had no capacity for it",
    "window": "is cached without KV that sliding-window layers need",
    "uncached": "is never cached: an argument, or cache=False",
    "shifted": "first tokens after an edit",
    "last": "the last token, for its logits",
    "kv_keep": "the last tokens, for their attention",
    "off": "the request disabled reuse",
}


def explain(result: Result) -> str:
    """The text of Engine.explain."""
    usage, timings = result.usage, result.timings
    lines = [
        f"{usage.cached_tokens} of {usage.prompt_tokens} prompt tokens reused; "
        f"first token after {timings.ttft_ms:.1f} ms; computing them again would have taken about {timings.saved_ms:.1f} ms"
    ]
    for item in result.plan:
        if item.is_cached:
            source = f"reused from {'RAM' if item.tier == 'ram' else 'disk'}"
            if item.kept < 1:
                source += f", {item.kept:.0%} of its slots kept by {item.kept_by}"
        else:
            why = _REASONS.get(item.reason, f"recomputed for quality ({item.reason})" if item.reason else "")
            source = "computed" + (f": {why}" if why else "")
        name = {"": "(text of the schema)", "prompt": "(text of the prompt)"}.get(item.module, item.module)
        lines.append(f"  {item.position:6} {item.n_tokens:6} tokens  {name}: {source}")
    if result.mismatch is not None:
        m = result.mismatch
        lines.append(f"  the cached prefix ends at token {m.token}: it had {m.cached!r}, this prompt has {m.prompt!r}")
    if result.quality.used != result.quality.asked:
        lines.append(f"  quality {result.quality.used} instead of {result.quality.asked}: {result.quality.reason}")
    return "\n".join([*lines, *(f"  warning: {warning}" for warning in result.warnings)])


_live: dict[int, Handle] = {}  # engines, by their address


@atexit.register
def _close_engines() -> None:
    """Requests that still run are cancelled before the interpreter ends."""
    begin_exit()
    for handle in list(_live.values()):
        handle.close()
