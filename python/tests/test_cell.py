import pickle

import numpy
import pytest
import references
from conftest import refuses

import stepnet

ACCUMULATE = """
# Adds up what comes in.
cell accumulate(x[D]; sum[D]) {
  size D
  param scale[D] = 2
  sum = sum + scale * x
  output sum
  output sum last as total
}
"""


def test_steps_and_batch_that_are_exchanged_are_told(cells):
    text = (cells / "gru.cell").read_text().rstrip()[:-1]
    cell = stepnet.cell(text + "option lengths = lengths }", D=2, H=4)
    x, hint = numpy.zeros((3, 5, 2), "float32"), "; it would fit 5 steps and a batch of 3: the first input is [T, B, …]"
    for inputs in ({"lengths": numpy.array([5, 4, 3])}, {"lengths": numpy.full(5, 3), "h_init": numpy.zeros((1, 3, 4), "float32")}):
        refuses(lambda: cell(cell.init(), {"x": x, **inputs}), stepnet.ShapeMismatchError, hint)  # noqa: B023
    with pytest.raises(stepnet.ShapeMismatchError, match="it must be .B., of a batch of 5$"):
        cell(cell.init(), x=x, lengths=numpy.array([3, 3]))


def test_an_lstm_follows_its_equations(lstm, random):
    params = lstm.init(seed=1)
    params["b"][:] = random.normal(size=16)
    for steps, batch in [(1, 1), (7, 3), (40, 2), (1, 64)]:
        x = random.normal(size=(steps, batch, 5)).astype("float32")
        h, h_last, c_last = references.lstm(params, x)
        out = lstm(params, x=x)
        numpy.testing.assert_allclose(out.h, h, rtol=1e-4, atol=1e-5)
        numpy.testing.assert_allclose(out.h_last, h_last[None], rtol=1e-4, atol=1e-5)
        numpy.testing.assert_allclose(out.c_last, c_last[None], rtol=1e-4, atol=1e-5)


def test_double_is_double_throughout(cells, random):
    cell = stepnet.cell(cells / "lstm.cell", D=5, H=4, dtype="float64")
    params = cell.init()
    assert {name: array.dtype for name, array in params.items()} == dict.fromkeys("wub", numpy.dtype("float64"))
    x = random.normal(size=(6, 3, 5))
    out = cell(params, x=x)
    assert out.h.dtype == numpy.float64
    numpy.testing.assert_allclose(out.h, references.lstm(params, x)[0], rtol=1e-12)


NUMBERS = """
cell numbers(x[2]; h[2]) {
  size H = 3
  param p[2] = 0.1
  param q[2] = 1/H
  state h initial=0.7
  scaled = 0.1 * x
  shifted = x - 0.3
  third = x / 3
  long = 0.123456789012345 * x
  named = Scale(x, scale=1/sqrt(H))
  leaky = LeakyRelu(x)
  steep = LeakyRelu(x, alpha=0.2)
  selu = Selu(x)
  normed = LayerNorm(x, axis=-1)
  bounded = Clip(x, min=-0.1, max=0.1)
  powered = Pow(Abs(x), exponent=0.3)
  h = h * p + q
  output h
  output scaled
  output shifted
  output third
  output long
  output named
  output leaky
  output steep
  output selu
  output normed
  output bounded
  output powered
}
"""


def expected_numbers(x):
    """What the cell gives as all its numbers are read in the dtype of x."""
    number = x.dtype.type
    alpha, scale = number(1.6732632423543772848), number(1.0507009873554804934)
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    h, states = numpy.full(x.shape[1:], 0.7, x.dtype), []
    for _ in x:
        h = h * number(0.1) + number(1) / number(3)
        states.append(h)
    return {
        "h": numpy.stack(states),
        "scaled": number(0.1) * x,
        "shifted": x - number(0.3),
        "third": x / number(3),
        "long": number(0.123456789012345) * x,
        "named": number(1 / 3**0.5) * x,
        "leaky": numpy.where(x < 0, number(0.01) * x, x),
        "steep": numpy.where(x < 0, number(0.2) * x, x),
        "selu": scale * numpy.where(x < 0, alpha * numpy.expm1(x), x),
        "normed": (x - mean) / numpy.sqrt(variance + number(1e-5)),
        "bounded": numpy.clip(x, number(-0.1), number(0.1)),
        "powered": numpy.abs(x) ** number(0.3),
    }


