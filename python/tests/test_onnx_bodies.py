"""Bodies of Scan in which shapes follow from constants, from tensors outside, from sizes, and from a loop within."""

import json

import numpy
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx_models import expect_equal, loaded, runtime

import stepnet
import stepnet.onnx

node = helper.make_node
FLOAT = onnx.TensorProto.FLOAT


def ints(*values):
    return numpy.array(values, "int64")


def of_body(name, array):
    return node("Constant", [], [name], value=numpy_helper.from_array(numpy.asarray(array)))


# Nodes that make y of x_t, [2, 3, 4], with constants.
SHAPES = {
    "ConstantOfShape": ([node("ConstantOfShape", ["shape"], ["e"]), node("Add", ["x_t", "e"], ["y"])], {"shape": ints(3, 4)}),
    "Expand": (
        [node("Expand", ["one", "shape"], ["e"]), node("Sub", ["e", "x_t"], ["y"])],
        {"one": numpy.float32(1), "shape": ints(2, 3, 4)},
    ),
    "Expand to the shape of x": (
        [node("Shape", ["x_t"], ["s"]), node("Expand", ["one", "s"], ["e"]), node("Sub", ["e", "x_t"], ["y"])],
        {"one": numpy.float32(1)},
    ),
    "ConstantOfShape of a comparison": (
        [
            node("Less", ["x_t", "one"], ["is_less"]),
            node("Shape", ["is_less"], ["s"], start=0),
            node("ConstantOfShape", ["s"], ["e"], value=numpy_helper.from_array(numpy.array([0.5], "float32"))),
            node("Add", ["x_t", "e"], ["y"]),
        ],
        {"one": numpy.float32(1)},
    ),
    "Expand to sizes but the last": (
        [
            node("Shape", ["x_t"], ["s"], end=2),
            node("Expand", ["one", "s"], ["e"]),
            node("Unsqueeze", ["e", "last"], ["u"]),
            node("Sub", ["x_t", "u"], ["y"]),
        ],
        {"one": numpy.float32(1), "last": ints(-1)},
    ),
    "Expand of x": ([node("Expand", ["x_t", "shape"], ["y"])], {"shape": ints(5, 1, 1, 1)}),
    "Range": (
        [
            node("Shape", ["x_t"], ["s"]),
            node("Gather", ["s", "at"], ["n"]),
            node("Range", ["zero", "n", "one"], ["r"]),
            node("Cast", ["r"], ["f"], to=FLOAT),
            node("Add", ["x_t", "f"], ["y"]),
        ],
        {"at": numpy.array(2), "zero": numpy.array(0), "one": numpy.array(1)},
    ),
    "Reshape": (
        [
            node("Shape", ["x_t"], ["s"], start=0, end=1),
            node("Concat", ["s", "rest"], ["shape"], axis=0),
            node("Reshape", ["x_t", "shape"], ["y"]),
        ],
        {"rest": ints(-1)},
    ),
    "ReduceProd": (
        [
            node("Shape", ["x_t"], ["s"]),
            node("ReduceProd", ["s"], ["p"], keepdims=1),
            node("Reshape", ["x_t", "p"], ["y"]),
        ],
        {},
    ),
    "arithmetic": (
        [
            node("Shape", ["x_t"], ["s"], start=1),
            node("Mul", ["s", "two"], ["d"]),
            node("Less", ["d", "limit"], ["is_less"]),
            node("Where", ["is_less", "d", "limit"], ["shape"]),
            node("Expand", ["one", "shape"], ["y"]),
        ],
        {"two": ints(2), "limit": ints(7, 7), "one": numpy.float32(1)},
    ),
    "Slice": (
        [node("Sub", ["end", "one"], ["until"]), node("Slice", ["x_t", "start", "until"], ["y"])],
        {"start": ints(0), "end": ints(2), "one": ints(1)},
    ),
}

RANKS = {"Expand of x": 4, "Reshape": 2, "ReduceProd": 1, "arithmetic": 2}
"""Of y, where it is not 3: onnxruntime has to be told."""


def model(nodes, shape, constants, where="outer", sizes=(2, 3, 4), outer_nodes=()):
    """A Scan whose body gives y of that shape, and a state that stays as it is."""
    inner = [of_body(name, array) for name, array in constants.items()] if where == "body" else []
    outer = [of_body(name, array) for name, array in constants.items()] if where == "outer nodes" else []
    body = helper.make_graph(
        [*inner, *nodes, node("Identity", ["s_in"], ["s_out"])],
        "body",
        [helper.make_tensor_value_info("s_in", FLOAT, [1]), helper.make_tensor_value_info("x_t", FLOAT, sizes)],
        [helper.make_tensor_value_info("s_out", FLOAT, [1]), helper.make_tensor_value_info("y", FLOAT, shape)],
    )
    infos = [helper.make_tensor_value_info("S", FLOAT, [1]), helper.make_tensor_value_info("X", FLOAT, ["T", *sizes])]
    outs = [helper.make_tensor_value_info(name, FLOAT, None) for name in ("S_last", "Y")]
    scan = node("Scan", ["S", "X"], ["S_last", "Y"], body=body, num_scan_inputs=1)
    kept = [numpy_helper.from_array(numpy.asarray(a), n) for n, a in constants.items()] if where == "outer" else []
    graph = helper.make_graph([*outer, *outer_nodes, scan], "graph", infos, outs, kept)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def given(random):
    return {"S": numpy.ones(1, "float32"), "X": random.standard_normal((5, 2, 3, 4)).astype("float32")}


