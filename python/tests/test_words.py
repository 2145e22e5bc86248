"""The words and types that editors and checkers are told of are those that calls take and give."""

import re
import subprocess
import sys
import typing

import numpy
import pytest
from conftest import ROOT

import stepnet
from stepnet import words

X = numpy.zeros((2, 1, 5), "float32")


def words_of(call):
    """What an error lists behind a word that is none."""
    with pytest.raises(stepnet.InvalidArgumentError) as caught:
        call()
    listed = re.search(r"(?:must be (?:one of )?|can be disabled is |its options are )(.*)$", str(caught.value))[1]
    return {word.strip('"') for word in re.split(r", | or ", listed)}


def test_words_are_those_of_the_core(lstm):
    params = lstm.init()
    assert words_of(lambda: lstm.with_options(disable_pass="nope")) == set(typing.get_args(words.PassName))
    assert words_of(lambda: lstm.explain(params, x=X, format="nope")) == set(typing.get_args(words.PageFormat))
    assert words_of(lambda: stepnet.show(lstm, format="nope")) == set(typing.get_args(words.PictureFormat))
    assert words_of(lambda: stepnet.layers("nope", 1, 2)) == set(typing.get_args(words.Mode))
    requests = {"x": "nope"}
    assert words_of(lambda: lstm.vjp(params, x=X, gradient_requests=requests)) == set(typing.get_args(words.Request))


def test_options_of_optimizers_are_those_of_the_core():
    net, init = 'op { type: "Tanh" input: "w" output: "loss" }', {"w": numpy.zeros(1, "float32")}

    def listed(**options):
        return words_of(lambda: stepnet.train_net(net, init, loss="loss", **options))

    hints = typing.get_type_hints(words.Optimizer)
    assert listed(nope=1) == set(hints)
    for name in ("method", "schedule"):
        assert listed(**{name: "nope"}) == set(typing.get_args(hints[name]))


def test_what_is_left_out_of_with_options_stays(lstm):
    other = lstm.with_options(H=7, seed=3, training=True).with_options(dtype="float64")
    assert (other._options["seed"], other._options["training"], other.params[0].shape) == (3, True, "[28, 5]")


USES = """
import numpy, torch, stepnet, stepnet.torch
cell = stepnet.cell("lstm.cell", device="cuda", dtype="float64", disable_pass="hoist", H=3)
reveal_type(stepnet.torch.Module(cell)(torch.zeros(1)).h)
reveal_type(stepnet.torch.Module(cell, output="h")(x=torch.zeros(1)))
reveal_type(stepnet.torch.Recurrent(cell)(torch.zeros(1))[0])
reveal_type(cell(cell.init(), x=torch.zeros(1)))
reveal_type(stepnet.layers("lstm", 2, 3, lengths=True))
reveal_type(stepnet.train_net("net.pb", loss="loss", method="adam", learning_rate=0.1))
cell.with_options(dtype=torch.float64, device=torch.device("cpu"), H=4)
stepnet.layers("ltsm", 2, 3)
stepnet.layers("lstm", 2, 3, length=True)
stepnet.cell("lstm.cell", disable_pass="hosit")
cell.vjp({}, gradient_requests=dict.fromkeys(cell.init(), "add"))
cell.explain({}, format="htlm")
stepnet.train_net("net.pb", loss="loss", method="adma")
stepnet.train_net("net.pb", loss="loss", learning_rat=0.1)
stepnet.torch.Module(cell)(3)
stepnet.nope
"""
REVEALED = [
    "torch._tensor.Tensor",
    "torch._tensor.Tensor",
    "torch._tensor.Tensor",
    "stepnet.outputs.Outputs[Any]",
    "stepnet.cell.Cell",
    "stepnet.net.TrainingNet",
]
REFUSED = ["ltsm", "layers", "hosit", "htlm", "adma", "learning_rat", "__call__", "nope"]


def test_checkers_know_words_and_what_calls_give(tmp_path):
    """By the sources, as mypy reads no package that is not installed."""
    pytest.importorskip("mypy", reason="mypy is not installed")
    pytest.importorskip("torch", reason="PyTorch is not installed")
    (tmp_path / "uses.py").write_text(USES)
    (tmp_path / "mypy.ini").write_text(f"[mypy]\nmypy_path = {ROOT / 'python'}\nfollow_imports = silent\n")
    command = [sys.executable, "-m", "mypy", "--cache-dir", tmp_path / "cache", "--config-file", tmp_path / "mypy.ini"]
    found = subprocess.run([*command, tmp_path / "uses.py"], capture_output=True, text=True).stdout.splitlines()
    revealed = [line.split('"')[1] for line in found if "Revealed type" in line]
    errors = [line for line in found if ": error: " in line]
    assert [each.replace("builtins.", "") for each in revealed] == REVEALED
    assert len(errors) == len(REFUSED) and all(word in line for word, line in zip(REFUSED, errors)), "\n".join(errors)
