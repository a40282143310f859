"""Every operator in the calling thread, one item after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runtime.blocks import Batch, Block, Closings, Sentinel, from_records

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from runtime.blocks import Item
    from runtime.ops.accumulators import Accumulator
    from runtime.ops.base import BaseOp, OpContext


class Stage:
    """An operator with its accumulator.

    Args:
        op: set up by now.
        ctx: what it may use.
    """

    def __init__(self, op: BaseOp, ctx: OpContext) -> None:
        self.op = op
        self._accumulator: Accumulator = op.accumulator(deterministic=True, ctx=ctx)

    def feed(self, item: Item) -> Iterator[Item]:
        """What comes out when an item goes in."""
        if isinstance(item, Block):
            elems: Any = item if self.op.takes_blocks else list(item)
            for group in self._accumulator.push_many(elems):
                yield from self._process(group)
        elif isinstance(item, Sentinel):
            yield from self.flush(item.lane)
            yield item
        else:
            yield item

    def flush(self, lane: int) -> Iterator[Item]:
        """What a lane holds comes out."""
        for group in self._accumulator.flush(reset=True, lane_id=lane):
            yield from self._process(group)
        if self._accumulator.has_pending_data(lane):
            raise RuntimeError(f"operator {self.op.name}: flush(reset=True) left data of lane {lane} behind")

    def _process(self, group: Sequence[Any]) -> Iterator[Item]:
        found: Any = self.op.process_many(group)
        if isinstance(found, Block | Batch | Closings):
            yield found
        else:
            yield from from_records(list(found))


class InlineRunner:
    """Stages one after the other."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        self._stages = stages

    def feed(self, item: Item) -> Iterator[Item]:
        """What comes out of the last stage when an item goes into the first."""
        return self._feed(item, 0)

    def _feed(self, item: Item, stage: int) -> Iterator[Item]:
        if stage == len(self._stages):
            yield item
            return
        for found in self._stages[stage].feed(item):
            yield from self._feed(found, stage + 1)

    def finish(self, lane: int) -> Iterator[Item]:
        """What a lane still holds in any stage, at its end."""
        for number, stage in enumerate(self._stages):
            for found in stage.flush(lane):
                yield from self._feed(found, number + 1)
