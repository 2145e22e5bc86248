import pathlib

import numpy
import pytest

import stepnet

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def cells():
    """The folder of example cells."""
    return ROOT / "examples" / "cells"


@pytest.fixture
def lstm(cells):
    return stepnet.cell(cells / "lstm.cell", D=5, H=4)


@pytest.fixture
def random():
    return numpy.random.default_rng(7)
