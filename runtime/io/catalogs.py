"""Catalogs as the columns of a dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from prep.catalog.catalog import Catalog
from prep.catalog.errors import IntegrityError
from prep.catalog.names import HEADER, SHARDS, SOURCES
from prep.catalog.raw import difference, offsets_file
from prep.readers import format_of
from prep.readers.rows import RowReader, open_rows
from runtime.io.folders import folder_at, public_url
from runtime.io.memory import column_digest, table_fingerprint

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pyarrow as pa
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


class CatalogTable:
    """The shards of a catalog, read column by column.

    A pickled one holds the location and the header; tables are compared with the header when they are read,
    so that another process finds the same catalog or none.

    Args:
        location: the catalog's folder or an fsspec URL of it.

    Raises:
        IntegrityError: no finished catalog, a damaged one, or raw files that changed since it was made.
    """

    def __init__(self, location: str) -> None:
        self._location = location.removesuffix(f"/{HEADER}")
        self._begin()
        if not self._folder.fetch(HEADER).exists() and self._folder.is_copy:
            raise IntegrityError(f"{public_url(self._location)}: {HEADER} is missing: this is no catalog")
        self._use(Catalog.open(self._folder.path))
        if self._catalog.is_raw:
            self._refuse_changes()

    def _begin(self) -> None:
        self._folder = folder_at(self._location)
        self.is_local = not self._folder.is_copy
        self._checked: set[str] = set()
        self._kept: dict[str, pa.ChunkedArray] = {}

    def _use(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.kind: str = catalog.header["kind"]
        self.format: str = catalog.header["data_format"]
        self.tokenizer: str | None = None if catalog.is_raw else catalog.header["tokenizer"]["fingerprint"]
        self._count: int = catalog.header["totals"]["num_shards"]

    def __getstate__(self) -> dict[str, Any]:
        return {"location": self._location, "header": self._catalog.header}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._location = state["location"]
        self._begin()
        self._use(Catalog(self._folder.path, state["header"]))

    def column(self, name: str) -> Ints | None:
        if name == "ids":
            return np.arange(self._count, dtype=np.int64)
        if name == "raw_bytes":
            text = self._integers("text_bytes")
            return self._integers("file_bytes") if text is None else text
        return self._integers({"counts": "num_documents"}.get(name, name))

    def fingerprint(self) -> str:
        columns = {name: column_digest(self._integers(name)) for name in ("num_documents", "checksum")}
        return table_fingerprint(self.kind, self.format, self._count, columns)

    def open_shard(self, position: int) -> RowReader:
        local, path = self.shard_file(position), self._column(SHARDS, "path")[position].as_py()
        offsets = None
        if self.format == "jsonl":
            offsets = self._folder.fetch(offsets_file(path))
        rows = open_rows(local, self.format if self._catalog.is_raw else "tokens", offsets=offsets)
        return _CopiedRows(rows, [local, *([offsets] if offsets else [])]) if self._folder.is_copy else rows

    def shard_file(self, position: int) -> Path:
        """A shard's file on local disk.

        Raises:
            IntegrityError: it is missing or has another size than when the catalog was made.
        """
        path, size = (self._column(SHARDS, name)[position].as_py() for name in ("path", "file_bytes"))
        self._catalog.file(path)  # refuses one that leaves the folder
        local = self._folder.fetch(path)
        if not local.is_file() or (found := local.stat().st_size) != size:
            state = f"found {found:,}" if local.is_file() else "the file is missing"
            raise IntegrityError(f"{local}: expected {size:,} bytes as the catalog says, {state}")
        return local

    def with_sources(self, position: int, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Rows of a token shard with `source`, the file that each came from; raw ones as they are."""
        if self._catalog.is_raw:
            return list(rows)
        base = self._column(SHARDS, "source_base")[position].as_py()
        names = self._column(SOURCES, "name")
        return [{**row, "source": names[base + row["source_file"]].as_py()} for row in rows]

    def _integers(self, name: str) -> Ints | None:
        """A column of the table of shards as int64, checksums by their bits; None where it has nulls."""
        column = self._table(SHARDS, [name]).column(name)
        if column.null_count:
            return None
        values: Ints = column.to_numpy().view(np.int64).copy()
        return values

    def _column(self, table: str, name: str) -> pa.ChunkedArray:
        """A column that is looked into again and again."""
        if name not in self._kept:
            self._kept[name] = self._table(table, [name]).column(name)
        return self._kept[name]

    def _table(self, name: str, columns: Sequence[str]) -> pa.Table:
        """Columns of a table, which is compared with its checksum before it is read for the first time."""
        self._folder.fetch(name)
        if name not in self._checked:
            self._check(name)
        return self._catalog.shards(columns) if name == SHARDS else self._catalog.sources(columns)

    def _check(self, name: str) -> None:
        path = self._catalog.folder / name
        try:
            found = self._catalog.checksum(name)
        except OSError as error:
            raise IntegrityError(f"{path}: cannot be read: {error.strerror}") from error
        expected = self._catalog.header["checksums"][name]
        if expected != found:
            raise IntegrityError(
                f"{path}: checksum: expected {expected}, found {found}: the catalog was changed or is damaged"
            )
        if name == SHARDS and (rows := self._catalog.shards(["file_bytes"]).num_rows) != self._count:
            raise IntegrityError(f"{path}: expected {self._count:,} rows, found {rows:,}")
        self._checked.add(name)

    def _refuse_changes(self) -> None:
        table = self._table(SHARDS, ["path", "file_bytes"]).to_pydict()
        recorded = dict(zip(table["path"], table["file_bytes"], strict=True))
        found = {
            name: size
            for name, size in self._folder.files()
            if name in recorded or format_of(name) == self.format
        }
        changed = difference(recorded, found)
        if changed is not None:
            raise IntegrityError(
                f"{self._location}: the raw files changed since the catalog was made: {changed}. "
                "`tokenloom catalog build --rebuild` describes them anew"
            )


class _CopiedRows(RowReader):
    """Rows of files that were copied here to be read, and are removed afterwards."""

    def __init__(self, rows: RowReader, copies: Sequence[Path]) -> None:
        super().__init__(rows.path, rows.num_rows)
        self._rows = rows
        self._copies = copies

    def _read(self, wanted: NDArray[np.int64]) -> list[dict[str, Any]]:
        return self._rows.read(wanted)

    def close(self) -> None:
        self._rows.close()
        for copy in self._copies:
            copy.unlink(missing_ok=True)
