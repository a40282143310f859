"""Every operator in the calling thread, one item after the other."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from runtime.blocks import Block, Sentinel
from runtime.engine.planner import waits
from runtime.ops.accumulators import LaneAccumulator, block_size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from runtime.blocks import Item
    from runtime.engine.ledger import Ledger
    from runtime.ops.accumulators import Accumulator
    from runtime.ops.base import BaseOp, OpContext


class Stage:
    """An operator with its accumulator.

    Args:
        op: set up by now.
        ctx: what it may use.

    Attributes:
        documents, tokens: that came out, as far as blocks tell.
    """

    def __init__(self, op: BaseOp, ctx: OpContext) -> None:
        self.op = op
        self._store = ctx.get("tokens")
        self.accumulator: Accumulator = op.accumulator(deterministic=True, ctx=ctx)
        self._stalls = waits(op)
        self._waiting: dict[int, deque[Sentinel]] = {}
        self.documents = self.tokens = 0
        self._lost, self._made = [0, 0], [0, 0]

    def feed(self, item: Item) -> Iterator[Item]:
        """What comes out when an item goes in."""
        if isinstance(item, Block):
            elems: Any = item  # a block is a sequence of its records, though not by inheritance
            for group in self.accumulator.push_many(elems):
                yield from self._process(group)
            if item.lane in self._waiting:
                yield from self._released(item.lane)
        elif isinstance(item, Sentinel):
            yield from self._pass_sentinel(item)
        else:
            yield item

    def drained(self, lane: int) -> Iterator[Item]:
        """What a lane holds comes out."""
        for group in self.accumulator.flush(reset=True, lane_id=lane):
            yield from self._process(group)

    def _pass_sentinel(self, sentinel: Sentinel) -> Iterator[Item]:
        """Let a sentinel through behind what was held; where that cannot be given yet, it waits."""
        if not self._stalls:
            yield from self.flush(sentinel.lane)
            yield sentinel
            return
        self._waiting.setdefault(sentinel.lane, deque()).append(sentinel)
        yield from self._released(sentinel.lane)

    def _released(self, lane: int) -> Iterator[Item]:
        """Sentinels of a lane that need not wait any longer."""
        waiting = self._waiting[lane]
        while waiting and self.accumulator.try_epoch_reset(waiting[0].boundary, lane):
            yield waiting.popleft()
        if not waiting:
            del self._waiting[lane]

    def flush(self, lane: int) -> Iterator[Item]:
        """What a lane holds comes out, and sentinels that waited for it."""
        yield from self.drained(lane)
        if self.accumulator.has_pending_data(lane):
            raise RuntimeError(f"operator {self.op.name}: flush(reset=True) left data of lane {lane} behind")
        yield from self._waiting.pop(lane, ())

    def _process(self, group: Sequence[Any]) -> Iterator[Item]:
        found: Any = self.op.process_many(group)
        items = found if isinstance(found, list) else [found]
        sizes = [block_size(item) for item in items if isinstance(item, Block)]
        documents, tokens = sum(size[0] for size in sizes), sum(size[1] for size in sizes)
        self.documents += documents
        self.tokens += tokens
        if self.op.changes_content and isinstance(group, Block):
            taken = block_size(group)
            self.note_change(taken[0] - documents, taken[1] - tokens)
        yield from items

    def note_change(self, documents: int, tokens: int) -> None:
        """Count what the operator left out, or, where it is less than nothing, added."""
        for place, change in enumerate((documents, tokens)):
            self._lost[place] += max(change, 0)
            self._made[place] += max(-change, 0)

    def count(self, ledger: Ledger) -> None:
        """Add what is held here, what was left out and what was made."""
        if isinstance(self.accumulator, LaneAccumulator):
            documents, tokens = self.accumulator.held_in_all()
            ledger.documents.buffered += documents
            ledger.tokens.buffered += tokens
        for reason, lost in getattr(self.accumulator, "lost", {}).items():
            ledger.documents.lose(reason, lost[0])
            ledger.tokens.lose(reason, lost[1])
        for counts, lost, made in zip((ledger.documents, ledger.tokens), self._lost, self._made, strict=True):
            counts.lose(f"dropped by {self.op.name}", lost)
            counts.make(self.op.name, made)


class InlineRunner:
    """Stages one after the other."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        self._stages = stages

    def count(self, ledger: Ledger) -> None:
        """Add what was taken, what the stages hold, and what they have lost."""
        ledger.documents.taken += self._stages[0].documents
        ledger.tokens.taken += self._stages[0].tokens
        for stage in self._stages:
            stage.count(ledger)

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
