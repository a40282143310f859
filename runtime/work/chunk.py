"""A chunk of work: pointers to samples by component, and the order in which they are read."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from runtime.permutation import Permutation, derive_key
from runtime.work.split import interleave

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, MutableMapping, Sequence

    from numpy.typing import NDArray

    from runtime.types import SampleId

    Samples: TypeAlias = NDArray[np.int64] | Sequence[tuple[int, int, int]]

STATE_VERSION = 1


class MixtureReadMode(StrEnum):
    """How the components of a chunk take turns."""

    WEIGHTED_RANDOM = "weighted_random"
    WEIGHTED_ROUND_ROBIN = "weighted_round_robin"


class ComponentOrder(StrEnum):
    """In which order the samples of one component are read."""

    AS_IS = "as_is"
    SHUFFLE = "shuffle"


@dataclass(frozen=True)
class MixtureReadConfig:
    """How a chunk is read.

    Attributes:
        mode: components take turns evenly, or at random in the chunk's proportions.
        seed: of whatever is random; None: the chunk's.
        precompute: keep the order with the chunk after it was first computed; changes speed alone.
        within_component: as the chunk holds them, or shuffled.
    """

    mode: MixtureReadMode = MixtureReadMode.WEIGHTED_ROUND_ROBIN
    seed: int | None = None
    precompute: bool = False
    within_component: ComponentOrder = ComponentOrder.AS_IS

    def __post_init__(self) -> None:
        object.__setattr__(self, "mode", MixtureReadMode(self.mode))
        object.__setattr__(self, "within_component", ComponentOrder(self.within_component))


class WorkChunk:
    """Pointers to samples, by component.

    Args:
        components: each component's samples in order, as an int64 array of shape (n, 3) or as triples
            (dataset_id, shard_id, sample_idx). The order of the components breaks ties.
        seed: of the orders that are random.
        target_mixture: what `ensure_mixture` aims at, where that is not the composition of the chunk.
        parts: how many of each component come in one stretch after another, where the chunk's composition
            changes inside it; they sum to the components' sizes. None: one stretch.
        number: the chunk's place in its source's global order, if the source can make it again from that.

    Raises:
        ValueError: samples of another shape, or parts that do not sum.
    """

    def __init__(
        self,
        components: Mapping[str, Samples],
        seed: int | None = None,
        target_mixture: Mapping[str, float] | None = None,
        *,
        parts: Sequence[Sequence[int]] | None = None,
        number: int | None = None,
    ) -> None:
        self.arrays = {name: _as_rows(name, samples) for name, samples in components.items()}
        self.seed = seed
        self.target_mixture = None if target_mixture is None else dict(target_mixture)
        self.number = number
        self.counts = [len(rows) for rows in self.arrays.values()]
        self.parts = [self.counts] if parts is None else _checked_parts(parts, self.counts)
        self._kept: tuple[MixtureReadConfig, NDArray[np.int32], NDArray[np.int64]] | None = None

    def __len__(self) -> int:
        return sum(self.counts)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name}: {size}" for name, size in zip(self.arrays, self.counts, strict=True))
        return f"WorkChunk({sizes})"

    @property
    def components(self) -> MutableMapping[str, list[SampleId]]:
        """Each component's samples as triples: a new mapping; changing it does not change the chunk."""
        return {name: _as_triples(rows) for name, rows in self.arrays.items()}

    @property
    def mixture(self) -> Mapping[str, float]:
        """The share of each component that has samples here; they sum to 1."""
        total = len(self)
        return {name: len(rows) / total for name, rows in self.arrays.items() if len(rows)}

    def order(self, config: MixtureReadConfig | None = None) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The samples in reading order.

        Returns:
            The component's place among the components, int32 of shape (n,), and the sample ids, int64 of
            shape (n, 3).
        """
        config = config or MixtureReadConfig()
        if self._kept is not None and self._kept[0] == config:
            return self._kept[1:]
        seed = config.seed if config.seed is not None else self.seed or 0
        labels = np.concatenate([interleave(part) for part in self.parts])
        if config.mode is MixtureReadMode.WEIGHTED_RANDOM:
            key = derive_key("turns", seed)
            labels = labels[Permutation(len(labels), key).permute(np.arange(len(labels)))]
        ids = np.empty((len(labels), 3), np.int64)
        if len(labels):
            rows = np.concatenate(self._rows_in_order(config, seed))
            ids[_grouped(labels, len(self.counts)) if len(self.counts) > 1 else slice(None)] = rows
        if config.precompute:
            self._kept = config, labels, ids
        return labels, ids

    def _rows_in_order(self, config: MixtureReadConfig, seed: int) -> list[NDArray[np.int64]]:
        """Each component's samples in the order in which it gives them."""
        if config.within_component is ComponentOrder.AS_IS:
            return list(self.arrays.values())
        orders = [
            Permutation(len(rows), derive_key("component", seed, name)).permute(np.arange(len(rows)))
            for name, rows in self.arrays.items()
        ]
        return [rows[order] for rows, order in zip(self.arrays.values(), orders, strict=True)]

    def iter_samples(self, config: MixtureReadConfig | None = None) -> Iterator[tuple[SampleId, str]]:
        """Samples with their component's name, in reading order."""
        names = list(self.arrays)
        labels, ids = self.order(config)
        for label, sample in zip(labels.tolist(), _as_triples(ids), strict=True):
            yield sample, names[label]

    def materialize_order(self, config: MixtureReadConfig) -> list[tuple[SampleId, str]]:
        """All of `iter_samples`."""
        return list(self.iter_samples(config))

    def sample_at(self, index: int, config: MixtureReadConfig | None = None) -> tuple[SampleId, str]:
        """One sample of the reading order.

        Raises:
            IndexError: there is no such place.
        """
        if not 0 <= index < len(self):
            expected = f"expected 0 to {len(self) - 1}" if len(self) else "there are no samples"
            raise IndexError(f"index: {expected}, found {index}")
        labels, ids = self.order(config)
        return _as_triples(ids[index : index + 1])[0], list(self.arrays)[int(labels[index])]

    def state_dict(self) -> dict[str, Any]:
        """The chunk as plain JSON."""
        return {
            "version": STATE_VERSION,
            "components": {name: rows.tolist() for name, rows in self.arrays.items()},
            "seed": self.seed,
            "target_mixture": self.target_mixture,
            "parts": self.parts,
            "number": self.number,
        }

    @classmethod
    def from_state(cls, payload: Mapping[str, Any]) -> WorkChunk:
        """The chunk that `state_dict` described.

        Raises:
            ValueError: the state is of another version.
        """
        if payload.get("version") != STATE_VERSION:
            raise ValueError(f"version: expected {STATE_VERSION}, found {payload.get('version')!r}")
        return cls(
            payload["components"],
            payload["seed"],
            payload["target_mixture"],
            parts=payload["parts"],
            number=payload["number"],
        )


