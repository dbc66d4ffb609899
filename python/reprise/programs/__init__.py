# SPDX-License-Identifier: Apache-2.0
"""Prompt programs: Python functions as schemas of prompt modules (section 3.2 of "Prompt Cache", docs/python.md).

    source.py      syntax tree and check of syntax      values.py    annotations, kinds of parameters, ProgramError
    compiler.py    statements -> items                  scope.py     names and expressions: constant, or of a call
    texts.py       text(expression) -> items            items.py     the compiled program
    emit.py        items -> PML and steps of a call     naming.py    names of modules
    program.py     @program: schema and prompts         plain.py     text(), roles, ...: plain execution
    calls.py       arguments of words and programs      documents.py libraries of documents known at run time

Owns the way from a function to a Schema and a Prompt. Runs nothing: engines and clients take prompts.
"""

from .documents import Document, Library, library, use
from .plain import assistant, module, scaffold, system, text, tool, user
from .program import Program, program
from .values import Arg, ProgramError

__all__ = [
    "Arg",
    "Document",
    "Library",
    "Program",
    "ProgramError",
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
