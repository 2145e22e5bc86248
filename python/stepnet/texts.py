"""What can be asked without running anything."""

from __future__ import annotations

import os
from typing import Mapping

from . import _stepnet
from .source import Source, all_sizes, path_of, text_or_path


def check(source: Source, /, *, sizes: Mapping[str, int] | None = None, **named_sizes: int) -> list[str]:
    """Everything that is wrong with a cell or a net, which is a text or the path of a file. Nothing: an empty list."""
    text, is_text = text_or_path(source)
    return _stepnet.check(text, is_text, all_sizes(sizes, named_sizes))


def expand(
    source: Source,
    /,
    *,
    sizes: Mapping[str, int] | None = None,
    init: bool = False,
    training: bool = False,
    carry: bool = False,
    **named_sizes: int,
) -> str:
    """The text of the net that a cell stands for; with ``init``, of the net that fills its parameters."""
    text, is_text = text_or_path(source)
    return _stepnet.expand(text, is_text, all_sizes(sizes, named_sizes), init, training, carry)


def load_operator_library(path: str | os.PathLike[str], /) -> None:
    """Loads a shared library of operators, which cells and nets may use from then on.

    It is one that ``rnn_runner --op_library`` takes, too: built with the headers of StepNet alone, whose code it finds
    here. It is loaded in a process of its own first, so that one which fails while it is loaded is an error. It stays
    until the end of the program; a second call with the same library does nothing.

    Raises:
        InputOutputError: for a file that is no whole library, was built for another version, or cannot be loaded.
        InvalidNetError: for operators that there are already.
    """
    _stepnet.load_operator_library(path_of("path", path))


def ops() -> dict[str, str]:
    """The operators that nets and cells may use, by name, with what each does."""
    return _stepnet.ops()


def show(
    source: Source,
    /,
    *,
    sizes: Mapping[str, int] | None = None,
    training: bool = False,
    format: str = "text",
    **named_sizes: int,
) -> str:
    """A net, or the one that a cell stands for, as people read it: a line an operator, with its step nets.

    ``format`` is ``"text"``, or ``"dot"`` for Graphviz. The net need not be right: :func:`check` tells what is wrong.
    """
    text, is_text = text_or_path(source)
    return _stepnet.show(text, is_text, all_sizes(sizes, named_sizes), training, format)
