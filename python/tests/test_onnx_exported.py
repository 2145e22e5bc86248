"""Files that PyTorch's exporters write of modules: onnxruntime and StepNet compute the same."""

import io
import warnings

import numpy
import onnxruntime
import pytest
from onnx_models import expect_equal

import stepnet.onnx

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")
functional = torch.nn.functional
X = torch.randn(3, 9, 8, generator=torch.Generator().manual_seed(1))
LENGTHS = torch.tensor([9, 4, 6])


class Module(torch.nn.Module):
    """What functions compute, all in one file, as exports take seconds: of one tensor, or of a tensor and lengths."""

    def __init__(self, functions):
        super().__init__()
        self.functions = functions
        self.gru = torch.nn.GRU(8, 8, batch_first=True)
        self.conv = torch.nn.Conv1d(8, 4, 3)


class OfOne(Module):
    def forward(self, x):
        return tuple(function(self, x) for function in self.functions)


class OfTwo(Module):
    def forward(self, x, lengths):
        return tuple(function(self, x, lengths) for function in self.functions)


def exported(module, arrays, is_dynamo, is_free):
    """The file as bytes; where sizes are free, the first two of the sequence are."""
    free = [{0: "B", 1: "T"}, {0: "B"}][: len(arrays)]
    options = {"input_names": ["x", "lengths"][: len(arrays)], "dynamo": is_dynamo}
    content = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's, of its older exporter and of names that it takes for sizes
        if is_dynamo:
            auto = torch.export.Dim.AUTO
            shapes = tuple(dict.fromkeys(each, auto) for each in free) if is_free else None
            torch.onnx.export(module, arrays, dynamic_shapes=shapes, verbose=False, **options).save(content)
        else:
            axes = dict(zip(options["input_names"], free)) if is_free else None
            torch.onnx.export(module, arrays, content, dynamic_axes=axes, **options)
    return content.getvalue()


def expect_same(functions, arrays, is_dynamo, is_free):
    torch.manual_seed(2)
    content = exported((OfOne if len(arrays) == 1 else OfTwo)(functions).eval(), arrays, is_dynamo, is_free)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    runtime = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    net = stepnet.onnx.load(content)
    shorter = tuple(each[:2, :7] if each.ndim > 1 else each[:2].clamp(max=7) for each in arrays)
    for given in (arrays, shorter) if is_free else (arrays,):
        inputs = {name: array.contiguous().numpy() for name, array in zip(["x", "lengths"], given)}
        for got, want in zip(net(inputs), runtime.run(None, inputs)):
            expect_equal(numpy.asarray(got), want)


IN_ALL_WAYS = [(dynamo, free) for dynamo in (True, False) for free in (False, True)]
WAYS = pytest.mark.parametrize(
    "is_dynamo, is_free", IN_ALL_WAYS, ids=[f"{'dynamo' if d else 'script'}-{'free' if f else 'fixed'}" for d, f in IN_ALL_WAYS]
)


@WAYS
def test_slices_pads_and_sorts(is_dynamo, is_free):
    functions = [
        lambda module, x: module.gru(x)[0] * module.gru(x)[0].flip(1),
        lambda module, x: torch.cat([x[:, 1:], x[:, :1]], 1),
        lambda module, x: torch.cat([x[:, :, 4:], x[:, :, :4]], -1) * x,
        lambda module, x: x[:, 1::3, ::2] * x[:, 1::3, ::2],
        lambda module, x: x[..., :4] / (1 + x[..., 4:].abs()),
        lambda module, x: x[:, 1:].reshape(x.shape[0], -1),
        lambda module, x: x[:, 1:-1, 2:-2] * 2,
        lambda module, x: functional.pad(x, (1, 2)),
        lambda module, x: functional.pad(x, (0, 0, 3, 0)),
        lambda module, x: functional.pad(x, (2, 1), mode="reflect"),
        lambda module, x: module.conv(functional.pad(x.transpose(1, 2), (2, 0))),
        lambda module, x: torch.sort(x, dim=-1, descending=True)[0],
        lambda module, x: torch.topk(x, 3, dim=1)[1],
        lambda module, x: torch.argsort(x, dim=-1),
        lambda module, x: x.roll(2, 2),
        lambda module, x: functional.cosine_similarity(x, module.gru(x)[0].roll(1, 1), dim=-1),
    ]
    if not is_free:  # as many as a size that the file has to say
        functions.append(lambda module, x: torch.sort(x, dim=1)[1])
    expect_same(functions, (X,), is_dynamo, is_free)


@WAYS
def test_the_last_step_of_each_sequence(is_dynamo, is_free):
    functions = [
        lambda module, h, lengths: h[torch.arange(h.shape[0]), lengths - 1],
        lambda module, h, lengths: h.index_select(1, lengths - 1),
        lambda module, h, lengths: (h * (torch.arange(h.shape[1]) < lengths[:, None])[..., None]).sum(1) / lengths[:, None],
    ]
    if is_dynamo or not is_free:  # otherwise PyTorch writes an If
        functions.append(lambda module, h, lengths: h.gather(1, (lengths - 1).view(-1, 1, 1).expand(-1, 1, 8)).squeeze(1))
    expect_same(functions, (X, LENGTHS), is_dynamo, is_free)
