"""The serial front of an operator: it sees records in order and decides what is worked on together."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np

from runtime.blocks import Block
from runtime.types import SampleRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runtime.blocks import Pieces


@runtime_checkable
class Accumulator(Protocol):
    """Groups records; it is never called from two places at once.

    Attributes:
        reads_payload: it looks at payloads, not at metadata alone.
    """

    reads_payload: bool

    def push_many(self, elems: Sequence[Any]) -> list[Any]:
        """Take records in; the groups that are ready by now."""

    def flush(self, *, reset: bool = False, lane_id: int | None = None) -> list[Any]:
        """Give out what is inside, of one lane or all.

        With `reset` the lane is as new afterwards, and the others are as they were.
        """

    def has_pending_data(self, lane_id: int | None = None) -> bool:
        """Whether a flush would give anything."""

    def try_epoch_reset(self, boundary_chunk_id: int, lane_id: int) -> bool:
        """Whether a sentinel that waits here may pass: all that comes would be the same from a new one."""


def block_size(block: Block | None) -> tuple[int, int]:
    """Documents that end in a block, and tokens."""
    if block is None:
        return 0, 0
    return pieces_size(block.pieces)


def pieces_size(pieces: Pieces | None) -> tuple[int, int]:
    """Documents that end in some pieces, and tokens."""
    if pieces is None:
        return 0, 0
    return int(np.count_nonzero(pieces.closes)), int(pieces.length.sum())


Lane = TypeVar("Lane")


class ByLane(Generic[Lane]):
    """What accumulators with a state for each lane have in common; one that was given out is thrown away."""

    reads_payload = False

    def __init__(self) -> None:
        self._lanes: dict[int, Lane] = {}

    def _chosen(self, lane_id: int | None) -> list[int]:
        """The lanes that are meant, in order, of those that hold something."""
        if lane_id is None:
            return sorted(self._lanes)
        return [lane_id] if lane_id in self._lanes else []

    def has_pending_data(self, lane_id: int | None = None) -> bool:
        return bool(self._chosen(lane_id))

    def try_epoch_reset(self, boundary_chunk_id: int, lane_id: int) -> bool:
        del boundary_chunk_id
        return not self.has_pending_data(lane_id)


class LaneAccumulator(ByLane[Lane], ABC):
    """An accumulator of blocks with a state of its own for each lane.

    Attributes:
        lost: by reason, documents and tokens that were left out.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lost: dict[str, tuple[int, int]] = {}

    @abstractmethod
    def new_lane(self, lane_id: int) -> Lane:
        """A lane that has seen nothing."""

    @abstractmethod
    def push(self, lane: Lane, block: Block) -> list[Any]:
        """Take a block in."""

    @abstractmethod
    def drain(self, lane: Lane, lane_id: int) -> list[Any]:
        """Give out what a lane holds; it is thrown away afterwards."""

    @abstractmethod
    def pending(self, lane: Lane) -> bool:
        """Whether a lane holds anything."""

    @abstractmethod
    def held(self, lane: Lane) -> tuple[int, int]:
        """Documents that end in what a lane holds, and tokens."""

    def held_in_all(self) -> tuple[int, int]:
        """Documents that end in what is held, and tokens."""
        sizes = [self.held(lane) for lane in self._lanes.values()]
        return sum(documents for documents, _ in sizes), sum(tokens for _, tokens in sizes)

    def push_many(self, elems: Sequence[Any]) -> list[Any]:
        assert isinstance(elems, Block)
        lane = self._lanes.get(elems.lane)
        if lane is None:
            lane = self._lanes[elems.lane] = self.new_lane(elems.lane)
        return self.push(lane, elems)

    def flush(self, *, reset: bool = False, lane_id: int | None = None) -> list[Any]:
        del reset  # a lane that was given out is always as new
        chosen = self._chosen(lane_id)
        return [group for number in chosen for group in self.drain(self._lanes.pop(number), number)]

    def has_pending_data(self, lane_id: int | None = None) -> bool:
        return any(self.pending(self._lanes[number]) for number in self._chosen(lane_id))


class PassthroughAccumulator:
    """Hands on whatever comes, at once."""

    reads_payload = False

    def push_many(self, elems: Sequence[Any]) -> list[Any]:
        return [elems] if len(elems) else []

    def flush(self, *, reset: bool = False, lane_id: int | None = None) -> list[Any]:
        del reset, lane_id
        return []

    def has_pending_data(self, lane_id: int | None = None) -> bool:
        del lane_id
        return False

    def try_epoch_reset(self, boundary_chunk_id: int, lane_id: int) -> bool:
        del boundary_chunk_id, lane_id
        return True


class CountingAccumulator(ByLane[list[Any]]):
    """Groups of so many records, or batches, of one lane.

    Args:
        max_batch: elements a group.
        max_latency_ms: how long an element may wait before its group is given as it is; None: any time. It
            makes groups depend on the clock, so deterministic runs refuse it.
    """

    def __init__(self, max_batch: int, max_latency_ms: float | None = None) -> None:
        if max_batch < 1:
            raise ValueError(f"max_batch: expected 1 or more, found {max_batch}")
        if max_latency_ms is not None and max_latency_ms <= 0:
            raise ValueError(f"max_latency_ms: expected more than 0, or None, found {max_latency_ms}")
        super().__init__()
        self.max_batch, self.max_latency_ms = max_batch, max_latency_ms
        self._since: dict[int, float] = {}

    def push_many(self, elems: Sequence[Any]) -> list[Any]:
        groups = []
        now = 0.0 if self.max_latency_ms is None else time.monotonic()
        for elem in elems:
            lane = lane_of(elem)
            waiting = self._lanes.setdefault(lane, [])
            if not waiting:
                self._since[lane] = now
            waiting.append(elem)
            if len(waiting) >= self.max_batch:
                groups.append(self._lanes.pop(lane))
        if self.max_latency_ms is not None:
            late = now - self.max_latency_ms / 1000
            groups += [self._lanes.pop(lane) for lane in sorted(self._lanes) if self._since[lane] <= late]
        return groups

    def flush(self, *, reset: bool = False, lane_id: int | None = None) -> list[Any]:
        del reset  # a lane that was given out is always as new
        return [self._lanes.pop(lane) for lane in self._chosen(lane_id)]


def lane_of(elem: Any) -> int:
    """The lane of a record or a batch."""
    lane: int = elem.meta.lane_id if isinstance(elem, SampleRecord) else elem.lane_id
    return lane


class SlicingAccumulator(PassthroughAccumulator):
    """Blocks in parts: small ones first, so that the first batch comes early, then ever larger ones.

    It holds nothing.

    Args:
        first: rows of a lane's first part.
        most: rows of a part at most.
    """

    def __init__(self, first: int = 64, most: int = 2048) -> None:
        self._first, self._most = first, most
        self._sizes: dict[int, int] = {}

    def push_many(self, elems: Sequence[Any]) -> list[Any]:
        assert isinstance(elems, Block)
        parts, at = [], 0
        size = self._sizes.get(elems.lane, self._first)
        while at < len(elems):
            parts.append(elems.slice(at, min(at + size, len(elems))))
            at += size
            size = min(size * 2, self._most)
        self._sizes[elems.lane] = size
        return parts

    def flush(self, *, reset: bool = False, lane_id: int | None = None) -> list[Any]:
        if reset:
            for lane in list(self._sizes) if lane_id is None else [lane_id]:
                self._sizes.pop(lane, None)
        return []
