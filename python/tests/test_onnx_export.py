"""What cells and nets become in ONNX runs in onnxruntime with equal results."""

import json
import os

import numpy
import onnx
import onnx.reference
import pytest
from conftest import ROOT
from onnx_models import (
    CASES,
    CELLS,
    GOLDEN,
    OPTIONS,
    cell_with,
    expect_equal,
    expect_exported,
    exported_of,
    inputs_of,
    loops_of,
    params_of,
    run,
    session,
    tensors,
)

import stepnet
import stepnet.onnx


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("name", CELLS)
def test_onnxruntime_computes_what_a_cell_does(name, options, random, tmp_path):
    cell = cell_with(name, options.replace("valid", "valid_steps"))
    params = params_of(cell, random)
    stepnet.onnx.export(cell, tmp_path / "cell.onnx", params)
    exported = session(tmp_path / "cell.onnx")
    assert [each.name for each in exported.get_outputs()] == list(cell.outputs)
    for steps, batch, with_states in ((7, 3, False), (1, 1, True), (4, 2, True)):
        inputs = inputs_of(cell, random, steps, batch, with_states)
        outputs = cell(params, **inputs)
        for output, got in zip(cell.outputs, exported.run(list(cell.outputs), inputs)):
            expect_equal(got, outputs[output])


OTHER_CELLS = {
    "a state that is given, with a window, and one that starts as a number": """
        cell given(x[H]; h, k[H]) {
          size H = 3
          state h initial=given window=2
          state k initial=0.5
          k = k * 0.5 + x
          h = Tanh(k + Slice(h, starts=[0], ends=[1]))
          output h
          output h last
          output k last
          option lengths = n
        }""",
    "a step that reads its sequence for what nobody reads": """
        cell clock(x[H]; h[H]) {
          size H = 3
          dead = 2 * x
          h = Tanh(h + 1)
          output h
          output h last
        }""",
    "learned states": """
        cell learned(x[H]; h[H]) {
          size H = 3
          state h initial=learned
          h = Tanh(h + x)
          output h
          output h last
          option layers = 2
          option direction = bidirectional
        }""",
    "the number of the step": """
        cell numbered(x[H]; h[H]; limits[B]) {
          size H = 3
          goes_on = Cast(GT(Cast(limits, to="int32"), timestep), to="float")
          h = Tanh(h + x) * Reshape(goes_on, shape=[1, -1, 1])
          output h
          option direction = reverse
        }""",
    "states that read each other": """
        cell swap(x[H]; a, b[H]) {
          size H = 3
          sum = a_prev + x
          a = b_prev * 0.5
          b = sum
          output a
          output b
          output sum
          output sum last
        }""",
    "slopes that may be infinite, and steps that do not count": """
        cell unit(x[H]; h, k[H]) {
          size H = 3
          state k window=2 initial=0.5
          h = h * 0.5 + x / Sqrt(ReduceSum(k * k, axes=[0]))
          k = x
          output h
          output h last
          option mask = counts
          option direction = reverse
        }""",
    "one number an item": """
        cell numbers(x[]; h[H]) {
          size H = 3
          param w[H]
          h = Tanh(h + w * Reshape(x, shape=[1, -1, 1]))
          output h
        }""",
}


@pytest.mark.parametrize("text", OTHER_CELLS.values(), ids=OTHER_CELLS)
def test_cells_of_other_forms(text, random, tmp_path):
    expect_exported(stepnet.cell(text), random, tmp_path)


@pytest.mark.parametrize("name", ["lstm", "causal_conv"])
def test_states_that_are_carried_from_run_to_run(name, random, tmp_path):
    cell = cell_with(name, carry=True)
    assert not any(each.optional for each in cell.inputs)
    expect_exported(cell, random, tmp_path)


def test_a_cell_in_double_is_exported_in_double(random, tmp_path):
    cell = cell_with("slstm", OPTIONS["both ways, lengths"], dtype="float64")
    params = params_of(cell, random)
    stepnet.onnx.export(cell, tmp_path / "cell.onnx", params)
    inputs = inputs_of(cell, random, 5, 3, with_states=True)
    for output, got in run(tmp_path / "cell.onnx", cell.outputs, inputs).items():
        expect_equal(got, cell(params, **inputs)[output], tolerance=1e-12)


