"""Metadata for records that operators make: children, packs, tombstones."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from runtime.types import ContributorRef, SampleCursor, SampleMeta, SampleRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def spawn_child(
    parent: SampleMeta,
    child_idx: int,
    *,
    is_last_child: bool = False,
    tags: Mapping[str, Any] | None = None,
) -> SampleMeta:
    """The metadata of one of several records that are made of one.

    Only the last child keeps the closing flags of the parent; earlier ones hold copies that close nothing.
    How many tokens a child has is counted anew from its payload.

    Args:
        parent: of the record that is divided.
        child_idx: the child's number, in the order in which children are emitted.
        is_last_child: nothing more is made of the parent.
        tags: added to the parent's.
    """
    own = tuple(
        ContributorRef(
            ref.cursor.child(child_idx) if ref.cursor == parent.cursor else ref.cursor,
            ref.is_last_child and is_last_child,
        )
        for ref in parent.contributors
    )
    return replace(
        parent.child(child_idx),
        own_contributors=own,
        component_token_counts=None,
        tags={**parent.tags, **(tags or {})},
    )


def pack_meta(
    primary_cursor: SampleCursor,
    contributors: Iterable[ContributorRef],
    *,
    lane_id: int,
    component_sample_counts: Mapping[int, int],
    component_token_counts: Mapping[int, int] | None = None,
    tags: Mapping[str, Any] | None = None,
) -> SampleMeta:
    """The metadata of one record that is made of several.

    Args:
        primary_cursor: its identity, which has to be unique in the lane and the same in every run.
        contributors: `contribution_refs()` of all that went in.
        lane_id: the lane of all of them.
        component_sample_counts: samples by mixture component.
        component_token_counts: tokens by mixture component, if known.
        tags: whatever later operators should know.
    """
    return SampleMeta(
        sample_id=primary_cursor.sample_id,
        lane_id=lane_id,
        chunk_id=primary_cursor.chunk_id,
        chunk_offset=primary_cursor.chunk_offset,
        component_sample_counts=dict(component_sample_counts),
        component_token_counts=None if component_token_counts is None else dict(component_token_counts),
        lineage=primary_cursor.lineage,
        tags=dict(tags or {}),
        own_contributors=tuple(contributors),
    )


def tombstone_meta(ref: ContributorRef, lane_id: int) -> SampleMeta:
    """The metadata of a tombstone that closes what one contributor owed."""
    cursor = ref.cursor
    return SampleMeta(
        sample_id=cursor.sample_id,
        lane_id=lane_id,
        chunk_id=cursor.chunk_id,
        chunk_offset=cursor.chunk_offset,
        component_sample_counts={},
        lineage=cursor.lineage,
        own_contributors=(ref,),
        tombstone=True,
    )


def tombstones_for_record(record: SampleRecord) -> list[SampleRecord]:
    """One tombstone for each base offset that a dropped record would have closed."""
    return [
        SampleRecord(tombstone_meta(ref, record.meta.lane_id), None)
        for ref in record.meta.contributors
        if ref.is_last_child
    ]
