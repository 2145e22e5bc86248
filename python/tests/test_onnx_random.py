"""Random models of one node each give what onnxruntime gives: any dtypes and shapes, also without elements and of one
number, repeated and negative indices, NaN and infinite numbers, constants and inputs, sizes that are known or not."""

import math
import os

import numpy
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx_models import ELEMENTS, expect_equal, runtime

import stepnet
import stepnet.onnx

FLOATS, WHOLE = ("float32", "float64"), ("int32", "int64")
NUMBERS, ALL = (*FLOATS, *WHOLE), (*FLOATS, *WHOLE, "bool")
SPECIAL = [math.nan, math.inf, -math.inf, -0.0, 0.5, 2.5, 1e-3]
TOLERANCES = {"float32": 2e-5, "float64": 1e-12, "float16": 1e-3}
SEEDS = int(os.environ.get("STEPNET_SEEDS", 8))
OPSETS = {"Gelu": 20, "GroupNormalization": 21, "Reshape": 19, "Swish": 24}


class Draws:
    """Random choices for a node, and the tensors that it reads."""

    def __init__(self, seed):
        self.random = numpy.random.default_rng(seed)
        self.inputs, self.constants = {}, {}

    def one(self, choices):
        return choices[int(self.random.integers(len(choices)))]

    def happens(self, probability):
        return self.random.random() < probability

    def shape(self, least=0, most=4):
        return [self.one([0, 1, 1, 2, 3, 4]) for _ in range(int(self.random.integers(least, most + 1)))]

    def shapes(self, count):
        """Those of tensors that are repeated over each other."""
        whole, found = self.shape(), []
        for _ in range(count):
            sizes = [1 if self.happens(0.25) else size for size in whole]
            found.append(sizes[int(self.random.integers(len(sizes) + 1)) :] if self.happens(0.4) else sizes)
        return found

    def axis(self, shape):
        return int(self.random.integers(-len(shape), len(shape)))

    def axes(self, count, rank):
        found = [int(axis) for axis in self.random.permutation(rank)[:count]]
        return [axis - rank if self.happens(0.4) else axis for axis in found]

    def ints(self, low, high, count):
        return [int(each) for each in self.random.integers(low, high, count)]

    def array(self, dtype, shape, is_finite=False):
        if dtype == "bool":
            return self.random.random(shape) < 0.5
        if dtype in WHOLE:
            array = self.random.integers(-4, 5, shape)
            large = 0 if is_finite or dtype == "int32" or self.happens(0.9) else self.one([2**53 + 1, -(2**60)])
            return (array + large).astype(dtype)
        array = numpy.asarray(2 * self.random.standard_normal(shape))
        if not is_finite and array.size and self.happens(0.4):
            array.reshape(-1)[self.random.integers(array.size, size=2)] = [self.one(SPECIAL) for _ in range(2)]
        return array.astype(dtype)

    def give(self, array, is_constant=None):
        """The name of an input of the node, a constant or not."""
        name = f"x{len(self.inputs) + len(self.constants)}"
        tensors = self.constants if (self.happens(0.3) if is_constant is None else is_constant) else self.inputs
        tensors[name] = numpy.asarray(array)
        return name

    def x(self, dtypes, shape=None, is_finite=False):
        """The first input of a node, which is no constant."""
        return self.give(self.array(self.one(dtypes), self.shape() if shape is None else shape, is_finite), False)

    def numbers(self, dtype, *shapes):
        return [self.give(self.array(dtype, shape, is_finite=True)) for shape in shapes]

    def axes_of(self, shape):
        return self.give(numpy.array(self.axes(int(self.random.integers(len(shape) + 1)), len(shape)), "int64"), True)


def unary(dtypes, *choices, is_finite=False):
    return lambda d, _: (dict(d.one(choices)) if choices else {}, [d.x(dtypes, is_finite=is_finite)])


def alpha(*names):
    return [{}, {name: 0.3 for name in names}, {name: 1 / 3 for name in names}, {"alpha": -0.5}]


