#!/usr/bin/env python3
"""Cells of examples/cells and bench/cells in PyTorch on the CPU, with StepNet's weights: the peers of scripts/bench_cells.

Each is written by hand as somebody would who wants it fast: what follows from the input alone is computed before the loop,
products with one operand are one, PyTorch's fused operators are used. The loop is Python's. As "eager" it runs as it is; as
"compiled" torch.compile makes one program of the whole loop, for the shape that it gets.

CELL is the file of a cell. FOLDER has a file for each blob that StepNet's net reads, as x.npy, and gradient.npy, that of the
output h; StepNet's results are in FOLDER/forward and FOLDER/both. PASS is forward or both.

  cells_torch.py data FOLDER CELL STEPS BATCH SIZE=N...   writes them, random
  cells_torch.py flops CELL SIZE=N...                     of all products, for a step of a sequence
  cells_torch.py serve eager|compiled THREADS             compares, then times: answers lines "FOLDER CELL PASS RUNS"
                                                          with milliseconds
  cells_torch.py version
"""
import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, bmm, sigmoid, tanh
from torch.nn.functional import layer_norm, linear, logsigmoid, softmax
from shared import Run, difference, least_ms, serve, write_parameters

TOLERANCE = 1e-4  # of the greatest element, or of 1

Blobs = dict[str, Tensor]


def loop(step: Callable[..., tuple[Tensor, ...]], inputs: list[Tensor], *states: Tensor) -> Tensor:
    """What a step returns: the states after it, of which the first is the output."""
    outputs = []
    for rows in zip(*(blob.unbind(0) for blob in inputs)):
        states = step(*rows, *states)
        outputs.append(states[0])
    return torch.stack(outputs)


def zeros(p: Blobs, *shape: int) -> Tensor:
    return p["x"].new_zeros(p["x"].shape[1], *shape)


def layer_norm_lstm(p: Blobs) -> Tensor:
    u, size = p["u"], p["u"].shape[1]
    of_input = layer_norm(linear(p["x"], p["w"]), [4 * size], p["gain_w"], p["shift_w"]) + p["b"]

    def step(of_input, h, c):
        a = of_input + layer_norm(linear(h, u), [4 * size], p["gain_u"], p["shift_u"])
        f, i, o = sigmoid(a[:, : 3 * size]).chunk(3, -1)
        c = torch.addcmul(f * c, i, tanh(a[:, 3 * size :]))
        return o * tanh(layer_norm(c, [size], p["gain_c"], p["shift_c"])), c

    return loop(step, [of_input], zeros(p, size), zeros(p, size))


def mi_lstm(p: Blobs) -> Tensor:
    u, size = p["u"], p["u"].shape[1]
    wx = linear(p["x"], p["w"])
    factor = p["alpha"] * wx + p["beta_u"]
    term = p["beta_w"] * wx + p["b"]

    def step(factor, term, h, c):
        a = torch.addcmul(term, factor, linear(h, u))
        i, f, o = sigmoid(a[:, : 3 * size]).chunk(3, -1)
        c = torch.addcmul(f * c, i, tanh(a[:, 3 * size :]))
        return o * tanh(c), c

    return loop(step, [factor, term], zeros(p, size), zeros(p, size))


def peephole_lstm(p: Blobs) -> Tensor:
    u, size = p["u"], p["u"].shape[1]
    of_cell = torch.cat([p["p_i"], p["p_f"]])

    def step(of_input, h, c):
        a = of_input + linear(h, u)
        i, f = sigmoid(torch.addcmul(a[:, : 2 * size], of_cell, torch.cat([c, c], -1))).chunk(2, -1)
        c = torch.addcmul(f * c, i, tanh(a[:, 3 * size :]))
        return sigmoid(torch.addcmul(a[:, 2 * size : 3 * size], p["p_o"], c)) * tanh(c), c

    return loop(step, [linear(p["x"], p["w"], p["b"])], zeros(p, size), zeros(p, size))


def slstm(p: Blobs) -> Tensor:
    u, size = p["u"], p["u"].shape[1]

    def step(of_input, h, c, n, m):
        a_i, a_f, a_o, a_z = (of_input + linear(h, u)).chunk(4, -1)
        kept = logsigmoid(a_f) + m
        m = torch.maximum(kept, a_i)
        i = torch.exp(a_i - m)
        f = torch.exp(kept - m)
        c = torch.addcmul(f * c, i, tanh(a_z))
        n = torch.addcmul(i, f, n)
        return sigmoid(a_o) * c / n, c, n, m

    return loop(step, [linear(p["x"], p["w"], p["b"])], *(zeros(p, size) for _ in range(4)))


