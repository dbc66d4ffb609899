# SPDX-License-Identifier: Apache-2.0
"""Where the package looks for the library, in processes of their own."""

import os
import pathlib
import shutil
import subprocess
import sys

from conftest import PACKAGE, environment

LIBRARY = pathlib.Path(os.environ["REPRISE_LIBRARY"]).resolve()
CODE = """
import reprise
from reprise._library import lib
try:
    print(lib.rp_version().decode(), lib._cdll._name)
except reprise.Error as e:
    print(type(e).__name__, e)
"""


def loaded(package: pathlib.Path, **more: str) -> str:
    """What a copy of the package, outside of a source tree, loads."""
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        capture_output=True,
        text=True,
        cwd=package,
        env=environment(**{"PYTHONPATH": str(package), "REPRISE_LIBRARY": "", **more}),
        check=True,
    )
    return done.stdout.strip()


def copied(folder: pathlib.Path) -> pathlib.Path:
    shutil.copytree(PACKAGE / "reprise", folder / "reprise", ignore=shutil.ignore_patterns("__pycache__", "lib*"))
    return folder


def test_the_environment_comes_first(tmp_path: pathlib.Path) -> None:
    package = copied(tmp_path)
    (package / "reprise" / "libreprise-tools.so").write_bytes(b"not a library")
    assert loaded(package, REPRISE_LIBRARY=str(LIBRARY)).endswith(str(LIBRARY))
    missing = loaded(package, REPRISE_LIBRARY=str(tmp_path / "missing.so"))
    assert missing.startswith("FileError") and "missing.so" in missing and "set REPRISE_LIBRARY" in missing


def test_the_library_in_the_package_comes_second(tmp_path: pathlib.Path) -> None:
    package = copied(tmp_path)
    inside = package / "reprise" / "libreprise-tools.so"
    inside.symlink_to(LIBRARY)
    assert loaded(package).endswith(str(inside))


def test_pkg_config_comes_last(tmp_path: pathlib.Path) -> None:
    package, folder = copied(tmp_path / "package"), tmp_path / "prefix"
    folder.mkdir()
    from reprise._library import _SONAME

    (folder / _SONAME).symlink_to(LIBRARY)
    (folder / "reprise-tools.pc").write_text(f"libdir={folder}\nName: reprise-tools\nDescription: x\nVersion: 0\n")
    found = loaded(package, PKG_CONFIG_PATH=str(folder))
    assert found.endswith((f" {folder / _SONAME}", f" {_SONAME}"))  # the second: one is installed in the system


def test_another_version_is_refused(tmp_path: pathlib.Path) -> None:
    source, library = tmp_path / "old.c", tmp_path / "old.so"
    source.write_text('const char *rp_version(void) { return "0.0.1"; }')
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    refused = loaded(copied(tmp_path / "package"), REPRISE_LIBRARY=str(library))
    assert refused.startswith("UnsupportedError") and "0.0.1" in refused
