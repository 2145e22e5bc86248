"""Parameters in files."""

from __future__ import annotations

import os
from typing import Any, Iterable, Mapping, MutableMapping

import numpy

from . import _stepnet
from .cell import Cell
from .errors import InvalidArgumentError, ShapeMismatchError, TypeMismatchError
from .gradients import Array, arrays_of
from .source import kind_of, path_of, utf8

PICKLES = (".pt", ".pth", ".bin")
"""How names of files end in which others expect a pickle of PyTorch."""


def load_params(
    path: str | os.PathLike[str], *, cell: Cell | None = None, prefix: str = "", widen: bool = False, seed: int = 0
) -> dict[str, numpy.ndarray]:
    """The parameters that a file gives, by name: what a cell is called with.

    The content of the file says what it is, not its name: safetensors, ``.npz``, TensorProtos, a minidb, a model with
    its parameters, or a net that fills parameters, which is run once.

    Args:
        path: the file.
        cell: whose parameters they are. Those that the file has by PyTorch's names, as ``weight_ih_l1_reverse``, get the
            cell's, ``layer1/reverse/weight_ih``.
        prefix: what their names begin with in the file, and not here. Others are not read.
        widen: float16 as float32, exactly. bfloat16, which NumPy does not have, always is.
        seed: of random numbers, where a net draws them.

    Raises:
        InputOutputError: for a file that cannot be read, or holds something else.
        InvalidArgumentError: where no name begins with the prefix, or the prefix lacks the dot at its end, and where the
            parameters are not those of the cell.
        ShapeMismatchError: where one has another shape than the cell's.
        TypeMismatchError: for strings.
        OutOfMemoryError: for tensors beyond the limit of memory.
    """
    if not isinstance(prefix, str):
        raise TypeMismatchError(f"type mismatch: prefix is {kind_of(prefix)}; it must be a text")
    if cell is not None and not isinstance(cell, Cell):
        raise TypeMismatchError(f"type mismatch: cell is {kind_of(cell)}; stepnet.cell, layers and from_torch make cells")
    file = path_of("path", path)
    params = _stepnet.load_params(file, utf8("prefix", prefix), widen, seed)
    params = {name[len(prefix) :]: each for name, each in params.items()}
    end = next((name[0] for name in params if prefix and name[:1] in (".", "/")), None)
    if end is not None:
        raise InvalidArgumentError(
            f"invalid argument: names in {file} go on with {end!r} behind {prefix!r}; did you mean {prefix + end!r}?"
        )
    return params if cell is None else _of_cell(cell, params, file, prefix)


def _of_cell(cell: Cell, given: Mapping[str, numpy.ndarray], file: str, prefix: str) -> dict[str, numpy.ndarray]:
    """The parameters by the names of the cell, which are all of them and no others."""
    params, names = dict(given), [each.name for each in cell.params]
    rename_from_torch(names, params)
    faults = [f"{name!r} is missing" for name in names if name not in params]
    faults += [f"{cell.name} has no parameter {name!r}" for name in params if name not in names]
    if not faults:
        _check_shapes(cell, params, file)
        return params
    others = "" if prefix or params.keys() >= set(names) else _stepnet.other_names_text(list(given), names)
    where = f"in {file}" + (f" behind {prefix!r}" if prefix else "")
    raise InvalidArgumentError(
        f"invalid argument: {where} are not the parameters of {cell.name}: {others or '; '.join(faults)}"
    )


def _check_shapes(cell: Cell, params: Mapping[str, numpy.ndarray], file: str) -> None:
    for each in cell.params:
        given = params[each.name]
        if str(list(given.shape)) != each.shape:
            raise ShapeMismatchError(
                f"shape mismatch: in {file} the parameter {each.name!r} is {given.dtype} {list(given.shape)}; "
                f"that of {cell.name} is {each.shape}"
            )


def rename_from_torch(names: Iterable[str], params: MutableMapping[str, Any], prefix: str = "") -> None:
    """Gives what is in ``params`` by PyTorch's name for one of ``names`` that one, behind ``prefix``."""
    for name in names:
        theirs = _stepnet.torch_name_of(name)
        if prefix + name not in params and prefix + theirs in params:
            params[prefix + name] = params.pop(prefix + theirs)


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
