import re
import subprocess
import sys
import textwrap
import warnings

import numpy
import pytest

import stepnet
from conftest import ROOT

X = numpy.zeros((2, 3, 5), "float32")


def refuses(call, error, message):
    with pytest.raises(error, match=re.escape(message)) as caught:
        call()
    assert isinstance(caught.value, stepnet.Error)
    assert str(caught.value).startswith(caught.value.code + ": ")


def test_errors_are_those_of_python_too():
    assert issubclass(stepnet.ShapeMismatchError, ValueError)
    assert issubclass(stepnet.TypeMismatchError, TypeError)
    assert issubclass(stepnet.InputOutputError, OSError)
    assert issubclass(stepnet.OutOfMemoryError, MemoryError)


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


@pytest.mark.parametrize(
    "array, kind",
    [
        (numpy.zeros((2, 3, 5), "complex64"), "complex64"),
        (numpy.zeros((2, 3, 5), ">f4"), ">f4"),
        (numpy.zeros((2, 3, 5), "uint32"), "uint32"),
        (numpy.zeros((2, 3, 5), "U3"), "<U3"),
        (numpy.zeros((2, 3, 5), object), "object"),
        (numpy.zeros((2, 3, 5), [("a", "f4")]), "[('a', '<f4')]"),
    ],
)
def test_dtypes_that_no_tensor_has_are_refused(lstm, array, kind):
    refuses(
        lambda: lstm(lstm.init(), x=array),
        stepnet.TypeMismatchError,
        f'the input "x" has elements {kind}, which no tensor has; tensors have float16, ',
    )


