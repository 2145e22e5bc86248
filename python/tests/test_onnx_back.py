"""Cells and nets that were exported to ONNX are loaded as what they were."""

import json
import re

import numpy
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import (
    CASES,
    CELLS,
    GOLDEN,
    OPTIONS,
    cell_with,
    draw,
    expect_as_runtime,
    expect_equal,
    exported_of,
    floats,
    inputs_of,
    loaded,
    model_of,
    named,
    params_of,
    scan,
    tensors,
)

import stepnet
import stepnet.onnx


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("name", CELLS)
def test_cells_come_back(name, options, random, tmp_path):
    cell = cell_with(name, options.replace("valid", "valid_steps"))
    params = params_of(cell, random)
    stepnet.onnx.export(cell, tmp_path / "cell.onnx", params)
    net = stepnet.onnx.load(tmp_path / "cell.onnx")
    assert net.outputs == cell.outputs
    assert net.inputs == tuple(each.name for each in cell.inputs)
    for steps, batch, with_states in ((7, 3, False), (4, 2, True), (0, 2, True)):
        inputs = inputs_of(cell, random, steps, batch, with_states)
        outputs = cell(params, **inputs)
        for output, got in zip(cell.outputs, net(**inputs)):
            expect_equal(got, outputs[output])


def instructions(plans):
    return sum(len(stage["instructions"]) for plan in json.loads(plans) for stage in plan["stages"])


@pytest.mark.parametrize("name", CELLS)
def test_what_comes_back_is_fused_as_the_cell_is(name, random, tmp_path):
    cell = cell_with(name)
    params, inputs = params_of(cell, random), inputs_of(cell, random, 20, 4, with_states=False)
    stepnet.onnx.export(cell, tmp_path / "cell.onnx", params)
    loops = stepnet.onnx.load(tmp_path / "cell.onnx").explain(inputs, format="json")
    assert instructions(loops) == instructions(cell.explain(params, inputs, format="json"))


def test_a_state_that_is_also_an_output_is_there_once(random, tmp_path):
    """A state that is no row ``[1, …]`` itself, a constant beside it, and items that are one row of the scanned input."""
    nodes = [
        helper.make_node("Mul", ["h_in", "half"], ["less"]),
        helper.make_node("Add", ["less", "x_t"], ["h_out"]),
        helper.make_node("Identity", ["h_out"], ["y"]),
    ]
    state, x = {"h": random.standard_normal((2, 3)).astype("float32")}, {"x": draw(5, 2, 3)}
    half = helper.make_node("Constant", [], ["half"], value=numpy_helper.from_array(numpy.array(0.5, "float32")))
    model, inputs = scan([half, *nodes], state, x, {"y": named(floats(2, 3), "y")}, random)
    (loop,) = json.loads(loaded(model, tmp_path).explain(inputs, format="json"))
    (instruction,) = (each for stage in loop["stages"] for each in stage["instructions"])
    assert instruction["formulas"] == ['h_out = "h_last state at t" * 0.5 + "x at t"']
    expect_as_runtime(model, inputs, tmp_path)


def test_the_loop_back_reads_no_copies_of_states(random, tmp_path):
    """That of a state without its first dimension is made again; that of an item, which products read, is kept."""
    nodes = [helper.make_node("Mul", ["h_in", "x_t"], ["h_out"])]
    state, x = {"h": random.standard_normal((2, 3)).astype("float32")}, {"x": draw(5, 2, 3)}
    model, _ = scan(nodes, state, x, {}, random)
    text = loaded(model, tmp_path)._text
    made = dict(re.findall(r'input: "([^"]* at t)" output: "([^"]*)" type: "Squeeze"', text))
    assert len(made) == 2
    assert re.findall(r'recompute_blobs_on_backward" strings: "([^"]*)" }', text) == [made["h_last state at t"]]


def test_transposed_matrices_are_those_of_a_product(tmp_path):
    nodes = [
        helper.make_node("Transpose", ["a"], ["a_t"], perm=[0, 2, 1]),
        helper.make_node("Transpose", ["b"], ["b_t"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["a_t", "b_t"], ["y"]),
        helper.make_node("MatMul", ["a_t", "a"], ["z"]),
    ]
    inputs = {"a": draw(2, 4, 3), "b": draw(2, 5, 4)}
    model = model_of(nodes, inputs, {"y": TensorProto.FLOAT, "z": TensorProto.FLOAT})
    assert "Transpose" not in loaded(model, tmp_path)._text
    expect_as_runtime(model, inputs, tmp_path)


@pytest.mark.parametrize("case", CASES)
def test_golden_nets_come_back(case, tmp_path):
    manifest = json.loads((GOLDEN / case / "manifest.json").read_text())
    each = manifest["runs"][0]
    original = stepnet.load(GOLDEN / case / "net.pb")
    given, expected = tensors(case, each["inputs"]), tensors(case, each["expected"])
    outputs = exported_of(case, [name for name in each["outputs"] if name in expected])
    assert outputs
    inputs = {name: given[name] for name in original.inputs}
    stepnet.onnx.export(original, tmp_path / "net.onnx", inputs=inputs, outputs=outputs)
    net = stepnet.onnx.load(tmp_path / "net.onnx")
    got = net(**{name: given[name] for name in net.inputs})
    for name in outputs:
        numpy.testing.assert_allclose(got[name], expected[name], rtol=1e-4, atol=1e-5, err_msg=name)
