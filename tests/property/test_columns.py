"""Record batches for the disk: equal rows have equal bytes, whatever arrays they came in."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prep.catalog.columns import compact, fixed_array, flat_values, list_array
from prep.catalog.schema import ShardLayout, row_measure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LISTS = pa.list_(pa.field("item", pa.uint16(), nullable=False))
WIDE_LISTS = pa.list_(pa.field("item", pa.uint32(), nullable=False))
VALUES = {
    pa.string(): st.text(st.sampled_from("aé漢\x00"), max_size=4),
    pa.bool_(): st.booleans(),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.int8(): st.integers(-128, 127),
    pa.uint32(): st.integers(0, 2**32 - 1),
    pa.float64(): st.floats(width=32),
    pa.float32(): st.floats(width=32),
    pa.float16(): st.integers(-100, 100).map(np.float16),
    pa.date32(): st.integers(0, 10**4),
    pa.timestamp("us", "UTC"): st.integers(0, 2**50),
}
KINDS = sorted(VALUES, key=str)


def tidy(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """As Arrow builds it."""
    return pa.array(values, kind)


def sliced(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Out of a longer array."""
    filler = next((value for value in values if value is not None), None)
    return pa.array([filler, None, filler, *values, filler, None], kind)[3 : 3 + len(values)]


