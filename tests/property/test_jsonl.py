"""JSON Lines against the standard library's parser, line by line, under every policy."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prep.readers.block import FLAG_INVALID_UTF8, FLAG_SURROGATES, Documents, ReadOptions, RecordError
from prep.readers.jsonl import parse_lines
from prep.readers.lines import OversizedLine

if TYPE_CHECKING:
    from collections.abc import Sequence

KEPT = (("s", pa.string()), ("i", pa.int64()), ("f", pa.float64()), ("b", pa.bool_()))
OPTIONS = ReadOptions(id_field="id", kept=KEPT, on_bad_record="skip", on_bad_text="skip")
LONE = re.compile("[\ud800-\udfff]")


class Number(str):
    """A number with the digits that the line has."""

    __slots__ = ()


class Outcome(NamedTuple):
    """What the model says of a line: a document, or the reason why it is none."""

    reason: str | None
    document: tuple[Any, ...] = ()


class FaultError(Exception):
    """Why a line is no document."""


def model(line: bytes | OversizedLine, options: ReadOptions) -> Outcome | None:
    """None for a blank line."""
    if not isinstance(line, OversizedLine) and not line.strip():
        return None
    try:
        return Outcome(None, _document(line, options))
    except FaultError as fault:
        return Outcome(str(fault))


def _document(line: bytes | OversizedLine, options: ReadOptions) -> tuple[Any, ...]:
    if isinstance(line, OversizedLine):
        raise FaultError("too_large")
    decoded, flags = _decoded(line, options)
    try:
        record = json.loads(decoded, parse_int=Number, parse_float=Number)
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise FaultError("bad_record")
    text = record.get("text")
    if text is None:
        raise FaultError("missing_text")
    if not _is_string(text):
        raise FaultError("bad_record")
    kept = tuple(_kept(record.get(name), kind) for name, kind in options.kept)
    if LONE.search(text):
        if options.on_bad_text != "replace":
            raise FaultError("bad_text")
        text, flags = LONE.sub("\ufffd", text), flags | FLAG_SURROGATES
    return text, _text(record.get("id")), *kept, flags


def _decoded(line: bytes, options: ReadOptions) -> tuple[str, int]:
    try:
        return line.decode("utf-8"), 0
    except UnicodeDecodeError as error:
        if options.on_bad_text == "replace":
            return line.decode("utf-8", "replace"), FLAG_INVALID_UTF8
        raise FaultError("bad_text") from error


def _is_string(value: Any) -> bool:
    return isinstance(value, str) and not isinstance(value, Number)


def _kept(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if kind == pa.string():
        return _text(value)
    if kind == pa.bool_() and isinstance(value, bool):
        return value
    if kind == pa.float64() and isinstance(value, Number):
        return float(value)
    if kind == pa.int64() and isinstance(value, Number) and re.fullmatch("-?[0-9]+", value):
        number = int(value)
        if -(2**63) <= number < 2**63:
            return number
    raise FaultError("bad_record")


def _text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, str):
        return LONE.sub("\ufffd", value)
    return LONE.sub("\ufffd", json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":")))


def _plain(value: Any) -> Any:
    if isinstance(value, Number):
        return json.loads(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return {key: _plain(item) for key, item in value.items()} if isinstance(value, dict) else value


def documents_of(found: Documents) -> list[tuple[Any, ...]]:
    columns = [found.row.tolist(), found.texts]
    columns += [found.ids.to_pylist()] if found.ids is not None else []
    columns += [column.to_pylist() for column in found.kept]
    return list(zip(*columns, found.flags.tolist(), strict=True))


strings = st.text(st.sampled_from('ab \n\t"\\/é漢😀\u2028\u0085\x00\ufeff'), max_size=6)
lone = strings.map(lambda text: text + "\ud83d")
numbers = st.sampled_from(
    (0, 1, -1, 7, 2**53 + 1, 2**63 - 1, -(2**63), 2**63, 2**64, 10**30, 1.5, -0.0, 1e300, 0.1)
)
junk = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | strings,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(strings, inner, max_size=3),
    max_leaves=5,
)
fields = {
    "text": strings | strings | strings | lone | junk,
    "id": st.none() | strings | numbers | lone | junk,
    "s": st.none() | strings | numbers | lone | junk,
    "i": st.none() | numbers | st.integers(0, 9) | strings,
    "f": st.none() | numbers | st.booleans(),
    "b": st.none() | st.booleans() | st.integers(0, 1),
    "other": junk,
}
good = {
    "text": strings,
    "id": st.none() | strings,
    "s": st.none() | strings,
    "i": st.integers(-9, 9),
    "f": st.floats(-9, 9),
    "b": st.booleans(),
}


@st.composite
def objects(draw: st.DrawFn) -> bytes:
    source = draw(st.sampled_from((good, good, fields)))
    names = draw(st.lists(st.sampled_from(sorted(source)), unique=True))
    if draw(st.integers(0, 9)):
        names = ["text", *(name for name in names if name != "text")]
    record = {name: draw(source[name]) for name in names}
    escaped = draw(st.booleans()) or "\\ud83d" in repr(record)
    line = json.dumps(record, ensure_ascii=escaped).encode()
    if draw(st.integers(0, 9)) == 0:
        line = line.replace(b"a", b"\xd5", 1)
    if draw(st.integers(0, 9)) == 0:
        line = line[:-1] + b',"text":"twice"}'
    return (
        draw(st.sampled_from((b"", b"", b" ", b"\t")))
        + line
        + draw(st.sampled_from((b"", b"", b"\r", b" \r")))
    )


odd = st.sampled_from(
    (
        *(b"", b" ", b"\r", b"\t \r", b"{", b"[]", b"null", b"1", b'"text"', b'["text"]', b"{}", b'{"text"'),
        *(b"\xd5\xc9", b"\x00", b'{"text": "a"} {"text": "b"}', b"{'text': 'a'}", b'{"text": "a",}'),
        *(b'{"text": "tab\there"}', b'{"text": "\\x"}', b'{"text": "\\ud83d\\udc4d"}'),
        *(b'{"text": "\\udc4d\\ud83d"}', b'{"text": "raw \xed\xa0\xbd"}', b'{"text": "a", "other": NaN}'),
        *(b'{"text": "a", "other": 01}', b'{"text": "a", "other": 1e999}', b'{"text": "a", "s": 1.10}'),
        *(b'{"text": "a", "id": 12345678901234567890123}', b'{"text": "a", "s": 1E+2}'),
        *(b'{"text": "a", "i": -0}', b'{"text": "a", "text": null}', b'{"text": null, "text": "a"}'),
    )
)
lines = st.lists(objects() | objects() | odd | st.builds(OversizedLine, st.integers(1, 10**12)), max_size=8)
policies = st.builds(
    lambda record, text: replace(OPTIONS, on_bad_record=record, on_bad_text=text),
    st.sampled_from(("error", "skip")),
    st.sampled_from(("error", "replace", "skip")),
)


def _policy(reason: str, options: ReadOptions) -> Literal["error", "replace", "skip"]:
    return options.on_bad_text if reason == "bad_text" else options.on_bad_record


@given(lines=lines, options=policies)
@settings(max_examples=300, deadline=None)
def test_lines_become_what_the_standard_library_says(lines: list[Any], options: ReadOptions) -> None:
    expected = [model(line, options) for line in lines]
    refused = [
        row
        for row, outcome in enumerate(expected)
        if outcome and outcome.reason and _policy(outcome.reason, options) == "error"
    ]
    places = [sum(len(line) + 1 for line in lines[:row]) for row in range(len(lines))]
    if refused:
        with pytest.raises(RecordError) as caught:
            parse_lines(lines, 0, options)
        first = expected[refused[0]]
        assert first
        assert caught.value.drop[:3] == (refused[0], first.reason, places[refused[0]])
        return
    found = parse_lines(lines, 0, options)
    assert found.rows == len(lines)
    documents = [
        (row, *outcome.document) for row, outcome in enumerate(expected) if outcome and not outcome.reason
    ]
    assert documents_of(found) == documents
    drops = [
        (row, outcome.reason, places[row])
        for row, outcome in enumerate(expected)
        if outcome and outcome.reason
    ]
    assert [drop[:3] for drop in found.drops] == drops
    assert all(drop.message for drop in found.drops)
    assert found.text_bytes.tolist() == [len(text.encode()) for text in found.texts]


@given(lines=lines, text_policy=st.sampled_from(("replace", "skip")))
@settings(max_examples=200, deadline=None)
def test_a_line_is_parsed_alike_alone_and_among_others(
    lines: list[Any], text_policy: Literal["replace", "skip"]
) -> None:
    options = replace(OPTIONS, on_bad_text=text_policy)
    together = parse_lines(lines, 100, options)
    assert documents_of(together) == _singly(lines, options)[0]
    assert together.drops == _singly(lines, options)[1]


def _singly(lines: Sequence[Any], options: ReadOptions) -> tuple[list[tuple[Any, ...]], list[Any]]:
    documents, drops, place = [], [], 100
    for row, line in enumerate(lines):
        alone = parse_lines([line], place, options)
        documents += [(row, *document[1:]) for document in documents_of(alone)]
        drops += [drop._replace(row=row) for drop in alone.drops]
        place += len(line) + 1
    return documents, drops
