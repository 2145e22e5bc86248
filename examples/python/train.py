"""Trains a cell with NumPy alone on the adding problem: of a sequence of numbers, two are marked; what is their sum?

S. Hochreiter, J. Schmidhuber: Long Short-Term Memory, Neural Computation 9(8), 1997, section 5.4. Whoever always says 1 has
an error of 0.167.
"""

from pathlib import Path

import numpy

import stepnet

CELLS = Path(__file__).parent.parent / "cells"
STEPS, BATCH, UNITS, ITERATIONS, RATE = 20, 64, 32, 500, 0.01


def examples(random):
    """x [T, B, 2]: a number and whether it is marked; the sums of the marked ones [B, 1]."""
    numbers = random.random((STEPS, BATCH), "float32")
    marks = numpy.zeros_like(numbers)
    for item in range(BATCH):
        marks[random.choice(STEPS, 2, replace=False), item] = 1
    return numpy.stack([numbers, marks], axis=-1), (numbers * marks).sum(axis=0)[:, None]


def main() -> None:
    random = numpy.random.default_rng(0)
    cell = stepnet.cell(CELLS / "lstm.cell", D=2, H=UNITS)
    params = cell.init(seed=0)
    v, a = numpy.zeros((1, UNITS), "float32"), numpy.ones(1, "float32")  # the answer is v h + a
    trained = {**params, "v": v, "a": a}  # the same arrays: what changes here changes there
    means = {name: numpy.zeros_like(array) for name, array in trained.items()}
    squares = {name: numpy.zeros_like(array) for name, array in trained.items()}

    for iteration in range(1, ITERATIONS + 1):
        x, target = examples(random)
        out, pullback = cell.vjp(params, wrt=params, x=x)
        h = out.h_last[0]
        error = h @ v.T + a - target
        slope = 2 * error / BATCH  # the gradient of the mean of the squares
        gradients = {**pullback(h_last=(slope @ v)[None]).params, "v": slope.T @ h, "a": slope.sum(axis=0)}
        for name, gradient in gradients.items():  # Adam (Kingma, Ba 2015, algorithm 1)
            means[name] += 0.1 * (gradient - means[name])
            squares[name] += 0.001 * (gradient**2 - squares[name])
            mean, square = means[name] / (1 - 0.9**iteration), squares[name] / (1 - 0.999**iteration)
            trained[name] -= RATE * mean / (numpy.sqrt(square) + 1e-8)
        if iteration in (1, ITERATIONS) or iteration % 100 == 0:
            print(f"iteration {iteration:3}: error {(error**2).mean():.4f}")


if __name__ == "__main__":
    main()
