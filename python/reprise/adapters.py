# SPDX-License-Identifier: Apache-2.0
"""Conversations and documents of other libraries as prompts with modular reuse. Duck typed: nothing is imported for it.

    from_messages    OpenAI-style messages; text parts before the last one of a message are documents
    from_documents   documents of LangChain, LlamaIndex or plain text, and a question
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .errors import InvalidError
from .prompt import ROLES, Prompt

MIN_DOCUMENT_CHARACTERS = 120  # shorter ones are text: their prefill costs no more than a module's bookkeeping
_ROLES_OF_OTHERS = {"developer": "system", "human": "user", "ai": "assistant", "model": "assistant", "function": "tool"}


def from_messages(messages: Iterable[Any], *, documents: bool = True) -> Prompt:
    """OpenAI-style messages, or LangChain's, as a prompt.

    messages   mappings with "role" and "content", or objects with `role` or `type`, and `content`: a string, or a list of text parts. Of
               several parts of a user's or tool's message the last is text (the question), and the others are documents; of a system message
               all are, as the server does with "reuse": "modular"
    documents  False: every part is text

    Each document is prefilled once, and its KV is reused in every prompt, in any order. It does not see the text before it.
    """
    prompt = Prompt()
    for i, message in enumerate(messages):
        role, parts = _role(message, i), _parts(_get(message, "content"), i)
        with prompt.role(role):
            n_documents = 0 if not documents or role == "assistant" else len(parts) - (role != "system")
            for k, part in enumerate(parts):
                _add(prompt, part, k < n_documents)
    return prompt


def from_documents(
    documents: Iterable[Any], question: str, *, system: str | None = None, separator: str = "\n\n"
) -> Prompt:
    """Documents in the order of a retriever, and a question.

    documents  str; LangChain's Document (page_content); LlamaIndex's Document, Node or NodeWithScore (get_content(), text, node); mappings
               with "page_content", "text" or "content"
    system     text of a system message before them; None: none
    separator  after each document, as part of it: the same document has the same KV wherever it is
    """
    prompt = Prompt()
    if system is not None:
        with prompt.system():
            prompt.text(system)
    with prompt.user():
        for i, document in enumerate(documents):
            _add(prompt, text_of(document, i) + separator, True)
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


def _add(prompt: Prompt, text: str, is_document: bool) -> None:
    if is_document and len(text) >= MIN_DOCUMENT_CHARACTERS:
        prompt.document(text)
    elif text:
        prompt.text(text)


def _get(holder: Any, name: str) -> Any:
    return holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)


def _role(message: Any, i: int) -> Any:
    role = _get(message, "role") or _get(message, "type")
    role = _ROLES_OF_OTHERS.get(role, role)
    if role not in ROLES:
        raise InvalidError(f"message {i + 1}: unknown role {role!r}: use one of {', '.join(ROLES)}")
    return role


def _parts(content: Any, i: int) -> list[str]:
    if content is None:
        return []
    if isinstance(content, str):
        return [content]
    if not isinstance(content, Iterable):
        raise InvalidError(
            f"message {i + 1}: its content is {type(content).__name__}: it must be text, or parts with text"
        )
    parts = []
    for k, part in enumerate(content):
        text = part if isinstance(part, str) else _get(part, "text")
        if not isinstance(text, str):
            kind = _get(part, "type") or type(part).__name__
            raise InvalidError(f"message {i + 1}, part {k + 1}: {kind!r} is not supported: parts must have text")
        parts.append(text)
    return parts
