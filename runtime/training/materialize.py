"""From rows of a block to arrays: the one copy of the tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from runtime.blocks import NO_TOKENS, REF_SHIFT
from runtime.records import token_field
from runtime.training.payloads import tokens_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from runtime.blocks import Batch, Block, Ints
    from runtime.io.token_store import TokenStore

PADDING = -1
"""Where padding is: no shard."""

COUNTING_BYTES = 4
"""Narrower types may hold the positions in a document, but not the places in a batch."""

VIEWED_PIECES = 1024
"""Pieces that are made lists of at a time."""

FEW_PIECES = 48
"""Up to so many pieces a batch, joining a count for each is quicker than counting all and subtracting."""


class RowView:
    """The pieces of a block's rows with their padding, as lists that are quick to slice.

    Attributes:
        edges: row r has pieces edges[r] to edges[r + 1].
        views, firsts, stops: each piece's tokens: views[i][firsts[i]:stops[i]].
        starts, lengths: int64 of shape (pieces,): where each is when all are laid end to end.
        is_padding: bool of shape (pieces,); None: there is none.
        width: tokens of every row; None: they differ.
        dtype: of the tokens.
    """

    def __init__(self, block: Block, store: TokenStore, tokens_field: str = "auto") -> None:
        self.is_padding: NDArray[np.bool_] | None = None
        if block.payloads is None or _refers(block, tokens_field):
            lengths, rows = self._refer(block, store, tokens_field)
        else:
            lengths, rows = self._hold(block.payloads, tokens_field)
        self.edges: list[int] = rows.tolist()
        self.lengths = lengths
        self.starts = np.cumsum(lengths) - lengths
        self.width = block.capacity
        if block.capacity is None:
            sums = np.diff(np.append(self.starts, lengths.sum())[rows])
            self.width = int(sums[0]) if len(sums) and int(sums.min()) == int(sums.max()) else None

    def _refer(self, block: Block, store: TokenStore, tokens_field: str) -> tuple[Ints, Ints]:
        """Tokens of shards; returns lengths and edges."""
        if block.payloads is None and tokens_field not in ("auto", "tokens"):
            raise ValueError(f"tokens_field: token shards have the field tokens, found {tokens_field!r}")
        pieces = block.pieces
        rows = np.arange(len(block) + 1) if block.rows is None else block.rows
        places, firsts, lengths = pieces.ref >> REF_SHIFT, pieces.ref & ((1 << REF_SHIFT) - 1), pieces.length
        tokens = {place: store.column(place).tokens for place in set(places.tolist())}
        if block.capacity is not None:
            room = block.capacity - block.lengths
            padded = np.flatnonzero(room)
            if len(padded):
                at = rows[padded + 1]
                places, firsts = np.insert(places, at, PADDING), np.insert(firsts, at, 0)
                lengths = np.insert(lengths, at, room[padded])
                rows = rows + np.concatenate([[0], np.cumsum(room > 0)])
                self.is_padding = places == PADDING
                padding = np.min_scalar_type(block.pad_id)
                tokens[PADDING] = np.full(block.capacity, block.pad_id, padding)
        self.dtype = _widest(list(tokens.values()))
        views = {place: _viewed(each, self.dtype) for place, each in tokens.items()}
        self.views = [views[place] for place in places.tolist()]
        self.firsts, self.stops = firsts.tolist(), (firsts + lengths).tolist()
        return lengths, rows

    def _hold(self, payloads: Sequence[Any], tokens_field: str) -> tuple[Ints, Ints]:
        """Tokens that records carry, a piece a row; returns lengths and edges."""
        arrays = [tokens_in(payload, tokens_field) for payload in payloads]
        self.dtype = _widest(arrays)
        self.views = [np.ascontiguousarray(each, self.dtype) for each in arrays]
        self.firsts, self.stops = [0] * len(arrays), [len(each) for each in arrays]
        return np.array(self.stops, np.int64), np.arange(len(arrays) + 1)


def _refers(block: Block, tokens_field: str) -> bool:
    """Whether the ids that are asked for are those that the pieces refer to."""
    if not len(block) or bool((block.pieces.ref == NO_TOKENS).any()):
        return False
    return tokens_field == "auto" or all(token_field(each) == tokens_field for each in block.payloads or ())


def _viewed(tokens: NDArray[Any], dtype: np.dtype[Any]) -> Any:
    """What gives slices of tokens in a type, at the least cost."""
    return memoryview(tokens) if tokens.dtype == dtype else _Widened(tokens, dtype)  # type: ignore[arg-type]


def _widest(arrays: Sequence[NDArray[Any]]) -> np.dtype[Any]:
    """The type that holds the ids of all of them."""
    return np.result_type(*{each.dtype for each in arrays}) if arrays else np.dtype(np.uint16)


class _Widened:
    """Tokens of a narrower type, widened slice by slice."""

    def __init__(self, tokens: NDArray[Any], dtype: np.dtype[Any]) -> None:
        self._tokens, self._dtype = tokens, dtype

    def __getitem__(self, places: slice) -> NDArray[Any]:
        return self._tokens[places].astype(self._dtype)


def row_view(batch: Batch, store: TokenStore, tokens_field: str) -> tuple[RowView, int]:
    """A view with the rows of a batch in it, and the first row of the block that it has.

    Views are of some rows, of which the latest is kept: lists of all would cost memory on every lane.
    """
    kept: tuple[RowView, int, int] | None = batch.block.cache.get(tokens_field)
    if kept is None or not (kept[1] <= batch.first and batch.stop <= kept[2]):
        stop = max(batch.stop, _rows_of(batch.block, batch.first))
        view = RowView(batch.block.slice(batch.first, stop), store, tokens_field)
        kept = batch.block.cache[tokens_field] = view, batch.first, stop
    return kept[0], kept[1]


def _rows_of(block: Block, first: int) -> int:
    """Behind the rows from `first` on that have about as many pieces as a view should."""
    if block.rows is None:
        return min(first + VIEWED_PIECES, len(block))
    return int(np.searchsorted(block.rows, block.rows[first] + VIEWED_PIECES, side="right")) - 1


class BatchView:
    """The rows of a batch.

    Attributes:
        rows: how many.
        width: tokens of each, with padding.
        dtype: of the tokens as they are stored.
        lengths: int64 of shape (pieces,): tokens of each piece, padding being pieces, too.

    Raises:
        ValueError: rows have different lengths.
    """

    def __init__(self, batch: Batch, store: TokenStore, tokens_field: str = "auto") -> None:
        view, first = row_view(batch, store, tokens_field)
        self._view, self.dtype = view, view.dtype
        self._edges = view.edges[batch.first - first : batch.stop - first + 1]
        self._first, self._stop = self._edges[0], self._edges[-1]
        self.rows = batch.stop - batch.first
        self.lengths = view.lengths[self._first : self._stop]
        self.width = self._common_width() if view.width is None else view.width

    def _common_width(self) -> int:
        edges = np.array(self._edges) - self._first
        widths = np.diff(np.append(0, np.cumsum(self.lengths))[edges])
        if int(widths.min()) != int(widths.max()):
            raise ValueError(
                f"to_training: rows have different lengths, {int(widths.min()):,} to {int(widths.max()):,} "
                "tokens; pack them (pack_flat), or look at batch.records"
            )
        return int(widths[0])

    def tokens(self, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Ids with padding, of shape (rows, width); a copy of its own."""
        view, first, stop = self._view, self._first, self._stop
        pieces = zip(view.views[first:stop], view.firsts[first:stop], view.stops[first:stop], strict=True)
        joined = b"".join([tokens[low:high] for tokens, low, high in pieces])
        stored = np.frombuffer(joined, view.dtype)
        is_narrower = dtype.itemsize <= view.dtype.itemsize and dtype != view.dtype
        if (is_narrower or (dtype.kind == "u" and view.dtype.kind == "i")) and len(stored):
            _refuse_wrapping(stored, dtype)
        return stored.astype(dtype).reshape(self.rows, self.width)

    def positions(self, dtype: np.dtype[Any]) -> NDArray[Any]:
        """The place of each token in its piece, of shape (rows, width); it begins anew with padding."""
        if dtype.itemsize < COUNTING_BYTES:
            return self.positions(np.dtype(np.int64)).astype(dtype)
        size = self.rows * self.width
        counting = _counting(size, dtype)
        if len(self.lengths) <= FEW_PIECES:
            view = memoryview(counting)  # type: ignore[arg-type] # an array is a buffer
            joined = bytearray().join([view[:length] for length in self.lengths.tolist()])
            return np.frombuffer(joined, dtype).reshape(self.rows, self.width)
        starts = self._view.starts[self._first : self._stop]
        begins = np.repeat((starts - starts[0]).astype(dtype, copy=False), self.lengths)
        np.subtract(counting, begins, out=begins)
        return begins.reshape(self.rows, self.width)

    def positions_in_rows(self, dtype: np.dtype[Any]) -> NDArray[Any]:
        """The place of each token in its row, of shape (rows, width)."""
        return np.tile(_counting(self.width, dtype), (self.rows, 1))

    def document_ids(self) -> NDArray[np.int32]:
        """The number of each token's piece in its row, from 0, padding counted as one; (rows, width)."""
        lengths = self.lengths[self.lengths > 0]
        starts = np.cumsum(lengths) - lengths
        rows = starts // max(self.width, 1)
        numbers = np.arange(len(lengths)) - np.searchsorted(rows, rows, side="left")
        return np.repeat(numbers.astype(np.int32), lengths).reshape(self.rows, self.width)

    def padding(self) -> NDArray[np.bool_] | None:
        """Where padding is, of shape (rows, width); None: nowhere."""
        is_padding = self._view.is_padding
        if is_padding is None or not (which := is_padding[self._first : self._stop]).any():
            return None
        return np.repeat(which, self.lengths).reshape(self.rows, self.width)

    def boundaries(self, width: int) -> NDArray[np.int32]:
        """Where documents and padding begin in the first `width` tokens of rows laid end to end, and the end.

        int32 of shape (documents + 1,); a document that begins later in its row is left out.
        """
        starts = self._view.starts[self._first : self._stop][self.lengths > 0]
        if len(starts):
            starts = starts - starts[0]
        if width < self.width:
            row, place = np.divmod(starts, self.width)
            starts = (row * width + place)[place < width]
        return np.append(starts, self.rows * width).astype(np.int32)


def _refuse_wrapping(ids: NDArray[Any], dtype: np.dtype[Any]) -> None:
    limits = np.iinfo(dtype)
    worst = next(
        (each for each in (int(ids.max()), int(ids.min())) if not limits.min <= each <= limits.max), None
    )
    if worst is not None:
        raise ValueError(f"dtype: {dtype} does not hold the id {worst:,}")


def _counting(size: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """0, 1, ... of which the longest so far is kept: making it anew costs as much as using it."""
    kept = _COUNTINGS.get(dtype.char)  # to hash the type itself takes longer than all the rest
    if kept is None or len(kept) < size:
        kept = _COUNTINGS[dtype.char] = np.arange(size, dtype=dtype)
        kept.flags.writeable = False
    return kept[:size]


_COUNTINGS: dict[str, NDArray[Any]] = {}
