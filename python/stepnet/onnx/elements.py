"""What each operator of ONNX is that takes elements or rows by their numbers: they are rows of what is laid out flat."""

from __future__ import annotations

from typing import Sequence

from .axes import check_axis, given_axis
from .moves import from_start, size_of
from .nodes import node
from .places import along, numbers_along, places
from .scope import Node, Unsupported

NUMBERS = "float64"
"""In which numbers of rows are exact up to 2^53."""


def counted(n: Node, indices: str, axis: int) -> str:
    """Indices of a dimension, counted from its start: those of a table of its places, so that the run names one that is beyond it."""
    return n.emit("Gather", numbers_along(n, axis), from_start(n, indices, axis))


def rows_at(n: Node, rows: str, numbers: Sequence[str]) -> str:
    """The rows that have these numbers in the first dimensions of input 0, which ``rows`` has as one."""
    first, *others = numbers
    for axis, number in enumerate(others, 1):
        first = n.emit("Add", n.emit("Mul", first, size_of(n, axis, NUMBERS)), number)
    return n.emit("Gather", rows, n.emit("Cast", first, to="int64"))


def places_of_indices(n: Node, axis: int, rank: int, is_whole: bool) -> str:
    """The places along a dimension of the indices, dimension ``axis`` of ``rank``, which are those of the data, or the first of them."""
    of_data, of_indices = n.shape(0)[axis], n.shape(1)[axis]
    must_be = "as large as" if is_whole else "at most as large as"
    if of_data is not None and of_indices is not None:
        if of_indices > of_data or (is_whole and of_indices < of_data):
            raise Unsupported(f"dimension {axis} of its indices is {of_indices}; it must be {must_be} that of its data, {of_data}")
        return places(n, axis, rank, axis, 1)
    checked = n.net.names.unique(f"{n.tensors[1]}, whose dimension {axis} must be {must_be} that of {n.tensors[0]}")
    numbers, table = numbers_along(n, axis, 1), numbers_along(n, axis)
    if is_whole:
        n.net.add("ResizeLike", [numbers, table], [checked])
    else:
        n.net.add("Gather", [table, n.emit("Cast", numbers, to="int64")], [checked])
    return along(n, checked, axis, rank)


@node("GatherElements")
def gather_elements(n: Node) -> Sequence[str]:
    rank = n.rank()
    if n.rank(1) != rank:
        raise Unsupported(f"its indices have {n.rank(1)} dimensions; they must have {rank}, as its data")
    axis = given_axis(n, 0) % rank
    given = counted(n, n.blob(1), axis)
    numbers = [given if each == axis else places_of_indices(n, each, rank, is_whole=False) for each in range(rank)]
    return [rows_at(n, n.emit("Reshape", n.blob(0), shape=[-1]), numbers)]


@node("GatherND")
def gather_nd(n: Node) -> Sequence[str]:
    """Behind ``batch_dims`` dimensions, which both have, the last one of the indices has the numbers in those that follow."""
    batch, rank, count = n.attribute("batch_dims", 0), n.rank(), n.shape(1)[-1]
    if count is None:
        raise Unsupported("the last size of its indices is not known")
    check_axis(n, batch + count - 1, "number of indices, less 1,", rank)
    last = n.rank(1) - 1
    numbers = [places_of_indices(n, each, last, is_whole=True) for each in range(batch)]
    for i in range(count):
        part = n.emit("Slice", n.blob(1), starts=[0] * last + [i], ends=[-1] * last + [i + 1])
        numbers.append(counted(n, n.emit("Squeeze", part, dims=[last]), batch + i))
    behind = n.shape(0)[batch + count :]
    if None not in behind:
        return [rows_at(n, n.emit("Reshape", n.blob(0), shape=[-1, *(size or 0 for size in behind)]), numbers)]
    sizes = n.emit("Shape", n.blob(0), axes=list(range(batch + count, rank)))
    shape = n.net.emit_all("Concat", [n.fixed([-1]), sizes], 2, axis=0)[0]
    return [rows_at(n, n.emit("Reshape", n.blob(0), shape), numbers)]
