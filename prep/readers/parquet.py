"""Parquet: row groups as units, read column by column."""

from __future__ import annotations

from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from prep.catalog.errors import InputError
from prep.readers.parquet_footer import unencoded_bytes
from prep.readers.tabular import check_columns

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow.parquet as pq

    from prep.readers.block import ReadOptions


BUFFER_BYTES = 1 << 20
"""Read ahead in a column, so that a whole column of a large row group is never in memory."""


SIZED = frozenset({"PLAIN", "RLE", "RLE_DICTIONARY", "PLAIN_DICTIONARY", "BIT_PACKED"})
"""Encodings whose recorded size is that of the values."""


class RowGroup(NamedTuple):
    """One row group: its first row in the file, its rows, and the decoded bytes of the columns asked for."""

    first_row: int
    rows: int
    nbytes: int


@lru_cache(maxsize=4)
def _metadata(path: str, *_: int) -> pq.FileMetaData:
    """The footer; parsing it for every read would cost more than the read where there are many row groups."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - loaded where it is used

    return pq.read_metadata(path)


def _version(path: str) -> tuple[int, int, int]:
    """What changes when a file is written anew."""
    status = Path(path).stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


@contextmanager
def _opened(path: str) -> Iterator[pq.ParquetFile]:
    import pyarrow.parquet as pq  # noqa: PLC0415 - loaded where it is used

    try:
        # Not mapped: a mapped file that somebody truncates ends the process.
        file = pq.ParquetFile(
            path, metadata=_metadata(path, *_version(path)), buffer_size=BUFFER_BYTES, pre_buffer=False
        )
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{path}: not a readable Parquet file: {error}") from error
    with file:
        try:
            yield file
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"{path}: damaged Parquet data: {error}") from error


def schema_of(path: str) -> pa.Schema:
    """The Arrow schema of a file."""
    with _opened(path) as file:
        return file.schema_arrow


def num_rows(path: str) -> int:
    """The rows of a file, by its footer."""
    with _opened(path) as file:
        return int(file.metadata.num_rows)


def row_groups(path: str, options: ReadOptions) -> list[RowGroup]:
    """The row groups of a file.

    Raises:
        InputError: the file is damaged or lacks a column.
    """
    with _opened(path) as file:
        check_columns(path, file.schema_arrow, options)
        metadata, wanted = file.metadata, set(options.columns)
        groups, first = [], 0
        for index in range(metadata.num_row_groups):
            group = metadata.row_group(index)
            columns = [group.column(number) for number in range(group.num_columns)]
            nbytes = sum(
                column.total_uncompressed_size
                for column in columns
                if any(
                    column.path_in_schema == name or column.path_in_schema.startswith(name + ".")
                    for name in wanted
                )
            )
            groups.append(RowGroup(first, group.num_rows, nbytes))
            first += group.num_rows
        return groups


def recorded_texts(path: str, column: str) -> list[tuple[int, int, int]] | None:
    """Rows, bytes and rows that are not null of a top-level column of texts in each row group, by the footer.

    None where it does not say.

    Of encodings that share prefixes pyarrow records only a part of the bytes; such columns are left out.
    """
    sizes = unencoded_bytes(path, column)
    with _opened(path) as file:
        metadata = file.metadata
        if sizes is None or not metadata.num_row_groups:
            return None
        first = metadata.row_group(0)
        place = next(i for i in range(first.num_columns) if first.column(i).path_in_schema == column)
        found = []
        for number, size in enumerate(sizes):
            chunk = metadata.row_group(number).column(place)
            statistics = chunk.statistics
            if statistics is None or not statistics.has_null_count or not SIZED.issuperset(chunk.encodings):
                return None
            found.append((chunk.num_values, size, chunk.num_values - statistics.null_count))
        return found


def read_groups(path: str, start: int, stop: int, options: ReadOptions) -> pa.Table:
    """The wanted columns of the row groups [start, stop)."""
    with _opened(path) as file:
        return file.read_row_groups(list(range(start, stop)), columns=options.columns, use_threads=False)


def stream_group(path: str, group: int, batch_rows: int, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """One row group piece by piece, so that memory does not grow with its size."""
    with _opened(path) as file:
        yield from file.iter_batches(batch_rows, [group], columns=options.columns, use_threads=False)
