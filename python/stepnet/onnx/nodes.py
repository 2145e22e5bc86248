"""What each operator of ONNX is in StepNet: a table from types to functions that add operators.

A function is given a ``Node`` and gives the blobs of its outputs, the first ones of the node's. What the operators are
is said in https://onnx.ai/onnx/operators, each with what changed from version to version.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Sequence

import numpy

from .axes import from_front, given_axis, known_rank, without_repeats
from .graph import LAST
from .netdef import single
from .scope import Node, Unsupported

Function = Callable[[Node], Sequence[str]]
NODES: dict[str, Function] = {}


def node(*types: str) -> Callable[[Function], Function]:
    def add(function: Function) -> Function:
        for each in types:
            NODES[each] = function
        return function

    return add


FLOATS = ("float32", "float64", "float16", "bfloat16")
WHOLE_NUMBERS = ("int32", "int64")

SAME = {
    "Acos": "Acos",
    "Acosh": "Acosh",
    "Add": "Add",
    "And": "And",
    "Asin": "Asin",
    "Asinh": "Asinh",
    "Atan": "Atan",
    "Atanh": "Atanh",
    "Ceil": "Ceil",
    "Cos": "Cos",
    "Cosh": "Cosh",
    "Div": "Div",
    "Equal": "EQ",
    "Erf": "Erf",
    "Exp": "Exp",
    "Floor": "Floor",
    "Greater": "GT",
    "GreaterOrEqual": "GE",
    "Less": "LT",
    "LessOrEqual": "LE",
    "Log": "Log",
    "Mish": "Mish",
    "Mul": "Mul",
    "Neg": "Negative",
    "Not": "Not",
    "Or": "Or",
    "Reciprocal": "Reciprocal",
    "Round": "Round",
    "Sigmoid": "Sigmoid",
    "Sin": "Sin",
    "Sinh": "Sinh",
    "Size": "Size",
    "Softplus": "Softplus",
    "Softsign": "Softsign",
    "Sqrt": "Sqrt",
    "Sub": "Sub",
    "Tanh": "Tanh",
    "Where": "Where",
    "Xor": "Xor",
}
"""Those that StepNet has under another name at most."""


@node(*SAME)
def same(n: Node) -> Sequence[str]:
    return [n.emit(SAME[n.type], *n.operands())]


@node("Abs", "Relu")
def by_sign(n: Node) -> Sequence[str]:
    x, dtype = n.blob(0), n.scope.dtype(n.tensors[0])
    if dtype not in WHOLE_NUMBERS:
        return [n.emit(n.type, x)]
    below = n.emit("Negative", x) if n.type == "Abs" else n.number(0, dtype)
    return [where_below(n, x, dtype, below)]


def where_below(n: Node, x: str, dtype: str, below: str) -> str:
    """``below`` where ``x`` is less than 0, otherwise ``x``."""
    return n.emit("Where", n.emit("LT", x, n.number(0, dtype)), below, x)


@node("Identity")
def identity(n: Node) -> Sequence[str]:
    return n.blobs()


# Element by element.

@node("HardSigmoid")
def hard_sigmoid(n: Node) -> Sequence[str]:
    return [n.emit("HardSigmoid", n.blob(0), alpha=n.attribute("alpha", 0.2), beta=n.attribute("beta", 0.5))]


@node("LeakyRelu", "Elu")
def slope(n: Node) -> Sequence[str]:
    alpha = n.attribute("alpha", 1.0 if n.type == "Elu" else 0.01)
    return [n.emit(n.type, n.blob(0), alpha=alpha) if alpha >= 0 else negative_slope(n, alpha)]


def negative_slope(n: Node, alpha: float) -> str:
    """What an operator of ONNX gives with an alpha that ours does not take."""
    x = n.blob(0)
    below = x if n.type == "LeakyRelu" else n.emit("Elu", x, alpha=1.0)
    return where_below(n, x, n.dtype(), n.emit("Scale", below, scale=alpha))


@node("Selu")
def selu(n: Node) -> Sequence[str]:
    alpha, gamma = n.attribute("alpha", 1.67326319217681884765625), n.attribute("gamma", 1.05070102214813232421875)
    if alpha >= 0:
        return [n.emit("Selu", n.blob(0), alpha=alpha, scale=gamma)]
    return [n.emit("Scale", negative_slope(n, alpha), scale=gamma)]


@node("ThresholdedRelu")
def thresholded_relu(n: Node) -> Sequence[str]:
    return [above(n, n.blob(0), n.attribute("alpha", 1.0), n.dtype())]


def above(n: Node, x: str, threshold: float, dtype: str) -> str:
    """``x`` where it is greater than the threshold, otherwise 0."""
    is_above = n.emit("GT", x, n.number(threshold, dtype))
    return n.emit("Where", is_above, x, n.number(0, dtype))


GELU_CUBES, GELU_SLOPE, HARD_SWISH_SLOPE = single(0.044715), math.sqrt(single(2 / math.pi)), single(1 / 6)
"""Constants in the functions by which ONNX defines these operators. They are float32 there, also for float64."""


@node("Gelu")
def gelu(n: Node) -> Sequence[str]:
    approximate, x = n.attribute("approximate", "none"), n.blob(0)
    if approximate == "none":
        return [n.emit("Gelu", x)]
    if approximate != "tanh":
        raise Unsupported(f"approximate is {approximate!r}; none and tanh are read")
    cubes = n.emit("Scale", n.emit("Pow", x, exponent=3.0), scale=GELU_CUBES)
    bent = n.emit("Tanh", n.emit("Scale", n.emit("Add", x, cubes), scale=GELU_SLOPE))
    half = n.emit("Scale", x, scale=0.5)
    return [n.emit("Add", half, n.emit("Mul", half, bent))]


@node("HardSwish")
def hard_swish(n: Node) -> Sequence[str]:
    return [n.emit("Mul", n.blob(0), n.emit("HardSigmoid", n.blob(0), alpha=HARD_SWISH_SLOPE, beta=0.5))]


@node("Celu")
def celu(n: Node) -> Sequence[str]:
    alpha, x = n.attribute("alpha", 1.0), n.blob(0)
    if alpha == 0:
        raise Unsupported("its alpha is 0")
    of_part = n.emit("Scale", x, scale=1 / alpha)
    if alpha > 0:
        return [n.emit("Scale", n.emit("Elu", of_part), scale=alpha)]
    below = n.emit("Scale", n.emit("Sub", n.emit("Exp", of_part), n.number(1, n.dtype())), scale=alpha)
    return [where_below(n, x, n.dtype(), below)]


@node("PRelu")
def prelu(n: Node) -> Sequence[str]:
    return [where_below(n, n.blob(0), n.dtype(), n.emit("Mul", n.blob(0), n.blob(1)))]


@node("Clip")
def clip(n: Node) -> Sequence[str]:
    """Where the bounds contradict each other all is the upper one. Those that are left out are the last finite numbers."""
    x, dtype = n.blob(0), n.scope.dtype(n.tensors[0])
    given = (n.needed(i, name).item() if n.has(i) else n.attribute(name) for i, name in ((1, "min"), (2, "max")))
    low, high = (last if bound is None else bound for bound, last in zip(given, finite_numbers(dtype)))
    low = min(low, high)
    if dtype not in WHOLE_NUMBERS:
        return [n.emit("Clip", x, min=float(low), max=float(high))]
    for compare, bound in (("GE", low), ("LE", high)):
        limit = n.number(bound, dtype)
        x = n.emit("Where", n.emit(compare, x, limit), x, limit)
    return [x]


def finite_numbers(dtype: str | None) -> tuple[float, float]:
    """The least and the greatest of a dtype; infinite where these are not known."""
    if dtype in WHOLE_NUMBERS:
        return numpy.iinfo(dtype).min, numpy.iinfo(dtype).max
    if dtype in ("float16", "float32", "float64"):
        return float(numpy.finfo(dtype).min), float(numpy.finfo(dtype).max)
    return -math.inf, math.inf


@node("Pow")
def power(n: Node) -> Sequence[str]:
    """Of whole numbers in double, in which it is exact up to 2^53."""
    exponent, x, dtype = n.constant(1), n.blob(0), n.dtype()
    floats = dtype if dtype in FLOATS else "float64"
    if floats != dtype:
        x = n.emit("Cast", x, to="double")
    if exponent is not None and exponent.size == 1 and exponent.ndim <= (known_rank(n) or 0):
        y = n.emit("Pow", x, exponent=float(exponent.item()))
    else:
        exponents = n.blob(1)
        if n.dtype(1) != floats:
            exponents = n.emit("Cast", exponents, to={"float64": "double", "float32": "float"}.get(floats, floats))
        y = n.emit("Power", x, exponents)
    return [y if floats == dtype else n.emit("Cast", y, to=dtype)]


@node("Swish")
def swish(n: Node) -> Sequence[str]:
    alpha = n.attribute("alpha", 1.0)
    if alpha == 1:
        return [n.emit("Swish", n.blob(0))]
    return [n.emit("Mul", n.blob(0), n.emit("Sigmoid", n.emit("Scale", n.blob(0), scale=alpha)))]


@node("Mod")
def mod(n: Node) -> Sequence[str]:
    divisor = n.constant(1)
    if divisor is None and n.dtype() in ("int32", "int64") and not n.attribute("fmod", 0):
        return [mod_of_tensors(n)]
    divisor = n.needed(1, "the divisor")
    if divisor.size != 1 or divisor.item() != int(divisor.item()) or divisor.item() < 1:
        raise Unsupported("its divisor is no whole number from 1 on")
    return [n.emit("Mod", n.blob(0), divisor=int(divisor.item()), sign_follow_divisor=int(not n.attribute("fmod", 0)))]


def mod_of_tensors(n: Node) -> str:
    """What a division, which rounds towards 0, leaves; plus the divisor where the sign is not that of it."""
    a, b = n.blob(0), n.blob(1)
    zero = n.number(0, n.dtype())
    rest = n.emit("Sub", a, n.emit("Mul", n.emit("Div", a, b), b))
    is_below, is_of_negatives = n.emit("LT", rest, zero), n.emit("LT", b, zero)
    is_other = n.emit("And", n.emit("Xor", is_below, is_of_negatives), n.emit("NE", rest, zero))
    return n.emit("Where", is_other, n.emit("Add", rest, b), rest)


@node("Sign")
def sign(n: Node) -> Sequence[str]:
    """NaN stays NaN."""
    x, dtype = n.blob(0), n.dtype()
    zero, one, minus_one = (n.number(each, dtype) for each in (0, 1, -1))
    below = n.emit("Where", n.emit("LT", x, zero), minus_one, x)
    return [n.emit("Where", n.emit("GT", x, zero), one, below)]


@node("Tan")
def tan(n: Node) -> Sequence[str]:
    return [n.emit("Div", n.emit("Sin", n.blob(0)), n.emit("Cos", n.blob(0)))]


@node("IsNaN")
def is_nan(n: Node) -> Sequence[str]:
    return [n.emit("NE", n.blob(0), n.blob(0))]


@node("IsInf")
def is_inf(n: Node) -> Sequence[str]:
    signs = [sign for sign, name in ((1, "detect_positive"), (-1, "detect_negative")) if n.attribute(name, 1)]
    found = [n.emit("EQ", n.blob(0), n.number(sign * math.inf, n.dtype())) for sign in signs]
    if not found:
        return [n.emit("NE", n.number(0, "int32"), n.net.number(0, "int32", n.blob(0)))]
    return [n.emit("Or", *found) if len(found) > 1 else found[0]]


@node("Max", "Min")
def extreme(n: Node) -> Sequence[str]:
    if n.dtype() in ("float32", "float64"):
        return [n.emit(n.type, *n.operands())]
    so_far, *others = n.blobs()
    for blob in others:
        is_kept = n.emit("GE" if n.type == "Max" else "LE", so_far, blob)
        so_far = n.emit("Where", is_kept, so_far, blob)
    return [so_far]


@node("Sum", "Mean")
def add_all(n: Node) -> Sequence[str]:
    total, *others = n.blobs()
    for blob in others:
        total = n.emit("Add", total, blob)
    return [n.emit("Scale", total, scale=1.0 / len(n.tensors)) if n.type == "Mean" else total]


@node("Cast")
def cast(n: Node) -> Sequence[str]:
    names = {
        1: "float",
        2: "uint8",
        3: "int8",
        4: "uint16",
        5: "int16",
        6: "int32",
        7: "int64",
        9: "bool",
        10: "float16",
        11: "double",
        16: "bfloat16",
    }
    to = n.attribute("to")
    n.attribute("saturate")  # of 8 bits, which are not read
    if to not in names:
        raise Unsupported(f"to is {to}, which is not read")
    return [n.emit("Cast", n.blob(0), to=names[to])]


@node("Dropout")
def dropout(n: Node) -> Sequence[str]:
    n.attribute("ratio"), n.attribute("seed")  # of training
    if n.has(2) and bool(n.needed(2, "training_mode")):
        raise Unsupported("it is in training mode, in which it draws a random mask")
    y = n.emit("Copy", n.blob(0))
    if not n.gives(1):
        return [y]
    if n.opset < 12:
        raise Unsupported("its second output, the mask, is given from opset 12 on, which says what it holds")
    return [y, n.emit("EQ", n.net.number(0, "int32", n.blob(0)), n.net.number(0, "int32"))]


# Products.


@node("MatMul")
def matmul(n: Node) -> Sequence[str]:
    a, b = (n.scope.shape(n.tensors[i]) for i in range(2))
    if b is not None and len(b) == 2 and n.scope.dtype(n.tensors[1]) in ("float32", "float64"):
        of = n.scope.transpose_of(n.tensors[1])
        op_type, w = ("FCTransposed", n.blob(1)) if of is None else ("FC", of)
        return [n.emit(op_type, n.blob(0), w, axis=-1)]
    if b is not None and len(b) == 1:  # a matrix of one row, transposed
        return [n.emit("Squeeze", n.emit("FC", n.blob(0), n.net.expanded(n.blob(1), [0]), axis=-1), dims=[-1])]
    if a is not None and b is not None and len(a) == 1:
        y = n.emit("BatchMatMul", n.net.expanded(n.blob(0), [0]), n.blob(1), broadcast=1, matrices=1)
        return [n.net.squeezed(y, [len(b) - 2])]
    are_matrices = a is not None and b is not None
    is_alike = a is not None and b is not None and len(a) == len(b) and None not in a[:-2] and a[:-2] == b[:-2]
    if not are_matrices:
        return [n.emit("BatchMatMul", n.blob(0), n.blob(1), broadcast=1)]
    transposes = [n.scope.transpose_of(name) for name in n.tensors]
    blobs = [n.blob(i) if of is None else of for i, of in enumerate(transposes)]
    how = {name: 1 for name, of in zip(("trans_a", "trans_b"), transposes) if of is not None}
    return [n.emit("BatchMatMul", *blobs, **how, **({} if is_alike else {"broadcast": 1, "matrices": 1}))]


@node("Gemm")
def gemm(n: Node) -> Sequence[str]:
    w, trans_b = n.constant(1), n.attribute("transB", 0)
    a = n.emit("Transpose", n.blob(0), axes=[1, 0]) if n.attribute("transA", 0) else matrix(n, 0)
    if w is not None and w.ndim == 2:
        y = n.emit("FC" if trans_b else "FCTransposed", a, n.blob(1))
    else:
        y = n.emit("MatMul", a, matrix(n, 1), trans_b=int(trans_b))
    if n.attribute("alpha", 1.0) != 1:
        y = n.emit("Scale", y, scale=n.attribute("alpha"))
    beta = n.attribute("beta", 1.0)
    if not n.has(2):
        return [y]
    c = n.blob(2)
    return [n.emit("Add", y, c if beta == 1 else n.emit("Scale", c, scale=beta))]


def matrix(n: Node, i: int) -> str:
    """An input of two dimensions, of which products would take others, too; where its rank is not known the run compares it."""
    return n.blob(i) if known_rank(n, i) is not None else n.emit("Transpose", n.blob(i), axes=[0, 1])


@node("Conv")
def conv(n: Node) -> Sequence[str]:
    rank = n.rank()
    if rank not in (3, 4):
        raise Unsupported(f"its input has {rank} dimensions; [N, C, W] and [N, C, H, W] are read")
    kernel = n.attribute("kernel_shape") or n.shape(1)[2:]
    if None in kernel:
        raise Unsupported("the size of its kernel is not known")
    count = rank - 2
    sizes: dict[str, Any] = {
        "kernels": kernel,
        "strides": n.attribute("strides") or [1] * count,
        "dilations": n.attribute("dilations") or [1] * count,
    }
    pads = conv_pads(n, count, **sizes)
    inputs = n.blobs()
    if count == 1:  # images of one row
        inputs[:2] = (n.emit("ExpandDims", blob, dims=[2]) for blob in inputs[:2])
        sizes = {name: [1, *values] for name, values in sizes.items()}
        pads = [0, pads[0], 0, pads[1]]
    y = n.emit("Conv", *inputs, **sizes, pads=pads, group=int(n.attribute("group", 1)))
    return [n.emit("Squeeze", y, dims=[2]) if count == 1 else y]


def conv_pads(n: Node, count: int, kernels: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> list[int]:
    """Those before the ``count`` dimensions, then those behind them."""
    way = n.attribute("auto_pad", "NOTSET")
    if way in ("NOTSET", "VALID"):
        given = n.attribute("pads") or []
        return [*given] if way == "NOTSET" and given else [0] * (2 * count)
    if way not in ("SAME_UPPER", "SAME_LOWER"):
        raise Unsupported(f"auto_pad is {way!r}; NOTSET, VALID, SAME_UPPER and SAME_LOWER are read")
    before, behind = [], []
    for size, kernel, stride, dilation in zip(n.shape(0)[2:], kernels, strides, dilations):
        if size is None and stride != 1:
            raise Unsupported(f"auto_pad is {way!r}, its strides are {list(strides)}, and not all sizes of its input are known")
        reach = dilation * (kernel - 1) + 1
        places = 1 if size is None else size  # with a stride of 1 any number lacks as much
        total = max((-(-places // stride) - 1) * stride + reach - places, 0)
        less, more = total // 2, total - total // 2
        before.append(less if way == "SAME_UPPER" else more)
        behind.append(more if way == "SAME_UPPER" else less)
    return before + behind


# Along dimensions.


@node("Softmax", "LogSoftmax")
def softmax(n: Node) -> Sequence[str]:
    axis = given_axis(n, -1 if n.opset >= 13 else 1)
    if axis == -1 or n.opset < 13:  # before, dimensions from axis on counted as one, as here
        return [n.emit(n.type, n.blob(0), axis=axis)]
    rank = n.rank()
    axis %= rank
    if axis == rank - 1:
        return [n.emit(n.type, n.blob(0), axis=-1)]
    order = [i for i in range(rank) if i != axis] + [axis]
    back = [order.index(i) for i in range(rank)]
    return [n.emit("Transpose", n.emit(n.type, n.emit("Transpose", n.blob(0), axes=order), axis=-1), axes=back)]


@node("ReduceSum", "ReduceMean")
def reduce(n: Node) -> Sequence[str]:
    axes, keepdims = reduced_axes(n)
    if axes is None:
        return [n.emit("Copy", n.blob(0))]
    return [n.emit(n.type, n.blob(0), axes=axes, keepdims=keepdims)]


def reduced_axes(n: Node) -> tuple[list[int] | None, int]:
    """The dimensions that a reduction is over, where an empty list is all of them and None none; and its keepdims."""
    axes, keepdims, is_noop = n.axes(1), n.attribute("keepdims", 1), n.attribute("noop_with_empty_axes", 0)
    return None if not axes and is_noop else without_repeats(n, axes or []), keepdims


@node("ReduceSumSquare", "ReduceLogSum")
def reduce_by_sums(n: Node) -> Sequence[str]:
    axes, keepdims = reduced_axes(n)
    x = n.emit("Sqr", n.blob(0)) if n.type == "ReduceSumSquare" else n.blob(0)
    y = n.emit("Copy", x) if axes is None else n.emit("ReduceSum", x, axes=axes, keepdims=keepdims)
    return [n.emit("Log", y) if n.type == "ReduceLogSum" else y]


@node("ReduceL1", "ReduceL2", "ReduceMax", "ReduceMin")
def reduce_rows(n: Node) -> Sequence[str]:
    axes, keepdims = reduced_axes(n)
    if axes is not None:
        return [of_rows(n, n.type, axes, keepdims)]
    return [n.emit("Abs" if n.type in ("ReduceL1", "ReduceL2") else "Copy", n.blob(0))]


def of_rows(n: Node, op_type: str, axes: Sequence[int], keepdims: int) -> str:
    """One of our reductions that are over the last dimensions, to which others are moved."""
    rank = n.rank()
    reduced = sorted(from_front(n, axes)) or list(range(rank))
    kept = [axis for axis in range(rank) if axis not in reduced]
    last = list(range(len(kept), rank))
    if reduced == last:
        return n.emit(op_type, n.blob(0), axes=last, keepdims=keepdims)
    y = n.emit(op_type, n.emit("Transpose", n.blob(0), axes=kept + reduced), axes=last, keepdims=0)
    return n.emit("ExpandDims", y, dims=reduced) if keepdims else y


@node("ReduceLogSumExp")
def reduce_log_sum_exp(n: Node) -> Sequence[str]:
    """Of what the greatest element is taken from, so that no exponential is too large."""
    axes, keepdims = reduced_axes(n)
    if axes is None:
        return [n.emit("Copy", n.blob(0))]
    greatest = of_rows(n, "ReduceMax", axes, 1)
    is_finite = n.emit("LT", n.emit("Abs", greatest), n.number(math.inf, n.dtype()))
    greatest = n.emit("Where", is_finite, greatest, n.number(0, n.dtype()))
    total = n.emit("ReduceSum", n.emit("Exp", n.emit("Sub", n.blob(0), greatest)), axes=axes, keepdims=1)
    y = n.emit("Add", n.emit("Log", total), greatest)
    dims = sorted(from_front(n, axes)) or list(range(n.rank()))
    return [y if keepdims or not dims else n.emit("Squeeze", y, dims=dims)]


@node("ReduceProd")
def reduce_prod(n: Node) -> Sequence[str]:
    axes, keepdims = reduced_axes(n)
    if axes is None:
        return [n.emit("Copy", n.blob(0))]
    reduced, y = sorted(from_front(n, axes)) or list(range(n.rank())), n.blob(0)
    for axis in reduced:
        y = product_along(n, y, axis)
    y = n.emit("Copy", y) if y == n.blob(0) else y
    return [y if keepdims or not reduced else n.emit("Squeeze", y, dims=reduced)]


def product_along(n: Node, x: str, axis: int) -> str:
    """The product along a dimension, of which one element is left: halves times each other, and again."""
    size = n.shape(0)[axis]
    if not size:
        raise Unsupported(f"the size of dimension {axis} is {'not known' if size is None else 0}, along which it multiplies")
    rest = []
    while size > 1:
        half = size // 2
        if size % 2:
            rest.append(part(n, x, axis, size - 1, size))
        x, size = n.emit("Mul", part(n, x, axis, 0, half), part(n, x, axis, half, 2 * half)), half
    for each in rest:
        x = n.emit("Mul", x, each)
    return x


def part(n: Node, x: str, axis: int, start: int, end: int) -> str:
    return n.emit("Slice", x, starts=[0] * axis + [start], ends=[LAST] * axis + [end])


@node("ArgMax", "ArgMin")
def arg_max(n: Node) -> Sequence[str]:
    axis, keepdims = given_axis(n, 0), n.attribute("keepdims", 1)
    if not n.attribute("select_last_index", 0):
        return [n.emit(n.type, n.blob(0), axis=axis, keepdims=keepdims)]
    (axis,) = from_front(n, [axis])
    whole = {"starts": [0] * axis + [LAST], "ends": [LAST] * axis + [-LAST], "steps": [1] * axis + [-1]}
    from_end = n.emit(n.type, n.emit("Slice", n.blob(0), **whole), axis=axis, keepdims=keepdims)
    size = n.emit("Squeeze", n.emit("Cast", n.emit("Shape", n.blob(0), axes=[axis]), to="int64"), dims=[0])
    return [n.emit("Sub", n.emit("Sub", size, n.number(1, "int64")), from_end)]


def checked_part(n: Node, x: str, blob: str, k: int, axis: int) -> str:
    """What our TopK gives of x, which fills up what a dimension of fewer than k elements lacks; then the run fails."""
    part = n.emit("Slice", x, starts=[0] * (axis + 1), ends=[*[-1] * axis, k])
    return n.emit("ResizeLike", blob, part)
