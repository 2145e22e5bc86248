"""Cells and modules on a GPU, on tensors that are there: PyTorch's, CuPy's and JAX's."""

import gc
import os

import numpy
import pytest
from conftest import in_threads

import stepnet
from stepnet._stepnet import address_of

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import stepnet.torch  # noqa: E402 - needs torch

T, B, D, H = 7, 3, 5, 4


def why_no_gpu():
    if not torch.cuda.is_available():
        return "PyTorch finds no GPU"
    try:
        stepnet.cell("cell s(x[D]; h[D]) {\n size D = 5\n h = h + x\n output h\n}", device="cuda")
    except stepnet.Error as error:
        return str(error)
    return ""


pytestmark = pytest.mark.skipif(bool(why_no_gpu()), reason=why_no_gpu() or "there is one")

LONG = 500_000_000  # cycles: some tenths of a second in which a stream does nothing else


@pytest.fixture
def there(cells):
    return stepnet.cell(cells / "lstm.cell", D=D, H=H, device="cuda")


@pytest.fixture
def modules(lstm):
    """The same module on the CPU and on the GPU."""
    on_cpu, on_gpu = (stepnet.torch.Module(lstm, seed=1) for _ in range(2))
    return on_cpu, on_gpu.cuda()


def near(found, expected, rtol=1e-4, atol=1e-5):
    torch.testing.assert_close(torch.as_tensor(found).cpu(), torch.as_tensor(expected).cpu(), rtol=rtol, atol=atol)


def assert_same_gradients(one, other):
    for (name, mine), (_, theirs) in zip(one.named_parameters(), other.named_parameters()):
        assert mine.grad.device == mine.device, name
        near(mine.grad, theirs.grad)


# Cells, called with tensors


@pytest.mark.parametrize("place", ["cuda", "cpu"])
def test_gradients_are_added_to_tensors_in_place(lstm, there, place):
    x = torch.randn(T, B, D)
    params = {name: torch.from_numpy(array) for name, array in lstm.init().items()}
    expected = lstm.value_and_grad(params, "h", x=x)[1].params
    sums = {name: torch.ones(array.shape, device="cuda") for name, array in expected.items()}
    given = {name: value.to(place) for name, value in params.items()}
    addresses = {name: each.data_ptr() for name, each in sums.items()}
    for times in (1, 2, 3):
        found = there.value_and_grad(given, "h", gradient_requests=dict.fromkeys(sums, "add"), into=sums, x=x.to(place))[1].params
        for name, each in sums.items():
            assert found[name] is each and each.data_ptr() == addresses[name]
            near(each, 1 + times * expected[name])


def test_tensors_are_read_where_they_are():
    x = torch.randn(3, 4, device="cuda")
    assert address_of(x, "cuda") == x.data_ptr()
    assert address_of(x[1:], "cuda") == x[1:].data_ptr()
    half = torch.zeros(3, dtype=torch.bfloat16, device="cuda")
    assert address_of(half, "cuda") == half.data_ptr()


def test_a_call_with_tensors_there_gives_arrays_there(lstm, there):
    params, x = lstm.init(), torch.randn(T, B, D)
    expected = lstm(params, x=x)
    on_gpu = {name: torch.as_tensor(each).cuda() for name, each in params.items()}
    for given, start in ((on_gpu, x.cuda()), (params, x.cuda()), (on_gpu, x)):
        out = there(given, x=start)
        for each, on_cpu in zip(out, expected):
            assert isinstance(each, stepnet.DeviceArray)
            taken = torch.from_dlpack(each)
            assert taken.device == torch.device("cuda:0")
            assert taken.data_ptr() == torch.from_dlpack(each).data_ptr() == address_of(each, "cuda")
            near(taken, on_cpu)
            near(each.numpy(), on_cpu)
    assert isinstance(there(params, x=x).h, numpy.ndarray)


def test_gradients_are_there(lstm, there):
    params, x, weights = lstm.init(), torch.randn(T, B, D), torch.randn(T, B, H)
    expected = lstm.vjp(params, x=x)[1](h=weights)
    _, pullback = there.vjp(params, x=x.cuda())
    for given in (weights.cuda(), weights):
        found = pullback(h=given)
        near(torch.from_dlpack(found.params["u"]), expected.params["u"])
        near(torch.from_dlpack(found.inputs["x"]), expected.inputs["x"])


