"""Brings a model of PyTorch over, with what it has learned, and goes on training it with another cell.

The task: say at every step whether more ones than zeros have come so far.
"""

import torch
from torch import nn

import stepnet
import stepnet.torch


class Model(nn.Module):
    """Reads bits [T, B, 1] and gives logits [T, B, 1]."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(1, 32)
        self.readout = nn.Linear(32, 1)

    def forward(self, bits: torch.Tensor) -> torch.Tensor:
        h, _ = self.lstm(bits)
        return self.readout(h)


def examples() -> tuple[torch.Tensor, torch.Tensor]:
    bits = torch.randint(0, 2, (30, 64, 1)).float()
    return bits, ((2 * bits - 1).cumsum(0) > 0).float()


def train(model: nn.Module, iterations: int) -> float:
    """The share of right answers afterwards."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(iterations):
        bits, more = examples()
        loss = nn.functional.binary_cross_entropy_with_logits(model(bits), more)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    bits, more = examples()
    return ((model(bits) > 0) == more.bool()).float().mean().item()


def main() -> None:
    torch.manual_seed(0)
    model = Model()
    print(f"trained by PyTorch: {train(model, 60):.0%} right")

    # The same LSTM as a cell: its text, and its parameters by name.
    cell, params = stepnet.from_torch(model.lstm)
    bits, _ = examples()
    before = model(bits)
    model.lstm = stepnet.torch.Recurrent(cell, params)
    print(f"as a cell: differs by at most {(model(bits) - before).abs().max():.0e}")
    print(cell.text)

    # Another cell, whose output gate sees what the LSTM holds; it begins as the LSTM that was trained.
    text = cell.text.replace("param weight_hh", "param peephole[H] = 0\n  param weight_hh")
    text = text.replace("Sigmoid(o)", "Sigmoid(o + peephole * c)")
    changed = stepnet.cell(text)
    model.lstm = stepnet.torch.Recurrent(changed, {**changed.init(), **params})
    print(f"with a peephole: {train(model, 60):.0%} right")


if __name__ == "__main__":
    main()
