"""Strange numbers, texts and arrays, and damage, for fuzz_trials.py."""

import array as arrays_of_python
import fractions
import re
from pathlib import Path

import numpy
from lender import OnlyDlpack

NUMBERS = [
    0, -1, 1, 2, 3, 7, 100, 2**31 - 1, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, -(2**63), 2**64, 10**30, -(10**30),
    0.5, 1.5, -0.0, 1e300, float("nan"), float("inf"), True, None, "3", "", [], {}, object(), 1j, fractions.Fraction(7, 2),
    numpy.int8(3), numpy.int64(-1), numpy.uint64(2**64 - 1), numpy.float32(2), numpy.float64("nan"), numpy.array(3), numpy.bool_(True),
]  # fmt: skip

TEXTS = [
    "", " ", "x", "h", "w", "loss", "h\0", "\0", "\ud800", "\udcff", "é", "\u2028", "a" * 5000, "../..", "{", "}", "\n",
    "op {", "cell a() {", "%s%n", "-1", "cuda", "cuda:99", "cuda:-1", "cuda:99999999999999999999", "cpu", "gpu", "None",
    b"bytes", Path("x"), Path("\udcff"), None, 3, ("x",), Path("."), "~", "/proc/self/mem", "x.onnx", "x.safetensors",
]  # fmt: skip

DTYPES = [
    "float64",
    "float16",
    "int8",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "bool",
    "complex64",
    ">f4",
    "U3",
    "S2",
    "O",
    "M8[s]",
    "V3",
]


class Gives:
    """What has a __dlpack__ that gives, or raises, what it likes."""

    def __init__(self, given):
        self.given = given

    def __dlpack__(self, **_):
        if isinstance(self.given, type) and issubclass(self.given, BaseException):
            raise self.given("of the array")
        return self.given


def described(value):
    """A value as a report shows it."""
    if isinstance(value, numpy.ndarray) and value.size > 4:
        flags = "".join(
            name for name, holds in (("C", value.flags.c_contiguous), ("W", value.flags.writeable)) if holds
        )
        return f"<{value.dtype} {list(value.shape)} {flags}>"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{described(name)}: {described(each)}" for name, each in value.items()) + "}"
    text = repr(value)
    text = text if len(text) < 4000 else text[:4000] + "…"
    return text.encode("utf-8", "backslashreplace").decode()


def usual_array(chooser, shape, dtype):
    values = [chooser.uniform(-1, 1) for _ in range(16)]
    array = numpy.resize(numpy.array(values), shape)
    return array.astype(dtype) if dtype.startswith("float") else (array * 3).astype(dtype)


def strange_array(chooser, array):
    """An array that is another in one or two ways: values, dtype, shape, order in memory, or what holds it."""
    for _ in range(chooser.randint(1, 2)):
        change = chooser.choice([_values, _dtype, _shape, _layout, _holder])
        if not isinstance(array, numpy.ndarray) or max((array.nbytes, *array.shape)) > 1e6:
            break
        array = change(chooser, array)
    return array


def _values(chooser, array):
    if array.dtype.kind not in "fiu" or not array.size:
        return array
    array = array.copy()
    extremes = [numpy.nan, numpy.inf, -numpy.inf, 1e30, 0] if array.dtype.kind == "f" else [-1, 0, 2**31 - 1, -(2**31)]
    flat = array.reshape(-1)
    with numpy.errstate(all="ignore"):
        flat[chooser.randrange(flat.size)] = numpy.array(chooser.choice(extremes)).astype(array.dtype)
    return array


def _dtype(chooser, array):
    with numpy.errstate(all="ignore"):
        return numpy.zeros(array.shape, chooser.choice(DTYPES))


