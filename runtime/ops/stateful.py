"""A user's operator with a state for each lane."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from runtime.errors import operator_error, raised
from runtime.ops.accumulators import ByLane
from runtime.ops.base import BaseOp, OpContext, OpTraits
from runtime.types import SampleRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from runtime.ops.accumulators import Accumulator
    from runtime.types import SampleMeta

Offset = tuple[int, int]


@dataclass
class _Lane:
    """One lane.

    Attributes:
        state: the user's.
        owed: base offsets that records closed which the state has taken in, by one of these records.
    """

    state: Any
    owed: dict[Offset, SampleMeta] = field(default_factory=dict)


class StatefulAccumulator(ByLane[_Lane]):
    """Shows each record to the state of its lane; what the state gives out goes on."""

    reads_payload = True

    def __init__(self, op: StatefulOp) -> None:
        super().__init__()
        self._op = op

    def push_many(self, elems: Sequence[Any]) -> list[Any]:
        groups: list[Any] = []
        for record in elems:
            number = record.meta.lane_id
            lane = self._lanes.get(number)
            if lane is None:
                lane = self._lanes[number] = _Lane(self._op.called("init_state", record.meta))
            found = self._op.called("push", record.meta, lane.state, record)
            self._settle(lane, record, found)
            if self._op.called("should_flush", record.meta, lane.state):
                found += self._emptied(number, lane)
                del self._lanes[number]
            if found:
                groups.append(found)
        return groups

    def _settle(self, lane: _Lane, record: SampleRecord | None, found: Sequence[SampleRecord]) -> None:
        """Note what a record closes, and what of all that was given out."""
        if record is not None:
            for ref in record.meta.contributors:
                if ref.is_last_child:
                    lane.owed[ref.cursor.base_offset()] = record.meta
        for each in found:
            for ref in each.meta.contributors:
                if ref.is_last_child:
                    lane.owed.pop(ref.cursor.base_offset(), None)

    def _emptied(self, number: int, lane: _Lane) -> list[SampleRecord]:
        """What a state still holds."""
        meta = next(iter(lane.owed.values()), None)
        found: list[SampleRecord] = self._op.called("flush", meta, lane.state)
        self._settle(lane, None, found)
        if lane.owed:
            what = (
                f"flush gave nothing for {len(lane.owed)} base offsets of lane {number}, this one first; "
                "give their records, or tombstones_for_record(record) when they are left out"
            )
            raise operator_error(self._op.name, next(iter(lane.owed.values())), what)
        return found

    def flush(self, *, reset: bool = False, lane_id: int | None = None) -> list[Any]:
        del reset  # a lane that was given out is always as new
        groups = [self._emptied(number, self._lanes.pop(number)) for number in self._chosen(lane_id)]
        return [group for group in groups if group]

    def has_pending_data(self, lane_id: int | None = None) -> bool:
        return any(self._lanes[number].owed for number in self._chosen(lane_id))


class StatefulOp(BaseOp):
    """Records pass a state, one for each lane, in order.

    Args:
        name: in messages and plans.
        init_state: makes a lane's state; also after each flush.
        push: gets the state and a record, returns the records to give out now, if any.
        flush: gets the state, returns the records that it still holds; at the end of an epoch and of a lane.
            None: it holds none.
        should_flush: gets the state after each record; true: flush now.
        transform: gets a list of the records that were given out and returns a list; without a state, so it
            may run on workers.
        indexable: its output can be asked for by place.
        preserves_cursor_order: records leave in the order in which they came.
        parallelism: workers of `transform`, for runners that have some.

    A record that is left out is replaced by `tombstones_for_record(record)`, in `push`, `flush` or
    `transform`.
    """

    changes_content: ClassVar[bool] = True

    def __init__(
        self,
        name: str,
        *,
        init_state: Callable[[], Any],
        push: Callable[[Any, SampleRecord], Iterable[SampleRecord] | None],
        flush: Callable[[Any], Iterable[SampleRecord] | None] | None = None,
        should_flush: Callable[[Any], bool] | None = None,
        transform: Callable[[Sequence[SampleRecord]], Sequence[SampleRecord]] | None = None,
        indexable: bool = False,
        preserves_cursor_order: bool = True,
        parallelism: int | None = None,
    ) -> None:
        self.name = name
        self._calls: dict[str, Callable[..., Any] | None] = {
            "init_state": init_state,
            "push": push,
            "flush": flush,
            "should_flush": should_flush,
        }
        self._transform = transform
        self._traits = OpTraits(preserves_cursor_order, indexable=indexable, parallelism=parallelism or 1)

    def called(self, which: str, meta: SampleMeta | None, *arguments: Any) -> Any:
        """What one of the functions gives; of `push` and `flush` a list of records.

        Raises:
            OperatorError: it raised, or gave something else.
        """
        fn = self._calls[which]
        if fn is None:
            return [] if which == "flush" else False
        try:
            found = fn(*arguments)
            if which in ("push", "flush"):
                found = [] if found is None else list(found)
        except Exception as error:
            raise operator_error(self.name, meta, f"{which} {raised(error)}") from error
        if which in ("push", "flush"):
            stray = next((each for each in found if not isinstance(each, SampleRecord)), None)
            if stray is not None:
                what = f"{which} gave a {type(stray).__name__}; return a list of SampleRecord(meta, payload)"
                raise operator_error(self.name, meta, what)
        return found

    def traits(self) -> OpTraits:
        return self._traits

    def accumulator(self, *, deterministic: bool, ctx: OpContext) -> Accumulator:
        del deterministic, ctx
        return StatefulAccumulator(self)

    def process_many(self, elems: Sequence[Any]) -> Any:
        return elems if self._transform is None else self._transform(elems)
