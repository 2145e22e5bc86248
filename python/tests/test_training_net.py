import copy
import pickle
import threading
import time

import numpy
import pytest
from conftest import in_threads, refuses
from regression import INIT, NET
from test_net import load

import stepnet


@pytest.fixture
def batch(random):
    return {"x": random.normal(size=(5, 3)).astype("float32"), "target": random.normal(size=(5, 2)).astype("float32")}


def files(tmp_path, net=NET):
    (tmp_path / "net.pbtxt").write_text(net)
    (tmp_path / "init.pbtxt").write_text(INIT)
    return tmp_path / "net.pbtxt", tmp_path / "init.pbtxt"


def loss_and_gradients(params, batch):
    """The mean over the batch of half the squared distance, in double."""
    w, b = (params[name].astype("float64") for name in ("w", "b"))
    x, target = (batch[name].astype("float64") for name in ("x", "target"))
    error = x @ w.T + b - target
    return (error**2).sum() / 2 / len(x), {"w": error.T @ x / len(x), "b": error.sum(axis=0) / len(x)}


def test_a_call_is_an_iteration_of_sgd(tmp_path, batch):
    training = stepnet.train_net(*files(tmp_path), loss="loss", method="sgd", learning_rate=0.1)
    assert training.inputs == ("x", "target")
    assert training.outputs == ("y", "loss")
    for _ in range(3):
        params = training.params
        expected, gradients = loss_and_gradients(params, batch)
        out = training(**batch)
        assert out.loss == pytest.approx(expected, rel=1e-5)
        numpy.testing.assert_allclose(out.y, batch["x"] @ params["w"].T + params["b"], rtol=1e-4, atol=1e-5)
        for name, after in training.params.items():
            numpy.testing.assert_allclose(after, params[name] - 0.1 * gradients[name], rtol=1e-5, atol=1e-6)


def test_adam_lowers_the_loss(tmp_path, batch):
    training = stepnet.train_net(*files(tmp_path), loss="loss", learning_rate=0.05, clip_norm=1)
    before = training.params
    losses = [float(training(**batch).loss) for _ in range(200)]
    # The first step of Adam is the rate in the direction of the sign (Kingma and Ba, section 2.1).
    assert losses[-1] < losses[0] / 10
    fresh = stepnet.train_net(*files(tmp_path), loss="loss", learning_rate=0.05)
    fresh(**batch)
    _, gradients = loss_and_gradients(before, batch)
    for name, after in fresh.params.items():
        numpy.testing.assert_allclose(before[name] - after, 0.05 * numpy.sign(gradients[name]), rtol=1e-3)


def in_double(random):
    """Parameters and a batch of the regression."""
    params = {"w": random.normal(size=(2, 3)), "b": random.normal(size=2)}
    return params, {"x": random.normal(size=(5, 3)), "target": random.normal(size=(5, 2))}


def expect_params(training, expected):
    for name, value in training.params.items():
        numpy.testing.assert_allclose(value, expected[name], rtol=1e-13)


@pytest.mark.parametrize("rate", [0.1, 1 / 3])  # of which the second has no short decimal
def test_sgd_in_float64_has_the_numbers_that_were_written(rate, random):
    params, batch = in_double(random)
    numbers = {"learning_rate": rate, "momentum": 0.9, "weight_decay": rate / 10, "schedule": "exp", "gamma": 0.7}
    training = stepnet.train_net(NET, params, loss="loss", method="sgd", **numbers)
    momenta = {name: 0 for name in params}
    for step in range(3):
        _, gradients = loss_and_gradients(params, batch)
        for name in params:
            decayed = gradients[name] + rate / 10 * params[name]
            momenta[name] = 0.9 * momenta[name] + rate * 0.7**step * decayed
            params[name] = params[name] - momenta[name]
        training(**batch)
        expect_params(training, params)


@pytest.mark.parametrize("rate", [0.1, 1 / 3])
def test_adam_in_float64_has_the_numbers_that_were_written(rate, random):
    """Loshchilov and Hutter, "Decoupled Weight Decay Regularization", algorithm 2."""
    params, batch = in_double(random)
    training = stepnet.train_net(NET, params, loss="loss", learning_rate=rate, weight_decay=rate / 10)
    first, second = ({name: 0 for name in params} for _ in range(2))
    for step in range(1, 4):
        _, gradients = loss_and_gradients(params, batch)
        for name, gradient in gradients.items():
            first[name] = 0.9 * first[name] + 0.1 * gradient
            second[name] = 0.999 * second[name] + 0.001 * gradient**2
            m, v = first[name] / (1 - 0.9**step), second[name] / (1 - 0.999**step)
            params[name] = params[name] - rate * (m / (numpy.sqrt(v) + 1e-8) + rate / 10 * params[name])
        training(**batch)
        expect_params(training, params)


