"""Parquet: row groups, columns that are not asked for, damage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from prep.catalog.errors import InputError
from prep.pipeline.messages import LocalFile, Span
from prep.pipeline.reader import read_span
from prep.readers.block import ReadOptions
from prep.readers.parquet import RowGroup, read_groups, row_groups, schema_of, stream_group
from prep.readers.parquet_footer import unencoded_bytes
from prep.readers.scan import scan_file
from prep.readers.tabular import documents_of

OPTIONS = ReadOptions()


def write(path: Path, table: pa.Table, rows: int = 3, **options: Any) -> str:
    pq.write_table(table, path, row_group_size=rows, **options)
    return str(path)


def numbered(rows: int) -> pa.Table:
    texts = pa.array([f"text {row}" for row in range(rows)], pa.string())
    return pa.table({"text": texts, "n": pa.array(range(rows), pa.int64())})


def texts(path: str, start: int, stop: int, options: ReadOptions = OPTIONS) -> list[str]:
    found: list[str] = documents_of(path, read_groups(path, start, stop, options), options).texts
    return found


def test_row_groups_say_where_they_begin(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", numbered(10))
    groups = row_groups(path, OPTIONS)
    assert [(group.first_row, group.rows) for group in groups] == [(0, 3), (3, 3), (6, 3), (9, 1)]
    for start in range(4):
        for stop in range(start, 5):
            assert texts(path, start, stop) == [f"text {row}" for row in range(3 * start, min(10, 3 * stop))]


def test_a_file_without_rows_has_no_documents(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", numbered(0))
    assert sum(group.rows for group in row_groups(path, OPTIONS)) == 0
    writer = pq.ParquetWriter(tmp_path / "b.parquet", numbered(0).schema)
    writer.close()
    assert row_groups(str(tmp_path / "b.parquet"), OPTIONS) == []


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view(), pa.binary()], ids=str)
@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize("compression", ["none", "snappy", "zstd", "gzip", "lz4", "brotli"])
def test_types_encodings_and_codecs_give_the_same_texts(
    tmp_path: Path, kind: pa.DataType, compression: str, *, dictionary: bool
) -> None:
    expected = ["same", "same", "", "漢字 and a text that is no longer short", "x" * 5000, "same", "last"]
    column = pa.array(expected, pa.binary() if kind == pa.binary() else pa.string()).cast(kind)
    path = write(
        tmp_path / "a.parquet", pa.table({"text": column}), use_dictionary=dictionary, compression=compression
    )
    assert texts(path, 0, len(row_groups(path, OPTIONS))) == expected


def test_a_column_that_was_a_dictionary_in_memory_is_read(tmp_path: Path) -> None:
    column = pa.array(["a", None, "b", "a"]).dictionary_encode()
    options = ReadOptions(on_bad_record="skip")
    path = write(tmp_path / "a.parquet", pa.table({"text": column}), 2)
    assert pa.types.is_dictionary(schema_of(path).field("text").type)
    assert texts(path, 0, 2, options) == ["a", "b", "a"]


def _ruin_column(path: str, name: str) -> None:
    """Overwrite the pages of a column."""
    metadata, data = pq.read_metadata(path), bytearray(Path(path).read_bytes())
    for index in range(metadata.num_row_groups):
        for number in range(metadata.num_columns):
            column = metadata.row_group(index).column(number)
            if column.path_in_schema.startswith(name):
                begin = column.dictionary_page_offset or column.data_page_offset
                data[begin : begin + column.total_compressed_size] = b"\xff" * column.total_compressed_size
    Path(path).write_bytes(data)


def test_columns_that_are_not_asked_for_are_never_read_q07(tmp_path: Path) -> None:
    rows = 9
    table = numbered(rows).append_column(
        "meta",
        pa.array([[(f"key{row}", "v" * 100)] for row in range(rows)], pa.map_(pa.string(), pa.string())),
    )
    table = table.append_column("nested", pa.array([{"a": [{"b": "c"}] * row} for row in range(rows)]))
    path = write(tmp_path / "a.parquet", table)
    for name in ("meta", "nested", "n"):
        _ruin_column(path, name)
    assert texts(path, 0, 3) == [f"text {row}" for row in range(rows)]
    for group in range(3):
        pieces = list(stream_group(path, group, 2, OPTIONS))
        assert [piece.schema.names for piece in pieces] == [["text"]] * 2
    for name in ("meta", "nested", "n"):
        wanted = ReadOptions(kept=((name, pa.string()),), declared=frozenset([name]))
        with pytest.raises(InputError, match=r"a\.parquet: damaged Parquet data"):
            texts(path, 0, 3, wanted)


@pytest.mark.parametrize("column", ["a", "b", "d.e"])
def test_the_size_of_a_group_is_that_of_the_columns_asked_for(tmp_path: Path, column: str) -> None:
    values = {"a": "y" * 9999, "b": {"c": "z" * 3333, "d": 1}, "d.e": "w" * 7777}
    table = pa.table({"text": ["ab"] * 4, **{name: [value] * 4 for name, value in values.items()}})
    path = write(
        tmp_path / "a.parquet", table, 4, use_dictionary=False, compression="none", write_statistics=False
    )
    [text] = row_groups(path, OPTIONS)
    [both] = row_groups(path, ReadOptions(kept=((column, pa.string()),), declared=frozenset([column])))
    assert text == RowGroup(0, 4, text.nbytes)
    assert 8 <= text.nbytes < 500
    expected = 4 * {"a": 9999, "b": 3333 + 8, "d.e": 7777}[column]
    assert expected <= both.nbytes - text.nbytes < expected + 500


def test_a_name_with_a_dot_is_a_column_not_a_path(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", pa.table({"meta.text": ["right"], "meta": [{"text": "wrong"}]}))
    assert texts(path, 0, 1, ReadOptions(text_field="meta.text")) == ["right"]
    path = write(tmp_path / "b.parquet", pa.table({"meta": [{"text": "inside"}]}))
    with pytest.raises(InputError, match=r"'meta\.text' is no column; found: meta"):
        row_groups(path, ReadOptions(text_field="meta.text"))


def test_a_group_in_pieces_is_the_group(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", numbered(25), 20)
    for group in (0, 1):
        whole = read_groups(path, group, group + 1, OPTIONS)
        for rows in (1, 3, 7, 100):
            pieces = list(stream_group(path, group, rows, OPTIONS))
            assert max(piece.num_rows for piece in pieces) <= rows
            assert pa.Table.from_batches(pieces).equals(whole)


def test_a_missing_column_lists_those_that_are_there_q66(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", numbered(1))
    for function in (row_groups,):
        with pytest.raises(
            InputError, match=r"a\.parquet: source\.text_field 'content' is no column; found: text, n"
        ):
            function(path, ReadOptions(text_field="content"))


def test_a_file_that_was_written_anew_is_read_anew(tmp_path: Path) -> None:
    """A job that is run again in the same process must not see the footer of the file before."""
    path = write(tmp_path / "a.parquet", numbered(10))
    assert len(row_groups(path, OPTIONS)) == 4
    write(Path(path), pa.table({"other": [1], "text": ["new"]}))
    assert [group.rows for group in row_groups(path, OPTIONS)] == [1]
    assert schema_of(path).names == ["other", "text"]
    assert texts(path, 0, 1) == ["new"]


def test_a_file_cut_anywhere_is_an_error_q01(tmp_path: Path) -> None:
    good = Path(write(tmp_path / "a.parquet", numbered(10))).read_bytes()
    for length in [*range(0, len(good), 37), len(good) - 1]:
        path = tmp_path / f"cut-{length}.parquet"
        path.write_bytes(good[:length])
        with pytest.raises(InputError, match=f"cut-{length}"):
            row_groups(str(path), OPTIONS)


@pytest.mark.parametrize(
    "data", [b"", b"PAR1", b"PAR1PAR1", b"not parquet at all", b"PAR1" + b"\xff" * 100 + b"PAR1"]
)
def test_another_file_is_an_error_that_names_it(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"a\.parquet"):
        schema_of(str(path))
    with pytest.raises(InputError, match=r"missing\.parquet"):
        schema_of(str(tmp_path / "missing.parquet"))


@pytest.mark.parametrize("compression", ["none", "snappy"])
@pytest.mark.parametrize(
    "kind", [pa.string(), pa.dictionary(pa.int32(), pa.string())], ids=["string", "dictionary"]
)
def test_a_changed_byte_in_the_pages_is_an_error_of_the_input_or_other_text(
    tmp_path: Path, kind: pa.DataType, compression: str
) -> None:
    """Pages carry no checksum, so a change may go unseen; it must not end in an error of another kind."""
    column = pa.array([f"text {row % 5}" for row in range(20)]).cast(kind)
    path = tmp_path / "a.parquet"
    write(path, pa.table({"text": column}), 20, compression=compression)
    good, chunk = path.read_bytes(), pq.read_metadata(path).row_group(0).column(0)
    begin = chunk.dictionary_page_offset or chunk.data_page_offset
    wanted = ReadOptions(on_bad_record="skip", on_bad_text="replace")
    span, file = Span(0, "groups", 0, 1, 0, 1), LocalFile(str(path), len(good), "parquet")
    for place in range(begin, begin + chunk.total_compressed_size):
        for change in (0x01, 0x55, 0xFF):
            data = bytearray(good)
            data[place] ^= change
            path.write_bytes(data)
            try:
                found = read_span(span, file, None, wanted)
            except InputError:
                continue
            assert len(found) <= 20


WRITING: list[dict[str, Any]] = [
    {},
    {"use_dictionary": False},
    {"data_page_version": "2.0"},
    {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}},
    {"use_dictionary": False, "column_encoding": {"text": "DELTA_LENGTH_BYTE_ARRAY"}},
    {"write_statistics": False},
    {"compression": "none"},
]


@pytest.mark.parametrize("writing", WRITING, ids=str)
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_text_is_counted_the_same_by_the_footer_and_by_decoding(
    tmp_path: Path, writing: dict[str, Any], kind: pa.DataType
) -> None:
    texts = ["a", "aé", None, "a" * 300, ""] * 100
    if pa.types.is_dictionary(kind) and "column_encoding" in writing:
        pytest.skip("pyarrow does not read this back")
    table = pa.table({"nested": [{"text": "no", "n": [1]}] * 500, "text": pa.array(texts).cast(kind)})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=150, **writing)
    path = str(tmp_path / "x.parquet")
    counted = scan_file(path, "parquet", "text", decode=True)
    assert counted[:3] == (500, 100 * 304, 400)
    assert scan_file(path, "parquet", "text") == counted


def test_a_footer_that_says_something_else_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(pa.table({"text": ["abc"] * 10}), tmp_path / "x.parquet", row_group_size=2)
    monkeypatch.setattr("prep.readers.parquet.unencoded_bytes", lambda *_: [5] * 5)
    assert scan_file(str(tmp_path / "x.parquet"), "parquet", "text").text_bytes == 30


def test_the_footer_is_read_where_it_is_and_damage_to_it_means_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"n": [1, 2], "text": ["abc", "dé"]}), path, row_group_size=1)
    assert unencoded_bytes(str(path), "text") == [3, 3]
    assert unencoded_bytes(str(path), "other") is None
    data = path.read_bytes()
    for place in range(len(data) - 400, len(data)):
        path.write_bytes(data[:place] + bytes([data[place] ^ 255]) + data[place + 1 :])
        unencoded_bytes(str(path), "text")  # any answer, but no other error and no endless loop
