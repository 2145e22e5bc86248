"""Cells: what one timestep computes, called on whole sequences."""

from __future__ import annotations

import warnings
from typing import Any, Iterable, Mapping, NamedTuple

import numpy

from . import _stepnet
from .errors import CellWarning, InvalidArgumentError, TypeMismatchError
from .gradients import (
    Array,
    Gradients,
    Into,
    Loss,
    Pullback,
    arrays_of,
    inputs_of,
    names_of,
    requests_of,
    value_and_grad,
)
from .outputs import Outputs, outputs_type
from .source import Source, all_named, device_name, did_you_mean, refuse_onnx, repr_of, text_or_path
from .words import AS_IT_IS, CellWord, Device, DType, PageFormat, Passes, Requests

class Argument(NamedTuple):
    """What a cell is given, apart from its parameters, or one of those.

    Attributes:
        name: by which a call gives it.
        dtype: as NumPy calls it.
        shape: ``"[T, B, 8]"``: T steps, a batch of B; ``"[16, 8]"`` of a parameter.
        optional: whether it may be left out: a state then starts as the cell says.
    """

    name: str
    dtype: str
    shape: str
    optional: bool


class Cell:
    """A cell with its sizes and options. Made by :func:`cell`.

    It is called with parameters, ``[16, 8]``, say, and with sequences ``[T, B, …]``: :attr:`params` and :attr:`inputs` say the
    shape of each. Any number of threads may call it: each call has memory of its own, which later calls take again.
    """

    def __init__(self, source: Source, options: Mapping[str, Any]) -> None:
        self._options = dict(options)
        text, is_text = text_or_path(source)
        if not is_text:
            refuse_onnx(text)
        try:
            cell = _stepnet.make_cell(text, is_text, **options)
        except (InvalidArgumentError, TypeMismatchError) as error:
            raise _with_known(error, text, is_text, options) from None
        self._cell = cell
        self._call = cell.call
        self._whole_outputs = cell.whole_outputs()
        self._tensor_calls: dict[Any, _stepnet.TensorCall] = {}  # of stepnet.torch
        self._outputs = outputs_type("Outputs", cell.outputs)
        self._make = self._outputs._make
        self.name: str = cell.name
        self.text: str = cell.text
        """What the cell was made from, to print or to change."""
        self.__doc__ = cell.doc or f"The cell {cell.name}."
        self.params: tuple[Argument, ...] = tuple(Argument(*each) for each in cell.arguments(True))
        """The parameters, of which ``init`` gives values."""
        self.inputs: tuple[Argument, ...] = tuple(Argument(*each) for each in cell.arguments(False))
        """What else a call is given; what is int32 here, as lengths, may be int64, too.

        :attr:`Net.inputs` are names alone, as files of nets tell neither dtypes nor shapes.
        """
        self._own_names = {module_name(each.name): each.name for each in self.params if "." in each.name}
        self._input_names = frozenset(each.name for each in self.inputs)
        self.outputs: tuple[str, ...] = tuple(cell.outputs)
        """The names of what a call gives."""

    def __repr__(self) -> str:
        return self._described(self._options["in_double"])

    def _described(self, in_double: bool) -> str:
        given = ", ".join(f"{each.name}{each.shape}" for each in self.inputs)
        dtype = "float64" if in_double else "float32"
        return f"<stepnet.Cell {self.name}({given}) -> {', '.join(self.outputs)} in {dtype}>"

    def with_options(
        self,
        *,
        sizes: Mapping[str, CellWord] = AS_IT_IS,
        training: bool = AS_IT_IS,
        carry: bool = AS_IT_IS,
        dtype: DType = AS_IT_IS,
        threads: int = AS_IT_IS,
        device: Device = AS_IT_IS,
        opt_level: int = AS_IT_IS,
        disable_pass: Passes = AS_IT_IS,
        seed: int = AS_IT_IS,
        **named: CellWord,
    ) -> Cell:
        """The same cell with other options, as :func:`cell` takes them, and otherwise those of this one.

        >>> cell.with_options(H=64, dtype="float64").params[0].shape                 # [256, 8]
        """
        given = {
            "training": training,
            "carry": carry,
            "in_double": dtype if dtype is AS_IT_IS else is_double(dtype),
            "threads": threads,
            "device": device_name(device),
            "opt_level": opt_level,
            "disable_pass": disable_pass if disable_pass is AS_IT_IS else names_of("disable_pass", disable_pass),
            "seed": seed,
        }
        changed = {name: value for name, value in given.items() if value is not AS_IT_IS}
        new = all_named({} if sizes is AS_IT_IS else sizes, named)
        return Cell(self.text, {**self._options, **changed, "named": {**self._options["named"], **new}})

    def __reduce__(self) -> Any:
        """For ``pickle`` and ``copy``: the text of the cell goes with it, so that its file is not needed."""
        return Cell, (self.text, self._options)

    def _by_own_names(self, params: Mapping[str, Array]) -> dict[str, Array]:
        """The parameters by the cell's names, of which a dot may be ``_``, as in the ``state_dict`` of a ``stepnet.torch.Module``."""
        arrays = arrays_of("params", params)
        if not self._own_names:
            return arrays
        known, own = {each.name for each in self.params}, {}
        for name, array in arrays.items():
            its = name if name in known else self._own_names.get(name, name)
            if its in own:
                raise InvalidArgumentError(
                    f'invalid argument: the parameter "{its}" of {self.name} is given twice, also as "{module_name(its)}"'
                )
            own[its] = array
        return own

    def init(self, seed: int = 0) -> dict[str, numpy.ndarray]:
        """Parameters as the cell says that they are filled, by name, in the order of :attr:`params`; random ones are drawn from ``seed``.

        Each has the shape that :attr:`params` says, as ``w [4*H, D]`` of an LSTM.
        """
        values = self._cell.init(seed)
        return {each.name: values[each.name] for each in self.params}

    def __call__(self, params: Mapping[str, Array], inputs: Mapping[str, Array] | None = None, /, **named: Array) -> Outputs:
        """Runs the cell over a sequence.

        Args:
            params: an array for each of ``self.params``, by its name, or by that of a ``stepnet.torch.Module`` (with ``_`` for ``.``).
            inputs, named: an array for each of ``self.inputs``, by name: ``x=x`` or, whatever the names are, in a
                dictionary, ``{"x": x}``. The first one, ``[T, B, …]``, says how many steps there are and how large the
                batch is.

        Returns:
            A named tuple with an array for each of ``self.outputs``: ``[T, B, …]``, or ``[1, B, …]`` of the last step.
            They are the caller's; outputs that show the same state share memory with each other. Where any of the arrays
            lies on the cell's device, each is a :class:`DeviceArray`, which may not be there yet: who takes it waits.
        """
        return self._make(self._call(self._by_own_names(params), inputs_of(inputs, named)))

    def vjp(
        self,
        params: Mapping[str, Array],
        inputs: Mapping[str, Array] | None = None,
        /,
        *,
        wrt: Iterable[str] = (),
        gradient_requests: Requests | None = None,
        **named: Array,
    ) -> tuple[Outputs, Pullback]:
        """As a call, and the function that gives the gradients of this call.

        Args:
            params, inputs, named: as of a call: parameters, sequences ``[T, B, …]``, states ``[1, B, …]``. An input that is
                called as an argument of this function is, as ``wrt``, goes into the dictionary.
            wrt: the names of parameters and inputs to differentiate by; of no names, all that have a gradient. What is
                needed for others alone is not computed.
            gradient_requests: of some of these ``"none"``, which is as if they were not among them, or ``"add"``, which adds
                to what the pullback is given; ``"write"`` is what becomes of the others.

        Returns:
            The outputs, which are read-only on the host, since the gradients are computed from them: what is written to them
            in other ways, as through ``torch.from_dlpack``, changes gradients, and nobody notices. And a
            :class:`Pullback`, which keeps the memory of the run for as long as there is one. It gives each gradient in the
            shape of what it is by.
        """
        arrays, given = self._by_own_names(params), inputs_of(inputs, named)
        requests = requests_of(gradient_requests)
        outputs, gradients = self._cell.vjp(arrays, given, names_of("wrt", wrt), requests)
        made = self._make(outputs)
        return made, Pullback(gradients, type(made))

    def value_and_grad(
        self,
        params: Mapping[str, Array],
        loss: Loss,
        inputs: Mapping[str, Array] | None = None,
        /,
        *,
        wrt: Iterable[str] = (),
        gradient_requests: Requests | None = None,
        into: Into = None,
        **named: Array,
    ) -> tuple[Any, Gradients]:
        """The value of a loss and its gradients.

        Args:
            params, inputs, named: as for :meth:`vjp`.
            loss: the name of an output, or several, of which it is the sum of all elements; or a function that is given
                the outputs, ``[T, B, …]`` and ``[1, B, …]``, and returns the loss with its gradients by outputs, by name,
                each in the output's shape: ``2.5, {"h": gradient}``.
            wrt, gradient_requests: as for :meth:`vjp`.
            into: the arrays to which gradients are added; see :class:`Pullback`.

        Returns:
            The loss, and :class:`Gradients` with an array for each parameter and input, in the shape of that: ``[4*H, D]``
            for ``w [4*H, D]``, ``[T, B, D]`` for ``x [T, B, D]``.
        """
        given = inputs_of(inputs, named)
        outputs, pullback = self.vjp(params, given, wrt=wrt, gradient_requests=gradient_requests)
        return value_and_grad(outputs, pullback, loss, into)

    def explain(
        self,
        params: Mapping[str, Array],
        inputs: Mapping[str, Array] | None = None,
        /,
        *,
        gradients: bool = False,
        format: PageFormat = "text",
        **named: Array,
    ) -> str:
        """What the compiler makes of the cell for a call with these arguments, which is run once.

        It says what has become one, as formulas, what runs for many steps at once, what lies in which memory, and how
        long each instruction takes by estimate.

        Args:
            params, inputs, named: as of a call; their shapes ``[T, B, …]`` say for how many steps, and which batch, it is.
            gradients: whether also of the steps that compute the gradients.
            format: ``"text"``, ``"html"``, a page that needs nothing else, or ``"json"``.
        """
        return self._cell.explain(self._by_own_names(params), inputs_of(inputs, named), gradients, format)


