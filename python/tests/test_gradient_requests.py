import ctypes
import tracemalloc
import warnings

import numpy
import pytest

import stepnet

STOPPED = "cell c(x[2]; h[2]) { param w[2, 2]; param b[2]; h = Tanh(x @ w + StopGradient(b) + h); output h }"


@pytest.fixture(params=["float32", "float64"])
def case(cells, random, request):
    """A cell of two layers, its parameters, and an input."""
    text = (cells / "lstm.cell").read_text().rstrip().rstrip("}") + "  option layers = 2\n}\n"
    cell = stepnet.cell(text, D=3, H=4, dtype=request.param)
    return cell, cell.init(seed=3), random.normal(size=(5, 2, 3)).astype(request.param)


def names(gradients):
    return sorted([*gradients.params, *gradients.inputs])


def by_name(gradients):
    return {**gradients.params, **gradients.inputs}


def test_none_leaves_the_others_as_they_are(case):
    cell, params, x = case
    _, every = cell.value_and_grad(params, "h", x=x)
    for name in names(every):
        _, some = cell.value_and_grad(params, "h", gradient_requests={name: "none"}, x=x)
        assert names(some) == [each for each in names(every) if each != name]
        for each, gradient in by_name(some).items():
            numpy.testing.assert_array_equal(gradient, by_name(every)[each])
    _, nothing = cell.value_and_grad(params, "h", gradient_requests=dict.fromkeys(names(every), "none"), x=x)
    assert nothing == ({}, {})


@pytest.mark.parametrize("opt_level", [0, 1, 2])
@pytest.mark.parametrize("threads", [1, 3])
def test_add_is_before_and_gradient(case, random, threads, opt_level):
    cell, params, x = case
    cell = cell.with_options(threads=threads, opt_level=opt_level)
    _, every = cell.value_and_grad(params, "h", x=x)
    before = {name: random.normal(size=each.shape).astype(each.dtype) for name, each in by_name(every).items()}
    sums = {name: each.copy() for name, each in before.items()}
    for _ in range(3):
        _, found = cell.value_and_grad(params, "h", gradient_requests=dict.fromkeys(sums, "add"), into=sums, x=x)
        for name, gradient in by_name(every).items():
            before[name] = before[name] + gradient
            numpy.testing.assert_array_equal(sums[name], before[name], err_msg=name)
            assert by_name(found)[name] is sums[name]


def test_gradients_of_parts_become_one(case, random):
    """As a large batch is worked off in small ones: the gradients of all begin with zeros, and are handed on."""
    cell, params, _ = case
    parts = [random.normal(size=(5, 2, 3)).astype(cell.params[0].dtype) for _ in range(3)]
    requests = dict.fromkeys(params, "add")
    total = {name: numpy.zeros_like(each) for name, each in params.items()}
    for x in parts:
        _, total = cell.value_and_grad(params, "h", wrt=params, gradient_requests=requests, into=total, x=x)
    _, at_once = cell.value_and_grad(params, "h", wrt=params, x=numpy.concatenate(parts, axis=1))
    for name, gradient in at_once.params.items():
        numpy.testing.assert_allclose(total.params[name], gradient, rtol=1e-4, atol=1e-5)


def test_a_view_is_added_to_where_it_is(case):
    cell, params, x = case
    name = "layer1/w"
    value = params[name]
    flat = numpy.ones(2 * value.size, value.dtype)
    _, every = cell.value_and_grad(params, "h", wrt=name, x=x)
    view = flat[value.size :].reshape(value.shape)
    cell.value_and_grad(params, "h", wrt=name, gradient_requests={name: "add"}, into={name: view}, x=x)
    numpy.testing.assert_array_equal(flat[: value.size], 1)
    numpy.testing.assert_array_equal(flat[value.size :].reshape(value.shape), 1 + every.params[name])
    across = numpy.zeros((value.shape[-1], value.shape[0]), value.dtype).T
    cell.value_and_grad(params, "h", wrt=name, gradient_requests={name: "add"}, into={name: across}, x=x)
    numpy.testing.assert_array_equal(across, every.params[name])


