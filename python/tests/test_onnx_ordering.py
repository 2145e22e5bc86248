"""Orders of elements in ONNX, and what PyTorch exports of sequences that it packs."""

import warnings

import numpy
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_models import expect_as_runtime, expect_equal, loaded, model_of, refusal, session

import stepnet
import stepnet.onnx

node = helper.make_node
LENGTHS = [[3, 5, 3, 0, 5, 1], [7], [2, 2, 2]]


@pytest.mark.parametrize("sizes", [None, {"x": ["n"]}], ids=["known size", "free size"])
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("dtype", ["int32", "int64", "float32"])
def test_a_whole_dimension_is_sorted(dtype, lengths, sizes, tmp_path):
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "last"], ["n"]),
        node("TopK", ["x", "n"], ["y", "at"], axis=-1),
    ]
    inputs = {"x": numpy.array(lengths, dtype)}
    kinds = {"y": helper.np_dtype_to_tensor_dtype(numpy.dtype(dtype)), "at": TensorProto.INT64}
    expect_as_runtime(model_of(nodes, inputs, kinds, {"last": numpy.array([-1])}, sizes=sizes), inputs, tmp_path)


def test_the_greatest_of_whole_numbers(tmp_path):
    inputs = {"x": numpy.array([3, 9, 9, -2], "int64")}
    kinds = {"y": TensorProto.INT64, "at": TensorProto.INT64}
    model = model_of([node("TopK", ["x", "k"], ["y", "at"])], inputs, kinds, {"k": numpy.array([3])})
    expect_as_runtime(model, inputs, tmp_path)


