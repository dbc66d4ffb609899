#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A travel guide: a template with parameters and a choice of cities. The function is the schema; a call is a prompt.

    examples/python/travel.py [MODEL]
"""
import sys
from pathlib import Path
from typing import Literal

from reprise import Arg, Engine, program, system, text, user

HERE = Path(__file__).resolve().parent
LISBON = (HERE.parent / "travel" / "lisbon.txt").read_text(encoding="utf-8").strip()
MIAMI = (HERE.parent / "travel" / "miami.txt").read_text(encoding="utf-8").strip()


@program
def plan(time: Arg[str, 4], town: Arg[str, 4], party: Arg[str, 6]):
    """A template: three values at places that are kept free for them."""
    text(f" Plan a trip of {time} to {town} for {party}.")


@program
def guide(city: Literal["lisbon", "miami"], time: Arg[str, 4], party: Arg[str, 6], question: str):
    with system():
        text("You are a concise travel guide. Read the documents.")
        plan(time, "Lisbon" if city == "lisbon" else "Miami", party)
        match city:
            case "lisbon":
                text(f" {LISBON}")
            case "miami":
                text(f" {MIAMI}")
    with user():
        text(question)


def main() -> None:
    model = sys.argv[1] if len(sys.argv) > 1 else HERE.parent.parent / "models" / "reprise-mini.gguf"
    with Engine(model) as engine:
        engine.prefill(guide.schema())  # every module once, before the first customer
        for customer in (
            guide("lisbon", "3 days", "a family", "Sum up the plan."),
            guide("miami", "2 weeks", "two friends", "Highlight the surf spots."),
            guide("lisbon", "a weekend", "six students", "How long is the trip?"),
        ):
            answer = engine.run(customer, max_tokens=40)
            print(
                f"{answer.text.strip()}   [{answer.usage.cached_tokens} of {answer.usage.prompt_tokens} tokens cached]"
            )


if __name__ == "__main__":
    main()
