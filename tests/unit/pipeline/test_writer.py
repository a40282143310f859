"""The writing stage: sizes as they are in use, errors, and what an interrupted writer leaves."""

from __future__ import annotations

import resource
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from prep.catalog.errors import StoreError
from prep.catalog.schema import RECORD_BATCH_BYTES
from prep.journal import Journal
from prep.pipeline.messages import Position
from prep.pipeline.writer import ShardSettings, Writer
from prep.tokenizers.boundaries import Boundaries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from prep.catalog.schema import ShardLayout

END = Position(file=1)
DOCUMENT_BYTES = 4 + 4 + 4 + 8
"""Of a document without tokens."""


@pytest.fixture
def start(tmp_path: Path, layout: ShardLayout) -> Callable[..., Writer]:
    def start(shard_size: int, index: int = 0, compression: str | None = None) -> Writer:
        journal = Journal(tmp_path, "data")
        journal.prepare()
        names = ["a.jsonl"]
        settings = ShardSettings(
            layout.schema(), {"job": "j"}, shard_size, compression, Boundaries(5, 6), names
        )
        return Writer(journal, settings, index, END)

    return start


def batches(path: Path) -> list[pa.RecordBatch]:
    with pa.OSFile(str(path), "rb") as source, pa.ipc.open_file(source) as reader:
        return [reader.get_batch(index) for index in range(reader.num_record_batches)]


def shards(folder: Path) -> list[Path]:
    return sorted((folder / "shards").iterdir())


def test_record_batches_end_at_8_mib(tmp_path: Path, start: Callable[..., Writer], place: Any) -> None:
    length = (1 << 20) // 2 - DOCUMENT_BYTES // 2  # a document of exactly one MiB
    assert RECORD_BATCH_BYTES == 8 << 20
    with start(1 << 40) as writer:
        for row in range(0, 20, 4):
            writer.write(place([length] * 4, row=row))
        writer.finish()
    [path] = shards(tmp_path)
    assert [batch.num_rows for batch in batches(path)] == [8, 8, 4]


@pytest.mark.parametrize("measure", [8 << 20, (8 << 20) + 2, 20 << 20])
def test_a_document_as_large_as_a_record_batch_or_a_shard(
    tmp_path: Path, start: Callable[..., Writer], place: Any, measure: int
) -> None:
    large = (measure - DOCUMENT_BYTES) // 2
    with start(16 << 20) as writer:
        writer.write(place([1, large, 1]))
        writer.finish()
        assert [entry.row["num_documents"] for entry in writer.committed] == (
            [3] if measure < 16 << 20 else [1, 1, 1]
        )
    found = [[batch.num_rows for batch in batches(path)] for path in shards(tmp_path)]
    assert found == ([[1, 1, 1]] if measure < 16 << 20 else [[1], [1], [1]])
    tokens = [
        length
        for path in shards(tmp_path)
        for batch in batches(path)
        for length in map(len, batch.column("tokens"))
    ]
    assert tokens == [1, large, 1]


def test_a_shard_is_full_to_the_byte(tmp_path: Path, start: Callable[..., Writer], place: Any) -> None:
    size = DOCUMENT_BYTES + 2 * 10
    for number, (shard_size, counts) in enumerate(
        [(3 * size, [3, 3, 1]), (3 * size - 1, [2, 2, 2, 1]), (1024, [7])]
    ):
        with start(shard_size, 100 * number) as writer:
            for row in range(7):
                writer.write(place([10], row=row))
            writer.finish()
            assert [entry.row["num_documents"] for entry in writer.committed] == counts
    assert len(shards(tmp_path)) == 8


def test_boundaries_are_counted_and_the_position_is_behind_the_last_document(
    start: Callable[..., Writer], place: Any
) -> None:
    with start(DOCUMENT_BYTES * 2) as writer:
        writer.write(place([0, 0, 0, 0, 0], row=3))
        writer.finish()
        first, second, last = writer.committed
    assert [entry.row["bos_added"] for entry in (first, second, last)] == [2, 2, 1]
    assert [entry.row["eos_added"] for entry in (first, second, last)] == [2, 2, 1]
    assert first.position == Position(0, 3, 3, 5)
    assert second.position == Position(0, 3, 3, 7)
    assert last.position == END
    assert (first.row["first_row"], first.row["last_row"]) == (3, 4)


