"""The writing stage: cuts, ledger and restart, against lists."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from prep.catalog.shard import checksum_file
from prep.journal import Entry, Journal
from prep.pipeline.messages import Position
from prep.pipeline.reorder import Reorder
from prep.pipeline.shuffle import BlockShuffle
from prep.pipeline.writer import FLAG_NAMES, ShardSettings, Writer
from prep.readers.block import LISTED, REASONS
from prep.tokenizers.boundaries import Boundaries

if TYPE_CHECKING:
    from collections.abc import Sequence

FIXED_BYTES = 4 + 4 + 4 + 8 + 4 + 4
"""Of a row: three offsets, text_bytes, source_file, source_row."""


few = settings(max_examples=40, deadline=None, phases=(Phase.explicit, Phase.generate))


class Setting(NamedTuple):
    shard_size: int
    batch_bytes: int
    compression: str | None = None
    shuffle: tuple[int, int, int] | None = None


sizes = st.sampled_from((1, 60, 100, 150, 300, 10**9))
plain = st.builds(Setting, sizes, sizes, st.none(), st.none())
any_setting = st.builds(
    Setting,
    sizes,
    sizes,
    st.sampled_from((None, "zstd")),
    st.none() | st.tuples(st.just(7), st.integers(1, 6), st.sampled_from((20, 10**9))),
)


class Run(NamedTuple):
    """What a writer left: journal entries, and what its open shard still holds."""

    entries: list[Entry]
    ledger: dict[str, int]
    rejects: list[bytes]


def write(corpus: Any, draw: Any, folder: Path, setting: Setting, done: Entry | None = None) -> Run:
    """Write a corpus from an entry's position on."""
    start = done.position if done else Position()
    journal = Journal(folder, "data")
    journal.prepare()
    shards = ShardSettings(
        schema=corpus.layout.schema(),
        metadata={"job": "test"},
        shard_size=setting.shard_size,
        compression=setting.compression,
        boundaries=Boundaries(None, 0),
        names=corpus.names,
    )
    blocks = Reorder(corpus.names, corpus.layout, start).place(corpus.blocks(draw, start))
    if setting.shuffle:
        blocks = BlockShuffle(corpus.layout.schema(), *setting.shuffle, start).shuffle(blocks)
    index = done.row["index"] + 1 if done else 0
    with pytest.MonkeyPatch.context() as patch, Writer(journal, shards, index, corpus.end) as writer:
        patch.setattr("prep.pipeline.writer.RECORD_BATCH_BYTES", setting.batch_bytes)
        for block in blocks:
            writer.write(block)
        writer.finish()
        return Run(list(writer.committed), dict(writer.ledger()), list(writer.rejects()))


def measure(item: Any) -> int:
    return (
        FIXED_BYTES
        + 2 * len(item.record.tokens)
        + len(item.record.id.encode())
        + len((item.record.kept or "").encode())
    )


def expected_shards(items: Sequence[Any], setting: Setting) -> list[list[list[Any]]]:
    """Shards of record batches of documents; each ends before the document that makes it too large."""
    shards: list[list[list[Any]]] = []
    shard_size = batch_size = 0
    for item in items:
        if item.record.reason is not None:
            continue
        size = measure(item)
        if not shards or shard_size + size > setting.shard_size:
            shards.append([[]])
            shard_size = batch_size = 0
        elif batch_size + size > setting.batch_bytes:
            shards[-1].append([])
            batch_size = 0
        shards[-1][-1].append(item)
        shard_size, batch_size = shard_size + size, batch_size + size
    return shards


def shard_rows(path: Path) -> list[list[tuple[Any, ...]]]:
    """The rows of each record batch of a shard."""
    with pa.OSFile(str(path), "rb") as source, pa.ipc.open_file(source) as reader:
        batches = [reader.get_batch(index) for index in range(reader.num_record_batches)]
        return [[tuple(row.values()) for row in batch.to_pylist()] for batch in batches]


def row_of(item: Any) -> tuple[Any, ...]:
    record = item.record
    return (list(record.tokens), record.text_bytes, item.file, item.row, record.id, record.kept)


@given(data=st.data(), setting=plain)
@few
def test_shards_and_record_batches_are_cut_by_the_documents_alone(
    stream_model: Any, data: st.DataObject, setting: Setting
) -> None:
    corpus = data.draw(stream_model.corpora(40))
    with tempfile.TemporaryDirectory() as folder:
        run = write(corpus, data.draw, Path(folder), setting)
        paths = sorted((Path(folder) / "shards").iterdir())
        assert [path.name for path in paths] == [
            f"data-00000-{index:06}.arrow" for index in range(len(paths))
        ]
        expected = expected_shards(corpus.items(), setting)
        assert [shard_rows(path) for path in paths] == [
            [[row_of(item) for item in batch] for batch in shard] for shard in expected
        ]
        assert len(run.entries) == len(paths)
        assert not list((Path(folder) / "_job" / "tmp").iterdir())


