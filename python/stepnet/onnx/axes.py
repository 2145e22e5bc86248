"""Dimensions that nodes name by numbers, which may count from the end: they are those of a tensor, each once."""

from __future__ import annotations

from typing import Sequence

from .scope import Node, Unsupported

MAX_RANK = 8
"""Dimensions that our tensors have at most."""


def check_axis(n: Node, axis: int, name: str = "axis", rank: int | None = None, past: int = 0) -> int:
    """The dimension as it is given.

    Args:
        rank: of the tensor; None where it is not known.
        past: 1 where the place behind the last dimension is one, too.
    """
    max_rank = MAX_RANK if rank is None else rank
    if not -max_rank <= axis < max_rank + past:
        known = f"as tensors of up to {MAX_RANK} are read" if rank is None else f"of its tensor of {rank} dimensions"
        what = f"one of its {name}" if name.endswith("axes") else f"its {name}"
        raise Unsupported(f"{what} is {axis}; it must be from {-max_rank} to {max_rank + past - 1}, {known}")
    return axis


def given_axis(n: Node, default: int, i: int = 0, past: int = 0) -> int:
    """The attribute ``axis``, of input ``i``, as it is given."""
    return check_axis(n, n.attribute("axis", default), "axis", known_rank(n, i), past)


def known_rank(n: Node, i: int = 0) -> int | None:
    shape = n.scope.shape(n.tensors[i]) if n.has(i) else None
    return None if shape is None else len(shape)


def check_axes(n: Node, axes: Sequence[int], name: str = "axes", more: int = 0, i: int = 0) -> None:
    """The dimensions are those of a tensor that has ``more`` than input ``i``, each once."""
    found = known_rank(n, i)
    rank = None if found is None else found + more
    for axis in axes:
        check_axis(n, axis, name, rank)
    counted = [axis + rank if rank is not None and axis < 0 else axis for axis in axes]
    if len(set(counted)) < len(counted):
        raise Unsupported(f"its {name} are {list(axes)}, which name a dimension twice")


def from_front(n: Node, axes: Sequence[int], more: int = 0, name: str = "axes") -> list[int]:
    """Dimensions counted from the front; the tensor that they are of has ``more`` than the input."""
    check_axes(n, axes, name, more)
    counted = [axis if axis >= 0 else axis + n.rank() + more for axis in axes]
    check_axes(n, counted, name, more)
    return counted


def without_repeats(n: Node, axes: Sequence[int]) -> list[int]:
    """Dimensions of the input, each once, where a node may name one twice."""
    rank, kept = known_rank(n), dict[int, int]()
    for axis in axes:
        check_axis(n, axis, "axes", rank)
        kept.setdefault(axis + rank if rank is not None and axis < 0 else axis, axis)
    return list(kept.values())
