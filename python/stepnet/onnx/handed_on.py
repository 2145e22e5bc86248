"""onnx's inference with the elements that it hands on from node to node, of tensors that are small.

onnx hands on those of vectors, one by one, of any number: a file of some bytes could take any memory, as by a Range up
to 10^12.
"""

from __future__ import annotations

from functools import cache
from typing import Iterator, Sequence

import onnx
from onnx import helper

from .reader import bodies_of
from .scope import sizes_of

LARGEST_SEEN = 1 << 12
"""Elements of a vector that are handed on."""

MOST_ROUNDS = 16
"""How often sizes may say which other vectors are small, each time for all of the graph."""

ANY_SHAPE = "stepnet: any shape"
"""A tensor of which nothing is known."""

Sizes = dict[str, list["Sequence[int | None] | None"]]


def infer_bounded(model: onnx.ModelProto, strict: bool = False) -> onnx.ModelProto:
    """What onnx infers. What is handed on may say how large other vectors are, which are handed on only then."""
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=strict)
    small: set[str] = set()
    for _ in range(MOST_ROUNDS):
        sizes = sizes_by_name(inferred.graph)
        news = small_tensors(sizes) - small
        if not news:
            break
        small |= news
        seen = onnx.ModelProto()
        seen.CopyFrom(model)
        for infos in ("value_info", "output"):  # what onnx does not infer anew of nodes from which something is hidden
            known = getattr(seen.graph, infos)
            del known[:]
            known.extend(getattr(inferred.graph, infos))
        hides = hide_elements(seen.graph, small, sizes)
        seen.graph.input.append(helper.make_tensor_value_info(ANY_SHAPE, onnx.TensorProto.INT64, None))
        inferred = onnx.shape_inference.infer_shapes(seen, strict_mode=strict, data_prop=True)
        if not hides:
            break
    return inferred


def graphs_of(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """A graph and the bodies in it."""
    yield graph
    for node in graph.node:
        for body in bodies_of(node):
            yield from graphs_of(body)


def sizes_by_name(graph: onnx.GraphProto) -> Sizes:
    """What is known of the tensors of a graph and the bodies in it, of which several may have one name."""
    sizes: Sizes = {}
    for each in graphs_of(graph):
        for tensor in each.initializer:
            sizes.setdefault(tensor.name, []).append(tensor.dims)
        for info in (*each.input, *each.value_info, *each.output):
            sizes.setdefault(info.name, []).append(sizes_of(info.type.tensor_type))
    return sizes


def small_tensors(sizes: Sizes) -> set[str]:
    """Those that are known to be no large vectors."""
    return {name for name, found in sizes.items() if not any(each is None or may_be_large(each) for each in found)}


def may_be_large(sizes: Sequence[int | None]) -> bool:
    return len(sizes) == 1 and (sizes[0] is None or sizes[0] > LARGEST_SEEN)


def is_large(sizes: Sequence[int | None] | None) -> bool:
    return sizes is not None and len(sizes) == 1 and (sizes[0] or 0) > LARGEST_SEEN


def hide_elements(graph: onnx.GraphProto, small: set[str], sizes: Sizes) -> bool:
    """Lets nodes that would hand on other elements read copies of which nothing is known; whether there are any."""
    return any([hide_elements_here(each, small, sizes) for each in graphs_of(graph)])


def hide_elements_here(graph: onnx.GraphProto, small: set[str], sizes: Sizes) -> bool:
    copies: dict[str, str] = {}
    nodes = []
    for node in graph.node:
        hands_on = node.op_type in hand_on()
        gives_many = any(is_large(each) for name in node.output for each in sizes.get(name, []))
        for i, name in enumerate(node.input if hands_on else []):
            if name and (gives_many or name not in small):
                if name not in copies:
                    copies[name] = f"{name} in {ANY_SHAPE}"
                    nodes.append(helper.make_node("Reshape", [name, ANY_SHAPE], [copies[name]]))
                node.input[i] = copies[name]
        nodes.append(node)
    if copies:
        del graph.node[:]
        graph.node.extend(nodes)
    return bool(copies)


@cache
def hand_on() -> frozenset[str]:
    """The operators of which onnx hands on elements of inputs."""
    schemas = onnx.defs.get_all_schemas_with_history()
    return frozenset(each.name for each in schemas if each.has_data_propagation_function) - {"Shape", "Size"}
