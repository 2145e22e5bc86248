"""RecurrentNetworks that no cell becomes: windows of sequences, several names of one row, rows that are read late."""

import numpy
import onnx
import pytest
from conftest import ROOT
from onnx_models import cell_with, expect_equal, expect_exported, loops_of, params_of, session

import stepnet
import stepnet.onnx
from stepnet.onnx.netdef import Names, NetText


def loop(step_ops, states, links, inputs, outputs, step_outputs=()):
    """The text of a net with one loop. ``step_ops`` are (type, inputs, outputs); ``links`` (internal, external, offset,
    window); ``outputs`` (state, name, offset)."""
    names = Names()
    step, net = NetText("step", names), NetText("net", names)
    for op_type, read, written, *arguments in step_ops:
        step.add(op_type, read.split(), written.split(), **dict(*arguments))
    given = list(inputs)
    net.outputs = [*(each[1] for each in outputs), *(f"{blob}_all" for blob in step_outputs)]
    net.add(
        "RecurrentNetwork",
        given,
        [*net.outputs, "record"],
        step_net=step,
        recurrent_states=list(states),
        initial_recurrent_state_ids=[given.index(start) for start in states.values()],
        link_internal=[each[0] for each in links],
        link_external=[each[1] for each in links],
        link_offset=[each[2] for each in links],
        link_window=[each[3] for each in links],
        alias_src=[each[0] for each in outputs],
        alias_dst=[each[1] for each in outputs],
        alias_offset=[each[2] for each in outputs],
        step_output_src=list(step_outputs),
        step_output_dst=[f"{blob}_all" for blob in step_outputs],
        timestep="timestep",
    )
    return net.text()


def expect_same(text, inputs, tmp_path):
    """onnxruntime computes what the net does."""
    (tmp_path / "net.pbtxt").write_text(text)
    net = stepnet.load(tmp_path / "net.pbtxt")
    stepnet.onnx.export(net, tmp_path / "net.onnx", inputs=inputs)
    want = net(**inputs)
    for name, got in zip(net.outputs, session(tmp_path / "net.onnx").run(list(net.outputs), inputs)):
        expect_equal(got, want[name])


def draw(*shape):
    return numpy.random.default_rng(sum(shape)).standard_normal(shape).astype("float32")


def test_windows_of_a_sequence_that_look_ahead(tmp_path):
    """y is longer than the loop: a step sees its own item, and those one and two steps ahead."""
    text = loop(
        [
            ("Slice", "ahead", "next", {"starts": [1], "ends": [2]}),
            ("Sum", "x_t h_prev next", "sum"),
            ("Tanh", "sum", "h_t"),
            ("Copy", "ahead", "seen"),
            ("Copy", "second", "twice"),
        ],
        {"h": "h0"},
        [("x_t", "x", 0, 1), ("ahead", "y", 0, 2), ("second", "y", 2, 1), ("h_prev", "h", 0, 1), ("h_t", "h", 1, 1)],
        ["x", "h0", "y"],
        [("h", "h_all", 1), ("h", "h_last", -1)],
        ["seen", "twice"],
    )
    expect_same(text, {"x": draw(4, 2, 3), "h0": draw(1, 2, 3), "y": draw(6, 2, 3)}, tmp_path)


def test_offsets_of_outputs(tmp_path):
    """Three initial rows: outputs from any row on, counted from either end."""
    text = loop(
        [
            ("Slice", "past", "oldest", {"starts": [0], "ends": [1]}),
            ("Sum", "x_t oldest", "h_t"),
        ],
        {"h": "h0"},
        [("x_t", "x", 0, 1), ("past", "h", 0, 3), ("h_t", "h", 3, 1)],
        ["x", "h0"],
        [("h", f"rows{offset}", offset) for offset in (0, 1, 2, 3, 4, -1, -2, -3, -4)],
    )
    expect_same(text, {"x": draw(5, 2, 3), "h0": draw(3, 2, 3)}, tmp_path)


def test_a_row_that_is_read_by_another_name_once_it_is_written(tmp_path):
    """Two names of the new row: it is written twice, and read by the other name after each time."""
    text = loop(
        [
            ("Sum", "x_t h_prev", "first"),
            ("Tanh", "again", "a"),
            ("Sum", "a x_t", "first"),
            ("Copy", "again", "b"),
        ],
        {"h": "h0"},
        [("x_t", "x", 0, 1), ("h_prev", "h", 0, 1), ("first", "h", 1, 1), ("again", "h", 1, 1)],
        ["x", "h0"],
        [("h", "h_all", 1)],
        ["a", "b"],
    )
    expect_same(text, {"x": draw(4, 2, 3), "h0": draw(1, 2, 3)}, tmp_path)


