import json
import pickle
import warnings

import numpy
import pytest
from conftest import ROOT, refuses

import stepnet

LEAKY = "cell leaky(x[D]; h[D]) { size D = 4\n param u[D, D]\n h = Tanh(x + h @ u)\n output h }"


def test_show_tells_what_a_cell_stands_for(cells):
    text = stepnet.show(cells / "lstm.cell", D=5, H=4)
    assert "RecurrentNetwork" in text
    assert stepnet.show(LEAKY, format="dot").startswith("digraph")
    assert "training" not in text
    with pytest.raises(stepnet.InvalidArgumentError, match='format is "json"; it must be text or dot'):
        stepnet.show(LEAKY, format="json")


def test_cells_are_asked_about_in_either_dtype(cells):
    """As ``rnn_runner --dtype`` does; a cell that is made says its own where nothing else is said."""
    cell = stepnet.cell(LEAKY, dtype="float64")
    for dtype in ("float64", numpy.float64, numpy.dtype("float64")):
        assert stepnet.expand(LEAKY, init=True, dtype=dtype) == stepnet.expand(cell, init=True)
    assert stepnet.expand(cell, init=True) != stepnet.expand(cell, init=True, dtype="float32") == stepnet.expand(LEAKY, init=True)
    half = "cell c(x[D]; h[D]) { size D = 4\n h = Where(GT(x, 0), h, 0.5)\n output h }"
    assert stepnet.show(half) != stepnet.show(half, dtype="float64") == stepnet.show(stepnet.cell(half, dtype="float64"))
    assert stepnet.check(LEAKY, dtype="float64") == []
    bytes_of = [
        json.loads(stepnet.explain(half, format="json", dtype=dtype))[0]["stages"][0]["instructions"][0]["bytes_a_step"]
        for dtype in ("float32", "float64")
    ]
    assert bytes_of[1] == 2 * bytes_of[0]
    with pytest.raises(stepnet.TypeMismatchError, match="dtype is 'float16'; it must be float32 or float64"):
        stepnet.check(LEAKY, dtype="float16")
    net = 'op { type: "Relu" input: "x" output: "y" }'
    for function in (stepnet.check, stepnet.show):
        with pytest.raises(stepnet.InvalidArgumentError, match="the text is a net, which computes in the dtype of its inputs: leave dtype out"):
            function(net, dtype="float64")
    with pytest.raises(stepnet.InvalidArgumentError, match="dtype is of cells, and"):
        stepnet.explain(stepnet.load(net), dtype="float64")


def test_show_takes_nets_that_are_wrong():
    text = stepnet.show('name: "odd" op { type: "Nothing" input: "x" output: "y" }')
    assert "y = Nothing(x)" in text
    assert "net odd" in stepnet.show(' name: "odd"\nop { type: "Relu" input: "x" output: "x" }')
    assert "RecurrentNetwork" in stepnet.show(ROOT / "examples" / "char_lm" / "net.pb")


def test_cells_are_taken_as_their_texts_are(tmp_path, random):
    cell = stepnet.cell(LEAKY, D=3, carry=True)
    assert stepnet.expand(cell) == stepnet.expand(LEAKY, D=3, carry=True) != stepnet.expand(LEAKY, D=3)
    assert stepnet.expand(cell, D=2) == stepnet.expand(LEAKY, D=2, carry=True)
    assert stepnet.show(cell) == stepnet.show(LEAKY, D=3)
    assert stepnet.check(cell) == []
    (tmp_path / "leaky.cell").write_text(LEAKY)
    assert stepnet.expand(stepnet.cell(tmp_path / "leaky.cell"), init=True) == stepnet.expand(LEAKY, init=True)
    params, x = cell.init(seed=1), random.normal(size=(4, 2, 3)).astype("float32")
    h_init = numpy.zeros((1, 2, 3), "float32")
    net = stepnet.load(stepnet.expand(cell), params)
    assert numpy.array_equal(net(x=x, h_init=h_init).h, cell(params, x=x, h_init=h_init).h)


