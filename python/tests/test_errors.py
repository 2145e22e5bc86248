"""Arrays, gradients and memory that do not fit."""

import pickle
import subprocess
import sys
import warnings

import numpy
import pytest
from conftest import refuses

import stepnet

X = numpy.zeros((2, 3, 5), "float32")


X = numpy.zeros((2, 3, 5), "float32")


def test_errors_are_those_of_python_too():
    assert issubclass(stepnet.ShapeMismatchError, ValueError)
    assert issubclass(stepnet.TypeMismatchError, TypeError)
    assert issubclass(stepnet.InputOutputError, OSError)
    assert issubclass(stepnet.OutOfMemoryError, MemoryError)


@pytest.mark.parametrize("kind", [each for each in vars(stepnet).values() if isinstance(each, type) and issubclass(each, stepnet.Error)])
def test_what_errors_say_can_be_printed(kind):
    """Also of names that are no text."""
    error = kind('no parameter "\ud800é"')
    for each in (error, pickle.loads(pickle.dumps(error))):
        assert type(each) is kind and str(each) == 'no parameter "\\ud800é"'


def test_a_wrong_dtype_is_named_with_the_one_that_it_must_be(lstm):
    params = lstm.init()
    refuses(
        lambda: lstm(params, x=X.astype("float64")),
        stepnet.TypeMismatchError,
        'the input "x" of lstm is float64 [2, 3, 5]; it must be float32',
    )
    refuses(
        lambda: lstm({**params, "b": numpy.zeros(16, "int32")}, x=X),
        stepnet.TypeMismatchError,
        'the parameter "b" of lstm is int32 [16]; it must be float32',
    )


def test_errors_of_the_core_have_dtypes_as_numpy_calls_them():
    net = stepnet.load('op { type: "MatMul" input: "float" input: "double" output: "y" }')
    refuses(
        lambda: net({"float": numpy.zeros((2, 3), "float32"), "double": numpy.zeros((2, 3))}),
        stepnet.TypeMismatchError,
        "MatMul needs inputs of one type; float is float32 [2, 3] and double is float64 [2, 3]\n"
        "  at op 0 `y = MatMul(float, double)` with float float32 [2, 3], double float64 [2, 3]",
    )
    net = stepnet.load('op { type: "Sigmoid" input: "x" output: "y" }')
    refuses(lambda: net(x=numpy.zeros(2, "int32")), stepnet.TypeMismatchError, "works on float32, float64, float16 and bfloat16; x is int32 [2]")
    fill = 'op { type: "ConstantFill" output: "y" arg { name: "value" s: "float" } arg { name: "dtype" i: 1 } }'
    assert stepnet.check(fill) == ['net "", op 0 `y = ConstantFill()`: value is "float", which is no float32']
    scale = 'op { type: "Scale" input: "x" output: "y" arg { name: "scale" s: "float" } }'
    assert stepnet.check(scale) == ['net "", op 0 `y = Scale(x)`: Scale: scale is "float", must be of type float (f)']


@pytest.mark.parametrize(
    "array, kind",
    [
        (numpy.zeros((2, 3, 5), "complex64"), "complex64"),
        (numpy.zeros((2, 3, 5), ">f4"), ">f4"),
        (numpy.zeros((2, 3, 5), "uint32"), "uint32"),
        (numpy.zeros((2, 3, 5), "U3"), "<U3"),
        (numpy.zeros((2, 3, 5), object), "object"),
        (numpy.zeros((2, 3, 5), [("a", "f4")]), "[('a', '<f4')]"),
        (numpy.zeros((2, 3, 5), "M8[s]"), "datetime64[s]"),
    ],
)
def test_dtypes_that_no_tensor_has_are_refused(lstm, array, kind):
    with pytest.raises(stepnet.TypeMismatchError) as caught:
        lstm(lstm.init(), x=array)
    order = ", in the byte order of this machine" if kind == ">f4" else ""
    assert str(caught.value) == (
        f'type mismatch: the input "x" has elements {kind}, which no tensor has; tensors have float16, bfloat16, float32, '
        f"float64, bool, int8 to int64, uint8 and uint16{order}; it must be float32"
    )


