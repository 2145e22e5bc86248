#!/usr/bin/env python3
"""stepnet.torch.Module on the CPU, against what users of PyTorch have without it, within one process: nn.LSTM, and
examples/cells/layer_norm_lstm.cell as a loop of Python (of cells_torch.py).

  module_torch.py ROUNDS THREADS BATCH HIDDEN STEPS   prints rows of a table, of least milliseconds

Results are compared first. "forward" computes no gradients; "both" also those of the parameters and the input.
"""
import sys
import time
from collections.abc import Callable

import torch
from cells_torch import layer_norm_lstm
from shared import least_ms

import stepnet
import stepnet.torch

TOLERANCE = 1e-5
Network = Callable[[torch.Tensor], torch.Tensor]


def networks(hidden: int, threads: int) -> dict[str, tuple[Network, Network]]:
    """For each row what StepNet computes, and what PyTorch does, with the same parameters."""
    lstm = torch.nn.LSTM(hidden, hidden)
    cell, params = stepnet.from_torch(lstm)
    of_lstm = stepnet.torch.Module(cell.with_options(threads=threads), params)
    cell = stepnet.cell("examples/cells/layer_norm_lstm.cell", D=hidden, H=hidden, threads=threads)
    # Small gains: with those of 1 layer norms make a loop chaotic, and rounding grows with its steps.
    params = {name: array / 4 if name.startswith("gain") else array for name, array in cell.init().items()}
    normed = stepnet.torch.Module(cell, params)

    def loop(x: torch.Tensor) -> torch.Tensor:
        return layer_norm_lstm({"x": x, **dict(normed.named_parameters())})

    return {
        "nn.LSTM": (lambda x: of_lstm(x).h, lambda x: lstm(x)[0]),
        "layer_norm_lstm, a loop": (lambda x: normed(x).h, loop),
    }


def run_of(network: Network, pass_: str, x: torch.Tensor, gradient: torch.Tensor) -> Callable[[], torch.Tensor]:
    def forward() -> torch.Tensor:
        with torch.no_grad():
            return network(x)

    def both() -> torch.Tensor:
        x.grad = None
        network(x).backward(gradient)  # gradients of parameters add up, which costs both the same
        return x.grad

    return forward if pass_ == "forward" else both


def check(name: str, ours: torch.Tensor, theirs: torch.Tensor) -> None:
    error = (ours - theirs).abs().max().item() / max(1, theirs.abs().max().item())
    if not error <= TOLERANCE:
        sys.exit(f"{name}: results of StepNet and of PyTorch differ by {error:.2g}, more than {TOLERANCE}")


def main(rounds: int, threads: int, batch: int, hidden: int, steps: int) -> None:
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    x = torch.randn(steps, batch, hidden, requires_grad=True)
    gradient = torch.randn(steps, batch, hidden)
    for name, (ours, theirs) in networks(hidden, threads).items():
        for pass_ in ("forward", "both"):
            runs = [run_of(network, pass_, x, gradient) for network in (ours, theirs)]
            check(name, *(run() for run in runs))
            least = [float("inf")] * 2
            for _ in range(rounds):
                for k, run in enumerate(runs):
                    time.sleep(0.05)  # threads that still spin must not slow down whoever is next
                    least[k] = min(least[k], least_ms(run, 5))
            shape = f"{batch}, {hidden}, {steps}"
            words = {"forward": "forward", "both": "forward and backward"}[pass_]
            print(f"| {name} | {words} | {shape} | {threads} | {least[0]:.1f} | {least[1]:.1f} | {least[1] / least[0]:.2f} |")


main(*map(int, sys.argv[1:]))