def test_a_cell_in_double_stands_for_nets_in_double(random):
    text = LEAKY.replace("param u[D, D]", "param u[D, D]\n param b[D] = 0.1").replace("h @ u", "h @ u + 0.3 * b")
    cell = stepnet.cell(text, dtype="float64", D=3)
    x = random.normal(size=(4, 2, 3))
    net = stepnet.load(stepnet.expand(cell), init=stepnet.expand(cell, init=True))
    assert {array.dtype.name for array in net.params.values()} == {"float64"}
    assert numpy.array_equal(net(x=x).h, cell({each.name: net.params[each.name] for each in cell.params}, x=x).h)


def test_explain_tells_what_runs():
    cell = stepnet.cell(LEAKY)
    params = cell.init()
    x = numpy.zeros((20, 3, 4), "float32")
    text = cell.explain(params, x=x)
    assert "tanh" in text
    assert "backward" not in text
    both = cell.explain(params, gradients=True, x=x)
    assert both.startswith(text.splitlines()[0])
    assert "backward" in both
    plans = json.loads(cell.explain(params, gradients=True, format="json", x=x))
    assert [plan["backward"] for plan in plans] == [False, True]
    assert plans[0]["stages"]
    page = cell.explain(params, format="html", x=x)
    assert page.startswith("<!") and "leaky" in page
    with pytest.raises(stepnet.InvalidArgumentError, match='format is "xml"'):
        cell.explain(params, format="xml", x=x)
    with pytest.raises(stepnet.InvalidArgumentError, match='"x" of leaky is missing'):
        cell.explain(params)


@pytest.mark.parametrize("path", sorted((ROOT / "examples" / "cells").glob("*.cell")), ids=lambda path: path.stem)
def test_explain_takes_every_example_with_its_gradients(path):
    cell = stepnet.cell(path, training=True)
    sizes = {"T": 3, "B": 2}
    inputs = {
        each.name: numpy.ones([int(sizes.get(size, size)) for size in each.shape.strip("[]").split(", ")], each.dtype)
        for each in cell.inputs
        if not each.optional
    }
    text = cell.explain(cell.init(), inputs, gradients=True)
    assert "backward" in text


@pytest.mark.parametrize("path", sorted((ROOT / "examples" / "cells").glob("*.cell")), ids=lambda path: path.stem)
def test_explain_makes_up_what_a_call_needs(path):
    cell = stepnet.cell(path)
    sizes = {"T": 7, "B": 2}
    inputs = {
        each.name: numpy.ones([int(sizes.get(size, size)) for size in each.shape.strip("[]").split(", ")], each.dtype)
        for each in cell.inputs
        if not each.optional
    }
    expected = cell.explain(cell.init(), inputs, gradients=True)
    assert stepnet.explain(path, steps=7, batch=2, gradients=True) == expected
    assert stepnet.explain(cell, inputs=inputs, gradients=True) == expected
    assert stepnet.explain(cell) == stepnet.explain(path.read_text(), steps=5, batch=3)


def test_explain_takes_options_of_cells_and_nets():
    text = LEAKY.replace("output h", "output h\n option lengths = n")
    cell = stepnet.cell(text, D=3, opt_level=0)
    for found, given in (
        (stepnet.explain(text, D=5, carry=True), stepnet.cell(text, D=5, carry=True)),
        (stepnet.explain(cell, sizes={"D": 5}), stepnet.cell(text, D=5, opt_level=0)),
    ):
        x, n = numpy.zeros((5, 3, 5), "float32"), numpy.full(3, 5, "int32")
        start = {"h_init": numpy.zeros((1, 3, 5), "float32")} if given._options["carry"] else {}
        assert found == given.explain(given.init(), x=x, n=n, **start)
    assert [plan["backward"] for plan in json.loads(stepnet.explain(LEAKY, gradients=True, format="json"))] == [False, True]
    net = stepnet.load(stepnet.expand(LEAKY), init=stepnet.expand(LEAKY, init=True))
    x = numpy.zeros((20, 3, 4), "float32")
    assert stepnet.explain(net, inputs={"x": x}) == net.explain(x=x)
    for call, message in (
        (lambda: stepnet.explain(net, inputs={"x": x}, gradients=True), "gradients is of cells, and <stepnet.Net leaky"),
        (lambda: stepnet.explain(net, inputs={"x": x}, D=3), "D is of cells"),
        (lambda: stepnet.explain(net, steps=3), "steps is of inputs that are made up for a cell; leave it out"),
        (lambda: stepnet.explain(LEAKY, inputs={"x": x}, batch=3), "batch is of inputs that are made up"),
        (lambda: stepnet.explain(LEAKY, steps=0), "steps is 0; it must be a whole number from 1 on"),
        (lambda: stepnet.explain(LEAKY, batch=True), "batch is True; it must be a whole number from 1 on"),
        (lambda: stepnet.explain(stepnet.expand(LEAKY)), "the text is a net and no cell; stepnet.load takes it"),
    ):
        with pytest.raises(stepnet.InvalidArgumentError, match=message):
            call()


