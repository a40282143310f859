"""Rows of JSONL files: lines at known offsets."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from prep.catalog.commit import store_errors
from prep.catalog.errors import InputError
from prep.readers import compression_of
from prep.readers.compressed import open_text
from prep.readers.jsonl import load_record, what_is_wrong
from prep.readers.lines import (
    READ_BYTES,
    OversizedLine,
    placed_lines,
    split_lines,
    stream_blocks,
    without_bom,
)
from prep.readers.rows import RowReader
from prep.readers.scan import MAX_LINE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Offsets = NDArray[np.uint64]

RUN_BYTES = 4 << 20
"""How much of consecutive rows is read at a time."""


class JsonlRows(RowReader):
    """A JSONL file; a compressed one is decompressed into an unnamed temporary file when it is first read.

    Args:
        path: the file.
        offsets: the file of its row offsets; None: the file is read through for them.
    """

    def __init__(self, path: str, offsets: Path | None = None) -> None:
        self._descriptor: int | None = None
        self._offsets = line_offsets(path) if offsets is None else _stored_offsets(offsets)
        super().__init__(path, len(self._offsets) - 1)

    def _read(self, wanted: NDArray[np.int64]) -> list[dict[str, Any]]:
        lines: dict[int, bytes] = {}
        for first, last in _runs(np.unique(wanted), self._offsets):
            start = int(self._offsets[first])
            data = self._bytes(start, int(self._offsets[last + 1]))
            edges = self._offsets[first : last + 2].astype(np.int64) - start
            for row in range(first, last + 1):
                lines[row] = data[edges[row - first] : edges[row - first + 1]]
        return [self._record(int(row), lines[int(row)]) for row in wanted]

    def _record(self, row: int, line: bytes) -> dict[str, Any]:
        try:
            return load_record(line.strip())
        except ValueError as error:
            offset = int(self._offsets[row])
            raise InputError(f"{self.path}: row {row}, byte {offset:,}: {what_is_wrong(error)}") from error

    def _bytes(self, start: int, stop: int) -> bytes:
        if self._descriptor is None:
            self._descriptor = self._open()
        try:
            data = os.pread(self._descriptor, stop - start, start)
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read: {error.strerror}") from error
        if len(data) < stop - start:
            raise InputError(f"{self.path}: ends at byte {start + len(data):,}, expected {stop:,}")
        return data

    def _open(self) -> int:
        descriptor = _decompressed(self.path) if compression_of(self.path) else _opened(self.path)
        expected, found = int(self._offsets[-1]), os.fstat(descriptor).st_size
        if expected != found:
            os.close(descriptor)
            raise InputError(
                f"{self.path}: expected {expected:,} bytes of text as when its offsets were made, "
                f"found {found:,}"
            )
        return descriptor

    def close(self) -> None:
        self._offsets = self._offsets[:0].copy()
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def line_offsets(path: str) -> Offsets:
    """Where the rows of a file begin, and its end: uint64 of shape (rows + 1,); blank lines are no rows.

    Raises:
        InputError: the file cannot be read, or a line is larger than any row may be.
    """
    found: list[int] = []
    end = 0
    with open_text(path) as stream:
        for block in stream_blocks(stream, 0, READ_BYTES, MAX_LINE):
            lines = (
                [OversizedLine(block.size)]
                if block.oversized
                else split_lines(b"".join(block.pieces), MAX_LINE)
            )
            for line, place in placed_lines(*without_bom(lines, block.offset)):
                if isinstance(line, OversizedLine):
                    raise InputError(
                        f"{path}: byte {place:,}: a row of {len(line):,} bytes; {MAX_LINE:,} are allowed"
                    )
                if line.strip():
                    found.append(place)
            end = block.offset + block.size
    return np.array([*found, end], np.uint64)


def _stored_offsets(path: Path) -> Offsets:
    try:
        size = path.stat().st_size
        if size == 0 or size % 8:
            raise InputError(f"{path}: expected 8 bytes a row and 8 for the end, found {size:,}")
        return np.memmap(path, "<u8", mode="r")
    except OSError as error:
        raise InputError(f"{path}: the row offsets cannot be read: {error.strerror}") from error


def _runs(rows: NDArray[np.int64], offsets: Offsets) -> list[tuple[int, int]]:
    """First and last of each run of consecutive rows; a run ends when it has RUN_BYTES."""
    runs: list[tuple[int, int]] = []
    for row in rows.tolist():
        if runs and runs[-1][1] == row - 1 and int(offsets[row] - offsets[runs[-1][0]]) < RUN_BYTES:
            runs[-1] = (runs[-1][0], row)
        else:
            runs.append((row, row))
    return runs


def _opened(path: str) -> int:
    try:
        return os.open(path, os.O_RDONLY)
    except OSError as error:
        raise InputError(f"{path}: cannot be opened: {error.strerror}") from error


def _decompressed(path: str) -> int:
    """A descriptor of the text in a temporary file that has no name any more."""
    with (
        store_errors(Path(tempfile.gettempdir())),
        tempfile.TemporaryFile() as out,
        open_text(path) as stream,
    ):
        while piece := stream.read(READ_BYTES):
            out.write(piece)
        out.flush()
        return os.dup(out.fileno())
