"""What ends a run: every default, every conflict, one value or one a dataset."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.unit.work.conftest import MakeSource

COUNTS = {"a": [6, 4], "b": [30]}
"""With equal weights, a ends first."""


def drawn(source: Any) -> dict[str, int]:
    """Samples of each dataset in the whole run, as it is read."""
    found = dict.fromkeys(source.dataset_ids, 0)
    while (chunk := source.next_chunk()) is not None:
        for name, samples in chunk.components.items():
            found[name] += len(samples)
    return found


@pytest.mark.parametrize(
    ("options", "total", "given"),
    [
        # nothing given: one pass over the slowest, the others repeat
        ({}, 60, {"a": 30, "b": 30}),
        ({"stop_after_passes": 1}, 60, {"a": 30, "b": 30}),
        ({"stop_after_passes": 2}, 120, {"a": 60, "b": 60}),
        ({"exhausted_policy": "repeat", "stop_after_passes": 1}, 60, {"a": 30, "b": 30}),
        ({"exhausted_policy": {"a": "repeat"}, "stop_after_passes": 1}, 60, {"a": 30, "b": 30}),
        ({"stop_after_passes": {"a": 1}}, 19, {"a": 10, "b": 9}),
        ({"stop_after_passes": {"a": 2, "b": 0}}, 39, {"a": 20, "b": 19}),
        # a policy given: no floor, and the datasets it leaves out stop
        ({"exhausted_policy": "stop"}, 20, {"a": 10, "b": 10}),
        ({"stop_after_passes": None}, 20, {"a": 10, "b": 10}),
        ({"exhausted_policy": "repeat"}, math.inf, {}),
        ({"exhausted_policy": {"a": "repeat"}}, 61, {"a": 31, "b": 30}),
        ({"exhausted_policy": {"b": "repeat"}}, 20, {"a": 10, "b": 10}),
        ({"exhausted_policy": {"a": "repeat", "b": "repeat"}}, math.inf, {}),
        ({"exhausted_policy": "redistribute"}, 40, {"a": 10, "b": 30}),
        ({"exhausted_policy": {"a": "redistribute"}}, 40, {"a": 10, "b": 30}),
        ({"exhausted_policy": {"a": "redistribute", "b": "repeat"}}, math.inf, {}),
        # extra passes, then as stop
        ({"exhausted_policy": "repeat", "max_repeats": 0}, 20, {"a": 10, "b": 10}),
        ({"exhausted_policy": "repeat", "max_repeats": 1}, 40, {"a": 20, "b": 20}),
        ({"exhausted_policy": {"a": "repeat"}, "max_repeats": {"a": 1}}, 40, {"a": 20, "b": 20}),
        ({"exhausted_policy": {"a": "repeat"}, "max_repeats": 1}, 40, {"a": 20, "b": 20}),
        ({"exhausted_policy": {"a": "repeat"}, "max_repeats": {"a": 5, "b": None}}, 61, {"a": 31, "b": 30}),
        ({"exhausted_policy": {"a": "repeat"}, "max_repeats": {"a": 5}}, 61, {"a": 31, "b": 30}),
        ({"exhausted_policy": "repeat", "max_repeats": {"b": 0}}, 61, {"a": 31, "b": 30}),
        (
            {"exhausted_policy": {"a": "redistribute", "b": "repeat"}, "max_repeats": 1},
            70,
            {"a": 10, "b": 60},
        ),
    ],
)
def test_a_run_is_as_long_as_it_was_promised(
    make_source: MakeSource, options: dict[str, Any], total: float, given: dict[str, int]
) -> None:
    for chunk_size in (1, 7, 1000):
        source = make_source(COUNTS, chunk_size=chunk_size, **options)
        assert source.total_samples == total
        if total < math.inf:
            assert drawn(source) == given
        else:
            assert all(len(source.next_chunk() or ()) == chunk_size for _ in range(5))


def test_without_an_end_the_last_chunk_is_as_good_as_the_first(make_source: MakeSource) -> None:
    source = make_source(COUNTS, exhausted_policy="repeat", chunk_size=100)
    far = source.chunk_at(10**15)
    assert far is not None
    assert far.mixture == {"a": 0.5, "b": 0.5}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"stop_after_passes": 1, "exhausted_policy": "stop"}, "every dataset has to repeat"),
        ({"stop_after_passes": 1, "exhausted_policy": "redistribute"}, "'a': 'redistribute'"),
        ({"stop_after_passes": 1, "exhausted_policy": {"b": "stop"}}, "exhausted_policy: 'b': 'stop'"),
        ({"stop_after_passes": 1, "max_repeats": 1}, "not together with max_repeats"),
        ({"stop_after_passes": 1, "exhausted_policy": "repeat", "max_repeats": 1}, "max_repeats"),
        ({"max_repeats": 1}, "max_repeats: 'a', 'b': not a repeating dataset"),
        ({"max_repeats": {"a": 1}}, "max_repeats: 'a': not a repeating dataset"),
        ({"max_repeats": 1, "exhausted_policy": "redistribute"}, "not a repeating dataset"),
        ({"max_repeats": {"b": 1}, "exhausted_policy": {"a": "repeat"}}, "max_repeats: 'b': not"),
        (
            {"exhausted_policy": "loop"},
            "exhausted_policy: 'a': expected stop, repeat, redistribute, found 'loop'",
        ),
        ({"exhausted_policy": {"b": 3}}, "exhausted_policy: 'b': expected .* found 3"),
        ({"exhausted_policy": {"bb": "stop"}}, r"exhausted_policy: no dataset 'bb' \(did you mean 'b'\?\)"),
        ({"exhausted_policy": "repeat", "max_repeats": -1}, "max_repeats: 'a': expected an integer from 0"),
        ({"exhausted_policy": "repeat", "max_repeats": 1.5}, "max_repeats: 'a': .* found 1.5"),
        ({"exhausted_policy": "repeat", "max_repeats": True}, "max_repeats: 'a': .* found True"),
        ({"exhausted_policy": "repeat", "max_repeats": {"c": 1}}, "max_repeats: no dataset 'c'"),
        ({"stop_after_passes": 0}, "stop_after_passes: expected 1 or more"),
        ({"stop_after_passes": {}}, "stop_after_passes: expected 1 or more"),
        ({"stop_after_passes": -1}, "stop_after_passes: 'a': expected an integer from 0"),
        ({"stop_after_passes": 0.5}, "stop_after_passes: 'a': .* found 0.5"),
        ({"stop_after_passes": {"a": True}}, "stop_after_passes: 'a': .* found True"),
        ({"stop_after_passes": {"x": 1}}, "stop_after_passes: no dataset 'x'; datasets are a, b"),
        ({"reshuffle_on_repeat": {"x": True}}, "reshuffle_on_repeat: no dataset 'x'"),
        (
            {"reshuffle_on_repeat": {"a": "no"}},
            "reshuffle_on_repeat: 'a': expected true or false, found 'no'",
        ),
        ({"chunk_size": 0}, "chunk_size: expected an integer of 1 or more, found 0"),
        ({"chunk_size": 2.0}, "chunk_size: .* found 2.0"),
        ({"chunk_size": True}, "chunk_size: .* found True"),
        ({"seed": "x"}, "seed: expected an integer, found 'x'"),
        ({"seed": None}, "seed: expected an integer, found None"),
        ({"shuffle_block_size": 0}, "shuffle_block_size: expected an integer of 1 or more"),
        ({"shuffle_block_size": "all"}, "shuffle_block_size: expected an integer, 'auto', 'global' or None"),
        ({"shuffle_block_size": 1.5}, "shuffle_block_size: .* found 1.5"),
        ({"shuffle_shards": "no"}, "shuffle_shards: expected true or false, found 'no'"),
        ({"shuffle_within_shard": 1}, "shuffle_within_shard: expected true or false, found 1"),
        ({"lane_assignment": "random"}, "lane_assignment: expected permute, modulo, found 'random'"),
    ],
)
def test_wrong_values_and_contradictions_are_refused_by_name(
    make_source: MakeSource, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        make_source(COUNTS, **options)


# --- datasets without samples, or without weight


@pytest.mark.parametrize("policy", [None, "stop", "repeat", {"b": "redistribute"}])
def test_an_empty_dataset_with_a_weight_is_refused_by_name(make_source: MakeSource, policy: Any) -> None:
    with pytest.raises(ValueError, match="dataset 'a' has no samples but a weight above 0"):
        make_source({"a": [0, 0], "b": [3]}, exhausted_policy=policy)


def test_others_take_over_the_share_of_an_empty_dataset(make_source: MakeSource) -> None:
    for policy, total in (("redistribute", 7), ({"a": "redistribute"}, 3 + 3)):
        source = make_source({"a": [], "b": [3], "c": [4]}, exhausted_policy=policy)
        assert source.total_samples == total
        assert drawn(source)["a"] == 0


def test_only_empty_datasets_give_a_run_of_nothing(make_source: MakeSource) -> None:
    source = make_source({"a": [], "b": [0]}, exhausted_policy="redistribute")
    assert source.total_samples == 0
    assert source.next_chunk() is None
    with pytest.raises(IndexError):
        source.sample_id_at(0)


@pytest.mark.parametrize("options", [{}, {"exhausted_policy": "stop"}, {"exhausted_policy": "redistribute"}])
def test_a_weight_of_zero_is_never_drawn_and_ends_nothing(
    make_source: MakeSource, options: dict[str, Any]
) -> None:
    for idle in ([], [2], [10**6]):
        source = make_source({"idle": idle, "b": [30]}, {"idle": 0, "b": 0.5}, **options)
        assert source.total_samples == 30
        assert drawn(source) == {"idle": 0, "b": 30}


def test_a_floor_for_a_dataset_that_is_never_drawn_is_no_end(make_source: MakeSource) -> None:
    with pytest.raises(ValueError, match="stop_after_passes"):
        make_source(COUNTS, {"a": 0, "b": 1}, stop_after_passes={"a": 1})


def test_all_that_redistribute_are_read_to_the_last_sample(make_source: MakeSource) -> None:
    counts = {f"d{index}": [index * 7 % 13 + 1] * (index % 4 + 1) for index in range(30)}
    weights = {name: 1 + index % 5 for index, name in enumerate(counts)}
    source = make_source(counts, weights, exhausted_policy="redistribute", chunk_size=11)
    assert source.total_samples == sum(map(sum, counts.values()))
    assert drawn(source) == {name: sum(each) for name, each in counts.items()}


def test_a_thousand_datasets_are_planned_in_less_than_a_second(make_source: MakeSource) -> None:
    import time

    counts = {f"d{index}": [100 + index] * 3 for index in range(1000)}
    weights = {name: 0.01 + (index * 7919 % 1000) / 1000 for index, name in enumerate(counts)}
    start = time.process_time()
    source = make_source(counts, weights, exhausted_policy="redistribute")
    assert time.process_time() - start < 1
    start = time.process_time()
    assert source.total_samples == sum(map(sum, counts.values()))
    assert time.process_time() - start < 5  # 0.6 s on a quiet core
    assert source.next_chunk() is not None
