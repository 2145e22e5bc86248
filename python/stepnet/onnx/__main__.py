"""Writes a model of ONNX as a net and its parameters, which rnn_runner runs without Python.

python -m stepnet.onnx MODEL.onnx NET.pbtxt PARAMS.safetensors
"""

from __future__ import annotations

import argparse
import shlex
import sys
from typing import Sequence

from ..errors import Error
from .converter import convert
from .loader import Graph


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m stepnet.onnx", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", metavar="MODEL.onnx", help="what to read")
    parser.add_argument("net", metavar="NET.pbtxt", help="the net to write, a NetDef as text")
    parser.add_argument(
        "params", metavar="PARAMS.safetensors", help="the parameters to write: .safetensors, .npz, .minidb or TensorProtos"
    )
    given = parser.parse_args(arguments)
    try:
        graph = convert(given.model, given.net, given.params)
    except Error as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    print(f"wrote {given.net} and {given.params}; it is run by")
    print(f"  rnn_runner run {shlex.quote(given.net)} --init_net={shlex.quote(given.params)}{inputs_text(graph)}")
    return 0


def inputs_text(graph: Graph) -> str:
    """How rnn_runner is given the inputs that have no default."""
    files = (f"{each.name}={each.name}.npy" for each in graph.arguments if not each.optional)
    return "".join(f" --input={shlex.quote(file)}" for file in files)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
