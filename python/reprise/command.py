# SPDX-License-Identifier: Apache-2.0
"""`python -m reprise`: the schema of a prompt program as PML, and one answer of a program."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import pathlib
import sys
import time
import traceback
from types import ModuleType
from typing import Any

from . import _abi
from .errors import Error
from .programs import Program
from .schema import Schema

_POLL_S = 0.25


class Refused(Exception):
    """One line for the user."""


def load_module(path: pathlib.Path) -> ModuleType:
    """A Python file as a module, with its own folder for imports."""
    if not path.is_file():
        raise Refused(f"{path}: no such file")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise Refused(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except Error as e:
        raise Refused(str(e)) from None
    except Exception as e:
        last = traceback.extract_tb(e.__traceback__)[-1]
        raise Refused(f"{last.filename}:{last.lineno}: {type(e).__name__}: {e}") from None
    return module


def load_program(place: str) -> Program[Any]:
    """FILE.py:NAME. The name may be left out if the file has only one program."""
    file, _, name = place.partition(":")
    path = pathlib.Path(file)
    module = load_module(path)
    programs = {key: value for key, value in vars(module).items() if isinstance(value, Program)}
    known = ", ".join(programs) or "none: decorate a function with @program"
    if not name and len(programs) == 1:
        name = next(iter(programs))
    if name not in programs:
        raise Refused(
            f"{path} has no program {name!r}; its programs: {known}"
            if name
            else f"name one of {path}'s programs: {known}"
        )
    return programs[name]


# ---- schema ----


def _time_of(file: str) -> float:
    try:
        return os.stat(file).st_mtime
    except OSError:
        return 0.0


def _modules_of(folder: pathlib.Path) -> dict[str, str]:
    """The modules that were loaded from a folder: name -> file."""
    files = {
        name: getattr(module, "__file__", None) for name, module in list(sys.modules.items()) if name != "__main__"
    }
    return {name: file for name, file in files.items() if file and pathlib.Path(file).resolve().is_relative_to(folder)}


def _write_schema(schema: Schema, out: str | None) -> None:
    if out is None:
        sys.stdout.write(schema.pml)
        sys.stdout.flush()
        return
    temporary = pathlib.Path(f"{out}.part")
    temporary.write_text(schema.pml, encoding="utf-8")
    temporary.replace(out)
    print(f"{out}: {schema.name}, {len(schema.pml)} characters", flush=True)


def _watch(place: str, out: str | None) -> None:
    """Writes the schema, and again after each change. A file counts as it was before it was loaded: no change is missed."""
    path = pathlib.Path(place.partition(":")[0])
    folder = path.resolve().parent
    times = {str(path): _time_of(str(path))}
    while True:
        try:
            schema = load_program(place).schema()
            times = {file: _time_of(file) for file in _modules_of(folder).values()} | times
            _write_schema(schema, out)
        except (Refused, Error) as e:
            times = {file: _time_of(file) for file in _modules_of(folder).values()} | times
            print(f"reprise: {e}", file=sys.stderr, flush=True)
        while all(_time_of(file) == time_of for file, time_of in times.items()):
            time.sleep(_POLL_S)
        times = {file: _time_of(file) for file in times}
        for name in _modules_of(folder):  # imports are made again
            del sys.modules[name]
        importlib.invalidate_caches()


def schema(options: argparse.Namespace) -> None:
    if options.watch:
        _watch(options.program, options.output)
    else:
        _write_schema(load_program(options.program).schema(), options.output)


# ---- run ----


def run(options: argparse.Namespace) -> None:
    program = load_program(options.program)
    try:
        arguments = json.loads(options.args)
    except ValueError as e:
        raise Refused(f"--args: {e}: write a JSON object of the program's parameters") from None
    if not isinstance(arguments, dict):
        raise Refused("--args: write a JSON object of the program's parameters")
    prompt = program(**arguments)
    from .client import Client
    from .engine import Engine

    if options.url:
        with Client(options.url, api_key=os.environ.get("REPRISE_API_KEY")) as client:
            for piece in client.stream(prompt, max_tokens=options.max_tokens):
                print(piece, end="", flush=True)
    else:
        with Engine(options.model) as engine, engine.stream(prompt, max_tokens=options.max_tokens) as answer:
            for piece in answer:
                print(piece, end="", flush=True)
            if options.explain:
                print(f"\n{engine.explain(answer.result)}", end="", file=sys.stderr)
    print()


# ---- command line ----


def parser() -> argparse.ArgumentParser:
    out = argparse.ArgumentParser(
        prog="python -m reprise", description="Prompt programs: Python functions as schemas of prompt modules."
    )
    out.add_argument("--version", action="version", version=f"reprise {_abi.VERSION}")
    commands = out.add_subparsers(title="commands", metavar="COMMAND", required=True)
    where = "FILE.py:NAME, a function with @program; without NAME: the only one of the file"
    one = commands.add_parser(
        "schema", help="write a program's schema as PML", description="Writes a program's schema as PML."
    )
    one.add_argument("program", metavar="FILE.py:NAME", help=where)
    one.add_argument("-o", "--output", metavar="FILE", help="write to this file instead of standard output")
    one.add_argument(
        "--watch",
        action="store_true",
        help="write again after each change of the file, or of what it imports from its folder",
    )
    one.set_defaults(act=schema)
    one = commands.add_parser("run", help="answer a program's prompt", description="Answers a program's prompt once.")
    one.add_argument("program", metavar="FILE.py:NAME", help=where)
    one.add_argument(
        "--args", default="{}", metavar="JSON", help='arguments of the program: {"city": "miami", "question": "..."}'
    )
    which = one.add_mutually_exclusive_group(required=True)
    which.add_argument("-m", "--model", metavar="FILE", help="GGUF model to run here")
    which.add_argument("--url", help="server to ask instead (its API key: REPRISE_API_KEY)")
    one.add_argument(
        "-n", "--max-tokens", type=int, default=128, metavar="N", help="maximum number of tokens to generate (128)"
    )
    one.add_argument("--explain", action="store_true", help="then say what was reused, and why not (with --model)")
    one.set_defaults(act=run)
    return out


def main(arguments: list[str] | None = None) -> int:
    """0; 1: it failed; 2: it was called wrongly."""
    options = parser().parse_args(arguments)
    try:
        options.act(options)
    except Refused as e:
        print(f"reprise: {e}", file=sys.stderr)
        return 2
    except (Error, OSError) as e:
        print(f"reprise: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0
