"""Named tuples of what cells and nets give."""

from __future__ import annotations

import functools
import keyword
from collections import namedtuple
from typing import TYPE_CHECKING, Any, Generic, Iterable, Sequence, SupportsIndex, Tuple, TypeVar, overload

from .source import did_you_mean

if TYPE_CHECKING:

    Each = TypeVar("Each")

    class Outputs(Tuple[Each, ...], Generic[Each]):
        """What a call gives, of a class that ``outputs_type`` makes: type checkers know no fields, and take any."""

        _fields: tuple[str, ...]
        _names: tuple[str, ...]
        _name_of: dict[str, str]

        def __getattr__(self, field: str) -> Each: ...
        @overload  # type: ignore[override]  # names, too
        def __getitem__(self, key: str | SupportsIndex) -> Each: ...
        @overload
        def __getitem__(self, key: slice) -> tuple[Each, ...]: ...
        def __getitem__(self, key: Any) -> Any: ...

else:

    class Outputs:
        """What a call gives, in hints."""

        def __class_getitem__(cls, _: Any) -> Any:
            return Any


def _field(name: str) -> str:
    """``name`` as a field of a named tuple: "layer0/h_last" becomes "layer0_h_last"."""
    field = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name).lstrip("_")
    if not field or field[0].isdigit():
        field = "output_" + field
    return field + "_" if keyword.iskeyword(field) else field


def outputs_type(type_name: str, names: Sequence[str]) -> Any:
    """A class of named tuples with a field for each name.

    A value is also found by the name itself, ``out["layer0/h_last"]``; ``out._names`` lists the names, by field.
    """
    fields: dict[str, None] = {}
    longest: dict[str, str] = {}
    for name in names:
        wanted = _field(name)
        field = longest.get(wanted, wanted)
        while field in fields:
            field += "_"
        fields[field] = None
        longest[wanted] = field
    index_of = {name: i for i, name in enumerate(names)}
    name_of = {field: name for field, name in zip(fields, names) if field not in index_of}
    base = namedtuple(type_name, fields)  # type: ignore[misc]

    def no_output(key: str, known: Iterable[str]) -> str:
        return f"there is no output {key!r}; outputs are {', '.join(names)}{did_you_mean(key, known)}"

    def getattr_(self: Any, key: str) -> Any:  # is called where there is no such field
        if key in index_of:
            field = [*fields][index_of[key]]
            raise AttributeError(f"the output {key!r} is no attribute; it is found as out[{key!r}], or as out.{field}")
        raise AttributeError(no_output(key, fields))

    def getitem(self: Any, key: Any) -> Any:
        if isinstance(key, str):
            name = name_of.get(key, key)
            if name not in index_of:
                raise KeyError(no_output(key, [*names, *fields]))
            key = index_of[name]
        return tuple.__getitem__(self, key)

    def reduce(self: Any) -> tuple[Any, ...]:  # the class is no module's, by which pickle would find it
        return _read, (type_name, tuple(names), tuple(self))

    members = {"__getitem__": getitem, "__getattr__": getattr_, "__reduce__": reduce}
    return type(type_name, (base,), {"__slots__": (), "_names": tuple(names), "_name_of": name_of, **members})


_known_type = functools.lru_cache(maxsize=256)(outputs_type)


def _read(type_name: str, names: tuple[str, ...], values: Sequence[Any]) -> Any:
    """Outputs that were pickled."""
    return _known_type(type_name, names)(*values)
