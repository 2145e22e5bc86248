"""Arrays on a device, on one that needs no hardware (tests/poison_device).

Its memory is its own, and its queue does nothing until somebody waits: what is there too early, or given back too early,
would show.
"""

import ctypes
import gc

import numpy
import pytest
from conftest import ROOT, in_threads
from lender import FIRST_PRIVATE_STREAM, PRIVATE, Lender

import stepnet
from stepnet._stepnet import address_of

T, B, D, H = 6, 3, 5, 4


@pytest.fixture(scope="module")
def poison(build_operators):
    """What has happened on the device."""
    library = build_operators(
        ROOT / "tests" / "tools" / "poison_library.cc", *sorted((ROOT / "tests" / "poison_device").glob("*.cc"))
    )
    stepnet.load_operator_library(library)
    return ctypes.CDLL(str(library))


@pytest.fixture
def there(poison, cells):
    """An LSTM on the device."""
    return stepnet.cell(cells / "lstm.cell", D=D, H=H, device="private")


def orders(poison):
    return [poison.poison_order(i) for i in range(poison.poison_num_orders())]


def lent(values, **fields):
    """`values` as somebody lends them on the device. The memory is the host's, which the device can read."""
    kind = {"f": 2, "i": 0}[values.dtype.kind]
    usual = {"device_type": PRIVATE, "code": kind, "bits": 8 * values.itemsize}
    return Lender(list(values.shape), **{**usual, **fields}).fill(values)


@pytest.fixture
def values(random):
    return random.normal(size=(T, B, D)).astype("float32")


def assert_near(found, expected):
    numpy.testing.assert_allclose(found.numpy() if isinstance(found, stepnet.DeviceArray) else found, expected, rtol=1e-5, atol=1e-6)


def test_arrays_on_the_device_are_read_where_they_are(poison, values):
    x = lent(values)
    assert address_of(x, "private") == x.address
    assert x.streams == [FIRST_PRIVATE_STREAM]


def test_a_call_with_any_array_there_gives_arrays_there(lstm, there, values):
    params = lstm.init()
    expected = lstm(params, x=values)
    for given_params, x in ((params, lent(values)), ({**params, "w": lent(params["w"])}, values)):
        out = there(given_params, x=x)
        assert [type(each) for each in out] == [stepnet.DeviceArray] * 3
        for each, on_host in zip(out, expected):
            assert (each.shape, each.dtype, each.device) == (on_host.shape, "float32", "private:0")
            assert_near(each, on_host)
    assert repr(out.h) == "<stepnet.DeviceArray float32 [6, 3, 4] on private:0>"
    assert isinstance(there(params, x=values).h, numpy.ndarray)


def test_nobody_waits_and_nothing_comes_from_the_host(poison, there, values):
    params = {name: lent(each) for name, each in there.init().items()}
    x = lent(values)
    there(params, x=x)
    waits, copies = poison.poison_host_waits(), poison.poison_copies_from_host()
    outputs, pullback = there.vjp(params, x=x)
    gradients = pullback(h=outputs.h)
    again = there(params, x=x, h_init=outputs.h_last, c_init=gradients.inputs["c_init"])
    assert (poison.poison_host_waits(), poison.poison_copies_from_host()) == (waits, copies)
    del again


def test_arrays_go_from_call_to_call(lstm, there, values):
    params = lstm.init()
    first, first_there = lstm(params, x=values), there(params, x=lent(values))
    expected = lstm(params, x=values, h_init=first.h_last, c_init=first.c_last)
    found = there(params, x=values, h_init=first_there.h_last, c_init=first_there.c_last)
    assert isinstance(found.h, stepnet.DeviceArray)
    for one, other in zip(found, expected):
        assert_near(one, other)


def test_gradients_are_there_too(lstm, there, values, random):
    params = lstm.init()
    weights = random.normal(size=(T, B, H)).astype("float32")
    _, pullback = lstm.vjp(params, x=values)
    expected = pullback(h=weights)
    for given in (lent(weights), weights):
        outputs, pullback = there.vjp(params, x=lent(values))
        assert_near(outputs.h, lstm(params, x=values).h)
        for _ in range(2):
            found = pullback(h=given)
            for by_name, others in zip(found, expected):
                assert by_name.keys() == others.keys()
                for name, each in by_name.items():
                    assert isinstance(each, stepnet.DeviceArray)
                    assert_near(each, others[name])


