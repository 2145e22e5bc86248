"""What tests of ONNX share: cells with options, models of a few nodes, and how results are compared."""

import numpy
import onnx
import onnxruntime
import pytest
from conftest import ROOT
from onnx import TensorProto, helper, numpy_helper

import stepnet
import stepnet.onnx

CELLS = sorted(each.stem for each in (ROOT / "examples" / "cells").glob("*.cell"))
GOLDEN = ROOT / "tests" / "golden"
CASES = sorted(each.parent.name for each in GOLDEN.glob("*/manifest.json"))
OPTIONS = {
    "plain": "",
    "both ways, lengths": "option layers = 2\n option direction = bidirectional\n option lengths = lengths\n",
    "reverse, lengths, zoneout": "option direction = reverse\n option lengths = lengths\n option zoneout = 0.2\n",
    "reverse, mask, batch major": "option direction = reverse\n option mask = valid\n option batch_major = true\n",
    "layers, dropout": "option layers = 2\n option dropout = 0.3\n option recurrent_dropout = 0.1\n",
}
# How those outputs of golden nets begin that no file of ONNX has, and why: the outputs of a graph are named in the file,
# whatever is computed, and there are no gradients (test_outputs_of_golden_nets_that_onnx_cannot_have_are_refused).
NOT_EXPORTED = {
    "blob_fetcher_exec_off": "extractTest_",  # a blob for each step, however many there are
    "blob_fetcher_exec_on": "extractTest_",
    "memonger_lstm1": "__m",  # gradients, which share memory
}
ELEMENTS = {
    "int8": TensorProto.INT8,
    "int16": TensorProto.INT16,
    "uint8": TensorProto.UINT8,
    "uint16": TensorProto.UINT16,
    "int16": TensorProto.INT16,
    "float16": TensorProto.FLOAT16,
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
    "bool": TensorProto.BOOL,
}
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def cell_with(name, options="", **sizes):
    text = (ROOT / "examples" / "cells" / f"{name}.cell").read_text().rstrip()
    return stepnet.cell(text[:-1] + options + "}", **sizes)


def params_of(cell, random):
    """Random ones of the size of those that training leaves."""
    return {
        name: (array + 0.3 * random.standard_normal(array.shape)).astype(array.dtype)
        for name, array in cell.init(1).items()
    }


def inputs_of(cell, random, steps, batch, with_states):
    """Random arrays for what a cell is given."""
    arrays = {}
    for each in cell.inputs:
        if each.optional and not with_states:
            continue
        sizes = {"T": steps, "B": batch}
        shape = [sizes[size] if size in sizes else int(size) for size in each.shape.strip("[]").split(", ")]
        if each.dtype == "int32":
            arrays[each.name] = random.integers(0, steps + 1, shape).astype("int32")
        elif each.dtype == "bool":
            arrays[each.name] = random.random(shape) < 0.7
        else:
            # Above 0.5: a normaliser that starts near 0 would make errors larger at random.
            arrays[each.name] = (0.5 + random.random(shape)).astype(each.dtype)
    return arrays


def session(path):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # that initial states have a default is intended
    onnx.checker.check_model(str(path), full_check=True)
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def expect_equal(got, want, tolerance=1e-5):
    """Within the tolerance of the greatest element that is finite."""
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    greatest = numpy.abs(want[numpy.isfinite(want)]).max(initial=0)
    numpy.testing.assert_allclose(got, want, rtol=0, atol=tolerance * greatest)


def run(path, names, inputs):
    return dict(zip(names, session(path).run(list(names), inputs)))


def tensors(case, file):
    return stepnet.load(GOLDEN / case / "net.pb", init=GOLDEN / case / file)._net.filled()


def exported_of(case, names):
    """Those of a golden case's outputs that a file of ONNX can have."""
    return [name for name in names if not name.startswith(NOT_EXPORTED.get(case, "\0"))]


def loops_of(path):
    """The operators of the graph that are loops."""
    return [each.op_type for each in onnx.load(path).graph.node if each.op_type in ("Scan", "LSTM", "GRU", "RNN")]


def expect_exported(cell, random, tmp_path):
    """onnxruntime computes what the cell does, and so does the net that is loaded."""
    params = params_of(cell, random)
    stepnet.onnx.export(cell, tmp_path / "cell.onnx", params)
    exported, net = session(tmp_path / "cell.onnx"), stepnet.onnx.load(tmp_path / "cell.onnx")
    for steps, batch, with_states in ((7, 3, False), (1, 1, True), (4, 2, True)):
        inputs = inputs_of(cell, random, steps, batch, with_states)
        outputs, loaded = cell(params, **inputs), net(**inputs)
        for output, got in zip(cell.outputs, exported.run(list(cell.outputs), inputs)):
            expect_equal(got, outputs[output])
            expect_equal(loaded[output], outputs[output])


