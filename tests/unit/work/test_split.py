"""Shares by nested two-way splits, against fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from runtime.work.mixture import exact, integer_weights
from runtime.work.split import SplitTree, interleave


def shares(weights: list[int], draws: int) -> list[int]:
    """The rule as it is written down."""
    found = [0] * len(weights)

    def split(part: list[int], count: int) -> None:
        if len(part) == 1:
            found[part[0]] = count
            return
        middle = (len(part) + 1) // 2
        left = Fraction(sum(weights[leaf] for leaf in part[:middle]), sum(weights[leaf] for leaf in part))
        goes_left = math.floor(count * left + Fraction(1, 2))
        split(part[:middle], goes_left)
        split(part[middle:], count - goes_left)

    split([index for index, weight in enumerate(weights) if weight], draws)
    return found


CASES = [
    [1],
    [0, 3],
    [1, 1],
    [1, 2, 3],
    [5, 0, 0, 7, 1],
    [1, 10**6],
    [10**6, 1, 10**6],
    [10**30, 1],
    [3] * 17,
    list(range(33)),
]
each_case = pytest.mark.parametrize("weights", CASES, ids=lambda weights: f"{len(weights)}-{max(weights)}")


@each_case
def test_counts_are_those_of_fractions(weights: list[int]) -> None:
    tree = SplitTree(weights)
    for draws in (*range(200), 10**6 + 1, 10**18, 10**30 + 7):
        expected = shares(weights, draws)
        assert tree.counts(draws) == expected
        assert [tree.count(index, draws) for index in range(len(weights))] == expected
        assert sum(expected) == draws


@each_case
def test_the_first_draw_that_gives_so_many_is_found(weights: list[int]) -> None:
    tree = SplitTree(weights)
    for index, weight in enumerate(weights):
        for wanted in (1, 2, 9, 10**6, 10**19) if weight else ():
            draws = tree.draws_until(index, wanted)
            assert tree.count(index, draws) == wanted
            assert tree.count(index, draws - 1) == wanted - 1
        if weight:
            assert tree.draws_until(index, 0) == tree.draws_until(index, -5) == 0


def test_places_behind_what_a_machine_word_holds_are_found() -> None:
    tree = SplitTree([10**12, 1])
    draws = tree.draws_until(1, 10**10)
    assert draws > 2**64
    assert tree.count(1, draws) == 10**10


@pytest.mark.parametrize("components", [2, 3, 8, 9, 100, 1000])
def test_shares_never_go_back_and_stay_within_the_bound(components: int) -> None:
    """The bound of the design: half the tree's depth, and one half."""
    rng = np.random.default_rng(components)
    weights = [int(weight) for weight in rng.integers(1, 10**6, components)]
    tree, total = SplitTree(weights), sum(weights)
    bound = Fraction(math.ceil(math.log2(components)) + 1, 2)
    before = [0] * components
    for draws in range(1, 600 if components < 1000 else 60):
        found = tree.counts(draws)
        assert sum(found) == draws
        assert min(after - earlier for after, earlier in zip(found, before, strict=True)) >= 0
        worst = max(abs(count * total - draws * weight) for count, weight in zip(found, weights, strict=True))
        assert Fraction(worst, total) <= bound
        before = found


def test_a_millionth_is_drawn_once_in_a_million() -> None:
    tree = SplitTree(integer_weights([exact(1), exact(1e-6)]))
    for passes in (1, 2, 1000):
        assert tree.counts(1_000_001 * passes) == [1_000_000 * passes, passes]
    assert tree.count(1, 1_000_001 // 4) == 0


def test_weights_mean_what_their_digits_say() -> None:
    assert integer_weights([exact(weight) for weight in (0.1, 0.2, 0.7)]) == [1, 2, 7]
    assert integer_weights([exact(weight) for weight in (40, 30, 20, 10)]) == [4, 3, 2, 1]
    assert integer_weights([exact(weight) for weight in (0, 1e-300, 1e300)])[0] == 0


def test_weights_too_far_apart_are_rounded_but_never_to_nothing() -> None:
    weights = integer_weights([exact(1e-300), exact(1e300)])
    assert weights[0] == 1
    assert weights[1].bit_length() <= 512


@pytest.mark.parametrize("counts", [[], [0], [5], [0, 3, 0], [1, 1], [7, 3, 2], [1, 1000], [4] * 9])
def test_interleaving_is_the_split_of_its_own_counts(counts: list[int]) -> None:
    labels = interleave(counts)
    assert labels.dtype == np.int32
    assert np.bincount(labels, minlength=len(counts)).tolist() == counts
    for place in range(len(labels) + 1):
        assert np.bincount(labels[:place], minlength=len(counts)).tolist() == (
            shares(counts, place) if place else [0] * len(counts)
        )
