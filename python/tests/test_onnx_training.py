"""Loaded models are trained and exported again: their parameters are the file's initializers, with their gradients."""

import copy
import itertools
import pickle

import numpy
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import draw, expect_equal, ints, loaded, loops_of, model_of, runtime, session, unit

import stepnet
import stepnet.onnx


def floats_of(model):
    """The floating initializers."""
    arrays = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    return {name: array for name, array in arrays.items() if array.dtype == numpy.float32}


def with_params(model, params):
    """The model with other initializers."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for each in changed.graph.initializer:
        if each.name in params:
            each.CopyFrom(numpy_helper.from_array(params[each.name], each.name))
    return changed


def expect_gradients(model, inputs, tmp_path):
    """The gradients by all floating initializers, in random directions, are differences of onnxruntime's results."""
    net, params, random = loaded(model, tmp_path), floats_of(model), numpy.random.default_rng(5)
    assert {name: array.shape for name, array in net.params.items()} == {n: a.shape for n, a in params.items()}
    outputs, pullback = net.vjp(**inputs)
    weights = {name: random.standard_normal(outputs[name].shape).astype("float32") for name in net.outputs}
    gradients = pullback(**weights).params
    assert gradients.keys() == params.keys()

    def loss(changed):
        results = runtime(with_params(model, changed), inputs)
        return sum((result.astype("float64") * each).sum() for result, each in zip(results, weights.values()))

    for name, array in params.items():
        for _ in range(3):
            direction = random.standard_normal(array.shape).astype("float32")
            plus, minus = (
                loss({name: array + step * direction}) for step in (numpy.float32(5e-3), numpy.float32(-5e-3))
            )
            slope = (gradients[name].astype("float64") * direction).sum()
            size = numpy.linalg.norm(gradients[name]) * numpy.linalg.norm(direction)
            assert abs((plus - minus) / 1e-2 - slope) < 5e-3 * size + 1e-4, name


UNITS = {
    "RNN": ("RNN", {}),
    "RNN both ways": ("RNN", {"direction": "bidirectional"}),
    "GRU": ("GRU", {}),
    "GRU, reset behind the product": ("GRU", {"linear_before_reset": 1}),
    "GRU both ways, lengths": ("GRU", {"direction": "bidirectional", "lengths": [5, 2, 4]}),
    "LSTM": ("LSTM", {}),
    "LSTM backwards, lengths": ("LSTM", {"direction": "reverse", "lengths": [5, 2, 4]}),
    "LSTM, peepholes both ways": ("LSTM", {"direction": "bidirectional", "peepholes": True}),
    "LSTM, input_forget": ("LSTM", {"input_forget": 1}),
    "LSTM without bias": ("LSTM", {"bias": False}),
}


@pytest.mark.parametrize("op_type, options", UNITS.values(), ids=UNITS)
def test_gradients_of_units_are_by_the_initializers(op_type, options, random, tmp_path):
    expect_gradients(*unit(op_type, random, **options), tmp_path)


@pytest.mark.parametrize("padding", [numpy.nan, numpy.inf])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("op_type", ["LSTM", "GRU", "RNN"])
def test_what_stands_behind_lengths_is_in_no_gradient(op_type, direction, padding, random, tmp_path):
    """Gradients are those with zeros there, which are compared with differences of onnxruntime's results above."""
    model, inputs = unit(op_type, random, direction=direction, lengths=[5, 2, 0])
    net, found = loaded(model, tmp_path), []
    for each in (0, padding):
        inputs["X"][2:, 1] = inputs["X"][:, 2] = each
        outputs, pullback = net.vjp(**inputs, wrt=[*net.params, "X", "h"])
        for got, want in zip(outputs, runtime(model, {**inputs, "X": numpy.nan_to_num(inputs["X"], posinf=0)})):
            expect_equal(got, want)
        found.append(pullback(**{name: numpy.ones_like(outputs[name]) for name in net.outputs}))
    for name, want in {**found[0].params, **found[0].inputs}.items():
        assert numpy.isfinite(want).all()
        expect_equal({**found[1].params, **found[1].inputs}[name], want)


