"""Pools of ONNX: dimension after dimension, of slices that begin one place after the other; of large windows, of pools of
half the size."""

from __future__ import annotations

import math
from functools import reduce
from typing import Callable, Iterable, Sequence

from .graph import LAST
from .nodes import conv_pads, node, of_rows
from .pads import cut, padded
from .scope import Node, Unsupported


@node("MaxPool", "AveragePool")
def pool(n: Node) -> Sequence[str]:
    is_max, shape = n.type == "MaxPool", n.shape(0)
    kernel = n.attribute("kernel_shape")
    count = len(kernel)
    n.attribute("storage_order")  # of the second output
    if n.gives(1):
        raise Unsupported("its second output, the places, is not read")
    if n.attribute("ceil_mode", 0):
        raise Unsupported("ceil_mode is 1; 0 is read")
    strides, dilations = (n.attribute(name) or [1] * count for name in ("strides", "dilations"))
    pads = conv_pads(n, count, kernel, strides, dilations)
    if not is_max and any(pads) and not n.attribute("count_include_pad", 0):
        raise Unsupported(f"its pads are {pads}, which its means leave out; without pads, or with count_include_pad=1, it is read")
    n.attribute("count_include_pad")
    check_positive(n, kernel_shape=kernel, strides=strides, dilations=dilations)

    def joined(*parts: str) -> str:
        return n.emit("Max", *parts) if is_max else reduce(lambda a, b: n.emit("Add", a, b), parts)

    x = n.blob(0)
    for axis, size, stride, dilation, before, behind in zip(range(2, 2 + count), kernel, strides, dilations, pads, pads[count:]):
        x = padded(n, x, shape, axis, before, behind, "constant", -math.inf if is_max else 0.0)
        places, has = dilation * (size - 1) + 1, shape[axis]
        if has is not None and has < places:
            raise Unsupported(f"its window covers {places} places of dimension {axis}, which has {has}{' with its pads' if before or behind else ''}")
        y = over_windows(n, joined, x, axis, size, stride, dilation, places - 1)
        x = y if has is not None else at_least_one(n, y, x, axis, places, stride)
        shape[axis] = None
    return [x if is_max else n.emit("Scale", x, scale=1.0 / math.prod(kernel))]


def check_positive(n: Node, **given: Sequence[int]) -> None:
    for name, values in given.items():
        if min(values) < 1:
            raise Unsupported(f"its {name} is {list(values)}; each must be at least 1")


LARGEST_DIRECT = 8
"""The places of a window that are taken one by one."""


def over_windows(
    n: Node, joined: Callable[..., str], x: str, axis: int, size: int, stride: int, dilation: int, reach: int
) -> str:
    """What ``joined`` makes of ``size`` places, each ``dilation`` behind the one before, of windows that reach so far."""

    def places(numbers: Iterable[int], stride: int, reach: int) -> list[str]:
        """Those of these numbers in each window."""
        starts = (dilation * number for number in numbers)
        return [cut(n, x, axis, start, start - reach if start < reach else LAST, stride) for start in starts]

    if size <= LARGEST_DIRECT:
        return joined(*places(range(size), stride, reach))
    pairs = joined(*places(range(2), 1, dilation))
    y = over_windows(n, joined, pairs, axis, size // 2, stride, 2 * dilation, reach - dilation)
    return joined(y, *places([size - 1], stride, reach)) if size % 2 else y


def at_least_one(n: Node, y: str, x: str, axis: int, places: int, stride: int) -> str:
    """``y``, which has a place for each window of ``x``. The run is an error where there is none, as then this has one more:
    a slice that goes backward from before the first place takes that one."""
    starts, ends, steps = ([each] * axis + [last] for each, last in ((0, -places), (LAST, -LAST), (1, -stride)))
    windows = n.net.names.unique(f"{n.outputs[0]}: one window at least, of {places} places of dimension {axis}")
    n.net.add("Slice", [x], [windows], starts=starts, ends=ends, steps=steps)
    return n.emit("ResizeLike", y, windows)


@node("GlobalMaxPool", "GlobalAveragePool")
def global_pool(n: Node) -> Sequence[str]:
    axes = list(range(2, n.rank()))
    if n.type == "GlobalMaxPool":
        return [of_rows(n, "ReduceMax", axes, 1)]
    return [n.emit("ReduceMean", n.blob(0), axes=axes, keepdims=1)]
