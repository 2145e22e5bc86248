"""Where no operator names itself in an error of memory, it says which array there is no memory for."""

import numpy
import pytest

import stepnet

SIZE = 1_000_000
LIMIT = 4 * SIZE - 1  # less than an array of so many float32 takes, so that nothing is freed for one


def net_of(*operators):
    """A net of operators, as "Tanh x y", whose outputs are y and z."""
    ops = (operator.split() for operator in operators)
    text = " ".join(f'op {{ type: "{kind}" input: "{of}" output: "{gives}" }}' for kind, of, gives in ops)
    return f'{text} external_output: "y"' + (' external_output: "z"' if any(o.endswith("z") for o in operators) else "")


@pytest.fixture
def lacks(set_max_memory):
    """Calls what needs more memory than there is, and looks at what the error says that it is for."""

    def lacks(call, what):
        before = stepnet.memory().limit
        set_max_memory(LIMIT)
        with pytest.raises(stepnet.OutOfMemoryError, match=f"there is no memory for {what}: a tensor float32 .* needs"):
            call()
        set_max_memory(before)

    return lacks


def test_inputs_that_the_net_overwrites(lacks):
    net, x = stepnet.load(net_of("Relu x x", "Copy x y")), numpy.ones(SIZE, "float32")
    lacks(lambda: net(x=x), 'a copy of the input "x"')


def test_outputs_that_are_what_was_given(lacks):
    net = stepnet.load('op { type: "Tanh" input: "x" output: "z" } external_output: "x"')
    x = numpy.ones(SIZE, "float32")
    net(x=x)
    lacks(lambda: net(x=x), 'a copy of the output "x"')


def test_gradients_of_outputs_that_nobody_gives(lacks):
    net, x = stepnet.load(net_of("Copy x y", "Copy x z")), numpy.ones(SIZE, "float32")
    _, pullback = net.vjp(x=x)
    lacks(lambda: pullback(y=x), 'the gradient of the output "z"')


def test_gradients_that_are_zeros(lacks):
    net, x = stepnet.load(net_of("StopGradient x y")), numpy.ones(SIZE, "float32")
    _, pullback = net.vjp(x=x)
    lacks(lambda: pullback(y=x), 'the gradient of "x"')


def test_parameters_that_are_read(lacks):
    text = 'op { type: "AveragedLoss" input: "w" output: "loss" } external_output: "loss"'
    w = numpy.ones(SIZE, "float32")
    training = stepnet.train_net(text, {"w": w}, loss="loss", method="sgd", learning_rate=1)
    lacks(lambda: training.params, 'a copy of the blob "w"')


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_parameters_in_files(lacks, tmp_path, suffix):
    path = tmp_path / f"w{suffix}"
    stepnet.save_params({"w": numpy.ones(SIZE, "float32")}, path)
    lacks(lambda: stepnet.load_params(path), 'the tensor "w"')
