"""Checking a catalog against its files. Every finding is reported, not only the first."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from prep.catalog.columns import flat_values
from prep.catalog.errors import IntegrityError
from prep.catalog.names import SHARDS, SOURCES
from prep.catalog.schema import offsets_of
from prep.catalog.shard import ShardFile, ShardStats, checksum_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    import pyarrow as pa

    from prep.catalog.catalog import Catalog

RECOUNTED = ("num_documents", "num_tokens", "text_bytes", "min_tokens", "max_tokens", "sum_squared_tokens")
TOTALS = ("num_documents", "num_tokens", "text_bytes", "file_bytes", "bos_added", "eos_added")


class Finding(NamedTuple):
    """Something that is not as the catalog says."""

    where: str
    what: str


@dataclass
class Report:
    """What a verification found."""

    shards: int = 0
    documents: int = 0
    tokens: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.findings


def verify_catalog(catalog: Catalog, on_shard: Callable[[int], object] = lambda _: None) -> Report:
    """Check tables, files, sizes, checksums, counts, ids, boundaries and order.

    Args:
        catalog: an opened catalog of token shards.
        on_shard: called with a shard's size in bytes when it has been checked.
    """
    report = Report()
    report.findings += _check_tables(catalog)
    rows = catalog.shards().to_pylist()
    report.findings += _check_totals(catalog.header, rows)
    previous: tuple[int, int] | None = None
    ordered = catalog.header["identity"].get("processing.shuffle.documents", "none") == "none"
    for row in rows:
        path = catalog.file(row["path"])
        for what in _check_shard(path, row, catalog.header, report):
            report.findings.append(Finding(row["path"], what))
        first = (row["source_base"] + row["first_file"], row["first_row"])
        if ordered and previous is not None and first <= previous:
            report.findings.append(
                Finding(row["path"], f"begins at source position {first}, after {previous}")
            )
        previous = (row["source_base"] + row["last_file"], row["last_row"])
        report.shards += 1
        on_shard(row["file_bytes"])
    return report


def _check_tables(catalog: Catalog) -> Iterator[Finding]:
    for name in (SHARDS, SOURCES):
        expected, found = catalog.header["checksums"].get(name), catalog.table_checksum(name)
        if expected != found:
            yield Finding(name, f"checksum: expected {expected}, found {found}")


def _check_totals(header: Mapping[str, Any], rows: list[dict[str, Any]]) -> Iterator[Finding]:
    totals, ledger = header["totals"], header["ledger"]
    for name in TOTALS:
        found = sum(row[name] for row in rows)
        if totals[name] != found:
            yield Finding(SHARDS, f"{name}: the header says {totals[name]:,}, the rows add up to {found:,}")
    accounted = ledger["written"] + sum(ledger["rejected"].values())
    if ledger["read"] != accounted or ledger["written"] != totals["num_documents"]:
        yield Finding(
            "ledger",
            f"read {ledger['read']:,}, written {ledger['written']:,} and rejected do not add up "
            f"({accounted:,}) or differ from {totals['num_documents']:,} documents",
        )


def _check_shard(
    path: Path, row: Mapping[str, Any], header: Mapping[str, Any], report: Report
) -> Iterator[str]:
    if not path.is_file():
        yield "the file is missing"
        return
    size, checksum = checksum_file(path)
    if size != row["file_bytes"]:
        yield f"size: expected {row['file_bytes']:,} bytes, found {size:,}"
    if checksum != row["checksum"]:
        yield f"checksum: expected {row['checksum']:016x}, found {checksum:016x}"
    try:
        with ShardFile(path) as shard:
            yield from _check_rows(shard, row, header, report)
    except (IntegrityError, OSError, ValueError) as error:
        yield str(error)


def _check_rows(
    shard: ShardFile, row: Mapping[str, Any], header: Mapping[str, Any], report: Report
) -> Iterator[str]:
    stats = ShardStats()
    ordered = header["identity"].get("processing.shuffle.documents", "none") == "none"
    last = -1
    for batch in shard.batches():
        stats.add(batch)
        yield from _check_ids(batch, header)
        if ordered and batch.num_rows:
            positions = (batch.column("source_file").to_numpy().astype(np.int64) << 40) + batch.column(
                "source_row"
            ).to_numpy().astype(np.int64)
            if int(positions[0]) <= last or bool((np.diff(positions) <= 0).any()):
                yield "documents are not in the order of their sources"
            last = int(positions[-1])
    report.documents += stats.num_documents
    report.tokens += stats.num_tokens
    counted = stats.row()
    for name in RECOUNTED:
        if counted[name] != row[name]:
            yield f"{name}: expected {row[name]:,}, counted {counted[name]:,}"
    if counted["length_histogram"] != row["length_histogram"]:
        yield "length_histogram: differs from a recount"


def _check_ids(batch: pa.RecordBatch, header: Mapping[str, Any]) -> Iterator[str]:
    tokenizer = header["tokenizer"]
    column = batch.column("tokens")
    ids, offsets = flat_values(column), offsets_of(column)
    if not len(ids):
        return
    offsets = offsets - offsets[0]
    largest = int(ids.max())
    if largest >= tokenizer["vocab_size"]:
        yield f"id {largest} is outside the vocabulary of {tokenizer['vocab_size']:,}"
    filled = np.diff(offsets) > 0
    if tokenizer["bos_id"] is not None and not bool((ids[offsets[:-1][filled]] == tokenizer["bos_id"]).all()):
        yield "a document does not begin with BOS"
    if tokenizer["eos_id"] is not None and not bool(
        (ids[offsets[1:][filled] - 1] == tokenizer["eos_id"]).all()
    ):
        yield "a document does not end with EOS"
