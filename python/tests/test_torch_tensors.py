"""Tensors of PyTorch that cells, nets and files are given."""

import pickle

import numpy
import pytest

import stepnet

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import stepnet.torch  # noqa: E402 - needs torch


def test_tangents_are_refused_by_cells_and_nets(lstm, tmp_path):
    """Nobody would notice that they are lost."""
    forward_ad, params, x = torch.autograd.forward_ad, lstm.init(), torch.randn(4, 2, 5)
    total = {"w": torch.zeros(16, 5)}
    outputs, pullback = lstm.vjp(params, wrt="w", gradient_requests={"w": "add"}, x=x)
    (tmp_path / "net.pbtxt").write_text('op { type: "Tanh" input: "x" output: "y" }')
    net = stepnet.load(tmp_path / "net.pbtxt")
    with forward_ad.dual_level():
        dual = {name: forward_ad.make_dual(torch.from_numpy(array), torch.ones(array.shape)) for name, array in params.items()}
        dual_x, ones = forward_ad.make_dual(x, x), torch.ones(4, 2, 4)
        for call, named in (
            (lambda: lstm(params, x=dual_x), 'the input "x"'),
            (lambda: lstm.vjp(params, x=dual_x), 'the input "x"'),
            (lambda: lstm({**params, "w": dual["w"]}, x=x), 'the parameter "w"'),
            (lambda: pullback(total, h=forward_ad.make_dual(ones, ones)), 'the gradient of the output "h"'),
            (lambda: pullback({"w": dual["w"]}, h=ones), "the array of into for 'w'"),
            (lambda: net(x=dual_x), 'the input "x"'),
        ):
            with pytest.raises(stepnet.InvalidArgumentError, match=f"{named}.* has a tangent of forward mode"):
                call()
        assert numpy.array_equal(lstm(params, x=x).h, outputs.h)  # no tangent is in it
    assert not total["w"].any()


def negative_views(tensor):
    """Tensors that are as this one, and whose memory holds the negative of it."""
    part = torch.complex(torch.zeros_like(tensor), -tensor).conj().imag
    views = [torch._neg_view(-tensor), part]
    assert all(view.is_neg() and torch.equal(view, tensor) for view in views)
    return views


@pytest.mark.filterwarnings("ignore::stepnet.CopyWarning")
def test_tensors_that_are_the_negative_of_their_memory_are_read_as_they_are(lstm, tmp_path):
    x, params = torch.randn(3, 2, 5), {name: torch.from_numpy(each) for name, each in lstm.init(seed=1).items()}
    expected, pullback = lstm.vjp(params, x=x)
    seed = torch.randn(3, 2, 4)
    gradient = pullback(h=seed).inputs["x"]
    module = stepnet.torch.Module(lstm, params)
    for i in range(2):
        given = {name: negative_views(each)[i] for name, each in params.items()}
        view = negative_views(x)[i].requires_grad_()
        assert numpy.array_equal(lstm(given, x=view.detach()).h, expected.h)
        assert numpy.array_equal(pullback(h=negative_views(seed)[i]).inputs["x"], gradient)
        h = torch.func.functional_call(module, given, (view,)).h
        assert numpy.array_equal(h.detach(), expected.h)
        h.backward(negative_views(seed)[i])
        assert numpy.array_equal(view.grad, gradient)
        stepnet.save_params(given, tmp_path / "negative.npz")
        read = stepnet.load_params(tmp_path / "negative.npz")
        assert all(numpy.array_equal(read[name], each) for name, each in params.items())
    cell = stepnet.layers("gru", 3, 4)
    vector = torch.randn(108)
    assert numpy.array_equal(
        stepnet.packed.split(negative_views(vector)[0], cell)["bias_hh"], stepnet.packed.split(vector, cell)["bias_hh"]
    )


