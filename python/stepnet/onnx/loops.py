"""RecurrentNetwork operators for what loops in ONNX: the operator that a step net and its links make."""

from __future__ import annotations

from typing import Sequence

from .netdef import NetText


class Loop:
    """A RecurrentNetwork while it is written: the net of its step, and what links it to blobs outside."""

    def __init__(self, outer: NetText, sequence: str) -> None:
        """``sequence`` gives the number of steps and, where it has two dimensions or more, the batch."""
        self.outer = outer
        self.step = NetText(f"{outer.name} step", outer.names)
        self.step.hint, self.step.place = outer.hint, outer.place
        self.inputs = {sequence: 0}
        """The operator's inputs with their places."""
        self.links: list[tuple[str, str, int]] = []
        self.states: dict[str, int] = {}
        self.next_rows: dict[str, str] = {}
        """States by the blob that becomes their next row."""
        self.states_by_item: dict[str, str] = {}
        """Those of them that lack the first dimension of the row."""
        self.items: set[str] = set()
        """The blobs that ``item`` has made."""
        self.aliases: list[tuple[str, str, int]] = []
        self.step_outputs: list[tuple[str, str]] = []

    def sequence(self, blob: str) -> str:
        """What the step sees of a sequence: ``[1, …]`` of ``[T, …]``."""
        self.captured(blob)
        return self.link(blob, 0)

    def item(self, blob: str) -> str:
        """The item of a sequence: ``[…]`` of ``[T, …]``."""
        item = self.step.squeezed(self.sequence(blob), [0])
        self.items.add(item)
        return item

    def link(self, external: str, offset: int) -> str:
        internal = self.outer.names.unique(f"{external} at t")
        self.links.append((internal, external, offset))
        self.step.inputs.append(internal)
        return internal

    def captured(self, blob: str) -> str:
        """A blob outside that the step sees as it is."""
        self.inputs.setdefault(blob, len(self.inputs))
        return blob

    def state(self, initial: str) -> tuple[str, str]:
        """A state that starts as ``[1, B, …]``: its name, and the blob that shows its last row to the step."""
        name = self.unread_state(initial)
        return name, self.link(name, 0)

    def unread_state(self, initial: str) -> str:
        """The name of a state whose last row the step does not read."""
        name = self.outer.names.unique(f"{self.outer.hint} state")
        self.states[name] = self.inputs.setdefault(initial, len(self.inputs))
        return name

    def next_row(self, state: str, blob: str, is_item: bool = False) -> str:
        """Makes a blob the state's next row, which it gives: that of the step itself, or a copy of any other.

        Args:
            is_item: it is the row without its first dimension.
        """
        if blob not in self.step.given or blob in self.next_rows:
            blob = self.step.emit("Copy", blob)
        self.next_rows[blob] = state
        if is_item:
            self.states_by_item[blob] = state
        self.links.append((blob, state, 1))
        return blob

    def every_row(self, state: str) -> str:
        return self._alias(state, 1)

    def last_row(self, state: str) -> str:
        return self._alias(state, -1)

    def _alias(self, state: str, offset: int) -> str:
        output = self.outer.names.unique(self.outer.hint)
        self.aliases.append((state, output, offset))
        return output

    def output(self, blob: str) -> str:
        """A blob of the step, ``[1, …]``, of all steps, ``[T, …]``."""
        if blob in self.next_rows:
            return self.every_row(self.next_rows[blob])
        if blob not in self.step.given:
            blob = self.step.emit("Copy", blob)
        self.step.shown.add(blob)
        output = self.outer.names.unique(self.outer.hint)
        self.step_outputs.append((blob, output))
        return output

    def every_item(self, blob: str) -> str:
        """An item ``[…]`` of all steps, ``[T, …]``."""
        if blob in self.states_by_item:
            return self.every_row(self.states_by_item[blob])
        return self.output(self.step.expanded(blob, [0]))

    def add(self) -> None:
        """Adds the operator to the net outside."""
        outputs = [*(alias[1] for alias in self.aliases), *(pair[1] for pair in self.step_outputs)]
        # Views are made again where gradients read them, which takes less than a copy in each step. Items are kept: products
        # read them, for which they have to be in memory.
        kept = {*self.items, *self.next_rows, *(pair[0] for pair in self.step_outputs)}
        record = self.outer.names.unique(f"{self.outer.hint} record")
        self.step.outputs = list(self.next_rows)
        read = self.step.blobs_read()
        self.step.inputs = [blob for blob in self.step.inputs if blob in read]
        internal, external, offset = transposed([link for link in self.links if link[0] in read])
        source, destination, from_row = transposed(self.aliases)
        self.outer.add(
            "RecurrentNetwork",
            list(self.inputs),
            [*outputs, record],
            step_net=self.step,
            recurrent_states=list(self.states),
            initial_recurrent_state_ids=list(self.states.values()),
            private_states=1,
            link_internal=internal,
            link_external=external,
            link_offset=offset,
            alias_src=source,
            alias_dst=destination,
            alias_offset=from_row,
            step_output_src=[pair[0] for pair in self.step_outputs],
            step_output_dst=[pair[1] for pair in self.step_outputs],
            recompute_blobs_on_backward=[view for view in self.step.views_read() if view not in kept],
            timestep=self.outer.names.unique("timestep"),
        )


def transposed(rows: Sequence[tuple]) -> list[list]:
    """Columns of rows of three."""
    return [list(column) for column in zip(*rows)] if rows else [[], [], []]
