"""Changing the mixture of a run on purpose."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from prep.catalog.errors import RefusedError
from runtime.io import Dataset
from runtime.work import StaticMixtureWorkSource, TokenEstimation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from runtime.work import SampleId
    from tests.unit.work.conftest import MakeSource

COUNTS = {"a": [40] * 5, "b": [500]}
LANES = 3
OPTIONS: dict[str, Any] = {"chunk_size": 10, "shuffle_within_shard": True}


def lanes_of(source: StaticMixtureWorkSource, states: Sequence[Any] = ()) -> list[StaticMixtureWorkSource]:
    lanes = [source.clone_for_lane(lane, LANES) for lane in range(LANES)]
    for lane, state in zip(lanes, states, strict=bool(states)):
        lane.load_state_dict(state)
    return lanes


def begun(make_source: MakeSource, turns: Sequence[int], **changes: Any) -> list[dict[str, Any]]:
    """The states of a run's lanes after each has had so many chunks."""
    options = {**OPTIONS, **changes}
    lanes = lanes_of(make_source(options.pop("counts", COUNTS), options.pop("weights", None), **options))
    for lane, count in zip(lanes, turns, strict=True):
        for _ in range(count):
            assert lane.next_chunk() is not None
    return [lane.state_dict() for lane in lanes]


def in_global_order(source: StaticMixtureWorkSource, first: int, stop: int) -> list[SampleId]:
    found = []
    for number in range(first, stop):
        chunk = source.chunk_at(number)
        found += [sample for sample, _ in chunk.iter_samples()] if chunk is not None else []
    return found


@pytest.mark.parametrize("turns", [(0, 0, 0), (1, 1, 1), (3, 0, 2), (2, 2, 1)])
def test_new_weights_hold_from_the_first_chunk_that_no_lane_has_had(
    make_source: MakeSource, through_json: Callable[[Any], Any], turns: tuple[int, ...]
) -> None:
    """Case Q39: each dataset goes on where it was; no sample is lost or comes twice."""
    states = through_json(begun(make_source, turns))
    old, new = make_source(COUNTS, **OPTIONS), make_source(COUNTS, {"a": 2, "b": 1}, **OPTIONS)
    first = new.begin_stage(states)
    had = [
        old.clone_for_lane(lane, LANES)._lanes.chunk_of(lane, turn)
        for lane, count in enumerate(turns)
        for turn in range(count)
    ]
    assert first == max(had, default=-1) + 1
    assert in_global_order(new, 0, first) == in_global_order(old, 0, first)
    later = new.chunk_at(first)
    assert later is not None
    assert later.mixture["a"] == pytest.approx(2 / 3, abs=0.1)
    samples = [sample for sample in in_global_order(new, 0, 40) if sample[0] == 0]
    assert len(set(samples[:200])) == 200, "a pass of a holds each of its samples once"

    lanes = lanes_of(new, states)
    assert [lane.state_dict()["turn"] for lane in lanes] == list(turns)
    for lane in lanes:
        for chunk in iter(lane.next_chunk, None):
            assert chunk.number is not None
            if chunk.number < first:
                same = old.chunk_at(chunk.number)
                assert same is not None
                assert chunk.components == same.components


def test_the_change_is_in_the_state_and_a_restart_goes_on_with_it(
    make_source: MakeSource, through_json: Callable[[Any], Any]
) -> None:
    states = begun(make_source, (2, 2, 2))
    changed = make_source(COUNTS, {"a": 2, "b": 1}, **OPTIONS)
    first = changed.begin_stage(states)
    lanes = lanes_of(changed, states)
    for lane in lanes:
        lane.next_chunk()
    after = through_json([lane.state_dict() for lane in lanes])
    assert after[0]["order"]["stages"] == [
        {"first_chunk": 0, "weights": {"a": 1, "b": 1}},
        {"first_chunk": first, "weights": {"a": 2, "b": 1}},
    ]
    again = lanes_of(make_source(COUNTS, {"a": 2, "b": 1}, **OPTIONS), after)
    for one, other in zip(lanes, again, strict=True):
        assert one.state_dict() == other.state_dict()
        for chunk in iter(one.next_chunk, None):
            same = other.next_chunk()
            assert same is not None
            assert chunk.components == same.components
        assert other.next_chunk() is None


def test_a_restart_with_the_old_weights_is_refused(make_source: MakeSource) -> None:
    states = begun(make_source, (1, 1, 1))
    changed = make_source(COUNTS, {"a": 2, "b": 1}, **OPTIONS)
    changed.begin_stage(states)
    after = [lane.state_dict() for lane in lanes_of(changed, states)]
    with pytest.raises(RefusedError, match="stages: saved "):
        lanes_of(make_source(COUNTS, **OPTIONS), after)


