# SPDX-License-Identifier: Apache-2.0
"""`python -m reprise`, as its users run it, and the examples as their pages say."""

import os
import pathlib
import re
import subprocess
import sys
import time

import pytest
from conftest import MODEL, PROGRAM, ROOT, environment, environment_of_programs

SOURCE = """
from typing import Literal
from reprise import program, system, text, user
from words import GUIDE

@program
def guide(city: Literal["lisbon", "miami"], question: str):
    with system():
        text("You are a guide.")
        match city:
            case "lisbon": text(GUIDE)
            case "miami": text(" Miami has beaches.")
    with user():
        text(question)
"""


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "reprise", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=120)


@pytest.fixture
def file(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "words.py").write_text('GUIDE = " Lisbon has hills."\n')
    path = tmp_path / "guides.py"
    path.write_text(SOURCE)
    return path


def test_schema(file: pathlib.Path, tmp_path: pathlib.Path) -> None:
    done = run("schema", f"{file}:guide")
    assert (done.returncode, done.stderr) == (0, "") and "Lisbon has hills" in done.stdout
    assert run("schema", file).stdout == done.stdout
    out = tmp_path / "guide.xml"
    again = run("schema", f"{file}:guide", "-o", out)
    assert again.returncode == 0 and out.read_text() == done.stdout and str(out) in again.stdout
    lint = subprocess.run(
        [PROGRAM, "lint", "-m", MODEL, "--schema", out], capture_output=True, text=True, env=environment_of_programs()
    )
    assert "error" not in lint.stdout + lint.stderr


def test_run(file: pathlib.Path) -> None:
    arguments = '{"city": "miami", "question": "What?"}'
    done = run("run", f"{file}:guide", "--args", arguments, "-m", MODEL, "-n", 8, "--explain")
    assert done.returncode == 0 and done.stdout.strip() and "miami: computed" in done.stderr


@pytest.mark.parametrize(
    "arguments, status, words",
    [
        (["schema", "nowhere.py:x"], 2, "nowhere.py: no such file"),
        (["schema", "{file}:guid"], 2, "no program 'guid'; its programs: guide"),
        (["run", "{file}", "-m", "x", "--args", "["], 2, "--args: "),
        (["run", "{file}", "-m", "nothing.gguf", "--args", '{{"city": "rome", "question": "x"}}'], 1, "'rome'"),
        (["run", "{file}", "-m", "nothing.gguf", "--args", '{{"city": "miami", "question": "x"}}'], 1, "nothing.gguf"),
        (["run", "{file}"], 2, "-m/--model --url"),
    ],
)
def test_mistakes_are_one_line(file: pathlib.Path, arguments: list[str], status: int, words: str) -> None:
    done = run(*(argument.format(file=file) for argument in arguments))
    assert done.returncode == status and words in done.stderr and "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) <= 4  # argparse's usage


def test_a_program_that_cannot_be_structure_names_its_line(file: pathlib.Path) -> None:
    file.write_text(SOURCE.replace("text(question)", "while question: text(question)"))
    done = run("schema", file)
    assert (
        done.returncode == 2 and re.match(rf"reprise: {file}:\d+:\d+: ", done.stderr) and done.stderr.count("\n") == 1
    )


def test_watch(file: pathlib.Path, tmp_path: pathlib.Path) -> None:
    out = tmp_path / "guide.xml"

    def until(words: str) -> None:
        end = time.monotonic() + 60
        while not out.exists() or words not in out.read_text():
            assert time.monotonic() < end and process.poll() is None
            time.sleep(0.02)

    def change(path: pathlib.Path, content: str) -> None:
        path.write_text(content)
        now = time.time() + change.n  # type: ignore[attr-defined]
        change.n += 1  # type: ignore[attr-defined]
        os.utime(path, (now, now))

    change.n = 1  # type: ignore[attr-defined]
    command = [sys.executable, "-B", "-m", "reprise", "schema", f"{file}:guide", "-o", str(out), "--watch"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as process:
        try:
            until("hills")
            change(tmp_path / "words.py", 'GUIDE = " Lisbon has trams."\n')
            until("trams")
            change(file, "def broken(:\n")
            assert process.stderr is not None
            line = process.stderr.readline()
            assert line.startswith("reprise: ") and "SyntaxError" in line and "trams" in out.read_text()
            change(file, SOURCE.replace("beaches", "lagoons"))
            until("lagoons")
        finally:
            process.terminate()


EXPECTED = {
    "travel": ["A trip of 3 days to Lisbon for a family.", "Haulover and South Beach.", "a weekend."],
    "retrieval": ["clocks.", "camera.", "Yarina.", "Elena.", "clocks."],
    "labels": ["-> mip", "-> zorb", "-> tull"],
    "code_assistant": ["fen_cut(price, rate)", "fen_cut(price, rate)", "wen_move(speed, angle)"],
    "agent": [
        "Not stated.",
        "search('Danemar')",
        "Belvik.",
        "search('Belvik')",
        "Belvik.",
        "clocks.",
        "Belvik: Yarina.",
    ],
    "weather": ["call weather {", "sky: "],
}


@pytest.mark.parametrize("name", EXPECTED)
def test_examples(name: str) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "python" / f"{name}.py"],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    at = 0
    for words in EXPECTED[name]:
        at = done.stdout.find(words, at) + 1
        assert at > 0, (words, done.stdout)
    files = {path.stem for path in (ROOT / "examples" / "python").glob("*.py")}
    assert files == set(EXPECTED)


def test_the_quick_start_runs_as_pasted(tmp_path: pathlib.Path) -> None:
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(from reprise import Arg, Engine.*?)```", page, re.DOTALL)
    file = tmp_path / "quick.py"
    file.write_text(code)
    done = subprocess.run(
        [sys.executable, file], capture_output=True, text=True, env=environment(), cwd=ROOT, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    first, second = done.stdout.splitlines()
    cached, fresh = (int(number) for number in re.findall(r"(?:cached|fresh)_tokens=(\d+)", second))
    assert "Lisbon" in first and cached > fresh > 0
