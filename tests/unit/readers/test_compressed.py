"""Compressed text: all of it, or an error; never a part."""

from __future__ import annotations

import gzip
import struct
from typing import TYPE_CHECKING

import numpy as np
import pytest
import zstandard

from prep.catalog.errors import InputError
from prep.readers import compression_of, format_of
from prep.readers.compressed import open_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TEXT = "".join(f"line {number} of some text, naïve\n" for number in range(120)).encode()
NOISE = np.random.default_rng(7).bytes(700)


def _frame(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


def _skippable(data: bytes, number: int = 0) -> bytes:
    """A frame that every decoder passes over."""
    return struct.pack("<II", 0x184D2A50 + number, len(data)) + data


def _read(path: Path, size: int = 1 << 20) -> bytes:
    pieces, total = [], 0
    with open_text(str(path)) as stream:
        while piece := stream.read(size):
            assert len(piece) <= size
            pieces.append(piece)
            total += len(piece)
            assert stream.offset == total
    return b"".join(pieces)


def _outcome(path: Path) -> bytes | str:
    """The text, or what the error says."""
    try:
        return _read(path, 100)
    except InputError as error:
        return str(error)


@pytest.mark.parametrize("size", [1, 7, 64, 1 << 20])
@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("a.txt", TEXT, TEXT),
        ("a.txt.gz", gzip.compress(TEXT), TEXT),
        ("a.txt.GZ", gzip.compress(TEXT), TEXT),
        ("a.txt.gz", gzip.compress(TEXT) + gzip.compress(NOISE), TEXT + NOISE),
        (
            "a.txt.gz",
            gzip.compress(b"") + gzip.compress(TEXT) + gzip.compress(b"") * 3 + gzip.compress(NOISE),
            TEXT + NOISE,
        ),
        ("a.txt.gz", gzip.compress(b""), b""),
        ("a.txt.zst", _frame(TEXT), TEXT),
        ("a.txt.zst", _frame(TEXT) + _frame(b"") + _frame(NOISE), TEXT + NOISE),
        (
            "a.txt.zst",
            _skippable(b"note") + _frame(TEXT) + _skippable(b"", 15) + _frame(NOISE) + _skippable(b"x" * 99),
            TEXT + NOISE,
        ),
        ("a.txt.zst", _skippable(b"only this"), b""),
        ("a.txt.zst", b"".join(_frame(TEXT[start : start + 50]) for start in range(0, len(TEXT), 50)), TEXT),
    ],
    ids=[
        "plain",
        "gz",
        "GZ",
        "members",
        "empty-members",
        "empty-gz",
        "zst",
        "frames",
        "skippable",
        "only-skippable",
        "many-frames",
    ],
)
def test_every_member_and_frame_is_read(
    tmp_path: Path, name: str, data: bytes, expected: bytes, size: int
) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    assert _read(path, size) == expected


@pytest.mark.parametrize(
    ("suffix", "pack", "whole"),
    [
        (".gz", gzip.compress, ()),
        (".zst", _frame, ()),
        (".gz", lambda data: gzip.compress(data[:300]) + gzip.compress(data[300:]), (300,)),
        (".zst", lambda data: _frame(data[:300]) + _frame(data[300:]), (300,)),
    ],
    ids=["gz", "zst", "members", "frames"],
)
def test_a_file_cut_anywhere_inside_is_an_error_q01(
    tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes], whole: tuple[int, ...]
) -> None:
    """A cut between members or frames leaves a valid file, which nothing in its bytes can tell."""
    path, data = tmp_path / f"a.jsonl{suffix}", pack(NOISE)
    for length in range(1, len(data)):
        path.write_bytes(data[:length])
        found = _outcome(path)
        if isinstance(found, str):
            assert "a.jsonl" in found
            assert "compressed byte" in found
        else:
            assert len(found) in whole
            assert found == NOISE[: len(found)]


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_an_upload_of_which_nothing_arrived_is_an_error_q01(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(b"")
    with pytest.raises(InputError):
        _read(path)


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".zst", _frame)])
def test_a_changed_byte_is_never_other_text_q01(
    tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes]
) -> None:
    path, good = tmp_path / f"a.jsonl{suffix}", pack(TEXT)
    for place in range(0, len(good), 13):
        data = bytearray(good)
        data[place] ^= 0x55
        path.write_bytes(data)
        found = _outcome(path)  # some bytes carry no text, such as the time in gzip's head
        assert isinstance(found, str) or found == TEXT


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".zst", _frame)])
def test_what_follows_the_last_frame_is_no_text_and_an_error(
    tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(pack(TEXT) + b"this is not compressed")
    with pytest.raises(InputError, match="damaged or incomplete"):
        _read(path)
    path.write_bytes(TEXT)
    with pytest.raises(InputError, match="damaged or incomplete"):
        _read(path)


def test_the_error_tells_where_in_the_file_and_in_the_text_q01(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    member = gzip.compress(TEXT)
    path.write_bytes(member + gzip.compress(NOISE)[:100])
    with pytest.raises(InputError) as caught:
        _read(path, 1000)
    assert str(path) in str(caught.value)
    assert f"compressed byte {len(member) + 100:,}" in str(caught.value)
    told = int(str(caught.value).split("after ")[1].split(" bytes")[0].replace(",", ""))
    assert len(TEXT) - 1000 <= told <= len(TEXT)


def test_bytes_of_the_file_that_are_read_are_told(tmp_path: Path) -> None:
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(NOISE * 2000, 0))
    with open_text(str(path)) as stream:
        assert stream.consumed == 0
        stream.read(1000)
        first = stream.consumed
        while stream.read(1 << 16):
            continue
        assert 0 < first < stream.consumed == path.stat().st_size


def test_a_missing_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    with (
        pytest.raises(InputError, match=r"missing\.gz: cannot be opened"),
        open_text(str(tmp_path / "missing.gz")),
    ):
        pytest.fail("opened")


@pytest.mark.parametrize(
    ("name", "kind", "compression"),
    [
        ("a.jsonl", "jsonl", None),
        ("a.ndjson.zst", "jsonl", ".zst"),
        ("a.json", "json", None),
        ("a.json.gz", "json", ".gz"),
        ("A.TXT.GZ", "txt", ".gz"),
        ("a.parquet", "parquet", None),
        ("a.feather", "arrow", None),
        ("a.arrow", "arrow", None),
        ("a.parquet.gz", None, ".gz"),
        ("a.arrow.zst", None, ".zst"),
        ("a.csv", None, None),
        ("a.gz", None, ".gz"),
        ("jsonl", None, None),
        ("folder.jsonl/file", None, None),
        ("memory://x/a.b.jsonl.gz", "jsonl", ".gz"),
    ],
)
def test_suffixes_tell_format_and_compression_q66(
    name: str, kind: str | None, compression: str | None
) -> None:
    assert format_of(name) == kind
    assert compression_of(name) == compression
