"""Cells and nets as files of ONNX."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Iterable, Mapping, Sequence

import numpy
import onnx
from onnx import helper

from .. import _stepnet
from ..cell import Argument, Array, Cell
from ..errors import Error, InputOutputError, InvalidArgumentError, ShapeMismatchError, TypeMismatchError
from ..gradients import arrays_of, names_of, numpy_of
from ..net import Net
from ..source import did_you_mean, kind_of, path_of, with_article
from ..torch_layers import module_type
from . import losses, rnn  # noqa: F401 - add to the table
from .graph import GraphWriter, Value
from .loader import Graph, check_input, with_places
from .nets import Blobs, value_named, write_operators
from .open_sizes import DynamicAxes, Sizes, advice_on_sizes, axes_of, check_is_one, with_names
from .reader import NEWEST_OPSET

if TYPE_CHECKING:
    from ..torch import Module
else:  # hints can be read where there is no PyTorch, too
    Module = Any

OPSET = 18
"""The version of ONNX's operators: the first one with Mish, axes of ReduceMean as an input, and Split by number."""
MAX_BYTES_IN_ONE_FILE = 1 << 30
"""Bytes of parameters from which on they lie beside the file: a message of protobuf holds less than 2 GiB."""


def export(
    model: Cell | Net | Module,
    path: str | os.PathLike[str] | IO[bytes],
    params: Mapping[str, Array] | None = None,
    *,
    inputs: Mapping[str, Array] | None = None,
    outputs: str | Iterable[str] | None = None,
    dynamic_axes: DynamicAxes | None = None,
    opset: int = OPSET,
) -> None:
    """Writes a cell or net as a file of ONNX with the parameters in it.

    Args:
        model: a cell, as it was made: its sizes, options and dtype; or a net; or a ``stepnet.torch.Module``, of which it is
            the cell with its parameters, in evaluation, and the ``output`` of the module alone where it has one.
        path: of the file. Parameters of more than 1 GiB lie in a second file, ``path`` with ``.data`` behind it. Or a file that is open
            for writing bytes, as ``io.BytesIO``, which takes up to 1 GiB of them.
        params: an array for each of the cell's parameters, of its shape, as ``[4*H, D]``, by its name, or that of a ``stepnet.torch.Module``; of a net,
            what takes the place of the parameters that it has, or of some of its inputs.
        inputs: for nets: an array for each input, of which dtype and shape are read. Cells know theirs, and so does a net that
            ``stepnet.onnx.load`` has read: its sizes stay as its file says, and those that this leaves open stay open.
        outputs: the names of the outputs to have, or one name; all, where nothing is said. Only what they depend on is exported.
        dynamic_axes: for nets: names of dimensions of inputs that may have any size, as ``{"x": {0: "T", 1: "B"}}``.
            Those of one name have one size. A list of dimensions, ``{"x": [0, 1]}``, gives each a name of its own, and so a size
            that no other input has. What it says of an input takes the place of what the file of a loaded net does: its other sizes
            are those of the array in ``inputs``. In cells these are the steps T and the batch B.
        opset: the version of ONNX's operators, from 18 on. Later ones ask for later runtimes.

    Raises:
        InvalidNetError: for an operator that ONNX has nothing for, with its place: what draws random numbers, links to
            rows that later steps write, operators whose shapes follow from values.
        InvalidArgumentError, ShapeMismatchError, TypeMismatchError: for arrays that are missing, unknown or do not fit.
        InputOutputError: when the file cannot be written.
    """
    file: Any = path if hasattr(path, "write") else Path(path_of("path", path))
    check_opset(opset)
    arrays = None if params is None else named_arrays("params", params)
    if isinstance(model, module_type()):
        outputs = model._output if outputs is None else outputs
        model, own = model._for_inference()
        arrays = own if arrays is None else arrays
    if isinstance(model, Cell):
        if inputs is not None or dynamic_axes is not None:
            raise InvalidArgumentError(
                "invalid argument: a cell knows its inputs; `inputs` and `dynamic_axes` are for nets"
            )
        given = of_cell(model, arrays)
    elif isinstance(model, Net):
        shown = {} if inputs is None else named_arrays("inputs", inputs)
        given = of_net(model, arrays or {}, shown, {} if dynamic_axes is None else axes_of(dynamic_axes))
    else:
        is_of_torch = any(each.__module__.startswith("torch.nn.") for each in type(model).__mro__)
        hint = "; stepnet.from_torch makes a cell of a recurrent module of PyTorch" if is_of_torch else ""
        raise TypeMismatchError(
            f"type mismatch: the model is {with_article(type(model))}; it must be a stepnet.Cell, a stepnet.Net "
            f"or a stepnet.torch.Module{hint}"
        )
    made = with_places(build, model._places) if isinstance(model, Graph) else build
    save(made(given, chosen_outputs(model, outputs), opset), file)


