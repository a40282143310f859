"""The catalog of a set of shards: header `catalog.json`, tables `shards.parquet` and `sources.parquet`."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import xxhash

from prep.catalog.commit import atomic_write
from prep.catalog.errors import InputError, IntegrityError
from prep.catalog.names import HEADER, JOB_FOLDER, SHARDS, SOURCES, TOKENIZER
from prep.catalog.schema import FORMAT_VERSION, HISTOGRAM_BINS, SHARD_TABLE, SOURCE_TABLE
from prep.catalog.shard import ShardFile, checksum_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAGIC = "tokenloom-catalog"


TOTALS = ("num_documents", "num_tokens", "text_bytes", "file_bytes", "bos_added", "eos_added")
RAW_FIELDS: Mapping[str, tuple[str, ...]] = {
    "name": (),
    "kind": (),
    "data_format": (),
    "identity": (),
    "identity_fingerprint": (),
    "checksums": (SHARDS, SOURCES),
    "totals": (*TOTALS, "num_shards", "num_sources"),
    "ledger": ("read", "written", "rejected"),
}
"""What the header of a catalog of raw files has to hold, section by section."""
TOKEN_FIELDS: Mapping[str, tuple[str, ...]] = {
    **RAW_FIELDS,
    "token_dtype": (),
    "checksums": (SHARDS, SOURCES, TOKENIZER),
    "tokenizer": ("fingerprint", "vocab_size", "control_ids", "bos_id", "eos_id"),
}
"""What that of a catalog of token shards has to hold."""


def write_tables(
    folder: Path,
    shards: Sequence[Mapping[str, Any]],
    sources: pa.Table,
    scratch: Path | None = None,
    schema: pa.Schema = SHARD_TABLE,
) -> dict[str, str]:
    """Write both tables; returns the checksum of each, by file name.

    Args:
        folder: of the catalog.
        shards: a row a shard; what a row lacks is null.
        sources: the table of sources.
        scratch: folder for temporary files.
        schema: of the table of shards.
    """
    shard_table = pa.Table.from_pylist(list(shards), schema=schema)
    return {
        SHARDS: _write_parquet(folder / SHARDS, shard_table, scratch),
        SOURCES: _write_parquet(folder / SOURCES, sources.cast(SOURCE_TABLE), scratch),
    }


def _write_parquet(path: Path, table: pa.Table, scratch: Path | None) -> str:
    import pyarrow.parquet as pq  # noqa: PLC0415 - needed only when a job ends

    stream = io.BytesIO()
    pq.write_table(table, stream, compression="zstd", store_schema=False)
    data = stream.getvalue()
    with atomic_write(path, scratch=scratch) as out:
        out.write(data)
    return checksum_of(data)


def checksum_of(data: bytes) -> str:
    """xxh3-64 as the header writes it."""
    return f"{xxhash.xxh3_64_intdigest(data):016x}"


def write_header(folder: Path, header: Mapping[str, Any], scratch: Path | None = None) -> None:
    """Write `catalog.json`, the last act of a job: from here on the folder is a dataset."""
    complete = {"format": MAGIC, "format_version": FORMAT_VERSION, **header}
    with atomic_write(folder / HEADER, scratch=scratch) as out:
        out.write(json.dumps(complete, indent=1, sort_keys=True, ensure_ascii=False).encode() + b"\n")


def _check_fields(file: Path, header: Mapping[str, Any]) -> None:
    fields = {"tokens": TOKEN_FIELDS, "raw": RAW_FIELDS}.get(str(header.get("kind")))
    if fields is None:
        raise IntegrityError(f"{file}: field kind: expected tokens or raw, found {header.get('kind')!r}")
    for section, names in fields.items():
        found = header.get(section)
        if not isinstance(found, dict if names or section == "identity" else str):
            raise IntegrityError(f"{file}: field {section}: missing or damaged")
        for name in names:
            if name not in found:
                raise IntegrityError(f"{file}: field {section}.{name}: missing")


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
            hint = "an unfinished job" if (folder / JOB_FOLDER).is_dir() else "no catalog"
            raise IntegrityError(
                f"{folder}: {HEADER} is missing: this is {hint}. Run `tokenloom pretokenize` on its "
                "configuration to finish it, or give the folder that a finished job wrote; for raw files, "
                "make a catalog with `tokenloom catalog build`."
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
        _check_fields(file, header)
        return cls(folder, header)

    @property
    def is_raw(self) -> bool:
        """Whether it describes raw files, not token shards."""
        return bool(self.header["kind"] == "raw")

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
        import pyarrow.parquet as pq  # noqa: PLC0415 - a header can be read without

        path = self.folder / name
        try:
            return pq.read_table(path, columns=None if columns is None else list(columns))
        except (OSError, pa.ArrowInvalid) as error:
            raise IntegrityError(f"{path}: cannot be read: {error}") from error

    def length_histogram(self) -> list[int]:
        """Documents by binary length over all shards; see `schema.HISTOGRAM_BINS`."""
        counts = self.shards(["length_histogram"]).column("length_histogram").combine_chunks().flatten()
        return [int(count) for count in counts.to_numpy().reshape(-1, HISTOGRAM_BINS).sum(axis=0)]

    def locate(self, document: int) -> tuple[int, int]:
        """The shard and row of a document of the whole catalog.

        Raises:
            InputError: there is no such document.
        """
        counts = self.shards(["num_documents"]).column("num_documents").to_numpy().astype(np.int64)
        ends = np.cumsum(counts)
        total = int(ends[-1]) if len(ends) else 0
        if not 0 <= document < total:
            raise InputError(f"{self.folder}: document {document}: expected 0 to {total - 1:,}")
        shard = int(np.searchsorted(ends, document, side="right"))
        return shard, document - int(ends[shard] - counts[shard])

    def document(self, shard: int, row: int) -> dict[str, Any]:
        """One document with its provenance; `tokens` is a numpy array of shape (num_tokens,).

        Raises:
            InputError: there is no such shard or row, or the catalog is of raw files.
        """
        if self.is_raw:
            raise InputError(f"{self.folder}: a catalog of raw files; `tokenloom inspect` shows their rows")
        table = self.shards(["path", "num_documents", "source_base"])
        if not 0 <= shard < table.num_rows:
            raise InputError(f"{self.folder}: shard {shard}: expected 0 to {table.num_rows - 1:,}")
        entry = table.slice(shard, 1).to_pylist()[0]
        if not 0 <= row < entry["num_documents"]:
            raise InputError(f"{entry['path']}: row {row}: expected 0 to {entry['num_documents'] - 1:,}")
        with ShardFile(self.file(entry["path"])) as file:
            document = file.row(row)
        position = entry["source_base"] + document["source_file"]
        source = self.sources(["name"]).column("name")[position].as_py()
        return {"shard": entry["path"], "row": row, "source": source, **document}

    def checksum(self, name: str) -> str:
        """The checksum that a table or the tokenizer has on disk, to compare with `header["checksums"]`."""
        return f"{checksum_file(self.folder / name)[1]:016x}"

    def file(self, relative: str) -> Path:
        """The path of a shard; refuses one that would leave the catalog's folder."""
        inside = Path(relative)
        if inside.is_absolute() or ".." in inside.parts or not inside.parts:
            raise IntegrityError(f"{self.folder / SHARDS}: path {relative!r} leaves the catalog's folder")
        return self.folder / inside
