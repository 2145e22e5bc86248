"""Arguments and options that are refused by name."""

import importlib.util
import inspect
import pickle
import re
import subprocess
import sys
import textwrap
import warnings

import numpy
import pytest
from conftest import ROOT, refuses

import stepnet
from stepnet import _stepnet

X = numpy.zeros((2, 3, 5), "float32")


def test_sizes_and_options_that_there_are_not(cells):
    path = cells / "lstm.cell"
    refuses(lambda: stepnet.cell(path, K=3), stepnet.InvalidArgumentError, "K")
    refuses(lambda: stepnet.cell(path, H=0), stepnet.InvalidArgumentError, "the size H is 0, must be above 0")
    refuses(lambda: stepnet.cell(path, H=2.5), stepnet.TypeMismatchError, "the size H is 2.5; it must be a whole number")
    refuses(lambda: stepnet.cell(path, H=True), stepnet.TypeMismatchError, "the size H is True")
    refuses(lambda: stepnet.cell(path, H=10**30), stepnet.TypeMismatchError, "the size H is 1000")
    refuses(lambda: stepnet.cell(path, threads=-1), stepnet.InvalidArgumentError, "threads is -1; it must be between 0")
    refuses(lambda: stepnet.cell(path, opt_level=9), stepnet.InvalidArgumentError, "opt_level is 9; it must be between 0 and 2")
    refuses(lambda: stepnet.cell(path, device="tpu"), stepnet.InvalidArgumentError, "tpu")


LONG = 10**5000  # has more digits than most versions of Python print


WHOLE = "; it must be a whole number of 64 bits"


TRUTH = "; it must be True or False"


TEXT = "; it must be a text"


@pytest.mark.parametrize(
    "options, message",
    [
        ({"threads": "4"}, "threads is '4'" + WHOLE),
        ({"threads": 2.0}, "threads is 2.0" + WHOLE),
        ({"threads": True}, "threads is True" + WHOLE),
        ({"threads": None}, "threads is None" + WHOLE),
        ({"threads": 10**30}, f"threads is {10**30}" + WHOLE),
        ({"threads": LONG}, "threads is an int of 16610 bits" + WHOLE),
        ({"threads": 10**400}, "threads is an int of 1329 bits" + WHOLE),
        ({"dtype": 10**400}, "dtype is an int of 1329 bits; it must be float32 or float64"),
        ({"seed": LONG}, "seed is an int of 16610 bits; it must be a whole number from 0 on, of 64 bits"),
        ({"device": LONG}, "device is an int of 16610 bits" + TEXT),
        ({"training": LONG}, "training is an int of 16610 bits" + TRUTH),
        ({"sizes": LONG}, "sizes is an int of 16610 bits; it must be a dictionary of whole numbers by name"),
        ({"H": LONG}, "the size H is an int of 16610 bits; it must be a whole number"),
        ({"dtype": LONG}, "dtype is an int of 16610 bits; it must be float32 or float64"),
        ({"opt_level": [2]}, "opt_level is [2]" + WHOLE),
        ({"seed": -1}, "seed is -1; it must be a whole number from 0 on, of 64 bits"),
        ({"seed": "x"}, "seed is 'x'; it must be a whole number from 0 on, of 64 bits"),
        ({"device": 0}, "device is 0" + TEXT),
        ({"device": None}, "device is None" + TEXT),
        ({"training": 1}, "training is 1" + TRUTH),
        ({"carry": "yes"}, "carry is 'yes'" + TRUTH),
        ({"sizes": 3}, "sizes is 3; it must be a dictionary of whole numbers by name"),
        ({"dtype": "float16"}, "dtype is 'float16'; it must be float32 or float64"),
        ({"dtype": "flaot32"}, "dtype is 'flaot32'; it must be float32 or float64"),
        ({"dtype": None}, "dtype is None; it must be float32 or float64"),
    ],
)
def test_options_of_another_type_are_named_with_what_they_must_be(cells, options, message):
    refuses(lambda: stepnet.cell(cells / "lstm.cell", **options), stepnet.TypeMismatchError, message)
    cell = stepnet.cell(cells / "lstm.cell", D=5, H=4)
    refuses(lambda: cell.with_options(**options), stepnet.TypeMismatchError, message)


