"""ONNX files, which are untrusted: what they say of sizes and of files beside them is checked before it is used."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Union

import numpy
import onnx
from google.protobuf.message import DecodeError, Message
from onnx import TensorProto, helper, numpy_helper

from ..errors import InputOutputError, InvalidNetError, TypeMismatchError
from ..source import DTYPES, kind_of, path_of

OLDEST_OPSET, NEWEST_OPSET = 7, 28
"""Before version 7 operators of two inputs repeated the second one as Caffe2 does; what comes later is not known."""


VALUES = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data", "raw_data")

STANDARD = ("", "ai.onnx")
"""What ONNX's own operators have as their domain."""


Source = Union[str, os.PathLike[str], bytes, IO[bytes], onnx.ModelProto]
"""What a model is given as: the path of a file, its content, a file that is open for reading, or the message."""

Origin = Union[Path, str]
"""Where a model is from, for messages: its file, or in words what it was given as."""


def fault(origin: Origin, text: str) -> InvalidNetError:
    return InvalidNetError(f"invalid net: {text}\n  in {place_of(origin)}")


def place_of(origin: Origin) -> str:
    return f"file {origin}" if isinstance(origin, Path) else origin


def origin_of(source: Source) -> Origin:
    if isinstance(source, onnx.ModelProto):
        return "the ModelProto"
    if isinstance(source, (bytes, bytearray, memoryview)):
        return "the content of a model"
    return "the open file" if hasattr(source, "read") else Path(path_of("path", source))


def read_model(source: Source, path: Origin) -> onnx.ModelProto:
    """The message, a copy of one that is given, without what lies in other files. ``path``: its origin.

    Raises InputOutputError where the file cannot be read or holds something else, InvalidNetError for a model that
    ONNX's checker refuses, or whose operators are of other versions.
    """
    model = onnx.ModelProto()
    if isinstance(source, onnx.ModelProto):
        model.CopyFrom(source)
    else:
        try:
            model.ParseFromString(content_of(source, path))
        except DecodeError as error:
            raise InputOutputError(f"input/output error: {path} is no ONNX file: {error}") from None
    if not model.HasField("graph") or not model.opset_import:
        raise InputOutputError(f"input/output error: {path} is no ONNX file: it has no graph or no opset")
    check_message(model, path)
    version = opset_of(model)
    if not OLDEST_OPSET <= version <= NEWEST_OPSET:
        raise fault(path, f"the model is of opset {version}; those from {OLDEST_OPSET} to {NEWEST_OPSET} are read")
    return model


def content_of(source: Any, path: Origin) -> bytes:
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes(source)
    try:
        content = path.read_bytes() if isinstance(path, Path) else source.read()
    except OSError as error:
        raise InputOutputError(f"input/output error: {path} cannot be read: {error.strerror or error}") from error
    if not isinstance(content, bytes):
        raise TypeMismatchError(f"type mismatch: {path} gives {kind_of(content)}; it must give bytes: open(path, 'rb')")
    return content


def check_message(message: Message, path: Origin) -> None:
    """Refuses texts that are no UTF-8, which are given as bytes, and sizes below 0. A size of -1 is one that is not known,
    as some programs write it, and becomes such a one.
    """
    if isinstance(message, onnx.ValueInfoProto):
        sizes = message.type.tensor_type.shape.dim
        for size in sizes:
            if size.dim_value == -1:
                size.ClearField("dim_value")
        if any(size.dim_value < 0 for size in sizes):
            raise fault(path, f'"{message.name}" has sizes {[size.dim_value for size in sizes]}, of which none may be below -1')
    for field, value in message.ListFields():
        values: Sequence[Any] = value if isinstance(value, Sequence) and not isinstance(value, (str, bytes)) else [value]
        if field.type == field.TYPE_STRING and any(isinstance(each, bytes) for each in values):
            raise fault(path, f"the field {field.full_name} has a text that is no UTF-8")
        if field.type == field.TYPE_MESSAGE:
            for each in values:
                check_message(each, path)


