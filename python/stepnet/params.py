"""Parameters in files."""

from __future__ import annotations

import os
from typing import Any, Iterable, Mapping, MutableMapping

import numpy

from . import _stepnet
from .cell import Argument, Cell
from .errors import InvalidArgumentError, ShapeMismatchError, TypeMismatchError
from .gradients import Array, arrays_of
from .source import kind_of, path_of, utf8

PICKLES = (".pt", ".pth", ".bin")
"""How names of files end in which others expect a pickle of PyTorch."""

WRITTEN = (".safetensors", ".npz", ".minidb", ".pb", ".pbtxt", ".prototxt", ".txt")
"""How names of files end that say what ``save_params`` writes."""


def load_params(
    path: str | os.PathLike[str], *, cell: Cell | None = None, prefix: str = "", widen: bool = False, seed: int = 0
) -> dict[str, numpy.ndarray]:
    """The parameters that a file gives, by name, of any shapes ``[…]``: what a cell is called with.

    The content of the file says what it is, not its name: safetensors, ``.npz``, TensorProtos, a minidb, a model with
    its parameters, or a net that fills parameters, which is run once.

    Args:
        path: the file.
        cell: whose parameters they are. Those that the file has by PyTorch's names, as ``weight_ih_l1_reverse``, get the
            cell's, ``layer1/reverse/weight_ih``. What its states start from, as ``h_init``, which nets have beside the
            parameters, is left out where it is what the cell starts from anyway: it is an input of a call.
        prefix: what their names begin with in the file, and not here. Others are not read.
        widen: float16 as float32, exactly, and with a cell either as the cell's dtype. bfloat16, which NumPy does not
            have, always is float32.
        seed: of random numbers, where a net draws them.

    Raises:
        InputOutputError: for a file that cannot be read, or holds something else.
        InvalidArgumentError: where no name begins with the prefix, or the prefix lacks the dot at its end, and where the
            parameters are not those of the cell.
        ShapeMismatchError: where one has another shape than the cell's.
        TypeMismatchError: for strings; where a parameter has another dtype than the cell's.
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
    return params if cell is None else _of_cell(cell, params, file, prefix, widen)


def _of_cell(
    cell: Cell, given: Mapping[str, numpy.ndarray], file: str, prefix: str, widen: bool
) -> dict[str, numpy.ndarray]:
    """The parameters by the names of the cell, which are all of them and no others."""
    params, names = dict(cell._by_own_names(given)), [each.name for each in cell.params]
    rename_from_torch(names, params)
    starts = cell._cell.starts()
    params = {name: array for name, array in params.items() if not _is_the_start(starts.get(name), array)}
    faults = [f"{name!r} is missing" for name in names if name not in params]
    for name in [name for name in params if name in cell._input_names]:
        del params[name]
        other = ", and not what the cell starts from" if name in starts else ""
        faults.append(f"{name!r} is an input of {cell.name}{other}: load the file without cell, and give it to each call")
    faults += [f"{cell.name} has no parameter {name!r}" for name in params if name not in names]
    if not faults:
        return {name: _fitting(cell, each, params[name], file, widen) for name, each in zip(names, cell.params)}
    others = "" if params.keys() >= set(names) else _stepnet.other_names_text([prefix + name for name in given], names)
    where = f"in {file}" + (f" behind {prefix!r}" if prefix else "")
    raise InvalidArgumentError(
        f"invalid argument: {where} are not the parameters of {cell.name}: {others or '; '.join(faults)}"
    )


def _is_the_start(start: numpy.ndarray | None, given: numpy.ndarray) -> bool:
    """Whether a state that starts from ``given``, of any batch, does what it does where a call gives nothing."""
    if start is None or given.ndim != start.ndim or given.shape[0] != start.shape[0] or given.shape[2:] != start.shape[2:]:
        return False
    return bool((given == start).all())


def _fitting(cell: Cell, param: Argument, given: numpy.ndarray, file: str, widen: bool) -> numpy.ndarray:
    """The parameter, which has the shape and the dtype of the cell's."""
    has = f"in {file} the parameter {param.name!r} is {given.dtype} {list(given.shape)}; that of {cell.name} is"
    if str(list(given.shape)) != param.shape:
        raise ShapeMismatchError(f"shape mismatch: {has} {param.shape}")
    if given.dtype == param.dtype:
        return given
    is_exact = given.dtype.kind == "f" and numpy.can_cast(given.dtype, param.dtype)
    if is_exact and widen:
        return given.astype(param.dtype)
    hint = f"widen=True makes {param.dtype} of it" if is_exact else f"load it without cell, and call astype({param.dtype!r})"
    raise TypeMismatchError(f"type mismatch: {has} {param.dtype}: {hint}")


def rename_from_torch(names: Iterable[str], params: MutableMapping[str, Any], prefix: str = "") -> None:
    """Gives what is in ``params`` by PyTorch's name for one of ``names`` that one, behind ``prefix``."""
    for name in names:
        theirs = _stepnet.torch_name_of(name)
        if prefix + name not in params and prefix + theirs in params:
            params[prefix + name] = params.pop(prefix + theirs)


def save_params(params: Mapping[str, Array], path: str | os.PathLike[str]) -> None:
    """Writes arrays by name to a file, which appears when it is complete.

    The name of the file says what it becomes: ``.safetensors``, ``.npz``, ``.minidb``, or TensorProtos, in ``.pb`` and as
    text in ``.pbtxt``, ``.prototxt`` and ``.txt``. dtypes stay as they are, but for bfloat16 in a
    ``.npz``, which is written as float32.

    Args:
        params: of any shapes ``[…]``; of tensors that require gradients the values are written, as of ``dict(module.named_parameters())``.
        path: the file.

    Raises:
        InvalidArgumentError: for a name with another ending, which says nothing of the kind: a file of that name may be
            something else.
        InputOutputError: for a file that cannot be written, or does not take such a name or dtype: names are printable,
            of at most 1000 bytes.
        TypeMismatchError: for what is no array, or has a dtype that no tensor has.
    """
    target, arrays = path_of("path", path), arrays_of("params", params)
    if not target.endswith(WRITTEN):
        why = ", as files of torch.save are called, which are not written" if target.endswith(PICKLES) else ""
        raise InvalidArgumentError(
            f"invalid argument: path is {target!r}{why or ', which does not say what to write'}; it must end in "
            f"{', '.join(WRITTEN[:-1])} or {WRITTEN[-1]}"
        )
    _stepnet.save_params({name: getattr(each, "detach", lambda: each)() for name, each in arrays.items()}, target)
