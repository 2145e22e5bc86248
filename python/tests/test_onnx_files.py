"""Files of ONNX that are not what they say, and calls of what was loaded with other inputs than the file has."""

import os
import time

import numpy
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import draw, expect_equal, floats, ints, loaded, model_of, named, unit

import stepnet
import stepnet.onnx

W = draw(4, 5)


def product(constants=None, name="MatMul", attributes=None):
    node = helper.make_node(name, ["x", "w"], ["y"], name="product", **(attributes or {}))
    return model_of([node], {"x": draw(3, 4)}, {"y": TensorProto.FLOAT}, {"w": W} if constants is None else constants)


def refusal(model, tmp_path, kind=stepnet.InvalidNetError):
    with pytest.raises(kind) as caught:
        loaded(model, tmp_path)
    assert str(tmp_path / "model.onnx") in str(caught.value)
    return str(caught.value)


def test_what_is_no_model(tmp_path):
    for content in (b"", b"\x00\x01\x02", b"hello, this is a text", os.urandom(1000)):
        (tmp_path / "model.onnx").write_bytes(content)
        with pytest.raises(stepnet.InputOutputError, match="is no ONNX file"):
            stepnet.onnx.load(tmp_path / "model.onnx")
    with pytest.raises(stepnet.InputOutputError, match="cannot be read: No such file"):
        stepnet.onnx.load(tmp_path / "none.onnx")


def test_texts_that_are_no_utf_8(tmp_path):
    content = product().SerializeToString()
    assert content.count(b"product") == 1
    (tmp_path / "model.onnx").write_bytes(content.replace(b"product", b"produ\xff\xfe"))
    with pytest.raises(stepnet.InvalidNetError, match=r"the field onnx\.NodeProto\.name has a text that is no UTF-8"):
        stepnet.onnx.load(tmp_path / "model.onnx")


def test_operators_that_are_not_read_are_named(tmp_path):
    assert refusal(product(name="MatMulInteger"), tmp_path) == (
        "invalid net: MatMulInteger is not among the operators that are read\n"
        "  at node 0 'product' `y = MatMulInteger(x, w)`\n"
        '  in graph "graph"\n'
        f"  in file {tmp_path / 'model.onnx'}"
    )
    model = product()
    model.graph.node[0].domain = "com.microsoft"
    assert "operators of the domain com.microsoft are not read" in refusal(model, tmp_path)
    model = product(name="Softmax", attributes={"temperature": 2.0})
    assert "its attribute temperature is not read" in refusal(model, tmp_path)


def test_opsets_and_functions_that_are_not_read(tmp_path):
    model = product()
    model.opset_import[0].version = 6
    assert "the model is of opset 6; those from 7 to" in refusal(model, tmp_path)
    model.opset_import[0].version = 1000
    assert "the model is of opset 1000" in refusal(model, tmp_path)
    model = product()
    model.functions.add().name = "f"
    assert "the model has functions of its own, as f" in refusal(model, tmp_path)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda w: setattr(w, "raw_data", w.raw_data[:-1]), r'the tensor "w" has 79 bytes; float32 \[4, 5\] has 80'),
        (lambda w: w.dims.append(1 << 60), r"float32 \[4, 5, 1152921504606846976\] has "),
        (lambda w: w.float_data.append(1), 'the tensor "w" has values in float_data and in raw_data; they belong in one place'),
        (lambda w: w.dims.append(-1), r'the tensor "w" has sizes \[4, 5, -1\]'),
        (lambda w: setattr(w, "data_type", 99), "has a dtype that is not known: 99"),
        (lambda w: setattr(w, "data_type", TensorProto.STRING), "is of a kind that is not read: STRING"),
        (lambda w: setattr(w, "data_type", TensorProto.COMPLEX64), "is of dtype complex64, which is not read"),
        (lambda w: (w.ClearField("raw_data"), w.float_data.append(1)), "has other elements"),
    ],
)
def test_tensors_that_contradict_themselves(change, message, tmp_path):
    model = product()
    change(model.graph.initializer[0])
    with pytest.raises(stepnet.InvalidNetError, match=message):
        loaded(model, tmp_path)


