"""What fuzz.py tries: a function for each kind of trial, which makes calls that follow from a seed."""

import collections
import ctypes
import functools
import importlib.util
import random
import re
from pathlib import Path

import fuzz_values
import numpy
import regression
from lender import Lender

import stepnet

ROOT = Path(__file__).resolve().parents[2]
CELLS = ROOT / "examples" / "cells"

counts = collections.Counter()
"""How many calls gave a result, and how many were refused, in this process."""


class Fault(Exception):
    """A call that ended otherwise than it may."""


class Trial:
    """A source of random choices and of calls, which are judged."""

    def __init__(self, seed, folder, shows):
        self.random = random.Random(seed)
        self.folder = folder
        self._shows = shows

    def happens(self, share):
        return self.random.random() < share

    def call(self, function, *args, **kwargs):
        """What a call gives; None where it is refused. Raises Fault for any other end."""
        given = [fuzz_values.described(each) for each in args]
        given += [f"{name}={fuzz_values.described(each)}" for name, each in kwargs.items()]
        text = f"{getattr(function, '__qualname__', type(function).__name__)}({', '.join(given)})"
        if self._shows:
            print("  " + text, flush=True)
        try:
            result = function(*args, **kwargs)
        except Exception as error:
            fault = fault_of(error)
            if self._shows:
                print(f"    {type(error).__name__}: {error}", flush=True)
            if fault:
                raise Fault(f"{text}\n  raised {type(error).__name__}: {error}\n  {fault}") from error
            counts["refused"] += 1
            return None
        counts["given"] += 1
        return result


SAYS_WHAT = re.compile(
    "must be|unexpected keyword argument|missing .* required|multiple values for|positional argument"
)
"""What plain TypeErrors say: ours, and those that Python raises of a call."""


def fault_of(error):
    """What is wrong with an exception that a call has raised; empty where it is one that docs/errors.md promises."""
    text = str(error)
    if isinstance(error, stepnet.InternalError):
        return "it is a bug in StepNet"
    if isinstance(error, stepnet.Error):
        return "" if text.startswith(error.code + ": ") and len(text) > len(error.code) + 4 else "it says nothing"
    if isinstance(error, MemoryError):
        return ""
    if type(error) is TypeError:
        return "" if SAYS_WHAT.search(text) else "it does not name the argument, what it is and what it must be"
    return "it is neither a stepnet.Error nor a TypeError"


# Parts that trials share.


def options(trial, share):
    """Options of cells and nets, each of which is strange with the probability `share`."""
    chosen = {}
    for name, usual in {"threads": 1, "opt_level": 2, "seed": 3, "device": "cpu"}.items():
        if trial.happens(share):
            values = fuzz_values.TEXTS if name == "device" and trial.happens(0.7) else fuzz_values.NUMBERS
            chosen[name] = trial.random.choice(values)
        elif trial.happens(0.3):
            chosen[name] = usual
    return chosen


def cell_options(trial, share):
    chosen = options(trial, share)
    if trial.happens(share):
        chosen["dtype"] = trial.random.choice(
            ["float64", "float16", "int8", "float 32", None, 3, numpy.float64, object()]
        )
    for name in ("training", "carry"):
        if trial.happens(share):
            chosen[name] = trial.random.choice([True, False, True, None, 1, "yes"])
    return chosen


def inputs_of(trial, arguments, share):
    """Arrays for a cell's inputs by what it says of their shapes, each strange with the probability `share`."""
    sizes = {"T": trial.random.choice([0, 1, 2, 5]), "B": trial.random.choice([0, 1, 1, 3])}
    inputs = {}
    for each in arguments:
        if each.optional and trial.happens(0.7):
            continue
        shape = [int(size) if size.isdigit() else sizes.get(size, 2) for size in re.findall(r"[^\[\], *]+", each.shape)]
        if numpy.prod(shape, dtype=float) > 1e6:
            shape = [min(size, 9) for size in shape]
        array = fuzz_values.usual_array(trial.random, shape, each.dtype)
        inputs[each.name] = fuzz_values.strange_array(trial.random, array) if trial.happens(share) else array
    return with_strange_names(trial, inputs, share / 4)


def with_strange_names(trial, arrays, share):
    """The same with a name that is left out, or a strange one instead or besides."""
    arrays = dict(arrays)
    if arrays and trial.happens(share):
        del arrays[trial.random.choice(list(arrays))]
    if trial.happens(share):
        arrays[trial.random.choice([each for each in fuzz_values.TEXTS if isinstance(each, str)])] = numpy.zeros(
            trial.random.choice([(), (1,), (2, 3)]), "float32"
        )
    return arrays