def test_other_libraries_give_and_take_arrays(lstm, there):
    params, x = lstm.init(), numpy.random.default_rng(0).normal(size=(T, B, D)).astype("float32")
    expected = lstm(params, x=x)
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    cupy = pytest.importorskip("cupy")
    given = cupy.asarray(x)
    assert address_of(given, "cuda") == given.data.ptr
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        doubled = given * 2  # on that stream
        out = there(params, x=doubled / 2)
        h = cupy.from_dlpack(out.h)
        assert h.data.ptr == address_of(out.h, "cuda")
        numpy.testing.assert_allclose(cupy.asnumpy(h), expected.h, rtol=1e-4, atol=1e-5)
    with pytest.warns(stepnet.CopyWarning):
        near(there(params, x=cupy.asfortranarray(given)).h.numpy(), expected.h)
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("JAX finds no GPU")
    given = jax.numpy.asarray(x) + 0
    out = there(params, x=given)
    assert address_of(given, "cuda") == given.unsafe_buffer_pointer()
    h = jax.dlpack.from_dlpack(out.h)
    numpy.testing.assert_allclose(numpy.asarray(h + 0), expected.h, rtol=1e-4, atol=1e-5)


def test_the_run_waits_for_the_producers_stream_and_the_consumers_for_it(lstm, there):
    params = {name: torch.as_tensor(each).cuda() for name, each in lstm.init().items()}
    good = torch.randn(T, B, D, device="cuda")
    expected = lstm(lstm.init(), x=good.cpu()).h
    producer, consumer = torch.cuda.Stream(), torch.cuda.Stream()
    for _ in range(4):  # what is done for the first time waits
        torch.full_like(good, 1).copy_(good)
        torch.from_dlpack(there(params, x=good).h) * 2
    x = torch.full_like(good, float("nan"))
    torch.cuda.synchronize()
    with torch.cuda.stream(producer):
        torch.cuda._sleep(LONG)
        x.copy_(good)
        out = there(params, x=x)
        is_behind = torch.cuda.Event()
        is_behind.record(producer)
        assert not is_behind.query()  # nobody has waited
    with torch.cuda.stream(consumer):
        doubled = torch.from_dlpack(out.h) * 2
        assert not is_behind.query()
    consumer.synchronize()
    near(doubled / 2, expected)