@pytest.mark.parametrize("dtype, tolerance", [("float32", 2e-6), ("float64", 4e-15)])
def test_numbers_of_a_cell_are_of_its_dtype(random, dtype, tolerance):
    cell = stepnet.cell(NUMBERS, dtype=dtype)
    x = random.normal(size=(4, 3, 2)).astype(dtype)
    out = cell(cell.init(), x=x)
    for name, expected in expected_numbers(x).items():
        numpy.testing.assert_allclose(getattr(out, name), expected, rtol=tolerance, atol=tolerance / 10, err_msg=name)
    assert out.scaled.tobytes() == expected_numbers(x)["scaled"].tobytes()


def test_gradients_of_a_cell_in_double_have_its_numbers(random):
    cell = stepnet.cell("cell c(x[2]; ) {\n  y = Selu(0.1 * x) + LeakyRelu(x, alpha=0.3)\n  output y\n}", dtype="float64")
    x = random.normal(size=(2, 2, 2))
    _, gradients = cell.value_and_grad({}, "y", x=x)
    alpha, scale = 1.6732632423543772848, 1.0507009873554804934
    expected = 0.1 * scale * numpy.where(x < 0, alpha * numpy.exp(0.1 * x), 1) + numpy.where(x < 0, 0.3, 1)
    numpy.testing.assert_allclose(gradients.inputs["x"], expected, rtol=1e-14)


def test_the_net_of_a_cell_in_double_says_its_numbers():
    text = stepnet.expand(stepnet.cell("cell c(x[2]; ) {\n  y = 0.1 * x\n  output y\n}", dtype="float64"))
    assert "double_data: 0.1" in text
    assert "scale: 0.1}" in stepnet.show(text)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numbers_in_lists_are_of_its_dtype(dtype):
    values, more = [0.1, 0.3333333333333333], [0.7, 0.123456789012345]
    text = f"""cell c(x[2]; ) {{
      param w[2] = GivenTensorFill(values={values})
      k = GivenTensorFill(shape=[2], values={more})
      y = x * w + k
      output y
    }}"""
    cell = stepnet.cell(text, dtype=dtype)
    params = cell.init()
    assert numpy.array_equal(params["w"], numpy.array(values, dtype))
    y = cell(params, x=numpy.ones((1, 1, 2), dtype)).y
    numpy.testing.assert_allclose(y[0, 0], numpy.array(values) + more, rtol=2 * numpy.finfo(dtype).eps)
    assert str(values) in cell.text
    init = stepnet.load("op { type: \"Copy\" input: \"w\" output: \"y\" }", stepnet.expand(cell, init=True))
    assert numpy.array_equal(init().y, params["w"])


def test_no_steps_and_no_batch_give_no_elements(lstm):
    params = lstm.init()
    assert lstm(params, x=numpy.zeros((0, 3, 5), "float32")).h.shape == (0, 3, 4)
    assert lstm(params, x=numpy.zeros((2, 0, 5), "float32")).h.shape == (2, 0, 4)


@pytest.mark.parametrize("name", ["elman", "gru", "lstm", "layer_norm_lstm", "causal_conv", "delta_net", "slstm"])
@pytest.mark.parametrize("opt_level", [0, 2])
def test_gradients_of_no_batch_are_zero(cells, name, opt_level):
    """And are added as such: steps that compute nothing are not run."""
    cell = stepnet.cell(cells / f"{name}.cell", opt_level=opt_level)
    params = cell.init()
    x = numpy.zeros((50, 0, int(cell.inputs[0].shape.strip("[]").split(", ")[2])), "float32")
    value, gradients = cell.value_and_grad(params, cell.outputs[0], x=x)
    assert value == 0 and gradients.params.keys() == params.keys()
    for parameter, gradient in gradients.params.items():
        assert gradient.shape == params[parameter].shape and not gradient.any()
    sums = {parameter: numpy.full_like(each, 2) for parameter, each in params.items()}
    cell.value_and_grad(params, cell.outputs[0], x=x, gradient_requests=dict.fromkeys(params, "add"), into=sums)
    assert all((each == 2).all() for each in sums.values())