def test_arguments_of_another_type_are_named_with_what_they_must_be(lstm, cells, tmp_path):
    path, params, model = cells / "lstm.cell", lstm.init(), ROOT / "examples" / "char_lm" / "net.pb"
    for call, message in [
        (lambda: stepnet.cell(3), "the source is 3; it must be a text or a path"),
        (lambda: lstm([params], x=X), "params is a list; it must be a dictionary of arrays by name"),
        (lambda: lstm.init(seed=1.5), "seed is 1.5; it must be a whole number from 0 on"),
        (lambda: lstm.vjp(params, wrt=3, x=X), "wrt is 3; it must be a name or names"),
        (lambda: lstm.vjp(params, wrt=["w", 3], x=X), "a name of wrt is 3" + TEXT),
        (lambda: lstm.vjp(params, wrt=numpy.zeros(()), x=X), "wrt is an ndarray float64 []; it must be a name or names"),
        (lambda: lstm.vjp(params, wrt=range(10**12), x=X), "a name of wrt is 0" + TEXT),
        (lambda: lstm.explain(params, gradients="all", x=X), "gradients is 'all'" + TRUTH),
        (lambda: lstm.explain(params, format=3, x=X), "format is 3" + TEXT),
        (lambda: stepnet.load(3), "net is 3; it must be a text or a path"),
        (lambda: stepnet.load(model, init=b"x"), "init is b'x'; it must be a text or a path"),
        (lambda: stepnet.load(model, threads="4"), "threads is '4'" + WHOLE),
        (lambda: stepnet.train_net(model, loss=None), "loss is None" + TEXT),
        (lambda: stepnet.train_net(model, loss="y", parameters=["w", None]), "a name of parameters is None" + TEXT),
        (lambda: stepnet.train_net(model, loss="y", parameters=7), "parameters is 7; it must be a name or names"),
        (lambda: stepnet.train_net(model, loss="y", momentum=None), "momentum is None; it must be a number"),
        (lambda: stepnet.train_net(model, loss="y", momentum=LONG), "momentum is an int of 16610 bits; it must be a number"),
        (lambda: lstm.vjp(params, x=X, gradient_requests={"w": LONG}), 'says for "w" an int of 16610 bits; it must be "write"'),
        (lambda: lstm.vjp(params, x=X, wrt=[LONG]), "a name of wrt is an int of 16610 bits" + TEXT),
        (lambda: lstm.value_and_grad(params, ["h", LONG], x=X), "a name of loss is an int of 16610 bits" + TEXT),
        (lambda: lstm.vjp(params, x=X)[1]({LONG: X}, h=X), "a name of into is an int of 16610 bits" + TEXT),
        (lambda: stepnet.set_max_memory(LONG), "bytes is an int of 16610 bits" + WHOLE),
        (lambda: stepnet.layers("gru", LONG, 4), "input_size is an int of 16610 bits" + WHOLE),
        (lambda: stepnet.load_params(7), "path is 7; it must be a path"),
        (lambda: stepnet.load_params("x.npz", widen="no"), "widen is 'no'" + TRUTH),
        (lambda: stepnet.save_params([X], tmp_path / "x.npz"), "params is a list; it must be a dictionary of arrays"),
        (lambda: stepnet.save_params(params, None), "path is None; it must be a path"),
        (lambda: stepnet.expand(path, init="no"), "init is 'no'" + TRUTH),
        (lambda: stepnet.show(path, format=None), "format is None" + TEXT),
        (lambda: stepnet.layers("gru", "5", 4), "input_size is '5'; it must be a whole number"),
        (lambda: stepnet.layers(X, 5, 4), f"mode is an ndarray float32 {list(X.shape)}" + TEXT),
        (lambda: stepnet.layers([1, 2], 5, 4), "mode is [1, 2]" + TEXT),
        (lambda: stepnet.layers("gru", X, 4), f"input_size is an ndarray float32 {list(X.shape)}" + WHOLE),
        (lambda: lstm.vjp(params, x=X, wrt=memoryview(X)), "wrt is a memoryview; it must be a name or names"),
        (lambda: stepnet.layers("gru", 5, 4, num_layers=True), "num_layers is True; it must be a whole number"),
        (lambda: stepnet.layers("gru", 5, 4, dropout="0"), "dropout is '0'; it must be a number"),
        (lambda: stepnet.layers("gru", 5, 4, bidirectional=2), "bidirectional is 2; it must be True or False"),
        (lambda: stepnet.check(path, sizes="H=3"), "sizes is 'H=3'; it must be a dictionary of whole numbers by name"),
    ]:
        refuses(call, stepnet.TypeMismatchError, message)


