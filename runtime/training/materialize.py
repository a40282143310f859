"""From rows of a block to arrays: the one copy of the tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from runtime.blocks import REF_SHIFT

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from runtime.blocks import Batch, Block
    from runtime.io.token_store import TokenStore


class RowView:
    """The pieces of a block's rows with their padding, as lists that are quick to slice.

    Attributes:
        edges: row r has pieces edges[r] to edges[r + 1].
        views, firsts, stops: each piece's tokens: views[i][firsts[i]:stops[i]].
        starts, lengths: int64 of shape (pieces,): where each is when all are laid end to end.
        is_padding: bool of shape (pieces,).
        dtype: of the tokens.
    """

    def __init__(self, block: Block, store: TokenStore) -> None:
        pieces = block.pieces
        rows = np.arange(len(block) + 1) if block.rows is None else block.rows
        places, firsts, lengths = pieces.ref >> REF_SHIFT, pieces.ref & ((1 << REF_SHIFT) - 1), pieces.length
        columns = {place: store.column(place) for place in np.unique(places).tolist()}
        dtypes = {column.tokens.dtype for column in columns.values()}
        self.dtype = max(dtypes, key=lambda dtype: dtype.itemsize)
        self.is_padding = np.zeros(len(places), np.bool_)
        views: dict[int, Any] = {
            place: column.view if column.tokens.dtype == self.dtype else _Widened(column.tokens, self.dtype)
            for place, column in columns.items()
        }
        if block.capacity is not None:
            room = block.capacity - block.lengths
            padded = np.flatnonzero(room)
            if len(padded):
                at = rows[padded + 1]
                places = np.insert(places, at, -1)
                firsts = np.insert(firsts, at, 0)
                lengths = np.insert(lengths, at, room[padded])
                self.is_padding = np.insert(self.is_padding, at, values=True)
                rows = rows + np.concatenate([[0], np.cumsum(room > 0)])
                views[-1] = memoryview(np.full(block.capacity, block.pad_id, self.dtype))  # type: ignore[arg-type]
        self.views = [views[place] for place in places.tolist()]
        self.firsts, self.stops = firsts.tolist(), (firsts + lengths).tolist()
        self.edges: list[int] = rows.tolist()
        self.lengths = lengths
        self.starts = np.cumsum(lengths) - lengths


class _Widened:
    """Tokens of a narrower type, widened slice by slice."""

    def __init__(self, tokens: NDArray[Any], dtype: np.dtype[Any]) -> None:
        self._tokens, self._dtype = tokens, dtype

    def __getitem__(self, places: slice) -> NDArray[Any]:
        return self._tokens[places].astype(self._dtype)


def row_view(block: Block, store: TokenStore) -> RowView:
    """The view of a block; computed once."""
    view: RowView | None = block.cache.get("rows")
    if view is None:
        view = block.cache["rows"] = RowView(block, store)
    return view


def tokens_of(batch: Batch, store: TokenStore) -> NDArray[Any]:
    """The tokens of a batch, row after row, padding included: one dimension, uint16 or uint32."""
    view = row_view(batch.block, store)
    first, stop = view.edges[batch.first], view.edges[batch.stop]
    joined = b"".join(
        [
            tokens[low:high]
            for tokens, low, high in zip(
                view.views[first:stop], view.firsts[first:stop], view.stops[first:stop], strict=True
            )
        ]
    )
    return np.frombuffer(joined, view.dtype)


def positions_of(batch: Batch, store: TokenStore, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The place of each token in its piece, which begins anew with each document and with padding."""
    view = row_view(batch.block, store)
    which = slice(view.edges[batch.first], view.edges[batch.stop])
    starts, lengths = view.starts[which], view.lengths[which]
    if not len(starts):
        return np.zeros(0, dtype)
    begin = starts[0]
    size = int(starts[-1] + lengths[-1] - begin)
    begins = np.repeat((starts - begin).astype(dtype), lengths)
    np.subtract(_counting(size, dtype), begins, out=begins)
    return begins


def _counting(size: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """0, 1, ... of which the longest so far is kept: making it anew costs as much as using it."""
    kept = _COUNTINGS.get(dtype)
    if kept is None or len(kept) < size:
        kept = _COUNTINGS[dtype] = np.arange(size, dtype=dtype)
        kept.flags.writeable = False
    return kept[:size]


_COUNTINGS: dict[np.dtype[Any], NDArray[Any]] = {}
