"""A .json file that holds one array: its elements become lines, and lines are what the rest reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prep.catalog.errors import InputError
from prep.readers import raw_json
from prep.readers.compressed import open_text
from prep.readers.lines import BOM, READ_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

LINE_ENDS = bytes.maketrans(b"\r\n", b"  ")


def holds_array(path: str, size: int | None = None) -> bool:
    """Whether the first character of a .json file that is no white space opens an array."""
    with open_text(path, size) as stream:
        while piece := stream.read(READ_BYTES):
            begin = piece.removeprefix(BOM).lstrip()
            if begin:
                return begin.startswith(b"[")
    return False


def array_blocks(
    path: str, first: int, block_bytes: int, max_bytes: int, size: int | None = None
) -> Iterator[tuple[int, int, bytes]]:
    """The elements of an array from index `first` on: first index, one behind the last, a line each.

    A line is the element as it is written; line ends inside it, which can only be white space between its
    parts, become blanks. What is not UTF-8 in it stays for the record policies to judge.

    Raises:
        InputError: the file is larger than `max_bytes` or no valid JSON.
    """
    text = _load(path, max_bytes, size)
    lines: list[bytes] = []
    held, begin, index = 0, first, -1
    try:
        for index, element in enumerate(raw_json.elements(text)):
            if index < first:
                continue
            lines.append(element.encode("utf-8", "surrogateescape").translate(LINE_ENDS))
            held += len(lines[-1])
            if held >= block_bytes:
                yield begin, index + 1, b"\n".join(lines)
                lines, held, begin = [], 0, index + 1
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not a valid JSON array, behind element {index + 1:,}: {error}") from error
    if lines:
        yield begin, index + 1, b"\n".join(lines)


def _load(path: str, max_bytes: int, size: int | None) -> str:
    pieces: list[bytes] = []
    with open_text(path, size) as stream:
        while piece := stream.read(READ_BYTES):
            pieces.append(piece)
            if stream.offset > max_bytes:
                raise InputError(
                    f"{path}: one JSON array of more than {max_bytes:,} bytes "
                    "(processing.max_record_bytes); write it as JSON Lines, one object a line"
                )
    return b"".join(pieces).removeprefix(BOM).decode("utf-8", "surrogateescape")
