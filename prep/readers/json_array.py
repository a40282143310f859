"""A .json file that holds one array: its elements become lines, and lines are what the rest reads."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import orjson

from prep.catalog.errors import InputError
from prep.readers.compressed import open_text
from prep.readers.lines import BOM, READ_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator


def holds_array(path: str) -> bool:
    """Whether the first character of a .json file that is no white space opens an array."""
    with open_text(path) as stream:
        while piece := stream.read(READ_BYTES):
            begin = piece.removeprefix(BOM).lstrip()
            if begin:
                return begin.startswith(b"[")
    return False


def array_blocks(path: str, first: int, block_bytes: int, max_bytes: int) -> Iterator[tuple[int, int, bytes]]:
    """The elements of an array from index `first` on: first index, one behind the last, a line each.

    Raises:
        InputError: the file is larger than `max_bytes` or no valid JSON.
    """
    elements = _load(path, max_bytes)
    lines: list[bytes] = []
    size, begin = 0, first
    for index in range(first, len(elements)):
        lines.append(_dump(elements[index]))
        size += len(lines[-1])
        if size >= block_bytes:
            yield begin, index + 1, b"\n".join(lines)
            lines, size, begin = [], 0, index + 1
    if lines:
        yield begin, len(elements), b"\n".join(lines)


def _load(path: str, max_bytes: int) -> list[Any]:
    pieces: list[bytes] = []
    with open_text(path) as stream:
        while piece := stream.read(READ_BYTES):
            pieces.append(piece)
            if stream.offset > max_bytes:
                raise InputError(
                    f"{path}: one JSON array of more than {max_bytes:,} bytes "
                    "(processing.max_record_bytes); write it as JSON Lines, one object a line"
                )
    data = b"".join(pieces).removeprefix(BOM)
    try:
        try:
            value = orjson.loads(data)
        except ValueError:
            value = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not a valid JSON array: {error}") from error
    if not isinstance(value, list):
        raise InputError(f"{path}: expected one JSON array")
    return value


def _dump(element: Any) -> bytes:
    """One line of JSON; escapes keep what cannot be encoded for the line's own policies to judge."""
    try:
        return orjson.dumps(element)
    except TypeError:
        return json.dumps(element).encode()
