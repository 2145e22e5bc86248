"""Gradients of calls of cells and nets."""

from __future__ import annotations

from typing import Any, Callable, Mapping, NamedTuple, Sequence, Union

import numpy

from . import _stepnet, arguments
from .errors import InvalidArgumentError

Array = Any
"""NumPy's arrays, or what has ``__dlpack__`` or the buffer protocol."""

Loss = Union[str, Sequence[str], Callable[[Any], "tuple[Any, Mapping[str, Array]]"]]


class Gradients(NamedTuple):
    """Gradients of a sum of outputs, each of the shape and dtype of what it is by."""

    params: dict[str, numpy.ndarray]
    inputs: dict[str, numpy.ndarray]


class Pullback:
    """From gradients of a call's outputs to those of what it was given. Made by the ``vjp`` of a cell or a net."""

    def __init__(self, gradients: _stepnet.CallGradients, name_of: Mapping[str, str]) -> None:
        """``name_of``: of the fields of the outputs' tuple that are called otherwise than what they hold, its name."""
        self._gradients = gradients
        self._name_of = name_of

    def __call__(self, **output_gradients: Array) -> Gradients:
        """The gradients of the sum of all outputs, each element times that of its gradient.

        ``output_gradients`` are by the name of the output or its field, of its shape and dtype; those that are missing are
        zeros. It may be called any number of times.
        """
        return Gradients(*self._gradients({self._name_of.get(name, name): each for name, each in output_gradients.items()}))


def value_and_grad(outputs: Any, pullback: Pullback, loss: Loss) -> tuple[Any, Gradients]:
    """The value of a loss of ``outputs`` and its gradients."""
    if callable(loss):
        value, output_gradients = loss(outputs)
    else:
        names = arguments.names_of("loss", loss)
        unknown = [name for name in names if name not in outputs._names and name not in outputs._fields]
        if unknown:
            raise InvalidArgumentError(
                f"invalid argument: loss names {arguments.shown(unknown[0])}; the outputs are {', '.join(outputs._names)}"
            )
        value = sum(float(numpy.sum(outputs[name], dtype=numpy.float64)) for name in names)
        output_gradients = {name: numpy.ones_like(outputs[name]) for name in names}
    return value, pullback(**output_gradients)
