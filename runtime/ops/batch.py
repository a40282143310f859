"""Grouping rows for the training loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from runtime.blocks import Batch, Block
from runtime.ops.accumulators import Accumulator, LaneAccumulator, block_size
from runtime.ops.base import BaseOp, OpContext, OpTraits

if TYPE_CHECKING:
    from collections.abc import Sequence


INCOMPLETE = "incomplete batch"
"""Why rows are lost at the end of a lane."""


class _Waiting:
    """One lane: rows that do not make a batch yet."""

    def __init__(self) -> None:
        self.block: Block | None = None


class BatchAccumulator(LaneAccumulator[_Waiting]):
    """Batches of consecutive rows of a lane."""

    def __init__(self, size: int, *, drop_last: bool) -> None:
        super().__init__()
        self._size, self.drop_last = size, drop_last

    def new_lane(self, lane_id: int) -> _Waiting:
        del lane_id
        return _Waiting()

    def push(self, lane: _Waiting, block: Block) -> list[Batch]:
        first, batches = 0, []
        if lane.block is not None:
            first = min(self._size - len(lane.block), len(block))
            head = Block.join([lane.block, block.slice(0, first)])
            if len(head) < self._size:
                lane.block = head
                return []
            batches.append(Batch(head, 0, self._size))
        stop = len(block) - (len(block) - first) % self._size
        batches += [Batch(block, row, row + self._size) for row in range(first, stop, self._size)]
        lane.block = block.slice(stop, len(block)) if stop < len(block) else None
        return batches

    def drain(self, lane: _Waiting, lane_id: int) -> list[Batch]:
        del lane_id
        block = lane.block
        if block is None:
            return []
        if not self.drop_last:
            return [Batch(block, 0, len(block))]
        before, size = self.lost.get(INCOMPLETE, (0, 0)), block_size(block)
        self.lost[INCOMPLETE] = before[0] + size[0], before[1] + size[1]
        return []

    def pending(self, lane: _Waiting) -> bool:
        return lane.block is not None

    def held(self, lane: _Waiting) -> tuple[int, int]:
        return block_size(lane.block)

    def try_epoch_reset(self, boundary_chunk_id: int, lane_id: int) -> bool:
        """Whether all that waits is of chunks behind the boundary."""
        lane = self._lanes.get(lane_id)
        if lane is None or lane.block is None:
            return True
        return int(lane.block.pieces.chunk.min()) >= boundary_chunk_id


class BatchOp(BaseOp):
    """Batches of `microbatch_size` rows.

    Args:
        microbatch_size: rows a batch.
        drop_last: leave out the incomplete batch at the end of a lane, and count it; otherwise it is given.
    """

    name = "batch"
    takes_blocks: ClassVar[bool] = True

    def __init__(self, microbatch_size: int, *, drop_last: bool = True) -> None:
        if microbatch_size < 1:
            raise ValueError(f"batch: microbatch_size: expected 1 or more, found {microbatch_size}")
        self.size, self.drop_last = microbatch_size, drop_last

    def traits(self) -> OpTraits:
        return OpTraits(preserves_cursor_order=True)

    def accumulator(self, *, deterministic: bool, ctx: OpContext) -> Accumulator:
        del deterministic, ctx
        return BatchAccumulator(self.size, drop_last=self.drop_last)

    def process_many(self, elems: Sequence[Any]) -> Sequence[Any]:
        return elems
