"""``Scan`` of opset 8, whose inputs are batches, ``[B, T, …]``, and whose sequences may have lengths.

Its body sees one sequence, without the batch. So it becomes one loop over the steps of all of them, one behind the other,
in which every state starts anew with each sequence:

    for b: s = init[b], for t < lengths[b]: s = body(s, x[b, t])
    for (b, t) with t < lengths[b]: s = body(init[b] if t = 0, otherwise s; x[b, t])

What stands behind a length is no step of the loop: the body may divide by it, or look rows up by it.
"""

from __future__ import annotations

from typing import Sequence

from .loops import Loop
from .moves import filled_to
from .scan_node import body_of, check_list, check_next, missing, steps_of, of_scanned, rows_of_outputs, set_type
from .scope import Node, Scope, Unsupported


def scan_of_batch(n: Node) -> Sequence[str]:
    from .loader import read_nodes  # which reads nodes, this one included

    body, num_states = body_of(n, len(n.tensors) - 1)
    of_states, of_sequences = range(1, 1 + num_states), range(1 + num_states, len(n.tensors))
    check_list(n, "directions", "input", len(of_sequences), is_direction=True)
    check_ranks(n, of_states, 1, "[B, …]")
    check_ranks(n, of_sequences, 2, "[B, T, …]")
    batch = Batch(n, of_states, of_sequences)
    sequences = [batch.scanned(i, k) for k, i in enumerate(of_sequences)]
    loop = Loop(n.net, steps_of(n, sequences[0]))
    inner = Scope(n.scope.model, loop.step, body, n.scope)
    starts = loop.sequence(batch.rows_of(batch.starts, 2)) if num_states else ""
    states = [State(loop, batch, i, starts) for i in of_states]
    for state, info in zip(states, body.input):
        inner.bind(info.name, state.before)
        set_type(inner, info, n.tensors[state.i], n.dtype(state.i), n.shape(state.i)[1:])
    for i, sequence, info in zip(of_sequences, sequences, body.input[num_states:]):
        inner.bind(info.name, loop.item(sequence))
        set_type(inner, info, f"{n.tensors[i]} at a step", n.dtype(i), n.shape(i)[2:])
    read_nodes(inner)
    for state, info in zip(states, body.output):
        check_next(inner, info.name, n.dtype(state.i), n.shape(state.i)[1:])
        state.hand_on(inner.blob(info.name))
    stacked = [info.name for info in body.output[num_states:]]
    ranks = [rank_of(inner, name) for name in stacked]
    rows = rows_of_outputs(n, loop, inner, stacked)
    for blob in inner.captured:
        loop.captured(blob)
    loop.add()
    every = [n.net.squeezed(blob, ones) for blob, ones in rows]
    return [*(state.last() for state in states), *(batch.sequences_of(blob, rank) for blob, rank in zip(every, ranks))]


def check_ranks(n: Node, inputs: Sequence[int], rank: int, what: str) -> None:
    for i in inputs:
        if n.rank(i) < rank:
            raise Unsupported(f"its input {n.tensors[i]!r} has {n.rank(i)} dimensions; it must be {what}")


def rank_of(body: Scope, name: str) -> int:
    shape = body.shape(name)
    if shape is None:
        raise Unsupported(f'the rank of "{name}", which its body gives, is not known')
    return len(shape)


def with_sizes_of(n: Node, sizes: str, blob: str, axes: Sequence[int]) -> str:
    """Sizes, and behind them some of a blob."""
    return n.net.emit_all("Concat", [sizes, n.emit("Shape", blob, axes=[*axes])], 2, axis=0)[0] if axes else sizes


