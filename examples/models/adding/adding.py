#!/usr/bin/env python3
"""Adds two marked numbers of a sequence: trains the model of this folder in PyTorch, or measures it without.

  adding.py train [FOLDER]   trains an nn.LSTM, and writes adding.cell and adding.safetensors to the folder; without one, to
                             this one. Needs stepnet and PyTorch
  adding.py measure          on sequences that it was not trained on. Needs stepnet and NumPy

S. Hochreiter, J. Schmidhuber: Long Short-Term Memory, Neural Computation 9(8), 1997, section 5.4.
"""

import sys
from pathlib import Path

import numpy

import stepnet

HERE = Path(__file__).parent
STEPS, BATCH, UNITS, ITERATIONS, RATE, SEED = 100, 64, 64, 4000, 0.005, 1
MEASURED = 10000


def examples(random, steps, batch):
    """x [T, B, 2]: a number from 0 to 1, and whether it is marked, as one of each half is; the sums of the marked [B]."""
    numbers = random.random((steps, batch), "float32")
    marks = numpy.zeros_like(numbers)
    for begin, end in (0, steps // 2), (steps // 2, steps):
        marks[random.integers(begin, end, batch), numpy.arange(batch)] = 1
    return numpy.stack([numbers, marks], axis=-1), (numbers * marks).sum(axis=0)


def train(folder):
    import torch

    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    random = numpy.random.default_rng(SEED)
    lstm, readout = torch.nn.LSTM(2, UNITS), torch.nn.Linear(UNITS, 1)
    with torch.no_grad():
        lstm.bias_ih_l0[UNITS : 2 * UNITS] = 2  # the forget gate: who forgets at first learns slowly
    parameters = [*lstm.parameters(), *readout.parameters()]
    optimizer = torch.optim.Adam(parameters, RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, ITERATIONS)
    for iteration in range(1, ITERATIONS + 1):
        x, sums = map(torch.from_numpy, examples(random, STEPS, BATCH))
        loss = (readout(lstm(x)[0][-1])[:, 0] - sums).square().mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1)
        optimizer.step()
        schedule.step()
        if iteration % 250 == 0:
            print(f"iteration {iteration}/{ITERATIONS}: error {loss.item():.5f}", flush=True)

    # From here on it is a cell, of which the readout becomes a part.
    cell, params = stepnet.from_torch(lstm)
    title = "# The LSTM of torch.nn with its readout: the sum of the two marked numbers of a sequence.\n"
    text = title + cell.text.partition("\n")[2]
    text = text.replace("  param bias_hh[4*H]\n", "  param bias_hh[4*H]\n  param readout[1, H]\n  param offset[1]\n")
    text = text.replace("  output h\n", "  sum = h @ readout + offset\n\n  output sum\n  output sum last\n")
    text = text.replace("  output h last\n  output c last\n", "").replace("cell lstm(", "cell adding(")
    params = {**params, "readout": readout.weight.detach().numpy(), "offset": readout.bias.detach().numpy()}
    (folder / "adding.cell").write_text(text)
    stepnet.save_params(params, folder / "adding.safetensors")


def measure():
    cell = stepnet.cell(HERE / "adding.cell")
    params = stepnet.load_params(HERE / "adding.safetensors")
    for steps in (STEPS, 2 * STEPS):
        x, sums = examples(numpy.random.default_rng(SEED + steps), steps, MEASURED)
        found = cell(params, x=x).sum_last[0, :, 0]
        print(
            f"{steps} steps: mean square error {((found - sums) ** 2).mean():.5f}, "
            f"{100 * (abs(found - sums) < 0.04).mean():.2f} % within 0.04; who always says 1 has {((1 - sums) ** 2).mean():.3f}"
        )


if __name__ == "__main__":
    command, *rest = sys.argv[1:] or [""]
    if command == "train":
        train(Path(rest[0]) if rest else HERE)
    elif command == "measure":
        measure()
    else:
        sys.exit(__doc__)
