"""Nets from files, with their parameters."""

from __future__ import annotations

import os
from typing import Any

from . import _stepnet
from .outputs import outputs_type

Array = Any


class Net:
    """A net with its parameters. Made by :func:`load`.

    Any number of threads may call it. Calls of a net that changes what it keeps, as one that trains does, wait for each
    other; other calls have memory of their own.
    """

    def __init__(self, net: _stepnet.LoadedNet) -> None:
        self._net = net
        self._call = net.call
        self._make = outputs_type("Outputs", net.outputs)._make
        self.name: str = net.name
        self.inputs: tuple[str, ...] = tuple(net.inputs)
        """The names of what a call is given: all that the net reads and nobody fills."""
        self.outputs: tuple[str, ...] = tuple(net.outputs)
        """The names of what a call gives: the net's outputs or, where it lists none, all that no operator reads."""

    def __repr__(self) -> str:
        return f"<stepnet.Net {self.name}({', '.join(self.inputs)}) -> {', '.join(self.outputs)}>"

    def __call__(self, **inputs: Array) -> Any:
        """Runs the net on an array for each of ``self.inputs``.

        Returns:
            A named tuple with an array for each of ``self.outputs``; None for one that is no tensor.
        """
        return self._make(self._call(inputs))


def load(
    net: str | os.PathLike[str],
    init: str | os.PathLike[str] | None = None,
    *,
    threads: int = 0,
    device: str = "cpu",
    opt_level: int = 2,
    seed: int = 0,
) -> Net:
    """A net from a file.

    Args:
        net: a NetDef, a MetaNetDef or a minidb model, binary or text.
        init: a net that fills the parameters, which is run once, or a file of tensors that are the parameters.
        threads: how many to use; 0: as many as are worth having.
        device: ``"cpu"``, ``"cuda"`` or, of several GPUs, ``"cuda:1"``.
        opt_level: what the compiler may do, 0 to 2.
        seed: of random numbers, those of parameters included.

    Raises:
        InputOutputError: for files that cannot be read or hold something else.
        InvalidNetError: with everything that is wrong with the net.
    """
    init_path = "" if init is None else os.fspath(init)
    return Net(_stepnet.load_net(os.fspath(net), init_path, threads, device, opt_level, seed))
