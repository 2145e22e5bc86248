"""States of models: what modules with cells load, and what they say that they hold."""

import numpy
import pytest
from conftest import refuses

import stepnet

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch import nn  # noqa: E402 - needs torch

import stepnet.torch  # noqa: E402


class Tagger(nn.Module):
    """A model with a recurrent module in it."""

    def __init__(self, **options):
        super().__init__()
        self.encoder = nn.Module()
        self.encoder.lstm = nn.LSTM(5, 4, **options)
        self.readout = nn.Linear(4, 2)


@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True, "proj_size": 3}])
def test_a_model_reads_its_state_from_before_the_module_was_in_it(options):
    old, model = Tagger(**options), Tagger(**options)
    model.encoder.lstm = stepnet.torch.Recurrent(*stepnet.from_torch(model.encoder.lstm))
    x = torch.randn(7, 2, 5)
    model.load_state_dict(old.state_dict())
    torch.testing.assert_close(model.encoder.lstm(x)[0], old.encoder.lstm(x)[0])
    again = Tagger(**options)
    again.encoder.lstm = stepnet.torch.Recurrent(*stepnet.from_torch(again.encoder.lstm))
    again.load_state_dict(model.state_dict())  # by its own names
    assert torch.equal(again.encoder.lstm(x)[0], model.encoder.lstm(x)[0])


def test_the_state_of_a_larger_model_is_refused_with_where_it_has_the_parameters():
    state = Tagger().state_dict()
    module = stepnet.torch.Recurrent(stepnet.layers("lstm", 5, 4))
    with pytest.raises(RuntimeError, match=r"Missing key.*\n.*Unexpected key.*\n.*All parameters of lstm are there behind") as raised:
        module.load_state_dict(state)
    advice = str(raised.value).partition(": give ")[2]
    assert advice.startswith("{name.removeprefix('encoder.lstm.')")
    module.load_state_dict(eval(advice.strip(), {"state_dict": state}))
    assert torch.equal(module.weight_hh, state["encoder.lstm.weight_hh_l0"])
    with pytest.raises(stepnet.InvalidArgumentError, match='"encoder.lstm.weight_ih_l0" for "weight_ih": stepnet.load_params'):
        stepnet.torch.Recurrent(module.cell, state)
    with pytest.raises(RuntimeError, match="Unexpected key.*weight_ih_l1"):
        module.load_state_dict(nn.LSTM(5, 4, num_layers=2).state_dict())
    module.load_state_dict({}, strict=False)


@pytest.mark.parametrize("make", [stepnet.torch.Module, stepnet.torch.Recurrent])
def test_names_that_no_file_has_are_told_as_others_are(make):
    cell = stepnet.layers("gru", 5, 4)
    strange = {"\ud800": torch.zeros(1)}
    refuses(lambda: make(cell, {**cell.init(), **strange}), stepnet.InvalidArgumentError, r"gru has no parameter '\ud800'")
    refuses(lambda: stepnet.to_torch(cell, {**cell.init(), **strange}), stepnet.InvalidArgumentError, r"no parameters \ud800; they")
    module = make(cell)
    with pytest.raises(RuntimeError, match=r"Unexpected key.*\ud800"):
        module.load_state_dict({**module.state_dict(), **strange})


@pytest.mark.parametrize("make", [stepnet.torch.Module, stepnet.torch.Recurrent])
def test_a_module_says_its_dtype_as_it_is_now(make):
    module = make(stepnet.layers("lstm", 5, 4))
    assert repr(module).endswith("-> h, h_last, c_last in float32>)")
    assert repr(module.double()).endswith("-> h, h_last, c_last in float64>)")


@pytest.mark.parametrize("use", ["call", "call without gradients", "reset_parameters"])
def test_a_parameter_that_is_none_is_named(lstm, use):
    module = stepnet.torch.Module(lstm)
    module.b = None
    assert "float32" in repr(module)
    uses = {
        "call": lambda: module(torch.zeros(2, 3, 5)),
        "call without gradients": torch.no_grad()(lambda: module(torch.zeros(2, 3, 5))),
        "reset_parameters": module.reset_parameters,
    }
    refuses(uses[use], stepnet.TypeMismatchError, "the parameter 'b' of lstm is None; it must be a tensor: assign to module.b, of zeros for a bias")


@pytest.mark.parametrize("kind", ["Module", "Recurrent"])
def test_the_cell_of_a_module_stays(kind):
    """Calls that have run once would go on with the one before, in their mode."""
    make = getattr(stepnet.torch, kind)
    module = make(stepnet.layers("gru", 5, 4))
    cell, other = module.cell, module.cell.with_options(threads=1)
    for given in (other, stepnet.layers("gru", 5, 4, num_layers=2), None):
        with pytest.raises(AttributeError, match=rf"the cell of a module of gru stays.*: stepnet.torch.{kind}\(cell, module.state_dict\(\)\)$"):
            module.cell = given
    assert module.cell is cell
    x = torch.randn(3, 2, 5)
    again = make(other, module.state_dict())
    assert torch.equal(again(x)[0], module(x)[0])