def module_name(parameter: str) -> str:
    """What a parameter of a cell is called in a ``stepnet.torch.Module``: PyTorch's names have no dots."""
    return parameter.replace(".", "_")


_OPTIONS = ("training", "carry", "threads", "device", "opt_level", "disable_pass", "seed")


def with_meant(
    error: InvalidArgumentError | TypeMismatchError, named: Mapping[str, Any], keywords: Iterable[str]
) -> InvalidArgumentError | TypeMismatchError:
    """The error, with what was meant by a size whose value is none, one of ``keywords``, or that the cell does not have, which
    may be an option, too."""
    text = str(error)
    names = [name for name in named if isinstance(name, str)]
    unknown = next((name for name in names if f" has no size {name}; its sizes are " in text), "")
    if unknown:
        fault = f" has no size {unknown}"
        options = _stepnet.cell_options()
        all_options = f"; options of cells are {', '.join(options)}"
        return type(error)(text.replace(fault, fault + did_you_mean(unknown, [*keywords, *options]), 1) + all_options)
    meant = next((name for name in names if f"the size {name} is " in text), "")
    return type(error)(text + did_you_mean(meant, keywords))


def _with_known(
    error: InvalidArgumentError | TypeMismatchError, source: str, is_text: bool, options: Mapping[str, Any]
) -> InvalidArgumentError | TypeMismatchError:
    """The error, with what was meant by a size that the cell does not have, or whose value is none: an option, or a size."""
    text, named = str(error), options["named"]
    keywords = ("sizes", "dtype", *_OPTIONS)
    known = with_meant(error, named, keywords)
    meant = next((name for name in named if isinstance(name, str) and f"the size {name} is " in text), "")
    if str(known) != text or not meant or meant in _stepnet.sizes_of_cell(source, is_text):
        return known
    try:
        _stepnet.make_cell(source, is_text, **{**options, "named": {meant: 1}})
    except InvalidArgumentError as of_whole_number:
        of_size = str(with_meant(of_whole_number, {meant: 1}, keywords))
        text += "; but the cell" + of_size.partition('"')[2].partition('"')[2]
    return type(error)(text)


