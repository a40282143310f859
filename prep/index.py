"""The scan that makes a catalog of raw files: JSONL, Parquet or Arrow, as they lie in a folder.

The catalog is written into that folder. Its bytes are a function of the files, their relative names and the
arguments, whatever the number of workers.
"""

from __future__ import annotations

import logging
import shutil
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import xxhash

from prep.catalog.catalog import TOTALS, Catalog, write_header, write_tables
from prep.catalog.commit import atomic_write, fsync_folder, store_errors
from prep.catalog.errors import ConfigError, InputError, RefusedError
from prep.catalog.fingerprint import fingerprint
from prep.catalog.names import HEADER, JOB_FOLDER, SHARDS, SOURCES
from prep.catalog.raw import (
    INDEX_FOLDER,
    OFFSETS_SUFFIX,
    RAW_SHARD_TABLE,
    difference,
    list_folder,
    offsets_file,
)
from prep.catalog.schema import SOURCE_TABLE
from prep.lock import lock_folder
from prep.pipeline.resources import available_processors
from prep.readers import SUFFIXES, format_of
from prep.scanning import scan_files

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from prep.readers.scan import FileScan
    from prep.scanning import BuildProgress

log = logging.getLogger(__name__)

FORMATS = ("jsonl", "parquet", "arrow")
WORKER_BYTES = 64 << 20
"""What a further process has to have to do; less is done sooner than it starts."""


@dataclass(frozen=True)
class BuildSummary:
    """What a catalog of raw files says in total.

    Attributes:
        worked: False if the catalog was there and the files have not changed.
        text_bytes: None if no row has the text field.
        without_text: rows that lack it, where others have it.
    """

    name: str
    path: str
    worked: bool
    format: str
    text_field: str
    rows: int
    text_bytes: int | None
    file_bytes: int
    files: int
    without_text: int


