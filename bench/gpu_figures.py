#!/usr/bin/env python3
"""Figures of scripts/bench_gpu.

  gpu_figures.py field NAME FILE              a number of what `rnn_runner bench --json` printed
  gpu_figures.py floor GPU MATH SIZES FILE    the least time that a run can take, in ms, and what takes it
  gpu_figures.py near DIR DIR TOLERANCE       whether the tensors of two folders are as near as a part of their largest

SIZES: LOOPS,BATCH,INPUT,HIDDEN,STEPS,PASSES; LOOPS are layers times directions, PASSES 1 forward, 3 with the gradient,
which multiplies twice as much.
"""
import json
import pathlib
import sys

# What the data sheets say, without sparsity: TFLOP/s of float32 and of TF32, TB/s of the memory.
CARDS = {
    "H200": (67, 494, 4.8),
    "H100 PCIe": (51, 378, 2.0),
    "H100": (67, 494, 3.35),
    "A100": (19.5, 156, 2.0),
}
# Microseconds from one kernel of a graph to the next that waits for it, on an H200.
NODE_US = 0.55


def floor(gpu, math, sizes, path):
    card = next((rates for name, rates in CARDS.items() if name in gpu), None)
    loops, batch, inputs, hidden, steps, passes = (int(size) for size in sizes.split(","))
    parts = {}
    if card is not None:
        flops = passes * loops * 2 * steps * batch * 4 * hidden * (inputs + hidden)
        # Each weight once, the sequences in and out once.
        floats = passes * loops * (4 * hidden * (inputs + hidden) + steps * batch * (inputs + hidden))
        parts["flops"] = flops / (card[1 if math == "tf32" else 0] * 1e12)
        parts["bytes"] = 4 * floats / (card[2] * 1e12)
    recorded = json.loads(pathlib.Path(path).read_text()).get("recorded", {})
    if recorded.get("graphs"):
        # Loops may go on beside each other, each kernel behind the one before in its own.
        parts["nodes"] = recorded["nodes"] / recorded["recordings"] / loops * NODE_US * 1e-6
    if not parts:
        return "unknown"
    cause, seconds = max(parts.items(), key=lambda part: part[1])
    return "%.2f %s" % (1e3 * seconds, cause)


def farthest(expected, found):
    """The tensor that differs most, as a part of its largest element, and by how much."""
    import numpy  # which nothing else needs

    parts = {}
    for path in pathlib.Path(expected).glob("**/*.npy"):
        a, b = numpy.load(path), numpy.load(pathlib.Path(found) / path.relative_to(expected))
        if a.dtype.kind != "f":
            continue
        part = float("inf")  # also where one of them is no number
        if a.shape == b.shape and not numpy.isnan(a).any() and not numpy.isnan(b).any():
            part = float(abs(a - b).max(initial=0) / (abs(a).max(initial=0) or 1))
        parts[path.stem] = part
    return max(parts.items(), key=lambda item: item[1], default=("nothing", float("inf")))


def main(what, *words):
    if what == "field":
        name, path = words
        value = json.loads(pathlib.Path(path).read_text())
        for part in name.split("."):
            value = value.get(part) if value is not None else None
        print("-" if value is None else "%.3f" % value)
    elif what == "floor":
        print(floor(*words))
    elif what == "near":
        name, part = farthest(words[0], words[1])
        if not part <= float(words[2]):
            sys.exit("bench_gpu: %s differs from the CPU's by a part of %.1e of its largest element" % (name, part))
    else:
        sys.exit(__doc__)


main(*sys.argv[1:])
