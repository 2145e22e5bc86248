"""Einsum, as transpositions, sums and products.

Operands are multiplied one after the other. Of two of them a label that both have is one of the outer dimensions of a
product where it is needed later, and one that the product sums over where it is not; a label of one alone is summed first
where nothing needs it later.
"""

from __future__ import annotations

import re
from typing import Iterable, Mapping, NamedTuple, Sequence

import onnx

from .nodes import node
from .scope import Node, Unsupported
from .places import diagonal

Label = str
"""A letter, or for a dimension of an ellipsis its number from the end, "1" the last one."""


class Operand(NamedTuple):
    """A blob, and the label of each of its dimensions."""

    blob: str
    labels: Sequence[Label]


@node("Einsum")
def einsum(n: Node) -> Sequence[str]:
    terms, output = labels_of(n)
    operands = [without_repeats(n, i, labels) for i, labels in enumerate(terms)]
    shapes = [n.scope.shape(name) or [None] * len(labels) for name, labels in zip(n.tensors, terms)]
    sizes = {label: size for labels, shape in zip(terms, shapes) for label, size in zip(labels, shape) if size is not None}
    product, *others = operands
    for i, other in enumerate(others, 1):
        needed = {*output, *(label for each in operands[i + 1 :] for label in each.labels)}
        both = summed(n, product, {*needed, *other.labels}), summed(n, other, {*needed, *product.labels})
        product = multiplied(n, *both, needed, sizes)
    product = ordered(n, summed(n, product, output), output)
    return [product.blob if product.blob not in n.blobs() else n.emit("Copy", product.blob)]


# The equation.

TERM = r"[A-Za-z]*(?:\.\.\.)?[A-Za-z]*"


def check_equation(proto: onnx.NodeProto) -> None:
    """That of an Einsum is one: inference does not end for some that are none."""
    for each in proto.attribute:
        equation = each.s.decode("utf-8", "replace").replace(" ", "")
        if each.name == "equation" and not re.fullmatch(f"{TERM}(?:,{TERM})*(?:->{TERM})?", equation):
            raise Unsupported(f"its equation is {equation!r}; it must be letters and ellipses, as in '...ij,jk->...ik'")


def labels_of(n: Node) -> tuple[list[list[Label]], list[Label]]:
    """The labels of each operand and of the output."""
    equation = n.attribute("equation").replace(" ", "")
    left, arrow, right = equation.partition("->")
    texts = left.split(",")
    if len(texts) != len(n.tensors):
        raise Unsupported(f"its equation {equation!r} has {len(texts)} terms, and it has {len(n.tensors)} inputs")
    terms = [labels_of_term(n, i, text) for i, text in enumerate(texts)]
    all_labels = [label for term in terms for label in term]
    of_ellipsis = sorted({label for label in all_labels if label.isdigit()}, key=int, reverse=True)
    if arrow:
        output = split_ellipsis(right, of_ellipsis)
    else:
        output = of_ellipsis + sorted(label for label in all_labels if label.isalpha() and all_labels.count(label) == 1)
    lacking = next((label for label in output if label not in all_labels), None)
    if lacking is not None or len(set(output)) < len(output) or not {*of_ellipsis} <= {*output}:
        raise Unsupported(f"its equation is {equation!r}; its output must have labels of its inputs, each once, and their ellipsis")
    return terms, output


def labels_of_term(n: Node, i: int, text: str) -> list[Label]:
    letters = text.replace("...", "")
    if "..." in text or n.scope.shape(n.tensors[i]) is not None:
        more = n.rank(i) - len(letters)
        if more < 0 or (more > 0 and "..." not in text):
            raise Unsupported(f"its term {text!r} has {len(letters)} labels; its input {n.tensors[i]!r} has {n.rank(i)} dimensions")
        return split_ellipsis(text, [str(place) for place in range(more, 0, -1)])
    return [*letters]


def split_ellipsis(text: str, of_ellipsis: Sequence[Label]) -> list[Label]:
    before, dots, behind = text.partition("...")
    return [*before, *(of_ellipsis if dots else ()), *behind]


