# SPDX-License-Identifier: Apache-2.0
"""Engines: run prompts with one model, in this process."""

from __future__ import annotations

import atexit
import collections
import ctypes
import math
import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from . import _abi, chat, job
from ._library import call, encoded, lib, no_callback, reported, set_field, text
from .errors import BusyError, InvalidError, UnknownNameError
from .handle import Handle, begin_exit, finalize
from .model import Model
from .prompt import Prompt
from .requests import PromptLike, Request, RequestOptions
from .result import Result, copied
from .schema import Schema

if TYPE_CHECKING:
    from typing import Unpack

    from .store import Store

_SLICE_MS = 100  # a waiting thread looks for signals so often
_MOST_SECONDS = 10**9
_MODULE_STATES = ("exact", "last", "composed")  # in the order of rp_module_states
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
class DeviceUsage:
    """What the engine has on its GPU; all zero: it computes on the processor. reprise_device.h, rp_device_usage."""

    is_lost: bool
    layers: int
    limit_bytes: int
    weight_bytes: int
    activation_bytes: int
    kv_bytes: int
    scratch_bytes: int
    host_bytes: int
    to_device_bytes: int
    to_host_bytes: int
    carried_bytes: int
    in_place_bytes: int
    submits: int


@dataclass(frozen=True, slots=True)
class StoreStats:
    """The engine's store. reprise_store.h, rp_store_stats."""

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
    """An element of a schema, in document order. reprise_tools.h, rp_inspect_node."""

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
    """Consecutive tokens of a prompt from one source. reprise_tools.h, rp_inspect_tile."""

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


class Core:
    """The rp_engine and its jobs: what the model, and the end of the interpreter, close without the Engine, which the collector may have taken."""

    def __init__(self) -> None:
        self.handle = Handle("engine")
        self.jobs: set[Handle] = set()

    def free(self, timeout_s: float | None = None) -> int:
        """Engine.close() without the model."""
        job.free_closed_loops()
        n = self.handle.close(lib.rp_engine_close, _ms(timeout_s), stop=self._close_jobs)
        _cores.discard(self)
        return n or 0

    def _close_jobs(self, _pointer: object) -> None:
        """The engine is closed to new jobs; a thread that submits one now finishes that first."""
        self.handle.wait()
        for one in list(self.jobs):
            job.free_job(one)


