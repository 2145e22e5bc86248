"""Which tensors of a loop's body have shapes that follow from values that only a step computes.

Sizes that are constants, that are computed before the loop, or that follow from the shapes of other tensors are known
when StepNet plans the loop. What a step computes of the elements of its inputs is not, and neither is what a loop
within the step gives.
"""

from __future__ import annotations

import onnx

SIZES = {"ConstantOfShape": (0,), "Expand": (1,), "Range": (0, 1, 2), "Reshape": (1,), "Slice": (1, 2)}
"""The inputs of operators that say shapes by their elements; others that do have to be constants."""
LOOPS = frozenset({"GRU", "LSTM", "RNN", "Scan"})


def late_shapes(body: onnx.GraphProto) -> dict[str, int]:
    """Tensors whose shapes only a step knows, with the number of the node from which that comes."""
    late: dict[str, int] = {}
    of_step = {each.name for each in body.input}
    """Those whose elements only a step knows."""
    for index, node in enumerate(body.node):
        names = [name for name in node.input if name]
        inherited = next((late[name] for name in names if name in late), None)
        reads_late = any(i < len(node.input) and node.input[i] in of_step for i in SIZES.get(node.op_type, ()))
        if inherited is not None or reads_late or node.op_type in LOOPS:
            late.update(dict.fromkeys(node.output, index if inherited is None else inherited))
            of_step.update(node.output)
        elif node.op_type not in ("Shape", "Size") and not of_step.isdisjoint(names):
            of_step.update(node.output)
    return late
