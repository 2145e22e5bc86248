"""Exceptions: one class for each code of StepNet's errors, below :class:`Error`."""

from __future__ import annotations

import re
from typing import Any


class Error(Exception):
    """What StepNet refuses or fails at. ``str(error)`` is the whole text, with the place of the fault.

    ``code`` says in words what kind of error it is: ``"shape mismatch"``.
    """

    code = "error"

    def __init__(self, *args: Any) -> None:
        """Lone surrogates, of names that callers give, become escapes: a text that has them cannot be printed."""
        super().__init__(*(each.encode("utf-8", "backslashreplace").decode() if isinstance(each, str) else each for each in args))


class InvalidArgumentError(Error, ValueError):
    """An argument, option or name that is not allowed."""

    code = "invalid argument"


class InvalidNetError(Error, ValueError):
    """A net that is malformed, or that has no gradient."""

    code = "invalid net"


class ShapeMismatchError(Error, ValueError):
    """Arrays whose shapes do not fit."""

    code = "shape mismatch"


class TypeMismatchError(Error, TypeError):
    """An array of another dtype than is needed, or what is no array."""

    code = "type mismatch"


class InputOutputError(Error, OSError):
    """A file that cannot be read or written, or that holds something else."""

    code = "input/output error"


class OutOfMemoryError(Error, MemoryError):
    """Memory beyond the limit, or beyond what the system gives."""

    code = "out of memory"


class CancelledError(Error):
    """A run that was asked to stop."""

    code = "cancelled"


class OperatorFailedError(Error):
    """An operator threw an exception of its own."""

    code = "operator failed"


class InternalError(Error):
    """A bug in StepNet."""

    code = "internal error"


class CellSyntaxError(Error, ValueError):
    """The text of a cell does not follow the grammar, or uses a name that means nothing there."""

    code = "syntax error"


class CopyWarning(UserWarning):
    """An array was copied, since StepNet reads contiguous memory alone."""


class CellWarning(UserWarning):
    """What a cell says is allowed, and most likely a mistake, as a sum over the sequences of the batch."""


_CLASSES = {
    each.code: each
    for each in (
        InvalidArgumentError,
        InvalidNetError,
        ShapeMismatchError,
        TypeMismatchError,
        InputOutputError,
        OutOfMemoryError,
        CancelledError,
        OperatorFailedError,
        InternalError,
        CellSyntaxError,
    )
}


# A name in quotes, a call in backticks, or a dtype: no part of a path, no name of which a dtype follows (`float is int32
# [2]`, `with float int32 [2]`), no type of an argument (`of type float (f)`), and not Python's float (`a float, no array`).
_DTYPE = re.compile(
    r'"(?:[^"\\\n]|\\.)*"|`[^`\n]*`|(?<![\w/.-])(?<!\ba )(?<!\bof type )(float|double)(?![\w/(-]|\.\w| is | \w+ \[)'
)
_NUMPY_NAMES = {"float": "float32", "double": "float64"}


def with_numpy_names(text: str) -> str:
    """What the core says, with its dtypes as NumPy calls them."""
    return _DTYPE.sub(lambda found: _NUMPY_NAMES.get(found[1], found[0]), text)


def exception_of(code: str, text: str) -> Error:
    """The exception for an error of the library, by the name of its code."""
    return _CLASSES[code](with_numpy_names(text))