@pytest.mark.parametrize("options", [{}, {"layers": 2, "direction": "bidirectional"}])
def test_parameters_come_in_the_order_of_the_cell(cells, options):
    cell = stepnet.cell((cells / "lstm.cell").read_text().replace("output c", "state h initial=learned\n  output c"), **options)
    assert list(cell.init()) == [each.name for each in cell.params] != sorted(cell.init())
    assert cell.init().keys() == cell._cell.init(0).keys()


def test_a_cell_fills_no_parameters(cells, set_max_memory):
    """Before init asks for them, nor does one with other options, as modules of PyTorch make them."""
    set_max_memory(stepnet.memory().current + 100_000)
    cell = stepnet.cell(cells / "lstm.cell", D=1000, H=1000)
    assert [each.shape for each in cell.with_options(training=True).params] == ["[4000, 1000]", "[4000, 1000]", "[4000]"]
    refuses(cell.init, stepnet.OutOfMemoryError, " are in use")


def test_initial_states_may_be_given_or_left_out(lstm, random):
    params = lstm.init()
    x = random.normal(size=(4, 3, 5)).astype("float32")
    h, c = (random.normal(size=(1, 3, 4)).astype("float32") for _ in range(2))
    assert [(each.name, each.optional) for each in lstm.inputs] == [("x", False), ("h_init", True), ("c_init", True)]
    numpy.testing.assert_allclose(
        lstm(params, x=x, h_init=h, c_init=c).h, references.lstm(params, x, h[0], c[0])[0], rtol=1e-4, atol=1e-5
    )
    numpy.testing.assert_allclose(lstm(params, x=x).h, references.lstm(params, x)[0], rtol=1e-4, atol=1e-5)


def test_a_state_that_starts_from_none_is_left_out(lstm, random):
    """As in PyTorch's modules; no other array may be None."""
    params, x = lstm.init(), random.normal(size=(4, 3, 5)).astype("float32")
    h = numpy.ones((1, 3, 4), "float32")
    assert numpy.array_equal(lstm(params, x=x, h_init=None, c_init=None).h, lstm(params, x=x).h)
    given = {"x": x, "h_init": h}
    _, expected = lstm.value_and_grad(params, "h", given)
    _, found = lstm.value_and_grad(params, "h", {**given, "c_init": None})
    assert all(numpy.array_equal(found.inputs[name], each) for name, each in expected.inputs.items())
    refuses(lambda: lstm(params, x=None), stepnet.TypeMismatchError, 'the input "x" is a NoneType, no array')
    refuses(lambda: lstm({**params, "b": None}, x=x), stepnet.TypeMismatchError, 'the parameter "b" is a NoneType, no array')
    refuses(lambda: lstm(params, x=x, hx=None), stepnet.InvalidArgumentError, 'lstm has no input "hx"')


@pytest.mark.parametrize("lengths", [[6, 0, 3], (6, numpy.int64(0), 3)], ids=["list", "tuple"])
def test_lengths_may_be_a_list(cells, random, lengths):
    cell = stepnet.cell(cells / "lstm.cell", D=5, H=4, lengths="lengths")
    params, x = cell.init(), random.normal(size=(6, 3, 5)).astype("float32")
    of_array, gradients = cell.value_and_grad(params, "h", x=x, lengths=numpy.array([6, 0, 3]))
    assert numpy.array_equal(cell(params, x=x, lengths=lengths).h, cell(params, x=x, lengths=numpy.array([6, 0, 3])).h)
    of_list, others = cell.value_and_grad(params, "h", x=x, lengths=lengths)
    assert of_list == of_array and all(numpy.array_equal(others.params[name], each) for name, each in gradients.params.items())


