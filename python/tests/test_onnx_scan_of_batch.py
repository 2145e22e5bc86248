"""Scan of opset 8: batches of sequences with lengths. onnxruntime's results are ours, but for what it refuses."""

import numpy
import pytest
from onnx import TensorProto, helper
from onnx_models import ELEMENTS, draw, expect_as_runtime, expect_equal, loaded, model_of, refusal

import stepnet

node = helper.make_node
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
DECAY = [
    node("Mul", ["s_in", "half"], ["kept"]),
    node("Add", ["kept", "x_t"], ["s_out"]),
    node("Tanh", ["s_out"], ["y_t"]),
]
HALF = {"half": numpy.float32(0.5)}


def model(nodes, states, scanned, outputs, constants=HALF, lengths=None, **attributes):
    """One Scan. States, ``[B, …]``, are ``NAME_in`` and ``NAME_out`` in the body, what is scanned, ``[B, T, …]``, is
    ``NAME_t``. ``outputs``: the dtype and shape of what the body stacks."""

    def info(name, array, begin):
        return helper.make_tensor_value_info(name, ELEMENTS[str(array.dtype)], array.shape[begin:])

    body = helper.make_graph(
        nodes,
        "body",
        [*(info(f"{s}_in", a, 1) for s, a in states.items()), *(info(f"{x}_t", a, 2) for x, a in scanned.items())],
        [
            *(info(f"{s}_out", a, 1) for s, a in states.items()),
            *(helper.make_tensor_value_info(f"{y}_t", *kind) for y, kind in outputs.items()),
        ],
    )
    given = {**states, **scanned}
    if lengths is not None:
        given["lengths"] = numpy.array(lengths, "int64")
    inputs = ["" if lengths is None else "lengths", *states, *scanned]
    results = {f"{s}_last": ELEMENTS[str(a.dtype)] for s, a in states.items()}
    results.update({f"{y}_all": kind for y, (kind, _) in outputs.items()})
    scan = node("Scan", inputs, list(results), body=body, num_scan_inputs=len(scanned), **attributes)
    return model_of([scan], given, results, constants, opset=8), given


def decay(batch=3, steps=4, shape=(2,), **arguments):
    return model(DECAY, {"s": draw(batch, *shape)}, {"x": draw(batch, steps, *shape)}, {"y": (FLOAT, shape)}, **arguments)


@pytest.mark.parametrize("shape", [(), (2,), (2, 3)], ids=str)
@pytest.mark.parametrize("directions", [[0], [1]], ids=["forward", "reverse"])
@pytest.mark.parametrize("lengths", [None, [4, 1, 3], [2, 2, 2]], ids=str)
def test_a_state(lengths, directions, shape, tmp_path):
    expect_as_runtime(*decay(shape=shape, lengths=lengths, directions=directions), tmp_path)


@pytest.mark.parametrize("lengths", [None, [4, 1, 3]], ids=str)
def test_states_and_inputs_of_several_kinds(lengths, tmp_path):
    """Two directions at once, states that are handed to each other, and dtypes that are not added up."""
    nodes = [
        node("Add", ["a_in", "x_t"], ["b_out"]),
        node("Mul", ["b_in", "z_t"], ["a_out"]),
        node("Add", ["n_in", "one"], ["n_out"]),
        node("Not", ["odd_in"], ["odd_out"]),
        node("Identity", ["n_in"], ["count_t"]),
        node("And", ["odd_in", "odd_in"], ["was_t"]),
    ]
    states = {"a": draw(3, 2), "b": draw(3, 2), "n": draw(3, dtype="int64"), "odd": draw(3, 1, dtype="bool")}
    scanned = {"x": draw(3, 4, 2), "z": draw(3, 4, 1)}
    outputs = {"count": (INT64, ()), "was": (BOOL, (1,))}
    made = model(nodes, states, scanned, outputs, {"one": numpy.int64(1)}, lengths, directions=[0, 1])
    expect_as_runtime(*made, tmp_path)


