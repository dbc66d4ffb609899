#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A code assistant over files: one module for each file. An edit of a file costs the prefill of that file alone.

    examples/python/code_assistant.py [MODEL]
"""
import sys
from collections.abc import Sequence
from pathlib import Path

from reprise import Engine, library, program, system, text, use, user

HERE = Path(__file__).resolve().parent
files = library("files")


@program
def complete(open_files: Sequence[str], line: str):
    with system():
        text("Use the following.")
        for file in use(files, open_files):
            text(f"\n{file.text}\n")
    with user():
        text(f"Complete: {line}")


def main() -> None:
    model = sys.argv[1] if len(sys.argv) > 1 else HERE.parent.parent / "models" / "reprise-mini.gguf"
    for path in sorted((HERE.parent / "code").glob("*.py")):
        files.add(path.stem, path.read_text(encoding="utf-8").strip())
    with Engine(model) as engine:
        for open_files, line in (
            (["tax", "rows"], "fen_cut("),
            (["rows", "tax"], "fen_cut("),
            (["robot", "report"], "wen_move("),
        ):
            result = engine.run(complete(open_files, line), max_tokens=24)
            print(
                f"{result.text.strip()}   [{result.usage.cached_tokens} of {result.usage.prompt_tokens} tokens cached]"
            )


if __name__ == "__main__":
    main()
