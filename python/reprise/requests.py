# SPDX-License-Identifier: Apache-2.0
"""Requests: a prompt and its options as an rp_request."""

from __future__ import annotations

import array
import ctypes
import difflib
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypedDict, cast

from . import _abi
from ._library import call, encoded, lib, set_field
from .errors import InvalidError
from .handle import Handle
from .model import Lora, c_messages
from .prompt import ROLES, Document, Markup, Message, Module, Part, Prompt, Text

PromptLike: TypeAlias = Prompt | Markup | str | Sequence[Mapping[str, str]] | Sequence[int]
"""What an engine runs: a Prompt; a PML prompt document; plain text; messages with "role" and "content"; token ids."""

_REUSE = {"on": _abi.RP_REUSE_ON, "off": _abi.RP_REUSE_OFF, "exact": _abi.RP_REUSE_EXACT, "auto": _abi.RP_REUSE_AUTO}
_SAMPLING = ("temperature", "top_k", "typical", "top_p", "min_p", "repeat_penalty", "presence_penalty", "frequency_penalty", "repeat_last", "seed")  # fmt: skip
_NUMBERS = ("max_tokens", "priority", "deadline_ms", "shifted_reuse", "n_logprobs", "ignore_eos", "truncates", "context_shift", "n_kept_shares", "special_text", "raw_embedding", "n_prompt_logprobs", "adapter_scale", "ends_session", "adds_nothing", "retain_s")  # fmt: skip
_STRINGS = ("tenant", "flow", "grammar", "grammar_trigger", "kv_format", "kv_keep", "kv_method", "session", "parent_session")  # fmt: skip


class RequestOptions(TypedDict, total=False):
    """Options of a request, all optional. rp_request (reprise.h) and rp_sampling (reprise_sampling.h) say what each does, and its default."""

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
    reuse: Literal["on", "off", "exact", "auto"]
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
    session: str | None
    parent_session: str | None
    ends_session: bool
    adds_nothing: bool
    retain_s: int
    continues_last: bool
    truncates: bool
    context_shift: bool
    special_text: bool
    n_kept_shares: int
    pooling: Literal["model", "mean", "cls", "last", "rank"] | None
    raw_embedding: bool
    adapter: Lora | None
    adapter_scale: float
    logits: bool
    choose: Callable[[memoryview], int | None]


OPTIONS = tuple(RequestOptions.__annotations__)


class StepCallbacks:
    """What a request calls at each of its tokens. It runs on the engine's thread: the steps of all requests wait.

    logits=True   keeps the logits
    choose=f      f(logits), float32 as a memoryview, returns the id of the next token; None: as it is sampled. What f raises is the job's error.
    """

    def __init__(self) -> None:
        self.data = bytearray()
        self.n_rows = 0
        self.keeps_logits = False
        self.choose: Callable[[memoryview], int | None] | None = None
        self.error: BaseException | None = None
        self.on_logits = _abi.rp_on_logits(self._take)
        self.on_choose = _abi.rp_on_choose(self._choose)

    def _take(self, _user: int | None, logits: Any, n_vocab: int) -> None:
        self.data += ctypes.string_at(logits, n_vocab * 4)
        self.n_rows += 1

    def _choose(self, _user: int | None, logits: Any, n_vocab: int) -> int:
        try:
            assert self.choose is not None
            token = self.choose(memoryview(ctypes.string_at(logits, n_vocab * 4)).cast("f"))
            if token is None:
                return _abi.RP_CHOOSE_SAMPLED
            if not 0 <= operator.index(token) < n_vocab:
                raise InvalidError(f"choose returned {token}: give a token id below {n_vocab}, or None")
            return operator.index(token)
        except BaseException as e:  # also KeyboardInterrupt: the library's thread cannot raise it
            self.error = e
            return _abi.RP_CHOOSE_SAMPLED - 1  # ends the job

    def view(self, n_tokens: int) -> memoryview:
        """The rows of an answer's tokens: not that of an end-of-text token, which is none of them."""
        n = min(self.n_rows, n_tokens)
        if n == 0:
            return memoryview(b"").cast("f")
        n_vocab = len(self.data) // 4 // self.n_rows
        return memoryview(self.data).toreadonly()[: n * n_vocab * 4].cast("f", (n, n_vocab))


