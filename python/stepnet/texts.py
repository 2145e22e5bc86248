"""What can be asked without running anything."""

from __future__ import annotations

import contextlib
import os
import warnings
from typing import Any, Iterable, Iterator, Mapping, Union, overload

import numpy

from . import _stepnet
from .cell import AS_IT_IS, Cell, cell, is_double, with_meant
from .errors import CellWarning, InvalidArgumentError, TypeMismatchError, with_numpy_names
from .gradients import Array
from .net import Net
from .source import Source, all_named, kind_of, path_of, refuse_onnx, text_or_path
from .words import CellWord, DType, PageFormat, PictureFormat

Described = Union[Source, Cell]
"""A cell or a net: a text, the path of a file, or a :class:`Cell`, whose sizes and options hold where no others are said."""
Shown = Union[Described, Net]


def _described(
    source: Shown, named: dict[str, CellWord], dtype: DType, training: bool = False, carry: bool = False
) -> tuple[str, bool, dict[str, CellWord], bool, bool, bool | None]:
    """The text or path, whether it is a text, and what holds for it; at last whether it is in double, where anything says so."""
    in_double = None if dtype is AS_IT_IS else is_double(dtype)
    if isinstance(source, Net):
        return source._net.text(), True, named, training, carry, in_double
    if not isinstance(source, Cell):
        return *text_or_path(source), named, training, carry, in_double
    own = source._options
    in_double = own["in_double"] if in_double is None else in_double
    return source.text, True, {**own["named"], **named}, training or own["training"], carry or own["carry"], in_double


@contextlib.contextmanager
def _meaning(named: Mapping[str, CellWord], keywords: Iterable[str]) -> Iterator[None]:
    """What is raised of a size that the cell does not have says which of ``keywords`` was meant."""
    try:
        yield
    except (InvalidArgumentError, TypeMismatchError) as error:
        raise with_meant(error, named, keywords) from None


def check(
    source: Shown,
    /,
    *,
    sizes: Mapping[str, CellWord] | None = None,
    dtype: DType = AS_IT_IS,
    **named: CellWord,
) -> list[str]:
    """Everything that is wrong with a cell or a net, mostly a text or the path of a file. Nothing: an empty list.

    ``sizes``, ``named`` and ``dtype`` are of a cell, as for :func:`expand`. What the text says wrongly is in the list, also
    where it cannot be read at all; behind the last of many blobs that nothing gives, as of a net without its parameters,
    it says what may. Errors are raised where there is no text to look at: for a file that cannot be read, and for
    arguments that are none.

    Raises:
        InputOutputError: for a file that cannot be read.
        InvalidArgumentError, TypeMismatchError: for a source, sizes or options that are of no kind that is taken; an empty
            text; sizes, options and dtype of a net.

    Warns:
        CellWarning: as :func:`cell` does; and of what a net writes again before anything has read it, as two cells do that were
            expanded without a ``prefix``.
    """
    text, is_text, all_of_them, _, _, in_double = _described(source, all_named(sizes, named), dtype)
    with _meaning(all_of_them, ("sizes", "dtype")):
        problems, doubts = _stepnet.check(text, is_text, all_of_them, in_double)
    for text in doubts:
        warnings.warn(text, CellWarning, stacklevel=2)
    return [with_numpy_names(problem) for problem in problems]


def expand(
    source: Described,
    /,
    *,
    sizes: Mapping[str, CellWord] | None = None,
    prefix: str = "",
    init: bool = False,
    training: bool = False,
    carry: bool = False,
    dtype: DType = AS_IT_IS,
    **named: CellWord,
) -> str:
    """The text of the net that a cell stands for; with ``init``, of the net that fills its parameters.

    ``source`` is a cell, its text or its path; ``sizes`` and ``named`` are as for :func:`cell`.
    ``prefix`` stands before all names but those of inputs: with ``"encoder/"`` the parameter ``w`` is ``encoder/w`` and the output
    ``h`` ``encoder/h``. Cells that are parts of one net need one each, or they have parameters and outputs of one name in
    common; :func:`check` warns of that.
    With ``training`` dropout drops and zoneout draws in it, where there are any; with ``carry`` every state starts from an input and is an output
    at the end. ``dtype`` is as for :func:`cell`; where it is left out, that of a :class:`Cell` holds, and float32 otherwise. A net in float64
    fills and computes float64.

    :func:`load` and :func:`train_net` take it, alone or with operators around it.
    """
    text, is_text, all_of_them, trains, carries, in_double = _described(
        source, all_named(sizes, named), dtype, training, carry
    )
    if not is_text:
        refuse_onnx(text)
    with _meaning(all_of_them, ("sizes", "prefix", "init", "training", "carry", "dtype")):
        return _stepnet.expand(text, is_text, all_of_them, prefix, init, trains, carries, bool(in_double))


