# SPDX-License-Identifier: Apache-2.0
"""Conversations with tools, reasoning and forms of answers: one turn each (reprise_chat.h). Engine.chat runs them."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from . import _abi
from ._library import call, encoded, lib, text
from .errors import InvalidError
from .handle import Handle
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

    def answer(self, result: Result) -> ChatAnswer:
        """The parts of the answer."""
        data = result.text.encode("utf-8", "surrogatepass")
        out = ctypes.POINTER(_abi.rp_chat_answer)()
        with self.handle as pointer:
            call(lib.rp_chat_parse, pointer, data, len(data), ctypes.byref(out))
            try:
                c = out.contents
                calls = tuple(
                    ToolCall(text(one.id), text(one.name), text(one.arguments), one.is_whole)
                    for one in c.calls[: c.n_calls]
                )
                warnings: list[str] = []
                while (line := lib.rp_chat_warning(pointer, len(warnings))) is not None:
                    warnings.append(text(line))
                return ChatAnswer(text(c.text), text(c.reasoning), calls, tuple(warnings), result)
            finally:
                lib.rp_chat_answer_free(out)
