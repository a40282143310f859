"""The reading stage: how large its blocks are, and how its errors say where they are."""

from __future__ import annotations

import gzip
import json
import mmap
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from prep.catalog.errors import InputError
from prep.pipeline.channel import Payload
from prep.pipeline.messages import LocalFile, Position, Span, StreamRequest
from prep.pipeline.plan import STREAM_FACTOR, Feed
from prep.pipeline.reader import PIECE_ROWS, _cut, read_span, read_stream
from prep.readers.block import ReadOptions, RecordError
from prep.readers.tabular import documents_of
from prep.sources.listing import SourceFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from prep.readers.block import Documents

BATCH = 10_000
KEPT = ReadOptions(kept=(("k", pa.string()),), declared=frozenset("k"))


class Paths(NamedTuple):
    files: list[SourceFile]

    def local_path(self, file_idx: int) -> str:
        return self.files[file_idx].location

    def release_before(self, file_idx: int) -> None:
        raise AssertionError(file_idx)

    def wait(self, seconds: float) -> None:
        raise AssertionError(seconds)


def blocks(
    path: Path, kind: str, options: ReadOptions, batch_bytes: int = BATCH
) -> Iterator[tuple[int, list[Documents]]]:
    """What is in memory at a time: bytes of a payload, and the documents of a unit."""
    files = [SourceFile(path.name, path.stat().st_size, str(path), kind)]
    feed = Feed(files, Position(), options, batch_bytes, Paths(files))
    while not feed.finished:
        work = feed.next()
        if isinstance(work, StreamRequest):
            for span, part in read_stream(work, options, batch_bytes):
                with closing(Payload.of([part])) as payload:
                    yield sum(payload.sizes), [read_span(span, work.file, payload, options)]
        elif work is not None:
            pairs = zip(work.spans, work.files, strict=True)
            yield 0, [read_span(span, file, None, options) for span, file in pairs]


def content_bytes(documents: Sequence[Documents]) -> int:
    """Text and kept values."""
    kept = [column for part in documents for column in part.kept]
    return sum(int(part.text_bytes.sum()) for part in documents) + sum(column.nbytes for column in kept)


def _table(rows: int, text: str, kept: str = "") -> pa.Table:
    return pa.table({"text": [text] * rows, "k": [kept] * rows})


SHAPES = {"text": (100, 0), "both": (100, 300), "kept": (1, 1000), "large": (20_000, 1)}


def bounded(path: Path, kind: str, rows: int, one: int) -> None:
    found = list(blocks(path, kind, KEPT))
    assert sum(len(part) for _, documents in found for part in documents) == rows
    for payload, documents in found:
        assert payload <= 2 * BATCH + 2 * one + 5000
        assert content_bytes(documents) <= STREAM_FACTOR * BATCH + 2 * one + 5000


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("group", [5, 10_000])
@pytest.mark.parametrize("kind", ["parquet", "arrow", "jsonl", "jsonl.gz", "json"])
def test_blocks_are_bounded_in_bytes(tmp_path: Path, kind: str, group: int, shape: str) -> None:
    """Of all that is read: a kept field may be much larger than the text."""
    rows, path, (text, kept) = 300, tmp_path / f"a.{kind}", SHAPES[shape]
    table = _table(rows, "t" * text, "k" * kept)
    lines = b"".join(json.dumps(row).encode() + b"\n" for row in table.to_pylist())
    if kind == "parquet":
        pq.write_table(table, path, row_group_size=group, use_dictionary=False)
    elif kind == "arrow":
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table, group)
    elif kind == "json":
        path.write_bytes(b"[" + lines[:-1].replace(b"\n", b",") + b"]")
    else:
        path.write_bytes(gzip.compress(lines) if kind.endswith("gz") else lines)
    bounded(path, kind.partition(".")[0], rows, text + kept)


def test_a_record_batch_of_more_than_two_gigabytes_is_cut_q07() -> None:
    """As some writers make them: one batch of 64-bit strings for a whole table."""
    rows, size = 2200, 1 << 20
    zeros = mmap.mmap(
        -1, rows * size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    )  # takes no memory until touched
    offsets = np.arange(rows + 1, dtype=np.int64) * size
    column = pa.Array.from_buffers(
        pa.large_string(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(zeros)]
    )
    pieces = list(_cut(pa.record_batch({"text": column}), 3 * size))
    assert [piece.num_rows for piece, _ in pieces] == [3] * 733 + [1]
    assert sum(nbytes for _, nbytes in pieces) == rows * size
    first = documents_of("a.arrow", pa.Table.from_batches([pieces[0][0]]), ReadOptions())
    assert first.texts == ["\0" * size] * 3


def test_rows_are_decoded_in_small_pieces_before_their_size_is_known(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": [f"{row}" for row in range(5000)]}), path)
    request = StreamRequest(0, LocalFile(str(path), path.stat().st_size, "parquet"), 0)
    found = list(read_stream(request, ReadOptions(), 1000))
    assert max(part.num_rows for _, part in found if isinstance(part, pa.RecordBatch)) <= PIECE_ROWS
    assert [span.start for span, _ in found] == [0, *(span.stop for span, _ in found)][:-1]
    assert found[-1][0].stop == 5000


def test_dictionaries_that_differ_from_batch_to_batch_are_joined(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    batches = [
        pa.record_batch({"text": pa.array(words).dictionary_encode()})
        for words in (["a", "b"], ["c", None], ["a"])
    ]
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    options = ReadOptions(on_bad_record="skip")
    [(_, [documents])] = blocks(path, "arrow", options)
    assert documents.texts == ["a", "b", "c", "a"]
    assert documents.row.tolist() == [0, 1, 2, 4]


def test_an_oversized_line_of_a_stream_is_a_row_with_its_place_q05(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"text":"a"}\n' + b"x" * 5000 + b'\n{"text":"b"}\n'))
    options = ReadOptions(max_record_bytes=1000, on_bad_record="skip")
    found = [documents for _, parts in blocks(path, "jsonl", options, 100) for documents in parts]
    assert [text for documents in found for text in documents.texts] == ["a", "b"]
    assert sum(documents.rows for documents in found) == 3
    [drop] = [drop for documents in found for drop in documents.drops]
    assert (drop.row, drop.reason, drop.offset) == (0, "too_large", 13)
    assert "5,000" in drop.message
    with pytest.raises(RecordError, match="5,000"):
        list(blocks(path, "jsonl", ReadOptions(max_record_bytes=1000), 100))


def test_a_stream_that_is_damaged_gives_what_is_before_and_then_an_error_q01(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    data = b"".join(b'{"text":"%d"}\n' % number for number in range(20_000))
    path.write_bytes(gzip.compress(data)[:-2000])
    texts: list[str] = []
    found = blocks(path, "jsonl", ReadOptions(), 5000)
    with pytest.raises(InputError, match=r"a\.jsonl\.gz: damaged or incomplete"):
        texts.extend(text for _, [documents] in found for text in documents.texts)
    assert texts == [str(number) for number in range(len(texts))]
    assert 0 < len(texts) < 20_000


def test_where_a_span_is_read_again() -> None:
    assert Span(0, "bytes", 100, 200, -1, 100).anchor == 100
    assert Span(0, "lines", 100, 200, -1, 100).anchor == 100
    assert Span(0, "oversized", 100, 200, -1, 100).anchor == 100
    assert Span(0, "groups", 3, 5, 3000, 100).anchor == 3000
    assert Span(0, "rows", 30, 50, 30, 100).anchor == 30
    assert Span(0, "elements", 30, 50, 30, 100).anchor == 30
