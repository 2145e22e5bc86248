"""Errors of modules: what is wrong with what they are given, and what to do."""

from __future__ import annotations

import difflib
import keyword
import re
from typing import Any, Mapping, Sequence

import torch

from . import errors
from .cell import Argument, Cell
from .source import DTYPES, did_you_mean, kind_of


def with_conversion(
    error: errors.TypeMismatchError, cell: Cell, tensors: Mapping[str, torch.Tensor]
) -> errors.TypeMismatchError:
    """The error of a call, with what makes a tensor of another floating dtype, as of autocast, the one that is needed."""
    params = [(each.name, str(tensors[each.name].dtype).rpartition(".")[2]) for each in cell.params]
    dtypes = [dtype for _, dtype in params]
    if len(set(dtypes)) > 1:
        most = max(dtypes, key=dtypes.count)
        name, odd = next(param for param in params if param[1] != most)
        method = "double" if most == "float64" else "float"
        return errors.TypeMismatchError(
            f"type mismatch: the parameter {name!r} of {cell.name} is {odd}, and others are {most}; they must have one "
            f"dtype: call the module's {method}()"
        )
    for each in (*cell.params, *cell.inputs):  # in the order in which they are looked at
        tensor = tensors.get(each.name)
        if tensor is None or tensor.is_quantized or tensor.is_meta:  # of which the error says what to do
            continue
        found = str(tensor.dtype).rpartition(".")[2]
        if found not in DTYPES:  # which the error calls what is most like it, or in terms of arrays
            error = of_dtype(cell, each, tensor)
        elif each.dtype not in ("float32", "float64") or found == each.dtype:
            continue
        if each.dtype not in ("float32", "float64") or tensor.is_complex() or _WITHOUT_CASTS.fullmatch(found):
            return error
        whose = "the module's " if each in cell.params else ""
        method = "float" if each.dtype == "float32" else "double"
        told = str(error).partition("; load_params")[0]  # which is of arrays; modules have a method
        return errors.TypeMismatchError(f"{told}: call {whose}{method}()")
    return error


_WITHOUT_CASTS = re.compile(r"u?int[1-7]|bits.*|float4.*")
"""Dtypes of which PyTorch's ``float`` and ``double`` are errors."""


def of_dtype(cell: Cell, argument: Argument, tensor: torch.Tensor) -> errors.TypeMismatchError:
    """For a parameter or input of another dtype than it must have."""
    kind = "parameter" if argument in cell.params else "input"
    wanted = argument.dtype if argument.dtype.startswith("float") else "int32 or int64"
    return errors.TypeMismatchError(
        f'type mismatch: the {kind} "{argument.name}" of {cell.name} is {str(tensor.dtype).rpartition(".")[2]} '
        f"{list(tensor.shape)}; it must be {wanted}"
    )


def not_dense(cell: Cell, name: str, tensor: torch.Tensor) -> errors.TypeMismatchError:
    """For an input whose elements do not lie side by side."""
    found, way = str(tensor.layout), "call to_dense()"
    if tensor.is_nested:
        found, way = "a nested tensor", "call to_padded_tensor(0), and give a cell with lengths those of its parts"
    return errors.TypeMismatchError(f"type mismatch: the input {name!r} of {cell.name} is {found}; it must be dense: {way}")


def no_such_input(cell: Cell, params: Sequence[str], name: Any) -> errors.InvalidArgumentError:
    """For what is given as an input, and the cell has none of that name."""
    if name in params:
        hint = (
            f"; it is a parameter: {how_to_assign(name)}, or run the module with another one by "
            f"torch.func.functional_call(module, {{{name!r}: …}}, …)"
        )
    else:
        is_text = isinstance(name, str)
        hint = (cell._cell.advice_on_input(name) or did_you_mean(name, cell._input_names)) if is_text else ""
    inputs = ", ".join(repr(each.name) for each in cell.inputs)
    return errors.InvalidArgumentError(
        f"invalid argument: {cell.name} has no input {name!r}{hint}; its inputs are {inputs}"
    )


def name_of_output(cell: Cell, output: Any) -> str:
    """The name of an output of the cell, which is given by that or by its field; raises for others."""
    if not isinstance(output, str):
        raise errors.TypeMismatchError(f"type mismatch: output is {kind_of(output)}; it must be the name of an output")
    fields = cell._outputs._fields
    if output not in cell.outputs and output not in fields:
        raise errors.InvalidArgumentError(
            f"invalid argument: {cell.name} has no output {output!r}; its outputs are {', '.join(cell.outputs)}"
            + did_you_mean(output, [*cell.outputs, *fields])
        )
    return cell._outputs._name_of.get(output, output)


def names_in_layers(name: str, params: Sequence[str]) -> str:
    """What to say behind an error of an attribute that there is not: the parameters of layers and directions that are called so there."""
    places: dict[str, list[str]] = {}
    for param in params:
        if "/" in param:
            places.setdefault(param.rpartition("/")[2], []).append(param)
    like = difflib.get_close_matches(name, places, n=1)
    theirs = places[like[0]] if like else []
    return f"; its layers have {', '.join(map(repr, theirs))}: call getattr(module, {theirs[0]!r})" if theirs else ""


def how_to_assign(param: str) -> str:
    """What sets a parameter of a module, whose name need not be one of Python."""
    is_name = param.isidentifier() and not keyword.iskeyword(param)
    return f"assign to module.{param}" if is_name else f"call setattr(module, {param!r}, parameter)"
