"""What can be asked without running anything."""

from __future__ import annotations

from typing import Mapping

from . import _stepnet, arguments
from .arguments import Source, all_sizes, flag_of, text_or_path


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
    flags = flag_of("init", init), flag_of("training", training), flag_of("carry", carry)
    return _stepnet.expand(text, is_text, all_sizes(sizes, named_sizes), *flags)


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
    how = flag_of("training", training), arguments.text_of("format", format)
    return _stepnet.show(text, is_text, all_sizes(sizes, named_sizes), *how)
