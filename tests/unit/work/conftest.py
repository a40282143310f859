"""Datasets that are lists of counts, and sources over them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from runtime.io import Dataset
from runtime.work import StaticMixtureWorkSource

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


class MakeSource(Protocol):
    """The type of the fixture `make_source`."""

    def __call__(
        self, counts: Mapping[str, Sequence[int]], weights: Mapping[str, float] | None = None, **options: Any
    ) -> StaticMixtureWorkSource: ...


@pytest.fixture
def make_source() -> MakeSource:
    """A source over datasets given by their rows a shard; equal weights unless they are given."""

    def make(
        counts: Mapping[str, Sequence[int]], weights: Mapping[str, float] | None = None, **options: Any
    ) -> StaticMixtureWorkSource:
        datasets = [Dataset.from_counts(name, each) for name, each in counts.items()]
        return StaticMixtureWorkSource(datasets, weights or dict.fromkeys(counts, 1), **options)

    return make


@pytest.fixture
def through_json() -> Callable[[Any], Any]:
    """What a checkpoint does to a state."""
    return lambda state: json.loads(json.dumps(state))