def test_arguments_in_another_order_are_named_by_type_and_shape(lstm, tmp_path):
    params, gru = lstm.init(), stepnet.layers("gru", 3, 4)
    vector = numpy.zeros(108, "float32")
    for call, message in [
        (lambda: stepnet.packed.split(gru, vector), "the cell is an ndarray float32 [108]; it must be one that stepnet.layers"),
        (lambda: stepnet.packed.join(gru, params), "the cell is a dict; it must be one that stepnet.layers"),
        (lambda: stepnet.to_torch(params, gru), "the cell is a dict; it must be one that stepnet.layers"),
        (lambda: stepnet.save_params(tmp_path / "x.npz", params), "path is a dict; it must be a path"),
        (lambda: lstm(X, params), f"params is an ndarray float32 {list(X.shape)}; it must be a dictionary of arrays by name"),
        (lambda: lstm(params, X), "it must be a dictionary of arrays by name, {'x': x}, or each array is given by name: x=x"),
    ]:
        refuses(call, stepnet.TypeMismatchError, message)


def test_what_was_meant_is_suggested(cells, lstm):
    out = lstm(lstm.init(), x=X)
    with pytest.raises(AttributeError, match="no output 'hlast'; outputs are h, h_last, c_last; did you mean h_last[?]"):
        out.hlast
    with pytest.raises(KeyError, match="no output 'clast'; outputs are h, h_last, c_last; did you mean c_last[?]"):
        out["clast"]
    assert not hasattr(out, "other")
    two = stepnet.layers("lstm", 5, 4, num_layers=2)
    out = two(two.init(), x=X)
    with pytest.raises(AttributeError, match=r"found as out\['layer0/h_last'\], or as out.layer0_h_last$"):
        getattr(out, "layer0/h_last")
    with pytest.raises(AttributeError, match="did you mean layer0_h_last[?]$"):
        getattr(out, "layer0/h_lst")
    text = (cells / "lstm.cell").read_text()
    for call, message in [
        (lambda: stepnet.expand(text, inti=True), "the size inti is True; it must be a whole number; did you mean init?"),
        (lambda: stepnet.expand(text, cary=1), "has no size cary; did you mean carry?; its sizes are D, H"),
        (lambda: stepnet.show(text, fromat="dot"), "the size fromat is 'dot'; it must be a whole number; did you mean format?"),
        (lambda: stepnet.check(text, size={}), "the size size is {}; it must be a whole number; did you mean sizes?"),
        (lambda: stepnet.cell(text, H=10**30), f"the size H is {10**30}; it must be a whole number of 64 bits"),
    ]:
        with pytest.raises((stepnet.TypeMismatchError, stepnet.InvalidArgumentError), match=re.escape(message)):
            call()
    refuses(lambda: stepnet.cell(cells / "lstm.cell", thread=2), stepnet.InvalidArgumentError, "no size thread; did you mean threads?")
    for source in (cells / "lstm.cell", (cells / "lstm.cell").read_text()):
        refuses(lambda: stepnet.cell(source, hidden=2), stepnet.InvalidArgumentError, "has no size hidden; its sizes are D, H")
        refuses(
            lambda: stepnet.cell(source, trace="a.json"),
            stepnet.TypeMismatchError,
            "the size trace is 'a.json'; it must be a whole number; but the cell has no size trace; its sizes are D, H",
        )
        for given, meant in {"bidirectional": "direction", "num_layers": "layers"}.items():
            message = f"has no size {given}; it is the option {meant}"
            refuses(lambda: stepnet.cell(source, **{given: 0.5}), stepnet.TypeMismatchError, message)  # noqa: B023
    text = "cell none(x[3]; h[3]) { h = x\n output h }"
    refuses(lambda: stepnet.cell(text, H=2), stepnet.InvalidArgumentError, "has no size H; its sizes are none")
    for name, message in {
        "nonlinearity": "; the mode says it: rnn_tanh, rnn_relu, lstm, gru",
        "hiden_size": "; did you mean hidden_size?",
    }.items():
        call = lambda: stepnet.layers("rnn_tanh", 3, 4, **{name: 5})  # noqa: B023, E731
        refuses(call, stepnet.TypeMismatchError, f"stepnet.layers has no argument {name}{message}")


