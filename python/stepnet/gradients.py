"""Gradients of calls of cells and nets."""

from __future__ import annotations

from typing import Any, Callable, Iterable, Mapping, NamedTuple, Sequence, Union

import numpy

from . import _stepnet
from .errors import InvalidArgumentError, TypeMismatchError

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


def names_of(argument: str, names: str | Iterable[str]) -> list[str]:
    """The names that were given as ``argument``, as a list: one may be given alone."""
    if isinstance(names, str):
        return [names]
    if isinstance(names, Iterable):
        return list(names)
    raise TypeMismatchError(f"type mismatch: {argument} is {names!r}; it must be a name or names")


def arrays_of(argument: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The arrays by name that were given as ``argument``."""
    if isinstance(arrays, dict):
        return arrays
    if isinstance(arrays, Mapping):
        return dict(arrays)
    raise TypeMismatchError(
        f"type mismatch: {argument} is a {type(arrays).__name__}; it must be a dictionary of arrays by name"
    )


def value_and_grad(outputs: Any, pullback: Pullback, loss: Loss) -> tuple[Any, Gradients]:
    """The value of a loss of ``outputs`` and its gradients."""
    if callable(loss):
        value, output_gradients = loss(outputs)
    else:
        names = names_of("loss", loss)
        for name in names:
            if name not in outputs._names and name not in outputs._fields:
                raise InvalidArgumentError(
                    f"invalid argument: loss names {name!r}; the outputs are {', '.join(outputs._names)}"
                )
        value = sum(float(numpy.sum(outputs[name], dtype=numpy.float64)) for name in names)
        output_gradients = {name: numpy.ones_like(outputs[name]) for name in names}
    return value, pullback(**output_gradients)
