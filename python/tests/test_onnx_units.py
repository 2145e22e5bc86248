"""LSTM, GRU and RNN of ONNX run as in onnxruntime."""

import math

import numpy
import pytest
from onnx import helper
from onnx_models import GATES, draw, expect_as_runtime, expect_equal, loaded, runtime, unit

import stepnet


UNITS = {
    "plain": {},
    "lengths": {"lengths": [5, 2, 4]},
    "a sequence of no steps": {"lengths": [5, 0, 4]},
    "no states, no bias": {"states": False, "bias": False},
    "lengths, no states": {"states": False, "lengths": [1, 5, 0]},
    "weights are inputs": {"constants": False},
    "clip": {"clip": 0.3},
    "opset 7": {"opset": 7},
    "opset 14": {"opset": 14},
    "opset 22": {"opset": 22},
    "one step": {"steps": 1, "batch": 1},
}


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("options", UNITS.values(), ids=UNITS)
@pytest.mark.parametrize("op_type", GATES)
def test_units_are_those_of_onnxruntime(op_type, options, direction, random, tmp_path):
    expect_as_runtime(*unit(op_type, random, direction=direction, **options), tmp_path)


OF_LSTM = {
    "peepholes": {"peepholes": True},
    "peepholes and clip": {"peepholes": True, "clip": 0.25},
    "input_forget": {"input_forget": 1},
    "input_forget, peepholes, lengths": {"input_forget": 1, "peepholes": True, "lengths": [4, 1, 5]},
    "activations": {
        "activations": ["HardSigmoid", "Affine", "ScaledTanh"] * 2,
        "activation_alpha": [0.3, 0.9, 1.1, 0.2, 0.8, 0.7],
        "activation_beta": [0.4, 0.1, 0.8, 0.5, 0.2, 0.9],
    },
    "activations that take numbers, and others": {
        "activations": ["Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid", "Softsign", "Tanh"],
        "activation_alpha": [0.3, 0.25],
        "activation_beta": [0.45],
    },
}


@pytest.mark.parametrize("options", OF_LSTM.values(), ids=OF_LSTM)
def test_attributes_of_lstm(options, random, tmp_path):
    expect_as_runtime(*unit("LSTM", random, direction="bidirectional", **options), tmp_path)


OF_GRU = {
    "linear_before_reset": {"linear_before_reset": 1},
    "linear_before_reset, clip, lengths": {"linear_before_reset": 1, "clip": 0.4, "lengths": [2, 5, 1]},
    "linear_before_reset, no bias": {"linear_before_reset": 1, "bias": False},
    "activations": {
        "activations": ["HardSigmoid", "Relu", "Sigmoid", "Elu"],
        "activation_alpha": [0.3, 0.25],
        "activation_beta": [0.45],
    },
}


@pytest.mark.parametrize("options", OF_GRU.values(), ids=OF_GRU)
def test_attributes_of_gru(options, random, tmp_path):
    expect_as_runtime(*unit("GRU", random, direction="bidirectional", **options), tmp_path)