def model_of(nodes, inputs, outputs, constants=(), opset=17, sizes=None):
    """A model of these nodes, whose inputs are like arrays (or None: of sizes that are not known)."""
    infos = [
        helper.make_tensor_value_info(name, ELEMENTS[str(array.dtype)], (sizes or {}).get(name, array.shape))
        for name, array in inputs.items()
    ]
    out_infos = [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()]
    tensors_ = [numpy_helper.from_array(array, name) for name, array in dict(constants).items()]
    graph = helper.make_graph(nodes, "graph", infos, out_infos, tensors_)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def runtime(model, inputs):
    """What onnxruntime computes."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    made = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return made.run(None, inputs)


def loaded(model, tmp_path):
    onnx.save(model, tmp_path / "model.onnx")
    return stepnet.onnx.load(tmp_path / "model.onnx")


def expect_as_runtime(model, inputs, tmp_path, tolerance=1e-5):
    for want, got in zip(runtime(model, inputs), loaded(model, tmp_path)(**inputs)):
        expect_equal(got, want, tolerance)


def unit(
    op_type,
    random,
    *,
    direction="forward",
    bias=True,
    lengths=None,
    states=True,
    peepholes=False,
    constants=True,
    opset=17,
    dtype="float32",
    steps=5,
    batch=3,
    **attributes,
):
    """A model with one node, and arrays for its inputs."""
    gates, size, count = GATES[op_type], 4, 2 if direction == "bidirectional" else 1

    def draw(*shape):
        return (0.6 * random.standard_normal(shape)).astype(dtype)

    arrays = {"X": draw(steps, batch, 3), "W": draw(count, gates * size, 3), "R": draw(count, gates * size, size)}
    arrays["B"] = draw(count, 2 * gates * size) if bias else None
    arrays["lengths"] = None if lengths is None else numpy.array(lengths, "int32")
    for name in ("h", "c") if op_type == "LSTM" else ("h",):
        arrays[name] = draw(count, batch, size) if states else None
    if peepholes:
        arrays["P"] = draw(count, 3 * size)
    given = {name: array for name, array in arrays.items() if array is not None}
    weights = {name for name in ("W", "R", "B", "P") if name in given and constants}
    outputs = ["Y", "Y_h", "Y_c"][: 3 if op_type == "LSTM" else 2]
    names = [name if array is not None else "" for name, array in arrays.items()]
    node = helper.make_node(op_type, names, outputs, direction=direction, hidden_size=size, **attributes)
    inputs = {name: array for name, array in given.items() if name not in weights}
    kinds = {name: ELEMENTS[dtype] for name in outputs}
    return model_of([node], inputs, kinds, {name: given[name] for name in weights}, opset), inputs


def scan(body_nodes, states, scanned, outputs, random, captured=None, opset=17, **attributes):
    """A model with one Scan: ``states`` and ``scanned`` are arrays, ``outputs`` the names of what the body stacks."""
    axes = attributes.get("scan_input_axes", [0] * len(scanned))

    def info(name, array, axis=None):
        shape = array.shape if axis is None else [s for i, s in enumerate(array.shape) if i != axis % array.ndim]
        return helper.make_tensor_value_info(name, ELEMENTS[str(array.dtype)], shape)

    body = helper.make_graph(
        body_nodes,
        "body",
        [info(f"{n}_in", a) for n, a in states.items()]
        + [info(f"{n}_t", a, axis) for (n, a), axis in zip(scanned.items(), axes)],
        [info(f"{n}_out", a) for n, a in states.items()] + [outputs[n] for n in outputs],
    )
    names = [*states, *scanned]
    results = [f"{n}_last" for n in states] + [f"{n}_all" for n in outputs]
    node = helper.make_node("Scan", names, results, body=body, num_scan_inputs=len(scanned), **attributes)
    kinds = {f"{n}_last": ELEMENTS[str(a.dtype)] for n, a in states.items()}
    kinds.update({f"{n}_all": info.type.tensor_type.elem_type for n, info in outputs.items()})
    return model_of([node], {**states, **scanned}, kinds, captured or {}, opset), {**states, **scanned}


def floats(*shape):
    return helper.make_tensor_value_info("", TensorProto.FLOAT, shape)


def named(info, name):
    info.name = name
    return info


def draw(*shape, dtype="float32", low=-2.0):
    random = numpy.random.default_rng(sum(shape) + 1)
    if dtype == "bool":
        return random.random(shape) < 0.5
    if dtype.startswith("int"):
        return random.integers(0, 3, shape).astype(dtype)
    return (low + 4 * random.random(shape)).astype(dtype)


def ints(*values):
    return numpy.array(values, "int64")


W = draw(4, 5)


def product(constants=None, name="MatMul", attributes=None):
    node = helper.make_node(name, ["x", "w"], ["y"], name="product", **(attributes or {}))
    return model_of([node], {"x": draw(3, 4)}, {"y": TensorProto.FLOAT}, {"w": W} if constants is None else constants)


def refusal(model, tmp_path, kind=stepnet.InvalidNetError):
    with pytest.raises(kind) as caught:
        loaded(model, tmp_path)
    assert str(tmp_path / "model.onnx") in str(caught.value)
    return str(caught.value)


def chain(*nodes):
    made = [helper.make_node(kind, inputs.split(), outputs.split()) for kind, inputs, outputs in nodes]
    return model_of(made, {"x": draw(3)}, {"y": TensorProto.FLOAT})
