"""Trials of what stands between StepNet and PyTorch."""

import contextlib

import fuzz_values
import numpy
import torch
from torch import nn

import stepnet
import stepnet.torch


def modules(trial):
    """Modules of PyTorch that are changed, tensors that do not fit."""
    from fuzz_trials import with_strange_names

    module = _module(trial)
    made = trial.call(stepnet.from_torch, module, lengths=trial.happens(0.3))
    if made is None:
        return
    cell, params = made
    if trial.happens(0.3):
        name = trial.random.choice(list(params))
        params[name] = fuzz_values.strange_array(trial.random, params[name])
    params = with_strange_names(trial, params, 0.1)
    trial.call(stepnet.to_torch, cell, params)
    kind = stepnet.torch.Recurrent if trial.happens(0.7) else stepnet.torch.Module
    seed = trial.random.choice(fuzz_values.NUMBERS) if trial.happens(0.1) else None
    ours = trial.call(kind, cell if trial.happens(0.95) else None, params, seed=seed)
    if ours is None:
        return
    x = _tensor(trial, [trial.random.choice([0, 1, 4]), trial.random.choice([0, 1, 3]), 5])
    out = trial.call(ours, x, *([_states(trial)] if trial.happens(0.4) and kind is stepnet.torch.Recurrent else []))
    if out is not None and torch.is_tensor(out[0]) and out[0].requires_grad:
        trial.call(out[0].sum().backward)


def _module(trial):
    name = trial.random.choice(["RNN", "LSTM", "GRU", "RNNCell", "LSTMCell", "GRUCell"])
    more = {}
    if not name.endswith("Cell"):
        more = {
            "num_layers": trial.random.choice([1, 1, 2]),
            "bidirectional": trial.happens(0.3),
            "batch_first": trial.happens(0.3),
        }
    module = getattr(nn, name)(5, 4, bias=trial.happens(0.8), **more)
    if trial.happens(0.2):
        module = trial.random.choice(
            [module.double(), module.half(), nn.Linear(2, 3), nn.Sequential(module), None, "lstm", nn.LSTM]
        )
    if trial.happens(0.3) and isinstance(module, nn.Module):
        attribute = trial.random.choice(
            [
                "input_size",
                "hidden_size",
                "num_layers",
                "bias",
                "dropout",
                "bidirectional",
                "proj_size",
                "mode",
                "batch_first",
                "nonlinearity",
            ]
        )
        with contextlib.suppress(TypeError):  # the bias of an nn.Linear is a parameter
            setattr(module, attribute, trial.random.choice([*fuzz_values.NUMBERS, "LSTM", "tanh"]))
    if trial.happens(0.1) and hasattr(module, "weight_ih_l0"):
        other = [
            torch.zeros(3),
            torch.zeros(16, 5, dtype=torch.int32),
            torch.zeros(16, 5, device="meta"),
            torch.zeros(0),
        ]
        del module.weight_ih_l0
        module.weight_ih_l0 = trial.random.choice(other)
    return module


def _tensor(trial, shape):
    x = torch.randn(shape)  # of no gradients, as NumPy takes it
    if not trial.happens(0.4):
        return x
    sparse = [
        x.to_sparse(),
        torch.zeros(shape, device="meta"),
        x.to(torch.bfloat16),
        x.double(),
        x.to(torch.complex64),
        x.int(),
    ]
    others = [
        x[..., :4],
        x[0] if shape[0] else x,
        x.transpose(0, 1),
        x.expand(2, *shape),
        x.clone().requires_grad_(),
        torch.zeros(()),
    ]
    return trial.random.choice([*sparse, *others, x.numpy(), None, 3, [x], numpy.float32(1), torch.zeros([1] * 9)])


def _states(trial):
    h = torch.zeros(1, trial.random.choice([1, 3]), 4)
    return trial.random.choice(
        [h, (h, h), [h, h], (h,), (), (h, h, h), 3, "x", (None, None), h[0], h.double(), (h, h.numpy()), None]
    )
