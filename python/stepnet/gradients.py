"""Gradients of calls of cells and nets."""

from __future__ import annotations

import contextlib
import keyword
from typing import Any, Callable, Iterable, Iterator, Mapping, NamedTuple, Sequence, Union

import numpy

from . import _stepnet
from .errors import InvalidArgumentError, OutOfMemoryError, TypeMismatchError
from .outputs import Outputs
from .source import kind_of, repr_of, with_article
from .words import Requests

Array = Any
"""NumPy's arrays, or what has ``__dlpack__`` or the buffer protocol."""

Given = Union[numpy.ndarray, _stepnet.DeviceArray]
"""What calls give: arrays on the host, or on the device where the call was given any there."""

Loss = Union[str, Sequence[str], Callable[[Any], "tuple[Any, Mapping[str, Array]]"]]


class Gradients(NamedTuple):
    """Gradients of a sum of outputs, each of the shape and dtype of what it is by: ``[T, B, …]`` for a sequence.

    Attributes:
        params: those by parameters, by name.
        inputs: those by inputs, initial states among them, by name.
    """

    params: dict[str, Given]
    inputs: dict[str, Given]


Into = Union[Gradients, Mapping[str, Array], None]
"""What gradients are added to, by name."""


class Pullback:
    """From gradients of a call's outputs to those of what it was given. Made by the ``vjp`` of a cell or a net.

    Each has the shape of what it is the gradient of, or by: ``[T, B, …]`` for a sequence, ``[1, B, …]`` for a state.
    """

    def __init__(self, gradients: _stepnet.CallGradients, outputs: type[Outputs[Any]]) -> None:
        """``outputs``: the class of what the call gave."""
        self._gradients = gradients
        self._outputs = outputs

    def __call__(self, into: Into = None, /, **output_gradients: Array) -> Gradients:
        """The gradients of the sum of all outputs, each element times that of its gradient.

        ``output_gradients`` are by the name of the output or its field, of its shape, ``[T, B, …]`` or ``[1, B, …]``, and dtype;
        one has to be given, and those that are missing are zeros. It may be called any number of times. Gradients are where
        the outputs are, and sums where they were given.

        Args:
            into: an array by the name of each gradient that ``gradient_requests`` says to add, of its shape and dtype: an
                array of NumPy, or a tensor of PyTorch, which may be on the device of the call. Each is changed in place, when
                all have been computed, and is the one that is returned; PyTorch refuses gradients for which it has kept what
                the tensor held. Or the gradients of a call before, where all are added.

        Raises:
            InvalidArgumentError: without the gradient of any output; where one is given twice, by name and by field; where an
                array is missing, is for another name, cannot be written to, or shares memory with what the call was given or
                gave.
            ShapeMismatchError, TypeMismatchError: for an array that is not as the gradient is.
        """
        if not output_gradients:
            raise InvalidArgumentError(f"invalid argument: {self._why_nothing(into)}")
        if isinstance(into, Gradients):
            into = {**into.params, **into.inputs}
        given = arrays_of("into", {} if into is None else into)
        targets = {name: _writable(name, given[name]) for name in names_of("into", given)}
        _refuse_overlap(targets)
        if targets:
            _refuse_kept(targets, self._gradients.kept())
        gradients = Gradients(*self._gradients(self._by_output(output_gradients), targets))
        for by_name in gradients:
            for name in by_name.keys() & targets.keys():
                _add(targets[name], by_name[name])
                if isinstance(targets[name], numpy.ndarray):  # else PyTorch has added
                    _tell_of_change(given[name])
                by_name[name] = given[name]
        return gradients

    def _by_output(self, gradients: Mapping[str, Array]) -> dict[str, Array]:
        """By the names of outputs what is given by names or fields."""
        by_output: dict[str, Array] = {}
        for name, each in gradients.items():
            output = self._outputs._name_of.get(name, name)
            if output in by_output:
                raise InvalidArgumentError(
                    f"invalid argument: the gradient of the output {output!r} is given twice, by name and by field"
                )
            by_output[output] = each
        return by_output

    def _why_nothing(self, into: Into) -> str:
        """What to say to a call without the gradient of any output, which may stand where ``into`` does."""
        names = self._outputs._names
        name = next(iter(names), "h")
        example = f"{name}=gradient" if name.isidentifier() and not keyword.iskeyword(name) else f"**{{{name!r}: gradient}}"
        by_position = ""
        if isinstance(into, Mapping) and not {*names, *self._outputs._fields}.isdisjoint(into):
            by_position = "; what is given by position is into, to which gradients are added: write pullback(**gradients)"
        return f"the pullback is given no gradient; give that of an output, by its name: pullback({example}){by_position}"