def test_a_window_with_the_new_row_in_it(tmp_path):
    text = loop(
        [
            ("Sum", "x_t h_prev", "h_t"),
            ("ReduceSum", "both", "y", {"axes": [0]}),
        ],
        {"h": "h0"},
        [("x_t", "x", 0, 1), ("h_prev", "h", 0, 1), ("h_t", "h", 1, 1), ("both", "h", 0, 2)],
        ["x", "h0"],
        [("h", "h_all", 1)],
        ["y"],
    )
    expect_same(text, {"x": draw(4, 2, 3), "h0": draw(1, 2, 3)}, tmp_path)


def test_a_state_that_a_link_alone_writes(tmp_path):
    """The next step sees the item of this one, which no operator has touched."""
    text = loop(
        [("Sum", "x_t before", "y")],
        {"s": "s0"},
        [("x_t", "x", 0, 1), ("before", "s", 0, 1), ("x_t", "s", 1, 1)],
        ["x", "s0"],
        [("s", "s_all", 1)],
        ["y"],
    )
    expect_same(text, {"x": draw(4, 2, 3), "s0": draw(1, 2, 3)}, tmp_path)


@pytest.mark.parametrize("shape", [(3,), (2, 3), (1, 3), (1, 1, 3)], ids=str)
def test_initial_states_that_are_repeated(shape, tmp_path):
    text = loop(
        [("Sum", "x_t h_prev", "h_t")],
        {"h": "h0"},
        [("x_t", "x", 0, 1), ("h_prev", "h", 0, 1), ("h_t", "h", 1, 1)],
        ["x", "h0"],
        [("h", "h_all", 0)],
    )
    expect_same(text, {"x": draw(4, 2, 3), "h0": draw(*shape)}, tmp_path)


def test_rows_of_earlier_steps_are_not_overwritten(tmp_path):
    text = loop(
        [("Relu", "h_prev", "h_prev"), ("Sum", "x_t h_prev", "h_t")],
        {"h": "h0"},
        [("x_t", "x", 0, 1), ("h_prev", "h", 0, 1), ("h_t", "h", 1, 1)],
        ["x", "h0"],
        [("h", "h_all", 1)],
    )
    (tmp_path / "net.pbtxt").write_text(text)
    net = stepnet.load(tmp_path / "net.pbtxt")
    message = 'the step writes "h_prev", rows of the state "h" that earlier steps have written'
    with pytest.raises(stepnet.InvalidNetError, match=message):
        stepnet.onnx.export(net, tmp_path / "net.onnx", inputs={"x": draw(4, 2, 3), "h0": draw(1, 2, 3)})


# An RNN of ONNX, and what only looks like one.

RNN = [
    ("FC", "x_t w b", "a", {"axis": 2}),
    ("FC", "h_prev u", "c", {"axis": 2}),
    ("Add", "a c", "d"),
    ("Tanh", "d", "h_t"),
]
LINKS = [("x_t", "x", 0, 1), ("h_prev", "h", 0, 1), ("h_t", "h", 1, 1)]
WEIGHTS = {"w": draw(3, 4), "u": draw(3, 3), "b": draw(3)}


def loops_of_rnn(ops, links, inputs, tmp_path):
    (tmp_path / "net.pbtxt").write_text(loop(ops, {"h": "h0"}, links, [*inputs, *WEIGHTS], [("h", "h_all", 1)]))
    net = stepnet.load(tmp_path / "net.pbtxt")
    stepnet.onnx.export(net, tmp_path / "net.onnx", WEIGHTS, inputs=inputs)
    (got,) = session(tmp_path / "net.onnx").run(None, inputs)
    expect_equal(got, net(**inputs, **WEIGHTS).h_all)
    return loops_of(tmp_path / "net.onnx")


def test_a_net_with_an_rnn(tmp_path):
    assert loops_of_rnn(RNN, LINKS, {"x": draw(5, 2, 4), "h0": draw(1, 2, 3)}, tmp_path) == ["RNN"]


def test_a_sequence_without_a_batch_is_no_rnn_s(tmp_path):
    ops = [("FC", "x_t w b", "a", {"axis": -1}), *RNN[1:]]
    inputs = {"steps": draw(4, 2), "h0": draw(1, 2, 3), "x": draw(4, 4)}
    assert loops_of_rnn(ops, LINKS, inputs, tmp_path) == ["Scan"]


