"""Source files that exist only as lists, and the token blocks that the stages would make of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st

from prep.catalog.columns import list_array
from prep.catalog.schema import ShardLayout
from prep.config import validate
from prep.job import run_job
from prep.pipeline.messages import Position, Span, SpanResult
from prep.pipeline.tokenizer import DROP_SCHEMA, TokenBlock, block_schema
from prep.readers.block import LISTED, REASONS
from runtime.debug import DatasetInspector
from runtime.io import Dataset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from prep.pipeline.reorder import PlacedBlock

    Draw = Callable[[st.SearchStrategy[Any]], Any]

LINE_BYTES = 100
"""Where a row of a byte range begins: row times this."""


class Record(NamedTuple):
    """A row of a source file: a document, one that was left out, or a blank line.

    Attributes:
        reason: why it was left out; None for a document, "" for a blank line.
    """

    reason: str | None = None
    tokens: tuple[int, ...] = ()
    text_bytes: int = 1
    id: str | None = None
    kept: str | None = None
    flags: int = 0


class Piece(NamedTuple):
    """A span with the row it begins at and its rows."""

    span: Span
    begin: int
    records: list[Record]


class Item(NamedTuple):
    """A document or a record that was left out, in its final place."""

    file: int
    row: int
    record: Record


def _document(draw: st.DrawFn, largest: int) -> Record:
    return Record(
        None,
        tuple(range(draw(st.integers(0, largest)))),
        draw(st.integers(1, 30)),
        draw(st.none() | st.sampled_from(("id", "é"))),
        draw(st.none() | st.sampled_from(("", "kept", "漢"))),
        draw(st.sampled_from((0, 0, 0, 1, 2, 4, 5, 7))),
    )


@st.composite
def corpora(draw: st.DrawFn, largest: int = 12) -> Corpus:
    """A few files of a few rows each; some files and spans are empty."""
    kinds = st.sampled_from(("document",) * 5 + ("",) + REASONS)
    files = []
    for _ in range(draw(st.integers(1, 4))):
        rows = draw(st.lists(kinds, max_size=10))
        files.append([_document(draw, largest) if kind == "document" else Record(kind) for kind in rows])
    styles = [draw(st.sampled_from(("bytes", "lines", "rows"))) for _ in files]
    return Corpus(files, styles)


@dataclass
class Corpus:
    """Source files as lists of records."""

    files: list[list[Record]]
    styles: list[str]
    layout: ShardLayout = field(
        default_factory=lambda: ShardLayout("uint16", with_id=True, kept=(("k", pa.string()),))
    )

    @property
    def names(self) -> list[str]:
        return [f"folder/{number}.jsonl" for number in range(len(self.files))]

    @property
    def end(self) -> Position:
        return Position(file=len(self.files))

    def items(self) -> list[Item]:
        """What the stream holds, in order, as the shards and the ledger say it."""
        found = []
        for file, rows in enumerate(self.files):
            for row, record in enumerate(rows):
                if record.reason is None:
                    found.append(
                        Item(file, row, record._replace(id=record.id or f"{self.names[file]}#{row}"))
                    )
                elif record.reason:
                    found.append(Item(file, row, record))
        return found

    def blocks(self, draw: Draw, start: Position | None = None) -> list[TokenBlock]:
        """Token blocks of the files from a position on, cut anywhere."""
        start = start or Position()
        pieces: list[Piece] = []
        for file in range(start.file, len(self.files)):
            pieces += self._pieces(draw, file, start if file == start.file else Position(file))
        blocks = []
        while pieces:
            count = draw(st.integers(1, 4))
            blocks.append(self._block(pieces[:count]))
            pieces = pieces[count:]
        return blocks

    def _pieces(self, draw: Draw, file: int, start: Position) -> Iterator[Piece]:
        rows, style = self.files[file], self.styles[file]
        in_bytes = style != "rows"
        first = -(-start.start // LINE_BYTES) if in_bytes else start.start
        assert first == start.row, "a position names the row at its start"
        cuts = draw(st.lists(st.integers(first, len(rows)), max_size=5))
        offset = start.start
        for begin, stop in pairwise([first, *sorted(cuts), len(rows)]):
            # A range may end anywhere in the last of its lines.
            behind = (
                max(offset, stop * LINE_BYTES - draw(st.integers(0, LINE_BYTES - 1))) if in_bytes else stop
            )
            known = style == "rows" or (style == "bytes" and offset == start.start)
            span = Span(file, style, offset, behind, begin if known else -1, 1, behind)
            yield Piece(span, begin, rows[begin:stop])
            offset = behind

    def _block(self, pieces: Sequence[Piece]) -> TokenBlock:
        found = [
            (number, piece, row, record)
            for number, piece in enumerate(pieces)
            for row, record in enumerate(piece.records)
        ]
        documents = [(row, record) for _, _, row, record in found if record.reason is None]
        results = tuple(
            SpanResult(piece.span, len(piece.records), sum(record.reason is None for record in piece.records))
            for piece in pieces
        )
        sample = len(documents) // 2 if documents else -1
        text = repr(documents[sample][1].tokens).encode() if documents else b""
        drops = [
            (
                number,
                row,
                REASONS.index(record.reason),
                *_details(piece.span.file, piece.begin + row, record.reason),
            )
            for number, piece, row, record in found
            if record.reason
        ]
        return TokenBlock(results, self._documents(documents), _batch(drops), sample, text)

    def _documents(self, documents: Sequence[tuple[int, Record]]) -> pa.RecordBatch:
        schema = block_schema(self.layout)
        records = [record for _, record in documents]
        tokens = np.array([token for record in records for token in record.tokens], np.uint16)
        offsets = np.cumsum([0, *(len(record.tokens) for record in records)]).astype(np.int32)
        columns = [
            list_array(tokens, offsets, schema.field("tokens").type),
            pa.array([record.text_bytes for record in records], pa.uint32()),
            pa.array([row for row, _ in documents], pa.int64()),
            pa.array([record.flags for record in records], pa.uint8()),
            pa.array([record.id for record in records], pa.string()),
            pa.array([record.kept for record in records], pa.string()),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def _details(file: int, row: int, reason: str) -> tuple[int, str | None]:
    """Offset and message of a record that was left out; some reasons are only counted."""
    listed = REASONS.index(reason) < LISTED
    return (row * LINE_BYTES, f"file {file}, row {row}") if listed else (-1, None)


def _batch(drops: Sequence[tuple[int, int, int, int, str | None]]) -> pa.RecordBatch:
    columns = list(zip(*drops, strict=True)) or [()] * len(DROP_SCHEMA)
    arrays = [pa.array(values, kind.type) for values, kind in zip(columns, DROP_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=DROP_SCHEMA)


def placed_items(block: PlacedBlock) -> list[Item]:
    """Documents and drops of a block as one list, each drop in front of the document it comes before."""
    documents = []
    for row, flags in zip(block.documents.to_pylist(), block.flags.tolist(), strict=True):
        record = Record(None, tuple(row["tokens"]), row["text_bytes"], row["id"], row["k"], flags)
        documents.append(Item(row["source_file"], row["source_row"], record))
    found: list[Item] = []
    taken = 0
    for index in range(len(documents) + 1):
        while taken < len(block.drops) and block.drops.before[taken] <= index:
            drops = block.drops
            file, row, reason = (
                int(drops.file[taken]),
                int(drops.row[taken]),
                REASONS[int(drops.reason[taken])],
            )
            assert (int(drops.offset[taken]), drops.message[taken]) == _details(file, row, reason)
            found.append(Item(file, row, Record(reason)))
            taken += 1
        found += documents[index : index + 1]
    assert taken == len(block.drops)
    return found


class Model(NamedTuple):
    """What tests of the stream need, since test modules cannot import each other."""

    corpora: Callable[..., st.SearchStrategy[Corpus]]
    placed_items: Callable[[PlacedBlock], list[Item]]


@pytest.fixture(scope="session")
def stream_model() -> Model:
    return Model(corpora, placed_items)


@pytest.fixture(scope="session")
def catalogs(tmp_path_factory: pytest.TempPathFactory, tokenizer_json: Path) -> dict[str, Path]:
    """Three small catalogs: one of many short documents with empty ones, one of long ones, one compressed."""
    folder = tmp_path_factory.mktemp("catalogs")
    texts = {
        "short": [" ".join(["fox"] * (row % 4)) for row in range(60)],
        "long": ["the quick brown fox " * (3 + row * 3 % 20) for row in range(15)],
        "packed": ["lazy dog 東京 " * (row % 9) for row in range(30)],
    }
    for name, rows in texts.items():
        lines = "".join(f'{{"text": "{text}"}}\n' for text in rows)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
        config = {
            "name": name,
            "source": {"paths": str(folder / f"{name}.jsonl")},
            "tokenizer": {"path": str(tokenizer_json), "add_eos": name == "long"},
            "processing": {"workers": 0, "on_empty": "keep"},
            "output": {
                "path": str(folder / name),
                "shard_size": 1024,
                "compression": "zstd" if name == "packed" else "none",
            },
        }
        run_job(validate(config))
    return {name: folder / name for name in texts}


@pytest.fixture(scope="session")
def documents(catalogs: dict[str, Path]) -> dict[str, dict[tuple[int, int], list[int]]]:
    """The ids of every document, by dataset, shard and row."""
    found = {}
    for name, path in catalogs.items():
        dataset = Dataset.from_path(name, str(path))
        with DatasetInspector(dataset) as inspector:
            found[name] = {
                (shard, row): inspector.read(shard, row)["tokens"].tolist()
                for shard, count in enumerate(dataset.counts().tolist())
                for row in range(count)
            }
    return found
