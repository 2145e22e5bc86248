"""MXNet's operator RNN in ONNX: the operators that stand for it beside its loops."""

from __future__ import annotations

import math
from typing import Sequence

from .. import _stepnet
from .call import Call
from .operators import operator
from .shapes import ELEMENTS, ELEMENTS_OF, Arrays


def parts_of(call: Call) -> list[tuple[tuple[int, ...], slice]]:
    """The shape of each weight and bias, and where it is in the vector of parameters."""
    sizes = (call["mode"], call.inputs[0].shape[2], call["state_size"], call["num_layers"], True)
    parts, _ = _stepnet.packed_layout(*sizes, bool(call["bidirectional"]), call["projection_size"])
    return [(shape, slice(begin, begin + math.prod(shape))) for _, shape, begin in parts]


@operator("RNNWeights")
def rnn_weights(call: Call) -> Sequence[str]:
    vector = call.names[1]
    return [call.graph.reshape_to(call.graph.slice(vector, at.start, at.stop), *shape) for shape, at in parts_of(call)]


def elements_of_weights(call: Call, arrays: Arrays) -> Arrays:
    return [arrays[0][at].reshape(shape) for shape, at in parts_of(call)]


ELEMENTS["RNNWeights"] = elements_of_weights
ELEMENTS_OF["RNNWeights"] = [1]


@operator("RNNLengths")
def rnn_lengths(call: Call) -> Sequence[str]:
    return [call.graph.cast(call.names[1], call.dtype)]


@operator("LSTMStateClip")
def lstm_state_clip(call: Call) -> Sequence[str]:
    x, low, high = call.names[0], call.number(call["min"]), call.number(call["max"])
    if call["nan"]:
        at_least_low = call.emit("Where", call.emit("GreaterOrEqual", x, low), x, low)
    else:
        at_least_low = call.emit("Where", call.emit("Less", x, low), low, x)
    return [call.emit("Where", call.emit("Greater", x, high), high, at_least_low)]