def test_tensors_are_read_where_they_are():
    x = torch.randn(3, 4)
    assert stepnet._stepnet.address_of(x) == x.data_ptr()
    half = torch.zeros(3, dtype=torch.bfloat16)
    assert stepnet._stepnet.address_of(half) == half.data_ptr()


def test_modules_compute_of_tensors_where_they_are(set_max_memory):
    """There is no memory for a copy of any, with gradients and without."""
    cell = stepnet.cell("cell c(x[100000]; h[2]) { param w[2, 100000]; h = x @ w; output h }", disable_pass="pack_weights")
    module, x = stepnet.torch.Module(cell, {"w": torch.full((2, 100_000), 0.5)}), torch.ones(2, 1, 100_000)
    module(x[:0])  # makes the cell, which takes memory
    set_max_memory(stepnet.memory().current + x.nbytes // 4)
    for with_gradients in (False, True):
        with torch.set_grad_enabled(with_gradients):
            assert module(x).h.tolist() == [[[50_000, 50_000]]] * 2


def test_tensors_without_memory_are_refused():
    """PyTorch frees what a storage is cut to nothing, and leaves the sizes; a part of it has an offset to no memory."""
    cell = stepnet.cell("cell q(x[3]; h[3]) { h = h + x; output h }")
    whole, part = torch.ones(4, 2, 3), torch.ones(8, 2, 3)[4:]
    for x in (whole, part):
        x.untyped_storage().resize_(0)
        with pytest.raises(stepnet.InvalidArgumentError, match='the input "x" has 24 elements and no memory'):
            cell({}, x=x)
        with pytest.raises(stepnet.InvalidArgumentError, match="has 24 elements and no memory"):
            stepnet.torch.Module(cell)(x)


def test_bfloat16_that_must_be_copied_is_refused():
    half = torch.zeros(4, 4, dtype=torch.bfloat16).t()[::2]
    with pytest.raises(stepnet.InvalidArgumentError, match="has no bfloat16; give a copy"):
        stepnet._stepnet.address_of(half)


def test_outputs_become_tensors_without_a_copy(lstm):
    h = lstm(lstm.init(), x=torch.randn(3, 2, 5)).h
    assert torch.from_dlpack(h).data_ptr() == h.ctypes.data


def test_devices_of_pytorch_are_taken(cells, tmp_path):
    cpu = torch.device("cpu")
    cell = stepnet.cell(cells / "lstm.cell", D=5, H=4, device=cpu).with_options(device=cpu)
    stepnet.torch.Module(pickle.loads(pickle.dumps(cell)))(torch.randn(2, 1, 5))
    net = 'op { type: "Relu" input: "x" output: "y" }'
    assert stepnet.load(net, device=cpu)(x=torch.ones(2)).y.tolist() == [1, 1]
    stepnet.set_max_memory(stepnet.memory(cpu).limit, cpu)
    with pytest.raises(stepnet.InvalidArgumentError, match="meta"):
        stepnet.cell(cells / "lstm.cell", D=5, H=4, device=torch.device("meta"))


def test_outputs_are_resized_within_their_memory_alone(lstm, module):
    """As PyTorch's tensors of others' memory are, those of NumPy's arrays: more is PyTorch's own error."""
    with torch.no_grad():
        outputs = [module(torch.randn(3, 2, 5)).h, torch.from_dlpack(lstm(lstm.init(), x=torch.randn(3, 2, 5)).h)]
    for h in outputs:
        first = h[:2].clone()
        assert torch.equal(h.resize_(2, 2, 4), first)
        with pytest.raises(RuntimeError, match="storage that is not resizable"):
            h.resize_(7, 2, 4)
        assert h.clone().resize_(7, 2, 4).shape == (7, 2, 4)


def add_into(lstm, array):
    requests = {"b": "add"}
    return lstm.value_and_grad(lstm.init(), "h", wrt="b", gradient_requests=requests, into={"b": array}, x=torch.ones(2, 1, 5))


def test_gradients_are_added_to_tensors(lstm):
    total = torch.zeros(16)
    _, gradients = add_into(lstm, total)
    assert gradients.params["b"] is total and total.abs().sum() > 0
    flat = torch.nn.Parameter(torch.zeros(32))
    add_into(lstm, flat.detach()[::2])
    assert torch.equal(flat[::2], total) and not flat[1::2].any()


@pytest.mark.parametrize("part", [lambda total: total, lambda total: total.detach(), lambda total: total.reshape(16)])
def test_pytorch_notices_that_gradients_were_added(lstm, part):
    """It has kept the values of a tensor, or of one in the same memory, for gradients that need them."""
    weights, total = torch.ones(4, 4, requires_grad=True), torch.zeros(4, 4)
    loss = (weights * total).sum()
    add_into(lstm, part(total).reshape(16))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    with torch.no_grad():
        after = total.clone()
    (weights * after).sum().backward()
    assert torch.equal(weights.grad, after)


def test_gradients_are_added_to_a_number_and_in_inference():
    """PyTorch counts no changes of tensors of inference mode, and keeps none of them for gradients."""
    cell = stepnet.cell("cell c(x[2]; h[2]) { param a[]; h = Tanh(a * x + h); output h }")
    with torch.inference_mode():
        totals = [torch.zeros(()), torch.zeros(2)[0]]
    totals.append(torch.zeros(()))
    for total in totals:
        for _ in range(2):
            cell.value_and_grad({"a": numpy.float32(1)}, "h", wrt="a", gradient_requests={"a": "add"}, into={"a": total}, x=torch.ones(1, 1, 2))
    expected = cell.value_and_grad({"a": numpy.float32(1)}, "h", wrt="a", x=torch.ones(1, 1, 2))[1].params["a"]
    assert [total.item() for total in totals] == [2 * expected.item()] * 3


@pytest.mark.parametrize(
    "tensor, error, message",
    [
        (lambda: torch.nn.Parameter(torch.zeros(16)), stepnet.InvalidArgumentError, "for 'b' a tensor that requires gradients"),
        (lambda: torch.zeros(16, dtype=torch.bfloat16), stepnet.TypeMismatchError, "for 'b' is a Tensor, of which NumPy makes"),
        (lambda: torch.zeros(16).to_sparse(), stepnet.TypeMismatchError, "for 'b' is a Tensor, of which NumPy makes no array"),
        (lambda: torch.zeros(16, device="meta"), stepnet.InvalidArgumentError, "for 'b' an array on meta; it must be in the host"),
        (lambda: torch.zeros(16, dtype=torch.cfloat).conj().imag, stepnet.InvalidArgumentError, "give tensor.resolve_neg"),
        (lambda: torch._neg_view(torch.zeros(16)), stepnet.InvalidArgumentError, "is the negative of what its memory holds"),
        (lambda: torch.zeros(16, dtype=torch.cfloat), stepnet.TypeMismatchError, "is a Tensor of complex64; it must be an array"),
        (lambda: torch.zeros(16, dtype=torch.double), stepnet.TypeMismatchError, "float64 .*; it must be float32"),
        (lambda: torch.zeros(1).expand(16), stepnet.InvalidArgumentError, "whose elements share memory"),
    ],
)
def test_tensors_that_gradients_cannot_be_added_to(lstm, tensor, error, message):
    with pytest.raises(error, match=message):
        add_into(lstm, tensor())


def test_vectors_and_parameters_of_layers_may_be_tensors():
    cell = stepnet.layers("gru", 3, 4)
    module = stepnet.torch.Module(cell)
    vector = stepnet.packed.join(dict(module.named_parameters()), cell)
    assert numpy.array_equal(vector, stepnet.packed.join({k: v.detach().numpy() for k, v in module.named_parameters()}, cell))
    split = stepnet.packed.split(torch.nn.Parameter(torch.from_numpy(vector)), cell)
    assert numpy.array_equal(split["bias_hh"], module.bias_hh.detach().numpy())


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda tensor: tensor.bfloat16(), "is a Tensor, of which NumPy makes no array"),
        (lambda tensor: tensor.to_sparse(), "is a Tensor, of which NumPy makes no array"),
        (lambda tensor: tensor.to("meta"), "is a Tensor, of which NumPy makes no array"),
        (lambda tensor: tensor.double(), "is float64; it must be float32"),
        (lambda tensor: tensor.tolist() + [[]], "is a list, no array; it must be one of NumPy"),
        (lambda tensor: None, "is None, no array; it must be one of NumPy"),
        (lambda tensor: "x", "is 'x', no array; it must be one of NumPy"),
    ],
)
def test_vectors_and_parameters_of_layers_that_are_no_arrays(change, message):
    cell = stepnet.layers("gru", 3, 4)
    params = {name: torch.from_numpy(array) for name, array in cell.init().items()}
    with pytest.raises(stepnet.TypeMismatchError, match=f"packed: the vector {message}"):
        stepnet.packed.split(change(torch.zeros(108)), cell)
    with pytest.raises(stepnet.TypeMismatchError, match=f"packed: bias_hh {message}"):
        stepnet.packed.join({**params, "bias_hh": change(params["bias_hh"])}, cell)
    with pytest.raises(stepnet.TypeMismatchError, match="params is a list; it must be a dictionary of arrays"):
        stepnet.packed.join(list(params.values()), cell)


