"""A model of ONNX whose tensors are large is read in little time and memory, and small sizes follow from others all the same."""

import resource
import subprocess
import sys
import time

import numpy
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import draw, ints, model_of

import stepnet.onnx
from stepnet.onnx.handed_on import infer_bounded
from stepnet.onnx.scope import sizes_of

LARGE = 10**9
ONES = numpy_helper.from_array(numpy.array([1], "int64"))


def node(op_type, inputs, output, **attributes):
    return helper.make_node(op_type, inputs.split(), [output], **attributes)


SIZES = [node("Shape", "x", "s"), node("Mul", "s large", "n"), node("Squeeze", "n", "number")]
"""n: one size, 3 * 10^9."""

FILLED = node("ConstantOfShape", "n", "v", value=ONES)
GRAPHS = {
    "Concat": [node("Shape", "x", "v0"), *(node("Concat", f"v{i} v{i}", f"v{i + 1}", axis=0) for i in range(40)), node("Identity", "v40", "v")],
    "Concat of many": [
        node("Shape", "x", "v0"), *(node("Concat", " ".join([f"v{i}"] * 1000), f"v{i + 1}", axis=0) for i in range(3)), node("Identity", "v3", "v"),
    ],
    "Range": [*SIZES, node("Range", "zero number one", "v")],
    "Range of constants": [node("Range", "zero large_number one", "v")],
    "ConstantOfShape": [*SIZES, FILLED],
    "Expand": [*SIZES, node("Expand", "s n", "v")],
    "Expand of a number": [*SIZES, node("Expand", "one n", "v")],
    "Tile": [*SIZES, node("Tile", "s n", "v")],
    "Gather": [*SIZES, node("Expand", "zero n", "i"), node("Gather", "s i", "v")],
    "Slice": [*SIZES, node("ConstantOfShape", "n", "w", value=ONES), node("Slice", "w zeros large", "v")],
    "Squeeze": [*SIZES, node("Concat", "s n", "n2", axis=0), node("ConstantOfShape", "n2", "w", value=ONES), node("Reshape", "w last", "v")],
    "one behind the other": [
        node("Shape", "x", "n0"),
        *(each for i in range(500) for each in (node("Expand", f"one n{i}", f"w{i}"), node("Add", f"w{i} w{i}", f"z{i}"), node("Shape", f"z{i}", f"n{i + 1}"))),
        node("Identity", "n500", "v"),
    ],
    "a chain": [*SIZES, FILLED, node("Cast", "v", "v1", to=TensorProto.INT32), node("Cast", "v1", "v2", to=TensorProto.INT64), node("Add", "v2 v2", "v3")],
}  # fmt: skip


def graph_of(nodes, name, x):
    """A graph that gives its input, and whose nodes hand on the elements of v."""
    nodes = [*nodes, node("Add", "v v", "sum"), node("ConstantOfShape", "sum", "filled"), node("Identity", x, f"{x}_out")]
    constants = {"large": [LARGE], "large_number": LARGE, "zero": 0, "zeros": [0], "one": 1, "last": [-1]}
    initializers = [numpy_helper.from_array(numpy.array(value, "int64"), name) for name, value in constants.items()]
    value = helper.make_tensor_value_info
    return helper.make_graph(nodes, name, [value(x, 1, [3])], [value(f"{x}_out", 1, [3])], initializers)


def content_of(kind, in_body):
    nodes = GRAPHS[kind]
    if not in_body:
        graph = graph_of(nodes, "g", "x")
    else:
        scan = helper.make_node("Scan", ["xs"], ["ys"], body=graph_of(nodes, "body", "x"), num_scan_inputs=1)
        value = helper.make_tensor_value_info
        graph = helper.make_graph([scan], "g", [value("xs", 1, [2, 3])], [value("ys", 1, [2, 3])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8).SerializeToString()


def load_all():
    """Reads all of them in a process that has no more than 4 GB."""
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    for in_body in (False, True):
        for kind in GRAPHS:
            start = time.process_time()
            try:
                stepnet.onnx.load(content_of(kind, in_body))
            except stepnet.InvalidNetError as error:
                assert "finds no memory" not in str(error), kind
            assert time.process_time() - start < 5, kind
            assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 1 << 20, kind  # in KB


def test_elements_of_large_tensors_take_neither_time_nor_memory():
    """What onnx did with them took all memory."""
    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("count, is_seen", [(3, True), (4096, True), (4097, False)])
def test_sizes_follow_from_vectors_whose_sizes_follow(count, is_seen):
    """Those of y from elements of "ones", of which there are as many as elements of n say."""
    nodes = [
        node("Shape", "x", "s"),
        node("Mul", "s two", "n"),
        node("Sub", "n s", "m"),
        node("ConstantOfShape", "m", "ones", value=ONES),
        node("Shape", "ones", "sizes"),
        node("Mul", "sizes two", "twice"),
        node("Slice", "ones zero two", "few"),
        node("Concat", "few twice", "of_y", axis=0),
        node("ConstantOfShape", "of_y", "y"),
    ]
    given = {"zero": ints(0), "two": ints(2)}
    inferred = infer_bounded(model_of(nodes, {"x": draw(count)}, {"y": TensorProto.FLOAT}, given))
    sizes = {each.name: sizes_of(each.type.tensor_type) for each in (*inferred.graph.value_info, *inferred.graph.output)}
    assert sizes["ones"] == [count]
    assert sizes["y"] == ([None, None, 2 * count] if is_seen else None)
    assert sizes["sizes"] == [1]


if __name__ == "__main__":
    load_all()
