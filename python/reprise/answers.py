# SPDX-License-Identifier: Apache-2.0
"""The server's protocol, without a connection: requests of prompts, answers of replies and events, errors as exceptions.

Owns the bounds of what a server may send.
"""

from __future__ import annotations

import difflib
import io
import json
import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypedDict, TypeVar
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
from .prompt import Markup, Message, Prompt, part_json
from .requests import PromptLike
from .result import PlanItem, Timings, Usage
from .schema import Schema

MAX_BODY_BYTES = 64 << 20  # of a whole answer, of an event, and of a stream's text

_T = TypeVar("_T")
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
    reuse: Literal["on", "off", "exact", "auto", "modular"]
    quality: str
    priority: int
    deadline_ms: int
    n_draft: int
    shifted_reuse: int
    kv_keep: str
    kv_method: str
    truncation: str
    context_shift: bool
    kept_shares: int
    enable_thinking: bool
    reasoning_effort: str
    chat_template_kwargs: Mapping[str, Any]
    include_reasoning: bool
    cache_salt: str


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


class BadResponse(Exception):
    """What came is no response of a server, or exceeds a bound."""

    def __init__(self, reason: str) -> None:
        super().__init__(" ".join(reason[:1000].split())[:200])


@dataclass(frozen=True, slots=True)
class Call:
    """A request to the server."""

    method: str
    path: str
    body: bytes = b""
    kind: Kind = "prompts"
    content_type: str = "application/json"


OPTIONS = tuple(ClientOptions.__annotations__)


