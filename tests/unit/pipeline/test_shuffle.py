"""The shuffle stage: how well it shuffles, and the order that it must keep for ever."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from prep.pipeline.messages import Position
from prep.pipeline.shuffle import BlockShuffle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prep.catalog.schema import ShardLayout
    from prep.pipeline.reorder import PlacedBlock

LARGE = 1 << 40


def order(
    blocks: Sequence[PlacedBlock], layout: ShardLayout, seed: int, documents: int, text_bytes: int = LARGE
) -> list[int]:
    stage = BlockShuffle(layout.schema(), seed, documents, text_bytes, Position())
    return [
        row for block in stage.shuffle(blocks) for row in block.documents.column("source_row").to_pylist()
    ]


def test_neighbours_are_parted_q43(place: Any, layout: ShardLayout) -> None:
    shuffled = order([place([1] * 100)], layout, 0, 50)
    assert sorted(shuffled) == list(range(100))
    assert sorted(shuffled[:50]) == list(range(50))
    assert sum(abs(left - right) == 1 for left, right in pairwise(shuffled)) < 10


def test_every_place_is_as_likely_as_another_q43(place: Any, layout: ShardLayout) -> None:
    counts = [[0] * 8 for _ in range(8)]
    for seed in range(400):
        for target, source in enumerate(order([place([1] * 8)], layout, seed, 8)):
            counts[source][target] += 1
    chi_square = sum((count - 50) ** 2 / 50 for row in counts for count in row)
    assert chi_square < 85.4  # 49 degrees of freedom, p = 0.001


def test_blocks_and_seeds_have_orders_of_their_own(place: Any, layout: ShardLayout) -> None:
    shuffled = order([place([1] * 60)], layout, 0, 20)
    parts = [[row % 20 for row in shuffled[start : start + 20]] for start in (0, 20, 40)]
    assert parts[0] != parts[1] != parts[2] != parts[0]
    assert order([place([1] * 60)], layout, 1, 20) != shuffled
    assert order([place([1] * 60)], layout, 0, 20) == shuffled


def test_the_order_of_a_seed_is_pinned(place: Any, layout: ShardLayout) -> None:
    """A change of it would change the bytes of every job that is not finished."""
    assert order([place([1] * 12)], layout, 0, 5) == [1, 2, 0, 4, 3, 6, 8, 9, 7, 5, 11, 10]
    assert order([place([1] * 6)], layout, 2**63 - 1, 6) == [3, 4, 5, 2, 1, 0]


def test_blocks_reach_over_files_and_end_by_bytes_too(place: Any, layout: ShardLayout) -> None:
    blocks = [place([1] * 3, row=0, text_bytes=10), place([1] * 3, file=1, row=10, text_bytes=10)]
    stage = BlockShuffle(layout.schema(), 0, 100, 40, Position())
    found = [sorted(block.documents.column("source_row").to_pylist()) for block in stage.shuffle(blocks)]
    assert found == [[0, 1, 2, 10], [11, 12]]


def test_a_document_larger_than_a_block_is_a_block_of_its_own(place: Any, layout: ShardLayout) -> None:
    blocks = [place([1], row=0), place([1], row=1, text_bytes=100), place([1, 1], row=2)]
    stage = BlockShuffle(layout.schema(), 0, 10, 50, Position())
    found = [sorted(block.documents.column("source_row").to_pylist()) for block in stage.shuffle(blocks)]
    assert found == [[0], [1], [2, 3]]
