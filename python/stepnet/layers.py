"""The usual recurrent layers as cells, with the names, shapes and orders of gates of PyTorch's parameters.

Their equations, those of ``torch.nn.RNN``, ``LSTM`` and ``GRU``, with W for ``weight_ih``, U for ``weight_hh``:

- rnn_tanh, rnn_relu: h' = tanh(W x + b_ih + U h + b_hh), and max(0, …).
- lstm: i, f, g, o from W x + b_ih + U h + b_hh; c' = σ(f) c + σ(i) tanh(g); h' = σ(o) tanh(c'), with a projection
  ``weight_hr`` times that.
- gru: r, z = σ(W x + b_ih + U h + b_hh); n = tanh(W_n x + b_in + r (U_n h + b_hn)); h' = (1 - z) n + z h.
"""

from __future__ import annotations

import numbers
import re
import warnings
from typing import Dict, Iterator, NamedTuple, NoReturn, Tuple, get_type_hints

from . import _stepnet, errors
from .cell import Cell, cell
from .net import Net
from .source import did_you_mean, kind_of, repr_of
from .texts import expand
from .words import DType, Mode

Shapes = Dict[str, Tuple[int, ...]]

GATES = {"rnn_tanh": 1, "rnn_relu": 1, "lstm": 4, "gru": 3}
"""How many gates the rows of a weight hold, by mode."""

_STEPS = {
    "rnn_tanh": "h = Tanh({x} + {h})",
    "rnn_relu": "h = Relu({x} + {h})",
    "lstm": """\
i, f, g, o = Split({x} + {h}, axis=-1)
c = Sigmoid(f) * c + Sigmoid(i) * Tanh(g)
h = Sigmoid(o) * Tanh(c)""",
    "gru": """\
x_r, x_z, x_n = Split({x}, axis=-1)
h_r, h_z, h_n = Split({h}, axis=-1)
r = Sigmoid(x_r + h_r)
z = Sigmoid(x_z + h_z)
n = Tanh(x_n + r * h_n)
h = (1 - z) * n + z * h""",
}

_NAMES = {
    "rnn_tanh": "Simple recurrent network",
    "rnn_relu": "Simple recurrent network",
    "lstm": "Long short-term memory",
    "gru": "Gated recurrent unit, reset after the product,",
}

MAX_LAYERS = 1000
"""The most that a cell has."""

_CELL_SUFFIX = "_cell"