def nodes(*given):
    return [
        helper.make_node(op_type, reads.split(), [gives], **attributes) for op_type, reads, gives, attributes in given
    ]


K = draw(4, low=0.5)
NETS = {
    "a product": (nodes(("MatMul", "x w", "y", {})), {"w": draw(4, 5)}),
    "one of rows": (nodes(("MatMul", "rows w", "y", {})), {"rows": draw(2, 3, 4), "w": draw(4, 5)}),
    "with a transpose": (nodes(("Transpose", "w", "t", {}), ("MatMul", "x t", "y", {})), {"w": draw(5, 4)}),
    "a transpose that others read": (
        nodes(
            ("Transpose", "w", "t", {}),
            ("MatMul", "x t", "z", {}),
            ("MatMul", "z t", "a", {}),
            ("ReduceSum", "t", "b", {}),
            ("Add", "a b", "y", {}),
        ),
        {"w": draw(4, 4)},
    ),
    "with what is computed": (
        nodes(("Mul", "w s", "v", {}), ("MatMul", "x v", "y", {})),
        {"w": draw(4, 5), "s": draw(5)},
    ),
    "of batches": (nodes(("MatMul", "a b", "y", {})), {"a": draw(2, 3, 4), "b": draw(2, 4, 5)}),
    "Gemm": (nodes(("Gemm", "x w c", "y", {"alpha": 0.5, "beta": 2.0})), {"w": draw(4, 5), "c": draw(5)}),
    "Gemm, transposed": (nodes(("Gemm", "x w", "y", {"transB": 1})), {"w": draw(5, 4)}),
    "one weight, three times": (
        nodes(
            ("MatMul", "x w", "a", {}),
            ("Gemm", "a w", "b", {"transB": 1}),
            ("ReduceSum", "w", "c", {}),
            ("Add", "b c", "y", {}),
        ),
        {"w": draw(4, 4)},
    ),
    "the greatest of a dimension": (
        nodes(
            ("Mul", "x w", "a", {}),
            ("ReduceMax", "a", "b", {"axes": [0]}),
            ("ReduceMin", "a", "c", {"axes": [0, 1], "keepdims": 1}),
            ("Add", "b c", "y", {}),
        ),
        {"w": draw(4)},
    ),
    "BatchNormalization": (
        nodes(("BatchNormalization", "x g b m v", "y", {})),
        {"g": draw(4), "b": draw(4) + 1, "m": draw(4) - 1, "v": K},
    ),
    "BatchNormalization of images": (
        nodes(("Reshape", "x shape", "r", {}), ("BatchNormalization", "r g b m v", "y", {"epsilon": 0.1})),
        {"shape": ints(3, 2, 2, 1), "g": K[:2], "b": K[1:3], "m": K[2:], "v": K[:2] + 1},
    ),
    "InstanceNormalization": (
        nodes(("Reshape", "x shape", "r", {}), ("InstanceNormalization", "r g b", "y", {})),
        {"shape": ints(1, 3, 4), "g": draw(3), "b": draw(3) + 1},
    ),
    "sums up to a place": (
        nodes(("Mul", "x w", "a", {}), ("CumSum", "a axis", "y", {"exclusive": 1})),
        {"w": draw(4), "axis": numpy.array(0)},
    ),
    "triangles": (
        nodes(("Mul", "x w", "a", {}), ("Trilu", "a k", "y", {"upper": 0})),
        {"w": draw(4), "k": numpy.array(1)},
    ),
    "padding": (
        nodes(("Mul", "x w", "a", {}), ("Pad", "a pads", "y", {})),
        {"w": draw(4), "pads": ints(1, 2, 0, -1)},
    ),
    "padding by edges": (
        nodes(("Mul", "x w", "a", {}), ("Pad", "a pads", "y", {"mode": "edge"})),
        {"w": draw(4), "pads": ints(1, 2, 0, 3)},
    ),
    "padding by reflection": (
        nodes(("Mul", "x w", "a", {}), ("Pad", "a pads", "y", {"mode": "reflect"})),
        {"w": draw(4), "pads": ints(2, 0, 1, 3)},
    ),
    "vectors": (
        nodes(
            ("MatMul", "x w", "a", {}), ("MatMul", "a v", "b", {}), ("Mul", "x b", "c", {}),
            ("Unsqueeze", "c axes", "d", {}), ("MatMul", "v d", "y", {}),
        ),
        {"w": draw(4), "v": draw(3), "axes": ints(0)},
    ),
    "LayerNormalization by ones": (
        nodes(("LayerNormalization", "x g b", "y", {})),
        {"g": numpy.ones(4, "float32"), "b": numpy.zeros(4, "float32")},
    ),
    "Conv": (
        nodes(("Reshape", "x shape", "r", {}), ("Conv", "r w b", "y", {})),
        {"shape": ints(1, 3, 4), "w": draw(2, 3, 2), "b": draw(2)},
    ),
    "an embedding that is the output's weight, too": (
        nodes(("Gather", "w at", "e", {}), ("Mul", "e x", "f", {}), ("Gemm", "f w", "y", {"transB": 1})),
        {"w": draw(6, 4), "at": ints(0, 5, 0)},
    ),
}


