"""Inputs of LSTM, GRU and RNN whose sizes a file leaves open: the run refuses those that onnxruntime refuses."""

import numpy
import pytest
from onnx_models import GATES, expect_equal, loaded, runtime, unit

import stepnet

WRONG = {  # what stands in place of an input, with as many elements
    "initial_h, batch first": ("h", lambda h: h.swapaxes(0, 1).copy()),
    "initial_h of one dimension": ("h", lambda h: h.reshape(-1)),
    "initial_h, columns before rows": ("h", lambda h: h.swapaxes(1, 2).copy()),
    "W transposed": ("W", lambda w: w.swapaxes(1, 2).copy()),
    "W of two dimensions": ("W", lambda w: w.reshape(-1, w.shape[2])),
    "W of four dimensions": ("W", lambda w: w[..., None]),
    "R transposed": ("R", lambda r: r.swapaxes(1, 2).copy()),
    "B as columns": ("B", lambda b: b.T.copy()),
    "B of one dimension": ("B", lambda b: b.reshape(-1)),
    "P a row for each gate": ("P", lambda p: p.reshape(-1, 4)),
}


def opened(op_type, direction, random, name, keeps_rank):
    """A model that says nothing of an input but perhaps its rank."""
    model, inputs = unit(op_type, random, direction=direction, peepholes=op_type == "LSTM", constants=False)
    (info,) = (each for each in model.graph.input if each.name == name)
    info.type.tensor_type.ClearField("shape")
    if keeps_rank:
        for i in range(inputs[name].ndim):
            info.type.tensor_type.shape.dim.add().dim_param = f"{name}{i}"
    return model, inputs


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("name, change", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("op_type", GATES)
def test_inputs_of_other_sizes_are_refused(op_type, name, change, direction, random, tmp_path):
    if name == "P" and op_type != "LSTM":
        pytest.skip("it has no peepholes")
    for keeps_rank in (True, False) if name != "R" else (True,):  # of which the rank has to be known
        model, inputs = opened(op_type, direction, random, name, keeps_rank)
        net, right = loaded(model, tmp_path), inputs[name]
        for got, want in zip(net(**inputs), runtime(model, inputs)):
            expect_equal(got, want)
        inputs[name] = change(right)
        if inputs[name].shape == right.shape or (keeps_rank and inputs[name].ndim != right.ndim):
            continue
        with pytest.raises(Exception, match="must have shape"):
            runtime(model, inputs)
        with pytest.raises(stepnet.ShapeMismatchError) as error:
            net(**inputs)
        assert "which must be [" in str(error.value) or "needs as many elements" in str(error.value) or "dimensions" in str(error.value)


def test_the_error_says_the_sizes(random, tmp_path):
    model, inputs = opened("GRU", "bidirectional", random, "h", True)
    inputs["h"] = numpy.zeros((3, 2, 4), "float32")
    with pytest.raises(stepnet.ShapeMismatchError, match=r"h is float32 \[3, 2, 4\] .*\n.*`initial_h, which must be \[2, 3, 4\] = "):
        loaded(model, tmp_path)(**inputs)