def _shape(chooser, array):
    shape = list(array.shape)
    for _ in range(chooser.randint(1, 2)):
        if shape and chooser.random() < 0.6:
            shape[chooser.randrange(len(shape))] = chooser.choice([0, 0, 1, 2, 3, 9])
        elif shape and chooser.random() < 0.5:
            del shape[chooser.randrange(len(shape))]
        else:
            shape[:0] = [1] * chooser.choice([1, 1, 6, 9])
    if chooser.random() < 0.1:
        # One element is repeated: as large as one likes, without memory.
        return numpy.broadcast_to(numpy.zeros((), array.dtype), [chooser.choice([2**20, 2**31, 2**40]), *shape][:3])
    return numpy.resize(array, shape)


def _layout(chooser, array):
    kind = chooser.randrange(6)
    if kind == 0:
        return array.T
    if kind == 1:
        return array[::-1] if array.ndim else array
    if kind == 2:
        return numpy.repeat(array, 2, axis=0)[::2] if array.ndim else array
    if kind == 3:
        array = array.copy()
        array.flags.writeable = False
        return array
    if kind == 4 and array.dtype != object:
        crooked = numpy.zeros(array.nbytes + 1, "uint8")[1:]
        return crooked.view(array.dtype).reshape(array.shape) if array.nbytes else array
    return numpy.asfortranarray(array)


def _holder(chooser, array):
    return chooser.choice(
        [
            lambda: OnlyDlpack(array),
            lambda: memoryview(array) if array.dtype.kind in "fiub" else array,
            lambda: Gives(
                chooser.choice([None, 3, "x", ValueError, BufferError, TypeError, RuntimeError, MemoryError])
            ),
            lambda: arrays_of_python.array("f", range(min(array.size, 100))),
            lambda: array.tolist() if array.size < 1000 else [],
            lambda: None,
            lambda: numpy.float32(2),
            lambda: b"bytes",
            lambda: bytearray(array.nbytes % 1000),
            lambda: numpy.ma.masked_array(array),
            lambda: array.view(numpy.recarray),
        ]
    )()


def damaged_text(chooser, text):
    """A text in which some tokens or lines are others."""
    for _ in range(chooser.choice([1, 1, 1, 2, 4])):
        tokens = re.findall(r"\w+|\s+|.", text)
        if not tokens:
            return text
        at = chooser.randrange(len(tokens))
        kind = chooser.randrange(7)
        if kind == 0:
            tokens[at] = chooser.choice(tokens)
        elif kind == 1:
            del tokens[at : at + chooser.choice([1, 1, 3, 50])]
        elif kind == 2:
            tokens.insert(at, chooser.choice(tokens))
        elif kind == 3:
            numbers = [k for k, token in enumerate(tokens) if token.isdigit()] or [at]
            tokens[chooser.choice(numbers)] = chooser.choice(
                ["0", "-1", "3000", "99999999999999999999", "4294967296", "1e400", "2147483647"]
            )
        elif kind == 4:
            tokens.insert(
                at,
                chooser.choice(
                    ["\0", "\ud800", "é", "{", "}", "(", ")", "[" * 50, "(" * 5000, "#", '"', "\r", "@", "-"]
                ),
            )
        elif kind == 5:
            begin = chooser.randrange(len(tokens))
            tokens[at:at] = tokens[begin : begin + chooser.choice([3, 20, 200])]
        else:
            tokens = tokens[:at]
        text = "".join(tokens)
    return text


def damaged(chooser, content):
    """Bytes of which some are others; text that stays text, mostly."""
    try:
        text = content.decode()
        if text.isprintable() or "\n" in text:
            return damaged_text(chooser, text).encode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        pass
    data = bytearray(content)
    for _ in range(chooser.choice([1, 1, 2, 5, 20])):
        if not data:
            break
        at = chooser.randrange(len(data)) if chooser.random() < 0.5 else chooser.randrange(min(len(data), 300))
        kind = chooser.randrange(5)
        if kind == 0:
            data[at] = chooser.randrange(256)
        elif kind == 1:
            data[at] ^= 1 << chooser.randrange(8)
        elif kind == 2:
            del data[at : at + chooser.choice([1, 4, 100])]
        elif kind == 3:
            data[at:at] = bytes(chooser.choice([b"\xff" * 9, b"\0" * 8, data[at : at + 30]]))
        else:
            del data[at:]
    return bytes(data)
