"""stepnet.layers and stepnet.packed, against what MXNet computes (data/README.md)."""

import pathlib

import numpy
import pytest

import stepnet
from stepnet.layers import layers_of

MXNET = numpy.load(pathlib.Path(__file__).with_name("data") / "mxnet.npz")
CASES = {
    "rnn_relu_L2_bi": dict(num_layers=2, bidirectional=True),
    "rnn_tanh_L2_bi_lengths": dict(num_layers=2, bidirectional=True, lengths=True),
    "gru_L3": dict(num_layers=3),
    "gru_L2_bi_lengths": dict(num_layers=2, bidirectional=True, lengths=True),
    "lstm_L2_bi": dict(num_layers=2, bidirectional=True),
    "lstm_L2_bi_double": dict(num_layers=2, bidirectional=True, dtype="float64"),
    "lstm_L2_bi_lengths": dict(num_layers=2, bidirectional=True, lengths=True),
    "lstm_L2_bi_projection": dict(num_layers=2, bidirectional=True, proj_size=3),
}
HIDDEN_SIZE = {"lstm_L2_bi": 2, "lstm_L2_bi_double": 6, "lstm_L2_bi_projection": 6, "rnn_relu_L2_bi": 7}  # others: 5


def blobs(case):
    return {key.partition("/")[2]: MXNET[key] for key in MXNET if key.startswith(case + "/")}


def cell_of(case):
    mode = next(mode for mode in ("rnn_tanh", "rnn_relu", "lstm", "gru") if case.startswith(mode))
    return stepnet.layers(mode, MXNET[f"{case}/data"].shape[-1], HIDDEN_SIZE.get(case, 5), **CASES[case])


def rows_by_name(array, cell, state):
    """``[layers * directions, B, H]`` by the names of the cell's initial states."""
    names = [each.name for each in cell.inputs if each.name.rpartition("/")[2] == f"{state}_init"]
    assert len(names) == len(array)
    return {name: array[row : row + 1] for row, name in enumerate(names)}


def last_by_name(array, state, directions):
    """The same by the names of the outputs that hold the last states, directions side by side."""
    layers = [numpy.concatenate(array[k : k + directions], axis=-1)[None] for k in range(0, len(array), directions)]
    names = [f"layer{k}/{state}_last" for k in range(len(layers) - 1)] + [f"{state}_last"]
    return dict(zip(names, layers))


@pytest.mark.parametrize("case", CASES)
def test_layers_compute_what_mxnet_computes(case):
    mxnet, cell = blobs(case), cell_of(case)
    directions = 1 + CASES[case].get("bidirectional", False)
    states = {"h": "state", **({"c": "state_cell"} if "state_cell" in mxnet else {})}
    outputs = {"h": "state_output", **({"c": "statecell_output"} if "statecell_output" in mxnet else {})}
    inputs = {"x": mxnet["data"]}
    for state, name in states.items():
        inputs |= rows_by_name(mxnet[name], cell, state)
    if "sequence_length" in mxnet:
        inputs["lengths"] = mxnet["sequence_length"]
    out, pullback = cell.vjp(stepnet.packed.split(mxnet["parameters"], cell), **inputs)

    given = {"h": mxnet["output_grad"]}
    expected = {"h": mxnet["output"]}
    for state, name in outputs.items():
        if name in mxnet:
            expected |= last_by_name(mxnet[name], state, directions)
            given |= last_by_name(mxnet[name + "_grad"], state, directions)
    gradients = pullback(**given)

    def close(found, wanted):
        numpy.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)

    for name, array in expected.items():
        close(out[name], array)
    close(stepnet.packed.join(gradients.params, cell), mxnet["parameters_grad"])
    close(gradients.inputs["x"], mxnet["data_grad"])
    for state, name in states.items():
        for start, array in rows_by_name(mxnet[name + "_grad"], cell, state).items():
            close(gradients.inputs[start], array)


