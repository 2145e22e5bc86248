"""What each operator of ONNX is that moves elements, makes them, or tells of shapes."""

from __future__ import annotations

from typing import Sequence

import numpy
import onnx

from .axes import MAX_RANK, from_front, given_axis, known_rank, without_repeats
from .graph import LAST
from .netdef import CODES, NetText
from .nodes import node
from .scope import Node, Unsupported


@node("Transpose")
def transpose(n: Node) -> Sequence[str]:
    order, rank = n.attribute("perm", []), known_rank(n)
    if order and sorted(order) != list(range(len(order) if rank is None else rank)):
        of = "its input" if rank is None else f"its input of {rank} dimensions"
        raise Unsupported(f"its perm is {list(order)}; it must name each dimension of {of} once")
    order = [*order] or [*range(rank or 0)][::-1]
    if rank is not None and rank > 1 and order == [*range(rank - 2), rank - 1, rank - 2] and n.gives(0):
        n.scope.set_transpose(n.outputs[0], n.blob(0), rank)  # a product may take the matrices themselves
        return []
    return [n.emit("Transpose", n.blob(0), axes=order)]


@node("Flatten")
def flatten(n: Node) -> Sequence[str]:
    axis = given_axis(n, 1, past=1)
    return [n.emit("Flatten", n.blob(0), axis=axis if axis >= 0 else axis + n.rank())]


@node("Squeeze")
def squeeze(n: Node) -> Sequence[str]:
    axes = n.axes(1)
    if not axes:  # onnxruntime takes no axes for none given
        shape = n.shape(0)
        if None in shape:
            raise Unsupported("which sizes of its input are 1 is not known; axes would say it")
        axes = [axis for axis, size in enumerate(shape) if size == 1]
    dims = sorted(from_front(n, without_repeats(n, axes)))
    sizes = n.scope.shape(n.tensors[0])
    are_ones = sizes is not None and all(sizes[dim] == 1 for dim in dims)
    return [n.net.squeezed(n.blob(0), dims) if are_ones else n.emit("Squeeze", n.blob(0), dims=dims)]


@node("Unsqueeze")
def unsqueeze(n: Node) -> Sequence[str]:
    axes = n.axes(1)
    if axes is None:
        raise Unsupported("it has no axes")
    return [n.net.expanded(n.blob(0), sorted(from_front(n, axes, len(axes))))]


@node("Reshape")
def reshape(n: Node) -> Sequence[str]:
    """A size of 0 keeps that of the input in its place, unless allowzero says that it is one."""
    shape = n.constant(1) if n.has(1) else numpy.array(n.attribute("shape", []))
    is_size = int(n.attribute("allowzero", 0))
    if shape is None:
        return [n.emit("Reshape", n.blob(0), n.blob(1), allowzero=is_size)]
    if is_size and 0 in shape:
        sizes = n.scope.shape(n.tensors[0])
        if -1 in shape or not (sizes is None or None in sizes or 0 in sizes):
            raise Unsupported("a size is 0, and allowzero is 1")
    return [n.emit("Reshape", n.blob(0), shape=[int(size) for size in shape], allowzero=is_size)]


@node("Shape")
def shape(n: Node) -> Sequence[str]:
    start, end = n.attribute("start", 0), n.attribute("end")
    if start == 0 and end is None and n.gives(0):
        n.scope.set_unread(n.outputs[0], "Shape", n.blob(0))  # fills may take the tensor itself
        return []
    axes = range(n.rank())[slice(start, end)]
    if not axes:
        return [n.fixed(numpy.zeros(0, "int64"))]
    return [n.emit("Shape", n.blob(0), axes=list(axes))]


@node("Concat")
def concat(n: Node) -> Sequence[str]:
    return n.net.emit_all("Concat", n.blobs(), 2, axis=given_axis(n, 1))[:1]


def check_num_outputs(proto: onnx.NodeProto) -> None:
    """A Split has as many outputs as it says: inference makes as many sizes."""
    for each in proto.attribute:
        if each.name == "num_outputs" and each.i != len(proto.output):
            raise Unsupported(f"num_outputs is {each.i}, but it has {len(proto.output)} outputs")