@pytest.mark.parametrize("has_bias", [False, True])
def test_a_product_before_an_rnn_and_one_in_it(has_bias, tmp_path):
    """The one before the loop is no part of the operator, whose input it gives."""
    v, c = draw(4, 6), draw(4)
    before = (
        f'op {{ type: "FC" input: "y" input: "v" {"input: " + chr(34) + "c" + chr(34) if has_bias else ""} output: "x" '
    )
    before += 'arg { name: "axis" i: 2 } }\n'
    text = before + loop(RNN, {"h": "h0"}, LINKS, ["x", "h0", *WEIGHTS], [("h", "h_all", 1)])
    (tmp_path / "net.pbtxt").write_text(text)
    net = stepnet.load(tmp_path / "net.pbtxt")
    params = {**WEIGHTS, "v": v, **({"c": c} if has_bias else {})}
    inputs = {"y": draw(5, 2, 6), "h0": draw(1, 2, 3)}
    stepnet.onnx.export(net, tmp_path / "net.onnx", params, inputs=inputs)
    assert loops_of(tmp_path / "net.onnx") == ["RNN"]
    (got,) = session(tmp_path / "net.onnx").run(None, inputs)
    expect_equal(got, net(**inputs, **params).h_all)


def test_a_projected_sequence_without_a_bias(tmp_path):
    """The product before the loop is the operator's, as in cells of Caffe2."""
    before = 'op { type: "FC" input: "y" input: "v" output: "x" arg { name: "axis" i: -1 } }\n'
    ops = [("FC", "h_prev u b", "c", {"axis": 2}), ("Sum", "c x_t", "d"), ("Relu", "d", "h_t")]
    text = before + loop(ops, {"h": "h0"}, LINKS, ["x", "h0", "u", "b"], [("h", "h_all", 1), ("h", "h_last", -1)])
    (tmp_path / "net.pbtxt").write_text(text)
    net = stepnet.load(tmp_path / "net.pbtxt")
    params = {"u": WEIGHTS["u"], "b": WEIGHTS["b"], "v": draw(3, 6)}
    inputs = {"y": draw(5, 2, 6), "h0": draw(1, 2, 3)}
    stepnet.onnx.export(net, tmp_path / "net.onnx", params, inputs=inputs)
    assert loops_of(tmp_path / "net.onnx") == ["RNN"]
    want = net(**inputs, **params)
    for name, got in zip(net.outputs, session(tmp_path / "net.onnx").run(list(net.outputs), inputs)):
        expect_equal(got, want[name])


UNIT = ("LSTMUnit", "h_prev c_prev gates lengths timestep", "h_t c_t")
UNITS = {
    "as it is": ([UNIT], "LSTM"),
    "forget_bias": ([(*UNIT, {"forget_bias": 1.5})], "LSTM"),
    "states become 0": ([(*UNIT, {"drop_states": 1})], "Scan"),
    "another number of the step": (
        [
            ("ConstantFill", "timestep", "one", {"value": 1, "dtype": 2}),
            ("Add", "timestep one", "later"),
            ("LSTMUnit", "h_prev c_prev gates lengths later", "h_t c_t"),
        ],
        "Scan",
    ),
    "a number that is given": ([("LSTMUnit", "h_prev c_prev gates lengths always", "h_t c_t")], "Scan"),
    "states change places": ([("LSTMUnit", "c_prev h_prev gates lengths timestep", "h_t c_t")], "Scan"),
}


@pytest.mark.parametrize("what", UNITS)
def test_an_lstm_unit_and_what_looks_like_one(what, tmp_path):
    ops, kind = UNITS[what]
    sums = [
        ("FC", "x_t w b", "of_x", {"axis": 2}),
        ("FC", "h_prev u", "of_h", {"axis": 2}),
        ("Add", "of_x of_h", "gates"),
    ]
    links = [*LINKS, ("c_prev", "c", 0, 1), ("c_t", "c", 1, 1)]
    params = {"w": draw(12, 4), "u": draw(12, 3), "b": draw(12)}
    inputs = {
        "x": draw(5, 3, 4),
        "h0": draw(1, 3, 3),
        "c0": draw(1, 3, 3) * 2,
        "lengths": numpy.array([3, 0, 5], "int32"),
    }
    outputs = [("h", "h_all", 1), ("c", "c_last", -1)]
    if "given" in what:
        inputs["always"] = numpy.array([2], "int32")
    (tmp_path / "net.pbtxt").write_text(loop([*sums, *ops], {"h": "h0", "c": "c0"}, links, [*inputs, *params], outputs))
    net = stepnet.load(tmp_path / "net.pbtxt")
    stepnet.onnx.export(net, tmp_path / "net.onnx", params, inputs=inputs)
    assert loops_of(tmp_path / "net.onnx") == [kind]
    want = net(**inputs, **params)
    for name, got in zip(net.outputs, session(tmp_path / "net.onnx").run(list(net.outputs), inputs)):
        expect_equal(got, want[name])


