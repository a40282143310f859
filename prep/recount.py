"""Checking a catalog of raw files: everything is counted again, and every finding reported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prep.catalog.errors import TokenloomError
from prep.catalog.raw import OFFSET_BYTES, difference, list_folder, offsets_file
from prep.catalog.shard import checksum_file
from prep.catalog.verify import DAMAGE, Finding, Report, checked_tables
from prep.readers import format_of
from prep.readers.scan import scan_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from prep.catalog.catalog import Catalog


def verify_raw(catalog: Catalog, on_shard: Callable[[int], object] = lambda _: None) -> Report:
    """Check header, tables, the list of files, and their sizes, checksums, rows, text bytes and row offsets.

    Args:
        catalog: an opened catalog of raw files.
        on_shard: called with a file's size in bytes when it has been checked.
    """
    report = Report()
    rows = checked_tables(catalog, report.findings)
    report.findings += _check_list(catalog, rows)
    # Where no row of the catalog has text, that is what the nulls say.
    counted = any(row["text_bytes"] is not None for row in rows)
    for row in rows:
        report.findings += [Finding(row["path"], what) for what in _check_file(catalog, row, counted=counted)]
        report.shards += 1
        report.documents += row["num_documents"]
        on_shard(row["file_bytes"])
    return report


def _check_list(catalog: Catalog, rows: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    recorded = {row["path"]: row["file_bytes"] for row in rows}
    try:
        found = {
            name: size
            for name, size in list_folder(catalog.folder)
            if name in recorded or format_of(name) == catalog.header["data_format"]
        }
    except (OSError, TokenloomError) as error:
        yield Finding(str(catalog.folder), f"cannot be listed: {error}")
        return
    changed = difference(recorded, found)
    if rows and changed is not None:
        yield Finding(str(catalog.folder), f"the files changed: {changed}")


def _check_file(catalog: Catalog, row: Mapping[str, Any], *, counted: bool) -> Iterator[str]:
    try:
        path = catalog.file(row["path"])
        if not path.is_file():
            yield "the file is missing"
            return
        size, checksum = checksum_file(path)
        if (size, checksum) != (row["file_bytes"], row["checksum"]):
            yield (
                f"expected {row['file_bytes']:,} bytes with checksum {row['checksum']:016x}, "
                f"found {size:,} with {checksum:016x}"
            )
            return
        identity = catalog.header["identity"]
        scan = scan_file(str(path), identity["format"], identity["text_field"], decode=True)
        text_bytes = scan.text_bytes if counted else None
        for name, found in (("num_documents", scan.rows), ("text_bytes", text_bytes)):
            if row[name] != found:
                yield f"{name}: expected {row[name]}, counted {found}"
        if scan.offsets is not None:
            yield from _check_offsets(catalog, row, scan.offset_bytes())
    except (*DAMAGE, TokenloomError) as error:
        yield f"cannot be read: {error}"


def _check_offsets(catalog: Catalog, row: Mapping[str, Any], expected: bytes) -> Iterator[str]:
    path = catalog.folder / offsets_file(row["path"])
    if not path.is_file():
        yield f"row offsets: {offsets_file(row['path'])} is missing"
        return
    found = path.read_bytes()
    size = OFFSET_BYTES * (row["num_documents"] + 1)
    if len(found) != size:
        yield f"row offsets: expected {size:,} bytes, found {len(found):,}"
    if checksum_file(path)[1] != row["offsets_checksum"] or found != expected:
        yield "row offsets: differ from the catalog, or from where the rows are"
