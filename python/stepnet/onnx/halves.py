"""Tensors of 16 bits where an operator has kernels for float32 and float64 alone: it computes in float32, and what it gives
is rounded.

ONNX says the dtype of what a node gives, not the precision in which it computes. A loop is one node: its states have 16
bits where it gives them, and not from step to step, as in onnxruntime.
"""

from __future__ import annotations

from typing import Sequence

import onnx

from .nodes import Function
from .schema import formal_of, schema_of
from .scope import Node, Scope, Unsupported

HALVES = ("float16", "bfloat16")
FLOATS_ALONE = frozenset(
    "ArgMax ArgMin Conv CumSum Einsum Gemm GRU LSTM MatMul ReduceLogSum ReduceLogSumExp ReduceMean ReduceSum ReduceSumSquare RNN ScatterElements TopK".split()
)
"""Nodes whose operators have kernels for float32 and float64 alone. Others load values of 16 bits as float32 and round what
they give.

A list, as declarations do not say it: kernels of products, loops and TopK check dtypes themselves, and sums take 16 bits over
the last dimensions alone. test_onnx_halves.py compares it with what runs."""
WITHOUT_WHOLE_NUMBERS = FLOATS_ALONE - {"CumSum", "ScatterElements", "TopK"} | {"ReduceL1", "ReduceL2", "ReduceMax", "ReduceMin"}
"""CumSum and TopK are read in another way for them, and ScatterElements takes them."""
SHORT = ("int8", "int16", "uint8", "uint16")
WITHOUT_SHORT_NUMBERS = WITHOUT_WHOLE_NUMBERS | frozenset(
    "Abs Add Clip Div Equal Greater GreaterOrEqual Less LessOrEqual Max MaxPool Min Mod Mul Neg Relu ScatterElements Sign Sub Trilu Where".split()
)
"""What computes with whole numbers does so with those of 32 and 64 bits; shorter ones are moved and cast."""


def check_whole_numbers(scope: Scope, proto: onnx.NodeProto) -> None:
    """Refuses what otherwise the first call would: whole numbers, for which there are no kernels."""
    short = [name for name in proto.input if name and scope.dtype(name) in SHORT]
    if short and proto.op_type in WITHOUT_SHORT_NUMBERS:
        dtype = scope.dtype(short[0])
        raise Unsupported(f'its input "{short[0]}" is {dtype}, in which {proto.op_type} is not computed here; cast it before')
    if proto.op_type not in WITHOUT_WHOLE_NUMBERS:
        return
    dtype = scope.dtype(proto.input[0])
    if dtype not in (None, "float32", "float64", *HALVES):
        raise Unsupported(f'its input "{proto.input[0]}" is {dtype}, in which {proto.op_type} is not computed here')


def in_floats(n: Node, function: Function) -> Sequence[str]:
    """What a node gives, where its function would add operators that do not take its inputs of 16 bits."""
    narrow = {i: n.scope.dtype(name) for i, name in enumerate(n.tensors) if name and n.scope.dtype(name) in HALVES}
    if n.type not in FLOATS_ALONE or not narrow:
        return function(n)
    schema = schema_of(n.type, n.opset)
    dtypes = {formal_of(schema.inputs, i).type_str: dtype for i, dtype in narrow.items()}
    n.tensors = [n.scope.as_float32(name) if i in narrow else name for i, name in enumerate(n.tensors)]
    blobs = []
    for i, blob in enumerate(function(n)):
        dtype = dtypes.get(formal_of(schema.outputs, i).type_str)
        blobs.append(n.emit("Cast", blob, to=dtype) if blob and dtype else blob)
    return blobs
