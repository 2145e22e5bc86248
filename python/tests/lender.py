"""Arrays that are lent by DLPack: one that says of itself what one likes, and one of which nothing else is known."""

import ctypes


class _Tensor(ctypes.Structure):
    """DLManagedTensor of DLPack 0.8: DLTensor, and behind it what manages it."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned of DLPack 1.0, which ends with a DLTensor; `tensor` has more behind it."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
PRIVATE = 12  # what DLPack calls devices that only a program knows
FIRST_PRIVATE_STREAM = 1000  # of tests/poison_device


_LENDERS_ON_DEVICES = []  # which read the memory when the caller may have forgotten it


class Lender:
    """Lends 64 KiB of zeros, from their middle on, as an array of `shape`: of float32, on the CPU, or as `fields` say.

    `streams` are those for which it was asked, `num_lent` is how often it has been taken and not given back.
    """

    MEMORY = 1 << 16

    def __init__(self, shape, /, strides=None, **fields):
        self.streams = []
        self.num_lent = 0
        self._shape = (ctypes.c_int64 * len(shape))(*shape)
        self._strides = None if strides is None else (ctypes.c_int64 * len(shape))(*strides)
        self._memory = ctypes.create_string_buffer(self.MEMORY)
        usual = {
            "ndim": len(shape),
            "shape": ctypes.addressof(self._shape),
            "data": ctypes.addressof(self._memory) + self.MEMORY // 2,
            "device_type": 1,
            "code": 2,
            "bits": 32,
            "lanes": 1,
        }
        self._deleter = _DELETER(self._take_back)
        self._said = _Tensor(
            strides=None if strides is None else ctypes.addressof(self._strides),
            **{**usual, "deleter": ctypes.cast(self._deleter, ctypes.c_void_p), **fields},
        )
        self._text = f"Lender({list(shape)}, {strides}, {fields})"

    def __repr__(self):
        return self._text

    def _take_back(self, _):
        self.num_lent -= 1

    @property
    def address(self):
        return self._said.data

    def fill(self, values):
        """Writes an array of NumPy's into the memory, where that is the host's, whatever is said of it."""
        ctypes.memmove(self._said.data, values.ctypes.data, values.nbytes)
        return self

    def __dlpack__(self, *, stream=None, **_):
        self.streams.append(stream)
        self.num_lent += 1
        if self._said.device_type != 1:
            _LENDERS_ON_DEVICES.append(self)
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return make(ctypes.addressof(self._said), b"dltensor", None)

    def __dlpack_device__(self):
        return self._said.device_type, self._said.device_id


class OtherVersion:
    """Lends a row of five float32 by another version of DLPack, in whose layout anything may follow the version."""

    def __init__(self, major, minor):
        self._row = (ctypes.c_float * 5)(1, 1, 1, 1, 1)
        self._shape = (ctypes.c_int64 * 3)(1, 1, 5)
        self._said = _Versioned(major=major, minor=minor)
        if major == 1:
            self._said.tensor = _Tensor(
                data=ctypes.addressof(self._row), device_type=1, ndim=3, code=2, bits=32, lanes=1, shape=ctypes.addressof(self._shape)
            )

    def __dlpack__(self, **_):
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return make(ctypes.addressof(self._said), b"dltensor_versioned", None)

    def __dlpack_device__(self):
        return 1, 0


class OnlyDlpack:
    """An array of which nothing is known but DLPack."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()