def test_what_cannot_be_lent_says_why(lstm):
    refuses(
        lambda: lstm(lstm.init(), x=numpy.zeros((2, 3, 5), "M8[s]")),
        stepnet.TypeMismatchError,
        'the input "x" cannot be read: DLPack only supports ',
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
    refuses(
        lambda: lstm(lstm.init(), x=value),
        stepnet.TypeMismatchError,
        f'the input "x" is a {type(value).__name__}, no array; it must be one of NumPy, or have __dlpack__',
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
        'the parameter "u" of lstm is [16, 5]; it must be [16, 4]',
    )
    refuses(
        lambda: lstm(params, x=X, h_init=numpy.zeros((1, 2, 4), "float32")),
        stepnet.ShapeMismatchError,
        'the initial state "h_init" is float32 [1, 2, 4]; it must be [1, B, 4], of a batch of 3',
    )
    with pytest.raises(stepnet.ShapeMismatchError, match="has 9 dimensions; tensors have at most 8"):
        lstm(params, x=numpy.zeros((1,) * 9, "float32"))


def test_no_elements_are_refused_where_they_do_not_fit(lstm):
    params = lstm.init()
    for shape in [(0,), (2, 3, 0), (0, 0, 0), ()]:
        with pytest.raises(stepnet.ShapeMismatchError, match=r"it must be \[T, B, 5\]"):
            lstm(params, x=numpy.zeros(shape, "float32"))
    with pytest.raises(stepnet.ShapeMismatchError):
        lstm({**params, "b": numpy.zeros(0, "float32")}, x=X)


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
    with pytest.raises(stepnet.InvalidArgumentError, match="lstm has no input"):
        lstm(params, X=X)
    with pytest.raises(TypeError, match="params is a list; it must be a dictionary of arrays by name"):
        lstm([params], x=X)
    with pytest.raises(stepnet.InvalidArgumentError, match='lstm has no parameter "3"'):
        lstm({**params, 3: X}, x=X)


def test_mistakes_in_a_text_have_their_place(cells):
    text = (cells / "lstm.cell").read_text().replace("Tanh(c)", "Tanh(cc)")
    with pytest.raises(stepnet.CellSyntaxError, match=r'<text>:\d+:\d+: there is no blob "cc" so far') as caught:
        stepnet.cell(text)
    assert "^" in str(caught.value)
    assert stepnet.check(text) == [str(caught.value)]


def test_files_that_are_not_there_or_hold_something_else(tmp_path):
    refuses(lambda: stepnet.cell(tmp_path / "no.cell"), stepnet.InputOutputError, "no.cell")
    for content in [b"", b"\0" * 100, b"\xff\xfe" + bytes(range(256)), b"cell", b"cell a(", b"op { type: 3 }"]:
        path = tmp_path / "wrong"
        path.write_bytes(content)
        for call in (lambda: stepnet.cell(path), lambda: stepnet.load(path)):
            with pytest.raises(stepnet.Error):
                call()
        assert stepnet.check(path) != [] or content == b""


def test_sizes_and_options_that_there_are_not(cells):
    path = cells / "lstm.cell"
    refuses(lambda: stepnet.cell(path, K=3), stepnet.InvalidArgumentError, "K")
    refuses(lambda: stepnet.cell(path, H=0), stepnet.InvalidArgumentError, "the size H is 0, must be above 0")
    refuses(lambda: stepnet.cell(path, H=2.5), stepnet.TypeMismatchError, "the size H is 2.5; it must be a whole number")
    refuses(lambda: stepnet.cell(path, H=True), stepnet.TypeMismatchError, "the size H is True")
    refuses(lambda: stepnet.cell(path, H=10**30), stepnet.TypeMismatchError, "the size H is 1000")
    refuses(lambda: stepnet.cell(path, threads=-1), stepnet.InvalidArgumentError, "threads is -1; it must be between 0")
    refuses(lambda: stepnet.cell(path, opt_level=9), stepnet.InvalidArgumentError, "opt_level is 9; it must be between 0 and 2")
    refuses(lambda: stepnet.cell(path, device="tpu"), stepnet.InvalidArgumentError, "tpu")


LONG = 10**5000  # has more digits than Python prints
WHOLE = "; it must be a whole number of 64 bits"
TRUTH = "; it must be True or False"
TEXT = "; it must be a text"


@pytest.mark.parametrize(
    "options, message",
    [
        ({"threads": "4"}, "threads is '4'" + WHOLE),
        ({"threads": 2.0}, "threads is 2.0" + WHOLE),
        ({"threads": True}, "threads is True" + WHOLE),
        ({"threads": None}, "threads is None" + WHOLE),
        ({"threads": 10**30}, f"threads is {10**30}" + WHOLE),
        ({"threads": LONG}, "threads is an int of 16610 bits" + WHOLE),
        ({"seed": LONG}, "seed is an int of 16610 bits; it must be a whole number from 0 on, of 64 bits"),
        ({"device": LONG}, "device is an int of 16610 bits" + TEXT),
        ({"training": LONG}, "training is an int of 16610 bits" + TRUTH),
        ({"sizes": LONG}, "sizes is an int of 16610 bits; it must be a dictionary of whole numbers by name"),
        ({"H": LONG}, "the size H is an int of 16610 bits; it must be a whole number"),
        ({"dtype": LONG}, "dtype is an int of 16610 bits; it must be float32 or float64"),
        ({"opt_level": [2]}, "opt_level is [2]" + WHOLE),
        ({"seed": -1}, "seed is -1; it must be a whole number from 0 on, of 64 bits"),
        ({"seed": "x"}, "seed is 'x'; it must be a whole number from 0 on, of 64 bits"),
        ({"device": 0}, "device is 0" + TEXT),
        ({"device": None}, "device is None" + TEXT),
        ({"training": 1}, "training is 1" + TRUTH),
        ({"carry": "yes"}, "carry is 'yes'" + TRUTH),
        ({"sizes": 3}, "sizes is 3; it must be a dictionary of whole numbers by name"),
        ({"dtype": "float16"}, "dtype is 'float16'; it must be float32 or float64"),
        ({"dtype": "flaot32"}, "dtype is 'flaot32'; it must be float32 or float64"),
        ({"dtype": None}, "dtype is None; it must be float32 or float64"),
    ],
)
def test_options_of_another_type_are_named_with_what_they_must_be(cells, options, message):
    refuses(lambda: stepnet.cell(cells / "lstm.cell", **options), stepnet.TypeMismatchError, message)
    cell = stepnet.cell(cells / "lstm.cell", D=5, H=4)
    refuses(lambda: cell.with_options(**options), stepnet.TypeMismatchError, message)


def test_arguments_of_another_type_are_named_with_what_they_must_be(lstm, cells, tmp_path):
    path, params, model = cells / "lstm.cell", lstm.init(), ROOT / "examples" / "char_lm" / "net.pb"
    for call, message in [
        (lambda: stepnet.cell(3), "the source is 3; it must be a text or a path"),
        (lambda: lstm([params], x=X), "params is a list; it must be a dictionary of arrays by name"),
        (lambda: lstm.init(seed=1.5), "seed is 1.5; it must be a whole number from 0 on"),
        (lambda: lstm.vjp(params, wrt=3, x=X), "wrt is 3; it must be a name or names"),
        (lambda: lstm.vjp(params, wrt=["w", 3], x=X), "a name of wrt is 3" + TEXT),
        (lambda: lstm.vjp(params, wrt=numpy.zeros(()), x=X), "wrt is a ndarray float64 []; it must be a name or names"),
        (lambda: lstm.vjp(params, wrt=range(10**12), x=X), "a name of wrt is 0" + TEXT),
        (lambda: lstm.explain(params, gradients="all", x=X), "gradients is 'all'" + TRUTH),
        (lambda: lstm.explain(params, format=3, x=X), "format is 3" + TEXT),
        (lambda: stepnet.load(3), "net is 3; it must be a text or a path"),
        (lambda: stepnet.load(model, init=b"x"), "init is b'x'; it must be a text or a path"),
        (lambda: stepnet.load(model, threads="4"), "threads is '4'" + WHOLE),
        (lambda: stepnet.train_net(model, loss=None), "loss is None" + TEXT),
        (lambda: stepnet.train_net(model, loss="y", parameters=["w", None]), "a name of parameters is None" + TEXT),
        (lambda: stepnet.train_net(model, loss="y", parameters=7), "parameters is 7; it must be a name or names"),
        (lambda: stepnet.train_net(model, loss="y", momentum=None), "momentum is None; it must be a number"),
        (lambda: stepnet.train_net(model, loss="y", momentum=LONG), "momentum is an int of 16610 bits; it must be a number"),
        (lambda: lstm.vjp(params, x=X, gradient_requests={"w": LONG}), 'says for "w" an int of 16610 bits; it must be "write"'),
        (lambda: lstm.vjp(params, x=X, wrt=[LONG]), "a name of wrt is an int of 16610 bits" + TEXT),
        (lambda: lstm.value_and_grad(params, ["h", LONG], x=X), "a name of loss is an int of 16610 bits" + TEXT),
        (lambda: lstm.vjp(params, x=X)[1]({LONG: X}, h=X), "a name of into is an int of 16610 bits" + TEXT),
        (lambda: stepnet.set_max_memory(LONG), "bytes is an int of 16610 bits" + WHOLE),
        (lambda: stepnet.layers("gru", LONG, 4), "input_size is an int of 16610 bits" + WHOLE),
        (lambda: stepnet.load_params(7), "path is 7; it must be a path"),
        (lambda: stepnet.load_params("x.npz", widen="no"), "widen is 'no'" + TRUTH),
        (lambda: stepnet.save_params([X], tmp_path / "x.npz"), "params is a list; it must be a dictionary of arrays"),
        (lambda: stepnet.save_params(params, None), "path is None; it must be a path"),
        (lambda: stepnet.expand(path, init="no"), "init is 'no'" + TRUTH),
        (lambda: stepnet.show(path, format=None), "format is None" + TEXT),
        (lambda: stepnet.layers("gru", "5", 4), "input_size is '5'; it must be a whole number"),
        (lambda: stepnet.layers(X, 5, 4), f"mode is a ndarray float32 {list(X.shape)}" + TEXT),
        (lambda: stepnet.layers([1, 2], 5, 4), "mode is [1, 2]" + TEXT),
        (lambda: stepnet.layers("gru", X, 4), f"input_size is a ndarray float32 {list(X.shape)}" + WHOLE),
        (lambda: lstm.vjp(params, x=X, wrt=memoryview(X)), "wrt is a memoryview; it must be a name or names"),
        (lambda: stepnet.layers("gru", 5, 4, num_layers=True), "num_layers is True; it must be a whole number"),
        (lambda: stepnet.layers("gru", 5, 4, dropout="0"), "dropout is '0'; it must be a number"),
        (lambda: stepnet.layers("gru", 5, 4, bidirectional=2), "bidirectional is 2; it must be True or False"),
        (lambda: stepnet.check(path, sizes="H=3"), "sizes is 'H=3'; it must be a dictionary of whole numbers by name"),
    ]:
        refuses(call, stepnet.TypeMismatchError, message)


def test_arguments_in_another_order_are_named_by_type_and_shape(lstm, tmp_path):
    params, gru = lstm.init(), stepnet.layers("gru", 3, 4)
    vector = numpy.zeros(108, "float32")
    for call, message in [
        (lambda: stepnet.packed.split(gru, vector), "the cell is a ndarray float32 [108]; it must be one that stepnet.layers"),
        (lambda: stepnet.packed.join(gru, params), "the cell is a dict; it must be one that stepnet.layers"),
        (lambda: stepnet.to_torch(params, gru), "the cell is a dict; it must be one that stepnet.layers"),
        (lambda: stepnet.save_params(tmp_path / "x.npz", params), "path is a dict; it must be a path"),
        (lambda: lstm(X, params), f"params is a ndarray float32 {list(X.shape)}; it must be a dictionary of arrays by name"),
        (lambda: lstm(params, X), "it must be a dictionary of arrays by name, {'x': x}, or each array is given by name: x=x"),
    ]:
        refuses(call, stepnet.TypeMismatchError, message)


def test_what_was_meant_is_suggested(cells, lstm):
    out = lstm(lstm.init(), x=X)
    with pytest.raises(AttributeError, match="no output 'hlast'; outputs are h, h_last, c_last; did you mean h_last[?]"):
        out.hlast
    with pytest.raises(KeyError, match="no output 'clast'; outputs are h, h_last, c_last; did you mean c_last[?]"):
        out["clast"]
    assert not hasattr(out, "other")
    refuses(lambda: stepnet.cell(cells / "lstm.cell", thread=2), stepnet.InvalidArgumentError, "no size thread; did you mean threads?")
    for source in (cells / "lstm.cell", (cells / "lstm.cell").read_text()):
        refuses(lambda: stepnet.cell(source, hidden=2), stepnet.InvalidArgumentError, "has no size hidden; its sizes are D, H")
    text = "cell none(x[3]; h[3]) { h = x\n output h }"
    refuses(lambda: stepnet.cell(text, H=2), stepnet.InvalidArgumentError, "has no size H; its sizes are none")
    for name, message in {
        "nonlinearity": "; the mode says it: rnn_tanh, rnn_relu, lstm, gru",
        "hiden_size": "; did you mean hidden_size?",
    }.items():
        call = lambda: stepnet.layers("rnn_tanh", 3, 4, **{name: 5})  # noqa: B023, E731
        refuses(call, stepnet.TypeMismatchError, f"stepnet.layers has no argument {name}{message}")


def test_an_empty_text_is_named(cells):
    for call in (lambda: stepnet.cell(""), lambda: stepnet.expand("")):
        refuses(call, stepnet.InvalidArgumentError, "the source is ''; it must be a text that says something, or")
    refuses(lambda: stepnet.load(""), stepnet.InvalidArgumentError, "net is ''; it must be a text that says something, or")


def test_lengths_that_are_no_whole_numbers(random):
    cell = stepnet.layers("gru", 3, 4, lengths=True)
    x, lengths = numpy.zeros((5, 2, 3), "float32"), numpy.array([1.0, 2.0])
    message = 'the input "lengths" of gru is float64 [2]; it must be int32 or int64'
    refuses(lambda: cell(cell.init(), x=x, lengths=lengths), stepnet.TypeMismatchError, message)


def test_numbers_of_numpy_are_numbers(cells):
    cell = stepnet.cell(cells / "lstm.cell", H=numpy.int64(4), threads=numpy.int32(1))
    assert len(cell.init(seed=numpy.uint64(3))) == 3


def test_names_that_mean_nothing_are_told(cells, lstm):
    params, unknown = lstm.init(), stepnet.InvalidArgumentError
    refuses(lambda: lstm.value_and_grad(params, "g", x=X), unknown, "loss names 'g'; the outputs are h, h_last, c_last")
    net = cells / "elman.prototxt"
    strange = {"beta1: 2 beta2": 3}
    refuses(lambda: stepnet.train_net(net, loss="y", **strange), unknown, 'the optimizer has no option "beta1: 2 beta2"')
    refuses(lambda: stepnet.packed.split(X, stepnet), stepnet.TypeMismatchError, "the cell is a module; it must be one that")


@pytest.mark.parametrize("path", ["", "no\0", "\udcff"])
def test_paths_that_name_no_file_are_told(cells, path):
    net = cells / "elman.prototxt"
    calls = {
        "the source": stepnet.cell,
        "net": stepnet.load,
        "init": lambda path: stepnet.load(net, path),
        "path": stepnet.load_params,
    }
    for what, call in calls.items():
        refuses(lambda call=call: call(path), stepnet.InvalidArgumentError, f"{what} is {path!r}; it must be ")
    with pytest.raises(stepnet.TypeMismatchError, match="net is b'net.pb'; it must be a text or a path"):
        stepnet.load(b"net.pb")


def test_names_that_no_file_has_are_told_as_others_are(lstm):
    params = lstm.init()
    refuses(lambda: lstm(params, x=X, **{"\ud800": X}), stepnet.InvalidArgumentError, 'lstm has no input "\\ud800"')
    refuses(lambda: lstm({**params, "\ud800": X}, x=X), stepnet.InvalidArgumentError, 'lstm has no parameter "\\ud800"')
    refuses(lambda: lstm.with_options(**{"\ud800": 1}), stepnet.InvalidArgumentError, "\\ud800")
    _, pullback = lstm.vjp(params, x=X)
    refuses(lambda: pullback(**{"\ud800": X}), stepnet.InvalidArgumentError, 'lstm has no output "\\ud800"')


def test_a_comment_in_latin_1_is_no_hindrance(cells, tmp_path):
    text = (cells / "lstm.cell").read_text()
    path = tmp_path / "a.cell"
    path.write_bytes("# J. Koutn\xedk\n".encode("latin-1") + text.encode())
    cell = stepnet.cell(path, D=5)
    assert cell.__doc__.startswith("J. Koutn\\xedk\n")
    assert cell.with_options(D=6).inputs[0].shape == "[T, B, 6]"
    assert stepnet.check(path) == []


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


def test_arguments_of_any_kind_are_taken_or_refused(lstm):
    """Random dtypes, shapes, layouts, names and objects: an exception, or outputs of the shapes that they must have."""
    random = numpy.random.default_rng(5)
    dtypes = ["float32"] * 8 + ["float64", "float16", "int32", "int64", "bool", "complex64", "U1", "O", ">f4"]
    taken = 0

    def any_array(shape):
        shape = list(shape)
        if random.random() < 0.2:
            shape[random.integers(len(shape))] = int(random.integers(0, 7))
        if random.random() < 0.1:
            shape.insert(0, int(random.integers(0, 3)))
        array = numpy.zeros(shape, random.choice(dtypes) if random.random() < 0.3 else "float32")
        if random.random() < 0.1:
            array = array[::-1]
        if random.random() < 0.1:
            array = array.T
        return array

    for _ in range(3000):
        params = {"w": any_array([16, 5]), "u": any_array([16, 4]), "b": any_array([16])}
        inputs = {"x": any_array([2, 3, 5])}
        if random.random() < 0.3:
            inputs["h_init"] = any_array([1, 3, 4])
        if random.random() < 0.1:
            inputs[str(random.choice(["x", "h", "", "w"]))] = random.choice([None, 3, "x"])
        if random.random() < 0.1:
            del params["w" if random.random() < 0.5 else "b"]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", stepnet.CopyWarning)
                outputs, pullback = lstm.vjp(params, **inputs)
                pullback(h=any_array(outputs.h.shape))
        except stepnet.Error:
            continue
        steps, batch, _ = inputs["x"].shape
        assert outputs.h.shape == (steps, batch, 4)
        taken += 1
    assert 100 < taken < 2900


def test_what_is_missing_for_onnx_is_said():
    code = "import sys; sys.modules['onnx'] = None; import stepnet.onnx"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.endswith("ModuleNotFoundError: stepnet.onnx needs Python's onnx: pip install 'stepnet[onnx]'\n")


def test_names_of_blobs_that_are_no_utf_8_are_refused(tmp_path):
    path = tmp_path / "net.pbtxt"
    path.write_text('op { type: "Relu" input: "x" output: "y\\377" }')
    refuses(lambda: stepnet.load(path), stepnet.InvalidNetError, 'the blob "y\\xff" has a name that is no UTF-8')
    path.write_text('name: "net\\377" op { type: "Relu" input: "x" output: "y" }')
    assert stepnet.load(path).name == "net\\xff"


def test_names_that_are_no_utf_8_can_be_told(tmp_path):
    (tmp_path / "net.pbtxt").write_text('op { type: "Nothing\\377" input: "x" output: "y" }')
    with pytest.raises(stepnet.InvalidNetError, match=r"Nothing\\xff"):
        stepnet.load(tmp_path / "net.pbtxt")


SUM_OF_TWO = """
name: "sum_of_two"
op { type: "FC" input: "x" input: "w" input: "b" output: "y" }
op { type: "Gather" input: "w" input: "rows" output: "some" }
external_output: "y" external_output: "some"
"""
FILLED = """
name: "fill"
op { type: "ConstantFill" output: "w" arg { name: "shape" ints: 2 ints: 3 } }
op { type: "ConstantFill" output: "b" arg { name: "shape" ints: 2 } }
"""


def test_errors_of_a_net_and_its_calls_name_the_file(tmp_path):
    file, init = tmp_path / "net.pbtxt", tmp_path / "init.pbtxt"
    file.write_text(SUM_OF_TWO)
    init.write_text(FILLED)
    net = stepnet.load(file, init=init)
    x, rows = numpy.zeros((4, 3), "f4"), numpy.array([1], "i4")
    _, pullback = net.vjp(x=x, rows=rows)
    faults = {
        "a missing input": (lambda: net(x=x), 'the input "rows" of the net "sum_of_two" is missing'),
        "a shape": (lambda: net(x=x[:, :2].copy(), rows=rows), 'FC(x, w, b)` with x float [4, 2], w float [2, 3]'),
        "a value": (lambda: net(x=x, rows=rows + 1), 'in net "sum_of_two"'),
        "gradients": (lambda: net.vjp(x=x, rows=rows + 1), 'in net "sum_of_two"'),
        "wrt": (lambda: net.vjp(x=x, rows=rows, wrt="v"), 'wrt names "v"'),
        "a pullback": (lambda: pullback(z=x), 'has no output "z"'),
        "restoring": (lambda: net.restore({"w": x}), '"w" is float32 [4, 3]; it must be float32 [2, 3]'),
        "explaining": (lambda: net.explain(x=x), "is missing"),
        "training": (lambda: stepnet.train_net(file, init=init, loss="lost"), 'the loss "lost" is nothing'),
    }
    for what, (call, message) in faults.items():
        with pytest.raises(stepnet.Error, match=re.escape(message)) as caught:
            call()
        assert str(caught.value).endswith(f"\n  in file {file}"), what
        assert str(caught.value).count(str(file)) == 1, what


def test_errors_of_what_fills_parameters_name_its_file(tmp_path):
    file, init = tmp_path / "net.pbtxt", tmp_path / "init.pbtxt"
    file.write_text(SUM_OF_TWO)
    init.write_text(FILLED.replace("ints: 3", "ints: -3"))
    with pytest.raises(stepnet.Error, match='op 0 `w = ConstantFill') as caught:
        stepnet.load(file, init=init)
    assert str(caught.value).endswith(f"\n  in file {init}") and str(file) not in str(caught.value)
    file.write_text(SUM_OF_TWO.replace("FC", "FCC"))
    with pytest.raises(stepnet.InvalidNetError, match='no operator type "FCC"') as caught:
        stepnet.load(file)
    assert str(caught.value).endswith(f"\n  in file {file}")


def test_memory_has_a_limit(lstm):
    before = stepnet.memory()
    assert 0 <= before.current <= before.peak and before.current < before.limit
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        params = lstm.init()
    stepnet.set_max_memory(stepnet.memory().current + 10_000)
    try:
        assert stepnet.memory().limit < before.limit
        with pytest.raises(stepnet.OutOfMemoryError) as caught:
            lstm(params, x=numpy.zeros((1000, 3, 5), "float32"))
        assert "raise the limit with --max_memory of rnn_runner, stepnet.set_max_memory of Python" in str(caught.value)
    finally:
        stepnet.set_max_memory(before.limit)
    assert lstm(params, x=numpy.zeros((1000, 3, 5), "float32")).h.shape == (1000, 3, 4)
    refuses(lambda: stepnet.set_max_memory(-1), stepnet.InvalidArgumentError, "bytes is -1; it must be 0 or more")
    refuses(lambda: stepnet.set_max_memory("2G"), stepnet.TypeMismatchError, "bytes is '2G'; it must be a whole number")
    refuses(lambda: stepnet.memory("gpu"), stepnet.InvalidArgumentError, "gpu")
    assert stepnet.memory().limit == before.limit


def test_names_that_no_text_can_have(lstm):
    for call in (lambda: lstm({**lstm.init(), LONG: X}, x=X), lambda: lstm(lstm.init(), {LONG: X})):
        refuses(call, stepnet.InvalidArgumentError, '"an int of 16610 bits"; its ')
    refuses(lambda: stepnet.cell(SUM, sizes={LONG: 1}), stepnet.InvalidArgumentError, "an int of 16610 bits")


BYTES = {
    "the name": ('name: "sum"', 'name: "s\\377"'),
    "an input": ('input { name: "x"', 'input { name: "x\\377"'),
    "an output": ('output { blob: "h"', 'output { name: "h\\377" blob: "h"'),
    "a parameter": ('parameter { name: "w"', 'parameter { name: "w\\377"'),
    "an operator": ('type: "Add"', 'type: "Add\\377"'),
    "a size": ('size { name: "D"', 'size { name: "D\\377"'),
    "a documentation": ('name: "sum"', 'name: "sum" doc: "s\\377"'),
}
SUM = """
name: "sum" size { name: "D" value: 4 } input { name: "x" shape: "4" } state { name: "h" shape: "4" }
parameter { name: "w" shape: "D" } op { type: "Add" input: "x" input: "h_prev" output: "sum" }
op { type: "Add" input: "sum" input: "w" output: "h" arg { name: "broadcast" i: 1 } } output { blob: "h" }
"""


@pytest.mark.parametrize("what", BYTES)
def test_bytes_in_cells_that_are_no_text_are_escaped_or_refused(what):
    text = SUM.replace(*BYTES[what])
    assert text != SUM

    def use():
        cell = stepnet.cell(text)
        assert repr(cell) and cell.params and cell.__doc__
        return cell(cell.init(), x=numpy.ones((3, 2, 4), "float32"))

    for call in (use, lambda: stepnet.expand(text), lambda: stepnet.show(text), lambda: stepnet.check(text)):
        try:
            call()
        except stepnet.Error:
            pass


def test_outputs_of_a_bundle_have_names_that_are_text(tmp_path):
    net = 'nets { key: "PREDICT_NET_TYPE" value { op { type: "Relu" input: "x" output: "y" } } }'
    (tmp_path / "bundle.pbtxt").write_text(net + ' blobs { key: "OUTPUTS_BLOB_TYPE" value: "y\\377" }')
    refuses(lambda: stepnet.load(tmp_path / "bundle.pbtxt"), stepnet.InvalidNetError, "has a name that is no UTF-8")


def test_texts_that_say_nothing_are_no_nets():
    net = 'op { type: "Relu" input: "x" output: "y" }'
    for text in ("\n", " \t\n", "# a comment\n"):
        refuses(lambda: stepnet.load(text), stepnet.InputOutputError, "the text is empty, a NetDef is needed")
        refuses(lambda: stepnet.load(net, init=text), stepnet.InputOutputError, "the text of init is empty")


def test_nets_and_cells_are_told_apart(tmp_path):
    net, cell = 'op { type: "Relu" input: "x" output: "y" }', "cell a(x; h) { h = x\n output h }"
    (tmp_path / "net.pbtxt").write_text(net)
    for call in (stepnet.cell, stepnet.expand):
        refuses(lambda: call(net), stepnet.InvalidArgumentError, "the text is a net and no cell; stepnet.load takes it")
        refuses(lambda: call(tmp_path / "net.pbtxt"), stepnet.InvalidArgumentError, "net.pbtxt is a net and no cell")
    refuses(lambda: stepnet.load(cell), stepnet.InvalidArgumentError, "the text is a cell; stepnet.cell takes it")
    refuses(lambda: stepnet.load(net, cell), stepnet.InvalidArgumentError, "the text of init is a cell; stepnet.expand(")


def test_a_pullback_wants_a_gradient(lstm):
    _, pullback = lstm.vjp(lstm.init(), x=X)
    refuses(pullback, stepnet.InvalidArgumentError, "the pullback is given no gradient; give that of an output")
    refuses(lambda: lstm.value_and_grad(lstm.init(), (), x=X), stepnet.InvalidArgumentError, "is given no gradient")


def test_the_hints_of_all_that_is_public_can_be_read():
    """Also where there is no PyTorch."""
    program = """
        import importlib.util, inspect, sys, typing
        sys.modules["torch"] = None
        import stepnet
        modules = [stepnet, stepnet.packed, stepnet.errors]
        if importlib.util.find_spec("onnx"):
            modules.append(stepnet.onnx)
        count = 0
        for module in modules:
            for name in getattr(module, "__all__", dir(module)):
                public = getattr(module, name)
                of_class = vars(public).values() if inspect.isclass(public) else ()
                for each in (public, *of_class):
                    each = getattr(each, "fget", each)
                    if inspect.isfunction(each):
                        typing.get_type_hints(each)
                        count += 1
        print(count)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, timeout=60, text=True)
    assert done.returncode == 0 and int(done.stdout) > 50, done.stderr
