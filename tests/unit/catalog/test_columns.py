"""Equal rows have equal bytes, however the batches that hold them came about."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from prep.catalog.columns import compact, fixed_array, flat_values, list_array
from prep.catalog.schema import ShardLayout

SCHEMA = ShardLayout(
    "uint16",
    with_id=True,
    kept=(("s", pa.string()), ("n", pa.int64()), ("x", pa.float64()), ("b", pa.bool_())),
).schema()

ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "tokens": st.lists(st.integers(0, 65_535), max_size=5),
            "text_bytes": st.integers(0, 2**32 - 1),
            "source_file": st.just(3),
            "source_row": st.integers(0, 2**63),
            "id": st.text(max_size=4),
            "s": st.none() | st.text(max_size=4),
            "n": st.none() | st.integers(-(2**63), 2**63 - 1),
            "x": st.none() | st.floats(allow_nan=False),
            "b": st.none() | st.booleans(),
        }
    ),
    min_size=1,
    max_size=20,
)


def ipc_bytes(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def cut(rows: list[dict[str, Any]], at: list[int]) -> list[pa.RecordBatch]:
    """The rows as slices of one batch and as batches of their own, in turns."""
    edges = sorted({0, len(rows), *(place % len(rows) for place in at)})
    whole = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    pieces = []
    for number, (start, stop) in enumerate(pairwise(edges)):
        if number % 2:
            pieces.append(pa.RecordBatch.from_pylist(rows[start:stop], schema=SCHEMA))
        else:
            pieces.append(whole.slice(start, stop - start))
    return pieces


@given(ROWS, st.lists(st.integers(0, 19), max_size=4))
def test_bytes_do_not_depend_on_where_batches_begin(rows: list[dict[str, Any]], at: list[int]) -> None:
    joined = compact(cut(rows, at), SCHEMA)
    assert joined.to_pylist() == rows
    joined.validate(full=True)
    assert ipc_bytes(joined) == ipc_bytes(compact(cut(rows, []), SCHEMA))


def test_values_under_a_null_do_not_reach_the_disk() -> None:
    schema = pa.schema([pa.field("n", pa.int64()), pa.field("b", pa.bool_())])
    mask = np.array([False, True, False])
    made = []
    for hidden, truth in ((0, False), (12345, True)):
        numbers = pa.array(np.array([1, hidden, 3]), mask=mask)
        truths = pa.array(np.array([True, truth, True]), mask=mask)
        made.append(compact([pa.RecordBatch.from_arrays([numbers, truths], schema=schema)], schema))
    assert made[0].to_pylist() == made[1].to_pylist()
    assert ipc_bytes(made[0]) == ipc_bytes(made[1])


def test_flat_values_of_slices_are_those_of_the_rows() -> None:
    column = pa.array([[1, 2], [], [3], [4, 5, 6]], pa.list_(pa.uint32()))
    assert flat_values(column).tolist() == [1, 2, 3, 4, 5, 6]
    assert flat_values(column.slice(1, 2)).tolist() == [3]
    assert flat_values(column.slice(4)).tolist() == []
    assert flat_values(pa.array([[]], pa.list_(pa.uint16()))).dtype == np.uint16


def test_arrays_over_numpy_memory_share_it() -> None:
    values = np.arange(5, dtype=np.uint16)
    lists = list_array(values, np.array([0, 2, 2, 5], np.int32), pa.list_(pa.uint16()))
    assert lists.to_pylist() == [[0, 1], [], [2, 3, 4]]
    flat = fixed_array(values, pa.uint16())
    assert flat.to_pylist() == [0, 1, 2, 3, 4]
    for array in (lists.values, flat):
        assert array.buffers()[1].address == values.ctypes.data