def side_by_side(shapes, dtype):
    """Arrays of zeros that share a buffer and no element of it: rows beside each other, and every second element."""
    rows, columns = zip(*shapes)
    wide = numpy.zeros((rows[0], sum(columns)), dtype)
    yield [wide[:, : columns[0]], wide[:, columns[0] :]]
    size = max(r * c for r, c in shapes)
    turns = numpy.zeros(2 * size, dtype)
    yield [turns[k::2][: r * c].reshape(r, c) for k, (r, c) in enumerate(shapes)]


def test_arrays_may_lie_between_each_other(case):
    cell, params, x = case
    chosen = ["layer0/w", "layer0/u"]
    _, every = cell.value_and_grad(params, "h", wrt=chosen, x=x)
    for arrays in side_by_side([params[name].shape for name in chosen], x.dtype):
        assert numpy.may_share_memory(*arrays)  # as far as their bounds tell
        total = dict(zip(chosen, arrays))
        cell.value_and_grad(params, "h", wrt=chosen, gradient_requests=dict.fromkeys(chosen, "add"), into=total, x=x)
        for name in chosen:
            numpy.testing.assert_array_equal(total[name], every.params[name])


def strided(strides):
    return numpy.lib.stride_tricks.as_strided(numpy.zeros(64, "f4"), (2, 3), strides)


@pytest.mark.parametrize("strides", [(12, 4), (4, 8), (-4, -8), (12, 8)])
def test_elements_may_lie_in_any_order(strides):
    """With (12, 8) rows begin within each other, and no element is that of another."""
    array = strided(strides) if min(strides) > 0 else numpy.zeros((3, 2), "f4").T[::-1, ::-1]
    cell = stepnet.cell("cell c(x[2]; h[3]) { param w[2, 3]; param u[3, 2] = 1; h = Tanh(x @ u + (x * 0) @ u); y = h @ w; output y }")
    params, x = cell.init(), numpy.ones((2, 1, 2), "f4")
    _, expected = cell.value_and_grad(params, "y", wrt="w", x=x)
    cell.value_and_grad(params, "y", wrt="w", gradient_requests={"w": "add"}, into={"w": array}, x=x)
    numpy.testing.assert_array_equal(array, expected.params["w"])


def test_pullback_adds_too(case):
    cell, params, x = case
    outputs, pullback = cell.vjp(params, wrt="x", gradient_requests={"x": "add"}, x=x)
    total = {"x": numpy.zeros_like(x)}
    weights = numpy.ones_like(outputs.h)
    once = pullback(total, h=weights).inputs["x"].copy()
    assert pullback(total, h=weights).inputs["x"] is total["x"]
    numpy.testing.assert_array_equal(total["x"], once + once)


def test_nets_take_requests(tmp_path, random):
    (tmp_path / "net.pbtxt").write_text(
        'op { type: "FC" input: "x" input: "w" input: "b" output: "p" } op { type: "Tanh" input: "p" output: "y" }'
    )
    w, b = (random.normal(size=size).astype("float32") for size in ((2, 3), 2))
    stepnet.save_params({"w": w, "b": b}, tmp_path / "init.npz")
    net = stepnet.load(tmp_path / "net.pbtxt", tmp_path / "init.npz")
    x = random.normal(size=(4, 3)).astype("float32")
    _, every = net.value_and_grad("y", x=x)
    before = random.normal(size=(2, 3)).astype("float32")
    total = before.copy()
    _, found = net.value_and_grad("y", gradient_requests={"w": "add", "x": "none"}, into={"w": total}, x=x)
    assert names(found) == ["b", "w"]
    numpy.testing.assert_array_equal(found.params["b"], every.params["b"])
    numpy.testing.assert_array_equal(total, before + every.params["w"])