def test_a_parameter_that_requires_gradients_is_saved_and_refused_by_a_cell(lstm, module, tmp_path):
    params = dict(module.named_parameters())
    stepnet.save_params(params, tmp_path / "module.npz")
    read = stepnet.load_params(tmp_path / "module.npz")
    assert all(numpy.array_equal(read[name], each.detach()) for name, each in params.items())
    with pytest.raises(stepnet.TypeMismatchError, match='the parameter "w" cannot be read: .*; stepnet.torch.Module is a cell'):
        lstm(params, x=torch.randn(3, 2, 5))


def test_dtypes_of_pytorch_are_known(cells, lstm):
    for dtype in (torch.float32, torch.float64):
        name = str(dtype).rpartition(".")[2]
        assert stepnet.cell(cells / "lstm.cell", D=5, H=4, dtype=dtype).params[0].dtype == name
        assert lstm.with_options(dtype=dtype).params[0].dtype == name
        assert stepnet.layers("gru", 3, 4, dtype=dtype).params[0].dtype == name
    with pytest.raises(stepnet.TypeMismatchError, match="dtype is torch.float16; it must be float32 or float64"):
        lstm.with_options(dtype=torch.float16)


WITHOUT_ELEMENTS = {
    "on meta": (lambda t: t.to("meta"), r"a Tensor float32 \[{sizes}\] on meta, where there are no elements; it must have some: of a module, by to_empty and load_state_dict$"),
    "sparse": (lambda t: t.to_sparse(), r"a Tensor float32 \[{sizes}\], torch.sparse_coo; it must be dense: call to_dense"),
    "for oneDNN": (lambda t: t.to_mkldnn(), r"a Tensor float32 \[{sizes}\], torch._mkldnn; it must be dense: call to_dense"),
    "quantized": (
        lambda t: torch.quantize_per_tensor(t, 0.1, 0, torch.qint8),
        r"a Tensor qint8 \[{sizes}\], quantized; it must have the numbers themselves: call dequantize\(\)$",
    ),
    "nested": (
        lambda t: torch.nested.nested_tensor([t, t]),
        r"a Tensor that is nested; it must be dense: call to_padded_tensor\(0\)$",
    ),
}
OF_NO_DTYPE = {
    name: (lambda t, dtype=dtype: t.to(dtype), f"has elements {dtype}, which no tensor has; tensors have float16, bfloat16, ")
    for name, dtype in (("complex", torch.cfloat), ("8 bits", torch.float8_e5m2), ("unsigned", torch.uint32))
}
OF_NO_DTYPE["conjugate"] = (lambda t: t.to(torch.cfloat).conj(), OF_NO_DTYPE["complex"][1])