def test_numbers_of_a_cell_in_double_are_exported_as_they_are(random, tmp_path):
    values = {
        "scaled": "0.1 * x",
        "leaky": "LeakyRelu(x)",
        "elu": "Elu(x, alpha=0.3)",
        "selu": "Selu(x)",
        "hard": "HardSigmoid(x)",
        "normed": "LayerNorm(x, axis=-1)",
        "bounded": "Clip(x, min=-0.1, max=0.1)",
    }
    lines = [f"{name} = {value}\n output {name}" for name, value in values.items()]
    cell = stepnet.cell("cell c(x[3]; ) {\n" + "\n".join(lines) + "\n}", dtype="float64")
    stepnet.onnx.export(cell, tmp_path / "cell.onnx", {})
    x = random.normal(size=(5, 2, 3))
    got = onnx.reference.ReferenceEvaluator(str(tmp_path / "cell.onnx")).run(cell.outputs, {"x": x})
    for output, value in zip(cell.outputs, got):
        numpy.testing.assert_allclose(value, cell({}, x=x)[output], rtol=1e-14, atol=1e-15, err_msg=output)


def bodies_of(path):
    graphs = [each.attribute for each in onnx.load(path).graph.node if each.op_type == "Scan"]
    return [attribute.g for attributes in graphs for attribute in attributes if attribute.name == "body"]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numbers_of_a_step_are_scalars_that_operators_repeat(dtype, random, tmp_path):
    cell = stepnet.cell(
        """cell numbers(x[H]; h[H]) {
          size H = 3
          z = Sigmoid(2 - x)
          y = Where(GE(x, 0.1), x + 0.5, Max(-0.25, x))
          mark = Where(LT(z, 0.5), 1, 0)
          h = (1 - z) * h + z * y / 3 + mark
          output h
          output h last
        }""",
        dtype=dtype,
    )
    expect_exported(cell, random, tmp_path)
    (body,) = bodies_of(tmp_path / "cell.onnx")
    assert {each.op_type for each in body.node}.isdisjoint({"Shape", "Expand"})
    net, x = stepnet.onnx.load(tmp_path / "cell.onnx"), numpy.zeros((5, 2, 3), dtype)
    stages = json.loads(net.explain(x=x, format="json"))[0]["stages"]
    assert [len(each["instructions"]) for each in stages] == [1]


def test_numbers_that_no_other_input_repeats_have_their_shape(random, tmp_path):
    (tmp_path / "net.pbtxt").write_text("""
        op { type: "ConstantFill" input: "x" output: "two" arg { name: "value" f: 2 } }
        op { type: "ConstantFill" output: "row" arg { name: "value" f: 3 } arg { name: "shape" ints: 2 } }
        op { type: "Add" input: "two" input: "two" output: "four" }
        op { type: "Exp" input: "two" output: "e" }
        op { type: "Sub" input: "x" input: "row" output: "less" arg { name: "broadcast" i: 1 } arg { name: "axis" i: 1 } }
        op { type: "Mul" input: "two" input: "row" output: "six" arg { name: "broadcast" i: 1 } arg { name: "axis" i: 1 } }
        op { type: "Div" input: "two" input: "by" output: "parts" arg { name: "broadcast" i: 1 } arg { name: "axis" i: 1 } }
        op { type: "Sum" input: "two" input: "x" input: "two" output: "sum" }
        external_input: "x" external_input: "by"
        external_output: "two" external_output: "four" external_output: "e" external_output: "less"
        external_output: "six" external_output: "parts" external_output: "sum" """)
    net = stepnet.load(tmp_path / "net.pbtxt")
    inputs = {"x": random.normal(size=(4, 2, 3)).astype("float32"), "by": random.uniform(1, 2, 2).astype("float32")}
    stepnet.onnx.export(net, tmp_path / "net.onnx", inputs=inputs, dynamic_axes={"x": {0: "T"}})
    inputs["x"] = inputs["x"][:3]
    for name, got in run(tmp_path / "net.onnx", net.outputs, inputs).items():
        expect_equal(got, net(**inputs)[name])


def test_steps_and_batch_have_any_size_and_their_names(lstm, tmp_path):
    stepnet.onnx.export(lstm, tmp_path / "lstm.onnx", lstm.init())
    graph = onnx.load(tmp_path / "lstm.onnx").graph

    def sizes(info):
        return [each.dim_param or each.dim_value for each in info.type.tensor_type.shape.dim]

    assert {each.name: sizes(each) for each in graph.input} == {
        "x": ["T", "B", 5],
        "h_init": [1, "h_init_batch", 4],
        "c_init": [1, "c_init_batch", 4],
    }
    assert {each.name: sizes(each) for each in graph.output} == {
        "h": ["T", "B", 4],
        "h_last": [1, "B", 4],
        "c_last": [1, "B", 4],
    }