def attention_dot(p: Blobs) -> Tensor:
    u, v, size = p["u"], p["v"], p["u"].shape[1]
    values = p["encoder"].transpose(0, 1).contiguous()
    keys = values.transpose(1, 2)

    def step(of_input, h, c, context):
        a = of_input + linear(h, u) + linear(context, v)
        i, f, o = sigmoid(a[:, : 3 * size]).chunk(3, -1)
        c = torch.addcmul(f * c, i, tanh(a[:, 3 * size :]))
        h = o * tanh(c)
        weights = softmax(bmm(linear(h, p["w_query"]).unsqueeze(1), keys), -1)
        return h, c, bmm(weights, values).squeeze(1)

    return loop(step, [linear(p["x"], p["w"], p["b"])], zeros(p, size), zeros(p, size), zeros(p, values.shape[2]))


def two_speeds(p: Blobs) -> Tensor:
    u, v, size = p["u"], p["v"], p["u"].shape[1]
    speed = sigmoid(p["speed"])

    def step(of_input, h, slow):
        h_r, h_z, h_n = linear(h, u).chunk(3, -1)
        a_z, a_n = (of_input[:, size:] + linear(slow, v)).chunk(2, -1)
        n = tanh(torch.addcmul(a_n, sigmoid(of_input[:, :size] + h_r), h_n))
        h = torch.lerp(n, h, sigmoid(a_z + h_z))
        return h, torch.lerp(slow, h, speed)

    return loop(step, [linear(p["x"], p["w"], p["b"])], zeros(p, size), zeros(p, size))


def mi_norm_gru(p: Blobs) -> Tensor:
    u, size = p["u"], p["u"].shape[1]
    wx = layer_norm(linear(p["x"], p["w"]), [3 * size])
    factor = p["alpha"] * wx + p["beta_u"]
    term = p["beta_w"] * wx + p["b"]

    def step(factor, term, h):
        uh = factor * layer_norm(linear(h, u), [3 * size])
        r, z = sigmoid(term[:, : 2 * size] + uh[:, : 2 * size]).chunk(2, -1)
        n = tanh(torch.addcmul(term[:, 2 * size :], r, uh[:, 2 * size :]))
        return (torch.lerp(n, h, z),)

    return loop(step, [factor, term], zeros(p, size))


def delta_memory(p: Blobs) -> Tensor:
    u, size = p["u"], p["u"].shape[1]
    rows = (u.shape[0] - 2 - 2 * size) // 2

    def step(of_input, h, memory):
        a = of_input + linear(h, u)
        key, query = softmax(a[:, : 2 * rows].view(-1, 2, rows), -1).unsqueeze(2).unbind(1)
        value, gates = a[:, 2 * rows : 2 * rows + size], sigmoid(a[:, 2 * rows + size :])
        faded = gates[:, size : size + 1, None] * memory
        written = gates[:, size + 1 :, None] * (value.unsqueeze(1) - bmm(key, faded))
        memory = torch.baddbmm(faded, key.transpose(1, 2), written)
        return gates[:, :size] * tanh(bmm(query, memory).squeeze(1)), memory

    return loop(step, [linear(p["x"], p["w"], p["b"])], zeros(p, size), zeros(p, rows, size))


CELLS = [layer_norm_lstm, mi_lstm, peephole_lstm, slstm, attention_dot, two_speeds, mi_norm_gru, delta_memory]

# A product with a parameter is all of a cell's work but for these: multiply-adds for a step of a sequence.
OTHER_PRODUCTS = {
    "attention_dot": lambda n: 2 * n["S"] * n["E"],
    "delta_memory": lambda n: 3 * n["K"] * n["H"],
}


class Declared:
    """What the file of a cell declares, for these sizes."""

    def __init__(self, file: str, sizes: dict[str, int]) -> None:
        text = re.sub("#.*", "", Path(file).read_text())
        self.sizes = {name: int(n) for name, n in re.findall(r"size (\w+) = (\d+)", text)} | sizes
        self.states = {}
        self.inputs = {}
        header = re.search(r"cell \w+\((.*)\)", text).group(1)
        for k, part in enumerate(header.split(";")):
            for names, shape in re.findall(r"([\w, ]+)\[([^]]*)]", part):
                for name in re.findall(r"\w+", names):
                    (self.states if k == 1 else self.inputs)[name] = shape
        self.parameters = {}
        for name, shape, fill in re.findall(r"param (\w+)\[([^]]*)\](?: = ([\d.]+))?", text):
            self.parameters[name] = (self.shape(shape), float(fill or 0))

    def shape(self, text: str) -> tuple[int, ...]:
        return tuple(eval(size, {}, self.sizes) for size in text.split(","))

    def flops(self, cell: str) -> int:
        elements = sum(int(np.prod(shape)) for shape, _ in self.parameters.values() if len(shape) == 2)
        return 2 * (elements + OTHER_PRODUCTS.get(cell, lambda _: 0)(self.sizes))


