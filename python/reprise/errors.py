# SPDX-License-Identifier: Apache-2.0
"""Exceptions: one class for each error code of reprise_error.h, so that a program can catch what it can handle."""

from __future__ import annotations


class Error(Exception):
    """An error of the library or the server. str() is one line: what is wrong, where, and what to do.

    code            "RP_ERR_SYNTAX", ... as in reprise_error.h
    where           "cities.xml:4:7", "model.gguf: tensor blk.0.attn_q.weight", or ""
    offset          byte offset in the input, or 0
    retry_after_ms  delay before a retry after BusyError, else 0
    """

    code = "RP_ERR_INTERNAL"

    def __init__(self, message: str, *, where: str = "", offset: int = 0, retry_after_ms: int = 0) -> None:
        super().__init__(message)
        self.where = where
        self.offset = offset
        self.retry_after_ms = retry_after_ms


class InvalidError(Error, ValueError):
    """A value is out of its range, or a call is not possible in this state."""

    code = "RP_ERR_INVALID"


class OutOfMemoryError(Error, MemoryError):
    """The process has no memory left."""

    code = "RP_ERR_MEMORY"


class FileError(Error, OSError):
    """A file cannot be read or written."""

    code = "RP_ERR_IO"

    def __str__(self) -> str:  # OSError's own would need an errno
        return str(self.args[0])


class FormatError(Error):
    """A file is corrupt or has an unexpected format."""

    code = "RP_ERR_FORMAT"


class UnsupportedError(Error, NotImplementedError):
    """The model, or this version of the library, does not support it."""

    code = "RP_ERR_UNSUPPORTED"


class MarkupError(Error):
    """A syntax error in a PML document, a grammar or a prompt program."""

    code = "RP_ERR_SYNTAX"


class UnknownNameError(Error, LookupError):
    """A schema, module, parameter or another name does not exist; the message has the nearest one."""

    code = "RP_ERR_NAME"


class ConflictError(Error):
    """Mutually exclusive settings, or something that another user holds."""

    code = "RP_ERR_CONFLICT"


class LengthError(Error, ValueError):
    """An argument or a text exceeds its maximum length; the message has both lengths."""

    code = "RP_ERR_LENGTH"


class ContextLengthError(Error, ValueError):
    """The prompt exceeds the context length."""

    code = "RP_ERR_CONTEXT"


class LimitError(Error, ValueError):
    """A built-in limit is exceeded."""

    code = "RP_ERR_LIMIT"


class CancelledError(Error):
    """The request was cancelled before its answer began."""

    code = "RP_ERR_CANCELLED"


class InternalError(Error):
    """A defect of the library."""

    code = "RP_ERR_INTERNAL"


class BusyError(Error):
    """The request queue is full: try again after retry_after_ms."""

    code = "RP_ERR_BUSY"


class DeadlineError(Error, TimeoutError):
    """The deadline passed before the first token."""

    code = "RP_ERR_DEADLINE"

    def __str__(self) -> str:  # TimeoutError is an OSError
        return str(self.args[0])


class BudgetError(Error):
    """The KV budget is too small for the request."""

    code = "RP_ERR_BUDGET"


class AccessError(Error, PermissionError):
    """A server does not accept the API key, or it lacks a right. Of clients only."""

    code = "RP_ERR_INVALID"

    def __str__(self) -> str:  # PermissionError is an OSError
        return str(self.args[0])


BY_CODE: dict[str, type[Error]] = {
    cls.code: cls
    for cls in (
        InvalidError,
        OutOfMemoryError,
        FileError,
        FormatError,
        UnsupportedError,
        MarkupError,
        UnknownNameError,
        ConflictError,
        LengthError,
        ContextLengthError,
        LimitError,
        CancelledError,
        InternalError,
        BusyError,
        DeadlineError,
        BudgetError,
    )
}
