import io
import pickle
import warnings

import numpy
import pytest
import references

import stepnet

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import stepnet.torch  # noqa: E402 - needs torch


@pytest.fixture
def module(lstm):
    return stepnet.torch.Module(lstm, seed=1)


def test_a_module_gives_what_its_cell_gives(lstm, module):
    x = torch.randn(6, 3, 5)
    out = module(x)
    expected = lstm(lstm.init(seed=1), x=x)
    assert numpy.array_equal(out.h.detach().numpy(), expected.h)
    assert out._fields == expected._fields
    with torch.no_grad():
        assert not module(x=x).h.requires_grad
        assert torch.equal(module(x).c_last, out.c_last)


def test_without_gradients_nothing_is_kept_for_them(module, monkeypatch):
    class Kept(Exception):
        pass

    def keep(*_):
        raise Kept

    monkeypatch.setattr(stepnet.torch, "Pullback", keep)
    x = torch.randn(6, 3, 5)
    with torch.no_grad():
        module(x)
    with torch.inference_mode():
        module(x)
    module.requires_grad_(False)
    module(x)
    with pytest.raises(Kept):
        module(x.requires_grad_())


def test_gradients_of_what_requires_none_are_not_asked_for(module, monkeypatch):
    x = torch.randn(6, 3, 5)
    module(x).h.sum().backward()
    every = {name: parameter.grad for name, parameter in module.named_parameters()}
    asked = []
    vjp = module.cell._cell.__class__.vjp

    class Spied:
        """The cell of C++, of which is noted by what it is differentiated."""

        def __init__(self, cell):
            self._cell = cell

        def __getattr__(self, name):
            return getattr(self._cell, name)

        def vjp(self, params, inputs, wrt, *options):
            asked.append(sorted(wrt))
            return vjp(self._cell, params, inputs, wrt, *options)

    cell = module._form(is_double=False)
    monkeypatch.setattr(cell, "_cell", Spied(cell._cell))
    for frozen in every:
        module.zero_grad()
        for name, parameter in module.named_parameters():
            parameter.requires_grad_(name != frozen)
        module(x).h.sum().backward()
        assert asked.pop() == sorted(every.keys() - {frozen})
        for name, parameter in module.named_parameters():
            assert parameter.grad is None if name == frozen else torch.equal(parameter.grad, every[name])


def test_gradients_in_double_match_differences(cells):
    for name in ("lstm", "gru", "layer_norm_lstm", "causal_conv"):
        path = cells / f"{name}.cell"
        module = stepnet.torch.Module(stepnet.cell(path, D=3, H=2), seed=2).double()
        x = torch.randn(4, 2, 3, dtype=torch.float64, requires_grad=True)
        params = [parameter.detach().clone().requires_grad_() for parameter in module.parameters()]
        names = [key for key, _ in module.named_parameters()]

        def run(x, *params):
            return tuple(torch.func.functional_call(module, dict(zip(names, params)), (x,)))

        assert torch.autograd.gradcheck(run, (x, *params))


def test_a_module_agrees_with_that_of_pytorch(module):
    theirs = torch.nn.LSTM(5, 4)
    order = torch.tensor([0, 1, 3, 2])  # i f o g here, i f g o there
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(module.w.view(4, 4, 5)[order].reshape(16, 5))
        theirs.weight_hh_l0.copy_(module.u.view(4, 4, 4)[order].reshape(16, 4))
        theirs.bias_ih_l0.zero_()
        theirs.bias_hh_l0.zero_()
    x, y = (torch.randn(7, 3, 5).requires_grad_() for _ in range(2))
    y.data = x.data.clone()
    out, (expected, _) = module(x), theirs(y)
    torch.testing.assert_close(out.h, expected, rtol=1e-4, atol=1e-5)
    weights = torch.randn_like(expected)
    (out.h * weights).sum().backward()
    (expected * weights).sum().backward()
    torch.testing.assert_close(x.grad, y.grad, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        module.u.grad.view(4, 4, 4)[order].reshape(16, 4), theirs.weight_hh_l0.grad, rtol=1e-4, atol=1e-5
    )


