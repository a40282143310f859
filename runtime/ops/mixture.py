"""Keeping a lane's stream near the mixture that was asked for, prefix by prefix."""

from __future__ import annotations

import heapq
import logging
import math
from collections import deque
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np

from runtime.blocks import NO_TOKENS, Block
from runtime.ops.accumulators import Accumulator, LaneAccumulator, block_size
from runtime.ops.base import BaseOp, OpContext, OpTraits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from runtime.blocks import Ints
    from runtime.types import SampleRecord

log = logging.getLogger(__name__)

SIMPLE_COMPONENTS = 64
"""Up to so many components, a block is dealt with at once."""

Measure: TypeAlias = "str | Callable[[SampleRecord], float]"


class _Lane:
    """One lane.

    Attributes:
        held: records that wait, in the order in which they came.
        tags: of each of them, infinite where its component has no share any longer.
        reached: by component, the tag of its next record.
        emitted: by component, how much has left.
    """

    def __init__(self) -> None:
        self.held: Block | None = None
        self.tags = np.zeros(0)
        self.reached: dict[int, float] = {}
        self.emitted: dict[int, float] = {}
        self.since_obsolete = 0
        self.warned = False


class _Waiting:
    """Places of a lane's records, while they leave one by one.

    Attributes:
        leaving: places, in the order in which they leave.
    """

    def __init__(self, lane: _Lane, op: EnsureMixtureOp) -> None:
        self._lane, self._op = lane, op
        self._queue: list[tuple[float, int]] = []
        self._obsolete: deque[int] = deque()
        self.leaving: list[int] = []
        for place, tag in enumerate(lane.tags.tolist()):
            self.add(tag, place)

    def __len__(self) -> int:
        return len(self._queue) + len(self._obsolete)

    def add(self, tag: float, place: int) -> None:
        """Take a record in; those whose component has no share have an infinite tag."""
        if tag == math.inf:
            self._obsolete.append(place)
        else:
            heapq.heappush(self._queue, (tag, place))

    def release(self, safe: float) -> None:
        """Let go what no component can send anything before, and more where too many wait."""
        self._leave(len(self), safe)
        most = self._op.max_buffer_size
        if most is not None and len(self) > most:
            least = int(most * self._op.drain_target_ratio)
            self._leave(least, safe)
            while len(self) > least:
                self.leaving.append(self._obsolete.popleft())

    def _leave(self, least: int, safe: float) -> None:
        """In the order of tags, up to the safe one, and until at least so many are left."""
        while self._queue and (self._queue[0][0] <= safe or len(self) > least):
            self.leaving.append(heapq.heappop(self._queue)[1])
            self._lane.since_obsolete += 1
            if self._obsolete and self._lane.since_obsolete * self._op.obsolete_drain_rate >= 1:
                self.leaving.append(self._obsolete.popleft())
                self._lane.since_obsolete = 0


