"""StepNet next to packages that bring protobuf and oneDNN themselves, in versions of their own."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

import stepnet

USES = {
    "stepnet": """
import numpy, stepnet
lines = "size D = 64", "size H = 64", "param w[H, D]", "param u[H, H]", "h = Tanh(x @ w + h @ u)", "output h"
cell = stepnet.cell("cell simple(x[D]; h[H]) {\\n" + "\\n".join(lines) + "\\n}")
x = numpy.random.default_rng(0).normal(size=(40, 32, 64)).astype("float32")
params = cell.init(seed=1)
out, gradients = cell.value_and_grad(params, "h", x=x)
h = numpy.zeros((32, 64))
for x_t in x:
    h = numpy.tanh(x_t @ params["w"].T + h @ params["u"].T)
out = cell(params, x=x).h
assert numpy.abs(out[-1] - h).max() < 1e-4, numpy.abs(out[-1] - h).max()
assert numpy.isfinite(gradients.params["w"]).all()
stepnet.expand(cell.text)
""",
    "torch": """
import torch
a, b = torch.arange(256.0 * 256).reshape(256, 256) / 65536, torch.eye(256)
assert torch.equal(a @ b, a)
lstm = torch.nn.LSTM(8, 8)
lstm(torch.ones(4, 2, 8))[0].sum().backward()
assert torch.isfinite(lstm.weight_hh_l0.grad).all()
""",
    "onnx": """
import onnx, onnx.helper
node = onnx.helper.make_node("Tanh", ["x"], ["y"])
info = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in "xy"]
model = onnx.helper.make_model(onnx.helper.make_graph([node], "g", info[:1], info[1:]))
onnx.checker.check_model(onnx.load_from_string(model.SerializeToString()))
onnx.shape_inference.infer_shapes(model)
""",
}


def check(code, *arguments):
    done = subprocess.run([sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, f"ends with {done.returncode}: {done.stderr[-2000:]}"


# StepNet before, between and after the others.
ORDERS = [
    ("stepnet", "torch", "onnx"),
    ("torch", "stepnet", "onnx"),
    ("onnx", "stepnet", "torch"),
    ("torch", "onnx", "stepnet"),
    ("stepnet", "onnx"),
    ("onnx", "stepnet"),
]


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_packages_work_together_in_any_order(order):
    for name in order:
        pytest.importorskip(name)
    imports = "".join(f"import {name}\n" for name in order)
    check(imports + "".join(USES[name] for name in order) + "".join(USES[name] for name in reversed(order)))


# What libstepnet.so finds nowhere but in what it came with: by these names other packages have something else.
HOSTILE = """
#include <stdio.h>
#include <unistd.h>
#define HOSTILE(name) void name(void) { puts("this is another " #name); fflush(stdout); _exit(3); }
HOSTILE(_ZN6google8protobuf8internal13VerifyVersionEiiPKc)
HOSTILE(_ZN6google8protobuf11MessageLite15ParseFromStringERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE)
HOSTILE(_ZN6google8protobuf8internal17AssignDescriptorsEPFPKNS1_15DescriptorTableEvEPSt9once_flagRKNS0_8MetadataE)
HOSTILE(_ZN6google8protobuf11MessageLiteD2Ev)
HOSTILE(dnnl_sgemm)
HOSTILE(dnnl_primitive_create)
"""


@pytest.fixture
def hostile(tmp_path):
    """A library with protobuf and oneDNN of another version, of which nothing works."""
    compiler = os.environ.get("CC", "cc")
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler}")
    (tmp_path / "hostile.c").write_text(HOSTILE)
    library = tmp_path / "hostile.so"
    subprocess.run([compiler, "-shared", "-fPIC", tmp_path / "hostile.c", "-o", library], check=True)
    return library


def test_another_protobuf_in_the_process_is_not_taken_for_ours(hostile):
    check("import ctypes, sys; ctypes.CDLL(sys.argv[1])\n" + USES["stepnet"], hostile)


def is_a_wheel_for_all():
    """Whether scripts/wheel has made the package: then what it needs has names of its own."""
    return (pathlib.Path(stepnet.__path__[0]).parent / "stepnet.libs").is_dir()


@pytest.mark.skipif(not is_a_wheel_for_all(), reason="the package uses libraries of the system by their names")
def test_not_even_one_that_all_see(hostile):
    check("import ctypes, sys; ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)\n" + USES["stepnet"], hostile)


@pytest.mark.skipif(not is_a_wheel_for_all(), reason="the package uses libraries of the system by their names")
def test_nor_that_of_torch_where_all_see_it():
    pytest.importorskip("torch")
    code = "import os, sys; sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL); import torch\n"
    check(code + USES["stepnet"] + USES["torch"])


def test_modules_for_others_are_imported_when_they_are_used():
    pytest.importorskip("onnx", reason="onnx is not installed")
    code = "import sys, stepnet; assert 'onnx' not in sys.modules; stepnet.onnx.export; assert not hasattr(stepnet, 'jax')"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_modules_of_packages_that_are_not_installed():
    """``None`` in sys.modules is what is not there."""
    check("""
import sys
sys.modules["torch"] = sys.modules["onnx"] = None
import stepnet
assert not hasattr(stepnet, "torch") and not hasattr(stepnet, "onnx") and not hasattr(stepnet, "nope")
for call, kind in (
    (lambda: stepnet.torch, AttributeError),
    (lambda: stepnet.from_torch(3), ModuleNotFoundError),
    (lambda: stepnet.to_torch(stepnet.layers("gru", 2, 3), {}), ModuleNotFoundError),
    (lambda: __import__("stepnet.torch"), ModuleNotFoundError),
):
    try:
        call()
    except kind as error:
        assert "needs PyTorch: pip install 'stepnet[torch]'" in str(error), error
    else:
        raise AssertionError("nothing was raised")
""")
