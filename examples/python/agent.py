#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An agent of several turns with two tools. What a tool returned stays in the prompt as a module; the conversation after it is cached as a
prefix. A real model writes its tool calls itself; for the bundled one, which knows a few hundred words, "Not stated" is the call for `search`.

    examples/python/agent.py [MODEL]
"""
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from reprise import Engine, Prompt, library, program, system, text, use

HERE = Path(__file__).resolve().parent
results = library("results")  # of tools


@program
def agent(seen: Sequence[str]):
    with system():
        text("You answer from the documents. Read the documents.")
        for result in use(results, seen):
            text(f" {result.text}")


def search(name: str) -> str | None:
    """Tool: the document about a name."""
    path = HERE / "documents" / f"{name.lower()}.txt"
    return path.read_text(encoding="utf-8").strip() if path.exists() else None


def names(message: str) -> list[str]:
    """Tool: the names in a message."""
    return re.findall(r"\b[A-Z][a-z]+\b", message)


class Conversation:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.seen: list[str] = []  # results of tools, in the order in which the agent read them
        self.turns: list[tuple[str, str]] = []

    def prompt(self, question: str) -> Prompt:
        prompt = agent(self.seen)
        for asked, answered in self.turns:
            with prompt.user():
                prompt.text(asked)
            with prompt.assistant():
                prompt.text(answered)
        with prompt.user():
            prompt.text(question)
        return prompt

    def ask(self, question: str) -> str:
        to_read = names(question)
        while True:
            result = self.engine.run(self.prompt(question), max_tokens=40)
            print(
                f"  {result.text.strip()}   [{result.usage.cached_tokens} of {result.usage.prompt_tokens} tokens cached]"
            )
            found = next((n for n in to_read + names(result.text) if n not in self.seen and search(n)), None)
            if found is None:
                self.turns.append((question, result.text))
                return result.text
            print(f"  search({found!r})")
            if found not in results:
                results.add(found, search(found) or "")
            self.seen.append(found)


def main() -> None:
    model = sys.argv[1] if len(sys.argv) > 1 else HERE.parent.parent / "models" / "reprise-mini.gguf"
    with Engine(model) as engine:
        conversation = Conversation(engine)
        for question in (
            "Where does Danemar live?",
            "What is Belvik known for?",
            "Tell me the mayor of the town where Danemar lives.",
        ):
            print(question)
            conversation.ask(question)


if __name__ == "__main__":
    main()
