"""Gradients of modules: what autograd may ask for, and what is refused."""

import numpy
import pytest

import stepnet

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import stepnet.torch  # noqa: E402 - needs torch


def test_without_gradients_nothing_is_kept_for_them(module, monkeypatch):
    class Kept(Exception):
        pass

    call_of = stepnet.torch_autograd._call_of

    class Spied:
        def __init__(self, *options):
            self.run = call_of(*options).run

        def run_for_gradients(self, *_):
            raise Kept

    monkeypatch.setattr(stepnet.torch_autograd, "_call_of", Spied)
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
    call_of = stepnet.torch_autograd._call_of

    def spied(cell, names, is_needed):
        asked.append({name for name, is_its in zip(names, is_needed) if is_its})
        return call_of(cell, names, is_needed)

    monkeypatch.setattr(stepnet.torch_autograd, "_call_of", spied)
    for frozen in every:
        module.zero_grad()
        for name, parameter in module.named_parameters():
            parameter.requires_grad_(name != frozen)
        module(x).h.sum().backward()
        assert asked.pop() == every.keys() - {frozen}
        for name, parameter in module.named_parameters():
            assert parameter.grad is None if name == frozen else torch.equal(parameter.grad, every[name])


@pytest.mark.parametrize(
    "name, options",
    [
        ("lstm", ""),
        ("gru", ""),
        ("layer_norm_lstm", ""),
        ("causal_conv", ""),
        ("gru", "option lengths = lengths"),
        ("lstm", "option direction = reverse"),
        ("lstm", "option layers = 2; option direction = bidirectional; option lengths = lengths"),
        ("layer_norm_lstm", "option layers = 2; option lengths = lengths; option beyond_length = zero"),
    ],
)
def test_gradients_in_double_match_differences(cells, name, options):
    text = f"{(cells / f'{name}.cell').read_text().rstrip()[:-1]}{options}\n}}"
    module = stepnet.torch.Module(stepnet.cell(text, D=3, H=2), seed=2).double()
    others = {"lengths": torch.tensor([2, 4])} if "lengths" in options else {}
    starts = [each for each in module.cell.inputs if each.name.endswith("_init")]
    names = [key for key, _ in module.named_parameters()] + [each.name for each in starts]
    shapes = [[int(size.replace("B", "2")) for size in each.shape.strip("[]").split(", ")] for each in starts]
    given = [torch.randn(4, 2, 3), *module.parameters(), *map(torch.randn, shapes)]

    def run(x, *tensors):
        by_name = dict(zip(names, tensors))
        inputs = {"x": x, **{each.name: by_name.pop(each.name) for each in starts}, **others}
        return tuple(torch.func.functional_call(module, by_name, (inputs,)))

    assert torch.autograd.gradcheck(run, [each.detach().double().requires_grad_() for each in given])


def test_what_lies_behind_the_end_of_a_sequence_reaches_no_gradient():
    module = stepnet.torch.Module(stepnet.layers("gru", 2, 3, lengths=True), seed=0)
    x = torch.ones(4, 2, 2)
    x[2:, 1] = float("nan")
    x.requires_grad_()
    module(x, lengths=torch.tensor([4, 2])).h.sum().backward()
    assert all(param.grad.isfinite().all() for param in module.parameters())
    assert x.grad.isfinite().all() and not x.grad[2:, 1].any()


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


def test_zeros_that_have_no_memory_are_zeros(module):
    x = torch.randn(6, 3, 5, requires_grad=True)
    module(x).h.sgn().sum().backward()  # the derivative of the sign is such a tensor
    assert x.grad.shape == x.shape and not x.grad.any()
    zeros = torch._efficientzerotensor((6, 3, 5))
    assert torch.equal(module(zeros).h, module(torch.zeros(6, 3, 5)).h)


def _gradients_of(module, function, x):
    module.zero_grad()
    x = x.clone().requires_grad_()
    function(x).sum().backward()
    return [x.grad, *(each.grad.clone() for each in module.parameters())]


