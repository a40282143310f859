"""The writing stage: cuts the document stream into shards and commits them.

Both cuts, of shards and of record batches inside them, are functions of the stream alone: a shard or record
batch ends before the document that would make it exceed its size. A shard is closed when that document
comes, so what was left out between two shards belongs to the first of them.
"""

from __future__ import annotations

import json
import os
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO, Self

import numpy as np

from prep.catalog.columns import compact
from prep.catalog.commit import publish, store_errors
from prep.catalog.schema import RECORD_BATCH_BYTES, row_measure
from prep.catalog.shard import ShardWriter
from prep.journal import Entry
from prep.readers.block import (
    FLAG_CONTROL_TEXT,
    FLAG_INVALID_UTF8,
    FLAG_SURROGATES,
    LISTED,
    REASONS,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pyarrow as pa
    from numpy.typing import NDArray

    from prep.journal import Journal
    from prep.pipeline.messages import Position
    from prep.pipeline.reorder import DropTable, PlacedBlock
    from prep.tokenizers.boundaries import Boundaries

FLUSH_BYTES = 32 << 20

FLAG_NAMES = {
    FLAG_SURROGATES: "surrogates_replaced",
    FLAG_INVALID_UTF8: "invalid_utf8_replaced",
    FLAG_CONTROL_TEXT: "control_text",
}
"""Ledger names of the flags: documents written of which each is true."""


@dataclass(frozen=True)
class ShardSettings:
    """What every shard of a job has in common.

    Attributes:
        schema: the shard's columns, without metadata.
        metadata: the schema's metadata but for the shard's own identity.
        shard_size: measure at which a shard ends.
        compression: None or "zstd".
        boundaries: what was added to each document.
        names: the source files' names, for the list of rejects.
    """

    schema: pa.Schema
    metadata: dict[str, str]
    shard_size: int
    compression: str | None
    boundaries: Boundaries
    names: Sequence[str]


@dataclass
class _OpenShard:
    """A shard that is being written, with everything its journal entry will say."""

    index: int
    temporary: Path
    stream: BinaryIO
    writer: ShardWriter
    schema: pa.Schema
    measure: int = 0
    batch: list[pa.RecordBatch] = field(default_factory=list)
    batch_measure: int = 0
    first: tuple[int, int] | None = None
    last: tuple[int, int] = (0, 0)
    ledger: dict[str, int] = field(default_factory=dict)
    sources: dict[int, list[int]] = field(default_factory=dict)
    rejects: list[bytes] = field(default_factory=list)
    flushed: int = 0
    flushes: list[Future[None]] = field(default_factory=list)

    def flush_batch(self) -> None:
        if self.batch:
            self.writer.write(compact(self.batch, self.schema))
            self.batch.clear()
            self.batch_measure = 0

    def count(self, name: str, number: int) -> None:
        if number:
            self.ledger[name] = self.ledger.get(name, 0) + number

    def count_files(self, files: NDArray[np.integer[Any]], *, rejected: bool) -> None:
        found, counts = np.unique(files, return_counts=True)
        for file, count in zip(found.tolist(), counts.tolist(), strict=True):
            entry = self.sources.setdefault(file, [0, 0])
            entry[0] += count
            entry[1] += count if rejected else 0


class Writer:
    """Writes placed blocks as shards.

    Args:
        journal: where shards and their journal entries go.
        settings: what the shards have in common.
        first_index: index of the first shard to write.
        end: the position behind the last document of the sources.

    Attributes:
        next_index: index of the shard that will be opened next.
        committed: journal entries of this run.
    """

    def __init__(self, journal: Journal, settings: ShardSettings, first_index: int, end: Position) -> None:
        self._journal = journal
        self._settings = settings
        self.next_index = first_index
        self._end = end
        self._shard: _OpenShard | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="flush")
        self.committed: list[Entry] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave what is committed."""
        self._thread.shutdown(wait=True)
        if self._shard is not None:
            self._shard.stream.close()
            self._shard.temporary.unlink(missing_ok=True)

    def write(self, block: PlacedBlock) -> None:
        """Append a block's documents.

        Raises:
            StoreError: the output cannot be written.
        """
        documents = block.documents
        ends = np.cumsum(row_measure(documents))
        begin, taken = 0, 0
        while begin < documents.num_rows:
            base = int(ends[begin - 1]) if begin else 0
            shard = self._shard
            measure = int(ends[begin]) - base
            if shard and shard.first and shard.measure + measure > self._settings.shard_size:
                taken = self._take_drops(block.drops, taken, begin)
                self._close_shard(block.position(begin))
                shard = None
            shard = shard or self._open_shard()
            room = min(self._settings.shard_size - shard.measure, RECORD_BATCH_BYTES - shard.batch_measure)
            stop = int(np.searchsorted(ends, base + room, side="right"))
            if stop <= begin:
                if shard.batch:
                    self._flush(shard)
                    continue
                stop = begin + 1  # larger than a record batch, or than a shard
            self._append(shard, block, begin, stop, int(ends[stop - 1]) - base)
            begin = stop
        self._take_drops(block.drops, taken, documents.num_rows)

    def finish(self) -> None:
        """Commit the last shard."""
        if self._shard is not None and self._shard.first is not None:
            self._close_shard(self._end)

    def rejects(self) -> list[bytes]:
        """Lines of the shard that is open."""
        return [] if self._shard is None else self._shard.rejects

    def ledger(self) -> dict[str, int]:
        """Counts of the shard that is open."""
        return {} if self._shard is None else self._shard.ledger

    def _open_shard(self) -> _OpenShard:
        index = self.next_index
        self.next_index += 1
        settings = self._settings
        metadata = {**settings.metadata, "task": str(self._journal.task), "index": str(index)}
        schema = settings.schema.with_metadata(
            {f"tokenloom.{name}": value for name, value in metadata.items()}
        )
        temporary = self._journal.scratch / f"shard-{self._journal.task:05}-{index:06}.arrow"
        with store_errors(temporary):
            stream = temporary.open("wb", buffering=0)
            writer = ShardWriter(stream, schema, settings.compression)
        self._shard = _OpenShard(index, temporary, stream, writer, schema)
        return self._shard

    def _append(self, shard: _OpenShard, block: PlacedBlock, begin: int, stop: int, measure: int) -> None:
        rows = block.documents.slice(begin, stop - begin)
        shard.batch.append(rows)
        shard.batch_measure += measure
        shard.measure += measure
        files = rows.column("source_file").to_numpy()
        numbers = rows.column("source_row").to_numpy()
        shard.first = shard.first or (int(files[0]), int(numbers[0]))
        shard.last = (int(files[-1]), int(numbers[-1]))
        shard.count_files(files, rejected=False)
        shard.count("written", stop - begin)
        flags = block.flags[begin:stop]
        if flags.any():
            for bit, name in FLAG_NAMES.items():
                shard.count(name, int(np.count_nonzero(flags & bit)))

    def _take_drops(self, drops: DropTable, taken: int, upto: int) -> int:
        """Account for the drops in front of document `upto`; returns how many are taken."""
        stop = int(np.searchsorted(drops.before, upto, side="right"))
        if stop == taken:
            return taken
        shard = self._shard or self._open_shard()
        part = drops.slice(taken, stop)
        shard.count_files(part.file, rejected=True)
        for code, count in enumerate(np.bincount(part.reason, minlength=len(REASONS)).tolist()):
            shard.count(REASONS[code], count)
        for place in np.flatnonzero(part.reason < LISTED).tolist():
            shard.rejects.append(self._reject_line(part, place))
        return stop

    def _reject_line(self, drops: DropTable, place: int) -> bytes:
        offset = int(drops.offset[place])
        line = {
            "file": self._settings.names[int(drops.file[place])],
            "row": int(drops.row[place]),
            "offset": offset if offset >= 0 else None,
            "reason": REASONS[int(drops.reason[place])],
            "message": drops.message[place],
        }
        return json.dumps(line, ensure_ascii=False).encode() + b"\n"

    def _flush(self, shard: _OpenShard) -> None:
        """Write the record batch that is full, and let the device begin with what has piled up."""
        with store_errors(shard.temporary):
            shard.flush_batch()
            written = shard.stream.tell()
            if written - shard.flushed >= FLUSH_BYTES:
                shard.flushed = written
                shard.flushes.append(self._thread.submit(os.fdatasync, shard.stream.fileno()))

    def _close_shard(self, position: Position) -> None:
        """Commit the open shard; when this returns it is durable, so a crash costs one shard at most."""
        shard = self._shard
        assert shard is not None
        path = self._journal.shard_path(shard.index)
        with store_errors(path):
            shard.flush_batch()
            size, checksum = shard.writer.finish()
            for flush in shard.flushes:
                flush.result()
            publish(shard.stream, shard.temporary, path)
        shard.stream.close()
        self._shard = None
        entry = Entry(
            self._row(shard, size, checksum),
            position,
            shard.ledger,
            [[file, *counts] for file, counts in sorted(shard.sources.items())],
        )
        self._journal.commit(entry, b"".join(shard.rejects))
        self.committed.append(entry)

    def _row(self, shard: _OpenShard, size: int, checksum: int) -> dict[str, Any]:
        assert shard.first is not None
        documents, added = shard.writer.stats.num_documents, self._settings.boundaries
        path = self._journal.shard_path(shard.index)
        return {
            "part": 0,
            "task": self._journal.task,
            "index": shard.index,
            "path": path.relative_to(self._journal.folder).as_posix(),
            **shard.writer.stats.row(),
            "file_bytes": size,
            "checksum": checksum,
            "bos_added": documents if added.bos_id is not None else 0,
            "eos_added": documents if added.eos_id is not None else 0,
            "first_file": shard.first[0],
            "first_row": shard.first[1],
            "last_file": shard.last[0],
            "last_row": shard.last[1],
            "source_base": 0,
        }
