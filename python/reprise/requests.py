# SPDX-License-Identifier: Apache-2.0
"""Requests: a prompt and its options as an rp_request."""

from __future__ import annotations

import array
import ctypes
import difflib
import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypedDict, cast

from . import _abi
from ._library import call, encoded, lib
from .errors import InvalidError
from .model import c_messages
from .prompt import ROLES, Document, Markup, Message, Module, Part, Prompt, Text

PromptLike: TypeAlias = Prompt | Markup | str | Sequence[Mapping[str, str]] | Sequence[int]
"""What an engine runs: a Prompt; a PML prompt document; plain text; messages with "role" and "content"; token ids."""

_REUSE = {"on": _abi.RP_REUSE_ON, "off": _abi.RP_REUSE_OFF, "exact": _abi.RP_REUSE_EXACT}
_SAMPLING = ("temperature", "top_k", "typical", "top_p", "min_p", "repeat_penalty", "presence_penalty", "frequency_penalty", "repeat_last", "seed")  # fmt: skip
_NUMBERS = ("max_tokens", "priority", "deadline_ms", "shifted_reuse", "n_logprobs", "ignore_eos", "continues_last", "truncates", "context_shift", "n_kept_shares")  # fmt: skip
_STRINGS = ("tenant", "flow", "grammar", "grammar_trigger", "kv_format", "kv_keep", "kv_method")


class RequestOptions(TypedDict, total=False):
    """Options of a request, all optional. rp_request and rp_sampling in reprise.h say what each does, and its default."""

    max_tokens: int
    temperature: float
    top_k: int
    typical: float
    top_p: float
    min_p: float
    repeat_penalty: float
    presence_penalty: float
    frequency_penalty: float
    repeat_last: int
    logit_bias: Mapping[int, float]
    seed: int
    stop: str | Sequence[str]
    grammar: str | None
    grammar_trigger: str | None
    n_logprobs: int
    ignore_eos: bool
    reuse: Literal["on", "off", "exact"]
    quality: str | None
    tenant: str | None
    flow: str | None
    priority: int
    deadline_ms: int
    n_draft: int | Literal["auto"]
    shifted_reuse: int
    kv_format: str | None
    kv_keep: str | None
    kv_method: str | None
    continues_last: bool
    truncates: bool
    context_shift: bool
    n_kept_shares: int
    logits: bool


OPTIONS = tuple(RequestOptions.__annotations__)


class LogitsCollector:
    """Keeps the logits of each step. Its callback runs on the engine's thread: every step waits for the copy."""

    def __init__(self) -> None:
        self.rows: list[bytes] = []
        self.n_vocab = 0
        self.callback = _abi.rp_on_logits(self._take)

    def _take(self, _user: int | None, logits: Any, n_vocab: int) -> None:
        self.n_vocab = n_vocab
        self.rows.append(ctypes.string_at(logits, n_vocab * 4))

    def view(self, n_tokens: int) -> memoryview:
        """The rows of an answer's tokens: without that of the end-of-text token, which is none."""
        rows = self.rows[:n_tokens]
        if not rows:
            return memoryview(b"").cast("f")
        return memoryview(b"".join(rows)).cast("f", (len(rows), self.n_vocab))


def set_number(struct: Any, name: str, value: Any) -> None:
    """Sets a field, which ctypes would truncate to its size."""
    if not isinstance(value, (int, float)):
        value = operator.index(value)
    setattr(struct, name, value)
    stored = getattr(struct, name)
    if stored != value and not isinstance(stored, float):
        raise InvalidError(f"{name}={value!r} is out of its range")


