"""What the stages say to each other. Bulk data rides beside a message as a payload (see `channel`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from prep.pipeline.settings import EncoderSettings, StageSettings
    from prep.readers.block import Drop


class Position(NamedTuple):
    """A place in the document stream: the next document to write, and where to begin reading for it.

    Attributes:
        file: index in the source list.
        start: where reading begins in that file: a byte offset of its text, or a row.
        row: number of the row or line at `start`.
        next_row: rows of that file before this one are done.
        block: index of the shuffle block that begins here; 0 without document shuffling.
        skip: documents of that shuffle block, in shuffled order, that are done.
    """

    file: int = 0
    start: int = 0
    row: int = 0
    next_row: int = 0
    block: int = 0
    skip: int = 0


class Span(NamedTuple):
    """A piece of a source file.

    Attributes:
        file: index in the source list.
        kind: what `start` and `stop` count, and where the data is. "bytes": the lines that begin in a byte
            range, "groups": row groups, "file": the whole file, each read where they are tokenized.
            "lines": bytes of text, "elements": array elements as lines, "rows": rows of a table, each in
            the unit's payload. "oversized": one line that was passed over unread.
        start: first byte, row group, element or row.
        stop: one behind the last.
        row: number of the first row; -1 where only the reorder stage knows it.
        nbytes: about how much it is to hold.
        done: about how many bytes of the source file are done with it; 0 where nobody knows.
    """

    file: int
    kind: str
    start: int
    stop: int
    row: int
    nbytes: int
    done: int = 0

    @property
    def anchor(self) -> int:
        """Where reading this span begins again, see `Position.start`."""
        return self.start if self.kind in ("bytes", "lines", "oversized") else self.row


class DownloaderMessage(NamedTuple):
    """A source file is on local disk."""

    file_idx: int
    file_path: str


class LocalFile(NamedTuple):
    """A source file as the stages open it: local path, size when it was listed, reader's name."""

    path: str
    size: int
    format: str


class Unit(NamedTuple):
    """What one tokenizer call does: spans in order, with the file of each."""

    spans: tuple[Span, ...]
    files: tuple[LocalFile, ...]

    @property
    def nbytes(self) -> int:
        """About how much it is to hold."""
        return sum(span.nbytes for span in self.spans)


class StreamRequest(NamedTuple):
    """A file that one reader has to read from one end to the other.

    Attributes:
        file_idx: index in the source list.
        file: the file.
        start: where to begin, in the unit of the spans that come.
    """

    file_idx: int
    file: LocalFile
    start: int


class ReaderMessage(NamedTuple):
    """A block of a stream; its bytes or rows are the payload."""

    span: Span


class StreamEnd(NamedTuple):
    """A reader has come to the end of its file."""


class SpanResult(NamedTuple):
    """What became of a span: its rows or lines, and how many of them are documents in the block."""

    span: Span
    rows: int
    documents: int


class TokenizedMessage(NamedTuple):
    """A unit's documents as ids; the payload holds the block, the drops and the sample.

    Attributes:
        number: the unit's number in its process's queue.
        results: one for each span, in order.
        sample: index of the document whose text rides along to be checked, or -1.
    """

    number: int
    results: tuple[SpanResult, ...]
    sample: int = -1


class Failed(NamedTuple):
    """A unit or a stream that could not be read or encoded.

    Attributes:
        span: where it happened.
        drop: the record, if it is one record's fault.
        message: what happened otherwise.
        kind: "input" or "worker".
    """

    span: Span
    drop: Drop | None
    message: str
    kind: str


class Load(NamedTuple):
    """How a tokenizer process makes its encoder; the tokenizer itself is the payload."""

    settings: EncoderSettings


class Ready(NamedTuple):
    """A tokenizer process has loaded its backend.

    Attributes:
        probe_ids: the ids it gives to the probes.
        error: why the backend cannot be used, or "".
    """

    probe_ids: list[list[int]]
    error: str = ""


class Configure(NamedTuple):
    """The settings of a process's stage; comes before its first work."""

    settings: StageSettings


class Task(NamedTuple):
    """A unit to tokenize; a payload rides along if a reader has read it."""

    number: int
    unit: Unit


class WantsTurn(NamedTuple):
    """A tokenizer asks to encode a very large document; one does at a time."""


class TakeTurn(NamedTuple):
    """The answer to WantsTurn."""


class Credit(NamedTuple):
    """A reader may send so many more blocks."""

    blocks: int


Message = Any
"""One of the above."""
