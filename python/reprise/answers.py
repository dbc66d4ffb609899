# SPDX-License-Identifier: Apache-2.0
"""The server's protocol, without a connection: prompts as requests, replies and events as answers, errors as exceptions."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypedDict
from urllib.parse import quote

from .errors import (
    AccessError,
    BusyError,
    CancelledError,
    ConflictError,
    ContextLengthError,
    DeadlineError,
    Error,
    InternalError,
    InvalidError,
    LimitError,
    MarkupError,
    UnknownNameError,
    UnsupportedError,
)
from .http1 import BadResponse
from .prompt import Markup, Message, Prompt
from .requests import PromptLike
from .result import PlanItem, Timings, Usage
from .schema import Schema

Kind: TypeAlias = Literal["prompts", "completions", "chat/completions"]


class ClientOptions(TypedDict, total=False):
    """Fields of a request, all optional: those of /v1/prompts (docs/server.md, 'Fields')."""

    max_tokens: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    typical_p: float
    repeat_penalty: float
    repeat_last_n: int
    presence_penalty: float
    frequency_penalty: float
    logit_bias: Mapping[str, float]
    seed: int
    stop: str | Sequence[str]
    grammar: str
    grammar_trigger: str
    response_format: Mapping[str, Any]
    ignore_eos: bool
    reuse: Literal["on", "off", "exact", "modular"]
    quality: str
    priority: int
    deadline_ms: int
    n_draft: int
    shifted_reuse: int
    kv_keep: str
    kv_method: str
    truncation: str
    context_shift: bool
    cache_salt: str


OPTIONS = tuple(ClientOptions.__annotations__)


@dataclass(frozen=True, slots=True)
class Answer:
    """A server's answer. plan, usage and timings as those of a Result; report: the server's whole `reprise` object."""

    text: str
    finish_reason: str
    usage: Usage
    timings: Timings
    plan: tuple[PlanItem, ...]
    warnings: tuple[str, ...]
    id: str
    report: Mapping[str, Any] = field(repr=False)

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        from . import html

        return html.result(self)


@dataclass(frozen=True, slots=True)
class Call:
    """A request to the server."""

    method: str
    path: str
    body: bytes = b""
    kind: Kind = "prompts"
    content_type: str = "application/json"


def call_of(prompt: PromptLike, options: Mapping[str, Any], stream: bool) -> Call:
    """The request that answers a prompt."""
    for name in options:
        if name not in OPTIONS:
            near = difflib.get_close_matches(name, OPTIONS, 1)
            raise TypeError(f"a request has no field {name!r}" + (f": do you mean {near[0]!r}?" if near else ""))
    body: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    kind: Kind = "prompts"
    if isinstance(prompt, Prompt):
        if any(isinstance(part, Message) and part.is_open for part in prompt.parts):
            raise InvalidError("a role with is_open=True is for engines: servers have no field for it")
        body |= prompt.to_json()
    elif isinstance(prompt, Markup):
        body["prompt"] = prompt.pml
    elif isinstance(prompt, Sequence) and prompt and isinstance(prompt[0], Mapping):
        kind, body["messages"] = "chat/completions", list(prompt)
    elif isinstance(prompt, str) or (isinstance(prompt, Sequence) and prompt and isinstance(prompt[0], int)):
        kind, body["prompt"] = "completions", prompt if isinstance(prompt, str) else list(prompt)
    else:
        raise InvalidError(
            f"{prompt!r:.60} is no prompt: use a Prompt, str, a list of messages or of token ids, and Markup for PML"
        )
    if kind != "prompts":
        body.setdefault("temperature", 0)  # as an engine's, and as /v1/prompts
    if stream:
        body["stream"] = True
        if kind != "prompts":
            body["stream_options"] = {"include_usage": True}
    return Call("POST", f"/v1/{kind}", json.dumps(body).encode(), kind)


def upload_of(schema: Schema, prefill: bool) -> Call:
    path = f"/v1/schemas/{quote(schema.name, safe='')}?prefill={'true' if prefill else 'false'}"
    return Call("PUT", path, schema.pml.encode(), content_type="application/xml")


# ---- replies ----


def loaded(body: bytes) -> Any:
    """JSON, or BadResponse."""
    try:
        return json.loads(body)
    except ValueError:
        raise BadResponse(f"it is no JSON: {body[:60]!r}") from None


def answer_of(kind: Kind, reply: Any, text: str | None = None, finish_reason: str | None = None) -> Answer:
    """The answer of a reply. text, finish_reason: of a stream's events, where its last one has none."""
    try:
        if text is None:
            if kind == "prompts":
                first = reply["answers"][0]
                text = first["text"]
            else:
                first = reply["choices"][0]
                text = first["text"] if kind == "completions" else first["message"]["content"] or ""
            finish_reason = first["finish_reason"]
        report = reply["reprise"]
        ms, usage = report["ms"], reply["usage"]
        n_answer = usage.get("answer_tokens", usage.get("completion_tokens", 0))
        kv_bytes = report["kv_reduction"]["bytes"]
        speed = (n_answer - 1) * 1000 / ms["decode"] if ms["decode"] > 0 and n_answer > 1 else 0.0
        return Answer(
            text=text,
            finish_reason=finish_reason or "",
            usage=Usage(
                report["prompt_tokens"], report["cached_tokens"], report["fresh_tokens"], n_answer, 0, 0, kv_bytes
            ),
            timings=Timings(
                ms["queue"],
                ms["module_prefill"],
                ms["plan"],
                ms["prompt_prefill"],
                ms["first_token"],
                ms["decode"],
                ms["saved"],
                speed,
            ),
            plan=tuple(_plan_item(part) for part in report["parts"]),
            warnings=tuple(report.get("warnings", ())),
            id=reply.get("id", report["request"]),
            report=report,
        )
    except (KeyError, IndexError, TypeError, AttributeError) as e:
        raise BadResponse(f"an answer without {e}") from None


