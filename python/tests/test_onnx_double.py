"""Models in double: which operators onnxruntime runs, as docs/onnx.md says, and numbers that no float32 holds."""

import re

import numpy
import onnx
import onnxruntime
import pytest
from conftest import ROOT
from onnx import TensorProto, helper, numpy_helper
from onnx_models import model_of, scan

import stepnet
import stepnet.onnx
from stepnet.onnx.operators import TABLE

OF_X = (
    "Abs Alias Ceil Copy Cos Erf Exp Floor Gelu Log Mish Negative Reciprocal Relu Round Rsqrt Sigmoid Silu Sin Softplus "
    "Softsign Sqr Sqrt StopGradient Swish Tanh Elu HardSigmoid LeakyRelu Selu Flatten FlattenToVec Clip Acos Asin Asinh Atan Atanh "
    "Cosh Sinh"
).split()
OF_X_AND_Z = "Add Sub Mul Div Power EQ NE GE GT LE LT Max Min Sum CrossEntropy SigmoidCrossEntropyWithLogits L1Distance SquaredL2Distance ResizeLike".split()
OF_LABELS = "Accuracy Gather LabelCrossEntropy SoftmaxWithLoss".split()
NUMBERS = ("AveragedLoss", "SumElements", "SumSqrElements")


def of(op_type, *inputs, outputs=1, **arguments):
    """A net of one operator."""
    fields = "".join(f' input: "{name}"' for name in inputs) + "".join(f' output: "y{i}"' for i in range(outputs))
    for name, value in arguments.items():
        values = value if isinstance(value, list) else [value]
        kind = "s" if isinstance(value, str) else "f" if isinstance(value, float) else "i"
        kind += {"i": "nts", "f": "loats"}[kind] if isinstance(value, list) else ""
        texts = (f'"{each}"' if isinstance(each, str) else str(each) for each in values)
        fields += f' arg {{ name: "{name}" ' + " ".join(f"{kind}: {text}" for text in texts) + " }"
    return f'op {{ type: "{op_type}"{fields} }}'


NETS = {
    **{op_type: of(op_type, "x") for op_type in (*OF_X, *NUMBERS)},
    **{op_type: of(op_type, "x", "z") for op_type in OF_X_AND_Z},
    **{op_type: of(op_type, "x", "l") for op_type in OF_LABELS},
    **{op_type: of(op_type, "x", "w", "b") for op_type in ("FC", "FCTransposed")},
    **{op_type: of(op_type, "x", axis=1) for op_type in ("ArgMax", "ArgMin", "LogSoftmax", "Softmax")},
    **{op_type: of(op_type, "x", axes=[1], keepdims=1) for op_type in ("ReduceMean", "ReduceSum")},
    **{op_type: of(op_type, "x") for op_type in ("ReduceL1", "ReduceL2", "ReduceMax", "ReduceMin")},
    "SoftmaxWithLoss": of("SoftmaxWithLoss", "x", "l", outputs=2),
    "TopK": of("TopK", "x", outputs=2, k=2),
    "LSTMStateClip": of("LSTMStateClip", "x", min=-1.0, max=1.0),
    "LayerNorm": of("LayerNorm", "x", outputs=3),
    "Scale": of("Scale", "x", scale=0.5),
    "Pow": of("Pow", "x", exponent=3.0),
    "Acosh": of("Acosh", "above"),
    "Mod": of("Mod", "x", divisor=2, sign_follow_divisor=1),
    "Cast": of("Cast", "x", to="float"),
    "Dropout": of("Dropout", "x", is_test=1),
    "Where": of("Where", "c", "x", "z"),
    "ElementwiseLinear": of("ElementwiseLinear", "x", "b", "b"),
    "MatMul": of("MatMul", "x", "w"),
    "BatchMatMul": of("BatchMatMul", "x", "w"),
    "Conv": of("Conv", "image", "kernel", kernels=[2, 2]),
    "Concat": of("Concat", "x", "z", outputs=2, axis=1),
    "Split": of("Split", "x", outputs=3, axis=1),
    "ScatterElements": of("ScatterElements", "x", "places", "z"),
    "Slice": of("Slice", "x", starts=[0, 1], ends=[-1, -1]),
    "Transpose": of("Transpose", "x"),
    "Tile": of("Tile", "x", tiles=2),
    "Reshape": of("Reshape", "x", outputs=2, shape=[-1]),
    "ExpandDims": of("ExpandDims", "x", dims=[0]),
    "Squeeze": of("Squeeze", "row", dims=[0]),
    "Shape": of("Shape", "x"),
    "Size": of("Size", "x"),
    "ReversePackedSegs": of("ReversePackedSegs", "image", "n"),
    "StepMask": of("StepMask", "image", "n"),
    "FillPadding": of("FillPadding", "x", "c"),
    "WeightedSum": of("WeightedSum", "x", "row0", "z", "row0"),
    "LSTMUnit": of("LSTMUnit", "row", "row", "gates", "n0", "t", outputs=2),
    "GRUUnit": of("GRUUnit", "row", "gates3", "n0", "t"),
}
OF_OTHERS = set(
    "And Or Xor Not ConstantFill CopyCPUToGPU CopyFromCPUInput CopyGPUToCPU CopyOnDeviceLike EnsureCPUOutput GivenTensorBoolFill "
    "GivenTensorDoubleFill GivenTensorFill GivenTensorInt64Fill GivenTensorIntFill Range RangeFill RNNLengths RNNWeights SequenceMask".split()
)
"""Those of truth values, copies and constants, and those that give shapes of what is computed by others."""


