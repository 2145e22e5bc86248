#!/usr/bin/env python3
"""What a call takes from Python that takes next to nothing to compute: call_python.py ROUNDS HIDDEN MICROSECONDS_FROM_C++

Prints rows of a table, of the least microseconds of calls of examples/cells/lstm.cell over one step of a batch of 1, on one
thread: of the cell with NumPy's arrays and, where PyTorch is installed, of stepnet.torch.Module.
"""
import importlib.util
import sys
from collections.abc import Callable

import numpy as np
from shared import least_ms

import stepnet

RUNS = 5000


def calls(hidden: int) -> dict[str, Callable[[], object]]:
    cell = stepnet.cell("examples/cells/lstm.cell", D=hidden, H=hidden, threads=1)
    params, x = cell.init(), np.zeros((1, 1, hidden), "float32")
    made: dict[str, Callable[[], object]] = {"`cell(params, x=x)`": lambda: cell(params, x=x)}
    if importlib.util.find_spec("torch") is not None:
        import torch

        from stepnet.torch import Module

        torch.set_num_threads(1)
        module, tensor = Module(cell, params).eval(), torch.from_numpy(x)

        def forward() -> object:
            with torch.no_grad():
                return module(tensor)

        made["`stepnet.torch.Module`, in `no_grad`"] = forward
    return made


def main(rounds: int, hidden: int, in_cpp: float) -> None:
    for name, call in calls(hidden).items():
        least = min(1e3 * least_ms(call, RUNS) for _ in range(rounds))
        print(f"| {name} | {in_cpp:.1f} | {least:.1f} | {least - in_cpp:.1f} |")


main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
