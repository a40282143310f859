"""Chunks: mappings at the border, arrays inside, and the same order whoever asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from runtime.work import ComponentOrder, MixtureReadConfig, MixtureReadMode, WorkChunk

if TYPE_CHECKING:
    from collections.abc import Callable

TRIPLES = {
    "web": [(0, 0, row) for row in range(6)],
    "code": [(1, 4, 9), (1, 2, 0), (1, 0, 3)],
    "empty": [],
}
CONFIGS = [
    MixtureReadConfig(mode, seed, precompute, within)
    for mode in MixtureReadMode
    for within in ComponentOrder
    for seed, precompute in ((None, False), (3, True))
]


def chunk(**options: Any) -> WorkChunk:
    return WorkChunk(TRIPLES, 7, **options)


def test_components_come_back_as_they_went_in() -> None:
    assert chunk().components == TRIPLES
    arrays = WorkChunk({name: np.array(rows, np.int64) for name, rows in TRIPLES.items()}, 7)
    assert arrays.components == TRIPLES
    assert list(chunk().components) == ["web", "code", "empty"]
    assert all(
        type(number) is int for rows in arrays.components.values() for sample in rows for number in sample
    )
    assert len(chunk()) == 9


def test_the_mixture_is_that_of_the_components_with_samples() -> None:
    assert chunk().mixture == {"web": 2 / 3, "code": 1 / 3}
    assert chunk().target_mixture is None
    assert chunk(target_mixture={"web": 0.5, "code": 0.5}).target_mixture == {"web": 0.5, "code": 0.5}


def test_components_take_turns_evenly_and_keep_their_order() -> None:
    order = chunk().materialize_order(MixtureReadConfig())
    assert [name for _, name in order] == [
        "web", "code", "web", "web", "code", "web", "web", "code", "web",
    ]  # fmt: skip
    assert [sample for sample, name in order if name == "web"] == TRIPLES["web"]
    assert [sample for sample, name in order if name == "code"] == TRIPLES["code"]


@pytest.mark.parametrize("config", CONFIGS)
def test_one_by_one_at_once_and_by_place_are_the_same(config: MixtureReadConfig) -> None:
    order = chunk().materialize_order(config)
    assert sorted(order) == sorted((sample, name) for name, rows in TRIPLES.items() for sample in rows)
    assert list(chunk().iter_samples(config)) == order
    kept = chunk()
    for _ in range(2):
        assert [kept.sample_at(index, config) for index in range(len(order))] == order


def test_what_is_random_goes_by_the_seed_that_is_nearest() -> None:
    config = MixtureReadConfig(MixtureReadMode.WEIGHTED_RANDOM, within_component=ComponentOrder.SHUFFLE)
    own = MixtureReadConfig(MixtureReadMode.WEIGHTED_RANDOM, seed=7, within_component=ComponentOrder.SHUFFLE)
    assert chunk().materialize_order(config) == chunk().materialize_order(own)
    orders = [WorkChunk(TRIPLES, seed).materialize_order(config) for seed in range(8)]
    assert len({tuple(order) for order in orders}) > 4
    assert WorkChunk(TRIPLES).materialize_order(config) == WorkChunk(TRIPLES, 0).materialize_order(config)


def test_modes_are_known_by_their_words() -> None:
    config = MixtureReadConfig("weighted_random", within_component="shuffle")  # type: ignore[arg-type]
    assert config.mode is MixtureReadMode.WEIGHTED_RANDOM
    assert config.within_component is ComponentOrder.SHUFFLE
    assert MixtureReadConfig() == MixtureReadConfig(
        MixtureReadMode.WEIGHTED_ROUND_ROBIN, None, False, ComponentOrder.AS_IS
    )
    with pytest.raises(ValueError, match="at_random"):
        MixtureReadConfig("at_random")  # type: ignore[arg-type]


def test_many_components_are_read_in_their_order() -> None:
    rows = {f"d{index}": [(index, 0, row) for row in range(index % 5)] for index in range(300)}
    order = WorkChunk(rows).materialize_order(MixtureReadConfig())
    for name, expected in rows.items():
        assert [sample for sample, owner in order if owner == name] == expected


def test_parts_are_read_one_after_another() -> None:
    rows = {"a": [(0, 0, row) for row in range(4)], "b": [(1, 0, row) for row in range(4)]}
    names = [name for _, name in WorkChunk(rows, parts=[[4, 0], [0, 4]]).iter_samples()]
    assert names == ["a"] * 4 + ["b"] * 4


@pytest.mark.parametrize("index", [-1, 9, 100])
def test_a_place_that_is_none_is_refused(index: int) -> None:
    with pytest.raises(IndexError, match=f"expected 0 to 8, found {index}"):
        chunk().sample_at(index)


def test_a_chunk_of_nothing_is_read_as_nothing() -> None:
    for nothing in (WorkChunk({}), WorkChunk({"a": []})):
        assert (len(nothing), nothing.mixture) == (0, {})
        assert list(nothing.iter_samples()) == []
        with pytest.raises(IndexError, match="no samples"):
            nothing.sample_at(0)


@pytest.mark.parametrize(
    ("components", "parts", "said"),
    [
        ({"a": [(1, 2)]}, None, r"'a': expected \(dataset_id, shard_id, sample_idx\), found int64 of shape"),
        ({"a": [1, 2, 3]}, None, "'a': expected"),
        ({"a": [(0, 0, 0.5)]}, None, "'a': expected"),
        ({"a": [(0, 0, 0)]}, [[2]], r"parts: expected to sum to \[1\], found \[\[2\]\]"),
        ({"a": [(0, 0, 0)]}, [], r"parts: expected to sum to \[1\], found \[\]"),
        ({"a": [(0, 0, 0)]}, [[1, 0]], "parts: expected"),
        ({"a": [(0, 0, 0)], "b": []}, [[1, 0], [0]], "parts: expected"),
        ({"a": [(0, 0, 0)]}, [[2], [-1]], "parts: expected"),
    ],
)
def test_samples_and_parts_of_another_shape_are_refused(components: Any, parts: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        WorkChunk(components, parts=parts)


@pytest.mark.parametrize(
    "original",
    [
        chunk(),
        chunk(target_mixture={"web": 0.25, "code": 0.75}, number=12),
        WorkChunk({"a": [(0, 0, 0), (0, 1, 1)], "b": [(1, 0, 2)]}, parts=[[1, 1], [1, 0]]),
        WorkChunk({}),
    ],
)
def test_a_chunk_comes_back_from_its_state(original: WorkChunk, through_json: Callable[[Any], Any]) -> None:
    state = original.state_dict()
    again = WorkChunk.from_state(through_json(state))
    assert again.state_dict() == state
    assert (again.seed, again.number, again.target_mixture) == (
        original.seed,
        original.number,
        original.target_mixture,
    )
    for config in CONFIGS:
        assert again.materialize_order(config) == original.materialize_order(config)


@pytest.mark.parametrize("state", [{}, {"version": 99}, {"version": None}])
def test_a_state_of_another_version_is_refused(state: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="version: expected 1, found"):
        WorkChunk.from_state(state)
