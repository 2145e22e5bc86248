import pickle
import re

import numpy
import pytest
import references

import stepnet


def loss_of(cell, params, weights, **inputs):
    out = cell(params, **inputs)
    return sum(float(numpy.sum(out[name] * weight)) for name, weight in weights.items())


@pytest.mark.parametrize(
    "name", ["lstm", "gru", "layer_norm_lstm", "lstmp", "causal_conv", "indrnn", "attention_dot", "slstm"]
)
def test_gradients_match_differences(cells, random, name):
    cell = stepnet.cell(cells / f"{name}.cell", dtype="float64", sizes=small_sizes(cells / f"{name}.cell"))
    params = {key: value + 0.1 * random.normal(size=value.shape) for key, value in cell.init(seed=2).items()}
    sizes = {"T": 3, "B": 2}
    inputs = {}
    for each in cell.inputs:
        if not each.optional:
            dims = [sizes[d] if d in sizes else int(d) for d in each.shape.strip("[]").split(", ")]
            inputs[each.name] = random.normal(size=dims)
    outputs, pullback = cell.vjp(params, **inputs)
    weights = {name: random.normal(size=outputs[name].shape) for name in cell.outputs}
    gradients = pullback(**weights)
    assert set(gradients.params) == set(params)
    for values, found in ((params, gradients.params), (inputs, gradients.inputs)):
        for key, value in values.items():
            expected = references.differences(lambda: loss_of(cell, params, weights, **inputs), value)
            numpy.testing.assert_allclose(found[key], expected, rtol=1e-5, atol=1e-7, err_msg=key)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("value", ["Sqrt(ReduceSum(k * k, axes=[-1]))", "k", "Log(k * k + 1)", "Pow(k * k, exponent=0.5)"])
def test_padding_gives_no_gradients_where_slopes_are_infinite(random, value, dtype):
    """They are those of the sequences one by one."""
    text = f"""cell c(x[D]; h[4], p[D]) {{
      size D = 3
      param w[4, D]
      k = (x - p) @ w
      h = 0.5 * h + (k + 1) / {value}
      p = x
      output h
    }}"""
    alone = stepnet.cell(text, dtype=dtype)
    params = alone.init()
    x, weights = random.normal(size=(5, 4, 3)).astype(dtype), random.normal(size=(5, 4, 4)).astype(dtype)
    lengths = numpy.array([5, 1, 0, 3])
    counts = numpy.arange(5)[:, None] < lengths
    expected = numpy.zeros_like(params["w"])
    for b, length in enumerate(lengths):
        _, pullback = alone.vjp(params, x=x[:length, b : b + 1].copy())
        expected += pullback(h=weights[:length, b : b + 1].copy()).params["w"]
    x[~counts] = numpy.nan
    for name, given in (("lengths", lengths), ("mask", counts)):
        for further in ("", "option beyond_length = held\n"):
            cell = stepnet.cell(text.replace("output h", f"output h\n option {name} = {name}\n{further}"), dtype=dtype)
            _, pullback = cell.vjp(params, {"x": x, name: given})
            gradients = pullback(h=weights * counts[..., None])
            numpy.testing.assert_allclose(gradients.params["w"], expected, rtol=1e-3 if dtype == "float32" else 1e-10)
            assert not gradients.inputs["x"][~counts].any()


