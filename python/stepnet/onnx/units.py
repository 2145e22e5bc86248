"""LSTM, GRU and RNN of ONNX, with every attribute.

The equations are those of https://onnx.ai/onnx/operators (LSTM, GRU, RNN). Where these leave something open, it is as
in onnxruntime: what ``clip`` bounds, and which activations take numbers from ``activation_alpha`` and
``activation_beta``.
"""

from __future__ import annotations

import math
from typing import Callable, Sequence

from .loops import Loop
from .netdef import single
from .nodes import node
from .scope import Node, Unsupported, fits, shape_text

ACTIVATIONS: dict[str, tuple[float | None, ...]] = {
    "affine": (None, None),
    "elu": (1.0,),
    "hardsigmoid": (0.2, 0.5),
    "leakyrelu": (0.01,),
    "relu": (),
    "scaledtanh": (None, None),
    "sigmoid": (),
    "softplus": (),
    "softsign": (),
    "tanh": (),
    "thresholdedrelu": (None,),
}
"""The activations, with alpha and beta where nothing is said; None where runtimes differ in what they are then."""

DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


class Activation:
    """A function of the step, behind the bound that clip is, infinite for none."""

    def __init__(self, unit: Unit, name: str, numbers: Sequence[float], clip: float) -> None:
        self.unit = unit
        self.name = name
        self.numbers = numbers
        self.clip = clip

    def __call__(self, x: str) -> str:
        step, dtype = self.unit.loop.step, self.unit.inputs.dtype
        emit = step.emit
        if self.clip < math.inf:
            x = emit("Clip", x, min=-self.clip, max=self.clip)
        alpha, beta = (*self.numbers, 0.0, 0.0)[:2]
        if self.name == "affine":
            return emit("Add", emit("Scale", x, scale=alpha), step.number(beta, dtype))
        if self.name == "scaledtanh":
            return emit("Scale", emit("Tanh", emit("Scale", x, scale=beta)), scale=alpha)
        if self.name == "thresholdedrelu":
            return emit("Where", emit("GE", x, step.number(alpha, dtype)), x, step.number(0, dtype))
        if self.name == "hardsigmoid":
            return emit("HardSigmoid", x, alpha=alpha, beta=beta)
        if self.name in ("elu", "leakyrelu"):
            return emit({"elu": "Elu", "leakyrelu": "LeakyRelu"}[self.name], x, alpha=alpha)
        return emit(self.name.capitalize(), x)

    def unbounded(self) -> Activation:
        return Activation(self.unit, self.name, self.numbers, clip=math.inf)


def activations_of(n: Node, defaults: Sequence[str], count: int) -> list[tuple[str, tuple[float, ...]]]:
    """Name and numbers of each activation of all directions. Those that take a number take the next one of the list."""
    names = n.strings("activations", [*defaults] * count)
    if len(names) != len(defaults) * count:
        raise Unsupported(f"it has {len(names)} activations; {len(defaults)} for each of {count} directions are needed")
    given = [list(n.attribute(f"activation_{letter}") or []) for letter in ("alpha", "beta")]
    found = []
    for given_name in names:
        name = given_name.lower()
        if name not in ACTIVATIONS:
            raise Unsupported(f"it has the activation {given_name!r}; those that are read are {', '.join(ACTIVATIONS)}")
        numbers = [left.pop(0) if left else default for left, default in zip(given, ACTIVATIONS[name])]
        if None in numbers:
            raise Unsupported(
                f"activation_alpha or activation_beta lacks a number for {given_name}, whose default differs between "
                "runtimes"
            )
        found.append((name, tuple(single(number) for number in numbers if number is not None)))
    if any(given):
        raise Unsupported("it has more numbers in activation_alpha or activation_beta than its activations take")
    return found


def flag(n: Node, name: str) -> bool:
    """An attribute that says yes or no."""
    value = n.attribute(name, 0)
    if value not in (0, 1):
        raise Unsupported(f"its {name} is {value}; it must be 0 or 1")
    return bool(value)


