"""MXNet's operator RNN as files of ONNX."""

import numpy
import pytest
from onnx_models import expect_equal, loops_of, session

import stepnet
import stepnet.onnx

T, B, D, H, L = 5, 3, 4, 6, 2


def rnn(mode, bidirectional=0, *, sizes=(T, B, D), **arguments):
    """A net of RNN, its inputs, and what it starts from, all random."""
    random = numpy.random.default_rng(7)
    projection = arguments.get("projection_size", 0)
    rows, size, batch = L * (1 + bidirectional), projection or H, sizes[1]
    cell = stepnet.layers(mode, sizes[2] or 1, H, num_layers=L, bidirectional=bool(bidirectional), proj_size=projection)
    unused = 0 if sizes[2] else sum(array.size for name, array in cell.init().items() if array.shape[1:] == (1,))
    inputs = {
        "data": random.standard_normal(sizes),
        "parameters": random.uniform(-0.4, 0.4, stepnet.packed.join(cell.init(), cell).size - unused),
        "state": random.standard_normal((rows, batch, size)),
    }
    if mode == "lstm":
        inputs["cell"] = random.standard_normal((rows, batch, H))
    inputs = {name: array.astype("float32") for name, array in inputs.items()}
    if arguments.get("use_sequence_length"):
        inputs["lengths"] = numpy.array([5, 0, 2], "int32")
    outputs = ["output", "last", "last_cell"][: 3 if mode == "lstm" else 2]
    given = {"mode": mode, "state_size": H, "num_layers": L, "bidirectional": bidirectional, "state_outputs": 1}
    text = 'op { type: "RNN"' + "".join(f' input: "{name}"' for name in inputs)
    text += "".join(f' output: "{name}"' for name in outputs)
    for name, value in {**given, **arguments}.items():
        field = "s" if isinstance(value, str) else "f" if isinstance(value, float) else "i"
        text += f' arg {{ name: "{name}" {field}: {value!r} }}'.replace("'", '"')
    text += " }" + "".join(f' external_output: "{name}"' for name in outputs)
    return text, inputs


CASES = {
    "tanh": ("rnn_tanh",),
    "relu, both ways": ("rnn_relu", 1),
    "gru": ("gru",),
    "gru, both ways, lengths": ("gru", 1, {"use_sequence_length": 1}),
    "lstm": ("lstm",),
    "lstm, both ways, lengths": ("lstm", 1, {"use_sequence_length": 1}),
    "lstm, projection": ("lstm", 1, {"projection_size": 3}),
    "lstm, clipped": ("lstm", 0, {"lstm_state_clip_min": -0.2, "lstm_state_clip_max": 0.3}),
    "lstm, clipped, NaN": (
        "lstm",
        0,
        {"lstm_state_clip_min": -0.2, "lstm_state_clip_max": 0.3, "lstm_state_clip_nan": 1},
    ),
}


@pytest.mark.parametrize("are_constant", [False, True], ids=["input", "constant"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_rnn_of_mxnet_is_exported(case, are_constant, tmp_path):
    mode, bidirectional, arguments = (*case, *(0, {})[len(case) - 1 :])
    text, inputs = rnn(mode, bidirectional, **arguments)
    if "lstm_state_clip_nan" in arguments:
        inputs["cell"][0, 1, 2] = numpy.nan
    net = stepnet.load(text)
    outputs = net(**inputs)
    params = {"parameters": inputs["parameters"]} if are_constant else None
    given = {name: array for name, array in inputs.items() if not (are_constant and name == "parameters")}
    stepnet.onnx.export(net, tmp_path / "rnn.onnx", params, inputs=given)
    exported = session(tmp_path / "rnn.onnx")
    for name, got in zip(net.outputs, exported.run(list(net.outputs), given)):
        expect_equal(got, outputs[name])
    loaded = stepnet.onnx.load(tmp_path / "rnn.onnx")(given)
    for name in net.outputs:
        expect_equal(loaded[name], outputs[name])


@pytest.mark.parametrize("are_constant", [False, True], ids=["input", "constant"])
@pytest.mark.parametrize("sizes", [(T, B, 0), (T, 0, D), (0, B, D)], ids=["no features", "no batch", "no steps"])
@pytest.mark.parametrize("mode", ["lstm", "gru", "rnn_tanh"])
def test_rnn_of_data_without_elements(mode, sizes, are_constant, tmp_path):
    """onnxruntime refuses loops over no steps, and would end the process in some of its own operators."""
    text, inputs = rnn(mode, 1, sizes=sizes)
    net = stepnet.load(text)
    outputs = net(**inputs)
    params = {"parameters": inputs.pop("parameters")} if are_constant else None
    stepnet.onnx.export(net, tmp_path / "rnn.onnx", params, inputs=inputs)
    exported = session(tmp_path / "rnn.onnx")
    loaded = stepnet.onnx.load(tmp_path / "rnn.onnx")(inputs)
    computed = dict(zip(net.outputs, exported.run(list(net.outputs), inputs))) if sizes[0] else {}
    for name in net.outputs:
        expect_equal(loaded[name], outputs[name])
        if sizes[0]:
            expect_equal(computed[name], outputs[name])


def test_rnn_of_constant_parameters_is_the_operator_of_its_name(tmp_path):
    text, inputs = rnn("lstm")
    net = stepnet.load(text)
    parameters = inputs.pop("parameters")
    stepnet.onnx.export(net, tmp_path / "rnn.onnx", {"parameters": parameters}, inputs=inputs)
    assert loops_of(tmp_path / "rnn.onnx") == ["LSTM", "LSTM"]


def test_rnn_of_parameters_that_are_given_is_a_scan(tmp_path):
    text, inputs = rnn("lstm")
    stepnet.onnx.export(stepnet.load(text), tmp_path / "rnn.onnx", inputs=inputs)
    assert loops_of(tmp_path / "rnn.onnx") == ["Scan"]
