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
def open_text(path: str) -> Iterator[TextStream]:
    """Open a .gz or .zst file for its text, any other as it is.

    Raises:
        InputError: it cannot be opened, or later, read.
    """
    try:
        raw = pa.OSFile(path, "rb")
    except OSError as error:
        raise InputError(f"{path}: cannot be opened: {error}") from error
    with raw:
        suffix = compression_of(path)
        if suffix is None:
            yield TextStream(path, raw, raw)
            return
        with pa.CompressedInputStream(raw, CODECS[suffix]) as stream:
            yield TextStream(path, raw, stream)
