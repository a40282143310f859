"""Batches of a pipeline against a plain walk over the same documents, list by list."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.io import Dataset
from runtime.permutation import derive_key
from runtime.pipeline import Pipeline
from runtime.work import StaticMixtureWorkSource

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from runtime.types import SampleId
    from tests.conftest import WriteJsonl  # noqa: F401 - the type of a fixture

MASK = (1 << 64) - 1
TARGET = {"short": 0.25, "long": 0.5, "packed": 0.125}
PAD = 7


@dataclass
class Case:
    """A pipeline over the three catalogs."""

    weights: dict[str, float]
    chunk_size: int
    passes: int
    shuffle: int | None
    shuffle_algorithm: str
    mixture: int | None
    algorithm: str
    length: int
    num_bins: int
    most: int | None
    fullest: bool
    batch: int
    drop_last: bool
    lanes: int
    dp_degree: int
    mapping: str
    every: int
    runner: str

    def source(self, catalogs: dict[str, Path]) -> StaticMixtureWorkSource:
        return StaticMixtureWorkSource(
            [Dataset.from_path(name, str(path)) for name, path in catalogs.items()],
            self.weights,
            chunk_size=self.chunk_size,
            stop_after_passes=self.passes,
            shuffle_within_shard=True,
        )

    def pipeline(self, catalogs: dict[str, Path], group: int) -> Pipeline:
        pipeline = Pipeline(self.source(catalogs))
        if self.shuffle:
            pipeline.shuffle(self.shuffle, seed=3, algorithm=self.shuffle_algorithm)
        if self.mixture:
            pipeline.ensure_mixture(max_buffer_size=self.mixture, mixture=TARGET)
        return (
            pipeline.pack_flat(
                self.length,
                algorithm=self.algorithm,
                num_bins=self.num_bins,
                max_sequences_per_bin=self.most,
                flush_strategy="fullest" if self.fullest else "fifo",
                pad_token_id=PAD,
            )
            .batch(self.batch, drop_last=self.drop_last)
            .options(
                canonical_replicas=self.lanes,
                dp_degree=self.dp_degree,
                dp_group_id=group,
                mapping_strategy=self.mapping,
                flush_every_k_chunks=self.every,
                runner=self.runner,
                prefetch_batches=3,
            )
        )


# --- the plain walk

Document = tuple[tuple[int, int], list[int], str]
"""Where it came in its lane (chunk, place), its ids, and its dataset."""
Row = list[list[int]]
"""Pieces of documents, without padding."""


def mix(word: int) -> int:
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & MASK
    return word ^ (word >> 31)


def hashed(place: tuple[int, int], key: int) -> int:
    return mix(mix((place[0] * 0x9E3779B97F4A7C15 + place[1] + key) & MASK))


def shuffled(documents: Sequence[Document], case: Case, key: int) -> list[Document]:
    if case.shuffle is None:
        return list(documents)
    if case.shuffle_algorithm == "streaming":
        return streamed(documents, case.shuffle, key)
    size = float(case.shuffle if case.shuffle_algorithm == "block" else min(64, case.shuffle))
    found: list[Document] = []
    first = 0
    while first < len(documents):
        block = documents[first : first + int(size)]
        found += sorted(block, key=lambda document: hashed(document[0], key))
        first += int(size)
        size = min(size * 1.5, case.shuffle)
    return found


def mixed(documents: Sequence[Document], case: Case) -> list[Document]:
    """By tag: the tokens of its dataset before it over the dataset's share."""
    if case.mixture is None:
        return list(documents)
    reached = dict.fromkeys(TARGET, 0.0)
    waiting: list[tuple[float, int, Document]] = []
    found: list[Document] = []
    for number, document in enumerate(documents):
        waiting.append((reached[document[2]], number, document))
        reached[document[2]] += len(document[1]) / TARGET[document[2]]
        waiting.sort(key=lambda entry: entry[:2])
        while waiting and waiting[0][0] <= min(reached.values()):
            found.append(waiting.pop(0)[2])
        if len(waiting) > case.mixture:
            while len(waiting) > int(case.mixture * 0.8):
                found.append(waiting.pop(0)[2])
    return found + [document for _, _, document in waiting]