def is_double(dtype: Any) -> bool:
    is_of_torch = type(dtype).__name__ == "dtype"  # whose torch.float64 NumPy does not know
    try:
        kind = numpy.dtype(str(dtype).rpartition(".")[2] if is_of_torch else dtype)
    except (TypeError, ValueError):  # what NumPy does not know either
        kind = numpy.dtype("void")
    if dtype is None or kind not in (numpy.dtype("float32"), numpy.dtype("float64")):
        raise TypeMismatchError(f"type mismatch: dtype is {repr_of(dtype)}; it must be float32 or float64")
    return bool(kind == numpy.dtype("float64"))


def cell(
    source: Source,
    /,
    *,
    sizes: Mapping[str, CellWord] | None = None,
    training: bool = False,
    carry: bool = False,
    dtype: DType = "float32",
    threads: int = 0,
    device: Device = "cpu",
    opt_level: int = 2,
    disable_pass: Passes = (),
    seed: int = 0,
    **named: CellWord,
) -> Cell:
    """A cell from its text, or from a file.

    Its calls take and give sequences ``[T, B, …]``, or ``[B, T, …]`` with ``option batch_major``, and states ``[1, B, …]``:
    :attr:`Cell.inputs` and :attr:`Cell.params` say the shape of each array.

    Args:
        source: the path of a file, or the text of a cell (a string with a brace in it).
        sizes, named: sizes of the cell, each once, in place of those that it declares, ``H=128``, and options in place of
            those in its text: ``layers=2, direction="bidirectional"``. A name of both is a size where the cell declares it. A size that is
            called as another argument is, as ``threads``, is given in ``sizes``.
        training: whether dropout drops and zoneout draws. For a cell that has neither it changes nothing.
        carry: whether every state starts from an input and is an output at the end, so that a sequence can be run in
            parts.
        dtype: ``"float32"``, or ``"float64"``, in which all that the cell says is float is computed; as text, or NumPy's
            or PyTorch's.
        threads: how many to use; 0: as many as are worth having.
        device: ``"cpu"``, ``"cuda"`` or, of several GPUs, ``"cuda:1"``; or PyTorch's.
        opt_level: what the compiler may do, 0 to 2.
        disable_pass: the name of a pass of the compiler that it leaves out, or names; of passes that ``opt_level`` runs.
        seed: of the random numbers of runs.

    Raises:
        CellSyntaxError: with the line and column of the mistake.
        InvalidArgumentError: for sizes and options that the cell does not have, values that these do not take, and sizes that
            have no value.

    Warns:
        CellWarning: of what is most likely a mistake: operators that mix the sequences of a batch, since no dimension is
            said, those of which nothing is read, and those of one input that do nothing, as ``Sum(x)``.
    """
    made = Cell(
        source,
        {
            "named": all_named(sizes, named),
            "training": training,
            "carry": carry,
            "in_double": is_double(dtype),
            "threads": threads,
            "device": device_name(device),
            "opt_level": opt_level,
            "disable_pass": names_of("disable_pass", disable_pass),
            "seed": seed,
        },
    )
    for text in made._cell.warnings:
        warnings.warn(text, CellWarning, stacklevel=2)
    return made