def dirty(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """With bytes under the nulls, and bits behind the bitmaps: both are allowed, and neither is seen.

    Null strings are empty, as in every array that the readers give.
    """
    valid = np.array([value is not None for value in values], bool)
    padded = np.concatenate([valid, np.ones(-len(valid) % 8 + 8, bool)])
    bitmap = pa.py_buffer(np.packbits(padded, bitorder="little"))
    nulls = int((~valid).sum())
    if pa.types.is_string(kind):
        pieces = [(value or "").encode() for value in values]
        offsets = np.cumsum([0, *map(len, pieces)]).astype(np.int32)
        buffers = [bitmap, pa.py_buffer(offsets), pa.py_buffer(b"".join(pieces) + b"behind")]
    elif pa.types.is_boolean(kind):
        bits = np.array([value is None or value for value in values] + [True] * 8, bool)
        buffers = [bitmap, pa.py_buffer(np.packbits(bits, bitorder="little"))]
    else:
        hidden = np.float16(1) if pa.types.is_float16(kind) else 1
        clean = pa.array([hidden if value is None else value for value in values], kind)
        buffers = [bitmap, clean.buffers()[1]]
    return pa.Array.from_buffers(kind, len(values), buffers, nulls)


def taken(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Put in order by Arrow."""
    order = np.arange(len(values))[::-1].copy()
    return dirty(values[::-1], kind).take(pa.array(order))


FORMS: tuple[Callable[[Sequence[Any], pa.DataType], pa.Array], ...] = (tidy, sliced, dirty, taken)


def serialised(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


@st.composite
def tables(draw: st.DrawFn) -> tuple[pa.Schema, list[list[Any]]]:
    """A schema like a shard's, and rows."""
    kinds = draw(st.lists(st.sampled_from(KINDS), max_size=3))
    tokens = draw(st.sampled_from((LISTS, WIDE_LISTS)))
    fields = [pa.field("tokens", tokens, nullable=False), pa.field("n", pa.uint64(), nullable=False)]
    fields += [pa.field(f"k{number}", kind) for number, kind in enumerate(kinds)]
    columns: list[st.SearchStrategy[Any]] = [st.lists(st.integers(0, 65_535), max_size=4), st.integers(0, 99)]
    columns += [st.none() | VALUES[kind] for kind in kinds]
    rows = draw(st.lists(st.tuples(*columns), min_size=1, max_size=20))
    return pa.schema(fields), [list(column) for column in zip(*rows, strict=True)]


@given(table=tables(), data=st.data())
@settings(max_examples=200, deadline=None)
def test_equal_rows_have_equal_bytes_however_they_were_cut_and_held(
    table: tuple[pa.Schema, list[list[Any]]], data: st.DataObject
) -> None:
    schema, columns = table
    rows = len(columns[0])
    plain = pa.RecordBatch.from_arrays(
        [tidy(values, field.type) for values, field in zip(columns, schema, strict=True)], schema=schema
    )
    expected = compact([plain], schema)
    expected.validate(full=True)
    assert expected.equals(plain) or "nan" in str(plain.to_pydict())
    cuts = data.draw(st.lists(st.integers(0, rows), max_size=4), label="cuts")
    pieces = []
    for start, stop in pairwise(sorted([0, rows, *cuts])):
        arrays = []
        for number, (values, field) in enumerate(zip(columns, schema, strict=True)):
            form = data.draw(st.sampled_from(FORMS if number > 1 else FORMS[:2]), label="form")
            arrays.append(
                form(values[start:stop], field.type)
                if number > 1
                else _slice(values, field.type, start, stop)
            )
        pieces.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
    joined = compact(pieces, schema)
    joined.validate(full=True)
    assert serialised(joined) == serialised(expected)
    assert serialised(compact([joined], schema)) == serialised(expected)


def _slice(values: Sequence[Any], kind: pa.DataType, start: int, stop: int) -> pa.Array:
    return pa.array(values, kind)[start:stop]


@given(table=tables())
@settings(max_examples=50, deadline=None)
def test_the_rows_are_those_that_arrow_gives(table: tuple[pa.Schema, list[list[Any]]]) -> None:
    schema, columns = table
    batches = [
        pa.RecordBatch.from_arrays(
            [
                _slice(values, field.type, start, start + 3)
                for values, field in zip(columns, schema, strict=True)
            ],
            schema=schema,
        )
        for start in range(0, len(columns[0]), 3)
    ]
    whole = pa.Table.from_batches(batches).combine_chunks()
    found = pa.Table.from_batches([compact(batches, schema)])
    assert str(found.to_pydict()) == str(whole.to_pydict())  # as text, so that NaN equals NaN
    assert found.schema == schema


@given(table=tables())
@settings(max_examples=50, deadline=None)
def test_a_row_measures_the_same_however_it_is_held(table: tuple[pa.Schema, list[list[Any]]]) -> None:
    schema, columns = table
    measures = []
    for form in FORMS:
        arrays = [
            form(values, field.type) if number > 1 else pa.array(values, field.type)
            for number, (values, field) in enumerate(zip(columns, schema, strict=True))
        ]
        measures.append(row_measure(pa.RecordBatch.from_arrays(arrays, schema=schema)).tolist())
    assert measures[0] == measures[1] == measures[2] == measures[3]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_no_rows_and_no_values_are_columns_too(kind: pa.DataType) -> None:
    schema = pa.schema([pa.field("k", kind)])
    empty = pa.RecordBatch.from_arrays([pa.array([], kind)], schema=schema)
    nothing = pa.RecordBatch.from_arrays([pa.nulls(3, kind)], schema=schema)
    assert compact([empty, empty], schema).num_rows == 0
    assert compact([empty, nothing, empty], schema).column(0).to_pylist() == [None] * 3
    assert serialised(compact([nothing], schema)) == serialised(
        compact([empty, nothing[:1], nothing[1:]], schema)
    )


def test_lists_and_fixed_values_share_the_memory_they_were_made_of() -> None:
    values, offsets = np.arange(10, dtype=np.uint16), np.array([0, 3, 3, 10], np.int32)
    lists = list_array(values, offsets, LISTS)
    assert lists.to_pylist() == [[0, 1, 2], [], [3, 4, 5, 6, 7, 8, 9]]
    assert flat_values(lists[1:]).tolist() == list(range(3, 10))
    assert flat_values(lists[1:2]).tolist() == []
    assert np.shares_memory(flat_values(lists), values)
    assert np.shares_memory(np.frombuffer(fixed_array(values, pa.uint16()).buffers()[1], np.uint16), values)


def test_the_measure_of_a_row_is_its_bytes_and_4_for_each_offset() -> None:
    layout = ShardLayout(
        "uint32", with_id=True, kept=(("s", pa.string()), ("b", pa.bool_()), ("f", pa.float64()))
    )
    columns = [[[1, 2, 3], []], [5, 6], [0, 0], [7, 8], ["é", ""], ["abc", None], [True, None], [1.5, None]]
    schema = layout.schema()
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    fixed = 4 + 4 + 4 + 8 + 4 + 4 + 1 + 8
    assert row_measure(pa.RecordBatch.from_arrays(arrays, schema=schema)).tolist() == [
        fixed + 12 + 2 + 3,
        fixed,
    ]
