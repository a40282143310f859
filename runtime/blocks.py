"""The unit of flow inside the engine: records of one lane as columns.

A block has rows, which are what users call records, and pieces, which say of which samples a row is made: one
piece a row before packing, several after. A piece's tokens are a reference, a place in a shard and a length;
they are copied only when a batch is made. Records (`runtime.types`) are made of a block and become a block
again without a loss (`runtime.records`; tests/property/test_records.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from runtime.types import ContributorRef, SampleCursor, SampleMeta, SampleRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from runtime.types import SampleId

Ints: TypeAlias = "NDArray[np.int64]"
Objects: TypeAlias = "NDArray[np.object_]"

REF_SHIFT = 40
"""A reference to tokens is `place << 40 | first token`: which mapped column, and where in it."""

NO_TOKENS = -1
"""The reference of a piece without tokens of its own, such as one of a record with another payload."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """Parts of samples, one an entry of each column.

    Attributes:
        chunk, offset: int64 of shape (pieces,): the base offset.
        sample: int64 of shape (pieces, 3): (dataset_id, shard_id, sample_idx).
        component: int32 of shape (pieces,).
        closes: bool of shape (pieces,): nothing else of the base offset will come.
        start: int64 of shape (pieces,): the first token, counted in the sample.
        length: int64 of shape (pieces,): tokens; 0 before they are known.
        ref: int64 of shape (pieces,): where the tokens are, see `REF_SHIFT`; NO_TOKENS: nowhere.
        lineage: objects of shape (pieces,): paths of child numbers, as tuples; None: all are empty.
        held: objects of shape (pieces,): what keeps the tokens in memory, where they are in no shard; None:
            nowhere.
    """

    chunk: Ints
    offset: Ints
    sample: Ints
    component: NDArray[np.int32]
    closes: NDArray[np.bool_]
    start: Ints
    length: Ints
    ref: Ints
    lineage: Objects | None = None
    held: Objects | None = None

    def __len__(self) -> int:
        return len(self.chunk)

    def take(self, places: Any) -> Pieces:
        """Some pieces, by a slice or by indices."""
        lineage, held = self.lineage, self.held
        columns: list[Any] = [getattr(self, name)[places] for name in COLUMNS]
        if lineage is None and held is None:
            return Pieces(*columns)
        columns.append(lineage if lineage is None else lineage[places])
        columns.append(held if held is None else held[places].copy())  # a view would keep all of them
        return Pieces(*columns)

    def cut(self, source: Ints, shift: Ints, length: Ints, last: NDArray[np.bool_]) -> Pieces:
        """Parts of pieces.

        Args:
            source: int64 of shape (parts,): the piece that each is of.
            shift: int64 of shape (parts,): its first token, counted in the piece.
            length: int64 of shape (parts,): its tokens.
            last: bool of shape (parts,): whether it ends where the piece does; others close nothing.
        """
        taken = self.take(source)
        return replace(
            taken,
            closes=taken.closes & last,
            start=taken.start + shift,
            length=length,
            ref=taken.ref + shift,
        )

    @classmethod
    def join(cls, parts: Sequence[Pieces]) -> Pieces:
        """Pieces of several, one after the other."""
        if len(parts) == 1:
            return parts[0]
        columns: list[Any] = [np.concatenate([getattr(part, name) for part in parts]) for name in COLUMNS]
        columns.append(_joined_objects(parts, "lineage", ()))
        columns.append(_joined_objects(parts, "held", None))
        return cls(*columns)

    def cursor(self, place: int) -> SampleCursor:
        """The identity of the record that a piece is of."""
        lineage = () if self.lineage is None else self.lineage[place]
        return SampleCursor(int(self.chunk[place]), int(self.offset[place]), self.sample_id(place), lineage)

    def sample_id(self, place: int) -> SampleId:
        """The sample of a piece."""
        dataset, shard, sample = self.sample[place].tolist()
        return dataset, shard, sample


COLUMNS = tuple(column.name for column in fields(Pieces))[:-2]


def objects(values: Iterable[Any], count: int) -> Objects:
    """A column of objects, also of such that are sequences themselves."""
    return np.fromiter(values, np.object_, count)


def _joined_objects(parts: Sequence[Pieces], name: str, missing: Any) -> Objects | None:
    columns = [getattr(part, name) for part in parts]
    if all(column is None for column in columns):
        return None
    return np.concatenate(
        [
            objects((missing for _ in range(len(part))), len(part)) if column is None else column
            for part, column in zip(parts, columns, strict=True)
        ]
    )


@dataclass(frozen=True, slots=True)
class Block:
    """Records of one lane, in order. As a sequence it holds `SampleRecord`s.

    Attributes:
        lane: of all of them.
        pieces: what they are made of.
        rows: int64 of shape (rows + 1,): row r has pieces rows[r]:rows[r + 1]. None: a piece a row.
        payloads: each row's payload; None: the tokens that the pieces refer to.
        metas: each row's metadata, where it says more than the pieces do; None: nowhere.
        capacity: tokens of a row with its padding; None: rows are as long as their pieces.
        pad_id: the id that stands for padding.
        cache: what was computed of this block and may be again.
    """

    lane: int
    pieces: Pieces
    rows: Ints | None = None
    payloads: tuple[Any, ...] | None = None
    metas: tuple[SampleMeta, ...] | None = None
    capacity: int | None = None
    pad_id: int = 0
    cache: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.pieces) if self.rows is None else len(self.rows) - 1

    @property
    def lengths(self) -> Ints:
        """Tokens of each row, without padding: int64 of shape (rows,)."""
        if self.rows is None:
            return self.pieces.length
        sums = np.concatenate([[0], np.cumsum(self.pieces.length)])
        return np.diff(sums[self.rows])

    def slice(self, first: int, stop: int) -> Block:
        """Rows from `first` to `stop`; columns are views."""
        if self.rows is None:
            low, high, rows = first, stop, None
        else:
            rows = self.rows[first : stop + 1]
            low, high = int(rows[0]), int(rows[-1])
            rows = rows - low
        return replace(
            self,
            pieces=self.pieces.take(slice(low, high)),
            rows=rows,
            payloads=None if self.payloads is None else self.payloads[first:stop],
            metas=None if self.metas is None else self.metas[first:stop],
        )

    def take(self, places: Ints) -> Block:
        """Rows in another order, or some of them."""
        if self.rows is None:
            pieces, rows = places, None
        else:
            counts = np.diff(self.rows)[places]
            rows = np.concatenate([[0], np.cumsum(counts)])
            pieces = np.arange(rows[-1]) + np.repeat(self.rows[places] - rows[:-1], counts)
        return replace(
            self,
            pieces=self.pieces.take(pieces),
            rows=rows,
            payloads=_taken(self.payloads, places),
            metas=_taken(self.metas, places),
        )

    @classmethod
    def join(cls, blocks: Sequence[Block]) -> Block:
        """The rows of several blocks of one lane, one after the other."""
        if len(blocks) == 1:
            return blocks[0]
        rows = None
        if any(block.rows is not None for block in blocks):
            counts = [
                np.diff(block.rows) if block.rows is not None else np.ones(len(block)) for block in blocks
            ]
            rows = np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(np.int64)
        return cls(
            blocks[0].lane,
            Pieces.join([block.pieces for block in blocks]),
            rows,
            _joined(blocks, "payloads", lambda block: (None,) * len(block)),
            _joined(blocks, "metas", lambda block: tuple(record.meta for record in block)),
            blocks[0].capacity,
            blocks[0].pad_id,
        )

    def closings(self) -> Closings:
        """The base offsets that its rows close."""
        pieces = self.pieces
        return Closings(self.lane, pieces.chunk[pieces.closes], pieces.offset[pieces.closes])

    def __getitem__(self, row: int) -> SampleRecord:
        if not -len(self) <= row < len(self):
            raise IndexError(row)
        row %= len(self)
        return SampleRecord(self._meta(row), None if self.payloads is None else self.payloads[row])

    def __iter__(self) -> Iterator[SampleRecord]:
        for row in range(len(self)):
            yield self[row]

    def all_metas(self) -> list[SampleMeta]:
        """The metadata of every row; quicker than row by row."""
        if self.metas is not None:
            return list(self.metas)
        pieces = self.pieces
        if self.rows is not None or self.capacity is not None or not bool(pieces.closes.all()):
            return [self._meta(row) for row in range(len(self))]
        lane = self.lane
        lineages = [()] * len(pieces) if pieces.lineage is None else pieces.lineage.tolist()
        columns = [pieces.chunk, pieces.offset, pieces.component, pieces.length, pieces.ref != NO_TOKENS]
        lists = (column.tolist() for column in columns)
        return [
            SampleMeta(
                tuple(sample),
                lane,
                chunk,
                offset,
                {component: 1},
                ({component: length} if length else {}) if has_tokens else None,
                lineage,
            )
            for sample, lineage, chunk, offset, component, length, has_tokens in zip(
                pieces.sample.tolist(), lineages, *lists, strict=True
            )
        ]

    def _meta(self, row: int) -> SampleMeta:
        if self.metas is not None:
            return self.metas[row]
        first, stop = (row, row + 1) if self.rows is None else (int(self.rows[row]), int(self.rows[row + 1]))
        pieces, lane = self.pieces, self.lane
        cursors = [pieces.cursor(place) for place in range(first, stop)]
        own = tuple(
            ContributorRef(cursor, bool(closes))
            for cursor, closes in zip(cursors, pieces.closes[first:stop].tolist(), strict=True)
        )
        cursor = cursors[0] if self.rows is None else cursors[0].child(int(pieces.start[first]))
        components = pieces.component[first:stop]
        tokens = np.bincount(components, pieces.length[first:stop]) if self._has_tokens(first, stop) else None
        return SampleMeta(
            sample_id=cursor.sample_id,
            lane_id=lane,
            chunk_id=cursor.chunk_id,
            chunk_offset=cursor.chunk_offset,
            component_sample_counts=_counted(np.bincount(components)),
            component_token_counts=None if tokens is None else _counted(tokens),
            lineage=cursor.lineage,
            padding_length=0
            if self.capacity is None
            else self.capacity - int(pieces.length[first:stop].sum()),
            own_contributors=None if own == (ContributorRef(cursor),) else own,
        )

    def _has_tokens(self, first: int, stop: int) -> bool:
        return bool((self.pieces.ref[first:stop] != NO_TOKENS).any())


@dataclass(frozen=True, slots=True)
class Closings:
    """Base offsets that no record will close: what an operator dropped owed them.

    Attributes:
        lane: of all of them.
        chunk, offset: int64 of shape (n,).
    """

    lane: int
    chunk: Ints
    offset: Ints


@dataclass(frozen=True, slots=True)
class Sentinel:
    """The end of an epoch of a lane: every accumulator that it passes empties itself for that lane.

    Attributes:
        lane: whose.
        boundary: the first chunk behind it.
    """

    lane: int
    boundary: int


@dataclass(frozen=True, slots=True)
class Batch:
    """Some rows of a block, for the training loop.

    Attributes:
        block: that holds them.
        first, stop: which rows.
    """

    block: Block
    first: int
    stop: int

    @property
    def lane(self) -> int:
        """The lane of all rows."""
        return self.block.lane

    def __len__(self) -> int:
        return self.stop - self.first


Item: TypeAlias = Block | Batch | Closings | Sentinel
"""What flows from operator to operator."""


def pointers(lane: int, chunk: int, component: NDArray[np.int32], sample: Ints, first: int = 0) -> Block:
    """A block of samples that were not read yet, from consecutive places of a chunk."""
    size = len(sample)
    zeros = np.zeros(size, np.int64)
    return Block(
        lane,
        Pieces(
            np.full(size, chunk, np.int64),
            np.arange(first, first + size),
            sample,
            component,
            np.ones(size, np.bool_),
            zeros,
            zeros,
            np.full(size, NO_TOKENS, np.int64),
        ),
    )


def _counted(counts: NDArray[Any]) -> dict[int, int]:
    return {index: int(count) for index, count in enumerate(counts.tolist()) if count}


def _taken(values: tuple[Any, ...] | None, places: Ints) -> tuple[Any, ...] | None:
    return None if values is None else tuple(values[place] for place in places.tolist())


def _joined(blocks: Sequence[Block], name: str, missing: Callable[[Block], tuple[Any, ...]]) -> Any:
    if all(getattr(block, name) is None for block in blocks):
        return None
    parts = [getattr(block, name) if getattr(block, name) is not None else missing(block) for block in blocks]
    return tuple(value for part in parts for value in part)
