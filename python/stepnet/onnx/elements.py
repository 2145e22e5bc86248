"""What each operator of ONNX is that takes elements or rows by their numbers: they are rows of what is laid out flat."""

from __future__ import annotations

from typing import Sequence

from .axes import check_axis, given_axis
from .nodes import node
from .places import places
from .scope import Node, Unsupported

NUMBERS = "float64"
"""In which numbers of rows are exact up to 2^53."""


def size_of(n: Node, axis: int) -> str:
    """A size of input 0, a scalar."""
    size = n.shape(0)[axis]
    if size is not None:
        return n.number(size, NUMBERS)
    return n.emit("Squeeze", n.emit("Cast", n.emit("Shape", n.blob(0), axes=[axis]), to="double"), dims=[0])


def counted(n: Node, indices: str, axis: int) -> str:
    """Indices of a dimension, counted from its start. One that is beyond it becomes none of any row, which the run refuses."""
    size = size_of(n, axis)
    from_start = n.emit("Where", n.emit("LT", indices, n.number(0, NUMBERS)), n.emit("Add", indices, size), indices)
    is_there = n.emit("And", n.emit("GE", from_start, n.number(0, NUMBERS)), n.emit("LT", from_start, size))
    return n.emit("Where", is_there, from_start, n.number(-(2.0**53), NUMBERS))


def rows_at(n: Node, rows: str, numbers: Sequence[str]) -> str:
    """The rows that have these numbers in the first dimensions of input 0, which ``rows`` has as one."""
    first, *others = numbers
    for axis, number in enumerate(others, 1):
        first = n.emit("Add", n.emit("Mul", first, size_of(n, axis)), number)
    return n.emit("Gather", rows, n.emit("Cast", first, to="int64"))


@node("GatherElements")
def gather_elements(n: Node) -> Sequence[str]:
    rank = n.rank()
    if n.rank(1) != rank:
        raise Unsupported(f"its indices have {n.rank(1)} dimensions; they must have {rank}, as its data")
    axis = given_axis(n, 0) % rank
    given = counted(n, n.emit("Cast", n.blob(1), to="double"), axis)
    numbers = [given if each == axis else places(n, each, rank, each, 1) for each in range(rank)]
    return [rows_at(n, n.emit("Reshape", n.blob(0), shape=[-1]), numbers)]


@node("GatherND")
def gather_nd(n: Node) -> Sequence[str]:
    """Behind ``batch_dims`` dimensions, which both have, the last one of the indices has the numbers in those that follow."""
    batch, rank, count = n.attribute("batch_dims", 0), n.rank(), n.shape(1)[-1]
    if count is None:
        raise Unsupported("the last size of its indices is not known")
    check_axis(n, batch + count - 1, "number of indices, less 1,", rank)
    last = n.rank(1) - 1
    numbers = [places(n, each, last, each, 1) for each in range(batch)]
    indices = n.emit("Cast", n.blob(1), to="double")
    for i in range(count):
        part = n.emit("Slice", indices, starts=[0] * last + [i], ends=[-1] * last + [i + 1])
        numbers.append(counted(n, n.emit("Squeeze", part, dims=[last]), batch + i))
    behind = n.shape(0)[batch + count :]
    if None not in behind:
        return [rows_at(n, n.emit("Reshape", n.blob(0), shape=[-1, *(size or 0 for size in behind)]), numbers)]
    sizes = n.emit("Shape", n.blob(0), axes=list(range(batch + count, rank)))
    shape = n.net.emit_all("Concat", [n.fixed([-1]), sizes], 2, axis=0)[0]
    return [rows_at(n, n.emit("Reshape", n.blob(0), shape), numbers)]
