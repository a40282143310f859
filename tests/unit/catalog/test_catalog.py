"""Opening a catalog, finding documents in it, and what is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from prep.catalog.catalog import Catalog, write_header, write_tables
from prep.catalog.errors import InputError, IntegrityError
from prep.catalog.names import HEADER, JOB_FOLDER, SHARDS, SOURCES
from prep.catalog.schema import FORMAT_VERSION, SHARD_TABLE, SOURCE_TABLE
from prep.catalog.shard import ShardFile

if TYPE_CHECKING:
    from pathlib import Path


def edit_header(folder: Path, **changes: Any) -> None:
    header = json.loads((folder / HEADER).read_bytes())
    header.update(changes)
    (folder / HEADER).write_text(json.dumps({key: value for key, value in header.items() if value != ...}))


def test_it_opens_by_its_folder_or_its_header(catalog_folder: Path) -> None:
    for path in (catalog_folder, catalog_folder / HEADER, str(catalog_folder)):
        catalog = Catalog.open(path)
        assert catalog.folder == catalog_folder
        assert catalog.name == "finished"


def test_the_tables_have_the_columns_of_the_format(catalog_folder: Path) -> None:
    assert pq.read_schema(catalog_folder / SHARDS).remove_metadata().equals(SHARD_TABLE)
    assert pq.read_schema(catalog_folder / SOURCES).remove_metadata().equals(SOURCE_TABLE)


def test_columns_are_read_only_as_asked_for(catalog_folder: Path) -> None:
    catalog = Catalog.open(catalog_folder)
    assert catalog.shards(["num_tokens", "path"]).column_names == ["num_tokens", "path"]
    assert catalog.sources(["name"]).column("name").to_pylist() == ["a.jsonl", "b.jsonl"]


def test_header_tables_and_shards_agree(catalog_folder: Path) -> None:
    catalog = Catalog.open(catalog_folder)
    totals, rows = catalog.header["totals"], catalog.shards().to_pylist()
    assert totals["num_shards"] == len(rows) > 2
    for row in rows:
        with ShardFile(catalog.file(row["path"])) as shard:
            lengths = [len(shard.row(index)["tokens"]) for index in range(len(shard))]
        assert (row["num_documents"], row["num_tokens"]) == (len(lengths), sum(lengths))
    for name in ("num_documents", "num_tokens", "text_bytes", "file_bytes", "eos_added"):
        assert totals[name] == sum(row[name] for row in rows)
    assert totals["eos_added"] == totals["num_documents"] == 121
    assert totals["bos_added"] == 0


def test_the_ledger_of_the_header_is_that_of_the_sources(catalog_folder: Path) -> None:
    catalog = Catalog.open(catalog_folder)
    ledger, sources = catalog.header["ledger"], catalog.sources().to_pylist()
    assert [source["records_read"] for source in sources] == [80, 45]
    assert [source["records_rejected"] for source in sources] == [3, 1]
    assert ledger["read"] == 125
    assert ledger["written"] == 121
    assert ledger["rejected"]["bad_record"] == sum(ledger["rejected"].values()) == 4


def test_shard_rows_are_in_order_and_name_their_first_and_last_document(catalog_folder: Path) -> None:
    catalog = Catalog.open(catalog_folder)
    rows = catalog.shards().to_pylist()
    assert [(row["part"], row["task"], row["index"]) for row in rows] == [(0, 0, i) for i in range(len(rows))]
    for row in rows:
        with ShardFile(catalog.file(row["path"])) as shard:
            for number, edge in ((0, "first"), (len(shard) - 1, "last")):
                found = shard.row(number)
                assert (found["source_file"], found["source_row"]) == (
                    row[f"{edge}_file"],
                    row[f"{edge}_row"],
                )


def test_every_document_is_found_by_its_number(catalog_folder: Path) -> None:
    catalog = Catalog.open(catalog_folder)
    identifiers = [f"a.jsonl-{row}" for row in range(80) if (row + 1) % 25]
    identifiers += [f"b.jsonl-{row}" for row in range(45) if (row + 1) % 25]
    for number, identifier in enumerate(identifiers):
        found = catalog.document(*catalog.locate(number))
        assert found["id"] == identifier
        assert found["source"] == identifier[:7]
        assert (found["source_row"], found["n"]) == (int(identifier[8:]), int(identifier[8:]))


@pytest.mark.parametrize("document", [-1, 121, 10**12])
def test_a_document_that_is_not_there_is_an_input_error_with_the_range(
    catalog_folder: Path, document: int
) -> None:
    with pytest.raises(InputError, match="expected 0 to 120"):
        Catalog.open(catalog_folder).locate(document)


@pytest.mark.parametrize(("shard", "row"), [(-1, 0), (99, 0), (0, -1), (0, 10**6)])
def test_a_shard_or_row_that_is_not_there_is_an_input_error(
    catalog_folder: Path, shard: int, row: int
) -> None:
    with pytest.raises(InputError, match="expected 0 to"):
        Catalog.open(catalog_folder).document(shard, row)


def test_provenance_adds_the_base_of_the_shard(catalog_folder: Path) -> None:
    catalog = Catalog.open(catalog_folder)
    rows = catalog.shards().to_pylist()
    moved = [{**row, "source_base": row["source_base"] + 1} for row in rows]
    sources = catalog.sources()
    write_tables(catalog_folder, moved, pa.concat_tables([sources.slice(1, 1), sources]))
    assert catalog.document(0, 0)["source"] == "a.jsonl"
    assert catalog.document(len(rows) - 1, 0)["source"] == "b.jsonl"


def test_a_folder_without_header_is_no_dataset(catalog_folder: Path, tmp_path: Path) -> None:
    (catalog_folder / HEADER).unlink()
    with pytest.raises(IntegrityError, match="unfinished job"):
        Catalog.open(catalog_folder)
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(IntegrityError, match="no catalog"):
            Catalog.open(path)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'"x"', b"\xff\xfe", b'{"format": "other"}'])
def test_a_header_that_is_none_is_refused_with_its_path(catalog_folder: Path, content: bytes) -> None:
    (catalog_folder / HEADER).write_bytes(content)
    with pytest.raises(IntegrityError, match=HEADER):
        Catalog.open(catalog_folder)


@pytest.mark.parametrize("found", [FORMAT_VERSION + 1, 0, "1", None])
def test_another_format_version_is_refused_with_both_numbers(catalog_folder: Path, found: Any) -> None:
    edit_header(catalog_folder, format_version=found)
    with pytest.raises(IntegrityError) as raised:
        Catalog.open(catalog_folder)
    assert f"expected {FORMAT_VERSION}, found {found!r}" in str(raised.value)


@pytest.mark.parametrize("name", ["name", "totals", "tokenizer", "identity", "ledger", "checksums"])
def test_a_header_without_one_of_its_fields_is_refused_by_that_name(catalog_folder: Path, name: str) -> None:
    edit_header(catalog_folder, **{name: ...})
    with pytest.raises(IntegrityError, match=name):
        Catalog.open(catalog_folder)


@pytest.mark.parametrize("path", ["../x.arrow", "/etc/passwd", "shards/../../x", ""])
def test_a_shard_path_never_leaves_the_folder(catalog_folder: Path, path: str) -> None:
    with pytest.raises(IntegrityError, match="leaves the catalog's folder"):
        Catalog.open(catalog_folder).file(path)


@pytest.mark.parametrize("name", [SHARDS, SOURCES])
def test_a_table_that_cannot_be_read_is_an_integrity_error_with_its_path(
    catalog_folder: Path, name: str
) -> None:
    catalog = Catalog.open(catalog_folder)
    read = catalog.shards if name == SHARDS else catalog.sources
    data = (catalog_folder / name).read_bytes()
    for damaged in (data[: len(data) // 2], b"", b"PAR1PAR1"):
        (catalog_folder / name).write_bytes(damaged)
        with pytest.raises(IntegrityError, match=name):
            read()
    (catalog_folder / name).unlink()
    with pytest.raises(IntegrityError, match=name):
        read()


def test_equal_tables_have_equal_bytes(catalog_folder: Path, tmp_path: Path) -> None:
    catalog = Catalog.open(catalog_folder)
    checksums = write_tables(tmp_path, catalog.shards().to_pylist(), catalog.sources())
    assert checksums.items() <= catalog.header["checksums"].items()
    for name in (SHARDS, SOURCES):
        assert (tmp_path / name).read_bytes() == (catalog_folder / name).read_bytes()
        assert catalog.checksum(name) == checksums[name]


def test_equal_headers_have_equal_bytes_whatever_the_order_of_the_fields(tmp_path: Path) -> None:
    written = []
    for header in ({"name": "ü", "a": 1}, {"a": 1, "name": "ü"}):
        write_header(tmp_path, header)
        written.append((tmp_path / HEADER).read_bytes())
    assert written[0] == written[1]
    assert "ü".encode() in written[0]


def test_a_catalog_outlives_its_job_folder(catalog_folder: Path) -> None:
    for path in sorted((catalog_folder / JOB_FOLDER).rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (catalog_folder / JOB_FOLDER).rmdir()
    catalog = Catalog.open(catalog_folder)
    assert catalog.document(*catalog.locate(5))["id"] == "a.jsonl-5"
