"""Lines of byte ranges and of streams against a plain split on 0x0A."""

from __future__ import annotations

import gzip
from bisect import bisect_left
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from prep.readers.compressed import open_text
from prep.readers.lines import OversizedLine, read_range, split_lines, stream_blocks

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

UNLIMITED = 1 << 40
ALPHABET = (
    b"\n",
    b"\n",
    b"\r\n",
    b"a",
    b"bc",
    b"\r",
    b"\x00",
    b"\xd5",
    b"\xe2\x80\xa8",
    b"\xc2\x85",
    b"\xef\xbb\xbf",
    b"x" * 30,
)


class Line(NamedTuple):
    """A line as the model sees it: its bytes, or None where it is longer than allowed."""

    offset: int
    size: int
    data: bytes | None


def plain_split(data: bytes, max_line: int = UNLIMITED) -> list[Line]:
    lines, offset = [], 0
    for line in data.split(b"\n"):
        lines.append(Line(offset, len(line), line if len(line) <= max_line else None))
        offset += len(line) + 1
    if not lines[-1].size:  # nothing follows the last line feed
        lines.pop()
    return lines


def as_model(found: list[bytes | OversizedLine], offset: int) -> list[Line]:
    lines = []
    for line in found:
        lines.append(Line(offset, len(line), None if isinstance(line, OversizedLine) else bytes(line)))
        offset += len(line) + 1
    return lines


texts = st.lists(st.sampled_from(ALPHABET), max_size=60).map(b"".join) | st.binary(max_size=200)
limits = st.sampled_from((UNLIMITED, 0, 1, 5, 29, 30, 31, 100))


@pytest.fixture(scope="session")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lines") / "file"


@given(data=texts, max_line=limits, draw=st.data())
@settings(max_examples=150, deadline=None)
def test_ranges_give_every_line_once_however_a_file_is_cut(
    file: Path, *, data: bytes, max_line: int, draw: st.DataObject
) -> None:
    file.write_bytes(data)
    cuts = draw.draw(st.sets(st.integers(0, len(data))), label="cuts")
    bounds = sorted({0, len(data), *cuts})
    expected = plain_split(data, max_line)
    for start, stop in pairwise(bounds):
        lines, offset = read_range(str(file), start, stop, len(data), max_line)
        wanted = [line for line in expected if start <= line.offset < stop]
        assert as_model(lines, offset) == wanted, (start, stop)


@given(data=texts, listed=st.integers(0, 200))
@settings(max_examples=60, deadline=None)
def test_nothing_behind_the_listed_size_is_read(file: Path, *, data: bytes, listed: int) -> None:
    file.write_bytes(data)
    size = min(listed, len(data))
    if size:
        lines, offset = read_range(str(file), 0, size, size, UNLIMITED)
        assert as_model(lines, offset) == plain_split(data[:size])


@given(data=texts, max_line=limits)
@settings(max_examples=60, deadline=None)
def test_a_block_of_whole_lines_splits_as_plainly(data: bytes, max_line: int) -> None:
    assert as_model(split_lines(data, max_line), 0) == plain_split(data, max_line)


def _plain(data: bytes) -> bytes:
    return data


def _gzip_members(data: bytes) -> bytes:
    half = len(data) // 2
    return gzip.compress(data[:half]) + gzip.compress(b"") + gzip.compress(data[half:])


def _zstd_frames(data: bytes) -> bytes:
    half, frame = len(data) // 2, zstandard.ZstdCompressor().compress
    return frame(data[:half]) + frame(b"") + frame(data[half:])


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [("", _plain), (".gz", _gzip_members), (".zst", _zstd_frames)],
    ids=["plain", "gz", "zst"],
)
@given(data=texts, max_line=limits, block=st.integers(1, 80), draw=st.data())
@settings(max_examples=80, deadline=None)
def test_stream_blocks_give_every_line_once_from_any_line_on(
    file: Path,
    *,
    suffix: str,
    pack: Callable[[bytes], bytes],
    data: bytes,
    max_line: int,
    block: int,
    draw: st.DataObject,
) -> None:
    path = file.with_suffix(f".txt{suffix}")
    path.write_bytes(pack(data))
    expected = plain_split(data, max_line)
    begins = [line.offset for line in expected] or [0]
    start = draw.draw(st.sampled_from(begins), label="start")
    found: list[Line] = []
    done = 0
    with open_text(str(path)) as stream:
        for part in stream_blocks(stream, start, block, max_line):
            assert part.done >= done
            done = part.done
            if part.oversized:
                found.append(Line(part.offset, part.size, None))
                continue
            joined = b"".join(part.pieces)
            assert len(joined) == part.size
            found += as_model(split_lines(joined, max_line), part.offset)
    assert found == expected[bisect_left(begins, start) :]
    assert done <= path.stat().st_size
