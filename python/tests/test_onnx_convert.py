"""Models of ONNX as files of a net and its parameters, which need no Python."""

import subprocess
import sys

import numpy
import pytest
from onnx import TensorProto, helper
from onnx_models import draw, expect_equal, model_of, product

import stepnet
import stepnet.onnx


def run(*arguments):
    return subprocess.run([sys.executable, "-m", "stepnet.onnx", *map(str, arguments)], capture_output=True, text=True)


def test_the_files_compute_what_the_model_does(tmp_path, cells):
    cell = stepnet.cell(cells / "layer_norm_lstm.cell", D=3, H=4)
    model, net, params = (tmp_path / name for name in ("model.onnx", "net.pbtxt", "params.safetensors"))
    stepnet.onnx.export(cell, model, cell.init(seed=1))
    said = run(model, net, params)
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout == (
        f"wrote {net} and {params}; it is run by\n  rnn_runner run {net} --init_net={params} --input=x=x.npy\n"
    )
    x = draw(7, 2, 3)
    loaded, expected = stepnet.load(net, init=params), stepnet.onnx.load(model)
    assert loaded.inputs == ("x",)  # initial states have a default
    for name in ("h", "h_last", "c_last"):
        assert numpy.array_equal(loaded(x=x)[loaded.outputs.index(name)], expected(x=x)[expected.outputs.index(name)])


def test_what_cannot_be_converted(tmp_path):
    model, net, params = (tmp_path / name for name in ("model.onnx", "net.pbtxt", "params.npz"))
    model.write_bytes(product(name="MatMulInteger").SerializeToString())
    said = run(model, net, params)
    assert said.returncode == 1
    assert said.stderr == (
        "python -m stepnet.onnx: invalid net: MatMulInteger is not among the operators that are read\n"
        f"  at node 0 'product' `y = MatMulInteger(x, w)`\n  in graph \"graph\"\n  in file {model}\n"
    )
    assert not net.exists() and not params.exists()
    model.write_bytes(product().SerializeToString())
    for files in ((model, model, params), (model, net, net), (model, net, tmp_path / "." / "model.onnx")):
        with pytest.raises(stepnet.InvalidArgumentError, match="each must be another one"):
            stepnet.onnx.convert(*files)
    with pytest.raises(stepnet.InputOutputError, match=f"cannot write {tmp_path}/none/net.pbtxt: No such file"):
        stepnet.onnx.convert(model, tmp_path / "none" / "net.pbtxt", params)
    for files in ((model, tmp_path / "other.onnx", params), (model, net, tmp_path / "other.onnx")):
        with pytest.raises(stepnet.InvalidArgumentError, match=r"other\.onnx has the name of a file of ONNX; a net, as net\.pbtxt"):
            stepnet.onnx.convert(*files)
    assert not (tmp_path / "other.onnx").exists()
    assert run(model).returncode == 2


def test_the_net_lists_its_parameters(tmp_path):
    """As that of a cell does, so that nothing that it reads comes from nowhere."""
    stepnet.onnx.export(stepnet.layers("gru", 3, 4), tmp_path / "m.onnx", stepnet.layers("gru", 3, 4).init(seed=1))
    graph = stepnet.onnx.convert(tmp_path / "m.onnx", tmp_path / "m.pbtxt", tmp_path / "m.safetensors")
    text = (tmp_path / "m.pbtxt").read_text()
    assert all(f'external_input: "{name}"' in text for name in graph.params)
    assert stepnet.check(text) == []
    net = stepnet.load(tmp_path / "m.pbtxt", init=tmp_path / "m.safetensors")
    x = numpy.ones((5, 2, 3), "float32")
    expect_equal(net(x=x).h, graph(x=x).h)


LOSS = 'op { type: "SumSqrElements" input: "h" output: "loss" }'


def test_what_loops_start_from_is_not_trained(tmp_path):
    """Inputs of the file with defaults, which operators repeat for each sequence."""
    cell = stepnet.layers("lstm", 3, 4, num_layers=2)
    model, net, params = (tmp_path / name for name in ("model.onnx", "net.pbtxt", "params.safetensors"))
    stepnet.onnx.export(cell, model, cell.init(seed=1), outputs="h")
    graph = stepnet.onnx.convert(model, net, params)
    assert graph.defaults.keys() == {f"layer{layer}/{state}_init" for layer in range(2) for state in "hc"}
    text = net.read_text()
    trained = set(stepnet.train_net(text + LOSS, params, loss="loss").trained)
    assert trained and trained == set(graph.params) - graph.defaults.keys()
    named = ["layer0/h_init"]
    assert set(stepnet.train_net(text + LOSS, params, loss="loss", parameters=named).trained) == set(named)


def test_parameters_that_loops_start_from_are_trained(tmp_path):
    """Here for all of a batch of two."""
    nodes = [
        helper.make_node("Expand", ["start", "sizes"], ["h0"]),
        helper.make_node("RNN", ["x", "W", "R", "", "", "h0"], ["", "h"], hidden_size=4),
    ]
    arrays = {"W": draw(1, 4, 3), "R": draw(1, 4, 4), "start": draw(1, 1, 4), "sizes": numpy.array([1, 2, 4])}
    model = model_of(nodes, {"x": draw(5, 2, 3)}, {"h": TensorProto.FLOAT}, arrays)
    path, net, params = (tmp_path / name for name in ("model.onnx", "net.pbtxt", "params.safetensors"))
    path.write_bytes(model.SerializeToString())
    stepnet.onnx.convert(path, net, params)
    assert set(stepnet.train_net(net.read_text() + LOSS, params, loss="loss").trained) == {"W", "R", "start"}
