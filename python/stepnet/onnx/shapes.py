"""What each operator that moves elements, or makes them, is in ONNX; and operators of sequences."""

from __future__ import annotations

import math
from typing import Callable, Sequence

import numpy

from .call import Call, Refusal
from .graph import LAST, Value
from .operators import choose, operator


@operator("Transpose")
def transpose(call: Call) -> Sequence[str]:
    order = call["axes"] or list(range(call.inputs[0].rank))[::-1]
    return [call.emit("Transpose", call.names[0], perm=order)]


@operator("Squeeze")
def squeeze(call: Call) -> Sequence[str]:
    return [call.graph.squeeze(call.names[0], *call["dims"])]


@operator("ExpandDims")
def expand_dims(call: Call) -> Sequence[str]:
    return [call.graph.unsqueeze(call.names[0], *call["dims"])]


@operator("Reshape")
def reshape(call: Call) -> Sequence[str]:
    x = call.names[0]
    is_by_input = len(call.names) > 1
    shape = as_int64(call, 1) if is_by_input else call.graph.ints(*call["shape"])
    y = call.emit("Reshape", x, shape, **({"allowzero": 1} if call["allowzero"] else {}))
    if len(call.infos) == 1:
        return [y]
    sizes = call.graph.sizes(x)
    return [y, call.graph.cast(sizes, call.infos[1][0]) if is_by_input else sizes]


def as_int64(call: Call, i: int) -> str:
    value = call.inputs[i]
    return value.name if value.dtype == "int64" else call.graph.cast(value.name, "int64")


@operator("ResizeLike")
def resize_like(call: Call) -> Sequence[str]:
    return [call.graph.reshape_as(call.names[0], call.inputs[1])]


@operator("Flatten")
def flatten(call: Call) -> Sequence[str]:
    return [call.emit("Flatten", call.names[0], axis=call["axis"])]


@operator("FlattenToVec")
def flatten_to_vec(call: Call) -> Sequence[str]:
    return [call.graph.reshape(call.names[0], -1)]


@operator("Shape")
def shape(call: Call) -> Sequence[str]:
    graph, x = call.graph, call.inputs[0]
    axes = [x.axis(axis) for axis in call["axes"]] or list(range(x.rank))
    if axes and axes == list(range(axes[0], axes[0] + len(axes))):
        return [graph.sizes(x.name, axes[0], None if axes[-1] == x.rank - 1 else axes[-1] + 1)]
    return [call.emit("Gather", graph.sizes(x.name), graph.ints(*axes))]


@operator("Size")
def size(call: Call) -> Sequence[str]:
    return [call.emit("Size", call.names[0])]


def axis_of(call: Call) -> int:
    """The dimension of Split and Concat, which images in another order of dimensions have elsewhere."""
    return 3 if call["order"] == "NHWC" and not call.op.has_argument("axis") else int(call["axis"])


@operator("Split")
def split(call: Call) -> Sequence[str]:
    if len(call.names) > 1:
        raise Refusal("Split reads the sizes of its parts from an input; say them as the argument split")
    axis = call.inputs[0].axis(axis_of(call))
    count = len(call.op.outputs)
    if call["add_axis"]:
        sizes = [1] * count
    else:
        sizes = [shape[axis] for _, shape in call.infos]
    if not call["split"] and call.graph.is_free(*sizes):
        parts = call.graph.emit_all("Split", call.names, count, axis=axis, num_outputs=count)
    else:
        parts = call.graph.emit_all("Split", [call.names[0], call.graph.ints(*sizes)], count, axis=axis)
    return [call.graph.squeeze(part, axis) for part in parts] if call["add_axis"] else parts


@operator("Concat")
def concat(call: Call) -> Sequence[str]:
    axis, names = axis_of(call), call.names
    if call["add_axis"]:
        names = [call.graph.unsqueeze(name, axis) for name in names]
    y = call.graph.concat(names, axis)
    if not call.wants(1):
        return [y]
    rank = call.inputs[0].rank + int(call["add_axis"])
    sizes = [call.graph.size(name, axis % rank) for name in names]
    return [y, call.graph.cast(call.graph.concat(sizes), "int32")]