class Layers(NamedTuple):
    """What makes layers what they are; the fields have the names and meanings of PyTorch's arguments."""

    mode: str
    input_size: int
    hidden_size: int
    num_layers: int = 1
    bias: bool = True
    batch_first: bool = False
    dropout: float = 0.0
    bidirectional: bool = False
    proj_size: int = 0
    lengths: bool = False
    """Whether there is an input ``lengths``."""
    is_cell: bool = False
    """Whether PyTorch's module is one for a single step, as ``LSTMCell``."""

    def __str__(self) -> str:
        default = self._field_defaults
        said = (f"{name}={value!r}" for name, value in self._asdict().items() if value != default.get(name) and name != "mode")
        return f"{self.mode}({', '.join(said)})"

    @property
    def output_size(self) -> int:
        """Of one direction."""
        return self.proj_size or self.hidden_size

    @property
    def torch_class(self) -> str:
        """The name of the class in ``torch.nn``: ``"LSTMCell"``."""
        return self.mode.partition("_")[0].upper() + "Cell" * self.is_cell

    def places(self) -> Iterator[Tuple[int, str]]:
        """Each layer and direction: its layer, and what stands before its names in the cell."""
        for layer in range(self.num_layers):
            for is_reverse in (False, True)[: 1 + self.bidirectional]:
                prefix = f"layer{layer}/" if self.num_layers > 1 else ""
                yield layer, prefix + "reverse/" * is_reverse

    def shapes(self) -> Shapes:
        """Those of the cell's parameters by name, layer by layer and direction by direction."""
        rows = GATES[self.mode] * self.hidden_size
        width = self.output_size * (1 + self.bidirectional)
        shapes: Shapes = {}
        for layer, prefix in self.places():
            shapes[prefix + "weight_ih"] = (rows, width if layer else self.input_size)
            shapes[prefix + "weight_hh"] = (rows, self.output_size)
            if self.bias:
                shapes[prefix + "bias_ih"] = shapes[prefix + "bias_hh"] = (rows,)
            if self.proj_size:
                shapes[prefix + "weight_hr"] = (self.proj_size, self.hidden_size)
        return shapes

    def torch_names(self) -> Dict[str, str]:
        """What PyTorch calls the parameter, by the name that it has in the cell: ``weight_ih_l1_reverse``."""
        return {name: name if self.is_cell else _stepnet.torch_name_of(name) for name in self.shapes()}

    def text(self) -> str:
        """The cell in the short form."""
        gates = GATES[self.mode]
        rows = "H" if gates == 1 else f"{gates}*H"
        state = "P" if self.proj_size else "H"
        states = f"h[{state}]"
        if self.mode == "lstm":
            states = "h[P], c[H]" if self.proj_size else "h, c[H]"
        name = self.mode + _CELL_SUFFIX * self.is_cell
        sizes = {"D": self.input_size, "H": self.hidden_size, **({"P": self.proj_size} if self.proj_size else {})}
        params = {"weight_ih": f"{rows}, D", "weight_hh": f"{rows}, {state}"}
        if self.bias:
            params |= {"bias_ih": rows, "bias_hh": rows}
        if self.proj_size:
            params["weight_hr"] = "P, H"
        lines = [f"# {_NAMES[self.mode]} as torch.nn.{self.torch_class} has it.", f"cell {name}(x[D]; {states}) {{"]
        lines += [f"  size {size} = {value}" for size, value in sizes.items()]
        lines += [f"  param {param}[{shape}]" for param, shape in params.items()]
        lines += ["", *(f"  {line}" for line in self._step().splitlines()), ""]
        lines += ["  output h", "  output h last"]
        lines += ["  output c last"] if self.mode == "lstm" else []
        lines += [f"  option {option}" for option in self._options()]
        if self.dropout and self.num_layers == 1:  # nothing for the cell, and an attribute of the module
            lines.append(f"  # option dropout = {self.dropout!r} is between layers, and there is one.")
        return "\n".join(lines) + "\n}\n"

    def _step(self) -> str:
        bias_ih, bias_hh = (" + bias_ih", " + bias_hh") if self.bias else ("", "")
        step = _STEPS[self.mode].format(x=f"x @ weight_ih{bias_ih}", h=f"h @ weight_hh{bias_hh}")
        if self.proj_size:
            step = step.replace("h = Sigmoid(o) * Tanh(c)", "h = (Sigmoid(o) * Tanh(c)) @ weight_hr")
        return step

    def _options(self) -> Iterator[str]:
        if self.num_layers > 1:
            yield f"layers = {self.num_layers}"
        if self.bidirectional:
            yield "direction = bidirectional"
        if self.lengths:
            yield "lengths = lengths"
        if self.dropout and self.num_layers > 1:
            yield f"dropout = {self.dropout!r}"
        if self.batch_first:
            yield "batch_major = true"

    def fault(self) -> str:
        """What no layers have, in words; empty where there is nothing of that."""
        if self.mode not in GATES:
            return f"the mode is {repr_of(self.mode)}; it must be one of {', '.join(GATES)}"
        for name in ("input_size", "hidden_size", "num_layers"):
            if getattr(self, name) < 1:
                return f"{name} is {getattr(self, name)}; it must be above 0"
        if self.num_layers > MAX_LAYERS:
            return f"num_layers is {self.num_layers}; it must be at most {MAX_LAYERS}"
        if self.proj_size and self.mode != "lstm":
            return f"proj_size is {self.proj_size}; {self.mode} has no projection, lstm alone has"
        if not 0 <= self.proj_size < self.hidden_size:
            return f"proj_size is {self.proj_size}; it must be at least 0 and below hidden_size, {self.hidden_size}"
        if not 0 <= self.dropout < 1:
            return f"dropout is {self.dropout}; it must be at least 0 and below 1: at 1 nothing reaches the next layer"
        return ""


