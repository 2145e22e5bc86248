"""Scans of ONNX that are loaded run as in onnxruntime."""

import numpy
import pytest
from onnx import helper, numpy_helper
from onnx_models import draw, expect_as_runtime, floats, named, scan


DECAY = [
    helper.make_node("Mul", ["h_in", "half"], ["kept"]),
    helper.make_node("Add", ["kept", "x_t"], ["h_out"]),
    helper.make_node("Tanh", ["h_out"], ["y"]),
]


@pytest.mark.parametrize("opset", [9, 11, 16, 19])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 3, 2)], ids=str)
def test_scan_has_states_of_any_shape(shape, opset, random, tmp_path):
    state = {"h": random.standard_normal(shape).astype("float32")}
    x = {"x": random.standard_normal((5, *shape)).astype("float32")}
    half = {"half": numpy.array(0.5, "float32")}
    model, inputs = scan(DECAY, state, x, {"y": named(floats(*shape), "y")}, random, half, opset)
    expect_as_runtime(model, inputs, tmp_path)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("reverse_in", [0, 1])
@pytest.mark.parametrize("reverse_out", [0, 1])
def test_scan_along_other_axes_and_backwards(axis, reverse_in, reverse_out, random, tmp_path):
    shape = [3, 4]
    shape.insert(axis % 3, 5)
    state = {"h": random.standard_normal((3, 4)).astype("float32")}
    x = {"x": random.standard_normal(shape).astype("float32")}
    model, inputs = scan(
        DECAY, state, x, {"y": named(floats(3, 4), "y")}, random, {"half": numpy.array(0.5, "float32")},
        scan_input_axes=[axis], scan_input_directions=[reverse_in],
        scan_output_axes=[axis], scan_output_directions=[reverse_out],
    )  # fmt: skip
    expect_as_runtime(model, inputs, tmp_path)


def test_scan_of_several_sequences_states_and_captured_tensors(random, tmp_path):
    nodes = [
        helper.make_node("MatMul", ["x_t", "w"], ["a"]),
        helper.make_node("Add", ["a", "h_in"], ["b"]),
        helper.make_node("Constant", [], ["three"], value=numpy_helper.from_array(numpy.array(3, "float32"))),
        helper.make_node("Div", ["b", "three"], ["h_out"]),
        helper.make_node("Max", ["m_in", "z_t"], ["m_out"]),
        helper.make_node("Identity", ["h_in"], ["before"]),
        helper.make_node("Mul", ["m_in", "z_t"], ["product"]),
    ]
    draw = lambda *shape: random.standard_normal(shape).astype("float32")  # noqa: E731
    model, inputs = scan(
        nodes, {"h": draw(2, 3), "m": draw(1)}, {"x": draw(6, 2, 5), "z": draw(6, 1)},
        {"before": named(floats(2, 3), "before"), "product": named(floats(1), "product")}, random, {"w": draw(5, 3)},
    )  # fmt: skip
    expect_as_runtime(model, inputs, tmp_path)


def test_states_may_change_places(random, tmp_path):
    nodes = [
        helper.make_node("Identity", ["b_in"], ["a_out"]),
        helper.make_node("Add", ["a_in", "x_t"], ["b_out"]),
    ]
    draw = lambda *shape: random.standard_normal(shape).astype("float32")  # noqa: E731
    model, inputs = scan(nodes, {"a": draw(2), "b": draw(2)}, {"x": draw(5, 2)}, {}, random)
    expect_as_runtime(model, inputs, tmp_path)


def test_a_scan_in_a_scan(random, tmp_path):
    """An inner loop over the rows of each item, which sees the outer one's state, and constants of its own."""
    inner = helper.make_graph(
        [
            helper.make_node("Constant", [], ["half"], value=numpy_helper.from_array(numpy.array(0.5, "float32"))),
            helper.make_node("MatMul", ["row", "w"], ["product"]),
            helper.make_node("Add", ["s_in", "product"], ["s"]),
            helper.make_node("Mul", ["s", "half"], ["less"]),
            helper.make_node("Mul", ["less", "h_in"], ["s_out"]),
        ],
        "inner",
        [named(floats(2), "s_in"), named(floats(2), "row")],
        [named(floats(2), "s_out")],
        [numpy_helper.from_array(draw(2, 2), "w")],
    )
    nodes = [
        helper.make_node("Scan", ["h_in", "x_t"], ["total"], body=inner, num_scan_inputs=1),
        helper.make_node("Tanh", ["total"], ["h_out"]),
    ]
    x = random.standard_normal((4, 3, 2)).astype("float32")
    model, inputs = scan(nodes, {"h": numpy.ones(2, "float32")}, {"x": x}, {}, random)
    expect_as_runtime(model, inputs, tmp_path)


# Other operators.
