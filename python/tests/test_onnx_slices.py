"""Slices of models of ONNX take what onnxruntime takes, whatever their bounds are, and go back to ONNX."""

import numpy
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_models import draw, expect_as_runtime, expect_equal, ints, loaded, model_of, run

import stepnet
import stepnet.onnx

FAR = [1 << 62, -(1 << 62), -(1 << 63)]
"""onnxruntime takes the greatest number of all for the first element, as an end of steps back, which ONNX does not."""


def drawn(random, steps):
    """Sizes, and starts, ends, axes and steps of some dimensions: within the tensor, somewhat beyond it, and far."""
    sizes = [int(size) for size in random.integers(0, 5, random.integers(1, 5))]
    axes = random.permutation(len(sizes))[: random.integers(1, len(sizes) + 1)]
    bounds = [
        [int(random.choice(FAR)) if random.random() < 0.1 else int(random.integers(-7, 8)) for _ in axes]
        for _ in range(2)
    ]
    axes = [int(axis) - len(sizes) * int(random.integers(2)) for axis in axes]
    return sizes, *bounds, axes, [int(random.choice(steps)) for _ in axes]


def model_of_slice(x, inputs, constants, opset):
    names = ["x", *(name for name in ("starts", "ends", "axes", "steps") if name in inputs or name in constants)]
    node = helper.make_node("Slice", names, ["y"])
    given = {"x": x, **inputs}
    free = {name: [None] * array.ndim if name == "x" else array.shape for name, array in given.items()}
    return model_of([node], given, {"y": TensorProto.FLOAT}, constants, opset, free), given


@pytest.mark.parametrize("opset", [10, 13])
def test_any_constant_bounds(opset, random, tmp_path):
    for _ in range(50):
        sizes, starts, ends, axes, steps = drawn(random, [-3, -2, -1, 1, 1, 1, 2, 3])
        constants = {"starts": ints(*starts), "ends": ints(*ends), "axes": ints(*axes), "steps": ints(*steps)}
        model, inputs = model_of_slice(draw(*sizes), {}, constants, opset)
        expect_as_runtime(model, inputs, tmp_path)


def test_bounds_that_are_attributes(random, tmp_path):
    for _ in range(20):
        sizes, starts, ends, axes, _ = drawn(random, [1])
        node = helper.make_node("Slice", ["x"], ["y"], starts=starts, ends=ends, axes=axes)
        x = draw(*sizes)
        expect_as_runtime(model_of([node], {"x": x}, {"y": TensorProto.FLOAT}, opset=9), {"x": x}, tmp_path)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_bounds_that_are_inputs(dtype, random, tmp_path):
    for trial in range(40):
        sizes, starts, ends, axes, steps = drawn(random, [-2, -1, 1, 1, 2])
        axes = range(len(axes)) if trial % 2 else axes[:1]  # the first dimensions, or any one
        count, far = len(axes), 1 << (30 if dtype == "int32" else 62)
        bounds = {"starts": starts[:count], "ends": ends[:count]}
        given = {name: numpy.clip(each, -far, far).astype(dtype) for name, each in bounds.items()}
        of_file = {"axes": numpy.array(axes, dtype), "steps": numpy.array(steps[:count], dtype)}
        inputs = given if trial % 3 else {"ends": given["ends"]}
        constants = {**{name: each for name, each in given.items() if name not in inputs}, **of_file}
        model, arrays = model_of_slice(draw(*sizes), inputs, constants, 13)
        expect_as_runtime(model, arrays, tmp_path)


def test_the_last_steps_of_a_shorter_sequence(tmp_path):
    """As torch.onnx.export writes x[-6:] of any number of steps."""
    model, _ = model_of_slice(draw(9, 2, 4), {}, {"starts": ints(-6), "ends": ints((1 << 63) - 1), "axes": ints(0), "steps": ints(1)}, 17)
    net = loaded(model, tmp_path)
    for steps in (0, 3, 6, 9):
        x = draw(steps, 2, 4)
        assert numpy.array_equal(net(x=x).y, x[-6:])


def test_slices_with_steps_go_back(random, tmp_path):
    for _ in range(20):
        sizes, starts, ends, axes, steps = drawn(random, [-2, -1, 1, 2])
        constants = {"starts": ints(*starts), "ends": ints(*ends), "axes": ints(*axes), "steps": ints(*steps)}
        model, inputs = model_of_slice(draw(*sizes), {}, constants, 13)
        net = loaded(model, tmp_path)
        stepnet.onnx.export(net, tmp_path / "again.onnx", inputs=inputs)
        expect_equal(run(tmp_path / "again.onnx", ["y"], inputs)["y"], net(**inputs).y)


def test_sizes_that_a_slice_with_steps_takes(tmp_path):
    """The exporter knows the shape that a net computes from sizes."""
    nodes = [
        helper.make_node("Shape", ["x"], ["sizes"]),
        helper.make_node("Slice", ["sizes", "last", "before", "axes", "backward"], ["turned"]),
        helper.make_node("Reshape", ["x", "turned"], ["y"]),
    ]
    constants = {"last": ints(9), "before": ints(-9), "axes": ints(0), "backward": ints(-1)}
    model = model_of(nodes, {"x": draw(2, 3)}, {"y": TensorProto.FLOAT}, constants, sizes={"x": ["N", 3]})
    net = loaded(model, tmp_path)
    x = draw(2, 3)
    assert net(x=x).y.shape == (3, 2)
    stepnet.onnx.export(net, tmp_path / "again.onnx", inputs={"x": x}, dynamic_axes={"x": {0: "N"}})
    assert onnx.load(tmp_path / "again.onnx").graph.output[0].type.tensor_type.shape.dim[1].dim_param == "N"
    for rows in (2, 5):
        x = draw(rows, 3)
        expect_equal(run(tmp_path / "again.onnx", ["y"], {"x": x})["y"], net(x=x).y)