@pytest.mark.parametrize("write", [lambda y: torch.relu_(y), lambda y: y.mul_(3)])
def test_checkpoints_compute_gradients_of_what_they_compute_again(module, write):
    from torch.utils.checkpoint import checkpoint

    def in_place(x):
        return write(module(x).h)

    x = torch.randn(6, 3, 5)
    expected = _gradients_of(module, lambda x: write(module(x).h.clone()), x)
    found = _gradients_of(module, lambda x: checkpoint(in_place, x, use_reentrant=False), x)
    assert all(torch.equal(one, other) for one, other in zip(found, expected))


def test_checkpoints_keep_nothing_of_a_call():
    from torch.utils.checkpoint import checkpoint

    cell = stepnet.layers("lstm", 16, 16)
    module = stepnet.torch.Module(cell, seed=1)
    x = torch.randn(200, 8, 16, requires_grad=True)
    module(x * 1.0)

    def memory_of(call):
        before = stepnet.memory().current
        kept = [call(lambda x: module(x * 1.0).h).sum() for _ in range(8)]
        return len(kept) and stepnet.memory().current - before

    again = memory_of(lambda function: checkpoint(function, x, use_reentrant=False))  # first: memory is used again
    assert again < memory_of(lambda function: function(x)) / 8


def test_gradients_are_of_what_hooks_of_saved_tensors_give_back(module):
    x = torch.randn(6, 3, 5)
    expected = _gradients_of(module, lambda x: module(x).h, x)

    def call(x):
        with torch.autograd.graph.saved_tensors_hooks(lambda saved: saved.detach().clone(), lambda saved: saved):
            y = module(x).h
        with torch.no_grad():
            for each in module.parameters():
                each.zero_()
        return y

    assert all(torch.equal(one, other) for one, other in zip(_gradients_of(module, call, x), expected))


def test_graphs_of_values_are_refused(module):
    from torch.fx.experimental.proxy_tensor import make_fx

    with pytest.raises(stepnet.InvalidArgumentError, match="traced, and PyTorch sees nothing"):
        make_fx(lambda x: module(x).h)(torch.randn(6, 3, 5))


def test_memory_that_a_tensor_leaves_is_kept_for_gradients(module):
    x = torch.randn(4, 2, 5, requires_grad=True)
    expected = torch.autograd.grad(module(x).h.sum(), x)[0]
    h = module(x).h
    for param in module.parameters():
        param.data = torch.full_like(param, 7)
    x.data = torch.full_like(x, 7)
    fill = [torch.full((4, 2, 5), 9.0) for _ in range(50)]  # takes memory that was given back
    assert torch.equal(torch.autograd.grad(h.sum(), x)[0], expected)
    assert len(fill) == 50


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
    by_autograd = "use backward[(][)] or torch.autograd.grad$"
    by_differences = "use backward[(][)] or torch.autograd.grad, or take differences"
    transforms = [
        ("vmap", "as sequences of one batch, the input 'x' as [[]T, B, 5[]]", lambda: func.vmap(run)(torch.stack([x, x]))),
        ("grad", by_autograd, lambda: func.grad(lambda given: run(given).sum())(x)),
        ("jvp", by_differences, lambda: func.jvp(run, (x,), (x,))),
        ("grad", by_autograd, lambda: func.jacrev(run)(x)),
        ("jvp", by_differences, lambda: func.jacfwd(run)(x)),
        ("grad", by_autograd, lambda: func.hessian(lambda given: run(given).sum())(x)),
        ("functionalize", "call it outside of it", lambda: func.functionalize(run)(x)),
    ]
    for name, other_way, transform in transforms:
        message = f"lstm is called in a transform of torch.func, {name}, which does not go through a cell; .*{other_way}"
        with pytest.raises(stepnet.InvalidArgumentError, match=message):
            transform()
    with forward_ad.dual_level():
        assert torch.equal(run(x), module(x).h)  # no tangent is in it
        with pytest.raises(stepnet.InvalidArgumentError, match="lstm is called in forward mode"):
            run(forward_ad.make_dual(x, x))
        tangents = {name: forward_ad.make_dual(each.detach(), each.detach()) for name, each in module.named_parameters()}
        with pytest.raises(stepnet.InvalidArgumentError, match="lstm is called in forward mode"):
            func.functional_call(module, tangents, (x,))