class MixtureAccumulator(LaneAccumulator[_Lane]):
    """Weighted fair queueing: a record's tag is what came of its component before it, over its share.

    Records leave in the order of their tags, each as soon as no component can still send a smaller one. When
    too many wait, because a component sends nothing, the smallest tags leave first.

    Source: A. Demers, S. Keshav, S. Shenker, "Analysis and Simulation of a Fair Queueing Algorithm" (1989).
    """

    def __init__(self, op: EnsureMixtureOp, ctx: OpContext) -> None:
        super().__init__()
        self._op = op
        self._fixed = op.shares(ctx.get("components", {}))
        self._targets: Callable[[int, int], Mapping[int, float]] = ctx.get("targets")

    def new_lane(self, lane_id: int) -> _Lane:
        del lane_id
        return _Lane()

    def push(self, lane: _Lane, block: Block) -> list[Block]:
        if block.rows is not None:
            raise TypeError("ensure_mixture: expected single documents; put it before packing")
        chunks = np.unique(block.pieces.chunk).tolist()
        shares = {chunk: self._shares(block.lane, chunk) for chunk in chunks}
        costs = self._op.costs(block)
        everything = block if lane.held is None else Block.join([lane.held, block])
        leaving = self._leaving_at_once(lane, block, costs, shares)
        if leaving is None:
            leaving = self._leaving_one_by_one(lane, block, costs, shares)
        kept = np.ones(len(everything), np.bool_)
        kept[leaving] = False
        lane.held = everything.take(np.flatnonzero(kept)) if kept.any() else None
        lane.tags = lane.tags[kept]
        if not len(leaving):
            return []
        found = everything.take(leaving)
        self._check_drift(lane, found, shares[chunks[-1]])
        return [found]

    def _shares(self, lane: int, chunk: int) -> Mapping[int, float]:
        shares = self._targets(lane, chunk) if self._fixed is None else self._fixed
        return {component: share for component, share in shares.items() if share}

    def _leaving_at_once(
        self, lane: _Lane, block: Block, costs: Sequence[float], shares: Mapping[int, Mapping[int, float]]
    ) -> Ints | None:
        """The places of what leaves, where none has to leave early; None: some has to, or it is not simple.

        Sums are taken one by one as in the other way, so that both give the same tags.
        """
        present = [sorted(each) for each in shares.values()]
        components = block.pieces.component
        if any(each != present[0] for each in present) or len(present[0]) > SIMPLE_COMPONENTS:
            return None
        columns = np.searchsorted(present[0], components).clip(max=len(present[0]) - 1)
        if bool((np.array(present[0])[columns] != components).any()) or bool(np.isinf(lane.tags).any()):
            return None
        of_chunk = {chunk: np.array([each[c] for c in present[0]]) for chunk, each in shares.items()}
        share = np.array([of_chunk[chunk] for chunk in shares])[
            np.searchsorted(list(shares), block.pieces.chunk), columns
        ]
        reached = np.zeros((len(block) + 1, len(present[0])))
        reached[0] = [lane.reached.get(component, 0.0) for component in present[0]]
        reached[np.arange(1, len(block) + 1), columns] = np.asarray(costs) / share
        reached = np.cumsum(reached, axis=0)
        tags = np.concatenate([lane.tags, reached[np.arange(len(block)), columns]])
        order = np.argsort(tags, kind="stable")
        safe = reached[1:].min(axis=1)
        # A later record may have the very tag that is safe, so only smaller ones are sure to have left.
        surely_left = np.searchsorted(tags[order], safe, side="left")
        waiting = len(lane.tags) + np.arange(1, len(block) + 1) - surely_left
        if self._op.max_buffer_size is not None and int(waiting.max()) > self._op.max_buffer_size:
            return None
        lane.reached |= dict(zip(present[0], reached[-1].tolist(), strict=True))
        lane.tags = tags
        left = int(np.searchsorted(tags[order], safe[-1], side="right"))
        lane.since_obsolete += left
        return order[:left]

    def _leaving_one_by_one(
        self, lane: _Lane, block: Block, costs: Sequence[float], shares: Mapping[int, Mapping[int, float]]
    ) -> Ints:
        """The same, record by record."""
        waiting = _Waiting(lane, self._op)
        tags: list[float] = []
        columns = block.pieces.chunk.tolist(), block.pieces.component.tolist(), costs
        for place, (chunk, component, cost) in enumerate(zip(*columns, strict=True), len(lane.tags)):
            share = shares[chunk].get(component)
            tag = math.inf if share is None else lane.reached.get(component, 0.0)
            tags.append(tag)
            waiting.add(tag, place)
            if share is not None:
                lane.reached[component] = tag + cost / share
            waiting.release(min(lane.reached.get(component, 0.0) for component in shares[chunk]))
        lane.tags = np.concatenate([lane.tags, tags])
        return np.array(waiting.leaving, np.int64)

    def _check_drift(self, lane: _Lane, block: Block, shares: Mapping[int, float]) -> None:
        tolerance = self._op.warn_tolerance
        if tolerance is None or lane.warned:
            return
        costs = np.array(self._op.costs(block), np.float64)
        for component, cost in enumerate(np.bincount(block.pieces.component, costs).tolist()):
            lane.emitted[component] = lane.emitted.get(component, 0.0) + cost
        total, wanted = sum(lane.emitted.values()), sum(shares.values())
        for component, share in shares.items():
            reached = lane.emitted.get(component, 0.0) / total if total else 0.0
            if abs(reached - share / wanted) > tolerance:
                log.warning(
                    "ensure_mixture: lane %d: component %d has a share of %.4f, wanted are %.4f",
                    block.lane,
                    component,
                    reached,
                    share / wanted,
                )
                lane.warned = True

    def drain(self, lane: _Lane, lane_id: int) -> list[Block]:
        del lane_id
        return [] if lane.held is None else [lane.held.take(np.argsort(lane.tags, kind="stable"))]

    def pending(self, lane: _Lane) -> bool:
        return lane.held is not None

    def held(self, lane: _Lane) -> tuple[int, int]:
        return block_size(lane.held)


