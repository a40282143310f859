"""Arrow arrays built from plain buffers, so that equal rows always have equal bytes.

Arrow leaves some bytes open: values under a null, the bits behind a bitmap, where a slice begins. Record
batches that go to disk are rebuilt here without that freedom.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from prep.catalog.schema import offsets_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def list_array(values: NDArray[np.generic], offsets: NDArray[np.int32], kind: pa.DataType) -> pa.Array:
    """A list array over flat values, without a copy.

    Args:
        values: flat items, shape (offsets[-1],).
        offsets: int32 of shape (rows + 1,), beginning with 0.
        kind: the Arrow list type.
    """
    child = pa.Array.from_buffers(kind.value_type, len(values), [None, pa.py_buffer(values)])
    return pa.Array.from_buffers(kind, len(offsets) - 1, [None, pa.py_buffer(offsets)], children=[child])


def fixed_array(values: NDArray[np.generic], kind: pa.DataType) -> pa.Array:
    """A fixed-width array without nulls over numpy memory, without a copy."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def flat_values(column: pa.Array) -> NDArray[np.generic]:
    """The items that a list array's rows refer to, flat and without a copy."""
    offsets = offsets_of(column)
    child = column.values
    start, stop = int(offsets[0]), int(offsets[-1])
    dtype = np.dtype(child.type.to_pandas_dtype())
    if child.buffers()[1] is None:
        return np.zeros(0, dtype)
    return np.frombuffer(child.buffers()[1], dtype)[child.offset + start : child.offset + stop]


def compact(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """One record batch with the rows of all, in canonical buffers of its own."""
    columns = []
    for position, field in enumerate(schema):
        pieces = [batch.column(position) for batch in batches]
        columns.append(_join(pieces, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _join(pieces: Sequence[pa.Array], kind: pa.DataType) -> pa.Array:
    rows = sum(len(piece) for piece in pieces)
    validity, nulls = _join_validity(pieces, rows)
    if pa.types.is_list(kind):
        values = np.concatenate([flat_values(piece) for piece in pieces])
        child = fixed_array(values, kind.value_type)
        offsets = pa.py_buffer(_join_offsets(pieces, rows))
        return pa.Array.from_buffers(kind, rows, [validity, offsets], nulls, children=[child])
    if pa.types.is_string(kind):
        # Null strings are empty in every array that the readers build, so bytes follow the rows.
        data = b"".join(_string_bytes(piece) for piece in pieces)
        offsets = pa.py_buffer(_join_offsets(pieces, rows))
        return pa.Array.from_buffers(kind, rows, [validity, offsets, pa.py_buffer(data)], nulls)
    if pa.types.is_boolean(kind):
        bits = np.concatenate([piece.fill_null(False).to_numpy(zero_copy_only=False) for piece in pieces])
        packed = pa.py_buffer(np.packbits(bits.astype(bool), bitorder="little"))
        return pa.Array.from_buffers(kind, rows, [validity, packed], nulls)
    values = np.concatenate([_fixed_values(piece) for piece in pieces])
    return pa.Array.from_buffers(kind, rows, [validity, pa.py_buffer(values)], nulls)


def _join_validity(pieces: Sequence[pa.Array], rows: int) -> tuple[pa.Buffer | None, int]:
    nulls = sum(piece.null_count for piece in pieces)
    if nulls == 0:
        return None, 0
    valid = np.ones(rows, bool)
    start = 0
    for piece in pieces:
        if piece.null_count:
            valid[start : start + len(piece)] = piece.is_valid().to_numpy(zero_copy_only=False)
        start += len(piece)
    return pa.py_buffer(np.packbits(valid, bitorder="little")), nulls


def _join_offsets(pieces: Sequence[pa.Array], rows: int) -> NDArray[np.int32]:
    joined = np.zeros(rows + 1, np.int32)
    start, base = 0, 0
    for piece in pieces:
        offsets = offsets_of(piece)
        joined[start + 1 : start + len(piece) + 1] = offsets[1:] + np.int32(base - int(offsets[0]))
        start += len(piece)
        base += int(offsets[-1]) - int(offsets[0])
    return joined


def _string_bytes(piece: pa.Array) -> bytes | memoryview:
    offsets = offsets_of(piece)
    data = piece.buffers()[2]
    return b"" if data is None else memoryview(data)[int(offsets[0]) : int(offsets[-1])]


def _fixed_values(piece: pa.Array) -> NDArray[np.generic]:
    width = piece.type.bit_width // 8
    values = np.frombuffer(piece.buffers()[1], f"V{width}")[piece.offset : piece.offset + len(piece)]
    if piece.null_count == 0:
        return values
    values = values.copy()
    values[piece.is_null().to_numpy(zero_copy_only=False)] = np.zeros(1, values.dtype)[0]
    return values