def test_a_state_of_another_rank_is_repeated_before_an_rnn(tmp_path):
    assert loops_of_rnn(RNN, LINKS, {"x": draw(5, 2, 4), "h0": draw(3)}, tmp_path) == ["RNN"]


MASKED = [*RNN[:3], ("Tanh", "d", "new")]


@pytest.mark.parametrize(
    "where, loops",
    [
        (("Where", "mask_t new h_prev", "h_t", {"broadcast_on_rows": 1}), ["RNN"]),
        (("Where", "mask_t h_prev new", "h_t", {"broadcast_on_rows": 1}), ["Scan"]),
        (("Where", "mask_t new d", "h_t", {"broadcast_on_rows": 1}), ["Scan"]),
    ],
)
def test_lengths_are_those_of_an_rnn_where_states_stay_as_they_are(where, loops, tmp_path):
    links = [*LINKS, ("mask_t", "mask", 0, 1)]
    inputs = {"x": draw(5, 4, 4), "h0": draw(1, 4, 3), "mask": None, **WEIGHTS}
    mask = 'op { type: "StepMask" input: "x" input: "lengths" output: "mask" }\n'
    (tmp_path / "net.pbtxt").write_text(mask + loop([*MASKED, where], {"h": "h0"}, links, inputs, [("h", "h_all", 1)]))
    net = stepnet.load(tmp_path / "net.pbtxt")
    inputs["lengths"] = numpy.array([5, 0, 2, 1], "int64")
    del inputs["mask"]
    stepnet.onnx.export(
        net, tmp_path / "net.onnx", WEIGHTS, inputs={name: inputs[name] for name in ("x", "h0", "lengths")}
    )
    assert loops_of(tmp_path / "net.onnx") == loops
    given = {name: inputs[name] for name in ("x", "h0", "lengths")}
    (got,) = session(tmp_path / "net.onnx").run(None, given)
    expect_equal(got, net(**inputs).h_all)


def test_a_state_that_is_written_twice_is_no_rnn_s(tmp_path):
    ops = [*RNN, ("Relu", "h_t", "h_t")]
    assert loops_of_rnn(ops, LINKS, {"x": draw(5, 2, 4), "h0": draw(1, 2, 3)}, tmp_path) == ["Scan"]


GATES = [
    ("FC", "x_t w b", "of_x", {"axis": 2}),
    ("FC", "h_prev u", "of_h", {"axis": 2}),
    ("Add", "of_x of_h", "sums"),
    ("Split", "sums", "i f o g", {"axis": 2}),
    ("Sigmoid", "i", "i"),
    ("Sigmoid", "f", "f"),
    ("Sigmoid", "o", "o"),
    ("Tanh", "g", "g"),
    ("Mul", "f c_prev", "kept"),
    ("Mul", "i g", "taken"),
]
HELD = {"broadcast_on_rows": 1}
CELLS = {
    "an LSTM": ([("Add", "kept taken", "c_t"), ("Tanh", "c_t", "seen"), ("Mul", "o seen", "h_t")], "LSTM"),
    "c is read before it is what it becomes": (
        [("Copy", "kept", "c_t"), ("Tanh", "c_t", "seen"), ("Mul", "o seen", "h_t"), ("Add", "kept taken", "c_t")],
        "Scan",
    ),
    "lengths": (
        [
            ("Add", "kept taken", "new_c"),
            ("Tanh", "new_c", "seen"),
            ("Mul", "o seen", "new_h"),
            ("Where", "mask_t new_c c_prev", "c_t", HELD),
            ("Where", "mask_t new_h h_prev", "h_t", HELD),
        ],
        "LSTM",
    ),
    "lengths of h alone": (
        [
            ("Add", "kept taken", "c_t"),
            ("Tanh", "c_t", "seen"),
            ("Mul", "o seen", "new_h"),
            ("Where", "mask_t new_h h_prev", "h_t", HELD),
        ],
        "Scan",
    ),
}


