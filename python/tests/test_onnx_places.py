"""Errors of what was loaded from ONNX name the node that the operator stands for."""

import copy
import pickle

import numpy
import pytest
from onnx import TensorProto, helper
from onnx_models import draw, expect_equal, floats, ints, loaded, model_of, named, refusal, runtime, unit

import stepnet


def message_of(call, *given, **named_ones):
    with pytest.raises(stepnet.Error) as caught:
        call(*given, **named_ones)
    return str(caught.value)


def test_errors_of_runs_name_the_node(tmp_path):
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("GatherElements", ["a", "at"], ["y"], name="taken"),
        helper.make_node("Relu", ["y"], ["z"]),
    ]
    inputs = {"x": draw(3), "at": ints(0, 3)}
    net = loaded(model_of(nodes, inputs, {"z": TensorProto.FLOAT}), tmp_path)
    place = "\n  at node 1 'taken' `y = GatherElements(a, at)`\n  in graph \"graph\""
    for each in (net, copy.copy(net), pickle.loads(pickle.dumps(net))):
        for call in (each, each.vjp, each.explain):
            message = message_of(call, inputs)
            assert message.startswith("invalid argument: Gather: element 1 of the indices is 3; the data have 3 rows\n  at op ")
            assert message.endswith(f'\n  in net "graph"{place}\n  in file {tmp_path / "model.onnx"}')
    from_memory = stepnet.onnx.load(model_of(nodes, inputs, {"z": TensorProto.FLOAT}))
    assert message_of(from_memory, inputs).endswith(f'\n  in net "graph"{place}')


def test_nodes_that_become_several_operators_and_loops(random, tmp_path):
    model, inputs = unit("LSTM", random, direction="bidirectional", lengths=[5, 2, 4])
    model.graph.node[0].name = "L"
    for info in model.graph.input:
        if info.name == "h":
            info.type.tensor_type.ClearField("shape")
    net = loaded(model, tmp_path)
    place = "\n  at node 0 'L' `Y, Y_h, Y_c = LSTM(X, W, R, B, lengths, h, c)`\n  in graph \"graph\"\n  in file "
    assert place in message_of(net, {**inputs, "lengths": numpy.array([5, 6, 4], "int32")})
    assert place in message_of(net, {**inputs, "h": inputs["h"].swapaxes(0, 1).copy()})


def test_of_nodes_one_within_the_other_the_inner_one(tmp_path):
    at = helper.make_tensor_value_info("at", TensorProto.INT64, [])
    nodes = [
        helper.make_node("Gather", ["w", "at"], ["row"], name="row of w"),
        helper.make_node("Add", ["h", "row"], ["after"]),
        helper.make_node("Identity", ["after"], ["shown"]),
    ]
    outputs = [named(floats(2), name) for name in ("after", "shown")]
    body = helper.make_graph(nodes, "body", [named(floats(2), "h"), at], outputs)
    node = helper.make_node("Scan", ["h0", "places"], ["last", "y"], name="outer", body=body, num_scan_inputs=1)
    inputs = {"h0": draw(2), "places": ints(0, 5)}
    model = model_of([node], inputs, {"last": TensorProto.FLOAT, "y": TensorProto.FLOAT}, {"w": draw(3, 2)})
    message = message_of(loaded(model, tmp_path), inputs)
    assert "\n  at node 0 'row of w' `row = Gather(w, at)`\n  in graph \"body\"\n  in file " in message


def test_errors_of_operators_when_they_are_loaded(tmp_path):
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="wide", kernel_shape=[1 << 40])
    inputs = {"x": draw(1, 1, 5), "w": draw(1, 1, 5)}
    model = model_of([node], inputs, {"y": TensorProto.FLOAT}, sizes={"w": [None] * 3, "x": [None] * 3})
    message = refusal(model, tmp_path)
    assert "Conv: kernel is 1099511627776" in message and "\n  at node 0 'wide' `y = Conv(x, w)`\n" in message


@pytest.mark.parametrize("name", ["", "sum"])
def test_shapes_that_contradict_each_other(name, tmp_path):
    nodes = [helper.make_node("Relu", ["x"], ["a"], name=name), helper.make_node("Add", ["a", "b"], ["y"], name=name)]
    message = refusal(model_of(nodes, {"x": draw(2, 3), "b": draw(2, 4)}, {"y": TensorProto.FLOAT}), tmp_path)
    said = "(op_type:Add): [ShapeInferenceError] Incompatible dimensions\n  at node 1 " + (f"{name!r} " if name else "")
    assert f'{said}`y = Add(a, b)`\n  in graph "graph"\n  in file ' in message


@pytest.mark.parametrize("wide", ["a", "b"])
@pytest.mark.parametrize("attributes", [{}, {"transA": 1}, {"transB": 1}])
def test_a_gemm_of_three_dimensions(wide, attributes, tmp_path):
    """Whose ranks are not known."""
    inputs = {"a": draw(3, 3), "b": draw(3, 3)}
    node = helper.make_node("Gemm", ["a", "b"], ["y"], name="the product", **attributes)
    model = model_of([node], inputs, {"y": TensorProto.FLOAT})
    for info in model.graph.input:
        info.type.tensor_type.ClearField("shape")
    net = loaded(model, tmp_path)
    expect_equal(net(**inputs).y, runtime(model, inputs)[0])
    inputs[wide] = inputs[wide][:, None]
    with pytest.raises(Exception, match="ONNXRuntimeError"):
        runtime(model, inputs)
    assert "needs 2 dimensions" in message_of(net, inputs)


@pytest.mark.parametrize("unread", ["x0", "x1", "x2"])
def test_scanned_inputs_of_other_lengths_than_the_first(unread, tmp_path):
    """Also one that the body does not read."""
    names = ["x0", "x1", "x2"]
    read = [f"{name}_t" for name in names if name != unread]
    nodes = [helper.make_node("Sum", ["h", *read], ["after"]), helper.make_node("Identity", ["after"], ["shown"])]
    inner = [named(floats(2), name) for name in ("h", *(f"{name}_t" for name in names))]
    body = helper.make_graph(nodes, "body", inner, [named(floats(2), name) for name in ("after", "shown")])
    node = helper.make_node("Scan", ["h0", *names], ["last", "y"], name="loop", body=body, num_scan_inputs=3)
    inputs = {"h0": draw(2), **{name: draw(3, 2) for name in names}}
    sizes = {name: [f"T{name}", 2] for name in names}
    model = model_of([node], inputs, {"last": TensorProto.FLOAT, "y": TensorProto.FLOAT}, sizes=sizes)
    net = loaded(model, tmp_path)
    expect_equal(net(**inputs).y, runtime(model, inputs)[1])
    for name in names:
        for steps in (2, 4):
            other = {**inputs, name: draw(steps, 2)}
            with pytest.raises(Exception, match="inconsistent sequence lengths"):
                runtime(model, other)
            assert "\n  at node 0 'loop' `" in message_of(net, other)


def test_errors_of_another_export(tmp_path):
    node = helper.make_node("Expand", ["x", "sizes"], ["y"], name="wider")
    inputs = {"x": draw(1, 3), "sizes": ints(2, 3)}
    net = loaded(model_of([node], inputs, {"y": TensorProto.FLOAT}), tmp_path)
    message = message_of(stepnet.onnx.export, net, tmp_path / "again.onnx")
    assert "follow from the elements of its inputs\n  at op " in message
    assert message.endswith("\n  at node 0 'wider' `y = Expand(x, sizes)`\n  in graph \"graph\"")
