"""Plain text: whole files and lines as documents."""

from __future__ import annotations

import gzip
import tracemalloc
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
import zstandard

from prep.catalog.errors import InputError
from prep.readers.block import FLAG_INVALID_UTF8, Documents, ReadOptions, RecordError
from prep.readers.lines import OversizedLine
from prep.readers.text import parse_lines, read_file

if TYPE_CHECKING:
    from pathlib import Path

BOM = b"\xef\xbb\xbf"


def _file(folder: Path, data: bytes, suffix: str = "", **options: Any) -> Documents:
    path = folder / f"a.txt{suffix}"
    path.write_bytes(data)
    return read_file(str(path), ReadOptions(**options))


def _lines(lines: list[Any], offset: int | None = 0, **options: Any) -> Documents:
    return parse_lines(lines, offset, ReadOptions(text_mode="line", **options))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"one\ntwo\r\n\r\n three \n", "one\ntwo\r\n\r\n three \n"),
        (b"", ""),
        (b"\n", "\n"),
        (BOM + b"a", "a"),
        (BOM + BOM + b"a", "\ufeffa"),
        (BOM, ""),
        ("a\u2028b\u0085\x00".encode(), "a\u2028b\u0085\x00"),
    ],
)
def test_a_file_is_one_document_with_every_character(tmp_path: Path, data: bytes, text: str) -> None:
    packed = {"": data, ".gz": gzip.compress(data), ".zst": zstandard.ZstdCompressor().compress(data)}
    for suffix, content in packed.items():
        found = _file(tmp_path, content, suffix)
        assert found.texts == [text]
        assert (found.rows, found.row.tolist(), found.drops) == (1, [0], [])


def test_a_file_that_is_too_large_is_left_out_and_not_kept_in_memory(tmp_path: Path) -> None:
    path, size = tmp_path / "a.txt", 64 << 20
    with path.open("wb") as stream:
        stream.truncate(size)
    tracemalloc.start()
    found = read_file(str(path), ReadOptions(max_record_bytes=1 << 20, on_bad_record="skip"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20
    assert len(found) == 0
    assert [drop[:3] for drop in found.drops] == [(0, "too_large", 0)]
    assert f"{size:,}" in found.drops[0].message
    with pytest.raises(RecordError, match=f"{size:,} bytes"):
        read_file(str(path), ReadOptions(max_record_bytes=1 << 20))


@pytest.mark.parametrize(("limit", "kept"), [(3, 1), (2, 0)])
def test_the_size_limit_is_the_largest_size_that_is_read(tmp_path: Path, limit: int, kept: int) -> None:
    assert len(_file(tmp_path, b"abc", max_record_bytes=limit, on_bad_record="skip")) == kept


def test_a_file_that_is_not_utf8_follows_the_policy_q11(tmp_path: Path) -> None:
    data = b"caf\xd5\nnext\xc9\n"
    with pytest.raises(RecordError, match="not valid UTF-8 at byte 3"):
        _file(tmp_path, data)
    replaced = _file(tmp_path, data, on_bad_text="replace")
    assert replaced.texts == ["caf\ufffd\nnext\ufffd\n"]
    assert replaced.flags.tolist() == [FLAG_INVALID_UTF8]
    skipped = _file(tmp_path, data, on_bad_text="skip")
    assert [drop[:2] for drop in skipped.drops] == [(0, "bad_text")]
    assert skipped.rows == 1


def test_a_damaged_compressed_file_is_an_error_q01(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a\.txt\.gz"):
        _file(tmp_path, gzip.compress(b"some text")[:-3], ".gz", on_bad_record="skip", on_bad_text="skip")


def test_lines_lose_their_end_and_nothing_else() -> None:
    found = _lines([b"one", b"two\r", b"", b"\r", b" three \r\r", "a\u2028b".encode(), b"\rx"])
    assert found.texts == ["one", "two", "", "", " three \r", "a\u2028b", "\rx"]
    assert found.row.tolist() == list(range(7))
    assert found.rows == 7


def test_the_byte_order_mark_is_no_text_of_the_first_line() -> None:
    assert _lines([BOM + b"a", BOM + b"b"]).texts == ["a", "\ufeffb"]
    assert _lines([BOM + b"a"], offset=50).texts == ["\ufeffa"]


@pytest.mark.parametrize("policy", ["replace", "skip"])
def test_lines_are_parsed_alike_alone_and_among_others_q11(policy: Any) -> None:
    lines = [b"good", b"caf\xd5\r", b"", OversizedLine(10**9), b"\xc9", "漢".encode(), b"\xed\xa0\x80"]
    options = {"on_bad_text": policy, "on_bad_record": "skip"}
    together = _lines(lines, 7, **options)
    place, documents, drops = 7, [], []
    for row, line in enumerate(lines):
        alone = _lines([line], place, **options)
        documents += [
            (row, text, flags) for text, flags in zip(alone.texts, alone.flags.tolist(), strict=True)
        ]
        drops += [drop._replace(row=row) for drop in alone.drops]
        place += len(line) + 1
    found = zip(together.row.tolist(), together.texts, together.flags.tolist(), strict=True)
    assert list(found) == documents
    assert together.drops == drops
    expected = {"replace": [3], "skip": [1, 3, 4, 6]}[policy]
    assert [drop.row for drop in drops] == expected
    assert len(documents) == len(lines) - len(expected)


def test_byte_offsets_count_the_byte_order_mark() -> None:
    data = BOM + b"a\nb\xd5\n"
    found = _lines([BOM + b"a", b"b\xd5"], on_bad_text="skip")
    assert [drop.offset for drop in found.drops] == [data.index(b"b\xd5")]


def test_text_has_no_ids_and_no_kept_fields() -> None:
    for lines in ([b"a", b"b"], [b"a", b"b\xd5"]):
        found = _lines(lines, id_field="id", kept=(("k", pa.int64()),), on_bad_text="replace")
        assert found.ids is not None
        assert found.ids.to_pylist() == [None, None]
        assert [(column.type, column.to_pylist()) for column in found.kept] == [(pa.int64(), [None, None])]
