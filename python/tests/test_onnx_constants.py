"""What is the same in every run of a model of ONNX is computed when the file is read."""

import numpy
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import draw, expect_as_runtime, expect_equal, ints, loaded, model_of, refusal

import stepnet.onnx


def node(op_type, inputs, output, **attributes):
    return helper.make_node(op_type, inputs.split(), [output], **attributes)


def test_the_file_may_say_shapes_of_constants(tmp_path):
    """As PyTorch's exporter does of the bounds of slices."""
    bounds = {"zero": ints(0), "four": ints(4), "eight": ints(8), "last": ints(-1)}
    nodes = [
        node("Slice", "x zero four last", "a"),
        node("Slice", "x four eight last", "b"),
        node("Mul", "a b", "y"),
        node("Reshape", "y sizes", "rows"),
    ]
    x = draw(3, 9, 8)
    model = model_of(nodes, {"x": x}, {"rows": TensorProto.FLOAT}, {**bounds, "sizes": ints(0, -1)})
    model.graph.value_info.extend(helper.make_tensor_value_info(name, TensorProto.INT64, [1]) for name in bounds)
    expect_as_runtime(model, {"x": x}, tmp_path)


def test_sizes_do_not_follow_from_defaults(tmp_path):
    """In whose place a call may give others."""
    nodes = [node("Reshape", "x sizes", "r"), node("Shape", "r", "s"), node("Reshape", "z s", "y")]
    inputs = {"x": draw(6), "z": draw(6) + 1, "sizes": ints(2, 3)}
    model = model_of(nodes, inputs, {"y": TensorProto.FLOAT}, {"sizes": ints(2, 3)})
    net = loaded(model, tmp_path)
    for sizes in ((2, 3), (3, 2)):
        expect_equal(net({**inputs, "sizes": ints(*sizes)}).y, inputs["z"].reshape(sizes))


PADS = [  # as PyTorch's older exporter writes those of functional.pad
    node("ConstantOfShape", "count", "others", value=onnx.numpy_helper.from_array(ints(0))),
    node("Concat", "given others", "from_last", axis=0),
    node("Reshape", "from_last pairs", "matrix"),
    node("Slice", "matrix last first axis last", "turned"),
    node("Transpose", "turned", "columns", perm=[1, 0]),
    node("Reshape", "columns all", "flat"),
    node("Cast", "flat", "pads", to=TensorProto.INT64),
    node("Pad", "x pads", "y"),
]
OF_PADS = {
    "count": ints(4), "given": ints(1, 2), "pairs": ints(-1, 2), "last": ints(-1), "first": ints(-(2**62)), "axis": ints(0), "all": ints(-1),
}  # fmt: skip


@pytest.mark.parametrize("are_nodes", [False, True])
def test_pads_that_nodes_compute(are_nodes, tmp_path):
    said = [helper.make_node("Constant", [], [name], value=onnx.numpy_helper.from_array(array)) for name, array in OF_PADS.items()]
    nodes, constants = (said + PADS, {}) if are_nodes else (PADS, OF_PADS)
    model = model_of(nodes, {"x": draw(2, 3, 4)}, {"y": TensorProto.FLOAT}, constants)
    expect_as_runtime(model, {"x": draw(2, 3, 4)}, tmp_path)


def test_a_number_of_elements_that_is_a_size(tmp_path):
    """Which the file says, though not the others."""
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s at", "size"),
        node("Div", "size two", "half"),
        node("Unsqueeze", "half zero", "k"),
        helper.make_node("TopK", ["x", "k"], ["y", "i"], axis=1),
    ]
    constants = {"at": numpy.array(1), "two": numpy.array(2), "zero": ints(0)}
    outputs = {"y": TensorProto.FLOAT, "i": TensorProto.INT64}
    model = model_of(nodes, {"x": draw(5, 6)}, outputs, constants, sizes={"x": ["N", 6]})
    expect_as_runtime(model, {"x": draw(5, 6)}, tmp_path)


def test_sizes_of_sizes(tmp_path):
    """What follows from a shape that follows from sizes."""
    nodes = [
        node("Shape", "x", "s"), node("Div", "s two", "half"), node("ConstantOfShape", "half", "zeros"),
        node("Shape", "zeros", "again"), node("Gather", "again at", "size"), node("Reshape", "size one", "k"),
        helper.make_node("TopK", ["x", "k"], ["y", "i"], axis=1),
    ]  # fmt: skip
    constants = {"at": numpy.array(1), "two": ints(2), "one": ints(1)}
    outputs = {"y": TensorProto.FLOAT, "i": TensorProto.INT64}
    expect_as_runtime(model_of(nodes, {"x": draw(4, 6)}, outputs, constants), {"x": draw(4, 6)}, tmp_path)


