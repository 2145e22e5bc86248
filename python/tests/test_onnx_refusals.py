"""Nodes of ONNX that cannot be read or contradict what they are given, and graphs that would take time or memory."""

import time

import numpy
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import chain, draw, expect_equal, floats, ints, loaded, model_of, named, product, refusal

import stepnet

X = draw(2, 3, 4)
REFUSED = [
    ("Dropout", [X], {2: numpy.array(True)}, {}, 1, "it is in training mode, in which it draws a random mask"),
    ("Gelu", [X], {}, {"approximate": "erf"}, 1, "approximate is 'erf'; none and tanh are read"),
    ("Clip", [X, numpy.float32(1)], {}, {}, 1, "min is no constant, but the tensor 'x1'"),
    ("Cast", [X], {}, {"to": TensorProto.STRING}, 1, "to is 8, which is not read"),
    ("Conv", [draw(1, 2, 5, 5, 5), draw(3, 2, 3, 3, 3)], {}, {}, 1, "its input has 5 dimensions"),
    ("Conv", [draw(1, 2, 5, 5), draw(3, 2, 3, 3)], {}, {"auto_pad": "SAME"}, 1, "auto_pad is 'SAME'; NOTSET, VALID"),
    ("Reshape", [X], {1: ints(0, 24)}, {"allowzero": 1}, 1, "a size is 0, and allowzero is 1"),
    ("Slice", [X], {1: ints(0), 2: ints(3), 3: ints(1), 4: ints(0)}, {}, 1, r"its steps are \[0\]; a step must not be 0"),
    ("Slice", [X, ints(0, 0), ints(1, 1)], {3: ints(1, 2)}, {}, 1, r"are no constants, and its axes are \[1, 2\]"),
    ("ReverseSequence", [X, ints(1, 1, 1, 1)], {}, {"time_axis": 0, "batch_axis": 2}, 1, "is 0 and batch_axis 2"),
    ("Gather", [X], {1: ints(0, -3)}, {}, 1, "its indices are from -3 to 0; dimension 0 has size 2"),
    ("Gather", [X], {1: ints(4, 0)}, {"axis": 2}, 1, "its indices are from 0 to 4; dimension 2 has size 4"),
    *(
        (op_type, [X], {}, {"axis": axis}, 1 + (op_type == "Split"), f"its axis is {axis}; it must be from -3 to 2")
        for op_type in ("Softmax", "LogSoftmax", "Concat", "Split", "ArgMax", "ArgMin") for axis in (-4, 3, 1 << 40)
    ),
    ("Flatten", [X], {}, {"axis": 4}, 1, "its axis is 4; it must be from -3 to 3"),
    ("Flatten", [X], {}, {"axis": -1 << 63}, 1, "its axis is -9223372036854775808; it must be from -3 to 3"),
    ("Gather", [X], {1: ints(0)}, {"axis": 3}, 1, "its axis is 3; it must be from -3 to 2"),
    ("Gather", [X], {1: numpy.int64(0)}, {"axis": -4}, 1, "its axis is -4; it must be from -3 to 2"),
    ("LayerNormalization", [X], {1: draw(4)}, {"axis": 3}, 1, "its axis is 3; it must be from -3 to 2"),
    ("TopK", [X], {1: ints(1)}, {"axis": -4}, 2, "its axis is -4; it must be from -3 to 2"),
    ("TopK", [X], {1: ints(5)}, {}, 2, "its k is 5; it must be from 1 to 4, the size of dimension -1"),
    ("TopK", [X], {1: ints(3)}, {"axis": 0}, 2, "its k is 3; it must be from 1 to 2, the size of dimension 0"),
    ("TopK", [X], {1: ints(0)}, {}, 2, "its k is 0; it must be from 1 to 4"),
    ("ReduceSum", [X], {1: ints(0, 3)}, {}, 1, "its axes is 3; it must be from -3 to 2"),
    ("ReduceMean", [X], {1: ints(-4)}, {}, 1, "its axes is -4; it must be from -3 to 2"),
    ("Squeeze", [X], {1: ints(3)}, {}, 1, "its axes is 3; it must be from -3 to 2"),
    ("Unsqueeze", [X], {1: ints(4)}, {}, 1, "its axes is 4; it must be from -4 to 3"),
    ("Unsqueeze", [X], {1: ints(0, 0)}, {}, 1, r"its axes are \[0, 0\], which name a dimension twice"),
    ("Unsqueeze", [X], {1: ints(1, -4)}, {}, 1, r"its axes are \[1, -4\], which name a dimension twice"),
    ("Slice", [X], {1: ints(0), 2: ints(1), 3: ints(3)}, {}, 1, "its axes is 3; it must be from -3 to 2"),
    ("Slice", [X], {1: ints(0, 0), 2: ints(1, 1), 3: ints(1, -2)}, {}, 1, r"its axes are \[1, -2\], which name"),
    ("Slice", [X], {1: ints(0, 1), 2: ints(1), 3: ints(0)}, {}, 1, "it has 1 axes, 2 starts, 1 ends; it must have as"),
    ("Slice", [X], {1: ints(0), 2: ints(1), 3: ints(0), 4: ints(1, 1)}, {}, 1, "it has 1 axes, 2 steps, 1 starts"),
    ("Slice", [X, ints(0, 1), ints(1)], {3: ints(0)}, {}, 1, "it has 1 axes, 2 starts, 1 ends"),
    ("Transpose", [X], {}, {"perm": [0, 1]}, 1, r"its perm is \[0, 1\]; it must name each dimension of its input of 3"),
    ("Transpose", [X], {}, {"perm": [0, 1, -1]}, 1, r"its perm is \[0, 1, -1\]; it must name each dimension"),
    ("Transpose", [X], {}, {"perm": [0, 1, 1]}, 1, r"its perm is \[0, 1, 1\]; it must name each dimension"),
    ("Relu", [X, X], {}, {}, 1, "it has 2 inputs; it must have 1"),
    ("Add", [X], {}, {}, 1, "it has 1 inputs; it must have 2"),
    ("Relu", [X], {}, {}, 2, "it has 2 outputs; it must have 1"),
    ("Softmax", [X], {}, {"axis": 1.0}, 1, "its attribute axis is FLOAT; it must be INT"),
    ("Cast", [X], {}, {}, 1, "it has no attribute to"),
    ("Squeeze", [X], {}, {"axes": [0]}, 1, "its attribute axes is not read: Squeeze of opset 13 has none of this name"),
    ("Not", [X], {}, {}, 1, 'X, its input "x0", is float32, which Not does not take'),
    ("Add", [X, draw(4, dtype="int32")], {}, {}, 1, 'B, its input "x1", is int32; it must be float32, as "x0" is'),
    ("OneHot", [ints(1), numpy.int64(4), draw(2)], {}, {}, 1, "depth is no constant, but the tensor 'x1'"),
    ("OneHot", [ints(1), draw(2), draw(2)], {1: numpy.int64(0)}, {}, 1, "its depth is 0; it must be from 1 on"),
    ("OneHot", [ints(1), draw(2), draw(2)], {1: numpy.int64(2)}, {"axis": 2}, 1, "its axis is 2; it must be from -2 to 1"),
    ("Range", [], {0: numpy.int64(1), 1: numpy.int64(4), 2: numpy.int64(0)}, {}, 1, "its start, limit and delta are 1, 4, 0;"),
    ("Range", [], {0: numpy.float32(0), 1: numpy.float32("inf"), 2: numpy.float32(1)}, {}, 1, "delta are 0.0, inf, 1.0; both must be"),
    ("Range", [numpy.float32(2)], {1: numpy.float32("nan"), 2: numpy.float32(1)}, {}, 1, r"delta are \?, nan, 1.0; both must be finite"),
    ("GroupNormalization", [draw(2, 4, 3), draw(3), draw(3)], {}, {"num_groups": 3}, 1, "num_groups is 3; it must divide its 4"),
    ("ReduceProd", [draw(2, 0)], {}, {}, 1, "the size of dimension 1 is 0, along which it multiplies"),
    ("Mod", [X, X], {}, {"fmod": 1}, 1, "the divisor is no constant, but the tensor 'x1'"),
    ("GatherElements", [X, ints(1)], {}, {}, 1, "its indices have 1 dimensions; they must have 3, as its data"),
    ("MaxPool", [X], {}, {"kernel_shape": [2]}, 2, "its second output, the places, is not read"),
    ("MaxPool", [X], {}, {"kernel_shape": [2], "ceil_mode": 1}, 1, "ceil_mode is 1; 0 is read"),
    ("AveragePool", [X], {}, {"kernel_shape": [2], "pads": [1, 0]}, 1, r"its pads are \[1, 0\], which its means leave out"),
    ("ReduceMax", [draw(2, 3, dtype="int64")], {}, {}, 1, 'its input "x0" is int64, in which ReduceMax is not computed here'),
    ("ReduceMax", [X], {1: ints(3)}, {}, 1, "one of its axes is 3; it must be from -3 to 2"),
    ("ScatterND", [X, draw(2, 3, 4, dtype="int64"), X], {}, {}, 1, "ScatterND is not among the operators that are"),
    ("Pad", [X], {1: ints(0, 0, 1, 0, 0, 1)}, {"mode": "wrap"}, 1, "its mode is 'wrap'; constant, edge and reflect, with pads, are"),
    ("Pad", [X], {1: ints(0, 0, 1, 0, 0, 4)}, {"mode": "reflect"}, 1, "it pads dimension 2 by 4; it must be less than its size, 4"),
    ("Pad", [X], {1: ints(0, 0, 2, 0, 0, -2)}, {"mode": "reflect"}, 1, "it pads dimension 2 by 2; it must be less than its size, 2"),
    ("Pad", [X], {1: ints(0, -2, 0, 0, -2, 1)}, {}, 1, "it takes 4 elements away from dimension 1, which has 3"),
    ("Pad", [draw(2, 0)], {1: ints(0, 0, 0, 2)}, {"mode": "edge"}, 1, "its mode is 'edge', and dimension 1 has no elements"),
    ("Pad", [X], {1: ints(0, 0, 1)}, {}, 1, "it has 3 pads; it must have two for each of"),
    ("Pad", [X, ints(0, 0, 1, 0, 0, 1)], {}, {}, 1, "pads is no constant, but the tensor 'x1'"),
    ("CumSum", [X], {1: numpy.int64(3)}, {}, 1, "its axis is 3; it must be from -3 to 2"),
    ("CumSum", [X, numpy.int64(0)], {}, {}, 1, "axis is no constant, but the tensor 'x1'"),
    ("Trilu", [X, numpy.int64(0)], {}, {}, 1, "k is no constant, but the tensor 'x1'"),
    ("Expand", [draw(2, dtype="int32").astype("int16")], {1: ints(3, 2)}, {}, 1, "it gives a tensor of int16"),
]  # fmt: skip