def test_numbers_of_numpy_are_numbers(cells):
    cell = stepnet.cell(cells / "lstm.cell", H=numpy.int64(4), threads=numpy.int32(1))
    assert len(cell.init(seed=numpy.uint64(3))) == 3


def test_names_that_mean_nothing_are_told(cells, lstm):
    params, unknown = lstm.init(), stepnet.InvalidArgumentError
    refuses(lambda: lstm.value_and_grad(params, "g", x=X), unknown, "loss names 'g'; the outputs are h, h_last, c_last")
    net = cells / "elman.prototxt"
    strange = {"beta1: 2 beta2": 3}
    refuses(lambda: stepnet.train_net(net, loss="y", **strange), unknown, 'the optimizer has no option "beta1: 2 beta2"')
    refuses(lambda: stepnet.packed.split(X, stepnet), stepnet.TypeMismatchError, "the cell is a module; it must be one that")


def test_arguments_of_any_kind_are_taken_or_refused(lstm):
    """Random dtypes, shapes, layouts, names and objects: an exception, or outputs of the shapes that they must have."""
    random = numpy.random.default_rng(5)
    dtypes = ["float32"] * 8 + ["float64", "float16", "int32", "int64", "bool", "complex64", "U1", "O", ">f4"]
    taken = 0

    def any_array(shape):
        shape = list(shape)
        if random.random() < 0.2:
            shape[random.integers(len(shape))] = int(random.integers(0, 7))
        if random.random() < 0.1:
            shape.insert(0, int(random.integers(0, 3)))
        array = numpy.zeros(shape, random.choice(dtypes) if random.random() < 0.3 else "float32")
        if random.random() < 0.1:
            array = array[::-1]
        if random.random() < 0.1:
            array = array.T
        return array

    for _ in range(3000):
        params = {"w": any_array([16, 5]), "u": any_array([16, 4]), "b": any_array([16])}
        inputs = {"x": any_array([2, 3, 5])}
        if random.random() < 0.3:
            inputs["h_init"] = any_array([1, 3, 4])
        if random.random() < 0.1:
            inputs[str(random.choice(["x", "h", "", "w"]))] = random.choice([None, 3, "x"])
        if random.random() < 0.1:
            del params["w" if random.random() < 0.5 else "b"]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", stepnet.CopyWarning)
                outputs, pullback = lstm.vjp(params, **inputs)
                pullback(h=any_array(outputs.h.shape))
        except stepnet.Error:
            continue
        steps, batch, _ = inputs["x"].shape
        assert outputs.h.shape == (steps, batch, 4)
        taken += 1
    assert 100 < taken < 2900


