"""Cells as modules of PyTorch."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

import torch
from torch.autograd.function import once_differentiable

from .cell import Cell
from .gradients import Array, Pullback


class _Run(torch.autograd.Function):
    """One call of a cell. Its inputs are the cell, the names of what it is given, parameters first, and the tensors."""

    @staticmethod
    def forward(ctx: Any, cell: Cell, names: Sequence[str], *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        num_params = len(cell.params)
        given = [tensor.detach().contiguous() for tensor in tensors]
        params = dict(zip(names[:num_params], given))
        inputs = dict(zip(names[num_params:], given[num_params:]))
        wrt = [name for name, is_needed in zip(names, ctx.needs_input_grad[2:]) if is_needed]
        if not wrt:
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
        return None, None, *(None if each is None else torch.from_numpy(each) for each in found)


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
        return cell._make(_Run.apply(cell, names, *params, *inputs.values()))

    def __getstate__(self) -> dict[str, Any]:
        """For ``torch.save`` of the whole module: plans are made again."""
        return {**self.__dict__, "_forms": {}}
