# SPDX-License-Identifier: Apache-2.0
"""Reprise from Python: prompts whose reusable parts are prefilled once (docs/python.md)."""

from .programs import (
    Arg,
    Document,
    Library,
    Program,
    ProgramError,
    assistant,
    library,
    module,
    program,
    scaffold,
    system,
)
from .programs import text, tool, use, user
from .prompt import Prompt
from .schema import Schema

__all__ = [
    "Arg",
    "Document",
    "Library",
    "Program",
    "ProgramError",
    "Prompt",
    "Schema",
    "assistant",
    "library",
    "module",
    "program",
    "scaffold",
    "system",
    "text",
    "tool",
    "use",
    "user",
]