@operator("Slice")
def cut(call: Call) -> Sequence[str]:
    if len(call.names) > 1:
        raise Refusal("Slice reads its bounds from inputs; say them as the arguments starts and ends")
    if not call["starts"]:
        return [call.names[0]]

    def bound(at: int) -> int:
        """Where Caffe2's -1 is the end itself, ONNX's is the last element."""
        return at if at >= 0 else at + 1 if at < -1 else LAST

    ints, starts, ends = call.graph.ints, call["starts"], call["ends"]
    axes = ints(*range(len(starts)))
    if call["steps"]:
        return [call.emit("Slice", call.names[0], ints(*starts), ints(*ends), axes, ints(*call["steps"]))]
    starts, ends = ([bound(at) for at in bounds] for bounds in (starts, ends))
    return [call.emit("Slice", call.names[0], ints(*starts), ints(*ends), axes)]


@operator("Tile")
def tile(call: Call) -> Sequence[str]:
    repeats = [1] * call.inputs[0].rank
    repeats[call["axis"]] = call["tiles"]
    return [call.emit("Tile", call.names[0], call.graph.ints(*repeats))]


@operator("Gather")
def gather(call: Call) -> Sequence[str]:
    return [call.emit("Gather", *call.names, axis=0)]


# What is known of sizes that a net computes with: other operators take them as shapes.


@operator("ScatterElements")
def scatter_elements(call: Call) -> Sequence[str]:
    return [call.emit("ScatterElements", *call.names, axis=call["axis"], reduction=call["reduction"])]


def sizes_of_shape(call: Call) -> list[int] | None:
    sizes = call.inputs[0].shape
    return [sizes[axis] for axis in call["axes"]] if call["axes"] else list(sizes)


def slices_of(call: Call, sizes: Sequence[int]) -> list[slice]:
    """What a Slice takes of dimensions of these sizes, as Python says it."""

    def bound(at: int, size: int) -> int:
        return at + size + 1 if at < 0 else at

    if call["steps"]:  # a start before the first element is that one
        all_bounds = zip(call["starts"], call["ends"], call["steps"], sizes)
        return [slice(max(start, -size), end, step) for start, end, step, size in all_bounds]
    return [slice(bound(start, size), bound(end, size)) for start, end, size in zip(call["starts"], call["ends"], sizes)]


def sizes_of_slice(call: Call) -> list[int] | None:
    sizes = call.inputs[0].sizes
    if sizes is None or not call["starts"]:
        return sizes
    return sizes[slices_of(call, [len(sizes)])[0]]


def sizes_of_concat(call: Call) -> list[int] | None:
    parts = [value.sizes for value in call.inputs]
    return None if None in parts else [size for part in parts for size in part or ()]


def sizes_of_input(call: Call) -> list[int] | None:
    return call.inputs[0].sizes


def sizes_of_product(call: Call) -> list[int] | None:
    a, b = (value.sizes for value in call.inputs)
    return None if a is None or b is None else [int(size) for size in numpy.multiply(a, b)]


def sizes_of_gather(call: Call) -> list[int] | None:
    sizes, indices = call.inputs[0].sizes, call.inputs[1].array
    if sizes is None or indices is None or not all(-len(sizes) <= at < len(sizes) for at in indices.reshape(-1)):
        return None
    return [sizes[at] for at in indices.reshape(-1)]


SIZES: dict[str, Callable[[Call], "list[int] | None"]] = {
    "Cast": sizes_of_input,
    "Concat": sizes_of_concat,
    "Copy": sizes_of_input,
    "ExpandDims": sizes_of_input,
    "Gather": sizes_of_gather,
    "Mul": sizes_of_product,
    "Reshape": sizes_of_input,
    "Shape": sizes_of_shape,
    "Slice": sizes_of_slice,
    "Squeeze": sizes_of_input,
}

Arrays = Sequence[numpy.ndarray]


def elements_of_slice(call: Call, arrays: Arrays) -> Arrays:
    return [arrays[0][tuple(slices_of(call, arrays[0].shape))]]


def elements_of_sum(call: Call, arrays: Arrays) -> Arrays:
    with numpy.errstate(all="ignore"):  # a file may hold what is no number
        return [] if call["broadcast"] else [arrays[0] + arrays[1]]


ELEMENTS: dict[str, Callable[[Call, Arrays], Arrays]] = {
    "Add": elements_of_sum,
    "Slice": elements_of_slice,
    "Squeeze": lambda call, arrays: [arrays[0].squeeze(tuple(call["dims"]))],
}
"""What operators give that stand between a parameter of a file and a loop."""
ELEMENTS_OF: dict[str, Sequence[int]] = {}
"""The inputs whose elements count for that; where nothing is said, all."""


# Fills.


