"""JSON Lines: one test for each kind of line that the field has met."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from prep.readers.block import FLAG_INVALID_UTF8, FLAG_SURROGATES, Documents, Drop, ReadOptions, RecordError
from prep.readers.jsonl import parse_lines
from prep.readers.lines import OversizedLine, read_range, split_lines

if TYPE_CHECKING:
    from pathlib import Path

SKIP = {"on_bad_record": "skip", "on_bad_text": "skip"}
KEPT_STRING = {"kept": (("k", pa.string()),)}


def parse(lines: list[Any] | bytes, offset: int | None = 0, **options: Any) -> Documents:
    lines = split_lines(lines, 1 << 30) if isinstance(lines, bytes) else lines
    return parse_lines(lines, offset, ReadOptions(**options))


def texts(lines: list[Any] | bytes, **options: Any) -> list[str]:
    found: list[str] = parse(lines, **options).texts
    return found


def reasons(found: Documents) -> list[tuple[int, str]]:
    return [(drop.row, drop.reason) for drop in found.drops]


def test_unicode_line_separators_stay_in_the_text_q03() -> None:
    data = '{"text":"a\u2028b\u0085c"}\r\n{"text":"second"}'.encode()
    found = parse(data)
    assert found.texts == ["a\u2028b\u0085c", "second"]
    assert [len(text) for text in found.texts] == [5, 6]
    assert found.row.tolist() == [0, 1]


def test_blank_lines_are_rows_and_no_records() -> None:
    found = parse(b'\n{"text":"a"}\n\r\n \t \n{"text":"b"}\n\n')
    assert found.texts == ["a", "b"]
    assert found.row.tolist() == [1, 4]
    assert found.rows == 6
    assert not found.drops


def test_one_byte_order_mark_is_passed_over_at_the_begin_of_a_file() -> None:
    mark = b"\xef\xbb\xbf"
    assert texts([mark + b'{"text":"a"}', b'{"text":"b"}']) == ["a", "b"]
    assert texts([mark]) == []
    assert reasons(parse([mark + mark + b'{"text":"a"}'], **SKIP)) == [(0, "bad_record")]
    assert reasons(parse([mark + b'{"text":"a"}'], offset=10, **SKIP)) == [(0, "bad_record")]
    assert reasons(parse([b'{"text":"a"}', mark + b'{"text":"b"}'], **SKIP)) == [(1, "bad_record")]


def test_byte_offsets_count_the_byte_order_mark() -> None:
    data = b'\xef\xbb\xbf{"text":"a"}\nbad\n{"text":"b"}\nworse\n'
    found = parse(data, **SKIP)
    assert [(drop.row, drop.offset) for drop in found.drops] == [
        (1, data.index(b"bad")),
        (3, data.index(b"worse")),
    ]


@pytest.mark.parametrize("byte", [b"\xd5", b"\xc9"])
def test_bytes_that_are_not_utf8_follow_the_policy_q11(byte: bytes) -> None:
    data = b'{"text":"x' + byte + b'"}\n{"text":"y\n"}\n'.replace(b"y\n", b"y") + b'{"text":"z"}\n'
    with pytest.raises(RecordError) as caught:
        parse(data)
    assert caught.value.drop[:3] == (0, "bad_text", 0)
    replaced = parse(data, on_bad_text="replace")
    assert replaced.texts == ["x\ufffd", "y", "z"]
    assert replaced.flags.tolist() == [FLAG_INVALID_UTF8, 0, 0]
    skipped = parse(data, on_bad_text="skip")
    assert skipped.texts == ["y", "z"]
    assert reasons(skipped) == [(0, "bad_text")]


@pytest.mark.parametrize("locale", ["C", "POSIX", "de_DE.ISO-8859-1"])
def test_text_is_utf8_whatever_the_locale_q11(tmp_path: Path, locale: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes('{"text":"naïve 漢 \\u00e9"}\n'.encode() + b'{"text":"x\xd5"}\n')
    program = (
        "import json, locale, sys\n"
        "from prep.readers.block import ReadOptions\n"
        "from prep.readers.jsonl import parse_lines\n"
        "from prep.readers.lines import read_range\n"
        f"path, size = {os.fspath(path)!r}, {path.stat().st_size}\n"
        "found, offset = read_range(path, 0, 5, size, 1 << 20)\n"
        "more, _ = read_range(path, 5, size, size, 1 << 20)\n"
        "documents = parse_lines(found + more, offset, ReadOptions(on_bad_text='replace'))\n"
        "print(json.dumps([locale.getencoding(), documents.texts]))\n"
    )
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG", "PYTHON"))
    }
    environment |= {"LC_ALL": locale, "LANG": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-c", program]
    output = subprocess.run(command, env=environment, cwd=tmp_path, check=True, capture_output=True).stdout
    encoding, found = json.loads(output)
    assert encoding.lower() not in {"utf-8", "utf8"}
    assert found == ["naïve 漢 é", "x\ufffd"]


@pytest.mark.parametrize(
    "line", [b'{"text":"ok\\ud800bad"}', b'{"text":"ok\\udfffbad"}', b'{"text":"ok\\uD800bad"}']
)
def test_a_lone_surrogate_follows_the_policy_q08(line: bytes) -> None:
    lines = [b'{"text":"good"}', line]
    with pytest.raises(RecordError, match="lone surrogate") as caught:
        parse(lines)
    assert caught.value.drop[:3] == (1, "bad_text", 16)
    replaced = parse(lines, on_bad_text="replace")
    assert replaced.texts == ["good", "ok\ufffdbad"]
    assert replaced.flags.tolist() == [0, FLAG_SURROGATES]
    assert reasons(parse(lines, on_bad_text="skip")) == [(1, "bad_text")]


def test_surrogate_pairs_are_the_character_q08() -> None:
    assert texts(
        [b'{"text":"\\ud83d\\udc4d"}', b'{"text":"\\ud83d\\ud83d\\udc4d"}'], on_bad_text="replace"
    ) == [
        "\N{THUMBS UP SIGN}",
        "\ufffd\N{THUMBS UP SIGN}",
    ]
    assert parse([b'{"text":"\\ud83d\\udc4d"}']).flags.tolist() == [0]


def test_nul_is_a_character_like_others_q12() -> None:
    assert texts([b'{"text":"a\\u0000b"}', b'{"text":"\\u0000"}']) == ["a\x00b", "\x00"]
    assert reasons(parse([b'{"text":"a\x00b"}'], **SKIP)) == [(0, "bad_record")]


def test_escapes_and_spaces_at_the_ends_stay_q12() -> None:
    text = " \t\r\n trailing  \ufe30ß\u200d👩\u200d👧  "
    assert texts(
        [json.dumps({"text": text}).encode(), json.dumps({"text": text}, ensure_ascii=False).encode()]
    ) == [text, text]


def test_empty_null_missing_and_blank_texts_q06() -> None:
    lines = [b'{"text":""}', b'{"text":null}', b'{"other":1}', b'{"text":"   "}', b'{"text":"ok"}']
    found = parse(lines, on_bad_record="skip")
    assert found.texts == ["", "   ", "ok"]
    assert reasons(found) == [(1, "missing_text"), (2, "missing_text")]
    with pytest.raises(RecordError, match="'text' is null"):
        parse(lines)


def test_a_missing_text_field_lists_the_fields_that_are_there_q66() -> None:
    with pytest.raises(
        RecordError, match=r"source\.text_field 'text' is missing; fields seen: 'content', 'url'"
    ):
        parse([b'{"content":"a","url":"b"}'])
    with pytest.raises(RecordError, match="fields seen: none"):
        parse([b"{}"])
    many = json.dumps({f"field{number}": 0 for number in range(500)}).encode()
    with pytest.raises(RecordError, match=r"'field0', 'field1', .*\.\.\.") as caught:
        parse([many])
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (b"[1, 2]", "an array"),
        (b'"text"', "a string"),
        (b"1", "a number"),
        (b"1.5", "a number"),
        (b"true", "a boolean"),
        (b"null", "null"),
    ],
)
def test_what_is_no_object_is_named(line: bytes, found: str) -> None:
    with pytest.raises(RecordError, match=f"expected a JSON object, found {found}"):
        parse([line])
    assert reasons(parse([b'{"text":"a"}', line], **SKIP)) == [(1, "bad_record")]


@pytest.mark.parametrize("value", ["1", "1.5", "true", "[]", "{}", '["a"]'])
def test_a_text_that_is_no_string_is_a_bad_record(value: str) -> None:
    line = f'{{"text":{value}}}'.encode()
    with pytest.raises(RecordError, match="field 'text': expected a string, found a"):
        parse([line])
    assert reasons(parse([b'{"text":"a"}', line], **SKIP)) == [(1, "bad_record")]


@pytest.mark.parametrize(
    "line", [b"{", b'{"text":"a"', b'{"text":"a"}}', b"{'text':'a'}", b'{"text":a}', b"text", b"\x00", b"}{"]
)
def test_what_is_no_json_is_a_bad_record(line: bytes) -> None:
    found = parse([b'{"text":"before"}', line, b'{"text":"after"}'], **SKIP)
    assert found.texts == ["before", "after"]
    assert reasons(found) == [(1, "bad_record")]
    assert found.drops[0].offset == 18
    with pytest.raises(RecordError, match="not valid JSON"):
        parse([line])


def test_the_last_of_equal_keys_counts() -> None:
    assert texts([b'{"text":"a","text":"b"}', b'{"text":1,"\\u0074ext":"c"}']) == ["b", "c"]


def test_nan_elsewhere_in_a_record_is_accepted() -> None:
    assert texts([b'{"text":"a","score":NaN,"other":[Infinity,-Infinity]}']) == ["a"]


DEPTHS = (100, 500, 900, 990, 1000, 1010, 1024, 1100, 5000, 200_000)


@pytest.mark.parametrize("depth", DEPTHS)
def test_deep_nesting_is_a_document_or_a_bad_record_never_a_crash(depth: int) -> None:
    for extra in (b"", b',"id":7', b',"k":1.5', b',"x":"\\ud800"'):
        line = b'{"text":"a","junk":' + b"[" * depth + b"]" * depth + extra + b"}"
        found = parse([line, b'{"text":"b"}'], id_field="id", **KEPT_STRING, **SKIP)
        assert [found.texts, reasons(found)] in (
            [["a", "b"], []],
            [["b"], [(0, "bad_record")]],
        )
        assert depth > 500 or len(found) == 2


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_deep_value_is_kept_or_refused_never_a_crash(depth: int) -> None:
    value = b'{"a":' * depth + b"1" + b"}" * depth
    found = parse([b'{"text":"a","k":' + value + b"}", b'{"text":"b"}'], **KEPT_STRING, **SKIP)
    assert found.kept[0].to_pylist() in ([value.decode(), None], [None])
    assert depth > 500 or len(found) == 2


def test_how_deep_python_s_stack_is_does_not_decide_what_is_a_record() -> None:
    def deeper(frames: int) -> tuple[list[str], list[tuple[int, str]]]:
        if frames:
            return deeper(frames - 1)
        found = parse(lines, **SKIP, id_field="id", **KEPT_STRING)
        return found.texts, reasons(found)

    nested = [b"[" * depth + b"]" * depth for depth in range(600, 1100, 10)]
    lines = [b'{"text":"a","x":"\\ud800","other":' + value + b"}" for value in nested]
    assert deeper(0) == deeper(200)


def test_oversized_lines_are_told_with_their_size_and_place_q05() -> None:
    lines = [b'{"text":"small"}', OversizedLine(3 * 10**9), b'{"text":"small"}']
    found = parse(lines, on_bad_record="skip", max_record_bytes=10**8)
    assert found.texts == ["small", "small"]
    assert found.row.tolist() == [0, 2]
    [drop] = found.drops
    assert (drop.row, drop.reason, drop.offset) == (1, "too_large", 17)
    assert "3,000,000,000" in drop.message
    assert "100,000,000" in drop.message
    with pytest.raises(RecordError):
        parse(lines)


def test_a_large_line_between_small_ones_is_read_q05(tmp_path: Path) -> None:
    large = "0123456789" * 800_000
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"text":"small"}}\n{{"text":"{large}"}}\n{{"text":"small"}}\n', encoding="utf-8")
    lines, _ = read_range(str(path), 0, 100, path.stat().st_size, 1 << 30)
    assert texts(lines) == ["small", large]


def test_lines_without_a_place_have_no_offset() -> None:
    found = parse([b"bad", b'{"text":"a"}'], offset=None, **SKIP)
    assert found.drops == [Drop(0, "bad_record", -1, found.drops[0].message)]


def test_no_lines_are_no_documents() -> None:
    found = parse([], id_field="id", **KEPT_STRING)
    assert (found.rows, len(found), found.drops) == (0, 0, [])
    assert found.ids is not None
    assert found.ids.type == found.kept[0].type == pa.string()
