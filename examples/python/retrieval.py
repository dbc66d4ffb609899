#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Retrieval over a folder of documents: each is prefilled once, and prompts import them in any order.

    examples/python/retrieval.py [MODEL [FOLDER]]
"""
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from reprise import Engine, library, program, system, text, use, user

HERE = Path(__file__).resolve().parent
documents = library("documents")


@program
def answer(found: Sequence[str], question: str):
    with system():
        text("You answer from the documents. Read the documents.")
        for document in use(documents, found):
            text(f" {document.text}")
    with user():
        text(question)


def retrieve(question: str, n: int = 2) -> list[str]:
    """The ids of the n documents that share most words with the question, best first: a retriever in five lines."""
    words = set(re.findall(r"\w+", question.lower()))
    score = {d.id: len(words & set(re.findall(r"\w+", d.text.lower()))) for d in documents}
    return sorted(score, key=lambda id: (-score[id], id))[:n]


def main() -> None:
    model = sys.argv[1] if len(sys.argv) > 1 else HERE.parent.parent / "models" / "reprise-mini.gguf"
    for path in sorted(Path(sys.argv[2] if len(sys.argv) > 2 else HERE / "documents").glob("*.txt")):
        documents.add(path.stem, path.read_text(encoding="utf-8").strip())
    with Engine(model) as engine:
        for question in (
            "What is Belvik known for?",
            "What does Zantec make?",
            "Tell me the mayor of Belvik.",
            "Who commands the Wolqueen?",
            "What is Belvik known for?",
        ):
            found = retrieve(question)
            result = engine.run(answer(found, question), max_tokens=40)
            cached = result.usage.cached_tokens
            print(
                f"{question} {result.text.strip()}   [{' '.join(found)}: {cached} of {result.usage.prompt_tokens} tokens cached]"
            )


if __name__ == "__main__":
    main()
