# SPDX-License-Identifier: Apache-2.0
"""What a request gave: its answer, what of its prompt was reused, and the times. Values are read from the library when they are first asked for."""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from typing import Any

from . import _abi
from ._library import lib, text


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens. prompt_tokens = cached_tokens (KV reused) + fresh_tokens (computed for this request)."""

    prompt_tokens: int
    cached_tokens: int
    fresh_tokens: int
    answer_tokens: int
    drafted_tokens: int
    accepted_tokens: int
    kv_bytes: int
    model_drafted_tokens: int
    model_accepted_tokens: int
    draft_reason: str


@dataclass(frozen=True, slots=True)
class Timings:
    """Milliseconds. ttft_ms (time to first token) is the sum of the four before it."""

    queue_ms: float
    module_prefill_ms: float
    plan_ms: float
    prompt_prefill_ms: float
    ttft_ms: float
    decode_ms: float
    saved_ms: float
    decode_tokens_per_second: float


@dataclass(frozen=True, slots=True)
class PlanItem:
    """A part of the prompt, in position order: reused KV (is_view) or tokens computed for this request. reprise_report.h, rp_plan_item."""

    is_view: bool
    exact: bool
    module: str
    n_tokens: int
    position: int
    shift: int
    tier: str
    reason: str
    key: str
    kept: float
    kept_by: str
    full_reason: str
    kept_shares: tuple[float, ...] = ()

    @property
    def is_cached(self) -> bool:
        return self.tier in ("device", "ram", "disk")


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The first token at which the prompt differs from the cached prefix. reprise_report.h, rp_mismatch."""

    token: int
    position: int
    module: str
    message: str
    before: str
    prompt: str
    cached: str


@dataclass(frozen=True, slots=True)
class QualityReport:
    """Requested and used quality. reprise_report.h, rp_quality_report."""

    asked: str
    used: str
    reason: str
    recomputed_tokens: int
    probed_tokens: int
    ms: float
    focus_token: int


@dataclass(frozen=True, slots=True)
class KvReduction:
    """What was kept of the prompt's KV for the answer. reprise_report.h, rp_kv_reduction."""

    method: str
    share: float
    bytes_before: int
    bytes: int
    ms: float
    reason: str


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    token: int
    logprob: float


def copied(cls: type[Any], source: Any, **changed: Any) -> Any:
    """A dataclass with the fields of the same names of a C struct; strings are decoded."""
    values = {}
    for name in cls.__dataclass_fields__:
        value = changed[name] if name in changed else getattr(source, name)
        values[name] = text(value) if isinstance(value, bytes) or value is None else value
    return cls(**values)


def _view(pointer: Any, kind: Any, n: int, format: str, owner: object) -> memoryview:
    """The n numbers at a pointer, not copied. The view keeps their owner alive."""
    array = (kind * n).from_address(ctypes.cast(pointer, ctypes.c_void_p).value) if n else (kind * 0)()
    array._owner = owner
    return memoryview(array).toreadonly().cast("B").cast(format)


class OwnedResult:
    """An rp_result, freed when nothing of it is used any more. pointer: what a function of the library fills in, with byref."""

    def __init__(self) -> None:
        self.pointer = ctypes.POINTER(_abi.rp_result)()

    def __del__(self) -> None:
        if hasattr(self, "pointer"):
            lib.rp_result_free(self.pointer)


