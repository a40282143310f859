"""Rows by index: one interface for every format."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from prep.catalog.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray


class RowReader(ABC):
    """The rows of one file; a context manager.

    Attributes:
        path: what messages call it.
        num_rows: rows in the file.
    """

    def __init__(self, path: str, num_rows: int) -> None:
        self.path = path
        self.num_rows = num_rows

    def read(self, indices: Iterable[int]) -> list[dict[str, Any]]:
        """Rows in the order asked for; one that is asked for twice comes twice.

        Raises:
            InputError: there is no such row, or it is damaged.
        """
        wanted = self._checked(indices)
        return self._read(wanted) if len(wanted) else []

    @abstractmethod
    def _read(self, wanted: NDArray[np.int64]) -> list[dict[str, Any]]:
        """The rows of numbers that exist, of which there is at least one."""

    @abstractmethod
    def close(self) -> None:
        """Release what is open; what was read stays valid."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _checked(self, indices: Iterable[int]) -> NDArray[np.int64]:
        wanted = np.asarray(indices if isinstance(indices, np.ndarray) else list(indices))
        if wanted.size == 0:
            return np.zeros(0, np.int64)
        if wanted.ndim != 1 or wanted.dtype.kind not in "iu":
            shape = f"{wanted.dtype} of shape {wanted.shape}"
            raise InputError(f"{self.path}: rows: expected integers, found {shape}")
        wrong = wanted[(wanted < 0) | (wanted >= self.num_rows)]
        if len(wrong):
            expected = f"expected 0 to {self.num_rows - 1:,}" if self.num_rows else "there are no rows"
            raise InputError(f"{self.path}: row {int(wrong[0])}: {expected}")
        return wanted.astype(np.int64)


def open_rows(path: Path | str, fmt: str, *, offsets: Path | None = None) -> RowReader:
    """Open a local file for its rows.

    Args:
        path: the file.
        fmt: "tokens" (a token shard), "jsonl", "parquet" or "arrow".
        offsets: for JSONL, the file of row offsets that its catalog has; without it the file is read through.

    Raises:
        InputError: the file cannot be read, or is not the one that the offsets were made for.
    """
    if fmt == "parquet":
        from prep.readers.rows_parquet import ParquetRows  # noqa: PLC0415 - loaded where it is used

        return ParquetRows(str(path))
    if fmt == "jsonl":
        from prep.readers.rows_jsonl import JsonlRows  # noqa: PLC0415 - loaded where it is used

        return JsonlRows(str(path), offsets)
    from prep.readers.rows_arrow import ArrowRows  # noqa: PLC0415 - loaded where it is used

    return ArrowRows(str(path), as_views=("tokens",) if fmt == "tokens" else ())


def by_part(
    wanted: NDArray[np.int64], ends: NDArray[np.int64]
) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.int64]]]:
    """Group row numbers by the part of the file (row group, record batch) that holds them.

    Args:
        wanted: row numbers, int64 of shape (asked,).
        ends: for each part, the number of the row behind its last.

    Yields:
        (part, places in `wanted`, row numbers inside the part), parts ascending.
    """
    parts = np.searchsorted(ends, wanted, side="right")
    order = np.argsort(parts, kind="stable")
    numbers, starts = np.unique(parts[order], return_index=True)
    for part, places in zip(numbers, np.split(order, starts[1:]), strict=True):
        first = ends[part - 1] if part else 0
        yield int(part), places, wanted[places] - first


class MemoryRows(RowReader):
    """Rows that are in memory already."""

    def __init__(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        super().__init__(name, len(rows))
        self._rows = rows

    def _read(self, wanted: NDArray[np.int64]) -> list[dict[str, Any]]:
        return [dict(self._rows[index]) for index in wanted]

    def close(self) -> None:
        """Nothing is open."""
