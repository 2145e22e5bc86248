import copy
import ctypes
import pickle

import numpy
import pytest
from conftest import ROOT

import stepnet

COUNTER = """
name: "counter"
op { type: "Add" input: "sum" input: "x" output: "sum" }
op { type: "Copy" input: "sum" output: "copy" }
external_output: "sum" external_output: "copy"
"""
FILL_SUM = 'op { type: "ConstantFill" output: "sum" arg { name: "shape" ints: 2 } arg { name: "value" f: 1 } }'
IN_PLACE = 'name: "in_place" op { type: "Relu" input: "x" output: "x" } external_output: "x"'
PRODUCT = 'name: "product" op { type: "FC" input: "x" input: "w" input: "b" output: "y" }'
FILL_PRODUCT = """
op { type: "GaussianFill" output: "w" arg { name: "shape" ints: 2 ints: 3 } }
op { type: "ConstantFill" output: "b" arg { name: "shape" ints: 2 } }"""
HALF = ' op { type: "Cast" input: "v" output: "w" arg { name: "to" s: "bfloat16" } }'
TEMPORARY = 'op { type: "Relu" input: "sum" output: "temporary" }'  # the net does not know it
DRAW = 'op { type: "UniformFill" output: "y" arg { name: "shape" ints: 5 } } external_output: "y"'
THROUGH_A_VIEW = """
op { type: "Reshape" input: "x" output: "y" output: "old" arg { name: "shape" ints: 4 } }
op { type: "Relu" input: "y" output: "y" }
external_output: "y"
"""


def load(tmp_path, text, init=None, **options):
    (tmp_path / "net.pbtxt").write_text(text)
    if init is None:
        return stepnet.load(tmp_path / "net.pbtxt", **options)
    (tmp_path / "init.pbtxt").write_text(init)
    return stepnet.load(tmp_path / "net.pbtxt", tmp_path / "init.pbtxt", **options)


def test_a_net_of_caffe2_runs_with_its_parameters():
    folder = ROOT / "examples" / "char_lm"
    net = stepnet.load(folder / "net.pb", init=folder / "init_net.pb")
    out = net(**char_lm_inputs(net))
    assert out.probabilities.ndim == 3
    numpy.testing.assert_allclose(out.probabilities.sum(axis=-1), 1, rtol=1e-4)
    again = net(**char_lm_inputs(net))
    assert numpy.array_equal(out.probabilities, again.probabilities)


def test_what_fills_a_net_is_told_where_a_call_gives_it(tmp_path):
    net = load(tmp_path, PRODUCT, FILL_PRODUCT)
    with pytest.raises(stepnet.InvalidArgumentError) as raised:
        net(x=numpy.zeros((1, 3), "float32"), b=numpy.zeros(2, "float32"))
    assert (
        'the net "product" has no input "b": what fills the net gives it (init, or its own file); net.restore changes it, or '
        "leave it out there to give it to each call"
    ) in str(raised.value)


def char_lm_inputs(net):
    """12 characters, one hot, and states of zeros."""
    assert set(net.inputs) == {"input", "hidden_init", "cell_init", "seq_lengths"}
    return {
        "input": numpy.eye(65, dtype="float32")[:12, None],
        "seq_lengths": numpy.array([12], "int32"),
        "hidden_init": numpy.zeros((1, 1, 128), "float32"),
        "cell_init": numpy.zeros((1, 1, 128), "float32"),
    }


def test_a_net_that_keeps_something_goes_on_with_it(tmp_path):
    net = load(tmp_path, COUNTER, FILL_SUM)
    assert net.inputs == ("x",)
    x = numpy.array([1, 2], "float32")
    outputs = [net(x=x) for _ in range(3)]
    assert [each.sum.tolist() for each in outputs] == [[2, 3], [3, 5], [4, 7]]
    assert [each.copy.tolist() for each in outputs] == [[2, 3], [3, 5], [4, 7]]
    outputs[-1].sum[:] = 100  # is the caller's
    assert net(x=x).sum.tolist() == [5, 9]


def test_a_net_that_overwrites_what_it_is_given_has_a_copy(tmp_path):
    net = load(tmp_path, IN_PLACE)
    x = numpy.array([-1, 2], "float32")
    x.flags.writeable = False
    assert net(x=x).x.tolist() == [0, 2]
    assert x.tolist() == [-1, 2]