class Unit:
    """One direction of a node: its weights, and the loop over its steps."""

    def __init__(self, n: Node, direction: int, is_reverse: bool, inputs: Inputs) -> None:
        self.n = n
        self.direction = direction
        self.is_reverse = is_reverse
        self.inputs = inputs
        self.x = inputs.turned(n, inputs.x) if is_reverse else inputs.x
        self.loop = Loop(n.net, self.x)
        self.x_t = self.loop.link(self.x, 0)
        self.mask = self.loop.sequence(inputs.mask) if inputs.mask else ""
        if self.mask:  # NaN behind a length would be NaN in all gradients
            self.x_t = self.masked(self.x_t)
        self.states: list[str] = []

    def masked(self, blob: str) -> str:
        """A blob of the step, 0 for sequences that have ended."""
        zeros = self.loop.step.emit("ConstantFill", blob, value=0.0)
        return self.loop.step.emit("Where", self.mask, blob, zeros, broadcast_on_rows=1)

    def rows(self, i: int, begin: int, end: int) -> str:
        """Rows ``[begin, end)``, in units of H, of an input of this direction, behind a dimension of 1."""
        d, begin, end = self.direction, begin * self.inputs.size, end * self.inputs.size
        if self.inputs.rows[i] == (1, end - begin):
            return self.inputs.weights[i]
        return self.n.emit("Slice", self.inputs.weights[i], starts=[d, begin], ends=[d + 1, end])

    def vector(self, i: int, begin: int, end: int) -> str:
        return self.n.net.squeezed(self.rows(i, begin, end), [0])

    def bias(self, begin: int, end: int) -> str:
        """Rows of B, for the loop."""
        return self.loop.captured(self.vector(3, begin, end))

    def sum_of_biases(self, gates: int) -> str:
        """Those of both products."""
        return self.loop.captured(self.n.emit("Add", self.vector(3, 0, gates), self.vector(3, gates, 2 * gates)))

    def state(self, i: int) -> tuple[str, str]:
        """A state that starts as an input ``[directions, B, H]``, or as zeros."""
        if not self.n.has(i):
            dtype = {"float32": 1, "float64": 13}.get(self.inputs.dtype, 0)
            return self.loop.state(self.n.emit("ConstantFill", shape=[1, 1, self.inputs.size], value=0.0, dtype=dtype))
        initial, d = self.inputs.states[i], self.direction
        if self.inputs.directions == 1:
            return self.loop.state(initial)
        return self.loop.state(self.n.emit("Slice", initial, starts=[d], ends=[d + 1]))

    def product(self, x: str, i: int, begin: int, end: int, bias: str = "") -> str:
        w = self.loop.captured(self.rows(i, begin, end))
        return self.loop.step.emit("FC", x, w, *([bias] if bias else []), axis=-1, axis_w=2)

    def hand_on(self, state: str, before: str, after: str) -> str:
        """Makes ``after`` the state, where the sequence goes on."""
        if self.mask:
            after = self.loop.step.emit("Where", self.mask, after, before, broadcast_on_rows=1)
        self.states.append(state)
        return self.loop.next_row(state, after)

    def outputs(self, h: str) -> list[str]:
        """Adds the loop, and gives what the node has outputs for: h of all steps, and each state at the end."""
        given = []
        for i in range(1 + len(self.states)):
            if not self.n.gives(i):
                given.append("")
            elif i > 0:
                given.append(self.loop.last_row(self.states[i - 1]))
            elif not self.mask:
                given.append(self.loop.every_row(self.states[0]))
            else:
                given.append(self.loop.output(self.masked(h)))
        if not any(given):
            self.loop.last_row(self.states[0])
        self.loop.add()
        if given[0] and self.is_reverse:
            given[0] = self.inputs.turned(self.n, given[0])
        return [given[0], *(self.without_empty(row) for row in given[1:])]

    def without_empty(self, row: str) -> str:
        """A state at the end, which is 0 for sequences of no steps, as in onnxruntime."""
        if not row or not self.mask:
            return row
        n, inputs = self.n, self.inputs
        has_steps = n.emit("LT", n.number(0, n.dtype(4)), inputs.lengths)
        zeros = n.emit("ConstantFill", row, value=0.0)
        return n.emit("Where", n.emit("ExpandDims", has_steps, dims=[0]), row, zeros, broadcast_on_rows=1)


