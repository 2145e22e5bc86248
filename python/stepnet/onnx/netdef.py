"""Nets of StepNet while they are written, as text of NetDef."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import Any, Mapping, Sequence, Union

import numpy

CODES = {"float32": 1, "int32": 2, "bool": 5, "int64": 10, "float64": 13}
"""The dtypes of fills, by the numbers of TensorProto.DataType."""

Argument = Union[bool, int, float, str, Sequence[int], Sequence[str], "NetText"]

Op = tuple[str, Sequence[str], Sequence[str], Mapping[str, Argument]]
"""The type of an operator, what it reads and gives, and its arguments."""


class Names:
    """Names of blobs or tensors, none of them given twice."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._last: dict[str, int] = {}
        self.places: dict[str, str] = {}
        """What of a file the operators that give blobs stand for, by blob."""

    def unique(self, hint: str) -> str:
        """A new name: the hint, or the hint with a number."""
        name = hint
        while name in self._taken:
            self._last[hint] = self._last.get(hint, 0) + 1
            name = f"{hint}.{self._last[hint]}"
        self._taken.add(name)
        return name


class NetText:
    """A net, operator by operator."""

    def __init__(self, name: str, names: Names) -> None:
        self.name = name
        self.names = names
        self.hint = "value"
        """What new blobs are called after."""
        self.place = ""
        """What of a file new operators stand for."""
        self.inputs: list[str] = []
        self.outputs: list[str] = []
        self.read: set[str] = set()
        """The blobs that operators read."""
        self.given: set[str] = set()
        """The blobs that operators give."""
        self.shown: set[str] = set()
        """The blobs that are seen from outside, beside the outputs."""
        self._ops: list[Op] = []
        self._called: dict[str, str] = {}
        self._views: dict[tuple[str, str, tuple[int, ...]], str] = {}
        self._made: list[str] = []
        """What ``squeezed`` and ``expanded`` have added operators for."""

    def add(self, op_type: str, inputs: Sequence[str], outputs: Sequence[str], **arguments: Argument) -> None:
        self.read.update(inputs)
        self.given.update(outputs)
        self.names.places.update(dict.fromkeys(outputs, self.place))
        self._ops.append((op_type, [*inputs], [*outputs], arguments))

    def emit(self, op_type: str, *inputs: str, **arguments: Argument) -> str:
        """Adds an operator, and gives the name of its one output."""
        return self.emit_all(op_type, inputs, 1, **arguments)[0]

    def emit_all(self, op_type: str, inputs: Sequence[str], count: int, **arguments: Argument) -> list[str]:
        outputs = [self.names.unique(self.hint) for _ in range(count)]
        self.add(op_type, inputs, outputs, **arguments)
        return outputs

    def number(self, value: float, dtype: str, *like: str) -> str:
        """A scalar of one of ``CODES``, which is repeated over anything, or a tensor of it in the shape of a blob."""
        shape: dict[str, list[int]] = {} if like else {"shape": []}
        number = float(value) if dtype.startswith("float") else int(value)
        return self.emit("ConstantFill", *like, value=number, dtype=CODES[dtype], **shape)

    def squeezed(self, blob: str, dims: Sequence[int]) -> str:
        """The blob without these dimensions, which are 1."""
        return self._view("Squeeze", "ExpandDims", blob, dims)

    def expanded(self, blob: str, dims: Sequence[int]) -> str:
        """The blob with these dimensions of 1."""
        return self._view("ExpandDims", "Squeeze", blob, dims)

    def _view(self, op_type: str, inverse: str, blob: str, dims: Sequence[int]) -> str:
        """The one blob that the operator gives; what the inverse one has made is taken back without any."""
        if not dims:
            return blob
        key = op_type, blob, tuple(dims)
        if key not in self._views:
            made = self._views[key] = self.emit(op_type, blob, dims=dims)
            self._views[inverse, made, tuple(dims)] = blob
            self._made.append(made)
        return self._views[key]

    def call(self, blob: str, name: str) -> bool:
        """Calls a blob by this name in the text; says whether that can be: the blob is given here, and has no other one."""
        can_be = blob in self.given and blob not in self._called
        if can_be:
            self._called[blob] = name
            self.names.places[name] = self.names.places[blob]
        return can_be

    def blobs_read(self) -> set[str]:
        """Those that operators read, or that are seen from outside."""
        return self._needed()[1]

    def views_read(self) -> list[str]:
        """What ``squeezed`` and ``expanded`` have added that is read."""
        read = self.blobs_read()
        return [view for view in self._made if view in read]

    def _needed(self) -> tuple[list[Op], set[str]]:
        """The operators without views that nobody reads, and the blobs that are read."""
        ops, read, views = [], {*self.outputs, *self.shown}, {*self._made}
        for op in reversed(self._ops):
            _, inputs, outputs, _ = op
            if views.isdisjoint(outputs) or not read.isdisjoint(outputs):
                ops.append(op)
                read.update(inputs)
        return ops[::-1], read

    def text(self, called: Mapping[str, str] = MappingProxyType({})) -> str:
        """``called``: the names of blobs of nets around it, where these are other ones in the text."""
        called = {**called, **self._called}
        ops, _ = self._needed()
        lines = [f"name: {quoted(self.name)}", *(op_text(*op, called) for op in ops)]
        lines += [f"external_input: {quoted(name)}" for name in self.inputs]
        lines += [f"external_output: {quoted(called.get(name, name))}" for name in self.outputs]
        return "\n".join(lines) + "\n"


def op_text(
    op_type: str, inputs: Sequence[str], outputs: Sequence[str], arguments: Mapping[str, Any], called: Mapping[str, str]
) -> str:
    parts = [f"input: {quoted(called.get(name, name))}" for name in inputs]
    parts += [f"output: {quoted(called.get(name, name))}" for name in outputs]
    parts.append(f"type: {quoted(op_type)}")
    for name, value in arguments.items():
        if name in ("alias_dst", "link_external", "step_output_dst"):  # of a RecurrentNetwork: its inputs and outputs
            value = [called.get(blob, blob) for blob in value]
        text = f"n {{ {value.text(called)} }}" if isinstance(value, NetText) else value_text(value)
        parts.append(f"arg {{ name: {quoted(name)} {text} }}")
    return "op { " + " ".join(parts) + " }"


def quoted(text: str) -> str:
    """A string of protobuf's text format: bytes that are no printable ASCII are octal."""
    out = []
    for byte in text.encode("utf-8", "surrogateescape"):
        out.append(chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:03o}")
    return '"' + "".join(out) + '"'


def number_text(value: float) -> str:
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return repr(float(value))


def single(value: float) -> float:
    """The number as float32, which attributes of ONNX and floats of NetDef are."""
    with numpy.errstate(over="ignore"):
        return float(numpy.float32(value))


def float_text(value: float) -> str:
    """A number that is no float32 is a tensor of one double (core/exact_number.h): operators of float64 read all its digits."""
    if math.isnan(value) or single(value) == value:
        return f"f: {number_text(value)}"
    return f"t {{ data_type: DOUBLE double_data: {number_text(value)} }}"


def value_text(value: Any) -> str:
    if isinstance(value, str):
        return f"s: {quoted(value)}"
    if isinstance(value, float):
        return float_text(value)
    if isinstance(value, int):
        return f"i: {int(value)}"
    if value and isinstance(value[0], str):
        return " ".join(f"strings: {quoted(each)}" for each in value)
    return " ".join(f"ints: {int(each)}" for each in value)