def test_explain_says_that_there_is_nothing_to_explain(tmp_path):
    (tmp_path / "net.pbtxt").write_text('op { type: "Relu" input: "x" output: "y" }')
    with pytest.raises(stepnet.InvalidNetError, match="runs no step net"):
        stepnet.load(tmp_path / "net.pbtxt").explain(x=numpy.zeros(3, "float32"))


def test_explain_changes_nothing_that_a_net_keeps(tmp_path):
    net = stepnet.expand(LEAKY).replace('external_output: "h"', "")
    (tmp_path / "net.pbtxt").write_text(
        net + 'op { type: "AveragedLoss" input: "h" output: "loss" }\nexternal_output: "loss"'
    )
    (tmp_path / "init.pbtxt").write_text(stepnet.expand(LEAKY, init=True))
    training = stepnet.train_net(tmp_path / "net.pbtxt", tmp_path / "init.pbtxt", loss="loss")
    before = training.state
    x = numpy.ones((20, 3, 4), "float32")
    assert "backward" in training.explain(x=x)
    for name, tensor in training.state.items():
        assert numpy.array_equal(tensor, before[name])
    assert training(x=x).loss != training(x=x).loss


def test_check_says_what_gives_the_parameters_of_a_net():
    net = """op { type: "FC" input: "x" input: "w" input: "b" output: "y" }
             op { type: "Mul" input: "y" input: "scale" output: "z" } external_input: "x" """
    *_, last = stepnet.check(net)
    assert last.endswith(
        "\n  3 blobs are read, and nothing gives them: where they are parameters, stepnet.load(…, init=F) takes what does"
    )
    few = stepnet.check(net.replace('"scale"', '"x"'))  # a mistake, rather
    assert len(few) == 2 and not any("parameters" in each for each in few)
    fill = 'op {{ type: "ConstantFill" output: "{}" arg {{ name: "shape" ints: 2 }} }} '
    assert stepnet.load(net, init="\n" + "".join(map(fill.format, ("w", "b", "scale")))).inputs == ("x",)


def test_cells_warn_of_what_mixes_the_batch(tmp_path):
    text = """cell mixed(x[H]; h[H]) {
      size H = 4
      h = Tanh(Softmax(x) + h * ReduceMean(x))
      output h
    }"""
    path = tmp_path / "mixed.cell"
    path.write_text(text)
    for source, place in ((text, "<text>"), (path, str(path))):
        for function in (stepnet.cell, stepnet.check):
            with pytest.warns(stepnet.CellWarning) as warned:
                function(source)
            assert [each.filename for each in warned] == [__file__] * 2
            assert [str(each.message).partition("\n")[0] for each in warned] == [
                f"{place}:3:16: Softmax has axis=1 where it is not given, and that is the batch; the last dimension is axis=-1",
                f"{place}:3:33: ReduceMean is over all dimensions where no axes are given, and the batch is one of them; "
                "over the last one it is axes=[-1]",
            ]
    assert issubclass(stepnet.CellWarning, UserWarning)
    with pytest.warns(stepnet.CellWarning):
        mixed = stepnet.cell(text)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pickle.loads(pickle.dumps(mixed.with_options(H=3)))  # it has been said
        for function in (stepnet.cell, stepnet.check):
            function(text.replace("Softmax(x)", "Softmax(x, axis=-1)").replace("ReduceMean(x)", "ReduceMean(x, axes=[-1])"))


