#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A few-shot classifier: one module for each label, prefilled jointly, so that the examples see each other.

    examples/python/labels.py [MODEL]
"""
import sys
from pathlib import Path

from reprise import Engine, program, scaffold, system, text, user

EXAMPLES = {
    "zorb": ["My parcel is late.", "This package never came.", "Our delivery arrived broken."],
    "mip": ["This invoice is too high.", "My payment was counted twice.", "Our bill is wrong."],
    "tull": ["This screen does not work.", "My password must be changed.", "Our program is very slow."],
}


@program
def label(message: str):
    with system():
        text("Give each message a label.")
        for name, messages in EXAMPLES.items():
            text(f" Label {name}. " + " ".join(f"{m} -> {name}." for m in messages))
    scaffold("zorb", "mip", "tull")
    with user():
        text(f"Message: {message} Which label?")


GRAMMAR = 'root ::= " "? ("zorb" | "mip" | "tull")'  # the answer is one of the labels


def main() -> None:
    model = sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parents[2] / "models" / "reprise-mini.gguf"
    with Engine(model) as engine:
        for message in ("My charge was counted twice.", "Your box arrived too late.", "This computer is broken."):
            result = engine.run(label(message), grammar=GRAMMAR, max_tokens=8)
            print(f"{message} -> {result.text.strip()}")


if __name__ == "__main__":
    main()
