"""The mixture source: what it promises and what it gives."""

from __future__ import annotations

import copy
import math
import pickle
import time
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from runtime.io import Dataset
from runtime.work import (
    ComponentOrder,
    MixtureReadConfig,
    MixtureReadMode,
    MixtureSpec,
    StaticMixtureWorkSource,
    WorkSource,
)

if TYPE_CHECKING:
    from runtime.work import SampleId
    from tests.unit.work.conftest import MakeSource

SHUFFLES: list[dict[str, Any]] = [
    {"shuffle_shards": False},
    {},
    {"shuffle_within_shard": True},
    {"shuffle_block_size": 10},
    {"shuffle_block_size": "auto", "shuffle_within_shard": True},
    {"shuffle_block_size": "global"},
]


def read(source: WorkSource) -> list[SampleId]:
    """A lane from where it is to its end."""
    found = []
    while (chunk := source.next_chunk()) is not None:
        found += [sample for sample, _ in chunk.iter_samples()]
    return found


# --- what there is


def test_defaults_are_the_documented_ones(make_source: MakeSource) -> None:
    order = make_source({"a": [3]}).state_dict()["order"]
    order.pop("datasets")
    assert order == {
        "seed": 0,
        "chunk_size": 16_384,
        "shuffle_shards": True,
        "shuffle_within_shard": False,
        "shuffle_block_size": None,
        "reshuffle_on_repeat": True,
        "exhausted_policy": "repeat",
        "max_repeats": None,
        "stop_after_passes": 1,
        "unit": "samples",
        "stages": [{"first_chunk": 0, "weights": {"a": 1}}],
    }
    assert make_source({"a": [3]}).state_dict()["lane_assignment"] == "permute"


def test_names_ids_and_datasets_belong_together(make_source: MakeSource) -> None:
    source = make_source({"web": [3], "code": [5]})
    assert source.dataset_ids == source.component_ids() == {"web": 0, "code": 1}
    assert {number: dataset.name for number, dataset in source.datasets_by_id.items()} == {
        0: "web",
        1: "code",
    }
    assert source.chunk_size_hint() == 16_384
    assert source.supports_indexing()
    assert not source.requires_token_priming
    source.prime()
    assert {sample[0] for sample in read(source)} == {0, 1}


def test_a_mixture_is_a_spec_or_a_mapping() -> None:
    datasets = [Dataset.from_counts("a", [3]), Dataset.from_counts("b", [3])]
    weights = {"b": 1, "a": 2}
    orders = [
        read(StaticMixtureWorkSource(datasets, mixture, chunk_size=5))
        for mixture in (weights, MixtureSpec(weights), MixtureSpec({"a": 0.2, "b": 0.1}))
    ]
    assert orders[0] == orders[1] == orders[2]


def test_two_datasets_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="datasets: two are called 'a'"):
        StaticMixtureWorkSource([Dataset.from_counts("a", [1]), Dataset.from_counts("a", [2])], {"a": 1})


def test_no_datasets_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one weight"):
        StaticMixtureWorkSource([], {})


def test_a_misspelled_weight_is_refused_with_the_name_that_is_meant(make_source: MakeSource) -> None:
    with pytest.raises(
        ValueError, match=r"no weight for 'code'; no component 'coed' \(did you mean 'code'\?\)"
    ):
        make_source({"web": [1], "code": [1]}, {"web": 1, "coed": 1})


def test_integers_of_numpy_are_integers(make_source: MakeSource) -> None:
    plain = make_source({"a": [50]}, chunk_size=7, seed=3, shuffle_block_size=9)
    other = make_source(
        {"a": [50]},
        {"a": np.float32(2)},
        chunk_size=np.int64(7),
        seed=np.uint8(3),
        shuffle_block_size=np.int16(9),
    )
    assert read(plain) == read(other)
    assert type(other.state_dict()["order"]["seed"]) is int
    config = MixtureReadConfig(MixtureReadMode.WEIGHTED_RANDOM)
    for source in (plain, other):
        source.read_config = config
    assert [plain.sample_id_at(place) for place in range(50)] == [
        other.sample_id_at(np.int64(place))
        for place in range(50)  # type: ignore[arg-type]
    ]


# --- nothing is lost or repeated


