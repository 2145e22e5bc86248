"""Shapes of the tensors of a graph, as far as ONNX can tell them."""

from __future__ import annotations

from typing import Sequence

import onnx
from onnx import helper, numpy_helper

from .graph import names_read
from .reader import fault
from .scope import Scope

LARGEST_CONSTANT = 1024
"""Elements of a constant on which shapes may depend."""


def add_shapes(scope: Scope) -> None:
    """Adds to a scope what follows from its inputs, its constants and the tensors around it."""
    try:
        inferred = onnx.shape_inference.infer_shapes(light_model(scope))
    except (onnx.shape_inference.InferenceError, ValueError) as error:
        text = str(error).strip()
        raise fault(
            scope.model.path, f'the shapes in the graph "{scope.graph.name}" contradict each other: {text}'
        ) from None
    scope.add_infos(inferred.graph.value_info)
    scope.add_infos(inferred.graph.output)


def light_model(scope: Scope) -> onnx.ModelProto:
    """The graph as a model, without the elements of large tensors; what it sees of graphs around it are inputs."""
    graph = onnx.GraphProto(name=scope.graph.name)
    graph.node.extend(scope.graph.node)
    graph.output.extend(scope.graph.output)
    graph.value_info.extend(scope.graph.value_info)
    known = {each.name for each in scope.graph.input}
    graph.input.extend(info for info in (scope.info(name) for name in known) if info is not None)
    for tensor in scope.graph.initializer:
        if len(tensor.raw_data) <= 8 * LARGEST_CONSTANT and tensor.data_location != onnx.TensorProto.EXTERNAL:
            graph.initializer.append(tensor)
        elif tensor.name not in known:
            graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
    defined = known | {each.name for each in graph.initializer} | {name for node in graph.node for name in node.output}
    if scope.outer is not None:
        add_captured(scope, graph, sorted(names_read(graph.node) - defined))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", scope.model.opset)])


def add_captured(scope: Scope, graph: onnx.GraphProto, names: Sequence[str]) -> None:
    for name in names:
        constant = scope.constant(name)
        info = scope.info(name)
        if constant is not None and constant.size <= LARGEST_CONSTANT:
            graph.initializer.append(numpy_helper.from_array(constant, name))
        elif name and info is not None:
            graph.input.append(info)
