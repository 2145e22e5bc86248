"""What models read of PyTorch's recurrent modules, of a module that takes their place: sizes, options, parameters."""

from __future__ import annotations

import functools
from typing import Any

import torch

from . import _stepnet, errors
from .cell import Argument, Cell, module_name
from .layers import Layers, layers_of
from .torch_errors import how_to_assign


class LikeLayers(torch.nn.Module):
    """The attributes of an ``nn.LSTM``, ``GRU`` or ``RNN`` that follow from the cell.

    ``mode``, ``nonlinearity``, ``bias``, ``dropout``, ``proj_size`` and ``all_weights`` are those of cells that ``stepnet.layers`` and ``from_torch``
    make; others have none. Parameters are there by PyTorch's names, too: ``weight_hh_l0``, ``[G*H, H]`` with G gates.
    """

    cell: Cell
    _states: list[str]
    _places: list[str]
    _directions: int
    _is_batch_major: bool
    _state_sizes: dict[str, list[int]]

    @functools.cached_property
    def _layers(self) -> Layers | None:
        """What layers the cell is; None for any other cell."""
        try:
            return layers_of(self.cell)
        except errors.InvalidArgumentError:
            return None

    def _of_layers(self, name: str) -> Layers:
        if self._layers is None:
            raise AttributeError(
                f"a module of {self.cell.name} has no {name}: that is of cells that stepnet.layers and from_torch make"
            )
        return self._layers

    @property
    def input_size(self) -> int:
        """The last size of the input, ``[T, B, input_size]``."""
        return sizes_of(self.cell.inputs[0])[0]

    @property
    def hidden_size(self) -> int:
        """In one direction; of a cell that is none of PyTorch's layers that of the first state."""
        return self._state_sizes[self._states[0]][0] if self._layers is None else self._layers.hidden_size

    @property
    def num_layers(self) -> int:
        """How many layers there are, of two directions each where it is bidirectional."""
        return len(self._places) // self._directions

    @property
    def bidirectional(self) -> bool:
        """Whether each layer also goes through the steps from the last one."""
        return self._directions > 1

    @property
    def batch_first(self) -> bool:
        """Whether the input and the output are ``[B, T, …]``."""
        return self._is_batch_major

    @property
    def mode(self) -> str:
        """``"LSTM"``, ``"GRU"``, ``"RNN_TANH"`` or ``"RNN_RELU"``."""
        return self._of_layers("mode").mode.upper()

    @property
    def nonlinearity(self) -> str:
        """``"tanh"`` or ``"relu"``, of an RNN."""
        mode, _, nonlinearity = self._of_layers("nonlinearity").mode.partition("_")
        if mode != "rnn":
            raise AttributeError(f"a module of {self.cell.name} has no nonlinearity: that is of an RNN")
        return nonlinearity

    @property
    def bias(self) -> bool:
        """Whether there are biases."""
        return self._of_layers("bias").bias

    @property
    def dropout(self) -> float:
        """Between layers, in training."""
        return self._of_layers("dropout").dropout

    @property
    def proj_size(self) -> int:
        """To what an LSTM projects its output; 0 where it does not."""
        return self._of_layers("proj_size").proj_size

    @property
    def all_weights(self) -> list[list[torch.nn.Parameter]]:
        """The parameters of each layer and direction, weights before biases, each in its shape, ``[G*H, D]`` with G gates."""
        names = list(self._of_layers("all_weights").shapes())
        count = len(names) // len(self._places)
        return [[getattr(self, name) for name in names[i : i + count]] for i in range(0, len(names), count)]

    def flatten_parameters(self) -> None:
        """Does nothing: the compiler lays weights out as its kernels like them."""

    def __getattr__(self, name: str) -> Any:
        """Parameters by PyTorch's names. Is called where there is no such attribute."""
        if isinstance(getattr(LikeLayers, name, None), property):  # which has raised an AttributeError, and says why again
            return getattr(LikeLayers, name).fget(self)
        return super().__getattr__(self._own_name(name))

    def __setattr__(self, name: str, value: Any) -> None:
        """What follows from the cell is read-only, and parameters are set by the names that the cell has for them."""
        own = self._own_name(name)
        if own != name:
            raise AttributeError(
                f"{name} of {self.cell.name} is its parameter {own!r}, which is not set by PyTorch's name; {how_to_assign(own)}"
            )
        followed = vars(LikeLayers).get(name)
        if isinstance(followed, property) and getattr(type(self), name) is followed:
            raise AttributeError(f"{name} of {self.cell.name} is read-only: it follows from the cell; make a module of another one")
        super().__setattr__(name, value)

    def _own_name(self, name: str) -> str:
        """The module's name for the parameter that PyTorch calls so; any other name as it is."""
        cell = self.__dict__.get("cell")
        if not cell or "_l" not in name:
            return name
        return {_stepnet.torch_name_of(each.name): module_name(each.name) for each in cell.params}.get(name, name)


def sizes_of(argument: Argument) -> list[int]:
    """The sizes of an argument behind the dimensions of steps and batch."""
    return [int(size) for size in argument.shape.strip("[]").split(", ")[2:]]