def test_no_states(tmp_path):
    made = model([node("Tanh", ["x_t"], ["y_t"])], {}, {"x": draw(2, 3, 2)}, {"y": (FLOAT, (2,))}, {}, [3, 1])
    expect_as_runtime(*made, tmp_path)


def test_sizes_that_a_call_says(tmp_path):
    """One net for batches and numbers of steps of any size, and a matrix from the graph around the body."""
    nodes = [node("MatMul", ["x_t", "w"], ["p"]), node("Add", ["p", "s_in"], ["s_out"]), node("Tanh", ["p"], ["y_t"])]
    weights, net = {"w": draw(2, 3)}, None
    for batch, steps, lengths in ((2, 3, [3, 1]), (3, 5, [1, 5, 2]), (1, 1, [1])):
        states, scanned = {"s": draw(batch, 1, 3)}, {"x": draw(batch, steps, 1, 2)}
        made, inputs = model(nodes, states, scanned, {"y": (FLOAT, (1, 3))}, weights, lengths)
        for info in made.graph.input:
            info.type.tensor_type.shape.dim[0].dim_param = "B"
            if info.name == "x":
                info.type.tensor_type.shape.dim[1].dim_param = "T"
        net = net or loaded(made, tmp_path)
        expect_as_runtime(made, inputs, tmp_path)
        for got, want in zip(net(**inputs), loaded(made, tmp_path)(**inputs)):
            expect_equal(got, want)


@pytest.mark.parametrize("steps, lengths", [(4, [0, 4, 0]), (0, None), (0, [0, 0, 0])], ids=str)
def test_sequences_of_no_steps_end_as_they_started(steps, lengths, tmp_path):
    """Of which onnxruntime allows none, or gives what is in memory; the text of ONNX says it."""
    made, inputs = decay(steps=steps, lengths=lengths)
    last, every = loaded(made, tmp_path)(**inputs)
    for b in range(3):
        state = inputs["s"][b]
        for t in range(4 if b == 1 and steps else 0):
            state = state / 2 + inputs["x"][b, t]
        expect_equal(last[b], state)
    assert every.shape == (3, steps, 2) and not every[[0, 2]].any()


@pytest.mark.parametrize("batch, steps, shape", [(0, 4, (2,)), (0, 0, (2,)), (3, 4, (0,)), (3, 0, (2, 0))], ids=str)
def test_no_sequences_and_no_elements(batch, steps, shape, tmp_path):
    for lengths in (None, [min(steps, 1)] * batch):
        made, inputs = decay(batch, steps, shape, lengths=lengths)
        last, every = loaded(made, tmp_path)(**inputs)
        assert last.shape == (batch, *shape) and every.shape == (batch, steps, *shape)


def test_gradients(tmp_path):
    """Those of steps that do not count are 0, and each sequence has those of a Scan of opset 9 over it alone."""
    lengths = [4, 1, 3]
    made, inputs = decay(lengths=lengths)
    of_last, of_every = draw(3, 2), draw(3, 4, 2)

    def loss(out):
        return 0.0, {"s_last": of_last, "y_all": of_every}

    _, found = loaded(made, tmp_path).value_and_grad(loss, wrt=["s", "x", "half"], **inputs)
    of_half = 0.0
    for b, count in enumerate(lengths):
        carried, rows = [inputs["s"][b]], inputs["x"][b]
        for t in range(count):
            carried.append(carried[-1] / 2 + rows[t])
        gradient = of_last[b]
        for t in reversed(range(4)):
            if t >= count:
                assert not found.inputs["x"][b, t].any()
                continue
            gradient = gradient + of_every[b, t] * (1 - numpy.tanh(carried[t + 1]) ** 2)
            expect_equal(found.inputs["x"][b, t], gradient)
            of_half += float((gradient * carried[t]).sum())
            gradient = gradient / 2
        expect_equal(found.inputs["s"][b], gradient)
    assert float(found.params["half"]) == pytest.approx(of_half, rel=1e-5)


PADDED = {
    "a whole number by 0": ([node("Div", ["six", "x_t"], ["y_t"])], {"six": numpy.int64(6)}, [[1, 2, 3], [2, 0, 0]]),
    "a row that is not there": (
        [node("Gather", ["table", "x_t"], ["y_t"])],
        {"table": numpy.array([4, 5, 6])},
        [[0, 1, 2], [1, -999, 999]],
    ),
}