@pytest.fixture
def arrays(random):
    def of_shape(*shape):
        return numpy.abs(random.standard_normal(shape)) + 0.1

    x = of_shape(3, 3)
    return {
        "x": x / x.sum(axis=1, keepdims=True),
        "z": (x / x.sum(axis=1, keepdims=True))[::-1].copy(),
        "w": of_shape(3, 3),
        "b": of_shape(3),
        "c": random.standard_normal((3, 3)) > 0,
        "l": numpy.array([0, 2, 1], "int32"),
        "places": numpy.array([[0, 2, 1], [0, 1, 1], [2, 2, 2]]),
        "n": numpy.array([2, 3, 1], "int32"),
        "n0": numpy.array([2, 0, 1], "int32"),
        "t": numpy.array([1], "int32"),
        "image": of_shape(3, 3, 4, 4),
        "kernel": of_shape(2, 3, 2, 2),
        "row0": of_shape(1),
        "above": of_shape(3, 3) + 1,
        "row": of_shape(1, 3, 2),
        "gates": of_shape(1, 3, 8),
        "gates3": of_shape(1, 3, 6),
    }


def test_every_operator_is_tried():
    assert NETS.keys() | OF_OTHERS == TABLE.keys()


@pytest.mark.skipif(
    tuple(map(int, onnxruntime.__version__.split(".")[:2])) < (1, 32), reason="the page lists what onnxruntime 1.32 lacks"
)
@pytest.mark.parametrize("opset", [18, 20, 22, 24])
def test_onnxruntime_has_all_operators_of_double_but_those_that_the_page_names(opset, arrays, tmp_path):
    missing = set()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    for op_type, text in NETS.items():
        net = stepnet.load(text)
        inputs = {name: arrays[name] for name in net.inputs}
        stepnet.onnx.export(net, tmp_path / "net.onnx", inputs=inputs, opset=opset)
        try:
            session = onnxruntime.InferenceSession(tmp_path / "net.onnx", options, providers=["CPUExecutionProvider"])
        except Exception as error:
            assert "NOT_IMPLEMENTED" in str(error), op_type
            missing.add(op_type)
            continue
        needed = {each.name: inputs[each.name] for each in session.get_inputs()}
        for expected, got in zip(net(inputs), session.run(list(net.outputs), needed)):
            assert got.dtype == expected.dtype
            numpy.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-14, err_msg=op_type)
    page = (ROOT / "docs" / "onnx.md").read_text()
    (named,) = re.findall(r"In `float64` onnxruntime has no ([^:]*):", page)
    assert missing == set(re.findall(r"`(\w+)`", named))


def log_of_sum(x):
    return numpy.maximum(x, 0) + numpy.log1p(numpy.exp(-numpy.abs(x)))


FUNCTIONS = {
    "Elu": lambda x: numpy.where(x < 0, numpy.expm1(numpy.minimum(x, 0)), x),
    "Selu": lambda x: 1.0507 * numpy.where(x < 0, 1.6732 * numpy.expm1(numpy.minimum(x, 0)), x),
    "Softplus": lambda x: log_of_sum(x),
    "Softsign": lambda x: x / (1 + numpy.abs(x)),
    "Mish": lambda x: x * numpy.tanh(log_of_sum(x)),
}


@pytest.mark.parametrize("op_type", FUNCTIONS)
def test_functions_that_are_composed_are_exact(op_type, tmp_path):
    magnitudes = numpy.array([0, 1e-300, 1e-20, 1e-9, 0.1, 1, 3, 30, 37, 700, 1e4, 1e300])
    x = numpy.concatenate([magnitudes, -magnitudes, [numpy.inf, -numpy.inf, numpy.nan]])
    if op_type in ("Softsign", "Mish"):
        x = x[~numpy.isinf(x)]
    arguments = {"alpha": 1.6732, "scale": 1.0507} if op_type == "Selu" else {}
    net = stepnet.load(of(op_type, "x", **arguments))
    stepnet.onnx.export(net, tmp_path / "net.onnx", inputs={"x": x})
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx", providers=["CPUExecutionProvider"])
    (got,) = session.run(None, {"x": x})
    numpy.testing.assert_allclose(got, FUNCTIONS[op_type](x), rtol=2e-6 if op_type == "Selu" else 1e-14, atol=0)
    numpy.testing.assert_allclose(got, net(x=x)[0], rtol=1e-14, atol=0)


