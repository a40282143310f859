"""Ids and kept fields of JSON Lines: digits, types, and what does not fit."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from prep.catalog.errors import TokenloomError
from prep.readers.block import Documents, ReadOptions, RecordError
from prep.readers.jsonl import parse_lines

STRING = pa.string()


def parse(lines: list[bytes], **options: Any) -> Documents:
    return parse_lines(lines, 0, ReadOptions(**options))


def kept(literal: bytes, kind: pa.DataType = STRING) -> Any:
    return parse([b'{"text": "a", "k": ' + literal + b"}"], kept=(("k", kind),)).kept[0].to_pylist()[0]


def test_ids_become_strings_and_missing_ones_stay_null_q66() -> None:
    lines = [
        b'{"text":"a","id":12}',
        b'{"text":"b","id":"x"}',
        b'{"text":"c"}',
        b'{"text":"d","id":null}',
        b'{"text":"e","id":""}',
    ]
    found = parse(lines, id_field="id").ids
    assert found is not None
    assert found.type == pa.string()
    assert found.to_pylist() == ["12", "x", None, None, ""]
    assert parse(lines).ids is None


@pytest.mark.parametrize(
    ("literal", "text"),
    [
        (b'"as is"', "as is"),
        (b'"true"', "true"),
        (b"null", None),
        (b"true", "true"),
        (b"12345678901234567890123", "12345678901234567890123"),
        (b"-9223372036854775809", "-9223372036854775809"),
        (b"1.10", "1.10"),
        (b"1e2", "1e2"),
        (b"-0", "-0"),
        (b"0.1000000000000000055511151231257827", "0.1000000000000000055511151231257827"),
        (b'{"b": [1, "\xc3\xa9", null], "a": true}', '{"b":[1,"é",null],"a":true}'),
        (b"[ ]", "[]"),
        (b'"\\ud800"', "\ufffd"),
    ],
)
def test_a_kept_string_is_the_string_or_the_json_text(literal: bytes, text: str | None) -> None:
    assert kept(literal) == text
    found = parse([b'{"text":"a","id":' + literal + b"}"], id_field="id").ids
    assert found is not None
    assert found.to_pylist() == [text]


@pytest.mark.parametrize(
    "literal", [b"[12345678901234567890123]", b'{"n":12345678901234567890123}', b"[1.10]"]
)
def test_numbers_inside_a_kept_value_keep_their_digits(literal: bytes) -> None:
    assert kept(literal) == literal.decode()


@pytest.mark.parametrize("literal", [b"NaN", b"Infinity", b"-Infinity"])
def test_a_kept_number_that_only_some_parsers_know_is_kept_as_it_is_written(literal: bytes) -> None:
    assert kept(literal) == literal.decode()


def test_an_integer_of_any_length_is_a_number_like_others() -> None:
    digits = b"7" * 10_000
    assert parse([b'{"text":"a","other":' + digits + b"}"]).texts == ["a"]
    assert kept(digits) == digits.decode()


@pytest.mark.parametrize(
    ("kind", "literal", "value"),
    [
        (pa.int64(), b"7", 7),
        (pa.int64(), b"9223372036854775807", 2**63 - 1),
        (pa.int64(), b"-9223372036854775808", -(2**63)),
        (pa.int64(), b"null", None),
        (pa.float64(), b"7", 7.0),
        (pa.float64(), b"0.1", 0.1),
        (pa.float64(), b"12345678901234567890123", 12345678901234567890123.0),
        (pa.bool_(), b"false", False),
        (pa.bool_(), b"null", None),
    ],
)
def test_declared_types_take_their_values(kind: pa.DataType, literal: bytes, value: Any) -> None:
    found = kept(literal, kind)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("kind", "literal"),
    [
        (pa.int64(), b"1.0"),
        (pa.int64(), b"9223372036854775808"),
        (pa.int64(), b'"7"'),
        (pa.int64(), b"true"),
        (pa.float64(), b'"7"'),
        (pa.float64(), b"true"),
        (pa.float64(), b"1" + b"0" * 400),
        (pa.bool_(), b"1"),
        (pa.bool_(), b'"true"'),
        (pa.bool_(), b"[]"),
    ],
)
def test_a_value_that_does_not_fit_its_declared_type_is_a_bad_record(
    kind: pa.DataType, literal: bytes
) -> None:
    lines = [b'{"text":"a","k":null}', b'{"text":"b","k":' + literal + b"}", b'{"text":"c"}']
    options = {"kept": (("k", kind),), "declared": frozenset("k")}
    found = parse(lines, on_bad_record="skip", **options)
    assert found.texts == ["a", "c"]
    assert [drop[:2] for drop in found.drops] == [(1, "bad_record")]
    assert "'k'" in found.drops[0].message
    with pytest.raises(RecordError):
        parse(lines, **options)


@pytest.mark.parametrize("kind", [pa.int32(), pa.timestamp("us"), pa.date32(), pa.uint64()])
def test_a_type_that_came_from_a_parquet_file_before_is_an_error_of_the_input(kind: pa.DataType) -> None:
    """JSON has no such type; the message has to say so instead of a failure inside."""
    with pytest.raises(TokenloomError, match="'k'"):
        parse([b'{"text":"a","k":"x"}'], kept=(("k", kind),))
