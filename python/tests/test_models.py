"""The trained models of examples/models: each has the figures of its card, by the command that the card names."""

import math
import re
import subprocess
import sys

import pytest
from conftest import ROOT

MODELS = ROOT / "examples" / "models"
NAMES = sorted(each.name for each in MODELS.iterdir() if each.is_dir())
ROWS = ["what it is", "files", "data", "licence of the data", "trained by", "seed", "measured by"]
NUMBER = re.compile(r"\d+\.?\d*")


def card_of(name):
    text = (MODELS / name / "README.md").read_text()
    return text, dict(re.findall(r"^\| ([a-z ]+?) \| (.+) \|$", text, re.MULTILINE))


@pytest.mark.parametrize("name", NAMES)
def test_a_model_has_the_figures_of_its_card(name):
    text, rows = card_of(name)
    assert list(rows) == ROWS
    shown = re.search(r"^It prints:\n\n```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[1]
    command = re.fullmatch(r"`python (.+)`", rows["measured by"])[1].split()
    run = subprocess.run([sys.executable, *command], capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    assert NUMBER.sub("#", run.stdout) == NUMBER.sub("#", shown)
    for measured, said in zip(NUMBER.findall(run.stdout), NUMBER.findall(shown)):
        last_digit = 10.0 ** -len(said.partition(".")[2])
        # Another machine rounds otherwise: of what is a whole number, nothing; of others, the last digits.
        tolerance = max(1.5 * last_digit, 1e-3 * float(said)) if "." in said else 0
        assert math.isclose(float(measured), float(said), rel_tol=0, abs_tol=tolerance), f"{run.stdout}\n{shown}"


def test_the_models_are_small_and_all_are_listed():
    listed = re.findall(r"^\| \[(\w+)\]\((\w+)/README.md\)", (MODELS / "README.md").read_text(), re.MULTILINE)
    assert sorted(name for name, _ in listed) == NAMES and all(name == folder for name, folder in listed)
    sizes = [sum(file.stat().st_size for file in (MODELS / name).iterdir()) for name in NAMES]
    assert max(sizes) < 1e6 and sum(sizes) < 2e6
