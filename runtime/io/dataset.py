"""A dataset as a light descriptor: how many rows each shard has, and little else.

Columns are read when they are asked for, kept, and never written: int64 arrays of shape (shard_count,).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from prep.catalog.errors import InputError
from runtime.io.catalogs import CatalogTable
from runtime.io.memory import CountsTable, InMemoryShard, MemoryTable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import ArrayLike, NDArray

    from prep.readers.rows import RowReader

    Ints = NDArray[np.int64]


class ShardTable(Protocol):
    """Where a dataset's columns come from.

    Attributes:
        kind: "tokens", "raw", "memory" or "counts".
        is_local: whether opening a shard fetches nothing from elsewhere.
        tokenizer: the fingerprint of what made the tokens; None where there are none or it is not known.
        format: how a shard is stored.
    """

    kind: str
    format: str
    is_local: bool
    tokenizer: str | None

    def column(self, name: str) -> Ints | None:
        """One of "ids", "counts", "raw_bytes", "num_tokens"; None where it is not known."""

    def fingerprint(self) -> str:
        """The name of the content."""

    def open_shard(self, position: int) -> RowReader:
        """The rows of the shard at a position of the table."""

    def shard_file(self, position: int) -> Path:
        """The file of the shard at a position of the table."""

    def with_sources(self, position: int, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Rows with the names of the files that they came from, where that is not the shard itself."""


class Dataset:
    """A named set of shards, a component of a mixture. Made by its `from_...` methods.

    Two datasets are equal if name and fingerprint are.
    """

    def __init__(self, name: str, table: ShardTable) -> None:
        if not name:
            raise ValueError("a dataset's name: expected a text that is not empty")
        self.name = name
        self._table = table
        self._columns: dict[str, Ints | None] = {}
        self._fingerprint: str | None = None

    @classmethod
    def from_path(cls, name: str, path: str, *, fmt: str | None = None) -> Dataset:
        """The dataset that a catalog describes, of token shards or of raw files.

        Args:
            name: what mixtures call it; orders depend on it.
            path: the catalog's folder, or any fsspec URL of it.
            fmt: "arrow", "jsonl" or "parquet" to insist on a data format; None or "auto": the catalog's.

        Raises:
            IntegrityError: no finished catalog, a damaged one, or raw files that changed since it was made.
            ValueError: `name` is empty, or the catalog has another format.
        """
        table = CatalogTable(path)
        if fmt not in (None, "auto", table.format):
            raise ValueError(f"{path}: fmt: expected {fmt!r}, found {table.format!r} in the catalog")
        return cls(name, table)

    @classmethod
    def from_dict(
        cls,
        name: str,
        shards: Mapping[int, InMemoryShard | Sequence[Any]] | Sequence[InMemoryShard | Sequence[Any]],
    ) -> Dataset:
        """A dataset of rows in memory.

        Args:
            name: what mixtures call it.
            shards: shard id to rows, or a list of shards with the ids 0, 1, ...

        Raises:
            ValueError: an id is no integer from 0 on, or a shard is no sequence of rows.
        """
        return cls(name, MemoryTable(shards))

    @classmethod
    def from_counts(
        cls,
        name: str,
        counts: ArrayLike,
        *,
        num_tokens: ArrayLike | None = None,
        raw_bytes: ArrayLike | None = None,
    ) -> Dataset:
        """A descriptor without data behind it, to plan with; reading from it is an error.

        Args:
            name: what mixtures call it.
            counts: rows a shard.
            num_tokens: tokens a shard.
            raw_bytes: bytes of text a shard.

        Raises:
            ValueError: a column holds something else than integers from 0 on, or has another length.
        """
        return cls(name, CountsTable({"counts": counts, "num_tokens": num_tokens, "raw_bytes": raw_bytes}))

    @property
    def kind(self) -> str:
        """What is behind it: "tokens", "raw", "memory" or "counts"."""
        return self._table.kind

    @property
    def format(self) -> str:
        """How a shard is stored: "arrow", "jsonl", "parquet", "memory" or "none"."""
        return self._table.format

    @property
    def is_local(self) -> bool:
        """Whether opening a shard fetches nothing from elsewhere."""
        return self._table.is_local

    @property
    def tokenizer(self) -> str | None:
        """The fingerprint of the tokenizer of token shards; None for what has none."""
        return self._table.tokenizer

    def ids(self) -> Ints:
        """The shards' ids: int64 of shape (shard_count,), distinct; 0, 1, ... but for `from_dict`."""
        return self._known("ids")

    def counts(self) -> Ints:
        """Rows a shard: int64 of shape (shard_count,)."""
        return self._known("counts")

    def raw_bytes(self) -> Ints | None:
        """Bytes of text a shard in UTF-8: int64 of shape (shard_count,); None where it is not known.

        A catalog of raw files whose rows lack the text field has the files' sizes here.
        """
        return self._column("raw_bytes")

    def num_tokens(self) -> Ints | None:
        """Tokens a shard, BOS and EOS included: int64 of shape (shard_count,); None for what has none."""
        return self._column("num_tokens")

    @property
    def shard_count(self) -> int:
        return len(self.counts())

    @property
    def total(self) -> int:
        """Rows of all shards."""
        return int(self.counts().sum())

    @property
    def max_count(self) -> int:
        """Rows of the largest shard; 0 without shards."""
        return int(self.counts().max(initial=0))

    @property
    def fingerprint(self) -> str:
        """32 hexadecimal digits that name the content, never its place or its name."""
        if self._fingerprint is None:
            self._fingerprint = self._table.fingerprint()
        return self._fingerprint

    def open_shard(self, shard_id: int) -> RowReader:
        """The rows of a shard, to be closed.

        Raises:
            InputError: there is no such shard, or no data behind this dataset.
        """
        return self._table.open_shard(self._position(shard_id))

    def shard_file(self, shard_id: int) -> Path:
        """The file of a shard on local disk.

        Raises:
            InputError: there is no such shard, or it is in no file.
            IntegrityError: the file is missing or has another size than when the catalog was made.
        """
        return self._table.shard_file(self._position(shard_id))

    def with_sources(self, shard_id: int, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Rows of a token shard with `source`, the file that each came from; others as they are."""
        return self._table.with_sources(self._position(shard_id), rows)

    def _position(self, shard_id: int) -> int:
        matches = np.flatnonzero(self.ids() == shard_id)
        if not len(matches):
            raise InputError(f"dataset {self.name!r}: no shard has the id {shard_id}")
        return int(matches[0])

    def _column(self, name: str) -> Ints | None:
        if name not in self._columns:
            column = self._table.column(name)
            if column is not None:
                column.flags.writeable = False
            self._columns[name] = column
        return self._columns[name]

    def _known(self, name: str) -> Ints:
        column = self._column(name)
        assert column is not None, name
        return column

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Dataset):
            return NotImplemented
        return (self.name, self.fingerprint) == (other.name, other.fingerprint)

    def __hash__(self) -> int:
        return hash((self.name, self.fingerprint))

    def __repr__(self) -> str:
        shards = f"{self.shard_count:,} shards" if self.shard_count != 1 else "1 shard"
        return f"Dataset({self.name!r}, {self.kind}, {self.format}, {shards}, {self.total:,} rows)"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_columns": {}}
