"""What operators of users do wrong, and what they are told: the operator, the record, the way out."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from runtime.errors import OperatorError
from runtime.io import Dataset
from runtime.ops.accumulators import CountingAccumulator
from runtime.ops.children import spawn_child
from runtime.pipeline import Pipeline
from runtime.types import SampleCursor, SampleRecord
from runtime.work import StaticMixtureWorkSource

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


@pytest.fixture
def pipeline(catalog_folder: Path) -> Pipeline:
    dataset = Dataset.from_path("finished", str(catalog_folder))
    return Pipeline(StaticMixtureWorkSource([dataset], {"finished": 1}, chunk_size=16))


def run(pipeline: Pipeline) -> int:
    with pipeline.pack_flat(64).batch(2, drop_last=False) as opened:
        return sum(len(batch) for batch in opened)


def error_of(pipeline: Pipeline) -> OperatorError:
    with pytest.raises(OperatorError) as caught:
        run(pipeline)
    return caught.value


def put(record: SampleRecord, name: str, value: Any) -> SampleRecord:
    return SampleRecord(replace(record.meta, **{name: value}), record.payload)


def changing(records: Sequence[SampleRecord]) -> Sequence[SampleRecord]:
    records[3].payload["seen"] = True
    return records


OPERATORS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "returns None": (lambda _: None, r"returned None; return a list of records"),
    "returns a dict": (lambda records: records[0].payload, "returned dict; return a list of records"),
    "returns payloads": (
        lambda records: [record.payload for record in records],
        "returned dict in place of a record; return SampleRecord.meta, payload.",
    ),
    "drops": (
        lambda records: records[1:],
        r"place 0, .*nothing that was returned closes it: add tombstones_for_record",
    ),
    "repeats": (lambda records: [*records, records[2]], "place 2, .*two records of this identity"),
    "closes twice": (
        lambda records: [*records, SampleRecord(records[4].meta.child(0), records[4].payload)],
        "place 4, .*closes chunk 0, place 4 twice; is_last_child=True is for the last one",
    ),
    "closes what is not there": (
        lambda records: [*records, put(records[0], "chunk_offset", 1 << 40)],
        "closes chunk 0, place 1099511627776 though no record that came in would have",
    ),
    "never closes": (
        lambda records: [SampleRecord(spawn_child(each.meta, 0), each.payload) for each in records],
        "is_last_child=True for the last of several",
    ),
    "another lane": (
        lambda records: [put(each, "lane_id", 1) for each in records],
        "returned a record of lane 1 for one of lane 0",
    ),
    "no payload": (
        lambda records: [SampleRecord(each.meta, None) for each in records],
        "without a payload; use tombstones_for_record",
    ),
    "no ids": (
        lambda records: [SampleRecord(each.meta, {"tokens": [[1]]}) for each in records],
        "place 0, .*returned what cannot be used: tokens: expected a list of token ids, found int64 of shape",
    ),
    "changes its input": (changing, "place 3, .*changed the payload that it got; return a new one"),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_is_told_what_it_owes(pipeline: Pipeline, name: str) -> None:
    process_many, message = OPERATORS[name]
    error = error_of(pipeline.add_op("mine", process_many=process_many, preserves_cursor_order=True))
    assert error.operator == "mine"
    assert error.cursor is not None
    with pytest.raises(OperatorError, match=f"^operator 'mine': lane .*{message}"):
        raise error


def test_the_record_that_raises_is_named_and_the_cause_is_kept(pipeline: Pipeline) -> None:
    def fragile(records: Sequence[SampleRecord]) -> Sequence[SampleRecord]:
        for record in records:
            if record.meta.chunk_offset == 5:
                raise KeyError("language")
        return records

    error = error_of(pipeline.add_op("mine", process_many=fragile, preserves_cursor_order=True))
    assert error.cursor is not None
    assert error.cursor.base_offset() == (0, 5)
    assert "raised KeyError: 'language'" in str(error)
    assert isinstance(error.__cause__, KeyError)


def test_what_raises_only_together_is_told_of_the_group(pipeline: Pipeline) -> None:
    def crowded(records: Sequence[SampleRecord]) -> Sequence[SampleRecord]:
        if len(records) > 1:
            raise MemoryError
        return records

    error = error_of(pipeline.add_op("mine", process_many=crowded, preserves_cursor_order=True))
    assert "raised MemoryError for this and" in str(error)


def set_field(payload: dict[str, Any]) -> dict[str, Any]:
    payload["text"] = "x"
    return payload


def write(payload: dict[str, Any]) -> dict[str, Any]:
    payload["tokens"][:1] = 7
    return payload


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (set_field, "changed the payload that it got"),
        (write, "raised ValueError: assignment destination is read-only"),
        (lambda payload: payload["text"], "raised KeyError: 'text'"),
        (lambda payload: SampleRecord(None, payload), "returned a SampleRecord; return the payload alone"),  # type: ignore[arg-type]
        (lambda _: {"tokens": [1 << 40]}, "expected ids from 0 to 4,294,967,295"),
        (lambda _: {"tokens": "text"}, "tokens: expected a list of token ids"),
    ],
)
def test_functions_are_told_the_record(pipeline: Pipeline, fn: Callable[[Any], Any], message: str) -> None:
    error = error_of(pipeline.map_transform(fn))
    assert error.cursor is not None
    assert error.cursor.base_offset()[0] == 0
    assert message in str(error)
    assert str(error).startswith("operator 'map_transform': lane 0, chunk 0, place ")


def test_errors_travel_between_processes() -> None:
    error = OperatorError("operator 'mine': it failed", "mine", SampleCursor(1, 2, (0, 0, 0), (3,)))
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - made here
    assert (str(copy), copy.operator, copy.cursor) == (str(error), error.operator, error.cursor)


def test_a_latency_bound_is_refused(pipeline: Pipeline) -> None:
    pipeline.add_op(
        "mine",
        process_many=list,
        preserves_cursor_order=True,
        accumulator=lambda **_: CountingAccumulator(8, max_latency_ms=5),
    )
    with pytest.raises(ValueError, match="'mine': max_latency_ms: groups would depend on the clock"):
        run(pipeline)


class Mixed(CountingAccumulator):
    """Groups with a record of another lane."""

    def push_many(self, elems: Sequence[Any]) -> list[Any]:
        return [[*elems, put(elems[0], "lane_id", elems[0].meta.lane_id + 1)]]


def test_a_group_of_several_lanes_is_refused(pipeline: Pipeline) -> None:
    pipeline.add_op("mine", process_many=list, preserves_cursor_order=True, accumulator=lambda **_: Mixed(8))
    assert "keep lanes apart" in str(error_of(pipeline))


class Failing(CountingAccumulator):
    def push_many(self, elems: Sequence[Any]) -> list[Any]:
        raise KeyError(len(elems))


def test_an_accumulator_that_raises_is_told(pipeline: Pipeline) -> None:
    pipeline.add_op(
        "mine", process_many=list, preserves_cursor_order=True, accumulator=lambda **_: Failing(8)
    )
    assert "its accumulator raised KeyError" in str(error_of(pipeline))


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ({"push": lambda state, record: state.append(record)}, "flush gave nothing for 16 base offsets"),
        ({"push": lambda _state, _record: [{}]}, "push gave a dict; return a list of SampleRecord"),
        ({"push": lambda _state, record: record.payload["text"]}, "push raised KeyError: 'text'"),
        ({"push": lambda _, record: [record], "init_state": lambda: {}["x"]}, "init_state raised KeyError"),
        (
            {"push": lambda s, record: s.append(record), "flush": lambda state: state[1:]},
            "place 0, .*flush gave nothing for 1 base offset",
        ),
        (
            {"push": lambda _, each: [each], "transform": lambda records: records[1:]},
            "add tombstones_for_record",
        ),
    ],
)
def test_states_are_told_what_they_owe(pipeline: Pipeline, functions: dict[str, Any], message: str) -> None:
    error = error_of(
        pipeline.stateful_transform("mine", **{"init_state": list, **functions}).options(
            flush_every_k_chunks=1
        )
    )
    with pytest.raises(OperatorError, match=message):
        raise error
    assert error.operator == "mine"


def test_nothing_goes_behind_batch(pipeline: Pipeline) -> None:
    with pytest.raises(ValueError, match="map_transform: comes behind batch"):
        pipeline.pack_flat(64).batch(2).map_transform(lambda payload: payload)


def test_an_instance_says_itself_what_it_does(pipeline: Pipeline) -> None:
    from runtime.ops.map import MapOp

    with pytest.raises(ValueError, match="'map_transform': an operator says these things itself"):
        pipeline.add_op(MapOp(lambda payload: payload), preserves_cursor_order=True)
    pipeline.add_op(MapOp(lambda payload: payload), name="same")
    assert "same: keeps order" in str(pipeline.explain())
