# SPDX-License-Identifier: Apache-2.0
"""Conversations and documents of other libraries as prompts with modular reuse. Duck typed: nothing is imported for it.

    from_messages    OpenAI-style messages; text parts before the last one of a message are documents
    from_documents   documents of LangChain, LlamaIndex or plain text, and a question

A document is prefilled once, without the text before it, and its KV is reused in every prompt that has the same document, in any order. A
second equal document of one prompt is plain text, as in the C API.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ._abi import RP_MAX_DOCUMENTS
from .errors import InvalidError
from .prompt import ROLES, Prompt

MIN_DOCUMENT_TOKENS = 32  # as the server's: KV of shorter ones is computed faster than it is found
_BYTES_PER_TOKEN = 4  # estimate for English text, without count_tokens
_ROLES_OF_OTHERS = {"developer": "system", "human": "user", "ai": "assistant", "model": "assistant", "function": "tool"}


def from_messages(
    messages: Iterable[Any],
    *,
    documents: bool = True,
    min_document_tokens: int = MIN_DOCUMENT_TOKENS,
    count_tokens: Callable[[str], int] | None = None,
) -> Prompt:
    """OpenAI-style messages, or LangChain's, as a prompt. Documents are what the server takes for them with `"reuse": "modular"`.

        prompt = from_messages([
            {"role": "system", "content": "You answer from the documents."},
            {"role": "user", "content": [
                {"type": "text", "text": report},
                {"type": "text", "text": minutes},
                {"type": "text", "text": "Who was absent?"}]}])
        engine.run(prompt)

    messages             mappings with "role" and "content", or objects with `role` or `type`, and `content`: a string, or a list of
                         parts: text, or Anthropic's type "document". Of a user's or tool's list the last text is the question, and the
                         other parts are documents; of a system message's list all are
    documents            False: every part is text
    min_document_tokens  documents of fewer tokens are text
    count_tokens         of a text, `lambda text: len(model.tokenize(text))`; None: one token for each 4 bytes
    """
    prompt = Prompt()
    add = _Adder(prompt, min_document_tokens if documents else None, count_tokens)
    for i, message in enumerate(messages):
        role, content = _role(message, i), _get(message, "content")
        if _get(message, "tool_calls") or _get(message, "function_call"):
            raise InvalidError(
                f"message {i + 1}: tool calls cannot be in a Prompt: send the messages themselves, `client.run(messages)`, "
                "or write the call as text"
            )
        parts = [part for part in _parts(content, i) if part[0]]
        with prompt.role(role):
            for k, (text, is_document) in enumerate(parts):
                before_question = role == "system" or k + 1 < len(parts)
                listed = not isinstance(content, str) and role != "assistant"
                add(text, listed and (is_document or before_question))
    return prompt


def from_documents(
    documents: Iterable[Any],
    question: str,
    *,
    system: str | None = None,
    template: str | Callable[[Any], str] | None = None,
    separator: str = "\n\n",
    min_document_tokens: int = MIN_DOCUMENT_TOKENS,
    count_tokens: Callable[[str], int] | None = None,
) -> Prompt:
    """Documents in the order of a retriever, and a question.

        from_documents(retriever.invoke(question), question, system="You answer from the documents.")          # LangChain
        from_documents(index.as_retriever().retrieve(question), question, template="{title}\\n{text}")           # LlamaIndex

    documents  str; LangChain's Document (page_content); LlamaIndex's Document, Node or NodeWithScore (get_content(), text, node); mappings
               with "page_content", "text" or "content"
    system     text of a system message before them; None: none
    template   of the text of each document: a format string with {text} and the names of the document's metadata, or a function of the
               document. Its result must not depend on the question, the rank or the score: another text has no KV yet
    separator  after each document, as part of it: the same document has the same KV wherever it is
    min_document_tokens, count_tokens  as of from_messages
    """
    if isinstance(documents, (str, bytes, Mapping)):
        raise InvalidError(f"documents is one {type(documents).__name__}: give a list of documents")
    prompt = Prompt()
    add = _Adder(prompt, min_document_tokens, count_tokens)
    if system is not None:
        with prompt.system():
            prompt.text(system)
    with prompt.user():
        for i, document in enumerate(documents):
            add(_formatted(document, i, template) + separator, True)
        prompt.text(question)
    return prompt


def text_of(document: Any, i: int = 0) -> str:
    """The text of a document of one of these libraries. i: its number, for errors."""
    if isinstance(document, str):
        return document
    for holder in (document, _get(document, "node")):
        for name in ("page_content", "text", "content"):
            value = _get(holder, name)
            if isinstance(value, str):
                return value
        value = getattr(holder, "get_content", None)
        if callable(value):
            return str(value())
    raise InvalidError(
        f"document {i + 1} is {type(document).__name__} without text: it needs page_content, text, content or get_content()"
    )


def _formatted(document: Any, i: int, template: str | Callable[[Any], str] | None) -> str:
    if template is None:
        return text_of(document, i)
    if not isinstance(template, str):
        text = template(document)
        if not isinstance(text, str):
            raise InvalidError(f"document {i + 1}: template() gave {type(text).__name__}: it must return str")
        return text
    metadata: Any = None
    for holder in (document, _get(document, "node")):
        metadata = metadata or _get(holder, "metadata")
    values = {**(metadata if isinstance(metadata, Mapping) else {}), "text": text_of(document, i)}
    try:
        return template.format_map(values)
    except (LookupError, ValueError, AttributeError, TypeError) as e:
        raise InvalidError(
            f"document {i + 1}, template {template!r:.60}: {type(e).__name__}: {e}: its names are {', '.join(map(str, values))}"
        ) from None


class _Adder:
    """Adds parts to a prompt: documents that are long enough, and text. min_tokens: None: no documents."""

    def __init__(self, prompt: Prompt, min_tokens: int | None, count: Callable[[str], int] | None) -> None:
        self._prompt, self._min_tokens, self._count = prompt, min_tokens, count
        self._n_documents = 0

    def __call__(self, text: str, may_be_document: bool) -> None:
        if may_be_document and self._n_documents < RP_MAX_DOCUMENTS and self._is_long(text):
            self._prompt.document(text)
            self._n_documents += 1
        elif text:
            self._prompt.text(text)

    def _is_long(self, text: str) -> bool:
        if self._min_tokens is None or not text:
            return False
        n = self._count(text) if self._count else len(text.encode("utf-8", "surrogatepass")) // _BYTES_PER_TOKEN
        return n >= self._min_tokens


def _get(holder: Any, name: str) -> Any:
    return holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)


def _role(message: Any, i: int) -> Any:
    role = _get(message, "role") or _get(message, "type")
    role = _ROLES_OF_OTHERS.get(role, role) if isinstance(role, str) else role
    if role not in ROLES:
        raise InvalidError(f"message {i + 1}: unknown role {role!r}: use one of {', '.join(ROLES)}")
    return role


def _parts(content: Any, i: int) -> list[tuple[str, bool]]:
    """Texts, and whether each is marked as a document."""
    if content is None:
        return []
    if isinstance(content, str):
        return [(content, False)]
    if not isinstance(content, Iterable) or isinstance(content, (bytes, Mapping)):
        raise InvalidError(
            f"message {i + 1}: its content is {type(content).__name__}: it must be text, or a list of parts with text"
        )
    return [_part(part, f"message {i + 1}, part {k + 1}") for k, part in enumerate(content)]


def _part(part: Any, where: str) -> tuple[str, bool]:
    kind = _get(part, "type") or type(part).__name__
    if kind == "document" and not isinstance(part, str):  # Anthropic's: title, context, source
        source = _get(part, "source")
        data = _get(source, "data")
        if _get(source, "type") != "text" or not isinstance(data, str):
            raise InvalidError(f"{where}: a document whose source is not text: give its text")
        heads = [head for head in (_get(part, "title"), _get(part, "context")) if isinstance(head, str)]
        return "".join(f"{head}\n" for head in heads) + data + "\n\n", True
    text = part if isinstance(part, str) else _get(part, "text")
    if not isinstance(text, str):
        raise InvalidError(f"{where}: {kind!r} is not supported: parts must have text")
    return text, False