def _grouped(labels: NDArray[np.int32], components: int) -> NDArray[np.int64]:
    """The places of the first component's samples, then of the second's, and so on."""
    is_small = components <= np.iinfo(np.uint16).max  # small integers are sorted in linear time
    return np.argsort(labels.astype(np.uint16) if is_small else labels, kind="stable")


def _checked_parts(parts: Sequence[Sequence[int]], counts: list[int]) -> list[list[int]]:
    checked = [list(part) for part in parts]
    is_sound = all(len(part) == len(counts) and min(part, default=0) >= 0 for part in checked)
    if not is_sound or [sum(column) for column in zip(*checked, strict=True)] != counts:
        raise ValueError(f"parts: expected to sum to {counts}, found {checked}")
    return checked


def _as_rows(name: str, samples: Samples) -> NDArray[np.int64]:
    rows = np.asarray(samples)
    if not rows.size:
        return np.empty((0, 3), np.int64)
    if rows.ndim != 2 or rows.shape[1] != 3 or rows.dtype.kind not in "iu":  # noqa: PLR2004 - a triple
        found = f"{rows.dtype} of shape {rows.shape}"
        raise ValueError(f"components: {name!r}: expected (dataset_id, shard_id, sample_idx), found {found}")
    return rows.astype(np.int64, copy=False)


def _as_triples(rows: NDArray[np.int64]) -> list[SampleId]:
    return [tuple(row) for row in rows.tolist()]
