"""PyTorch's recurrent modules as cells, and back. PyTorch is imported by the first call, not with the package."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Mapping, cast

import numpy

from . import errors
from .cell import Argument, Cell, cell
from .gradients import Array, arrays_of
from .layers import Layers, check_types, layers_of
from .source import with_article, without_elements

if TYPE_CHECKING:
    import torch
    from torch.nn import Module

    from .torch import Module as CellModule
else:  # hints can be read where there is no PyTorch, too
    Module = CellModule = Any


def from_torch(module: Module, *, lengths: bool = False) -> tuple[Cell, dict[str, numpy.ndarray]]:
    """The cell that computes what a recurrent module of PyTorch does, and its parameters.

    The cell's ``text`` is there to go on from. It takes and gives sequences as the module does, ``[T, B, …]``, or with
    ``batch_first`` ``[B, T, …]``; states are ``[1, B, …]``, by names: row 2 * layer + direction of ``h_0`` is
    ``layer1/reverse/h_init``. Of an ``LSTMCell`` it is the cell of whole sequences.

    Args:
        module: an ``RNN``, ``LSTM``, ``GRU``, ``RNNCell``, ``LSTMCell`` or ``GRUCell`` of ``torch.nn``, of float32 or
            float64, on any device.
        lengths: whether the cell has an input ``lengths``, int32 or int64 ``[B]``, for what PyTorch takes as a
            ``PackedSequence``.

    Returns:
        The cell, of the module's dtype, and copies of the parameters by its names: ``weight_ih``, or
        ``layer1/reverse/weight_ih`` for ``weight_ih_l1_reverse``; rows and gates are in the module's order.

    Raises:
        TypeMismatchError: for another module, a subclass included, or another dtype.
        InvalidArgumentError: for one with hooks, or one of which ``forward`` or a parameter is not what it was made with.
    """
    _check_is_there("from_torch")
    described = _described(module, lengths)
    check_types(described)
    described = described._replace(dropout=float(described.dropout))
    _check_is_plain(module)
    fault = described.fault()
    if fault:
        raise errors.InvalidArgumentError(f"invalid argument: from_torch: {type(module).__name__}: {fault}")
    params = {name: value.cpu().resolve_neg().numpy().copy() for name, value in _tensors(module, described).items()}
    return cell(described.text(), dtype=next(iter(params.values())).dtype), params


def _check_is_there(function: str) -> None:
    """Raises ModuleNotFoundError where there is no PyTorch."""
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"stepnet.{function} needs PyTorch: pip install 'stepnet[torch]'", name="torch") from error


def _described(module: Any, lengths: bool) -> Layers:
    """What layers a module is. Raises TypeMismatchError for one of another type."""
    from torch import nn

    kind = type(module)
    sizes = ["input_size", "hidden_size", "bias"]
    if kind in (nn.RNN, nn.LSTM, nn.GRU):
        sizes += ["num_layers", "batch_first", "bidirectional", "proj_size"]
        arguments = {name: getattr(module, name) for name in sizes}
        return Layers(str(module.mode).lower(), lengths=lengths, dropout=module.dropout, **arguments)
    if kind in (nn.RNNCell, nn.LSTMCell, nn.GRUCell):
        mode = f"rnn_{module.nonlinearity}" if kind is nn.RNNCell else kind.__name__[: -len("Cell")].lower()
        return Layers(mode, lengths=lengths, is_cell=True, **{name: getattr(module, name) for name in sizes})
    raise errors.TypeMismatchError(
        f"type mismatch: from_torch is given {kind.__name__}; it must be an RNN, LSTM, GRU, RNNCell, LSTMCell or GRUCell of "
        f"torch.nn{_hint(module)}"
    )


def _hint(module: Any) -> str:
    """What to do with a module of a type that from_torch does not take."""
    from torch import nn

    usual = (nn.RNN, nn.LSTM, nn.GRU, nn.RNNCell, nn.LSTMCell, nn.GRUCell)
    base = next((each.__name__ for each in usual if isinstance(module, each)), None)
    if base is not None:
        return (
            f". It is derived from {base} and may compute something else; if it does not, load its state_dict into a "
            f"torch.nn.{base}; of a parametrized module, call torch.nn.utils.parametrize.remove_parametrizations"
        )
    if hasattr(module, "_orig_mod"):
        return "; of a compiled module give _orig_mod"
    return "; give the recurrent modules in it one by one" if isinstance(module, nn.Module) else ""


def _tensors(module: Module, described: Layers) -> dict[str, torch.Tensor]:
    """The parameters of a module by the names of the cell, of the shapes that its sizes say and of one dtype."""
    import torch

    tensors = {}
    for name, theirs in described.torch_names().items():
        value: Any = getattr(module, theirs, None)
        shape = described.shapes()[name]
        is_tensor = isinstance(value, torch.Tensor)
        if not is_tensor or tuple(value.shape) != shape or value.is_meta:
            found = f"{list(value.shape)}{' without values, on meta' * value.is_meta}" if is_tensor else repr(value)
            raise errors.InvalidArgumentError(
                f"invalid argument: from_torch: {theirs} of {type(module).__name__} is {found}; "
                f"it must be a tensor {list(shape)}, as the module's sizes say"
            )
        tensors[name] = value.detach()
    dtypes = {value.dtype for value in tensors.values()}
    if dtypes not in ({torch.float32}, {torch.float64}):
        raise errors.TypeMismatchError(
            f"type mismatch: from_torch: parameters of {type(module).__name__} are {', '.join(sorted(map(str, dtypes)))}; "
            "all must be float32 or all float64: call float() or double() of the module first"
        )
    return tensors


_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


def _check_is_plain(module: Module) -> None:
    """Raises InvalidArgumentError where something else than the module's class decides what it computes."""
    hooks = [each.strip("_") for each in _HOOKS if getattr(module, each, None)]
    if hooks:
        raise errors.InvalidArgumentError(
            f"invalid argument: from_torch: the {type(module).__name__} has {' and '.join(hooks)}, which a cell cannot call; "
            "remove them first (prune.remove, remove_weight_norm and remove_spectral_norm of torch.nn.utils remove theirs)"
        )
    if "forward" in vars(module):
        raise errors.InvalidArgumentError(
            f"invalid argument: from_torch: the {type(module).__name__} has a forward of its own, which a cell cannot call"
        )