@pytest.mark.parametrize("sizes", [(2, 3, 4), ("a", "b", "c")], ids=["known sizes", "free sizes"])
@pytest.mark.parametrize("where", ["outer", "outer nodes", "body"])
@pytest.mark.parametrize("name", SHAPES)
def test_shapes_that_follow_from_constants_and_sizes(name, where, sizes, random, tmp_path):
    nodes, constants = SHAPES[name]
    made, inputs = model(nodes, [None] * RANKS.get(name, 3), constants, where, sizes), given(random)
    net = loaded(made, tmp_path)
    for want, got in zip(runtime(made, inputs), net(**inputs)):
        expect_equal(got, want)


@pytest.mark.parametrize("name", ["Expand to the shape of x", "ConstantOfShape of a comparison"])
def test_what_has_the_shape_of_another_tensor_reads_no_sizes(name, random, tmp_path):
    net = loaded(model(SHAPES[name][0], [None] * 3, SHAPES[name][1]), tmp_path)
    (plan,) = json.loads(net.explain(given(random), format="json"))
    state, y = (each for stage in plan["stages"] for each in stage["instructions"])
    assert (state["text"], y["kind"]) == ("s_out = Copy(S_last state at t)", "fused")


def test_shapes_that_are_computed_before_the_loop(random, tmp_path):
    before = [node("Shape", ["X"], ["s"], start=2), node("Mul", ["s", "two"], ["shape"])]
    constants = {"two": ints(2), "one": numpy.float32(1)}
    expand = node("Expand", ["one", "shape"], ["y"])
    made = model([expand], [None, None], constants, sizes=("a", "b", "c"), outer_nodes=before)
    net = loaded(made, tmp_path)
    for sizes in ((2, 3, 4), (2, 5, 1), (2, 3, 4)):
        inputs = {"S": numpy.ones(1, "float32"), "X": random.standard_normal((5, *sizes)).astype("float32")}
        for want, got in zip(runtime(made, inputs), net(**inputs)):
            expect_equal(got, want)


def test_gradients_through_shapes_of_constants(random, tmp_path):
    nodes = [
        node("Expand", ["w", "shape"], ["e"]),
        node("Mul", ["e", "x_t"], ["m"]),
        node("Reshape", ["m", "flat"], ["y"]),
    ]
    w = random.standard_normal((3, 1)).astype("float32")
    net = loaded(model(nodes, [None, None], {"w": w, "shape": ints(2, 3, 4), "flat": ints(6, 4)}), tmp_path)
    inputs = given(random)
    _, gradients = net.value_and_grad(lambda out: (0.0, {"Y": numpy.ones_like(out.Y)}), wrt=["w", "X"], **inputs)
    expect_equal(gradients.params["w"], inputs["X"].sum(axis=(0, 1, 3))[:, None])
    expect_equal(gradients.inputs["X"], numpy.broadcast_to(w, inputs["X"].shape).copy())


def lstm(shape):
    weights = {"w": numpy.full((1, 8, 4), 0.1, "float32"), "r": numpy.full((1, 8, 2), 0.2, "float32")}
    return model([node("LSTM", ["x_t", "w", "r"], ["y"], hidden_size=2)], shape, weights, sizes=(2, 3, 4))


def test_a_loop_within_a_step_gives_rows_of_known_sizes(random, tmp_path):
    inputs = given(random)
    for want, got in zip(runtime(lstm([2, 1, 3, 2]), inputs), loaded(lstm([2, 1, 3, 2]), tmp_path)(**inputs)):
        expect_equal(got, want)


def test_what_only_a_step_knows_is_refused_by_its_node(tmp_path):
    nodes = [
        node("ReduceSum", ["x_t"], ["total"], keepdims=0),
        node("Cast", ["total"], ["n"], to=onnx.TensorProto.INT64),
        node("Unsqueeze", ["n", "zero"], ["shape"]),
        node("Expand", ["one", "shape"], ["e"]),
        node("Neg", ["e"], ["y"]),
    ]
    made = model(nodes, [None], {"zero": ints(0), "one": numpy.float32(1)})
    with pytest.raises(stepnet.InvalidNetError) as caught:
        loaded(made, tmp_path)
    assert "the shape of what it gives is known only when a step has run" in str(caught.value)
    assert '"y"' in str(caught.value)
    assert "at node 3 `e = Expand(one, shape)`\n  in graph \"body\"" in str(caught.value)
