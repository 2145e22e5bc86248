"""Nets from files, with their parameters."""

from __future__ import annotations

from typing import Any, Dict, Iterable, Mapping, NoReturn, Sequence, Union

import numpy

from . import _stepnet
from .errors import InvalidArgumentError, TypeMismatchError
from .gradients import (
    Array,
    Gradients,
    Into,
    Loss,
    Pullback,
    arrays_of,
    inputs_of,
    names_of,
    requests_of,
    value_and_grad,
)
from .outputs import Outputs, outputs_type
from .source import MAX_BITS, Source, device_name, refuse_onnx, repr_of, text_or_path
from .words import Device, Optimizer, PageFormat, Passes, Requests, Unpack


class Copies(Dict[str, numpy.ndarray]):
    """Arrays by name that a net has given copies of. It is read-only, as changing it would change nothing in the net.

    ``dict(net.params)`` is one to change; copies of it are such, too.
    """

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeMismatchError(
            "type mismatch: what params and state give are copies, and read-only: changing them would not change the net; "
            "net.restore({name: array}) does, and dict(net.params) is a dictionary to change"
        )

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse  # type: ignore[assignment]

    def __reduce__(self) -> Any:
        """For ``pickle`` and ``copy``."""
        return dict, (dict(self),)


class Net:
    """A net with its parameters. Made by :func:`load`.

    Its arrays have the shapes that its operators ask for; in what :func:`expand` makes of a cell sequences are
    ``[T, B, …]`` and states ``[1, B, …]``.

    Any number of threads may call it. Calls of a net that changes what it keeps, as one that trains does, wait for each
    other; other calls have memory of their own.
    """

    _kind = "Net"
    _load = staticmethod(_stepnet.load_net)

    def __init__(self, net: _stepnet.LoadedNet, options: tuple[Any, ...]) -> None:
        """``options``: what ``_load`` was given behind the net and what fills it."""
        self._net = net
        self._options = options
        self._call, self._vjp, self._explain = net.call, net.vjp, net.explain
        self._where = f"\n  in file {net.file}" if net.file else ""
        """What errors end with."""
        self._make = outputs_type("Outputs", net.outputs)._make
        self._fixed: frozenset[str] = frozenset()
        """What was filled and is no parameter."""
        self.name: str = net.name
        self.inputs: tuple[str, ...] = tuple(net.inputs)
        """The names of what a call is given: all that the net reads and nobody fills. :attr:`Cell.inputs` tell more."""
        self.outputs: tuple[str, ...] = tuple(net.outputs)
        """The names of what a call gives: the net's outputs or, where it lists none, all that no operator reads."""

    def __repr__(self) -> str:
        return f"<stepnet.{self._kind} {self.name}({', '.join(self.inputs)}) -> {', '.join(self.outputs)}>"

    def __reduce__(self) -> Any:
        """For ``pickle`` and ``copy``: the net goes with what it keeps, so that its files are not needed."""
        text, arrays, num_runs = self._net.parts()
        state = {name: arrays.pop(name) for name in self._net.state}
        return _again, (type(self), (text, self._net.file), arrays, self._options, state, num_runs, self._more())

    def _more(self) -> tuple[Any, ...]:
        """What ``__init__`` is given behind the options."""
        return ()

    def __call__(self, inputs: Mapping[str, Array] | None = None, /, **named: Array) -> Outputs:
        """Runs the net on an array for each of ``self.inputs``, by name: ``x=x``, or in a dictionary, ``{"x": x}``.

        Returns:
            A named tuple with an array for each of ``self.outputs``, in the shape that its operators give it, as
            ``[T, B, …]``; None for one that is no tensor. Where any of the inputs
            lies on the net's device, each is a :class:`DeviceArray`.
        """
        return self._make(self._call(inputs_of(inputs, named)))

    @property
    def params(self) -> dict[str, numpy.ndarray]:
        """Copies of the parameters, by name: what was filled, is floating, and is read by the net, each in its shape ``[…]``.

        The dictionary and the arrays are read-only, as changing them would change nothing: :meth:`restore` sets parameters.
        """
        return self._read(self._parameters)

    def restore(self, params: Mapping[str, Array]) -> None:
        """Sets parameters to what ``params`` says of them, by name, each in its shape ``[…]`` and dtype; others stay.

        All at once, for the calls that begin later. Those that are under way in other threads keep what they began with,
        and so do pullbacks.

        Raises:
            InvalidArgumentError, ShapeMismatchError, TypeMismatchError: for what the net does not have, or is another
                tensor; nothing has changed then.
        """
        given = arrays_of("params", params)
        self._check_parameters("params", given)
        self._net.restore(given)

    @property
    def _parameters(self) -> list[str]:
        return [name for name in self._net.parameters if name not in self._fixed]

    def _read(self, names: Sequence[str]) -> dict[str, numpy.ndarray]:
        arrays = self._net.read(list(names))
        for each in arrays.values():
            if isinstance(each, numpy.ndarray):  # which has no bfloat16
                each.setflags(write=False)
        return Copies(arrays)

    def _check_parameters(self, argument: str, names: Iterable[str]) -> None:
        for name in names:
            if name in self._fixed:
                raise InvalidArgumentError(
                    f"invalid argument: {argument} names {name!r}, a constant of the net; its parameters are "
                    + (", ".join(self._parameters) or "none")
                    + self._where
                )

    def _arrays(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """What the core is given for the inputs of a call."""
        return dict(inputs)

    def _wrt(self, names: Iterable[str], arrays: Mapping[str, Array]) -> list[str]:
        """What to differentiate by. What is fixed is not among it."""
        chosen = names_of("wrt", names)
        self._check_parameters("wrt", chosen)
        if chosen or not self._fixed:
            return chosen
        floating = [name for name, array in arrays.items() if "float" in str(getattr(array, "dtype", ""))]
        if not floating and not self._parameters:
            raise InvalidArgumentError(f"invalid argument: {self!r} has no parameters and no floating inputs{self._where}")
        return [*floating, *self._parameters]

    def vjp(
        self,
        inputs: Mapping[str, Array] | None = None,
        /,
        *,
        wrt: Iterable[str] = (),
        gradient_requests: Requests | None = None,
        **named: Array,
    ) -> tuple[Outputs, Pullback]:
        """As a call, and the function that gives the gradients of this call.

        Args:
            inputs, named: as of a call, ``[T, B, …]`` of a sequence. An input that is called as an argument of this function
                is, as ``wrt``, goes into the dictionary.
            wrt: the names of parameters and inputs to differentiate by; of no names, all that have a gradient. What is
                needed for others alone is not computed.
            gradient_requests: of some of these ``"none"``, which is as if they were not among them, or ``"add"``, which adds
                to what the pullback is given; ``"write"`` is what becomes of the others.

        Returns:
            The outputs, which are read-only on the host, since the gradients are computed from them (see :meth:`Cell.vjp`);
            and a :class:`Pullback`, which gives each gradient in the shape of what it is by.

        Raises:
            InvalidNetError: for a net that changes what it keeps, or has operators without gradients.
        """
        arrays = self._arrays(inputs_of(inputs, named))
        outputs, gradients = self._vjp(arrays, self._wrt(wrt, arrays), requests_of(gradient_requests))
        made = self._make(outputs)
        return made, Pullback(gradients, type(made))

    def value_and_grad(
        self,
        loss: Loss,
        inputs: Mapping[str, Array] | None = None,
        /,
        *,
        wrt: Iterable[str] = (),
        gradient_requests: Requests | None = None,
        into: Into = None,
        **named: Array,
    ) -> tuple[Any, Gradients]:
        """The value of a loss and its gradients.

        Args:
            inputs, named: as for :meth:`vjp`.
            loss: the name of an output, or several, of which it is the sum of all elements; or a function that is given
                the outputs and returns the loss with its gradients by outputs, by name, each in the output's shape,
                ``[T, B, …]``, say: ``2.5, {"y": gradient}``.
            wrt, gradient_requests: as for :meth:`vjp`.
            into: the arrays to which gradients are added; see :class:`Pullback`.

        Returns:
            The loss, and :class:`Gradients` with an array for each parameter and input, in the shape of that: ``[N, D]`` for
            ``w [N, D]``.
        """
        given = inputs_of(inputs, named)
        outputs, pullback = self.vjp(given, wrt=wrt, gradient_requests=gradient_requests)
        return value_and_grad(outputs, pullback, loss, into)

    def explain(self, inputs: Mapping[str, Array] | None = None, /, *, format: PageFormat = "text", **named: Array) -> str:
        """What the compiler makes of the step nets of the net for a call with these inputs, which is run once.

        Their shapes, ``[T, B, …]`` of a sequence, say for how many steps, and which batch, it is.
        What the net keeps does not change. ``format`` is ``"text"``, ``"html"`` or ``"json"``.
        """
        return self._explain(self._arrays(inputs_of(inputs, named)), format)


class TrainingNet(Net):
    """A net whose calls are iterations of training. Made by :func:`train_net`.

    A call computes the outputs, the loss and its gradients, and then changes the parameters; it gives the outputs, with
    the loss among them, as they were before the change. Shapes are as of any :class:`Net`: ``[T, B, …]`` of a sequence.
    """

    _kind = "TrainingNet"
    _load = staticmethod(_stepnet.train_net)  # type: ignore[assignment]

    @property
    def trained(self) -> dict[str, numpy.ndarray]:
        """Copies of the parameters that iterations change, in their shapes ``[…]``: of a cell's net what the cell is called with.

        ``params`` has what a net is loaded with: these, and what else was filled, as the states ``[layers, 1, H]`` from which
        recurrent networks start. Read-only, as ``params``.
        """
        return self._read(self._net.trained)

    @property
    def state(self) -> dict[str, numpy.ndarray]:
        """Copies of all that the next iteration depends on: ``params``, and what the optimizer keeps, in their shapes ``[…]``.

        The number of iterations is among it, by which random numbers follow: dropout goes on as it would have, in a net
        made with the same ``seed``.
        Read-only, as ``params``: :meth:`restore` takes them, too.
        """
        return self._read([*self._net.parameters, *self._net.state])


def _again(
    kind: type[Net],
    net: tuple[str, str],
    arrays: dict[str, numpy.ndarray],
    options: tuple[Any, ...],
    state: dict[str, numpy.ndarray],
    num_runs: int,
    more: tuple[Any, ...],
) -> Net:
    """The net of which ``Net.__reduce__`` gave the rest."""
    loaded = kind._load(net, ("", ""), arrays, *options)
    if state:
        loaded.restore(state)
    loaded.set_num_runs(num_runs)
    return kind(loaded, options, *more)


Filler = Union[Source, Mapping[str, Array], None]
"""What fills the parameters of a net: a net, as a path or text, a file of tensors, or arrays by name."""


def load(
    net: Source,
    init: Filler = None,
    *,
    threads: int = 0,
    device: Device = "cpu",
    opt_level: int = 2,
    disable_pass: Passes = (),
    seed: int = 0,
) -> Net:
    """A net from a file or a text, which is called with arrays of the shapes that its operators ask for: ``[T, B, …]``, say.

    >>> net = stepnet.load("net.pb", init="init.pb")
    >>> net = stepnet.load(stepnet.expand(cell), init=stepnet.expand(cell, init=True))

    Args:
        net: the path of a NetDef, a MetaNetDef or a minidb model, binary or text; or the text of a NetDef.
        init: a file of tensors that are the parameters (safetensors, ``.npz``, TensorProtos, a minidb), or a net, also as
            text, that fills them, which is run once; or arrays by name, which are copied. float16 and bfloat16 of a file of
            tensors become float32, those of arrays stay. They come before what a
            MetaNetDef or a minidb model fills itself. What a net reads and neither gives is an input of each call.
            A file may hold more than the net knows, as a checkpoint does; arrays by name may not.
        threads: how many to use; 0: as many as are worth having.
        device: ``"cpu"``, ``"cuda"`` or, of several GPUs, ``"cuda:1"``; or PyTorch's.
        opt_level: what the compiler may do, 0 to 2.
        disable_pass: the name of a pass of the compiler that it leaves out, or names; of passes that ``opt_level`` runs.
        seed: of random numbers, those of parameters included.

    Raises:
        InputOutputError: for files that cannot be read or hold something else.
        InvalidArgumentError: for an array by a name that the net neither reads nor writes.
        InvalidNetError: with everything that is wrong with the net.
    """
    options: tuple[Any, ...] = (threads, device_name(device), opt_level, names_of("disable_pass", disable_pass), seed)
    return Net(_stepnet.load_net(*_model_of(net, init), *options), options)


def train_net(
    net: Source,
    init: Filler = None,
    *,
    loss: str,
    parameters: Iterable[str] = (),
    threads: int = 0,
    device: Device = "cpu",
    opt_level: int = 2,
    disable_pass: Passes = (),
    seed: int = 0,
    **optimizer: Unpack[Optimizer],
) -> TrainingNet:
    """A net from a file or a text, with the gradients of its loss and an optimizer: a call is an iteration of training.

    Arrays have the shapes that the net's operators ask for: ``[T, B, …]``, say, of a sequence.

    >>> training = stepnet.train_net("net.pb", init="init.pb", loss="loss", learning_rate=0.01, clip_norm=1)
    >>> for x, labels in batches:
    ...     value = training(x=x, labels=labels).loss

    Args:
        net, init: as for :func:`load`; the net computes the loss, and has neither gradients nor an optimizer.
        loss: a blob of the net that is to become small; of several elements, their sum.
        parameters: what to change; without names, all floating blobs that ``init`` fills and the loss depends on, but
            for those from which recurrent networks start (a cell's ``h_init``), unless the cell says that they are learned,
            and for defaults of inputs of the file of ONNX that ``stepnet.onnx.convert`` was given. ``training.trained``
            lists them.
        threads, device, opt_level, disable_pass, seed: as for :func:`load`.
        optimizer: ``method`` (``"adam"``, or ``"sgd"``), ``learning_rate`` (0.001), ``weight_decay``, ``clip_norm``,
            ``beta1``, ``beta2`` and ``epsilon`` of Adam, ``momentum`` and ``nesterov`` of SGD, ``schedule``
            (``"fixed"``, ``"step"``, ``"exp"``, ``"inv"``, ``"poly"``, ``"cosine"``) with ``gamma``, ``power``,
            ``decay_every``, ``decay_over``, ``final_fraction``, and ``warmup``, as in the files of ``rnn_runner train``;
            ``step``, ``exp`` and ``inv`` need ``gamma``, ``step`` also ``decay_every``, ``poly`` and ``cosine``
            ``decay_over``, a number of iterations.

    Raises:
        InvalidArgumentError: for a loss, parameters or arrays that the net does not have, and values that make no sense.
        InvalidNetError: with everything that is wrong with the net.
    """
    if isinstance(init, Mapping) and any(str(name).startswith("optimizer/") for name in init):
        raise InvalidArgumentError("invalid argument: init has a state of the optimizer, which TrainingNet.restore takes")
    by_name = {name: _field_text(name, value) for name, value in optimizer.items()}
    run: tuple[Any, ...] = (threads, device_name(device), opt_level, names_of("disable_pass", disable_pass), seed)
    options = (loss, names_of("parameters", parameters), by_name, *run)
    return TrainingNet(_stepnet.train_net(*_model_of(net, init), *options), options)


def _field_text(name: str, value: object) -> str:
    """A value of the optimizer as text."""
    if isinstance(value, (bool, numpy.bool_)):
        return "true" if value else "false"
    if isinstance(value, str) and value.isascii() and value.isidentifier():
        return value.upper()
    if isinstance(value, (int, float, numpy.integer, numpy.floating)):
        number = value.item() if isinstance(value, numpy.generic) else value
        if not isinstance(number, int) or number.bit_length() <= MAX_BITS:
            return repr(number)
    raise TypeMismatchError(f"type mismatch: {name} is {repr_of(value)}; it must be a number, a truth value or a word")


def _model_of(net: Source, init: Filler) -> tuple[tuple[str, str], tuple[str, str], dict[str, Array]]:
    """A net and what fills it, each a text and a path, of which one is empty, and arrays, as the core takes them."""
    given = _net_of("net", net)
    refuse_onnx(given[1])
    if init is None or isinstance(init, Mapping):
        return given, ("", ""), dict(init or {})
    return given, _net_of("init", init), {}


def _net_of(argument: str, source: Source) -> tuple[str, str]:
    text, is_text = text_or_path(source, argument)
    return (text, "") if is_text else ("", text)
