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
        params, inputs = _arguments(cell, names, tensors)
        ctx.device = tensors[0].device
        stream = _stream_of(ctx.device)
        arrays, gradients = cell._cell.vjp(params, inputs, wrt, {}, False, stream, draw)
        outputs = _tensors(arrays, stream)
        ctx.cell, ctx.names, ctx.pullback = cell, names, Pullback(gradients, {})
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*(output for output in outputs if not output.is_floating_point()))
        # The gradients are computed from these where they are: PyTorch tells whoever has written to them since. Outputs
        # on a GPU are copies.
        ctx.save_for_backward(*tensors, *(outputs if stream is None else ()))
        return outputs

    @staticmethod
    def backward(ctx: Any, *output_gradients: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        refuse_transforms(ctx.cell, [each for each in output_gradients if each is not None])
        tensors = ctx.saved_tensors[: len(ctx.names)]  # raises where one of the saved ones was written to
        return None, None, None, *_Gradients.apply(ctx, *output_gradients, *tensors)


class _Gradients(torch.autograd.Function):
    """The gradients of one call of a cell: they depend on those of the outputs and on what the call was given.

    PyTorch learns it by these being inputs, so that whoever differentiates the gradients comes to ``backward``.
    """

    @staticmethod
    def forward(ctx: Any, run: Any, *tensors: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        """``run``: the context of the call. ``tensors``: the gradients of its outputs, then what it was given."""
        ctx.name = run.cell.name
        given = {
            name: _array(gradient, "gradient of the output", name)
            for name, gradient in zip(run.cell.outputs, tensors)
            if gradient is not None
        }
        stream = _stream_of(run.device)
        params, inputs = run.pullback._gradients(given, {}, stream)
        by_name = {**params, **inputs}
        found = (by_name.get(name) for name in run.names)
        return tuple(None if each is None else _tensor(each, stream) for each in found)

    @staticmethod
    def backward(ctx: Any, *_: torch.Tensor | None) -> Any:
        raise errors.InvalidArgumentError(
            f"invalid argument: gradients of {ctx.name} are differentiated, and a cell has no second derivatives; detach "
            "the gradients, take differences of them, or give the cell back by stepnet.to_torch, whose modules have them"
        )


def run(
    cell: Cell, names: Sequence[str], draw: int | None, tensors: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    """One call of a cell, without gradients."""
    stream = _stream_of(tensors[0].device) if tensors else None
    params, inputs = _arguments(cell, names, tensors)
    return _tensors(cell._call(params, inputs, stream, draw), stream)


def _stream_of(device: torch.device) -> int | None:
    """The stream on which PyTorch works now, as DLPack numbers it; None on the CPU."""
    if device.type != "cuda":
        return None
    default = 1
    return _raw_stream_of(device.index) or default


_raw_stream_of: Callable[[int], int] = getattr(
    torch._C, "_cuda_getCurrentRawStream", lambda index: torch.cuda.current_stream(index).cuda_stream
)  # the first, which compilers of kernels use, takes a hundredth of the time


def _arguments(cell: Cell, names: Sequence[str], tensors: Sequence[torch.Tensor]) -> tuple[dict[str, Array], ...]:
    """The parameters and the inputs of a call, as arrays over the tensors' memory."""
    count = len(cell.params)
    arrays = [_array(each, "parameter" if i < count else "input", names[i]) for i, each in enumerate(tensors)]
    return dict(zip(names[:count], arrays)), dict(zip(names[count:], arrays[count:]))


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


def _tensors(arrays: Sequence[Given], stream: int | None) -> tuple[torch.Tensor, ...]:
    """Arrays as tensors. Of those that show the same state all but the first in memory are copied: tensors are written to."""
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


_is_exporting: Callable[[], bool] = getattr(torch.compiler, "is_exporting", lambda: False)


def refuse_tracing(cell: Cell) -> None:
    """Raises InvalidArgumentError where PyTorch records what it computes: of a cell it would keep the values."""
    if torch.jit.is_tracing() or torch.onnx.is_in_onnx_export() or _is_exporting():
        raise traced(cell, "traced")


def traced(cell: Cell, how: str) -> errors.InvalidArgumentError:
    return errors.InvalidArgumentError(
        f"invalid argument: {cell.name} is {how}, and PyTorch sees nothing of what a cell computes; export the cell by "
        "stepnet.onnx.export, and the modules around it by torch.onnx.export, or give it back by stepnet.to_torch first"
    )


_is_transformed: Callable[[], bool] = getattr(torch._C, "_are_functorch_transforms_active", lambda: False)


def refuse_transforms(cell: Cell, tensors: Sequence[torch.Tensor]) -> None:
    """Raises InvalidArgumentError where tensors stand for more than their values: for batches, or tangents, too."""
    what = ""
    if _is_transformed():
        what = "a transform of torch.func, as vmap, grad or jvp,"
    elif forward_ad._current_level >= 0 and any(forward_ad.unpack_dual(each).tangent is not None for each in tensors):
        what = "forward mode (torch.autograd.forward_ad)"
    if what:
        raise errors.InvalidArgumentError(
            f"invalid argument: {cell.name} is called in {what} of which a cell knows nothing; use backward() and "
            "torch.autograd.grad, and the cell's own batch, or give the cell back by stepnet.to_torch first"
        )
