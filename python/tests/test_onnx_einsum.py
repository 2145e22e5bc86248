"""Einsum of ONNX: what is computed is onnxruntime's, and gradients are NumPy's."""

import re

import numpy
import pytest
from onnx import TensorProto, helper
from onnx_models import draw, expect_as_runtime, loaded, model_of, refusal

EQUATIONS = {  # with the operators that it becomes where sizes are known, each once
    "ij,jk->ik": ([(3, 4), (4, 5)], "FC Transpose"),
    "ij,kj": ([(3, 4), (5, 4)], "FC"),
    "ij->ji": ([(3, 4)], "Transpose"),
    "ij->i": ([(3, 4)], "ReduceSum"),
    "ij->": ([(3, 4)], "ReduceSum"),
    "ij->ij": ([(3, 4)], "Copy"),
    "i,i->": ([(3,), (3,)], "ExpandDims FC Squeeze"),
    "i,j->ij": ([(3,), (4,)], "ExpandDims Mul"),
    "ij,ij->ij": ([(3, 4), (3, 4)], "Mul"),
    "ij,ij->i": ([(3, 4), (3, 4)], "BatchMatMul ExpandDims Squeeze"),
    "bhqd,bhkd->bhqk": ([(2, 3, 4, 5), (2, 3, 6, 5)], "BatchMatMul"),
    "bqhd,bkhd->bhqk": ([(2, 4, 3, 5), (2, 6, 3, 5)], "BatchMatMul Transpose"),
    "bhqk,bkhd->bqhd": ([(2, 3, 4, 6), (2, 6, 3, 5)], "BatchMatMul Transpose"),
    "btd,hkd->bthk": ([(2, 3, 4), (5, 6, 4)], "FC Reshape"),
    "bthk,dhk->btd": ([(2, 3, 4, 5), (6, 4, 5)], "FC"),
    "abcd,acd->ab": ([(2, 3, 4, 5), (2, 4, 5)], "BatchMatMul ExpandDims Reshape Squeeze"),
    "bij,bklj->bikl": ([(2, 3, 4), (2, 5, 6, 4)], "BatchMatMul ExpandDims Transpose"),
    "bijc,bc->bij": ([(2, 3, 4, 5), (2, 5)], "BatchMatMul ExpandDims Squeeze"),
    "bik,bj->b": ([(2, 3, 4), (2, 5)], "Mul ReduceSum"),
    "...ij,jk->...ik": ([(2, 3, 4, 5), (5, 6)], "FC Transpose"),
    "...i,...i": ([(2, 3, 4), (2, 3, 4)], "BatchMatMul ExpandDims Squeeze"),
    "i...->...": ([(3, 4, 5)], "ReduceSum"),
    "bii->b": ([(2, 4, 4)], "EQ ReduceSum Where"),
    "iji,j->ji": ([(3, 4, 3), (4,)], "EQ ExpandDims Mul ReduceSum Transpose Where"),
    "ij,jk,kl->il": ([(2, 3), (3, 4), (4, 5)], "FC Transpose"),
    "bik, bjk, bk -> bij": ([(2, 3, 4), (2, 5, 4), (2, 4)], "BatchMatMul ExpandDims Mul Squeeze Transpose"),
}


def einsum_of(equation, shapes, fixed=(), are_known=True):
    arrays = {f"x{i}": draw(*shape) for i, shape in enumerate(shapes)}
    given = {name: array for name, array in arrays.items() if name not in fixed}
    sizes = {} if are_known else {name: [f"{name}_{i}" for i in range(array.ndim)] for name, array in given.items()}
    node = helper.make_node("Einsum", list(arrays), ["y"], equation=equation)
    weights = {name: arrays[name] for name in fixed if name in arrays}
    return model_of([node], given, {"y": TensorProto.FLOAT}, weights, sizes=sizes), given, arrays


@pytest.mark.parametrize("are_known", [True, False], ids=["sizes known", "not known"])
@pytest.mark.parametrize("fixed", [(), ("x1",)], ids=["inputs", "a weight"])
@pytest.mark.parametrize("equation", EQUATIONS)
def test_einsum(equation, fixed, are_known, tmp_path):
    shapes, operators = EQUATIONS[equation]
    model, inputs, arrays = einsum_of(equation, shapes, fixed, are_known)
    expect_as_runtime(model, inputs, tmp_path)
    net = loaded(model, tmp_path)
    if are_known:
        assert " ".join(sorted({*re.findall(r'type: "(\w+)"', net._text)})) == operators
    outputs, pullback = net.vjp(**inputs)
    weights = draw(*outputs.y.shape)
    gradients = pullback(y=weights)
    for name, array in arrays.items():
        direction = draw(*array.shape)[::-1].copy()  # of each operand it is linear in
        slope = (numpy.einsum(equation.replace(" ", ""), *({**arrays, name: direction}).values()) * weights).sum()
        gradient = (gradients.params if name in fixed else gradients.inputs)[name]
        assert gradient.shape == array.shape
        assert abs((gradient * direction).sum() - slope) < 1e-4 * (1 + abs(slope)), name


@pytest.mark.parametrize(
    "equation, shapes, message",
    [
        ("ij,jk->i1", [(2, 3), (3, 4)], "its equation is 'ij,jk->i1'; it must be letters and ellipses, as in"),
        ("ij->ij", [(2, 3), (2, 3)], "its equation 'ij->ij' has 1 terms, and it has 2 inputs"),
        ("ij->ik", [(2, 3)], "its output must have labels of its inputs, each once"),
        ("ij->ii", [(2, 3)], "its output must have labels of its inputs, each once"),
        ("...i->i", [(2, 3)], "and their ellipsis"),
        ("i......->i", [(2, 3)], "its equation is 'i......->i'; it must be letters and ellipses"),
        ("ijk->i", [(2, 3)], "its term 'ijk' has 3 labels; its input 'x0' has 2 dimensions"),
        ("i->i", [(2, 3)], "its term 'i' has 1 labels; its input 'x0' has 2 dimensions"),
    ],
)
def test_equations_that_are_none(equation, shapes, message, tmp_path):
    assert message in refusal(einsum_of(equation, shapes)[0], tmp_path)


def test_einsum_of_whole_numbers_is_refused(tmp_path):
    node = helper.make_node("Einsum", ["x"], ["y"], equation="ij->i")
    model = model_of([node], {"x": draw(2, 3, dtype="int64")}, {"y": TensorProto.INT64})
    assert 'its input "x" is int64, in which Einsum is not computed here' in refusal(model, tmp_path)