@node("Split")
def split(n: Node) -> Sequence[str]:
    count, axis = len(n.outputs), given_axis(n, 0)
    parts, num_outputs = n.axes(1, "split"), n.attribute("num_outputs")
    if parts is None and num_outputs is not None:
        shape = n.scope.shape(n.tensors[0])
        size = shape[axis] if shape is not None else None
        if size is not None and size % count != 0:
            part = -(-size // count)  # the last one is what is left
            parts = [part] * (count - 1) + [size - part * (count - 1)]
            if parts[-1] < 0:
                raise Unsupported(f"num_outputs is {count}, and a size of {size} has no parts of {part} for all but the last")
    return n.net.emit_all("Split", [n.blob(0)], count, axis=axis, split=parts or [])


@node("Slice")
def cut(n: Node) -> Sequence[str]:
    steps = n.axes(4, "steps")
    check_lengths(n, steps or [])
    if 0 in (steps or []):
        raise Unsupported(f"its steps are {steps}; a step must not be 0")
    starts, ends = (bounds(n, i, name) for i, name in ((1, "starts"), (2, "ends")))
    count = len(starts) if isinstance(starts, list) else len(ends) if isinstance(ends, list) else n.shape(1)[0]
    axes = from_front(n, n.axes(3) or range(min(count or 0, MAX_RANK + 1)))
    if not axes and count == 0:
        return [n.emit("Copy", n.blob(0))]
    step_of = dict(zip(axes, steps or [1] * len(axes)))
    all_steps = [step_of.get(axis, 1) for axis in range(max(axes) + 1)]
    if isinstance(starts, list) and isinstance(ends, list):
        of_axis = {axis: (start, end) for axis, start, end in zip(axes, starts, ends)}
        pairs = [of_axis.get(axis, (0, LAST)) for axis in range(max(axes) + 1)]
        firsts, pasts = ([pair[i] for pair in pairs] for i in (0, 1))
        return [n.emit("Slice", n.blob(0), starts=firsts, ends=pasts, steps=all_steps)]
    blobs = [of_first_axes(n, i, given, axes) for i, given in ((1, starts), (2, ends))]
    return [n.emit("Slice", n.blob(0), *blobs, steps=all_steps)]


def check_lengths(n: Node, steps: Sequence[int]) -> None:
    """As many starts as ends, and as axes and steps where there are some."""
    counts = {"axes": n.axes(3), "steps": steps or None}
    found: dict[str, int | None] = {name: len(given) for name, given in counts.items() if given is not None}
    for i, name in ((1, "starts"), (2, "ends")):
        shape = n.scope.shape(n.tensors[i]) if n.has(i) else [len(n.attribute(name, []))]
        if shape is None or None in shape:
            continue
        if len(shape) != 1:
            raise Unsupported(f"its {name} are of shape {shape}; they must have one dimension")
        found[name] = shape[0]
    if len(set(found.values())) > 1:
        text = ", ".join(f"{count} {name}" for name, count in found.items())
        raise Unsupported(f"it has {text}; it must have as many of each")


def bounds(n: Node, i: int, name: str) -> list[int] | str:
    """Starts or ends, the blob of those that are no constants."""
    given = n.constant(i) if n.has(i) else numpy.array(n.attribute(name, []))
    return n.blob(i) if given is None else [int(at) for at in given.reshape(-1)]


def of_first_axes(n: Node, i: int, given: list[int] | str, axes: Sequence[int]) -> str:
    """Starts or ends of all dimensions from the first to the last that is cut, as a blob."""
    whole = 0 if i == 1 else (1 << 31) - 1 if n.dtype(i) == "int32" else LAST
    if isinstance(given, list):
        of_axis = dict(zip(axes, given))
        return n.fixed(numpy.array([of_axis.get(axis, whole) for axis in range(max(axes) + 1)], "int64"))
    if list(axes) == list(range(len(axes))):
        return given
    if len(axes) > 1:
        raise Unsupported(f"its bounds are no constants, and its axes are {list(axes)}; one, or the first ones, are read")
    others = n.fixed(numpy.full(axes[0], whole, n.dtype(i)))
    return n.net.emit_all("Concat", [others, given], 2, axis=0)[0]


def turned_around(n: Node, blob: str, rank: int) -> str:
    """Rows in reverse order. Our operator needs a batch."""
    if rank >= 2:
        return n.emit("ReversePackedSegs", blob)
    return n.emit("Squeeze", n.emit("ReversePackedSegs", n.emit("ExpandDims", blob, dims=[1])), dims=[1])


@node("ReverseSequence")
def reverse_sequence(n: Node) -> Sequence[str]:
    time, batch = n.attribute("time_axis", 0), n.attribute("batch_axis", 1)
    if (time, batch) == (0, 1):
        return [n.emit("ReversePackedSegs", n.blob(0), n.blob(1))]
    if (time, batch) != (1, 0):
        raise Unsupported(f"time_axis is {time} and batch_axis {batch}; they must be 0 and 1")
    order = [1, 0, *range(2, n.rank())]
    x = n.emit("Transpose", n.blob(0), axes=order)
    return [n.emit("Transpose", n.emit("ReversePackedSegs", x, n.blob(1)), axes=order)]


@node("Gather")
def gather(n: Node) -> Sequence[str]:
    axis, indices = given_axis(n, 0), n.constant(1)
    if indices is not None:
        check_indices(n, indices, axis)
    if indices is not None and indices.ndim == 0:
        (axis,), at = from_front(n, [axis]), int(indices)
        start, end = (at, at + 1) if at >= 0 else (at - 1, at)
        whole = [0] * axis, [-1] * axis
        row = n.net.names.unique(f"{n.outputs[0]}: index {at} of dimension {axis}")  # which the run may not find
        n.net.add("Slice", [n.blob(0)], [row], starts=[*whole[0], start], ends=[*whole[1], end])
        return [n.emit("Squeeze", row, dims=[axis])]
    if indices is not None:
        rows_at = constants_from_start(n, indices, axis)
    else:
        rows_at = n.blob(1) if is_counted(n, n.tensors[1]) else from_start(n, n.blob(1), axis)
    if axis == 0:
        return [n.emit("Gather", n.blob(0), rows_at)]
    rank, count = n.rank(0), n.rank(1)
    axis %= rank
    front = n.emit("Transpose", n.blob(0), axes=[axis, *(i for i in range(rank) if i != axis)])
    rows = n.emit("Gather", front, rows_at)  # indices, then the dimensions before and behind axis
    order = [*range(count, count + axis), *range(count), *range(count + axis, count + rank - 1)]
    return [n.emit("Transpose", rows, axes=order)]


def size_along(n: Node, axis: int) -> int | None:
    """A size of input 0, where it is known."""
    shape = n.scope.shape(n.tensors[0])
    return None if shape is None else shape[axis]


def size_of(n: Node, axis: int, dtype: str) -> str:
    """A size of input 0, a scalar."""
    size = size_along(n, axis)
    if size is not None:
        return n.number(size, dtype)
    sizes = n.emit("Shape", n.blob(0), axes=[axis])
    return n.emit("Squeeze", n.emit("Cast", sizes, to="double" if dtype == "float64" else dtype), dims=[0])


def check_indices(n: Node, indices: numpy.ndarray, axis: int) -> None:
    """Constant indices are those of a dimension of input 0, where its size is known."""
    size = size_along(n, axis)
    if size is not None and ((indices < -size).any() or (indices >= size).any()):
        raise Unsupported(f"its indices are from {indices.min()} to {indices.max()}; dimension {axis} has size {size}")


def constants_from_start(n: Node, indices: numpy.ndarray, axis: int) -> str:
    """Constant indices, input 1, counted from the start of a dimension."""
    size = size_along(n, axis)
    if (indices >= 0).all():
        return n.blob(1)
    if size is None:
        return from_start(n, n.blob(1), axis)
    return n.fixed(numpy.where(indices < 0, indices + size, indices), n.tensors[1])


def from_start(n: Node, indices: str, axis: int) -> str:
    """Indices, of the dtype of input 1, which may count from the end of a dimension, counted from its start. One that is
    beyond it stays as it is given, so that the run says this one."""
    dtype = n.dtype(1)
    counted, zero = n.emit("Add", indices, size_of(n, axis, dtype)), n.number(0, dtype)
    is_from_end = n.emit("And", n.emit("LT", indices, zero), n.emit("GE", counted, zero))
    return n.emit("Where", is_from_end, counted, indices)


def is_counted(n: Node, name: str) -> bool:
    """Whether a tensor is what ``from_start`` is when it is exported, so that it is not done again."""
    where = n.scope.producer(name)
    both = None if where is None else n.scope.producer(where.input[0])
    if where is None or both is None or (where.op_type, both.op_type) != ("Where", "And"):
        return False
    less, at_least = (n.scope.producer(each) for each in both.input)
    if less is None or at_least is None or (less.op_type, at_least.op_type) != ("Less", "GreaterOrEqual"):
        return False
    zeros = [n.scope.constant(each.input[1]) for each in (less, at_least)]
    is_one_of_both = [at_least.input[0], less.input[0]] == [*where.input[1:]]
    return is_one_of_both and all(zero is not None and not zero.any() for zero in zeros)


REDUCTIONS = ("none", "add", "mul", "max", "min")


@node("ScatterElements")
def scatter_elements(n: Node) -> Sequence[str]:
    reduction = n.attribute("reduction", "none")
    if reduction not in REDUCTIONS:
        raise Unsupported(f"its reduction is {reduction!r}; {', '.join(REDUCTIONS)} are read")
    return [n.emit("ScatterElements", *n.blobs(), axis=given_axis(n, 0), reduction=reduction)]


@node("Tile")
def tile(n: Node) -> Sequence[str]:
    y = n.blob(0)
    for axis, tiles in enumerate(n.needed(1, "repeats").tolist()):
        if tiles != 1:
            y = n.emit("Tile", y, tiles=tiles, axis=axis)
    return [n.emit("Copy", y) if y == n.blob(0) else y]


@node("Expand")
def expand(n: Node) -> Sequence[str]:
    """Times ones of that shape: each is repeated over the other."""
    dtype = n.dtype()
    if dtype == "bool":
        return [n.emit("And", n.blob(0), filled(n, 1, True, dtype))]
    return [n.emit("Mul", n.blob(0), filled(n, 1, 1, dtype))]


def filled(n: Node, i: int, value: float, dtype: str) -> str:
    """A tensor of the shape that an input says; where that is another tensor's, a step needs no sizes to know it."""
    like = n.scope.producer(n.tensors[i])
    if like is not None and like.op_type == "Shape" and not any(each.name == "end" or each.i for each in like.attribute):
        return fill(n.net, [n.scope.blob(like.input[0])], value, dtype)
    return filled_to(n, n.blob(i), value, dtype)


def filled_to(n: Node, sizes: str, value: float, dtype: str) -> str:
    """A tensor of a shape that is a blob."""
    return fill(n.net, [sizes], value, dtype, input_as_shape=1)


def filled_with(n: Node, shape: Sequence[int], value: float, dtype: str) -> str:
    """A tensor of a shape that is known."""
    return fill(n.net, [], value, dtype, shape=list(shape))


def fill(net: NetText, inputs: Sequence[str], value: float, dtype: str, **shape: Sequence[int] | int) -> str:
    """A tensor of one value, in the shape of the input or what ``shape`` says."""
    if dtype in ("float16", "bfloat16"):  # which fills do not have
        return net.emit("Cast", fill(net, inputs, value, "float32", **shape), to=dtype)
    if dtype not in CODES:
        raise Unsupported(f"it gives a tensor of {dtype}; {', '.join(CODES)}, float16 and bfloat16 are read")
    number = float(value) if dtype.startswith("float") else int(value)
    return net.emit("ConstantFill", *inputs, value=number, dtype=CODES[dtype], **shape)


@node("ConstantOfShape")
def constant_of_shape(n: Node) -> Sequence[str]:
    value = n.attribute("value")
    array = numpy.zeros(1, "float32") if value is None else n.scope.array(value)
    return [filled(n, 0, array.item(), str(array.dtype))]