@pytest.mark.parametrize("given, constants", NETS.values(), ids=NETS)
def test_gradients_are_by_the_initializers(given, constants, tmp_path):
    expect_gradients(
        model_of(given, {"x": draw(3, 4)}, {"y": TensorProto.FLOAT}, constants), {"x": draw(3, 4)}, tmp_path
    )


@pytest.mark.parametrize("batch", [2, 1])
def test_products_of_batches_of_any_size_have_gradients(batch, tmp_path):
    a, w = draw(batch, 3, 4), draw(2, 4, 5)
    product = nodes(("MatMul", "a w", "y", {}))
    model = model_of(product, {"a": a}, {"y": TensorProto.FLOAT}, {"w": w}, sizes={"a": ["B", 3, 4]})
    expect_gradients(model, {"a": a}, tmp_path)
    sizes = {"a": ["B", 3, 4], "w": ["B", 4, 5]}
    net = loaded(model_of(product, {"a": a, "w": w}, {"y": TensorProto.FLOAT}, sizes=sizes), tmp_path)
    _, gradients = net.value_and_grad("y", a=draw(2, 3, 4), w=w)
    expect_equal(gradients.inputs["a"], numpy.repeat(w.sum(axis=2)[:, None], 3, axis=1))


def test_constants_are_no_parameters(tmp_path):
    """Neither those of nodes named Constant, nor those that the loader needs, nor, once exported, the exporter's."""
    one = helper.make_node("Constant", [], ["one"], value=numpy_helper.from_array(numpy.ones(1, "float32")))
    model = model_of(
        [
            one,
            *nodes(("Sub", "one x", "a", {}), ("ThresholdedRelu", "a", "b", {"alpha": 0.2}), ("Mul", "b w", "y", {})),
        ],
        {"x": draw(3)},
        {"y": TensorProto.FLOAT},
        {"w": draw(3)},
    )
    for trip in range(2):
        net = loaded(model, tmp_path)
        assert list(net.params) == ["w"]
        assert list(net.value_and_grad("y", x=draw(3))[1].params) == ["w"]
        expect_equal(net(x=draw(3)).y, runtime(model, {"x": draw(3)})[0])
        with pytest.raises(
            stepnet.InvalidArgumentError, match="wrt names 'one', a constant of the net; its parameters are w"
        ):
            net.vjp(wrt="one", x=draw(3))
        with pytest.raises(stepnet.InvalidArgumentError, match="params names 'one', a constant of the net"):
            net.restore({"one": numpy.ones(1, "float32")})
        with pytest.raises(stepnet.InvalidArgumentError, match="params names 'one', a constant of the net"):
            stepnet.onnx.export(net, tmp_path / "x.onnx", {"one": numpy.ones(1, "float32")}, inputs={"x": draw(3)})
        stepnet.onnx.export(net, tmp_path / "again.onnx", inputs={"x": draw(3)})
        model = onnx.load(tmp_path / "again.onnx")