class Request:
    """An rp_request, and everything that it points to. Close it after submission: the library has copied the rest."""

    def __init__(self, prompt: PromptLike | None, options: Mapping[str, Any]) -> None:
        self.built: Any = None  # an rp_builder
        self.used: list[Handle] = []  # of an adapter, until the library has a reference of its own
        self.c: Any = _abi.rp_request()
        self.kept: list[Any] = []
        self.steps: StepCallbacks | None = None
        lib.rp_request_init(self.c, ctypes.sizeof(self.c))
        try:
            self._set_options(options)
            if prompt is not None:
                self._set_prompt(prompt)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Request:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        built, self.built = self.built, None  # no call between these lines: no exception comes between them
        if built is not None:
            lib.rp_builder_free(built)
        while self.used:
            self.used.pop().__exit__()

    def __del__(self) -> None:
        if hasattr(self, "built"):
            self.close()

    # ---- options ----

    def _set_options(self, options: Mapping[str, Any]) -> None:
        c = self.c
        for name, value in options.items():
            if name not in OPTIONS:
                near = difflib.get_close_matches(name, OPTIONS, 1)
                raise TypeError(f"a request has no option {name!r}" + (f": do you mean {near[0]!r}?" if near else ""))
            try:
                if name in _NUMBERS:
                    set_field(c, name, value)
                elif name in _SAMPLING:
                    set_field(c.sampling, name, value)
                elif name in _STRINGS:
                    setattr(c, name, encoded(value))
                else:
                    self._set_other(name, value)
            except (TypeError, AttributeError) as e:
                raise InvalidError(f"{name}={value!r}: {e}") from None

    def _set_other(self, name: str, value: Any) -> None:
        c = self.c
        if name == "reuse":
            if value not in _REUSE:
                raise InvalidError(f"reuse={value!r}: use one of {', '.join(_REUSE)}")
            c.reuse = _REUSE[value]
        elif name == "quality" and value is not None:
            call(lib.rp_quality_parse, encoded(value), ctypes.byref(c.quality))
        elif name == "pooling":
            if value is not None:
                pooling = ctypes.c_int()
                call(lib.rp_pooling_parse, encoded(value), ctypes.byref(pooling))
                c.pooling = pooling.value
        elif name == "adapter":
            if value is not None:
                c.adapter = value.handle.__enter__()
                self.used.append(value.handle)
        elif name == "continues_last":
            set_field(c.prompt, name, value)
        elif name == "n_draft":
            set_field(c, name, _abi.RP_DRAFT_AUTO if value == "auto" else value)
        elif name == "stop":
            stops = [encoded(one) for one in ([value] if isinstance(value, str) else value)]
            pointers = (ctypes.c_char_p * len(stops))(*stops)
            self.kept.append(pointers)
            c.stops, c.n_stops = cast(Any, pointers), len(stops)
        elif name == "logit_bias":
            biases = (_abi.rp_logit_bias * len(value))()
            for i, (token, bias) in enumerate(value.items()):
                set_field(biases[i], "token", token)
                biases[i].bias = -math.inf if bias is None else bias
            self.kept.append(biases)
            c.sampling.bias, c.sampling.n_bias = biases, len(value)
        elif name in ("logits", "choose") and value:
            self.steps = self.steps or StepCallbacks()
            if name == "logits":
                self.steps.keeps_logits, c.on_logits = True, self.steps.on_logits
            else:
                self.steps.choose, c.on_choose = value, self.steps.on_choose

    # ---- prompts ----

    def _give(self, kind: int, content: int | None, n: int) -> None:
        self.c.prompt.kind, self.c.prompt.content, self.c.prompt.n = kind, content, n

    def _give_bytes(self, kind: int, data: bytes) -> None:
        self.kept.append(data)
        self._give(kind, ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value, len(data))

    def _set_prompt(self, prompt: PromptLike) -> None:
        if isinstance(prompt, Prompt):
            self._build(prompt)
        elif isinstance(prompt, Markup):
            self._give_bytes(_abi.RP_PROMPT_PML, _bytes(prompt.pml, "markup"))
        elif isinstance(prompt, str):
            self._give_bytes(_abi.RP_PROMPT_TEXT, _bytes(prompt, "a text"))
        elif isinstance(prompt, Sequence) and prompt and isinstance(prompt[0], Mapping):
            messages, n, texts = c_messages(cast(Iterable[Mapping[str, str]], prompt))
            self.kept += [messages, texts]
            self._give(_abi.RP_PROMPT_MESSAGES, ctypes.addressof(messages), n)
        elif isinstance(prompt, Sequence) and prompt and isinstance(prompt[0], int):
            try:
                tokens = array.array("i", cast(Sequence[int], prompt))
            except (TypeError, OverflowError) as e:
                raise InvalidError(f"token ids: {e}") from None
            self.kept.append(tokens)
            self._give(_abi.RP_PROMPT_TOKENS, tokens.buffer_info()[0], len(tokens))
        else:
            raise InvalidError(
                f"{prompt!r:.60} is no prompt: use a Prompt, str, a list of messages or of token ids, and Markup for PML"
            )

    def _build(self, prompt: Prompt) -> None:
        self.built = ctypes.c_void_p()
        call(lib.rp_builder_new, ctypes.byref(self.built), encoded(prompt.schema_name))
        _add_parts(self.built, prompt.parts)
        self._give(_abi.RP_PROMPT_BUILT, self.built.value, 1)


def _bytes(value: object, what: str) -> bytes:
    if not isinstance(value, str):
        raise InvalidError(f"{what} is {type(value).__name__}, not str: {value!r:.60}")
    return value.encode("utf-8", "surrogatepass")


def _add_parts(built: Any, parts: Iterable[Part]) -> None:
    """Adds parts. The builder keeps its first error, which submission reports with the part's number."""
    for part in parts:
        if isinstance(part, Text):
            data = _bytes(part.text, "a prompt's text")
            lib.rp_builder_append_text(built, data, len(data))
        elif isinstance(part, Module):
            lib.rp_builder_import(built, encoded(part.path))
            for name, value in part.args.items():
                data = _bytes(value, f"{part.path}: the argument of {name}")
                lib.rp_builder_set_argument(built, encoded(name), data, len(data))
        elif isinstance(part, Document):
            data = _bytes(part.text, "a document")
            lib.rp_builder_append_document(built, data, len(data))
        elif isinstance(part, Message):
            begin = lib.rp_builder_begin_message if part.is_open else lib.rp_builder_begin_role
            begin(built, ROLES.index(part.role))
            _add_parts(built, part.parts)
            lib.rp_builder_end_role(built)
        else:
            data = _bytes(part.pml, "markup")
            lib.rp_builder_append_pml(built, data, len(data))
