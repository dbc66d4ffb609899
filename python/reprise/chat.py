# SPDX-License-Identifier: Apache-2.0
"""Conversations with tools, reasoning and forms of answers: one turn each (reprise_chat.h). Engine.chat and chat_stream run them."""

from __future__ import annotations

import codecs
import collections
import ctypes
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from . import _abi
from ._library import call, encoded, lib, text
from .errors import InvalidError
from .handle import Handle, finalize
from .job import EventQueue, Job, Stream
from .model import Model
from .prompt import ROLES
from .result import Result

ToolChoice: TypeAlias = Literal["auto", "none", "required"] | Mapping[str, Any]
_CHOICES = {
    "auto": _abi.RP_TOOL_CHOICE_AUTO,
    "none": _abi.RP_TOOL_CHOICE_NONE,
    "required": _abi.RP_TOOL_CHOICE_REQUIRED,
}
_THINKING = {None: _abi.RP_THINKING_DEFAULT, False: _abi.RP_THINKING_OFF, True: _abi.RP_THINKING_ON}


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call in an answer. is_whole: its arguments are complete, which max_tokens can prevent."""

    id: str
    name: str
    arguments: str  # JSON
    is_whole: bool

    def parsed(self) -> Any:
        """The arguments as a value. ValueError: they are incomplete."""
        return json.loads(self.arguments)


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """The parts of an answer. warnings: parts of schemas that the grammar does not enforce, with their places."""

    text: str
    reasoning: str
    calls: tuple[ToolCall, ...]
    warnings: tuple[str, ...]
    result: Result

    def message(self) -> dict[str, Any]:
        """The answer as a message of the next turn."""
        out: dict[str, Any] = {"role": "assistant", "content": self.text}
        if self.reasoning:
            out["reasoning_content"] = self.reasoning
        if self.calls:
            out["tool_calls"] = [
                {"id": one.id, "type": "function", "function": {"name": one.name, "arguments": one.arguments}}
                for one in self.calls
            ]
        return out


def _object(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidError(f"{what} is {type(value).__name__}, not a mapping: {value!r:.60}")
    return value


def _string(value: Any, what: str) -> bytes | None:
    if value is not None and not isinstance(value, str):
        raise InvalidError(f"{what} is {type(value).__name__}, not str: {value!r:.60}")
    return encoded(value)


def _json(value: Any) -> bytes | None:
    """JSON text of a value; text stays as it is."""
    return None if value is None else encoded(value if isinstance(value, str) else json.dumps(value))


class Turn:
    """An rp_chat. Close it after its answer has been parsed."""

    def __init__(
        self,
        model: Model,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        tool_choice: ToolChoice,
        response_format: Mapping[str, Any] | None,
        parallel_tool_calls: bool,
        thinking: bool | None,
    ) -> None:
        if thinking not in _THINKING:
            raise InvalidError(f"thinking={thinking!r}: use True, False or None")
        self._kept: list[Any] = []  # until the library has copied it
        options = _abi.rp_chat_options()
        lib.rp_chat_options_init(options, ctypes.sizeof(options))
        self._set_messages(options, messages)
        self._set_tools(options, tools, tool_choice)
        self._set_format(options, response_format)
        options.one_call = not parallel_tool_calls
        options.thinking = _THINKING[thinking]
        self.handle = Handle("chat", has_threads=False)
        with model.handle as pointer:
            call(lib.rp_chat_new, ctypes.byref(self.handle.cell), pointer, ctypes.byref(options))
        self._kept.clear()

    def __enter__(self) -> Turn:
        return self

    def __exit__(self, *exception: object) -> None:
        self.handle.close(lib.rp_chat_free)

    def _calls(self, message: Mapping[str, Any], what: str) -> tuple[Any, int]:
        given = message.get("tool_calls") or ()
        calls = (_abi.rp_tool_call * len(given))()
        self._kept.append(calls)
        for c, one in zip(calls, given, strict=True):
            function = _object(_object(one, what).get("function"), f"{what}.function")
            c.id = _string(one.get("id"), f"{what}.id")
            c.name = _string(function.get("name"), f"{what}.function.name")
            c.arguments = _json(function.get("arguments", {}))
        return calls, len(given)

    def _set_messages(self, options: Any, messages: Sequence[Mapping[str, Any]]) -> None:
        out = (_abi.rp_chat_message * len(messages))()
        self._kept.append(out)
        for i, (c, message) in enumerate(zip(out, messages, strict=True)):
            what = f"messages[{i}]"
            role = _object(message, what).get("role")
            if role not in ROLES:
                raise InvalidError(f"{what}: unknown role {role!r}: use one of {', '.join(ROLES)}")
            c.role = ROLES.index(role)
            c.text = _string(message.get("content"), f"{what}.content")
            c.reasoning = _string(message.get("reasoning_content"), f"{what}.reasoning_content")
            c.call_id = _string(message.get("tool_call_id"), f"{what}.tool_call_id")
            c.calls, c.n_calls = self._calls(message, f"{what}.tool_calls")
        options.messages, options.n_messages = out, len(messages)

    def _set_tools(self, options: Any, tools: Sequence[Mapping[str, Any]], choice: ToolChoice) -> None:
        out = (_abi.rp_tool * len(tools))()
        self._kept.append(out)
        for i, (c, tool) in enumerate(zip(out, tools, strict=True)):
            function = _object(_object(tool, f"tools[{i}]").get("function", tool), f"tools[{i}].function")
            c.name = _string(function.get("name"), f"tools[{i}].name")
            c.description = _string(function.get("description"), f"tools[{i}].description")
            c.parameters = _json(function.get("parameters"))
            c.strict = bool(function.get("strict", False))
        options.tools, options.n_tools = out, len(tools)
        if isinstance(choice, str):
            if choice not in _CHOICES:
                raise InvalidError(f"tool_choice={choice!r}: use one of {', '.join(_CHOICES)}, or a function")
            options.tool_choice = _CHOICES[choice]
            return
        options.tool_choice = _abi.RP_TOOL_CHOICE_REQUIRED
        function = _object(_object(choice, "tool_choice").get("function"), "tool_choice.function")
        options.tool_name = _string(function.get("name"), "tool_choice.function.name")

    def _set_format(self, options: Any, response_format: Mapping[str, Any] | None) -> None:
        if response_format is None:
            return
        kind = _object(response_format, "response_format").get("type")
        if kind == "json_object":
            options.json_object = True
        elif kind == "json_schema":
            outer = _object(response_format.get("json_schema"), "response_format.json_schema")
            options.json_schema = _json(outer.get("schema", outer))
        elif kind == "regex":
            options.regex = _string(response_format.get("regex"), "response_format.regex")
        elif kind != "text":
            raise InvalidError(f"response_format of type {kind!r}: use text, json_object, json_schema or regex")

    def warnings(self) -> tuple[str, ...]:
        lines: list[str] = []
        with self.handle as pointer:
            while (line := lib.rp_chat_warning(pointer, len(lines))) is not None:
                lines.append(text(line))
        return tuple(lines)

    def answer(self, result: Result) -> ChatAnswer:
        """The parts of the answer."""
        data = result.text.encode("utf-8", "surrogatepass")
        out = ctypes.POINTER(_abi.rp_chat_answer)()
        warnings = self.warnings()
        with self.handle as pointer:
            call(lib.rp_chat_parse, pointer, data, len(data), ctypes.byref(out))
        return _taken(out, warnings, result)


def _taken(out: Any, warnings: tuple[str, ...], result: Result) -> ChatAnswer:
    """The answer of an rp_chat_answer, which is freed."""
    try:
        c = out.contents
        calls = tuple(
            ToolCall(text(one.id), text(one.name), text(one.arguments), one.is_whole) for one in c.calls[: c.n_calls]
        )
        return ChatAnswer(text(c.text), text(c.reasoning), calls, warnings, result)
    finally:
        lib.rp_chat_answer_free(out)


PieceKind: TypeAlias = Literal["text", "reasoning", "call", "arguments", "call_end"]
_KINDS: dict[int, PieceKind] = {
    _abi.RP_CHAT_TEXT: "text",
    _abi.RP_CHAT_REASONING: "reasoning",
    _abi.RP_CHAT_CALL: "call",
    _abi.RP_CHAT_ARGUMENTS: "arguments",
    _abi.RP_CHAT_CALL_END: "call_end",
}


@dataclass(frozen=True, slots=True)
class ChatPiece:
    """A piece of an answer that is generated.

    kind  "text" and "reasoning": `text` is more of it; "call": a call begins; "arguments": `text` is more of its arguments; "call_end": it is
          complete, or cut off (`call.is_whole`)
    call  of the last three kinds, else None: its arguments are those so far
    """

    kind: PieceKind
    text: str
    call: ToolCall | None


class _Pieces(collections.deque[ChatPiece]):
    """The pieces that a reader has reported: its callback, on the thread that feeds it."""

    def __init__(self) -> None:
        super().__init__()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")  # bytes of an event may end within a character

    def on_event(self, _user: object, event: int, c: Any, data: Any, n: int) -> bool:
        kind = _KINDS[event]
        one = None
        if c:
            one = ToolCall(text(c.contents.id), text(c.contents.name), text(c.contents.arguments), c.contents.is_whole)
        piece = self._decoder.decode(data[:n]) if n else ""
        if piece or not n:
            self.append(ChatPiece(kind, piece, one))
        return True


class ChatStream:
    """An answer as it is generated: an iterator of ChatPiece. Otherwise as Stream.

    with engine.chat_stream(messages, tools=tools) as answer:
        for piece in answer:
            if piece.kind == "text":
                print(piece.text, end="", flush=True)
    messages.append(answer.answer.message())
    """

    def __init__(self, turn: Turn, submit: Callable[[EventQueue], Job]) -> None:
        self._pieces = _Pieces()
        self._answer: ChatAnswer | None = None
        self._warnings = turn.warnings()
        callback = _abi.rp_on_chat_event(self._pieces.on_event)
        self._reader = Handle("reader", kept=callback, has_threads=False)
        with turn.handle as pointer:
            call(lib.rp_chat_reader_new, ctypes.byref(self._reader.cell), pointer, callback, None)
        try:
            self._stream = Stream(submit)
        except BaseException:
            self._reader.close(lib.rp_chat_reader_free)
            raise

    def __iter__(self) -> Iterator[ChatPiece]:
        return self

    def __next__(self) -> ChatPiece:
        while not self._pieces:
            if self._answer is not None:
                raise StopIteration
            try:
                data = next(self._stream).encode("utf-8", "surrogatepass")
            except StopIteration:
                self._end()
                continue
            with self._reader as pointer:
                call(lib.rp_chat_reader_feed, pointer, data, len(data))
        return self._pieces.popleft()

    def _end(self) -> None:
        result = self._stream.result  # InvalidError: the stream was closed before its end
        out = ctypes.POINTER(_abi.rp_chat_answer)()
        with self._reader as pointer:
            call(lib.rp_chat_reader_end, pointer, ctypes.byref(out))
        self._answer = _taken(out, self._warnings, result)
        self._reader.close(lib.rp_chat_reader_free)

    @property
    def answer(self) -> ChatAnswer:
        """All parts of the answer, after the last piece. The request's error, if it failed; InvalidError: it has not ended."""
        if self._answer is None:
            self._stream.result  # the request's error, or that it has not ended
            raise InvalidError("the answer has not ended: read the stream to its end first")
        return self._answer

    def cancel(self) -> None:
        """Ends the answer before its next step: the stream ends after the text so far."""
        self._stream.cancel()

    def close(self) -> None:
        """Cancels the request, if it has not ended, and frees it. The stream ends."""
        self._stream.close()
        self._reader.close(lib.rp_chat_reader_free)

    def __enter__(self) -> ChatStream:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_stream") and not self._reader.is_freed:
            finalize(self.close)
