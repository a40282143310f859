"""Catalogs of raw files: what is counted, what is refused, what changes them."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from prep import scanning
from prep.catalog.catalog import Catalog
from prep.catalog.errors import ConfigError, InputError, IntegrityError, RefusedError, StoreError
from prep.catalog.names import HEADER, SHARDS, SOURCES
from prep.catalog.raw import RAW_SHARD_TABLE, offsets_file
from prep.catalog.schema import SHARD_TABLE
from prep.index import build_catalog
from prep.lock import lock_folder
from prep.readers.scan import scan_file
from prep.recount import verify_raw
from runtime.io import Dataset

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS: list[dict[str, Any]] = [
    {"text": "plain", "n": 1},
    {"text": 'quoted "é" \n \t 東京 \U0001f600', "n": 2},
    {"text": "", "n": 3},
    {"text": "line\u2028separator\u0085inside", "n": 4},
]
TEXT_BYTES = sum(len(row["text"].encode()) for row in ROWS)


def lines(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three JSONL files: plain, gzip and zstd."""
    root = tmp_path / "raw"
    (root / "deep").mkdir(parents=True)
    (root / "b.jsonl").write_bytes(lines(ROWS))
    (root / "a.jsonl.gz").write_bytes(gzip.compress(lines(ROWS[:2]), mtime=0))
    (root / "deep" / "c.jsonl.zst").write_bytes(zstandard.ZstdCompressor().compress(lines(ROWS[2:])))
    return root


def table(folder: Path) -> list[dict[str, Any]]:
    return list(Catalog.open(folder).shards().to_pylist())


def offsets(folder: Path, path: str) -> list[int]:
    return np.fromfile(folder / offsets_file(path), "<u8").tolist()


def test_it_counts_rows_text_and_files_in_the_order_of_their_names(folder: Path) -> None:
    summary = build_catalog(folder, name="mine")
    assert (summary.name, summary.format, summary.worked) == ("mine", "jsonl", True)
    assert (summary.rows, summary.text_bytes, summary.files) == (8, 2 * TEXT_BYTES, 3)
    rows = table(folder)
    assert [row["path"] for row in rows] == ["a.jsonl.gz", "b.jsonl", "deep/c.jsonl.zst"]
    assert [row["num_documents"] for row in rows] == [2, 4, 2]
    assert [row["file_bytes"] for row in rows] == [(folder / row["path"]).stat().st_size for row in rows]
    assert {row["num_tokens"] for row in rows} == {None}
    assert verify_raw(Catalog.open(folder)).findings == []


def test_the_table_is_that_of_token_shards_and_a_column_for_the_offsets(folder: Path) -> None:
    build_catalog(folder)
    assert pq.read_schema(folder / SHARDS).names == RAW_SHARD_TABLE.names
    assert RAW_SHARD_TABLE.names == [*SHARD_TABLE.names, "offsets_checksum"]


def test_offsets_are_where_lines_begin_and_where_the_text_ends(folder: Path) -> None:
    build_catalog(folder)
    data = lines(ROWS)
    begins = [0, *(place + 1 for place, byte in enumerate(data) if byte == 10)]
    assert offsets(folder, "b.jsonl") == begins
    assert offsets(folder, "a.jsonl.gz") == begins[:3]
    assert offsets(folder, "deep/c.jsonl.zst") == [begin - begins[2] for begin in begins[2:]]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", [0]),
        (b"\n \r\n\n", [5]),
        (b'{"text": "a"}', [0, 13]),
        (b'{"text": "a"}\r\n{"text": "b"}\r\n', [0, 15, 30]),
        (b'\n{"text": "a"}\n\n  {"text": "b"}\n', [1, 16, 32]),
        (b'\xef\xbb\xbf{"text": "a"}\n', [3, 17]),
        (b'\xef\xbb\xbf\n{"text": "a"}\n', [4, 18]),
    ],
)
def test_blank_lines_byte_order_marks_and_missing_line_ends(
    tmp_path: Path, data: bytes, expected: list[int]
) -> None:
    (tmp_path / "x.jsonl").write_bytes(data)
    summary = build_catalog(tmp_path)
    assert offsets(tmp_path, "x.jsonl") == expected
    assert summary.rows == len(expected) - 1
    assert verify_raw(Catalog.open(tmp_path)).ok


