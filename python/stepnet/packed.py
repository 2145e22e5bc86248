"""Between the flat vector in which MXNet and cuDNN keep the parameters of recurrent layers and named arrays.

The vector holds first all weights, then all biases. Weights: of each layer, of each of its directions (forward, reverse),
``weight_ih [G*H, D]``, ``weight_hh [G*H, H]`` and, with a projection, ``weight_hr [P, H]``, each row by row. Biases: in the
same order of layers and directions ``bias_ih [G*H]``, ``bias_hh [G*H]``. G*H rows hold gates in the order i, f, g, o (lstm) or
r, z, n (gru). MXNet calls these i2h, h2h and h2r. This is the layout of ``parameters`` of MXNet's operator ``RNN`` and of
cuDNN's weight space.
"""

from __future__ import annotations

import math
from typing import Dict, List, Mapping, Tuple

import numpy

from . import _stepnet, errors
from .cell import Cell
from .gradients import Array, arrays_of, numpy_of
from .layers import Layers, layers_of


def split(parameters: Array, cell: Cell) -> Dict[str, numpy.ndarray]:
    """The parameters of a cell from the flat vector.

    Args:
        parameters: ``[n]``, of the cell's dtype.
        cell: of ``stepnet.layers`` or ``stepnet.from_torch``, which says how many layers there are, and of what sizes.

    Returns:
        An array for each of ``cell.params``, in the memory of the vector.

    Raises:
        ShapeMismatchError, TypeMismatchError: for a vector of another length or dtype, and for what is none.
        InvalidArgumentError: for another cell.
    """
    described = layers_of(cell)
    parts, size = _layout(described)
    vector = _checked("the vector", parameters, (size,), cell, described)
    found = {name: vector[begin : begin + math.prod(shape)].reshape(shape) for name, shape, begin in parts}
    return {each.name: found[each.name] for each in cell.params}


def join(params: Mapping[str, Array], cell: Cell) -> numpy.ndarray:
    """The flat vector ``[n]`` of a cell's parameters ``params``, or of their gradients; see :func:`split`.

    Raises:
        ShapeMismatchError, TypeMismatchError: for an array of another shape or dtype, and for what is none.
        InvalidArgumentError: for another cell, and where a parameter is missing or unknown.
    """
    described = layers_of(cell)
    parts, size = _layout(described)
    known, params = [name for name, _, _ in parts], arrays_of("params", params)
    wrong = [name for name in known if name not in params], [name for name in params if name not in known]
    for names, what in zip(wrong, ("missing", "not known")):
        if names:
            raise errors.InvalidArgumentError(
                f"invalid argument: packed: the parameter {names[0]!r} is {what}; those of {cell.name} are {', '.join(known)}"
            )
    vector = numpy.empty(size, cell.params[0].dtype)
    for name, shape, begin in parts:
        vector[begin : begin + math.prod(shape)] = _checked(name, params[name], shape, cell, described).ravel()
    return vector


def _layout(described: Layers) -> Tuple[List[Tuple[str, Tuple[int, ...], int]], int]:
    """The name, the shape and the place of each parameter, layer by layer, and the length of the vector."""
    return _stepnet.packed_layout(
        described.mode,
        described.input_size,
        described.hidden_size,
        described.num_layers,
        described.bias,
        described.bidirectional,
        described.proj_size,
    )


def _checked(name: str, given: Array, shape: tuple[int, ...], cell: Cell, described: Layers) -> numpy.ndarray:
    array = numpy_of(f"packed: {name}", given)
    if array.shape != shape:
        raise errors.ShapeMismatchError(
            f"shape mismatch: packed: {name} is {array.dtype} {list(array.shape)}; of {described} it must be {list(shape)}"
        )
    if array.dtype != cell.params[0].dtype:
        raise errors.TypeMismatchError(
            f"type mismatch: packed: {name} is {array.dtype}; it must be {cell.params[0].dtype}, as {cell.name} is"
        )
    return array
