"""What a step computes, as expressions in a normal form, so that two ways to write one thing are equal.

An expression is a tuple: a kind and what it is of.

- ``("before", state)``, ``("after", state)``: a state before and after the step
- ``("sequence", name)``: this step's item of a sequence
- ``("param", name, begin, end)``: elements of a vector
- ``("product", x, name, begin, end)``: the expression x times rows of a matrix, transposed
- ``("add", …)``, ``("mul", …)``: of any number of expressions, sorted
- ``("number", value)``, ``("rest", z)`` for 1 - z, ``("Sigmoid", x)`` and other functions
- ``("held", mask, new, old)``: new where the item of the mask is true, or the step is below ``("lengths", name)``; else
  old
- ``("concat", …)``: side by side in the last dimension
"""

from __future__ import annotations

import math
from typing import Any

from .. import _stepnet
from .graph import Value

Expression = tuple
FUNCTIONS = ("Relu", "Sigmoid", "Tanh")
MOST_TERMS, LONGEST = 64, 20_000
"""Bounds of an expression: what is larger is none that is looked for, and could grow with every operator."""
COPIES = ("Alias", "Copy", "StopGradient")


class Unknown(Exception):
    """The step computes something else."""


def joined(kind: str, *parts: Expression) -> Expression:
    """A sum or a product, without others of its kind in it."""
    flat: list[Expression] = []
    for part in parts:
        flat += part[1:] if part[0] == kind else [part]
        if len(flat) > MOST_TERMS:
            raise Unknown
    return flat[0] if len(flat) == 1 else (kind, *sorted(flat, key=repr))


def terms(expression: Expression) -> tuple[Expression, ...]:
    return expression[1:] if expression[0] == "add" else (expression,)


def factors(expression: Expression) -> tuple[Expression, ...]:
    return expression[1:] if expression[0] == "mul" else (expression,)


def part(expression: Expression, begin: int, end: int) -> Expression:
    """Elements of the last dimension."""
    kind = expression[0]
    if kind == "add":
        return joined("add", *(part(each, begin, end) for each in expression[1:]))
    if kind in FUNCTIONS:
        return (kind, part(expression[1], begin, end))
    if kind == "concat":
        return part_of_concat(expression, begin, end)
    if kind == "product":
        _, x, name, first, _ = expression
        return ("product", x, name, first + begin, first + end)
    if kind == "param":
        _, name, first, _ = expression
        return ("param", name, first + begin, first + end)
    raise Unknown


def part_of_concat(expression: Expression, begin: int, end: int) -> Expression:
    """Elements that lie within one of what is side by side."""
    for each in expression[1:]:
        size = width(each)
        if (begin, end) == (0, size):
            return each
        if 0 <= begin and end <= size:
            return part(each, begin, end)
        begin, end = begin - size, end - size
    raise Unknown


