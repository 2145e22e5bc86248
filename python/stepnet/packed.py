"""Between the flat vector in which MXNet and cuDNN keep the parameters of recurrent layers and named arrays.

The vector holds first all weights, then all biases. Weights: of each layer, of each of its directions (forward, reverse),
``weight_ih [G*H, D]``, ``weight_hh [G*H, H]`` and, with a projection, ``weight_hr [P, H]``, each row by row. Biases: in the
same order of layers and directions ``bias_ih [G*H]``, ``bias_hh [G*H]``. G*H rows hold gates in the order i, f, g, o (lstm) or
r, z, n (gru). MXNet calls these i2h, h2h and h2r. This is the layout of ``parameters`` of MXNet's operator ``RNN`` and of
cuDNN's weight space.
"""

from __future__ import annotations

import math
from typing import Dict, Mapping

import numpy

from . import errors
from .cell import Cell
from .gradients import Array
from .layers import Layers, Shapes, layers_of


def split(parameters: Array, cell: Cell) -> Dict[str, numpy.ndarray]:
    """The parameters of a cell from the flat vector.

    Args:
        parameters: ``[n]``, of the cell's dtype.
        cell: of ``stepnet.layers`` or ``stepnet.from_torch``, which says how many layers there are, and of what sizes.

    Returns:
        An array for each of ``cell.params``, in the memory of the vector.

    Raises:
        ShapeMismatchError, TypeMismatchError: for a vector of another length or dtype.
        InvalidArgumentError: for another cell.
    """
    described = layers_of(cell)
    shapes = _in_order(described)
    vector = _checked("the vector", parameters, (sum(map(math.prod, shapes.values())),), cell, described)
    found, begin = {}, 0
    for name, shape in shapes.items():
        end = begin + math.prod(shape)
        found[name] = vector[begin:end].reshape(shape)
        begin = end
    return {each.name: found[each.name] for each in cell.params}


def join(params: Mapping[str, Array], cell: Cell) -> numpy.ndarray:
    """The flat vector of a cell's parameters, or of their gradients; see :func:`split`.

    Raises:
        ShapeMismatchError, TypeMismatchError: for an array of another shape or dtype.
        InvalidArgumentError: for another cell, and where a parameter is missing or unknown.
    """
    described = layers_of(cell)
    shapes = _in_order(described)
    wrong = [name for name in shapes if name not in params], [name for name in params if name not in shapes]
    for names, what in zip(wrong, ("missing", "not known")):
        if names:
            raise errors.InvalidArgumentError(
                f"invalid argument: packed: the parameter {names[0]!r} is {what}; those of {cell.name} are {', '.join(shapes)}"
            )
    arrays = (_checked(name, params[name], shape, cell, described) for name, shape in shapes.items())
    return numpy.concatenate([array.ravel() for array in arrays])


def _in_order(described: Layers) -> Shapes:
    """The shapes of the parameters in the order of the vector."""
    shapes = described.shapes()
    # Sorting by what is true of a name alone keeps the order within both.
    return {name: shapes[name] for name in sorted(shapes, key=lambda name: name.rpartition("/")[2].startswith("bias"))}


def _checked(name: str, given: Array, shape: tuple[int, ...], cell: Cell, described: Layers) -> numpy.ndarray:
    array = numpy.asarray(given)
    if array.shape != shape:
        raise errors.ShapeMismatchError(
            f"shape mismatch: packed: {name} is {list(array.shape)}; of {described} it must be {list(shape)}"
        )
    if array.dtype != cell.params[0].dtype:
        raise errors.TypeMismatchError(
            f"type mismatch: packed: {name} is {array.dtype}; it must be {cell.params[0].dtype}, as {cell.name} is"
        )
    return array