class Request:
    """An rp_request, and everything that it points to. Close it after submission: the library has copied the rest."""

    def __init__(self, prompt: PromptLike, options: Mapping[str, Any]) -> None:
        self.c: Any = _abi.rp_request()
        self.kept: list[Any] = []
        self.built: Any = None
        self.logits: LogitsCollector | None = None
        lib.rp_request_init(self.c, ctypes.sizeof(self.c))
        try:
            self._set_options(options)
            self._set_prompt(prompt)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        built, self.built = self.built, None
        if built is not None:
            lib.rp_prompt_free(built)

    # ---- options ----

    def _set_options(self, options: Mapping[str, Any]) -> None:
        c = self.c
        for name, value in options.items():
            if name not in OPTIONS:
                near = difflib.get_close_matches(name, OPTIONS, 1)
                raise TypeError(f"a request has no option {name!r}" + (f": do you mean {near[0]!r}?" if near else ""))
            try:
                if name in _NUMBERS:
                    set_number(c, name, value)
                elif name in _SAMPLING:
                    set_number(c.sampling, name, value)
                elif name in _STRINGS:
                    setattr(c, name, encoded(value))
                else:
                    self._set_other(name, value)
            except (TypeError, AttributeError, KeyError) as e:
                raise InvalidError(f"{name}={value!r}: {e}") from None

    def _set_other(self, name: str, value: Any) -> None:
        c = self.c
        if name == "reuse":
            if value not in _REUSE:
                raise InvalidError(f"reuse={value!r}: use one of {', '.join(_REUSE)}")
            c.reuse = _REUSE[value]
        elif name == "quality" and value is not None:
            call(lib.rp_quality_parse, encoded(value), ctypes.byref(c.quality))
        elif name == "n_draft":
            set_number(c, name, _abi.RP_DRAFT_AUTO if value == "auto" else value)
        elif name == "stop":
            stops = [encoded(one) for one in ([value] if isinstance(value, str) else value)]
            pointers = (ctypes.c_char_p * len(stops))(*stops)
            self.kept.append(pointers)
            c.stops, c.n_stops = cast(Any, pointers), len(stops)
        elif name == "logit_bias":
            biases = (_abi.rp_logit_bias * len(value))()
            for i, (token, bias) in enumerate(value.items()):
                set_number(biases[i], "token", token)
                biases[i].bias = -math.inf if bias is None else bias
            self.kept.append(biases)
            c.sampling.bias, c.sampling.n_bias = biases, len(value)
        elif name == "logits" and value:
            self.logits = LogitsCollector()
            c.on_logits = self.logits.callback

    # ---- prompts ----

    def _set_prompt(self, prompt: PromptLike) -> None:
        c = self.c
        if isinstance(prompt, Prompt):
            self._build(prompt)
        elif isinstance(prompt, Markup):
            c.prompt = encoded(prompt.pml)
        elif isinstance(prompt, str):
            c.text = encoded(prompt)
        elif isinstance(prompt, Sequence) and prompt and isinstance(prompt[0], Mapping):
            messages, c.n_messages, texts = c_messages(cast(Iterable[Mapping[str, str]], prompt))
            self.kept += [messages, texts]
            c.messages = messages
        elif isinstance(prompt, Sequence) and prompt and hasattr(prompt[0], "__index__"):
            try:
                ids = array.array("i", cast(Sequence[int], prompt))
            except (TypeError, OverflowError) as e:
                raise InvalidError(f"a prompt of token ids: {e}") from None
            tokens = (ctypes.c_int32 * len(ids)).from_buffer(ids)
            self.kept.append(tokens)
            c.tokens, c.n_tokens = tokens, len(ids)
        else:
            raise InvalidError(
                f"{prompt!r:.60} is no prompt: use a Prompt, str, a list of messages or of token ids, and Markup for PML"
            )

    def _build(self, prompt: Prompt) -> None:
        pointer = ctypes.c_void_p()
        call(lib.rp_prompt_new, ctypes.byref(pointer), encoded(prompt.schema_name))
        self.built = pointer
        _add_parts(pointer, prompt.parts)
        self.c.built = pointer


def _add_parts(built: Any, parts: Iterable[Part]) -> None:
    """Adds parts. The prompt keeps its first error, which submission reports with the part's number."""
    for part in parts:
        if isinstance(part, Text):
            data = part.text.encode("utf-8", "surrogatepass")
            lib.rp_prompt_append_text(built, data, len(data))
        elif isinstance(part, Module):
            lib.rp_prompt_import(built, encoded(part.path))
            for name, value in part.args.items():
                data = value.encode("utf-8", "surrogatepass")
                lib.rp_prompt_set_argument(built, encoded(name), data, len(data))
        elif isinstance(part, Document):
            data = part.text.encode("utf-8", "surrogatepass")
            lib.rp_prompt_append_document(built, data, len(data))
        elif isinstance(part, Message):
            begin = lib.rp_prompt_begin_message if part.is_open else lib.rp_prompt_begin_role
            begin(built, ROLES.index(part.role))
            _add_parts(built, part.parts)
            lib.rp_prompt_end_role(built)
        else:
            data = part.pml.encode("utf-8", "surrogatepass")
            lib.rp_prompt_append_pml(built, data, len(data))
