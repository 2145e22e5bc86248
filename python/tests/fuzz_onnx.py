"""Trials of files of ONNX."""

import functools
import tempfile
from pathlib import Path

import fuzz_values
import numpy
from onnx import TensorProto, helper, numpy_helper

import stepnet
import stepnet.onnx


def graphs(trial):
    """Damaged files of ONNX; cells and nets that are written to them."""
    from fuzz_trials import CELLS, inputs_of, with_strange_names

    contents = exported()
    path = trial.folder / trial.random.choice(["a.onnx", "a.onnx", "a", "a.pb"])
    content = contents[trial.random.randrange(len(contents))]
    path.write_bytes(fuzz_values.damaged(trial.random, content) if trial.happens(0.8) else content)
    source = path if trial.happens(0.95) else trial.random.choice(fuzz_values.TEXTS)
    from fuzz_trials import options

    net = trial.call(stepnet.onnx.load, source, **options(trial, 0.05))
    if net is not None:
        trial.call(net, **inputs_of(trial, net.arguments, 0.2))
    cell = stepnet.cell(CELLS / trial.random.choice(["lstm.cell", "gru.cell", "slstm.cell"]))
    params = with_strange_names(trial, cell.init(), 0.2)
    if trial.happens(0.3):
        params["b"] = fuzz_values.strange_array(trial.random, params.get("b", numpy.zeros(3, "float32")))
    model = trial.random.choice([cell, cell, cell, net, None])
    more = {"outputs": trial.random.choice([["h"], "h", [], ["no"], [3], None])} if trial.happens(0.3) else {}
    trial.call(stepnet.onnx.export, model, trial.folder / "b.onnx", params, **more)


@functools.lru_cache(maxsize=None)
def exported():
    """Files that are right."""
    from fuzz_trials import CELLS

    found = []
    with tempfile.TemporaryDirectory() as folder:
        for name in ("lstm", "gru", "attention_dot", "indrnn"):
            cell = stepnet.cell(CELLS / f"{name}.cell", H=4)
            stepnet.onnx.export(cell, Path(folder) / "a.onnx", cell.init())
            found.append((Path(folder) / "a.onnx").read_bytes())
    return [*found, batches().SerializeToString(), in_halves().SerializeToString()]


def batches():
    """A Scan of opset 8, with lengths, one sequence forward and one backward."""
    names = ("s_in", "x_t", "z_t", "s_out", "y_t")
    s_in, x_t, z_t, s_out, y_t = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in names)
    nodes = [helper.make_node(*each) for each in (("Add", ["s_in", "x_t"], ["s_out"]), ("Mul", ["s_in", "z_t"], ["y_t"]))]
    body = helper.make_graph(nodes, "body", [s_in, x_t, z_t], [s_out, y_t])
    node = helper.make_node("Scan", ["n", "s", "x", "z"], ["last", "y"], body=body, num_scan_inputs=2, directions=[0, 1])
    inputs = [helper.make_tensor_value_info("n", TensorProto.INT64, ["B"])]
    inputs.append(helper.make_tensor_value_info("s", TensorProto.FLOAT, ["B", 2]))
    inputs += [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["B", "T", 2]) for name in "xz"]
    return model_of(node, inputs, ("last", "y"), TensorProto.FLOAT, [], opset=8)


def in_halves():
    """An LSTM of float16."""
    weights = [numpy_helper.from_array(numpy.full(shape, 0.1, "float16"), name) for name, shape in
               (("w", (1, 8, 3)), ("r", (1, 8, 2)))]
    node = helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=2)
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT16, ["T", "B", 3])]
    return model_of(node, inputs, ("y",), TensorProto.FLOAT16, weights, opset=17)


def model_of(node, inputs, outputs, dtype, constants, opset):
    infos = [helper.make_tensor_value_info(name, dtype, None) for name in outputs]
    graph = helper.make_graph([node], "graph", inputs, infos, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
