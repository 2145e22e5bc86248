"""Operators of ONNX that are loaded run as in onnxruntime."""

import math

import numpy
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import ELEMENTS, draw, expect_as_runtime, expect_equal, ints, loaded, model_of, refusal, tensors

import stepnet


X = draw(2, 3, 4)


SPECIAL = numpy.array([0.0, -0.0, 1.5, numpy.inf, -numpy.inf, numpy.nan], "float32")


OPERATORS = [
    *((name, [X], {}, {}) for name in (
        "Abs Ceil Cos Elu Erf Exp Floor HardSigmoid Identity LeakyRelu LogSoftmax Neg Reciprocal Relu Round Selu "
        "Sigmoid Sin Softmax Softplus Softsign Tanh ThresholdedRelu Mish Size Shape Flatten Transpose ReduceMean "
        "ReduceSum ArgMax ArgMin Dropout Asinh Atan Cosh Sinh"
    ).split()),
    *((name, [draw(2, 3, 4, low=0.1)], {}, {}) for name in ("Log", "Sqrt")),
    *((name, [numpy.tanh(X)], {}, {}) for name in ("Acos", "Asin", "Atanh")),
    ("Acosh", [X * X + 1], {}, {}),
    *((name, [SPECIAL], {}, {}) for name in "Acos Acosh Asin Asinh Atan Atanh Cosh Sinh".split()),
    *((name, [X, draw(3, 1)], {}, {}) for name in (
        "Add Sub Mul Div Max Min Sum Mean Equal Greater GreaterOrEqual Less LessOrEqual"
    ).split()),
    *((name, [draw(2, 3, dtype="int64"), draw(3, dtype="int64") + 1], {}, {}) for name in (
        "Add Sub Mul Div Max Min Equal Less"
    ).split()),
    *((name, [draw(3, 4, dtype="int32"), draw(4, dtype="int32"), draw(3, 1, dtype="int32") + 1], {}, {})
      for name in ("Max", "Min")),
    *((name, [draw(2, 3, dtype="bool"), draw(3, dtype="bool")], {}, {}) for name in ("And", "Or", "Xor")),
    ("Not", [draw(2, 3, dtype="bool")], {}, {}),
    ("Where", [draw(2, 1, dtype="bool"), draw(2, 3), draw(3)], {}, {}),
    ("Clip", [X], {1: numpy.float32(-1), 2: numpy.float32(0.5)}, {}),
    ("Clip", [X], {2: numpy.float32(0.5)}, {}),
    ("Pow", [X], {1: numpy.float32(2)}, {}),
    ("Pow", [draw(2, 3, 4, low=0.1), draw(3, 1)], {}, {}),
    ("Pow", [X], {1: ints(0, 1, 2, 3)}, {}),
    *(
        ("Pow", [draw(3, 4, dtype=dtype) + 1], {1: exponent}, {})
        for dtype in ("int32", "int64") for exponent in (ints(3), numpy.float32(0.5), ints(0, 1, 2, 5))
    ),
    ("Pow", [draw(3, 4, dtype="int64"), draw(4, dtype="int32")], {}, {}),
    ("Pow", [draw(4)], {1: ints(2).reshape(1, 1)}, {}),
    ("Cast", [X], {}, {"to": TensorProto.INT32}),
    ("Cast", [draw(4, dtype="int64")], {}, {"to": TensorProto.FLOAT}),
    ("Softmax", [X], {}, {"axis": 1}),
    ("LogSoftmax", [X], {}, {"axis": 0}),
    ("MatMul", [X, draw(4, 5)], {}, {}),
    ("MatMul", [X], {1: draw(4, 5)}, {}),
    ("MatMul", [X, draw(2, 4, 5)], {}, {}),
    ("MatMul", [draw(4), draw(4, 5)], {}, {}),
    ("MatMul", [X, draw(4)], {}, {}),
    ("MatMul", [draw(4), draw(4)], {}, {}),
    ("MatMul", [draw(4)], {1: draw(4)}, {}),
    ("MatMul", [draw(4), draw(2, 4, 5)], {}, {}),
    ("MatMul", [draw(4)], {1: draw(2, 4, 5)}, {}),
    ("Gemm", [draw(3, 4)], {1: draw(4, 5), 2: draw(5)}, {"alpha": 0.5, "beta": 2.0}),
    ("Gemm", [draw(4, 3), draw(5, 4), draw(5)], {}, {"transA": 1, "transB": 1}),
    ("Gemm", [draw(3, 4)], {1: draw(5, 4)}, {"transB": 1}),
    ("LayerNormalization", [X], {1: draw(4), 2: draw(4)}, {}),
    ("LayerNormalization", [X], {1: draw(3, 4)}, {"axis": 1}),
    ("ReduceMean", [X], {}, {"axes": [-1], "keepdims": 0}),
    ("ReduceMean", [X], {}, {"axes": [0]}),
    ("ReduceSum", [X], {1: ints(0, 2)}, {}),
    ("ReduceSum", [X], {}, {"noop_with_empty_axes": 1}),
    ("ReduceMax", [X], {}, {}),
    ("ReduceMin", [X], {}, {}),
    *(
        (name, [draw(2, 3, 4, low=0.1)], {}, attributes)
        for name in ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare")
        for attributes in ({}, {"axes": [1, -1], "keepdims": 0}, {"axes": [0]})
    ),
    ("ReduceLogSumExp", [100 * X], {}, {"axes": [2]}),
    ("ReduceLogSumExp", [numpy.full((2, 3), -numpy.inf, "float32")], {}, {"axes": [1]}),
    ("Gelu", [X], {}, {}),
    ("Gelu", [X], {}, {"approximate": "tanh"}),
    ("HardSwish", [4 * X], {}, {}),
    ("Celu", [X], {}, {"alpha": 0.7}),
    *((op_type, [X], {}, {"alpha": -0.7}) for op_type in ("Celu", "Elu", "LeakyRelu", "Selu")),
    *((op_type, [draw(9, dtype=dtype) - 1], {}, {}) for op_type, dtype in (("Abs", "int32"), ("Abs", "int64"), ("Relu", "int32"))),
    ("Clip", [draw(9, dtype="int64")], {1: numpy.int64(1), 2: numpy.int64(2)}, {}),
    ("Clip", [draw(9, dtype="int32")], {1: numpy.int32(1)}, {}),
    ("Clip", [X], {1: numpy.float32(1), 2: numpy.float32(-1)}, {}),
    ("Clip", [numpy.array([numpy.inf, -numpy.inf, 1], "float32")], {}, {}),
    ("ReduceLogSumExp", [numpy.array([[1, numpy.inf], [-numpy.inf, 2]], "float32")], {}, {"axes": [1]}),
    ("Squeeze", [draw(2, 1, 3, 1)], {1: ints()}, {}),
    ("PRelu", [X], {1: draw(3, 1)}, {}),
    ("ReduceMax", [X], {}, {"axes": [-1], "keepdims": 0}),
    ("ReduceMin", [X], {}, {"axes": [2, 0]}),
    ("ReduceMax", [X], {}, {"axes": [0, -2], "keepdims": 0}),
    ("ArgMax", [X], {}, {"axis": 1, "keepdims": 0}),
    ("Transpose", [X], {}, {"perm": [1, 0, 2]}),
    ("Flatten", [X], {}, {"axis": -1}),
    ("Squeeze", [draw(2, 1, 3, 1)], {1: ints(1, -1)}, {}),
    ("Squeeze", [draw(2, 1, 3, 1)], {}, {}),
    ("Unsqueeze", [X], {1: ints(0, -1)}, {}),
    ("Unsqueeze", [X], {1: ints(-1, 0)}, {}),
    ("Squeeze", [draw(2, 1, 3, 1)], {1: ints(-1, 1)}, {}),
    ("Reshape", [X], {1: ints(0, -1)}, {}),
    ("Reshape", [X, ints(4, 6)], {}, {}),
    ("Expand", [draw(3, 1)], {1: ints(2, 1, 4)}, {}),
    ("Expand", [draw(3, 1, dtype="bool"), ints(2, 3, 4)], {}, {}),
    ("ConstantOfShape", [ints(2, 3)], {}, {"value": numpy_helper.from_array(numpy.array([7], "int64"))}),
    ("Range", [], {0: numpy.int64(0), 1: numpy.int64(5), 2: numpy.int64(1)}, {}),
    *(
        ("Range", [], dict(enumerate(map(numpy.dtype(dtype).type, numbers))), {})
        for numbers in ((3, 10, 2), (10, 3, -3), (1, 1, 1), (4, 1, 1), (0, 5, 2))
        for dtype in ("int32", "int64", "float32", "float64")
    ),
    *(
        ("Range", [numpy.array(each, dtype) for i, each in enumerate(numbers) if i not in fixed],
         {i: numpy.array(numbers[i], dtype) for i in fixed}, {})
        for dtype in ("int32", "int64", "float32", "float64") for numbers in ((1.25, 7.0, 0.5), (6, -2, -2.5), (0, 3, 1), (3, 1, 1))
        for fixed in ((), (0, 2), (1,)) if numpy.array(numbers[2], dtype) != 0
    ),
    ("OneHot", [ints(0, 2, -1, 3, -4)], {1: numpy.int64(3), 2: numpy.array([0.5, 2], "float32")}, {}),
    ("OneHot", [draw(2, 3, dtype="int32")], {1: numpy.int32(4), 2: numpy.array([7, -1], "float32")}, {"axis": 1}),
    ("OneHot", [draw(2, 3, dtype="int64"), draw(2)], {1: numpy.int64(3)}, {"axis": 0}),
    ("Shape", [X], {}, {"start": 1}),
    ("Shape", [X], {}, {"start": -2, "end": -1}),
    ("Concat", [X, draw(2, 1, 4)], {}, {"axis": 1}),
    ("Concat", [X, X], {}, {"axis": -1}),
    ("Slice", [X], {1: ints(0, 1), 2: ints(2, -1), 3: ints(2, 1)}, {}),
    ("Slice", [X], {1: ints(-2), 2: ints(2**40), 3: ints(-1), 4: ints(1)}, {}),
    ("Slice", [X], {1: ints(-1), 2: ints(-(2**62)), 3: ints(0), 4: ints(-1)}, {}),
    ("Slice", [X, ints(-2), ints(3)], {3: ints(0)}, {}),
    ("Gather", [X, draw(2, 2, dtype="int64") % 2], {}, {}),
    ("ScatterElements", [X, draw(1, 5, 2, dtype="int64") % 3], {2: draw(1, 5, 2)}, {"axis": 1, "reduction": "add"}),
    ("Gather", [X, draw(2, 2, dtype="int64") % 2], {}, {"axis": 1}),
    ("Gather", [X, numpy.array(-1)], {}, {}),
    ("Gather", [X, numpy.array(1)], {}, {"axis": 1}),
    ("Gather", [X], {1: numpy.int64(-1)}, {"axis": 1}),
    ("Gather", [X], {1: numpy.int64(1)}, {"axis": -1}),
    ("Gather", [X], {1: ints(0, -1, -2)}, {}),
    ("Gather", [X], {1: ints(-1, 2, -3)}, {"axis": -2}),
    ("Slice", [X], {1: ints(-1), 2: ints(-(2**62)), 3: ints(1), 4: ints(-1)}, {}),
    ("Slice", [X], {1: ints(2**62), 2: ints(-(2**62)), 3: ints(-1), 4: ints(-1)}, {}),
    ("Slice", [draw(5)], {1: ints(-1), 2: ints(-(2**62)), 3: ints(-1), 4: ints(-1)}, {}),
    ("Squeeze", [draw(2, 1, 3, 1)], {1: ints(1, -3)}, {}),
    ("ReduceSum", [X], {1: ints(1, -2)}, {}),
    ("Flatten", [X], {}, {"axis": 3}),
    ("Tile", [X], {1: ints(2, 1, 3)}, {}),
    ("ReverseSequence", [X, ints(1, 2, 0)], {}, {"time_axis": 0, "batch_axis": 1}),
    ("ReverseSequence", [X, ints(3, 2)], {}, {"time_axis": 1, "batch_axis": 0}),
    ("Conv", [draw(2, 4, 7)], {1: draw(6, 2, 3), 2: draw(6)}, {"group": 2, "pads": [2, 1], "strides": [2]}),
    ("Conv", [draw(2, 4, 7)], {1: draw(6, 4, 3)}, {"dilations": [2]}),
    ("Conv", [draw(2, 4, 7), draw(6, 4, 3)], {}, {}),
    *(
        ("Conv", [draw(2, 4, size, 6)], {1: draw(6, 4, 3, 2)}, {"auto_pad": way, "strides": strides})
        for way in ("SAME_UPPER", "SAME_LOWER", "VALID") for size in (4, 7) for strides in ([1, 1], [2, 3])
    ),
    ("Conv", [draw(2, 4, 7)], {1: draw(6, 4, 4)}, {"auto_pad": "SAME_UPPER", "dilations": [1]}),
    ("Gemm", [draw(2, 3)], {1: draw(3, 4)}, {"alpha": 0.5, "beta": 0.25}),
    *(
        (kind, [draw(3, 4, 5, dtype="int64").astype("float32")], {}, {"select_last_index": 1, "axis": axis, "keepdims": keep})
        for kind in ("ArgMax", "ArgMin") for axis in (0, -1, 1) for keep in (0, 1)
    ),
    ("Swish", [X], {}, {}),
    ("Swish", [X], {}, {"alpha": 0.5}),
    ("Mod", [X], {1: numpy.float32(2)}, {"fmod": 1}),
    ("Mod", [draw(2, 3, dtype="int64")], {1: numpy.int64(3)}, {}),
    ("Mod", [draw(2, 3, dtype="int32")], {1: numpy.int32(3)}, {"fmod": 1}),
    ("BatchNormalization", [X], {1: draw(3), 2: draw(3), 3: draw(3), 4: draw(3, low=0.5)}, {"epsilon": 0.1}),
    ("BatchNormalization", [draw(2, 3)], {1: draw(3), 2: draw(3), 3: draw(3), 4: draw(3, low=0.5)}, {}),
    ("Conv", [draw(2, 4, 5, 6), draw(6, 2, 3, 2), draw(6)], {}, {"group": 2, "pads": [1, 0, 2, 1], "strides": [2, 1]}),
    ("Einsum", [X, draw(2, 4, 5)], {}, {"equation": "bij,bjk->bki"}),
    ("InstanceNormalization", [X], {1: draw(3), 2: draw(3)}, {"epsilon": 0.1}),
    ("InstanceNormalization", [draw(2, 3, 4, 5), draw(3), draw(3)], {}, {}),
    *(
        ("CumSum", [draw(2, 3, 4, dtype=dtype)], {1: numpy.int64(axis)}, {"exclusive": exclusive, "reverse": reverse})
        for dtype in ("float32", "int64", "int32") for axis in (0, 1, -1) for exclusive in (0, 1) for reverse in (0, 1)
    ),
    *(
        ("Trilu", [draw(2, 3, 4, dtype=dtype)], {1: numpy.int64(k)}, {"upper": upper})
        for dtype in ("float32", "int64", "bool") for k in (-1, 0, 2) for upper in (0, 1)
    ),
    ("Trilu", [X[0]], {}, {}),
    ("Trilu", [], {0: X[0], 1: numpy.int64(1)}, {}),
    ("Pad", [X], {1: ints(0, 1, 2, 3, 0, 1), 2: numpy.float32(0.5)}, {}),
    ("Pad", [X], {1: ints(0, 1, 0, 0, 0, 0)}, {}),
    ("Pad", [X], {1: ints(0, 0, 0, 0, 0, 0)}, {}),
    ("Pad", [X], {1: ints(0, -1, 2, 0, 0, -3)}, {}),
    ("Pad", [draw(3, 4, dtype="int64")], {1: ints(1, 2), 2: numpy.int64(-7), 3: ints(-1)}, {}),
    ("Pad", [draw(3, 4, dtype="bool")], {1: ints(1, 0, 0, 2), 2: numpy.array(True)}, {}),
    *(
        ("Pad", [x], {1: pads}, {"mode": mode})
        for mode in ("edge", "reflect") for x in (X, draw(2, 3, 4, dtype="int64"))
        for pads in (ints(0, 1, 3, 1, 2, 2), ints(1, 0, 0, 0, 2, 0), ints(0, 0, -1, 0, 1, 2), ints(0, -1, 1, 0, 0, -1))
    ),
    ("Pad", [X], {1: ints(2, 5), 3: ints(1)}, {"mode": "edge"}),
    *(
        ("GroupNormalization", [draw(2, 6, *sizes)], {1: draw(count), 2: draw(count)}, {"num_groups": 3, "epsilon": 0.1})
        for sizes in ((4,), (4, 5), ()) for count in (6,)
    ),
    *(("Sign", [draw(3, 4, dtype=dtype) - 1], {}, {}) for dtype in ("float32", "float64", "int64", "int32")),
    ("Sign", [SPECIAL[:5]], {}, {}),
    ("Tan", [X], {}, {}),
    ("IsNaN", [SPECIAL], {}, {}),
    *(("IsInf", [SPECIAL], {}, {"detect_positive": p, "detect_negative": q}) for p in (0, 1) for q in (0, 1)),
    *(
        ("Mod", [draw(9, dtype=dtype) * 3 - 4, draw(9, dtype=dtype) * 6 - 5], {}, {}) for dtype in ("int32", "int64")
    ),
    ("Mod", [draw(2, 9, dtype="int64") * 3 - 4, draw(2, 1, dtype="int64") - 4], {}, {}),
    *(("ReduceProd", [X], {}, attributes) for attributes in (
        {}, {"axes": [1, -1], "keepdims": 0}, {"axes": [0]}, {"axes": [1]},
    )),
    ("ReduceProd", [draw(3, 7, dtype="int64") + 1], {}, {"axes": [1]}),
    ("ReduceProd", [draw(3, 1)], {}, {"axes": [1]}),
    *(
        ("GatherElements", [X, numpy.array(at)], {}, {"axis": axis})
        for at, axis in (([[[1, 0, -1]]], 2), ([[[1], [0], [-2]]], 0), ([[[2, 1, 0, -3]], [[0, 0, -1, 1]]], 1), ([[[0], [1]]], -2))
    ),
    ("GatherElements", [draw(5), numpy.array([4, -5, 0], "int32")], {}, {}),
    ("GatherElements", [draw(3, 2, dtype="int64")], {1: numpy.array([[1, 0], [0, -1]])}, {"axis": 1}),
    *(
        ("GatherND", [X, numpy.array(at)], {}, {"batch_dims": batch})
        for at, batch in (
            ([[0, 2], [-1, 0]], 0), ([1], 0), ([[[1, -1, 0]]], 0), ([[1], [0]], 0), ([[2], [-1]], 1), ([[[0, -1]], [[2, 0]]], 1),
            ([[[3], [0], [1]], [[-4], [2], [2]]], 2),
        )
    ),
    *(
        (kind, [draw(2, 3, *sizes)], {}, {"kernel_shape": kernel, **how, **more})
        for kind, more in (("MaxPool", {}), ("AveragePool", {"count_include_pad": 1})) for sizes, kernel, how in (
            ((9,), [3], {}), ((9,), [3], {"strides": [3]}), ((8,), [1], {"strides": [2]}), ((9,), [4], {"pads": [1, 2], "strides": [2]}),
            ((5, 6), [2, 3], {}), ((5, 6), [2, 2], {"strides": [2, 2], "pads": [1, 0, 0, 1]}),
        )
    ),
    ("AveragePool", [X], {}, {"kernel_shape": [2]}),
    ("MaxPool", [draw(2, 3, 9)], {}, {"kernel_shape": [3], "dilations": [2]}),
    ("MaxPool", [draw(2, 3, 9)], {}, {"kernel_shape": [3], "strides": [2], "auto_pad": "SAME_UPPER"}),
    *((kind, [draw(2, 3, *sizes)], {}, {}) for kind in ("GlobalMaxPool", "GlobalAveragePool") for sizes in ((4,), (4, 5))),
]  # fmt: skip


