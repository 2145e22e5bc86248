"""Each operator of StepNet as nodes of ONNX: onnxruntime's results are ours."""

import numpy
import onnx
import pytest
from onnx_models import expect_equal, session

import stepnet
import stepnet.onnx
from stepnet.onnx.netdef import Names, NetText
from stepnet.onnx.operators import TABLE


def draw(*shape, dtype="float32", low=-2.0):
    random = numpy.random.default_rng(sum(shape) + 1)
    if dtype == "bool":
        return random.random(shape) < 0.5
    if dtype.startswith("int"):
        return random.integers(-4, 5, shape).astype(dtype)
    return (low + 4 * random.random(shape)).astype(dtype)


def lengths(*values):
    return numpy.array(values, "int32")


X = draw(2, 3, 4)
CLASSES = numpy.array([1, 0, 4, 2], "int32")
P = draw(4, 5, low=0.0)
P /= P.sum(1, keepdims=True)
Q = P[::-1].copy()
P[0, 1] = 0  # of which the logarithm is that of the least probability
UNARY = (
    "Abs Alias Ceil Copy CopyFromCPUInput EnsureCPUOutput StopGradient Cos Elu Erf Exp Floor Gelu HardSigmoid "
    "LeakyRelu Mish Negative Reciprocal Relu Round Selu Sigmoid Silu Sin Softplus Softsign Sqr Swish Tanh Size Shape "
    "Flatten FlattenToVec Transpose Softmax LogSoftmax ReduceMean ReduceSum SumElements SumSqrElements AveragedLoss "
    "ArgMax ArgMin Asinh Atan Cosh Sinh"
).split()
ARITHMETIC = ("Add", "Sub", "Mul", "Div")
COMPARISONS = ("EQ", "NE", "GE", "GT", "LE", "LT")

