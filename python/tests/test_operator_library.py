"""Libraries of operators, built here as users build them: against the headers, and nothing of a build."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy
import pytest

import stepnet
from conftest import ROOT

CLIPPED_SUM = """cell clipped_sum(x[D]; h[D]) {
  size D = 3
  h = acme.Clip(h + x, limit=0.75)
  output h
}"""


def run(code, *arguments):
    return subprocess.run([sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True)


@pytest.fixture(scope="module")
def clip(build_operators):
    return build_operators(ROOT / "examples" / "custom_operator" / "clip.cc")


@pytest.fixture(scope="module")
def test_operators(build_operators):
    return build_operators(ROOT / "tests" / "tools" / "test_operators.cc")


def clipped_sum_and_gradients(x, h, limit):
    """The outputs, and the gradients of the sum of all of them by x and by the first h."""
    outputs, passes = [], []
    for x_t in x:
        total = h + x_t
        passes.append(numpy.abs(total) < limit)
        h = numpy.clip(total, -limit, limit)
        outputs.append(h)
    gradient = numpy.zeros_like(h)
    by_x = []
    for is_passed in reversed(passes):
        gradient = (gradient + 1) * is_passed
        by_x.append(gradient)
    return numpy.stack(outputs), numpy.stack(by_x[::-1]), gradient


def test_an_operator_of_ones_own_runs_in_a_cell_with_its_gradient(clip, random):
    stepnet.load_operator_library(clip)
    assert stepnet.ops()["acme.Clip"] == "Limits each element to [-limit, limit]."
    cell = stepnet.cell(CLIPPED_SUM, dtype="float64")
    x, start = random.normal(size=(9, 4, 3)), random.normal(size=(1, 4, 3))
    out, gradients = cell.value_and_grad({}, lambda out: (0, {"h": numpy.ones_like(out.h)}), x=x, h_init=start)
    h, by_x, by_start = clipped_sum_and_gradients(x, start[0], 0.75)
    numpy.testing.assert_allclose(cell({}, x=x, h_init=start).h, h, rtol=1e-12)
    assert (numpy.abs(h) == 0.75).any() and (numpy.abs(h) < 0.75).any()
    numpy.testing.assert_array_equal(gradients.inputs["x"], by_x)
    numpy.testing.assert_array_equal(gradients.inputs["h_init"][0], by_start)


def test_a_kernel_in_a_library_runs_and_what_it_throws_arrives(test_operators):
    stepnet.load_operator_library(os.fspath(test_operators))
    text = "cell halves(x[D]; h[D]) {\n  size D = 3\n  h = test.Half(h + x)\n  output h\n}"
    x = numpy.ones((2, 1, 3), "float32")
    numpy.testing.assert_array_equal(stepnet.cell(text)({}, x=x).h[:, 0, 0], [0.5, 0.75])
    failing = stepnet.cell(text.replace("Half", "Throws"))
    with pytest.raises(stepnet.OperatorFailedError, match="the disk is on fire\n  at op 1 `h_t = test.Throws"):
        failing({}, x=x)


def test_without_its_library_a_type_is_refused_with_what_to_do():
    done = run("import stepnet, sys; stepnet.cell(sys.argv[1])", CLIPPED_SUM)
    assert 'no operator type "acme.Clip"' in done.stderr
    assert "Python's load_operator_library loads" in done.stderr


def test_a_library_that_is_loaded_again_changes_nothing(clip, tmp_path):
    stepnet.load_operator_library(clip)
    stepnet.load_operator_library(clip)
    done = run(
        "import stepnet, sys; [stepnet.load_operator_library(each) for each in sys.argv[1:]]",
        clip,
        shutil.copy(clip, tmp_path / "copy.so"),
    )
    assert "stepnet.errors.InvalidNetError: " in done.stderr
    assert 'operator type "acme.Clip" is registered twice' in done.stderr


def test_a_library_that_is_refused_leaves_what_was_there(clip, tmp_path):
    code = """
import numpy, stepnet, sys
stepnet.load_operator_library(sys.argv[1])
cell = stepnet.cell(sys.argv[3])
for _ in range(2):
    try:
        stepnet.load_operator_library(sys.argv[2])
    except stepnet.InvalidNetError as error:
        print("refused")
print(cell({}, x=numpy.ones((1, 1, 3), "float32")).h.tolist(), "acme.Clip" in stepnet.ops())
"""
    done = run(code, clip, shutil.copy(clip, tmp_path / "copy.so"), CLIPPED_SUM)
    assert done.stdout.splitlines() == ["refused", "refused", "[[[0.75, 0.75, 0.75]]] True"], done.stderr


def test_what_cannot_be_loaded_says_why(build_operators, tmp_path):
    with pytest.raises(stepnet.InputOutputError, match=re.escape(f"no operator library {tmp_path}/none.so")):
        stepnet.load_operator_library(tmp_path / "none.so")
    (tmp_path / "text.so").write_text("no library")
    with pytest.raises(stepnet.InputOutputError, match=r"it is no shared library \(ELF\)"):
        stepnet.load_operator_library(tmp_path / "text.so")
    throwing = build_operators(ROOT / "tests" / "tools" / "throwing_operators.cc")
    with pytest.raises(stepnet.InputOutputError, match="a constructor in it throws"):
        stepnet.load_operator_library(throwing)
    (tmp_path / "lost.cc").write_text(
        '#include "stepnet/core/operator.h"\nnamespace stepnet { void Lost(); }\n'
        'const stepnet::Registration lost = (stepnet::Lost(), stepnet::Operator("test.Lost"));'
    )
    with pytest.raises(stepnet.InputOutputError, match="undefined symbol: _ZN7stepnet4LostEv"):
        stepnet.load_operator_library(build_operators(tmp_path / "lost.cc"))
    with pytest.raises(stepnet.TypeMismatchError, match="path is 3; it must be a path"):
        stepnet.load_operator_library(3)


def test_nothing_of_ours_is_there_for_other_packages(clip):
    """What a library of operators finds is found by no other: its dependencies would come along."""
    code = """
import ctypes, stepnet, sys
stepnet.load_operator_library(sys.argv[1])
process = ctypes.CDLL(None)
# OperatorTypes(), google::protobuf::internal::VerifyVersion(), oneDNN
for name in "_ZN7stepnet13OperatorTypesB5cxx11Ev", "_ZN6google8protobuf8internal13VerifyVersionEiiPKc", "dnnl_sgemm":
    assert not hasattr(process, name), name
assert hasattr(ctypes.CDLL(stepnet.__path__[0] + "/libstepnet.so"), "_ZN7stepnet13OperatorTypesB5cxx11Ev")
"""
    done = run(code, clip)
    assert done.returncode == 0, done.stderr


def test_the_library_shows_stepnet_and_the_module_alone():
    if shutil.which("nm") is None:
        pytest.skip("there is no nm")
    library = pathlib.Path(stepnet.__path__[0]) / "libstepnet.so"
    shown = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    names = {line.split()[-1] for line in shown.splitlines()}
    others = {name for name in names if not re.match(r"_Z(N|NK|T[ISVT]N|T[hv].*_NK?|GVN|GVZNK?|ZNK?)7stepnet", name)}
    assert others == {"PyInit_stepnet"}
    assert not any("6python" in name for name in names), "the bindings"