def test_a_dataset_can_be_added(make_source: MakeSource) -> None:
    """Case Q39: at a restart a third source joins with a tenth."""
    states = begun(make_source, (2, 1, 2))
    counts = {**COUNTS, "c": [100]}
    new = make_source(counts, {"a": 9, "b": 9, "c": 2}, **OPTIONS)
    first = new.begin_stage(states)
    assert all(sample[0] != 2 for sample in in_global_order(new, 0, first))
    behind = in_global_order(new, first, first + 10)
    assert sum(sample[0] == 2 for sample in behind) == 10
    lanes = lanes_of(new, states)
    assert lanes[0].state_dict()["order"]["stages"][0]["weights"] == {"a": 1, "b": 1}
    assert new.component_ids() == {"a": 0, "b": 1, "c": 2}


def test_three_stages_each_hold_from_their_chunk(make_source: MakeSource) -> None:
    states: list[Any] = begun(make_source, (1, 1, 1))
    firsts = [0]
    for weights in ({"a": 1, "b": 0}, {"a": 0, "b": 1}):
        source = make_source(COUNTS, weights, **OPTIONS)
        firsts.append(source.begin_stage(states))
        lanes = lanes_of(source, states)
        for lane in lanes:
            lane.next_chunk()
        states = [lane.state_dict() for lane in lanes]
    assert firsts == [0, 3, 6]
    owners = [{sample[0] for sample in in_global_order(source, number, number + 1)} for number in range(9)]
    assert owners == [{0, 1}] * 3 + [{0}] * 3 + [{1}] * 3
    again = lanes_of(make_source(COUNTS, {"a": 0, "b": 1}, **OPTIONS), states)
    assert [lane.state_dict() for lane in again] == states


def test_the_size_of_auto_blocks_stays_as_the_run_had_it(make_source: MakeSource) -> None:
    options = {**OPTIONS, "shuffle_block_size": "auto"}
    states = begun(make_source, (1, 1, 1), shuffle_block_size="auto")
    assert states[0]["order"]["shuffle_block_size"] == 8 * 500
    new = make_source({**COUNTS, "c": [10_000]}, **options)
    new.begin_stage(states)
    order = lanes_of(new, states)[0].state_dict()["order"]
    assert order["shuffle_block_size"] == 8 * 500
    pinned = make_source({**COUNTS, "c": [10_000]}, **{**options, "shuffle_block_size": 80_000})
    with pytest.raises(RefusedError, match="shuffle_block_size: saved 4000, now 80000"):
        pinned.begin_stage(states)


def test_a_dataset_that_was_left_out_goes_on_where_it_was(make_source: MakeSource) -> None:
    states = begun(make_source, (2, 2, 2))
    new = make_source(COUNTS, {"a": 0, "b": 1}, **OPTIONS)
    first = new.begin_stage(states)
    assert all(sample[0] == 1 for sample in in_global_order(new, first, first + 5))
    assert new.total_samples == 60 + (500 - 30)


CHANGES: list[tuple[Mapping[str, Any], str]] = [
    ({"counts": {"a": [40] * 5}}, "datasets.b: saved {'id': 1, .* now nothing"),
    ({"counts": {"a": [40] * 5, "bb": [500]}}, "datasets.b: saved {'id': 1, .* now nothing"),
    ({"counts": {"b": [500], "a": [40] * 5}}, "datasets.b.id: saved 1, now 0"),
    ({"counts": {"c": [1], **COUNTS}}, "datasets.a.id: saved 0, now 1"),
    ({"counts": {"a": [40] * 5, "b": [501]}}, "datasets.b.fingerprint: saved '"),
    ({"seed": 1}, "seed: saved 0, now 1"),
    ({"chunk_size": 20}, "chunk_size: saved 10, now 20"),
    ({"shuffle_within_shard": False}, "shuffle_within_shard: saved True, now False"),
    ({"exhausted_policy": "redistribute"}, "exhausted_policy: saved 'repeat', now 'redistribute'"),
    ({"lane_assignment": "modulo"}, "lane_assignment: saved 'permute', now 'modulo'"),
    ({"token_estimation": TokenEstimation(measure=len)}, "unit: saved 'samples', now 'tokens'"),
]


@pytest.mark.parametrize(("changes", "said"), CHANGES, ids=[said for _, said in CHANGES])
def test_anything_but_weights_and_datasets_behind_is_refused(
    make_source: MakeSource, changes: dict[str, Any], said: str
) -> None:
    states = begun(make_source, (1, 1, 1))
    options = {**OPTIONS, **changes}
    source = make_source(options.pop("counts", COUNTS), **options)
    before = source.state_dict()
    with pytest.raises(RefusedError, match=said):
        source.begin_stage(states)
    assert source.state_dict() == before