def layers(
    mode: Mode,
    input_size: int,
    hidden_size: int,
    num_layers: int = 1,
    bias: bool = True,
    batch_first: bool = False,
    dropout: float = 0.0,
    bidirectional: bool = False,
    proj_size: int = 0,
    *,
    lengths: bool = False,
    dtype: DType = "float32",
    **others: NoReturn,
) -> Cell:
    """A cell that computes what ``torch.nn.RNN``, ``LSTM`` or ``GRU`` does. Its ``text`` is there to go on from.

    Parameters are called ``weight_ih [G*H, D]``, ``weight_hh [G*H, H]``, ``bias_ih``, ``bias_hh [G*H]`` and, of
    projections, ``weight_hr [P, H]``; of one of several layers or directions ``layer1/reverse/weight_ih``. Gates lie in
    PyTorch's order, which is that of cuDNN and MXNet, too: i, f, g, o; r, z, n.

    Args:
        mode: ``"rnn_tanh"``, ``"rnn_relu"``, ``"lstm"`` or ``"gru"``; its reset gate acts on the product.
        input_size, hidden_size: D and H above.
        num_layers, bias, bidirectional, proj_size: as of PyTorch's; ``proj_size`` is P above, of an LSTM alone.
        batch_first: whether sequences are ``[B, T, …]`` and not ``[T, B, …]``; states are ``[1, B, …]``.
        dropout: of what all layers but the last give, in training alone; a ``UserWarning`` says that there is one layer.
        lengths: whether there is an input ``lengths``, int32 or int64 ``[B]``. Behind its end a sequence gives zeros, and
            the last states are those at its own end.
        dtype: ``"float32"`` or ``"float64"``, as of :func:`stepnet.cell`.

    Raises:
        InvalidArgumentError: for what no layers have.
        TypeMismatchError: for arguments of another type, and for those that there are none of.
    """
    for name in others:
        known = [each for each in (*Layers._fields, "dtype") if each != "is_cell"]
        hint = f"; the mode says it: {', '.join(GATES)}" if name == "nonlinearity" else did_you_mean(name, known)
        raise errors.TypeMismatchError(f"type mismatch: stepnet.layers has no argument {name}{hint}")
    described = Layers(
        mode, input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size, lengths
    )
    check_types(described)
    described = described._replace(dropout=float(dropout))
    fault = described.fault()
    if fault:
        raise errors.InvalidArgumentError(f"invalid argument: {fault}")
    if described.dropout and num_layers == 1:
        warnings.warn("dropout is between layers, and there is one: it does nothing", UserWarning, stacklevel=2)
    return cell(described.text(), dtype=dtype)


def check_types(given: Layers) -> None:
    """Raises TypeMismatchError for a field that is of another type than it must be."""
    for name, kind in get_type_hints(Layers).items():
        value = getattr(given, name)
        expected = {int: "a whole number of 64 bits", float: "a number", bool: "True or False", str: "a text"}.get(kind)
        abstract = {int: numbers.Integral, float: numbers.Real}.get(kind, kind)
        is_long = isinstance(value, int) and value.bit_length() > 63
        if expected and (is_long or not isinstance(value, abstract) or isinstance(value, bool) != (kind is bool)):
            what = kind_of(value) if hasattr(value, "__len__") and hasattr(value, "shape") else repr_of(value)[:80]
            raise errors.TypeMismatchError(f"type mismatch: {name} is {what}; it must be {expected}")


