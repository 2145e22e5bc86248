"""What each operator of StepNet is in ONNX: a table from types to functions that add nodes.

A function is given a ``Call`` and gives the names of its outputs, the first ones of the operator's. What ONNX's
operators are is said in https://onnx.ai/onnx/operators, and what ours are in docs/operators.md.
"""

from __future__ import annotations

import math
from typing import Callable, Sequence

import numpy

from .call import Call, Refusal
from .graph import Value

Function = Callable[[Call], Sequence[str]]
TABLE: dict[str, Function] = {}


def operator(*types: str) -> Callable[[Function], Function]:
    def add(function: Function) -> Function:
        for each in types:
            TABLE[each] = function
        return function

    return add


SAME = {
    "Abs": "Abs",
    "Acos": "Acos",
    "Acosh": "Acosh",
    "Asin": "Asin",
    "Asinh": "Asinh",
    "Atan": "Atan",
    "Atanh": "Atanh",
    "Ceil": "Ceil",
    "Cos": "Cos",
    "Cosh": "Cosh",
    "Erf": "Erf",
    "Exp": "Exp",
    "Floor": "Floor",
    "Log": "Log",
    "Max": "Max",
    "Min": "Min",
    "Mish": "Mish",
    "Negative": "Neg",
    "Not": "Not",
    "Reciprocal": "Reciprocal",
    "Relu": "Relu",
    "Round": "Round",
    "Sigmoid": "Sigmoid",
    "Sin": "Sin",
    "Sinh": "Sinh",
    "Softplus": "Softplus",
    "Softsign": "Softsign",
    "Sqrt": "Sqrt",
    "Tanh": "Tanh",
}
"""Those that ONNX has under another name at most."""


@operator(*SAME)
def same(call: Call) -> Sequence[str]:
    return [call.emit(SAME[call.type], *call.operands())]


@operator(
    "Alias",
    "Copy",
    "CopyCPUToGPU",
    "CopyFromCPUInput",
    "CopyGPUToCPU",
    "CopyOnDeviceLike",
    "EnsureCPUOutput",
    "StopGradient",
)
def copy(call: Call) -> Sequence[str]:
    return [call.names[0]]


@operator("Dropout")
def dropout(call: Call) -> Sequence[str]:
    if not call["is_test"]:
        raise Refusal(
            "Dropout draws a random mask; with is_test=1, as in a cell that is not in training, it is exported"
        )
    kept = call.graph.constant(numpy.array(True))
    return [call.names[0], call.emit("Expand", kept, call.graph.sizes(call.names[0]))]


# Element by element, of one input.


@operator("Sqr")
def sqr(call: Call) -> Sequence[str]:
    return [call.emit("Mul", call.names[0], call.names[0])]


@operator("Rsqrt")
def rsqrt(call: Call) -> Sequence[str]:
    return [call.emit("Reciprocal", call.emit("Sqrt", call.names[0]))]


@operator("Silu", "Swish")
def silu(call: Call) -> Sequence[str]:
    return [call.emit("Mul", call.names[0], call.emit("Sigmoid", call.names[0]))]


@operator("Gelu")
def gelu(call: Call) -> Sequence[str]:
    erf = call.emit("Erf", call.emit("Mul", call.names[0], call.number(math.sqrt(0.5))))
    half = call.emit("Mul", call.names[0], call.number(0.5))
    return [call.emit("Mul", half, call.emit("Add", erf, call.number(1)))]


# What follows is composed in float64, of which onnxruntime has these operators in opset 18 alone, and of which attributes
# of ONNX, which are float32, cannot hold all numbers.


def slope_below(call: Call, y: str) -> str:
    """The first input where that is at least 0, elsewhere y, times alpha."""
    x = call.names[0]
    return call.emit("Where", call.emit("Less", x, call.number(0)), call.emit("Mul", y, call.number(call["alpha"])), x)


def exp_below(call: Call) -> str:
    """exp(x) - 1 where x is below 0, by the half angle of tanh, which is exact near 0; elsewhere 0."""
    below = call.emit("Min", call.names[0], call.number(0))
    half = call.emit("Tanh", call.emit("Mul", below, call.number(0.5)))
    return call.emit("Div", call.emit("Add", half, half), call.emit("Sub", call.number(1), half))