@pytest.mark.parametrize(
    "lengths, error, message",
    [
        ([6, 2.0, 3], stepnet.TypeMismatchError, "a list whose item 1 is 2.0; items must be whole numbers of int32"),
        ((6, 2, True), stepnet.TypeMismatchError, "a tuple whose item 2 is True; items must be whole numbers of int32"),
        ([[6], [2], [3]], stepnet.TypeMismatchError, "a list whose item 0 is a list; items must be"),
        ([6, None, 3], stepnet.TypeMismatchError, "a list whose item 1 is None; items must be"),
        ([6, 2, 1 << 31], stepnet.TypeMismatchError, "a list whose item 2 is 2147483648; items must be"),
        ([6, -(10**400), 3], stepnet.TypeMismatchError, "a list whose item 1 is an int of 1329 bits; items must be"),
        ([numpy.array([1, 2])], stepnet.TypeMismatchError, "a list whose item 0 is an ndarray int64 \\[2\\]; items must be"),
        ([6, 2], stepnet.ShapeMismatchError, "is int32 \\[2\\]; it must be \\[B\\]"),
        ([], stepnet.ShapeMismatchError, "is int32 \\[0\\]; it must be \\[B\\]"),
        ([6, 7, 3], stepnet.InvalidArgumentError, "7"),
        ({6, 2, 3}, stepnet.TypeMismatchError, "is a set, no array"),
    ],
)
def test_lists_of_other_things_are_no_lengths(cells, random, lengths, error, message):
    cell = stepnet.cell(cells / "lstm.cell", D=5, H=4, lengths="lengths")
    with pytest.raises(error, match=f'"lengths".* {message}' if error is not stepnet.InvalidArgumentError else message):
        cell(cell.init(), x=random.normal(size=(6, 3, 5)).astype("float32"), lengths=lengths)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_steps_beyond_a_length_do_not_count(cells, random, dtype):
    text = (cells / "lstm.cell").read_text().replace("output c last", "output c last\n  option lengths = lengths")
    cell = stepnet.cell(text, D=5, H=4)
    params = cell.init()
    x = random.normal(size=(6, 3, 5)).astype("float32")
    lengths = numpy.array([6, 0, 3], dtype)
    h, h_last, c_last = references.lstm(params, x, lengths=lengths)
    out = cell(params, x=x, lengths=lengths)
    numpy.testing.assert_allclose(out.h, h, rtol=1e-4, atol=1e-5)
    numpy.testing.assert_allclose(out.c_last[0], c_last, rtol=1e-4, atol=1e-5)


def test_a_cell_that_is_carried_runs_a_sequence_in_parts(cells, random):
    cell = stepnet.cell(cells / "lstm.cell", D=5, H=4, carry=True)
    params = cell.init()
    x = random.normal(size=(6, 3, 5)).astype("float32")
    states = {each.name: numpy.zeros((1, 3, 4), "float32") for each in cell.inputs if each.name != "x"}
    whole = cell(params, x=x, **states)
    first = cell(params, x=x[:4], **states)
    given = dict(zip(states, first[-2:]))
    second = cell(params, x=x[4:], **given)
    numpy.testing.assert_allclose(numpy.concatenate([first.h, second.h]), whole.h, rtol=1e-5, atol=1e-6)


def test_rows_of_steps_that_do_not_count_are_not_carried():
    text = """cell c(x[2]; seen[2]) {
      state seen window=3
      y = ReduceSum(seen, axes=[0]) + x
      seen = x
      output y
      option lengths = n
    }"""
    stepnet.cell(text)
    with pytest.raises(stepnet.InvalidArgumentError, match='the state "seen" has window=3, out of which steps that do not count'):
        stepnet.cell(text, carry=True)
    for line in ("      option lengths = n\n", "      state seen window=3\n"):
        stepnet.cell(text.replace(line, ""), carry=True)


def test_states_in_the_place_of_a_window_are_carried_with_lengths(random):
    cell = stepnet.cell(
        """cell c(x[2]; a, b[2]) {
      y = 4 * x + 2 * a + b
      b = a_prev
      a = x
      output y
      option lengths = n
    }""",
        carry=True,
    )
    x = random.normal(size=(7, 1, 2)).astype("float32")
    zeros = {name: numpy.zeros((1, 1, 2), "float32") for name in ("a_init", "b_init")}
    whole = cell({}, x=x, n=numpy.array([7]), **zeros).y
    padded = numpy.concatenate([x[:3], numpy.full((2, 1, 2), numpy.nan, "float32")])
    first = cell({}, x=padded, n=numpy.array([3]), **zeros)
    second = cell({}, x=x[3:], n=numpy.array([4]), a_init=first.a_carried, b_init=first.b_carried)
    numpy.testing.assert_array_equal(numpy.concatenate([first.y[:3], second.y]), whole)


def test_parameters_are_filled_with_floats():
    text = "cell c(x[2]; ) {\n param a[2] = {}\n y = x * a\n output y\n}"
    with pytest.raises(stepnet.TypeMismatchError) as error:
        stepnet.cell(text.replace("{}", "ConstantFill(value=2)"))
    assert str(error.value).startswith(
        'type mismatch: <text>:2:8: the parameter "a" would be int64, and all are float32; write param a[2] = 2, or value=2.0: ConstantFill'
    )
    for fill in ("2", "ConstantFill(value=2.0)"):
        for dtype in ("float32", "float64"):
            assert stepnet.cell(text.replace("{}", fill), dtype=dtype).init()["a"].tolist() == [2, 2]


