"""Functions of users: payloads in and out, drops, splits, and how their mistakes are told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from runtime.errors import OperatorError
from runtime.io import Dataset
from runtime.ops.children import spawn_child, tombstones_for_record
from runtime.pipeline import Pipeline
from runtime.types import SampleRecord
from runtime.work import StaticMixtureWorkSource

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@pytest.fixture
def pipeline(catalog_folder: Path) -> Pipeline:
    dataset = Dataset.from_path("finished", str(catalog_folder))
    return Pipeline(StaticMixtureWorkSource([dataset], {"finished": 1}, chunk_size=16))


def tokens_of(pipeline: Pipeline) -> list[int]:
    """All ids without padding, in order."""
    found: list[int] = []
    with pipeline.pack_flat(64, algorithm="wrap").batch(2, drop_last=False) as packed:
        for batch in packed:
            arrays = batch.to_training(return_padding_mask=True)
            found += arrays["input_ids"][~arrays["padding_mask"]].tolist()
        ledger = packed.ledger()
        for counts in (ledger.documents, ledger.tokens):
            assert counts.taken == counts.delivered + sum(counts.lost.values())
        assert all(entry["open"] == 0 for entry in packed.inflight_summary().values())
    return found


def test_a_function_sees_the_ids_where_they_lie(pipeline: Pipeline) -> None:
    expected = tokens_of(Pipeline(pipeline._source))
    seen: list[int] = []

    def look(payload: dict[str, Any]) -> dict[str, Any]:
        assert not payload["tokens"].flags.writeable
        seen.extend(payload["tokens"].tolist())
        return payload

    assert tokens_of(pipeline.map_transform(look)) == expected == seen


def test_what_a_function_makes_is_packed(pipeline: Pipeline) -> None:
    plain = tokens_of(Pipeline(pipeline._source))
    shifted = pipeline.map_transform(lambda payload: {"input_ids": payload["tokens"].astype(np.int64) + 1000})
    assert tokens_of(shifted) == [token + 1000 for token in plain]


def test_dropped_records_are_closed_and_counted(pipeline: Pipeline) -> None:
    kept = pipeline.map_transform(lambda payload: payload if len(payload["tokens"]) % 2 else None)
    with kept.pack_flat(64).batch(2, drop_last=False) as packed:
        for _ in packed:
            pass
        ledger = packed.ledger()
        assert ledger.documents.lost["dropped by map_transform"] > 0
        assert ledger.documents.taken == ledger.documents.delivered + sum(ledger.documents.lost.values())
        assert ledger.tokens.taken == ledger.tokens.delivered + sum(ledger.tokens.lost.values())
        assert all(entry["open"] == 0 for entry in packed.inflight_summary().values())


def test_a_function_of_batches_does_the_same(pipeline: Pipeline) -> None:
    def halve(payloads: list[Any]) -> list[Any]:
        return [{"tokens": payload["tokens"][::2]} for payload in payloads]

    one = pipeline.map_batch(halve)
    other = Pipeline(pipeline._source).map_transform(lambda p: {"tokens": p["tokens"][::2]})
    assert tokens_of(one) == tokens_of(other)


def test_an_operator_of_records_may_split_and_drop(pipeline: Pipeline) -> None:
    """Every base offset is closed once: by the last child, or by a tombstone."""
    plain = tokens_of(Pipeline(pipeline._source))

    def split(records: Sequence[SampleRecord]) -> list[SampleRecord]:
        found: list[SampleRecord] = []
        for record in records:
            ids = record.payload["tokens"]
            if not len(ids):
                found += tombstones_for_record(record)
                continue
            half = max(len(ids) // 2, 1)
            parts = [part for part in (ids[:half], ids[half:]) if len(part)]
            for number, part in enumerate(parts):
                meta = spawn_child(record.meta, number, is_last_child=number == len(parts) - 1)
                found.append(SampleRecord(meta, {"tokens": part}))
        return found

    assert tokens_of(pipeline.add_op("split", process_many=split, preserves_cursor_order=True)) == plain


def fail(_: Any) -> Any:
    raise KeyError("language")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda p: p.map_transform(fail), r"'map_transform': lane 0, chunk 0, place 0, .*raised KeyError"),
        (lambda p: p.map_transform(lambda _: None, drop_none=False), "returned None; set drop_none=True"),
        (lambda p: p.map_batch(lambda payloads: payloads[1:]), "one for each record, found"),
        (lambda p: p.map_batch(lambda _: None), "one for each record, found NoneType"),
        (lambda p: p.map_transform(lambda _: {"tokens": "text"}), "tokens: expected a list of token ids"),
        (lambda p: p.map_transform(lambda _: {"tokens": [-1]}), "expected ids from 0 to"),
        (
            lambda p: p.add_op("mine", process_many=lambda _: [{}], preserves_cursor_order=True),
            r"'mine': .*returned dict in place of a record; return SampleRecord",
        ),
        (lambda p: p.add_op("mine", process_many=fail, preserves_cursor_order=True), "'mine': .*KeyError"),
        (lambda p: p.map_transform(lambda _: {"text": "a"}), "token ids in the field tokens or input_ids"),
    ],
)
def test_mistakes_are_told_with_operator_and_record(pipeline: Pipeline, build: Any, message: str) -> None:
    with pytest.raises((OperatorError, TypeError), match=message):
        tokens_of(build(pipeline))


def test_a_name_needs_its_function(pipeline: Pipeline) -> None:
    with pytest.raises(ValueError, match="give process_many and preserves_cursor_order"):
        pipeline.add_op("mine", process_many=fail)
