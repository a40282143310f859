"""Orders written once and kept: no update of a library, and no change of ours, may move a sample.

`python tests/golden/record.py` writes `data/orders.json` anew, for a change of an order that is meant.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime.io import Dataset
from runtime.permutation import Permutation, derive_key
from runtime.work import MixtureReadConfig, StaticMixtureWorkSource, TokenEstimation
from runtime.work.lanes import Lanes

ORDERS = Path(__file__).parent / "data" / "orders.json"

KEYS: list[list[int | str]] = [[0], ["0"], [-1, "web", 3], [2**63, "größe 東京"], []]
PERMUTATIONS = [
    (size, key)
    for size in (1, 2, 7, 16, 17, 100, 2047, 2048, 100_003, 10**10, 2**48 + 1, 2**62)
    for key in (0, derive_key("golden", size))
]
COUNTS = {"web": [40, 0, 25, 31] * 6, "code": [300], "one": [1], "books": [7] * 20}
WEIGHTS = {"web": 0.5, "code": 0.3, "one": 1e-2, "books": 0.19}
MIXTURES: dict[str, dict[str, Any]] = {
    "as it lies": {"shuffle_shards": False},
    "defaults": {},
    "rows": {"shuffle_within_shard": True, "seed": 11},
    "blocks": {"shuffle_block_size": 50, "shuffle_within_shard": True},
    "auto": {"shuffle_block_size": "auto", "seed": -3},
    "global": {"shuffle_block_size": "global", "seed": 2**40},
    "same passes": {"shuffle_block_size": "global", "reshuffle_on_repeat": False},
    "redistribute": {"exhausted_policy": "redistribute", "shuffle_within_shard": True},
    "tokens": {"token_estimation": TokenEstimation(), "shuffle_within_shard": True},
}


def source(options: dict[str, Any]) -> StaticMixtureWorkSource:
    datasets = [
        Dataset.from_counts(name, counts, num_tokens=[count * (5 + place) for count in counts])
        for place, (name, counts) in enumerate(COUNTS.items())
    ]
    return StaticMixtureWorkSource(datasets, WEIGHTS, chunk_size=32, **options)


def key_values() -> list[int]:
    return [derive_key(*parts) for parts in KEYS]


def permutation_values(size: int, key: int) -> list[int]:
    """What stands at the first positions, in the middle and at the last."""
    places = sorted({*range(min(size, 3)), size // 2, size - 1})
    return [int(value) for value in Permutation(size, key).permute(np.array(places))]


def mixture_values(name: str) -> dict[str, Any]:
    """Ids of two chunks in both modes of reading, and the run's length and first chunk of some lanes."""
    made = source(MIXTURES[name])
    at_random = MixtureReadConfig("weighted_random", within_component="shuffle")  # type: ignore[arg-type]
    chunks = [chunk for chunk in (made.chunk_at(0), made.chunk_at(11)) if chunk is not None]
    return {
        "total": made.total_samples,
        "seeds": [chunk.seed for chunk in chunks],
        "even": [chunk.order()[1].tolist() for chunk in chunks],
        "random": [chunk.order(at_random)[1].tolist() for chunk in chunks],
    }


def lane_values() -> list[list[int]]:
    """The chunks of the first rounds of some lanes."""
    return [
        [Lanes(replicas, "permute", 5).chunk_of(lane, turn) for turn in (0, 1, 64, 10**9)]
        for replicas, lane in ((2, 1), (8, 3), (24, 0), (1024, 777))
    ]


def found() -> dict[str, Any]:
    """All that is pinned."""
    return {
        "keys": key_values(),
        "permutations": [permutation_values(*each) for each in PERMUTATIONS],
        "lanes": lane_values(),
        "mixtures": {name: mixture_values(name) for name in MIXTURES},
    }


@pytest.fixture(scope="module")
def recorded() -> Any:
    return json.loads(ORDERS.read_bytes())


def test_keys_are_as_they_were(recorded: Any) -> None:
    assert key_values() == recorded["keys"]


def test_permutations_are_as_they_were(recorded: Any) -> None:
    assert [permutation_values(*each) for each in PERMUTATIONS] == recorded["permutations"]


def test_lanes_are_as_they_were(recorded: Any) -> None:
    assert lane_values() == recorded["lanes"]


@pytest.mark.parametrize("name", MIXTURES)
def test_mixtures_are_as_they_were(name: str, recorded: Any) -> None:
    assert mixture_values(name) == recorded["mixtures"][name]
