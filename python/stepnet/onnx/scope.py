"""What is known of a graph of ONNX while it becomes a net: its tensors as blobs, constants, shapes."""

from __future__ import annotations

from typing import Any, Iterable, Iterator, Sequence

import numpy
import onnx
from onnx import helper

from ..errors import InvalidNetError
from .graph import element_type
from .netdef import CODES, Names, NetText, single
from .reader import STANDARD, Origin, array_of, bodies_of, dtype_of, fault, place_of


class Unsupported(Exception):
    """Why a node cannot be read; whoever knows where it stands makes an error of it."""


class Model:
    """What all graphs of a file share."""

    def __init__(self, path: Origin, opset: int, graph: onnx.GraphProto) -> None:
        self.path = path
        self.opset = opset
        self.tensors = Names()
        """The names of tensors: those of the file, and of what reading it makes."""
        for name in dict.fromkeys(tensors_of(graph)):
            self.tensors.unique(name)
        self.params: dict[str, numpy.ndarray] = {}
        """What the net keeps, by blob."""
        self.fixed: set[str] = set()
        """Those of them that are no initializers of the file: nodes named Constant, and what reading it makes."""


class Scope:
    """A graph and the net that it becomes. A body sees the tensors of the graphs around it."""

    def __init__(self, model: Model, net: NetText, graph: onnx.GraphProto, outer: Scope | None = None) -> None:
        self.model = model
        self.net = net
        self.graph = graph
        self.outer = outer
        self.captured: dict[str, None] = {}
        """Blobs of graphs around this one that it reads, in the order of their first use."""
        self._blobs: dict[str, str] = {}
        self._constants: dict[str, numpy.ndarray] = {}
        self.folded: dict[str, numpy.ndarray] = {}
        """What nodes give in every run; constants from when the node is read."""
        self._unread: dict[str, tuple[str, str, dict[str, Any]]] = {}
        self._transposes: dict[str, str] = {}
        self._wide: dict[str, str] = {}
        self._producers: dict[str, onnx.NodeProto] | None = None
        self._types = {each.name: each.type.tensor_type for each in (*graph.value_info, *graph.input, *graph.output)}
        self._initializers = {tensor.name for tensor in graph.initializer}
        for tensor in graph.initializer:
            self.set_constant(tensor.name, array_of(tensor, model.path))
        if graph.sparse_initializer:
            raise fault(model.path, "sparse tensors are not read")

    def bind(self, name: str, blob: str) -> None:
        """Says which blob a tensor is. Each has one."""
        self._check_new(name)
        self._blobs[name] = blob

    def set_constant(self, name: str, array: numpy.ndarray) -> None:
        self._check_new(name)
        self._constants[name] = array

    def set_unread(self, name: str, op_type: str, of: str, **arguments: Any) -> None:
        """Says that a tensor is what an operator gives of a blob; it is computed where something reads it."""
        self._check_new(name)
        self._unread[name] = (op_type, of, arguments)

    def set_transpose(self, name: str, of: str, rank: int) -> None:
        """Says that a tensor is the transposes of the matrices that a blob of so many dimensions holds."""
        self.set_unread(name, "Transpose", of, axes=[*range(rank - 2), rank - 1, rank - 2])
        self._transposes[name] = of

    def _check_new(self, name: str) -> None:
        if self._has_here(name):
            raise fault(self.model.path, f'the tensor "{name}" is there twice')

    def _has_here(self, name: str) -> bool:
        return name in self._blobs or name in self._constants or name in self._unread

    def has(self, name: str) -> bool:
        """Whether a tensor is there, here or in a graph around this one."""
        return self._has_here(name) or (self.outer is not None and self.outer.has(name))

    def rebind(self, name: str, blob: str) -> None:
        """Makes a constant, which is what an input is where it is not given, an input."""
        self._constants.pop(name, None)
        self._blobs[name] = blob

    def blob(self, name: str) -> str:
        """The blob of a tensor. An initializer becomes a parameter, of its name unless that of another graph has it."""
        if name in self._blobs:
            return self._blobs[name]
        number = self.number_of(name)
        if number is not None:
            return self.net.number(number.item(), str(number.dtype))
        if name in self._constants:
            self._blobs[name] = self._kept(name)
            return self._blobs[name]
        if name in self._unread:
            op_type, of, arguments = self._unread[name]
            self._blobs[name] = self.net.names.unique(name)
            self.net.add(op_type, [of], [self._blobs[name]], **arguments)
            return self._blobs[name]
        if self.outer is None:
            raise Unsupported(f'it reads "{name}", which no node before it gives, and which is neither an input nor an initializer')
        return self.capture(self.outer.blob(name))

    def capture(self, blob: str) -> str:
        self.captured[blob] = None
        return blob

    def number_of(self, name: str) -> numpy.ndarray | None:
        """The scalar that a tensor is which the step of a loop reads, where it is a constant that an operator can give."""
        array = None if self.outer is None or self.is_initializer(name) else self.constant(name)
        return array if array is not None and array.ndim == 0 and is_filled(array) else None

    def _kept(self, name: str) -> str:
        """The blob that the net keeps for a constant of this graph."""
        if not self.is_initializer(name):
            return self.fixed(self._constants[name], name)
        has_name = self.outer is None  # read_graph keeps names for the initializers of the outermost graph
        return self._keep(self._constants[name], name if has_name else self.net.names.unique(name))

    def is_initializer(self, name: str) -> bool:
        """Whether a constant is one of the file's tensors, and not what a node says."""
        if name in self._constants:
            return name in self._initializers
        return self.outer is not None and self.outer.is_initializer(name)

    def fixed(self, array: Any, hint: str) -> str:
        """A blob with these elements that is no parameter."""
        blob = self.net.names.unique(hint)
        self.model.fixed.add(blob)
        return self._keep(array, blob)

    def _keep(self, array: Any, blob: str) -> str:
        self.model.params[blob] = numpy.ascontiguousarray(array).reshape(numpy.shape(array))
        scope: Scope | None = self
        while scope is not None:  # bodies capture what is kept from the graphs around them
            scope.capture(blob)
            scope = scope.outer
        return blob

    def as_float32(self, name: str) -> str:
        """The name of a tensor of 16 bits as float32, which is computed once, in its graph."""
        if not self._has_here(name) and self.outer is not None:
            return self.outer.as_float32(name)
        if name not in self._wide:
            wide = self._wide[name] = self.model.tensors.unique(f"{name} as float32")
            if name in self._transposes:
                rank = len(self.shape(name) or (0, 0))  # of two dimensions where no shape is known
                self.set_transpose(wide, self.net.emit("Cast", self._transposes[name], to="float"), rank)
            elif name in self._constants and not self.is_initializer(name):
                self.set_constant(wide, self._constants[name].astype("float32"))
            else:
                self.bind(wide, self.net.emit("Cast", self.blob(name), to="float"))
            self.set_type(wide, "float32", self.shape(name))
        return self._wide[name]

    def producer(self, name: str) -> onnx.NodeProto | None:
        """The node of this graph that gives a tensor."""
        if self._producers is None:
            self._producers = {output: each for each in self.graph.node for output in each.output}
        return self._producers.get(name)

    def transpose_of(self, name: str) -> str | None:
        """The blob of which a tensor holds the matrices transposed, where that is known."""
        if name in self._transposes:
            return self._transposes[name]
        if self.outer is None or self._has_here(name):
            return None
        blob = self.outer.transpose_of(name)
        return None if blob is None else self.capture(blob)

    def array(self, tensor: onnx.TensorProto) -> numpy.ndarray:
        return array_of(tensor, self.model.path)

    def constant(self, name: str) -> numpy.ndarray | None:
        if name in self._constants:
            return self._constants[name]
        return None if self.outer is None or name in self._blobs else self.outer.constant(name)

    def computed(self, name: str) -> numpy.ndarray | None:
        """A constant that is no parameter: one of whole numbers or truths, or none of the file's tensors."""
        array = self.constant(name)
        return None if array is None or (array.dtype.kind not in "iub" and self.is_initializer(name)) else array

    def is_folded(self, node: onnx.NodeProto) -> bool:
        """Whether all that a node gives is the same in every run."""
        outputs = [name for name in node.output if name]
        return bool(outputs) and all(name in self.folded for name in outputs)

    def _type(self, name: str) -> Any:
        scope: Scope | None = self
        while scope is not None:
            if name in scope._types:
                return scope._types[name]
            scope = scope.outer
        return None

    def shape(self, name: str) -> list[int | None] | None:
        """The sizes of a tensor, None where one is not known; None where its rank is not known."""
        array = self.constant(name)
        if array is not None:
            return list(array.shape)
        kind = self._type(name)
        return None if kind is None else sizes_of(kind)

    def add_infos(self, infos: Iterable[onnx.ValueInfoProto]) -> None:
        for each in infos:
            if each.type.HasField("tensor_type"):
                self._types[each.name] = each.type.tensor_type

    def info(self, name: str) -> onnx.ValueInfoProto | None:
        """What is known of a tensor; None where not even its dtype is."""
        dtype, shape = self.dtype(name), self.shape(name)
        return None if dtype is None else helper.make_tensor_value_info(name, element_type(dtype), shape)

    def set_type(self, name: str, dtype: str, shape: Sequence[int | None] | None) -> None:
        """Says what a tensor is, where the file does not."""
        if name not in self._types or not self._types[name].HasField("shape"):
            self.add_infos([helper.make_tensor_value_info(name, element_type(dtype), shape)])

    def dtype(self, name: str) -> str | None:
        array = self.constant(name)
        if array is not None:
            return str(array.dtype)
        kind = self._type(name)
        dtype = dtype_of(kind.elem_type) if kind is not None else None
        return None if dtype is None else str(dtype)


