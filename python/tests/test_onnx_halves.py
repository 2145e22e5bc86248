"""Models in 16 bits: what has no kernels for them is computed in float32 and rounded, as in onnxruntime."""

import numpy
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import GATES, draw, expect_as_runtime, expect_equal, loaded, model_of, scan, session, unit
from test_onnx_load import IDS, OPERATORS, of_operator

import stepnet
import stepnet.onnx
from stepnet.onnx import halves

TAKES_NO_HALVES = {"Celu", "IsInf", "Range"}  # in ONNX, IsInf up to opset 19
NOT_REDUCED = {"ScatterElements"}  # in onnxruntime


def narrow(array, dtype="float16"):
    return array.astype(dtype) if numpy.asarray(array).dtype == "float32" else array


def in_halves(op_type, given, constants, attributes):
    fixed = {i: narrow(each) for i, each in constants.items()}
    return of_operator(op_type, [narrow(each) for each in given], fixed, attributes)


@pytest.mark.parametrize("op_type, given, constants, attributes", OPERATORS, ids=IDS)
def test_operators_in_float16_are_those_of_onnxruntime(op_type, given, constants, attributes, tmp_path):
    if op_type in TAKES_NO_HALVES:
        pytest.skip("ONNX has it in floats of 32 bits and more alone")
    if op_type in NOT_REDUCED:
        pytest.skip("onnxruntime has its reductions in float32 alone")
    expect_as_runtime(*in_halves(op_type, given, constants, attributes), tmp_path, tolerance=4e-3)


def test_the_list_of_those_without_kernels_is_as_long_as_it_must_be(monkeypatch, tmp_path):
    """Each is there because without it a call is refused, and of no other one is."""
    monkeypatch.setattr(halves, "FLOATS_ALONE", frozenset())
    refused = set()
    for op_type, given, constants, attributes in OPERATORS:
        if op_type in TAKES_NO_HALVES:
            continue
        model, inputs = in_halves(op_type, given, constants, attributes)
        try:
            loaded(model, tmp_path)(**inputs)
        except stepnet.Error:
            refused.add(op_type)
    for op_type in GATES:
        model, inputs = unit(op_type, numpy.random.default_rng(0), dtype="float16")
        try:
            loaded(model, tmp_path)(**inputs)
        except stepnet.Error:
            refused.add(op_type)
    monkeypatch.undo()
    assert refused | {"TopK"} == halves.FLOATS_ALONE  # that has two outputs, and a test below


def in_int8(op_type, given, constants, attributes):
    def short(array):
        array = numpy.asarray(array)
        return numpy.nan_to_num(array).clip(-100, 100).astype("int8") if array.dtype == given[0].dtype else array

    return of_operator(op_type, [short(each) for each in given], {i: short(each) for i, each in constants.items()}, attributes)


def refused_in_int8(tmp_path):
    """Operators that are refused when a model is read, and those that are when it is called, but for what ONNX does not allow."""
    read, called = set(), set()
    for op_type, given, constants, attributes in OPERATORS:
        if not given or given[0].dtype == bool:
            continue
        model, inputs = in_int8(op_type, given, constants, attributes)
        try:
            net = loaded(model, tmp_path)
        except stepnet.Error as error:
            if "not computed here" in str(error):
                assert "is int8, in which" in str(error) and f"at node 0 `y = {op_type}(" in str(error)
                read.add(op_type)
            continue
        try:
            net(**inputs)
        except stepnet.Error:
            called.add(op_type)
    return read, called


def test_whole_numbers_of_8_bits_are_refused_by_the_node_that_would_compute_with_them(monkeypatch, tmp_path):
    """And the list of these is as long as it must be."""
    read, called = refused_in_int8(tmp_path)
    assert called == set()
    monkeypatch.setattr(halves, "WITHOUT_SHORT_NUMBERS", halves.WITHOUT_WHOLE_NUMBERS)
    _, called = refused_in_int8(tmp_path)
    monkeypatch.undo()
    assert called | {"Where"} == halves.WITHOUT_SHORT_NUMBERS - halves.WITHOUT_WHOLE_NUMBERS  # whose first input is bool
    assert called < read


@pytest.mark.parametrize("dtype", halves.SHORT)
def test_whole_numbers_of_8_and_16_bits_are_gathered_and_cast(dtype, tmp_path):
    nodes = [
        helper.make_node("Gather", ["table", "i"], ["rows"]),
        helper.make_node("Concat", ["rows", "x"], ["both"], axis=0),
        helper.make_node("Cast", ["both"], ["wide"], to=TensorProto.INT32),
        helper.make_node("Mul", ["wide", "wide"], ["squares"]),
        helper.make_node("Cast", ["squares"], ["y"], to=TensorProto.FLOAT),
    ]
    table, x = (numpy.arange(start, start + 12).reshape(4, 3).astype(dtype) for start in (90, 3))
    inputs = {"i": numpy.array([3, 0]), "x": x}
    expect_as_runtime(model_of(nodes, inputs, {"y": TensorProto.FLOAT}, {"table": table}), inputs, tmp_path)