def test_only_some_parameters_may_change(tmp_path, batch):
    training = stepnet.train_net(*files(tmp_path), loss="loss", parameters=["b"])
    fixed = stepnet.load(*files(tmp_path)).params["w"]
    before = training.params
    training(**batch)
    assert numpy.array_equal(training.params["w"], before["w"]) and numpy.array_equal(before["w"], fixed)
    assert not numpy.array_equal(training.params["b"], before["b"])


def test_what_is_trained_is_what_a_cell_takes(cells, random):
    """And the parameters are what its net takes."""
    text, fill = (stepnet.expand(cells / "gru.cell", D=3, H=4, init=init) for init in (False, True))
    loss = 'op { type: "SumSqrElements" input: "h" output: "loss" }'
    training = stepnet.train_net(text + loss, fill, loss="loss")
    x = random.normal(size=(5, 2, 3)).astype("float32")
    training(x=x)
    cell = stepnet.cell(cells / "gru.cell", D=3, H=4)
    assert training.trained.keys() == cell.init().keys()
    net = stepnet.load(text, init=training.params)
    assert net.inputs == ("x",)
    numpy.testing.assert_array_equal(cell(training.trained, x=x).h, net(x=x).h)
    assert sorted(stepnet.train_net(text + loss, fill, loss="loss", parameters=["w"]).trained) == ["w"]
    assert pickle.loads(pickle.dumps(training)).trained.keys() == training.trained.keys()


def test_training_goes_on_from_a_state(tmp_path, batch):
    training = stepnet.train_net(*files(tmp_path), loss="loss", learning_rate=0.05, schedule="exp", gamma=0.9)
    for _ in range(3):
        training(**batch)
    state = training.state
    assert "optimizer/iteration" in state
    other = stepnet.train_net(
        *files(tmp_path), loss="loss", learning_rate=0.05, schedule="exp", gamma=0.9, seed=5, opt_level=0, threads=1
    )
    other.restore(state)
    for _ in range(3):
        training(**batch), other(**batch)
    for name, tensor in training.state.items():
        numpy.testing.assert_allclose(other.state[name], tensor, rtol=1e-5, err_msg=name)


def test_what_cannot_be_restored_changes_nothing(tmp_path):
    training = stepnet.train_net(*files(tmp_path), loss="loss")
    before = training.state
    with pytest.raises(stepnet.InvalidArgumentError, match='no parameter and no state "v"'):
        training.restore({"b": numpy.ones(2, "float32"), "v": numpy.ones(2, "float32")})
    with pytest.raises(stepnet.ShapeMismatchError, match=r'"w" is float32 \[3, 2\]; it must be float32 \[2, 3\]'):
        training.restore({"b": numpy.ones(2, "float32"), "w": numpy.ones((3, 2), "float32")})
    with pytest.raises(stepnet.TypeMismatchError, match='"b" is float64'):
        training.restore({"b": numpy.ones(2)})
    for name, tensor in training.state.items():
        assert numpy.array_equal(tensor, before[name])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "los"}, 'the loss "los" is nothing that the net computes; did you mean "loss"'),
        ({"loss": "loss", "parameters": ["x"]}, '"x" is no parameter of the net "regression"'),
        ({"loss": "loss", "learning_rate": -1}, "learning_rate"),
        ({"loss": "loss", "method": "sgd", "momentum": float("nan")}, "momentum"),
        ({"loss": "loss", "parameters": ["w", "w"]}, 'the parameter "w" is named twice'),
        ({"loss": "loss", "gamma": 0.9}, "optimizer.gamma is used by the schedules STEP, EXP and INV alone"),
        ({"loss": "loss", "schedule": "exp"}, "optimizer.gamma is 0, must be above 0 for the schedules STEP, EXP and INV"),
        ({"loss": "loss", "schedule": "step", "gamma": 0.5}, "optimizer.decay_every is 0, must be above 0 for the schedule"),
        ({"loss": "loss", "momentum": 0.9}, "optimizer.momentum is used by the method SGD alone"),
        ({"loss": "loss", "method": "sgd", "beta1": 0.9}, "optimizer.beta1 is used by the method ADAM alone"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path, options, message):
    with pytest.raises(stepnet.InvalidArgumentError, match=message):
        stepnet.train_net(*files(tmp_path), **options)


