#!/usr/bin/env python3
"""LSTMs and GRUs on the CPU in PyTorch and onnxruntime, with StepNet's weights: the peers of scripts/bench_peers.

FOLDER has a file for each blob that StepNet's net reads, as x.npy and layer0__w.npy (layer0/w), gradient.npy, that of the
output h, and the parameters once more in parameters.pb. CELL is lstm or gru (examples/cells/gru_reset_after.cell), PEER is torch or onnxruntime.

  recurrent.py data FOLDER CELL BATCH HIDDEN STEPS LAYERS   writes them, random
  recurrent.py check FOLDER CELL LAYERS PEER...             compares with StepNet's results, in FOLDER/forward, FOLDER/both
  recurrent.py serve PEER THREADS                           answers lines "FOLDER CELL LAYERS PASS RUNS" with milliseconds
  recurrent.py rate                                         GFLOP/s that a large product reaches on one thread
  recurrent.py version PEER
"""
import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from shared import Run, difference, least_ms, serve, write_parameters

TOLERANCE = 1e-5
# The order in which each keeps the gates of a weight.
GATES = {
    "stepnet": {"lstm": "ifog", "gru": "rzn"},
    "torch": {"lstm": "ifgo", "gru": "rzn"},
    "onnxruntime": {"lstm": "iofg", "gru": "zrn"},
}

Results = dict[str, np.ndarray]  # by StepNet's names of files


def prefixes(layers: int) -> list[str]:
    return [""] if layers == 1 else [f"layer{k}__" for k in range(layers)]


def reordered(weight: np.ndarray, cell: str, source: str, target: str) -> np.ndarray:
    gates = dict(zip(GATES[source][cell], np.split(weight, len(GATES[source][cell]))))
    return np.concatenate([gates[gate] for gate in GATES[target][cell]])


def weights(folder: Path, cell: str, layers: int, peer: str) -> Iterator[list[np.ndarray]]:
    """w, u, b and b_u of each layer, in the peer's order; an LSTM of StepNet has one bias, so its second one is 0."""
    for prefix in prefixes(layers):
        names = ["w", "u", "b"] if cell == "lstm" else ["w", "u", "b", "b_u"]
        layer = [reordered(np.load(folder / f"{prefix}{name}.npy"), cell, "stepnet", peer) for name in names]
        yield layer if len(layer) == 4 else [*layer, np.zeros_like(layer[-1])]


def write_data(folder: Path, cell: str, batch: int, hidden: int, steps: int, layers: int) -> None:
    folder.mkdir(parents=True)
    random = np.random.default_rng(1)
    rows = len(GATES["stepnet"][cell]) * hidden

    def write(name: str, values: np.ndarray) -> None:
        np.save(folder / f"{name}.npy", values.astype(np.float32))

    write("x", random.standard_normal((steps, batch, hidden)))
    write("gradient", random.standard_normal((steps, batch, hidden)))
    parameters = {}
    shapes = {"w": (rows, hidden), "u": (rows, hidden), "b": rows} | ({"b_u": rows} if cell == "gru" else {})
    for prefix in prefixes(layers):
        for name, shape in shapes.items():
            parameters[prefix + name] = random.uniform(-1, 1, shape) / hidden**0.5
        for state in ["h", "c"] if cell == "lstm" else ["h"]:
            write(f"{prefix}{state}_init", np.zeros((1, batch, hidden)))
    write_parameters(folder, parameters)


class Torch:
    def __init__(self, threads: int) -> None:
        import torch

        self.torch = torch
        torch.set_num_threads(threads)

    def load(self, folder: Path, cell: str, layers: int) -> None:
        torch = self.torch
        self.x = torch.from_numpy(np.load(folder / "x.npy")).requires_grad_()
        self.gradient = torch.from_numpy(np.load(folder / "gradient.npy"))
        hidden = self.x.shape[-1]
        self.model = (torch.nn.LSTM if cell == "lstm" else torch.nn.GRU)(hidden, hidden, layers)
        with torch.no_grad():
            for k, layer in enumerate(weights(folder, cell, layers, "torch")):
                for name, values in zip(["weight_ih", "weight_hh", "bias_ih", "bias_hh"], layer):
                    getattr(self.model, f"{name}_l{k}").copy_(torch.from_numpy(values))

    def run_of(self, pass_: str) -> Run:
        self.model.train(pass_ == "both")
        return self.both if pass_ == "both" else self.forward

    def forward(self):
        with self.torch.inference_mode():
            return self.model(self.x)[0]

    def both(self):
        """The gradients of sum(h * gradient) by the input and all parameters."""
        h, _ = self.model(self.x)
        return self.torch.autograd.grad(h, [self.x, *self.model.parameters()], self.gradient)

    def results(self, cell: str, layers: int) -> dict[str, Results]:
        gradients = [gradient.numpy() for gradient in self.run_of("both")()]
        both = {"x_grad": gradients[0]}
        names = ["w", "u", "b", "b_u"] if cell == "gru" else ["w", "u", "b"]
        for k, prefix in enumerate(prefixes(layers)):
            for name, gradient in zip(names, gradients[1 + 4 * k :]):
                both[f"{prefix}{name}_grad"] = reordered(gradient, cell, "torch", "stepnet")
        return {"forward": {"h": self.run_of("forward")().numpy()}, "both": both}