@pytest.mark.parametrize("case", CASES)
def test_split_and_join_are_inverse(case):
    cell = cell_of(case)
    vector = numpy.arange(MXNET[f"{case}/parameters"].size, dtype=cell.params[0].dtype)
    params = stepnet.packed.split(vector, cell)
    assert list(params) == [each.name for each in cell.params]
    assert numpy.array_equal(stepnet.packed.join(params, cell), vector)
    params[cell.params[0].name][0, 0] = -1  # what is split lies in the vector, what is joined does not
    assert vector[0] == -1
    stepnet.packed.join(params, cell)[0] = -2
    assert vector[0] == -1


def test_the_vector_has_weights_first_layer_by_layer():
    cell = stepnet.layers("lstm", 2, 3, num_layers=2, bidirectional=True, proj_size=1)
    params = stepnet.packed.split(numpy.arange(252, dtype="float32"), cell)
    assert {name: int(array.flat[0]) for name, array in params.items() if name.startswith("layer0/")} == {
        "layer0/weight_ih": 0,
        "layer0/weight_hh": 24,
        "layer0/weight_hr": 36,
        "layer0/reverse/weight_ih": 39,
        "layer0/reverse/weight_hh": 63,
        "layer0/reverse/weight_hr": 75,
        "layer0/bias_ih": 156,
        "layer0/bias_hh": 168,
        "layer0/reverse/bias_ih": 180,
        "layer0/reverse/bias_hh": 192,
    }
    assert int(params["layer1/reverse/bias_hh"][-1]) == 251


def test_vectors_that_do_not_fit_are_refused():
    cell = stepnet.layers("gru", 2, 3)
    params = stepnet.packed.split(numpy.zeros(63, "float32"), cell)
    of_gru = r"of gru\(input_size=2, hidden_size=3\) it must be"
    with pytest.raises(stepnet.ShapeMismatchError, match=rf"the vector is float32 \[62\]; {of_gru} \[63\]"):
        stepnet.packed.split(numpy.zeros(62, "float32"), cell)
    with pytest.raises(stepnet.TypeMismatchError, match="the vector is float64; it must be float32, as gru is"):
        stepnet.packed.split(numpy.zeros(63), cell)
    with pytest.raises(stepnet.ShapeMismatchError, match=r"packed: bias_ih is float32 \[8\].* must be \[9\]"):
        stepnet.packed.join({**params, "bias_ih": numpy.zeros(8, "float32")}, cell)
    with pytest.raises(stepnet.InvalidArgumentError, match="the parameter 'bias' is not known; those of gru are weight_ih, "):
        stepnet.packed.join({**params, "bias": params["bias_ih"]}, cell)
    del params["bias_ih"]
    with pytest.raises(stepnet.InvalidArgumentError, match="the parameter 'bias_ih' is missing"):
        stepnet.packed.join(params, cell)


def test_cells_that_are_not_layers_are_refused(cells):
    for source in (cells / "lstm.cell", cells / "gru.cell", cells / "layer_norm_lstm.cell", cells / "causal_conv.cell"):
        with pytest.raises(stepnet.InvalidArgumentError, match="does not compute what layers of PyTorch do"):
            stepnet.packed.split(numpy.zeros(3, "float32"), stepnet.cell(source))


@pytest.mark.parametrize(
    "before, after",
    [
        ("Tanh(g)", "Relu(g)"),
        ("i, f, g, o", "f, i, g, o"),
        ("+ bias_hh", "- bias_hh"),
        ("option layers = 2", "option layers = 2\n  option zoneout = 0.1"),
        ("option layers = 2", "option layers = 2\n  option residual = true"),
        ("option dropout = 0.25", "option recurrent_dropout = 0.25"),
        ("output h\n", "output c\n  output h\n"),
    ],
)
def test_a_changed_cell_is_no_longer_that_of_layers(before, after):
    text = stepnet.layers("lstm", 4, 4, num_layers=2, dropout=0.25).text
    assert layers_of(stepnet.cell(text)).dropout == 0.25
    assert before in text
    with pytest.raises(stepnet.InvalidArgumentError, match="the cell lstm does not compute what layers of PyTorch do"):
        layers_of(stepnet.cell(text.replace(before, after)))


