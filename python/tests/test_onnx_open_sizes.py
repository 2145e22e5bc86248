"""Sizes of a net that is exported which may be any: those that ``dynamic_axes`` names, and those that a loaded file leaves open."""

import io

import numpy
import onnxruntime
import pytest
from conftest import refuses
from onnx import TensorProto, helper
from onnx_models import draw, expect_equal, loaded, model_of

import stepnet
import stepnet.onnx


def exported(net, *params, **options):
    content = io.BytesIO()
    stepnet.onnx.export(net, content, *params, **options)
    return content.getvalue()


def inputs_of(content):
    return {each.name: each.shape for each in onnxruntime.InferenceSession(content).get_inputs()}


def recurrent():
    """A net whose sequences have lengths, without the file of ONNX that says shapes, and arrays for a call."""
    cell = stepnet.layers("gru", 5, 6, lengths=True)
    net = stepnet.load(stepnet.expand(cell), init={**cell.init(seed=1), "h_init": numpy.zeros((1, 1, 6), "float32")})
    return net, {"x": draw(7, 3, 5), "lengths": numpy.array([7, 3, 5], "int32")}


@pytest.mark.parametrize(
    "axes, size, taken",
    [
        ({"x": [0, 1], "lengths": [0]}, "x_dynamic_axes_2", "B"),
        ({"x": {0: "T", 1: "B"}}, "B", "B"),
        ({"x": {0: "B", 1: "T"}}, "T", "T"),
    ],
)
def test_a_size_that_two_inputs_share_needs_one_name(axes, size, taken):
    net, inputs = recurrent()
    advice = (
        f'"{size}" is a size of its own, that of dimension 1 of "x": if dimension 0 of "lengths" is always as large, give both one '
        f"name, as dynamic_axes={{'x': {{1: '{taken}'}}, 'lengths': {{0: '{taken}'}}}}\n  at op "
    )
    refuses(lambda: exported(net, inputs=inputs, dynamic_axes=axes), stepnet.ShapeMismatchError, advice)
    content = exported(net, inputs=inputs, dynamic_axes={"x": {0: "T", 1: "B"}, "lengths": {0: "B"}})
    assert inputs_of(content) == {"x": ["T", "B", 5], "lengths": ["B"]}


def test_dimensions_of_one_name_have_one_size():
    net, inputs = recurrent()
    message = (
        '"T" is dimension 0 of "x", of size 7, and dimension 1 of "x", of size 3: dimensions of one name have one size; give them two'
    )
    refuses(lambda: exported(net, inputs=inputs, dynamic_axes={"x": {0: "T", 1: "T"}}), stepnet.ShapeMismatchError, message)
    message = '"B" is dimension 0 of "x", of size 7, and dimension 0 of "lengths", of size 3: dimensions of one name'
    refuses(lambda: exported(net, inputs=inputs, dynamic_axes={"x": {0: "B"}, "lengths": {0: "B"}}), stepnet.ShapeMismatchError, message)
    relu = stepnet.load('op { type: "Relu" input: "x" output: "y" } external_output: "y"')
    assert inputs_of(exported(relu, inputs={"x": draw(3, 3)}, dynamic_axes={"x": {0: "N", 1: "N"}})) == {"x": ["N", "N"]}


@pytest.mark.parametrize("name", ["lstm", "gru", "gru_reset_after", "elman", "peephole_lstm", "layer_norm_lstm"])
def test_a_size_that_parameters_have_cannot_be_open(cells, name):
    """Also where the loop becomes an operator of ONNX in which no step is looked at."""
    cell = stepnet.cell(cells / f"{name}.cell", D=3, H=4)
    net, x = stepnet.load(stepnet.expand(cell), init=stepnet.expand(cell, init=True)), draw(2, 2, 3)
    with pytest.raises(stepnet.ShapeMismatchError, match=r"x_t is float32 \[1, 2, D\] and w is float32 \[\d+, 3\]|\[1, 2, D\]"):
        exported(net, inputs={"x": x}, dynamic_axes={"x": {2: "D"}})
    assert inputs_of(exported(net, inputs={"x": x}, dynamic_axes={"x": {0: "T", 1: "B"}})) == {"x": ["T", "B", 3]}


def test_sizes_of_layers_cannot_be_open():
    cell = stepnet.layers("lstm", 3, 4, num_layers=2)
    net = stepnet.load(stepnet.expand(cell), init=stepnet.expand(cell, init=True))
    refuses(lambda: exported(net, inputs={"x": draw(2, 2, 3)}, dynamic_axes={"x": {2: "D"}}), stepnet.ShapeMismatchError, "[1, 2, D]")