@pytest.mark.parametrize("options", SHUFFLES)
def test_a_pass_holds_every_sample_once(make_source: MakeSource, options: dict[str, Any]) -> None:
    """R4, with shards of 0 rows between the others."""
    counts = {"a": [0, 5, 0, 0, 17, 1, 0], "b": [3, 3, 3]}
    source = make_source(counts, exhausted_policy="redistribute", chunk_size=4, **options)
    expected = sorted(
        (number, shard, row)
        for number, shards in enumerate(counts.values())
        for shard, rows in enumerate(shards)
        for row in range(rows)
    )
    assert sorted(read(source)) == expected


def test_shards_keep_the_ids_that_they_were_given() -> None:
    rows = [{"text": "x"}] * 3
    dataset = Dataset.from_dict("a", {40: rows, 7: [], 2: rows})
    source = StaticMixtureWorkSource([dataset], {"a": 1}, shuffle_within_shard=True)
    assert sorted(read(source)) == [(0, shard, row) for shard in (2, 40) for row in range(3)]


def test_a_dataset_of_one_sample_repeats_it(make_source: MakeSource) -> None:
    source = make_source({"one": [1], "many": [100]}, chunk_size=16)
    found = Counter(read(source))
    assert source.total_samples == 200
    assert found[0, 0, 0] == 100
    assert all(found[1, 0, row] == 1 for row in range(100))


@pytest.mark.parametrize("options", SHUFFLES)
def test_a_dataset_smaller_than_its_share_of_a_chunk_wraps_inside_it(
    make_source: MakeSource, options: dict[str, Any]
) -> None:
    source = make_source(
        {"small": [2, 1], "large": [50, 50]}, exhausted_policy="repeat", chunk_size=64, **options
    )
    chunk = source.next_chunk()
    assert chunk is not None
    small = chunk.components["small"]
    assert len(small) == 32
    for start in range(0, 30, 3):
        assert sorted(small[start : start + 3]) == [(0, 0, 0), (0, 0, 1), (0, 1, 0)]


def test_the_last_partial_chunk_of_a_run_is_given(make_source: MakeSource) -> None:
    source = make_source({"a": [10]}, chunk_size=4)
    assert [len(chunk) for chunk in iter(source.next_chunk, None)] == [4, 4, 2]
    assert source.next_chunk() is None
    assert make_source({"a": [3]}, chunk_size=16_384).total_samples == 3


def test_a_run_that_ends_with_a_chunk_has_no_empty_one_behind(make_source: MakeSource) -> None:
    source = make_source({"a": [8]}, chunk_size=4)
    assert [len(chunk) for chunk in iter(source.next_chunk, None)] == [4, 4]


def test_the_same_data_under_two_names_has_two_orders(make_source: MakeSource) -> None:
    source = make_source({"a": [100], "b": [100]}, shuffle_block_size="global")
    chunk = source.next_chunk()
    assert chunk is not None
    rows = [[row for _, _, row in samples] for samples in chunk.components.values()]
    assert sorted(rows[0]) == sorted(rows[1])
    assert sum(one == other for one, other in zip(*rows, strict=True)) < 10


# --- order


def test_adding_a_dataset_does_not_reorder_the_others(make_source: MakeSource) -> None:
    options: dict[str, Any] = {"shuffle_within_shard": True, "shuffle_block_size": 30, "chunk_size": 10}
    few = make_source({"a": [20] * 5}, **options)
    more = make_source({"b": [7], "a": [20] * 5}, **options)
    assert [(shard, row) for _, shard, row in read(few)] == [
        (shard, row) for number, shard, row in read(more) if number == 1
    ][:100]


def test_passes_differ_unless_they_are_asked_not_to(make_source: MakeSource) -> None:
    for reshuffle in (True, False):
        for options in SHUFFLES[1:]:
            source = make_source(
                {"a": [10] * 10},
                chunk_size=100,
                stop_after_passes=2,
                reshuffle_on_repeat=reshuffle,
                **options,
            )
            first, second = (read_chunk for read_chunk in iter(source.next_chunk, None))
            assert (first.components != second.components) is reshuffle
            assert sorted(first.components["a"]) == sorted(second.components["a"])


def test_without_shuffles_the_order_is_that_of_the_data(make_source: MakeSource) -> None:
    source = make_source({"a": [3, 0, 2]}, shuffle_shards=False)
    assert read(source) == [(0, 0, 0), (0, 0, 1), (0, 0, 2), (0, 2, 0), (0, 2, 1)]


