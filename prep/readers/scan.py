"""What a file of raw data holds: its rows, the bytes of their text and, for JSONL, where each row begins.

A row's text counts by its length in UTF-8 after unescaping, a lone surrogate as the three bytes of the U+FFFD
that would replace it. A row without the text field, or with null in it, counts no bytes.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import xxhash

from prep.catalog.errors import InputError
from prep.catalog.shard import checksum_file
from prep.readers import arrow, compression_of, parquet
from prep.readers.block import ReadOptions
from prep.readers.compressed import open_text
from prep.readers.jsonl import kind_name, load_record, what_is_wrong
from prep.readers.lines import OversizedLine, placed_lines, split_lines, stream_blocks, without_bom
from prep.readers.tabular import column_lengths, plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from prep.readers.compressed import TextStream

BLOCK_BYTES = 512 << 10
"""Read at a time: small enough for a processor's cache, where lines are split and parsed."""

PROBE_BYTES = 64 << 10
MAX_LINE = ReadOptions().max_record_bytes
BATCH_ROWS = 4096


class FileScan(NamedTuple):
    """What was counted in a file, or in a range of it.

    Attributes:
        rows: rows.
        text_bytes: length of their texts.
        with_text: rows that have a text.
        offsets: for JSONL, the byte at which each row begins: uint64 of shape (rows,).
        end: for JSONL, the byte behind the last; of decompressed text where the file is compressed.
        checksum: xxh3-64 of the file; None for a range of it.
    """

    rows: int
    text_bytes: int
    with_text: int
    offsets: NDArray[np.uint64] | None = None
    end: int = 0
    checksum: int | None = None

    def offset_bytes(self) -> bytes:
        """The offsets and the end as a catalog stores them: little-endian, 8 bytes each."""
        assert self.offsets is not None
        return self.offsets.astype("<u8").tobytes() + self.end.to_bytes(8, "little")


def joined(scans: Sequence[FileScan], checksum: int | None = None) -> FileScan:
    """The scan of a JSONL file, or of a range of it, from those of its parts in order."""
    offsets = [scan.offsets for scan in scans if scan.offsets is not None]
    return _added(scans)._replace(offsets=np.concatenate(offsets), end=scans[-1].end, checksum=checksum)


def scan_file(path: str, fmt: str, text_field: str, *, decode: bool = False) -> FileScan:
    """Count a whole file.

    Args:
        path: a local file.
        fmt: "jsonl", "parquet" or "arrow".
        text_field: the field whose length is counted.
        decode: decode all texts of a Parquet file, even where its footer records their length.

    Raises:
        InputError: the file or a row is damaged, or a text is no text.
    """
    if fmt == "parquet":
        scan = _scan_parquet(path, text_field, decode=decode)
        return scan._replace(checksum=checksum_file(Path(path))[1])
    if fmt == "arrow":
        return _scan_arrow(path, text_field)._replace(checksum=checksum_file(Path(path))[1])
    with open_text(path) as stream:
        if compression_of(path):
            scan = _scan_lines(stream, 0, text_field)
            return scan._replace(checksum=checksum_file(Path(path))[1])
        digest = xxhash.xxh3_64()
        scan = _scan_lines(stream, 0, text_field, digest)
        return scan._replace(checksum=digest.intdigest())


def scan_range(path: str, start: int, stop: int, text_field: str) -> FileScan:
    """Count the lines of a plain JSONL file between two bytes at which lines begin."""
    with open_text(path) as stream:
        return _scan_lines(stream.section(start, stop), start, text_field)


def line_start(path: str, position: int, size: int) -> int:
    """The first byte from `position` on at which a line begins, or the file's size."""
    with Path(path).open("rb", buffering=0) as file:
        file.seek(position - 1)
        position -= 1
        while piece := file.read(PROBE_BYTES):
            end = piece.find(b"\n")
            if end >= 0:
                return position + end + 1
            position += len(piece)
    return size


def _scan_lines(stream: TextStream, base: int, text_field: str, digest: Any = None) -> FileScan:
    """Count the lines of a stream that begins at byte `base` of the file's text."""
    scans = [FileScan(0, 0, 0, np.zeros(0, np.uint64), base)]
    passed = 0
    for block in stream_blocks(stream, 0, BLOCK_BYTES, MAX_LINE):
        data, offset = b"".join(block.pieces), base + block.offset
        if digest is not None:
            digest.update(data)
        scan = None if len(data) > MAX_LINE else _sweep(data, offset, text_field)
        if scan is not None:
            passed += scan.rows
        else:
            lines = [OversizedLine(block.size)] if block.oversized else split_lines(data, MAX_LINE)
            try:
                scan = _count_singly(lines, offset, text_field)
            except _LineError as error:
                row = _lines_before(stream.path, base) + passed + error.line
                raise InputError(f"{stream.path}: row {row + 1:,}, byte {error.offset:,}: {error}") from error
            passed += len(lines)
        scans.append(scan._replace(end=offset + block.size))
    return joined(scans)