def gradients_of(trial, result, share):
    """Calls of a pullback with gradients of some outputs."""
    if result is None:
        return
    outputs, pullback = result
    gradients = {}
    for name, value in zip(outputs._fields, outputs):
        if isinstance(value, numpy.ndarray) and trial.happens(0.6):
            array = numpy.ones_like(value)
            gradients[name] = fuzz_values.strange_array(trial.random, array) if trial.happens(share) else array
    trial.call(pullback, **with_strange_names(trial, gradients, share))


def wrt_of(trial, names):
    if trial.happens(0.7):
        return trial.random.sample(list(names), trial.random.randint(0, len(names)))
    return trial.random.choice(
        [["x", "x"], "x", [""], [3], [None], ["\ud800"], [b"x"], iter(["x"]), ("nothing",), {"x": 1}]
    )


def loss_of(trial, names):
    return trial.random.choice(
        [
            lambda out: (0.0, {}),
            lambda out: (None, {"nothing": numpy.zeros(1, "float32")}),
            lambda out: (1, {out._fields[0]: numpy.ones_like(out[0])}),
            *names,
            list(names),
            *(each for each in fuzz_values.TEXTS if isinstance(each, str)),
        ]
    )


def use_cell(trial, cell, share):
    """Calls of a cell, whose arguments are strange with the probability `share`."""
    seed = trial.random.choice(fuzz_values.NUMBERS) if trial.happens(share) else 0
    params = trial.call(cell.init, seed)
    if params is None:
        return
    if trial.happens(share):
        name = trial.random.choice(list(params) or ["none"])
        base = params.get(name, numpy.zeros(1, "float32"))
        params[name] = fuzz_values.strange_array(trial.random, base)
    params = with_strange_names(trial, params, share / 4)
    given = trial.random.choice([None, 3, [params], "x"]) if trial.happens(share / 8) else params
    inputs = inputs_of(trial, cell.inputs, share)
    names = [*params, *inputs]
    what = trial.random.choice(["call", "vjp", "vjp", "explain", "value_and_grad", "with_options"])
    if what == "call":
        trial.call(cell, given, **inputs)
    elif what == "vjp":
        gradients_of(trial, trial.call(cell.vjp, given, wrt=wrt_of(trial, names), **inputs), share)
    elif what == "explain":
        kind = trial.random.choice(["text", "html", "json", *fuzz_values.TEXTS])
        trial.call(cell.explain, given, gradients=trial.happens(0.5), format=kind, **inputs)
    elif what == "value_and_grad":
        trial.call(cell.value_and_grad, given, loss_of(trial, cell.outputs), **inputs)
    else:
        changed = trial.call(cell.with_options, **cell_options(trial, 0.3))
        if changed is not None:
            trial.call(changed, given, **inputs)


# The kinds.


def texts(trial):
    """Damaged texts of cells."""
    name = trial.random.choice(sorted(CELLS.glob("*.cell")))
    text = fuzz_values.damaged_text(trial.random, name.read_text())
    sizes = (
        {trial.random.choice(["H", "D", "B", "S", "é", "\ud800"]): trial.random.choice(fuzz_values.NUMBERS)}
        if trial.happens(0.3)
        else {}
    )
    source = text
    if trial.happens(0.3):
        source = trial.folder / trial.random.choice(["a.cell", "a", "a.pb", "\udcff.cell", "a b.prototxt"])
        source.write_bytes(text.encode("utf-8", "surrogatepass"))
        source = trial.random.choice([source, str(source)])
    trial.call(stepnet.check, source, **sizes)
    trial.call(stepnet.show, source, format=trial.random.choice(["text", "dot", *fuzz_values.TEXTS]), **sizes)
    trial.call(stepnet.expand, source, init=trial.happens(0.5), training=trial.happens(0.5), **sizes)
    cell = trial.call(stepnet.cell, source, **cell_options(trial, 0.05), **sizes)
    if cell is not None:
        use_cell(trial, cell, 0.1)


def sources(trial):
    """What is no text and no path, in place of one; strange names of files."""
    source = trial.random.choice(
        [*fuzz_values.TEXTS, *fuzz_values.NUMBERS, trial.folder, trial.folder / "no", "/dev/null"]
    )
    for function in (stepnet.check, stepnet.show, stepnet.expand, stepnet.cell, stepnet.load, stepnet.load_params):
        trial.call(function, source)
    trial.call(stepnet.load, CELLS / "elman.prototxt", source)
    trial.call(stepnet.train_net, source, source, loss=source)
    trial.call(stepnet.save_params, {"x": numpy.zeros(1)}, source if source != "/dev/null" else trial.folder)


