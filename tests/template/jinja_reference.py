# SPDX-License-Identifier: Apache-2.0
"""What transformers makes of a chat template: Python's Jinja2 in the same environment. Used by test_template_jinja.py."""
import datetime
import functools
import json
import re

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2 import nodes
from jinja2.ext import Extension

NOW = datetime.datetime(2026, 1, 15, 12, 34, 56)

# Exceptions of Python's own functions and of its parser: their texts are Python's affair, and only the failure is compared.
OWN_WORDS = re.compile(
    r"^TemplateSyntaxError|^SyntaxError|TemplateAssertionError|positional argument|keyword argument|takes |expected (at|exactly|\d)|"
    r"required argument|RecursionError|argument after|missing \d|not enough arguments for|argument must be|arguments? \(\d"
)
# Texts with an address in memory differ from run to run.
ADDRESS = re.compile(r"0x[0-9a-f]{6}|<(function|built-in|bound method|class|LoopContext|Macro|jinja2)", re.IGNORECASE)


class Generation(Extension):
    """{% generation %} of transformers: the text of the assistant, which is rendered as it is."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


def _tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message):
    raise jinja2.exceptions.TemplateError(message)


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation])
    env.filters["tojson"] = _tojson
    env.globals["raise_exception"] = _raise
    env.globals["strftime_now"] = NOW.strftime
    return env


@functools.lru_cache(maxsize=4)
def _compiled(env, source):
    return env.from_string(source)


def expectation(env, source, values):
    """The members "output" or "error" of a vector, and "any_text" if only the kind of result can be compared."""
    try:
        text = _compiled(env, source).render(**values)
        return {"output": text, "any_text": bool(ADDRESS.search(text))}
    except Exception as e:  # pylint: disable=broad-except
        text = f"{type(e).__name__}: {e}"
        return {"error": text, "any_text": bool(OWN_WORDS.search(text) or ADDRESS.search(text))}
