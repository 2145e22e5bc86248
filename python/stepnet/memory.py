"""The memory of tensors."""

from __future__ import annotations

from typing import NamedTuple

from . import _stepnet
from .source import device_name
from .words import Device


class Memory(NamedTuple):
    """Bytes of tensors of this process, on one device; arrays that were given to calls are not among them.

    Attributes:
        current: in use.
        peak: in use at most so far.
        limit: what may be in use: an allocation beyond is an :class:`OutOfMemoryError`.
    """

    current: int
    peak: int
    limit: int


def memory(device: Device = "cpu") -> Memory:
    """The memory of tensors on a ``device``: ``"cpu"``, ``"cuda"`` or, of several GPUs, ``"cuda:1"``."""
    return Memory(*_stepnet.memory(device_name(device)))


_first_limits: dict[str, int] = {}
"""What there is of each device: its limit before the first call of :func:`set_max_memory`."""


def set_max_memory(bytes: int | None, device: Device = "cpu") -> None:
    """Limits the memory of tensors, of all nets and cells of the process; without a limit of yours it is what there is.

    Args:
        bytes: what tensors may take together; None: what there is, as without a limit of yours.
        device: whose memory, as for :func:`memory`.

    Raises:
        InvalidArgumentError: for a negative limit, and on a GPU for one below what is in use.
    """
    name = device_name(device)
    limit = memory(name).limit
    first = _first_limits.setdefault("cuda:0" if name == "cuda" else name, limit)
    _stepnet.set_max_memory(first if bytes is None else bytes, name)