def test_a_line_longer_than_a_block(tmp_path: Path) -> None:
    long = "é" * 3_000_000
    (tmp_path / "x.jsonl").write_bytes(lines([{"text": "a"}, {"text": long}, {"text": "b"}]))
    assert build_catalog(tmp_path).text_bytes == 6_000_002


@pytest.mark.parametrize(
    ("text", "size"),
    [('"\\ud800"', 3), ('"\\ud83d\\ude00"', 4), ('"\\u00e9\\n"', 3), ('"\\u0000"', 1)],
)
def test_text_counts_by_its_utf_8_after_unescaping(tmp_path: Path, text: str, size: int) -> None:
    (tmp_path / "x.jsonl").write_text(f'{{"text": {text}}}\n')
    assert build_catalog(tmp_path).text_bytes == size


def test_rows_without_text_are_counted_where_others_have_it(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "abc"}\n{"text": null}\n{"other": 1}\n')
    (tmp_path / "b.jsonl").write_text('{"other": 1}\n')
    summary = build_catalog(tmp_path)
    assert (summary.rows, summary.text_bytes, summary.without_text) == (4, 3, 3)
    assert [row["text_bytes"] for row in table(tmp_path)] == [3, 0]


def test_text_that_no_row_has_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"body": "abc"}\n')
    assert build_catalog(tmp_path).text_bytes is None
    assert [row["text_bytes"] for row in table(tmp_path)] == [None]
    assert verify_raw(Catalog.open(tmp_path)).ok
    assert Dataset.from_path("x", str(tmp_path)).raw_bytes() == [16]
    assert build_catalog(tmp_path, text_field="body", rebuild=True).text_bytes == 3


def write_arrow(path: Path, data: pa.Table, *, stream: bool = False, compression: str | None = None) -> None:
    options = pa.ipc.IpcWriteOptions(compression=compression)
    new = pa.ipc.new_stream if stream else pa.ipc.new_file
    with pa.OSFile(str(path), "wb") as sink, new(sink, data.schema, options=options) as writer:
        writer.write_table(data, max_chunksize=3)