def test_nets_of_constants_alone_have_nothing_to_differentiate_by(tmp_path):
    one = helper.make_node("Constant", [], ["one"], value=numpy_helper.from_array(draw(3, 2)))
    model = model_of([one, *nodes(("Gather", "one x", "y", {}))], {"x": ints(0, 2)}, {"y": TensorProto.FLOAT})
    with pytest.raises(stepnet.InvalidArgumentError, match="has no parameters and no floating inputs"):
        loaded(model, tmp_path).vjp(x=ints(0, 2))


@pytest.mark.parametrize("op_type, options", UNITS.values(), ids=UNITS)
def test_changed_parameters_are_those_of_the_next_call_and_of_an_export(op_type, options, random, tmp_path):
    model, inputs = unit(op_type, random, **options)
    net = loaded(model, tmp_path)
    net.vjp(**inputs)
    net(**inputs)
    new = {name: array + numpy.float32(0.3) * draw(*array.shape) for name, array in net.params.items()}
    expected = runtime(with_params(model, new), inputs)
    stepnet.onnx.export(net, tmp_path / "given.onnx", new, inputs=inputs)
    net.restore(new)
    stepnet.onnx.export(net, tmp_path / "restored.onnx", inputs=inputs)
    outputs, _ = net.vjp(**inputs)
    given, restored = (session(tmp_path / f"{name}.onnx").run(None, inputs) for name in ("given", "restored"))
    for results in zip(expected, net(**inputs), outputs, given, restored):
        for got in results[1:]:
            expect_equal(got, results[0])


def test_parameters_that_look_as_if_they_could_be_set_are_read_only(tmp_path):
    net = loaded(model_of(*NETS_PRODUCT), tmp_path)
    with pytest.raises(ValueError, match="read-only"):
        net.params["w"][:] = 0
    with pytest.raises(stepnet.ShapeMismatchError, match=r'"w" is float32 \[4\]; it must be float32 \[4, 5\]'):
        net.restore({"w": draw(4)})
    with pytest.raises(stepnet.InvalidArgumentError, match='has no parameter and no state "v"'):
        net.restore({"v": draw(4)})


NETS_PRODUCT = (NETS["a product"][0], {"x": draw(3, 4)}, {"y": TensorProto.FLOAT}, {"w": draw(4, 5)})


def test_optional_inputs_have_their_default_in_gradients(tmp_path):
    model = model_of(
        nodes(("Mul", "a b", "y", {})), {"a": draw(2), "b": draw(2)}, {"y": TensorProto.FLOAT}, {"b": draw(2)}
    )
    net = loaded(model, tmp_path)
    expect_equal(net.value_and_grad("y", a=draw(2))[1].inputs["a"], draw(2))
    with pytest.raises(stepnet.InvalidArgumentError, match='the input "a" of "graph" is missing'):
        net.vjp()


# Exported again.


def results_of(file, inputs):
    return runtime(onnx.load(file), inputs)


def trips(path, inputs, dynamic_axes=None):
    """The nets of the file, and of what becomes of it when it is loaded and exported, three times."""
    for trip in range(4):
        net = stepnet.onnx.load(path)
        yield path, net
        path = path.parent / f"trip{trip}.onnx"
        stepnet.onnx.export(net, path, inputs=inputs, dynamic_axes=dynamic_axes)


