"""Cells as modules of PyTorch."""

from __future__ import annotations

import contextlib
import warnings
from typing import TYPE_CHECKING, Any, Callable, Generic, Mapping, Sequence, TypeVar, cast, overload

try:
    import torch
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("stepnet.torch needs PyTorch: pip install 'stepnet[torch]'", name="torch") from error
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from . import _stepnet, errors
from .cell import Cell, module_name
from .gradients import Array, inputs_of
from .layers import is_for_one_step
from .outputs import Outputs
from .params import rename_from_torch
from .source import with_article
from .torch_attributes import LikeLayers, sizes_of
from .torch_autograd import Run, refuse_tracing, refuse_transforms, run, traced
from .torch_errors import how_to_assign, name_of_output, names_in_layers, no_such_input, not_dense, of_dtype, with_conversion
from .torch_layers import checked_param


def _drawn_seed() -> int:
    """By PyTorch's generator: another one each time, and the same behind the same ``torch.manual_seed``."""
    return int(torch.randint(2**62, (), device="cpu"))


_Gives = TypeVar("_Gives")
_Input = TypeVar("_Input", torch.Tensor, PackedSequence)


class _Called(torch.nn.Module, Generic[_Gives]):
    """A module of which checkers and editors know what its calls take and give, as PyTorch's hints do not say it."""

    if TYPE_CHECKING:

        def __call__(
            self, inputs: torch.Tensor | Mapping[str, torch.Tensor] = ..., /, **named: torch.Tensor
        ) -> _Gives: ...


_BATCH_MAJOR = "or, with option batch_major = true in the cell, as [B, T, …], which it is a view of "


