"""from_torch, to_torch and stepnet.torch.Recurrent, against the modules of PyTorch that they stand for."""

import itertools
import pickle
import subprocess
import sys

import numpy
import pytest
from conftest import ROOT

import stepnet
from stepnet.layers import layers_of

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch import nn  # noqa: E402 - needs torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence  # noqa: E402

import stepnet.torch  # noqa: E402

KINDS = {
    "rnn_tanh": lambda **options: nn.RNN(5, 4, **options),
    "rnn_relu": lambda **options: nn.RNN(5, 4, nonlinearity="relu", **options),
    "lstm": lambda **options: nn.LSTM(5, 4, **options),
    "lstm with projection": lambda **options: nn.LSTM(5, 4, proj_size=3, **options),
    "gru": lambda **options: nn.GRU(5, 4, **options),
}
CELLS = {
    "RNNCell": lambda **options: nn.RNNCell(5, 4, nonlinearity="relu", **options),
    "LSTMCell": lambda **options: nn.LSTMCell(5, 4, **options),
    "GRUCell": lambda **options: nn.GRUCell(5, 4, **options),
}
DTYPES = {torch.float32: 1e-6, torch.float64: 1e-12}  # the greatest difference, relative to the greatest value
OPTIONS = [
    dict(),
    dict(bias=False),
    dict(num_layers=3, batch_first=True),
    dict(bidirectional=True),
    dict(num_layers=2, bidirectional=True),
    dict(num_layers=2, bidirectional=True, bias=False, batch_first=True),
]


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(7)


def assert_equal(found, expected, dtype, times=1):
    assert found.shape == expected.shape and found.dtype == dtype
    difference = (found - expected).abs().max() / expected.abs().max().clamp_min(1e-3)
    assert difference.item() <= times * DTYPES[dtype]