class Node:
    """A node of a graph, as the functions of the table see it."""

    def __init__(self, scope: Scope, proto: onnx.NodeProto) -> None:
        self.scope = scope
        self.net = scope.net
        self.type: str = proto.op_type
        self.tensors = list(proto.input)
        """Names of inputs in the graph; "" for those that are left out."""
        self.outputs = list(proto.output)
        self.attributes = {each.name: helper.get_attribute_value(each) for each in proto.attribute}
        self.used: set[str] = set()
        self._blobs: dict[str, str] = {}

    @property
    def opset(self) -> int:
        return self.scope.model.opset

    def has(self, i: int) -> bool:
        return i < len(self.tensors) and self.tensors[i] != ""

    def blob(self, i: int) -> str:
        """The blob of an input."""
        if not self.has(i):
            raise Unsupported(f"its input {i} is missing")
        if self.tensors[i] not in self._blobs:
            self._blobs[self.tensors[i]] = self.scope.blob(self.tensors[i])
        return self._blobs[self.tensors[i]]

    def blobs(self) -> list[str]:
        return [self.blob(i) for i in range(len(self.tensors))]

    def operands(self) -> list[str]:
        """The blobs of inputs that are repeated over each other. In a step a number is one for each element of what is
        beside it, as that of a cell is: so it becomes part of what reads it."""
        numbers = {i: self.scope.number_of(name) for i, name in enumerate(self.tensors)}
        others = [i for i, number in numbers.items() if number is None]
        if len(others) != 1:
            return self.blobs()
        like = self.blob(others[0])
        return [like if number is None else self.net.number(number.item(), str(number.dtype), like) for number in numbers.values()]

    def gives(self, i: int) -> bool:
        return i < len(self.outputs) and self.outputs[i] != ""

    def constant(self, i: int) -> numpy.ndarray | None:
        return self.scope.constant(self.tensors[i]) if self.has(i) else None

    def needed(self, i: int, what: str) -> numpy.ndarray:
        """An input that must be a constant."""
        array = self.constant(i)
        if array is None:
            raise Unsupported(f"{what} is no constant, but the tensor {self.tensors[i]!r}")
        return array

    def shape(self, i: int) -> list[int | None]:
        shape = self.scope.shape(self.tensors[i])
        if shape is None:
            raise Unsupported(f"the rank of its input {self.tensors[i]!r} is not known")
        return shape

    def rank(self, i: int = 0) -> int:
        return len(self.shape(i))

    def dtype(self, i: int = 0) -> str:
        dtype = self.scope.dtype(self.tensors[i])
        if dtype is None:
            raise Unsupported(f"the dtype of its input {self.tensors[i]!r} is not known")
        return dtype

    def attribute(self, name: str, default: Any = None) -> Any:
        self.used.add(name)
        value = self.attributes.get(name, default)
        if isinstance(value, float):  # so are defaults, whatever their digits are here
            return single(value)
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else value

    def strings(self, name: str, default: Sequence[str] = ()) -> list[str]:
        self.used.add(name)
        return (
            [each.decode("utf-8", "replace") for each in self.attributes[name]]
            if name in self.attributes
            else [*default]
        )

    def axes(self, i: int, name: str = "axes") -> list[int] | None:
        """Dimensions, which are an attribute or, in newer versions of an operator, a constant input."""
        self.used.add(name)
        if self.has(i):
            return [int(axis) for axis in self.needed(i, name).reshape(-1)]
        given = self.attributes.get(name)
        return None if given is None else [int(axis) for axis in given]

    def emit(self, op_type: str, *inputs: str, **arguments: Any) -> str:
        return self.net.emit(op_type, *inputs, **arguments)

    def fixed(self, array: Any, hint: str = "constant") -> str:
        """A blob with these elements that is no parameter."""
        return self.scope.fixed(array, hint)

    def number(self, value: float, dtype: str) -> str:
        """A scalar, which is repeated over anything and adds no dimension."""
        array = numpy.array(value, dtype)
        in_step = self.scope.outer is not None and is_filled(array)
        return self.net.number(array.item(), dtype) if in_step else self.fixed(array)


