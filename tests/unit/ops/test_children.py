"""Metadata of records that operators make: who closes which place, and when."""

from __future__ import annotations

from runtime.ops.children import pack_meta, spawn_child, tombstone_meta, tombstones_for_record
from runtime.types import ContributorRef, SampleCursor, SampleMeta, SampleRecord

META = SampleMeta((0, 5, 42), 1, 7, 2, {3: 1}, {3: 90}, tags={"language": "de"})


def split(meta: SampleMeta, count: int) -> list[SampleMeta]:
    return [spawn_child(meta, number, is_last_child=number == count - 1) for number in range(count)]


def closing(metas: list[SampleMeta]) -> list[list[tuple[int, int]]]:
    """The places that each closes."""
    return [[ref.cursor.base_offset() for ref in meta.contributors if ref.is_last_child] for meta in metas]


def test_only_the_last_child_closes() -> None:
    children = split(META, 3)
    assert [child.cursor for child in children] == [META.cursor.child(number) for number in range(3)]
    assert closing(children) == [[], [], [(7, 2)]]
    assert [child.contributors[0].cursor for child in children] == [child.cursor for child in children]


def test_children_keep_lane_components_and_tags_but_not_the_number_of_tokens() -> None:
    child = spawn_child(META, 0, tags={"part": 1})
    assert (child.lane_id, child.component_sample_counts) == (1, {3: 1})
    assert child.component_token_counts is None
    assert child.tags == {"language": "de", "part": 1}
    assert META.tags == {"language": "de"}


def test_a_split_child_closes_only_with_the_last_of_the_last() -> None:
    children = split(META, 2)
    grandchildren = [grandchild for child in children for grandchild in split(child, 2)]
    assert [each.lineage for each in grandchildren] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert closing(grandchildren) == [[], [], [], [(7, 2)]]
    cursors = {ref.cursor for each in grandchildren for ref in each.contributors}
    assert cursors == {each.cursor for each in grandchildren}


def packed() -> SampleMeta:
    first, second = SampleCursor(7, 2, (0, 5, 42), (0,)), SampleCursor(8, 3, (0, 5, 43), (0,))
    refs = [
        ContributorRef(first),
        ContributorRef(second),
        ContributorRef(SampleCursor(8, 4, (0, 0, 0)), False),
    ]
    return pack_meta(
        first.child(0),
        refs,
        lane_id=1,
        component_sample_counts={0: 2, 3: 1},
        component_token_counts={0: 20, 3: 5},
        tags={"packed": True},
    )


def test_a_packed_record_closes_places_of_several_chunks() -> None:
    meta = packed()
    assert meta.cursor == SampleCursor(7, 2, (0, 5, 42), (0, 0))
    assert closing([meta]) == [[(7, 2), (8, 3)]]
    assert (meta.component_sample_counts, meta.component_token_counts) == ({0: 2, 3: 1}, {0: 20, 3: 5})


def test_a_split_packed_record_closes_them_all_with_its_last_child() -> None:
    children = split(packed(), 3)
    assert closing(children) == [[], [], [(7, 2), (8, 3)]]
    assert [child.lineage for child in children] == [(0, 0, 0), (0, 0, 1), (0, 0, 2)]
    assert all(len(child.contributors) == 3 for child in children)


def test_tombstones_close_what_a_dropped_record_owed() -> None:
    tombstones = tombstones_for_record(SampleRecord(packed(), {"tokens": [1]}))
    assert [each.payload for each in tombstones] == [None, None]
    assert all(each.meta.tombstone and each.meta.lane_id == 1 for each in tombstones)
    assert closing([each.meta for each in tombstones]) == [[(7, 2)], [(8, 3)]]
    assert not any(each.meta.component_sample_counts for each in tombstones)
    assert tombstones_for_record(SampleRecord(spawn_child(META, 0), {})) == []


def test_a_tombstone_has_the_identity_of_what_it_closes() -> None:
    ref = ContributorRef(SampleCursor(7, 2, (0, 5, 42), (1,)))
    assert tombstone_meta(ref, 1).cursor == ref.cursor
