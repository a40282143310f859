"""The serial front of an operator: it sees records in order and decides what is worked on together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np

from runtime.blocks import Block

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


class LaneAccumulator(Generic[Lane]):
    """An accumulator of blocks with a state of its own for each lane.

    Subclasses say what a lane is: `new_lane`, `push`, `drain`, `pending` and `held`.

    Attributes:
        lost: by reason, documents and tokens that were left out.
    """

    reads_payload = False

    def __init__(self) -> None:
        self._lanes: dict[int, Lane] = {}
        self.lost: dict[str, tuple[int, int]] = {}

    def new_lane(self, lane_id: int) -> Lane:
        """A lane that has seen nothing."""
        raise NotImplementedError

    def push(self, lane: Lane, block: Block) -> list[Any]:
        """Take a block in."""
        raise NotImplementedError

    def drain(self, lane: Lane, lane_id: int) -> list[Any]:
        """Give out what a lane holds; it is thrown away afterwards."""
        raise NotImplementedError

    def pending(self, lane: Lane) -> bool:
        """Whether a lane holds anything."""
        raise NotImplementedError

    def held(self, lane: Lane) -> tuple[int, int]:
        """Documents that end in what a lane holds, and tokens."""
        raise NotImplementedError

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
        chosen = sorted(self._lanes) if lane_id is None else [lane_id] if lane_id in self._lanes else []
        return [group for number in chosen for group in self.drain(self._lanes.pop(number), number)]

    def has_pending_data(self, lane_id: int | None = None) -> bool:
        lanes = (
            self._lanes.values()
            if lane_id is None
            else [self._lanes[lane_id]]
            if lane_id in self._lanes
            else []
        )
        return any(self.pending(lane) for lane in lanes)

    def try_epoch_reset(self, boundary_chunk_id: int, lane_id: int) -> bool:
        del boundary_chunk_id
        return not self.has_pending_data(lane_id)


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