@pytest.mark.parametrize("kind", ["Module", "Recurrent"])
@pytest.mark.parametrize("params", [None, "arrays", "tensors"])
def test_a_module_is_made_on_meta_as_others_are(kind, params):
    make = getattr(stepnet.torch, kind)
    cell = stepnet.layers("lstm", 5, 4)
    values = cell.init()
    given = {None: None, "arrays": values, "tensors": {name: torch.from_numpy(each) for name, each in values.items()}}[params]
    with torch.device("meta"):
        module = make(cell, given)
        module.reset_parameters()
        there = stepnet.to_torch(cell, values)
    assert all(each.is_meta for each in module.parameters())
    assert torch.equal(there.weight_hh_l0, torch.from_numpy(values["weight_hh"]))
    x, expected = torch.randn(3, 2, 5), make(cell, values)
    module.load_state_dict(expected.state_dict(), assign=True)
    with torch.device("meta"):  # a call asks for no other device than that of what it is given
        assert torch.equal(module(x)[0], expected(x)[0])


@pytest.mark.parametrize("kind", ["Module", "Recurrent"])
def test_attributes_that_parameters_of_layers_are_not_called(kind):
    module = getattr(stepnet.torch, kind)(stepnet.layers("gru", 5, 4, num_layers=2))
    theirs = "; its layers have 'layer0/weight_hh', 'layer1/weight_hh': call getattr(module, 'layer0/weight_hh')"
    for name in ("weight_hh", "weigth_hh"):
        with pytest.raises(AttributeError) as raised:
            getattr(module, name)
        assert str(raised.value) == f"'{kind}' object has no attribute '{name}'{theirs}"
    with pytest.raises(AttributeError, match="no attribute 'anything'$"):
        module.anything
    with pytest.raises(AttributeError, match="no attribute 'weight'$"):
        getattr(stepnet.torch, kind)(stepnet.layers("gru", 5, 4)).weight


DOTTED = "cell dotted(x[D]; h[H]) {\n  size D = 5\n  size H = 4\n  param in.w[H, D]\n  param in.b[H]\n  h = Tanh(x @ in.w + in.b + h)\n  output h\n}"


def test_parameters_are_taken_by_the_names_of_the_module(tmp_path):
    """Which has no dots in them."""
    cell = stepnet.cell(DOTTED)
    module = stepnet.torch.Module(cell)
    state = module.state_dict()
    assert list(state) == ["in_w", "in_b"] and list(cell.init()) == ["in.w", "in.b"]
    own = {"in.w": state["in_w"], "in.b": state["in_b"]}
    x = torch.randn(3, 2, 5)
    expected = cell(own, x=x).h
    assert numpy.array_equal(cell(state, x=x).h, expected)
    assert numpy.array_equal(stepnet.torch.Module(cell, state)(x).h.detach(), expected)
    stepnet.save_params(state, tmp_path / "state.safetensors")
    loaded = stepnet.load_params(tmp_path / "state.safetensors", cell=cell)
    assert list(loaded) == ["in.w", "in.b"] and numpy.array_equal(cell(loaded, x=x).h, expected)
    _, gradients = cell.value_and_grad(state, "h", x=x)
    assert list(gradients.params) == ["in.w", "in.b"]
    assert cell.explain(state, x=x) == cell.explain(own, x=x)
    stepnet.explain(cell, {"in_b": state["in_b"]})
    twice = 'the parameter "in.b" of dotted is given twice, also as "in_b"'
    for use in (lambda given: cell(given, x=x), lambda given: stepnet.torch.Module(cell, given)):
        refuses(lambda: use({**state, **own}), stepnet.InvalidArgumentError, "is given twice, also as")  # noqa: B023
        refuses(lambda: use({**own, "in_b": own["in.b"]}), stepnet.InvalidArgumentError, twice)  # noqa: B023
        refuses(lambda: use({**state, "in_c": x}), stepnet.InvalidArgumentError, "dotted has no parameter")  # noqa: B023


def test_a_name_of_the_cell_comes_before_that_of_the_module():
    cell = stepnet.cell(DOTTED.replace("in.b", "in_w"))
    params = cell.init()
    assert cell._by_own_names(params) == params
    refuses(lambda: cell({"in_w": params["in_w"]}, x=numpy.zeros((1, 1, 5), "float32")), stepnet.InvalidArgumentError, 'the parameter "in.w" of dotted is missing')