KINDS = {
    "string": pa.string(),
    "large": pa.large_string(),
    "view": pa.string_view(),
    "binary": pa.binary(),
    "dictionary": pa.dictionary(pa.int32(), pa.string()),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fmt", ["parquet", "arrow", "stream", "zstd"])
def test_tables_with_texts_of_every_type_and_nulls(tmp_path: Path, kind: str, fmt: str) -> None:
    texts = pa.array([row["text"] for row in ROWS] + [None], pa.string()).cast(KINDS[kind])
    data = pa.table({"n": range(5), "text": texts, "nested": [[{"a": 1}]] * 5})
    if fmt == "parquet":
        pq.write_table(data, tmp_path / "x.parquet", row_group_size=2)
    else:
        write_arrow(
            tmp_path / "x.arrow", data, stream=fmt == "stream", compression="zstd" if fmt == "zstd" else None
        )
    summary = build_catalog(tmp_path)
    assert (summary.rows, summary.text_bytes, summary.without_text) == (5, TEXT_BYTES, 1)
    assert table(tmp_path)[0]["offsets_checksum"] is None


@pytest.mark.parametrize("fmt", ["parquet", "arrow"])
def test_tables_without_rows_or_without_the_field(tmp_path: Path, fmt: str) -> None:
    for name, data in (("a", pa.table({"text": pa.array([], pa.string())})), ("b", pa.table({"n": [1, 2]}))):
        if fmt == "parquet":
            pq.write_table(data, tmp_path / f"{name}.parquet")
        else:
            write_arrow(tmp_path / f"{name}.arrow", data)
    summary = build_catalog(tmp_path)
    assert (summary.rows, summary.text_bytes) == (2, None)


def test_nested_columns_are_not_decoded_for_their_neighbour(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"text": ["a"] * 1000, "nested": [[{"k": "v" * 50}]] * 1000}), path)
    column = next(
        pq.read_metadata(path).row_group(0).column(place)
        for place in range(2)
        if pq.read_metadata(path).row_group(0).column(place).path_in_schema != "text"
    )
    data = bytearray(path.read_bytes())
    begin = column.dictionary_page_offset or column.data_page_offset
    data[begin : begin + column.total_compressed_size] = bytes(column.total_compressed_size)
    path.write_bytes(data)
    assert build_catalog(tmp_path).text_bytes == 1000


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_equal_bytes_for_any_number_of_workers_and_ranges(
    folder: Path, snapshot: Callable[[Path], dict[str, bytes]], monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    build_catalog(folder, workers=0)
    before = {name: data for name, data in snapshot(folder).items() if not name.startswith("_job")}
    monkeypatch.setattr(scanning, "RANGE_BYTES", 40)
    build_catalog(folder, workers=workers, rebuild=True)
    after = {name: data for name, data in snapshot(folder).items() if not name.startswith("_job")}
    assert before == after


def test_building_again_does_nothing(folder: Path, snapshot: Callable[[Path], dict[str, bytes]]) -> None:
    build_catalog(folder)
    before = snapshot(folder)
    assert not build_catalog(folder).worked
    assert snapshot(folder) == before


def append(folder: Path) -> None:
    with (folder / "b.jsonl").open("ab") as stream:
        stream.write(b'{"text": "more"}\n')


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "resized": (append, "b.jsonl has"),
    "new": (lambda folder: (folder / "z.jsonl").write_bytes(b""), "z.jsonl is new"),
    "missing": (lambda folder: (folder / "a.jsonl.gz").unlink(), "a.jsonl.gz is missing"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_files_are_refused_by_name_and_rebuilt_when_asked_for(folder: Path, change: str) -> None:
    act, message = CHANGES[change]
    build_catalog(folder)
    act(folder)
    with pytest.raises(RefusedError, match=message):
        build_catalog(folder)
    with pytest.raises(IntegrityError, match=message):
        Dataset.from_path("x", str(folder))
    assert any(message in finding.what for finding in verify_raw(Catalog.open(folder)).findings)
    build_catalog(folder, rebuild=True)
    assert verify_raw(Catalog.open(folder)).ok
    assert Dataset.from_path("x", str(folder)).shard_count == len(table(folder))
    kept = {path.name for path in (folder / "index").rglob("*.offsets")}
    assert kept == {f"{Path(row['path']).name}.offsets" for row in table(folder)}


@pytest.mark.parametrize("argument", [{"name": "other"}, {"text_field": "body"}])
def test_other_arguments_are_refused_by_name(folder: Path, argument: dict[str, Any]) -> None:
    build_catalog(folder)
    with pytest.raises(RefusedError, match=f"{next(iter(argument))}: .*--rebuild"):
        build_catalog(folder, **argument)
    assert build_catalog(folder, rebuild=True, **argument).worked


def test_without_a_name_the_catalogs_own_stays(folder: Path) -> None:
    build_catalog(folder, name="mine")
    for rebuild in (False, True):
        assert build_catalog(folder, rebuild=rebuild).name == "mine"


def test_a_catalog_of_raw_files_has_no_documents_of_shards(folder: Path) -> None:
    build_catalog(folder)
    with pytest.raises(InputError, match="a catalog of raw files"):
        Catalog.open(folder).document(0, 0)


def test_a_changed_byte_is_found_by_verify(folder: Path) -> None:
    build_catalog(folder)
    data = bytearray((folder / "b.jsonl").read_bytes())
    data[10] ^= 1
    (folder / "b.jsonl").write_bytes(data)
    assert [finding.where for finding in verify_raw(Catalog.open(folder)).findings] == ["b.jsonl"]


@pytest.mark.parametrize("damage", [b"", b"12345678", bytes(40)])
def test_damaged_offsets_are_found_by_verify(folder: Path, damage: bytes) -> None:
    build_catalog(folder)
    (folder / offsets_file("b.jsonl")).write_bytes(damage)
    findings = verify_raw(Catalog.open(folder)).findings
    assert findings
    assert all("row offsets" in finding.what for finding in findings)


DAMAGE: dict[str, tuple[str, bytes, str]] = {
    "json": ("x.jsonl", b'{"text": "a"}\n\n{"text": \n', r"x.jsonl: row 3, byte 15: not valid JSON"),
    "object": ("x.jsonl", b'{"text": "a"}\n[1]\n', r"row 2, byte 14: expected a JSON object, found an array"),
    "type": ("x.jsonl", b'{"text": 5}\n', r"row 1, byte 0: field 'text': expected a string, found a number"),
    "utf-8": ("x.jsonl", b'{"text": "a"}\n{"text": "\xff"}\n', r"row 2, byte 14: not valid UTF-8"),
    "gzip": ("x.jsonl.gz", gzip.compress(lines(ROWS) * 50)[:-20], r"x.jsonl.gz: damaged or incomplete"),
    "zstd": ("x.jsonl.zst", zstandard.compress(lines(ROWS) * 50)[:-9], r"x.jsonl.zst: damaged or incomplete"),
    "empty gzip": ("x.jsonl.gz", b"", "an empty file is no gzip data"),
    "parquet": ("x.parquet", b"PAR1PAR1", "not a readable Parquet file"),
    "arrow": ("x.arrow", b"ARROW1\0\0", "not a complete Arrow file"),
}


@pytest.mark.parametrize("case", DAMAGE)
@pytest.mark.parametrize("workers", [0, 2])
def test_damage_is_an_error_with_its_place_and_no_catalog(tmp_path: Path, case: str, workers: int) -> None:
    name, data, message = DAMAGE[case]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match=message):
        build_catalog(tmp_path, workers=workers)
    assert not (tmp_path / HEADER).exists()


def test_damage_in_a_later_range_has_the_row_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanning, "RANGE_BYTES", 20)
    (tmp_path / "x.jsonl").write_bytes(b'{"text": "a"}\n' * 10 + b"oops\n")
    with pytest.raises(InputError, match="row 11, byte 140"):
        build_catalog(tmp_path, workers=2)