def test_the_gradients_of_a_sum_are_there(lstm, there, values):
    params = lstm.init()
    value, expected = lstm.value_and_grad(params, ["h", "c_last"], x=values)
    total, found = there.value_and_grad(params, ["h", "c_last"], x=lent(values))
    assert total == pytest.approx(value, rel=1e-5)
    assert_near(found.params["u"], expected.params["u"])


class Tensor(Lender):
    """What gradients need of a tensor of PyTorch, on the device."""

    device, dtype = "private:0", "float32"

    @property
    def array(self):
        """Its memory, which is the host's."""
        return numpy.frombuffer((ctypes.c_float * self.numel()).from_address(self.address), "float32").reshape(list(self._shape))

    def detach(self):
        return self

    def is_contiguous(self):
        return self._strides is None

    def numel(self):
        return int(numpy.prod(list(self._shape)))

    def element_size(self):
        return 4

    def data_ptr(self):
        return self.address

    def add_(self, gradient):
        self.array[...] += gradient


def tensor(values, **fields):
    return Tensor(list(values.shape), device_type=PRIVATE, **fields).fill(values)


def test_gradients_are_added_on_the_host(lstm, there, values):
    params = lstm.init()
    expected = lstm.value_and_grad(params, "h", wrt="w", x=values)[1].params["w"]
    into = {"w": numpy.ones_like(expected)}
    there.value_and_grad(params, "h", wrt="w", gradient_requests={"w": "add"}, into=into, x=lent(values))
    assert_near(into["w"], 1 + expected)


@pytest.mark.parametrize("place", [lent, lambda values: values], ids=["on the device", "on the host"])
def test_gradients_are_added_to_tensors_on_the_device(place, lstm, there, values, monkeypatch):
    taken = []

    def take(gradient, device):
        taken.append((type(gradient), device))
        return gradient.numpy() if isinstance(gradient, stepnet.DeviceArray) else gradient

    monkeypatch.setattr("stepnet.gradients._taken_by_torch", take)
    params = lstm.init()
    expected = lstm.value_and_grad(params, "h", x=values)[1].params
    into = {"w": tensor(numpy.ones_like(expected["w"])), "u": numpy.ones_like(expected["u"])}
    requests = {"w": "add", "u": "add"}
    for times in (1, 2):
        found = there.value_and_grad(params, "h", gradient_requests=requests, into=into, x=place(values))[1].params
        assert found["w"] is into["w"] and found["u"] is into["u"]
        assert_near(into["w"].array, 1 + times * expected["w"])
        assert_near(into["u"], 1 + times * expected["u"])
        assert_near(found["b"], expected["b"])
    assert taken == [(stepnet.DeviceArray if place is lent else numpy.ndarray, "private:0")] * 2


def test_tensors_on_the_device_to_which_no_gradient_can_be_added(lstm, there, values):
    params = {name: lent(array) for name, array in lstm.init().items()}
    w, requests = lstm.init()["w"], {"w": "add", "u": "add"}
    out, pullback = there.vjp(params, wrt=("w", "u"), gradient_requests=requests, x=lent(values))
    u = tensor(lstm.init()["u"])

    def refuse(error, message, sums):
        with pytest.raises(error, match=message):
            pullback(sums, h=numpy.ones((T, B, H), "float32"))

    refuse(stepnet.InvalidArgumentError, "a tensor on private:0 that is not contiguous; give a copy",
           {"w": Tensor([4 * H, D], [1, 4 * H], device_type=PRIVATE), "u": u})  # fmt: skip
    refuse(stepnet.ShapeMismatchError, r"into has for \"w\" float32 \[16, 4\]; it must be float32 \[16, 5\]", {"w": tensor(lstm.init()["u"]), "u": u})
    refuse(stepnet.InvalidArgumentError, "into has for 'w' and 'u' arrays in the same memory", {"w": u, "u": u})
    given = tensor(w)
    _, pullback = there.vjp({**params, "w": given}, wrt=("w", "u"), gradient_requests=requests, x=lent(values))
    refuse(stepnet.InvalidArgumentError, "into has for 'w' an array in the memory of .*, of which gradients are computed", {"w": given, "u": u})
    on_host = lstm.vjp(lstm.init(), wrt="w", gradient_requests={"w": "add"}, x=values)[1]
    with pytest.raises(stepnet.InvalidArgumentError, match="lies on private:0; it must be in the host's memory"):
        on_host({"w": given}, h=numpy.ones((T, B, H), "float32"))