def arguments(trial):
    """Strange arrays, names and options for cells that are right."""
    name = trial.random.choice(["lstm", "gru", "attention_dot", "causal_conv", "slstm", "layer_norm_lstm", "indrnn"])
    sizes = {"H": trial.random.choice([1, 4])}
    if trial.happens(0.2):
        sizes[trial.random.choice(["H", "D", "K", ""])] = trial.random.choice(fuzz_values.NUMBERS)
    text = (CELLS / f"{name}.cell").read_text()
    if trial.happens(0.5):
        extra = ["lengths = lengths", "direction = bidirectional", "layers = 2", "batch_major = true", "zoneout = 0.5"]
        text = text.rstrip().rstrip("}") + f"\n  option {trial.random.choice(extra)}\n}}\n"
    cell = trial.call(stepnet.cell, text, sizes=sizes if trial.happens(0.9) else 3, **cell_options(trial, 0.1))
    if cell is not None:
        for _ in range(3):
            use_cell(trial, cell, 0.3)


def nets(trial):
    """Damaged files of nets, in which parameters are filled or trained."""
    files = [
        CELLS / "elman.prototxt",
        CELLS / "gru.prototxt",
        CELLS / "lstm.prototxt",
        ROOT / "examples/char_lm/net.pb",
    ]
    content = trial.random.choice([regression.NET.encode(), *(file.read_bytes() for file in files)])
    init = regression.INIT.encode()
    if trial.happens(0.6):
        content = fuzz_values.damaged(trial.random, content)
    if trial.happens(0.3):
        init = fuzz_values.damaged(trial.random, init)
    (trial.folder / "net").write_bytes(content)
    (trial.folder / "init").write_bytes(init)
    paths = trial.folder / "net", trial.folder / "init"
    if trial.happens(0.3):
        trial.call(stepnet.check, paths[0])
        trial.call(stepnet.show, paths[0])
    is_trained = trial.happens(0.4)
    if is_trained:
        loss = trial.random.choice(["loss", "loss", "loss", "y", "x", "distance", *fuzz_values.TEXTS])
        optimizer = {}
        if trial.happens(0.7):
            name = trial.random.choice(
                [
                    "method",
                    "learning_rate",
                    "clip_norm",
                    "schedule",
                    "beta1",
                    "gamma",
                    "decay_every",
                    "warmup",
                    "nesterov",
                    "no",
                    "\ud800",
                ]
            )
            optimizer[name] = trial.random.choice([*fuzz_values.NUMBERS, *fuzz_values.TEXTS, "sgd", "cosine", "step"])
        parameters = wrt_of(trial, ["w", "b"]) if trial.happens(0.3) else ()
        net = trial.call(
            stepnet.train_net, *paths, loss=loss, parameters=parameters, **optimizer, **options(trial, 0.05)
        )
    else:
        net = trial.call(stepnet.load, *paths, **options(trial, 0.1))
    if net is not None:
        use_net(trial, net, is_trained)


def use_net(trial, net, is_trained):
    shapes = {"x": (5, 3), "target": (5, 2), "input": (4, 1, 65), "hidden_init": (1, 1, 128), "cell_init": (1, 1, 128)}
    inputs = {}
    for name in net.inputs:
        dtype = "int32" if "length" in name else "float32"
        array = fuzz_values.usual_array(trial.random, shapes.get(name, (3, 1, 2)), dtype)
        inputs[name] = fuzz_values.strange_array(trial.random, array) if trial.happens(0.2) else array
    inputs = with_strange_names(trial, inputs, 0.1)
    trial.call(lambda: net.params)
    for _ in range(2):
        trial.call(net, **inputs)
    if is_trained:
        state = dict(trial.call(lambda: net.state) or {})
        for name in list(state):
            if trial.happens(0.3):
                state[name] = fuzz_values.strange_array(trial.random, state[name])
        trial.call(net.restore, with_strange_names(trial, state, 0.2))
    trial.call(net.explain, format=trial.random.choice(["text", "html", "json", *fuzz_values.TEXTS]), **inputs)
    gradients_of(trial, trial.call(net.vjp, wrt=wrt_of(trial, net.inputs), **inputs), 0.2)
    trial.call(net.value_and_grad, loss_of(trial, net.outputs), **inputs)


