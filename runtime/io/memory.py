"""Datasets without files: rows in memory, and counts alone."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from prep.catalog.errors import InputError
from prep.readers.rows import MemoryRows

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import ArrayLike, NDArray

    from prep.readers.rows import RowReader

    Ints = NDArray[np.int64]

VERSION = 1
"""Of how fingerprints are made."""


class InMemoryShard:
    """Rows in memory, each a mapping of field names to values.

    Attributes:
        rows: as they were given; they must not be changed any more.
    """

    def __init__(self, rows: Sequence[Any]) -> None:
        strays = [(number, row) for number, row in enumerate(rows) if not isinstance(row, Mapping)]
        if strays:
            number, row = strays[0]
            raise ValueError(f"row {number}: expected a mapping, found {type(row).__name__}")
        self.rows: Sequence[Mapping[str, Any]] = rows

    def __len__(self) -> int:
        return len(self.rows)

    def text_bytes(self) -> int | None:
        """The UTF-8 length of the field `text` over all rows; None if one has no text."""
        texts = [row.get("text") for row in self.rows]
        if not all(isinstance(text, str) for text in texts):
            return None
        return sum(len(str(text).encode("utf-8", "surrogatepass")) for text in texts)

    def num_tokens(self) -> int | None:
        """The length of the field `tokens` over all rows; None if one has none."""
        if not all("tokens" in row for row in self.rows):
            return None
        return sum(len(row["tokens"]) for row in self.rows)


class _WithoutSources:
    """Rows that came from no file."""

    is_local = True
    tokenizer: str | None = None

    def shard_file(self, position: int) -> Path:
        raise InputError(f"shard {position} is not in a file")

    def with_sources(self, _: int, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        return list(rows)


class MemoryTable(_WithoutSources):
    """The shards of `Dataset.from_dict`."""

    kind = "memory"
    format = "memory"

    def __init__(
        self,
        shards: Mapping[int, InMemoryShard | Sequence[Any]] | Sequence[InMemoryShard | Sequence[Any]],
    ) -> None:
        named = shards if isinstance(shards, Mapping) else dict(enumerate(shards))
        self._ids = [_shard_id(key) for key in named]
        self._shards = [
            shard if isinstance(shard, InMemoryShard) else InMemoryShard(shard) for shard in named.values()
        ]

    def column(self, name: str) -> Ints | None:
        if name == "ids":
            return np.array(self._ids, np.int64)
        measures = {
            "counts": len,
            "raw_bytes": InMemoryShard.text_bytes,
            "num_tokens": InMemoryShard.num_tokens,
        }
        values = [measures[name](shard) for shard in self._shards]
        return None if None in values else np.array(values, np.int64)

    def fingerprint(self) -> str:
        from prep.catalog.fingerprint import fingerprint  # noqa: PLC0415 - a parser that few need

        shards = [
            [shard_id, [_canonical(dict(row)) for row in shard.rows]]
            for shard_id, shard in zip(self._ids, self._shards, strict=True)
        ]
        return fingerprint({"version": VERSION, "kind": self.kind, "shards": shards})

    def open_shard(self, position: int) -> RowReader:
        return MemoryRows(f"shard {self._ids[position]}", self._shards[position].rows)


def _shard_id(key: Any) -> int:
    if isinstance(key, bool) or not isinstance(key, int | np.integer) or not 0 <= key < 1 << 63:
        raise ValueError(f"a shard's id: expected an integer from 0 on, found {key!r}")
    return int(key)


def _canonical(value: Any) -> Any:
    """A value as JSON in which its type shows, so that only equal content has equal JSON."""
    canonical: Any
    match value:
        case None | bool():
            canonical = value
        case Mapping():
            canonical = {
                "map": sorted(
                    ([str(key), _canonical(item)] for key, item in value.items()), key=itemgetter(0)
                )
            }
        case list() | tuple():
            canonical = [_canonical(item) for item in value]
        case str():
            canonical = value.encode("utf-8", "surrogatepass").decode("utf-8", "backslashreplace")
        case np.ndarray() if not value.dtype.hasobject:
            little = value.astype(value.dtype.newbyteorder("<"))
            canonical = {"array": [little.dtype.str, list(little.shape), little.tobytes().hex()]}
        case np.generic():
            canonical = _canonical(value.item())
        case int():
            canonical = {"int": str(value)}
        case float():
            canonical = {"float": value.hex()}
        case bytes() | bytearray() | memoryview():
            canonical = {"bytes": bytes(value).hex()}
        case _:
            raise ValueError(f"a row holds a {type(value).__name__}; use JSON values, bytes or numpy arrays")
    return canonical


class CountsTable(_WithoutSources):
    """The columns of `Dataset.from_counts`."""

    kind = "counts"
    format = "none"

    def __init__(self, columns: Mapping[str, ArrayLike | None]) -> None:
        self._columns = {
            name: None if values is None else _whole_numbers(name, values) for name, values in columns.items()
        }
        counts = self._columns["counts"]
        if counts is None:
            raise ValueError("counts: expected the rows of each shard, found None")
        self._count = len(counts)
        for name, column in self._columns.items():
            if column is not None and len(column) != self._count:
                raise ValueError(
                    f"{name}: expected {self._count:,} shards as in counts, found {len(column):,}"
                )

    def column(self, name: str) -> Ints | None:
        return np.arange(self._count, dtype=np.int64) if name == "ids" else self._columns[name]

    def fingerprint(self) -> str:
        columns = {name: column_digest(column) for name, column in self._columns.items()}
        return table_fingerprint(self.kind, self.format, self._count, columns)

    def open_shard(self, position: int) -> RowReader:
        raise InputError(f"shard {position}: this dataset is made of counts alone; there is nothing to read")


def _whole_numbers(name: str, values: ArrayLike) -> Ints:
    given = np.asarray(values)
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        raise ValueError(
            f"{name}: expected integers, one a shard, found {given.dtype} of shape {given.shape}"
        )
    if given.size and (int(given.min()) < 0 or int(given.max()) >= 1 << 63):
        raise ValueError(f"{name}: expected integers from 0 to 2^63 - 1")
    return given.astype(np.int64)


def column_digest(column: NDArray[Any] | None) -> str | None:
    """A column's content as 64 hexadecimal digits: the SHA-256 of its little-endian values."""
    import hashlib  # noqa: PLC0415

    if column is None:
        return None
    return hashlib.sha256(column.astype(column.dtype.newbyteorder("<"), copy=False).data).hexdigest()


def table_fingerprint(kind: str, fmt: str, count: int, columns: Mapping[str, str | None]) -> str:
    """The fingerprint of a dataset by the digests of the columns that name its content."""
    from prep.catalog.fingerprint import fingerprint  # noqa: PLC0415 - a parser that few need

    return fingerprint(
        {"version": VERSION, "kind": kind, "format": fmt, "num_shards": count, "columns": dict(columns)}
    )