def test_a_module_trains_among_others(cells):
    torch.manual_seed(3)
    model = torch.nn.ModuleDict(
        {"cell": stepnet.torch.Module(stepnet.cell(cells / "gru.cell", D=1, H=16)), "sum": torch.nn.Linear(16, 1)}
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(150):
        x = torch.rand(5, 32, 1) * 2 - 1
        loss = ((model["sum"](model["cell"](x).h_last[0]) - x.sum(0)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.1 * losses[0]


def test_a_module_is_saved_and_loaded(lstm, module):
    x = torch.randn(4, 2, 5)
    assert list(module.state_dict()) == ["w", "u", "b"]
    other = stepnet.torch.Module(lstm, seed=5)
    assert not torch.equal(other(x).h, module(x).h)
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file))
    assert torch.equal(other(x).h, module(x).h)
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=False)(x).h, module(x).h)


def test_parameters_may_be_given(lstm):
    params = lstm.init(seed=4)
    module = stepnet.torch.Module(lstm, params)
    x = torch.randn(3, 2, 5)
    numpy.testing.assert_array_equal(module(x).h.detach().numpy(), lstm(params, x=x).h)
    params["w"][:] = 0  # a copy was taken
    assert module.w.abs().sum() > 0
    with pytest.raises(ValueError, match="the parameter 'b' of lstm is missing; it is float32"):
        stepnet.torch.Module(lstm, {"w": params["w"], "u": params["u"]})


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoint_computes_the_same_masks_again(use_reentrant):
    text = "cell d(x[D]; h[D]) {\n  size D = 8\n  param w[D] = 1\n  h = Dropout(x * w, ratio=0.5)\n  output h\n}"
    module = stepnet.torch.Module(stepnet.cell(text)).train()
    x = torch.ones(5, 4, 8, requires_grad=True)
    squares = torch.utils.checkpoint.checkpoint(lambda given: module(given).h ** 2, x, use_reentrant=use_reentrant)
    squares.sum().backward()
    assert torch.equal(x.grad, 2 * squares.detach())  # h is x or twice that
    assert 0 < int((squares == 0).sum()) < squares.numel()


def test_masks_follow_from_pytorch_s_generator():
    text = "cell d(x[D]; h[D]) {\n  size D = 64\n  h = Dropout(x, ratio=0.5)\n  output h\n}"
    module = stepnet.torch.Module(stepnet.cell(text)).train()
    x = torch.ones(1, 1, 64)

    def drawn(seed=None):
        if seed is not None:
            torch.manual_seed(seed)
        return module(x).h

    first = drawn(3)
    assert not torch.equal(drawn(), first)
    assert torch.equal(drawn(3), first)
    before = torch.get_rng_state()
    module.eval()(x)
    assert torch.equal(torch.get_rng_state(), before)


def test_what_lies_behind_the_end_of_a_sequence_reaches_no_gradient():
    module = stepnet.torch.Module(stepnet.layers("gru", 2, 3, lengths=True), seed=0)
    x = torch.ones(4, 2, 2)
    x[2:, 1] = float("nan")
    x.requires_grad_()
    module(x, lengths=torch.tensor([4, 2])).h.sum().backward()
    assert all(param.grad.isfinite().all() for param in module.parameters())
    assert x.grad.isfinite().all() and not x.grad[2:, 1].any()


def test_dropout_drops_in_training_mode_alone(cells):
    text = (cells / "gru.cell").read_text().rstrip().rstrip("}") + "  option zoneout = 0.5\n}\n"
    module = stepnet.torch.Module(stepnet.cell(text))
    x = torch.randn(5, 3, 8)
    assert not torch.equal(module(x).h, module(x).h)
    module.eval()
    assert torch.equal(module(x).h, module(x).h)


def test_writing_to_what_gradients_need_is_an_error(module):
    x = torch.randn(4, 2, 5)
    out = module(x)
    with torch.no_grad():
        module.w.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.h.sum().backward()
    out = module(x)
    h = out.h
    h.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        h.sum().backward()


def test_gradients_may_be_asked_for_twice(module):
    x = torch.randn(4, 2, 5, requires_grad=True)
    h = module(x).h
    first = torch.autograd.grad(h.sum(), x, create_graph=True)[0]
    assert torch.equal(torch.autograd.grad(h.sum(), x)[0], first)
    (module(x).h.sum() + first.detach().sum()).backward()
    assert torch.equal(x.grad, first)