def repeated(d, op_type):
    count = d.one([1, 2, 3]) if op_type in ("Max", "Mean", "Min", "Sum") else 3 if op_type == "Where" else 2
    only = {"And": ["bool"], "Or": ["bool"], "Xor": ["bool"], "Equal": ALL, "Where": ALL, "Mean": FLOATS, "Sum": FLOATS}
    dtype, shapes = d.one(only.get(op_type, NUMBERS)), d.shapes(count)
    arrays = [d.array(dtype, shape) for shape in shapes]
    if op_type == "Where":
        arrays[0] = d.array("bool", shapes[0])
    if op_type == "Div" and dtype in WHOLE:
        arrays[1] = numpy.where(arrays[1] == 0, 3, arrays[1]).astype(dtype)
    return {}, [d.give(arrays[0], False), *map(d.give, arrays[1:])]


def power(d, _):
    dtype, (of_x, of_exponent) = d.one(NUMBERS), d.shapes(2)
    exponent = d.array(dtype, of_exponent, is_finite=True) if d.happens(0.5) else numpy.array(d.one([2, 0, 0.1, 1 / 3]), dtype)
    return {}, [d.x([dtype], of_x, is_finite=True), d.give(numpy.abs(exponent) if dtype in WHOLE else exponent)]


def clip(d, _):
    dtype = d.one(NUMBERS)
    bounds = [d.give(d.array(dtype, [], is_finite=True), True) if d.happens(0.7) else "" for _ in range(2)]
    return {}, [d.x([dtype]), *(bounds if bounds[1] else bounds[:1] if bounds[0] else [])]


def matmul(d, op_type):
    dtype, (m, n, k) = d.one(FLOATS), (d.one([0, 1, 2, 3]) for _ in range(3))
    if op_type == "Gemm":
        trans_a, trans_b = d.one([0, 1]), d.one([0, 1])
        of_c = d.one([[m, n], [1, n], [n], [m, 1], []])
        names = d.numbers(dtype, [k, m] if trans_a else [m, k], [n, k] if trans_b else [k, n], of_c)
        return {"transA": trans_a, "transB": trans_b, "alpha": d.one([1.0, 0.1]), "beta": d.one([1.0, 0.3])}, names
    outer = d.shape(most=2)
    of_b = d.one([[k], [k, n], [*outer, k, n], [*(d.one([1, size]) for size in outer), k, n]])
    return {}, d.numbers(dtype, d.one([[k], [*outer, m, k]]), of_b)


def einsum(d, _):
    equation, shapes = d.one([
        ("ij,jk->ik", [(2, 3), (3, 4)]), ("ii->i", [(3, 3)]), ("ij->", [(2, 0)]), ("i,j->ij", [(2,), (3,)]),
        ("...ij,...jk->...ik", [(2, 1, 2, 3), (3, 3, 2)]),
    ])  # fmt: skip
    return {"equation": equation}, d.numbers(d.one(FLOATS), *shapes)


