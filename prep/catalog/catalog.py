"""The catalog of a set of shards: header `catalog.json`, tables `shards.parquet` and `sources.parquet`."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from prep.catalog.commit import atomic_write
from prep.catalog.errors import IntegrityError
from prep.catalog.schema import FORMAT_VERSION, SHARD_TABLE, SOURCE_TABLE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HEADER = "catalog.json"
SHARDS = "shards.parquet"
SOURCES = "sources.parquet"
TOKENIZER = "tokenizer.json"
MAGIC = "tokenloom-catalog"


def write_tables(folder: Path, shards: Sequence[Mapping[str, Any]], sources: pa.Table) -> dict[str, str]:
    """Write both tables; returns the checksum of each, by file name."""
    shard_table = pa.Table.from_pylist(list(shards), schema=SHARD_TABLE)
    return {
        SHARDS: _write_parquet(folder / SHARDS, shard_table),
        SOURCES: _write_parquet(folder / SOURCES, sources.cast(SOURCE_TABLE)),
    }


def _write_parquet(path: Path, table: pa.Table) -> str:
    stream = io.BytesIO()
    pq.write_table(table, stream, compression="zstd", store_schema=False)
    data = stream.getvalue()
    with atomic_write(path) as out:
        out.write(data)
    return _hex(data)


def _hex(data: bytes) -> str:
    return f"{xxhash.xxh3_64_intdigest(data):016x}"


def write_header(folder: Path, header: Mapping[str, Any]) -> None:
    """Write `catalog.json`, the last act of a job: from here on the folder is a dataset."""
    complete = {"format": MAGIC, "format_version": FORMAT_VERSION, **header}
    with atomic_write(folder / HEADER) as out:
        out.write(json.dumps(complete, indent=1, sort_keys=True, ensure_ascii=False).encode() + b"\n")


@dataclass(frozen=True)
class Catalog:
    """An opened catalog; tables are read when asked for, column by column.

    Attributes:
        folder: where the catalog lies.
        header: the content of `catalog.json`.
    """

    folder: Path
    header: Mapping[str, Any]

    @classmethod
    def open(cls, path: Path | str) -> Catalog:
        """Open a finished catalog by its folder or its `catalog.json`.

        Raises:
            IntegrityError: there is no finished catalog, or its header is damaged or from another format.
        """
        folder = Path(path)
        folder = folder.parent if folder.name == HEADER else folder
        file = folder / HEADER
        try:
            header = json.loads(file.read_bytes())
        except FileNotFoundError as error:
            hint = "an unfinished job" if (folder / "_job").is_dir() else "no catalog"
            raise IntegrityError(
                f"{folder}: {HEADER} is missing: this is {hint}. Run `tokenloom pretokenize` on its "
                "configuration to finish it, or give the folder that a finished job wrote."
            ) from error
        except (ValueError, OSError) as error:
            raise IntegrityError(f"{file}: cannot be read as JSON: {error}") from error
        if not isinstance(header, dict) or header.get("format") != MAGIC:
            raise IntegrityError(f"{file}: field format: expected {MAGIC!r}: this is another kind of file")
        if header.get("format_version") != FORMAT_VERSION:
            raise IntegrityError(
                f"{file}: field format_version: expected {FORMAT_VERSION}, found "
                f"{header.get('format_version')!r}: use the version of tokenloom that wrote it"
            )
        return cls(folder, header)

    @property
    def name(self) -> str:
        return str(self.header["name"])

    def shards(self, columns: Sequence[str] | None = None) -> pa.Table:
        """`shards.parquet`, or some of its columns."""
        return self._table(SHARDS, columns)

    def sources(self, columns: Sequence[str] | None = None) -> pa.Table:
        """`sources.parquet`, or some of its columns."""
        return self._table(SOURCES, columns)

    def _table(self, name: str, columns: Sequence[str] | None) -> pa.Table:
        path = self.folder / name
        try:
            return pq.read_table(path, columns=None if columns is None else list(columns))
        except (OSError, pa.ArrowInvalid) as error:
            raise IntegrityError(f"{path}: cannot be read: {error}") from error

    def table_checksum(self, name: str) -> str:
        """The checksum that a table has on disk, to compare with `header["checksums"]`."""
        return _hex((self.folder / name).read_bytes())

    def file(self, relative: str) -> Path:
        """The path of a shard; refuses one that would leave the catalog's folder."""
        inside = Path(relative)
        if inside.is_absolute() or ".." in inside.parts or not inside.parts:
            raise IntegrityError(f"{self.folder / SHARDS}: path {relative!r} leaves the catalog's folder")
        return self.folder / inside