@pytest.mark.parametrize("directions", [[0], [1]], ids=["forward", "reverse"])
@pytest.mark.parametrize("nodes, constants, x", PADDED.values(), ids=PADDED)
def test_the_body_never_sees_padding(nodes, constants, x, directions, tmp_path):
    made = model(nodes, {}, {"x": numpy.array(x)}, {"y": (INT64, ())}, constants, [3, 1], directions=directions)
    expect_as_runtime(*made, tmp_path)


def test_the_body_takes_no_steps_behind_the_longest_sequence(tmp_path):
    """It counts them, and a table has a row for each that there is."""
    nodes = [node("Gather", ["table", "at_in"], ["y_t"]), node("Add", ["at_in", "one"], ["at_out"])]
    constants, states = {"table": draw(3), "one": numpy.int64(1)}, {"at": numpy.zeros(2, "int64")}
    made = model(nodes, states, {"x": draw(2, 5)}, {"y": (FLOAT, ())}, constants, [1, 3])
    expect_as_runtime(*made, tmp_path)


@pytest.mark.parametrize("lengths", [[3, 1, 0], [0, 2, 3], [0, 0, 0]], ids=str)
@pytest.mark.parametrize("op_type, slope", [("Log", lambda x: 1 / x), ("Sqrt", lambda x: 0.5 / numpy.sqrt(x))])
def test_gradients_where_the_padding_has_none(op_type, slope, lengths, tmp_path):
    """Slopes at 0 are infinite."""
    function = {"Log": numpy.log, "Sqrt": numpy.sqrt}[op_type]
    nodes = [node(op_type, ["x_t"], ["f"]), node("Mul", ["f", "w"], ["g"]), node("Add", ["s_in", "g"], ["s_out"])]
    nodes.append(node("Identity", ["s_out"], ["y_t"]))
    x, weights = numpy.abs(draw(3, 3, 2)) + 1, draw(2)
    of_x, of_weights = numpy.zeros_like(x), numpy.zeros_like(weights)
    for b, count in enumerate(lengths):
        x[b, count:] = 0
        of_x[b, :count] = slope(x[b, :count]) * weights
        of_weights += function(x[b, :count]).sum(0)
    made, inputs = model(nodes, {"s": draw(3, 2)}, {"x": x}, {"y": (FLOAT, (2,))}, {"w": weights}, lengths)
    _, found = loaded(made, tmp_path).value_and_grad(["s_last"], wrt=["s", "x", "w"], **inputs)
    expect_equal(found.inputs["x"], of_x)
    expect_equal(found.inputs["s"], numpy.ones((3, 2), "float32"))
    expect_equal(found.params["w"], of_weights)


def test_a_loop_within_the_body(tmp_path):
    """Whose rows the file says the sizes of; it is of opset 8, too."""
    nodes = [
        node("Unsqueeze", ["x_t"], ["rows"], axes=[0]),
        node("LSTM", ["rows", "w", "r"], ["y_t"], hidden_size=2),
        node("Identity", ["s_in"], ["s_out"]),
    ]
    weights = {"w": draw(1, 8, 4), "r": draw(1, 8, 2)}
    made = model(nodes, {"s": draw(3, 1)}, {"x": draw(3, 4, 5, 4)}, {"y": (FLOAT, (1, 1, 5, 2))}, weights, [2, 4, 1])
    expect_as_runtime(*made, tmp_path)