class Inputs:
    """What all directions of a node read."""

    def __init__(self, n: Node, num_gates: int, directions: int) -> None:
        self.directions = directions
        self.is_batch_major = layout = flag(n, "layout")
        self.dtype = n.dtype(0)
        self.size = hidden_size(n, num_gates, directions)
        x_shape = n.scope.shape(n.tensors[0])
        x = self.fitted(n, 0, "X", [None, None, None])
        batch, features = (x_shape[0 if layout else 1], x_shape[2]) if x_shape is not None else (None, None)
        rows, columns = num_gates * self.size, self.size
        self.rows = {i: (directions, count) for i, count in ((1, rows), (2, rows), (3, 2 * rows), (7, 3 * columns))}
        """How many each of W, R, B and P has."""
        self.weights = {1: self.fitted(n, 1, "W", [*self.rows[1], features])}
        self.weights[2] = self.fitted(n, 2, "R", [*self.rows[2], columns])
        self.weights[3] = self.fitted(n, 3, "B", self.rows[3])
        self.weights[7] = self.fitted(n, 7, "P", self.rows[7])
        self.x = self.time_major(n, x)
        of_state = [batch, directions, columns] if layout else [directions, batch, columns]
        self.states = {}
        for i, name in ((5, "initial_h"), (6, "initial_c")):
            initial = self.fitted(n, i, name, of_state)
            if initial:
                initial, shape = self.time_major(n, initial), n.scope.shape(n.tensors[i])
                is_known = batch is not None and shape is not None and shape[0 if layout else 1] == batch
                self.states[i] = initial if is_known else self.of_batch(n, initial, directions)
        check_shape(n, 4, "sequence_lens", [batch])  # StepMask checks it in each run
        self.lengths = n.blob(4) if n.has(4) else ""
        self.mask = n.emit("StepMask", self.x, self.lengths) if self.lengths else ""

    def fitted(self, n: Node, i: int, name: str, sizes: Sequence[int | None]) -> str:
        """The blob of an input of these sizes, None for any; what is not known here is checked in each run."""
        shape = check_shape(n, i, name, sizes)
        if not n.has(i):
            return ""
        blob = n.blob(i)
        if shape is None:  # an error for another rank
            blob = n.emit("Transpose", blob, axes=list(range(len(sizes))))
        for axis, size in enumerate(sizes):
            if size is not None and (shape is None or shape[axis] is None):
                blob = self.of_size(n, blob, axis, size, f"{name}, which must be {shape_text(sizes)}", len(sizes))
        return blob

    def of_size(self, n: Node, blob: str, axis: int, size: int, name: str, rank: int) -> str:
        """A blob that has this size: under a shape in which only it differs, so that another one is an error."""
        checked = n.net.names.unique(name)
        n.net.add("Reshape", [blob], [checked], shape=[size if each == axis else 0 for each in range(rank)])
        return checked

    def of_batch(self, n: Node, blob: str, directions: int) -> str:
        """A state that has a row for each of the batch, as one with one row would be repeated."""
        sizes = n.emit("Shape", self.x, axes=[1])
        like = n.emit("ConstantFill", sizes, input_as_shape=1, extra_shape=[directions, self.size], value=0.0)
        return n.emit("ResizeLike", blob, n.emit("Transpose", like, axes=[1, 0, 2]))

    def time_major(self, n: Node, blob: str) -> str:
        """``[T, B, …]`` of ``[B, T, …]``."""
        return n.emit("Transpose", blob, axes=[1, 0, 2]) if self.is_batch_major else blob

    def turned(self, n: Node, blob: str) -> str:
        """Each sequence from its last step to its first."""
        return n.emit("ReversePackedSegs", blob, *([self.lengths] if self.lengths else []))