def streamed(documents: Sequence[Document], size: int, key: int) -> list[Document]:
    slots: dict[int, Document] = {}
    found = []
    for document in documents:
        place = (hashed(document[0], key) >> 32) * size >> 32
        if place in slots:
            found.append(slots[place])
        slots[place] = document
    return found + [slots[place] for place in sorted(slots)]


def wrapped(documents: Sequence[Document], length: int) -> list[Row]:
    rows: list[Row] = []
    row: Row = []
    for _, each, _ in documents:
        ids = each
        while sum(map(len, row)) + len(ids) > length:
            room = length - sum(map(len, row))
            rows.append([*row, ids[:room]])
            ids, row = ids[room:], []
        row.append(ids)
        if sum(map(len, row)) == length:
            rows.append(row)
            row = []
    return rows + ([row] if row else [])


class Bins:
    """Open rows, as a list of lists."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.rows: list[Row] = []
        self.open: list[Row] = []

    def room(self, row: Row) -> int:
        return self.case.length - sum(map(len, row))

    def fitting(self, size: int) -> Row | None:
        rows = [row for row in self.open if self.room(row) >= size]
        if self.case.algorithm == "first_fit":
            return rows[0] if rows else None
        return min(rows, key=self.room, default=None)

    def close(self, row: Row) -> None:
        del self.open[next(index for index, each in enumerate(self.open) if each is row)]
        self.rows.append(row)

    def add(self, document: list[int]) -> None:
        ids = document
        while len(ids) >= self.case.length:
            self.rows.append([ids[: self.case.length]])
            ids = ids[self.case.length :]
        if ids or not document:
            self.place(ids)

    def place(self, rest: list[int]) -> None:
        ids, row = rest, self.fitting(len(rest))
        while row is None and len(self.open) >= self.case.num_bins:
            if self.case.algorithm != "best_fit_wrap":
                self.close(min(self.open, key=self.room) if self.case.fullest else self.open[0])
                break
            widest = max(self.open, key=self.room)
            head = self.room(widest)
            widest.append(ids[:head])
            ids = ids[head:]
            self.close(widest)
            row = self.fitting(len(ids))
        if row is None:
            row = []
            self.open.append(row)
        row.append(ids)
        if self.room(row) < 1 or len(row) == self.case.most:
            self.close(row)


def binned(documents: Sequence[Document], case: Case) -> list[Row]:
    bins = Bins(case)
    for _, ids, _ in documents:
        bins.add(ids)
    return bins.rows + bins.open


def lane_batches(
    case: Case, source: StaticMixtureWorkSource, lane: int, read: Callable[[SampleId], list[int]]
) -> list[list[Row]]:
    """The batches of one lane."""
    stream = source.clone_for_lane(lane, case.lanes)
    epochs: list[list[Document]] = [[]]
    number = 0
    while (chunk := stream.next_chunk()) is not None:
        if number and number % case.every == 0:
            epochs.append([])
        for place, (sample, name) in enumerate(chunk.iter_samples()):
            epochs[-1].append(((number, place), read(sample), name))
        number += 1
    groups: list[list[Row]] = []
    for epoch in epochs:
        order = mixed(shuffled(epoch, case, derive_key("shuffle", 3, lane)), case)
        groups.append(wrapped(order, case.length) if case.algorithm == "wrap" else binned(order, case))
    if case.drop_last:  # batches go on over the end of an epoch; otherwise each ends with a smaller one
        groups = [[row for rows in groups for row in rows]]
    batches = [
        rows[first : first + case.batch] for rows in groups for first in range(0, len(rows), case.batch)
    ]
    return [batch for batch in batches if len(batch) == case.batch or not case.drop_last]


@st.composite
def cases(draw: Callable[..., Any]) -> Case:
    lanes = draw(st.sampled_from([1, 1, 2, 4, 6]))
    algorithm = draw(st.sampled_from(["wrap", "first_fit", "best_fit", "best_fit_wrap"]))
    return Case(
        weights={name: draw(st.sampled_from([0.5, 1.0, 2.0])) for name in ("short", "long", "packed")},
        chunk_size=draw(st.sampled_from([7, 20, 500])),
        passes=draw(st.sampled_from([1, 2])),
        shuffle=draw(st.sampled_from([None, 1, 4, 100])),
        shuffle_algorithm=draw(st.sampled_from(["streaming", "block", "block_warmup"])),
        mixture=draw(st.sampled_from([None, None, 3, 20, 1000])),
        algorithm=algorithm,
        length=draw(st.sampled_from([3, 17, 33, 200])),
        num_bins=draw(st.sampled_from([1, 2, 8])),
        most=draw(st.sampled_from([None, 1, 3])) if algorithm in ("first_fit", "best_fit") else None,
        fullest=draw(st.booleans()),
        batch=draw(st.sampled_from([1, 4, 7])),
        drop_last=draw(st.booleans()),
        lanes=lanes,
        dp_degree=draw(st.sampled_from([each for each in (1, 2, 3) if lanes % each == 0])),
        mapping=draw(st.sampled_from(["contiguous", "interleaved"])),
        every=draw(st.sampled_from([1, 3, 1000])),
        runner=draw(st.sampled_from(["inline", "threads"])),
    )


@settings(deadline=None, max_examples=70)
@given(case=cases())
def test_batches_are_those_of_a_plain_walk(
    case: Case, catalogs: dict[str, Path], documents: dict[str, dict[tuple[int, int], list[int]]]
) -> None:
    """R1, R8: every token comes once, in the rows and order of the plain walk, on any number of ranks."""
    source, names = case.source(catalogs), list(catalogs)

    def read(sample: SampleId) -> list[int]:
        return documents[names[sample[0]]][sample[1], sample[2]]

    for group in range(case.dp_degree):
        with case.pipeline(catalogs, group) as pipeline:
            share = case.lanes // case.dp_degree
            owned = (
                range(group * share, (group + 1) * share)
                if case.mapping == "contiguous"
                else range(group, case.lanes, case.dp_degree)
            )
            expected = [lane_batches(case, source, lane, read) for lane in owned]
            turns = [
                batches[turn]
                for turn in range(max(map(len, expected)))
                for batches in expected
                if turn < len(batches)
            ]
            found = list(islice(pipeline, len(turns) // 3))
            found += pipeline  # a loop that was left is taken up where it was
            assert len(found) == len(turns)
            for batch, rows in zip(found, turns, strict=True):
                check_batch(case, batch.to_training(return_cu_seqlens=True, return_padding_mask=True), rows)


def check_batch(case: Case, arrays: dict[str, Any], rows: Sequence[Row]) -> None:
    """Ids, positions, boundaries and padding of a batch agree with its rows."""
    ids, positions, padding, edges = [], [], [], [0]
    for row in rows:
        flat = [token for piece in row for token in piece]
        room = case.length - len(flat)
        ids.append(flat + [PAD] * room)
        positions.append([place for piece in row for place in range(len(piece))] + list(range(room)))
        padding.append([False] * len(flat) + [True] * room)
        for piece in [*row, [PAD] * room]:
            if piece:
                edges.append(edges[-1] + len(piece))
    np.testing.assert_array_equal(arrays["input_ids"], ids)
    np.testing.assert_array_equal(arrays["positions"], positions)
    np.testing.assert_array_equal(arrays["padding_mask"], padding)
    np.testing.assert_array_equal(arrays["cu_seqlens"], edges)
    assert arrays["max_seqlen"] == max(np.diff(edges))
    assert arrays["cu_seqlens"].dtype == np.int32


@settings(deadline=None, max_examples=40)
@given(case=cases())
def test_every_base_offset_is_closed_once_and_epochs_are_forgotten(
    case: Case, catalogs: dict[str, Path]
) -> None:
    """R4, R5: what is not closed at the end are the rows of incomplete batches; chunks do not pile up."""
    with case.pipeline(catalogs, 0) as pipeline:
        most = 0
        for number, _ in enumerate(pipeline):
            ledger = pipeline.ledger()
            for counts in (ledger.documents, ledger.tokens) if number % 10 == 0 else ():
                assert counts.taken == counts.delivered + counts.buffered + sum(counts.lost.values())
            most = max([most, *(entry["chunks"] for entry in pipeline.inflight_summary().values())])
        summary = pipeline.inflight_summary()
        ledger = pipeline.ledger()
        for counts in (ledger.documents, ledger.tokens):
            assert not counts.buffered
            assert counts.taken == counts.delivered + sum(counts.lost.values())
        if not case.drop_last:
            assert not ledger.tokens.lost
            assert all(entry["open"] == 0 for entry in summary.values())
    total = math.ceil(case.source(catalogs).total_samples / case.chunk_size / case.lanes)
    assert most <= max(total, 1)
