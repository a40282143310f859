"""JSON Lines: bytes to documents.

A record is a line, and its text is UTF-8. One
parser decides what is a record (orjson, then the standard library's for what orjson refuses: lone
surrogates, NaN), and a block is parsed in one sweep unless a line in it needs to be looked at singly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pyarrow as pa

from prep.catalog.errors import InputError
from prep.catalog.schema import DECLARED_TYPES
from prep.readers import raw_json
from prep.readers.block import (
    FLAG_INVALID_UTF8,
    FLAG_SURROGATES,
    Collector,
    Documents,
    ReadOptions,
    repair_surrogates,
    utf8_lengths,
)
from prep.readers.lines import OversizedLine, placed_lines, without_bom

if TYPE_CHECKING:
    from collections.abc import Sequence

SHOWN_FIELDS = 20


def parse_lines(lines: Sequence[Any], offset: int | None, options: ReadOptions) -> Documents:
    """Documents of consecutive lines.

    Args:
        lines: bytes without line feeds, or OversizedLine.
        offset: byte offset of the first line in the (decompressed) file, 0 allows a byte order mark; None
            where lines have no place in a file.
        options: columns and policies.

    Raises:
        RecordError: a record that the policies refuse.
    """
    lines, offset = without_bom(lines, offset)
    swept = _sweep(lines, options)
    return swept if swept is not None else _parse_singly(lines, offset, options)


def _sweep(lines: Sequence[Any], options: ReadOptions) -> Documents | None:
    """All lines at once, where each is an object with a string of text; otherwise None."""
    loads = orjson.loads
    try:
        records = [loads(line) for line in lines]
        texts = [record[options.text_field] for record in records]
        text_bytes = utf8_lengths(texts)
        ids = None
        if options.id_field is not None:
            ids = _swept_column(records, options.id_field, pa.string())
        kept = [_swept_column(records, name, kind) for name, kind in options.kept]
    except (ValueError, TypeError, KeyError, AttributeError, pa.ArrowException):
        return None
    return Documents(len(lines), np.arange(len(lines), dtype=np.int64), texts, text_bytes, ids, kept)


def _swept_column(records: Sequence[dict[str, Any]], name: str, kind: pa.DataType) -> pa.Array:
    if pa.types.is_string(kind):
        return pa.array([record.get(name) for record in records], kind)
    return pa.array([_coerce(name, record.get(name), kind) for record in records], kind)


def _parse_singly(lines: Sequence[Any], offset: int | None, options: ReadOptions) -> Documents:
    collector = Collector(options)
    for row, (line, place) in enumerate(placed_lines(lines, offset)):
        if isinstance(line, OversizedLine):
            limit = f"processing.max_record_bytes is {options.max_record_bytes:,}"
            collector.fault(row, "too_large", f"a record of {line.size:,} bytes; {limit}", place)
        else:
            _parse_line(collector, row, line, place)
    return collector.documents(len(lines))


def _parse_line(collector: Collector, row: int, line: bytes, offset: int, flags: int = 0) -> None:
    if not line.strip():
        return
    try:
        record = load_record(line)
    except UnicodeDecodeError as error:
        if collector.options.on_bad_text != "replace":
            collector.fault(row, "bad_text", what_is_wrong(error), offset)
            return
        line = line.decode("utf-8", "replace").encode()
        _parse_line(collector, row, line, offset, FLAG_INVALID_UTF8)
        return
    except ValueError as error:
        collector.fault(row, "bad_record", str(error), offset)
        return
    try:
        _keep_as_written(record, line, collector.options)
    except ValueError as error:
        collector.fault(row, "bad_record", str(error), offset)
        return
    _add_record(collector, row, record, offset, flags)


def load_record(line: bytes) -> dict[str, Any]:
    """The JSON object on a line.

    Raises:
        UnicodeDecodeError: the line is not UTF-8.
        ValueError: it is no JSON object.
    """
    try:
        record = _loads(line)
    except UnicodeDecodeError:
        raise
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not valid JSON: {error}") from error
    if not isinstance(record, dict):
        raise ValueError(f"expected a JSON object, found {kind_name(record)}")  # noqa: TRY004 - bad input
    return record


def what_is_wrong(error: ValueError) -> str:
    """What `load_record` found, in words."""
    if isinstance(error, UnicodeDecodeError):
        return f"not valid UTF-8 at byte {error.start} of the line"
    return str(error)


def _loads(line: bytes) -> Any:
    try:
        return orjson.loads(line)
    except ValueError:
        return raw_json.loads(line.decode("utf-8"))


def _keep_as_written(record: dict[str, Any], line: bytes, options: ReadOptions) -> None:
    """Put the JSON text that the line has for them in place of values that are kept as strings."""
    names = {name for name, kind in options.kept if pa.types.is_string(kind)}
    names |= set() if options.id_field is None else {options.id_field}
    wanted = {name for name in names if not isinstance(record.get(name), str | None)}
    if wanted:
        record.update(raw_json.fields(line.decode("utf-8"), wanted))


def _add_record(collector: Collector, row: int, record: dict[str, Any], offset: int, flags: int) -> None:
    """Add one parsed JSON object under the policies."""
    options = collector.options
    text = record.get(options.text_field)
    if text is None:
        found = "is null" if options.text_field in record else f"is missing; fields seen: {_names(record)}"
        collector.fault(row, "missing_text", f"source.text_field {options.text_field!r} {found}", offset)
        return
    if not isinstance(text, str):
        message = f"field {options.text_field!r}: expected a string, found {kind_name(text)}"
        collector.fault(row, "bad_record", message, offset)
        return
    try:
        kept = [_coerce(name, record.get(name), kind) for name, kind in options.kept]
    except ValueError as error:
        collector.fault(row, "bad_record", str(error), offset)
        return
    repaired = repair_surrogates(text)
    if repaired is not None:
        if options.on_bad_text != "replace":
            collector.fault(row, "bad_text", "the text holds a lone surrogate, which is no character", offset)
            return
        text, flags = repaired, flags | FLAG_SURROGATES
    identifier = None if options.id_field is None else _as_text(record.get(options.id_field))
    collector.add(row, text, identifier, kept, flags)


def _coerce(name: str, value: Any, kind: pa.DataType) -> Any:
    """A JSON value as a kept field's type; for a string column it is a string already.

    Raises:
        ValueError: it does not fit.
        InputError: the column has a type that JSON knows nothing of.
    """
    if value is None:
        return None
    if pa.types.is_string(kind):
        return _as_text(value)
    if kind not in DECLARED_TYPES.values():
        raise InputError(
            f"kept field {name!r} has type {kind} in the first file, which fields of JSON cannot have; "
            "declare its type in source.keep_fields: string, int64, float64 or bool"
        )
    fits = {
        pa.bool_(): lambda: isinstance(value, bool),
        pa.int64(): lambda: type(value) is int and -(2**63) <= value < 2**63,
        pa.float64(): lambda: type(value) in (int, float),
    }
    if not fits[kind]():
        raise ValueError(f"field {name!r}: expected {kind}, found {kind_name(value)}")
    try:
        return float(value) if pa.types.is_floating(kind) else value
    except OverflowError as error:
        raise ValueError(f"field {name!r}: a number too large for {kind}") from error


def _as_text(value: str | None) -> str | None:
    """A string without lone surrogates, or None."""
    return None if value is None else repair_surrogates(value) or value


def _names(record: dict[str, Any]) -> str:
    names = [repr(name) for name in list(record)[:SHOWN_FIELDS]]
    return ", ".join(names) + (", ..." if len(record) > SHOWN_FIELDS else "") if names else "none"


def kind_name(value: Any) -> str:
    """What a JSON value is, in words."""
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "an array"}
    return names.get(type(value), "null" if value is None else "an object")