def test_what_lends_lives_until_the_gpu_has_read_it(lstm, there):
    params = {name: torch.as_tensor(each).cuda() for name, each in lstm.init().items()}
    good = torch.randn(T, B, D, device="cuda")
    expected = lstm(lstm.init(), x=good.cpu()).h
    there(params, x=good)
    blocker, ahead = torch.cuda.Stream(), torch.empty(1, device="cuda")
    for _ in range(5):
        with torch.cuda.stream(blocker):
            torch.cuda._sleep(LONG // 4)
            ahead.zero_()
            there(params, x=torch.zeros(T, B, D, device="cuda"))  # which holds up the run behind it
        x = good.clone()
        address = x.data_ptr()
        out = there(params, x=x)
        del x
        others = [torch.full((T, B, D), float("nan"), device="cuda") for _ in range(20)]
        assert address not in [each.data_ptr() for each in others]
        near(out.h.numpy(), expected)


def test_memory_is_used_again_behind_the_stream_that_took_it(lstm, there):
    params = {name: torch.as_tensor(each).cuda() for name, each in lstm.init().items()}
    xs = [torch.randn(T, B, D, device="cuda") for _ in range(2)]
    expected = [lstm(lstm.init(), x=x.cpu()).h for x in xs]
    consumer = torch.cuda.Stream()
    there(params, x=xs[0])
    for _ in range(5):
        with torch.cuda.stream(consumer):
            taken = torch.from_dlpack(there(params, x=xs[0]).h)
            torch.cuda._sleep(LONG // 4)
            copy = taken.clone()
            del taken
        for _ in range(3):
            last = there(params, x=xs[1]).h
        consumer.synchronize()
        near(copy, expected[0])
        near(last.numpy(), expected[1])


def test_tensors_that_are_elsewhere_are_refused(lstm, there):
    params, x = lstm.init(), torch.randn(T, B, D, device="cuda")
    with pytest.raises(stepnet.InvalidArgumentError, match='the input "x" lies on cuda:0; it must be in the host\'s memory$'):
        lstm(params, x=x)
    with pytest.raises(stepnet.TypeMismatchError, match='the input "x" cannot be read: .*require grad'):
        there(params, x=x.clone().requires_grad_())
    with pytest.raises(stepnet.TypeMismatchError, match='the input "x" of lstm is float64'):
        there(params, x=x.double())
    with pytest.raises(stepnet.TypeMismatchError, match='the input "x" has elements torch.complex64'):
        there(params, x=x.to(torch.complex64))
    with pytest.raises(stepnet.ShapeMismatchError, match=r'the input "x" is float32 \[7, 3, 4\]'):
        there(params, x=x[:, :, :4].contiguous())
    into = {"w": torch.zeros(D, 4 * H, device="cuda").T}
    with pytest.raises(stepnet.InvalidArgumentError, match="into has for 'w' a tensor on cuda:0 that is not contiguous"):
        there.value_and_grad(params, "h", wrt="w", gradient_requests={"w": "add"}, into=into, x=x)


def test_what_is_not_contiguous_is_copied_on_the_gpu(lstm, there):
    params, x = lstm.init(), torch.randn(B, T, D, device="cuda").transpose(0, 1)
    with pytest.warns(stepnet.CopyWarning, match='the input "x" is not contiguous and is copied; give one that is contiguous'):
        out = there(params, x=x)
    near(out.h.numpy(), lstm(params, x=x.cpu().contiguous()).h)
    inner = torch.randn(T + 1, B, D, device="cuda").flatten()[1 : 1 + T * B * D].view(T, B, D)  # aligned as a float is
    near(there(params, x=inner).h.numpy(), lstm(params, x=inner.cpu().contiguous()).h)


def test_calls_that_fail_keep_nothing(there):
    params = {name: torch.as_tensor(each).cuda() for name, each in there.init().items()}
    x = torch.randn(T, B, D, device="cuda")
    gc.collect()  # what other tests left
    there(params, x=x).h.numpy()
    before = torch.cuda.memory_allocated()
    for _ in range(20):
        with pytest.raises(stepnet.ShapeMismatchError):
            there(params, x=torch.randn(T, B, D, device="cuda"), h_init=x)
    there(params, x=x).h.numpy()
    gc.collect()
    assert torch.cuda.memory_allocated() == before


# Modules


def test_a_module_computes_there_what_it_does_on_the_cpu(modules):
    on_cpu, on_gpu = modules
    for _ in range(6):  # launched, recorded and played
        x = torch.randn(T, B, D)
        y = x.cuda().requires_grad_()
        x.requires_grad_()
        out, expected = on_gpu(y), on_cpu(x)
        for found, each in zip(out, expected):
            assert found.device == y.device
            near(found, each)
        weights = torch.randn(T, B, H)
        for module in modules:
            module.zero_grad()
        (out.h * weights.cuda()).sum().backward()
        (expected.h * weights).sum().backward()
        near(y.grad, x.grad)
        assert_same_gradients(on_gpu, on_cpu)
        with torch.no_grad():
            near(on_gpu(y).c_last, expected.c_last)


def test_gradients_in_double_match_differences(cells):
    for name in ("lstm", "gru", "layer_norm_lstm"):
        module = stepnet.torch.Module(stepnet.cell(cells / f"{name}.cell", D=3, H=2), seed=2).double().cuda()
        x = torch.randn(4, 2, 3, dtype=torch.float64, device="cuda", requires_grad=True)
        params = [parameter.detach().clone().requires_grad_() for parameter in module.parameters()]
        names = [key for key, _ in module.named_parameters()]

        def run(x, *params):
            return tuple(torch.func.functional_call(module, dict(zip(names, params)), (x,)))

        assert torch.autograd.gradcheck(run, (x, *params))


def test_parameters_stay_in_the_memory_of_pytorch(modules):
    _, module = modules
    x = torch.randn(T, B, D, device="cuda")
    before = {name: each.data_ptr() for name, each in module.named_parameters()}
    h = module(x).h
    with torch.no_grad():
        module.b.add_(1)
    assert not torch.equal(module(x).h, h)
    assert {name: each.data_ptr() for name, each in module.named_parameters()} == before


def test_a_module_is_in_the_order_of_the_current_stream(modules):
    on_cpu, on_gpu = modules
    good = torch.randn(T, B, D, device="cuda")
    weights = torch.randn(T, B, H, device="cuda")
    (on_cpu(good.cpu()).h * weights.cpu()).sum().backward()
    for _ in range(5):
        (on_gpu(good).h * weights).sum().backward()
    torch.cuda.synchronize()
    for stream in (torch.cuda.Stream(), torch.cuda.default_stream()):
        on_gpu.zero_grad()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            x = torch.full_like(good, float("nan"))
            torch.cuda._sleep(LONG)
            x.copy_(good)
            (on_gpu(x).h * weights).sum().backward()
            is_behind = torch.cuda.Event()
            is_behind.record()
            assert not is_behind.query()  # nobody has waited
            x.fill_(float("nan"))
        torch.cuda.synchronize()
        assert_same_gradients(on_gpu, on_cpu)


def test_a_module_trains_among_others(cells):
    torch.manual_seed(3)
    model = torch.nn.ModuleDict(
        {"cell": stepnet.torch.Module(stepnet.cell(cells / "gru.cell", D=1, H=16)), "sum": torch.nn.Linear(16, 1)}
    ).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for step in range(150):
        x = torch.rand(5, 32, 1, device="cuda") * 2 - 1
        loss = ((model["sum"](model["cell"](x).h_last[0]) - x.sum(0)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        if step == 30:
            allocated = torch.cuda.memory_allocated()
    assert losses[-1] < 0.1 * losses[0]
    assert torch.cuda.memory_allocated() <= allocated + 150 * 512  # the losses


def test_tensors_on_several_devices_are_told(modules):
    on_cpu, on_gpu = modules
    message = "the input 'x' of lstm is on cpu; it must be on cuda:0, as the parameter '.*' is"
    with pytest.raises(stepnet.InvalidArgumentError, match=message):
        on_gpu(torch.randn(T, B, D))
    message = "the input 'h_init' of lstm is on cpu; it must be on cuda:0"
    with pytest.raises(stepnet.InvalidArgumentError, match=message):
        on_gpu(torch.randn(T, B, D, device="cuda"), h_init=torch.zeros(1, B, H))
    with pytest.raises(stepnet.InvalidArgumentError, match="the input 'x' of lstm is on cuda:0; it must be on cpu"):
        on_cpu(torch.randn(T, B, D, device="cuda"))
    on_gpu.b.data = on_gpu.b.data.cpu()
    with pytest.raises(stepnet.InvalidArgumentError, match="the parameter 'b' of lstm is on cpu; it must be on cuda:0"):
        on_gpu(torch.randn(T, B, D, device="cuda"))


def test_a_module_moves(lstm, modules):
    on_cpu, on_gpu = modules
    x = torch.randn(T, B, D)
    near(on_gpu(x.cuda()).h, on_gpu.cpu()(x).h)
    near(on_gpu.cuda()(x.cuda()).h, on_cpu(x).h)
    other = stepnet.torch.Module(lstm, seed=9).cuda()
    other.load_state_dict(on_cpu.state_dict())
    near(other(x.cuda()).h, on_cpu(x).h)
    begun_there = stepnet.torch.Module(lstm.with_options(device="cuda"), seed=1)
    assert begun_there.w.is_cuda
    near(begun_there(x.cuda()).h, on_cpu(x).h)


def test_a_recurrent_module_takes_the_place_of_pytorchs(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    theirs = torch.nn.LSTM(D, H, num_layers=2, bidirectional=True).cuda()
    mine = stepnet.torch.Recurrent(*stepnet.from_torch(theirs, lengths=True)).cuda()
    x = torch.randn(T, B, D, device="cuda")
    (output, states), (expected, expected_states) = mine(x), theirs(x)
    near(output, expected)
    for one, other in zip(states, expected_states):
        near(one, other)
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, torch.tensor([4, 7, 2]), enforce_sorted=False)
    (output, states), (expected, expected_states) = mine(packed), theirs(packed)
    near(output.data, expected.data)
    near(states[0], expected_states[0])


def test_what_is_elsewhere_in_each_call_is_found(modules):
    on_cpu, on_gpu = modules
    xs = [torch.randn(T + i % 2, B, D) for i in range(12)]
    there = [x.cuda() for x in xs]
    for x, y in zip(xs, there):
        for module, given in ((on_cpu, x), (on_gpu, y)):
            module.zero_grad()
            (module(given).h ** 2).sum().backward()
        assert_same_gradients(on_gpu, on_cpu)


def test_other_dtypes_are_told(modules):
    _, module = modules
    with pytest.raises(stepnet.TypeMismatchError, match="the input \"x\" of lstm is complex64 .*; it must be float32"):
        module(torch.zeros(T, B, D, dtype=torch.complex64, device="cuda"))
    with pytest.raises(stepnet.TypeMismatchError, match='the input "x" of lstm is float64'):
        module(torch.zeros(T, B, D, dtype=torch.float64, device="cuda"))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there is one GPU")
def test_a_second_gpu_leaves_the_first_one_current(lstm, cells):
    x = torch.randn(T, B, D)
    on_cpu, second = (stepnet.torch.Module(lstm, seed=1) for _ in range(2))
    second.to("cuda:1")
    for _ in range(6):
        for module, given in ((on_cpu, x), (second, x.to("cuda:1"))):
            module.zero_grad()
            module(given).h.sum().backward()
        assert torch.cuda.current_device() == 0
        assert_same_gradients(second, on_cpu)
    there = stepnet.cell(cells / "lstm.cell", D=D, H=H, device="cuda:1")
    out = there(there.init(), x=x.to("cuda:1"))
    assert torch.from_dlpack(out.h).device == torch.device("cuda:1")
    assert torch.cuda.current_device() == 0
    with pytest.raises(stepnet.InvalidArgumentError, match="lies on cuda:0; it must be in the host's memory or on cuda:1"):
        there(there.init(), x=x.to("cuda:0"))
    with pytest.raises(stepnet.InvalidArgumentError, match="the input 'x' of lstm is on cuda:0; it must be on cuda:1"):
        second(x.to("cuda:0"))


def test_writing_to_what_gradients_need_is_an_error(modules):
    _, module = modules
    out = module(torch.randn(T, B, D, device="cuda"))
    with torch.no_grad():
        module.w.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.h.sum().backward()
    h = module(torch.randn(T, B, D, device="cuda")).h
    h.mul_(2)  # a copy
    h.sum().backward()


def test_a_stream_that_is_captured_is_refused(modules):
    _, module = modules
    x = torch.randn(T, B, D, device="cuda")
    expected = module(x).h
    torch.cuda.synchronize()
    with pytest.raises(stepnet.InvalidArgumentError, match="the stream is being captured into a CUDA graph"):
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            module(x)
    torch.cuda.synchronize()
    near(module(x).h, expected)


def test_memory_is_given_back(modules):
    _, module = modules
    x = torch.randn(T, B, D, device="cuda")

    def train():
        module.zero_grad()
        module(x).h.sum().backward()

    for _ in range(10):
        train()
    gc.collect()
    torch.cuda.synchronize()
    before, free = torch.cuda.memory_allocated(), torch.cuda.mem_get_info()[0]
    for _ in range(300):
        train()
    torch.cuda.synchronize()
    gc.collect()
    assert torch.cuda.memory_allocated() == before
    assert torch.cuda.mem_get_info()[0] >= free - (8 << 20)


def test_threads_may_train_on_streams_of_their_own(lstm):
    def work(seed):
        on_cpu, on_gpu = (stepnet.torch.Module(lstm, seed=seed) for _ in range(2))
        on_gpu.cuda()
        stream = torch.cuda.Stream()
        random = torch.Generator().manual_seed(seed)
        for _ in range(20):
            x = torch.randn(1 + seed % 3, B, D, generator=random)
            on_cpu.zero_grad()
            on_gpu.zero_grad()
            on_cpu(x).h.sum().backward()
            with torch.cuda.stream(stream):
                on_gpu(x.cuda()).h.sum().backward()
            stream.synchronize()
            assert_same_gradients(on_gpu, on_cpu)

    in_threads(work, 6)
