"""Indices of ONNX that no tensor has, and indices of other sizes than the data's: errors say what was given."""

import numpy
import pytest
from onnx import TensorProto, helper
from onnx_models import draw, ints, loaded, model_of, refusal, runtime

import stepnet

X = draw(3, 2)


def model(op_type, at, constants=(), is_known=False, **attributes):
    node = helper.make_node(op_type, ["x", "at"], ["y"], name="taken", **attributes)
    inputs = {"x": X} if "at" in constants else {"x": X, "at": at}
    sizes = {} if is_known else {name: [f"{name}{i}" for i in range(array.ndim)] for name, array in inputs.items()}
    if op_type == "GatherND" and not is_known:
        sizes["at"][-1] = at.shape[-1]
    return model_of([node], inputs, {"y": TensorProto.FLOAT}, {name: at for name in constants}, sizes=sizes), inputs


def expect_refused_in_the_run(given, message, tmp_path):
    """By onnxruntime, too."""
    with pytest.raises(Exception, match="ONNXRuntimeError"):
        runtime(*given)
    with pytest.raises(stepnet.Error, match=message):
        loaded(given[0], tmp_path)(**given[1])


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("index", [-10, -4, 3])
def test_an_index_is_said_as_it_is_given(index, dtype, is_known, tmp_path):
    said = f"Gather: element 1 of the indices is {index}; the data have 3 rows"
    at = numpy.array([[0, index]], dtype)
    for op_type in ("Gather", "GatherElements"):
        expect_refused_in_the_run(model(op_type, at, is_known=is_known), said, tmp_path)
    expect_refused_in_the_run(model("GatherND", ints([-3], [index]), is_known=is_known), said, tmp_path)


def test_the_index_of_each_dimension_is_said_as_it_is_given(tmp_path):
    """GatherND takes several."""
    for at, index in (([0, 2], 2), ([0, -3], -3), ([2, 7], 7)):
        said = f"Gather: element 0 of the indices is {index}; the data have 2 rows"
        expect_refused_in_the_run(model("GatherND", ints(at)), said, tmp_path)


def test_constant_indices(tmp_path):
    given = model("Gather", ints(0, -4), ["at"])
    expect_refused_in_the_run(given, "Gather: element 1 of the indices is -4; the data have 3 rows", tmp_path)
    for index in (-4, 3):
        at = numpy.array(index)
        expect_refused_in_the_run(model("Gather", at, ["at"]), f"y: index {index} of dimension 0", tmp_path)
        message = refusal(model("Gather", at, ["at"], is_known=True)[0], tmp_path)
        assert f"its indices are from {index} to {index}; dimension 0 has size 3" in message


def test_indices_of_more_places_than_the_data_have(tmp_path):
    """Their sizes are those of the data at most, but along the axis."""
    at = numpy.zeros((1, 4), "int64")
    said = "at, whose dimension 1 must be at most as large as that of x"
    expect_refused_in_the_run(model("GatherElements", at, axis=0), said, tmp_path)
    message = refusal(model("GatherElements", at, is_known=True, axis=0)[0], tmp_path)
    assert "dimension 1 of its indices is 4; it must be at most as large as that of its data, 2\n  at node 0 'taken'" in message
    given, inputs = model("GatherElements", at, axis=1)
    numpy.testing.assert_array_equal(loaded(given, tmp_path)(**inputs).y, runtime(given, inputs)[0])


@pytest.mark.parametrize("batch", [2, 4])
def test_indices_of_another_batch_than_the_data_s(batch, tmp_path):
    at = numpy.zeros((batch, 1), "int64")
    said = "at, whose dimension 0 must be as large as that of x"
    expect_refused_in_the_run(model("GatherND", at, batch_dims=1), said, tmp_path)
    message = refusal(model("GatherND", at, is_known=True, batch_dims=1)[0], tmp_path)
    assert f"dimension 0 of its indices is {batch}; it must be as large as that of its data, 3" in message
