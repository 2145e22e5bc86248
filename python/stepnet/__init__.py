"""Recurrent networks whose cells are written as one timestep.

>>> cell = stepnet.cell("lstm.cell", D=8, H=16)
>>> params = cell.init(seed=0)
>>> out = cell(params, x=x)                      # x: float32 [T, B, 8]
>>> out.h.shape                                  # [T, B, 16]

Arrays are NumPy's; whatever has ``__dlpack__`` is taken, too. What goes in and what comes out is not copied.
"""

from __future__ import annotations

import atexit

from . import errors
from ._stepnet import __version__, end_calls
from .cell import Argument, Cell, Gradients, Pullback, cell
from .errors import (
    CancelledError,
    CellSyntaxError,
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
from .net import Net, load
from .params import load_params, save_params
from .texts import check, expand, ops

atexit.register(end_calls)

__all__ = [
    "Argument",
    "CancelledError",
    "Cell",
    "CellSyntaxError",
    "CopyWarning",
    "Error",
    "Gradients",
    "InputOutputError",
    "InternalError",
    "InvalidArgumentError",
    "InvalidNetError",
    "Net",
    "OperatorFailedError",
    "OutOfMemoryError",
    "Pullback",
    "ShapeMismatchError",
    "TypeMismatchError",
    "__version__",
    "cell",
    "check",
    "errors",
    "expand",
    "load",
    "load_params",
    "ops",
    "save_params",
]
