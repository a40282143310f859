"""Columns of Parquet and Arrow files: types, policies, kept fields."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from prep.catalog.errors import InputError
from prep.catalog.schema import byte_lengths
from prep.readers.block import FLAG_INVALID_UTF8, Documents, ReadOptions, RecordError
from prep.readers.tabular import check_columns, documents_of, kept_type

STRING = pa.string()
TEXT_TYPES = [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary()]


def read(table: pa.Table, **options: Any) -> Documents:
    wanted = ReadOptions(**options)
    check_columns("a.parquet", table.schema, wanted)
    return documents_of("a.parquet", table, wanted)


def raw_strings(values: list[bytes | None], kind: pa.DataType = STRING) -> pa.Array:
    """Bytes that claim to be text, as a damaged writer leaves them."""
    if pa.types.is_large_string(kind):
        return pa.array(values, pa.large_binary()).view(kind)
    array = pa.array(values, pa.binary())
    return array.view(pa.string()) if pa.types.is_string(kind) else array.cast(kind)


def kept(array: pa.Array, kind: pa.DataType = STRING) -> list[Any]:
    """A column as a kept field of a declared type."""
    table = pa.table({"text": ["a"] * len(array), "k": array})
    [column] = read(table, kept=(("k", kind),), declared=frozenset("k")).kept
    assert column.type == kind
    column.validate(full=True)
    values: list[Any] = column.to_pylist()
    return values


@pytest.mark.parametrize("kind", TEXT_TYPES, ids=str)
def test_every_type_of_text_gives_the_same_strings(kind: pa.DataType) -> None:
    texts = ["short", "", "longer than the twelve bytes of a view", "漢\x00\u2028", "short"]
    array = pa.array(texts, pa.binary() if "binary" in str(kind) else pa.string()).cast(kind)
    for column in (
        array,
        pa.chunked_array([array[:2], array[2:2], array[2:]]),
        pa.concat_arrays([array, array])[5:],
    ):
        found = read(pa.table({"text": column}))
        assert found.texts == texts
        assert found.text_bytes.tolist() == [len(text.encode()) for text in texts]
        assert found.row.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view(), pa.binary()], ids=str)
def test_dictionary_columns_are_decoded(kind: pa.DataType) -> None:
    values = pa.array(["b", "a"], pa.binary() if kind == pa.binary() else pa.string()).cast(kind)
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0, None], pa.int8()), values)
    found = read(pa.table({"text": column, "id": column}), id_field="id", on_bad_record="skip")
    assert found.texts == ["b", "a", "b"]
    assert found.ids is not None
    assert found.ids.to_pylist() == ["b", "a", "b"]
    assert [drop[:2] for drop in found.drops] == [(3, "missing_text")]


def test_a_null_in_a_dictionary_is_a_null() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array(["a", None]))
    found = read(pa.table({"text": column}), on_bad_record="skip")
    assert found.texts == ["a"]
    assert [drop.row for drop in found.drops] == [1, 2]


def test_nulls_follow_the_policy_and_rows_stay_q06() -> None:
    table = pa.table({"text": ["a", None, "", None, "   "], "id": ["0", "1", "2", "3", "4"]})
    found = read(table, id_field="id", on_bad_record="skip")
    assert found.texts == ["a", "", "   "]
    assert found.row.tolist() == [0, 2, 4]
    assert found.rows == 5
    assert found.ids is not None
    assert found.ids.to_pylist() == ["0", "2", "4"]
    assert [drop[:3] for drop in found.drops] == [(1, "missing_text", -1), (3, "missing_text", -1)]
    with pytest.raises(RecordError, match=r"source\.text_field 'text' is null") as caught:
        read(table)
    assert caught.value.drop.row == 1


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()], ids=str)
def test_bytes_that_are_not_utf8_follow_the_policy_q11(kind: pa.DataType) -> None:
    table = pa.table(
        {"text": raw_strings([b"ok", b"caf\xd5 x", None, "漢".encode()], kind), "k": [1, 2, 3, 4]}
    )
    options: dict[str, Any] = {"on_bad_record": "skip", "kept": (("k", pa.int64()),)}
    with pytest.raises(RecordError, match="not valid UTF-8 at byte 3") as caught:
        read(table, **options)
    assert caught.value.drop[:2] == (1, "bad_text")
    replaced = read(table, on_bad_text="replace", **options)
    assert replaced.texts == ["ok", "caf\ufffd x", "漢"]
    assert replaced.flags.tolist() == [0, FLAG_INVALID_UTF8, 0]
    assert replaced.kept[0].to_pylist() == [1, 2, 4]
    skipped = read(table, on_bad_text="skip", **options)
    assert skipped.texts == ["ok", "漢"]
    assert [drop[:2] for drop in skipped.drops] == [(1, "bad_text"), (2, "missing_text")]


def test_large_texts_follow_the_policy_q05() -> None:
    table = pa.table({"text": ["x" * 10, "x" * 11, "é" * 5, "é" * 6]})
    found = read(table, max_record_bytes=10, on_bad_record="skip")
    assert found.texts == ["x" * 10, "é" * 5]
    assert [drop[:2] for drop in found.drops] == [(1, "too_large"), (3, "too_large")]
    with pytest.raises(RecordError, match="11 bytes"):
        read(table, max_record_bytes=10)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"text_field": "content"}, r"source\.text_field 'content' is no column; found: text, n"),
        ({"id_field": "uuid"}, r"source\.id_field 'uuid' is no column; found: text, n"),
        ({"kept": (("url", STRING),)}, r"source\.keep_fields 'url' is no column; found: text, n"),
        ({"text_field": "n"}, "column 'n': expected text, found int64"),
    ],
)
def test_a_column_that_is_missing_lists_those_that_are_there_q66(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=rf"a\.parquet: {message}"):
        read(pa.table({"text": ["a"], "n": [1]}), **options)


def test_two_columns_of_one_name_are_an_error_of_the_input() -> None:
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["text", "text"])
    with pytest.raises(InputError, match="text"):
        read(table)


@pytest.mark.parametrize(
    ("array", "texts"),
    [
        (pa.array([1, None, -(2**63)]), ["1", None, "-9223372036854775808"]),
        (pa.array([2**64 - 1], pa.uint64()), ["18446744073709551615"]),
        (pa.array([True, False, None]), ["true", "false", None]),
        (pa.array([0.5, None]), ["0.5", None]),
        (pa.array([dt.date(2024, 2, 29)]), ["2024-02-29"]),
        (pa.array(["é", None], pa.large_string()), ["é", None]),
        (pa.array([{"a": "é", "b": [1, None]}, None]), ['{"a":"é","b":[1,null]}', None]),
        (pa.array([[], [1, 2], None]), ["[]", "[1,2]", None]),
        (pa.array([b"raw", None]), ["raw", None]),
        (raw_strings([b"caf\xd5", None, b"ok"]), ["caf\ufffd", None, "ok"]),
        (pa.array(["a", "b", "a"]).dictionary_encode(), ["a", "b", "a"]),
        (pa.nulls(2), [None, None]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_ids_and_kept_strings_are_texts_whatever_the_type(array: pa.Array, texts: list[str | None]) -> None:
    assert kept(array) == texts
    found = read(pa.table({"text": ["a"] * len(array), "k": array}), id_field="k").ids
    assert found is not None
    assert found.to_pylist() == texts


def test_bytes_that_are_not_utf8_inside_a_kept_struct_are_an_error_that_names_the_field() -> None:
    nested = pa.StructArray.from_arrays([raw_strings([b"caf\xd5"])], ["name"])
    with pytest.raises(InputError, match="field 'k'"):
        kept(nested)


@pytest.mark.parametrize(
    ("array", "kind", "values"),
    [
        (pa.array([1, None], pa.int32()), pa.int64(), [1, None]),
        (pa.array([1, None]), pa.float64(), [1.0, None]),
        (pa.array([1.5], pa.float32()), pa.float64(), [1.5]),
        (pa.array([2.0]), pa.int64(), [2]),
        (pa.array([True, None]), pa.bool_(), [True, None]),
        (pa.array([7, 8]).dictionary_encode(), pa.int64(), [7, 8]),
    ],
)
def test_declared_types_take_values_that_fit(array: pa.Array, kind: pa.DataType, values: list[Any]) -> None:
    assert kept(array, kind) == values


@pytest.mark.parametrize(
    ("array", "kind"),
    [
        (pa.array(["x"]), pa.int64()),
        (pa.array([1.5]), pa.int64()),
        (pa.array([2**64 - 1], pa.uint64()), pa.int64()),
        (pa.array([[1]]), pa.int64()),
        (pa.array([{"a": 1}]), pa.float64()),
        (pa.array([pa.MonthDayNano([1, 2, 3])]), pa.string()),
    ],
    ids=str,
)
def test_a_column_that_does_not_fit_its_declared_type_names_both(array: pa.Array, kind: pa.DataType) -> None:
    with pytest.raises(InputError) as caught:
        kept(array, kind)
    for part in ("a.parquet", "'k'", str(array.type), str(kind)):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (pa.int32(), pa.int32()),
        (pa.float16(), pa.float16()),
        (pa.bool_(), pa.bool_()),
        (pa.timestamp("us", "UTC"), pa.timestamp("us", "UTC")),
        (pa.large_string(), pa.string()),
        (pa.string_view(), pa.string()),
        (pa.dictionary(pa.int8(), pa.large_string()), pa.string()),
        (pa.dictionary(pa.int8(), pa.int16()), pa.int16()),
    ],
    ids=str,
)
def test_an_undeclared_kept_field_has_the_type_of_the_first_file(
    kind: pa.DataType, expected: pa.DataType
) -> None:
    assert kept_type("a.parquet", "k", kind) == expected
    table = pa.table({"text": ["a"], "k": pa.nulls(1, kind)})
    assert read(table, kept=(("k", expected),)).kept[0].type == expected


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.int8()), pa.struct({"a": STRING}), pa.binary(), pa.decimal128(9), pa.null()], ids=str
)
def test_a_type_that_shards_cannot_hold_says_what_to_do(kind: pa.DataType) -> None:
    with pytest.raises(
        InputError, match=r"a\.parquet: kept field 'k' has type .*`k: string` in source\.keep_fields"
    ):
        kept_type("a.parquet", "k", kind)


@pytest.mark.parametrize(
    ("first", "later"),
    [
        (pa.int64(), pa.int32()),
        (pa.string(), pa.int64()),
        (pa.int64(), pa.string()),
        (pa.timestamp("us"), pa.timestamp("ns")),
    ],
)
def test_another_type_in_a_later_file_names_both(first: pa.DataType, later: pa.DataType) -> None:
    table = pa.table({"text": ["a"], "k": pa.nulls(1, later)})
    with pytest.raises(InputError) as caught:
        read(table, kept=(("k", first),))
    for part in ("a.parquet", "'k'", str(first), str(later)):
        assert part in str(caught.value)


def test_columns_follow_the_documents_that_are_left() -> None:
    size = 200
    texts = [None if row % 7 == 3 else b"\xd5" if row % 11 == 5 else b"%d" % row for row in range(size)]
    table = pa.table(
        {"text": raw_strings(texts), "id": np.arange(size), "k": [f"k{row}" for row in range(size)]}
    )
    found = read(
        table.slice(13, 150), id_field="id", kept=(("k", STRING),), on_bad_record="skip", on_bad_text="skip"
    )
    left = [row for row in range(13, 163) if texts[row] not in {None, b"\xd5"}]
    assert found.texts == [str(row) for row in left]
    assert found.row.tolist() == [row - 13 for row in left]
    assert found.ids is not None
    assert found.ids.to_pylist() == [str(row) for row in left]
    assert found.kept[0].to_pylist() == [f"k{row}" for row in left]
    assert len(found) + len(found.drops) == found.rows == 150


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()], ids=str)
def test_nothing_is_left_under_the_nulls_of_kept_strings(kind: pa.DataType) -> None:
    """Arrow files may hold bytes there, and whether a later step removes them depends on the batch."""
    offsets = np.array([0, 1, 7, 8], np.int64 if pa.types.is_large_string(kind) else np.int32)
    buffers = [pa.py_buffer(b"\x05"), pa.py_buffer(offsets), pa.py_buffer(b"ahiddenb")]
    array = pa.Array.from_buffers(kind, 3, buffers)
    assert array.to_pylist() == ["a", None, "b"]
    [column] = read(pa.table({"text": ["x"] * 3, "k": array}), kept=(("k", STRING),)).kept
    assert column.to_pylist() == ["a", None, "b"]
    assert byte_lengths(column).tolist() == [1, 0, 1]
