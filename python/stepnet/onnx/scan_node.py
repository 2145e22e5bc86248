"""``Scan`` of ONNX as a RecurrentNetwork.

A state of any shape S is one of L = 1 rows ``[1, S…]``, of at least two more dimensions, where it is not ``[1, …]`` itself,
in a loop whose first input is ``[T]``: that has no batch, so that nothing is repeated for one.
"""

from __future__ import annotations

from typing import Sequence

import onnx

from .axes import check_axis
from .graph import names_read
from .late_shapes import late_shapes
from .loops import Loop
from .moves import filled_with, turned_around
from .nodes import node
from .scope import Node, Scope, Unsupported, fits, located, shape_text


@node("Scan")
def scan(n: Node) -> Sequence[str]:
    from .loader import read_nodes  # which reads nodes, this one included
    from .scan_of_batch import scan_of_batch

    if n.opset < 9:
        return scan_of_batch(n)
    body, num_states = body_of(n, len(n.tensors))
    num_scanned = len(n.tensors) - num_states
    for kind, count in (("input", num_scanned), ("output", len(body.output) - num_states)):
        check_list(n, f"scan_{kind}_axes", kind, count)
        check_list(n, f"scan_{kind}_directions", kind, count, is_direction=True)
    sequences = [scanned(n, num_states + k, k) for k in range(num_scanned)]
    read, steps = names_read(body.node), steps_of(n, sequences[0])
    for sequence, info in zip(sequences[1:], body.input[num_states + 1 :]):
        if info.name not in read:  # the loop compares the lengths of others
            steps = n.emit("ResizeLike", steps, steps_of(n, sequence))
    loop = Loop(n.net, steps)
    inner = Scope(n.scope.model, loop.step, body, n.scope)
    states = []
    for i in range(num_states):
        ones = ones_of_row(n.shape(i))
        state, row = loop.state(n.net.expanded(n.blob(i), ones))
        states.append((state, ones))
        inner.bind(body.input[i].name, loop.step.squeezed(row, ones))
        set_type(inner, body.input[i], n.tensors[i], n.dtype(i), n.shape(i))
    for k, (sequence, info) in enumerate(zip(sequences, body.input[num_states:])):
        inner.bind(info.name, loop.item(sequence))
        sizes = n.shape(num_states + k)
        del sizes[of_scanned(n, "scan_input_axes", k)]
        set_type(inner, info, f"{n.tensors[num_states + k]} at a step", n.dtype(num_states + k), sizes)
    read_nodes(inner)
    for i, info in enumerate(body.output[:num_states]):
        check_next(inner, info.name, n.dtype(i), n.shape(i))
    for (state, ones), info in zip(states, body.output):
        blob = inner.blob(info.name)
        # A row may be written without its first dimension, where its shape is known before the loop runs.
        is_row = ones == [0] and n.scope.outer is None
        loop.next_row(state, blob if is_row else loop.step.expanded(blob, ones), is_item=is_row)
    last = [loop.last_row(state) for state, _ in states]
    every = rows_of_outputs(n, loop, inner, [info.name for info in body.output[num_states:]])
    for blob in inner.captured:
        loop.captured(blob)
    loop.add()
    finals = [n.net.squeezed(row, ones) for row, (_, ones) in zip(last, states)]
    items = [n.net.squeezed(blob, ones) for blob, ones in every]
    return [
        *finals,
        *(stacked(n, blob, k, inner.shape(body.output[num_states + k].name)) for k, blob in enumerate(items)),
    ]


def body_of(n: Node, count: int) -> tuple[onnx.GraphProto, int]:
    """The body of a node of so many states and scanned inputs, and how many of them are states."""
    body, num_scanned = n.attribute("body"), n.attribute("num_scan_inputs")
    num_states = count - num_scanned
    if num_scanned < 1 or num_states < 0 or len(body.input) != count:
        raise Unsupported(f"it has {count} inputs, {num_scanned} of them scanned; its body has {len(body.input)}")
    if len(body.output) != len(n.outputs) or len(body.output) < num_states:
        raise Unsupported(f"it has {len(n.outputs)} outputs and {num_states} states; its body has {len(body.output)}")
    return body, num_states


