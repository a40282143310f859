"""What every file format must do. A new format is one more class at the end of this module."""

from __future__ import annotations

import gzip
import json
from abc import ABC, abstractmethod
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from prep.catalog.errors import InputError
from prep.pipeline.channel import Payload
from prep.pipeline.messages import Position, StreamRequest
from prep.pipeline.plan import Feed
from prep.pipeline.reader import read_span, read_stream
from prep.readers.block import ReadOptions
from prep.sources.listing import SourceFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from prep.pipeline.messages import Span
    from prep.readers.block import Documents

BATCH_BYTES = (1, 50, 333, 1000, 1 << 20)
TEXTS = [
    "plain",
    "",
    "   ",
    "a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg",
    "漢字かな 한국어 ไทย",
    "\N{THUMBS UP SIGN}\u200d\u0301",
    "\ufeffmark",
    "NUL \x00 inside",
    'quotes " and \\ slashes',
    "x" * 3000,
    *(f"document number {number}" for number in range(25)),
    "y" * 700,
    "last",
]


class Document(NamedTuple):
    text: str
    id: str | None
    k: str | None
    n: int | None


class Row(NamedTuple):
    file: int
    row: int
    document: Document
    position: Position


DOCUMENTS = [
    Document(
        text,
        None if number % 5 == 2 else f"id-{number}",
        None if number % 7 == 3 else f"kept {number}",
        number,
    )
    for number, text in enumerate(TEXTS)
]


class _Paths:
    def __init__(self, files: Sequence[SourceFile]) -> None:
        self._files = files

    def local_path(self, file_idx: int) -> str:
        return self._files[file_idx].location

    def wait(self, seconds: float) -> None:
        raise AssertionError(f"waiting {seconds} s for a file that is here")


def read(
    files: Sequence[SourceFile], options: ReadOptions, batch_bytes: int, start: Position | None = None
) -> list[Row]:
    """All records from a position on, as the stages read them."""
    start = start or Position()
    rows: list[Row] = []
    file, lines = start.file, start.row
    for span, documents in _spans(
        Feed(files, start, options, batch_bytes, _Paths(files)), options, batch_bytes
    ):
        base = span.row if span.row >= 0 else lines if span.file == file else 0
        file, lines = span.file, base + documents.rows
        position = Position(span.file, span.anchor, base, base)
        rows += _rows(span.file, base, documents, position)
    return [row for row in rows if row.file > start.file or row.row >= start.next_row]


def _spans(feed: Feed, options: ReadOptions, batch_bytes: int) -> Iterator[tuple[Span, Documents]]:
    while not feed.finished:
        work = feed.next()
        if isinstance(work, StreamRequest):
            for span, part in read_stream(work, options, batch_bytes):
                with closing(Payload.of([part])) as payload:
                    documents = read_span(span, work.file, payload, options)
                yield span, documents
        elif work is not None:
            for span, file in zip(work.spans, work.files, strict=True):
                yield span, read_span(span, file, None, options)


def _rows(file: int, base: int, documents: Documents, position: Position) -> Iterator[Row]:
    assert documents.ids is not None
    assert not documents.drops
    columns = [documents.texts, documents.ids.to_pylist(), *(column.to_pylist() for column in documents.kept)]
    for row, values in zip(documents.row.tolist(), zip(*columns, strict=True), strict=True):
        yield Row(file, base + row, Document(*values), position._replace(next_row=base + row))


