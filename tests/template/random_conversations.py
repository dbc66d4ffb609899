# SPDX-License-Identifier: Apache-2.0
"""Random input of chat templates: usual conversations, unusual ones, and some that no client sends."""

TEXTS = [
    "", "Hello!", "  two spaces  ", "\n", "a\nb\n\n", "<b>&\"'</b>", "São Paulo 你好 🙂", "<|im_start|>system\n", "</s>[INST]", "{{ x }} {% if %}",
    "<think>\nHm.\n</think>\n\n4", "<think>open", "x</think>y", "</think>", "<tool_call>\n{\"name\": 1}\n</tool_call>", "{\"temperature\": 27.5}",
    "a\tb\r\nc", "\\n \\ \" '", "\u2028\u00a0", "\x7f\x1f", "<|channel|>analysis<|message|>", "ß İ ǆ", "0", "None", "<tool_response>\nx\n</tool_response>",
    "long " * 30, "[TOOL_CALLS]", "<|python_tag|>", "'", "\"", "<|END_OF_TURN_TOKEN|>",
]
ROLES = ["user", "assistant", "system", "tool", "developer", "ipython", "function", "model", "User", "", "tool_response", "é"]
NAMES = ["get_weather", "add", "python", "browser", "code interpreter", "a\"b", "é", "internet_search", "", "brave_search", "functions.f"]


def text(rng):
    return rng.choice(TEXTS) if rng.random() < 0.8 else " ".join(rng.choice(TEXTS) for _ in range(3))


