"""Checking a catalog against its files. Every finding is reported, not only the first."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from prep.catalog.catalog import TOTALS
from prep.catalog.columns import flat_values
from prep.catalog.errors import IntegrityError
from prep.catalog.fingerprint import fingerprint
from prep.catalog.names import HEADER, SHARDS, SOURCES, TOKENIZER
from prep.catalog.raw import RAW_SHARD_TABLE
from prep.catalog.schema import SHARD_TABLE, SOURCE_TABLE, offsets_of
from prep.catalog.shard import ShardFile, ShardStats, checksum_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from prep.catalog.catalog import Catalog

    Row = Mapping[str, Any]

RECOUNTED = ("num_documents", "num_tokens", "text_bytes", "min_tokens", "max_tokens", "sum_squared_tokens")
ROW_SHIFT = 40
DAMAGE = (IntegrityError, OSError, ValueError, LookupError, TypeError, pa.ArrowException)
"""What reading damaged files may raise."""


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
    """Check header, tables, files, sizes, checksums, counts, ids, boundaries and order.

    Args:
        catalog: an opened catalog of token shards.
        on_shard: called with a shard's size in bytes when it has been checked.
    """
    report = Report()
    try:
        _compare_checksum(catalog, TOKENIZER, report.findings)
    except OSError:
        report.findings.append(Finding(TOKENIZER, "the file is missing"))
    for row in checked_tables(catalog, report.findings):
        report.findings += [Finding(row["path"], what) for what in _check_shard(catalog, row, report)]
        report.shards += 1
        on_shard(row["file_bytes"])
    return report


def checked_tables(catalog: Catalog, findings: list[Finding]) -> list[dict[str, Any]]:
    """Check what needs no shard: header, tables, totals, order. Returns the rows of the shards."""
    if fingerprint(catalog.header["identity"]) != catalog.header["identity_fingerprint"]:
        findings.append(Finding(HEADER, "identity: differs from identity_fingerprint"))
    shards, sources = (_read_table(catalog, name, findings) for name in (SHARDS, SOURCES))
    findings += _check_ledger(catalog.header, sources)
    if shards is None:
        return []
    findings += _check_totals(catalog.header, shards)
    findings += _check_order(catalog.header, shards)
    return shards


def _is_ordered(header: Row) -> bool:
    return bool(header["identity"].get("processing.shuffle.documents", "none") == "none")


def _read_table(catalog: Catalog, name: str, findings: list[Finding]) -> list[dict[str, Any]] | None:
    """A table's rows; None, with a finding, where it cannot be read."""
    try:
        _compare_checksum(catalog, name, findings)
        table = catalog.shards() if name == SHARDS else catalog.sources()
        shard_table = RAW_SHARD_TABLE if catalog.is_raw else SHARD_TABLE
        schema = shard_table if name == SHARDS else SOURCE_TABLE
        if table.schema.names != schema.names:
            raise IntegrityError(f"columns: expected {schema.names}, found {table.schema.names}")
        table = table.cast(schema)
        table.validate(full=True)
        return list(table.to_pylist())
    except FileNotFoundError:
        findings.append(Finding(name, "the file is missing"))
    except DAMAGE as error:
        findings.append(Finding(name, f"cannot be read: {error}"))
    return None


def _compare_checksum(catalog: Catalog, name: str, findings: list[Finding]) -> None:
    expected, found = catalog.header["checksums"][name], catalog.checksum(name)
    if expected != found:
        findings.append(Finding(name, f"checksum: expected {expected}, found {found}"))


def _check_ledger(header: Row, sources: Sequence[Row] | None) -> Iterator[Finding]:
    totals, ledger = header["totals"], header["ledger"]
    accounted = ledger["written"] + sum(ledger["rejected"].values())
    if ledger["read"] != accounted or ledger["written"] != totals["num_documents"]:
        yield Finding(
            "ledger",
            f"read {ledger['read']:,}; written and rejected add up to {accounted:,}; "
            f"documents {totals['num_documents']:,}",
        )
    if sources is None:
        return
    read = sum(row["records_read"] for row in sources)
    rejected = sum(row["records_rejected"] for row in sources)
    if (read, read - rejected, len(sources)) != (ledger["read"], ledger["written"], totals["num_sources"]):
        yield Finding(
            SOURCES,
            f"{len(sources):,} rows, records read {read:,}, rejected {rejected:,}: differ from the header",
        )


