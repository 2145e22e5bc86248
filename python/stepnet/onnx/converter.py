"""Files of ONNX as files of StepNet, for programs without Python."""

from __future__ import annotations

import os
from pathlib import Path

from .. import _stepnet
from ..errors import InvalidArgumentError
from ..params import save_params
from ..source import path_of
from .loader import Graph, load
from .netdef import quoted


def convert(path: str | os.PathLike[str], net: str | os.PathLike[str], params: str | os.PathLike[str]) -> Graph:
    """Writes a file of ONNX as a net and its parameters, for ``rnn_runner`` and the C++ library.

    ``rnn_runner run NET --init_net=PARAMS`` runs them, :func:`stepnet.load` loads them. The defaults of inputs are among
    the parameters; what ``rnn_runner`` is given for such an input takes its place.

    Args:
        path: the file of ONNX.
        net: the net to write, a NetDef as text.
        params: the file of tensors to write; its name says of which kind, as for :func:`stepnet.save_params`.

    Returns:
        The net, as :func:`load` gives it.

    Raises:
        InvalidArgumentError: where two of the files are one, or one to write is called .onnx.
        InputOutputError: for files that cannot be read or written.
        InvalidNetError: as :func:`load`.
    """
    target = Path(path_of("net", net))
    files = [Path(path_of("path", path)), target, Path(path_of("params", params))]
    if len({each.resolve() for each in files}) < len(files):
        raise InvalidArgumentError(f"invalid argument: the files are {', '.join(map(str, files))}; each must be another one")
    for each in files[1:]:
        if each.suffix == ".onnx":
            raise InvalidArgumentError(f"invalid argument: {each} has the name of a file of ONNX; a net, as net.pbtxt, and its parameters are written")
    graph = load(path)
    filled = {**graph._net.filled(), **graph.defaults}
    save_params(filled, params)
    listed = [f"external_input: {quoted(name)}\n" for name in filled if name not in graph.inputs]
    defaults = " ".join(f"strings: {quoted(name)}" for name in graph.defaults)
    listed += [f'arg {{ name: "defaults_of_inputs" {defaults} }}\n'] if defaults else []
    _stepnet.write_file(str(target), "".join([graph._text, *listed]).encode())
    return graph