def _add(target: Array, gradient: Given) -> None:
    """In place: of a tensor on a device by PyTorch, in the order of its current stream."""
    if isinstance(target, numpy.ndarray):
        with numpy.errstate(all="ignore"):
            numpy.add(target, gradient, out=target)
    else:
        target.add_(_taken_by_torch(gradient, target.device))


def _tell_of_change(given: Array) -> None:
    """Has PyTorch count that the elements of a tensor have changed, which it asks where it has kept the tensor for gradients.

    It counts operations in place: here one on none of the elements.
    """
    if not isinstance(given, numpy.ndarray) and not given.is_inference():  # of such a tensor nothing is counted, or kept
        given.detach().unsqueeze(0)[:0].zero_()


def _taken_by_torch(gradient: Given, device: Any) -> Any:
    """A gradient as a tensor on this device: copied there where the call gave it on the host."""
    import torch

    return torch.from_dlpack(gradient).to(device)


def _writable(name: str, given: Array) -> Array:
    """The memory of ``given`` as an array of its own, which stays as it is when ``given`` gets another shape meanwhile. On a
    device it is a tensor of PyTorch."""
    what = f"into has for {name!r}"
    if not isinstance(given, numpy.ndarray) and not hasattr(given, "detach"):
        raise TypeMismatchError(
            f"type mismatch: {what} {with_article(type(given))}; it must be an array of NumPy or a tensor of PyTorch"
        )
    if getattr(given, "requires_grad", False):
        raise InvalidArgumentError(
            f"invalid argument: {what} a tensor that requires gradients, and those by it would lack the sum; "
            "give tensor.detach(), or another one"
        )
    if not isinstance(given, numpy.ndarray) and getattr(given, "is_neg", bool)():
        raise InvalidArgumentError(
            f"invalid argument: {what} a tensor that is the negative of what its memory holds; give tensor.resolve_neg()"
        )
    where = "cpu" if isinstance(given, numpy.ndarray) else str(getattr(given, "device", "cpu")).partition(":")[0]
    if where == "meta":
        raise InvalidArgumentError(f"invalid argument: {what} an array on meta; it must be in the host's memory or on a GPU")
    if where != "cpu":
        if not given.is_contiguous():
            raise InvalidArgumentError(f"invalid argument: {what} a tensor on {given.device} that is not contiguous; give a copy")
        return given.detach()
    array = numpy_of(f"the array of into for {name!r}", given)
    if not array.flags.writeable:
        raise InvalidArgumentError(
            f"invalid argument: {what} an array that is read-only, to which no gradient can be added; give a copy"
        )
    with memory_for(f"finding out whether elements of the array of into for {name!r} share memory"):
        overlaps = _overlaps_itself(array)
    if overlaps:
        raise InvalidArgumentError(
            f"invalid argument: {what} an array whose elements share memory, as a broadcast one's do; give a copy"
        )
    return array.view()


def _overlaps_itself(array: numpy.ndarray) -> bool:
    """Whether two elements share memory."""
    dims = sorted((abs(stride), size) for stride, size in zip(array.strides, array.shape) if size > 1)
    end = array.itemsize  # of the elements that the dimensions so far reach
    are_apart = True
    for stride, size in dims:
        are_apart = are_apart and stride >= end
        end += stride * (size - 1)
    if are_apart or array.size == 0:
        return False
    if any(stride == 0 for stride, _ in dims):
        return True
    offsets = numpy.zeros(1, numpy.int64)
    for stride, size in dims:
        offsets = numpy.add.outer(offsets, stride * numpy.arange(size)).ravel()
    return bool(numpy.diff(numpy.sort(offsets)).min() < array.itemsize)


MOST_WORK: Any = 10**6  # of NumPy's types for it none is a number of steps
"""Of NumPy, to find out whether two arrays share an element; it solves equations, and gives up beyond."""


