"""The measure of `shard_size`, the histogram, and the columns of a shard."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from prep.catalog.names import RESERVED_COLUMNS
from prep.catalog.schema import (
    DECLARED_TYPES,
    HISTOGRAM_BINS,
    ShardLayout,
    byte_lengths,
    histogram,
    offsets_of,
    row_measure,
)


def test_the_measure_counts_column_bytes_without_validity() -> None:
    layout = ShardLayout(
        "uint16", with_id=True, kept=(("s", pa.string()), ("n", pa.int64()), ("b", pa.bool_()))
    )
    rows = [
        {
            "tokens": [1, 2, 3],
            "text_bytes": 3,
            "source_file": 0,
            "source_row": 0,
            "id": "ab",
            "s": "é",
            "n": 1,
        },
        {"tokens": [], "text_bytes": 0, "source_file": 0, "source_row": 1, "id": "", "s": None, "b": True},
    ]
    batch = pa.RecordBatch.from_pylist(rows, schema=layout.schema())
    fixed = 4 + 4 + 8 + 8 + 1
    assert row_measure(batch).tolist() == [3 * 2 + 4 + 2 + 4 + 2 + 4 + fixed, 4 + 4 + 4 + fixed]


def test_the_measure_of_a_slice_is_that_of_its_rows() -> None:
    layout = ShardLayout("uint32", with_id=False)
    rows = [
        {"tokens": list(range(n)), "text_bytes": n, "source_file": 0, "source_row": n} for n in (5, 0, 7, 1)
    ]
    batch = pa.RecordBatch.from_pylist(rows, schema=layout.schema())
    assert row_measure(batch.slice(1, 2)).tolist() == row_measure(batch).tolist()[1:3]
    assert row_measure(batch).tolist() == [4 * n + 4 + 16 for n in (5, 0, 7, 1)]


@pytest.mark.parametrize(
    ("length", "position"),
    [(0, 0), (1, 1), (2, 2), (3, 2), (4, 3), (1023, 10), (1024, 11), (2**31 - 1, 31), (2**31, 32)],
)
def test_histogram_bins_are_powers_of_two(length: int, position: int) -> None:
    counts = histogram(np.array([length], np.int64))
    assert counts.shape == (HISTOGRAM_BINS,)
    assert np.flatnonzero(counts).tolist() == [position]


def test_offsets_and_lengths_of_slices() -> None:
    texts = pa.array(["a", "", "é", None, "long"])
    assert byte_lengths(texts).tolist() == [1, 0, 2, 0, 4]
    assert byte_lengths(texts.slice(2, 2)).tolist() == [2, 0]
    assert byte_lengths(pa.array([], pa.string())).tolist() == []
    assert offsets_of(texts.slice(4, 1)).tolist() == [3, 7]


@pytest.mark.parametrize("with_id", [True, False])
def test_columns_are_those_of_the_format(with_id: bool) -> None:
    kept = (("s", pa.string()), ("n", pa.int64()))
    schema = ShardLayout("uint16", with_id=with_id, kept=kept).schema({"a": "b"})
    assert schema.names == [
        "tokens",
        "text_bytes",
        "source_file",
        "source_row",
        *(["id"] if with_id else []),
        "s",
        "n",
    ]
    assert schema.field("tokens").type == pa.list_(pa.field("item", pa.uint16(), nullable=False))
    assert schema.field("text_bytes").type == pa.uint32()
    assert schema.field("source_file").type == pa.uint32()
    assert schema.field("source_row").type == pa.uint64()
    assert schema.metadata == {b"a": b"b"}
    assert [field.name for field in schema if field.nullable] == ["s", "n"]


def test_token_dtype_decides_the_type_of_the_ids() -> None:
    for name, kind in (("uint16", pa.uint16()), ("uint32", pa.uint32())):
        assert ShardLayout(name, with_id=False).schema().field("tokens").type.value_type == kind


def test_every_column_that_is_not_kept_is_reserved() -> None:
    assert {*ShardLayout("uint16", with_id=True).schema().names} <= {*RESERVED_COLUMNS}
    assert {*DECLARED_TYPES} == {"string", "int64", "float64", "bool"}
