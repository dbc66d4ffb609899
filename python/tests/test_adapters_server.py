# SPDX-License-Identifier: Apache-2.0
"""from_messages makes of messages what the server does with modular reuse, part by part; templates, bounds and errors of adapters."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from test_client import Server

from reprise import Client, Engine, Prompt, errors, from_documents, from_messages
from reprise.prompt import Document, Message, Part, Text

A = "The river Velbrook runs through Osthaven, and the market of Osthaven is held every Friday. " * 2
B = "Zantec is a young company. Zantec makes a camera. Zantec has its office in Belvik, in the south. " * 2
C = "The bridge of Yarina was built by masons from the north, and it has seven arches of grey stone. " * 2


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.stop()


def texts(*parts: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": part} for part in parts]


CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "documents": [{"role": "user", "content": texts(A, B, "What is in Osthaven?")}],
    "system": [{"role": "system", "content": texts(A)}, {"role": "user", "content": "What?"}],
    "system text": [{"role": "system", "content": A}, {"role": "user", "content": texts(B, "What?")}],
    "one part": [{"role": "user", "content": texts(A)}],
    "twice": [{"role": "user", "content": texts(A, B, A, "What?")}],
    "short": [{"role": "user", "content": texts(A, "Short.", "", "What?", "")}],
    "turns": [
        {"role": "developer", "content": texts(A, B)},
        {"role": "user", "content": texts(C, "Which bridge?")},
        {"role": "assistant", "content": texts("Yarina's.", B)},
        {"role": "user", "content": "And the river?"},
    ],
    "document": [
        {
            "role": "user",
            "content": [
                {"type": "document", "source": {"type": "text", "data": A}, "title": "Osthaven", "context": "A market"},
                *texts("What?"),
                {"type": "document", "source": {"type": "text", "data": B}},
            ],
        }
    ],
}


N_DOCUMENTS = {
    "documents": 2,
    "system": 1,
    "system text": 1,
    "one part": 0,
    "twice": 2,
    "short": 1,
    "turns": 3,
    "document": 2,
}


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_documents_are_those_of_the_server(server: Server, engine: Engine, name: str) -> None:
    messages = CONVERSATIONS[name]
    prompt = from_messages(messages, count_tokens=lambda text: len(engine.model.tokenize(text)))
    with Client(server.url) as client:
        expected = client.run(messages, max_tokens=8, reuse="modular")
        answer = client.run(prompt, max_tokens=8)
    assert answer.text == expected.text

    def plan(parts: Any) -> list[tuple[str, int, int]]:
        named = [(p.module if p.module.startswith("d") else "", p.n_tokens, p.position) for p in parts]
        return [part for part in named if part[0]]

    assert plan(answer.plan) == plan(expected.plan) and len(plan(answer.plan)) == N_DOCUMENTS[name]
    assert answer.usage.prompt_tokens == expected.usage.prompt_tokens


def inside(prompt: Prompt, i: int = 0) -> tuple[Part, ...]:
    message = prompt.parts[i]
    assert isinstance(message, Message)
    return message.parts


def test_templates() -> None:
    documents: list[Any] = [
        SimpleNamespace(page_content=A, metadata={"source": "a.txt"}),
        SimpleNamespace(node=SimpleNamespace(text=B, metadata={"source": "b.txt"}), score=0.5),
        {"text": "{not} a {format}: " + C, "metadata": {"source": "{text}"}},
    ]
    prompt = from_documents(documents, "What?", template="[{source}] {text}", separator="")
    assert inside(prompt) == (
        Document(f"[a.txt] {A}"),
        Document(f"[b.txt] {B}"),
        Document("[{text}] {not} a {format}: " + C),
        Text("What?"),
    )
    upper = from_documents([A], "What?", template=str.upper)
    assert inside(upper)[0] == Document(A.upper() + "\n\n")
    with pytest.raises(
        errors.InvalidError, match="document 1, template '{title}': KeyError: 'title': its names are source, text"
    ):
        from_documents(documents, "?", template="{title}")
    with pytest.raises(errors.InvalidError, match="template"):
        from_documents(documents, "?", template="{text")
    with pytest.raises(errors.InvalidError, match="must return str"):
        from_documents(documents, "?", template=lambda document: 5)  # type: ignore[arg-type, return-value]


def test_bounds(engine: Engine) -> None:
    assert inside(from_documents(["a", "b"], "?")) == (Text("a\n\n"), Text("b\n\n"), Text("?"))
    assert inside(from_documents(["a", ""], "?", min_document_tokens=0)) == (
        Document("a\n\n"),
        Document("\n\n"),
        Text("?"),
    )
    many = from_documents([f"{A} {i}" for i in range(1100)], "?")
    assert [isinstance(part, Document) for part in inside(many)] == [True] * 1024 + [False] * 77
    twice = from_documents([A, B, A], "What?")  # the second A is text
    assert engine.run(twice, max_tokens=1).usage.prompt_tokens > 0
    again = engine.run(from_documents([B, A], "What?"), max_tokens=1)
    assert again.usage.cached_tokens > 0.7 * again.usage.prompt_tokens


@pytest.mark.parametrize(
    "messages, words",
    [
        ([{"role": "assistant", "tool_calls": [{"id": "1"}]}], "message 1: tool calls"),
        ([{"role": "user", "content": {"text": "x"}}], "message 1: its content is dict"),
        ([{"role": "user", "content": 5}], "message 1: its content is int"),
        ([{"role": ["user"], "content": "x"}], "message 1: unknown role"),
        (["hello"], "message 1: unknown role None"),
        ([{"role": "user", "content": [{"type": "document", "source": {"type": "url"}}]}], "part 1: a document whose"),
    ],
)
def test_errors_name_the_message(messages: list[Any], words: str) -> None:
    with pytest.raises(errors.InvalidError, match=words):
        from_messages(messages)


def test_one_document_is_no_list() -> None:
    with pytest.raises(errors.InvalidError, match="documents is one str: give a list"):
        from_documents(A, "What?")