def lstm_with_lengths(tmp_path, x, lengths):
    """A file of which the inputs have these sizes."""
    arrays = {"X": draw(5, 2, 3), "lens": numpy.array([5, 2], "int32")}
    node = helper.make_node("LSTM", ["X", "W", "R", "", "lens"], ["Y"], hidden_size=4)
    params = {"W": draw(1, 16, 3), "R": draw(1, 16, 4)}
    return loaded(model_of([node], arrays, {"Y": TensorProto.FLOAT}, params, sizes={"X": x, "lens": lengths}), tmp_path)


@pytest.mark.parametrize("x", [[5, 2, 3], ["T", 2, 3]])
def test_only_sizes_that_do_not_fit_are_advised_to_be_one(tmp_path, x):
    net = lstm_with_lengths(tmp_path, x, ["N"])
    advice = (
        'of dimension 0 of "lens": if dimension 1 of "X" is always as large, give both one name, as '
        "dynamic_axes={'lens': {0: 'N'}, 'X': {1: 'N'}}\n  at op"
    )
    refuses(lambda: exported(net), stepnet.ShapeMismatchError, advice)
    assert inputs_of(exported(net, dynamic_axes={"lens": {0: "N"}, "X": {1: "N"}})) == {"X": [x[0], "N", 3], "lens": ["N"]}


def test_sizes_of_an_array_are_advised_in_place_of_those_that_the_file_leaves_open(tmp_path):
    net = lstm_with_lengths(tmp_path, [5, 2, "D"], [2])
    advice = "the file of the net leaves \"D\" open, dimension 2 of \"X\": inputs={'X': …}, dynamic_axes={'X': {}} takes the sizes"
    refuses(lambda: exported(net), stepnet.ShapeMismatchError, advice)
    assert inputs_of(exported(net, inputs={"X": draw(5, 2, 3)}, dynamic_axes={"X": {}}))["X"] == [5, 2, 3]


def test_sizes_that_follow_from_open_ones_are_named_in_errors():
    """The numbers that stand for open sizes stay within."""
    relu = 'op {{ type: "Concat" input: "x" input: "x" output: "xx" output: "s" arg {{ name: "axis" i: {0} }} }}'
    net = stepnet.load(
        relu.format(0) + 'op { type: "MatMul" input: "xx" input: "w" output: "y" } external_output: "y"',
    )
    inputs = {"x": draw(2, 3), "w": draw(5, 6)}
    refuses(lambda: exported(net, inputs=inputs, dynamic_axes={"x": {0: "B"}}), stepnet.ShapeMismatchError, "[2*B, 3]")
    net = stepnet.load(
        'op { type: "Flatten" input: "x" output: "f" arg { name: "axis" i: 2 } }'
        'op { type: "MatMul" input: "f" input: "w" output: "y" } external_output: "y"'
    )
    inputs = {"x": draw(2, 3, 4), "w": draw(5, 6)}
    refuses(lambda: exported(net, inputs=inputs, dynamic_axes={"x": {0: "T", 1: "B"}}), stepnet.ShapeMismatchError, "[?, 4]")


def test_sizes_that_cannot_be_one_are_not_advised():
    """Those of the arrays differ."""
    net = stepnet.load('op { type: "MatMul" input: "x" input: "w" output: "y" } external_output: "y"')
    with pytest.raises(stepnet.ShapeMismatchError, match=r"\[T, 4\]") as caught:
        exported(net, inputs={"x": draw(3, 4), "w": draw(5, 6)}, dynamic_axes={"x": {0: "T"}})
    assert "a size of its own" not in str(caught.value)


def test_sizes_that_the_file_leaves_open_stay_open():
    cell = stepnet.layers("gru", 5, 6, lengths=True)
    net = stepnet.onnx.load(exported(cell, cell.init(seed=1)))
    _, inputs = recurrent()
    sizes = {"x": ["T", "B", 5], "lengths": ["B"]}
    for options in ({}, {"inputs": inputs}, {"inputs": {"lengths": inputs["lengths"]}}):
        content = exported(net, **options)
        assert inputs_of(content) == sizes
        again = stepnet.onnx.load(content)
        assert [each._replace(name="") for each in again.arguments] == [each._replace(name="") for each in net.arguments]
        expect_equal(again(**inputs).h, net(**inputs).h)
    one = {"x": draw(2, 1, 5), "lengths": numpy.array([2], "int32")}
    expect_equal(stepnet.onnx.load(content)(**one).h, net(**one).h)


def test_dynamic_axes_take_the_place_of_what_the_file_says():
    cell = stepnet.layers("gru", 5, 6)
    net = stepnet.onnx.load(exported(cell, cell.init(seed=1)))
    x = draw(7, 3, 5)
    for axes, sizes in (({}, [7, 3, 5]), ({0: "steps"}, ["steps", 3, 5]), ({0: "T", -2: "N"}, ["T", "N", 5])):
        assert inputs_of(exported(net, inputs={"x": x}, dynamic_axes={"x": axes})) == {"x": sizes}
    assert inputs_of(exported(net, dynamic_axes={"x": {1: "N"}})) == {"x": ["T", "N", 5]}