OPTIONS = {
    "both directions, lengths": "option layers = 2\n option direction = bidirectional\n option lengths = lengths",
    "residual, a mask": "option layers = 2\n option residual = true\n option mask = mask",
    "dropout": "option layers = 2\n option dropout = 0.4\n option zoneout = 0.3\n option recurrent_dropout = 0.3",
    "batch first, learned": "option batch_major = true\n state h initial=learned",
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_gradients_with_options_match_differences(cells, random, options):
    text = (cells / "gru.cell").read_text().rstrip().rstrip("}") + f"  {options}\n}}\n"
    # Each run draws other random numbers, and the first run of another cell the same.
    made = stepnet.cell(text, D=2, H=2, dtype="float64", training=True)
    first_run = lambda: pickle.loads(pickle.dumps(made))  # noqa: E731
    params = {key: value + 0.1 * random.normal(size=value.shape) for key, value in made.init(seed=2).items()}
    inputs = {"x": random.normal(size=(3, 3, 2))}
    if "lengths" in options:
        inputs["lengths"] = numpy.array([3, 0, 2], "int32")
    if "mask" in options:
        inputs["mask"] = random.random((3, 3)) < 0.7
    outputs, pullback = first_run().vjp(params, **inputs)
    weights = {name: random.normal(size=outputs[name].shape) for name in made.outputs}
    gradients = pullback(**weights)

    def loss():
        again, _ = first_run().vjp(params, **inputs)
        return sum(float(numpy.sum(again[name] * weight)) for name, weight in weights.items())

    assert loss() == sum(float(numpy.sum(outputs[name] * weight)) for name, weight in weights.items())
    for values, found in ((params, gradients.params), ({"x": inputs["x"]}, gradients.inputs)):
        for key in values:
            expected = references.differences(loss, values[key])
            numpy.testing.assert_allclose(found[key], expected, rtol=1e-5, atol=1e-7, err_msg=key)


def small_sizes(path):
    """Sizes 2, 3, … in place of those that the cell declares."""
    names = [line.split()[1] for line in path.read_text().splitlines() if line.strip().startswith("size ")]
    return {name: 3 for name in names}


def test_a_pullback_may_be_called_again_and_lacks_what_is_zero(lstm, random):
    params = lstm.init()
    x = random.normal(size=(4, 3, 5)).astype("float32")
    outputs, pullback = lstm.vjp(params, x=x)
    of_h = pullback(h=numpy.ones_like(outputs.h))
    of_c = pullback(c_last=numpy.ones_like(outputs.c_last))
    of_both = pullback(h=numpy.ones_like(outputs.h), c_last=numpy.ones_like(outputs.c_last))
    for name in params:
        numpy.testing.assert_allclose(
            of_both.params[name], of_h.params[name] + of_c.params[name], rtol=1e-4, atol=1e-5
        )
    assert numpy.array_equal(pullback(h=numpy.ones_like(outputs.h)).inputs["x"], of_h.inputs["x"])


def test_gradients_are_the_callers(lstm, random):
    x = random.normal(size=(4, 3, 5)).astype("float32")
    outputs, pullback = lstm.vjp(lstm.init(), x=x)
    first = pullback(h=outputs.h)
    copies = {name: each.copy() for name, each in first.params.items()}
    second = pullback(h=2 * outputs.h)
    second.params["w"][:] = 0
    assert all(numpy.array_equal(first.params[name], copies[name]) for name in copies)
    arrays = [*first.params.values(), *first.inputs.values()]
    assert not any(numpy.shares_memory(a, b) for i, a in enumerate(arrays) for b in arrays[:i])


def test_runs_and_their_pullbacks_may_cross(lstm, random):
    params = lstm.init()
    xs = [random.normal(size=(steps, 2, 5)).astype("float32") for steps in (3, 6, 3)]
    alone = [lstm.value_and_grad(params, "h", x=x)[1].params["u"] for x in xs]
    runs = [lstm.vjp(params, x=x) for x in xs]
    for (outputs, pullback), expected in reversed(list(zip(runs, alone))):
        assert numpy.array_equal(pullback(h=numpy.ones_like(outputs.h)).params["u"], expected)


def test_gradients_by_some_alone(lstm, random):
    params = lstm.init()
    x = random.normal(size=(4, 3, 5)).astype("float32")
    _, every = lstm.value_and_grad(params, "h", x=x)
    _, some = lstm.value_and_grad(params, "h", wrt=["u", "x"], x=x)
    assert set(some.params) == {"u"} and set(some.inputs) == {"x"}
    numpy.testing.assert_allclose(some.params["u"], every.params["u"], rtol=1e-5, atol=1e-6)
    numpy.testing.assert_allclose(some.inputs["x"], every.inputs["x"], rtol=1e-5, atol=1e-6)
    assert set(every.inputs) == {"x", "h_init", "c_init"}


def test_a_loss_is_outputs_or_a_function(lstm, random):
    params = lstm.init()
    x = random.normal(size=(4, 3, 5)).astype("float32")
    value, gradients = lstm.value_and_grad(params, ["h", "c_last"], x=x)
    out = lstm(params, x=x)
    assert value == pytest.approx(float(out.h.sum() + out.c_last.sum()), rel=1e-4)

    def squares(out):
        return float((out.h**2).sum()), {"h": 2 * out.h}

    value, gradients = lstm.value_and_grad(params, squares, x=x)
    assert value == pytest.approx(float((out.h**2).sum()), rel=1e-5)
    outputs, pullback = lstm.vjp(params, x=x)
    assert numpy.array_equal(pullback(h=2 * outputs.h).params["w"], gradients.params["w"])


def test_training_in_numpy_makes_the_loss_smaller(cells, random):
    cell = stepnet.cell(cells / "gru.cell", D=1, H=8)
    params = cell.init(seed=3)
    x = random.uniform(-1, 1, size=(5, 32, 1)).astype("float32")
    target = x.sum(axis=0)

    def loss(out):
        error = out.h_last[0, :, :1] - target
        gradient = numpy.zeros_like(out.h_last)
        gradient[0, :, :1] = 2 * error / error.size
        return float((error**2).mean()), {"h_last": gradient}

    losses = []
    for _ in range(60):
        value, gradients = cell.value_and_grad(params, loss, wrt=params, x=x)
        losses.append(value)
        for name, gradient in gradients.params.items():
            params[name] -= 0.5 * gradient
    assert losses[-1] < 0.5 * losses[0]


def test_outputs_of_a_run_with_gradients_must_not_be_written(lstm, random):
    outputs, _ = lstm.vjp(lstm.init(), x=numpy.zeros((2, 1, 5), "float32"))
    with pytest.raises(ValueError, match="read-only"):
        outputs.h[:] = 0


def test_no_steps_have_gradients_of_zero(lstm):
    value, gradients = lstm.value_and_grad(lstm.init(), "h", x=numpy.zeros((0, 3, 5), "float32"))
    assert value == 0
    assert not any(each.any() for each in gradients.params.values())


def test_outputs_are_named_by_field_too(cells, random):
    text = (cells / "lstm.cell").read_text().replace("output c last", "output c last\n  option layers = 2")
    cell = stepnet.cell(text, D=5, H=4)
    params, x = cell.init(), random.normal(size=(3, 2, 5)).astype("float32")
    out, pullback = cell.vjp(params, x=x)
    assert out["layer0_h_last"] is out["layer0/h_last"]
    ones = numpy.ones_like(out.layer0_h_last)
    expected = pullback(**{"layer0/h_last": ones}).params
    for found in (pullback(layer0_h_last=ones), cell.value_and_grad(params, "layer0_h_last", x=x)[1]):
        for name, gradient in found.params.items():
            assert numpy.array_equal(gradient, expected[name])


@pytest.mark.parametrize("names", [("layer0/h_last", "layer0_h_last"), ("layer0_h_last", "layer0/h_last")])
def test_gradients_of_an_output_are_given_once(random, names):
    cell = stepnet.layers("gru", 3, 4, num_layers=2)
    x = random.normal(size=(3, 2, 3)).astype("float32")
    outputs, pullback = cell.vjp(cell.init(), x=x)
    given = {name: numpy.ones_like(outputs.layer0_h_last) for name in names}
    message = "the gradient of the output 'layer0/h_last' is given twice, by name and by field"
    with pytest.raises(stepnet.InvalidArgumentError, match=message):
        pullback(**given)
    with pytest.raises(stepnet.InvalidArgumentError, match=message):
        cell.value_and_grad(cell.init(), lambda outputs: (0.0, given), x=x)


CLASHING = """cell clashing(into[2], wrt[2], gradients[2], format[2], inputs[2], self[2]; h[2]) {
  param params[2, 2]
  h = Tanh((into + 2 * wrt + 3 * gradients + 4 * format + 5 * inputs + 6 * self) @ params + h)
  output h
}"""


@pytest.fixture
def clashing(random):
    """A cell whose inputs are called as arguments are, its parameters, and its inputs."""
    cell = stepnet.cell(CLASHING)
    return cell, cell.init(seed=1), {each.name: random.normal(size=(3, 2, 2)).astype("f4") for each in cell.inputs[:6]}


def test_inputs_may_have_any_name(clashing):
    cell, params, inputs = clashing
    out = cell(params, inputs)
    assert numpy.array_equal(out.h, cell(params, **inputs).h)
    _, gradients = cell.value_and_grad(params, "h", inputs, wrt=[*inputs])
    for factor, (name, gradient) in enumerate(gradients.inputs.items(), start=1):
        numpy.testing.assert_allclose(gradient, factor * gradients.inputs["into"], rtol=1e-5, err_msg=name)
    some = {name: array for name, array in inputs.items() if name in ("into", "wrt")}
    others = {name: array for name, array in inputs.items() if name not in some}
    outputs, pullback = cell.vjp(params, {**some, "format": inputs["format"]}, wrt="wrt", **{
        name: array for name, array in others.items() if name != "format"
    })
    assert numpy.array_equal(pullback(h=numpy.ones_like(outputs.h)).inputs["wrt"], gradients.inputs["wrt"])
    assert cell.explain(params, inputs).startswith("step net clashing")


def test_nets_take_inputs_of_any_name(tmp_path, random):
    (tmp_path / "net.pbtxt").write_text('op { type: "Mul" input: "wrt" input: "into" output: "y" }')
    net = stepnet.load(tmp_path / "net.pbtxt")
    inputs = {name: random.normal(size=3).astype("f4") for name in ("wrt", "into")}
    assert numpy.array_equal(net(inputs).y, net(**inputs).y)
    _, gradients = net.value_and_grad("y", inputs, wrt="into")
    assert numpy.array_equal(gradients.inputs["into"], inputs["wrt"])
    _, pullback = net.vjp(inputs, wrt=["wrt"])
    assert numpy.array_equal(pullback(y=numpy.ones(3, "f4")).inputs["wrt"], inputs["into"])
    with pytest.raises(stepnet.InvalidNetError, match="runs no step net"):  # and no word of its inputs
        net.explain(inputs)


def test_inputs_are_given_once(lstm):
    x, params = numpy.zeros((2, 1, 5), "f4"), lstm.init()
    with pytest.raises(stepnet.InvalidArgumentError, match="the input 'x' is given twice, by name and in the dictionary"):
        lstm(params, {"x": x}, x=x)
    with pytest.raises(stepnet.TypeMismatchError, match="inputs is an ndarray float32 .*; it must be a dictionary of arrays by name"):
        lstm(params, x)


@pytest.mark.parametrize(
    "given, kinds",
    [
        (None, "NoneType"),
        (1.5, "float"),
        ((1.5,), "float"),
        ((1.5, None), "float, NoneType"),
        ({"h": numpy.zeros(3)}, "dict"),
        (({"h": numpy.zeros(3)}, 1.5), "dict, float"),
        ((1.5, numpy.zeros((2, 1, 4), "f4")), "float, ndarray"),
        ((1.5, {"h": 1}, 2), "float, dict, int"),
        ((1.5, {1: 2}), "float, dict"),
        (numpy.zeros(2), "ndarray"),
    ],
)
def test_a_function_that_gives_no_loss_with_gradients_is_told(lstm, given, kinds):
    with pytest.raises(stepnet.TypeMismatchError, match="the function that is the loss gives .*; it must give") as caught:
        lstm.value_and_grad(lstm.init(), lambda out: given, x=numpy.zeros((2, 1, 5), "f4"))
    assert f"gives ({kinds}); it must give the loss and its gradients" in str(caught.value)


@pytest.mark.parametrize(
    "gradients, error, message",
    [
        ({"h": None}, stepnet.TypeMismatchError, 'the gradient of the output "h" is a NoneType, no array'),
        ({"h": 2.0}, stepnet.TypeMismatchError, 'the gradient of the output "h" is a float, no array'),
        ({"h": numpy.zeros((2, 1, 4))}, stepnet.TypeMismatchError, "is float64 .*; it must be float32"),
        ({"h": numpy.zeros(4, "f4")}, stepnet.ShapeMismatchError, r"is float32 \[4\]; it must be float32 \[2, 1, 4\]"),
        ({"g": numpy.zeros(4, "f4")}, stepnet.InvalidArgumentError, 'lstm has no output "g"'),
    ],
)
def test_a_function_that_gives_other_gradients_is_told(lstm, gradients, error, message):
    with pytest.raises(error, match=message):
        lstm.value_and_grad(lstm.init(), lambda out: (0.0, gradients), x=numpy.zeros((2, 1, 5), "f4"))


@pytest.mark.parametrize("loss", [None, 3, 2.5])
def test_a_loss_of_another_type_is_told(lstm, loss):
    with pytest.raises(stepnet.TypeMismatchError, match=f"loss is {loss}; it must be the name of an output, names, or a function"):
        lstm.value_and_grad(lstm.init(), loss, x=numpy.zeros((2, 1, 5), "f4"))


NAMES = ["h_t_grad", "h_prev_grad", "x_t_grad", "h_states_grad", "h_grad", "x_grad", "w_grad", "h_passed_grad", "h_output_grad"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("renamed", ["w", "g", "b"])
def test_names_that_look_like_those_of_gradients_are_names(renamed, name, random):
    """As what is computed of a step, of a parameter and of an input."""
    text = """cell named(x[3]; h[3]) {
      param w[3, 3]
      param u[3, 3]
      param b[3]
      g = Tanh(x @ w + h @ u)
      h = Sigmoid(g + b) * g + h
      output h
    }"""
    plain, cell = (stepnet.cell(each, dtype="float64") for each in (text, re.sub(rf"\b{renamed}\b", name, text)))
    params, x = plain.init(seed=2), random.normal(size=(4, 2, 3))
    expected = plain.value_and_grad(params, "h", x=x)[1]
    given = {name if each == renamed else each: array for each, array in params.items()}
    found = cell.value_and_grad(given, "h", x=x)[1]
    for each, gradient in expected.params.items():
        numpy.testing.assert_allclose(found.params[name if each == renamed else each], gradient, rtol=1e-12, err_msg=each)
    numpy.testing.assert_allclose(found.inputs["x"], expected.inputs["x"], rtol=1e-12)


def test_a_region_grows_from_its_first_operator(cells):
    # Its gradient of one unit and many rows had a group that left out what it began with, for ever.
    cell = stepnet.cell(cells / "layer_norm_lstm.cell", H=1, D=3)
    x = numpy.zeros((2, 32, 3), "float32")
    outputs, pullback = cell.vjp(cell.init(), x=x)
    assert numpy.isfinite(pullback(**{name: numpy.ones_like(each) for name, each in zip(outputs._fields, outputs)}).inputs["x"]).all()


@pytest.mark.parametrize("shape", [(4,), (1, 4), (3, 4), (1, 1, 4), (1, 3, 4)], ids=str)
def test_a_state_starts_from_one_for_all_or_one_for_each(lstm, shape, random):
    """And its gradient has the shape that it is given in."""
    x, params = random.normal(size=(2, 3, 5)).astype("float32"), lstm.init(seed=1)
    start = random.normal(size=shape).astype("float32")
    whole = numpy.ascontiguousarray(numpy.broadcast_to(start, (1, 3, 4)))
    expected, by_whole = lstm.value_and_grad(params, "h", x=x, h_init=whole)
    value, gradients = lstm.value_and_grad(params, "h", x=x, h_init=start)
    assert value == pytest.approx(expected, rel=1e-6)
    gradient = by_whole.inputs["h_init"]
    if len(shape) == 1 or shape[-2] == 1:
        gradient = gradient.sum(axis=1)
    numpy.testing.assert_allclose(gradients.inputs["h_init"], gradient.reshape(shape), rtol=1e-5)