# Type, inputs, arguments, number of outputs.
CASES = [
    ("LabelCrossEntropy", [P, CLASSES], {}, 1),
    ("CrossEntropy", [P, Q], {}, 1),
    ("SigmoidCrossEntropyWithLogits", [draw(4, 5), P], {}, 1),
    ("SigmoidCrossEntropyWithLogits", [draw(4, 5), P], {"log_D_trick": 1}, 1),
    ("SigmoidCrossEntropyWithLogits", [draw(4, 5), P], {"unjoined_lr_loss": 1}, 1),
    ("SoftmaxWithLoss", [draw(4, 5), CLASSES], {"scale": 3.0}, 2),
    ("SoftmaxWithLoss", [draw(4, 5), CLASSES, numpy.array([0.5, 0, 2, 1], "float32")], {}, 2),
    ("SoftmaxWithLoss", [draw(4, 5), CLASSES, numpy.zeros(4, "float32")], {}, 2),
    ("SoftmaxWithLoss", [draw(4, 5), Q], {"label_prob": 1}, 2),
    ("SoftmaxWithLoss", [draw(2, 2, 5), CLASSES.reshape(2, 2)], {"axis": 2}, 2),
    ("WeightedSum", [X, draw(1), X + 1, draw(1)], {}, 1),
    ("Accuracy", [draw(4, 5), CLASSES], {"top_k": 2}, 1),
    *((name, [X], {}, 1) for name in UNARY),
    *((name, [draw(2, 3, low=0.1)], {}, 1) for name in ("Log", "Rsqrt", "Sqrt")),
    *((name, [numpy.tanh(X)], {}, 1) for name in ("Acos", "Asin", "Atanh")),
    ("Acosh", [X * X + 1], {}, 1),
    *((name, [X, draw(3, 1)], {}, 1) for name in (*ARITHMETIC, *COMPARISONS, "Max", "Min")),
    *((name, [X, draw(2, 3)], {"broadcast": 1, "axis": 0}, 1) for name in (*ARITHMETIC, *COMPARISONS)),
    *(
        (name, [draw(2, 3, 4, dtype=dtype), draw(4, dtype=dtype) * 2 + 1], {}, 1)
        for name in (*ARITHMETIC, *COMPARISONS) for dtype in ("int32", "int64")
    ),
    *((name, [draw(2, 3, dtype="bool"), draw(3, dtype="bool")], {}, 1) for name in ("And", "Or", "Xor", "EQ", "NE")),
    ("Not", [draw(2, 3, dtype="bool")], {}, 1),
    ("Add", [X, draw(3, 4)], {"broadcast": 1}, 1),
    ("Add", [X, draw(3)], {"broadcast": 1, "axis": 1}, 1),
    ("Add", [X, draw(1, 3, 1)], {"broadcast": 1, "axis": 0}, 1),
    ("Add", [X, draw(1, 1, 1)], {"broadcast": 1}, 1),
    ("Add", [draw(2), draw(1, 1)], {"broadcast": 1}, 1),
    ("Add", [X, draw(3)], {"broadcast": 1, "axis_str": "C"}, 1),
    ("Sum", [X, draw(2, 3, 4, low=0.0), X], {}, 1),
    ("Sum", [draw(3, dtype="int32"), draw(3, dtype="int32")], {}, 1),
    ("Where", [draw(2, 1, dtype="bool"), draw(2, 3), draw(3)], {}, 1),
    ("Where", [draw(2, 3, dtype="bool"), X, X + 1], {"broadcast_on_rows": 1}, 1),
    ("Where", [draw(2, dtype="bool"), draw(2, 3, dtype="bool"), draw(2, 3, dtype="bool")], {"broadcast_on_rows": 1}, 1),
    ("ElementwiseLinear", [draw(3, 4), draw(4), draw(4)], {}, 1),
    ("ElementwiseLinear", [X, draw(12), draw(12)], {"axis": 1}, 1),
    ("Clip", [X], {"min": -1.0, "max": 0.5}, 1),
    ("Clip", [X], {}, 1),
    ("Scale", [X], {"scale": -1.5}, 1),
    ("Pow", [X], {"exponent": 3.0}, 1),
    ("Power", [draw(2, 3, 4, low=0.1), draw(3, 1)], {}, 1),
    ("Power", [draw(2, 3, 4, low=0.1), draw(3)], {"broadcast": 1, "axis": 1}, 1),
    ("Mod", [draw(9, dtype="int64")], {"divisor": 3}, 1),
    ("Mod", [draw(9, dtype="int32")], {"divisor": 3, "sign_follow_divisor": 1}, 1),
    ("Mod", [X], {"divisor": 2, "sign_follow_divisor": 1}, 1),
    ("Cast", [X], {"to": "int32"}, 1),
    ("Cast", [draw(4, dtype="int64")], {"to": 1}, 1),
    ("Cast", [X], {"to": "bool"}, 1),
    ("Cast", [X.astype("float64")], {"to": "float"}, 1),
    ("Dropout", [X], {"is_test": 1, "ratio": 0.5}, 2),
    ("CopyOnDeviceLike", [X, draw(2)], {}, 1),
    ("LeakyRelu", [X], {"alpha": 0.3}, 1),
    ("HardSigmoid", [X], {"alpha": 0.3, "beta": 0.4}, 1),
    ("Elu", [X], {"alpha": 0.3}, 1),
    # Products.
    ("FC", [draw(3, 4), draw(5, 4), draw(5)], {}, 1),
    ("FC", [X, draw(5, 4)], {"axis": -1}, 1),
    ("FC", [X, draw(5, 4), draw(5)], {"axis": 2}, 1),
    ("FC", [X, draw(5, 12), draw(5)], {"axis": 1}, 1),
    ("FC", [X, draw(5, 3, 4), draw(5)], {"axis": 1}, 1),
    ("FC", [draw(2, 3, 4), draw(5, 2, 12), draw(10)], {"axis": -2, "axis_w": 2}, 1),
    ("FCTransposed", [X, draw(4, 5), draw(5)], {"axis": 2}, 1),
    ("MatMul", [draw(3, 4), draw(4, 5)], {}, 1),
    ("MatMul", [draw(4, 3), draw(5, 4)], {"trans_a": 1, "trans_b": 1}, 1),
    ("MatMul", [X, draw(4, 5)], {"axis_a": 2}, 1),
    ("BatchMatMul", [X, draw(2, 4, 5)], {}, 1),
    ("BatchMatMul", [X, draw(2, 3, 5)], {"trans_a": 1}, 1),
    ("BatchMatMul", [X, draw(2, 5, 4)], {"trans_b": 1}, 1),
    ("BatchMatMul", [X, draw(4, 5)], {"broadcast": 1}, 1),
    ("BatchMatMul", [X, draw(4)], {"broadcast": 1}, 1),
    ("BatchMatMul", [draw(4), draw(4)], {"broadcast": 1}, 1),
    # Along dimensions.
    ("Softmax", [X], {"axis": -1}, 1),
    ("Softmax", [X], {"axis": 0}, 1),
    ("LogSoftmax", [X], {"axis": 2}, 1),
    ("LayerNorm", [X], {"axis": -1}, 3),
    ("LayerNorm", [X], {"axis": 1, "epsilon": 0.1}, 3),
    ("ReduceSum", [X], {"axes": [0, -1], "keepdims": 0}, 1),
    ("ReduceMean", [X], {"axes": [1]}, 1),
    ("ReduceMax", [X], {"axes": [-1]}, 1),
    ("ReduceMin", [X], {"axes": [1, 2], "keepdims": 0}, 1),
    ("ReduceL1", [X], {}, 1),
    ("ReduceL2", [X], {"axes": [-1], "keepdims": 0}, 1),
    ("SumElements", [X], {"average": 1}, 1),
    ("SquaredL2Distance", [X, X + 0.5], {}, 1),
    ("SquaredL2Distance", [draw(4), draw(4) * 2], {}, 1),
    ("L1Distance", [X, X * 2], {}, 1),
    ("ArgMax", [X], {"axis": 1, "keepdims": 0}, 1),
    ("TopK", [X], {"k": 2}, 2),
    ("Conv", [draw(2, 4, 5, 6), draw(6, 2, 3, 2), draw(6)], {"kernel_h": 3, "kernel_w": 2, "group": 2, "pad": 1}, 1),
    ("Conv", [draw(2, 5, 6, 4), draw(3, 3, 3, 4)],
     {"kernel": 3, "order": "NHWC", "strides": [2, 1], "pads": [1, 0, 2, 1]}, 1),
    ("Conv", [draw(1, 2, 7, 7), draw(3, 2, 3, 3)],
     {"kernels": [3, 3], "dilation": 2, "pad_t": 1, "pad_l": 0, "pad_b": 2, "pad_r": 1}, 1),
    # Elements that move.
    ("Transpose", [X], {"axes": [1, 0, 2]}, 1),
    ("Squeeze", [draw(1, 3, 1, 2)], {"dims": [0, 2]}, 1),
    ("Squeeze", [draw(1, 3, 1, 2)], {"dims": [-2, 0]}, 1),
    ("ExpandDims", [X], {"dims": [0, 2]}, 1),
    ("ExpandDims", [X], {"dims": [-1, 0]}, 1),
    ("Reshape", [X], {"shape": [0, -1]}, 2),
    ("ResizeLike", [X, draw(4, 6)], {}, 1),
    ("Flatten", [X], {"axis": 2}, 1),
    ("Shape", [X], {"axes": [-1, 0]}, 1),
    ("Split", [draw(2, 6)], {}, 3),
    ("Split", [X], {"axis": -1, "split": [1, 3]}, 2),
    ("Split", [X], {"axis": 1, "add_axis": 1}, 3),
    ("Split", [draw(1, 2, 2, 4)], {"order": "NHWC"}, 2),
    ("Concat", [X, draw(2, 1, 4)], {}, 2),
    ("Concat", [X, X], {"axis": -1}, 2),
    ("Concat", [X, X], {"axis": 1, "add_axis": 1}, 2),
    ("Slice", [X], {"starts": [0, 1], "ends": [1, -1]}, 1),
    ("Slice", [X], {"starts": [-2, -3], "ends": [-1, -2]}, 1),
    ("Slice", [X], {"starts": [1], "ends": [100]}, 1),
    ("Tile", [X], {"tiles": 3, "axis": -2}, 1),
    ("Gather", [X, numpy.array([[1, 0], [1, 1]])], {}, 1),
    ("ScatterElements", [X, numpy.array([[[2, 0], [0, 0]]]), draw(1, 2, 2)], {"axis": 1}, 1),
    ("ScatterElements", [X, numpy.array([[[2, 0], [0, 0]]]), draw(1, 2, 2)], {"axis": -1, "reduction": "add"}, 1),
    ("Reshape", [draw(2, 0)], {"shape": [0, 3], "allowzero": 1}, 1),
    ("ConstantFill", [], {"shape": [2, 3], "value": 0.5}, 1),
    ("ConstantFill", [X], {"value": 2, "dtype": 10, "extra_shape": [2]}, 1),
    ("GivenTensorFill", [], {"shape": [2, 2], "values": [0.5, 1.5, -2.0, 3.0]}, 1),
    ("GivenTensorFill", [draw(2, 1)], {"values": [0.5, 1.5]}, 1),
    ("GivenTensorDoubleFill", [], {"shape": [2], "values": [0.5, 1.5]}, 1),
    ("GivenTensorIntFill", [], {"shape": [2], "values": [3, -4]}, 1),
    ("GivenTensorInt64Fill", [], {"shape": [2, 1], "values": [3, -4]}, 1),
    ("GivenTensorBoolFill", [], {"shape": [3], "values": [1, 0, 1]}, 1),
    ("RangeFill", [X], {}, 1),
    ("RangeFill", [], {"shape": [3, 2]}, 1),
    # Sequences.
    ("StepMask", [X, lengths(2, 0, 1)], {}, 1),
    ("FillPadding", [draw(3, 4, 2), numpy.array([[0, 1, 0, 1], [1, 0, 0, 1], [0, 1, 0, 1]], bool)], {}, 1),
    ("FillPadding", [draw(2, 2), numpy.zeros((2, 2), bool)], {}, 1),
    ("FillPadding", [draw(0, 2), numpy.zeros((0, 2), bool)], {}, 1),
    ("ReversePackedSegs", [draw(5, 3, 2), lengths(5, 2, 0)], {}, 1),
    ("ReversePackedSegs", [draw(5, 3)], {}, 1),
    ("SequenceMask", [draw(3, 4), lengths(4, 0, 2)], {"mode": "sequence"}, 1),
    ("SequenceMask", [draw(3, 4, 2), lengths(8, 0, 5)], {"mode": "sequence", "fill_val": -5.0}, 1),
    ("SequenceMask", [draw(2, 3, 4, 2), lengths(4, 1, 2)],
     {"mode": "sequence", "batch": 0, "axis": 2, "repeat_from_axis": 3}, 1),
    ("SequenceMask", [draw(3, 4), lengths(0, 3, 1)], {"mode": "window", "radius": 1}, 1),
    *(("SequenceMask", [draw(4, 4)], {"mode": mode}, 1) for mode in ("upper", "lower", "upperdiag", "lowerdiag")),
    ("LSTMUnit", [draw(1, 3, 2), draw(1, 3, 2) * 2, draw(1, 3, 8), lengths(1, 2, 3), lengths(1)],
     {"forget_bias": 0.5}, 2),
    ("LSTMUnit", [draw(3, 2), draw(3, 2) * 2, draw(3, 8), lengths(1, 2, 3), lengths(1)], {"drop_states": 1}, 2),
    ("LSTMUnit", [draw(3, 2), draw(3, 2) * 2, draw(3, 8), lengths(1)], {"sequence_lengths": 0}, 2),
    ("GRUUnit", [draw(1, 3, 2), draw(1, 3, 6), lengths(1, 2, 3), lengths(1)], {"drop_states": 1}, 1),
    ("GRUUnit", [draw(3, 2), draw(3, 6), lengths(1, 2, 3), lengths(1)], {}, 1),
    ("GRUUnit", [draw(3, 2), draw(3, 6), lengths(1)], {"sequence_lengths": 0}, 1),
]  # fmt: skip
ON_GPUS = {"CopyCPUToGPU", "CopyGPUToCPU"}  # copies as the others, which a CPU lacks
OF_RNN = {"RNNWeights", "RNNLengths", "LSTMStateClip"}  # test_onnx_rnn.py