def is_filled(array: numpy.ndarray) -> bool:
    """Whether a ConstantFill gives such a number."""
    return str(array.dtype) in CODES


def tensors_of(graph: onnx.GraphProto) -> Iterator[str]:
    """The names that a graph and the bodies in it have for tensors, or read."""
    yield from (each.name for each in (*graph.input, *graph.initializer, *graph.output))
    for proto in graph.node:
        yield from (*proto.input, *proto.output)
        for body in bodies_of(proto):
            yield from tensors_of(body)


def sizes_of(kind: Any) -> list[int | None] | None:
    """The sizes of a type of tensors."""
    if not kind.HasField("shape"):
        return None
    return [each.dim_value if each.HasField("dim_value") else None for each in kind.shape.dim]


def fits(shape: Sequence[int | None], sizes: Sequence[int | None]) -> bool:
    """Whether two shapes may be one, where None is a size that is not known."""
    return len(shape) == len(sizes) and all(None in pair or pair[0] == pair[1] for pair in zip(shape, sizes))


def shape_text(shape: Sequence[int | None]) -> str:
    return f"[{', '.join('?' if size is None else str(size) for size in shape)}]"


def kind_of_node(proto: onnx.NodeProto) -> str:
    return proto.op_type if proto.domain in STANDARD else f"{proto.domain}.{proto.op_type}"


def place_of_node(proto: onnx.NodeProto, index: int, graph: str) -> str:
    """As errors say it, behind a line break."""
    called = f" {proto.name!r}" if proto.name else ""
    text = f"{', '.join(proto.output)} = {kind_of_node(proto)}({', '.join(proto.input)})"
    return f'\n  at node {index}{called} `{text}`\n  in graph "{graph}"'


def located(error: str, proto: onnx.NodeProto, index: int, graph: str, path: Origin) -> InvalidNetError:
    return InvalidNetError(f"invalid net: {error}{place_of_node(proto, index, graph)}\n  in {place_of(path)}")
