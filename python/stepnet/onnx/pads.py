"""Pad of ONNX."""

from __future__ import annotations

from typing import Sequence

import numpy

from .axes import from_front
from .graph import LAST
from .moves import filled_to, filled_with
from .nodes import node
from .scope import Node, Unsupported


@node("Pad")
def pad(n: Node) -> Sequence[str]:
    """Dimension after dimension: elements are taken away, then others are set before and behind."""
    mode, pads = n.attribute("mode", "constant"), n.axes(1, "pads")
    if mode not in ("constant", "edge", "reflect") or pads is None:
        raise Unsupported(f"its mode is {mode!r}; constant, edge and reflect, with pads, are read")
    value = n.needed(2, "its value").item() if n.has(2) else n.attribute("value", 0.0)
    axes, shape, x = from_front(n, n.axes(3) or range(len(pads) // 2)), n.shape(0), n.blob(0)
    if len(pads) != 2 * len(axes):
        raise Unsupported(f"it has {len(pads)} pads; it must have two for each of {len(axes)} dimensions")
    for axis, before, behind in zip(axes, pads, pads[len(axes) :]):
        x = padded(n, x, shape, axis, before, behind, mode, value)
    return [n.emit("Copy", x) if x == n.blob(0) else x]


def padded(
    n: Node, x: str, shape: list[int | None], axis: int, before: int, behind: int, mode: str, value: float
) -> str:
    """``x``, of the dtype of input 0, with one dimension longer or shorter at its ends; its shape becomes that, too."""
    if min(before, behind) < 0:
        x = cut(n, x, axis, max(-before, 0), min(behind, 0) or LAST)
    size = shape[axis]
    shape[axis] = left = None if size is None else size + min(before, 0) + min(behind, 0)
    if left is not None and left < 0:
        raise Unsupported(f"it takes {-min(before, 0) - min(behind, 0)} elements away from dimension {axis}, which has {size}")
    if mode == "edge" and left == 0 and max(before, behind) > 0:
        raise Unsupported(f"its mode is 'edge', and dimension {axis} has no elements")
    if mode == "reflect":
        check_reflected(axis, max(before, behind), left)
    parts = [x]
    if before > 0:
        parts.insert(0, padding(n, x, shape, axis, before, mode, value, 1))
    if behind > 0:
        parts.append(padding(n, x, shape, axis, behind, mode, value, -1))
    shape[axis] = None if size is None else size + before + behind
    return n.net.emit_all("Concat", parts, 2, axis=axis)[0] if len(parts) > 1 else x


def cut(n: Node, x: str, axis: int, start: int, end: int, step: int = 1) -> str:
    """A slice of one dimension."""
    starts, ends, steps = ([each] * axis + [last] for each, last in ((0, start), (LAST, end), (1, step)))
    return n.emit("Slice", x, starts=starts, ends=ends, steps=steps)


def check_reflected(axis: int, count: int, size: int | None) -> None:
    """A row beyond the reflected ones has nothing to be."""
    if count <= 0:
        return
    if size is None:
        raise Unsupported(f"its mode is 'reflect', and the size of dimension {axis} is not known")
    if count >= size:
        raise Unsupported(f"its mode is 'reflect', and it pads dimension {axis} by {count}; it must be less than its size, {size}")


def padding(
    n: Node, x: str, shape: Sequence[int | None], axis: int, count: int, mode: str, value: float, side: int
) -> str:
    """``count`` elements of a dimension for the front of ``x``, side 1, or its end, side -1."""
    if mode == "edge":
        edge = cut(n, x, axis, 0, 1) if side == 1 else cut(n, x, axis, -1, LAST)
        return n.emit("Tile", edge, tiles=count, axis=axis) if count > 1 else edge
    if mode == "reflect":
        return cut(n, x, axis, count, 0, -1) if side == 1 else cut(n, x, axis, -2, -2 - count, -1)
    sizes = [count if i == axis else size for i, size in enumerate(shape)]
    if all(size is not None for size in sizes):
        return filled_with(n, [size or 0 for size in sizes], value, n.dtype())
    parts = [n.fixed(numpy.array([size])) if size is not None else n.emit("Shape", x, axes=[i]) for i, size in enumerate(sizes)]
    return filled_to(n, n.net.emit_all("Concat", parts, 2, axis=0)[0] if len(parts) > 1 else parts[0], value, n.dtype())