def explain(
    source: Shown,
    /,
    params: Mapping[str, Array] | None = None,
    inputs: Mapping[str, Array] | None = None,
    *,
    sizes: Mapping[str, CellWord] | None = None,
    training: bool = False,
    carry: bool = False,
    steps: int | None = None,
    batch: int | None = None,
    gradients: bool = False,
    format: PageFormat = "text",
    dtype: DType = AS_IT_IS,
    **named: CellWord,
) -> str:
    """What the compiler makes of a cell or a net, which is run once: :meth:`Cell.explain` with what a call needs made up.

    >>> print(stepnet.explain("lstm.cell", H=256, D=256, steps=100, batch=32, gradients=True))

    Args:
        source: a cell, its text or its path; or a :class:`Net`, as :func:`load` makes it.
        params: of a cell, as for a call; what is not said is as the cell fills it.
        inputs: as for a call, ``[T, B, …]``; of a net all that it reads. Without them sequences are zeros, ``steps`` long
            and ``batch`` wide, lengths all steps, and masks true.
        sizes, named, training, carry, dtype: of a cell, as for :func:`expand`.
        steps, batch: of inputs that are made up; 5 and 3.
        gradients: whether also of the steps that compute the gradients, of a cell.
        format: ``"text"``, ``"html"``, a page that needs nothing else, or ``"json"``.
    """
    given = all_named(sizes, named)
    made_up = {name: size for name, size in (("steps", steps), ("batch", batch)) if size is not None}
    if made_up and (inputs is not None or isinstance(source, Net)):
        raise InvalidArgumentError(f"invalid argument: {next(iter(made_up))} is of inputs that are made up for a cell; leave it out")
    if isinstance(source, Net):
        of_cells: dict[str, Any] = {"params": params, "gradients": gradients, "training": training, "carry": carry, **given}
        if dtype is not AS_IT_IS:
            of_cells["dtype"] = dtype
        unknown = next((name for name, value in of_cells.items() if value is not None and value is not False), None)
        if unknown is not None:
            raise InvalidArgumentError(f"invalid argument: {unknown} is of cells, and {source!r} is a net; leave it out")
        return source.explain(inputs, format=format)
    if isinstance(source, Cell):
        own = source._options
        made = source.with_options(sizes=given, training=training or own["training"], carry=carry or own["carry"], dtype=dtype)
    else:
        in_dtype = "float32" if dtype is AS_IT_IS else dtype
        made = cell(source, sizes=given, training=training, carry=carry, dtype=in_dtype)
    filled = {**made.init(), **made._by_own_names(params or {})}
    return made.explain(filled, _made_up(made, **made_up) if inputs is None else inputs, gradients=gradients, format=format)


def _made_up(cell: Cell, steps: int = 5, batch: int = 3) -> dict[str, numpy.ndarray]:
    """Inputs of a call: zeros, lengths of all steps, and true; states start as the cell says."""
    for name, size in (("steps", steps), ("batch", batch)):
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise InvalidArgumentError(f"invalid argument: {name} is {kind_of(size)}; it must be a whole number from 1 on")
    sizes, values = {"T": steps, "B": batch}, {"int32": steps, "bool": True}
    arrays = {}
    for each in cell.inputs:
        if each.optional:
            continue
        shape = [int(sizes.get(size, size)) for size in each.shape[1:-1].split(", ")]
        arrays[each.name] = numpy.full(shape, values.get(each.dtype, 0), each.dtype)
    return arrays


def load_operator_library(path: str | os.PathLike[str], /) -> None:
    """Loads the shared library of operators at ``path``, which cells and nets may use from then on.

    It is one that ``rnn_runner --op_library`` takes, too: built with the headers of StepNet alone, whose code it finds
    here. It is loaded in a process of its own first, so that one which fails while it is loaded is an error. It stays
    until the end of the program; a second call with the same library does nothing.

    Raises:
        InputOutputError: for a file that is no whole library, was built for another version, or cannot be loaded.
        InvalidNetError: for operators that there are already.
    """
    _stepnet.load_operator_library(path_of("path", path))


@overload
def ops() -> dict[str, str]: ...
@overload
def ops(name: str, /) -> str: ...
def ops(name: str | None = None, /) -> dict[str, str] | str:
    """The operators that nets and cells may use, by name, with what each does; or all about one of them.

    >>> print(stepnet.ops("FC"))

    That is its inputs, outputs and arguments, its formula and its gradient, as ``rnn_runner ops FC`` prints them.

    Raises:
        InvalidArgumentError: for an operator that there is not.
    """
    return _stepnet.ops() if name is None else _stepnet.op(name)


def show(
    source: Shown,
    /,
    *,
    sizes: Mapping[str, CellWord] | None = None,
    training: bool = False,
    format: PictureFormat = "text",
    dtype: DType = AS_IT_IS,
    **named: CellWord,
) -> str:
    """A net, or the one that a cell stands for, as people read it: a line an operator, with its step nets.

    ``source`` is a net, a cell, or the text or path of either. ``sizes``, ``named``, ``training`` and ``dtype`` are of cells,
    as for :func:`expand`; of a net they are refused. ``format`` is ``"text"``, or ``"dot"`` for Graphviz. The net need not be
    right: :func:`check` tells what is wrong. That of a :class:`TrainingNet` is the one with gradients and optimizer.
    """
    text, is_text, all_of_them, trains, _, in_double = _described(source, all_named(sizes, named), dtype, training)
    with _meaning(all_of_them, ("sizes", "training", "format", "dtype")):
        return _stepnet.show(text, is_text, all_of_them, trains, in_double, format)
