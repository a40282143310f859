"""The border of operators that work on records: records of a block, and items of records.

A row of a token shard gets the payload `{"tokens": array}`, a view of the mapped file. A packed row gets
`tokens` with its padding and, an entry a piece, `starts` (the first token, counted in its sample),
`components`, and `cu_seqlens` (int32, one more entry: where pieces begin and end in the row).

On the way back ids in `input_ids` or `tokens`, or a payload that is an array of ids, become references: into
the shard, where they are still a view of it, otherwise to a copy that lives as long as something refers to
it. A token count that is None is known from then on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from operator import is_
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from runtime.blocks import NO_TOKENS, REF_SHIFT, Block, Closings, Pieces, objects
from runtime.types import SampleRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from runtime.blocks import Ints, Item
    from runtime.types import SampleCursor, SampleMeta

ID_LIMIT = 1 << 32


class PayloadError(ValueError):
    """A payload that cannot be used.

    Attributes:
        row: whose.
    """

    def __init__(self, row: int, message: str) -> None:
        super().__init__(message)
        self.row = row


class Column(Protocol):
    """Tokens at a place."""

    @property
    def tokens(self) -> NDArray[Any]:
        """All of them."""


class TokenPlaces(Protocol):
    """What references refer to, see `runtime.io.token_store`."""

    def column(self, place: int) -> Column:
        """The tokens at a place."""

    def refer(self, ids: NDArray[Any]) -> tuple[int, Any]:
        """A reference to ids, and what has to be kept for it to stay valid; None: nothing."""

    def holds(self, dataset: int) -> bool:
        """Whether a dataset's samples are token shards."""

    def find(self, sample: Ints) -> tuple[Ints, Ints]:
        """References to the tokens of samples of token shards, and their lengths."""


def token_field(payload: Any) -> str | None:
    """The field of a payload that holds token ids; "": it is ids itself; None: there are none."""
    if isinstance(payload, Mapping):
        return "input_ids" if "input_ids" in payload else "tokens" if "tokens" in payload else None
    return (
        "" if isinstance(payload, np.ndarray) and payload.ndim == 1 and payload.dtype.kind in "iu" else None
    )


def ids_in(payload: Any) -> NDArray[Any] | None:
    """The token ids of a payload; None: it has none.

    Raises:
        ValueError: what is in their place cannot be ids.
    """
    name = token_field(payload)
    if name is None:
        return None
    value = payload[name] if name else payload
    ids = value if isinstance(value, np.ndarray) else np.asarray(value)
    if ids.ndim != 1 or (ids.dtype.kind not in "iu" and ids.size):
        what = f"{ids.dtype} of shape {ids.shape}" if ids.dtype != object else type(value).__name__
        raise ValueError(f"{name or 'payload'}: expected a list of token ids, found {what}")
    if ids.dtype in (np.uint16, np.uint32):
        return ids
    if ids.size and not 0 <= int(ids.min()) <= int(ids.max()) < ID_LIMIT:
        raise ValueError(
            f"{name or 'payload'}: expected ids from 0 to {ID_LIMIT - 1:,}, found {ids.min()} to {ids.max()}"
        )
    return ids.astype(np.uint32)


def payloads_of(block: Block, store: TokenPlaces | None) -> list[Any]:
    """The payload of each row, see above; None for a row that has none and refers to no tokens."""
    if block.payloads is not None:
        return list(block.payloads)
    if store is None or not len(block):
        return [None] * len(block)
    arrays = _arrays(block.pieces, store)
    if block.rows is None and block.capacity is None:
        return [None if ids is None else {"tokens": ids} for ids in arrays]
    edges = range(len(block) + 1) if block.rows is None else block.rows.tolist()
    return [_packed(block, arrays, edges[row], edges[row + 1]) for row in range(len(block))]


def _arrays(pieces: Pieces, store: TokenPlaces) -> list[NDArray[Any] | None]:
    places, firsts = pieces.ref >> REF_SHIFT, pieces.ref & ((1 << REF_SHIFT) - 1)
    columns = {place: store.column(place).tokens for place in set(places.tolist()) if place >= 0}
    return [
        columns[place][first : first + length] if place >= 0 else None
        for place, first, length in zip(places.tolist(), firsts.tolist(), pieces.length.tolist(), strict=True)
    ]


def _packed(block: Block, arrays: list[NDArray[Any] | None], first: int, stop: int) -> dict[str, Any] | None:
    found = [ids for ids in arrays[first:stop] if ids is not None]
    if len(found) < stop - first:
        return None
    edges = np.concatenate([[0], np.cumsum(block.pieces.length[first:stop])]).astype(np.int32)
    room = 0 if block.capacity is None else block.capacity - int(edges[-1])
    if room:
        found.append(np.full(room, block.pad_id, np.result_type(*found, np.min_scalar_type(block.pad_id))))
    return {
        "tokens": np.concatenate(found),
        "cu_seqlens": edges,
        "starts": block.pieces.start[first:stop],
        "components": block.pieces.component[first:stop],
    }