UNITS = {
    "plain": {},
    "lengths": {"lengths": [5, 2, 4]},
    "weights are inputs": {"constants": False},
    "no bias, no states": {"bias": False, "states": False},
    "opset 22": {"opset": 22},
}


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("options", UNITS.values(), ids=UNITS)
@pytest.mark.parametrize("op_type", GATES)
def test_units_in_float16(op_type, options, direction, random, tmp_path):
    """States are rounded where the node gives them, not in each step: one unit of float16 from onnxruntime at most."""
    model, inputs = unit(op_type, random, direction=direction, dtype="float16", steps=5, **options)
    expect_as_runtime(model, inputs, tmp_path, tolerance=5e-4)


def test_other_outputs_of_a_node(tmp_path):
    """The values have the dtype of the input, the indices one of their own."""
    x = draw(3, 4).astype("float16")
    for axis in (-1, 0):
        node = helper.make_node("TopK", ["x", "k"], ["values", "indices"], axis=axis)
        outputs = {"values": TensorProto.FLOAT16, "indices": TensorProto.INT64}
        expect_as_runtime(model_of([node], {"x": x}, outputs, {"k": numpy.array([2])}), {"x": x}, tmp_path)


def test_weights_that_are_transposed_and_those_that_are_no_parameters(random, tmp_path):
    weights = {"w": draw(5, 4).astype("float16")}
    nodes = [
        helper.make_node("Constant", [], ["v"], value=numpy_helper.from_array(draw(5, 2).astype("float16"))),
        helper.make_node("Transpose", ["w"], ["wt"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "wt"], ["a"]),
        helper.make_node("MatMul", ["a", "v"], ["y"]),
        helper.make_node("MatMul", ["x", "wt"], ["z"]),
    ]
    model = model_of(nodes, {"x": draw(3, 4).astype("float16")}, dict.fromkeys("yz", TensorProto.FLOAT16), weights)
    inputs = {"x": draw(3, 4).astype("float16")}
    expect_as_runtime(model, inputs, tmp_path, tolerance=2e-3)
    net = loaded(model, tmp_path)
    assert [(name, str(array.dtype)) for name, array in net.params.items()] == [("w", "float16")]
    assert "Transpose(" not in stepnet.show(net)  # products take w itself


def test_products_in_a_body(random, tmp_path):
    """A weight is widened once, before the loop, what a step computes in each step."""
    nodes = [
        helper.make_node("MatMul", ["x_t", "w"], ["a"]),
        helper.make_node("MatMul", ["h_in", "u"], ["b"]),
        helper.make_node("Add", ["a", "b"], ["c"]),
        helper.make_node("Tanh", ["c"], ["h_out"]),
    ]
    weights = {"w": draw(4, 3).astype("float16"), "u": draw(3, 3).astype("float16")}
    states, scanned = {"h": draw(2, 3).astype("float16")}, {"x": draw(5, 2, 4).astype("float16")}
    model, inputs = scan(nodes, states, scanned, {}, random, weights)
    expect_as_runtime(model, inputs, tmp_path, tolerance=2e-3)
    before, step = stepnet.show(loaded(model, tmp_path)).split("RecurrentNetwork", 1)
    assert before.count("Cast(") == 2 and step.count("Cast(") >= 2


def test_gradients_have_16_bits(random, tmp_path):
    """Those of the same model in float32, rounded."""
    model, inputs = unit("GRU", random, dtype="float16")
    net, wide = loaded(model, tmp_path), loaded(in_float32(model), tmp_path)
    of_y = draw(5, 1, 3, 4)

    def gradients(net, dtype):
        given = {name: array.astype(dtype) for name, array in inputs.items()}
        loss = lambda out: (0.0, {"Y": of_y.astype("float16").astype(dtype)})  # noqa: E731
        found = net.value_and_grad(loss, wrt=["X", "h", *net.params], **given)[1]
        return {**found.inputs, **found.params}

    found = gradients(net, "float16")
    assert found.keys() == {"X", "h", "W", "R", "B"}
    for name, gradient in gradients(wide, "float32").items():
        expect_equal(found[name], gradient.astype("float16"), tolerance=2e-3)
    net.restore({name: array - found[name] for name, array in net.params.items()})
    assert all(array.dtype == "float16" for array in net.params.values())