def external(location, offset=0, length=W.nbytes):
    model = product()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        if value is not None:
            tensor.external_data.add(key=key, value=str(value))
    return model


def test_a_tensor_that_is_in_two_files(tmp_path):
    (tmp_path / "w.bin").write_bytes(W.tobytes())
    model = external("w.bin")
    model.graph.initializer[0].float_data.append(1)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(stepnet.InvalidNetError, match='tensor "w" has values in float_data and in another file; they belong'):
        stepnet.onnx.load(tmp_path / "model.onnx")


def test_tensors_in_files_beside_the_model(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "w.bin").write_bytes(b"1234" + W.tobytes() + b"more")
    net = loaded(external("sub/w.bin", 4), tmp_path)
    expect_equal(net(x=draw(3, 4)).y, draw(3, 4) @ W)


def test_tensors_in_other_folders_are_not_read(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "w.bin").write_bytes(W.tobytes())
    (folder / "link.bin").symlink_to(tmp_path / "w.bin")
    (tmp_path / "model2").mkdir()
    (tmp_path / "model2" / "w.bin").write_bytes(W.tobytes())
    for location in ("w\0.bin", "\0"):
        assert "which is no name of a file" in refusal(external(location), folder)
    for location in ("../w.bin", str(tmp_path / "w.bin"), "link.bin", "../model2/w.bin", "", ".", "sub/../../w.bin"):
        assert "is not in the model's folder" in refusal(external(location), folder)


@pytest.mark.parametrize(
    "offset, length, message",
    [
        (4, W.nbytes, "has bytes 4 to 84 of w.bin, which has fewer"),
        (-8, W.nbytes, "has bytes -8 to 72"),
        (0, W.nbytes + 4, "has 84 bytes in w.bin; float32"),
        *((each, W.nbytes, "has an offset or length that is no number") for each in ("x", "\u0660", "\uff10", "0_0", " 0", "+0", "")),
        (0, "\u0668\u0660", "has an offset or length that is no number"),
    ],
)
def test_tensors_beyond_their_file(offset, length, message, tmp_path):
    (tmp_path / "w.bin").write_bytes(W.tobytes())
    assert message in refusal(external("w.bin", offset, length), tmp_path)


def test_a_file_that_is_missing(tmp_path):
    with pytest.raises(stepnet.InputOutputError, match="none.bin cannot be read"):
        loaded(external("none.bin"), tmp_path)


def chain(*nodes):
    made = [helper.make_node(kind, inputs.split(), outputs.split()) for kind, inputs, outputs in nodes]
    return model_of(made, {"x": draw(3)}, {"y": TensorProto.FLOAT})


def test_graphs_that_are_not_in_order(tmp_path):
    assert 'it reads "b", which no node before it gives' in refusal(
        chain(("Tanh", "b", "y"), ("Tanh", "x", "b")), tmp_path
    )
    assert "which is neither an input nor an initializer" in refusal(chain(("Add", "x q", "y")), tmp_path)
    assert 'it reads "y", which no node before it gives' in refusal(chain(("Add", "x y", "y")), tmp_path)
    assert 'the tensor "y" is there twice' in refusal(chain(("Tanh", "x", "y"), ("Relu", "x", "y")), tmp_path)
    assert 'the output "y" is given by no node' in refusal(chain(("Tanh", "x", "z")), tmp_path)


def test_a_scan_that_does_not_fit_its_body(tmp_path):
    body = helper.make_graph(
        [helper.make_node("Add", ["a", "b"], ["c"])], "body", [named(floats(2), "a"), named(floats(2), "b")],
        [named(floats(2), "c")],
    )  # fmt: skip
    for count in (0, 3, 1 << 40):
        node = helper.make_node("Scan", ["h", "x"], ["y"], body=body, num_scan_inputs=count)
        model = model_of([node], {"h": draw(2), "x": draw(4, 2)}, {"y": TensorProto.FLOAT})
        with pytest.raises(stepnet.InvalidNetError, match="shapes in the graph|scanned; its body has 2"):
            loaded(model, tmp_path)