OF_VALUES = {"Range"}  # a test below


def net_of(op_type, arrays, arguments, count, tmp_path):
    text = NetText("net", Names())
    names = [f"x{i}" for i in range(len(arrays))]
    text.outputs = [f"y{i}" for i in range(count)]
    text.add(op_type, names, text.outputs, **arguments)
    (tmp_path / "net.pbtxt").write_text(text.text())
    return stepnet.load(tmp_path / "net.pbtxt"), dict(zip(names, arrays))


@pytest.mark.parametrize("op_type, arrays, arguments, count", CASES, ids=[f"{i} {c[0]}" for i, c in enumerate(CASES)])
def test_onnxruntime_computes_what_an_operator_does(op_type, arrays, arguments, count, tmp_path):
    net, inputs = net_of(op_type, arrays, arguments, count, tmp_path)
    stepnet.onnx.export(net, tmp_path / "net.onnx", inputs=inputs)
    expect_as_net(net, inputs, tmp_path)


def expect_as_net(net, inputs, tmp_path):
    want = net(**inputs)
    exported = session(tmp_path / "net.onnx")
    given = {each.name: inputs[each.name] for each in exported.get_inputs()}
    for name, got in zip(net.outputs, exported.run(list(net.outputs), given)):
        expect_equal(got, want[name])