class OnnxRuntime:
    def __init__(self, threads: int) -> None:
        import onnxruntime

        self.options = onnxruntime.SessionOptions()
        self.options.intra_op_num_threads = threads
        self.options.inter_op_num_threads = 1
        self.options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        self.options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL

    def load(self, folder: Path, cell: str, layers: int) -> None:
        import onnxruntime

        x = np.load(folder / "x.npy")
        model = onnx_model(folder, cell, layers, x.shape)
        self.session = onnxruntime.InferenceSession(model, self.options, providers=["CPUExecutionProvider"])
        self.binding = self.session.io_binding()  # nothing is copied into arrays of NumPy
        self.binding.bind_cpu_input("x", x)
        self.binding.bind_output("h")

    def run_of(self, pass_: str) -> Run:
        assert pass_ == "forward"
        return lambda: self.session.run_with_iobinding(self.binding)

    def results(self, cell: str, layers: int) -> dict[str, Results]:
        self.run_of("forward")()
        return {"forward": {"h": self.binding.copy_outputs_to_cpu()[0]}}


def onnx_model(folder: Path, cell: str, layers: int, shape: tuple[int, ...]) -> bytes:
    from onnx import TensorProto, helper, numpy_helper

    constants = [numpy_helper.from_array(np.array([1]), "directions")]
    nodes = []
    below = "x"
    attributes = {"hidden_size": shape[-1]} | ({"linear_before_reset": 1} if cell == "gru" else {})
    for k, (w, u, b, b_u) in enumerate(weights(folder, cell, layers, "onnxruntime")):
        for name, values in {"w": w, "u": u, "b": np.concatenate([b, b_u])}.items():
            constants.append(numpy_helper.from_array(values[None], f"{name}{k}"))
        above = "h" if k == layers - 1 else f"h{k}"
        nodes.append(helper.make_node(cell.upper(), [below, f"w{k}", f"u{k}", f"b{k}"], [f"{above}_of_all"], **attributes))
        nodes.append(helper.make_node("Squeeze", [f"{above}_of_all", "directions"], [above]))
        below = above
    x, h = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ["x", "h"])
    graph = helper.make_graph(nodes, cell, [x], [h], constants)
    # Versions that every onnxruntime of the last years reads.
    opset = helper.make_opsetid("", 17)
    return helper.make_model(graph, opset_imports=[opset], ir_version=8).SerializeToString()


PEERS = {"torch": Torch, "onnxruntime": OnnxRuntime}


def check(folder: Path, cell: str, layers: int, peers: list[str]) -> None:
    for name in peers:
        peer = PEERS[name](threads=1)
        peer.load(folder, cell, layers)
        for pass_, results in peer.results(cell, layers).items():
            for blob, wanted in results.items():
                error = difference(np.load(folder / pass_ / f"{blob}.npy"), wanted)
                if not error <= TOLERANCE:
                    sys.exit(f"{cell}: {blob} of StepNet and of {name} differ by {error:.2g}, more than {TOLERANCE}")


def answer_of(name: str, threads: int) -> Callable[..., float]:
    peer = PEERS[name](threads)
    loaded = None

    def milliseconds(folder: str, cell: str, layers: str, pass_: str, runs: str) -> float:
        nonlocal loaded
        if folder != loaded:
            peer.load(Path(folder), cell, int(layers))
            loaded = folder
        return least_ms(peer.run_of(pass_), int(runs))

    return milliseconds


def gflops_per_second() -> float:
    """The faster of PyTorch's two libraries: MKL has no AVX-512 for processors of other makers."""
    import torch

    torch.set_num_threads(1)
    n = 1024
    a, b = torch.rand(n, n), torch.rand(n, n)
    products = [lambda: torch.mm(a, b)]
    if torch.backends.mkldnn.is_available():
        a_of_onednn = a.to_mkldnn()
        products.append(lambda: torch.nn.functional.linear(a_of_onednn, b))
    return 2 * n**3 / min(least_ms(product, 20) for product in products) / 1e6


def main() -> None:
    match sys.argv[1:]:
        case ["data", folder, cell, *sizes]:
            write_data(Path(folder), cell, *map(int, sizes))
        case ["check", folder, cell, layers, *peers]:
            check(Path(folder), cell, int(layers), peers)
        case ["serve", peer, threads]:
            serve(answer_of(peer, int(threads)))
        case ["rate"]:
            print(gflops_per_second())
        case ["version", peer]:
            print(importlib.import_module(peer).__version__)
        case _:
            sys.exit(__doc__)


main()