def assert_same_gradients(module, theirs, dtype):
    names = layers_of(module.cell).torch_names()
    for name, parameter in module.named_parameters():
        # They are sums over steps, batch and layers, of which each adds the terms in an order of its own.
        assert_equal(parameter.grad, getattr(theirs, names[name]).grad, dtype, times=2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_values_and_gradients_are_those_of_the_module(kind, options, dtype):
    theirs = KINDS[kind](**options, dtype=dtype)
    module = stepnet.torch.Module(*stepnet.from_torch(theirs))
    x = torch.randn((3, 7, 5) if theirs.batch_first else (7, 3, 5), dtype=dtype)
    x, y = x.clone().requires_grad_(), x.requires_grad_()
    out, (expected, _) = module(x), theirs(y)
    assert_equal(out.h, expected, dtype)
    weights = torch.randn_like(expected)
    (out.h * weights).sum().backward()
    (expected * weights).sum().backward()
    assert_equal(x.grad, y.grad, dtype)
    assert_same_gradients(module, theirs, dtype)


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("bias", [True, False])
def test_a_cell_of_pytorch_runs_over_sequences(kind, bias):
    theirs = CELLS[kind](bias=bias, dtype=torch.float64)
    cell, params = stepnet.from_torch(theirs)
    x = torch.randn(6, 2, 5, dtype=torch.float64)
    state, every = None, []
    for step in x:
        state = theirs(step, state)
        every.append(state[0] if isinstance(state, tuple) else state)
    assert_equal(torch.from_numpy(cell(params, x=x).h), torch.stack(every), torch.float64)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_the_way_back_gives_the_same_module(kind, options):
    for lengths, dropout in itertools.product((False, True), (0.0, 0.3 if "num_layers" in options else 0.0)):
        theirs = KINDS[kind](**options, dropout=dropout, dtype=torch.float64)
        assert_same_module(stepnet.to_torch(*stepnet.from_torch(theirs, lengths=lengths)), theirs)


@pytest.mark.parametrize("kind", CELLS)
def test_the_way_back_gives_the_same_cell(kind):
    for bias in (True, False):
        theirs = CELLS[kind](bias=bias)
        assert_same_module(stepnet.to_torch(*stepnet.from_torch(theirs)), theirs)


def assert_same_module(found, expected):
    assert type(found) is type(expected) and repr(found) == repr(expected)
    assert list(found.state_dict()) == list(expected.state_dict())
    for name, value in expected.state_dict().items():
        assert torch.equal(found.state_dict()[name], value) and found.state_dict()[name].dtype == value.dtype


def test_what_was_trained_here_goes_back():
    module = stepnet.torch.Module(*stepnet.from_torch(nn.GRU(5, 4, num_layers=2)))
    x = torch.randn(7, 3, 5)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    module(x).h.square().sum().backward()
    optimizer.step()
    assert_equal(stepnet.to_torch(module.cell, module.state_dict())(x)[0], module(x).h, torch.float32)
    module.double()
    back = stepnet.to_torch(module.cell, module.state_dict())
    assert back.weight_ih_l0.dtype == torch.float64


def test_steps_of_training_are_the_same_ones():
    theirs = nn.LSTM(5, 4, dtype=torch.float64)
    module = stepnet.torch.Module(*stepnet.from_torch(theirs))
    x = torch.randn(7, 3, 5, dtype=torch.float64)
    for model, output in ((module, lambda: module(x).h), (theirs, lambda: theirs(x)[0])):
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(5):
            optimizer.zero_grad()
            output().square().sum().backward()
            optimizer.step()
    assert_equal(module(x).h, theirs(x)[0], torch.float64)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_the_packed_vector_has_all_weights_before_all_biases(kind, options):
    theirs = KINDS[kind](**options)
    suffixes = [f"_l{k}{way}" for k in range(theirs.num_layers) for way in ["", "_reverse"][: 1 + theirs.bidirectional]]
    of_kind = [["weight_ih", "weight_hh", "weight_hr"], ["bias_ih", "bias_hh"]]
    names = [name + suffix for kinds in of_kind for suffix in suffixes for name in kinds]
    state = theirs.state_dict()
    vector = torch.cat([state[name].flatten() for name in names if name in state]).numpy()
    cell, params = stepnet.from_torch(theirs)
    assert numpy.array_equal(stepnet.packed.join(params, cell), vector)
    assert_same_module(stepnet.to_torch(cell, stepnet.packed.split(vector, cell)), theirs)


def test_parameters_are_copies():
    theirs = nn.GRU(5, 4)
    _, params = stepnet.from_torch(theirs)
    before = {name: array.copy() for name, array in params.items()}
    with torch.no_grad():
        theirs.weight_ih_l0.zero_()
    assert all(numpy.array_equal(params[name], before[name]) for name in params)


def test_dropout_drops_between_layers_in_training_alone():
    theirs = nn.RNN(64, 64, num_layers=2, nonlinearity="relu", bias=False, dropout=0.25)
    with torch.no_grad():
        for name, weight in theirs.named_parameters():
            weight.copy_(torch.eye(64) if "_ih_" in name else torch.zeros(64, 64))
    module = stepnet.torch.Module(*stepnet.from_torch(theirs))
    x = torch.rand(20, 8, 64) + 1
    ratio = module(x).h / x  # the second layer hands on what the first one does
    kept = ratio > 0
    torch.testing.assert_close(ratio[kept], torch.full((int(kept.sum()),), 1 / 0.75))
    assert abs(kept.float().mean() - 0.75) < 0.02
    assert torch.equal(module.eval()(x).h, x)


def test_lengths_give_what_packed_sequences_give():
    theirs = nn.LSTM(5, 4, num_layers=2, bidirectional=True, dtype=torch.float64)
    module = stepnet.torch.Module(*stepnet.from_torch(theirs, lengths=True))
    lengths = torch.tensor([4, 7, 1])
    x = torch.randn(7, 3, 5, dtype=torch.float64)
    x, y = x.clone().requires_grad_(), x.requires_grad_()
    out = module(x, lengths=lengths)
    packed, (h, c) = theirs(pack_padded_sequence(y, lengths, enforce_sorted=False))
    expected, _ = pad_packed_sequence(packed)
    assert_equal(out.h, expected, torch.float64)  # zeros behind the ends included
    assert_equal(out.h_last, torch.cat(list(h[2:]), -1)[None], torch.float64)
    assert_equal(out["layer0/c_last"], torch.cat(list(c[:2]), -1)[None], torch.float64)
    weights = torch.randn_like(expected)
    (out.h * weights).sum().backward()
    (expected * weights).sum().backward()
    assert_equal(x.grad, y.grad, torch.float64)
    assert_same_gradients(module, theirs, torch.float64)


def test_importing_the_package_does_not_import_pytorch():
    subprocess.run([sys.executable, "-c", "import stepnet, sys; assert 'torch' not in sys.modules"], check=True)


class MyLSTM(nn.LSTM):
    pass


def with_hook(module, register):
    getattr(module, register)(lambda *_: None)
    return module


def with_forward(module):
    module.forward = lambda x: x
    return module


def with_weight(module, value):
    module.weight_hh_l0 = value
    return module


@pytest.mark.parametrize(
    "make, error, message",
    [
        (lambda: MyLSTM(3, 4), stepnet.TypeMismatchError, "is given MyLSTM; it must be an RNN, .*It is derived from LSTM"),
        (lambda: nn.Linear(3, 4), stepnet.TypeMismatchError, "is given Linear; .*give the recurrent modules in it one by"),
        (lambda: 3, stepnet.TypeMismatchError, "is given int; it must be an RNN, LSTM, GRU, RNNCell, LSTMCell or GRUCell"),
        (lambda: torch.compile(nn.GRU(3, 4)), stepnet.TypeMismatchError, "of a compiled module give _orig_mod"),
        (
            lambda: nn.utils.parametrizations.weight_norm(nn.GRU(3, 4), "weight_hh_l0"),
            stepnet.TypeMismatchError,
            "is given ParametrizedGRU; .*remove_parametrizations",
        ),
        (
            lambda: with_hook(nn.GRU(3, 4), "register_forward_hook"),
            stepnet.InvalidArgumentError,
            "the GRU has forward_hooks, which a cell cannot call; remove them",
        ),
        (
            lambda: with_hook(nn.LSTMCell(3, 4), "register_forward_pre_hook"),
            stepnet.InvalidArgumentError,
            "the LSTMCell has forward_pre_hooks",
        ),
        (
            lambda: with_hook(nn.RNN(3, 4), "register_full_backward_hook"),
            stepnet.InvalidArgumentError,
            "the RNN has backward_hooks",
        ),
        (lambda: with_forward(nn.GRU(3, 4)), stepnet.InvalidArgumentError, "the GRU has a forward of its own"),
        (
            lambda: with_weight(nn.GRU(3, 4), nn.Parameter(torch.zeros(4, 4))),
            stepnet.InvalidArgumentError,
            r"weight_hh_l0 of GRU is \[4, 4\]; it must be a tensor \[12, 4\], as the module's sizes say",
        ),
        (
            lambda: with_weight(nn.GRU(3, 4), None),
            stepnet.InvalidArgumentError,
            "weight_hh_l0 of GRU is None",
        ),
        (lambda: nn.GRU(3, 4, device="meta"), stepnet.InvalidArgumentError, "without values, on meta"),
        (lambda: nn.LSTM(3, 4, 2, dropout=1.0), stepnet.InvalidArgumentError, "from_torch: LSTM: dropout is 1.0; it must be"),
        (
            lambda: nn.LSTM(3, 4, dtype=torch.bfloat16),
            stepnet.TypeMismatchError,
            r"parameters of LSTM are torch.bfloat16; .* call float\(\) or double\(\)",
        ),
        (
            lambda: with_weight(nn.GRU(3, 4), nn.Parameter(torch.zeros(12, 4, dtype=torch.float64))),
            stepnet.TypeMismatchError,
            "parameters of GRU are torch.float32, torch.float64",
        ),
    ],
)
def test_what_a_cell_cannot_be_is_refused(make, error, message):
    with pytest.raises(error, match=message):
        stepnet.from_torch(make())


def test_what_no_module_is_is_refused():
    cell, params = stepnet.from_torch(nn.LSTM(3, 4))
    changed = stepnet.cell(cell.text.replace("Tanh(c)", "c"))
    with pytest.raises(stepnet.InvalidArgumentError, match="the cell lstm does not compute what layers of PyTorch do"):
        stepnet.to_torch(changed, params)
    with pytest.raises(stepnet.ShapeMismatchError, match=r"the parameter bias_ih is float32 \[8\]; it must be \[16\]"):
        stepnet.to_torch(cell, {**params, "bias_ih": params["bias_ih"][:8]})
    with pytest.raises(stepnet.TypeMismatchError, match="they are weight_ih torch.float32, .*bias_ih torch.float64"):
        stepnet.to_torch(cell, {**params, "bias_ih": params["bias_ih"].astype("float64")})
    with pytest.raises(stepnet.InvalidArgumentError, match="parameters are missing: bias_ih; there are no parameters b;"):
        stepnet.to_torch(cell, {("b" if name == "bias_ih" else name): value for name, value in params.items()})


def assert_same_call(found, expected):
    if isinstance(expected, tuple):
        assert type(found) is type(expected) and len(found) == len(expected)
        for one, other in zip(found, expected):
            assert_same_call(one, other)
    elif expected is None or expected.dtype == torch.int64:
        assert found is expected or torch.equal(found, expected)
    else:
        assert_equal(found, expected, torch.float64)


@pytest.mark.parametrize("options", [OPTIONS[0], *OPTIONS[2:5]], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_recurrent_is_called_as_the_module_is(kind, options):
    theirs = KINDS[kind](**options, dtype=torch.float64)
    ours = stepnet.torch.Recurrent(*stepnet.from_torch(theirs, lengths=True))
    x = torch.randn((3, 7, 5) if theirs.batch_first else (7, 3, 5), dtype=torch.float64)
    rows = theirs.num_layers * (1 + theirs.bidirectional)
    hx = torch.randn(rows, 3, theirs.proj_size or 4, dtype=torch.float64)
    if isinstance(theirs, nn.LSTM):
        hx = (hx, torch.randn(rows, 3, 4, dtype=torch.float64))
    by_length = pack_padded_sequence(x, [7, 4, 4], batch_first=theirs.batch_first)
    shuffled = pack_padded_sequence(x, [5, 4, 7], batch_first=theirs.batch_first, enforce_sorted=False)
    for given in ((x,), (x, hx), (by_length,), (by_length, hx), (shuffled,), (shuffled, hx)):
        assert_same_call(ours(*given), theirs(*given))
    one = torch.randn(7, 5, dtype=torch.float64)
    of_one = tuple(state[:, 1] for state in hx) if isinstance(hx, tuple) else hx[:, 1]
    assert_same_call(ours(one), theirs(one))
    assert_same_call(ours(one, of_one), theirs(one, of_one))


def test_recurrent_has_gradients_of_states():
    theirs = nn.LSTM(5, 4, num_layers=2, dtype=torch.float64)
    ours = stepnet.torch.Recurrent(*stepnet.from_torch(theirs))
    gradients = []
    x, h, c = (torch.randn(*shape, dtype=torch.float64) for shape in ((7, 3, 5), (2, 3, 4), (2, 3, 4)))
    for module in (ours, theirs):
        given = [each.clone().requires_grad_() for each in (x, h, c)]
        output, (h_n, c_n) = module(given[0], (given[1], given[2]))
        (output.sum() + h_n.square().sum() + c_n.square().sum()).backward()
        gradients.append([each.grad for each in given])
    for found, expected in zip(*gradients):
        assert_equal(found, expected, torch.float64)


def test_recurrent_takes_any_cell_with_states_and_their_ends(cells):
    module = stepnet.torch.Recurrent(stepnet.cell(cells / "layer_norm_lstm.cell", D=5, H=4))
    output, (h, c) = module(torch.randn(7, 3, 5))
    assert torch.equal(output[-1:], h) and c.shape == (1, 3, 4)
    again, _ = module(torch.randn(2, 3, 5), (h, c))
    assert again.shape == (2, 3, 4)


def test_what_recurrent_cannot_do_is_told(cells):
    gru = (cells / "gru.cell").read_text()
    with pytest.raises(stepnet.InvalidArgumentError, match="gru cannot take the place of layers: it does not give h_last"):
        stepnet.torch.Recurrent(stepnet.cell(gru.replace("  output h last\n", "")))
    renamed = stepnet.cell(gru.replace("output h last", "output h last as end"))
    with pytest.raises(stepnet.InvalidArgumentError, match="write `output STATE last`, without another name behind `as`"):
        stepnet.torch.Recurrent(renamed)
    text = "cell c(x[D]; past[D]) { size D = 4; past = x; output past; output past last; %s }"
    other_sizes = stepnet.cell(text % "option layers = 2; option direction = bidirectional")
    with pytest.raises(stepnet.InvalidArgumentError, match=r"its state past is \[1, B, 4\] in one layer and \[1, B, 8\] in"):
        stepnet.torch.Recurrent(other_sizes)
    with pytest.raises(stepnet.InvalidArgumentError, match=r"past starts from several rows, \[2, B, 4\]; PyTorch's states have"):
        stepnet.torch.Recurrent(stepnet.cell(text % "state past window=2"))
    module = stepnet.torch.Recurrent(*stepnet.from_torch(nn.LSTM(5, 4)))
    x = torch.randn(7, 3, 5)
    with pytest.raises(stepnet.TypeMismatchError, match=r"is a PackedSequence, but it has no lengths; .*lengths=True"):
        module(pack_padded_sequence(x, [7, 4, 4]))
    with pytest.raises(stepnet.ShapeMismatchError, match=r"hx of lstm is \[1, 3, 4\]; it must be h \[1, 3, 4\] and c"):
        module(x, torch.zeros(1, 3, 4))
    with pytest.raises(stepnet.ShapeMismatchError, match=r"hx of lstm is \[2, 3, 4\], \[1, 3, 4\]; it must be h"):
        module(x, (torch.zeros(2, 3, 4), torch.zeros(1, 3, 4)))
    with pytest.raises(stepnet.ShapeMismatchError, match=r"hx of lstm is \[1, 2, 4\], "):
        module(x, (torch.zeros(1, 2, 4), torch.zeros(1, 3, 4)))
    with pytest.raises(stepnet.ShapeMismatchError, match=r"hx of lstm is \[\], \[1, 4\]; it must be h \[1, 4\] and c \[1, 4\], as the input is one"):
        module(x[:, 0], (torch.zeros(()), torch.zeros(1, 4)))
    module = stepnet.torch.Recurrent(*stepnet.from_torch(nn.GRU(5, 4), lengths=True))
    packed = pack_padded_sequence(x, [4, 7, 4], enforce_sorted=False)
    for state in (torch.zeros(()), torch.zeros(4), torch.zeros(1, 2, 4)):
        with pytest.raises(stepnet.ShapeMismatchError, match=r"hx of gru is .*; it must be h \[1, 3, 4\]"):
            module(packed, state)
    with pytest.raises(stepnet.TypeMismatchError, match="hx of gru has an ndarray"):
        module(packed, numpy.zeros((1, 3, 4)))


def test_states_of_another_shape_are_refused():
    module = stepnet.torch.Recurrent(*stepnet.from_torch(nn.LSTM(5, 4)))
    x = torch.randn(7, 3, 5)
    for shape in ([1, 4], [1, 1, 4], [1, 3, 5], [2, 3, 4]):
        with pytest.raises(stepnet.ShapeMismatchError, match=r"it must be h \[1, 3, 4\] and c \[1, 3, 4\]"):
            module(x, (torch.zeros(shape), torch.zeros(shape)))


def test_what_is_for_one_step_takes_no_place_of_layers():
    with pytest.raises(stepnet.InvalidArgumentError, match="gru_cell is that of a module for one step"):
        stepnet.torch.Recurrent(*stepnet.from_torch(nn.GRUCell(5, 4)))


def test_outputs_may_be_written_to_as_those_of_the_module():
    for theirs in (nn.LSTM(5, 4), nn.GRU(5, 4)):
        module = stepnet.torch.Recurrent(*stepnet.from_torch(theirs))
        output, last = module(torch.randn(7, 3, 5))
        h = last[0] if isinstance(last, tuple) else last
        assert not numpy.may_share_memory(output.detach().numpy(), h.detach().numpy())
        h.detach_()
        before = output.detach().clone()
        h.zero_()
        assert torch.equal(output, before)


ATTRIBUTES = "input_size hidden_size num_layers bidirectional batch_first mode bias dropout proj_size".split()


@pytest.mark.parametrize(
    "theirs",
    [
        nn.GRU(5, 4, num_layers=2, bidirectional=True, batch_first=True),
        nn.LSTM(5, 4, num_layers=3, dropout=0.25, proj_size=2),
        nn.LSTM(5, 4, bidirectional=True, bias=False),
        pytest.param(nn.LSTM(5, 4, dropout=0.25), marks=pytest.mark.filterwarnings("ignore:dropout option adds dropout")),
        nn.RNN(5, 4, nonlinearity="relu"),
        nn.RNN(5, 4, num_layers=2),
    ],
    ids=str,
)
def test_recurrent_has_what_models_read_of_the_module(theirs):
    module = stepnet.torch.Recurrent(*stepnet.from_torch(theirs))
    for name in ATTRIBUTES:
        assert getattr(module, name) == getattr(theirs, name), name
        assert type(getattr(module, name)) is type(getattr(theirs, name)), name
    for name, value in theirs.named_parameters():
        assert isinstance(getattr(module, name), nn.Parameter) and torch.equal(getattr(module, name), value), name
    for ours, expected in zip(module.all_weights, theirs.all_weights):
        assert len(ours) == len(expected) and all(map(torch.equal, ours, expected))
    assert len(module.all_weights) == len(theirs.all_weights)
    assert not hasattr(module, "weight_ih_l7") and not hasattr(module, "nope")
    if isinstance(theirs, nn.RNN):
        assert module.nonlinearity == theirs.nonlinearity
    else:
        with pytest.raises(AttributeError, match=f"a module of {theirs.mode.lower()} has no nonlinearity: that is of an RNN"):
            module.nonlinearity
    assert repr(stepnet.to_torch(module.cell, module.state_dict())) == repr(theirs)
    module.flatten_parameters()
    again = pickle.loads(pickle.dumps(module))
    assert again.mode == theirs.mode and torch.equal(again.weight_hh_l0, theirs.weight_hh_l0)


def test_dropout_of_one_layer_is_that_of_the_module_alone():
    """Of more layers the cell's own option says it."""
    with pytest.warns(UserWarning, match="dropout is between layers, and there is one: it does nothing"):
        cell = stepnet.layers("gru", 5, 4, dropout=0.25)
    assert (layers_of(cell).dropout, layers_of(cell.with_options(layers=2)).dropout) == (0.25, 0.0)
    assert layers_of(cell.with_options(layers=2, dropout=0.5)).dropout == 0.5


def test_recurrent_of_another_cell_has_no_options_of_layers():
    module = stepnet.torch.Recurrent(stepnet.cell(ROOT / "examples/cells/lstm.cell", D=5, H=4))
    assert (module.input_size, module.hidden_size, module.num_layers, module.batch_first) == (5, 4, 1, False)
    assert not hasattr(module, "mode")
    with pytest.raises(AttributeError, match="a module of lstm has no dropout: that is of cells that stepnet.layers and from"):
        module.dropout
    with pytest.raises(AttributeError):
        module.dropout = 0.5  # which would change nothing


def test_new_modules_draw_numbers_of_their_own():
    cell = stepnet.layers("lstm", 5, 4, num_layers=2, dropout=0.5)
    torch.manual_seed(3)
    first, second = stepnet.torch.Recurrent(cell), stepnet.torch.Recurrent(cell)
    torch.manual_seed(3)
    again = stepnet.torch.Recurrent(cell)
    x = torch.ones(7, 3, 5)
    assert not torch.equal(next(first.parameters()), next(second.parameters()))
    assert torch.equal(next(first.parameters()), next(again.parameters()))
    torch.manual_seed(4)
    drawn = first(x)[0]
    torch.manual_seed(4)
    assert torch.equal(drawn, again(x)[0])
    second.load_state_dict(first.state_dict())
    assert not torch.equal(first(x)[0], second(x)[0])


def test_parameters_that_do_not_fit_are_refused():
    cell, params = stepnet.from_torch(nn.LSTM(5, 4))
    with pytest.raises(stepnet.InvalidArgumentError, match="lstm has no parameter 'peephole'"):
        stepnet.torch.Recurrent(cell, {**params, "peephole": numpy.ones(4, "float32")})
    with pytest.raises(stepnet.ShapeMismatchError, match=r"'weight_hh' of lstm is float32 \[4, 4\]; it must be float32 \[16, 4\]"):
        stepnet.torch.Recurrent(cell, {**params, "weight_hh": params["weight_hh"][:4]})
    with pytest.raises(stepnet.TypeMismatchError, match="is float64"):
        stepnet.torch.Recurrent(cell, {name: value.astype("float64") for name, value in params.items()})
    del params["bias_hh"]
    with pytest.raises(stepnet.InvalidArgumentError, match="'bias_hh' of lstm is missing"):
        stepnet.torch.Recurrent(cell, params)


def test_what_pytorch_would_record_as_numbers_is_refused(tmp_path):
    module = stepnet.torch.Recurrent(*stepnet.from_torch(nn.GRU(5, 4)))
    with pytest.raises(stepnet.InvalidArgumentError, match="gru is traced, and PyTorch sees nothing"):
        torch.jit.trace(module, torch.randn(7, 3, 5), check_trace=False)


def test_what_is_no_tensor_or_cell_is_refused():
    module = stepnet.torch.Recurrent(*stepnet.from_torch(nn.GRU(5, 4)))
    with pytest.raises(stepnet.TypeMismatchError, match="the input of gru is an ndarray"):
        module(numpy.zeros((7, 3, 5), "float32"))
    with pytest.raises(stepnet.TypeMismatchError, match="the cell is an LSTM"):
        stepnet.torch.Recurrent(nn.LSTM(5, 4))


def test_what_is_no_tensor_is_told():
    cell, params = stepnet.from_torch(nn.LSTM(5, 4))
    for strange in (None, "text", numpy.zeros((16, 5), "M8[s]"), object()):
        with pytest.raises(stepnet.TypeMismatchError, match="the parameter weight_ih is .*, of which PyTorch makes no tensor"):
            stepnet.to_torch(cell, {**params, "weight_ih": strange})
        with pytest.raises(stepnet.TypeMismatchError, match="the parameter 'weight_ih' of lstm is .*, of which PyTorch"):
            stepnet.torch.Module(cell, {**params, "weight_ih": strange})
    recurrent = stepnet.torch.Recurrent(cell, params)
    x = torch.zeros(2, 3, 5)
    for states in (3, (None, None), (torch.zeros(1, 3, 4), numpy.zeros((1, 3, 4)))):
        with pytest.raises(stepnet.TypeMismatchError, match="hx of lstm has an? .*; it must be a tensor, or a tuple of tensors"):
            recurrent(x, states)
        with pytest.raises(stepnet.TypeMismatchError, match="hx of lstm has an? "):
            recurrent(x[:, 0], states)
    with pytest.raises(stepnet.TypeMismatchError, match="the input 'x' of lstm is torch.sparse_coo; it must be dense"):
        recurrent(x.to_sparse())
    for layout in (torch.strided, torch.jagged):
        nested = torch.nested.nested_tensor([torch.zeros(2, 5), torch.zeros(1, 5)], layout=layout)
        given = {"input": lambda: recurrent(nested), "hx": lambda: recurrent(x, nested)}
        given["x"] = lambda: stepnet.torch.Module(cell, params)(nested)
        for name, call in given.items():
            with pytest.raises(stepnet.TypeMismatchError, match=f"the input '{name}' of lstm is a nested tensor; it must be dense"):
                call()
    with pytest.raises(stepnet.ShapeMismatchError, match=r"the input of lstm is \[\]; it must be \[T, B, 5\]"):
        recurrent(torch.zeros(()))


@pytest.mark.parametrize(
    "attribute, value, message",
    [
        ("hidden_size", "4", "hidden_size is '4'; it must be a whole number"),
        ("num_layers", 1.5, "num_layers is 1.5; it must be a whole number"),
        ("dropout", "0", "dropout is '0'; it must be a number"),
        ("bias", None, "bias is None; it must be True or False"),
        ("mode", None, "the mode is 'none'; it must be one of"),
    ],
)
def test_attributes_of_another_kind_are_told(attribute, value, message):
    module = nn.LSTM(5, 4)
    setattr(module, attribute, value)
    with pytest.raises((stepnet.TypeMismatchError, stepnet.InvalidArgumentError), match=message):
        stepnet.from_torch(module)
