"""Nets of StepNet while they are written, as text of NetDef."""

from __future__ import annotations

import math
from typing import Any, Sequence, Union

Argument = Union[bool, int, float, str, Sequence[int], Sequence[float], Sequence[str], "NetText"]


class Names:
    """Names of blobs or tensors, none of them given twice."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._last: dict[str, int] = {}

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
        self.inputs: list[str] = []
        self.outputs: list[str] = []
        self.read: set[str] = set()
        """The blobs that operators read."""
        self._ops: list[str] = []

    def add(self, op_type: str, inputs: Sequence[str], outputs: Sequence[str], **arguments: Argument) -> None:
        self.read.update(inputs)
        parts = [f"input: {quoted(name)}" for name in inputs]
        parts += [f"output: {quoted(name)}" for name in outputs]
        parts.append(f"type: {quoted(op_type)}")
        parts += [argument_text(name, value) for name, value in arguments.items()]
        self._ops.append("op { " + " ".join(parts) + " }")

    def emit(self, op_type: str, *inputs: str, **arguments: Argument) -> str:
        """Adds an operator, and gives the name of its one output."""
        return self.emit_all(op_type, inputs, 1, **arguments)[0]

    def emit_all(self, op_type: str, inputs: Sequence[str], count: int, **arguments: Argument) -> list[str]:
        outputs = [self.names.unique(self.hint) for _ in range(count)]
        self.add(op_type, inputs, outputs, **arguments)
        return outputs

    def text(self) -> str:
        lines = [f"name: {quoted(self.name)}", *self._ops]
        lines += [f"external_input: {quoted(name)}" for name in self.inputs]
        lines += [f"external_output: {quoted(name)}" for name in self.outputs]
        return "\n".join(lines) + "\n"


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


def argument_text(name: str, value: Any) -> str:
    return f"arg {{ name: {quoted(name)} {value_text(value)} }}"


def value_text(value: Any) -> str:
    if isinstance(value, NetText):
        return f"n {{ {value.text()} }}"
    if isinstance(value, str):
        return f"s: {quoted(value)}"
    if isinstance(value, float):
        return f"f: {number_text(value)}"
    if isinstance(value, int):
        return f"i: {int(value)}"
    if value and isinstance(value[0], str):
        return " ".join(f"strings: {quoted(each)}" for each in value)
    if value and isinstance(value[0], float):
        return " ".join(f"floats: {number_text(each)}" for each in value)
    return " ".join(f"ints: {int(each)}" for each in value)