def _sweep(data: bytes, offset: int, text_field: str) -> FileScan | None:
    """Count lines of which each is an object with a text; None where one is not, or there are none."""
    loads, text_bytes = orjson.loads, 0
    lengths = [offset]
    try:
        for line in io.BytesIO(data):  # one by one: memory that is used again is in the processor's cache
            text = loads(line)[text_field]
            text_bytes += len(text) if text.isascii() else len(text.encode())
            lengths.append(len(line))
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    rows = len(lengths) - 1
    return FileScan(rows, text_bytes, rows, np.cumsum(lengths[:-1], dtype=np.uint64)) if rows else None


class _LineError(Exception):
    """A damaged line: its number in the block, and where it begins in the file."""

    def __init__(self, line: int, offset: int, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.offset = offset


def _count_singly(lines: Sequence[Any], offset: int, text_field: str) -> FileScan:
    lines, start = without_bom(lines, offset)
    offsets: list[int] = []
    text_bytes = with_text = 0
    for number, (line, place) in enumerate(placed_lines(lines, start)):
        if isinstance(line, OversizedLine):
            raise _LineError(number, place, f"a row of {len(line):,} bytes; {MAX_LINE:,} are allowed")
        if not line.strip():
            continue
        try:
            text = load_record(line).get(text_field)
        except ValueError as error:
            raise _LineError(number, place, what_is_wrong(error)) from error
        offsets.append(place)
        if text is None:
            continue
        if not isinstance(text, str):
            message = f"field {text_field!r}: expected a string, found {kind_name(text)}"
            raise _LineError(number, place, message)
        text_bytes += len(text.encode("utf-8", "surrogatepass"))
        with_text += 1
    return FileScan(len(offsets), text_bytes, with_text, np.array(offsets, np.uint64))


def _lines_before(path: str, offset: int) -> int:
    """Lines of a plain file before a byte at which one begins."""
    if offset == 0:
        return 0
    count = 0
    with open_text(path) as stream:
        section = stream.section(0, offset)
        while piece := section.read(BLOCK_BYTES):
            count += piece.count(b"\n")
    return count


def _scan_parquet(path: str, text_field: str, *, decode: bool) -> FileScan:
    """Count a Parquet file by what its footer records, where one row group that is decoded agrees with it."""
    if text_field not in parquet.schema_of(path).names:
        return FileScan(parquet.num_rows(path), 0, 0)
    groups = len(parquet.row_groups(path, ReadOptions(text_field)))
    counts = None if decode else parquet.recorded_texts(path, text_field)
    recorded = [FileScan(*count) for count in counts or ()]
    if recorded and _count_group(path, groups - 1, text_field) == recorded[-1]:
        return _added(recorded)
    return _added([_count_group(path, number, text_field) for number in range(groups)])


def _count_group(path: str, number: int, text_field: str) -> FileScan:
    return _added(
        _count_texts(batch.column(0))
        for batch in parquet.stream_group(path, number, BATCH_ROWS, ReadOptions(text_field))
    )


def _scan_arrow(path: str, text_field: str) -> FileScan:
    if text_field not in arrow.schema_of(path).names:
        return FileScan(arrow.num_rows(path), 0, 0)
    return _added(
        _count_texts(batch.column(0)) for batch in arrow.stream_batches(path, ReadOptions(text_field))
    )


def _count_texts(column: pa.Array) -> FileScan:
    encoded = pa.types.is_dictionary(column.type) or pa.types.is_string_view(column.type)
    texts = plain(column) if encoded else column
    lengths = column_lengths(texts)
    if texts.null_count:  # a null may stand over bytes
        lengths = lengths[texts.is_valid().to_numpy(zero_copy_only=False)]
    return FileScan(len(column), int(lengths.sum()), len(lengths))


def _added(scans: Iterable[FileScan]) -> FileScan:
    rows = text_bytes = with_text = 0
    for scan in scans:
        rows += scan.rows
        text_bytes += scan.text_bytes
        with_text += scan.with_text
    return FileScan(rows, text_bytes, with_text)