@pytest.mark.parametrize("op_type, given, constants, attributes, count, message", REFUSED, ids=[r[0] for r in REFUSED])
def test_nodes_that_cannot_be_read_say_why(op_type, given, constants, attributes, count, message, tmp_path):
    arrays = {f"x{i}": array for i, array in enumerate(given)}
    fixed = {f"k{i}": numpy.asarray(value) for i, value in constants.items()}
    names = [
        f"k{i}" if i in constants else f"x{i}" if i < len(given) else ""
        for i in range(max([*constants, len(given) - 1]) + 1)
    ]
    outputs = [f"y{i}" for i in range(count)]
    node = helper.make_node(op_type, names, outputs, **attributes)
    infos = {name: TensorProto.INT16 if op_type == "Expand" else 0 for name in outputs}
    model = model_of([node], arrays, infos, fixed, opset=20)
    with pytest.raises(stepnet.InvalidNetError, match=message):
        loaded(model, tmp_path)


def test_an_operator_that_the_opset_does_not_have(tmp_path):
    model = chain(("Mish", "x", "y"))
    assert "Mish is no operator of opset 17" in refusal(model, tmp_path)


def test_top_k_of_more_elements_than_there_are(tmp_path):
    """Which no one knows before the run."""
    node = helper.make_node("TopK", ["x", "k"], ["y", "i"], axis=0)
    outputs = {"y": TensorProto.FLOAT, "i": TensorProto.INT64}
    model = model_of([node], {"x": X}, outputs, {"k": ints(3)}, sizes={"x": ["N", 3, 4]})
    for of_no_rank in (False, True):
        if of_no_rank:
            model.graph.input[0].type.tensor_type.ClearField("shape")
        net = loaded(model, tmp_path)
        with pytest.raises(stepnet.ShapeMismatchError, match=r"\[3, 3, 4\] and .* is float32 \[2, 3, 4\]"):
            net(x=X)
    expect_equal(net(x=numpy.concatenate([X, X + 1])).y, numpy.sort(numpy.concatenate([X, X + 1]), axis=0)[:0:-1])


