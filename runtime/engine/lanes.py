"""One lane: where its samples come from, and which of them the training loop has received."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from runtime.blocks import Block, Sentinel, pointers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from runtime.blocks import Batch, Closings, Ints
    from runtime.work import MixtureReadConfig, WorkChunk, WorkSource

BLOCK_DOCUMENTS = 2048
"""Documents that travel together: enough to make an operator's fixed cost small, few enough for memory."""


@dataclass
class InflightChunk:
    """A chunk of which something is still to be delivered.

    Attributes:
        chunk: as the source gave it.
        closed: bool of shape (samples,): base offsets that are done with.
        left: how many are not.
        target: shares by component id, once they were asked for.
    """

    chunk: WorkChunk
    closed: NDArray[np.bool_]
    left: int
    target: Mapping[int, float] | None = None


@dataclass
class LaneTracker:
    """What of a lane's chunks is delivered, and which chunks may be forgotten.

    Attributes:
        monotone: records leave in the order in which they came: a chunk is done with as soon as something of
            a later one is delivered. Otherwise whole epochs are: once all their base offsets are closed.
        inflight: chunks by number.
        boundaries: first chunks of the epochs behind the oldest one.
        delivered_rows, delivered_batches, delivered_documents, delivered_tokens: received by the training
            loop.
    """

    monotone: bool
    inflight: dict[int, InflightChunk] = field(default_factory=dict)
    boundaries: list[int] = field(default_factory=list)
    delivered_rows: int = 0
    delivered_batches: int = 0
    delivered_documents: int = 0
    delivered_tokens: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    """Chunks begin where operators run, and end where batches are received."""

    def start(self, number: int, chunk: WorkChunk) -> None:
        """A chunk was handed to the operators."""
        with self.lock:
            self.inflight[number] = InflightChunk(chunk, np.zeros(len(chunk), np.bool_), len(chunk))

    def deliver(self, batch: Batch) -> None:
        """A batch was received by the training loop."""
        with self.lock:
            self._deliver(batch)

    def _deliver(self, batch: Batch) -> None:
        self.delivered_batches += 1
        self.delivered_rows += len(batch)
        view = closing_view(batch.block)
        documents, tokens = view.size(batch.first, batch.stop)
        self.delivered_documents += documents
        self.delivered_tokens += tokens
        if not documents:
            return
        first, stop = view.edges[batch.first], view.edges[batch.stop]
        chunks, offsets = view.chunk[first:stop], view.offset[first:stop]
        if view.single is not None:
            self._close(view.single, offsets)
            newest = view.single
        else:
            for number in np.unique(chunks).tolist():
                self._close(number, offsets[chunks == number])
            newest = int(chunks[-1])
        if self.monotone and next(iter(self.inflight)) < newest:
            for number in [number for number in self.inflight if number < newest]:
                del self.inflight[number]

    def close(self, closings: Closings) -> None:
        """Base offsets that will give no record were dealt with."""
        with self.lock:
            for number in np.unique(closings.chunk).tolist():
                self._close(number, closings.offset[closings.chunk == number])

    def _close(self, number: int, offsets: Ints) -> None:
        entry = self.inflight.get(number)
        if entry is None:
            return  # evicted already, which the monotone rule allows
        entry.closed[offsets] = True
        entry.left = (
            len(entry.closed) - int(np.count_nonzero(entry.closed)) if len(offsets) > 1 else entry.left
        )
        if len(offsets) == 1:
            entry.left = len(entry.closed) - int(np.count_nonzero(entry.closed))
        if self.boundaries:
            self._forget_epochs()

    def target(self, number: int, components: Mapping[str, int]) -> Mapping[int, float]:
        """The shares that a chunk in flight aims at, by component id."""
        with self.lock:
            entry = self.inflight[number]
        if entry.target is None:
            wanted = entry.chunk.target_mixture or entry.chunk.mixture
            entry.target = {components[name]: share for name, share in wanted.items()}
        return entry.target

    @property
    def open(self) -> int:
        """Base offsets of chunks in flight that are not done with."""
        with self.lock:
            return sum(entry.left for entry in self.inflight.values())

    def end_epoch(self, sentinel: Sentinel) -> None:
        """A sentinel came out at the end: what lies before it is out, too."""
        with self.lock:
            self.boundaries.append(sentinel.boundary)
            self._forget_epochs()

    def _forget_epochs(self) -> None:
        while self.boundaries:
            old = [number for number in self.inflight if number < self.boundaries[0]]
            if any(self.inflight[number].left for number in old):
                return
            for number in old:
                del self.inflight[number]
            self.boundaries.pop(0)


@dataclass(frozen=True, slots=True)
class ClosingView:
    """The base offsets that a block closes, by row.

    Attributes:
        chunk, offset: int64 of shape (closings,).
        edges: row r has closings edges[r] to edges[r + 1].
        single: the chunk of all of them, if it is one.
        tokens: in all rows before row r.
    """

    chunk: Ints
    offset: Ints
    edges: list[int]
    single: int | None
    tokens: list[int]

    def size(self, first: int, stop: int) -> tuple[int, int]:
        """Documents that end in some rows, and their tokens."""
        return self.edges[stop] - self.edges[first], self.tokens[stop] - self.tokens[first]


def closing_view(block: Block) -> ClosingView:
    """The closings of a block; computed once."""
    view: ClosingView | None = block.cache.get("closings")
    if view is None:
        places = np.flatnonzero(block.pieces.closes)
        rows = np.arange(len(block) + 1) if block.rows is None else block.rows
        chunk = block.pieces.chunk[places]
        is_single = len(chunk) > 0 and int(chunk.min()) == int(chunk.max())
        view = block.cache["closings"] = ClosingView(
            chunk,
            block.pieces.offset[places],
            np.searchsorted(places, rows).tolist(),
            int(chunk[0]) if is_single else None,
            np.concatenate([[0], np.cumsum(block.pieces.length)])[rows].tolist(),
        )
    return view


class LaneFeeder:
    """Turns a lane's chunks into blocks of pointers, and puts sentinels between epochs.

    Args:
        lane: its number.
        source: of its chunks.
        tracker: is told of each chunk.
        config: how chunks are read.
        every: chunks an epoch; 0: there are no sentinels.
    """

    def __init__(
        self,
        lane: int,
        source: WorkSource,
        tracker: LaneTracker,
        *,
        config: MixtureReadConfig,
        every: int,
    ) -> None:
        self._lane, self._source, self._components = lane, source, source.component_ids()
        self._config, self._every, self._tracker = config, every, tracker
        self._number = 0
        self._at = 0
        self._order: tuple[NDArray[np.int32], Ints] | None = None

    def next(self) -> Block | Sentinel | None:
        """The next item; None at the end."""
        if self._order is None:
            if self._every and self._number and self._number % self._every == 0 and self._at >= 0:
                self._at = -1  # once
                return Sentinel(self._lane, self._number)
            chunk = self._source.next_chunk()
            if chunk is None:
                return None
            labels, ids = chunk.order(self._config)
            numbers = np.array([self._components[name] for name in chunk.arrays], np.int32)
            self._order, self._at = (numbers[labels], ids), 0
            self._tracker.start(self._number, chunk)
        components, ids = self._order
        first, stop = self._at, min(self._at + BLOCK_DOCUMENTS, len(ids))
        block = pointers(self._lane, self._number, components[first:stop], ids[first:stop], first)
        self._at = stop
        if stop == len(ids):
            self._order, self._at = None, 0
            self._number += 1
        return block
