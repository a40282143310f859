"""Filters, changes, splits and states of users before packing: nothing is lost but what they leave out."""

from __future__ import annotations

import gc
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runtime.engine.lanes import LaneTracker
from runtime.io import Dataset
from runtime.ops.children import spawn_child, tombstones_for_record
from runtime.pipeline import Pipeline
from runtime.types import SampleRecord
from runtime.work import StaticMixtureWorkSource

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from runtime.types import SampleId

Ids = list[int]


# --- steps, as operators and on lists


def drops(ids: Sequence[int]) -> bool:
    return len(ids) % 3 == 1


def add_filter(pipeline: Pipeline) -> Pipeline:
    return pipeline.map_transform(lambda payload: None if drops(payload["tokens"]) else payload)


def filtered(documents: list[Ids]) -> list[Ids]:
    return [ids for ids in documents if not drops(ids)]


def add_change(pipeline: Pipeline) -> Pipeline:
    return pipeline.map_transform(lambda payload: {"tokens": [*payload["tokens"].tolist(), 9, 9]})


def changed(documents: list[Ids]) -> list[Ids]:
    return [[*ids, 9, 9] for ids in documents]


def add_cut(pipeline: Pipeline) -> Pipeline:
    return pipeline.map_batch(lambda payloads: [{"tokens": each["tokens"][1:]} for each in payloads])


def cut(documents: list[Ids]) -> list[Ids]:
    return [ids[1:] for ids in documents]


def split_records(records: Sequence[SampleRecord]) -> list[SampleRecord]:
    found: list[SampleRecord] = []
    for record in records:
        ids = record.payload["tokens"]
        parts = [ids[first : first + 7] for first in range(0, len(ids), 7)]
        if not parts:
            found += tombstones_for_record(record)
        for number, part in enumerate(parts):
            meta = spawn_child(record.meta, number, is_last_child=number == len(parts) - 1)
            found.append(SampleRecord(meta, {**record.payload, "tokens": part}))
    return found


def add_split(pipeline: Pipeline) -> Pipeline:
    return pipeline.add_op("split", process_many=split_records, preserves_cursor_order=True)


def split(documents: list[Ids]) -> list[Ids]:
    return [ids[first : first + 7] for ids in documents for first in range(0, len(ids), 7)]


def push(state: list[SampleRecord], record: SampleRecord) -> list[SampleRecord]:
    if len(record.payload["tokens"]) % 5 == 2:
        return tombstones_for_record(record)
    state.append(record)
    if len(state) < 3:
        return []
    found = state[:]
    state.clear()
    return found


def add_state(pipeline: Pipeline) -> Pipeline:
    return pipeline.stateful_transform("threes", init_state=list, push=push, flush=list)


def with_state(documents: list[Ids]) -> list[Ids]:
    return [ids for ids in documents if len(ids) % 5 != 2]


Step = tuple["Callable[[Pipeline], Pipeline]", "Callable[[list[Ids]], list[Ids]]"]
STEPS: dict[str, Step] = {
    "filter": (add_filter, filtered),
    "change": (add_change, changed),
    "cut": (add_cut, cut),
    "split": (add_split, split),
    "state": (add_state, with_state),
}


@dataclass
class Case:
    """A chain of steps, then packing."""

    steps: list[str]
    shuffle: int | None
    algorithm: str
    length: int
    batch: int
    lanes: int
    every: int
    chunk_size: int
    runner: str

    def pipeline(self, source: StaticMixtureWorkSource) -> Pipeline:
        pipeline = Pipeline(source)
        for step in self.steps:
            STEPS[step][0](pipeline)
        if self.shuffle:
            pipeline.shuffle(self.shuffle)
        pipeline.pack_flat(self.length, algorithm=self.algorithm, num_bins=3)
        return pipeline.batch(self.batch, drop_last=False).options(
            canonical_replicas=self.lanes,
            flush_every_k_chunks=self.every,
            runner=self.runner,
            prefetch_batches=2,
        )


@st.composite
def cases(draw: Callable[..., Any]) -> Case:
    return Case(
        steps=draw(st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=4)),
        shuffle=draw(st.sampled_from([None, None, 5])),
        algorithm=draw(st.sampled_from(["wrap", "first_fit", "best_fit", "best_fit_wrap"])),
        length=draw(st.sampled_from([4, 17, 64])),
        batch=draw(st.sampled_from([1, 3])),
        lanes=draw(st.sampled_from([1, 1, 3])),
        every=draw(st.sampled_from([1, 3, 1000])),
        chunk_size=draw(st.sampled_from([7, 40])),
        runner=draw(st.sampled_from(["inline", "inline", "threads"])),
    )