def files(trial):
    """Damaged files of parameters, and what is written to them."""
    kinds = ["a.safetensors", "a.npz", "a.pb", "a.pbtxt", "a.minidb"]
    params = {}
    for k in range(trial.random.randint(0, 4)):
        name = trial.random.choice(fuzz_values.TEXTS) if trial.happens(0.2) else f"p{k}"
        array = fuzz_values.usual_array(
            trial.random, (2, 3), trial.random.choice(["float32", "float64", "float16", "int64"])
        )
        params[name if name.__hash__ else k] = (
            fuzz_values.strange_array(trial.random, array) if trial.happens(0.2) else array
        )
    path = trial.folder / trial.random.choice(kinds)
    trial.call(stepnet.save_params, params, path)
    if not path.exists():
        usual = {"w": numpy.ones((2, 3), "float32"), "n": numpy.arange(5)}
        trial.call(stepnet.save_params, usual, path)
    content = path.read_bytes()
    path.write_bytes(fuzz_values.damaged(trial.random, content) if trial.happens(0.8) else content)
    widen = trial.random.choice([True, False, False, None, 1])
    read = trial.call(stepnet.load_params, path, widen=widen, seed=trial.random.choice([0, 1, *fuzz_values.NUMBERS]))
    trial.call(stepnet.load, CELLS / "elman.prototxt", path)
    if read is not None:
        trial.call(stepnet.save_params, read, trial.folder / trial.random.choice(kinds))


def layers(trial):
    """Layers of strange sizes, and flat vectors of parameters."""
    sizes = [
        trial.random.choice(fuzz_values.NUMBERS) if trial.happens(0.15) else trial.random.randint(1, 4)
        for _ in range(2)
    ]
    mode = (
        trial.random.choice(["lstm", "gru", "rnn_tanh", "rnn_relu"])
        if trial.happens(0.8)
        else trial.random.choice(fuzz_values.TEXTS)
    )
    more = {}
    for name in ("num_layers", "bias", "batch_first", "dropout", "bidirectional", "proj_size", "lengths", "dtype"):
        if trial.happens(0.15):
            more[name] = trial.random.choice([True, 1, 2, 0.5, *fuzz_values.NUMBERS])
    cell = trial.call(stepnet.layers, mode, *sizes, **more)
    if cell is None:
        return
    use_cell(trial, cell, 0.2)
    params = trial.call(cell.init) or {}
    if trial.happens(0.3) and params:
        name = trial.random.choice(list(params))
        params[name] = fuzz_values.strange_array(trial.random, params[name])
    vector = trial.call(stepnet.packed.join, with_strange_names(trial, params, 0.1), cell)
    if vector is None or trial.happens(0.4):
        vector = fuzz_values.strange_array(trial.random, numpy.zeros(trial.random.randint(0, 99), "float32"))
    trial.call(stepnet.packed.split, vector, cell if trial.happens(0.9) else trial.random.choice([None, "x", stepnet]))


def lent(trial):
    """Arrays that lie about themselves, in ways that can be found out: there is memory behind and before them."""
    cell, choose = lstm(), trial.random.choice
    shape = choose([(2, 3, 5), (16,), (), (0, 3, 5)])
    strides = None if trial.happens(0.5) else [choose([0, 1, 2, 3, -1]) for _ in shape]
    shape = [choose([0, 1, -1, -(2**63), 2**62, 2**63 - 1]) if trial.happens(0.15) else size for size in shape]
    strange = {
        "data": [None],
        "device_type": [2, 3, 0, -1, 99],
        "ndim": [0, -1],
        "code": [0, 1, 4, 5, 6, 255],
        "bits": [0, 7, 16, 64, 255],
        "lanes": [0, 2, 65535],
        "byte_offset": [1, 4],
    }
    fields = {name: choose(values) for name, values in strange.items() if trial.happens(0.15)}
    lender = Lender(shape, strides, **fields)
    inputs, params = {"x": numpy.zeros((2, 3, 5), "float32")}, cell.init()
    if trial.happens(0.5):
        inputs["x"] = lender
    else:
        params["b"] = lender
    trial.call(cell, params, **inputs)
    trial.call(stepnet.save_params, params, trial.folder / "a.safetensors")


@functools.lru_cache(maxsize=None)
def lstm():
    return stepnet.cell(CELLS / "lstm.cell", D=5, H=4)


KINDS = {kind.__name__: kind for kind in (texts, sources, arguments, nets, files, layers, lent)}
if importlib.util.find_spec("torch") is not None:
    from fuzz_torch import modules

    KINDS["modules"] = modules
if importlib.util.find_spec("onnx") is not None:
    from fuzz_onnx import graphs

    KINDS["graphs"] = graphs

# What must be found; `all` leaves them out.
FAULTY = {"crash": lambda _: ctypes.string_at(0), "fault": lambda trial: trial.call(divmod, 1, 0)}
