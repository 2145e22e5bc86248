"""What each operator of ONNX is that takes the mean from elements and divides them by their deviation."""

from __future__ import annotations

from typing import Sequence

from .axes import given_axis
from .nodes import node
from .scope import Node, Unsupported


@node("BatchNormalization")
def batch_normalization(n: Node) -> Sequence[str]:
    """With the statistics that it was trained with: a factor and a term for each channel, dimension 1."""
    if n.attribute("training_mode", 0):
        raise Unsupported("training_mode is 1; 0 is read")
    n.attribute("momentum")  # says how statistics change in training
    x, scale, bias, mean, variance = n.blobs()
    epsilon = n.number(n.attribute("epsilon", 1e-5), n.dtype(4))
    factor = n.emit("Div", scale, n.emit("Sqrt", n.emit("Add", variance, epsilon)))
    term = n.emit("Sub", bias, n.emit("Mul", mean, factor))
    if n.rank() > 2:
        dims = list(range(1, n.rank() - 1))
        factor, term = (n.emit("ExpandDims", each, dims=dims) for each in (factor, term))
    return [n.emit("Add", n.emit("Mul", x, factor), term)]


def check_stash_type(n: Node) -> None:
    if n.attribute("stash_type", 1) != 1:
        raise Unsupported(f"stash_type is {n.attributes['stash_type']}; 1 is read")


def normalized(n: Node, x: str, axis: int) -> list[str]:
    """``x``, the means and the deviations, in which dimensions from ``axis`` on are one."""
    return n.net.emit_all("LayerNorm", [x], 3, axis=axis, epsilon=n.attribute("epsilon", 1e-5))


def scaled_channels(n: Node, y: str, behind: int) -> str:
    """Times a factor and plus a term for each channel, which has so many dimensions behind it."""
    scale, bias = (n.net.expanded(n.blob(i), list(range(1, behind + 1))) for i in (1, 2))
    return n.emit("Add", n.emit("Mul", y, scale), bias)


@node("InstanceNormalization")
def instance_normalization(n: Node) -> Sequence[str]:
    """A layer norm of each channel, dimension 1."""
    y, *_ = normalized(n, n.blob(0), 2)
    return [scaled_channels(n, y, n.rank() - 2)]


@node("GroupNormalization")
def group_normalization(n: Node) -> Sequence[str]:
    """A layer norm of each group of channels, which before opset 21 has one factor and term for all of them."""
    check_stash_type(n)
    x, groups, channels = n.blob(0), int(n.attribute("num_groups")), n.shape(0)[1]
    if groups < 1 or (channels is not None and channels % groups != 0):
        of = "its channels" if channels is None else f"its {channels} channels"
        raise Unsupported(f"num_groups is {groups}; it must divide {of}")
    y, *_ = normalized(n, n.emit("Reshape", x, shape=[0, groups, -1]), 2)
    if n.opset < 21:
        y = scaled_channels(n, y, 1)
    y = n.emit("Reshape", y, n.emit("Shape", x))
    return [y if n.opset < 21 else scaled_channels(n, y, n.rank() - 2)]


@node("LayerNormalization")
def layer_normalization(n: Node) -> Sequence[str]:
    check_stash_type(n)
    axis = given_axis(n, -1)
    y, mean, deviation = normalized(n, n.blob(0), axis)
    scale = n.constant(1)
    if scale is None or n.scope.is_initializer(n.tensors[1]) or not (scale == 1).all():
        y = n.emit("Mul", y, n.blob(1))
    y = n.emit("Add", y, n.blob(2)) if n.has(2) else y
    if not (n.gives(1) or n.gives(2)):
        return [y]
    ones = list(range(axis % n.rank() + 1, n.rank()))  # ours have one dimension for all that they are of
    of_rows = (n.net.expanded(each, ones) for each in (mean, n.emit("Reciprocal", deviation)))
    return [y, *(each if n.dtype() == "float32" else n.emit("Cast", each, to="float") for each in of_rows)]
