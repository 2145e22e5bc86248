"""Losses, and what measures them, in ONNX."""

from __future__ import annotations

from typing import Sequence

from .call import Call, Refusal
from .operators import operator

LEAST_PROBABILITY = 1e-20
"""Smaller ones have the logarithm of this one."""


def matrix(call: Call) -> str:
    x = call.inputs[0]
    if x.rank != 2:
        raise Refusal(f"{call.type} is exported of [N, D], and is given {list(x.shape)}")
    return x.name


def log_of(call: Call, probability: str) -> str:
    return call.emit("Log", call.emit("Max", probability, call.number(LEAST_PROBABILITY)))


def column(call: Call, name: str) -> str:
    return call.graph.reshape(name, -1, 1)


@operator("LabelCrossEntropy")
def label_cross_entropy(call: Call) -> Sequence[str]:
    of_label = call.emit("GatherElements", matrix(call), column(call, call.names[1]), axis=1)
    return [call.emit("Neg", call.graph.squeeze(log_of(call, of_label), 1))]


@operator("CrossEntropy")
def cross_entropy(call: Call) -> Sequence[str]:
    terms = call.emit("Mul", call.names[1], log_of(call, matrix(call)))
    return [call.emit("Neg", call.emit("ReduceSum", terms, call.graph.ints(1), keepdims=0))]


@operator("SigmoidCrossEntropyWithLogits")
def sigmoid_cross_entropy(call: Call) -> Sequence[str]:
    x, targets = call.names
    # log(1 + e^-|x|) + max(x, 0), which is -log(1 - sigmoid(x)).
    small = call.emit("Log", call.emit("Add", call.emit("Exp", call.emit("Neg", call.emit("Abs", x))), call.number(1)))
    negative = call.emit("Add", call.emit("Relu", x), small)
    if call["log_D_trick"]:
        signed = call.emit("Sub", call.emit("Add", targets, targets), call.number(1))
        terms = call.emit("Mul", signed, call.emit("Sub", negative, x))
    else:
        if call["unjoined_lr_loss"]:
            negative = call.emit("Mul", call.emit("Sub", call.number(1), targets), negative)
        terms = call.emit("Sub", negative, call.emit("Mul", x, targets))
    return [call.emit("ReduceMean", terms, call.graph.ints(-1), keepdims=0)]


@operator("SoftmaxWithLoss")
def softmax_with_loss(call: Call) -> Sequence[str]:
    x = call.inputs[0]
    axis = x.axis(call["axis"])
    rows = call.emit("Flatten", x.name, axis=axis)
    softmax = call.graph.reshape_as(call.emit("Softmax", rows, axis=1), x)
    log_softmax = call.emit("LogSoftmax", rows, axis=1)
    if call["label_prob"]:
        terms = call.emit("Mul", call.emit("Flatten", call.names[1], axis=axis), log_softmax)
        log_p = call.emit("ReduceSum", terms, call.graph.ints(1), keepdims=1)
    else:
        log_p = call.emit("GatherElements", log_softmax, column(call, call.names[1]), axis=1)
    if len(call.names) < 3:
        mean = call.emit("ReduceMean", log_p, keepdims=0)
    else:
        mean = weighted_mean(call, log_p, column(call, call.names[2]))
    return [softmax, call.emit("Mul", mean, call.number(-call["scale"]))]


def weighted_mean(call: Call, x: str, weights: str) -> str:
    """0 where all weights are; of weight 0 any x."""
    zero = call.number(0)
    terms = call.emit("Where", call.emit("Equal", weights, zero), zero, call.emit("Mul", x, weights))
    total = call.emit("ReduceSum", weights, keepdims=0)
    is_none = call.emit("Equal", total, zero)
    divisor = call.emit("Where", is_none, call.number(1), total)
    return call.emit("Where", is_none, zero, call.emit("Div", call.emit("ReduceSum", terms, keepdims=0), divisor))


@operator("WeightedSum")
def weighted_sum(call: Call) -> Sequence[str]:
    ones = [1] * call.inputs[0].rank
    pairs = zip(call.names[::2], call.names[1::2])
    total, *terms = [call.emit("Mul", x, call.graph.reshape(w, *ones)) for x, w in pairs]
    for term in terms:
        total = call.emit("Add", total, term)
    return [total]


@operator("Accuracy")
def accuracy(call: Call) -> Sequence[str]:
    x = matrix(call)
    rows, classes = call.inputs[0].shape
    if call.graph.is_free(classes) or rows == 0:
        raise Refusal("Accuracy is exported of a known number of classes, and of one row or more")
    _, guesses = call.graph.emit_all("TopK", [x, call.graph.ints(min(call["top_k"], classes))], 2, axis=1)
    labels = call.graph.cast(column(call, call.names[1]), "int64")
    is_right = call.graph.cast(call.emit("Equal", guesses, labels), call.dtype)
    return [call.emit("ReduceMean", call.emit("ReduceSum", is_right, call.graph.ints(1), keepdims=0), keepdims=0)]
