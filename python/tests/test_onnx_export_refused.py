"""What cannot be exported to ONNX, and arguments that do not fit: errors say what and where."""

import json
import re

import numpy
import onnx
import pytest
from conftest import ROOT
from onnx_models import GOLDEN, NOT_EXPORTED, cell_with, exported_of, run, session, tensors

import stepnet
import stepnet.onnx


def test_outputs_of_golden_nets_that_onnx_cannot_have_are_refused(tmp_path):
    reasons = {"extractTest_": 'has no blob "extractTest_', "__m": "AveragedLossGradient has no counterpart among ONNX's"}
    for case, start in NOT_EXPORTED.items():
        run_of = json.loads((GOLDEN / case / "manifest.json").read_text())["runs"][0]
        net, given = stepnet.load(GOLDEN / case / "net.pb"), tensors(case, run_of["inputs"])
        inputs = {name: given[name] for name in net.inputs}
        left = set(run_of["outputs"]) - set(exported_of(case, run_of["outputs"]))
        assert left
        for name in left:
            assert reasons[start] in refusal_of(net, tmp_path, inputs=inputs, outputs=[name])
    # What makes a blob for each step: the names of its outputs follow from an input, and those of a graph are in the file.
    net, inputs = stepnet.load(GOLDEN / "blob_fetcher_exec_on/net.pb"), tensors("blob_fetcher_exec_on", "inputs.pb")
    fetcher = "RecurrentNetworkBlobFetcher has no counterpart among ONNX's operators here"
    assert fetcher in refusal_of(net, tmp_path, inputs={name: inputs[name] for name in net.inputs})


def refusal_of(given, tmp_path, **options):
    """What export says of a cell, a net or the text of one."""
    if isinstance(given, str):
        (tmp_path / "net.pbtxt").write_text(given)
        given = stepnet.load(tmp_path / "net.pbtxt")
    params = given.init() if isinstance(given, stepnet.Cell) else None
    with pytest.raises(stepnet.Error) as caught:
        stepnet.onnx.export(given, tmp_path / "x.onnx", params, **options)
    assert not (tmp_path / "x.onnx").exists()
    return str(caught.value)


def test_a_random_mask_is_refused(tmp_path):
    cell = cell_with("lstm", "option layers = 2\n option dropout = 0.5\n", training=True)
    assert refusal_of(cell, tmp_path) == (
        "invalid net: Dropout draws a random mask; with is_test=1, as in a cell that is not in training, it is "
        "exported\n"
        "  at op 3 `layer0/h, layer0/h_mask = Dropout(layer0/h)`\n"
        '  in net "lstm"'
    )


def test_an_operator_of_a_step_is_named_with_its_place(tmp_path):
    cell = cell_with("lstm", "option zoneout = 0.5\n", training=True)
    assert "Dropout draws a random mask" in refusal_of(cell, tmp_path)
    assert 'in net "lstm, a step"' in refusal_of(cell, tmp_path)


def test_shapes_that_follow_from_values_are_refused(tmp_path):
    net = 'op { type: "UnpackRNNSequence" input: "x" input: "lengths" output: "y" } external_output: "y"'
    inputs = {"x": numpy.zeros((3, 2, 4), "float32"), "lengths": numpy.array([3, 1], "int32")}
    assert "UnpackRNNSequence has no counterpart among ONNX's operators" in refusal_of(net, tmp_path, inputs=inputs)


def test_an_operator_of_ones_own_is_named_with_its_place(build_operators, tmp_path):
    stepnet.load_operator_library(build_operators(ROOT / "examples" / "custom_operator" / "clip.cc"))
    cell = stepnet.cell("cell clipped(x[D]; h[D]) { size D\n h = acme.Clip(h + x, limit=0.75)\n output h }", D=3)
    message = "acme.Clip has no counterpart among ONNX's operators here; write what it computes with operators that have one\n  at op 1 `"
    assert message in refusal_of(cell, tmp_path)
    assert 'in net "clipped, a step"' in refusal_of(cell, tmp_path)


