"""A job that is continued after any number of committed shards ends in the same bytes (P1, P3)."""

from __future__ import annotations

import gzip
import json
import random
import shutil
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from prep.job import run_job

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import ModuleType

    from tests.conftest import MakeConfig

BAD = b"{broken\n"
SHARD_BYTES = 3_000
BLOCKS = {"documents": "block", "block_documents": 40, "seed": 5}


def records(seed: int, count: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)  # noqa: S311
    words = ["the", "quick", "brown", "naïve", "東京", "12345"]
    return [{"text": " ".join(rng.choices(words, k=rng.randint(1, 60)))} for _ in range(count)]


def lines(seed: int, count: int) -> bytes:
    """JSON lines with a bad one before, between and behind them, and a blank one."""
    good = [json.dumps(record, ensure_ascii=False).encode() + b"\n" for record in records(seed, count)]
    middle = count // 2
    return b"".join([BAD, *good[:middle], b"\n", BAD, *good[middle:], BAD])


def jsonl(folder: Path) -> None:
    (folder / "a.jsonl").write_bytes(lines(1, 60))
    (folder / "b.jsonl").write_bytes(BAD * 3)
    (folder / "c.jsonl").write_bytes(lines(2, 60))
    (folder / "d.jsonl").write_bytes(BAD * 2)


def first_file_without_documents(folder: Path) -> None:
    (folder / "a.jsonl").write_bytes(BAD * 3)
    (folder / "b.jsonl").write_bytes(lines(3, 100))


def compressed(folder: Path) -> None:
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(lines(4, 60)))
    (folder / "b.jsonl.zst").write_bytes(zstandard.compress(lines(5, 60)))


def array(folder: Path) -> None:
    elements = [*records(6, 50), {"other": 1}, *records(7, 50)]
    (folder / "a.json").write_text(json.dumps(elements), encoding="utf-8")


def tables(folder: Path) -> None:
    texts: list[str | None] = [record["text"] for record in records(8, 80)]
    table = pa.table({"text": [None, *texts[:40], None, *texts[40:]]})
    pq.write_table(table, folder / "a.parquet", row_group_size=7)
    pq.write_table(table, folder / "b.parquet")
    with pa.OSFile(str(folder / "c.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=9)


def whole_texts(folder: Path) -> None:
    for number, record in enumerate(records(9, 150)):
        (folder / f"{number:03}.txt").write_text("" if number % 7 == 0 else record["text"], encoding="utf-8")


def text_lines(folder: Path) -> None:
    text = "".join(f"{record['text']}\r\n" for record in records(10, 60))
    (folder / "a.txt").write_bytes(b"\xff\n" + text.encode() + b"\n\n")
    (folder / "b.txt.gz").write_bytes(gzip.compress(text.encode()))


CASES = [
    pytest.param(make, shuffle, id=f"{make.__name__}-{'shuffled' if shuffle else 'ordered'}")
    for make in (jsonl, first_file_without_documents, compressed, array, tables, whole_texts, text_lines)
    for shuffle in ({}, BLOCKS)
]


def interrupted(whole: Path, target: Path, committed: int) -> None:
    """The folder as `kill -9` right after so many commits leaves it."""
    shutil.copytree(whole, target)
    for name in ("catalog.json", "shards.parquet", "sources.parquet"):
        (target / name).unlink()
    for pattern in ("_job/journal/*.json", "_job/rejects/*.jsonl", "shards/*.arrow"):
        for path in target.glob(pattern):
            if int(path.stem[-6:]) >= committed:
                path.unlink()


@pytest.mark.parametrize(("make", "shuffle"), CASES)
def test_q27_continuing_after_any_shard_gives_the_same_bytes(
    make: Callable[[Path], None],
    shuffle: dict[str, Any],
    make_config: MakeConfig,
    harness: ModuleType,
    tmp_path: Path,
) -> None:
    sources = tmp_path / "sources"
    sources.mkdir()
    make(sources)

    def run(target: Path, batch_bytes: int) -> None:
        config = make_config(
            sources / "*",
            source={"text_mode": "line" if make is text_lines else "file"},
            processing={
                "workers": 0,
                "batch_bytes": batch_bytes,
                "on_bad_record": "skip",
                "on_bad_text": "skip",
                "shuffle": shuffle,
            },
            output={"path": str(target), "shard_size": SHARD_BYTES},
        )
        run_job(config)

    whole = tmp_path / "whole"
    run(whole, 700)
    expected = harness.digests(whole)
    shards = len(list((whole / "shards").iterdir()))
    assert shards >= 3
    failed = []
    for committed in range(shards + 1):
        target = tmp_path / f"after-{committed}"
        interrupted(whole, target, committed)
        run(target, (300, 2_000)[committed % 2])
        failed += _differences(expected, harness.digests(target), committed)
    assert failed == []


def _differences(expected: dict[str, str], found: dict[str, str], committed: int) -> Sequence[str]:
    names = sorted(name for name in {*expected, *found} if expected.get(name) != found.get(name))
    return [f"after {committed} shards: {name} differs" for name in names]