def build_catalog(
    path: Path | str,
    *,
    name: str | None = None,
    fmt: str = "auto",
    text_field: str = "text",
    workers: int | str = "auto",
    rebuild: bool = False,
    on_progress: Callable[[BuildProgress], object] = lambda _: None,
) -> BuildSummary:
    """Describe the raw files below a folder by a catalog in it, or find that this is done.

    Args:
        path: a local folder of JSONL (plain, .gz, .zst), Parquet or Arrow files, all of one format.
        name: the dataset's name; default: that of the catalog that is there, or the folder's.
        fmt: "jsonl", "parquet" or "arrow"; "auto": by suffix.
        text_field: the field whose length is counted.
        workers: processes; "auto": as many as there are processors and work for; 0: none but this one.
        rebuild: make it anew, whatever is there.
        on_progress: called after each file, and each range of a large one.

    Raises:
        ConfigError: an argument is wrong, or the folder holds no raw files of one format.
        InputError: a file or a row of it is damaged.
        RefusedError: the folder holds another catalog, or the files have changed and `rebuild` is not set.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise InputError(f"{folder}: expected a folder of raw files")
    if fmt not in ("auto", *FORMATS):
        raise ConfigError(f"format {fmt!r}: expected auto, {', '.join(FORMATS)}")
    _refuse_other_catalog(folder)
    name = _default_name(folder) if name is None else name
    if not name:
        raise ConfigError("name: expected a text that is not empty")
    files = _list_files(folder, fmt)
    kind = _format(folder, files, fmt)
    identity = _identity(name, kind, text_field, files)
    job = folder / JOB_FOLDER
    with store_errors(folder):
        job.mkdir(exist_ok=True)
    count = _workers(workers, files)
    with lock_folder(job, "work on another folder"):
        if (folder / HEADER).exists() and not rebuild:
            return _found(folder, identity, files)
        scratch = job / "tmp"
        with store_errors(folder):
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir()
        rows = [FileRow(name, size) for name, size in files.items()]
        located = [(str(folder / row.name), row.size) for row in rows]
        with closing(scan_files(located, kind, text_field, workers=count, on_progress=on_progress)) as scans:
            for number, scan in scans:
                rows[number].take(scan, scratch / str(number))
        header = _write(folder, identity, rows, scratch)
    return summarize(folder, header, worked=True)


def summarize(folder: Path, header: Mapping[str, Any], *, worked: bool) -> BuildSummary:
    """The summary of a catalog of raw files."""
    totals = header["totals"]
    return BuildSummary(
        name=header["name"],
        path=str(folder),
        worked=worked,
        format=header["data_format"],
        text_field=header["identity"]["text_field"],
        rows=totals["num_documents"],
        text_bytes=totals["text_bytes"],
        file_bytes=totals["file_bytes"],
        files=totals["num_shards"],
        without_text=header["ledger"]["without_text"],
    )


def _default_name(folder: Path) -> str:
    return Catalog.open(folder).name if (folder / HEADER).exists() else folder.resolve().name


def _identity(name: str, kind: str, text_field: str, files: Mapping[str, int]) -> dict[str, Any]:
    """What decides the catalog's bytes, but for the files' content."""
    return {
        "name": name,
        "kind": "raw",
        "format": kind,
        "text_field": text_field,
        "sources.count": len(files),
        "sources.bytes": sum(files.values()),
        "sources.fingerprint": fingerprint(list(map(list, files.items()))),
    }


def _refuse_other_catalog(folder: Path) -> None:
    """Leave alone what another command wrote, and files that only have the name of a table."""
    if (folder / HEADER).exists() and Catalog.open(folder).header["kind"] != "raw":
        raise RefusedError(
            f"{folder}: holds a catalog of token shards, which `tokenloom pretokenize` wrote; "
            "give the folder of the raw files"
        )
    if (folder / JOB_FOLDER / "job.json").exists():
        raise RefusedError(
            f"{folder}: holds an unfinished job of `tokenloom pretokenize`; give another folder"
        )
    for table, columns in ((SHARDS, RAW_SHARD_TABLE.names), (SOURCES, SOURCE_TABLE.names)):
        if (
            (folder / table).exists()
            and not (folder / HEADER).exists()
            and _columns(folder / table) != columns
        ):
            raise RefusedError(
                f"{folder / table}: the catalog needs this name for its table; rename the file"
            )


def _columns(path: Path) -> list[str]:
    import pyarrow.parquet as pq  # noqa: PLC0415 - rarely needed

    try:
        return list(pq.read_schema(path).names)
    except (OSError, pa.ArrowException):
        return []


def _list_files(folder: Path, fmt: str) -> dict[str, int]:
    """The raw files by relative name, sorted: name to size."""
    files = dict(sorted(list_folder(folder)))
    if not files:
        raise InputError(f"{folder}: no raw files in it")
    for name in files:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise InputError(f"{folder}: file {name!r}: the name is not UTF-8; rename it") from None
        if fmt == "auto" and format_of(name) is None:
            raise InputError(
                f"{folder / name}: the suffix tells no format. Known suffixes: {', '.join(SUFFIXES)}; "
                "move the file away, give its name a leading dot, or say with --format what all files are"
            )
    return files


def _format(folder: Path, files: Mapping[str, int], fmt: str) -> str:
    found: dict[str, str] = {}
    for name in files:
        found.setdefault(str(format_of(name)) if fmt == "auto" else fmt, name)
    if len(found) > 1:
        examples = ", ".join(f"{kind} ({name})" for kind, name in sorted(found.items()))
        raise InputError(
            f"{folder}: files of several formats: {examples}. A catalog describes one; "
            "put each format into a folder of its own"
        )
    kind, name = next(iter(found.items()))
    if kind not in FORMATS:
        raise InputError(
            f"{folder / name}: format {kind}: catalogs of raw data hold {', '.join(FORMATS)}. "
            "If each line of a .json file is a record, say --format jsonl"
        )
    return kind


def _found(folder: Path, identity: Mapping[str, Any], files: Mapping[str, int]) -> BuildSummary:
    """The summary of the catalog that is there, if it is what would be made."""
    catalog = Catalog.open(folder)
    recorded = catalog.header["identity"]
    table = catalog.shards(["path", "file_bytes"]).to_pydict()
    changed = difference(dict(zip(table["path"], table["file_bytes"], strict=True)), files)
    if changed is not None:
        raise RefusedError(
            f"{folder}: the files differ from the catalog: {changed}. --rebuild makes the catalog anew"
        )
    for key in ("name", "format", "text_field"):
        if recorded[key] != identity[key]:
            raise RefusedError(
                f"{folder}: {key}: {recorded[key]!r} in the catalog, {identity[key]!r} now. "
                "--rebuild makes the catalog anew"
            )
    return summarize(folder, catalog.header, worked=False)


def _workers(workers: int | str, files: Mapping[str, int]) -> int:
    if workers == "auto":
        useful = min(available_processors(), sum(files.values()) // WORKER_BYTES)
        return useful if useful > 1 else 0
    if not isinstance(workers, int) or workers < 0:
        raise ConfigError(f"workers: expected auto or an integer from 0 on, found {workers!r}")
    return workers


@dataclass
class FileRow:
    """What the catalog says of a file.

    Attributes:
        offsets: where its row offsets lie until they are moved to their place; None without such.
    """

    name: str
    size: int
    rows: int = 0
    text_bytes: int = 0
    with_text: int = 0
    checksum: int | None = None
    offsets: Path | None = None
    offsets_checksum: int | None = None

    def take(self, scan: FileScan, offsets: Path) -> None:
        """Take over what was counted, and write the row offsets to a file, so that memory does not fill."""
        self.rows, self.text_bytes, self.with_text = scan.rows, scan.text_bytes, scan.with_text
        self.checksum = scan.checksum
        if scan.offsets is not None:
            data = scan.offset_bytes()
            with atomic_write(offsets) as out:
                out.write(data)
            self.offsets, self.offsets_checksum = offsets, xxhash.xxh3_64_intdigest(data)

    def table_row(self, position: int, *, counted: bool) -> dict[str, Any]:
        """Its row of `shards.parquet`; `counted`: some row of some file has a text."""
        return {
            "part": 0,
            "task": 0,
            "index": position,
            "path": self.name,
            "num_documents": self.rows,
            "text_bytes": self.text_bytes if counted else None,
            "file_bytes": self.size,
            "checksum": self.checksum,
            "first_file": 0,
            "first_row": 0,
            "last_file": 0,
            "last_row": max(0, self.rows - 1),
            "source_base": position,
            "offsets_checksum": self.offsets_checksum,
        }


def _write(
    folder: Path, identity: Mapping[str, Any], rows: Sequence[FileRow], scratch: Path
) -> dict[str, Any]:
    """Put offsets in place, write tables and, last, the header; that of an earlier catalog goes first."""
    with store_errors(folder):
        (folder / HEADER).unlink(missing_ok=True)
        _place_offsets(folder, rows)
    counted = any(row.with_text for row in rows)
    sources = {
        "name": [row.name for row in rows],
        "size": [row.size for row in rows],
        "records_read": [row.rows for row in rows],
        "records_rejected": [0] * len(rows),
    }
    checksums = write_tables(
        folder,
        [row.table_row(position, counted=counted) for position, row in enumerate(rows)],
        pa.table(sources, schema=SOURCE_TABLE),
        scratch,
        RAW_SHARD_TABLE,
    )
    header = _header(identity, rows, counted=counted) | {"checksums": checksums}
    write_header(folder, header, scratch)
    return header


def _place_offsets(folder: Path, rows: Sequence[FileRow]) -> None:
    """Move row offsets to their places, and remove those of files that are no longer there."""
    places = {folder / offsets_file(row.name): row.offsets for row in rows if row.offsets is not None}
    for place, offsets in places.items():
        place.parent.mkdir(parents=True, exist_ok=True)
        offsets.replace(place)
    for path in (folder / INDEX_FOLDER).rglob(f"*{OFFSETS_SUFFIX}"):
        if path not in places:
            path.unlink()
    for parent in {place.parent for place in places}:
        fsync_folder(parent)


def _header(identity: Mapping[str, Any], rows: Sequence[FileRow], *, counted: bool) -> dict[str, Any]:
    documents = sum(row.rows for row in rows)
    return {
        "name": identity["name"],
        "kind": "raw",
        "data_format": identity["format"],
        "totals": {
            **dict.fromkeys(TOTALS),
            "num_documents": documents,
            "text_bytes": sum(row.text_bytes for row in rows) if counted else None,
            "file_bytes": sum(row.size for row in rows),
            "num_shards": len(rows),
            "num_sources": len(rows),
        },
        "token_dtype": None,
        "tokenizer": None,
        "identity": dict(identity),
        "identity_fingerprint": fingerprint(dict(identity)),
        "ledger": {
            "read": documents,
            "written": documents,
            "rejected": {},
            "without_text": documents - sum(row.with_text for row in rows),
        },
        "tokenloom_version": version("tokenloom"),
    }