def test_documents_that_were_left_out_make_no_shard(
    tmp_path: Path, start: Callable[..., Writer], place: Any
) -> None:
    with start(1024) as writer:
        writer.write(place([], [(0, "empty"), (0, "bad_record")]))
        writer.finish()
        assert writer.committed == []
        assert writer.ledger() == {"empty": 1, "bad_record": 1}
        assert len(writer.rejects()) == 1
    assert shards(tmp_path) == []
    assert list((tmp_path / "_job" / "tmp").iterdir()) == []


def test_nothing_written_is_nothing_left(tmp_path: Path, start: Callable[..., Writer]) -> None:
    with start(1024) as writer:
        writer.finish()
        assert (writer.committed, writer.ledger(), writer.rejects()) == ([], {}, [])
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_an_interrupted_writer_leaves_what_is_committed_and_nothing_else(
    tmp_path: Path, start: Callable[..., Writer], place: Any
) -> None:
    with start(DOCUMENT_BYTES * 2) as writer:  # left without `finish`
        writer.write(place([0, 0, 0], [(1, "bad_text")]))
    files = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file())
    assert files == [
        "_job/journal/00000-000000.json",
        "_job/rejects/00000-000000.jsonl",
        "shards/data-00000-000000.arrow",
    ]
    assert Journal(tmp_path, "data").recover() == writer.committed


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Writing beyond it fails, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(
    "shard_size", [7 << 20, 40 << 20], ids=["at-the-end-of-a-shard", "while-a-shard-grows"]
)
def test_a_disk_that_is_full_is_one_error_with_the_path(
    tmp_path: Path, start: Callable[..., Writer], place: Any, shard_size: int
) -> None:
    """Python ignores SIGXFSZ, so the write itself fails. What is not committed is removed."""

    def fill() -> None:
        with start(shard_size) as writer, file_size_limit(6 << 20):
            for row in range(0, 1000, 10):
                writer.write(place([50_000] * 10, row=row))

    with pytest.raises(StoreError, match=r"-00000-000000\.arrow: cannot write: File too large"):
        fill()
    assert list((tmp_path / "_job" / "tmp").iterdir()) == []
    assert Journal(tmp_path, "data").recover() == []


def test_what_was_committed_before_the_disk_was_full_stays(
    tmp_path: Path, start: Callable[..., Writer], place: Any
) -> None:
    def fill(writer: Writer) -> None:
        with writer:
            writer.write(place([0] * 3))
            with file_size_limit(2000):
                writer.write(place([5000, 1], row=3))

    writer = start(DOCUMENT_BYTES * 2)
    with pytest.raises(StoreError, match=r"-00000-000002\.arrow: cannot write"):
        fill(writer)
    assert [entry.row["num_documents"] for entry in Journal(tmp_path, "data").recover()] == [2, 1]


def test_a_folder_that_is_gone_is_an_error_of_the_store(
    tmp_path: Path, start: Callable[..., Writer], place: Any
) -> None:
    with start(1 << 20) as writer:
        writer.write(place([1, 2, 3]))
        (tmp_path / "shards").rmdir()
        with pytest.raises(StoreError, match="cannot write"):
            writer.finish()


def test_shards_can_be_read_by_others_and_name_their_job(
    tmp_path: Path, start: Callable[..., Writer], place: Any
) -> None:
    with start(1 << 20, 7, "zstd") as writer:
        writer.write(place([2, 0, 1], row=5))
        writer.finish()
    [path] = shards(tmp_path)
    [batch] = batches(path)
    assert batch.schema.metadata == {
        b"tokenloom.job": b"j",
        b"tokenloom.task": b"0",
        b"tokenloom.index": b"7",
    }
    assert batch.column("tokens").to_pylist() == [[0, 1], [], [0]]
    assert batch.column("source_row").to_pylist() == [5, 6, 7]
    assert np.array_equal(batch.column("text_bytes").to_numpy(), [1, 1, 1])
