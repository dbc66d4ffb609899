# SPDX-License-Identifier: Apache-2.0
"""Engine.chat: tool calls, answers in a form, parts of answers, errors. The grammar makes them certain with any model."""

import json
from typing import Any

import pytest

import reprise

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Miami", "Rome"]}},
            "required": ["city"],
        },
        "strict": True,
    },
}


def test_a_tool_is_called_and_its_result_is_used(engine: reprise.Engine) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "What is the weather in Miami?"}]
    answer = engine.chat(messages, tools=[WEATHER], tool_choice="required", parallel_tool_calls=False)
    (call,) = answer.calls
    assert call.name == "weather" and call.is_whole and call.parsed()["city"] in ("Miami", "Rome")
    assert answer.text == "" and answer.result.finish_reason == "stop"
    messages += [answer.message(), {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
    schema = {"type": "object", "properties": {"sky": {"enum": ["sunny", "rainy"]}}, "required": ["sky"]}
    second = engine.chat(
        messages,
        tools=[WEATHER],
        tool_choice="none",
        response_format={"type": "json_schema", "json_schema": {"name": "sky", "schema": schema}},
    )
    assert json.loads(second.text)["sky"] in ("sunny", "rainy") and not second.calls
    assert second.message() == {"role": "assistant", "content": second.text}


def test_a_named_tool_and_a_regex(engine: reprise.Engine) -> None:
    question = [{"role": "user", "content": "Hello"}]
    choice = {"type": "function", "function": {"name": "now"}}
    answer = engine.chat(question, tools=[WEATHER, {"name": "now"}], tool_choice=choice, parallel_tool_calls=False)
    assert [one.name for one in answer.calls] == ["now"]
    assert engine.chat(question, response_format={"type": "regex", "regex": "[ab]{3}"}).text.strip("ab") == ""


def test_warnings(engine: reprise.Engine) -> None:
    loose = {"name": "f", "parameters": {"type": "object", "dependentSchemas": {}}}
    answer = engine.chat([{"role": "user", "content": "Hello"}], tools=[loose], max_tokens=1)
    assert "tools[0].parameters.dependentSchemas" in answer.warnings[0]


def test_an_answer_is_streamed(engine: reprise.Engine) -> None:
    messages = [{"role": "user", "content": "What is the weather in Miami?"}]
    options: dict[str, Any] = {"tools": [WEATHER], "tool_choice": "required", "parallel_tool_calls": False}
    whole = engine.chat(messages, **options)
    with engine.chat_stream(messages, **options) as stream:
        with pytest.raises(reprise.errors.InvalidError, match="has not ended"):
            stream.answer  # noqa: B018
        pieces = list(stream)
        answer = stream.answer
    assert (answer.text, answer.calls, answer.message()) == (whole.text, whole.calls, whole.message())
    kinds = [piece.kind for piece in pieces]
    assert kinds[0] == "call" and kinds[-1] == "call_end" and set(kinds[1:-1]) == {"arguments"}
    assert "".join(piece.text for piece in pieces) == whole.calls[0].arguments
    assert pieces[0].call is not None and pieces[0].call.name == "weather" and pieces[-1].call == whole.calls[0]
    assert list(stream) == []


def test_a_stream_of_text_is_left(engine: reprise.Engine) -> None:
    messages = [{"role": "user", "content": "Hello"}]
    whole = engine.chat(messages, max_tokens=20)
    with engine.chat_stream(messages, max_tokens=20) as stream:
        text = "".join(piece.text for piece in stream if piece.kind == "text")
    assert text == whole.text == stream.answer.text
    with engine.chat_stream(messages, max_tokens=1000, ignore_eos=True) as stream:
        next(stream)
    with pytest.raises(reprise.errors.InvalidError):
        stream.answer  # noqa: B018
    with pytest.raises(reprise.errors.LimitError):
        engine.chat_stream(messages, stop=["x" * 10000])


@pytest.mark.parametrize(
    ("options", "kind", "match"),
    [
        ({"tools": [{"name": "a b"}]}, reprise.errors.InvalidError, "a name has"),
        ({"tools": [1]}, reprise.errors.InvalidError, r"tools\[0\] is int"),
        ({"tool_choice": "maybe"}, reprise.errors.InvalidError, "tool_choice"),
        ({"tool_choice": "required"}, reprise.errors.InvalidError, "no tools"),
        ({"response_format": {"type": "xml"}}, reprise.errors.InvalidError, "'xml'"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"dependentSchemas": {}}}}},
            reprise.errors.UnsupportedError,
            "dependentSchemas",
        ),
    ],
)
def test_errors(engine: reprise.Engine, options: Any, kind: type[Exception], match: str) -> None:
    with pytest.raises(kind, match=match):
        engine.chat([{"role": "user", "content": "Hello"}], **options)


def test_messages_that_are_none(engine: reprise.Engine) -> None:
    with pytest.raises(reprise.errors.InvalidError, match="1 to"):
        engine.chat([])
    with pytest.raises(reprise.errors.InvalidError, match="unknown role"):
        engine.chat([{"role": "robot", "content": "Hello"}])
    with pytest.raises(reprise.errors.InvalidError, match="not str"):
        engine.chat([{"role": "user", "content": ["Hello"]}])