@pytest.mark.parametrize("what", CELLS)
def test_an_lstm_and_what_looks_like_one(what, tmp_path):
    ops, kind = CELLS[what]
    links = [*LINKS, ("c_prev", "c", 0, 1), ("c_t", "c", 1, 1)]
    given = {"x": draw(5, 2, 4), "h0": draw(1, 2, 3), "c0": draw(1, 2, 3) * 2}
    params = {"w": draw(12, 4), "u": draw(12, 3), "b": draw(12)}
    names, mask = [*given, *params], ""
    if "lengths" in what:
        links.append(("mask_t", "mask", 0, 1))
        names.append("mask")
        mask = 'op { type: "StepMask" input: "x" input: "lengths" output: "mask" }\n'
        given["lengths"] = numpy.array([2, 5], "int32")
    text = loop([*GATES, *ops], {"h": "h0", "c": "c0"}, links, names, [("h", "h_all", 1), ("c", "c_last", -1)])
    (tmp_path / "net.pbtxt").write_text(mask + text)
    net = stepnet.load(tmp_path / "net.pbtxt")
    stepnet.onnx.export(net, tmp_path / "net.onnx", params, inputs=given)
    assert loops_of(tmp_path / "net.onnx") == [kind]
    want = net(**given, **params)
    for name, got in zip(net.outputs, session(tmp_path / "net.onnx").run(list(net.outputs), given)):
        expect_equal(got, want[name])


@pytest.mark.parametrize("name, loops", [("elman", ["RNN"]), ("lstm", ["LSTM"]), ("gru", ["Scan"])])
def test_nets_that_hold_their_parameters(name, loops, tmp_path):
    """gru.prototxt has an update gate that says how much is taken in, as 1 - z of ONNX."""
    path = ROOT / "examples" / "cells" / f"{name}.prototxt"
    expect_same(path.read_text(), {"x": draw(3, 1, 2)}, tmp_path)
    assert loops_of(tmp_path / "net.onnx") == loops


@pytest.mark.parametrize("beyond", ["zero", "held"])
def test_sequences_of_no_steps_keep_what_they_start_from(beyond, random, tmp_path):
    cell = cell_with("lstm", f"option lengths = lengths\n option beyond_length = {beyond}\n")
    params = params_of(cell, random)
    stepnet.onnx.export(cell, tmp_path / "cell.onnx", params)
    assert loops_of(tmp_path / "cell.onnx") == ["LSTM"]
    inputs = {"x": draw(4, 3, 8), "lengths": numpy.array([4, 0, 1], "int32"), "h_init": draw(1, 3, 16)}
    inputs["c_init"] = 2 * inputs["h_init"]
    h, h_last, c_last = session(tmp_path / "cell.onnx").run(["h", "h_last", "c_last"], inputs)
    expect_equal(h[:, 1], numpy.broadcast_to((beyond == "held") * inputs["h_init"][:, 1], (4, 16)))
    expect_equal(c_last[0, 1], inputs["c_init"][0, 1])
    want = cell(params, **inputs)
    for got, each in zip((h, h_last, c_last), want):
        expect_equal(got, each)


def test_a_step_whose_expressions_would_grow(tmp_path):
    """Each operator uses what the one before gives twice: written out it would be 2^60 terms."""
    doubled = [("Mul" if i % 2 else "Add", f"a{i} a{i}", f"a{i + 1}") for i in range(60)]
    ops = [("Tanh", "h_prev", "a0"), *doubled, ("Sum", "a60 x_t", "h_t")]
    inputs = {"x": draw(2, 2, 3), "h0": 0 * draw(1, 2, 3)}
    expect_same(loop(ops, {"h": "h0"}, LINKS, inputs, [("h", "h_all", 1)]), inputs, tmp_path)


def test_gates_of_gates(random, tmp_path):
    """The same LSTM whose gates are split in two steps."""
    split = "i, f, o, g = Split(x @ w + b + h @ u, axis=-1)"
    text = cell_with("lstm")._cell.text
    assert split in text
    nested = "if, og = Split(x @ w + b + h @ u, axis=-1)\n i, f = Split(if, axis=-1)\n o, g = Split(og, axis=-1)"
    cell = stepnet.cell(text.replace(split, nested))
    expect_exported(cell, random, tmp_path)
    assert loops_of(tmp_path / "cell.onnx") == ["LSTM"]


def test_runtimes_lack_an_lstm_in_double(random, tmp_path):
    cell = cell_with("lstm", dtype="float64")
    stepnet.onnx.export(cell, tmp_path / "cell.onnx", cell.init())
    assert loops_of(tmp_path / "cell.onnx") == ["Scan"]
    assert {each.type.tensor_type.elem_type for each in onnx.load(tmp_path / "cell.onnx").graph.output} == {
        onnx.TensorProto.DOUBLE
    }