def softplus(call: Call) -> str:
    """max(x, 0) + log(1 + exp(-|x|)). The logarithm is exact where little is added to 1: W. Kahan, in N. Higham, Accuracy and
    Stability of Numerical Algorithms, 2nd edition, section 1.14.1."""
    x = call.names[0]
    y = call.emit("Exp", call.emit("Neg", call.emit("Abs", x)))
    total = call.emit("Add", y, call.number(1))
    added = call.emit("Sub", total, call.number(1))
    log = call.emit("Div", call.emit("Mul", call.emit("Log", total), y), added)
    log = call.emit("Where", call.emit("Equal", added, call.number(0)), y, log)
    return call.emit("Add", call.emit("Max", x, call.number(0)), log)


@operator("Mish", "Softplus", "Softsign")
def smooth(call: Call) -> Sequence[str]:
    x = call.names[0]
    if call.dtype != "float64":
        return same(call)
    if call.type == "Softsign":
        return [call.emit("Div", x, call.emit("Add", call.emit("Abs", x), call.number(1)))]
    y = softplus(call)
    return [y if call.type == "Softplus" else call.emit("Mul", x, call.emit("Tanh", y))]


@operator("LeakyRelu")
def leaky_relu(call: Call) -> Sequence[str]:
    if call.dtype == "float64":
        return [slope_below(call, call.names[0])]
    return [call.emit("LeakyRelu", call.names[0], alpha=call["alpha"])]


@operator("Elu")
def elu(call: Call) -> Sequence[str]:
    if call.dtype == "float64":
        return [slope_below(call, exp_below(call))]
    return [call.emit("Elu", call.names[0], alpha=call["alpha"])]


@operator("HardSigmoid")
def hard_sigmoid(call: Call) -> Sequence[str]:
    if call.dtype == "float64":
        line = call.emit("Add", call.emit("Mul", call.names[0], call.number(call["alpha"])), call.number(call["beta"]))
        return [call.emit("Clip", line, call.number(0), call.number(1))]
    return [call.emit("HardSigmoid", call.names[0], alpha=call["alpha"], beta=call["beta"])]


@operator("Selu")
def selu(call: Call) -> Sequence[str]:
    if call.dtype == "float64":
        return [call.emit("Mul", slope_below(call, exp_below(call)), call.number(call["scale"]))]
    return [call.emit("Selu", call.names[0], alpha=call["alpha"], gamma=call["scale"])]


@operator("Scale")
def scale(call: Call) -> Sequence[str]:
    return [call.emit("Mul", call.names[0], call.number(call["scale"]))]


@operator("Pow")
def power(call: Call) -> Sequence[str]:
    return [call.emit("Pow", call.names[0], call.number(call["exponent"]))]


@operator("Clip")
def clip(call: Call) -> Sequence[str]:
    return [call.emit("Clip", call.names[0], call.number(call["min"]), call.number(call["max"]))]


@operator("Mod")
def mod(call: Call) -> Sequence[str]:
    divisor = call.number(call["divisor"])
    rest = call.emit("Mod", call.names[0], divisor, fmod=1)  # has the sign of x
    if not call["sign_follow_divisor"]:
        return [rest]
    return [call.emit("Mod", call.emit("Add", rest, divisor), divisor, fmod=1)]


@operator("Cast")
def cast(call: Call) -> Sequence[str]:
    return [call.graph.cast(call.names[0], call.dtype)]


# Element by element, of two inputs and more.


def repeated(call: Call) -> list[str]:
    """Both inputs, the second one in the shape in which ONNX repeats it over the first as ``broadcast=1`` says."""
    names = call.operands()[:2]
    a, b = call.inputs[:2]
    if not call["broadcast"] or names[1] == b.number:
        return names
    axis = call["axis"]
    if call["axis_str"]:
        axis = call["order"].index(call["axis_str"])
    if all(size == 1 for size in b.shape):
        return [names[0], call.graph.reshape(b.name, *([1] * a.rank))]
    behind = 0 if axis < 0 else a.rank - axis - b.rank
    return [names[0], call.graph.unsqueeze(b.name, *range(b.rank, b.rank + behind))]


BINARY = {
    "Add": "Add",
    "And": "And",
    "Div": "Div",
    "EQ": "Equal",
    "GE": "GreaterOrEqual",
    "GT": "Greater",
    "LE": "LessOrEqual",
    "LT": "Less",
    "Mul": "Mul",
    "Or": "Or",
    "Power": "Pow",
    "Sub": "Sub",
    "Xor": "Xor",
}


@operator(*BINARY)
def binary(call: Call) -> Sequence[str]:
    return [call.emit(BINARY[call.type], *repeated(call))]