def test_what_is_computed_of_parameters_is_not_the_same_in_every_run(tmp_path):
    nodes = [node("Transpose", "w", "v"), node("Exp", "v", "u"), node("MatMul", "x u", "y")]
    net = loaded(model_of(nodes, {"x": draw(2, 3)}, {"y": TensorProto.FLOAT}, {"w": draw(4, 3)}), tmp_path)
    assert list(net.params) == ["w"]
    net.restore({"w": draw(4, 3) + 1})
    expect_equal(net(x=draw(2, 3)).y, draw(2, 3) @ numpy.exp(draw(4, 3) + 1).T)


def test_a_step_takes_what_is_computed_of_constants_around_it(tmp_path):
    body = helper.make_graph(
        [node("Add", "one two", "three"), node("Cast", "three", "number", to=TensorProto.FLOAT), node("Mul", "x_t number", "y_t")],
        "body",
        [helper.make_tensor_value_info("x_t", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("y_t", TensorProto.FLOAT, [2])],
        [onnx.numpy_helper.from_array(numpy.array(1), "one")],
    )
    nodes = [node("Mul", "one_outside one_outside", "two"), helper.make_node("Scan", ["x"], ["y"], body=body, num_scan_inputs=1)]
    model = model_of(nodes, {"x": draw(4, 2)}, {"y": TensorProto.FLOAT}, {"one_outside": numpy.array(2)})
    expect_as_runtime(model, {"x": draw(4, 2)}, tmp_path)


def test_nothing_is_computed_of_constants_that_takes_more_than_they_have_elements():
    vector = numpy_helper.from_array(numpy.ones(1000, "float32"))
    nodes = [
        helper.make_node("Constant", [], ["v"], value=vector),
        helper.make_node("Einsum", ["v"] * 6, ["e"], equation="a,b,c,d,e,f->"),  # of 10^18 products
        helper.make_node("Add", ["x", "e"], ["y"]),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [value("x", 1, [2])], [value("y", 1, [2])])
    stepnet.onnx.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8))


def named_wrongly(name, value):
    """A node that is Constant with one attribute, of whatever type, and one that reads it."""
    constant = helper.make_node("Constant", [], ["c"])
    constant.attribute.append(value if isinstance(value, onnx.AttributeProto) else helper.make_attribute(name, value))
    return model_of([constant, node("Mul", "x c", "y")], {"x": draw(2)}, {"y": TensorProto.FLOAT}, {})


NUMBER = helper.make_graph([], "g", [], [helper.make_tensor_value_info("n", TensorProto.FLOAT, [])])


@pytest.mark.parametrize("value, found", [(1.5, "FLOAT"), ([1, 2], "INTS"), ("text", "STRING"), (["a"], "STRINGS"), (NUMBER, "GRAPH")])
def test_a_constant_whose_value_is_of_another_type(value, found, tmp_path):
    said = refusal(named_wrongly("value", value), tmp_path)
    assert f"its attribute value is {found}; it must be TENSOR\n  at node 0 `c = Constant()`" in said


@pytest.mark.parametrize("name, value, kinds", [("value_float", "text", "STRING; it must be FLOAT"), ("value_ints", ["a"], "STRINGS; it must be INTS")])
def test_a_constant_whose_number_is_of_another_type(name, value, kinds, tmp_path):
    assert f"its attribute {name} is {kinds}\n  at node 0 `c = Constant()`" in refusal(named_wrongly(name, value), tmp_path)


def test_an_attribute_that_only_a_function_has(tmp_path):
    attribute = onnx.AttributeProto(name="value_int", ref_attr_name="of_function", type=onnx.AttributeProto.INT)
    assert "its attribute value_int is that of a function, of_function, outside of one" in refusal(named_wrongly("", attribute), tmp_path)


def test_a_constant_that_gives_nothing(tmp_path):
    model = named_wrongly("value_float", 1.5)
    del model.graph.node[0].output[:]
    assert "(op_type:Constant)" in refusal(model, tmp_path)
