"""ONNX: files of other tools as nets, cells and nets as files.

>>> stepnet.onnx.export(cell, "lstm.onnx", params)
>>> net = stepnet.onnx.load("lstm.onnx")
>>> net(x=x).h

Needs Python's ``onnx``: ``pip install 'stepnet[onnx]'``.
"""

from __future__ import annotations

try:
    import onnx as _onnx  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("stepnet.onnx needs Python's onnx: pip install 'stepnet[onnx]'", name="onnx") from error

from .converter import convert
from .exporter import export
from .loader import Graph, load

__all__ = ["Graph", "convert", "export", "load"]