# Type, inputs of a free size n, arguments, number of outputs, and the dimension of each input that is n.
OF_ANY_SIZE = [
    ("Add", lambda n: [draw(n, 3, 4), draw(n, 3)], {"broadcast": 1, "axis": 0}, 1, [0, 0]),
    ("Mul", lambda n: [draw(2, n, 4), draw(n)], {"broadcast": 1, "axis": 1}, 1, [1, 0]),
    ("Where", lambda n: [draw(n, dtype="bool"), draw(n, 3), draw(n, 3)], {"broadcast_on_rows": 1}, 1, [0, 0, 0]),
    ("ElementwiseLinear", lambda n: [draw(n, 3, 4), draw(12), draw(12)], {"axis": 1}, 1, [0]),
    ("FC", lambda n: [draw(2, n, 4), draw(5, 4), draw(5)], {"axis": 2}, 1, [1]),
    ("FC", lambda n: [draw(n, 3, 4), draw(5, 12)], {}, 1, [0]),
    ("BatchMatMul", lambda n: [draw(n, 3, 4), draw(n, 5, 4)], {"trans_b": 1}, 1, [0, 0]),
    ("Softmax", lambda n: [draw(n, 3, 4)], {"axis": 1}, 1, [0]),
    ("Softmax", lambda n: [draw(2, n, 4)], {"axis": 1}, 1, [1]),
    ("LayerNorm", lambda n: [draw(n, 4)], {"axis": 1}, 3, [0]),
    ("LayerNorm", lambda n: [draw(3, n)], {"axis": 1}, 3, [1]),
    ("SquaredL2Distance", lambda n: [draw(n, 4), draw(n, 4) * 2], {}, 1, [0, 0]),
    ("Reshape", lambda n: [draw(n, 3, 4)], {"shape": [0, -1]}, 2, [0]),
    ("ResizeLike", lambda n: [draw(n, 3, 4), draw(4, n, 3)], {}, 1, [0, 1]),
    ("Flatten", lambda n: [draw(n, 3, 4)], {"axis": 2}, 1, [0]),
    ("Split", lambda n: [draw(3, 2 * n)], {}, 2, [1]),
    ("Split", lambda n: [draw(n, 4)], {"axis": 1, "split": [1, 3]}, 2, [0]),
    ("Concat", lambda n: [draw(n, 4), draw(n, 4)], {"axis": 0}, 2, [0, 0]),
    ("Slice", lambda n: [draw(n + 2, 4)], {"starts": [1], "ends": [-2]}, 1, [0]),
    ("Tile", lambda n: [draw(n, 4)], {"tiles": 2}, 1, [0]),
    ("ConstantFill", lambda n: [draw(n, 4)], {"value": 1.5, "extra_shape": [2]}, 1, [0]),
    ("ConstantFill", lambda n: [numpy.array([n, 2])], {"value": 1.5, "input_as_shape": 1}, 1, []),
    ("RangeFill", lambda n: [draw(n, 2)], {}, 1, [0]),
    ("StepMask", lambda n: [draw(n, 3, 2), lengths(1, 0, 2)], {}, 1, [0]),
    ("FillPadding", lambda n: [draw(n, 3, 2), numpy.arange(n)[:, None] >= [0, 1, n]], {}, 1, [0, 0]),
    ("ReversePackedSegs", lambda n: [draw(n, 3, 2), lengths(1, 0, 2)], {}, 1, [0]),
    ("ReversePackedSegs", lambda n: [draw(n, 3)], {}, 1, [0]),
    ("SequenceMask", lambda n: [draw(n, 4), lengths(*range(n))], {"mode": "sequence"}, 1, [0, 0]),
    ("SequenceMask", lambda n: [draw(n, 2, 4), lengths(*range(n))], {"mode": "sequence"}, 1, [0, 0]),
    ("SequenceMask", lambda n: [draw(n, 4)], {"mode": "lower"}, 1, [0]),
    ("LSTMUnit", lambda n: [draw(1, n, 2), draw(1, n, 2) * 2, draw(1, n, 8), lengths(*range(n)), lengths(1)],
     {}, 2, [1, 1, 1, 0]),
    ("GRUUnit", lambda n: [draw(n, 2), draw(n, 6), lengths(*range(n)), lengths(1)], {}, 1, [0, 0, 0]),
    ("Gather", lambda n: [draw(4, 3), numpy.arange(n) % 4], {}, 1, [None, 0]),
]  # fmt: skip