def write_data(folder: Path, cell: str, steps: int, batch: int, sizes: dict[str, int]) -> None:
    folder.mkdir(parents=True)
    random = np.random.default_rng(1)
    declared = Declared(cell, sizes | {"B": batch})
    hidden = declared.sizes["H"]

    def write(name: str, values: np.ndarray) -> None:
        np.save(folder / f"{name}.npy", values.astype(np.float32))

    for name, shape in declared.inputs.items():
        sequence = (steps, batch) if name == "x" else ()
        write(name, random.standard_normal(sequence + declared.shape(shape)))
    write("gradient", random.standard_normal((steps, batch, hidden)))
    # Small gains: with those of 1 layer norms make a loop chaotic, and rounding grows with its steps.
    parameters = declared.parameters.items()
    write_parameters(
        folder, {name: fill / 4 + random.uniform(-1, 1, shape) / hidden**0.5 for name, (shape, fill) in parameters}
    )
    for name, shape in declared.states.items():
        write(f"{name}_init", np.zeros((1, batch, *declared.shape(shape))))


class Peer:
    def __init__(self, mode: str, threads: int) -> None:
        torch.set_num_threads(threads)
        self.mode = mode
        self.loaded = None

    def load(self, folder: Path, cell: str) -> None:
        torch._dynamo.reset()
        network = {network.__name__: network for network in CELLS}[cell]
        self.network = network if self.mode == "eager" else torch.compile(network, fullgraph=True, dynamic=False)
        files = [file for file in folder.glob("*.npy") if not file.stem.endswith("_init")]
        self.blobs = {file.stem: torch.from_numpy(np.load(file)).requires_grad_() for file in sorted(files)}
        self.gradient = self.blobs.pop("gradient").detach()
        self.constants = {name: blob.detach() for name, blob in self.blobs.items()}

    def run_of(self, pass_: str) -> Run:
        return self.both if pass_ == "both" else self.forward

    def forward(self) -> Tensor:
        with torch.inference_mode():
            return self.network(self.constants)

    def both(self) -> tuple[Tensor, ...]:
        """The gradients of sum(h * gradient) by the inputs and all parameters."""
        return torch.autograd.grad(self.network(self.blobs), list(self.blobs.values()), self.gradient)

    def check(self, folder: Path, cell: str, pass_: str) -> None:
        if pass_ == "forward":
            results = {"h": self.forward()}
        else:
            results = {f"{name}_grad": gradient for name, gradient in zip(self.blobs, self.both())}
        for name, theirs in results.items():
            ours = np.load(folder / pass_ / f"{name}.npy")
            allowed = TOLERANCE * max(1, np.abs(ours).max())
            error = difference(ours, theirs.numpy())
            if not error <= allowed:
                sys.exit(f"{cell}: {name} of StepNet and of PyTorch ({self.mode}) differ by {error:.2g}, more than {allowed:.2g}")

    def milliseconds(self, folder: str, file: str, pass_: str, runs: str) -> float:
        cell = Path(file).stem
        if self.loaded != (folder, pass_):
            self.load(Path(folder), cell)
            self.check(Path(folder), cell, pass_)
            self.loaded = folder, pass_
        return least_ms(self.run_of(pass_), int(runs))


def main() -> None:
    match sys.argv[1:]:
        case ["data", folder, cell, steps, batch, *sizes]:
            write_data(Path(folder), cell, int(steps), int(batch), numbers(sizes))
        case ["flops", cell, *sizes]:
            print(Declared(cell, numbers(sizes)).flops(Path(cell).stem))
        case ["serve", mode, threads]:
            serve(Peer(mode, int(threads)).milliseconds)
        case ["version"]:
            print(torch.__version__)
        case _:
            sys.exit(__doc__)


def numbers(sizes: list[str]) -> dict[str, int]:
    return {name: int(n) for name, n in (size.split("=") for size in sizes)}


if __name__ == "__main__":
    main()