OPSETS = {"Gelu": 20, "GroupNormalization": 21, "Pad": 18, "Mish": 18, "Swish": 24}


def of_operator(op_type, given, constants, attributes):
    """A model of one node, and its inputs."""
    inputs, arrays, names = iter(given), {}, []
    count = max([len(given) + len(constants), *(i + 1 for i in constants)])
    fixed = {f"k{i}": numpy.asarray(value) for i, value in constants.items()}
    for i in range(count):
        array = None if i in constants else next(inputs, None)
        names.append(f"k{i}" if i in constants else "" if array is None else f"x{i}")
        if array is not None:
            arrays[f"x{i}"] = array
    node = helper.make_node(op_type, names, ["y"], **attributes)
    model = model_of([node], arrays, {"y": 0}, fixed, opset=OPSETS.get(op_type, 17))
    alone = model_of([node], arrays, {}, fixed, opset=OPSETS.get(op_type, 17))
    kind = onnx.shape_inference.infer_shapes(alone).graph.value_info
    of_first = ELEMENTS[str(next(iter(arrays.values())).dtype)] if arrays else TensorProto.FLOAT
    model.graph.output[0].type.tensor_type.elem_type = kind[0].type.tensor_type.elem_type if kind else of_first
    return model, arrays


IDS = [f"{i} {o[0]}" for i, o in enumerate(OPERATORS)]