def _plan_item(part: Mapping[str, Any]) -> PlanItem:
    return PlanItem(
        is_view=bool(part["tier"]),
        exact=part["exact"],
        module=part["module"],
        n_tokens=part["tokens"],
        position=part["position"],
        shift=part["shift"],
        tier=part["tier"],
        reason=part["reason"],
        key=part["key"],
        kept=part["kept"],
        kept_by=part["kept_by"],
        full_reason=part["full_reason"],
    )


class Events:
    """The events of a streamed answer: pieces of text, then `answer`."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.answer: Answer | None = None
        self._texts: list[str] = []
        self._finish_reason = ""

    def take(self, name: str, data: str) -> str:
        """The text that an event adds. An Error that the server reports."""
        if data == "[DONE]":
            return ""
        value = loaded(data.encode())
        if not isinstance(value, dict):
            raise BadResponse(f"an event that is no object: {data!r:.60}")
        if name == "error" or "error" in value:
            raise error_of(0, value)
        if name == "done":
            self.answer = answer_of(self.kind, value)
            return ""
        text = ""
        if name == "text":
            text = value.get("text", "")
        for choice in value.get("choices", ()):
            text += (
                choice.get("text", "") if self.kind == "completions" else (choice.get("delta") or {}).get("content") or ""
            )  # fmt: skip
            self._finish_reason = choice.get("finish_reason") or self._finish_reason
        if text:
            self._texts.append(text)
        if "reprise" in value:
            self.answer = answer_of(self.kind, value, "".join(self._texts), self._finish_reason)
        return text


_CLASSES: dict[str, type[Error]] = {
    "context_length_exceeded": ContextLengthError,
    "unsupported_value": UnsupportedError,
    "invalid_api_key": AccessError,
    "insufficient_permissions": AccessError,
    "origin_not_allowed": AccessError,
    "not_found": UnknownNameError,
    "model_not_found": UnknownNameError,
    "conflict": ConflictError,
    "request_too_large": LimitError,
    "head_too_large": LimitError,
    "rate_limit_exceeded": BusyError,
    "overloaded": BusyError,
    "loading": BusyError,
    "cancelled": CancelledError,
    "internal_error": InternalError,
    "deadline_exceeded": DeadlineError,
}


def error_of(status: int, reply: Any, retry_after: str = "") -> Error:
    """The exception of a server's error."""
    error = reply.get("error") if isinstance(reply, dict) else None
    if not isinstance(error, dict) or not isinstance(error.get("message"), str):
        raise BadResponse(f"status {status} without an error's text")
    cls = _CLASSES.get(str(error.get("code")), InvalidError)
    place = re.match(r"(\S+:\d+:\d+): ", error["message"])  # of a document
    if cls is InvalidError and place:
        return MarkupError(error["message"], where=place[1])
    ms = int(float(retry_after) * 1000) if retry_after.replace(".", "", 1).isascii() and retry_after.replace(".", "", 1).isdigit() else 0  # fmt: skip
    where = error.get("param")
    return cls(error["message"], where=where if isinstance(where, str) else "", retry_after_ms=ms)


def lacks_schema(error: Error, schema: Schema) -> bool:
    """Whether the server does not have the schema (any more), which the client has uploaded."""
    return isinstance(error, UnknownNameError) and f"'{schema.name}'" in str(error)