# Operands.


def without_repeats(n: Node, i: int, labels: Sequence[Label]) -> Operand:
    """An input, of each label that it has several times the diagonal."""
    operand = Operand(n.blob(i), labels)
    for label in dict.fromkeys(labels):
        while operand.labels.count(label) > 1:
            first = operand.labels.index(label)
            second = operand.labels.index(label, first + 1)
            blob = diagonal(n, i, operand.blob, len(operand.labels), first, second, labels.index(label))
            operand = Operand(blob, [*operand.labels[:second], *operand.labels[second + 1 :]])
    return operand


def summed(n: Node, operand: Operand, needed: Iterable[Label]) -> Operand:
    """Over the labels that nothing needs."""
    kept = {*needed}
    axes = [axis for axis, label in enumerate(operand.labels) if label not in kept]
    if not axes:
        return operand
    labels = [label for label in operand.labels if label in kept]
    return Operand(n.emit("ReduceSum", operand.blob, axes=axes, keepdims=0), labels)


def ordered(n: Node, operand: Operand, labels: Sequence[Label]) -> Operand:
    axes = [operand.labels.index(label) for label in labels]
    is_ordered = axes == sorted(axes)
    return operand if is_ordered else Operand(n.emit("Transpose", operand.blob, axes=axes), labels)


def spread(n: Node, operand: Operand, labels: Sequence[Label]) -> str:
    """The operand with a dimension for each of these labels, of which it has some in their order: of 1 for others."""
    dims = [axis for axis, label in enumerate(labels) if label not in operand.labels]
    return n.net.expanded(operand.blob, dims)


def multiplied(n: Node, a: Operand, b: Operand, needed: set[Label], sizes: Mapping[Label, int]) -> Operand:
    shared = [label for label in a.labels if label in b.labels]
    outer = [label for label in shared if label in needed]
    inner = [label for label in shared if label not in needed]
    of_a, of_b = ([label for label in x.labels if label not in shared] for x in (a, b))
    if not inner:
        labels = [*outer, *of_a, *of_b]
        blobs = [spread(n, ordered(n, x, [*outer, *own]), labels) for x, own in ((a, of_a), (b, of_b))]
        return Operand(n.emit("Mul", *blobs), labels)
    a, b = ordered(n, a, [*outer, *of_a, *inner]), ordered(n, b, [*outer, *of_b, *inner])
    behind = [sizes.get(label, -1) for label in of_b]
    if outer or behind.count(-1) > 1:
        return batch_product(n, a, b, outer, of_a, of_b, inner)
    y = n.emit("FC", a.blob, spread(n, b, [*(of_b or ["row"]), *inner]), axis=len(of_a), axis_w=max(len(of_b), 1))
    if len(of_b) != 1:
        y = n.emit("Reshape", y, shape=[0] * len(of_a) + behind) if of_b else n.net.squeezed(y, [len(of_a)])
    return Operand(y, [*of_a, *of_b])


def batch_product(
    n: Node, a: Operand, b: Operand, outer: list[Label], of_a: list[Label], of_b: list[Label], inner: list[Label]
) -> Operand:
    """Of matrices: the last label that one operand has alone is of rows, or of columns; others are outer dimensions, over
    which the other operand is repeated."""
    repeated = [*outer, *of_a[:-1], *of_b[:-1]]
    blobs = []
    for x, own in ((a, of_a), (b, of_b)):
        blob = spread(n, x, [*repeated, *(own[-1:] or ["row"]), *inner])
        if len(inner) > 1:
            shape = [0] * (len(repeated) + 1) + [-1]
            blob = n.emit("Reshape", blob, shape=shape)
        blobs.append(blob)
    y = n.emit("BatchMatMul", *blobs, trans_b=1, broadcast=1, matrices=1)
    dims = [len(repeated) + i for i, own in enumerate((of_a, of_b)) if not own]
    return Operand(n.net.squeezed(y, dims), [*repeated, *of_a[-1:], *of_b[-1:]])