def test_nothing_is_written_through_a_view_of_an_input(tmp_path):
    net = load(tmp_path, THROUGH_A_VIEW)
    x = numpy.array([[-1, 2], [3, -4]], "float32")
    try:
        assert net(x=x).y.tolist() == [0, 2, 3, 0]
    except stepnet.InvalidArgumentError as error:
        assert "memory that is lent to be read" in str(error)
    assert x.tolist() == [[-1, 2], [3, -4]]


def test_an_input_that_is_given_as_it_is_is_a_copy(tmp_path):
    net = load(tmp_path, 'op { type: "Tanh" input: "x" output: "y" } external_output: "x" external_output: "y"')
    x = numpy.ones(3, "float32")
    out = net(x=x)
    assert out.x.tolist() == [1, 1, 1]
    assert not numpy.shares_memory(out.x, x)


def test_what_outputs_do_not_depend_on_has_gradients_of_zeros(tmp_path):
    tanh = 'op { type: "Tanh" input: "z" output: "t" }'
    net = load(tmp_path, tanh + 'op { type: "Relu" input: "x" output: "y" } external_output: "y"')
    x, z = numpy.ones((2, 3), "float32"), numpy.ones(4, "float32")
    for wrt in (["z"], ["z", "x"]):
        outputs, pullback = net.vjp(wrt=wrt, x=x, z=z)
        gradients = pullback(y=numpy.full_like(outputs.y, 2))
        assert sorted(gradients.inputs) == sorted(wrt)
        assert numpy.array_equal(gradients.inputs["z"], numpy.zeros(4))
    assert numpy.array_equal(gradients.inputs["x"], numpy.full((2, 3), 2))


def test_an_output_that_is_an_input_has_its_gradient(tmp_path):
    net = load(tmp_path, 'op { type: "Relu" input: "x" output: "y" } external_output: "x"')
    gradient = numpy.arange(4, dtype="float32")
    _, pullback = net.vjp(x=numpy.ones(4, "float32"))
    found = pullback(x=gradient).inputs["x"]
    assert numpy.array_equal(found, gradient) and not numpy.may_share_memory(found, gradient)


def test_parameters_are_not_the_callers(tmp_path):
    net = load(
        tmp_path,
        'op { type: "Add" input: "x" input: "w" output: "y" } external_output: "y" external_output: "w"',
        FILL_SUM.replace('"sum"', '"w"'),
    )
    x = numpy.zeros(2, "float32")
    net(x=x).w[:] = 7
    assert net(x=x).y.tolist() == [1, 1]


def transposed(folder, cells):
    """A net that reads a parameter transposed, and the one that it is."""
    (folder / "net.pbtxt").write_text(
        'op { type: "Transpose" input: "w" output: "t" } op { type: "MatMul" input: "x" input: "t" output: "y" }'
    )
    stepnet.save_params({"w": numpy.random.default_rng(1).standard_normal((6, 5), "float32")}, folder / "init.npz")
    return "w"


def layer(folder, cells):
    """A net whose steps read a parameter again and again, so that it is laid out for them."""
    (folder / "net.pbtxt").write_text(stepnet.expand(cells / "lstm.cell", sizes={"D": 5, "H": 32}))
    stepnet.save_params(stepnet.cell(cells / "lstm.cell", D=5, H=32).init(seed=1), folder / "init.npz")
    return "u"


@pytest.mark.parametrize("make", [transposed, layer])
def test_what_follows_from_parameters_is_computed_once(make, cells, tmp_path):
    """Seen by writing to the memory of the net, which nobody may."""
    name = make(tmp_path, cells)
    net = stepnet.load(tmp_path / "net.pbtxt", tmp_path / "init.npz")
    inputs = {"x": numpy.ones((64, 1, 5), "float32"), "h_init": numpy.zeros((1, 1, 32), "float32")}
    inputs = {each: inputs.get(each, inputs["h_init"]) for each in net.inputs}
    results = []
    for factor in (1, 2, 3):
        value = factor * stepnet.load_params(tmp_path / "init.npz")[name]
        if factor > 1:
            net.restore({name: value})
        results.append(net(inputs)[0].copy())
        memory = net._net.filled()[name].ctypes.data
        (ctypes.c_float * value.size).from_address(memory)[:] = [0.0] * value.size
        assert numpy.array_equal(net(inputs)[0], results[-1])
    assert not any(numpy.array_equal(a, b) for a, b in zip(results, results[1:]))


