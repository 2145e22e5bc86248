"""Pools of ONNX: dimension after dimension, of slices that begin one place after the other."""

from __future__ import annotations

import math
from functools import reduce
from typing import Sequence

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
    x = n.blob(0)
    for axis, size, stride, dilation, before, behind in zip(range(2, 2 + count), kernel, strides, dilations, pads, pads[count:]):
        x = padded(n, x, shape, axis, before, behind, "constant", -math.inf if is_max else 0.0)
        reach = dilation * (size - 1)
        starts = range(0, reach + 1, dilation)
        slices = [cut(n, x, axis, start, start - reach if start < reach else LAST, stride) for start in starts]
        x = n.emit("Max", *slices) if is_max else reduce(lambda a, b: n.emit("Add", a, b), slices)
        shape[axis] = None
    return [x if is_max else n.emit("Scale", x, scale=1.0 / math.prod(kernel))]


@node("GlobalMaxPool", "GlobalAveragePool")
def global_pool(n: Node) -> Sequence[str]:
    axes = list(range(2, n.rank()))
    if n.type == "GlobalMaxPool":
        return [of_rows(n, "ReduceMax", axes, 1)]
    return [n.emit("ReduceMean", n.blob(0), axes=axes, keepdims=1)]