def test_what_lends_lives_until_the_device_has_read_it(there, values):
    params, x = there.init(), lent(values)
    out = there(params, x=x)
    assert x.num_lent == 1  # the device has not begun
    out.h.numpy()
    assert x.num_lent == 0
    outputs, pullback = there.vjp(params, x=x)
    weights = lent(numpy.ones((T, B, H), "float32"))
    gradients = pullback(h=weights)
    del pullback
    assert (x.num_lent, weights.num_lent) == (1, 1)
    gradients.params["w"].numpy()
    assert (x.num_lent, weights.num_lent) == (0, 0)
    del outputs


def test_calls_that_fail_keep_nothing(there, values):
    params, x = there.init(), lent(values)
    for _ in range(3):
        with pytest.raises(stepnet.ShapeMismatchError, match='the initial state "h_init" is float32'):
            there(params, x=x, h_init=lent(values))
        with pytest.raises(stepnet.TypeMismatchError, match='the parameter "w"'):
            there({**params, "w": 1}, x=x)
    there(params, x=x).h.numpy()
    assert x.num_lent == 0


def test_memory_of_the_device_is_given_back(poison, there, values):
    params, x = {name: lent(each) for name, each in there.init().items()}, lent(values)

    def train():
        outputs, pullback = there.vjp(params, x=x)
        pullback(h=outputs.h).params["w"].numpy()

    def bytes_after(times):
        for _ in range(times):
            train()
        gc.collect()  # cells of other tests, too
        train()
        return poison.poison_bytes()

    assert bytes_after(5) == bytes_after(20)


def test_runs_that_find_arrays_where_they_were_are_played(poison, there, values):
    params, x = {name: lent(each) for name, each in there.init().items()}, lent(values)
    expected = there(params, x=x).h.numpy()
    for _ in range(4):
        there(params, x=x)
    before = poison.poison_played()
    out = there(params, x=x)
    assert poison.poison_played() == before + 1
    assert numpy.array_equal(out.h.numpy(), expected)
    x.fill(2 * values)
    assert not numpy.array_equal(there(params, x=x).h.numpy(), expected)
    assert poison.poison_played() == before + 2


def test_what_is_elsewhere_in_each_call_is_played_too(poison, lstm, there, random):
    params = {name: lent(each) for name, each in lstm.init().items()}
    xs = [random.normal(size=(T + i % 2, B, D)).astype("float32") for i in range(16)]
    for i, x in enumerate(xs):
        played = poison.poison_played()
        outputs, pullback = there.vjp(params, x=lent(x))
        gradients = pullback(h=lent(numpy.ones(outputs.h.shape, "float32")))
        if i > 8:
            assert poison.poison_played() >= played + 2  # forward and backward
        value, expected = lstm.value_and_grad(lstm.init(), "h", x=x)
        assert outputs.h.numpy().sum() == pytest.approx(value, rel=1e-4, abs=1e-4)
        assert_near(gradients.params["u"], expected.params["u"])