def test_float16(tmp_path):
    """Element by element, and rows of a loop within the body."""
    half, shape = TensorProto.FLOAT16, (2,)
    arrays = {name: draw(*sizes).astype("float16") for name, sizes in (("s", (3, 2)), ("x", (3, 4, 2)))}
    states, scanned = {"s": arrays["s"]}, {"x": arrays["x"]}
    made = model(DECAY, states, scanned, {"y": (half, shape)}, {"half": numpy.float16(0.5)}, [4, 1, 3])
    expect_as_runtime(*made, tmp_path, tolerance=1e-3)
    nodes = [node("Unsqueeze", ["x_t"], ["rows"], axes=[0]), node("LSTM", ["rows", "w", "r"], ["y_t"], hidden_size=2)]
    weights = {"w": draw(1, 8, 4).astype("float16"), "r": draw(1, 8, 2).astype("float16")}
    scanned = {"x": draw(3, 4, 5, 4).astype("float16")}
    made = model(nodes, {}, scanned, {"y": (half, (1, 1, 5, 2))}, weights, [2, 4, 1])
    expect_as_runtime(*made, tmp_path, tolerance=1e-3)


@pytest.mark.parametrize("length", [5, -1, 2**32 + 1])
def test_lengths_that_cannot_be(length, tmp_path):
    made, inputs = decay(lengths=[4, length, 1])
    with pytest.raises(stepnet.InvalidArgumentError, match=f"element 1 of lengths is {length}; lengths here are from 0 to 4"):
        loaded(made, tmp_path)(**inputs)


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"z": draw(4, 3, 2)}, "x as [B, T, 1] is float32 [3, 4, 1] and z as [B, T, 1] is float32 [4, 3, 1]"),
        ({"z": draw(1, 12, 2)}, "x as [B, T, 1] is float32 [3, 4, 1] and z as [B, T, 1] is float32 [1, 12, 1]"),
        ({"z": draw(1, 4, 2)}, "x as [B, T, 1] is float32 [3, 4, 1] and z as [B, T, 1] is float32 [1, 4, 1]"),
        ({"s": draw(1, 2)}, "s as [B, 1] is float32 [1, 1] and x as [B, T] is float32 [3, 4]"),
        ({"s": draw(4, 2)}, "s as [B, 1] is float32 [4, 1] and x as [B, T] is float32 [3, 4]"),
        ({"lengths": numpy.array([1])}, "lengths as [B, 1] is float32 [1, 1] and s as [B, 1] is float32 [3, 1]"),
    ],
)
def test_sizes_that_differ_in_a_run_are_those_of_inputs(wrong, message, tmp_path):
    nodes = [node("Add", ["x_t", "z_t"], ["sum"]), node("Add", ["sum", "s_in"], ["s_out"]), node("Tanh", ["sum"], ["y_t"])]
    scanned = {"x": draw(3, 4, 2), "z": draw(3, 4, 2)}
    lengths = [4, 1, 3] if "lengths" in wrong else None
    made, inputs = model(nodes, {"s": draw(3, 2)}, scanned, {"y": (FLOAT, (2,))}, {}, lengths)
    del made.graph.output[0]  # the last state, whose own sizes would tell
    for info in made.graph.input:  # so that only a run can tell
        for size in info.type.tensor_type.shape.dim[: 2 if info.name in scanned else 1]:
            size.Clear()
    net = loaded(made, tmp_path)
    net(**inputs)
    with pytest.raises(stepnet.ShapeMismatchError) as refused:
        net(**{**inputs, **wrong})
    assert message in str(refused.value)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"directions": [2]}, "its directions are [2]; they must be 0 or 1"),
        ({"directions": [0, 1]}, "its directions are [0, 1]; it has 1 scanned inputs"),
        ({"scan_input_axes": [1]}, "its attribute scan_input_axes is not read: Scan of opset 8 has none"),
    ],
)
def test_attributes_that_it_does_not_have(change, message, tmp_path):
    assert message in refusal(decay(**change)[0], tmp_path)


def test_what_a_body_declares_otherwise(tmp_path):
    made, _ = decay()
    body = made.graph.node[0].attribute[0].g
    assert body.name == "body"
    body.input[1].CopyFrom(helper.make_tensor_value_info("x_t", FLOAT, [7]))
    assert 'its body declares "x_t" as [7]; x at a step is [2]' in refusal(made, tmp_path)
    made, _ = decay()
    made.graph.input[1].CopyFrom(helper.make_tensor_value_info("x", FLOAT, [3]))
    assert "its input 'x' has 1 dimensions; it must be [B, T, …]" in refusal(made, tmp_path)