def test_cells_warn_of_totals_and_of_what_does_nothing():
    text = "cell c(x[3]; h[3]) {\n  h = (h + Max(x)) / Sqrt(SumSqrElements(x) + 1)\n  output h\n}"
    for function in (stepnet.cell, stepnet.check):
        with pytest.warns(stepnet.CellWarning) as warned:
            function(text)
        assert [str(each.message).partition("\n")[0] for each in warned] == [
            "<text>:2:12: Max of one input is that input; ReduceMax(x, axes=[-1]) gives the greatest along the last dimension",
            "<text>:2:27: SumSqrElements gives one number for all of the batch; one for each item is "
            "ReduceSum(Sqr(x), axes=[-1])",
        ]


def test_layers_that_cannot_be_put_on_each_other_are_refused_alike():
    text = """cell two(x[D], m[D]; h[H]) {
      size D = 2
      size H = 3
      param w[H, D]
      h = Tanh((x * m) @ w + h)
      output h
      option layers = 2
    }"""
    why = "layers cannot be put on each other: all layers read the same \"m\", whose size D is 2 in the first one and 3"
    with pytest.raises(stepnet.ShapeMismatchError) as refused:
        stepnet.cell(text)
    assert why in str(refused.value)
    (problem,) = stepnet.check(text)
    assert why in problem
    assert stepnet.check(text, D=3) == []
    assert [each.shape for each in stepnet.cell(text, D=3).inputs[:2]] == ["[T, B, 3]"] * 2


def test_what_is_said_of_cells_is_refused_of_nets(tmp_path):
    net = 'op { type: "Relu" input: "x" output: "y" } external_output: "y"'
    (tmp_path / "net.pbtxt").write_text(net)
    for given in (net, stepnet.load(net), tmp_path / "net.pbtxt"):
        for function in (stepnet.check, stepnet.show):
            with pytest.raises(stepnet.InvalidArgumentError, match="is a net, and sizes and options are of cells: leave H out"):
                function(given, H=3)
        with pytest.raises(stepnet.InvalidArgumentError, match="is a net, which is .*: leave training out"):
            stepnet.show(given, training=True)
    assert len(stepnet.check("op {", H=3)) == 1  # what cannot be read is said first
    (tmp_path / "cut.pbtxt").write_text("op {")
    for given in ("op {", tmp_path / "cut.pbtxt"):
        with pytest.raises(stepnet.InputOutputError, match=r":1:\d+: "):
            stepnet.show(given, H=3)


def test_training_is_a_mode_that_every_cell_takes(cells):
    """As every module of PyTorch does: what neither drops nor draws is the same in both modes."""
    assert stepnet.cell(LEAKY, training=True).init().keys() == {"u"}
    assert stepnet.expand(LEAKY, training=True) == stepnet.expand(LEAKY)
    drops = "option zoneout = 0.5\n}".join((cells / "lstm.cell").read_text().rsplit("}", 1))
    assert stepnet.expand(drops, training=True) != stepnet.expand(drops)


def test_cells_of_one_net_are_kept_apart_by_a_prefix(cells):
    def net_of(*prefixes, **options):
        first, *others = (stepnet.expand(cells / "elman.cell", D=2, H=3, prefix=each, **options) for each in prefixes)
        return first + "".join(each.partition("\n")[2] for each in others)  # a net has one name

    net = stepnet.load(net_of("a/", "b/"), init=net_of("a/", "b/", init=True))
    assert sorted(name for name in net.params if "init" not in name) == ["a/b", "a/u", "a/w", "b/b", "b/u", "b/w"]
    assert net.inputs == ("x",)
    _, gradients = net.value_and_grad("b/h", x=numpy.ones((3, 1, 2), "float32"))
    assert gradients.params["b/w"].any() and not gradients.params["a/w"].any()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert stepnet.check(net_of("a/", "b/")) == []
    for options in ({}, {"init": True}):
        with pytest.warns(stepnet.CellWarning, match="again, which op [0-9] .* wrote and nothing has read since; .* a prefix"):
            assert stepnet.check(net_of("", "", **options)) == []
    refuses(lambda: stepnet.expand(cells / "elman.cell", prefix=3), stepnet.TypeMismatchError, "prefix is 3; it must be a text")
