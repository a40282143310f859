"""Verification finds every damage, and says where it is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from prep.catalog.catalog import Catalog, write_tables
from prep.catalog.columns import compact
from prep.catalog.names import HEADER, SHARDS, SOURCES
from prep.catalog.shard import ShardFile, ShardWriter
from prep.catalog.verify import verify_catalog

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def findings(folder: Path) -> list[str]:
    return [f"{finding.where}: {finding.what}" for finding in verify_catalog(Catalog.open(folder)).findings]


def shard_files(folder: Path) -> list[Path]:
    return sorted((folder / "shards").iterdir())


def edit_header(folder: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    header = json.loads((folder / HEADER).read_bytes())
    edit(header)
    (folder / HEADER).write_text(json.dumps(header), encoding="utf-8")


def rewrite(
    folder: Path, number: int, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]
) -> None:
    """Change the documents of a shard and make everything that is not about ids or order agree with it."""
    catalog = Catalog.open(folder)
    rows = catalog.shards().to_pylist()
    path = catalog.file(rows[number]["path"])
    with ShardFile(path) as shard:
        schema = shard.schema
        documents = change([row for batch in shard.batches() for row in batch.to_pylist()])
    with path.open("wb", buffering=0) as stream:
        writer = ShardWriter(stream, schema, None)
        writer.write(compact([pa.RecordBatch.from_pylist(documents, schema=schema)], schema))
        size, checksum = writer.finish()
    rows[number] |= {**writer.stats.row(), "file_bytes": size, "checksum": checksum}
    checksums = write_tables(folder, rows, catalog.sources())
    edit_header(folder, lambda header: header["checksums"].update(checksums))
    edit_header(
        folder,
        lambda header: header["totals"].update(
            {name: sum(row[name] for row in rows) for name in ("num_tokens", "text_bytes", "file_bytes")}
        ),
    )


def test_a_good_catalog_has_no_findings_and_its_counts_are_reported(catalog_folder: Path) -> None:
    sizes: list[int] = []
    catalog = Catalog.open(catalog_folder)
    report = verify_catalog(catalog, sizes.append)
    assert report.ok
    totals = catalog.header["totals"]
    assert (report.shards, report.documents, report.tokens) == (
        totals["num_shards"],
        totals["num_documents"],
        totals["num_tokens"],
    )
    assert sizes == [path.stat().st_size for path in shard_files(catalog_folder)]


def test_a_flipped_byte_of_a_shard_is_found(catalog_folder: Path) -> None:
    path = shard_files(catalog_folder)[1]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert any(path.name in line and "checksum: expected" in line for line in findings(catalog_folder))


def test_a_truncated_shard_is_found_with_both_sizes(catalog_folder: Path) -> None:
    path = shard_files(catalog_folder)[0]
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-10])
    found = findings(catalog_folder)
    assert any(f"size: expected {size:,} bytes, found {size - 10:,}" in line for line in found)


def test_a_missing_shard_is_found(catalog_folder: Path) -> None:
    path = shard_files(catalog_folder)[-1]
    path.unlink()
    assert findings(catalog_folder) == [f"shards/{path.name}: the file is missing"]


def test_every_damage_is_listed_not_only_the_first(catalog_folder: Path) -> None:
    first, second, third = shard_files(catalog_folder)[:3]
    first.unlink()
    second.write_bytes(b"")
    third.write_bytes(third.read_bytes() + b"x")
    found = findings(catalog_folder)
    assert all(any(path.name in line for line in found) for path in (first, second, third))


def test_two_shards_that_changed_places_are_found(catalog_folder: Path) -> None:
    first, second = shard_files(catalog_folder)[:2]
    left, right = first.read_bytes(), second.read_bytes()
    first.write_bytes(right)
    second.write_bytes(left)
    found = findings(catalog_folder)
    assert all(any(path.name in line for line in found) for path in (first, second))


@pytest.mark.parametrize("column", ["num_tokens", "checksum", "text_bytes", "max_tokens", "first_row"])
def test_an_edited_shard_table_is_found(catalog_folder: Path, column: str) -> None:
    catalog = Catalog.open(catalog_folder)
    rows = catalog.shards().to_pylist()
    rows[1][column] += 1
    write_tables(catalog_folder, rows, catalog.sources())
    assert any(line.startswith(f"{SHARDS}: checksum") for line in findings(catalog_folder))


@pytest.mark.parametrize(
    "column",
    [
        "num_documents",
        "num_tokens",
        "text_bytes",
        "file_bytes",
        "min_tokens",
        "max_tokens",
        "sum_squared_tokens",
        "first_row",
        "last_row",
    ],
)
def test_a_wrong_figure_is_found_even_where_its_table_has_the_right_checksum(
    catalog_folder: Path, column: str
) -> None:
    catalog = Catalog.open(catalog_folder)
    rows = catalog.shards().to_pylist()
    rows[1][column] += 1
    checksums = write_tables(catalog_folder, rows, catalog.sources())
    edit_header(catalog_folder, lambda header: header["checksums"].update(checksums))
    assert any(rows[1]["path"] in line for line in findings(catalog_folder))


def test_an_edited_source_table_is_found(catalog_folder: Path) -> None:
    catalog = Catalog.open(catalog_folder)
    sources = catalog.sources().to_pylist()
    sources[0]["name"] = "other.jsonl"
    write_tables(catalog_folder, catalog.shards().to_pylist(), pa.Table.from_pylist(sources))
    assert [line.partition(":")[0] for line in findings(catalog_folder)] == [SOURCES]


def test_records_of_the_sources_that_do_not_add_up_to_the_ledger_are_found(catalog_folder: Path) -> None:
    catalog = Catalog.open(catalog_folder)
    sources = catalog.sources().to_pylist()
    sources[0]["records_read"] += 1
    checksums = write_tables(catalog_folder, catalog.shards().to_pylist(), pa.Table.from_pylist(sources))
    edit_header(catalog_folder, lambda header: header["checksums"].update(checksums))
    assert findings(catalog_folder)


@pytest.mark.parametrize("name", [SHARDS, SOURCES])
def test_a_missing_table_is_a_finding(catalog_folder: Path, name: str) -> None:
    (catalog_folder / name).unlink()
    assert any(name in line for line in findings(catalog_folder))


def test_a_shard_table_without_one_of_its_columns_is_a_finding(catalog_folder: Path) -> None:
    table = pq.read_table(catalog_folder / SHARDS).drop_columns(["source_base"])
    pq.write_table(table, catalog_folder / SHARDS)
    assert any(SHARDS in line for line in findings(catalog_folder))


def test_a_path_that_leaves_the_folder_is_a_finding_among_others(catalog_folder: Path) -> None:
    shard_files(catalog_folder)[2].unlink()
    catalog = Catalog.open(catalog_folder)
    rows = catalog.shards().to_pylist()
    rows[0]["path"] = "../outside.arrow"
    write_tables(catalog_folder, rows, catalog.sources())
    found = findings(catalog_folder)
    assert any("../outside.arrow" in line for line in found)
    assert any("the file is missing" in line for line in found)


@pytest.mark.parametrize(
    "name",
    ["num_documents", "num_tokens", "text_bytes", "file_bytes", "bos_added", "eos_added", "num_shards"],
)
def test_edited_totals_of_the_header_are_found(catalog_folder: Path, name: str) -> None:
    edit_header(catalog_folder, lambda header: header["totals"].update({name: header["totals"][name] + 1}))
    assert any(name in line or "ledger" in line for line in findings(catalog_folder))


@pytest.mark.parametrize("name", ["read", "written"])
def test_a_ledger_that_does_not_add_up_is_found(catalog_folder: Path, name: str) -> None:
    edit_header(catalog_folder, lambda header: header["ledger"].update({name: 1}))
    assert any(line.startswith("ledger") for line in findings(catalog_folder))


def test_an_edited_identity_contradicts_its_fingerprint(catalog_folder: Path) -> None:
    edit_header(catalog_folder, lambda header: header["identity"].update({"processing.shuffle.seed": 99}))
    assert any("identity" in line for line in findings(catalog_folder))


def test_ids_outside_the_vocabulary_are_found(catalog_folder: Path) -> None:
    size = json.loads((catalog_folder / HEADER).read_bytes())["tokenizer"]["vocab_size"]
    rewrite(catalog_folder, 1, lambda rows: [{**rows[0], "tokens": [size, 0]}, *rows[1:]])
    assert [line for line in findings(catalog_folder) if f"id {size} is outside" in line]


def test_a_document_without_eos_is_found(catalog_folder: Path) -> None:
    rewrite(
        catalog_folder, 1, lambda rows: [*rows[:2], {**rows[2], "tokens": rows[2]["tokens"][:-1]}, *rows[3:]]
    )
    assert [line for line in findings(catalog_folder) if "does not end with EOS" in line]


def test_a_document_that_lacks_even_its_eos_is_found(catalog_folder: Path) -> None:
    rewrite(catalog_folder, 1, lambda rows: [{**rows[0], "tokens": []}, *rows[1:]])
    assert [line for line in findings(catalog_folder) if "does not end with EOS" in line]


def test_a_shard_without_bos_cannot_join_a_catalog_that_has_it(catalog_folder: Path) -> None:
    """Case Q16."""
    edit_header(catalog_folder, lambda header: header["tokenizer"].update(bos_id=0))
    found = [line for line in findings(catalog_folder) if "does not begin with BOS" in line]
    assert len(found) == len(shard_files(catalog_folder))


def test_documents_out_of_order_are_found(catalog_folder: Path) -> None:
    rewrite(catalog_folder, 1, lambda rows: [rows[1], rows[0], *rows[2:]])
    assert [line for line in findings(catalog_folder) if "not in the order of their sources" in line]


def test_a_document_that_comes_twice_is_found(catalog_folder: Path) -> None:
    rewrite(catalog_folder, 1, lambda rows: [rows[0], rows[0], *rows[2:]])
    assert [line for line in findings(catalog_folder) if "not in the order of their sources" in line]


def test_shards_in_another_order_are_found(catalog_folder: Path) -> None:
    catalog = Catalog.open(catalog_folder)
    rows = catalog.shards().to_pylist()
    checksums = write_tables(catalog_folder, [rows[1], rows[0], *rows[2:]], catalog.sources())
    edit_header(catalog_folder, lambda header: header["checksums"].update(checksums))
    assert [line for line in findings(catalog_folder) if "begins at source position" in line]


def test_documents_in_shuffled_order_are_no_finding_where_the_job_shuffles(catalog_folder: Path) -> None:
    rewrite(catalog_folder, 1, lambda rows: rows[::-1])
    edit_header(
        catalog_folder, lambda header: header["identity"].update({"processing.shuffle.documents": "block"})
    )
    assert not [line for line in findings(catalog_folder) if "order" in line or "position" in line]