class Engine:
    """Runs prompts with one model, and keeps the KV of their parts.

        with Engine("model.gguf") as engine:
            print(engine.run(prompt, max_tokens=64))

    model    a Model, or the path of one, which the engine then opens and closes
    options  those of rp_engine_options in reprise.h, under their names there; sizes are bytes. kv_format is a name ("int8"), store_write is
             "back", "through" or "off", module_states "exact", "last" or "composed". draft_model is a Model, which must stay open, or the
             path of one, which the engine then opens and closes; requests use it with n_draft
    device   "cpu", "vulkan" or "vulkan:1"; "auto": the processor. device_ram_bytes limits its memory; device_layers, the number of layers that
             it computes, the last ones: None for all that fit, 0 for none (reprise_device.h, rp_device_options)
    Threads: any number may run prompts at once; they share steps. No Python code runs on the engine's thread, except with logits=True or choose=.
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
        draft_model: Model | str | os.PathLike[str] | None = None,
        draft_kv_bytes: int = 0,
        module_states: str = "exact",
        device: str = "auto",
        device_ram_bytes: int = 0,
        device_layers: int | None = None,
    ) -> None:
        apart = ("self", "model", "draft_model", "device", "device_ram_bytes", "device_layers")
        values = {name: value for name, value in locals().items() if name not in (*apart, "apart")}
        placement: Any = _abi.rp_device_options(struct_size=ctypes.sizeof(_abi.rp_device_options))
        set_field(placement, "name", encoded(device))
        set_field(placement, "ram_bytes", device_ram_bytes)
        if device_layers is not None and device_layers < 0:
            raise InvalidError(f"device_layers={device_layers}: give a number of layers, or None")
        if device_layers is not None:
            set_field(placement, "layers", device_layers or -1)
        self._core = Core()
        self.handle = self._core.handle
        self._lock = threading.Lock()
        self._schemas: dict[tuple[str | None, str], str] = {}  # that this object has loaded: tenant, name -> PML
        self._has_model = not isinstance(model, Model)
        options: Any = _abi.rp_engine_options()
        lib.rp_engine_options_init(options, ctypes.sizeof(options))
        for name, value in values.items():
            _set_option(options, name, value)
        options.device = ctypes.addressof(placement)  # borrowed until rp_engine_new returns
        self._owns_draft = draft_model is not None and not isinstance(draft_model, Model)
        self._draft: Model | None = None
        self.model = model if isinstance(model, Model) else Model(model)
        try:
            if draft_model is not None:
                self._draft = draft_model if isinstance(draft_model, Model) else Model(draft_model)
            draft_handle: AbstractContextManager[Any] = nullcontext()
            if self._draft:
                draft_handle = self._draft.handle
            with self.model.handle as pointer, draft_handle as draft:
                options.draft_model = draft
                for used in (self.model, self._draft):
                    if used is not None:
                        used.engines.add(self._core)
                _cores.add(self._core)
                call(lib.rp_engine_new, ctypes.byref(self.handle.cell), pointer, ctypes.byref(options))
        except BaseException:
            self.close()
            raise

    # ---- life ----

    def close(self, timeout_s: float | None = None) -> int:
        """Cancels what runs, writes the store, and frees the engine. Again: nothing.

        timeout_s: limit on writing; None: none. Returns the number of spans that were not written to disk.
        """
        n = self._core.free(timeout_s)
        self.model.engines.discard(self._core)
        if self._has_model:
            self.model.close()
        if self._draft is not None:
            self._draft.engines.discard(self._core)
            if self._owns_draft:
                self._draft.close()
        return n

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "model") and not self.handle.is_freed:
            finalize(self.close)

    # ---- schemas ----

    def load(self, schema: Schema, *, tenant: str | None = None) -> None:
        """Loads a schema, in place of one of the same name and tenant. Prompts over a Schema load it by themselves, as a shared one.

        tenant: its owner: no other tenant can use it, nor its KV. None: shared by all; it must not contain what belongs to a tenant
        MarkupError, UnknownNameError, LengthError, ... with file:line:column.
        """
        self._load(schema, tenant, is_again=True)

    def _load(self, schema: Schema, tenant: str | None = None, is_again: bool = False) -> None:
        """Loads a schema unless this object has. is_again: even then."""
        if not is_again and self._schemas.get((tenant, schema.name)) == schema.pml:
            return
        data = schema.pml.encode("utf-8", "surrogatepass")
        directory = encoded(schema.directory)
        name = encoded(schema.document or schema.name)
        options: Any = _abi.rp_schema_options()
        lib.rp_schema_options_init(options, ctypes.sizeof(options))
        options.tenant = encoded(tenant)
        with self.handle as pointer, self._lock:
            if not is_again and self._schemas.get((tenant, schema.name)) == schema.pml:
                return  # another thread has
            call(lib.rp_schema_parse, pointer, data, len(data), name, directory, ctypes.byref(options), None)
            self._schemas[tenant, schema.name] = schema.pml
            old = schema.replaces
            if old and self._schemas.pop((tenant, old), None) is not None:
                call(lib.rp_schema_unload, pointer, options.tenant, encoded(old))

    def unload(self, schema: Schema | str, *, tenant: str | None = None) -> None:
        """Unloads a schema; its KV stays cached until it is evicted. UnknownNameError."""
        name = schema.name if isinstance(schema, Schema) else schema
        with self.handle as pointer, self._lock:
            self._schemas.pop((tenant, name), None)
            call(lib.rp_schema_unload, pointer, encoded(tenant), encoded(name))

    def prefill(self, schema: Schema | str) -> None:
        """Prefills every module of a schema that is not cached, so that no request has to."""
        if isinstance(schema, Schema):
            self._load(schema)
        name = encoded(schema.name if isinstance(schema, Schema) else schema)
        with job.Job(self) as one:
            with self.handle as pointer:
                self._adopt(one)
                out = ctypes.byref(one.handle.cell)
                call(lib.rp_schema_submit, pointer, None, name, no_callback(_abi.rp_on_progress), None, out)
            one.finish()

    # ---- requests ----

    def _adopt(self, one: job.Job) -> None:
        one.owner = self._core.jobs
        one.owner.add(one.handle)

    def _submit(
        self, prompt: PromptLike | chat.Turn, options: Any, events: job.EventQueue | None = None, tag: int = 0
    ) -> job.Job:
        schema = prompt.schema if isinstance(prompt, Prompt) else None
        if not isinstance(schema, Schema):
            return self._submit_once(prompt, options, events, tag)
        if self._schemas.get((options.get("tenant"), schema.name)) == schema.pml:
            return self._submit_once(prompt, options, events, tag)  # the tenant's own, which comes before a shared one
        self._load(schema)
        try:
            return self._submit_once(prompt, options, events, tag)
        except UnknownNameError:
            if (None, schema.name) in self._schemas:
                raise
            self._load(schema)  # another thread has replaced it meanwhile
            return self._submit_once(prompt, options, events, tag)

    def _submit_once(
        self, prompt: PromptLike | chat.Turn, options: Any, events: job.EventQueue | None, tag: int
    ) -> job.Job:
        with Request(None if isinstance(prompt, chat.Turn) else prompt, options) as request:
            # The job has its owners before the library has the job: an exception anywhere leaves none behind.
            one = job.Job(self, request.steps)
            try:
                with self.handle as pointer:
                    self._adopt(one)
                    if events is not None:
                        events.jobs[tag] = one
                        request.c.stream, request.c.stream_tag = events.handle.cell, tag
                    if isinstance(prompt, chat.Turn):
                        with prompt.handle as turn:
                            call(
                                lib.rp_chat_submit,
                                turn,
                                pointer,
                                ctypes.byref(request.c),
                                ctypes.byref(one.handle.cell),
                            )
                    else:
                        call(lib.rp_engine_submit, pointer, ctypes.byref(request.c), ctypes.byref(one.handle.cell))
            except BaseException:
                one.close()
                if events is not None:
                    events.jobs.pop(tag, None)
                raise
            return one

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

    def chat_stream(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        tool_choice: chat.ToolChoice = "auto",
        parallel_tool_calls: bool = True,
        response_format: Mapping[str, Any] | None = None,
        thinking: bool | None = None,
        **options: Unpack[RequestOptions],
    ) -> chat.ChatStream:
        """chat() as it is generated: an iterator of pieces of text, reasoning and tool calls; then `answer` is what chat() returns.

        Errors of the request itself are raised here, others by the iterator.
        """
        with chat.Turn(
            self.model, messages, tools, tool_choice, response_format, parallel_tool_calls, thinking
        ) as turn:
            return chat.ChatStream(turn, lambda events: self._submit(turn, options, events))

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        tool_choice: chat.ToolChoice = "auto",
        parallel_tool_calls: bool = True,
        response_format: Mapping[str, Any] | None = None,
        thinking: bool | None = None,
        **options: Unpack[RequestOptions],
    ) -> chat.ChatAnswer:
        """Answers a conversation by the model's chat template; the answer's text, reasoning and tool calls.

        messages         OpenAI's: "role", "content" (a string), of the assistant "tool_calls" and "reasoning_content", of a tool "tool_call_id"
        tools            OpenAI's: {"type": "function", "function": {"name", "description", "parameters", "strict"}}, or the inner mapping
        tool_choice      "auto", "none", "required", or {"type": "function", "function": {"name": ...}}
        response_format  {"type": "json_object"}, {"type": "json_schema", "json_schema": {"schema": ...}} or {"type": "regex", "regex": ...}
        thinking         False: no reasoning; None: as the model does

        InvalidError (its `where` is the place), UnsupportedError (a schema that cannot be enforced), UnknownNameError (tool_choice); and the
        errors of run().
        """
        with chat.Turn(
            self.model, messages, tools, tool_choice, response_format, parallel_tool_calls, thinking
        ) as turn, self._submit(turn, options) as one:
            return turn.answer(one.result())

    def stream(self, prompt: PromptLike, **options: Unpack[RequestOptions]) -> job.Stream:
        """Runs a prompt: an iterator of pieces of its answer. Errors of the request itself are raised here, others by the iterator."""
        return job.Stream(lambda events: self._submit(prompt, options, events))

    async def run_async(self, prompt: PromptLike, **options: Unpack[RequestOptions]) -> Result:
        """run() for asyncio: no thread waits. Cancelling the task cancels the request."""
        return await self.stream_async(prompt, **options).finish()

    def stream_async(self, prompt: PromptLike, **options: Unpack[RequestOptions]) -> job.AsyncStream:
        """stream() for asyncio: `async for piece in engine.stream_async(prompt)`. The request starts with the first piece that is read."""
        return job.AsyncStream(lambda events, tag: self._submit(prompt, options, events, tag))

    def embed(
        self,
        texts: Iterable[str | tuple[str, str] | Sequence[int]],
        *,
        truncate: bool = False,
        **options: Unpack[RequestOptions],
    ) -> list[Result]:
        """Embeds texts: the results in their order, each with its `embedding`. Several run at a time.

        texts     texts; pairs of a query and a document, for rerankers; token ids
        truncate  cut the end of texts that exceed the context; else ContextLengthError
        options   pooling ("model": as the model's file says), raw_embedding, tenant, flow, reuse, priority, deadline_ms
        """
        options.setdefault("pooling", "model")
        info = self.info
        most, results, jobs = 2 * info.max_sequences, list[Result](), collections.deque[job.Job]()

        def collect() -> None:
            with jobs.popleft() as one:
                results.append(one.result())

        try:
            for text in texts:
                ids = self._embedding_ids(text, info.n_ctx if truncate else 0)
                while len(jobs) >= most:
                    collect()
                while True:
                    try:
                        jobs.append(self._submit(ids, options))
                        break
                    except BusyError:
                        if not jobs:
                            raise
                        collect()  # one of these has to end before the queue takes another
            while jobs:
                collect()
        finally:
            for one in jobs:
                one.close()
        return results

    def _embedding_ids(self, text: str | tuple[str, str] | Sequence[int], max_tokens: int) -> list[int]:
        if isinstance(text, str):
            return self.model.tokenize_embedding(text, max_tokens=max_tokens)
        if isinstance(text, tuple) and len(text) == 2 and isinstance(text[0], str) and isinstance(text[1], str):
            return self.model.tokenize_embedding(text[0], text[1], max_tokens=max_tokens)
        return list(cast(Sequence[int], text))

    # ---- reports ----

    def drain(self, timeout_s: float | None = None) -> bool:
        """Runs background tasks (reduced KV of modules, scaffolds, audits) now. Returns whether none is pending."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        with self.handle as pointer:
            while True:  # in slices: signals, and close() by another thread
                left = _SLICE_MS if end is None else _ms(end - time.monotonic())
                if lib.rp_engine_drain(pointer, max(min(left, _SLICE_MS), 0)):
                    return True
                if left <= 0 or self.handle.is_closed:
                    return False

    @property
    def info(self) -> EngineInfo:
        with self.handle as pointer:
            c = reported(_abi.rp_engine_info, lib.rp_engine_describe, pointer)
        info: EngineInfo = copied(EngineInfo, c, kv_format=_abi.KV_FORMATS[c.kv_format])
        return info

    @property
    def memory(self) -> Memory:
        with self.handle as pointer:
            memory: Memory = copied(Memory, reported(_abi.rp_memory, lib.rp_engine_memory, pointer))
        return memory

    @property
    def device_usage(self) -> DeviceUsage:
        with self.handle as pointer:
            usage: DeviceUsage = copied(
                DeviceUsage, reported(_abi.rp_device_usage, lib.rp_engine_device_usage, pointer)
            )
        return usage

    @property
    def store_stats(self) -> StoreStats:
        with self.handle as pointer:
            c = reported(_abi.rp_store_stats, lib.rp_engine_store_stats, pointer)
        stats: StoreStats = copied(StoreStats, c, disk_state=text(lib.rp_store_state_name(c.disk_state)))
        return stats

    @property
    def store(self) -> Store:
        """The entries of the engine's store, in RAM and on disk. Close it before the engine."""
        from .store import Store

        return Store.attach(self)

    def inspect(self, prompt: Prompt | Schema | str) -> Inspection:
        """The layout of a schema (or of the loaded one of that name), or of a prompt and its schema. Computes no token."""
        schema = prompt.schema if isinstance(prompt, Prompt) else prompt
        if isinstance(schema, Schema):
            self._load(schema)
        out = ctypes.POINTER(_abi.rp_inspection)()
        if isinstance(prompt, Prompt):
            with Request(prompt, {}) as request, self.handle as pointer:
                call(lib.rp_engine_inspect_prompt, pointer, None, request.built, None, ctypes.byref(out))
        else:
            name = encoded(prompt.name if isinstance(prompt, Schema) else prompt)
            with self.handle as pointer:
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
    names: Sequence[str] | None = {
        "kv_format": _abi.KV_FORMATS,
        "store_write": _WRITES,
        "module_states": _MODULE_STATES,
    }.get(name)
    if names is not None:
        if value not in names:
            raise InvalidError(f"{name}={value!r}: use one of {', '.join(names)}")
        setattr(options, name, names.index(value))
        return
    if value is None or isinstance(value, (str, os.PathLike)):
        value = encoded(value)
    set_field(options, name, value)


def _ms(seconds: float | None) -> int:
    """For the library: -1: no limit."""
    return -1 if seconds is None else math.ceil(min(max(seconds, 0), _MOST_SECONDS) * 1000)


_REASONS = {
    "new": "not cached before",
    "evicted": "was evicted or has expired",
    "scope": "is cached after other modules",
    "adapter": "is cached with another adapter, or without one",
    "memory": "is on disk, and RAM had no capacity for it",
    "window": "is cached without KV that sliding-window layers need",
    "checkpoint": "is cached, but recurrent layers have no state there",
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


_cores: set[Core] = set()  # of live engines


@atexit.register
def _close_engines() -> None:
    """Requests that still run are cancelled before the interpreter ends."""
    begin_exit()
    for core in list(_cores):
        core.free()
