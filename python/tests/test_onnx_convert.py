"""Models of ONNX as files of a net and its parameters, which need no Python."""

import subprocess
import sys

import numpy
import pytest
from onnx_models import draw, expect_equal, product

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
