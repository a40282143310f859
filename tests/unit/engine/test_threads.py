"""A thread ahead of the loop: what came last is received, whatever the two meet in."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from runtime.blocks import Batch, pointers
from runtime.runners.threads import Prefetcher

if TYPE_CHECKING:
    from runtime.blocks import Item


class Lane:
    """Gives some batches; the last of them with its end, and hands over for the loop to look before that."""

    def __init__(self, count: int) -> None:
        self.ready: deque[Item] = deque()
        self.ended = False
        self.left = count

    def advance(self) -> tuple[list[Item], bool]:
        self.left -= 1
        block = pointers(0, 0, np.zeros(1, np.int32), np.zeros((1, 3), np.int64))
        return [Batch(block, 0, 1)], self.left == 0

    def take(self) -> Batch | None:
        item = self.ready.popleft() if self.ready else None
        assert item is None or isinstance(item, Batch)
        return item


def test_the_last_items_of_a_lane_are_never_missed() -> None:
    for count in range(1, 300):
        lanes = [Lane(count), Lane(1)]
        prefetcher = Prefetcher(lanes, ahead=1)
        try:
            for lane, expected in zip(lanes, (count, 1), strict=True):
                found = 0
                while prefetcher.next_batch(lane) is not None:
                    found += 1
                assert found == expected
        finally:
            prefetcher.close()