@pytest.mark.parametrize(
    "op_type, arrays, arguments, count, axes", OF_ANY_SIZE, ids=[f"{i} {c[0]}" for i, c in enumerate(OF_ANY_SIZE)]
)
def test_an_operator_of_any_size(op_type, arrays, arguments, count, axes, tmp_path):
    net, inputs = net_of(op_type, arrays(3), arguments, count, tmp_path)
    is_shape = arguments.get("input_as_shape")
    if is_shape:  # sizes that a net computes from a shape
        text = (tmp_path / "net.pbtxt").read_text().replace('"x0"', '"sizes"')
        (tmp_path / "net.pbtxt").write_text('op { type: "Shape" input: "x0" output: "sizes" }\n' + text)
        net, inputs, axes = stepnet.load(tmp_path / "net.pbtxt"), {"x0": draw(3, 2)}, [0]
    free = {f"x{i}": {axis: "n" if op_type != "Slice" else "m"} for i, axis in enumerate(axes) if axis is not None}
    stepnet.onnx.export(net, tmp_path / "net.onnx", inputs=inputs, dynamic_axes=free)
    for n in (3, 5):
        others = {"x0": draw(n, 2)} if is_shape else {f"x{i}": array for i, array in enumerate(arrays(n))}
        expect_as_net(net, others, tmp_path)


