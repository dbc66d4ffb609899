# SPDX-License-Identifier: Apache-2.0
"""The C library, libreprise-tools, which is the engine and its instruments: where it is, its functions with their types, and its errors as exceptions.

Foreign calls release the GIL. The library prints nothing and calls nothing back unless a caller of this package asks for it.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import pathlib
import subprocess
import sysconfig
from collections.abc import Iterator
from typing import Any

from . import _abi
from .errors import BY_CODE, Error, FileError, InternalError, InvalidError, UnsupportedError

_SONAME = "libreprise-tools.so." + ".".join(_abi.VERSION.split(".")[:2])


def _candidates() -> list[str]:
    named = os.environ.get("REPRISE_LIBRARY")
    if named:
        return [named]
    package = pathlib.Path(__file__).resolve().parent
    files = [package / "libreprise-tools.so"]  # of a wheel
    if (package.parents[1] / "CMakePresets.json").exists():  # of a source tree
        files.append(package.parents[1] / "build" / "libreprise-tools.so")
    for parent in package.parents[:4]:  # of the prefix that the package is installed in
        if parent.name == "lib":
            files += [parent / _SONAME, parent / str(sysconfig.get_config_var("MULTIARCH")) / _SONAME]
    found = ctypes.util.find_library("reprise-tools")
    return [*(str(file) for file in files if file.exists()), _SONAME, *([found] if found else [])]


def _of_pkg_config() -> list[str]:
    """The library of the prefix that pkg-config knows, for one that the loader does not know."""
    try:
        command = ["pkg-config", "--variable=libdir", "reprise-tools"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return []
    return [os.path.join(done.stdout.strip(), _SONAME)]


def _every_candidate() -> Iterator[str]:
    """Each once; pkg-config, which costs a process, is asked last."""
    first = dict.fromkeys(_candidates())
    yield from first
    if not os.environ.get("REPRISE_LIBRARY"):
        yield from (name for name in _of_pkg_config() if name not in first)


def _load() -> ctypes.CDLL:
    tried = []
    for name in _every_candidate():
        try:
            library = ctypes.CDLL(name)
        except OSError as e:
            tried.append(str(e))
            continue
        library.rp_version.restype = ctypes.c_char_p
        version = (library.rp_version() or b"").decode()
        if version != _abi.VERSION:
            raise UnsupportedError(
                f"{name} is version {version or 'unknown'}, and this package is for {_abi.VERSION}: "
                "install both of one version, or set REPRISE_LIBRARY to the right file"
            )
        return library
    raise FileError(
        f"libreprise-tools cannot be loaded ({'; '.join(tried)}): install Reprise (make install), "
        "or set REPRISE_LIBRARY to the path of libreprise-tools.so"
    )


class _Library:
    """The functions of the C interface as attributes, each loaded when it is first used."""

    def __init__(self) -> None:
        self._cdll: ctypes.CDLL | None = None

    def __getattr__(self, name: str) -> Any:
        if name not in _abi.FUNCTIONS:
            raise AttributeError(name)
        if self._cdll is None:
            self._cdll = _load()
        try:
            function = getattr(self._cdll, name)
        except AttributeError:
            raise UnsupportedError(
                f"{self._cdll._name} has no {name}: it is in libreprise-tools, so set REPRISE_LIBRARY to that"
            ) from None
        function.restype, function.argtypes = _abi.FUNCTIONS[name]
        setattr(self, name, function)
        return function


lib = _Library()


def text(value: bytes | None) -> str:
    """A string of the library."""
    return value.decode("utf-8", "replace") if value else ""


def encoded(value: str | os.PathLike[str] | None) -> bytes | None:
    """A string for the library. InvalidError: it contains NUL."""
    if value is None:
        return None
    data = os.fsencode(value) if isinstance(value, os.PathLike) else value.encode("utf-8", "surrogatepass")
    if b"\0" in data:
        raise InvalidError(f"{value!r}: a NUL character cannot be part of it")
    return data


def error_of(code: int, err: _abi.rp_error | None = None) -> Error:
    """The exception of an error code, and of the details that a function filled in."""
    name = text(lib.rp_code_name(code))
    cls = BY_CODE.get(name, InternalError)
    if err is None or not err.message:
        return cls(text(lib.rp_code_text(code)))
    return cls(text(err.message), where=text(err.where), offset=err.offset, retry_after_ms=err.retry_after_ms)


def check(code: int, err: _abi.rp_error | None = None) -> None:
    """Raises the exception of a negative code."""
    if code < 0:
        raise error_of(code, err)


def call(function: Any, *args: Any) -> None:
    """Calls a function whose last parameter is an rp_error."""
    err = _abi.rp_error()
    check(function(*args, ctypes.byref(err)), err)


def reported(kind: type[Any], function: Any, *args: Any) -> Any:
    """A struct that begins with struct_size, filled in by a function without an rp_error."""
    out = kind(struct_size=ctypes.sizeof(kind))
    check(function(*args, ctypes.byref(out)))
    return out


def no_callback(kind: Any) -> Any:
    """A NULL callback of this type."""
    return ctypes.cast(ctypes.c_void_p(), kind)


def set_field(struct: Any, name: str, value: Any) -> None:
    """Sets a number of a C struct, or a string. InvalidError: another type, or out of the field's range, where ctypes would change the value."""
    try:
        setattr(struct, name, value)
    except TypeError as e:
        raise InvalidError(f"{name}={value!r}: {e}") from None
    stored = getattr(struct, name)
    if isinstance(stored, bool) and stored != value:
        raise InvalidError(f"{name}={value!r}: use True or False")
    if isinstance(value, int) and stored != value:
        raise InvalidError(f"{name}={value}: out of range")