def test_a_failed_rebuild_keeps_the_catalog(folder: Path) -> None:
    build_catalog(folder)
    before = (folder / HEADER).read_bytes()
    (folder / "b.jsonl").write_bytes(b"oops\n")
    with pytest.raises(InputError):
        build_catalog(folder, rebuild=True)
    assert (folder / HEADER).read_bytes() == before


def test_what_is_hidden_or_the_catalogs_own_is_no_data(folder: Path) -> None:
    (folder / ".DS_Store").write_bytes(b"x")
    (folder / ".git").mkdir()
    (folder / ".git" / "x.txt").write_bytes(b"x")
    assert build_catalog(folder).files == build_catalog(folder, rebuild=True).files == 3


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("notes.md", "the suffix tells no format"),
        ("x.parquet", "files of several formats: jsonl .a.jsonl.gz., parquet .x.parquet."),
    ],
)
def test_other_files_are_refused_by_name(folder: Path, name: str, message: str) -> None:
    (folder / name).write_bytes(b"")
    with pytest.raises(InputError, match=message):
        build_catalog(folder)


def test_json_and_text_files_are_refused_with_what_is_known(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(b'{"text": "a"}\n')
    with pytest.raises(InputError, match=r"format json: .*--format jsonl"):
        build_catalog(tmp_path)
    assert build_catalog(tmp_path, fmt="jsonl").rows == 1


def test_folders_without_files_and_files_instead_of_folders(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no raw files"):
        build_catalog(tmp_path)
    (tmp_path / "x.jsonl").write_bytes(b"")
    with pytest.raises(InputError, match="expected a folder"):
        build_catalog(tmp_path / "x.jsonl")
    with pytest.raises(InputError, match="expected a folder"):
        build_catalog(tmp_path / "nowhere")


def test_a_link_to_a_folder_is_refused(folder: Path) -> None:
    (folder / "link").symlink_to(folder / "deep")
    with pytest.raises(InputError, match="a link to a folder"):
        build_catalog(folder)


def test_a_link_to_a_file_is_that_file(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere.jsonl").write_bytes(lines(ROWS))
    (folder / "z.jsonl").symlink_to(tmp_path / "elsewhere.jsonl")
    assert build_catalog(folder).rows == 12
    assert Dataset.from_path("x", str(folder)).total == 12


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (os.mkfifo, r"z\.jsonl: no regular file"),
        (lambda path: path.symlink_to(path.parent / "nowhere"), r"z\.jsonl: cannot be read"),
    ],
)
def test_what_is_no_file_is_refused(folder: Path, make: Callable[[Path], object], message: str) -> None:
    make(folder / "z.jsonl")
    with pytest.raises(InputError, match=message):
        build_catalog(folder)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may list every folder")
def test_a_folder_that_cannot_be_listed_is_refused(folder: Path) -> None:
    (folder / "deep").chmod(0)
    try:
        with pytest.raises(InputError, match="deep: cannot be listed"):
            build_catalog(folder)
    finally:
        (folder / "deep").chmod(0o700)


@pytest.mark.parametrize("argument", [{"fmt": "txt"}, {"workers": -1}, {"workers": "many"}, {"name": ""}])
def test_wrong_arguments_are_configuration_errors(folder: Path, argument: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=str(next(iter(argument.values())) or "name")):
        build_catalog(folder, **argument)


def test_a_catalog_of_token_shards_is_never_overwritten(
    catalog_folder: Path, snapshot: Callable[[Path], dict[str, bytes]]
) -> None:
    before = snapshot(catalog_folder)
    for rebuild in (False, True):
        with pytest.raises(RefusedError, match="catalog of token shards"):
            build_catalog(catalog_folder, rebuild=rebuild)
    assert snapshot(catalog_folder) == before
    (catalog_folder / HEADER).unlink()
    with pytest.raises(RefusedError, match="unfinished job"):
        build_catalog(catalog_folder)


@pytest.mark.parametrize("name", [SHARDS, SOURCES])
def test_a_users_file_with_the_name_of_a_table_is_never_overwritten(tmp_path: Path, name: str) -> None:
    pq.write_table(pa.table({"text": ["a"]}), tmp_path / name)
    with pytest.raises(RefusedError, match=f"{name}: .*rename the file"):
        build_catalog(tmp_path)


def test_tables_of_a_build_that_was_cut_off_are_written_anew(folder: Path) -> None:
    build_catalog(folder)
    (folder / HEADER).unlink()
    assert build_catalog(folder).worked
    assert verify_raw(Catalog.open(folder)).ok


def test_data_in_a_folder_named_index_is_data(tmp_path: Path) -> None:
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "x.jsonl").write_bytes(lines(ROWS))
    assert build_catalog(tmp_path).rows == 4
    assert not build_catalog(tmp_path).worked
    assert (tmp_path / "index" / "index" / "x.jsonl.offsets").exists()


