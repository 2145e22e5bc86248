"""Dimensions of inputs that may have any size in a net that is exported: what a caller says of them, and what errors do."""

from __future__ import annotations

import re
from typing import Any, Collection, Iterator, Mapping, Sequence, Union

from ..errors import InvalidArgumentError, ShapeMismatchError, TypeMismatchError
from ..gradients import names_of
from ..source import kind_of, utf8

DynamicAxes = Mapping[str, Union[Mapping[int, str], Sequence[int]]]
"""Dimensions of inputs that may have any size, by name of the input: with names of these sizes, or alone."""

Sizes = Mapping[str, Sequence[Union[int, str]]]
"""The sizes of each input, or their names."""


def axes_of(dynamic_axes: DynamicAxes) -> dict[str, dict[int, str]]:
    """The names of dimensions, by input and dimension."""
    if not isinstance(dynamic_axes, Mapping):
        raise TypeMismatchError(
            f"type mismatch: dynamic_axes is {kind_of(dynamic_axes)}; it must be a dictionary of dimensions by input"
        )
    return {name: dict(names_by_axis(name, dynamic_axes[name])) for name in names_of("dynamic_axes", dynamic_axes)}


def names_by_axis(name: str, given: Any) -> Iterator[tuple[int, str]]:
    what = f'dynamic_axes has for "{name}"'
    if isinstance(given, Mapping):
        pairs = list(given.items())
    elif isinstance(given, Sequence) and not isinstance(given, (str, bytes)):
        pairs = [(axis, own_name(name, i)) for i, axis in enumerate(given)]
    else:
        raise TypeMismatchError(
            f"type mismatch: {what} {kind_of(given)}; it must be a dictionary of names by dimension, {{0: 'T'}}, or a list of"
            " dimensions, [0]"
        )
    for axis, size in pairs:
        if isinstance(axis, bool) or not isinstance(axis, int):
            raise TypeMismatchError(
                f"type mismatch: {what} the dimension {kind_of(axis)}; a dimension must be a whole number, as in {{0: 'T'}} and [0]"
            )
        if not isinstance(size, str):
            raise TypeMismatchError(
                f"type mismatch: dynamic_axes has for dimension {axis} of \"{name}\" {kind_of(size)}; the name of a size must be a text, 'T'"
            )
        if not re.match(r"[^\W\d][^,]*$", utf8("a name in dynamic_axes", size)):  # as the texts of shapes have them
            raise InvalidArgumentError(
                f"invalid argument: dynamic_axes has for dimension {axis} of \"{name}\" {size!r}; the name of a size must be a word, as 'T'"
            )
        yield axis, size


def own_name(name: str, i: int) -> str:
    """That of the i-th dimension in a list, which nobody has named."""
    return f"{name}_dynamic_axes_{i + 1}"


def with_names(name: str, sizes: Sequence[int | str], axes: Mapping[int, str]) -> list[int | str]:
    """The sizes of an input with the names that ``dynamic_axes`` has for some."""
    named: dict[int, str] = {}
    for axis, size in axes.items():
        if not -len(sizes) <= axis < len(sizes):
            raise InvalidArgumentError(f'invalid argument: dynamic_axes names dimension {axis} of "{name}", which is {list(sizes)}')
        if named.setdefault(axis % len(sizes), size) != size:
            raise InvalidArgumentError(f'invalid argument: dynamic_axes names dimension {axis} of "{name}" twice')
    return [named.get(axis, size) for axis, size in enumerate(sizes)]


def check_is_one(sizes: Sizes, shown: Mapping[str, Sequence[int]]) -> None:
    """Raises ShapeMismatchError where dimensions of one name differ in size.

    Args:
        sizes: of each input ``[…]``, or their names.
        shown: the shapes ``[…]`` of the arrays that were given for some.
    """
    first: dict[str, tuple[int, str, int]] = {}
    dims = ((name, axis, size) for name, shape in shown.items() for axis, size in enumerate(shape))
    for name, axis, size in dims:
        named = sizes[name][axis]
        if isinstance(named, int):
            continue
        other, of, at = first.setdefault(named, (size, name, axis))
        if other != size:
            raise ShapeMismatchError(
                f'shape mismatch: "{named}" is dimension {at} of "{of}", of size {other}, and dimension {axis} of "{name}", of '
                f"size {size}: dimensions of one name have one size; give them two"
            )


def advice_on_sizes(error: str, sizes: Sizes, shown: Mapping[str, Sequence[int]], as_said: Collection[str]) -> str:
    """What to say behind an error in which shapes do not fit, where it names sizes that may be any.

    Args:
        error: what does not fit, with the names of sizes.
        sizes: of each input ``[…]``, or their names.
        shown: the shapes ``[…]`` of the arrays that were given for some.
        as_said: those of which a file says the sizes, in place of the array.
    """
    dims = [(name, axis, size) for name, each in sizes.items() for axis, size in enumerate(each)]
    found = [dim for dim in dims if isinstance(dim[2], str) and is_in(error, dim[2])]
    shapes = re.findall(r"\[[^\]]*\]", error)
    for name, axis, size in found:
        unlike = " ".join(shape for shape in shapes if not is_in(shape, size))  # in which a size may be that does not fit
        others = [dim for dim in dims if dim[0] != name and is_in(unlike, dim[2]) and may_be_one((name, axis), dim[:2], shown)]
        if others:
            return advice((name, axis, str(size)), others)
    of_file = [dim for dim in found if dim[0] in as_said]
    if of_file:
        name, axis, size = of_file[0]
        given = f"dynamic_axes={{{name!r}: {{}}}}" if name in shown else f"inputs={{{name!r}: …}}, dynamic_axes={{{name!r}: {{}}}}"
        return f'; the file of the net leaves "{size}" open, dimension {axis} of "{name}": {given} takes the sizes of its array'
    return ""


def is_in(text: str, size: int | str) -> bool:
    return re.search(rf"(?<!\w){re.escape(str(size))}(?!\w)", text) is not None


def may_be_one(a: tuple[str, int], b: tuple[str, int], shown: Mapping[str, Sequence[int]]) -> bool:
    """Whether two dimensions are of one size in the arrays that were given, if there are any for both."""
    found = {shown[name][axis] for name, axis in (a, b) if name in shown}
    return len(found) < 2


def advice(dim: tuple[str, int, str], others: Sequence[tuple[str, int, int | str]]) -> str:
    name, axis, size = dim
    other, at, _ = others[0]
    taken = {each for _, _, each in others}
    shared = size if size.isidentifier() and "_dynamic_axes_" not in size else next(each for each in "BNM" if each not in taken)
    example = f"{{{name!r}: {{{axis}: {shared!r}}}, {other!r}: {{{at}: {shared!r}}}}}"
    candidates = " or ".join(f'dimension {a} of "{each}"' for each, a, _ in others)
    return (
        f'; "{size}" is a size of its own, that of dimension {axis} of "{name}": if {candidates} is always as large, '
        f"give both one name, as dynamic_axes={example}"
    )
