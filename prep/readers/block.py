"""What every reader gives: a block of documents as columns, and the records it had to leave out."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from prep.catalog.errors import InputError
from prep.catalog.schema import byte_lengths

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

REASONS = (
    "bad_record",
    "missing_text",
    "bad_text",
    "too_large",
    "empty",
    "too_short",
    "too_long",
)
"""Why a record was left out. The first four are faults and are listed one by one; the rest are counted."""

LONE_SURROGATE = re.compile("[\ud800-\udfff]")

LISTED = 4
"""How many of REASONS are listed one by one."""

FLAG_SURROGATES = 1
"""The text had lone surrogates, now U+FFFD."""
FLAG_INVALID_UTF8 = 2
"""The text had bytes that are not UTF-8, now U+FFFD."""
FLAG_CONTROL_TEXT = 4
"""The text spells a control token."""


@dataclass(frozen=True)
class ReadOptions:
    """Which columns a reader takes and what it does about records that are not as they should be.

    Attributes:
        text_field: the field that holds the text.
        id_field: the field that holds a document's id, or None.
        kept: further fields, name to the Arrow type that the shards give it.
        declared: the names of kept fields whose type the configuration declares.
        text_mode: for text files, "file" or "line".
        max_record_bytes: records above this size are refused unread.
    """

    text_field: str = "text"
    id_field: str | None = None
    kept: tuple[tuple[str, pa.DataType], ...] = ()
    declared: frozenset[str] = frozenset()
    text_mode: Literal["file", "line"] = "file"
    on_bad_record: Literal["error", "skip"] = "error"
    on_bad_text: Literal["error", "replace", "skip"] = "error"
    max_record_bytes: int = 256 << 20

    @property
    def columns(self) -> list[str]:
        """The fields to read, each once."""
        extra = [] if self.id_field is None else [self.id_field]
        return list(dict.fromkeys([self.text_field, *extra, *(name for name, _ in self.kept)]))


class Drop(NamedTuple):
    """A record that was left out.

    Attributes:
        row: row in the span, from 0.
        reason: one of REASONS.
        offset: byte offset in the file (decompressed), or -1.
        message: what was found.
    """

    row: int
    reason: str
    offset: int = -1
    message: str = ""


class RecordError(InputError):
    """A record that the policies refuse; its row counts from the first row of the span that was read."""

    def __init__(self, drop: Drop) -> None:
        super().__init__(drop.message)
        self.drop = drop

    def __reduce__(self) -> tuple[type[RecordError], tuple[Drop]]:
        return RecordError, (self.drop,)


@dataclass
class Documents:
    """The documents of one span of one file, in order.

    Attributes:
        rows: how many rows or physical lines the span holds, documents or not.
        row: row of each document in the span, int64 of shape (documents,), ascending.
        texts: the texts, without lone surrogates. Every encoder takes Python strings, so that is what
            readers make.
        text_bytes: length of each text in UTF-8, int64 of shape (documents,).
        ids: the ids as strings, null where missing; None without `id_field`.
        kept: the kept fields in the order of the options.
        drops: records that were left out by a fault.
        flags: bits FLAG_... of each document, uint8 of shape (documents,).
    """

    rows: int
    row: NDArray[np.int64]
    texts: list[str]
    text_bytes: NDArray[np.int64]
    ids: pa.Array | None = None
    kept: list[pa.Array] = field(default_factory=list)
    drops: list[Drop] = field(default_factory=list)
    flags: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))

    def __post_init__(self) -> None:
        if not len(self.flags):
            self.flags = np.zeros(len(self.row), np.uint8)

    def __len__(self) -> int:
        return len(self.row)

    @property
    def text(self) -> pa.Array:
        return pa.array(self.texts, pa.string())


class Collector:
    """Gathers documents one by one, where records have to be looked at singly."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self._rows: list[int] = []
        self._texts: list[str] = []
        self._ids: list[str | None] = []
        self._kept: list[list[object]] = [[] for _ in options.kept]
        self._drops: list[Drop] = []
        self._flags: list[int] = []

    def add(
        self, row: int, text: str, identifier: str | None = None, kept: Sequence[object] = (), flags: int = 0
    ) -> None:
        self._rows.append(row)
        self._flags.append(flags)
        self._texts.append(text)
        self._ids.append(identifier)
        for column, value in zip(self._kept, kept, strict=True):
            column.append(value)

    def fault(self, row: int, reason: str, message: str, offset: int = -1) -> None:
        """Leave a record out, or raise where the policy for its reason is "error".

        Raises:
            RecordError: the policy does not allow to skip this record.
        """
        policy = self.options.on_bad_text if reason == "bad_text" else self.options.on_bad_record
        drop = Drop(row, reason, offset, message)
        if policy == "error":
            raise RecordError(drop)
        self._drops.append(drop)

    def documents(self, rows: int) -> Documents:
        options = self.options
        return Documents(
            rows=rows,
            row=np.array(self._rows, np.int64),
            texts=self._texts,
            text_bytes=utf8_lengths(self._texts),
            ids=None if options.id_field is None else pa.array(self._ids, pa.string()),
            kept=[pa.array(values, kind) for values, (_, kind) in zip(self._kept, options.kept, strict=True)],
            drops=self._drops,
            flags=np.array(self._flags, np.uint8),
        )


def utf8_lengths(texts: Sequence[str]) -> NDArray[np.int64]:
    """The length of each text in UTF-8: int64 of shape (len(texts),)."""
    lengths = np.array([len(text) for text in texts], np.int64)
    wide = [index for index, text in enumerate(texts) if not text.isascii()]
    if wide:
        # Arrow has Python keep the UTF-8 form inside each string, where the encoders find it again.
        lengths[wide] = byte_lengths(pa.array([texts[index] for index in wide], pa.string()))
    return lengths


def repair_surrogates(text: str) -> str | None:
    """The text with U+FFFD for each lone surrogate, or None if it has none."""
    return LONE_SURROGATE.sub("\ufffd", text) if LONE_SURROGATE.search(text) else None