def hidden_size(n: Node, num_gates: int, directions: int) -> int:
    """What the attribute says, or the third input."""
    shape = n.shape(2)
    rows = shape[1] if len(shape) == 3 else None
    size = n.attribute("hidden_size", None if rows is None else rows // num_gates)
    if size is None:
        raise Unsupported(f"it has no hidden_size, and R, its third input, is {shape_text(shape)}")
    if size < 1:
        raise Unsupported(f"its hidden_size is {size}; it must be at least 1")
    if rows is not None and rows != num_gates * size:
        raise Unsupported(f"its hidden_size is {size}; R, its third input, has {rows} rows; it must have {num_gates * size}")
    return int(size)


def check_shape(n: Node, i: int, name: str, sizes: Sequence[int | None]) -> list[int | None] | None:
    """The shape of an input, as far as it is known, which has these sizes, None for any."""
    shape = n.scope.shape(n.tensors[i]) if n.has(i) else None
    if shape is None:
        return None
    if not fits(shape, sizes):
        raise Unsupported(f"{name}, its input {n.tensors[i]!r}, is {shape_text(shape)}; it must be {shape_text(sizes)}")
    return shape


def clip_of(n: Node) -> float:
    """The bound of the sums; infinite for none. In onnxruntime that of an RNN may be 0."""
    clip = float(n.attribute("clip", math.inf))
    if clip > 0 or (clip == 0 and n.type == "RNN"):
        return clip
    raise Unsupported(f"its clip is {clip}; it must be {'at least' if n.type == 'RNN' else 'greater than'} 0")


Step = Callable[[Unit, Sequence[Activation]], str]


def unit(n: Node, num_gates: int, defaults: Sequence[str], step: Step) -> Sequence[str]:
    """A node: a loop for each direction, whose step ``step`` adds, which gives the blob of the new h."""
    direction = n.attribute("direction", "forward")
    if direction not in DIRECTIONS:
        raise Unsupported(f"its direction is {direction!r}; it must be one of {', '.join(DIRECTIONS)}")
    clip, directions = clip_of(n), DIRECTIONS[direction]
    inputs, per_direction = Inputs(n, num_gates, len(directions)), []
    for d, is_reverse in enumerate(directions):
        each = Unit(n, d, is_reverse, inputs)
        found = activations_of(n, defaults, len(directions))[d * len(defaults) : (d + 1) * len(defaults)]
        h = step(each, [Activation(each, name, numbers, clip) for name, numbers in found])
        per_direction.append(each.outputs(h))
    outputs = []
    for i, parts in enumerate(zip(*per_direction)):
        outputs.append(side_by_side(n, inputs, parts, has_steps=i == 0) if n.gives(i) else "")
    return outputs


def side_by_side(n: Node, inputs: Inputs, parts: Sequence[str], has_steps: bool) -> str:
    """Y ``[T, directions, B, H]``, or a state ``[directions, B, H]``; with layout 1 the batch is first."""
    if has_steps:
        parts = [n.net.expanded(part, [1]) for part in parts]
    y = parts[0] if len(parts) == 1 else n.net.emit_all("Concat", parts, 2, axis=int(has_steps))[0]
    if not inputs.is_batch_major:
        return y
    return n.emit("Transpose", y, axes=[2, 0, 1, 3] if has_steps else [1, 0, 2])


@node("RNN")
def rnn(n: Node) -> Sequence[str]:
    def step(u: Unit, activations: Sequence[Activation]) -> str:
        emit = u.loop.step.emit
        state, h = u.state(5)
        bias = u.sum_of_biases(1) if n.has(3) else ""
        total = emit("Add", u.product(u.x_t, 1, 0, 1, bias), u.product(h, 2, 0, 1))
        return u.hand_on(state, h, activations[0](total))

    return unit(n, 1, ["Tanh"], step)


@node("GRU")
def gru(n: Node) -> Sequence[str]:
    resets_after = flag(n, "linear_before_reset")

    def step(u: Unit, activations: Sequence[Activation]) -> str:
        net, (f, g) = u.loop.step, activations
        state, h = u.state(5)
        of_input = of_state = ""
        if n.has(3):
            of_input, of_state = (u.bias(0, 3), u.bias(3, 6)) if resets_after else (u.sum_of_biases(3), "")
        size = u.inputs.size
        x_zr, x_h = net.emit_all("Split", [u.product(u.x_t, 1, 0, 3, of_input)], 2, axis=-1, split=[2 * size, size])
        if resets_after:
            product = u.product(h, 2, 0, 3, of_state)
            h_zr, h_h = net.emit_all("Split", [product], 2, axis=-1, split=[2 * size, size])
        else:
            h_zr, h_h = u.product(h, 2, 0, 2), ""
        z, r = net.emit_all("Split", [net.emit("Add", x_zr, h_zr)], 2, axis=-1)
        z, r = f(z), f(r)
        past = net.emit("Mul", r, h_h) if resets_after else u.product(net.emit("Mul", r, h), 2, 2, 3)
        new = g(net.emit("Add", x_h, past))
        taken = net.emit("Mul", net.emit("Sub", net.number(1, u.inputs.dtype), z), new)
        return u.hand_on(state, h, net.emit("Add", taken, net.emit("Mul", z, h)))

    return unit(n, 3, ["Sigmoid", "Tanh"], step)


@node("LSTM")
def lstm(n: Node) -> Sequence[str]:
    is_coupled = flag(n, "input_forget")

    def step(u: Unit, activations: Sequence[Activation]) -> str:
        net, (f, g, h_of) = u.loop.step, activations
        state_h, h = u.state(5)
        state_c, c = u.state(6)
        bias = u.sum_of_biases(4) if n.has(3) else ""
        total = net.emit("Add", u.product(u.x_t, 1, 0, 4, bias), u.product(h, 2, 0, 4))
        i, o, forget, new = net.emit_all("Split", [total], 4, axis=-1)

        def peephole(place: int) -> str:
            return u.loop.captured(u.vector(7, place, place + 1))

        def with_cell(gate: str, cell: str, place: int) -> str:
            """The gate's sum with what its peephole sees."""
            return net.emit("Add", gate, net.emit("Mul", cell, peephole(place))) if n.has(7) else gate

        i = f(with_cell(i, c, 0))
        forget = net.emit("Sub", net.number(1, u.inputs.dtype), i) if is_coupled else f(with_cell(forget, c, 2))
        new_c = net.emit("Add", net.emit("Mul", forget, c), net.emit("Mul", i, g(new)))
        o = f(with_cell(o, new_c, 1))
        next_h = u.hand_on(state_h, h, net.emit("Mul", o, h_of.unbounded()(new_c)))  # clip bounds the gates alone
        u.hand_on(state_c, c, new_c)
        return next_h

    return unit(n, 4, ["Sigmoid", "Tanh", "Tanh"], step)
