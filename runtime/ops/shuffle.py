"""Changing the order of records within a buffer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from runtime.blocks import Block
from runtime.ops.accumulators import Accumulator, LaneAccumulator, block_size
from runtime.ops.base import BaseOp, OpContext, OpTraits
from runtime.permutation import GOLDEN, derive_key, mix64

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from runtime.blocks import Pieces


def slots_of(pieces: Pieces, size: int, key: int) -> NDArray[np.int64]:
    """The slot that each record takes, from its identity and the key alone: int64 of shape (pieces,)."""
    with np.errstate(over="ignore"):
        words = pieces.chunk.astype(np.uint64) * GOLDEN + pieces.offset.astype(np.uint64)
        words = mix64(words + np.uint64(key)) + pieces.start.astype(np.uint64)
    hashed = mix64(words) >> np.uint64(32)
    return ((hashed * np.uint64(size)) >> np.uint64(32)).astype(np.int64)


class _Slots:
    """One lane: a buffer of slots, each with at most one record."""

    def __init__(self, size: int, key: int) -> None:
        self.key = key
        self.held: Block | None = None
        self.place_of = np.full(size, -1, np.int64)


class StreamingShuffle(LaneAccumulator[_Slots]):
    """A record takes the slot that its identity names, and the one that was there goes on.

    So each stays until its slot is named again, on average for as many arrivals as there are slots. What
    leaves depends on the records alone, not on how many come at a time.
    """

    def __init__(self, size: int, seed: int) -> None:
        super().__init__()
        self._size = size
        self._seed = seed

    def new_lane(self, lane_id: int) -> _Slots:
        return _Slots(self._size, derive_key("shuffle", self._seed, lane_id))

    def push(self, lane: _Slots, block: Block) -> list[Block]:
        slots = slots_of(block.pieces, self._size, lane.key)
        held = 0 if lane.held is None else len(lane.held)
        everything = block if lane.held is None else Block.join([lane.held, block])
        order = np.argsort(slots, kind="stable")
        named = slots[order]
        follows = np.concatenate([[False], named[1:] == named[:-1]])
        before = np.empty(len(slots), np.int64)
        before[order] = np.where(follows, np.roll(order, 1) + held, lane.place_of[named])
        lasts = np.append(~follows[1:], True)
        lane.place_of[named[lasts]] = order[lasts] + held
        leaving = before[before >= 0]
        kept = np.flatnonzero(lane.place_of >= 0)
        lane.held = everything.take(lane.place_of[kept])
        lane.place_of[kept] = np.arange(len(kept))
        return [everything.take(leaving)] if len(leaving) else []

    def drain(self, lane: _Slots, lane_id: int) -> list[Block]:
        del lane_id
        return [] if lane.held is None else [lane.held]

    def pending(self, lane: _Slots) -> bool:
        return lane.held is not None

    def held(self, lane: _Slots) -> tuple[int, int]:
        return block_size(lane.held)


class ShuffleOp(BaseOp):
    """Shuffles the records of each lane.

    Args:
        buffer_size: records that are held at a time.
        seed: which order.
    """

    name = "shuffle"
    takes_blocks: ClassVar[bool] = True

    def __init__(self, buffer_size: int = 8192, *, seed: int = 0) -> None:
        if buffer_size < 1:
            raise ValueError(f"shuffle: buffer_size: expected 1 or more, found {buffer_size}")
        self._size, self._seed = buffer_size, seed

    def traits(self) -> OpTraits:
        return OpTraits(preserves_cursor_order=False)

    def accumulator(self, *, deterministic: bool, ctx: OpContext) -> Accumulator:
        del deterministic, ctx
        return StreamingShuffle(self._size, self._seed)

    def process_many(self, elems: Sequence[Any]) -> Sequence[Any]:
        return elems
