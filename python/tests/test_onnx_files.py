"""Files of ONNX that are not what they say, and calls of what was loaded with other inputs than the file has."""

import io
import os

import numpy
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import (
    W,
    cell_with,
    chain,
    draw,
    expect_equal,
    floats,
    inputs_of,
    ints,
    loaded,
    model_of,
    named,
    params_of,
    product,
    refusal,
    session,
    unit,
)

import stepnet
import stepnet.onnx


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
    nodes = [("MatMulInteger", "x", "a"), ("Tanh", "a", "b"), ("Attention", "b", "c"), ("MatMulInteger", "c", "d")]
    model = chain(*nodes)
    model.graph.node[2].domain = "com.microsoft"
    body = helper.make_graph([helper.make_node("NonZero", ["i"], ["o"])], "body", [], [])
    model.graph.node.append(helper.make_node("Scan", ["d"], ["y"], body=body, num_scan_inputs=1))
    assert refusal(model, tmp_path).startswith(
        "invalid net: MatMulInteger, com.microsoft.Attention and NonZero are not among the operators that are read\n  at node 0"
    )
    model = product(name="Softmax", attributes={"temperature": 2.0})
    assert "its attribute temperature is not read" in refusal(model, tmp_path)


def test_opsets_that_are_not_read(tmp_path):
    model = product()
    model.opset_import[0].version = 6
    assert "the model is of opset 6; those from 7 to" in refusal(model, tmp_path)
    model.opset_import[0].version = 1000
    assert "the model is of opset 1000" in refusal(model, tmp_path)


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
        (lambda w: setattr(w, "data_type", TensorProto.UINT32), "is of dtype uint32, which is not read"),
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


def test_inference_that_finds_no_memory(monkeypatch, tmp_path):
    def infer(*given, **options):
        raise MemoryError("std::bad_alloc")

    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", infer)
    message = f'onnx {onnx.__version__} finds no memory to infer the shapes in the graph "graph"'
    assert message in refusal(product(), tmp_path)


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
        with pytest.raises(error, match=message) as caught:
            net(**inputs)
        assert str(caught.value).endswith(f"\n  in file {tmp_path / 'model.onnx'}")


def test_whole_numbers_may_be_given_as_a_list(tmp_path):
    node = helper.make_node("Gather", ["w", "i"], ["y"])
    net = loaded(model_of([node], {"i": ints(1, 3)}, {"y": TensorProto.FLOAT}, {"w": W}), tmp_path)
    for given in ([1, 3], (1, 3)):
        expect_equal(net(i=given).y, W[[1, 3]])
    for given in ([1, 2.5], [1, True], [[1], [3]], [1, 1 << 70]):
        with pytest.raises(stepnet.TypeMismatchError, match='the input "i" of "graph" is list; it must be int64'):
            net(i=given)
    with pytest.raises(stepnet.ShapeMismatchError):
        net(i=[1, 2, 3])


def test_errors_of_runs_name_the_file(tmp_path):
    node = helper.make_node("Gather", ["w", "i"], ["y"])
    net = loaded(model_of([node], {"i": ints(1, 3)}, {"y": TensorProto.FLOAT}, {"w": W}), tmp_path)
    with pytest.raises(stepnet.InvalidArgumentError, match='no input "w": it is a parameter, which net.restore changes; its inputs'):
        net(i=ints(1, 3), w=W)
    with pytest.raises(stepnet.InvalidArgumentError, match='in net "graph"') as caught:
        net(i=ints(1, 4))
    assert str(caught.value).endswith(f"\n  in file {tmp_path / 'model.onnx'}")


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
    monkeypatch.setattr("stepnet.onnx.exporter.MAX_BYTES_IN_ONE_FILE", 100)
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


# Models that are no files.


@pytest.mark.parametrize("kind", ["ModelProto", "bytes", "open file", "memory"])
def test_models_that_are_no_files(kind, tmp_path):
    model, x = product(), draw(3, 4)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1  # which reading makes unknown
    content = model.SerializeToString()
    (tmp_path / "model.onnx").write_bytes(content)
    given = {"ModelProto": model, "bytes": content, "memory": io.BytesIO(content)}
    if kind == "open file":
        with open(tmp_path / "model.onnx", "rb") as file:
            net = stepnet.onnx.load(file)
    else:
        net = stepnet.onnx.load(given[kind])
    numpy.testing.assert_array_equal(net(x=x).y, stepnet.onnx.load(tmp_path / "model.onnx")(x=x).y)
    assert model.SerializeToString() == content  # what is given stays as it is


@pytest.mark.parametrize("kind, place", [("ModelProto", "the ModelProto"), ("bytes", "the content of a model"), ("memory", "the open file")])
def test_where_models_are_that_are_no_files(kind, place):
    def given(model):
        content = model.SerializeToString()
        return {"ModelProto": model, "bytes": content, "memory": io.BytesIO(content)}[kind]

    with pytest.raises(stepnet.InvalidNetError) as caught:
        stepnet.onnx.load(given(product(name="MatMulInteger")))
    assert str(caught.value).endswith(f'in graph "graph"\n  in {place}')
    model = product()
    (tensor,) = model.graph.initializer
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="passwd")
    with pytest.raises(stepnet.InvalidNetError, match="is in another file, of which nothing says where it is; give the path of the model"):
        stepnet.onnx.load(given(model))


def test_what_stands_for_no_model():
    with pytest.raises(stepnet.InputOutputError, match="input/output error: the content of a model is no ONNX file"):
        stepnet.onnx.load(b"nothing of the kind")
    with pytest.raises(stepnet.TypeMismatchError, match="the open file gives 'text'; it must give bytes"):
        stepnet.onnx.load(io.StringIO("text"))
    with pytest.raises(stepnet.TypeMismatchError, match="path is 3; it must be a path"):
        stepnet.onnx.load(3)


@pytest.mark.parametrize("opset", [18, 19, 20, 21, 22, 23])
@pytest.mark.parametrize("name", ["lstm", "layer_norm_lstm", "gru", "causal_conv"])
def test_files_of_another_opset_into_memory(name, opset, random, tmp_path):
    cell = cell_with(name, " option layers = 2\n option lengths = lengths\n" if name != "causal_conv" else "")
    params, inputs = params_of(cell, random), inputs_of(cell, random, 4, 2, False)
    written = io.BytesIO()
    stepnet.onnx.export(cell, written, params, opset=opset)
    model = onnx.load_from_string(written.getvalue())
    assert [each.version for each in model.opset_import] == [opset]
    (tmp_path / "cell.onnx").write_bytes(written.getvalue())
    outputs = cell(params, **inputs)
    for output, got in zip(cell.outputs, session(tmp_path / "cell.onnx").run(list(cell.outputs), inputs)):
        expect_equal(got, outputs[output])


def test_opsets_that_are_not_written(cells):
    cell = stepnet.cell(cells / "lstm.cell", D=3, H=4)
    for opset in (17, 99, "18", True):
        with pytest.raises(stepnet.InvalidArgumentError, match="opset is .*; it must be from 18 to "):
            stepnet.onnx.export(cell, io.BytesIO(), cell.init(), opset=opset)
