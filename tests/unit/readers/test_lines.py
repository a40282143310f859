"""Lines of byte ranges and of streams: examples, errors and memory."""

from __future__ import annotations

import gzip
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest

from prep.catalog.errors import InputError
from prep.readers.compressed import open_text
from prep.readers.lines import (
    OversizedLine,
    placed_lines,
    read_range,
    split_lines,
    stream_blocks,
    without_bom,
)

if TYPE_CHECKING:
    from pathlib import Path

LIMIT = 1 << 30


def _write(folder: Path, data: bytes) -> str:
    path = folder / "file.txt"
    path.write_bytes(data)
    return str(path)


def _shown(lines: list[Any]) -> list[Any]:
    return [f"{line.size} bytes" if isinstance(line, OversizedLine) else bytes(line) for line in lines]


@pytest.mark.parametrize(
    "data",
    [
        b"one\ntwo\nthree\n",
        b"one\ntwo\nthree",
        b"\n\n\n",
        b"\r\n\r\n",
        b"a\r\nb\r\n",
        b"no line feed",
        b"\n",
        b"x",
        b"a\n\nb\n\n\nc",
    ],
)
def test_every_range_owns_the_lines_that_begin_in_it(tmp_path: Path, data: bytes) -> None:
    path = _write(tmp_path, data)
    begins = [0] + [place + 1 for place in range(len(data) - 1) if data[place : place + 1] == b"\n"]
    expected = {begin: data[begin:].split(b"\n")[0] for begin in begins}
    for start in range(len(data)):
        for stop in range(start + 1, len(data) + 1):
            lines, offset = read_range(path, start, stop, len(data), LIMIT)
            inside = [begin for begin in begins if start <= begin < stop]
            assert lines == [expected[begin] for begin in inside], (start, stop)
            assert not inside or offset == inside[0]


def test_other_line_ends_do_not_end_a_line_q03(tmp_path: Path) -> None:
    raw = "a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg\rh".encode()
    lines, _ = read_range(_write(tmp_path, raw + b"\r\n" + b"second"), 0, 6, len(raw) + 8, LIMIT)
    assert lines == [raw + b"\r"]


@pytest.mark.parametrize("length", [9, 10, 11, 5000])
def test_a_line_longer_than_the_limit_is_passed_over_and_its_neighbours_are_kept_q05(
    tmp_path: Path, length: int
) -> None:
    data = b"small\n" + b"x" * length + b"\nlast\n"
    path = _write(tmp_path, data)
    middle = b"x" * length if length <= 10 else f"{length} bytes"
    lines, _ = read_range(path, 0, len(data), len(data), 10)
    assert _shown(lines) == [b"small", middle, b"last"]
    lines, offset = read_range(path, 6, 7, len(data), 10)
    assert (_shown(lines), offset) == ([middle], 6)
    assert _shown(split_lines(data, 10)) == [b"small", middle, b"last"]


def test_a_long_line_is_read_to_its_end_behind_the_range_q05(tmp_path: Path) -> None:
    long = b"y" * (5 << 20)
    data = b"small\n" + long + b"\nsmall\n"
    path = _write(tmp_path, data)
    ranges = [
        read_range(path, start, min(start + 65_536, len(data)), len(data), LIMIT)[0]
        for start in range(0, len(data), 65_536)
    ]
    assert [line for lines in ranges for line in lines] == [b"small", long, b"small"]
    assert len(ranges[0]) == 2


def test_an_oversized_line_needs_no_memory_q05(tmp_path: Path) -> None:
    path, size = tmp_path / "file.txt", 96 << 20
    with path.open("wb") as stream:  # a hole: its bytes are zeros and take no room
        stream.write(b"small\n")
        stream.truncate(size)
    tracemalloc.start()
    lines, _ = read_range(str(path), 0, 4096, size, 1 << 20)
    with open_text(str(path)) as text:
        blocks = list(stream_blocks(text, 0, 1 << 16, 1 << 20))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert _shown(lines) == [b"small", f"{size - 6} bytes"]
    assert [(block.offset, block.size, block.oversized) for block in blocks] == [
        (0, 6, False),
        (6, size - 6, True),
    ]
    assert peak < 12 << 20


def test_a_file_that_became_shorter_is_an_error(tmp_path: Path) -> None:
    path = _write(tmp_path, b"one\ntwo\n")
    with pytest.raises(InputError, match=r"file\.txt: expected 1,000 bytes as when it was listed, found 8"):
        read_range(path, 0, 4, 1000, LIMIT)


def test_a_missing_file_and_a_folder_are_errors_that_name_them(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"missing\.txt: cannot be opened"):
        read_range(str(tmp_path / "missing.txt"), 0, 1, 1, LIMIT)
    with pytest.raises(InputError, match="cannot be read"):
        read_range(str(tmp_path), 0, 1, 1, LIMIT)


@pytest.mark.parametrize("suffix", [".txt", ".txt.gz"])
def test_a_stream_that_ends_before_the_start_is_an_error(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"file{suffix}"
    path.write_bytes(gzip.compress(b"one\ntwo\n") if suffix.endswith("gz") else b"one\ntwo\n")
    with open_text(str(path)) as stream, pytest.raises(InputError, match=r"ends at byte 8 .* before 20"):
        list(stream_blocks(stream, 20, 100, LIMIT))


def test_a_stream_is_read_in_blocks_of_about_the_size_asked_for(tmp_path: Path) -> None:
    data = b"".join(b"%05d\n" % number for number in range(2000))
    with open_text(_write(tmp_path, data)) as stream:
        sizes = [block.size for block in stream_blocks(stream, 0, 1000, LIMIT)]
    assert sum(sizes) == len(data)
    assert max(sizes) <= 1000 + 6
    assert len(sizes) == len(data) // 1000


def test_only_the_first_line_of_a_file_may_begin_with_a_byte_order_mark() -> None:
    lines = [b"\xef\xbb\xbfa", b"\xef\xbb\xbfb"]
    assert without_bom(lines, 0) == ([b"a", b"\xef\xbb\xbfb"], 3)
    assert without_bom(lines, 5) == (lines, 5)
    assert without_bom(lines, None) == (lines, None)
    assert without_bom([], 0) == ([], 0)
    assert without_bom([b"\xef\xbb\xbf\xef\xbb\xbfa"], 0) == ([b"\xef\xbb\xbfa"], 3)


def test_places_count_the_line_feeds_and_the_lines_that_were_passed_over() -> None:
    lines = [b"ab", b"", OversizedLine(1000), b"c\r"]
    assert [place for _, place in placed_lines(lines, 7)] == [7, 10, 11, 1012]
    assert [place for _, place in placed_lines(lines, None)] == [-1, -1, -1, -1]