def records_of(block: Block, store: TokenPlaces | None) -> list[SampleRecord]:
    """The rows of a block as records."""
    return list(map(SampleRecord, block.all_metas(), payloads_of(block, store)))


class _Row(NamedTuple):
    """The tokens of one row's pieces."""

    refs: list[int]
    lengths: list[int]
    holder: Any
    payload: Any


def with_payloads(
    block: Block, payloads: Sequence[Any], store: TokenPlaces | None, before: Sequence[Any] | None = None
) -> Block:
    """The same rows with other payloads.

    Args:
        block: the rows.
        payloads: their new payloads.
        store: what references refer to.
        before: what `payloads_of` gave for these rows; what is still the same object need not be looked at.

    Raises:
        PayloadError: one of them cannot be used.
    """
    if before is not None and all(map(is_, payloads, before)):
        return replace(block, payloads=tuple(payloads))
    edges = range(len(block) + 1) if block.rows is None else block.rows.tolist()
    paddings = [0] * len(block) if block.capacity is None else (block.capacity - block.lengths).tolist()
    rows: list[_Row] = []
    for row, payload in enumerate(payloads):
        try:
            rows.append(_refer(payload, edges[row + 1] - edges[row], block.capacity, paddings[row], store))
        except (ValueError, TypeError) as error:
            raise PayloadError(row, str(error)) from error
    refs = np.array([ref for row in rows for ref in row.refs], np.int64)
    holders = [row.holder for row in rows for _ in row.refs]
    pieces = replace(
        block.pieces,
        ref=refs,
        length=np.array([length for row in rows for length in row.lengths], np.int64),
        held=objects(holders, len(holders)) if any(holder is not None for holder in holders) else None,
    )
    pieces = replace(pieces, start=_starts(pieces, payloads, edges, store))
    return replace(block, pieces=pieces, payloads=tuple(row.payload for row in rows))


def _refer(payload: Any, pieces: int, capacity: int | None, padding: int, store: TokenPlaces | None) -> _Row:
    ids = None if store is None else ids_in(payload)
    if ids is None or store is None:
        return _Row([NO_TOKENS] * pieces, [0] * pieces, None, payload)
    if capacity is not None and len(ids) != capacity:
        raise ValueError(f"expected {capacity:,} tokens as in every packed row, found {len(ids):,}")
    lengths = _piece_lengths(payload, len(ids), pieces, padding)
    ref, holder = store.refer(ids)
    name = token_field(payload)
    if holder is not None and ids is not holder.tokens and ids.base is not holder.tokens:
        payload = {**payload, name: holder.tokens} if name else holder.tokens
    refs = [ref]
    for length in lengths[:-1]:
        refs.append(refs[-1] + length)
    return _Row(refs, lengths, holder, payload)


def _piece_lengths(payload: Any, tokens: int, pieces: int, padding: int) -> list[int]:
    """How many of a row's tokens are of which piece: as `cu_seqlens` says, otherwise all of the first one."""
    edges = payload.get("cu_seqlens") if isinstance(payload, Mapping) else None
    if edges is None:
        return [tokens - padding] + [0] * (pieces - 1)
    edges = np.asarray(edges)
    if len(edges) != pieces + 1 or edges[0] != 0 or edges[-1] > tokens or bool((np.diff(edges) < 0).any()):
        raise ValueError(
            f"cu_seqlens: expected {pieces + 1} rising entries from 0 to at most {tokens:,}, found {edges}"
        )
    lengths: list[int] = np.diff(edges).tolist()
    return lengths


def _starts(pieces: Pieces, payloads: Sequence[Any], edges: Sequence[int], store: TokenPlaces | None) -> Ints:
    """The first token of each piece, counted in its sample; 0 for what an operator made."""
    starts = np.zeros(len(pieces), np.int64)
    in_shards = np.flatnonzero(pieces.ref != NO_TOKENS)
    if pieces.held is not None:
        in_shards = in_shards[[pieces.held[place] is None for place in in_shards.tolist()]]
    if store is not None and len(in_shards):
        known = [store.holds(dataset) for dataset in pieces.sample[in_shards, 0].tolist()]
        in_shards = in_shards[known]
        found, _ = store.find(pieces.sample[in_shards])
        starts[in_shards] = pieces.ref[in_shards] - found
    for row, payload in enumerate(payloads):
        if isinstance(payload, Mapping) and "starts" in payload and "cu_seqlens" in payload:
            starts[edges[row] : edges[row + 1]] = payload["starts"]
    return starts


