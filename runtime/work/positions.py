"""Which sample of a dataset stands at a position: computed from (seed, name, pass, position).

Position p lies in pass p // total. Inside a pass up to three bijections decide: of positions inside blocks of
neighbours, of the shards, and of the rows inside a shard. Only tables with an entry a shard are kept, those
of the latest passes. A block as large as the dataset makes the other two idle: they are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from runtime.permutation import derive_key, derive_keys, mix64, permute_each

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from runtime.io import Dataset

    Ints: TypeAlias = NDArray[np.int64]

KEPT_PASSES = 2
"""Tables of shard orders that are kept: a chunk may lie across the end of a pass."""

BUCKETED_SHARDS = 64
"""From so many shards on, the shard of a position is looked up through buckets."""

LINEAR_STEPS = 3


@dataclass(frozen=True)
class ShuffleSettings:
    """How a dataset's samples are shuffled.

    Attributes:
        shards: their order, anew each pass.
        within_shard: the order of the rows in each shard.
        block: positions in blocks of this many change places; None: they do not.
        reshuffle: another order in each pass; otherwise that of the first.
        seed: of all of it.
    """

    shards: bool
    within_shard: bool
    block: int | None
    reshuffle: bool
    seed: int


class ShardTable:
    """Shards in the order of a pass, or of several, laid end to end, and where each begins.

    Args:
        counts: rows of the shard at each place, none 0.
        slots: which shard that is: int64 of shape (places,); None: each stands at its own.
    """

    def __init__(self, counts: Ints, slots: Ints | None = None) -> None:
        self._slots = slots
        self.starts = np.concatenate([[0], np.cumsum(counts)])
        self._shift = 0
        self._first: NDArray[np.int32] | None = None
        if len(counts) >= BUCKETED_SHARDS:
            total = int(self.starts[-1])
            self._shift = (total // len(counts)).bit_length() - 1
            buckets = (total >> self._shift) + 1
            reached = (self.starts[1:-1] + ((1 << self._shift) - 1)) >> self._shift
            self._first = np.cumsum(np.bincount(reached, minlength=buckets))[:buckets].astype(np.int32)

    def find(self, positions: Ints) -> tuple[Ints, Ints]:
        """The shard and row of each position."""
        places = self._places(positions)
        slots = places if self._slots is None else self._slots[places]
        return slots, positions - self.starts[places]

    def _places(self, positions: Ints) -> Ints:
        if self._first is None:
            return self._searched(positions)
        found: Ints = self._first[positions >> self._shift].astype(np.int64)
        late = np.flatnonzero(positions >= self.starts[found + 1])
        for _ in range(LINEAR_STEPS):
            if not len(late):
                return found
            found[late] += 1
            late = late[positions[late] >= self.starts[found[late] + 1]]
        found[late] = self._searched(positions[late])
        return found

    def _searched(self, positions: Ints) -> Ints:
        return np.asarray(np.searchsorted(self.starts, positions, side="right") - 1, np.int64)

    def run(self, first: int, stop: int) -> tuple[Ints, Ints]:
        """The shard and row of each position of a stretch."""
        low = int(np.searchsorted(self.starts, first, side="right")) - 1
        high = int(np.searchsorted(self.starts, stop, side="left"))
        edges = self.starts[low : high + 1].clip(first, stop)
        lengths = np.diff(edges)
        rows = np.arange(first, stop) - np.repeat(self.starts[low:high], lengths)
        slots = np.arange(low, high) if self._slots is None else self._slots[low:high]
        return np.repeat(slots, lengths), rows


class DatasetOrder:
    """The samples of a dataset by position, pass after pass.

    Args:
        dataset: shards without rows are passed over.
        settings: how it is shuffled.
    """

    def __init__(self, dataset: Dataset, settings: ShuffleSettings) -> None:
        counts = dataset.counts()
        self.total = int(counts.sum())
        self._shards = np.flatnonzero(counts)
        self._counts = counts[self._shards]
        ids = dataset.ids()
        self._ids = (
            None if bool((ids == np.arange(len(ids))).all()) and len(self._shards) == len(ids) else ids
        )
        self._settings = settings
        self._name = dataset.name
        self._block = min(settings.block or 0, self.total)
        is_global = self._block == self.total
        self._shuffles_shards = settings.shards and not is_global and len(self._shards) > 1
        self._shuffles_rows = settings.within_shard and not is_global
        self._tables: dict[int, ShardTable] = {}

    def samples(self, first: int, stop: int) -> tuple[Ints, Ints]:
        """The shard id and row of each position of [first, stop): int64 of shape (stop - first,) each."""
        if stop <= first:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        passes = range(first // self.total, (stop - 1) // self.total + 1)
        if len(passes) <= KEPT_PASSES:
            parts = [self._in_pass(number, first, stop) for number in passes]
            slots, rows = parts[0] if len(parts) == 1 else map(np.concatenate, zip(*parts, strict=True))
        else:
            slots, rows = self._across_passes(first, stop)
        return slots if self._ids is None else self._ids[self._shards[slots]], rows

    def _key(self, number: int) -> int:
        return derive_key(self._settings.seed, self._name, number)

    def _in_pass(self, number: int, first: int, stop: int) -> tuple[Ints, Ints]:
        """What of a stretch lies in one pass."""
        begin = number * self.total
        first, stop = max(first - begin, 0), min(stop - begin, self.total)
        number = number if self._settings.reshuffle else 0
        key = self._key(number)
        table = self._table(number)
        if not self._block:
            slots, rows = table.run(first, stop)
        else:
            slots, rows = table.find(self._in_blocks(np.arange(first, stop), np.uint64(key)))
        return slots, self._shuffled_rows(slots, rows, np.uint64(key))

    def _across_passes(self, first: int, stop: int) -> tuple[Ints, Ints]:
        """The same where a stretch is in many passes, each of a few samples."""
        numbers, positions = np.divmod(np.arange(first, stop), self.total)
        if not self._settings.reshuffle:
            numbers = np.zeros_like(numbers)
        passes = np.arange(int(numbers[0]), int(numbers[-1]) + 1)
        which = numbers - numbers[0]
        each = np.array([self._key(number) for number in passes.tolist()], np.uint64)
        keys = each[which]
        if self._block:
            positions = self._in_blocks(positions, keys)
        if self._shuffles_shards:
            table = self._joined(each)
            positions = positions + which * self.total
        else:
            table = self._table(0)
        slots, rows = table.find(positions)
        return slots, self._shuffled_rows(slots, rows, keys)

    def _joined(self, keys: NDArray[np.uint64]) -> ShardTable:
        """The shard orders of several passes, end to end."""
        slots = self._shard_orders(keys[:, None]).reshape(-1)
        return ShardTable(self._counts[slots], slots)

    def _in_blocks(self, positions: Ints, keys: Any) -> Ints:
        """Where each position of a pass goes inside its block."""
        block = self._block
        if positions[0] // block == positions[-1] // block and not isinstance(keys, np.ndarray):
            return self._in_block(positions, int(positions[0]) // block, keys)
        numbers = positions // block
        starts = numbers * block
        sizes = np.minimum(self.total - starts, block).astype(np.uint64)
        return starts + permute_each(positions - starts, sizes, derive_keys(keys, numbers))

    def _in_block(self, positions: Ints, number: int, key: np.uint64) -> Ints:
        """The same where all are in one block of one pass: one bijection, so less to compute."""
        start = number * self._block
        size = min(self.total - start, self._block)
        return start + permute_each(
            positions - start, np.uint64(size), derive_keys(key, np.array([number]))[0]
        )

    def _shuffled_rows(self, slots: Ints, rows: Ints, keys: Any) -> Ints:
        if not self._shuffles_rows:
            return rows
        shards = self._shards[slots]
        return permute_each(rows, self._counts[slots].astype(np.uint64), derive_keys(~keys, shards))

    def _shard_orders(self, keys: NDArray[np.uint64]) -> Ints:
        """The shards in the order of each pass; keys of shape (passes, 1), found (passes, shards)."""
        return np.argsort(derive_keys(mix64(keys), self._shards), axis=-1, kind="stable")

    def _table(self, number: int) -> ShardTable:
        """The shards in the order of one pass."""
        if not self._shuffles_shards:
            number = 0
        table = self._tables.get(number)
        if table is None:
            table = ShardTable(self._counts)
            if self._shuffles_shards:
                table = self._joined(np.array([self._key(number)], np.uint64))
            # Another lane may be reading: the old mapping stays whole.
            kept = list(self._tables.items())[-(KEPT_PASSES - 1) :]
            self._tables = dict([*kept, (number, table)])
        return table