def calls(lstm, tmp_path):
    """Each place of a tensor: what gives it there, what it is called, and its sizes."""
    params, x = lstm.init(), torch.zeros(3, 2, 5)
    net = 'op { type: "FC" input: "x" input: "w" input: "b" output: "y" } op { type: "AveragedLoss" input: "y" output: "l" }'

    def of_train_net(w):
        return stepnet.train_net(net, {"w": w, "b": torch.zeros(16)}, loss="l")

    return [
        (lambda t: lstm(params, x=t), 'the input "x"', (3, 2, 5)),
        (lambda t: lstm({**params, "w": t}, x=x), 'the parameter "w"', (16, 5)),
        (lambda t: lstm(params, x=x, h_init=t), 'the initial state "h_init"', (1, 2, 4)),
        (lambda t: lstm.vjp(params, x=x)[1](h=t), 'the gradient of the output "h"', (3, 2, 4)),
        (of_train_net, 'the parameter "w"', (16, 5)),
        (lambda t: stepnet.load(net, init={"w": t, "b": torch.zeros(16)}), 'the parameter "w"', (16, 5)),
        (lambda t: stepnet.save_params({"w": t}, tmp_path / "w.npz"), 'the parameter "w"', (16, 5)),
    ]


@pytest.mark.filterwarnings("ignore:.*PyTorch API of nested tensors.*", "ignore:.*quantize_per_tensor.*")
@pytest.mark.parametrize("kind", WITHOUT_ELEMENTS)
def test_tensors_without_elements_of_their_own_are_refused_with_what_to_do(lstm, kind, tmp_path):
    change, message = WITHOUT_ELEMENTS[kind]
    for call, name, sizes in calls(lstm, tmp_path):
        wanted = f"{name} cannot be read: .*; it is " + message.replace("{sizes}", ", ".join(map(str, sizes)))
        with pytest.raises(stepnet.TypeMismatchError, match=wanted):
            call(change(torch.zeros(sizes)))