class Step:
    """The expressions of the blobs of a step with one row a state."""

    def __init__(self, parts: dict[str, Any], values: dict[str, Value]) -> None:
        self.parts = parts
        self.values = dict(values)
        """What the loop is given from outside, and what its sequences are products of."""
        self.states = [name for name, _ in parts["states"]]
        self.after: dict[str, Expression] = {}
        """What each state becomes, where its sequence goes on."""
        self.masks: dict[str, Expression] = {}
        """What says of each item of the batch whether its sequence goes on, for the states that have such a thing."""
        self._padding: set[Expression] = set()
        """The masks where sequences are read as 0 instead of what they hold, which nothing depends on."""
        self._blobs: dict[str, Expression] = {}

    def read(self) -> None:
        """Raises Unknown for a step that these expressions do not say."""
        for op in self.parts["step"]:
            for blob, expression in zip(op.outputs, self.expressions_of(op)):
                self.write(blob, expression)
        if len(self.after) < len(self.states):
            raise Unknown
        if any(self.masks.get(state) != mask for mask in self._padding for state in self.states):
            raise Unknown

    def write(self, blob: str, expression: Expression) -> None:
        for internal, external, offset, window in self.parts["links"]:
            if internal != blob:
                continue
            if external not in self.states or (offset, window) != (1, 1) or external in self.after:
                raise Unknown
            if expression[0] == "held":
                _, mask, expression, old = expression
                if mask[0] not in ("sequence", "lengths") or old != ("before", external):
                    raise Unknown
                self.masks[external] = mask
            self.after[external] = expression
            expression = ("after", external)
        if len(repr(expression)) > LONGEST:
            raise Unknown
        self._blobs[blob] = expression

    def of(self, blob: str) -> Expression:
        if blob in self._blobs:
            return self._blobs[blob]
        links = [link[1:] for link in self.parts["links"] if link[0] == blob]
        if len(links) > 1 or (links and tuple(links[0][1:]) != (0, 1)):
            raise Unknown
        if links:
            return ("before" if links[0][0] in self.states else "sequence", links[0][0])
        return self.param(blob)

    def term(self, blob: str) -> Expression:
        """A blob as a term of a sum: an item of a sequence that is a product with parameters is that product."""
        expression = self.of(blob)
        projection = self.values[expression[1]].projection if expression[0] == "sequence" else None
        if projection is None:
            return expression
        x, w, b = projection
        names = [f"outside {value.name}" for value in projection if value is not None]
        self.values.update(zip(names, (value for value in projection if value is not None)))
        product = ("product", ("sequence", names[0]), names[1], 0, w.shape[0])
        return product if b is None else joined("add", product, ("param", names[2], 0, b.shape[0]))

    def param(self, blob: str) -> Expression:
        value = self.values.get(blob)
        if value is None or value.array is None or value.rank != 1:
            raise Unknown
        if value.array.size == 1 and not value.origins:
            return ("number", value.array.item())
        return ("param", blob, 0, value.shape[0])

    def expressions_of(self, op: _stepnet.Operator) -> list[Expression]:
        arguments, of = op.arguments(), self.of
        if op.type in COPIES:
            return [of(op.inputs[0])]
        if op.type in FUNCTIONS:
            return [(op.type, of(op.inputs[0]))]
        if op.type == "FC":
            return [self.product(op, arguments)]
        if op.type in ("Add", "Mul", "Sum"):
            if arguments.get("broadcast"):
                raise Unknown
            if op.type == "Mul":
                return [joined("mul", *(of(blob) for blob in op.inputs))]
            return [joined("add", *(self.term(blob) for blob in op.inputs))]
        if op.type == "ConstantFill" and not arguments["input_as_shape"] and not arguments["extra_shape"]:
            if not op.inputs and arguments["shape"]:
                raise Unknown  # it is no number that is repeated
            return [("number", arguments["value"] or 0)]
        if op.type == "Sub" and not arguments["broadcast"] and of(op.inputs[0]) == ("number", 1):
            return [("rest", of(op.inputs[1]))]
        if op.type == "Where" and arguments["broadcast_on_rows"]:
            mask, new, old = (of(blob) for blob in op.inputs)
            if mask[0] == new[0] == "sequence" and old == ("number", 0):
                self._padding.add(mask)
                return [new]
            return [("held", mask, new, old)]
        if op.type == "Split":
            return self.split(op, arguments)
        if op.type == "Concat" and arguments["axis"] in (-1, 2) and not arguments["add_axis"]:
            return [("concat", *(of(blob) for blob in op.inputs))]
        if op.type in ("LSTMUnit", "GRUUnit"):
            return self.unit(op, arguments)
        raise Unknown

    def unit(self, op: _stepnet.Operator, arguments: dict[str, Any]) -> list[Expression]:
        """What LSTMUnit and GRUUnit compute, docs/operators.md."""
        *states, sums, timestep = op.inputs if not arguments["sequence_lengths"] else (*op.inputs[:-2], op.inputs[-1])
        if timestep != self.parts["timestep"] or timestep in self._blobs or arguments["drop_states"]:
            raise Unknown
        before, total = [self.of(blob) for blob in states], self.term(sums)
        count = 4 if op.type == "LSTMUnit" else 3
        size = width(total) // count
        gates = [part(total, k * size, (k + 1) * size) for k in range(count)]
        if op.type == "GRUUnit":
            z, n = ("Sigmoid", gates[1]), ("Tanh", gates[2])
            after = [joined("add", joined("mul", before[0], z), joined("mul", ("rest", z), n))]
        else:
            i, f, o, g = gates
            if arguments["forget_bias"]:
                f = joined("add", f, ("number", arguments["forget_bias"]))
            kept, taken = joined("mul", ("Sigmoid", f), before[1]), joined("mul", ("Sigmoid", i), ("Tanh", g))
            c = joined("add", kept, taken)
            after = [joined("mul", ("Sigmoid", o), ("Tanh", c)), c]
        if not arguments["sequence_lengths"]:
            return after
        lengths = op.inputs[-2]
        if (
            lengths not in self.values
            or lengths in self._blobs
            or any(lengths == link[0] for link in self.parts["links"])
        ):
            raise Unknown
        return [("held", ("lengths", lengths), new, old) for new, old in zip(after, before)]

    def product(self, op: _stepnet.Operator, arguments: dict[str, Any]) -> Expression:
        w, axis = self.values.get(op.inputs[1]), arguments["axis_w"]
        if arguments["axis"] not in (-1, 2) or axis < 1 or op.inputs[1] in self._blobs:
            raise Unknown
        if w is None or w.array is None or w.rank != axis + 1:
            raise Unknown
        name, count = op.inputs[1], math.prod(w.shape[:axis])
        if axis > 1:  # its rows are of all dimensions but the last
            name = f"{name} as a matrix"
            shape = (count, w.shape[-1])
            self.values[name] = Value(w.graph, w.name, w.dtype, shape, w.array.reshape(shape))
            self.values[name].origins = w.origins
        product = ("product", self.of(op.inputs[0]), name, 0, count)
        return product if len(op.inputs) == 2 else joined("add", product, self.param(op.inputs[2]))

    def split(self, op: _stepnet.Operator, arguments: dict[str, Any]) -> list[Expression]:
        whole = self.term(op.inputs[0])
        if len(op.inputs) > 1 or arguments["add_axis"] or arguments["axis"] not in (-1, 2):
            raise Unknown
        size = width(whole)
        sizes = arguments["split"] or [size // len(op.outputs)] * len(op.outputs)
        found, begin = [], 0
        for each in sizes:
            found.append(part(whole, begin, begin + each))
            begin += each
        return found


def width(expression: Expression) -> int:
    """The size of the last dimension, where the expression says it."""
    kind = expression[0]
    if kind in ("product", "param"):
        return int(expression[-1]) - int(expression[-2])
    if kind in FUNCTIONS:
        return width(expression[1])
    if kind == "concat":
        return sum(width(each) for each in expression[1:])
    if kind in ("add", "mul"):
        widths = {width(each) for each in expression[1:]}
        if len(widths) == 1:
            return widths.pop()
    raise Unknown
