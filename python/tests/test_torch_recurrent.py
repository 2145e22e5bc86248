"""What modules in the place of PyTorch's are given, and what they say of what does not fit."""

import numpy
import pytest

import stepnet

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from test_from_torch import assert_same_module  # noqa: E402 - needs torch

import stepnet.torch  # noqa: E402


def test_a_recurrent_module_goes_back_alone():
    theirs = torch.nn.LSTM(5, 4, num_layers=2, dropout=0.25)
    recurrent = stepnet.torch.Recurrent(*stepnet.from_torch(theirs))
    with torch.no_grad():
        getattr(recurrent, "layer1/weight_hh").add_(1)
        theirs.weight_hh_l1.add_(1)
    assert_same_module(stepnet.to_torch(recurrent), theirs)
    assert_same_module(stepnet.to_torch(recurrent.double()), theirs.double())
    zeros = {name: numpy.zeros_like(value) for name, value in stepnet.from_torch(theirs)[1].items()}
    assert stepnet.to_torch(recurrent, zeros).weight_hh_l1.abs().sum() == 0
    with pytest.raises(stepnet.InvalidArgumentError, match="params, the second argument, is missing: lstm has the parameters layer0/weight_ih, "):
        stepnet.to_torch(recurrent.cell)


@pytest.mark.parametrize("kind", ["Module", "Recurrent"])
def test_a_module_goes_back_in_its_mode_with_what_is_frozen(kind):
    module = getattr(stepnet.torch, kind)(stepnet.layers("gru", 5, 4, num_layers=2, dropout=0.5))
    assert stepnet.to_torch(module).training
    getattr(module, "layer1/weight_hh").requires_grad_(False)
    torch.nn.utils.parametrizations.weight_norm(module, "layer0/weight_ih")  # which is none of its parameters then
    with torch.no_grad():
        back = stepnet.to_torch(module.eval())
    assert not back.training
    assert [name for name, param in back.named_parameters() if not param.requires_grad] == ["weight_hh_l1"]
    assert stepnet.to_torch(module.cell, module.cell.init()).training


def test_only_cells_go_back():
    cell = stepnet.layers("gru", 5, 4)
    net = stepnet.load(stepnet.expand(cell), init=cell.init())
    with pytest.raises(stepnet.TypeMismatchError, match="the cell is a Net; .* has made; of a net give the cell that it was exported from"):
        stepnet.to_torch(net, net.params)


def test_parameters_are_not_set_by_the_names_of_pytorch():
    """Which would change nothing."""
    one = stepnet.torch.Recurrent(*stepnet.from_torch(torch.nn.GRU(4, 6)))
    two = stepnet.torch.Recurrent(*stepnet.from_torch(torch.nn.GRU(4, 6, num_layers=2)))
    for value in (torch.zeros(18, 4), torch.nn.Parameter(torch.zeros(18, 4)), None):
        with pytest.raises(AttributeError, match="weight_ih_l0 of gru is its parameter 'weight_ih', .*; assign to module.weight_ih$"):
            one.weight_ih_l0 = value
        with pytest.raises(AttributeError, match=r"parameter 'layer1/weight_ih', .*; call setattr\(module, 'layer1/weight_ih', parameter\)$"):
            two.weight_ih_l1 = value
        with pytest.raises(AttributeError, match="bias of gru is read-only: it follows from the cell; make a module of another one"):
            two.bias = value
    one.weight_ih = torch.nn.Parameter(torch.zeros(18, 4))
    assert one.weight_ih_l0 is one.weight_ih
    one.anything_l0 = 3


@pytest.mark.parametrize("mode, must", [("gru", r"h \[1, 6\]"), ("lstm", r"h \[1, 6\] and c \[1, 6\]")])
def test_states_of_one_sequence_are_told_as_they_are_given(mode, must):
    module = stepnet.torch.Recurrent(stepnet.layers(mode, 4, 6))
    one = torch.zeros(1, 1, 6)
    hx, found = (one, r"\[1, 1, 6\]") if mode == "gru" else ((one, one), r"\[1, 1, 6\], \[1, 1, 6\]")
    with pytest.raises(stepnet.ShapeMismatchError, match=f"hx of {mode} is {found}; it must be {must}, as the input is one sequence, without B"):
        module(torch.zeros(3, 4), hx)
    with pytest.raises(stepnet.ShapeMismatchError, match=rf"hx of {mode} is \[1, 6\].*; it must be h \[1, 2, 6\](?!.*without B)"):
        module(torch.zeros(3, 2, 4), torch.zeros(1, 6) if mode == "gru" else (torch.zeros(1, 6), torch.zeros(1, 6)))


LEAKY = "cell leaky(x[D]; h[D]%s) {\n  size D = 4\n  h = 0.5 * h + %s\n  output h\n  output h last\n}"
CAPTURES = (LEAKY % ("; NAME[S, B, D]", "x + ReduceSum(NAME, axes=[0], keepdims=false)")).replace("= 4", "= 4\n  size S = 3")


@pytest.mark.parametrize(
    "text, options, name",
    [
        (LEAKY % ("", "x"), {"lengths": "n"}, "n"),
        (LEAKY % ("", "x"), {"mask": "counts"}, "counts"),
        (LEAKY % ("", "x"), {"lengths": "n", "layers": 2, "direction": "bidirectional"}, "n"),
        (CAPTURES.replace("NAME", "away"), {}, "away"),
        (CAPTURES.replace("NAME", "lengths"), {}, "lengths"),
    ],
)
def test_a_cell_whose_inputs_no_call_gives_is_refused(text, options, name):
    cell = stepnet.cell(text, **options)
    with pytest.raises(stepnet.InvalidArgumentError, match=f"leaky cannot take the place of layers: no call gives its input '{name}': .* Call it by Module$"):
        stepnet.torch.Recurrent(cell)
    stepnet.torch.Module(cell)


def test_states_that_have_to_be_given_are_hx():
    module = stepnet.torch.Recurrent(stepnet.cell(LEAKY % ("", "x"), carry=True))
    x, start = torch.randn(3, 2, 4), torch.randn(1, 2, 4)
    torch.testing.assert_close(module(x[:1], start)[0], 0.5 * start + x[:1])


def test_a_list_is_no_vector_of_parameters():
    cell = stepnet.layers("gru", 1, 1, dtype="float64")
    vector = [0.0] * 12
    for given, what in ((vector, "a list"), (tuple(vector), "a tuple"), (1.5, "1.5")):
        with pytest.raises(stepnet.TypeMismatchError, match=f"packed: the vector is {what}, no array; it must be one of NumPy"):
            stepnet.packed.split(given, cell)
    with pytest.raises(stepnet.TypeMismatchError, match="packed: weight_ih is a list, no array"):
        stepnet.packed.join({**cell.init(), "weight_ih": [[0.0]] * 3}, cell)
    with pytest.raises(stepnet.ShapeMismatchError, match=r"packed: the vector is float64 \[11\]; of gru"):
        stepnet.packed.split(numpy.zeros(11), cell)
