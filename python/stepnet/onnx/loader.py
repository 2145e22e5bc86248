"""Files of ONNX as nets."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, Mapping, Sequence, TypeVar, cast

import numpy
import onnx

from .. import _stepnet
from ..cell import Argument, Array
from ..errors import Error, InvalidArgumentError, ShapeMismatchError, TypeMismatchError
from ..gradients import inputs_of, names_of
from ..net import Net
from ..source import device_name
from ..words import Device, Passes
from . import einsum, elements, moves, norms, ordering, pads, places, pools, scan_node, units  # noqa: F401 - add to the table
from .constants import constant_of
from .functions import inlined
from .halves import check_whole_numbers, in_floats
from .inference import add_shapes
from .netdef import Names, NetText
from .nodes import NODES
from .reader import STANDARD, Origin, Source, bodies_of, dtype_of, fault, is_read, opset_of, origin_of, read_model
from .schema import check_schema
from .scope import Model, Node, Scope, Unsupported, kind_of_node, located, place_of_node


class Graph(Net):
    """A net that was read from a file of ONNX, with its parameters. Made by :func:`load`.

    :attr:`arguments` says the shape of each input, as ``[T, B, 8]``, with the file's names of sizes that may be any.
    """

    def __init__(
        self,
        net: _stepnet.LoadedNet,
        options: tuple[Any, ...],
        arguments: tuple[Argument, ...],
        defaults: Mapping[str, numpy.ndarray],
        fixed: Iterable[str],
        text: str,
        places: Mapping[str, str],
    ) -> None:
        """``text``: of ``net``; ``defaults``: what inputs are where a call is not given them; ``fixed``: constants that
        are no parameters; ``places``: of the nodes that blobs come from."""
        super().__init__(net, options)
        self._text = text
        self._places = places
        self._call, self._vjp = with_places(net.call, places), with_places(net.vjp, places)
        self._explain = with_places(net.explain, places)
        self._fixed = frozenset(fixed)
        self.arguments = arguments
        """The inputs with dtype, shape, and whether they may be left out; sizes that are not known are called ``?``."""
        self.inputs = tuple(each.name for each in arguments)
        self._sizes = {each.name: sizes_of_argument(each) for each in arguments}
        self._inputs_read = set(net.inputs)
        self.defaults = dict(defaults)
        """What optional inputs are where they are left out."""

    def _more(self) -> tuple[Any, ...]:
        return self.arguments, self.defaults, self._fixed, self._text, self._places

    def __call__(self, inputs: Mapping[str, Array] | None = None, /, **named: Array) -> Any:
        """Runs the graph on an array for each of ``self.arguments``, by name; those that are optional may be left out.

        They are given as ``x=x`` or, whatever the names are, in a dictionary, ``{"x": x}``, in the shapes that the file says,
        as ``[T, B, 8]``.

        Returns:
            A named tuple with an array for each of ``self.outputs``, in the shape that its node gives it.

        Raises:
            InvalidArgumentError, TypeMismatchError, ShapeMismatchError: for inputs that are not those of the file.
        """
        return self._make(self._call(self._arrays(inputs_of(inputs, named))))

    def _arrays(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        inputs = with_arrays(self, inputs)
        try:
            check_inputs(self, inputs)
        except Error as error:
            raise type(error)(f"{error}{self._where}") from None
        given = {**self.defaults, **inputs}
        return {name: array for name, array in given.items() if name in self._inputs_read}


def load(
    path: Source,
    *,
    threads: int = 0,
    device: Device = "cpu",
    opt_level: int = 2,
    disable_pass: Passes = (),
    seed: int = 0,
) -> Graph:
    """A file of ONNX as a net, with its parameters.

    LSTM, GRU, RNN (every attribute) and Scan become RecurrentNetwork operators; other operators become those that
    compute the same. Parameters in other files must be in the folder of the file.

    :attr:`Graph.arguments` says the shape of each input, as ``[T, B, 8]``.

    Args:
        path: of the file; or its content as bytes, a file that is open for reading bytes, or an ``onnx.ModelProto``, whose parameters are
            all in it.
        threads, device, opt_level, disable_pass, seed: as of :func:`stepnet.load`.

    Raises:
        InputOutputError: for files that cannot be read or hold something else.
        InvalidNetError: for what is malformed, and for operators, attributes and dtypes that are not read, with the
            node's place.
    """
    file = origin_of(path)
    proto = inlined(read_model(path, file), file)
    scope, arguments, defaults = read_graph(proto, file)
    text = scope.net.text()
    known = scope.net.read.union(scope.net.outputs)
    params = {name: array for name, array in scope.model.params.items() if name in known}
    options = (threads, device_name(device), opt_level, names_of("disable_pass", disable_pass), seed)
    places = scope.net.names.places
    load_net = with_places(_stepnet.load_net, places)
    net = load_net((text, str(file) if isinstance(file, Path) else ""), ("", ""), params, *options)
    return Graph(net, options, arguments, defaults, scope.model.fixed, text, places)


Called = TypeVar("Called", bound=Callable[..., Any])


def with_places(function: Called, places: Mapping[str, str]) -> Called:
    """The function with errors that name the node that an operator stands for: of several, one within the other, the first."""

    def call(*given: Any) -> Any:
        try:
            return function(*given)
        except Error as error:
            first, in_file, file = str(error).partition("\n  in file ")
            operators = re.findall(r"^  at op [0-9]+ `(.*?) = ", first, re.MULTILINE)
            blobs = [blob for outputs in operators for blob in (outputs, outputs.split(", ")[0])]
            place = next((places[blob] for blob in blobs if places.get(blob)), "")
            raise type(error)(f"{first}{place}{in_file}{file}") from None

    return cast(Called, call)


FIRST_WITH_DEFAULTS = 4
"""The version of the file format from which on an initializer that is an input is its default. Before, all of them had
to be inputs, and they are constants."""


def read_graph(proto: onnx.ModelProto, file: Origin) -> tuple[Scope, tuple[Argument, ...], dict[str, numpy.ndarray]]:
    graph = proto.graph
    net = NetText(graph.name or "graph", Names())
    for each in (*graph.input, *graph.output, *graph.initializer):
        net.names.unique(each.name)
    check_once("input", (each.name for each in graph.input), file)
    check_once("initializer", (each.name for each in graph.initializer), file)
    if not graph.output:
        raise fault(file, f'the graph "{graph.name}" has no outputs')
    scope = Scope(Model(file, opset_of(proto), graph), net, graph)
    constants = {each.name for each in graph.initializer}
    arguments, defaults = [], {}
    for info in graph.input:
        if info.name in constants and proto.ir_version < FIRST_WITH_DEFAULTS:
            continue
        argument = argument_of(info, file)
        array = scope.constant(info.name) if info.name in constants else None
        if array is not None:
            defaults[info.name] = array
        arguments.append(argument._replace(optional=array is not None))
        scope.rebind(info.name, info.name)
    read_nodes(scope)
    check_once("output", (each.name for each in graph.output), file)
    for info in graph.output:
        bind_output(scope, info.name)
    net.inputs = [each.name for each in arguments]
    return scope, tuple(arguments), defaults


def check_once(kind: str, names: Iterable[str], file: Origin) -> None:
    found: set[str] = set()
    for name in names:
        if name in found:
            raise fault(file, f'the {kind} "{name}" is there twice')
        found.add(name)


def bind_output(scope: Scope, name: str) -> None:
    """Gives an output the name that the file has for it."""
    try:
        blob = scope.blob(name)
    except Unsupported:
        raise fault(scope.model.path, f'the output "{name}" is given by no node') from None
    if blob == name or scope.net.call(blob, name):
        scope.net.outputs.append(blob)
    else:
        scope.net.add("Copy", [blob], [name])
        scope.net.outputs.append(name)


# Nodes.


def read_nodes(scope: Scope) -> None:
    """Adds operators for all nodes of a graph, in its order."""
    if scope.outer is None:
        check_kinds(scope)
    refusal = add_shapes(scope)
    for index, proto in enumerate(scope.graph.node):
        scope.net.place = place_of_node(proto, index, scope.graph.name)
        try:
            read_node(scope, proto)
        except Unsupported as reason:
            raise located(str(reason), proto, index, scope.graph.name, scope.model.path) from None
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
            if isinstance(error, Error):
                raise
            what = f"its attributes or inputs are malformed ({error})"
            raise located(what, proto, index, scope.graph.name, scope.model.path) from None
    if refusal:
        raise fault(scope.model.path, refusal)


READ = frozenset([*NODES, "Constant"])

CHECKED_FIRST = {"Einsum": einsum.check_equation, "Split": moves.check_num_outputs}
"""What shape inference of onnx (1.23.2) may take any time or memory for."""


def check_kinds(scope: Scope) -> None:
    """Raises InvalidNetError for operators that are not read, which names all of them, and the place of the first."""
    nodes = list(nodes_of(scope.graph))
    unread = [place for place in nodes if place[2].domain not in STANDARD or place[2].op_type not in READ]
    if unread:
        graph, index, proto = unread[0]
        raise located(why_unread([each for _, _, each in unread]), proto, index, graph.name, scope.model.path)
    for graph, index, proto in nodes:
        if proto.op_type in CHECKED_FIRST:
            try:
                CHECKED_FIRST[proto.op_type](proto)
            except Unsupported as reason:
                raise located(str(reason), proto, index, graph.name, scope.model.path) from None


def why_unread(nodes: Sequence[onnx.NodeProto]) -> str:
    kinds = list(dict.fromkeys(kind_of_node(proto) for proto in nodes))
    if len(kinds) > 1:
        return f"{', '.join(kinds[:-1])} and {kinds[-1]} are not among the operators that are read"
    if nodes[0].domain not in STANDARD:
        return f"operators of the domain {nodes[0].domain} are not read"
    return f"{kinds[0]} is not among the operators that are read"


def nodes_of(graph: onnx.GraphProto) -> Iterator[tuple[onnx.GraphProto, int, onnx.NodeProto]]:
    """The nodes of a graph and of the bodies in it, with their places."""
    for index, proto in enumerate(graph.node):
        yield graph, index, proto
        for body in bodies_of(proto):
            yield from nodes_of(body)


def read_node(scope: Scope, proto: onnx.NodeProto) -> None:
    check_schema(proto, scope)
    for name in proto.output:
        if name and scope.outer is not None and scope.outer.has(name):
            raise Unsupported(f'it gives "{name}", which is there in a graph around it')
    if proto.op_type == "Constant":
        scope.set_constant(proto.output[0], constant_of(scope, proto))
        return
    if scope.is_folded(proto):
        for name in filter(None, proto.output):
            scope.set_constant(name, scope.folded[name])
        return
    check_whole_numbers(scope, proto)
    n = Node(scope, proto)
    scope.net.hint = next((name for name in n.outputs if name), proto.op_type)
    blobs = in_floats(n, NODES[proto.op_type])
    unread = [name for name in n.attributes if name not in n.used]
    if unread:
        raise Unsupported(f"its attribute {unread[0]} is not read")
    for name, blob in zip(n.outputs, blobs):
        if name:
            scope.bind(name, blob)


# What a call is given.


def argument_of(info: onnx.ValueInfoProto, file: Origin) -> Argument:
    kind = info.type.tensor_type
    found = dtype_of(kind.elem_type)
    if not info.type.HasField("tensor_type"):
        raise fault(file, f'the input "{info.name}" is {info.type.WhichOneof("value") or "of no type"}; a tensor is read')
    if found is None or not is_read(found):
        known = onnx.TensorProto.DataType.DESCRIPTOR.values_by_number.get(kind.elem_type)
        raise fault(file, f'the input "{info.name}" is {known.name if known else kind.elem_type}, a dtype that is not read')
    dtype = str(found)
    if not kind.HasField("shape"):
        return Argument(info.name, dtype, "?", False)
    sizes = [str(each.dim_value) if each.HasField("dim_value") else each.dim_param or "?" for each in kind.shape.dim]
    return Argument(info.name, dtype, f"[{', '.join(sizes)}]", False)


def with_arrays(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Inputs with arrays in the place of lists and tuples of whole numbers, where the file needs these."""
    dtypes = {each.name: each.dtype for each in graph.arguments if each.dtype in ("int32", "int64")}
    found = dict(inputs)
    for name in inputs.keys() & dtypes.keys():
        given = inputs[name]
        if isinstance(given, (list, tuple)) and all(type(item) is int for item in given):
            with contextlib.suppress(OverflowError):  # refused as what it is
                found[name] = numpy.array(given, dtypes[name])
    return found


