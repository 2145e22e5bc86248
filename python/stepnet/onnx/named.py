"""Loops that are exactly LSTM, GRU or RNN of ONNX, which runtimes have kernels for, as these.

The equations are those of https://onnx.ai/onnx/operators. A loop may have several of them, as layers and directions
that share a step net: each reads a sequence, or what another one gives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Sequence

import numpy

from .expressions import Expression, Step, Unknown, factors, joined, terms
from .graph import GraphWriter, Value

Values = dict[str, Value]


class Gate:
    """The sum before a gate's activation, in its terms."""

    def __init__(self, total: Expression, h: str) -> None:
        self.of_input: Expression | None = None
        self.of_state: Expression | None = None
        self.biases: list[Expression] = []
        self.others: list[Expression] = []
        for term in terms(total):
            is_state = term[0] == "product" and term[1] == ("before", h)
            if is_state and self.of_state is None:
                self.of_state = term
            elif term[0] == "product" and term[1][0] in ("sequence", "after") and self.of_input is None:
                self.of_input = term
            elif term[0] in ("param", "number"):
                self.biases.append(term)
            else:
                self.others.append(term)

    def source(self) -> Expression:
        if self.of_input is None:
            raise Unknown
        return self.of_input[1]


class Named:
    """An LSTM, GRU or RNN that a state h is of: its weights, and what it reads."""

    def __init__(self, op_type: str, values: Values, states: Sequence[str]) -> None:
        self.op_type = op_type
        self.values = values
        self.states = list(states)
        self.mask: Expression = ()
        """What says where the states go on; nothing where they do everywhere."""
        self.attributes: dict[str, object] = {}
        self.source: Expression = ()
        self.w: numpy.ndarray
        self.r: numpy.ndarray
        self.b: numpy.ndarray
        self.p: numpy.ndarray | None = None
        self.origins: dict[str, set[str]] = {letter: set() for letter in "WRBP"}
        """The parameters that each of them is made of."""

    def rows(self, expression: Expression | None, letter: str) -> numpy.ndarray:
        """The elements of a product's matrix, or of a vector, which become part of W, R, B or P."""
        if expression is None:
            raise Unknown
        name, begin, end = expression[-3:]
        array = self.values[name].array
        if array is None or end > array.shape[0]:
            raise Unknown
        self.origins[letter] |= self.values[name].origins
        return array[begin:end]

    def bias(self, gate_biases: Sequence[Expression], size: int, letter: str = "B") -> numpy.ndarray:
        total = numpy.zeros(size, self.values[self.states[0]].dtype)
        for each in gate_biases:
            if each[0] == "number":
                total = total + numpy.asarray(each[1], total.dtype)
                continue
            rows = self.rows(each, letter)
            if rows.shape != total.shape:
                raise Unknown
            total = total + rows
        return total

    def set_weights(
        self, gates: Sequence[Gate], r: Sequence[Expression | None], state_biases: Sequence[numpy.ndarray]
    ) -> None:
        """Stacks the gates' weights in the order of the operator."""
        sources = {gate.source() for gate in gates}
        size = self.values[self.states[0]].shape[-1]
        if len(sources) != 1 or any(gate.others for gate in gates):
            raise Unknown
        self.source = sources.pop()
        self.w = numpy.concatenate([self.rows(gate.of_input, "W") for gate in gates])[None]
        self.r = numpy.concatenate([self.rows(each, "R") for each in r])[None]
        biases = [self.bias(gate.biases, size) for gate in gates]
        self.b = numpy.concatenate([*biases, *state_biases])[None]
        if self.w.shape[1] != len(gates) * size or self.r.shape[1:] != (len(gates) * size, size):
            raise Unknown


def activation(expression: Expression, name: str) -> Expression:
    if expression[0] != name:
        raise Unknown
    return expression[1]