def third(x):
    return numpy.array(x / 3, "float64")


@pytest.mark.parametrize("in_body", [False, True], ids=["outside", "in a body"])
@pytest.mark.parametrize(
    "op_type, constants, attributes, expected",
    [
        ("Pow", {1: third(1)}, {}, lambda x: x ** (1 / 3)),
        ("Clip", {1: third(1), 2: third(2)}, {}, lambda x: numpy.clip(x, 1 / 3, 2 / 3)),
        ("Clip", {1: numpy.array(-1e300), 2: numpy.array(1e300)}, {}, lambda x: numpy.clip(x, -1e300, 1e300)),
        ("Add", {1: third(1)}, {}, lambda x: x + 1 / 3),
        ("Pad", {1: numpy.array([1, 0]), 2: third(1)}, {}, lambda x: numpy.pad(x, (1, 0), constant_values=1 / 3)),
        ("LeakyRelu", {}, {"alpha": 0.1}, lambda x: numpy.where(x < 0, x * float(numpy.float32(0.1)), x)),
        ("LeakyRelu", {}, {}, lambda x: numpy.where(x < 0, x * float(numpy.float32(0.01)), x)),
        ("Mean", {1: third(1), 2: third(2)}, {}, lambda x: (x + 1 / 3 + 2 / 3) / 3),
    ],
    ids=["Pow", "Clip", "Clip far", "Add", "Pad", "LeakyRelu", "LeakyRelu by default", "Mean"],
)  # fmt: skip
def test_numbers_keep_their_digits(op_type, constants, attributes, expected, in_body, tmp_path):
    """Constants are doubles; attributes, and what they are by default, are float32 in ONNX."""
    x = numpy.array([[0.125, 0.5, 2], [1e305, 0.4, 1]]) * ([[-1]] if op_type == "LeakyRelu" else [[1]])
    of_constants = {f"k{i}": value for i, value in constants.items()}
    if in_body:
        nodes = [helper.make_node(op_type, ["x_t", *of_constants], ["y_t"], **attributes)]
        given = {"y": helper.make_tensor_value_info("y_t", TensorProto.DOUBLE, None)}
        model, inputs = scan(nodes, {}, {"x": x}, given, numpy.random.default_rng(0), of_constants)
        want = numpy.stack([expected(row) for row in x])
    else:
        nodes = [helper.make_node(op_type, ["x", *of_constants], ["y"], **attributes)]
        model, inputs = model_of(nodes, {"x": x[0]}, {"y": TensorProto.DOUBLE}, of_constants), {"x": x[0]}
        want = expected(x[0])
    stepnet.onnx.convert(save(model, tmp_path), tmp_path / "net.pbtxt", tmp_path / "params.npz")
    for net in (stepnet.onnx.load(model), stepnet.load(tmp_path / "net.pbtxt", init=tmp_path / "params.npz")):
        numpy.testing.assert_allclose(net(inputs)[0], want, rtol=4e-16)


def save(model, tmp_path):
    onnx.save(model, tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def test_a_tensor_of_one_number(tmp_path):
    node = helper.make_node("ConstantOfShape", ["s"], ["y"], value=numpy_helper.from_array(third(1).reshape(1)))
    model = model_of([node], {"s": numpy.array([2, 1])}, {"y": TensorProto.DOUBLE})
    assert stepnet.onnx.load(model)(s=numpy.array([2, 1])).y.tolist() == [[1 / 3], [1 / 3]]


def test_cells_come_back_with_all_digits(random, tmp_path):
    """A number in a step is one of the net that comes back, whatever it is."""
    text = """cell numbers(x[3]; h[3]) {
      y = Pow(Abs(x) + 1/3, exponent=0.7)
      h = Clip(0.1 * h + y, min=-0.3, max=1.3) + LeakyRelu(x, alpha=0.3) + Where(GT(x, 0.1), x, 0.2)
      output h
    }"""
    cell, x = stepnet.cell(text, dtype="float64"), random.standard_normal((5, 2, 3))
    stepnet.onnx.export(cell, tmp_path / "cell.onnx", {})
    numpy.testing.assert_allclose(stepnet.onnx.load(tmp_path / "cell.onnx")(x=x).h, cell({}, x=x).h, rtol=1e-14)