def layers_of(given: Cell) -> Layers:
    """What layers a cell is: one that ``layers`` or ``from_torch`` has made.

    Raises:
        InvalidArgumentError: for any other, also where its text differs in what a step computes.
    """
    if not isinstance(given, Cell):
        hint = "; of a net give the cell that it was exported from, with net.params" if isinstance(given, Net) else ""
        raise errors.TypeMismatchError(
            f"type mismatch: the cell is {kind_of(given)}; it must be one that stepnet.layers or stepnet.from_torch has made{hint}"
        )
    found = _described(given)
    if found is not None and not found.fault() and _is_same_net(given, found):
        return found
    others = [] if found is None else _options_of_no_layers(given, found)
    fault = f"they have no {' and no '.join(others)}" if others else (
        "only cells that stepnet.layers and stepnet.from_torch make, with no change but of sizes and of options that PyTorch has, are known to"
    )
    raise errors.InvalidArgumentError(
        f"invalid argument: the cell {given.name} does not compute what layers of PyTorch do: {fault}"
    )


def is_for_one_step(given: Cell) -> bool:
    """Whether a cell is that of an ``LSTMCell``, ``GRUCell`` or ``RNNCell`` of PyTorch."""
    described = _described(given)
    return described is not None and described.is_cell


def _described(given: Cell) -> Layers | None:
    """What a cell is by the names and shapes of its parameters and inputs, if it can be layers at all."""
    is_cell = given.name.endswith(_CELL_SUFFIX)
    mode = given.name[: -len(_CELL_SUFFIX)] if is_cell else given.name
    shapes = {each.name: [int(n) for n in re.findall(r"\d+", each.shape)] for each in given.params}
    first = next((prefix + "weight_ih" for prefix in ("", "layer0/") if prefix + "weight_ih" in shapes), None)
    if not given.text or mode not in GATES or first is None or len(shapes[first]) != 2:
        return None
    prefix = first[: -len("weight_ih")]
    projection = shapes.get(prefix + "weight_hr", [0])
    of_layers = (re.match(r"layer(\d+)/", name) for name in shapes)
    count = max(1 + int(match[1]) if match else 1 for match in of_layers)
    text = given.text if count == 1 else re.sub("#.*", "", given.text)  # that of one layer stands in a comment
    in_text = re.search(r"option\s+dropout\s*=\s*(\d*\.?\d+(?:[eE][+-]?\d+)?)", text)
    return Layers(
        mode=mode,
        input_size=shapes[first][1],
        hidden_size=shapes[first][0] // GATES[mode],
        num_layers=count,
        bias=prefix + "bias_ih" in shapes,
        batch_first=given.inputs[0].shape.startswith("[B, T"),
        dropout=float(given._options["named"].get("dropout", in_text[1] if in_text else 0)),
        bidirectional=prefix + "reverse/weight_ih" in shapes,
        proj_size=projection[0],
        lengths=any(each.name == "lengths" for each in given.inputs),
        is_cell=is_cell,
    )


_SAYS_NOTHING = frozenset(("1", "0", "0.0", "false", "forward", "zero"))
"""Values of options that are their defaults."""


def _options_of_no_layers(given: Cell, described: Layers) -> list[str]:
    """What options say of the cell, in its text or beside it, that no layers of PyTorch have: ``option residual = true``."""
    said = dict(re.findall(r"option\s+(\w+)\s*=\s*([\w.]+)", re.sub("#.*", "", given.text)))
    beside = {name: str(value).lower() for name, value in given._options["named"].items()}
    said |= {name: beside[name] for name in _stepnet.cell_options() if name in beside}
    theirs = [option.partition(" ")[0] for option in described._options()]
    return [f"`option {name} = {value}`" for name, value in said.items() if name not in theirs and value not in _SAYS_NOTHING]


def _is_same_net(given: Cell, described: Layers) -> bool:
    """Whether both become the same net in training, where dropout is an operator, too."""
    ours = expand(given.text, sizes=given._options["named"], training=True)
    return ours == expand(described.text(), training=True)
