"""The reading stage: a unit's spans to documents, and a stream to blocks.

The same functions run in tokenizer processes (for what can be split), in reader processes (for streams)
and in the main process (`workers: 0`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from prep.pipeline.messages import Span
from prep.readers import arrow, json_array, jsonl, lines, parquet, tabular, text
from prep.readers.block import Collector
from prep.readers.compressed import open_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prep.pipeline.channel import Part, Payload
    from prep.pipeline.messages import LocalFile, StreamRequest
    from prep.readers.block import Documents, ReadOptions

PIECE_ROWS = 1024
"""Rows of a row group that are decoded at a time before their size is known."""


def read_span(span: Span, file: LocalFile, payload: Payload | None, options: ReadOptions) -> Documents:
    """The documents of a span.

    Args:
        span: what to read.
        file: the file it belongs to.
        payload: the span's data, if a reader has read it already.
        options: columns and record policies.

    Raises:
        InputError: the file cannot be read.
        RecordError: a record that the policies refuse.
    """
    limit = options.max_record_bytes
    parse: Callable[..., Documents] = text.parse_lines if file.format == "txt" else jsonl.parse_lines
    if span.kind == "bytes":
        found, offset = lines.read_range(file.path, span.start, span.stop, file.size, limit)
        return parse(found, offset, options)
    if span.kind == "groups":
        table = parquet.read_groups(file.path, span.start, span.stop, options)
        return tabular.documents_of(file.path, table, options)
    if span.kind == "file":
        return text.read_file(file.path, options, file.size)
    if span.kind == "oversized":
        collector = Collector(options)
        message = f"a record of {span.stop - span.start:,} bytes; processing.max_record_bytes is {limit:,}"
        collector.fault(0, "too_large", message, span.start)
        return collector.documents(1)
    assert payload is not None
    if span.kind == "rows":
        return tabular.documents_of(file.path, pa.Table.from_batches([payload.batch(0)]), options)
    place = span.start if span.kind == "lines" else None
    return parse(lines.split_lines(payload.data(0), limit), place, options)


def read_stream(
    request: StreamRequest, options: ReadOptions, batch_bytes: int
) -> Iterator[tuple[Span, Part]]:
    """A file from `request.start` to its end as spans with their data, each about `batch_bytes`.

    Raises:
        InputError: the file is damaged or lacks a column.
    """
    path, kind = request.file.path, request.file.format
    if kind == "parquet":
        yield from _table_spans(request, _parquet_pieces(request, options, batch_bytes), batch_bytes)
    elif kind == "arrow":
        yield from _table_spans(request, _arrow_pieces(request, options), batch_bytes)
    elif kind == "json" and json_array.holds_array(path, request.file.size):
        blocks = json_array.array_blocks(
            path, request.start, batch_bytes, options.max_record_bytes, request.file.size
        )
        yield from _element_spans(request, blocks)
    else:
        with open_text(path, request.file.size) as stream:
            found = lines.stream_blocks(stream, request.start, batch_bytes, options.max_record_bytes)
            yield from _line_spans(request.file_idx, found)


def _line_spans(index: int, blocks: Iterator[lines.LineBlock]) -> Iterator[tuple[Span, Part]]:
    for block in blocks:
        kind = "oversized" if block.oversized else "lines"
        stop, nbytes = block.offset + block.size, 0 if block.oversized else block.size
        yield Span(index, kind, block.offset, stop, -1, nbytes, block.done), block.pieces


def _element_spans(
    request: StreamRequest, blocks: Iterator[tuple[int, int, bytes]]
) -> Iterator[tuple[Span, Part]]:
    for start, stop, data in blocks:
        yield Span(request.file_idx, "elements", start, stop, start, len(data)), (data,)


def _parquet_pieces(
    request: StreamRequest, options: ReadOptions, batch_bytes: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    for number, group in enumerate(parquet.row_groups(request.file.path, options)):
        row = group.first_row
        if row + group.rows <= request.start:
            continue
        rows = min(PIECE_ROWS, max(1, batch_bytes * group.rows // max(1, group.nbytes)))
        for piece in parquet.stream_group(request.file.path, number, rows, options):
            yield row, piece
            row += piece.num_rows


def _arrow_pieces(request: StreamRequest, options: ReadOptions) -> Iterator[tuple[int, pa.RecordBatch]]:
    row = 0
    for piece in arrow.stream_batches(request.file.path, options):
        yield row, piece
        row += piece.num_rows


def _table_spans(
    request: StreamRequest,
    pieces: Iterator[tuple[int, pa.RecordBatch]],
    batch_bytes: int,
) -> Iterator[tuple[Span, pa.RecordBatch]]:
    """Rows from `request.start` on, cut and joined to blocks of about `batch_bytes`."""
    pending: list[pa.RecordBatch] = []
    begin, size = request.start, 0
    for first, whole in pieces:
        skipped = max(0, request.start - first)
        for piece, nbytes in _cut(whole.slice(skipped), batch_bytes):
            pending.append(piece)
            size += nbytes
            if size >= batch_bytes:
                yield _table_span(request.file_idx, begin, pending, size)
                begin += sum(part.num_rows for part in pending)
                pending, size = [], 0
    if pending:
        yield _table_span(request.file_idx, begin, pending, size)


def _table_span(
    index: int, row: int, pending: list[pa.RecordBatch], size: int
) -> tuple[Span, pa.RecordBatch]:
    batch = pending[0]
    if len(pending) > 1:
        (batch,) = pa.Table.from_batches(pending).combine_chunks().to_batches()
    return Span(index, "rows", row, row + batch.num_rows, row, size), batch


def _cut(batch: pa.RecordBatch, batch_bytes: int) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Slices of a record batch of about `batch_bytes` each, with that size."""
    ends = np.cumsum(sum(tabular.column_lengths(column) for column in batch.columns))
    start = 0
    while start < batch.num_rows:
        base = int(ends[start - 1]) if start else 0
        stop = min(batch.num_rows, int(np.searchsorted(ends, base + batch_bytes)) + 1)
        yield batch.slice(start, stop - start), int(ends[stop - 1]) - base
        start = stop