def test_a_text_is_a_cell_too(random):
    cell = stepnet.cell(ACCUMULATE, D=3)
    assert cell.name == "accumulate"
    assert cell.__doc__.strip() == "Adds up what comes in."
    assert cell.params == (stepnet.Argument("scale", "float32", "[3]", False),)
    assert cell.inputs[0] == stepnet.Argument("x", "float32", "[T, B, 3]", False)
    x = random.normal(size=(4, 2, 3)).astype("float32")
    out = cell(cell.init(), x=x)
    numpy.testing.assert_allclose(out.sum, numpy.cumsum(2 * x, axis=0), rtol=1e-5, atol=1e-6)
    assert out.total.shape == (1, 2, 3)
    assert stepnet.cell(ACCUMULATE, sizes={"D": 3}).params == cell.params
    for with_sizes in (lambda **sizes: stepnet.cell(ACCUMULATE, **sizes), cell.with_options):
        refuses(
            lambda: with_sizes(sizes={"D": 3}, D=4),
            stepnet.InvalidArgumentError,
            "the size D is given twice, in sizes and as D=4",
        )


def test_seeds_draw_other_parameters(lstm):
    assert numpy.array_equal(lstm.init(seed=3)["w"], lstm.init(seed=3)["w"])
    assert not numpy.array_equal(lstm.init(seed=3)["w"], lstm.init(seed=4)["w"])
    assert not lstm.init()["b"].any()


def test_training_draws_other_masks_in_each_run(random):
    text = ACCUMULATE.replace("output sum\n", "output sum\n  option zoneout = 0.5\n")
    x = numpy.ones((3, 2, 8), "float32")
    used, trained = stepnet.cell(text, D=8), stepnet.cell(text, D=8, training=True)
    params = used.init()
    assert numpy.array_equal(used(params, x=x).sum, used(params, x=x).sum)
    first, second = trained(params, x=x).sum, trained(params, x=x).sum
    assert not numpy.array_equal(first, second)
    again = stepnet.cell(text, D=8, training=True)
    assert numpy.array_equal(again(params, x=x).sum, first)
    other_seed = stepnet.cell(text, D=8, training=True, seed=1)
    assert not numpy.array_equal(other_seed(params, x=x).sum, first)


def test_calls_with_gradients_and_without_draw_from_one_count(random):
    text = ACCUMULATE.replace("output sum\n", "output sum\n  option zoneout = 0.5\n")
    x = numpy.ones((3, 2, 8), "float32")
    cell, other = (stepnet.cell(text, D=8, training=True) for _ in range(2))
    params = cell.init()
    expected = [cell(params, x=x).sum for _ in range(3)]
    assert numpy.array_equal(other(params, x=x).sum, expected[0])
    other.explain(params, x=x, gradients=True)  # draws apart
    assert numpy.array_equal(other.vjp(params, x=x)[0].sum, expected[1])
    assert numpy.array_equal(other(params, x=x).sum, expected[2])


def test_options_change_nothing_but_rounding(cells, random):
    x = random.normal(size=(9, 3, 5)).astype("float32")
    results = []
    for options in [{}, {"threads": 1}, {"threads": 2}, {"opt_level": 0}, {"device": "cpu"}]:
        cell = stepnet.cell(cells / "lstm.cell", D=5, H=4, **options)
        results.append(cell(cell.init(), x=x).h)
    for result in results:
        numpy.testing.assert_allclose(result, results[0], rtol=1e-5, atol=1e-6)


def test_outputs_have_names_of_python_and_of_the_cell(cells):
    text = (cells / "lstm.cell").read_text().replace("output c last", "output c last\n  option layers = 2")
    cell = stepnet.cell(text, D=5, H=4)
    assert "layer0/h_last" in cell.outputs
    out = cell(cell.init(), x=numpy.zeros((2, 1, 5), "float32"))
    assert out["layer0/h_last"] is out.layer0_h_last
    assert out._names == cell.outputs
    with pytest.raises(KeyError, match="there is no output 'layer9'; outputs are h, "):
        out["layer9"]


