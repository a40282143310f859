"""Where the tokens of a batch come from."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from runtime.debug import DatasetInspector

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runtime.blocks import Block
    from runtime.io import Dataset


class Origin(NamedTuple):
    """A piece of a row.

    Attributes:
        dataset: its name.
        source_file: as the catalog names it; of raw data its path; None where the dataset has no files.
        source_row: the row, or physical line, of that file, from 0.
        first_token, stop_token: which tokens of the document. Of a record whose tokens an operator made or
            changed: of what it made.
        shard_id, sample_idx: where the document lies in its dataset.
    """

    dataset: str
    source_file: str | None
    source_row: int
    first_token: int
    stop_token: int
    shard_id: int
    sample_idx: int


def origins(block: Block, lengths: list[int], datasets: Mapping[int, Dataset]) -> list[list[Origin]]:
    """The pieces of each row, in order; padding is none.

    Args:
        block: the rows.
        lengths: tokens of each piece.
        datasets: by the id that samples carry.
    """
    pieces = block.pieces
    samples = [tuple(each) for each in pieces.sample.tolist()]
    wanted: dict[tuple[int, int], set[int]] = defaultdict(set)
    for dataset, shard, sample in samples:
        wanted[dataset, shard].add(sample)
    files: dict[tuple[int, int, int], tuple[str | None, int]] = {}
    for (number, shard), rows in wanted.items():
        for sample, file in zip(sorted(rows), _files(datasets[number], shard, sorted(rows)), strict=True):
            files[number, shard, sample] = file
    found = [
        Origin(datasets[sample[0]].name, *files[sample], start, start + length, sample[1], sample[2])
        for sample, start, length in zip(samples, pieces.start.tolist(), lengths, strict=True)
    ]
    edges = range(len(block) + 1) if block.rows is None else block.rows.tolist()
    return [found[edges[row] : edges[row + 1]] for row in range(len(block))]


def _files(dataset: Dataset, shard: int, rows: list[int]) -> list[tuple[str | None, int]]:
    """The file and the row in it of each row of a shard."""
    if dataset.kind == "tokens":
        with DatasetInspector(dataset) as inspector:
            found = inspector.read_many(shard, rows)
        return [(each["source"], int(each["source_row"])) for each in found]
    name = str(dataset.shard_file(shard)) if dataset.kind == "raw" else None
    return [(name, row) for row in rows]