def test_names_that_are_there_twice(tmp_path):
    model = product()
    model.graph.input.append(model.graph.input[0])
    assert 'the input "x" is there twice' in refusal(model, tmp_path)
    model = product()
    model.graph.initializer.append(model.graph.initializer[0])
    assert '"w" is there twice' in refusal(model, tmp_path)
    model = product(name="Gather", constants={"w": ints(0)}, attributes={"axis": 0})
    model.graph.node[0].attribute.append(helper.make_attribute("axis", 1))
    message = refusal(model, tmp_path)
    assert "its attribute axis is there twice" in message and "at node 0 'product'" in message
    model = product()
    del model.graph.output[:]
    assert 'the graph "graph" has no outputs' in refusal(model, tmp_path)


def test_sizes_below_zero(tmp_path):
    for which in ("input", "output", "value_info"):
        model = chain(("Tanh", "x", "a"), ("Tanh", "a", "y"))
        info = helper.make_tensor_value_info("a", TensorProto.FLOAT, [-2])
        if which == "value_info":
            model.graph.value_info.append(info)
        else:
            info = getattr(model.graph, which)[0]
            info.type.tensor_type.ClearField("shape")
            info.type.tensor_type.shape.dim.add(dim_value=-2)
        assert f'"{info.name}" has sizes [-2], of which none may be below -1' in refusal(model, tmp_path)


