"""An ONNX graph while it is written: nodes, constants and names."""

from __future__ import annotations

import re
from typing import Any, Iterable, Mapping, Sequence

import numpy
import onnx
from onnx import helper, numpy_helper

from .netdef import Names
from .reader import bodies_of

LAST = numpy.iinfo(numpy.int64).max
"""An end of a slice that is beyond any size."""


class Value:
    """A tensor of a graph: its name there, its dtype as NumPy calls it, and its sizes.

    Sizes that may change from run to run stand for the number that ``GraphWriter.free_sizes`` has for them.
    """

    def __init__(
        self, graph: GraphWriter, name: str, dtype: str, shape: Sequence[int], array: numpy.ndarray | None = None
    ) -> None:
        self.graph = graph
        self.name = name
        self.dtype = dtype
        self.shape = tuple(shape)
        self.array = array
        """The elements, where they are known when the graph is written."""
        self.origins: frozenset[str] = frozenset()
        """The parameters that these elements are made of; none for constants."""
        self.number: str | None = None
        """The scalar that all elements are, where that is a constant."""
        self.sizes: list[int] | None = None
        """The elements where they are sizes, as ``shape`` has them."""
        self.lengths: Value | None = None
        """The lengths that a mask of steps ``[T, B]`` is made of."""
        self.projection: tuple[Value, Value, Value | None] | None = None
        """Sequence ``[T, B, D]``, matrix and bias of a product of a sequence with constants."""

    @property
    def rank(self) -> int:
        return len(self.shape)

    def axis(self, axis: int) -> int:
        """The number of a dimension that may be counted from the end."""
        return axis + self.rank if axis < 0 else axis


