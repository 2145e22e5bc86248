"""A RecurrentNetwork as ``Scan``: states are its loop-carried tensors, linked sequences its scanned ones.

What a step does with the rows that links show is said in docs/authoring.md, "Links". A state with L initial rows is
carried as its last L rows, ``[L, B, …]``; step t appends row t + L.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Iterator

from .. import _stepnet
from .call import Refusal
from .expressions import Step, Unknown
from .graph import GraphWriter, Value
from .named import Named, mask_of, recognized, write_named
from .nets import Blobs, value_of, write_operators


@dataclass
class State:
    name: str
    initial: Value
    """``[L, B, …]`` with all of the batch."""
    carried: Value
    """In the body: its last L rows."""
    new_row: Value | None = None
    """In the body: what the step has written, ``[1, B, …]``."""

    @property
    def rows(self) -> int:
        return self.initial.shape[0]


@dataclass
class Scanned:
    """A tensor of which the body sees an item a step."""

    outside: str
    inside: Value


class StepBlobs(Blobs):
    """The blobs of a step: what is linked, captured or written."""

    def __init__(self, loop: ScanWriter) -> None:
        super().__init__()
        self._loop = loop

    def __missing__(self, name: str) -> Value:
        value = self._loop.first_value(name)
        dict.__setitem__(self, name, value)
        return value

    def __setitem__(self, name: str, value: Value) -> None:
        dict.__setitem__(self, name, value)
        self._loop.written(name, value)


class ScanWriter:
    """One RecurrentNetwork on its way into a ``Scan``."""

    def __init__(self, graph: GraphWriter, op: _stepnet.Operator, outer: Blobs, net: str) -> None:
        self.graph = graph
        self.op = op
        self.net = net
        self.parts = op.recurrent()
        self.inputs = [value_of(outer, name) for name in op.inputs]
        self.by_name = dict(zip(op.inputs, self.inputs))
        self.body = GraphWriter(graph)
        self.scanned: list[Scanned] = []
        self.items: dict[tuple[str, int], Value] = {}
        self.steps = graph.size(self.inputs[0].name, 0)
        self.states = {name: self.make_state(name, self.inputs[i]) for name, i in self.parts["states"]}
        self.blobs = StepBlobs(self)

    def links_of(self, blob: str) -> Iterator[tuple[str, int, int]]:
        """(external, offset, window) of each link of a blob of the step."""
        return ((external, *rows) for internal, external, *rows in self.parts["links"] if internal == blob)

    # States.

    def make_state(self, name: str, given: Value) -> State:
        initial = self.with_batch(given)
        carried = Value(self.body, self.body.unique(name), initial.dtype, initial.shape)
        self.body.inputs.append(self.body.info(carried.name, carried.dtype, carried.shape))
        return State(name, initial, carried)

    def with_batch(self, given: Value) -> Value:
        """An initial state, ``[D]``, ``[B, D]`` or ``[L, B, …]``, as ``[L, B, …]``: one row for all is repeated."""
        graph, sequence = self.graph, self.inputs[0]
        name = graph.unsqueeze(given.name, *range(max(0, 3 - given.rank)))
        shape = [1] * (3 - given.rank) + list(given.shape)
        if sequence.rank >= 2 and shape[1] == 1:
            batch = graph.size(sequence.name, 1)
            sizes = [graph.ints(1), batch, graph.ints(*([1] * (len(shape) - 2)))]
            name = graph.emit("Expand", name, graph.concat(sizes))
            shape[1] = sequence.shape[1]
        return Value(graph, name, given.dtype, shape)

    # What the step reads.

    def first_value(self, name: str) -> Value:
        """A blob that is read before the step has written it."""
        for external, offset, window in self.links_of(name):
            if external in self.states:
                rows = self.rows_of_state(self.states[external], offset, window)
            else:
                rows = self.rows_of_sequence(external, offset, window)
            if rows is not None:
                return rows
        if name == self.parts["timestep"]:
            return self.timestep(name)
        if name in self.by_name:
            return self.by_name[name]
        raise Refusal(f'the step reads "{name}", which nothing has written')

    def rows_of_state(self, state: State, offset: int, window: int) -> Value | None:
        body, end = self.body, offset + window
        if end > state.rows + 1:
            raise Refusal(f'a link shows rows of the state "{state.name}" that later steps write')
        if end > state.rows and state.new_row is None:
            return None
        carried = state.carried
        if (offset, end) == (0, state.rows):
            return carried
        shape = (window, *carried.shape[1:])
        parts = []
        if offset < state.rows:
            parts.append(body.slice(carried.name, offset, min(end, state.rows)))
        if end > state.rows and state.new_row is not None:
            parts.append(state.new_row.name)
        return Value(body, body.concat(parts), carried.dtype, shape)

    def rows_of_sequence(self, name: str, offset: int, window: int) -> Value:
        if name not in self.by_name:
            raise Refusal(f'"{name}" is linked and is neither a state nor an input')
        outside, body = self.by_name[name], self.body
        rows = []
        for row in range(offset, offset + window):
            if (name, row) not in self.items:
                self.items[name, row] = self.scan_item(outside, row)
            rows.append(body.unsqueeze(self.items[name, row].name, 0))
        return Value(body, body.concat(rows), outside.dtype, (window, *outside.shape[1:]))

    def scan_item(self, outside: Value, row: int) -> Value:
        """The item ``row`` steps ahead of a sequence that may be longer than the loop."""
        graph, name = self.graph, outside.name
        if row > 0 or outside.shape[0] != self.inputs[0].shape[0]:
            start = graph.ints(row)
            name = graph.emit("Slice", name, start, graph.emit("Add", start, self.steps), graph.ints(0))
        inside = Value(self.body, self.body.unique(outside.name), outside.dtype, outside.shape[1:])
        self.scanned.append(Scanned(name, inside))
        return inside

    def timestep(self, name: str) -> Value:
        inside = Value(self.body, self.body.unique(name), "int32", (1,))
        numbers = self.graph.unsqueeze(self.graph.count(self.steps, "int32"), 1)
        self.scanned.append(Scanned(numbers, inside))
        return inside

    # What the step writes.

    def written(self, name: str, value: Value) -> None:
        """Notes what a blob that is linked has become."""
        for external, offset, window in self.links_of(name):
            if external not in self.states:
                raise Refusal(f'the step writes "{name}", which is linked to the input "{external}"')
            state = self.states[external]
            if (offset, window) != (state.rows, 1):
                raise Refusal(
                    f'the step writes "{name}", rows of the state "{external}" that earlier steps have written'
                )
            state.new_row = self.as_row(state, value)
            for other, other_external, *_ in self.parts["links"]:
                if other_external == external and other != name:
                    self.blobs.pop(other, None)  # it may show the row

    def as_row(self, state: State, value: Value) -> Value:
        """The value as ``[1, B, …]``: sizes of 1 may be missing."""
        shape = (1, *state.carried.shape[1:])
        if value.shape == shape:
            return value
        row = self.body.reshape_as(value.name, state.carried, 1)
        return Value(self.body, self.body.unsqueeze(row, 0), value.dtype, shape)

    def finish_step(self) -> None:
        """Rows that no operator writes are those of a blob that another link shows."""
        for state in self.states.values():
            if state.new_row is not None:
                continue
            for internal, external, offset, _ in self.parts["links"]:
                if external == state.name and offset == state.rows:
                    state.new_row = self.as_row(state, self.blobs[internal])
            if state.new_row is None:
                raise Refusal(f'no operator of the step writes the state "{state.name}"')


@dataclass
class Outputs:
    """What a ``Scan`` gives: the last rows of each state, then tensors of all steps."""

    last: dict[str, Value] = field(default_factory=dict)
    every: dict[str, Value] = field(default_factory=dict)


def write_loop(graph: GraphWriter, op: _stepnet.Operator, blobs: Blobs, wanted: set[str], net: str) -> None:
    loop = ScanWriter(graph, op, blobs, net)
    step_outputs = [pair for pair in loop.parts["step_outputs"] if pair[1] in wanted]
    aliases = [alias for alias in loop.parts["aliases"] if alias[1] in wanted]
    whole = [name for name in loop.states if name in wanted]
    needed = {state for state, _, offset in aliases if offset != -loop.states[state].rows}
    every = sorted(needed | set(whole))
    outputs = write_named_operators(loop, every, step_outputs)
    if outputs is None:
        write_step(loop, [blob for blob, _ in step_outputs])
        graph.hint = op.outputs[0]
        outputs = write_scan(loop, every, step_outputs)
    for _, output in step_outputs:
        blobs[output] = outputs.every[output]
    for name in whole:
        blobs[name] = rows_from(loop, outputs, name, 0)
    for name, output, offset in aliases:
        blobs[output] = rows_from(loop, outputs, name, offset)


def write_named_operators(
    loop: ScanWriter, every: list[str], step_outputs: list[tuple[str, str]]
) -> Outputs | None:
    """The loop as LSTM, GRU and RNN, where it is exactly that; onnxruntime has them in float alone."""
    floats = [value for value in loop.by_name.values() if value.dtype.startswith("float")]
    if any(value.dtype != "float32" for value in floats):
        return None
    step = Step(loop.parts, loop.by_name)
    try:
        found = recognized(step, {name: state.initial for name, state in loop.states.items()})
        if not {named.states[0] for named in found}.issuperset(every):
            return None
        zeros: dict[str, list[str]] = {}
        for blob, output in step_outputs:
            zeros.setdefault(state_with_zeros(step, blob, found), []).append(output)
        return outputs_of_named(loop, step, found, zeros)
    except Unknown:
        return None


def state_with_zeros(step: Step, blob: str, found: list[Named]) -> str:
    """The h that a blob of the step shows, with 0 where its sequence has ended. Raises Unknown for another blob."""
    for named in found:
        if named.mask and step.of(blob) == ("held", named.mask, ("after", named.states[0]), ("number", 0)):
            return named.states[0]
    raise Unknown


def outputs_of_named(loop: ScanWriter, step: Step, found: list[Named], zeros: dict[str, list[str]]) -> Outputs:
    """``zeros``: by state, outputs that show its h with 0 where its sequence has ended.

    Raises Unknown where shapes are others, or a mask is not one of lengths; nothing reads what was added then.
    """
    outputs = Outputs()
    for named in found:
        kind, name = named.source
        x = step.values[name] if kind == "sequence" else outputs.every[name]
        initial = [loop.states[state].initial for state in named.states]
        if x.rank != 3 or any(state.rank != 3 or state.shape[0] != 1 for state in initial):
            raise Unknown
        size = named.r.shape[-1]
        if x.shape[2] != named.w.shape[-1] or any(state.shape[1:] != (x.shape[1], size) for state in initial):
            raise Unknown  # the operators of the step say what does not fit
        if 0 in x.shape:  # onnxruntime 1.32 ends the process in some of these, and gives 0 for the last state in others
            raise Unknown
        written = write_named(loop.graph, named, x.name, initial, mask_of(loop.graph, named, x))
        shape = (loop.inputs[0].shape[0], *initial[0].shape[1:])
        outputs.every[named.states[0]] = Value(loop.graph, written.held, initial[0].dtype, shape)
        for output in zeros.get(named.states[0], ()):
            outputs.every[output] = Value(loop.graph, written.zero, initial[0].dtype, shape)
        for state, row, value in zip(named.states, written.last, initial):
            outputs.last[state] = Value(loop.graph, row, value.dtype, value.shape)
    return outputs


def write_step(loop: ScanWriter, step_outputs: list[str]) -> None:
    linked = [internal for internal, external, *_ in loop.parts["links"] if external in loop.states]
    write_operators(loop.body, loop.parts["step"], loop.blobs, step_outputs, f"{loop.net}, a step", linked)
    loop.finish_step()


def write_scan(loop: ScanWriter, every: list[str], step_outputs: list[tuple[str, str]]) -> Outputs:
    """Adds the ``Scan``, with the rows of the states ``every`` and the outputs of steps as tensors of all steps."""
    body, states = loop.body, list(loop.states.values())
    results = [add_output(body, last_rows(body, state)) for state in states]
    for name in every:
        results.append(add_output(body, item_of(body, new_row(loop.states[name]))))
    for blob, _ in step_outputs:
        results.append(add_output(body, item_of(body, loop.blobs[blob])))
    if not loop.scanned:  # a Scan has as many steps as what it reads: here the numbers of the steps, which no one looks at
        loop.timestep("timestep")
    for scanned in loop.scanned:
        body.inputs.append(body.info(scanned.inside.name, scanned.inside.dtype, scanned.inside.shape))
    inputs = [*(state.initial.name for state in states), *(scanned.outside for scanned in loop.scanned)]
    names = loop.graph.emit_all(
        "Scan", inputs, len(results), body=body.proto(f"{loop.net}_step"), num_scan_inputs=len(loop.scanned)
    )
    steps = loop.inputs[0].shape[0]
    outputs, values = Outputs(), []
    for number, (name, inside) in enumerate(zip(names, results)):
        shape = inside.shape if number < len(states) else (steps, *inside.shape)
        values.append(Value(loop.graph, name, inside.dtype, shape))
    outputs.last = dict(zip(loop.states, values))
    outputs.every = dict(zip([*every, *(output for _, output in step_outputs)], values[len(states) :]))
    return outputs


def add_output(body: GraphWriter, value: Value) -> Value:
    """Makes it an output of the body under a name of its own, as one that is an input or another output needs."""
    name = body.emit("Identity", value.name)
    body.outputs.append(body.info(name, value.dtype, value.shape))
    return Value(body, name, value.dtype, value.shape)


def new_row(state: State) -> Value:
    assert state.new_row is not None
    return state.new_row


def last_rows(body: GraphWriter, state: State) -> Value:
    """What the next step sees: all rows but the first, and the new one."""
    row = new_row(state)
    if state.rows == 1:
        return row
    name = body.concat([body.slice(state.carried.name, 1), row.name])
    return Value(body, name, row.dtype, state.carried.shape)


def item_of(body: GraphWriter, value: Value) -> Value:
    """``[1, B, …]`` of a step, which becomes ``[T, B, …]``, without its first dimension."""
    if value.rank == 0 or value.shape[0] != 1:
        return value
    return Value(body, body.squeeze(value.name, 0), value.dtype, value.shape[1:])


def rows_from(loop: ScanWriter, outputs: Outputs, name: str, offset: int) -> Value:
    """The rows of a state from ``offset``, counted from the end where it is negative."""
    graph, state = loop.graph, loop.states[name]
    if offset == -state.rows:
        return outputs.last[name]
    rows = outputs.every[name]
    shape: Any = rows.shape
    if offset == state.rows:
        return rows
    whole = graph.concat([state.initial.name, rows.name])
    count = rows.shape[0] + state.rows
    shape = (count - offset if offset >= 0 else -offset, *shape[1:])
    return Value(graph, graph.slice(whole, offset), rows.dtype, shape)
