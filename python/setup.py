# SPDX-License-Identifier: Apache-2.0
"""What pyproject.toml cannot say: the version is that of include/reprise.h, and a wheel with the library in it is for one platform.

REPRISE_WHEEL_LIBRARY: a libreprise-tools.so that the wheel contains; without it the wheel uses the system's.
"""

import os
import pathlib
import re
import shutil

from setuptools import setup
from setuptools.command.build_py import build_py
from wheel.bdist_wheel import bdist_wheel

HEADER = pathlib.Path(__file__).resolve().parent.parent / "include" / "reprise.h"
LIBRARY = os.environ.get("REPRISE_WHEEL_LIBRARY", "")


def version() -> str:
    found = re.search(r'^#define RP_VERSION_STRING "([^"]+)"$', HEADER.read_text(encoding="utf-8"), re.MULTILINE)
    if not found:
        raise SystemExit(f"{HEADER}: no RP_VERSION_STRING")
    return found.group(1)


class BuildWithLibrary(build_py):
    def run(self) -> None:
        super().run()
        if LIBRARY:
            shutil.copy(LIBRARY, pathlib.Path(self.build_lib, "reprise", "libreprise-tools.so"))


class PlatformWheel(bdist_wheel):
    def finalize_options(self) -> None:
        super().finalize_options()
        self.root_is_pure = not LIBRARY

    def get_tag(self) -> tuple[str, str, str]:
        _, _, platform = super().get_tag()
        return ("py3", "none", platform if LIBRARY else "any")


setup(version=version(), cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": PlatformWheel})
