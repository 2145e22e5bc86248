import concurrent.futures
import gc
import os
import pathlib
import re
import shutil
import signal
import subprocess

import numpy
import pytest

import stepnet

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMPILER = shutil.which(os.environ.get("CXX", "c++"))


def in_threads(work, count):
    """Calls work(0), ..., work(count - 1) in a thread each, and raises what the first of them raises."""
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        list(pool.map(work, range(count)))


def refuses(call, error, message):
    """The call raises that error of the package, with the message in its text, which begins with the code."""
    with pytest.raises(error, match=re.escape(message)) as caught:
        call()
    assert isinstance(caught.value, stepnet.Error)
    assert str(caught.value).startswith(caught.value.code + ": ")


@pytest.fixture
def set_max_memory():
    """Sets the limit of memory, for the time of a test that begins without memory that tests before it could give back."""
    gc.collect()
    limit, current = stepnet.memory().limit, stepnet.memory().current
    stepnet.set_max_memory(current)
    fill = 'op { type: "ConstantFill" output: "x" arg { name: "shape" ints: %d } } external_output: "x"'
    try:
        stepnet.load(fill % (current // 4))()
    except stepnet.OutOfMemoryError:
        pass  # what is left is in use
    stepnet.set_max_memory(limit)
    yield stepnet.set_max_memory
    stepnet.set_max_memory(limit)


@pytest.fixture
def interrupts():
    """Ctrl-C raises KeyboardInterrupt, also in a program that a shell has started in the background, where it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def cells():
    """The folder of example cells."""
    return ROOT / "examples" / "cells"


@pytest.fixture
def lstm(cells):
    return stepnet.cell(cells / "lstm.cell", D=5, H=4)


@pytest.fixture(params=["exchange", "arrays"])
def module(lstm, request, monkeypatch):
    """The cell as a module of PyTorch, whose tensors are exchanged in either of the ways that there are."""
    import stepnet.torch

    if request.param == "arrays":
        monkeypatch.setattr(stepnet.torch_autograd, "_exchange", None)
    elif stepnet.torch_autograd._exchange is None:
        pytest.skip("this PyTorch lends no functions for DLPack")
    return stepnet.torch.Module(lstm, seed=1)


@pytest.fixture
def random():
    return numpy.random.default_rng(7)


@pytest.fixture(scope="session")
def build_operators(tmp_path_factory):
    """Builds a library of operators from source files, named as the first of them, once.

    It finds StepNet's headers as an installed tree has them.
    """
    if COMPILER is None:
        pytest.skip("there is no C++ compiler")
    folder = tmp_path_factory.mktemp("operators")
    (folder / "include").mkdir()
    (folder / "include" / "stepnet").symlink_to(ROOT)

    def library(*sources):
        target = folder / (sources[0].stem + ".so")
        if not target.exists():
            command = [COMPILER, "-std=c++20", "-O1", "-shared", "-fPIC", f"-I{folder}/include", *sources, "-o", target]
            subprocess.run(command, check=True)
        return target

    return library
