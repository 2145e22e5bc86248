"""One call of a cell on tensors of PyTorch, with gradients by autograd."""

from __future__ import annotations

from typing import Any, Callable, Sequence

import torch
from torch.autograd import forward_ad

from . import _stepnet, errors
from .cell import Cell
from .gradients import Array, Given
from .torch_layers import or_to_torch


class Run(torch.autograd.Function):
    """One call of a cell. Its inputs are the cell, the names of what it is given, parameters first, and the tensors."""

    @staticmethod
    def forward(
        ctx: Any, cell: Cell, names: tuple[str, ...], draw: int | None, *tensors: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        is_needed = ctx.needs_input_grad[3:]
        if True not in is_needed:
            return run(cell, names, draw, tensors)
        ctx.cell, ctx.names, ctx.draw, ctx.gpu = cell, names, draw, _gpu_of(tensors)
        if _are_saved_elsewhere():
            # What hooks give back counts, and what they let go is not to be held: the call is made again from that.
            ctx.gradients = None
            outputs = run(cell, names, draw, [tensor.data for tensor in tensors])
            ctx.save_for_backward(*tensors)
        else:
            outputs, ctx.gradients = _run_for_gradients(ctx, tensors)
            # The gradients are computed from these where they are: PyTorch tells whoever has written to them since.
            # Outputs on a GPU are copies.
            ctx.save_for_backward(*tensors, *(outputs if ctx.gpu is None else ()))
        ctx.set_materialize_grads(False)
        if cell._whole_outputs:
            ctx.mark_non_differentiable(*(outputs[i] for i in cell._whole_outputs))
        return outputs

    @staticmethod
    def backward(ctx: Any, *output_gradients: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        given = [each for each in output_gradients if each is not None]
        if _is_transformed() or forward_ad._current_level >= 0 or any(map(_is_batch_of_gradients, given)):
            _refuse_batch(ctx.cell, given)
            refuse_transforms(ctx.cell, given)
        saved = ctx.saved_tensors  # raises where one of them was written to
        tensors = saved[: len(ctx.needs_input_grad) - 3]
        gradients = ctx.gradients
        if gradients is None:
            _, gradients = _run_for_gradients(ctx, tensors)
        if not torch.is_grad_enabled():  # nobody will differentiate the gradients
            return None, None, None, *_gradients(ctx, gradients, output_gradients)
        return None, None, None, *_Gradients.apply(ctx, gradients, *output_gradients, *tensors)


class _Gradients(torch.autograd.Function):
    """The gradients of one call of a cell: they depend on those of the outputs and on what the call was given.

    PyTorch learns it by these being inputs, so that whoever differentiates the gradients comes to ``backward``.
    """

    @staticmethod
    def forward(
        ctx: Any, run: Any, gradients: _stepnet.CallGradients, *tensors: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, ...]:
        """``run``: the context of the call. ``tensors``: the gradients of its outputs, then what it was given."""
        ctx.cell = run.cell
        return tuple(_gradients(run, gradients, tensors[: len(run.cell.outputs)]))

    @staticmethod
    def backward(ctx: Any, *_: torch.Tensor | None) -> Any:
        raise errors.InvalidArgumentError(
            f"invalid argument: gradients of {ctx.cell.name} are differentiated, and a cell has no second derivatives; detach "
            f"the gradients, or take differences of them{or_to_torch(ctx.cell)}"
        )


def _run_for_gradients(run: Any, tensors: Sequence[torch.Tensor]) -> tuple[tuple[torch.Tensor, ...], _stepnet.CallGradients]:
    """The call of which ``run`` is the context: its outputs, and what gives the gradients."""
    stream, exchange = _place_of(run.gpu)
    # Whoever gives a tensor other memory, as `tensor.data = …` does, does not take away what gradients are computed of.
    arguments = _arguments(run.cell, run.names, [tensor.data for tensor in tensors], exchange)
    call = _call_of(run.cell, run.names, run.needs_input_grad[3:])
    arrays, gradients = call.run_for_gradients(arguments, stream, exchange, run.draw)
    return _tensors(arrays, stream, exchange), gradients


def _gradients(
    run: Any, gradients: _stepnet.CallGradients, output_gradients: Sequence[torch.Tensor | None]
) -> Sequence[torch.Tensor | None]:
    """By what the call was given, of which ``run`` is the context."""
    stream, exchange = _place_of(run.gpu)
    given = _arrays("gradient of the output", run.cell.outputs, output_gradients, exchange)
    arrays = gradients.in_order(given, stream, exchange)
    return arrays if exchange is not None else [each if each is None else _tensor(each, stream) for each in arrays]


def run(
    cell: Cell, names: tuple[str, ...], draw: int | None, tensors: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    """One call of a cell, without gradients."""
    stream, exchange = _place_of(_gpu_of(tensors))
    arguments = _arguments(cell, names, tensors, exchange)
    return _tensors(_call_of(cell, names, ()).run(arguments, stream, exchange, draw), stream, exchange)


def _call_of(cell: Cell, names: tuple[str, ...], is_needed: tuple[bool, ...]) -> _stepnet.TensorCall:
    """How a cell is called on tensors of these names, for gradients by those that are needed; made once."""
    call = cell._tensor_calls.get((names, is_needed))
    if call is None:
        count = len(cell.params)
        needed = [name for name, is_its in zip(names, is_needed) if is_its]
        call = _stepnet.TensorCall(cell._cell, names[:count], names[count:], needed)
        cell._tensor_calls[names, is_needed] = call
    return call


_CLASSES = frozenset((torch.Tensor, torch.nn.Parameter))
_CLASSES_OR_NONE = _CLASSES | {type(None)}
_exchange: _stepnet.TensorExchange | None = _stepnet.tensor_exchange(
    getattr(torch.Tensor, "__dlpack_c_exchange_api__", None), tuple(_CLASSES)
)  # None before PyTorch 2.10


def _gpu_of(tensors: Sequence[torch.Tensor]) -> torch.device | None:
    """On which they are; None for the host."""
    return tensors[0].device if tensors and tensors[0].is_cuda else None


def _place_of(gpu: torch.device | None) -> tuple[int | None, _stepnet.TensorExchange | None]:
    """Where a call runs: the stream on which PyTorch works now, as DLPack numbers it, and None; on the CPU None, and what
    reads tensors and gives them there, where PyTorch has it.
    """
    if gpu is None:
        return None, _exchange
    default = 1
    return _raw_stream_of(gpu.index) or default, None


_raw_stream_of: Callable[[int], int] = getattr(
    torch._C, "_cuda_getCurrentRawStream", lambda index: torch.cuda.current_stream(index).cuda_stream
)  # the first, which compilers of kernels use, takes a hundredth of the time


def _arguments(
    cell: Cell, names: Sequence[str], tensors: Sequence[torch.Tensor], exchange: _stepnet.TensorExchange | None
) -> Sequence[Array]:
    """The parameters and the inputs of a call, as calls take them."""
    if exchange is not None and _CLASSES.issuperset(map(type, tensors)):
        return tensors
    count = len(cell.params)
    params = _arrays("parameter", names, tensors[:count], exchange)
    return [*params, *_arrays("input", names[count:], tensors[count:], exchange)]


def _arrays(
    kind: str, names: Sequence[str], tensors: Sequence[torch.Tensor | None], exchange: _stepnet.TensorExchange | None
) -> Sequence[Array]:
    """Tensors as calls take them: as they are where there is an exchange, otherwise as arrays over their memory."""
    if exchange is not None and _CLASSES_OR_NONE.issuperset(map(type, tensors)):
        return tensors
    return [each if each is None else _array(each, kind, name) for name, each in zip(names, tensors)]


def _array(tensor: torch.Tensor, kind: str, name: str) -> Array:
    """NumPy's array where there is one, which is read sooner than by DLPack; on a GPU DLPack's capsule, sooner than the tensor.

    What is not contiguous is copied on the host to memory of the core, which is limited, and on a GPU to PyTorch's.
    """
    if tensor.requires_grad:
        tensor = tensor.detach()
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
    if tensor._is_zerotensor():  # it has no memory
        tensor = tensor.clone()
    if tensor.is_cuda:
        return torch.utils.dlpack.to_dlpack(tensor.contiguous())
    try:
        array = tensor.numpy()
    except (RuntimeError, TypeError):  # bfloat16, what is refused: by name, where it is read
        return tensor
    return array if tensor.is_contiguous() else _stepnet.contiguous_copy(array, kind, name)


def _tensor(array: Given, stream: int | None) -> torch.Tensor:
    """A tensor over the memory of an array, which is ready on that stream."""
    if stream is None:
        return torch.from_numpy(array)
    return torch.utils.dlpack.from_dlpack(array.__dlpack__(stream=stream))


def _tensors(
    arrays: Sequence[Any], stream: int | None, exchange: _stepnet.TensorExchange | None
) -> tuple[torch.Tensor, ...]:
    """What a call gives as tensors, which an exchange has made of it.

    Of those that show the same state all but the first in memory are copied: tensors are written to.
    """
    if exchange is not None:
        return tuple(arrays)
    if stream is not None:  # on a GPU each has memory of its own
        return tuple(_tensor(array, stream) for array in arrays)
    tensors = [torch.from_numpy(array) for array in arrays]
    spans = sorted((tensor.data_ptr(), -array.nbytes, i) for i, (tensor, array) in enumerate(zip(tensors, arrays)))
    taken_to = 0
    for begin, minus_bytes, i in spans:
        if begin < taken_to:
            tensors[i] = tensors[i].clone()
        taken_to = max(taken_to, begin - minus_bytes)
    return tuple(tensors)


# PyTorch that has the first exports ONNX by that, or traces.
_is_exporting: Callable[[], bool] = getattr(torch.compiler, "is_exporting", torch.onnx.is_in_onnx_export)


def _is_made_graph() -> bool:
    """Whether PyTorch makes a graph of what it computes (make_fx)."""
    return _mode_of is not None and _mode_of(torch._C._TorchDispatchModeKey.PROXY) is not None


_mode_of: Callable[[Any], Any] | None = getattr(torch._C, "_get_dispatch_mode", None)
_hooks_of_saved: Callable[[bool], Any] = getattr(
    torch._C._autograd, "_top_saved_tensors_default_hooks", lambda _: None
)  # those of save_on_cpu, of checkpoints that are not reentrant, …


def _are_saved_elsewhere() -> bool:
    """Whether hooks are told what is saved for gradients, and may give other tensors back."""
    return _hooks_of_saved(True) is not None


def refuse_tracing(cell: Cell) -> None:
    """Raises InvalidArgumentError where PyTorch records what it computes: of a cell it would keep the values."""
    if torch.jit.is_tracing() or _is_exporting() or _is_made_graph():
        raise traced(cell, "traced")


def traced(cell: Cell, how: str) -> errors.InvalidArgumentError:
    return errors.InvalidArgumentError(
        f"invalid argument: {cell.name} is {how}, and PyTorch sees nothing of what a cell computes; export the cell by "
        f"stepnet.onnx.export, and the modules around it by torch.onnx.export{or_to_torch(cell)}"
    )


_is_transformed: Callable[[], bool] = getattr(torch._C, "_are_functorch_transforms_active", lambda: False)
_is_batch_of_gradients: Callable[[torch.Tensor], bool] = getattr(
    getattr(torch._C, "_functorch", None), "is_legacy_batchedtensor", lambda _: False
)  # what is_grads_batched makes


def _transform() -> str:
    """The transform of ``torch.func`` that is the innermost: Vmap, Grad, Jvp, …; nothing where none is under way."""
    return torch._C._functorch.peek_interpreter_stack().key().name if _is_transformed() else ""


def _other_ways(cell: Cell) -> dict[str, str]:
    """What there is in place of transforms."""
    first = cell.inputs[0]
    return {
        "Vmap": f"give what is mapped over as sequences of one batch, the input {first.name!r} as {first.shape}",
        "Grad": f"use backward() or torch.autograd.grad{or_to_torch(cell)}",
        "Jvp": "use backward() or torch.autograd.grad, or take differences of outputs",
    }


def refuse_transforms(cell: Cell, tensors: Sequence[torch.Tensor]) -> None:
    """Raises InvalidArgumentError where tensors stand for more than their values: for batches, or tangents, too."""
    if transform := _transform():
        other_way = _other_ways(cell).get(transform, "call it outside of it")
        raise errors.InvalidArgumentError(
            f"invalid argument: {cell.name} is called in a transform of torch.func, {transform.lower()}, which does not go "
            f"through a cell; {other_way}"
        )
    if forward_ad._current_level >= 0 and any(forward_ad.unpack_dual(each).tangent is not None for each in tensors):
        raise errors.InvalidArgumentError(
            f"invalid argument: {cell.name} is called in forward mode (torch.autograd.forward_ad), which does not go through "
            f"a cell; {_other_ways(cell)['Jvp']}"
        )


def _refuse_batch(cell: Cell, output_gradients: Sequence[torch.Tensor]) -> None:
    """Raises InvalidArgumentError where each gradient stands for a batch of them: a cell computes for one."""
    if _transform() == "Vmap" or any(map(_is_batch_of_gradients, output_gradients)):
        raise errors.InvalidArgumentError(
            f"invalid argument: {cell.name} is given many gradients of its outputs at once (is_grads_batched=True or "
            "vectorize=True of torch.autograd, or vmap around it), and a cell computes for one; call "
            f"torch.autograd.grad(…, retain_graph=True) for each of them{or_to_torch(cell)}"
        )
