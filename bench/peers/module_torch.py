#!/usr/bin/env python3
"""stepnet.torch.Module, against what users of PyTorch have without it, within one process: nn.LSTM, and
examples/cells/layer_norm_lstm.cell as a loop of Python (of cells_torch.py).

  module_torch.py ROUNDS THREADS BATCH HIDDEN STEPS        prints rows of a table, of least milliseconds
  module_torch.py --cuda ROUNDS BATCH HIDDEN STEPS         on a GPU: of iterations of which the host is at the next one while
                                                           the GPU is at the last; in brackets the host's part. float32

Results are compared first. "forward" computes no gradients; "both" also those of the parameters and the input, which is
another tensor in each iteration.
"""
import itertools
import sys
import time
from collections.abc import Callable

import torch
from cells_torch import layer_norm_lstm
from shared import least_ms

import stepnet
import stepnet.torch

TOLERANCE = {"cpu": 1e-5, "cuda": 1e-4}
INPUTS = 16
Network = Callable[[torch.Tensor], torch.Tensor]


def networks(hidden: int, threads: int, device: str) -> dict[str, tuple[Network, Network]]:
    """For each row what StepNet computes, and what PyTorch does, with the same parameters."""
    lstm = torch.nn.LSTM(hidden, hidden).to(device)
    cell, params = stepnet.from_torch(lstm)
    of_lstm = stepnet.torch.Module(cell.with_options(threads=threads), params).to(device)
    cell = stepnet.cell("examples/cells/layer_norm_lstm.cell", D=hidden, H=hidden, threads=threads)
    # Small gains: with those of 1 layer norms make a loop chaotic, and rounding grows with its steps.
    params = {name: array / 4 if name.startswith("gain") else array for name, array in cell.init().items()}
    normed = stepnet.torch.Module(cell, params).to(device)

    def loop(x: torch.Tensor) -> torch.Tensor:
        return layer_norm_lstm({"x": x, **dict(normed.named_parameters())})

    return {
        "nn.LSTM": (lambda x: of_lstm(x).h, lambda x: lstm(x)[0]),
        "layer_norm_lstm, a loop": (lambda x: normed(x).h, loop),
    }


def run_of(network: Network, pass_: str, inputs: list[torch.Tensor], gradient: torch.Tensor) -> Callable[[], torch.Tensor]:
    following = itertools.cycle(inputs)

    def forward() -> torch.Tensor:
        with torch.no_grad():
            return network(next(following))

    def both() -> torch.Tensor:
        x = next(following)
        x.grad = None
        network(x).backward(gradient)  # gradients of parameters add up, which costs both the same
        return x.grad

    return forward if pass_ == "forward" else both


def check(name: str, ours: torch.Tensor, theirs: torch.Tensor) -> None:
    error = (ours - theirs).abs().max().item() / max(1, theirs.abs().max().item())
    max_error = TOLERANCE[ours.device.type]
    if not error <= max_error:
        sys.exit(f"{name}: results of StepNet and of PyTorch differ by {error:.2g}, more than {max_error}")


def mean_ms(run: Callable[[], torch.Tensor], times: int) -> tuple[float, float]:
    """Of one of these runs, with the wait for the GPU in the end, and what the host took of it."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(times):
        run()
    host = time.perf_counter()
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - begin) / times, 1e3 * (host - begin) / times


def main(device: str, rounds: int, threads: int, batch: int, hidden: int, steps: int) -> None:
    torch.set_num_threads(threads)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(1)
    inputs = [torch.randn(steps, batch, hidden, device=device, requires_grad=True) for _ in range(INPUTS)]
    gradient = torch.randn(steps, batch, hidden, device=device)
    for name, (ours, theirs) in networks(hidden, threads, device).items():
        for pass_ in ("forward", "both"):
            runs = [run_of(network, pass_, inputs, gradient) for network in (ours, theirs)]
            check(name, *(run() for run in runs))
            least = [(float("inf"), 0.0)] * 2
            if device == "cuda":
                for run in runs:
                    mean_ms(run, INPUTS)  # what comes again is recorded
            for _ in range(rounds):
                for k, run in enumerate(runs):
                    time.sleep(0.05)  # threads that still spin must not slow down whoever is next
                    took = mean_ms(run, 2 * INPUTS) if device == "cuda" else (least_ms(run, 5), 0.0)
                    least[k] = min(least[k], took)
            shape = f"{batch}, {hidden}, {steps}"
            words = {"forward": "forward", "both": "forward and backward"}[pass_]
            ratio = least[1][0] / least[0][0]
            if device == "cuda":
                columns = " | ".join(f"{all_:.2f} ({host:.2f})" for all_, host in least)
                print(f"| {name} | {words} | {shape} | {columns} | {ratio:.2f} |", flush=True)
            else:
                print(f"| {name} | {words} | {shape} | {threads} | {least[0][0]:.1f} | {least[1][0]:.1f} | {ratio:.2f} |")


if sys.argv[1] == "--cuda":
    first, *others = map(int, sys.argv[2:])
    main("cuda", first, 1, *others)
else:
    main("cpu", *map(int, sys.argv[1:]))
