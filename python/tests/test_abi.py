# SPDX-License-Identifier: Apache-2.0
"""The description of the C interface is that of the headers: the file is current, and every size and offset is the compiler's."""

import ctypes
import pathlib
import subprocess

from conftest import ROOT, environment_of_programs

from reprise import _abi

STRUCTS = {
    name: cls
    for name, cls in vars(_abi).items()
    if isinstance(cls, type) and issubclass(cls, ctypes.Structure) and cls is not ctypes.Structure
}


def test_the_generated_file_is_current() -> None:
    done = subprocess.run([ROOT / "tools" / "python_abi", "--check"], capture_output=True, text=True, env=environment_of_programs())
    assert done.returncode == 0, done.stderr


def test_sizes_and_offsets_are_the_compilers(tmp_path: pathlib.Path) -> None:
    assert len(STRUCTS) > 40
    lines = ['#include "reprise_adapter.h"', '#include "reprise_device.h"', '#include "reprise_embedding.h"', '#include "reprise_test.h"', '#include "reprise_tools.h"', "#include <stdio.h>", "#include <stddef.h>", "int main(void) {"]
    expected = []
    for name, cls in STRUCTS.items():
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        expected.append(f"{name} {ctypes.sizeof(cls)}")
        for field, *_ in cls._fields_:
            lines.append(f'printf("{name}.{field} %zu\\n", offsetof({name}, {field.rstrip("_")}));')
            expected.append(f"{name}.{field} {getattr(cls, field).offset}")
    source, program = tmp_path / "sizes.c", tmp_path / "sizes"
    source.write_text("\n".join([*lines, "}"]))
    subprocess.run(["cc", f"-I{ROOT / 'include'}", "-o", program, source], check=True, env=environment_of_programs())
    done = subprocess.run([program], capture_output=True, text=True, check=True, env=environment_of_programs())
    assert done.stdout.splitlines() == expected


def test_every_function_is_in_the_library() -> None:
    from reprise._library import lib

    for name in _abi.FUNCTIONS:
        assert getattr(lib, name) is not None
