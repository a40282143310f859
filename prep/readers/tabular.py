"""Columns of Parquet and Arrow files to documents."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from prep.catalog.errors import InputError
from prep.catalog.schema import byte_lengths
from prep.readers.block import FLAG_INVALID_UTF8, Collector, Documents, ReadOptions

if TYPE_CHECKING:
    from numpy.typing import NDArray


def kept_type(path: str, name: str, kind: pa.DataType) -> pa.DataType:
    """The type of a kept column that the configuration does not declare.

    Raises:
        InputError: a nested or binary type, which has no column type of its own in a shard.
    """
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if _is_text(kind):
        return pa.string()
    if pa.types.is_boolean(kind) or (pa.types.is_primitive(kind) and not pa.types.is_decimal(kind)):
        return kind
    raise InputError(
        f"{path}: kept field {name!r} has type {kind}, which shards cannot hold; "
        f"declare it as `{name}: string` in source.keep_fields to keep its JSON text"
    )


def check_columns(path: str, schema: pa.Schema, options: ReadOptions) -> None:
    """Compare a file's columns with what is asked for.

    Raises:
        InputError: the text field is missing or no text, or a kept field has another type.
    """
    names = schema.names
    for field in options.columns:
        if names.count(field) > 1:
            raise InputError(f"{path}: {names.count(field)} columns have the name {field!r}; rename them")
    for field in [options.text_field, *([options.id_field] if options.id_field else [])]:
        if field not in names:
            role = "text_field" if field == options.text_field else "id_field"
            raise InputError(f"{path}: source.{role} {field!r} is no column; found: {', '.join(names)}")
    kind = schema.field(options.text_field).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not _is_text(kind) and not pa.types.is_binary(kind) and not pa.types.is_large_binary(kind):
        raise InputError(f"{path}: column {options.text_field!r}: expected text, found {kind}")
    for name, expected in options.kept:
        if name not in names:
            raise InputError(f"{path}: source.keep_fields {name!r} is no column; found: {', '.join(names)}")
        if name in options.declared:
            continue
        found = kept_type(path, name, schema.field(name).type)
        if found != expected:
            raise InputError(
                f"{path}: kept field {name!r} has type {found}, and {expected} in the first file; "
                "declare its type in source.keep_fields"
            )


def documents_of(path: str, table: pa.Table, options: ReadOptions) -> Documents:
    """Documents of consecutive rows.

    Raises:
        RecordError: a row that the policies refuse.
        InputError: a kept column cannot become its type.
    """
    try:
        text = plain(table.column(options.text_field))
    except pa.ArrowException as error:
        raise InputError(f"{path}: column {options.text_field!r}: damaged: {error}") from error
    ids = None
    if options.id_field is not None:
        ids = _as_kept(path, options.id_field, table.column(options.id_field), pa.string())
    kept = [_as_kept(path, name, table.column(name), kind) for name, kind in options.kept]
    lengths = byte_lengths(text)
    if text.null_count == 0 and not (lengths > options.max_record_bytes).any():
        try:
            texts = text.to_pylist()
        except UnicodeDecodeError:
            pass  # one of them is not UTF-8, and the policies say what becomes of it
        else:
            rows = np.arange(table.num_rows, dtype=np.int64)
            return Documents(table.num_rows, rows, texts, lengths, ids, kept)
    return _row_by_row(text, ids, kept, options)


def column_lengths(column: pa.Array) -> NDArray[np.int64]:
    """About how many bytes each value of a column has, without converting it: int64 of shape (rows,)."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        lengths = column_lengths(column.dictionary)
        indices = column.indices.fill_null(0).to_numpy(zero_copy_only=False)
        return lengths[indices] if len(lengths) else np.zeros(len(column), np.int64)
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        wide = np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column) + 1]
        return np.diff(wide) if len(column) else np.zeros(0, np.int64)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return byte_lengths(column)
    return np.full(len(column), -(-column.nbytes // max(1, len(column))), np.int64)


def check_offsets(column: pa.Array) -> None:
    """Refuse a column whose offsets point outside its data; whether text is UTF-8 is for the policies.

    Raises:
        pa.ArrowInvalid: the column is damaged.
    """
    raw = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}
    if pa.types.is_dictionary(column.type):
        check_offsets(column.dictionary)
        column.indices.validate(full=True)
    wanted = raw.get(column.type)
    (column if wanted is None else column.view(wanted)).validate(full=True)


def _row_by_row(
    text: pa.Array, ids: pa.Array | None, kept: list[pa.Array], options: ReadOptions
) -> Documents:
    collector = Collector(replace(options, id_field=None, kept=()))
    for row, data in enumerate(text.cast(pa.binary()).to_pylist()):
        if data is None:
            collector.fault(row, "missing_text", f"source.text_field {options.text_field!r} is null")
        elif len(data) > options.max_record_bytes:
            limit = f"processing.max_record_bytes is {options.max_record_bytes:,}"
            collector.fault(row, "too_large", f"a text of {len(data):,} bytes; {limit}")
        else:
            _add_bytes(collector, row, data)
    documents = collector.documents(len(text))
    chosen = pa.array(documents.row.tolist(), pa.int64())
    documents.ids = None if ids is None else ids.take(chosen)
    documents.kept = [column.take(chosen) for column in kept]
    return documents


def _add_bytes(collector: Collector, row: int, data: bytes) -> None:
    try:
        collector.add(row, data.decode("utf-8"))
    except UnicodeDecodeError as error:
        if collector.options.on_bad_text == "replace":
            collector.add(row, data.decode("utf-8", "replace"), flags=FLAG_INVALID_UTF8)
        else:
            collector.fault(row, "bad_text", f"not valid UTF-8 at byte {error.start} of the text")


def without_views(data: Any) -> Any:
    """A table or record batch without columns of views, from which pyarrow cannot take rows."""
    kinds = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
    for place, field in enumerate(data.schema):
        if field.type in kinds:
            data = data.set_column(place, field.name, data.column(place).cast(kinds[field.type]))
    return data


def plain(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """One array without dictionary; text as 32-bit strings, bytes not yet checked."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks)
    if pa.types.is_dictionary(array.type):
        array = pa.DictionaryArray.from_arrays(array.indices, plain(array.dictionary)).dictionary_decode()
    if _is_text(array.type) and not pa.types.is_string(array.type):
        return array.cast(pa.large_binary()).cast(pa.binary()).view(pa.string())
    if pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type):
        return array.cast(pa.binary()).view(pa.string())
    return array


def _as_strings(array: pa.Array) -> pa.Array:
    """Any column as strings; nested values as their JSON text, bytes that are not UTF-8 replaced."""
    if pa.types.is_string(array.type):
        if not _is_valid(array):
            return pa.array(_decoded(array), pa.string())
        # A null may stand over bytes, which would count in a shard's measure; taking every row leaves none.
        return array.take(pa.array(range(len(array)), pa.int64())) if array.null_count else array
    if pa.types.is_nested(array.type) or pa.types.is_boolean(array.type):
        return pa.array([_json_text(value) for value in array.to_pylist()], pa.string())
    return array.cast(pa.string())


def _is_valid(array: pa.Array) -> bool:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _decoded(array: pa.Array) -> list[str | None]:
    values = array.cast(pa.binary()).to_pylist()
    return [None if value is None else value.decode("utf-8", "replace") for value in values]


def _json_text(value: Any) -> str | None:
    return (
        None if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    )


def _as_kept(path: str, name: str, column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    try:
        array = plain(column)
        return _as_strings(array) if pa.types.is_string(kind) else array.cast(kind)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise InputError(
            f"{path}: field {name!r} has type {column.type}, expected {kind} as declared or as in the "
            f"first file: {error}"
        ) from error


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))
