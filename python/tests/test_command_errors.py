# SPDX-License-Identifier: Apache-2.0
"""`python -m reprise` with a server, in a pipe, and with files that are wrong: one line on standard error, and a status."""

import pathlib
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from conftest import environment
from test_client import Server

from reprise import Client

SOURCE = """
from reprise import program, system, text, user

@program
def guide(question: str):
    with system():
        text("You are a guide of Belvik.")
    with user():
        text(question)
"""
ARGUMENTS = ["--args", '{"question": "What is in Belvik?"}', "-n", "8"]


def run(*arguments: object, **more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "reprise", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment(**more), timeout=120)


@pytest.fixture
def file(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "guides.py"
    path.write_text(SOURCE)
    return path


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.stop()


def test_run_on_a_server(server: Server, file: pathlib.Path) -> None:
    done = run("run", file, "--url", server.url, *ARGUMENTS)
    assert (done.returncode, done.stderr) == (0, "")
    with Client(server.url) as client:
        (name,) = client.schemas()
        assert name.startswith("guide-")
    again = run("run", f"{file}:guide", "--url", f"{server.url}/v1", *ARGUMENTS)
    assert again.stdout == done.stdout and done.stdout.strip()


def test_errors_of_servers(server: Server, file: pathlib.Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    cases: list[tuple[str, int, str, dict[str, str]]] = [
        (f"http://127.0.0.1:{port}", 1, "Connection refused: start `reprise serve`", {}),
        ("nonsense", 2, "--url or REPRISE_API_KEY: base_url='nonsense': write", {}),
        (server.url, 2, "--url or REPRISE_API_KEY: api_key", {"REPRISE_API_KEY": "a b"}),
    ]
    for url, status, words, more in cases:
        done = run("run", file, "--url", url, *ARGUMENTS, **more)
        assert done.returncode == status and words in done.stderr and done.stderr.count("\n") == 1
    done = run("run", file, "--url", server.url, "--explain", *ARGUMENTS)
    assert done.returncode == 2 and f"reprise explain --url {server.url}" in done.stderr
    done = run("run", file, "--url", server.url, "--args", "{}")
    assert done.returncode == 1 and "guide(question: str)" in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "name, content, words",
    [
        ("exits.py", "import sys\nsys.exit(3)\n", "exits.py:2: SystemExit: 3"),
        ("empty.py", "x = 1\n", "has no program: decorate a function with @program"),
        ("syntax.py", "def f(\n", "syntax.py:1: SyntaxError: "),
        ("fails.py", "import json\n\njson.loads('{')\n", "fails.py:3: JSONDecodeError: "),
        ("two.py", SOURCE + SOURCE.replace("def guide", "def other"), "has several programs: write"),
        ("text.txt", SOURCE, "is no Python file: give FILE.py:NAME"),
    ],
)
def test_files_that_are_wrong(tmp_path: pathlib.Path, name: str, content: str, words: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    done = run("schema", path)
    assert done.returncode == 2 and words in done.stderr and done.stderr.count("\n") == 1 and not done.stdout


def test_names_of_pythons_modules(file: pathlib.Path) -> None:
    for name in ("json.py", "argparse.py"):
        (file.parent / name).write_text(SOURCE)
        assert run("schema", file.parent / name).stdout == run("schema", file).stdout != ""


def test_output(file: pathlib.Path, tmp_path: pathlib.Path) -> None:
    done = run("schema", file, "-o", tmp_path / "nowhere" / "x.xml")
    assert done.returncode == 1 and "the schema cannot be written" in done.stderr and done.stderr.count("\n") == 1
    command = [sys.executable, "-m", "reprise", "schema", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()  # as `| head` does
        assert process.stderr.read() == b"" and process.wait(120) == 1


@pytest.mark.parametrize("n", ["0", "-1", "abc", "1.5", "99999999999"])
def test_numbers_of_tokens(file: pathlib.Path, n: str) -> None:
    done = run("run", file, "-m", "x", "-n", n)
    assert done.returncode == 2 and "whole number from 1" in done.stderr


def test_help_and_version() -> None:
    for arguments in (["--help"], ["schema", "--help"], ["run", "--help"]):
        done = run(*arguments)
        assert done.returncode == 0 and done.stdout.startswith("usage: python -m reprise") and not done.stderr
    assert run("--version").stdout.startswith("reprise 0.")
    assert run().returncode == 2 == run("schemas").returncode