def _share_memory(a: Array, b: Array) -> bool:
    """Whether two of what ``_writable`` gives do."""
    if isinstance(a, numpy.ndarray) and isinstance(b, numpy.ndarray):
        return numpy.may_share_memory(a, b, max_work=MOST_WORK)
    if isinstance(a, numpy.ndarray) or isinstance(b, numpy.ndarray) or a.device != b.device:
        return False
    begins, sizes = zip(*((each.data_ptr(), each.numel() * each.element_size()) for each in (a, b)))
    return bool(begins[0] < begins[1] + sizes[1] and begins[1] < begins[0] + sizes[0])


def _refuse_overlap(targets: Mapping[str, Array]) -> None:
    """Of gradients that are added to the same memory one would be lost."""
    seen: dict[str, Array] = {}
    for name, array in targets.items():
        for other, before in seen.items():
            if _share_memory(array, before):
                raise InvalidArgumentError(
                    f"invalid argument: into has for {other!r} and {name!r} arrays in the same memory; each needs its own"
                )
        seen[name] = array


def _refuse_kept(targets: Mapping[str, Array], kept: Iterable[tuple[str, numpy.ndarray]]) -> None:
    """Raises InvalidArgumentError where an array is in memory, on the host, of which the gradients are computed: the next call
    of the pullback would compute them of the sum.
    """
    for what, other in kept:
        for name, array in targets.items():
            if _share_memory(array, other):
                raise InvalidArgumentError(
                    f"invalid argument: into has for {name!r} an array in the memory of {what}, of which gradients are "
                    "computed; give a copy"
                )


@contextlib.contextmanager
def memory_for(what: str) -> Iterator[None]:
    """Where NumPy has no memory for ``what``: raises OutOfMemoryError that says so."""
    try:
        yield
    except MemoryError as error:
        raise OutOfMemoryError(f"out of memory: there is no memory for {what}: {error}") from None


NUMBERS = "fiub"
"""The kinds of NumPy's dtypes that tensors have."""


def _is_array(given: Any) -> bool:
    """Whether something has elements by one of the ways in which arrays show theirs; NumPy would also take a list."""
    if any(hasattr(given, each) for each in ("__array__", "__array_interface__", "__dlpack__", "detach")):
        return True
    try:
        memoryview(given)
    except TypeError:
        return False
    return True


def numpy_of(what: str, given: Array) -> numpy.ndarray:
    """An array, or a tensor of PyTorch, as an array of NumPy, in the same memory where NumPy can show that.

    A tensor that is the negative of what its memory holds is copied.

    Raises TypeMismatchError for what NumPy makes no array of numbers of, InvalidArgumentError for a tensor with a tangent.
    """
    if type(given) is numpy.ndarray and given.dtype.kind in NUMBERS:
        return given
    if hasattr(given, "detach") and _stepnet.has_tangent(given):
        raise InvalidArgumentError(
            f"invalid argument: {what} has a tangent of forward mode (torch.autograd.forward_ad), of which nothing here "
            "knows; give torch.autograd.forward_ad.unpack_dual(tensor).primal"
        )
    if not _is_array(given):
        raise TypeMismatchError(f"type mismatch: {what} is {kind_of(given)}, no array; it must be one of NumPy, or have __dlpack__")
    try:
        with memory_for(what):
            array = numpy.asarray(given.detach().resolve_neg() if hasattr(given, "detach") else given)
    except OutOfMemoryError:
        raise
    except Exception as error:  # of PyTorch, or of what is given
        raise TypeMismatchError(
            f"type mismatch: {what} is {with_article(type(given))}, of which NumPy makes no array: {error}"
        ) from None
    if array.dtype.kind not in NUMBERS:
        raise TypeMismatchError(
            f"type mismatch: {what} is {with_article(type(given))} of {array.dtype}; it must be an array of numbers"
        )
    return array


def inputs_of(inputs: Mapping[str, Array] | None, named: dict[str, Array]) -> dict[str, Array]:
    """The inputs of a call, which are given as a dictionary, by name, or some in either way."""
    if inputs is None:
        return named
    if not isinstance(inputs, (dict, Mapping)):
        raise TypeMismatchError(
            f"type mismatch: inputs is {kind_of(inputs)}; it must be a dictionary of arrays by name, {{'x': x}}, "
            "or each array is given by name: x=x"
        )
    given = arrays_of("inputs", inputs)
    for name in named:
        if name in given:
            raise InvalidArgumentError(f"invalid argument: the input {name!r} is given twice, by name and in the dictionary")
    return {**given, **named}