@pytest.mark.parametrize("indices", [[2, 0, 3, 1], [1], [-1, 0], []], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_elements_are_scattered(dtype, indices, tmp_path):
    inputs = {
        "data": numpy.array([10, 20, 30, 40], dtype),
        "at": numpy.array(indices, "int64"),
        "new": (1 + numpy.arange(len(indices))).astype(dtype),
    }
    kind = helper.np_dtype_to_tensor_dtype(numpy.dtype(dtype))
    model = model_of([node("ScatterElements", ["data", "at", "new"], ["y"], axis=0)], inputs, {"y": kind})
    if indices:
        expect_as_runtime(model, inputs, tmp_path)
    else:
        expect_equal(loaded(model, tmp_path)(**inputs).y, inputs["data"])


def test_numbers_of_any_kind_are_scattered(tmp_path):
    inputs = {
        "data": numpy.array([0, 1, 2], "float32"),
        "at": numpy.array([1], "int64"),
        "new": numpy.array([numpy.inf], "float32"),
    }
    model = model_of([node("ScatterElements", ["data", "at", "new"], ["y"])], inputs, {"y": TensorProto.FLOAT})
    assert loaded(model, tmp_path)(**inputs).y.tolist() == [0, numpy.inf, 2]


def scattered(data, indices, updates, tmp_path, sizes=None, **attributes):
    """A net of one ScatterElements, and its inputs, after the net was compared with onnxruntime."""
    inputs = {"data": data, "at": indices, "new": updates}
    kind = helper.np_dtype_to_tensor_dtype(data.dtype)
    model = model_of([node("ScatterElements", [*inputs], ["y"], **attributes)], inputs, {"y": kind}, opset=18, sizes=sizes)
    expect_as_runtime(model, inputs, tmp_path, tolerance=1e-6)
    return stepnet.onnx.load(model), inputs


@pytest.mark.parametrize("indices", [[2, 2, 2], [1, 1, 1, 3], [0, -4, 0, -1, 3]], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_indices_that_repeat(reduction, dtype, indices, tmp_path):
    """The last update stays, or all of them count."""
    data, updates = numpy.array([5, 1, 2, 3], dtype), numpy.array([100, 101, -3, 103, 104][: len(indices)], dtype)
    net, inputs = scattered(data, numpy.array(indices), updates, tmp_path, reduction=reduction)
    functions = {"none": lambda _, new: new, "add": numpy.add, "mul": numpy.multiply, "max": numpy.maximum, "min": numpy.minimum}
    expected = data.copy()
    for index, update in zip(indices, updates):
        expected[index] = functions[reduction](expected[index], update)
    assert net(inputs).y.tolist() == expected.tolist()


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("sizes", [None, {"data": ["a", "b", "c"], "at": ["d", "e", "f"]}], ids=["known sizes", "free sizes"])
def test_elements_of_part_of_several_dimensions(sizes, axis, random, tmp_path):
    data = random.standard_normal((3, 4, 2))
    shape = [7 if d == axis % 3 else size - 1 for d, size in enumerate(data.shape)]
    indices = random.integers(-data.shape[axis], data.shape[axis], shape)
    scattered(data, indices, random.standard_normal(shape), tmp_path, sizes, axis=axis)


@pytest.mark.parametrize("reduction", ["none", "mul"])
@pytest.mark.parametrize("indices, element, index", [([0, 3], 1, 3), ([-4, 9], 0, -4)])
def test_indices_of_no_element_are_refused(indices, element, index, reduction, tmp_path):
    inputs = {"data": numpy.zeros((3, 1), "float32"), "at": numpy.array(indices)[:, None], "new": numpy.ones((2, 1), "float32")}
    scatter = node("ScatterElements", ["data", "at", "new"], ["y"], reduction=reduction)
    net = loaded(model_of([scatter], inputs, {"y": TensorProto.FLOAT}, opset=18), tmp_path)
    message = f"ScatterElements: element {element} of the indices is {index}; dimension 0 of the data has size 3"
    with pytest.raises(stepnet.InvalidArgumentError, match=message):
        net(inputs)


@pytest.mark.parametrize("attributes, message", [({"axis": 1}, "its axis is 1"), ({"reduction": "mean"}, "its reduction is 'mean'; none,")])
def test_other_ways_to_scatter_are_refused(attributes, message, tmp_path):
    inputs = {"data": numpy.zeros(2, "float32"), "at": numpy.zeros(2, "int64"), "new": numpy.ones(2, "float32")}
    scatter = node("ScatterElements", ["data", "at", "new"], ["y"], **attributes)
    assert message in refusal(model_of([scatter], inputs, {"y": TensorProto.FLOAT}, opset=18), tmp_path)


@pytest.mark.parametrize("is_free", [False, True], ids=["known sizes", "free sizes"])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_packed_sequences_of_pytorch_that_are_not_sorted(name, batch_first, is_free, tmp_path):
    torch = pytest.importorskip("torch")
    rnn = torch.nn.utils.rnn

    class Packed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = getattr(torch.nn, name)(3, 4, bidirectional=True, batch_first=batch_first)

        def forward(self, x, lengths):
            packed = rnn.pack_padded_sequence(x, lengths, batch_first=batch_first, enforce_sorted=False)
            y, state = self.layer(packed)
            y, of_row = rnn.pad_packed_sequence(y, batch_first=batch_first)
            return y, of_row, *(state if isinstance(state, tuple) else (state,))

    torch.manual_seed(3)
    module, x = Packed().eval(), torch.randn(3, 5, 3) if batch_first else torch.randn(5, 3, 3)
    given = (x, torch.tensor([2, 5, 3]))
    axes = {"x": {0: "a", 1: "b"}, "lengths": {0: "c"}} if is_free else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module, given, str(tmp_path / "m.onnx"), opset_version=17, dynamo=False, input_names=["x", "lengths"], dynamic_axes=axes
        )
    names = [each.name for each in onnx.load(tmp_path / "m.onnx").graph.input]
    inputs = {each: tensor.numpy() for each, tensor in zip(("x", "lengths"), given) if each in names}
    outputs = stepnet.onnx.load(tmp_path / "m.onnx")(inputs)
    for got, want, runtimes in zip(outputs, module(*given), session(tmp_path / "m.onnx").run(None, inputs)):
        assert numpy.allclose(got, want.detach().numpy(), atol=1e-6)
        expect_equal(got, runtimes)