def test_ranges_up_to_sizes_and_of_constants(tmp_path):
    text = NetText("net", Names())
    text.add("Shape", ["x0"], ["n"], axes=[1])
    text.add("GivenTensorInt64Fill", [], ["two"], shape=[1], values=[2])
    text.add("GivenTensorInt64Fill", [], ["minus_one"], shape=[], values=[-1])
    text.outputs = ["y0", "y1", "y2"]
    for output, inputs in zip(text.outputs, (["n"], ["two", "n"], ["n", "two", "minus_one"])):
        text.add("Range", inputs, [output])
    (tmp_path / "net.pbtxt").write_text(text.text())
    net = stepnet.load(tmp_path / "net.pbtxt")
    stepnet.onnx.export(net, tmp_path / "net.onnx", inputs={"x0": draw(1, 4)}, dynamic_axes={"x0": {1: "n"}})
    for n in (3, 5):
        expect_as_net(net, {"x0": draw(1, n)}, tmp_path)
        assert net(x0=draw(1, n)).y1.tolist() == list(range(2, n))


def test_all_operators_are_compared():
    assert set(TABLE) - ON_GPUS - OF_RNN - OF_VALUES == {each[0] for each in CASES}


def test_free_sizes_stay_free(tmp_path):
    """One file for any size: nothing of the example is left in it."""
    net, inputs = net_of("Softmax", [draw(3, 4, 5)], {"axis": 1}, 1, tmp_path)
    stepnet.onnx.export(net, tmp_path / "net.onnx", inputs=inputs, dynamic_axes={"x0": {0: "N", 1: "M"}})
    x = draw(2, 7, 5)
    (got,) = session(tmp_path / "net.onnx").run(None, {"x0": x})
    expect_equal(got, net(x0=x).y0)
    shape = onnx.load(tmp_path / "net.onnx").graph.output[0].type.tensor_type.shape
    assert [each.dim_param or each.dim_value for each in shape.dim] == ["N", "M", 5]


def test_lengths_of_turned_sequences_are_those_that_every_onnxruntime_takes(tmp_path):
    """Those before 1.28 leave a row of no steps unset, and none takes lengths beyond T."""
    net, inputs = net_of("ReversePackedSegs", [draw(5, 3, 2), lengths(5, 2, 0)], {}, 1, tmp_path)
    stepnet.onnx.export(net, tmp_path / "net.onnx", inputs=inputs, dynamic_axes={"x0": {0: "T"}})
    model = onnx.load(tmp_path / "net.onnx")
    (node,) = (each for each in model.graph.node if each.op_type == "ReverseSequence")
    model.graph.output.append(onnx.helper.make_tensor_value_info(node.input[1], onnx.TensorProto.INT64, [3]))
    onnx.save(model, tmp_path / "net.onnx")
    reads = session(tmp_path / "net.onnx")
    assert reads.run(None, inputs)[1].tolist() == [5, 2, 1]
    turned, read = reads.run(None, {"x0": draw(0, 3, 2), "x1": lengths(0, 0, 0)})
    assert turned.shape == (0, 3, 2) and read.tolist() == [0, 0, 0]
