"""Cells as modules of PyTorch."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Sequence

import torch
from torch.autograd.function import once_differentiable
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from . import errors
from .cell import Cell
from .gradients import Array, Pullback


class _Run(torch.autograd.Function):
    """One call of a cell. Its inputs are the cell, the names of what it is given, parameters first, and the tensors.

    It is told whether there will be gradients, since PyTorch says of parameters that they need some under ``no_grad``, too.
    """

    @staticmethod
    def forward(
        ctx: Any, cell: Cell, names: Sequence[str], has_gradients: bool, *tensors: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        num_params = len(cell.params)
        given = [tensor.detach().contiguous() for tensor in tensors]
        params = dict(zip(names[:num_params], given))
        inputs = dict(zip(names[num_params:], given[num_params:]))
        wrt = [name for name, is_needed in zip(names, ctx.needs_input_grad[3:]) if is_needed]
        if not wrt or not has_gradients:
            return tuple(torch.from_numpy(output) for output in cell(params, **inputs))
        arrays, gradients = cell._cell.vjp(params, inputs, wrt, False)
        outputs = tuple(torch.from_numpy(array) for array in arrays)
        ctx.cell, ctx.names, ctx.pullback = cell, names, Pullback(gradients)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*(output for output in outputs if not output.is_floating_point()))
        # The gradients are computed from these where they are: PyTorch tells whoever has written to them since.
        ctx.save_for_backward(*tensors, *outputs)
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *output_gradients: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        ctx.saved_tensors  # noqa: B018 - raises where one of them was written to
        given = {
            name: gradient.contiguous()
            for name, gradient in zip(ctx.cell.outputs, output_gradients)
            if gradient is not None
        }
        gradients = ctx.pullback(**given)
        by_name = {**gradients.params, **gradients.inputs}
        found = (by_name.get(name) for name in ctx.names)
        return None, None, None, *(None if each is None else torch.from_numpy(each) for each in found)


class Module(torch.nn.Module):
    """A cell with its parameters, to be trained with other modules.

    ``forward`` takes the cell's inputs, the first one by position or all by name, as tensors on the CPU, and gives its
    outputs as a named tuple. In training mode dropout drops and zoneout draws, in evaluation they do not. After
    ``double()`` it computes in float64. Gradients of gradients are not there.

    Parameters have the names that they have in the cell (with ``_`` for ``.``), in ``state_dict`` too.
    """

    def __init__(self, cell: Cell, params: Mapping[str, Array] | None = None, *, seed: int = 0) -> None:
        """``params`` are copied; without them the cell's own, drawn from ``seed``."""
        super().__init__()
        self.cell = cell
        self._forms: dict[tuple[bool, bool], Cell] = {}
        self._param_names = [each.name.replace(".", "_") for each in cell.params]
        if len(set(self._param_names)) < len(self._param_names):
            raise ValueError(f"{cell.name} has parameters whose names differ in . and _ alone, which PyTorch cannot hold")
        values = cell.init(seed) if params is None else params
        for each, name in zip(cell.params, self._param_names):
            if each.name not in values:
                raise ValueError(f"the parameter {each.name!r} of {cell.name} is missing; it is {each.dtype} {each.shape}")
            self.register_parameter(name, torch.nn.Parameter(torch.as_tensor(values[each.name]).clone()))

    def extra_repr(self) -> str:
        return repr(self.cell)

    def _form(self) -> Cell:
        """The cell as it runs in this mode and dtype."""
        is_double = any(parameter.dtype == torch.float64 for parameter in self.parameters())
        key = (self.training, is_double)
        if key not in self._forms:
            dtype = "float64" if is_double else "float32"
            self._forms[key] = self.cell.with_options(training=self.training, dtype=dtype)
        return self._forms[key]

    def forward(self, *args: torch.Tensor, **inputs: torch.Tensor) -> Any:
        if len(args) > 1:
            raise TypeError(f"{self.cell.name} takes one input by position, {self.cell.inputs[0].name}; {len(args)} are given")
        if args:
            first = self.cell.inputs[0].name
            if first in inputs:
                raise TypeError(f"the input {first!r} of {self.cell.name} is given twice")
            inputs = {first: args[0], **inputs}
        cell = self._form()
        names = (*(each.name for each in cell.params), *inputs)
        params = (getattr(self, name) for name in self._param_names)
        return cell._make(_Run.apply(cell, names, torch.is_grad_enabled(), *params, *inputs.values()))

    def __getstate__(self) -> dict[str, Any]:
        """For ``torch.save`` of the whole module: plans are made again."""
        return {**self.__dict__, "_forms": {}}


