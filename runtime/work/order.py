"""The order of a mixture: what decides it, and every chunk computed from its number."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from runtime.permutation import derive_key
from runtime.work.chunk import WorkChunk
from runtime.work.mixture import MixtureSpec, exact, integer_weights
from runtime.work.positions import DatasetOrder, ShuffleSettings
from runtime.work.schedule import Ends, Schedule, Stage

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from fractions import Fraction

    from numpy.typing import NDArray

    from runtime.io import Dataset


@dataclass(frozen=True)
class MixtureStage:
    """From a chunk on, these weights hold.

    Attributes:
        first_chunk: the first of the stage.
        weights: by dataset, of all datasets that there are by then.
    """

    first_chunk: int
    weights: Mapping[str, float]


def drawn_in(stages: Iterable[MixtureStage]) -> set[str]:
    """The datasets that have a weight above 0 in a stage."""
    return {name for stage in stages for name, weight in stage.weights.items() if weight}


@dataclass(frozen=True)
class MixtureOrder:
    """All that decides which sample comes when, and nothing else.

    Attributes:
        datasets: a sample's dataset_id is the place here.
        stages: weights and from when on they hold; the first begins at chunk 0.
        chunk_size: samples a chunk.
        seed: of every order.
        shuffle_shards, shuffle_within_shard: see `ShuffleSettings`.
        block: samples that change places among each other; "global": all of a dataset.
        reshuffle: by dataset, whether each pass has an order of its own.
        ends: of datasets and run.
        ends_of: the arguments behind `ends`, by dataset, as plain JSON.
        by_tokens: whether the weights mean tokens.
        means: tokens a sample by dataset, as far as they are known; of no meaning where weights mean samples.
    """

    datasets: tuple[Dataset, ...]
    stages: tuple[MixtureStage, ...]
    chunk_size: int
    seed: int
    shuffle_shards: bool
    shuffle_within_shard: bool
    block: int | str | None
    reshuffle: tuple[bool, ...]
    ends: Ends
    ends_of: tuple[Mapping[str, Any], ...]
    by_tokens: bool
    means: Mapping[str, Fraction]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The datasets' names."""
        return tuple(dataset.name for dataset in self.datasets)

    @property
    def mixture(self) -> MixtureSpec:
        """The newest weights."""
        return MixtureSpec(self.stages[-1].weights)

    @property
    def unmeasured(self) -> list[Dataset]:
        """Datasets whose tokens a sample have to be known and are not."""
        if not self.by_tokens:
            return []
        drawn = drawn_in(self.stages)
        return [each for each in self.datasets if each.name in drawn and each.name not in self.means]

    @cached_property
    def schedule(self) -> Schedule:
        """Counts by dataset at any place, and the end.

        Raises:
            RuntimeError: tokens a sample are still to be measured.
        """
        if self.unmeasured:
            names = ", ".join(dataset.name for dataset in self.unmeasured)
            raise RuntimeError(f"this mixture is by tokens: call prime() before its first chunk, for {names}")
        stages = []
        for stage in self.stages:
            shares = [exact(stage.weights.get(name, 0)) / self.means.get(name, 1) for name in self.names]
            start = stage.first_chunk * self.chunk_size
            stages.append(Stage(start, tuple(integer_weights(shares))))
        return Schedule(stages, self.ends)

    @cached_property
    def _orders(self) -> list[DatasetOrder]:
        orders = []
        for dataset, reshuffle in zip(self.datasets, self.reshuffle, strict=True):
            block = dataset.total if self.block == "global" else self.block
            assert not isinstance(block, str)
            settings = ShuffleSettings(
                self.shuffle_shards, self.shuffle_within_shard, block, reshuffle, self.seed
            )
            orders.append(DatasetOrder(dataset, settings))
        return orders

    def with_stages(self, stages: Sequence[MixtureStage]) -> MixtureOrder:
        """The same with other stages; tables are kept."""
        order = replace(self, stages=tuple(stages))
        order.__dict__["_orders"] = self._orders
        return order

    def chunk_at(self, number: int) -> WorkChunk | None:
        """A chunk by its number; None behind the end."""
        total = self.schedule.total
        first = number * self.chunk_size
        stop = first + self.chunk_size if total is None else min(first + self.chunk_size, total)
        if first >= stop:
            return None
        counts = [self.schedule.counts(place) for place in self.schedule.edges(first, stop)]
        used = [index for index, given in enumerate(counts[-1]) if given > counts[0][index]]
        return WorkChunk(
            {self.names[index]: self._samples(index, counts[0][index], counts[-1][index]) for index in used},
            derive_key("chunk", self.seed, number) >> 1,  # within what JSON readers take for an integer
            self._target_at(number) if self.by_tokens else None,
            parts=[[later[index] - earlier[index] for index in used] for earlier, later in pairwise(counts)],
            number=number,
        )

    def _samples(self, index: int, first: int, stop: int) -> NDArray[np.int64]:
        shards, rows = self._orders[index].samples(first, stop)
        ids = np.empty((stop - first, 3), np.int64)
        ids[:, 0], ids[:, 1], ids[:, 2] = index, shards, rows
        return ids

    def _target_at(self, number: int) -> dict[str, float]:
        """The shares by tokens that were asked for where a chunk is."""
        stage = next(stage for stage in reversed(self.stages) if stage.first_chunk <= number)
        return {name: share for name, share in MixtureSpec(stage.weights).normalized.items() if share}

    def describe(self, stages: int | None = None) -> dict[str, Any]:
        """All of it as plain JSON, datasets by their fingerprints; or as it was with the first few stages."""
        kept = self.stages[:stages]
        known = [index for index, name in enumerate(self.names) if name in kept[-1].weights]
        drawn = drawn_in(kept)
        return {
            "seed": self.seed,
            "chunk_size": self.chunk_size,
            "shuffle_shards": self.shuffle_shards,
            "shuffle_within_shard": self.shuffle_within_shard,
            "shuffle_block_size": self.block,
            "reshuffle_on_repeat": self._one_or_each(known, self.reshuffle),
            **{
                argument: self._one_or_each(known, [values[argument] for values in self.ends_of])
                for argument in self.ends_of[0]
            },
            "unit": "tokens" if self.by_tokens else "samples",
            "datasets": {self.names[index]: self._describe_dataset(index, drawn) for index in known},
            "stages": [{"first_chunk": stage.first_chunk, "weights": dict(stage.weights)} for stage in kept],
        }

    def _one_or_each(self, known: Sequence[int], values: Sequence[Any]) -> Any:
        """The value that all datasets have, or those of each."""
        found = {self.names[index]: values[index] for index in known}
        first = values[known[0]]
        return first if all(value == first for value in found.values()) else found

    def _describe_dataset(self, index: int, drawn: Collection[str]) -> dict[str, Any]:
        name = self.names[index]
        described: dict[str, Any] = {"id": index, "fingerprint": self.datasets[index].fingerprint}
        if name in drawn and name in self.means:
            described["tokens_per_sample"] = str(self.means[name])
        return described

    def __getstate__(self) -> dict[str, Any]:
        """Without the tables, which are made again where they are needed."""
        return {name: value for name, value in self.__dict__.items() if name != "_orders"}
