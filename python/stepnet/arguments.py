"""What callers give, checked: each function gives it as the core takes it, or an error that names the argument."""

from __future__ import annotations

import operator
import os
from typing import Any, Mapping, Tuple, Union

import numpy

from .errors import InvalidArgumentError, TypeMismatchError

Source = Union[str, "os.PathLike[str]"]
"""A cell or net: a text, or the path of a file."""

LONGEST_SHOWN = 80
"""Characters of a value that a message shows."""


def shown(value: Any) -> str:
    """A value as messages show it: of an array what it is, without its elements."""
    if hasattr(value, "dtype") and getattr(value, "shape", None):
        return f"{value.dtype} {list(value.shape)}"
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + "…"


def mistyped(what: str, value: Any, must: str) -> TypeMismatchError:
    return TypeMismatchError(f"type mismatch: {what} is {shown(value)}; it must be {must}")


def text_of(what: str, value: Any) -> str:
    if not isinstance(value, str):
        raise mistyped(what, value, "a text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidArgumentError(f"invalid argument: {what} is {shown(value)}; it must be UTF-8") from None
    return value


def path_of(what: str, value: Any) -> str:
    if not isinstance(value, (str, os.PathLike)) or not isinstance(os.fspath(value), str):
        raise mistyped(what, value, "a path, as a text or an os.PathLike of one")
    found = text_of(what, os.fspath(value))
    if not found or "\0" in found:
        raise InvalidArgumentError(f"invalid argument: {what} is {shown(found)}; it must be the path of a file")
    return found


def text_or_path(source: Source) -> tuple[str, bool]:
    """The text or the path, and whether it is a text: a string with a brace or more than one line is one."""
    if isinstance(source, str) and ("{" in source or "\n" in source):
        return text_of("the source", source), True
    if not isinstance(source, (str, os.PathLike)):
        raise TypeMismatchError(f"type mismatch: the source is a {type(source).__name__}; it must be a text or a path")
    return path_of("the source", source), False


def flag_of(what: str, value: Any) -> bool:
    if not isinstance(value, (bool, numpy.bool_)):
        raise mistyped(what, value, "True or False")
    return bool(value)


def whole_number(what: str, value: Any, *, least: int = -(2**63), most: int = 2**63 - 1) -> int:
    """A number that the core's type of 64 bits holds; what else it must be the core says."""
    if isinstance(value, bool):
        raise mistyped(what, value, "a whole number")
    try:
        number = operator.index(value)
    except TypeError:
        raise mistyped(what, value, "a whole number") from None
    if not least <= number <= most:
        raise InvalidArgumentError(f"invalid argument: {what} is {number}; it must be between {least} and {most}")
    return number


def number(what: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, numpy.integer, numpy.floating)):
        raise mistyped(what, value, "a number")
    return float(value)


def seed_of(value: Any) -> int:
    return whole_number("seed", value, least=0, most=2**64 - 1)


def run_options(threads: Any, device: Any, opt_level: Any, seed: Any) -> Tuple[int, str, int, int]:
    """How cells and nets run, in the order in which the core takes it."""
    return (
        whole_number("threads", threads),
        text_of("device", device),
        whole_number("opt_level", opt_level),
        seed_of(seed),
    )


def names_of(what: str, value: Any) -> list[str]:
    """Several names; one may be given alone."""
    if isinstance(value, str):
        return [text_of(what, value)]
    try:
        listed = list(value)
    except TypeError:
        raise mistyped(what, value, "a name, or several") from None
    return [text_of(f"a name of {what}", each) for each in listed]


def all_sizes(sizes: Mapping[str, int] | None, named: Mapping[str, int]) -> dict[str, int]:
    """Sizes that were given as a mapping and by name, which hold before those of the mapping."""
    if sizes is not None and not isinstance(sizes, Mapping):
        raise mistyped("sizes", sizes, "a mapping from names to whole numbers")
    return {**(sizes or {}), **named}