def test_memory_that_only_a_shape_asks_for(tmp_path):
    """A small file that asks for 4 TB, when it runs."""
    node = helper.make_node("ConstantOfShape", ["s"], ["y"])
    net = loaded(model_of([node], {}, {"y": TensorProto.FLOAT}, {"s": ints(1 << 20, 1 << 20)}), tmp_path)
    with pytest.raises(stepnet.OutOfMemoryError):
        net()


def test_bytes_that_were_changed_give_a_net_or_an_error(tmp_path):
    """Whatever a file holds: a net, whose call gives a result or an error, or an error of ours."""
    random = numpy.random.default_rng(5)
    model, inputs = unit("LSTM", random, direction="bidirectional", lengths=[5, 2, 4], peepholes=True)
    content = bytearray(model.SerializeToString())
    refused = 0
    for _ in range(300):
        changed = bytearray(content)
        for _ in range(random.integers(1, 4)):
            changed[random.integers(0, len(changed))] = random.integers(0, 256)
        (tmp_path / "model.onnx").write_bytes(bytes(changed[: len(changed) - random.integers(0, 2) * 7]))
        try:
            stepnet.onnx.load(tmp_path / "model.onnx")(**inputs)
        except stepnet.Error:
            refused += 1
    assert 50 < refused < 300


# Calls.


def test_inputs_that_the_graph_does_not_have(tmp_path):
    node = helper.make_node("Add", ["a", "b"], ["y"])
    sizes = {"a": ["N", 3], "b": ["N", 3]}
    model = model_of([node], {"a": draw(2, 3), "b": draw(2, 3)}, {"y": TensorProto.FLOAT}, sizes=sizes)
    net = loaded(model, tmp_path)
    assert repr(net) == "<stepnet.Net graph(a, b) -> y>"
    assert [tuple(each) for each in net.arguments] == [
        ("a", "float32", "[N, 3]", False),
        ("b", "float32", "[N, 3]", False),
    ]
    a = draw(2, 3)
    expect_equal(net(a=a, b=a).y, a + a)
    for inputs, error, message in (
        ({"a": a}, stepnet.InvalidArgumentError, r'the input "b" of "graph" is missing; it is float32 \[N, 3\]'),
        ({"a": a, "b": a, "c": a}, stepnet.InvalidArgumentError, 'has no input "c"; its inputs are a, b'),
        ({"a": a, "b": a.astype("float64")}, stepnet.TypeMismatchError, 'the input "b" of "graph" is float64'),
        ({"a": a, "b": a[:, :2]}, stepnet.ShapeMismatchError, r'the input "b" of "graph" is \[2, 2\]; it must be'),
        ({"a": a, "b": a[:1]}, stepnet.ShapeMismatchError, r'of N = 1; N is 2 in the input "a"'),
    ):
        with pytest.raises(error, match=message):
            net(**inputs)


def test_an_input_with_a_default_may_be_left_out(tmp_path):
    node = helper.make_node("Add", ["a", "b"], ["y"])
    model = model_of([node], {"a": draw(2), "b": draw(2)}, {"y": TensorProto.FLOAT}, {"b": numpy.float32([1, 2])})
    net = loaded(model, tmp_path)
    a = draw(2)
    expect_equal(net(a=a).y, a + numpy.float32([1, 2]))
    expect_equal(net(a=a, b=a).y, a + a)
    assert [each.optional for each in net.arguments] == [False, True]


