"""Plain text: a document is a whole file, or a line without its end (0x0A or 0x0D 0x0A)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from prep.readers.block import FLAG_INVALID_UTF8, Collector, Documents, ReadOptions, utf8_lengths
from prep.readers.compressed import open_text
from prep.readers.lines import BOM, READ_BYTES, OversizedLine, placed_lines, without_bom

if TYPE_CHECKING:
    from collections.abc import Sequence


def read_file(path: str, options: ReadOptions, size: int | None = None) -> Documents:
    """A file as one document; `size` is what it had when it was listed.

    Raises:
        InputError: the file cannot be read.
        RecordError: it is too large, or not UTF-8, and the policies refuse that.
    """
    collector = Collector(options)
    pieces: list[bytes] = []
    with open_text(path, size) as stream:
        while piece := stream.read(READ_BYTES):
            if stream.offset <= options.max_record_bytes:
                pieces.append(piece)
        length = stream.offset
    if length > options.max_record_bytes:
        _too_large(collector, 0, length, 0)
    else:
        _add(collector, 0, b"".join(pieces).removeprefix(BOM), 0)
    return collector.documents(1)


def parse_lines(lines: Sequence[Any], offset: int | None, options: ReadOptions) -> Documents:
    """Lines as documents; see `jsonl.parse_lines` for the arguments."""
    lines, offset = without_bom(lines, offset)
    try:
        texts = [line.removesuffix(b"\r").decode("utf-8") for line in lines]
    except (UnicodeDecodeError, AttributeError):
        return _parse_singly(lines, offset, options)
    rows = np.arange(len(lines), dtype=np.int64)
    ids = None if options.id_field is None else pa.nulls(len(lines), pa.string())
    kept = [pa.nulls(len(lines), kind) for _, kind in options.kept]
    return Documents(len(lines), rows, texts, utf8_lengths(texts), ids, kept)


def _parse_singly(lines: Sequence[Any], offset: int | None, options: ReadOptions) -> Documents:
    collector = Collector(options)
    for row, (line, place) in enumerate(placed_lines(lines, offset)):
        if isinstance(line, OversizedLine):
            _too_large(collector, row, line.size, place)
        else:
            _add(collector, row, line.removesuffix(b"\r"), place)
    return collector.documents(len(lines))


def _add(collector: Collector, row: int, data: bytes, offset: int) -> None:
    flags = 0
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        if collector.options.on_bad_text != "replace":
            collector.fault(row, "bad_text", f"not valid UTF-8 at byte {error.start} of it", offset)
            return
        text, flags = data.decode("utf-8", "replace"), FLAG_INVALID_UTF8
    collector.add(row, text, None, [None] * len(collector.options.kept), flags)


def _too_large(collector: Collector, row: int, size: int, offset: int) -> None:
    message = f"{size:,} bytes; processing.max_record_bytes is {collector.options.max_record_bytes:,}"
    collector.fault(row, "too_large", message, offset)