def to_torch(given: Cell | CellModule, params: Mapping[str, Array] | None = None) -> Module:
    """The module of PyTorch that computes what a cell of ``from_torch`` or ``stepnet.layers`` does.

    Its ``state_dict`` is, bit for bit, that of the module that the cell came from. It is new, on the CPU, in training mode; that of a
    module is in the module's mode, and its parameters are frozen where those of the module are.

    Args:
        given: the cell, or a ``stepnet.torch.Module`` of it, as ``Recurrent``, whose parameters are then taken. Its ``lengths``,
            which PyTorch knows as ``PackedSequence``, have no place in the module.
        params: an array or tensor for each of the cell's parameters, of its shape, as ``[G*H, D]`` for ``weight_ih`` with G
            gates, all float32 or all float64, which are copied: those of ``from_torch``, or the ``state_dict`` of a ``stepnet.torch.Module``.

    Raises:
        InvalidArgumentError: for a cell that computes something else, or where a parameter is missing or unknown.
        ShapeMismatchError, TypeMismatchError: for a parameter of another shape or dtype.
    """
    if isinstance(given, module_type()):
        own = given._for_inference()[1]
        back = to_torch(given.cell, own if params is None else params)
        kept = dict(given.named_parameters())
        for name, theirs in layers_of(given.cell).torch_names().items():
            if name in kept and not kept[name].requires_grad:
                back.get_parameter(theirs).requires_grad_(False)
        return back.train(given.training)
    described = layers_of(cast(Cell, given))  # it says what else there is
    _check_is_there("to_torch")
    if params is None:
        raise errors.InvalidArgumentError(
            f"invalid argument: to_torch: params, the second argument, is missing: {given.name} has the parameters "
            f"{', '.join(described.shapes())}, as cell.init() or training gives them"
        )
    values = _checked(described, arrays_of("params", params))
    dtype = next(iter(values.values())).dtype
    module = _module_of(described, dtype)
    module.load_state_dict({theirs: values[name] for name, theirs in described.torch_names().items()})
    return module