def items_of(records: Sequence[SampleRecord], store: TokenPlaces | None) -> list[Item]:
    """Records as items, in order: blocks of one lane, and closings where there are tombstones.

    Raises:
        PayloadError: a payload cannot be used; its row counts all records.
    """
    items: list[Item] = []
    first = 0
    shapes = [_shape(record) for record in records]
    for stop in range(1, len(records) + 1):
        if stop < len(records) and shapes[stop] == shapes[first]:
            continue
        try:
            items.append(_item(records[first:stop], shapes[first], store))
        except PayloadError as error:
            raise PayloadError(error.row + first, str(error)) from error
        first = stop
    return items


class _Shape(NamedTuple):
    """What all rows of a block have in common."""

    lane: int
    tombstone: bool
    capacity: int | None
    pad_id: int


def _shape(record: SampleRecord) -> _Shape:
    meta, payload = record.meta, record.payload
    if not isinstance(payload, Mapping) or not ("cu_seqlens" in payload or meta.padding_length):
        return _Shape(meta.lane_id, meta.tombstone, None, 0)
    name = token_field(payload)
    ids = [] if name is None else payload[name]
    return _Shape(meta.lane_id, meta.tombstone, len(ids), int(ids[-1]) if meta.padding_length else 0)


def _item(records: Sequence[SampleRecord], shape: _Shape, store: TokenPlaces | None) -> Item:
    metas = tuple(record.meta for record in records)
    counts = [1 if meta.own_contributors is None else len(meta.own_contributors) for meta in metas]
    flat = [entry for meta in metas for entry in _contributions(meta)]
    chunk = np.array([entry.chunk_id for entry, _ in flat], np.int64)
    offset = np.array([entry.chunk_offset for entry, _ in flat], np.int64)
    closes = np.array([is_last for _, is_last in flat], np.bool_)
    if shape.tombstone:
        return Closings(shape.lane, chunk[closes], offset[closes])
    components = [
        each for record, count in zip(records, counts, strict=True) for each in _components(record, count)
    ]
    lineages = [entry.lineage for entry, _ in flat]
    edges = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    length = np.zeros(len(flat), np.int64)
    if shape.capacity is not None:
        length[edges[:-1]] = [shape.capacity - meta.padding_length for meta in metas]
    pieces = Pieces(
        chunk,
        offset,
        np.array([entry.sample_id for entry, _ in flat], np.int64).reshape(-1, 3),
        np.array(components, np.int32),
        closes,
        np.zeros(len(flat), np.int64),
        length,
        np.full(len(flat), NO_TOKENS, np.int64),
        objects(lineages, len(flat)) if any(lineages) else None,
    )
    rows = None if len(flat) == len(records) and min(counts, default=1) == 1 else edges
    block = Block(shape.lane, pieces, rows, capacity=shape.capacity, pad_id=shape.pad_id)
    block = with_payloads(block, [record.payload for record in records], store)
    tokens = zip(block.lengths.tolist(), (block.pieces.ref[edges[:-1]] != NO_TOKENS).tolist(), strict=True)
    if all(_is_plain(meta, *size) for meta, size in zip(metas, tokens, strict=True)):
        return block
    return replace(block, metas=metas)


def _contributions(meta: SampleMeta) -> Sequence[tuple[SampleCursor | SampleMeta, bool]]:
    """Whose place each contributor is of, and whether it closes it."""
    if meta.own_contributors is None:
        return ((meta, True),)
    return [(ref.cursor, ref.is_last_child) for ref in meta.own_contributors]


def _components(record: SampleRecord, pieces: int) -> Sequence[int]:
    """The component of each contributor, as far as it is known."""
    counts = record.meta.component_sample_counts
    if pieces == 1 and len(counts) == 1:
        return tuple(counts)
    payload = record.payload
    if (
        isinstance(payload, Mapping)
        and "cu_seqlens" in payload
        and len(payload.get("components", ())) == pieces
    ):
        return [int(each) for each in payload["components"]]
    spread = [component for component, count in sorted(counts.items()) for _ in range(count)]
    return spread if len(spread) == pieces else [min(counts, default=0)] * pieces


def _is_plain(meta: SampleMeta, length: int, has_tokens: bool) -> bool:
    """Whether a record's pieces say all that its metadata does."""
    component = min(meta.component_sample_counts, default=0)
    tokens = ({component: length} if length else {}) if has_tokens else None
    return (
        (
            meta.own_contributors is None
            or (len(meta.own_contributors) == 1 and meta.own_contributors[0].cursor == meta.cursor)
        )
        and meta.component_sample_counts == {component: 1}
        and meta.component_token_counts in (None, tokens)
        and not meta.tags
        and not meta.padding_length
        and not meta.is_sentinel
    )