class EnsureMixtureOp(BaseOp):
    """Puts the records of each lane in an order whose every prefix is near the target mixture.

    Args:
        max_buffer_size: records that may wait; None: as many as it takes.
        drain_target_ratio: how much of the buffer is left when it had to be drained.
        obsolete_drain_rate: for each record that leaves, how many of components without a share any longer.
        weight_by: what a share counts: "samples", "tokens", a field of the payload (a number, or something
            with a length), or a function of a record; "auto": tokens where they are known.
        warn_tolerance: warn once a lane when a share is off by more than this.
        mixture: shares by component name; None: what each chunk says.
    """

    name = "ensure_mixture"
    takes_blocks: ClassVar[bool] = True

    def __init__(
        self,
        *,
        max_buffer_size: int | None = 1000,
        drain_target_ratio: float = 0.8,
        obsolete_drain_rate: float = 0.1,
        weight_by: Measure = "auto",
        warn_tolerance: float | None = None,
        mixture: Mapping[str, float] | None = None,
    ) -> None:
        if max_buffer_size is not None and max_buffer_size < 1:
            raise ValueError(f"ensure_mixture: max_buffer_size: expected 1 or more, found {max_buffer_size}")
        for argument, value in (
            ("drain_target_ratio", drain_target_ratio),
            ("obsolete_drain_rate", obsolete_drain_rate),
        ):
            if not 0 <= value <= 1:
                raise ValueError(f"ensure_mixture: {argument}: expected 0 to 1, found {value}")
        self.max_buffer_size = max_buffer_size
        self.drain_target_ratio = drain_target_ratio
        self.obsolete_drain_rate = obsolete_drain_rate
        self.warn_tolerance = warn_tolerance
        self._weight_by = weight_by
        self._mixture = mixture

    def shares(self, components: Mapping[str, int]) -> dict[int, float] | None:
        """The fixed shares by component id, if there are any.

        Raises:
            ValueError: a component that there is not, or no share above 0.
        """
        if self._mixture is None:
            return None
        for name in self._mixture:
            if name not in components:
                raise ValueError(
                    f"ensure_mixture: mixture: no component {name!r}; components are {', '.join(components)}"
                )
        if not any(self._mixture.values()):
            raise ValueError("ensure_mixture: mixture: expected a share above 0")
        return {components[name]: float(share) for name, share in self._mixture.items()}

    def costs(self, block: Block) -> list[float]:
        """What each record counts."""
        by = self._weight_by
        if callable(by):
            return [float(by(record)) for record in block]
        known = bool((block.pieces.ref != NO_TOKENS).all())
        if by == "tokens" or (by == "auto" and known):
            return [float(length) for length in block.lengths.tolist()]
        if by in ("samples", "auto"):
            return [1.0] * len(block)
        values = [record.payload[by] for record in block]
        return [float(value if isinstance(value, int | float) else len(value)) for value in values]

    def traits(self) -> OpTraits:
        return OpTraits(preserves_cursor_order=False)

    def accumulator(self, *, deterministic: bool, ctx: OpContext) -> Accumulator:
        del deterministic
        return MixtureAccumulator(self, ctx)

    def process_many(self, elems: Sequence[Any]) -> Sequence[Any]:
        return elems