class Closed:
    """Counts how often each base offset is closed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times: Counter[tuple[int, int, int]] = Counter()
        close = LaneTracker._close

        def counted(tracker: LaneTracker, chunks: Any, offsets: Any) -> None:
            self.times.update(
                (id(tracker), *each) for each in zip(chunks.tolist(), offsets.tolist(), strict=True)
            )
            close(tracker, chunks, offsets)

        monkeypatch.setattr(LaneTracker, "_close", counted)


@settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=cases())
def test_what_users_leave_in_is_delivered_once(
    case: Case, catalogs: dict[str, Path], documents: dict[str, dict[tuple[int, int], list[int]]]
) -> None:
    """R4, R8, R9: tokens, base offsets and ledger agree with the same steps on lists."""
    names = list(catalogs)
    source = StaticMixtureWorkSource(
        [Dataset.from_path(name, str(path)) for name, path in catalogs.items()],
        dict.fromkeys(names, 1.0),
        chunk_size=case.chunk_size,
    )

    def read(sample: SampleId) -> Ids:
        return documents[names[sample[0]]][sample[1], sample[2]]

    expected = [steps_on_lists(case, source, lane, read) for lane in range(case.lanes)]
    with pytest.MonkeyPatch.context() as monkeypatch:
        closed = Closed(monkeypatch)
        with case.pipeline(source) as pipeline:
            found = delivered(pipeline, case.lanes)
            ledger, summary = pipeline.ledger(), pipeline.inflight_summary()
            assert pipeline._run is not None
            gc.collect()
            assert not pipeline._run._store._held
    for lane, documents_of_lane in enumerate(expected):
        flat = [token for ids in documents_of_lane for token in ids]
        assert sorted(found[lane]) == sorted(flat)
        if case.algorithm == "wrap" and not case.shuffle:
            assert found[lane] == flat
    for counts in (ledger.documents, ledger.tokens):
        assert not counts.buffered
        made = sum(counts.made.values())
        assert counts.taken + made == counts.delivered + sum(counts.lost.values())
    assert ledger.tokens.delivered == sum(map(len, found))
    assert all(entry["open"] == 0 for entry in summary.values())
    assert set(closed.times.values()) == {1}
    assert len(closed.times) == ledger.documents.taken == source.total_samples


def steps_on_lists(
    case: Case, source: StaticMixtureWorkSource, lane: int, read: Callable[[SampleId], Ids]
) -> list[Ids]:
    stream = source.clone_for_lane(lane, case.lanes)
    found: list[Ids] = []
    while (chunk := stream.next_chunk()) is not None:
        found += [read(sample) for sample, _ in chunk.iter_samples()]
    for step in case.steps:
        found = STEPS[step][1](found)
    return found


def delivered(pipeline: Pipeline, lanes: int) -> list[list[int]]:
    """Tokens by lane without padding; the identities of rows are checked to be unique."""
    found: list[list[int]] = [[] for _ in range(lanes)]
    seen = set()
    for batch in pipeline:
        arrays = batch.to_training(return_padding_mask=True)
        lane = batch.lane_ids[0]
        found[lane] += arrays["input_ids"][~arrays["padding_mask"]].tolist()
        for record in batch.records:
            identity = (record.meta.lane_id, record.meta.cursor)
            assert identity not in seen
            seen.add(identity)
            real = len(record.payload["tokens"]) - record.meta.padding_length
            assert sum((record.meta.component_token_counts or {}).values()) == real
    return found


@settings(deadline=None, max_examples=30)
@given(length=st.sampled_from([9, 30]), add=st.integers(0, 3))
def test_packed_rows_can_be_changed_and_keep_their_documents(
    length: int, add: int, catalogs: dict[str, Path]
) -> None:
    """Boundaries, padding and what is closed stay; ids are the new ones."""
    source = StaticMixtureWorkSource([Dataset.from_path("short", str(catalogs["short"]))], {"short": 1})
    plain = Pipeline(source).pack_flat(length, pad_token_id=1).batch(4, drop_last=False)
    changed_rows = (
        Pipeline(source)
        .pack_flat(length, pad_token_id=1)
        .map_transform(lambda payload: {**payload, "tokens": payload["tokens"] + np.uint16(add)})
        .add_op("same", process_many=lambda records: records, preserves_cursor_order=True)
        .batch(4, drop_last=False)
    )
    with plain, changed_rows:
        for before, after in zip(plain, changed_rows, strict=True):
            wanted = before.to_training(return_cu_seqlens=True, return_padding_mask=True)
            given_arrays = after.to_training(return_cu_seqlens=True, return_padding_mask=True)
            for name in ("positions", "cu_seqlens", "padding_mask"):
                np.testing.assert_array_equal(given_arrays[name], wanted[name])
            real = ~wanted["padding_mask"]
            np.testing.assert_array_equal(given_arrays["input_ids"][real], wanted["input_ids"][real] + add)
            for old, new in zip(before.records, after.records, strict=True):
                assert old.meta == new.meta
        assert plain.ledger().documents == changed_rows.ledger().documents
        assert all(entry["open"] == 0 for entry in changed_rows.inflight_summary().values())
