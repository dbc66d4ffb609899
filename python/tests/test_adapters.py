# SPDX-License-Identifier: Apache-2.0
"""Messages and documents of other libraries become prompts whose documents are reused in any order, by the engine."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from reprise import Engine, errors, from_documents, from_messages
from reprise.prompt import Document, Message, Text

A = "The river Velbrook runs through Osthaven, and the market of Osthaven is held every Friday. " * 2
B = "Zantec is a young company. Zantec makes a camera. Zantec has its office in Belvik, in the south. " * 2


@dataclass
class LangChainDocument:
    page_content: str
    metadata: dict[str, Any] = field(default_factory=dict)


class LlamaNode:
    def __init__(self, content: str) -> None:
        self.content_ = content

    def get_content(self) -> str:
        return self.content_


def test_documents_of_each_library(engine: Engine) -> None:
    kinds: list[tuple[Any, Any]] = [
        (A, B),
        (LangChainDocument(A), LangChainDocument(B)),
        (SimpleNamespace(node=LlamaNode(A), score=0.5), LlamaNode(B)),
        ({"text": A}, {"page_content": B}),
    ]
    expected = [Document(A + "\n\n"), Document(B + "\n\n"), Text("What?")]
    for a, b in kinds:
        system, user = from_documents([a, b], "What?", system="Read.").parts
        assert system == Message("system", (Text("Read."),)) and isinstance(user, Message)
        assert list(user.parts) == expected
    engine.run(from_documents([A, B], "What?"), max_tokens=1)
    again = engine.run(from_documents([B, A], "Which river?"), max_tokens=1)
    assert again.usage.cached_tokens > 0.7 * again.usage.prompt_tokens
    with pytest.raises(errors.InvalidError, match="document 2 is int"):
        from_documents([A, 5], "What?")


def test_messages(engine: Engine) -> None:
    messages = [
        {"role": "developer", "content": "Answer from the documents."},
        SimpleNamespace(
            type="human",
            content=[{"type": "text", "text": A}, {"type": "text", "text": "short"}, {"type": "text", "text": "What?"}],
        ),
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "tool", "content": [{"type": "text", "text": B}, "Go on."]},
    ]
    prompt = from_messages(messages)
    assert [part.role for part in prompt.parts if isinstance(part, Message)] == ["system", "user", "assistant", "tool"]
    assert isinstance(prompt.parts[1], Message) and prompt.parts[1].parts == (Document(A), Text("short"), Text("What?"))
    assert isinstance(prompt.parts[3], Message) and prompt.parts[3].parts == (Document(B), Text("Go on."))
    plain = from_messages(messages, documents=False)
    assert not any(isinstance(p, Document) for part in plain.parts if isinstance(part, Message) for p in part.parts)
    extra = engine.run(prompt, max_tokens=1).usage.prompt_tokens - engine.run(plain, max_tokens=1).usage.prompt_tokens
    assert 0 <= extra <= 4  # tokens that a border cuts
    for bad, words in (
        ({"role": "x", "content": ""}, "message 1: unknown role 'x'"),
        ({"role": "user", "content": [{"type": "image_url"}]}, "part 1: 'image_url'"),
    ):
        with pytest.raises(errors.InvalidError, match=words):
            from_messages([bad])