def module_type() -> tuple[type[CellModule], ...]:
    """``stepnet.torch.Module`` where that has been imported: no type otherwise, as there is no module either."""
    imported = sys.modules.get("stepnet.torch")
    return (imported.Module,) if imported else ()


def or_to_torch(given: Cell) -> str:
    """What errors end with that a module of PyTorch would not raise; nothing where ``to_torch`` takes no such cell."""
    try:
        layers_of(given)
    except errors.Error:
        return ""
    return ", or give the cell back by stepnet.to_torch, whose modules have it"


def tensor_of(what: str, value: Array) -> torch.Tensor:
    """An array or tensor as a tensor without gradients.

    Raises TypeMismatchError for what PyTorch makes no tensor of, and for tensors without elements of their own.
    """
    import torch

    fault = without_elements(value)
    if fault:
        raise errors.TypeMismatchError(f"type mismatch: {what} cannot be read{fault}")
    if isinstance(value, torch.Tensor):
        return value.detach()
    if isinstance(value, numpy.ndarray) and not value.flags.writeable:
        value = value.copy()  # PyTorch has no tensors that are read-only, and warns
    try:
        return torch.as_tensor(value, device="cpu")  # and not PyTorch's default one, which may be meta
    except Exception as error:  # of PyTorch, or of what is given
        raise errors.TypeMismatchError(f"type mismatch: {what} is {with_article(type(value))}, of which PyTorch makes no tensor: {error}") from None


def checked_param(given: Cell, param: Argument, values: Mapping[str, Array]) -> torch.Tensor:
    """The value of a parameter, which is as the cell says."""
    if param.name not in values:
        raise errors.InvalidArgumentError(
            f"invalid argument: the parameter {param.name!r} of {given.name} is missing; "
            f"it is {param.dtype} {param.shape}"
        )
    value = tensor_of(f"the parameter {param.name!r} of {given.name}", values[param.name])
    dtype, shape = str(value.dtype).rpartition(".")[2], str(list(value.shape))
    if dtype == param.dtype and shape == param.shape:
        return value
    kind, error = ("type", errors.TypeMismatchError) if shape == param.shape else ("shape", errors.ShapeMismatchError)
    raise error(
        f"{kind} mismatch: the parameter {param.name!r} of {given.name} is {dtype} {shape}; "
        f"it must be {param.dtype} {param.shape}"
    )


def _checked(described: Layers, params: Mapping[str, Array]) -> dict[str, torch.Tensor]:
    import torch

    shapes = described.shapes()
    missing, unknown = [name for name in shapes if name not in params], [name for name in params if name not in shapes]
    if missing or unknown:
        faults = [f"parameters are missing: {', '.join(missing)}"] * bool(missing)
        faults += [f"there are no parameters {', '.join(unknown)}; they are {', '.join(shapes)}"] * bool(unknown)
        raise errors.InvalidArgumentError(f"invalid argument: to_torch: {'; '.join(faults)}")
    values = {name: tensor_of(f"to_torch: the parameter {name}", params[name]) for name in shapes}
    for name, value in values.items():
        if tuple(value.shape) != shapes[name]:
            raise errors.ShapeMismatchError(
                f"shape mismatch: to_torch: the parameter {name} is {str(value.dtype).rpartition('.')[2]} {list(value.shape)}; "
                f"it must be {list(shapes[name])}"
            )
    if {value.dtype for value in values.values()} not in ({torch.float32}, {torch.float64}):
        found = ", ".join(f"{name} {value.dtype}" for name, value in values.items())
        raise errors.TypeMismatchError(
            f"type mismatch: to_torch: all parameters must be float32 or all float64; they are {found}"
        )
    return values


def _module_of(described: Layers, dtype: Any) -> Module:
    from torch import nn

    arguments = described._asdict()
    for name in ("mode", "lengths", "is_cell"):
        del arguments[name]
    if described.mode.startswith("rnn_"):
        arguments["nonlinearity"] = described.mode[len("rnn_") :]
    if not described.proj_size:
        del arguments["proj_size"]  # which LSTM alone has
    if described.is_cell:
        for name in ("num_layers", "batch_first", "dropout", "bidirectional"):
            del arguments[name]
    return getattr(nn, described.torch_class)(**arguments, dtype=dtype, device="cpu")
