"""States: small, exact, and refused by the name of what differs."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest

from prep.catalog.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.work.conftest import MakeSource

COUNTS = {"a": [6, 4], "b": [30]}


def test_a_state_is_small_and_plain(make_source: MakeSource) -> None:
    source = make_source(
        {name: [10**7] for name in ("web", "code", "books", "wiki")}, shuffle_block_size="global"
    )
    lane = source.clone_for_lane(700, 1024)
    lane.next_chunk()
    state = lane.state_dict()
    assert len(json.dumps(state)) < 1024
    assert state["turn"] == 1
    assert (state["lane"], state["lanes"]) == (700, 1024)


def test_a_thousand_datasets_are_named_once_each(make_source: MakeSource) -> None:
    names = {f"dataset-{number:04}": [5] for number in range(1000)}
    assert len(json.dumps(make_source(names).state_dict())) < 110 * 1000


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("options", [{}, {"exhausted_policy": "redistribute"}, {"stop_after_passes": 4}])
def test_a_run_goes_on_from_every_chunk(
    make_source: MakeSource, through_json: Callable[[Any], Any], options: dict[str, Any], replicas: int
) -> None:
    for number in range(replicas):
        lane = make_source(COUNTS, chunk_size=3, **options).clone_for_lane(number, replicas)
        states, chunks = [lane.state_dict()], []
        for chunk in iter(lane.next_chunk, None):
            chunks.append(chunk.components)
            states.append(lane.state_dict())
        for place, state in enumerate(states):
            again = make_source(COUNTS, chunk_size=3, **options).clone_for_lane(number, replicas)
            again.load_state_dict(through_json(state))
            assert again.state_dict() == state
            assert [chunk.components for chunk in iter(again.next_chunk, None)] == chunks[place:]


def test_a_run_goes_on_after_datasets_have_wrapped(make_source: MakeSource) -> None:
    """Case Q42: five sources of different size, saved when the smallest is in its fourth pass."""
    counts = {f"d{number}": [5 * (number + 1)] * 3 for number in range(5)}
    source = make_source(counts, exhausted_policy="repeat", chunk_size=10, shuffle_within_shard=True)
    for _ in range(25):
        source.next_chunk()
    given = source.schedule.counts(250)
    assert given[0] > 3 * 15
    again = make_source(counts, exhausted_policy="repeat", chunk_size=10, shuffle_within_shard=True)
    again.load_state_dict(source.state_dict())
    for _ in range(30):
        one, other = source.next_chunk(), again.next_chunk()
        assert one is not None
        assert other is not None
        assert one.components == other.components


CHANGES = [
    ({"seed": 5}, "seed: saved 0, now 5"),
    ({"chunk_size": 4}, "chunk_size: saved 3, now 4"),
    ({"shuffle_shards": False}, "shuffle_shards: saved True, now False"),
    ({"shuffle_within_shard": True}, "shuffle_within_shard: saved False, now True"),
    ({"shuffle_block_size": 8}, "shuffle_block_size: saved None, now 8"),
    ({"shuffle_block_size": "global"}, "shuffle_block_size: saved None, now 'global'"),
    ({"reshuffle_on_repeat": False}, "reshuffle_on_repeat: saved True, now False"),
    ({"reshuffle_on_repeat": {"b": False}}, "reshuffle_on_repeat: saved True, now {'a': True, 'b': False}"),
    ({"exhausted_policy": "repeat"}, "stop_after_passes: saved 1, now 0"),
    ({"exhausted_policy": "stop"}, "exhausted_policy: saved 'repeat', now 'stop'"),
    ({"stop_after_passes": 2}, "stop_after_passes: saved 1, now 2"),
    ({"lane_assignment": "modulo"}, "lane_assignment: saved 'permute', now 'modulo'"),
    ({"weights": {"a": 1, "b": 2}}, "stages.0.weights.b: saved 1, now 2"),
    ({"weights": {"a": 1, "b": 1e-9}}, "stages.0.weights.b: saved 1, now 1e-09"),
    ({"counts": {"a": [6, 4], "b": [29]}}, "datasets.b.fingerprint: saved '"),
    ({"counts": {"a": [4, 6], "b": [30]}}, "datasets.a.fingerprint: saved '"),
    ({"counts": {"b": [30], "a": [6, 4]}}, "datasets.b.id: saved 1, now 0"),
    ({"counts": {"a": [6, 4], "c": [30]}}, "datasets.b: saved {'id': 1, .*, now nothing"),
    ({"counts": {"a": [6, 4]}}, "datasets.b: saved {'id': 1, .*, now nothing"),
    ({"counts": {**COUNTS, "c": [1]}}, "datasets.c: saved nothing, now {'id': 2"),
]


@pytest.mark.parametrize(("changes", "said"), CHANGES, ids=[said for _, said in CHANGES])
def test_another_order_is_refused_with_field_saved_and_current(
    make_source: MakeSource, through_json: Callable[[Any], Any], changes: dict[str, Any], said: str
) -> None:
    source = make_source(COUNTS, chunk_size=3)
    source.next_chunk()
    state = through_json(source.state_dict())
    options = {"chunk_size": 3, **changes}
    other = make_source(options.pop("counts", COUNTS), options.pop("weights", None), **options)
    before = other.state_dict()
    with pytest.raises(RefusedError, match=said) as refusal:
        other.load_state_dict(state)
    assert "begin_stage" in str(refusal.value)
    assert other.state_dict() == before, "a refused state changes nothing"


@pytest.mark.parametrize(
    ("lane", "replicas", "said"),
    [(0, 3, "lane: saved 1, now 0"), (1, 4, "lanes: saved 3, now 4"), (1, 2, "lanes: saved 3, now 2")],
)
def test_another_lane_is_refused(make_source: MakeSource, lane: int, replicas: int, said: str) -> None:
    state = make_source(COUNTS).clone_for_lane(1, 3).state_dict()
    with pytest.raises(RefusedError, match=said):
        make_source(COUNTS).clone_for_lane(lane, replicas).load_state_dict(state)


def test_every_difference_is_listed(make_source: MakeSource) -> None:
    state = make_source(COUNTS).state_dict()
    with pytest.raises(RefusedError, match=r"seed: .*; chunk_size: .*; stages.0.weights.a: "):
        make_source(COUNTS, {"a": 3, "b": 1}, seed=1, chunk_size=1).load_state_dict(state)


def staged(state: dict[str, Any], stage: Any) -> dict[str, Any]:
    return {**state, "order": {**state["order"], "stages": [stage]}}


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda _: None, "expected what state_dict\\(\\) gave, found NoneType"),
        (lambda _: {}, "version: saved nothing, now 1"),
        (lambda state: {**state, "version": 2}, "version: saved 2, now 1"),
        (lambda state: {**state, "turn": -1}, "turn: expected an integer from 0 on, found -1"),
        (lambda state: {**state, "turn": 1.5}, "turn: .* found 1.5"),
        (lambda state: {**state, "turn": True}, "turn: .* found True"),
        (lambda state: {name: state[name] for name in state if name != "turn"}, "turn: .* found None"),
        (lambda state: {name: state[name] for name in state if name != "order"}, "order: expected"),
        (lambda state: {**state, "order": {}}, "order: datasets: damaged"),
        (
            lambda state: {**state, "order": {**state["order"], "stages": []}},
            "stages: expected to begin at chunk 0",
        ),
        (lambda state: staged(state, [0, 1]), "stages: damaged"),
        (lambda state: staged(state, {"first_chunk": 0}), "stages: damaged"),
        (
            lambda state: staged(state, {"first_chunk": 0, "weights": {"a": "x"}}),
            "'a': expected a finite number",
        ),
        (
            lambda state: staged(state, {"first_chunk": 4, "weights": {"a": 1}}),
            r"chunk 0 and go on, found \[4\]",
        ),
        (
            lambda state: staged(state, {"first_chunk": 0, "weights": {"z": 1}}),
            "that the state does not have",
        ),
        (
            lambda state: {**state, "order": {**state["order"], "datasets": {}}},
            "that the state does not have",
        ),
        (
            lambda state: {**state, "order": {**state["order"], "datasets": {"a": 1}}},
            "order: datasets: damaged",
        ),
        (lambda state: {**state, "order": {**state["order"], "seed": False}}, "seed: saved False, now 0"),
        (lambda state: {**state, "order": {**state["order"], "more": 1}}, "more: saved 1, now nothing"),
    ],
)
def test_a_damaged_state_is_refused(
    make_source: MakeSource, damage: Callable[[dict[str, Any]], Any], said: str
) -> None:
    state = make_source(COUNTS).state_dict()
    with pytest.raises(RefusedError, match=said):
        make_source(COUNTS).load_state_dict(damage(state))


def test_weights_of_equal_value_are_the_same(make_source: MakeSource) -> None:
    state = make_source(COUNTS, {"a": 1, "b": 2}).state_dict()
    other = make_source(COUNTS, {"b": 2.0, "a": 1.0})
    other.load_state_dict(state)
    assert other.total_samples == make_source(COUNTS, {"a": 1, "b": 2}).total_samples


def test_the_end_is_a_state_too(make_source: MakeSource) -> None:
    source = make_source(COUNTS, chunk_size=7)
    while source.next_chunk() is not None:
        pass
    again = make_source(COUNTS, chunk_size=7)
    again.load_state_dict(source.state_dict())
    assert again.next_chunk() is None
    assert again.state_dict()["turn"] == math.ceil(60 / 7)
