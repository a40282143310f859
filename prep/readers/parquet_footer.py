"""What a Parquet footer says of a column of texts and pyarrow does not hand on: their bytes, unencoded.

Writers since version 2.10 of the format record the exact number; with it the pages need not be decoded to
count text. The footer is a Thrift struct in the compact protocol, of which this reads just enough.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

MAGIC = b"PAR1"
TAIL = struct.Struct("<I4s")

ROW_GROUPS = 4
"""Field of FileMetaData."""
COLUMNS = 1
"""Field of RowGroup."""
META_DATA = 3
"""Field of ColumnChunk."""
PATH_IN_SCHEMA, SIZE_STATISTICS = 3, 16
"""Fields of ColumnMetaData."""
UNENCODED_BYTES = 1
"""Field of SizeStatistics."""


def unencoded_bytes(path: str, column: str) -> list[int] | None:
    """The bytes of a top-level column's values in each row group; None where one is not recorded.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        footer = _Compact(_footer(path)).struct()
        sizes: list[int] = []
        for group in footer[ROW_GROUPS]:
            chunks = [chunk[META_DATA] for chunk in group[COLUMNS]]
            own = next(chunk for chunk in chunks if chunk[PATH_IN_SCHEMA] == [column.encode()])
            sizes.append(own[SIZE_STATISTICS][UNENCODED_BYTES])
    except (LookupError, TypeError, ValueError, StopIteration, RecursionError, struct.error):
        return None
    return sizes


def _footer(path: str) -> bytes:
    with Path(path).open("rb") as stream:
        end = stream.seek(-TAIL.size, 2)
        size, magic = TAIL.unpack(stream.read())
        if magic != MAGIC or size > end:
            raise ValueError("no plain footer")
        stream.seek(end - size)
        return stream.read(size)


TRUE, FALSE = 1, 2
"""Kinds of a field that has no further bytes; in a list such a value is a byte."""
LONG_LIST = 15
"""Stands for a count that follows."""


class _Compact:
    """Values of Thrift's compact protocol: structs as mappings of field numbers."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._place = 0

    def struct(self) -> dict[int, Any]:
        fields: dict[int, Any] = {}
        number = 0
        while (head := self._byte()) != 0:
            number = number + (head >> 4) if head >> 4 else self._integer()
            kind = head & 15
            fields[number] = kind == TRUE if kind in (TRUE, FALSE) else self._value(kind)
        return fields

    def _value(self, kind: int) -> Any:
        match kind:
            case 4 | 5 | 6:
                return self._integer()
            case 8:
                return self._take(self._varint())
            case 9 | 10:
                return self._list()
            case 11:
                return self._map()
            case 12:
                return self.struct()
            case _:
                return self._take({TRUE: 1, FALSE: 1, 3: 1, 7: 8}[kind])

    def _list(self) -> list[Any]:
        head = self._byte()
        count = head >> 4 if head >> 4 != LONG_LIST else self._varint()
        return [self._value(head & 15) for _ in range(count)]

    def _map(self) -> dict[Any, Any]:
        count = self._varint()
        kinds = self._byte() if count else 0
        return {self._value(kinds >> 4): self._value(kinds & 15) for _ in range(count)}

    def _integer(self) -> int:
        """A signed number in zigzag form."""
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _varint(self) -> int:
        value = shift = 0
        while (byte := self._byte()) & 128:
            value |= (byte & 127) << shift
            shift += 7
        return value | byte << shift

    def _byte(self) -> int:
        byte = self._data[self._place]
        self._place += 1
        return byte

    def _take(self, size: int) -> bytes:
        data = self._data[self._place : self._place + size]
        if len(data) < size:
            raise ValueError("the footer ends early")
        self._place += size
        return data
