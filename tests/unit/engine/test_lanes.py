"""Which chunks are forgotten, and which lanes a rank owns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from runtime.blocks import Batch, Block, Closings, Sentinel, pointers
from runtime.engine.lanes import LaneTracker
from runtime.options import RuntimeOptions
from runtime.work import WorkChunk


def chunk(size: int) -> WorkChunk:
    return WorkChunk({"a": np.zeros((size, 3), np.int64)})


def rows(number: int, first: int, stop: int) -> Block:
    return pointers(0, number, np.zeros(stop - first, np.int32), np.zeros((stop - first, 3), np.int64), first)


def deliver(tracker: LaneTracker, *blocks: Block) -> None:
    block = Block.join(blocks)
    tracker.deliver(Batch(block, 0, len(block)))


def test_in_order_a_chunk_is_forgotten_when_a_later_one_is_delivered_from() -> None:
    tracker = LaneTracker(monotone=True)
    for number in range(3):
        tracker.start(number, chunk(10))
    deliver(tracker, rows(0, 0, 10))
    assert sorted(tracker.inflight) == [0, 1, 2]
    deliver(tracker, rows(1, 0, 1))
    assert sorted(tracker.inflight) == [1, 2]


def test_an_epoch_is_forgotten_when_all_of_it_is_closed_and_its_end_is_out() -> None:
    tracker = LaneTracker(monotone=False)
    for number in range(4):
        tracker.start(number, chunk(4))
    deliver(tracker, rows(0, 0, 4), rows(1, 0, 3))
    tracker.end_epoch(Sentinel(0, 2))
    assert sorted(tracker.inflight) == [0, 1, 2, 3]
    deliver(tracker, rows(2, 0, 4))
    assert tracker.open == 1 + 4
    deliver(tracker, rows(1, 3, 4))
    assert sorted(tracker.inflight) == [2, 3]


def test_a_batch_may_close_several_chunks_whose_first_and_last_are_the_same() -> None:
    tracker = LaneTracker(monotone=False)
    for number in range(3):
        tracker.start(number, chunk(2))
    deliver(tracker, rows(0, 0, 1), rows(1, 0, 2), rows(2, 0, 2), rows(0, 1, 2))
    assert [entry.left for entry in tracker.inflight.values()] == [0, 0, 0]


def test_what_an_operator_dropped_is_closed_too() -> None:
    tracker = LaneTracker(monotone=False)
    tracker.start(0, chunk(3))
    tracker.close(Closings(0, np.zeros(2, np.int64), np.array([0, 2])))
    assert tracker.open == 1


def test_pieces_that_do_not_close_leave_their_base_offset_open() -> None:
    tracker = LaneTracker(monotone=False)
    tracker.start(0, chunk(2))
    block = rows(0, 0, 2)
    first = replace(block, pieces=replace(block.pieces, closes=np.array([True, False])))
    tracker.deliver(Batch(first, 0, 2))
    assert tracker.open == 1
    assert tracker.delivered_documents == 1


@pytest.mark.parametrize(
    ("options", "lanes"),
    [
        ({}, [0]),
        ({"canonical_replicas": 4}, [0, 1, 2, 3]),
        ({"canonical_replicas": 6, "dp_degree": 3, "dp_group_id": 1}, [2, 3]),
        (
            {"canonical_replicas": 6, "dp_degree": 3, "dp_group_id": 1, "mapping_strategy": "interleaved"},
            [1, 4],
        ),
        ({"dp_degree": 2, "dp_group_id": 1}, [1]),
    ],
)
def test_ranks_share_out_the_lanes(options: dict[str, Any], lanes: list[int]) -> None:
    assert RuntimeOptions(**options).owned_lanes() == lanes


def test_q56_the_allowed_numbers_of_ranks_are_told() -> None:
    with pytest.raises(ValueError, match=r"divisor of canonical_replicas \(4\): \[1, 2, 4\]; found 3"):
        RuntimeOptions(canonical_replicas=4, dp_degree=3).owned_lanes()
    with pytest.raises(ValueError, match="dp_group_id: expected 0 to 1, found 2"):
        RuntimeOptions(dp_degree=2, dp_group_id=2).owned_lanes()