@pytest.mark.parametrize("step", [1, 2])
def test_add_takes_the_memory_of_the_gradient_alone(set_max_memory, step):
    """Nothing of the core, nor of NumPy, where the array is not contiguous either."""
    net = stepnet.load('op { type: "MatMul" input: "x" input: "w" output: "y" }')
    x, w = numpy.ones((1, 1000), "float32"), numpy.ones((1000, 1000), "float32")
    total = numpy.ones((1000, 1000 * step), "float32")[:, ::step]
    outputs, pullback = net.vjp(wrt="w", gradient_requests={"w": "add"}, x=x, w=w)
    set_max_memory(stepnet.memory().current + w.nbytes + w.nbytes // 2)
    tracemalloc.start()
    try:
        pullback({"w": total}, y=numpy.full_like(outputs.y, 2))
        assert tracemalloc.get_traced_memory()[1] < w.nbytes // 2
    finally:
        tracemalloc.stop()
    numpy.testing.assert_array_equal(total, 3)


def test_a_sum_that_overflows_is_no_warning():
    net = stepnet.load('op { type: "Scale" input: "x" output: "y" arg { name: "scale" f: 1 } }')
    total = numpy.full(2, 3e38, "float32")
    _, pullback = net.vjp(gradient_requests={"x": "add"}, x=numpy.zeros(2, "float32"))
    with warnings.catch_warnings(), numpy.errstate(all="raise"):
        warnings.simplefilter("error")
        pullback({"x": total}, y=total.copy())
    assert numpy.isinf(total).all()


def shared_rows(stride=0):
    """An array that can be written to, the rows of which are one, or share an element or half of one."""
    return numpy.lib.stride_tricks.as_strided(numpy.zeros(4, "f4"), (2, 2), (stride, 4))


def test_a_loss_counts_an_output_once():
    cell = stepnet.cell(STOPPED)
    with pytest.raises(stepnet.InvalidArgumentError, match="loss names an output twice: h, h"):
        cell.value_and_grad(cell.init(), ["h", "h"], x=numpy.ones((3, 1, 2), "f4"))


@pytest.mark.parametrize(
    "requests, into, error, message",
    [
        ({"w": "null"}, {}, stepnet.InvalidArgumentError, 'says for "w" "null"; it must be write, add or none, which is MXNet\'s null'),
        ({"w": "\ud800"}, {}, stepnet.InvalidArgumentError, r'says for "w" "\\ud800"; it must be'),
        ({"\ud800": "add"}, {}, stepnet.InvalidArgumentError, r'says add for "\\ud800", by which'),
        ({"w": 1}, {}, stepnet.TypeMismatchError, 'says for "w" 1; it must be "write", "add" or "none"'),
        ("none", {}, stepnet.TypeMismatchError, "gradient_requests is a str; it must be a dictionary"),
        ({"w": "add"}, numpy.zeros((2, 2), "f4"), stepnet.TypeMismatchError, "into is an ndarray float32 .*; it must be a dictionary"),
        ({"W": "none"}, {}, stepnet.InvalidArgumentError, 'says none for "W", by which no gradient is made; did you mean "w"?'),
        ({"w": "add"}, {}, stepnet.InvalidArgumentError, 'says add for "w", and into has nothing for it to be added to'),
        ({}, {"w": numpy.zeros((2, 2), "f4")}, stepnet.InvalidArgumentError, "for which gradient_requests does not say add"),
        ({"w": "add"}, {"w": numpy.zeros(2, "f4")}, stepnet.ShapeMismatchError, r"float32 \[2\]; it must be float32 \[2, 2\]"),
        ({"w": "add"}, {"w": numpy.zeros((2, 2))}, stepnet.TypeMismatchError, r"float64 \[2, 2\]; it must be float32"),
        ({"w": "add"}, {"w": [[0, 0], [0, 0]]}, stepnet.TypeMismatchError, "has for 'w' a list"),
        ({"w": "add"}, {"w": shared_rows()}, stepnet.InvalidArgumentError, "whose elements share memory"),
        ({"w": "add"}, {"w": shared_rows(4)}, stepnet.InvalidArgumentError, "whose elements share memory"),
        ({"w": "add"}, {"w": shared_rows(2)}, stepnet.InvalidArgumentError, "whose elements share memory"),
        ({"w": "add"}, {"w": numpy.broadcast_to(numpy.float32(0), (2, 2))}, stepnet.InvalidArgumentError, "is read-only"),
        ({"w": "add"}, {"w": numpy.zeros((2, 2), "U1")}, stepnet.TypeMismatchError, "for 'w' is an ndarray of <U1; it must be"),
    ],
)
def test_requests_that_cannot_be_met(requests, into, error, message):
    cell = stepnet.cell(STOPPED)
    with pytest.raises(error, match=message):
        cell.value_and_grad(cell.init(), "h", gradient_requests=requests, into=into, x=numpy.ones((3, 1, 2), "f4"))


def test_what_is_refused_changes_nothing(case):
    cell, params, x = case
    first, second = list(params)[:2]
    total = {first: numpy.zeros_like(params[first]), second: numpy.zeros(7, params[second].dtype)}
    requests = {first: "add", second: "add"}
    with pytest.raises(stepnet.ShapeMismatchError):
        cell.value_and_grad(params, "h", gradient_requests=requests, into=total, x=x)
    assert not total[first].any()
    same = numpy.zeros(params["layer0/b"].size * 2, x.dtype)
    requests = {"layer0/b": "add", "layer1/b": "add"}
    with pytest.raises(stepnet.InvalidArgumentError, match="arrays in the same memory"):
        total = {"layer0/b": same[:-1][: params["layer0/b"].size], "layer1/b": same[1:][: params["layer0/b"].size]}
        cell.value_and_grad(params, "h", gradient_requests=requests, into=total, x=x)


def test_gradients_of_what_no_output_depends_on_are_zeros():
    cell = stepnet.cell(STOPPED)
    x = numpy.ones((3, 1, 2), "f4")
    _, found = cell.value_and_grad(cell.init(), "h", wrt="b", x=x)
    numpy.testing.assert_array_equal(found.params["b"], numpy.zeros(2, "f4"))


def test_what_no_output_depends_on_stays_as_it_is():
    text = """cell c(x[D]; h[D]) {
      size D = 3
      param w[D, D]
      param v[D, D]
      h = Tanh(x @ w) + Cast(GT(x @ v, 0), to="float")
      output h
    }"""
    cell = stepnet.cell(text)
    net = stepnet.load(stepnet.expand(text), init=stepnet.expand(text, init=True))
    x, params = numpy.ones((2, 1, 3), "float32"), cell.init()
    for call in (lambda **given: cell.value_and_grad(params, "h", **given), lambda **given: net.value_and_grad("h", **given)):
        into = {name: numpy.full((3, 3), 7, "float32") for name in "wv"}
        _, gradients = call(x=x, wrt=[*"wv"], gradient_requests=dict.fromkeys("wv", "add"), into=into)
        assert gradients.params["v"] is into["v"] and (into["v"] == 7).all() and (into["w"] != 7).any()


def test_arrays_of_into_may_get_another_shape_meanwhile(case):
    """By another thread or, as here, by what Python calls in the midst of a call: the sum is in their memory."""
    cell, params, x = case
    _, every = cell.value_and_grad(params, "h", wrt=params, x=x)
    total = {name: numpy.ones_like(each) for name, each in params.items()}
    outputs, pullback = cell.vjp(params, wrt=params, gradient_requests=dict.fromkeys(params, "add"), x=x)

    class Gradient:
        """Ones, that change the arrays when they are read."""

        ones = numpy.ones_like(outputs.h)

        def __dlpack_device__(self):
            return self.ones.__dlpack_device__()

        def __dlpack__(self, **options):
            for array in total.values():
                array.shape = (array.size, 1)
            return self.ones.__dlpack__(**options)

    pullback(total, h=Gradient())
    for name, array in total.items():
        assert array.shape == (array.size, 1)
        numpy.testing.assert_array_equal(array.reshape(params[name].shape), 1 + every.params[name])


def writable(array):
    """The memory of an array that may not be written to as one that may."""
    return numpy.frombuffer((ctypes.c_char * array.nbytes).from_address(array.ctypes.data), array.dtype).reshape(array.shape)


def test_arrays_of_into_share_no_memory_with_what_gradients_are_computed_of(case):
    """The first call of the pullback would be right, and the second not."""
    cell, params, x = case
    names = [*params, "x"]
    outputs, pullback = cell.vjp(params, gradient_requests=dict.fromkeys(names, "add"), x=x)
    gradient = numpy.ones_like(outputs.h)
    expected = by_name(pullback({name: numpy.zeros_like(each) for name, each in {**params, "x": x}.items()}, h=gradient))

    def refused(name, array, what):
        into = {each: numpy.zeros_like(expected[each]) for each in names} | {name: array}
        with pytest.raises(stepnet.InvalidArgumentError, match=f"into has for '{name}' an array in the memory of {what}, of"):
            pullback(into, h=gradient)

    first = names[0]
    refused("x", x, 'what the call was given as "x"')
    refused(first, params[first], f'what the call was given as "{first}"')
    weights = next(name for name in params if params[name].size >= x.size)
    refused("x", params[weights].reshape(-1)[-x.size :].reshape(x.shape), f'what the call was given as "{weights}"')
    start = next(name for name in names if expected[name].size <= outputs.h.size)
    part = writable(outputs.h).reshape(-1)[: expected[start].size].reshape(expected[start].shape)
    refused(start, part, 'the output "h"')
    again = by_name(pullback({name: numpy.zeros_like(expected[name]) for name in names}, h=gradient))
    for name in names:
        numpy.testing.assert_array_equal(again[name], expected[name])


def test_arrays_of_into_share_no_memory_with_inputs_of_a_net():
    net = stepnet.load('op { type: "Mul" input: "x" input: "x" output: "y" } external_output: "y"')
    both = numpy.arange(1, 9, dtype="float32")
    x = both[1::2]  # copied, since it is not contiguous: the array of into may be here
    with pytest.warns(stepnet.CopyWarning):
        _, pullback = net.vjp(gradient_requests={"x": "add"}, x=x)
    for _ in range(2):
        pullback({"x": x}, y=numpy.ones(4, "float32"))
    numpy.testing.assert_array_equal(x, [10, 20, 30, 40])
    x = both[:4]
    _, pullback = net.vjp(gradient_requests={"x": "add"}, x=x)
    pullback({"x": both[4:]}, y=numpy.ones(4, "float32"))
    with pytest.raises(stepnet.InvalidArgumentError, match='into has for .x. an array in the memory of what the call was given'):
        pullback({"x": both[3:7]}, y=numpy.ones(4, "float32"))


def test_memory_that_numpy_does_not_have_is_named():
    cell = stepnet.cell(STOPPED)
    across = numpy.lib.stride_tricks.as_strided(numpy.zeros(2 * 10**6, "f4"), (10**6, 10**6), (4, 4))
    message = "out of memory: there is no memory for finding out whether elements of the array of into for 'w' share memory: Unable"
    with pytest.raises(stepnet.OutOfMemoryError, match=message):
        cell.value_and_grad(
            cell.init(), "h", wrt="w", gradient_requests={"w": "add"}, into={"w": across}, x=numpy.ones((3, 1, 2), "f4")
        )