@pytest.mark.parametrize(
    "options, told",
    [
        ({"direction": "reverse"}, "`option direction = reverse`"),
        ({"zoneout": 0.1}, "`option zoneout = 0.1`"),
        ({"layers": 2, "residual": True}, "`option residual = true`"),
        ({"lengths": "n", "beyond_length": "held"}, "`option lengths = n` and no `option beyond_length = held`"),
        ({"lengths": "lengths", "beyond_length": "held"}, "`option beyond_length = held`"),
        ({"layers": 2, "dropout": 0.1, "direction": "bidirectional", "residual": False, "recurrent_dropout": 0.5}, "`option recurrent_dropout = 0.5`"),
    ],
)
def test_options_that_no_layers_have_are_named(options, told):
    cell = stepnet.layers("lstm", 4, 4)
    in_text = "".join(f"\n  option {name} = {str(value).lower()}" for name, value in options.items())
    fault = f"the cell lstm does not compute what layers of PyTorch do: they have no {told}"
    for made in (cell.with_options(**options), stepnet.cell(cell.text.replace("\n  output c last", "\n  output c last" + in_text))):
        with pytest.raises(stepnet.InvalidArgumentError, match=fault + "$"):
            layers_of(made)


def test_comments_fills_and_sizes_may_be_changed():
    cell = stepnet.layers("lstm", 4, 8, num_layers=2, dropout=0.25, lengths=True, batch_first=True)
    text = "# Mine.\n" + cell.text.replace("bias_ih[4*H]", "bias_ih[4*H] = 1").replace(" dropout = 0.25", " dropout=2.5e-1")
    text = text.replace("size H = 8", "size H")
    assert layers_of(stepnet.cell(text, H=6)) == layers_of(cell)._replace(hidden_size=6)


def test_the_text_is_a_cell_to_go_on_from():
    cell = stepnet.layers("gru", 4, 8)
    changed = stepnet.cell(cell.text.replace("n = Tanh", "n = Relu"))
    x = numpy.ones((3, 2, 4), "float32")
    params = cell.init(seed=1)
    assert [each.shape for each in changed.params] == [each.shape for each in cell.params]
    assert not numpy.allclose(changed(params, x=x).h, cell(params, x=x).h)
    assert stepnet.cell(cell.text).text == cell.text
    assert stepnet.check(cell.text) == []
    assert cell.__doc__ == "Gated recurrent unit, reset after the product, as torch.nn.GRU has it."


@pytest.mark.parametrize(
    "arguments, message",
    [
        (dict(mode="LSTM"), "the mode is 'LSTM'; it must be one of rnn_tanh, rnn_relu, lstm, gru"),
        (dict(hidden_size=0), "hidden_size is 0; it must be above 0"),
        (dict(num_layers=-1), "num_layers is -1; it must be above 0"),
        (dict(num_layers=1001), "^invalid argument: num_layers is 1001; it must be at most 1000$"),
        (dict(mode="gru", proj_size=2), "proj_size is 2; gru has no projection, lstm alone has"),
        (dict(proj_size=4), "proj_size is 4; it must be at least 0 and below hidden_size, 4"),
        (dict(dropout=1), "dropout is 1.0; it must be at least 0 and below 1: at 1 nothing reaches the next layer"),
        (dict(dropout=float("nan")), "dropout is nan; it must be at least 0 and below 1"),
    ],
)
def test_what_no_layers_have_is_refused(arguments, message):
    with pytest.raises(stepnet.InvalidArgumentError, match=message):
        stepnet.layers(**{"mode": "lstm", "input_size": 3, "hidden_size": 4, **arguments})


def test_dropout_between_no_layers_warns_and_does_nothing():
    with pytest.warns(UserWarning, match="dropout is between layers, and there is one"):
        cell = stepnet.layers("gru", 4, 8, dropout=0.25)
    assert stepnet.expand(cell, training=True) == stepnet.expand(stepnet.layers("gru", 4, 8), training=True)
    assert cell.text.replace("  # option dropout = 0.25 is between layers, and there is one.\n", "") == stepnet.layers("gru", 4, 8).text