def test_sizes_of_minus_one_are_not_known(tmp_path):
    model = chain(("Tanh", "x", "a"), ("Tanh", "a", "y"))
    for info in (model.graph.input[0], model.graph.output[0]):
        info.type.tensor_type.ClearField("shape")
        for value in (-1, 3):
            info.type.tensor_type.shape.dim.add(dim_value=value)
    net = loaded(model, tmp_path)
    for batch in (1, 2):
        x = draw(batch, 3)
        expect_equal(net(x=x).y, numpy.tanh(numpy.tanh(x)))


def test_what_a_file_says_wrongly_of_shapes(tmp_path):
    """As in onnxruntime, what follows from the inputs counts."""
    model = chain(("Tanh", "x", "a"), ("Gather", "a i", "y"))
    model.graph.initializer.append(numpy_helper.from_array(ints(-1), "i"))
    model.graph.value_info.append(helper.make_tensor_value_info("a", TensorProto.FLOAT, [7]))
    expect_equal(loaded(model, tmp_path)(x=draw(3)).y, numpy.tanh(draw(3))[-1:])
    model.graph.value_info[0].type.tensor_type.elem_type = TensorProto.INT64
    assert "Inferred elem type differs from existing elem type" in refusal(model, tmp_path)


def sums(body_inputs=None, body_nodes=None, **attributes):
    """A Scan that sums up rows, whose body may be another one."""
    nodes = body_nodes or [helper.make_node("Add", ["a", "b"], ["c"]), helper.make_node("Tanh", ["c"], ["d"])]
    inputs = body_inputs or [named(floats(3), "a"), named(floats(3), "b")]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("c", "d")]
    body = helper.make_graph(nodes, "body", inputs, outputs)
    node = helper.make_node("Scan", ["h", "x"], ["last", "y"], body=body, num_scan_inputs=1, **attributes)
    outputs = {"last": TensorProto.FLOAT, "y": TensorProto.FLOAT}
    return model_of([node], {"h": draw(3), "x": draw(4, 3)}, outputs)


