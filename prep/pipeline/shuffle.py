"""Shuffling documents in blocks of the document stream.

The stream, across files, is cut into blocks: a block ends before the document that would make it exceed
`block_bytes` of text, and after `block_documents` documents. Each block is permuted by sorting keys that
xxh3 makes of (seed, block, position). All of it is a function of the stream, so a restart reproduces it.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import xxhash

from prep.catalog.columns import compact
from prep.pipeline.reorder import DropTable, PlacedBlock

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from numpy.typing import NDArray

    from prep.pipeline.messages import Position


class BlockShuffle:
    """Permutes documents block by block.

    Args:
        schema: the shard's columns.
        seed: the job's seed.
        block_documents: documents a block at most.
        block_bytes: bytes of text a block at most; a larger document is a block of its own.
        start: where the job begins; its block was begun, and `start.skip` documents of it are done.
    """

    def __init__(
        self, schema: pa.Schema, seed: int, block_documents: int, block_bytes: int, start: Position
    ) -> None:
        self._schema = schema
        self._seed = seed
        self._max_documents = block_documents
        self._max_bytes = block_bytes
        self._start = start
        self._block = start.block
        self._skip = start.skip
        self._pieces: list[PlacedBlock] = []
        self._documents = 0
        self._bytes = 0

    def shuffle(self, blocks: Iterable[PlacedBlock]) -> Generator[PlacedBlock, None, None]:
        """The shuffled blocks of a stream; each carries the drops that were read with it."""
        for block in blocks:
            yield from self._add(block)
        if self._pieces:
            yield self._emit()

    def _add(self, block: PlacedBlock) -> Iterator[PlacedBlock]:
        ends = np.cumsum(block.documents.column("text_bytes").to_numpy(), dtype=np.int64)
        begin, taken = 0, 0
        while begin < len(ends):
            base = int(ends[begin - 1]) if begin else 0
            fitting = int(np.searchsorted(ends, base + self._max_bytes - self._bytes, side="right"))
            stop = min(max(fitting, begin), begin + self._max_documents - self._documents)
            if stop == begin and not self._documents:
                stop = begin + 1  # larger than a block
            if stop > begin:
                self._documents += stop - begin
                self._bytes += int(ends[stop - 1]) - base
            # Drops in front of the document that begins the next block belong to this one.
            upto = int(
                np.searchsorted(block.drops.before, stop, side="right" if stop < len(ends) else "left")
            )
            self._pieces.append(_piece(block, begin, stop, taken, upto))
            begin, taken = stop, upto
            if begin < len(ends):
                yield self._emit()
        if taken < len(block.drops):
            self._pieces.append(_piece(block, begin, begin, taken, len(block.drops)))

    def _emit(self) -> PlacedBlock:
        """Close the open block and permute it."""
        pieces, number, skip = self._pieces, self._block, self._skip
        self._pieces, self._block, self._skip, self._documents, self._bytes = [], number + 1, 0, 0, 0
        drops = _join_drops([piece.drops for piece in pieces])
        first = next((piece for piece in pieces if piece.documents.num_rows), None)
        if first is None:
            return replace(pieces[0], drops=drops)
        documents = compact([piece.documents for piece in pieces], self._schema)
        order = self._order(number, documents.num_rows)[skip:]
        flags = np.concatenate([piece.flags for piece in pieces])[order]
        drops.before[:] = len(order)
        # The first block begins where the job does, at the records in front of its first document.
        begin = self._start if number == self._start.block else first.position(0)
        position = begin._replace(block=number, skip=skip)
        taken = documents.take(pa.array(order.tolist(), pa.int64()))
        return PlacedBlock(taken, flags, drops, [], shuffled=position)

    def _order(self, block: int, count: int) -> NDArray[np.int64]:
        digest, pack = xxhash.xxh3_64_intdigest, struct.Struct("<QqQ").pack
        keys = np.array([digest(pack(self._seed, block, place)) for place in range(count)], np.uint64)
        return np.argsort(keys, kind="stable")


def _piece(block: PlacedBlock, begin: int, stop: int, taken: int, upto: int) -> PlacedBlock:
    """Documents [begin, stop) and drops [taken, upto) of a block."""
    return PlacedBlock(
        block.documents.slice(begin, stop - begin),
        block.flags[begin:stop],
        block.drops.slice(taken, upto),
        [(max(0, first - begin), position) for first, position in block.anchors],
    )


def _join_drops(tables: list[DropTable]) -> DropTable:
    return DropTable(
        np.concatenate([table.file for table in tables]),
        np.concatenate([table.row for table in tables]),
        np.concatenate([table.reason for table in tables]),
        np.concatenate([table.offset for table in tables]),
        [message for table in tables for message in table.message],
        np.zeros(sum(map(len, tables)), np.int64),
    )
