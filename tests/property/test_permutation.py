"""Bijections of any size, one by one and together."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.permutation import MAX_SIZE, Permutation, derive_key, inverse_each, permute_each

sizes = st.one_of(st.integers(1, 40), st.integers(1, 5_000), st.integers(1, MAX_SIZE))
keys = st.integers(-(2**70), 2**70)


@settings(deadline=None)
@given(sizes, keys, st.lists(st.floats(0, 1, exclude_max=True), max_size=50))
def test_places_stay_apart_inside_and_go_back(size: int, key: int, shares: list[float]) -> None:
    permutation = Permutation(size, key)
    places = np.array(sorted({min(int(share * size), size - 1) for share in shares}), np.int64)
    found = permutation.permute(places)
    assert len(np.unique(found)) == len(places)
    assert ((found >= 0) & (found < size)).all()
    assert np.array_equal(permutation.inverse(found), places)
    assert np.array_equal(permutation.permute(permutation.inverse(places)), places)


@settings(deadline=None)
@given(st.lists(st.tuples(sizes, keys, st.floats(0, 1, exclude_max=True)), min_size=1, max_size=30))
def test_many_are_computed_as_one_by_one(cases: list[tuple[int, int, float]]) -> None:
    places = np.array([min(int(share * size), size - 1) for size, _, share in cases])
    extents = np.array([size for size, _, _ in cases], np.uint64)
    words = np.array([key % 2**64 for _, key, _ in cases], np.uint64)
    found = permute_each(places, extents, words)
    alone = [
        int(Permutation(size, key).permute(places[number : number + 1])[0])
        for number, (size, key, _) in enumerate(cases)
    ]
    assert found.tolist() == alone
    assert np.array_equal(inverse_each(found, extents, words), places)


@given(st.lists(st.integers() | st.text(), max_size=4), st.lists(st.integers() | st.text(), max_size=4))
def test_only_equal_parts_have_equal_keys(one: list[int | str], other: list[int | str]) -> None:
    same = [(type(part), part) for part in one] == [(type(part), part) for part in other]
    assert (derive_key(*one) == derive_key(*other)) is same
