"""Lines of text files: byte ranges of plain files, and blocks of streams.

A line is what lies between two bytes 0x0A, whatever the platform or the locale. A byte range owns the
lines that begin in it, so that several readers share a file without talking to each other.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from prep.catalog.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from prep.readers.compressed import TextStream

BOM = b"\xef\xbb\xbf"
READ_BYTES = 1 << 20


class OversizedLine:
    """Stands for a line whose bytes were not kept because there are too many of them."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size


def read_range(path: str, start: int, stop: int, size: int, max_line: int) -> tuple[list[Any], int]:
    """The lines that begin in the bytes [start, stop) of a file.

    Args:
        path: a local, uncompressed file.
        start: first byte of the range.
        stop: first byte behind it.
        size: the file's size when it was listed; nothing behind it is read.
        max_line: a longer line is passed over in pieces and not kept.

    Returns:
        (lines, offset): bytes without the line feed, or OversizedLine; and the offset of the first of them.

    Raises:
        InputError: the file cannot be read, or has become shorter.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise InputError(f"{path}: cannot be opened: {error.strerror}") from error
    try:
        if (found := os.fstat(descriptor).st_size) < size:
            raise InputError(f"{path}: expected {size:,} bytes as when it was listed, found {found:,}")
        return _read_range(descriptor, start, stop, size, max_line)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    finally:
        os.close(descriptor)


def _read_range(descriptor: int, start: int, stop: int, size: int, max_line: int) -> tuple[list[Any], int]:
    # The line that holds byte start - 1 began before the range, unless that byte ends it.
    begin = max(0, start - 1)
    lines: list[Any] = _pread(descriptor, stop - begin, begin).split(b"\n")
    if start > 0:
        begin += len(lines.pop(0)) + 1
        if not lines:
            return [], stop
    tail = lines.pop()
    if tail:
        lines.append(_complete(descriptor, tail, stop, size, max_line))
    return [_limited(line, max_line) for line in lines] if stop - start > max_line else lines, begin


def _limited(line: Any, max_line: int) -> Any:
    return OversizedLine(len(line)) if isinstance(line, bytes) and len(line) > max_line else line


def _complete(descriptor: int, head: bytes, position: int, size: int, max_line: int) -> Any:
    """A line whose beginning is known, read on to its end."""
    pieces, length = [head], len(head)
    while position < size:
        piece = _pread(descriptor, min(READ_BYTES, size - position), position)
        end = piece.find(b"\n")
        length += len(piece) if end < 0 else end
        position += len(piece)
        if length <= max_line:
            pieces.append(piece if end < 0 else piece[:end])
        else:
            pieces.clear()
        if end >= 0:
            break
    return OversizedLine(length) if length > max_line else b"".join(pieces)


def _pread(descriptor: int, size: int, position: int) -> bytes:
    data = os.pread(descriptor, size, position)
    while len(data) < size:
        more = os.pread(descriptor, size - len(data), position + len(data))
        if not more:
            raise OSError(errno.EIO, "the file has become shorter while it was read")
        data += more
    return data


def split_lines(block: bytes, max_line: int) -> list[Any]:
    """The lines of a block that begins and ends at line boundaries."""
    lines: list[Any] = block.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return [_limited(line, max_line) for line in lines] if len(block) > max_line else lines


def placed_lines(lines: Sequence[Any], offset: int | None) -> Iterator[tuple[Any, int]]:
    """Each line with its byte offset, -1 where there is none."""
    place = -1 if offset is None else offset
    for line in lines:
        yield line, place
        if offset is not None:
            place += len(line) + 1


def without_bom(lines: Sequence[Any], offset: int | None) -> tuple[Sequence[Any], int | None]:
    """Lines and their offset without the byte order mark that the first line of a file may begin with."""
    if offset == 0 and lines and isinstance(lines[0], bytes) and lines[0].startswith(BOM):
        return [lines[0][len(BOM) :], *lines[1:]], len(BOM)
    return lines, offset


class LineBlock(NamedTuple):
    """Consecutive whole lines of a stream, or one line that is too large to keep.

    Attributes:
        offset: decompressed byte offset of the first line.
        size: bytes of the lines, or of the line that was passed over.
        pieces: the bytes, to be joined; empty where a line was passed over.
        done: about how many bytes of the file itself are done with it.
    """

    offset: int
    size: int
    pieces: tuple[bytes | memoryview, ...]
    done: int

    @property
    def oversized(self) -> bool:
        """Whether this stands for a line that was passed over."""
        return not self.pieces


def stream_blocks(stream: TextStream, start: int, block_bytes: int, max_line: int) -> Iterator[LineBlock]:
    """Blocks of about `block_bytes` from a stream.

    Args:
        stream: positioned at its beginning.
        start: decompressed offset of the first line wanted; what comes before is passed over.
        block_bytes: how much is read at a time; a block ends at the last line end in it.
        max_line: a longer line is passed over in pieces and not kept.

    Raises:
        InputError: the compressed data is damaged or ends too early.
    """
    _skip(stream, start)
    offset, size = start, 0
    carry: list[bytes] = []  # the beginning of a line, `size` bytes without a line feed
    while piece := stream.read(block_bytes):
        cut = piece.rfind(b"\n") + 1
        if not cut:
            carry.append(piece)
            size += len(piece)
            if size <= max_line:
                continue
            passed, piece = _pass_line(stream, size)
            yield LineBlock(offset, passed, (), stream.consumed)
            offset, size, carry = offset + passed + 1, 0, []
            cut = piece.rfind(b"\n") + 1
        if cut:
            yield LineBlock(offset, size + cut, (*carry, memoryview(piece)[:cut]), stream.consumed)
            offset += size + cut
            carry = []
        carry.append(piece[cut:])
        size = len(piece) - cut
    if size:
        yield LineBlock(offset, size, tuple(carry), stream.consumed)


def _skip(stream: TextStream, start: int) -> None:
    """Read on to an offset."""
    while stream.offset < start:
        if not stream.read(min(READ_BYTES, start - stream.offset)):
            raise InputError(f"{stream.path}: ends at byte {stream.offset:,} of its text, before {start:,}")


def _pass_line(stream: TextStream, size: int) -> tuple[int, bytes]:
    """Read to the end of a line of which `size` bytes are read; returns its size and what follows."""
    while piece := stream.read(READ_BYTES):
        end = piece.find(b"\n")
        if end >= 0:
            return size + end, piece[end + 1 :]
        size += len(piece)
    return size, b""
