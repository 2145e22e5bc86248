"""Trials of files of ONNX."""

import functools
import tempfile
from pathlib import Path

import fuzz_values
import numpy

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
    return found
