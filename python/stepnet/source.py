"""What a caller gives as a cell or net: a text, or the path of a file."""

from __future__ import annotations

import difflib
import os
from typing import Any, Iterable, Mapping, Union

from .errors import InvalidArgumentError, TypeMismatchError
from .words import CellWord

Source = Union[str, os.PathLike[str]]


def text_or_path(source: Source, name: str = "the source") -> tuple[str, bool]:
    """The text or the path that was given as the argument ``name``, and whether it is a text: a string with a brace or
    more than one line is one."""
    if isinstance(source, str) and not source:
        raise InvalidArgumentError(f"invalid argument: {name} is ''; it must be a text that says something, or the path of a file")
    if isinstance(source, str) and ("{" in source or "\n" in source):
        return utf8(name, source), True
    if isinstance(source, (str, os.PathLike)):
        return path_of(name, source), False
    hint = "; stepnet.expand makes a net of a cell" if type(source).__name__ == "Cell" else ""
    raise TypeMismatchError(f"type mismatch: {name} is {kind_of(source)}; it must be a text or a path{hint}")


def refuse_onnx(path: str) -> None:
    """Raises InvalidArgumentError for the path of a model in ONNX."""
    if path.lower().endswith(".onnx"):
        raise InvalidArgumentError(
            f"invalid argument: {path} is a model in ONNX; stepnet.onnx.load reads it as a net, which has gradients"
        )


def kind_of(given: Any) -> str:
    """What a wrong argument is, for messages: of arrays dtype and shape and no elements; of other large things the type."""
    kind = with_article(type(given))
    if hasattr(given, "shape") and hasattr(given, "dtype"):
        return f"{kind} {str(given.dtype).rpartition('.')[2]} {list(given.shape)}"
    is_short = given is None or isinstance(given, (bool, int, float, str, bytes))
    return repr_of(given)[:80] if is_short else kind


DTYPES = frozenset("float16 bfloat16 float32 float64 bool int8 int16 int32 int64 uint8 uint16".split())
"""Those of tensors."""


def what_to_lend(given: Any) -> str | None:
    """What to say behind the reason why an array cannot be lent: what it is, and what it must be. None for one whose
    elements no tensor has."""
    fault = without_elements(given)
    if fault:
        return fault
    if hasattr(given, "dtype") and str(given.dtype).rpartition(".")[2] not in DTYPES:
        return None
    if getattr(given, "requires_grad", False):
        return "; stepnet.torch.Module is a cell with gradients of PyTorch"
    return ""


def without_elements(given: Any) -> str:
    """What to say of a tensor without elements of its own that lie side by side: what it is, and what it must be. "" for others."""
    if getattr(given, "is_nested", False):
        return f"; it is {with_article(type(given))} that is nested; it must be dense: call to_padded_tensor(0)"
    layout = str(getattr(given, "layout", "torch.strided"))
    if layout != "torch.strided":
        return f"; it is {kind_of(given)}, {layout}; it must be dense: call to_dense()"
    if getattr(given, "is_quantized", False):
        return f"; it is {kind_of(given)}, quantized; it must have the numbers themselves: call dequantize()"
    if getattr(given, "is_meta", False):
        return f"; it is {kind_of(given)} on meta, where there are no elements; it must have some: of a module, by to_empty and load_state_dict"
    return ""


def with_article(kind: type) -> str:
    """The name of a type, for messages: ``a Tensor``, ``an int``, ``an LSTM``."""
    is_ours = str(kind.__module__).partition(".")[0] == __package__
    name = getattr(kind, "_kind", kind.__name__) if is_ours else kind.__name__  # as what users know it by: a net of ONNX is a Net
    vowels = "AEFHILMNORSX" if name[1:2].isupper() else "AEIOaeio"  # capitals are said one by one
    return f"{'an' if name[:1] in tuple(vowels) or name == 'ndarray' else 'a'} {name}"


MAX_BITS = 1000
"""Of whole numbers that messages print: some versions of Python print them at any length, others refuse."""


def repr_of(given: Any) -> str:
    """``repr(given)``, for messages; a long whole number by its bits, and what has none, as a list of such, by its type."""
    if isinstance(given, int) and given.bit_length() > MAX_BITS:
        return f"an int of {given.bit_length()} bits"
    try:
        return repr(given)
    except ValueError:
        return with_article(type(given))


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """What to say behind an error of a name that is not known: the one that is most like it, where one is."""
    like = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {like[0]}?" if like else ""


def path_of(name: str, path: str | os.PathLike[str]) -> str:
    """The path that was given as the argument ``name``."""
    text: Any = os.fspath(path) if isinstance(path, os.PathLike) else path
    if isinstance(text, str):
        if not text or "\0" in text:
            raise InvalidArgumentError(f"invalid argument: {name} is {text!r}; it must be the path of a file")
        return utf8(name, text)
    raise TypeMismatchError(f"type mismatch: {name} is {kind_of(path)}; it must be a path: a text or an os.PathLike")


def utf8(name: str, text: str) -> str:
    """``text``, which was given as the argument ``name``, and in which there are no lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidArgumentError(f"invalid argument: {name} is {text[:80]!r}; it must be UTF-8") from None
    return text


def all_named(sizes: Mapping[str, CellWord] | None, named: Mapping[str, CellWord]) -> dict[str, CellWord]:
    """Sizes, and options, that were given as a mapping and by name: each once."""
    if sizes is not None and not isinstance(sizes, Mapping):
        raise TypeMismatchError(f"type mismatch: sizes is {kind_of(sizes)}; it must be a dictionary of whole numbers by name")
    twice = next((name for name in named if name in (sizes or {})), None)
    if twice is not None:
        raise InvalidArgumentError(f"invalid argument: the size {twice} is given twice, in sizes and as {twice}={named[twice]}")
    return {**(sizes or {}), **named}


def device_name(device: Any) -> Any:
    """A device of PyTorch by its name; whatever else it is, as it is."""
    kind = type(device)
    return str(device) if (kind.__module__, kind.__name__) == ("torch", "device") else device
