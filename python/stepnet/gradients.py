"""Gradients of calls of cells and nets."""

from __future__ import annotations

from typing import Any, Callable, Mapping, NamedTuple, Sequence, Union

import numpy

from . import _stepnet, errors

Array = Any
"""NumPy's arrays, or what has ``__dlpack__`` or the buffer protocol."""

Loss = Union[str, Sequence[str], Callable[[Any], "tuple[Any, Mapping[str, Array]]"]]


Requests = Mapping[str, str]
"""What becomes of gradients, by name: ``"write"``, ``"add"`` or ``"none"``."""


class Gradients(NamedTuple):
    """Gradients of a sum of outputs, each of the shape and dtype of what it is by."""

    params: dict[str, numpy.ndarray]
    inputs: dict[str, numpy.ndarray]


Into = Union[Gradients, Mapping[str, Array], None]
"""What gradients are added to, by name."""


class Pullback:
    """From gradients of a call's outputs to those of what it was given. Made by the ``vjp`` of a cell or a net."""

    def __init__(self, gradients: _stepnet.CallGradients, name_of: Mapping[str, str]) -> None:
        """``name_of``: of the fields of the outputs' tuple that are called otherwise than what they hold, its name."""
        self._gradients = gradients
        self._name_of = name_of

    def __call__(self, into: Into = None, /, **output_gradients: Array) -> Gradients:
        """The gradients of the sum of all outputs, each element times that of its gradient.

        ``output_gradients`` are by the name of the output or its field, of its shape and dtype; those that are missing are
        zeros. It may be called any number of times.

        Args:
            into: an array by the name of each gradient that ``gradient_requests`` says to add, of its shape and dtype. Each
                is changed in place, when all have been computed, and is the one that is returned; or the gradients of a
                call before, where all are added.

        Raises:
            InvalidArgumentError: where one is missing, is for another name, or cannot be written to.
            ShapeMismatchError, TypeMismatchError: for an array that is not as the gradient is.
        """
        given = _arrays_of(into)
        targets = {name: _writable(name, array) for name, array in given.items()}
        _refuse_overlap(targets)
        by_output = {self._name_of.get(name, name): each for name, each in output_gradients.items()}
        sums = {name: numpy.asarray(array, order="C") for name, array in targets.items()}
        gradients = Gradients(*self._gradients(by_output, sums))
        for by_name in gradients:
            for name in by_name.keys() & targets.keys():
                numpy.copyto(targets[name], by_name[name])
                by_name[name] = given[name]
        return gradients


def _arrays_of(into: Into) -> dict[str, Array]:
    if isinstance(into, Gradients):
        return {**into.params, **into.inputs}
    return dict(into or {})


def _writable(name: str, given: Array) -> numpy.ndarray:
    """The memory of ``given`` as an array of NumPy."""
    array = given.detach().numpy() if hasattr(given, "detach") else given
    if not isinstance(array, numpy.ndarray):
        raise errors.TypeMismatchError(
            f"type mismatch: into has for {name!r} a {type(given).__name__}; it must be an array of NumPy or a tensor of PyTorch"
        )
    if not array.flags.writeable:
        raise errors.InvalidArgumentError(
            f"invalid argument: into has for {name!r} an array that is read-only, to which no gradient can be added; give a copy"
        )
    return array


def _refuse_overlap(targets: Mapping[str, numpy.ndarray]) -> None:
    """Of gradients that are added to the same memory one would be lost."""
    seen: dict[str, numpy.ndarray] = {}
    for name, array in targets.items():
        for other, before in seen.items():
            if numpy.may_share_memory(array, before):
                raise errors.InvalidArgumentError(
                    f"invalid argument: into has for {other!r} and {name!r} arrays in the same memory; each needs its own"
                )
        seen[name] = array


def names_of(wrt: str | Any) -> list[str]:
    """``wrt`` as a list: one name may be given alone."""
    return [wrt] if isinstance(wrt, str) else list(wrt)


def value_and_grad(outputs: Any, pullback: Pullback, loss: Loss, into: Into) -> tuple[Any, Gradients]:
    """The value of a loss of ``outputs`` and its gradients."""
    if callable(loss):
        value, output_gradients = loss(outputs)
    else:
        names = names_of(loss)
        value = sum(float(numpy.sum(outputs[name], dtype=numpy.float64)) for name in names)
        output_gradients = {name: numpy.ones_like(outputs[name]) for name in names}
    return value, pullback(into, **output_gradients)
