"""The mixture source against a plain model that walks the same order, sample by sample."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prep.catalog.errors import RefusedError
from runtime.io import Dataset
from runtime.permutation import Permutation, derive_key, derive_keys, mix64
from runtime.work import MixtureReadConfig, StaticMixtureWorkSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from runtime.work import SampleId

MOST = 4_000
"""Samples of a run that the model walks."""


# --- the model


def shares(weights: Sequence[Fraction], draws: int) -> list[int]:
    """Of so many draws, how many each component gets: nested two-way splits, as written down."""
    present = [index for index, weight in enumerate(weights) if weight]
    found = [0] * len(weights)

    def split(part: Sequence[int], count: int) -> None:
        if len(part) == 1:
            found[part[0]] = count
            return
        middle = (len(part) + 1) // 2
        left, both = sum(weights[i] for i in part[:middle]), sum(weights[i] for i in part)
        goes_left = math.floor(count * Fraction(left) / both + Fraction(1, 2))
        split(part[:middle], goes_left)
        split(part[middle:], count - goes_left)

    split(present, draws)
    return found


def whole(size: int, key: int) -> list[int]:
    return [int(value) for value in Permutation(size, key).permute(np.arange(size))]


@dataclass
class Case:
    """A run: rows a shard by dataset, and the arguments of the source."""

    counts: list[list[int]]
    weights: list[float]
    chunk_size: int
    seed: int
    shuffle_shards: bool
    shuffle_within_shard: bool
    block: int | str | None
    reshuffle: list[bool]
    policies: list[str] | None
    repeats: list[int | None]
    passes: list[int] | None
    lane_assignment: str
    lanes: int
    later: list[tuple[int, list[float]]] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        return [f"d{index}" for index in range(len(self.counts))]

    def source(self, weights: list[float] | None = None) -> StaticMixtureWorkSource:
        names = self.names
        datasets = [
            Dataset.from_counts(name, counts) for name, counts in zip(names, self.counts, strict=True)
        ]
        ends: dict[str, Any] = {}
        if self.policies is not None:
            ends["exhausted_policy"] = dict(zip(names, self.policies, strict=True))
            limited = {
                name: repeat
                for name, repeat, policy in zip(names, self.repeats, self.policies, strict=True)
                if policy == "repeat" and repeat is not None
            }
            if limited:
                ends["max_repeats"] = limited
        elif self.passes is not None:
            ends["stop_after_passes"] = dict(zip(names, self.passes, strict=True))
        return StaticMixtureWorkSource(
            datasets,
            dict(zip(names, weights or self.weights, strict=True)),
            chunk_size=self.chunk_size,
            seed=self.seed,
            shuffle_shards=self.shuffle_shards,
            shuffle_within_shard=self.shuffle_within_shard,
            shuffle_block_size=self.block,
            reshuffle_on_repeat=dict(zip(names, self.reshuffle, strict=True)),
            lane_assignment=self.lane_assignment,
            **ends,
        )


class Model:
    """The order of a case, walked from its first sample."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.totals = [sum(counts) for counts in case.counts]
        self.draws, self.breaks = self._draws()

    def limit(self, index: int) -> int | None:
        if self.case.policies is None:
            return None
        policy, repeat = self.case.policies[index], self.case.repeats[index]
        if policy == "repeat":
            return None if repeat is None else self.totals[index] * (1 + repeat)
        return self.totals[index]

    def _draws(self) -> tuple[list[int], list[int]]:
        """The dataset of each draw, as many as are walked, and where shares change."""
        case = self.case
        weights = [Fraction(repr(float(weight))) for weight in case.weights]
        later = list(case.later)
        given, draws, breaks, start = [0] * len(weights), [], [], 0
        base = list(given)
        while len(draws) < MOST:
            if later and len(draws) == later[0][0] * case.chunk_size:
                weights = [Fraction(repr(float(weight))) for weight in later.pop(0)[1]]
                start, base = len(draws), list(given)
                breaks.append(start)
                continue
            if self._is_done(weights, given):
                break
            following = shares(weights, len(draws) - start + 1)
            drawn = next(i for i in range(len(weights)) if base[i] + following[i] > given[i])
            limit = self.limit(drawn)
            if limit is not None and given[drawn] >= limit:
                if case.policies is not None and case.policies[drawn] != "redistribute":
                    break
                weights[drawn] = Fraction(0)
                start, base = len(draws), list(given)
                breaks.append(start)
                continue
            given[drawn] += 1
            draws.append(drawn)
        return draws, breaks

    def _is_done(self, weights: Sequence[Fraction], given: Sequence[int]) -> bool:
        if not any(weights):
            return True
        if self.case.policies is not None or sum(given) < self._last_stage():
            return False
        passes = self.case.passes or [1] * len(weights)
        return all(
            count >= total * wanted
            for count, total, wanted, weight in zip(given, self.totals, passes, weights, strict=True)
            if weight
        )

    def _last_stage(self) -> int:
        return max((first for first, _ in self.case.later), default=0) * self.case.chunk_size

    def ids(self, index: int) -> Iterator[tuple[int, int]]:
        """Shard and row of a dataset's samples, pass after pass."""
        case, counts, total = self.case, self.case.counts[index], self.totals[index]
        largest = max((max(each, default=0) for each in case.counts), default=0)
        block = {"auto": max(1, 8 * largest), "global": total, None: 0}.get(case.block, case.block)
        number = 0
        while True:
            key = derive_key(case.seed, case.names[index], number if case.reshuffle[index] else 0)
            yield from self._one_pass(key, counts, min(int(block or 0), total), total)
            number += 1

    def _one_pass(self, key: int, counts: Sequence[int], block: int, total: int) -> list[tuple[int, int]]:
        case, word = self.case, np.array([key], np.uint64)
        shards = [shard for shard, count in enumerate(counts) if count]
        if case.shuffle_shards and block < total:
            orders = derive_keys(mix64(word), np.array(shards))
            shards = [shards[place] for place in np.argsort(orders, kind="stable")]
        rows = []
        for shard in shards:
            inside = list(range(counts[shard]))
            if case.shuffle_within_shard and block < total:
                inside = whole(counts[shard], int(derive_keys(~word, np.array([shard]))[0]))
            rows += [(shard, row) for row in inside]
        if not block:
            return rows
        found = []
        for start in range(0, total, block):
            size = min(block, total - start)
            order = whole(size, int(derive_keys(word, np.array([start // block]))[0]))
            found += [rows[start + place] for place in order]
        return found

    def chunks(self) -> list[list[SampleId]]:
        """Each chunk's samples in weighted round-robin order."""
        streams = [self.ids(index) for index in range(len(self.case.counts))]
        chunks = []
        for first in range(0, len(self.draws), self.case.chunk_size):
            stop = min(first + self.case.chunk_size, len(self.draws))
            chunk: list[SampleId] = []
            edges = [first, *(place for place in self.breaks if first < place < stop), stop]
            for begin, end in pairwise(edges):
                part = self.draws[begin:end]
                counts = [part.count(index) for index in range(len(streams))]
                before = [0] * len(streams)
                for place in range(1, len(part) + 1):
                    after = shares([Fraction(count) for count in counts], place)
                    index = next(i for i, count in enumerate(after) if count > before[i])
                    chunk.append((index, *next(streams[index])))
                    before = after
            chunks.append(chunk)
        return chunks


# --- cases


@st.composite
def cases(draw: Callable[..., Any]) -> Case:
    """Runs of one to four datasets, small enough to walk."""
    size = draw(st.integers(1, 4))
    rows = st.one_of(st.integers(0, 5), st.integers(0, 60))
    counts = draw(st.lists(st.lists(rows, max_size=12), min_size=size, max_size=size))
    weight = st.sampled_from([0.0, 1.0, 0.5, 0.3, 0.1, 3, 0.01, 1e-6])
    weights = draw(st.lists(weight, min_size=size, max_size=size).filter(any))
    policies = draw(
        st.none()
        | st.lists(st.sampled_from(["stop", "repeat", "redistribute"]), min_size=size, max_size=size)
    )
    for index, each in enumerate(counts):
        if not sum(each) and not (policies and policies[index] == "redistribute"):
            each.append(1)
    passes = draw(st.none() | st.lists(st.integers(1, 3), min_size=size, max_size=size))
    return Case(
        counts=counts,
        weights=weights,
        chunk_size=draw(st.sampled_from([1, 3, 16, 100, 1000])),
        seed=draw(st.integers(-5, 2**40)),
        shuffle_shards=draw(st.booleans()),
        shuffle_within_shard=draw(st.booleans()),
        block=draw(st.sampled_from([None, 1, 7, 50, 10**6, "auto", "global"])),
        reshuffle=draw(st.lists(st.booleans(), min_size=size, max_size=size)),
        policies=policies,
        repeats=draw(st.lists(st.none() | st.integers(0, 2), min_size=size, max_size=size)),
        passes=None if policies else passes,
        lane_assignment=draw(st.sampled_from(["permute", "modulo"])),
        lanes=draw(st.sampled_from([1, 1, 2, 3, 5, 20])),
    )


def read(source: StaticMixtureWorkSource, number: int) -> list[SampleId]:
    chunk = source.chunk_at(number)
    return [] if chunk is None else [sample for sample, _ in chunk.iter_samples()]


# --- tests


@settings(deadline=None)
@given(cases())
def test_every_chunk_is_the_models(case: Case) -> None:
    model, source = Model(case), case.source()
    if len(model.draws) < MOST:
        assert source.total_samples == len(model.draws)
    else:
        assert source.total_samples >= MOST
    expected = model.chunks()[: MOST // case.chunk_size] if len(model.draws) == MOST else model.chunks()
    for number, chunk in enumerate(expected):
        assert read(source, number) == chunk
    if len(model.draws) < MOST:
        assert source.chunk_at(len(expected)) is None


@settings(deadline=None, max_examples=50)
@given(cases(), st.data())
def test_lanes_share_out_the_chunks_and_resume_at_every_one(case: Case, data: st.DataObject) -> None:
    """Each chunk goes to one lane, in the order of the rounds; a state continues exactly."""
    source = case.source()
    wanted = min(40, math.ceil(min(source.total_samples, 10**9) / case.chunk_size))
    found: list[tuple[int, int]] = []
    for lane in range(case.lanes):
        stream = case.source().clone_for_lane(lane, case.lanes)
        turn = 0
        while turn <= wanted // case.lanes:
            if data.draw(st.booleans()):
                state = json.loads(json.dumps(stream.state_dict()))
                stream = case.source().clone_for_lane(lane, case.lanes)
                stream.load_state_dict(state)
            chunk = stream.next_chunk()
            if chunk is None:
                assert stream.next_chunk() is None
                break
            assert chunk.number is not None
            assert chunk.number // case.lanes == turn
            assert [sample for sample, _ in chunk.iter_samples()] == read(source, chunk.number)
            found.append((chunk.number, lane))
            turn += 1
    numbers = [number for number, _ in found]
    assert len(set(numbers)) == len(numbers)
    assert set(range(wanted)) <= set(numbers)
    if case.lane_assignment == "modulo":
        assert all(number % case.lanes == lane for number, lane in found)


@settings(deadline=None, max_examples=50)
@given(cases(), st.lists(st.floats(0, 1, exclude_max=True), max_size=10))
def test_every_place_can_be_asked_for(case: Case, places: list[float]) -> None:
    source = case.source()
    reach = int(min(source.total_samples, 3 * case.chunk_size))
    order = [sample for number in range(4) for sample in read(source, number)]
    for place in places:
        if reach:
            assert source.sample_id_at(int(place * reach)) == order[int(place * reach)]
    if math.isfinite(source.total_samples):
        with pytest.raises(IndexError):
            source.sample_id_at(int(source.total_samples))


@settings(deadline=None, max_examples=50)
@given(cases())
def test_a_sample_comes_once_in_a_pass(case: Case) -> None:
    """R4: whatever the shuffles, a pass holds each sample exactly once."""
    source = case.source()
    samples = [read(source, number) for number in range(math.ceil(2_000 / case.chunk_size))]
    for index, counts in enumerate(case.counts):
        total = sum(counts)
        own = [sample for chunk in samples for sample in chunk if sample[0] == index]
        if not total or not own or case.chunk_size > total:
            continue  # a pass inside a chunk is read in the chunk's order
        for start in range(0, len(own) - total + 1, total):
            assert len(set(own[start : start + total])) == total


@settings(deadline=None, max_examples=60)
@given(cases(), st.data())
def test_a_new_stage_holds_from_its_chunk_on(case: Case, data: st.DataObject) -> None:
    """Q39: each dataset goes on where it was, so no sample is lost or repeated; shares hold from there."""
    weight = st.sampled_from([0.0, 1.0, 0.2, 5.0])
    size = len(case.counts)
    weights = data.draw(st.lists(weight, min_size=size, max_size=size).filter(any))
    lanes = [case.source().clone_for_lane(lane, case.lanes) for lane in range(case.lanes)]
    had = [lane.next_chunk() for lane in lanes for _ in range(data.draw(st.integers(0, 2)))]
    states = json.loads(json.dumps([lane.state_dict() for lane in lanes]))
    if any(w and not sum(c) for w, c in zip(weights, case.counts, strict=True)):
        return
    old, changed = case.source(), case.source(weights)
    free = max((chunk.number or 0 for chunk in had if chunk is not None), default=-1) + 1
    if free * case.chunk_size > old.total_samples:
        with pytest.raises(RefusedError, match="has ended"):
            changed.begin_stage(states)
        return
    first = changed.begin_stage(states)
    assert first == free
    resumed = [changed.clone_for_lane(lane, case.lanes) for lane in range(case.lanes)]
    for lane, state in zip(resumed, states, strict=True):
        lane.load_state_dict(state)
    assert [lane.state_dict()["turn"] for lane in resumed] == [state["turn"] for state in states]
    case.later = [(first, weights)]
    expected = Model(case).chunks()
    for lane in resumed:
        for _ in range(4):
            chunk = lane.next_chunk()
            if chunk is None or chunk.number is None or (chunk.number + 1) * case.chunk_size > MOST:
                break
            found = [sample for sample, _ in chunk.iter_samples()]
            assert found == expected[chunk.number]
            if chunk.number < first:
                assert found == read(old, chunk.number)


@settings(deadline=None)
@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=40).filter(any), st.integers(1, 500))
def test_prefixes_stay_within_the_bound(weights: list[int], draws: int) -> None:
    """R6 for the shares themselves: at most half the tree's depth plus one half from the exact share."""
    bound = Fraction(math.ceil(math.log2(len(weights))) + 1, 2) if len(weights) > 1 else Fraction(1, 2)
    exact = [Fraction(weight, sum(weights)) for weight in weights]
    before = [0] * len(weights)
    for count in range(draws):
        found = shares([Fraction(weight) for weight in weights], count)
        assert sum(found) == count
        assert all(later >= earlier for later, earlier in zip(found, before, strict=True))
        assert all(abs(n - share * count) <= bound for n, share in zip(found, exact, strict=True))
        before = found


@settings(deadline=None, max_examples=60)
@given(cases())
def test_components_keep_to_their_shares_in_every_prefix(case: Case) -> None:
    """R6 in the global order: twice the bound, from the start or from where shares last changed."""
    model = Model(case)
    source = case.source()
    weights = [Fraction(repr(float(weight))) for weight in case.weights]
    depth = math.ceil(math.log2(max(sum(1 for w in weights if w), 1)))
    order = [
        sample[0] for number in range(len(model.draws) // case.chunk_size) for sample in read(source, number)
    ][: model.breaks[0] if model.breaks else None]
    given_so_far = [0] * len(weights)
    for place, index in enumerate(order, 1):
        given_so_far[index] += 1
        for count, weight in zip(given_so_far, weights, strict=True):
            assert abs(count - place * weight / sum(weights)) <= depth + 1


@settings(deadline=None, max_examples=40)
@given(cases(), st.integers(0, 2**31))
def test_reading_at_random_gives_the_same_samples_in_another_order(case: Case, seed: int) -> None:
    source = case.source()
    chunk = source.chunk_at(0)
    if chunk is None:
        return
    config = MixtureReadConfig("weighted_random", seed=seed, within_component="shuffle")  # type: ignore[arg-type]
    order = chunk.materialize_order(config)
    assert sorted(order) == sorted(chunk.iter_samples())
    assert order == chunk.materialize_order(config)
    assert [chunk.sample_at(index, config) for index in range(len(chunk))] == order
