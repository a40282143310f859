"""Packing algorithms over lengths: which pieces share a row.

Each packer belongs to one lane. `push` takes pieces in order and returns the rows that are full by now; what
is open stays inside. Rows depend on the pieces alone, never on how many come at a time. No packer loses a
token: a document that is longer than a row is cut into rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

import numpy as np

from runtime.blocks import Pieces

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runtime.blocks import Ints


class Rows(NamedTuple):
    """Packed rows.

    Attributes:
        pieces: in the order of the rows.
        rows: int64 of shape (rows + 1,): row r has pieces rows[r]:rows[r + 1].
    """

    pieces: Pieces
    rows: Ints


class Packer(Protocol):
    """One lane of a packing algorithm.

    Attributes:
        held: the pieces in open rows.
    """

    held: Pieces | None

    def push(self, pieces: Pieces) -> Rows | None:
        """Take pieces in; the rows that are full by now."""

    def flush(self) -> Rows | None:
        """Give out what is open, as rows that are not full, and be as new."""


def cut(pieces: Pieces, places: Ints) -> tuple[Pieces, Ints]:
    """Pieces laid end to end and cut at some places.

    Args:
        pieces: any.
        places: increasing, each between 1 and the sum of the lengths.

    Returns:
        The pieces after the cuts, and how many of them lie before each place: int64 of shape (places,).
    """
    ends = np.cumsum(pieces.length)
    begins = ends - pieces.length
    which = np.searchsorted(ends, places, side="left")
    inside = ends[which] != places
    counts = np.bincount(which[inside], minlength=len(pieces)) + 1
    source = np.repeat(np.arange(len(pieces)), counts)
    starts = np.concatenate([begins, places[inside]])
    starts.sort(kind="stable")
    stops = np.append(starts[1:], ends[-1])
    shift = starts - begins[source]
    last = np.append(source[1:] != source[:-1], True)
    return pieces.cut(source, shift, stops - starts, last), np.searchsorted(starts, places, side="left")


class WrapPacker:
    """Documents one after the other, cut where a row is full.

    Args:
        capacity: tokens a row.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self.held: Pieces | None = None

    def push(self, pieces: Pieces) -> Rows | None:
        if self.held is not None:
            pieces = Pieces.join([self.held, pieces])
        count = int(pieces.length.sum()) // self._capacity
        if not count:
            self.held = pieces if len(pieces) else None
            return None
        found, edges = cut(pieces, np.arange(1, count + 1) * self._capacity)
        full = int(edges[-1])
        self.held = found.take(slice(full, None)) if full < len(found) else None
        return Rows(found.take(slice(0, full)), np.concatenate([[0], edges]))

    def flush(self) -> Rows | None:
        carry, self.held = self.held, None
        return None if carry is None else Rows(carry, np.array([0, len(carry)]))


Fragment: TypeAlias = tuple[int, int, int]
"""A piece's place among those that a packer looks at, the first token of it that is meant, and how many."""


class _Bin:
    """An open row."""

    __slots__ = ("fragments", "free")

    def __init__(self, free: int) -> None:
        self.free = free
        self.fragments: list[Fragment] = []


class BinPacker:
    """Documents whole, in one of several open rows.

    A document longer than a row first fills rows of its own; what remains is packed. Where it fits into no
    open row, a new one is opened; where as many as allowed are open, one is closed, or, when wrapping, filled
    with the document's beginning.

    Args:
        capacity: tokens a row.
        num_bins: open rows at most.
        best: take the row that has least room; otherwise the one opened first.
        wrap: cut a document where no row has room for it, so that every row is full.
        max_sequences: pieces in a row at most; None: any number.
        close_fullest: close the fullest row; otherwise the one opened first.
        min_room: a row with less room than this is full.
    """

    def __init__(
        self,
        capacity: int,
        num_bins: int,
        *,
        best: bool,
        wrap: bool = False,
        max_sequences: int | None = None,
        close_fullest: bool = False,
        min_room: int = 1,
    ) -> None:
        self._capacity = capacity
        self._num_bins = num_bins
        self._best, self._wrap, self._close_fullest = best, wrap, close_fullest
        self._most = max_sequences or 1 << 62
        self._min_room = min_room
        self._bins: list[_Bin] = []
        self.held: Pieces | None = None

    def push(self, pieces: Pieces) -> Rows | None:
        held = 0 if self.held is None else len(self.held)
        done: list[list[Fragment]] = []
        for place, length in enumerate(pieces.length.tolist(), held):
            start = 0
            while length - start >= self._capacity:
                done.append([(place, start, self._capacity)])
                start += self._capacity
            if start < length or not length:
                self._place(place, start, length - start, done)
        everything = pieces if self.held is None else Pieces.join([self.held, pieces])
        kept = [fragment for each in self._bins for fragment in each.fragments]
        self.held = _fragments(everything, kept) if kept else None
        place = 0
        for each in self._bins:
            each.fragments = [(place + step, 0, fragment[2]) for step, fragment in enumerate(each.fragments)]
            place += len(each.fragments)
        if not done:
            return None
        order = [fragment for fragments in done for fragment in fragments]
        return Rows(_fragments(everything, order), np.cumsum([0, *map(len, done)]))

    def _place(self, place: int, start: int, length: int, done: list[list[Fragment]]) -> None:
        bins = self._bins
        chosen = self._fitting(length)
        while chosen is None and len(bins) >= self._num_bins:
            if not self._wrap:
                closed = min(bins, key=_room) if self._close_fullest else bins[0]
                bins.remove(closed)
                done.append(closed.fragments)
                break
            filled = max(bins, key=_room)
            filled.fragments.append((place, start, filled.free))
            bins.remove(filled)
            done.append(filled.fragments)
            start, length = start + filled.free, length - filled.free
            chosen = self._fitting(length)
        if chosen is None:
            chosen = _Bin(self._capacity)
            bins.append(chosen)
        chosen.fragments.append((place, start, length))
        chosen.free -= length
        if chosen.free < self._min_room or len(chosen.fragments) >= self._most:
            bins.remove(chosen)
            done.append(chosen.fragments)

    def _fitting(self, length: int) -> _Bin | None:
        """The open row that takes a document of a length."""
        if not self._best:
            return next((each for each in self._bins if each.free >= length), None)
        fitting = [each for each in self._bins if each.free >= length]
        return min(fitting, key=_room) if fitting else None

    def flush(self) -> Rows | None:
        counts = [len(each.fragments) for each in self._bins]
        held, self._bins, self.held = self.held, [], None
        return None if held is None else Rows(held, np.cumsum([0, *counts]))


def _room(each: _Bin) -> int:
    return each.free


def _fragments(pieces: Pieces, fragments: Sequence[Fragment]) -> Pieces:
    """Parts of pieces; only the last part of a piece closes."""
    places, starts, lengths = np.array(fragments, np.int64).reshape(-1, 3).T
    return pieces.cut(places, starts, lengths, starts + lengths == pieces.length[places])
