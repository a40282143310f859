"""Compressed text as a stream: gzip with any number of members, zstd with any number of frames.

Arrow's streams are used because they refuse data that ends inside a frame; a reader that takes it for the
end of the file would make a corpus quietly short.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from prep.catalog.errors import InputError
from prep.readers import compression_of

if TYPE_CHECKING:
    from collections.abc import Iterator

CODECS = {".gz": "gzip", ".zst": "zstd"}


class TextStream:
    """The decompressed bytes of a file, read in pieces.

    Attributes:
        path: the file.
        offset: decompressed bytes handed out so far.
    """

    def __init__(self, path: str, raw: Any, stream: Any) -> None:
        self.path = path
        self.offset = 0
        self._raw = raw
        self._stream = stream

    def section(self, start: int, stop: int) -> TextStream:
        """The bytes [start, stop) of a file that is not compressed, as a stream that begins at 0."""
        return TextStream(self.path, self._raw, self._raw.get_stream(start, stop - start))

    @property
    def consumed(self) -> int:
        """Bytes of the file itself that have been read."""
        return int(self._raw.tell())

    def read(self, size: int) -> bytes:
        """The next bytes, at most `size` of them; empty at the end.

        Raises:
            InputError: the compressed data is damaged or ends too early.
        """
        try:
            data: bytes = self._stream.read(size)
        except OSError as error:
            raise InputError(
                f"{self.path}: damaged or incomplete compressed data near compressed byte "
                f"{self.consumed:,}, after {self.offset:,} bytes of text: {error}. "
                "Fetch or make the file again"
            ) from error
        self.offset += len(data)
        return data


@contextmanager
def open_text(path: str, size: int | None = None) -> Iterator[TextStream]:
    """Open a .gz or .zst file for its text, any other as it is.

    Args:
        path: the file.
        size: its size when it was listed; a cut between two gzip members shows in nothing else. None: any.

    Raises:
        InputError: it cannot be opened, has another size, or later, cannot be read.
    """
    suffix = compression_of(path)
    try:
        raw = pa.OSFile(path, "rb")
    except OSError as error:
        raise InputError(f"{path}: cannot be opened: {error}") from error
    with raw:
        found = raw.size()
        if size not in (None, found):
            raise InputError(f"{path}: expected {size:,} bytes as when it was listed, found {found:,}")
        if suffix is not None and found == 0:
            raise InputError(f"{path}: an empty file is no {CODECS[suffix]} data")
        if suffix is None:
            yield TextStream(path, raw, raw)
            return
        with pa.CompressedInputStream(raw, CODECS[suffix]) as stream:
            yield TextStream(path, raw, stream)