def test_one_stream_orders_a_call(poison, there, values):
    """What stepnet.torch does: the call comes behind a stream, and the stream behind the call."""
    params, x = there.init(), lent(values)
    names = list(params)
    call = stepnet._stepnet.TensorCall(there._cell, names, ["x"], ["w"])
    before = len(orders(poison))
    outputs, gradients = call.run_for_gradients([*params.values(), x], 77, None, None)
    by_tensor = gradients.in_order([outputs[0], *[None] * (len(outputs) - 1)], 77, None)
    assert [each is not None for each in by_tensor] == [name == "w" for name in [*names, "x"]]
    assert x.streams == [-1]
    assert orders(poison)[before:] == [-77, 77, -77, 77]
    capsule = by_tensor[names.index("w")].__dlpack__(stream=77)  # which has been made to wait
    assert len(orders(poison)) == before + 4
    del capsule  # whoever gets the memory next comes behind the stream
    assert orders(poison)[before + 4 :] == [-77]
    assert x.num_lent == 1
    del gradients
    gc.collect()
    assert x.num_lent == 0  # the stream is what orders it


def test_the_order_of_a_stream_outlives_a_failure(poison, cells, values):
    cell = stepnet.cell("cell s(x[D]; h[D]) {\n size D = 5\n h = h + x\n output h\n option lengths = lengths\n}", device="private")
    x, lengths = lent(values), lent(numpy.array([7, 1, 2], "int32"))  # there are six steps
    before = len(orders(poison))
    with pytest.raises(stepnet.Error, match="7"):
        stepnet._stepnet.TensorCall(cell._cell, [], ["x", "lengths"], []).run([x, lengths], 77, None, None)
    assert orders(poison)[before:] == [-77, 77]
    gc.collect()
    assert (x.num_lent, lengths.num_lent) == (0, 0)


def test_arrays_are_given_to_other_libraries(poison, there, values):
    h = there(there.init(), x=lent(values)).h
    assert h.__dlpack_device__() == (PRIVATE, 0)
    before = len(orders(poison))
    for stream, order in ((5, 5), (None, 1), (2, 2)):
        capsule = h.__dlpack__(stream=stream, max_version=(1, 1), dl_device=(PRIVATE, 0), copy=False)
        assert orders(poison)[before:] == [order]
        del capsule
        assert orders(poison)[before:] == [order, -order]
        before = len(orders(poison))
    h.__dlpack__(stream=-1)  # and is let go of
    assert len(orders(poison)) == before
    assert_near(h, h.numpy())


def test_arrays_outlive_their_cell_and_whoever_gave_them(there, values, lstm):
    out = there(there.init(), x=lent(values))
    h = out.h
    del out
    gc.collect()
    assert_near(h, lstm(lstm.init(), x=values).h)


def test_what_arrays_cannot_be_is_told(there, values):
    h = there(there.init(), x=lent(values)).h
    with pytest.raises(BufferError, match=r"the array is on private:0, and is given there alone; numpy\(\) gives a copy"):
        h.__dlpack__(dl_device=(1, 0))
    with pytest.raises(stepnet.InvalidArgumentError, match="stream is 0; it must be the handle of a stream"):
        h.__dlpack__(stream=0)
    with pytest.raises(stepnet.TypeMismatchError, match="stream is 'a'; it must be a whole number"):
        h.__dlpack__(stream="a")


@pytest.mark.parametrize(
    "device, fields, message",
    [
        ("cpu", {}, "lies on private:0; it must be in the host's memory$"),
        ("private:1", {}, "lies on private:0; it must be in the host's memory or on private:1$"),
        ("private", {"device_type": 2}, "lies on cuda:0; it must be in the host's memory or on private:0$"),
        ("private", {"device_type": 8}, "lies on a device of DLPack's type 8; it must be"),
    ],
)
def test_arrays_that_are_elsewhere_are_refused(poison, cells, values, device, fields, message):
    cell = stepnet.cell(cells / "lstm.cell", D=D, H=H, device=device)
    x = lent(values, **fields)
    with pytest.raises(stepnet.InvalidArgumentError, match='the input "x" ' + message):
        cell(cell.init(), x=x)
    assert (x.num_lent, x.streams) == (0, [])
    with pytest.raises(stepnet.InvalidArgumentError, match="the input \"x\" lies on private:0, and says that it lies on cpu"):
        Liar = type("Liar", (), {"__dlpack__": lambda _, **__: lent(values).__dlpack__(), "__dlpack_device__": lambda _: (1, 0)})
        stepnet.cell(cells / "lstm.cell", D=D, H=H, device="private")(cell.init(), x=Liar())


