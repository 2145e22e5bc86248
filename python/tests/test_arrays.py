import array
import gc
import re
import sys
import warnings

import numpy
import pytest
from lender import Lender, OnlyDlpack, OtherVersion

import stepnet
from stepnet._stepnet import address_of

NUMPY_DTYPES = ["float16", "float32", "float64", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16"]


def input_of(batch=3):
    return numpy.arange(2 * batch * 5, dtype="float32").reshape(2, batch, 5)


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
def test_arrays_are_read_where_they_are(dtype):
    x = numpy.zeros((3, 4), dtype)
    assert address_of(x) == x.ctypes.data
    assert address_of(x[1:]) == x[1:].ctypes.data
    assert address_of(OnlyDlpack(x)) == x.ctypes.data


@pytest.mark.parametrize("given_as", [lambda array: array, OnlyDlpack, memoryview])
def test_calls_compute_of_arrays_where_they_are(given_as, set_max_memory):
    """There is no memory for a copy of any, and what gradients are computed of is the caller's."""
    cell = stepnet.cell("cell c(x[100000]; h[2]) { param w[2, 100000]; h = x @ w; output h }", disable_pass="pack_weights")
    params, x = {"w": numpy.full((2, 100_000), 0.5, "float32")}, numpy.ones((2, 1, 100_000), "float32")
    given = {name: given_as(array) for name, array in params.items()}
    set_max_memory(stepnet.memory().current + x.nbytes // 4)
    assert cell(given, x=given_as(x)).h.tolist() == [[[50_000, 50_000]]] * 2
    _, pullback = cell.vjp(given, wrt="x", x=given_as(x))
    kept = {what.rpartition(" ")[2]: array.ctypes.data for what, array in pullback._gradients.kept()}
    assert kept.items() >= {'"x"': x.ctypes.data, '"w"': params["w"].ctypes.data}.items()


def test_what_has_the_buffer_protocol_is_an_array():
    numbers = array.array("f", [1, 2, 3])
    assert address_of(numbers) == numbers.buffer_info()[0]
    assert address_of(memoryview(numbers)) == numbers.buffer_info()[0]


def test_arrays_that_must_not_be_written_are_read_as_others(lstm):
    params, x = lstm.init(), input_of()
    expected = lstm(params, x=x).h
    x.flags.writeable = False
    for each in params.values():
        each.flags.writeable = False
    assert address_of(x) == x.ctypes.data
    assert numpy.array_equal(lstm(params, x=x).h, expected)


def test_what_is_not_contiguous_is_copied_with_a_warning(lstm):
    params, x = lstm.init(), input_of()
    expected = lstm(params, x=x).h
    others = {
        "transposed": numpy.ascontiguousarray(x.transpose(2, 1, 0)).transpose(2, 1, 0),
        "strided": numpy.repeat(x, 2, axis=0)[::2],
        "backwards": x[::-1].copy()[::-1],
    }
    for each in others.values():
        with pytest.warns(stepnet.CopyWarning, match='the input "x" is not contiguous and is copied'):
            assert numpy.array_equal(lstm(params, x=each).h, expected)
        with pytest.warns(stepnet.CopyWarning):
            assert numpy.array_equal(lstm(params, x=OnlyDlpack(each)).h, expected)
    with pytest.warns(stepnet.CopyWarning) as warned:
        lstm(params, x=others["strided"])
    assert [each.filename for each in warned] == [__file__]  # it is the caller's line
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lstm(params, x=x[1::5])  # contiguous, as there is one of them
        with pytest.raises(stepnet.CopyWarning):
            lstm(params, x=others["strided"])


def test_sequences_that_lie_batch_first_are_told_of_the_option(lstm):
    params, x = lstm.init(), input_of()
    turned = numpy.ascontiguousarray(x.swapaxes(0, 1))
    option = r"or, with option batch_major = true in the cell, as \[B, T, …\], which it is a view of$"
    with pytest.warns(stepnet.CopyWarning, match=option):
        expected = lstm(params, x=turned.swapaxes(0, 1)).h
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        batch_major = stepnet.cell(lstm.text.replace("output h\n", "output h\n  option batch_major = true\n", 1), D=5, H=4)
        assert numpy.array_equal(batch_major(params, x=turned).h.swapaxes(0, 1), expected)
    with pytest.warns(stepnet.CopyWarning, match="as numpy.ascontiguousarray makes it$"):
        batch_major(params, x=x.swapaxes(0, 1))
    w = numpy.asfortranarray(params["w"])  # no sequence
    with pytest.warns(stepnet.CopyWarning, match="as numpy.ascontiguousarray makes it$"):
        lstm({**params, "w": w}, x=x)


def test_what_is_not_aligned_is_copied_with_a_warning(lstm):
    params, x = lstm.init(), input_of()
    bytes_of = numpy.zeros(x.nbytes + 1, "uint8")
    crooked = bytes_of[1:].view("float32").reshape(x.shape)
    crooked[:] = x
    with pytest.warns(stepnet.CopyWarning, match="is not aligned"):
        assert numpy.array_equal(lstm(params, x=crooked).h, lstm(params, x=x).h)


def vast(*shape):
    """An array that is not contiguous, whose memory is one element."""
    return numpy.broadcast_to(numpy.zeros(1, "float32"), shape)


def refuses_copy(call, error, message):
    with pytest.raises(error, match=re.escape(message)):
        call()


def test_copies_of_arrays_are_limited_as_tensors_are(lstm, tmp_path, set_max_memory):
    params = lstm.init()
    net = stepnet.load('op { type: "Tanh" input: "x" output: "y" } external_output: "y"')
    set_max_memory(stepnet.memory().current + 100_000)
    for call, what in [
        (lambda: lstm(params, x=vast(1000, 10, 5)), 'the input "x"'),
        (lambda: net(x=vast(1000, 10, 5)), 'the input "x"'),
        (lambda: stepnet.save_params({"a": vast(10**6, 10**3)}, tmp_path / "a.npz"), 'the parameter "a"'),
    ]:
        with pytest.warns(stepnet.CopyWarning):
            refuses_copy(call, stepnet.OutOfMemoryError, f"there is no memory for a copy of {what}: a tensor float32 [")


def test_arrays_of_another_shape_are_not_copied(lstm):
    params, x = lstm.init(), numpy.zeros((2, 3, 5), "float32")
    outputs, pullback = lstm.vjp(params, x=x)
    with warnings.catch_warnings():
        warnings.simplefilter("error", stepnet.CopyWarning)
        for call, message in [
            (lambda: lstm(params, x=vast(10**6, 10**6, 4)), 'the input "x" is float32 [1000000, 1000000, 4]; it must be'),
            (lambda: lstm({**params, "w": vast(10**6, 10**6)}, x=x), 'the parameter "w" of lstm is float32 [1000000, 1000000]'),
            (lambda: pullback(h=vast(10**6, 10**6)), 'the gradient of the output "h" is float32 [1000000, 1000000]'),
        ]:
            refuses_copy(call, stepnet.ShapeMismatchError, message)
        wide = numpy.broadcast_to(numpy.zeros(1), (10**6, 10**6, 5))
        refuses_copy(lambda: lstm(params, x=wide), stepnet.TypeMismatchError, 'the input "x" of lstm is float64')


def test_outputs_are_not_overwritten_by_later_calls(lstm):
    params = lstm.init()
    first = lstm(params, x=input_of())
    kept = [each.copy() for each in first]
    for scale in range(5):
        lstm(params, x=scale * input_of())
    for each, copy in zip(first, kept):
        assert numpy.array_equal(each, copy)


def test_outputs_show_memory_of_the_run_and_may_be_written(lstm):
    out = lstm(lstm.init(), x=input_of())
    assert not out.h.flags.owndata
    assert out.h.flags.writeable
    assert numpy.shares_memory(out.h, out.h_last)  # the last row of h
    again = numpy.from_dlpack(out.h)
    assert again.ctypes.data == out.h.ctypes.data


def test_memory_of_outputs_that_nobody_holds_is_used_again(lstm):
    params, x = lstm.init(), input_of()
    addresses = {lstm(params, x=x).h.ctypes.data for _ in range(20)}
    assert len(addresses) <= 2


def test_outputs_outlive_their_cell(cells):
    cell = stepnet.cell(cells / "lstm.cell", D=5, H=4)
    h = cell(cell.init(), x=input_of()).h
    copy = h.copy()
    del cell
    gc.collect()
    assert numpy.array_equal(h, copy)


def test_calls_keep_no_array_that_they_were_given(lstm):
    params, x = lstm.init(), input_of()
    before = {name: sys.getrefcount(each) for name, each in params.items()}
    held = sys.getrefcount(x)
    out = lstm(params, x=x)
    for _ in range(3):
        with pytest.raises(stepnet.Error):
            lstm(params, x=x, h_init=x)
    assert sys.getrefcount(x) == held
    assert {name: sys.getrefcount(each) for name, each in params.items()} == before
    outputs, pullback = lstm.vjp(params, x=x)
    pullback(h=outputs.h)
    del pullback
    assert sys.getrefcount(x) == held
    del out, outputs


def test_a_pullback_keeps_what_it_reads(lstm):
    params = lstm.init()
    expected = lstm.value_and_grad(params, "h", x=input_of())[1]
    outputs, pullback = lstm.vjp(lstm.init(), x=input_of())
    gc.collect()
    scratch = [numpy.full((2, 3, 5), 9, "float32") for _ in range(100)]  # takes what would have been freed
    gradients = pullback(h=numpy.ones_like(outputs.h))
    assert numpy.array_equal(gradients.params["w"], expected.params["w"])
    assert numpy.array_equal(gradients.inputs["x"], expected.inputs["x"])
    del scratch


def test_inputs_are_not_changed(lstm):
    params, x = lstm.init(), input_of()
    copies = {name: each.copy() for name, each in params.items()}
    x_copy = x.copy()
    lstm.value_and_grad(params, ["h", "c_last"], x=x)
    assert numpy.array_equal(x, x_copy)
    assert all(numpy.array_equal(params[name], copies[name]) for name in params)


def test_a_capsule_is_read_once(leaky_sum):
    capsule = numpy.ones((7, 2, 5), "float32").__dlpack__()

    class Given:
        def __dlpack__(self, **_):
            return capsule

        def __dlpack_device__(self):
            return 1, 0

    assert leaky_sum({}, x=Given()).h.shape == (7, 2, 5)
    with pytest.raises(stepnet.TypeMismatchError, match="gives no array that can be read"):
        leaky_sum({}, x=Given())


def test_a_masked_array_is_filled_by_the_caller(leaky_sum):
    x = numpy.ma.masked_array(numpy.ones((1, 1, 5), "float32"), mask=[[[0, 1, 0, 0, 0]]])
    with pytest.raises(stepnet.TypeMismatchError) as raised:
        leaky_sum({}, x=x)
    assert str(raised.value) == (
        'type mismatch: the input "x" is a MaskedArray, some of whose elements may be masked; give array.filled(value)'
    )
    assert list(leaky_sum({}, x=x.filled(7)).h[0, 0]) == [1, 7, 1, 1, 1]


def test_what_an_array_raises_is_why_it_is_not_read(leaky_sum):
    class Given:
        def __dlpack_device__(self):
            raise RuntimeError("no device today")

        def __dlpack__(self, **_):
            raise AssertionError("not asked")

    with pytest.raises(stepnet.TypeMismatchError, match='the input "x" cannot be read: no device today'):
        leaky_sum({}, x=Given())


def test_of_another_version_of_dlpack_only_the_version_is_read(leaky_sum):
    assert leaky_sum({}, x=OtherVersion(1, 7)).h.max() == 1
    for major in (0, 2, 99):
        with pytest.raises(stepnet.TypeMismatchError) as raised:
            leaky_sum({}, x=OtherVersion(major, 3))
        assert str(raised.value) == (
            f'type mismatch: the input "x" is lent by version {major}.3 of DLPack; version 1 is read, and what has no version'
        )


@pytest.mark.skipif(
    numpy.lib.NumpyVersion(numpy.__version__) < "2.1.0", reason="this NumPy lends arrays that are read-only to nobody"
)
def test_read_only_arrays_are_read(leaky_sum):
    x = numpy.ones((7, 2, 5), "float32")
    x.flags.writeable = False

    class Given:
        def __dlpack__(self, **options):
            return x.__dlpack__(**options)

        def __dlpack_device__(self):
            return 1, 0

    assert leaky_sum({}, x=Given()).h[-1].max() == 7


@pytest.fixture
def leaky_sum():
    return stepnet.cell("cell s(x[D]; h[D]) {\n size D = 5\n h = h + x\n output h\n}")


@pytest.mark.parametrize(
    "lender, error, message",
    [
        (Lender([2, 3, 5], data=None), stepnet.InvalidArgumentError, 'the input "x" has 30 elements and no memory'),
        (Lender([2, 3, 5], data=None, byte_offset=8), stepnet.InvalidArgumentError, 'the input "x" has 30 elements and no memory'),
        (Lender([2, -3, 5]), stepnet.ShapeMismatchError, r'the input "x" has a shape that no tensor has: dimension 1 of .* is negative'),
        (Lender([2**62, 3, 5], [-1, 1, 1]), stepnet.ShapeMismatchError, 'the input "x" has a shape that no tensor has: the sizes of'),
        (Lender([1] * 9), stepnet.ShapeMismatchError, 'the input "x" has 9 dimensions; tensors have at most 8'),
        (Lender([2, 3, 5], ndim=-1), stepnet.TypeMismatchError, 'the input "x" is lent by DLPack with -1 dimensions; it must be 0 or more'),
        (Lender([2, 3, 5], shape=None), stepnet.TypeMismatchError, 'the input "x" is lent by DLPack with 3 dimensions and no shape'),
        (Lender([2, 3, 5], device_type=2), stepnet.InvalidArgumentError, 'the input "x" lies on cuda:0; it must be in the host'),
        (Lender([2, 3, 5], lanes=2), stepnet.TypeMismatchError, "has elements of DLPack's type 2 with 32 bits and 2 lanes, which no tensor has"),
        (Lender([2, 3, 5], code=17, bits=4), stepnet.TypeMismatchError, "has elements of DLPack's type 17 with 4 bits and 1 lane, which no"),
        (Lender([2, 3, 5], bits=7), stepnet.TypeMismatchError, 'the input "x" has elements float7, which no tensor has'),
        (Lender([2, 3, 5], code=1), stepnet.TypeMismatchError, 'the input "x" has elements uint32, which no tensor has'),
        (Lender([2, 3, 5], code=5, bits=128), stepnet.TypeMismatchError, 'the input "x" has elements complex128, which no tensor has'),
    ],
    ids=repr,
)
def test_arrays_that_lie_are_found_out(lstm, lender, error, message):
    with pytest.raises(error, match=message):
        lstm(lstm.init(), x=lender)


def test_an_array_that_tells_the_truth_by_dlpack_alone_is_read(lstm):
    params = lstm.init()
    assert numpy.array_equal(lstm(params, x=Lender([2, 3, 5])).h, lstm(params, x=numpy.zeros((2, 3, 5), "float32")).h)


def test_numpy_arrays_of_bfloat16_are_read_where_they_are(tmp_path):
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="the package ml_dtypes is not installed")
    values = numpy.array([[1.5, -2.0, 0.0], [3.0, 1e30, -0.25]], "float32")
    x = values.astype(ml_dtypes.bfloat16)
    x.flags.writeable = False
    assert address_of(x) == x.ctypes.data
    net = stepnet.load('op { type: "Copy" input: "x" output: "y" } external_output: "y"')
    assert numpy.array_equal(net(x=x).y.numpy(), x.astype("float32"))
    with pytest.raises(stepnet.InvalidArgumentError, match="is not contiguous, and NumPy, which would copy it, has no bfloat16"):
        net(x=x.T)
    with pytest.raises(stepnet.TypeMismatchError, match='the input "x" has elements float8_e4m3fn, which no tensor has; '):
        net(x=values.astype(ml_dtypes.float8_e4m3fn))
    stepnet.save_params({"x": x}, tmp_path / "x.safetensors")
    assert numpy.array_equal(stepnet.load_params(tmp_path / "x.safetensors")["x"], x.astype("float32"))


def test_bytes_of_bools_other_than_0_and_1_are_true():
    net = stepnet.load(
        'op { type: "And" input: "a" input: "b" output: "y" } op { type: "Not" input: "a" output: "n" } '
        'op { type: "Cast" input: "a" output: "f" arg { name: "to" s: "float" } } '
        'external_output: "y" external_output: "n" external_output: "f"'
    )
    a = numpy.array([0, 1, 2, 255], "uint8").view(bool)
    out = net(a=a, b=numpy.ones(4, bool))
    assert out.y.view("uint8").tolist() == [0, 1, 1, 1]
    assert out.n.view("uint8").tolist() == [1, 0, 0, 0]
    assert out.f.tolist() == [0, 1, 1, 1]
    assert a.view("uint8").tolist() == [0, 1, 2, 255]


@pytest.mark.parametrize("raises_in", ["__dlpack__", "__dlpack_device__"])
@pytest.mark.parametrize("error, reason", [(KeyError(), "it raised KeyError, which says no more"), (ValueError("it is away"), "it is away")])
def test_what_an_array_raises_is_told_by_its_text_or_its_name(raises_in, error, reason, lstm):
    class Lender:
        dtype, shape = numpy.dtype("float32"), (2, 1, 5)

        def __dlpack__(self, **options):
            raise error

        def __dlpack_device__(self):
            if raises_in == "__dlpack_device__":
                raise error
            return (1, 0)

    with pytest.raises(stepnet.TypeMismatchError, match=f'the input "x" cannot be read: {reason}$'):
        lstm(lstm.init(), x=Lender())
