"""Keyed bijections: exact where they can be, and as random as a shuffle where they claim to be.

The statistical tests take fixed keys, so they pass or fail for good. A statistic over many permutations has
to lie within what `LEVEL` allows; numpy's shuffle goes through the same tests.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pytest

from runtime.permutation import (
    MAX_SIZE,
    Permutation,
    derive_key,
    derive_keys,
    inverse_each,
    mix64,
    permute_each,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Draw = Callable[[int, int], NDArray[np.int64]]

LEVEL = 4.5
"""Standard deviations: a sound shuffle exceeds it once in 150,000 tests."""

SIZES = (*range(2, 17), 17, 18, 23, 31, 32, 47, 64, 99, 100, 257, 1000, 2047, 2048, 100_000)


@lru_cache(maxsize=2)
def ours(size: int, count: int) -> NDArray[np.int64]:
    keys = derive_keys(derive_key("test", size), np.repeat(np.arange(count), size))
    return permute_each(np.tile(np.arange(size), count), np.uint64(size), keys).reshape(count, size)


@lru_cache(maxsize=2)
def numpys(size: int, count: int) -> NDArray[np.int64]:
    return np.random.default_rng(size).permuted(np.tile(np.arange(size), (count, 1)), axis=1)


each_shuffle = pytest.mark.parametrize("draw", [ours, numpys], ids=["ours", "numpy"])
each_size = pytest.mark.parametrize("size", SIZES)


def permutations(draw: Draw, size: int) -> NDArray[np.int64]:
    """Enough of a size for half a million places, at most 20,000: shape (count, size)."""
    return draw(size, min(max(500_000 // size, 8), 20_000))


def deviation(found: float, mean: float, variance: float) -> float:
    return abs(found - mean) / math.sqrt(variance)


# --- bijections


def test_every_size_up_to_2000_is_a_bijection_with_its_inverse() -> None:
    for size in range(1, 2001):
        permutation = Permutation(size, derive_key("size", size))
        places = np.arange(size)
        found = permutation.permute(places)
        assert found.dtype == np.int64
        assert np.array_equal(np.sort(found), places), size
        assert np.array_equal(permutation.inverse(found), places), size
        assert np.array_equal(permutation.permute(permutation.inverse(places)), places), size


LARGE = (
    [2**power + step for power in (16, 31, 32, 33, 48, 53, 61) for step in (-1, 0, 1)]
    + [MAX_SIZE, MAX_SIZE - 1, 10**10, 10**18]
    + [int(size) for size in np.random.default_rng(1).integers(1, MAX_SIZE, 20)]
)


@pytest.mark.parametrize("size", LARGE)
def test_large_sizes_stay_inside_and_go_back(size: int) -> None:
    permutation = Permutation(size, derive_key("large", size))
    rng = np.random.default_rng(2)
    edges = np.array([0, 1, size - 2, size - 1])
    places = np.unique(np.concatenate([edges, rng.integers(0, size, 5_000)]))
    found = permutation.permute(places)
    assert found.min() >= 0
    assert found.max() < size
    assert len(np.unique(found)) == len(places)
    assert np.array_equal(permutation.inverse(found), places)


def test_half_a_million_in_a_row_of_ten_billion_do_not_meet() -> None:
    found = Permutation(10**10, 3).permute(np.arange(5 * 10**9, 5 * 10**9 + 500_000))
    assert len(np.unique(found)) == len(found)


def test_a_point_and_a_slice_and_any_shape_agree() -> None:
    permutation = Permutation(1000, 5)
    whole = permutation.permute(np.arange(1000))
    assert [int(permutation.permute(np.array([place]))[0]) for place in range(0, 1000, 37)] == whole[
        ::37
    ].tolist()
    assert np.array_equal(
        permutation.permute(np.arange(1000, dtype=np.uint16).reshape(10, 100)), whole.reshape(10, 100)
    )


def test_bijections_of_different_sizes_and_keys_are_computed_together() -> None:
    sizes = np.array([1, 2, 16, 17, 2047, 2048, 10**6, 10**12], np.uint64)
    keys = derive_keys(7, np.arange(len(sizes)))
    places = np.array([0, 1, 9, 9, 9, 9, 9, 9])
    found = permute_each(places, sizes, keys)
    alone = [
        Permutation(int(size), int(key)).permute(np.array([place]))[0]
        for size, key, place in zip(sizes, keys, places, strict=True)
    ]
    assert found.tolist() == alone
    assert np.array_equal(inverse_each(found, sizes, keys), places)


# --- what is refused


@pytest.mark.parametrize("index", [-1, 5, 2**63 - 1, -(2**63)])
def test_an_index_outside_is_refused(index: int) -> None:
    permutation = Permutation(5, 0)
    for move in (permutation.permute, permutation.inverse):
        with pytest.raises(IndexError):
            move(np.array([0, index]))


def test_a_size_of_zero_allows_no_index() -> None:
    assert len(Permutation(0, 0).permute(np.array([], np.int64))) == 0
    with pytest.raises(IndexError):
        Permutation(0, 0).permute(np.array([0]))


@pytest.mark.parametrize("size", [-1, MAX_SIZE + 1])
def test_a_size_out_of_range_is_refused_with_the_range(size: int) -> None:
    with pytest.raises(ValueError, match=rf"size: expected 0 to 2\^62, found {size}"):
        Permutation(size, 0)


def test_indices_that_are_no_integers_are_refused() -> None:
    with pytest.raises(TypeError, match="float64"):
        Permutation(5, 0).permute(np.array([1.5]))


# --- keys


def test_keys_tell_types_and_parts_apart() -> None:
    keys = {
        derive_key(*parts)
        for parts in [(1, 2), (12,), ("1", 2), ("1", "2"), (1, "2"), ("1;int:1:2",), (2, 1), ()]
    }
    assert len(keys) == 8


def test_mixing_is_a_bijection_on_samples_and_changes_half_the_bits() -> None:
    words = np.arange(100_000, dtype=np.uint64)
    assert len(np.unique(mix64(words))) == len(words)
    changed = np.bitwise_count(mix64(words) ^ mix64(words ^ np.uint64(1 << 40)))
    assert abs(float(changed.mean()) - 32) < 0.1


def test_a_name_that_is_no_text_has_a_key() -> None:
    assert derive_key("\ud800") != derive_key("?")


def test_a_negative_key_is_its_lowest_64_bits() -> None:
    places = np.arange(100)
    assert np.array_equal(Permutation(100, -1).permute(places), Permutation(100, 2**64 - 1).permute(places))


@pytest.mark.parametrize("size", [5, 16, 17, 100, 1000, 100_000])
def test_neighbouring_keys_give_independent_permutations(size: int) -> None:
    """The number of places where two agree has mean and variance 1, whatever bit the keys differ in."""
    places = np.arange(size)
    tries = 400 if size <= 1000 else 60
    agreements = []
    for number in range(tries):
        key = derive_key("pair", number)
        one = Permutation(size, key).permute(places)
        other = Permutation(size, key ^ (1 << (number % 64))).permute(places)
        agreements.append(int((one == other).sum()))
    assert deviation(sum(agreements), tries, tries) < LEVEL


@pytest.mark.parametrize("size", [100, 1000, 100_000])
def test_permutations_under_neighbouring_keys_are_not_correlated(size: int) -> None:
    places = np.arange(size)
    tries = 200 if size <= 1000 else 30
    total = 0.0
    for number in range(tries):
        one, other = (Permutation(size, 2 * number + step).permute(places) for step in (0, 1))
        total += float(np.corrcoef(one, other)[0, 1])
    assert deviation(total, 0, tries / (size - 1)) < LEVEL


# --- statistics, no worse than numpy's shuffle at the same level


@each_size
@each_shuffle
def test_every_value_comes_to_every_place(draw: Draw, size: int) -> None:
    """Chi-square of value by place, in up to 16 by 16 cells."""
    values = permutations(draw, size)
    cells = min(size, 16)
    cell = np.arange(size) * cells // size
    found = np.bincount((cell * cells + cell[values]).reshape(-1), minlength=cells**2).reshape(cells, cells)
    widths = np.bincount(cell)
    expected = len(values) * np.outer(widths, widths) / size
    # Sums of rows and columns are the same in each permutation: that takes degrees of freedom and variance.
    statistic = float(((found - expected) ** 2 / expected).sum()) * (size - 1) / size
    freedom = (cells - 1) ** 2
    assert deviation(statistic, freedom, 2 * freedom) < LEVEL


def lags(size: int) -> list[int]:
    return sorted({lag for lag in (1, 2, round(math.sqrt(size))) if 2 * lag < size})


@each_size
@each_shuffle
def test_neighbours_are_pairs_like_any_other(draw: Draw, size: int) -> None:
    """Chi-square of the distance between two values, cyclic, at lags 1, 2 and the root of the size."""
    values = permutations(draw, size)
    cells = min(size - 1, 32)
    cell = np.arange(size - 1) * cells // (size - 1)
    for lag in lags(size):
        distances = (values[:, lag:] - values[:, :-lag]) % size  # from 1 to size - 1, each as likely
        found = np.bincount(cell[distances.reshape(-1) - 1], minlength=cells)
        expected = distances.size * np.bincount(cell) / (size - 1)
        statistic = float(((found - expected) ** 2 / expected).sum())
        # Pairs of one permutation are not independent; for sizes below 17 that is visible in any shuffle.
        spread = 2 if size < 17 else 1
        assert (statistic - (cells - 1)) / math.sqrt(2 * max(cells - 1, 1)) < LEVEL * spread, lag


@each_size
@each_shuffle
def test_neighbours_are_not_correlated(draw: Draw, size: int) -> None:
    """Serial correlation, cyclic: its mean is -1 / (size - 1), its variance below 1 / (size - 1)."""
    values = permutations(draw, size) - (size - 1) / 2
    for lag in lags(size):
        found = (values * np.roll(values, lag, axis=1)).sum(axis=1) / (values**2).sum(axis=1)
        assert deviation(float(found.mean()), -1 / (size - 1), 1 / (size - 1) / len(values)) < LEVEL, lag


@each_size
@each_shuffle
def test_runs_up_and_down_are_as_many_as_chance_makes(draw: Draw, size: int) -> None:
    """Runs up and down have mean (2n - 1) / 3 and variance (16n - 29) / 90."""
    rises = np.diff(permutations(draw, size), axis=1) > 0
    runs = 1 + (rises[:, 1:] != rises[:, :-1]).sum(axis=1)
    if size > 2:
        assert deviation(float(runs.mean()), (2 * size - 1) / 3, (16 * size - 29) / 90 / len(runs)) < LEVEL


@each_size
@each_shuffle
def test_few_values_stay_and_few_neighbours_stay_together(draw: Draw, size: int) -> None:
    """Values at their own place have mean 1; those followed by their successor (n - 1) / n."""
    values = permutations(draw, size)
    for found, mean in (
        ((values == np.arange(size)).sum(), 1),
        ((np.diff(values, axis=1) == 1).sum(), (size - 1) / size),
    ):
        assert deviation(found / len(values), mean, 1 / len(values)) < LEVEL


@pytest.mark.parametrize("size", [2, 3, 4, 5, 6])
@each_shuffle
def test_every_order_of_a_few_comes_as_often(draw: Draw, size: int) -> None:
    orders = math.factorial(size)
    _, seen = np.unique(draw(size, 20 * orders), axis=0, return_counts=True)
    statistic = (((seen - 20) ** 2).sum() + 400 * (orders - len(seen))) / 20
    assert deviation(float(statistic), orders - 1, 2 * (orders - 1)) < LEVEL
