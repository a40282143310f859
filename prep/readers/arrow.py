"""Arrow IPC files and streams (also Feather version 2), batch by batch.

They are read, not mapped: a mapped file that somebody truncates ends the process.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from prep.catalog.errors import InputError
from prep.readers.tabular import check_columns, check_offsets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prep.readers.block import ReadOptions

FILE_MAGIC = b"ARROW1"
END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"


@contextmanager
def _opened(path: str) -> Iterator[pa.NativeFile]:
    try:
        source = pa.OSFile(path, "rb")
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{path}: cannot be opened: {error}") from error
    with source:
        try:
            yield source
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"{path}: not a complete Arrow file: {error}") from error


def is_file(path: str) -> bool:
    """Whether it is the file format; a stream without its end mark is refused as incomplete."""
    try:
        with Path(path).open("rb") as stream:
            if stream.read(len(FILE_MAGIC)) == FILE_MAGIC:
                return True
            stream.seek(-len(END_OF_STREAM), 2)
            ended = stream.read() == END_OF_STREAM
    except OSError as error:
        raise InputError(f"{path}: cannot be read as an Arrow file: {error}") from error
    if not ended:
        raise InputError(f"{path}: an Arrow stream without its end mark: incomplete, or another format")
    return False


def schema_of(path: str) -> pa.Schema:
    """The schema of a file."""
    as_file = is_file(path)
    with _opened(path) as source:
        return (pa.ipc.open_file(source) if as_file else pa.ipc.open_stream(source)).schema


def num_rows(path: str) -> int:
    """The rows of a file; it is read for that."""
    with _opened(path) as source:
        batches = _batches(source, pa.ipc.IpcReadOptions(), as_file=is_file(path))
        return sum(batch.num_rows for batch in batches)


def stream_batches(path: str, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """The record batches of a file with the wanted columns; others are not decompressed.

    Raises:
        InputError: the file is damaged or lacks a column.
    """
    schema = schema_of(path)
    check_columns(path, schema, options)
    fields = pa.ipc.IpcReadOptions(included_fields=[schema.get_field_index(name) for name in options.columns])
    with _opened(path) as source:
        for batch in _batches(source, fields, as_file=is_file(path)):
            for column in batch.columns:
                check_offsets(column)
            yield batch


def _batches(
    source: pa.NativeFile, fields: pa.ipc.IpcReadOptions, *, as_file: bool
) -> Iterator[pa.RecordBatch]:
    if not as_file:
        yield from pa.ipc.open_stream(source, options=fields)
        return
    reader = pa.ipc.open_file(source, options=fields)
    for index in range(reader.num_record_batches):
        yield reader.get_batch(index)