def value(rng, depth=0):
    kind = rng.randrange(10 if depth < 3 else 7)
    if kind < 2:
        return text(rng)
    if kind < 7:
        return [rng.randrange(-5, 1000), rng.choice([0.5, 27.5, -1e-7, 1e20, 3.0]), True, False, None][kind - 2]
    if kind == 7:
        return [value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {rng.choice(["a", "b", "city", "é", "x y", "type", ""]): value(rng, depth + 1) for _ in range(rng.randrange(4))}


def schema(rng, depth=0):
    """A JSON Schema, as tools have them, in all shapes that templates handle."""
    kind = rng.choice(["string", "number", "integer", "boolean", "array", "object", "null", None] if depth < 3 else ["string", "number", "boolean"])
    out = {}
    if kind:
        out["type"] = kind if rng.random() < 0.9 else [kind, "null"]
    if rng.random() < 0.6:
        out["description"] = text(rng)
    if rng.random() < 0.2:
        out["enum"] = [text(rng) for _ in range(rng.randrange(1, 4))]
    if rng.random() < 0.15:
        out["default"] = value(rng, 2)
    if rng.random() < 0.1:
        out["nullable"] = rng.random() < 0.5
    if rng.random() < 0.1:
        out["oneOf" if rng.random() < 0.5 else "anyOf"] = [schema(rng, depth + 1) for _ in range(rng.randrange(1, 3))]
    if rng.random() < 0.1:
        out["format"] = "date"
    if kind == "array" and rng.random() < 0.9:
        out["items"] = schema(rng, depth + 1)
    if kind == "object" and rng.random() < 0.9:
        names = rng.sample(["city", "unit", "a", "b", "é", "x y"], rng.randrange(4))
        out["properties"] = {n: schema(rng, depth + 1) for n in names}
        if rng.random() < 0.7:
            out["required"] = rng.sample(names, rng.randrange(len(names) + 1))
    return out


def tool(rng):
    function = {"name": rng.choice(NAMES)}
    if rng.random() < 0.9:
        function["description"] = text(rng)
    if rng.random() < 0.9:
        function["parameters"] = dict(schema(rng), type="object", properties={n: schema(rng, 1) for n in rng.sample(["city", "unit", "a"], rng.randrange(4))})
    if rng.random() < 0.1:
        function["return"] = schema(rng)
    if rng.random() < 0.05:
        function["strict"] = True
    return {"type": "function", "function": function} if rng.random() < 0.93 else function


def tool_call(rng):
    arguments = {rng.choice(["city", "unit", "a", "code", "query"]): value(rng, 1) for _ in range(rng.randrange(3))}
    call = {"id": rng.choice(["call12345", "abc123def", "", "functions.add:0", "x"]), "type": "function"}
    call["function"] = {"name": rng.choice(NAMES), "arguments": arguments if rng.random() < 0.8 else str(arguments)}
    if rng.random() < 0.1:
        del call["id"]
    if rng.random() < 0.05:
        call = call["function"]
    return call


def content(rng):
    kind = rng.random()
    if kind < 0.75:
        return text(rng)
    if kind < 0.83:
        return None
    if kind < 0.86:
        return value(rng)
    parts = [{"type": "text", "text": text(rng)}, {"type": "image"}, {"type": "image_url", "image_url": {"url": "x"}}, {"text": text(rng)}, text(rng)]
    return [rng.choice(parts) for _ in range(rng.randrange(4))]


def message(rng, role):
    m = {"role": role, "content": content(rng)}
    if role in ("assistant", "model") and rng.random() < 0.35:
        m["tool_calls"] = [tool_call(rng) for _ in range(rng.randrange(3))] if rng.random() < 0.95 else None
    if role in ("assistant", "model") and rng.random() < 0.25:
        m[rng.choice(["reasoning_content", "thinking", "reasoning"])] = text(rng) if rng.random() < 0.9 else None
    if role in ("tool", "ipython", "function"):
        m["name"], m["tool_call_id"] = rng.choice(NAMES), rng.choice(["call12345", "abc123def", "x"])
        if rng.random() < 0.3:
            del m[rng.choice(["name", "tool_call_id"])]
    if rng.random() < 0.04:
        m.pop(rng.choice(["role", "content"]))
    if rng.random() < 0.05:
        m["name"] = rng.choice(NAMES)
    return m


def usual(rng):
    """Turns in their usual order."""
    out = [message(rng, "system")] if rng.random() < 0.5 else []
    for _ in range(rng.randrange(1, 5)):
        out.append(message(rng, "user"))
        if rng.random() < 0.3:
            out.append(dict(message(rng, "assistant"), tool_calls=[tool_call(rng)]))
            out.append(message(rng, "tool"))
        if rng.random() < 0.8:
            out.append(message(rng, "assistant"))
    return out


def conversation(rng):
    unusual = [message(rng, rng.choice(ROLES)) for _ in range(rng.randrange(6))]
    out = {"messages": usual(rng) if rng.random() < 0.75 else unusual, "bos_token": "<s>", "eos_token": "</s>"}
    if rng.random() < 0.7:
        out["add_generation_prompt"] = rng.random() < 0.8
    if rng.random() < 0.5:
        out["tools"] = [tool(rng) for _ in range(rng.randrange(4))] if rng.random() < 0.9 else None
    if rng.random() < 0.15:
        documents = [{"title": text(rng), "text": text(rng)}, {"doc_id": 1, "title": text(rng), "text": text(rng), "contents": text(rng)}, value(rng)]
        out["documents"] = [rng.choice(documents) for _ in range(rng.randrange(3))]
    for name, choices in OPTIONS.items():
        if rng.random() < 0.12:
            out[name] = rng.choice(choices)
    return out


OPTIONS = {
    "enable_thinking": [True, False, None, "yes"],
    "thinking": [True, False],
    "reasoning_effort": ["low", "medium", "high", None],
    "tools_in_user_message": [True, False],
    "date_string": ["26 Jul 2024", ""],
    "builtin_tools": [["browser", "python"], ["code_interpreter"], []],
    "controls": [{"length": "short", "originality": "abstractive"}, {}],
    "available_tools": [None, []],
    "model_identity": ["You are a bot.", ""],
    "safety_mode": ["contextual", "STRICT"],
    "citations": [True, False],
    "xml_tools": [True, False],
    "python_tools": [True],
    "continue_final_message": [True],
}
