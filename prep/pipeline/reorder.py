"""The reorder stage: final row numbers, sources and ids, in the order of the document stream.

Byte ranges are read without knowing how many lines come before them; here, where blocks pass in order, the
lines of the ranges add up. This is also where a job that was interrupted skips what it has already written.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from prep.catalog.columns import fixed_array
from prep.catalog.errors import InputError, WorkerError
from prep.pipeline.messages import Failed, Position

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from numpy.typing import NDArray

    from prep.catalog.schema import ShardLayout
    from prep.pipeline.messages import SpanResult
    from prep.pipeline.tokenizer import TokenBlock


SKIP_RECORD = "Mend the record, or set processing.on_bad_record: skip to leave such records out"
ADVICE = {
    "bad_record": SKIP_RECORD,
    "missing_text": f"Set source.text_field to the field with the text. {SKIP_RECORD}",
    "bad_text": "Mend the text, or set processing.on_bad_text: replace or skip",
    "control_text": "Set tokenizer.control_tokens_in_text: text to keep it as text, or token to accept it",
    "too_large": "Set processing.max_record_bytes higher, or processing.on_bad_record: skip to leave it out",
}
"""What to do about a record that the policies refuse, by reason."""

SPAN_SHIFT = 48
"""Rows of a span stay below 2^48."""


@dataclass
class DropTable:
    """Records that were left out, in order.

    Attributes:
        file, row: where they are.
        reason: index in `block.REASONS`.
        offset: byte offset, or -1.
        message: what was found; None where they are only counted.
        before: how many documents of the block come before each.
    """

    file: NDArray[np.int64]
    row: NDArray[np.int64]
    reason: NDArray[np.uint8]
    offset: NDArray[np.int64]
    message: list[str | None]
    before: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.row)

    def slice(self, start: int, stop: int) -> DropTable:
        part = slice(start, stop)
        return DropTable(
            self.file[part],
            self.row[part],
            self.reason[part],
            self.offset[part],
            self.message[part],
            self.before[part],
        )


@dataclass
class PlacedBlock:
    """Documents as the shards hold them, with what a restart needs to know.

    Attributes:
        documents: rows of the shard's schema.
        flags: bits of each document, see `block.FLAG_...`.
        drops: what was left out among them.
        anchors: for each span, the index of its first document and where reading it begins again.
        shuffled: for a shuffled block, the position of its first document; the others are that many further.
        sample: index of a document to check, or -1.
        sample_text: its text.
    """

    documents: pa.RecordBatch
    flags: NDArray[np.uint8]
    drops: DropTable
    anchors: list[tuple[int, Position]]
    shuffled: Position | None = None
    sample: int = -1
    sample_text: bytes = b""

    def position(self, index: int) -> Position:
        """The position of a document of this block."""
        if self.shuffled is not None:
            return self.shuffled._replace(skip=self.shuffled.skip + index)
        found = bisect.bisect_right(self.anchors, index, key=lambda anchor: anchor[0]) - 1
        row = int(self.documents.column("source_row")[index].as_py())
        return self.anchors[found][1]._replace(next_row=row)


class Reorder:
    """Places blocks that come in the order of the document stream.

    Args:
        names: the source files' names, for ids and messages.
        layout: the shard's columns.
        start: where the job begins; what is before it is passed over.

    Attributes:
        reached: the file that is being read, and about how many of its bytes are done.
    """

    def __init__(self, names: Sequence[str], layout: ShardLayout, start: Position) -> None:
        self._names = names
        self._layout = layout
        self._schema = layout.schema()
        self._start = start
        self._file = start.file
        self._row = start.row
        self.reached = (start.file, 0)

    def place(self, results: Iterable[TokenBlock | Failed]) -> Generator[PlacedBlock, None, None]:
        """Place each block.

        Raises:
            InputError: a file or a record that the policies refuse, with file and row.
            WorkerError: a process died twice, or an encoder failed.
        """
        for result in results:
            if isinstance(result, Failed):
                raise self._error(result)
            yield self._place(result)

    def _place(self, block: TokenBlock) -> PlacedBlock:
        bases = [self._base(result) for result in block.results]
        counts = np.array([result.documents for result in block.results], np.int64)
        files = np.array([result.span.file for result in block.results], np.int64)
        starts = np.array(bases, np.int64)
        rows = block.documents.column("row").to_numpy() + np.repeat(starts, counts)
        file_of = np.repeat(files, counts)
        first = np.cumsum(counts) - counts
        anchors = [
            (int(begin), Position(result.span.file, result.span.anchor, base, base))
            for begin, base, result in zip(first.tolist(), bases, block.results, strict=True)
        ]
        documents = self._columns(block.documents, file_of, rows)
        drops = _place_drops(block, starts)
        placed = PlacedBlock(
            documents,
            block.documents.column("flags").to_numpy(),
            drops,
            anchors,
            sample=block.sample,
            sample_text=block.sample_text,
        )
        return self._skip_done(placed, file_of, rows)

    def _base(self, result: SpanResult) -> int:
        span = result.span
        base = span.row if span.row >= 0 else self._row if span.file == self._file else 0
        self._file, self._row = span.file, base + result.rows
        self.reached = (span.file, span.done)
        return base

    def _columns(
        self, batch: pa.RecordBatch, files: NDArray[np.int64], rows: NDArray[np.int64]
    ) -> pa.RecordBatch:
        columns = [
            batch.column("tokens"),
            batch.column("text_bytes"),
            fixed_array(files.astype(np.uint32), pa.uint32()),
            fixed_array(rows.astype(np.uint64), pa.uint64()),
        ]
        if self._layout.with_id:
            columns.append(self._ids(batch.column("id"), files, rows))
        columns += [batch.column(name) for name, _ in self._layout.kept]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _ids(self, ids: pa.Array, files: NDArray[np.int64], rows: NDArray[np.int64]) -> pa.Array:
        if ids.null_count == 0:
            return ids
        values = [
            f"{self._names[file]}#{row}" if value is None else value
            for value, file, row in zip(ids.to_pylist(), files.tolist(), rows.tolist(), strict=True)
        ]
        return pa.array(values, pa.string())

    def _skip_done(
        self, block: PlacedBlock, files: NDArray[np.int64], rows: NDArray[np.int64]
    ) -> PlacedBlock:
        """Leave out what comes before the start; only the first blocks of a resumed job hold any."""
        start = self._start
        if not start.next_row or not block.anchors or block.anchors[0][1].file > start.file:
            return block
        done = int(((files == start.file) & (rows < start.next_row)).sum())
        gone = int(((block.drops.file == start.file) & (block.drops.row < start.next_row)).sum())
        if not done and not gone:
            return block
        block.documents = block.documents.slice(done)
        block.flags = block.flags[done:]
        block.drops = block.drops.slice(gone, len(block.drops))
        block.drops.before = np.maximum(block.drops.before - done, 0)
        block.anchors = [(max(0, begin - done), position) for begin, position in block.anchors]
        block.sample = block.sample - done if block.sample >= done else -1
        return block

    def _error(self, failure: Failed) -> InputError | WorkerError:
        span = failure.span
        name = self._names[span.file]
        base = span.row if span.row >= 0 else (self._row if span.file == self._file else 0)
        if failure.drop is not None:
            drop = failure.drop
            where = f"{name}: row {base + drop.row + 1}"
            where += f" (byte {drop.offset:,})" if drop.offset >= 0 else ""
            return InputError(f"{where}: {drop.reason}: {drop.message}. {ADVICE[drop.reason]}")
        if failure.kind == "input":
            where = "" if name in failure.message else f"{name}: "
            after = f" (in or after line {base + 1:,})" if span.kind == "lines" else ""
            return InputError(f"{where}{failure.message}{after}")
        rows = f"row {base + 1:,}"
        if span.kind == "rows":
            rows = f"rows {base + 1:,} to {span.stop:,}"
        elif span.kind in ("bytes", "lines"):
            rows += f" (bytes {span.start:,} to {span.stop:,})"
        return WorkerError(f"{name}: in the batch that begins at {rows}: {failure.message}")


def _place_drops(block: TokenBlock, starts: NDArray[np.int64]) -> DropTable:
    drops = block.drops
    span = drops.column("span").to_numpy()
    row = drops.column("row").to_numpy()
    files = np.array([result.span.file for result in block.results], np.int64)
    # Documents and drops are both sorted by (span, row in it), so one key orders them together.
    counts = [result.documents for result in block.results]
    document_span = np.repeat(np.arange(len(counts)), counts)
    keys = (document_span << SPAN_SHIFT) + block.documents.column("row").to_numpy()
    before = np.searchsorted(keys, (span.astype(np.int64) << SPAN_SHIFT) + row)
    return DropTable(
        files[span],
        row + starts[span],
        drops.column("reason").to_numpy(),
        drops.column("offset").to_numpy(),
        drops.column("message").to_pylist(),
        before,
    )
