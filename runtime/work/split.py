"""Dividing a sequence of draws among components by nested two-way splits.

The components are the leaves of a balanced binary tree. Of n draws at a node, the left side gets
floor(n * left / (left + right) + 1/2) and the right side the rest, where left and right are integer sums of
weights. So the shares sum exactly, never go back when n grows, and differ from the exact share by at most
half the tree's depth plus one half.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def left_share(draws: int, left: int, both: int) -> int:
    """How many of some draws go left: floor(draws * left / both + 1/2)."""
    return (2 * draws * left // both + 1) // 2


class SplitTree:
    """The shares of components with integer weights after any number of draws.

    Args:
        weights: of the components; those of weight 0 are never drawn, one at least is larger.
    """

    def __init__(self, weights: Sequence[int]) -> None:
        self.size = len(weights)
        self.weights = tuple(weights)
        self._leaves = [index for index, weight in enumerate(weights) if weight > 0]
        self._sums = list(accumulate((weights[leaf] for leaf in self._leaves), initial=0))
        self.slack = (len(self._leaves) - 1).bit_length() + 2
        """More than any share differs from the exact one."""

    def counts(self, draws: int) -> list[int]:
        """The share of each component in the first `draws` draws; they sum to `draws`."""
        found = [0] * self.size
        sums, leaves = self._sums, self._leaves

        def share(first: int, stop: int, count: int) -> None:
            if stop - first == 1:
                found[leaves[first]] = count
                return
            middle = (first + stop + 1) // 2
            left = left_share(count, sums[middle] - sums[first], sums[stop] - sums[first])
            share(first, middle, left)
            share(middle, stop, count - left)

        share(0, len(leaves), draws)
        return found

    def count(self, component: int, draws: int) -> int:
        """The share of one component, along its path only; 0 if its weight is 0."""
        if not self.weights[component]:
            return 0
        leaf = bisect_left(self._leaves, component)
        first, stop, sums = 0, len(self._leaves), self._sums
        while stop - first > 1:
            middle = (first + stop + 1) // 2
            left = left_share(draws, sums[middle] - sums[first], sums[stop] - sums[first])
            first, stop, draws = (first, middle, left) if leaf < middle else (middle, stop, draws - left)
        return draws

    def draws_until(self, component: int, wanted: int) -> int:
        """The fewest draws in which a component of weight above 0 gets `wanted`."""
        if wanted <= 0:
            return 0
        total, weight = self._sums[-1], self.weights[component]
        low = max(0, (wanted - self.slack) * total // weight)
        high = (wanted + self.slack) * total // weight + 1
        while low < high:  # these are too large for `bisect`
            middle = (low + high) // 2
            if self.count(component, middle) < wanted:
                low = middle + 1
            else:
                high = middle
        return low


def interleave(counts: Sequence[int]) -> NDArray[np.int32]:
    """The component of each draw where the weights are the counts themselves.

    Returns:
        int32 of shape (sum(counts),); component c occurs counts[c] times, evenly spread.
    """
    present = [index for index, count in enumerate(counts) if count]
    return _interleave(counts, present) if present else np.zeros(0, np.int32)


def _interleave(counts: Sequence[int], present: Sequence[int]) -> NDArray[np.int32]:
    total = sum(counts[index] for index in present)
    if len(present) == 1:
        return np.full(total, present[0], np.int32)
    middle = (len(present) + 1) // 2
    left = sum(counts[index] for index in present[:middle])
    shares = (2 * left * np.arange(total + 1, dtype=np.int64) + total) // (2 * total)
    goes_left = shares[1:] > shares[:-1]
    labels = np.empty(total, np.int32)
    labels[goes_left] = _interleave(counts, present[:middle])
    labels[~goes_left] = _interleave(counts, present[middle:])
    return labels
