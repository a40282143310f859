"""One token shard: writing it with its checksum and statistics, and opening it again."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
import xxhash

from prep.catalog.columns import flat_values
from prep.catalog.errors import IntegrityError
from prep.catalog.schema import HISTOGRAM_BINS, histogram, offsets_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

    from numpy.typing import NDArray

CHUNK_BYTES = 4 << 20


@dataclass
class ShardStats:
    """Counts over the documents of a shard; exact whatever the order in which blocks arrive."""

    num_documents: int = 0
    num_tokens: int = 0
    text_bytes: int = 0
    min_tokens: int | None = None
    max_tokens: int | None = None
    sum_squared_tokens: int = 0
    length_histogram: NDArray[np.int64] = field(default_factory=lambda: np.zeros(HISTOGRAM_BINS, np.int64))

    def add(self, batch: pa.RecordBatch) -> None:
        """Count the rows of a record batch."""
        lengths = np.diff(offsets_of(batch.column("tokens"))).astype(np.int64)
        if not len(lengths):
            return
        low, high = int(lengths.min()), int(lengths.max())
        self.num_documents += len(lengths)
        self.num_tokens += int(lengths.sum())
        self.text_bytes += int(batch.column("text_bytes").to_numpy().sum(dtype=np.int64))
        self.min_tokens = low if self.min_tokens is None else min(self.min_tokens, low)
        self.max_tokens = high if self.max_tokens is None else max(self.max_tokens, high)
        self.sum_squared_tokens += int(np.dot(lengths, lengths))
        self.length_histogram += histogram(lengths)

    def row(self) -> dict[str, Any]:
        """The statistics columns of a row of `shards.parquet`."""
        return {
            "num_documents": self.num_documents,
            "num_tokens": self.num_tokens,
            "text_bytes": self.text_bytes,
            "min_tokens": self.min_tokens,
            "max_tokens": self.max_tokens,
            "sum_squared_tokens": self.sum_squared_tokens,
            "length_histogram": self.length_histogram.tolist(),
        }


class HashingStream:
    """A binary stream that counts and checksums what passes through it (xxh3-64)."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._hash = xxhash.xxh3_64()
        self.size = 0
        self.closed = False

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._hash.update(view)
        self.size += view.nbytes
        rest = view
        while rest.nbytes:  # an unbuffered file may take less than it is given
            rest = rest[self._stream.write(rest) :]
        return view.nbytes

    def flush(self) -> None:
        self._stream.flush()

    def tell(self) -> int:
        return self.size

    def close(self) -> None:
        self.closed = True

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    @property
    def checksum(self) -> int:
        return self._hash.intdigest()


class ShardWriter:
    """Writes canonical record batches to an open file; `finish` completes it."""

    def __init__(self, stream: BinaryIO, schema: pa.Schema, compression: str | None) -> None:
        self._sink = HashingStream(stream)
        self._file = pa.PythonFile(self._sink, mode="w")
        options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)
        self._writer = pa.ipc.new_file(self._file, schema, options=options)
        self.stats = ShardStats()

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a record batch that `columns.compact` made."""
        self.stats.add(batch)
        self._writer.write_batch(batch)

    def finish(self) -> tuple[int, int]:
        """Write the footer; returns the file's size in bytes and its checksum."""
        self._writer.close()
        self._file.close()
        return self._sink.size, self._sink.checksum


def checksum_file(path: Path) -> tuple[int, int]:
    """Size and xxh3-64 of a file on disk, read in pieces."""
    digest, size = xxhash.xxh3_64(), 0
    with path.open("rb", buffering=0) as stream:
        while piece := stream.read(CHUNK_BYTES):
            digest.update(piece)
            size += len(piece)
    return size, digest.intdigest()


class ShardFile:
    """A token shard opened for reading, memory-mapped; a context manager.

    Raises:
        IntegrityError: the file is missing, truncated or no Arrow IPC file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._source = pa.memory_map(os.fspath(path))
        except OSError as error:
            raise IntegrityError(f"{path}: cannot be opened: {error}") from error
        try:
            self._reader = pa.ipc.open_file(self._source)
            counts = [self._reader.get_batch(i).num_rows for i in range(self._reader.num_record_batches)]
        except (pa.ArrowException, ValueError, OSError) as error:
            self._source.close()
            raise IntegrityError(f"{path}: not a complete Arrow IPC file: {error}") from error
        self._ends = np.cumsum(counts, dtype=np.int64)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._source.close()

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    @property
    def schema(self) -> pa.Schema:
        return self._reader.schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        for index in range(self._reader.num_record_batches):
            yield self._reader.get_batch(index)

    def row(self, index: int) -> dict[str, Any]:
        """One document as a dictionary; `tokens` is a numpy array of shape (num_tokens,).

        Raises:
            IndexError: there is no such row.
            IntegrityError: the row is damaged.
        """
        if not 0 <= index < len(self):
            raise IndexError(f"{self.path}: row {index} of {len(self)}")
        number = int(np.searchsorted(self._ends, index, side="right"))
        start = int(self._ends[number - 1]) if number else 0
        try:
            batch = self._reader.get_batch(number).slice(index - start, 1)
            batch.validate(full=True)
            record = {name: batch.column(name)[0].as_py() for name in batch.schema.names if name != "tokens"}
            return {"tokens": flat_values(batch.column("tokens")).copy(), **record}
        except (pa.ArrowException, ValueError, LookupError, OSError) as error:
            raise IntegrityError(f"{self.path}: row {index}: damaged: {error}") from error