def test_unknown_fields_of_the_optimizer_are_refused(tmp_path):
    schedules = '"fixed", "step", "exp", "inv", "poly" or "cosine"'
    for option, value, shown, values in (
        ("schedule", "linear", "linear", schedules),
        ("schedule", 7, "7", schedules),
        ("method", "adamw", "adamw", '"adam" or "sgd"'),
        ("learning_rate", "high", "high", "a number"),
        ("decay_every", 0.5, "0.5", "a whole number"),
        ("nesterov", "often", "often", "True or False"),
    ):
        with pytest.raises(stepnet.InvalidArgumentError) as raised:
            stepnet.train_net(*files(tmp_path), loss="loss", **{option: value})
        assert str(raised.value) == f"invalid argument: {option} is {shown}; it must be {values}"
    with pytest.raises(stepnet.InvalidArgumentError, match='the optimizer has no option "momentun"; did you mean "momentum"'):
        stepnet.train_net(*files(tmp_path), loss="loss", momentun=1)
    with pytest.raises(TypeError, match="learning_rate is None"):
        stepnet.train_net(*files(tmp_path), loss="loss", learning_rate=None)
    with pytest.raises(TypeError, match="method is 'sgd loss"):
        stepnet.train_net(*files(tmp_path), loss="loss", method="sgd loss: 1")


def test_a_loss_of_nothing_that_is_filled_is_refused(tmp_path):
    net = 'op { type: "AveragedLoss" input: "x" output: "loss" }'
    with pytest.raises(stepnet.InvalidArgumentError, match="depends on none of what is filled"):
        stepnet.train_net(*files(tmp_path, net), loss="loss")


def test_a_loaded_net_has_gradients(tmp_path, batch):
    net = load(tmp_path, NET, INIT)
    assert sorted(net.params) == ["b", "w"]
    _, gradients = loss_and_gradients(net.params, batch)
    outputs, pullback = net.vjp(**batch)
    error = outputs.y - batch["target"]
    found = pullback(y=error / 5)
    assert sorted(found.params) == ["b", "w"]
    assert sorted(found.inputs) == ["target", "x"]
    for name, gradient in found.params.items():
        numpy.testing.assert_allclose(gradient, gradients[name], rtol=1e-4, atol=1e-6)
    assert not found.inputs["target"].any()
    with pytest.raises(stepnet.InvalidArgumentError, match='wrt names "v"'):
        net.vjp(wrt="v", **batch)


def test_a_loaded_net_gives_its_loss_with_gradients(tmp_path, batch):
    net = load(tmp_path, NET.replace('external_output: "y"', 'external_output: "loss"'), INIT)
    expected, gradients = loss_and_gradients(net.params, batch)
    value, found = net.value_and_grad("loss", wrt=("w", "x"), **batch)
    assert value == pytest.approx(expected, rel=1e-5)
    assert (list(found.params), list(found.inputs)) == (["w"], ["x"])
    numpy.testing.assert_allclose(found.params["w"], gradients["w"], rtol=1e-4, atol=1e-6)


def test_a_loaded_net_takes_new_parameters(tmp_path, batch):
    net = load(tmp_path, NET.replace('external_output: "y"', 'external_output: "loss"'), INIT)
    net(**batch)
    net.vjp(**batch)
    new = {name: array + 1 for name, array in net.params.items()}
    with pytest.raises(ValueError, match="read-only"):
        net.params["b"][:] = 1
    net.restore({"b": new["b"]})
    net.restore({"w": new["w"]})
    expected, gradients = loss_and_gradients(new, batch)
    value, found = net.value_and_grad("loss", wrt=new, **batch)
    assert net(**batch).loss == pytest.approx(expected, rel=1e-5)
    assert value == pytest.approx(expected, rel=1e-5)
    for name, gradient in found.params.items():
        numpy.testing.assert_allclose(gradient, gradients[name], rtol=1e-4, atol=1e-6)
        numpy.testing.assert_array_equal(net.params[name], new[name])


def test_a_net_that_keeps_something_has_no_gradients(tmp_path, batch):
    training = stepnet.train_net(*files(tmp_path), loss="loss")
    with pytest.raises(stepnet.InvalidNetError, match="changes what it keeps"):
        training.vjp(**batch)


CELL = """cell dropping(x[D]; h[H], count[1]) {
  size D = 3
  size H = 2
  param w[H, D]
  param u[H, H]
  count = count + 1.0
  h = Tanh(Dropout(x, ratio=0.5) @ w + h @ u) / count
  output h
}
"""


