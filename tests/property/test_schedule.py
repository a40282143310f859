"""Counts and ends of a run against a walk that draws one sample after another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.work.schedule import Ends, Schedule, Stage
from runtime.work.split import SplitTree

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MOST = 600


def walk(weights: Sequence[int], limits: Sequence[int | None], takes_over: Sequence[bool]) -> list[list[int]]:
    """What each component has given after 0, 1, 2, ... draws."""
    weights, given = list(weights), [0] * len(weights)
    base, draws, found = list(given), 0, [list(given)]
    while any(weights) and len(found) <= MOST:
        after = SplitTree(weights).counts(draws + 1)
        drawn = next(i for i in range(len(weights)) if base[i] + after[i] > given[i])
        limit = limits[drawn]
        if limit is None or given[drawn] < limit:
            given[drawn] += 1
            draws += 1
            found.append(list(given))
        elif takes_over[drawn]:
            weights[drawn], base, draws = 0, list(given), 0
        else:
            break
    return found


@st.composite
def runs(draw: Callable[..., object]) -> tuple[list[int], list[int | None], list[bool]]:
    """Weights, limits, and who takes over; many ties, as these are where order is decided."""
    size = draw(st.integers(1, 12))
    alike = draw(st.booleans())
    weight = st.just(1) if alike else st.sampled_from([0, 1, 1, 2, 3, 7, 10**6, 10**30])
    weights = draw(st.lists(weight, min_size=size, max_size=size).filter(any))  # type: ignore[arg-type]
    limit = st.just(draw(st.integers(0, 9))) if alike else st.none() | st.integers(0, 60)
    limits = draw(st.lists(limit, min_size=size, max_size=size))
    takes_over = draw(st.lists(st.sampled_from([True, True, True, False]), min_size=size, max_size=size))
    return weights, limits, takes_over  # type: ignore[return-value]


@settings(deadline=None, max_examples=300)
@given(runs())
def test_counts_and_ends_are_those_of_the_walk(run: tuple[list[int], list[int | None], list[bool]]) -> None:
    weights, limits, takes_over = run
    found = walk(weights, limits, takes_over)
    schedule = Schedule([Stage(0, tuple(weights))], Ends(tuple(limits), tuple(takes_over), None))
    if len(found) <= MOST:
        assert schedule.total == len(found) - 1
    else:
        assert schedule.total is None or schedule.total >= MOST
    for place, expected in enumerate(found):
        assert schedule.counts(place) == expected


@settings(deadline=None, max_examples=100)
@given(runs(), st.integers(1, 2**61))
def test_large_runs_end_where_no_dataset_lacks_a_sample(
    run: tuple[list[int], list[int | None], list[bool]], factor: int
) -> None:
    """What a walk cannot reach: up to the end nobody gives more than it has; right behind it one would."""
    weights, limits, _ = run
    large = tuple(None if limit is None else limit * factor for limit in limits)
    schedule = Schedule([Stage(0, tuple(weights))], Ends(large, (False,) * len(weights), None))
    if schedule.total is None:
        return
    tree = SplitTree(weights)
    for place, fits in ((schedule.total, True), (schedule.total + 1, False)):
        counts = tree.counts(place)
        assert fits is all(
            limit is None or count <= limit for count, limit in zip(counts, large, strict=True)
        )
    assert [
        index
        for index, (count, limit) in enumerate(zip(tree.counts(schedule.total + 1), large, strict=True))
        if limit is not None and count > limit
    ] == schedule.stopped_by
