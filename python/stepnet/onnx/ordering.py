"""Orders of the elements of a tensor of one dimension, as packed sequences of PyTorch need them.

They follow from comparing each element with each other: sorting has no operator of its own. For a batch that is little.
"""

from __future__ import annotations

from typing import Sequence

from .axes import from_front, given_axis
from .nodes import checked_part, node
from .scope import Node, Unsupported

NUMBERS = "float64"
"""In which sums of positions are exact."""


def numbers_of(n: Node, x: str) -> str:
    """The numbers of the elements of a tensor of one dimension, from 0 on."""
    return n.emit("RangeFill", n.emit("Shape", x), input_as_shape=1, dtype=13)


def column(n: Node, x: str) -> str:
    return n.emit("ExpandDims", x, dims=[1])


def row(n: Node, x: str) -> str:
    return n.emit("ExpandDims", x, dims=[0])


def places(n: Node, x: str) -> str:
    """Where each element stands when the greatest is first, and of equal ones the one that was."""
    numbers = numbers_of(n, x)
    is_earlier = n.emit("And", n.emit("EQ", row(n, x), column(n, x)), n.emit("LT", row(n, numbers), column(n, numbers)))
    is_before = n.emit("Or", n.emit("GT", row(n, x), column(n, x)), is_earlier)
    return n.emit("ReduceSum", n.emit("Cast", is_before, to="double"), axes=[1], keepdims=0)


def sorted_whole(n: Node, x: str, k: int | None) -> list[str]:
    """The ``k`` greatest elements of ``x``, or all, from the greatest on, and where they were."""
    at = n.emit("Cast", places(n, x), to="int64")
    numbers = n.emit("Cast", numbers_of(n, x), to="int64")
    order = n.emit("ScatterElements", numbers, at, numbers)
    if k is not None:
        order = n.emit("Slice", order, starts=[0], ends=[k])
    return [n.emit("Gather", x, order), order]


def is_size_of(n: Node, name: str, x: str) -> bool:
    """Whether a tensor is the size of ``x``, which has one dimension."""
    while True:
        producer = n.scope.producer(name)
        if producer is None:
            return False
        if producer.op_type in ("Shape", "Size"):
            return producer.input[0] == x
        if producer.op_type not in ("Cast", "Gather", "Identity", "Reshape", "Squeeze", "Unsqueeze"):
            return False
        name = producer.input[0]


@node("TopK")
def top_k(n: Node) -> Sequence[str]:
    if n.attribute("largest", 1):
        return best_of(n, n.blob(0))
    values, places = best_of(n, in_other_order(n, n.blob(0)))  # of equal elements the first in both
    return [in_other_order(n, values), places]


def in_other_order(n: Node, x: str) -> str:
    """Elements of which the greatest is that of the least of ``x``, which has the dtype of input 0. Twice it is ``x``."""
    dtype = n.dtype()
    if dtype in ("int32", "int64"):  # whose least number has no negative
        return n.emit("Sub", n.number(-1, dtype), x)
    if dtype not in ("float32", "float64"):
        raise Unsupported(f"largest is 0, of {dtype}; that is read of float32, float64, int32 and int64")
    return n.emit("Negative", x)


def best_of(n: Node, x: str) -> Sequence[str]:
    """The greatest elements of ``x``, which is as input 0, and where they were."""
    n.attribute("sorted")
    dtype, shape, axis = n.dtype(), n.scope.shape(n.tensors[0]), given_axis(n, -1)
    if shape is not None and len(shape) == 1 and n.has(1) and is_size_of(n, n.tensors[1], n.tensors[0]):
        return sorted_whole(n, x, None)
    k = int(n.needed(1, "k").item()) if n.has(1) else n.attribute("k")
    size = None if shape is None else shape[axis]
    if k is None or k < 1 or (size is not None and k > size):
        most = "at least 1" if size is None else f"from 1 to {size}, the size of dimension {axis}"
        raise Unsupported(f"its k is {k}; it must be {most}")
    if dtype not in ("float32", "float64"):
        if shape is None or len(shape) != 1 or size is None:
            raise Unsupported(f'its input "{n.tensors[0]}" is {dtype}, of which TopK is read for one dimension of known size')
        return sorted_whole(n, x, k)
    found = n.net.emit_all("TopK", [x], 2, k=k, axis=axis)
    return found if size is not None else [checked_part(n, x, blob, k, *from_front(n, [axis])) for blob in found]
