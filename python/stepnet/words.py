"""The words that options take, so that editors offer them and type checkers know them. Calls refuse any other.

Those of passes and optimizers are compared with what the core says by test_words.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable, Literal, Mapping, TypedDict, Union

import numpy

if TYPE_CHECKING:
    import torch
    from typing_extensions import Unpack as Unpack

    DType = Union[Literal["float32", "float64"], str, "numpy.dtype[Any]", "type[numpy.floating[Any]]", torch.dtype]
    Device = Union[Literal["cpu", "cuda"], str, torch.device]
else:  # hints can be read where there is no PyTorch, too
    DType = Device = Any

    class Unpack:
        """What checkers take for keywords by name; anything at run time."""

        def __class_getitem__(cls, _: Any) -> Any:
            return Any


Mode = Literal["rnn_tanh", "rnn_relu", "lstm", "gru"]
Request = Literal["write", "add", "none"]
Requests = Union[Mapping[str, Request], Mapping[str, str]]
"""What becomes of gradients, by name: ``"write"``, ``"add"`` or ``"none"``; also as ``dict.fromkeys(params, "add")`` has it."""

PassName = Literal[
    "add_by_regions",
    "add_in_place",
    "add_terms",
    "copy_equal_sums",
    "drop_moves",
    "drop_outputs",
    "drop_zeros",
    "expand",
    "fold_biases",
    "fold_bias_gradients",
    "fold_sums",
    "form_stages",
    "fuse_regions",
    "hoist",
    "join_regions",
    "merge_equal",
    "merge_gradients",
    "merge_products",
    "pack_weights",
    "simplify",
    "split_homes",
    "split_products",
    "sum_before_linear",
    "write_first_terms",
    "write_only_terms",
]
Passes = Union[PassName, Iterable[PassName]]

CellWord = Union[int, float, str]
"""What a cell is given by name: of a size a whole number, of an option a number, a word, or True or False."""

PageFormat = Literal["text", "html", "json"]
PictureFormat = Literal["text", "dot"]


class Optimizer(TypedDict, total=False):
    """The options of the optimizer of :func:`train_net`, each of which may be left out."""

    method: Literal["adam", "sgd"]
    learning_rate: float
    weight_decay: float
    clip_norm: float
    beta1: float
    beta2: float
    epsilon: float
    momentum: float
    nesterov: bool
    schedule: Literal["fixed", "step", "exp", "inv", "poly", "cosine"]
    gamma: float
    power: float
    decay_every: int
    decay_over: int
    final_fraction: float
    warmup: int


class AsItIs:
    """The default of options that are left as they are."""

    def __repr__(self) -> str:
        return "<as it is>"


AS_IT_IS: Any = AsItIs()