@pytest.mark.parametrize(
    "model, message",
    [
        (sums(scan_input_directions=[2]), r"its scan_input_directions are [2]; they must be 0 or 1"),
        (sums(scan_output_directions=[-1]), r"its scan_output_directions are [-1]; they must be 0 or 1"),
        (sums(scan_input_directions=[0, 1]), r"its scan_input_directions are [0, 1]; it has 1 scanned inputs"),
        (sums(scan_output_axes=[0, 0]), r"its scan_output_axes are [0, 0]; it has 1 scanned outputs"),
        (sums(scan_input_axes=[2]), "its scan_input_axes is 2; it must be from -2 to 1, of its tensor of 2 dimensions"),
        (sums(scan_input_axes=[-3]), "its scan_input_axes is -3; it must be from -2 to 1"),
        (sums(scan_output_axes=[2]), "its scan_output_axes is 2; it must be from -2 to 1"),
        (sums(scan_output_axes=[-1 << 63]), "its scan_output_axes is -9223372036854775808; it must be from -2 to 1"),
        (sums([named(floats(7), "a"), named(floats(3), "b")]), 'its body declares "a" as [7]; h is [3]'),
        (sums([named(floats(3), "a"), named(floats(3, 1), "b")]), 'declares "b" as [3, 1]; x at a step is [3]'),
        (
            sums([helper.make_tensor_value_info("a", TensorProto.INT64, [3]), named(floats(3), "b")]),
            'its body declares "a" as int64; h is float32',
        ),
        (
            sums(None, [helper.make_node("Concat", ["a", "b"], ["c"], axis=0), helper.make_node("Tanh", ["b"], ["d"])]),
            'a state of float32 [3] becomes "c" in its body, which is float32 [6]',
        ),
        (
            sums(None, [helper.make_node("Add", ["a", "b"], ["x"]), helper.make_node("Tanh", ["x"], ["d"])]),
            'it gives "x", which is there in a graph around it',
        ),
    ],
)  # fmt: skip
def test_a_scan_that_contradicts_itself(model, message, tmp_path):
    found = refusal(model, tmp_path)
    assert message in found
    assert "= Scan(h, x)" in found or "x = Add(a, b)" in found


def test_sparse_tensors(tmp_path):
    model = product()
    model.graph.sparse_initializer.add()
    assert "sparse tensors are not read" in refusal(model, tmp_path)


HUGE = 1 << 40


@pytest.mark.parametrize(
    "op_type, constants, attributes",
    [
        ("Slice", {1: ints(0), 2: ints(1), 3: ints(HUGE)}, {}),
        ("Gather", {1: numpy.int64(0)}, {"axis": HUGE}),
        ("Squeeze", {1: ints(HUGE)}, {}),
        ("Unsqueeze", {1: ints(-HUGE)}, {}),
    ],
)
def test_numbers_that_would_take_long(op_type, constants, attributes, tmp_path):
    """The rank of the input is not known, so that ONNX's own checks have nothing to compare with."""
    names = ["x", *(f"k{i}" for i in constants)]
    node = helper.make_node(op_type, names, ["y"], **attributes)
    model = model_of([node], {"x": X}, {"y": 0}, {f"k{i}": numpy.asarray(value) for i, value in constants.items()})
    model.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(stepnet.InvalidNetError, match="tensors of up to 8 are read|contradict"):
        loaded(model, tmp_path)


def test_states_that_are_larger_than_memory(tmp_path):
    """Only the sizes of weights, which are inputs, say how large the states are."""
    node = helper.make_node("RNN", ["X", "W", "R"], ["Y"])
    inputs = {"X": draw(2, 1, 3), "W": draw(1, 4, 3), "R": draw(1, 4, 4)}
    sizes = {"W": [1, HUGE, 3], "R": [1, HUGE, HUGE]}
    net = loaded(model_of([node], inputs, {"Y": TensorProto.FLOAT}, sizes=sizes), tmp_path)
    with pytest.raises(stepnet.ShapeMismatchError, match=r'the input "W" of "graph" is \[1, 4, 3\]'):
        net(**inputs)


def test_many_nodes_take_time_as_they_are_many(tmp_path):
    """20,000 nodes, each with constants of its own."""
    nodes = [helper.make_node("ThresholdedRelu", ["x" if i == 0 else f"y{i - 1}"], [f"y{i}"]) for i in range(20_000)]
    model = model_of(nodes, {"x": draw(3)}, {"y19999": TensorProto.FLOAT})
    start = time.monotonic()
    loaded(model, tmp_path)
    assert time.monotonic() - start < 60
