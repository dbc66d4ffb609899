# SPDX-License-Identifier: Apache-2.0
"""Reprise from Python: prompts whose reusable parts are prefilled once (docs/python.md)."""

from .prompt import Prompt
from .schema import Schema

__all__ = ["Prompt", "Schema"]