def test_files_take_no_arrays_of_a_device(there, values, tmp_path):
    h = there(there.init(), x=lent(values)).h
    with pytest.raises(stepnet.InvalidArgumentError, match='the parameter "h" lies on private:0'):
        stepnet.save_params({"h": h}, tmp_path / "h.safetensors")


def test_what_is_not_contiguous_copies_itself(lstm, there, values):
    class Strided(Lender):
        def contiguous(self):
            return lent(values)

    fields = {"strides": [D, T * D, 1], "device_type": PRIVATE}
    with pytest.warns(stepnet.CopyWarning, match='the input "x" is not contiguous and is copied; give one that is contiguous'):
        out = there(there.init(), x=Strided([T, B, D], **fields))
    assert_near(out.h, lstm(lstm.init(), x=values).h)
    with pytest.raises(stepnet.InvalidArgumentError, match='the input "x" is not contiguous; give a copy that is contiguous'):
        there(there.init(), x=Lender([T, B, D], **fields))


def test_threads_may_call_one_cell_on_the_device(lstm, there, random):
    params = {name: lent(each) for name, each in lstm.init().items()}
    xs = [random.normal(size=(1 + i % 3, B, D)).astype("float32") for i in range(6)]
    expected = [lstm.value_and_grad(lstm.init(), "h", x=x) for x in xs]

    def work(i):
        for _ in range(20):
            x = lent(xs[i])
            outputs, pullback = there.vjp(params, x=x)
            gradients = pullback(h=numpy.ones(outputs.h.shape, "float32"))
            del pullback
            assert numpy.allclose(gradients.params["u"].numpy(), expected[i][1].params["u"], rtol=1e-4, atol=1e-5)
            assert numpy.isclose(outputs.h.numpy().sum(), expected[i][0], rtol=1e-4, atol=1e-4)

    in_threads(work, len(xs))


NET = """op { type: "FC" input: "x" input: "w" input: "b" output: "y" }
op { type: "SquaredL2Distance" input: "y" input: "target" output: "distance" }
op { type: "AveragedLoss" input: "distance" output: "loss" }"""
INIT = """op { type: "GaussianFill" output: "w" arg { name: "shape" ints: 1 ints: 3 } }
op { type: "ConstantFill" output: "b" arg { name: "shape" ints: 1 } }"""


@pytest.fixture
def files(tmp_path):
    (tmp_path / "net.pbtxt").write_text(NET)
    (tmp_path / "init.pbtxt").write_text(INIT)
    return tmp_path / "net.pbtxt", tmp_path / "init.pbtxt"


def test_nets_take_arrays_there_and_give_them(poison, files, random):
    x, target = (random.normal(size=(8, size)).astype("float32") for size in (3, 1))
    on_host, net = (stepnet.load(files[0], init=files[1], device=device) for device in ("cpu", "private"))
    assert_near(net(x=lent(x), target=target).loss, on_host(x=x, target=target).loss)
    _, expected = on_host.value_and_grad("loss", x=x, target=target)
    _, found = net.value_and_grad("loss", x=lent(x), target=lent(target))
    assert_near(found.params["w"], expected.params["w"])
    net.restore({"w": found.params["w"]})
    assert numpy.array_equal(net.params["w"], found.params["w"].numpy())


def test_nets_train_on_arrays_there(poison, files, random):
    x, target = (random.normal(size=(8, size)).astype("float32") for size in (3, 1))
    losses = []
    for device, give in (("cpu", lambda array: array), ("private", lent)):
        training = stepnet.train_net(files[0], init=files[1], loss="loss", learning_rate=0.1, device=device)
        given = {"x": give(x), "target": give(target)}
        losses.append([training(**given).loss for _ in range(8)])
    assert_near(numpy.stack([each.numpy() for each in losses[1]]), numpy.stack(losses[0]))
    assert losses[0][-1] < losses[0][0]
