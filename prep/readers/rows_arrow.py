"""Rows of Arrow IPC files, token shards among them, record batch by record batch.

Files are mapped, so that uncompressed values are read where they lie. Whoever truncates a file that is in use
ends the process; token shards and raw files are written once.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from prep.catalog.columns import flat_values
from prep.catalog.errors import InputError
from prep.catalog.schema import offsets_of
from prep.readers.arrow import is_file
from prep.readers.rows import RowReader, by_part
from prep.readers.tabular import without_views

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

KEPT_BATCHES = 4
DAMAGE = (OSError, ValueError, LookupError, pa.ArrowException)


class ArrowRows(RowReader):
    """An Arrow IPC file or stream; the last few record batches are kept.

    Args:
        path: the file.
        as_views: list columns of numbers whose rows are given as numpy arrays, without a copy where the file
            is not compressed.
    """

    def __init__(self, path: str, as_views: Sequence[str] = ()) -> None:
        self._as_views = as_views
        random_access = is_file(path)
        try:
            self._source = pa.memory_map(path)
        except OSError as error:
            raise InputError(f"{path}: cannot be opened: {error}") from error
        try:
            if random_access:
                self._reader = pa.ipc.open_file(self._source)
                counts = _batch_rows(self._source, self._reader.schema)
            else:
                self._stream = list(pa.ipc.open_stream(self._source))
                counts = [batch.num_rows for batch in self._stream]
        except DAMAGE as error:
            self._source.close()
            raise InputError(f"{path}: not a complete Arrow file: {error}") from error
        self._random_access = random_access
        self._ends = np.cumsum(counts, dtype=np.int64)
        self._batches: OrderedDict[int, pa.RecordBatch] = OrderedDict()
        super().__init__(path, sum(counts))

    def _read(self, wanted: NDArray[np.int64]) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = [{}] * len(wanted)
        for number, places, inside in by_part(wanted, self._ends):
            try:
                found = self._rows(self._batch(number), inside)
            except DAMAGE as error:
                raise InputError(
                    f"{self.path}: record batch {number}, rows {wanted[places].min()} to "
                    f"{wanted[places].max()}: damaged: {error}"
                ) from error
            for place, row in zip(places, found, strict=True):
                rows[place] = row
        return rows

    def _rows(self, batch: pa.RecordBatch, inside: NDArray[np.int64]) -> list[dict[str, Any]]:
        viewed = [name for name in batch.schema.names if name in self._as_views]
        others = batch.drop_columns(viewed) if viewed else batch
        if not others.num_columns:
            found: list[dict[str, Any]] = [{} for _ in inside]
        else:
            found = others.take(pa.array(inside)).to_pylist()
        for name in viewed:
            values, offsets = flat_values(batch.column(name)), offsets_of(batch.column(name))
            offsets = offsets - offsets[0]
            for index, row in zip(inside, found, strict=True):
                row[name] = values[offsets[index] : offsets[index + 1]]
        return [{name: row[name] for name in batch.schema.names} for row in found] if viewed else found

    def _batch(self, number: int) -> pa.RecordBatch:
        if number not in self._batches:
            while len(self._batches) >= KEPT_BATCHES:
                self._batches.popitem(last=False)
            batch = self._reader.get_batch(number) if self._random_access else self._stream[number]
            batch.validate(full=True)
            self._batches[number] = without_views(batch)
        self._batches.move_to_end(number)
        return self._batches[number]

    def close(self) -> None:
        self._batches.clear()
        self._stream = []
        self._source.close()


def _batch_rows(source: pa.NativeFile, schema: pa.Schema) -> list[int]:
    """The rows of each record batch, by the column that is quickest to decompress."""
    if not len(schema):
        return []
    narrow = [place for place, field in enumerate(schema) if pa.types.is_primitive(field.type)]
    options = pa.ipc.IpcReadOptions(included_fields=narrow[:1] or [0])
    reader = pa.ipc.open_file(source, options=options)
    return [reader.get_batch(number).num_rows for number in range(reader.num_record_batches)]
