"""Records as users see them: identity, contributors, metadata, payload.

A record's cursor is where it came from: the chunk, the place in it, and the path through operators that made
several records of one. Inside the engine records travel as columns (`runtime.blocks`); these objects are made
where an operator of a user asks for them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import total_ordering
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

SampleId: TypeAlias = tuple[int, int, int]
"""(dataset_id, shard_id, sample_idx)."""

CursorKey: TypeAlias = tuple[int, int, tuple[int, ...], SampleId]


@total_ordering
@dataclass(frozen=True, slots=True)
class SampleCursor:
    """The identity of a record inside its lane.

    Attributes:
        chunk_id: the lane's chunk that its sample came in.
        chunk_offset: the place in that chunk's order.
        sample_id: which sample that is.
        lineage: child numbers, outermost first, appended by each operator that made several of one.

    It sorts by (chunk_id, chunk_offset, lineage, sample_id), so that children stay next to each other.
    """

    chunk_id: int
    chunk_offset: int
    sample_id: SampleId
    lineage: tuple[int, ...] = ()

    def child(self, index: int) -> SampleCursor:
        """The identity of the child with a number."""
        return replace(self, lineage=(*self.lineage, index))

    def base_offset(self) -> tuple[int, int]:
        """The slot that has to be closed once all that came of it is delivered."""
        return self.chunk_id, self.chunk_offset

    def as_key(self) -> CursorKey:
        """What it sorts by."""
        return self.chunk_id, self.chunk_offset, self.lineage, self.sample_id

    @classmethod
    def from_key(cls, key: Any) -> SampleCursor:
        """The cursor of a key, also of one that was JSON in between."""
        chunk_id, chunk_offset, lineage, sample_id = key
        dataset, shard, sample = sample_id
        return cls(int(chunk_id), int(chunk_offset), (dataset, shard, sample), tuple(lineage))

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, SampleCursor):
            return NotImplemented
        return self.as_key() < other.as_key()


@dataclass(frozen=True, slots=True)
class ContributorRef:
    """That a record holds something of a base offset, and whether it is the last that does.

    Attributes:
        cursor: of the record that went in.
        is_last_child: nothing else of its base offset will come.
    """

    cursor: SampleCursor
    is_last_child: bool = True


@dataclass(frozen=True, slots=True)
class SampleMeta:
    """What is known of a record besides its payload.

    Attributes:
        sample_id, chunk_id, chunk_offset, lineage: its identity, see `SampleCursor`.
        lane_id: the lane that it belongs to.
        component_sample_counts: how many samples of each mixture component are in it.
        component_token_counts: how many tokens; None before that is known.
        tags: whatever operators want to say to later ones.
        padding_length: tokens of its row that are padding.
        own_contributors: None: it contributes to its own base offset alone, and closes it.
        tombstone: it has no payload and only closes what a dropped record owed.
        is_sentinel: it marks the end of an epoch of its lane.
    """

    sample_id: SampleId
    lane_id: int
    chunk_id: int
    chunk_offset: int = 0
    component_sample_counts: Mapping[int, int] = field(default_factory=lambda: {0: 1})
    component_token_counts: Mapping[int, int] | None = None
    lineage: tuple[int, ...] = ()
    tags: Mapping[str, Any] = field(default_factory=dict)
    padding_length: int = 0
    own_contributors: tuple[ContributorRef, ...] | None = None
    tombstone: bool = False
    is_sentinel: bool = False

    @property
    def cursor(self) -> SampleCursor:
        """Its identity."""
        return SampleCursor(self.chunk_id, self.chunk_offset, self.sample_id, self.lineage)

    def child(self, index: int) -> SampleMeta:
        """The same with the identity of a child; contributors are the caller's affair (see `spawn_child`)."""
        return self.with_lineage((*self.lineage, index))

    def with_lineage(self, path: tuple[int, ...]) -> SampleMeta:
        """The same with another lineage."""
        return replace(self, lineage=tuple(path))

    @property
    def contributors(self) -> tuple[ContributorRef, ...]:
        """What it holds of which base offset."""
        if self.own_contributors is not None:
            return self.own_contributors
        return (ContributorRef(self.cursor),)

    def contribution_refs(self) -> tuple[ContributorRef, ...]:
        """The contributors, to be merged into those of another record."""
        return self.contributors

    def with_contributors(self, refs: Any) -> SampleMeta:
        """The same with other contributors."""
        return replace(self, own_contributors=tuple(refs))

    def with_tombstone(self, tombstone: bool = True) -> SampleMeta:
        """The same as a tombstone, or not."""
        return replace(self, tombstone=tombstone)


@dataclass(frozen=True, slots=True)
class SampleRecord:
    """A sample on its way through operators.

    Attributes:
        meta: its identity and what it closes.
        payload: usually a dict of fields; None for a tombstone.
    """

    meta: SampleMeta
    payload: Any
