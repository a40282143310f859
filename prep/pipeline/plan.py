"""From source files to work: units that can be split off, and streams that one reader has to read.

How files are cut decides speed only: a byte range owns the lines that begin in it, rows get their numbers
in the reorder stage, and shards are cut from the document stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from prep.pipeline.messages import LocalFile, Position, Span, StreamRequest, Unit
from prep.readers import compression_of, json_array, parquet

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from prep.readers.block import ReadOptions
    from prep.sources.listing import SourceFile

STREAM_FACTOR = 4
"""Row groups of more than so many blocks are read by a reader process, so that all tokenizers share them."""

MAX_SPANS = 256
"""Spans in a unit, so that its message stays small."""


def is_stream(file: SourceFile, options: ReadOptions, batch_bytes: int) -> bool:
    """Whether a reader process will read a file; a remote Parquet file is taken for one that can be split.

    Raises:
        InputError: it is a damaged Parquet file.
    """
    if file.format == "parquet":
        return file.is_local and _has_large_groups(parquet.row_groups(file.location, options), batch_bytes)
    return file.format == "arrow" or compression_of(file.name) is not None


def _has_large_groups(groups: Sequence[parquet.RowGroup], batch_bytes: int) -> bool:
    return any(group.nbytes > STREAM_FACTOR * batch_bytes for group in groups)


class Paths(Protocol):
    """Where source files lie on local disk."""

    def local_path(self, file_idx: int) -> str | None:
        """The path, or None as long as the file is not there."""

    def wait(self, seconds: float) -> None:
        """Wait until another file may be there."""

    def release_before(self, file_idx: int) -> None:
        """Nobody needs the files in front of this one any more."""


class Feed:
    """Hands out work in the order of the document stream.

    Args:
        files: the source list.
        start: where to begin.
        options: columns and record policies.
        batch_bytes: about the size of a unit.
        paths: tells where a file lies.
    """

    def __init__(
        self,
        files: Sequence[SourceFile],
        start: Position,
        options: ReadOptions,
        batch_bytes: int,
        paths: Paths,
    ) -> None:
        self._files = files
        self._start = start
        self._options = options
        self._batch_bytes = batch_bytes
        self._paths = paths
        self._next_file = start.file
        self._pieces: Iterator[Span | StreamRequest] | None = None
        self._local = LocalFile("", 0, "")
        self._held: Span | StreamRequest | None = None

    @property
    def finished(self) -> bool:
        """Whether all work has been handed out."""
        return self._held is None and self._pieces is None and self._next_file >= len(self._files)

    def wait(self, seconds: float) -> None:
        """Wait until the next file may be there; nothing that was handed out may be unread."""
        self._paths.release_before(self._next_file)
        self._paths.wait(seconds)

    def next(self) -> Unit | StreamRequest | None:
        """The next work, or None: the next file is not there yet, or `finished`."""
        spans: list[Span] = []
        files: list[LocalFile] = []
        size = 0
        while size < self._batch_bytes and len(spans) < MAX_SPANS:
            piece = self._next_piece()
            if piece is None or isinstance(piece, StreamRequest):
                if not spans:
                    return piece
                self._held = piece
                break
            if spans and size + piece.nbytes > self._batch_bytes:
                self._held = piece
                break
            spans.append(piece)
            files.append(self._local)
            size += piece.nbytes
        return Unit(tuple(spans), tuple(files))

    def _next_piece(self) -> Span | StreamRequest | None:
        """The next span or stream, or None: no more for now."""
        if self._held is not None:
            held, self._held = self._held, None
            return held
        while True:
            if self._pieces is not None:
                for piece in self._pieces:
                    return piece
                self._pieces = None
                self._next_file += 1
            if self._next_file >= len(self._files):
                return None
            path = self._paths.local_path(self._next_file)
            if path is None:
                return None
            source = self._files[self._next_file]
            self._local = LocalFile(path, source.size, source.format)
            first = self._next_file == self._start.file
            begin = (self._start.start, self._start.row) if first else (0, 0)
            self._pieces = self._split(self._next_file, self._local, *begin)

    def _split(self, index: int, file: LocalFile, start: int, row: int) -> Iterator[Span | StreamRequest]:
        compressed = compression_of(file.path)
        if file.format == "txt" and self._options.text_mode == "file":
            if start == 0:
                yield Span(index, "file", 0, 1, 0, file.size, file.size)
        elif file.format == "parquet":
            yield from self._split_groups(index, file, start)
        elif (
            file.format == "arrow"
            or compressed
            or (file.format == "json" and json_array.holds_array(file.path, file.size))
        ):
            yield StreamRequest(index, file, start)
        else:
            yield from self._split_bytes(index, file, start, row)

    def _split_bytes(self, index: int, file: LocalFile, start: int, row: int) -> Iterator[Span]:
        for begin in range(start, file.size, self._batch_bytes):
            stop = min(begin + self._batch_bytes, file.size)
            yield Span(index, "bytes", begin, stop, row if begin == start else -1, stop - begin, stop)

    def _split_groups(self, index: int, file: LocalFile, start: int) -> Iterator[Span | StreamRequest]:
        groups = parquet.row_groups(file.path, self._options)
        if _has_large_groups(groups, self._batch_bytes):
            yield StreamRequest(index, file, start)
            return
        rows = max(1, groups[-1].first_row + groups[-1].rows) if groups else 1
        begin, size = None, 0
        for number, group in enumerate(groups):
            if group.first_row + group.rows <= start:
                continue
            if begin is not None and size + group.nbytes > self._batch_bytes:
                done = file.size * group.first_row // rows
                yield Span(index, "groups", begin, number, groups[begin].first_row, size, done)
                begin, size = None, 0
            begin = number if begin is None else begin
            size += group.nbytes
        if begin is not None:
            yield Span(index, "groups", begin, len(groups), groups[begin].first_row, size, file.size)
