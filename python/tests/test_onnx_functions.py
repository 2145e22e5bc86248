"""Functions that a model of ONNX has of its own are read as the nodes that they stand for."""

import time

import onnx
import pytest
from onnx import TensorProto, helper
from onnx_models import draw, expect_as_runtime, refusal

OWN = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]


def call(name, inputs, output, **attributes):
    return helper.make_node(name, inputs.split(), [output], domain="own", **attributes)


def function(name, inputs, *nodes, opsets=OWN, attributes=()):
    return helper.make_function("own", name, inputs.split(), ["y"], nodes, opsets, attributes)


def model_of_functions(nodes, functions):
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "graph", [value("x", TensorProto.FLOAT, [2, 3])], [value("y", TensorProto.FLOAT, [2, 3])])
    return helper.make_model(graph, opset_imports=OWN, functions=functions, ir_version=8)


def leaky():
    """Of an attribute."""
    nodes = [helper.make_node("Mul", ["a", "b"], ["t"]), helper.make_node("LeakyRelu", ["t"], ["y"])]
    nodes[1].attribute.append(onnx.AttributeProto(name="alpha", ref_attr_name="alpha", type=onnx.AttributeProto.FLOAT))
    return function("leaky", "a b", *nodes, attributes=["alpha"])


def test_functions_give_what_their_nodes_give(tmp_path):
    twice = function("twice", "a", call("leaky", "a a", "t", alpha=0.5), call("leaky", "t a", "y", alpha=0.25))
    nobody = function("nobody", "a", helper.make_node("Relu", ["a"], ["y"]), opsets=[helper.make_opsetid("", 13)])
    model = model_of_functions([call("twice", "x", "t"), call("twice", "t", "y")], [leaky(), twice, nobody])
    expect_as_runtime(model, {"x": draw(2, 3)}, tmp_path)


def test_functions_in_a_loop_give_what_their_nodes_give(tmp_path):
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [call("leaky", "h_prev x_t", "h", alpha=0.5), helper.make_node("Identity", ["h"], ["h_t"])],
        "body",
        [value("h_prev", TensorProto.FLOAT, [3]), value("x_t", TensorProto.FLOAT, [3])],
        [value("h", TensorProto.FLOAT, [3]), value("h_t", TensorProto.FLOAT, [3])],
    )
    nodes = [helper.make_node("ReduceMax", ["x"], ["start"], keepdims=0, axes=[0]), helper.make_node("Scan", ["start", "x"], ["last", "y"], body=body, num_scan_inputs=1)]
    model = model_of_functions(nodes, [leaky()])
    for imported in (*model.opset_import, *model.functions[0].opset_import):
        imported.version = 17 if imported.domain == "" else 1
    expect_as_runtime(model, {"x": draw(2, 3)}, tmp_path)


def doubled(count):
    """Each calls the one before it twice."""
    functions = [function("f0", "a", helper.make_node("Relu", ["a"], ["y"]))]
    for i in range(1, count):
        functions.append(function(f"f{i}", "a", call(f"f{i - 1}", "a", "t"), call(f"f{i - 1}", "t", "y")))
    return functions


RELU = helper.make_node("Relu", ["a"], ["y"])
LARGE = helper.make_node("Constant", [], ["c"], value=helper.make_tensor("c", TensorProto.FLOAT, [1 << 18], b"\0" * (1 << 20), raw=True))
REFUSED = {
    "circle": ([function("f", "a", call("g", "a", "y")), function("g", "a", call("f", "a", "y"))], "f", "the function f calls itself"),
    "older": ([function("f", "a", RELU, opsets=[helper.make_opsetid("", 13)])], "f", "the function f is of another opset than the model; inline it by onnx.inliner"),
    "many": (doubled(60), "f59", "the functions of the model stand for more than 131072 nodes"),
    "large": ([function("f", "a", LARGE, helper.make_node("Relu", ["a"], ["y"])), function("g", "a", *[call("f", "a", f"y{i}") for i in range(200)], RELU)], "g", "stand for more than 131072 nodes"),
    "deep": ([function("f0", "a", RELU), *(function(f"f{i}", "a", call(f"f{i - 1}", "a", "y")) for i in range(1, 200))], "f199", "call each other more than 100 deep"),
    "inputs": ([function("f", "", helper.make_node("Constant", [], ["y"], value_float=1.0))], "f", "the functions of the model, as f, cannot be inlined"),
    "missing": ([function("f", "a", RELU)], "h", "operators of the domain own are not read"),
    "a node": ([function("f", "a", helper.make_node("NonZero", ["a"], ["y"]))], "f", "NonZero is not among the operators that are read"),
}  # fmt: skip


@pytest.mark.parametrize("kind", REFUSED)
def test_functions_that_cannot_be_read(kind, tmp_path):
    functions, called, message = REFUSED[kind]
    start = time.process_time()
    assert message in refusal(model_of_functions([call(called, "x", "y")], functions), tmp_path)
    assert time.process_time() - start < 5
