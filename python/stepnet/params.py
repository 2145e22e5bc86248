"""Parameters in files."""

from __future__ import annotations

import os
from typing import Mapping

import numpy

from . import _stepnet
from .errors import InvalidArgumentError
from .gradients import Array, arrays_of
from .source import path_of

PICKLES = (".pt", ".pth", ".bin")
"""How names of files end in which others expect a pickle of PyTorch."""


def load_params(path: str | os.PathLike[str], *, widen: bool = False, seed: int = 0) -> dict[str, numpy.ndarray]:
    """The parameters that a file gives, by name: what a cell is called with.

    The content of the file says what it is, not its name: safetensors, ``.npz``, TensorProtos, a minidb, a model with
    its parameters, or a net that fills parameters, which is run once.

    Args:
        path: the file.
        widen: float16 as float32, exactly. bfloat16, which NumPy does not have, always is.
        seed: of random numbers, where a net draws them.

    Raises:
        InputOutputError: for a file that cannot be read, or holds something else.
        TypeMismatchError: for strings.
        OutOfMemoryError: for tensors beyond the limit of memory.
    """
    return _stepnet.load_params(path_of("path", path), widen, seed)


def save_params(params: Mapping[str, Array], path: str | os.PathLike[str]) -> None:
    """Writes arrays by name to a file, which appears when it is complete.

    The name of the file says what it becomes: ``.safetensors``, ``.npz``, ``.minidb``, or TensorProtos for any other,
    as text where it ends in ``.pbtxt``, ``.prototxt`` or ``.txt``. dtypes stay as they are, but for bfloat16 in a
    ``.npz``, which is written as float32.

    Args:
        params: of tensors that require gradients the values are written, as of ``dict(module.named_parameters())``.
        path: the file.

    Raises:
        InvalidArgumentError: for a name that ends in ``.pt``, ``.pth`` or ``.bin``, as those of PyTorch's own files do.
        InputOutputError: for a file that cannot be written, or does not take such a name or dtype: names are printable,
            of at most 1000 bytes.
        TypeMismatchError: for what is no array, or has a dtype that no tensor has.
    """
    target, arrays = path_of("path", path), arrays_of("params", params)
    if target.endswith(PICKLES):
        raise InvalidArgumentError(
            f"invalid argument: path is {target!r}, as files of torch.save are called, which are not written; it must end in "
            ".safetensors, .npz, .minidb, .pb, .pbtxt, .prototxt or .txt"
        )
    _stepnet.save_params({name: getattr(each, "detach", lambda: each)() for name, each in arrays.items()}, target)
