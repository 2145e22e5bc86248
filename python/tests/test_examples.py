"""The programs of examples/python do what they say."""

import importlib.util
import re
import subprocess
import sys

import pytest
from conftest import ROOT


def printed(program):
    path = ROOT / "examples" / "python" / program
    run = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_call():
    text = printed("call.py")
    assert "h of every step: (6, 2, 5), of the last one: (1, 2, 5)" in text
    differences = re.findall(r"^(.*): differs by (.*)$", text, re.MULTILINE)
    assert [name for name, _ in differences] == ["one step after the other", "after 4 steps of 6"]
    assert all(float(difference) < 1e-6 for _, difference in differences)


def test_train():
    errors = [float(error) for error in re.findall(r"error (\S+)", printed("train.py"))]
    assert len(errors) == 6 and errors[0] > 0.1 and errors[-1] < 0.01


def test_in_pytorch():
    if importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")
    text = printed("in_pytorch.py")
    assert float(re.search(r"differs by at most (\S+)", text)[1]) < 1e-5
    assert "cell lstm(x[D]; h, c[H]) {" in text
    first, second = (int(share) for share in re.findall(r": (\d+)% right", text))
    assert first >= 90 and second >= 90
