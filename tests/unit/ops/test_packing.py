"""Packing algorithms over lengths: what goes where, and that nothing is lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from runtime.blocks import Block, Pieces
from runtime.ops.base import OpContext
from runtime.ops.bins import BinPacker, WrapPacker
from runtime.ops.pack import PackFlatOp


def documents(lengths: list[int], first: int = 0) -> Pieces:
    """Documents whose tokens lie one after the other, from place `first` of a chunk on."""
    size = len(lengths)
    ends = np.cumsum(lengths)
    return Pieces(
        np.zeros(size, np.int64),
        np.arange(first, first + size),
        np.zeros((size, 3), np.int64),
        np.zeros(size, np.int32),
        np.ones(size, np.bool_),
        np.zeros(size, np.int64),
        np.array(lengths, np.int64),
        (ends - lengths).astype(np.int64),
    )


def rows_of(*found: Any) -> list[list[tuple[int, int, int]]]:
    """Rows as (document, first token, tokens) of each piece."""
    rows = []
    for each in found:
        if each is not None:
            pieces = each.pieces
            entries = list(
                zip(pieces.offset.tolist(), pieces.start.tolist(), pieces.length.tolist(), strict=True)
            )
            rows += [entries[a:b] for a, b in zip(each.rows[:-1], each.rows[1:], strict=True)]
    return rows


def test_q45_wrapping_keeps_every_token() -> None:
    """Q45: lengths 4, 2, 3, 1 in rows of 3: all ten tokens come once, the tail as a row of its own."""
    packer = WrapPacker(3)
    assert rows_of(packer.push(documents([4, 2, 3, 1])), packer.flush()) == [
        [(0, 0, 3)],
        [(0, 3, 1), (1, 0, 2)],
        [(2, 0, 3)],
        [(3, 0, 1)],
    ]


@pytest.mark.parametrize("algorithm", ["wrap", "first_fit", "best_fit", "best_fit_wrap"])
def test_q45_documents_longer_than_a_row_are_cut_and_not_dropped(algorithm: str) -> None:
    packer = PackFlatOp(8, algorithm=algorithm).new_packer()
    rows = rows_of(packer.push(documents([800, 805])), packer.flush())
    assert sum(tokens for row in rows for _, _, tokens in row) == 1605
    assert all(sum(tokens for _, _, tokens in row) <= 8 for row in rows)
    for document, size in ((0, 800), (1, 805)):
        spans = sorted((start, start + n) for row in rows for d, start, n in row if d == document)
        assert [start for start, _ in spans] == [0, *(stop for _, stop in spans[:-1])]
        assert spans[-1][1] == size


def test_first_fit_takes_the_row_that_was_opened_first() -> None:
    packer = BinPacker(10, 4, best=False)
    assert rows_of(packer.push(documents([6, 7, 3, 1])), packer.flush())[0] == [
        (0, 0, 6),
        (2, 0, 3),
        (3, 0, 1),
    ]


def test_best_fit_takes_the_row_with_least_room() -> None:
    packer = BinPacker(10, 4, best=True)
    assert rows_of(packer.push(documents([6, 7, 3])))[0] == [(1, 0, 7), (2, 0, 3)]


def test_a_row_is_closed_when_too_many_are_open() -> None:
    oldest, fullest = BinPacker(10, 2, best=False), BinPacker(10, 2, best=False, close_fullest=True)
    lengths = [6, 7, 8]
    assert rows_of(oldest.push(documents(lengths))) == [[(0, 0, 6)]]
    assert rows_of(fullest.push(documents(lengths))) == [[(1, 0, 7)]]


def test_with_wrapping_every_row_but_the_last_ones_is_full() -> None:
    packer = BinPacker(100, 4, best=True, wrap=True)
    lengths = np.random.default_rng(0).integers(1, 300, 500).tolist()
    rows = rows_of(packer.push(documents(lengths)))
    assert all(sum(tokens for _, _, tokens in row) == 100 for row in rows)
    assert len(rows_of(packer.flush())) <= 4


def test_q48_a_row_never_holds_more_documents_than_allowed() -> None:
    packer = BinPacker(4096, 8, best=False, max_sequences=32)
    rows = rows_of(packer.push(documents([2] * 2000)), packer.flush())
    assert max(map(len, rows)) == 32
    assert sum(map(len, rows)) == 2000


@pytest.mark.parametrize("algorithm", ["wrap", "first_fit", "best_fit", "best_fit_wrap"])
def test_rows_do_not_depend_on_how_many_come_at_a_time(algorithm: str) -> None:
    op = PackFlatOp(50, algorithm=algorithm, num_bins=5)
    lengths = np.random.default_rng(1).integers(0, 120, 300).tolist()
    at_once = op.new_packer()
    expected = rows_of(at_once.push(documents(lengths)), at_once.flush())
    packer = op.new_packer()
    found = [packer.push(documents([length], first)) for first, length in enumerate(lengths)]
    assert rows_of(*found, packer.flush()) == expected


@pytest.mark.parametrize("algorithm", ["wrap", "first_fit", "best_fit", "best_fit_wrap"])
def test_each_document_is_closed_by_its_last_piece_alone(algorithm: str) -> None:
    packer = PackFlatOp(50, algorithm=algorithm, num_bins=3).new_packer()
    lengths = [0, 0, 49, 50, 51, 1, 400, 0, 7]
    last: dict[int, int] = {}
    closed = []
    for found in (packer.push(documents(lengths)), packer.flush()):
        assert found is not None
        pieces = found.pieces
        for document, start, length, closes in zip(
            pieces.offset.tolist(),
            pieces.start.tolist(),
            pieces.length.tolist(),
            pieces.closes.tolist(),
            strict=True,
        ):
            last[document] = max(last.get(document, 0), start + length)
            if closes:
                closed.append(document)
                assert start + length == lengths[document]
    assert sorted(closed) == list(range(len(lengths)))


def test_a_flushed_packer_is_as_new() -> None:
    """R7."""
    packer, fresh = (BinPacker(10, 2, best=True) for _ in range(2))
    packer.push(documents([3, 4, 5]))
    packer.flush()
    assert packer.flush() is None
    lengths = [9, 8, 2, 1, 7]
    assert rows_of(packer.push(documents(lengths)), packer.flush()) == rows_of(
        fresh.push(documents(lengths)), fresh.flush()
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_length": 0}, "max_length: expected 1 or more, found 0"),
        ({"algorithm": "worst_fit"}, "algorithm: expected first_fit, best_fit, wrap, best_fit_wrap, found"),
        ({"flush_strategy": "lifo"}, "flush_strategy: expected fifo or fullest, found 'lifo'"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PackFlatOp(**{"max_length": 8, **arguments})


def test_lanes_are_packed_apart() -> None:
    """Flushing one lane leaves the rows of another open."""
    accumulator = PackFlatOp(10, algorithm="wrap").accumulator(deterministic=True, ctx=OpContext())
    for lane in (0, 1):
        assert accumulator.push_many(Block(lane, documents([4]))) == []
    assert len(accumulator.flush(reset=True, lane_id=0)) == 1
    assert not accumulator.has_pending_data(0)
    assert accumulator.has_pending_data(1)
    [block] = accumulator.push_many(Block(1, documents([6], 1)))
    assert block.lane == 1
    assert block.lengths.tolist() == [10]
