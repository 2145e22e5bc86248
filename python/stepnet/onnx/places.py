"""What each operator of ONNX is that counts, or tells elements apart by their places: triangles, diagonals, sums up to one."""

from __future__ import annotations

import math
from typing import Sequence

import numpy

from .axes import check_axis, from_front
from .constants import LARGEST
from .nodes import node
from .scope import Node, Unsupported


def counted(n: Node, count: str | int) -> str:
    """The numbers 0, 1, … float64: so many of them, or what a blob of one element says."""
    if isinstance(count, str):
        return n.emit("RangeFill", count, input_as_shape=1, dtype=13)
    return n.emit("RangeFill", shape=[count], dtype=13)


def numbers_along(n: Node, axis: int, i: int = 0) -> str:
    """The numbers 0, 1, … along a dimension of an input, float64."""
    size = n.shape(i)[axis]
    return counted(n, n.emit("Shape", n.blob(i), axes=[axis]) if size is None else size)


def along(n: Node, numbers: str, at: int, rank: int) -> str:
    """Numbers as dimension ``at`` of ``rank``, of which others are 1."""
    return n.net.expanded(numbers, [each for each in range(rank) if each != at])


def places(n: Node, axis: int, rank: int, at: int, i: int = 0) -> str:
    """The places 0, 1, … along a dimension of an input, float64: as dimension ``at`` of ``rank``, of which others are 1."""
    size = n.shape(i)[axis]
    if size is not None and size <= LARGEST:
        return n.fixed(numpy.arange(size, dtype="float64").reshape([size if each == at else 1 for each in range(rank)]))
    return along(n, numbers_along(n, axis, i), at, rank)


def kept(n: Node, x: str, mask: str, dtype: str) -> str:
    """``x`` where the mask is true, otherwise 0."""
    return n.emit("And", x, mask) if dtype == "bool" else n.emit("Where", mask, x, n.number(0, dtype))


@node("Range")
def number_range(n: Node) -> Sequence[str]:
    given = [n.constant(i) for i in range(3)]
    start, limit, delta = (None if each is None else each.item() for each in given)
    is_finite = all(each is None or math.isfinite(each) for each in (start, limit))
    if not is_finite or (delta is not None and (delta == 0 or math.isnan(delta))):
        texts = ("?" if each is None else str(each) for each in (start, limit, delta))
        raise Unsupported(f"its start, limit and delta are {', '.join(texts)}; both must be finite, and delta a number other than 0")
    dtype = n.dtype()
    numbers = [n.blob(i) if each is None else n.number(each.item(), dtype) for i, each in enumerate(given)]
    if dtype != "int16":
        return [n.emit("Range", *numbers)]
    return [n.emit("Cast", n.emit("Range", *(n.emit("Cast", each, to="int32") for each in numbers)), to=dtype)]


@node("OneHot")
def one_hot(n: Node) -> Sequence[str]:
    """Where the place along the new dimension is the index; one that is beyond ``depth`` is nowhere."""
    depth, values, rank = int(n.needed(1, "depth").item()), n.constant(2), n.rank()
    axis = check_axis(n, n.attribute("axis", -1), rank=rank + 1) % (rank + 1)
    if depth < 1:
        raise Unsupported(f"its depth is {depth}; it must be from 1 on")
    indices = n.blob(0) if n.dtype() == "int64" else n.emit("Cast", n.blob(0), to="int64")
    from_end = n.emit("Add", indices, n.number(depth, "int64"))
    indices = n.emit("Where", n.emit("LT", indices, n.number(0, "int64")), from_end, indices)
    numbers = n.emit("Cast", counted(n, depth), to="int64")
    is_there = n.emit("EQ", n.net.expanded(indices, [axis]), n.net.expanded(numbers, list(range(1, rank + 1 - axis))))
    if values is not None:
        off, on = (n.number(each, n.dtype(2)) for each in values.tolist())
    else:
        off, on = (n.emit("Squeeze", n.emit("Slice", n.blob(2), starts=[i], ends=[i + 1]), dims=[0]) for i in range(2))
    return [n.emit("Where", is_there, on, off)]


@node("Trilu")
def trilu(n: Node) -> Sequence[str]:
    above = int(n.needed(1, "k").item()) if n.has(1) else 0
    is_upper, x, rank = bool(n.attribute("upper", 1)), n.constant(0), n.rank()
    if x is not None and not n.scope.is_initializer(n.tensors[0]):
        return [n.fixed((numpy.triu if is_upper else numpy.tril)(x, above))]
    rows = n.emit("Add", places(n, rank - 2, 2, 0), n.number(above, "float64"))
    mask = n.emit("LE" if is_upper else "GE", rows, places(n, rank - 1, 2, 1))
    return [kept(n, n.blob(0), mask, n.dtype())]


@node("CumSum")
def cum_sum(n: Node) -> Sequence[str]:
    """The product with a triangle of ones."""
    (axis,) = from_front(n, [int(n.needed(1, "axis").item())], name="axis")
    compare = {0: "LE", 1: "LT"}[n.attribute("exclusive", 0)]
    dtype, rank = n.dtype(), n.rank()
    order = [i for i in range(rank) if i != axis] + [axis]
    back = [order.index(i) for i in range(rank)]
    x = n.blob(0)
    rows, columns = places(n, axis, 2, 0), places(n, axis, 2, 1)
    summed = n.emit(compare, *((columns, rows) if n.attribute("reverse", 0) else (rows, columns)))
    in_double = not dtype.startswith("float")  # in which whole numbers are exact up to 2^53
    floats = "double" if in_double or dtype == "float64" else "float"
    if in_double:
        x = n.emit("Cast", x, to="double")
    if order != back or axis != rank - 1:
        x = n.emit("Transpose", x, axes=order)
    y = n.emit("FCTransposed", x, n.emit("Cast", summed, to=floats), axis=-1)
    if axis != rank - 1:
        y = n.emit("Transpose", y, axes=back)
    return [n.emit("Cast", y, to=dtype) if in_double else y]


def diagonal(n: Node, i: int, x: str, rank: int, first: int, second: int, axis: int) -> str:
    """Of dimensions ``first`` and ``second`` of a blob, which are as long as dimension ``axis`` of input ``i``; it is the first
    of them."""
    rows, columns = (places(n, axis, rank, at, i) for at in (first, second))
    on_diagonal = kept(n, x, n.emit("EQ", rows, columns), n.dtype(i))
    return n.emit("ReduceSum", on_diagonal, axes=[second], keepdims=0)
