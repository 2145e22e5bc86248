"""Pools of ONNX with windows of any size, and what numbers in a file ask for beside them."""

import tracemalloc

import numpy
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_models import draw, expect_as_runtime, ints, loaded, model_of, refusal

import stepnet

FREE = ["N", "C", "W"]


def pool(op_type, x, sizes=None, **attributes):
    if "pads" in attributes and op_type == "AveragePool":
        attributes["count_include_pad"] = 1
    node = helper.make_node(op_type, ["x"], ["y"], name="the pool", **attributes)
    return model_of([node], {"x": x}, {"y": TensorProto.FLOAT}, opset=18, sizes={"x": sizes or x.shape})


@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool"])
def test_windows_of_any_size(op_type, stride, dilation, tmp_path):
    for size in (7, 8, 9, 10, 15, 16, 17, 33):
        for more in (1, 4):
            x = draw(1, 2, dilation * (size - 1) + more)
            how = {"dilations": [dilation]} if op_type == "MaxPool" else {"pads": [dilation, 0]}
            for sizes in (x.shape, FREE):
                expect_as_runtime(pool(op_type, x, sizes, kernel_shape=[size], strides=[stride], **how), {"x": x}, tmp_path)


@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool"])
def test_operators_are_few_where_a_window_is_large(op_type, tmp_path):
    """With pads as large as this, onnxruntime finds no memory."""
    size = 1 << 40
    net = loaded(pool(op_type, draw(1, 1, 5), kernel_shape=[size], pads=[size - 1, 0]), tmp_path)
    assert len(net._text.splitlines()) < 200
    with pytest.raises(stepnet.OutOfMemoryError):
        net(x=draw(1, 1, 5))


@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool"])
def test_windows_that_are_larger_than_their_input(op_type, tmp_path):
    """onnxruntime refuses most of them, and PyTorch all; for others it gives nothing, or what lies behind the input."""
    x = draw(1, 2, 5)
    message = refusal(pool(op_type, x, kernel_shape=[6]), tmp_path)
    assert "its window covers 6 places of dimension 2, which has 5\n  at node 0 'the pool' `y" in message
    padded = {"pads": [1, 1], "kernel_shape": [9]}
    message = refusal(pool(op_type, x, **padded), tmp_path)
    assert "its window covers 9 places of dimension 2, which has 7 with its pads\n" in message
    for stride in (1, 2, 5):
        for how in ({"kernel_shape": [6]}, {"kernel_shape": [7]}, padded):
            net = loaded(pool(op_type, x, FREE, strides=[stride], **how), tmp_path)
            places = how["kernel_shape"][0]
            with pytest.raises(stepnet.ShapeMismatchError, match=f"one window at least, of {places} places of dimension 2"):
                net(x=x)
            assert net(x=draw(1, 2, 9)).y.shape[2] > 0


def test_a_window_that_is_larger_by_its_dilations(tmp_path):
    message = refusal(pool("MaxPool", draw(1, 2, 5), kernel_shape=[2], dilations=[7]), tmp_path)
    assert "its window covers 8 places of dimension 2, which has 5\n" in message


@pytest.mark.parametrize("name, value", [("kernel_shape", 0), ("strides", -1), ("dilations", 0)])
def test_numbers_of_a_pool_that_are_none(name, value, tmp_path):
    numbers = {"kernel_shape": [2], name: [value]}
    assert f"its {name} is [{value}]; each must be at least 1" in refusal(pool("MaxPool", draw(1, 2, 5), FREE, **numbers), tmp_path)


def test_a_split_into_more_outputs_than_it_has(tmp_path, monkeypatch):
    """It is refused before onnx infers shapes, for which it makes as many sizes."""
    monkeypatch.delattr(onnx.shape_inference, "infer_shapes")
    node = helper.make_node("Split", ["x"], ["y"], num_outputs=10**8)
    model = model_of([node], {"x": draw(3)}, {"y": TensorProto.FLOAT}, opset=18)
    assert "num_outputs is 100000000, but it has 1 outputs" in refusal(model, tmp_path)


N = 1 << 40
COUNTED = {
    "CumSum": ({"axis": 1}, {"x": [1, N]}, {}),
    "Trilu": ({}, {"x": [1, N]}, {}),
    "GatherElements": ({}, {"x": [1, N], "i": [1, N]}, {"axis": 0}),
    "GatherND": ({}, {"x": [N, 3], "i": [N, 1]}, {"batch_dims": 1}),
    "Einsum": ({}, {"x": [N, N]}, {"equation": "ii->i"}),
}


@pytest.mark.parametrize("op_type", COUNTED)
def test_sizes_of_a_file_take_no_memory(op_type, tmp_path):
    """What counts along a dimension."""
    constants, sizes, attributes = COUNTED[op_type]
    given = {name: ints(0) if name == "i" else draw(1) for name in sizes}
    node = helper.make_node(op_type, [*given, *constants], ["y"], **attributes)
    fixed = {name: numpy.int64(value) for name, value in constants.items()}
    model = model_of([node], given, {"y": TensorProto.FLOAT}, fixed, opset=18, sizes=sizes)
    tracemalloc.start()
    loaded(model, tmp_path)
    assert tracemalloc.get_traced_memory()[1] < 1 << 25
    tracemalloc.stop()


@pytest.mark.parametrize("op_type, sizes", [("CumSum", (2, 1100)), ("GatherElements", (2, 1100)), ("Trilu", (1030, 1030))])
def test_sizes_that_are_counted_in_the_run(op_type, sizes, tmp_path):
    x = draw(*sizes)
    inputs = {"x": x, **({"i": numpy.zeros(sizes, "int64")} if op_type == "GatherElements" else {})}
    constants = {"axis": numpy.int64(1)} if op_type == "CumSum" else {}
    node = helper.make_node(op_type, [*inputs, *constants], ["y"])
    model = model_of([node], inputs, {"y": TensorProto.FLOAT}, constants, opset=18)
    expect_as_runtime(model, inputs, tmp_path)