def take(parts: Sequence[Expression], is_it: Callable[[Expression], bool]) -> tuple[Expression, list[Expression]]:
    """The one part that is it, and the others."""
    found = [each for each in parts if is_it(each)]
    if len(found) != 1:
        raise Unknown
    return found[0], [each for each in parts if each is not found[0]]


def zeros(values: Values, state: str, gates: int) -> list[numpy.ndarray]:
    return [numpy.zeros(gates * values[state].shape[-1], values[state].dtype)]


def as_rnn(step: Step, values: Values, h: str) -> Named:
    function = step.after[h][0]
    if function not in ("Tanh", "Relu"):
        raise Unknown
    gate = Gate(activation(step.after[h], function), h)
    found = Named("RNN", values, [h])
    found.attributes["activations"] = [function]
    found.set_weights([gate], [gate.of_state], zeros(values, h, 1))
    return found


def as_gru(step: Step, values: Values, h: str) -> Named:
    """h = (1 - z) n + z h, with n = tanh(W x + U (r h) + b) or, reset after it, n = tanh(W x + r (U h + b_u) + b)."""
    keeps, others = take(terms(step.after[h]), lambda each: ("before", h) in factors(each))
    _, (z,) = take(factors(keeps), lambda each: each == ("before", h))
    (takes,) = others
    _, (n,) = take(factors(takes), lambda each: each == ("rest", z))
    gate_z, gate_n = Gate(activation(z, "Sigmoid"), h), Gate(activation(n, "Tanh"), h)
    (past,) = gate_n.others
    gate_n.others = []
    found = Named("GRU", values, [h])
    if past[0] == "product":
        r = reset_gate(past[1], ("before", h))
        of_state: Expression | None = past
        state_biases = zeros(values, h, 3)
    else:
        r, others = take(factors(past), lambda each: each[0] == "Sigmoid")
        inner = Gate(joined("mul", *others), h)
        if inner.of_input is not None or inner.others:
            raise Unknown
        of_state = inner.of_state
        state_biases = [*zeros(values, h, 2), found.bias(inner.biases, values[h].shape[-1])]
        found.attributes["linear_before_reset"] = 1
    gate_r = Gate(activation(r, "Sigmoid"), h)
    found.set_weights([gate_z, gate_r, gate_n], [gate_z.of_state, gate_r.of_state, of_state], state_biases)
    return found


def reset_gate(expression: Expression, state: Expression) -> Expression:
    """r of ``r h``."""
    _, (r,) = take(factors(expression), lambda each: each == state)
    return r


def as_lstm(step: Step, values: Values, h: str) -> Named:
    """c = f c + i g and h = o tanh(c), where i and f may see c before the step and o the new one."""
    looks, (o,) = take(factors(step.after[h]), lambda each: each[0] == "Tanh" and state_of(step, each[1]) != "")
    c = state_of(step, looks[1])
    before_c, after_c = ("before", c), looks[1]
    keeps, (takes,) = take(terms(step.after[c]), lambda each: before_c in factors(each))
    _, (f,) = take(factors(keeps), lambda each: each == before_c)
    g, (i,) = take(factors(takes), lambda each: each[0] == "Tanh")
    gates = [Gate(activation(each, "Sigmoid"), h) for each in (i, o, f)] + [Gate(activation(g, "Tanh"), h)]
    found = Named("LSTM", values, [h, c])
    peepholes = [peephole(gate, cell) for gate, cell in zip(gates, (before_c, after_c, before_c))]
    if any(each is not None for each in peepholes):
        size = values[h].shape[-1]
        found.p = numpy.concatenate([found.bias([each] if each else [], size, "P") for each in peepholes])[None]
    found.set_weights(gates, [gate.of_state for gate in gates], zeros(values, h, 4))
    return found


def state_of(step: Step, expression: Expression) -> str:
    """The state that becomes this; where sequences end, the state itself is another expression. "" for none."""
    found = [name for name in step.states if expression in (("after", name), step.after[name])]
    return found[0] if len(found) == 1 else ""


