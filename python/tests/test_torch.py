"""Cells as modules of PyTorch."""

import io
import warnings

import numpy
import pytest
import references

import stepnet

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import stepnet.torch  # noqa: E402 - needs torch


def test_a_module_gives_what_its_cell_gives(lstm, module):
    x = torch.randn(6, 3, 5)
    out = module(x)
    expected = lstm(lstm.init(seed=1), x=x)
    assert numpy.array_equal(out.h.detach().numpy(), expected.h)
    assert out._fields == expected._fields
    with torch.no_grad():
        assert not module(x=x).h.requires_grad
        assert torch.equal(module(x).c_last, out.c_last)


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


def test_modules_draw_the_same_in_the_same_state_of_the_generator():
    text = "cell d(x[D]; h[D]) {\n  size D = 64\n  param w[D] = 1\n  h = Dropout(x * w, ratio=0.5)\n  output h\n}"
    x = torch.ones(2, 3, 64)

    def drawn(**options):
        module = stepnet.torch.Module(stepnet.cell(text, **options))
        torch.manual_seed(3)
        return module(x).h

    assert torch.equal(drawn(), drawn())
    assert torch.equal(drawn(seed=5), drawn(seed=5))
    assert not torch.equal(drawn(seed=5), drawn())


@pytest.mark.parametrize("make", [lambda: torch.nn.GRU(5, 8, 2, dropout=0.3), lambda: stepnet.torch.Recurrent(stepnet.layers("gru", 5, 8, 2, dropout=0.3))])
def test_training_goes_on_from_a_checkpoint_as_without_one(make):
    def losses(stops_at=None):
        torch.manual_seed(0)
        module = make()
        optimizer = torch.optim.Adam(module.parameters(), lr=0.01)
        for step in range(6):
            if step == stops_at:
                file = io.BytesIO()
                torch.save([module.state_dict(), optimizer.state_dict(), torch.get_rng_state()], file)
                torch.manual_seed(77)
                module = make()
                optimizer = torch.optim.Adam(module.parameters(), lr=0.01)
                file.seek(0)
                state, of_optimizer, of_generator = torch.load(file)
                module.load_state_dict(state)
                optimizer.load_state_dict(of_optimizer)
                torch.set_rng_state(of_generator)
            loss = module(torch.randn(5, 4, 5))[0].square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield loss.item()

    assert list(losses(stops_at=3)) == list(losses())


def test_dropout_drops_in_training_mode_alone(cells):
    text = (cells / "gru.cell").read_text().rstrip().rstrip("}") + "  option zoneout = 0.5\n}\n"
    module = stepnet.torch.Module(stepnet.cell(text))
    x = torch.randn(5, 3, 8)
    assert not torch.equal(module(x).h, module(x).h)
    module.eval()
    assert torch.equal(module(x).h, module(x).h)


def test_wrong_tensors_are_told(lstm, module):
    with pytest.raises(stepnet.ShapeMismatchError, match=r'the input "x" is float32 \[3, 2, 4\]'):
        module(torch.randn(3, 2, 4))
    with pytest.raises(stepnet.TypeMismatchError, match='the input "x" of lstm is float64'):
        module(torch.randn(3, 2, 5, dtype=torch.float64))
    with pytest.raises(stepnet.InvalidArgumentError, match='the input "x" of lstm is missing'):
        module()
    with pytest.raises(TypeError, match="lstm takes one input by position, x; 2 are given; others by name: h_init=…, c_init=…"):
        module(torch.randn(3, 2, 5), torch.randn(3, 2, 5))
    with pytest.raises(TypeError, match="the input 'x' of lstm is given twice"):
        module(torch.randn(3, 2, 5), x=torch.randn(3, 2, 5))


def test_a_state_that_starts_from_none_is_left_out(module):
    x, start = torch.randn(3, 2, 5), torch.randn(1, 2, 4)
    assert torch.equal(module(x, h_init=None, c_init=None).h, module(x).h)
    assert torch.equal(module({"x": x, "h_init": None, "c_init": start}).h, module(x, c_init=start).h)
    with pytest.raises(stepnet.InvalidArgumentError, match="lstm has no input 'hx'"):
        module(x, hx=None)


LEARNED = """
cell learned(x[2]; h[2]) {
  state h initial=learned
  param w[2, 2]
  h = Tanh(x @ w + h)
  output h
}"""


@pytest.mark.parametrize("name", ["w", "h_init"])
def test_a_parameter_is_no_input(name):
    module = stepnet.torch.Module(stepnet.cell(LEARNED))
    given = torch.zeros_like(getattr(module, name), requires_grad=True)
    with pytest.raises(
        stepnet.InvalidArgumentError,
        match=f"learned has no input '{name}'; it is a parameter: .* by torch.func.functional_call.*; its inputs are 'x'",
    ):
        module(torch.randn(3, 1, 2), **{name: given})
    assert given.grad is None and getattr(module, name).grad is None


