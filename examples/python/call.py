"""Calls a cell on arrays of NumPy: whole sequences, sequences of different lengths, and one step after the other."""

from pathlib import Path

import numpy

import stepnet

CELLS = Path(__file__).parent.parent / "cells"


def main() -> None:
    random = numpy.random.default_rng(0)
    cell = stepnet.cell(CELLS / "gru.cell", D=3, H=5)
    params = cell.init(seed=0)
    print(cell)

    x = random.standard_normal((6, 2, 3), "float32")  # 6 steps, a batch of 2
    whole = cell(params, x=x)
    print(f"h of every step: {whole.h.shape}, of the last one: {whole.h_last.shape}")

    # What a run ends with, the next one starts from.
    h = numpy.zeros((1, 2, 5), "float32")
    for step in x:
        h = cell(params, x=step[None], h_init=h).h_last
    print(f"one step after the other: differs by {abs(h - whole.h_last).max():.0e}")

    # An option of the text: sequences end where their lengths say.
    text = cell.text.replace("output h\n", "output h\n  option lengths = lengths\n", 1)
    out = stepnet.cell(text, D=3, H=5)(params, x=x, lengths=numpy.array([6, 4]))
    print(f"after 4 steps of 6: differs by {abs(out.h_last[0, 1] - whole.h[3, 1]).max():.0e}")


if __name__ == "__main__":
    main()