def test_a_moved_folder_has_the_same_catalog(folder: Path, tmp_path: Path) -> None:
    build_catalog(folder)
    fingerprint = Dataset.from_path("x", str(folder)).fingerprint
    moved = shutil.copytree(folder, tmp_path / "moved")
    assert Dataset.from_path("x", str(moved)).fingerprint == fingerprint


def test_a_folder_that_cannot_be_written_is_a_store_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Path, *_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "mkdir", fail)
    with pytest.raises(StoreError, match="Permission denied"):
        build_catalog(folder)


def test_a_write_that_fails_leaves_no_catalog_and_the_next_run_makes_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch, snapshot: Callable[[Path], dict[str, bytes]]
) -> None:
    build_catalog(folder)
    before = {name: data for name, data in snapshot(folder).items() if not name.startswith("_job")}

    def fail(*_: Any, **__: Any) -> None:
        raise StoreError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("prep.index.write_tables", fail)
        with pytest.raises(StoreError, match="No space"):
            build_catalog(folder, rebuild=True)
    with pytest.raises(IntegrityError, match="unfinished job"):
        Dataset.from_path("x", str(folder))
    build_catalog(folder)
    assert {name: data for name, data in snapshot(folder).items() if not name.startswith("_job")} == before


def test_two_builds_at_once_are_refused(folder: Path) -> None:
    (folder / "_job").mkdir()
    with lock_folder(folder / "_job", "x"), pytest.raises(RefusedError, match="another run is working"):
        build_catalog(folder)


def test_a_file_that_changes_while_it_is_read_is_an_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scan(path: str, *arguments: Any) -> Any:
        result = scan_file(path, *arguments)
        append(folder)
        return result

    monkeypatch.setattr(scanning, "scan_file", scan)
    with pytest.raises(InputError, match=r"b\.jsonl: (it was changed while|expected)"):
        build_catalog(folder, workers=0)


def test_progress_counts_files_bytes_and_rows(folder: Path) -> None:
    seen = []
    build_catalog(folder, on_progress=seen.append)
    assert [progress.files for progress in seen] == [1, 2, 3]
    assert seen[-1].bytes == seen[-1].total_bytes
    assert seen[-1].rows == 8