@operator("NE")
def not_equal(call: Call) -> Sequence[str]:
    return [call.emit("Not", call.emit("Equal", *repeated(call)))]


@operator("Sum")
def add_all(call: Call) -> Sequence[str]:
    total, *others = call.operands()
    for name in others:
        total = call.emit("Add", total, name)
    return [total]


@operator("Where")
def where(call: Call) -> Sequence[str]:
    condition, x, _ = call.inputs
    name, of_x, of_y = call.operands()
    if call["broadcast_on_rows"]:
        name = call.graph.unsqueeze(condition.name, *range(condition.rank, x.rank))
    return [choose(call, name, of_x, of_y, x.dtype)]


def choose(call: Call, condition: str, x: str, y: str, dtype: str) -> str:
    """``Where``, which runtimes have for numbers."""
    if dtype != "bool":
        return call.emit("Where", condition, x, y)
    of_x, of_y = call.emit("And", condition, x), call.emit("And", call.emit("Not", condition), y)
    return call.emit("Or", of_x, of_y)


@operator("ElementwiseLinear")
def elementwise_linear(call: Call) -> Sequence[str]:
    x, w, b = call.inputs
    axis = x.axis(call["axis"])
    names = [w.name, b.name]
    if axis < x.rank - 1:
        names = [call.graph.reshape_as(name, x, axis) for name in names]
    return [call.emit("Add", call.emit("Mul", x.name, names[0]), names[1])]


# Products.


def matrix_rows(call: Call, x: Value, axis: int) -> str:
    """``x`` with its dimensions from ``axis`` on as one."""
    axis = x.axis(axis)
    return x.name if axis == x.rank - 1 else call.graph.reshape(x.name, *([0] * axis), -1)


def as_matrix(call: Call, w: Value, axis: int) -> Value:
    axis = w.axis(axis)
    if (w.rank, axis) == (2, 1):
        return w
    shape = (math.prod(w.shape[:axis]), math.prod(w.shape[axis:]))
    return Value(call.graph, call.emit("Flatten", w.name, axis=axis), w.dtype, shape)


@operator("FC", "FCTransposed")
def fully_connected(call: Call) -> Sequence[str]:
    w = as_matrix(call, call.inputs[1], call["axis_w"])
    name = call.graph.matrix_transposed(w) if call.type == "FC" else w.name
    y = call.emit("MatMul", matrix_rows(call, call.inputs[0], call["axis"]), name)
    return [y if len(call.names) < 3 else call.emit("Add", y, call.names[2])]


def swapped(call: Call, x: Value) -> str:
    """``x`` with its last two dimensions in the other order."""
    order = list(range(x.rank))
    order[-2:] = order[:-3:-1]
    return call.emit("Transpose", x.name, perm=order)


@operator("MatMul")
def matmul(call: Call) -> Sequence[str]:
    a, b = (as_matrix(call, x, call[axis]) for x, axis in zip(call.inputs, ("axis_a", "axis_b")))
    names = (swapped(call, x) if call[trans] else x.name for x, trans in ((a, "trans_a"), (b, "trans_b")))
    return [call.emit("MatMul", *names)]


@operator("BatchMatMul")
def batch_matmul(call: Call) -> Sequence[str]:
    # A vector has nothing to transpose.
    pairs = zip(call.inputs, ("trans_a", "trans_b"))
    y = call.emit("MatMul", *(swapped(call, x) if call[trans] and x.rank > 1 else x.name for x, trans in pairs))
    are_vectors = all(x.rank == 1 for x in call.inputs)  # of which ours gives a vector of one element
    return [call.graph.unsqueeze(y, 0) if are_vectors else y]


# Along dimensions.


def by_rows(call: Call, op_type: str) -> str:
    """An operator along the last dimension, where those from ``axis`` on count as one."""
    x = call.inputs[0]
    axis = x.axis(call["axis"])
    if axis == x.rank - 1:
        return call.emit(op_type, x.name, axis=-1)
    rows = call.emit(op_type, call.emit("Flatten", x.name, axis=axis), axis=-1)
    return call.graph.reshape_as(rows, x)


@operator("Softmax", "LogSoftmax")
def softmax(call: Call) -> Sequence[str]:
    return [by_rows(call, call.type)]