def test_a_read_only_array_that_knows_no_versions_says_why(lstm):
    class Given:
        def __dlpack__(self, stream=None):
            raise BufferError("read-only arrays cannot be lent")

        def __dlpack_device__(self):
            return 1, 0

    refuses(
        lambda: lstm(lstm.init(), x=Given()),
        stepnet.TypeMismatchError,
        'the input "x" cannot be read: read-only arrays cannot be lent',
    )


@pytest.mark.parametrize("value", [[[0.0]], 3.0, None, "text", object(), {}])
def test_what_is_no_array_is_refused(lstm, value):
    article = "an" if type(value) is object else "a"
    refuses(
        lambda: lstm(lstm.init(), x=value),
        stepnet.TypeMismatchError,
        f'the input "x" is {article} {type(value).__name__}, no array; it must be one of NumPy, or have __dlpack__',
    )


def test_a_wrong_shape_is_named_with_the_one_that_it_must_be(lstm):
    params = lstm.init()
    refuses(
        lambda: lstm(params, x=X[:, :, :4].copy()),
        stepnet.ShapeMismatchError,
        'the input "x" is float32 [2, 3, 4]; it must be [T, B, 5], of 2 steps and a batch of 3',
    )
    refuses(
        lambda: lstm(params, x=X[0]),
        stepnet.ShapeMismatchError,
        'the input "x" is float32 [3, 5]; it must be [T, B, 5]',
    )
    refuses(
        lambda: lstm({**params, "u": numpy.zeros((16, 5), "float32")}, x=X),
        stepnet.ShapeMismatchError,
        'the parameter "u" of lstm is float32 [16, 5]; it must be [16, 4]',
    )
    refuses(
        lambda: lstm(params, x=X, h_init=numpy.zeros((1, 2, 4), "float32")),
        stepnet.ShapeMismatchError,
        'the initial state "h_init" is float32 [1, 2, 4]; it must be [1, B, 4], of a batch of 3; [1, 1, 4] or [4] is one for all of the batch',
    )
    with pytest.raises(stepnet.ShapeMismatchError, match="has 9 dimensions; tensors have at most 8"):
        lstm(params, x=numpy.zeros((1,) * 9, "float32"))


@pytest.mark.parametrize("batch", [3, 8])
@pytest.mark.parametrize("shape", [(8, 4), (1, 8, 4), (3, 8, 4), (8, 8, 4), (4,), (1, 1, 1, 8, 4)])
def test_the_rank_of_what_a_matrix_starts_from_is_looked_at_first(shape, batch):
    cell = stepnet.cell("cell c(x[8]; s[8, 4]) {\n s = s * 0.5 + Reshape(x, shape=[1, -1, 8, 1])\n output s\n}")
    x = numpy.zeros((7, batch, 8), "float32")
    assert cell({}, x=x, s_init=numpy.ones((1, batch, 8, 4), "float32")).s.shape == (7, batch, 8, 4)
    refuses(
        lambda: cell({}, x=x, s_init=numpy.zeros(shape, "float32")),
        stepnet.ShapeMismatchError,
        f'the initial state "s_init" is float32 {list(shape)}; it must be [1, B, 8, 4], of a batch of {batch}; [1, 1, 8, 4] is one for all of the batch',
    )


def test_parameters_of_16_bits_are_told_what_widens_them(lstm):
    refuses(
        lambda: lstm({name: array.astype("float16") for name, array in lstm.init().items()}, x=X),
        stepnet.TypeMismatchError,
        'the parameter "w" of lstm is float16 [16, 5]; it must be float32; load_params(PATH, widen=True) reads it so from a file',
    )


def test_no_elements_are_refused_where_they_do_not_fit(lstm):
    params = lstm.init()
    for shape in [(0,), (2, 3, 0), (0, 0, 0), ()]:
        with pytest.raises(stepnet.ShapeMismatchError, match=r"it must be \[T, B, 5\]"):
            lstm(params, x=numpy.zeros(shape, "float32"))
    with pytest.raises(stepnet.ShapeMismatchError):
        lstm({**params, "b": numpy.zeros(0, "float32")}, x=X)