def test_a_link_to_rows_of_later_steps_is_refused(tmp_path):
    text = stepnet.expand(ROOT / "examples" / "cells" / "elman.cell", D=2, H=2)
    net = text.replace("ints: 0\n    ints: 0\n    ints: 1\n", "ints: 0\n    ints: 0\n    ints: 2\n")
    assert net != text
    inputs = {"x": (4, 3, 2), "h_init": (1, 3, 2), "w": (2, 2), "u": (2, 2), "b": (2,)}
    arrays = {name: numpy.zeros(shape, "float32") for name, shape in inputs.items()}
    assert 'rows of the state "h_states"' in refusal_of(net, tmp_path, inputs=arrays)


def test_arrays_that_do_not_fit_are_named(lstm, tmp_path):
    params = lstm.init()
    for name, array, error, text in (
        (
            "w",
            params["w"][:3],
            stepnet.ShapeMismatchError,
            r'the parameter "w" of lstm is float32 \[3, 5\]; it must be \[16, 5\]',
        ),
        ("w", params["w"].astype("float64"), stepnet.TypeMismatchError, 'the parameter "w" of lstm is float64'),
        ("v", params["w"], stepnet.InvalidArgumentError, 'lstm has no parameter "v"; its parameters are w, u, b'),
    ):
        with pytest.raises(error, match=text):
            stepnet.onnx.export(lstm, tmp_path / "x.onnx", {**params, name: array})
    with pytest.raises(stepnet.TypeMismatchError, match="the parameter 'w' is 'text', no array; it must be one of NumPy"):
        stepnet.onnx.export(lstm, tmp_path / "x.onnx", {**params, "w": "text"})
    with pytest.raises(stepnet.InvalidArgumentError, match='the parameter "w" of lstm is missing'):
        stepnet.onnx.export(lstm, tmp_path / "x.onnx", {})
    with pytest.raises(stepnet.InvalidArgumentError, match='"lstm" has no blob "hh" that could be an output; did you mean h[?]'):
        stepnet.onnx.export(lstm, tmp_path / "x.onnx", params, outputs=["hh"])
    with pytest.raises(stepnet.InvalidArgumentError, match=r'lstm has no parameter "\\ud800"; its parameters are w, u, b'):
        stepnet.onnx.export(lstm, tmp_path / "x.onnx", {**params, "\ud800": params["b"]})
    with pytest.raises(stepnet.InvalidArgumentError, match=r'"lstm" has no blob "\\ud800" that could be an output'):
        stepnet.onnx.export(lstm, tmp_path / "x.onnx", params, outputs=["\ud800"])
    with pytest.raises(stepnet.TypeMismatchError, match="path is a dict; it must be a path"):
        stepnet.onnx.export(lstm, params, tmp_path / "x.onnx")
    with pytest.raises(stepnet.InputOutputError, match=f"cannot write {tmp_path}/none/x.onnx: No such file"):
        stepnet.onnx.export(lstm, tmp_path / "none" / "x.onnx", params)


def test_parameters_are_given_once(tmp_path):
    cell = stepnet.cell("cell c(x[2]; h[2]) { param a.w[2, 2]; h = Tanh(x @ a.w + h); output h }")
    (w,) = cell.init().values()
    with pytest.raises(stepnet.InvalidArgumentError, match='the parameter "a.w" of c is given twice, also as "a_w"'):
        stepnet.onnx.export(cell, tmp_path / "x.onnx", {"a.w": w, "a_w": 2 * w})


def test_dynamic_axes_may_be_listed(tmp_path):
    net = stepnet.load('op { type: "Add" input: "x" input: "w" output: "y" arg { name: "broadcast" i: 1 } }')
    x, w, path = numpy.ones((2, 3), "float32"), numpy.ones(3, "float32"), tmp_path / "x.onnx"
    stepnet.onnx.export(net, path, inputs={"x": x, "w": w}, dynamic_axes={"x": [0]})
    assert [each.shape for each in session(path).get_inputs()] == [["x_dynamic_axes_1", 3], [3]]
    (y,) = session(path).run(["y"], {"x": numpy.ones((5, 3), "float32"), "w": w})
    assert y.shape == (5, 3)
    for axes, message in (
        ([0], "dynamic_axes is a list; it must be a dictionary of dimensions by input"),
        ({"x": "T"}, "dynamic_axes has for \"x\" 'T'; it must be a dictionary of names by dimension"),
    ):
        with pytest.raises(stepnet.TypeMismatchError, match=message):
            stepnet.onnx.export(net, path, inputs={"x": x, "w": w}, dynamic_axes=axes)
    with pytest.raises(stepnet.ShapeMismatchError, match=r"x is \[x_dynamic_axes_1, 3\] and w is \[2, 3\]"):
        stepnet.onnx.export(net, path, inputs={"x": x, "w": x}, dynamic_axes={"x": [0]})