def rows_of_outputs(n: Node, loop: Loop, body: Scope, names: Sequence[str]) -> list[tuple[str, list[int]]]:
    """What a body gives of all steps, ``[T, …]``, each with the dimensions of 1 that it has too many.

    Where the shape is known only in a step, these are the rows of a state, for which the file has to say the shape.
    """
    late = late_shapes(body.graph)
    rows: list[tuple[str, list[int]]] = []
    for name in names:
        shape, dtype = body.shape(name), body.dtype(name)
        if name not in late:
            rows.append((loop.every_item(body.blob(name)), []))
            continue
        if shape is None or None in shape or dtype is None:
            raise located(
                f"the shape of what it gives is known only when a step has run, and the file does not say that of "
                f'"{name}", which follows from it, and of which a Scan gives all steps',
                body.graph.node[late[name]],
                late[name],
                body.graph.name,
                body.model.path,
            )
        ones = list(range(1, 1 + missing(len(shape))))
        state = loop.unread_state(filled_with(n, [1, *(1 for _ in ones), *(size or 0 for size in shape)], 0, dtype))
        loop.next_row(state, loop.step.expanded(body.blob(name), [0, *ones]))
        rows.append((loop.every_row(state), ones))
    return rows


def check_list(n: Node, name: str, kind: str, count: int, is_direction: bool = False) -> None:
    """A list that says something of each scanned input or output has as many numbers, and directions are 0 or 1."""
    given = n.attribute(name)
    if given is not None and len(given) not in (0, count):
        raise Unsupported(f"its {name} are {list(given)}; it has {count} scanned {kind}s")
    if is_direction and not set(given or ()) <= {0, 1}:
        raise Unsupported(f"its {name} are {list(given)}; they must be 0 or 1")


def set_type(inner: Scope, info: onnx.ValueInfoProto, comes: str, dtype: str, shape: Sequence[int | None]) -> None:
    """Says what an input of the body is, which what the body declares does not contradict."""
    declared = info.type.tensor_type
    if declared.elem_type and inner.dtype(info.name) != dtype:
        raise Unsupported(f'its body declares "{info.name}" as {inner.dtype(info.name)}; {comes} is {dtype}')
    of_body = inner.shape(info.name)
    if of_body is not None and not fits(of_body, shape):
        raise Unsupported(f'its body declares "{info.name}" as {shape_text(of_body)}; {comes} is {shape_text(shape)}')
    inner.set_type(info.name, dtype, shape)


def check_next(inner: Scope, name: str, dtype: str, shape: Sequence[int | None]) -> None:
    """What a state becomes is of its dtype and shape."""
    of_next, shape_of_next = inner.dtype(name), inner.shape(name)
    if of_next not in (None, dtype) or (shape_of_next is not None and not fits(shape_of_next, shape)):
        what = f"{of_next} {shape_text(shape_of_next or [])}"
        raise Unsupported(f'a state of {dtype} {shape_text(shape)} becomes "{name}" in its body, which is {what}')


def missing(rank: int) -> int:
    """Dimensions that a state has to get so that it has rows of a batch."""
    return max(0, 2 - rank)


def ones_of_row(state: Sequence[int | None]) -> list[int]:
    """The dimensions of 1 that make a state of this shape one row; none where it is one."""
    return [] if len(state) > 2 and state[0] == 1 else list(range(1 + missing(len(state))))


def steps_of(n: Node, sequence: str) -> str:
    """``[T]``, of a sequence ``[T, …]``; nothing reads its elements."""
    return n.emit("ConstantFill", n.emit("Shape", sequence, axes=[0]), input_as_shape=1, value=0.0)


def of_scanned(n: Node, name: str, k: int) -> int:
    values = n.attribute(name) or []
    return int(values[k]) if k < len(values) else 0


def scanned(n: Node, i: int, k: int) -> str:
    """A scanned input with the steps first, in the order in which they run."""
    axis, rank, blob = of_scanned(n, "scan_input_axes", k), n.rank(i), n.blob(i)
    axis = check_axis(n, axis, "scan_input_axes", rank) % rank
    if axis != 0:
        blob = n.emit("Transpose", blob, axes=[axis, *(d for d in range(rank) if d != axis)])
    return turned_around(n, blob, rank) if of_scanned(n, "scan_input_directions", k) else blob


def stacked(n: Node, blob: str, k: int, item: Sequence[int | None] | None) -> str:
    """An output of all steps, ``[T, …]``, as the node wants it."""
    axis, is_reverse = of_scanned(n, "scan_output_axes", k), of_scanned(n, "scan_output_directions", k)
    if axis == 0 and not is_reverse:
        return blob
    if item is None:
        raise Unsupported(f"the rank of what its body gives as its scanned output {k} is not known")
    rank = len(item) + 1
    axis = check_axis(n, axis, "scan_output_axes", rank) % rank
    if is_reverse:
        blob = turned_around(n, blob, rank)
    if axis == 0:
        return blob
    others = list(range(1, rank))
    return n.emit("Transpose", blob, axes=[*others[:axis], 0, *others[axis:]])