def test_shuffled_shards_are_read_as_wholes(make_source: MakeSource) -> None:
    order = read(make_source({"a": [5] * 40}, chunk_size=7))
    shards = [shard for _, shard, _ in order]
    assert [row for _, _, row in order] == list(range(5)) * 40
    assert len([1 for one, other in pairwise(shards) if one != other]) == 39
    assert shards[::5] != sorted(shards[::5])


def test_blocks_cross_shards_but_not_their_own_ends(make_source: MakeSource) -> None:
    order = read(make_source({"a": [10] * 10}, shuffle_shards=False, shuffle_block_size=35, chunk_size=9))
    places = [shard * 10 + row for _, shard, row in order]
    for start in range(0, 100, 35):
        assert sorted(places[start : start + 35]) == list(range(start, min(start + 35, 100)))
    assert places != sorted(places)


def test_auto_blocks_are_eight_times_the_largest_shard(make_source: MakeSource) -> None:
    source = make_source({"a": [10, 30], "b": [5]}, shuffle_block_size="auto")
    assert source.state_dict()["order"]["shuffle_block_size"] == 240


def test_few_neighbours_stay_together(make_source: MakeSource) -> None:
    """Case Q43: 100 documents with ids in order, blocks of 50."""
    for seed in range(20):
        source = make_source({"a": [100]}, shuffle_block_size=50, seed=seed)
        rows = [row for _, _, row in read(source)]
        assert sum(abs(one - other) == 1 for one, other in pairwise(rows)) < 10


@pytest.mark.parametrize("mode", MixtureReadMode)
def test_no_batch_is_of_a_single_source(make_source: MakeSource, mode: MixtureReadMode) -> None:
    """Case Q43: 10 equal sources, batches of 64; chi-square of the sources' counts."""
    source = make_source({f"d{number}": [1000] * 4 for number in range(10)}, chunk_size=4096)
    source.read_config = MixtureReadConfig(mode)
    owners = [source.sample_id_at(place)[0] for place in range(64 * 500)]
    statistic = 0.0
    for start in range(0, len(owners), 64):
        counts = np.bincount(owners[start : start + 64], minlength=10)
        assert (counts > 0).sum() > 5
        statistic += float(((counts - 6.4) ** 2 / 6.4).sum())
    freedom = 9 * 500
    assert statistic < freedom + 4 * math.sqrt(2 * freedom)


def test_extreme_weights_are_exact_over_their_period(make_source: MakeSource) -> None:
    source = make_source(
        {"rare": [10**4], "rest": [10**9]}, {"rare": 1e-6, "rest": 1 - 1e-6}, chunk_size=10**6
    )
    for number in (0, 1, 500):
        chunk = source.chunk_at(number)
        assert chunk is not None
        assert len(chunk.arrays["rare"]) == 1


# --- any place at once


@pytest.mark.parametrize("mode", MixtureReadMode)
@pytest.mark.parametrize("within", ComponentOrder)
def test_places_are_those_of_the_chunks_as_they_are_read(
    make_source: MakeSource, mode: MixtureReadMode, within: ComponentOrder
) -> None:
    source = make_source({"a": [9, 4], "b": [30]}, chunk_size=8, seed=4)
    source.read_config = MixtureReadConfig(mode, within_component=within)
    expected = []
    for number in range(math.ceil(source.total_samples / 8)):
        chunk = source.chunk_at(number)
        assert chunk is not None
        expected += [sample for sample, _ in chunk.iter_samples(source.read_config)]
    places = np.random.default_rng(0).permutation(len(expected)).tolist()
    assert [source.sample_id_at(place) for place in places] == [expected[place] for place in places]


@pytest.mark.parametrize("index", [-1, 60, 10**30])
def test_a_place_behind_the_end_is_refused(make_source: MakeSource, index: int) -> None:
    with pytest.raises(IndexError, match=f"expected 0 to 59, found {index}"):
        make_source({"a": [10], "b": [30]}).sample_id_at(index)


def test_a_source_that_cannot_tell_says_so() -> None:
    class Plain(WorkSource):
        datasets_by_id = {}  # noqa: RUF012

        def next_chunk(self) -> None:
            return None

        def state_dict(self) -> dict[str, Any]:
            return {}

        def load_state_dict(self, state: Any) -> None:
            raise NotImplementedError

        def component_ids(self) -> dict[str, int]:
            return {}

    source = Plain()
    assert (source.supports_indexing(), source.requires_token_priming) == (False, False)
    assert source.chunk_size_hint() is None
    assert type(source.clone_for_lane(0, 4)) is Plain
    source.prime()
    with pytest.raises(NotImplementedError, match="Plain does not support indexing"):
        source.sample_id_at(0)


