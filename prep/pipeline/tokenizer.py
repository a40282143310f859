"""The tokenizing stage: a unit's documents to a block of ids."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from prep.catalog.columns import fixed_array, list_array
from prep.catalog.errors import InputError, WorkerError
from prep.pipeline.messages import SpanResult
from prep.pipeline.reader import read_span
from prep.readers.block import FLAG_CONTROL_TEXT, REASONS, Drop, RecordError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from prep.catalog.schema import ShardLayout
    from prep.pipeline.channel import Payload
    from prep.pipeline.messages import Span, Unit
    from prep.pipeline.settings import StageSettings
    from prep.readers.block import Documents
    from prep.tokenizers.boundaries import Boundaries
    from prep.tokenizers.protocol import Encoded, Encoder

SAMPLE_BYTES = 16 << 10
LARGEST_SAMPLE = 1 << 20

DROP_SCHEMA = pa.schema(
    [
        pa.field("span", pa.int32()),
        pa.field("row", pa.int64()),
        pa.field("reason", pa.uint8()),
        pa.field("offset", pa.int64()),
        pa.field("message", pa.string()),
    ]
)
"""Records that were left out; `message` is null where they are only counted."""


def block_schema(layout: ShardLayout) -> pa.Schema:
    """The columns of a token block on its way to the writer: rows still count from their span."""
    fields = [
        pa.field("tokens", pa.list_(pa.field("item", layout.token_type, nullable=False)), nullable=False),
        pa.field("text_bytes", pa.uint32(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        pa.field("flags", pa.uint8(), nullable=False),
    ]
    if layout.with_id:
        fields.append(pa.field("id", pa.string()))
    return pa.schema(fields + [pa.field(name, kind) for name, kind in layout.kept])


class TokenBlock(NamedTuple):
    """What becomes of a unit.

    Attributes:
        results: what became of each span.
        documents: rows of `block_schema`.
        drops: rows of DROP_SCHEMA.
        sample: index of a document to check, or -1.
        sample_text: its text.
    """

    results: tuple[SpanResult, ...]
    documents: pa.RecordBatch
    drops: pa.RecordBatch
    sample: int
    sample_text: bytes


class SpanError(InputError):
    """A span that cannot be read; carries the span and, if one record is at fault, that record."""

    def __init__(self, span: Span, drop: Drop | None, message: str) -> None:
        super().__init__(message)
        self.span = span
        self.drop = drop


class TokenStage:
    """Reads and encodes units.

    Args:
        encoder: the backend.
        settings: what the job wants.
        turn: gives the context in which very large documents are encoded.
    """

    def __init__(
        self,
        encoder: Encoder,
        settings: StageSettings,
        turn: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._encoder = encoder
        self._settings = settings
        self._turn = turn
        self._schema = block_schema(settings.layout)
        self._finder = ControlTextFinder(settings.control_tokens)

    def run(self, unit: Unit, payload: Payload | None) -> TokenBlock:
        """Read and encode a unit.

        Raises:
            SpanError: a span cannot be read, or a record is refused.
            WorkerError: the encoder failed or gave an id outside the vocabulary.
        """
        pieces: list[Documents] = []
        results: list[SpanResult] = []
        drops: list[tuple[int, Drop]] = []
        for number, (span, file) in enumerate(zip(unit.spans, unit.files, strict=True)):
            try:
                documents = read_span(span, file, payload, self._settings.read)
                self._mark_control_text(documents)
            except RecordError as error:
                raise SpanError(span, error.drop, error.drop.message) from error
            except InputError as error:
                raise SpanError(span, None, str(error)) from error
            filtered = _filter(documents, self._settings)
            drops += [(number, drop) for drop in sorted(documents.drops + filtered)]
            pieces.append(documents)
            results.append(SpanResult(span, documents.rows, len(documents)))
        texts = pieces[0].texts if len(pieces) == 1 else [text for piece in pieces for text in piece.texts]
        block = self._block(texts, pieces)
        sample = _choose_sample(block)
        sample_text = texts[sample].encode() if sample >= 0 else b""
        return TokenBlock(tuple(results), block, _drop_batch(drops), sample, sample_text)

    def _mark_control_text(self, documents: Documents) -> None:
        found = self._finder.find(documents.texts)
        if not len(found):
            return
        documents.flags[found] |= FLAG_CONTROL_TEXT
        if self._settings.control_policy == "error":
            row = int(documents.row[found[0]])
            message = "the text spells a control token (tokenizer.control_tokens_in_text is error)"
            raise RecordError(Drop(row, "control_text", -1, message))

    def _block(self, texts: list[str], pieces: Sequence[Documents]) -> pa.RecordBatch:
        settings = self._settings
        lengths = np.concatenate([documents.text_bytes for documents in pieces])
        large = settings.large_bytes is not None and bool((lengths > settings.large_bytes).any())
        with self._turn() if large else nullcontext():
            encoded = self._encoder.encode(texts)
        dtype = np.dtype(settings.layout.token_dtype)
        ids, offsets = add_boundaries(encoded, settings.boundaries, dtype)
        columns = [
            list_array(ids, offsets, self._schema.field("tokens").type),
            fixed_array(lengths.astype(np.uint32), pa.uint32()),
            fixed_array(np.concatenate([documents.row for documents in pieces]), pa.int64()),
            fixed_array(np.concatenate([documents.flags for documents in pieces]), pa.uint8()),
        ]
        if settings.layout.with_id:
            columns.append(_joined([documents.ids for documents in pieces]))
        columns += [
            _joined([documents.kept[position] for documents in pieces])
            for position in range(len(settings.layout.kept))
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _joined(arrays: Sequence[pa.Array | None]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def add_boundaries(
    encoded: Encoded, boundaries: Boundaries, dtype: np.dtype[np.unsignedinteger[Any]]
) -> tuple[NDArray[np.unsignedinteger[Any]], NDArray[np.int32]]:
    """Put BOS and EOS around each text's ids and narrow them.

    Returns:
        (ids, offsets): ids of `dtype`, shape (offsets[-1],); int32 offsets of shape (texts + 1,).

    Raises:
        WorkerError: an id that `dtype` cannot hold.
    """
    ids, count = encoded.ids, boundaries.count
    if len(ids) and int(ids.max()) > np.iinfo(dtype).max:
        raise WorkerError(f"the encoder gave the id {int(ids.max())}, which {dtype} cannot hold")
    texts = len(encoded.offsets) - 1
    offsets = encoded.offsets + count * np.arange(texts + 1, dtype=np.int64)
    if not count:
        return ids.astype(dtype), offsets.astype(np.int32)
    flat = np.empty(int(offsets[-1]), dtype)
    inside = np.ones(len(flat), bool)
    if boundaries.bos_id is not None:
        flat[offsets[:-1]] = boundaries.bos_id
        inside[offsets[:-1]] = False
    if boundaries.eos_id is not None:
        flat[offsets[1:] - 1] = boundaries.eos_id
        inside[offsets[1:] - 1] = False
    flat[inside] = ids
    return flat, offsets.astype(np.int32)


def _filter(documents: Documents, settings: StageSettings) -> list[Drop]:
    """Take out what is empty, too short or too long."""
    lengths = documents.text_bytes
    reason = np.full(len(lengths), -1, np.int8)
    if settings.max_bytes is not None:
        reason[lengths > settings.max_bytes] = REASONS.index("too_long")
    if settings.min_bytes:
        reason[lengths < settings.min_bytes] = REASONS.index("too_short")
    if settings.on_empty == "skip":
        reason[lengths == 0] = REASONS.index("empty")
    out = reason >= 0
    if not out.any():
        return []
    drops = [
        Drop(row, REASONS[code])
        for row, code in zip(documents.row[out].tolist(), reason[out].tolist(), strict=True)
    ]
    mask = pa.array((~out).tolist(), pa.bool_())
    documents.row = documents.row[~out]
    documents.flags = documents.flags[~out]
    documents.text_bytes = lengths[~out]
    documents.texts = [text for text, gone in zip(documents.texts, out.tolist(), strict=True) if not gone]
    documents.ids = None if documents.ids is None else documents.ids.filter(mask)
    documents.kept = [column.filter(mask) for column in documents.kept]
    return drops


def _drop_batch(drops: Sequence[tuple[int, Drop]]) -> pa.RecordBatch:
    columns = [
        [number for number, _ in drops],
        [drop.row for _, drop in drops],
        [REASONS.index(drop.reason) for _, drop in drops],
        [drop.offset for _, drop in drops],
        [drop.message or None for _, drop in drops],
    ]
    return pa.RecordBatch.from_arrays(
        [pa.array(values, field.type) for values, field in zip(columns, DROP_SCHEMA, strict=True)],
        schema=DROP_SCHEMA,
    )


def _choose_sample(block: pa.RecordBatch) -> int:
    """A document for the check: the longest of moderate size, else the shortest, if it is not too large."""
    lengths = block.column("text_bytes").to_numpy()
    if not len(lengths):
        return -1
    moderate = np.where(lengths <= SAMPLE_BYTES, lengths, 0)
    chosen = int(moderate.argmax()) if moderate.any() else int(lengths.argmin())
    return chosen if lengths[chosen] <= LARGEST_SAMPLE else -1


class ControlTextFinder:
    """Finds texts that spell a control token.

    Nearly no text holds any, so texts are first searched for what the tokens begin with.
    """

    def __init__(self, tokens: Sequence[str]) -> None:
        self._tokens = [token for token in tokens if token]
        groups: dict[str, list[str]] = {}
        for token in self._tokens:
            groups.setdefault(token[:2], []).append(token)
        self._needles = [_common_prefix(group) for group in groups.values()]

    def find(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Indices of the texts that spell a control token, ascending."""
        found: set[int] = set()
        for needle in self._needles:
            found.update(index for index, text in enumerate(texts) if needle in text)
        return np.array(sorted(index for index in found if self._spells(texts[index])), np.int64)

    def _spells(self, text: str) -> bool:
        return any(token in text for token in self._tokens)


def _common_prefix(tokens: Sequence[str]) -> str:
    first, last = min(tokens), max(tokens)
    length = 0
    while length < len(first) and length < len(last) and first[length] == last[length]:
        length += 1
    return first[:length]
