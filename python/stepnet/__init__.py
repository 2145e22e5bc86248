"""Recurrent networks whose cells are written as one timestep.

>>> cell = stepnet.cell("lstm.cell", D=8, H=16)
>>> params = cell.init(seed=0)
>>> out = cell(params, x=x)                      # x: float32 [T, B, 8]
>>> out.h.shape                                  # [T, B, 16]

Arrays are NumPy's; whatever has ``__dlpack__`` is taken, too, on a GPU where the cell runs there. What goes in and what
comes out is not copied.
"""

from __future__ import annotations

import atexit
import importlib
from typing import TYPE_CHECKING, Any

from . import errors, packed
from ._stepnet import DeviceArray, __version__, end_calls
from .cell import Argument, Cell, cell
from .errors import (
    CancelledError,
    CellSyntaxError,
    CellWarning,
    CopyWarning,
    Error,
    InputOutputError,
    InternalError,
    InvalidArgumentError,
    InvalidNetError,
    OperatorFailedError,
    OutOfMemoryError,
    ShapeMismatchError,
    TypeMismatchError,
)
from .gradients import Gradients, Pullback
from .layers import layers
from .memory import Memory, memory, set_max_memory
from .net import Net, TrainingNet, load, train_net
from .params import load_params, save_params
from .texts import check, expand, explain, load_operator_library, ops, show
from .torch_layers import from_torch, to_torch

atexit.register(end_calls)


if TYPE_CHECKING:
    from . import onnx as onnx
    from . import torch as torch
else:

    def __getattr__(name: str) -> Any:
        """The modules for other packages, which are imported when they are first used; without those there is none."""
        if name in ("onnx", "torch"):
            try:
                return importlib.import_module(f"{__name__}.{name}")
            except ModuleNotFoundError as error:
                if error.name != name:
                    raise
                raise AttributeError(str(error)) from error
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Argument",
    "CancelledError",
    "Cell",
    "CellSyntaxError",
    "CellWarning",
    "CopyWarning",
    "DeviceArray",
    "Error",
    "Gradients",
    "InputOutputError",
    "InternalError",
    "InvalidArgumentError",
    "InvalidNetError",
    "Memory",
    "Net",
    "OperatorFailedError",
    "OutOfMemoryError",
    "Pullback",
    "ShapeMismatchError",
    "TrainingNet",
    "TypeMismatchError",
    "__version__",
    "cell",
    "check",
    "errors",
    "expand",
    "explain",
    "from_torch",
    "layers",
    "load",
    "load_operator_library",
    "load_params",
    "memory",
    "ops",
    "packed",
    "save_params",
    "set_max_memory",
    "show",
    "to_torch",
    "train_net",
]
