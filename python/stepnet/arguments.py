"""What a caller gives as a cell or net: a text, or the path of a file."""

from __future__ import annotations

import os
from typing import Mapping, Union

Source = Union[str, "os.PathLike[str]"]


def text_or_path(source: Source) -> tuple[str, bool]:
    """The text or the path, and whether it is a text: a string with a brace or more than one line is one."""
    if isinstance(source, str):
        return source, "{" in source or "\n" in source
    if isinstance(source, os.PathLike):
        return os.fspath(source), False
    raise TypeError(f"the source is a {type(source).__name__}; it must be a text or a path")


def all_sizes(sizes: Mapping[str, int] | None, named: Mapping[str, int]) -> dict[str, int]:
    """Sizes that were given as a mapping and by name, which hold before those of the mapping."""
    return {**(sizes or {}), **named}