def penalty(module, x):
    x = x.requires_grad_()
    gradient, *_ = torch.autograd.grad(module(x)[0].sum(), x, create_graph=True)
    (module(x)[0].sum() + gradient.square().mean()).backward()


def second(module, differentiate):
    """How gradients of gradients are asked for by a function of torch.autograd.functional."""
    return lambda x: differentiate(lambda given: module(given)[0].square().sum(), x)


@pytest.mark.parametrize("kind", [stepnet.torch.Module, stepnet.torch.Recurrent])
def test_gradients_of_gradients_are_refused(kind):
    module = kind(stepnet.layers("gru", 5, 4))
    functional = torch.autograd.functional
    asked = [
        lambda x: penalty(module, x),
        lambda x: torch.autograd.grad(module(x.requires_grad_())[0].sum(), x, create_graph=True)[0].sum().backward(),
        lambda x: functional.jvp(lambda given: module(given)[0], x, torch.ones_like(x)),
        second(module, functional.hessian),
        second(module, lambda f, x: functional.hvp(f, x, torch.ones_like(x))),
        second(module, lambda f, x: functional.vhp(f, x, torch.ones_like(x))),
    ]
    for ask in asked:
        with pytest.raises(stepnet.InvalidArgumentError, match="gradients of gru are differentiated.*no second derivatives"):
            ask(torch.randn(3, 2, 5))


def test_what_gives_gradients_of_parameters_alone_is_refused_a_second_time(module):
    loss = module(torch.randn(4, 2, 5)).h.square().sum()
    gradients = torch.autograd.grad(loss, list(module.parameters()), create_graph=True)
    with pytest.raises(stepnet.InvalidArgumentError, match="no second derivatives"):
        sum(each.sum() for each in gradients).backward()


@pytest.mark.parametrize("is_grad_enabled", [True, False])
def test_transforms_and_forward_mode_are_refused(module, is_grad_enabled):
    x = torch.randn(4, 2, 5)

    def run(x):
        with torch.set_grad_enabled(is_grad_enabled):
            return module(x).h

    func, forward_ad = torch.func, torch.autograd.forward_ad
    transforms = [
        lambda: func.vmap(run)(torch.stack([x, x])),
        lambda: func.grad(lambda given: run(given).sum())(x),
        lambda: func.jvp(run, (x,), (x,)),
        lambda: func.jacrev(run)(x),
        lambda: func.jacfwd(run)(x),
        lambda: func.hessian(lambda given: run(given).sum())(x),
        lambda: func.functionalize(run)(x),
    ]
    for transform in transforms:
        with pytest.raises(stepnet.InvalidArgumentError, match="lstm is called in a transform of torch.func"):
            transform()
    with forward_ad.dual_level():
        assert torch.equal(run(x), module(x).h)  # no tangent is in it
        with pytest.raises(stepnet.InvalidArgumentError, match="lstm is called in forward mode"):
            run(forward_ad.make_dual(x, x))
        tangents = {name: forward_ad.make_dual(each.detach(), each.detach()) for name, each in module.named_parameters()}
        with pytest.raises(stepnet.InvalidArgumentError, match="lstm is called in forward mode"):
            func.functional_call(module, tangents, (x,))


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


def test_gradients_for_a_batch_of_gradients_are_refused(module):
    x = torch.randn(4, 2, 5, requires_grad=True)
    h = module(x).h_last
    seeds = torch.randn(3, *h.shape)
    with pytest.raises(stepnet.InvalidArgumentError, match="lstm is called in a transform of torch.func"):
        torch.func.vmap(lambda seed: torch.autograd.grad(h, x, seed, retain_graph=True)[0])(seeds)
    with pytest.raises(RuntimeError):  # of PyTorch, which stops before it comes to the cell's core
        torch.autograd.grad(h, x, seeds, is_grads_batched=True)


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


def test_bfloat16_that_must_be_copied_is_refused():
    half = torch.zeros(4, 4, dtype=torch.bfloat16).t()[::2]
    with pytest.raises(stepnet.InvalidArgumentError, match="has no bfloat16; give a copy"):
        stepnet._stepnet.address_of(half)


def test_outputs_become_tensors_without_a_copy(lstm):
    h = lstm(lstm.init(), x=torch.randn(3, 2, 5)).h
    assert torch.from_dlpack(h).data_ptr() == h.ctypes.data


