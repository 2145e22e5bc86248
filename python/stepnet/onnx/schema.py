"""What ONNX says of an operator, in the version that a model has: its inputs, outputs, attributes and dtypes."""

from __future__ import annotations

from functools import cache
from typing import Sequence

import onnx

from .graph import element_type
from .scope import Scope, Unsupported


def check_schema(proto: onnx.NodeProto, scope: Scope) -> None:
    """The node has the inputs and outputs, and the attributes, each once and of its kind, that ONNX's operator has."""
    opset = scope.model.opset
    try:
        schema = schema_of(proto.op_type, opset)
    except onnx.defs.SchemaError:
        raise Unsupported(f"{proto.op_type} is no operator of opset {opset}") from None
    check_attributes(proto, schema)
    check_count("inputs", len(proto.input), schema.min_input, schema.max_input)
    check_count("outputs", len(proto.output), schema.min_output, schema.max_output)
    check_dtypes(proto, schema, scope)


@cache
def schema_of(op_type: str, opset: int) -> onnx.defs.OpSchema:
    return onnx.defs.get_schema(op_type, opset, "")


def formal_of(formals: Sequence[onnx.defs.OpSchema.FormalParameter], i: int) -> onnx.defs.OpSchema.FormalParameter:
    """What the schema says of input or output ``i``; the last one may stand for several."""
    return formals[min(i, len(formals) - 1)]


def check_count(what: str, count: int, min_count: int, max_count: int) -> None:
    if not min_count <= count <= max_count:
        needed = f"{min_count}" if min_count == max_count else f"{min_count} to {max_count}"
        raise Unsupported(f"it has {count} {what}; it must have {needed}")


def check_attributes(proto: onnx.NodeProto, schema: onnx.defs.OpSchema) -> None:
    given: set[str] = set()
    for each in proto.attribute:
        if each.name in given:
            raise Unsupported(f"its attribute {each.name} is there twice")
        given.add(each.name)
        if each.ref_attr_name:
            raise Unsupported(f"its attribute {each.name} is that of a function, {each.ref_attr_name}, outside of one")
        if each.name not in schema.attributes:
            raise Unsupported(
                f"its attribute {each.name} is not read: {proto.op_type} of opset {schema.since_version} has none"
                " of this name"
            )
        kind = int(getattr(schema.attributes[each.name].type, "value"))  # an enum, which onnx's stubs do not say
        if each.type != kind:
            name_of = onnx.AttributeProto.AttributeType.Name
            raise Unsupported(f"its attribute {each.name} is {name_of(each.type)}; it must be {name_of(kind)}")
    for name, attribute in schema.attributes.items():
        if attribute.required and name not in given:
            raise Unsupported(f"it has no attribute {name}")


def check_dtypes(proto: onnx.NodeProto, schema: onnx.defs.OpSchema, scope: Scope) -> None:
    """Where they are known; those that share a letter in ONNX's text are one."""
    allowed = {each.type_param_str: each.allowed_type_strs for each in schema.type_constraints}
    found: dict[str, tuple[str, str]] = {}
    for i, name in enumerate(proto.input):
        formal = formal_of(schema.inputs, i)
        dtype = scope.dtype(name) if name else None
        if dtype is None:
            continue
        if text_of(dtype) not in allowed.get(formal.type_str, [formal.type_str]):
            raise Unsupported(f'{formal.name}, its input "{name}", is {dtype}, which {proto.op_type} does not take')
        if not formal.is_homogeneous:
            continue
        first, of = found.setdefault(formal.type_str, (dtype, name))
        if dtype != first:
            raise Unsupported(f'{formal.name}, its input "{name}", is {dtype}; it must be {first}, as "{of}" is')


def text_of(dtype: str) -> str:
    """A dtype as schemas call it."""
    kind = onnx.TensorProto.DataType.Name(element_type(dtype)).lower()
    return f"tensor({kind})"