def test_a_module_runs_with_other_parameters_by_functional_call(lstm, module):
    """Gradients are by those, and none by its own."""
    x = torch.randn(3, 2, 5)
    other = {name: value.detach() + 0.1 for name, value in module.named_parameters()}
    expected = stepnet.torch.Module(lstm, other)
    expected(x).h.sum().backward()
    w = other["w"].clone().requires_grad_()
    out = torch.func.functional_call(module, {**other, "w": w}, (x,))
    assert torch.equal(out.h, expected(x).h)
    out.h.sum().backward()
    assert torch.equal(w.grad, expected.w.grad) and module.w.grad is None


def test_inputs_that_there_are_not(module):
    x = torch.randn(3, 2, 5)
    with pytest.raises(
        stepnet.InvalidArgumentError, match="lstm has no input 'foo'; its inputs are 'x', 'h_init', 'c_init'$"
    ):
        module(x, foo=1)
    with pytest.raises(stepnet.InvalidArgumentError, match="lstm has no input 'h_inti'; did you mean h_init.; its inputs"):
        module(x, h_inti=torch.zeros(1, 2, 4))
    with pytest.raises(stepnet.InvalidArgumentError, match="no input 'lengths'; it has no lengths: the line .option lengths = "):
        module(x, lengths=torch.tensor([3, 2]))
    with pytest.raises(stepnet.InvalidArgumentError, match="lstm has no input 7; its inputs are 'x'"):
        module({"x": x, 7: x})


def test_what_is_no_tensor_is_told_with_its_article(module):
    for given, kind in ((1, "an int"), (1.0, "a float"), (numpy.zeros((3, 2, 5)), "an ndarray"), (None, "a NoneType")):
        with pytest.raises(stepnet.TypeMismatchError, match=f"the input 'x' of lstm is {kind}; it must be a tensor"):
            module(x=given)


def test_another_floating_dtype_is_told_with_what_converts_it(lstm, module):
    x = torch.randn(3, 2, 5)
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(
        stepnet.TypeMismatchError, match=r'input "x" of lstm is bfloat16 \[3, 2, 5\]; it must be float32: call float\(\)$'
    ):
        module(torch.nn.Linear(5, 5)(x))
    with pytest.raises(stepnet.TypeMismatchError, match=r'"h_init" of lstm is float64 .* it must be float32: call float\(\)$'):
        module(x, h_init=torch.zeros(1, 2, 4).double())
    with pytest.raises(stepnet.TypeMismatchError, match=r"it must be float32: call the module's float\(\)$"):
        stepnet.torch.Module(lstm).half()(x.half())
    with torch.no_grad(), pytest.raises(stepnet.TypeMismatchError, match=r"it must be float64: call double\(\)$"):
        stepnet.torch.Module(lstm).double()(x)


def test_a_parameter_of_another_dtype_than_the_others_is_named(lstm):
    x = torch.randn(3, 2, 5)
    odd = stepnet.torch.Module(lstm)
    odd.u = torch.nn.Parameter(odd.u.detach().double())
    with pytest.raises(stepnet.TypeMismatchError, match=r"'u' of lstm is float64, and others are float32; .*the module's float\(\)$"):
        odd(x)
    odd.double().b = torch.nn.Parameter(odd.b.detach().float())
    with pytest.raises(stepnet.TypeMismatchError, match=r"'b' of lstm is float32, and others are float64; .*the module's double\(\)$"):
        odd(x.double())
    with pytest.raises(stepnet.TypeMismatchError, match=r'input "x" of lstm is int64 .* it must be float32: call float\(\)$'):
        stepnet.torch.Module(lstm)(x.long())


def test_lengths_are_those_of_a_packed_sequence():
    module = stepnet.torch.Recurrent(stepnet.layers("gru", 5, 4))
    with pytest.raises(TypeError, match=r"takes no 'lengths'; .* as a PackedSequence, as pack_padded_sequence\(input, lengths\)"):
        module(torch.randn(3, 2, 5), lengths=torch.tensor([3, 1]))
    with pytest.raises(TypeError, match="with input and hx, and takes no 'h0'$"):
        module(torch.randn(3, 2, 5), h0=None)


