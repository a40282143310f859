"""Rows of token shards as records and as rows again, with the ids where they lie."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from runtime.blocks import Block, pointers
from runtime.io import Dataset
from runtime.io.token_store import PAYLOAD_PLACES, TokenStore
from runtime.ops.pack import PackFlatOp
from runtime.records import PayloadError, items_of, records_of, with_payloads
from runtime.types import SampleRecord

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def store(catalog_folder: Path) -> TokenStore:
    return TokenStore({0: Dataset.from_path("finished", str(catalog_folder))})


@pytest.fixture
def block(store: TokenStore) -> Block:
    """The documents of the first shard, from the last to the first."""
    count = int(store.datasets[0].counts()[0])
    sample = np.zeros((count, 3), np.int64)
    sample[:, 2] = np.arange(count)[::-1]
    found = pointers(1, 5, np.full(count, 2, np.int32), sample)
    refs, lengths = store.find(sample)
    return replace(found, pieces=replace(found.pieces, ref=refs, length=lengths))


def packed(block: Block) -> Block:
    packer = PackFlatOp(40, pad_token_id=3, num_bins=2).new_packer()
    rows = [each for each in (packer.push(block.pieces), packer.flush()) if each is not None]
    return Block.join([Block(1, each.pieces, each.rows, capacity=40, pad_id=3) for each in rows])


def columns(block: Block) -> list[Any]:
    pieces = block.pieces
    return [
        column.tolist()
        for column in (
            pieces.chunk,
            pieces.offset,
            pieces.sample,
            pieces.component,
            pieces.closes,
            pieces.start,
            pieces.length,
        )
    ]


def test_a_row_of_a_shard_is_a_view_that_cannot_be_written(store: TokenStore, block: Block) -> None:
    for record, length in zip(records_of(block, store), block.lengths.tolist(), strict=True):
        assert list(record.payload) == ["tokens"]
        assert len(record.payload["tokens"]) == length
        assert record.meta.component_token_counts == ({2: length} if length else {})
        with pytest.raises(ValueError, match="read-only"):
            record.payload["tokens"][...] = 0


def test_a_block_becomes_the_same_references_again(store: TokenStore, block: Block) -> None:
    (found,) = items_of(records_of(block, store), store)
    assert isinstance(found, Block)
    assert columns(found) == columns(block)
    assert found.pieces.ref.tolist() == block.pieces.ref.tolist()
    assert (found.pieces.held, found.metas, found.rows) == (None, None, None)


def test_a_part_of_a_document_is_referred_to_where_it_lies(store: TokenStore, block: Block) -> None:
    records = [
        SampleRecord(each.meta, {"tokens": each.payload["tokens"][2:5]}) for each in records_of(block, store)
    ]
    (found,) = items_of(records, store)
    assert isinstance(found, Block)
    assert found.pieces.held is None
    parts = np.clip(block.lengths - 2, 0, 3)
    assert found.lengths.tolist() == parts.tolist()
    assert found.pieces.start[parts > 0].tolist() == [2] * int((parts > 0).sum())


def test_packed_rows_keep_padding_pieces_and_where_they_begin(store: TokenStore, block: Block) -> None:
    rows = packed(block)
    records = records_of(rows, store)
    for record in records:
        payload = record.payload
        assert len(payload["tokens"]) == 40
        assert payload["cu_seqlens"][-1] + record.meta.padding_length == 40
        assert (payload["tokens"][payload["cu_seqlens"][-1] :] == 3).all()
        assert len(payload["starts"]) == len(record.meta.contributors)
    (found,) = items_of(records, store)
    assert isinstance(found, Block)
    assert columns(found) == columns(rows)
    assert (found.capacity, found.pad_id) == (40, 3)
    again = records_of(found, store)
    assert [each.meta for each in again] == [each.meta for each in records]
    for before, after in zip(records, again, strict=True):
        np.testing.assert_array_equal(after.payload["tokens"], before.payload["tokens"])


def test_other_ids_are_kept_as_long_as_something_refers_to_them(store: TokenStore, block: Block) -> None:
    found = with_payloads(block, [{"input_ids": [7, 8, 9]}] * len(block), store)
    assert set((found.pieces.ref >> 40).tolist()) == set(range(PAYLOAD_PLACES, PAYLOAD_PLACES + len(block)))
    last = found.slice(len(found) - 1, len(found))
    ref = int(last.pieces.ref[0])
    del found
    gc.collect()
    assert len(store._held) == 1
    assert store.column(ref >> 40).tokens.tolist() == [7, 8, 9]
    assert last.payloads is not None
    assert last.payloads[0]["input_ids"].tolist() == [7, 8, 9]
    del last
    gc.collect()
    assert not store._held


def test_a_buffer_that_is_used_again_does_no_harm(store: TokenStore, block: Block) -> None:
    buffer = np.array([1, 2, 3], np.uint32)
    found = with_payloads(block.slice(0, 1), [{"tokens": buffer}], store)
    buffer[:] = 0
    assert found.payloads is not None
    assert found.payloads[0]["tokens"].tolist() == [1, 2, 3]


def test_a_payload_may_be_the_ids_themselves(store: TokenStore, block: Block) -> None:
    found = with_payloads(block.slice(0, 2), [np.array([4, 5]), np.array([], np.int64)], store)
    assert found.lengths.tolist() == [2, 0]


def test_fields_without_ids_are_carried_along(store: TokenStore, block: Block) -> None:
    found = with_payloads(block.slice(0, 1), [{"text": "a", "score": 1.5}], store)
    assert records_of(found, store)[0].payload == {"text": "a", "score": 1.5}
    assert records_of(found, store)[0].meta.component_token_counts is None


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ({"tokens": [0.5]}, "tokens: expected a list of token ids, found float64"),
        ({"input_ids": "a"}, "input_ids: expected a list of token ids"),
        ({"tokens": [[1]]}, "of shape"),
        ({"tokens": [-1]}, "expected ids from 0 to 4,294,967,295, found -1 to -1"),
        (
            {"tokens": [1, 2], "cu_seqlens": [0, 3]},
            "cu_seqlens: expected 2 rising entries from 0 to at most 2",
        ),
    ],
)
def test_what_is_no_list_of_ids_is_refused(
    store: TokenStore, block: Block, payload: dict[str, Any], message: str
) -> None:
    with pytest.raises(PayloadError, match=message) as caught:
        with_payloads(block.slice(0, 2), [{"tokens": [1]}, payload], store)
    assert caught.value.row == 1


def test_packed_rows_cannot_become_longer(store: TokenStore, block: Block) -> None:
    rows = packed(block).slice(0, 1)
    with pytest.raises(PayloadError, match="expected 40 tokens as in every packed row, found 41"):
        with_payloads(rows, [{"tokens": [1] * 41}], store)
