"""What nodes compute of constants, which is the same in every run."""

from __future__ import annotations

import contextlib
import math
from typing import Mapping

import numpy
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from ..errors import InvalidNetError
from .schema import check_attributes, schema_of
from .scope import Scope, Unsupported, sizes_of

LARGEST = 1024
"""Elements of a tensor that is computed when the file is read."""

FOLDED = frozenset(
    "Abs Add And Cast CastLike Ceil Concat ConstantOfShape Div Equal Expand Flatten Floor Gather GatherElements GatherND Greater "
    "GreaterOrEqual Identity Less LessOrEqual Max Mean Min Mod Mul Neg Not Or Pad Pow Range Reciprocal ReduceMax ReduceMin "
    "ReduceProd ReduceSum Reshape Round ScatterElements ScatterND Shape Sign Size Slice Split Sqrt Squeeze Sub Sum Tile Transpose "
    "Unsqueeze Where Xor".split()
)
"""What is computed then: nothing that takes more than its inputs and results have elements, as an Einsum may."""


def fold(scope: Scope) -> None:
    """Adds to ``scope.folded`` what nodes compute of constants that are no parameters."""
    known: dict[str, numpy.ndarray | None] = {}
    for node in scope.graph.node:
        if node.op_type == "Constant":
            with contextlib.suppress(Unsupported, InvalidNetError):  # whoever reads the node says it
                known.update(dict.fromkeys(node.output, constant_of(scope, node)))
            continue
        inputs = {name: known.get(name, scope.computed(name)) for name in node.input if name}
        arrays = {name: array for name, array in inputs.items() if array is not None and array.size <= LARGEST}
        if arrays and len(arrays) == len(inputs) and not scope.is_folded(node):
            scope.folded.update(results(scope, node, arrays))
        known.update((name, scope.folded.get(name)) for name in node.output if name)


def constant_of(scope: Scope, proto: onnx.NodeProto) -> numpy.ndarray:
    """What a node named Constant says."""
    check_attributes(proto, schema_of(proto.op_type, scope.model.opset))
    if len(proto.attribute) != 1:
        raise Unsupported(f"it has {len(proto.attribute)} attributes; one, its value, is needed")
    attribute = proto.attribute[0]
    value = helper.get_attribute_value(attribute)
    dtypes = {"value_float": "float32", "value_floats": "float32", "value_int": "int64", "value_ints": "int64"}
    if attribute.name == "value":
        return scope.array(value)
    if attribute.name not in dtypes:
        raise Unsupported(f"its attribute {attribute.name} is not read")
    return numpy.array(value, dtypes[attribute.name])


def results(scope: Scope, node: onnx.NodeProto, inputs: Mapping[str, numpy.ndarray]) -> dict[str, numpy.ndarray]:
    """What a node gives; nothing where that is large, or where onnx does not say it."""
    if node.op_type not in FOLDED or node.domain:
        return {}
    if node.op_type == "Div" and any((array < 0).any() for array in inputs.values()):
        return {}  # which older versions of onnx round down
    tensors = {name: numpy_helper.from_array(array, name) for name, array in inputs.items()}
    types = {name: helper.make_tensor_type_proto(each.data_type, each.dims) for name, each in tensors.items()}
    try:
        schema = schema_of(node.op_type, scope.model.opset)
        kinds = onnx.shape_inference.infer_node_outputs(schema, node, types, tensors)
        if not all(is_small(kinds[name]) for name in node.output if name):
            return {}
        arrays = ReferenceEvaluator(node, opsets={"": scope.model.opset}).run(None, dict(inputs))
    except Exception:  # of any kind, where the node is malformed: whoever reads it says it
        return {}
    return {name: numpy.asarray(array) for name, array in zip(node.output, arrays) if name}


def is_small(kind: onnx.TypeProto) -> bool:
    sizes = sizes_of(kind.tensor_type)
    return sizes is not None and None not in sizes and math.prod(size or 0 for size in sizes) <= LARGEST