def peephole(gate: Gate, cell: Expression) -> Expression | None:
    """The weights of a gate's peephole, which is no term any more."""
    for term in gate.others:
        weights = [each for each in factors(term) if each != cell]
        if len(factors(term)) == 2 and len(weights) == 1 and weights[0][0] == "param":
            gate.others.remove(term)
            return weights[0]
    return None


def recognized(step: Step, initial: Values) -> list[Named]:
    """The loop as named operators, each behind those that it reads. Raises Unknown for any other loop."""
    step.read()
    values = {**step.values, **initial}
    found: dict[str, Named] = {}
    for h in step.states:
        for match in (as_lstm, as_gru, as_rnn):
            try:
                found[h] = match(step, values, h)
                break
            except (Unknown, ValueError, IndexError):  # it is of another form
                continue
    for each in found.values():
        masks = {step.masks.get(state, ()) for state in each.states}
        if len(masks) > 1:
            raise Unknown
        each.mask = masks.pop()
    states = [state for each in found.values() for state in each.states]
    if sorted(states) != sorted(step.states):
        raise Unknown
    ordered: list[Named] = []
    while len(ordered) < len(found):
        given = {("after", each.states[0]) for each in ordered}
        ready = [n for n in found.values() if n not in ordered and (n.source[0] == "sequence" or n.source in given)]
        if not ready:
            raise Unknown
        ordered += ready
    return ordered


@dataclass
class Mask:
    """Where the sequences of a batch go on."""

    steps: str
    """bool ``[T, B]``"""
    lengths: Value


def mask_of(graph: GraphWriter, named: Named, x: Value) -> Mask | None:
    """Raises Unknown for a mask that does not follow from lengths."""
    if not named.mask:
        return None
    kind, name = named.mask
    value = named.values[name]
    if kind == "sequence":
        if value.lengths is None:
            raise Unknown
        return Mask(value.name, value.lengths)
    steps = graph.unsqueeze(graph.count(graph.size(x.name, 0), value.dtype), 1)
    return Mask(graph.emit("Less", steps, value.name), value)


@dataclass
class Written:
    """What an operator of ONNX gives."""

    held: str
    """h of all steps ``[T, B, H]``, which stays as it is where the mask is false"""
    zero: str
    """the same with 0 where the mask is false"""
    last: list[str]
    """each state at the end, ``[1, B, H]``"""


def write_named(graph: GraphWriter, named: Named, x: str, initial: Sequence[Value], mask: Mask | None) -> Written:
    """Adds the operator.

    Where the mask is false ONNX gives 0, and for a sequence of no steps runtimes give 0 as the state at the end. Here
    states stay as they are.
    """
    hint = f"{graph.hint}.{named.op_type}"
    arrays = zip("WRBP", (named.w, named.r, named.b, named.p))
    weights = [
        graph.weights(array, f"{hint}.{letter}", named.origins[letter]) for letter, array in arrays if array is not None
    ]
    lengths = "" if mask is None else int32_of(graph, mask.lengths)
    inputs = [x, *weights[:3], lengths, *(value.name for value in initial), *weights[3:]]
    size = named.r.shape[-1]
    y, *last = graph.emit_all(named.op_type, inputs, 1 + len(named.states), hidden_size=size, **named.attributes)
    h = graph.squeeze(y, 1)
    if mask is None:
        return Written(h, h, last)
    has_steps = graph.emit("Greater", mask.lengths.name, graph.scalar(0, mask.lengths.dtype))
    has_steps = graph.unsqueeze(has_steps, 0, 2)
    last = [graph.emit("Where", has_steps, row, value.name) for row, value in zip(last, initial)]
    return Written(graph.emit("Where", graph.unsqueeze(mask.steps, 2), h, last[0]), h, last)


def int32_of(graph: GraphWriter, lengths: Value) -> str:
    """Lengths as the operators take them."""
    return lengths.name if lengths.dtype == "int32" else graph.cast(lengths.name, "int32")
