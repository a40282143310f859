"""Rows by index: every format gives the rows that were written, in the order asked for."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from prep.catalog.catalog import Catalog
from prep.catalog.errors import InputError
from prep.catalog.raw import offsets_file
from prep.index import build_catalog
from prep.readers.rows import open_rows
from prep.readers.rows_parquet import KEPT_GROUPS, ParquetRows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROWS: list[dict[str, Any]] = [
    {"text": f"row {number} é\u2028x", "n": number, "more": [{"k": [number]}, None] if number % 3 else None}
    for number in range(50)
]


def jsonl(end: bytes = b"\n") -> bytes:
    return end.join(json.dumps(row, ensure_ascii=False).encode() for row in ROWS) + end


def arrow(path: Path, *, stream: bool = False, compression: str | None = None) -> None:
    data = pa.Table.from_pylist(ROWS)
    new = pa.ipc.new_stream if stream else pa.ipc.new_file
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.OSFile(str(path), "wb") as sink, new(sink, data.schema, options=options) as writer:
        writer.write_table(data, max_chunksize=7)


WRITERS: dict[str, tuple[str, str, Callable[[Path], object]]] = {
    "jsonl": ("x.jsonl", "jsonl", lambda path: path.write_bytes(jsonl())),
    "crlf and blank lines": ("x.jsonl", "jsonl", lambda path: path.write_bytes(b"\n" + jsonl(b"\r\n \n"))),
    "byte order mark": ("x.jsonl", "jsonl", lambda path: path.write_bytes(b"\xef\xbb\xbf" + jsonl()[:-1])),
    "gzip": ("x.jsonl.gz", "jsonl", lambda path: path.write_bytes(gzip.compress(jsonl()))),
    "zstd": ("x.jsonl.zst", "jsonl", lambda path: path.write_bytes(zstandard.compress(jsonl()))),
    "parquet": (
        "x.parquet",
        "parquet",
        lambda path: pq.write_table(pa.Table.from_pylist(ROWS), path, row_group_size=7),
    ),
    "arrow": ("x.arrow", "arrow", arrow),
    "arrow zstd": ("x.arrow", "arrow", lambda path: arrow(path, compression="zstd")),
    "arrow stream": ("x.arrow", "arrow", lambda path: arrow(path, stream=True)),
}


@pytest.fixture(params=WRITERS)
def written(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    name, fmt, write = WRITERS[request.param]
    write(tmp_path / name)
    return tmp_path / name, fmt


@pytest.mark.parametrize("indices", [[], [0], [49], [7, 6, 7, 0, 49, 13, 14], list(range(50)), [3] * 5])
def test_rows_come_in_the_order_asked_for(written: tuple[Path, str], indices: list[int]) -> None:
    with open_rows(*written) as rows:
        assert rows.num_rows == 50
        assert rows.read(indices) == [ROWS[index] for index in indices]
        assert rows.read(np.array(indices, np.uint32)) == [ROWS[index] for index in indices]
        assert rows.read(iter(indices[:2])) == [ROWS[index] for index in indices[:2]]


def test_rows_of_a_catalog_are_read_by_its_offsets(written: tuple[Path, str]) -> None:
    path, fmt = written
    build_catalog(path.parent)
    offsets = path.parent / offsets_file(path.name) if fmt == "jsonl" else None
    with open_rows(path, fmt, offsets=offsets) as rows:
        assert rows.num_rows == Catalog.open(path.parent).header["totals"]["num_documents"]
        assert rows.read([49, 0, 25]) == [ROWS[49], ROWS[0], ROWS[25]]


@pytest.mark.parametrize("wrong", [-1, 50, 2**62])
def test_a_row_that_is_not_there_is_named_with_the_range(written: tuple[Path, str], wrong: int) -> None:
    with (
        open_rows(*written) as rows,
        pytest.raises(InputError, match=rf"{written[0].name}: row {wrong}: expected 0 to 49"),
    ):
        rows.read([3, wrong])


@pytest.mark.parametrize("wrong", [[0.5], [[1]], ["a"]])
def test_row_numbers_are_integers(written: tuple[Path, str], wrong: list[Any]) -> None:
    with open_rows(*written) as rows, pytest.raises(InputError, match="expected integers"):
        rows.read(wrong)


def test_two_rows_of_one_index_are_two_objects(written: tuple[Path, str]) -> None:
    with open_rows(*written) as rows:
        first, second = rows.read([5, 5])
    first["text"] = "changed"
    assert second == ROWS[5]


def test_a_row_group_is_decoded_once_a_call_and_few_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "x.parquet", row_group_size=10)
    decoded: list[int] = []
    read = pq.ParquetFile.read_row_group

    def count(self: pq.ParquetFile, number: int, **options: Any) -> pa.Table:
        decoded.append(number)
        return read(self, number, **options)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", count)
    with ParquetRows(str(tmp_path / "x.parquet")) as rows:
        rows.read([0, 45, 1, 46, 2, 47])
        assert decoded == [0, 4]
        rows.read([3, 48])
        assert decoded == [0, 4]
        rows.read(range(50))
        assert len(decoded) <= 2 + 5
        assert len(rows._groups) == KEPT_GROUPS


def test_a_damaged_line_is_named_when_it_is_read_and_not_before(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_bytes(b'{"a": 1}\noops\n{"a": 2}\n')
    with open_rows(tmp_path / "x.jsonl", "jsonl") as rows:
        assert rows.read([2, 0]) == [{"a": 2}, {"a": 1}]
        with pytest.raises(InputError, match=r"x\.jsonl: row 1, byte 9: not valid JSON"):
            rows.read([1])


def test_a_file_that_is_not_the_one_of_its_offsets_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(jsonl())
    build_catalog(tmp_path)
    for changed in (jsonl()[:-5], jsonl() + b"{}\n", b""):
        path.write_bytes(changed)
        with (
            open_rows(path, "jsonl", offsets=tmp_path / offsets_file("x.jsonl")) as rows,
            pytest.raises(InputError, match=r"x\.jsonl: expected .* bytes of text"),
        ):
            rows.read([0])


@pytest.mark.parametrize("damage", [b"", b"1234567"])
def test_offsets_of_a_wrong_size_are_refused(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "x.jsonl").write_bytes(jsonl())
    (tmp_path / "x.offsets").write_bytes(damage)
    with pytest.raises(InputError, match=r"x\.offsets"):
        open_rows(tmp_path / "x.jsonl", "jsonl", offsets=tmp_path / "x.offsets")


@pytest.mark.parametrize(
    ("name", "fmt"), [("x.jsonl", "jsonl"), ("x.parquet", "parquet"), ("x.arrow", "arrow")]
)
def test_files_that_are_missing_or_something_else_are_input_errors(
    tmp_path: Path, name: str, fmt: str
) -> None:
    with pytest.raises(InputError, match=name):
        open_rows(tmp_path / name, fmt)
    if fmt != "jsonl":
        for data in (b"", b"PAR1PAR1", b"ARROW1\0\0 more"):
            (tmp_path / name).write_bytes(data)
            with pytest.raises(InputError, match=name):
                open_rows(tmp_path / name, fmt)


def test_a_truncated_gzip_file_is_an_input_error(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl.gz").write_bytes(gzip.compress(jsonl())[:-9])
    with pytest.raises(InputError, match="damaged or incomplete"):
        open_rows(tmp_path / "x.jsonl.gz", "jsonl")


def test_text_that_is_not_utf_8_is_an_input_error(tmp_path: Path) -> None:
    damaged = pa.array([b"ok", b"\xff"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"text": damaged}), tmp_path / "x.parquet")
    with open_rows(tmp_path / "x.parquet", "parquet") as rows:
        assert rows.read([0]) == [{"text": "ok"}]
        with pytest.raises(InputError, match="damaged"):
            rows.read([1])


@pytest.mark.parametrize("fmt", ["arrow", "parquet"])
def test_columns_of_every_kind(tmp_path: Path, fmt: str) -> None:
    rows = [
        {"v": "a" * 40, "b": b"\x00", "d": "x", "s": {"a": 1}, "m": [("k", 1)], "l": "long"},
        {"v": None, "b": None, "d": None, "s": None, "m": None, "l": None},
    ]
    kinds = {
        "v": pa.string_view(),
        "b": pa.binary_view(),
        "d": pa.dictionary(pa.int32(), pa.string()),
        "s": pa.struct([("a", pa.int64())]),
        "m": pa.map_(pa.string(), pa.int64()),
        "l": pa.large_string(),
    }
    table = pa.table({name: pa.array([row[name] for row in rows], kind) for name, kind in kinds.items()})
    path = tmp_path / f"x.{fmt}"
    if fmt == "parquet":
        pq.write_table(table, path)
    else:
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    with open_rows(path, fmt) as reader:
        assert reader.read([1, 0, 1]) == [rows[1], rows[0], rows[1]]


def test_files_without_rows(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_bytes(b"")
    pq.write_table(pa.table({"a": pa.array([], pa.int64())}), tmp_path / "x.parquet")
    for name, fmt in (("x.jsonl", "jsonl"), ("x.parquet", "parquet")):
        with open_rows(tmp_path / name, fmt) as rows:
            assert rows.read([]) == []
            with pytest.raises(InputError, match="row 0: there are no rows"):
                rows.read([0])


def test_tokens_of_a_shard_are_views_of_the_mapped_file_and_outlive_it(catalog_folder: Path) -> None:
    catalog = Catalog.open(catalog_folder)
    path = catalog.file(catalog.shards(["path"]).column("path")[0].as_py())
    with open_rows(path, "tokens") as rows:
        found = rows.read([2, 0])
    expected = [catalog.document(0, row) for row in (2, 0)]
    for row, document in zip(found, expected, strict=True):
        assert not row["tokens"].flags.owndata
        assert not row["tokens"].flags.writeable
        assert row["tokens"].dtype == document["tokens"].dtype
        assert row["tokens"].tolist() == document["tokens"].tolist()
        assert {name: row[name] for name in row if name != "tokens"} == {
            name: document[name] for name in row if name != "tokens"
        }