def shape_of_fill(call: Call) -> tuple[int, ...] | str:
    """The sizes of what a fill gives, or the name of a tensor that holds them."""
    if not call.names:
        return tuple(call["shape"])
    if not call.graph.is_free(*call.infos[0][1]):
        return call.infos[0][1]
    sizes = as_int64(call, 0) if call["input_as_shape"] else call.graph.sizes(call.names[0])
    return call.graph.concat([sizes, call.graph.ints(*call["extra_shape"])]) if call["extra_shape"] else sizes


@operator("ConstantFill")
def constant_fill(call: Call) -> Sequence[str]:
    sizes, name = shape_of_fill(call), number_of(call)
    if isinstance(sizes, tuple):
        return [call.emit("Expand", name, call.graph.ints(*sizes)) if sizes else name]
    return [call.emit("Expand", name, sizes)]


def number_of(call: Call) -> str:
    """The scalar that a ConstantFill repeats."""
    return call.graph.scalar(call["value"] or 0, call.dtype)


@operator(
    "GivenTensorBoolFill", "GivenTensorDoubleFill", "GivenTensorFill", "GivenTensorInt64Fill", "GivenTensorIntFill"
)
def given_tensor_fill(call: Call) -> Sequence[str]:
    shape = call.infos[0][1]
    if call.graph.is_free(*shape):
        raise Refusal(f"{call.type} has as many elements as are written, and a shape that may change")
    values = numpy.array([] if call["values"] is None else call["values"])
    return [call.graph.constant(values.astype(call.dtype).reshape(shape), call.op.outputs[0])]


@operator("Range")
def number_range(call: Call) -> Sequence[str]:
    numbers = [call.graph.reshape(name) for name in call.names]  # scalars
    if len(numbers) == 1:
        numbers.insert(0, call.number(0))
    return [call.emit("Range", *numbers, *([] if len(numbers) == 3 else [call.number(1)]))]


@operator("RangeFill")
def range_fill(call: Call) -> Sequence[str]:
    sizes = shape_of_fill(call)
    sizes = call.graph.ints(*sizes) if isinstance(sizes, tuple) else sizes
    count = call.emit("ReduceProd", sizes, keepdims=1)
    return [call.emit("Reshape", call.graph.count(count, call.dtype), sizes, allowzero=1)]


# Sequences, [T, B, …], with lengths.


@operator("StepMask")
def step_mask(call: Call) -> Sequence[str]:
    x, lengths = call.inputs
    steps = call.graph.unsqueeze(call.graph.count(call.graph.size(x.name, 0), lengths.dtype), 1)
    return [call.emit("Less", steps, lengths.name)]


@operator("FillPadding")
def fill_padding(call: Call) -> Sequence[str]:
    x, mask = call.inputs
    if x.dtype not in ("float32", "float64", "int32", "int64"):
        raise Refusal(f"FillPadding of {x.dtype} is not exported: ONNX has no sums of it")
    graph, dims = call.graph, range(2, x.rank)

    def first(values: str, counts: str, axis: int) -> tuple[str, str]:
        """The first value along a dimension that counts, as the sum of all with others as 0; and whether there is one."""
        sizes = graph.ints(1, 1) if axis else call.emit("Concat", graph.ints(1), graph.size(counts, 1), axis=0)
        behind = call.emit("Expand", graph.scalar(0, "float32"), sizes)  # ArgMax needs something
        marks = call.emit("Concat", graph.cast(counts, "float32"), behind, axis=axis)
        numbers = graph.unsqueeze(graph.count(graph.size(counts, axis)), 1 - axis)
        is_first = call.emit("Equal", numbers, call.emit("ArgMax", marks, axis=axis, keepdims=1))
        is_first = call.emit("And", counts, is_first)
        chosen = call.emit("Where", graph.unsqueeze(is_first, *dims), values, call.number(0))
        number = call.emit("ReduceSum", graph.cast(is_first, "float32"), graph.ints(axis), keepdims=1)
        value = call.emit("ReduceSum", chosen, graph.ints(axis), keepdims=1)
        return value, call.emit("Equal", number, graph.scalar(1, "float32"))

    own, has_own = first(x.name, mask.name, 0)
    of_others, _ = first(own, has_own, 1)
    filled = call.emit("Where", graph.unsqueeze(has_own, *dims), own, of_others)
    return [call.emit("Where", graph.unsqueeze(mask.name, *dims), x.name, filled)]


@operator("ReversePackedSegs")
def reverse(call: Call) -> Sequence[str]:
    x = call.names[0]
    if len(call.names) == 1:
        ints = call.graph.ints
        return [call.emit("Slice", x, ints(-1), ints(numpy.iinfo(numpy.int64).min), ints(0), ints(-1))]
    # A row of no steps turned around is one of one step. onnxruntime before 1.28 leaves a row of length 0 unset, and
    # all of them refuse lengths beyond T.
    at_least_one = call.emit("Max", as_int64(call, 1), call.graph.ints(1))
    lengths = call.emit("Min", at_least_one, call.graph.size(x, 0))
    return [call.emit("ReverseSequence", x, lengths, time_axis=0, batch_axis=1)]