def test_states_have_to_be_those_of_all_lanes(make_source: MakeSource) -> None:
    states = begun(make_source, (1, 1, 1))
    source = make_source(COUNTS, {"a": 2, "b": 1}, **OPTIONS)
    damaged = {**states[1], "turn": -4}
    for given, said in (
        ([], "expected what state_dict"),
        ([None], "expected what state_dict"),
        ([{}], "expected what state_dict"),
        (states[:2], r"expected lanes 0 to 2, each once; found 2, missing \[2\]"),
        ([states[0], states[0], states[1], states[2]], "found 4, missing"),
        ([states[0], states[1], states[1]], r"missing \[2\]"),
        ([states[0], states[1], {**states[2], "lanes": 4}], r"missing \[2\]"),
        ([states[0], damaged, states[2]], "turn: expected an integer"),
        ([states[0], {**states[1], "version": 7}, states[2]], "version: saved 7, now 1"),
    ):
        with pytest.raises(RefusedError, match=said):
            source.begin_stage(given)  # type: ignore[arg-type]


def test_a_run_that_has_ended_has_no_further_stage(make_source: MakeSource) -> None:
    counts, options = {"a": [5], "b": [6]}, {**OPTIONS, "lane_assignment": "modulo"}
    states = begun(make_source, (1, 1, 0), counts=counts, lane_assignment="modulo")
    with pytest.raises(RefusedError, match="the run has ended: all its 12 samples were given"):
        make_source(counts, {"a": 1, "b": 3}, **options).begin_stage(states)


def test_data_can_be_added_where_a_run_ends_with_a_chunk(make_source: MakeSource) -> None:
    counts = {"a": [30]}
    states = begun(make_source, (1, 1, 1), counts=counts)
    new = make_source({**counts, "more": [25]}, {"a": 0, "more": 1}, **OPTIONS)
    assert new.begin_stage(states) == 3
    assert new.total_samples == 55


def test_a_lane_that_went_on_without_the_stage_is_refused(make_source: MakeSource) -> None:
    states = begun(make_source, (1, 1, 1))
    ahead = begun(make_source, (5, 1, 1))
    new = make_source(COUNTS, {"a": 2, "b": 1}, **OPTIONS)
    new.begin_stage(states)
    with pytest.raises(RefusedError, match="the stage was begun at chunk 3, but lane 0 had chunk"):
        new.clone_for_lane(0, LANES).load_state_dict(ahead[0])


# --- by tokens


def by_tokens(weights: dict[str, float], **options: Any) -> StaticMixtureWorkSource:
    rows = {"a": 10, "b": 40, "raw": 5}
    datasets = [
        Dataset.from_dict(name, [[{"text": "x" * rows[name]}] * 50])
        if name == "raw"
        else Dataset.from_counts(name, [500], num_tokens=[500 * rows[name]])
        for name in weights
    ]
    estimation = TokenEstimation(measure=lambda payload: len(payload["text"]))
    return StaticMixtureWorkSource(datasets, weights, chunk_size=10, token_estimation=estimation, **options)


def test_a_dataset_that_is_measured_can_be_added(through_json: Callable[[Any], Any]) -> None:
    old = by_tokens({"a": 1, "b": 1})
    old.next_chunk()
    state = old.state_dict()
    new = by_tokens({"a": 1, "b": 1, "raw": 1})
    assert new.begin_stage([state]) == 1
    assert new.requires_token_priming
    new.prime()
    new.load_state_dict(state)
    assert not new.requires_token_priming
    chunk = new.next_chunk()
    assert chunk is not None
    assert chunk.target_mixture == pytest.approx({"a": 1 / 3, "b": 1 / 3, "raw": 1 / 3})
    again = by_tokens({"a": 1, "b": 1, "raw": 1})
    again.load_state_dict(through_json(new.state_dict()))
    assert not again.requires_token_priming
    assert again.state_dict() == new.state_dict()


def test_a_dataset_can_leave_and_come_back_by_tokens() -> None:
    state: Any = by_tokens({"a": 1, "b": 1, "raw": 0}).state_dict()
    for weights in ({"a": 1, "b": 0, "raw": 1}, {"a": 0, "b": 1, "raw": 0}, {"a": 1, "b": 1, "raw": 1}):
        source = by_tokens(weights)
        source.begin_stage([state])
        source.prime()
        source.load_state_dict(state)
        source.next_chunk()
        state = source.state_dict()
        restarted = by_tokens(weights)
        restarted.load_state_dict(state)
        assert restarted.state_dict() == state
    assert len(state["order"]["stages"]) == 4