def test_a_cell_is_pickled_with_its_text(cells, tmp_path, random):
    path = tmp_path / "a.cell"
    path.write_text((cells / "lstm.cell").read_text())
    cell = stepnet.cell(path, D=5, H=4)
    path.unlink()
    other = pickle.loads(pickle.dumps(cell))
    x = random.normal(size=(4, 2, 5)).astype("float32")
    assert numpy.array_equal(cell(cell.init(), x=x).h, other(other.init(), x=x).h)


def test_other_options_make_another_cell(lstm):
    assert lstm.with_options(H=7).params[0].shape == "[28, 5]"
    assert lstm.with_options(sizes={"H": 7}).params[0].shape == "[28, 5]"
    assert lstm.with_options(dtype="float64").params[0].dtype == "float64"
    assert lstm.with_options(threads=1).params == lstm.params
    assert lstm.with_options(carry=True).inputs[1].optional is False


def test_a_cell_says_what_it_is(lstm):
    assert repr(lstm).startswith("<stepnet.Cell lstm(x[T, B, 5], h_init[")
    assert repr(lstm).endswith("-> h, h_last, c_last in float32>")
    assert repr(lstm.with_options(dtype="float64")).endswith("-> h, h_last, c_last in float64>")
    assert "Long short-term memory" in lstm.__doc__


def test_a_cell_has_its_text(cells, lstm):
    text = (cells / "lstm.cell").read_text()
    assert lstm.text == text
    assert stepnet.cell(text).text == text
    assert lstm.with_options(H=6).text == text


def test_a_cell_from_a_binary_file_needs_it_no_more(tmp_path):
    field = lambda number, *values: b"".join(bytes([8 * number + 2, len(value)]) + value for value in values)  # noqa: E731
    item = field(1, b"x") + field(2, b"4")
    step = field(1, b"x", b"h_prev") + field(2, b"h") + field(4, b"Add")
    parts = field(1, b"sum") + field(4, item) + field(5, field(1, b"h") + field(2, b"4")) + field(8, step)
    path = tmp_path / "sum.pb"
    path.write_bytes(parts + field(9, field(1, b"h")))
    cell = stepnet.cell(path)
    path.unlink()
    x = numpy.ones((3, 2, 4), "float32")
    for same in (cell, cell.with_options(threads=1), pickle.loads(pickle.dumps(cell)), stepnet.cell(cell.text)):
        assert same({}, x=x).h[2, 0].tolist() == [3, 3, 3, 3]
    assert "RecurrentNetwork" in stepnet.show(cell) and "RecurrentNetwork" in stepnet.expand(cell)


def test_outputs_are_pickled(random):
    cell = stepnet.layers("lstm", 3, 4)
    outputs = cell(cell.init(seed=0), x=random.normal(size=(3, 2, 3)).astype("float32"))
    same = pickle.loads(pickle.dumps(outputs))
    assert same._fields == outputs._fields and same._names == outputs._names
    assert all(numpy.array_equal(one, other) for one, other in zip(same, outputs))
    assert type(pickle.loads(pickle.dumps(same))) is type(same)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numbers_of_expressions_follow_from_sizes(dtype, random):
    values = {
        "scaled": ("(x @ w) / sqrt(D)", lambda x, w: x @ w.T / numpy.sqrt(3)),
        "divided": ("x / D", lambda x, w: x / 3),
        "raised": ("1/H + x - D", lambda x, w: x + 1 / 7 - 3),
        "mixed": ("x * (2*(H - D) / -D)", lambda x, w: x * (2 * (7 - 3) / -3)),
    }
    lines = [f"{name} = {value}\n output {name}" for name, (value, _) in values.items()]
    text = "cell c(x[D]; ) {\n size D = 3\n size H = 7\n param w[D, D]\n " + "\n ".join(lines) + "\n}"
    cell = stepnet.cell(text, dtype=dtype)
    params, x = cell.init(1), random.standard_normal((4, 2, 3)).astype(dtype)
    out, tolerance = cell(params, x=x), 1e-6 if dtype == "float32" else 1e-15
    for name, (_, expected) in values.items():
        value = expected(x.astype("float64"), params["w"].astype("float64"))
        numpy.testing.assert_allclose(out[name], value, rtol=tolerance, atol=tolerance, err_msg=name)


