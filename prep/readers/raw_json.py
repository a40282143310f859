"""JSON text as it is written: slices of values, and how deeply they are nested.

Values that are kept as text keep every digit, so they are cut from the source rather than printed anew.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

MAX_DEPTH = 600
"""Deeper nesting is refused wherever Python's own parser is used; its limit would depend on the stack."""

SPACE = re.compile(r"[ \t\n\r]*")
STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
STRING_OR_SPACE = re.compile(r'("(?:[^"\\]|\\.)*")|[ \t\n\r]+', re.DOTALL)
SCAN = json.JSONDecoder(parse_int=str, parse_float=str)


def check_depth(text: str) -> None:
    """Refuse deep nesting.

    Raises:
        ValueError: more than MAX_DEPTH levels.
    """
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    depth = 0
    for match in STRING_OR_BRACKET.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(match[0], 0)
        if depth > MAX_DEPTH:
            raise ValueError(f"nested more than {MAX_DEPTH} levels deep")


def loads(text: str) -> Any:
    """Parse what orjson refuses: lone surrogates, NaN, numbers of any size.

    Raises:
        ValueError: it is no JSON, or nested too deeply.
    """
    check_depth(text)
    return json.loads(text, parse_int=_integer)


def _integer(digits: str) -> int | float:
    """Python refuses to convert very long integers; as a number such a one is beyond every type here."""
    try:
        return int(digits)
    except ValueError:
        return float(digits)


def fields(text: str, names: Collection[str]) -> dict[str, str]:
    """The text of some fields' values in a valid JSON object, without white space between their parts.

    Of a name that comes twice, the last counts.

    Raises:
        ValueError: it is nested too deeply.
    """
    check_depth(text)
    found = {}
    position = _skip(text, _skip(text, 0) + 1)
    while text[position] != "}":
        name, position = _value(text, position)
        start = _skip(text, _skip(text, position) + 1)
        _, position = _value(text, start)
        if name in names:
            found[name] = STRING_OR_SPACE.sub(r"\1", text[start:position])
        position = _skip(text, position)
        if text[position] == ",":
            position = _skip(text, position + 1)
    return found


def elements(text: str) -> Iterator[str]:
    """The text of each element of a JSON array.

    Raises:
        ValueError: it is no JSON array, or nested too deeply.
    """
    check_depth(text)
    position = _skip(text, 0)
    if text[position : position + 1] != "[":
        raise ValueError("expected one array")
    position = _skip(text, position + 1)
    while text[position : position + 1] != "]":
        start = position
        _, position = _value(text, start)
        yield text[start:position]
        position = _skip(text, position)
        mark = text[position : position + 1]
        if mark == ",":
            position = _skip(text, position + 1)
            if text[position : position + 1] == "]":
                raise ValueError(f"a value is missing at character {position}")
        elif mark != "]":
            raise ValueError(f"expected a comma or the array's end at character {position}")
    if text[_skip(text, position + 1) :]:
        raise ValueError(f"more text behind the array at character {position + 1}")


def _skip(text: str, position: int) -> int:
    match = SPACE.match(text, position)
    assert match is not None
    return match.end()


def _value(text: str, start: int) -> tuple[Any, int]:
    return SCAN.raw_decode(text, start)