def test_wrong_tensors_are_told(lstm, module):
    with pytest.raises(stepnet.ShapeMismatchError, match=r'the input "x" is float32 \[3, 2, 4\]'):
        module(torch.randn(3, 2, 4))
    with pytest.raises(stepnet.TypeMismatchError, match='the input "x" of lstm is float64'):
        module(torch.randn(3, 2, 5, dtype=torch.float64))
    with pytest.raises(stepnet.InvalidArgumentError, match='the input "x" of lstm is missing'):
        module()
    with pytest.raises(TypeError, match="lstm takes one input by position, x; 2 are given"):
        module(torch.randn(3, 2, 5), torch.randn(3, 2, 5))
    with pytest.raises(TypeError, match="the input 'x' of lstm is given twice"):
        module(torch.randn(3, 2, 5), x=torch.randn(3, 2, 5))


def test_initial_states_have_gradients(module):
    h = torch.randn(1, 2, 4, requires_grad=True)
    module(torch.randn(3, 2, 5), h_init=h).h_last.sum().backward()
    assert h.grad.abs().sum() > 0


def test_tensors_that_are_not_contiguous_are_no_trouble(module):
    x = torch.randn(2, 4, 5).transpose(0, 1)
    reference, _, _ = references.lstm({key: p.detach().numpy() for key, p in module.named_parameters()}, x.numpy())
    with pytest.warns(stepnet.CopyWarning, match="the input 'x' of lstm is not contiguous and is copied") as warned:
        numpy.testing.assert_allclose(module(x).h.detach().numpy(), reference, rtol=1e-4, atol=1e-5)
    assert [each.filename for each in warned] == [__file__]
    module(x).h.transpose(0, 1).sum().backward()
    assert module.w.grad is not None


def test_a_module_in_the_place_of_layers_says_once_what_it_copies():
    cell, params = stepnet.from_torch(torch.nn.GRU(5, 4, batch_first=True), lengths=True)
    x = torch.randn(3, 5, 2).transpose(1, 2)
    recurrent = stepnet.torch.Recurrent(cell, params)
    with pytest.warns(stepnet.CopyWarning, match="the input 'input' of gru is not contiguous") as warned:
        recurrent(x)
    assert [each.filename for each in warned] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        recurrent(x)
        again = stepnet.torch.Recurrent(cell, params)
        again(x.contiguous())
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, [2, 1, 2], batch_first=True, enforce_sorted=False)
        again(packed, torch.zeros(1, 3, 4))
    with pytest.warns(stepnet.CopyWarning, match="the input 'hx' of gru"):
        again(x.contiguous(), torch.zeros(4, 3, 1).transpose(0, 2))


def test_a_module_without_parameters_has_the_dtype_of_its_inputs():
    text = "cell c(x[2]; h[2]) {\n h = Tanh(0.3 * h) + Selu(x) / 3\n output h\n}"
    for cell in (stepnet.cell(text), stepnet.cell(text, dtype="float64")):
        module = stepnet.torch.Module(cell)
        for dtype in (torch.float32, torch.float64):
            x = torch.randn(3, 1, 2, dtype=dtype, requires_grad=True)
            assert module(x).h.dtype == dtype
        assert torch.autograd.gradcheck(lambda x: module(x).h, x)


