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


ALGORITHMS = ("streaming", "block", "block_warmup")
FIRST_BLOCK = 64
"""Records of the first block of a warm-up."""


def hashes_of(block: Block, key: int) -> NDArray[np.uint64]:
    """A hash of each record's identity under a key: uint64 of shape (rows,)."""
    first = slice(None) if block.rows is None else block.rows[:-1]
    chunk, offset, start = (
        column[first].astype(np.uint64)
        for column in (block.pieces.chunk, block.pieces.offset, block.pieces.start)
    )
    with np.errstate(over="ignore"):
        words = mix64(chunk * GOLDEN + offset + np.uint64(key)) + start
    if block.pieces.lineage is not None:
        words ^= np.array([derive_key(*path) for path in block.pieces.lineage[first]], np.uint64)
    return mix64(words)


def slots_of(block: Block, size: int, key: int) -> NDArray[np.int64]:
    """The slot that each record takes, from its identity and the key alone: int64 of shape (rows,)."""
    hashed = hashes_of(block, key) >> np.uint64(32)
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
        slots = slots_of(block, self._size, lane.key)
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


class _Open:
    """One lane: the block that is being filled."""

    def __init__(self, key: int, size: float) -> None:
        self.key = key
        self.size = size
        self.parts: list[Block] = []
        self.count = 0


class BlockShuffle(LaneAccumulator[_Open]):
    """Blocks of consecutive records, each in an order of its own.

    Args:
        size: records a block.
        seed: which orders.
        first: records of the first block, for an early first batch.
        growth: how much larger each block is than the one before, up to the size.
    """

    def __init__(self, size: int, seed: int, first: int, growth: float) -> None:
        super().__init__()
        self._size, self._seed, self._first, self._growth = size, seed, first, growth

    def new_lane(self, lane_id: int) -> _Open:
        return _Open(derive_key("shuffle", self._seed, lane_id), self._first)

    def push(self, lane: _Open, block: Block) -> list[Block]:
        found, first = [], 0
        while len(block) - first >= int(lane.size) - lane.count:
            stop = first + int(lane.size) - lane.count
            lane.parts.append(block.slice(first, stop))
            found.append(_permuted(lane))
            lane.parts, lane.count = [], 0
            lane.size = min(lane.size * self._growth, self._size)
            first = stop
        if first < len(block):
            lane.parts.append(block.slice(first, len(block)))
            lane.count += len(block) - first
        return found

    def drain(self, lane: _Open, lane_id: int) -> list[Block]:
        del lane_id
        return [_permuted(lane)] if lane.parts else []

    def pending(self, lane: _Open) -> bool:
        return bool(lane.parts)

    def held(self, lane: _Open) -> tuple[int, int]:
        sizes = [block_size(part) for part in lane.parts]
        return sum(documents for documents, _ in sizes), sum(tokens for _, tokens in sizes)


def _permuted(lane: _Open) -> Block:
    block = Block.join(lane.parts)
    return block.take(np.argsort(hashes_of(block, lane.key), kind="stable"))


class ShuffleOp(BaseOp):
    """Shuffles the records of each lane.

    Orders come from the records' identities and the seed: the same after any restart, with any settings of
    the run.

    Args:
        buffer_size: records that are held at a time.
        seed: which order.
        algorithm: "streaming": each record stays until another takes its slot; "block": blocks of so many
            records are shuffled; "block_warmup": the same with smaller blocks at the start of an epoch.
        warmup_growth: how much larger each block of a warm-up is than the one before.
    """

    name = "shuffle"
    takes_blocks: ClassVar[bool] = True

    def __init__(
        self,
        buffer_size: int = 8192,
        *,
        seed: int = 0,
        algorithm: str = "streaming",
        warmup_growth: float = 1.5,
    ) -> None:
        if buffer_size < 1:
            raise ValueError(f"shuffle: buffer_size: expected 1 or more, found {buffer_size}")
        if algorithm not in ALGORITHMS:
            raise ValueError(f"shuffle: algorithm: expected {', '.join(ALGORITHMS)}, found {algorithm!r}")
        if warmup_growth <= 1:
            raise ValueError(f"shuffle: warmup_growth: expected more than 1, found {warmup_growth}")
        self._size, self._seed = buffer_size, seed
        self._algorithm, self._growth = algorithm, warmup_growth

    def traits(self) -> OpTraits:
        return OpTraits(preserves_cursor_order=False)

    def accumulator(self, *, deterministic: bool, ctx: OpContext) -> Accumulator:
        del deterministic, ctx
        if self._algorithm == "streaming":
            return StreamingShuffle(self._size, self._seed)
        first = self._size if self._algorithm == "block" else min(FIRST_BLOCK, self._size)
        return BlockShuffle(self._size, self._seed, first, self._growth)

    def process_many(self, elems: Sequence[Any]) -> Sequence[Any]:
        return elems