def names_of(argument: str, names: str | Iterable[str]) -> list[str]:
    """The names that were given as ``argument``, as a list: one may be given alone."""
    if isinstance(names, str):
        return [names]
    if isinstance(names, (bytes, bytearray, memoryview)):  # one of two dimensions says so only when it is gone through
        raise TypeMismatchError(f"type mismatch: {argument} is {kind_of(names)}; it must be a name or names")
    try:
        each = iter(names)
    except TypeError:  # also of an array without dimensions
        raise TypeMismatchError(f"type mismatch: {argument} is {kind_of(names)}; it must be a name or names") from None
    given = []
    for name in each:  # looked at as they come: there may be very many
        if not isinstance(name, str):
            what = repr_of(name) if isinstance(name, (int, float, type(None))) else kind_of(name)
            raise TypeMismatchError(f"type mismatch: a name of {argument} is {what}; it must be a text")
        given.append(name)
    return given


def arrays_of(argument: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The arrays by name that were given as ``argument``."""
    if isinstance(arrays, dict):
        return arrays
    if isinstance(arrays, Mapping):
        return dict(arrays)
    raise TypeMismatchError(
        f"type mismatch: {argument} is {kind_of(arrays)}; it must be a dictionary of arrays by name"
    )


def requests_of(requests: Requests | None) -> dict[str, str]:
    """``gradient_requests`` as a dictionary; what is in it is looked at elsewhere."""
    if requests is None or isinstance(requests, Mapping):
        return dict(requests or {})
    raise TypeMismatchError(
        f"type mismatch: gradient_requests is {with_article(type(requests))}; it must be a dictionary of words by name"
    )


def _on_host(output: Given) -> numpy.ndarray:
    return output.numpy() if isinstance(output, _stepnet.DeviceArray) else output


def value_and_grad(outputs: Outputs, pullback: Pullback, loss: Loss, into: Into) -> tuple[Any, Gradients]:
    """The value of a loss of ``outputs`` and its gradients."""
    value, output_gradients = _computed(outputs, loss) if callable(loss) else _summed(outputs, loss)
    return value, pullback(into, **output_gradients)


def _computed(outputs: Outputs, loss: Callable[[Any], Any]) -> tuple[Any, Mapping[str, Array]]:
    """What a function gives: the loss and its gradients by outputs."""
    given = loss(outputs)
    is_pair = isinstance(given, (tuple, list)) and len(given) == 2
    if is_pair and isinstance(given[1], Mapping) and all(isinstance(name, str) for name in given[1]):
        return given[0], given[1]
    kinds = ", ".join(type(each).__name__ for each in given) if isinstance(given, (tuple, list)) else type(given).__name__
    raise TypeMismatchError(
        f"type mismatch: the function that is the loss gives ({kinds}); it must give the loss and its gradients, a "
        "dictionary of arrays by names of outputs: (2.5, {'h': gradient})"
    )


def _summed(outputs: Outputs, loss: str | Sequence[str]) -> tuple[float, Mapping[str, Array]]:
    """The sum of all elements of the outputs of these names, and its gradients."""
    if not isinstance(loss, str) and not isinstance(loss, Iterable):
        raise TypeMismatchError(
            f"type mismatch: loss is {kind_of(loss)}; it must be the name of an output, names, or a function of the outputs"
        )
    names = names_of("loss", loss)
    for name in names:
        if name not in outputs._names and name not in outputs._fields:
            raise InvalidArgumentError(
                f"invalid argument: loss names {name!r}; the outputs are {', '.join(outputs._names)}"
            )
    given = {name: outputs[name] for name in names}
    if len({id(each) for each in given.values()}) < len(names):
        raise InvalidArgumentError(f"invalid argument: loss names an output twice: {', '.join(names)}")
    for name, output in given.items():
        if isinstance(output, _stepnet.DeviceArray) and output.dtype == "bfloat16":
            raise InvalidArgumentError(
                f"invalid argument: loss names {name!r}, which is bfloat16, and NumPy has no gradient in that; give a function "
                "that returns the loss and the gradient, a tensor of PyTorch or an array of the package ml_dtypes"
            )
    value, gradients = 0.0, {}
    for name, output in given.items():
        array = numpy_of(f"the output {name!r}, which loss names,", _on_host(output))
        value += float(numpy.add.reduce(array, axis=None, dtype=numpy.float64))
        with memory_for(f"the gradient of the output {name!r}"):
            gradients[name] = numpy.empty_like(array)
        gradients[name].fill(1)
    return value, gradients