@pytest.mark.parametrize("op_type, given, constants, attributes", OPERATORS, ids=IDS)
def test_operators_are_those_of_onnxruntime(op_type, given, constants, attributes, tmp_path):
    expect_as_runtime(*of_operator(op_type, given, constants, attributes), tmp_path)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32"])
def test_the_least_elements(dtype, tmp_path):
    shape = (7,) if dtype.startswith("int") else (3, 7)
    x = draw(*shape, dtype="int64").astype(dtype)  # with equal ones, of which the first are taken
    if dtype.startswith("int"):
        x[2], x[4] = numpy.iinfo(dtype).max, numpy.iinfo(dtype).min
    node = helper.make_node("TopK", ["x", "k"], ["values", "indices"], axis=-1, largest=0)
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    model = model_of([node], {"x": x}, {"values": kind, "indices": TensorProto.INT64}, {"k": ints(4)})
    expect_as_runtime(model, {"x": x}, tmp_path)


def test_empty_tensors_take_the_shape_of_a_file(tmp_path):
    """Where only the run knows that there are no elements."""
    node = helper.make_node("Reshape", ["x", "shape"], ["y"], allowzero=1)
    model = model_of([node], {"x": draw(2, 3)}, {"y": TensorProto.FLOAT}, {"shape": ints(3, 0)}, sizes={"x": ["N", 3]})
    expect_as_runtime(model, {"x": draw(0, 3)}, tmp_path)