def test_only_what_the_outputs_need_is_exported(lstm, tmp_path):
    cell = stepnet.cell(
        "cell two(x[D]; h[D]) {\n size D = 3\n param w[D, D]\n param v[D, D]\n h = Tanh(x @ w + h)\n y = x @ v\n"
        " output h\n output y\n}"
    )
    stepnet.onnx.export(cell, tmp_path / "two.onnx", cell.init(), outputs=["h"])
    graph = onnx.load(tmp_path / "two.onnx").graph
    assert [each.name for each in graph.output] == ["h"]
    assert not any("v" in each.name for each in graph.initializer)


@pytest.mark.parametrize("case", CASES)
def test_onnxruntime_computes_what_caffe2_recorded(case, tmp_path):
    manifest = json.loads((GOLDEN / case / "manifest.json").read_text())
    net = stepnet.load(GOLDEN / case / "net.pb")
    given, compared = {}, 0
    for number, each in enumerate(manifest["runs"]):
        given.update(tensors(case, each["inputs"]))
        expected = tensors(case, each["expected"])
        outputs = exported_of(case, [name for name in each["outputs"] if name in expected])
        inputs = {name: given[name] for name in net.inputs}
        path = tmp_path / f"{number}.onnx"
        stepnet.onnx.export(net, path, inputs=inputs, outputs=outputs)
        exported = session(path)
        needed = {each.name: inputs[each.name] for each in exported.get_inputs()}
        for name, got in zip(outputs, exported.run(outputs, needed)):
            assert got.shape == expected[name].shape
            numpy.testing.assert_allclose(got, expected[name], rtol=1e-4, atol=1e-5, err_msg=name)
            compared += 1
    assert compared > 0


@pytest.mark.parametrize("case", ["blob_fetcher_exec_off", "blob_fetcher_exec_on"])
def test_what_is_fetched_of_steps_are_rows_of_what_is_exported(case, tmp_path):
    net, given, expected = (
        stepnet.load(GOLDEN / case / "net.pb"), tensors(case, "inputs.pb"), tensors(case, "expected.pb")
    )  # fmt: skip
    names = [net.outputs[0], "test_rnn_sum_mull/output_t_prev_states"]
    stepnet.onnx.export(net, tmp_path / "x.onnx", inputs={name: given[name] for name in net.inputs}, outputs=names)
    exported = session(tmp_path / "x.onnx")
    products, states = exported.run(names, {each.name: given[each.name] for each in exported.get_inputs()})
    rows = {names[0].removesuffix("_all"): products, "output_t_prev": states, "input_t": given["input"]}
    for name, sequence in rows.items():
        for t in range(len(products)):
            numpy.testing.assert_allclose(expected[f"extractTest_{name}{t}"].reshape(sequence[t].shape), sequence[t], rtol=1e-5)


OF_CAFFE2 = {
    **{name: ["LSTM"] for name in ("lstm", "lstm_noseqlen", "lstm_forget_bias", "lstm_init1d", "lstm_seqlen_zero")},
    **{name: ["LSTM"] for name in ("lstm_varlen", "lstm_changing_T", "lstm_forward_only", "lstm_B1")},
    "lstm_varlen_drop_states": ["Scan"],  # whose states become 0 where a sequence ends
    "layered_lstm2": ["LSTM"] * 2,
    "layered_lstm3_forward_only": ["LSTM"] * 3,
    **{name: ["GRU"] for name in ("gru", "gru_noseqlen", "gru_varlen", "gru_init2d")},
    **{name: ["GRU"] for name in ("gru_linear_before_reset_T1", "gru_linear_before_reset_noseqlen")},
    "basic_rnn_tanh": ["RNN"],
    "basic_rnn_relu": ["RNN"],
    "milstm": ["Scan"],
    "layernorm_lstm": ["Scan"],
}