def check_opset(opset: Any) -> None:
    newest = min(NEWEST_OPSET, onnx.defs.onnx_opset_version())
    if isinstance(opset, bool) or not isinstance(opset, int) or not OPSET <= opset <= newest:
        raise InvalidArgumentError(
            f"invalid argument: opset is {kind_of(opset)}; it must be from {OPSET} to {newest}, the newest one of onnx {onnx.__version__}"
        )


def named_arrays(argument: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
    given = arrays_of(argument, arrays)
    return {name: given[name] for name in names_of(argument, given)}


class Given:
    """What is exported: operators, parameters, and inputs with their sizes."""

    def __init__(self, name: str, ops: Sequence[_stepnet.Operator]) -> None:
        self.name = name
        self.ops = ops
        self.params: dict[str, numpy.ndarray] = {}
        self.fixed: frozenset[str] = frozenset()
        """Those of them that are constants."""
        self.inputs: dict[str, tuple[str, list[int | str]]] = {}
        """dtype, and sizes or their names."""
        self.shown: dict[str, numpy.ndarray] = {}
        """Arrays that were given for inputs, of which dtype and shape are read."""
        self.as_said: set[str] = set()
        """Inputs whose sizes are those that the file of a loaded net says."""
        self.defaults: dict[str, numpy.ndarray] = {}
        """What inputs are where a run is not given them."""

    def sizes(self) -> Sizes:
        return {name: sizes for name, (_, sizes) in self.inputs.items()}

    def shapes_shown(self) -> dict[str, tuple[int, ...]]:
        """Those ``[…]`` of the arrays that were given for inputs."""
        return {name: array.shape for name, array in self.shown.items()}


def chosen_outputs(model: Cell | Net, outputs: str | Iterable[str] | None) -> list[str]:
    chosen = list(model.outputs) if outputs is None else names_of("outputs", outputs)
    if not chosen:
        of_model = f"; {model.name} has none" if outputs is None else ", or be None for all"
        raise InvalidArgumentError(f"invalid argument: outputs is {chosen}; it must name at least one{of_model}")
    for name in chosen:
        if chosen.count(name) > 1:
            raise InvalidArgumentError(f'invalid argument: outputs names "{name}" twice')
    return chosen


# What cells and nets are given.


def of_cell(cell: Cell, params: Mapping[str, Array] | None) -> Given:
    given = Given(cell.name, cell._cell.operators())
    given.params = checked_params(cell, params)
    for each in cell.inputs:
        given.inputs[each.name] = each.dtype, sizes_of(each)
    given.defaults = dict(cell._cell.starts())
    for name in given.defaults:
        dtype, sizes = given.inputs[name]
        given.inputs[name] = dtype, [sizes[0], f"{name}_batch", *sizes[2:]]  # 1, or that of the sequence
    return given


def sizes_of(argument: Argument, rank: int = 0) -> list[int | str]:
    """``"[T, B, 8]"`` as a list; sizes that are not known have names of their own."""
    text = argument.shape.strip("[]")
    sizes = ["?"] * rank if argument.shape == "?" else text.split(", ") if text else []
    unknown = [f"{argument.name}_size{i}" for i in range(len(sizes))]
    return [int(size) if size.isdigit() else name if size == "?" else size for size, name in zip(sizes, unknown)]


def checked_params(cell: Cell, params: Mapping[str, Array] | None) -> dict[str, numpy.ndarray]:
    known = {each.name: each for each in cell.params}
    if params is None and known:
        raise InvalidArgumentError(
            f"invalid argument: params, the third argument, is missing: {cell.name} has the parameters {', '.join(known)}, as "
            "cell.init() or training gives them"
        )
    given = {name: numpy_of(f"the parameter {name!r}", array) for name, array in cell._by_own_names(params or {}).items()}
    for name in given:
        if name not in known:
            raise InvalidArgumentError(
                f'invalid argument: {cell.name} has no parameter "{name}"; its parameters are '
                + (", ".join(known) or "none")
            )
    for name, each in known.items():
        if name not in given:
            raise InvalidArgumentError(
                f'invalid argument: the parameter "{name}" of {cell.name} is missing; it is {each.dtype} {each.shape}'
            )
        array = given[name]
        if str(array.dtype) != each.dtype:
            raise TypeMismatchError(
                f'type mismatch: the parameter "{name}" of {cell.name} is {array.dtype}; it must be {each.dtype}'
            )
        if list(array.shape) != sizes_of(each):
            raise ShapeMismatchError(
                f'shape mismatch: the parameter "{name}" of {cell.name} is {array.dtype} {list(array.shape)}; it must be {each.shape}'
            )
    return given


def of_net(
    net: Net, params: Mapping[str, Array], inputs: Mapping[str, Array], dynamic_axes: dict[str, dict[int, str]]
) -> Given:
    given = Given(net.name or "net", net._net.operators())
    net._check_parameters("params", params)
    given.params = {
        name: exported_array(f"the parameter {name!r}", array) for name, array in {**net._net.filled(), **params}.items()
    }
    given.fixed = net._fixed
    for name, array in inputs.items():
        if name in params:
            raise InvalidArgumentError(f'invalid argument: "{name}" of {net.name} is given as a parameter, by params, and as an input')
        given.params.pop(name, None)
        array = exported_array(f"the input {name!r}", array)
        given.shown[name] = array
        given.inputs[name] = str(array.dtype), list(array.shape)
    known = {*net.inputs, *net._net.filled()}
    check_names("params", params, known, net)
    check_names("inputs", inputs, known, net)
    if isinstance(net, Graph):
        add_said_inputs(given, net, dynamic_axes)
    check_names("dynamic_axes", dynamic_axes, given.inputs, net)
    for name, axes in dynamic_axes.items():
        dtype, sizes = given.inputs[name]
        given.inputs[name] = dtype, with_names(name, sizes, axes)
    check_is_one(given.sizes(), given.shapes_shown())
    for name in net.inputs:
        if name not in given.inputs and name not in given.params:
            raise InvalidArgumentError(
                f'invalid argument: the input "{name}" of {net!r} is missing; `inputs` must have an array of its dtype'
                " and shape"
            )
    return given


def exported_array(what: str, array: Array) -> numpy.ndarray:
    """An array or tensor as NumPy has it, in its own dtype."""
    check_exported(what, str(getattr(array, "dtype", "")).rpartition(".")[2])
    return numpy_of(what, array)


def check_exported(what: str, dtype: str) -> None:
    if dtype == "bfloat16":
        raise TypeMismatchError(f"type mismatch: {what} is bfloat16, in which nothing is exported")


def add_said_inputs(given: Given, net: Graph, dynamic_axes: Mapping[str, Mapping[int, str]]) -> None:
    """Inputs are as the net's file says, with the sizes that it leaves open, and in its order. Of what ``dynamic_axes`` names,
    and where the file says no shape, the sizes are those of the array. Defaults stay where there is no array.
    """
    named: dict[str, tuple[int, str]] = {}
    for each in net.arguments:
        name, sizes = each.name, sizes_of(each)
        shown = given.inputs.pop(name, None)
        if shown is not None:
            check_input(net, each, given.shown[name], named)
            is_said = each.shape != "?" and name not in dynamic_axes
            given.inputs[name] = (each.dtype, sizes) if is_said else shown
            given.as_said.update([name] if is_said else [])
        elif name not in given.params and (each.optional or each.shape != "?"):
            check_exported(f"the input {name!r}", each.dtype)
            if each.optional:
                given.defaults[name] = net.defaults[name]
                sizes = sizes_of(each, given.defaults[name].ndim)
            given.inputs[name] = each.dtype, sizes
            given.as_said.add(name)


def check_names(what: str, names: Iterable[str], known: Iterable[str], net: Net) -> None:
    for name in names:
        if name not in known:
            raise InvalidArgumentError(
                f'invalid argument: {what} names "{name}", which {net!r} is not given; it is given {", ".join(known)}'
            )


# The file.


def build(given: Given, outputs: Sequence[str], opset: int) -> onnx.ModelProto:
    graph = GraphWriter()
    blobs = Blobs()
    numbers = free_sizes(graph, given)
    for name in [*given.inputs, *given.params, *outputs]:
        if name not in given.fixed:
            graph.unique(name)
    for name, (dtype, sizes) in given.inputs.items():
        shape = [numbers[size] if isinstance(size, str) else size for size in sizes]
        graph.inputs.append(graph.info(name, dtype, sizes))
        default = given.defaults.get(name)
        blobs[name] = Value(graph, name, dtype, shape if default is None else default.shape)
        if default is not None:
            graph.initializers[name] = onnx.numpy_helper.from_array(default, name)
    for name, array in given.params.items():
        if name in given.fixed:
            blobs[name] = value_named(graph, graph.constant(array, name), str(array.dtype), array.shape)
        else:
            blobs[name] = value_named(graph, graph.parameter(array, name), str(array.dtype), array.shape)
        if array.ndim <= 1 and array.dtype.kind == "i":
            blobs[name].sizes = [int(size) for size in array.reshape(-1)]
    try:
        write_operators(graph, given.ops, blobs, outputs, given.name)
    except Error as error:
        what, place, where = str(error).partition("\n")
        advice = advice_on_sizes(what, given.sizes(), given.shapes_shown(), given.as_said)
        raise type(error)(f"{what}{advice}{place}{where}") from None
    for name in outputs:
        add_output(graph, given, blobs, name)
    opset_id = helper.make_opsetid("", opset)
    return helper.make_model(
        graph.proto(given.name),
        producer_name="stepnet",
        producer_version=_stepnet.__version__,
        opset_imports=[opset_id],
        ir_version=helper.find_min_ir_version_for([opset_id]),
    )


def free_sizes(graph: GraphWriter, given: Given) -> dict[str, int]:
    """A number for each name of a size: larger than other sizes, no sum or product of others, divisible by up to 10; four of them
    multiply to less than 2^63, where an input has more than three."""
    known = [size for _, sizes in given.inputs.values() for size in sizes if isinstance(size, int)]
    known += [size for array in given.params.values() for size in array.shape]
    unit = 2520 * math.ceil(max([1000, *known]) / 1000)
    names = {size: None for _, sizes in given.inputs.values() for size in sizes if isinstance(size, str)}
    most = max((sum(isinstance(size, str) for size in sizes) for _, sizes in given.inputs.values()), default=0)
    first = 101 if most <= 3 else 11
    numbers = {name: unit * (first + 2 * i) for i, name in enumerate(names)}
    graph.free_sizes = {number: name for name, number in numbers.items()}
    graph.min_free = 10 * unit
    return numbers


def add_output(graph: GraphWriter, given: Given, blobs: Blobs, name: str) -> None:
    if name not in blobs:
        hint = did_you_mean(name, [blob for op in given.ops for blob in op.outputs])
        raise InvalidArgumentError(f'invalid argument: "{given.name}" has no blob "{name}" that could be an output{hint}')
    value = blobs[name]
    if name in given.inputs and value.name == name:
        raise InvalidArgumentError(f'invalid argument: the output "{name}" of "{given.name}" is its input as it is')
    graph.nodes.append(helper.make_node("Identity", [value.name], [name], name=graph.unique(f"output {name}")))
    graph.outputs.append(graph.info(name, value.dtype, value.shape))


def save(model: onnx.ModelProto, path: Path | IO[bytes]) -> None:
    is_small = sum(len(each.raw_data) for each in model.graph.initializer) <= MAX_BYTES_IN_ONE_FILE
    if not isinstance(path, Path):
        if not is_small:
            raise InvalidArgumentError("invalid argument: the parameters are more than 1 GiB, which lie in a second file; give a path")
        path.write(model.SerializeToString())
        return
    if is_small:
        _stepnet.write_file(str(path), model.SerializeToString())
        return
    try:
        onnx.save_model(model, str(path), save_as_external_data=True, location=f"{path.name}.data")
    except OSError as error:
        raise InputOutputError(f"input/output error: cannot write {path}: {error.strerror or error}") from error