class Recurrent(Module):
    """A cell in the place of a ``torch.nn.RNN``, ``LSTM`` or ``GRU``: it is called as they are.

    ``module(input, hx)`` gives ``output, h_n``. The input is ``[T, B, D]``, or ``[B, T, D]`` for a cell with ``batch_major``;
    ``[T, D]`` is one sequence, whose states are ``[L, H]``. ``hx`` and ``h_n`` are the states ``[L, B, H]``, a tuple of them
    where the cell has several, in the cell's order; row 2 * layer + direction with two directions. Without ``hx`` states
    start as the cell says. A cell with an input ``lengths`` takes a ``PackedSequence``, too, and then gives one.

    The cell's first output is ``output``, and each of its states ``h`` has an ``output h last``.
    """

    def __init__(self, cell: Cell, params: Mapping[str, Array] | None = None, *, seed: int = 0) -> None:
        super().__init__(cell, params, seed=seed)
        starts = [each.name for each in cell.inputs if each.name.endswith("_init")]
        self._states = list(dict.fromkeys(name.rpartition("/")[2][: -len("_init")] for name in starts))
        self._places = list(dict.fromkeys(name.rpartition("/")[0] for name in starts))
        self._directions = 1 + any(place.endswith("reverse") for place in self._places)
        self._has_lengths = any(each.name == "lengths" for each in cell.inputs)
        self._is_batch_major = cell.inputs[0].shape.startswith("[B, T")
        missing = [name for state in self._states for name in self._lasts(state) if name not in cell.outputs]
        if not self._states or missing:
            fault = f"does not give {', '.join(missing)}: write `output STATE last`" if missing else "is given no initial state"
            raise errors.InvalidArgumentError(f"invalid argument: {cell.name} cannot take the place of layers: it {fault}")

    def _lasts(self, state: str) -> list[str]:
        """The outputs that hold the last values of a state, layer by layer."""
        layers = len(self._places) // self._directions
        return [f"layer{k}/{state}_last" for k in range(layers - 1)] + [f"{state}_last"]

    def forward(  # type: ignore[override]  # it is called as PyTorch's modules are, not as Module is
        self, input: torch.Tensor | PackedSequence, hx: Any = None
    ) -> Any:
        if isinstance(input, PackedSequence):
            return self._run_packed(input, hx)
        if input.dim() != 2:
            return self._run(input, hx)
        batch = 0 if self._is_batch_major else 1
        output, last = self._run(input.unsqueeze(batch), self._each(hx, lambda state: state.unsqueeze(1)))
        return output.squeeze(batch), self._each(last, lambda state: state.squeeze(1))

    def _run(self, x: torch.Tensor, hx: Any, lengths: torch.Tensor | None = None) -> Any:
        given = {self.cell.inputs[0].name: x, **self._starts(hx)}
        if self._has_lengths:
            batch, steps = x.shape[:2] if self._is_batch_major else (x.shape[1], x.shape[0])
            given["lengths"] = torch.full((batch,), steps) if lengths is None else lengths
        out = super().forward(**given)
        last = tuple(self._last(out, state) for state in self._states)
        return out[0], last if len(last) > 1 else last[0]

    def _run_packed(self, packed: PackedSequence, hx: Any) -> Any:
        if not self._has_lengths:
            raise errors.TypeMismatchError(
                f"type mismatch: the input of {self.cell.name} is a PackedSequence, but it has no lengths; "
                "give the cell `option lengths = lengths`, or make it by from_torch(module, lengths=True)"
            )
        # In here sequences are in the order of their lengths, as they lie in the packed one.
        data, batch_sizes, order, back = packed
        x, lengths = pad_packed_sequence(PackedSequence(data, batch_sizes), batch_first=self._is_batch_major)
        if order is not None:
            hx = self._each(hx, lambda state: state.index_select(1, order))
        output, last = self._run(x, hx, lengths)
        if back is not None:
            last = self._each(last, lambda state: state.index_select(1, back))
        output = pack_padded_sequence(output, lengths, batch_first=self._is_batch_major)
        return PackedSequence(output.data, batch_sizes, order, back), last

    def _starts(self, hx: Any) -> dict[str, torch.Tensor]:
        """The initial states by the names of the cell's inputs."""
        if hx is None:
            return {}
        given = hx if isinstance(hx, (tuple, list)) else (hx,)
        rows = len(self._places)
        if len(given) != len(self._states) or any(state.shape[:1] != (rows,) for state in given):
            found = ", ".join(str(list(state.shape)) for state in given)
            raise errors.ShapeMismatchError(
                f"shape mismatch: hx of {self.cell.name} is {found}; "
                f"it must be {' and '.join(self._states)}, each [{rows}, B, …]"
            )
        return {
            f"{place}/{name}_init".lstrip("/"): state[row : row + 1]
            for name, state in zip(self._states, given)
            for row, place in enumerate(self._places)
        }

    def _last(self, out: Any, state: str) -> torch.Tensor:
        """``[layers * directions, B, H]`` of one state."""
        parts = [part for name in self._lasts(state) for part in out[name].chunk(self._directions, dim=-1)]
        return torch.cat(parts) if len(parts) > 1 else parts[0]

    @staticmethod
    def _each(states: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
        """``change`` of each state, where there are any."""
        if states is None:
            return None
        return tuple(map(change, states)) if isinstance(states, (tuple, list)) else change(states)