class GraphWriter:
    """A graph, or the body of an operator of one, which sees the tensors of the graphs around it.

    All of them share names and constants. What ``emit`` and the methods after it give are names of tensors.
    """

    def __init__(self, outer: GraphWriter | None = None) -> None:
        self.outer = outer
        self.root: GraphWriter = self if outer is None else outer.root
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self.hint = "value"
        """What new tensors are called after."""
        if outer is None:
            self.initializers: dict[str, onnx.TensorProto] = {}
            self.constants: list[onnx.NodeProto] = []
            self.arrays: dict[str, numpy.ndarray] = {}
            """The elements of constants and parameters."""
            self._replaced: dict[str, str] = {}
            self.free_sizes: dict[int, str] = {}
            """Numbers that stand for sizes which change from run to run, with their names."""
            self.min_free = LAST
            """Sizes from here on are free, or follow from free ones."""
            self.names = Names()
            self._small: dict[Any, str] = {}
            self._transposed: dict[str, str] = {}

    def is_free(self, *sizes: int | str | None) -> bool:
        """Whether any of the sizes may change from run to run."""
        return any(isinstance(size, int) and size >= self.root.min_free for size in sizes)

    def unique(self, hint: str) -> str:
        """A new name: the hint, or the hint with a number."""
        return self.root.names.unique(hint)

    def info(self, name: str, dtype: str, shape: Sequence[int | str | None]) -> onnx.ValueInfoProto:
        """What says dtype and shape of an input or output; sizes that are free have names or none."""
        free = self.root.free_sizes
        sizes = [free.get(size) if isinstance(size, int) and self.is_free(size) else size for size in shape]
        return helper.make_tensor_value_info(name, element_type(dtype), sizes)

    def with_size_names(self, text: str) -> str:
        """The text with the names of free sizes for the numbers that stand for them, and with ``?`` for sizes in lists that
        follow from these."""
        names = self.root.free_sizes

        def named(found: re.Match[str]) -> str:
            return names.get(int(found[0]), found[0])

        def size(found: re.Match[str]) -> str:
            return self.size_name(int(found[0]))

        text = re.sub(r"\[[\d, ]+\]", lambda sizes: re.sub(r"\d+", size, sizes[0]), text)
        return re.sub(r"\d+", named, text)

    def size_name(self, size: int) -> str:
        """A size in words: a free one is called by its name, as ``2*B`` where it is a multiple, and else ``?``."""
        names = self.root.free_sizes
        if size in names or not self.is_free(size):
            return names.get(size, str(size))
        multiples = [f"{size // number}*{name}" for number, name in names.items() if size % number == 0]
        return multiples[0] if len(multiples) == 1 else "?"

    def emit(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """Adds an operator with one output."""
        return self.emit_all(op_type, inputs, 1, **attributes)[0]

    def emit_all(self, op_type: str, inputs: Sequence[str], outputs: int, **attributes: Any) -> list[str]:
        names = [self.unique(self.hint) for _ in range(outputs)]
        self.nodes.append(helper.make_node(op_type, inputs, names, name=names[0], **attributes))
        return names

    def constant(self, array: Any, hint: str | None = None) -> str:
        """A tensor with these elements that is no parameter: a node of the outermost graph; small ones are there once."""
        array = numpy.ascontiguousarray(array) if numpy.ndim(array) else numpy.asarray(array)
        root = self.root
        key = (array.dtype.str, array.shape, array.tobytes()) if array.size <= 16 and hint is None else None
        if key is not None and key in root._small:
            return root._small[key]
        name = root.unique(hint or "constant")
        root.constants.append(
            helper.make_node("Constant", [], [name], name, value=numpy_helper.from_array(array, name))
        )
        root.arrays[name] = array
        if key is not None:
            root._small[key] = name
        return name

    def ints(self, *values: int) -> str:
        return self.constant(numpy.array(values, numpy.int64))

    def scalar(self, value: float, dtype: str) -> str:
        return self.constant(numpy.array(value, dtype))

    def parameter(self, array: numpy.ndarray, name: str) -> str:
        """An initializer of the outermost graph."""
        self.root.initializers[name] = numpy_helper.from_array(array, name)
        self.root.arrays[name] = array
        return name

    def weights(self, array: numpy.ndarray, hint: str, origins: Iterable[str]) -> str:
        """A parameter with these elements, which were made of other ones: one of these, where it has them as it is.

        One of the same shape that nothing else reads gives its name to what was made of it alone.
        """
        root, of_shape = self.root, [name for name in sorted(origins) if self.root.arrays[name].shape == array.shape]
        # Other loops may have made the same of the same weights.
        others = [made for made, name in root._replaced.items() if name in of_shape]
        for name in [*of_shape, *others]:
            if root.arrays[name].tobytes() == array.tobytes():
                return name
        made = self.parameter(numpy.ascontiguousarray(array), root.unique(hint))
        if len(of_shape) == 1:
            root._replaced[made] = of_shape[0]
        return made

    def reshape(self, name: str, *sizes: int) -> str:
        """``0`` keeps a size, ``-1`` is what is left."""
        return self.emit("Reshape", name, self.ints(*sizes))

    def reshape_to(self, name: str, *sizes: int) -> str:
        """Under these sizes, of which 0 is one of no elements."""
        return self.emit("Reshape", name, self.ints(*sizes), **({"allowzero": 1} if 0 in sizes else {}))

    def reshape_as(self, name: str, value: Value, begin: int = 0, end: int | None = None, ones: int = 0) -> str:
        """Under the sizes of dimensions ``[begin, end)`` of a value, and so many ones behind them."""
        sizes = value.shape[begin:end]
        if 0 not in sizes and sum(self.is_free(size) for size in sizes) < 2:
            return self.reshape(name, *(-1 if self.is_free(size) else size for size in sizes), *([1] * ones))
        shape = [self.sizes(value.name, begin, end), *([self.ints(*([1] * ones))] if ones else [])]
        return self.emit("Reshape", name, self.concat(shape), allowzero=1)

    def unsqueeze(self, name: str, *axes: int) -> str:
        return self.emit("Unsqueeze", name, self.ints(*axes)) if axes else name

    def squeeze(self, name: str, *axes: int) -> str:
        return self.emit("Squeeze", name, self.ints(*axes)) if axes else name

    def slice(self, name: str, start: int, end: int | None = None, axis: int = 0) -> str:
        return self.emit("Slice", name, self.ints(start), self.ints(LAST if end is None else end), self.ints(axis))

    def sizes(self, name: str, begin: int = 0, end: int | None = None) -> str:
        """The sizes of dimensions ``[begin, end)``, int64."""
        return self.emit("Shape", name, start=begin, **({} if end is None else {"end": end}))

    def size(self, name: str, axis: int) -> str:
        """The size of one dimension, int64 [1]."""
        return self.sizes(name, axis, axis + 1)

    def concat(self, names: Sequence[str], axis: int = 0) -> str:
        return names[0] if len(names) == 1 else self.emit("Concat", *names, axis=axis)

    def cast(self, name: str, dtype: str) -> str:
        return self.emit("Cast", name, to=element_type(dtype))

    def count(self, size: str, dtype: str = "int64") -> str:
        """The numbers from 0 to ``size``, which is int64 [1]."""
        numbers = self.emit("Range", self.ints_scalar(0), self.squeeze(size, 0), self.ints_scalar(1))
        return numbers if dtype == "int64" else self.cast(numbers, dtype)

    def ints_scalar(self, value: int) -> str:
        return self.scalar(value, "int64")

    def matrix_transposed(self, value: Value) -> str:
        """The transpose of a matrix, computed where the matrix is, once."""
        made = self.root._transposed
        if value.name not in made:
            made[value.name] = value.graph.emit("Transpose", value.name, perm=[1, 0])
        return made[value.name]

    def _give_names(self, nodes: Sequence[onnx.NodeProto], read: set[str]) -> None:
        """Gives parameters the names of those that they take the place of."""
        names: dict[str, str] = {}
        for made, name in self._replaced.items():
            if made in read and name not in read:
                names[made] = name
                read.add(name)
                self.initializers[name] = self.initializers.pop(made)
                self.initializers[name].name = name
        rename_inputs(nodes, names)

    def proto(self, name: str) -> onnx.GraphProto:
        """The graph, without nodes and constants that nothing needs."""
        nodes = self.nodes if self.outer is not None else [*self.constants, *self.nodes]
        nodes = needed_nodes(nodes, [output.name for output in self.outputs])
        initializers = []
        if self.outer is None:
            read = names_read(nodes) | {output.name for output in self.outputs}
            self._give_names(nodes, read)
            inputs = {each.name for each in self.inputs}
            initializers = [each for key, each in self.initializers.items() if key in read or key in inputs]
        return helper.make_graph(nodes, name, self.inputs, self.outputs, initializers)


def rename_inputs(nodes: Sequence[onnx.NodeProto], names: Mapping[str, str]) -> None:
    for node in nodes:
        node.input[:] = [names.get(name, name) for name in node.input]
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                rename_inputs(attribute.g.node, names)


def element_type(dtype: str) -> int:
    return helper.np_dtype_to_tensor_dtype(numpy.dtype(dtype))


def names_read(nodes: Sequence[onnx.NodeProto]) -> set[str]:
    """What nodes read, and the nodes of their bodies."""
    read: set[str] = set()
    for node in nodes:
        read.update(node.input)
        for body in bodies_of(node):
            read |= names_read(body.node) | {output.name for output in body.output}
    return read


def needed_nodes(nodes: Sequence[onnx.NodeProto], outputs: Sequence[str]) -> list[onnx.NodeProto]:
    """The nodes that the outputs depend on, in their order."""
    needed, kept = set(outputs), []
    for node in reversed(nodes):
        if needed.isdisjoint(node.output):
            continue
        kept.append(node)
        needed |= names_read([node])
    return kept[::-1]