def test_inputs_that_options_give_are_told(lstm):
    counts, valid = numpy.array([2, 1, 2]), numpy.ones((2, 3), bool)
    for option, given in (("lengths", counts), ("mask", valid)):
        message = f'lstm has no input "{option}"; it has no {option}: the line `option {option} = {option}` in its text declares '
        refuses(lambda: lstm(lstm.init(), x=X, **{option: given}), stepnet.InvalidArgumentError, message)
        with_option = stepnet.cell(lstm.text.rstrip().rstrip("}") + f"  option {option} = {option}\n}}", D=5, H=4)
        assert with_option(lstm.init(), x=X, **{option: given}).h.shape == (*X.shape[:2], 4)
        renamed = stepnet.cell(lstm.text.rstrip().rstrip("}") + f"  option {option} = given\n}}", D=5, H=4)
        message = f'lstm has no input "{option}"; its {option} is "given"; its inputs'
        refuses(lambda: renamed(lstm.init(), x=X, **{option: given}), stepnet.InvalidArgumentError, message)


def test_missing_and_unknown_names_are_told(lstm):
    params = lstm.init()
    refuses(lambda: lstm(params), stepnet.InvalidArgumentError, 'the input "x" of lstm is missing; it is float32 [T, B, 5]')
    refuses(
        lambda: lstm({"w": params["w"], "u": params["u"]}, x=X),
        stepnet.InvalidArgumentError,
        'the parameter "b" of lstm is missing; it is float32 [16]',
    )
    refuses(
        lambda: lstm(params, x=X, h_inti=X),
        stepnet.InvalidArgumentError,
        'lstm has no input "h_inti"; did you mean "h_init"?; its inputs are "x", "h_init", "c_init"',
    )
    refuses(
        lambda: lstm({**params, "v": X}, x=X), stepnet.InvalidArgumentError, 'lstm has no parameter "v"'
    )
    for given in (params, {name: array for name, array in params.items() if name != "w"}):
        refuses(
            lambda: lstm(given, x=X, w=params["w"]),
            stepnet.InvalidArgumentError,
            'lstm has no input "w"; it is a parameter, and these are one dictionary: {**params, "w": …}; its inputs are "x"',
        )
    refuses(
        lambda: lstm({**params, "h_init": X}, x=X),
        stepnet.InvalidArgumentError,
        'lstm has no parameter "h_init"; it is an input, which is given by name, h_init=…, or in a dictionary of inputs; its ',
    )
    with pytest.raises(stepnet.InvalidArgumentError, match="lstm has no input"):
        lstm(params, X=X)
    for name in ("h0", "hx", "initial_state"):
        refuses(
            lambda: lstm(params, x=X, **{name: X}),
            stepnet.InvalidArgumentError,
            f'lstm has no input "{name}"; what states start from is "h_init", "c_init"; its inputs',
        )
    with pytest.raises(TypeError, match="params is a list; it must be a dictionary of arrays by name"):
        lstm([params], x=X)
    with pytest.raises(stepnet.InvalidArgumentError, match='lstm has no parameter "3"'):
        lstm({**params, 3: X}, x=X)


def test_lengths_that_are_no_whole_numbers(random):
    cell = stepnet.layers("gru", 3, 4, lengths=True)
    x, lengths = numpy.zeros((5, 2, 3), "float32"), numpy.array([1.0, 2.0])
    message = 'the input "lengths" of gru is float64 [2]; it must be int32 or int64'
    refuses(lambda: cell(cell.init(), x=x, lengths=lengths), stepnet.TypeMismatchError, message)


def test_huge_sizes_are_out_of_memory_and_no_crash(cells):
    with pytest.raises((stepnet.OutOfMemoryError, stepnet.ShapeMismatchError)):
        stepnet.cell(cells / "lstm.cell", H=2**31)


