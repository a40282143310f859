"""Every accumulator keeps the contract, and the test of the contract catches those that do not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from runtime.blocks import Block
from runtime.ops.accumulators import (
    CountingAccumulator,
    PassthroughAccumulator,
    SlicingAccumulator,
)
from runtime.ops.base import OpContext
from runtime.ops.batch import BatchAccumulator
from runtime.ops.children import tombstones_for_record
from runtime.ops.mixture import EnsureMixtureOp
from runtime.ops.pack import PackFlatOp
from runtime.ops.shuffle import ShuffleOp
from runtime.ops.stateful import StatefulOp
from runtime.types import SampleMeta, SampleRecord
from runtime.validation.testing import assert_accumulator, check_accumulator

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from runtime.ops.accumulators import Accumulator
    from runtime.ops.base import BaseOp


def of(op: BaseOp) -> Callable[[], Accumulator]:
    services = {"components": {"a": 0, "b": 1}, "targets": lambda _lane, _chunk: {0: 0.5, 1: 0.5}}
    return lambda: op.accumulator(deterministic=True, ctx=OpContext(services))


BLOCKS: dict[str, Callable[[], Accumulator]] = {
    "passthrough": PassthroughAccumulator,
    "slices": lambda: SlicingAccumulator(2, 8),
    "batch": lambda: BatchAccumulator(4, drop_last=True),
    "batch, all": lambda: BatchAccumulator(4, drop_last=False),
    **{
        f"pack_flat, {algorithm}": of(PackFlatOp(32, algorithm=algorithm, num_bins=3))
        for algorithm in ("wrap", "first_fit", "best_fit", "best_fit_wrap")
    },
    **{
        f"shuffle, {algorithm}": of(ShuffleOp(16, algorithm=algorithm))
        for algorithm in ("streaming", "block", "block_warmup")
    },
    "ensure_mixture": of(EnsureMixtureOp(max_buffer_size=6)),
    "ensure_mixture, any buffer": of(EnsureMixtureOp(max_buffer_size=None, mixture={"a": 3, "b": 1})),
}


def pairs() -> StatefulOp:
    """Two records at a time; every fifth is left out."""

    def push(state: list[SampleRecord], record: SampleRecord) -> list[SampleRecord]:
        if record.meta.chunk_offset % 5 == 4:
            return tombstones_for_record(record)
        state.append(record)
        if len(state) < 2:
            return []
        found = state[:]
        state.clear()
        return found

    return StatefulOp("pairs", init_state=list, push=push, flush=list)


RECORDS: dict[str, Callable[[], Accumulator]] = {
    "passthrough": PassthroughAccumulator,
    "counting": lambda: CountingAccumulator(7),
    "counting, late": lambda: CountingAccumulator(7, max_latency_ms=1e9),
    "stateful": of(pairs()),
    "stateful, often flushed": of(
        StatefulOp(
            "threes",
            init_state=list,
            push=lambda state, record: state.append(record),
            flush=list,
            should_flush=lambda state: len(state) == 3,
        )
    ),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_r7_accumulators_of_blocks_keep_the_contract(name: str) -> None:
    assert_accumulator(BLOCKS[name], takes_blocks=True)


@pytest.mark.parametrize("name", RECORDS)
def test_r7_accumulators_of_records_keep_the_contract(name: str) -> None:
    assert_accumulator(RECORDS[name])


# --- accumulators that break it


class Broken(CountingAccumulator):
    def __init__(self) -> None:
        super().__init__(7)


class PushRaises(Broken):
    def push_many(self, elems: Sequence[Any]) -> list[Any]:
        raise KeyError(len(elems))


class ResetRaises(Broken):
    def flush(self, *, reset: bool = False, lane_id: int | None = None) -> list[Any]:
        if reset:
            raise KeyError(lane_id)
        return super().flush(lane_id=lane_id)


class Loses(Broken):
    def flush(self, *, reset: bool = False, lane_id: int | None = None) -> list[Any]:
        return [group[1:] for group in super().flush(reset=reset, lane_id=lane_id)]


class Repeats(Broken):
    def push_many(self, elems: Sequence[Any]) -> list[Any]:
        groups = super().push_many(elems)
        return groups + groups[:1]


class FlushesAllLanes(Broken):
    def flush(self, *, reset: bool = False, lane_id: int | None = None) -> list[Any]:
        del lane_id
        return super().flush(reset=reset)


class ForgetsOtherLanes(Broken):
    def flush(self, *, reset: bool = False, lane_id: int | None = None) -> list[Any]:
        groups = super().flush(reset=reset, lane_id=lane_id)
        self._lanes.clear()
        return groups


class RemembersAfterReset(Broken):
    """Groups after the first flush are smaller."""

    def flush(self, *, reset: bool = False, lane_id: int | None = None) -> list[Any]:
        groups = super().flush(reset=reset, lane_id=lane_id)
        self.max_batch = 3
        return groups


class AlwaysPending(Broken):
    def has_pending_data(self, lane_id: int | None = None) -> bool:
        del lane_id
        return True


class NeverPending(Broken):
    def has_pending_data(self, lane_id: int | None = None) -> bool:
        del lane_id
        return False


class OtherLane(Broken):
    def push_many(self, elems: Sequence[Any]) -> list[Any]:
        moved = [
            SampleRecord(SampleMeta(m.sample_id, 1 - m.lane_id, m.chunk_id, m.chunk_offset), record.payload)
            for record in elems
            for m in [record.meta]
        ]
        return super().push_many(moved)


class MixesLanes(Broken):
    def push_many(self, elems: Sequence[Any]) -> list[Any]:
        waiting = self._lanes.setdefault(0, [])
        waiting += elems
        return [] if len(waiting) < 30 else [self._lanes.pop(0)]


class WithoutLanes(Broken):
    def flush(self, *, reset: bool = False) -> list[Any]:  # type: ignore[override]
        return super().flush(reset=reset)


class NotDrained(Broken):
    def flush(self, *, reset: bool = False, lane_id: int | None = None) -> list[Any]:
        return [] if reset else super().flush(lane_id=lane_id)


def fails() -> Accumulator:
    raise ValueError("no")


@pytest.mark.parametrize(
    ("factory", "code"),
    [
        (fails, "ACC_FACTORY_RAISED"),
        (PushRaises, "ACC_PUSH_OR_FLUSH_RAISED"),
        (ResetRaises, "ACC_RESET_RAISED"),
        (Loses, "ACC_FLUSH_LOSES_SAMPLES"),
        (Repeats, "ACC_FLUSH_LOSES_SAMPLES"),
        (FlushesAllLanes, "ACC_FLUSH_LEAKS_OTHER_LANES"),
        (ForgetsOtherLanes, "ACC_FLUSH_LEAKS_OTHER_LANES"),
        (RemembersAfterReset, "ACC_RESET_NOT_FRESH"),
        (AlwaysPending, "ACC_HAS_PENDING_LIES"),
        (NeverPending, "ACC_HAS_PENDING_LIES"),
        (OtherLane, "ACC_MUTATES_LANE_ID"),
        (MixesLanes, "ACC_BATCH_NOT_LANE_PURE"),
        (WithoutLanes, "ACC_NO_PER_LANE_FLUSH"),
        (NotDrained, "ACC_PER_LANE_FLUSH_NOT_DRAINED"),
    ],
)
def test_what_breaks_the_contract_is_caught(factory: Callable[[], Accumulator], code: str) -> None:
    assert code in [problem.code for problem in check_accumulator(factory)]
    with pytest.raises(AssertionError, match=code):
        assert_accumulator(factory)


class ForgetsDocuments(SlicingAccumulator):
    """Blocks lose their last row."""

    def push_many(self, elems: Sequence[Any]) -> list[Any]:
        assert isinstance(elems, Block)
        return super().push_many(elems.take(np.arange(len(elems) - 1)))


def test_lost_rows_of_blocks_are_caught() -> None:
    problems = check_accumulator(ForgetsDocuments, takes_blocks=True)
    assert [problem.code for problem in problems] == ["ACC_FLUSH_LOSES_SAMPLES"]