def files_of_cell(tmp_path):
    loss = 'op { type: "SumSqrElements" input: "h" output: "loss" }'
    (tmp_path / "net.pbtxt").write_text(stepnet.expand(CELL, training=True) + loss)
    (tmp_path / "init.pbtxt").write_text(stepnet.expand(CELL, init=True))
    return tmp_path / "net.pbtxt", tmp_path / "init.pbtxt"


def test_initial_states_are_trained_where_they_are_named_alone(tmp_path, random):
    x = random.normal(size=(4, 1, 3)).astype("float32")
    for named, changed in ((), {"w", "u"}), (["w", "h_init"], {"w", "h_init"}):
        training = stepnet.train_net(*files_of_cell(tmp_path), loss="loss", parameters=named)
        before = training.params
        training(x=x)
        assert {name for name, now in training.params.items() if not numpy.array_equal(now, before[name])} == changed
        # What was filled is all that the net needs.
        stepnet.load(tmp_path / "net.pbtxt", init=training.params)(x=x)


def test_learned_initial_states_are_trained(random):
    cell = CELL.replace("count = count", "state h initial=learned\n  count = count")
    loss = 'op { type: "SumSqrElements" input: "h" output: "loss" }'
    training = stepnet.train_net(stepnet.expand(cell) + loss, stepnet.expand(cell, init=True), loss="loss")
    before = training.params
    training(x=random.normal(size=(4, 1, 3)).astype("float32"))
    changed = {name for name, now in training.params.items() if not numpy.array_equal(now, before[name])}
    assert changed == {"w", "u", "h_init"}
    assert repr(training).startswith("<stepnet.TrainingNet ")


def test_a_state_of_the_optimizer_is_no_start(tmp_path, batch):
    training = stepnet.train_net(*files(tmp_path), loss="loss")
    with pytest.raises(stepnet.InvalidArgumentError, match="init has a state of the optimizer, which TrainingNet.restore takes"):
        stepnet.train_net(NET, training.state, loss="loss")


def test_nets_and_what_fills_them_may_be_texts_and_arrays(tmp_path, batch):
    expected = stepnet.load(*files(tmp_path), seed=4)(**batch).y
    assert numpy.array_equal(stepnet.load(NET, INIT, seed=4)(**batch).y, expected)
    params = stepnet.load(*files(tmp_path), seed=4).params
    assert numpy.array_equal(stepnet.load(NET, params)(**batch).y, expected)
    given = {name: value.copy() for name, value in params.items()}
    training = stepnet.train_net(NET, given, loss="loss", method="sgd", learning_rate=0.1)
    training(**batch)
    assert not numpy.array_equal(training.params["w"], params["w"]) and numpy.array_equal(given["w"], params["w"])
    with pytest.raises(stepnet.InvalidArgumentError, match='the input "w" of the net "regression" is missing'):
        stepnet.load(NET, {"b": params["b"]})(**batch)
    with pytest.raises(stepnet.InputOutputError, match="the text of init:1:1: "):
        stepnet.load(NET, "{ w }")


def test_masks_go_on_from_a_state(tmp_path, random):
    x = random.normal(size=(4, 1, 3)).astype("float32")
    training, other = (stepnet.train_net(*files_of_cell(tmp_path), loss="loss", seed=3) for _ in range(2))
    for _ in range(3):
        training(x=x)
    state = training.state
    expected = [training(x=x).loss for _ in range(3)]
    with pytest.raises(stepnet.ShapeMismatchError):
        other(x=x[:, :, :2])  # a run that fails draws nothing
    other.restore(state)
    assert [other(x=x).loss for _ in range(3)] == expected
    with pytest.raises(stepnet.ShapeMismatchError):
        other(x=x[:, :, :2])
    training.restore(other.state)
    assert training(x=x).loss == other(x=x).loss


def test_gradients_of_many_operators_take_time_in_proportion():
    count = 10_000  # of which each waited for a search through all: 45 s
    ops = (f'op {{ type: "Mul" input: "y{k}" input: "w{k}" output: "y{k + 1}" }}' for k in range(count))
    net = stepnet.load(" ".join(ops) + "\n", {f"w{k}": numpy.ones(1, "float32") for k in range(count)})
    begin = time.perf_counter()
    outputs, pullback = net.vjp(y0=numpy.ones(1, "float32"))
    assert pullback(**{f"y{count}": numpy.full(1, 3, "float32")}).params["w7"] == [3]
    assert time.perf_counter() - begin < 20