def test_wrong_gradients_are_told(lstm):
    outputs, pullback = lstm.vjp(lstm.init(), x=X)
    refuses(lambda: pullback(g=outputs.h), stepnet.InvalidArgumentError, 'lstm has no output "g" that has a gradient')
    refuses(
        lambda: pullback(h=outputs.h_last),
        stepnet.ShapeMismatchError,
        'the gradient of the output "h" is float32 [1, 3, 4]; it must be float32 [2, 3, 4], as the output is',
    )
    refuses(
        lambda: pullback(h=outputs.h.astype("float64")),
        stepnet.TypeMismatchError,
        'the gradient of the output "h" is float64 [2, 3, 4]; it must be float32 [2, 3, 4]',
    )
    refuses(lambda: lstm.vjp(lstm.init(), wrt=["W"], x=X), stepnet.InvalidArgumentError, 'wrt names "W"')


def test_a_cell_works_after_each_error(lstm):
    params = lstm.init()
    expected = lstm(params, x=X).h
    for wrong in [X[0], X.astype("int8"), None, X[:, :, :1].copy()]:
        with pytest.raises(stepnet.Error):
            lstm(params, x=wrong)
        assert numpy.array_equal(lstm(params, x=X).h, expected)


@pytest.mark.parametrize("name, needs", [("onnx", "Python's onnx"), ("torch", "PyTorch")])
def test_what_is_missing_for_other_packages_is_said(name, needs):
    code = f"import sys; sys.modules[{name!r}] = None; import stepnet.{name}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.endswith(f"ModuleNotFoundError: stepnet.{name} needs {needs}: pip install 'stepnet[{name}]'\n")


def test_memory_has_a_limit(lstm, set_max_memory):
    before = stepnet.memory()
    assert 0 <= before.current <= before.peak and before.current < before.limit
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        params = lstm.init()
    set_max_memory(stepnet.memory().current + 10_000)
    assert stepnet.memory().limit < before.limit
    with pytest.raises(stepnet.OutOfMemoryError) as caught:
        lstm(params, x=numpy.zeros((1000, 3, 5), "float32"))
    assert "raise the limit with --max_memory of rnn_runner, stepnet.set_max_memory of Python" in str(caught.value)
    set_max_memory(before.limit)
    assert lstm(params, x=numpy.zeros((1000, 3, 5), "float32")).h.shape == (1000, 3, 4)
    refuses(lambda: stepnet.set_max_memory(-1), stepnet.InvalidArgumentError, "bytes is -1; it must be 0 or more")
    refuses(lambda: stepnet.set_max_memory("2G"), stepnet.TypeMismatchError, "bytes is '2G'; it must be a whole number")
    refuses(lambda: stepnet.memory("gpu"), stepnet.InvalidArgumentError, "gpu")
    assert stepnet.memory().limit == before.limit


def test_the_limit_of_memory_is_taken_away_again(set_max_memory):
    before = stepnet.memory().limit
    for limit in (before // 2, before // 4):
        set_max_memory(limit)
        assert stepnet.memory().limit == limit
    stepnet.set_max_memory(None)
    assert stepnet.memory().limit == before
    refuses(lambda: stepnet.set_max_memory(None, "gpu"), stepnet.InvalidArgumentError, "gpu")


def test_a_pullback_wants_a_gradient(lstm):
    _, pullback = lstm.vjp(lstm.init(), x=X)
    refuses(pullback, stepnet.InvalidArgumentError, "the pullback is given no gradient; give that of an output")
    refuses(lambda: lstm.value_and_grad(lstm.init(), (), x=X), stepnet.InvalidArgumentError, "is given no gradient")


def test_a_pullback_says_that_gradients_are_given_by_name(lstm):
    out, pullback = lstm.vjp(lstm.init(), x=X)
    by_position = "by its name: pullback(h=gradient); what is given by position is into, to which gradients are added: write pullback(**gradients)"
    refuses(lambda: pullback({"h": out.h}), stepnet.InvalidArgumentError, by_position)
    net = stepnet.load('op { type: "Tanh" input: "x" output: "layer0/y" } external_output: "layer0/y"')
    out, pullback = net.vjp(x=X)
    refuses(lambda: pullback({"layer0_y": out[0]}), stepnet.InvalidArgumentError, "pullback(**{'layer0/y': gradient}); what is given by position")
    assert pullback(**{"layer0/y": out[0]}).inputs["x"].shape == X.shape