def test_constants_of_old_files_are_no_inputs(tmp_path):
    """Before version 4 of the file format all initializers had to be inputs."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Reshape", ["a", "shape"], ["y"])]
    inputs = {"x": draw(3, 4), "w": W, "shape": ints(5, 3)}
    model = model_of(nodes, inputs, {"y": TensorProto.FLOAT}, {"w": W, "shape": ints(5, 3)}, opset=8)
    model.ir_version = 3
    net = loaded(model, tmp_path)
    assert net.inputs == ("x",)
    expect_equal(net(x=draw(3, 4)).y, (draw(3, 4) @ W).reshape(5, 3))
    model.ir_version = 4
    net = loaded(model, tmp_path)
    assert net.inputs == ("x", "w", "shape")
    expect_equal(net(x=draw(3, 4), shape=ints(15, 1)).y, (draw(3, 4) @ W).reshape(15, 1))


def test_an_input_that_no_node_reads(tmp_path):
    model = chain(("Tanh", "x", "y"))
    model.graph.input.append(helper.make_tensor_value_info("unread", TensorProto.FLOAT, [2]))
    net = loaded(model, tmp_path)
    assert net.inputs == ("x", "unread")
    expect_equal(net(x=draw(3), unread=draw(2)).y, numpy.tanh(draw(3)))


def test_outputs_that_are_inputs_or_constants(tmp_path):
    model = model_of([], {"x": draw(2)}, {"x": TensorProto.FLOAT, "k": TensorProto.INT64}, {"k": ints(1, 2)})
    out = loaded(model, tmp_path)(x=draw(2))
    assert out.x.tolist() == draw(2).tolist()
    assert out.k.tolist() == [1, 2]


def test_two_outputs_of_one_tensor(tmp_path):
    model = chain(("Tanh", "x", "y"), ("Identity", "y", "z"))
    model.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [3]))
    out = loaded(model, tmp_path)(x=draw(3))
    assert out.y.tolist() == out.z.tolist()


def test_names_that_are_no_identifiers(tmp_path):
    """Names of ONNX are any text."""
    names = ['a "quoted" name', "back\\slash\n", "ünï/çode"]
    nodes = [helper.make_node("Tanh", names[:1], names[1:2]), helper.make_node("Relu", names[1:2], names[2:])]
    model = model_of(nodes, {names[0]: draw(3)}, {names[2]: TensorProto.FLOAT})
    (y,) = loaded(model, tmp_path)(**{names[0]: draw(3)})
    expect_equal(y, numpy.maximum(numpy.tanh(draw(3)), 0))


def test_an_lstm_of_pytorch(tmp_path):
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")

    class Tagger(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = torch.nn.Embedding(11, 6)
            self.lstm = torch.nn.LSTM(6, 5, num_layers=2, bidirectional=True, batch_first=True)
            self.norm = torch.nn.LayerNorm(10)
            self.out = torch.nn.Linear(10, 4)

        def forward(self, ids):
            y, _ = self.lstm(self.embedding(ids))
            return torch.log_softmax(self.out(torch.nn.functional.gelu(self.norm(y))), -1), y[:, -1].sum(-1)

    torch.manual_seed(1)
    model = Tagger().eval()
    ids = torch.randint(0, 11, (3, 7))
    with pytest.warns():  # PyTorch's exporter says that another one is newer
        torch.onnx.export(
            model,
            (ids,),
            tmp_path / "tagger.onnx",
            dynamo=False,
            input_names=["ids"],
            dynamic_axes={"ids": {0: "B", 1: "T"}},
        )
    net = stepnet.onnx.load(tmp_path / "tagger.onnx")
    for other in (ids, torch.randint(0, 11, (2, 4))):
        for got, want in zip(net(ids=other.numpy()), model(other)):
            expect_equal(got, want.detach().numpy())


def test_a_large_model_is_two_files(tmp_path, monkeypatch, cells):
    lstm = stepnet.cell(cells / "lstm.cell", D=5, H=32)
    monkeypatch.setattr("stepnet.onnx.exporter.MOST_IN_ONE_FILE", 100)
    params = lstm.init(seed=3)
    stepnet.onnx.export(lstm, tmp_path / "lstm.onnx", params)
    assert (tmp_path / "lstm.onnx.data").exists()
    net = stepnet.onnx.load(tmp_path / "lstm.onnx")
    x = draw(6, 2, 5)
    expect_equal(net(x=x).h, lstm(params, x=x).h)


def test_params_of_the_net_are_not_the_file_s(tmp_path):
    model = product()
    net = loaded(model, tmp_path)
    assert numpy_helper.to_array(onnx.load(tmp_path / "model.onnx").graph.initializer[0]).tolist() == W.tolist()
    (tmp_path / "model.onnx").unlink()
    expect_equal(net(x=draw(3, 4)).y, draw(3, 4) @ W)


X = draw(2, 3, 4)
REFUSED = [
    ("Dropout", [X], {2: numpy.array(True)}, {}, 1, "it is in training mode, in which it draws a random mask"),
    ("Dropout", [X], {}, {}, 2, "its second output, the mask, is not given"),
    ("Gelu", [X], {}, {"approximate": "tanh"}, 1, "approximate is 'tanh'; none is read"),
    ("Clip", [X, numpy.float32(1)], {}, {}, 1, "min is no constant, but the tensor 'x1'"),
    ("Pow", [X], {1: draw(4)}, {}, 1, r"the exponent is \[4\]; one number is read"),
    ("Cast", [X], {}, {"to": TensorProto.STRING}, 1, "to is 8, which is not read"),
    ("Conv", [draw(1, 2, 5, 5, 5), draw(3, 2, 3, 3, 3)], {}, {}, 1, "its input has 5 dimensions"),
    ("Conv", [draw(1, 2, 5, 5), draw(3, 2, 3, 3)], {}, {"auto_pad": "SAME_UPPER"}, 1, "auto_pad is 'SAME_UPPER'"),
    ("LayerNormalization", [X], {1: draw(4)}, {}, 2, "its second and third output are not given"),
    ("ArgMax", [X], {}, {"select_last_index": 1}, 1, "select_last_index is 1; 0 is read"),
    ("TopK", [X], {1: ints(2)}, {"largest": 0}, 2, "largest is 0; the greatest are read"),
    ("Reshape", [X], {1: ints(0, 24)}, {"allowzero": 1}, 1, "a size is 0, and allowzero is 1"),
    ("Split", [draw(2, 5)], {}, {"axis": 1, "num_outputs": 2}, 2, "it makes 2 parts of 5, which are not equal"),
    ("Slice", [X], {1: ints(0), 2: ints(3), 3: ints(1), 4: ints(2)}, {}, 1, r"its steps are \[2\]"),
    ("Slice", [X, ints(0), ints(1)], {3: ints(1)}, {}, 1, "its bounds are no constants, and its axes are not"),
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
    ("Range", [numpy.int64(1), numpy.int64(4)], {2: numpy.int64(1)}, {}, 1, "start is no constant"),
    ("Range", [], {0: numpy.int64(1), 1: numpy.int64(4), 2: numpy.int64(1)}, {}, 1, "whole numbers from 0 on"),
    ("ReduceProd", [X], {}, {}, 1, r"products of sizes, int64 \[rank\], are read"),
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
        with pytest.raises(stepnet.ShapeMismatchError, match=r"\[3, 3, 4\] and .* is float \[2, 3, 4\]"):
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


def test_a_scan_of_opset_8_and_sparse_tensors(tmp_path):
    body = helper.make_graph([], "body", [named(floats(2), "a")], [named(floats(2), "a")])
    node = helper.make_node("Scan", ["", "x"], ["y"], body=body, num_scan_inputs=1)
    model = model_of([node], {"x": draw(1, 4, 2)}, {"y": TensorProto.FLOAT}, opset=8)
    assert "a Scan of opset 8 is not read" in refusal(model, tmp_path)
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