@pytest.mark.parametrize("allowzero", [0, 1])
@pytest.mark.parametrize("is_constant", [True, False])
def test_a_size_of_0_where_there_are_no_elements(is_constant, allowzero, tmp_path):
    """It keeps that of the input, unless allowzero says that it is one."""
    node = helper.make_node("Reshape", ["x", "shape"], ["y"], allowzero=allowzero)
    tensors = {"x": draw(1, 3, 2, 0), "shape": ints(1, 0, 2, 0)}
    inputs = {"x": tensors["x"]} if is_constant else tensors
    model = model_of([node], inputs, {"y": TensorProto.FLOAT}, {"shape": tensors["shape"]} if is_constant else {})
    expect_as_runtime(model, inputs, tmp_path)
    assert loaded(model, tmp_path)(inputs).y.shape == ((1, 0, 2, 0) if allowzero else (1, 3, 2, 0))


@pytest.mark.parametrize("numbers", [(0, 5, 0), (0, math.inf, 1), (math.nan, 5, 1), (0, 5, math.nan)], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_ranges_without_an_end_are_refused(dtype, numbers, tmp_path):
    if dtype.startswith("int") and not all(map(math.isfinite, numbers)):
        pytest.skip("no whole numbers")
    inputs = {name: numpy.array(number, dtype) for name, number in zip("abc", numbers)}
    model = model_of([helper.make_node("Range", [*inputs], ["y"])], inputs, {"y": ELEMENTS[dtype]})
    start, stop, step = (f"{number:g}" for number in numbers)
    with pytest.raises(stepnet.InvalidArgumentError, match=f"Range goes from {start} to {stop} in steps of {step}; both must be finite"):
        loaded(model, tmp_path)(inputs)


def test_same_pads_of_any_size_need_a_stride_of_one(tmp_path):
    for strides in ([1], [2]):
        node = helper.make_node("Conv", ["x", "w"], ["y"], auto_pad="SAME_UPPER", strides=strides)
        model = model_of([node], {"x": draw(2, 4, 7)}, {"y": TensorProto.FLOAT}, {"w": draw(6, 4, 3)}, sizes={"x": [2, 4, "W"]})
        if strides == [1]:
            expect_as_runtime(model, {"x": draw(2, 4, 7)}, tmp_path)
        else:
            with pytest.raises(stepnet.InvalidNetError, match=r"its strides are \[2\], and not all sizes of its input are known"):
                loaded(model, tmp_path)


def test_groups_have_a_factor_each_before_opset_21(tmp_path):
    """onnxruntime does not run this version; the sum of what it runs is it."""
    node = helper.make_node("GroupNormalization", ["x", "scale", "bias"], ["y"], num_groups=2)
    x, scale, bias = draw(2, 6, 5), draw(2), draw(2) + 1
    groups = x.reshape(2, 2, 15).astype("float64")
    groups = (groups - groups.mean(2, keepdims=True)) / numpy.sqrt(groups.var(2, keepdims=True) + 1e-5)
    want = (groups * scale[:, None] + bias[:, None]).reshape(x.shape).astype("float32")
    model = model_of([node], {"x": x}, {"y": TensorProto.FLOAT}, {"scale": scale, "bias": bias}, opset=18, sizes={"x": ["N", 6, "W"]})
    expect_equal(loaded(model, tmp_path)(x=x).y, want)


@pytest.mark.parametrize("shape", [(7,), (2,), (4,), (9, 5)], ids=str)
@pytest.mark.parametrize("count", [2, 3, 4])
def test_parts_that_are_not_equal(shape, count, tmp_path):
    names = [f"y{i}" for i in range(count)]
    node = helper.make_node("Split", ["x"], names, num_outputs=count)
    x = draw(*shape)
    model = model_of([node], {"x": x}, dict.fromkeys(names, TensorProto.FLOAT), opset=18)
    if -(-shape[0] // count) * (count - 1) > shape[0]:
        assert refusal(model, tmp_path).startswith(f"invalid net: num_outputs is {count}, and a size of 2 has no parts of 1 for")
    else:
        expect_as_runtime(model, {"x": x}, tmp_path)


@pytest.mark.parametrize("axis", [-1, 1, 0])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_means_and_deviations_of_layers(axis, dtype, tmp_path):
    node = helper.make_node("LayerNormalization", ["x", "scale"], ["y", "mean", "deviation"], axis=axis, epsilon=0.1)
    x, scale = draw(2, 3, 4).astype(dtype), draw(2, 3, 4)[(0,) * (axis % 3)].astype(dtype)
    kinds = {"y": helper.np_dtype_to_tensor_dtype(x.dtype), "mean": TensorProto.FLOAT, "deviation": TensorProto.FLOAT}
    model = model_of([node], {"x": x}, kinds, {"scale": scale})
    expect_as_runtime(model, {"x": x}, tmp_path, 1e-5 if dtype == "float32" else 1e-3)


def test_the_mask_of_a_dropout_that_does_nothing(tmp_path):
    node = helper.make_node("Dropout", ["x"], ["y", "mask"])
    model = model_of([node], {"x": X}, {"y": TensorProto.FLOAT, "mask": TensorProto.BOOL})
    expect_as_runtime(model, {"x": X}, tmp_path)


def test_operators_of_several_outputs(tmp_path):
    nodes = [
        helper.make_node("Split", ["x", "sizes"], ["a", "b"], axis=1),
        helper.make_node("TopK", ["b", "k"], ["values", "indices"], axis=-1),
    ]
    outputs = {"a": TensorProto.FLOAT, "values": TensorProto.FLOAT, "indices": TensorProto.INT64}
    model = model_of(nodes, {"x": X}, outputs, {"sizes": ints(1, 2), "k": ints(2)})
    expect_as_runtime(model, {"x": X}, tmp_path)


def test_elements_beyond_a_tensor_are_refused_by_the_run(tmp_path):
    """Where they are numbers of elements of other rows, too."""
    for kind, at in (("GatherElements", [[1], [3]]), ("GatherElements", [[-4], [0]]), ("GatherND", [[0, 3]]), ("GatherND", [[-3, 0]])):
        node = helper.make_node(kind, ["x", "at"], ["y"], **({"axis": 1} if kind == "GatherElements" else {}))
        inputs = {"x": draw(2, 3), "at": numpy.array(at)}
        model = model_of([node], inputs, {"y": TensorProto.FLOAT}, sizes={"x": ["A", "B"]})
        with pytest.raises(stepnet.Error, match="Gather"):
            loaded(model, tmp_path)(**inputs)


@pytest.mark.parametrize("sizes", [("A", "B", "C"), ("A", 3, "C"), (2, "B", 4)], ids=str)
def test_elements_of_tensors_of_any_size(sizes, tmp_path):
    at = {"GatherElements": numpy.array([[[1, 0]], [[-1, 2]]]), "GatherND": numpy.array([[1, -1], [0, 0]])}
    for kind, indices in at.items():
        node = helper.make_node(kind, ["x", "at"], ["y"], **({"axis": 1} if kind == "GatherElements" else {}))
        model = model_of([node], {"x": X, "at": indices}, {"y": TensorProto.FLOAT}, sizes={"x": sizes, "at": [None] * (indices.ndim - 1) + [2]})
        expect_as_runtime(model, {"x": X, "at": indices}, tmp_path)


def test_elements_that_were_taken_have_a_gradient(tmp_path):
    node = helper.make_node("GatherElements", ["x", "at"], ["y"], axis=1)
    inputs = {"x": draw(2, 3), "at": numpy.array([[2, 2], [0, -1]])}
    net = loaded(model_of([node], inputs, {"y": TensorProto.FLOAT}), tmp_path)
    _, gradients = net.value_and_grad(lambda out: (float(out.y.sum()), {"y": numpy.ones_like(out.y)}), wrt=["x"], **inputs)
    assert gradients.inputs["x"].tolist() == [[0, 0, 2], [1, 0, 1]]


# Round trips.
