"""Operators of a net, and of the steps of its loops, as nodes of ONNX."""

from __future__ import annotations

from typing import Iterable, Sequence

from .. import _stepnet
from ..errors import Error
from .call import Call, Refusal, located
from .graph import GraphWriter, Value
from .operators import TABLE
from .shapes import ELEMENTS, ELEMENTS_OF, SIZES, number_of

Values = dict[str, Value]


def hidden_outputs(op: _stepnet.Operator) -> list[str]:
    """The states of a loop, which a net may read although the operator does not list them."""
    if op.type != "RecurrentNetwork":
        return []
    parts = op.recurrent()
    return [
        *(name for name, _ in parts["states"]),
        *(output for _, output, _ in parts["aliases"]),
        *(output for _, output in parts["step_outputs"]),
    ]


def needed_operators(
    ops: Sequence[_stepnet.Operator], outputs: Iterable[str], linked: Iterable[str] = ()
) -> list[tuple[int, set[str]]]:
    """The indices of the operators that the outputs depend on, each with what of its blobs is read later.

    Those that are linked may be read under another name, so that whatever writes them is needed.
    """
    wanted, needed = {*outputs, *linked}, []
    for index in range(len(ops) - 1, -1, -1):
        written = {*ops[index].outputs, *hidden_outputs(ops[index])}
        if wanted.isdisjoint(written):
            continue
        needed.append((index, wanted & written))
        wanted = (wanted - written) | set(ops[index].inputs) | set(linked)
    return needed[::-1]


class Blobs(Values):
    """The values of blobs while operators are written, by name."""


def write_operators(
    graph: GraphWriter,
    ops: Sequence[_stepnet.Operator],
    blobs: Blobs,
    outputs: Iterable[str],
    net: str,
    linked: Iterable[str] = (),
) -> None:
    """Adds nodes for the operators that the outputs depend on; ``blobs`` gets what they write.

    Raises InvalidNetError for what ONNX has no operators for, and what shape rules raise.
    """
    for index, wanted in needed_operators(ops, outputs, linked):
        op = ops[index]
        try:
            graph.hint = op.outputs[0]
            write_operator(graph, op, blobs, wanted, net)
        except Refusal as refusal:
            raise located(str(refusal), index, op, net) from None
        except Error as error:
            if "\n" in str(error):  # it has its place
                raise
            raise type(error)(f'{graph.with_size_names(str(error))}\n  at op {index} `{op.text}`\n  in net "{net}"') from None


def write_operator(graph: GraphWriter, op: _stepnet.Operator, blobs: Blobs, wanted: set[str], net: str) -> None:
    if op.type == "RecurrentNetwork":
        from .scan import write_loop  # which writes the operators of steps by what is here

        write_loop(graph, op, blobs, wanted, net)
        return
    if op.type not in TABLE:
        raise Refusal(why_not(op))
    inputs = [value_of(blobs, name) for name in op.inputs]
    infos = op.infer_shapes([(value.dtype, value.shape, elements_of(value)) for value in inputs])
    call = Call(graph, op, inputs, infos, wanted)
    names = TABLE[op.type](call)
    values = [value_named(graph, name, dtype, shape) for name, (dtype, shape) in zip(names, infos)]
    if op.type in ELEMENTS:
        set_elements(call, values)
    if op.type == "ConstantFill":
        values[0].number = number_of(call)
    if op.type in SIZES:
        values[0].sizes = SIZES[op.type](call)
    if op.type == "StepMask":
        values[0].lengths = inputs[1]
    if op.type == "FC":
        values[0].projection = projection_of(call)
    for blob, value in zip(op.outputs, values):
        blobs[blob] = value


def elements_of(value: Value) -> list[int] | list[float] | None:
    """Elements from which shapes may follow, where they are known and no parameters: sizes, and constants that are numbers."""
    if value.sizes is not None or value.array is None or value.origins:
        return value.sizes
    return value.array.reshape(-1).tolist() if value.array.size == 1 and value.array.dtype.kind in "if" else None


def value_named(graph: GraphWriter, name: str, dtype: str, shape: Sequence[int]) -> Value:
    value = Value(graph, name, dtype, shape, graph.root.arrays.get(name))
    value.origins = frozenset({name} & graph.root.initializers.keys())
    return value


def set_elements(call: Call, values: Sequence[Value]) -> None:
    """Computes what follows from parameters and constants, which a loop may have as its weights."""
    inputs = [call.inputs[i] for i in ELEMENTS_OF.get(call.type, range(len(call.inputs)))]
    arrays = [value.array for value in inputs if value.array is not None]
    if len(arrays) < len(inputs):
        return
    origins = frozenset[str]().union(*(value.origins for value in inputs))
    for value, array in zip(values, ELEMENTS[call.type](call, arrays)):
        value.array, value.origins = array, origins


def projection_of(call: Call) -> tuple[Value, Value, Value | None] | None:
    """What an FC over the last dimension of a sequence is of, where its parameters are constants."""
    x, w, *b = call.inputs
    is_plain = (x.rank, x.axis(call["axis"]), w.rank, call["axis_w"]) == (3, 2, 2, 1)
    if not is_plain or any(each.array is None for each in (w, *b)):
        return None
    return (x, w, b[0] if b else None)


def value_of(blobs: Blobs, name: str) -> Value:
    try:
        return blobs[name]
    except KeyError:
        raise Refusal(f'it reads "{name}", which nothing has written') from None


def why_not(op: _stepnet.Operator) -> str:
    if op.draws:
        return f"{op.type} draws random numbers, which ONNX's operators cannot repeat"
    return f"{op.type} has no counterpart among ONNX's operators here; write what it computes with operators that have one"
