"""A .json file that holds one array of records."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from prep.catalog.errors import InputError
from prep.readers.block import ReadOptions
from prep.readers.json_array import array_blocks, holds_array
from prep.readers.jsonl import parse_lines
from prep.readers.lines import split_lines

if TYPE_CHECKING:
    from pathlib import Path

LIMIT = 1 << 30


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def write(data: bytes, name: str = "a.json") -> str:
        path = tmp_path / name
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return str(path)

    return write


def _records(path: str, first: int = 0, block: int = 40) -> list[Any]:
    found: list[Any] = []
    for begin, stop, data in array_blocks(path, first, block, LIMIT):
        assert begin == first + len(found)
        lines = split_lines(data, LIMIT)
        assert len(lines) == stop - begin > 0
        found += [json.loads(line) for line in lines]
    return found


@pytest.mark.parametrize(
    ("data", "is_array"),
    [
        (b"[]", True),
        (b" \r\n\t[1]", True),
        (b"\xef\xbb\xbf[1]", True),
        (b" " * (3 << 20) + b"[1]", True),
        (b'{"a": [1]}\n{"a": 2}\n', False),
        (b'\n\n{"a": 1}', False),
        (b"", False),
        (b"   ", False),
        (b"\xef\xbb\xbf", False),
    ],
)
def test_an_array_is_told_from_lines_by_its_first_character(write: Any, data: bytes, is_array: bool) -> None:
    assert holds_array(write(data)) is is_array
    assert holds_array(write(data, "a.json.gz")) is is_array


@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
@pytest.mark.parametrize("block", [1, 30, 100, 10_000])
def test_elements_come_in_order_from_any_of_them_on(write: Any, name: str, block: int) -> None:
    elements = [{"text": f"é{number}\n\u2028", "n": [number, None, {"x": 1.5}]} for number in range(20)]
    path = write(json.dumps(elements, indent=2, ensure_ascii=False).encode(), name)
    for first in range(21):
        assert _records(path, first, block) == elements[first:]


def test_every_kind_of_element_becomes_a_line(write: Any) -> None:
    elements = [1, None, "text", [2, [3]], {}, True, {"text": "a"}, ""]
    assert _records(write(json.dumps(elements).encode())) == elements
    assert _records(write(b"[ ]\n")) == []


def test_a_block_ends_when_it_has_its_size(write: Any) -> None:
    elements = ["x" * 18] * 10  # 20 bytes of JSON each
    path = write(json.dumps(elements).encode())
    assert [stop - begin for begin, stop, _ in array_blocks(path, 0, 50, LIMIT)] == [3, 3, 3, 1]
    assert [stop - begin for begin, stop, _ in array_blocks(path, 0, 60, LIMIT)] == [3, 3, 3, 1]
    assert [stop - begin for begin, stop, _ in array_blocks(path, 0, 1, LIMIT)] == [1] * 10


def _documents(path: str, **options: Any) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for _, _, data in array_blocks(path, 0, 1 << 20, LIMIT):
        found = parse_lines(split_lines(data, LIMIT), None, ReadOptions(id_field="id", **options))
        assert found.ids is not None
        columns = [
            found.texts,
            found.ids.to_pylist(),
            *(column.to_pylist() for column in found.kept),
        ]
        rows += zip(*columns, strict=True)
    return rows


@pytest.mark.parametrize(
    ("literal", "text"),
    [
        (b"12", "12"),
        (b"12345678901234567890123", "12345678901234567890123"),
        (b"1.10", "1.10"),
        (b"1e2", "1e2"),
        (b"true", "true"),
        (b'"\\ud800"', "\ufffd"),
    ],
)
def test_ids_and_kept_strings_are_those_of_the_same_lines(write: Any, literal: bytes, text: str) -> None:
    line = b'{"text":"a","id":' + literal + b',"k":' + literal + b"}"
    kept = (("k", pa.string()),)
    by_lines = parse_lines([line], 0, ReadOptions(id_field="id", kept=kept))
    assert by_lines.kept[0].to_pylist() == [text]
    assert _documents(write(b"[" + line + b"]"), kept=kept) == [("a", text, text)]


def test_a_number_that_only_some_parsers_know_is_no_null(write: Any) -> None:
    [(_, _, score)] = _documents(write(b'[{"text":"a","score":Infinity}]'), kept=(("score", pa.float64()),))
    assert score == float("inf")


def test_lone_surrogates_are_left_to_the_policies_q08(write: Any) -> None:
    path = write(b'[{"text":"ok\\ud800bad"},{"text":"\\ud83d\\udc4d"}]')
    assert [row[0] for row in _documents(path, on_bad_text="replace")] == [
        "ok\ufffdbad",
        "\N{THUMBS UP SIGN}",
    ]
    assert [row[0] for row in _documents(path, on_bad_text="skip")] == ["\N{THUMBS UP SIGN}"]


def test_bytes_that_are_not_utf8_are_left_to_the_policies_q11(write: Any) -> None:
    path = write(b'[{"text":"a\xd5"},{"text":"b"}]')
    assert [row[0] for row in _documents(path, on_bad_text="replace")] == ["a\ufffd", "b"]
    assert [row[0] for row in _documents(path, on_bad_text="skip")] == ["b"]


@pytest.mark.parametrize("depth", [100, 300, 900, 990, 1000, 1020, 1100, 100_000])
def test_deep_nesting_is_read_or_an_error_of_the_input(write: Any, depth: int) -> None:
    path = write(b'[{"text":"a","x":' + b"[" * depth + b"]" * depth + b"}]")
    try:
        assert _documents(path, on_bad_record="skip") in ([("a", None)], [])
    except InputError:
        assert depth > 500


@pytest.mark.parametrize(
    "data",
    [
        b"[",
        b'[{"text":"a"}',
        b'[{"text":"a"},]',
        b'[{"text":"a"}] x',
        b"[1}",
        b"[1]\n[2]\n",
    ],
)
def test_what_is_no_array_is_an_error_that_names_the_file_q01(write: Any, data: bytes) -> None:
    with pytest.raises(InputError, match=r"a\.json: not a valid JSON array"):
        _records(write(data))


def test_a_file_larger_than_a_record_may_be_is_an_error_with_the_way_out_q05(write: Any) -> None:
    path = write(json.dumps(["x" * 100]).encode())
    with pytest.raises(InputError, match=r"more than 50 bytes .*max_record_bytes.*JSON Lines"):
        list(array_blocks(path, 0, 10, 50))