def _check_totals(header: Row, rows: Sequence[Row]) -> Iterator[Finding]:
    totals = header["totals"]
    if totals["num_shards"] != len(rows):
        yield Finding(
            SHARDS, f"num_shards: the header says {totals['num_shards']:,}, there are {len(rows):,} rows"
        )
    for name in TOTALS:
        values = [row[name] for row in rows]
        found = None if None in values else sum(values)
        if totals[name] != found:
            said, counted = (
                "nothing" if number is None else f"{number:,}" for number in (totals[name], found)
            )
            yield Finding(SHARDS, f"{name}: the header says {said}, the rows add up to {counted}")


def _check_order(header: Row, rows: Sequence[Row]) -> Iterator[Finding]:
    previous: tuple[int, int] | None = None
    for row in rows if _is_ordered(header) else ():
        first = (row["source_base"] + row["first_file"], row["first_row"])
        if previous is not None and first <= previous:
            yield Finding(row["path"], f"begins at source position {first}, after {previous}")
        previous = (row["source_base"] + row["last_file"], row["last_row"])


def _check_shard(catalog: Catalog, row: Row, report: Report) -> Iterator[str]:
    try:
        path = catalog.file(row["path"])
        if not path.is_file():
            yield "the file is missing"
            return
        size, checksum = checksum_file(path)
        if size != row["file_bytes"]:
            yield f"size: expected {row['file_bytes']:,} bytes, found {size:,}"
        if checksum != row["checksum"]:
            # What a damaged file holds is not worth counting, and may not even be safe to look at.
            yield f"checksum: expected {row['checksum']:016x}, found {checksum:016x}"
            return
        with ShardFile(path) as shard:
            yield from _check_rows(shard, row, catalog.header, report)
    except DAMAGE as error:
        yield f"cannot be read: {error}"


def _check_rows(shard: ShardFile, row: Row, header: Row, report: Report) -> Iterator[str]:
    stats = ShardStats()
    found: set[str] = set()
    last = first = None
    for batch in shard.batches():
        stats.add(batch)
        found.update(_check_ids(batch, header["tokenizer"]))
        places = _places(batch)
        if not len(places):
            continue
        if _is_ordered(header) and (
            bool((np.diff(places) <= 0).any()) or (last is not None and int(places[0]) <= last)
        ):
            found.add("documents are not in the order of their sources")
        first, last = int(places[0]) if first is None else first, int(places[-1])
    yield from sorted(found)
    report.documents += stats.num_documents
    report.tokens += stats.num_tokens
    counted = stats.row()
    for name in RECOUNTED:
        if counted[name] != row[name]:
            yield f"{name}: expected {row[name]}, counted {counted[name]}"
    if counted["length_histogram"] != row["length_histogram"]:
        yield "length_histogram: differs from a recount"
    for name, place in (("first", first), ("last", last)):
        if place != (row[f"{name}_file"] << ROW_SHIFT) + row[f"{name}_row"]:
            yield f"{name}_file, {name}_row: differ from the {name} document"


def _places(batch: pa.RecordBatch) -> NDArray[np.int64]:
    """Source file and row of each document as one number."""
    files: NDArray[np.int64] = batch.column("source_file").to_numpy().astype(np.int64)
    rows: NDArray[np.int64] = batch.column("source_row").to_numpy().astype(np.int64)
    return (files << ROW_SHIFT) + rows


def _check_ids(batch: pa.RecordBatch, tokenizer: Row) -> Iterator[str]:
    column = batch.column("tokens")
    ids, offsets = flat_values(column), offsets_of(column)
    offsets = offsets - offsets[0]
    if len(ids) and int(ids.max()) >= tokenizer["vocab_size"]:
        yield f"id {int(ids.max())} is outside the vocabulary of {tokenizer['vocab_size']:,}"
    filled = np.diff(offsets) > 0
    for name, edges in (("bos", offsets[:-1][filled]), ("eos", offsets[1:][filled] - 1)):
        wanted = tokenizer[f"{name}_id"]
        if wanted is not None and not (filled.all() and bool((ids[edges] == wanted).all())):
            yield f"a document does not {'begin' if name == 'bos' else 'end'} with {name.upper()}"