def conv(d, _):
    dims, groups = d.one([1, 2]), d.one([1, 2])
    attributes = {"group": groups, "strides": d.ints(1, 3, dims), "dilations": d.ints(1, 3, dims)}
    attributes["kernel_shape"] = d.ints(1, 4, dims)
    if d.happens(0.5):
        attributes["pads"] = d.ints(0, 3, 2 * dims)
    channels = groups * d.one([1, 2])
    shapes = [d.one([0, 1, 2]), channels, *d.ints(5, 8, dims)], [2 * groups, channels // groups, *attributes["kernel_shape"]]
    return attributes, d.numbers("float32", *shapes, [2 * groups])


def softmax(d, _):
    shape = d.shape(1)
    return {"axis": d.axis(shape)}, [d.x(FLOATS, shape, is_finite=True)]


def reduction(d, op_type):
    """Of NaN onnxruntime gives the greatest and the least number at times, and at times NaN."""
    shape = d.shape()
    names = [d.x(FLOATS, shape, is_finite=op_type in ("ReduceMax", "ReduceMin"))]
    attributes = {"keepdims": d.one([0, 1])}
    if d.happens(0.8):
        names.append(d.axes_of(shape))
        attributes["noop_with_empty_axes"] = d.one([0, 1])
    return attributes, names


def arg_max(d, _):
    shape = d.shape(1)
    x = numpy.round(d.array(d.one(FLOATS), shape, is_finite=True))
    return {"axis": d.axis(shape), "keepdims": d.one([0, 1]), "select_last_index": d.one([0, 1])}, [d.give(x, False)]


def top_k(d, _):
    shape = [max(size, 1) for size in d.shape(1)]
    axis = d.axis(shape)
    x = numpy.round(d.array(d.one(FLOATS), shape, is_finite=True))
    k = numpy.array([int(d.random.integers(1, shape[axis] + 1))])
    return {"axis": axis, "largest": d.one([0, 1])}, [d.give(x, False), d.give(k, True)], 2


def cumulative_sum(d, _):
    shape = d.shape(1)
    axis = d.give(numpy.array(d.axis(shape), d.one(WHOLE)), True)
    return {"exclusive": d.one([0, 1]), "reverse": d.one([0, 1])}, [d.x(NUMBERS, shape, is_finite=True), axis]


def layer_norm(d, _):
    shape, dtype = [max(size, 1) for size in d.shape(1)], d.one(FLOATS)
    axis = d.axis(shape)
    rows = shape[axis % len(shape) :]
    return {"axis": axis, "epsilon": 0.1}, d.numbers(dtype, shape, rows, rows), d.one([1, 3])


def norm_of_channels(d, op_type):
    channels, is_batch = d.one([2, 4]), op_type == "BatchNormalization"
    dtype = "float32" if op_type == "GroupNormalization" else d.one(FLOATS)  # in which onnxruntime computes it
    names = d.numbers(dtype, [2, channels, *d.ints(1, 4, 2)], *[[channels]] * (3 if is_batch else 2))
    if is_batch:
        names.append(d.give(numpy.abs(d.array(dtype, [channels], is_finite=True))))
    return {"epsilon": 0.1, **({"num_groups": 2} if op_type == "GroupNormalization" else {})}, names


def concat(d, _):
    shape, dtype = d.shape(1), d.one(ALL)
    axis, names = d.axis(shape), []
    for _ in range(d.one([1, 2, 3])):
        shape[axis] = d.one([0, 1, 2])
        names.append(d.give(d.array(dtype, shape)))
    return {"axis": axis}, names


def constant_of_shape(d, _):
    value = numpy_helper.from_array(d.array(d.one(ALL), [1]))
    return d.one([{}, {"value": value}]), [d.give(numpy.array(d.shape(), "int64"))]


def expand(d, _):
    of_x, shape = d.shapes(2)
    return {}, [d.x(ALL, of_x), d.give(numpy.array(shape, "int64"))]


def gather(d, _):
    shape = [max(size, 1) for size in d.shape(1)]
    axis = d.axis(shape)
    indices = d.random.integers(-shape[axis], shape[axis], d.shape(most=2))
    return {"axis": axis}, [d.x(ALL, shape), d.give(numpy.asarray(indices).astype(d.one(WHOLE)))]


def scatter(d, _):
    """onnxruntime takes a NaN among updates for no greatest and no least number."""
    shape = d.shape(1)
    axis, dtype = d.axis(shape), d.one(ALL)
    of_indices = [int(d.random.integers(size + 1)) for size in shape]
    of_indices[axis] = d.one([0, 1, 2, 6]) if shape[axis] else 0
    indices = d.random.integers(-shape[axis], max(shape[axis], 1), of_indices).astype(d.one(WHOLE))
    reduction = "none" if dtype == "bool" else d.one(["none", "none", "add", "mul", "max", "min"])
    updates = d.array(dtype, of_indices, is_finite=reduction in ("max", "min"))
    return {"axis": axis, "reduction": reduction}, [d.x([dtype], shape), d.give(indices), d.give(updates)]


def one_hot(d, _):
    shape, depth = d.shape(most=3), d.one([1, 2, 4])
    indices = d.give(d.random.integers(-depth - 1, depth + 2, shape).astype(d.one([*WHOLE, "float32"])), False)
    names = [indices, d.give(numpy.array(depth), True), d.give(d.array(d.one(NUMBERS), [2]))]
    return {"axis": int(d.random.integers(-len(shape) - 1, len(shape) + 1))}, names


def pad(d, _):
    shape, dtype, mode = [max(size, 2) for size in d.shape(1)], d.one(ALL), d.one(["constant", "edge", "reflect"])
    names = [d.x([dtype], shape), d.give(numpy.array(d.ints(-1, 2, 2 * len(shape))), True)]
    return {"mode": mode}, [*names, *([d.give(d.array(dtype, []), True)] if mode == "constant" else [])]


def number_range(d, _):
    dtype = d.one(NUMBERS)
    bounds = [d.array(dtype, [], is_finite=True) for _ in range(2)]
    step = numpy.array(d.one([1, 2, -1, 3] if dtype in WHOLE else [0.5, -0.3, 1.1]), dtype)
    if dtype == "int64" and d.happens(0.3):  # which no double holds
        bounds = [numpy.asarray(bound + 2**60 + 1) for bound in bounds]
    return {}, [d.give(number) for number in (*bounds, step)]


def reshape(d, _):
    shape, is_size = d.shape(), d.one([0, 1])
    new = [*shape[::-1]] if d.happens(0.5) else [*shape]
    for axis, size in enumerate(new):
        if not is_size and size == shape[axis] and d.happens(0.3):
            new[axis] = 0
    if new and d.happens(0.4) and not (is_size and 0 in new):
        new[d.axis(new)] = -1
    return {"allowzero": is_size}, [d.x(ALL, shape), d.give(numpy.array(new, "int64"))]


def reverse_sequence(d, _):
    time_axis, sizes = d.one([0, 1]), d.ints(1, 5, 2)
    lengths = d.random.integers(1, sizes[time_axis] + 1, sizes[1 - time_axis])
    attributes = {"time_axis": time_axis, "batch_axis": 1 - time_axis}
    return attributes, [d.x(NUMBERS, [*sizes, *d.shape(most=1)]), d.give(lengths)]


def shape_of(d, _):
    return d.one([{}, {"start": d.one([-2, 1])}, {"end": d.one([-1, 2])}]), [d.x(ALL)]


def cut(d, _):
    shape = d.shape(1)
    axes = d.axes(int(d.random.integers(1, len(shape) + 1)), len(shape))
    bounds = [d.give(numpy.array(d.ints(-7, 8, len(axes))), True) for _ in range(2)]
    steps = [each or 1 for each in d.ints(-3, 4, len(axes))]
    return {}, [d.x(ALL, shape), *bounds, d.give(numpy.array(axes), True), d.give(numpy.array(steps), True)]


def split(d, _):
    shape, count = d.shape(1), d.one([1, 2, 3])
    axis = d.axis(shape)
    shape[axis] = d.one([0, count, 5])
    ends = [0, *sorted(d.ints(0, shape[axis] + 1, count - 1)), shape[axis]]
    return {"axis": axis}, [d.x(ALL, shape), d.give(numpy.diff(ends), True)], count


def squeeze(d, op_type):
    if op_type == "Unsqueeze":
        shape, more = d.shape(most=3), d.one([0, 1, 2])
        return {}, [d.x(ALL, shape), d.give(numpy.array(d.axes(more, len(shape) + more), "int64"), True)]
    shape = d.one([[1, 2, 1], [1], [3, 1, 0], [1, 1]])
    ones = [axis - d.one([0, len(shape)]) for axis, size in enumerate(shape) if size == 1]
    return {}, [d.x(ALL, shape), d.give(numpy.array(ones[: d.one([1, 2])]), True)]


def tile(d, _):
    shape = d.shape()
    return {}, [d.x(ALL, shape), d.give(numpy.array(d.ints(0, 3, len(shape)), "int64"), True)]


def transpose(d, _):
    shape = d.shape(1)
    return d.one([{}, {"perm": [int(axis) for axis in d.random.permutation(len(shape))]}]), [d.x(ALL, shape)]


def triangle(d, _):
    return {"upper": d.one([0, 1])}, [d.x(ALL, d.shape(2)), d.give(numpy.array(d.one([-3, -1, 0, 2])), True)]


NODES = {
    **dict.fromkeys("Ceil Cos Erf Exp Floor HardSwish Log Mish Reciprocal Round Sigmoid Sin Softsign Sqrt Tanh".split(), unary(FLOATS)),
    **dict.fromkeys("Acos Acosh Asin Asinh Atan Atanh Cosh Sinh".split(), unary(FLOATS)),
    **dict.fromkeys("Abs Identity Neg Relu".split(), unary(NUMBERS)),
    **{"Not": unary(["bool"]), "Size": unary(ALL), "Dropout": unary(FLOATS), "Softplus": unary(FLOATS, is_finite=True)},
    **dict.fromkeys("Celu Elu LeakyRelu Swish ThresholdedRelu".split(), unary(FLOATS, *alpha("alpha"))),
    **{"Selu": unary(FLOATS, *alpha("alpha", "gamma")), "HardSigmoid": unary(FLOATS, *alpha("alpha", "beta"))},
    "Gelu": unary(FLOATS, {}, {"approximate": "tanh"}),
    "Cast": unary(ALL, *({"to": kind} for kind in (1, 6, 7, 9, 10, 11)), is_finite=True),
    "Flatten": lambda d, _: (lambda shape: ({"axis": d.axis(shape)}, [d.x(ALL, shape)]))(d.shape(1)),
    **dict.fromkeys("Add And Div Equal Greater GreaterOrEqual Less LessOrEqual Max Mean Min Mul Or Sub Sum Where Xor".split(), repeated),
    **{"Clip": clip, "Pow": power, "Conv": conv, "Einsum": einsum, "Gemm": matmul, "MatMul": matmul, "TopK": top_k},
    **dict.fromkeys("ReduceL1 ReduceL2 ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceSum ReduceSumSquare".split(), reduction),
    **{"ArgMax": arg_max, "ArgMin": arg_max, "CumSum": cumulative_sum, "LogSoftmax": softmax, "Softmax": softmax},
    **dict.fromkeys("BatchNormalization GroupNormalization InstanceNormalization".split(), norm_of_channels),
    **{"Concat": concat, "ConstantOfShape": constant_of_shape, "Expand": expand, "Gather": gather, "LayerNormalization": layer_norm},
    **{"OneHot": one_hot, "Pad": pad, "Range": number_range, "Reshape": reshape, "ReverseSequence": reverse_sequence},
    **{"ScatterElements": scatter, "Shape": shape_of, "Slice": cut, "Split": split, "Squeeze": squeeze, "Unsqueeze": squeeze},
    **{"Tile": tile, "Transpose": transpose, "Trilu": triangle},
}  # fmt: skip


def model_of_node(op_type, d):
    attributes, names, *count = NODES[op_type](d, op_type)
    outputs = [f"y{i}" for i in range(count[0] if count else 1)]
    are_free = d.happens(0.3) and op_type not in ("Conv", "Pad", "Split")
    infos = []
    for name, array in d.inputs.items():
        sizes = [None if are_free and d.happens(0.5) else size for size in array.shape]
        infos.append(helper.make_tensor_value_info(name, ELEMENTS[str(array.dtype)], sizes))
    constants = [numpy_helper.from_array(array, name) for name, array in d.constants.items()]
    node = helper.make_node(op_type, names, outputs, **attributes)
    graph = helper.make_graph([node], "graph", infos, [onnx.ValueInfoProto(name=name) for name in outputs], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSETS.get(op_type, 18))], ir_version=9)


@pytest.mark.parametrize("op_type", sorted(NODES))
def test_random_nodes_give_what_onnxruntime_gives(op_type):
    compared = 0
    for seed in range(SEEDS):
        print("seed", seed)
        d = Draws(seed)
        model = model_of_node(op_type, d)
        try:
            expected = runtime(model, d.inputs)
        except Exception:  # its exceptions have no common type; it lacks some dtypes, and refuses what ONNX does not allow
            continue
        for got, want in zip(stepnet.onnx.load(model)(d.inputs), expected):
            expect_equal(got, want, TOLERANCES.get(str(want.dtype), 0))
        compared += 1
    assert compared > 0