@pytest.mark.parametrize("kind", OF_NO_DTYPE)
def test_tensors_of_dtypes_that_no_tensor_has_are_refused(lstm, kind, tmp_path):
    change, message = OF_NO_DTYPE[kind]
    for call, name, sizes in calls(lstm, tmp_path):
        with pytest.raises(stepnet.TypeMismatchError, match=f"{name} {message}"):
            call(change(torch.zeros(sizes)))


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float64])
def test_tensors_of_another_dtype_are_refused_with_the_one_that_it_must_be(lstm, dtype, tmp_path):
    for call, name, sizes in calls(lstm, tmp_path)[:4]:
        found = f"{str(dtype).rpartition('.')[2]} \\[{', '.join(map(str, sizes))}\\]"
        with pytest.raises(stepnet.TypeMismatchError, match=f"{name} (of lstm )?is {found}; it must be float32"):
            call(torch.zeros(sizes, dtype=dtype))


@pytest.mark.filterwarnings("ignore:.*PyTorch API of nested tensors.*", "ignore:.*quantize_per_tensor.*")
@pytest.mark.parametrize("kind", WITHOUT_ELEMENTS)
def test_modules_take_no_parameters_without_elements(lstm, kind):
    change, message = WITHOUT_ELEMENTS[kind]
    params = lstm.init()
    wanted = "the parameter 'w' of lstm cannot be read; it is " + message.replace("{sizes}", "16, 5")
    with pytest.raises(stepnet.TypeMismatchError, match=wanted):
        stepnet.torch.Module(lstm, {**params, "w": change(torch.from_numpy(params["w"]))})


