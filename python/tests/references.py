"""What cells compute, written out in NumPy from their equations."""

import numpy


def sigmoid(a):
    return 1 / (1 + numpy.exp(-a))


def lstm(params, x, h=None, c=None, lengths=None):
    """An LSTM with gates in the order i, f, o, g: h [T, B, H], zero behind the end, and the last h and c, [B, H]."""
    w, u, b = params["w"], params["u"], params["b"]
    steps, batch, _ = x.shape
    size = u.shape[1]
    h = numpy.zeros((batch, size), x.dtype) if h is None else h
    c = numpy.zeros((batch, size), x.dtype) if c is None else c
    every = []
    for t in range(steps):
        i, f, o, g = numpy.split(x[t] @ w.T + h @ u.T + b, 4, axis=-1)
        new_c = sigmoid(f) * c + sigmoid(i) * numpy.tanh(g)
        new_h = sigmoid(o) * numpy.tanh(new_c)
        counts = numpy.ones((batch, 1), bool) if lengths is None else (t < lengths)[:, None]
        h, c = numpy.where(counts, new_h, h), numpy.where(counts, new_c, c)
        every.append(numpy.where(counts, h, 0))
    return numpy.array(every).reshape(steps, batch, size), h, c


def differences(function, array, step=1e-6):
    """The gradient of a function of one float64 array, which gives a number, by central differences."""
    gradient = numpy.zeros_like(array)
    for index in numpy.ndindex(*array.shape):
        value = array[index]
        array[index] = value + step
        above = function()
        array[index] = value - step
        gradient[index] = (above - function()) / (2 * step)
        array[index] = value
    return gradient
