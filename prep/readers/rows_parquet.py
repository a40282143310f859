"""Rows of Parquet files: each row group that a call needs is decoded once."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from prep.catalog.errors import InputError
from prep.readers.rows import RowReader, by_part
from prep.readers.tabular import without_views

if TYPE_CHECKING:
    from numpy.typing import NDArray

KEPT_GROUPS = 2


class ParquetRows(RowReader):
    """A Parquet file, read row group by row group; the last few decoded ones are kept."""

    def __init__(self, path: str) -> None:
        try:
            # Not mapped: a mapped file that somebody truncates ends the process.
            self._file = pq.ParquetFile(path)
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"{path}: not a readable Parquet file: {error}") from error
        metadata = self._file.metadata
        counts = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
        self._ends = np.cumsum(counts, dtype=np.int64)
        self._groups: OrderedDict[int, pa.Table] = OrderedDict()
        super().__init__(path, metadata.num_rows)

    def _read(self, wanted: NDArray[np.int64]) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = [{}] * len(wanted)
        for number, places, inside in by_part(wanted, self._ends):
            try:
                found = self._group(number).take(pa.array(inside)).to_pylist()
            except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
                rows_asked = f"rows {wanted[places].min()} to {wanted[places].max()}"
                raise InputError(
                    f"{self.path}: row group {number}, {rows_asked}: damaged: {error}"
                ) from error
            for place, row in zip(places, found, strict=True):
                rows[place] = row
        return rows

    def _group(self, number: int) -> pa.Table:
        if number not in self._groups:
            while len(self._groups) >= KEPT_GROUPS:
                self._groups.popitem(last=False)
            self._groups[number] = without_views(self._file.read_row_group(number, use_threads=False))
        self._groups.move_to_end(number)
        return self._groups[number]

    def close(self) -> None:
        self._groups.clear()
        self._file.close(force=True)
