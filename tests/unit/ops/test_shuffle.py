"""Shuffles: achieved distance, and orders that depend on identities alone."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest

from runtime.blocks import Block, pointers
from runtime.ops.base import OpContext
from runtime.ops.shuffle import ShuffleOp

if TYPE_CHECKING:
    from runtime.ops.accumulators import Accumulator

ALGORITHMS = ("streaming", "block", "block_warmup")


def records(first: int, stop: int, chunk: int = 0, lane: int = 0) -> Block:
    size = stop - first
    return pointers(lane, chunk, np.zeros(size, np.int32), np.zeros((size, 3), np.int64), first)


def accumulator(algorithm: str, size: int = 50, seed: int = 0) -> Accumulator:
    return ShuffleOp(size, seed=seed, algorithm=algorithm).accumulator(deterministic=True, ctx=OpContext())


def places(blocks: list[Block]) -> list[int]:
    return [place for block in blocks for place in block.pieces.offset.tolist()]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_q43_few_neighbours_stay_next_to_each_other(algorithm: str) -> None:
    """Q43: 100 documents in order, a buffer of 50: fewer than 10 % of neighbours stay adjacent."""
    adjacent = []
    for seed in range(20):
        shuffle = accumulator(algorithm, seed=seed)
        order = places([*shuffle.push_many(records(0, 100)), *shuffle.flush()])
        assert sorted(order) == list(range(100))
        adjacent.append(sum(later - earlier == 1 for earlier, later in pairwise(order)))
    assert np.mean(adjacent) < 10


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_order_depends_on_the_records_alone(algorithm: str) -> None:
    at_once, one_by_one = accumulator(algorithm), accumulator(algorithm)
    expected = places([*at_once.push_many(records(0, 500)), *at_once.flush()])
    found = [block for place in range(500) for block in one_by_one.push_many(records(place, place + 1))]
    assert places([*found, *one_by_one.flush()]) == expected


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_seed_lane_and_chunk_change_the_order(algorithm: str) -> None:
    def order(seed: int, lane: int, chunk: int) -> list[int]:
        shuffle = accumulator(algorithm, seed=seed)
        return places([*shuffle.push_many(records(0, 200, chunk, lane)), *shuffle.flush()])

    orders = [order(0, 0, 0), order(1, 0, 0), order(0, 1, 0), order(0, 0, 1)]
    assert len({tuple(each) for each in orders}) == 4


def test_streaming_holds_no_more_than_its_slots() -> None:
    shuffle = accumulator("streaming", 64)
    left = len(places(shuffle.push_many(records(0, 10_000))))
    assert 10_000 - 64 <= left < 10_000


def test_a_warm_up_gives_the_first_records_early() -> None:
    shuffle = accumulator("block_warmup", 1000)
    sizes = [len(block) for block in shuffle.push_many(records(0, 5000))]
    assert sizes[:3] == [64, 96, 144]
    assert max(sizes) == 1000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"buffer_size": 0}, "buffer_size: expected 1 or more, found 0"),
        ({"algorithm": "riffle"}, "algorithm: expected streaming, block, block_warmup, found 'riffle'"),
        ({"warmup_growth": 1.0}, "warmup_growth: expected more than 1, found 1.0"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ShuffleOp(**arguments)  # type: ignore[arg-type]
