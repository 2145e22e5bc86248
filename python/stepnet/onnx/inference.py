"""Shapes of the tensors of a graph, as far as ONNX can tell them."""

from __future__ import annotations

import contextlib
import re
from typing import Iterable, Sequence

import numpy
import onnx
from onnx import helper, numpy_helper

from .constants import LARGEST, fold
from .graph import element_type, names_read
from .handed_on import infer_bounded
from .reader import fault
from .scope import Scope, fits, place_of_node, sizes_of

REFUSALS = (onnx.shape_inference.InferenceError, ValueError, MemoryError)
"""What inference raises: older versions of onnx MemoryError for a Scan that scans more than it is given."""


def add_shapes(scope: Scope) -> str:
    """Adds to a scope what follows from its inputs, its constants and the tensors around it.

    What the file says of other tensors is used where it does not contradict that, as in onnxruntime.

    Returns:
        Why ONNX's rules do not allow the graph, for which a node may have better words; "" where they do.
    """
    fold(scope)
    model, refusal = light_model(scope), ""
    while add_sizes(scope, model):
        fold(scope)
        model = light_model(scope)
    try:
        inferred = infer_bounded(model, strict=True)
    except REFUSALS as error:
        refusal = refusal_of(scope, error)
        inferred = infer(scope, model)
    follows = {each.name: each for each in (*inferred.graph.value_info, *inferred.graph.output)}
    news = {}
    for each in (*scope.graph.value_info, *scope.graph.output):
        if is_news(each, follows.get(each.name)):
            news[each.name] = each
    if news:
        for each in (*model.graph.value_info, *model.graph.output):
            each.CopyFrom(news.get(each.name, each))
        inferred = infer(scope, model)
    scope.add_infos(inferred.graph.value_info)
    scope.add_infos(inferred.graph.output)
    return refusal


def add_sizes(scope: Scope, model: onnx.ModelProto) -> bool:
    """Adds to ``scope.folded`` the sizes that follow from those of inputs, given the graph as a model; whether there are any.

    onnx knows such elements where it infers shapes: as the sizes of what is filled by them.
    """
    names = from_shapes(model.graph.node)
    if not names:
        return False
    probes = {name: scope.model.tensors.unique(f"filled by {name}") for name in names}
    probed = onnx.ModelProto()
    probed.CopyFrom(model)
    probed.graph.node.extend(helper.make_node("ConstantOfShape", [name], [probe]) for name, probe in probes.items())
    inferred = infer(scope, probed)
    kinds = {each.name: each.type.tensor_type for each in (*inferred.graph.value_info, *inferred.graph.output)}
    for name in names:
        filled, shape = (sizes_of(kinds[each]) if each in kinds else None for each in (probes[name], name))
        sizes = [size for size in filled or [] if size is not None]
        if filled == sizes and shape in ([], [len(sizes)]) and kinds[name].elem_type == onnx.TensorProto.INT64:
            scope.folded[name] = numpy.array(sizes, "int64").reshape([size or 0 for size in shape or []])
    return any(name in scope.folded for name in names)


def from_shapes(nodes: Iterable[onnx.NodeProto]) -> list[str]:
    """What nodes give that depends on the sizes of tensors alone."""
    names: dict[str, None] = {}
    for node in nodes:
        if node.op_type in ("Shape", "Size") or any(name in names for name in node.input):
            names.update(dict.fromkeys(name for name in node.output if name))
    return list(names)


def infer(scope: Scope, model: onnx.ModelProto) -> onnx.ModelProto:
    with contextlib.suppress(*REFUSALS):
        return infer_bounded(model)
    try:
        return onnx.shape_inference.infer_shapes(model)  # which says less, and reads nodes that are malformed
    except REFUSALS as error:
        raise fault(scope.model.path, refusal_of(scope, error)) from None


def refusal_of(scope: Scope, error: Exception) -> str:
    if isinstance(error, MemoryError):
        return f'onnx {onnx.__version__} finds no memory to infer the shapes in the graph "{scope.graph.name}"'
    text = str(error).strip()
    refusal = f'the shapes in the graph "{scope.graph.name}" contradict each other: '
    named = re.search(r", node name: ([0-9]+)(?=\))", text)
    if named is None:
        return refusal + text
    index = int(named[1])
    return refusal + text.replace(named[0], "", 1) + place_of_node(scope.graph.node[index], index, scope.graph.name)


def is_news(said: onnx.ValueInfoProto, follows: onnx.ValueInfoProto | None) -> bool:
    """Whether the file says more of a tensor than what follows, which it does not contradict."""
    sizes = sizes_of(said.type.tensor_type)
    known = None if follows is None else sizes_of(follows.type.tensor_type)
    if sizes is None or known is None:
        return sizes is not None
    return fits(sizes, known) and any(b is None and a is not None for a, b in zip(sizes, known))


def light_model(scope: Scope) -> onnx.ModelProto:
    """The graph as a model, without the elements of large tensors and what the file says of shapes but those of inputs;
    what it sees of graphs around it are inputs."""
    graph = onnx.GraphProto(name=scope.graph.name)
    for index, node in enumerate(scope.graph.node):
        if scope.is_folded(node):
            graph.initializer.extend(numpy_helper.from_array(scope.folded[name], name) for name in filter(None, node.output))
        else:
            graph.node.append(node)
            graph.node[-1].name = str(index)  # by which errors of onnx name it
    graph.output.extend(unsaid(scope, each) for each in scope.graph.output)
    graph.value_info.extend(unsaid(scope, each) for each in scope.graph.value_info)
    known = {each.name for each in scope.graph.input}
    graph.input.extend(info for info in (scope.info(name) for name in known) if info is not None)
    for tensor in scope.graph.initializer:
        if scope.constant(tensor.name) is None:  # a default, in whose place a call may set something else
            continue
        if len(tensor.raw_data) <= 8 * LARGEST and tensor.data_location != onnx.TensorProto.EXTERNAL:
            graph.initializer.append(tensor)
        elif tensor.name not in known:
            graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
    defined = known | {each.name for each in graph.initializer} | {name for node in graph.node for name in node.output}
    if scope.outer is not None:
        add_captured(scope, graph, sorted(names_read(graph.node) - defined))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", scope.model.opset)])


def unsaid(scope: Scope, info: onnx.ValueInfoProto) -> onnx.ValueInfoProto:
    """What the file says of a tensor without the shape, which has to follow. That of a constant is known: without it
    onnx would not read the elements, as the axes of a slice."""
    array = scope.folded.get(info.name, scope.constant(info.name))
    if array is not None:
        return helper.make_tensor_value_info(info.name, element_type(str(array.dtype)), array.shape)
    bare = onnx.ValueInfoProto()
    bare.CopyFrom(info)
    if bare.type.HasField("tensor_type"):
        bare.type.tensor_type.ClearField("shape")
    return bare


def add_captured(scope: Scope, graph: onnx.GraphProto, names: Sequence[str]) -> None:
    for name in names:
        constant = scope.constant(name)
        info = scope.info(name)
        if constant is not None and constant.size <= LARGEST:
            graph.initializer.append(numpy_helper.from_array(constant, name))
        elif name and info is not None:
            graph.input.append(info)