ACTIVATIONS = {
    "Relu": {},
    "Tanh": {},
    "Sigmoid": {},
    "Softsign": {},
    "Softplus": {},
    "LeakyRelu": {},
    "HardSigmoid": {},
    "Elu": {},
    "Affine": {"activation_alpha": [0.3], "activation_beta": [0.7]},
    "LeakyRelu ": {"activation_alpha": [0.3]},
    "ThresholdedRelu": {"activation_alpha": [0.3]},
    "ScaledTanh": {"activation_alpha": [0.3], "activation_beta": [0.7]},
    "HardSigmoid ": {"activation_alpha": [0.3], "activation_beta": [0.7]},
    "Elu ": {"activation_alpha": [0.3]},
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_activation(name, random, tmp_path):
    expect_as_runtime(*unit("RNN", random, activations=[name.strip()], **ACTIVATIONS[name]), tmp_path)


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("op_type", GATES)
def test_layout_1_has_the_batch_first(op_type, direction, random, tmp_path):
    """onnxruntime lacks it: the same node with the steps first is the reference."""
    model, inputs = unit(op_type, random, direction=direction, lengths=[5, 2, 4])
    want = runtime(model, inputs)
    turned = dict(inputs)
    for name in ("X", "h", "c"):
        if name in turned:
            turned[name] = numpy.ascontiguousarray(turned[name].swapaxes(0, 1))
    model.graph.node[0].attribute.append(helper.make_attribute("layout", 1))
    for info in model.graph.input:
        if info.name in turned:
            del info.type.tensor_type.shape.dim[:]
            for size in turned[info.name].shape:
                info.type.tensor_type.shape.dim.add().dim_value = size
    y, *states = loaded(model, tmp_path)(**turned)
    expect_equal(y.transpose(1, 2, 0, 3), want[0])
    for got, each in zip(states, want[1:]):
        expect_equal(got.swapaxes(0, 1), each)


@pytest.mark.parametrize("op_type", GATES)
def test_double(op_type, random, tmp_path):
    """onnxruntime lacks it: its float results of the same numbers are the reference."""
    model, inputs = unit(op_type, numpy.random.default_rng(3), dtype="float64")
    single, of_single = unit(op_type, numpy.random.default_rng(3))
    for want, got in zip(runtime(single, of_single), loaded(model, tmp_path)(**inputs)):
        assert got.dtype == "float64"
        expect_equal(got.astype("float32"), want)


@pytest.mark.parametrize(
    "op_type, attributes, message",
    [
        ("RNN", {"clip": -1.0}, "its clip is -1.0; it must be at least 0"),
        ("RNN", {"clip": math.nan}, "its clip is nan; it must be at least 0"),
        ("GRU", {"clip": 0.0}, "its clip is 0.0; it must be greater than 0"),
        ("LSTM", {"clip": math.nan}, "its clip is nan; it must be greater than 0"),
        ("LSTM", {"layout": 2}, "its layout is 2; it must be 0 or 1"),
        ("LSTM", {"input_forget": 9}, "its input_forget is 9; it must be 0 or 1"),
        ("GRU", {"linear_before_reset": 2}, "its linear_before_reset is 2; it must be 0 or 1"),
        ("RNN", {"activations": ["Affine"]}, "lacks a number for Affine"),
        ("RNN", {"activations": ["Swish"]}, "it has the activation 'Swish'"),
        ("RNN", {"activations": ["Tanh", "Tanh"]}, "it has 2 activations; 1 for each of 1 directions"),
        ("RNN", {"activation_alpha": [0.5]}, "more numbers in activation_alpha"),
        ("LSTM", {"direction": "both"}, "its direction is 'both'"),
        ("GRU", {"output_sequence": 1}, "its attribute output_sequence is not read"),
    ],
)
def test_what_a_unit_does_not_say_rightly(op_type, attributes, message, random, tmp_path):
    model, _ = unit(op_type, random, **attributes)
    with pytest.raises(stepnet.InvalidNetError, match=message) as caught:
        loaded(model, tmp_path)
    assert f"= {op_type}(X, W, R, B, , h" in str(caught.value)


def test_a_hidden_size_that_the_weights_do_not_have(random, tmp_path):
    model, _ = unit("GRU", random)
    next(each for each in model.graph.node[0].attribute if each.name == "hidden_size").i = 9
    with pytest.raises(stepnet.InvalidNetError, match="its hidden_size is 9; R, its third input, has 12 rows; it must have 27"):
        loaded(model, tmp_path)


@pytest.mark.parametrize("activation", ["Tanh", "Sigmoid"])
def test_a_clip_of_0_bounds_the_sums_of_an_rnn(activation, random, tmp_path):
    expect_as_runtime(*unit("RNN", random, clip=0.0, activations=[activation]), tmp_path)


def resized(name, shape, random):
    """An LSTM, its inputs, and these where one has another shape."""
    lengths = [5, 2, 4] if name == "lengths" else None
    model, inputs = unit("LSTM", random, lengths=lengths, peepholes=True, constants=False)
    return model, inputs, {**inputs, name: draw(*shape, dtype=str(inputs[name].dtype))}


# The LSTM has T = 5, B = 3, I = 3, H = 4.
OTHER_SHAPES = [
    ("X", (5, 3), r"\[5, 3\]; it must be \[\?, \?, \?\]"),
    ("W", (2, 16, 3), r"\[2, 16, 3\]; it must be \[1, 16, 3\]"),
    ("W", (1, 16, 2), r"\[1, 16, 2\]; it must be \[1, 16, 3\]"),
    ("W", (16, 3), r"\[16, 3\]; it must be \[1, 16, 3\]"),
    ("R", (1, 16, 5), r"\[1, 16, 5\]; it must be \[1, 16, 4\]"),
    ("R", (2, 16, 4), r"\[2, 16, 4\]; it must be \[1, 16, 4\]"),
    ("B", (1, 16), r"\[1, 16\]; it must be \[1, 32\]"),
    ("P", (1, 11), r"\[1, 11\]; it must be \[1, 12\]"),
    ("h", (1, 1, 4), r"\[1, 1, 4\]; it must be \[1, 3, 4\]"),
    ("h", (3, 4), r"\[3, 4\]; it must be \[1, 3, 4\]"),
    ("c", (2, 3, 4), r"\[2, 3, 4\]; it must be \[1, 3, 4\]"),
    ("lengths", (2,), r"\[2\]; it must be \[3\]"),
]


@pytest.mark.parametrize("name, shape, message", OTHER_SHAPES, ids=[f"{o[0]} {o[1]}" for o in OTHER_SHAPES])
def test_inputs_of_units_have_the_sizes_that_hidden_size_and_x_say(name, shape, message, random, tmp_path):
    model, _, wrong = resized(name, shape, random)
    give_shapes(model, wrong)
    with pytest.raises(stepnet.InvalidNetError, match=f"its input '{name}', is {message}"):
        loaded(model, tmp_path)


@pytest.mark.parametrize("name, shape, message", OTHER_SHAPES, ids=[f"{o[0]} {o[1]}" for o in OTHER_SHAPES])
def test_inputs_of_units_whose_sizes_are_not_known_before_a_run(name, shape, message, random, tmp_path):
    """The run fails, also where a state of one row might be repeated or a direction too many cut off."""
    model, right, wrong = resized(name, shape, random)
    give_shapes(model, right, known=False)
    net = loaded(model, tmp_path)
    with pytest.raises(stepnet.ShapeMismatchError):
        net(**wrong)
    net(**right)


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("op_type", GATES)
def test_units_of_inputs_of_any_size(op_type, direction, random, tmp_path):
    """With gradients as where the sizes are known."""
    model, inputs = unit(
        op_type, random, direction=direction, lengths=[5, 2, 4], constants=False, peepholes=op_type == "LSTM"
    )
    y, known = loaded(model, tmp_path).value_and_grad("Y", **inputs)
    give_shapes(model, inputs, known=False)
    expect_as_runtime(model, inputs, tmp_path)
    _, free = loaded(model, tmp_path).value_and_grad("Y", **inputs)
    assert known.inputs.keys() == free.inputs.keys() == inputs.keys() - {"lengths"}
    for name, gradient in known.inputs.items():
        expect_equal(free.inputs[name], gradient)


def give_shapes(model, arrays, known=True):
    """Says the shapes of inputs, or their ranks alone."""
    for info in model.graph.input:
        shape = info.type.tensor_type.shape
        del shape.dim[:]
        for size in arrays[info.name].shape:
            dim = shape.dim.add()
            if known:
                dim.dim_value = size