@pytest.mark.parametrize("case", OF_CAFFE2)
def test_loops_of_caffe2_are_operators_of_onnx(case, tmp_path):
    """Its cells project their inputs before the loop, and LSTMUnit and GRUUnit look at lengths."""
    run_of = json.loads((GOLDEN / case / "manifest.json").read_text())["runs"][0]
    net = stepnet.load(GOLDEN / case / "net.pb")
    given, expected = tensors(case, run_of["inputs"]), tensors(case, run_of["expected"])
    params = {name: given[name] for name in net.inputs if name.endswith(("_w", "_b"))}
    inputs = {name: given[name] for name in net.inputs if name not in params}
    outputs = [
        name
        for name in run_of["outputs"]
        if name in expected and not name.endswith("states") and not ("cell" in name and name.endswith("_all"))
    ]
    stepnet.onnx.export(net, tmp_path / "net.onnx", params, inputs=inputs, outputs=outputs)
    assert loops_of(tmp_path / "net.onnx") == OF_CAFFE2[case]
    exported = session(tmp_path / "net.onnx")
    needed = {each.name: inputs[each.name] for each in exported.get_inputs()}
    for name, got in zip(outputs, exported.run(outputs, needed)):
        numpy.testing.assert_allclose(got, expected[name], rtol=1e-4, atol=1e-5, err_msg=name)


def test_files_have_the_permissions_of_new_files_and_keep_those_they_have(lstm, tmp_path):
    files = [tmp_path / name for name in ("cell.onnx", "net.pbtxt", "params.npz")]
    umask = os.umask(0o027)
    try:
        stepnet.onnx.export(lstm, files[0], lstm.init())
        stepnet.onnx.convert(*files)
    finally:
        os.umask(umask)
    assert [oct(file.stat().st_mode & 0o777) for file in files] == ["0o640"] * 3
    files[0].chmod(0o604)
    (tmp_path / "link.onnx").symlink_to(files[0])
    stepnet.onnx.export(lstm, tmp_path / "link.onnx", lstm.init())
    assert (tmp_path / "link.onnx").is_symlink() and oct(files[0].stat().st_mode & 0o777) == "0o604"


def test_a_net_with_free_sizes(tmp_path):
    folder = ROOT / "examples" / "char_lm"
    net = stepnet.load(folder / "net.pb", init=folder / "init_net.pb")
    x = numpy.eye(65, dtype="float32")[:12, None]
    inputs = {
        "input": x,
        "seq_lengths": numpy.array([12], "int32"),
        "hidden_init": numpy.zeros((1, 1, 128), "float32"),
        "cell_init": numpy.zeros((1, 1, 128), "float32"),
    }
    stepnet.onnx.export(net, tmp_path / "lm.onnx", inputs=inputs, dynamic_axes={"input": {0: "T"}})
    for steps in (12, 5):
        inputs.update(input=x[:steps], seq_lengths=numpy.array([steps], "int32"))
        got = run(tmp_path / "lm.onnx", ["probabilities"], inputs)["probabilities"]
        expect_equal(got, net(**inputs).probabilities)


@pytest.mark.parametrize(
    "name, options, loops",
    [
        ("elman", "", ["RNN"]),
        ("lstm", "", ["LSTM"]),
        ("peephole_lstm", "", ["LSTM"]),
        ("gru", "", ["GRU"]),
        ("gru_reset_after", "", ["GRU"]),
        ("lstm", "option layers = 3\n", ["LSTM"] * 3),
        ("gru", "option direction = bidirectional\n", ["GRU"] * 2),
        ("lstm", "option lengths = lengths\n", ["LSTM"]),
        ("peephole_lstm", "option lengths = lengths\n option layers = 2\n", ["LSTM"] * 2),
        ("gru", "option lengths = lengths\n option direction = bidirectional\n option layers = 2\n", ["GRU"] * 4),
        ("gru_reset_after", "option lengths = lengths\n option direction = reverse\n", ["GRU"]),
        ("elman", "option lengths = lengths\n option batch_major = true\n", ["RNN"]),
        ("gru", "option lengths = lengths\n option beyond_length = held\n option layers = 2\n", ["GRU"] * 2),
        ("lstm", "option mask = valid\n", ["Scan"]),  # ONNX's LSTM has lengths alone
        ("lstm", "option zoneout = 0.1\n", ["Scan"]),
        ("lstm", "output c\n", ["Scan"]),  # ONNX's LSTM gives the last one alone
        ("lstmp", "", ["Scan"]),
        ("coupled_lstm", "", ["Scan"]),
    ],
)
def test_loops_that_are_operators_of_onnx_are_these(name, options, loops, random, tmp_path):
    cell = cell_with(name, options)
    params = params_of(cell, random)
    stepnet.onnx.export(cell, tmp_path / "cell.onnx", params)
    assert loops_of(tmp_path / "cell.onnx") == loops
    inputs = inputs_of(cell, random, 5, 3, with_states=True)
    outputs = cell(params, **inputs)
    for output, got in run(tmp_path / "cell.onnx", cell.outputs, inputs).items():
        expect_equal(got, outputs[output])