@given(data=st.data(), setting=plain)
@few
def test_the_ledger_of_each_shard_adds_up(stream_model: Any, data: st.DataObject, setting: Setting) -> None:
    corpus = data.draw(stream_model.corpora(40))
    items = corpus.items()
    shards = [[item for batch in shard for item in batch] for shard in expected_shards(items, setting)]
    with tempfile.TemporaryDirectory() as folder:
        run = write(corpus, data.draw, Path(folder), setting)
        assert len(run.entries) == len(shards)
        for index, documents in enumerate(shards):
            # A shard holds what was left out behind its documents, and the first also what came before.
            begin = 0 if index == 0 else items.index(documents[0])
            end = items.index(shards[index + 1][0]) if index + 1 < len(shards) else len(items)
            left_out = [item for item in items[begin:end] if item.record.reason is not None]
            assert run.entries[index].ledger == _counts(documents, left_out)
            assert run.entries[index].sources == _sources(documents, left_out)
            path = Path(folder) / "_job" / "rejects" / f"00000-{index:06}.jsonl"
            found = path.read_bytes().splitlines() if path.exists() else []
            assert [json.loads(line) for line in found] == _rejects(corpus, left_out)
        nothing = [] if shards else items
        assert run.ledger == _counts([], nothing)
        assert [json.loads(line) for line in run.rejects] == _rejects(corpus, nothing)


def _counts(documents: Sequence[Any], left_out: Sequence[Any]) -> dict[str, int]:
    names = [item.record.reason for item in left_out] + ["written"] * len(documents)
    names += [name for item in documents for bit, name in FLAG_NAMES.items() if item.record.flags & bit]
    return {name: names.count(name) for name in names}


def _sources(documents: Sequence[Any], left_out: Sequence[Any]) -> list[list[int]]:
    read = [item.file for item in [*documents, *left_out]]
    rejected = [item.file for item in left_out]
    return [[file, read.count(file), rejected.count(file)] for file in sorted(set(read))]


def _rejects(corpus: Any, left_out: Sequence[Any]) -> list[dict[str, Any]]:
    return [
        {
            "file": corpus.names[item.file],
            "row": item.row,
            "offset": item.row * 100,
            "reason": item.record.reason,
            "message": f"file {item.file}, row {item.row}",
        }
        for item in left_out
        if REASONS.index(item.record.reason) < LISTED
    ]


@given(data=st.data(), setting=any_setting)
@few
def test_the_table_s_row_says_what_the_shard_holds(
    stream_model: Any, data: st.DataObject, setting: Setting
) -> None:
    corpus = data.draw(stream_model.corpora(40))
    with tempfile.TemporaryDirectory() as folder:
        run = write(corpus, data.draw, Path(folder), setting)
        for index, entry in enumerate(run.entries):
            path = Path(folder) / entry.row["path"]
            rows = [row for batch in shard_rows(path) for row in batch]
            lengths = [len(row[0]) for row in rows]
            assert len(rows) > 0
            expected = {
                "part": 0,
                "task": 0,
                "index": index,
                "path": f"shards/data-00000-{index:06}.arrow",
                "num_documents": len(rows),
                "num_tokens": sum(lengths),
                "text_bytes": sum(row[1] for row in rows),
                "min_tokens": min(lengths),
                "max_tokens": max(lengths),
                "sum_squared_tokens": sum(length * length for length in lengths),
                "length_histogram": [
                    [length.bit_length() for length in lengths].count(bits) for bits in range(33)
                ],
                "bos_added": 0,
                "eos_added": len(rows),
                "first_file": rows[0][2],
                "first_row": rows[0][3],
                "last_file": rows[-1][2],
                "last_row": rows[-1][3],
                "source_base": 0,
            }
            size, checksum = checksum_file(path)
            assert entry.row == expected | {"file_bytes": size, "checksum": checksum}
            assert size == path.stat().st_size


@pytest.mark.parametrize("shuffled", [False, True], ids=["in-order", "shuffled"])
@given(data=st.data(), setting=any_setting)
@few
def test_going_on_after_any_shard_gives_the_same_files_q27(
    stream_model: Any, *, data: st.DataObject, setting: Setting, shuffled: bool
) -> None:
    corpus = data.draw(stream_model.corpora(40))
    setting = setting._replace(shuffle=(setting.shuffle or (7, 3, 10**9)) if shuffled else None)
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "whole"
        run = write(corpus, data.draw, whole, setting)
        for done in run.entries[:-1]:
            rest = Path(folder) / f"rest-{done.row['index']}"
            write(corpus, data.draw, rest, setting, done)
            assert _files(rest) == {
                name: content for name, content in _files(whole).items() if _index(name) > done.row["index"]
            }


def _files(folder: Path) -> dict[str, Any]:
    """Every file; of a journal's position only what does not depend on how files were cut for reading."""
    found: dict[str, Any] = {}
    for path in folder.rglob("*"):
        if path.suffix == ".json":
            entry = json.loads(path.read_bytes())
            del entry["next"]["start"], entry["next"]["row"]
            found[path.relative_to(folder).as_posix()] = entry
        elif path.is_file():
            found[path.relative_to(folder).as_posix()] = path.read_bytes()
    return found


def _index(name: str) -> int:
    return int(name.rpartition(".")[0].rpartition("-")[2])
