"""Small placed blocks for the stages behind the tokenizers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
import pytest

from prep.catalog.columns import list_array
from prep.catalog.schema import ShardLayout
from prep.pipeline.messages import Position
from prep.pipeline.reorder import DropTable, PlacedBlock
from prep.readers.block import REASONS

if TYPE_CHECKING:
    from collections.abc import Sequence

LAYOUT = ShardLayout("uint16", with_id=False)


class Place(Protocol):
    """The type of the fixture `place`."""

    def __call__(
        self,
        lengths: Sequence[int],
        drops: Sequence[tuple[int, str]] = (),
        *,
        file: int = 0,
        row: int = 0,
        text_bytes: int = 1,
    ) -> PlacedBlock: ...


@pytest.fixture
def layout() -> ShardLayout:
    return LAYOUT


@pytest.fixture
def place() -> Place:
    """A block of documents of so many tokens in rows from `row` on.

    Drops are given as (how many documents come before, reason).
    """

    def place(
        lengths: Sequence[int],
        drops: Sequence[tuple[int, str]] = (),
        *,
        file: int = 0,
        row: int = 0,
        text_bytes: int = 1,
    ) -> PlacedBlock:
        schema, count = LAYOUT.schema(), len(lengths)
        offsets = np.cumsum([0, *lengths]).astype(np.int32)
        tokens = np.concatenate([np.zeros(0), *(np.arange(length) for length in lengths)]).astype(np.uint16)
        columns = [
            list_array(tokens, offsets, schema.field("tokens").type),
            pa.array([text_bytes] * count, pa.uint32()),
            pa.array([file] * count, pa.uint32()),
            pa.array(range(row, row + count), pa.uint64()),
        ]
        table = DropTable(
            np.full(len(drops), file),
            np.array([row + 1000 + number for number in range(len(drops))], np.int64),
            np.array([REASONS.index(reason) for _, reason in drops], np.uint8),
            np.full(len(drops), -1),
            [f"what was found {number}" for number in range(len(drops))],
            np.array([before for before, _ in drops], np.int64),
        )
        documents = pa.RecordBatch.from_arrays(columns, schema=schema)
        return PlacedBlock(documents, np.zeros(count, np.uint8), table, [(0, Position(file, row, row, row))])

    return place