class Result:
    """The output of a request.

    text       the answer
    tokens     its token ids: a memoryview of int32
    logits     with logits=True: a memoryview of float32, [n_tokens, n_vocab]; else None
    """

    def __init__(self, owned: OwnedResult, logits: memoryview | None = None) -> None:
        self._owned = owned
        self._c: Any = owned.pointer.contents
        self.logits = logits

    @functools.cached_property
    def text(self) -> str:
        return text(self._c.text)

    def __str__(self) -> str:
        return self.text

    @functools.cached_property
    def tokens(self) -> memoryview:
        return _view(self._c.tokens, ctypes.c_int32, self._c.n_tokens, "i", self._owned)

    @functools.cached_property
    def logprobs(self) -> memoryview | None:
        """The log-probability of each token: float32; None without n_logprobs."""
        if not self._c.logprobs:
            return None
        return _view(self._c.logprobs, ctypes.c_float, self._c.n_tokens, "f", self._owned)

    @functools.cached_property
    def top_logprobs(self) -> tuple[tuple[TokenLogprob, ...], ...] | None:
        """For each token the most likely ones at its place, most likely first; None without n_logprobs."""
        if not self._c.top_logprobs:
            return None
        top, n = self._c.top_logprobs, self._c.n_top
        return tuple(
            tuple(TokenLogprob(top[i * n + k].token, top[i * n + k].logprob) for k in range(n))
            for i in range(self._c.n_tokens)
        )

    @functools.cached_property
    def embedding(self) -> memoryview | None:
        """Of a request with pooling: float32, of length 1 unless raw_embedding; rank: the scores of the head. Else None."""
        if not self._c.embedding:
            return None
        return _view(self._c.embedding, ctypes.c_float, self._c.n_embedding, "f", self._owned)

    @property
    def finish_reason(self) -> str:
        """ "stop", "length", "grammar", "cancelled" or "deadline": reprise_report.h, rp_result."""
        return text(self._c.finish_reason)

    @property
    def stop(self) -> str | None:
        """The stop string that ended the answer."""
        return text(self._c.stop) if self._c.stop is not None else None

    @functools.cached_property
    def usage(self) -> Usage:
        usage: Usage = copied(Usage, self._c, answer_tokens=self._c.n_tokens)
        return usage

    @functools.cached_property
    def timings(self) -> Timings:
        timings: Timings = copied(Timings, self._c.timings)
        return timings

    @functools.cached_property
    def plan(self) -> tuple[PlanItem, ...]:
        return tuple(self._plan_item(self._c.plan[i]) for i in range(self._c.n_plan))

    def _plan_item(self, c: Any) -> PlanItem:
        shares = (
            self._c.kept_shares[c.first_kept_share : c.first_kept_share + c.n_kept_shares] if c.n_kept_shares else ()
        )
        item: PlanItem = copied(PlanItem, c, kept_shares=tuple(shares))
        return item

    @property
    def kept_step(self) -> int:
        """Positions per number of PlanItem.kept_shares; 0 without any (n_kept_shares)."""
        return int(self._c.kept_step)

    @functools.cached_property
    def quality(self) -> QualityReport:
        report = self._c.quality
        asked, used = quality_text(report.asked), quality_text(report.used)
        quality: QualityReport = copied(QualityReport, report, asked=asked, used=used)
        return quality

    @functools.cached_property
    def kv_reduction(self) -> KvReduction:
        reduction: KvReduction = copied(KvReduction, self._c.kv_reduction)
        return reduction

    @functools.cached_property
    def mismatch(self) -> Mismatch | None:
        """None: no difference, or nothing was cached."""
        found = self._c.mismatch
        return copied(Mismatch, found) if found.token >= 0 else None

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(text(self._c.warnings[i]) for i in range(self._c.n_warnings))

    @property
    def dropped_messages(self) -> int:
        return int(self._c.dropped_messages)

    @property
    def adapter_from(self) -> int:
        """First position that was computed with the adapter; -1: none."""
        return int(self._c.adapter_from)

    @property
    def context_shifts(self) -> int:
        return int(self._c.context_shifts)

    def _repr_html_(self) -> str:
        from . import html

        return html.result(self)

    def __repr__(self) -> str:
        usage = self.usage
        return f"<Result {self.text!r:.60}: {usage.cached_tokens} of {usage.prompt_tokens} tokens cached, {self.finish_reason}>"


def quality_text(quality: _abi.rp_quality) -> str:
    """ "link:8"; "" for as written."""
    out = ctypes.create_string_buffer(_abi.RP_QUALITY_BYTES)
    return text(lib.rp_quality_text(quality, out))
