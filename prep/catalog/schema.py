"""The columns of a token shard and of the catalog's tables; FORMAT.md is the normative text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

FORMAT_VERSION = 1
"""Version of the shard files, the header and the tables."""

RECORD_BATCH_BYTES = 8 << 20
"""Measure at which record batches inside a shard end."""

HISTOGRAM_BINS = 33
"""Bin 0 counts empty documents, bin b documents of 2^(b-1) to 2^b - 1 tokens."""

DECLARED_TYPES: Mapping[str, pa.DataType] = {
    "string": pa.string(),
    "int64": pa.int64(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
}
"""Types that a configuration may give to a kept field."""


def type_name(kind: pa.DataType) -> str:
    """A column type as a configuration writes it."""
    return next((name for name, declared in DECLARED_TYPES.items() if declared == kind), str(kind))


@dataclass(frozen=True)
class ShardLayout:
    """The columns of a job's shards.

    Attributes:
        token_dtype: "uint16" or "uint32".
        with_id: whether there is an `id` column.
        kept: kept fields in order, name to Arrow type.
    """

    token_dtype: str
    with_id: bool
    kept: tuple[tuple[str, pa.DataType], ...] = ()

    @property
    def token_type(self) -> pa.DataType:
        return pa.uint16() if self.token_dtype == "uint16" else pa.uint32()

    def schema(self, metadata: Mapping[str, str] | None = None) -> pa.Schema:
        """The Arrow schema; null only where a kept field may be missing."""
        fields = [
            pa.field("tokens", pa.list_(pa.field("item", self.token_type, nullable=False)), nullable=False),
            pa.field("text_bytes", pa.uint32(), nullable=False),
            pa.field("source_file", pa.uint32(), nullable=False),
            pa.field("source_row", pa.uint64(), nullable=False),
        ]
        if self.with_id:
            fields.append(pa.field("id", pa.string(), nullable=False))
        fields += [pa.field(name, kind) for name, kind in self.kept]
        return pa.schema(fields, metadata=dict(metadata or {}))


def row_measure(batch: pa.RecordBatch) -> NDArray[np.int64]:
    """Uncompressed column bytes of each row, the measure of `shard_size`.

    A fixed-width value counts its width, a boolean one byte, a string or list its bytes and 4 for the
    offset; validity bits count nothing.

    Returns:
        int64 of shape (rows,).
    """
    measure = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        kind = column.type
        if pa.types.is_list(kind) or pa.types.is_string(kind):
            width = kind.value_type.bit_width // 8 if pa.types.is_list(kind) else 1
            measure += np.diff(offsets_of(column)).astype(np.int64) * width + 4
        else:
            measure += max(1, kind.bit_width // 8)
    return measure


def offsets_of(column: pa.Array) -> NDArray[np.int32]:
    """The offsets of a string or list array without a copy: int32 of shape (len(column) + 1,)."""
    buffer = column.buffers()[1]
    if buffer is None or len(column) == 0:
        return np.zeros(1, np.int32)
    return np.frombuffer(buffer, np.int32)[column.offset : column.offset + len(column) + 1]


def byte_lengths(texts: pa.Array) -> NDArray[np.int64]:
    """The length in bytes of each string of an array: int64 of shape (len(texts),); 0 for null."""
    return np.diff(offsets_of(texts)).astype(np.int64)


def histogram(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Counts by binary length: int64 of shape (HISTOGRAM_BINS,)."""
    return np.bincount(np.frexp(lengths.astype(np.float64))[1], minlength=HISTOGRAM_BINS)


SHARD_TABLE = pa.schema(
    [
        pa.field("part", pa.uint32(), nullable=False),
        pa.field("task", pa.uint32(), nullable=False),
        pa.field("index", pa.uint32(), nullable=False),
        pa.field("path", pa.string(), nullable=False),
        pa.field("num_documents", pa.uint64(), nullable=False),
        pa.field("num_tokens", pa.uint64()),
        pa.field("text_bytes", pa.uint64(), nullable=False),
        pa.field("file_bytes", pa.uint64(), nullable=False),
        pa.field("checksum", pa.uint64(), nullable=False),
        pa.field("bos_added", pa.uint64()),
        pa.field("eos_added", pa.uint64()),
        pa.field("min_tokens", pa.uint64()),
        pa.field("max_tokens", pa.uint64()),
        pa.field("sum_squared_tokens", pa.uint64()),
        pa.field("length_histogram", pa.list_(pa.uint64())),
        pa.field("first_file", pa.uint32(), nullable=False),
        pa.field("first_row", pa.uint64(), nullable=False),
        pa.field("last_file", pa.uint32(), nullable=False),
        pa.field("last_row", pa.uint64(), nullable=False),
        pa.field("source_base", pa.uint64(), nullable=False),
    ]
)
"""`shards.parquet`: one row a shard, ordered by (part, task, index)."""

SOURCE_TABLE = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("size", pa.uint64(), nullable=False),
        pa.field("records_read", pa.uint64(), nullable=False),
        pa.field("records_rejected", pa.uint64(), nullable=False),
    ]
)
"""`sources.parquet`: one row a source file, in reading order."""
