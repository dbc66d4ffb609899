# SPDX-License-Identifier: Apache-2.0
"""`python -m reprise`: the schema of a prompt program as PML, and one answer of a program."""

from __future__ import annotations

import argparse
import importlib.util
import json
import linecache
import os
import pathlib
import sys
import time
import traceback
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from . import _abi
from .errors import Error, FileError, InvalidError
from .programs import Program

_POLL_S = 0.25
_CLOCK_NS = 20_000_000  # a file's time may be that much older than its change


class Refused(Exception):
    """One line for the user. files: those that it is about, besides the program's own."""

    def __init__(self, line: str, files: Iterable[str] = ()) -> None:
        super().__init__(" ".join(line.split()))
        self.files = tuple(files)


def load_module(path: pathlib.Path) -> ModuleType:
    """A Python file as a module, with its own folder for imports."""
    if not path.is_file():
        raise Refused(f"{path}: no such file")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    name = path.stem if path.stem not in sys.modules else f"_program_{path.stem}"  # modules of Python keep their names
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise Refused(f"{path} is no Python file: give FILE.py:NAME")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Error as e:
        raise Refused(str(e)) from None
    except SyntaxError as e:
        raise Refused(f"{e.filename}:{e.lineno}: {type(e).__name__}: {e.msg}", [e.filename or ""]) from None
    except (Exception, SystemExit) as e:
        frames = traceback.extract_tb(e.__traceback__)
        lines = [one for one in frames if not one.filename.startswith("<")]
        where = next((one for one in reversed(lines) if _is_in(one.filename, folder)), lines[-1])
        raise Refused(
            f"{where.filename}:{where.lineno}: {type(e).__name__}: {e}", [one.filename for one in lines]
        ) from None
    return module


def load_program(place: str) -> tuple[pathlib.Path, Program[Any]]:
    """FILE.py:NAME. The name may be left out if the file has only one program."""
    path, name = _split(place)
    module = load_module(path)
    programs = {key: value for key, value in vars(module).items() if isinstance(value, Program)}
    if not programs:
        raise Refused(f"{path} has no program: decorate a function with @program")
    known = ", ".join(programs)
    if not name and len(programs) == 1:
        name = next(iter(programs))
    if not name:
        raise Refused(f"{path} has several programs: write {path}:NAME, with one of {known}")
    if name not in programs:
        raise Refused(f"{path} has no program {name!r}; its programs: {known}")
    return path, programs[name]


def _split(place: str) -> tuple[pathlib.Path, str]:
    file, colon, name = place.rpartition(":")
    if not colon or not name.isidentifier() and name:  # C:\programs.py
        file, name = place, ""
    return pathlib.Path(file), name


def _is_in(file: str, folder: str) -> bool:
    return pathlib.Path(file).resolve().is_relative_to(folder)


# ---- schema ----


def _modules_in(folder: str) -> dict[str, str]:
    """The modules that were loaded from files in this folder: name to file."""
    found = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name != "__main__" and isinstance(file, str) and _is_in(file, folder):
            found[name] = str(pathlib.Path(file).resolve())
    return found


def _write_schema(place: str, out: str | None) -> None:
    schema = load_program(place)[1].schema()
    if out is None:
        sys.stdout.write(schema.pml)
        sys.stdout.flush()
    else:
        temporary = pathlib.Path(f"{out}.part")
        try:
            temporary.write_text(schema.pml, encoding="utf-8")
            temporary.replace(out)
        except OSError as e:
            raise FileError(f"{out}: {e.strerror}: the schema cannot be written") from None
        print(f"{out}: {schema.name}, {len(schema.pml.encode())} bytes", flush=True)


def _stamp(file: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


class _Watch:
    """The files that a schema was made of. Their stamps are of before they were read: no change is lost."""

    def __init__(self, place: str) -> None:
        file = _split(place)[0].resolve()
        self.folder = str(file.parent)
        self.stamps = {str(file): _stamp(str(file))}

    def begin(self) -> None:
        """Before the program is loaded again: so are the modules of its folder."""
        for name in _modules_in(self.folder):
            del sys.modules[name]
        importlib.invalidate_caches()
        linecache.checkcache()
        self.stamps = {file: _stamp(file) for file in self.stamps}

    def add(self, files: Iterable[str]) -> None:
        """Files that were read. One that was not known before may have changed since: then it is read again."""
        for file in files:
            file = str(pathlib.Path(file).resolve())
            if file not in self.stamps and _is_in(file, self.folder):
                stamp = _stamp(file)
                self.stamps[file] = stamp if stamp is None or stamp[0] < self.begun - _CLOCK_NS else None

    def has_changed(self) -> bool:
        return any(_stamp(file) != stamp for file, stamp in self.stamps.items())

    def write(self, place: str, out: str | None) -> None:
        """Writes the schema. An error is one line: the next change may correct it."""
        self.begun = time.time_ns()
        self.begin()
        failed: tuple[str, ...] = ()
        try:
            _write_schema(place, out)
        except (Refused, Error, OSError) as e:
            print(f"reprise: {e}", file=sys.stderr, flush=True)
            failed = e.files if isinstance(e, Refused) else ()
        self.add([*_modules_in(self.folder).values(), *failed])


def schema(options: argparse.Namespace) -> None:
    if not options.watch:
        _write_schema(options.program, options.output)
        return
    watch = _Watch(options.program)
    sys.dont_write_bytecode = True  # of two changes in one second, the second must be read
    try:
        while True:
            watch.write(options.program, options.output)
            while not watch.has_changed():
                time.sleep(_POLL_S)
    except KeyboardInterrupt:
        pass


# ---- run ----


def run(options: argparse.Namespace) -> None:
    if options.url and options.explain:
        raise Refused(f"--explain is for --model: after the answer, use `reprise explain --url {options.url}`")
    _, program = load_program(options.program)
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
        try:
            client = Client(options.url, os.environ.get("REPRISE_API_KEY"))
        except InvalidError as e:
            raise Refused(f"--url or REPRISE_API_KEY: {e}") from None
        with client, client.stream(prompt, max_tokens=options.max_tokens) as stream:
            for piece in stream:
                print(piece, end="", flush=True)
    else:
        with Engine(options.model) as engine, engine.stream(prompt, max_tokens=options.max_tokens) as answer:
            for piece in answer:
                print(piece, end="", flush=True)
            if options.explain:
                print(f"\n{engine.explain(answer.result)}", end="", file=sys.stderr)
    print()


# ---- command line ----

_EXAMPLES = """examples:
  python -m reprise schema guide.py:guide -o guide.xml --watch
  python -m reprise run guide.py:guide -m model.gguf --args '{"question": "Where can I surf?"}'
  python -m reprise run guide.py:guide --url http://127.0.0.1:8080 --args '{"question": "Where can I surf?"}'
"""


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 1 << 31:
        raise argparse.ArgumentTypeError(f"{text!r}: give a whole number from 1")
    return int(text)


def parser() -> argparse.ArgumentParser:
    out = argparse.ArgumentParser(
        prog="python -m reprise",
        description="Prompt programs are Python functions with @program. Writes their schemas as PML files, and runs their prompts.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
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
        "-n", "--max-tokens", type=_count, default=128, metavar="N", help="maximum number of tokens to generate (128)"
    )
    one.add_argument(
        "--explain", action="store_true", help="report what was reused, and why not, on standard error (with --model)"
    )
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
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of standard output has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (Error, OSError) as e:
        print(f"reprise: {e}", file=sys.stderr)
        return 1
    return 0