def test_an_array_that_is_not_as_the_file_says_is_refused():
    cell = stepnet.layers("gru", 5, 6)
    net = stepnet.onnx.load(exported(cell, cell.init(seed=1)))
    refuses(lambda: exported(net, inputs={"x": draw(7, 3, 4)}), stepnet.ShapeMismatchError, "is [7, 3, 4]; it must be [T, B, 5]")
    refuses(lambda: exported(net, inputs={"x": draw(7, 3, 5, dtype="float64")}), stepnet.TypeMismatchError, "is float64; it must be float32")


def test_an_input_of_no_shape_needs_an_array(tmp_path):
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": draw(2, 3)}, {"y": TensorProto.FLOAT}, {})
    model.graph.input[0].type.tensor_type.ClearField("shape")
    net = loaded(model, tmp_path)
    refuses(lambda: exported(net), stepnet.InvalidArgumentError, "is missing; `inputs` must have an array of its dtype and shape")
    assert inputs_of(exported(net, inputs={"x": draw(2, 3)})) == {"x": [2, 3]}
    assert inputs_of(exported(net, inputs={"x": draw(2, 3)}, dynamic_axes={"x": {0: "N"}})) == {"x": ["N", 3]}


@pytest.mark.parametrize(
    "axes, error, message",
    [
        ({"lengths": ["B"]}, stepnet.TypeMismatchError, "dynamic_axes has for \"lengths\" the dimension 'B'; a dimension must be a whole number"),
        ({"x": {"0": "B"}}, stepnet.TypeMismatchError, "dynamic_axes has for \"x\" the dimension '0'; a dimension must be a whole number"),
        ({"x": [[0]]}, stepnet.TypeMismatchError, 'dynamic_axes has for "x" the dimension a list; a dimension must be'),
        ({"x": [True]}, stepnet.TypeMismatchError, 'dynamic_axes has for "x" the dimension True; a dimension must be'),
        ({"x": {0: 1}}, stepnet.TypeMismatchError, 'dynamic_axes has for dimension 0 of "x" 1; the name of a size must be a text'),
        ({"x": {0: ""}}, stepnet.InvalidArgumentError, "dynamic_axes has for dimension 0 of \"x\" ''; the name of a size must be a word, as 'T'"),
        ({"x": {0: "3"}}, stepnet.InvalidArgumentError, "dynamic_axes has for dimension 0 of \"x\" '3'; the name of a size must be a word"),
        ({"x": {0: "T, B"}}, stepnet.InvalidArgumentError, "dynamic_axes has for dimension 0 of \"x\" 'T, B'; the name of"),
        ({"x": {0: "\ud800"}}, stepnet.InvalidArgumentError, "it must be UTF-8"),
        ({"x": {0: "T", -3: "B"}}, stepnet.InvalidArgumentError, 'dynamic_axes names dimension -3 of "x" twice'),
        ({"x": b"0"}, stepnet.TypeMismatchError, "dynamic_axes has for \"x\" b'0'; it must be a dictionary of names by dimension"),
    ],
)
def test_what_dynamic_axes_cannot_be(axes, error, message):
    net, inputs = recurrent()
    refuses(lambda: exported(net, inputs=inputs, dynamic_axes=axes), error, message)


@pytest.mark.parametrize("rank", [4, 5])
def test_sizes_that_the_file_does_not_name(rank, tmp_path):
    """Five of them are more than can be told apart, and an array takes their place."""
    sizes = [2, 3, 4, 5, 6][:rank]
    node = helper.make_node("Transpose", ["x"], ["y"])
    model = model_of([node], {"x": draw(*sizes)}, {"y": TensorProto.FLOAT}, {}, sizes={"x": [None] * rank})
    net = loaded(model, tmp_path)
    assert net.arguments[0].shape == "[" + ", ".join("?" * rank) + "]"
    if rank == 4:
        assert inputs_of(exported(net)) == inputs_of(exported(net, inputs={"x": draw(*sizes)})) == {"x": [f"x_size{i}" for i in range(4)]}
    else:
        advice = "the file of the net leaves \"x_size0\" open, dimension 0 of \"x\": dynamic_axes={'x': {}} takes the sizes of its array\n  at op"
        refuses(lambda: exported(net, inputs={"x": draw(*sizes)}), stepnet.ShapeMismatchError, advice)
    assert inputs_of(exported(net, inputs={"x": draw(*sizes)}, dynamic_axes={"x": {}})) == {"x": sizes}
