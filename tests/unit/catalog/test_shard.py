"""A token shard: what is written is read again, counted and checksummed."""

from __future__ import annotations

import io
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash

from prep.catalog.columns import compact
from prep.catalog.errors import IntegrityError
from prep.catalog.schema import ShardLayout
from prep.catalog.shard import HashingStream, ShardFile, ShardStats, ShardWriter, checksum_file

if TYPE_CHECKING:
    from pathlib import Path

LAYOUT = ShardLayout("uint16", with_id=True, kept=(("n", pa.int64()),))
LENGTHS = (3, 0, 1, 700, 5, 2, 64)


def make_rows() -> list[dict[str, Any]]:
    return [
        {
            "tokens": [(length + step) % 500 for step in range(length)],
            "text_bytes": 2 * length,
            "source_file": 0,
            "source_row": 10 + row,
            "id": f"doc-{row}",
            "n": None if row % 3 == 0 else row,
        }
        for row, length in enumerate(LENGTHS)
    ]


def write(
    path: Path, batches: list[list[dict[str, Any]]], compression: str | None = None
) -> tuple[int, int, ShardStats]:
    schema = LAYOUT.schema({"tokenloom.task": "0"})
    with path.open("wb", buffering=0) as stream:
        writer = ShardWriter(stream, schema, compression)
        for rows in batches:
            writer.write(compact([pa.RecordBatch.from_pylist(rows, schema=schema)], schema))
        size, checksum = writer.finish()
    return size, checksum, writer.stats


@pytest.mark.parametrize("compression", [None, "zstd"])
@pytest.mark.parametrize("edges", [(0, 7), (0, 2, 3, 7), (0, 1, 2, 3, 4, 5, 6, 7)])
def test_every_row_is_read_as_it_was_written(
    tmp_path: Path, compression: str | None, edges: tuple[int, ...]
) -> None:
    rows = make_rows()
    parts = [rows[start:stop] for start, stop in pairwise(edges)]
    write(tmp_path / "s.arrow", parts, compression)
    with ShardFile(tmp_path / "s.arrow") as shard:
        assert len(shard) == len(rows)
        assert [batch.num_rows for batch in shard.batches()] == [len(part) for part in parts]
        assert shard.schema.metadata == {b"tokenloom.task": b"0"}
        for index, expected in enumerate(rows):
            found = shard.row(index)
            assert found["tokens"].dtype == np.uint16
            assert {**found, "tokens": found["tokens"].tolist()} == expected


def test_a_row_outside_is_an_index_error(tmp_path: Path) -> None:
    write(tmp_path / "s.arrow", [make_rows()])
    with ShardFile(tmp_path / "s.arrow") as shard:
        for index in (-1, len(LENGTHS)):
            with pytest.raises(IndexError, match="row"):
                shard.row(index)


def test_a_shard_without_rows_can_be_opened(tmp_path: Path) -> None:
    write(tmp_path / "s.arrow", [])
    with ShardFile(tmp_path / "s.arrow") as shard:
        assert len(shard) == 0
        assert list(shard.batches()) == []


def test_any_arrow_reader_reads_a_shard(tmp_path: Path) -> None:
    write(tmp_path / "s.arrow", [make_rows()])
    with pa.OSFile(str(tmp_path / "s.arrow")) as source:
        assert pa.ipc.open_file(source).read_all().to_pylist() == make_rows()


def test_size_and_checksum_while_writing_are_those_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "s.arrow"
    size, checksum, _ = write(path, [make_rows()])
    data = path.read_bytes()
    assert (size, checksum) == (len(data), xxhash.xxh3_64_intdigest(data)) == checksum_file(path)


def test_statistics_do_not_depend_on_batches_and_equal_a_recount(tmp_path: Path) -> None:
    rows = make_rows()
    _, _, whole = write(tmp_path / "a", [rows])
    _, _, parts = write(tmp_path / "b", [rows[:1], rows[1:5], rows[5:]])
    assert whole.row() == parts.row()
    assert whole.row()["num_documents"] == len(LENGTHS)
    assert whole.row()["num_tokens"] == sum(LENGTHS)
    assert whole.row()["text_bytes"] == 2 * sum(LENGTHS)
    assert (whole.row()["min_tokens"], whole.row()["max_tokens"]) == (0, 700)
    assert whole.row()["sum_squared_tokens"] == sum(length * length for length in LENGTHS)
    bins = [int(length).bit_length() for length in LENGTHS]
    assert whole.row()["length_histogram"] == [bins.count(number) for number in range(33)]


def test_statistics_of_nothing_have_no_extremes() -> None:
    row = ShardStats().row()
    assert (row["num_documents"], row["min_tokens"], row["max_tokens"]) == (0, None, None)


class Reluctant(io.RawIOBase):
    """A file that takes at most three bytes at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.taken = b""

    def write(self, data: Any) -> int:
        self.taken += bytes(data[:3])
        return min(3, len(data))


def test_a_stream_that_takes_little_at_a_time_loses_nothing() -> None:
    inner = Reluctant()
    stream = HashingStream(inner)  # type: ignore[arg-type]
    assert stream.write(b"0123456789") == 10
    assert stream.write(np.arange(4, dtype=np.uint16)) == 8
    assert inner.taken == b"0123456789" + np.arange(4, dtype=np.uint16).tobytes()
    assert (stream.size, stream.tell()) == (18, 18)
    assert stream.checksum == xxhash.xxh3_64_intdigest(inner.taken)


def test_a_missing_file_is_an_integrity_error(tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match=r"none\.arrow"):
        ShardFile(tmp_path / "none.arrow")


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.9, 0.999])
def test_a_truncated_file_is_an_integrity_error_with_its_path(tmp_path: Path, keep: float) -> None:
    path = tmp_path / "s.arrow"
    write(path, [make_rows()])
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(IntegrityError, match=r"s\.arrow"):
        ShardFile(path)


def test_another_kind_of_file_is_an_integrity_error(tmp_path: Path) -> None:
    path = tmp_path / "s.arrow"
    path.write_bytes(b"PAR1" + b"\0" * 100 + b"PAR1")
    with pytest.raises(IntegrityError, match="not a complete Arrow IPC file"):
        ShardFile(path)