@pytest.mark.parametrize(
    "given, found",
    [
        (torch.nn.Parameter(torch.ones(2)), r"float32 \[2\]"),
        (torch.ones(2, dtype=torch.uint32), r"uint32 \[2\]"),
        (torch.empty(2, dtype=torch.int4), r"int4 \[2\]"),
        (torch.ones(2, dtype=torch.cfloat), r"complex64 \[2\]"),
    ],
    ids=["parameter", "unsigned", "4 bits", "complex"],
)
def test_modules_name_the_dtype_of_lengths(given, found):
    cell = stepnet.cell("cell c(x[3]; h[3]) {\n h = x + h\n output h\n option lengths = lengths\n}")
    with pytest.raises(stepnet.TypeMismatchError, match=rf'"lengths" of c is {found}; it must be int32 or int64$'):
        stepnet.torch.Module(cell)(torch.zeros(4, 2, 3), lengths=given)


def test_modules_say_what_to_do_with_tensors_that_have_no_elements(module):
    for change, message in (
        (lambda t: torch.quantize_per_tensor(t, 0.1, 0, torch.qint8), r"call dequantize\(\)$"),
        (lambda t: t.to(torch.float8_e5m2), r"is float8_e5m2 \[3, 2, 5\]; it must be float32: call float\(\)$"),
        (lambda t: t.to(torch.uint32), r"is uint32 \[3, 2, 5\]; it must be float32: call float\(\)$"),
        (lambda t: torch.empty(t.shape, dtype=torch.uint4), r'"x" of lstm is uint4 \[3, 2, 5\]; it must be float32$'),
        (lambda t: t.to(torch.cfloat), r"is complex64 \[3, 2, 5\]; it must be float32$"),
        (lambda t: t.to("meta"), "the input 'x' of lstm is on meta; it must be on cpu, as the parameter 'w' is"),
    ):
        with pytest.raises((stepnet.TypeMismatchError, stepnet.InvalidArgumentError), match=message):
            module(change(torch.zeros(3, 2, 5)))
    with pytest.raises(stepnet.TypeMismatchError, match=r'the parameter "w" .* on meta, where there are no elements; it must have some: of a module, by to_empty and load_state_dict$'):
        module.to("meta")(torch.zeros(3, 2, 5, device="meta"))


@pytest.mark.skipif(not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"), reason="this PyTorch lends no functions in C")
def test_tensors_are_read_without_their_python(lstm, monkeypatch):
    """By functions of PyTorch in C, which take a twentieth of the time of ``__dlpack__``."""
    params = {name: torch.from_numpy(array) for name, array in lstm.init().items()}
    x, net = torch.randn(4, 2, 5), stepnet.load('op { type: "Tanh" input: "x" output: "y" }')
    expected, pullback = lstm.vjp(params, x=x.numpy())
    seed = torch.ones(4, 2, 4)
    gradient = pullback(h=seed.numpy()).inputs["x"]

    def called(*_, **__):
        raise AssertionError("the tensor's Python has been called")

    for name in ("__dlpack__", "__dlpack_device__"):
        monkeypatch.setattr(torch.Tensor, name, called)
    outputs, pullback = lstm.vjp(params, x=x)
    assert numpy.array_equal(outputs.h, expected.h)
    assert numpy.array_equal(pullback(h=seed).inputs["x"], gradient)
    assert numpy.array_equal(net(x=x).y, net(x=torch.clone(x)).y)


def test_tensors_that_require_gradients_are_refused_whatever_grad_mode_it_is(lstm):
    x = torch.randn(4, 2, 5, requires_grad=True)
    for mode in (torch.no_grad, torch.enable_grad):
        with mode(), pytest.raises(stepnet.TypeMismatchError, match="stepnet.torch.Module is a cell with gradients of PyTorch"):
            lstm(lstm.init(), x=x)
