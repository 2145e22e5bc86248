"""Which operators of double onnxruntime runs, as docs/onnx.md says."""

import re

import numpy
import onnxruntime
import pytest
from conftest import ROOT

import stepnet
import stepnet.onnx
from stepnet.onnx.operators import TABLE

OF_X = (
    "Abs Alias Ceil Copy Cos Erf Exp Floor Gelu Log Mish Negative Reciprocal Relu Round Rsqrt Sigmoid Silu Sin Softplus "
    "Softsign Sqr Sqrt StopGradient Swish Tanh Elu HardSigmoid LeakyRelu Selu Flatten FlattenToVec Clip"
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
    "GivenTensorDoubleFill GivenTensorFill GivenTensorInt64Fill GivenTensorIntFill RangeFill RNNLengths RNNWeights SequenceMask".split()
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
        "n": numpy.array([2, 3, 1], "int32"),
        "n0": numpy.array([2, 0, 1], "int32"),
        "t": numpy.array([1], "int32"),
        "image": of_shape(3, 3, 4, 4),
        "kernel": of_shape(2, 3, 2, 2),
        "row0": of_shape(1),
        "row": of_shape(1, 3, 2),
        "gates": of_shape(1, 3, 8),
        "gates3": of_shape(1, 3, 6),
    }


def test_every_operator_is_tried():
    assert NETS.keys() | OF_OTHERS == TABLE.keys()


@pytest.mark.skipif(
    tuple(map(int, onnxruntime.__version__.split(".")[:2])) < (1, 32), reason="the page lists what onnxruntime 1.32 lacks"
)
def test_onnxruntime_has_all_operators_of_double_but_those_that_the_page_names(arrays, tmp_path):
    missing = set()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    for op_type, text in NETS.items():
        net = stepnet.load(text)
        inputs = {name: arrays[name] for name in net.inputs}
        stepnet.onnx.export(net, tmp_path / "net.onnx", inputs=inputs)
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