def in_float32(model):
    """The same model, and the same elements, in float32."""
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    for info in (*wide.graph.input, *wide.graph.output):
        if info.type.tensor_type.elem_type == TensorProto.FLOAT16:
            info.type.tensor_type.elem_type = TensorProto.FLOAT
    for tensor in wide.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype("float32"), tensor.name))
    return wide


def test_units_in_float16_go_back(random, tmp_path):
    model, inputs = unit("LSTM", random, dtype="float16")
    net = loaded(model, tmp_path)
    stepnet.onnx.export(net, tmp_path / "back.onnx", inputs=inputs)
    for got, want in zip(session(tmp_path / "back.onnx").run(None, inputs), net(**inputs)):
        expect_equal(got, want, tolerance=5e-4)
    for got, want in zip(stepnet.onnx.load(tmp_path / "back.onnx")(**inputs), net(**inputs)):
        expect_equal(got, want, tolerance=5e-4)


def test_bfloat16(tmp_path):
    """As inputs, parameters and outputs; the elements are those of float32, rounded. onnxruntime has it on no CPU."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    if helper.tensor_dtype_to_np_dtype(TensorProto.BFLOAT16) != ml_dtypes.bfloat16:
        pytest.skip("this onnx gives float32 for it")
    x, w = (draw(*shape).astype(ml_dtypes.bfloat16) for shape in ((3, 4), (4, 5)))
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Tanh", ["p"], ["y"])]
    infos = [helper.make_tensor_value_info(name, TensorProto.BFLOAT16, shape) for name, shape in (("x", [3, 4]), ("y", [3, 5]))]
    graph = helper.make_graph(nodes, "graph", infos[:1], infos[1:], [numpy_helper.from_array(w, "w")])
    net = loaded(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path)
    assert net.arguments[0].dtype == net.params["w"].dtype == "bfloat16"
    product = (x.astype("float32") @ w.astype("float32")).astype(ml_dtypes.bfloat16).astype("float32")
    got = net(x=x).y
    assert got.dtype == "bfloat16"
    expect_equal(got.numpy(), numpy.tanh(product).astype(ml_dtypes.bfloat16).astype("float32"), tolerance=4e-3)
    ones = numpy.ones((3, 5), ml_dtypes.bfloat16)
    _, gradients = net.value_and_grad(lambda out: (0.0, {"y": ones}), wrt="w", x=x)
    expect_equal(gradients.params["w"].numpy(), x.astype("float32").T @ (1 - got.numpy() ** 2), tolerance=2e-2)
    with pytest.raises(stepnet.InvalidArgumentError, match="loss names 'y', which is bfloat16, .*; give a function"):
        net.value_and_grad("y", x=x)
    with pytest.raises(stepnet.TypeMismatchError, match="the parameter 'w' is bfloat16, in which nothing is exported"):
        stepnet.onnx.export(net, tmp_path / "back.onnx", inputs={"x": x})


@pytest.mark.parametrize("kind", ["FLOAT8E5M2", "FLOAT8E4M3FN", "COMPLEX64", "INT4", "UINT32", "UINT64"])
def test_dtypes_that_no_tensor_has_are_refused(kind, tmp_path):
    if not hasattr(TensorProto, kind):
        pytest.skip(f"this onnx has no {kind}")
    dtype = getattr(TensorProto, kind)
    infos = [helper.make_tensor_value_info(name, dtype, [2]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "graph", infos[:1], infos[1:])
    with pytest.raises(stepnet.InvalidNetError, match=f'the input "x" is .*{kind}'):
        loaded(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), tmp_path)


@pytest.mark.parametrize("is_first", [True, False])
def test_names_as_those_of_tensors_in_float32(is_first, tmp_path):
    """A graph and a body have them for other tensors, before and behind the product that makes one."""
    half, single = TensorProto.FLOAT16, TensorProto.FLOAT
    other, product = (
        helper.make_node("Identity", ["v_t"], ["w as float32"]),
        helper.make_node("MatMul", ["x_t", "w"], ["y_t"]),
    )
    nodes = [other, product] if is_first else [product, other]
    nodes.append(helper.make_node("Tanh", ["w as float32"], ["z_t"]))
    x, v, weights = narrow(draw(3, 1, 2)), draw(3, 2, 2), {"w": narrow(draw(2, 2))}
    outputs = {
        "y": helper.make_tensor_value_info("y_t", half, [1, 2]),
        "z": helper.make_tensor_value_info("z_t", single, [2, 2]),
    }
    made = scan(nodes, {}, {"x": x, "v": v}, outputs, numpy.random.default_rng(0), weights)
    expect_as_runtime(*made, tmp_path, tolerance=4e-3)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["x as float32"]),
        helper.make_node("MatMul", ["x as float32", "w"], ["y"]),
    ]
    expect_as_runtime(model_of(nodes, {"x": x}, {"y": half}, weights), {"x": x}, tmp_path, tolerance=4e-3)