# The parameter is the number of the iteration: the gradient is -1, the rate 1.
COUNTED = """
op { type: "UniformFill" input: "x" output: "drawn" }
op { type: "Negative" input: "w" output: "negative" }
op { type: "AveragedLoss" input: "negative" output: "loss" }
op { type: "Copy" input: "w" output: "at" }
external_output: "at" external_output: "drawn"
"""


def test_calls_see_all_of_a_state_that_is_restored_or_nothing():
    x = numpy.zeros(4, "float32")
    init = {"w": numpy.zeros(1, "float32")}
    training = stepnet.train_net(COUNTED, init, loss="loss", method="sgd", learning_rate=1)
    start, drawn = training.state, {}
    for k in range(2000):
        out = training(x=x)
        assert out.at == [k]
        drawn[k] = out.drawn.tobytes()
    is_over = threading.Event()

    def work(i):
        try:
            while i > 0 and not is_over.is_set():
                out = training(x=x)
                assert drawn.get(int(out.at[0]), out.drawn.tobytes()) == out.drawn.tobytes()
            for _ in range(3000 if i == 0 else 0):
                training.restore(start)
        finally:
            is_over.set()

    in_threads(work, 3)


def test_an_iteration_that_cannot_be_counted_changes_nothing():
    x = numpy.zeros(4, "float32")
    for method in ("sgd", "adam"):
        training = stepnet.train_net(COUNTED, {"w": numpy.zeros(1, "float32")}, loss="loss", method=method)
        training.restore({"optimizer/iteration": numpy.array([2**63 - 2])})
        training(x=x)
        before = training.state
        with pytest.raises(stepnet.InvalidArgumentError, match="is 9223372036854775807, and Iter cannot count on"):
            training(x=x)
        for name, tensor in training.state.items():
            assert numpy.array_equal(tensor, before[name]), name


@pytest.mark.parametrize("iteration", [-1, -(2**63), 2**63 - 1])
def test_a_state_with_which_every_call_would_fail_is_refused(iteration):
    training = stepnet.train_net(COUNTED, {"w": numpy.zeros(1, "float32")}, loss="loss")
    x = numpy.zeros(4, "float32")
    training(x=x)
    before = training.state
    refuses(
        lambda: training.restore({**before, "w": numpy.ones(1, "float32"), "optimizer/iteration": numpy.array([iteration])}),
        stepnet.InvalidArgumentError,
        f'"optimizer/iteration" is {iteration}; it must be from 0 to 9223372036854775806',
    )
    for name, tensor in training.state.items():
        assert numpy.array_equal(tensor, before[name]), name
    training(x=x)


def test_what_fails_behind_an_iteration_says_that_it_is_done(set_max_memory):
    size = 1_000_000
    net = 'op { type: "AveragedLoss" input: "w" output: "loss" } external_output: "w"'
    training = stepnet.train_net(net, {"w": numpy.ones(size, "float32")}, loss="loss", method="sgd", learning_rate=1)
    training()
    before = stepnet.memory()
    set_max_memory(before.current + size)  # for the iteration, and not for a copy of what it gives
    with pytest.raises(stepnet.OutOfMemoryError, match="; the run itself is done: what the net keeps has changed"):
        training()
    set_max_memory(before.limit)
    assert training.state["optimizer/iteration"] == [2]
    fill = 'op { type: "GivenTensorStringFill" output: "text" arg { name: "values" strings: "a" } }'
    net = f'op {{ type: "AveragedLoss" input: "w" output: "loss" }} {fill} external_output: "text"'
    training = stepnet.train_net(net, {"w": numpy.ones(1, "float32")}, loss="loss", method="sgd", learning_rate=1)
    with pytest.raises(stepnet.TypeMismatchError, match="cannot be an array; the run itself is done"):
        training()


@pytest.mark.parametrize("again", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))])
def test_training_is_copied_and_goes_on(tmp_path, batch, again):
    net = NET.replace('input: "x"', 'input: "kept"', 1)
    net = 'op { type: "Dropout" input: "x" output: "kept" output: "mask" arg { name: "ratio" f: 0.5 } }' + net
    options = {"loss": "loss", "parameters": "w", "learning_rate": 0.05, "seed": 5}
    training = stepnet.train_net(*files(tmp_path, net), **options)
    for _ in range(3):
        training(**batch)
    other = again(training)
    assert isinstance(other, stepnet.TrainingNet) and other.outputs == training.outputs
    assert stepnet.show(other) == stepnet.show(training)
    for _ in range(2):
        assert training(**batch).loss == other(**batch).loss
    for name, tensor in training.state.items():
        assert numpy.array_equal(other.state[name], tensor), name