@operator("SequenceMask")
def sequence_mask(call: Call) -> Sequence[str]:
    x, graph = call.inputs[0], call.graph
    has_batch, has_repeat = (call.op.has_argument(name) for name in ("batch", "repeat_from_axis"))
    first_row = x.axis(call["batch"]) + 1 if has_batch else 0
    axis = x.axis(call["axis"])
    repeat = x.axis(call["repeat_from_axis"]) if has_repeat else x.rank
    rows, columns = numbers_of(call, first_row, axis), numbers_of(call, axis, repeat)
    kept = kept_columns(call, graph.unsqueeze(rows, 1), columns)
    if (axis - first_row, repeat - axis) == (1, 1):
        kept = graph.unsqueeze(kept, *range(2, 2 + x.rank - repeat))
    else:
        kept = graph.reshape_as(kept, x, first_row, repeat, ones=x.rank - repeat)
    fill = 0.0 if call["grad"] else call["fill_val"]
    return [choose(call, kept, x.name, call.number(fill), x.dtype)]


def numbers_of(call: Call, begin: int, end: int) -> str:
    """The numbers of the elements that dimensions ``[begin, end)`` of the input have together, int32."""
    sizes = call.inputs[0].shape[begin:end]
    if not call.graph.is_free(*sizes):
        return call.graph.constant(numpy.arange(math.prod(sizes), dtype="int32"))
    count = call.emit("ReduceProd", call.graph.sizes(call.names[0], begin, end), keepdims=1)
    return call.graph.count(count, "int32")


def kept_columns(call: Call, rows: str, columns: str) -> str:
    """Which columns each row keeps, ``[rows, columns]``."""
    mode = call["mode"]
    if mode in ("sequence", "window"):
        position = call.graph.unsqueeze(call.names[1], 1)
        if mode == "sequence":
            return call.emit("Less", columns, position)
        distance = call.emit("Abs", call.emit("Sub", columns, position))
        return call.emit("LessOrEqual", distance, call.graph.scalar(call["radius"], "int32"))
    comparisons = {"upper": "LessOrEqual", "lower": "GreaterOrEqual", "upperdiag": "Less", "lowerdiag": "Greater"}
    return call.emit(comparisons[mode], columns, rows)


# Units: a step of an LSTM or GRU, of which the sums of the gates are given.


def changed_rows(call: Call, lengths: Value | None, timestep: Value, before: str, after: str) -> str:
    """``after`` where the sequence goes on; elsewhere ``before``, or 0 with ``drop_states``."""
    if lengths is None:
        return after
    goes_on = call.graph.unsqueeze(call.emit("Less", timestep.name, lengths.name), 1)
    return call.emit("Where", goes_on, after, call.number(0) if call["drop_states"] else before)


def gates_of(call: Call, gates: str, count: int) -> list[str]:
    return call.graph.emit_all("Split", [gates], count, axis=-1, num_outputs=count)


@operator("LSTMUnit")
def lstm_unit(call: Call) -> Sequence[str]:
    h, c, gates, *lengths, timestep = call.inputs
    i, f, o, g = gates_of(call, gates.name, 4)
    if call["forget_bias"]:
        f = call.emit("Add", f, call.number(call["forget_bias"]))
    kept = call.emit("Mul", call.emit("Sigmoid", f), c.name)
    new_c = call.emit("Add", kept, call.emit("Mul", call.emit("Sigmoid", i), call.emit("Tanh", g)))
    new_h = call.emit("Mul", call.emit("Sigmoid", o), call.emit("Tanh", new_c))
    length = lengths[0] if lengths else None
    return [changed_rows(call, length, timestep, h.name, new_h), changed_rows(call, length, timestep, c.name, new_c)]


@operator("GRUUnit")
def gru_unit(call: Call) -> Sequence[str]:
    h, gates, *lengths, timestep = call.inputs
    _, update, output = gates_of(call, gates.name, 3)
    z = call.emit("Sigmoid", update)
    taken = call.emit("Mul", call.emit("Sub", call.number(1), z), call.emit("Tanh", output))
    new_h = call.emit("Add", call.emit("Mul", h.name, z), taken)
    return [changed_rows(call, lengths[0] if lengths else None, timestep, h.name, new_h)]
