"""Functions of a file, in whose place the nodes come that they stand for."""

from __future__ import annotations

from typing import Iterable, Iterator

import onnx
import onnx.inliner

from .reader import Origin, bodies_of, fault

MOST_NODES = 1 << 17
"""What functions may stand for: each may call another one twice, and so a file of some bytes stand for any number."""

NODE_BYTES = 1 << 10
"""A larger node counts as several."""

DEEPEST = 100
"""How many functions may call each other, one within the other."""

Key = tuple[str, str, str]
"""Domain, name and overload."""


def inlined(model: onnx.ModelProto, path: Origin) -> onnx.ModelProto:
    """The model without functions of its own.

    Raises InvalidNetError for functions that call themselves, stand for too many nodes, or are of another opset than the model.
    """
    if not model.functions:
        return model
    check_count(model, path)
    try:
        found = onnx.inliner.inline_local_functions(model)
    except Exception as error:  # of any kind, where they are malformed
        raise fault(path, f"the functions of the model, as {model.functions[0].name}, cannot be inlined: {str(error).strip()}") from None
    called = {key_of(node) for node in nodes_of(found.graph.node)}
    for function in found.functions:  # those that nobody calls, and others that stay
        if (function.domain, function.name, function.overload) in called:
            raise fault(path, f"the function {function.name} is of another opset than the model; inline it by onnx.inliner with convert_version=True")
    return found


def check_count(model: onnx.ModelProto, path: Origin) -> None:
    """Raises InvalidNetError for functions in a circle, and for more nodes than MOST_NODES in their place."""
    functions = {(each.domain, each.name, each.overload): each for each in model.functions}
    counts: dict[Key, int] = {}
    open_ones: list[Key] = []

    def count(nodes: Iterable[onnx.NodeProto]) -> int:
        total = 0
        for node in nodes_of(nodes):
            total += count_of(key_of(node)) if key_of(node) in functions else 1 + node.ByteSize() // NODE_BYTES
            if total > MOST_NODES:
                raise fault(path, f"the functions of the model stand for more than {MOST_NODES} nodes")
        return total

    def count_of(key: Key) -> int:
        if key in open_ones:
            raise fault(path, f"the function {key[1]} calls itself")
        if len(open_ones) == DEEPEST:
            raise fault(path, f"the functions of the model call each other more than {DEEPEST} deep")
        if key not in counts:
            open_ones.append(key)
            counts[key] = count(functions[key].node)
            open_ones.pop()
        return counts[key]

    count(model.graph.node)


def nodes_of(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Nodes, and those of the bodies in them."""
    for node in nodes:
        yield node
        for body in bodies_of(node):
            yield from nodes_of(body.node)


def key_of(node: onnx.NodeProto) -> Key:
    return node.domain, node.op_type, node.overload