def test_parameters_of_a_net_are_those_of_a_module_without_a_warning(lstm):
    """They are read-only, of which PyTorch warns."""
    params = lstm.init()
    for array in params.values():
        array.setflags(write=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        module = stepnet.torch.Module(lstm, params)
    assert numpy.array_equal(module.w.detach().numpy(), params["w"])


def test_devices_of_pytorch_are_taken(cells, tmp_path):
    cpu = torch.device("cpu")
    cell = stepnet.cell(cells / "lstm.cell", D=5, H=4, device=cpu).with_options(device=cpu)
    stepnet.torch.Module(pickle.loads(pickle.dumps(cell)))(torch.randn(2, 1, 5))
    net = 'op { type: "Relu" input: "x" output: "y" }'
    assert stepnet.load(net, device=cpu)(x=torch.ones(2)).y.tolist() == [1, 1]
    stepnet.set_max_memory(stepnet.memory(cpu).limit, cpu)
    with pytest.raises(stepnet.InvalidArgumentError, match="meta"):
        stepnet.cell(cells / "lstm.cell", D=5, H=4, device=torch.device("meta"))


def test_a_module_takes_inputs_of_any_name():
    module = stepnet.torch.Module(stepnet.cell("cell c(self[2], input[2]; h[2]) { h = Tanh(self + 2 * input + h); output h }"))
    inputs = {"self": torch.randn(3, 1, 2, requires_grad=True), "input": torch.randn(3, 1, 2)}
    module(inputs).h.sum().backward()
    expected = module({"self": inputs["self"]}, input=inputs["input"])
    assert torch.equal(module(inputs).h, expected.h) and inputs["self"].grad.abs().sum() > 0
    with pytest.raises(stepnet.InvalidArgumentError, match="the input 'input' is given twice"):
        module(inputs, input=inputs["input"])


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
        (lambda tensor: tensor.tolist() + [[]], "is a list, of which NumPy makes no array"),
        (lambda tensor: None, "is a NoneType of object; it must be an array of numbers"),
        (lambda tensor: "x", "is a str of <U1; it must be an array of numbers"),
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


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_a_module_is_not_compiled_to_torchscript(module):
    for each in (module, torch.nn.Sequential(module)):
        with pytest.raises(stepnet.InvalidArgumentError, match="lstm is compiled by torch.jit.script, and PyTorch sees nothing"):
            torch.jit.script(each)


def test_a_parameter_called_as_an_attribute_of_the_module_is_refused():
    text = "cell odd(x[2]; h[2]) {\n param training[2, 2]\n h = Tanh(x @ training + h)\n output h\n}"
    with pytest.raises(stepnet.InvalidArgumentError, match="the parameter 'training' of odd has the name of an attribute"):
        stepnet.torch.Module(stepnet.cell(text))


def test_dtypes_of_pytorch_are_known(cells, lstm):
    for dtype in (torch.float32, torch.float64):
        name = str(dtype).rpartition(".")[2]
        assert stepnet.cell(cells / "lstm.cell", D=5, H=4, dtype=dtype).params[0].dtype == name
        assert lstm.with_options(dtype=dtype).params[0].dtype == name
        assert stepnet.layers("gru", 3, 4, dtype=dtype).params[0].dtype == name
    with pytest.raises(stepnet.TypeMismatchError, match="dtype is torch.float16; it must be float32 or float64"):
        lstm.with_options(dtype=torch.float16)


def test_a_module_gives_one_output_alone(cells):
    cell = stepnet.layers("lstm", 5, 4, num_layers=2)
    model = torch.nn.Sequential(stepnet.torch.Module(cell, seed=1, output="h"), torch.nn.Linear(4, 3))
    every = stepnet.torch.Module(cell, seed=1)
    assert list(every.state_dict()) == list(model[0].state_dict())
    x = torch.randn(7, 2, 5)
    assert torch.equal(model[0](x), every(x).h)
    model(x).sum().backward()
    assert model[0].get_parameter("layer0/weight_ih").grad.abs().sum() > 0
    with torch.no_grad():
        assert model(x).shape == (7, 2, 3)
    for name in ("layer0/h_last", "layer0_h_last"):
        assert torch.equal(stepnet.torch.Module(cell, seed=1, output=name)(x), every(x).layer0_h_last)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=False)(x), model(x))
    with pytest.raises(stepnet.InvalidArgumentError, match="lstm has no output 'hlast'; its outputs are h, .*; did you mean h_last[?]"):
        stepnet.torch.Module(cell, output="hlast")
    with pytest.raises(stepnet.TypeMismatchError, match="output is 0; it must be the name of an output"):
        stepnet.torch.Module(cell, output=0)


def test_parameters_are_filled_anew(lstm):
    module = stepnet.torch.Module(lstm, seed=1)
    params = dict(module.named_parameters())
    for dtype in (torch.float32, torch.float64):
        module.to(dtype).reset_parameters(seed=7)
        for name, value in lstm.init(seed=7).items():
            assert params[name] is getattr(module, name) and params[name].dtype == dtype
            assert params[name].requires_grad and numpy.array_equal(params[name].detach().numpy(), value)
    drawn = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        module.reset_parameters()
        drawn.append(module.w.detach().clone())
        module.reset_parameters()
        assert not torch.equal(module.w, drawn[-1])
    assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[1], drawn[2])