def test_a_pullback_has_the_parameters_of_its_call(tmp_path):
    """y = w2 tanh(w x), whose gradients read both parameters."""
    net = load(
        tmp_path,
        'op { type: "Mul" input: "w" input: "x" output: "a" } op { type: "Tanh" input: "a" output: "h" }'
        'op { type: "Mul" input: "w2" input: "h" output: "y" } external_output: "y"',
        "".join(f'op {{ type: "ConstantFill" output: "{w}" arg {{ name: "shape" ints: 1 }} }}' for w in ("w", "w2")),
    )
    x = numpy.array([0.5], "float32")
    w, w2 = numpy.array([0.7], "float32"), numpy.array([-1.3], "float32")
    net.restore({"w": w, "w2": w2})
    pullback = net.vjp(x=x)[1]
    net.restore({"w": 3 * w, "w2": w2 + 1})
    net(x=x)
    gradients, h = pullback(y=numpy.ones(1, "float32")), numpy.tanh(w * x)
    assert gradients.params["w2"] == pytest.approx(h)
    assert gradients.params["w"] == pytest.approx(w2 * (1 - h * h) * x)
    assert gradients.inputs["x"] == pytest.approx(w2 * (1 - h * h) * w)
    again = net.vjp(x=x)[1](y=numpy.ones(1, "float32"))
    assert again.params["w2"] == pytest.approx(numpy.tanh(3 * w * x))


def test_names_and_files_that_do_not_fit(tmp_path, cells):
    net = load(tmp_path, IN_PLACE)
    with pytest.raises(stepnet.InvalidArgumentError, match='the input "x" of the net "in_place" is missing'):
        net()
    with pytest.raises(stepnet.InvalidArgumentError, match='the net "in_place" has no input "y"; .*its inputs are x'):
        net(y=numpy.zeros(2, "float32"))
    with pytest.raises(stepnet.InvalidArgumentError, match=r"lstm\.cell is a cell; stepnet\.cell takes it"):
        stepnet.load(cells / "lstm.cell")
    with pytest.raises(stepnet.InvalidNetError, match='no operator type "Rleu"; did you mean "Relu"'):
        load(tmp_path, IN_PLACE.replace("Relu", "Rleu"))
    with pytest.raises(stepnet.Error):
        net(x=numpy.zeros(2, "int64"))
    assert repr(net) == "<stepnet.Net in_place(x) -> x>"


def test_check_lists_what_is_wrong(cells):
    assert stepnet.check(cells / "lstm.cell") == []
    assert stepnet.check(cells / "lstm.cell", H=3) == []
    assert len(stepnet.check(cells / "lstm.cell", H=-3)) == 1
    assert stepnet.check(IN_PLACE) == []
    problems = stepnet.check(IN_PLACE.replace("Relu", "Rleu") + 'op { type: "Add" input: "x" output: "z" }')
    assert len(problems) == 2


def test_ops_and_expand_tell_what_there_is(cells):
    ops = stepnet.ops()
    assert "linear unit" in ops["Relu"].lower()
    assert all(ops.values())
    text = stepnet.ops("FC")
    assert text.startswith("FC\n") and ops["FC"] in text
    for part in ("inputs\n  x ", "outputs\n  y ", "arguments\n  axis ", "\ngradient: ", "\nkernels: cpu"):
        assert part in text
    assert "\nformula: " in stepnet.ops("Relu")
    with pytest.raises(stepnet.InvalidArgumentError, match='no operator type "Rellu"; did you mean "?Relu"?[?]'):
        stepnet.ops("Rellu")
    with pytest.raises(stepnet.TypeMismatchError, match="name is 3; it must be a text"):
        stepnet.ops(3)
    text = stepnet.expand(cells / "lstm.cell", H=3)
    assert text.count("RecurrentNetwork") >= 1
    assert stepnet.check(text) == []
    assert "XavierFill" in stepnet.expand(cells / "lstm.cell", init=True)


