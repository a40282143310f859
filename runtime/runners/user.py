"""The stage of a user's operator: records in and out, checked so that a mistake is told where it is made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from runtime.blocks import Block
from runtime.errors import OperatorError, operator_error, raised
from runtime.ops.accumulators import block_size, lane_of
from runtime.ops.map import MUTATED, is_changed
from runtime.records import PayloadError, items_of, records_of, token_field
from runtime.runners.inline import Stage
from runtime.types import SampleRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from runtime.blocks import Item
    from runtime.engine.ledger import Ledger
    from runtime.ops.base import BaseOp, OpContext
    from runtime.types import SampleMeta


class UserStage(Stage):
    """An operator that works on records, which are made of blocks here and become blocks again.

    Tombstones go past it. Each call must account for every base offset that its records would have closed:
    with a record, or with a tombstone.
    """

    def __init__(self, op: BaseOp, ctx: OpContext) -> None:
        super().__init__(op, ctx)
        if getattr(self.accumulator, "max_latency_ms", None) is not None:
            raise ValueError(
                f"operator {op.name!r}: max_latency_ms: groups would depend on the clock; leave it out, "
                "or look at the argument deterministic of accumulator()"
            )
        self._waiting_size = np.zeros(2, np.int64)

    def feed(self, item: Item) -> Iterator[Item]:
        if not isinstance(item, Block):
            yield from super().feed(item)
            return
        self._waiting_size += block_size(item)
        records = records_of(item, self._store)
        yield from self._worked(lambda: self.accumulator.push_many(records), records[0])

    def drained(self, lane: int) -> Iterator[Item]:
        yield from self._worked(lambda: self.accumulator.flush(reset=True, lane_id=lane), None)

    def _worked(self, accumulate: Callable[[], list[Any]], first: SampleRecord | None) -> Iterator[Item]:
        """What comes of the groups that the accumulator gives."""
        try:
            groups = accumulate()
        except OperatorError:
            raise
        except Exception as error:
            what = f"its accumulator {raised(error)}"
            raise operator_error(self.op.name, None if first is None else first.meta, what) from error
        for group in groups:
            yield from self._process(group)
        if not self.accumulator.has_pending_data():
            self.note_change(*self._waiting_size.tolist())
            self._waiting_size[:] = 0

    def _process(self, group: Sequence[Any]) -> Iterator[Item]:
        check_lane(self.op.name, group)
        alive = [record for record in group if not record.meta.tombstone]
        found = self._called(alive) if alive else []
        taken, given = size_of(alive), size_of(found)
        self._waiting_size -= taken
        self.note_change(*(taken - given).tolist())
        tombstones = [record for record in group if record.meta.tombstone]
        try:
            yield from items_of([*found, *tombstones], self._store)
        except PayloadError as error:
            meta = [*found, *tombstones][error.row].meta
            raise operator_error(self.op.name, meta, f"returned what cannot be used: {error}") from error

    def _called(self, group: list[SampleRecord]) -> list[SampleRecord]:
        before = [(record, dict(record.payload)) for record in group if isinstance(record.payload, Mapping)]
        try:
            found = self.op.process_many(group)
        except Exception as error:
            raise self._located(group, error) from error
        for record, payload in before:
            if is_changed(record.payload, payload):
                raise operator_error(self.op.name, record.meta, MUTATED)
        return check_records(self.op.name, group, found)

    def _located(self, group: list[SampleRecord], error: Exception) -> OperatorError:
        """The error of the first record that raises the same alone, as calls keep nothing."""
        if isinstance(error, OperatorError):
            return error
        if len(group) > 1 and not self.op.traits().requires_serial_state:
            for record in group:
                try:
                    self.op.process_many([record])
                except type(error):
                    return operator_error(self.op.name, record.meta, raised(error))
                except Exception:  # noqa: BLE001, S112 - what was raised first is what is told
                    continue
        more = f" for this and {len(group) - 1} more records" if len(group) > 1 else ""
        return operator_error(self.op.name, group[0].meta, f"{raised(error)}{more}")

    def count(self, ledger: Ledger) -> None:
        super().count(ledger)
        documents, tokens = self._waiting_size.tolist()
        ledger.documents.buffered += documents
        ledger.tokens.buffered += tokens


def check_lane(operator: str, group: Sequence[Any]) -> None:
    """Refuse a group of several lanes."""
    stray = next((each for each in group if lane_of(each) != lane_of(group[0])), None)
    if stray is not None:
        what = f"its accumulator put a record of lane {lane_of(stray)} into a group with it; keep lanes apart"
        raise operator_error(operator, group[0].meta, what)


def check_records(operator: str, group: Sequence[SampleRecord], found: Any) -> list[SampleRecord]:
    """What a call returned, if it is what it owes.

    Raises:
        OperatorError: something else than records, of another lane, the same identity twice, a base offset
            that is not closed, or one that is closed twice or was not there.
    """
    first = group[0].meta
    if found is None or isinstance(found, Mapping | str | SampleRecord):
        what = f"returned {kind(found)}; return a list of records, empty where there are none"
        raise operator_error(operator, first, what)
    records = list(found)
    seen: set[Any] = set()  # of what a cursor sorts by, as cursors cost more
    for record in records:
        if not isinstance(record, SampleRecord):
            what = f"returned {kind(record)} in place of a record; return SampleRecord(meta, payload)"
            raise operator_error(operator, first, f"{what} with the meta of the record that it came of")
        meta = record.meta
        if meta.lane_id != first.lane_id:
            what = f"returned a record of lane {meta.lane_id} for one of lane {first.lane_id}; keep lane_id"
            raise operator_error(operator, meta, what)
        if meta.tombstone:
            continue
        if record.payload is None:
            what = "returned a record without a payload; use tombstones_for_record(record) to leave it out"
            raise operator_error(operator, meta, what)
        identity = (meta.chunk_id, meta.chunk_offset, meta.sample_id, meta.lineage)
        if identity in seen:
            what = "returned two records of this identity; make the metas of several with spawn_child"
            raise operator_error(operator, meta, what)
        seen.add(identity)
    _check_closings(operator, group, records)
    return records


def _check_closings(operator: str, group: Sequence[SampleRecord], found: Sequence[SampleRecord]) -> None:
    owed, closed = _closed_by(group), _closed_by(found)
    for offset in owed.keys() - closed.keys():
        record = next(each for each in group if offset in _closed_by([each]))
        what = "nothing that was returned closes it: add tombstones_for_record(record) for a record that is"
        what += " left out, and is_last_child=True for the last of several"
        raise operator_error(operator, record.meta, what)
    for offset, count in closed.items():
        if count > max(owed[offset], 1) or offset not in owed:
            record = next(each for each in found if offset in _closed_by([each]))
            how = "twice" if offset in owed else "though no record that came in would have"
            what = (
                f"closes chunk {offset[0]}, place {offset[1]} {how}; is_last_child=True is for the last one"
            )
            raise operator_error(operator, record.meta, what)


def _closed_by(records: Sequence[SampleRecord]) -> Counter[tuple[int, int]]:
    return Counter(offset for record in records for offset in _closings(record.meta))


def _closings(meta: SampleMeta) -> Sequence[tuple[int, int]]:
    """The base offsets that a record closes."""
    if meta.own_contributors is None:
        return ((meta.chunk_id, meta.chunk_offset),)
    return [ref.cursor.base_offset() for ref in meta.own_contributors if ref.is_last_child]


def size_of(records: Sequence[SampleRecord]) -> Any:
    """Documents that end in records, and tokens: int64 of shape (2,). Tombstones end none."""
    documents = tokens = 0
    for record in records:
        if not record.meta.tombstone:
            documents += len(_closings(record.meta))
            name = token_field(record.payload)
            if name is not None:
                tokens += len(record.payload[name] if name else record.payload) - record.meta.padding_length
    return np.array((documents, tokens), np.int64)


def kind(value: Any) -> str:
    """What a value is, in words."""
    return "None" if value is None else f"{type(value).__name__}"
