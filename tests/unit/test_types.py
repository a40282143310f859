"""Identities of records: their order, their keys, what a record says of itself by default."""

from __future__ import annotations

import json

import pytest

from runtime import work
from runtime.types import ContributorRef, SampleCursor, SampleId, SampleMeta
from runtime.work.chunk import WorkChunk


def test_cursors_sort_by_chunk_place_lineage_and_sample() -> None:
    """Children of a place stay together, whatever their samples are."""
    cursors = [
        SampleCursor(0, 9, (9, 9, 9)),
        SampleCursor(1, 0, (5, 0, 0)),
        SampleCursor(1, 2, (0, 0, 1)),
        SampleCursor(1, 2, (0, 0, 2)),
        SampleCursor(1, 2, (9, 0, 0), (0,)),
        SampleCursor(1, 2, (0, 0, 0), (0, 4)),
        SampleCursor(1, 2, (0, 0, 0), (1,)),
    ]
    assert sorted([*cursors[3:], *cursors[:3]]) == cursors
    assert [cursor.as_key() for cursor in cursors] == sorted(cursor.as_key() for cursor in cursors)
    assert cursors[0] <= cursors[1] < cursors[2]
    with pytest.raises(TypeError):
        _ = cursors[0] < 3


def test_a_key_gives_the_cursor_again_also_as_json() -> None:
    cursor = SampleCursor(3, 4, (1, 2, 5)).child(7).child(0)
    assert cursor.lineage == (7, 0)
    assert cursor.base_offset() == (3, 4)
    assert SampleCursor.from_key(cursor.as_key()) == cursor
    assert SampleCursor.from_key(json.loads(json.dumps(cursor.as_key()))) == cursor


def test_a_record_that_says_nothing_closes_its_own_place() -> None:
    meta = SampleMeta((0, 1, 2), 4, 5, 6)
    assert meta.cursor == SampleCursor(5, 6, (0, 1, 2))
    assert meta.contributors == meta.contribution_refs() == (ContributorRef(meta.cursor, True),)
    assert (meta.component_sample_counts, meta.component_token_counts) == ({0: 1}, None)
    assert not meta.tombstone
    assert not meta.is_sentinel


def test_metadata_is_changed_in_copies() -> None:
    meta = SampleMeta((0, 1, 2), 4, 5, 6, tags={"language": "de"})
    refs = [ContributorRef(meta.cursor, False)]
    assert meta.child(3).lineage == (3,)
    assert meta.with_lineage((1, 2)).cursor.lineage == (1, 2)
    assert meta.with_contributors(refs).contributors == tuple(refs)
    assert meta.with_tombstone().tombstone
    assert meta == SampleMeta((0, 1, 2), 4, 5, 6, tags={"language": "de"})


def test_samples_are_named_alike_everywhere() -> None:
    chunk = WorkChunk({"a": [(0, 0, 1)]}, 0)
    assert [sample for sample, _ in chunk.iter_samples()] == [(0, 0, 1)]
    assert work.SampleId == SampleId
