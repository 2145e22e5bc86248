#!/usr/bin/env python3
"""What a call takes from Python that takes next to nothing to compute:

  call_python.py ROUNDS HIDDEN MICROSECONDS_FROM_C++ MICROSECONDS_OF_BOTH_FROM_C++

Prints rows of a table, of the least microseconds of calls of examples/cells/lstm.cell over one step of a batch of 1, on one
thread: of the cell with NumPy's arrays and, where PyTorch is installed, of stepnet.torch.Module. "Both" are forward and
backward. Rows without a figure from C++ are PyTorch's own: what it takes for a module with a function that takes and gives as
many tensors, and gradients, and computes nothing.
"""
import importlib.util
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from shared import least_ms

import stepnet

RUNS = 5000
Calls = dict[str, tuple[str, Callable[[], object]]]


def calls_of_module(cell: stepnet.Cell, params: dict[str, np.ndarray], x: np.ndarray) -> Calls:
    import torch

    from stepnet.torch import Module

    torch.set_num_threads(1)

    class Nothing(torch.autograd.Function):
        """Takes what the module takes, and gives as many outputs as the cell, and as many gradients."""

        @staticmethod
        def forward(ctx: Any, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            ctx.set_materialize_grads(False)
            ctx.save_for_backward(*tensors)
            return tuple(torch.empty(1, 1, x.shape[-1]) for _ in cell.outputs)

        @staticmethod
        def backward(ctx: Any, *_: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
            return tuple(torch.empty_like(tensor) for tensor in ctx.saved_tensors)

    class Empty(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return Nothing.apply(*own, x)

    module, tensor = Module(cell, params), torch.from_numpy(x)
    inference = Module(cell, params).eval()
    leaf = tensor.clone().requires_grad_()
    gradient = torch.ones_like(tensor)
    own, empty = list(module.parameters()), Empty()

    def forward() -> object:
        with torch.no_grad():
            return inference(tensor)

    return {
        "`stepnet.torch.Module`, in `no_grad`": ("forward", forward),
        "`stepnet.torch.Module`, for gradients, forward": ("forward", lambda: module(tensor)),
        "`stepnet.torch.Module`, forward and backward": ("both", lambda: module(leaf).h.backward(gradient)),
        "a module with an empty `autograd.Function`, forward": ("", lambda: empty(tensor)),
        "a module with an empty `autograd.Function`, both": ("", lambda: empty(leaf)[0].backward(gradient)),
    }


def main(rounds: int, hidden: int, forward: float, both: float) -> None:
    in_cpp = {"forward": forward, "both": both}
    cell = stepnet.cell("examples/cells/lstm.cell", D=hidden, H=hidden, threads=1)
    params, x = cell.init(), np.zeros((1, 1, hidden), "float32")
    calls: Calls = {"`cell(params, x=x)`": ("forward", lambda: cell(params, x=x))}
    if importlib.util.find_spec("torch") is not None:
        calls |= calls_of_module(cell, params, x)
    for name, (pass_, call) in calls.items():
        least = min(1e3 * least_ms(call, RUNS) for _ in range(rounds))
        own = f"{in_cpp[pass_]:.1f} | {least:.1f} | {least - in_cpp[pass_]:.1f}" if pass_ else f"| {least:.1f} |"
        print(f"| {name} | {own} |")


main(int(sys.argv[1]), int(sys.argv[2]), *map(float, sys.argv[3:]))