class Batch:
    """The sequences of a node, ``[B, T, …]``, and the rows of their steps, ``[N, …]``, one sequence behind the other."""

    def __init__(self, n: Node, of_states: Sequence[int], of_sequences: Sequence[int]) -> None:
        self.n = n
        self.sequence = n.blob(of_sequences[0])
        steps = n.emit("RangeFill", n.emit("Shape", self.sequence, axes=[1]), input_as_shape=1)
        zeros = self.zeros([0, *of_states] if n.has(0) else of_states, of_sequences)
        self.starts = n.emit("EQ", n.emit("ExpandDims", steps, dims=[0]), zeros)
        """``[B, T]``: whether it is the first step of a sequence."""
        self.lengths = n.blob(0) if n.has(0) else ""
        self.counts = ""
        """The lengths as the operators of rows take them, which has been checked: int32 ``[B]``."""
        if self.lengths:
            mask = n.emit("StepMask", self.turned(self.sequence, n.rank(of_sequences[0])), self.lengths)
            counts = n.emit("ReduceSum", n.emit("Cast", mask, to="double"), axes=[0], keepdims=0)
            self.counts = n.emit("Cast", counts, to="int32")

    def zeros(self, of_batch: Sequence[int], of_sequences: Sequence[int]) -> str:
        """``[B, T]``, of inputs ``[B, …]`` and ``[B, T, …]``: where their sizes differ, the run is an error that names them."""
        each = [self.zeros_of(i, [0, 1]) for i in of_sequences]
        steps = self.named(of_sequences[0], "[B, T]")
        self.n.net.add("ReduceSum", [self.n.net.emit_all("Concat", each, 2, axis=2)[0]], [steps], axes=[2], keepdims=0)
        if not of_batch:
            return steps
        columns = [self.zeros_of(i, [0]) for i in of_batch]
        both = self.n.net.emit_all("Concat", [*columns, steps], 2, axis=1)[0]
        return self.n.emit("Slice", both, starts=[0, len(columns)], ends=[-1, -1])

    def zeros_of(self, i: int, axes: Sequence[int]) -> str:
        """Of the first sizes of an input, and one of 1."""
        zeros = self.named(i, "[B, T, 1]" if len(axes) > 1 else "[B, 1]")
        sizes = self.n.emit("Shape", self.n.blob(i), axes=axes)
        self.n.net.add("ConstantFill", [sizes], [zeros], input_as_shape=1, extra_shape=[1], value=0.0)
        return zeros

    def named(self, i: int, sizes: str) -> str:
        """A name for what an error may show of an input."""
        return self.n.net.names.unique(f"{self.n.tensors[i]} as {sizes}")

    def rows_of(self, blob: str, rank: int) -> str:
        """``[N, …]`` of ``[B, T, …]``."""
        n = self.n
        if self.counts:
            return n.emit("UnpackRNNSequence", self.turned(blob, rank), self.counts)
        count = n.emit("Mul", n.emit("Shape", blob, axes=[0]), n.emit("Shape", blob, axes=[1]))
        return n.emit("Reshape", blob, with_sizes_of(n, count, blob, range(2, rank)))

    def sequences_of(self, rows: str, rank: int) -> str:
        """``[B, T, …]`` of rows whose items have this rank; 0 where a sequence has no such step."""
        n, axes = self.n, [1, 0] if self.counts else [0, 1]
        sizes = with_sizes_of(n, n.emit("Shape", self.sequence, axes=axes), rows, range(1, 1 + rank))
        if not self.counts:
            return n.emit("Reshape", rows, sizes)
        like = n.emit("ConstantFill", sizes, input_as_shape=1, value=0.0)
        return self.turned(n.emit("PackRNNSequence", rows, self.counts, like), 2 + rank)

    def turned(self, blob: str, rank: int) -> str:
        """``[T, B, …]`` of ``[B, T, …]``, and that of the other."""
        return self.n.emit("Transpose", blob, axes=[1, 0, *range(2, rank)])

    def scanned(self, i: int, k: int) -> str:
        """The rows of a scanned input, in the order in which they run."""
        blob, rank = self.n.blob(i), self.n.rank(i)
        if of_scanned(self.n, "directions", k):
            lengths = [self.lengths] if self.lengths else []
            blob = self.turned(self.n.emit("ReversePackedSegs", self.turned(blob, rank), *lengths), rank)
        return self.rows_of(blob, rank)

    def last_of(self, blob: str, rank: int) -> str:
        """``[B, …]`` of ``[B, 1 + T, …]``: what stands behind the last step of each sequence."""
        n = self.n
        if not self.counts:
            return n.emit("Squeeze", n.emit("Slice", blob, starts=[0, -2], ends=[-1, -1]), dims=[1])
        behind = n.emit("Add", self.counts, n.number(1, "int32"))
        from_last = n.emit("ReversePackedSegs", self.turned(blob, rank), behind)
        return n.emit("Squeeze", n.emit("Slice", from_last, starts=[0], ends=[1]), dims=[0])


class State:
    """A state of the loop, which starts with each sequence as the node's input ``i``."""

    def __init__(self, loop: Loop, batch: Batch, i: int, starts: str) -> None:
        n = batch.n
        self.n, self.loop, self.batch, self.i = n, loop, batch, i
        self.rank = n.rank(i) - 1
        """In the body."""
        self.ones = list(range(1, 1 + missing(self.rank)))
        """The dimensions of 1 that rows of the loop have more."""
        sizes = with_sizes_of(n, n.fixed([1, *(1 for _ in self.ones)]), n.blob(i), range(1, 1 + self.rank))
        self.name, row = loop.state(filled_to(n, sizes, 0, n.dtype(i)))  # which no step reads
        self.initial = n.emit("ExpandDims", n.blob(i), dims=[1])
        is_start = n.emit("ExpandDims", batch.starts, dims=[*range(2, 2 + self.rank)]) if self.rank else batch.starts
        of_steps = n.emit("Where", is_start, self.initial, self.initial)
        initial = loop.sequence(batch.rows_of(of_steps, n.rank(i) + 1))
        carried, initial = loop.step.squeezed(row, [0, *self.ones]), loop.step.squeezed(initial, [0])
        is_start = starts if self.rank else loop.step.squeezed(starts, [0])
        self.before = loop.step.emit("Where", is_start, initial, carried)

    def hand_on(self, after: str) -> None:
        self.loop.next_row(self.name, self.loop.step.expanded(after, [0, *self.ones]))
        self.rows = self.loop.every_row(self.name)

    def last(self) -> str:
        """Where each sequence ends: as it started, where there are no steps."""
        n = self.n
        rows = n.net.squeezed(self.rows, self.ones)
        both = n.net.emit_all("Concat", [self.initial, self.batch.sequences_of(rows, self.rank)], 2, axis=1)[0]
        return self.batch.last_of(both, self.rank + 2)