def test_tensors_that_are_not_contiguous_are_no_trouble(module):
    x = torch.randn(2, 4, 5).transpose(0, 1)
    reference, _, _ = references.lstm({key: p.detach().numpy() for key, p in module.named_parameters()}, x.numpy())
    with pytest.warns(stepnet.CopyWarning, match="the input 'x' of lstm is not contiguous and is copied") as warned:
        numpy.testing.assert_allclose(module(x).h.detach().numpy(), reference, rtol=1e-4, atol=1e-5)
    assert [each.filename for each in warned] == [__file__]
    assert "or, with option batch_major = true in the cell, as [B, T, …], which it is a view of (" in str(warned[0].message)
    module(x).h.transpose(0, 1).sum().backward()
    assert module.w.grad is not None


@pytest.mark.filterwarnings("ignore::stepnet.CopyWarning")
def test_copies_of_a_module_are_limited(module, set_max_memory):
    x, h = torch.randn(5500, 5, 40).transpose(1, 2), module(torch.randn(1000, 40, 5)).h
    limit = stepnet.memory().limit
    set_max_memory(stepnet.memory().current + 10_000)
    # What h keeps for its gradient and can compute again is freed first, and is not enough. (Nothing is freed for what
    # the limit could never hold.)
    with pytest.raises(stepnet.OutOfMemoryError, match='there is no memory for a copy of the input "x"'):
        module(x)
    set_max_memory(stepnet.memory().current + 10_000)
    with pytest.raises(stepnet.OutOfMemoryError, match='for a copy of the gradient of the output "h"'):
        h.sum().backward()
    set_max_memory(limit)
    assert torch.equal(module(x).h, module(x.contiguous()).h)


def test_what_lies_otherwise_is_not_told_of_batch_major(module):
    strided = torch.randn(8, 2, 5)[::2]
    with pytest.warns(stepnet.CopyWarning, match=r"as contiguous\(\) makes it \(said once"):
        module(strided)


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


def test_a_module_takes_inputs_of_any_name():
    module = stepnet.torch.Module(stepnet.cell("cell c(self[2], input[2]; h[2]) { h = Tanh(self + 2 * input + h); output h }"))
    inputs = {"self": torch.randn(3, 1, 2, requires_grad=True), "input": torch.randn(3, 1, 2)}
    module(inputs).h.sum().backward()
    expected = module({"self": inputs["self"]}, input=inputs["input"])
    assert torch.equal(module(inputs).h, expected.h) and inputs["self"].grad.abs().sum() > 0
    with pytest.raises(stepnet.InvalidArgumentError, match="the input 'input' is given twice"):
        module(inputs, input=inputs["input"])


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_a_module_is_not_compiled_to_torchscript(module):
    for each in (module, torch.nn.Sequential(module)):
        with pytest.raises(stepnet.InvalidArgumentError, match="lstm is compiled by torch.jit.script, and PyTorch sees nothing"):
            torch.jit.script(each)


def test_a_parameter_called_as_an_attribute_of_the_module_is_refused():
    text = "cell odd(x[2]; h[2]) {\n param training[2, 2]\n h = Tanh(x @ training + h)\n output h\n}"
    with pytest.raises(stepnet.InvalidArgumentError, match="the parameter 'training' of odd has the name of an attribute"):
        stepnet.torch.Module(stepnet.cell(text))


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


def test_errors_of_a_parameter_whose_name_is_none_of_python():
    cell = stepnet.layers("lstm", 5, 4, num_layers=2)
    module = stepnet.torch.Module(cell)
    x = torch.randn(7, 2, 5)
    with pytest.raises(stepnet.InvalidArgumentError, match=r"it is a parameter: call setattr\(module, 'layer0/weight_ih', parameter\), or run"):
        module({"x": x, "layer0/weight_ih": x})
    setattr(module, "layer0/weight_ih", None)
    with pytest.raises(stepnet.TypeMismatchError, match=r"must be a tensor: call setattr\(module, 'layer0/weight_ih', parameter\), of zeros"):
        module(x)
    setattr(module, "layer0/weight_ih", torch.nn.Parameter(torch.zeros(16, 5)))
    module(x)


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


def test_lengths_may_be_a_list():
    cell = stepnet.cell("cell a(x[2]; h[2]) {\n  h = 0.5 * h + x\n  output h\n  option lengths = lengths\n}")
    module = stepnet.torch.Module(cell)
    x = torch.randn(4, 2, 2)
    for lengths in ([4, 2], (4, 2)):
        assert torch.equal(module(x, lengths=lengths).h, module(x, lengths=torch.tensor([4, 2])).h)
    for wrong in ([4, [2]], ["a", "b"], [1.5, 2.0], [None]):
        with pytest.raises(stepnet.TypeMismatchError, match="lengths"):
            module(x, lengths=wrong)
    with pytest.raises(stepnet.TypeMismatchError, match="the input 'x' of a is a list; it must be a tensor"):
        module([[1.0]], lengths=[4, 2])