def call_of(prompt: PromptLike, options: Mapping[str, Any], stream: bool) -> Call:
    """The request that answers a prompt."""
    for name in options:
        if name not in OPTIONS:
            near = difflib.get_close_matches(name, OPTIONS, 1)
            raise TypeError(f"a request has no option {name!r}" + (f": do you mean {near[0]!r}?" if near else ""))
    body: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    kind: Kind = "prompts"
    if isinstance(prompt, Prompt) and prompt.schema is not None and _has_open_messages(prompt):
        kind, body["messages"] = "chat/completions", _open_messages(prompt)
    elif isinstance(prompt, Prompt):
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
    try:
        data = json.dumps(body, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as e:
        raise InvalidError(f"the prompt or an option cannot be JSON: {e}") from None
    return Call("POST", f"/v1/{kind}", data, kind)


def _has_open_messages(prompt: Prompt) -> bool:
    return any(isinstance(part, Message) and part.is_open for part in prompt.parts)


def _open_messages(prompt: Prompt) -> list[dict[str, Any]]:
    """A prompt with open messages as a conversation with modules: on that route the server opens every message."""
    messages = []
    for part in prompt.parts:
        if not isinstance(part, Message):
            raise InvalidError(
                "a prompt with an open role has a part outside of roles: a server takes open roles in conversations "
                "only, so put every part into a role, or use no is_open=True"
            )
        content = [part_json(inside) for inside in part.parts]
        for one in content:
            if one["type"] == "module":
                one["schema"] = prompt.schema_name
        messages.append({"role": part.role, "content": content})
    return messages


def upload_of(schema: Schema, prefill: bool) -> Call:
    path = f"/v1/schemas/{quote(schema.name, safe='')}?prefill={'true' if prefill else 'false'}"
    return Call("PUT", path, schema.pml.encode(), content_type="application/xml")


# ---- replies ----


def loaded(body: bytes) -> Any:
    """JSON, or BadResponse."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise BadResponse(f"it is no JSON: {body[:60]!r}") from None


def _typed(value: Any, kind: type[_T], name: str) -> _T:
    """A value of a reply. Whole numbers may be where fractions are expected."""
    if kind is float and type(value) is int and abs(value) < 1 << 53:
        return kind(value)  # type: ignore[call-arg]
    if type(value) is not kind:
        raise BadResponse(f"{name} is {value!r:.40}")
    return value


def _field(holder: Any, name: str, kind: type[_T]) -> _T:
    if not isinstance(holder, dict) or name not in holder:
        raise BadResponse(f"an answer without {name!r}")
    return _typed(holder[name], kind, name)


def names_of(reply: Any, key: str | None = None) -> tuple[str, ...]:
    """The names of a list: {"data": ["a", "b"]}, or {"data": [{key: "a"}, {key: "b"}]}."""
    data = _field(reply, "data", list)
    return tuple(_typed(one, str, "a name") if key is None else _field(one, key, str) for one in data)


def answer_of(kind: Kind, reply: Any, text: str | None = None, finish_reason: str | None = None) -> Answer:
    """The answer of a reply. text, finish_reason: of a stream's events, where its last one has none."""
    if text is None:
        choices = _field(reply, "answers" if kind == "prompts" else "choices", list)
        if not choices:
            raise BadResponse("an answer without a choice")
        if kind == "chat/completions":
            message = _field(choices[0], "message", dict)
            text = "" if message.get("content") is None else _field(message, "content", str)
        else:
            text = _field(choices[0], "text", str)
        finish_reason = _field(choices[0], "finish_reason", str)
    report, usage = _field(reply, "reprise", dict), _field(reply, "usage", dict)
    ms, reduction = _field(report, "ms", dict), _field(report, "kv_reduction", dict)
    n_answer = _field(usage, "answer_tokens" if kind == "prompts" else "completion_tokens", int)
    decode_ms = _field(ms, "decode", float)
    return Answer(
        text=text,
        finish_reason=finish_reason or "",
        usage=Usage(
            _field(report, "prompt_tokens", int),
            _field(report, "cached_tokens", int),
            _field(report, "fresh_tokens", int),
            n_answer,
            0,
            0,
            _field(reduction, "bytes", int),
            0,
            0,
            "",
        ),
        timings=Timings(
            _field(ms, "queue", float),
            _field(ms, "module_prefill", float),
            _field(ms, "plan", float),
            _field(ms, "prompt_prefill", float),
            _field(ms, "first_token", float),
            decode_ms,
            _field(ms, "saved", float),
            (n_answer - 1) * 1000 / decode_ms if decode_ms > 0 and n_answer > 1 else 0.0,
        ),
        plan=tuple(_plan_item(part) for part in _field(report, "parts", list)),
        warnings=tuple(_typed(line, str, "a warning") for line in _field(report, "warnings", list)),
        id=_field(reply, "id", str),
        report=report,
    )


def _plan_item(part: Any) -> PlanItem:
    tier = _field(part, "tier", str)
    return PlanItem(
        is_view=bool(tier),
        exact=_field(part, "exact", bool),
        module=_field(part, "module", str),
        n_tokens=_field(part, "tokens", int),
        position=_field(part, "position", int),
        shift=_field(part, "shift", int),
        tier=tier,
        reason=_field(part, "reason", str),
        key=_field(part, "key", str),
        kept=_field(part, "kept", float),
        kept_by=_field(part, "kept_by", str),
        full_reason=_field(part, "full_reason", str),
        kept_shares=tuple(_typed(share, float, "a share") for share in part.get("kept_shares", ())),
    )


_FIELDS = ("event", "data", "id", "retry", "")  # "": comments


class EventParser:
    """Server-sent events: (event, data) of each that is complete."""

    def __init__(self) -> None:
        self._rest = bytearray()  # of a line
        self._name = "message"
        self._lines: list[str] = []
        self._bytes = 0  # of the event's lines so far

    def feed(self, data: bytes) -> list[tuple[str, str]]:
        self._rest += data
        events: list[tuple[str, str]] = []
        if b"\n" in data:
            *lines, self._rest = self._rest.split(b"\n")
            for line in lines:
                self._take(line.removesuffix(b"\r"), events)
        self._check(len(self._rest))
        return events

    def _check(self, more: int) -> None:
        if self._bytes + more > MAX_BODY_BYTES:
            raise BadResponse(f"an event has more than {MAX_BODY_BYTES} bytes")

    def _take(self, line: bytearray, events: list[tuple[str, str]]) -> None:
        if not line:
            if self._lines:
                events.append((self._name, "\n".join(self._lines)))
            self._name, self._lines, self._bytes = "message", [], 0
            return
        self._bytes += len(line) + 1
        self._check(0)
        try:
            name, _, value = line.decode().partition(":")
        except UnicodeDecodeError:
            raise BadResponse("an event is not UTF-8") from None
        if name not in _FIELDS:
            raise BadResponse(f"it is no event stream: {bytes(line[:40])!r}")
        value = value.removeprefix(" ")
        if name == "event":
            self._name = value
        elif name == "data":
            self._lines.append(value)


class Events:
    """A streamed answer from the bytes of its events: pieces of text, then `answer`."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.answer: Answer | None = None
        self._parser = EventParser()
        self._waiting: deque[tuple[str, str]] = deque()
        self._text = io.StringIO()
        self._characters = 0
        self._finish_reason = ""

    def feed(self, data: bytes) -> None:
        """The next bytes; b"": that was all."""
        self._waiting.extend(self._parser.feed(data))
        if not data and self.answer is None:
            raise BadResponse("the answer ended before its end")

    def next(self) -> str:
        """The next piece; "": feed it first."""
        text = ""
        while self._waiting and not text:
            text = self.take(*self._waiting.popleft())
        return text

    def take(self, name: str, data: str) -> str:
        """The text that an event adds. An Error that the server reports."""
        if data == "[DONE]" and self.kind != "prompts":
            return ""
        value = loaded(data.encode())
        if name == "error" or isinstance(value, dict) and "error" in value:
            raise error_of(0, value)
        if self.answer is not None:
            raise BadResponse(f"an event after the answer: {data!r:.60}")
        if self.kind == "prompts":
            if name == "done":
                self.answer = answer_of(self.kind, value)
                return ""
            return self._add(_field(value, "text", str)) if name == "text" else ""
        text = ""
        for choice in _field(value, "choices", list):
            if self.kind == "completions":
                text += _field(choice, "text", str)
            else:
                delta = _field(choice, "delta", dict)
                text += "" if delta.get("content") is None else _field(delta, "content", str)
            if choice.get("finish_reason") is not None:
                self._finish_reason = _field(choice, "finish_reason", str)
        text = self._add(text)
        if "reprise" in value:
            self.answer = answer_of(self.kind, value, self._text.getvalue(), self._finish_reason)
        return text

    def _add(self, text: str) -> str:
        self._characters += len(text)
        if self._characters > MAX_BODY_BYTES:
            raise BadResponse(f"an answer of more than {MAX_BODY_BYTES} characters")
        if text and self.kind != "prompts":  # there, the last event has all
            self._text.write(text)
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


_PLACE = re.compile(r"(\S+?:[0-9]+:[0-9]+): ")  # of what is wrong in PML or in a grammar
_MAX_MESSAGE = 2000


def error_of(status: int, reply: Any, retry_after: str = "") -> Error:
    """The exception of a server's error: the class that an engine raises, as far as the server's code determines it.

    status 0: in a stream.
    """
    error = reply.get("error") if isinstance(reply, dict) else None
    if not isinstance(error, dict) or not isinstance(error.get("message"), str) or not error["message"]:
        raise BadResponse(f"status {status} without an error's text")
    message = " ".join(error["message"].split())[:_MAX_MESSAGE]
    cls = _CLASSES.get(str(error.get("code")), InternalError if status >= 500 else InvalidError)
    param = error.get("param")
    where = param if isinstance(param, str) else ""
    place = _PLACE.match(message)
    if place and cls is InvalidError:
        cls, where = MarkupError, place[1]
    return cls(message, where=where, retry_after_ms=retry_after_ms_of(retry_after))


def retry_after_ms_of(value: str) -> int:
    """Retry-After in seconds. 0: none, or a date."""
    return int(value) * 1000 if re.fullmatch("[0-9]{1,7}", value) else 0


def error_without_text(status: int, retry_after: str = "") -> Error | None:
    """The exception of a status that says everything, of a proxy: its body is a page. None: it says nothing."""
    if status in (429, 503):
        ms = retry_after_ms_of(retry_after)
        return BusyError(f"the server is busy or not ready (status {status}): retry later", retry_after_ms=ms)
    if status in (401, 403):
        return AccessError(
            f"access is denied (status {status}): give the api_key that the server or its proxy requires"
        )
    return None


def named_for(error: Error, schema: Schema) -> Error:
    """An error of an upload, with the document's name instead of the server's for it."""
    name, document = f"{schema.name}.xml:", schema.document or schema.name
    if not error.where.startswith(name):
        return error
    message, where = str(error), f"{document}:{error.where.removeprefix(name)}"
    return type(error)(message.replace(error.where, where, 1), where=where)


def lacks_schema(error: Error, schema: Schema) -> bool:
    """Whether the server does not have the schema (any more), which the client has uploaded."""
    return isinstance(error, UnknownNameError) and f"schema '{schema.name[:100]}' is not loaded" in str(error)