@pytest.mark.skipif(sys.version_info < (3, 10), reason="Python 3.9 cannot read hints of the form `int | None`")
def test_the_hints_of_all_that_is_public_can_be_read():
    """Also where there is no PyTorch."""
    program = """
        import importlib.util, inspect, sys, typing
        sys.modules["torch"] = None
        import stepnet
        modules = [stepnet, stepnet.packed, stepnet.errors]
        if importlib.util.find_spec("onnx"):
            modules.append(stepnet.onnx)
        count = 0
        for module in modules:
            for name in getattr(module, "__all__", dir(module)):
                public = getattr(module, name)
                of_class = vars(public).values() if inspect.isclass(public) else ()
                for each in (public, *of_class):
                    each = getattr(each, "fget", each)
                    if inspect.isfunction(each):
                        typing.get_type_hints(each)
                        count += 1
        print(count)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, timeout=60, text=True)
    assert done.returncode == 0 and int(done.stdout) > 50, done.stderr


def all_that_is_public():
    """Name and object of each class, function and method."""
    modules = [stepnet, stepnet.packed]
    if importlib.util.find_spec("onnx"):
        modules.append(stepnet.onnx)
    for module in modules:
        for name in getattr(module, "__all__", ["split", "join"]):
            each = getattr(module, name)
            if inspect.isclass(each) or inspect.isfunction(each):
                yield name, each
            for method, of_class in vars(each).items() if inspect.isclass(each) else ():
                if inspect.isfunction(of_class) and (method == "__call__" or not method.startswith("_")):
                    yield f"{name}.{method}", of_class


def test_all_that_is_public_says_what_it_does_and_takes():
    count = 0
    for name, each in all_that_is_public():
        doc = inspect.getdoc(each)
        assert doc, name
        if not inspect.isfunction(each) or name == "Cell.with_options":  # whose options are those of cell
            continue
        for parameter in inspect.signature(each).parameters:
            if parameter not in ("self", "named", "others"):
                assert parameter in doc, f"{name}: {parameter}"
                count += 1
    assert count > 70


@pytest.mark.skipif(sys.version_info < (3, 10), reason="Python 3.9 cannot read hints of the form `int | None`")
def test_the_stubs_of_the_core_can_be_read_and_name_what_there_is():
    """Each hint where it stands: in a class its methods hide what the module calls so."""
    names = {}
    exec((ROOT / "python" / "stepnet" / "_stepnet.pyi").read_text(), names)
    functions = {name for name, each in vars(_stepnet).items() if callable(each) and not isinstance(each, type)}
    assert functions == {name for name, each in names.items() if inspect.isfunction(each)}
    for kind in (each for each in vars(_stepnet).values() if isinstance(each, type)):
        members = {name for name in vars(kind) if not name.startswith("__")}
        assert members == {name for name in vars(names[kind.__name__]) if not name.startswith("__")}, kind


def test_a_pass_of_the_compiler_may_be_left_out(cells, tmp_path):
    """Of cells and nets, and of those that are made from them."""
    cell = stepnet.cell(cells / "elman.cell", D=8, H=8)
    x, params = numpy.zeros((40, 2, 8), "float32"), cell.init()
    for without in (
        cell.with_options(disable_pass="pack_weights"),
        stepnet.cell(cells / "elman.cell", D=8, H=8, disable_pass=["pack_weights"]),
        pickle.loads(pickle.dumps(cell.with_options(disable_pass=("pack_weights", "hoist")))),
    ):
        assert ": pack; " in cell.explain(params, x=x) and ": pack; " not in without.explain(params, x=x)
        assert ": pack; " in without.with_options(disable_pass=()).explain(params, x=x)
    net, init = stepnet.expand(cell), stepnet.expand(cell, init=True)
    assert ": pack; " in stepnet.load(net, init).explain(x=x)
    assert ": pack; " not in stepnet.load(net, init, disable_pass="pack_weights").explain(x=x)
    makers = (
        lambda names: stepnet.cell(cells / "elman.cell", disable_pass=names),
        lambda names: cell.with_options(disable_pass=names),
        lambda names: stepnet.load(net, init, disable_pass=names),
        lambda names: stepnet.train_net(net, init, loss="h", disable_pass=names),
    )
    for make in makers:
        refuses(lambda: make("packing"), stepnet.InvalidArgumentError, 'there is no pass "packing"; what can be disabled is')  # noqa: B023
        refuses(lambda: make(3), stepnet.TypeMismatchError, "disable_pass is 3; it must be a name or names")  # noqa: B023
        refuses(lambda: make([3]), stepnet.TypeMismatchError, "a name of disable_pass is 3; it must be a text")  # noqa: B023


def test_a_pass_is_not_left_out_where_it_does_not_run(cells):
    options = {"opt_level": 1, "disable_pass": ["hoist", "merge_products"]}
    message = 'disable_pass names "merge_products", which runs from opt_level 2 on, and opt_level is 1'
    refuses(lambda: stepnet.cell(cells / "elman.cell", **options), stepnet.InvalidArgumentError, message)
    cell = stepnet.cell(cells / "elman.cell", disable_pass="merge_products")
    refuses(lambda: cell.with_options(opt_level=1), stepnet.InvalidArgumentError, message)
    net = stepnet.expand(cell)
    refuses(lambda: stepnet.load(net, **options), stepnet.InvalidArgumentError, message)
    assert cell.with_options(opt_level=1, disable_pass="hoist")
