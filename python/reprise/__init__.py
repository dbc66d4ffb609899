# SPDX-License-Identifier: Apache-2.0
"""Reprise from Python: prompts whose reusable parts are prefilled once (docs/python.md).

    programs   functions that become schemas of prompt modules: program, text, Arg, roles, library
    values     Prompt, Schema
    engine     Engine and Model run prompts in this process; Result; Store has the cached KV
    client     Client and AsyncClient send them to `reprise serve`
    adapters   from_messages, from_documents: conversations and documents of other libraries
    errors     Error and a class for each error code
"""

from . import errors
from ._abi import VERSION as __version__
from .adapters import from_documents, from_messages
from .answers import Answer
from .chat import ChatAnswer, ChatPiece, ChatStream, ToolCall
from .client import AsyncClient, Client
from .engine import Engine, explain
from .errors import Error
from .job import AsyncStream, Job, Stream
from .model import Lora, Model
from .programs import Arg, Document, Library, Program, ProgramError, assistant, library, module, program, scaffold
from .programs import system, text, tool, use, user
from .prompt import Markup, Prompt
from .requests import RequestOptions
from .result import PlanItem, Result
from .schema import Schema
from .store import Store

__all__ = [
    "Answer",
    "Arg",
    "AsyncClient",
    "AsyncStream",
    "ChatAnswer",
    "ChatPiece",
    "ChatStream",
    "Client",
    "Document",
    "Engine",
    "Error",
    "Job",
    "Library",
    "Lora",
    "Markup",
    "Model",
    "PlanItem",
    "Program",
    "ProgramError",
    "Prompt",
    "RequestOptions",
    "Result",
    "Schema",
    "Store",
    "Stream",
    "ToolCall",
    "__version__",
    "assistant",
    "errors",
    "explain",
    "from_documents",
    "from_messages",
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