# --- lanes


@pytest.mark.parametrize("assignment", ["permute", "modulo"])
@pytest.mark.parametrize("replicas", [1, 2, 7, 64])
def test_every_chunk_goes_to_one_lane_in_its_round(
    make_source: MakeSource, assignment: str, replicas: int
) -> None:
    source = make_source({"a": [10] * 100}, chunk_size=3, lane_assignment=assignment)
    owners: dict[int, int] = {}
    for lane in range(replicas):
        stream = source.clone_for_lane(lane, replicas)
        for turn, chunk in enumerate(iter(stream.next_chunk, None)):
            assert chunk.number is not None
            assert chunk.number // replicas == turn
            assert chunk.number not in owners
            owners[chunk.number] = lane
            assert assignment == "permute" or chunk.number % replicas == lane
    assert sorted(owners) == list(range(math.ceil(1000 / 3)))


def test_permuted_lanes_break_the_rhythm_of_the_chunks(make_source: MakeSource) -> None:
    source = make_source({"a": [8 * 500]}, chunk_size=1, lane_assignment="permute")
    stream = source.clone_for_lane(3, 8)
    counts = np.bincount([chunk.number % 8 for chunk in iter(stream.next_chunk, None)], minlength=8)
    assert counts.min() > 40


def test_lanes_agree_about_whose_a_chunk_is() -> None:
    from runtime.work.lanes import Lanes

    lanes = Lanes(24, "permute", 5)
    for turn in (0, 1, 63, 64, 65, 1000, 10**12):
        chunks = [lanes.chunk_of(lane, turn) for lane in range(24)]
        assert sorted(chunks) == list(range(turn * 24, turn * 24 + 24))
        assert [lanes.lane_of(chunk) for chunk in chunks] == list(range(24))


@pytest.mark.parametrize(
    ("lane", "replicas", "said"),
    [
        (4, 4, "lane_id: expected 0 to 3, found 4"),
        (-1, 4, "lane_id: expected 0 to 3, found -1"),
        (0, 0, "canonical_replicas: expected an integer of 1 or more"),
        (0.0, 4, "lane_id: expected an integer, found 0.0"),
    ],
)
def test_a_lane_that_is_none_is_refused(make_source: MakeSource, lane: Any, replicas: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make_source({"a": [10]}).clone_for_lane(lane, replicas)


def test_a_lane_or_a_source_that_has_begun_makes_no_lanes(make_source: MakeSource) -> None:
    source = make_source({"a": [10]}, chunk_size=2)
    lane = source.clone_for_lane(0, 2)
    begun = make_source({"a": [10]}, chunk_size=2)
    begun.next_chunk()
    for other in (lane, begun):
        with pytest.raises(ValueError, match="expected a source that is no lane and has given no chunk"):
            other.clone_for_lane(1, 2)


# --- scale


def test_copies_are_small_and_go_on_alike(make_source: MakeSource) -> None:
    counts = {"a": [100] * 50_000}
    source = make_source(counts, shuffle_block_size=1000)
    source.next_chunk()
    data = pickle.dumps(source)
    assert len(data) < 8 * 50_000 + 50_000  # the counts, and no table
    copies = [pickle.loads(data), copy.deepcopy(source)]  # noqa: S301 - bytes of our own
    expected = source.next_chunk()
    assert expected is not None
    for other in copies:
        chunk = other.next_chunk()
        assert chunk is not None
        assert chunk.components == expected.components


def test_a_large_catalog_is_ready_at_once(make_source: MakeSource) -> None:
    """Case Q71: 100,000 shards and 10^9 documents; case Q70: the cost of a place is that of any other."""
    source = make_source({"a": [10_000] * 100_000}, shuffle_block_size="global", chunk_size=1024)
    start = time.perf_counter()
    assert source.next_chunk() is not None
    assert time.perf_counter() - start < 2
    lane = source.__class__(
        list(source.datasets_by_id.values()), {"a": 1}, shuffle_block_size="global", chunk_size=1024
    ).clone_for_lane(5, 1024)
    state = {**lane.state_dict(), "turn": 900}
    start = time.perf_counter()
    lane.load_state_dict(state)
    assert lane.next_chunk() is not None
    assert time.perf_counter() - start < 2
    assert len(str(state)) < 1024