def test_a_path_of_another_thing_is_told(tmp_path, cells):
    for function in (stepnet.load, stepnet.cell, stepnet.expand):
        with pytest.raises(stepnet.InvalidArgumentError, match="is a model in ONNX; stepnet.onnx.load reads it"):
            function(tmp_path / "model.onnx")
    with pytest.raises(stepnet.InvalidArgumentError, match="the text is a cell; stepnet.cell takes it"):
        stepnet.load((cells / "lstm.cell").read_text())
    with pytest.raises(stepnet.TypeMismatchError, match="net is a Cell; it must be a text or a path; stepnet.expand makes a net"):
        stepnet.load(stepnet.cell(cells / "lstm.cell"))
    with pytest.raises(stepnet.TypeMismatchError, match="the size trainig is True; .*did you mean training?"):
        stepnet.cell(cells / "lstm.cell", trainig=True)
    with pytest.raises(stepnet.Error, match="the text of init"):
        stepnet.load(COUNTER, 'op { type: "Relu" input: "nothing" output: "y" }')


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('op { type: "Copy" input: "" output: "y" }', "has an empty name"),
        ('op { type: "Copy" input: "x" output: "" }', "has an empty name"),
        ('op { type: "Add" input: "x" input: "x\\000y" output: "o" }', "has a name with a NUL in it"),
    ],
)
def test_names_that_python_cannot_have_are_refused(text, message):
    with pytest.raises(stepnet.InvalidNetError, match=message):
        stepnet.load(text)


def test_many_outputs_of_one_name_are_one():
    text = 'op { type: "Copy" input: "x" output: "y" }' + ' external_output: "y"' * 20000
    assert stepnet.load(text).outputs == ("y",)


def test_params_are_a_dictionary_that_is_read_only(tmp_path):
    net = load(tmp_path, PRODUCT)
    net = stepnet.load(tmp_path / "net.pbtxt", {"w": numpy.ones((2, 3), "float32"), "b": numpy.zeros(2, "float32")})
    params, zeros = net.params, numpy.zeros((2, 3), "float32")

    def add_to():
        nonlocal params
        params |= {"w": zeros}

    for change in (
        lambda: params.__setitem__("w", zeros),
        lambda: params.__delitem__("w"),
        lambda: params.update(w=zeros),
        lambda: params.setdefault("v", zeros),
        lambda: params.pop("w"),
        params.popitem,
        params.clear,
        add_to,
    ):
        with pytest.raises(stepnet.TypeMismatchError, match=r"copies, and read-only.*net.restore\(\{name: array\}\) does"):
            change()
    assert isinstance(params, dict) and sorted(params) == ["b", "w"] and (params["w"] == 1).all()
    for other in (dict(params), params.copy(), copy.copy(params), copy.deepcopy(params), pickle.loads(pickle.dumps(params))):
        other["w"] = zeros
        net.restore(other)
        assert not net.params["w"].any()


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))])
def test_a_net_is_copied_with_what_it_keeps(tmp_path, again):
    counter = load(tmp_path, COUNTER, FILL_SUM + TEMPORARY)
    x = numpy.array([1, 2], "float32")
    counter(x=x)
    other = again(counter)
    for name in ("net.pbtxt", "init.pbtxt"):
        (tmp_path / name).unlink()
    assert (other.name, other.inputs, other.outputs, repr(other)) == ("counter", ("x",), ("sum", "copy"), repr(counter))
    assert stepnet.show(other) == stepnet.show(counter) and stepnet.check(other) == []
    for net in (counter, other, again(other)):
        assert net(x=x).sum.tolist() == [3, 5]
    with pytest.raises(stepnet.ShapeMismatchError, match="in file .*net.pbtxt"):
        other(x=numpy.zeros(5, "float32"))

    drawing = stepnet.load(DRAW, seed=3)
    drawing()
    other = again(drawing)
    first = drawing().y
    assert numpy.array_equal(other().y, first) and not numpy.array_equal(other().y, first)

    net = load(tmp_path, PRODUCT, FILL_PRODUCT, threads=1)
    other = again(net)
    net.restore({"w": numpy.zeros((2, 3), "float32")})
    assert list(other.params) == list(net.params) and other.params["w"].all()