def exported_by_torch(module, example, path, names, dynamic_axes):
    torch = pytest.importorskip("torch")
    with pytest.warns():
        torch.onnx.export(
            module.eval(), example, path, dynamo=False, input_names=names, output_names=["y"], dynamic_axes=dynamic_axes
        )


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_modules_of_pytorch_without_states_come_and_go(kind, tmp_path):
    """Their states are ConstantOfShape of the batch's size; one step of training is PyTorch's."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(1)
    module, path = getattr(torch.nn, kind)(3, 4), tmp_path / "module.onnx"
    axes = {"x": {0: "T", 1: "B"}}
    exported_by_torch(module, (torch.ones(5, 2, 3),), path, ["x"], axes)
    x = draw(6, 3, 3)
    want = module(torch.tensor(x))[0]
    names = {each.name for each in onnx.load(path).graph.initializer}
    for file, net in trips(path, {"x": x}, axes):
        assert set(net.params) == names
        assert loops_of(file) == [kind]
        for steps, batch in ((6, 3), (1, 1), (4, 2)):
            part = numpy.ascontiguousarray(x[:steps, :batch])
            expect_equal(net(x=part).y, module(torch.tensor(part))[0].detach().numpy())
            expect_equal(session(file).run(["y"], {"x": part})[0], module(torch.tensor(part))[0].detach().numpy())
    net = stepnet.onnx.load(path)
    want.square().sum().backward()
    with torch.no_grad():
        for each in module.parameters():
            each -= 0.1 * each.grad
    _, gradients = net.value_and_grad(lambda out: (0.0, {"y": 2 * out.y}), x=x)
    net.restore({name: array - numpy.float32(0.1) * gradients.params[name] for name, array in net.params.items()})
    expect_equal(net(x=x).y, module(torch.tensor(x))[0].detach().numpy())


def test_layers_both_ways_have_a_loop_each(tmp_path):
    torch = pytest.importorskip("torch")
    module, axes = torch.nn.GRU(3, 4, num_layers=2, bidirectional=True), {"x": {0: "T", 1: "B"}}
    exported_by_torch(module, (torch.ones(5, 2, 3),), tmp_path / "module.onnx", ["x"], axes)
    x, found = draw(6, 3, 3), []
    for file, net in trips(tmp_path / "module.onnx", {"x": x}, axes):
        expect_equal(session(file).run(["y"], {"x": x})[0], module(torch.tensor(x))[0].detach().numpy())
        found.append({name: array.shape for name, array in net.params.items()})
        names = loops_of(file)
    assert names == ["GRU"] * 4
    assert found[1] == found[2] == found[3]


def test_names_stay_where_products_have_transposes(tmp_path):
    given = nodes(("MatMul", "x w", "a", {}), ("Gemm", "a v c", "b", {"transB": 1}), ("Mul", "b c", "y", {}))
    constants = {"w": draw(4, 5), "v": draw(3, 5), "c": draw(3)}
    model, x = model_of(given, {"x": draw(2, 4)}, {"y": TensorProto.FLOAT}, constants), draw(2, 4)
    onnx.save(model, tmp_path / "model.onnx")
    for file, net in trips(tmp_path / "model.onnx", {"x": x}):
        assert {name: array.shape for name, array in net.params.items()} == {n: a.shape for n, a in constants.items()}
        expect_equal(results_of(file, {"x": x})[0], runtime(model, {"x": x})[0])


def test_a_layer_comes_back_with_its_optional_state(tmp_path):
    cell = stepnet.layers("gru", 3, 4)
    params, x, h = cell.init(seed=2), draw(5, 2, 3), draw(1, 2, 4)
    stepnet.onnx.export(cell, tmp_path / "cell.onnx", params)
    first = None
    for file, net in trips(tmp_path / "cell.onnx", {"x": x}, {"x": {0: "T", 1: "B"}}):
        assert [each.optional for each in net.arguments] == [False, True]
        assert loops_of(file) == ["GRU"]
        first = first or set(net.params)
        assert set(net.params) == first
        for inputs in ({"x": x}, {"x": x, "h_init": h}, {"x": x[:1, :1].copy()}):
            want = cell(params, **inputs).h
            expect_equal(net(**inputs).h, want)
            expect_equal(session(file).run(["h"], inputs)[0], want)


def test_loops_that_share_weights_share_them_again(tmp_path):
    given = [
        helper.make_node("LSTM", ["x", "W", "R", "B"], ["a"], hidden_size=3),
        helper.make_node("Squeeze", ["a", "one"], ["b"]),
        helper.make_node("LSTM", ["b", "W", "R", "B"], ["y"], hidden_size=3),
    ]
    constants = {"W": draw(1, 12, 3), "R": draw(1, 12, 3), "B": draw(1, 24), "one": ints(1)}
    model, x = model_of(given, {"x": draw(4, 2, 3)}, {"y": TensorProto.FLOAT}, constants), draw(4, 2, 3)
    onnx.save(model, tmp_path / "model.onnx")
    for file, net in trips(tmp_path / "model.onnx", {"x": x}):
        assert set(net.params) == {"W", "R", "B"}
        assert loops_of(file) == ["LSTM", "LSTM"]
        expect_equal(results_of(file, {"x": x})[0], runtime(model, {"x": x})[0])


OTHERS = {
    "clip": {"clip": 0.3},
    "input_forget": {"input_forget": 1},
    "activations": {"activations": ["Sigmoid", "Relu", "Tanh"]},
}


@pytest.mark.parametrize("attributes", OTHERS.values(), ids=OTHERS)
def test_other_units_come_back_as_a_scan(attributes, random, tmp_path):
    model, inputs = unit("LSTM", random, **attributes)
    onnx.save(model, tmp_path / "model.onnx")
    kinds = []
    for file, net in itertools.islice(trips(tmp_path / "model.onnx", inputs), 2):
        kinds += loops_of(file)
        assert set(net.params) == {"W", "R", "B"}
        for got, want in zip(results_of(file, inputs), runtime(model, inputs)):
            expect_equal(got, want)
    assert kinds == ["LSTM", "Scan"]


# Indices that count from the end.


def test_indices_that_are_chosen_before_count_from_both_ends(tmp_path):
    """What looks much as the loader's own counting."""
    given = [
        helper.make_node("Less", ["at", "two"], ["is_low"]),
        helper.make_node("Add", ["at", "two"], ["more"]),
        helper.make_node("Where", ["is_low", "more", "at"], ["chosen"]),
        helper.make_node("Gather", ["w", "chosen"], ["y"]),
    ]
    at = ints(-5, 1, 3)
    model = model_of(given, {"at": at}, {"y": TensorProto.FLOAT}, {"w": draw(5, 2), "two": ints(2)})
    expect_equal(loaded(model, tmp_path)(at=at).y, runtime(model, {"at": at})[0])


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_indices_that_are_inputs_count_from_both_ends(axis, dtype, tmp_path):
    at = numpy.array([[-1, 0], [2, -3]], dtype)
    model = model_of(
        [helper.make_node("Gather", ["w", "at"], ["y"], axis=axis)],
        {"at": at},
        {"y": TensorProto.FLOAT},
        {"w": draw(3, 4, 5)},
    )
    want = runtime(model, {"at": at})[0]
    onnx.save(model, tmp_path / "model.onnx")
    counts = []
    for file, net in trips(tmp_path / "model.onnx", {"at": at}):
        expect_equal(net(at=at).y, want)
        expect_equal(results_of(file, {"at": at})[0], want)
        counts.append(sum(each.op_type == "Where" for each in onnx.load(file).graph.node))
        with pytest.raises(stepnet.InvalidArgumentError, match="the data have"):
            net(at=at - 6)
    assert counts == [0, 1, 1, 1]


def test_a_graph_is_copied(tmp_path):
    net = loaded(model_of(*NETS_PRODUCT), tmp_path)
    net.restore({"w": draw(4, 5)})
    x = draw(3, 4)
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert type(other) is stepnet.onnx.Graph and other.arguments == net.arguments
        assert numpy.array_equal(other(x=x).y, net(x=x).y)
        assert numpy.array_equal(other.params["w"], net.params["w"])