class ReaderContract(ABC):
    """The tests, and how documents are written in one format."""

    suffix: str
    format: str
    options = ReadOptions(
        id_field="id",
        kept=(("k", pa.string()), ("n", pa.int64())),
        declared=frozenset("kn"),
        text_mode="line",
    )
    documents = DOCUMENTS

    @abstractmethod
    def pack(self, documents: Sequence[Document]) -> bytes:
        """The content of a file."""

    def row_of(self, number: int) -> int:
        """The row of a document."""
        return number

    def write(self, path: Path, documents: Sequence[Document]) -> SourceFile:
        path = path.with_name(path.name + self.suffix)
        path.write_bytes(self.pack(documents))
        return SourceFile(path.name, path.stat().st_size, str(path), self.format)

    @pytest.mark.parametrize("batch_bytes", BATCH_BYTES)
    def test_all_documents_come_in_order_whatever_the_batch_size(
        self, tmp_path: Path, batch_bytes: int
    ) -> None:
        files = [self.write(tmp_path / f"part-{number}", self.documents) for number in range(2)]
        found = read(files, self.options, batch_bytes)
        expected = [
            (file, self.row_of(number), document)
            for file in (0, 1)
            for number, document in enumerate(self.documents)
        ]
        assert [row[:3] for row in found] == expected

    @pytest.mark.parametrize(("before", "after"), [(50, 1000), (1000, 50)])
    def test_reading_continues_from_every_row(self, tmp_path: Path, before: int, after: int) -> None:
        """With another batch size, too: it may change when a job goes on."""
        files = [self.write(tmp_path / f"part-{number}", self.documents[:16]) for number in range(2)]
        whole = read(files, self.options, before)
        for done, row in enumerate(whole):
            rest = read(files, self.options, after, row.position)
            assert [row[:3] for row in rest] == [row[:3] for row in whole[done:]], row.position

    def test_a_file_that_became_shorter_is_never_a_smaller_corpus_q01(self, tmp_path: Path) -> None:
        file = self.write(tmp_path / "part", self.documents)
        data = self.pack(self.documents)
        for length in {*range(0, len(data), max(1, len(data) // 40)), *self.seams(), len(data) - 1}:
            Path(file.location).write_bytes(data[:length])
            with pytest.raises(InputError):
                read([file], self.options, 1000)

    def seams(self) -> list[int]:
        """Where a file can be cut and still looks whole."""
        return []


class WithFields(ReaderContract):
    """Formats that have more fields than the text."""

    def test_a_text_field_that_is_missing_lists_those_that_are_there_q66(self, tmp_path: Path) -> None:
        file = self.write(tmp_path / "part", self.documents)
        with pytest.raises(InputError, match="content") as caught:
            read([file], replace(self.options, text_field="content"), 1000)
        for name in Document._fields:
            assert name in str(caught.value)

    def test_no_documents_are_no_rows(self, tmp_path: Path) -> None:
        files = [self.write(tmp_path / "none", []), self.write(tmp_path / "some", self.documents[:3])]
        assert [row.file for row in read(files, self.options, 100)] == [1, 1, 1]


def _lines(documents: Sequence[Document]) -> bytes:
    return b"".join(json.dumps(item._asdict(), ensure_ascii=False).encode() + b"\n" for item in documents)


def _frame(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


class TestJsonLines(WithFields):
    suffix, format = ".jsonl", "jsonl"

    def pack(self, documents: Sequence[Document]) -> bytes:
        return _lines(documents)


class TestJsonLinesWithMarks(WithFields):  # and CRLF, blank lines, no final line end
    suffix, format = ".ndjson", "jsonl"

    def pack(self, documents: Sequence[Document]) -> bytes:
        lines = _lines(documents).split(b"\n")[:-1]
        return b"\xef\xbb\xbf" + b"\r\n\n \t\n".join(lines)

    def row_of(self, number: int) -> int:
        return 3 * number


class TestJsonLinesGzip(WithFields):
    """A byte order mark and three members; the first ends inside a line, the second at the end of one."""

    suffix, format = ".jsonl.gz", "jsonl"

    def pack(self, documents: Sequence[Document]) -> bytes:
        return b"".join(self._members(documents))

    def _members(self, documents: Sequence[Document]) -> list[bytes]:
        data = b"\xef\xbb\xbf" + _lines(documents)
        inside = len(data) // 3
        behind = max(inside, data.find(b"\n", len(data) // 2) + 1)
        return [gzip.compress(part, mtime=0) for part in (data[:inside], data[inside:behind], data[behind:])]

    def seams(self) -> list[int]:
        return [len(b"".join(self._members(self.documents)[:2]))]


class TestJsonLinesZstd(WithFields):
    suffix, format = ".jsonl.zst", "jsonl"

    def pack(self, documents: Sequence[Document]) -> bytes:
        data = _lines(documents)
        return b"".join(_frame(data[start : start + 500]) for start in range(0, max(1, len(data)), 500))


class TestJsonFileOfLines(TestJsonLines):
    suffix, format = ".json", "json"


class TestJsonFileOfLinesGzip(TestJsonLinesGzip):
    suffix, format = ".json.gz", "json"


class TestJsonArray(WithFields):
    suffix, format = ".json", "json"

    def pack(self, documents: Sequence[Document]) -> bytes:
        return json.dumps([document._asdict() for document in documents], indent=1).encode()


class TestJsonArrayZstd(TestJsonArray):
    suffix = ".json.zst"

    def pack(self, documents: Sequence[Document]) -> bytes:
        return _frame(super().pack(documents))


class TableContract(WithFields):
    """Formats that hold columns."""

    text_type = pa.string()

    def table(self, documents: Sequence[Document]) -> pa.Table:
        columns = list(zip(*documents, strict=True)) or [()] * 4
        types = (self.text_type, pa.large_string(), pa.string(), pa.int64())
        arrays = [pa.array(values, kind) for values, kind in zip(columns, types, strict=True)]
        unread = pa.array([{"deep": [1]}] * len(documents), pa.struct({"deep": pa.list_(pa.int8())}))
        return pa.table([unread, *arrays], names=["unread", *Document._fields])


class TestParquet(TableContract):
    suffix, format = ".parquet", "parquet"
    group_rows = 4

    def pack(self, documents: Sequence[Document]) -> bytes:
        sink = pa.BufferOutputStream()
        pq.write_table(self.table(documents), sink, row_group_size=self.group_rows)
        return bytes(sink.getvalue())


class TestParquetOneGroup(TestParquet):
    text_type = pa.large_string()
    group_rows = 10_000


class TestArrowFile(TableContract):
    suffix, format = ".arrow", "arrow"
    compression: str | None = None

    def pack(self, documents: Sequence[Document]) -> bytes:
        sink, table = pa.BufferOutputStream(), self.table(documents)
        with self.writer(sink, table.schema) as writer:
            writer.write_table(table, 6)
        return bytes(sink.getvalue())

    def writer(self, sink: Any, schema: pa.Schema) -> Any:
        return pa.ipc.new_file(sink, schema, options=pa.ipc.IpcWriteOptions(compression=self.compression))


class TestArrowFileZstd(TestArrowFile):
    suffix = ".feather"
    compression = "zstd"
    text_type = pa.large_string()


class TestArrowStream(TestArrowFile):
    text_type = pa.string_view()

    def writer(self, sink: Any, schema: pa.Schema) -> Any:
        return pa.ipc.new_stream(sink, schema)


class TestTextLines(ReaderContract):
    suffix, format = ".txt", "txt"
    documents = [Document(document.text, None, None, None) for document in DOCUMENTS]  # noqa: RUF012 - never changed

    def pack(self, documents: Sequence[Document]) -> bytes:
        return b"".join(document.text.encode() + b"\r\n" for document in documents)


class TestTextLinesGzip(TestTextLines):
    suffix = ".txt.gz"

    def pack(self, documents: Sequence[Document]) -> bytes:
        return gzip.compress(super().pack(documents), mtime=0)


class TestTextFile(TestTextLines):  # one document a file
    options = replace(ReaderContract.options, text_mode="file")
    documents = TestTextLines.documents[3:4]

    def pack(self, documents: Sequence[Document]) -> bytes:
        return documents[0].text.encode()
