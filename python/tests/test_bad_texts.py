"""Texts, files and names that are none."""

import re

import numpy
import pytest
from conftest import refuses
from test_arguments import LONG, X

import stepnet
from stepnet import _stepnet


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


def test_an_empty_text_is_named(cells):
    for call in (lambda: stepnet.cell(""), lambda: stepnet.expand("")):
        refuses(call, stepnet.InvalidArgumentError, "the source is ''; it must be a text that says something, or")
    refuses(lambda: stepnet.load(""), stepnet.InvalidArgumentError, "net is ''; it must be a text that says something, or")


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


def test_every_function_of_the_core_takes_names_that_no_file_has(lstm, cells):
    """By escapes: none says that its arguments are incompatible, and lists C++ types."""
    name, none = "\ud800é", ("", "")
    escaped = r"\ud800é"
    assert _stepnet.torch_name_of(name) == escaped
    assert _stepnet.prefixes_of([f"{name}.w", f"{name}.v"], ["w", "v"]) == [f"{escaped}."]
    assert escaped in _stepnet.other_names_text([f"{name}.w"], ["w"])
    assert _stepnet.contiguous_copy(X, name, name).shape == X.shape
    assert not lstm._cell.operators()[0].has_argument(name)
    assert _stepnet.check(name + "{", True, {}, None) != []
    _stepnet.packed_layout(name, 1, 1, 1, True, False, 0)
    net = stepnet.load(cells / "elman.prototxt")._net
    options = [[], [], {}, False, False, False, 0, "cpu", 2, [], 0]
    for call in (
        lambda: _stepnet.address_of(X, name),
        lambda: _stepnet.load_operator_library(name),
        lambda: _stepnet.make_cell(name, False, *options[2:]),
        lambda: _stepnet.sizes_of_cell(name, True),
        lambda: _stepnet.load_net((name, ""), none, {}, 0, "cpu", 2, [], 0),
        lambda: _stepnet.load_net(none, ("", name), {}, 0, name, 2, [name], 0),
        lambda: _stepnet.train_net((name, ""), none, {}, name, [name], {name: name}, 0, "cpu", 2, [], 0),
        lambda: _stepnet.show(name, True, {name: 1}, False, None, name),
        lambda: _stepnet.expand(name, True, {name: 1}, name, False, False, False, False),
        lambda: _stepnet.load_params(name, name, False, 0),
        lambda: _stepnet.memory(name),
        lambda: _stepnet.set_max_memory(1, name),
        lambda: _stepnet.op(name),
        lambda: net.read([name]),
        lambda: net.explain({}, name),
        lambda: lstm._cell.vjp(lstm.init(), {"x": X}, [name], {}),
        lambda: _stepnet.TensorCall(lstm._cell, [name], [], []),
        lambda: _stepnet.TensorCall(lstm._cell, list(lstm.init()), ["x"], [name]),
    ):
        with pytest.raises(stepnet.Error) as caught:
            call()
        str(caught.value).encode()


def test_a_comment_in_latin_1_is_no_hindrance(cells, tmp_path):
    text = (cells / "lstm.cell").read_text()
    path = tmp_path / "a.cell"
    path.write_bytes("# J. Koutn\xedk\n".encode("latin-1") + text.encode())
    cell = stepnet.cell(path, D=5)
    assert cell.__doc__.startswith("J. Koutn\\xedk\n")
    assert cell.with_options(D=6).inputs[0].shape == "[T, B, 6]"
    assert stepnet.check(path) == []


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
        "a shape": (lambda: net(x=x[:, :2].copy(), rows=rows), 'FC(x, w, b)` with x float32 [4, 2], w float32 [2, 3]'),
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
