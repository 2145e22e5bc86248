"""One operator of a net that is written as nodes of ONNX."""

from __future__ import annotations

from typing import Any, Sequence

from .. import _stepnet
from ..errors import InvalidNetError
from .graph import GraphWriter, Value


class Refusal(Exception):
    """Why an operator cannot be written; whoever knows where it stands makes an error of it."""


class Call:
    """An operator with its inputs, and the dtypes and shapes of what it gives."""

    def __init__(
        self,
        graph: GraphWriter,
        op: _stepnet.Operator,
        inputs: Sequence[Value],
        infos: Sequence[tuple[str, tuple[int, ...]]],
        wanted: set[str],
    ) -> None:
        self.graph = graph
        self.op = op
        self.type: str = op.type
        self.arguments: dict[str, Any] = op.arguments()
        self.inputs = list(inputs)
        self.names = [value.name for value in inputs]
        self.infos = list(infos)
        self.wanted = wanted
        """Those of its blobs that are read later."""

    def __getitem__(self, argument: str) -> Any:
        return self.arguments[argument]

    @property
    def dtype(self) -> str:
        """That of the first output."""
        return self.infos[0][0]

    def emit(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        return self.graph.emit(op_type, *inputs, **attributes)

    def number(self, value: float) -> str:
        """A scalar of the dtype of the first input."""
        return self.graph.scalar(value, self.inputs[0].dtype)

    def operands(self) -> list[str]:
        """The inputs of an operator that repeats them over each other: a number that another input's shape repeats is a scalar."""
        shape = self.infos[0][1]
        if not any(value.number is None and value.shape == shape for value in self.inputs):
            return self.names
        return [value.number or value.name for value in self.inputs]

    def wants(self, output: int) -> bool:
        return output < len(self.op.outputs) and self.op.outputs[output] in self.wanted


def located(error: str, index: int, op: _stepnet.Operator, net: str) -> InvalidNetError:
    """The error for an operator of a net."""
    return InvalidNetError(f'invalid net: {error}\n  at op {index} `{op.text}`\n  in net "{net}"')
