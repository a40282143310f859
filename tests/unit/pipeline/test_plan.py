"""The plan: every file is handed out once, in order, however it is cut and wherever it begins."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prep.catalog.errors import InputError
from prep.pipeline.messages import Position, Span, StreamRequest, Unit
from prep.pipeline.plan import MAX_SPANS, STREAM_FACTOR, Feed
from prep.readers.block import ReadOptions
from prep.readers.parquet import row_groups
from prep.sources.listing import SourceFile

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

OPTIONS = ReadOptions()


class Paths:
    """Where files lie; those that `missing` names are not there yet."""

    def __init__(self, files: Sequence[SourceFile], missing: set[int] | None = None) -> None:
        self._files = files
        self.missing = missing or set()
        self.waited = 0.0

    def local_path(self, file_idx: int) -> str | None:
        return None if file_idx in self.missing else self._files[file_idx].location

    def release_before(self, file_idx: int) -> None:
        """Nothing was fetched."""

    def wait(self, seconds: float) -> None:
        self.waited += seconds


def listed(path: Path, kind: str = "jsonl") -> SourceFile:
    return SourceFile(path.name, path.stat().st_size, str(path), kind)


def imagined(sizes: Sequence[int], kind: str = "jsonl") -> list[SourceFile]:
    """Files of which only the size matters: nothing opens them here."""
    return [SourceFile(f"{number}", size, f"/nowhere/{number}", kind) for number, size in enumerate(sizes)]


def work(
    files: Sequence[SourceFile],
    batch_bytes: int,
    start: Position | None = None,
    options: ReadOptions = OPTIONS,
) -> list[Unit | StreamRequest]:
    feed = Feed(files, start or Position(), options, batch_bytes, Paths(files))
    found = []
    while not feed.finished:
        piece = feed.next()
        if piece is not None:
            found.append(piece)
    assert feed.next() is None
    assert feed.finished
    return found


def spans(found: Sequence[Unit | StreamRequest]) -> list[Span]:
    return [span for piece in found if isinstance(piece, Unit) for span in piece.spans]


@given(sizes=st.lists(st.integers(0, 300), max_size=12), batch=st.integers(1, 400), data=st.data())
@settings(max_examples=150, deadline=None)
def test_byte_ranges_cover_each_file_once_and_in_order(
    sizes: list[int], batch: int, data: st.DataObject
) -> None:
    files = imagined(sizes)
    start = Position()
    if sizes and data.draw(st.booleans()):
        file = data.draw(st.integers(0, len(sizes) - 1))
        start = Position(file, data.draw(st.integers(0, sizes[file])), 7, 9)
    found = work(files, batch, start)
    covered = {number: start.start if number == start.file else 0 for number in range(start.file, len(sizes))}
    last = start.file
    for span in spans(found):
        assert span.kind == "bytes"
        assert span.file >= last
        assert span.start == covered[span.file] < span.stop
        assert span.nbytes == span.stop - span.start <= batch
        begins = span.start == (start.start if span.file == start.file else 0)
        assert span.row == ((start.row if span.file == start.file else 0) if begins else -1)
        assert span.done == span.stop
        covered[span.file], last = span.stop, span.file
    assert covered == {number: sizes[number] for number in range(start.file, len(sizes))}
    for unit in found:
        assert isinstance(unit, Unit)
        assert 0 < len(unit.spans) <= MAX_SPANS
        assert unit.nbytes <= batch
        assert [file.path for file in unit.files] == [files[span.file].location for span in unit.spans]
        assert [file.size for file in unit.files] == [sizes[span.file] for span in unit.spans]


def test_small_files_travel_together_and_a_large_one_is_split() -> None:
    found = work(imagined([10, 10, 10, 250, 10]), 100)
    assert [[span.file for span in unit.spans] for unit in found if isinstance(unit, Unit)] == [
        [0, 1, 2],
        [3],
        [3],
        [3, 4],
    ]


def test_very_many_tiny_files_are_units_of_a_bounded_number() -> None:
    found = work(imagined([1] * 10_000), 1 << 20)
    assert len(found) == -(-10_000 // MAX_SPANS)
    assert [span.file for span in spans(found)] == list(range(10_000))


def test_empty_files_are_no_work() -> None:
    assert work([], 100) == []
    assert work(imagined([0] * 3000), 100) == []
    assert [span.file for span in spans(work(imagined([0, 5, 0, 0, 5, 0]), 100))] == [1, 4]


def test_empty_files_of_a_document_each_are_documents() -> None:
    files = imagined([0, 3, 0], "txt")
    assert [(span.file, span.kind, span.row) for span in spans(work(files, 100))] == [
        (0, "file", 0),
        (1, "file", 0),
        (2, "file", 0),
    ]
    many = imagined([0] * 600, "txt")
    assert [len(unit.spans) for unit in work(many, 100) if isinstance(unit, Unit)] == [
        MAX_SPANS,
        MAX_SPANS,
        600 - 2 * MAX_SPANS,
    ]
    by_line = ReadOptions(text_mode="line")
    assert [span.kind for span in spans(work(files, 100, options=by_line))] == ["bytes"]


def test_a_file_that_is_not_there_yet_holds_up_those_behind_it() -> None:
    files = imagined([10, 10, 10, 10])
    paths = Paths(files, {2})
    feed = Feed(files, Position(), OPTIONS, 1000, paths)
    first = feed.next()
    assert isinstance(first, Unit)
    assert [span.file for span in first.spans] == [0, 1]
    assert feed.next() is None
    assert feed.next() is None
    assert not feed.finished
    feed.wait(1.5)
    assert paths.waited == 1.5
    paths.missing.clear()
    rest = feed.next()
    assert isinstance(rest, Unit)
    assert [span.file for span in rest.spans] == [2, 3]
    assert feed.finished


def test_streams_come_in_their_place(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.jsonl", tmp_path / "b.jsonl.gz"
    plain.write_bytes(b"{}\n" * 10)
    packed.write_bytes(gzip.compress(b"{}\n"))
    files = [listed(plain), listed(plain), listed(packed), listed(packed), listed(plain)]
    found = work(files, 1000)
    assert [type(piece) for piece in found] == [Unit, StreamRequest, StreamRequest, Unit]
    requests = [
        (piece.file_idx, piece.file.path, piece.start) for piece in found if isinstance(piece, StreamRequest)
    ]
    assert requests == [(2, str(packed), 0), (3, str(packed), 0)]
    later = work(files, 1000, Position(2, 17, 4, 5))
    assert [piece.start for piece in later if isinstance(piece, StreamRequest)] == [17, 0]


@pytest.mark.parametrize(("content", "is_stream"), [(b'[{"text": "a"}]', True), (b'{"text": "a"}\n', False)])
def test_a_json_file_is_a_stream_if_it_holds_an_array(
    tmp_path: Path, content: bytes, *, is_stream: bool
) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    [piece] = work([listed(path, "json")], 1000)
    assert isinstance(piece, StreamRequest) is is_stream


def _parquet(path: Path, rows: int, group: int, text: str = "text") -> SourceFile:
    pq.write_table(pa.table({"text": [f"{text} {row}" for row in range(rows)]}), path, row_group_size=group)
    return listed(path, "parquet")


@pytest.mark.parametrize("batch_bytes", [60, 100, 1000, 10**6])
def test_row_groups_are_covered_once_from_any_row_on(tmp_path: Path, batch_bytes: int) -> None:
    file = _parquet(tmp_path / "a.parquet", 50, 7)
    firsts = [group.first_row for group in row_groups(file.location, OPTIONS)]
    assert max(group.nbytes for group in row_groups(file.location, OPTIONS)) <= STREAM_FACTOR * batch_bytes
    for start in range(51):
        found = spans(work([file], batch_bytes, Position(0, start, start, start)))
        groups = [group for span in found for group in range(span.start, span.stop)]
        first = next((number for number, row in enumerate([*firsts[1:], 50]) if row > start), len(firsts))
        assert groups == list(range(first, len(firsts)))
        assert [span.row for span in found] == [firsts[span.start] for span in found]
        assert [span.anchor for span in found] == [span.row for span in found]
        assert all(before.done <= after.done for before, after in pairwise(found))


def test_row_groups_far_larger_than_a_batch_are_streamed(tmp_path: Path) -> None:
    file = _parquet(tmp_path / "a.parquet", 200, 100, "x" * 50)
    size = max(group.nbytes for group in row_groups(file.location, OPTIONS))
    assert isinstance(work([file], size // STREAM_FACTOR - 10)[0], StreamRequest)
    assert isinstance(work([file], size // STREAM_FACTOR + 10)[0], Unit)


def test_a_damaged_file_is_an_error_when_its_turn_comes(tmp_path: Path) -> None:
    good, bad = _parquet(tmp_path / "a.parquet", 5, 5), tmp_path / "b.parquet"
    bad.write_bytes(b"PAR1 and nothing else")
    files = [good, listed(bad, "parquet")]
    size = row_groups(good.location, OPTIONS)[0].nbytes
    feed = Feed(files, Position(), OPTIONS, size, Paths(files))
    assert isinstance(feed.next(), Unit)
    with pytest.raises(InputError, match=r"b\.parquet"):
        feed.next()


def test_a_position_is_small_json() -> None:
    position = Position(3, 10**12, 10**9, 10**9 + 1, 5, 6)
    restored: Any = json.loads(json.dumps(position._asdict()))
    assert Position(**restored) == position
