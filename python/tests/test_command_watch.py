# SPDX-License-Identifier: Apache-2.0
"""`python -m reprise schema --watch` sees every change: of files that are broken, of imports, and of a file that changes while it is read."""

import pathlib
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from conftest import environment

SOURCE = """
from reprise import program, system, text
from words import GUIDE

@program
def guide(question: str):
    with system():
        text(GUIDE)
"""
TIMEOUT_S = 120  # for lines that must come; nothing is judged by it


class Watch:
    """The command, and its lines: ("out" | "err", line)."""

    def __init__(self, file: pathlib.Path, out: pathlib.Path) -> None:
        command = [sys.executable, "-m", "reprise", "schema", f"{file}:guide", "-o", str(out), "--watch"]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
        )
        self.lines: queue.Queue[tuple[str, str]] = queue.Queue()
        self.readers = [threading.Thread(target=self._read, args=(name,)) for name in ("stdout", "stderr")]
        for reader in self.readers:
            reader.start()

    def _read(self, name: str) -> None:
        for line in getattr(self.process, name):
            self.lines.put((name, line))

    def next(self) -> tuple[str, str]:
        return self.lines.get(timeout=TIMEOUT_S)

    def end(self) -> list[tuple[str, str]]:
        """The lines that nobody has taken, after Ctrl-C."""
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(TIMEOUT_S) == 0
        for reader in self.readers:
            reader.join()
        assert self.process.stdout is not None and self.process.stderr is not None
        self.process.stdout.close()
        self.process.stderr.close()
        return list(self.lines.queue)


def put(path: pathlib.Path, content: str) -> None:
    """As editors do: nobody sees half a file."""
    path.with_suffix(".new").write_text(content)
    path.with_suffix(".new").replace(path)


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    (tmp_path / "words.py").write_text('GUIDE = "Version 0."\n')
    (tmp_path / "guides.py").write_text(SOURCE)
    yield tmp_path


def test_no_change_is_lost(folder: pathlib.Path) -> None:
    out = folder / "guide.xml"
    watch = Watch(folder / "guides.py", out)
    try:
        for version in range(1, 40):  # each at once after the line of the one before
            assert watch.next()[0] == "stdout"
            put(folder / "words.py", f'GUIDE = "Version {version}."\n')
        while "Version 39." not in out.read_text():
            watch.next()
    finally:
        assert all(name == "stdout" for name, _ in watch.end())


def test_a_broken_import_is_one_line_and_its_correction_is_seen(folder: pathlib.Path) -> None:
    out = folder / "guide.xml"
    (folder / "words.py").write_text("GUIDE = (\n")  # from the beginning: it was never a module
    watch = Watch(folder / "guides.py", out)
    try:
        name, line = watch.next()
        assert name == "stderr" and line.startswith("reprise: ") and "words.py:1: SyntaxError" in line
        assert not out.exists()
        put(folder / "words.py", 'GUIDE = "Correct."\n')
        while (line := watch.next()[1]).startswith("reprise: "):
            assert "words.py:1: SyntaxError" in line
        assert "Correct." in out.read_text()
        put(folder / "words.py", "GUIDE = 1 / 0\n")
        while not (line := watch.next()[1]).startswith("reprise: "):
            pass
        assert "words.py:1: ZeroDivisionError: division by zero" in line and "Correct." in out.read_text()
        (folder / "words.py").unlink()
        while "ModuleNotFoundError" not in (line := watch.next()[1]):
            assert "ZeroDivisionError" in line
        put(folder / "words.py", 'GUIDE = "Back."\n')
        while watch.next()[0] != "stdout":
            pass
        assert "Back." in out.read_text()
    finally:
        watch.end()
