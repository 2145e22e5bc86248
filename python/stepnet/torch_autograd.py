"""One call of a cell on tensors of PyTorch, with gradients by autograd."""

from __future__ import annotations

from typing import Any, Callable, Sequence

import torch
from torch.autograd import forward_ad

from . import _stepnet, errors
from .cell import Cell
from .gradients import Array, Given, Pullback


class Run(torch.autograd.Function):
    """One call of a cell. Its inputs are the cell, the names of what it is given, parameters first, and the tensors."""

    @staticmethod
    def forward(
        ctx: Any, cell: Cell, names: Sequence[str], draw: int | None, *tensors: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        wrt = [name for name, is_needed in zip(names, ctx.needs_input_grad[3:]) if is_needed]
        if not wrt:
            return run(cell, names, draw, tensors)
        ctx.device = tensors[0].device
        stream, exchange = _place_of(ctx.device)
        # Whoever gives a tensor other memory, as `tensor.data = …` does, does not take away what gradients are computed of.
        params, inputs = _arguments(cell, names, [tensor.detach() for tensor in tensors], exchange)
        arrays, gradients = cell._cell.vjp(params, inputs, wrt, {}, False, stream, draw, exchange)
        outputs = _tensors(arrays, stream, exchange)
        ctx.cell, ctx.names, ctx.pullback = cell, names, Pullback(gradients, {})
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*(output for output in outputs if not output.is_floating_point()))
        # The gradients are computed from these where they are: PyTorch tells whoever has written to them since. Outputs
        # on a GPU are copies.
        ctx.save_for_backward(*tensors, *(outputs if stream is None else ()))
        return outputs

    @staticmethod
    def backward(ctx: Any, *output_gradients: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        given = [each for each in output_gradients if each is not None]
        _refuse_batch(ctx.cell, given)
        refuse_transforms(ctx.cell, given)
        tensors = ctx.saved_tensors[: len(ctx.names)]  # raises where one of the saved ones was written to
        if not torch.is_grad_enabled():  # nobody will differentiate the gradients
            return None, None, None, *_gradients(ctx, output_gradients)
        return None, None, None, *_Gradients.apply(ctx, *output_gradients, *tensors)


class _Gradients(torch.autograd.Function):
    """The gradients of one call of a cell: they depend on those of the outputs and on what the call was given.

    PyTorch learns it by these being inputs, so that whoever differentiates the gradients comes to ``backward``.
    """

    @staticmethod
    def forward(ctx: Any, run: Any, *tensors: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        """``run``: the context of the call. ``tensors``: the gradients of its outputs, then what it was given."""
        ctx.name = run.cell.name
        return _gradients(run, tensors[: len(run.cell.outputs)])

    @staticmethod
    def backward(ctx: Any, *_: torch.Tensor | None) -> Any:
        raise errors.InvalidArgumentError(
            f"invalid argument: gradients of {ctx.name} are differentiated, and a cell has no second derivatives; detach "
            "the gradients, take differences of them, or give the cell back by stepnet.to_torch, whose modules have them"
        )


def _gradients(run: Any, output_gradients: Sequence[torch.Tensor | None]) -> tuple[torch.Tensor | None, ...]:
    """By what the call was given, of which ``run`` is the context."""
    stream, exchange = _place_of(run.device)
    names = [name for name, gradient in zip(run.cell.outputs, output_gradients) if gradient is not None]
    given = [gradient for gradient in output_gradients if gradient is not None]
    arrays = _arrays("gradient of the output", names, given, exchange)
    params, inputs = run.pullback._gradients(dict(zip(names, arrays)), {}, stream, exchange)
    found = ((params if name in params else inputs).get(name) for name in run.names)
    return tuple(each if each is None or exchange is not None else _tensor(each, stream) for each in found)


def run(
    cell: Cell, names: Sequence[str], draw: int | None, tensors: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    """One call of a cell, without gradients."""
    stream, exchange = _place_of(tensors[0].device) if tensors else (None, _exchange)
    params, inputs = _arguments(cell, names, tensors, exchange)
    return _tensors(cell._call(params, inputs, stream, draw, exchange), stream, exchange)


_CLASSES = frozenset((torch.Tensor, torch.nn.Parameter))
_exchange: _stepnet.TensorExchange | None = _stepnet.tensor_exchange(
    getattr(torch.Tensor, "__dlpack_c_exchange_api__", None), tuple(_CLASSES)
)  # None before PyTorch 2.10


def _place_of(device: torch.device) -> tuple[int | None, _stepnet.TensorExchange | None]:
    """Where a call runs: the stream on which PyTorch works now, as DLPack numbers it, and None; on the CPU None, and what
    reads tensors and gives them there, where PyTorch has it.
    """
    if device.type != "cuda":
        return None, _exchange
    default = 1
    return _raw_stream_of(device.index) or default, None


_raw_stream_of: Callable[[int], int] = getattr(
    torch._C, "_cuda_getCurrentRawStream", lambda index: torch.cuda.current_stream(index).cuda_stream
)  # the first, which compilers of kernels use, takes a hundredth of the time


def _arguments(
    cell: Cell, names: Sequence[str], tensors: Sequence[torch.Tensor], exchange: _stepnet.TensorExchange | None
) -> tuple[dict[str, Array], dict[str, Array]]:
    """The parameters and the inputs of a call, as calls take them."""
    count = len(cell.params)
    params = _arrays("parameter", names, tensors[:count], exchange)
    inputs = _arrays("input", names[count:], tensors[count:], exchange)
    return dict(zip(names, params)), dict(zip(names[count:], inputs))


def _arrays(
    kind: str, names: Sequence[str], tensors: Sequence[torch.Tensor], exchange: _stepnet.TensorExchange | None
) -> Sequence[Array]:
    """Tensors as calls take them: as they are where there is an exchange, otherwise as arrays over their memory."""
    if exchange is not None and _CLASSES.issuperset(map(type, tensors)):
        return tensors
    return [_array(tensor, kind, name) for name, tensor in zip(names, tensors)]


def _array(tensor: torch.Tensor, kind: str, name: str) -> Array:
    """NumPy's array where there is one, which is read sooner than by DLPack; on a GPU DLPack's capsule, sooner than the tensor.

    What is not contiguous is copied on the host to memory of the core, which is limited, and on a GPU to PyTorch's.
    """
    if tensor.requires_grad:
        tensor = tensor.detach()
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
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


def refuse_tracing(cell: Cell) -> None:
    """Raises InvalidArgumentError where PyTorch records what it computes: of a cell it would keep the values."""
    if torch.jit.is_tracing() or _is_exporting():
        raise traced(cell, "traced")


def traced(cell: Cell, how: str) -> errors.InvalidArgumentError:
    return errors.InvalidArgumentError(
        f"invalid argument: {cell.name} is {how}, and PyTorch sees nothing of what a cell computes; export the cell by "
        "stepnet.onnx.export, and the modules around it by torch.onnx.export, or give it back by stepnet.to_torch first"
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
        "Grad": "use backward() or torch.autograd.grad, or give the cell back by stepnet.to_torch first",
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
            "torch.autograd.grad(…, retain_graph=True) for each of them, or give the cell back by stepnet.to_torch first"
        )
