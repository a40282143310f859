"""One lane: where its samples come from, and which of them the training loop has received."""

from __future__ import annotations

import threading
from dataclasses import dataclass
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


class LaneTracker:
    """What of a lane's chunks is delivered, and which chunks may be forgotten.

    Batches that follow each other in a block are accounted for together, when something else is delivered or
    somebody looks: a batch alone would cost as much as the copy of a row.

    Args:
        monotone: records leave in the order in which they came: a chunk is done with as soon as something of
            a later one is delivered. Otherwise whole epochs are: once all their base offsets are closed.

    Attributes:
        monotone: as given.
        delivered_rows, delivered_batches: received by the training loop.
    """

    def __init__(self, monotone: bool) -> None:
        self.monotone = monotone
        self.delivered_rows = self.delivered_batches = 0
        self._inflight: dict[int, InflightChunk] = {}
        self._boundaries: list[int] = []  # first chunks of the epochs behind the oldest one
        self._documents = self._tokens = 0
        self._due: Block | None = None
        self._due_first = self._due_stop = 0  # rows of it that are not accounted for yet
        self._lock = threading.Lock()  # chunks begin where operators run, and end where batches are received

    @property
    def inflight(self) -> dict[int, InflightChunk]:
        """Chunks by number."""
        with self._lock:
            self._settle()
            return self._inflight

    @property
    def delivered_documents(self) -> int:
        """Documents that ended in rows that the training loop received."""
        with self._lock:
            self._settle()
            return self._documents

    @property
    def delivered_tokens(self) -> int:
        """Tokens of these rows."""
        with self._lock:
            self._settle()
            return self._tokens

    def start(self, number: int, chunk: WorkChunk) -> None:
        """A chunk was handed to the operators."""
        with self._lock:
            self._inflight[number] = InflightChunk(chunk, np.zeros(len(chunk), np.bool_), len(chunk))

    def deliver(self, batch: Batch) -> None:
        """A batch was received by the training loop."""
        with self._lock:
            self.delivered_batches += 1
            self.delivered_rows += batch.stop - batch.first
            if self._due is not batch.block or self._due_stop != batch.first:
                self._settle()
                self._due, self._due_first = batch.block, batch.first
            self._due_stop = batch.stop

    def _settle(self) -> None:
        """Account for what was delivered."""
        if self._due is None:
            return
        view = closing_view(self._due)
        documents, tokens = view.size(self._due_first, self._due_stop)
        self._documents += documents
        self._tokens += tokens
        if documents:
            first, stop = view.edges[self._due_first], view.edges[self._due_stop]
            chunks = view.chunk[first:stop]
            self._close(chunks, view.offset[first:stop])
            newest = int(chunks[-1])
            if self.monotone and next(iter(self._inflight)) < newest:
                for number in [number for number in self._inflight if number < newest]:
                    del self._inflight[number]
        self._due = None

    def close(self, closings: Closings) -> None:
        """Base offsets that will give no record were dealt with."""
        with self._lock:
            self._close(closings.chunk, closings.offset)

    def _close(self, chunks: Ints, offsets: Ints) -> None:
        for number in np.unique(chunks).tolist():
            entry = self._inflight.get(number)
            if entry is None:
                continue  # evicted already, which the monotone rule allows
            entry.closed[offsets[chunks == number]] = True
            entry.left = len(entry.closed) - int(np.count_nonzero(entry.closed))
        if self._boundaries:
            self._forget_epochs()

    def target(self, number: int, components: Mapping[str, int]) -> Mapping[int, float]:
        """The shares that a chunk in flight aims at, by component id."""
        with self._lock:
            entry = self._inflight[number]
        if entry.target is None:
            wanted = entry.chunk.target_mixture or entry.chunk.mixture
            entry.target = {components[name]: share for name, share in wanted.items()}
        return entry.target

    @property
    def open(self) -> int:
        """Base offsets of chunks in flight that are not done with."""
        with self._lock:
            self._settle()
            return sum(entry.left for entry in self._inflight.values())

    def end_epoch(self, sentinel: Sentinel) -> None:
        """A sentinel came out at the end: what lies before it is out, too."""
        with self._lock:
            self._settle()
            self._boundaries.append(sentinel.boundary)
            self._forget_epochs()

    def _forget_epochs(self) -> None:
        while self._boundaries:
            old = [number for number in self._inflight if number < self._boundaries[0]]
            if any(self._inflight[number].left for number in old):
                return
            for number in old:
                del self._inflight[number]
            self._boundaries.pop(0)


@dataclass(frozen=True, slots=True)
class ClosingView:
    """The base offsets that a block closes, by row.

    Attributes:
        chunk, offset: int64 of shape (closings,).
        edges: row r has closings edges[r] to edges[r + 1].
        tokens: in all rows before row r.
    """

    chunk: Ints
    offset: Ints
    edges: Ints
    tokens: Ints

    def size(self, first: int, stop: int) -> tuple[int, int]:
        """Documents that end in some rows, and their tokens."""
        documents, tokens = self.edges[stop] - self.edges[first], self.tokens[stop] - self.tokens[first]
        return int(documents), int(tokens)


def closing_view(block: Block) -> ClosingView:
    """The closings of a block; computed once."""
    view: ClosingView | None = block.cache.get("closings")
    if view is None:
        places = np.flatnonzero(block.pieces.closes)
        rows = np.arange(len(block) + 1) if block.rows is None else block.rows
        chunk = block.pieces.chunk[places]
        view = block.cache["closings"] = ClosingView(
            chunk,
            block.pieces.offset[places],
            np.searchsorted(places, rows),
            np.concatenate([[0], np.cumsum(block.pieces.length)])[rows],
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
        self._order: tuple[NDArray[np.int32], NDArray[np.signedinteger]] | None = None

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
            self._order, self._at = (numbers[labels], _narrowed(ids)), 0
            self._tracker.start(self._number, chunk)
        components, ids = self._order
        first, stop = self._at, min(self._at + BLOCK_DOCUMENTS, len(ids))
        samples = ids[first:stop].astype(np.int64)
        block = pointers(self._lane, self._number, components[first:stop], samples, first)
        self._at = stop
        if stop == len(ids):
            self._order, self._at = None, 0
            self._number += 1
        return block


def _narrowed(ids: Ints) -> NDArray[np.signedinteger]:
    """The same integers in half the memory where they allow it: every lane keeps those of a chunk."""
    return ids.astype(np.int32) if not len(ids) or int(ids.max()) <= np.iinfo(np.int32).max else ids
