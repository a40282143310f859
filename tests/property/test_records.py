"""Records become items and records again without a loss; blocks behave like lists of their rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from runtime.blocks import Block, Closings
from runtime.ops.children import pack_meta, spawn_child, tombstones_for_record
from runtime.records import items_of, records_of
from runtime.types import ContributorRef, SampleCursor, SampleMeta, SampleRecord

if TYPE_CHECKING:
    from collections.abc import Callable

NUMBERS = st.integers(0, 50)
CURSORS = st.builds(
    SampleCursor,
    NUMBERS,
    NUMBERS,
    st.tuples(NUMBERS, NUMBERS, NUMBERS),
    st.lists(NUMBERS, max_size=3).map(tuple),
)
COUNTS = st.dictionaries(st.integers(0, 5), st.integers(1, 9), max_size=3)


@st.composite
def records(draw: Callable[..., Any]) -> list[SampleRecord]:
    """Records of several lanes: plain ones, children, packs, with tags and counts."""
    found = []
    for number in range(draw(st.integers(0, 8))):
        cursor, lane = draw(CURSORS), draw(st.integers(0, 2))
        meta = SampleMeta(
            cursor.sample_id,
            lane,
            cursor.chunk_id,
            cursor.chunk_offset,
            component_sample_counts={draw(st.integers(0, 5)): 1},
            lineage=cursor.lineage,
        )
        kind = draw(st.sampled_from(["plain", "child", "pack", "tagged", "tombstone"]))
        if kind == "child":
            meta = spawn_child(meta, draw(NUMBERS), is_last_child=draw(st.booleans()))
        elif kind == "pack":
            refs = draw(st.lists(st.builds(ContributorRef, CURSORS, st.booleans()), min_size=1, max_size=4))
            meta = pack_meta(
                cursor,
                refs,
                lane_id=lane,
                component_sample_counts=draw(COUNTS),
                component_token_counts=draw(COUNTS),
            )
        elif kind == "tagged":
            meta = replace(meta, tags={"number": number}, component_token_counts=draw(COUNTS))
        record = SampleRecord(meta, {"text": f"record {number}"})
        found += tombstones_for_record(record) if kind == "tombstone" else [record]
    return found


@given(records())
def test_nothing_of_a_record_is_lost(expected: list[SampleRecord]) -> None:
    found: list[SampleRecord] = []
    closed: list[tuple[int, int, int]] = []
    for item in items_of(expected, None):
        if isinstance(item, Closings):
            closed += [
                (item.lane, *each) for each in zip(item.chunk.tolist(), item.offset.tolist(), strict=True)
            ]
        else:
            assert isinstance(item, Block)
            found += records_of(item, None)
    alive = [record for record in expected if not record.meta.tombstone]
    assert [record.payload for record in found] == [record.payload for record in alive]
    for after, before in zip(found, alive, strict=True):
        assert after.meta.cursor == before.meta.cursor
        assert after.meta.contributors == before.meta.contributors
        assert replace(after.meta, own_contributors=None) == replace(before.meta, own_contributors=None)
    assert closed == [
        (record.meta.lane_id, *record.meta.cursor.base_offset())
        for record in expected
        if record.meta.tombstone
    ]


@given(records(), st.data())
def test_a_block_is_a_list_of_its_rows(given_records: list[SampleRecord], data: st.DataObject) -> None:
    blocks = [item for item in items_of(given_records, None) if isinstance(item, Block)]
    for block in blocks:
        rows = records_of(block, None)
        first = data.draw(st.integers(0, len(block)))
        stop = data.draw(st.integers(first, len(block)))
        assert records_of(block.slice(first, stop), None) == rows[first:stop]
        places = data.draw(st.permutations(range(len(block))))
        assert records_of(block.take(np.array(places, np.int64)), None) == [rows[place] for place in places]
        joined = Block.join([block.slice(0, first), block.slice(first, len(block))])
        assert records_of(joined, None) == rows