def test_a_net_that_keeps_what_is_no_array_is_not_copied(tmp_path):
    net = load(tmp_path, PRODUCT, FILL_PRODUCT.replace('type: "GaussianFill" output: "w"', 'type: "GaussianFill" output: "v"') + HALF)
    with pytest.raises(stepnet.InvalidArgumentError, match='product" keeps "w", which is no array of NumPy, so it cannot be'):
        pickle.dumps(net)


def test_a_parameter_of_bfloat16_is_an_array_that_is_taken_again(tmp_path):
    """NumPy has no bfloat16."""
    net = load(tmp_path, PRODUCT, FILL_PRODUCT.replace('type: "GaussianFill" output: "w"', 'type: "GaussianFill" output: "v"') + HALF)
    w = net.params["w"]
    assert isinstance(w, stepnet.DeviceArray) and (w.dtype, w.device) == ("bfloat16", "cpu")
    widened = w.numpy()
    assert widened.dtype == "float32" and widened.shape == w.shape and widened.any()
    numpy.testing.assert_array_equal(numpy.asarray(w), widened)
    assert numpy.asarray(w, dtype="float64").dtype == "float64"
    assert not (widened.view("uint32") & 0xFFFF).any()
    x = numpy.eye(w.shape[1], dtype="float32")
    net.restore({"w": w, "b": numpy.zeros_like(net.params["b"])})
    net.restore({"w": net.params["w"]})
    numpy.testing.assert_array_equal(net(x=x)[0], widened.T)
    capsule = w.__dlpack__(copy=True)
    assert type(capsule).__name__ == "PyCapsule"
    with pytest.raises(stepnet.TypeMismatchError, match='the tensor "w" is a PyCapsule, no array'):
        net.restore({"w": capsule})


def test_arrays_by_name_are_those_of_the_net(tmp_path):
    (tmp_path / "net.pbtxt").write_text(PRODUCT)
    arrays = {"w": numpy.ones((2, 3), "float32"), "b": numpy.zeros(2, "float32")}
    more = {**arrays, "weigt": arrays["w"]}
    for make in (stepnet.load, lambda net, init: stepnet.train_net(net, init, loss="y")):
        message = 'init has "weigt", which the net "product" neither reads nor writes; leave it out\n  in file '
        with pytest.raises(stepnet.InvalidArgumentError, match=message):
            make(tmp_path / "net.pbtxt", more)
        with pytest.raises(stepnet.InvalidArgumentError, match='init has "ww", which .*; did you mean "?w"?[?]; leave it out$'):
            make(PRODUCT, {**arrays, "ww": arrays["w"]})
        stepnet.save_params(more, tmp_path / "more.npz")
        assert sorted(make(PRODUCT, tmp_path / "more.npz").params) == ["b", "w"]


def test_an_array_without_a_name_is_told(tmp_path):
    numpy.save(tmp_path / "one.npy", numpy.ones(3))
    for call in (lambda: stepnet.load_params(tmp_path / "one.npy"), lambda: stepnet.load(PRODUCT, tmp_path / "one.npy")):
        with pytest.raises(stepnet.InputOutputError, match=r"it is a .npy of NumPy, one array without a name; numpy.savez\("):
            call()


@pytest.mark.parametrize(
    "names, message",
    [
        ([b"w"], r"it has arrays of MXNet; .* numpy.savez\(\"F.npz\", \*\*\{name: .*\}\) writes a file that is read$"),
        ([], r"it has arrays of MXNet without names; .* \*\[array.asnumpy\(\) .*\]\) .*, in which they are called arr_0, arr_1"),
    ],
    ids=["a dictionary", "a list"],
)
def test_arrays_of_mxnet_are_told(names, message, tmp_path):
    """As mxnet.nd.save writes them: how many there are, the arrays, how many names there are, and these."""
    array = b"\xc9\xfa\x93\xf9" + bytes(32) + b"\x00\x00\x80\x3f"
    words = [0x112, 0, 1, array, len(names), *(word for name in names for word in (len(name), name))]
    content = b"".join(word if isinstance(word, bytes) else word.to_bytes(8, "little") for word in words)
    (tmp_path / "m.params").write_bytes(content)
    for call in (lambda: stepnet.load_params(tmp_path / "m.params"), lambda: stepnet.load(PRODUCT, tmp_path / "m.params")):
        with pytest.raises(stepnet.InputOutputError, match=message):
            call()
