"""Catalogs as the columns of a dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from prep.catalog.catalog import Catalog
from prep.catalog.errors import IntegrityError
from prep.catalog.names import SHARDS
from runtime.io.memory import column_digest, table_fingerprint

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from prep.readers.rows import RowReader

    Ints = NDArray[np.int64]


class CatalogTable:
    """The shards of a catalog, read column by column."""

    def __init__(self, path: str) -> None:
        self._catalog = Catalog.open(path)
        self.kind: str = self._catalog.header["kind"]
        self.format: str = self._catalog.header["data_format"]
        self._count: int = self._catalog.header["totals"]["num_shards"]
        self._checked = False

    def column(self, name: str) -> Ints | None:
        if name == "ids":
            return np.arange(self._count, dtype=np.int64)
        if name == "raw_bytes":
            text = self._read("text_bytes")
            return self._read("file_bytes") if text is None else text
        return self._read({"counts": "num_documents"}.get(name, name))

    def fingerprint(self) -> str:
        columns = {name: column_digest(self._read(name)) for name in ("num_documents", "checksum")}
        return table_fingerprint(self.kind, self.format, self._count, columns)

    def open_shard(self, position: int) -> RowReader:
        raise NotImplementedError

    def _read(self, name: str) -> Ints | None:
        """A column as int64 (checksums wrap around); None where it has nulls."""
        if not self._checked:
            expected, found = self._catalog.header["checksums"][SHARDS], self._catalog.checksum(SHARDS)
            if expected != found:
                raise IntegrityError(
                    f"{self._catalog.folder / SHARDS}: checksum: expected {expected}, found {found}: "
                    "it is not the table that the catalog was written with"
                )
            self._checked = True
        column = self._catalog.shards([name]).column(name)
        if column.null_count:
            return None
        if len(column) != self._count:
            raise IntegrityError(
                f"{self._catalog.folder / SHARDS}: expected {self._count:,} rows, found {len(column):,}"
            )
        values: Ints = column.to_numpy().view(np.int64).copy()
        return values
