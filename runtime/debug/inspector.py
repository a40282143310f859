"""Samples of a dataset, looked at one by one."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prep.readers.rows import RowReader
    from runtime.io.dataset import Dataset

KEPT_SHARDS = 8


class DatasetInspector:
    """Reads samples of a dataset by shard and index; a context manager.

    Args:
        dataset: what to look at.
        io_options: how shards are stored and cached; None: as they lie.
    """

    def __init__(self, dataset: Dataset, *, io_options: Any = None) -> None:
        self.dataset = dataset
        self.io_options = io_options
        self._open: OrderedDict[int, RowReader] = OrderedDict()

    def read(self, shard_id: int, sample_index: int) -> dict[str, Any]:
        """One sample; of a token shard with `tokens` as a numpy array and `source`, the file it came from.

        Raises:
            InputError: there is no such shard or sample, or it is damaged.
        """
        return self.read_many(shard_id, [sample_index])[0]

    def read_many(self, shard_id: int, sample_indices: Iterable[int]) -> list[dict[str, Any]]:
        """Samples of one shard in the order asked for."""
        samples = self._shard(shard_id).read(sample_indices)
        return self.dataset.with_sources(shard_id, samples)

    def close(self) -> None:
        """Close every shard; samples that were read stay valid."""
        while self._open:
            self._open.popitem()[1].close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _shard(self, shard_id: int) -> RowReader:
        if shard_id not in self._open:
            while len(self._open) >= KEPT_SHARDS:
                self._open.popitem(last=False)[1].close()
            self._open[shard_id] = self.dataset.open_shard(shard_id)
        self._open.move_to_end(shard_id)
        return self._open[shard_id]