def normalized(call: Call, axis: int) -> str:
    x = call.inputs[0]
    if call.graph.is_free(*x.shape[axis:]):
        ones = call.emit("Expand", call.number(1), call.graph.sizes(x.name, axis))
    else:
        ones = call.graph.constant(numpy.ones(x.shape[axis:], x.dtype))
    return call.emit("LayerNormalization", x.name, ones, axis=axis, epsilon=call["epsilon"])


@operator("LayerNorm")
def layer_norm(call: Call) -> Sequence[str]:
    x = call.inputs[0]
    axis = x.axis(call["axis"])
    is_named = call.dtype != "float64"  # which attributes cannot hold
    y = normalized(call, axis) if is_named else ""
    if is_named and not (call.wants(1) or call.wants(2)):
        return [y]
    axes = call.graph.ints(*range(axis, x.rank))
    mean = call.emit("ReduceMean", x.name, axes)
    difference = call.emit("Sub", x.name, mean)
    variance = call.emit("ReduceMean", call.emit("Mul", difference, difference), axes)
    deviation = call.emit("Sqrt", call.emit("Add", variance, call.number(call["epsilon"])))
    ones_behind = range(axis + 1, x.rank)
    y = y or call.emit("Div", difference, deviation)
    return [y, call.graph.squeeze(mean, *ones_behind), call.graph.squeeze(deviation, *ones_behind)]


@operator("ReduceL1", "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum")
def reduce(call: Call) -> Sequence[str]:
    axes = [call.graph.ints(*call["axes"])] if call["axes"] else []
    return [call.emit(call.type, call.names[0], *axes, keepdims=int(call["keepdims"]))]


@operator("SumElements", "SumSqrElements")
def sum_elements(call: Call) -> Sequence[str]:
    x = call.names[0]
    if call.type == "SumSqrElements":
        x = call.emit("Mul", x, x)
    return [call.emit("ReduceMean" if call["average"] else "ReduceSum", x, keepdims=0)]


@operator("AveragedLoss")
def averaged_loss(call: Call) -> Sequence[str]:
    return [call.emit("ReduceMean", call.names[0], keepdims=0)]


@operator("SquaredL2Distance", "L1Distance")
def distance(call: Call) -> Sequence[str]:
    difference = call.emit("Sub", *call.names)
    is_squared = call.type == "SquaredL2Distance"
    terms = call.emit("Mul", difference, difference) if is_squared else call.emit("Abs", difference)
    axes = range(1, call.inputs[0].rank)
    total = call.emit("ReduceSum", terms, call.graph.ints(*axes), keepdims=0) if axes else terms
    return [call.emit("Mul", total, call.number(0.5)) if is_squared else total]


@operator("ArgMax", "ArgMin")
def arg_max(call: Call) -> Sequence[str]:
    return [call.emit(call.type, call.names[0], axis=call["axis"], keepdims=int(call["keepdims"]))]


@operator("TopK")
def top_k(call: Call) -> Sequence[str]:
    x, k = call.inputs[0], call["k"]
    size = x.shape[x.axis(call["axis"])]
    if len(call.op.outputs) > 2 or size < k or call.graph.is_free(size):
        raise Refusal("TopK is exported without flat_indices, along a dimension of at least k elements")
    return call.graph.emit_all("TopK", [x.name, call.graph.ints(k)], 2, axis=call["axis"])


# Convolutions.


def pair(call: Call, one: str, of_both: str, default: int) -> list[int]:
    """Height and width, said in one of three ways: ``kernels``, ``kernel_h`` and ``kernel_w``, ``kernel``."""
    if call[of_both]:
        return list(call[of_both])
    each = [call[f"{one}_{letter}"] for letter in "hw"]
    return each if each != [default, default] else [call[one]] * 2


@operator("Conv")
def conv(call: Call) -> Sequence[str]:
    names, is_nhwc = call.names, call["order"] == "NHWC"
    if is_nhwc:
        names = [*(call.emit("Transpose", name, perm=[0, 3, 1, 2]) for name in names[:2]), *names[2:]]
    pads = list(call["pads"]) or [call[f"pad_{letter}"] for letter in "tlbr"]
    if not any(pads):
        pads = [call["pad"]] * 4
    y = call.emit(
        "Conv",
        *names,
        kernel_shape=pair(call, "kernel", "kernels", 0),
        strides=pair(call, "stride", "strides", 1),
        dilations=pair(call, "dilation", "dilations", 1),
        pads=pads,
        group=call["group"],
    )
    return [call.emit("Transpose", y, perm=[0, 2, 3, 1]) if is_nhwc else y]