def test_options_from_outside_are_those_of_the_text(cells):
    path = cells / "lstm.cell"
    text = path.read_text().replace("output h\n", "output h\n  option layers = 3\n  option residual = true\n", 1)
    written = stepnet.cell(text.replace("layers = 3", "layers = 2\n  option direction = reverse\n  option zoneout = 0.5"), training=True)
    given = stepnet.cell(text, layers=2, direction="reverse", zoneout=0.5, training=True)
    assert stepnet.expand(given) == stepnet.expand(written)
    assert stepnet.expand(text, layers=2, direction="reverse", zoneout=0.5, training=True) == stepnet.expand(written)
    assert stepnet.show(text, layers=2) != stepnet.show(text) != stepnet.show(text, residual=False)
    assert stepnet.cell(text, sizes={"layers": 2}).params == given.params == stepnet.cell(text).with_options(layers=2).params
    assert pickle.loads(pickle.dumps(given)).params == given.params
    assert stepnet.explain(given, D=5, H=4) == stepnet.explain(written, D=5, H=4)
    named = stepnet.cell("cell c(x[layers]; h[layers]) { size layers = 2\n h = x\n output h }", layers=3)
    assert named.inputs[0].shape == "[T, B, 3]", "a size of that name is one"


def test_options_that_a_cell_cannot_take_are_refused(cells):
    def of(**options):
        return lambda: stepnet.cell(cells / "lstm.cell", **options)

    refuses(of(layers="two"), stepnet.InvalidArgumentError, "options:1:8: an integer is expected, not 'two'")
    refuses(of(layers=0), stepnet.InvalidArgumentError, "options:1:1: layers is 0, must be between 1 and 1000")
    refuses(of(dropout=True), stepnet.InvalidArgumentError, "options:1:9: a number is expected, not 'true'")
    refuses(of(layers=None), stepnet.TypeMismatchError, "the option layers is None; it must be a number, a word, or True or False")
    refuses(of(lengths="a, layers=2"), stepnet.TypeMismatchError, "the option lengths is 'a, layers=2'; it must be a number, a word")
    of_cells = "options of cells are layers, residual, direction, dropout, recurrent_dropout, zoneout, lengths, mask, beyond_length"
    refuses(of(layer=2), stepnet.InvalidArgumentError, "has no size layer; did you mean layers?; its sizes are D, H; " + of_cells)
    refuses(of(depth=2), stepnet.InvalidArgumentError, "has no size depth; its sizes are D, H; " + of_cells)
    assert "layers is 0" in stepnet.check(cells / "lstm.cell", layers=0)[0]
    net = cells / "elman.prototxt"
    refuses(lambda: stepnet.show(net, layers=2), stepnet.InvalidArgumentError, "sizes and options are of cells: leave layers out")


def test_a_state_that_starts_from_no_number(random):
    cell = stepnet.cell("cell most(x[D]; h[D]) { size D\n h = Max(h, x)\n state h initial=-inf\n output h\n option lengths = n }", D=3)
    x = random.standard_normal((5, 2, 3)).astype("float32")
    out, pullback = cell.vjp({}, x=x, n=numpy.array([5, 3]))
    assert (out.h[4, 0] == x[:, 0].max(0)).all() and (out.h[2, 1] == x[:3, 1].max(0)).all()
    gradients = pullback(h=numpy.ones_like(out.h)).inputs
    assert (gradients["h_init"] == 0).all() and gradients["x"].sum() == 8 * 3


def test_initial_states_that_are_matrices(random):
    cell = stepnet.cell("cell m(x[K]; s[V, K]) { size V = 3\n size K = 2\n s = s + ExpandDims(x, dims=[2])\n output s }")
    x = numpy.ones((4, 5, 2), "float32")
    for shape in ([1, 5, 3, 2], [1, 1, 3, 2]):
        start = random.standard_normal(shape).astype("float32")
        out, pullback = cell.vjp({}, x=x, s_init=start)
        numpy.testing.assert_allclose(out.s[3], numpy.broadcast_to(start[0], (5, 3, 2)) + 4, rtol=1e-6)
        assert pullback(s=out.s).inputs["s_init"].shape == tuple(shape)
    with pytest.raises(stepnet.ShapeMismatchError, match=r"it must be .1, B, 3, 2., of a batch of 5; .1, 1, 3, 2. is one for all"):
        cell({}, x=x, s_init=start[0])