def test_nets_want_arrays_for_their_inputs(tmp_path):
    (tmp_path / "net.pbtxt").write_text('op { type: "Add" input: "x" input: "w" output: "y" } external_output: "y"')
    net = stepnet.load(tmp_path / "net.pbtxt")
    x = numpy.ones((2, 3), "float32")
    for arguments, message in (
        ({"inputs": {"x": x}}, 'the input "w" of <stepnet.Net .*> is missing'),
        ({"inputs": {"x": x, "w": x, "v": x}}, 'inputs names "v", which <stepnet.Net .*> is not given'),
        ({"params": {"v": x}, "inputs": {"x": x, "w": x}}, 'params names "v"'),
        ({"inputs": {"x": x, "w": x}, "dynamic_axes": {"v": {0: "B"}}}, 'dynamic_axes names "v"'),
        ({"inputs": {"x": x, "w": x}, "dynamic_axes": {"x": {2: "B"}}}, r'dimension 2 of "x", which is \[2, 3\]'),
    ):
        with pytest.raises(stepnet.InvalidArgumentError, match=message):
            stepnet.onnx.export(net, tmp_path / "x.onnx", **arguments)
    with pytest.raises(TypeError, match="the model is a str"):
        stepnet.onnx.export("net", tmp_path / "x.onnx")
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match="the model is an LSTM; .*; stepnet.from_torch makes a cell of a recurrent module"):
        stepnet.onnx.export(torch.nn.LSTM(2, 3), tmp_path / "x.onnx")


@pytest.mark.parametrize("outputs, message", [([], "is .* at least one, or be None for all"), (["h", "h"], 'names "h" twice')])
def test_outputs_are_named_once_and_one_at_least(outputs, message, lstm, tmp_path):
    with pytest.raises(stepnet.InvalidArgumentError, match=f"outputs {message}"):
        stepnet.onnx.export(lstm, tmp_path / "cell.onnx", lstm.init(), outputs=outputs)
    assert not (tmp_path / "cell.onnx").exists()


def test_wrong_kinds_of_arguments_are_named(tmp_path):
    torch = pytest.importorskip("torch")
    net, path = stepnet.load('op { type: "Tanh" input: "x" output: "y" } external_output: "y"'), tmp_path / "net.onnx"
    array = numpy.ones(3, "float32")
    for arguments, message in [
        ({"inputs": array}, "inputs is an ndarray float32"),
        ({"inputs": torch.ones(3)}, "inputs is a Tensor float32"),
        ({"inputs": {"x": array}, "params": array}, "params is an ndarray"),
        ({"inputs": {"x": array}, "dynamic_axes": array}, "dynamic_axes is an ndarray"),
        ({"inputs": {"x": array}, "outputs": memoryview(numpy.ones((2, 2)))}, "outputs is a memoryview"),
    ]:
        with pytest.raises(stepnet.TypeMismatchError, match=message):
            stepnet.onnx.export(net, path, **arguments)


def test_cells_know_their_inputs(lstm, tmp_path):
    with pytest.raises(stepnet.InvalidArgumentError, match="a cell knows its inputs"):
        stepnet.onnx.export(lstm, tmp_path / "x.onnx", lstm.init(), inputs={})


def test_a_cell_needs_parameters(lstm, tmp_path):
    message = "params, the third argument, is missing: lstm has the parameters w, u, b, as cell.init() or training gives them"
    with pytest.raises(stepnet.InvalidArgumentError, match=re.escape(message)):
        stepnet.onnx.export(lstm, tmp_path / "lstm.onnx")


def test_an_array_is_a_parameter_or_an_input(tmp_path):
    net = stepnet.load('op { type: "Add" input: "x" input: "w" output: "y" }')
    arrays = {name: numpy.ones(2, "float32") for name in ("x", "w")}
    with pytest.raises(stepnet.InvalidArgumentError, match='"w" of .* is given as a parameter, by params, and as an input'):
        stepnet.onnx.export(net, tmp_path / "net.onnx", inputs=arrays, params={"w": arrays["w"]})
    assert not (tmp_path / "net.onnx").exists()