def check_inputs(graph: Graph, inputs: Mapping[str, Array]) -> None:
    if not inputs.keys() <= graph._sizes.keys():
        name = next(name for name in inputs if name not in graph._sizes)
        hint = ": it is a parameter, which net.restore changes" if name in graph._parameters else ""
        raise InvalidArgumentError(
            f'invalid argument: the graph "{graph.name}" has no input "{name}"{hint}; its inputs are '
            + ", ".join(graph.inputs)
        )
    named: dict[str, tuple[int, str]] = {}
    for each in graph.arguments:
        if each.name in inputs:
            check_input(graph, each, inputs[each.name], named)
        elif not each.optional:
            raise InvalidArgumentError(
                f'invalid argument: the input "{each.name}" of "{graph.name}" is missing; it is {each.dtype}'
                f" {each.shape}"
            )


def sizes_of_argument(argument: Argument) -> list[int | str] | None:
    """The sizes of an input, or their names; None for an input of any shape."""
    if argument.shape == "?":
        return None
    text = argument.shape.strip("[]")
    return [int(size) if size.isdigit() else size for size in text.split(", ")] if text else []


def check_input(graph: Graph, argument: Argument, array: Array, named: dict[str, tuple[int, str]]) -> None:
    """Sizes of one name are the same in all inputs."""
    dtype, shape = str(getattr(array, "dtype", "")).replace("torch.", ""), getattr(array, "shape", ())
    if dtype != argument.dtype:
        raise TypeMismatchError(
            f'type mismatch: the input "{argument.name}" of "{graph.name}" is {dtype or type(array).__name__}; it must be '
            f"{argument.dtype}"
        )
    sizes = graph._sizes[argument.name]
    if sizes is None:
        return
    if len(sizes) != len(shape) or any(isinstance(s, int) and s != size for s, size in zip(sizes, shape)):
        raise ShapeMismatchError(
            f'shape mismatch: the input "{argument.name}" of "{graph.name}" is {list(shape)}; it must be {argument.shape}'
        )
    for name, size in zip(sizes, shape):
        if isinstance(name, int) or name == "?":
            continue
        first, of = named.setdefault(name, (size, argument.name))
        if first != size:
            raise ShapeMismatchError(
                f'shape mismatch: the input "{argument.name}" of "{graph.name}" is {list(shape)}, of {name} = {size}; '
                f'{name} is {first} in the input "{of}"'
            )