class Module(_Called[_Gives]):
    """A cell with its parameters, to be trained with other modules.

    ``forward`` takes the cell's inputs, the first one by position or all by name or in a dictionary, as tensors, and gives
    its outputs as a named tuple: sequences ``[T, B, …]`` and states ``[1, B, …]``, as the cell says. In training mode
    dropout drops and zoneout draws, in evaluation they do not. After ``double()`` it computes in float64. Gradients of gradients, forward mode, the transforms of ``torch.func`` and
    ``is_grads_batched`` raise InvalidArgumentError.

    It runs where its parameters are, which begin on the cell's device or, where that is ``"cpu"``, on PyTorch's default one, as
    ``with torch.device("meta")`` says it: after ``to("cuda")`` on a GPU, behind what was put into PyTorch's current stream. Inputs must be there, too. Those that are not contiguous are copied, and a
    ``stepnet.CopyWarning`` says so, once for each module.

    Parameters have the names that they have in the cell (with ``_`` for ``.``), in ``state_dict`` too.
    """

    _output: str | None = None
    _has_warned = False

    @overload
    def __init__(
        self: Module[Outputs[torch.Tensor]], cell: Cell, params: Mapping[str, Array] | None = None, *, seed: int | None = None
    ) -> None: ...
    @overload
    def __init__(
        self: Module[torch.Tensor],
        cell: Cell,
        params: Mapping[str, Array] | None = None,
        *,
        seed: int | None = None,
        output: str,
    ) -> None: ...
    def __init__(
        self,
        cell: Cell,
        params: Mapping[str, Array] | None = None,
        *,
        seed: int | None = None,
        output: str | None = None,
    ) -> None:
        """``params``, an array or tensor for each of the cell's, of its shape, as ``[4*H, D]``, are copied; without them the cell's
        own, drawn from ``seed``. With the name of an ``output`` the module
        gives that tensor alone, as ``torch.nn.Sequential`` hands it on.

        Without a seed it is one that follows from ``torch.manual_seed``, another one for each module. What dropout and
        zoneout draw follows in each call from PyTorch's generator, and from the cell's ``seed`` option: in the same state of the
        generator (``torch.manual_seed``, ``set_rng_state``) it is the same, in any module of that cell, as when training goes on
        from a checkpoint, and when ``torch.utils.checkpoint`` runs the module again.

        Raises:
            TypeMismatchError: for what is no cell, and for parameters of another dtype.
            InvalidArgumentError, ShapeMismatchError: for parameters that are missing, unknown or of another shape, and for
                an output that the cell does not have.
        """
        super().__init__()
        if not isinstance(cell, Cell):
            raise errors.TypeMismatchError(
                f"type mismatch: the cell is {with_article(type(cell))}; stepnet.cell, layers and from_torch make cells"
            )
        if output is not None:
            self._output = name_of_output(cell, output)
        self.cell = cell
        self._forms: dict[tuple[bool, bool, str], Cell] = {}
        self._cell_names = [each.name for each in cell.params]
        self._param_names = [module_name(name) for name in self._cell_names]
        self._optional = {each.name for each in cell.inputs if each.optional}
        self._whole = {each.name: each for each in cell.inputs if not each.dtype.startswith("float")}
        if len(set(self._param_names)) < len(self._param_names):
            raise ValueError(f"{cell.name} has parameters whose names differ in . and _ alone, which PyTorch cannot hold")
        values = self._drawn_params(seed) if params is None else cell._by_own_names(params)
        unknown = [name for name in values if name not in {each.name for each in cell.params}]
        if unknown:
            known = ", ".join(each.name for each in cell.params)
            others = _stepnet.other_names_text([str(name) for name in values], self._cell_names)
            raise errors.InvalidArgumentError(
                f"invalid argument: {cell.name} has no parameter {unknown[0]!r}; its parameters are {known}"
                + (f"; {others}" if others else "")
            )
        device = cell._options["device"] if cell._options["device"] != "cpu" else torch.empty(0).device
        for each, name in zip(cell.params, self._param_names):
            value = checked_param(cell, each, values).to(device, copy=True)
            try:
                self.register_parameter(name, torch.nn.Parameter(value))
            except KeyError:
                raise errors.InvalidArgumentError(
                    f"invalid argument: the parameter {each.name!r} of {cell.name} has the name of an attribute of the module"
                ) from None

    def __getattr__(self, name: str) -> Any:
        """Parameters. Is called where there is no such attribute: of layers, the error says what theirs of that name are called."""
        try:
            return super().__getattr__(name)
        except AttributeError as error:
            raise AttributeError(f"{error}{names_in_layers(name, self.__dict__.get('_param_names', ()))}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        """The cell stays: parameters, plans, and what a call is given and gives are made for it."""
        if name == "cell" and name in self.__dict__:
            raise AttributeError(
                f"the cell of a module of {self.cell.name} stays, as its parameters are made for it; make a module of the other one, "
                "with the parameters of this one where it has the same: "
                f"stepnet.torch.{'Recurrent' if isinstance(self, Recurrent) else 'Module'}(cell, module.state_dict())"
            )
        super().__setattr__(name, value)

    def reset_parameters(self, seed: int | None = None) -> None:
        """Fills the parameters anew, in place, as ``cell.init`` does; without a seed by one from PyTorch's generator."""
        values = self._drawn_params(seed)
        with torch.no_grad():
            for each, name in zip(self.cell.params, self._param_names):
                self._param(name).copy_(torch.from_numpy(values[each.name]))

    def _drawn_params(self, seed: int | None) -> dict[str, Any]:
        """The parameters as the cell fills them; without a seed by one from PyTorch's generator."""
        return self.cell.init(_drawn_seed() if seed is None else seed)

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Takes PyTorch's names, too: those of a model that was saved before the module was in it."""
        rename_from_torch(self._param_names, state_dict, prefix)
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **options: Any) -> Any:
        """As that of any module. The error says where the ``state_dict`` of a larger model has the parameters."""
        try:
            return super().load_state_dict(state_dict, *args, **options)
        except RuntimeError as error:
            starts = [start for start in _stepnet.prefixes_of(list(state_dict), self._param_names) if start]
            if not starts:
                raise
            raise RuntimeError(
                f"{error}\n\tAll parameters of {self.cell.name} are there behind {' or '.join(map(repr, starts))}: give "
                f"{{name.removeprefix({starts[0]!r}): each for name, each in state_dict.items() "
                f"if name.startswith({starts[0]!r})}}"
            ) from None

    def _for_inference(self) -> tuple[Cell, dict[str, torch.Tensor]]:
        """The cell as it runs in evaluation, in the parameters' dtype and on the host, with its parameters."""
        params = {each.name: self._param(name).detach().cpu() for each, name in zip(self.cell.params, self._param_names)}
        dtype = "float64" if self._is_double() else "float32"
        return self.cell.with_options(training=False, dtype=dtype, device="cpu"), params

    def _param(self, name: str) -> torch.Tensor:
        """The parameter, wherever the module has it."""
        param = getattr(self, name)
        if param is None:
            raise errors.TypeMismatchError(
                f"type mismatch: the parameter {name!r} of {self.cell.name} is None; it must be a tensor: {how_to_assign(name)}, "
                "of zeros for a bias that is to add nothing"
            )
        return cast(torch.Tensor, param)

    def _is_double(self) -> bool:
        """By the parameters' dtype; without any, by that of the cell."""
        dtypes = [param.dtype for param in (getattr(self, name) for name in self._param_names) if param is not None]
        return torch.float64 in dtypes if dtypes else bool(self.cell._options["in_double"])

    def extra_repr(self) -> str:
        """The cell, as the module is printed."""
        return self.cell._described(self._is_double())

    def _form(self, is_double: bool, device: str = "cpu") -> Cell:
        """The cell as it runs in this mode, in this dtype and on this device."""
        key = (self.training, is_double, device)
        form = self._forms.get(key)
        if form is None:
            dtype = "float64" if is_double else "float32"
            form = self._forms[key] = self.cell.with_options(training=self.training, dtype=dtype, device=device)
        return form

    def _device_of(self, names: Sequence[str], tensors: Sequence[torch.Tensor]) -> str:
        """The device on which all tensors are. Those that are on none that the core knows are refused there, by name."""
        expected = tensors[0].device
        num_params = len(self._param_names)
        for i, (name, tensor) in enumerate(zip(names, tensors)):
            if tensor.device != expected:
                first = "parameter" if num_params else "input"
                raise errors.InvalidArgumentError(
                    f"invalid argument: the {'parameter' if i < num_params else 'input'} {name!r} of {self.cell.name} is on "
                    f"{tensor.device}; it must be on {expected}, as the {first} {names[0]!r} is"
                )
        return str(expected) if expected.type == "cuda" else "cpu"

    def forward(self, *args: Any, **inputs: torch.Tensor) -> Any:
        """Runs the cell over a sequence.

        Args:
            args: the first input, ``[T, B, …]``, or a dictionary of inputs.
            inputs: a tensor for each of the cell's inputs, by name, as ``x=x, lengths=n``.

        Returns:
            A named tuple with a tensor for each output of the cell, ``[T, B, …]`` or ``[1, B, …]`` of the last step; that
            tensor alone where the module was made for one output.
        """
        if args:
            inputs = self._inputs_of(args, inputs)
        given = self._with_tensors(inputs)
        outputs = self._outputs_of(given)
        if not self._has_warned:
            self._warn_of_copies(given)
        return outputs if self._output is None else outputs[self._output]

    def _inputs_of(self, args: tuple[Any, ...], named: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The inputs of a call, by name: the first one may be given by position, or all in a dictionary."""
        if len(args) > 1:
            others = ", ".join(f"{each.name}=…" for each in self.cell.inputs[1:])
            raise TypeError(
                f"{self.cell.name} takes one input by position, {self.cell.inputs[0].name}; {len(args)} are given"
                + (f"; others by name: {others}" if others else "")
            )
        if not isinstance(args[0], torch.Tensor) and isinstance(args[0], Mapping):
            return inputs_of(args[0], named)
        first = self.cell.inputs[0].name
        if first in named:
            raise TypeError(f"the input {first!r} of {self.cell.name} is given twice")
        return {first: args[0], **named}

    def _warn_of_copies(self, inputs: Mapping[str, torch.Tensor]) -> None:
        for name, given in inputs.items():
            if given.is_contiguous():
                continue
            self._has_warned = True
            is_sequence = any(each.name == name and each.shape.startswith("[T, B") for each in self.cell.inputs)
            is_batch_major = is_sequence and given.transpose(0, 1).is_contiguous()
            warnings.warn(
                f"the input {name!r} of {self.cell.name} is not contiguous and is copied; give it as contiguous() makes it "
                f"{_BATCH_MAJOR if is_batch_major else ''}(said once for this module)",
                errors.CopyWarning,
                stacklevel=5,  # behind the calls of torch.nn.Module
            )
            return

    def _with_tensors(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """The inputs, with a tensor beside the others in place of each list of whole numbers, as of lengths. A state that starts
        from None is not among them."""
        left_out = [name for name, each in inputs.items() if each is None and name in self._optional]
        if left_out:
            inputs = {name: each for name, each in inputs.items() if name not in left_out}
        lists = {name: each for name, each in inputs.items() if name in self._whole and isinstance(each, (list, tuple))}
        if not lists:
            return inputs
        device = next((each.device for each in inputs.values() if isinstance(each, torch.Tensor)), None)
        with contextlib.suppress(TypeError, ValueError, RuntimeError):  # who looks at what is no tensor says it
            return {**inputs, **{name: torch.tensor(each, device=device) for name, each in lists.items()}}
        return inputs

    def _outputs_of(self, inputs: Mapping[str, torch.Tensor]) -> Any:
        """All outputs for the cell's inputs by name."""
        cell = self.cell
        if not inputs.keys() <= cell._input_names:
            raise no_such_input(cell, self._param_names, next(name for name in inputs if name not in cell._input_names))
        for name, given in inputs.items():
            if not isinstance(given, torch.Tensor):
                raise errors.TypeMismatchError(
                    f"type mismatch: the input {name!r} of {cell.name} is {with_article(type(given))}; it must be a tensor"
                )
            if given.layout != torch.strided or given.is_nested:
                raise not_dense(cell, name, given)
            if given.requires_grad and name in self._whole:  # as numbers are not that have gradients
                raise of_dtype(cell, self._whole[name], given)
        refuse_tracing(cell)
        # Where they are kept, which takes a sixth of the time of getattr; what parametrizes one takes it away from there.
        kept = self._parameters
        params = [param if (param := kept.get(name)) is not None else self._param(name) for name in self._param_names]
        names = (*self._cell_names, *inputs)
        tensors = (*params, *inputs.values())
        refuse_transforms(cell, tensors)
        device = "cpu" if False not in [tensor.is_cpu for tensor in tensors] else self._device_of(names, tensors)
        # By its parameters' dtype; without any, by that of the inputs, as PyTorch's own modules.
        cell = self._form(torch.float64 in [tensor.dtype for tensor in params or inputs.values()], device)
        # By PyTorch's generator, which torch.utils.checkpoint puts back where it was before it runs a module again.
        draw = _drawn_seed() if cell._cell.draws else None
        try:
            if torch.is_grad_enabled():
                return cell._make(Run.apply(cell, names, draw, *tensors))
            return cell._make(run(cell, names, draw, tensors))
        except errors.TypeMismatchError as error:
            raise with_conversion(error, cell, dict(zip(names, tensors))) from None

    def __prepare_scriptable__(self) -> Any:
        """For ``torch.jit.script``, which would read the text of ``forward``."""
        raise traced(self.cell, "compiled by torch.jit.script")

    def __getstate__(self) -> dict[str, Any]:
        """For ``torch.save`` of the whole module: plans are made again."""
        return {**self.__dict__, "_forms": {}}


class Recurrent(LikeLayers, Module[Any]):
    """A cell in the place of a ``torch.nn.RNN``, ``LSTM`` or ``GRU``: it is called as they are.

    ``module(input, hx)`` gives ``output, h_n``. The input is ``[T, B, D]``, or ``[B, T, D]`` for a cell with ``batch_major``;
    ``[T, D]`` is one sequence, whose states are ``[L, H]``. ``hx`` and ``h_n`` are the states ``[L, B, H]``, a tuple of them
    where the cell has several, in the cell's order; row 2 * layer + direction with two directions. Without ``hx`` states
    start as the cell says. A cell with an input ``lengths`` takes a ``PackedSequence``, too, and then gives one.

    The cell's first output is ``output``, and each of its states ``h`` has an ``output h last``, under no other name. A state
    has one row, not a window of several, and one size in all layers. There are no further inputs.
    """

    if TYPE_CHECKING:

        def __call__(self, input: _Input, hx: Any = None) -> tuple[_Input, Any]: ...  # type: ignore[override]

    def __init__(self, cell: Cell, params: Mapping[str, Array] | None = None, *, seed: int | None = None) -> None:
        """As of a :class:`Module`: ``params`` have the shapes of the cell's, as ``[4*H, D]``.

        Raises:
            InvalidArgumentError: also for a cell that cannot be called as PyTorch's modules are, with the reason.
        """
        super().__init__(cell, params, seed=seed)
        if is_for_one_step(cell):
            raise errors.InvalidArgumentError(
                f"invalid argument: {cell.name} is that of a module for one step, which is called otherwise; "
                "Module takes it, with sequences [T, B, D] of one step or more"
            )
        starts = [each.name for each in cell.inputs if each.name.endswith("_init")]
        self._states = list(dict.fromkeys(name.rpartition("/")[2][: -len("_init")] for name in starts))
        self._places = list(dict.fromkeys(name.rpartition("/")[0] for name in starts))
        self._directions = 1 + any(place.endswith("reverse") for place in self._places)
        self._has_lengths = any((each.name, each.shape) == ("lengths", "[B]") for each in cell.inputs)
        self._is_batch_major = cell.inputs[0].shape.startswith("[B, T")
        fault = self._fault()
        if fault:
            raise errors.InvalidArgumentError(f"invalid argument: {cell.name} cannot take the place of layers: {fault}")
        # By state: the inputs that it starts from, and its sizes behind the batch.
        self._starts_of = {
            state: [f"{place}/{state}_init".lstrip("/") for place in self._places] for state in self._states
        }
        inputs = {each.name: each for each in cell.inputs}
        self._state_sizes = {state: sizes_of(inputs[names[0]]) for state, names in self._starts_of.items()}

    def _fault(self) -> str | None:
        """What keeps the cell from being called as PyTorch's modules are."""
        if not self._states:
            return "it is given no initial state"
        given = [self.cell.inputs[0].name, *["lengths"] * self._has_lengths]
        other = next((each.name for each in self.cell.inputs if each.name not in given and not each.name.endswith("_init")), None)
        if other is not None:
            return (
                f"no call gives its input {other!r}: it gives a sequence, what states start from, and the lengths of a "
                "PackedSequence where the cell has `option lengths = lengths`. Call it by Module"
            )
        missing = [name for state in self._states for name in self._lasts(state) if name not in self.cell.outputs]
        if missing:
            return f"it does not give {', '.join(missing)}: write `output STATE last`, without another name behind `as`"
        for state in self._states:
            name = f"{state}_init"
            shapes = list(dict.fromkeys(each.shape for each in self.cell.inputs if each.name.rpartition("/")[2] == name))
            if len(shapes) > 1:
                return f"its state {state} is {' in one layer and '.join(shapes)} in another; PyTorch has one tensor for all layers"
            if not shapes[0].startswith("[1, "):
                return f"its state {state} starts from several rows, {shapes[0]}; PyTorch's states have one. Call it by Module"
        return None

    def _lasts(self, state: str) -> list[str]:
        """The outputs that hold the last values of a state, layer by layer."""
        layers = len(self._places) // self._directions
        return [f"layer{k}/{state}_last" for k in range(layers - 1)] + [f"{state}_last"]

    def forward(  # type: ignore[override]  # it is called as PyTorch's modules are, not as Module is
        self, input: torch.Tensor | PackedSequence, hx: Any = None, **others: Any
    ) -> Any:
        """Runs as the module of PyTorch does that it stands for.

        Args:
            input: ``[T, B, D]``, ``[B, T, D]`` with ``batch_first``, ``[T, D]`` of one sequence, or packed sequences.
            hx: what states start from, ``[layers · directions, B, H]``, of an LSTM a pair of these; zeros where it is None.

        Returns:
            The output of the last layer, as the input lies, with ``directions · H`` in place of D; and the last states, as
            ``hx``.
        """
        if others:
            hint = "; sequences of several lengths are given as a PackedSequence, as pack_padded_sequence(input, lengths) makes it"
            name = next(iter(others))
            raise TypeError(
                f"{self.cell.name} is called as PyTorch's modules are, with input and hx, and takes no {name!r}"
                f"{hint if name == 'lengths' else ''}"
            )
        for state in hx if isinstance(hx, (tuple, list)) else () if hx is None else (hx,):
            if not isinstance(state, torch.Tensor):
                raise errors.TypeMismatchError(
                    f"type mismatch: hx of {self.cell.name} has {with_article(type(state))}; "
                    "it must be a tensor, or a tuple of tensors"
                )
            if state.is_nested:
                raise not_dense(self.cell, "hx", state)
        if isinstance(input, PackedSequence):
            outputs = self._run_packed(input, hx)
        else:
            outputs = self._run_tensor(input, hx)
            if not self._has_warned:
                self._warn_of_copies({"input": input})
        if hx is not None and not self._has_warned:
            states = {"hx": hx} if isinstance(hx, torch.Tensor) else {f"hx[{i}]": state for i, state in enumerate(hx)}
            spread = {name: state.detach() for name, state in states.items() if not state.is_contiguous()}
            # Each row is read by itself.
            self._warn_of_copies({name: row for name, state in spread.items() for row in state if not row.is_contiguous()})
        return outputs

    def _run_tensor(self, input: torch.Tensor, hx: Any) -> Any:
        if not isinstance(input, torch.Tensor):
            raise errors.TypeMismatchError(
                f"type mismatch: the input of {self.cell.name} is {with_article(type(input))}; "
                "it must be a tensor or a PackedSequence"
            )
        if input.is_nested:
            raise not_dense(self.cell, "input", input)
        if input.dim() < 2:
            raise errors.ShapeMismatchError(
                f"shape mismatch: the input of {self.cell.name} is {list(input.shape)}; it must be {self.cell.inputs[0].shape}, "
                "or that of one sequence, without B"
            )
        if input.dim() != 2:
            return self._run(input, hx)
        batch = 0 if self._is_batch_major else 1
        if hx is not None:
            self._check_states(hx, [])
        hx = self._each(hx, lambda state: state[:, None])
        output, last = self._run(input.unsqueeze(batch), hx)
        return output.squeeze(batch), self._each(last, lambda state: state.squeeze(1))

    def _run(self, x: torch.Tensor, hx: Any, lengths: torch.Tensor | None = None) -> Any:
        batch, steps = x.shape[:2] if self._is_batch_major else (x.shape[1:2].numel(), x.shape[0])
        given = {self.cell.inputs[0].name: x, **self._starts(hx, batch)}
        if self._has_lengths:
            given["lengths"] = torch.full((batch,), steps, device=x.device) if lengths is None else lengths.to(x.device)
        out = self._outputs_of(given)
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
            # A state of another batch stays as it is: it is refused where shapes are compared.
            hx = self._each(hx, lambda state: state.index_select(1, order) if state.shape[1:2] == order.shape else state)
        output, last = self._run(x, hx, lengths)
        if back is not None:
            last = self._each(last, lambda state: state.index_select(1, back))
        output = pack_padded_sequence(output, lengths, batch_first=self._is_batch_major)
        return PackedSequence(output.data, batch_sizes, order, back), last

    def _starts(self, hx: Any, batch: int) -> dict[str, torch.Tensor]:
        """The initial states by the names of the cell's inputs."""
        if hx is None:
            return {}
        given = self._check_states(hx, [batch])
        if len(self._places) == 1:  # itself: a slice takes as long as a small step
            return {self._starts_of[name][0]: state for name, state in zip(self._states, given)}
        return {
            start: state[row : row + 1]
            for name, state in zip(self._states, given)
            for row, start in enumerate(self._starts_of[name])
        }

    def _check_states(self, hx: Any, batch: list[int]) -> Sequence[torch.Tensor]:
        """What ``hx`` has for each state, of the shape that a state of such a batch has, none of one sequence."""
        given = hx if isinstance(hx, (tuple, list)) else (hx,)
        expected = [[len(self._places), *batch, *self._state_sizes[state]] for state in self._states]
        found = [list(state.shape) for state in given]
        if found != expected:
            must = " and ".join(f"{name} {shape}" for name, shape in zip(self._states, expected))
            raise errors.ShapeMismatchError(
                f"shape mismatch: hx of {self.cell.name} is {', '.join(map(str, found))}; it must be {must}"
                + ("" if batch else ", as the input is one sequence, without B")
            )
        return given

    def _last(self, out: Any, state: str) -> torch.Tensor:
        """``[layers * directions, B, H]`` of one state."""
        if len(self._places) == 1:  # itself and no view, which could not be written to
            return out[self._lasts(state)[0]]
        return torch.cat([part for name in self._lasts(state) for part in out[name].chunk(self._directions, dim=-1)])

    @staticmethod
    def _each(states: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
        """``change`` of each state, where there are any."""
        if states is None:
            return None
        return tuple(map(change, states)) if isinstance(states, (tuple, list)) else change(states)