ALMOST = {
    "another product": ("x @ w + b + h @ u", "x @ w + b + h @ u + c @ u"),
    "another activation": ("Tanh(g)", "Relu(g)"),
    "the old h": ("Tanh(c)", "Tanh(c_prev)"),
    "the gate of another": ("Sigmoid(f) * c", "Sigmoid(i) * c"),
    "a factor": ("Sigmoid(f) * c", "2 * Sigmoid(f) * c"),
    "a sum": ("h = Sigmoid(o) * Tanh(c)", "h = Sigmoid(o) * Tanh(c) + h_prev"),
}


@pytest.mark.parametrize("what", ALMOST)
def test_what_is_almost_an_lstm_is_a_loop(what, random, tmp_path):
    text = (ROOT / "examples" / "cells" / "lstm.cell").read_text()
    assert ALMOST[what][0] in text
    cell = stepnet.cell(text.replace(*ALMOST[what]))
    params = params_of(cell, random)
    stepnet.onnx.export(cell, tmp_path / "cell.onnx", params)
    # "The gate of another" has an LSTM's form, with the input gate's weights for the forget gate.
    assert loops_of(tmp_path / "cell.onnx") == (["LSTM"] if what == "the gate of another" else ["Scan"])
    inputs = inputs_of(cell, random, 5, 3, with_states=True)
    outputs = cell(params, **inputs)
    for output, got in run(tmp_path / "cell.onnx", cell.outputs, inputs).items():
        expect_equal(got, outputs[output])


def test_parameters_of_pytorch(lstm, random, tmp_path):
    torch = pytest.importorskip("torch")
    module = pytest.importorskip("stepnet.torch").Module(lstm, params_of(lstm, random))
    stepnet.onnx.export(lstm, tmp_path / "lstm.onnx", dict(module.named_parameters()))
    x = random.standard_normal((5, 2, 5)).astype("float32")
    (h,) = session(tmp_path / "lstm.onnx").run(["h"], {"x": x})
    expect_equal(h, module(torch.from_numpy(x)).h.detach().numpy())


def test_parameters_of_pytorch_have_no_dots_in_their_names(random, tmp_path):
    torch = pytest.importorskip("torch")
    text = "cell a(x[4]; h[4]) { param in.w[4]\n h = Tanh(x * in.w + h)\n output h }"
    cell = stepnet.cell(text)
    module = pytest.importorskip("stepnet.torch").Module(cell, params_of(cell, random))
    assert list(module.state_dict()) == ["in_w"]
    stepnet.onnx.export(cell, tmp_path / "a.onnx", dict(module.named_parameters()))
    x = random.standard_normal((5, 2, 4)).astype("float32")
    (h,) = session(tmp_path / "a.onnx").run(["h"], {"x": x})
    expect_equal(h, module(torch.from_numpy(x)).h.detach().numpy())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_modules_of_pytorch(random, tmp_path, dtype):
    torch = pytest.importorskip("torch")
    module_type = pytest.importorskip("stepnet.torch").Module
    cell = stepnet.layers("lstm", 5, 4, num_layers=2, dropout=0.5).with_options(training=True)
    path = tmp_path / "module.onnx"
    x = random.standard_normal((5, 2, 5)).astype(dtype)
    for output, names in ((None, ["h", "layer0/h_last", "layer0/c_last", "h_last", "c_last"]), ("layer0_h_last", ["layer0/h_last"])):
        module = module_type(cell, seed=1, output=output).to(getattr(torch, dtype)).eval()
        stepnet.onnx.export(module, path)
        expected = module(torch.from_numpy(x))
        assert sorted(each.name for each in session(path).get_outputs()) == sorted(names)
        for name, got in zip(names, session(path).run(names, {"x": x})):
            expect_equal(got, (expected if output else expected[name]).detach().numpy())
    zeros = {name: numpy.zeros_like(each) for name, each in stepnet.layers("lstm", 5, 4, num_layers=2).init().items()}
    if dtype == "float32":
        stepnet.onnx.export(module, path, zeros)
        assert not session(path).run(None, {"x": x})[0].any()
