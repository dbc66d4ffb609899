#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A tool call, its result, and an answer in a JSON Schema. The grammar makes both certain; the bundled model's choice of words is no good.

    examples/python/weather.py [MODEL]
"""
import json
import sys
from pathlib import Path
from typing import Any

from reprise import Engine

HERE = Path(__file__).resolve().parent
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"enum": ["Miami", "Rome"]}}, "required": ["city"]},
    },
}
SCHEMA = {"type": "object", "properties": {"sky": {"enum": ["sunny", "rainy"]}}, "required": ["sky"]}


def weather(city: str) -> str:
    """Tool: it is always sunny."""
    return f"{city}: sunny, 28 degrees"


def main() -> None:
    model = sys.argv[1] if len(sys.argv) > 1 else HERE.parent.parent / "models" / "reprise-mini.gguf"
    messages: list[dict[str, Any]] = [{"role": "user", "content": "What is the weather in Miami?"}]
    with Engine(model) as engine:
        answer = engine.chat(messages, tools=[TOOL], tool_choice="required", parallel_tool_calls=False)
        messages.append(answer.message())
        for call in answer.calls:
            print(f"call {call.name} {call.arguments}")
            messages.append({"role": "tool", "tool_call_id": call.id, "content": weather(**call.parsed())})
        form = {"type": "json_schema", "json_schema": {"name": "sky", "schema": SCHEMA}}
        last = engine.chat(messages, tools=[TOOL], tool_choice="none", response_format=form)
        print(f"sky: {json.loads(last.text)['sky']}")


if __name__ == "__main__":
    main()