def test_gradients_for_a_batch_of_gradients_are_refused(module):
    x = torch.randn(4, 2, 5, requires_grad=True)
    h = module(x).h_last
    seeds = torch.randn(3, *h.shape)
    message = "lstm is given many gradients of its outputs at once .is_grads_batched=True.*for each of them"
    batches = [
        lambda: torch.autograd.grad(h, x, seeds, is_grads_batched=True),
        lambda: torch.autograd.functional.jacobian(lambda given: module(given).h_last, x, vectorize=True),
        lambda: torch.func.vmap(lambda seed: torch.autograd.grad(h, x, seed, retain_graph=True)[0])(seeds),
    ]
    for batch in batches:
        with pytest.raises(stepnet.InvalidArgumentError, match=message):
            batch()


def test_initial_states_have_gradients(module):
    h = torch.randn(1, 2, 4, requires_grad=True)
    module(torch.randn(3, 2, 5), h_init=h).h_last.sum().backward()
    assert h.grad.abs().sum() > 0


def test_calls_follow_whatever_has_changed_since_the_last_one(module):
    """What is remembered of a call, by names, dtype, mode and what requires gradients, is of no other one."""
    cell = module.cell.with_options(training=False)

    def expect(**inputs):
        """What the module gives, and its gradients, are those of the cell called by name."""
        module.zero_grad()
        params = {name: each.detach().numpy() for name, each in module.named_parameters()}
        dtype = str(params["w"].dtype)
        arrays = {name: each.detach().numpy() for name, each in inputs.items()}
        expected, gradients = cell.with_options(dtype=dtype).value_and_grad(params, "h", arrays)
        outputs = module(**inputs)
        assert outputs.h.sum().item() == pytest.approx(expected, rel=1e-4)
        assert outputs.h.requires_grad == any(each.requires_grad for each in [*module.parameters(), *inputs.values()])
        if outputs.h.requires_grad:
            outputs.h.sum().backward()
        for name, each in module.named_parameters():
            assert (each.grad is not None) == each.requires_grad
            if each.requires_grad:
                numpy.testing.assert_allclose(each.grad, gradients.params[name], rtol=1e-4, atol=1e-5)

    x, start = torch.randn(6, 3, 5), torch.randn(1, 3, 4)
    expect(x=x)
    expect(x=x[:2, :1].contiguous())
    expect(x=x, h_init=start)
    expect(h_init=start, x=x)
    module.w.requires_grad_(False)
    expect(x=x, h_init=start)
    module.double()
    expect(x=x.double())
    module.w.requires_grad_(True)
    module.w.data = torch.randn_like(module.w)
    expect(x=x.double(), h_init=start.double())
    module.float()
    with torch.no_grad():
        module.w.add_(1)
    expect(x=x)
    module.requires_grad_(False)
    expect(x=x)
    module.eval()
    expect(x=x)


@pytest.mark.parametrize("of_pytorch", [False, True])
def test_errors_name_to_torch_where_it_takes_the_cell(of_pytorch, lstm):
    """The cell of the fixture is no module of PyTorch's; that of ``stepnet.layers`` is."""
    module = stepnet.torch.Module(stepnet.layers("gru", 5, 4) if of_pytorch else lstm)
    x = torch.randn(3, 2, 5, requires_grad=True)
    h = module(x).h
    gradient = torch.autograd.grad(h.sum(), x, create_graph=True)[0]
    seeds = torch.ones(2, *h.shape)
    asked = [
        lambda: gradient.sum().backward(),
        lambda: torch.func.grad(lambda given: module(given).h.sum())(x),
        lambda: torch.autograd.grad(module(x).h, x, seeds, is_grads_batched=True),
        lambda: torch.jit.trace(module, x),
        lambda: torch.jit.script(module),
        lambda: torch.export.export(module, (x,)),
    ]
    for ask in asked:
        with pytest.raises(Exception, match="invalid argument: ") as raised:
            ask()
        assert (", or give the cell back by stepnet.to_torch" in str(raised.value)) == of_pytorch