def bodies_of(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """The graphs that a node has as attributes, as the body of a Scan."""
    return [each.g for each in node.attribute if each.HasField("g")]


def opset_of(model: onnx.ModelProto) -> int:
    return max((each.version for each in model.opset_import if each.domain in STANDARD), default=0)


def dtype_of(element_type: int) -> numpy.dtype | None:
    """None for a number that stands for none."""
    try:
        return helper.tensor_dtype_to_np_dtype(element_type)
    except KeyError:
        return None


def is_read(dtype: numpy.dtype) -> bool:
    """Whether there are tensors of it."""
    return dtype.name in DTYPES


def array_of(tensor: TensorProto, path: Origin) -> numpy.ndarray:
    """The elements of a tensor, of which there are as many as its sizes say."""
    where = f'the tensor "{tensor.name}"'
    if any(size < 0 for size in tensor.dims):
        raise fault(path, f"{where} has sizes {list(tensor.dims)}")
    if tensor.HasField("segment") or tensor.data_type in (TensorProto.UNDEFINED, TensorProto.STRING):
        raise fault(path, f"{where} is of a kind that is not read: {TensorProto.DataType.Name(tensor.data_type)}")
    dtype = dtype_of(tensor.data_type)
    if dtype is None:
        raise fault(path, f"{where} has a dtype that is not known: {tensor.data_type}")
    if not is_read(dtype):
        raise fault(path, f"{where} is of dtype {dtype}, which is not read")
    size_bytes = math.prod(tensor.dims) * dtype.itemsize
    places = [name for name in VALUES if len(getattr(tensor, name)) > 0]
    if tensor.data_location == TensorProto.EXTERNAL:
        places.append("another file")
    if len(places) > 1:
        raise fault(path, f"{where} has values in {' and in '.join(places)}; they belong in one place")
    if tensor.data_location == TensorProto.EXTERNAL:
        return external_array(tensor, dtype, size_bytes, path)
    if tensor.HasField("raw_data") and len(tensor.raw_data) != size_bytes:
        raise fault(path, f"{where} has {len(tensor.raw_data)} bytes; {dtype} {list(tensor.dims)} has {size_bytes}")
    try:
        return numpy_helper.to_array(tensor)
    except (ValueError, TypeError) as error:
        raise fault(path, f"{where}, {dtype} {list(tensor.dims)}, has other elements: {error}") from None


def external_array(tensor: TensorProto, dtype: numpy.dtype, size_bytes: int, path: Origin) -> numpy.ndarray:
    """A tensor in another file, which is in the folder of the model or below it."""
    where = f'the tensor "{tensor.name}"'
    if not isinstance(path, Path):
        raise fault(path, f"{where} is in another file, of which nothing says where it is; give the path of the model, or what onnx.load makes of it")
    said = {each.key: each.value for each in tensor.external_data}
    if len(said) < len(tensor.external_data):
        raise fault(path, f"{where} says twice where it is in another file")
    folder, location = path.resolve().parent, said.get("location", "")
    if "\0" in location:
        raise fault(path, f"{where} is in the file {location!r}, which is no name of a file")
    file = (folder / location).resolve()  # follows links
    if folder not in file.parents:
        raise fault(path, f"{where} is in the file {location!r}, which is not in the model's folder")
    numbers = [said.get("offset", "0"), said.get("length", str(size_bytes))]
    # Python would also read spaces, underscores, and the digits of other scripts.
    if any(re.fullmatch("-?[0-9]{1,19}", number) is None for number in numbers):
        raise fault(path, f"{where} has an offset or length that is no number")
    offset, length = map(int, numbers)
    if length != size_bytes:
        raise fault(path, f"{where} has {length} bytes in {file.name}; {dtype} {list(tensor.dims)} has {size_bytes}")
    try:
        if not 0 <= offset <= os.path.getsize(file) - size_bytes:
            raise fault(path, f"{where} has bytes {offset} to {offset + size_bytes} of {file.name}, which has fewer")
        array = numpy.fromfile(file, dtype, math.prod(tensor.dims), offset=offset)
    except OSError as error:
        raise InputOutputError(f"input/output error: {file} cannot be read: {error.strerror or error}") from error
    return array.reshape(tuple(tensor.dims))
