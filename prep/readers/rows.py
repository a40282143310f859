"""Rows by index: one protocol for every format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from prep.catalog.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray


class RowReader(Protocol):
    """The rows of one file; a context manager.

    Attributes:
        num_rows: rows in the file.
    """

    num_rows: int

    def read(self, indices: Iterable[int]) -> list[dict[str, Any]]:
        """Rows in the order asked for; one that is asked for twice comes twice.

        Raises:
            InputError: there is no such row, or it cannot be read.
        """

    def close(self) -> None:
        """Release what is open; what was read stays valid."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


def checked_indices(path: str, indices: Iterable[int], num_rows: int) -> NDArray[np.int64]:
    """Row numbers as int64 of shape (asked,).

    Raises:
        InputError: one of them is outside the file.
    """
    wanted = np.asarray(indices if isinstance(indices, np.ndarray) else list(indices))
    if wanted.size == 0:
        return np.zeros(0, np.int64)
    if wanted.ndim != 1 or wanted.dtype.kind not in "iu":
        raise InputError(f"{path}: rows: expected integers, found {wanted.dtype} of shape {wanted.shape}")
    wrong = wanted[(wanted < 0) | (wanted >= num_rows)]
    if len(wrong):
        expected = f"expected 0 to {num_rows - 1:,}" if num_rows else "the file has no rows"
        raise InputError(f"{path}: row {int(wrong[0])}: {expected}")
    return wanted.astype(np.int64)


class MemoryRows:
    """Rows that are in memory already."""

    def __init__(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        self._name = name
        self._rows = rows
        self.num_rows = len(rows)

    def read(self, indices: Iterable[int]) -> list[dict[str, Any]]:
        return [dict(self._rows[index]) for index in checked_indices(self._name, indices, self.num_rows)]

    def close(self) -> None:
        """Nothing is open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
